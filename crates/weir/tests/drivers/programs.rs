//! Programs with a pool of connections of their own: they write on one connection, and read on the next. Reads go to a primary and two standbys, one of
//! which shows everything late. The output must be that of a direct connection with `causal_reads = tables`. With `session` it is not, else the
//! program would prove nothing.

use crate::stage::{Said, check_ended, check_same, run};
use crate::support::Proxy;
use crate::support::ground::{Owned, cluster};
use crate::toolbox::{go, java, node};
use crate::try_out;
use std::process::Command;

/// A cluster with a late standby. It is a program's own, since other tests wait for all standbys.
fn cluster_with_a_late_standby() -> Owned {
    let cluster = cluster(2);
    for database in ["direct", "tables", "session"] {
        cluster.primary().query(&format!("create database {database}")).unwrap();
    }
    cluster.wait_caught_up().unwrap();
    let late = &cluster.standbys()[0];
    late.query("alter system set recovery_min_apply_delay = '150ms'").unwrap();
    late.reload().unwrap();
    cluster
}

/// Runs a program through Weir in a database that is named as its way of causal reads. Returns the reads that standbys answered, too.
fn run_through(cluster: &Owned, mode: &str, command: Command) -> (Said, u64) {
    let servers: Vec<_> = cluster.servers().iter().collect();
    let proxy = Proxy::with_files(&servers, &format!("causal_reads = {mode}\n"), &[], &[]);
    let said = run(command, mode, proxy.port());
    let counts = proxy.nodes("select_cnt");
    (said, counts[1..].iter().map(|count| count.parse::<u64>().unwrap()).sum())
}

fn check(make: impl Fn() -> Result<Command, String>) -> Result<(), String> {
    // First, so that no servers are started for a program that cannot be had.
    let command = make()?;
    let cluster = cluster_with_a_late_standby();
    let direct = run(command, "direct", cluster.primary().port());
    check_ended(&direct);
    let (by_table, by_standbys) = run_through(&cluster, "tables", make()?);
    check_same(&direct, &by_table);
    assert!(by_standbys > 20, "standbys answered {by_standbys} reads: this shows little");
    let (by_session, _) = run_through(&cluster, "session", make()?);
    assert_ne!(by_session.lines(), direct.lines(), "reads by session miss nothing: this program proves nothing");
    println!("{by_standbys} reads on standbys; with causal_reads = session {by_session}");
    Ok(())
}

#[test]
fn graphile_worker() {
    try_out(|| check(|| node("with_graphile_worker.js")));
}

#[test]
fn pg_boss() {
    try_out(|| check(|| node("with_pg_boss.js")));
}

#[test]
fn gorm() {
    try_out(|| check(|| go("gorm")));
}

#[test]
fn hibernate() {
    try_out(|| check(|| java("WithHibernate.java")));
}
