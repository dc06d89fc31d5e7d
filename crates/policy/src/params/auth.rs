//! Who may connect.
use std::path::PathBuf;

use super::{Applies, Effect, Group, INT_MAX, Kind, Param};

/// A row of this area that nothing reads yet.
const ROW: Param = Param { group: Group::Auth, ..super::ROW };
/// A row of this area that does what its help says.
const BUILT: Param = Param { effect: Effect::Built, ..ROW };

/// The rows, related ones together.
#[rustfmt::skip] // two or three lines a row keep the table readable as one
pub(super) const ROWS: &[Param] = &[
    Param { name: "enable_pool_hba", kind: Kind::Bool, default: "off", applies: Applies::OnReload,
        help: "Decide by pool_hba.conf who may connect and how.", ..ROW },
    Param { name: "pool_passwd", kind: Kind::Text, default: "pool_passwd", applies: Applies::AtStart,
        set: |c, _, v| c.passwd_file = Some(v.text()).filter(|name| !name.is_empty()).map(PathBuf::from),
        help: "File with users and passwords, relative to the directory of the configuration file. Empty: no such file.", ..BUILT },
    Param { name: "allow_clear_text_frontend_auth", kind: Kind::Bool, default: "off", applies: Applies::OnReload,
        help: "Ask a client for its password in clear text when pool_passwd has no usable entry. Not with pool_hba.conf.", ..ROW },
    Param { name: "authentication_timeout", kind: Kind::Seconds { min: 0, max: INT_MAX }, default: "60", applies: Applies::AtStart,
        set: |c, _, v| c.authentication_timeout_ms = v.millis(),
        help: "Time a client has to log in. 0: no limit.", ..BUILT },
];
