//! Networks that are cut in one place while all servers run.

use super::load::Load;
use super::{ANY, BUILTIN, NAMES, Owned, WHERE, failovers, primaries, servers, wait_fenced, wait_followed};
use crate::support::faults::Network;
use crate::support::proxy::Backend;
use crate::support::time::check_never;
use crate::support::{Proxy, Raw, wait_until, wire};
use std::time::Duration;
use weir_demo::{Crew, Server};

/// Longer than a failure of a node takes to be found.
const FOUND: Duration = Duration::from_secs(5);
/// Looks often, so that a node is found to be lost soon.
const WRITERS: Crew = Crew { writers: 2, transactions: 2, readers: 0, idle: 5, pause: Duration::ZERO, first: 0 };

/// Servers, and a network between each two that talk: the proxy to each of them, the standbys to their primary.
struct Web {
    // The proxy ends first, then its networks.
    proxy: Proxy,
    toward: Vec<Network>,
    stream: Network,
    cluster: Owned,
}

impl Web {
    fn new(conf: &[(&str, &str)], more: &str) -> Web {
        let cluster = servers(2, conf);
        let stream = Network::to(cluster.primary().port());
        for standby in cluster.standbys() {
            let upstream = format!("host=127.0.0.1 port={} user=postgres application_name={}", stream.port(), standby.name());
            standby.set_conf("primary_conninfo", &upstream).unwrap();
        }
        wait_until("the standbys to stream over the network", || stream.connections() == 2 && streaming(cluster.primary()) == 2);
        let toward: Vec<Network> = cluster.servers().iter().map(|server| Network::to(server.port())).collect();
        let backends: Vec<Backend> = toward.iter().map(|network| Backend::tcp(network.port(), 1)).collect();
        let proxy = Proxy::spawn(&backends, &format!("{BUILTIN}{more}\n{NAMES}"));
        wait_until("the driver to let writes through", || proxy.log().contains("writes go to node 0"));
        Web { proxy, toward, stream, cluster }
    }

    /// The primary is there alone, and goes on.
    fn isolate_primary(&self) {
        self.stream.stall_all();
        self.toward[0].stall_all();
    }

    fn mend(&self) {
        self.stream.go_on();
        self.toward[0].go_on();
    }

    fn is_down(&self, node: usize) -> bool {
        self.proxy.nodes("status")[node] == "down"
    }
}

fn streaming(server: &Server) -> usize {
    server.value(super::STREAMING).unwrap().parse().unwrap()
}

/// Writes go on, and not there.
fn check_unwritten(old: &Server, load: &Load) {
    let before = load.noted();
    load.wait_acknowledged(100);
    // Commits that wait for a standby there appear when their sessions are ended: rows alone do not tell.
    let later = load.noted().since(&before);
    assert_eq!(later.missing_on(old).len(), later.acknowledged.len(), "the old primary gets no write");
}

/// One of the standbys is the primary, it lacks nothing, and no client had to log in again.
fn check_replaced(web: &Web, load: Load) {
    let outcome = load.end();
    let old = web.cluster.primary().port();
    let news: Vec<&Server> = primaries(&web.cluster).into_iter().filter(|server| server.port() != old).collect();
    let [new] = news[..] else { panic!("one new primary") };
    assert!(outcome.missing_on(new).is_empty());
    assert_eq!(outcome.lost, 0, "{:?}", outcome.errors);
    assert_eq!(web.proxy.console().value(&format!("begin; {WHERE}")), new.port().to_string());
}

#[test]
fn a_primary_that_only_its_standbys_lost_keeps_the_writes() {
    let web = Web::new(&[], "");
    let load = Load::with(&web.proxy, WRITERS);
    web.stream.stall_all();
    check_never("a standby is promoted", FOUND, || primaries(&web.cluster).len() > 1);
    load.wait_acknowledged(100);
    web.mend();
    wait_followed(web.cluster.primary(), 2);
    let outcome = load.end();
    assert!(outcome.missing_on(web.cluster.primary()).is_empty());
    assert_eq!((outcome.lost, outcome.errors.len(), failovers(&web.proxy)), (0, 0, 0), "{:?}", outcome.errors);
}

#[test]
fn commits_that_wait_for_standbys_wait_for_the_network_and_nothing_is_promoted() {
    let web = Web::new(&[ANY], "");
    let load = Load::with(&web.proxy, WRITERS);
    web.stream.stall_all();
    let waits = "select count(*) from pg_stat_activity where wait_event = 'SyncRep'";
    wait_until("all writers to wait for a standby", || web.cluster.primary().value(waits).unwrap() == "4");
    let before = load.noted().acknowledged.len();
    check_never("a standby is promoted", FOUND, || primaries(&web.cluster).len() > 1);
    assert_eq!(load.noted().acknowledged.len(), before, "nothing is acknowledged without a standby");
    web.mend();
    load.wait_acknowledged(100);
    let outcome = load.end();
    assert!(outcome.missing_on(web.cluster.primary()).is_empty());
    assert_eq!((outcome.lost, outcome.errors.len(), failovers(&web.proxy)), (0, 0, 0), "{:?}", outcome.errors);
}

#[test]
fn a_standby_that_only_the_proxy_lost_is_out_of_use_until_the_network_is_mended() {
    let web = Web::new(&[], "");
    let load = Load::with(&web.proxy, Crew { readers: 4, ..WRITERS });
    web.toward[1].stall_all();
    wait_until("the standby to be out of use", || web.is_down(1));
    load.wait_acknowledged(100);
    web.toward[1].go_on();
    wait_until("the standby to be in use again", || !web.is_down(1));
    load.wait_acknowledged(100);
    let outcome = load.end();
    assert!(outcome.failed_reads.is_empty(), "{:?}", outcome.failed_reads);
    assert!(outcome.missing_on(web.cluster.primary()).is_empty());
    assert_eq!((outcome.lost, outcome.errors.len()), (0, 0), "{:?}", outcome.errors);
    assert_eq!(primaries(&web.cluster).len(), 1);
}

#[test]
fn a_primary_that_is_alone_acknowledges_nothing_and_a_standby_takes_over() {
    let web = Web::new(&[ANY], "");
    let old = web.cluster.primary();
    let load = Load::with(&web.proxy, WRITERS);
    web.isolate_primary();
    // A client past the proxy, of the old primary.
    let mut direct = Raw::tcp(old.port()).log_in("postgres", "postgres", &[]).unwrap();
    direct.send(&wire::query("insert into written values (-1)"));
    wait_until("a standby to take over", || failovers(&web.proxy) == 1);
    load.wait_acknowledged(100);
    check_unwritten(old, &load);
    assert!(direct.is_silent_for(Duration::from_secs(1)), "the old primary acknowledges nothing");
    web.mend();
    wait_fenced(old);
    check_unwritten(old, &load);
    check_replaced(&web, load);
    // The fence ended its session, and what it wrote was never acknowledged.
    assert!(direct.until_end().iter().all(|message| message.tag != b'C'), "the old primary acknowledges nothing");
}

/// A port that refuses is taken for a server that ended, whatever its standbys hear.
#[test]
fn a_primary_behind_a_firewall_that_refuses_is_replaced_and_gets_no_write() {
    let web = Web::new(&[ANY], "");
    let old = web.cluster.primary();
    let load = Load::with(&web.proxy, WRITERS);
    web.toward[0].refuse();
    wait_until("a standby to take over", || failovers(&web.proxy) == 1);
    load.wait_acknowledged(100);
    check_unwritten(old, &load);
    web.toward[0].accept_again();
    wait_fenced(old);
    check_unwritten(old, &load);
    check_replaced(&web, load);
}
