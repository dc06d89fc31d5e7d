//! `commit_outcome`, and numbers of transactions that a promoted standby gives out again: a client whose COMMIT was lost with the primary never hears
//! of the commit of the one that has its number now.

use crate::lost::seen;
use crate::support::faults::{Network, Toward};
use crate::support::ground::{Owned, cluster_with};
use crate::support::proxy::Backend;
use crate::support::{Proxy, Raw, wait_until, wire};
use std::time::Duration;
use weir_demo::{Options, Server};

const CONF: &str = "failover_mode = builtin\nhealth_check_period = 1\nhealth_check_timeout = 1\nhealth_check_max_retries = 1\n\
    health_check_retry_delay = 1\nfailover_on_backend_shutdown = on\nfailover_alone = on\nfailover_lag_max = -1\n\
    backend_application_name0 = 'primary'\nbackend_application_name1 = 'standby1'\ncommit_outcome = on\n";
/// One connection to a server: who has it keeps the question for an outcome waiting.
const ONE: &str = "pool_size = 1\nworker_threads = 1\n";

/// A primary, and a standby whose stream can be held up. All that Weir hears of the primary can be, too.
struct Stage {
    // The proxy ends first, then its network.
    proxy: Proxy,
    toward: Network,
    stream: Network,
    cluster: Owned,
}

impl Stage {
    fn new(more: &str) -> Stage {
        Stage::with(Options::default(), more)
    }

    /// A commit on the primary waits until the standby has acknowledged it.
    fn synchronous(more: &str) -> Stage {
        let extra_conf = vec![("synchronous_standby_names".to_owned(), "standby1".to_owned())];
        let stage = Stage::with(Options { extra_conf, ..Options::default() }, more);
        // Once it is promoted there is nobody to wait for.
        let standby = stage.standby();
        standby.set_conf("synchronous_standby_names", "").unwrap();
        wait_until("the standby to wait for nobody", || standby.value("show synchronous_standby_names").unwrap().is_empty());
        stage
    }

    fn with(options: Options, more: &str) -> Stage {
        let cluster = cluster_with(Options { standbys: 1, ..options });
        cluster.primary().query("create table t (a int)").unwrap();
        let stream = Network::to(cluster.primary().port());
        let standby = &cluster.standbys()[0];
        let upstream = format!("host=127.0.0.1 port={} user=postgres application_name={}", stream.port(), standby.name());
        standby.set_conf("primary_conninfo", &upstream).unwrap();
        let streaming = "select count(*) from pg_stat_replication where state = 'streaming'";
        wait_until("the standby to stream over the network", || {
            stream.connections() == 1 && cluster.primary().value(streaming).unwrap() == "1"
        });
        cluster.wait_caught_up().unwrap();
        let toward = Network::to(cluster.primary().port());
        let backends = [Backend::tcp(toward.port(), 0), Backend::tcp(standby.port(), 1)];
        let proxy = Proxy::spawn(&backends, &format!("{CONF}{more}"));
        wait_until("the driver to let writes through", || proxy.log().contains("writes go to node 0"));
        proxy.wait_for_nodes(2);
        Stage { proxy, toward, stream, cluster }
    }

    fn standby(&self) -> &Server {
        &self.cluster.standbys()[0]
    }

    /// A client sends the COMMIT of its row 1, and the primary carries it out and is lost before the answer arrives. Gives the client and the number of
    /// its transaction.
    fn lose_a_commit(&self, held: Held) -> (Raw, u64) {
        let mut client = self.proxy.console();
        client.run("begin");
        if held == Held::All {
            self.stream.stall_all();
        }
        client.run("insert into t values (1)");
        let primary = self.cluster.primary();
        let number = primary
            .value("select backend_xid from pg_stat_activity where state = 'idle in transaction' and backend_xid is not null");
        let number: u64 = number.unwrap().parse().unwrap();
        if held == Held::Commit {
            // A commit takes all of the log before it along.
            primary.query("create table other ()").unwrap();
            self.cluster.wait_caught_up().unwrap();
            self.stream.stall_all();
        }
        self.toward.stall_present(&[Toward::Client]);
        client.send(&wire::query("commit"));
        wait_until("the commit", || primary.value("select count(*) from t").unwrap() == "1");
        self.lose_primary();
        (client, number)
    }

    /// A client sends the COMMIT of its row 1, which reaches the standby. The primary waits in vain for its acknowledgement, and is lost. Gives what
    /// `lose_a_commit` does.
    ///
    /// The primary does what Weir asks in front of the COMMIT and the COMMIT itself in one go, so that little time lies between them.
    fn lose_a_synchronous_commit(&self) -> (Raw, u64) {
        let (mut client, mut console) = (self.proxy.console(), self.proxy.console());
        client.run("begin");
        client.run("insert into t values (1)");
        let number = client.value("select txid_current()").parse().unwrap();
        self.stream.stall_present(&[Toward::Server]);
        client.send(&wire::query("commit"));
        wait_until("the commit on the standby", || self.standby().value("select count(*) from t").unwrap() == "1");
        // Weir's only worker has heard by now what the primary has said before.
        console.rows("show pool_metrics");
        self.lose_primary();
        (client, number)
    }

    fn lose_primary(&self) {
        self.cluster.primary().kill9().unwrap();
        // All that was held up is lost.
        self.stream.refuse();
        self.toward.refuse();
    }

    fn rows(&self) -> String {
        self.standby().value("select coalesce(string_agg(distinct a::text, ',' order by a::text), '') from t").unwrap()
    }
}

/// The part of the first transaction that does not reach the standby.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Held {
    All,
    Commit,
}

/// Others write past Weir until the number is one of a transaction that was committed.
fn take(server: &Server, number: u64) {
    let status =
        format!("select case when {number} < txid_snapshot_xmax(txid_current_snapshot()) then txid_status({number}) end");
    wait_until("the number to be another's", || {
        server.query("insert into t values (2)").is_ok() && server.value(&status).is_ok_and(|status| status == "committed")
    });
    let owner = server.value(&format!("select a from t where xmin::text = '{number}'"));
    assert_eq!(owner.unwrap(), "2", "the second writer has the number");
}

#[test]
fn a_number_that_another_has_committed_since_is_not_the_clients() {
    let stage = Stage::new(ONE);
    let mut reader = stage.proxy.console();
    // On a loaded machine the primary may answer first: it has one connection, which the writer needs.
    wait_until("the transaction to begin on the standby", || {
        reader.run("rollback");
        reader.run("begin isolation level repeatable read read only");
        let rows = reader.rows("select inet_server_port(), count(*) from t");
        assert_eq!(rows[0][1], "0");
        rows[0][0] == stage.standby().port().to_string()
    });
    let (mut client, number) = stage.lose_a_commit(Held::All);
    wait_until("a new primary", || stage.proxy.log().contains("failover done"));
    take(stage.standby(), number);
    // Nobody has asked for the outcome yet: the reader has the only connection.
    assert!(client.is_silent_for(Duration::from_millis(100)));
    reader.run("commit");
    assert_eq!(seen(&client.until_ready()), ["ERROR 40001", "ZI"]);
    assert_eq!(stage.proxy.metric("outcomes_committed_total"), 0);
    assert_eq!(stage.rows(), "2");
}

/// The second writer may be there before Weir has asked which numbers were given out: then nothing is proved.
#[test]
fn a_number_that_is_taken_as_soon_as_the_standby_takes_writes_is_not_the_clients() {
    let stage = Stage::new("");
    let (mut client, number) = stage.lose_a_commit(Held::All);
    take(stage.standby(), number);
    let heard = seen(&client.until_ready());
    assert!(heard == ["ERROR 40001", "ZI"] || heard == ["ERROR 08007", "ZI"], "{heard:?}");
    assert_eq!(stage.rows(), "2");
}

#[test]
fn a_number_that_reached_the_standby_without_its_commit_was_not_committed() {
    let stage = Stage::new(ONE);
    let (mut client, number) = stage.lose_a_commit(Held::Commit);
    assert_eq!(seen(&client.until_ready()), ["ERROR 40001", "ZI"]);
    assert_eq!(stage.standby().value(&format!("select txid_status({number})")).unwrap(), "aborted");
    assert_eq!(stage.rows(), "");
}

#[test]
fn a_number_that_reached_the_standby_with_its_commit_is_the_clients() {
    // The system may have the primary wait for more than 10 ms between its answer to the question for the number and the commit, which prove nothing
    // then.
    const ROUNDS_MAX: usize = 12;
    for _ in 0..ROUNDS_MAX {
        let stage = Stage::synchronous(ONE);
        let (mut client, number) = stage.lose_a_synchronous_commit();
        let heard = seen(&client.until_ready());
        assert_eq!(stage.standby().value(&format!("select txid_status({number})")).unwrap(), "committed");
        assert_eq!(stage.rows(), "1");
        if heard == ["COMMIT", "ZI"] {
            assert_eq!(stage.proxy.metric("outcomes_committed_total"), 1);
            return;
        }
        assert_eq!(heard, ["ERROR 08007", "ZI"]);
    }
    panic!("no commit of {ROUNDS_MAX} was told, though each had reached the standby");
}
