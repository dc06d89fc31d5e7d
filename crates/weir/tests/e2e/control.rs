//! The control thread: nodes are watched under any load, and one node delays no other.

use crate::support::faults::Network;
use crate::support::ground::{cluster, wait_for_catalog};
use crate::support::proxy::{Backend, show};
use crate::support::{Ground, Proxy, Raw, wait_until};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::{fs, thread};
use weir_demo::Mode;

const WHERE: &str = "select inet_server_port()";

/// `SCHED_OTHER` as the kernel numbers it; workers are of `SCHED_BATCH` where that starves none. Source: sched(7).
const ORDINARY: &str = "0";

/// Name and scheduling class of each thread of a proxy.
fn threads(proxy: &Proxy) -> Vec<(String, String)> {
    let folder = format!("/proc/{}/task", proxy.pid());
    let all = fs::read_dir(folder)
        .expect("the proxy runs")
        .filter_map(|entry| fs::read_to_string(entry.ok()?.path().join("stat")).ok());
    all.filter_map(|stat| {
        // pid (name) state ppid … : the class is the 41st word.
        let (head, rest) = stat.rsplit_once(')')?;
        let name = head.split_once('(')?.1.to_string();
        Some((name, rest.split_whitespace().nth(38)?.to_string()))
    })
    .collect()
}

fn class_of(proxy: &Proxy, thread: &str) -> Option<String> {
    threads(proxy).into_iter().find(|(name, _)| name == thread).map(|(_, class)| class)
}

#[test]
fn a_node_that_hangs_delays_the_answers_of_no_other() {
    let cluster = cluster(2);
    cluster.primary().query("create table t (a int)").unwrap();
    cluster.wait_caught_up().unwrap();
    let [hanging, well] = cluster.standbys() else { panic!("two standbys") };
    let network = Network::to(hanging.port());
    let backends = [Backend::tcp(cluster.primary().port(), 0), Backend::tcp(network.port(), 0), Backend::tcp(well.port(), 1)];
    // The question to the node that hangs is not given up before the test is over.
    let proxy = Proxy::spawn(&backends, "sr_check_period = 1\nconnect_timeout = 600000");
    proxy.wait_for_nodes(3);
    let mut client = proxy.console();
    wait_for_catalog(&mut client, "postgres");
    let checks = |proxy: &Proxy| -> Vec<u64> {
        show(&mut proxy.console(), "pool_health_check_stats", "success_count")
            .iter()
            .map(|count| count.parse().unwrap())
            .collect()
    };
    network.stall_all();
    let before = checks(&proxy);
    wait_until("the others to be asked for their roles, several times", || {
        let now = checks(&proxy);
        now[0] >= before[0] + 3 && now[2] >= before[2] + 3
    });
    assert!(checks(&proxy)[1] <= before[1] + 1, "the one that hangs has not answered");
    for count in 1..=5 {
        client.run("insert into t values (1)");
        wait_until("the other standby to be known to have replayed it", || client.value(WHERE) == well.port().to_string());
        assert_eq!(client.value("select count(*) from t"), count.to_string());
    }
    well.stop(Mode::Immediate).unwrap();
    wait_until("the loss of another node to be seen", || proxy.nodes("status") == ["up", "up", "down"]);
}

#[test]
fn nodes_are_watched_while_all_workers_are_busy() {
    let ground = Ground::new();
    let proxy = ground.proxy("worker_threads = 1\nsr_check_period = 1\nconnect_timeout = 5000");
    let (over, served) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        for _ in 0..8 {
            let mut client = ground.client(&proxy);
            let (over, served) = (&over, &served);
            scope.spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    client.run("select 1");
                    served.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let checks = || -> Vec<u64> {
            let mut console = proxy.console();
            show(&mut console, "pool_health_check_stats", "success_count").iter().map(|count| count.parse().unwrap()).collect()
        };
        let (before, statements) = (checks(), served.load(Ordering::Relaxed));
        wait_until("all nodes to be asked several times", || {
            checks().iter().zip(&before).all(|(now, before)| *now >= before + 3)
        });
        wait_until("statements to have run meanwhile", || served.load(Ordering::Relaxed) > statements + 100);
        assert_eq!(class_of(&proxy, "weir-control").as_deref(), Some(ORDINARY), "it lets no worker go first");
        over.store(true, Ordering::Relaxed);
    });
    let failed = show(&mut proxy.console(), "pool_health_check_stats", "fail_count");
    assert!(failed.iter().all(|count| count == "0"), "no node looked silent: {failed:?}\n{}", proxy.log());
}

#[test]
fn each_node_is_asked_over_one_connection() {
    let cluster = cluster(1);
    cluster.primary().query("create role watcher login superuser").unwrap();
    cluster.wait_caught_up().unwrap();
    // An administrator's rights to see are no question to a server.
    let proxy = Proxy::start(&cluster, "sr_check_user = 'watcher'\nsr_check_period = 1\nadmin_users = 'postgres'");
    let mut client: Raw = proxy.console();
    wait_for_catalog(&mut client, "postgres");
    let rounds = proxy.metric("position_rounds_total");
    wait_until("both to be asked for roles and for positions", || {
        client.run("select txid_current_if_assigned()");
        proxy.metric("position_rounds_total") > rounds + 3
    });
    for server in cluster.servers() {
        // Catalogs are another connection's.
        let text = "select count(*) from pg_stat_activity where usename = 'watcher' and application_name <> 'weir_catalog'";
        let asked = server.value(text).unwrap();
        assert_eq!(asked, "1");
    }
}
