//! Ends: of clients, of servers, of statements that are cancelled.

use super::{CONF, Neighbours};
use crate::support::proxy::show;
use crate::support::raw::Message;
use crate::support::{Ground, Raw, wait_until, wire};

#[test]
fn a_client_gone_in_the_middle_of_a_result_leaves_nothing() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy(CONF);
    let mut neighbours = Neighbours::new(&ground, &proxy);
    for _ in 0..4 {
        let mut client = ground.client(&proxy);
        client.run("set work_mem = '13MB'");
        client.run("prepare p as select 1");
        client.send(&wire::query("select repeat('x', 10000) from generate_series(1, 10000)"));
        assert_eq!(client.read().tag, b'T');
        drop(client);
        neighbours.shuffle("a client that went away");
    }
}

#[test]
fn a_server_gone_between_statements_takes_nothing_from_the_session() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy(CONF);
    let mut client = ground.client(&proxy);
    client.run("set work_mem = '13MB'");
    client.run("prepare p as select 8");
    for _ in 0..3 {
        // Not while the server is asked for the session's state: a session that may have lost something is sent away.
        let is_at_rest = || show(&mut proxy.console(), "pool_pools", "pool_connected").iter().all(|connected| connected == "0");
        wait_until("the connections to be at rest", is_at_rest);
        let pids = ground.server_connections();
        let killed = "select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() \
                      and pid <> pg_backend_pid()";
        ground.direct().rows(killed);
        // Until Weir knows, too: it believes a connection alive that it has used within the last milliseconds.
        let is_gone = |pid: &String| !show(&mut proxy.console(), "pool_pools", "pool_backendpid").contains(pid);
        wait_until("the connections to be gone", || pids.iter().all(is_gone));
        assert_eq!(client.value("show work_mem"), "13MB");
        assert_eq!(client.value("execute p"), "8");
    }
}

#[test]
fn a_cancel_hits_the_statement_and_not_the_settings_ahead_of_it() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy(CONF);
    let mut neighbours = Neighbours::new(&ground, &proxy);
    let mut client = ground.client(&proxy);
    client.run("set work_mem = '13MB'");
    for _ in 0..5 {
        neighbours.shuffle("a cancel");
        client.send(&wire::query("select pg_sleep(60)"));
        wait_until("the statement to run", || {
            ground.direct().value("select count(*) from pg_stat_activity where query = 'select pg_sleep(60)'") == "1"
        });
        Raw::tcp(proxy.port()).send(&wire::cancel(client.pid, &client.key));
        let failure = client.until_ready().iter().find(|message| message.tag == b'E').map(Message::failure);
        assert_eq!(failure.expect("the statement is cancelled").sqlstate, "57014");
        assert_eq!(client.value("show work_mem"), "13MB");
    }
}
