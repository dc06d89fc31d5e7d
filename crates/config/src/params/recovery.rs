//! Bringing a node back.
use super::{Applies, Effect, Group, INT_MAX, Kind, Param};

/// A row of this area that nothing reads yet.
const ROW: Param = Param { group: Group::Recovery, ..super::ROW };
/// A row of this area that does what its help says.
const BUILT: Param = Param { effect: Effect::Built, ..ROW };

/// The rows, related ones together.
#[rustfmt::skip] // two or three lines a row keep the table readable as one
pub(super) const ROWS: &[Param] = &[
    Param { name: "recovery_user", kind: Kind::Text, default: "", applies: Applies::OnReload,
        set: |c, _, v| c.recovery.user = v.text(),
        help: "Superuser who runs the online recovery.", ..BUILT },
    Param { name: "recovery_password", kind: Kind::Text, default: "", applies: Applies::OnReload, secret: true,
        set: |c, _, v| c.recovery.password = v.text(),
        help: "Password of that user, not as an md5 hash. Empty: the one in pool_passwd.", ..BUILT },
    Param { name: "recovery_database", kind: Kind::Text, default: "postgres", applies: Applies::OnReload, since: "4.7",
        set: |c, _, v| c.recovery.database = v.text(),
        help: "Database in which the extension pgpool_recovery is installed. If it is not there, template1 is looked at, where older releases have it.", ..BUILT },
    Param { name: "recovery_1st_stage_command", kind: Kind::Text, default: "", applies: Applies::OnReload,
        set: |c, _, v| c.recovery.command = v.text(),
        help: "Script in the primary's data directory that copies it to the node, run first, while clients work.", ..BUILT },
    Param { name: "recovery_2nd_stage_command", kind: Kind::Text, default: "", applies: Applies::OnReload,
        help: "Script run after the first with no clients connected; native replication only.", ..ROW },
    Param { name: "recovery_timeout", kind: Kind::Seconds { min: 0, max: INT_MAX }, default: "90", applies: Applies::OnReload,
        set: |c, _, v| c.recovery.timeout_ms = v.millis(),
        help: "Time the recovered node has to accept connections. 0: do not wait.", ..BUILT },
    Param { name: "client_idle_limit_in_recovery", kind: Kind::Seconds { min: -1, max: INT_MAX }, default: "0", applies: Applies::PerSession,
        help: "Time without a request after which a client is disconnected in the second stage. 0: never. -1: at once.", ..ROW },
];
