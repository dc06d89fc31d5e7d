//! `currval` and `lastval` tell a session what it drew itself, or nothing.

use crate::support::ground::wait_for_catalog;
use crate::support::proxy::show;
use crate::support::{Ground, Proxy, Raw, wait_until, wire};

/// One thread, so that the connection used last is surely the one given next.
const CONF: &str = "worker_threads = 1\npool_size = 3";

const NOT_YET: &str = "lastval is not yet defined in this session";

fn stage() -> (Ground, Proxy) {
    let ground = Ground::new();
    ground.prepare("create sequence numbers; create sequence others; create table counted (id serial, a int)");
    let proxy = ground.primary_proxy(CONF);
    (ground, proxy)
}

fn kept(proxy: &Proxy) -> usize {
    show(&mut proxy.console(), "pool_pools", "status").iter().filter(|status| status.contains("sequence value")).count()
}

fn pid(client: &mut Raw) -> String {
    client.value("select pg_backend_pid()")
}

#[test]
fn what_a_session_drew_is_found_again_as_long_as_nobody_drew_on_its_connection() {
    let (ground, proxy) = stage();
    let (mut client, mut other) = (ground.client(&proxy), ground.client(&proxy));
    assert_eq!(client.value("select nextval('numbers')"), "1");
    let its_own = pid(&mut client);
    other.run("begin; select 1");
    assert_eq!(pid(&mut other), its_own, "the other client has its connection");
    let elsewhere = pid(&mut client);
    assert_ne!(elsewhere, its_own);
    other.run("commit");
    assert_eq!(pid(&mut client), its_own);
    // Both are at rest now, the other one was used last.
    other.run("begin; select 1");
    client.run("select 1");
    other.run("commit");
    assert_eq!(client.value("select lastval()"), "1");
    assert_eq!(kept(&proxy), 1);
    assert_eq!(client.extended("select currval('numbers')", &[]).unwrap(), "1");
}

#[test]
fn a_session_waits_for_the_connection_it_drew_on() {
    let (ground, proxy) = stage();
    let (mut client, mut other) = (ground.client(&proxy), ground.client(&proxy));
    client.run("insert into counted (a) values (7)");
    other.run("begin; select 1");
    client.send(&wire::query("select currval('counted_id_seq')"));
    wait_until("the client to wait", || {
        show(&mut proxy.console(), "pool_processes", "status").iter().any(|status| status == "Wait for connection")
    });
    other.run("commit");
    let answer = client.until_ready();
    assert!(answer.iter().any(|message| message.tag == b'D' && message.row() == [Some("1".to_string())]), "{answer:?}");
}

#[test]
fn a_value_that_somebody_else_drew_over_is_an_error_and_then_the_pool_has_learned() {
    let (ground, proxy) = stage();
    let (mut client, mut other) = (ground.client(&proxy), ground.client(&proxy));
    client.run("select nextval('numbers')");
    assert_eq!(other.value("select nextval('others')"), "1", "on the same connection");
    let failure = client.error("select lastval()");
    assert!(failure.message.starts_with("the sequence values of this session are lost"), "{failure:?}");
    assert_eq!(failure.sqlstate, "55000");
    assert_eq!(kept(&proxy), 0);
    assert_eq!(client.value("select nextval('numbers')"), "2");
    assert_eq!(other.value("select nextval('others')"), "2");
    assert_eq!(kept(&proxy), 2);
    assert_eq!((client.value("select lastval()"), other.value("select lastval()")), ("2".into(), "2".into()));
    assert_eq!(
        other.error("select currval('numbers')").message,
        "currval of sequence \"numbers\" is not yet defined in this session"
    );
    client.run("discard all");
    assert_eq!(kept(&proxy), 1);
    assert_eq!(client.error("select lastval()").message, NOT_YET);
}

#[test]
fn a_session_that_drew_nothing_sees_nothing_of_others() {
    let (ground, proxy) = stage();
    let (mut client, mut other) = (ground.client(&proxy), ground.client(&proxy));
    other.run("select nextval('others')");
    assert_eq!(client.error("select lastval()").message, NOT_YET);
    assert_eq!(
        client.error("select currval('others')").message,
        "currval of sequence \"others\" is not yet defined in this session"
    );
    other.run("insert into counted (a) values (1)");
    let mut third = ground.client(&proxy);
    third.run("begin; select 1");
    assert_eq!(third.error("select lastval()").message, NOT_YET);
    third.run("rollback");
    assert_eq!(third.value("insert into counted (a) values (2); select lastval()"), "2");
}

#[test]
fn who_asks_first_after_many_drew_is_refused_once_rather_than_told_what_others_drew() {
    let (ground, proxy) = stage();
    let mut client = ground.client(&proxy);
    wait_for_catalog(&mut client, &ground.database);
    client.run("begin; select nextval('numbers')");
    assert_eq!(client.value("select lastval()"), "1", "at first connections forget in any case");
    client.run("rollback");
    let proxy = ground.primary_proxy(CONF);
    let (mut client, mut other) = (ground.client(&proxy), ground.client(&proxy));
    wait_for_catalog(&mut client, &ground.database);
    for _ in 0..600 {
        other.run("select nextval('others')");
        client.run("select nextval('numbers')");
    }
    other.run("select nextval('others')");
    client.run("begin; select nextval('numbers')");
    let failure = client.error("select currval('others')");
    assert!(failure.message.starts_with("the sequence values of this session are lost"), "{failure:?}");
    client.run("rollback");
    client.run("begin; select nextval('numbers')");
    let drawn = client.value("select last_value from numbers");
    assert_eq!(client.value("select lastval()"), drawn, "from then on they forget again");
}

#[test]
fn in_a_pipeline_too_a_connection_forgets_before_it_draws() {
    let (ground, proxy) = stage();
    let (mut client, mut other) = (ground.client(&proxy), ground.client(&proxy));
    for at in 1..4 {
        other.run("select nextval('others')");
        let texts = ["begin", "select 1", "insert into counted (a) values (1)", "select currval('counted_id_seq')", "commit"];
        client.send(&texts.iter().flat_map(|text| wire::query(text)).collect::<Vec<u8>>());
        let answers: Vec<_> = texts.iter().flat_map(|_| client.until_ready()).collect();
        assert!(answers.iter().all(|message| message.tag != b'E'), "{answers:?}");
        assert!(answers.iter().any(|message| message.tag == b'D' && message.row() == [Some(at.to_string())]), "{answers:?}");
    }
}

/// What makes it forget goes ahead of what brings the statement, not between that and its Bind.
#[test]
fn a_statement_that_is_brought_to_a_connection_is_there_when_it_draws() {
    let (ground, proxy) = stage();
    let (mut client, mut other) = (ground.client(&proxy), ground.client(&proxy));
    for at in 0..4 {
        client.run(&format!("set work_mem = '{}MB'", 5 + at));
        client.send(
            &[wire::parse("", "insert into counted (a) values ($1) returning a"), wire::describe(b'S', ""), wire::sync()]
                .concat(),
        );
        client.until_ready();
        other.run("set work_mem = '4MB'; select nextval('others')");
        client.send(&[wire::bind("", "", &["7"]), wire::execute("", 0), wire::sync()].concat());
        let answer = client.until_ready();
        assert!(answer.iter().any(|message| message.tag == b'D'), "{answer:?}");
    }
}

/// What draws without being seen, by a view, leaves nothing for others.
#[test]
fn nobody_is_told_what_a_view_drew_for_another() {
    let (ground, proxy) = stage();
    ground.prepare("create view drawing as select nextval('numbers') as n");
    let (mut client, mut other) = (ground.client(&proxy), ground.client(&proxy));
    assert_eq!(other.value("select n from drawing"), "1");
    assert_eq!(client.error("select lastval()").message, NOT_YET);
    assert_eq!(client.error("select lastval()").sqlstate, "55000");
}

/// Both drew on the same connection: what the server process remembers is not one client's alone.
#[test]
fn nobody_gets_what_another_drew_before_on_the_same_connection() {
    let (ground, proxy) = stage();
    let (mut client, mut other) = (ground.client(&proxy), ground.client(&proxy));
    for at in 0..3 {
        other.run("select nextval('others')");
        client.run("begin; insert into counted (a) values (1)");
        assert_eq!(client.value("select currval('counted_id_seq')"), (at + 1).to_string(), "in the transaction of the draw");
        assert_eq!(client.value("select lastval()"), (at + 1).to_string());
        let failure = client.error("select currval('others')");
        assert_eq!(failure.message, "currval of sequence \"others\" is not yet defined in this session");
        client.run("rollback");
    }
    assert_eq!(kept(&proxy), 0, "what is asked for in the same transaction keeps no connection");
    client.send(&[wire::parse("", "select 1"), wire::bind("", "", &[]), wire::execute("", 0)].concat());
    client.send(
        &[wire::parse("", "select currval('others')"), wire::bind("", "", &[]), wire::execute("", 0), wire::sync()].concat(),
    );
    assert!(client.until_ready().iter().any(|message| message.tag == b'E'), "in a pipeline, too");
}

#[test]
fn what_is_prepared_by_sql_finds_its_own_values_or_none() {
    let (ground, proxy) = stage();
    let (mut client, mut other) = (ground.client(&proxy), ground.client(&proxy));
    other.run("select nextval('others')");
    client.run("prepare last as select lastval()");
    assert_eq!(client.error("execute last").message, NOT_YET);
    client.run("begin; select nextval('numbers')");
    assert_eq!(client.value("execute last"), "1");
}

#[test]
fn a_function_that_asks_finds_its_sessions_own_values_or_none() {
    let (ground, proxy) = stage();
    let (mut client, mut other) = (ground.client(&proxy), ground.client(&proxy));
    client.run("create function last_one() returns bigint language sql as 'select lastval()'");
    wait_for_catalog(&mut client, &ground.database);
    other.run("select nextval('others')");
    assert_eq!(client.error("select last_one()").message, NOT_YET);
    client.run("begin; select nextval('numbers')");
    assert_eq!(client.value("select last_one()"), "1");
    client.run("commit");
    assert_eq!(kept(&proxy), 0);
}

const CROWD: usize = 5;

/// Any numbers will do, the same in each run.
struct Dice(u64);

impl Dice {
    fn throw(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % sides
    }
}

/// Draws from a sequence of the client's own, by one of several ways.
fn draw(client: &mut Raw, at: usize, way: usize) -> String {
    match way {
        0 => client.value(&format!("select nextval('of_{at}')")),
        1 => client.value(&format!("insert into rows_{at} (b) values (1) returning a")),
        _ => client.extended(&format!("select nextval('of_{at}')"), &[]).unwrap(),
    }
}

fn ask(client: &mut Raw, of: usize, way: usize) -> Result<String, crate::support::raw::Failure> {
    match way {
        0 => client.try_value(&format!("select currval('of_{of}')")),
        1 => client.extended(&format!("select currval('of_{of}')"), &[]),
        _ => client.try_value(&format!("select asks('of_{of}')")),
    }
}

/// Whether who asks does so in the transaction of his draw; then a few connections serve all.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Asks {
    Within,
    AnyTime,
}

/// Many clients, each with a sequence of its own: whoever asks for a value gets his own last one, or an error.
fn check_crowd(asks: Asks, pool_size: usize) {
    let ground = Ground::new();
    for at in 0..CROWD {
        let start = at * 1000 + 1;
        let table = format!("create table rows_{at} (a int default nextval('of_{at}'), b int)");
        ground.prepare(&format!("create sequence of_{at} start {start}; {table}"));
    }
    ground.prepare("create function asks(name text) returns bigint language sql as 'select currval(name::regclass)'");
    let proxy = ground.primary_proxy(&format!("worker_threads = 1\npool_size = {pool_size}"));
    let mut clients: Vec<Raw> = (0..CROWD).map(|_| ground.client(&proxy)).collect();
    let mut last: [Option<String>; CROWD] = Default::default();
    let mut dice = Dice(20_240_217);
    let (mut told, mut refused) = (0, 0);
    for _ in 0..300 {
        let at = dice.throw(CROWD);
        let client = &mut clients[at];
        if asks == Asks::Within {
            client.run("begin");
        }
        if asks == Asks::Within || dice.throw(3) == 0 {
            last[at] = Some(draw(client, at, dice.throw(3)));
        }
        let of = if dice.throw(4) == 0 { dice.throw(CROWD) } else { at };
        match ask(client, of, dice.throw(3)) {
            Ok(value) => {
                assert_eq!((of, Some(value)), (at, last[at].clone()));
                told += 1;
            }
            Err(failure) => {
                assert_eq!(failure.sqlstate, "55000", "{failure:?}");
                refused += 1;
            }
        }
        if asks == Asks::Within {
            client.run("commit");
        } else if dice.throw(12) == 0 {
            client.run("discard all");
            last[at] = None;
        }
    }
    assert!(told > 50 && refused > 20, "{told} told, {refused} refused");
    if asks == Asks::Within {
        assert_eq!(kept(&proxy), 0);
    }
}

#[test]
fn in_a_crowd_nobody_ever_gets_another_clients_value() {
    check_crowd(Asks::AnyTime, CROWD);
}

#[test]
fn a_crowd_that_asks_in_the_transaction_of_the_draw_shares_its_connections() {
    check_crowd(Asks::Within, 2);
}
