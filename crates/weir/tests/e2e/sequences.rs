//! `currval` and `lastval` give a session its own draws, or nothing.

use super::cache::{is_hit, warm};
use crate::support::ground::wait_for_catalog;
use crate::support::proxy::show;
use crate::support::raw::Message;
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
    assert_eq!(client.extended("select currval('numbers')", &[]).unwrap(), "1");
    assert_eq!(kept(&proxy), 0);
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
fn a_value_that_somebody_else_drew_over_is_an_error_with_a_way_out() {
    let (ground, proxy) = stage();
    let (mut client, mut other) = (ground.client(&proxy), ground.client(&proxy));
    client.run("select nextval('numbers')");
    assert_eq!(other.value("select nextval('others')"), "1", "on the same connection");
    let failure = client.error("select lastval()");
    assert!(failure.message.starts_with("the sequence values of this session are lost"), "{failure:?}");
    assert_eq!(failure.sqlstate, "55000");
    assert!(failure.hint.contains("sequence_sessions = pin"), "{failure:?}");
    assert_eq!(other.value("select lastval()"), "1");
    assert_eq!(
        other.error("select currval('numbers')").message,
        "currval of sequence \"numbers\" is not yet defined in this session"
    );
    assert_eq!(client.value("select nextval('numbers'); select lastval()"), "2");
    client.run("discard all");
    assert_eq!(client.error("select lastval()").message, NOT_YET);
    assert_eq!(kept(&proxy), 0);
}

/// Twelve sessions write through four connections.
#[test]
fn a_refused_currval_takes_no_connection_and_no_cached_answer_from_anybody() {
    let ground = Ground::new();
    ground.prepare("create table plain (a int); create sequence numbers; create table t as select 1 as a");
    for workers in [1, 2] {
        let more = format!(
            "worker_threads = {workers}\npool_size = 4\npool_wait_timeout = 2\nmemory_cache_enabled = on\ncausal_reads = global"
        );
        let proxy = ground.primary_proxy(&more);
        let mut clients: Vec<Raw> = (0..12).map(|_| ground.client(&proxy)).collect();
        clients[0].run("select nextval('numbers')");
        // Others draw on all connections at once.
        for client in &mut clients[4..8] {
            client.run("begin; select nextval('numbers')");
        }
        clients[4..8].iter_mut().for_each(|client| client.run("commit"));
        let failure = clients[0].error("select currval('numbers')");
        assert!(failure.message.starts_with("the sequence values of this session are lost"), "{failure:?}");
        for _ in 0..3 {
            for client in &mut clients {
                client.run("insert into plain values (1)");
            }
        }
        assert_eq!(kept(&proxy), 0);
        warm(&proxy, &mut clients[0], "select count(*) from t");
        for client in &mut clients {
            client.run("select nextval('numbers')");
            assert!(is_hit(&proxy, client, "select count(*) from t"));
        }
    }
}

/// As a program does that writes a row and asks for its number in the next transaction.
#[test]
fn who_asks_right_after_a_draw_is_told_while_others_draw_on_other_connections() {
    let (ground, _) = stage();
    let proxy = ground.primary_proxy("worker_threads = 1\npool_size = 4");
    let mut clients: Vec<Raw> = (0..4).map(|_| ground.client(&proxy)).collect();
    clients.iter_mut().for_each(|client| client.run("begin; select 1"));
    clients.iter_mut().for_each(|client| client.run("commit"));
    for _ in 0..5 {
        let drawn: Vec<String> =
            clients.iter_mut().map(|client| client.value("insert into counted (a) values (1) returning id")).collect();
        for (client, drawn) in clients.iter_mut().zip(drawn) {
            assert_eq!(client.value("select currval('counted_id_seq')"), drawn);
        }
    }
    assert_eq!(kept(&proxy), 0);
    // A new session takes a connection on which nobody has drawn, though another one was used last.
    let mut more = ground.client(&proxy);
    more.run("select 1");
    let proxy = ground.primary_proxy("worker_threads = 1\npool_size = 2");
    let (mut client, mut other) = (ground.client(&proxy), ground.client(&proxy));
    client.run("begin; select 1");
    other.run("select 1");
    client.run("select nextval('numbers'); commit");
    other.run("select nextval('others')");
    assert_eq!(client.value("select currval('numbers')"), "1");
}

/// Clients whose settings differ, so that each gets its connection with settings to be brought, queue for four connections.
#[test]
fn who_asks_in_a_later_transaction_is_told_or_refused_while_clients_of_other_settings_queue() {
    let (ground, _) = stage();
    for workers in [1, 2] {
        let proxy = ground.primary_proxy(&format!("worker_threads = {workers}\npool_size = 4"));
        let told: usize = std::thread::scope(|scope| {
            let clients: Vec<_> = (0..20)
                .map(|at| {
                    let mut client = ground.client_with(&proxy, &[("application_name", &format!("client {at}"))]);
                    scope.spawn(move || {
                        let mut told = 0;
                        for round in 0..40 {
                            client.run("begin");
                            client.run("select 1");
                            client.run("commit");
                            told += usize::from((round + at) % 10 == 0 && draws_and_asks(&mut client, round));
                        }
                        told
                    })
                })
                .collect();
            clients.into_iter().map(|client| client.join().unwrap()).sum()
        });
        assert!(told <= 20 * 4, "{told}");
        assert_eq!(kept(&proxy), 0);
    }
}

/// True if the client was told its own value; else it was refused.
fn draws_and_asks(client: &mut Raw, round: usize) -> bool {
    client.run("begin");
    let drawn = client.value("select nextval('numbers')");
    client.run("commit");
    let answer = match round % 3 {
        0 => client.try_value("select currval('numbers')"),
        1 => client.extended("select currval('numbers')", &[]),
        _ => {
            client.run("begin");
            let answer = client.try_value("select currval('numbers')");
            client.run("rollback");
            answer
        }
    };
    match answer {
        Ok(ref value) => assert_eq!(*value, drawn),
        Err(ref failure) => assert_eq!(failure.sqlstate, "55000", "{failure:?}"),
    }
    answer.is_ok()
}

#[test]
fn an_operator_can_have_sessions_that_draw_keep_their_connections() {
    let ground = Ground::new();
    ground.prepare("create sequence numbers; create sequence others; create table counted (id serial, a int)");
    let pins = format!("limit_override_list = 'database={}: sequence_sessions=pin'", ground.database);
    for more in ["sequence_sessions = pin", &pins] {
        let proxy = ground.primary_proxy(&format!("worker_threads = 1\npool_size = 3\n{more}"));
        let (mut client, mut other) = (ground.client(&proxy), ground.client(&proxy));
        client.run("select 1");
        assert_eq!(kept(&proxy), 0);
        let drawn = client.value("select nextval('numbers')");
        other.run("insert into counted (a) values (1)");
        assert_eq!(kept(&proxy), 2);
        assert_eq!(client.value("select lastval()"), drawn);
        assert_eq!(other.error("select currval('numbers')").sqlstate, "55000");
        client.run("discard all");
        assert_eq!(kept(&proxy), 1);
        assert_eq!(client.error("select lastval()").message, NOT_YET);
    }
}

const OBJECTS: &str = "create sequence others; create table counted (id serial, a int); create table plain (a int);
    create table identified (id int generated always as identity, a int); create table watched (a int);
    create function draws() returns bigint language sql as 'select nextval(''others'')';
    create function on_write() returns trigger language plpgsql as 'begin perform nextval(''others''); return new; end';
    create trigger draws before insert on watched for each row execute function on_write();
    create table ruled (a int); create rule draws as on insert to ruled do also insert into counted (a) values (1);
    create view drawing as select nextval('others') as n; create view calling as select draws() as n;
    create procedure drawing() language plpgsql as 'begin perform nextval(''others''); end'";

/// A text longer than the limit of the analysis.
fn long(text: &str) -> String {
    format!("{text} /* {} */", "x".repeat(50_000))
}

/// A way to do something.
struct Way {
    name: String,
    /// A message that comes before.
    before: Option<Vec<u8>>,
    bytes: Vec<u8>,
}

impl Way {
    fn new(name: &str, bytes: Vec<u8>) -> Way {
        Way { name: name.to_string(), before: None, bytes }
    }

    fn behind(before: Vec<u8>, name: &str, bytes: Vec<u8>) -> Way {
        Way { before: Some(before), ..Way::new(name, bytes) }
    }

    fn prepare(&self, client: &mut Raw) {
        if let Some(before) = &self.before {
            client.send(before);
            client.until_ready();
        }
    }

    /// Goes it, to the end of its last transaction. Gives all messages.
    fn go(&self, client: &mut Raw) -> Vec<Message> {
        client.send(&self.bytes);
        let mut messages = client.until_ready();
        while messages.last().unwrap().body != b"I" {
            messages.extend(client.until_ready());
        }
        messages
    }
}

fn ways(plain: &[&str], prepared: &str, called: u32, arguments: &[&str]) -> Vec<Way> {
    let mut ways: Vec<_> = plain.iter().map(|text| Way::new(text, wire::query(text))).collect();
    let prepare = wire::query(&format!("prepare p as {prepared}"));
    let unread = wire::parse("", &long(prepared));
    let bind = [wire::run("p", &[]), wire::sync()].concat();
    let run = [wire::bind("", "", &[]), wire::execute("", 0), wire::sync()].concat();
    let within = [wire::query("begin"), wire::query("select 1"), bind.clone(), wire::query("commit")].concat();
    ways.extend([
        Way::behind(prepare.clone(), "SQL EXECUTE", wire::query("execute p")),
        Way::behind(prepare.clone(), "a Bind of what SQL prepared", bind),
        Way::behind(prepare, "a Bind of what SQL prepared, in a transaction", within),
        Way::new("the extended protocol", [wire::unnamed(prepared, &[]), wire::sync()].concat()),
        Way::new("a pipeline", [wire::unnamed("select 1", &[]), wire::unnamed(prepared, &[]), wire::sync()].concat()),
        Way::new("a function call", wire::function_call(called, arguments)),
        Way::new("a long text", wire::query(&long(prepared))),
        Way::new("a long Parse", [unread, run].concat()),
    ]);
    ways
}

#[test]
fn however_another_client_draws_on_the_only_connection_a_session_is_not_told_its_value() {
    let ground = Ground::new();
    ground.prepare(OBJECTS);
    let nextval = ground.direct().value("select oid from pg_proc where proname = 'nextval'").parse().unwrap();
    let others = ground.direct().value("select 'others'::regclass::oid");
    let plain = [
        "select nextval('others')",
        "select setval('others', 100)",
        "select 1 where pg_catalog.nextval('others') > 0",
        "begin; select nextval('others'); rollback",
        "do $$ begin perform nextval('others'); end $$",
        "call drawing()",
        "select draws()",
        "select * from drawing",
        "select * from calling",
        "insert into counted (a) values (1)",
        "insert into identified (a) values (1)",
        "insert into watched values (1)",
        "insert into ruled values (1)",
        "update counted set id = default",
        "with rows as (insert into counted (a) values (1) returning a) select * from rows",
        "create table made as select nextval('others'); drop table made",
        "declare c cursor with hold for select nextval('others'); fetch c; close c",
        "explain analyze insert into counted (a) values (1)",
        "copy (select nextval('others')) to stdout",
        "select query_to_xml('select nextval(''others'')', true, true, '')",
        "merge into counted using plain on false when not matched then insert (a) values (1); insert into counted (a) values (1)",
    ];
    let mut ways = ways(&plain, "select nextval('others')", nextval, &[&others]);
    let copy = [wire::query("copy counted (a) from stdin"), wire::copy_data(b"1\n"), wire::copy_done()].concat();
    ways.push(Way::new("COPY", copy));
    let proxy = ground.primary_proxy("worker_threads = 1\npool_size = 1\nstatement_analysis_max = 40kB");
    for way in &ways {
        let (mut client, mut other) = (ground.client(&proxy), ground.client(&proxy));
        way.prepare(&mut other);
        client.run("insert into counted (a) values (1)");
        let before = client.value("select lastval()");
        let answer = way.go(&mut other);
        assert!(answer.iter().all(|message| message.tag != b'E'), "{}: {answer:?}", way.name);
        drop(other);
        match client.try_value("select lastval()") {
            Ok(value) => panic!("{}: {value} in place of {before}", way.name),
            Err(failure) => assert_eq!(failure.sqlstate, "55000", "{}: {failure:?}", way.name),
        }
    }
}

#[test]
fn however_a_session_asks_it_is_not_told_what_another_drew_on_the_only_connection() {
    let ground = Ground::new();
    ground.prepare(OBJECTS);
    ground.prepare(
        "create function asks() returns bigint language sql as 'select lastval()'; create view asking as select lastval() as n",
    );
    let lastval = ground.direct().value("select oid from pg_proc where proname = 'lastval'").parse().unwrap();
    let plain = [
        "select lastval()",
        "select currval('others')",
        "select asks()",
        "select n from asking",
        "do $$ begin raise notice '%', lastval(); end $$",
        "select query_to_xml('select lastval()', true, true, '')",
        "create function asks_too() returns bigint language sql as 'select lastval()'; select asks_too()",
    ];
    let proxy = ground.primary_proxy("worker_threads = 1\npool_size = 1\nstatement_analysis_max = 40kB");
    for has_drawn in [false, true] {
        for way in &ways(&plain, "select lastval()", lastval, &[]) {
            let (mut client, mut other) = (ground.client(&proxy), ground.client(&proxy));
            if has_drawn {
                client.run("insert into counted (a) values (1)");
            }
            way.prepare(&mut client);
            other.run("select nextval('others')");
            let answer = way.go(&mut client);
            let errors: Vec<_> = answer.iter().filter(|message| message.tag == b'E').collect();
            assert!(!errors.is_empty() && errors[0].failure().sqlstate == "55000", "{}: {answer:?}", way.name);
        }
    }
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

/// The DISCARD goes ahead of the Parse that is brought along, not between it and its Bind.
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

/// A draw that no text shows, by a view, leaves nothing for others.
#[test]
fn nobody_is_told_what_a_view_drew_for_another() {
    let (ground, proxy) = stage();
    ground.prepare("create view drawing as select nextval('numbers') as n");
    let (mut client, mut other) = (ground.client(&proxy), ground.client(&proxy));
    assert_eq!(other.value("select n from drawing"), "1");
    assert_eq!(client.error("select lastval()").message, NOT_YET);
    assert_eq!(client.error("select lastval()").sqlstate, "55000");
}

/// Both drew on one connection: the server process's memory is not one client's alone.
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

/// `Within` if a session asks in the transaction of its draw; then a few connections serve all.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Asks {
    Within,
    AnyTime,
}

/// Before which servers, and how.
#[derive(Clone, Copy)]
enum At {
    Primary,
    /// Reads go to all, answers are kept, and two workers share the pools.
    Cluster,
}

impl At {
    fn proxy(self, ground: &Ground, pool_size: usize) -> Proxy {
        match self {
            At::Primary => ground.primary_proxy(&format!("worker_threads = 1\npool_size = {pool_size}")),
            At::Cluster => ground.proxy(&format!(
                "worker_threads = 2\npool_size = {pool_size}\nmemory_cache_enabled = on\nbackend_weight0 = 1\nbackend_weight1 = 1\nbackend_weight2 = 1"
            )),
        }
    }
}

/// Many clients, each with a sequence of its own: each question gets the client's own last value, or an error.
fn check_crowd(asks: Asks, at: At, pool_size: usize) {
    let ground = Ground::new();
    for at in 0..CROWD {
        let start = at * 1000 + 1;
        let table = format!("create table rows_{at} (a int default nextval('of_{at}'), b int)");
        ground.prepare(&format!("create sequence of_{at} start {start}; {table}"));
    }
    ground.prepare("create function asks(name text) returns bigint language sql as 'select currval(name::regclass)'");
    let proxy = at.proxy(&ground, pool_size);
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
    assert!(told > 20 && refused > 20, "{told} told, {refused} refused");
    assert_eq!(kept(&proxy), 0);
}

#[test]
fn in_a_crowd_nobody_ever_gets_another_clients_value() {
    check_crowd(Asks::AnyTime, At::Primary, CROWD);
    check_crowd(Asks::AnyTime, At::Primary, 1);
}

#[test]
fn nor_do_two_workers_before_three_servers_with_a_cache_tell_it() {
    check_crowd(Asks::AnyTime, At::Cluster, 4);
    check_crowd(Asks::Within, At::Cluster, 1);
}

#[test]
fn a_crowd_that_asks_in_the_transaction_of_the_draw_shares_its_connections() {
    check_crowd(Asks::Within, At::Primary, 2);
}
