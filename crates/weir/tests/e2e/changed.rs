//! Prepared statements whose tables have changed: every server connection answers like PostgreSQL.

use crate::support::proxy::column_names;
use crate::support::raw::Message;
use crate::support::{Ground, Proxy, Raw, wait_until, wire};

/// One thread, so that the connection used last is surely the one given next.
const CONF: &str = "worker_threads = 1\npool_size = 3";

const FIXTURE: &str = "drop table if exists t; create table t (a int, b int, c text); insert into t values (1, 2, 'three')";

/// Two clients that take the connections used last.
struct Hop {
    clients: [Raw; 2],
    turn: usize,
}

impl Hop {
    fn new(ground: &Ground, proxy: &Proxy) -> Hop {
        let mut clients = [ground.client(proxy), ground.client(proxy)];
        clients[0].run("begin; select 1");
        Hop { clients, turn: 1 }
    }

    /// The next statement of another client outside of a transaction runs on another connection than its last one.
    fn hop(&mut self) {
        self.clients[self.turn].run("begin; select 1");
        self.turn = 1 - self.turn;
        self.clients[self.turn].run("commit");
    }
}

/// A message without the parts that differ between two tables made alike.
fn shown(message: &Message) -> String {
    let body = match message.tag {
        b'E' => format!("{} {}", message.failure().sqlstate, message.failure().message),
        b'T' => column_names(&message.body).join(","),
        b'D' => format!("{:?}", message.row()),
        _ => message.body.escape_ascii().to_string(),
    };
    format!("{} {body}", message.tag as char)
}

/// Way by which the client learns the columns of its statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asks {
    Never,
    OfStatement,
    OfPortal,
    /// By a Describe of the statement without a name, which is bound in a transaction of its own.
    OfUnnamed,
}

impl Asks {
    fn name(self) -> &'static str {
        if self == Asks::OfUnnamed { "" } else { "s" }
    }

    fn prepare(self, text: &str) -> Vec<u8> {
        let parse = wire::parse(self.name(), text);
        match self {
            Asks::Never | Asks::OfPortal => [parse, wire::sync()].concat(),
            Asks::OfStatement | Asks::OfUnnamed => [parse, wire::describe(b'S', self.name()), wire::sync()].concat(),
        }
    }

    fn run(self, value: &str) -> Vec<u8> {
        let bind = wire::bind("", self.name(), &[value]);
        let describe = if self == Asks::OfPortal { wire::describe(b'P', "") } else { Vec::new() };
        [bind, describe, wire::execute("", 0), wire::sync()].concat()
    }
}

/// Prepares, runs, has the table changed, and runs on; `hop` comes before all that is said.
fn play(ground: &Ground, client: &mut Raw, asks: Asks, text: &str, change: &str, mut hop: impl FnMut()) -> Vec<Vec<String>> {
    let mut said = Vec::new();
    let mut say = |bytes: Vec<u8>| {
        hop();
        client.send(&bytes);
        said.push(client.until_ready().iter().map(shown).collect());
    };
    say(asks.prepare(text));
    say(asks.run("1"));
    ground.direct().run(change);
    for _ in 0..3 {
        say(asks.run("1"));
    }
    if asks != Asks::OfUnnamed {
        say(wire::query("begin"));
        say(asks.run("1"));
        say(asks.run("1"));
        say(wire::query("rollback"));
    }
    say([wire::close(b'S', asks.name()), asks.prepare(text)].concat());
    say(asks.run("1"));
    say(asks.run("1"));
    said
}

#[test]
fn a_statement_whose_table_changed_gets_postgresqls_answer_wherever_it_runs() {
    let ground = Ground::new();
    let changes = [
        "alter table t add d int default 4",
        "alter table t alter b type bigint",
        "alter table t alter c type varchar(10)",
        "alter table t rename b to bb",
        "alter table t drop c",
        // These change nothing a client could see.
        "create index on t (a)",
        "alter table t alter b set not null",
        FIXTURE,
    ];
    for asks in [Asks::Never, Asks::OfStatement, Asks::OfPortal, Asks::OfUnnamed] {
        for change in changes {
            ground.direct().run(FIXTURE);
            let text = "select * from t where a = $1::int";
            let expected = play(&ground, &mut ground.direct(), asks, text, change, || {});
            ground.direct().run(FIXTURE);
            let proxy = ground.primary_proxy(CONF);
            let mut hop = Hop::new(&ground, &proxy);
            let through = play(&ground, &mut ground.client(&proxy), asks, text, change, || hop.hop());
            assert_eq!(through, expected, "asks {asks:?}: {change}");
        }
    }
}

/// A server tells the parameters of a statement before it finds that it can describe it no more.
#[test]
fn a_describe_of_what_changed_is_refused_behind_its_parameters() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy(CONF);
    let changes = ["alter table t add d int default 4", "alter table t drop c", "drop table t", FIXTURE];
    for asks in [Asks::OfStatement, Asks::OfUnnamed] {
        for change in changes {
            let describe = wire::describe(b'S', asks.name());
            let alone = [describe.clone(), wire::sync()].concat();
            let behind = [wire::unnamed("select 5", &[]), alone.clone()].concat();
            let behind_error = [wire::unnamed("select 1/0", &[]), alone.clone()].concat();
            let prepare = asks.prepare("select * from t where a = $1::int and b > $2::bigint");
            let again = || wire::query("rollback; begin");
            let story = match asks {
                // A statement without a name goes with the next Parse.
                Asks::OfUnnamed => vec![alone.clone(), alone],
                _ => vec![alone.clone(), behind, behind_error, again(), alone.clone(), alone.clone(), again(), alone],
            };
            let play = |client: &mut Raw, hop: &mut dyn FnMut()| {
                ground.direct().run(FIXTURE);
                client.send(&prepare);
                client.until_ready();
                ground.direct().run(change);
                let mut said: Vec<Vec<String>> = Vec::new();
                for bytes in &story {
                    hop();
                    client.send(bytes);
                    said.push(client.until_ready().iter().map(shown).collect());
                }
                said
            };
            let expected = play(&mut ground.direct(), &mut || {});
            let mut hop = Hop::new(&ground, &proxy);
            let through = play(&mut ground.client(&proxy), &mut || hop.hop());
            assert_eq!(through, expected, "{asks:?}: {change}");
        }
    }
}

/// Both prepare the same text, one before and one after the change, and share its number on the servers.
#[test]
fn two_clients_with_the_same_text_are_told_apart_by_what_they_were_told() {
    let ground = Ground::new();
    ground.direct().run(FIXTURE);
    let proxy = ground.primary_proxy(CONF);
    let mut hop = Hop::new(&ground, &proxy);
    let (mut old, mut new) = (ground.client(&proxy), ground.client(&proxy));
    let text = "select * from t where a = $1::int";
    let run = |client: &mut Raw| {
        client.send(&Asks::OfStatement.run("1"));
        let messages = client.until_ready();
        let first = messages.iter().find(|message| matches!(message.tag, b'D' | b'E')).unwrap().clone();
        if first.tag == b'E' { Err(first.failure().sqlstate) } else { Ok(first.row().len()) }
    };
    old.send(&Asks::OfStatement.prepare(text));
    old.until_ready();
    assert_eq!(run(&mut old), Ok(3));
    ground.direct().run("alter table t add d int default 4");
    hop.hop();
    new.send(&Asks::OfStatement.prepare(text));
    new.until_ready();
    for round in 0..8 {
        if round % 2 == 0 {
            hop.hop();
        }
        assert_eq!(run(&mut new), Ok(4), "round {round}: it was told of four columns");
        if round % 3 == 0 {
            hop.hop();
        }
        assert_eq!(run(&mut old), Err("0A000".to_string()), "round {round}: it was told of three columns");
    }
}

/// One prepared by SQL is the session's, also while no server can have it.
#[test]
fn an_execute_without_its_table_gets_postgresqls_complaint_and_can_be_taken_away() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy(CONF);
    let story = [
        "prepare s as select * from t where a = $1",
        "prepare other as select 'other'",
        "execute s (1)",
        "drop table t",
        "execute s (1)",
        "execute other",
        "begin",
        "execute s (1)",
        "execute other",
        "rollback",
        "execute s (1)",
        "create table t (a int, b int, c text)",
        "execute s (1)",
        "drop table t",
        "execute s (1)",
        "deallocate s",
        "execute s (1)",
        "deallocate s",
        "prepare s as select 'anew'",
        "execute s",
        "execute other",
    ];
    for is_simple in [true, false] {
        let play = |client: &mut Raw, hop: &mut dyn FnMut()| {
            ground.direct().run(FIXTURE);
            let mut said: Vec<Vec<String>> = Vec::new();
            for text in story {
                hop();
                let is_table = text.contains("table");
                match text {
                    _ if is_table => ground.direct().run(text),
                    _ if is_simple => client.send(&wire::query(text)),
                    _ => client.send(&[wire::unnamed(text, &[]), wire::sync()].concat()),
                }
                if !is_table {
                    said.push(client.until_ready().iter().map(shown).collect());
                }
            }
            said
        };
        let expected = play(&mut ground.direct(), &mut || {});
        let mut hop = Hop::new(&ground, &proxy);
        let through = play(&mut ground.client(&proxy), &mut || hop.hop());
        for (at, (one, other)) in through.iter().zip(&expected).enumerate() {
            assert_eq!(one, other, "answer {at}, simple: {is_simple}");
        }
    }
}

/// A parameter whose type would be taken for another one is not sent: the client encodes it by the type it was told.
#[test]
fn a_parameter_of_another_type_is_never_misread() {
    let ground = Ground::new();
    ground.direct().run(FIXTURE);
    let proxy = ground.primary_proxy(CONF);
    let mut hop = Hop::new(&ground, &proxy);
    let mut client = ground.client(&proxy);
    client.send(&Asks::OfStatement.prepare("select c from t where a = $1"));
    client.until_ready();
    ground.direct().run("alter table t alter a type real");
    for _ in 0..4 {
        hop.hop();
        client.send(&Asks::OfStatement.run("1"));
        let said: Vec<String> = client.until_ready().iter().map(shown).collect();
        let is_right = said.iter().any(|message| message.contains("three"));
        assert!(is_right || said[0].starts_with("E 0A000"), "{said:?}");
    }
}

/// Weir's own question ahead of a statement counts as the statement: it can be cancelled, by its client and by a limit on time.
#[test]
fn a_statement_that_is_asked_about_first_can_be_cancelled() {
    let ground = Ground::new();
    ground.direct().run(FIXTURE);
    let proxy = ground.primary_proxy(&format!("{CONF}\nquery_timeout = 2s"));
    let mut hop = Hop::new(&ground, &proxy);
    let mut client = ground.client(&proxy);
    client.send(&Asks::OfStatement.prepare("select * from t where a = $1::int"));
    client.until_ready();
    hop.hop();
    let mut holder = ground.direct();
    holder.run("begin; lock table t");
    let waits = || {
        let waiting = "select count(*) from pg_locks where not granted and relation = 't'::regclass";
        holder.value(waiting) == "1"
    };
    client.send(&Asks::OfStatement.run("1"));
    wait_until("it to wait for the lock", waits);
    Raw::tcp(proxy.port()).send(&wire::cancel(client.pid, &client.key));
    let messages = client.until_ready();
    assert_eq!(messages[0].failure().sqlstate, "57014", "{messages:?}");
    assert_eq!(client.value("select 1"), "1");
    client.send(&Asks::OfStatement.run("1"));
    let failure = client.until_ready()[0].failure();
    assert!(failure.message.contains("query_timeout"), "{failure:?}");
    holder.run("rollback");
    client.send(&Asks::OfStatement.run("1"));
    assert!(client.until_ready().iter().any(|message| message.tag == b'D'));
}

/// A read's statement is asked about on the standby it goes to; one that a standby refuses runs on the primary, unseen.
#[test]
fn reads_keep_their_net_when_their_statement_is_asked_about_first() {
    let ground = Ground::new();
    ground.prepare("create table t (a int); insert into t values (7)");
    let proxy = ground.proxy("worker_threads = 1\ncausal_reads = off");
    let mut client = ground.client(&proxy);
    client.send(&Asks::OfStatement.prepare("select * from t where a = $1::int"));
    client.until_ready();
    let run = |client: &mut Raw| {
        client.send(&Asks::OfStatement.run("7"));
        client.until_ready().iter().map(|message| message.tag as char).collect::<String>()
    };
    for _ in 0..6 {
        assert_eq!(run(&mut client), "2DCZ");
    }
    ground.prepare("drop table t; create table t (a int); insert into t values (7)");
    for _ in 0..6 {
        assert_eq!(run(&mut client), "2DCZ");
    }
    ground.prepare("alter table t add b int");
    for _ in 0..6 {
        assert_eq!(run(&mut client), "EZ", "the same on every server");
    }
    ground.prepare("drop table t");
    client.send(&Asks::OfStatement.run("7"));
    assert_eq!(client.until_ready()[0].failure().sqlstate, "42P01");
}

/// A standby that is behind has another table than the one the client was told of: the primary has that one.
#[test]
fn a_statement_that_is_something_else_on_a_standby_which_is_behind_runs_on_the_primary() {
    let cluster = crate::support::ground::cluster(1);
    let proxy = Proxy::start(&cluster, "worker_threads = 1\ncausal_reads = off");
    let mut client = proxy.console();
    client.run("create table t (a int); insert into t values (7)");
    cluster.wait_caught_up().unwrap();
    crate::support::ground::wait_for_catalog(&mut client, "postgres");
    assert_eq!(client.value("select inet_server_port()"), cluster.standbys()[0].port().to_string());
    cluster.standbys()[0].pause_replay().unwrap();
    client.run("alter table t add b int");
    crate::support::ground::wait_for_catalog(&mut client, "postgres");
    client.run("begin; insert into t values (8, 8)");
    client.send(&Asks::OfStatement.prepare("select * from t where a = $1::int"));
    client.until_ready();
    client.run("commit");
    let run = |client: &mut Raw, before: &[u8], value: &str| {
        client.send(&[before, &Asks::OfStatement.run(value)].concat());
        client.until_ready().iter().map(|message| message.tag as char).collect::<String>()
    };
    for _ in 0..3 {
        assert_eq!(run(&mut client, &[], "7"), "2DCZ");
        assert_eq!(run(&mut client, &wire::unnamed("select 1", &[]), "7"), "12DC2DCZ");
    }
    client.run("begin");
    assert_eq!(run(&mut client, &[], "8"), "2DCZ");
    client.run("commit");
    cluster.standbys()[0].resume_replay().unwrap();
}

/// The server's description of it comes when the client has closed it already, behind an error: then the close has not
/// happened.
#[test]
fn a_statement_whose_close_was_skipped_is_what_it_was() {
    let ground = Ground::new();
    ground.prepare("create schema other; create table other.t (a int); create table t (a int, b int)");
    let proxy = ground.proxy(CONF);
    let text = "select * from t";
    // Values for two parameters of a statement with one.
    let wrong = wire::message(b'B', b"\0s\0\0\0\0\0\0\x02\0\0\0\x01");
    let again = [wire::close(b'S', "s"), wire::parse("s", text), wire::run("s", &[]), wire::sync()].concat();
    let mut said = Vec::new();
    for mut client in [ground.direct(), ground.client(&proxy)] {
        let mut hop = Hop::new(&ground, &proxy);
        client.run("set search_path = other");
        client.send(&[wire::parse("s", text), wrong.clone(), again.clone()].concat());
        let first = client.until_ready();
        client.run("set search_path = public");
        hop.hop();
        client.send(&[wire::run("s", &[]), wire::sync()].concat());
        said.push([first, client.until_ready()].map(|messages| messages.iter().map(shown).collect::<Vec<_>>()));
    }
    assert_eq!(said[0], said[1]);
    assert!(said[0][1][0].contains("0A000"), "{said:?}");
}
