//! The configuration: `pgpool.conf`, the command line and the files beside it, as typed fields.
//!
//! In: bytes of files, through a closure of the caller. Out: a [`Config`], or every problem found. No IO.
//! Why `settings` beside the typed fields: reload, SHOW and error messages need the text and where it came from.
//! Invariant: the typed fields are always the result of the rows' setters on `settings`, never edited apart.
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;

use crate::params::{ConfigParam, ParamIndexing};

pub mod agents;
mod check;
pub mod client_demands;
mod config_notices;
pub mod databases;
mod encryption;
pub mod failover_settings;
pub mod hba;
pub mod hosts;
pub mod limits;
mod lines;
pub mod look_up;
mod page;
pub mod params;
pub mod passwd;
mod pattern;
pub mod pcp_settings;
pub mod peers;
mod problem;
mod read;
mod recovery_settings;
pub mod redirect;
mod reload;
mod routing;
mod server_tls;
mod show;
mod types;
pub mod unasked;
mod value;
pub mod visibility;

pub use crate::failover_settings::{FailoverConfig, HealthConfig, OnLost};
pub use crate::pcp_settings::{PcpConfig, PcpUsers};
pub use crate::recovery_settings::RecoveryConfig;
pub use check::unnamed_role_user;
pub use encryption::{ChannelBinding, PeerFiles, SslMode, TlsConfig, TlsVersion};
pub use page::{reference_page, sample_file};
pub use pattern::{BadPattern, PatternSet};
pub use problem::{ConfigProblem, ConfigReadResult, ProblemSeverity};
pub use read::{SubstituteDefault, read, read_with, read_with_defaults};
pub use reload::{SetError, names_files, reload, shapes_rules};
pub use routing::{CausalReads, OnWrite};
pub use show::{ParamRow, ParamShowError, depends_on_viewer, show_all, show_one};
pub use types::{
    AdminConfig, AuthConfig, CacheConfig, CheckConfig, ClusteringMode, IoMethod, LimitConfig, LimitOverride, LogConfig, LogDelay,
    LogFileConfig, LogLevel, MemqcacheMethod, NodeConfig, PasswdProof, PoolConfig, PoolMode, RoutingConfig, SequenceSessions,
    SigintStop, StoreConfig, TcpConfig, UnnamedStatements,
};

/// Everything the proxy is told by its operator.
#[derive(Debug, Clone)]
pub struct Config {
    /// Addresses to listen on; `*` stands for all.
    pub listen_addresses: Vec<String>,
    /// Port to listen on, also part of the unix socket's name.
    pub port: u16,
    /// Directories of the unix sockets.
    pub unix_socket_directories: Vec<PathBuf>,
    /// Group that owns the unix sockets; empty for the process's own.
    pub unix_socket_group: String,
    /// Permissions of the unix sockets.
    pub unix_socket_permissions: u32,
    /// Factor of `pool.num_init_children` that gives the backlog.
    pub listen_backlog_multiplier: u32,
    /// A session at rest that keeps a server connection which is to be closed ends with it.
    pub fast_close: bool,
    /// Parameters of startup packets that are dropped.
    pub ignored_parameters: Vec<String>,
    /// Others may listen on the same port.
    pub reuse_port: bool,
    /// Weirs that may serve the session of a cancel request.
    pub peers: Vec<peers::WeirAddress>,
    /// Time without a request after which a client is disconnected; 0 for never.
    pub client_idle_limit_ms: u64,
    pub sigint_stop: SigintStop,
    /// System calls by which connections are served.
    pub io_method: IoMethod,
    /// Threads that move data; 0 for half of the cores. See [`Config::workers`].
    pub worker_threads: u32,
    /// Workers that are woken let the running thread go on.
    pub worker_yields: bool,
    /// Memory that holds a message while it moves.
    pub memory_buffer_bytes: usize,
    /// How the nodes are kept equal.
    pub clustering_mode: ClusteringMode,
    /// The nodes that have a host name, ordered by id. Ids may have gaps.
    pub nodes: Vec<NodeConfig>,
    /// Users who may log in, and their proofs.
    pub auth: AuthConfig,
    /// Encryption.
    pub tls: TlsConfig,
    /// Server connections.
    pub pool: PoolConfig,
    /// Rules for the node of each statement.
    pub routing: RoutingConfig,
    /// The cache of answers.
    pub cache: CacheConfig,
    /// The look at role and lag of the nodes.
    pub check: CheckConfig,
    /// The failure and the return of a node.
    pub failover: FailoverConfig,
    /// Time to look for a primary; 0 for ever.
    pub search_primary_timeout_ms: u64,
    /// TCP towards servers.
    pub tcp: TcpConfig,
    /// How much of everything there may be.
    pub limits: LimitConfig,
    /// Databases by another name. Not made from `settings`, but read from the file that `auth.database_file` names.
    pub databases: std::sync::Arc<crate::databases::DatabaseMap>,
    /// The administration console and monitoring.
    pub admin: AdminConfig,
    /// Pgpool-II's administration.
    pub pcp: PcpConfig,
    /// How a node is made anew.
    pub recovery: RecoveryConfig,
    /// What is logged.
    pub log: LogConfig,
    /// File with the process number.
    pub pid_file: PathBuf,
    /// Directory for files of ours.
    pub work_dir: PathBuf,
    /// Every setting, defaults included, in the order of the table.
    pub settings: Vec<ConfigSetting>,
}

/// The text of one parameter, and where it came from. Secrets are masked in `Debug`.
#[derive(Clone)]
pub struct ConfigSetting {
    /// Its row.
    pub param: &'static ConfigParam,
    /// The number behind the name; `None` for a value that is not numbered, or holds for all nodes.
    pub index: Option<u16>,
    /// The text, quotes removed.
    pub raw: String,
    /// Where it came from.
    pub source: SettingSource,
}

/// Where a setting came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SettingSource {
    /// The table.
    Default,
    /// A line of a file.
    File {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: u32,
    },
    /// The command line.
    CommandLine,
    /// A folder that systemd made for the service.
    Unit,
    /// The name by which the program was called: Pgpool-II's.
    CalledPgpool,
    /// The folder of the file: that of Debian's package of Pgpool-II, whose program has defaults of its own.
    DebianPackage,
    /// `PGPOOL SET` in a session.
    Session,
}

/// Settings that somebody gave, by place in the table and number. A later one replaces an earlier one.
type Given = BTreeMap<(usize, Option<u16>), ConfigSetting>;

impl Default for Config {
    /// The meaning of an empty file: every default, and no node.
    fn default() -> Config {
        Config::build(&Given::new())
    }
}

impl Config {
    /// Number of worker threads on a machine with `cores` cores.
    pub fn workers(&self, cores: usize) -> usize {
        if self.worker_threads == 0 { (cores / 2).max(1) } else { self.worker_threads as usize }
    }

    /// Server connections that may be open to one node, over all users and databases.
    pub fn conns_per_node_max(&self) -> u32 {
        match self.limits.conns_per_node {
            0 => self.pool.num_init_children.saturating_mul(self.pool.max_pool),
            max => max,
        }
    }

    /// The longest time that a connection to any node may take; 0 for no limit.
    pub fn connect_timeout_max_ms(&self) -> u64 {
        let limits = || self.nodes.iter().map(|node| node.connect_timeout_ms);
        if limits().any(|limit_ms| limit_ms == 0) { 0 } else { limits().max().unwrap_or(0) }
    }

    /// True if reads may go to some other node than the primary.
    pub fn may_spread(&self) -> bool {
        self.routing.load_balance && self.nodes.len() > 1
    }

    /// True if nobody has given this parameter a value.
    pub fn is_default(&self, name: &str) -> bool {
        let is_nobodys =
            |setting: &ConfigSetting| matches!(setting.source, SettingSource::Default | SettingSource::DebianPackage);
        self.setting(name, None).is_none_or(is_nobodys)
    }

    /// True if a folder that systemd made for the service stands for the default of a parameter.
    pub fn is_of_unit(&self, name: &str) -> bool {
        self.setting(name, None).is_some_and(|setting| setting.source == SettingSource::Unit)
    }

    /// The text in force for a parameter: of the numbered form if there is one, else of the bare name.
    pub fn setting(&self, name: &str, index: Option<u16>) -> Option<&ConfigSetting> {
        let of = |index| self.settings.iter().find(move |s| s.param.name == name && s.index == index);
        of(index).or_else(|| of(None))
    }

    /// The node with this number, made with empty values and put in its place if there is none.
    ///
    /// For the setters of the table; they run for nodes with a host name only.
    pub fn node(&mut self, id: u16) -> &mut NodeConfig {
        let at = match self.nodes.binary_search_by_key(&id, |node| node.id) {
            Ok(at) => at,
            Err(at) => {
                self.nodes.insert(at, NodeConfig::empty(id));
                at
            }
        };
        &mut self.nodes[at]
    }

    /// Makes the typed fields from the given settings and the defaults. Every text has been checked before.
    fn build(given: &Given) -> Config {
        let mut config = Config::empty();
        config.settings = complete(given);
        for setting in config.settings.clone() {
            let Ok(value) = setting.param.kind.parse(setting.param.name, &setting.raw) else { continue };
            match (setting.param.indexed, setting.index) {
                // The bare name goes first in `settings`, so that a numbered one replaces it. The nodes are here by now:
                // the table has their host names before everything else that is repeated per node.
                (ParamIndexing::NodeOrDefault, None) => {
                    for id in config.nodes.iter().map(|node| node.id).collect::<Vec<_>>() {
                        (setting.param.set)(&mut config, id, &value);
                    }
                }
                (_, index) => (setting.param.set)(&mut config, index.unwrap_or(0), &value),
            }
        }
        if config.pool.size == 0 {
            config.pool.size = config.pool.num_init_children;
        }
        config
    }

    /// The settings that somebody gave, to build from again.
    fn given(&self) -> Given {
        let mut given = Given::new();
        for setting in self.settings.iter().filter(|setting| setting.source != SettingSource::Default) {
            given.insert((place(setting.param), setting.index), setting.clone());
        }
        given
    }

    /// The user as whom agents read a primary, and a database of his.
    pub fn agent_user(&self, node: &NodeConfig) -> (String, String) {
        let named = [&self.recovery.agents.user, &node.health.user, &self.check.user];
        let user = named.into_iter().find(|user| !user.is_empty()).map_or("postgres", String::as_str);
        let database = if node.health.database.is_empty() { "postgres" } else { &node.health.database };
        (user.to_string(), database.to_string())
    }

    /// All zero: the table sets every field.
    fn empty() -> Config {
        Config {
            listen_addresses: Vec::new(),
            port: 0,
            unix_socket_directories: Vec::new(),
            unix_socket_group: String::new(),
            unix_socket_permissions: 0,
            listen_backlog_multiplier: 0,
            fast_close: false,
            ignored_parameters: Vec::new(),
            reuse_port: false,
            peers: Vec::new(),
            client_idle_limit_ms: 0,
            sigint_stop: SigintStop::Fast,
            io_method: IoMethod::Auto,
            worker_threads: 0,
            worker_yields: true,
            memory_buffer_bytes: 0,
            clustering_mode: ClusteringMode::StreamingReplication,
            nodes: Vec::new(),
            auth: AuthConfig::empty(),
            tls: TlsConfig::empty(),
            pool: PoolConfig::empty(),
            routing: RoutingConfig::empty(),
            cache: CacheConfig::default(),
            check: CheckConfig::empty(),
            failover: FailoverConfig::empty(),
            search_primary_timeout_ms: 0,
            pcp: PcpConfig::default(),
            recovery: RecoveryConfig::default(),
            tcp: TcpConfig::default(),
            limits: LimitConfig::default(),
            databases: std::sync::Arc::default(),
            admin: AdminConfig::empty(),
            log: LogConfig::empty(),
            pid_file: PathBuf::new(),
            work_dir: PathBuf::new(),
            settings: Vec::new(),
        }
    }
}

/// Position of a row in the table.
fn place(param: &'static ConfigParam) -> usize {
    // Every `&'static ConfigParam` comes from the table, so the name is always found.
    params::all().position(|row| row.name == param.name).unwrap_or(usize::MAX)
}

/// Adds the defaults to the given settings, in the order of the table. Numbered settings of nodes without a host name fall out.
fn complete(given: &Given) -> Vec<ConfigSetting> {
    let mut settings = Vec::new();
    for (place, param) in params::all().enumerate() {
        if param.alias_of.is_some() {
            continue;
        }
        if matches!(param.indexed, ParamIndexing::No | ParamIndexing::NodeOrDefault) {
            settings.push(given.get(&(place, None)).cloned().unwrap_or_else(|| ConfigSetting::default_of(param, None)));
        }
        for index in numbers(given, param.indexed) {
            match given.get(&(place, Some(index))) {
                Some(setting) => settings.push(setting.clone()),
                None if param.indexed == ParamIndexing::NodeOrDefault => {}
                None => settings.push(ConfigSetting::default_of(param, Some(index))),
            }
        }
    }
    settings
}

/// The numbers that exist: nodes with a host name, or peers and devices with any setting.
fn numbers(given: &Given, indexed: ParamIndexing) -> BTreeSet<u16> {
    let counts = |setting: &&ConfigSetting| match indexed {
        ParamIndexing::No => false,
        ParamIndexing::Node | ParamIndexing::NodeOrDefault => setting.param.name == "backend_hostname" && !setting.raw.is_empty(),
        ParamIndexing::Watchdog | ParamIndexing::Heartbeat => setting.param.indexed == indexed,
    };
    given.values().filter(counts).filter_map(|setting| setting.index).collect()
}

impl ConfigSetting {
    fn default_of(param: &'static ConfigParam, index: Option<u16>) -> ConfigSetting {
        ConfigSetting { param, index, raw: param.default.to_string(), source: SettingSource::Default }
    }

    /// Name as written in the file, with its number.
    pub fn name(&self) -> String {
        self.index.map_or_else(|| self.param.name.to_string(), |index| format!("{}{index}", self.param.name))
    }

    /// The value as SHOW prints it, masked if secret.
    pub fn shown(&self) -> String {
        if self.param.is_secret() { "*****".to_string() } else { self.param.kind.show(&self.raw) }
    }
}

impl fmt::Debug for ConfigSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} = {:?} ({})", self.name(), self.shown(), self.source)
    }
}

impl fmt::Display for SettingSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SettingSource::Default => write!(f, "default"),
            SettingSource::File { path, line } => write!(f, "{}:{line}", path.display()),
            SettingSource::CommandLine => write!(f, "command line"),
            SettingSource::Unit => write!(f, "systemd"),
            SettingSource::CalledPgpool => write!(f, "called pgpool"),
            SettingSource::DebianPackage => write!(f, "Debian's package pgpool2"),
            SettingSource::Session => write!(f, "session"),
        }
    }
}
