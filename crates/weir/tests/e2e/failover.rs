//! Failover with real servers, under a load that notes every acknowledged write. Each test has servers of its own.

mod load;

use crate::support::ground::{Owned, cluster_with};
use crate::support::{Proxy, wait_until};
use load::{Load, Outcome};
use std::time::Duration;
use weir_demo::{Options, Server};

/// Weir promotes, looks every second, and knows the standbys by their names.
const BUILTIN: &str = "failover_mode = builtin\nhealth_check_period = 1\nhealth_check_timeout = 1\nhealth_check_max_retries = 1\n\
    health_check_retry_delay = 1\nbackend_application_name0 = 'primary'\nbackend_application_name1 = 'standby1'\n\
    backend_application_name2 = 'standby2'\nfailover_lag_max = -1\n";

/// Servers with a table that acknowledged writes go to.
fn servers(standbys: usize, conf: &[(&str, &str)]) -> Owned {
    let extra_conf = conf.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
    let cluster = cluster_with(Options { standbys, extra_conf, ..Options::default() });
    cluster.primary().query("create table written (number int8)").unwrap();
    cluster.wait_caught_up().unwrap();
    cluster
}

fn builtin(cluster: &Owned, more: &str) -> Proxy {
    let proxy = Proxy::start(cluster, &format!("{BUILTIN}{more}"));
    wait_until("the driver to let writes through", || proxy.log().contains("writes go to node 0"));
    proxy
}

/// The servers that take writes.
fn primaries(cluster: &Owned) -> Vec<&Server> {
    let is_primary = |server: &&Server| server.is_running() && server.in_recovery().is_ok_and(|recovers| !recovers);
    cluster.servers().iter().filter(is_primary).collect()
}

fn report(name: &str, outcome: &Outcome) {
    let (gap, acknowledged) = (outcome.gap(), outcome.acknowledged.len());
    eprintln!("{name}: {} ms without writes, {acknowledged} acknowledged, {} sessions lost", gap.as_millis(), outcome.lost);
    for (code, message) in outcome.errors.iter().take(5) {
        eprintln!("  {code} {message}");
    }
}

#[test]
fn a_primary_that_is_killed_is_replaced_by_a_standby() {
    let cluster = servers(2, &[]);
    let proxy = builtin(&cluster, "");
    let load = Load::begin(&proxy, 4);
    cluster.primary().kill9().unwrap();
    load.wait_acknowledged(100);
    let outcome = load.end();
    report("kill -9", &outcome);
    let [new] = primaries(&cluster)[..] else { panic!("one primary") };
    assert!(outcome.missing_on(new).is_empty() || proxy.log().contains("lost: at most"), "{:?}", outcome.missing_on(new));
    assert!(outcome.gap() < Duration::from_secs(10));
    wait_until("the other standby to follow", || {
        new.value("select count(*) from pg_stat_replication where state = 'streaming'").unwrap() == "1"
    });
}
