//! The primary of each shard, and connections to it.

use crate::auth::own_login::OwnUse;
use crate::control::control_conn::{ControlConn, read_row};
use crate::log::ProxyLog;
use crate::runtime::operator_files::OperatorFiles;
use crate::runtime::pool::server_conn::{OpenError, Rows, ServerAddress, ServerLogin};
use crate::runtime::shared::SharedState;
use anyhow::{Context, anyhow, bail};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use weir_config::passwd::UserSecret;
use weir_config::{CheckConfig, Config, NodeConfig};
use weir_wire::frame::back;

const NAME: &str = "weir_shard";

const LOGIN_LIMIT: Duration = Duration::from_secs(10);

/// Time for one statement about definitions and empty tables, which may hold a lock that clients wait for.
const STATEMENT_LIMIT: Duration = Duration::from_secs(60);

/// Time for one statement about all rows of a table.
const ROWS_LIMIT: Duration = Duration::from_secs(4 * 3600);

/// Behind a statement that waits for a table's lock, all others of the table wait too.
const SETTINGS: &str = "SET lock_timeout TO '10s'";

/// The second is on at a former primary that a failover has fenced.
const ROLE: &str = "SELECT pg_catalog.pg_is_in_recovery(), pg_catalog.current_setting('default_transaction_read_only')";

/// The primary of one shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardServer {
    pub shard: u16,
    pub node: u16,
    pub hostname: String,
    pub port: u16,
}

impl fmt::Display for ShardServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "shard {} (node {}, {}:{})", self.shard, self.node, self.hostname, self.port)
    }
}

pub struct ShardServers {
    shared: Arc<SharedState>,
    config: Config,
    login: CheckConfig,
    /// Ordered by shard; the first is shard 0.
    pub servers: Vec<ShardServer>,
}

/// A connection to a shard's primary.
pub struct ShardConn {
    pub server: ShardServer,
    pub database: String,
    pub(super) conn: ControlConn,
    limit: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ServerState {
    Primary,
    Standby,
    ReadOnly,
}

impl ShardServers {
    /// Finds the primary of every shard. `user`: in place of `sr_check_user`. Cancel safe: connections are closed.
    pub async fn find(
        files: &OperatorFiles,
        config: &Config,
        user: Option<&str>,
        database: &str,
    ) -> anyhow::Result<ShardServers> {
        if !config.sharding.is_on {
            bail!("parallel_mode is off: tables lie on one server; set parallel_mode = on and backend_shard of the servers");
        }
        let (access, problems) = files.read_access(config, None);
        let access = access.with_context(|| format!("cannot read the passwords: {}", listed(&problems)))?;
        let tls = files.read_tls(config).map_err(|cause| anyhow!("{}", cause.problem(config)))?;
        // A default log: the configured one belongs to a running proxy.
        let log = ProxyLog::new(&Config::default().log).context("cannot make a log")?;
        let shared = Arc::new(SharedState::new(config.clone(), None, access, tls, Vec::new(), crate::random(), log));
        ShardServers::reach(shared, config, login_of(config, user), database).await
    }

    /// As `find`, of the proxy that runs, as `sr_check_user`. Cancel safe: connections are closed.
    pub async fn of_running(shared: Arc<SharedState>, config: &Config, database: &str) -> anyhow::Result<ShardServers> {
        ShardServers::reach(shared, config, config.check.clone(), database).await
    }

    /// Cancel safe: connections are closed.
    async fn reach(
        shared: Arc<SharedState>,
        config: &Config,
        login: CheckConfig,
        database: &str,
    ) -> anyhow::Result<ShardServers> {
        let mut found = ShardServers { shared, config: config.clone(), login, servers: Vec::new() };
        let primary = found.primary_of_cluster(database).await?;
        found.servers.push(primary);
        let mut others: Vec<&NodeConfig> = config.sharding.nodes.iter().collect();
        others.sort_by_key(|node| node.shard);
        for node in others {
            let server = server_of(node);
            match found.state(&server, database).await? {
                ServerState::Primary => found.servers.push(server),
                ServerState::Standby => bail!("{server} is in recovery: name its primary as the server of shard {}", node.shard),
                ServerState::ReadOnly => bail!("{server} takes no writes: default_transaction_read_only is on"),
            }
        }
        Ok(found)
    }

    pub fn engine_of(&self, database: &str) -> String {
        self.config.sharding.engine_of(database)
    }

    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The password of a user in `pool_passwd`, to be given to a server that logs in with it.
    pub fn password_of(&self, user: &str) -> anyhow::Result<Option<String>> {
        match self.shared.access.files().passwords.get(user) {
            None => Ok(None),
            Some(UserSecret::Plain(password)) => {
                let password = String::from_utf8(password.to_vec());
                password.map(Some).with_context(|| format!("the password of \"{user}\" in pool_passwd is no UTF-8"))
            }
            Some(UserSecret::Md5(_) | UserSecret::Scram(_) | UserSecret::Keys(..)) => {
                bail!(
                    "pool_passwd has a hash of the password of \"{user}\", and a login needs the password itself, plain or as AES (weir enc)"
                )
            }
        }
    }

    pub fn numbers(&self) -> Vec<u16> {
        self.servers.iter().map(|server| server.shard).collect()
    }

    /// Cancel safe: connections are closed.
    async fn primary_of_cluster(&self, database: &str) -> anyhow::Result<ShardServer> {
        let (mut primaries, mut reasons) = (Vec::new(), Vec::new());
        for node in &self.config.nodes {
            let server = server_of(node);
            match self.state(&server, database).await {
                Ok(ServerState::Primary) => primaries.push(server),
                Ok(ServerState::Standby) => reasons.push(format!("{server} is a standby")),
                Ok(ServerState::ReadOnly) => reasons.push(format!("{server} takes no writes (default_transaction_read_only)")),
                Err(error) => reasons.push(format!("{error:#}")),
            }
        }
        match primaries.as_slice() {
            [one] => Ok(one.clone()),
            [] => bail!("no primary of shard 0 answers: {}", reasons.join("; ")),
            [one, other, ..] => bail!("shard 0 has two primaries, {one} and {other}: stop the wrong one"),
        }
    }

    /// Cancel safe: the connection is closed.
    async fn state(&self, server: &ShardServer, database: &str) -> anyhow::Result<ServerState> {
        let rows = self.open(server, database).await?.query(ROLE).await?;
        let cells: Vec<&str> = rows.iter().flatten().flatten().map(String::as_str).collect();
        Ok(match cells.as_slice() {
            ["f", "off"] => ServerState::Primary,
            ["f", ..] => ServerState::ReadOnly,
            _ => ServerState::Standby,
        })
    }

    /// Cancel safe: the connection is closed.
    pub async fn open(&self, server: &ShardServer, database: &str) -> anyhow::Result<ShardConn> {
        let node = self.config.all_nodes().find(|node| node.id == server.node).context("the node is no longer configured")?;
        let address = ServerAddress::of_shard(node);
        let files = self.shared.access.files();
        let (user, secret) = files.checker(&self.login);
        let parameters = [("application_name", NAME)];
        let login = ServerLogin { user, database, secret: secret.as_deref(), generation: 0, parameters: &parameters };
        let opened = ControlConn::log_in(&self.shared, &address, &login, OwnUse::Questions, Instant::now() + LOGIN_LIMIT).await;
        let (conn, _) = opened.map_err(|error| anyhow!("{server}, database \"{database}\": {}", error.without_address()))?;
        let mut conn = ShardConn { server: server.clone(), database: database.to_owned(), conn, limit: STATEMENT_LIMIT };
        conn.query(SETTINGS).await?;
        Ok(conn)
    }
}

impl ShardConn {
    /// Runs a text that names only things of PostgreSQL's own. Not cancel safe: the connection is unusable afterwards.
    pub async fn query(&mut self, sql: &str) -> anyhow::Result<Rows> {
        self.conn.renew(Instant::now() + self.limit);
        self.conn.query(sql).await.map_err(|error| self.failed(&error))
    }

    /// Gives later statements time for all rows of a table.
    pub fn expect_rows(&mut self) {
        self.limit = ROWS_LIMIT;
    }

    /// True if the answer has rows. Not cancel safe: the connection is unusable afterwards.
    pub async fn has_rows(&mut self, sql: &str) -> anyhow::Result<bool> {
        Ok(!self.run(sql).await?.is_empty())
    }

    /// Not cancel safe: the connection is unusable afterwards.
    pub async fn run_all(&mut self, statements: &[String]) -> anyhow::Result<()> {
        for statement in statements {
            self.run(statement).await?;
        }
        Ok(())
    }

    /// Gives time for the next message of a COPY.
    pub(super) fn renew(&mut self) {
        self.conn.renew(Instant::now() + self.limit);
    }

    /// Runs a text about users' tables, each with its schema. Not cancel safe: the connection is unusable afterwards.
    pub async fn run(&mut self, sql: &str) -> anyhow::Result<Rows> {
        self.conn.renew(Instant::now() + self.limit);
        self.conn.query_by_name(sql).await.map_err(|error| self.failed(&error).context(format!("failed: {sql}")))
    }

    /// As `run`, for a text that may fail and must not be shown. The answer of a server that refuses: its message, and the detail. Not cancel safe: the
    /// connection is unusable afterwards.
    pub async fn attempt(&mut self, sql: &str) -> anyhow::Result<Result<Rows, String>> {
        self.renew();
        self.conn.ask_copy(sql).await.map_err(|error| self.failed(&error))?;
        let (mut rows, mut refusal) = (Vec::new(), None);
        loop {
            let (tag, body) = self.conn.next().await.map_err(|error| self.failed(&error))?;
            match tag {
                back::DATA_ROW => rows.push(read_row(&self.conn.address, &body).map_err(|error| self.failed(&error))?),
                back::ERROR => refusal = Some(words_of(&body)),
                back::READY => return Ok(refusal.map_or(Ok(rows), Err)),
                _ => {}
            }
        }
    }

    pub(super) fn failed(&self, error: &OpenError) -> anyhow::Error {
        let ShardConn { server, database, .. } = self;
        match error {
            OpenError::Refused { message, sqlstate, .. } => {
                anyhow!("{server}, database \"{database}\", says: {message} (SQLSTATE {sqlstate})")
            }
            OpenError::Broke { cause, .. } => anyhow!("{server}, database \"{database}\": the connection broke: {cause}"),
            other => anyhow!("{server}, database \"{database}\": {}", other.without_address()),
        }
    }
}

fn words_of(report: &[u8]) -> String {
    let report = weir_wire::back::read_report(report);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    let (message, detail) = (text(report.message), text(report.detail));
    if detail.is_empty() { message } else { format!("{message}: {detail}") }
}

fn server_of(node: &NodeConfig) -> ShardServer {
    ShardServer { shard: node.shard, node: node.id, hostname: node.hostname.clone(), port: node.port }
}

/// The password in the configuration belongs to `sr_check_user` only.
fn login_of(config: &Config, user: Option<&str>) -> CheckConfig {
    match user {
        Some(user) if user != config.check.user => {
            CheckConfig { user: user.to_owned(), password: String::new(), ..config.check.clone() }
        }
        Some(_) | None => config.check.clone(),
    }
}

fn listed(problems: &[weir_config::ConfigProblem]) -> String {
    problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

pub fn own_texts() -> Vec<String> {
    vec![SETTINGS.to_owned(), ROLE.to_owned()]
}
