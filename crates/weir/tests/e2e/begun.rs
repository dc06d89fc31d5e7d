//! Transactions whose BEGIN went ahead of their statements, or to no server at all, when servers come and go.

use crate::lost::{Stage, seen};
use crate::support::ground::{cluster, wait_for_catalog};
use crate::support::proxy::show;
use crate::support::{Ground, Proxy, Raw, wait_until, wire};
use weir_demo::Mode;

/// The connection has room for few statements: before this one runs it must be brought along again, and its description asked
/// for.
fn prepare_and_forget(client: &mut Raw, text: &str) {
    for (name, text) in [("s", text), ("p", "select 1"), ("q", "select 2")] {
        client.send(&[wire::parse(name, text), wire::describe(b'S', name), wire::sync()].concat());
        client.until_ready();
    }
}

const RUN: [&str; 4] = ["2", "D", "INSERT 0 1", "ZT"];

const WRITE: &str = "insert into t values (1) returning a";

fn run() -> Vec<u8> {
    [wire::run("s", &[]), wire::sync()].concat()
}

/// Nothing of its client's had been sent: it has lost nothing.
#[test]
fn a_transaction_whose_server_is_lost_before_its_first_statement_runs_on_another_connection() {
    let stage = Stage::primary_with("prepared_statements_max = 2");
    let mut direct = stage.ground.direct();
    let mut client = stage.client();
    prepare_and_forget(&mut client, WRITE);
    client.run("begin");
    // Nothing the server says is heard.
    stage.network.stall_present(&[crate::support::faults::Toward::Client]);
    client.send(&run());
    let analysed = format!("select count(*) from pg_stat_activity where query = '{WRITE}' and datname = current_database()");
    wait_until("the statement to be analysed", || direct.value(&analysed) == "1");
    stage.network.cut();
    assert_eq!(seen(&client.until_ready()), RUN);
    assert_eq!(seen(&client.query("commit")), ["COMMIT", "ZI"]);
    assert_eq!(direct.value("select count(*) from t"), "1");
    // The BEGIN is answered, and Weir's message before the statement is not.
    prepare_and_forget(&mut client, WRITE);
    client.run("begin");
    direct.run("begin; lock table t in access exclusive mode");
    client.send(&run());
    let waits = "select pid from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()";
    let mut other = stage.ground.direct();
    wait_until("the statement to be analysed", || other.rows(waits).len() == 1);
    other.run(&format!("select pg_terminate_backend(pid) from ({waits}) p"));
    direct.run("rollback");
    assert_eq!(seen(&client.until_ready()), RUN);
    assert_eq!(seen(&client.query("commit")), ["COMMIT", "ZI"]);
    assert_eq!(direct.value("select count(*) from t"), "2");
}

/// Only Weir's own messages were under way: the statement that waits for them has lost nothing either.
#[test]
fn a_statement_whose_server_goes_while_it_is_prepared_there_runs_on_another_connection() {
    let stage = Stage::primary_with("prepared_statements_max = 2");
    let (mut direct, mut other) = (stage.ground.direct(), stage.ground.direct());
    let mut client = stage.client();
    prepare_and_forget(&mut client, WRITE);
    direct.run("begin; lock table t in access exclusive mode");
    client.send(&run());
    let waits = "select pid from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()";
    wait_until("the statement to be analysed", || other.rows(waits).len() == 1);
    other.run(&format!("select pg_terminate_backend(pid) from ({waits}) p"));
    direct.run("rollback");
    assert_eq!(seen(&client.until_ready()), ["2", "D", "INSERT 0 1", "ZI"]);
    assert_eq!(direct.value("select count(*) from t"), "1");
}

/// A server says goodbye in answer to a pipeline without a Sync: the client that waits for the answer hears of it.
#[test]
fn a_servers_farewell_is_told_to_who_has_sent_no_sync_yet() {
    let stage = Stage::primary_with("");
    let mut client = stage.client();
    let (mut direct, mut other) = (stage.ground.direct(), stage.ground.direct());
    direct.run("begin; lock table t in access exclusive mode");
    client.send(&[wire::parse("", "insert into t values (1)"), wire::flush()].concat());
    let waits = "select pid from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()";
    wait_until("the statement to be analysed", || other.rows(waits).len() == 1);
    other.run(&format!("select pg_terminate_backend(pid) from ({waits}) p"));
    direct.run("rollback");
    let told = client.read();
    assert_eq!((told.tag, told.failure().sqlstate.as_str()), (b'E', "08007"));
    client.send(&wire::sync());
    assert_eq!(seen(&client.until_ready()), ["ZI"]);
    assert_eq!(client.value("select 1"), "1");
}

#[test]
fn a_transaction_that_failed_before_a_server_knew_needs_no_primary() {
    let cluster = cluster(1);
    let proxy = Proxy::start(&cluster, "");
    let mut client = Raw::tcp(proxy.port()).log_in("postgres", "postgres", &[]).unwrap();
    wait_for_catalog(&mut client, "postgres");
    cluster.primary().stop(Mode::Fast).unwrap();
    let mut console = proxy.console();
    wait_until("the primary to be gone", || !show(&mut console, "pool_nodes", "role").contains(&"primary".to_string()));
    for begin in ["begin isolation level serializable", "begin read write", "begin isolation level repeatable read read only"] {
        client.run(begin);
        assert_eq!(client.error("pgpool show nosuch").sqlstate, "42704", "{begin}");
        assert_eq!(client.error("select 1").sqlstate, "25P02", "{begin}");
        assert_eq!(client.error("selec").sqlstate, "42601", "{begin}");
        client.send(&[wire::unnamed("select 1", &[]), wire::sync()].concat());
        assert_eq!(seen(&client.until_ready()), ["ERROR 25P02", "ZE"], "{begin}");
        assert_eq!(seen(&client.query("commit")), ["ROLLBACK", "ZI"], "{begin}");
    }
}

/// As a server would end it, also if the one that was to watch it is lost.
#[test]
fn a_transaction_that_failed_with_its_server_may_not_idle_for_longer_than_the_server_allows() {
    let stage = Stage::primary_with("");
    let mut client = stage.client();
    client.run("set idle_in_transaction_session_timeout = '1s'");
    stage.network.stall_present(&[crate::support::faults::Toward::Client]);
    stage.lose_a_write(&mut client);
    assert_eq!(seen(&client.until_end()), ["FATAL 25P03"]);
}

/// A statement before a command of Weir's own, without a Sync between them, is over when Weir answers.
#[test]
fn what_stands_without_a_sync_before_a_command_of_weirs_is_over_with_it() {
    let ground = Ground::new();
    ground.prepare("create table t (a int)");
    let proxy = ground.primary_proxy("worker_threads = 1\nquery_timeout = 1\nmemory_cache_enabled = on");
    let mut client = ground.client_with(&proxy, &[("options", "-c work_mem=7MB")]);
    let mut other = ground.client(&proxy);
    let count = "select count(*) from t";
    // It may be read from memory again, and has written.
    crate::cache::warm(&proxy, &mut other, count);
    client.send(&[wire::unnamed("insert into t values (1)", &[]), wire::query("show pool_version")].concat());
    assert_eq!(seen(&client.until_ready()), ["1", "2", "INSERT 0 1", "T", "D", "SELECT 1", "ZI"]);
    assert_eq!(crate::cache::warm(&proxy, &mut other, count), [["1"]]);
    // It does not count as running any longer.
    let mut console = proxy.console();
    wait_until("the connection to be at rest", || {
        show(&mut console, "pool_processes", "status").iter().all(|s| s != "Execute command")
    });
    // The values that its RESET took back count for the next statement, and the next client has its own.
    client.send(&[wire::unnamed("reset work_mem", &[]), wire::query("show pool_version")].concat());
    client.until_ready();
    assert_eq!(other.value("show work_mem"), "4MB");
    assert_eq!(client.value("show work_mem"), "7MB");
    assert_eq!(other.value("show work_mem"), "4MB");
}
