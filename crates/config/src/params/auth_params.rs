//! Logins of clients.
use std::path::PathBuf;

use super::{ConfigParam, INT_MAX, ParamContext, ParamEffect, ParamGroup, ParamKind, ParamLikeness};
use crate::PasswdProof;
use crate::client_demands::{ClientTls, CommonMethod};
use crate::visibility::ValueVisibility::{Everyone, Operators};

const BUILT: ConfigParam = ConfigParam { group: ParamGroup::Auth, effect: ParamEffect::Built, ..super::ROW };
const ALIKE: ConfigParam = ConfigParam { likeness: ParamLikeness::Alike, ..BUILT };

#[rustfmt::skip] // two or three lines a row keep the table readable as one
pub(super) const ROWS: &[ConfigParam] = &[
    ConfigParam { name: "enable_pool_hba", kind: ParamKind::Bool, default: "off", applies: ParamContext::OnReload,
        set: |c, _, v| c.auth.use_hba = v.bool(),
        help: "Decide by pool_hba.conf who may connect and how. The file lies beside the configuration file, or where -a says.", ..ALIKE },
    ConfigParam { name: "auth_type", kind: ParamKind::Enum { values: &["hba", "trust", "plain", "md5", "scram-sha-256", "cert", "pam"], also: &[] }, default: "hba", applies: ParamContext::OnReload, since: "Weir 0.1",
        set: |c, _, v| c.auth.demands.method = CommonMethod::from_word(v.word()),
        help: "PgBouncer's auth_type: the method of the rules of pool_hba.conf that have the word auth_type in place of one, with its meaning there (trust, plain and cert let in users with a line in pool_passwd, or whom auth_query knows). Rules behind the last of them do not count. hba: they do not count, and the others decide.", ..BUILT },
    ConfigParam { name: "client_sslmode", kind: ParamKind::Enum { values: &["allow", "require", "verify-ca"], also: &[("disable", "allow"), ("prefer", "allow"), ("verify-full", "verify-ca")] }, default: "allow", applies: ParamContext::OnReload, since: "Weir 0.1",
        set: |c, _, v| c.auth.demands.tls = ClientTls::from_word(v.word()),
        help: "Encryption that pool_hba.conf asks of all clients over TCP, whatever its rules say: require has host mean hostssl and hostnossl reject, verify-ca asks for a certificate, too. allow: each rule says it itself. PgBouncer's client_tls_sslmode.", ..ALIKE },
    ConfigParam { name: "ident_file", kind: ParamKind::Text(Operators), default: "pool_ident.conf", applies: ParamContext::OnReload, since: "Weir 0.1",
        set: |c, _, v| c.auth.ident_file = Some(v.text()).filter(|name| !name.is_empty()).map(PathBuf::from),
        help: "File with the maps of user names that rules of pool_hba.conf name, relative to the directory of the configuration file.", ..BUILT },
    ConfigParam { name: "pool_passwd", kind: ParamKind::Text(Operators), default: "pool_passwd", applies: ParamContext::AtStart,
        set: |c, _, v| c.auth.passwd_file = Some(v.text()).filter(|name| !name.is_empty()).map(PathBuf::from),
        help: "File with users and passwords, relative to the directory of the configuration file. Empty: no such file.", ..BUILT },
    ConfigParam { name: "pool_passwd_proof", kind: ParamKind::Enum { values: &["always", "as_servers"], also: &[] }, default: "always", applies: ParamContext::OnReload, since: "Weir 0.1",
        set: |c, _, v| c.auth.passwd_proof = PasswdProof::from_word(v.word()),
        help: "Without pool_hba.conf: a client whose user has a line in pool_passwd is always asked for the password, or as_servers, as by Pgpool-II: only if a server asks Weir for one. Where all servers trust Weir's machine, as_servers lets everybody in who reaches Weir, as any user. Under the name pgpool it is the default.", ..BUILT },
    ConfigParam { name: "database_file", kind: ParamKind::Text(Operators), default: "", applies: ParamContext::OnReload, since: "Weir 0.1",
        set: |c, _, v| c.auth.database_file = Some(v.text()).filter(|name| !name.is_empty()).map(PathBuf::from),
        help: "File with databases by another name and forced users, relative to the directory of the configuration file. Its lines are those of [databases] in pgbouncer.ini. Empty: no such file.", ..BUILT },
    ConfigParam { name: "allow_clear_text_frontend_auth", kind: ParamKind::Bool, default: "off", applies: ParamContext::OnReload,
        set: |c, _, v| c.auth.allow_clear_text = v.bool(),
        help: "Ask a client for its password in clear text when nothing is known of its user, and let a server judge it. A server that lets Weir's machine in without a password judges nothing: the client is refused. Not with pool_hba.conf, which has the method password for it.", ..BUILT },
    ConfigParam { name: "authentication_timeout", kind: ParamKind::Seconds { min: 0, max: INT_MAX }, default: "60", applies: ParamContext::AtStart,
        set: |c, _, v| c.auth.timeout_ms = v.millis(),
        help: "Time a client has to log in. 0: no limit.", ..BUILT },
    ConfigParam { name: "auth_user", kind: ParamKind::Text(Operators), default: "", applies: ParamContext::OnReload, since: "Weir 0.1",
        set: |c, _, v| c.auth.ask_user = v.text(),
        help: "User who asks servers about other users: runs auth_query, and looks up groups for pool_hba.conf. Empty: there is no auth_query, and sr_check_user looks up groups.", ..ALIKE },
    ConfigParam { name: "auth_query", kind: ParamKind::Text(Operators), default: "SELECT rolname, rolpassword FROM pg_authid WHERE rolname = $1", applies: ParamContext::OnReload, since: "Weir 0.1",
        set: |c, _, v| c.auth.ask_query = v.text(),
        help: "Query that auth_user runs to get name and verifier (md5 or SCRAM-SHA-256) of a user who has no entry in pool_passwd; $1 is the name. Only pg_catalog is searched. VALID UNTIL and NOLOGIN count in any case.", ..ALIKE },
    ConfigParam { name: "auth_dbname", kind: ParamKind::Text(Everyone), default: "postgres", applies: ParamContext::OnReload, since: "Weir 0.1",
        set: |c, _, v| c.auth.ask_database = v.text(),
        help: "Database in which servers are asked about users. It may be a database by another name of database_file. Databases there may have an auth_user, auth_query and auth_dbname of their own.", ..ALIKE },
    ConfigParam { name: "auth_query_timeout", kind: ParamKind::Seconds { min: 1, max: 3600 }, default: "5", applies: ParamContext::OnReload, since: "Weir 0.1",
        set: |c, _, v| c.auth.ask_timeout_ms = v.millis(),
        help: "Time a login waits for what a server says about its user; after that it is refused.", ..BUILT },
    ConfigParam { name: "auth_cache_time", kind: ParamKind::Seconds { min: 0, max: 86_400 }, default: "10", applies: ParamContext::OnReload, since: "Weir 0.1",
        set: |c, _, v| c.auth.cache_ms = v.millis(),
        help: "Time for which what a server said about a user (verifier, groups, that it lets him in) is believed without asking again. 0: ask at every login, but log in for new clients at most once a second.", ..BUILT },
    ConfigParam { name: "auth_query_cache_time", kind: ParamKind::Seconds { min: -1, max: 86_400 }, default: "-1", applies: ParamContext::OnReload, since: "Weir 0.1",
        set: |c, _, v| c.auth.query_cache_ms = u64::try_from(v.int()).ok(),
        help: "Time for which an answer of auth_query is believed without asking again. 0: each login asks. -1: auth_cache_time.", ..BUILT },
    ConfigParam { name: "login_failure_limit", kind: ParamKind::Int { min: 0, max: 1_000_000 }, default: "20", applies: ParamContext::OnReload, since: "Weir 0.1",
        set: |c, _, v| c.auth.failures_max = v.count(),
        help: "Wrong proofs of one user from one address before more of them are slowed down to one a second, counted when they arrive. All users of an address together have ten times as many. Over a unix socket the system user of the client's process counts as the address. 0: no limit.", ..BUILT },
];
