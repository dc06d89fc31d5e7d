//! Users that hold what looks like a mark of Weir's on a server.

use super::load::Load;
use super::{RIGHTS, builtin, check, failovers, servers};
use crate::support::ground::Owned;
use crate::support::time::check_never;
use crate::support::{Proxy, Raw, leave_out, wait_until};
use std::time::Duration;

/// The numbers of Weir's class and of the memory for the Weirs.
const LOCKS: [&str; 3] = [
    "pg_advisory_lock(1466263922, 1835102827)",
    "pg_advisory_lock(1466263922, 1)",
    "pg_advisory_lock_shared(1466263922, 1835102827)",
];

/// Sessions of a user on each standby, one for each way to hold a lock.
fn hold(cluster: &Owned, user: &str) -> Vec<Raw> {
    let mut sessions = Vec::new();
    for standby in cluster.standbys() {
        for lock in LOCKS {
            let mut session = Raw::tcp(standby.port()).log_in(user, "postgres", &[]).unwrap();
            match lock.contains("shared") {
                // It waits behind the exclusive one of the same numbers.
                true => session.send(&crate::support::wire::query(&format!("select {lock}"))),
                false => session.run(&format!("select {lock}")),
            }
            sessions.push(session);
        }
        let held = "select count(*) from pg_locks where locktype = 'advisory' and granted";
        wait_until("the locks to be held", || standby.value(held).unwrap() == "2");
    }
    sessions
}

/// `None`: the test is left out.
fn with_mallory(more: &str) -> Option<(Owned, Proxy)> {
    let cluster = servers(2, &[]);
    if cluster.primary().programs().major() < 15 {
        leave_out("ALTER SYSTEM by others than superusers needs PostgreSQL 15");
        return None;
    }
    cluster.primary().query(&format!("{RIGHTS}; create role mallory login; {more}")).unwrap();
    cluster.wait_caught_up().unwrap();
    let proxy = builtin(&cluster, "health_check_user = 'weir'");
    Some((cluster, proxy))
}

fn check_promoted(what: &str, cluster: &Owned, proxy: &Proxy) {
    let load = Load::begin(proxy, 2);
    cluster.primary().kill9().unwrap();
    load.wait_acknowledged(100);
    check(what, cluster, proxy, &load.end());
    assert_eq!(failovers(proxy), 1);
}

#[test]
fn a_user_s_locks_hold_up_no_failover_and_end_with_his_session() {
    let Some((cluster, proxy)) = with_mallory("") else { return };
    let _sessions = hold(&cluster, "mallory");
    check_promoted("locks", &cluster, &proxy);
    let log = proxy.log();
    let line = log.lines().find(|line| line.contains("held locks of Weir's class")).expect("they are named");
    for part in ["WARNING", "user \"mallory\", pid ", "address 127.0.0.1", "2 of 2 ended"] {
        assert!(line.contains(part), "{part}: {line}");
    }
}

#[test]
fn a_user_whose_sessions_weir_may_not_end_is_passed_over() {
    let Some((cluster, proxy)) = with_mallory("revoke pg_signal_backend from weir") else { return };
    let mut sessions = hold(&cluster, "mallory");
    check_promoted("locks that cannot be ended", &cluster, &proxy);
    assert!(proxy.log().contains("0 of 2 ended"), "{}", proxy.log());
    for session in sessions.iter_mut().step_by(LOCKS.len()) {
        assert_eq!(session.value("select 1"), "1", "it was ended");
    }
}

/// Such a role needs no lock to promote: it is taken for another Weir's.
#[test]
fn a_role_that_may_promote_excludes_others_as_a_weir_does() {
    let cluster = servers(2, &[]);
    cluster
        .primary()
        .query("create role operator login; grant execute on function pg_promote(boolean, integer) to operator")
        .unwrap();
    cluster.wait_caught_up().unwrap();
    let proxy = builtin(&cluster, "");
    let sessions = hold(&cluster, "operator");
    let load = Load::begin(&proxy, 2);
    cluster.primary().kill9().unwrap();
    check_never("a standby is promoted beside another Weir", Duration::from_secs(4), || failovers(&proxy) > 0);
    drop(sessions);
    load.wait_acknowledged(100);
    check("a Weir that leaves", &cluster, &proxy, &load.end());
    assert!(!proxy.log().contains("held locks of Weir's class"), "{}", proxy.log());
}
