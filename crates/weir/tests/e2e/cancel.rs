//! Cancel requests reach the query they are meant for, and no other.

use crate::support::{Ground, Proxy, Raw, wait_until, wire};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

const SLEEP: &str = "select pg_sleep(50)";

/// Sends a cancel request as libpq does, and waits until the proxy has taken it.
pub(super) fn cancel(proxy: &Proxy, pid: u32, key: &[u8]) {
    let mut line = Raw::tcp(proxy.port());
    line.send(&wire::cancel(pid, key));
    assert!(line.bytes_to_end().is_empty(), "a cancel request is not answered");
}

fn wait_for_sleepers(ground: &Ground, count: usize) {
    let text = "select count(*) from pg_stat_activity where datname = current_database() and wait_event = 'PgSleep'";
    wait_until("queries to run", || ground.direct().value(text) == count.to_string());
}

#[test]
fn the_query_of_the_right_client_is_cancelled() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy("pool_size = 3");
    let mut clients: Vec<Raw> = (0..3).map(|_| ground.client(&proxy)).collect();
    clients.iter_mut().for_each(|client| client.send(&wire::query(SLEEP)));
    wait_for_sleepers(&ground, 3);
    let (pid, key) = (clients[1].pid, clients[1].key.clone());
    cancel(&proxy, pid, &key);
    assert_eq!(clients[1].until_ready().iter().find(|m| m.tag == b'E').unwrap().failure().sqlstate, "57014");
    assert!(clients[0].is_silent_for(Duration::from_millis(50)));
    wait_for_sleepers(&ground, 2);
    for at in [0, 2] {
        let (pid, key) = (clients[at].pid, clients[at].key.clone());
        cancel(&proxy, pid, &key);
        clients[at].until_ready();
    }
    clients.iter_mut().for_each(|client| assert_eq!(client.value("select 1"), "1"));
}

#[test]
fn a_wrong_key_cancels_nothing() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy("");
    let mut client = ground.client(&proxy);
    client.send(&wire::query(SLEEP));
    wait_for_sleepers(&ground, 1);
    let (pid, key) = (client.pid, client.key.clone());
    let mut wrong = key.clone();
    wrong[0] ^= 1;
    cancel(&proxy, pid, &wrong);
    cancel(&proxy, pid, &key[..3]);
    cancel(&proxy, pid, &[key.as_slice(), &[0]].concat());
    cancel(&proxy, pid ^ 1, &key);
    cancel(&proxy, 0, &key);
    assert!(client.is_silent_for(Duration::from_millis(200)));
    cancel(&proxy, pid, &key);
    assert_eq!(client.until_ready().iter().find(|m| m.tag == b'E').unwrap().failure().sqlstate, "57014");
}

#[test]
fn a_long_key_of_protocol_3_2_cancels() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy("");
    let mut client = Raw::tcp(proxy.port());
    client.send(&wire::startup(wire::V3_2, &[("user", "postgres"), ("database", &ground.database)]));
    client.finish_login().unwrap();
    client.send(&wire::query(SLEEP));
    wait_for_sleepers(&ground, 1);
    let (pid, key) = (client.pid, client.key.clone());
    cancel(&proxy, pid, &key[..4]);
    assert!(client.is_silent_for(Duration::from_millis(100)));
    cancel(&proxy, pid, &key);
    assert_eq!(client.until_ready().iter().find(|m| m.tag == b'E').unwrap().failure().sqlstate, "57014");
}

#[test]
fn a_query_on_a_standby_is_cancelled() {
    let ground = Ground::new();
    let proxy = ground.proxy("");
    let mut client = ground.client(&proxy);
    let text = "select count(*) from generate_series(1, 2000000000) a";
    client.send(&wire::query(text));
    let running = |server: &weir_demo::Server| {
        let text = "select count(*) from pg_stat_activity where query like 'select count(*) from generate_series(1, 2%' and state = 'active'";
        ground.direct_to(server).value(text) == "1"
    };
    wait_until("the query to run on a standby", || ground.cluster.standbys().iter().any(running));
    let (pid, key) = (client.pid, client.key.clone());
    cancel(&proxy, pid, &key);
    assert_eq!(client.until_ready().iter().find(|m| m.tag == b'E').unwrap().failure().sqlstate, "57014");
}

#[test]
fn a_cancel_that_comes_late_harms_nobody() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy("pool_size = 1");
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let (ground, proxy, over) = (&ground, &proxy, &over);
        let victims: Vec<_> = (0..3)
            .map(|_| {
                scope.spawn(move || {
                    let mut client = ground.client(proxy);
                    while !over.load(Ordering::Relaxed) {
                        assert_eq!(client.value("select 5 from pg_sleep(0.001)"), "5", "another client's cancel hit this one");
                    }
                })
            })
            .collect();
        let mut client = ground.client(proxy);
        let (pid, key) = (client.pid, client.key.clone());
        for _ in 0..100 {
            client.send(&wire::query("select 6 from pg_sleep(0.001)"));
            let canceller = scope.spawn({
                let key = key.clone();
                move || cancel(proxy, pid, &key)
            });
            let messages = client.until_ready();
            canceller.join().unwrap();
            let failed = messages.iter().find(|m| m.tag == b'E').map(|m| m.failure().sqlstate);
            assert!(failed.is_none() || failed.as_deref() == Some("57014"), "{messages:?}");
            // At rest now: nothing of this client's to cancel.
            cancel(proxy, pid, &key);
            if victims.iter().any(|victim| victim.is_finished()) {
                break;
            }
        }
        over.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_client_that_waits_for_a_connection_can_cancel() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy("pool_size = 1\npool_wait_timeout = 10");
    let mut holder = ground.client(&proxy);
    let mut waiter = ground.client(&proxy);
    holder.run("begin; select 1");
    waiter.send(&wire::query("select 1"));
    let waiting = |proxy: &Proxy| {
        crate::support::proxy::show(&mut proxy.console(), "pool_processes", "status").iter().any(|s| s == "Wait for connection")
    };
    wait_until("the client to wait", || waiting(&proxy));
    let (pid, key) = (waiter.pid, waiter.key.clone());
    cancel(&proxy, pid, &key);
    let messages = waiter.until_ready();
    assert_eq!(messages[0].failure().sqlstate, "57014");
    holder.run("commit");
    assert_eq!(waiter.value("select 2"), "2");
}
