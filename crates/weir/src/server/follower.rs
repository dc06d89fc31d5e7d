//! Takes in the log of a database from the primary by logical replication, so that writes past us make answers untrue too.
//!
//! One task of the first worker for each database whose answers somebody wants to keep, with one connection and one slot, which is
//! temporary: it goes with the connection, and keeps nothing back on the primary after it. What arrives is taken in at once and kept
//! nowhere, so that there is nothing that could fill up. Decisions are `weir_cache`'s (`Follower`), what is known lies in `follow`.

use crate::monitor::fault::sqlstate;
use crate::monitor::log::{Level, Who};
use crate::monitor::metrics::Metric;
use crate::process::shared::{Message, Stop};
use crate::process::worker::Worker;
use crate::server::cached_results::CachedResults;
use crate::server::catalogs::Database;
use crate::server::pool::login::{Greeting, protocol, refused};
use crate::server::pool::server_conn::{Address, Login, OpenError, Talk, cancel_process};
use crate::traffic::causal;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use weir_cache::{FollowError, History, Slot};
use weir_io::reactor::parked;
use weir_policy::causal::read_position;
use weir_wire::frame::{WireError, back, front};
use weir_wire::stream::{COPY_BOTH, Change, Piece, Plugin, Stream, Table, read_change, status};
use weir_wire::write;

/// Time for connecting, or for one answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// Time until the next attempt.
const RETRY: Duration = Duration::from_secs(2);
/// Time between two looks whether the task is still wanted, and between two words to the server of how far it was read.
const TICK: Duration = Duration::from_secs(1);
/// After so long without a word the server is asked for one.
const QUIET: Duration = Duration::from_secs(10);
/// And after so long it counts as gone.
const SILENCE: Duration = Duration::from_secs(30);
/// Time without sessions after which a database is left alone.
const LINGER: Duration = Duration::from_secs(60);
/// Time for the server to let go of the slot.
const PART_TIMEOUT: Duration = Duration::from_secs(2);
/// Bytes read at once.
const INBOX_BYTES: usize = 64 << 10;

/// Why a database is not followed.
#[derive(Debug, thiserror::Error)]
enum FollowerError {
    #[error("there is no primary")]
    NoPrimary,
    #[error("{0}")]
    Server(#[from] OpenError),
    #[error("wal_level of node {node} is {level}; it must be logical (ALTER SYSTEM SET wal_level = logical, and a restart)")]
    WalLevel { node: u16, level: String },
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
    Broke { address: Address, cause: io::Error },
    #[error("{address} said nothing for {} s", SILENCE.as_secs())]
    Silent { address: Address },
    #[error("{address} ended the stream: {message}")]
    Told { address: Address, message: String },
    #[error("{address} ended the stream")]
    Ended { address: Address },
    #[error("{address} sent what is not known: {cause}")]
    Wire { address: Address, cause: WireError },
    #[error("{address} sent a message of a plugin that is not known")]
    Change { address: Address },
    #[error("the stream of {address} is of no use: {cause}")]
    Protocol { address: Address, cause: FollowError },
    #[error("the primary is another one now, or Weir was configured anew")]
    Moved,
    #[error("it is not wanted any more")]
    Unwanted,
}

/// Has a database followed; the first worker does it.
pub fn begin(w: &Worker, database: &Arc<Database>, answers: &CachedResults) {
    if database.follow.want(answers.versions.of_database(&database.name), &answers.versions)
        && let Some(mailbox) = w.shared.mailboxes.first()
    {
        w.shared.positions.follow();
        // It may sleep with a round wanted that nobody had a use for.
        causal::wake_sampler(w);
        mailbox.send(Message::Follow(database.clone()));
    }
}

/// Closes the books when the task ends, however it ends.
struct Duty {
    w: Rc<Worker>,
    database: Arc<Database>,
}

impl Drop for Duty {
    fn drop(&mut self) {
        self.database.follow_task.store(weir_io::reactor::NO_TASK, Ordering::SeqCst);
        self.database.follow.close(self.w.shared.positions.next_round());
    }
}

/// Follows one database until it has had no sessions for a while. Runs as a task of its own.
pub async fn watch(w: Rc<Worker>, database: Arc<Database>) {
    let _duty = Duty { w: w.clone(), database: database.clone() };
    database.follow_task.store(w.reactor.current_task(), Ordering::SeqCst);
    let mut used_at = Instant::now();
    while is_wanted(&w, &database, &mut used_at) {
        let Err(error) = follow(&w, &database, &mut used_at).await;
        database.follow.lose(w.shared.positions.next_round());
        if matches!(error, FollowerError::Unwanted) {
            return;
        }
        tell(&w, &database, &error);
        let until = Instant::now() + if matches!(error, FollowerError::Moved) { TICK } else { RETRY };
        while Instant::now() < until && is_wanted(&w, &database, &mut used_at) {
            w.reactor.wake_at(until);
            parked().await;
        }
    }
}

fn is_wanted(w: &Worker, database: &Database, used_at: &mut Instant) -> bool {
    if database.has_sessions() {
        *used_at = Instant::now();
    }
    let is_used = used_at.elapsed() < LINGER && !database.follow.is_unwanted();
    is_used && w.shared.stop_mode() < Stop::Fast
}

/// Notes why it is not followed; what is new is logged.
fn tell(w: &Worker, database: &Database, error: &FollowerError) {
    let text = error.to_string();
    let mut report = database.follow.report.lock();
    report.breaks += 1;
    report.step = "waiting for the next attempt";
    (report.node, report.slot) = (None, String::new());
    if report.error.as_ref() == Some(&text) {
        return;
    }
    let who = Who { database: &database.name, ..Who::default() };
    let name = &database.name;
    let text_for_log =
        format_args!("the log of database \"{name}\" is not followed, so that nothing of it is answered from memory: {text}");
    w.shared.log.write(Level::Warning, &who, text_for_log);
    report.error = Some(text);
}

/// A stream that is being taken in.
struct Source {
    w: Rc<Worker>,
    database: Arc<Database>,
    address: Address,
    talk: Talk,
    /// The server process, and the key to cancel what it does.
    process: (u32, Vec<u8>),
    plugin: Plugin,
    publication: String,
}

/// Follows as long as it goes well. Not cancel safe.
async fn follow(
    w: &Rc<Worker>,
    database: &Arc<Database>,
    used_at: &mut Instant,
) -> Result<std::convert::Infallible, FollowerError> {
    let address = primary(w).ok_or(FollowerError::NoPrimary)?;
    let publication = w.peek_config().cache.publication.clone();
    let plugin = if publication.is_empty() { Plugin::TestDecoding } else { Plugin::Pgoutput };
    let (talk, greeting) = log_in(w, database, &address).await?;
    let process = (greeting.pid, greeting.key);
    let mut source = Source { w: w.clone(), database: database.clone(), address, talk, process, plugin, publication };
    let outcome = async {
        source.begin(used_at).await?;
        source.take_all(used_at).await
    };
    let outcome = outcome.await;
    if matches!(outcome, Err(FollowerError::Unwanted)) {
        source.part().await;
    }
    source.talk.socket.close(&w.reactor);
    outcome
}

fn primary(w: &Worker) -> Option<Address> {
    let at = w.view().primary;
    at.and_then(|at| w.address_of(at))
}

async fn log_in(w: &Worker, database: &Database, address: &Address) -> Result<(Talk, Greeting), FollowerError> {
    database.follow.report.lock().step = "connecting";
    let config = w.config();
    let check = &config.check;
    let files = w.shared.access.files();
    let (user, secret) = files.checker(check);
    let secret = secret.as_deref();
    let parameters = [("replication", "database"), ("application_name", "weir_cache")];
    let login = Login { user, database: &database.name, secret, generation: 0, parameters: &parameters };
    let entered = Talk::enter(w, address, &login, Instant::now() + ANSWER_TIMEOUT).await;
    entered.map_err(|cause| match cause {
        cause if is_refused(&cause, sqlstate::INSUFFICIENT_PRIVILEGE) => FollowerError::Rights { user: user.into(), cause },
        cause => cause.into(),
    })
}

fn is_refused(error: &OpenError, by: &str) -> bool {
    matches!(error, OpenError::Refused { sqlstate, .. } if sqlstate == by)
}

impl Source {
    /// Makes the slot and begins the stream.
    async fn begin(&mut self, used_at: &mut Instant) -> Result<(), FollowerError> {
        let (w, database) = (self.w.clone(), self.database.clone());
        let history = self.identify().await?;
        self.check_server().await?;
        let random = w.random::<8>();
        let slot = format!("weir_{}_{:016x}", std::process::id(), u64::from_be_bytes(random));
        {
            let mut report = database.follow.report.lock();
            report.step = "waiting for the transactions that run on the primary";
            report.node = Some(self.address.node);
            report.slot.clone_from(&slot);
            report.plugin = match self.plugin {
                Plugin::Pgoutput => "pgoutput",
                Plugin::TestDecoding => "test_decoding",
            };
        }
        let plugin = database.follow.report.lock().plugin;
        let rows = self
            .ask_with_patience(&format!("CREATE_REPLICATION_SLOT {slot} TEMPORARY LOGICAL {plugin} NOEXPORT_SNAPSHOT"), used_at)
            .await;
        let rows = rows.map_err(|error| match error {
            FollowerError::Server(cause) if is_refused(&cause, sqlstate::INSUFFICIENT_PRIVILEGE) => {
                FollowerError::Rights { user: w.peek_config().check.user.clone(), cause }
            }
            FollowerError::Server(cause) if is_refused(&cause, sqlstate::UNDEFINED_FILE) => FollowerError::Plugin { cause },
            error => error,
        })?;
        let position = rows.first().and_then(|row| row.get(1)?.as_deref()).and_then(|text| read_position(text.as_bytes()));
        let position = position.ok_or_else(|| protocol(&self.address, "no position of the slot"))?;
        database.follow.start(history, position, w.shared.positions.next_round());
        want_round(&w);
        self.start_stream(&slot).await?;
        database.follow.report.lock().step = "waiting for the transactions that ran at the begin of the stream";
        Ok(())
    }

    async fn identify(&mut self) -> Result<History, FollowerError> {
        let rows = self.talk.query(&self.w, &self.address, "IDENTIFY_SYSTEM").await?;
        let cell = |at: usize| rows.first()?.get(at)?.as_deref();
        let system = cell(0).and_then(|text| text.parse().ok());
        let timeline = cell(1).and_then(|text| text.parse().ok());
        match (system, timeline) {
            (Some(system), Some(timeline)) => Ok(History { node: self.address.node, system, timeline }),
            _ => Err(protocol(&self.address, "no answer to who it is").into()),
        }
    }

    /// Whether the server writes enough to its log, and the publication tells of all of it.
    async fn check_server(&mut self) -> Result<(), FollowerError> {
        const LEVEL: &str = "SELECT pg_catalog.current_setting('wal_level')";
        let rows = self.talk.query(&self.w, &self.address, LEVEL).await?;
        let level = rows.into_iter().flatten().flatten().next().unwrap_or_default();
        if level != "logical" {
            return Err(FollowerError::WalLevel { node: self.address.node, level });
        }
        if self.plugin == Plugin::TestDecoding {
            return Ok(());
        }
        let name = self.publication.clone();
        let mut text = String::from(
            "SELECT (p->>'puballtables')::pg_catalog.bool AND (p->>'pubinsert')::pg_catalog.bool AND (p->>'pubupdate')::pg_catalog.bool \
             AND (p->>'pubdelete')::pg_catalog.bool AND (p->>'pubtruncate')::pg_catalog.bool \
             AND NOT COALESCE((p->>'pubviaroot')::pg_catalog.bool, false) \
             FROM (SELECT pg_catalog.to_jsonb(p) AS p FROM pg_catalog.pg_publication AS p WHERE p.pubname = ",
        );
        write::literal(&mut text, &name);
        text += ") AS p";
        let rows = self.talk.query(&self.w, &self.address, &text).await?;
        match rows.into_iter().flatten().flatten().next().as_deref() {
            None => Err(FollowerError::NoPublication { name }),
            Some("t") => Ok(()),
            Some(_) => Err(FollowerError::Publication { name }),
        }
    }

    /// Asks something that may take as long as others' transactions do.
    async fn ask_with_patience(&mut self, text: &str, used_at: &mut Instant) -> Result<Vec<Vec<Option<String>>>, FollowerError> {
        let w = self.w.clone();
        let mut out = Vec::new();
        write::query(&mut out, text);
        self.talk.renew(&w, Instant::now() + ANSWER_TIMEOUT);
        self.talk.send(&w, &self.address, &out).await?;
        let (mut rows, mut error) = (Vec::new(), None);
        loop {
            self.talk.renew(&w, Instant::now() + TICK);
            let (tag, body) = match self.talk.next(&w, &self.address).await {
                Err(OpenError::Broke { cause, .. }) if cause.kind() == io::ErrorKind::TimedOut => {
                    self.check_wanted(used_at).inspect_err(|_| self.cancel())?;
                    continue;
                }
                message => message?,
            };
            match tag {
                back::DATA_ROW => {
                    let row = weir_wire::back::read_row(&body).ok_or_else(|| protocol(&self.address, "malformed row"))?;
                    rows.push(row.into_iter().map(|cell| cell.map(|cell| String::from_utf8_lossy(cell).into_owned())).collect());
                }
                back::ERROR => error = Some(refused(&self.address, &body)),
                back::READY => return error.map_or(Ok(rows), |error| Err(error.into())),
                _ => {}
            }
        }
    }

    /// Ends what the server process waits for: it would not notice before that we are gone, and take up one of `max_wal_senders`.
    fn cancel(&self) {
        let (w, address, is_encrypted) = (self.w.clone(), self.address.clone(), self.talk.socket.is_encrypted());
        let (pid, key) = self.process.clone();
        self.w.reactor.spawn(async move {
            cancel_process(&w, &address, is_encrypted, (pid, &key)).await;
        });
    }

    async fn start_stream(&mut self, slot: &str) -> Result<(), FollowerError> {
        let options = match self.plugin {
            Plugin::Pgoutput => {
                let mut name = String::new();
                write::identifier(&mut name, &self.publication);
                let mut names = String::new();
                write::literal(&mut names, &name);
                format!("(proto_version '1', publication_names {names})")
            }
            Plugin::TestDecoding => "(\"skip-empty-xacts\" 'on', \"include-xids\" 'on')".to_string(),
        };
        let w = self.w.clone();
        let mut out = Vec::new();
        write::query(&mut out, &format!("START_REPLICATION SLOT {slot} LOGICAL 0/0 {options}"));
        self.talk.renew(&w, Instant::now() + ANSWER_TIMEOUT);
        self.talk.send(&w, &self.address, &out).await?;
        loop {
            let (tag, body) = self.talk.next(&w, &self.address).await?;
            match tag {
                COPY_BOTH => return Ok(()),
                back::ERROR => return Err(refused(&self.address, &body).into()),
                _ => {}
            }
        }
    }

    /// Takes leave, and waits until the server has let go of the slot: its database may be about to be dropped. Not cancel safe.
    async fn part(&mut self) {
        let mut out = Vec::new();
        write::bare(&mut out, front::TERMINATE);
        self.talk.renew(&self.w, Instant::now() + PART_TIMEOUT);
        let mut said = self.talk.send(&self.w, &self.address, &out).await.is_ok();
        let mut inbox = [0; 4096];
        while said {
            said = self.talk.socket.read(&self.w.reactor, &mut inbox, Some(self.talk.deadline())).await.is_ok();
        }
    }

    fn check_wanted(&self, used_at: &mut Instant) -> Result<(), FollowerError> {
        if !is_wanted(&self.w, &self.database, used_at) {
            return Err(FollowerError::Unwanted);
        }
        if primary(&self.w).as_ref() != Some(&self.address) {
            return Err(FollowerError::Moved);
        }
        Ok(())
    }

    /// Takes in what arrives. Not cancel safe.
    async fn take_all(&mut self, used_at: &mut Instant) -> Result<std::convert::Infallible, FollowerError> {
        let w = self.w.clone();
        let (mut stream, mut inbox) = (Stream::default(), vec![0; INBOX_BYTES]);
        let (mut heard_at, mut said_at, mut has_asked) = (Instant::now(), Instant::now(), false);
        let rest = self.talk.take_rest();
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
            self.talk.renew(&w, now + TICK);
            match self.talk.socket.read(&w.reactor, &mut inbox, Some(now + TICK)).await {
                Ok(bytes) => {
                    (heard_at, has_asked) = (Instant::now(), false);
                    must_answer = self.take(&mut stream, &inbox[..bytes])?;
                    if bytes == inbox.len() {
                        // There is more: others get their turn first.
                        w.reactor.wake(w.reactor.current_task());
                        parked().await;
                    }
                }
                Err(cause) if cause.kind() == io::ErrorKind::TimedOut => must_answer = false,
                Err(cause) => return Err(FollowerError::Broke { address: self.address.clone(), cause }),
            }
        }
    }

    /// Notes that it follows again, after it did not.
    fn tell_if_well(&self) {
        let follow = &self.database.follow;
        if follow.covered().round == 0 || follow.report.lock().error.take().is_none() {
            return;
        }
        let name = &self.database.name;
        let who = Who { database: name, ..Who::default() };
        self.w.shared.log.write(Level::Warning, &who, format_args!("the log of database \"{name}\" is followed again"));
    }

    /// Says how far the stream was taken in: the server keeps its log until then, and has not to keep it longer.
    async fn say(&mut self, wants_reply: bool) -> Result<(), FollowerError> {
        let position = self.database.follow.standing().map_or(0, |(_, position, _)| position);
        let now_us = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as u64);
        let mut out = Vec::with_capacity(64);
        status(&mut out, position, now_us, wants_reply);
        self.talk.renew(&self.w, Instant::now() + ANSWER_TIMEOUT);
        Ok(self.talk.send(&self.w, &self.address, &out).await?)
    }

    /// Takes in a few bytes. Gives whether the server wants an answer.
    fn take(&self, stream: &mut Stream, bytes: &[u8]) -> Result<bool, FollowerError> {
        let follow = &self.database.follow;
        let (before, mut must_answer, mut outcome) = (follow.covered(), false, Ok(()));
        let fed = stream.feed(bytes, |piece| {
            if outcome.is_err() {
                return;
            }
            outcome = match piece {
                Piece::Reached { position, wants_reply } => {
                    must_answer |= wants_reply;
                    follow.reach(position);
                    Ok(())
                }
                Piece::Said { position, body, is_cut } => self.change(position, body, is_cut),
                Piece::Failed(body) => {
                    let message = String::from_utf8_lossy(weir_wire::back::read_report(body).message).into_owned();
                    Err(FollowerError::Told { address: self.address.clone(), message })
                }
                Piece::Ended => Err(FollowerError::Ended { address: self.address.clone() }),
            };
        });
        fed.map_err(|cause| FollowerError::Wire { address: self.address.clone(), cause })?;
        outcome?;
        if follow.covered() != before {
            wake_waiters(&self.w);
        }
        Ok(must_answer)
    }

    fn change(&self, position: u64, body: &[u8], is_cut: bool) -> Result<(), FollowerError> {
        let change = read_change(self.plugin, body, is_cut);
        let change = change.ok_or_else(|| FollowerError::Change { address: self.address.clone() })?;
        let follow = &self.database.follow;
        let done = match change {
            Change::Begin { xid } => follow.begin(xid),
            Change::Table(table) => follow.change(self.slot_of(&table)),
            Change::Tables(tables) => tables.iter().try_for_each(|table| follow.change(self.slot_of(table))),
            Change::Commit { end } => {
                self.w.count(Metric::CacheFollowed);
                follow.report.lock().commits += 1;
                let done = follow.commit(end.unwrap_or(position));
                want_round(&self.w);
                done
            }
            Change::Nothing => Ok(()),
        };
        done.map_err(|cause| FollowerError::Protocol { address: self.address.clone(), cause })
    }

    fn slot_of(&self, table: &Table<'_>) -> Slot {
        let Some(answers) = &self.w.shared.answers else { return 0 };
        let (versions, database) = (&answers.versions, &self.database);
        let number = match table {
            Table::Number(number) => Some(*number),
            Table::Name { schema, name } => database.catalog().and_then(|catalog| catalog.number_of(schema, name)),
            Table::Any => None,
        };
        number.map_or_else(|| versions.of_database(&database.name), |number| versions.of_table(&database.name, number))
    }
}

/// Somebody needs the primary's position.
fn want_round(w: &Worker) {
    causal::want(w, w.shared.positions.next_round());
}

/// More is covered: who waits looks again.
pub fn wake_waiters(w: &Worker) {
    w.shared.positions.take_waiters(|waiter| w.wake_waiter(waiter));
}
