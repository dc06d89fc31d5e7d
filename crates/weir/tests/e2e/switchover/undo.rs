//! Switchovers that cannot be finished, without `failover_alone`: the old primary goes on, and no server is promoted.

use super::walk::starts;
use super::*;
use crate::support::time::let_pass;
use weir_demo::Sql;

/// The old primary goes on after a switchover to node 1 that ended with this answer.
fn check_undone(stand: &Stand, load: Load, answer: Result<(), String>, why: &str) -> Outcome {
    let answer = answer.unwrap_err();
    assert!(answer.contains(why), "{answer}\n{}", stand.proxy.log());
    load.wait_acknowledged(50);
    let outcome = load.end();
    assert_eq!(stand.check(why, &outcome), 0);
    assert_eq!(outcome.lost, 0);
    assert!(!stand.proxy.log().contains("is the primary after"), "nothing was promoted");
    outcome
}

/// A primary whose archiver will hold up its stop.
fn archiving() -> Option<Owned> {
    let cluster = servers(2)?;
    let primary = cluster.primary();
    primary.set_conf("archive_mode", "on").unwrap();
    primary.set_conf("archive_command", "sleep 300").unwrap();
    primary.stop(Mode::Fast).unwrap();
    primary.start().unwrap();
    cluster.wait_streaming(2).unwrap();
    primary.query("select pg_switch_wal()").unwrap();
    wait_until("the archiver to be at work", || {
        primary.value("select count(*) from pg_stat_activity where backend_type = 'archiver'").unwrap() == "1"
    });
    Some(cluster)
}

#[test]
fn a_primary_that_its_archiver_does_not_let_stop_goes_on() {
    let Some(cluster) = archiving() else { return };
    let stand = Stand::of(cluster, Agent::beside, "failover_wait = 60\n");
    let load = Load::begin(&stand.proxy, 2);
    let begun = Instant::now();
    let answer = stand.move_to(1);
    eprintln!("a slow archiver: {answer:?} after {} ms", begun.elapsed().as_millis());
    let outcome = check_undone(&stand, load, answer, "node 0 could not be stopped cleanly; node 0 is the primary as before");
    assert_eq!(outcome.errors, []);
    assert!(begun.elapsed() < Duration::from_secs(45), "{:?}", begun.elapsed());
}

#[test]
fn a_standby_that_does_not_replay_is_refused_before_anything_is_stopped() {
    let Some(stand) = Stand::new("") else { return };
    let before = starts(&stand);
    let load = Load::begin(&stand.proxy, 2);
    stand.server(1).pause_replay().unwrap();
    load.wait_acknowledged(20);
    let answer = stand.move_to(1);
    let outcome = check_undone(&stand, load, answer, "of log that it has received");
    assert_eq!((outcome.errors.as_slice(), starts(&stand)), ([].as_slice(), before));
    stand.server(1).resume_replay().unwrap();
    stand.move_to(1).unwrap();
}

/// A report on node 1, for which that waits with the replay of a lock of `readable`.
fn report(stand: &Stand) -> Sql {
    let standby = stand.server(1);
    standby.set_conf("max_standby_streaming_delay", "-1").unwrap();
    wait_until("the setting", || standby.value("show max_standby_streaming_delay").unwrap() == "-1");
    let mut report = standby.connect("postgres", "postgres").unwrap();
    report.query("begin isolation level repeatable read").unwrap();
    report.query("select count(*) from readable").unwrap();
    report
}

const LOCK: &str = "lock table readable in access exclusive mode";

#[test]
fn a_standby_whose_report_holds_up_replay_is_refused() {
    let Some(stand) = Stand::new("") else { return };
    let mut report = report(&stand);
    let before = starts(&stand);
    stand.server(0).query(&format!("begin; {LOCK}; insert into written values (0); commit")).unwrap();
    let answer = stand.move_to(1).unwrap_err();
    assert!(answer.contains("node 1 has not replayed"), "{answer}");
    assert_eq!((starts(&stand), stand.primary()), (before, 0));
    report.query("rollback").unwrap();
    stand.move_to(1).unwrap();
}

#[test]
fn a_standby_that_ceases_to_replay_after_the_checks_is_not_promoted() {
    let Some(stand) = Stand::new("") else { return };
    let mut report = report(&stand);
    let load = Load::begin(&stand.proxy, 2);
    let mut open = stand.proxy.console();
    open.run("begin");
    open.run("insert into written values (-1)");
    let asked = ask_aside(&stand.proxy, 1);
    wait_until("the wait for the transaction", || stand.proxy.log().contains("a switchover is under way"));
    open.run(LOCK);
    open.run("commit");
    let answer = asked.join().unwrap();
    let outcome = check_undone(&stand, load, answer, "of log that it has received; node 0 is the primary as before");
    assert_eq!(outcome.errors, []);
    assert_eq!(open.value("select count(*) from written where number = -1"), "1");
    report.query("rollback").unwrap();
    stand.wait_streaming(0, 2);
}

#[test]
fn a_standby_that_dies_while_the_primary_stops_leaves_the_old_one() {
    let Some(mut stand) = Stand::new("failover_wait = 60\n") else { return };
    let load = Load::begin(&stand.proxy, 2);
    let answer = meanwhile(&mut stand, 1, "Drained", |stand| stand.server(1).kill9().unwrap());
    let_pass(Duration::from_secs(5));
    check_undone(&stand, load, answer, "node 0 is the primary as before");
}

#[test]
fn a_synchronous_standby_takes_over_under_load_and_back() {
    let Some(cluster) = servers(2) else { return };
    for server in cluster.servers() {
        server.set_conf("synchronous_standby_names", "ANY 1 (primary, standby1, standby2)").unwrap();
        server.reload().unwrap();
    }
    let stand = Stand::of(cluster, Agent::beside, "");
    let load = Load::with(&stand.proxy, crew());
    for to in [1, 2, 0] {
        stand.move_to(to).unwrap_or_else(|why| panic!("{why}\n{}", stand.proxy.log()));
        wait_until("all to be in use", || stand.proxy.nodes("status") == ["up", "up", "up"]);
        stand.wait_streaming(to, 2);
        load.wait_acknowledged(20);
    }
    let outcome = load.end();
    assert_eq!(stand.check("ANY 1", &outcome), 0);
    check_none_failed(&outcome);
}

#[test]
fn a_primary_without_an_agent_stays_where_others_have_one() {
    let Some(cluster) = servers(2) else { return };
    let last = cluster.servers()[2].port();
    let stand = Stand::of(cluster, |server: &Server| (server.port() != last).then(|| Agent::beside(server)), "");
    let load = Load::with(&stand.proxy, crew());
    stand.move_to(2).unwrap();
    wait_until("all to be in use", || stand.proxy.nodes("status") == ["up", "up", "up"]);
    let answer = stand.move_to(0).unwrap_err();
    assert!(answer.contains("node 2 has no agent that could stop it"), "{answer}");
    load.wait_acknowledged(20);
    let outcome = load.end();
    assert_eq!(stand.check("agents beside two nodes", &outcome), 2);
    check_none_failed(&outcome);
}
