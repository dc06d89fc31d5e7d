//! A proxy in one row's configuration before a cluster, and clients of it.

use crate::load;
use crate::support::certs::{Authority, Signed};
use crate::support::ground::{Owned, cluster_with};
use crate::support::proxy::{Backend, show};
use crate::support::{Proxy, Raw, wait_for_catalog, wait_until};
use crate::table::Row;
use weir_demo::{Options, Server, WalLevel};

/// An ordinary user: places that a server keeps for superusers are not for it.
pub const USER: &str = "app";
pub const DATABASE: &str = "postgres";
/// Few enough to be used up by a test; fewer than initdb's a standby that is a copy would not start with.
pub const CONNECTIONS_MAX: usize = 100;

/// Servers for rows one after the other: a primary and two standbys, each reached with and without TLS.
pub struct Servers {
    pub cluster: Owned,
    authority: Authority,
}

impl Servers {
    pub fn start() -> Servers {
        let authority = Authority::new("matrix");
        let Signed { cert, key, .. } = authority.server();
        let places = CONNECTIONS_MAX.to_string();
        let conf =
            [("max_connections", places.as_str()), ("ssl", "on"), ("ssl_cert_file", "weir.crt"), ("ssl_key_file", "weir.key")];
        let cluster = cluster_with(Options {
            standbys: 2,
            wal_level: WalLevel::Logical,
            extra_conf: conf.map(|(name, value)| (name.to_string(), value.to_string())).into(),
            extra_files: vec![("weir.crt".into(), cert.into_bytes()), ("weir.key".into(), key.into_bytes())],
            ..Options::default()
        });
        cluster.wait_streaming(2).unwrap();
        cluster.primary().query(&format!("create role {USER} login; grant all on schema public to {USER}")).unwrap();
        Servers { cluster, authority }
    }
}

/// A row's proxy before its servers.
pub struct Stage<'s> {
    pub row: Row,
    pub proxy: Proxy,
    pub servers: &'s Servers,
}

impl<'s> Stage<'s> {
    /// `more`: further lines of the configuration.
    pub fn set(row: &Row, servers: &'s Servers, more: &str) -> Stage<'s> {
        let stage = Stage::start(row, servers, &Stage::backends(row, servers), more, &[]);
        stage.proxy.wait_for_nodes(stage.nodes().len());
        wait_for_catalog(&mut stage.client(&[]), DATABASE);
        stage
    }

    /// Starts the proxy and waits for nothing but its port: of the servers it may know nothing yet.
    pub fn start(row: &Row, servers: &'s Servers, backends: &[Backend], more: &str, files: &[(&str, &str)]) -> Stage<'s> {
        let primary = servers.cluster.primary();
        let mut sql = primary.connect(USER, DATABASE).unwrap();
        sql.query(&load::tables()).unwrap();
        servers.cluster.wait_caught_up().unwrap();
        let Signed { cert, key, .. } = servers.authority.server();
        let files = [&[("server.crt", cert.as_str()), ("server.key", key.as_str())], files].concat();
        let proxy = Proxy::spawn_with_files(backends, &format!("{}{more}", row.configuration()), &files, &[]);
        proxy.wait_accepting();
        Stage { row: row.clone(), proxy, servers }
    }

    /// The row's servers as they are reached without anything between.
    pub fn backends(row: &Row, servers: &Servers) -> Vec<Backend> {
        let used = Stage::nodes_of(row, servers);
        used.iter().zip(row.weights()).map(|(server, weight)| Backend::tcp(server.port(), weight)).collect()
    }

    fn nodes_of<'a>(row: &Row, servers: &'a Servers) -> Vec<&'a Server> {
        servers.cluster.servers().iter().take(row.weights().len()).collect()
    }

    /// The servers that the proxy knows, the primary first.
    pub fn nodes(&self) -> Vec<&'s Server> {
        Stage::nodes_of(&self.row, self.servers)
    }

    /// A client, over TLS if the row says so.
    pub fn client(&self, parameters: &[(&str, &str)]) -> Raw {
        let raw = if self.row.is_on("tls") {
            Raw::tls(self.proxy.port(), self.servers.authority.client_config(&[]))
        } else {
            Raw::tcp(self.proxy.port())
        };
        raw.log_in(USER, DATABASE, parameters).unwrap_or_else(|failure| panic!("{}: cannot log in: {failure:?}", self.row))
    }

    /// Reads that each node has been sent.
    pub fn reads_by_node(&self) -> Vec<u64> {
        self.nodes_column("select_cnt").iter().map(|count| count.parse().unwrap()).collect()
    }

    fn nodes_column(&self, column: &str) -> Vec<String> {
        show(&mut self.client(&[]), "pool_nodes", column)
    }

    /// The proxy's own views, for a reader who looks why clients do not go on.
    pub fn describe(&self) -> String {
        let mut client = self.client(&[]);
        let views = ["pool_nodes", "pool_processes", "pool_pools"].map(|view| {
            let rows = client.rows(&format!("show {view}"));
            rows.iter().map(|row| row.join(" | ")).collect::<Vec<_>>().join("\n")
        });
        format!("{}\n{}", views.join("\n\n"), self.proxy.log())
    }

    /// How often a result came from memory.
    pub fn hits(&self) -> u64 {
        show(&mut self.client(&[]), "pool_cache", "num_cache_hits")[0].parse().unwrap()
    }

    pub fn wait_for_primary(&self, node: usize) {
        wait_until("the proxy to know the primary", || self.nodes_column("role")[node] == "primary");
    }
}
