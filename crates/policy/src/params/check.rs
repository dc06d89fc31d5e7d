//! How the nodes are watched.
use crate::config::LogDelay;

use super::{Applies, Effect, Group, INT_MAX, Indexed, Kind, Param};

/// A row of this area that nothing reads yet.
const ROW: Param = Param { group: Group::Check, ..super::ROW };
/// A row of this area that does what its help says.
const BUILT: Param = Param { effect: Effect::Built, ..ROW };

/// The rows, related ones together.
#[rustfmt::skip] // two or three lines a row keep the table readable as one
pub(super) const ROWS: &[Param] = &[
    Param { name: "sr_check_period", kind: Kind::Seconds { min: 0, max: INT_MAX }, default: "10", applies: Applies::OnReload,
        set: |c, _, v| c.check.period_ms = v.millis(),
        help: "Time between two looks at role and lag of the nodes. 0: never.", ..BUILT },
    Param { name: "sr_check_user", kind: Kind::Text, default: "", applies: Applies::OnReload,
        set: |c, _, v| c.check.user = v.text(),
        help: "User for these looks and for finding the primary; needs the rights of pg_monitor.", ..BUILT },
    Param { name: "sr_check_password", kind: Kind::Text, default: "", applies: Applies::OnReload, secret: true,
        set: |c, _, v| c.check.password = v.text(),
        help: "Password of that user. Empty: the one in pool_passwd.", ..BUILT },
    Param { name: "sr_check_database", kind: Kind::Text, default: "postgres", applies: Applies::OnReload,
        set: |c, _, v| c.check.database = v.text(),
        help: "Database for these looks.", ..BUILT },
    Param { name: "delay_threshold", kind: Kind::Bytes { min: 0, max: i64::MAX }, default: "0", applies: Applies::OnReload,
        set: |c, _, v| c.check.delay_bytes_max = v.int().unsigned_abs(),
        help: "Lag of a standby, in bytes of WAL, above which its reads go elsewhere. 0: no limit. It is looked at every sr_check_period.", ..BUILT },
    Param { name: "delay_threshold_by_time", kind: Kind::Millis { min: 0, max: INT_MAX }, default: "0", applies: Applies::OnReload, since: "4.4",
        set: |c, _, v| c.check.delay_ms_max = v.millis(),
        help: "Lag of a standby, as time, above which its reads go elsewhere; delay_threshold does not count then. 0: no limit.", ..BUILT },
    Param { name: "prefer_lower_delay_standby", kind: Kind::Bool, default: "off", applies: Applies::OnReload,
        set: |c, _, v| c.check.prefers_lower_delay = v.bool(),
        help: "When the chosen standby lags too much, read from the one that lags least instead of the primary, unless that one does too.", ..BUILT },
    Param { name: "log_standby_delay", kind: Kind::Enum { values: &["always", "if_over_threshold", "none"], also: &[] }, default: "if_over_threshold", applies: Applies::OnReload,
        set: |c, _, v| c.check.log_delay = LogDelay::from_word(v.word()),
        help: "When to log the lag of standbys.", ..BUILT },
    Param { name: "replication_delay_source_cmd", kind: Kind::Text, default: "", applies: Applies::OnReload, since: "next",
        help: "Command that prints the lag of every standby in milliseconds, -1 for one that is down.", ..ROW },
    Param { name: "replication_delay_source_timeout", kind: Kind::Seconds { min: 1, max: 3600 }, default: "10", applies: Applies::OnReload, since: "next",
        help: "Longest time that command may take.", ..ROW },
    Param { name: "health_check_period", kind: Kind::Seconds { min: 0, max: INT_MAX }, default: "0", applies: Applies::OnReload, indexed: Indexed::NodeOrDefault,
        help: "Time between two health checks of a node. 0: no health checks.", ..ROW },
    Param { name: "health_check_timeout", kind: Kind::Seconds { min: 0, max: INT_MAX }, default: "20", applies: Applies::OnReload, indexed: Indexed::NodeOrDefault,
        help: "Longest time one attempt may take. 0: no limit.", ..ROW },
    Param { name: "health_check_user", kind: Kind::Text, default: "", applies: Applies::OnReload, indexed: Indexed::NodeOrDefault,
        help: "User of the health check.", ..ROW },
    Param { name: "health_check_password", kind: Kind::Text, default: "", applies: Applies::OnReload, indexed: Indexed::NodeOrDefault, secret: true,
        help: "Password of that user. Empty: the one in pool_passwd.", ..ROW },
    Param { name: "health_check_database", kind: Kind::Text, default: "postgres", applies: Applies::OnReload, indexed: Indexed::NodeOrDefault,
        help: "Database of the health check.", ..ROW },
    Param { name: "health_check_max_retries", kind: Kind::Int { min: 0, max: INT_MAX }, default: "0", applies: Applies::OnReload, indexed: Indexed::NodeOrDefault,
        help: "Attempts after the first failed one before a node counts as down.", ..ROW },
    Param { name: "health_check_retry_delay", kind: Kind::Seconds { min: 0, max: INT_MAX }, default: "1", applies: Applies::OnReload, indexed: Indexed::NodeOrDefault,
        help: "Time between these attempts.", ..ROW },
    Param { name: "connect_timeout", kind: Kind::Millis { min: 0, max: INT_MAX }, default: "10000", applies: Applies::OnReload, indexed: Indexed::NodeOrDefault,
        set: |c, n, v| c.node(n).connect_timeout_ms = v.millis(),
        help: "Time to wait for a server to let Weir in, and to answer the check of roles. 0: no limit (10 s for the check).", ..BUILT },
    Param { name: "health_check_test", kind: Kind::Bool, default: "off", applies: Applies::AtStart, since: "4.4",
        help: "For tests: let the file backend_down_request in work_dir name nodes whose health check fails.", ..ROW },
];
