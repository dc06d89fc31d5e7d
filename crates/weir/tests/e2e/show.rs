//! Weir's SHOW commands, through psql's protocol and through a driver's.

use crate::support::driver::{self, Login};
use crate::support::proxy::{column_names, show};
use crate::support::raw::tags;
use crate::support::{Ground, wait_until, wire};

/// Views and their columns, as Pgpool-II 4.7 has them.
const VIEWS: [(&str, &[&str]); 5] = [
    (
        "pool_nodes",
        &[
            "node_id",
            "hostname",
            "port",
            "status",
            "pg_status",
            "lb_weight",
            "role",
            "pg_role",
            "select_cnt",
            "load_balance_node",
            "replication_delay",
            "replication_state",
            "replication_sync_state",
            "last_status_change",
        ],
    ),
    (
        "pool_health_check_stats",
        &[
            "node_id",
            "hostname",
            "port",
            "status",
            "role",
            "last_status_change",
            "total_count",
            "success_count",
            "fail_count",
            "skip_count",
            "retry_count",
            "average_retry_count",
            "max_retry_count",
            "max_duration",
            "min_duration",
            "average_duration",
            "last_health_check",
            "last_successful_health_check",
            "last_skip_health_check",
            "last_failed_health_check",
        ],
    ),
    ("pool_version", &["pool_version"]),
    (
        "pool_pools",
        &[
            "pool_pid",
            "start_time",
            "client_connection_count",
            "pool_id",
            "backend_id",
            "database",
            "username",
            "backend_connection_time",
            "client_connection_time",
            "client_disconnection_time",
            "client_idle_duration",
            "majorversion",
            "minorversion",
            "pool_counter",
            "pool_backendpid",
            "pool_connected",
            "status",
            "load_balance_node",
            "client_host",
            "client_port",
            "statement",
        ],
    ),
    (
        "pool_processes",
        &[
            "pool_pid",
            "start_time",
            "client_connection_count",
            "database",
            "username",
            "backend_connection_time",
            "pool_counter",
            "status",
        ],
    ),
];

#[test]
fn show_commands_have_pgpools_columns_in_both_protocols() {
    let ground = Ground::new();
    let proxy = ground.proxy("");
    let mut client = ground.client(&proxy);
    for (view, columns) in VIEWS {
        for text in [format!("SHOW {view}"), format!("show {}; ", view.to_uppercase())] {
            let simple = client.query(&text);
            assert_eq!(column_names(&simple[0].body), columns, "{text}");
            assert!(tags(&simple).ends_with("DCZ"), "{text} has rows: {simple:?}");
            let described = [wire::parse("", &text), wire::describe(b'S', ""), wire::bind("", "", &[]), wire::describe(b'P', "")];
            client.send(&[described.concat(), wire::execute("", 0), wire::sync()].concat());
            let extended = client.until_ready();
            let heads: Vec<_> = extended.iter().filter(|m| m.tag == b'T').map(|m| column_names(&m.body)).collect();
            assert_eq!(heads, [columns, columns], "{text}");
            assert!(tags(&extended).starts_with("1tT2TD") && tags(&extended).ends_with("CZ"), "{text}: {}", tags(&extended));
        }
    }
}

/// pgpool2_exporter asks for this table of every Pgpool-II from 4.2 on, and takes the counts for numbers.
#[test]
fn looks_at_the_servers_are_counted_as_health_checks() {
    let ground = Ground::new();
    let proxy = ground.proxy("sr_check_period = 1");
    let mut client = ground.client(&proxy);
    let column = |client: &mut _, name| show(client, "pool_health_check_stats", name);
    wait_until("two looks", || column(&mut client, "total_count").iter().all(|count| count.parse::<u64>().unwrap() >= 2));
    assert_eq!(column(&mut client, "role"), ["primary", "standby", "standby"]);
    assert_eq!(column(&mut client, "fail_count"), ["0", "0", "0"]);
    assert!(column(&mut client, "average_duration").iter().all(|ms| ms.parse::<f64>().unwrap() > 0.0));
    assert!(column(&mut client, "last_failed_health_check").iter().all(String::is_empty));
}

#[test]
fn a_driver_reads_show_commands_like_tables() {
    let ground = Ground::new();
    let proxy = ground.proxy("");
    let login = Login { database: ground.database.clone(), ..Login::new(proxy.port(), "postgres", "") };
    driver::block_on(async {
        let (client, _mover) = driver::connect(&login).await.unwrap();
        for (view, columns) in VIEWS {
            let rows = client.query(&format!("SHOW {view}"), &[]).await.unwrap();
            assert!(!rows.is_empty(), "{view}");
            let names: Vec<&str> = rows[0].columns().iter().map(|column| column.name()).collect();
            assert_eq!(names, columns);
            let first: &str = rows[0].get(0);
            assert!(!first.is_empty(), "all values are text");
        }
        let statement = client.prepare("show pool_version").await.unwrap();
        for _ in 0..3 {
            let version: String = client.query_one(&statement, &[]).await.unwrap().get(0);
            assert!(version.contains("Weir"), "{version}");
        }
        let port: String = client.query_one("PGPOOL SHOW port", &[]).await.unwrap().get("port");
        assert_eq!(port, proxy.port().to_string());
        let all = client.query("PGPOOL SHOW ALL", &[]).await.unwrap();
        assert!(all.len() > 150, "{} parameters", all.len());
        let error = client.query("PGPOOL SHOW no_such_parameter", &[]).await.unwrap_err();
        assert!(driver::describe(&error).contains("no_such_parameter"), "{error:?}");
        let one: i32 = client.query_one("select 1", &[]).await.unwrap().get(0);
        assert_eq!(one, 1);
    });
}

#[test]
fn show_pool_nodes_tells_ports_roles_weights_and_counts() {
    let ground = Ground::new();
    let proxy = ground.proxy("backend_weight1 = 1\nbackend_weight2 = 3\nbackend_application_name1 = 'standby1'");
    let mut client = ground.client(&proxy);
    let reads = 40;
    for _ in 0..reads {
        client.run("select 1");
    }
    let mut ports = vec![ground.primary_port()];
    ports.extend(ground.standby_ports());
    let column = |client: &mut _, name| show(client, "pool_nodes", name);
    assert_eq!(column(&mut client, "node_id"), ["0", "1", "2"]);
    assert_eq!(column(&mut client, "port"), ports);
    assert_eq!(column(&mut client, "status"), ["up", "up", "up"]);
    assert_eq!(column(&mut client, "role"), ["primary", "standby", "standby"]);
    assert_eq!(column(&mut client, "lb_weight"), ["0.000000", "0.250000", "0.750000"]);
    let counts: u32 = column(&mut client, "select_cnt").iter().map(|count| count.parse::<u32>().unwrap()).sum();
    assert_eq!(counts, reads);
    wait_until("the state of the named standby", || column(&mut client, "replication_state")[1] == "streaming");
    assert_eq!(column(&mut client, "replication_sync_state")[1], "async");
}

#[test]
fn pgpool_show_tells_the_value_in_force() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy("pool_size = 17");
    let mut client = ground.client(&proxy);
    assert_eq!(client.value("PGPOOL SHOW pool_size"), "17");
    assert_eq!(client.value("pgpool show num_init_children;"), "32");
    assert_eq!(client.extended("PGPOOL SHOW pool_size", &[]).unwrap(), "17");
    assert_eq!(client.value("PGPOOL SHOW backend_port0"), ground.primary_port());
    let failure = client.error("PGPOOL SHOW no_such_parameter");
    assert_eq!(failure.sqlstate, "42704");
    assert_eq!(client.extended("PGPOOL SHOW no_such_parameter", &[]).unwrap_err().sqlstate, "42704");
    assert_eq!(client.error("PGPOOL DANCE").sqlstate, "0A000");
    assert_eq!(
        client.value("show server_version_num"),
        ground.direct().value("show server_version_num"),
        "other SHOWs are the server's"
    );
}

#[test]
fn secrets_are_not_shown() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy("recovery_password = 'very secret'\nhealth_check_password = 'very secret'");
    let mut client = ground.client(&proxy);
    for text in ["PGPOOL SHOW ALL", "SHOW pool_status", "PGPOOL SHOW recovery_password"] {
        let rows = client.rows(text);
        assert!(!rows.iter().flatten().any(|value| value.contains("very secret")), "{text}");
    }
}

#[test]
fn counters_count() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy("");
    let mut client = ground.client(&proxy);
    let before = proxy.metric("clients_accepted_total");
    drop(ground.client(&proxy));
    assert!(proxy.metric("clients_accepted_total") > before);
    client.run("select 1");
    let names = client.rows("SHOW pool_metrics");
    assert!(names.iter().all(|row| !row[0].is_empty() && row[1].parse::<u64>().is_ok() && !row[2].is_empty()), "{names:?}");
}

#[test]
fn every_show_command_of_the_help_works() {
    let ground = Ground::new();
    let proxy = ground.proxy("");
    let mut client = ground.client(&proxy);
    for row in client.rows("SHOW pool_help") {
        let tags = tags(&client.query(&row[0]));
        assert!(tags.starts_with('T') && tags.ends_with("CZ"), "{}: {tags}", row[0]);
        client.extended(&row[0], &[]).unwrap();
    }
}
