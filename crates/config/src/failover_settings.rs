//! Settings of failover, as typed fields. Only the setters of the parameter table write them.

use std::fmt;

/// Settings for the failure and the return of a node.
#[derive(Debug, Clone)]
pub struct FailoverConfig {
    /// The authority that decides; `None`: `failover_command` if it is set, else somebody outside.
    pub mode: Option<FailoverMode>,
    pub command: String,
    pub failback_command: String,
    pub follow_primary_command: String,
    pub on_error: ConnEndPolicy,
    pub on_shutdown: ConnEndPolicy,
    pub false_primary: FalsePrimary,
    /// Attach standbys that stream again.
    pub auto_failback: bool,
    pub auto_failback_interval_ms: u64,
    /// Most that an asynchronous standby may lack to be promoted; below 0: any.
    pub lag_bytes_max: i64,
    /// The same as time; 0: any.
    pub lag_ms_max: u64,
    /// Longest time that statements wait for a primary; 0 for ever.
    pub wait_ms: u64,
    pub lost: OnLost,
    /// `commit_outcome`.
    pub commit_outcome: bool,
    /// `transaction_replay`.
    pub replay: bool,
    /// Most bytes of messages of a transaction that is replayed.
    pub replay_bytes_max: u64,
    /// If other proxies promote the same servers.
    pub company: OtherPromoters,
    /// A file names nodes whose checks fail.
    pub test_file: bool,
}

/// How a session hears that it was shown something the new primary lacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnLost {
    Warning,
    Error,
}

/// How one node is checked. The password is masked in `Debug`.
#[derive(Clone, Default, PartialEq)]
pub struct HealthConfig {
    /// Time between two checks; 0 for none.
    pub period_ms: u64,
    /// Longest time of one attempt; 0 for no limit.
    pub timeout_ms: u64,
    pub retries: u32,
    pub retry_delay_ms: u64,
    /// Empty: the user of the look at roles.
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

    /// The authority that decides, with its default.
    pub fn mode(&self) -> FailoverMode {
        self.mode.unwrap_or(if self.command.is_empty() { FailoverMode::Follow } else { FailoverMode::Command })
    }
}

impl OnLost {
    pub(crate) fn from_word(word: &str) -> OnLost {
        if word == "error" { OnLost::Error } else { OnLost::Warning }
    }
}

/// The authority that decides that a standby becomes the primary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailoverMode {
    /// Weir does.
    Builtin,
    /// The operator's `failover_command` does.
    Command,
    /// Somebody else does, unasked.
    Follow,
    /// Nobody but the operator.
    Off,
}

/// If other Weirs promote the same servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OtherPromoters {
    /// There may be some: a majority of the voters decides.
    Possible,
    /// The operator vouches that there is none.
    Alone,
}

/// Use of a client's broken connection as a sign of a failed node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnEndPolicy {
    /// The node is looked at, and is down if the look fails.
    Counts,
    /// The node is looked at.
    Looks,
}

impl ConnEndPolicy {
    /// The value of a switch.
    pub(crate) fn of(counts: bool) -> ConnEndPolicy {
        if counts { ConnEndPolicy::Counts } else { ConnEndPolicy::Looks }
    }
}

/// Treatment of a primary that is not the accepted one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FalsePrimary {
    Ignored,
    Detached,
}

impl FailoverMode {
    /// The word of `failover_mode`; `None`: it hangs on `failover_command`.
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
