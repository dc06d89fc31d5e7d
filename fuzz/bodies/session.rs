//! Random clients of sessions before servers that keep to the protocol, err, and die.
//!
//! Input: one byte for each thing that happens, and bytes that say more of it. After each the rules of `Play::check` must hold.

use crate::support::client::Client;
use crate::support::log::{Action, Out};
use crate::support::notation::{Side, bytes_of};
use crate::support::oracle::{Oracle, Sent};
use crate::support::server::{Server, WORK_MEM};
use crate::support::world::World;
use std::collections::BTreeMap;
use std::time::Duration;
use weir_failover::cluster::RoleProbeResult;

/// Small, so that most messages come in parts.
const BUFFER_BYTES: usize = 512;

/// Bytes that a session may hold: two buffers, what it says itself, and the longest messages that are made here.
const HELD_BYTES_MAX: usize = 64 << 10;

/// Times that all are looked after before they must be quiet.
const ROUNDS_MAX: usize = 2000;

/// Statements that a client may have sent before it leaves.
const WAITS_MAX: usize = 1000;

const CONFIGS: &[&str] = &[
    "",
    "memory_cache_enabled = on\n",
    "pool_mode = session\n",
    "causal_reads = session\n",
    "prepared_statements_max = 1\n",
    "disable_load_balance_on_write = always\nsequence_sessions = pin\n",
    "statement_level_load_balance = on\n",
    "pool_mode = statement\n",
];

const TEXTS: &[&str] = &[
    "select 1",
    "select a from t",
    "select a from t where a = 1",
    "select reads(1)",
    "select writes(1)",
    "select 1/0",
    "insert into t values (1)",
    "update t set a = 1",
    "begin",
    "begin isolation level repeatable read read only",
    "commit",
    "rollback",
    "set work_mem = '1MB'",
    "set work_mem = '2MB'",
    "reset work_mem",
    "reset all",
    "set role other",
    "discard all",
    "create temp table x (a int)",
    "create table y (a int)",
    "prepare p as select 1",
    "execute p",
    "deallocate p",
    "deallocate a",
    "deallocate all",
    "listen ch",
    "unlisten *",
    "notify ch",
    "select nextval('s')",
    "select currval('s')",
    "select pg_advisory_lock(1)",
    "selec 1",
    "",
    "show pool_test",
    "pgpool show pool_mode",
    "insert into t values (1); select 1",
    "begin; insert into t values (1); commit",
];

const NAMES: &[&str] = &["", "a", "b"];

/// The bytes that say what happens.
struct Choices<'a>(&'a [u8]);

impl Choices<'_> {
    fn next(&mut self) -> Option<u8> {
        let (&first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(first)
    }

    /// A number below `limit`; 0 at the end.
    fn below(&mut self, limit: usize) -> usize {
        usize::from(self.next().unwrap_or(0)) % limit
    }

    fn of<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len())]
    }
}

/// A client, and what it must hear.
struct Actor {
    client: Client,
    oracle: Oracle,
    /// It has said something that is no message: what it hears is not looked at.
    is_wild: bool,
    /// Made and not sent.
    unsent: Vec<u8>,
    /// A copy was asked for, and nothing follows before it is known whether there is one.
    waits: bool,
}

struct Play {
    world: World,
    actors: Vec<Actor>,
    servers: BTreeMap<String, Server>,
    /// The client that has a connection; not there: it is at rest.
    owners: BTreeMap<String, char>,
    numbers: u32,
    /// All is printed: to see what came before a failure.
    is_told: bool,
}

/// Plays what the bytes say. Panics when a rule is broken.
pub fn run(bytes: &[u8]) {
    let mut choices = Choices(bytes);
    let config = choices.of(CONFIGS);
    let standbys = choices.below(3) as u16;
    let mut play = Play::new(config, standbys, 1 + choices.below(3));
    while let Some(what) = choices.next() {
        play.step(what, &mut choices);
        play.settle();
    }
    play.finish();
}

impl Play {
    fn new(config: &str, standbys: u16, clients: usize) -> Play {
        let world = World::new(config, standbys, BUFFER_BYTES);
        let names = ['A', 'B', 'C'];
        let actors = names[..clients].iter().map(|name| Actor {
            client: Client::new(&world, *name, if *name == 'B' { &[("work_mem", "3MB")] } else { &[] }),
            oracle: Oracle::default(),
            is_wild: false,
            unsent: Vec::new(),
            waits: false,
        });
        let actors = actors.collect();
        let is_told = std::env::var_os("WEIR_FUZZ_TOLD").is_some();
        Play { world, actors, servers: BTreeMap::new(), owners: BTreeMap::new(), numbers: 0, is_told }
    }

    fn step(&mut self, what: u8, choices: &mut Choices<'_>) {
        let at = choices.below(self.actors.len());
        match what % 24 {
            0..=9 => self.speak(at, choices),
            10 => self.speak_wildly(at, choices),
            11..=15 => self.deliver(at, choices.below(256) + 1),
            16 | 17 => (0..self.actors.len()).for_each(|at| self.deliver(at, usize::MAX)),
            18 => self.server_errs(at, choices),
            19 => self.happen(at, choices),
            _ => self.send(at, choices.below(64) + 1),
        }
    }

    /// A client makes messages, and sends them or keeps them for later.
    fn speak(&mut self, at: usize, choices: &mut Choices<'_>) {
        self.numbers += 1;
        let number = self.numbers;
        let actor = &mut self.actors[at];
        actor.waits &= !actor.oracle.is_copying() && !actor.oracle.is_answered();
        if actor.waits || actor.client.pipes.client_closed || actor.client.is_over {
            return;
        }
        let text = choices.of(TEXTS);
        let marked = if text.is_empty() { String::new() } else { format!("{text} /*#{number}*/") };
        let name = choices.of(NAMES);
        if actor.oracle.is_copying() {
            return match choices.below(4) {
                0 => actor.say("CopyDone", Sent::CopyEnd),
                1 => actor.say("CopyFail \"no\"", Sent::CopyEnd),
                _ => actor.say("CopyData \"1\"", Sent::CopyData),
            };
        }
        match choices.below(16) {
            // Weir's own answers bear no number.
            0..=3 if text.contains("pool_") => actor.say(&format!("Query \"{text}\""), Sent::Query(0)),
            0..=3 => actor.say(&format!("Query \"{marked}\""), Sent::Query(number)),
            4 => actor.say(&format!("Query \"{text}\""), Sent::Query(0)),
            5 => actor.say(&format!("Parse \"{name}\" \"select $1\" 23"), Sent::Parse),
            6 => actor.say(&format!("Parse \"{name}\" \"{text}\""), Sent::Parse),
            7 => actor.say(&format!("Bind \"\" \"{name}\""), Sent::Bind),
            8 => actor.say(&format!("Describe {} \"{name}\"", choices.of(&["S", "P"])), Sent::Describe),
            9 => actor.say("Execute \"\"", Sent::Execute(0)),
            10 => actor.say(&format!("Close {} \"{name}\"", choices.of(&["S", "P"])), Sent::Close),
            11 => actor.unsent.extend(bytes_of(Side::Client, "Flush")),
            12 => actor.say("Sync", Sent::Sync),
            13 => {
                // A whole run, whose answer has its number.
                actor.say("Parse \"\" \"select $1\" 23", Sent::Parse);
                actor.say(&format!("Bind \"\" \"\" ({number})"), Sent::Bind);
                actor.say("Execute \"\"", Sent::Execute(number));
                actor.say("Sync", Sent::Sync);
            }
            14 => {
                actor.say(&format!("Query \"copy t from stdin /*#{number}*/\""), Sent::Query(number));
                actor.waits = choices.below(2) == 0;
                if !actor.waits {
                    actor.say("CopyData \"1\"", Sent::CopyData);
                    actor.say("CopyDone", Sent::CopyEnd);
                }
            }
            _ => actor.say("FunctionCall 1", Sent::Call),
        }
        if choices.below(4) > 0 {
            self.send(at, usize::MAX);
        }
    }

    fn speak_wildly(&mut self, at: usize, choices: &mut Choices<'_>) {
        let actor = &mut self.actors[at];
        if actor.client.pipes.client_closed {
            return;
        }
        actor.is_wild = true;
        actor.unsent.push(choices.of(b"QPBDECHSFdcfXp!"));
        let length = choices.of(&[4u32, 5, 6, 8, 12, 20, 300, 3, 0xffff_ffff, 10_004, 10_005]);
        let count = choices.below(16).min(choices.0.len());
        actor.unsent.extend(length.to_be_bytes());
        actor.unsent.extend_from_slice(&choices.0[..count]);
        choices.0 = &choices.0[count..];
        self.send(at, usize::MAX);
    }

    fn send(&mut self, at: usize, bytes: usize) {
        let Actor { client, unsent, .. } = &mut self.actors[at];
        let count = bytes.min(unsent.len());
        client.pipes.from_client.extend(unsent.drain(..count));
    }

    /// A part of what a server has said arrives.
    fn deliver(&mut self, at: usize, bytes: usize) {
        let client = &mut self.actors[at].client;
        let Some(server) = client.conn_name().and_then(|name| self.servers.get_mut(&name)) else { return };
        let count = bytes.min(server.output.len());
        let piece: Vec<u8> = server.output.drain(..count).collect();
        client.deliver(&piece);
        if server.is_gone && server.output.is_empty() {
            client.close_server();
        }
    }

    fn server_errs(&mut self, at: usize, choices: &mut Choices<'_>) {
        let name = self.actors[at].client.conn_name();
        let Some(server) = name.and_then(|name| self.servers.get_mut(&name)) else { return };
        match choices.below(5) {
            0 => server.go(),
            4 => server.fails_question = true,
            1 => server.is_gone = true,
            2 => server.fails = Some(choices.of(&["22012", "40001", "25006", "57014", "42601", "0A000"])),
            _ => {
                // Nobody hears what it has said last.
                server.output.clear();
                server.is_gone = true;
            }
        }
    }

    fn happen(&mut self, at: usize, choices: &mut Choices<'_>) {
        let (world, actor) = (&self.world, &mut self.actors[at]);
        let standbys = world.config.nodes.len() - 1;
        match choices.below(13) {
            0 => world.pass(Duration::from_millis(choices.below(256) as u64)),
            1 => world.account.known.note_change(),
            2 => world.publish_catalog(),
            3 => world.replay(&(1..=standbys as u16).collect::<Vec<_>>()),
            4 => actor.client.pipes.client_closed = actor.unsent.is_empty(),
            5 => actor.client.s.handle.cancels.set(1),
            6 => actor.client.s.handle.cancels.set(0),
            7 => {
                world.pool.room.borrow_mut().insert(choices.below(2) as u16, choices.below(2));
            }
            8 => world.pool.room.borrow_mut().clear(),
            9 => actor.client.s.handle.wait_cancelled.set(actor.client.is_waiting()),
            10 if standbys > 0 => world.probe(standbys, &RoleProbeResult::Unreachable),
            11 if standbys > 0 => world.probe(standbys, &RoleProbeResult::Answered { in_recovery: true, lag_bytes: None }),
            12 => self.hub_works(),
            _ => {}
        }
    }

    /// The hub hears of what was notified, and listens to what is wanted.
    fn hub_works(&mut self) {
        let hub = &self.world.pool.hub;
        for (channel, payload) in self.servers.values_mut().flat_map(|server| std::mem::take(&mut server.notified)) {
            let frame = bytes_of(Side::Server, &format!("Notification 1 \"{channel}\" \"{payload}\""));
            assert!(hub.hand(&frame, |task| self.world.pool.wake(task)).is_some(), "{channel} {payload}");
        }
        *hub.encoding.borrow_mut() = "UTF8".into();
        if let Some((_, listened)) = hub.change() {
            hub.confirm(listened);
        }
        hub.tasks().into_iter().for_each(|task| self.world.pool.wake(task));
    }

    /// All sessions move as far as they can, and all that they did is looked at.
    fn settle(&mut self) {
        for _ in 0..ROUNDS_MAX {
            let mut is_quiet = true;
            for at in 0..self.actors.len() {
                self.actors[at].client.run();
                is_quiet &= !self.check();
            }
            if is_quiet && !self.actors.iter().any(|actor| actor.client.is_woken()) {
                return;
            }
        }
        panic!("sessions do not come to rest");
    }

    /// The rules. True: something was done.
    fn check(&mut self) -> bool {
        let outs = self.world.log.take();
        if self.is_told {
            crate::support::render::lines_of(&outs, '-').iter().for_each(|line| eprintln!("{line}"));
        }
        for out in &outs {
            self.check_one(out);
        }
        for actor in &self.actors {
            let s = &actor.client.s;
            let held = s.up.held_bytes() + s.down.held_bytes();
            assert!(held <= HELD_BYTES_MAX, "a session holds {held} bytes");
        }
        // A client that waits says so each time that it looks.
        !outs.iter().all(|out| matches!(out, Out::Action { what: Action::Other(_), .. }))
    }

    fn check_one(&mut self, out: &Out) {
        match out {
            Out::Server { client, conn, bytes } => {
                assert_eq!(self.owners.get(conn), Some(client), "bytes over a connection that is not the session's");
                if let Some(server) = self.servers.get_mut(conn) {
                    let before = server.output.len();
                    server.receive(bytes);
                    if self.is_told {
                        let said =
                            crate::support::render::messages(Side::Server, server.output.get(before..).unwrap_or_default());
                        said.iter().for_each(|line| eprintln!("{conn} says: {line}"));
                    }
                }
            }
            Out::Client { client, bytes } => {
                let actor = self.actors.iter_mut().find(|actor| actor.client.name == *client);
                if let Some(actor) = actor.filter(|actor| !actor.is_wild) {
                    actor.oracle.hear(bytes);
                }
            }
            Out::Action { client, what } => self.check_action(client.unwrap_or('?'), what),
        }
    }

    fn check_action(&mut self, client: char, what: &Action) {
        match what {
            Action::Opened(conn) => {
                self.servers.insert(conn.clone(), Server::new(!conn.starts_with("node0")));
                self.owners.insert(conn.clone(), client);
            }
            Action::Took(conn) => {
                let before = self.owners.insert(conn.clone(), client);
                assert_eq!(before, None, "a connection that another session has");
            }
            Action::GaveBack(conn) => {
                assert_eq!(self.owners.remove(conn), Some(client));
                self.check_rest(client, conn);
            }
            Action::Reset(conn) => {
                assert_eq!(self.owners.remove(conn), Some(client));
                if let Some(server) = self.servers.get_mut(conn) {
                    assert!(server.is_gone || server.is_at_rest(), "a connection is to be cleaned that is not at rest");
                    server.clean();
                }
                self.world.finish_resets();
            }
            Action::Closed(conn) => {
                assert_eq!(self.owners.remove(conn), Some(client));
                self.servers.remove(conn);
            }
            Action::Ended(why) => {
                assert!(!self.owners.values().any(|owner| *owner == client), "a session has ended and has a connection: {why}");
            }
            Action::Waits(_) | Action::Other(_) => {}
        }
    }

    /// A connection was given back: nothing is owed over it, and nothing of the session's is on it.
    fn check_rest(&self, client: char, conn: &str) {
        let Some(server) = self.servers.get(conn) else { return };
        let actor = self.actors.iter().find(|actor| actor.client.name == client);
        let unread = actor.map_or(0, |actor| actor.client.pipes.from_server.len());
        if server.is_gone {
            return;
        }
        assert!(server.is_at_rest() && unread == 0, "{conn} is given back and not at rest: {server:?}");
        assert!(server.left.is_empty(), "{conn} is given back with {:?}", server.left);
        assert!(server.channels.iter().all(|channel| channel.starts_with("weir_marks")), "{conn} listens: {:?}", server.channels);
        let idle = self.world.pool.idle.borrow();
        let known = idle.values().flatten().find(|known| crate::support::world::name_of(known) == conn);
        if let Some(known) = known {
            // A setting that has its default may have been set to that.
            let is_set = |(name, value): &(&str, &str)| (*name, *value) != WORK_MEM;
            let settings: BTreeMap<String, String> =
                known.settings.pairs().filter(is_set).map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
            let mut has = server.settings.clone();
            has.retain(|name, value| (name.as_str(), value.as_str()) != WORK_MEM);
            assert_eq!(has, settings, "{conn} has other settings than is known");
        }
    }

    /// The troubles end: whoever is there is answered. Then all leave.
    fn finish(&mut self) {
        self.world.pool.room.borrow_mut().clear();
        self.world.publish_catalog();
        self.world.pass(Duration::from_secs(60));
        for at in 0..self.actors.len() {
            self.actors[at].client.s.handle.cancels.set(0);
            self.send(at, usize::MAX);
        }
        self.calm();
        for at in 0..self.actors.len() {
            self.numbers += 1;
            let number = self.numbers;
            let actor = &mut self.actors[at];
            if !actor.client.pipes.client_closed {
                if actor.oracle.is_copying() {
                    actor.say("CopyFail \"no\"", Sent::CopyEnd);
                }
                actor.say("Sync", Sent::Sync);
                actor.say("Query \"rollback\"", Sent::Query(0));
                actor.say(&format!("Query \"select 1 /*#{number}*/\""), Sent::Query(number));
            }
            self.send(at, usize::MAX);
            self.calm();
            let actor = &self.actors[at];
            let is_done = actor.is_wild || actor.client.is_over || actor.client.is_waiting() || actor.oracle.is_answered();
            assert!(is_done, "client {} is not answered: {:?}", actor.client.name, actor.oracle.owed());
            self.actors[at].client.pipes.client_closed = true;
            self.actors[at].client.pipes.client_gone = true;
            self.calm();
            // Each of its statements may wait for a standby, none longer than this.
            for _ in 0..WAITS_MAX {
                if self.actors[at].client.is_over {
                    break;
                }
                self.world.pass(Duration::from_secs(60));
                self.calm();
            }
            assert!(self.actors[at].client.is_over, "a session goes on without its client");
        }
        assert!(self.owners.is_empty(), "all have left and have connections: {:?}", self.owners);
    }

    /// All that servers have said arrives, until nobody says anything more.
    fn calm(&mut self) {
        for _ in 0..ROUNDS_MAX {
            self.hub_works();
            self.settle();
            let has_more = |actor: &Actor| {
                let server = actor.client.conn_name().and_then(|name| self.servers.get(&name));
                server.is_some_and(|server| !server.output.is_empty() || server.is_gone)
            };
            if !self.actors.iter().any(has_more) {
                return;
            }
            (0..self.actors.len()).for_each(|at| self.deliver(at, usize::MAX));
            self.settle();
        }
        panic!("servers and sessions talk for ever");
    }
}

impl Actor {
    fn say(&mut self, line: &str, sent: Sent) {
        self.unsent.extend(bytes_of(Side::Client, line));
        self.oracle.send(sent);
    }
}
