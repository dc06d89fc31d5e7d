//! `SHOW pool_agents`: what Weir knows of the agents beside its servers.

use super::returns::before;
use super::stand::{Agent, SECRET, fast, servers, start};
use crate::support::proxy::show;
use crate::support::{Proxy, Raw, wait_until};

fn admin(proxy: &Proxy) -> Raw {
    Raw::unix(proxy.folder(), proxy.port()).log_in("pgbouncer", "pgbouncer", &[]).expect("the console")
}

fn wait_shown(client: &mut Raw, column: &str, expected: [&str; 3]) {
    wait_until(&format!("{column} to be {expected:?}"), || show(client, "pool_agents", column) == expected);
}

#[test]
fn show_pool_agents_tells_what_agents_said_last() {
    let Some(cluster) = servers(2) else { return };
    let mut agents: Vec<Agent> = cluster.servers()[..2].iter().map(Agent::beside).collect();
    let proxy = before(&cluster, &agents.iter().collect::<Vec<_>>(), "agent_rejoin = off");
    let (mut client, mut admin) = (proxy.console(), admin(&proxy));
    for asker in [&mut client, &mut admin] {
        wait_shown(asker, "status", ["connected", "connected", "none"]);
        wait_shown(asker, "server", ["takes connections", "takes connections", ""]);
        wait_shown(asker, "role", ["primary", "standby", ""]);
        wait_shown(asker, "control_state", ["in production", "in archive recovery", ""]);
        wait_shown(asker, "timeline", ["1", "1", ""]);
        let identifier = cluster.primary().value("select system_identifier from pg_control_system()").unwrap();
        wait_shown(asker, "system_identifier", [&identifier, &identifier, ""]);
        let ports = [0, 1].map(|at| agents[at].port.number().to_string());
        wait_shown(asker, "port", [&ports[0], &ports[1], ""]);
    }
    agents[1].order(fast()).unwrap();
    wait_shown(&mut admin, "server", ["takes connections", "stopped", ""]);
    wait_shown(&mut admin, "control_state", ["in production", "shut down in recovery", ""]);
    wait_shown(&mut admin, "last_order", ["", "stop: done", ""]);
    agents[1].order(start()).unwrap();

    agents[1].kill();
    wait_shown(&mut admin, "status", ["connected", "unreachable", "none"]);
    assert!(show(&mut admin, "pool_agents", "error")[1].contains("refused"));
    assert_eq!(show(&mut admin, "pool_agents", "server")[1], "", "nothing is said of a server that nobody sees");
    agents[1].crash_and_start();
    wait_shown(&mut admin, "status", ["connected", "connected", "none"]);
    wait_until("the log to tell both", || {
        let log = proxy.log();
        log.contains("WARNING:  node 1: agent 127.0.0.1:") && log.contains("node 1: its agent answers again")
    });

    proxy.write_file("agent_secret", "of-nobody-0123456789");
    wait_shown(&mut admin, "status", ["wrong secret", "wrong secret", "none"]);
    proxy.write_file("agent_secret", "short");
    wait_shown(&mut admin, "status", ["failed", "failed", "none"]);
    proxy.write_file("agent_secret", SECRET);
    wait_shown(&mut admin, "status", ["connected", "connected", "none"]);
}
