//! The configuration: `pgpool.conf`, the command line and the files beside it, as typed fields.
//!
//! In: files' bytes through a closure. Out: a [`Config`], or every problem found. No IO. `settings` beside the typed fields: reload, SHOW
//! and error messages need the text and its origin. Invariant: the typed fields are the result of the rows' setters on `settings`, never
//! edited apart.
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
pub mod environment;
pub mod failover_settings;
pub mod hba;
pub mod hosts;
pub mod likeness;
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
mod sharding;
mod show;
mod types;
pub mod unasked;
mod value;
pub mod visibility;
pub mod watchdog_settings;

pub use crate::failover_settings::{FailoverConfig, HealthConfig, OnLost};
pub use crate::pcp_settings::{PcpConfig, PcpUsers};
pub use crate::recovery_settings::RecoveryConfig;
pub use check::unnamed_role_user;
pub use encryption::{ChannelBinding, PeerFiles, SslMode, TlsConfig, TlsVersion};
pub use page::{ParameterEntry, parameter_entries, reference_page, sample_file};
pub use pattern::{BadPattern, PatternSet};
pub use problem::{ConfigProblem, ConfigReadResult, ProblemSeverity};
pub use read::{SubstituteDefault, read, read_with, read_with_defaults};
pub use reload::{SetError, WaitingChange, WaitsUntil, names_files, reload, shapes_rules, waiting_changes};
pub use routing::{CausalReads, OnWrite};
pub use sharding::{CrossShardReads, ShardingConfig};
pub use show::{ParamRow, ParamShowError, depends_on_viewer, show_all, show_one};
pub use types::{
    AdminConfig, AuthConfig, CacheConfig, CheckConfig, ClusteringMode, DashboardConfig, IoMethod, LimitConfig, LimitOverride,
    LogConfig, LogDelay, LogFileConfig, LogFormat, LogLevel, MemqcacheMethod, NodeConfig, PasswdProof, PoolConfig, PoolMode,
    RoutingConfig, SequenceSessions, SigintStop, StoreConfig, TcpConfig, UnnamedStatements,
};
pub use watchdog_settings::WatchdogSettings;

#[derive(Debug, Clone)]
pub struct Config {
    /// Listen addresses; `*`: all.
    pub listen_addresses: Vec<String>,
    /// Also part of the unix socket's name.
    pub port: u16,
    pub unix_socket_directories: Vec<PathBuf>,
    /// Empty: the process's own.
    pub unix_socket_group: String,
    pub unix_socket_permissions: u32,
    /// Factor of `num_init_children` for the backlog.
    pub listen_backlog_multiplier: u32,
    /// True if an idle session ends when its server connection has to be closed.
    pub fast_close: bool,
    pub ignored_parameters: Vec<String>,
    pub reuse_port: bool,
    /// Weirs that may serve the session of a cancel request.
    pub peers: Vec<peers::WeirAddress>,
    pub client_idle_limit_ms: u64,
    pub sigint_stop: SigintStop,
    pub io_method: IoMethod,
    /// 0: half of the cores.
    pub worker_threads: u32,
    /// Rows of each worker's statistics of statements.
    pub statement_statistics_max: u32,
    /// True if woken workers let the running thread go on.
    pub worker_yields: bool,
    pub memory_buffer_bytes: usize,
    pub clustering_mode: ClusteringMode,
    /// The nodes of shard 0, ordered by id. Ids may have gaps.
    pub nodes: Vec<NodeConfig>,
    pub sharding: ShardingConfig,
    pub auth: AuthConfig,
    pub tls: TlsConfig,
    pub pool: PoolConfig,
    pub routing: RoutingConfig,
    pub cache: CacheConfig,
    pub check: CheckConfig,
    pub failover: FailoverConfig,
    /// 0: for ever.
    pub search_primary_timeout_ms: u64,
    pub tcp: TcpConfig,
    pub limits: LimitConfig,
    /// Read from `auth.database_file`, not from `settings`.
    pub databases: std::sync::Arc<crate::databases::DatabaseMap>,
    pub admin: AdminConfig,
    pub pcp: PcpConfig,
    pub recovery: RecoveryConfig,
    /// `None` with `use_watchdog = off`.
    pub watchdog: Option<WatchdogSettings>,
    pub log: LogConfig,
    pub pid_file: PathBuf,
    pub work_dir: PathBuf,
    /// Every setting, defaults included, in table order.
    pub settings: Vec<ConfigSetting>,
}

/// `Debug` masks secrets.
#[derive(Clone)]
pub struct ConfigSetting {
    pub param: &'static ConfigParam,
    /// `None`: not numbered, or for all nodes.
    pub index: Option<u16>,
    pub raw: String,
    pub source: SettingSource,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SettingSource {
    Default,
    File {
        path: PathBuf,
        line: u32,
    },
    CommandLine,
    /// A variable such as `WEIR_PORT`.
    Environment,
    /// A folder made by systemd.
    Unit,
    /// Called by Pgpool-II's program name.
    CalledPgpool,
    /// The folder of Debian's Pgpool-II package, which has its own defaults.
    DebianPackage,
    /// `PGPOOL SET` in a session.
    Session,
}

/// Explicit settings by place in the table and number; the last one wins.
type Given = BTreeMap<(usize, Option<u16>), ConfigSetting>;

impl Default for Config {
    fn default() -> Config {
        Config::build(&Given::new())
    }
}

impl Config {
    pub fn workers(&self, cores: usize) -> usize {
        if self.worker_threads == 0 { (cores / 2).max(1) } else { self.worker_threads as usize }
    }

    /// Returns the limit over all users and databases.
    pub fn conns_per_node_max(&self) -> u32 {
        match self.limits.conns_per_node {
            0 => self.pool.num_init_children.saturating_mul(self.pool.max_pool),
            max => max,
        }
    }

    /// Returns the longest connect timeout; 0: no limit.
    pub fn connect_timeout_max_ms(&self) -> u64 {
        let limits = || self.all_nodes().map(|node| node.connect_timeout_ms);
        if limits().any(|limit_ms| limit_ms == 0) { 0 } else { limits().max().unwrap_or(0) }
    }

    pub fn may_spread(&self) -> bool {
        self.routing.load_balance && self.nodes.len() > 1
    }

    /// True if the parameter has its default, also Debian's.
    pub fn is_default(&self, name: &str) -> bool {
        let is_nobodys =
            |setting: &ConfigSetting| matches!(setting.source, SettingSource::Default | SettingSource::DebianPackage);
        self.setting(name, None).is_none_or(is_nobodys)
    }

    /// True if a folder made by systemd replaces the default.
    pub fn is_of_unit(&self, name: &str) -> bool {
        self.setting(name, None).is_some_and(|setting| setting.source == SettingSource::Unit)
    }

    /// Returns the numbered setting if present, else the bare one.
    pub fn setting(&self, name: &str, index: Option<u16>) -> Option<&ConfigSetting> {
        let of = |index| self.settings.iter().find(move |s| s.param.name == name && s.index == index);
        of(index).or_else(|| of(None))
    }

    /// Returns the node with this number, inserted with empty values if missing. Only for the table's setters, which run for nodes with a
    /// host name.
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

    /// Makes the typed fields from checked settings and the defaults.
    fn build(given: &Given) -> Config {
        let mut config = Config::empty();
        config.settings = complete(given);
        for setting in config.settings.clone() {
            let Ok(value) = setting.param.kind.parse(setting.param.name, &setting.raw) else { continue };
            match (setting.param.indexed, setting.index) {
                // The bare name comes first, so a numbered one replaces it. Nodes exist by now: the table sets host names first.
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
        watchdog_settings::finish(&mut config);
        sharding::finish(&mut config);
        config
    }

    /// Takes what files beside the configuration said: `databases`, and the number of this host, which stays until a restart.
    fn with_files(mut self, databases: &Config, number: &Config) -> Config {
        self.databases = databases.databases.clone();
        if let (Some(watchdog), Some(known)) = (&mut self.watchdog, &number.watchdog) {
            watchdog.own_number = known.own_number;
        }
        self
    }

    fn given(&self) -> Given {
        let mut given = Given::new();
        for setting in self.settings.iter().filter(|setting| setting.source != SettingSource::Default) {
            given.insert((place(setting.param), setting.index), setting.clone());
        }
        given
    }

    /// Returns the user by whom agents read a primary, and that user's database.
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
            statement_statistics_max: 0,
            worker_yields: true,
            memory_buffer_bytes: 0,
            clustering_mode: ClusteringMode::StreamingReplication,
            nodes: Vec::new(),
            sharding: ShardingConfig::default(),
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
            watchdog: None,
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

fn place(param: &'static ConfigParam) -> usize {
    // Always found: every `&'static ConfigParam` comes from the table.
    params::all().position(|row| row.name == param.name).unwrap_or(usize::MAX)
}

/// Adds defaults, in table order. Drops settings of nodes without a host name.
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

/// Returns the numbers in use: nodes with a host name, peers and devices with any setting.
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

    pub fn name(&self) -> String {
        self.index.map_or_else(|| self.param.name.to_string(), |index| format!("{}{index}", self.param.name))
    }

    /// Returns the value as SHOW prints it, masked if secret.
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
            SettingSource::Environment => write!(f, "environment"),
            SettingSource::Unit => write!(f, "systemd"),
            SettingSource::CalledPgpool => write!(f, "called pgpool"),
            SettingSource::DebianPackage => write!(f, "Debian's package pgpool2"),
            SettingSource::Session => write!(f, "session"),
        }
    }
}
