//! Transactions: answered by Weir as a server answers them, and run where their first statement says.

use crate::support::raw::{Message, tags};
use crate::support::{Ground, Raw, wire};

/// What a client sends in order; a line is one story. A text beginning with `!` fails.
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
    &["begin", "start transaction", "select 1", "commit"],
    &["begin", "begin isolation level serializable", "show transaction_isolation", "commit"],
    &["begin", "select 1", "begin isolation level serializable", "rollback"],
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
enum How {
    Simple,
    /// A Sync after every statement.
    Extended,
    /// Named statements, prepared apart from their execution.
    Named,
    /// Described as well.
    Described,
}

fn bytes_of(text: &str, number: usize, how: How) -> Vec<u8> {
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
fn said(client: &mut Raw, how: How) -> Vec<Message> {
    let turns = if matches!(how, How::Named | How::Described) { 2 } else { 1 };
    (0..turns).flat_map(|_| client.until_ready()).collect()
}

/// What can be compared: tags, rows, command tags, errors and the status of the transaction.
fn seen(messages: &[Message]) -> Vec<String> {
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
    assert!(proxy.metric("begins_held_total") > 20, "they did wait for their first statements");
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
