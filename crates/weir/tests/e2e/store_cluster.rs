//! Answers that lie in Redis Cluster: three masters, the first with a replica.
//!
//! Without `redis-server` (Debian: the package of that name) these tests say so and do nothing.

use super::cache::{OBJECTS, WRITES, hits, warm};
use super::store_faults::wait_said;
use super::stores::{Kind, Store, one_weir, run_soon};
use crate::support::{Ground, Proxy, Raw, wait_until};
use weir_demo::ReservedPort;

/// Slots of each master.
const SLOTS: [&str; 3] = ["0 5460", "5461 10922", "10923 16383"];

pub(super) struct Cluster {
    /// The last is a replica of the first, at the begin.
    nodes: Vec<Store>,
    /// Ports over which nodes talk to each other.
    buses: Vec<ReservedPort>,
    /// Ports for clients with TLS.
    safe: Vec<ReservedPort>,
}

impl Cluster {
    fn start() -> Option<Cluster> {
        Cluster::start_with(&[])
    }

    /// With words of its command line for TLS, if there are any.
    pub(super) fn start_with(tls: &[&str]) -> Option<Cluster> {
        let (mut nodes, mut buses, mut safe) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..=SLOTS.len() {
            let bus = ReservedPort::any().unwrap();
            let more = ["--cluster-enabled", "yes", "--cluster-node-timeout", "1000", "--cluster-replica-validity-factor", "0"];
            let port = bus.number().to_string();
            let safe_port = ReservedPort::any().unwrap();
            let tls_port = if tls.is_empty() { "0".to_string() } else { safe_port.number().to_string() };
            let words = [&more[..], &["--cluster-port", &port, "--tls-port", &tls_port], tls].concat();
            nodes.push(Store::start_with(Kind::Redis, &words)?);
            buses.push(bus);
            safe.push(safe_port);
        }
        let cluster = Cluster { nodes, buses, safe };
        for (at, node) in cluster.nodes.iter().enumerate() {
            node.say(&format!("CLUSTER SET-CONFIG-EPOCH {}\r\n", at + 1));
            if let Some(slots) = SLOTS.get(at) {
                node.say(&format!("CLUSTER ADDSLOTSRANGE {slots}\r\n"));
            }
        }
        wait_until("the nodes to know each other", || {
            cluster.introduce();
            (0..4).all(|at| cluster.knows_all(at))
        });
        let first = cluster.nodes[0].line("CLUSTER MYID");
        cluster.nodes[3].say(&format!("CLUSTER REPLICATE {first}\r\n"));
        wait_until("the replica to follow", || cluster.nodes[3].section("replication").contains("master_link_status:up"));
        wait_until("all to know it", || (0..3).all(|at| cluster.nodes[at].bulk("CLUSTER NODES").contains("slave")));
        Some(cluster)
    }

    /// Has the first meet those it does not know, again: a node that does not answer within the node timeout is forgotten.
    fn introduce(&self) {
        let known = self.nodes[0].bulk("CLUSTER NODES");
        for (node, bus) in self.nodes.iter().zip(&self.buses).skip(1) {
            let (port, bus) = (node.port.number(), bus.number());
            if !known.contains(&format!("@{bus} ")) {
                self.nodes[0].say(&format!("CLUSTER MEET 127.0.0.1 {port} {bus}\r\n"));
            }
        }
    }

    fn knows_all(&self, at: usize) -> bool {
        let info = self.nodes[at].bulk("CLUSTER INFO");
        info.contains("cluster_state:ok") && info.contains("cluster_known_nodes:4")
    }

    fn conf(&self) -> String {
        self.nodes[1].own_conf()
    }

    /// Settings for a Weir that speaks TLS.
    pub(super) fn safe_conf(&self) -> String {
        self.nodes[1].conf(self.safe[1].number())
    }

    /// Asks about a table until each master holds an answer.
    pub(super) fn fill(&self, proxy: &Proxy, client: &mut Raw, table: &str) {
        let mut number = 0;
        wait_until("all masters to hold something", || {
            number += 1;
            warm(proxy, client, &format!("select {number} from {table}"));
            self.nodes[..SLOTS.len()].iter().all(|node| node.line("DBSIZE") != "0")
        });
    }

    /// Has the replica of the first master take its place.
    fn fail_over(&self) {
        let find = || [0, 3].into_iter().find(|at| self.nodes[*at].section("replication").contains("role:slave"));
        // The one that was master before may still be about to follow.
        wait_until("a replica of the first master to be found", || find().is_some());
        let replica = &self.nodes[find().expect("it was there a moment ago")];
        wait_until("it to follow its master", || replica.section("replication").contains("master_link_status:up"));
        let before = replica.bulk("CLUSTER FAILOVER");
        assert!(before.starts_with("+OK"), "{before}");
        wait_until("the other to be master", || replica.section("replication").contains("role:master"));
    }
}

#[test]
fn no_write_leaves_an_answer_in_a_cluster_that_is_not_true() {
    let Some(cluster) = Cluster::start() else { return };
    let ground = Ground::new();
    ground.prepare(OBJECTS);
    let one = ground.primary_proxy(&cluster.conf());
    let (mut reader, mut writer, mut direct) = (ground.client(&one), ground.client(&one), ground.direct());
    for (read, write) in &WRITES[..WRITES.len().min(12)] {
        assert_eq!(warm(&one, &mut reader, read), direct.rows(read), "{read}");
        writer.run(write);
        assert_eq!(reader.rows(read), direct.rows(read), "{read} after {write}");
    }
    cluster.fill(&one, &mut reader, "other");
}

#[test]
fn what_a_promoted_replica_has_from_before_is_not_given_out() {
    let Some(mut cluster) = Cluster::start() else { return };
    let ground = Ground::new();
    let tables: Vec<String> = (0..8).map(|at| format!("t{at}")).collect();
    tables.iter().for_each(|table| ground.prepare(&format!("create table {table} as select 1 as a")));
    let count = |table: &str| format!("select count(*) from {table}");
    let proxy = ground.primary_proxy(&cluster.conf());
    let mut client = ground.client(&proxy);
    tables.iter().for_each(|table| drop(warm(&proxy, &mut client, &count(table))));
    let all = |act: &str| format!("EVAL \"for _, key in ipairs(redis.call('KEYS', '*')) do {act} end return 'OK'\" 0\r\n");
    // As if the replica had heard nothing from now on.
    cluster.nodes[0].say(&all("redis.call('COPY', key, 'then:{' .. key .. '}', 'REPLACE')"));
    tables.iter().for_each(|table| client.run(&format!("insert into {table} values (2)")));
    wait_until("the replica to have it all", || {
        let offset = |at: usize| {
            cluster.nodes[at]
                .section("replication")
                .lines()
                .find(|line| line.starts_with("master_repl_offset"))
                .map(str::to_string)
        };
        offset(0) == offset(3)
    });
    cluster.nodes[0].kill();
    wait_until("the replica to be master", || cluster.nodes[3].section("replication").contains("role:master"));
    let back = "local was = string.match(key, '^then:{(.*)}$') if was then redis.call('COPY', key, was, 'REPLACE') end";
    wait_until("it to serve", || cluster.nodes[3].bulk("CLUSTER INFO").contains("cluster_state:ok"));
    cluster.nodes[3].say(&all(back));
    let before = hits(&proxy);
    tables.iter().for_each(|table| assert_eq!(warm(&proxy, &mut client, &count(table))[0][0], "2", "{table}"));
    assert!(hits(&proxy) > before, "the cluster serves again");
    tables.iter().for_each(|table| {
        run_soon(&mut client, &format!("insert into {table} values (3)"));
        assert_eq!(client.value(&count(table)), "3");
    });
}

#[test]
fn no_history_over_a_cluster_that_fails_over_again_and_again_shows_what_no_server_would_have_shown() {
    let Some(mut cluster) = Cluster::start() else { return };
    let conf = cluster.conf();
    let mut turns = 0;
    let (wrong, hits) = one_weir(&mut cluster, &conf, |cluster, watch| {
        watch.until_hits();
        cluster.fail_over();
        turns += 1;
    });
    assert!(wrong.is_empty(), "{} of them, the first: {}", wrong.len(), wrong[0]);
    assert!(hits > 0);
    assert!(turns > 0, "no replica has taken its master's place");
}

#[test]
fn a_cluster_of_which_a_master_is_gone_is_missed_and_said_so() {
    let Some(mut cluster) = Cluster::start() else { return };
    let ground = Ground::new();
    ground.prepare("create table t as select 1 as a");
    let proxy = ground.primary_proxy(&cluster.conf());
    let mut client = ground.client(&proxy);
    let read = "select count(*) from t";
    warm(&proxy, &mut client, read);
    cluster.nodes[2].kill();
    for count in 2..=4 {
        run_soon(&mut client, "insert into t values (1)");
        assert_eq!(client.value(read), count.to_string());
    }
    wait_said(&proxy, "does not serve as a store of answers");
    cluster.nodes[2].start_again();
    assert_eq!(warm(&proxy, &mut client, read)[0][0], "4");
}
