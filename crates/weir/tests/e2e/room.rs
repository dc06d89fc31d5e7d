//! Limits on server connections that several pools share: of one database, of one user.

use crate::support::{Ground, Proxy, Raw, wait_until, wire};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

/// Users of these tests, beside `postgres`.
const USERS: [&str; 3] = ["room_a", "room_b", "room_c"];

fn make_users(ground: &Ground) {
    for user in USERS {
        let make = format!(
            "do $$ begin create role {user} login; exception when duplicate_object or unique_violation then null; end $$"
        );
        ground.prepare(&make);
    }
}

fn log_in(proxy: &Proxy, user: &str, ground: &Ground) -> Raw {
    let client = Raw::tcp(proxy.port()).log_in(user, &ground.database, &[]);
    client.unwrap_or_else(|failure| panic!("{user} cannot log in: {failure:?}"))
}

/// The console, which needs no server connection.
fn admin(proxy: &Proxy) -> Raw {
    let console = Raw::unix(proxy.folder(), proxy.port()).log_in("pgbouncer", "pgbouncer", &[]);
    console.unwrap_or_else(|failure| panic!("no console: {failure:?}"))
}

/// Waits until so many sessions wait for a server connection.
fn wait_for_waiters(proxy: &Proxy, count: usize) {
    wait_until("sessions to wait", || {
        let waiting: usize = admin(proxy).rows("show pools").iter().map(|row| row[3].parse::<usize>().unwrap()).sum();
        waiting == count
    });
}

#[test]
fn the_connections_of_a_database_are_bounded_over_its_users_and_another_database_goes_on() {
    let (ground, other) = (Ground::new(), Ground::new());
    make_users(&ground);
    let proxy = ground.primary_proxy("max_db_connections = 2\npool_wait_timeout = 1");
    let mut clients: Vec<Raw> = USERS.iter().map(|user| log_in(&proxy, user, &ground)).collect();
    let mut elsewhere = log_in(&proxy, USERS[0], &other);
    for _ in 0..3 {
        // Three users in turns: a connection at rest of another makes room.
        clients.iter_mut().for_each(|client| assert_eq!(client.value("select 1"), "1"));
        assert!(ground.server_connections().len() <= 2);
    }
    clients[0].run("begin; select 1");
    clients[1].run("begin; select 1");
    let failure = clients[2].error("select 1");
    assert_eq!((failure.severity.as_str(), failure.sqlstate.as_str()), ("ERROR", "53300"));
    let expected = format!("all of max_db_connections = 2 connections to database \"{}\" on node 0 are in use", ground.database);
    assert!(failure.message.ends_with(&expected), "{failure:?}");
    assert_eq!(elsewhere.value("select 2"), "2");
    admin(&proxy).run("SET max_db_connections = 3");
    assert_eq!(clients[2].value("select 3"), "3", "the limit holds at once");
    assert!(show_config(&proxy).contains(&"3".to_string()));
}

fn show_config(proxy: &Proxy) -> Vec<String> {
    let rows = admin(proxy).rows("show config");
    rows.into_iter().filter(|row| row[0] == "max_db_connections").map(|row| row[1].clone()).collect()
}

#[test]
fn the_connections_of_a_user_are_bounded_over_the_databases_and_another_user_goes_on() {
    let (ground, other) = (Ground::new(), Ground::new());
    make_users(&ground);
    let proxy = ground.primary_proxy("pool_wait_timeout = 1\nlimit_override_list = 'user=room_a: max_user_connections=1'");
    let (mut here, mut there) = (log_in(&proxy, "room_a", &ground), log_in(&proxy, "room_a", &other));
    for _ in 0..3 {
        assert_eq!([here.value("select 1"), there.value("select 2")], ["1", "2"]);
    }
    assert_eq!(ground.server_connections().len() + other.server_connections().len(), 1);
    here.run("begin; select 1");
    let failure = there.error("select 1");
    let expected = "all of max_user_connections = 1 connections of user \"room_a\" on node 0 are in use";
    assert!(failure.message.ends_with(expected), "{failure:?}");
    assert_eq!(log_in(&proxy, "room_b", &other).value("select 3"), "3");
    proxy.add_conf("pool_wait_timeout = 60\nlimit_override_list = ''");
    there.send(&wire::query("select 3"));
    wait_for_waiters(&proxy, 1);
    proxy.reload();
    assert_eq!(there.until_ready()[1].row(), [Some("3".into())], "a reload lifts the limit for who waits");
    let users = admin(&proxy).rows("show users");
    assert!(users.iter().any(|row| row[0] == "room_a" && row[4] == "0"), "{users:?}");
}

#[test]
fn who_waits_for_a_place_of_his_database_keeps_nobody_waiting_who_lacks_one_of_the_node_alone() {
    let (ground, other) = (Ground::new(), Ground::new());
    make_users(&ground);
    let proxy = ground.primary_proxy(&format!(
        "max_server_connections_per_node = 2\nlimit_override_list = 'database={}: max_db_connections=1'",
        ground.database
    ));
    let (mut first, mut second) = (log_in(&proxy, "room_a", &ground), log_in(&proxy, "room_b", &ground));
    let mut holders = [log_in(&proxy, "room_a", &other), log_in(&proxy, "room_b", &other)];
    let mut last = log_in(&proxy, "room_c", &other);
    holders.iter_mut().for_each(|client| client.run("begin; select 1"));
    for (waiting, client) in [&mut first, &mut second, &mut last].into_iter().enumerate() {
        client.send(&wire::query(if waiting == 2 { "select 3" } else { "begin; select 1" }));
        wait_for_waiters(&proxy, waiting + 1);
    }
    holders[0].run("commit");
    first.until_ready();
    holders[1].run("commit");
    assert_eq!(last.until_ready()[1].row(), [Some("3".into())], "the one before it lacks its database's place");
    assert!(second.is_silent_for(Duration::from_millis(200)));
    first.run("commit");
    assert_eq!(second.until_ready().len(), 5);
}

/// Clients of a noisy tenant, each of which asks again as soon as it is answered. More than the limit has places, and fewer than
/// `pool_size` of them may be served at once.
const NOISY: usize = 10;

/// Runs `quiet` while clients of a user and database ask without pause; it gets the number of their answers until now.
fn beside_noise(proxy: &Proxy, (user, ground): (&str, &Ground), quiet: impl FnOnce(&dyn Fn() -> usize)) {
    let (is_over, answers) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..NOISY {
            let mut client = log_in(proxy, user, ground);
            let (is_over, answers) = (&is_over, &answers);
            scope.spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    client.run("select pg_sleep(0.03)");
                    answers.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        // The load ends too if the test fails.
        struct End<'a>(&'a AtomicBool);
        impl Drop for End<'_> {
            fn drop(&mut self) {
                self.0.store(true, Ordering::Relaxed);
            }
        }
        let _end = End(&is_over);
        wait_until("the noisy clients to wait for each other", || answers.load(Ordering::Relaxed) > 3 * NOISY);
        quiet(&|| answers.load(Ordering::Relaxed));
    });
}

/// A quiet tenant beside a noisy one under a limit that both share: it is served before those who ask after it.
fn check_quiet_tenant(limit: &str, quiet_user: &str, quiet_ground: Option<&Ground>) {
    for workers in [1, 2] {
        let ground = Ground::new();
        make_users(&ground);
        let proxy = ground.primary_proxy(&format!("{limit}\nworker_threads = {workers}\npool_size = 20"));
        let mut clients: Vec<_> = (0..3).map(|_| log_in(&proxy, quiet_user, quiet_ground.unwrap_or(&ground))).collect();
        beside_noise(&proxy, ("room_a", &ground), |answers| {
            for round in 0..3 {
                let before = answers();
                clients.iter_mut().for_each(|client| client.send(&wire::query("select 1")));
                clients.iter_mut().for_each(|client| assert_eq!(client.until_ready()[1].row(), [Some("1".into())]));
                // All who waited before it are answered meanwhile, and others while a busy machine takes its time for a login.
                let others = answers() - before;
                assert!(others <= 40 * NOISY, "{limit}, {workers} workers, round {round}: {others} answers to others before it");
            }
        });
    }
}

#[test]
fn a_noisy_tenant_does_not_starve_another_at_the_limit_of_a_node() {
    check_quiet_tenant("max_server_connections_per_node = 3", "room_a", Some(&Ground::new()));
}

#[test]
fn a_noisy_tenant_does_not_starve_another_at_the_limit_of_all_nodes() {
    check_quiet_tenant("max_server_connections = 3", "room_b", Some(&Ground::new()));
}

#[test]
fn a_noisy_user_does_not_starve_another_at_the_limit_of_a_database() {
    check_quiet_tenant("max_db_connections = 3", "room_b", None);
}

#[test]
fn a_noisy_database_does_not_starve_another_at_the_limit_of_a_user() {
    check_quiet_tenant("max_user_connections = 3", "room_a", Some(&Ground::new()));
}

#[test]
fn tenants_that_come_and_go_beside_a_noisy_one_are_served() {
    let (ground, other) = (Ground::new(), Ground::new());
    make_users(&ground);
    let proxy = ground.primary_proxy("max_server_connections_per_node = 3\npool_size = 20");
    // Their greetings are known, and logins need no server.
    USERS.iter().for_each(|user| log_in(&proxy, user, &other).run("select 1"));
    beside_noise(&proxy, ("room_a", &ground), |answers| {
        for user in USERS.iter().cycle().take(6) {
            let before = answers();
            // One leaves before it is served: its pool stays behind without anybody who waits.
            log_in(&proxy, user, &other).send(&wire::query("select 1"));
            assert_eq!(log_in(&proxy, user, &other).value("select 2"), "2");
            let others = answers() - before;
            assert!(others <= 40 * NOISY, "{user}: {others} answers to others before it");
        }
    });
}
