//! Clients with bytes that no driver sends: valid conversations that were broken, cut, reordered and flooded, before and after
//! login.
//!
//! Each is judged by PostgreSQL's own answer to the same bytes: the proxy says the same, or ends the session with a protocol
//! violation (08P01). Meanwhile other clients of the same few server connections look after their own results and state. In the
//! end no session, no transaction and no memory is left over, and nothing has panicked.
//!
//! `WEIR_HOSTILE_ROUNDS`: conversations (a bounded number without it); `WEIR_HOSTILE_SEED`: the first seed, or `fresh` for one that was
//! never tried. Without it they are the same in every run, so that a failure is news.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "hostile_client/control.rs"]
mod control;
#[path = "hostile_client/conversation.rs"]
mod conversation;
#[path = "hostile_client/deliver.rs"]
mod deliver;
#[path = "differential/dice.rs"]
mod dice;
#[path = "hostile_client/mutate.rs"]
mod mutate;
#[allow(dead_code, unused_imports, reason = "shared with the end-to-end tests, which use all of it")]
mod support;

use control::Control;
use deliver::{Ending, Stand};
use dice::Dice;
use std::sync::Mutex;
use std::thread;
use std::time::UNIX_EPOCH;
use support::proxy::show;
use support::{Proxy, wait_until};
use weir_demo::Server;

/// Conversations when nothing else is asked for: some seconds of them.
const ROUNDS: u64 = 1200;
/// Seed of the conversations that every run plays.
const FIXED_SEED: u64 = 20_250_607;
/// Hostile clients at once.
const THREADS: u64 = 3;
/// Memory that may come with nine times as many conversations as before. Tables of seen texts are bounded, and fill.
const GROWTH_KB_MAX: u64 = 24 << 10;
/// Failures told before a run gives up.
const FAILURES_MAX: usize = 5;

/// The server's databases: one for statements through the proxy, one for direct ones. Damage by a script in one of them would
/// not show in the other, so both are read-only but for temporary tables.
const PROXIED: &str = "proxied";
const DIRECT: &str = "direct";

const RULES: &str = "local all all trust\nhost all postgres all trust\nhost all anna all scram-sha-256\nhost all berta all md5\n\
                     host all clara all password\n";
const PASSWORDS: &str = "anna:secret of anna\nberta:secret of berta\nclara:secret of clara\n";
const SETTINGS: &str = "enable_pool_hba = on\npool_size = 6\nlogin_failure_limit = 0\nauthentication_timeout = 2\n\
                        max_client_connections = 400\nlog_connections = on\n";

fn prepare(server: &Server) {
    for database in [PROXIED, DIRECT] {
        server.query(&format!("create database {database}")).unwrap();
        server.query(&format!("alter database {database} set default_transaction_read_only = on")).unwrap();
    }
    for role in ["anna", "berta", "clara"] {
        server.query(&format!("create role {role} login")).unwrap();
    }
}

#[test]
fn hostile_clients_get_the_servers_answer_or_are_sent_away_and_disturb_nobody() {
    let cluster = support::ground::cluster(0);
    let server = cluster.primary();
    prepare(server);
    let files = [("pool_hba.conf", RULES), ("pool_passwd", PASSWORDS)];
    let proxy = Proxy::with_files(&[server], SETTINGS, &files, &[]);
    let stand = Stand { proxy: proxy.port(), server: server.port() };
    let rounds = number_of("WEIR_HOSTILE_ROUNDS").unwrap_or(ROUNDS);
    let fresh = UNIX_EPOCH.elapsed().map_or(0, |time| time.as_micros() as u64);
    let is_fresh = std::env::var("WEIR_HOSTILE_SEED").is_ok_and(|seed| seed == "fresh");
    let first = if is_fresh { fresh } else { number_of("WEIR_HOSTILE_SEED").unwrap_or(FIXED_SEED) };

    let control = Control::start(proxy.port(), 2);
    let early = rounds / 10;
    let failures = play_all(&stand, first, early);
    let before_kb = proxy.rss_kb();
    let failures = if failures.is_empty() { play_all(&stand, first + early, rounds - early) } else { failures };
    let complaints = control.end();
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
    assert!(complaints.is_empty(), "clients that did nothing wrong were disturbed: {complaints:?}");

    check_nothing_is_left(&proxy, server);
    let growth_kb = proxy.rss_kb().saturating_sub(before_kb);
    assert!(growth_kb < GROWTH_KB_MAX, "{growth_kb} kB more after {} more conversations", rounds - early);
}

fn number_of(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok().filter(|text| text != "fresh")?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable} is not a number: {text}")))
}

/// Plays so many conversations, shared among the threads, and returns the faults.
fn play_all(stand: &Stand, first: u64, rounds: u64) -> Vec<String> {
    let failures = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let failures = &failures;
            scope.spawn(move || {
                // Clients that never said enough to log in: `authentication_timeout` ends them.
                let mut silent = Vec::new();
                for seed in (first + thread..first + rounds).step_by(THREADS as usize) {
                    if let Err(failure) = play(stand, seed, &mut silent) {
                        failures.lock().unwrap().push(format!("WEIR_HOSTILE_SEED={seed} WEIR_HOSTILE_ROUNDS=1: {failure}"));
                    }
                    if failures.lock().unwrap().len() >= FAILURES_MAX {
                        return;
                    }
                }
            });
        }
    });
    failures.into_inner().unwrap()
}

/// Connections one thread leaves open.
const SILENT_MAX: usize = 40;

/// One conversation, made of its seed.
fn play(stand: &Stand, seed: u64, silent: &mut Vec<support::Raw>) -> Result<(), String> {
    let mut dice = Dice::new(seed);
    if dice.once_in(3) {
        let mut pieces = conversation::login(&mut dice);
        mutate::mutate(&mut pieces, &mut dice);
        let bytes = pieces.concat();
        let ending = if silent.len() < SILENT_MAX { dice.of(&Ending::ALL) } else { Ending::HalfClose };
        let left = deliver::before_login(stand, &bytes, ending, &mut dice);
        silent.extend(left.map_err(|what| format!("{what}\nsent: {}", shown(&bytes)))?);
        return Ok(());
    }
    let mut pieces = conversation::session(&mut dice);
    mutate::mutate(&mut pieces, &mut dice);
    let bytes = pieces.concat();
    let ending = dice.of(&[Ending::HalfClose, Ending::HalfClose, Ending::HalfClose, Ending::Close, Ending::Reset]);
    deliver::after_login(stand, &bytes, ending, &mut dice).map_err(|what| format!("{what}\nsent: {}", shown(&bytes)))
}

fn shown(bytes: &[u8]) -> String {
    const SHOWN_MAX: usize = 3000;
    let more = if bytes.len() > SHOWN_MAX { format!("... {} bytes", bytes.len()) } else { String::new() };
    format!("{}{more}", bytes[..bytes.len().min(SHOWN_MAX)].escape_ascii())
}

/// Sessions, transactions and server connections of gone clients are gone, too.
fn check_nothing_is_left(proxy: &Proxy, server: &Server) {
    let mut console = proxy.console();
    wait_until("sessions of clients that left to end", || show(&mut console, "pool_processes", "pool_pid").len() == 1);
    let open = "select count(*) from pg_stat_activity where backend_type = 'client backend' and datname = 'proxied' and \
                (xact_start is not null or state <> 'idle')";
    wait_until("their transactions to end", || server.value(open).unwrap() == "0");
    let conns = server.value("select count(*) from pg_stat_activity where datname = 'proxied'").unwrap();
    assert!(conns.parse::<u32>().unwrap() <= 6, "{conns} server connections, pool_size is 6");
    let mut client = support::Raw::tcp(proxy.port()).log_in("postgres", PROXIED, &[]).unwrap();
    assert_eq!(client.value("select 1"), "1");
    let log = proxy.log();
    let forged: Vec<&str> = log.lines().filter(|line| !line.starts_with("20")).collect();
    assert!(forged.is_empty(), "every line of the log begins with its time: {forged:?}");
}
