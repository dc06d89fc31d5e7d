//! Settings of failover, written only by the setters of the parameter table.

use std::fmt;

#[derive(Debug, Clone)]
pub struct FailoverConfig {
    /// Authority for promotions; `None`: `failover_command` if set, else an outside authority.
    pub mode: Option<FailoverMode>,
    pub command: String,
    pub failback_command: String,
    pub follow_primary_command: String,
    pub on_error: ConnEndPolicy,
    pub on_shutdown: ConnEndPolicy,
    pub false_primary: FalsePrimary,
    /// True if standbys that stream again are attached.
    pub auto_failback: bool,
    pub auto_failback_interval_ms: u64,
    /// Most WAL that an asynchronous standby may lack for promotion; below 0: any.
    pub lag_bytes_max: i64,
    /// Longest lag for promotion; 0: any.
    pub lag_ms_max: u64,
    /// Longest wait of statements for a primary; 0: for ever.
    pub wait_ms: u64,
    pub lost: OnLost,
    pub commit_outcome: bool,
    pub replay: bool,
    /// Most message bytes of a transaction that may rerun.
    pub replay_bytes_max: u64,
    /// If other proxies promote the same servers.
    pub company: OtherPromoters,
    /// True if a file names nodes whose checks fail.
    pub test_file: bool,
}

/// How a session learns that it saw data which the new primary lacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnLost {
    Warning,
    Error,
}

/// Health check of a node. `Debug` masks the password.
#[derive(Clone, Default, PartialEq)]
pub struct HealthConfig {
    /// Time between two checks; 0: none.
    pub period_ms: u64,
    /// Longest time of one attempt; 0: no limit.
    pub timeout_ms: u64,
    pub retries: u32,
    pub retry_delay_ms: u64,
    /// Empty: the user of the role check.
    pub user: String,
    pub password: String,
    pub database: String,
}

impl fmt::Debug for HealthConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let HealthConfig { period_ms, timeout_ms, retries, retry_delay_ms, user, password: _, database } = self;
        write!(f, "HealthConfig {{ {user} in {database}, {period_ms} {timeout_ms} {retries} {retry_delay_ms} }}")
    }
}

impl FailoverConfig {
    pub(super) fn empty() -> FailoverConfig {
        FailoverConfig {
            mode: None,
            command: String::new(),
            failback_command: String::new(),
            follow_primary_command: String::new(),
            on_error: ConnEndPolicy::Looks,
            on_shutdown: ConnEndPolicy::Looks,
            false_primary: FalsePrimary::Ignored,
            auto_failback: false,
            auto_failback_interval_ms: 0,
            lag_bytes_max: 0,
            lag_ms_max: 0,
            wait_ms: 0,
            lost: OnLost::Warning,
            commit_outcome: false,
            replay: false,
            replay_bytes_max: 0,
            company: OtherPromoters::Possible,
            test_file: false,
        }
    }

    /// Returns the authority, with its default.
    pub fn mode(&self) -> FailoverMode {
        self.mode.unwrap_or(if self.command.is_empty() { FailoverMode::Follow } else { FailoverMode::Command })
    }
}

impl OnLost {
    pub(crate) fn from_word(word: &str) -> OnLost {
        if word == "error" { OnLost::Error } else { OnLost::Warning }
    }
}

/// The authority for promotions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailoverMode {
    Builtin,
    /// The operator's `failover_command`.
    Command,
    Follow,
    /// Only the operator.
    Off,
}

/// If other Weirs promote the same servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OtherPromoters {
    /// Possible: a majority of the voters decides.
    Possible,
    /// None, by the operator's word.
    Alone,
}

/// Use of a broken client connection as a sign of a failed node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnEndPolicy {
    /// The node is checked, and is down if the check fails.
    Counts,
    /// The node is checked.
    Looks,
}

impl ConnEndPolicy {
    pub(crate) fn of(counts: bool) -> ConnEndPolicy {
        if counts { ConnEndPolicy::Counts } else { ConnEndPolicy::Looks }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FalsePrimary {
    Ignored,
    Detached,
}

impl FailoverMode {
    /// Parses a word of `failover_mode`; `None`: `failover_command` decides.
    pub(crate) fn of_word(word: &str) -> Option<FailoverMode> {
        match word {
            "builtin" => Some(FailoverMode::Builtin),
            "command" => Some(FailoverMode::Command),
            "follow" => Some(FailoverMode::Follow),
            "off" => Some(FailoverMode::Off),
            _ => None,
        }
    }
}
