//! The accepted server is started in recovery and promoted, so that it goes on on a new timeline: each restart of a leader by Patroni does that.

use crate::support::ground::{cluster, wait_until};
use crate::support::{Proxy, Raw};
use std::fs;
use std::process::Command;
use weir_demo::{Mode, Server};

/// Lines of the log that a change of the primary may take. A step that repeats itself writes thousands a second.
const LINES_MAX: usize = 100;

fn restart_promoted(server: &Server) {
    server.stop(Mode::Fast).unwrap();
    fs::write(server.data_dir().join("standby.signal"), "").unwrap();
    server.start().unwrap();
    server.promote().unwrap();
}

fn check(standbys: usize, more: &str) {
    let cluster = cluster(standbys);
    let primary = cluster.primary();
    primary.query("create table written (a int)").unwrap();
    let proxy = Proxy::start(&cluster, more);
    let mut client = proxy.console();
    client.run("insert into written values (1)");
    for round in 2..=3 {
        restart_promoted(primary);
        let lines = proxy.log().lines().count();
        wait_until("a write to go on", || client.try_rows(&format!("insert into written values ({round})")).is_ok());
        let mut other: Raw = proxy.console();
        other.run(&format!("insert into written values ({round})"));
        assert_eq!(primary.value("select count(*) from written").unwrap(), (2 * round - 1).to_string(), "{more}");
        wait_until("its role to be seen", || proxy.nodes("role")[0] == "primary");
        let said = proxy.log().lines().count() - lines;
        assert!(said < LINES_MAX, "{more}: {said} lines: {}", proxy.log());
    }
}

#[test]
fn a_primary_that_others_start_anew_by_a_promotion_gets_writes_again() {
    check(2, "");
    check(1, "failover_mode = off\nhealth_check_period = 1");
    check(1, "failover_command = '/bin/true'\nhealth_check_period = 1\nbackend_flag0 = 'DISALLOW_TO_FAILOVER'");
}

#[test]
fn the_only_server_that_is_started_anew_by_a_promotion_gets_writes_again() {
    for mode in ["follow", "off", "command", "builtin"] {
        let command = if mode == "command" { "failover_command = '/bin/true'\n" } else { "" };
        check(0, &format!("{command}failover_mode = {mode}\nfailover_alone = on\nhealth_check_period = 1"));
    }
}

/// An operator restores a base backup into the same folder and recovers to a point in time before the last writes.
#[test]
fn the_only_server_that_is_recovered_in_place_to_an_earlier_time_gets_writes_again() {
    for mode in ["follow", "off", "command", "builtin"] {
        let command = if mode == "command" { "failover_command = '/bin/true'\n" } else { "" };
        let cluster = cluster(0);
        let server = cluster.primary();
        server.query("create table written (a int); insert into written values (1)").unwrap();
        server.stop(Mode::Fast).unwrap();
        let (folder, backup) = (server.data_dir().to_owned(), server.data_dir().with_extension("backup"));
        copy(&folder, &backup);
        server.start().unwrap();
        let more = format!("{command}failover_mode = {mode}\nfailover_alone = on\nhealth_check_period = 1");
        let proxy = Proxy::start(&cluster, &more);
        let mut client = proxy.console();
        client.run("insert into written select generate_series(2, 10000)");
        server.stop(Mode::Fast).unwrap();
        fs::remove_dir_all(&folder).unwrap();
        fs::rename(&backup, &folder).unwrap();
        fs::write(folder.join("recovery.signal"), "").unwrap();
        server.set_conf("restore_command", "/bin/false").unwrap();
        server.start().unwrap();
        wait_until("the recovery to end", || server.in_recovery().is_ok_and(|recovers| !recovers));
        let lines = proxy.log().lines().count();
        wait_until("a write to go on", || client.try_rows("insert into written values (2)").is_ok());
        assert_eq!(server.value("select count(*) from written").unwrap(), "2", "{mode}");
        wait_until("its role to be seen", || proxy.nodes("role")[0] == "primary");
        let said = proxy.log().lines().count() - lines;
        assert!(said < LINES_MAX, "{mode}: {said} lines: {}", proxy.log());
    }
}

fn copy(from: &std::path::Path, to: &std::path::Path) {
    let copied = Command::new("cp").arg("-a").args([from, to]).status().unwrap();
    assert!(copied.success());
}
