//! State that threads share. Passed as an argument; nothing here is a `static`.

use crate::auth::access::{AccessFiles, LooksUp, ProofFilter, SharedAccess};
use crate::auth::client_limits::ClientCounts;
use crate::log::ProxyLog;
use crate::runtime::agents_seen::AgentsSeen;
use crate::runtime::group_seat::{AfterHandOver, GroupOrder, GroupSeat};
use crate::runtime::mail::{ControlMail, ControlOrder};
use crate::runtime::node_defaults::OfNodes;
use crate::runtime::operator_files::FileFindings;
use crate::runtime::pause_state::PauseState;
use crate::runtime::pool::PoolRegistry;
use crate::runtime::pool::server_conn::ServerConn;
use crate::runtime::prepared_seen::PreparedSeen;
use crate::runtime::probes::ProbeStats;
use crate::runtime::recoveries::Recoveries;
use crate::runtime::server_names::{NameResolver, PendingLookup, ResolverEvent, Wake};
use crate::runtime::stores::StoreKnowledge;
use crate::runtime::tls_files::TlsFiles;
use crate::runtime::user_roles::RoleKnowledge;
use arc_swap::ArcSwap;
use parking_lot::Mutex;
use std::fmt::Arguments;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::ops::Deref;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Instant, SystemTime};
use weir_config::passwd::UserSecret;
use weir_config::{Config, ConfigReadResult, SetError, names_files, shapes_rules};
use weir_failover::cluster::ClusterView;
use weir_failover::{FailoverView, ServerConnEnd};
use weir_io::reactor::TaskId;
use weir_io::socket::SocketRelease;
use weir_session::catalogs::KnownDatabase;
use weir_session::context::SharedContext;
use weir_session::host::{Level, LogField, LogOrigin, ProgramServices, RoleCheckReason, SessionSignal};
pub use weir_session::host::{ProxyShutdown, WorkerId};
use weir_session::stats::StatTable;
use weir_wire::startup_packet::CancelSender;

pub enum WorkerMessage {
    Tcp(TcpStream, SocketAddr),
    Unix(UnixStream),
    Wake(TaskId),
    /// Release the socket to another worker's event loop, and wake the task there.
    Release {
        ticket: SocketRelease,
        worker: WorkerId,
        task: TaskId,
    },
    Cancel {
        pid: u32,
        key: Vec<u8>,
        bearer: CancelSender,
    },
    /// Cancel this session's statement; the asker has the right to.
    Interrupt(u32),
    /// Cancel this session's statement: it waits in a ring over several servers.
    Deadlocked(u32),
    /// Configuration or cluster view changed.
    Refresh,
    Stop,
    Kill(TerminationTarget),
    /// For a database of clients, or all without a name: its pools are paused, go on, or close their connections.
    Pause(Option<Arc<str>>),
    Resume(Option<Arc<str>>),
    Renew(Option<Arc<str>>),
    /// A suspension has begun or ended. The sender may count the workers that know.
    Suspended(Arc<AtomicU32>),
    /// Another process accepts clients from now on.
    CloseListeners,
    /// Close a server connection in that worker's event loop.
    Close(ServerConn),
    ResetStatements,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TerminationTarget {
    Client(u32),
    Database(Arc<str>),
    /// Sessions that a user began by then.
    User {
        user: Arc<str>,
        until_ms: u64,
    },
    All,
}

pub struct WorkerMailbox {
    waker: mio::Waker,
    messages: Mutex<Vec<WorkerMessage>>,
    /// Sessions of the worker, to place new ones evenly.
    pub(crate) sessions: AtomicU32,
    /// Last housekeeping, in milliseconds since the start of the proxy. A stuck worker has none.
    pub(crate) beat_ms: AtomicU64,
    pub(crate) view_known: AtomicU64,
}

impl WorkerMailbox {
    pub fn new(waker: mio::Waker) -> WorkerMailbox {
        let (beat_ms, view_known) = (AtomicU64::new(0), AtomicU64::new(0));
        WorkerMailbox { waker, messages: Mutex::default(), sessions: AtomicU32::new(0), beat_ms, view_known }
    }

    pub fn send(&self, message: WorkerMessage) {
        self.messages.lock().push(message);
        // A worker that cannot be woken has ended.
        let _ = self.waker.wake();
    }

    pub fn take(&self) -> Vec<WorkerMessage> {
        std::mem::take(&mut *self.messages.lock())
    }
}

/// Reads and adopts configuration and passwords. Returns the parameters that need a restart. Error: nothing changed.
type ReadAll = dyn Fn(&SharedState) -> Result<Vec<String>, String> + Send + Sync;

type ReadAccess = dyn Fn(&Config, &AccessFiles) -> Result<AccessFiles, String> + Send + Sync;
type ReadTls = dyn Fn(&Config) -> Result<TlsFiles, String> + Send + Sync;

type ReadNow = dyn Fn() -> ConfigReadResult + Send + Sync;
type CheckNow = dyn Fn() -> FileFindings + Send + Sync;

pub struct FileReaders {
    pub(crate) all: Box<ReadAll>,
    pub(crate) tls: Box<ReadTls>,
    pub(crate) access: Box<ReadAccess>,
    /// Reads the configuration, and changes nothing.
    pub(crate) now: Box<ReadNow>,
    /// Does as `weir check` does.
    pub(crate) check: Box<CheckNow>,
}

pub struct SharedState {
    pub config: ArcSwap<Config>,
    pub(crate) files: FileReadState,
    pub(crate) access: SharedAccess,
    pub(crate) cluster: ClusterKnowledge,
    pub(crate) common: Arc<SharedContext>,
    pub(crate) store_common: Option<Arc<StoreKnowledge>>,
    pub(crate) mailboxes: Vec<WorkerMailbox>,
    pub(crate) pools: PoolRegistry,
    pub(crate) clients: ConnectedClients,
    pub(crate) pause_state: PauseState,
    pub(crate) stats: StatTable,
    pub(crate) log: Arc<ProxyLog>,
    pub(crate) listeners: ListeningSockets,
    pub(crate) life: ProcessLifetime,
    pub(crate) control: ControlMail,
    /// Set before the threads start, if `use_watchdog` is on.
    pub(crate) group: OnceLock<Arc<GroupSeat>>,
}

pub struct FileReadState {
    pub(crate) config_path: Option<PathBuf>,
    pub(crate) tls: ArcSwap<TlsFiles>,
    pub(crate) readers: OnceLock<FileReaders>,
    /// Held while files are read, so that the later reading prevails.
    pub(crate) reading: Mutex<()>,
}

/// Servers as the control thread sees them.
pub struct ClusterKnowledge {
    pub(crate) view: ArcSwap<ClusterView>,
    /// Node health and failovers. Times are milliseconds since `begun`.
    pub(crate) failover: ArcSwap<FailoverView>,
    pub(crate) probes: ProbeStats,
    pub(crate) defaults: OfNodes,
    pub(crate) agents: AgentsSeen,
    pub(crate) recoveries: Recoveries,
    pub(crate) prepared: PreparedSeen,
    names: Arc<NameResolver>,
}

#[derive(Default)]
pub struct ConnectedClients {
    pub(crate) connected: AtomicU32,
    pub(crate) consoles: AtomicU32,
    pub(crate) counts: ClientCounts,
    pub(crate) roles: Mutex<RoleKnowledge>,
}

#[derive(Default)]
pub struct ListeningSockets {
    pub(crate) open: AtomicU32,
    /// Copies for a process that takes over. While one exists, the kernel accepts clients.
    pub(crate) copies: Mutex<Vec<OwnedFd>>,
    /// Another process takes over: no more clients are accepted, and accepted ones are served.
    pub(crate) handed_over: AtomicBool,
    /// Connections that pass cancel requests to other Weirs.
    pub(crate) passing: AtomicU32,
}

pub struct ProcessLifetime {
    pub(crate) started_at: SystemTime,
    stop: AtomicU8,
}

impl SharedState {
    pub fn new(
        config: Config,
        config_path: Option<PathBuf>,
        access: AccessFiles,
        tls: TlsFiles,
        mailboxes: Vec<WorkerMailbox>,
        salt_secret: [u8; 32],
        log: ProxyLog,
    ) -> SharedState {
        let now = SystemTime::now();
        let view = ClusterView::new(&config, None, seconds(now));
        let seed = u32::from_le_bytes(crate::random());
        let common = Arc::new(SharedContext::new(&config, mailboxes.len() + 1, Instant::now(), seed));
        SharedState {
            cluster: ClusterKnowledge {
                view: ArcSwap::from_pointee(view),
                failover: ArcSwap::from_pointee(FailoverView::default()),
                probes: ProbeStats::default(),
                agents: AgentsSeen::default(),
                recoveries: Recoveries::default(),
                prepared: PreparedSeen::default(),
                defaults: OfNodes::default(),
                names: Arc::default(),
            },
            common,
            store_common: config.cache.store().map(|_| StoreKnowledge::new()),
            config: ArcSwap::from_pointee(config),
            files: FileReadState {
                config_path,
                tls: ArcSwap::from_pointee(tls),
                readers: OnceLock::new(),
                reading: Mutex::new(()),
            },
            access: SharedAccess::new(access, salt_secret),
            mailboxes,
            pools: PoolRegistry::default(),
            clients: ConnectedClients::default(),
            pause_state: PauseState::default(),
            stats: StatTable::default(),
            log: Arc::new(log),
            listeners: ListeningSockets::default(),
            life: ProcessLifetime { started_at: now, stop: AtomicU8::new(ProxyShutdown::No as u8) },
            control: ControlMail::default(),
            group: OnceLock::new(),
        }
    }

    /// True if a stop waits until no server connection is in use.
    pub fn drains_servers(&self) -> bool {
        self.stop_mode() == ProxyShutdown::Smart && self.pause_state.is_all_paused()
    }

    pub fn stop_mode(&self) -> ProxyShutdown {
        match self.life.stop.load(Ordering::SeqCst) {
            0 => ProxyShutdown::No,
            1 => ProxyShutdown::Smart,
            2 => ProxyShutdown::Fast,
            _ => ProxyShutdown::Immediate,
        }
    }

    pub fn is_handed_over(&self) -> bool {
        self.listeners.handed_over.load(Ordering::Acquire)
    }

    pub fn request_role_check(&self, why: RoleCheckReason) {
        self.control.send(ControlOrder::Look(why));
    }

    /// Reports a session's server connection that ended unexpectedly.
    pub fn note_conn_died(&self, node: u16, how: ServerConnEnd) {
        self.control.send(ControlOrder::LinkDied(node, how));
    }

    /// Notes that a database may have changed: it is not relied upon until the next look.
    pub fn note_change(&self, database: &Arc<KnownDatabase>) {
        database.note_change();
        self.control.send(ControlOrder::Changed(database.clone()));
    }

    pub fn watch_catalog(&self, database: &Arc<KnownDatabase>) {
        if database.open(Instant::now()) {
            self.control.send(ControlOrder::Watch(database.clone()));
        }
    }

    pub fn adopt(&self, config: Arc<Config>) {
        self.log.set(&config.log);
        self.pools.reconfigure(&config);
        self.positions.obey(config.routing.causal_reads());
        let judges_alike = config.routing.judges_as(&self.config.load().routing);
        self.config.store(config.clone());
        if let (Some(seat), Some(watchdog)) = (self.group.get(), &config.watchdog) {
            let is_told = seat.order(GroupOrder::Reload(Box::new(watchdog.clone())));
            if !is_told && self.stop_mode() == ProxyShutdown::No {
                let text = "the watchdog is too busy to hear of the new parameters: reload again";
                self.log.say(Level::Warning, format_args!("{text}"));
            }
        }
        if !judges_alike {
            self.catalogs.all().iter().for_each(|database| self.note_change(database));
        }
        self.tell_all(|| WorkerMessage::Refresh);
        self.request_role_check(RoleCheckReason::Reconfigured);
    }

    /// Blocks: not for a worker's thread.
    pub fn reload(&self) -> Result<Vec<String>, String> {
        let readers = self.files.readers.get().ok_or("there is no configuration file")?;
        let _one = self.files.reading.lock();
        (readers.all)(self)
    }

    /// The configuration as the files have it now. Blocks; `None`: there is no file.
    pub fn files_now(&self) -> Option<ConfigReadResult> {
        self.files.readers.get().map(|readers| (readers.now)())
    }

    /// The findings of `weir check` about the files. Blocks, also for answers of servers.
    pub fn check_files(&self) -> Option<FileFindings> {
        self.files.readers.get().map(|readers| (readers.check)())
    }

    /// Changes all parameters, or none, until files are read again. Blocks where `names_files` or `shapes_rules` says so: not for a
    /// worker's thread then.
    pub fn set(&self, parameters: &[(String, String)]) -> Result<(), SetError> {
        let changed = |config: Arc<Config>| {
            let set = |config: Arc<Config>, (name, value): &(String, String)| config.set_while_running(name, value).map(Arc::new);
            parameters.iter().try_fold(config, set)
        };
        let any = |is_meant: fn(&str) -> bool| parameters.iter().any(|(name, _)| is_meant(name));
        let (has_keys, has_rules) = (any(names_files), any(shapes_rules));
        if !has_keys && !has_rules {
            self.adopt(changed(self.config.load_full())?);
            return Ok(());
        }
        let readers = self.files.readers.get().ok_or_else(|| SetError::Refused("there is no configuration file".into()))?;
        let _one = self.files.reading.lock();
        let config = changed(self.config.load_full())?;
        let tls = has_keys.then(|| (readers.tls)(&config)).transpose().map_err(SetError::Refused)?;
        let access = has_rules.then(|| (readers.access)(&config, &self.access.files())).transpose().map_err(SetError::Refused)?;
        if let Some(tls) = tls {
            self.files.tls.store(Arc::new(tls));
        }
        if let Some(access) = access {
            self.access.replace(access);
        }
        self.adopt(config);
        Ok(())
    }

    /// Begins a stop; a stronger mode overrides a weaker one. The leader of a group gives the lead and the address away first, and serves its
    /// clients meanwhile. Never waits.
    pub fn begin_stop(self: &Arc<Self>, mode: ProxyShutdown) {
        self.log.say(Level::Log, format_args!("{}", mode.words()));
        match self.group.get() {
            Some(seat) if mode < ProxyShutdown::Immediate => {
                let own = self.clone();
                // A thread that has ended drops the order, and so the stop begins.
                seat.order(GroupOrder::StepDown(AfterHandOver::new(move || own.stop(mode))));
            }
            Some(_) | None => self.stop(mode),
        }
    }

    fn stop(&self, mode: ProxyShutdown) {
        self.life.stop.fetch_max(mode as u8, Ordering::SeqCst);
        // Suspended sessions would never leave.
        self.flow_on();
        // New clients are refused instead of waiting in vain.
        self.listeners.copies.lock().clear();
        self.tell_all(|| WorkerMessage::Stop);
        self.request_role_check(RoleCheckReason::Stopping);
    }

    /// Suspends all sessions between two statements. Returns the count of workers that know; `None`: suspended already.
    pub fn suspend(&self) -> Option<Arc<AtomicU32>> {
        self.session_statuses.suspension.begin().then(|| self.tell_suspension())
    }

    /// Ends a suspension. False: none was in force.
    pub fn flow_on(&self) -> bool {
        let was_on = self.session_statuses.suspension.end();
        if was_on {
            self.tell_suspension();
        }
        was_on
    }

    fn tell_suspension(&self) -> Arc<AtomicU32> {
        let told: Arc<AtomicU32> = Arc::default();
        self.mailboxes.iter().for_each(|mailbox| mailbox.send(WorkerMessage::Suspended(told.clone())));
        told
    }

    pub(crate) fn ask_name(self: &Arc<SharedState>, hostname: &str, deadline: Instant, wake: Wake) -> PendingLookup {
        let config = self.config.load();
        let is_named = |name: &str| config.all_nodes().any(|node| node.hostname == name);
        let (shared, host) = (self.clone(), hostname.to_owned());
        let tell = move |news| match news {
            ResolverEvent::Fails { cause } => {
                let text = "cannot be resolved, which says nothing of its server; its last addresses are used meanwhile";
                shared.log.say(Level::Warning, format_args!("host name \"{host}\" {text}: {cause}"));
            }
            ResolverEvent::ResolvesAgain => {
                shared.log.say(Level::Log, format_args!("host name \"{host}\" can be resolved again"))
            }
        };
        self.cluster.names.ask(hostname, deadline, is_named, wake, tell)
    }

    pub(crate) fn addresses(&self, hostname: &str, question: &PendingLookup) -> io::Result<Vec<IpAddr>> {
        self.cluster.names.outcome(hostname, question)
    }

    /// Returns the secret for logins to servers; the entry of a configured database comes first.
    ///
    /// Weir's own questions (no `client_database`) may use any entry's password. A client needs the secret of its own entry: elsewhere it
    /// may have proved nothing.
    pub fn secret_for_server(&self, user: &str, client_database: Option<&str>) -> Option<UserSecret> {
        // The worker's configuration may predate a reload that others know.
        let config = self.config.load();
        let of_entry = client_database.and_then(|name| config.databases.get(name)).and_then(|entry| entry.password_of(user));
        let proofs = client_database.map_or(ProofFilter::Any, |name| {
            let looks_up = if config.look_up(Some(name)).user.is_empty() { LooksUp::No } else { LooksUp::Yes };
            ProofFilter::Of { realm: config.realm(name), looks_up }
        });
        let known = || self.access.secret_for_server(user, proofs);
        let of_any = || config.databases.password_of(user).filter(|_| client_database.is_none());
        of_entry.cloned().or_else(known).or_else(|| of_any().cloned())
    }

    pub fn tell_first(&self, message: WorkerMessage) {
        if let Some(mailbox) = self.mailboxes.first() {
            mailbox.send(message);
        }
    }

    pub fn tell_all(&self, message: fn() -> WorkerMessage) {
        for mailbox in &self.mailboxes {
            mailbox.send(message());
        }
    }
}

impl Deref for SharedState {
    type Target = SharedContext;

    fn deref(&self) -> &SharedContext {
        &self.common
    }
}

impl ProgramServices for SharedState {
    fn log(&self, level: Level, who: &LogOrigin<'_>, text: Arguments<'_>, fields: &[(&str, LogField<'_>)]) {
        self.log.event(level, who, text, fields);
    }

    fn look(&self, why: RoleCheckReason) {
        self.request_role_check(why);
    }

    fn conn_died(&self, node: u16, how: ServerConnEnd) {
        SharedState::note_conn_died(self, node, how);
    }

    fn sample(&self) {
        self.control.send(ControlOrder::Sample);
    }

    fn look_at(&self, database: &Arc<KnownDatabase>) {
        self.control.send(ControlOrder::Changed(database.clone()));
    }

    fn follow(&self, database: &Arc<KnownDatabase>) {
        self.control.send(ControlOrder::Follow(database.clone()));
    }

    fn stop_mode(&self) -> ProxyShutdown {
        SharedState::stop_mode(self)
    }

    fn has_clients_of(&self, database: &str) -> bool {
        self.clients.counts.has_clients_of(database)
    }

    fn signal(&self, worker: WorkerId, pid: u32, signal: SessionSignal) {
        let message = match signal {
            SessionSignal::Terminate => WorkerMessage::Kill(TerminationTarget::Client(pid)),
            SessionSignal::Cancel => WorkerMessage::Interrupt(pid),
        };
        self.mailboxes[usize::from(worker)].send(message);
    }
}

/// Seconds since 1970.
pub fn seconds(time: SystemTime) -> u64 {
    time.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |d| d.as_secs())
}
