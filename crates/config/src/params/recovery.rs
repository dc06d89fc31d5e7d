//! Bringing a node back.
use super::{Applies, Group, INT_MAX, Kind, Param};

/// A row of this area that nothing reads yet.
const ROW: Param = Param { group: Group::Recovery, ..super::ROW };

/// The rows, related ones together.
#[rustfmt::skip] // two or three lines a row keep the table readable as one
pub(super) const ROWS: &[Param] = &[
    Param { name: "recovery_user", kind: Kind::Text, default: "", applies: Applies::OnReload,
        help: "Superuser who runs the online recovery.", ..ROW },
    Param { name: "recovery_password", kind: Kind::Text, default: "", applies: Applies::OnReload, secret: true,
        help: "Password of that user, not as an md5 hash. Empty: the one in pool_passwd.", ..ROW },
    Param { name: "recovery_database", kind: Kind::Text, default: "postgres", applies: Applies::OnReload, since: "4.7",
        help: "Database in which the extension pgpool_recovery is installed.", ..ROW },
    Param { name: "recovery_1st_stage_command", kind: Kind::Text, default: "", applies: Applies::OnReload,
        help: "Script in the primary's data directory that copies it to the node, run first, while clients work.", ..ROW },
    Param { name: "recovery_2nd_stage_command", kind: Kind::Text, default: "", applies: Applies::OnReload,
        help: "Script run after the first with no clients connected; native replication only.", ..ROW },
    Param { name: "recovery_timeout", kind: Kind::Seconds { min: 0, max: INT_MAX }, default: "90", applies: Applies::OnReload,
        help: "Time the recovered node has to accept connections. 0: do not wait.", ..ROW },
    Param { name: "client_idle_limit_in_recovery", kind: Kind::Seconds { min: -1, max: INT_MAX }, default: "0", applies: Applies::PerSession,
        help: "Time without a request after which a client is disconnected in the second stage. 0: never. -1: at once.", ..ROW },
];
