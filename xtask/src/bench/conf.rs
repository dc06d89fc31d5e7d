//! The configuration files of the systems under test.
//!
//! Fair means: the same number of server connections for both poolers, everyone logs in by trust, nobody logs, and
//! otherwise each system's own defaults.

use std::fmt::Write as _;

use super::workload::{Door, SHARED_PLACES, Stage};

/// PgBouncer's database in session mode, for workloads that its transaction mode cannot do.
pub const SESSION_DATABASE: &str = "bench_session";
/// Database of the noisy tenant.
pub const NOISY_DATABASE: &str = "template1";
/// Room for the idle workload and a few clients more.
const CLIENTS_OF_POOLERS: u32 = 10_200;

/// Answers are kept in memory.
const CACHE: &str = "memory_cache_enabled = on\n";
/// A million of them.
const HOARD: &str = "memqcache_total_size = 1GB\nmemqcache_max_num_cache = 2000000\n";

fn in_memcached(port: u16) -> String {
    format!("memqcache_method = 'memcached'\nmemqcache_memcached_host = '127.0.0.1'\nmemqcache_memcached_port = {port}\n")
}

/// Settings that differ from run to run.
pub struct Settings {
    /// Folder for sockets, process ids and logs.
    pub folder: String,
    /// Where the system listens.
    pub port: u16,
    /// A port for those that want two (PCP).
    pub second_port: u16,
    /// A port for memcached, if answers are kept there.
    pub third_port: u16,
    /// Where PostgreSQL listens, the primary first.
    pub server_ports: Vec<u16>,
    /// How reads are spread over them.
    pub stage: Stage,
    /// Most clients at the same time, idle ones not counted.
    pub clients_max: u32,
    /// Server connections of a pooler in transaction mode.
    pub pool_size: u32,
    /// This PgBouncer renames prepared statements.
    pub bouncer_renames: bool,
    /// How clients come in.
    pub door: Door,
}

/// The servers, and how much each is to read.
fn backends(s: &Settings) -> String {
    let mut lines = String::new();
    for (at, port) in s.server_ports.iter().enumerate() {
        let is_spared = at == 0 && s.stage.is_of_standbys();
        let weight = u8::from(!is_spared);
        // Writing to a String cannot fail.
        let _ = write!(
            lines,
            "backend_hostname{at} = '127.0.0.1'\nbackend_port{at} = {port}\nbackend_weight{at} = {weight}\n\
             backend_flag{at} = 'ALLOW_TO_FAILOVER'\n"
        );
    }
    lines
}

/// Weir's pgpool.conf.
pub fn weir(s: &Settings) -> String {
    let Settings { folder, port, pool_size, .. } = s;
    let backends = backends(s);
    let balance = if s.stage == Stage::Unspread { "off" } else { "on" };
    let cache = match s.stage {
        Stage::Cached => CACHE.to_owned(),
        Stage::Hoard => [CACHE, HOARD].concat(),
        Stage::Shelved => [CACHE, &in_memcached(s.third_port)].concat(),
        Stage::Shared => format!("max_server_connections_per_node = {SHARED_PLACES}\n"),
        _ => String::new(),
    };
    let io = if s.stage.has_epoll() { "io_method = epoll\n" } else { "" };
    let causal = match s.stage {
        Stage::Uncausal => "causal_reads = off\n",
        Stage::Session => "causal_reads = session\n",
        Stage::Global => "causal_reads = global\n",
        _ => "",
    };
    let door = match s.door {
        Door::Open => String::new(),
        Door::Tls => format!("ssl = on\nssl_cert = '{folder}/server.crt'\nssl_key = '{folder}/server.key'\n"),
        Door::Scram => format!("pool_passwd = '{folder}/pool_passwd'\n"),
    };
    format!(
        "listen_addresses = '127.0.0.1'\nport = {port}\nunix_socket_directories = '{folder}'\n\
         {backends}{causal}{cache}{io}pool_mode = transaction\npool_size = {pool_size}\nmax_client_connections = {CLIENTS_OF_POOLERS}\n\
         num_init_children = {CLIENTS_OF_POOLERS}\nmax_pool = 1\nload_balance_mode = {balance}\n\
         sr_check_user = 'postgres'\nlog_min_messages = warning\npid_file_name = '{folder}/weir.pid'\nwork_dir = '{folder}'\n{door}"
    )
}

/// PgBouncer's ini file: transaction mode, and one database in session mode.
pub fn bouncer(s: &Settings) -> String {
    let Settings { folder, port, pool_size, clients_max, .. } = s;
    let server_port = s.server_ports.first().copied().unwrap_or_default();
    let method = if s.door == Door::Scram { "scram-sha-256" } else { "trust" };
    let door = match s.door {
        Door::Tls => format!(
            "client_tls_sslmode = allow\nclient_tls_cert_file = {folder}/server.crt\nclient_tls_key_file = {folder}/server.key\n"
        ),
        Door::Open | Door::Scram => String::new(),
    };
    let shared = match s.stage {
        // Its limit over several databases (`max_user_connections`) gives the quiet tenant no answer in 20 s: each gets half.
        Stage::Shared => format!("max_db_connections = {}\n", SHARED_PLACES / 2),
        _ => String::new(),
    };
    let renames = if s.bouncer_renames { "max_prepared_statements = 100\n" } else { "" };
    format!(
        "[databases]\npostgres = host=127.0.0.1 port={server_port}\n\
         {NOISY_DATABASE} = host=127.0.0.1 port={server_port}\n\
         {SESSION_DATABASE} = host=127.0.0.1 port={server_port} dbname=postgres pool_mode=session pool_size={clients_max}\n\
         [pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\n\
         auth_type = {method}\nauth_file = {folder}/users.txt\npool_mode = transaction\n\
         default_pool_size = {pool_size}\nmax_client_conn = {CLIENTS_OF_POOLERS}\n{renames}{shared}\
         log_connections = 0\nlog_disconnections = 0\nlog_stats = 0\n\
         logfile = {folder}/pgbouncer.log\npidfile = {folder}/pgbouncer.pid\n\
         ignore_startup_parameters = extra_float_digits\n{door}"
    )
}

/// Pgpool-II's pgpool.conf: streaming replication mode, a process for each client, the shared relation cache on.
pub fn pgpool(s: &Settings) -> String {
    let Settings { folder, port, second_port, clients_max, .. } = s;
    // Its own sizes: with ours it takes all of its shared memory before it starts.
    let cache = match s.stage {
        Stage::Cached => format!("memory_cache_enabled = on\nmemqcache_method = 'shmem'\nmemqcache_oiddir = '{folder}'\n"),
        Stage::Shelved => format!("{CACHE}memqcache_oiddir = '{folder}'\n{}", in_memcached(s.third_port)),
        _ => String::new(),
    };
    let children = clients_max + 4;
    let backends = backends(s);
    let door = match s.door {
        Door::Tls => format!("ssl = on\nssl_cert = '{folder}/server.crt'\nssl_key = '{folder}/server.key'\n"),
        Door::Open | Door::Scram => String::new(),
    };
    format!(
        "backend_clustering_mode = 'streaming_replication'\nlisten_addresses = '127.0.0.1'\nport = {port}\n\
         pcp_listen_addresses = '127.0.0.1'\npcp_port = {second_port}\n\
         socket_dir = '{folder}'\npcp_socket_dir = '{folder}'\nunix_socket_directories = '{folder}'\n\
         {backends}{cache}enable_shared_relcache = on\nnum_init_children = {children}\nmax_pool = 1\n\
         load_balance_mode = on\nenable_pool_hba = off\npool_passwd = ''\n\
         sr_check_user = 'postgres'\nsr_check_database = 'postgres'\nlogging_collector = off\n\
         log_min_messages = error\npid_file_name = '{folder}/pgpool.pid'\nlogdir = '{folder}'\n{door}"
    )
}
