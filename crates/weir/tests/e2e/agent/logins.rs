//! The login of a standby that an agent makes: whole, tried before files are copied, and nobody else's.

use super::returns::{before, new_primary};
use super::stand::{Agent, STRAY, servers, wait_streams};
use crate::support::ground::Owned;
use crate::support::time::check_never;
use crate::support::{Proxy, wait_until};
use std::fs;
use std::time::Duration;
use weir_demo::Server;

const HBA: &str = "host all,replication repl,keeper all scram-sha-256\n";
const PASS: &str = "*:*:*:keeper:of-the-keeper\n";

/// A pair in which standbys need passwords, with an agent beside each that has the one of its own user.
fn guarded() -> Option<(Owned, Vec<Agent>)> {
    let cluster = servers(1)?;
    let primary = cluster.primary();
    primary.query("create role repl login replication password 'of-repl'").unwrap();
    primary.query("create role keeper login superuser replication password 'of-the-keeper'").unwrap();
    cluster.wait_caught_up().unwrap();
    cluster.servers().iter().for_each(|server| guard(server, HBA));
    let agents = cluster.servers().iter();
    let agents = agents.map(|server| Agent::with(server, &[("pass", PASS)], &["--passfile", "FOLDER/pass"])).collect();
    Some((cluster, agents))
}

/// Puts rules before all others.
fn guard(server: &Server, rules: &str) {
    let path = server.data_dir().join("pg_hba.conf");
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, format!("{rules}{text}")).unwrap();
    server.reload().unwrap();
}

fn proxy(cluster: &Owned, agents: &[Agent]) -> Proxy {
    let agents: Vec<&Agent> = agents.iter().collect();
    before(cluster, &agents, "failover_alone = on\nagent_user = 'keeper'")
}

fn copies(proxy: &Proxy) -> usize {
    proxy.log().matches("base backup by its agent: done").count()
}

/// As everybody makes standbys: `pg_basebackup -R -d 'user=repl password=...'`. The agent's user is another one.
#[test]
fn a_server_that_was_made_with_the_login_of_another_user_comes_back_without_a_copy() {
    let Some((cluster, agents)) = guarded() else { return };
    let (old, new) = (cluster.primary(), &cluster.standbys()[0]);
    let made = format!("user=repl password=of-repl host=127.0.0.1 port={} sslmode=prefer", new.port());
    old.set_conf("primary_conninfo", &made).unwrap();
    old.reload().unwrap();
    let proxy = proxy(&cluster, &agents);
    old.kill9().unwrap();
    assert_eq!(new_primary(&cluster, old).port(), new.port());
    wait_streams(old, new);
    wait_until("all nodes to be in use", || proxy.nodes("status") == ["up", "up"]);
    assert_eq!(copies(&proxy), 0, "{}", proxy.log());
    let conninfo = old.value("show primary_conninfo").unwrap();
    assert!(
        !conninfo.contains("of-repl") && conninfo.contains("user=keeper") && conninfo.contains("sslmode=prefer"),
        "{conninfo}"
    );
    let pid_file = fs::read_to_string(old.data_dir().join("postmaster.pid")).unwrap();
    let environment = fs::read(format!("/proc/{}/environ", pid_file.lines().next().unwrap())).unwrap();
    assert!(!String::from_utf8_lossy(&environment).contains(STRAY), "the server that the agent has started");
    assert!(!agents[0].work("service").exists() || !fs::read_to_string(agents[0].work("service")).unwrap().contains("of-"));
}

#[test]
fn a_login_that_the_new_primary_refuses_is_told_and_nothing_is_copied_for_it() {
    let Some((cluster, agents)) = guarded() else { return };
    let (old, new) = (cluster.primary(), &cluster.standbys()[0]);
    guard(new, "host replication keeper all reject\n");
    let proxy = proxy(&cluster, &agents);
    old.kill9().unwrap();
    assert_eq!(new_primary(&cluster, old).port(), new.port());
    let told = "a standby here cannot log in for replication as keeper";
    wait_until("the refusal to be told", || proxy.log().contains(told));
    check_never("it is copied", Duration::from_secs(7), || copies(&proxy) > 0);
    guard(new, HBA);
    wait_streams(old, new);
    wait_until("all nodes to be in use", || proxy.nodes("status") == ["up", "up"]);
    assert_eq!(copies(&proxy), 0, "{}", proxy.log());
}
