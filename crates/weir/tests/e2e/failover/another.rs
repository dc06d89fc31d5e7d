//! Another cluster at the address of a server: `pg_upgrade`, a restore from a dump, blue and green servers.

use crate::support::faults::Network;
use crate::support::ground::{Owned, cluster};
use crate::support::proxy::{Backend, show};
use crate::support::{Proxy, Raw, wait_until};
use weir_demo::Mode;

const CONF: &str = "failover_wait = 1s\nhealth_check_period = 1\nfailover_alone = on\nadmin_users = 'postgres'\n";
const WRITE: &str = "insert into written values (1)";

/// Two clusters, and an address that leads to the first one.
struct Scene {
    blue: Owned,
    green: Owned,
    address: Network,
    proxy: Proxy,
}

impl Scene {
    fn new(conf: &str) -> Scene {
        let (blue, green) = (cluster(0), cluster(0));
        for one in [&blue, &green] {
            one.primary().query("create table written (a int)").unwrap();
        }
        let address = Network::to(blue.primary().port());
        let proxy = Proxy::spawn(&[Backend::tcp(address.port(), 1)], &format!("{CONF}{conf}"));
        wait_until("a write", || writes(&proxy));
        Scene { blue, green, address, proxy }
    }

    /// The first one is shut down, and the other one takes its address.
    fn replace(&self) {
        self.blue.primary().stop(Mode::Fast).unwrap();
        wait_until("the end to be noticed", || self.proxy.log().contains("writes wait"));
        self.address.lead_to(self.green.primary().port());
        wait_until("the other cluster to be seen", || self.proxy.log().contains("node 0 is a server of another cluster (system"));
    }

    fn on_green(&self) -> usize {
        self.green.primary().value("select count(*) from written").unwrap().parse().unwrap()
    }
}

fn log_in(proxy: &Proxy) -> Option<Raw> {
    Raw::try_tcp(proxy.port())?.log_in("postgres", "postgres", &[]).ok()
}

fn writes(proxy: &Proxy) -> bool {
    log_in(proxy).is_some_and(|mut client| client.try_rows(WRITE).is_ok())
}

fn console(proxy: &Proxy) -> Raw {
    Raw::unix(proxy.folder(), proxy.port()).log_in("pgbouncer", "pgbouncer", &[]).unwrap()
}

#[test]
fn another_cluster_gets_nothing_until_an_operator_names_it() {
    for mode in ["follow", "builtin", "off"] {
        let scene = Scene::new(&format!("failover_mode = {mode}\n"));
        let mut client = log_in(&scene.proxy).unwrap();
        scene.replace();
        let refused = client.try_rows(WRITE).unwrap_err();
        assert_eq!(refused.sqlstate, "57P03", "{mode}");
        assert!(refused.detail.contains("a server of another cluster answers at the primary's address"), "{mode}: {refused:?}");
        // Nobody can log in anew meanwhile, since a greeting comes from a server.
        assert_eq!(show(&mut client, "pool_nodes", "status"), ["down"], "{mode}");
        let told = &show(&mut client, "pool_failover", "reason")[0];
        assert!(told.contains("another cluster"), "{mode}: {told}");
        assert_eq!(scene.on_green(), 0, "{mode}");
        console(&scene.proxy).run("PROMOTE 0");
        wait_until("a write to go on", || client.try_rows(WRITE).is_ok());
        assert_eq!(scene.on_green(), 1, "{mode}");
        assert_eq!(scene.proxy.nodes("status"), ["up"], "{mode}");
        let log = scene.proxy.log();
        assert_eq!(log.matches("node 0 is a server of another cluster (system").count(), 1, "{mode}: {log}");
    }
}

#[test]
fn connections_to_the_cluster_of_before_end_when_another_one_is_named() {
    let scene = Scene::new("");
    let mut client = log_in(&scene.proxy).unwrap();
    client.run(WRITE);
    // The first one goes on, and with it connections of the pool.
    scene.address.lead_to(scene.green.primary().port());
    wait_until("the other cluster to be seen", || scene.proxy.log().contains("node 0 is a server of another cluster (system"));
    console(&scene.proxy).run("PROMOTE 0");
    wait_until("a write to go on", || client.try_rows(WRITE).is_ok());
    assert_eq!(scene.on_green(), 1);
}

#[test]
fn the_server_of_before_is_used_again_when_it_is_back() {
    let scene = Scene::new("");
    scene.replace();
    scene.blue.primary().start().unwrap();
    scene.address.lead_to(scene.blue.primary().port());
    wait_until("a write to go on", || writes(&scene.proxy));
    assert_eq!(scene.on_green(), 0);
}

#[test]
fn a_reload_that_gives_the_address_of_another_cluster_is_enough() {
    for mode in ["follow", "builtin"] {
        let scene = Scene::new(&format!("failover_mode = {mode}\n"));
        scene.blue.primary().stop(Mode::Fast).unwrap();
        scene.proxy.add_conf(&format!("backend_port0 = {}", scene.green.primary().port()));
        scene.proxy.reload();
        wait_until("a write to go on", || writes(&scene.proxy));
        assert!(scene.on_green() >= 1, "{mode}");
        assert!(scene.proxy.log().contains("node 0 is the primary of the cluster with system identifier"), "{mode}");
    }
}

#[test]
fn a_node_that_is_always_the_primary_serves_another_cluster_and_the_log_says_so() {
    let scene = Scene::new("backend_flag0 = 'ALWAYS_PRIMARY'\n");
    scene.blue.primary().stop(Mode::Fast).unwrap();
    scene.address.lead_to(scene.green.primary().port());
    wait_until("a write to go on", || writes(&scene.proxy));
    wait_until("it to be told", || scene.proxy.log().contains("node 0 is the primary of the cluster with system identifier"));
    assert_eq!(scene.proxy.nodes("status"), ["up"]);
}
