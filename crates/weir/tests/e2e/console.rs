//! The administration console, which speaks PgBouncer's language.

use crate::cancel::{SLEEP, wait_for_sleepers};
use crate::support::driver::{self, Login};
use crate::support::proxy::{Folder, show};
use crate::support::raw::tags;
use crate::support::{Ground, Proxy, Raw, wait_until, wire};
use std::fs;
use std::process::Command;
use std::time::Duration;

/// Types of columns by the letters of these tests.
const TYPES: [(char, u32); 4] = [('t', 25), ('i', 23), ('l', 20), ('n', 1700)];

/// Columns and their types, as PgBouncer 1.25 has them.
const LISTS: [(&str, &str); 16] = [
    (
        "pools",
        "t database,t user,i cl_active,i cl_waiting,i cl_active_cancel_req,i cl_waiting_cancel_req,i sv_active,\
         i sv_active_cancel,i sv_being_canceled,i sv_idle,i sv_used,i sv_tested,i sv_login,i maxwait,i maxwait_us,t pool_mode,\
         t load_balance_hosts",
    ),
    (
        "clients",
        "t type,t user,t database,t replication,t state,t addr,i port,t local_addr,i local_port,t connect_time,t request_time,\
         i wait,i wait_us,i close_needed,t ptr,t link,i remote_pid,t tls,t application_name,i prepared_statements,i id",
    ),
    (
        "servers",
        "t type,t user,t database,t replication,t state,t addr,i port,t local_addr,i local_port,t connect_time,t request_time,\
         i wait,i wait_us,i close_needed,t ptr,t link,i remote_pid,t tls,t application_name,i prepared_statements,i id",
    ),
    (
        "stats",
        "t database,n total_server_assignment_count,n total_xact_count,n total_query_count,n total_received,n total_sent,\
         n total_xact_time,n total_query_time,n total_wait_time,n total_client_parse_count,n total_server_parse_count,\
         n total_bind_count,n avg_server_assignment_count,n avg_xact_count,n avg_query_count,n avg_recv,n avg_sent,\
         n avg_xact_time,n avg_query_time,n avg_wait_time,n avg_client_parse_count,n avg_server_parse_count,n avg_bind_count",
    ),
    (
        "stats_totals",
        "t database,n server_assignment_count,n xact_count,n query_count,n bytes_received,n bytes_sent,n xact_time,n query_time,\
         n wait_time,n client_parse_count,n server_parse_count,n bind_count",
    ),
    (
        "stats_averages",
        "t database,n server_assignment_count,n xact_count,n query_count,n bytes_received,n bytes_sent,n xact_time,n query_time,\
         n wait_time,n client_parse_count,n server_parse_count,n bind_count",
    ),
    (
        "databases",
        "t name,t host,i port,t database,t force_user,i pool_size,i min_pool_size,i reserve_pool_size,i server_lifetime,\
         t pool_mode,t load_balance_hosts,i max_connections,i current_connections,i max_client_connections,\
         i current_client_connections,i paused,i disabled",
    ),
    (
        "users",
        "t name,t pool_size,t reserve_pool_size,t pool_mode,i max_user_connections,i current_connections,\
         i max_user_client_connections,i current_client_connections",
    ),
    ("config", "t key,t value,t default,t changeable"),
    ("lists", "t list,i items"),
    ("version", "t version"),
    ("mem", "t name,i size,i used,i free,l memtotal"),
    ("state", "t key,t value"),
    ("totals", "t name,n value"),
    (
        "sockets",
        "t type,t user,t database,t replication,t state,t addr,i port,t local_addr,i local_port,t connect_time,t request_time,\
         i wait,i wait_us,i close_needed,t ptr,t link,i remote_pid,t tls,t application_name,i prepared_statements,i id,\
         i recv_pos,i pkt_pos,i pkt_remain,i send_pos,i send_remain,i pkt_avail,i send_avail",
    ),
    (
        "active_sockets",
        "t type,t user,t database,t replication,t state,t addr,i port,t local_addr,i local_port,t connect_time,t request_time,\
         i wait,i wait_us,i close_needed,t ptr,t link,i remote_pid,t tls,t application_name,i prepared_statements,i id,\
         i recv_pos,i pkt_pos,i pkt_remain,i send_pos,i send_remain,i pkt_avail,i send_avail",
    ),
];

/// Lists for which Weir has no rows.
const EMPTY: [(&str, &str); 4] = [
    ("peers", "i peer_id,t host,i port,i pool_size"),
    ("peer_pools", "i peer_id,i cl_active_cancel_req,i cl_waiting_cancel_req,i sv_active_cancel,i sv_login"),
    ("dns_hosts", "t hostname,l ttl,t addrs"),
    ("dns_zones", "t zonename,l serial,i count"),
];

/// An administrator: this program runs as the same system user as the proxy.
pub fn admin(proxy: &Proxy) -> Raw {
    let console = Raw::unix(proxy.folder(), proxy.port()).log_in("pgbouncer", "pgbouncer", &[]);
    console.unwrap_or_else(|failure| panic!("no console: {failure:?}\n{}", proxy.log()))
}

/// Names and types of the columns in a RowDescription, as in `LISTS`.
fn columns(body: &[u8]) -> String {
    let (mut rest, mut columns) = (&body[2..], Vec::new());
    while let Some(end) = rest.iter().position(|byte| *byte == 0) {
        let oid = u32::from_be_bytes(*rest[end + 7..].first_chunk().expect("a type"));
        let letter = TYPES.iter().find(|(_, known)| *known == oid).map_or('?', |(letter, _)| *letter);
        columns.push(format!("{letter} {}", String::from_utf8_lossy(&rest[..end])));
        rest = &rest[end + 1 + 18..];
    }
    columns.join(",")
}

/// The row of SHOW whose column has this value, as a function from a column to its value.
fn row(console: &mut Raw, list: &str, column: &str, value: &str) -> impl Fn(&str) -> String {
    let at = show(console, list, column).iter().position(|found| found == value);
    let at = at.unwrap_or_else(|| panic!("SHOW {list} has no {column} {value}"));
    let head = console.query(&format!("SHOW {list}"));
    let names: Vec<String> = columns(&head[0].body).split(',').map(|column| column[2..].to_string()).collect();
    let values = console.rows(&format!("SHOW {list}")).swap_remove(at);
    move |name| values[names.iter().position(|known| known == name).expect("a column")].clone()
}

#[test]
fn the_consoles_lists_have_pgbouncers_columns_in_both_protocols() {
    let ground = Ground::new();
    let proxy = ground.proxy("");
    let mut client = ground.client(&proxy);
    client.run("begin; select 1");
    let mut console = admin(&proxy);
    assert!(console.parameter("server_version").is_some_and(|version| version.starts_with("1.25.")), "{console:?}");
    for (list, expected) in LISTS {
        let text = format!("show {list};");
        let simple = console.query(&text);
        assert_eq!(columns(&simple[0].body), expected, "{list}");
        assert!(tags(&simple).starts_with("TD") && tags(&simple).ends_with("CZ"), "{list}: {}", tags(&simple));
        let described = [wire::parse("", &text), wire::describe(b'S', ""), wire::bind("", "", &[]), wire::describe(b'P', "")];
        console.send(&[described.concat(), wire::execute("", 0), wire::sync()].concat());
        let extended = console.until_ready();
        let heads: Vec<_> = extended.iter().filter(|m| m.tag == b'T').map(|m| columns(&m.body)).collect();
        assert_eq!(heads, [expected, expected], "{list}");
        assert!(tags(&extended).starts_with("1tT2TD") && tags(&extended).ends_with("CZ"), "{list}: {}", tags(&extended));
    }
    for (list, expected) in EMPTY {
        let answer = console.query(&format!("SHOW {list}"));
        assert_eq!((columns(&answer[0].body).as_str(), tags(&answer).as_str()), (expected, "TCZ"), "{list}");
    }
    let states = |console: &mut Raw, list: &str| show(console, list, "state");
    assert!(states(&mut console, "sockets").contains(&"cl_active".to_string()));
    assert!(states(&mut console, "active_sockets").contains(&"sv_active".to_string()));
    client.run("commit");
    wait_until("nobody to be at work", || states(&mut console, "active_sockets").is_empty());
    assert!(states(&mut console, "sockets").contains(&"sv_idle".to_string()));
    let help = console.query("SHOW HELP");
    assert_eq!(help[0].tag, b'N');
    assert_eq!(tags(&help), "CZ");
}

#[test]
fn a_driver_reads_numbers_as_numbers_and_psql_prints_tables() {
    let ground = Ground::new();
    let folder = Folder::new();
    let file = folder.0.join("pool_passwd");
    fs::write(&file, "boss:TEXTsecret\n").unwrap();
    let proxy = ground.proxy(&format!("admin_users = 'boss'\npool_passwd = '{}'", file.display()));
    let mut client = ground.client(&proxy);
    client.run("select 1");
    let login = Login { database: "pgbouncer".into(), ..Login::new(proxy.port(), "boss", "secret") };
    driver::block_on(async {
        let (console, _mover) = driver::connect(&login).await.unwrap();
        let rows = console.query("SHOW POOLS", &[]).await.unwrap();
        let pool = rows.iter().find(|row| row.get::<_, &str>("database") == ground.database).expect("a row of our database");
        assert_eq!((pool.get::<_, i32>("cl_active"), pool.get::<_, i32>("cl_waiting")), (1, 0));
        assert_eq!(pool.get::<_, Option<&str>>("load_balance_hosts"), None);
        let statement = console.prepare("SHOW LISTS").await.unwrap();
        for _ in 0..2 {
            let rows = console.query(&statement, &[]).await.unwrap();
            let used = rows.iter().find(|row| row.get::<_, &str>("list") == "used_clients").unwrap();
            assert!(used.get::<_, i32>("items") >= 2);
        }
        let memory: i64 = console.query("SHOW MEM", &[]).await.unwrap()[0].get("memtotal");
        assert!(memory > 0);
        let error = console.query("SELECT 1", &[]).await.unwrap_err();
        assert!(driver::describe(&error).starts_with("42601: invalid command \"SELECT 1\""), "{error:?}");
        assert_eq!(console.execute("RECONNECT", &[]).await.unwrap(), 0);
    });
    let printed = Command::new("psql")
        .args(["-X", "-A", "-t", "-h", &proxy.folder().display().to_string(), "-p", &proxy.port().to_string()])
        .args(["-U", "pgbouncer", "-d", "pgbouncer", "-c", "SHOW DATABASES", "-c", "SHOW VERSION"])
        .output()
        .expect("psql is installed");
    let printed = String::from_utf8_lossy(&printed.stdout).into_owned();
    assert!(printed.lines().any(|line| line.starts_with(&format!("{}|127.0.0.1|", ground.database))), "{printed}");
    assert!(printed.contains("Weir"), "{printed}");
}

#[test]
fn only_named_users_with_a_password_may_enter_and_only_administrators_may_change() {
    let ground = Ground::new();
    let folder = Folder::new();
    let file = folder.0.join("pool_passwd");
    fs::write(&file, "boss:TEXTsecret\nwatcher:TEXTsecret\nother:TEXTsecret\n").unwrap();
    let more = format!("admin_users = 'boss,ghost'\nstats_users = 'watcher'\npool_passwd = '{}'", file.display());
    let proxy = ground.primary_proxy(&more);
    let login = |user: &str, password: &str| Login { database: "pgbouncer".into(), ..Login::new(proxy.port(), user, password) };
    let enter = |user: &str, password: &str| {
        driver::block_on(async {
            let (console, _mover) = driver::connect(&login(user, password)).await.map_err(|error| driver::describe(&error))?;
            console.simple_query("SHOW STATE").await.map_err(|error| driver::describe(&error))?;
            console.simple_query("PAUSE postgres").await.map_err(|error| driver::describe(&error))?;
            console.simple_query("RESUME postgres").await.map(drop).map_err(|error| driver::describe(&error))
        })
    };
    assert_eq!(enter("boss", "secret"), Ok(()));
    assert_eq!(enter("watcher", "secret"), Err("42501: only users in admin_users may do this".into()));
    assert!(enter("boss", "wrong").unwrap_err().starts_with("28P01"));
    assert!(enter("other", "secret").unwrap_err().starts_with("28000"), "has a password, and is on no list");
    assert!(enter("ghost", "x").unwrap_err().starts_with("28P01"), "is on the list, and has no password");
    assert!(enter("pgbouncer", "x").unwrap_err().starts_with("28000"), "that name counts on the unix socket only");
    let refused = Raw::unix(proxy.folder(), proxy.port()).log_in("other", "pgbouncer", &[]).unwrap_err();
    assert_eq!(refused.sqlstate, "28000", "on the unix socket the lists count as well");
    assert_eq!(admin(&proxy).error("SHOW nothing").sqlstate, "42601");
}

#[test]
fn another_name_or_none_for_the_console() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy("admin_database = 'weir'");
    let mut console = Raw::unix(proxy.folder(), proxy.port()).log_in("weir", "weir", &[]).unwrap();
    assert!(console.value("SHOW VERSION").contains("Weir"));
    assert_eq!(ground_error(&proxy, "pgbouncer"), "3D000", "it is a database like any other now");
    proxy.add_conf("admin_database = ''");
    proxy.reload();
    assert_eq!(ground_error(&proxy, "weir"), "3D000");
}

/// The SQLSTATE with which a login to a database fails.
fn ground_error(proxy: &Proxy, database: &str) -> String {
    Raw::tcp(proxy.port()).log_in("postgres", database, &[]).unwrap_err().sqlstate
}

#[test]
fn pause_waits_for_transactions_closes_links_and_makes_clients_wait() {
    let ground = Ground::new();
    ground.prepare("create table t (a int)");
    let proxy = ground.primary_proxy("");
    let mut inside = ground.client(&proxy);
    let mut outside = ground.client(&proxy);
    outside.run("select 1");
    inside.run("begin");
    inside.run("insert into t values (1)");
    let mut console = admin(&proxy);
    console.send(&wire::query(&format!("PAUSE {}", ground.database)));
    let mut second = admin(&proxy);
    let paused = |console: &mut Raw| row(console, "databases", "name", &ground.database)("paused");
    wait_until("the pause to begin", || paused(&mut second) == "1");
    outside.send(&wire::query("select 2"));
    let waiting = |console: &mut Raw| row(console, "pools", "database", &ground.database)("cl_waiting");
    wait_until("a client to wait", || waiting(&mut second) == "1");
    assert_eq!(ground.server_connections().len(), 1, "the transaction's");
    inside.run("insert into t values (2)");
    inside.run("commit");
    assert_eq!(tags(&console.until_ready()), "CZ", "the pause has ended");
    assert_eq!(row(&mut second, "databases", "name", &ground.database)("current_connections"), "0");
    wait_until("the server to have closed all", || ground.server_connections().is_empty());
    assert_eq!(second.error("RESUME postgres").sqlstate, "55000");
    let mut late = ground.client(&proxy);
    late.send(&wire::query("select 3"));
    wait_until("both to wait", || waiting(&mut second) == "2");
    second.run(&format!("RESUME {}", ground.database));
    assert_eq!(first(&mut outside), "2");
    assert_eq!(first(&mut late), "3");
    assert_eq!(inside.value("select count(*) from t"), "2");
}

fn first(client: &mut Raw) -> String {
    crate::support::raw::first_value(&client.until_ready()).unwrap_or_else(|failure| panic!("{failure:?}"))
}

#[test]
fn all_clients_who_waited_for_the_end_of_a_pause_are_served_at_once() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy("pool_size = 4");
    let mut clients: Vec<Raw> = (0..8).map(|_| ground.client(&proxy)).collect();
    let mut console = admin(&proxy);
    console.run("PAUSE");
    assert_eq!(console.error("PAUSE").sqlstate, "55000");
    assert_eq!(console.rows("SHOW STATE")[1], ["paused", "yes"]);
    for client in &mut clients {
        client.send(&wire::query("select pg_sleep(0.3)"));
    }
    wait_until("all to wait", || row(&mut console, "pools", "database", &ground.database)("cl_waiting") == "8");
    console.run("RESUME");
    wait_until("as many to run as may", || row(&mut console, "pools", "database", &ground.database)("sv_active") == "4");
    for client in &mut clients {
        assert_eq!(tags(&client.until_ready()), "TDCZ");
    }
    assert_eq!(console.error("RESUME").sqlstate, "55000");
}

#[test]
fn a_pause_that_lasts_too_long_is_named_to_the_client_and_a_cancel_ends_only_the_wait() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy("pool_wait_timeout = 1");
    let mut inside = ground.client(&proxy);
    inside.run("begin; select 1");
    let mut client = ground.client(&proxy);
    let mut console = admin(&proxy);
    console.send(&wire::query("PAUSE"));
    let mut second = admin(&proxy);
    wait_until("the pause to begin", || second.rows("SHOW STATE")[1][1] == "yes");
    Raw::tcp(proxy.port()).send(&wire::cancel(console.pid, &console.key.clone()));
    let failure = console.until_ready()[0].failure();
    assert_eq!(failure.sqlstate, "57014", "{failure:?}");
    let failure = client.error("select 1");
    assert_eq!(failure.sqlstate, "57P03");
    assert!(failure.message.contains("paused"), "{failure:?}");
    console.run("RESUME");
    assert_eq!(inside.value("select 1"), "1");
}

#[test]
fn suspend_waits_for_statements_and_holds_all_sessions_between_two_of_them() {
    let ground = Ground::new();
    ground.prepare("create table t (a int)");
    let proxy = ground.primary_proxy("");
    let (mut inside, mut outside, mut running) = (ground.client(&proxy), ground.client(&proxy), ground.client(&proxy));
    inside.run("begin");
    inside.run("insert into t values (1)");
    let mut holder = ground.direct();
    holder.run("select pg_advisory_lock(33)");
    running.send(&wire::query("select pg_advisory_lock(33)"));
    let mut console = admin(&proxy);
    wait_until("the statement to wait", || row(&mut console, "pools", "database", &ground.database)("sv_active") == "2");
    console.send(&wire::query("SUSPEND"));
    let mut second = admin(&proxy);
    wait_until("the suspension to begin", || second.rows("SHOW STATE")[2] == ["suspended", "yes"]);
    assert_eq!(second.rows("SHOW STATE")[0], ["active", "no"]);
    assert_eq!(second.error("SUSPEND").sqlstate, "55000");
    assert!(console.is_silent_for(Duration::from_millis(200)), "a statement runs");
    outside.send(&wire::query("select 2"));
    inside.send(&wire::query("commit"));
    holder.run("select pg_advisory_unlock(33)");
    assert_eq!(tags(&running.until_ready()), "TDCZ", "it runs to its end");
    assert_eq!(tags(&console.until_ready()), "CZ");
    let mut late = Raw::tcp(proxy.port()).log_in("postgres", &ground.database, &[]).unwrap();
    late.send(&wire::query("select 3"));
    for held in [&mut outside, &mut inside, &mut late] {
        assert!(held.is_silent_for(Duration::from_millis(100)));
    }
    second.run("RESUME");
    assert_eq!((first(&mut outside), first(&mut late)), ("2".into(), "3".into()));
    assert_eq!(tags(&inside.until_ready()), "CZ");
    assert_eq!(outside.value("select count(*) from t"), "1");
    assert_eq!(second.error("RESUME").sqlstate, "55000");
}

#[test]
fn a_stop_that_waits_for_clients_ends_a_suspension() {
    let ground = Ground::new();
    let mut proxy = ground.primary_proxy("");
    let mut client = ground.client(&proxy);
    let mut console = admin(&proxy);
    console.run("SUSPEND");
    client.send(&wire::query("select 1"));
    console.run("SHUTDOWN WAIT_FOR_CLIENTS");
    assert_eq!(first(&mut client), "1");
    drop((client, console));
    proxy.wait_end();
}

#[test]
fn reconnect_replaces_links_as_they_come_back_and_wait_close_waits_for_that() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy("");
    let pid = "select pg_backend_pid()";
    let (mut resting, mut inside) = (ground.client(&proxy), ground.client(&proxy));
    inside.run("begin; select 1");
    let (before, held) = (resting.value(pid), inside.value(pid));
    let mut console = admin(&proxy);
    console.run(&format!("RECONNECT {}", ground.database));
    assert_ne!(resting.value(pid), before, "the link at rest was closed");
    assert_eq!(inside.value(pid), held, "a transaction keeps its link");
    assert_eq!(row(&mut console, "servers", "remote_pid", &held)("close_needed"), "1");
    console.send(&wire::query("WAIT_CLOSE"));
    assert!(console.is_silent_for(Duration::from_millis(200)));
    inside.run("commit");
    assert_eq!(tags(&console.until_ready()), "CZ");
    assert_ne!(inside.value(pid), held);
}

#[test]
fn kill_ends_clients_of_one_database_and_new_ones_wait() {
    let (ground, other) = (Ground::new(), Ground::new());
    let proxy = ground.primary_proxy("");
    let (mut idle, mut busy, mut neighbour) = (ground.client(&proxy), ground.client(&proxy), other.client(&proxy));
    busy.send(&wire::query("select pg_sleep(50)"));
    let asleep = "select count(*) from pg_stat_activity where datname = current_database() and wait_event = 'PgSleep'";
    wait_until("the query to run", || ground.direct().value(asleep) == "1");
    let mut console = admin(&proxy);
    console.run(&format!("KILL {}", ground.database));
    for client in [&mut idle, &mut busy] {
        let failure = client.until_end().last().expect("clients are told").failure();
        assert_eq!((failure.severity.as_str(), failure.sqlstate.as_str()), ("FATAL", "57P01"));
    }
    assert_eq!(neighbour.value("select 1"), "1");
    let mut late = ground.client(&proxy);
    late.send(&wire::query("select 4"));
    wait_until("it to wait", || row(&mut console, "pools", "database", &ground.database)("cl_waiting") == "1");
    console.run(&format!("RESUME {}", ground.database));
    assert_eq!(first(&mut late), "4");
    assert!(console.error("KILL pgbouncer").message.contains("console"));
}

#[test]
fn kill_client_ends_one_client_by_its_id() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy("");
    let (mut one, mut other) = (ground.client_with(&proxy, &[("application_name", "one")]), ground.client(&proxy));
    let mut console = admin(&proxy);
    let id = row(&mut console, "clients", "application_name", "one")("id");
    assert_eq!(id, one.pid.to_string());
    console.run(&format!("KILL_CLIENT {id}"));
    assert_eq!(one.until_end()[0].failure().sqlstate, "57P01");
    assert_eq!(other.value("select 1"), "1");
    wait_until("it to be off the list", || console.error(&format!("KILL_CLIENT {id}")).sqlstate == "42704");
}

#[test]
fn cancel_client_ends_a_statement_and_not_its_client() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy("");
    let (mut one, mut console) = (ground.client(&proxy), admin(&proxy));
    let order = format!("CANCEL_CLIENT {}", one.pid);
    assert_eq!(console.error(&order).sqlstate, "55000");
    one.send(&wire::query(SLEEP));
    wait_for_sleepers(&ground, 1);
    console.run(&order);
    assert_eq!(one.until_ready().iter().find(|m| m.tag == b'E').expect("an error").failure().sqlstate, "57014");
    assert_eq!(one.value("select 1"), "1");
    assert_eq!(console.error("CANCEL_CLIENT 1").sqlstate, "42704");
}

#[test]
fn a_disabled_database_takes_no_new_clients() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy("");
    let mut there = ground.client(&proxy);
    let mut console = admin(&proxy);
    console.run(&format!("DISABLE {}", ground.database));
    let failure = Raw::tcp(proxy.port()).log_in("postgres", &ground.database, &[]).unwrap_err();
    assert_eq!(failure.sqlstate, "55000");
    assert!(failure.message.contains("disabled"), "{failure:?}");
    assert_eq!(there.value("select 1"), "1");
    assert_eq!(row(&mut console, "databases", "name", &ground.database)("disabled"), "1");
    console.run(&format!("ENABLE {}", ground.database));
    assert_eq!(ground.client(&proxy).value("select 1"), "1");
}

#[test]
fn set_and_reload_change_the_configuration_of_the_running_proxy() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy("");
    let mut console = admin(&proxy);
    let value = |console: &mut Raw, key: &str| row(console, "config", "key", key)("value");
    assert_eq!(value(&mut console, "default_pool_size"), "0");
    console.run("SET default_pool_size = 7");
    assert_eq!((value(&mut console, "pool_size"), value(&mut console, "default_pool_size")), ("7".into(), "7".into()));
    assert_eq!(ground.client(&proxy).value("PGPOOL SHOW pool_size"), "7");
    assert_eq!(console.error("SET port = 5").sqlstate, "55P02");
    assert_eq!(console.error("SET nothing = 5").sqlstate, "42704");
    assert_eq!(console.error("SET pool_size = many").sqlstate, "22023");
    assert_eq!(value(&mut console, "pool_size"), "7");
    console.run("SET client_encoding to 'LATIN1'");
    proxy.add_conf("pool_size = 9");
    console.run("RELOAD");
    assert_eq!(value(&mut console, "pool_size"), "9");
    proxy.add_conf("pool_size = nine");
    let failure = console.error("RELOAD");
    assert_eq!(failure.sqlstate, "F0000");
    assert!(failure.message.contains("pool_size"), "{failure:?}");
    assert_eq!(value(&mut console, "pool_size"), "9", "a wrong file changes nothing");
}

#[test]
fn settings_are_taken_and_shown_in_pgbouncers_units_and_names() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy("");
    let mut console = admin(&proxy);
    let value = |console: &mut Raw, key: &str| row(console, "config", "key", key)("value");
    console.run("SET query_timeout = 30");
    assert_eq!(value(&mut console, "query_timeout"), "30");
    assert_eq!(ground.client(&proxy).value("PGPOOL SHOW query_timeout"), "30s");
    console.run("SET idle_transaction_timeout = '0.5'");
    assert_eq!(value(&mut console, "idle_transaction_timeout"), "0.5");
    // A value with a unit is taken as it is.
    console.run("SET query_wait_timeout = '2min'");
    assert_eq!(value(&mut console, "query_wait_timeout"), "120");
    console.run("SET query_timeout = 0");
    console.run("SET admin_users = 'a,b'");
    assert_eq!(value(&mut console, "admin_users"), "a,b");
    let said = console.query("SET server_round_robin = 1");
    assert_eq!((said[0].tag, tags(&said).as_str()), (b'N', "CZ"), "a setting that changes nothing here is no error");
    for (set, expected) in [
        ("auth_type = trust", "enable_pool_hba is off"),
        ("auth_type = ldap", "enable_pool_hba is off"),
        ("auth_file = '/x'", "pool_passwd"),
        ("auth_hba_file = '/x'", "pool_hba.conf"),
        ("logfile = '/x/y'", "needs a restart"),
        ("server_tls_protocols = 'tlsv1.2'", "TLSv1.3 cannot be turned off"),
        ("server_lifetime = 0", "changes a part only"),
    ] {
        let said = console.query(&format!("SET {set}"));
        assert_eq!((said[0].tag, tags(&said).as_str()), (b'N', "CZ"), "{set}");
        let notice = String::from_utf8_lossy(&said[0].body).into_owned();
        assert!(notice.contains(expected), "{set}: {notice}");
    }
    assert_eq!(value(&mut console, "server_lifetime"), "1");
    console.run("SET syslog = 1");
    assert_eq!(value(&mut console, "log_destination"), "stderr,syslog");
    let keys = show(&mut console, "config", "key");
    let count = |key: &str| keys.iter().filter(|known| *known == key).count();
    for key in ["query_timeout", "server_lifetime", "max_db_client_connections", "client_tls_ca_file", "pool_mode"] {
        assert_eq!(count(key), 1, "{key}");
    }
}

#[test]
fn a_reload_says_in_the_console_what_needs_a_restart() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy("");
    let mut console = admin(&proxy);
    assert_eq!(console.query("RELOAD")[0].tag, b'C');
    proxy.add_conf("memory_buffer_size = 64kB");
    let said = console.query("RELOAD");
    assert_eq!((said[0].tag, tags(&said).as_str()), (b'N', "CZ"));
    assert!(String::from_utf8_lossy(&said[0].body).contains("memory_buffer_size"), "{said:?}");
}

#[test]
fn a_database_that_nobody_knows_is_named() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy("");
    let _client = ground.client(&proxy);
    let mut console = admin(&proxy);
    for verb in ["PAUSE", "RESUME", "KILL", "RECONNECT", "WAIT_CLOSE", "DISABLE", "ENABLE"] {
        let failure = console.error(&format!("{verb} nosuch"));
        assert_eq!(failure.message, "no such database: nosuch", "{verb}");
    }
    console.run(&format!("PAUSE {}", ground.database));
    console.run(&format!("RESUME {}", ground.database));
}

#[test]
fn a_begin_that_no_server_has_heard_of_is_counted() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy("");
    let mut console = admin(&proxy);
    let mut client = ground.client(&proxy);
    let mut counted =
        || -> u64 { row(&mut console, "stats_totals", "database", &ground.database)("query_count").parse().unwrap() };
    let before = counted();
    client.run("begin");
    client.run("select 1");
    client.run("commit");
    assert_eq!(counted() - before, 3);
    client.run("begin");
    client.run("commit");
    assert_eq!(counted() - before, 5);
}

#[test]
fn statements_transactions_bytes_and_waits_are_counted() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy("pool_size = 1\nstats_period = 1");
    let mut console = admin(&proxy);
    let (mut one, mut other) = (ground.client(&proxy), ground.client(&proxy));
    one.run("select 1");
    let counted = |console: &mut Raw, name: &str| -> u64 {
        row(console, "stats_totals", "database", &ground.database)(name).parse().unwrap()
    };
    let before = ["xact_count", "query_count", "query_time", "xact_time", "wait_time", "bytes_sent"]
        .map(|name| (name, counted(&mut console, name)));
    one.run("begin; select 1");
    one.run("select pg_sleep(0.2)");
    other.send(&wire::query("select 1"));
    wait_until("it to wait", || row(&mut console, "pools", "database", &ground.database)("cl_waiting") == "1");
    one.run("select repeat('x', 100000)");
    one.run("commit");
    other.until_ready();
    one.extended("select 1", &[]).unwrap();
    let grown: Vec<u64> = before.iter().map(|(name, before)| counted(&mut console, name) - before).collect();
    assert_eq!(grown[..2], [3, 6], "three transactions, six statements");
    assert!(grown[2] >= 190_000 && grown[3] >= grown[2], "times in microseconds: {grown:?}");
    assert!(grown[4] > 0 && grown[5] > 100_000, "{grown:?}");
    let mut average = || row(&mut console, "stats", "database", &ground.database)("avg_query_count").parse::<u64>().unwrap();
    wait_until("an average", || {
        one.run("select 1");
        average() > 0
    });
}

#[test]
fn shutdown_waits_for_clients_but_not_for_consoles() {
    let ground = Ground::new();
    let mut proxy = ground.primary_proxy("");
    let mut client = ground.client(&proxy);
    let mut console = admin(&proxy);
    console.run("SHUTDOWN WAIT_FOR_CLIENTS");
    assert_eq!(client.value("select 1"), "1");
    assert!(proxy.is_running());
    assert_eq!(console.rows("SHOW STATE").len(), 3, "the console stays");
    drop(client);
    assert!(proxy.wait_end().success());
    assert_eq!(console.until_end()[0].failure().sqlstate, "57P01");
}

#[test]
fn shutdown_lets_transactions_end_first_or_ends_all_at_once() {
    let ground = Ground::new();
    ground.prepare("create table t (a int)");
    let mut proxy = ground.primary_proxy("");
    let (mut inside, mut idle) = (ground.client(&proxy), ground.client(&proxy));
    inside.run("begin");
    inside.run("insert into t values (1)");
    admin(&proxy).run("SHUTDOWN WAIT_FOR_SERVERS");
    inside.run("commit");
    assert_eq!(idle.until_end()[0].failure().sqlstate, "57P01");
    assert!(proxy.wait_end().success());
    assert_eq!(ground.direct().value("select count(*) from t"), "1");
    let mut proxy = ground.primary_proxy("");
    let mut inside = ground.client(&proxy);
    inside.run("begin; select 1");
    admin(&proxy).run("SHUTDOWN");
    assert_eq!(inside.until_end()[0].failure().sqlstate, "57P01");
    assert!(proxy.wait_end().success());
}

#[test]
fn who_waits_for_a_server_connection_is_told_at_once_that_a_shutdown_waits_for_transactions() {
    let ground = Ground::new();
    let mut proxy = ground.primary_proxy("pool_size = 1");
    let (mut inside, mut waiting, mut late) = (ground.client(&proxy), ground.client(&proxy), ground.client(&proxy));
    inside.run("begin; select 1");
    waiting.send(&wire::query("select 2"));
    let mut console = admin(&proxy);
    wait_until("a client to wait", || row(&mut console, "pools", "database", &ground.database)("cl_waiting") == "1");
    console.run("SHUTDOWN WAIT_FOR_SERVERS");
    assert_eq!(waiting.until_end()[0].failure().sqlstate, "57P01", "while the other transaction is open");
    late.send(&wire::query("select 3"));
    assert_eq!(late.until_end()[0].failure().sqlstate, "57P01");
    console.send(&wire::query("RESUME"));
    assert_eq!(console.until_ready()[0].failure().message, "the proxy is shutting down");
    assert_eq!(inside.value("select 4"), "4");
    inside.run("commit");
    assert!(proxy.wait_end().success());
}

#[test]
fn an_error_in_the_consoles_extended_protocol_drops_all_up_to_the_sync() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy("");
    let mut console = admin(&proxy);
    let version = [wire::parse("s", "SHOW VERSION"), wire::bind("p", "s", &[]), wire::execute("p", 0)].concat();
    console.send(&[wire::bind("", "none", &[]), version.clone(), wire::sync(), version, wire::sync()].concat());
    assert_eq!(console.tags(), "EZ");
    assert_eq!(console.tags(), "12DCZ");
    console.send(&[wire::parse("c", "SHOW CONFIG"), wire::bind("", "c", &[]), wire::execute("", 3)].concat());
    console.send(&[wire::execute("", 2), wire::describe(b'P', ""), wire::flush(), wire::sync()].concat());
    assert_eq!(console.tags(), "12DDDsDDsTZ");
    console.send(&[wire::parse("c", "SHOW POOLS"), wire::sync()].concat());
    assert_eq!(console.until_ready()[0].failure().sqlstate, "42P05");
    console.send(&[wire::close(b'S', "c"), wire::parse("c", ""), wire::bind("", "c", &[]), wire::describe(b'P', "")].concat());
    console.send(&[wire::execute("", 0), wire::sync()].concat());
    assert_eq!(console.tags(), "312nIZ");
    console.send(&wire::query(" "));
    assert_eq!(console.tags(), "IZ");
}

#[test]
fn what_is_no_message_for_the_console_ends_it_and_nothing_else() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy("");
    for bytes in [
        wire::query(&"x".repeat(100_000)),
        wire::message(b'F', b"\0\0\0\x01"),
        wire::message(b'P', b"no end"),
        vec![b'Q', 0, 0, 0, 1],
        vec![0; 20],
    ] {
        let mut console = admin(&proxy);
        console.send(&bytes);
        let messages = console.until_end();
        assert!(messages.iter().all(|message| message.tag == b'E'), "{messages:?}");
        assert_eq!(messages[0].failure().sqlstate, "08P01");
    }
    let mut gone = admin(&proxy);
    gone.send(&wire::query("SHOW CONFIG").repeat(2000));
    drop(gone);
    let mut console = admin(&proxy);
    wait_until("those who left to be off the lists", || show(&mut console, "clients", "user").len() == 1);
    assert_eq!(ground.client(&proxy).value("select 1"), "1");
}

#[test]
fn the_console_can_be_entered_while_a_shutdown_waits_for_clients() {
    let ground = Ground::new();
    let mut proxy = ground.primary_proxy("");
    let mut client = ground.client(&proxy);
    admin(&proxy).run("SHUTDOWN WAIT_FOR_CLIENTS");
    wait_until("new clients to be refused", || Raw::try_tcp(proxy.port()).is_none());
    let mut console = admin(&proxy);
    assert!(show(&mut console, "clients", "database").contains(&ground.database), "it tells who is waited for");
    let refused = Raw::unix(proxy.folder(), proxy.port()).log_in("postgres", &ground.database, &[]).unwrap_err();
    assert_eq!((refused.sqlstate.as_str(), refused.message.as_str()), ("57P03", "the proxy is shutting down"));
    assert_eq!(client.value("select 1"), "1");
    drop(client);
    assert!(proxy.wait_end().success(), "the console does not keep it");
}

#[test]
fn a_session_at_rest_that_keeps_a_connection_ends_with_it_if_wished() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy("pool_mode = session\nadmin_users = 'postgres'");
    let mut console = Raw::unix(proxy.folder(), proxy.port()).log_in("pgbouncer", "pgbouncer", &[]).unwrap();
    let (mut rests, mut works) = (ground.client(&proxy), ground.client(&proxy));
    let before = rests.value("select pg_backend_pid()");
    console.run("RECONNECT");
    assert_eq!(rests.value("select pg_backend_pid()"), before, "it keeps it by default");
    works.run("begin");
    works.run("select 1");
    console.run("SET server_fast_close = on");
    console.run("RECONNECT");
    let said = rests.read();
    let text = "terminating connection: its server connection is to be closed (server_fast_close)";
    assert_eq!((said.tag, said.failure().sqlstate.as_str(), said.failure().message.as_str()), (b'E', "57P01", text));
    assert_eq!(works.value("select 1"), "1", "a transaction ends first");
    works.run("commit");
    assert_eq!(works.read().failure().message, text);
    assert_eq!(ground.client(&proxy).value("select 1"), "1");
}
