//! Each kind of statement in each situation of a session (`situations.txt`): where it runs, what Weir sends beside it, and what follows.
//!
//! ```text
//! == the standby is down
//! ! down node1
//! sent: opens node0#1, to node0#1: it (rule read)
//! done: Ready I, gives back node0#1 (kept by nothing)
//! next: takes node0#1
//! fails: ...
//! lost: ...
//!     select 1
//!     select a from t
//! ```
//!
//! Behind a situation's name stand its configuration and the messages and events that lead to it, all of which servers answer at once. A paragraph is an
//! outcome and all statements that have it: `sent` while the server is silent, `done` when it has answered, `next` when a read follows then, and `ends` when
//! a COMMIT ends the transaction, `torn` if the server goes in place of an answer to that; `fails` if it has an error for the statement instead, `lost` if it goes. `it` is the statement itself. `WEIR_SCRIPTS=write` writes what happens now.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use support::client::Client;
use support::events::happen;
use support::log::Out;
use support::notation::{Side, bytes_of};
use support::render::lines_of;
use support::server::Server;
use support::world::{World, config};
use weir_config::Config;

/// Tried in each situation.
const STATEMENTS: &str = include_str!("situations/statements.txt");

/// Size of a worker's buffers.
const BUFFER_BYTES: usize = 32 << 10;

/// Steps in which all must come to rest.
const STEPS_MAX: usize = 200;

#[test]
fn by_simple_queries() {
    check("simple", Protocol::Simple);
}

#[test]
fn by_the_extended_protocol() {
    check("extended", Protocol::Extended);
}

/// Errors that a server may have for a statement: of any statement, of a standby, of a server that goes.
const ERRORS: &[&str] = &["22012", "25006", "26000", "0A000", "40001", "57014", "58P01", "53300", "25P03", "57P01", "57P03"];

/// Statements that fail by them.
const FAILING: &[&str] = &[
    "select a from t",
    "select reads(a) from t",
    "select a from t for update",
    "select 1; select 2",
    "select 1; insert into t values (1)",
    "insert into t values (1)",
    "create table x (a int)",
    "set work_mem = '1MB'",
    "execute p",
    "commit",
];

#[test]
fn by_errors_of_servers() {
    check_file("errors", |situation| {
        let tries = ERRORS.iter().flat_map(|error| FAILING.iter().map(move |statement| (*error, *statement)));
        written(
            situation,
            tries.map(|(error, statement)| (failure_of(situation, error, statement), format!("{error} {statement}"))),
        )
    });
}

/// The answers to an error of the server, in whole and in pieces, by both protocols; and what a read meets behind it.
fn failure_of(situation: &Situation, error: &'static str, statement: &str) -> String {
    let mut text = String::new();
    for (kind, protocol, piece_bytes) in [
        ("simple", Protocol::Simple, usize::MAX),
        ("pieces", Protocol::Simple, PIECE_BYTES),
        ("extended", Protocol::Extended, usize::MAX),
    ] {
        let mut play = Play::new(situation);
        play.send(protocol, statement);
        if play.unread.is_empty() {
            return "nothing is sent\n".to_owned();
        }
        play.outs.clear();
        play.piece_bytes = piece_bytes;
        play.servers.values_mut().for_each(|server| server.fails = Some(error));
        play.answer();
        let told = play.told(statement, Answers::Passed);
        play.send(Protocol::Simple, "select a from t");
        text.push_str(&format!("{kind}: {told} | next {}\n", play.told("select a from t", Answers::Passed)));
    }
    text.replace(error, "it")
}

/// Bytes that come at once where answers come in pieces.
const PIECE_BYTES: usize = 11;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Protocol {
    Simple,
    Extended,
}

/// A situation, and what leads to it.
#[derive(Clone)]
struct Situation {
    name: String,
    /// Its lines.
    lines: String,
    config: Arc<Config>,
    standbys: u16,
    /// Messages and events, with their marks.
    steps: Vec<String>,
}

fn check(name: &str, protocol: Protocol) {
    check_file(name, |situation| {
        written(situation, STATEMENTS.lines().map(|statement| (outcome_of(situation, protocol, statement), statement.to_owned())))
    });
}

fn check_file(name: &str, told: impl Fn(&Situation) -> String) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/situations").join(name).with_extension("txt");
    let before = std::fs::read_to_string(&path).unwrap();
    let now = situations(&before).iter().map(told).collect::<Vec<_>>().join("\n");
    if std::env::var("WEIR_SCRIPTS").is_ok_and(|value| value == "write") {
        std::fs::write(&path, &now).unwrap();
        return;
    }
    check_same(&path, &before, &now);
}

fn check_same(path: &Path, before: &str, now: &str) {
    let (mut old, mut new) = (before.lines(), now.lines());
    let mut situation = "";
    for number in 1.. {
        let (left, right) = (old.next(), new.next());
        if left.is_none() && right.is_none() {
            return;
        }
        assert_eq!(left, right, "{}, line {number}, {situation}", path.display());
        situation = left.filter(|line| line.starts_with("== ")).unwrap_or(situation);
    }
}

fn situations(text: &str) -> Vec<Situation> {
    let mut all: Vec<Situation> = Vec::new();
    let mut is_head = false;
    for line in text.lines() {
        if let Some(name) = line.strip_prefix("== ") {
            let name = name.to_owned();
            all.push(Situation { name, lines: String::new(), config: Arc::default(), standbys: 1, steps: Vec::new() });
            is_head = true;
            continue;
        }
        let Some(situation) = all.last_mut().filter(|_| is_head) else { continue };
        match line.split_once(' ') {
            Some(("config:", more)) => situation.lines.push_str(&format!("{more}\n")),
            Some(("standbys:", count)) => situation.standbys = count.parse().unwrap(),
            Some((">" | "!", _)) => situation.steps.push(line.to_owned()),
            _ => is_head = false,
        }
    }
    all.iter_mut().for_each(|situation| situation.config = Arc::new(config(&situation.lines, situation.standbys)));
    all
}

/// The situation with all outcomes in it, and the statements of each.
fn written(situation: &Situation, tries: impl Iterator<Item = (String, String)>) -> String {
    let mut outcomes: Vec<(String, Vec<String>)> = Vec::new();
    for (outcome, statement) in tries {
        match outcomes.iter_mut().find(|(other, _)| *other == outcome) {
            Some((_, statements)) => statements.push(statement),
            None => outcomes.push((outcome, vec![statement])),
        }
    }
    let mut text = format!("== {}\n", situation.name);
    situation.lines.lines().for_each(|line| text.push_str(&format!("config: {line}\n")));
    if situation.standbys != 1 {
        text.push_str(&format!("standbys: {}\n", situation.standbys));
    }
    situation.steps.iter().for_each(|step| text.push_str(&format!("{step}\n")));
    for (outcome, statements) in outcomes {
        text.push_str(&outcome);
        statements.iter().for_each(|statement| text.push_str(&format!("    {statement}\n")));
    }
    text
}

fn outcome_of(situation: &Situation, protocol: Protocol, statement: &str) -> String {
    let mut play = Play::new(situation);
    let mut text = String::new();
    let mut note = |kind: &str, what: String| text.push_str(&format!("{kind}: {what}\n"));
    play.send(protocol, statement);
    let sent = play.told(statement, Answers::Told);
    let is_sent = sent.contains("to node");
    note("sent", format!("{sent} (rule {})", play.client.s.handle.clock.rule.get().name()));
    play.answer();
    let pin = play.client.s.pin().map_or("nothing", |kept| weir_session::flow::HoldReason::reason(kept.code()));
    note("done", format!("{} (kept by {pin})", play.told(statement, Answers::Passed)));
    play.send(Protocol::Simple, "select a from t");
    note("next", play.told("select a from t", Answers::Told));
    play.answer();
    if play.client.s.status() != b'I' {
        play.outs.clear();
        play.send(Protocol::Simple, "commit");
        play.answer();
        note("ends", play.told("commit", Answers::Passed));
        let mut play = Play::new(situation);
        play.send(protocol, statement);
        play.answer();
        play.send(Protocol::Simple, "commit");
        play.outs.clear();
        play.client.close_server();
        play.answer();
        note("torn", play.told("commit", Answers::Told));
    }
    if is_sent {
        let mut play = Play::new(situation);
        play.send(protocol, statement);
        play.outs.clear();
        play.servers.values_mut().for_each(|server| server.fails = Some("22012"));
        play.answer();
        note("fails", play.told(statement, Answers::Passed));
        let mut play = Play::new(situation);
        play.send(protocol, statement);
        play.outs.clear();
        play.client.close_server();
        play.answer();
        note("lost", play.told(statement, Answers::Passed));
    }
    text
}

/// A session, and the servers of its connections by their names.
struct Play {
    world: World,
    client: Client,
    servers: BTreeMap<String, Server>,
    outs: Vec<Out>,
    /// Messages to servers that they have not read.
    unread: Vec<(String, Vec<u8>)>,
    /// Words of servers come in pieces of so many bytes.
    piece_bytes: usize,
}

impl Play {
    fn new(situation: &Situation) -> Play {
        let world = World::of(situation.config.clone(), situation.standbys, BUFFER_BYTES);
        let client = Client::new(&world, 'A', &[]);
        let (servers, outs, unread, piece_bytes) = (BTreeMap::new(), Vec::new(), Vec::new(), usize::MAX);
        let mut play = Play { world, client, servers, outs, unread, piece_bytes };
        for step in &situation.steps {
            match step.split_at(2) {
                ("! ", event) => happen(&play.world, &mut play.client, event),
                (_, message) => play.client.pipes.from_client.extend(bytes_of(Side::Client, message)),
            }
            play.run();
            play.answer();
        }
        play.outs.clear();
        play
    }

    fn send(&mut self, protocol: Protocol, statement: &str) {
        let lines = match protocol {
            Protocol::Simple => vec![format!("Query \"{statement}\"")],
            Protocol::Extended => {
                let parse = format!("Parse \"\" \"{statement}\"");
                [parse.as_str(), "Bind \"\" \"\"", "Describe P \"\"", "Execute \"\"", "Sync"].map(str::to_owned).to_vec()
            }
        };
        lines.iter().for_each(|line| self.client.pipes.from_client.extend(bytes_of(Side::Client, line)));
        self.run();
    }

    fn run(&mut self) {
        self.client.run();
        while self.client.is_woken() {
            self.client.run();
        }
        for out in self.world.log.take() {
            if let Out::Server { conn, bytes, .. } = &out {
                self.unread.push((conn.clone(), bytes.clone()));
                let is_standby = !conn.starts_with("node0");
                self.servers.entry(conn.clone()).or_insert_with(|| Server::new(is_standby)).agrees = true;
            }
            self.outs.push(out);
        }
    }

    /// Servers read and answer until nobody has anything to say.
    fn answer(&mut self) {
        self.run();
        for _ in 0..STEPS_MAX {
            for (conn, bytes) in std::mem::take(&mut self.unread) {
                self.servers.get_mut(&conn).into_iter().for_each(|server| server.receive(&bytes));
            }
            let conn = self.client.conn_name();
            let server = conn.as_ref().and_then(|conn| self.servers.get_mut(conn));
            let Some(server) = server.filter(|server| !server.output.is_empty()) else {
                if self.unread.is_empty() {
                    return;
                }
                continue;
            };
            let (said, is_gone) = (std::mem::take(&mut server.output), server.is_gone);
            for piece in said.chunks(self.piece_bytes) {
                // The rest is nobody's once its connection is left.
                if self.client.conn_name() == conn {
                    self.client.deliver(piece);
                    self.run();
                }
            }
            if is_gone && self.client.conn_name() == conn {
                self.client.close_server();
                self.run();
            }
        }
        panic!("it does not come to rest");
    }

    /// All acts since the last time, in one line.
    fn told(&mut self, statement: &str, answers: Answers) -> String {
        let lines = lines_of(&std::mem::take(&mut self.outs), 'A');
        let is_kept = |line: &&String| {
            let message = line.strip_prefix("to client: ").unwrap_or_default();
            let is_of_loss = LOSSES.iter().any(|begin| line.starts_with(begin));
            !is_of_loss && (answers == Answers::Told || !ANSWERS.iter().any(|name| message.starts_with(name)))
        };
        let word_of = |line: &String| {
            let line =
                line.strip_prefix("action: ").unwrap_or(line).replace(&format!("\"{statement}\""), "it").replace(ALL, "all");
            line.chars().take(WORD_MAX).collect()
        };
        let words: Vec<String> = lines.iter().filter(is_kept).map(word_of).collect();
        if words.is_empty() { "nothing".to_owned() } else { words.join(", ") }
    }
}

/// Of a line so much is told.
const WORD_MAX: usize = 110;

/// All that a server is asked for after anything.
const ALL: &str = "settings, users, prepared, channels, locks, temporary, cursors, slots, sources";

/// Begins of lines about any loss.
const LOSSES: &[&str] =
    &["action: logs Log: server connection to", "action: tells that node", "action: has the nodes looked at: ConnectionLost"];

/// Messages that a statement's server made up.
const ANSWERS: &[&str] = &["RowDescription", "DataRow", "NoData", "CommandComplete", "ParseComplete", "BindComplete"];

/// The answers that the client got, in words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answers {
    Told,
    /// They are the server's.
    Passed,
}
