//! The parameter table: one row per parameter of `pgpool.conf`, and the only list of them.
//!
//! In: nothing. Out: rows. The file reader, reload, SHOW, the sample file and the reference page are all derived from
//! these rows, so a new parameter is one row here and one field in `Config`.
//! Numbered ports have the documented value as default (5432, 9000, 9999, 9694): Pgpool-II's built-in 0 means "not set"
//! there and is outside of its own range.
use crate::Config;
use crate::visibility::ValueVisibility;

mod admin_params;
mod auth_params;
mod backend_params;
mod cache_params;
mod check_params;
mod failover_params;
mod kind;
mod limit;
mod listen_params;
mod log_params;
mod pool_params;
mod recovery_params;
mod route_params;
mod tls_params;
mod watchdog_params;
mod weir_params;

pub use crate::value::{ParamValue, ValueError};
pub use kind::ParamKind;

/// Largest value of a 32-bit integer parameter, where Pgpool-II names no smaller one.
pub const INT_MAX: i64 = 2_147_483_647;
/// Largest number a node, watchdog peer or heartbeat device may have; Pgpool-II has room for 128 of each.
pub const INDEX_MAX: u16 = 127;

/// One parameter.
pub struct ConfigParam {
    /// Name in the file, without the number of an indexed parameter.
    pub name: &'static str,
    /// Form of its values.
    pub kind: ParamKind,
    /// Value used when the file does not set it, written as in the file.
    pub default: &'static str,
    /// When a changed value begins to count.
    pub applies: ParamContext,
    /// Area it is listed under.
    pub group: ParamGroup,
    /// Repetition of the parameter with a number.
    pub indexed: ParamIndexing,
    /// Effect of the parameter in this version.
    pub effect: ParamEffect,
    /// Pgpool-II release that brought it; "4.3" means 4.3 or older, "next" means not released yet.
    pub since: &'static str,
    /// Left out of lists; still readable by its own name.
    pub hidden: bool,
    /// The parameter that this one is an old name of.
    pub alias_of: Option<&'static str>,
    /// Meaning, unit and special values.
    pub help: &'static str,
    /// Stores a checked value; the number is the node's for indexed parameters, else 0.
    pub set: fn(&mut Config, u16, &ParamValue),
}

/// When a changed value begins to count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ParamContext {
    /// Only when the proxy starts.
    AtStart,
    /// When the file is read again.
    OnReload,
    /// When the file is read again, for a node that was not there before; a known node keeps its value until a restart.
    NewNodeOnReload,
    /// When the file is read again, and for one session with `PGPOOL SET`.
    PerSession,
}

/// The area a parameter belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ParamGroup {
    /// Sockets clients connect to.
    Listen,
    /// Processes, clients and server connections.
    Pool,
    /// PostgreSQL servers and the clustering mode.
    Backend,
    /// Logins of clients.
    Auth,
    /// Encryption.
    Tls,
    /// Routing of statements to nodes.
    Route,
    /// Looking at the servers: health, lag, role.
    Check,
    /// The failure and the return of a server.
    Failover,
    /// Bringing a server back by copying another one.
    Recovery,
    /// Several proxies as one.
    Watchdog,
    /// Cache of query results.
    Cache,
    /// Logging and files.
    Log,
    /// How much of everything there may be.
    Limit,
    /// The administration console and monitoring.
    Admin,
    /// Parameters that Pgpool-II does not have.
    Weir,
}

/// Repetition of a parameter with a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ParamIndexing {
    /// Once.
    No,
    /// Once per node: `backend_port0`.
    Node,
    /// Once for all nodes, and again for one node where it differs: `connect_timeout`, `connect_timeout1`.
    NodeOrDefault,
    /// Once per watchdog peer: `wd_port0`.
    Watchdog,
    /// Once per heartbeat device: `heartbeat_port0`.
    Heartbeat,
}

/// Effect of a parameter in this version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ParamEffect {
    /// It does what its help says.
    Built,
    /// It is accepted and checked, and changes nothing.
    NotYet,
    /// It is accepted and will never change anything: its subject is not needed, or always done. Its help says why.
    Needless,
}

/// Setter of every parameter that nothing reads yet.
fn nothing(_: &mut Config, _: u16, _: &ParamValue) {}

/// Common values of most rows; a row states only how it differs.
const ROW: ConfigParam = ConfigParam {
    name: "",
    // A row that says nothing hides everything.
    kind: ParamKind::Text(ValueVisibility::Nobody),
    default: "",
    applies: ParamContext::OnReload,
    group: ParamGroup::Weir,
    indexed: ParamIndexing::No,
    effect: ParamEffect::NotYet,
    since: "4.3",
    hidden: false,
    alias_of: None,
    help: "",
    set: nothing,
};

/// Every area, in the order of the sample file.
const TABLES: [(ParamGroup, &[ConfigParam]); 15] = [
    (ParamGroup::Listen, listen_params::ROWS),
    (ParamGroup::Pool, pool_params::ROWS),
    (ParamGroup::Backend, backend_params::ROWS),
    (ParamGroup::Auth, auth_params::ROWS),
    (ParamGroup::Tls, tls_params::ROWS),
    (ParamGroup::Route, route_params::ROWS),
    (ParamGroup::Check, check_params::ROWS),
    (ParamGroup::Failover, failover_params::ROWS),
    (ParamGroup::Recovery, recovery_params::ROWS),
    (ParamGroup::Watchdog, watchdog_params::ROWS),
    (ParamGroup::Cache, cache_params::ROWS),
    (ParamGroup::Log, log_params::ROWS),
    (ParamGroup::Limit, limit::ROWS),
    (ParamGroup::Admin, admin_params::ROWS),
    (ParamGroup::Weir, weir_params::ROWS),
];

/// Every parameter, always in the same order.
pub fn all() -> impl Iterator<Item = &'static ConfigParam> {
    TABLES.iter().flat_map(|(_, rows)| rows.iter())
}

/// Every area with its parameters, in the order of [`all`].
pub fn groups() -> impl Iterator<Item = (ParamGroup, &'static [ConfigParam])> {
    TABLES.iter().copied()
}

/// Finds a parameter by its name in the table, without a number; small and capital letters count as the same.
pub fn find(name: &str) -> Option<&'static ConfigParam> {
    all().find(|param| param.name == name).or_else(|| all().find(|param| param.name.eq_ignore_ascii_case(name)))
}

/// Result of looking up a written name.
#[derive(Clone, Copy)]
pub enum ParamLookup {
    /// A parameter, or one of its numbered forms; an old name has been replaced by the new one.
    Found {
        /// The row.
        param: &'static ConfigParam,
        /// The number behind the name.
        index: Option<u16>,
        /// The old name that was written.
        alias: Option<&'static str>,
    },
    /// A numbered parameter without its number.
    NumberMissing(&'static ConfigParam),
    /// A numbered parameter with a number above [`INDEX_MAX`].
    NumberTooHigh(&'static ConfigParam),
    /// Nothing.
    Unknown,
}

/// Finds the row for a name as it is written in the file, such as `backend_port0`.
pub fn resolve(written: &str) -> ParamLookup {
    if let Some(found) = find(written) {
        let alias = found.alias_of.map(|_| found.name);
        let param = found.alias_of.and_then(find).unwrap_or(found);
        return match param.indexed {
            ParamIndexing::No | ParamIndexing::NodeOrDefault => ParamLookup::Found { param, index: None, alias },
            ParamIndexing::Node | ParamIndexing::Watchdog | ParamIndexing::Heartbeat => ParamLookup::NumberMissing(param),
        };
    }
    let base = written.trim_end_matches(|c: char| c.is_ascii_digit());
    match find(base) {
        Some(param) if param.indexed != ParamIndexing::No => match written[base.len()..].parse::<u16>() {
            Ok(index) if index <= INDEX_MAX => ParamLookup::Found { param, index: Some(index), alias: None },
            _ => ParamLookup::NumberTooHigh(param),
        },
        _ => ParamLookup::Unknown,
    }
}

/// The known name that looks most like `written`, with its number, if one is near.
pub fn nearest(written: &str) -> Option<String> {
    // Longer names cannot be near a known one; the bound keeps a hostile file from costing time.
    if written.len() > 64 {
        return None;
    }
    let lower = written.to_ascii_lowercase();
    let base = lower.trim_end_matches(|c: char| c.is_ascii_digit());
    let (distance, param) = all()
        .filter(|param| !param.hidden)
        .map(|param| (edit_distance(base, &param.name.to_ascii_lowercase()), param))
        .min_by_key(|(distance, _)| *distance)?;
    if distance > (base.len() / 4).max(2) {
        return None;
    }
    let number = if param.indexed == ParamIndexing::No { "" } else { &lower[base.len()..] };
    Some(format!("{}{number}", param.name))
}

/// How many letters must be added, removed or replaced to turn one word into the other.
fn edit_distance(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (i, a) in from.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, b) in to.iter().enumerate() {
            let replaced = diagonal + usize::from(a != *b);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[to.len()]
}

impl ConfigParam {
    /// True if nobody is shown a value: `*****` stands for it.
    pub fn is_secret(&self) -> bool {
        self.kind.visibility() == ValueVisibility::Nobody
    }
}

impl ParamContext {
    /// The step by which an operator makes a changed value count.
    pub fn describe(self) -> &'static str {
        match self {
            ParamContext::AtStart => "restart",
            ParamContext::OnReload => "reload",
            ParamContext::NewNodeOnReload => "reload for a new node, restart for a known one",
            ParamContext::PerSession => "reload, or PGPOOL SET for one session",
        }
    }
}

impl ParamGroup {
    /// Heading of the area.
    pub fn title(self) -> &'static str {
        match self {
            ParamGroup::Listen => "Sockets for clients",
            ParamGroup::Pool => "Clients and server connections",
            ParamGroup::Backend => "PostgreSQL servers",
            ParamGroup::Auth => "Authentication",
            ParamGroup::Tls => "TLS",
            ParamGroup::Route => "Routing and load balancing",
            ParamGroup::Check => "Health and replication checks",
            ParamGroup::Failover => "Failover and failback",
            ParamGroup::Recovery => "Online recovery",
            ParamGroup::Watchdog => "Watchdog",
            ParamGroup::Cache => "Query cache",
            ParamGroup::Log => "Logging and files",
            ParamGroup::Limit => "Limits",
            ParamGroup::Admin => "Administration console and monitoring",
            ParamGroup::Weir => "Parameters of Weir that Pgpool-II does not have",
        }
    }
}

impl ParamIndexing {
    /// Name under which `PGPOOL SHOW` lists all parameters of this numbering.
    pub fn family(self) -> Option<&'static str> {
        match self {
            ParamIndexing::No => None,
            ParamIndexing::Node => Some("backend"),
            ParamIndexing::NodeOrDefault => Some("health_check"),
            ParamIndexing::Watchdog => Some("watchdog"),
            ParamIndexing::Heartbeat => Some("heartbeat"),
        }
    }
}
