//! Readiness for a failover: all that would make one fail.
//!
//! In: the configuration's rules, and each server's answers. Out: findings in the operator's words. No IO:
//! `commands::check_servers` asks.

mod cluster_checks;
mod server_checks;
pub mod surplus;
#[cfg(test)]
mod tests;

use surplus::OwnUser;
use weir_failover::{FailoverMode, FailoverRules, NodeId, ServerRelation};
use weir_session::session_state::server_defaults::ServerDefaults;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FindingLevel {
    /// A failover works, but something beside it may not.
    Warning,
    /// A failover fails, or leaves the node out.
    Error,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadinessFinding {
    /// `None`: all nodes.
    pub node: Option<NodeId>,
    pub level: FindingLevel,
    pub text: String,
    pub advice: String,
}

#[derive(Clone, Debug, Default)]
pub struct ClusterAnswers {
    pub nodes: Vec<NodeAnswers>,
    pub conns: ConnsMax,
    /// Obstacle to writing in `work_dir`.
    pub folder: Option<String>,
}

/// Limit of connections for clients, and the parameters that set it.
#[derive(Clone, Debug, Default)]
pub struct ConnsMax {
    pub number: u32,
    pub parameters: &'static str,
}

#[derive(Clone, Debug)]
pub struct NodeAnswers {
    pub id: NodeId,
    /// Parameter that names the health check's user.
    pub user_parameter: &'static str,
    /// Answers to the health check's user.
    pub server: Result<ServerAnswers, LoginFailure>,
    /// Login as `sr_check_user`, which finds the roles.
    pub checker: Result<(), LoginFailure>,
    /// Replication login of the health check's user.
    pub replication: Result<(), LoginFailure>,
    pub own_users: Vec<OwnUser>,
    pub failed_logins: Vec<FailedLogin>,
}

#[derive(Clone, Debug)]
pub struct FailedLogin {
    pub needed: ClientLoginUse,
    pub user: String,
    /// Name at the servers.
    pub database: String,
    pub why: LoginFailure,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientLoginUse {
    /// Runs `auth_query`.
    LookUp,
    /// Clients of a database use this user.
    Forced,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TopologyKind {
    /// Servers that stand in for each other.
    Cluster,
    /// A single server, or unrelated ones: nothing is promoted.
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

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoginFailure {
    Unreachable(String),
    /// TLS failed.
    Encryption(String),
    Identity(String),
    Other(String),
}

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
    /// Settings that Weir changes, fixed on the command line.
    pub fixed: Vec<String>,
    /// Settings that sessions begin with.
    pub defaults: ServerDefaults,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClockOffset {
    /// Negative: behind this machine.
    pub ahead_ms: i64,
    /// Duration of the query, the error of the comparison.
    pub within_ms: u64,
}

#[derive(Clone, Debug)]
pub enum ServerRole {
    Primary {
        followers: Vec<ReplicationRow>,
    },
    Standby {
        /// `primary_conninfo`; `None`: hidden from the user.
        conninfo: Option<String>,
        receiver: StreamingStatus,
    },
}

impl Default for ServerRole {
    fn default() -> ServerRole {
        ServerRole::Primary { followers: Vec::new() }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplicationRow {
    pub application_name: String,
    pub is_streaming: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamingStatus {
    None,
    /// Hidden from the user.
    Hidden,
    Streams,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnOffSetting {
    On,
    #[default]
    Off,
}

#[derive(Clone, Debug, Default)]
pub struct ServerSettings {
    pub hot_standby: OnOffSetting,
    /// `wal_log_hints` or checksums, for `pg_rewind`.
    pub rewinds: OnOffSetting,
    /// `allow_alter_system`, from version 17.
    pub alters: OnOffSetting,
    pub senders_max: u32,
    pub slots_max: u32,
    pub slots: u32,
    pub slot_name: String,
    pub apply_delay_ms: u64,
    pub sync_names: String,
    pub cluster_name: String,
    pub conns_max: u32,
    /// Connections reserved for superusers and members of `pg_use_reserved_connections`.
    pub conns_reserved: u32,
}

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

/// First version with builtin failover.
const BUILTIN_VERSION: u32 = 130_000;
/// First version in which ALTER SYSTEM can be granted.
const ALTER_VERSION: u32 = 150_000;

/// Errors come first for each node. `user`: of the health check.
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

fn by_builtin(rules: &FailoverRules) -> FindingLevel {
    if rules.mode == FailoverMode::Builtin { FindingLevel::Error } else { FindingLevel::Warning }
}

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

    /// `None` also for several primaries.
    fn primary(&self) -> Option<(NodeId, &ServerAnswers, &[ReplicationRow])> {
        let mut primaries = self.servers().filter_map(|(id, server)| match &server.role {
            ServerRole::Primary { followers } => Some((id, server, followers.as_slice())),
            ServerRole::Standby { .. } => None,
        });
        let first = primaries.next()?;
        primaries.next().is_none().then_some(first)
    }
}
