//! Bringing a node back.
use std::path::PathBuf;

use super::{ConfigParam, INT_MAX, ParamContext, ParamEffect, ParamGroup, ParamKind, ParamLikeness, ParamValue};
use crate::agents::{AgentSsl, RejoinAuthority};
use crate::visibility::ValueVisibility::{Everyone, Nobody, Operators};

const ROW: ConfigParam = ConfigParam { group: ParamGroup::Recovery, ..super::ROW };
const BUILT: ConfigParam = ConfigParam { effect: ParamEffect::Built, ..ROW };
const ALIKE: ConfigParam = ConfigParam { likeness: ParamLikeness::Alike, ..BUILT };

fn file(value: &ParamValue) -> Option<PathBuf> {
    Some(value.text()).filter(|name| !name.is_empty()).map(PathBuf::from)
}

#[rustfmt::skip] // two or three lines a row keep the table readable as one
pub(super) const ROWS: &[ConfigParam] = &[
    ConfigParam { name: "recovery_user", kind: ParamKind::Text(Operators), default: "", applies: ParamContext::OnReload,
        set: |c, _, v| c.recovery.user = v.text(),
        help: "Superuser who runs the online recovery.", ..ALIKE },
    ConfigParam { name: "recovery_password", kind: ParamKind::Text(Nobody), default: "", applies: ParamContext::OnReload,
        set: |c, _, v| c.recovery.password = v.text(),
        help: "Password of that user, not as an md5 hash. Empty: the one in pool_passwd.", ..BUILT },
    ConfigParam { name: "recovery_database", kind: ParamKind::Text(Everyone), default: "postgres", applies: ParamContext::OnReload, since: "4.7",
        set: |c, _, v| c.recovery.database = v.text(),
        help: "Database in which the extension pgpool_recovery is installed. If it is not there, template1 is looked at, where older releases have it.", ..ALIKE },
    ConfigParam { name: "recovery_1st_stage_command", kind: ParamKind::Text(Operators), default: "", applies: ParamContext::OnReload,
        set: |c, _, v| c.recovery.command = v.text(),
        help: "Script in the primary's data directory that copies it to the node, run first, while clients work.", ..ALIKE },
    ConfigParam { name: "recovery_2nd_stage_command", kind: ParamKind::Text(Operators), default: "", applies: ParamContext::OnReload,
        help: "Script run after the first with no clients connected; native replication only.", ..ROW },
    ConfigParam { name: "recovery_timeout", kind: ParamKind::Seconds { min: 0, max: INT_MAX }, default: "90", applies: ParamContext::OnReload,
        set: |c, _, v| c.recovery.timeout_ms = v.millis(),
        help: "Time the recovered node has to accept connections. 0: do not wait.", ..ALIKE },
    ConfigParam { name: "agent_secret_file", kind: ParamKind::Text(Operators), default: "", applies: ParamContext::OnReload, since: "Weir 0.1",
        set: |c, _, v| c.recovery.agents.secret_file = file(v),
        help: "File, relative to the directory of the configuration file, of the secret shared with the agents (backend_agent). A line is a secret for all, or HOST:PORT and the secret for one. Only its owner may read it. Read again for each connection.", ..BUILT },
    ConfigParam { name: "agent_user", kind: ParamKind::Text(Operators), default: "", applies: ParamContext::OnReload, since: "Weir 0.1",
        set: |c, _, v| c.recovery.agents.user = v.text(),
        help: "User as whom agents and the standbys they make read the primary. Its password is in the passfile of the agent's user. Empty: health_check_user.", ..ALIKE },
    ConfigParam { name: "agent_rejoin", kind: ParamKind::Bool, default: "on", applies: ParamContext::OnReload, since: "Weir 0.1",
        set: |c, _, v| c.recovery.agents.rejoin = if v.bool() { RejoinAuthority::ByAgent } else { RejoinAuthority::ByOperator },
        help: "With failover_mode = builtin: the agent of a primary that was replaced makes it a standby of the new one, by pg_rewind or a base backup. Data that only the old one had are discarded.", ..ALIKE },
    ConfigParam { name: "agent_sslmode", kind: ParamKind::Enum { values: &["disable", "require", "verify-ca", "verify-full"], also: &[] }, default: "disable", applies: ParamContext::OnReload, since: "Weir 0.1",
        set: |c, _, v| c.recovery.agents.ssl_mode = AgentSsl::from_word(v.word()),
        help: "Encryption of connections to agents, in libpq's words; all agents must have it then. require: as verify-ca if there are authorities.", ..BUILT },
    ConfigParam { name: "agent_sslrootcert", kind: ParamKind::Text(Everyone), default: "", applies: ParamContext::OnReload, since: "Weir 0.1",
        set: |c, _, v| c.recovery.agents.tls.root_cert = file(v),
        help: "File of the authorities that agents' certificates are checked against. Empty: ssl_ca_cert and ssl_ca_cert_dir. none: no authorities.", ..BUILT },
    ConfigParam { name: "agent_sslcert", kind: ParamKind::Text(Everyone), default: "", applies: ParamContext::OnReload, since: "Weir 0.1",
        set: |c, _, v| c.recovery.agents.tls.cert = file(v),
        help: "File of the certificate shown to agents.", ..BUILT },
    ConfigParam { name: "agent_sslkey", kind: ParamKind::Text(Operators), default: "", applies: ParamContext::OnReload, since: "Weir 0.1",
        set: |c, _, v| c.recovery.agents.tls.key = file(v),
        help: "File of its private key.", ..BUILT },
    ConfigParam { name: "client_idle_limit_in_recovery", kind: ParamKind::Seconds { min: -1, max: INT_MAX }, default: "0", applies: ParamContext::PerSession,
        help: "Time without a request after which a client is disconnected in the second stage. 0: never. -1: at once.", ..ROW },
];
