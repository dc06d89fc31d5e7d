//! Limits on clients, sizes and times.

use crate::support::{Ground, Proxy, Raw, wait_until, wire};
use std::time::Duration;

#[test]
fn clients_above_the_limit_are_turned_away_with_its_number() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy("max_client_connections = 5");
    wait_until("earlier clients to be gone", || clients(&proxy) == 1);
    let mut held: Vec<Raw> = (0..5).map(|_| ground.client(&proxy)).collect();
    let failure = Raw::tcp(proxy.port()).log_in("postgres", &ground.database, &[]).unwrap_err();
    assert_eq!((failure.severity.as_str(), failure.sqlstate.as_str()), ("FATAL", "53300"));
    assert!(failure.message.contains("max_client_connections = 5"), "{failure:?}");
    held.iter_mut().for_each(|client| assert_eq!(client.value("select 1"), "1"));
    held.pop();
    wait_until("a place to be free", || Raw::tcp(proxy.port()).log_in("postgres", &ground.database, &[]).is_ok());
}

/// Clients the proxy serves now, the one that asks included.
fn clients(proxy: &Proxy) -> usize {
    crate::support::proxy::show(&mut proxy.console(), "pool_processes", "pool_pid").len()
}

#[test]
fn a_cancel_request_gets_through_when_all_places_are_taken() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy("max_client_connections = 1");
    let mut client = None;
    wait_until("the place to be free", || {
        client = Raw::tcp(proxy.port()).log_in("postgres", &ground.database, &[]).ok();
        client.is_some()
    });
    let mut client = client.unwrap();
    client.send(&wire::query("select pg_sleep(50)"));
    let asleep = "select count(*) from pg_stat_activity where datname = current_database() and wait_event = 'PgSleep'";
    wait_until("the query to run", || ground.direct().value(asleep) == "1");
    let mut line = Raw::tcp(proxy.port());
    line.send(&wire::cancel(client.pid, &client.key.clone()));
    assert_eq!(client.until_ready().iter().find(|m| m.tag == b'E').unwrap().failure().sqlstate, "57014");
}

#[test]
fn an_idle_client_is_disconnected_after_its_limit_and_told_so() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy("client_idle_limit = 1");
    let mut client = ground.client(&proxy);
    client.run("select 1");
    let messages = client.until_end();
    let failure = messages[0].failure();
    assert_eq!((failure.severity.as_str(), failure.sqlstate.as_str()), ("FATAL", "57P05"), "{failure:?}");
    assert!(failure.message.contains("client_idle_limit"), "{failure:?}");
}

#[test]
fn a_client_whose_query_runs_longer_than_the_idle_limit_is_not_idle() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy("client_idle_limit = 1");
    let mut client = ground.client(&proxy);
    assert_eq!(client.value("select 5 from pg_sleep(2.5)"), "5");
}

#[test]
fn server_connections_are_closed_when_nobody_used_them_for_a_while() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy("server_idle_timeout = 1");
    let mut client = ground.client(&proxy);
    client.run("select 1");
    assert_eq!(ground.server_connections().len(), 1);
    wait_until("the connection to be closed", || ground.server_connections().is_empty());
    assert_eq!(client.value("select 2"), "2");
}

#[test]
fn server_connections_are_closed_when_they_are_old() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy("connection_life_time = 1\nserver_idle_timeout = 0");
    let mut client = ground.client(&proxy);
    let first = client.value("select pg_backend_pid()");
    wait_until("another connection to be used", || client.value("select pg_backend_pid()") != first);
}

#[test]
fn a_statement_too_long_to_be_looked_at_goes_to_the_primary_and_works() {
    let ground = Ground::new();
    ground.prepare("create table t (a int)");
    let proxy = ground.proxy("statement_analysis_max = 1kB");
    let mut client = ground.client(&proxy);
    let long = "x".repeat(5000);
    assert_eq!(client.value(&format!("select inet_server_port() where '{long}' <> ''")), ground.primary_port());
    client.run(&format!("insert into t values (1); /* {long} */"));
    assert_eq!(client.extended(&format!("select inet_server_port() where '{long}' <> ''"), &[]).unwrap(), ground.primary_port());
    let text = format!("select length('{long}') + $1::int");
    client.send(&[wire::parse("s", &text), wire::run("s", &["1"]), wire::sync()].concat());
    assert_eq!(crate::support::raw::first_value(&client.until_ready()).unwrap(), "5001");
    client.send(&[wire::run("s", &["2"]), wire::describe(b'S', "s"), wire::sync()].concat());
    assert_eq!(crate::support::raw::first_value(&client.until_ready()).unwrap(), "5002");
    client.send(&[wire::parse("s", &text), wire::sync()].concat());
    assert_eq!(client.until_ready()[0].failure().sqlstate, "42P05");
    client.send(&[wire::close(b'S', "s"), wire::parse("s", &text), wire::sync()].concat());
    assert_eq!(client.tags(), "31Z");
}

#[test]
fn many_clients_come_and_go_at_once() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy("pool_size = 5");
    std::thread::scope(|scope| {
        for _ in 0..8 {
            let (ground, proxy) = (&ground, &proxy);
            scope.spawn(move || {
                for number in 0..60 {
                    let mut client = ground.client(proxy);
                    assert_eq!(client.value("select 1"), "1");
                    if number % 3 == 0 {
                        client.send(&wire::terminate());
                        client.until_end();
                    }
                }
            });
        }
    });
    assert!(ground.server_connections().len() <= 5);
    wait_until("all to be gone", || clients(&proxy) == 1);
    assert!(ground.client(&proxy).is_silent_for(Duration::from_millis(10)));
}
