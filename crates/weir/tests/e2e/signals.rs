//! Signals, the pid file, reloads.

use crate::support::{Ground, Proxy, Raw, wait_until, wire};
use rustix::process::Signal;
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};

/// True if a new client gets no session: its connection is refused, or ended, or told why.
pub(super) fn refuses_new_clients(proxy: &Proxy) -> bool {
    let Some(mut client) = Raw::try_tcp(proxy.port()) else { return true };
    // Bytes to a connection that is being reset are lost; the answer tells.
    let _ = client.try_send(&wire::startup(wire::V3_0, &[("user", "postgres"), ("database", "postgres")]));
    match client.try_read() {
        Ok(Some(message)) => message.tag == b'E' && message.failure().sqlstate == "57P03",
        Ok(None) | Err(_) => true,
    }
}

#[test]
fn sigterm_lets_clients_finish_and_takes_no_new_ones() {
    let ground = Ground::new();
    ground.prepare("create table t (a int)");
    let mut proxy = ground.primary_proxy("");
    let mut busy = ground.client(&proxy);
    let mut idle = ground.client(&proxy);
    busy.run("begin");
    proxy.signal(Signal::TERM);
    wait_until("new clients to be refused", || refuses_new_clients(&proxy));
    busy.run("insert into t values (1)");
    busy.run("commit");
    assert_eq!(idle.value("select count(*) from t"), "1", "a client that was there before is served");
    assert!(proxy.is_running());
    busy.send(&wire::terminate());
    drop(busy);
    drop(idle);
    assert!(proxy.wait_end().success());
    assert!(!proxy.folder().join("weir.pid").exists());
    assert!(!proxy.folder().join(format!(".s.PGSQL.{}", proxy.port())).exists(), "its unix socket is gone");
}

#[test]
fn sigint_tells_clients_and_ends() {
    let ground = Ground::new();
    let mut proxy = ground.primary_proxy("");
    let mut idle = ground.client(&proxy);
    let mut inside = ground.client(&proxy);
    let mut busy = ground.client(&proxy);
    inside.run("begin");
    busy.send(&wire::query("select pg_sleep(50)"));
    let text = "select count(*) from pg_stat_activity where datname = current_database() and wait_event = 'PgSleep'";
    wait_until("the query to run", || ground.direct().value(text) == "1");
    proxy.signal(Signal::INT);
    for client in [&mut idle, &mut inside, &mut busy] {
        let messages = client.until_end();
        let failure = messages.iter().find(|m| m.tag == b'E').expect("clients are told").failure();
        assert_eq!((failure.severity.as_str(), failure.sqlstate.as_str()), ("FATAL", "57P01"));
    }
    assert!(proxy.wait_end().success());
    assert!(!proxy.folder().join("weir.pid").exists());
}

#[test]
fn a_second_signal_after_sigterm_does_not_wait_any_more() {
    for second in [Signal::INT, Signal::TERM] {
        let ground = Ground::new();
        let mut proxy = ground.primary_proxy("");
        let mut client = ground.client(&proxy);
        client.run("begin");
        proxy.signal(Signal::TERM);
        wait_until("new clients to be refused", || refuses_new_clients(&proxy));
        client.run("select 1");
        proxy.signal(second);
        assert_eq!(client.until_end()[0].failure().sqlstate, "57P01");
        assert!(proxy.wait_end().success());
    }
}

#[test]
fn sigint_lets_transactions_end_where_the_configuration_says_so() {
    let ground = Ground::new();
    ground.prepare("create table t (a int)");
    let mut proxy = ground.primary_proxy("sigint_stop = wait_for_servers");
    let (mut inside, mut idle) = (ground.client(&proxy), ground.client(&proxy));
    // Not before its first statement has it a server connection.
    inside.run("begin");
    inside.run("insert into t values (0)");
    idle.run("select 1");
    proxy.signal(Signal::INT);
    wait_until("new clients to be refused", || refuses_new_clients(&proxy));
    inside.run("insert into t values (1)");
    inside.run("commit");
    for client in [&mut idle, &mut inside] {
        assert_eq!(client.until_end()[0].failure().sqlstate, "57P01");
    }
    assert!(proxy.wait_end().success());
    assert_eq!(ground.direct().value("select count(*) from t"), "2");
    // An operator who has waited long enough sends another one.
    for second in [Signal::INT, Signal::TERM] {
        let mut proxy = ground.primary_proxy("sigint_stop = wait_for_servers");
        let mut inside = ground.client(&proxy);
        inside.run("begin");
        inside.run("select 1");
        proxy.signal(Signal::INT);
        wait_until("new clients to be refused", || refuses_new_clients(&proxy));
        inside.run("select 1");
        proxy.signal(second);
        assert_eq!(inside.until_end()[0].failure().sqlstate, "57P01");
        assert!(proxy.wait_end().success());
    }
}

#[test]
fn who_is_logging_in_does_not_keep_it() {
    let ground = Ground::new();
    // Nothing sent yet, and half a startup packet.
    for sent in [0, 5] {
        let mut proxy = ground.primary_proxy("");
        let before = proxy.metric("clients_accepted_total");
        let mut client = Raw::tcp(proxy.port());
        client.send(&wire::startup(wire::V3_0, &[("user", "postgres")])[..sent]);
        let mut questions = 0;
        wait_until("the client to be known beside those who ask", || {
            questions += 1;
            proxy.metric("clients_accepted_total") > before + questions
        });
        proxy.signal(Signal::TERM);
        assert!(proxy.wait_end().success());
        client.until_end();
    }
}

#[test]
fn who_waits_for_the_first_look_at_his_database_is_told_that_it_is_over() {
    let ground = Ground::new();
    let mut proxy = ground.primary_proxy("");
    let mut owner = ground.direct();
    owner.run("begin");
    owner.run("lock table pg_catalog.pg_trigger in access exclusive mode");
    // Logged in, and waiting until the catalog is known; it says nothing.
    let client = Raw::tcp(proxy.port()).log_in("postgres", &ground.database, &[]);
    proxy.signal(Signal::INT);
    assert_eq!(client.unwrap().until_end()[0].failure().sqlstate, "57P01");
    assert!(proxy.wait_end().success());
}

#[test]
fn who_comes_as_it_stops_does_not_keep_it() {
    let ground = Ground::new();
    for _ in 0..5 {
        let mut proxy = ground.primary_proxy("worker_threads = 2");
        // The other worker has nobody to stay for.
        let client = ground.client(&proxy);
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    while !is_over.load(Ordering::SeqCst) {
                        refuses_new_clients(&proxy);
                    }
                });
            }
            proxy.signal(Signal::TERM);
            wait_until("new clients to be refused", || Raw::try_tcp(proxy.port()).is_none());
            is_over.store(true, Ordering::SeqCst);
        });
        drop(client);
        assert!(proxy.wait_end().success());
    }
}

#[test]
fn sigquit_ends_at_once() {
    let ground = Ground::new();
    let mut proxy = ground.primary_proxy("");
    let mut client = ground.client(&proxy);
    client.send(&wire::query("select pg_sleep(50)"));
    proxy.signal(Signal::QUIT);
    proxy.wait_end();
    client.until_end();
    assert!(!proxy.folder().join("weir.pid").exists());
}

#[test]
fn sigusr1_pauses_and_sigusr2_resumes() {
    let ground = Ground::new();
    let mut proxy = ground.primary_proxy("");
    let mut inside = ground.client(&proxy);
    inside.run("begin; select 1");
    let mut other = ground.client(&proxy);
    proxy.signal(Signal::USR1);
    wait_until("the pause", || proxy.log().contains("all databases are paused"));
    other.send(&wire::query("select 2"));
    assert_eq!(inside.value("select 3"), "3", "a transaction that is open goes on");
    inside.run("commit");
    let waiting = "select count(*) from pg_stat_activity where datname = current_database() and query = 'select 2'";
    assert_eq!(ground.direct().value(waiting), "0", "nobody gets a server connection");
    proxy.signal(Signal::USR2);
    let answer = other.until_ready();
    assert!(answer.iter().any(|message| message.tag == b'D'), "{answer:?}");
    assert!(proxy.is_running());
}

#[test]
fn a_stop_as_the_systemd_unit_does_it_ends_with_the_last_transaction_and_not_with_the_last_client() {
    let ground = Ground::new();
    ground.prepare("create table t (a int)");
    let mut proxy = ground.primary_proxy("");
    let mut busy = ground.client(&proxy);
    let mut idle = ground.client(&proxy);
    idle.run("select 1");
    busy.run("begin");
    busy.run("insert into t values (1)");
    // packaging/weir.service: ExecStop, then KillSignal.
    proxy.signal(Signal::USR1);
    proxy.signal(Signal::TERM);
    wait_until("new clients to be refused", || refuses_new_clients(&proxy));
    idle.send(&wire::query("insert into t values (2)"));
    busy.run("insert into t values (3)");
    busy.run("commit");
    assert_eq!(idle.until_end()[0].failure().sqlstate, "57P01", "a statement that was not sent is refused");
    assert_eq!(busy.until_end()[0].failure().sqlstate, "57P01");
    assert!(proxy.wait_end().success());
    assert_eq!(ground.direct().value("select string_agg(a::text, ',' order by a) from t"), "1,3");
}

#[test]
fn the_pid_file_names_the_process() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy("");
    let text = fs::read_to_string(proxy.folder().join("weir.pid")).unwrap();
    assert_eq!(text, format!("{}\n", proxy.pid()));
}

#[test]
fn a_reload_takes_new_values_without_disturbing_clients() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy("pool_size = 1\npool_wait_timeout = 1");
    let mut holder = ground.client(&proxy);
    let mut waiter = ground.client(&proxy);
    holder.run("begin; select 1");
    assert!(waiter.error("select 1").message.contains("pool_size = 1"));
    proxy.add_conf("pool_size = 2\npool_wait_timeout = 20");
    proxy.reload();
    assert_eq!(ground.client(&proxy).value("select 1"), "1", "there is room for a second connection now");
    holder.run("commit");
    assert_eq!(holder.value("pgpool show pool_size"), "2");
    proxy.add_conf("pool_size = 1");
    proxy.reload();
    for _ in 0..5 {
        ground.client(&proxy).run("select 1");
    }
}

#[test]
fn a_reload_changes_weights_for_sessions_that_are_there() {
    let ground = Ground::new();
    let proxy = ground.proxy("");
    let mut client = ground.client(&proxy);
    client.run("select 1");
    proxy.add_conf("backend_weight0 = 1\nbackend_weight1 = 0\nbackend_weight2 = 0");
    proxy.reload();
    wait_until("reads to go to the primary", || client.value("select inet_server_port()") == ground.primary_port());
    for _ in 0..20 {
        assert_eq!(client.value("select inet_server_port()"), ground.primary_port());
    }
}

#[test]
fn a_wrong_file_changes_nothing_at_reload_and_the_log_says_what_is_wrong() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy("pool_size = 3");
    let mut client = ground.client(&proxy);
    let good = proxy.conf();
    proxy.add_conf("pool_size = 4\npool_wait_timeout = many");
    proxy.reload();
    let log = proxy.log();
    let line = good.lines().count() + 3;
    assert!(log.contains(&format!("pgpool.conf:{line}: ")), "line {line} is wrong: {log}");
    assert!(log.contains("not reloaded"), "{log}");
    assert_eq!(client.value("pgpool show pool_size"), "3");
    fs::remove_file(proxy.conf_path()).unwrap();
    proxy.reload();
    assert_eq!(client.value("pgpool show pool_size"), "3");
    fs::write(proxy.conf_path(), good.replace("pool_size = 3", "pool_size = 5")).unwrap();
    proxy.reload();
    assert_eq!(client.value("pgpool show pool_size"), "5");
}

#[test]
fn a_parameter_without_effect_is_named_at_the_reload_that_adds_it() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy("");
    proxy.add_conf("client_idle_limit_in_recovery = 5");
    proxy.reload();
    proxy.reload();
    let named = proxy.log().matches("client_idle_limit_in_recovery is set, but online recovery has one stage").count();
    assert_eq!(named, 1, "{}", proxy.log());
}

#[test]
fn what_needs_a_restart_is_named_at_reload_and_stays() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy("");
    proxy.add_conf("memory_buffer_size = 64kB");
    proxy.reload();
    assert!(proxy.log().contains("\"memory_buffer_size\" cannot be changed without a restart"), "{}", proxy.log());
    assert_eq!(proxy.console().value("pgpool show memory_buffer_size"), "32kB");
}

#[test]
fn a_node_is_added_by_a_reload() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy("");
    let standby = &ground.standby_ports()[0];
    proxy.add_conf(&format!(
        "backend_hostname1 = '127.0.0.1'\nbackend_port1 = {standby}\nbackend_weight1 = 1\nbackend_weight0 = 0"
    ));
    proxy.reload();
    proxy.wait_for_nodes(2);
    let mut client = ground.client(&proxy);
    wait_until("reads to go to the new node", || client.value("select inet_server_port()") == *standby);
}

#[test]
fn a_reload_moves_a_node_to_another_address() {
    let ground = Ground::new();
    let proxy = Proxy::before(&[&ground.cluster.standbys()[0]], "");
    let mut inside = ground.client(&proxy);
    let mut idle = ground.client(&proxy);
    let standby = ground.standby_ports()[0].clone();
    assert_eq!(idle.value("select inet_server_port()"), standby);
    inside.run("begin; select 1");
    proxy.add_conf(&format!("backend_port0 = {}", ground.primary_port()));
    proxy.reload();
    wait_until("new statements to go there", || idle.value("select inet_server_port()") == ground.primary_port());
    assert_eq!(inside.value("select inet_server_port()"), standby, "a transaction stays where it began");
    inside.run("commit");
    assert_eq!(inside.value("select inet_server_port()"), ground.primary_port());
    let text = format!(
        "select count(*) from pg_stat_activity where datname = '{}' and application_name not in ('direct', 'weir_catalog')",
        ground.database
    );
    let mut old = ground.direct_to(&ground.cluster.standbys()[0]);
    wait_until("the old connections to be closed", || old.value(&text) == "0");
}

#[test]
fn a_lowered_pool_size_closes_what_is_at_rest_and_a_life_time_counts_at_once() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy("pool_size = 4");
    let mut clients: Vec<Raw> = (0..4).map(|_| ground.client(&proxy)).collect();
    clients.iter_mut().for_each(|client| client.run("begin; select 1"));
    clients.iter_mut().for_each(|client| client.run("commit"));

    assert!(ground.server_connections().len() >= 4);
    proxy.add_conf("pool_size = 2");
    proxy.reload();
    wait_until("two connections to be left", || ground.server_connections().len() <= 2);
    let before = clients[0].value("select pg_backend_pid()");
    proxy.add_conf("connection_life_time = 1");
    proxy.reload();
    wait_until("an old connection to be replaced", || clients[0].value("select pg_backend_pid()") != before);
}
