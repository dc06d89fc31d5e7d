//! Online recovery: by the node's agent, or as in Pgpool-II by its extension `pgpool_recovery`, which runs the operator's scripts on the
//! primary.
//!
//! The first script copies the primary to the node, the second one starts its server. Demands: Pgpool-II's manual, "Online Recovery".

use super::node_acts::{NodeActError, attach_as, node_of, operate, wait_until};
use crate::auth::own_login::OwnUse;
use crate::control::agent_client::AgentEndpoint;
use crate::control::control_conn::ControlConn;
use crate::control::control_context::ControlContext;
use crate::control::return_node::{self, NodeReturn};
use crate::log::Level;
use crate::runtime::pool::server_conn::{OpenError, ServerAddress, ServerLogin};
use crate::runtime::recoveries::{RecoveryGuard, RecoveryWork};
use std::convert::Infallible;
use std::future::pending;
use std::io::ErrorKind;
use std::time::Duration;
use tokio::time::Instant;
use weir_agent::{OrderProgress, ServerStatus};
use weir_config::passwd::UserSecret;
use weir_config::{Config, RecoveryConfig};
use weir_failover::operations::RejoinWay;
use weir_failover::{NodeCopyStage, OperatorRequest};

const NAME: &str = "weir_recovery";
/// Database with the functions of Pgpool-II up to 4.6.
const OLD_DATABASE: &str = "template1";
/// Longest time of a script: a copy of a large server takes hours.
const SCRIPT_LIMIT: Duration = Duration::from_secs(7 * 24 * 3600);
const LOGIN_LIMIT: Duration = Duration::from_secs(10);
const LOOK_PERIOD: Duration = Duration::from_millis(200);
const PRIMARY_LIMIT: Duration = Duration::from_secs(15);
const ATTACH_LIMIT: Duration = Duration::from_secs(30);
/// Finds the functions of Pgpool-II's extension by argument types, newest first. Only a superuser's count, and none of `pg_temp`: a foreign
/// function of that name must not run with the rights of `recovery_user`. Source: `pgpool_recovery--1.4.sql` of Pgpool-II.
const LOOK: &str = "SELECT n.nspname, p.pronargs FROM pg_catalog.pg_proc p \
     JOIN pg_catalog.pg_namespace n ON n.oid OPERATOR(pg_catalog.=) p.pronamespace \
     JOIN pg_catalog.pg_roles o ON o.oid OPERATOR(pg_catalog.=) p.proowner AND o.rolsuper \
     WHERE p.proname OPERATOR(pg_catalog.=) 'pgpool_recovery' AND p.prokind OPERATOR(pg_catalog.=) 'f' \
     AND p.proargtypes OPERATOR(pg_catalog.=) ANY (ARRAY['25 25 25', '25 25 25 25', '25 25 25 25 23', '25 25 25 25 23 25', \
     '25 25 25 25 23 25 25']::pg_catalog.oidvector[]) AND NOT pg_catalog.starts_with(n.nspname::pg_catalog.text, 'pg_temp_') \
     AND EXISTS (SELECT FROM pg_catalog.pg_proc s JOIN pg_catalog.pg_roles r ON r.oid OPERATOR(pg_catalog.=) s.proowner AND r.rolsuper \
     WHERE s.proname OPERATOR(pg_catalog.=) 'pgpool_remote_start' AND s.pronamespace OPERATOR(pg_catalog.=) n.oid \
     AND s.prokind OPERATOR(pg_catalog.=) 'f' AND s.proargtypes OPERATOR(pg_catalog.=) '25 25'::pg_catalog.oidvector) \
     ORDER BY p.pronargs DESC LIMIT 1";

/// Base backups that began after this session, the first one. PostgreSQL manual, "Base Backup Progress Reporting"; from version 13 on.
const COPY_LOOK: &str = "SELECT b.backup_streamed, b.backup_total FROM pg_catalog.pg_stat_progress_basebackup b \
     JOIN pg_catalog.pg_stat_activity a ON a.pid OPERATOR(pg_catalog.=) b.pid \
     WHERE a.backend_start OPERATOR(pg_catalog.>) (SELECT o.backend_start FROM pg_catalog.pg_stat_activity o \
     WHERE o.pid OPERATOR(pg_catalog.=) pg_catalog.pg_backend_pid()) ORDER BY a.backend_start LIMIT 1";
const COPY_LOOK_PERIOD: Duration = Duration::from_secs(1);

/// Casts, so that no other overload fits.
const TEXT: &str = "::pg_catalog.text";
const INTEGER: &str = "::pg_catalog.int4";

struct RecoveryFunctions {
    conn: ControlConn,
    schema: String,
    arguments: usize,
}

struct RecoveryLock<'a>(&'a ControlContext);

impl<'a> RecoveryLock<'a> {
    fn take(c: &'a ControlContext) -> Option<RecoveryLock<'a>> {
        (!c.recovers.replace(true)).then_some(RecoveryLock(c))
    }
}

impl Drop for RecoveryLock<'_> {
    fn drop(&mut self) {
        self.0.recovers.set(false);
    }
}

/// Cancel safe, but begun scripts go on.
pub async fn recover(c: &ControlContext, number: i32) -> Result<(), NodeActError> {
    let node = node_of(&c.shared, number).await?;
    // A primary that was just stopped is being replaced.
    wait_until(PRIMARY_LIMIT, || !c.shared.cluster.failover.load().is_in_flux(c.millis(Instant::now().into()))).await;
    let (config, view) = (c.shared.config.load_full(), c.shared.cluster.view.load_full());
    let rules = &config.recovery;
    let agent = return_node::agent_of(c, &config, node);
    if agent.is_none() && (rules.user.is_empty() || rules.command.is_empty()) {
        return Err(refused("the node has no agent, and recovery_user and recovery_1st_stage_command are not set"));
    }
    let Some(turn) = RecoveryLock::take(c) else { return Err(refused("another recovery is under way")) };
    let primary = view.primary.and_then(|at| ServerAddress::of(&view, &config, at));
    let primary = primary.ok_or_else(|| refused("there is no primary"))?;
    let at = view.nodes.iter().position(|known| known.id == node);
    let address = at.and_then(|at| ServerAddress::of(&view, &config, at)).ok_or_else(|| refused("node id is not valid"))?;
    if primary.node == node {
        return Err(refused("primary server cannot be recovered by online recovery."));
    }
    match &agent {
        Some(agent) => check_stopped(agent, node).await?,
        None => check_is_down(c, rules, &address).await?,
    }
    operate(&c.shared, OperatorRequest::Recover(node, NodeCopyStage::Begins)).await?;
    let outcome = match agent {
        Some(_) => copy_by_agent(c, &config, node, primary.node).await,
        None => copy(c, rules, &primary, &address).await,
    };
    if outcome.is_err() {
        // Ends the recovery; the operator attaches the node after a repair.
        if let Err(cause) = operate(&c.shared, OperatorRequest::Detach(node)).await {
            c.shared.log.say(Level::Warning, format_args!("PCP: node {node} stays out of use: {cause}"));
        }
    }
    drop(turn);
    outcome
}

fn refused(text: impl Into<String>) -> NodeActError {
    NodeActError::Refused(text.into())
}

async fn check_stopped(agent: &AgentEndpoint, node: u16) -> Result<(), NodeActError> {
    match agent.status(Instant::now() + LOGIN_LIMIT).await {
        Ok(status) if status.server == ServerStatus::Stopped => Ok(()),
        Ok(_) => Err(NodeActError::ServerRuns(node)),
        Err(error) => Err(refused(format!("nobody knows if node {node} runs: {error}"))),
    }
}

/// Without scripts.
async fn copy_by_agent(c: &ControlContext, config: &Config, node: u16, primary: u16) -> Result<(), NodeActError> {
    c.shared.log.say(Level::Log, format_args!("online recovery of node {node} by its agent begins"));
    let order = NodeReturn { node, primary, way: RejoinWay::Copy, ballot: None };
    let brought = return_node::bring_back(c, config, order, Instant::now() + SCRIPT_LIMIT).await;
    brought.map_err(|error| refused(error.to_string()))?;
    attach_as(&c.shared, OperatorRequest::Recover(node, NodeCopyStage::Ends), ATTACH_LIMIT).await
}

/// A running server would lose its files.
async fn check_is_down(c: &ControlContext, rules: &RecoveryConfig, address: &ServerAddress) -> Result<(), NodeActError> {
    match log_in(c, rules, address, OLD_DATABASE).await {
        Err(OpenError::Connect { cause, .. })
            if cause.kind() == ErrorKind::ConnectionRefused
                || (cause.kind() == ErrorKind::NotFound && address.hostname.starts_with('/')) =>
        {
            Ok(())
        }
        Err(error @ (OpenError::Connect { .. } | OpenError::Broke { .. })) => {
            Err(refused(format!("nobody knows if node {} runs: {error}", address.node)))
        }
        Ok(_) | Err(_) => Err(NodeActError::ServerRuns(address.node)),
    }
}

async fn copy(
    c: &ControlContext,
    rules: &RecoveryConfig,
    primary: &ServerAddress,
    node: &ServerAddress,
) -> Result<(), NodeActError> {
    let shown = |error| match error {
        OpenError::Refused { message, .. } => refused(message),
        other => refused(other.to_string()),
    };
    let mut functions = find(c, rules, primary).await?;
    functions.conn.renew(Instant::now() + SCRIPT_LIMIT);
    let directory = data_directory(c, node)?;
    let first = functions.first_stage(&rules.command, primary, node, &directory);
    c.shared.log.say(Level::Log, format_args!("online recovery of node {}: 1st stage begins", node.node));
    let row = c.shared.cluster.recoveries.begin(node.node, RecoveryWork::Scripts);
    // Opened before the script begins: its copy is a younger session.
    let looker = log_in(c, rules, primary, OLD_DATABASE).await.ok();
    tokio::select! {
        done = functions.conn.query_by_name(&first) => drop(done.map_err(shown)?),
        never = watch_copy(looker, &row) => match never {},
    }
    let start = functions.remote_start(node, &directory);
    c.shared.log.say(Level::Log, format_args!("online recovery of node {}: its server is started", node.node));
    functions.conn.query_by_name(&start).await.map_err(shown)?;
    drop(functions);
    let limit = Instant::now() + Duration::from_millis(rules.timeout_ms);
    wait_accepting(c, rules, node, limit).await?;
    attach_as(&c.shared, OperatorRequest::Recover(node.node, NodeCopyStage::Ends), ATTACH_LIMIT).await
}

/// Tells the row how far the primary is with the first base backup that began since `looker` was opened. A primary that cannot be asked changes
/// nothing: then only the bytes are missing. Never ends. Cancel safe: the connection is closed.
async fn watch_copy(looker: Option<ControlConn>, row: &RecoveryGuard<'_>) -> Infallible {
    let Some(mut looker) = looker else { return pending().await };
    loop {
        looker.renew(Instant::now() + LOGIN_LIMIT);
        let Ok(rows) = looker.query(COPY_LOOK).await else { return pending().await };
        if let Some([done, total]) = rows.first().map(Vec::as_slice) {
            let bytes = |cell: &Option<String>| cell.as_deref().and_then(|text| text.parse().ok()).unwrap_or(0);
            row.note(OrderProgress { done_bytes: bytes(done), total_bytes: bytes(total) });
        }
        tokio::time::sleep(COPY_LOOK_PERIOD).await;
    }
}

fn data_directory(c: &ControlContext, node: &ServerAddress) -> Result<String, NodeActError> {
    let config = c.shared.config.load();
    let known = config.nodes.iter().find(|known| known.id == node.node);
    let directory = known.map(|known| known.data_directory.clone()).filter(|directory| !directory.is_empty());
    directory.ok_or_else(|| refused(format!("backend_data_directory{} is not set", node.node)))
}

async fn log_in(
    c: &ControlContext,
    rules: &RecoveryConfig,
    address: &ServerAddress,
    database: &str,
) -> Result<ControlConn, OpenError> {
    let files = c.shared.access.files();
    let own = UserSecret::parse(rules.password.as_bytes(), files.key.as_ref()).ok();
    let secret = own.as_ref().or_else(|| files.passwords.get(rules.user.as_bytes()));
    let parameters = &[("application_name", NAME)];
    let login = ServerLogin { user: &rules.user, database, secret, generation: 0, parameters };
    ControlConn::log_in(&c.shared, address, &login, OwnUse::Questions, Instant::now() + LOGIN_LIMIT).await.map(|(conn, _)| conn)
}

async fn find(c: &ControlContext, rules: &RecoveryConfig, primary: &ServerAddress) -> Result<RecoveryFunctions, NodeActError> {
    let mut last = None;
    for database in [rules.database.as_str(), OLD_DATABASE] {
        let looked = async {
            let mut conn = log_in(c, rules, primary, database).await?;
            let rows = conn.query(LOOK).await?;
            Ok::<_, OpenError>((conn, rows))
        };
        match looked.await {
            Ok((conn, rows)) => {
                if let Some([Some(schema), Some(arguments)]) = rows.first().map(Vec::as_slice) {
                    let arguments = arguments.parse().unwrap_or(0);
                    return Ok(RecoveryFunctions { conn, schema: schema.clone(), arguments });
                }
            }
            Err(error) => last = Some(error.to_string()),
        }
    }
    let text = || {
        format!(
            "there is no function pgpool_recovery of a superuser's in database \"{}\": CREATE EXTENSION pgpool_recovery",
            rules.database
        )
    };
    Err(refused(last.unwrap_or_else(text)))
}

impl RecoveryFunctions {
    /// Source: Pgpool-II, `exec_recovery` in recovery.c. Older functions take fewer arguments, in the same order.
    fn first_stage(&self, script: &str, primary: &ServerAddress, node: &ServerAddress, directory: &str) -> String {
        let all = [
            literal(script),
            literal(host(node)),
            literal(directory),
            literal(&primary.port.to_string()),
            format!("{}{INTEGER}", node.node),
            literal(&node.port.to_string()),
            literal(host(primary)),
        ];
        let count = self.arguments.min(all.len());
        format!("select {}.pgpool_recovery({})", identifier(&self.schema), all[..count].join(", "))
    }

    fn remote_start(&self, node: &ServerAddress, directory: &str) -> String {
        format!("select {}.pgpool_remote_start({}, {})", identifier(&self.schema), literal(host(node)), literal(directory))
    }
}

/// A host that scripts can log in to.
fn host(address: &ServerAddress) -> &str {
    if address.hostname.starts_with('/') { "localhost" } else { &address.hostname }
}

fn literal(text: &str) -> String {
    format!("E'{}'{TEXT}", text.replace('\\', "\\\\").replace('\'', "''"))
}

fn identifier(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

async fn wait_accepting(
    c: &ControlContext,
    rules: &RecoveryConfig,
    node: &ServerAddress,
    limit: Instant,
) -> Result<(), NodeActError> {
    loop {
        let Err(error) = log_in(c, rules, node, OLD_DATABASE).await else { return Ok(()) };
        if Instant::now() >= limit {
            let text = format!("node {} accepts no connections after {} ms: {error}", node.node, rules.timeout_ms);
            return Err(refused(text));
        }
        tokio::time::sleep(LOOK_PERIOD).await;
    }
}

/// For the list of Weir's own texts. Calls of found functions name the operator's schema.
pub fn own_texts() -> Vec<String> {
    vec![LOOK.to_owned(), COPY_LOOK.to_owned()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_in_a_text_stays_in_it() {
        assert_eq!(literal("it's \\ here"), "E'it''s \\\\ here'::pg_catalog.text");
        assert_eq!(identifier("a\"b"), "\"a\"\"b\"");
    }
}
