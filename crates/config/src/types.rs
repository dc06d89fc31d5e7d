//! The parts of a [`Config`](super::Config), as typed fields. Only the setters of the parameter table write them.
use std::fmt;
use std::path::PathBuf;

use crate::pattern::PatternSet;

use super::encryption::SslMode;
use crate::client_demands::ClientDemands;
use crate::redirect::RedirectPreference;
use crate::routing::{CausalReads, OnWrite};
use crate::value::ParamValue;

/// One PostgreSQL server.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeConfig {
    /// Number in the file.
    pub id: u16,
    /// Name, address, or directory of a unix socket if it begins with `/`.
    pub hostname: String,
    /// Port.
    pub port: u16,
    /// Share of the balanced reads, not normalised; 0 for none.
    pub weight: f64,
    /// May be detached when it fails.
    pub allow_failover: bool,
    /// It is the primary, whatever the server says.
    pub always_primary: bool,
    /// Where it is; may be empty.
    pub zone: String,
    /// Its name in `pg_stat_replication`; may be empty.
    pub application_name: String,
    /// Its data directory; may be empty.
    pub data_directory: String,
    /// Time to wait for it to accept a connection; 0 for no limit.
    pub connect_timeout_ms: u64,
    /// When connections to it are encrypted.
    pub ssl_mode: SslMode,
    /// How it is checked.
    pub health: super::HealthConfig,
    /// Its rank among standbys when one is promoted; 0: never.
    pub promote_priority: u32,
    /// Where its agent is, as the operator wrote it; may be empty.
    pub agent: String,
}

/// Server connections and their limits.
#[derive(Debug, Clone)]
pub struct PoolConfig {
    /// When a client gives its server connection back.
    pub mode: PoolMode,
    /// Treatment of a connection on which a session has drawn from sequences.
    pub sequences: SequenceSessions,
    /// Server connections per user, database and node; the file's 0 is already replaced by `num_init_children`.
    pub size: u32,
    /// Time a client waits for a server connection; 0 for ever.
    pub wait_timeout_ms: u64,
    /// First factor of the limit on server connections to one node.
    pub num_init_children: u32,
    /// Second factor of the limit on server connections to one node.
    pub max_pool: u32,
    /// Age at which an idle server connection is closed; 0 for never.
    pub connection_life_time_ms: u64,
    /// Time after which an unused server connection is closed; 0 for never.
    pub server_idle_timeout_ms: u64,
    /// Query that tests a connection before a client gets it, if it has rested for `check_after_ms`; empty for none.
    pub check_query: String,
    pub check_after_ms: u64,
    /// Prepared statements kept on one server connection.
    pub prepared_max: u32,
    /// Treatment of statements without a name that come again.
    pub unnamed: UnnamedStatements,
    /// Statements that clean a server connection.
    pub reset_query_list: Vec<String>,
    /// They run each time that a client gives a server connection back.
    pub reset_always: bool,
    /// Clients that may be connected at once.
    pub max_clients: u32,
}

/// Rules for the node of each statement.
#[derive(Debug, Clone)]
pub struct RoutingConfig {
    /// Spread reads over the nodes.
    pub load_balance: bool,
    /// Choose the node anew for every read.
    pub statement_level: bool,
    /// Functions that write nothing; each pattern matches whole names.
    pub read_only_functions: PatternSet,
    /// Functions that write; each pattern matches whole names.
    pub write_functions: PatternSet,
    /// Statements for the primary; each pattern matches whole statements.
    pub primary_patterns: PatternSet,
    /// Where reads of certain applications, in certain databases, of certain users shall go.
    pub by_application: Vec<RedirectPreference>,
    pub by_database: Vec<RedirectPreference>,
    pub by_user: Vec<RedirectPreference>,
    /// A comment in front of a text keeps it from no node.
    pub allow_comments: bool,
    /// Where this proxy is; empty: nobody asks.
    pub zone: String,
    /// Reads of unlogged tables are for the primary.
    pub check_unlogged: bool,
    /// How long reads stay on the primary after a write.
    pub on_write: OnWrite,
    /// Longest time a catalog is believed without being read anew; 0: as long as nothing changes.
    pub catalog_expire_ms: u64,
    /// Most memory for the rows of a catalog while it is read.
    pub catalog_bytes_max: usize,
    /// Longest statement that is analysed.
    pub statement_analysis_bytes_max: usize,
    /// Sessions whose reads never go back in time.
    pub causal: CausalReads,
    /// Longest wait of a read for a standby.
    pub causal_wait_ms: u64,
    /// Time between two questions for WAL positions.
    pub causal_period_ms: u64,
}

/// The cache of answers.
#[derive(Debug, Clone, Default)]
pub struct CacheConfig {
    /// Answer from memory.
    pub enabled: bool,
    /// Where answers are kept.
    pub method: MemqcacheMethod,
    /// Addresses and users of the stores, of both kinds.
    pub memcached: StoreConfig,
    pub redis: StoreConfig,
    /// Begin of all keys in a store.
    pub namespace: String,
    /// Longest time a store may take to answer.
    pub timeout_ms: u64,
    /// Memory for answers.
    pub total_bytes: usize,
    /// Most answers kept.
    pub answers_max: u32,
    /// Life of an answer; 0: until one of its tables changes.
    pub expire_ms: u64,
    /// Largest answer that is kept.
    pub answer_bytes_max: usize,
    /// Writes invalidate results.
    pub follows_writes: bool,
    /// Relations of which the operator says that their answers may be kept.
    pub safe_tables: Vec<String>,
    /// Tables whose results are never cached.
    pub unsafe_tables: Vec<String>,
    /// The primary's log is followed, so that writes past us are seen.
    pub follows_wal: bool,
    /// The publication that tells of them; empty: test_decoding does, which needs none.
    pub publication: String,
    /// A result is served only if it shows all that the primary had when it was asked for.
    pub is_exact: bool,
    /// Time by which the log may lie behind for answers to be given.
    pub lag_ms_max: u64,
}

impl CacheConfig {
    /// True if answers are kept in our own memory.
    pub fn is_in_memory(&self) -> bool {
        self.method == MemqcacheMethod::Memory
    }

    /// The store answers are kept in, if there is one.
    pub fn store(&self) -> Option<&StoreConfig> {
        match self.method {
            MemqcacheMethod::Memory => None,
            MemqcacheMethod::Memcached => Some(&self.memcached),
            MemqcacheMethod::Redis => Some(&self.redis),
        }
        .filter(|_| self.enabled)
    }
}

/// Where answers are kept.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum MemqcacheMethod {
    #[default]
    Memory,
    Memcached,
    Redis,
}

impl MemqcacheMethod {
    /// The method of a word of `memqcache_method`.
    pub(crate) fn of(word: &str) -> MemqcacheMethod {
        match word {
            "memcached" => MemqcacheMethod::Memcached,
            "redis" => MemqcacheMethod::Redis,
            _ => MemqcacheMethod::Memory,
        }
    }
}

/// How a store is reached. The password is masked in `Debug`.
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

/// The look at role and lag of the nodes. The password is masked in `Debug`.
#[derive(Clone)]
pub struct CheckConfig {
    /// Time between two looks; 0 for never.
    pub period_ms: u64,
    /// User.
    pub user: String,
    /// Password; empty for the one in the password file.
    pub password: String,
    /// Database.
    pub database: String,
    /// Most WAL a standby may lack that takes reads; 0: any.
    pub delay_bytes_max: u64,
    /// Longest time it may lag; 0: any. Goes before the former.
    pub delay_ms_max: u64,
    /// Rather the standby that lags least than the primary.
    pub prefers_lower_delay: bool,
    /// When lags are logged.
    pub log_delay: LogDelay,
}

/// When the lag of a standby is logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogDelay {
    /// Whenever there is one.
    Always,
    /// When its reads go elsewhere because of it.
    OverThreshold,
    /// Never.
    Never,
}

/// How the system finds out that a server's machine is gone. 0: as the system is set.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TcpConfig {
    /// Ask a server that says nothing whether it is there.
    pub keepalive: bool,
    /// Time of silence before the first question.
    pub keepidle_ms: u64,
    /// Time between two questions.
    pub keepintvl_ms: u64,
    /// Questions without an answer after which the connection is broken.
    pub keepcnt: u32,
    /// Time after which the connection is broken if sent bytes are not acknowledged.
    pub user_timeout_ms: u64,
}

/// How much of everything there may be. A limit of 0 is none.
#[derive(Debug, Clone, Default)]
pub struct LimitConfig {
    /// Clients of one user.
    pub clients_per_user: u32,
    /// Clients of one database.
    pub clients_per_database: u32,
    /// Clients from one address.
    pub clients_per_address: u32,
    /// Server connections in all.
    pub conns: u32,
    /// Server connections to one node; see [`Config::conns_per_node_max`](super::Config::conns_per_node_max).
    pub conns_per_node: u32,
    /// Server connections of one user to one node.
    pub conns_per_user: u32,
    /// Server connections of one database, as clients call it, to one node.
    pub conns_per_database: u32,
    /// Server connections kept open for a user and database on a node.
    pub pool_min: u32,
    /// Server connections beyond the pool's size.
    pub reserve: u32,
    /// Time after which a client may use them.
    pub reserve_after_ms: u64,
    /// Time a statement may take.
    pub query_ms: u64,
    /// Time a transaction may take.
    pub transaction_ms: u64,
    /// Time a client may do nothing within a transaction.
    pub idle_transaction_ms: u64,
    /// Limits that differ for some users and databases.
    pub overrides: Vec<LimitOverride>,
}

/// One entry of `limit_override_list`.
#[derive(Clone, Debug)]
pub struct LimitOverride {
    pub(crate) user: Option<String>,
    pub(crate) database: Option<String>,
    pub(crate) values: Vec<(&'static str, ParamValue)>,
}

impl LimitOverride {
    /// The database whose limits it sets, if it names one.
    pub fn database(&self) -> Option<&str> {
        self.database.as_deref()
    }

    /// The user for whom it holds; none: all.
    pub fn user(&self) -> Option<&str> {
        self.user.as_deref()
    }
}

/// The administration console and the endpoint of monitoring.
#[derive(Debug, Clone)]
pub struct AdminConfig {
    /// Name of the console's database; empty for no console.
    pub database: String,
    /// Users who may do everything in the console.
    pub users: Vec<String>,
    /// Users who may look.
    pub stats_users: Vec<String>,
    /// Time over which averages are taken.
    pub stats_period_ms: u64,
    /// Addresses of the HTTP responder; `*` stands for all.
    pub metrics_addresses: Vec<String>,
    /// Its port; 0 for none.
    pub metrics_port: u16,
    /// Where a new process gets our listening sockets; empty for nowhere.
    pub takeover_socket: PathBuf,
    /// Time the old process leaves its clients; 0 for ever.
    pub takeover_drain_ms: u64,
}

/// Users who may log in, and their proofs.
#[derive(Debug, Clone)]
pub struct AuthConfig {
    /// Rules of `pool_hba.conf` decide.
    pub use_hba: bool,
    /// Demands on all clients beside the rules.
    pub demands: ClientDemands,
    /// File with maps of user names, relative to the directory of the configuration file.
    pub ident_file: Option<PathBuf>,
    /// File with users and passwords, relative to the directory of the configuration file.
    pub passwd_file: Option<PathBuf>,
    /// The condition on which users of that file are asked for their passwords, where there are no rules.
    pub passwd_proof: PasswdProof,
    /// File with databases by another name, relative to the folder of the configuration; `None`: there is none.
    pub database_file: Option<PathBuf>,
    /// Ask users without a known secret for a password in clear text.
    pub allow_clear_text: bool,
    /// Time a client has to log in; 0 for no limit.
    pub timeout_ms: u64,
    /// User as whom servers are asked about users; empty for the user who asks for roles.
    pub ask_user: String,
    /// Query that asks a server for a user's verifier; empty if servers are not asked.
    pub ask_query: String,
    /// Database in which servers are asked about users.
    pub ask_database: String,
    /// Time to wait for the answer.
    pub ask_timeout_ms: u64,
    /// Time an answer is believed.
    pub cache_ms: u64,
    /// Time an answer of `auth_query` is believed; `None`: that of the others.
    pub query_cache_ms: Option<u64>,
    /// Failed logins of one user from one address before more are slowed down; 0 for no limit.
    pub failures_max: u32,
}

/// The proof of users with a line in `pool_passwd`, without `pool_hba.conf`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PasswdProof {
    /// The password.
    Always,
    /// The password if a server asks for one, else nothing.
    AsServers,
}

impl PasswdProof {
    /// The meaning of a word that the parameter allows.
    pub fn from_word(word: &str) -> PasswdProof {
        if word == "as_servers" { PasswdProof::AsServers } else { PasswdProof::Always }
    }
}

/// Messages that are logged, and their form.
#[derive(Debug, Clone)]
pub struct LogConfig {
    /// Least severe messages that are logged.
    pub min_messages: LogLevel,
    /// Every client that connects.
    pub connections: bool,
    /// Every client that leaves.
    pub disconnections: bool,
    /// Begin of every line, with % signs.
    pub line_prefix: String,
    /// Every statement.
    pub statement: bool,
    /// Every statement with its node.
    pub per_node_statement: bool,
    /// A NOTICE to the client with the node of each statement.
    pub notice_per_node_statement: bool,
    /// Every message of a client.
    pub client_messages: bool,
    /// Statements that took at least so long; none if there is no number.
    pub slow_ms: Option<u64>,
    /// A JSON object on each line.
    pub is_json: bool,
    /// `stderr`, `syslog`, or both.
    pub destinations: Vec<String>,
    /// `LOCAL0` to `LOCAL7`, or one of the four that PgBouncer knows beside them.
    pub syslog_facility: &'static str,
    /// Name in syslog.
    pub syslog_ident: String,
    /// The log's files.
    pub file: LogFileConfig,
}

/// Files of the log, and when a new one begins.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LogFileConfig {
    /// True if there are files, instead of stderr.
    pub is_used: bool,
    /// Where they are.
    pub directory: PathBuf,
    /// Their names, with the % signs of strftime.
    pub name: String,
    /// Their permissions.
    pub mode: u32,
    /// Age at which a new one begins; 0 for no limit.
    pub rotation_age_ms: u64,
    /// Size at which a new one begins; 0 for no limit.
    pub rotation_bytes: u64,
    /// A file of the same name is overwritten when a new one begins because of its age.
    pub truncates: bool,
}

/// How the nodes are kept equal. Only the first and the last work yet; reading a file with another one is an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClusteringMode {
    /// PostgreSQL streams WAL.
    StreamingReplication,
    /// We write everywhere.
    NativeReplication,
    /// PostgreSQL replicates rows.
    LogicalReplication,
    /// We write everywhere, with equal snapshots.
    SnapshotIsolation,
    /// Not at all.
    Raw,
}

/// When a client gives its server connection back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PoolMode {
    /// After each transaction.
    Transaction,
    /// When it disconnects.
    Session,
    /// After each statement.
    Statement,
}

/// Treatment of a connection on which a session has drawn from sequences.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SequenceSessions {
    /// The session gets it again while it is free.
    Prefer,
    /// The session keeps it.
    Pin,
}

/// Treatment of Parses without a name whose text has come before.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum UnnamedStatements {
    /// Each is sent.
    Pass,
    /// Their text is kept, and plans are made for the values.
    #[default]
    Reuse,
    /// Their text is kept, and the server chooses plans as for prepared statements.
    ReusePlans,
}

impl UnnamedStatements {
    /// From a word of the table.
    pub(crate) fn from_word(word: &str) -> UnnamedStatements {
        match word {
            "pass" => UnnamedStatements::Pass,
            "reuse_plans" => UnnamedStatements::ReusePlans,
            _ => UnnamedStatements::Reuse,
        }
    }
}

/// How SIGINT ends the proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SigintStop {
    /// Clients are told and disconnected.
    Fast,
    /// Server connections come back first: transactions end.
    WaitForServers,
}

/// System calls by which connections are served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IoMethod {
    /// io_uring where the kernel has and allows it, else epoll.
    Auto,
    /// io_uring, or no start.
    IoUring,
    /// epoll.
    Epoll,
}

/// Severity of a log message, least severe first; `Log` stands where PostgreSQL puts it for the server's log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogLevel {
    /// Most detailed.
    Debug5,
    /// Very detailed.
    Debug4,
    /// Detailed.
    Debug3,
    /// Less detailed.
    Debug2,
    /// Least detailed debugging.
    Debug1,
    /// Details that a user asked for.
    Info,
    /// Hints that may help.
    Notice,
    /// Likely mistakes.
    Warning,
    /// Errors that ended a statement.
    Error,
    /// Messages for the administrator.
    Log,
    /// Errors that ended a session.
    Fatal,
    /// Errors that ended everything.
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
    /// All zero: the table sets every field.
    pub(super) fn empty(id: u16) -> NodeConfig {
        NodeConfig {
            id,
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

    /// Where its agent is, if it has one that can be reached.
    pub fn agent(&self) -> Option<(String, u16)> {
        match crate::agents::place(&self.agent) {
            Ok(Some(place)) => Some(place),
            Ok(None) | Err(_) => None,
        }
    }

    /// Takes the words of `backend_flag`.
    pub(crate) fn set_flags(&mut self, words: &[String]) {
        let has = |word: &str| words.iter().any(|given| given == word);
        self.allow_failover = !has("DISALLOW_TO_FAILOVER");
        self.always_primary = has("ALWAYS_PRIMARY");
    }
}

impl CheckConfig {
    /// All zero: the table sets every field.
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
    /// All zero: the table sets every field.
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
    /// All zero: the table sets every field.
    pub(super) fn empty() -> AdminConfig {
        AdminConfig {
            database: String::new(),
            users: Vec::new(),
            stats_users: Vec::new(),
            stats_period_ms: 0,
            metrics_addresses: Vec::new(),
            metrics_port: 0,
            takeover_socket: PathBuf::new(),
            takeover_drain_ms: 0,
        }
    }
}

impl RoutingConfig {
    /// Sessions whose reads never go back in time; `disable_load_balance_on_write = dml_adaptive_global` counts, too.
    pub fn causal_reads(&self) -> CausalReads {
        if self.on_write == OnWrite::DmlAdaptiveGlobal { self.causal.max(CausalReads::Tables) } else { self.causal }
    }

    /// True if a catalog made under the other configuration says the same.
    pub fn judges_as(&self, other: &RoutingConfig) -> bool {
        self.read_only_functions == other.read_only_functions
            && self.write_functions == other.write_functions
            && self.check_unlogged == other.check_unlogged
    }

    /// All zero: the table sets every field.
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
    /// All zero: the table sets every field.
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
    /// All zero: the table sets every field.
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
            is_json: false,
            destinations: Vec::new(),
            syslog_facility: "",
            syslog_ident: String::new(),
            file: LogFileConfig::default(),
        }
    }
}

impl ClusteringMode {
    /// From a word of the table.
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
    /// From a word of the table.
    pub(crate) fn from_word(word: &str) -> LogDelay {
        match word {
            "always" => LogDelay::Always,
            "none" => LogDelay::Never,
            _ => LogDelay::OverThreshold,
        }
    }
}

impl PoolMode {
    /// From a word of the table.
    pub(crate) fn from_word(word: &str) -> PoolMode {
        match word {
            "session" => PoolMode::Session,
            "statement" => PoolMode::Statement,
            _ => PoolMode::Transaction,
        }
    }
}

impl SequenceSessions {
    /// From a word of the table.
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
    /// From a word of the table.
    pub(crate) fn from_word(word: &str) -> IoMethod {
        match word {
            "io_uring" => IoMethod::IoUring,
            "epoll" => IoMethod::Epoll,
            _ => IoMethod::Auto,
        }
    }
}

impl LogConfig {
    /// True if lines go somewhere beside stderr.
    pub fn is_kept(&self) -> bool {
        let goes = |name: &str| self.destinations.iter().any(|destination| destination == name);
        goes("syslog") || (self.file.is_used && (goes("stderr") || self.destinations.is_empty()))
    }
}

impl LogLevel {
    /// From a word of the table.
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
            // In PostgreSQL and Pgpool-II `log` hides warnings and errors of the server, since it stands above them. An
            // operator who sets it wants to see more than the default, not less. So nothing is hidden here: lines of level LOG
            // come with `warning` too.
            _ => LogLevel::Warning,
        }
    }
}
