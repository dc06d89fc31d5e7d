//! Servers that live and answer no login in time: a stuck postmaster, or logins that take long.

use super::load::Load;
use super::{BUILTIN, NAMES, builtin, failovers, servers};
use crate::support::faults::Network;
use crate::support::proxy::Backend;
use crate::support::time::check_never;
use crate::support::{Proxy, wait_until, wire};
use rustix::process::{Pid, Signal};
use std::time::Duration;
use weir_demo::{Crew, Server, signal_process};

/// With this Weir's word alone a standby would be promoted, and roles are asked ten times less often than looks are made.
const ALONE: &str = "failover_alone = on\nsr_check_period = 10\n";
const NAMED: &str = "node 0 answers over open connections and no login in time when it is looked at";
/// The verdict takes two looks of a second, with a second between them.
const VERDICT: Duration = Duration::from_secs(8);

/// A postmaster that goes on in any case.
struct Stuck(Pid);

impl Stuck {
    fn of(server: &Server) -> Stuck {
        let postmaster = Pid::from_raw(server.pid().unwrap() as i32).unwrap();
        signal_process(postmaster, Signal::STOP).unwrap();
        Stuck(postmaster)
    }
}

impl Drop for Stuck {
    fn drop(&mut self) {
        // It may have ended.
        let _ = signal_process(self.0, Signal::CONT);
    }
}

/// `begun`: length of the log at the fault.
fn check_kept(proxy: &Proxy, begun: usize) {
    let given_up = ["is given up", "quarantine", "writes wait: the primary is", "failover done"];
    check_never("the primary is given up", VERDICT, || given_up.iter().any(|words| proxy.log()[begun..].contains(words)));
}

/// Clients rest, in a transaction too, or wait for one long statement.
#[test]
fn a_primary_whose_postmaster_hangs_is_kept_while_no_client_is_answered() {
    let cluster = servers(2, &[]);
    let proxy = builtin(&cluster, ALONE);
    let (mut resting, mut holder, mut waiter) = (proxy.console(), proxy.console(), proxy.console());
    resting.run("select 1");
    holder.run("begin; insert into written values (1); select pg_advisory_xact_lock(1)");
    waiter.send(&wire::query("insert into written select 2 from pg_advisory_xact_lock(1)"));
    let waits = "select count(*) from pg_locks where locktype = 'advisory' and not granted";
    wait_until("one to wait for the other", || cluster.primary().value(waits).unwrap() == "1");
    let begun = proxy.log().len();
    let stuck = Stuck::of(cluster.primary());
    wait_until("it to be named", || proxy.log().contains(NAMED));
    check_kept(&proxy, begun);
    holder.run("commit");
    assert_eq!(waiter.tags(), "CZ");
    resting.run("insert into written values (3)");
    drop(stuck);
    assert_eq!(resting.value("select count(*) from written where number in (1, 2, 3)"), "3");
    assert_eq!(failovers(&proxy), 0, "{}", proxy.log());
}

/// Ninety sessions at work, and each step of a new connection takes 1.5 s: a login some seconds, a whole look ten.
#[test]
fn nobody_loses_a_statement_on_a_busy_primary_whose_logins_take_ten_seconds() {
    let cluster = servers(2, &[]);
    let network = Network::to(cluster.primary().port());
    let mut backends = vec![Backend::tcp(network.port(), 1)];
    backends.extend(cluster.standbys().iter().map(|standby| Backend::tcp(standby.port(), 1)));
    let proxy = Proxy::spawn(&backends, &format!("{BUILTIN}{ALONE}{NAMES}"));
    wait_until("the driver to let writes through", || proxy.log().contains("writes go to node 0"));
    let load = Load::with(&proxy, Crew { writers: 90, pause: Duration::from_millis(100), ..Crew::default() });
    load.wait_acknowledged(200);
    let begun = proxy.log().len();
    network.delay_new(Duration::from_millis(1500));
    wait_until("it to be named", || proxy.log().contains(NAMED));
    check_kept(&proxy, begun);
    load.wait_acknowledged(200);
    let outcome = load.end();
    assert_eq!((outcome.lost, outcome.errors.len(), failovers(&proxy)), (0, 0, 0), "{:?}", outcome.errors);
    assert!(outcome.missing_on(cluster.primary()).is_empty());
}
