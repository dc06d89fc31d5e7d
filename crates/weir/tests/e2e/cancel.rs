//! Cancel requests reach the query they are meant for, and no other.

use crate::support::faults::Network;
use crate::support::proxy::{Backend, show};
use crate::support::{Ground, Proxy, Raw, wait_until, wire};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

pub(super) const SLEEP: &str = "select pg_sleep(50)";

/// Sends a cancel request as libpq does, and waits until the proxy has taken it.
pub(super) fn cancel(proxy: &Proxy, pid: u32, key: &[u8]) {
    let mut line = Raw::tcp(proxy.port());
    line.send(&wire::cancel(pid, key));
    assert!(line.bytes_to_end().is_empty(), "a cancel request is not answered");
}

pub(super) fn wait_for_sleepers(ground: &Ground, count: usize) {
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

#[test]
fn a_client_whose_server_connection_is_just_opened_can_cancel() {
    let ground = Ground::new();
    let network = Network::to(ground.cluster.primary().port());
    let proxy = Proxy::spawn(&[Backend::tcp(network.port(), 1)], "");
    let (mut holder, mut waiter) = (ground.client(&proxy), ground.client(&proxy));
    holder.run("begin; select 1");
    network.delay_new(Duration::from_millis(300));
    waiter.send(&wire::query(SLEEP));
    wait_until("the client to wait", || show(&mut holder, "pool_processes", "status").iter().any(|s| s == "Wait for connection"));
    cancel(&proxy, waiter.pid, &waiter.key.clone());
    assert_eq!(waiter.until_ready()[0].failure().sqlstate, "57014");
    assert_eq!(waiter.value("select 2"), "2");
}

#[test]
fn a_process_id_is_given_once_and_is_that_of_no_process() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy("");
    let mut seen = std::collections::BTreeSet::new();
    for turn in 0..200 {
        let client = Raw::tcp(proxy.port()).log_in("postgres", &ground.database, &[]).unwrap();
        // Linux numbers no process beyond 4194304, and clients take a process id as a signed number.
        assert!(client.pid > 4_194_304 && i32::try_from(client.pid).is_ok(), "{}", client.pid);
        assert!(seen.insert(client.pid), "{} was another client's before, {turn}", client.pid);
    }
}

/// Ways in which a client may say which session is meant.
#[derive(Clone, Copy, Debug)]
enum Said {
    Literal,
    Text,
    Binary,
}

/// Calls a function with a process id: value, type of the column and its name, and the text of a notice.
fn call(client: &mut Raw, function: &str, pid: u32, said: Said) -> (String, u32, String, String) {
    let text = format!("select {function}({})", if matches!(said, Said::Literal) { pid.to_string() } else { "$1".into() });
    let (format, value) = match said {
        Said::Binary => (1_u16, pid.to_be_bytes().to_vec()),
        Said::Literal | Said::Text => (0, pid.to_string().into_bytes()),
    };
    match said {
        Said::Literal => client.send(&wire::query(&text)),
        Said::Text | Said::Binary => {
            let length = value.len() as u32;
            let formats = [&1_u16.to_be_bytes()[..], &format.to_be_bytes(), &1_u16.to_be_bytes()].concat();
            let bind = [b"\0\0", &*formats, &length.to_be_bytes(), &value, &[0, 0]].concat();
            let messages = [wire::parse("", &text), wire::message(b'B', &bind), wire::describe(b'P', ""), wire::execute("", 0)];
            client.send(&[messages.concat(), wire::sync()].concat());
        }
    }
    let messages = client.until_ready();
    let find = |tag: u8| messages.iter().find(|message| message.tag == tag);
    let notice = find(b'N').map(|notice| notice.failure().message).unwrap_or_default();
    let failure = find(b'E').map(|error| error.failure());
    let described = find(b'T').unwrap_or_else(|| panic!("{said:?}: {failure:?}"));
    let name_end = described.body[2..].iter().position(|byte| *byte == 0).unwrap() + 2;
    let name = String::from_utf8(described.body[2..name_end].to_vec()).unwrap();
    let kind = u32::from_be_bytes(*described.body[name_end + 7..].first_chunk().unwrap());
    (find(b'D').unwrap().row()[0].clone().unwrap(), kind, name, notice)
}

const BOOL: u32 = 16;

#[test]
fn a_session_ends_another_one_of_its_user_by_the_process_id_that_was_told() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy("pool_size = 4");
    let mut client = ground.client(&proxy);
    for said in [Said::Literal, Said::Text, Said::Binary] {
        for story in ["", "begin; select 1", SLEEP] {
            let mut victim = ground.client(&proxy);
            match story {
                "" => {}
                SLEEP => {
                    victim.send(&wire::query(SLEEP));
                    wait_for_sleepers(&ground, 1);
                }
                story => victim.run(story),
            }
            let said_of_it = call(&mut client, "pg_terminate_backend", victim.pid, said);
            assert_eq!(said_of_it, ("t".into(), BOOL, "pg_terminate_backend".into(), String::new()), "{said:?} {story}");
            let last = victim.until_end().pop().unwrap().failure();
            assert_eq!((&*last.severity, &*last.sqlstate), ("FATAL", "57P01"), "{said:?} {story}");
            assert_eq!(last.message, "terminating connection due to administrator command");
            wait_for_sleepers(&ground, 0);
            // Nobody has this process id any more, and the server says so.
            let said_of_none = call(&mut client, "pg_terminate_backend", victim.pid, said);
            let direct = call(&mut ground.direct(), "pg_terminate_backend", victim.pid, said);
            assert_eq!((&said_of_none, &*said_of_none.0), (&direct, "f"), "{said:?} {story}");
        }
    }
}

#[test]
fn a_session_cancels_what_another_one_of_its_user_runs_by_the_process_id_that_was_told() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy("pool_size = 4");
    let (mut client, mut victim) = (ground.client(&proxy), ground.client(&proxy));
    for said in [Said::Literal, Said::Text, Said::Binary] {
        victim.send(&wire::query(SLEEP));
        wait_for_sleepers(&ground, 1);
        assert_eq!(call(&mut client, "pg_catalog.pg_cancel_backend", victim.pid, said).0, "t", "{said:?}");
        assert_eq!(victim.until_ready().iter().find(|m| m.tag == b'E').unwrap().failure().sqlstate, "57014");
        assert_eq!(victim.value("select 1"), "1");
    }
}

#[test]
fn a_prepared_call_finds_each_session_it_is_bound_for() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy("pool_size = 4");
    let mut client = ground.client(&proxy);
    client.send(
        &[wire::parse("end", "select pg_terminate_backend($1) as done"), wire::describe(b'S', "end"), wire::sync()].concat(),
    );
    assert_eq!(client.tags(), "1tTZ");
    for round in 0..3 {
        if round == 2 {
            client.run("create temp table mine (a int)");
        }
        let mut victim = ground.client(&proxy);
        for expected in ["t", "f"] {
            client.send(&[wire::run("end", &[&victim.pid.to_string()]), wire::sync()].concat());
            let messages = client.until_ready();
            assert_eq!(crate::support::raw::first_value(&messages), Ok(expected.to_string()));
            if expected == "t" {
                assert_eq!(victim.until_end().pop().unwrap().failure().sqlstate, "57P01");
            }
        }
    }
}

#[test]
fn nobody_ends_a_session_of_another_user() {
    let ground = Ground::new();
    let other = format!("{}_other", ground.database);
    ground.prepare(&format!("drop role if exists {other}; create role {other} login"));
    let proxy = ground.primary_proxy("pool_size = 4");
    let mut victim = ground.client(&proxy);
    let mut stranger = Raw::tcp(proxy.port()).log_in(&other, &ground.database, &[]).unwrap();
    for said in [Said::Literal, Said::Text, Said::Binary] {
        for function in ["pg_terminate_backend", "pg_cancel_backend"] {
            let (value, _, _, notice) = call(&mut stranger, function, victim.pid, said);
            assert_eq!((value, notice), ("f".into(), format!("PID {} is not a PostgreSQL backend process", victim.pid)));
        }
    }
    assert_eq!(victim.value("select 1"), "1");
}

#[test]
fn a_cancel_request_that_reaches_another_weir_is_passed_on_once() {
    let ground = Ground::new();
    let first = ground.primary_proxy("");
    let second = ground.primary_proxy(&format!("peer_list = '127.0.0.1:{}'", first.port()));
    // The first knows the second by its unix socket, and itself.
    first.add_conf(&format!("peer_list = '{}:{}, localhost:{}'", second.folder().display(), second.port(), first.port()));
    first.reload();
    for (own, other) in [(&first, &second), (&second, &first)] {
        let mut client = ground.client(own);
        client.send(&wire::query(SLEEP));
        wait_for_sleepers(&ground, 1);
        let (pid, key) = (client.pid, client.key.clone());
        let mut wrong = key.clone();
        wrong[0] ^= 1;
        cancel(other, pid, &wrong);
        cancel(other, pid ^ 1, &key);
        wait_until("both to be refused", || {
            let log = own.log();
            log.contains(&format!("wrong key in cancel request for process {pid}"))
                && log.contains(&format!("process id {} in a cancel request is of no session", pid ^ 1))
        });
        assert!(client.is_silent_for(Duration::from_millis(50)));
        cancel(other, pid, &key);
        assert_eq!(client.until_ready().iter().find(|m| m.tag == b'E').unwrap().failure().sqlstate, "57014");
        assert_eq!(client.value("select 1"), "1");
    }
    // A request that a peer passes goes no further.
    let unknown = "process id 7 in a cancel request is of no session";
    cancel(&second, 7, &[1, 2, 3, 4]);
    wait_until("the peer to hear of it", || first.log().contains(unknown));
    assert!(!second.log().contains(unknown), "it does not come back");
}

#[test]
fn two_weirs_on_one_port_and_one_that_stops_leaves_new_clients_to_the_other() {
    let ground = Ground::new();
    let first = ground.primary_proxy("reuse_port = on");
    let backend = Backend::tcp(ground.cluster.primary().port(), 1);
    let second = Proxy::spawn_unready(&[backend], &format!("reuse_port = on\nport = {}", first.port()));
    let alone = Proxy::spawn_unready(&[], &format!("backend_hostname0 = '127.0.0.1'\nport = {}", first.port()));
    wait_until("one that does not share the port to be refused", || alone.log().contains("cannot listen on"));
    let listeners = || {
        let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
        table.lines().filter(|line| line.contains(&format!(":{:04X} 00000000:0000 0A", first.port()))).count()
    };
    wait_until("both to listen", || listeners() == 2);
    // Its last client keeps the one that stops.
    let mut client = Raw::unix(first.folder(), first.port()).log_in("postgres", &ground.database, &[]).unwrap();
    first.signal(rustix::process::Signal::TERM);
    wait_until("the other to listen alone", || listeners() == 1);
    for _ in 0..8 {
        let mut new = Raw::tcp(first.port()).log_in("postgres", &ground.database, &[]).unwrap();
        assert_eq!(new.value("select 1"), "1");
    }
    assert_eq!(client.value("select 1"), "1");
    drop((client, second));
}

#[test]
fn a_statement_that_waits_for_the_first_look_at_its_database_can_be_cancelled() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy("admin_users = 'postgres'");
    let mut lock = ground.direct();
    lock.run("begin; lock table pg_catalog.pg_policy in access exclusive mode");
    let mut console = Raw::unix(proxy.folder(), proxy.port()).log_in("pgbouncer", "pgbouncer", &[]).unwrap();
    let mut client = Raw::tcp(proxy.port()).log_in("postgres", &ground.database, &[]).unwrap();
    client.send(&wire::query(SLEEP));
    let mut seen = String::new();
    wait_until("the statement to wait, or to run where the machine is busy", || {
        let of = show(&mut console, "clients", "database").iter().position(|name| *name == ground.database);
        seen = of.and_then(|at| show(&mut console, "clients", "state").into_iter().nth(at)).unwrap_or_default();
        seen == "waiting" || seen == "active"
    });
    if seen == "active" {
        // A server forgets a cancel request that comes before it has read the statement.
        wait_for_sleepers(&ground, 1);
    }
    let (pid, key) = (client.pid, client.key.clone());
    cancel(&proxy, pid, &key);
    lock.run("rollback");
    assert_eq!(client.until_ready().iter().find(|m| m.tag == b'E').unwrap().failure().sqlstate, "57014");
    assert_eq!(client.value("select 1"), "1");
}
