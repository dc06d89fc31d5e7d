//! Server connections and the clients that share them.

use crate::support::proxy::show;
use crate::support::{Ground, Proxy, Raw, wait_until, wire};
use std::collections::BTreeSet;
use std::thread;

#[test]
fn more_clients_than_server_connections_share_them() {
    let ground = Ground::new();
    ground.prepare("create table t (client int, turn int)");
    let proxy = ground.primary_proxy("pool_size = 3");
    thread::scope(|scope| {
        for number in 0..30 {
            let (ground, proxy) = (&ground, &proxy);
            scope.spawn(move || {
                let mut client = ground.client(proxy);
                for turn in 0..20 {
                    client.run("begin");
                    client.run(&format!("insert into t values ({number}, {turn})"));
                    client.run("commit");
                    assert_eq!(client.value(&format!("select count(*) from t where client = {number}")), (turn + 1).to_string());
                }
            });
        }
    });
    assert_eq!(ground.direct().value("select count(*) from t"), "600");
    let used = ground.server_connections();
    assert!((1..=3).contains(&used.len()), "pool_size is 3, but connections are {used:?}");
}

#[test]
fn idle_clients_hold_no_server_connection() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy("pool_size = 2");
    let mut clients: Vec<Raw> = (0..50).map(|_| ground.client(&proxy)).collect();
    let pids: BTreeSet<String> = clients.iter_mut().map(|client| client.value("select pg_backend_pid()")).collect();
    assert!(pids.len() <= 2, "50 clients one after the other used {pids:?}");
}

#[test]
fn whoever_waits_longest_is_served_first() {
    let ground = Ground::new();
    ground.prepare("create table t (turn serial, client int)");
    let proxy = ground.primary_proxy("pool_size = 1");
    let mut holder = ground.client(&proxy);
    let mut waiters: Vec<Raw> = (0..8).map(|_| ground.client(&proxy)).collect();
    holder.run("begin; select 1");
    for (number, client) in waiters.iter_mut().enumerate() {
        client.send(&wire::query(&format!("insert into t (client) values ({number})")));
        wait_until("the client to wait", || waiting(&proxy) == number + 1);
    }
    // A client that comes again does not overtake those that wait.
    holder.send(&wire::query("commit"));
    holder.until_ready();
    holder.run("insert into t (client) values (100)");
    for client in &mut waiters {
        assert_eq!(client.tags(), "CZ");
    }
    let order = ground.direct().rows("select client from t order by turn");
    let order: Vec<&str> = order.iter().map(|row| row[0].as_str()).collect();
    assert_eq!(order, ["0", "1", "2", "3", "4", "5", "6", "7", "100"]);
}

/// Sessions that wait for a server connection.
fn waiting(proxy: &Proxy) -> usize {
    let states = show(&mut proxy.console(), "pool_processes", "status");
    states.iter().filter(|state| *state == "Wait for connection").count()
}

#[test]
fn a_client_that_waits_too_long_is_told_which_limit_it_met() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy("pool_size = 1\npool_wait_timeout = 1");
    let mut holder = ground.client(&proxy);
    let mut waiter = ground.client(&proxy);
    holder.run("begin; select 1");
    let failure = waiter.error("select 1");
    assert_eq!(failure.sqlstate, "53300");
    for part in ["pool_wait_timeout", "pool_size = 1", "user \"postgres\"", &ground.database] {
        assert!(failure.message.contains(part), "{part} is missing in {failure:?}");
    }
    holder.run("commit");
    assert_eq!(ground.client(&proxy).value("select 1"), "1");
}

#[test]
fn all_pools_of_a_node_together_keep_to_its_limit() {
    let ground = Ground::new();
    let other = format!("{}_user", ground.database);
    ground.prepare(&format!("create role {other} login"));
    let proxy =
        ground.primary_proxy("num_init_children = 3\nmax_pool = 1\npool_size = 3\npool_wait_timeout = 1\nsr_check_period = 0");
    let client = |user: &str| Raw::tcp(proxy.port()).log_in(user, &ground.database, &[]);
    let mut holders: Vec<Raw> = (0..3).map(|_| client("postgres").unwrap()).collect();
    holders.iter_mut().for_each(|holder| holder.run("begin; select 1"));
    let failure = client(&other).unwrap().error("select 1");
    assert!(failure.message.contains("num_init_children * max_pool = 3"), "{failure:?}");
    // A connection at rest of one pool makes room for another pool.
    holders[0].run("commit");
    assert_eq!(client(&other).unwrap().value("select current_user"), other);
}

#[test]
fn a_server_connection_that_died_while_idle_is_never_given_to_a_client() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy("pool_size = 4");
    let mut clients: Vec<Raw> = (0..4).map(|_| ground.client(&proxy)).collect();
    for round in 0..50 {
        // Several connections at rest, so that the next client may be given any of them.
        for client in &mut clients {
            client.send(&wire::query("begin; select 1"));
        }
        for client in &mut clients {
            client.until_ready();
        }
        for client in &mut clients {
            client.run("commit");
        }
        let kill = format!("select pg_terminate_backend(pid) from pg_stat_activity where datname = '{}'", ground.database);
        ground.cluster.primary().query(&kill).unwrap();
        wait_until("the connections to be gone", || ground.server_connections().is_empty());
        for client in &mut clients {
            let answer = client.try_value("select 1");
            assert_eq!(answer.as_deref(), Ok("1"), "round {round}");
        }
    }
}

#[test]
fn a_query_that_fails_disturbs_no_other_client() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy("pool_size = 2");
    thread::scope(|scope| {
        let (ground, proxy) = (&ground, &proxy);
        for _ in 0..4 {
            scope.spawn(move || {
                let mut client = ground.client(proxy);
                for number in 0..100 {
                    assert_eq!(client.value(&format!("select {number}")), number.to_string());
                }
            });
            scope.spawn(move || {
                let mut client = ground.client(proxy);
                for _ in 0..25 {
                    assert_eq!(client.error("select 1/0").sqlstate, "22012");
                    assert_eq!(client.error("selec").sqlstate, "42601");
                    assert_eq!(client.extended("select $1::int", &["x"]).unwrap_err().sqlstate, "22P02");
                    client.run("begin");
                    client.error("select no_such_column");
                    client.run("rollback");
                }
            });
        }
    });
}

#[test]
fn a_client_killed_in_a_transaction_leaves_nothing_behind() {
    let ground = Ground::new();
    ground.prepare("create table t (a int)");
    let proxy = ground.primary_proxy("pool_size = 2\npool_wait_timeout = 10");
    for _ in 0..10 {
        let mut client = ground.client(&proxy);
        client.run("begin");
        client.run("insert into t values (1)");
        client.run("lock table t in access exclusive mode");
        drop(client);
    }
    let mut client = ground.client(&proxy);
    assert_eq!(client.value("select count(*) from t"), "0", "what was not committed is undone, and the lock is gone");
    wait_until("the connections of killed clients to be gone", || ground.server_connections().len() <= 2);
    let in_transaction = "select count(*) from pg_stat_activity where datname = current_database() and state like 'idle in%'";
    wait_until("open transactions to be ended", || ground.direct().value(in_transaction) == "0");
}

#[test]
fn a_client_killed_in_the_middle_of_a_result_leaves_nothing_behind() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy("pool_size = 2\npool_wait_timeout = 10");
    for _ in 0..10 {
        let mut client = ground.client(&proxy);
        client.send(&wire::query("select repeat('x', 1000) from generate_series(1, 1000000)"));
        client.read();
        drop(client);
    }
    let mut clients: Vec<Raw> = (0..2).map(|_| ground.client(&proxy)).collect();
    for client in &mut clients {
        client.run("begin");
        assert_eq!(client.value("select 1"), "1");
    }
    let active = "select count(*) from pg_stat_activity where query like 'select repeat%' and state = 'active' and datname = current_database() and pid <> pg_backend_pid()";
    wait_until("the big results to end", || ground.direct().value(active) == "0");
    wait_until("the connections of killed clients to be gone", || ground.server_connections().len() <= 2);
}

#[test]
fn a_client_that_leaves_politely_in_a_transaction_leaves_nothing_behind() {
    let ground = Ground::new();
    ground.prepare("create table t (a int)");
    let proxy = ground.primary_proxy("pool_size = 1\npool_wait_timeout = 10");
    let mut client = ground.client(&proxy);
    client.run("begin");
    client.run("insert into t values (1)");
    client.send(&wire::terminate());
    assert!(client.until_end().is_empty());
    assert_eq!(ground.client(&proxy).value("select count(*) from t"), "0");
}

#[test]
fn show_pool_pools_tells_who_uses_which_server_connection() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy("pool_size = 5");
    let mut busy = ground.client(&proxy);
    let mut calm = ground.client(&proxy);
    busy.run("begin; select 1");
    calm.run("select 1");
    let mut console = proxy.console();
    let databases = show(&mut console, "pool_pools", "database");
    let mine: Vec<usize> = (0..databases.len()).filter(|&at| databases[at] == ground.database).collect();
    assert_eq!(mine.len(), 2, "{databases:?}");
    let column = |console: &mut Raw, name: &str| -> Vec<String> {
        let values = show(console, "pool_pools", name);
        mine.iter().map(|&at| values[at].clone()).collect()
    };
    let mut pids = column(&mut console, "pool_backendpid");
    pids.sort();
    let mut expected = ground.server_connections();
    expected.sort();
    assert_eq!(pids, expected);
    let mut connected = column(&mut console, "pool_connected");
    connected.sort();
    assert_eq!(connected, ["0", "1"], "one is in use, one at rest");
    assert!(column(&mut console, "username").iter().all(|user| user == "postgres"));
    busy.run("commit");
    assert_eq!(show(&mut console, "pool_processes", "pool_pid").len(), 3);
}

#[test]
fn the_last_statement_of_a_server_connection_is_shown_once_somebody_looks() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy("pool_size = 1");
    let mut client = ground.client(&proxy);
    client.run("select 'before'");
    let mut console = proxy.console();
    let mut shown = || {
        let databases = show(&mut console, "pool_pools", "database");
        let at = databases.iter().position(|database| *database == ground.database).unwrap();
        show(&mut console, "pool_pools", "statement")[at].clone()
    };
    assert_eq!(shown(), "", "nobody had looked");
    client.run("select 'simple'");
    assert_eq!(shown(), "select 'simple'");
    client.extended("select $1::text", &["extended"]).unwrap();
    assert_eq!(shown(), "select $1::text");
    client.run(&format!("select '{}'", "ä".repeat(2000)));
    assert_eq!(shown(), format!("select '{}", "ä".repeat(507)), "at most 1023 bytes, and whole characters");
    assert_eq!(client.error("select nothing").sqlstate, "42703");
    assert_eq!(shown(), "select nothing");
    let other = format!("onlooker_of_{}", ground.database);
    ground.direct().run(&format!("create role {other} login"));
    let mut onlooker = Raw::tcp(proxy.port()).log_in(&other, &ground.database, &[]).unwrap();
    let seen = show(&mut onlooker, "pool_pools", "statement");
    assert!(!seen.is_empty() && seen.iter().all(|text| !text.contains("nothing")), "{seen:?}");
    assert!(seen.contains(&"<insufficient privilege>".to_owned()), "{seen:?}");
    drop(onlooker);
    ground.direct().run(&format!("drop role {other}"));
}

#[test]
fn session_pooling_gives_each_client_a_server_connection_of_its_own() {
    let ground = Ground::new();
    let proxy = ground.proxy("pool_mode = session\npool_size = 3\npool_wait_timeout = 1");
    let mut clients: Vec<Raw> = (0..3).map(|_| ground.client(&proxy)).collect();
    let pids: BTreeSet<String> = clients.iter_mut().map(|client| client.value("select pg_backend_pid()")).collect();
    assert_eq!(pids.len(), 3);
    clients[0].run("set work_mem = '77MB'");
    assert_eq!(clients[0].value("show work_mem"), "77MB");
    let mut fourth = ground.client(&proxy);
    assert_eq!(fourth.error("select 1").sqlstate, "53300");
    drop(clients);
    let mut client = ground.client(&proxy);
    assert_ne!(client.value("show work_mem"), "77MB", "the next client gets a clean connection");
}

#[test]
fn statement_pooling_refuses_transactions_of_several_statements() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy("pool_mode = statement");
    let mut client = ground.client(&proxy);
    assert_eq!(client.value("select 1"), "1");
    let failure = client.error("begin");
    assert_eq!(failure.sqlstate, "0A000");
    assert!(failure.message.contains("pool_mode = statement"), "{failure:?}");
    assert_eq!(client.extended("begin", &[]).unwrap_err().sqlstate, "0A000");
    assert_eq!(client.value("select 2"), "2");
}

#[test]
fn a_database_whose_clients_have_left_can_be_copied_renamed_and_dropped() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy("pool_size = 3");
    let [first, second, third] = ["first", "second", "third"].map(|name| format!("{}_{name}", ground.database));
    let visit = |database: &str, text: &str| {
        let mut visitors: Vec<Raw> = (0..3).map(|_| Raw::tcp(proxy.port()).log_in("postgres", database, &[]).unwrap()).collect();
        // All at once, so that each has a server connection.
        visitors.iter_mut().for_each(|visitor| visitor.run("begin"));
        visitors.iter_mut().for_each(|visitor| visitor.run("set local work_mem = '5MB'"));
        visitors.iter_mut().for_each(|visitor| visitor.run("commit"));
        visitors[0].run(text);
    };
    let mut client = ground.client(&proxy);
    client.run(&format!("create database {first}"));
    visit(&first, "create table t as select 7 as a");
    client.run(&format!("create database {second} template {first}"));
    visit(&second, "create temp table left_behind as table t");
    client.run(&format!("alter database {second} rename to {third}"));
    visit(&third, "insert into t values (8)");
    let drop_third = [wire::unnamed(&format!("drop database {third}"), &[]), wire::sync()].concat();
    client.send(&drop_third);
    assert_eq!(client.tags(), "12CZ");
    client.run(&format!("drop database {first}"));
    // A new database under an old name is another database.
    client.run(&format!("create database {first}"));
    let mut visitor = Raw::tcp(proxy.port()).log_in("postgres", &first, &[]).unwrap();
    assert_eq!(visitor.error("table t").sqlstate, "42P01");
    drop(visitor);
    client.run(&format!("drop database {first}"));
    let failure = Raw::tcp(proxy.port()).log_in("postgres", &first, &[]).err().unwrap();
    assert_eq!(failure.sqlstate, "3D000");
}

#[test]
fn a_database_with_clients_is_not_dropped_until_they_leave() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy("");
    let shop = format!("{}_shop", ground.database);
    let mut client = ground.client(&proxy);
    client.run(&format!("create database {shop}"));
    let mut visitor = Raw::tcp(proxy.port()).log_in("postgres", &shop, &[]).unwrap();
    visitor.run("create table t ()");
    assert_eq!(client.error(&format!("drop database {shop}")).sqlstate, "55006");
    client.send(&wire::query(&format!("drop database {shop}")));
    let waits = format!("select count(*) from pg_stat_activity where state = 'active' and query = 'drop database {shop}'");
    wait_until("the server to wait", || ground.direct().value(&waits) == "1");
    drop(visitor);
    assert_eq!(client.tags(), "CZ");
}
