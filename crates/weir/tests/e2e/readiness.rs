//! `weir check --connect`: a healthy cluster, and what is named when it is broken.

use crate::support::ground::{Owned, cluster_with};
use crate::support::leave_out;
use crate::support::proxy::{Backend, Folder, configuration};
use crate::support::wait_until;
use std::fs;
use std::process::Command;
use weir_demo::{Mode, Options};

const WEIR: &str = env!("CARGO_BIN_EXE_weir");

/// A failover by Weir, with all that it wants.
const CONF: &str = "failover_mode = builtin\nfailover_alone = on\nhealth_check_period = 1\nhealth_check_user = 'weir'\n\
    backend_application_name0 = 'primary'\nbackend_application_name1 = 'standby1'\n";
const RIGHTS: &str = "create role weir login replication; grant pg_monitor, pg_signal_backend to weir; \
    grant execute on function pg_promote(boolean, integer), pg_switch_wal(), pg_reload_conf(), pg_show_all_file_settings() to weir; \
    grant select on pg_file_settings to weir; \
    grant alter system on parameter primary_conninfo, default_transaction_read_only to weir";

fn servers() -> Owned {
    let cluster = cluster_with(Options { standbys: 1, ..Options::default() });
    cluster.primary().query(RIGHTS).unwrap();
    cluster.wait_caught_up().unwrap();
    let streams = "select count(*) from pg_stat_wal_receiver where status = 'streaming'";
    wait_until("the standby to stream", || cluster.standbys()[0].value(streams).unwrap() == "1");
    cluster
}

/// Success, and the lines that were printed.
fn check(cluster: &Owned, more: &str) -> (bool, Vec<String>) {
    let folder = Folder::new();
    let file = folder.0.join("pgpool.conf");
    let backends: Vec<Backend> = cluster.servers().iter().map(|server| Backend::tcp(server.port(), 1)).collect();
    fs::write(&file, configuration(&folder.0, 9999, &backends, &format!("{CONF}{more}"))).unwrap();
    let output = Command::new(WEIR).args(["check", "--connect", "-f", &file.to_string_lossy()]).output().unwrap();
    // The looks at the servers come last.
    let text = [output.stderr, output.stdout].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    (output.status.success(), text.lines().map(str::to_owned).collect())
}

fn errors(lines: &[String]) -> Vec<&str> {
    lines.iter().filter(|line| line.contains(": error: ")).map(String::as_str).collect()
}

/// There is an error that begins like this.
fn assert_named(lines: &[String], begin: &str) {
    assert!(errors(lines).iter().any(|line| line.starts_with(begin)), "{begin}: {lines:#?}");
}

#[test]
fn servers_that_are_fit_for_a_failover_have_no_errors_and_broken_ones_have_theirs() {
    let cluster = servers();
    if cluster.primary().programs().major() < 15 {
        return leave_out("ALTER SYSTEM by others than superusers needs PostgreSQL 15");
    }
    let (success, lines) = check(&cluster, "");
    assert!(success && errors(&lines).is_empty(), "{lines:#?}");
    assert!(lines.last().is_some_and(|line| line.starts_with("2 servers asked: 0 errors")), "{lines:#?}");

    let standby = &cluster.standbys()[0];
    standby.query("alter system set datestyle = 'German'").unwrap();
    standby.reload().unwrap();
    wait_until("the standby to have it", || standby.value("show datestyle").unwrap().starts_with("German"));
    let (success, lines) = check(&cluster, "");
    let named = "node 1: warning: sessions begin with other settings than on node 0, the primary: datestyle = 'German, DMY' and not 'ISO, MDY';";
    assert!(success && lines.iter().any(|line| line.starts_with(named)), "{lines:#?}");
    standby.query("alter system reset datestyle").unwrap();
    standby.reload().unwrap();

    let (success, lines) = check(&cluster, "health_check_user = 'nobody'");
    assert!(!success);
    assert_named(&lines, "node 0: error: no login as health_check_user: ");
    assert_named(&lines, "node 1: error: no login as health_check_user: ");

    let (success, lines) = check(&cluster, "work_dir = '/nowhere/at/all'");
    assert!(!success && lines.iter().any(|line| line.contains("error: work_dir: /nowhere/at/all: ")), "{lines:#?}");

    let (_, lines) = check(&cluster, "backend_promote_priority1 = 0");
    assert_named(&lines, "all nodes: error: backend_promote_priority is 0 for all standbys");

    let primary = cluster.primary();
    primary.query("revoke pg_monitor, pg_signal_backend from weir; alter role weir noreplication").unwrap();
    cluster.wait_caught_up().unwrap();
    let (success, lines) = check(&cluster, "");
    assert!(!success);
    for right in ["pg_monitor; GRANT pg_monitor TO weir", "pg_signal_backend", "the attribute REPLICATION"] {
        assert_named(&lines, &format!("node 0: error: health_check_user lacks {right}"));
    }
    primary.query("grant pg_monitor, pg_signal_backend to weir; alter role weir replication").unwrap();
    primary.query("alter system set synchronous_standby_names = 'ANY 1 (other)'").unwrap();
    primary.reload().unwrap();
    wait_until("the names to be in force", || primary.value("show synchronous_standby_names").unwrap().contains("other"));
    let (_, lines) = check(&cluster, "");
    assert_named(&lines, "all nodes: error: synchronous_standby_names = ANY 1 (other) names standbys that are no nodes");
    primary.query("alter system reset synchronous_standby_names").unwrap();
    primary.reload().unwrap();
    cluster.wait_caught_up().unwrap();

    let standby = &cluster.standbys()[0];
    standby.query("alter system set primary_conninfo = 'postgresql://127.0.0.1:1/'").unwrap();
    standby.reload().unwrap();
    wait_until("the standby to stream no more", || standby.value("select count(*) from pg_stat_wal_receiver").unwrap() == "0");
    let (_, lines) = check(&cluster, "");
    assert_named(&lines, "node 1: error: the standby does not stream");
    assert_named(&lines, "node 1: error: primary_conninfo is a URI");

    standby.stop(Mode::Fast).unwrap();
    let (_, lines) = check(&cluster, "");
    assert_named(&lines, "node 1: error: no login as health_check_user: could not connect");
}
