//! Readiness for a failover: what servers say of themselves, and all that would make a failover fail.
//!
//! In: the rules of the configuration, and each server's answers. Out: findings in the operator's words. No IO: `weir::commands::check_servers`
//! asks.

mod cluster_checks;
mod server_checks;
pub mod surplus;
#[cfg(test)]
mod tests;

use surplus::OwnUser;
use weir_failover::{FailoverMode, FailoverRules, NodeId, ServerRelation};
use weir_session::session_state::server_defaults::ServerDefaults;

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FindingLevel {
    /// A failover works, and something beside it may not.
    Warning,
    /// A failover fails, or the node takes no part in it.
    Error,
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadinessFinding {
    /// None: it is about all nodes.
    pub node: Option<NodeId>,
    pub level: FindingLevel,
    pub text: String,
    pub advice: String,
}

/// All that was asked.
#[derive(Clone, Debug, Default)]
pub struct ClusterAnswers {
    pub nodes: Vec<NodeAnswers>,
    /// Server connections that Weir may open to one node for clients, and the parameters that say so.
    pub conns: ConnsMax,
    /// Why nothing can be written in `work_dir`, if it cannot.
    pub folder: Option<String>,
}

/// Most server connections of one node.
#[derive(Clone, Debug, Default)]
pub struct ConnsMax {
    pub number: u32,
    pub parameters: &'static str,
}

/// A node, and its answers.
#[derive(Clone, Debug)]
pub struct NodeAnswers {
    pub id: NodeId,
    /// The parameter that names the user of the health check: `sr_check_user` where it has none of its own.
    pub user_parameter: &'static str,
    /// As the user of the health check.
    pub server: Result<ServerAnswers, LoginFailure>,
    /// As `sr_check_user`, which finds the roles.
    pub checker: Result<(), LoginFailure>,
    /// The same as the user of the health check, over a connection for replication.
    pub replication: Result<(), LoginFailure>,
    /// The users as whom Weir asks there, with what they may do beyond that.
    pub own_users: Vec<OwnUser>,
    /// Logins without which clients are refused that failed.
    pub failed_logins: Vec<FailedLogin>,
}

/// A login for clients that failed.
#[derive(Clone, Debug)]
pub struct FailedLogin {
    pub needed: ClientLoginUse,
    pub user: String,
    /// The servers' name.
    pub database: String,
    pub why: LoginFailure,
}

/// The use of a login for clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientLoginUse {
    /// It runs `auth_query`.
    LookUp,
    /// Clients of a database use this user's server connections.
    Forced,
}

/// The tasks of a configuration's servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TopologyKind {
    /// One stands in for the other.
    Cluster,
    /// A server alone, or servers that know nothing of each other: nothing is ever promoted.
    Plain,
}

impl TopologyKind {
    fn of(rules: &FailoverRules) -> TopologyKind {
        let promotes = matches!(rules.mode, FailoverMode::Builtin | FailoverMode::Command);
        if rules.servers == ServerRelation::Unrelated || (rules.nodes.len() < 2 && !promotes) {
            TopologyKind::Plain
        } else {
            TopologyKind::Cluster
        }
    }
}

/// Why a login failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoginFailure {
    /// No server was reached.
    Unreachable(String),
    /// It was reached, and TLS with it could not be begun.
    Encryption(String),
    /// The server did not take the user or the password.
    Identity(String),
    /// It refused for another reason.
    Other(String),
}

/// A server's answers.
#[derive(Clone, Debug, Default)]
pub struct ServerAnswers {
    /// As in `server_version_num`.
    pub version: u32,
    pub system: Option<u64>,
    pub timeline: Option<u32>,
    pub role: ServerRole,
    pub settings: ServerSettings,
    pub clock: ClockOffset,
    pub missing: Vec<RequiredPrivilege>,
    /// Settings that Weir changes and the server's start has fixed.
    pub fixed: Vec<String>,
    /// The settings that a session begins with there.
    pub defaults: ServerDefaults,
}

/// A server's clock beside this machine's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClockOffset {
    /// By how much it is before this machine's, in milliseconds; below 0: behind.
    pub ahead_ms: i64,
    /// How long the question took: so far off the comparison may be.
    pub within_ms: u64,
}

#[derive(Clone, Debug)]
pub enum ServerRole {
    Primary {
        followers: Vec<ReplicationRow>,
    },
    Standby {
        /// `primary_conninfo`; none: the user may not see it.
        conninfo: Option<String>,
        receiver: StreamingStatus,
    },
}

impl Default for ServerRole {
    fn default() -> ServerRole {
        ServerRole::Primary { followers: Vec::new() }
    }
}

/// A row of `pg_stat_replication`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplicationRow {
    pub application_name: String,
    pub is_streaming: bool,
}

/// A standby's connection to its primary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamingStatus {
    None,
    /// The user may not see it.
    Hidden,
    Streams,
}

/// A setting that is on or off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnOffSetting {
    On,
    #[default]
    Off,
}

#[derive(Clone, Debug, Default)]
pub struct ServerSettings {
    pub hot_standby: OnOffSetting,
    /// `wal_log_hints` or checksums: `pg_rewind` needs one of them.
    pub rewinds: OnOffSetting,
    /// `allow_alter_system`, from version 17.
    pub alters: OnOffSetting,
    pub senders_max: u32,
    pub slots_max: u32,
    /// Slots that are there.
    pub slots: u32,
    pub slot_name: String,
    pub apply_delay_ms: u64,
    pub sync_names: String,
    pub cluster_name: String,
    pub conns_max: u32,
    /// Of them, those that only superusers and members of `pg_use_reserved_connections` get.
    pub conns_reserved: u32,
}

/// A right that Weir's user needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RequiredPrivilege {
    Monitor,
    SignalBackend,
    Promote,
    SwitchWal,
    Reload,
    FileSettings,
    AlterConninfo,
    AlterReadOnly,
    Replication,
}

impl RequiredPrivilege {
    pub const ALL: [RequiredPrivilege; 9] = [
        RequiredPrivilege::Monitor,
        RequiredPrivilege::SignalBackend,
        RequiredPrivilege::Promote,
        RequiredPrivilege::SwitchWal,
        RequiredPrivilege::Reload,
        RequiredPrivilege::FileSettings,
        RequiredPrivilege::AlterConninfo,
        RequiredPrivilege::AlterReadOnly,
        RequiredPrivilege::Replication,
    ];

    fn name(self) -> &'static str {
        match self {
            RequiredPrivilege::Monitor => "pg_monitor",
            RequiredPrivilege::SignalBackend => "pg_signal_backend",
            RequiredPrivilege::Promote => "pg_promote",
            RequiredPrivilege::SwitchWal => "pg_switch_wal",
            RequiredPrivilege::Reload => "pg_reload_conf",
            RequiredPrivilege::FileSettings => "pg_file_settings",
            RequiredPrivilege::AlterConninfo => "ALTER SYSTEM on primary_conninfo",
            RequiredPrivilege::AlterReadOnly => "ALTER SYSTEM on default_transaction_read_only",
            RequiredPrivilege::Replication => "the attribute REPLICATION",
        }
    }

    /// The command that gives it, for a user of this name.
    fn grant(self, version: u32, user: &str) -> String {
        let is_early = version < ALTER_VERSION;
        match self {
            RequiredPrivilege::AlterConninfo | RequiredPrivilege::AlterReadOnly if is_early => {
                format!("before PostgreSQL 15: ALTER ROLE {user} SUPERUSER")
            }
            RequiredPrivilege::Monitor => format!("GRANT pg_monitor TO {user}"),
            RequiredPrivilege::SignalBackend => format!("GRANT pg_signal_backend TO {user}"),
            RequiredPrivilege::Promote => format!("GRANT EXECUTE ON FUNCTION pg_promote(boolean, integer) TO {user}"),
            RequiredPrivilege::SwitchWal => format!("GRANT EXECUTE ON FUNCTION pg_switch_wal() TO {user}"),
            RequiredPrivilege::Reload => format!("GRANT EXECUTE ON FUNCTION pg_reload_conf() TO {user}"),
            RequiredPrivilege::FileSettings => {
                format!(
                    "GRANT SELECT ON pg_file_settings TO {user}; GRANT EXECUTE ON FUNCTION pg_show_all_file_settings() TO {user}"
                )
            }
            RequiredPrivilege::AlterConninfo => format!("GRANT ALTER SYSTEM ON PARAMETER primary_conninfo TO {user}"),
            RequiredPrivilege::AlterReadOnly => {
                format!("GRANT ALTER SYSTEM ON PARAMETER default_transaction_read_only TO {user}")
            }
            RequiredPrivilege::Replication => format!("ALTER ROLE {user} REPLICATION"),
        }
    }
}

/// The first version of which a builtin failover works.
const BUILTIN_VERSION: u32 = 130_000;
/// The first version in which others than superusers may be given ALTER SYSTEM.
const ALTER_VERSION: u32 = 150_000;

/// All that is wrong, errors first for each node. `user`: the user of the health check.
pub fn findings(rules: &FailoverRules, cluster: &ClusterAnswers, user: &str) -> Vec<ReadinessFinding> {
    let mut found = Vec::new();
    let kind = TopologyKind::of(rules);
    match kind {
        TopologyKind::Cluster => cluster_checks::look(rules, cluster, &mut found),
        TopologyKind::Plain => cluster_checks::look_plain(rules, cluster, &mut found),
    }
    for asked in &cluster.nodes {
        match kind {
            TopologyKind::Cluster => server_checks::look(rules, cluster, asked, user, &mut found),
            TopologyKind::Plain => server_checks::look_plain(rules, asked, &mut found),
        }
        server_checks::logins(asked, &mut found);
    }
    found.sort_by_key(|finding| (finding.node, std::cmp::Reverse(finding.level)));
    found
}

/// The level of what only a failover by Weir itself needs.
fn by_builtin(rules: &FailoverRules) -> FindingLevel {
    if rules.mode == FailoverMode::Builtin { FindingLevel::Error } else { FindingLevel::Warning }
}

/// The list of findings, and the node that they are about.
struct FindingList<'f> {
    node: Option<NodeId>,
    found: &'f mut Vec<ReadinessFinding>,
}

impl FindingList<'_> {
    fn add(&mut self, level: FindingLevel, text: impl Into<String>, advice: impl Into<String>) {
        self.found.push(ReadinessFinding { node: self.node, level, text: text.into(), advice: advice.into() });
    }
}

impl ClusterAnswers {
    fn servers(&self) -> impl Iterator<Item = (NodeId, &ServerAnswers)> {
        self.nodes.iter().filter_map(|asked| Some((asked.id, asked.server.as_ref().ok()?)))
    }

    /// The only primary, if there is one.
    fn primary(&self) -> Option<(NodeId, &ServerAnswers, &[ReplicationRow])> {
        let mut primaries = self.servers().filter_map(|(id, server)| match &server.role {
            ServerRole::Primary { followers } => Some((id, server, followers.as_slice())),
            ServerRole::Standby { .. } => None,
        });
        let first = primaries.next()?;
        primaries.next().is_none().then_some(first)
    }
}
