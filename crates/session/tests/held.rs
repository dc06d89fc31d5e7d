//! A message that waits behind the answer to another one is taken up when that answer comes, however much of it is here by then: each kind of
//! first message before each kind of second one, of a few bytes to three buffers, in one write and in two.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::collections::BTreeMap;
use support::client::Client;
use support::log::{Action, Out};
use support::notation::{Side, bytes_of};
use support::oracle::{Oracle, Sent};
use support::server::Server;
use support::world::World;

const BUFFER_BYTES: usize = 512;

const CONFIGS: &[&str] = &[
    "",
    "pool_mode = session\n",
    "memory_cache_enabled = on\n",
    "transaction_replay = on\n",
    "causal_reads = session\n",
    "statement_analysis_max = 1kB\n",
];

/// Messages that something may wait behind.
const FIRSTS: &[&[&str]] = &[
    &["Query \"set work_mem = '1MB'\""],
    &["Query \"set role other\""],
    &["Query \"reset all\""],
    &["Query \"discard all\""],
    &["Query \"select 1\""],
    &["Query \"select a from t\""],
    &["Query \"select 1/0\""],
    &["Query \"selec 1\""],
    &["Query \"begin\""],
    &["Query \"begin\"", "Query \"insert into t values (1)\""],
    &["Query \"begin\"", "Query \"set work_mem = '1MB'\""],
    &["Query \"create temp table x (a int)\""],
    &["Query \"select writes(1)\""],
    &["Query \"prepare p as select 1\""],
    &["Query \"deallocate all\""],
    &["Query \"listen ch\""],
    &["Query \"show pool_test\""],
    &["Query \"copy t from stdin\"", "CopyData \"1\"", "CopyDone"],
    &["Query \"set work_mem = '1MB'\"", "Query \"set work_mem = '2MB'\""],
    &["FunctionCall 1"],
    &["Parse \"\" \"set work_mem = '1MB'\"", "Bind \"\" \"\"", "Execute \"\"", "Sync"],
    &["Parse \"\" \"reset all\"", "Bind \"\" \"\"", "Execute \"\"", "Sync"],
    &["Parse \"a\" \"select 1\"", "Sync"],
    &["Parse \"a\" \"select a from t\"", "Describe S \"a\"", "Sync"],
    &["Parse \"a\" \"select 1\"", "Flush"],
    &["Parse \"a\" \"selec 1\""],
    &["Parse \"\" \"begin\"", "Bind \"\" \"\"", "Execute \"\""],
];

/// Kinds of second messages, which end with an answer.
#[derive(Clone, Copy, Debug)]
enum Second {
    Query,
    Write,
    Set,
    Many,
    Parse,
    ParseSet,
    Bind,
    Execute,
    Close,
    Call,
    Copy,
}

const SECONDS: &[Second] = &[
    Second::Query,
    Second::Write,
    Second::Set,
    Second::Many,
    Second::Parse,
    Second::ParseSet,
    Second::Bind,
    Second::Execute,
    Second::Close,
    Second::Call,
    Second::Copy,
];

/// Lengths that are added to a message.
const LENGTHS: &[usize] = &[1, 200, 440, 490, 500, 512, 600, 1024, 1100, 1536];

impl Second {
    fn lines(self, length: usize) -> Vec<String> {
        let sync = "Sync".to_owned();
        let text = |text: &str| format!("\"{text} /*{}*/\"", "x".repeat(length));
        let name = "n".repeat(length);
        match self {
            Second::Query => vec![format!("Query {}", text("select 1"))],
            Second::Write => vec![format!("Query {}", text("insert into t values (1)"))],
            Second::Set => vec![format!("Query {}", text("set work_mem = '2MB'"))],
            Second::Many => vec![format!("Query {}", text("insert into t values (1); select 1"))],
            Second::Parse => vec![format!("Parse \"\" {}", text("select 1")), sync],
            Second::ParseSet => {
                let parse = format!("Parse \"\" {}", text("set work_mem = '2MB'"));
                vec![parse, "Bind \"\" \"\"".to_owned(), "Execute \"\"".to_owned(), sync]
            }
            Second::Bind => {
                let bind = format!("Bind \"\" \"\" (\"{name}\")");
                vec!["Parse \"\" \"select $1\" 23".to_owned(), bind, "Execute \"\"".to_owned(), sync]
            }
            Second::Execute => {
                let parse = "Parse \"\" \"select 1\"".to_owned();
                vec![parse, format!("Bind \"{name}\" \"\""), format!("Execute \"{name}\""), sync]
            }
            Second::Close => vec![format!("Close S \"{name}\""), sync],
            Second::Call => vec![format!("Query {}", text("select 1")), "FunctionCall 1".to_owned()],
            Second::Copy => {
                let copy = format!("Query {}", text("copy t from stdin"));
                vec![copy, format!("CopyData \"{name}\""), "CopyDone".to_owned()]
            }
        }
    }
}

fn sent_of(line: &str) -> Option<Sent> {
    Some(match line.split(' ').next().unwrap() {
        "Query" => Sent::Query(0),
        "FunctionCall" => Sent::Call,
        "Parse" => Sent::Parse,
        "Bind" => Sent::Bind,
        "Describe" => Sent::Describe,
        "Execute" => Sent::Execute(0),
        "Close" => Sent::Close,
        "Sync" => Sent::Sync,
        "CopyData" => Sent::CopyData,
        "CopyDone" => Sent::CopyEnd,
        _ => return None,
    })
}

/// A client before servers that answer at once.
struct Play {
    world: World,
    client: Client,
    servers: BTreeMap<String, Server>,
    oracle: Oracle,
}

impl Play {
    fn new(config: &str, standbys: u16) -> Play {
        let world = World::new(config, standbys, BUFFER_BYTES);
        let client = Client::new(&world, 'A', &[]);
        Play { world, client, servers: BTreeMap::new(), oracle: Oracle::default() }
    }

    /// The client's bytes arrive, and all that follows happens, each thing once: nobody looks at a session that nothing has happened to.
    fn send(&mut self, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        self.client.pipes.from_client.extend_from_slice(bytes);
        self.client.run();
        while self.take() {
            self.client.run();
        }
    }

    /// Looks at what the session did. True: something arrived for it.
    fn take(&mut self) -> bool {
        for out in self.world.log.take() {
            match out {
                Out::Server { conn, bytes, .. } => self.servers.get_mut(&conn).unwrap().receive(&bytes),
                Out::Client { bytes, .. } => self.oracle.hear(&bytes),
                Out::Action { what: Action::Opened(conn), .. } => {
                    let server = Server::new(!conn.starts_with("node0"));
                    self.servers.insert(conn, server);
                }
                Out::Action { what: Action::Reset(conn), .. } => {
                    self.servers.get_mut(&conn).unwrap().clean();
                    self.world.finish_resets();
                }
                Out::Action { .. } => {}
            }
        }
        let said = self.client.conn_name().map(|name| std::mem::take(&mut self.servers.get_mut(&name).unwrap().output));
        let said = said.unwrap_or_default();
        if !said.is_empty() {
            self.client.deliver(&said);
        } else if self.client.is_waiting() {
            // It waits for a standby that has replayed what it wrote.
            self.world.replay(&[1]);
        }
        !said.is_empty() || self.client.is_woken()
    }

    /// Sends messages cut into two writes at `at`, the second as soon as nothing more happens. All must be answered then.
    fn check(mut self, lines: &[String], at: usize, told: &dyn Fn() -> String) {
        let bytes: Vec<u8> = lines.iter().flat_map(|line| bytes_of(Side::Client, line)).collect();
        lines.iter().filter_map(|line| sent_of(line)).for_each(|sent| self.oracle.send(sent));
        let at = at.min(bytes.len());
        self.send(&bytes[..at]);
        self.send(&bytes[at..]);
        let (unread, owed) = (self.client.pipes.from_client.len() + self.client.s.up.unseen().len(), self.oracle.owed());
        assert!(unread == 0 && owed.is_empty(), "{}: {unread} bytes unread, owed {owed:?}", told());
        assert!(!self.client.is_over, "{}: the session is over", told());
    }
}

#[test]
fn no_message_waits_for_another_event_than_the_answer_before_it() {
    for (turn, config) in CONFIGS.iter().enumerate() {
        for standbys in [0, 1] {
            let is_plain = config.is_empty() && standbys == 1;
            check_all(config, standbys, turn, if is_plain { 7 } else { 37 });
        }
    }
}

/// Plays every `step`th combination, beginning with number `from`, in one write and cut at a place. No step divides the numbers of kinds, lengths or
/// places, so that each kind meets each other one, with all lengths and places.
fn check_all(config: &str, standbys: u16, from: usize, step: usize) {
    for (number, (first, second, length)) in combinations().enumerate().skip(from).step_by(step) {
        let mut lines: Vec<String> = first.iter().map(|line| (*line).to_owned()).collect();
        let head: usize = lines.iter().map(|line| bytes_of(Side::Client, line).len()).sum();
        lines.extend(second.lines(length));
        // Within the first, behind it, and within the second.
        let cuts = [1, head - 1, head, head + 1, head + 5, head + length / 2, head + length - 1, head + length];
        for at in [0, cuts[number % cuts.len()]] {
            let told = || format!("{config:?} with {standbys} standbys, {first:?}, then {second:?} of {length}, cut at {at}");
            Play::new(config, standbys).check(&lines, at, &told);
        }
    }
}

fn combinations() -> impl Iterator<Item = (&'static [&'static str], Second, usize)> {
    let seconds = || SECONDS.iter().flat_map(|second| LENGTHS.iter().map(|length| (*second, *length)));
    FIRSTS.iter().flat_map(move |first| seconds().map(|(second, length)| (*first, second, length)))
}
