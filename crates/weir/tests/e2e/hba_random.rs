//! `pool_hba.conf` against PostgreSQL's own `pg_hba.conf`: files at random, the same for both, and random clients. Both must take or refuse the
//! file, and ask each client for the same proof, or refuse it for the same reason.
//!
//! `WEIR_HBA_ROUNDS`: files (a bounded number without it); `WEIR_HBA_SEED`: the first seed, or `fresh` for one that was never tried.

mod rules;

use crate::dice::Dice;
use crate::support::certs::Authority;
use crate::support::ground::{Owned, cluster};
use crate::support::{Proxy, Raw, wait_until, wire};
use rules::{Files, Known, Visit, Way};
use rustls::ClientConfig;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;
use std::sync::Arc;
use std::time::UNIX_EPOCH;
use weir_demo::Server;

const FIXED_SEED: u64 = 1;
/// Files of a run, unless somebody asks for more.
const ROUNDS: u64 = 30;
/// Clients for each.
const VISITS: usize = 30;
/// After as many differences nobody reads on.
const FAILURES_MAX: usize = 5;

/// The tests' own user, who must always get in.
const OWN_RULES: &str = "local all postgres trust\nhost all postgres 127.0.0.1/32 trust\n";

/// Users with passwords kept in both ways, groups within groups, and databases named like keywords.
const PREPARE: &str = "create role anna login replication password 'secret';
    create role boss superuser login replication password 'secret';
    create role \"all\" login replication password 'secret';
    create role \"My user\" login replication password 'secret';
    set password_encryption = 'md5';
    create role old login replication password 'secret';
    create role staff role anna; create role inner role old; grant staff to inner";

/// The answer to a client's first message.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Answer {
    /// The code of an authentication request; 0: in.
    Asked(u32),
    Rejected,
    NoEntry,
    Other(String),
}

/// A server that judges by its own file, one that trusts, and Weir before the latter.
struct Stage {
    judge: Owned,
    _trusting: Owned,
    proxy: Proxy,
    tls: Arc<ClientConfig>,
    known: Known,
}

impl Stage {
    fn new() -> Stage {
        let (judge, trusting) = (cluster(0), cluster(0));
        for server in [judge.primary(), trusting.primary()] {
            let mut sql = server.connect("postgres", "postgres").unwrap();
            sql.query(PREPARE).unwrap();
            for database in rules::DATABASES.iter().filter(|name| **name != "postgres") {
                sql.query(&format!("create database \"{database}\"")).unwrap();
            }
        }
        let authority = Authority::new("authority");
        let signed = authority.server();
        let judging = judge.primary();
        write(judging, "server.crt", &signed.cert);
        write(judging, "server.key", &signed.key);
        judging.query("alter system set ssl = on").unwrap();
        let stored = "select rolname, rolpassword from pg_authid where rolpassword is not null order by 1";
        let mut passwords = String::new();
        for row in trusting.primary().query(stored).unwrap() {
            let [Some(name), Some(secret)] = row.as_slice() else { panic!("{row:?}") };
            let _ = writeln!(passwords, "{name}:{secret}");
        }
        let files = [
            ("pool_hba.conf", OWN_RULES),
            ("pool_passwd", passwords.as_str()),
            ("server.crt", signed.cert.as_str()),
            ("server.key", signed.key.as_str()),
        ];
        let more = "enable_pool_hba = on\nlogin_failure_limit = 0\nssl = on\nssl_cert = 'server.crt'\nssl_key = 'server.key'\n\
                    backend_sslmode = disable\nauth_cache_time = 1h\n";
        let proxy = Proxy::with_files(&[trusting.primary()], more, &files, &[]);
        let known = Known::of(judging.programs().major());
        let tls = authority.client_config(&[]);
        let stage = Stage { judge, _trusting: trusting, proxy, tls, known };
        assert!(stage.load(&Files { lines: Vec::new(), beside: Vec::new() }).is_some(), "an empty file is one");
        stage
    }

    /// Gives both the files, and waits until both have read them. If both took them: yes; `None`: both refused them.
    fn load(&self, files: &Files) -> Option<()> {
        let text = format!("{OWN_RULES}{}", files.text());
        let judge = self.judge.primary();
        for (name, text) in &files.beside {
            write(judge, name, text);
            self.proxy.write_file(name, text);
        }
        write(judge, "pg_hba.conf", &text);
        self.proxy.write_file("pool_hba.conf", &text);
        // The postmaster reads the file before it accepts the next client.
        let reloads = || judge.log().matches("received SIGHUP").count();
        let refusals = || judge.log().matches("pg_hba.conf was not reloaded").count();
        let (reloaded, refused) = (reloads(), refusals());
        judge.reload().unwrap();
        wait_until("the server to reload", || reloads() > reloaded);
        // An answer of a server process that was started since comes behind all that the postmaster said.
        Raw::unix(judge.socket_dir(), judge.port()).log_in("postgres", "postgres", &[]).unwrap();
        let weir_refusals = || self.proxy.log().matches("configuration not reloaded").count();
        let weir_refused = weir_refusals();
        self.proxy.reload();
        let taken = [refusals() == refused, weir_refusals() == weir_refused];
        assert_eq!(taken[0], taken[1], "PostgreSQL and Weir take the file:\n{text}\n{:?}", files.beside);
        taken[0].then_some(())
    }

    /// Answers of the server and of Weir to a client.
    fn answers(&self, visit: Visit) -> [Answer; 2] {
        let judge = self.judge.primary();
        let theirs = self.answer(judge.socket_dir(), judge.port(), visit);
        [theirs, self.answer(self.proxy.folder(), self.proxy.port(), visit)]
    }

    fn answer(&self, folder: &Path, port: u16, visit: Visit) -> Answer {
        let mut client = match visit.way {
            Way::Socket => Raw::unix(folder, port),
            Way::Tcp(address) => Raw::tcp_from(address, port),
            Way::Tls => Raw::tls(port, self.tls.clone()),
        };
        let mut parameters = vec![("user", visit.user), ("database", visit.database)];
        parameters.extend(visit.replication.map(|kind| ("replication", kind)));
        client.send(&wire::startup(wire::V3_0, &parameters));
        let message = client.read();
        if message.tag == b'R' {
            return Answer::Asked(u32::from_be_bytes(*message.body.first_chunk().unwrap()));
        }
        let failure = message.failure();
        match failure.message.as_str() {
            text if text.contains("_hba.conf rejects ") => Answer::Rejected,
            text if text.starts_with("no p") && text.contains("_hba.conf entry for ") => Answer::NoEntry,
            text => Answer::Other(format!("{}: {text}", failure.sqlstate)),
        }
    }

    /// Drops lines as long as the visit's answers still differ.
    fn made_smaller(&self, files: &Files, visit: Visit) -> String {
        let mut smallest = files.clone();
        let mut at = 0;
        while at < smallest.lines.len() {
            let mut candidate = smallest.clone();
            candidate.lines.remove(at);
            let differs = || {
                let [theirs, ours] = self.answers(visit);
                theirs != ours
            };
            if self.load(&candidate).is_some() && differs() {
                smallest = candidate;
            } else {
                at += 1;
            }
        }
        format!("{}with {:?}", smallest.text(), smallest.beside)
    }
}

/// Writes a file beside the server's data, as a file of the server's own.
fn write(server: &Server, name: &str, text: &str) {
    let path = server.data_dir().join(name);
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    let owner = fs::metadata(server.data_dir()).unwrap();
    chown(&path, Some(owner.uid()), Some(owner.gid())).unwrap();
}

fn number_of(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{variable} is not a number: {text}")))
}

#[test]
fn random_clients_are_asked_and_refused_as_by_postgresqls_own_file() {
    let rounds = number_of("WEIR_HBA_ROUNDS").unwrap_or(ROUNDS);
    let fresh = UNIX_EPOCH.elapsed().map_or(0, |time| time.as_micros() as u64);
    let is_fresh = std::env::var("WEIR_HBA_SEED").is_ok_and(|seed| seed == "fresh");
    let first = if is_fresh { fresh } else { number_of("WEIR_HBA_SEED").unwrap_or(FIXED_SEED) };
    let stage = Stage::new();
    let (mut failures, mut refused, mut counts) = (0, 0, BTreeMap::<Answer, usize>::new());
    for seed in first..first + rounds {
        let mut dice = Dice::new(seed);
        let files = rules::files(&mut dice, stage.known);
        if stage.load(&files).is_none() {
            refused += 1;
            continue;
        }
        for _ in 0..VISITS {
            let visit = rules::visit(&mut dice);
            let [theirs, ours] = stage.answers(visit);
            if theirs != ours {
                let small = stage.made_smaller(&files, visit);
                eprintln!("WEIR_HBA_SEED={seed} WEIR_HBA_ROUNDS=1: {visit:?}: PostgreSQL {theirs:?}, Weir {ours:?}\n{small}");
                failures += 1;
                break;
            }
            *counts.entry(theirs).or_default() += 1;
        }
        if failures >= FAILURES_MAX {
            break;
        }
    }
    eprintln!("{rounds} files from seed {first}, {refused} refused by both; {counts:?}");
    assert_eq!(failures, 0, "differences, see above; WEIR_HBA_SEED repeats one");
    let kinds = [Answer::Asked(0), Answer::Asked(3), Answer::Asked(5), Answer::Asked(10), Answer::Rejected, Answer::NoEntry];
    assert!(rounds < ROUNDS || kinds.iter().all(|kind| counts.contains_key(kind)), "some answer never came: {counts:?}");
}
