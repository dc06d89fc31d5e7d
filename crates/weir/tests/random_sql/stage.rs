//! Two databases of the same content: one for direct connections to the primary, one for connections through Weir.

use crate::play::play;
use crate::script::{Kind, Step};
use crate::support::ground::wait_for_catalog;
use crate::support::{Ground, Proxy, Raw};
use std::cell::Cell;

const SCHEMA: &str = include_str!("schema.sql");

/// Contents that are compared at the end. A sequence's position is: nothing draws without the client's saying so.
const CONTENTS: &[&str] = &[
    "what, n from log",
    "* from t0",
    "* from t1",
    "* from u0",
    "* from p0",
    "* from parent",
    "* from ruled",
    "* from drawn",
    "* from m0",
    "* from guarded",
    "* from watched",
    "* from made",
    "last_value, is_called from sq",
];

pub struct Stage {
    direct: Ground,
    proxied: Ground,
    pub proxy: Proxy,
    kind: Kind,
    resets: Cell<u32>,
}

/// Definitions leave dead rows in the system catalogs, and nobody vacuums: so often we do.
const RESETS_PER_VACUUM: u32 = 5;

impl Stage {
    pub fn new(kind: Kind, settings: &str) -> Stage {
        let (direct, proxied) = (Ground::new(), Ground::new());
        let role = "do $$ begin create role weir_random; exception when duplicate_object or unique_violation then null; end $$";
        direct.prepare(role);
        let proxy = proxied.proxy(settings);
        Stage { direct, proxied, proxy, kind, resets: Cell::new(0) }
    }

    /// Both databases as they are when a script begins. Through Weir, so that it knows.
    fn reset(&self) {
        let mut direct = self.direct.direct();
        let mut proxied = self.proxied.client(&self.proxy);
        self.resets.set(self.resets.get() + 1);
        for client in [&mut direct, &mut proxied] {
            client.run("set client_min_messages = error");
            if self.resets.get().is_multiple_of(RESETS_PER_VACUUM) {
                // Without giving room back to the files, which would stop readers of a standby.
                client.run("vacuum (truncate off)");
            }
            for session in 0..self.kind.sessions {
                let mine = format!("s{session}");
                client.run(&format!("drop schema if exists {mine}, {mine}_odd cascade"));
                client.run(&SCHEMA.replace("MINE", &mine));
            }
        }
        wait_for_catalog(&mut proxied, &self.proxied.database);
    }

    /// Plays a script on both sides: where they differ first, and how.
    pub fn difference(&self, steps: &[Step]) -> Option<String> {
        self.reset();
        let mut pairs: Vec<(Raw, Raw)> = (0..self.kind.sessions).map(|session| self.clients(session)).collect();
        for (at, step) in steps.iter().enumerate() {
            let (direct, proxied) = &mut pairs[step.session];
            let (expected, got) = (play(direct, step), play(proxied, step));
            if expected != got {
                return Some(format!(
                    "step {at}, session {}: {}\n  direct  {expected:?}\n  through {got:?}",
                    step.session, step.text
                ));
            }
            if step.waits_for_catalog {
                let mut asks = Raw::tcp(self.proxy.port()).log_in("postgres", &self.proxied.database, &[]).unwrap();
                wait_for_catalog(&mut asks, &self.proxied.database);
            }
        }
        drop(pairs);
        self.difference_of_contents()
    }

    fn clients(&self, session: usize) -> (Raw, Raw) {
        let mine = format!("s{session}");
        let parameters = [("search_path", mine.as_str()), ("client_min_messages", "error")];
        let log_in = |port: u16, database: &str| {
            let client = Raw::tcp(port).log_in("postgres", database, &parameters);
            client.unwrap_or_else(|failure| panic!("cannot log in: {failure:?}"))
        };
        let primary = self.direct.cluster.primary().port();
        (log_in(primary, &self.direct.database), log_in(self.proxy.port(), &self.proxied.database))
    }

    /// Compares the contents: each write must be there, once.
    fn difference_of_contents(&self) -> Option<String> {
        let (mut direct, mut proxied) = (self.direct.direct(), self.proxied.direct());
        for session in 0..self.kind.sessions {
            for content in CONTENTS {
                let read = |client: &mut Raw| {
                    let mut rows = client.try_rows(&format!("set search_path = s{session}; select {content}"));
                    if let Ok(rows) = &mut rows {
                        rows.sort();
                    }
                    rows
                };
                let (expected, got) = (read(&mut direct), read(&mut proxied));
                if expected != got {
                    return Some(format!(
                        "at the end, {content} of session {session}\n  direct  {expected:?}\n  through {got:?}"
                    ));
                }
            }
        }
        None
    }

    /// Reads that standbys have answered.
    pub fn on_standbys(&self) -> u64 {
        self.proxy.nodes("select_cnt").iter().skip(1).map(|count| count.parse::<u64>().unwrap()).sum()
    }
}
