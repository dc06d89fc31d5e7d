//! The servers tests share, and a database for each test.

use super::certs::Signed;
use super::{Proxy, Raw};
use std::ops::Deref;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use weir_demo::{Auth, Cluster, HbaMethod, Mode, Options, Programs, Server, Template, User};

/// Standbys of the shared cluster.
const STANDBYS: usize = 2;
/// The name of connections that do not pass through a proxy.
const DIRECT: &str = "direct";
/// Longest wait for anything a test expects to happen.
pub const LIMIT: Duration = Duration::from_secs(120);

/// A database of its own on servers shared with other tests. Nothing a test does here may stop, promote or slow down a server.
pub struct Ground {
    pub cluster: Arc<Shared>,
    pub database: String,
}

/// Servers that several tests use, and their databases no test uses now.
pub struct Shared {
    cluster: Owned,
    free: Mutex<Vec<String>>,
}

impl Deref for Shared {
    type Target = Cluster;

    fn deref(&self) -> &Cluster {
        &self.cluster
    }
}

impl Ground {
    /// A primary and two standbys.
    pub fn new() -> Ground {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let cluster = shared();
        let free = lock(&cluster.free).pop();
        let database = free.unwrap_or_else(|| {
            let database = format!("ground_{}", NEXT.fetch_add(1, Ordering::Relaxed));
            cluster.primary().query(&format!("create database {database}")).unwrap();
            cluster.wait_caught_up().unwrap();
            database
        });
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
        let mut client = client.unwrap_or_else(|failure| panic!("cannot log in: {failure:?}"));
        wait_for_catalog(&mut client, &self.database);
        client
    }

    /// A client of the primary itself, for comparison.
    pub fn direct(&self) -> Raw {
        self.direct_to(self.cluster.primary())
    }

    pub fn direct_to(&self, server: &Server) -> Raw {
        let client = Raw::tcp(server.port()).log_in("postgres", &self.database, &[("application_name", DIRECT)]);
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

    /// The proxy's connections to this test's database on the primary, by process number.
    pub fn server_connections(&self) -> Vec<String> {
        let database = &self.database;
        // Connections by which Weir reads catalogs serve nobody.
        let text = format!(
            "select pid from pg_stat_activity where datname = '{database}' and backend_type = 'client backend' and application_name not in ('{DIRECT}', 'weir_catalog')"
        );
        let rows = self.cluster.primary().query(&text).unwrap();
        rows.into_iter().flatten().flatten().collect()
    }
}

impl Drop for Ground {
    /// Keeps the database as it was made, for another test: a database costs 22 MB and half a second on three servers.
    fn drop(&mut self) {
        // After a failed test a connection may hang: nobody shall wait for it.
        if !std::thread::panicking() && self.clean().is_ok() {
            lock(&self.cluster.free).push(std::mem::take(&mut self.database));
        }
    }
}

impl Ground {
    fn clean(&self) -> anyhow::Result<()> {
        let database = &self.database;
        for server in self.cluster.servers() {
            let kill = format!("select pg_terminate_backend(pid) from pg_stat_activity where datname = '{database}'");
            weir_demo::wait_until("connections of a test to end", LIMIT, || Ok(server.query(&kill)?.is_empty()))?;
        }
        let mut sql = self.cluster.primary().connect("postgres", database)?;
        let schemas = "select nspname from pg_namespace where nspname !~ '^pg_' and nspname <> 'information_schema'";
        for schema in sql.query(schemas)?.into_iter().flatten().flatten() {
            sql.query(&format!("drop schema {schema} cascade"))?;
        }
        sql.query("create schema public; select lo_unlink(oid) from pg_largeobject_metadata")?;
        let resets = "select case setrole when 0 then format('alter database %I reset all', datname) \
            else format('alter role %I in database %I reset all', pg_get_userbyid(setrole), datname) end \
            from pg_db_role_setting join pg_database as d on d.oid = setdatabase where datname = current_database()";
        for reset in sql.query(resets)?.into_iter().flatten().flatten() {
            sql.query(&reset)?;
        }
        drop(sql);
        self.cluster.wait_caught_up()
    }
}

/// The cluster all tests of this program share. It ends with the last test that holds it: a `static` that owned it would never
/// be dropped, and leave its folder behind.
fn shared() -> Arc<Shared> {
    static SHARED: Mutex<Weak<Shared>> = Mutex::new(Weak::new());
    let mut shared = lock(&SHARED);
    if let Some(cluster) = shared.upgrade() {
        return cluster;
    }
    let cluster = Arc::new(Shared { cluster: cluster(STANDBYS), free: Mutex::default() });
    *shared = Arc::downgrade(&cluster);
    cluster
}

/// A test that failed while it held the lock has left the value whole: each use is one step.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The data folder that all clusters of this program begin with. It ends with the last cluster, as the shared cluster does.
fn template() -> Arc<Template> {
    static TEMPLATE: Mutex<Weak<Template>> = Mutex::new(Weak::new());
    let mut template = lock(&TEMPLATE);
    if let Some(template) = template.upgrade() {
        return template;
    }
    let made = Programs::find().and_then(Template::new).unwrap_or_else(|error| panic!("no data folder: {error:#}"));
    let made = Arc::new(made);
    *template = Arc::downgrade(&made);
    made
}

/// Servers that end at once, without writing data down that nobody will read.
pub struct Owned {
    cluster: Cluster,
    /// The next cluster begins with it, too.
    _template: Arc<Template>,
}

impl Deref for Owned {
    type Target = Cluster;

    fn deref(&self) -> &Cluster {
        &self.cluster
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        for server in self.cluster.servers() {
            if std::thread::panicking() {
                eprintln!("--- end of the log of {}:\n{}", server.name(), server.log_end());
            }
            server.thaw();
            // A server that does not stop is killed when the cluster is dropped.
            let _ = server.stop(Mode::Immediate);
        }
    }
}

/// Settings of all servers of tests, beside those of `weir_demo`. Checkpoints and vacuum would only cost time; the size of the log is that
/// of memory, if the data lie there.
const SETTINGS: [(&str, &str); 6] = [
    ("max_connections", "400"),
    ("autovacuum", "off"),
    ("checkpoint_timeout", "1h"),
    ("max_wal_size", "512MB"),
    ("full_page_writes", "off"),
    ("wal_init_zero", "off"),
];

/// Servers of a test's own.
pub fn cluster(standbys: usize) -> Owned {
    cluster_with(Options { standbys, ..Options::default() })
}

pub fn cluster_with(mut options: Options) -> Owned {
    // A test's own come last: the last one counts.
    let own = std::mem::take(&mut options.extra_conf);
    options.extra_conf = SETTINGS.iter().map(|(name, value)| (name.to_string(), value.to_string())).chain(own).collect();
    let template = template();
    if options.programs.is_none() {
        options.template = Some(template.clone());
    }
    let cluster = Cluster::start(options).unwrap_or_else(|error| panic!("no cluster: {error:#}"));
    let major = cluster.primary().programs().major().to_string();
    if let Ok(meant) = std::env::var("WEIR_TEST_PG") {
        assert_eq!(major, meant, "WEIR_TEST_PG names another version than WEIR_PG_BIN holds");
    }
    Owned { cluster, _template: template }
}

/// A server with TLS that knows `anna` and her password, with these lines of its pg_hba.conf.
pub fn encrypted_cluster(signed: &Signed, hba_lines: &[&str]) -> Owned {
    let users = vec![User { name: "anna".into(), password: "secret of anna".into() }];
    let conf = [("ssl", "on"), ("ssl_cert_file", "weir.crt"), ("ssl_key_file", "weir.key")];
    let files = [("weir.crt", &signed.cert), ("weir.key", &signed.key)];
    cluster_with(Options {
        auth: Auth { method: HbaMethod::Scram, users, hba_lines: hba_lines.iter().map(ToString::to_string).collect() },
        extra_conf: conf.map(|(name, value)| (name.to_string(), value.to_string())).into(),
        extra_files: files.map(|(name, text)| (name.into(), text.clone().into_bytes())).into(),
        ..Options::default()
    })
}

/// Waits until the proxy knows a database as it is now, or why it cannot: before, statements with names go to the primary.
pub fn wait_for_catalog(client: &mut Raw, database: &str) {
    wait_until("the catalog to be read", || {
        let rows = client.rows("show pool_catalogs");
        let is_known = |row: &Vec<String>| matches!(row[1].as_str(), "current" | "kept" | "unused") || !row[8].is_empty();
        rows.iter().any(|row| row[0] == database && is_known(row))
    });
}

/// Asks until the answer is yes; fails the test, naming `what`, after `LIMIT`.
pub fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    weir_demo::wait_until(what, LIMIT, || Ok(done())).unwrap();
}
