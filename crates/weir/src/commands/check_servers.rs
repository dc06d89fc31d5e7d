//! `weir check --connect`: asks servers for all that a failover needs. `commands::readiness` judges the answers.

use crate::auth::access::AccessFiles;
use crate::auth::own_login::OwnUse;
use crate::commands::readiness::surplus::{self, OwnUser, WeirUserPurpose};
use crate::commands::readiness::{
    ClientLoginUse, ClockOffset, ClusterAnswers, ConnsMax, FailedLogin, FindingLevel, LoginFailure, NodeAnswers, OnOffSetting,
    ReadinessFinding, ReplicationRow, RequiredPrivilege, ServerAnswers, ServerRole, ServerSettings, StreamingStatus, findings,
};
use crate::control::control_conn::ControlConn;
use crate::control::failover;
use crate::counted;
use crate::log::ProxyLog;
use crate::runtime::pool::server_conn::{OpenError, Rows, ServerAddress, ServerLogin};
use crate::runtime::pool::server_login::protocol;
use crate::runtime::shared::SharedState;
use crate::runtime::tls_files::TlsFiles;
use anyhow::Context;
use std::borrow::Cow;
use std::fs::OpenOptions;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::time::Instant;
use weir_config::look_up::LookUp;
use weir_config::passwd::UserSecret;
use weir_config::{CheckConfig, Config, NodeConfig};
use weir_failover::FailoverRules;
use weir_progress::{ProgressLine, WorkAmount};
use weir_session::session_state::server_defaults::ServerDefaults;

const NAME: &str = "weir_check";

/// Time for all queries over one connection.
const ASK_TIMEOUT: Duration = Duration::from_secs(10);

/// First version in which `primary_conninfo` can be asked for.
const SETTINGS_VERSION: u32 = 120_000;

/// First version in which ALTER SYSTEM can be granted.
const ALTER_VERSION: u32 = 150_000;

const VERSION: &str = "SELECT pg_catalog.current_setting('server_version_num')";

const FACTS: &str = "SELECT r, (pg_catalog.pg_control_system()).system_identifier, \
    CASE WHEN r THEN (SELECT pg_catalog.lpad(pg_catalog.to_hex(received_tli), 8, '0') FROM pg_catalog.pg_stat_wal_receiver) \
    ELSE pg_catalog.substr(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_lsn()), 1, 8) END, \
    CASE WHEN r THEN (SELECT COALESCE(status, '-') FROM pg_catalog.pg_stat_wal_receiver) END, \
    CASE WHEN pg_catalog.pg_has_role('pg_read_all_settings', 'MEMBER') \
    THEN pg_catalog.current_setting('primary_conninfo', true) END, \
    pg_catalog.current_setting('hot_standby'), pg_catalog.current_setting('wal_log_hints'), \
    pg_catalog.current_setting('data_checksums'), COALESCE(pg_catalog.current_setting('allow_alter_system', true), 'on'), \
    pg_catalog.current_setting('max_wal_senders'), pg_catalog.current_setting('max_replication_slots'), \
    (SELECT pg_catalog.count(*) FROM pg_catalog.pg_replication_slots), pg_catalog.current_setting('primary_slot_name'), \
    (SELECT setting FROM pg_catalog.pg_settings WHERE name OPERATOR(pg_catalog.=) 'recovery_min_apply_delay'), \
    pg_catalog.current_setting('synchronous_standby_names'), pg_catalog.current_setting('cluster_name'), \
    pg_catalog.current_setting('max_connections'), pg_catalog.current_setting('superuser_reserved_connections'), \
    pg_catalog.current_setting('reserved_connections', true) \
    FROM (SELECT pg_catalog.pg_is_in_recovery() AS r OFFSET 0) AS x";

/// Microseconds since 1970 by the server's clock.
const CLOCK: &str = "SELECT (EXTRACT(epoch FROM pg_catalog.clock_timestamp()) OPERATOR(pg_catalog.*) 1000000)::pg_catalog.int8";

const FOLLOWERS: &str = "SELECT application_name, state FROM pg_catalog.pg_stat_replication";

const FIXED: &str = "SELECT name FROM pg_catalog.pg_settings WHERE name OPERATOR(pg_catalog.=) \
    ANY ('{primary_conninfo,default_transaction_read_only}') AND source OPERATOR(pg_catalog.=) 'command line'";

/// Builds the query of rights, in the order of `RequiredPrivilege::ALL`.
fn rights_query(version: u32) -> String {
    const SUPERUSER: &str = "(SELECT rolsuper FROM pg_catalog.pg_roles WHERE rolname OPERATOR(pg_catalog.=) current_user)";
    let alter = |name: &str| match version {
        ALTER_VERSION.. => format!("pg_catalog.has_parameter_privilege('{name}', 'ALTER SYSTEM')"),
        _ => SUPERUSER.to_owned(),
    };
    format!(
        "SELECT pg_catalog.pg_has_role('pg_monitor', 'USAGE'), pg_catalog.pg_has_role('pg_signal_backend', 'USAGE'), \
         pg_catalog.has_function_privilege('pg_catalog.pg_promote(boolean,integer)', 'EXECUTE'), \
         pg_catalog.has_function_privilege('pg_catalog.pg_switch_wal()', 'EXECUTE'), \
         pg_catalog.has_function_privilege('pg_catalog.pg_reload_conf()', 'EXECUTE'), \
         pg_catalog.has_table_privilege('pg_catalog.pg_file_settings', 'SELECT') \
         AND pg_catalog.has_function_privilege('pg_catalog.pg_show_all_file_settings()', 'EXECUTE'), {}, {}, \
         (SELECT rolsuper OR rolreplication FROM pg_catalog.pg_roles WHERE rolname OPERATOR(pg_catalog.=) current_user)",
        alter("primary_conninfo"),
        alter("default_transaction_read_only")
    )
}

fn surplus_query() -> String {
    format!(
        "SELECT u.rolsuper, u.rolcreaterole, u.rolcreatedb, u.rolbypassrls, \
         (SELECT pg_catalog.string_agg(r.rolname::pg_catalog.text, ',') FROM pg_catalog.pg_roles AS r \
         WHERE r.rolname OPERATOR(pg_catalog.=) ANY ('{{{}}}'::pg_catalog.name[]) AND pg_catalog.pg_has_role(r.oid, 'USAGE')) \
         FROM pg_catalog.pg_roles AS u WHERE u.rolname OPERATOR(pg_catalog.=) SESSION_USER",
        surplus::ROLES.join(",")
    )
}

/// Returns the lines to print, and the number of errors.
pub fn run(config: &Config, access: AccessFiles, tls: TlsFiles, line: &ProgressLine) -> anyhow::Result<(String, usize)> {
    // A default log: the configured one belongs to a running proxy.
    let log = ProxyLog::new(&Config::default().log).context("cannot make a log")?;
    let shared = Arc::new(SharedState::new(config.clone(), None, access, tls, Vec::new(), crate::random(), log));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("cannot make a runtime")?;
    let nodes = runtime.block_on(async {
        let mut asked = Vec::new();
        line.begin("asking", WorkAmount::Count { total: config.nodes.len() as u64, unit: "servers" });
        for node in &config.nodes {
            line.name(&format!("asking node {}", node.id));
            asked.push(ask(&shared, config, node).await);
            line.advance(1);
        }
        line.rest();
        asked
    });
    let number = config.conns_per_node_max();
    let parameters = match config.limits.conns_per_node {
        0 => "num_init_children * max_pool",
        _ => "max_server_connections_per_node",
    };
    let cluster = ClusterAnswers {
        nodes,
        conns: ConnsMax { number, parameters },
        folder: try_folder(&config.work_dir).err().map(|cause| cause.to_string()).or_else(|| failover::obstacle(config)),
    };
    let user = config.nodes.first().map(|node| user_of(config, node)).unwrap_or_default();
    let found = findings(&FailoverRules::of(config), &cluster, &user);
    let errors = found.iter().filter(|finding| finding.level == FindingLevel::Error).count();
    let mut text: String = found.iter().map(line_of).collect();
    let warnings = counted(found.len() - errors, "warning");
    text += &format!("{} asked: {}, {warnings}\n", counted(config.nodes.len(), "server"), counted(errors, "error"));
    Ok((text, errors))
}

fn line_of(finding: &ReadinessFinding) -> String {
    let ReadinessFinding { node, level, text, advice } = finding;
    let node = node.map_or_else(|| "all nodes".to_owned(), |id| format!("node {id}"));
    let level = match level {
        FindingLevel::Warning => "warning",
        FindingLevel::Error => "error",
    };
    format!("{node}: {level}: {text}; {advice}\n")
}

fn try_folder(folder: &Path) -> io::Result<()> {
    let path = folder.join(format!("weir_check.{}", std::process::id()));
    OpenOptions::new().write(true).create_new(true).open(&path)?;
    std::fs::remove_file(&path)
}

/// By default the role check's login.
fn health_of(config: &Config, node: &NodeConfig) -> CheckConfig {
    let health = &node.health;
    if health.user.is_empty() {
        return config.check.clone();
    }
    let (user, password, database) = (health.user.clone(), health.password.clone(), health.database.clone());
    CheckConfig { user, password, database, ..config.check.clone() }
}

fn user_of(config: &Config, node: &NodeConfig) -> String {
    let user = health_of(config, node).user;
    if user.is_empty() { "postgres".into() } else { user }
}

/// Cancel safe: connections are closed.
async fn ask(shared: &Arc<SharedState>, config: &Config, node: &NodeConfig) -> NodeAnswers {
    let health = health_of(config, node);
    let mut server = match open(shared, node, &health, &[("application_name", NAME)]).await {
        Ok(mut conn) => facts(&mut conn).await,
        Err(error) => Err(error),
    };
    if let Ok(server) = &mut server {
        server.defaults = defaults(shared, node, &config.check).await.unwrap_or_default();
    }
    let replication = [("application_name", NAME), ("replication", "database")];
    let mut own_users = Vec::new();
    for (errand, login) in own_users_of(config, health.clone()) {
        // Refused logins are reported elsewhere.
        if let Ok(mut conn) = open(shared, node, &login, &[("application_name", NAME)]).await
            && let Ok(rows) = conn.query(&surplus_query()).await
        {
            own_users.push(OwnUser { errand, name: name_of(&login).to_owned(), surplus: surplus_of(&rows) });
        }
    }
    NodeAnswers {
        id: node.id,
        user_parameter: if node.health.user.is_empty() { "sr_check_user" } else { "health_check_user" },
        server: server.map_err(refused),
        checker: open(shared, node, &config.check, &[("application_name", NAME)]).await.map(drop).map_err(refused),
        replication: open(shared, node, &health, &replication).await.map(drop).map_err(refused),
        own_users,
        failed_logins: failed_logins(shared, config, node).await,
    }
}

/// Tries the logins that clients need. Cancel safe: connections are closed.
async fn failed_logins(shared: &Arc<SharedState>, config: &Config, node: &NodeConfig) -> Vec<FailedLogin> {
    let own = asking_users(config).into_iter().map(|look_up| (ClientLoginUse::LookUp, None, look_up.user, look_up.database));
    let forced = config
        .databases
        .iter()
        .filter_map(|(name, entry)| Some((ClientLoginUse::Forced, Some(&**name), entry.user.as_deref()?, entry.database(name))));
    let mut failed = Vec::new();
    for (needed, name, user, database) in own.chain(forced.take(FORCED_USERS_MAX)) {
        let secret = match name {
            Some(name) => shared.secret_for_server(user, Some(name)),
            None if user == config.check.user => shared.access.files().checker(&config.check).1.map(Cow::into_owned),
            None => shared.access.files().passwords.get(user).cloned(),
        };
        // A verifier alone cannot log in: the user's first client brings the proof.
        if matches!(secret, Some(UserSecret::Scram(_))) {
            continue;
        }
        let parameters = [("application_name", NAME)];
        let login = ServerLogin { user, database, secret: secret.as_ref(), generation: 0, parameters: &parameters };
        let until = Instant::now() + ASK_TIMEOUT;
        if let Err(error) = ControlConn::log_in(shared, &address_of(node), &login, OwnUse::Questions, until).await {
            failed.push(FailedLogin { needed, user: user.to_owned(), database: database.to_owned(), why: refused(error) });
        }
    }
    failed
}

/// Each user takes a login to each server.
const ASKING_USERS_MAX: usize = 20;

const FORCED_USERS_MAX: usize = 20;

fn own_users_of(config: &Config, health: CheckConfig) -> Vec<(WeirUserPurpose, CheckConfig)> {
    let mut all = vec![(WeirUserPurpose::Failover, health), (WeirUserPurpose::Looks, config.check.clone())];
    for LookUp { user, database, .. } in asking_users(config) {
        // The password belongs to `check.user` only.
        let password = if user == config.check.user { config.check.password.clone() } else { String::new() };
        let own = CheckConfig { user: user.to_owned(), database: database.to_owned(), password, ..config.check.clone() };
        all.push((WeirUserPurpose::Logins, own));
    }
    all
}

fn asking_users(config: &Config) -> Vec<LookUp<'_>> {
    let own = config.databases.iter().filter(|(_, entry)| entry.look_up.user.is_some()).map(|(name, _)| Some(&**name));
    let mut asking: Vec<LookUp<'_>> = Vec::new();
    for look_up in [None].into_iter().chain(own).map(|database| config.look_up(database)) {
        let is_new = !look_up.user.is_empty() && !asking.iter().any(|known| known.user == look_up.user);
        if is_new && asking.len() < ASKING_USERS_MAX {
            asking.push(look_up);
        }
    }
    asking
}

fn name_of(login: &CheckConfig) -> &str {
    if login.user.is_empty() { "postgres" } else { &login.user }
}

fn surplus_of(rows: &Rows) -> Vec<String> {
    let Some(row) = rows.first() else { return Vec::new() };
    let cell = |at: usize| row.get(at).and_then(|cell| cell.as_deref()).unwrap_or_default();
    surplus::of_answer([0, 1, 2, 3].map(|at| cell(at) == "t"), cell(4))
}

/// Refused logins are reported elsewhere. Cancel safe: the connection is closed.
async fn defaults(shared: &Arc<SharedState>, node: &NodeConfig, check: &CheckConfig) -> Option<ServerDefaults> {
    let mut conn = open_for(shared, node, check, OwnUse::Defaults, &[("application_name", NAME)]).await.ok()?;
    let rows = conn.query(weir_session::session_state::server_defaults::QUESTION).await.ok()?;
    ServerDefaults::of(node.id, &rows, std::iter::empty()).ok()
}

async fn open(
    shared: &Arc<SharedState>,
    node: &NodeConfig,
    check: &CheckConfig,
    parameters: &[(&str, &str)],
) -> Result<ControlConn, OpenError> {
    open_for(shared, node, check, OwnUse::Questions, parameters).await
}

async fn open_for(
    shared: &Arc<SharedState>,
    node: &NodeConfig,
    check: &CheckConfig,
    of: OwnUse,
    parameters: &[(&str, &str)],
) -> Result<ControlConn, OpenError> {
    let address = address_of(node);
    let files = shared.access.files();
    let (user, secret) = files.checker(check);
    let login = ServerLogin { user, database: &check.database, secret: secret.as_deref(), generation: 0, parameters };
    ControlConn::log_in(shared, &address, &login, of, Instant::now() + ASK_TIMEOUT).await.map(|(conn, _)| conn)
}

fn address_of(node: &NodeConfig) -> ServerAddress {
    ServerAddress {
        node: node.id,
        shard: 0,
        hostname: node.hostname.clone(),
        port: node.port,
        connect_timeout_ms: node.connect_timeout_ms,
        ssl_mode: node.ssl_mode,
    }
}

fn refused(error: OpenError) -> LoginFailure {
    let text = error.to_string();
    match &error {
        OpenError::Refused { sqlstate, .. } if sqlstate.starts_with("28") => LoginFailure::Identity(text),
        OpenError::Secret { .. } => LoginFailure::Identity(text),
        OpenError::Tls { .. } => LoginFailure::Encryption(text),
        error if error.is_unreachable() || error.is_silent() => LoginFailure::Unreachable(text),
        _ => LoginFailure::Other(text),
    }
}

/// Not cancel safe: the connection is unusable afterwards.
async fn facts(conn: &mut ControlConn) -> Result<ServerAnswers, OpenError> {
    let rows = conn.query(VERSION).await?;
    let version = rows.iter().flatten().flatten().next().and_then(|text| text.parse().ok()).unwrap_or(0);
    if version < SETTINGS_VERSION {
        return Ok(ServerAnswers { version, ..ServerAnswers::default() });
    }
    let rows = conn.query(FACTS).await?;
    let mut server = read(&rows).ok_or_else(|| protocol(&conn.address, "no facts in its answer"))?;
    server.version = version;
    server.clock = clock(conn).await?;
    let rights = conn.query(&rights_query(version)).await?;
    let has = rights.iter().flatten().map(|cell| cell.as_deref() == Some("t"));
    server.missing = RequiredPrivilege::ALL.into_iter().zip(has).filter(|(_, has)| !has).map(|(right, _)| right).collect();
    server.fixed = conn.query(FIXED).await?.into_iter().flatten().flatten().collect();
    if let ServerRole::Primary { followers } = &mut server.role {
        *followers = conn.query(FOLLOWERS).await?.iter().filter_map(|row| follower(row)).collect();
    }
    Ok(server)
}

/// Not cancel safe: the connection is unusable afterwards.
async fn clock(conn: &mut ControlConn) -> Result<ClockOffset, OpenError> {
    let since_1970 = || SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let (before, asked) = (since_1970(), Instant::now());
    let rows = conn.query(CLOCK).await?;
    let took = asked.elapsed();
    let theirs: Option<u64> = rows.iter().flatten().flatten().next().and_then(|text| text.parse().ok());
    let theirs = Duration::from_micros(theirs.ok_or_else(|| protocol(&conn.address, "no time in its answer"))?);
    let ours = before + took / 2;
    let ahead_ms = if theirs >= ours { whole_ms(theirs - ours) } else { -whole_ms(ours - theirs) };
    Ok(ClockOffset { ahead_ms, within_ms: took.as_millis() as u64 })
}

fn whole_ms(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

fn read(rows: &Rows) -> Option<ServerAnswers> {
    let row = rows.first()?;
    let text = |at: usize| row.get(at).and_then(|cell| cell.as_deref());
    let number = |at: usize| text(at).and_then(|text| text.parse::<u32>().ok()).unwrap_or(0);
    let is_on = |at: usize| if text(at) == Some("on") { OnOffSetting::On } else { OnOffSetting::Off };
    let own = |at: usize| text(at).unwrap_or_default().to_owned();
    let role = match text(0)? {
        "t" => ServerRole::Standby {
            conninfo: text(4).map(str::to_owned),
            receiver: match text(3) {
                None => StreamingStatus::None,
                Some("-") => StreamingStatus::Hidden,
                Some("streaming") => StreamingStatus::Streams,
                Some(_) => StreamingStatus::None,
            },
        },
        _ => ServerRole::Primary { followers: Vec::new() },
    };
    Some(ServerAnswers {
        system: text(1).and_then(|text| text.parse().ok()),
        timeline: text(2).and_then(|text| u32::from_str_radix(text, 16).ok()),
        role,
        settings: ServerSettings {
            hot_standby: is_on(5),
            rewinds: if text(6) == Some("on") { OnOffSetting::On } else { is_on(7) },
            alters: is_on(8),
            senders_max: number(9),
            slots_max: number(10),
            slots: number(11),
            slot_name: own(12),
            apply_delay_ms: text(13).and_then(|text| text.parse().ok()).unwrap_or(0),
            sync_names: own(14),
            cluster_name: own(15),
            conns_max: number(16),
            conns_reserved: number(17).saturating_add(number(18)),
        },
        ..ServerAnswers::default()
    })
}

fn follower(row: &[Option<String>]) -> Option<ReplicationRow> {
    let [name, state] = row else { return None };
    Some(ReplicationRow {
        application_name: name.clone().unwrap_or_default(),
        is_streaming: state.as_deref() == Some("streaming"),
    })
}

pub fn own_texts() -> Vec<String> {
    let made = [rights_query(130_000), rights_query(180_000), surplus_query()];
    [VERSION, FACTS, CLOCK, FOLLOWERS, FIXED].map(str::to_owned).into_iter().chain(made).collect()
}
