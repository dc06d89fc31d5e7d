//! In transaction pooling a session sees no difference from a direct connection, while others take the server connections it used
//! last; and they see nothing of it.
//!
//! Each story is played on a direct connection and through Weir, statement by statement, and every message must be the same. Between
//! two statements a neighbour takes the connection that was used last and looks around on it.

use crate::support::proxy::column_names;
use crate::support::raw::Message;
use crate::support::time::happens_within;
use crate::support::{Ground, Proxy, Raw, wait_until, wire};
use std::time::Duration;

mod ends;
mod habits;
mod kept;
mod messages;
mod prepared;
mod settings;
mod unseen;

/// One thread, so that the connection used last is surely the one given next.
const CONF: &str = "worker_threads = 1\npool_size = 3\npool_wait_timeout = 10";

/// A neighbour's look: a row of all that a session can leave behind.
const LOOK: &str = "select current_setting('work_mem'), current_setting('search_path'), current_setting('timezone'), \
    current_setting('datestyle'), current_setting('statement_timeout'), current_setting('enable_sort'), current_user, session_user, \
    coalesce(current_setting('app.user', true), ''), (select count(*) from pg_prepared_statements where from_sql), \
    (select count(*) from pg_listening_channels()), to_regclass('pg_temp.mine') is null, \
    (select count(*) from pg_locks where locktype = 'advisory' and pid = pg_backend_pid()), \
    (select count(*) from pg_cursors where is_holdable)";

/// Other clients: two take turns at holding a connection in a transaction, a third holds all connections at rest.
struct Neighbours {
    clients: [Raw; 2],
    third: Option<Raw>,
    turn: usize,
    clean: Vec<Vec<String>>,
    console: Raw,
    database: String,
}

impl Neighbours {
    fn new(ground: &Ground, proxy: &Proxy) -> Neighbours {
        let mut clients = [ground.client(proxy), ground.client(proxy)];
        clients[0].run("begin");
        let clean = clients[0].rows(LOOK);
        let mut third = ground.client(proxy);
        third.run("begin; select 1");
        Neighbours { clients, third: Some(third), turn: 1, clean, console: proxy.console(), database: ground.database.clone() }
    }

    /// Takes the connection used last, looks around, and lets another one go, which is all that a session in no transaction finds.
    fn shuffle(&mut self, after: &str) {
        let (turn, other) = (self.turn, 1 - self.turn);
        self.wait_for_answers();
        if let Some(third) = &mut self.third {
            third.run("commit");
        }
        self.clients[turn].run("begin");
        assert_eq!(self.clients[turn].rows(LOOK), self.clean, "a neighbour sees what was left by: {after}");
        // It has a connection at once if the session holds none, and else when the other one lets go of his.
        if let Some(third) = &mut self.third {
            third.send(&wire::query("begin; select 1"));
            self.clients[turn].run("select 1");
        }
        self.clients[other].run("commit");
        if let Some(third) = &mut self.third {
            third.until_ready();
        }
        self.turn = other;
        self.wait_for_answers();
    }

    /// Waits until no session holds a connection only because Weir still asks what it left there: it must be at rest for others to take it.
    fn wait_for_answers(&mut self) {
        // A session whose state SHOW does not tell may keep one for longer.
        happens_within(ANSWERS_LIMIT, || {
            let pools = self.console.query("show pool_pools");
            let columns = column_names(&pools[0].body);
            let at = |name: &str| columns.iter().position(|column| column == name).unwrap();
            let (database, connected, status) = (at("database"), at("pool_connected"), at("status"));
            let is_asking = |row: &[Option<String>]| {
                let cell = |at: usize| row[at].as_deref().unwrap_or_default();
                cell(database) == self.database && cell(connected) == "1" && cell(status) == "Idle"
            };
            !pools.iter().filter(|message| message.tag == b'D').any(|message| is_asking(&message.row()))
        });
    }
}

/// Time for Weir's questions between two statements.
const ANSWERS_LIMIT: Duration = Duration::from_millis(300);

/// How statements are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Protocol {
    Simple,
    Extended,
}

/// Both, or the one that `cargo xtask transparency` asks for.
fn protocols() -> Vec<Protocol> {
    match std::env::var("WEIR_TEST_PROTOCOL").as_deref() {
        Ok("simple") => vec![Protocol::Simple],
        Ok("extended") => vec![Protocol::Extended],
        Ok(other) => panic!("WEIR_TEST_PROTOCOL is simple or extended, not {other:?}"),
        Err(_) => vec![Protocol::Simple, Protocol::Extended],
    }
}

/// `Yes` if a session is expected to be on more than one connection in the course of its story.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Moves {
    Yes,
    /// It stays on one: with `sequence_sessions = pin` where it draws, and neighbours keep theirs, too; in another encoding than UTF-8 always.
    Pinned,
}

/// A server of version 13 reports every change as it is made; later ones, and Weir, report the changes at the end. The final
/// values are compared.
fn reports_all(client: &Raw) -> bool {
    client.parameter("server_version").is_some_and(|version| version.starts_with("13."))
}

fn say(client: &mut Raw, protocol: Protocol, text: &str) -> Vec<String> {
    let is_simple = protocol == Protocol::Simple || text.contains(';');
    client.send(&match is_simple {
        true => wire::query(text),
        false => [wire::parse("", text), wire::bind("", "", &[]), wire::describe(b'P', ""), wire::execute("", 0), wire::sync()]
            .concat(),
    });
    let mut messages: Vec<String> = client.until_ready().iter().map(shown).collect();
    if reports_all(client) {
        messages.retain(|message| !message.starts_with("S "));
    }
    // The order of reports of parameters that changed together is a server's own affair.
    for reports in messages.chunk_by_mut(|one, next| one.starts_with("S ") && next.starts_with("S ")) {
        reports.sort();
    }
    messages
}

/// A message without the parts that differ between two servers' processes.
fn shown(message: &Message) -> String {
    let body = match message.tag {
        b'E' | b'N' => {
            let is_place = |field: &&[u8]| matches!(field.first(), Some(b'F' | b'L' | b'R') | None);
            let fields: Vec<&[u8]> = message.body.split(|byte| *byte == 0).filter(|field| !is_place(field)).collect();
            fields.join(&b'|')
        }
        b'T' => column_names(&message.body).join(",").into_bytes(),
        b'A' => message.body[4..].to_vec(),
        _ => message.body.clone(),
    };
    format!("{} {}", message.tag as char, body.escape_ascii())
}

/// Objects that the stories use.
const FIXTURE: &str = "drop table if exists items; create table items (a int primary key, b text);
    insert into items values (1, 'one'), (2, 'two');
    drop schema if exists other cascade; create schema other; create table other.items (x text);
    insert into other.items values ('other'); create sequence other.numbers; create table other.counted (id serial, a int);
    create or replace function remember(name text) returns void language plpgsql as
    $$ begin perform set_config('app.user', name, false); set statement_timeout = '77s'; end $$;
    create or replace function lock_unseen(key int) returns void language plpgsql as $$ begin perform pg_advisory_lock(key); end $$;
    create or replace function unlock_unseen(key int) returns bool language plpgsql as
    $$ begin return pg_advisory_unlock(key); end $$;
    create or replace function table_unseen() returns void language plpgsql as $$ begin create temp table mine (a int); end $$";

/// Plays a story in both protocols with these startup parameters: first on a direct connection, then through the proxy.
fn check_with(parameters: &[(&str, &str)], moves: Moves, story: &[&str]) {
    let ground = Ground::new();
    for protocol in protocols() {
        ground.prepare(FIXTURE);
        let mut direct = Raw::tcp(ground.cluster.primary().port()).log_in("postgres", &ground.database, parameters).unwrap();
        let expected: Vec<_> = story.iter().map(|text| say(&mut direct, protocol, text)).collect();
        let mut expected_parameters = direct.parameters.clone();
        leave(&ground, direct);
        ground.prepare(FIXTURE);
        let proxy = ground.primary_proxy(&match moves {
            Moves::Yes => CONF.to_string(),
            Moves::Pinned => format!("{CONF}\nsequence_sessions = pin"),
        });
        let mut neighbours = Neighbours::new(&ground, &proxy);
        if moves == Moves::Pinned {
            neighbours.third = None;
        }
        let mut through = ground.client_with(&proxy, parameters);
        let mut pids = Vec::new();
        for (text, expected) in story.iter().zip(expected) {
            neighbours.shuffle(text);
            assert_eq!(say(&mut through, protocol, text), expected, "{protocol:?}: {text}");
            if expected.last().is_some_and(|ready| ready == "Z I") {
                pids.push(through.value("select pg_backend_pid()"));
            }
        }
        pids.sort();
        pids.dedup();
        assert!(pids.len() > 1 || moves == Moves::Pinned, "{protocol:?}: the session was on one connection only");
        let mut parameters = through.parameters.clone();
        expected_parameters.sort();
        parameters.sort();
        assert_eq!(parameters, expected_parameters, "{protocol:?}: what the client was told of parameters");
        drop(through);
        neighbours.shuffle("its end");
        neighbours.shuffle("its end");
    }
}

/// Ends a direct connection and waits until its server process is gone, with all it held.
fn leave(ground: &Ground, mut direct: Raw) {
    let pid = direct.value("select pg_backend_pid()");
    drop(direct);
    let gone = format!("select count(*) from pg_stat_activity where pid = {pid}");
    wait_until("a direct connection to end", || ground.direct().value(&gone) == "0");
}

fn check(moves: Moves, story: &[&str]) {
    check_with(&[], moves, story);
}

/// Plays messages, each round with so many ReadyForQuerys, on both sides.
fn check_messages(rounds: &[Vec<u8>], readies: &[usize]) {
    let ground = Ground::new();
    let proxy = ground.primary_proxy(CONF);
    let mut neighbours = Neighbours::new(&ground, &proxy);
    let mut played = Vec::new();
    for is_direct in [true, false] {
        ground.prepare(FIXTURE);
        let mut client = if is_direct { ground.direct() } else { ground.client_with(&proxy, &[("application_name", "direct")]) };
        let mut replies = Vec::new();
        for (at, (bytes, readies)) in rounds.iter().zip(readies).enumerate() {
            neighbours.shuffle("a message");
            client.send(bytes);
            for _ in 0..*readies {
                let mut messages = client.until_ready();
                if reports_all(&client) {
                    messages.retain(|message| message.tag != b'S');
                }
                replies.push((at, messages.iter().map(shown).collect::<Vec<_>>()));
            }
        }
        played.push(replies);
        if is_direct {
            leave(&ground, client);
        }
    }
    assert_eq!(played[1], played[0]);
}
