//! Transactions: answered by Weir as a server answers them, and run where their first statement says.

use crate::support::ground::wait_for_catalog;
use crate::support::raw::{Message, tags};
use crate::support::{Ground, Proxy, Raw, wait_until, wire};

/// Statements of a client in order; a line is one story. A text beginning with `!` fails.
const STORIES: &[&[&str]] = &[
    &["begin", "commit"],
    &["begin", "rollback"],
    &["begin", "end"],
    &["begin", "abort"],
    &["start transaction", "commit"],
    &["START TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY", "select 1", "commit"],
    &["begin isolation level serializable read only deferrable", "select 1", "show transaction_deferrable", "commit"],
    &["/* why */ begin -- now", "select 1", "commit"],
    &["begin", "select 1", "insert into t values (1)", "select count(*) from t", "commit"],
    &["begin", "insert into t values (2)", "rollback", "select count(*) from t"],
    &["begin", "begin", "commit", "commit"],
    &["begin", "begin read only", "commit", "select count(*) from t"],
    &["begin", "select count(*) from t", "start transaction read only", "insert into t values (7)", "rollback"],
    &["begin read only", "begin read only", "select count(*) from t", "commit"],
    &["begin", "select count(*) from t", "set transaction isolation level serializable; insert into t values (8)", "rollback"],
    &["begin read only", "notify c", "select count(*) from t", "commit"],
    &["begin read only", "lock table t in share mode", "commit"],
    &["begin read only", "reindex table t", "commit"],
    &["begin", "start transaction", "select 1", "commit"],
    &["begin", "begin isolation level serializable", "show transaction_isolation", "commit"],
    &["begin", "select 1", "begin isolation level serializable", "rollback"],
    &["begin", "select 1", "set local work_mem = '5MB'", "set transaction read only", "rollback"],
    &["begin", "select 1", "set transaction read only", "insert into t values (1)", "rollback"],
    &["commit", "rollback", "begin", "commit", "commit"],
    &["begin isolation level nonsense", "select 1"],
    &["begin", "select 1/0", "select 1", "begin", "commit"],
    &["begin", "select 1/0", "rollback"],
    &["begin", "selec", "commit"],
    &["begin", "selec", "select 1", "savepoint s", "rollback to s", "rollback"],
    &["begin", "select nosuch", "commit and chain", "rollback"],
    &["begin", "savepoint s", "select 1/0", "rollback to s", "select 1", "release s", "commit"],
    &["begin", "savepoint s", "insert into t values (3)", "rollback to savepoint s", "select count(*) from t", "commit"],
    &["begin", "rollback to s", "select 1", "rollback"],
    &["begin", "release s", "commit"],
    &["begin", "set transaction isolation level repeatable read", "show transaction_isolation", "commit"],
    &["begin", "set transaction read only", "insert into t values (1)", "rollback"],
    &["begin", "select 1", "set transaction isolation level serializable", "select 1", "rollback"],
    &["begin", "insert into t values (4)", "set transaction isolation level serializable", "rollback"],
    &["begin read only", "insert into t values (1)", "select 1", "commit"],
    &["begin read only", "select count(*) from t", "commit"],
    &["begin read only", "show transaction_read_only", "commit"],
    &["begin read only", "set transaction read write", "insert into t values (5)", "commit", "select count(*) from t"],
    &["begin read only", "select nextval('s')", "rollback"],
    &["begin read only", "select a from t for update", "rollback"],
    &["begin read only", "declare c cursor for select a from t order by a", "fetch 1 from c", "close c", "commit"],
    &["begin read only", "select pg_advisory_xact_lock(77)", "commit"],
    &["begin read only", "select pg_notify('a', 'b')", "select txid_current() > 0", "commit"],
    &["begin", "set local work_mem = '7MB'", "show work_mem", "commit", "show work_mem"],
    &["begin", "set work_mem = '8MB'", "rollback", "show work_mem"],
    &["begin", "set work_mem = '9MB'", "commit", "show work_mem", "reset work_mem"],
    &["begin", "reset all", "discard plans", "commit"],
    &["begin", "discard all", "rollback"],
    &["begin", "vacuum", "rollback"],
    &["begin", "declare c cursor for select generate_series(1, 3)", "fetch 2 from c", "commit", "fetch 1 from c"],
    &["begin", "prepare p as select 5", "execute p", "commit", "execute p", "deallocate p"],
    &["begin", "lock table t", "commit"],
    &["begin", "create temp table k (a int) on commit drop", "insert into k values (1)", "select * from k", "commit"],
    &["begin", "select 1/0", "prepare transaction 'x'", "rollback"],
    &["begin", "commit and chain", "select 1", "rollback and chain", "commit"],
    &["begin", "", "commit"],
    &["begin", "select 1; select 2", "select 1; select 1/0", "commit"],
    &["begin", "select 1; commit; select 2", "commit"],
    &["begin; select 1", "commit"],
    &["begin", "commit; begin; select 1", "commit"],
    &["set default_transaction_read_only = on", "begin", "insert into t values (1)", "rollback"],
    &["begin", "select count(*) from t", "commit", "begin read write", "insert into t values (6)", "commit"],
    &[
        "reset default_transaction_read_only",
        "set default_transaction_isolation = 'serializable'",
        "begin read only",
        "show transaction_isolation",
        "select count(*) from t",
        "commit",
    ],
    &["reset default_transaction_isolation", "select count(*) from t"],
];

/// How a story is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum How {
    Simple,
    /// A Sync after every statement.
    Extended,
    /// Named statements, prepared apart from their execution.
    Named,
    /// Described as well.
    Described,
}

pub(super) fn bytes_of(text: &str, number: usize, how: How) -> Vec<u8> {
    let name = format!("s{number}");
    match how {
        How::Simple => wire::query(text),
        How::Extended => [wire::unnamed(text, &[]), wire::sync()].concat(),
        How::Named => {
            [wire::close(b'S', &name), wire::parse(&name, text), wire::sync(), wire::run(&name, &[]), wire::sync()].concat()
        }
        How::Described => {
            let ask = [wire::parse("", text), wire::describe(b'S', ""), wire::sync()].concat();
            [ask, wire::bind("", "", &[]), wire::describe(b'P', ""), wire::execute("", 0), wire::sync()].concat()
        }
    }
}

/// All a side says to one step.
pub(super) fn said(client: &mut Raw, how: How) -> Vec<Message> {
    let turns = if matches!(how, How::Named | How::Described) { 2 } else { 1 };
    (0..turns).flat_map(|_| client.until_ready()).collect()
}

/// The comparable part: tags, rows, command tags, errors and the status of the transaction.
pub(super) fn seen(messages: &[Message]) -> Vec<String> {
    let one = |message: &Message| match message.tag {
        b'E' | b'N' => {
            let failure = message.failure();
            let text = failure.message.split('"').next().unwrap_or_default().to_string();
            format!("{} {} {text}", failure.severity, failure.sqlstate)
        }
        b'D' => format!("{:?}", message.row()),
        b'C' => message.text(),
        b'Z' => format!("Z{}", char::from(message.body[0])),
        tag => char::from(tag).to_string(),
    };
    messages.iter().map(one).collect()
}

fn check_stories(more: &str, standbys: bool, how: How) {
    let (ground, plain) = (Ground::new(), Ground::new());
    for ground in [&ground, &plain] {
        ground.prepare("create table t (a int); insert into t values (0); create sequence s");
    }
    let proxy = if standbys { ground.proxy(more) } else { ground.primary_proxy(more) };
    let (mut client, mut direct) = (ground.client(&proxy), plain.direct());
    let mut number = 0;
    for story in STORIES {
        let mut told = Vec::new();
        for text in story.iter() {
            // A prepared statement is one.
            if how != How::Simple && text.contains(';') {
                continue;
            }
            number += 1;
            let bytes = bytes_of(text, number, how);
            client.send(&bytes);
            direct.send(&bytes);
            let (through, own) = (said(&mut client, how), said(&mut direct, how));
            told.push(format!("{text}: {}", tags(&through)));
            assert_eq!(seen(&through), seen(&own), "{how:?} {more} {story:?}: {told:?}");
        }
        // Some stories are broken off.
        client.run("rollback");
        direct.run("rollback");
    }
    assert!(proxy.metric("begins_deferred_total") > 20, "they did wait for their first statements");
}

#[test]
fn stories_of_transactions_are_the_same_through_weir_in_the_simple_protocol() {
    check_stories("", true, How::Simple);
    check_stories("pool_size = 1", false, How::Simple);
}

#[test]
fn stories_of_transactions_are_the_same_through_weir_in_the_extended_protocol() {
    check_stories("", true, How::Extended);
    check_stories("pool_size = 1", false, How::Extended);
}

#[test]
fn stories_of_transactions_are_the_same_with_named_and_described_statements() {
    check_stories("", true, How::Named);
    check_stories("pool_size = 1\nprepared_statements_max = 2", false, How::Named);
    check_stories("", true, How::Described);
}

#[test]
fn a_portal_that_was_only_bound_is_there_after_its_sync() {
    let ground = Ground::new();
    ground.prepare("create table t (a int); insert into t values (1)");
    let proxy = ground.proxy("");
    let mut client = ground.client(&proxy);
    wait_for_catalog(&mut client, &ground.database);
    for mut client in [ground.direct(), client] {
        client.run("begin");
        client.send(&[wire::parse("", "select a from t"), wire::bind("", "", &[]), wire::sync()].concat());
        assert_eq!(client.tags(), "12Z");
        client.send(&[wire::execute("", 0), wire::sync()].concat());
        assert_eq!(client.tags(), "DCZ");
        client.send(&[wire::bind("", "", &[]), wire::bind("", "", &[]), wire::execute("", 0), wire::sync()].concat());
        assert_eq!(client.tags(), "22DCZ");
        client.run("commit");
    }
}

#[test]
fn one_moment_is_the_time_of_a_transaction_however_it_is_asked_for() {
    let ground = Ground::new();
    let proxy = ground.proxy("");
    let mut client = ground.client(&proxy);
    wait_for_catalog(&mut client, &ground.database);
    client.run("select '2020-01-01'::timestamptz");
    client.run("begin");
    let first = client.value("select 'now'::timestamptz");
    assert_eq!(client.value("select timestamptz 'now'"), first);
    assert_eq!(client.value("select cast('now' as timestamp with time zone)"), first);
    assert_eq!(client.extended("select $1::timestamptz", &["now"]).unwrap(), first);
    client.run("commit");
    assert_ne!(client.value("select 'now'::timestamptz"), first);
}

#[test]
fn a_transaction_without_statements_needs_no_server() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy("pool_size = 1\npool_wait_timeout = 1");
    let (mut holder, mut client) = (ground.client(&proxy), ground.client(&proxy));
    holder.run("begin; select 1");
    for _ in 0..3 {
        assert_eq!(seen(&client.query("begin")), ["BEGIN", "ZT"]);
        assert_eq!(seen(&client.query("commit")), ["COMMIT", "ZI"]);
        assert_eq!(seen(&client.query("start transaction read only")), ["START TRANSACTION", "ZT"]);
        assert_eq!(seen(&client.query("abort")), ["ROLLBACK", "ZI"]);
        for (text, status) in [("begin", "ZT"), ("end", "ZI")] {
            client.send(&[wire::unnamed(text, &[]), wire::sync()].concat());
            assert_eq!(seen(&client.until_ready()).last().unwrap(), status, "{text}");
        }
    }
    client.run("begin");
    assert_eq!(client.error("select 1").sqlstate, "53300", "the first statement waits for one");
    holder.run("commit");
}

#[test]
fn a_begin_and_its_first_statement_in_one_pipeline_are_one_turn() {
    let ground = Ground::new();
    ground.prepare("create table t (a int)");
    let proxy = ground.primary_proxy("");
    let mut client = ground.client(&proxy);
    let begin = wire::unnamed("BEGIN", &[]);
    client.send(&[begin.clone(), wire::unnamed("insert into t values (1)", &[]), wire::sync()].concat());
    assert_eq!(seen(&client.until_ready()), ["1", "2", "BEGIN", "1", "2", "INSERT 0 1", "ZT"]);
    client.send(&[wire::unnamed("select count(*) from t", &[]), wire::unnamed("COMMIT", &[]), wire::sync()].concat());
    assert_eq!(seen(&client.until_ready()), ["1", "2", "[Some(\"1\")]", "SELECT 1", "1", "2", "COMMIT", "ZI"]);
    client.send(&[begin, wire::unnamed("select 1/0", &[]), wire::unnamed("COMMIT", &[]), wire::sync()].concat());
    assert_eq!(seen(&client.until_ready())[3..], ["1", "ERROR 22012 division by zero", "ZE"][..]);
    assert_eq!(seen(&client.query("commit")), ["ROLLBACK", "ZI"]);
    client.send(&[wire::query("begin"), wire::query("insert into t values (2)"), wire::query("commit")].concat());
    assert_eq!([client.tags(), client.tags(), client.tags()], ["CZ", "CZ", "CZ"]);
    assert_eq!(client.value("select count(*) from t"), "2");
    client.send(&[wire::query("begin"), wire::query("commit"), wire::query("select 5")].concat());
    assert_eq!([client.tags(), client.tags(), client.tags()], ["CZ", "CZ", "TDCZ"]);
}

#[test]
fn a_client_that_leaves_in_a_transaction_that_waits_leaves_nothing() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy("pool_size = 1");
    for _ in 0..3 {
        let mut client = ground.client(&proxy);
        client.run("begin");
    }
    assert_eq!(ground.client(&proxy).value("select 1"), "1");
}

#[test]
fn a_transaction_that_waits_is_one_for_limits_and_lists() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy("idle_transaction_timeout = 200ms");
    let mut client = ground.client(&proxy);
    client.run("begin");
    let mut console = proxy.console();
    let status = crate::support::proxy::show(&mut console, "pool_processes", "status");
    assert!(status.iter().any(|status| status == "Idle in transaction"), "{status:?}");
    let failure = client.until_end()[0].failure();
    assert_eq!((failure.severity.as_str(), failure.sqlstate.as_str()), ("FATAL", "25P03"));
}

/// The port of the server that answers: a read like any other.
const WHERE: &str = "select inet_server_port()";

fn check_where(ground: &Ground, client: &mut Raw, text: &str, on_standby: bool, why: &str) {
    let port = client.value(text);
    assert_eq!(ground.standby_ports().contains(&port), on_standby, "{text}: {why}");
}

fn rule(client: &mut Raw, name: &str) -> u64 {
    let rows = client.rows("show pool_rules");
    rows.iter().find(|row| row[1] == name).unwrap_or_else(|| panic!("no rule {name}"))[2].parse().unwrap()
}

#[test]
fn reads_before_the_first_write_of_a_transaction_run_on_standbys() {
    let ground = Ground::new();
    ground.prepare("create table t (a int)");
    let proxy = ground.proxy("pool_size = 1");
    let (mut client, mut other) = (ground.client(&proxy), ground.client(&proxy));
    client.run("begin");
    for _ in 0..3 {
        check_where(&ground, &mut client, WHERE, true, "nothing is written");
        // Its reads hold no connection.
        other.run("insert into t values (1)");
    }
    ground.cluster.wait_caught_up().unwrap();
    assert_eq!(
        seen(&client.query("select count(*) from t")),
        ["T", "[Some(\"3\")]", "SELECT 1", "ZT"],
        "each sees what is committed"
    );
    client.run("insert into t values (2)");
    check_where(&ground, &mut client, WHERE, false, "it has written");
    assert_eq!(client.value("select count(*) from t"), "4");
    client.run("rollback");
    assert_eq!(client.value("select count(*) from t"), "3", "the write was the transaction's");
    check_where(&ground, &mut client, WHERE, true, "outside of it");
    for text in ["begin", WHERE, "commit"] {
        client.send(&[wire::unnamed(text, &[]), wire::sync()].concat());
        let messages = client.until_ready();
        let status = if text == "commit" { b"I" } else { b"T" };
        assert_eq!(messages.last().unwrap().body, status, "{text}");
    }
    // As a driver without autocommit sends it.
    client.send(&[wire::unnamed("BEGIN", &[]), wire::unnamed(WHERE, &[]), wire::sync()].concat());
    let port = client.until_ready().iter().find(|m| m.tag == b'D').unwrap().row()[0].clone().unwrap();
    assert!(ground.standby_ports().contains(&port), "{port}");
    client.run("insert into t values (5)");
    client.run("commit");
    assert_eq!(client.value("select count(*) from t"), "4");
}

#[test]
fn a_transaction_of_one_snapshot_or_of_an_unknown_kind_reads_on_the_primary() {
    let ground = Ground::new();
    let proxy = ground.proxy("");
    let mut client = ground.client(&proxy);
    for begin in ["begin isolation level repeatable read", "start transaction isolation level serializable"] {
        client.run(begin);
        check_where(&ground, &mut client, WHERE, false, begin);
        client.run("commit");
    }
    client.run("set default_transaction_isolation = 'repeatable read'");
    client.run("begin");
    check_where(&ground, &mut client, WHERE, false, "by the session's default");
    client.run("commit; begin isolation level read committed; commit; begin read only");
    client.run("rollback");
    client.run("begin isolation level read committed");
    check_where(&ground, &mut client, WHERE, true, "it says so itself");
    client.run("commit");
    client.run("reset default_transaction_isolation");
    assert!(rule(&mut client, "transaction_snapshot") >= 3);
    let database = &ground.database;
    ground.prepare(&format!("alter database {database} set default_transaction_isolation = 'serializable'"));
    let mut fresh = ground.client(&proxy);
    wait_until("the default to be noticed", || {
        fresh.run("begin");
        let port = fresh.value(WHERE);
        fresh.run("commit");
        port == ground.primary_port()
    });
    fresh.run("begin read only");
    check_where(&ground, &mut fresh, WHERE, false, "a standby has no serializable transactions");
    fresh.run("commit");
    ground.prepare(&format!("alter database {database} reset default_transaction_isolation"));
}

#[test]
fn a_read_that_fails_on_a_standby_fails_its_transaction() {
    let ground = Ground::new();
    ground.prepare("create table t (a int); insert into t values (0)");
    let proxy = ground.proxy("");
    let mut client = ground.client(&proxy);
    for ending in ["commit", "rollback"] {
        client.run("begin");
        client.run(WHERE);
        assert_eq!(seen(&client.query("select 1 / a from t")), ["T", "ERROR 22012 division by zero", "ZE"]);
        assert_eq!(client.error("select 2").sqlstate, "25P02");
        assert_eq!(seen(&client.query(ending)), ["ROLLBACK", "ZI"]);
    }
    // The statements behind it must not run.
    client.send(
        &[wire::query("begin"), wire::query("select 1 / a from t"), wire::query("select 3"), wire::query("commit")].concat(),
    );
    let told: Vec<String> = (0..4).flat_map(|_| seen(&client.until_ready())).collect();
    let aborted = "ERROR 25P02 current transaction is aborted, commands ignored until end of transaction block";
    assert_eq!(told, ["BEGIN", "ZT", "T", "ERROR 22012 division by zero", "ZE", aborted, "ZE", "ROLLBACK", "ZI"]);
    let segment = |text: &str| [wire::unnamed(text, &[]), wire::sync()].concat();
    client.send(&[segment("begin"), segment("select 1 / a from t"), segment("select 3"), segment("commit")].concat());
    let told: Vec<String> = (0..4).flat_map(|_| seen(&client.until_ready())).filter(|word| word.len() > 1).collect();
    assert_eq!(told, ["BEGIN", "ZT", "ERROR 22012 division by zero", "ZE", aborted, "ZE", "ROLLBACK", "ZI"]);
}

#[test]
fn what_a_standby_refuses_in_a_transaction_begins_it_on_the_primary() {
    let ground = Ground::new();
    ground.prepare(
        "create table t (a int);
         create function writes_all_the_same(int) returns int language sql as 'insert into t values ($1) returning a';
         create function liar(int) returns int language plpgsql stable as $$ begin return writes_all_the_same($1); end $$",
    );
    let proxy = ground.proxy("");
    let mut client = ground.client(&proxy);
    for turn in 1..3 {
        client.run("begin");
        client.run(WHERE);
        assert_eq!(client.value(&format!("select liar({turn})")), turn.to_string());
        assert_eq!(client.value("select count(*) from t"), "1", "its transaction sees it");
        client.run("rollback");
        assert_eq!(client.value("select count(*) from t"), "0", "and takes it back");
    }
    assert_eq!(proxy.metric("reads_repeated_total"), 1, "the second time it is known");
}

#[test]
fn reads_that_need_their_transaction_begin_it_where_it_can_write() {
    let ground = Ground::new();
    ground.prepare("create table t (a int, made timestamptz default now())");
    let proxy = ground.proxy("");
    let (mut client, mut direct) = (ground.client(&proxy), ground.direct());
    client.run("begin");
    let time = client.value("select now()");
    client.run("insert into t values (1)");
    assert_eq!(client.value("select made from t"), time, "a transaction has one time");
    client.run("rollback");
    for client in [&mut client, &mut direct] {
        client.run("begin");
        let open =
            [wire::parse("s", "select generate_series(1, 5)"), wire::bind("p", "s", &[]), wire::execute("p", 2), wire::sync()];
        client.send(&open.concat());
        assert_eq!(client.tags(), "12DDsZ");
        client.send(&[wire::execute("p", 2), wire::sync()].concat());
        assert_eq!(client.tags(), "DDsZ", "a portal lives to the end of its transaction");
        client.run("commit");
    }
    assert_eq!((rule(&mut client, "transaction_time"), rule(&mut client, "transaction_portal")), (1, 1));
}

#[test]
fn reads_stay_on_the_primary_after_a_write_as_long_as_the_operator_says() {
    let ground = Ground::new();
    ground.prepare("create table t (a int)");
    // True if a read goes to a standby: in the transaction after a write, behind it, in the next transaction; then these three
    // after a write outside of transactions.
    let cases = [
        ("off", [false, true, true, true, true]),
        ("transaction", [false, true, true, true, true]),
        ("dml_adaptive", [false, true, true, true, true]),
        ("trans_transaction", [false, true, false, true, true]),
        ("always", [false, false, false, false, false]),
    ];
    for (mode, expected) in cases {
        let proxy = ground.proxy(&format!("causal_reads = off\ndisable_load_balance_on_write = {mode}"));
        let mut client = ground.client(&proxy);
        let mut on_standby = Vec::new();
        let mut look = |client: &mut Raw| on_standby.push(ground.standby_ports().contains(&client.value(WHERE)));
        client.run("begin");
        client.run("insert into t values (1)");
        look(&mut client);
        client.run("commit");
        look(&mut client);
        client.run("begin");
        look(&mut client);
        client.run("commit");
        let mut client = ground.client(&proxy);
        check_where(&ground, &mut client, WHERE, true, "another session");
        client.extended("insert into t values (2) returning 1", &[]).unwrap();
        look(&mut client);
        client.run("begin");
        look(&mut client);
        client.run("commit");
        assert_eq!(on_standby, expected, "{mode}");
    }
}

#[test]
fn under_dml_adaptive_global_everybody_reads_what_anybody_wrote() {
    let cluster = crate::support::ground::cluster(1);
    let proxy = Proxy::start(&cluster, "causal_reads = off\ndisable_load_balance_on_write = dml_adaptive_global");
    let (mut writer, mut reader) = (proxy.console(), proxy.console());
    writer.run("create table t (a int)");
    cluster.wait_caught_up().unwrap();
    wait_for_catalog(&mut reader, "postgres");
    let standby = &cluster.standbys()[0];
    standby.query("select pg_wal_replay_pause()").unwrap();
    wait_until("replay to pause", || standby.value("select pg_get_wal_replay_pause_state()").unwrap() == "paused");
    writer.run("insert into t values (1)");
    assert_eq!(reader.value("select count(*) from t"), "1");
    reader.run("begin");
    writer.run("insert into t values (2)");
    assert_eq!(reader.value("select count(*) from t"), "2", "also in a transaction that has not begun on a server");
    reader.run("commit");
    standby.query("select pg_wal_replay_resume()").unwrap();
}

#[test]
fn a_hint_before_the_begin_is_one_for_all_of_its_transaction() {
    let ground = Ground::new();
    let proxy = ground.proxy("");
    let mut client = ground.client(&proxy);
    for begin in ["/*NO LOAD BALANCE*/ begin", "/* weir: primary */ begin read only"] {
        client.run(begin);
        check_where(&ground, &mut client, WHERE, false, begin);
        check_where(&ground, &mut client, WHERE, false, begin);
        client.run("commit");
        check_where(&ground, &mut client, WHERE, true, "behind it");
    }
}

#[test]
fn a_call_of_a_function_that_may_write_is_a_write_for_the_reads_after_it() {
    let ground = Ground::new();
    ground.prepare("create table t (a int); create function maybe() returns int language sql as 'select 1'");
    let proxy = ground.proxy("causal_reads = off\ndisable_load_balance_on_write = always");
    for how in ["simple", "extended", "transaction", "hinted", "prepared"] {
        let mut client = ground.client(&proxy);
        check_where(&ground, &mut client, WHERE, true, "nothing is written yet");
        client.run("select version(), current_setting('work_mem'), pg_backend_pid()");
        check_where(&ground, &mut client, WHERE, true, "that writes no row");
        match how {
            "simple" => client.run("select maybe()"),
            "extended" => drop(client.extended("select maybe()", &[]).unwrap()),
            "hinted" => client.run("/* weir: primary */ select maybe()"),
            "prepared" => client.run("prepare p as select maybe(); execute p"),
            _ => client.run("begin; select maybe(); commit"),
        }
        check_where(&ground, &mut client, WHERE, false, how);
        client.run("begin");
        check_where(&ground, &mut client, WHERE, false, how);
        client.run("commit");
    }
}

/// Any server gives the answers of a failed transaction.
#[test]
fn a_transaction_that_has_failed_ends_as_it_should_without_a_primary() {
    let cluster = crate::support::ground::cluster(1);
    let proxy = Proxy::start(&cluster, "causal_reads = off\npool_wait_timeout = 60");
    let mut client = proxy.console();
    client.run("create table t (a int); insert into t values (0)");
    cluster.wait_caught_up().unwrap();
    wait_for_catalog(&mut client, "postgres");
    cluster.primary().stop(weir_demo::Mode::Fast).unwrap();
    wait_until("its end to be seen", || !proxy.nodes("role").iter().any(|role| role == "primary"));
    for ending in ["rollback", "commit"] {
        client.run("begin");
        assert_eq!(seen(&client.query("select 1 / a from t")), ["T", "ERROR 22012 division by zero", "ZE"]);
        assert_eq!(client.error("select 2").sqlstate, "25P02");
        assert_eq!(client.error("insert into t values (1)").sqlstate, "25P02");
        assert_eq!(seen(&client.query(ending)), ["ROLLBACK", "ZI"]);
    }
    cluster.primary().start().unwrap();
    client.run("insert into t values (1)");
}

/// A server counts from the BEGIN on, and so does Weir for it as long as no server knows of the transaction.
#[test]
fn a_servers_limit_on_idling_counts_in_a_transaction_that_waits() {
    let ground = Ground::new();
    let database = &ground.database;
    ground.prepare(&format!("alter database {database} set idle_in_transaction_session_timeout = '300ms'"));
    let proxy = ground.proxy("");
    let check_ends = |client: &mut Raw, why: &str| {
        let failure = client.until_end()[0].failure();
        let told = (failure.severity.as_str(), failure.sqlstate.as_str(), failure.message.as_str());
        assert_eq!(told, ("FATAL", "25P03", "terminating connection due to idle-in-transaction timeout"), "{why}");
    };
    let mut client = ground.client(&proxy);
    client.run("begin");
    check_ends(&mut client, "by the database's default");
    let mut client = ground.client(&proxy);
    client.run("begin");
    client.run(WHERE);
    check_ends(&mut client, "after a read");
    ground.prepare(&format!("alter database {database} reset idle_in_transaction_session_timeout"));
    let proxy = ground.primary_proxy("");
    for how in ["set", "options", "extended"] {
        let options: &[(&str, &str)] =
            if how == "options" { &[("options", "-c idle_in_transaction_session_timeout=300ms")] } else { &[] };
        let mut client = Raw::tcp(proxy.port()).log_in("postgres", database, options).unwrap();
        match how {
            "set" => client.run("set idle_in_transaction_session_timeout = '300ms'"),
            "extended" => drop(client.extended("set idle_in_transaction_session_timeout = '300ms'", &[])),
            _ => {}
        }
        client.run("begin");
        check_ends(&mut client, how);
    }
    let mut client = Raw::tcp(proxy.port()).log_in("postgres", database, &[]).unwrap();
    client.run("set idle_in_transaction_session_timeout = '300ms'");
    client.send(&[wire::unnamed("reset idle_in_transaction_session_timeout", &[]), wire::sync()].concat());
    client.until_ready();
    client.run("begin");
    assert!(client.is_silent_for(std::time::Duration::from_millis(1500)), "it was taken back");
    client.run("commit");
}
