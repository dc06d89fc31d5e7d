//! Limits on clients, sizes and times.

use crate::support::ground::wait_for_catalog;
use crate::support::proxy::Backend;
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
fn a_limit_on_all_nodes_together_turns_no_statement_into_a_login_and_keeps_the_weights() {
    const CLIENTS: usize = 16;
    const READS: u64 = 200;
    const SHARE_OFF_BY_MAX: f64 = 3.0;
    /// New connections: some until each node has its own, and few in a change of the load.
    const LOGINS_MAX: u64 = 60;
    const ROUNDS_MAX: usize = 12;
    let ground = Ground::new();
    let ports = ground.cluster.servers().iter().map(|server| Backend::tcp(server.port(), 1));
    let backends: Vec<Backend> = ports.collect();
    let proxy = Proxy::spawn(
        &backends,
        "max_server_connections = 4\nstatement_level_load_balance = on\ncausal_wait = 2s\npool_size = 4\nworker_threads = 2",
    );
    proxy.wait_for_nodes(backends.len());
    let mut first = ground.client(&proxy);
    wait_for_catalog(&mut first, &ground.database);
    // Where sessions wait for longer than `ROOM_PATIENCE` because the machine is busy, connections make room: one quiet round of a few counts.
    let is_kept = || {
        let (logins, counts) = round(&proxy, &ground, CLIENTS, READS);
        println!("{logins} logins for {} reads, {counts:?}", CLIENTS as u64 * READS);
        let sum = counts.iter().sum::<u64>() as f64;
        let wanted = 100.0 / backends.len() as f64;
        let is_near = |count: &u64| (100.0 * *count as f64 / sum - wanted).abs() <= SHARE_OFF_BY_MAX;
        logins <= LOGINS_MAX && counts.iter().all(is_near)
    };
    assert!((0..ROUNDS_MAX).any(|_| is_kept()), "see the rounds above");
}

/// Connections opened, and reads by node, while clients read.
fn round(proxy: &Proxy, ground: &Ground, clients: usize, reads: u64) -> (u64, Vec<u64>) {
    let (before, logins) = (reads_by_node(proxy), proxy.metric("server_connections_opened_total"));
    std::thread::scope(|scope| {
        for _ in 0..clients {
            scope.spawn(|| {
                let mut client = ground.client(proxy);
                (0..reads).for_each(|_| assert_eq!(client.value("select 1"), "1"));
            });
        }
    });
    let logins = proxy.metric("server_connections_opened_total") - logins;
    (logins, reads_by_node(proxy).iter().zip(before).map(|(after, before)| after - before).collect())
}

fn reads_by_node(proxy: &Proxy) -> Vec<u64> {
    proxy.nodes("select_cnt").iter().map(|count| count.parse().unwrap()).collect()
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

/// How a login fails.
fn refusal(login: Result<Raw, crate::support::Failure>) -> (String, String) {
    let failure = login.expect_err("the login must fail");
    (failure.sqlstate, failure.message)
}

#[test]
fn clients_of_one_user_database_or_address_have_limits_of_their_own() {
    let (ground, other) = (Ground::new(), Ground::new());
    ground.prepare("drop role if exists limited; create role limited login");
    let proxy = ground.primary_proxy(
        "max_client_connections_per_database = 3\n\
         limit_override_list = 'user=limited: max_client_connections_per_user=1'",
    );
    let log_in = |user: &str, ground: &Ground| Raw::tcp(proxy.port()).log_in(user, &ground.database, &[]);
    let mut console = Raw::unix(proxy.folder(), proxy.port()).log_in("pgbouncer", "pgbouncer", &[]).unwrap();
    let users = crate::support::proxy::show(&mut console, "users", "name");
    assert!(users.contains(&"limited".to_string()), "who has limits is listed before he comes: {users:?}");
    drop(console);
    let first = log_in("limited", &ground).unwrap();
    let (code, text) = refusal(log_in("limited", &other));
    assert_eq!(
        (code.as_str(), text.contains("user \"limited\": max_client_connections_per_user = 1")),
        ("53300", true),
        "{text}"
    );
    let _more = [log_in("postgres", &ground).unwrap(), log_in("postgres", &ground).unwrap()];
    let (code, text) = refusal(log_in("postgres", &ground));
    assert_eq!(code, "53300");
    assert!(text.contains(&format!("database \"{}\": max_client_connections_per_database = 3", ground.database)), "{text}");
    assert!(log_in("postgres", &other).is_ok(), "another database has places");
    drop(first);
    wait_until("the place to be free", || log_in("limited", &other).is_ok());
    proxy.add_conf("max_client_connections_per_address = 2");
    proxy.reload();
    let mut held = Vec::new();
    wait_until("the address to be full", || match log_in("postgres", &other) {
        Ok(client) => {
            held.push(client);
            false
        }
        Err(failure) => failure.sqlstate == "53300" && failure.message.contains("from address 127.0.0.1"),
    });
    let unix = Raw::unix(proxy.folder(), proxy.port()).log_in("postgres", &other.database, &[]);
    assert_eq!(unix.expect("a unix socket has no address").value("select 1"), "1");
    let mut console = Raw::unix(proxy.folder(), proxy.port()).log_in("pgbouncer", "pgbouncer", &[]).unwrap();
    console.run("SHOW STATE");
}

#[test]
fn the_console_is_open_when_all_places_are_taken() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy("max_client_connections = 1");
    let mut client = None;
    wait_until("the place to be free", || {
        client = Raw::tcp(proxy.port()).log_in("postgres", &ground.database, &[]).ok();
        client.is_some()
    });
    assert_eq!(refusal(Raw::tcp(proxy.port()).log_in("postgres", &ground.database, &[])).0, "53300");
    let mut console = Raw::unix(proxy.folder(), proxy.port()).log_in("pgbouncer", "pgbouncer", &[]).unwrap();
    console.run("SET max_client_connections = 5");
    assert!(Raw::tcp(proxy.port()).log_in("postgres", &ground.database, &[]).is_ok());
}

#[test]
fn consoles_count_as_clients_and_administrators_are_never_refused() {
    let ground = Ground::new();
    ground.prepare("drop role if exists watcher; create role watcher login");
    let files = [("pool_hba.conf", "host all all all trust\nlocal all all trust\n")];
    let more = "enable_pool_hba = on\nstats_users = 'watcher'\nadmin_users = 'postgres'\n\
                limit_override_list = 'user=watcher: max_client_connections_per_user=2; database=pgbouncer: max_client_connections_per_database=3'";
    let proxy = Proxy::with_files(&[ground.cluster.primary()], more, &files, &[]);
    let enter = |user: &str, database: &str| Raw::tcp(proxy.port()).log_in(user, database, &[]);
    let watching = enter("watcher", "pgbouncer").unwrap();
    let client = enter("watcher", &ground.database).unwrap();
    for database in ["pgbouncer", &ground.database] {
        let (code, text) = refusal(enter("watcher", database));
        assert!(code == "53300" && text.contains("max_client_connections_per_user = 2"), "{database}: {code} {text}");
    }
    let mut consoles: Vec<Raw> = (0..4).map(|_| enter("postgres", "pgbouncer").expect("an administrator")).collect();
    drop((watching, client));
    wait_until("the watcher to be gone", || {
        crate::support::proxy::show(&mut consoles[0], "clients", "user").iter().all(|user| user == "postgres")
    });
    let (code, text) = refusal(enter("watcher", "pgbouncer"));
    assert!(code == "53300" && text.contains("max_client_connections_per_database = 3"), "{code} {text}");
    drop(consoles);
    wait_until("the consoles to be gone", || enter("watcher", "pgbouncer").is_ok());
}

#[test]
fn server_connections_in_all_are_bounded_and_a_link_at_rest_makes_room() {
    let (ground, other) = (Ground::new(), Ground::new());
    let proxy = ground.primary_proxy("max_server_connections = 2\npool_wait_timeout = 1");
    let (mut one, mut two, mut three) = (ground.client(&proxy), ground.client(&proxy), other.client(&proxy));
    one.run("begin; select 1");
    two.run("begin; select 1");
    let failure = three.error("select 1");
    assert_eq!(failure.sqlstate, "53300");
    assert_eq!(failure.severity, "ERROR", "the session goes on");
    assert!(failure.message.contains("max_server_connections = 2"), "{failure:?}");
    proxy.add_conf("pool_wait_timeout = 60");
    proxy.reload();
    three.send(&wire::query("select 7"));
    two.run("commit");
    assert_eq!(three.until_ready()[1].row(), [Some("7".into())], "the link of another pool made room");
    one.run("commit");
    for _ in 0..5 {
        one.run("select 1");
        two.run("select 1");
        three.run("select 1");
    }
    assert!(ground.server_connections().len() + other.server_connections().len() <= 2);
}

#[test]
fn clients_on_all_nodes_share_the_limit_on_server_connections_in_all() {
    let ground = Ground::new();
    ground.prepare("create table t (a int)");
    let proxy = ground.proxy("max_server_connections = 1");
    let mut clients: Vec<Raw> = (0..4).map(|_| ground.client(&proxy)).collect();
    for round in 0..10 {
        for client in &mut clients {
            // Reads go to the standbys, writes to the primary: each needs the one connection on another node.
            client.send(&wire::query(if round % 2 == 0 { "select 1" } else { "insert into t values (1)" }));
        }
        for client in &mut clients {
            let messages = client.until_ready();
            assert!(messages.iter().all(|message| message.tag != b'E'), "{messages:?}");
        }
    }
}

#[test]
fn a_client_that_waits_too_long_gets_a_link_out_of_the_reserve() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy("pool_size = 1\nreserve_pool_size = 1\nreserve_pool_timeout = 300ms");
    let (mut one, mut two, mut three) = (ground.client(&proxy), ground.client(&proxy), ground.client(&proxy));
    one.run("begin; select 1");
    let began = std::time::Instant::now();
    assert_eq!(two.value("select 2"), "2");
    assert!(began.elapsed() >= Duration::from_millis(300), "{:?}", began.elapsed());
    two.run("begin; select 1");
    three.send(&wire::query("select 3"));
    assert!(three.is_silent_for(Duration::from_millis(700)), "the reserve is one");
    two.run("commit");
    assert_eq!(three.until_ready()[1].row(), [Some("3".into())]);
    assert!(proxy.metric("reserve_uses_total") >= 1);
    one.run("commit");
    wait_until("the reserve to be closed", || ground.server_connections().len() == 1);
}

#[test]
fn users_that_nobody_uses_any_more_are_forgotten() {
    const KEPT: usize = 100;
    let ground = Ground::new();
    let (name, primary) = (&ground.database, ground.cluster.primary());
    let roles: Vec<String> = (0..KEPT + 30).map(|number| format!("{name}_{number}")).collect();
    let made: Vec<String> = roles.iter().map(|role| format!("create role {role} login")).collect();
    ground.prepare(&made.join(";"));
    primary.query(&format!("create database {name}_once")).unwrap();
    ground.cluster.wait_caught_up().unwrap();
    let proxy = ground.proxy("worker_threads = 1\nserver_idle_timeout = 1\nmax_server_connections_per_node = 12");
    let mut console = proxy.console();
    let mut once = Raw::tcp(proxy.port()).log_in("postgres", &format!("{name}_once"), &[]).unwrap();
    wait_for_catalog(&mut once, &format!("{name}_once"));
    drop(once);
    let mut of_once = |column: usize| {
        let rows = console.rows("show pool_catalogs");
        rows.into_iter().find(|row| row[0] == format!("{name}_once")).map(|mut row| row.swap_remove(column))
    };
    const STATE: usize = 1;
    wait_until("its catalog to be kept without a connection", || of_once(STATE).as_deref() == Some("kept"));
    let mut last = None;
    for role in &roles {
        let mut client = Raw::tcp(proxy.port()).log_in(role, name, &[]).unwrap();
        assert_eq!(client.value("select current_user"), *role);
        last = Some(client);
    }
    let mut admin = Raw::unix(proxy.folder(), proxy.port()).log_in("pgbouncer", "pgbouncer", &[]).unwrap();
    let mut known = || {
        let users = crate::support::proxy::show(&mut admin, "users", "name");
        roles.iter().filter(|role| users.contains(role)).count()
    };
    wait_until("the roles beyond those kept to be forgotten", || known() <= KEPT + 1);
    // A user who comes back is served as before, and so is a client that was there all the time.
    assert_eq!(last.unwrap().value("select current_user"), roles[KEPT + 29]);
    let mut back = Raw::tcp(proxy.port()).log_in(&roles[0], name, &[]).unwrap();
    assert_eq!(back.value("select current_user"), roles[0]);
    drop((back, proxy));
    ground.prepare(&roles.iter().map(|role| format!("drop role {role}")).collect::<Vec<_>>().join(";"));
    primary.query(&format!("drop database {name}_once")).unwrap();
}

#[test]
fn a_minimum_of_links_is_kept_while_there_are_clients() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy("min_pool_size = 3\nserver_idle_timeout = 1");
    let client = ground.client(&proxy);
    wait_until("three to be open", || ground.server_connections().len() == 3);
    let before = proxy.metric("server_connections_opened_total");
    // They outlive twice the idle timeout and a round of housekeeping; one that was closed and opened again would be younger.
    let old = "select count(*) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid() \
               and application_name <> 'weir_catalog' and clock_timestamp() - backend_start > interval '2.5 s'";
    let mut observer = ground.direct();
    wait_until("all three to be old, not closed for being idle", || observer.value(old) == "3");
    drop(observer);
    assert!(proxy.metric("server_connections_opened_total") <= before + 4, "nor opened again and again");
    let mut direct = ground.direct();
    direct.run(
        "select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()",
    );
    wait_until("three to be open again", || ground.server_connections().len() == 3);
    drop(client);
    proxy.add_conf("min_pool_size = 0");
    proxy.reload();
    wait_until("all to be closed", || ground.server_connections().is_empty());
}

#[test]
fn a_statement_that_takes_too_long_fails_and_its_session_goes_on() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy("query_timeout = 300ms");
    let mut client = ground.client(&proxy);
    for _ in 0..3 {
        let failure = client.error("select pg_sleep(30)");
        assert_eq!((failure.severity.as_str(), failure.sqlstate.as_str()), ("ERROR", "57014"));
        assert_eq!(failure.message, "canceling statement due to query_timeout = 300 ms");
        assert_eq!(client.value("select 1"), "1");
    }
    let failure = client.extended("select pg_sleep(30)", &[]).unwrap_err();
    assert_eq!(failure.message, "canceling statement due to query_timeout = 300 ms");
    client.run("begin; select 1");
    assert_eq!(client.error("select pg_sleep(30)").sqlstate, "57014");
    assert_eq!(client.error("select 1").sqlstate, "25P02", "the transaction has failed, as with any error");
    client.run("rollback");
    client.send(&wire::query("select pg_sleep(30)"));
    Raw::tcp(proxy.port()).send(&wire::cancel(client.pid, &client.key.clone()));
    let failure = client.until_ready().iter().find(|m| m.tag == b'E').expect("it is cancelled").failure();
    assert_eq!(failure.sqlstate, "57014", "a client's own cancel");
    assert_eq!(client.value("select 1 from pg_sleep(0.1)"), "1");
}

#[test]
fn transactions_have_limits_on_their_time_and_on_idling() {
    let ground = Ground::new();
    ground.prepare("create table t (a int)");
    let proxy = ground.primary_proxy(
        "transaction_timeout = 800ms\nlimit_override_list = 'user=idler: idle_transaction_timeout=200ms transaction_timeout=0'",
    );
    ground.prepare(
        "drop role if exists idler; create role idler login; grant all on t to idler; grant usage on schema public to idler",
    );
    let mut long = ground.client(&proxy);
    long.run("begin; insert into t values (1)");
    long.run("select pg_sleep(0.3)");
    let messages = {
        long.send(&wire::query("select pg_sleep(30)"));
        long.until_end()
    };
    let failure = messages.iter().rfind(|m| m.tag == b'E').expect("it is told").failure();
    assert_eq!((failure.severity.as_str(), failure.sqlstate.as_str()), ("FATAL", "25P04"));
    let asleep = "select count(*) from pg_stat_activity where datname = current_database() and wait_event = 'PgSleep'";
    wait_until("the statement to end on the server", || ground.direct().value(asleep) == "0");
    let mut idler = Raw::tcp(proxy.port()).log_in("idler", &ground.database, &[]).unwrap();
    idler.run("select pg_sleep(0.5)");
    assert!(idler.is_silent_for(Duration::from_millis(600)), "outside of a transaction it may idle");
    idler.run("begin; insert into t values (2)");
    idler.run("select pg_sleep(0.5)");
    let failure = idler.until_end()[0].failure();
    assert_eq!((failure.severity.as_str(), failure.sqlstate.as_str()), ("FATAL", "25P03"));
    assert_eq!(ground.direct().value("select count(*) from t"), "0", "both were rolled back");
}

#[test]
fn users_and_databases_have_pools_of_their_own_size_and_mode() {
    let (ground, other) = (Ground::new(), Ground::new());
    let proxy = ground.primary_proxy(&format!(
        "pool_wait_timeout = 1\nlimit_override_list = 'database={}: pool_size=1; database={}: pool_mode=statement'",
        ground.database, other.database
    ));
    let (mut one, mut two) = (ground.client(&proxy), ground.client(&proxy));
    one.run("begin; select 1");
    let failure = two.error("select 1");
    assert!(failure.message.contains("pool_size = 1"), "{failure:?}");
    let mut simple = other.client(&proxy);
    let failure = simple.error("begin");
    assert!(failure.message.contains("pool_mode = statement"), "{failure:?}");
    assert_eq!(simple.value("select 1"), "1");
    proxy.add_conf(&format!("limit_override_list = 'database={}: pool_size=2'", ground.database));
    proxy.reload();
    assert_eq!(ground.client(&proxy).value("select 1"), "1", "a reload changes pools that are there");
    simple.run("begin; select 1");
    proxy.add_conf("limit_override_list = 'nonsense'");
    proxy.signal(rustix::process::Signal::HUP);
    wait_until("the mistake to be named", || proxy.log().contains("\"nonsense\" has no colon"));
}
