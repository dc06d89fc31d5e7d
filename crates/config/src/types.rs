//! The parts of a [`Config`](super::Config), written only by the setters of the parameter table.
use std::fmt;
use std::path::PathBuf;

use crate::pattern::PatternSet;

use super::encryption::SslMode;
use crate::client_demands::ClientDemands;
use crate::redirect::RedirectPreference;
use crate::routing::{CausalReads, OnWrite};
use crate::value::ParamValue;

#[derive(Debug, Clone, PartialEq)]
pub struct NodeConfig {
    pub id: u16,
    pub shard: u16,
    /// Name, address, or unix socket directory (begins with `/`).
    pub hostname: String,
    pub port: u16,
    /// Share of the balanced reads, not normalized; 0: none.
    pub weight: f64,
    pub allow_failover: bool,
    /// True if the node is the primary, whatever the server says.
    pub always_primary: bool,
    /// Location of the server; may be empty.
    pub zone: String,
    /// Name in `pg_stat_replication`; may be empty.
    pub application_name: String,
    pub data_directory: String,
    /// 0: no limit.
    pub connect_timeout_ms: u64,
    pub ssl_mode: SslMode,
    pub health: super::HealthConfig,
    /// Rank among standbys for promotion; 0: never.
    pub promote_priority: u32,
    pub agent: String,
}

#[derive(Debug, Clone)]
pub struct PoolConfig {
    pub mode: PoolMode,
    pub sequences: SequenceSessions,
    /// Per user, database and node; `num_init_children` already replaces 0.
    pub size: u32,
    /// 0: for ever.
    pub wait_timeout_ms: u64,
    pub num_init_children: u32,
    pub max_pool: u32,
    /// Age at which an idle server connection is closed; 0: never.
    pub connection_life_time_ms: u64,
    /// Idle time before closing; 0: never.
    pub server_idle_timeout_ms: u64,
    /// Tests a server connection idle for `check_after_ms`; empty: none.
    pub check_query: String,
    pub check_after_ms: u64,
    pub prepared_max: u32,
    pub unnamed: UnnamedStatements,
    pub reset_query_list: Vec<String>,
    /// True if the reset queries run after each use.
    pub reset_always: bool,
    pub max_clients: u32,
}

#[derive(Debug, Clone)]
pub struct RoutingConfig {
    pub load_balance: bool,
    pub statement_level: bool,
    /// Patterns match whole names.
    pub read_only_functions: PatternSet,
    /// Patterns match whole names.
    pub write_functions: PatternSet,
    /// Statements for the primary; patterns match whole statements.
    pub primary_patterns: PatternSet,
    /// Preferred nodes of reads.
    pub by_application: Vec<RedirectPreference>,
    pub by_database: Vec<RedirectPreference>,
    pub by_user: Vec<RedirectPreference>,
    /// True if a leading comment does not force the primary.
    pub allow_comments: bool,
    /// Location of this proxy; empty: not used.
    pub zone: String,
    pub check_unlogged: bool,
    pub on_write: OnWrite,
    /// Age at which a catalog is read again; 0: only after changes.
    pub catalog_expire_ms: u64,
    pub catalog_bytes_max: usize,
    pub statement_analysis_bytes_max: usize,
    pub causal: CausalReads,
    /// Longest wait of a read for a standby.
    pub causal_wait_ms: u64,
    pub causal_period_ms: u64,
}

#[derive(Debug, Clone, Default)]
pub struct CacheConfig {
    pub enabled: bool,
    pub method: MemqcacheMethod,
    pub memcached: StoreConfig,
    pub redis: StoreConfig,
    pub namespace: String,
    pub timeout_ms: u64,
    pub total_bytes: usize,
    pub answers_max: u32,
    /// Lifetime of an answer; 0: until one of its tables changes.
    pub expire_ms: u64,
    pub answer_bytes_max: usize,
    pub follows_writes: bool,
    /// Relations declared cacheable by the operator.
    pub safe_tables: Vec<String>,
    pub unsafe_tables: Vec<String>,
    /// True if the primary's WAL is followed, to see writes past the proxy.
    pub follows_wal: bool,
    /// Empty: test_decoding, which needs no publication.
    pub publication: String,
    /// True if an answer must show all that the primary had at the request.
    pub is_exact: bool,
    /// WAL lag up to which answers are served.
    pub lag_ms_max: u64,
}

impl CacheConfig {
    pub fn is_in_memory(&self) -> bool {
        self.method == MemqcacheMethod::Memory
    }

    pub fn store(&self) -> Option<&StoreConfig> {
        match self.method {
            MemqcacheMethod::Memory => None,
            MemqcacheMethod::Memcached => Some(&self.memcached),
            MemqcacheMethod::Redis => Some(&self.redis),
        }
        .filter(|_| self.enabled)
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum MemqcacheMethod {
    #[default]
    Memory,
    Memcached,
    Redis,
}

impl MemqcacheMethod {
    pub(crate) fn of(word: &str) -> MemqcacheMethod {
        match word {
            "memcached" => MemqcacheMethod::Memcached,
            "redis" => MemqcacheMethod::Redis,
            _ => MemqcacheMethod::Memory,
        }
    }
}

/// Access to a store. `Debug` masks the password.
#[derive(Clone, Default)]
pub struct StoreConfig {
    /// As written: see `cache::hosts`.
    pub hosts: String,
    pub port: u16,
    pub user: String,
    pub password: String,
    pub database: u32,
}

impl fmt::Debug for StoreConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let StoreConfig { hosts, port, user, password: _, database } = self;
        write!(f, "StoreConfig {{ {hosts} port {port}, user {user}, database {database} }}")
    }
}

/// Check of roles and lags. `Debug` masks the password.
#[derive(Clone)]
pub struct CheckConfig {
    /// 0: never.
    pub period_ms: u64,
    pub user: String,
    /// Empty: the one in the password file.
    pub password: String,
    pub database: String,
    /// WAL a standby may lack and still take reads; 0: any.
    pub delay_bytes_max: u64,
    /// Longest lag; 0: any. Takes precedence over bytes.
    pub delay_ms_max: u64,
    /// True if the least lagging standby is preferred to the primary.
    pub prefers_lower_delay: bool,
    pub log_delay: LogDelay,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogDelay {
    Always,
    /// Logged when reads go elsewhere because of the lag.
    OverThreshold,
    Never,
}

/// The kernel's detection of a lost server. 0: the system's value.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TcpConfig {
    pub keepalive: bool,
    /// Silence before the first probe.
    pub keepidle_ms: u64,
    pub keepintvl_ms: u64,
    /// Unanswered probes until the connection is broken.
    pub keepcnt: u32,
    /// Time until unacknowledged bytes break the connection.
    pub user_timeout_ms: u64,
}

/// Limits; 0: no limit.
#[derive(Debug, Clone, Default)]
pub struct LimitConfig {
    pub clients_per_user: u32,
    pub clients_per_database: u32,
    pub clients_per_address: u32,
    pub conns: u32,
    /// See [`Config::conns_per_node_max`](super::Config::conns_per_node_max).
    pub conns_per_node: u32,
    pub conns_per_user: u32,
    /// By the clients' name, to one node.
    pub conns_per_database: u32,
    /// Kept open per user, database and node.
    pub pool_min: u32,
    pub reserve: u32,
    /// Wait before a client may use the reserve.
    pub reserve_after_ms: u64,
    pub query_ms: u64,
    pub transaction_ms: u64,
    /// Idle time of a client within a transaction.
    pub idle_transaction_ms: u64,
    pub overrides: Vec<LimitOverride>,
}

#[derive(Clone, Debug)]
pub struct LimitOverride {
    pub(crate) user: Option<String>,
    pub(crate) database: Option<String>,
    pub(crate) values: Vec<(&'static str, ParamValue)>,
}

impl LimitOverride {
    pub fn database(&self) -> Option<&str> {
        self.database.as_deref()
    }

    /// `None`: all users.
    pub fn user(&self) -> Option<&str> {
        self.user.as_deref()
    }
}

#[derive(Debug, Clone)]
pub struct AdminConfig {
    /// Empty: no console.
    pub database: String,
    pub users: Vec<String>,
    pub stats_users: Vec<String>,
    pub stats_period_ms: u64,
    /// HTTP addresses; `*`: all.
    pub metrics_addresses: Vec<String>,
    /// 0: none.
    pub metrics_port: u16,
    pub dashboard: DashboardConfig,
    /// Passes the listening sockets to a new process; empty: none.
    pub takeover_socket: PathBuf,
    /// Time the old process leaves its clients; 0: for ever.
    pub takeover_drain_ms: u64,
}

/// Pages for people on the port of metrics.
#[derive(Debug, Clone, Default)]
pub struct DashboardConfig {
    pub is_on: bool,
    /// Clients elsewhere are served without TLS, too.
    pub allows_plain: bool,
}

#[derive(Debug, Clone)]
pub struct AuthConfig {
    pub use_hba: bool,
    pub demands: ClientDemands,
    /// Relative to the configuration's directory.
    pub ident_file: Option<PathBuf>,
    /// Relative to the configuration's directory.
    pub passwd_file: Option<PathBuf>,
    pub passwd_proof: PasswdProof,
    /// Relative to the configuration's directory.
    pub database_file: Option<PathBuf>,
    /// True if users without a known secret send a clear text password.
    pub allow_clear_text: bool,
    /// 0: no limit.
    pub timeout_ms: u64,
    /// User who asks servers about users; empty: the user of the role check.
    pub ask_user: String,
    /// Query for a verifier; empty: none.
    pub ask_query: String,
    pub ask_database: String,
    pub ask_timeout_ms: u64,
    pub cache_ms: u64,
    /// For answers of `auth_query`; `None`: `cache_ms`.
    pub query_cache_ms: Option<u64>,
    /// Failed logins per user and address before a slowdown; 0: no limit.
    pub failures_max: u32,
}

/// Proof by users in `pool_passwd` without `pool_hba.conf`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PasswdProof {
    Always,
    /// The password if a server asks for one, else nothing.
    AsServers,
}

impl PasswdProof {
    pub fn from_word(word: &str) -> PasswdProof {
        if word == "as_servers" { PasswdProof::AsServers } else { PasswdProof::Always }
    }
}

/// Form of the lines of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    Text,
    Json,
    Logfmt,
}

#[derive(Debug, Clone)]
pub struct LogConfig {
    pub min_messages: LogLevel,
    pub connections: bool,
    pub disconnections: bool,
    /// With % escapes.
    pub line_prefix: String,
    pub statement: bool,
    pub per_node_statement: bool,
    pub notice_per_node_statement: bool,
    pub client_messages: bool,
    /// Duration from which statements are logged; `None`: never.
    pub slow_ms: Option<u64>,
    pub format: LogFormat,
    pub destinations: Vec<String>,
    /// `LOCAL0` to `LOCAL7`, or one of PgBouncer's other four.
    pub syslog_facility: &'static str,
    pub syslog_ident: String,
    pub file: LogFileConfig,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LogFileConfig {
    pub is_used: bool,
    pub directory: PathBuf,
    /// With strftime escapes.
    pub name: String,
    pub mode: u32,
    /// 0: no limit.
    pub rotation_age_ms: u64,
    pub rotation_bytes: u64,
    /// True if rotation by age overwrites a file of the same name.
    pub truncates: bool,
}

/// Replication mode. Only the first and the last work; the others are errors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClusteringMode {
    StreamingReplication,
    NativeReplication,
    LogicalReplication,
    SnapshotIsolation,
    Raw,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PoolMode {
    Transaction,
    Session,
    Statement,
}

/// Treatment of a server connection whose session used sequences.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SequenceSessions {
    /// The session gets it again while it is free.
    Prefer,
    Pin,
}

/// Treatment of unnamed Parses whose text came before.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum UnnamedStatements {
    Pass,
    /// Reused text, with plans for the values.
    #[default]
    Reuse,
    /// Reused text, with the server's choice of plans as for prepared statements.
    ReusePlans,
}

impl UnnamedStatements {
    pub(crate) fn from_word(word: &str) -> UnnamedStatements {
        match word {
            "pass" => UnnamedStatements::Pass,
            "reuse_plans" => UnnamedStatements::ReusePlans,
            _ => UnnamedStatements::Reuse,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SigintStop {
    /// Clients are disconnected.
    Fast,
    /// Transactions end first.
    WaitForServers,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IoMethod {
    /// io_uring if the kernel allows it, else epoll.
    Auto,
    IoUring,
    Epoll,
}

/// Severities in PostgreSQL's order for the server's log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogLevel {
    Debug5,
    Debug4,
    Debug3,
    Debug2,
    Debug1,
    Info,
    Notice,
    Warning,
    Error,
    Log,
    Fatal,
    Panic,
}

impl fmt::Debug for CheckConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CheckConfig")
            .field("period_ms", &self.period_ms)
            .field("user", &self.user)
            .field("password", &"*****")
            .field("database", &self.database)
            .field("delay_bytes_max", &self.delay_bytes_max)
            .field("delay_ms_max", &self.delay_ms_max)
            .field("prefers_lower_delay", &self.prefers_lower_delay)
            .field("log_delay", &self.log_delay)
            .finish()
    }
}

impl NodeConfig {
    pub(super) fn empty(id: u16) -> NodeConfig {
        NodeConfig {
            id,
            shard: 0,
            hostname: String::new(),
            port: 0,
            weight: 0.0,
            allow_failover: true,
            always_primary: false,
            zone: String::new(),
            application_name: String::new(),
            data_directory: String::new(),
            connect_timeout_ms: 0,
            ssl_mode: SslMode::Auto,
            health: super::HealthConfig::default(),
            promote_priority: 0,
            agent: String::new(),
        }
    }

    /// Returns the agent's address, if set and valid.
    pub fn agent(&self) -> Option<(String, u16)> {
        match crate::agents::place(&self.agent) {
            Ok(Some(place)) => Some(place),
            Ok(None) | Err(_) => None,
        }
    }

    pub(crate) fn set_flags(&mut self, words: &[String]) {
        let has = |word: &str| words.iter().any(|given| given == word);
        self.allow_failover = !has("DISALLOW_TO_FAILOVER");
        self.always_primary = has("ALWAYS_PRIMARY");
    }
}

impl CheckConfig {
    pub(super) fn empty() -> CheckConfig {
        CheckConfig {
            period_ms: 0,
            user: String::new(),
            password: String::new(),
            database: String::new(),
            delay_bytes_max: 0,
            delay_ms_max: 0,
            prefers_lower_delay: false,
            log_delay: LogDelay::Never,
        }
    }
}

impl PoolConfig {
    pub(super) fn empty() -> PoolConfig {
        PoolConfig {
            mode: PoolMode::Transaction,
            sequences: SequenceSessions::Prefer,
            size: 0,
            wait_timeout_ms: 0,
            num_init_children: 0,
            max_pool: 0,
            connection_life_time_ms: 0,
            server_idle_timeout_ms: 0,
            prepared_max: 0,
            unnamed: UnnamedStatements::Pass,
            check_query: String::new(),
            check_after_ms: 0,
            reset_query_list: Vec::new(),
            reset_always: false,
            max_clients: 0,
        }
    }
}

impl AdminConfig {
    pub(super) fn empty() -> AdminConfig {
        AdminConfig {
            database: String::new(),
            users: Vec::new(),
            stats_users: Vec::new(),
            stats_period_ms: 0,
            metrics_addresses: Vec::new(),
            metrics_port: 0,
            dashboard: DashboardConfig::default(),
            takeover_socket: PathBuf::new(),
            takeover_drain_ms: 0,
        }
    }
}

impl RoutingConfig {
    /// Returns the mode; `dml_adaptive_global` means at least `Tables`.
    pub fn causal_reads(&self) -> CausalReads {
        if self.on_write == OnWrite::DmlAdaptiveGlobal { self.causal.max(CausalReads::Tables) } else { self.causal }
    }

    /// True if a catalog made under `other` has the same content.
    pub fn judges_as(&self, other: &RoutingConfig) -> bool {
        self.read_only_functions == other.read_only_functions
            && self.write_functions == other.write_functions
            && self.check_unlogged == other.check_unlogged
    }

    pub(super) fn empty() -> RoutingConfig {
        RoutingConfig {
            load_balance: false,
            statement_level: false,
            read_only_functions: PatternSet::default(),
            write_functions: PatternSet::default(),
            primary_patterns: PatternSet::default(),
            by_application: Vec::new(),
            by_database: Vec::new(),
            by_user: Vec::new(),
            allow_comments: false,
            zone: String::new(),
            check_unlogged: false,
            on_write: OnWrite::Transaction,
            catalog_expire_ms: 0,
            catalog_bytes_max: 0,
            statement_analysis_bytes_max: 0,
            causal: CausalReads::Off,
            causal_wait_ms: 0,
            causal_period_ms: 0,
        }
    }
}

impl AuthConfig {
    pub(super) fn empty() -> AuthConfig {
        AuthConfig {
            use_hba: false,
            demands: ClientDemands::default(),
            ident_file: None,
            passwd_file: None,
            passwd_proof: PasswdProof::Always,
            database_file: None,
            allow_clear_text: false,
            timeout_ms: 0,
            ask_user: String::new(),
            ask_query: String::new(),
            ask_database: String::new(),
            ask_timeout_ms: 0,
            cache_ms: 0,
            query_cache_ms: None,
            failures_max: 0,
        }
    }
}

impl LogConfig {
    pub(super) fn empty() -> LogConfig {
        LogConfig {
            min_messages: LogLevel::Warning,
            connections: false,
            disconnections: false,
            line_prefix: String::new(),
            statement: false,
            per_node_statement: false,
            notice_per_node_statement: false,
            client_messages: false,
            slow_ms: None,
            format: LogFormat::Text,
            destinations: Vec::new(),
            syslog_facility: "",
            syslog_ident: String::new(),
            file: LogFileConfig::default(),
        }
    }
}

impl ClusteringMode {
    pub(crate) fn from_word(word: &str) -> ClusteringMode {
        match word {
            "native_replication" => ClusteringMode::NativeReplication,
            "logical_replication" => ClusteringMode::LogicalReplication,
            "snapshot_isolation" => ClusteringMode::SnapshotIsolation,
            "raw" => ClusteringMode::Raw,
            _ => ClusteringMode::StreamingReplication,
        }
    }
}

impl LogDelay {
    pub(crate) fn from_word(word: &str) -> LogDelay {
        match word {
            "always" => LogDelay::Always,
            "none" => LogDelay::Never,
            _ => LogDelay::OverThreshold,
        }
    }
}

impl PoolMode {
    pub(crate) fn from_word(word: &str) -> PoolMode {
        match word {
            "session" => PoolMode::Session,
            "statement" => PoolMode::Statement,
            _ => PoolMode::Transaction,
        }
    }
}

impl SequenceSessions {
    pub(crate) fn from_word(word: &str) -> SequenceSessions {
        if word == "pin" { SequenceSessions::Pin } else { SequenceSessions::Prefer }
    }
}

impl SigintStop {
    pub(super) fn from_word(word: &str) -> SigintStop {
        if word == "wait_for_servers" { SigintStop::WaitForServers } else { SigintStop::Fast }
    }
}

impl IoMethod {
    pub(crate) fn from_word(word: &str) -> IoMethod {
        match word {
            "io_uring" => IoMethod::IoUring,
            "epoll" => IoMethod::Epoll,
            _ => IoMethod::Auto,
        }
    }
}

impl LogConfig {
    /// True if log lines go elsewhere than stderr.
    pub fn is_kept(&self) -> bool {
        let goes = |name: &str| self.destinations.iter().any(|destination| destination == name);
        goes("syslog") || (self.file.is_used && (goes("stderr") || self.destinations.is_empty()))
    }
}

impl LogLevel {
    pub(crate) fn from_word(word: &str) -> LogLevel {
        match word {
            "debug5" => LogLevel::Debug5,
            "debug4" => LogLevel::Debug4,
            "debug3" => LogLevel::Debug3,
            "debug2" => LogLevel::Debug2,
            "debug1" => LogLevel::Debug1,
            "info" => LogLevel::Info,
            "notice" => LogLevel::Notice,
            "error" => LogLevel::Error,
            "fatal" => LogLevel::Fatal,
            "panic" => LogLevel::Panic,
            // PostgreSQL and Pgpool-II rank `log` above warnings and errors. An operator who sets it wants more, not less: nothing is
            // hidden.
            _ => LogLevel::Warning,
        }
    }
}
