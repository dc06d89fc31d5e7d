//! Reads a database's log from the primary by logical replication, so that writes past Weir invalidate cached answers too.
//!
//! One task per database, with one connection and one temporary slot, which ends with the connection and then retains no WAL.
//! Nothing is buffered that could fill up. Decisions: `weir_cache::LogFollower`.

use crate::auth::own_login::OwnUse;
use crate::control::control_conn::{ControlConn, read_row};
use crate::control::control_context::{ControlContext, TaskBell, WakeSubject};
use crate::log::{Level, LogOrigin};
use crate::runtime::pool::server_conn::{OpenError, ServerAddress, ServerLogin};
use crate::runtime::pool::server_login::{ServerGreeting, protocol, refused};
use crate::runtime::shared::ProxyShutdown;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use weir_cache::{FollowError, Slot, WalHistory};
use weir_failover::may_acknowledge;
use weir_session::catalogs::KnownDatabase;
use weir_session::causal::standbys::read_position;
use weir_session::fault::sqlstate;
use weir_session::metrics::WorkerCounter;
use weir_wire::frame::{WireError, back, front};
use weir_wire::replication_stream::{
    COPY_BOTH, ChangedTable, OutputPlugin, PluginMessage, ReplicationMessage, ReplicationStream, read_change, status,
};
use weir_wire::write;

const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
const RETRY: Duration = Duration::from_secs(2);
const APPLICATION_NAME: &str = "weir_cache";
/// Period of `is_wanted` checks, and of position reports.
const TICK: Duration = Duration::from_secs(1);
/// Silence after which a message is requested.
const QUIET: Duration = Duration::from_secs(10);
/// Silence after which the server counts as gone.
const SILENCE: Duration = Duration::from_secs(30);
/// Time without sessions after which following ends.
const LINGER: Duration = Duration::from_secs(60);
const PART_TIMEOUT: Duration = Duration::from_secs(2);
const INBOX_BYTES: usize = 64 << 10;

#[derive(Debug, thiserror::Error)]
enum FollowerError {
    #[error("there is no primary")]
    NoPrimary,
    #[error("{0}")]
    Server(#[from] OpenError),
    #[error("wal_level of node {node} is {level}; it must be logical (ALTER SYSTEM SET wal_level = logical, and a restart)")]
    WalLevel { node: u16, level: String },
    #[error(
        "synchronous_standby_names of node {node} names all who stream, and a proxy is no standby: commits would count as replicated \
         when only Weir has read them; the standbys must be named, or memqcache_invalidation = proxy be set"
    )]
    Acknowledges { node: u16 },
    #[error("there is no publication \"{name}\" in it; a superuser must run CREATE PUBLICATION {name} FOR ALL TABLES there")]
    NoPublication { name: String },
    #[error(
        "publication \"{name}\" does not tell of all changes: it must be FOR ALL TABLES, with insert, update, delete and truncate, and \
         with publish_via_partition_root = false"
    )]
    Publication { name: String },
    #[error("user \"{user}\" (sr_check_user) needs the attribute REPLICATION: {cause}")]
    Rights { user: String, cause: OpenError },
    #[error("{cause}; test_decoding comes with PostgreSQL's contrib modules, or set memqcache_publication")]
    Plugin { cause: OpenError },
    #[error("{address} ended the stream: {cause}")]
    Broke { address: ServerAddress, cause: io::Error },
    #[error("{address} said nothing for {} s", SILENCE.as_secs())]
    Silent { address: ServerAddress },
    #[error("{address} ended the stream: {message}")]
    Told { address: ServerAddress, message: String },
    #[error("{address} ended the stream")]
    Ended { address: ServerAddress },
    #[error("{address} sent what is not known: {cause}")]
    Wire { address: ServerAddress, cause: WireError },
    #[error("{address} sent a message of a plugin that is not known")]
    Change { address: ServerAddress },
    #[error("the stream of {address} is of no use: {cause}")]
    Protocol { address: ServerAddress, cause: FollowError },
    #[error("the primary is another one now, or Weir was configured anew")]
    Moved,
    #[error("it is not wanted any more")]
    Unwanted,
}

struct FollowGuard {
    c: Rc<ControlContext>,
    database: Arc<KnownDatabase>,
}

impl Drop for FollowGuard {
    fn drop(&mut self) {
        self.database.follow.close(self.c.shared.positions.next_round());
    }
}

/// Follows one database until it has had no sessions for `LINGER`. Cancel safe: stream and slot end.
pub async fn watch(c: Rc<ControlContext>, database: Arc<KnownDatabase>) {
    let _duty = FollowGuard { c: c.clone(), database: database.clone() };
    let bell = c.bell(WakeSubject::Database(database.name.clone()));
    let mut used_at = Instant::now();
    while is_wanted(&c, &database, &mut used_at) {
        let Err(error) = follow(&c, &database, &bell, &mut used_at).await;
        database.follow.lose(c.shared.positions.next_round());
        if matches!(error, FollowerError::Unwanted) {
            return;
        }
        tell(&c, &database, &error);
        let until = Instant::now() + if matches!(error, FollowerError::Moved) { TICK } else { RETRY };
        while Instant::now() < until && is_wanted(&c, &database, &mut used_at) {
            let _ = tokio::time::timeout_at(until.into(), bell.rung()).await;
        }
    }
}

fn is_wanted(c: &ControlContext, database: &KnownDatabase, used_at: &mut Instant) -> bool {
    if database.has_sessions() {
        *used_at = Instant::now();
    }
    let is_used = used_at.elapsed() < LINGER && !database.follow.is_unwanted();
    is_used && c.shared.stop_mode() < ProxyShutdown::Fast
}

fn tell(c: &ControlContext, database: &KnownDatabase, error: &FollowerError) {
    let text = error.to_string();
    let mut report = database.follow.report.lock();
    report.breaks += 1;
    report.step = "waiting for the next attempt";
    (report.node, report.slot) = (None, String::new());
    if report.error.as_ref() == Some(&text) {
        return;
    }
    let who = LogOrigin { database: &database.name, ..LogOrigin::default() };
    let name = &database.name;
    let text_for_log =
        format_args!("the log of database \"{name}\" is not followed, so that nothing of it is answered from memory: {text}");
    c.shared.log.write(Level::Warning, &who, text_for_log);
    report.error = Some(text);
}

struct FollowedStream<'a> {
    c: Rc<ControlContext>,
    database: Arc<KnownDatabase>,
    bell: &'a TaskBell,
    address: ServerAddress,
    conn: ControlConn,
    process: (u32, Vec<u8>),
    plugin: OutputPlugin,
    publication: String,
}

/// Not cancel safe.
async fn follow(
    c: &Rc<ControlContext>,
    database: &Arc<KnownDatabase>,
    bell: &TaskBell,
    used_at: &mut Instant,
) -> Result<std::convert::Infallible, FollowerError> {
    let address = primary(c).ok_or(FollowerError::NoPrimary)?;
    let publication = c.shared.config.load().cache.publication.clone();
    let plugin = if publication.is_empty() { OutputPlugin::TestDecoding } else { OutputPlugin::Pgoutput };
    let (conn, greeting) = log_in(c, database, &address).await?;
    let process = (greeting.pid, greeting.key);
    let mut source =
        FollowedStream { c: c.clone(), database: database.clone(), bell, address, conn, process, plugin, publication };
    let outcome = async {
        source.begin(used_at).await?;
        source.take_all(used_at).await
    };
    let outcome = outcome.await;
    if matches!(outcome, Err(FollowerError::Unwanted)) {
        source.part().await;
    }
    outcome
}

fn primary(c: &ControlContext) -> Option<ServerAddress> {
    let view = c.shared.cluster.view.load();
    view.primary.and_then(|at| ServerAddress::of(&view, &c.shared.config.load(), at))
}

/// Cancel safe.
async fn log_in(
    c: &ControlContext,
    database: &KnownDatabase,
    address: &ServerAddress,
) -> Result<(ControlConn, ServerGreeting), FollowerError> {
    database.follow.report.lock().step = "connecting";
    let config = c.shared.config.load_full();
    let check = &config.check;
    let files = c.shared.access.files();
    let (user, secret) = files.checker(check);
    let secret = secret.as_deref();
    let parameters = [("replication", "database"), ("application_name", APPLICATION_NAME)];
    let login = ServerLogin { user, database: &database.name, secret, generation: 0, parameters: &parameters };
    let deadline = Instant::now() + ANSWER_TIMEOUT;
    let entered = ControlConn::log_in(&c.shared, address, &login, OwnUse::Questions, deadline.into()).await;
    entered.map_err(|cause| match cause {
        cause if is_refused(&cause, sqlstate::INSUFFICIENT_PRIVILEGE) => FollowerError::Rights { user: user.into(), cause },
        cause => cause.into(),
    })
}

fn is_refused(error: &OpenError, by: &str) -> bool {
    matches!(error, OpenError::Refused { sqlstate, .. } if sqlstate == by)
}

const IDENTIFY: &str = "IDENTIFY_SYSTEM";
const LEVEL: &str = "SELECT pg_catalog.current_setting('wal_level')";
const NAMES: &str = "SELECT pg_catalog.current_setting('synchronous_standby_names')";

/// Checks if a publication has all writes to all tables.
fn publication(name: &str) -> String {
    let mut text = String::from(
        "SELECT p.puballtables AND p.pubinsert AND p.pubupdate AND p.pubdelete AND p.pubtruncate \
         AND NOT COALESCE(pg_catalog.jsonb_extract_path_text(pg_catalog.to_jsonb(p), 'pubviaroot')::pg_catalog.bool, false) \
         FROM pg_catalog.pg_publication AS p WHERE p.pubname OPERATOR(pg_catalog.=) ",
    );
    write::literal(&mut text, name);
    text
}

pub fn own_texts() -> Vec<String> {
    [IDENTIFY, LEVEL, NAMES].map(str::to_owned).into_iter().chain([publication("it's")]).collect()
}

impl FollowedStream<'_> {
    /// Makes the slot and starts the stream. Not cancel safe.
    async fn begin(&mut self, used_at: &mut Instant) -> Result<(), FollowerError> {
        let (c, database) = (self.c.clone(), self.database.clone());
        let history = self.identify().await?;
        self.check_server().await?;
        let random = crate::random::<8>();
        let slot = format!("weir_{}_{:016x}", std::process::id(), u64::from_be_bytes(random));
        {
            let mut report = database.follow.report.lock();
            report.step = "waiting for the transactions that run on the primary";
            report.node = Some(self.address.node);
            report.slot.clone_from(&slot);
            report.plugin = match self.plugin {
                OutputPlugin::Pgoutput => "pgoutput",
                OutputPlugin::TestDecoding => "test_decoding",
            };
        }
        let plugin = database.follow.report.lock().plugin;
        let rows = self
            .ask_with_patience(&format!("CREATE_REPLICATION_SLOT {slot} TEMPORARY LOGICAL {plugin} NOEXPORT_SNAPSHOT"), used_at)
            .await;
        let rows = rows.map_err(|error| match error {
            FollowerError::Server(cause) if is_refused(&cause, sqlstate::INSUFFICIENT_PRIVILEGE) => {
                FollowerError::Rights { user: c.shared.config.load().check.user.clone(), cause }
            }
            FollowerError::Server(cause) if is_refused(&cause, sqlstate::UNDEFINED_FILE) => FollowerError::Plugin { cause },
            error => error,
        })?;
        let position = rows.first().and_then(|row| row.get(1)?.as_deref()).and_then(|text| read_position(text.as_bytes()));
        let position = position.ok_or_else(|| protocol(&self.address, "no position of the slot"))?;
        database.follow.start(history, position, c.shared.positions.next_round());
        want_round(&c);
        self.start_stream(&slot).await?;
        database.follow.report.lock().step = "waiting for the transactions that ran at the begin of the stream";
        Ok(())
    }

    /// Not cancel safe.
    async fn identify(&mut self) -> Result<WalHistory, FollowerError> {
        let rows = self.conn.query(IDENTIFY).await?;
        let cell = |at: usize| rows.first()?.get(at)?.as_deref();
        let system = cell(0).and_then(|text| text.parse().ok());
        let timeline = cell(1).and_then(|text| text.parse().ok());
        match (system, timeline) {
            (Some(system), Some(timeline)) => Ok(WalHistory { node: self.address.node, system, timeline }),
            _ => Err(protocol(&self.address, "no answer to who it is").into()),
        }
    }

    /// Checks `wal_level`, the names of synchronous standbys, and the publication. Not cancel safe.
    async fn check_server(&mut self) -> Result<(), FollowerError> {
        let rows = self.conn.query(LEVEL).await?;
        let level = rows.into_iter().flatten().flatten().next().unwrap_or_default();
        if level != "logical" {
            return Err(FollowerError::WalLevel { node: self.address.node, level });
        }
        let names = self.conn.query(NAMES).await?.into_iter().flatten().flatten().next().unwrap_or_default();
        if may_acknowledge(&names, APPLICATION_NAME) {
            return Err(FollowerError::Acknowledges { node: self.address.node });
        }
        if self.plugin == OutputPlugin::TestDecoding {
            return Ok(());
        }
        let name = self.publication.clone();
        let text = publication(&name);
        let rows = self.conn.query(&text).await?;
        match rows.into_iter().flatten().flatten().next().as_deref() {
            None => Err(FollowerError::NoPublication { name }),
            Some("t") => Ok(()),
            Some(_) => Err(FollowerError::Publication { name }),
        }
    }

    /// Runs a command that may wait for the end of other transactions. Not cancel safe.
    async fn ask_with_patience(&mut self, text: &str, used_at: &mut Instant) -> Result<Vec<Vec<Option<String>>>, FollowerError> {
        self.conn.renew((Instant::now() + ANSWER_TIMEOUT).into());
        self.conn.ask(text).await?;
        let (mut rows, mut error) = (Vec::new(), None);
        loop {
            self.conn.renew((Instant::now() + TICK).into());
            let (tag, body) = match self.conn.next().await {
                Err(OpenError::Broke { cause, .. }) if cause.kind() == io::ErrorKind::TimedOut => {
                    self.check_wanted(used_at).inspect_err(|_| self.cancel())?;
                    continue;
                }
                message => message?,
            };
            match tag {
                back::DATA_ROW => {
                    rows.push(read_row(&self.address, &body)?);
                }
                back::ERROR => error = Some(refused(&self.address, &body)),
                back::READY => return error.map_or(Ok(rows), |error| Err(error.into())),
                _ => {}
            }
        }
    }

    /// Cancels the waiting server process: otherwise it would not notice the end of the connection, and occupy one of
    /// `max_wal_senders`.
    fn cancel(&self) {
        let (shared, address) = (self.c.shared.clone(), self.address.clone());
        tokio::task::spawn_local(ControlConn::cancel(shared, address, self.conn.is_encrypted(), self.process.clone()));
    }

    /// Not cancel safe.
    async fn start_stream(&mut self, slot: &str) -> Result<(), FollowerError> {
        let options = match self.plugin {
            OutputPlugin::Pgoutput => {
                let mut name = String::new();
                write::identifier(&mut name, &self.publication);
                let mut names = String::new();
                write::literal(&mut names, &name);
                format!("(proto_version '1', publication_names {names})")
            }
            OutputPlugin::TestDecoding => "(\"skip-empty-xacts\" 'on', \"include-xids\" 'on')".to_string(),
        };
        self.conn.renew((Instant::now() + ANSWER_TIMEOUT).into());
        self.conn.ask(&format!("START_REPLICATION SLOT {slot} LOGICAL 0/0 {options}")).await?;
        loop {
            let (tag, body) = self.conn.next().await?;
            match tag {
                COPY_BOTH => return Ok(()),
                back::ERROR => return Err(refused(&self.address, &body).into()),
                _ => {}
            }
        }
    }

    /// Terminates, and waits until the slot is released: the database may be about to be dropped. Not cancel safe.
    async fn part(&mut self) {
        let mut out = Vec::new();
        write::bare(&mut out, front::TERMINATE);
        self.conn.renew((Instant::now() + PART_TIMEOUT).into());
        let mut said = self.conn.send(&out).await.is_ok();
        let mut inbox = [0; 4096];
        while said {
            said = self.conn.read(&mut inbox).await.is_ok();
        }
    }

    fn check_wanted(&self, used_at: &mut Instant) -> Result<(), FollowerError> {
        if !is_wanted(&self.c, &self.database, used_at) {
            return Err(FollowerError::Unwanted);
        }
        if primary(&self.c).as_ref() != Some(&self.address) || self.conn.is_left(&self.c.shared) {
            return Err(FollowerError::Moved);
        }
        Ok(())
    }

    /// Not cancel safe.
    async fn take_all(&mut self, used_at: &mut Instant) -> Result<std::convert::Infallible, FollowerError> {
        let (mut stream, mut inbox) = (ReplicationStream::default(), vec![0; INBOX_BYTES]);
        let (mut heard_at, mut said_at, mut has_asked) = (Instant::now(), Instant::now(), false);
        let rest = self.conn.take_rest();
        let mut must_answer = self.take(&mut stream, &rest)?;
        loop {
            self.check_wanted(used_at)?;
            self.tell_if_well();
            let now = Instant::now();
            let is_quiet = now.duration_since(heard_at) >= QUIET && !has_asked;
            if must_answer || is_quiet || now.duration_since(said_at) >= TICK {
                has_asked |= is_quiet;
                self.say(is_quiet).await?;
                said_at = now;
            }
            if now.duration_since(heard_at) >= SILENCE {
                return Err(FollowerError::Silent { address: self.address.clone() });
            }
            self.conn.renew((now + TICK).into());
            let read = tokio::select! {
                read = self.conn.read(&mut inbox) => read,
                // Leads to `check_wanted`.
                () = self.bell.rung() => Err(io::ErrorKind::TimedOut.into()),
            };
            match read {
                Ok(bytes) => {
                    (heard_at, has_asked) = (Instant::now(), false);
                    must_answer = self.take(&mut stream, &inbox[..bytes])?;
                    if bytes == inbox.len() {
                        // More data wait: other tasks run first.
                        tokio::task::yield_now().await;
                    }
                }
                Err(cause) if cause.kind() == io::ErrorKind::TimedOut => must_answer = false,
                Err(cause) => return Err(FollowerError::Broke { address: self.address.clone(), cause }),
            }
        }
    }

    fn tell_if_well(&self) {
        let follow = &self.database.follow;
        if follow.covered().round == 0 || follow.report.lock().error.take().is_none() {
            return;
        }
        let name = &self.database.name;
        let who = LogOrigin { database: name, ..LogOrigin::default() };
        self.c.shared.log.write(Level::Warning, &who, format_args!("the log of database \"{name}\" is followed again"));
    }

    /// Reports the position up to which the server need not retain its log. Not cancel safe.
    async fn say(&mut self, wants_reply: bool) -> Result<(), FollowerError> {
        let position = self.database.follow.standing().map_or(0, |(_, position, _)| position);
        let now_us = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as u64);
        let mut out = Vec::with_capacity(64);
        status(&mut out, position, now_us, wants_reply);
        self.conn.renew((Instant::now() + ANSWER_TIMEOUT).into());
        Ok(self.conn.send(&out).await?)
    }

    /// Returns true if the server wants a reply.
    fn take(&self, stream: &mut ReplicationStream, bytes: &[u8]) -> Result<bool, FollowerError> {
        let follow = &self.database.follow;
        let (before, mut must_answer, mut outcome) = (follow.covered(), false, Ok(()));
        let fed = stream.feed(bytes, |piece| {
            if outcome.is_err() {
                return;
            }
            outcome = match piece {
                ReplicationMessage::Reached { position, wants_reply } => {
                    must_answer |= wants_reply;
                    follow.reach(position);
                    Ok(())
                }
                ReplicationMessage::Said { position, body, is_cut } => self.change(position, body, is_cut),
                ReplicationMessage::Failed(body) => {
                    let message = String::from_utf8_lossy(weir_wire::back::read_report(body).message).into_owned();
                    Err(FollowerError::Told { address: self.address.clone(), message })
                }
                ReplicationMessage::Ended => Err(FollowerError::Ended { address: self.address.clone() }),
            };
        });
        fed.map_err(|cause| FollowerError::Wire { address: self.address.clone(), cause })?;
        outcome?;
        if follow.covered() != before {
            self.c.wake_waiters();
        }
        Ok(must_answer)
    }

    fn change(&self, position: u64, body: &[u8], is_cut: bool) -> Result<(), FollowerError> {
        let change = read_change(self.plugin, body, is_cut);
        let change = change.ok_or_else(|| FollowerError::Change { address: self.address.clone() })?;
        let follow = &self.database.follow;
        let done = match change {
            PluginMessage::Begin { xid } => follow.begin(xid),
            PluginMessage::Table(table) => follow.change(self.slot_of(&table)),
            PluginMessage::Tables(tables) => tables.iter().try_for_each(|table| follow.change(self.slot_of(table))),
            PluginMessage::Commit { end } => {
                self.c.count(WorkerCounter::CacheFollowed);
                follow.report.lock().commits += 1;
                let done = follow.commit(end.unwrap_or(position));
                want_round(&self.c);
                done
            }
            PluginMessage::Nothing => Ok(()),
        };
        done.map_err(|cause| FollowerError::Protocol { address: self.address.clone(), cause })
    }

    fn slot_of(&self, table: &ChangedTable<'_>) -> Slot {
        let (versions, database) = (&self.c.shared.changes.versions, &self.database);
        let number = match table {
            ChangedTable::Number(number) => Some(*number),
            ChangedTable::Name { schema, name } => database.catalog().and_then(|catalog| catalog.number_of(schema, name)),
            ChangedTable::Any => None,
        };
        number.map_or_else(|| versions.of_database(&database.name), |number| versions.of_table(&database.name, number))
    }
}

fn want_round(c: &ControlContext) {
    c.want(c.shared.positions.next_round());
}
