//! What happens when a node fails or returns.
use super::{Applies, Group, INT_MAX, Kind, Param};

/// A row of this area that nothing reads yet.
const ROW: Param = Param { group: Group::Failover, ..super::ROW };

/// The rows, related ones together.
#[rustfmt::skip] // two or three lines a row keep the table readable as one
pub(super) const ROWS: &[Param] = &[
    Param { name: "failover_command", kind: Kind::Text, default: "", applies: Applies::OnReload,
        help: "Command run after a node was detached. %d, %h, %p, %D stand for the lost node's number, host, port and data directory, %m, %H, %r, %R for the new main node's, %% for %.", ..ROW },
    Param { name: "failback_command", kind: Kind::Text, default: "", applies: Applies::OnReload,
        help: "Command run after a node was attached; the same % signs as in failover_command.", ..ROW },
    Param { name: "follow_primary_command", kind: Kind::Text, default: "", applies: Applies::OnReload,
        help: "Command run for every other node after the primary changed; the same % signs as in failover_command.", ..ROW },
    Param { name: "follow_master_command", kind: Kind::Text, default: "", applies: Applies::OnReload, hidden: true, alias_of: Some("follow_primary_command"),
        help: "Old name of follow_primary_command, up to Pgpool-II 4.1.", ..ROW },
    Param { name: "failover_on_backend_error", kind: Kind::Bool, default: "on", applies: Applies::OnReload,
        help: "Detach a node when reading from or writing to it fails.", ..ROW },
    Param { name: "fail_over_on_backend_error", kind: Kind::Bool, default: "on", applies: Applies::OnReload, hidden: true, alias_of: Some("failover_on_backend_error"),
        help: "Old name of failover_on_backend_error.", ..ROW },
    Param { name: "failover_on_backend_shutdown", kind: Kind::Bool, default: "off", applies: Applies::OnReload,
        help: "Detach a node when it says that it shuts down.", ..ROW },
    Param { name: "search_primary_node_timeout", kind: Kind::Seconds { min: 0, max: INT_MAX }, default: "300", applies: Applies::OnReload,
        set: |c, _, v| c.search_primary_timeout_ms = v.millis(),
        help: "Time to look for a primary at the start and after a failover. 0: for ever.", ..ROW },
    Param { name: "detach_false_primary", kind: Kind::Bool, default: "off", applies: Applies::OnReload,
        help: "Detach a primary that the standbys do not follow.", ..ROW },
    Param { name: "auto_failback", kind: Kind::Bool, default: "off", applies: Applies::OnReload,
        help: "Attach a detached standby again once the primary streams to it.", ..ROW },
    Param { name: "auto_failback_interval", kind: Kind::Seconds { min: 0, max: INT_MAX }, default: "60", applies: Applies::OnReload,
        help: "Shortest time between two such attachments.", ..ROW },
];
