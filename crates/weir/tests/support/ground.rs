//! The servers tests share, and a database for each test.

use super::{Proxy, Raw};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;
use weir_demo::{Cluster, Options, Server};

/// Standbys of the shared cluster.
const STANDBYS: usize = 2;
/// Longest wait for anything a test expects to happen.
pub const LIMIT: Duration = Duration::from_secs(60);

/// A database of its own on servers shared with other tests. Nothing a test does here may stop, promote or slow down a server.
pub struct Ground {
    pub cluster: Arc<Cluster>,
    pub database: String,
}

impl Ground {
    /// A primary and two standbys.
    pub fn new() -> Ground {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let cluster = shared();
        let database = format!("ground_{}", NEXT.fetch_add(1, Ordering::Relaxed));
        cluster.primary().query(&format!("create database {database}")).unwrap();
        cluster.wait_caught_up().unwrap();
        Ground { cluster, database }
    }

    /// Weir before all servers, reads on the standbys, each read on one chosen anew.
    pub fn proxy(&self, more: &str) -> Proxy {
        Proxy::start(&self.cluster, more)
    }

    /// Weir before the primary alone.
    pub fn primary_proxy(&self, more: &str) -> Proxy {
        Proxy::before(&[self.cluster.primary()], more)
    }

    /// A client of the proxy in this test's database.
    pub fn client(&self, proxy: &Proxy) -> Raw {
        self.client_with(proxy, &[])
    }

    pub fn client_with(&self, proxy: &Proxy, parameters: &[(&str, &str)]) -> Raw {
        let client = Raw::tcp(proxy.port()).log_in("postgres", &self.database, parameters);
        client.unwrap_or_else(|failure| panic!("cannot log in: {failure:?}"))
    }

    /// A client of the primary itself, to see what it sees.
    pub fn direct(&self) -> Raw {
        self.direct_to(self.cluster.primary())
    }

    pub fn direct_to(&self, server: &Server) -> Raw {
        let client = Raw::tcp(server.port()).log_in("postgres", &self.database, &[]);
        client.unwrap_or_else(|failure| panic!("cannot log in to the server: {failure:?}"))
    }

    /// Runs statements on the primary and waits until the standbys have replayed them.
    pub fn prepare(&self, text: &str) {
        let mut sql = self.cluster.primary().connect("postgres", &self.database).unwrap();
        sql.query(text).unwrap_or_else(|error| panic!("{text}: {error:#}"));
        self.cluster.wait_caught_up().unwrap();
    }

    pub fn primary_port(&self) -> String {
        self.cluster.primary().port().to_string()
    }

    pub fn standby_ports(&self) -> Vec<String> {
        self.cluster.standbys().iter().map(|server| server.port().to_string()).collect()
    }

    /// Connections to this test's database on the primary, other than `asker`'s.
    pub fn server_connections(&self) -> Vec<String> {
        let text = format!("select pid from pg_stat_activity where datname = '{}' and pid <> pg_backend_pid()", self.database);
        let rows = self.cluster.primary().query(&text).unwrap();
        rows.into_iter().flatten().flatten().collect()
    }
}

/// The cluster all tests of this program share. It ends with the last test that holds it: a `static` that owned it would never
/// be dropped, and leave its folder behind.
fn shared() -> Arc<Cluster> {
    static SHARED: Mutex<Weak<Cluster>> = Mutex::new(Weak::new());
    let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(cluster) = shared.upgrade() {
        return cluster;
    }
    let cluster = Arc::new(cluster(STANDBYS));
    *shared = Arc::downgrade(&cluster);
    cluster
}

/// Servers of a test's own.
pub fn cluster(standbys: usize) -> Cluster {
    cluster_with(Options { standbys, ..Options::default() })
}

pub fn cluster_with(mut options: Options) -> Cluster {
    options.extra_conf.push(("max_connections".into(), "400".into()));
    let cluster = Cluster::start(options).unwrap_or_else(|error| panic!("no cluster: {error:#}"));
    let major = cluster.primary().programs().major().to_string();
    if let Ok(meant) = std::env::var("WEIR_TEST_PG") {
        assert_eq!(major, meant, "WEIR_TEST_PG names another version than WEIR_PG_BIN holds");
    }
    cluster
}

/// Asks until the answer is yes; fails the test, naming `what`, after a minute.
pub fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    weir_demo::wait_until(what, LIMIT, || Ok(done())).unwrap();
}
