//! What happens when a node fails or returns.
use super::{ConfigParam, INT_MAX, ParamContext, ParamEffect, ParamGroup, ParamKind};
use crate::OnLost;
use crate::failover_settings::{ConnEndPolicy, FailoverMode, FalsePrimary, OtherPromoters};
use crate::visibility::ValueVisibility::Operators;

/// A row of this area that nothing reads yet.
const ROW: ConfigParam = ConfigParam { group: ParamGroup::Failover, ..super::ROW };
/// A row of this area that does what its help says.
const BUILT: ConfigParam = ConfigParam { effect: ParamEffect::Built, ..ROW };

/// The rows, related ones together.
#[rustfmt::skip] // two or three lines a row keep the table readable as one
pub(super) const ROWS: &[ConfigParam] = &[
    ConfigParam { name: "failover_command", kind: ParamKind::Text(Operators), default: "", applies: ParamContext::OnReload,
        set: |c, _, v| c.failover.command = v.text(),
        help: "Command run after a node was detached. %d, %h, %p, %D stand for the lost node's number, host, port and data directory, %m, %H, %r, %R for the new main node's, %% for %.", ..BUILT },
    ConfigParam { name: "failback_command", kind: ParamKind::Text(Operators), default: "", applies: ParamContext::OnReload,
        set: |c, _, v| c.failover.failback_command = v.text(),
        help: "Command run after a node was attached; the same % signs as in failover_command.", ..BUILT },
    ConfigParam { name: "follow_primary_command", kind: ParamKind::Text(Operators), default: "", applies: ParamContext::OnReload,
        set: |c, _, v| c.failover.follow_primary_command = v.text(),
        help: "Command run for every other node after the primary changed; the same % signs as in failover_command.", ..BUILT },
    ConfigParam { name: "follow_master_command", kind: ParamKind::Text(Operators), default: "", applies: ParamContext::OnReload, hidden: true, alias_of: Some("follow_primary_command"),
        help: "Old name of follow_primary_command, up to Pgpool-II 4.1.", ..ROW },
    ConfigParam { name: "failover_on_backend_error", kind: ParamKind::Bool, default: "on", applies: ParamContext::OnReload,
        set: |c, _, v| c.failover.on_error = ConnEndPolicy::of(v.bool()),
        help: "Detach a node when reading from or writing to it fails.", ..BUILT },
    ConfigParam { name: "fail_over_on_backend_error", kind: ParamKind::Bool, default: "on", applies: ParamContext::OnReload, hidden: true, alias_of: Some("failover_on_backend_error"),
        help: "Old name of failover_on_backend_error.", ..ROW },
    ConfigParam { name: "failover_on_backend_shutdown", kind: ParamKind::Bool, default: "off", applies: ParamContext::OnReload,
        set: |c, _, v| c.failover.on_shutdown = ConnEndPolicy::of(v.bool()),
        help: "Detach a node when it says that it shuts down.", ..BUILT },
    ConfigParam { name: "search_primary_node_timeout", kind: ParamKind::Seconds { min: 0, max: INT_MAX }, default: "300", applies: ParamContext::OnReload,
        set: |c, _, v| c.search_primary_timeout_ms = v.millis(),
        help: "Time in which somebody must have made a primary, at the start and after one was lost, except with failover_mode = builtin. At its end the log says so; one that appears later is taken all the same. 0: no end.", ..BUILT },
    ConfigParam { name: "detach_false_primary", kind: ParamKind::Bool, default: "off", applies: ParamContext::OnReload,
        set: |c, _, v| c.failover.false_primary = if v.bool() { FalsePrimary::Detached } else { FalsePrimary::Ignored },
        help: "Detach a primary that the standbys do not follow.", ..BUILT },
    ConfigParam { name: "auto_failback", kind: ParamKind::Bool, default: "off", applies: ParamContext::OnReload,
        set: |c, _, v| c.failover.auto_failback = v.bool(),
        help: "Attach a detached standby again once the primary streams to it.", ..BUILT },
    ConfigParam { name: "auto_failback_interval", kind: ParamKind::Seconds { min: 0, max: INT_MAX }, default: "60", applies: ParamContext::OnReload,
        set: |c, _, v| c.failover.auto_failback_interval_ms = v.millis(),
        help: "Shortest time between two such attachments.", ..BUILT },
    ConfigParam { name: "failover_mode", kind: ParamKind::Enum { values: &["auto", "builtin", "command", "follow", "off"], also: &[] }, default: "auto", applies: ParamContext::OnReload, since: "Weir 0.1",
        set: |c, _, v| c.failover.mode = FailoverMode::of_word(v.word()),
        help: "Who makes a standby the primary when the primary is lost. builtin: Weir does, over SQL. command: failover_command does. follow: somebody else does, such as Patroni, and Weir follows. off: only an operator. auto: command if failover_command is set, else follow.", ..BUILT },
    ConfigParam { name: "failover_alone", kind: ParamKind::Bool, default: "off", applies: ParamContext::OnReload, since: "Weir 0.1",
        set: |c, _, v| c.failover.company = if v.bool() { OtherPromoters::Alone } else { OtherPromoters::Possible },
        help: "Says that no other proxy promotes the same servers. off: a majority of the standbys must agree, and a primary that is silent but not proven dead is replaced only where synchronous standbys keep it from acknowledging anything. on: one standby is enough unless standbys are synchronous, and silence is.", ..BUILT },
    ConfigParam { name: "failover_lag_max", kind: ParamKind::Bytes { min: -1, max: i64::MAX }, default: "1MB", applies: ParamContext::OnReload, since: "Weir 0.1",
        set: |c, _, v| c.failover.lag_bytes_max = v.int(),
        help: "Most log, in bytes, that an asynchronous standby may lack, by what is known, to be promoted. -1: any.", ..BUILT },
    ConfigParam { name: "failover_lag_time_max", kind: ParamKind::Seconds { min: 0, max: INT_MAX }, default: "10", applies: ParamContext::OnReload, since: "Weir 0.1",
        set: |c, _, v| c.failover.lag_ms_max = v.millis(),
        help: "Longest time for which an asynchronous standby may have received nothing of what the primary wrote, by what looks at both have found, to be promoted. It bounds small commits, as failover_lag_max bounds bytes. 0: any.", ..BUILT },
    ConfigParam { name: "failover_wait", kind: ParamKind::Seconds { min: 0, max: INT_MAX }, default: "30", applies: ParamContext::OnReload, since: "Weir 0.1",
        effect: ParamEffect::Built, set: |c, _, v| c.failover.wait_ms = v.millis(),
        help: "Longest time a statement that was not sent, or was refused before it ran, waits for a primary before it fails. The session goes on. 0: for ever.", ..ROW },
    ConfigParam { name: "switchover_transaction_limit", kind: ParamKind::Seconds { min: 0, max: INT_MAX }, default: "10", applies: ParamContext::OnReload, since: "Weir 0.1",
        effect: ParamEffect::Built, set: |c, _, v| c.recovery.agents.transaction_limit_ms = v.millis(),
        help: "Time that open transactions get to end before a switchover; then they are ended.", ..ROW },
    ConfigParam { name: "failover_lost", kind: ParamKind::Enum { values: &["warning", "error"], also: &[] }, default: "warning", applies: ParamContext::OnReload, since: "Weir 0.1",
        effect: ParamEffect::Built, set: |c, _, v| c.failover.lost = OnLost::from_word(v.word()),
        help: "How a session hears that another server is the primary now and is not known to have all that the session was shown: by a warning before its next answer, or its next statement fails with SQLSTATE 40001.", ..ROW },
    ConfigParam { name: "commit_outcome", kind: ParamKind::Bool, default: "off", applies: ParamContext::OnReload, since: "Weir 0.1",
        set: |c, _, v| c.failover.commit_outcome = v.bool(),
        help: "Ask the primary for the outcome of a transaction whose COMMIT was sent and not answered. Its client hears the answer to its COMMIT if the transaction was committed, SQLSTATE 40001 if it was not, and 08007 only if neither is proved. A client may SET weir.commit_outcome for itself, limit_override_list does it for some users or databases.", ..BUILT },
    ConfigParam { name: "transaction_replay", kind: ParamKind::Bool, default: "off", applies: ParamContext::OnReload, since: "Weir 0.1",
        set: |c, _, v| c.failover.replay = v.bool(),
        help: "Run a transaction again on the new primary if its server is lost before its COMMIT was sent, or if commit_outcome proves that it was rolled back. Its client notices nothing if all that it was shown comes out the same, byte for byte; else it hears SQLSTATE 40001. A client may SET weir.transaction_replay for itself, limit_override_list does it for some users or databases.", ..BUILT },
    ConfigParam { name: "transaction_replay_max_size", kind: ParamKind::Bytes { min: 1024, max: 64 << 20 }, default: "1MB", applies: ParamContext::OnReload, since: "Weir 0.1",
        set: |c, _, v| c.failover.replay_bytes_max = v.int().unsigned_abs(),
        help: "Most bytes of messages that a session keeps of a transaction in order to run it again. Longer transactions are not.", ..BUILT },
];
