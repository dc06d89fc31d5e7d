//! The parameter table: one row per parameter of `pgpool.conf`, and the only list of them.
//!
//! The file reader, reload, SHOW, the sample file and the reference page derive from these rows. Numbered ports have the
//! documented default (5432, 9000, 9999, 9694): Pgpool-II's built-in 0 means "not set", and is outside of its own range.
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

/// Limit of 32-bit integer parameters, unless Pgpool-II has a smaller one.
pub const INT_MAX: i64 = 2_147_483_647;
/// Largest number of a node, watchdog peer or heartbeat device; Pgpool-II has room for 128 of each.
pub const INDEX_MAX: u16 = 127;

pub struct ConfigParam {
    /// Name in the file, without number.
    pub name: &'static str,
    pub kind: ParamKind,
    /// Value when not set, written as in the file.
    pub default: &'static str,
    /// When a changed value takes effect.
    pub applies: ParamContext,
    pub group: ParamGroup,
    pub indexed: ParamIndexing,
    pub effect: ParamEffect,
    pub likeness: ParamLikeness,
    /// Pgpool-II release that introduced it; "4.3": 4.3 or older, "next": unreleased.
    pub since: &'static str,
    /// Hidden in lists; readable by name.
    pub hidden: bool,
    /// The current name, if this one is old.
    pub alias_of: Option<&'static str>,
    pub help: &'static str,
    /// Stores a checked value; the number is the node's for indexed parameters, else 0.
    pub set: fn(&mut Config, u16, &ParamValue),
}

/// When a changed value takes effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ParamContext {
    AtStart,
    OnReload,
    /// On reload for a new node; a known node keeps its value until a restart.
    NewNodeOnReload,
    /// On reload, and for one session with `PGPOOL SET`.
    PerSession,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ParamGroup {
    Listen,
    Pool,
    Backend,
    Auth,
    Tls,
    Route,
    Check,
    Failover,
    Recovery,
    Watchdog,
    Cache,
    Log,
    Limit,
    Admin,
    /// Parameters without an equal in Pgpool-II.
    Weir,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ParamIndexing {
    No,
    /// Once per node: `backend_port0`.
    Node,
    /// Once for all nodes, and again where one differs: `connect_timeout`, `connect_timeout1`.
    NodeOrDefault,
    /// Once per watchdog peer: `wd_port0`.
    Watchdog,
    /// Once per heartbeat device: `heartbeat_port0`.
    Heartbeat,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ParamEffect {
    Built,
    /// Accepted and checked, without effect.
    NotYet,
    /// Accepted, and never with an effect: not needed, or always done. Its help says why.
    Needless,
}

/// Values of the hosts of one group (`use_watchdog`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ParamLikeness {
    OwnToHost,
    /// With another value a host decides otherwise than the others, or serves clients in another way.
    Alike,
}

fn nothing(_: &mut Config, _: u16, _: &ParamValue) {}

/// Common values of most rows.
const ROW: ConfigParam = ConfigParam {
    name: "",
    // A row without a kind hides its values.
    kind: ParamKind::Text(ValueVisibility::Nobody),
    default: "",
    applies: ParamContext::OnReload,
    group: ParamGroup::Weir,
    indexed: ParamIndexing::No,
    effect: ParamEffect::NotYet,
    likeness: ParamLikeness::OwnToHost,
    since: "4.3",
    hidden: false,
    alias_of: None,
    help: "",
    set: nothing,
};

/// The areas in the order of the sample file.
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

pub fn all() -> impl Iterator<Item = &'static ConfigParam> {
    TABLES.iter().flat_map(|(_, rows)| rows.iter())
}

pub fn groups() -> impl Iterator<Item = (ParamGroup, &'static [ConfigParam])> {
    TABLES.iter().copied()
}

/// Finds a parameter by name without number, in any case.
pub fn find(name: &str) -> Option<&'static ConfigParam> {
    all().find(|param| param.name == name).or_else(|| all().find(|param| param.name.eq_ignore_ascii_case(name)))
}

#[derive(Clone, Copy)]
pub enum ParamLookup {
    /// A parameter or numbered form; an old name is already replaced.
    Found {
        param: &'static ConfigParam,
        index: Option<u16>,
        /// The old name, if written.
        alias: Option<&'static str>,
    },
    /// A numbered parameter without number.
    NumberMissing(&'static ConfigParam),
    /// A number above [`INDEX_MAX`].
    NumberTooHigh(&'static ConfigParam),
    Unknown,
}

/// Finds the row of a name as written, such as `backend_port0`.
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

/// Returns the most similar known name, with its number, if one is near.
pub fn nearest(written: &str) -> Option<String> {
    // Longer names cannot be near; the bound saves time on a hostile file.
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

/// Returns the Levenshtein distance.
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
    /// True if `*****` hides the value from everyone.
    pub fn is_secret(&self) -> bool {
        self.kind.visibility() == ValueVisibility::Nobody
    }
}

impl ParamContext {
    /// Says how a changed value takes effect.
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
    /// Name by which `PGPOOL SHOW` lists all parameters of this numbering.
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
