//! One thread: an event loop, its sessions, and the data they share without locks.

use crate::client::client_limits::Seat;
use crate::client::greetings::Welcomes;
use crate::client::listen_hub::Hub;
use crate::client::local::ViewOf;
use crate::client::session_status::{Card, Doing, Number};
use crate::client::statements::Statements;
use crate::client::upstream::Upstream;
use crate::monitor::fault::Fault;
use crate::monitor::log::{Level, Who};
use crate::monitor::metrics::{Counters, Metric};
use crate::monitor::stats::{Stat, Stats};
use crate::process::shared::{Mailbox, Message, Shared, Victim, WorkerId};
use crate::process::supervised_tasks::Supervised;
use crate::server::catalogs::Database;
use crate::server::loads::Loads;
use crate::server::name_scopes::Places;
use crate::server::pool::server_conn::inquiry::Inquiry;
use crate::server::pool::server_conn::{self, Address, ConnStatus, ServerConn};
use crate::server::pool::{Pool, PoolKey, Purpose};
use crate::server::stores::Stores;
use foldhash::{HashMap, HashSet};
use std::cell::{Cell, Ref, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;
use weir_catalog::functions::Books;
use weir_catalog::rule::Rule;
use weir_config::Config;
use weir_config::limits::{self, Limits};
use weir_io::buffers::Buffers;
use weir_io::reactor::{NO_TASK, Reactor, TaskId};
use weir_policy::cluster::ClusterView;
use weir_policy::settings::Settings;
use weir_policy::transaction::HeldLimits;

mod orders;

/// Times at which a session began its present states; see `timing`.
pub struct Clock {
    /// Begin of the statement that runs.
    pub busy_since: Cell<Option<Instant>>,
    /// Since when the client waits for a server's answer without a statement that runs: to a Parse, or to something of ours ahead of
    /// its message.
    pub asked_since: Cell<Option<Instant>>,
    /// Begin of the transaction that is open.
    pub transaction_since: Cell<Option<Instant>>,
    /// The server's own limits on that, as long as no server knows of it.
    pub held: Cell<HeldLimits>,
    /// The session's own limit on its idleness, in milliseconds.
    pub idle_ms: Cell<Option<u64>>,
    /// End of the last statement.
    pub ready_at: Cell<Instant>,
    /// Wait for a server connection before the statement that runs, in microseconds.
    pub waited_us: Cell<u64>,
    /// The rule that chose the node of the server connection in use.
    pub rule: Cell<Rule>,
    /// The node at which a read of its is counted as under way.
    pub flight: Cell<Option<u16>>,
    /// Text of the statement that runs, if slow ones are logged.
    pub text: RefCell<String>,
}

impl Clock {
    pub fn new(now: Instant) -> Clock {
        Clock {
            busy_since: Cell::new(None),
            asked_since: Cell::new(None),
            transaction_since: Cell::new(None),
            held: Cell::default(),
            idle_ms: Cell::new(None),
            ready_at: Cell::new(now),
            waited_us: Cell::new(0),
            rule: Cell::new(Rule::Read),
            flight: Cell::new(None),
            text: RefCell::default(),
        }
    }
}

/// State of a statement that may take too long.
#[derive(Debug, Default)]
pub enum Overdue {
    #[default]
    No,
    /// The server was asked to cancel it; its client is told this instead of the server's error.
    Cancelling(Fault),
    /// The client was told; the server is not ready for the next one yet.
    Told,
}

/// A session as its worker sees it, for cancel and stop.
pub struct Entry {
    /// When it was let in, in milliseconds since the start of the proxy.
    pub since_ms: u64,
    pub card: Arc<Card>,
    /// Secret that a cancel request must show.
    pub key: Box<[u8]>,
    pub task: Cell<TaskId>,
    /// The server connection in use now.
    pub conn: RefCell<Option<Arc<ConnStatus>>>,
    /// Cancel requests on their way to the server: the server connection must not go to another client meanwhile.
    pub cancels: Cell<u32>,
    /// A query of the proxy's own runs on the server connection: a cancel request must not hit it.
    pub is_ours: Cell<bool>,
    /// A cancel request came meanwhile.
    pub cancel_waits: Cell<bool>,
    /// The wait for a server connection was cancelled.
    pub wait_cancelled: Cell<bool>,
    /// Last time the client sent something.
    pub active_at: Cell<Instant>,
    pub clock: Clock,
    /// The pools of its user and database; an administrator and a replication client have none, nor limits on time.
    pub pools: Option<Rc<PoolSet>>,
    /// State of the running statement if it takes too long.
    pub overdue: RefCell<Overdue>,
    /// Counts it among the clients of its user, database and address.
    pub seat: RefCell<Option<Seat>>,
    /// The session is to end, with this word to its client.
    pub farewell: RefCell<Option<Fault>>,
}

/// The pools of one user and database, by node number.
pub struct PoolSet {
    /// The clients' user, and their name for the database.
    pub client_user: Arc<str>,
    pub client_database: Arc<str>,
    /// The servers' user and database; they differ from the clients' by `config::databases`.
    pub user: Arc<str>,
    pub database: Arc<str>,
    /// Query that new server connections ran first; empty: none. Results may depend on it.
    pub connect_query: Arc<str>,
    pub stats: Arc<Stats>,
    pub limits: Cell<Limits>,
    /// Knowledge of the database.
    pub known: Arc<Database>,
    pools: RefCell<Vec<Option<Arc<Pool>>>>,
}

impl PoolSet {
    pub fn of_node(&self, w: &Worker, node: u16) -> Arc<Pool> {
        let mut pools = self.pools.borrow_mut();
        let at = usize::from(node);
        if pools.len() <= at {
            pools.resize(at + 1, None);
        }
        pools[at]
            .get_or_insert_with(|| {
                w.shared.pools.get(self.key(node, Purpose::Statements), &w.shared.pause_state, &w.peek_config())
            })
            .clone()
    }

    /// The pool of server connections that clients do not share.
    pub fn apart(&self, w: &Worker, node: u16, purpose: Purpose) -> Arc<Pool> {
        w.shared.pools.get(self.key(node, purpose), &w.shared.pause_state, &w.peek_config())
    }

    fn key(&self, node: u16, purpose: Purpose) -> PoolKey {
        let (user, database, client_database) = (self.user.clone(), self.database.clone(), self.client_database.clone());
        PoolKey { node, user, database, client_database, purpose }
    }
}

/// By the servers' user, the clients' name of the database and the servers': a reload may lead a name elsewhere.
type Hubs = HashMap<(Arc<str>, Arc<str>, Arc<str>), Rc<Hub>>;

/// By the clients' user and database.
type PoolSets = HashMap<(Arc<str>, Arc<str>), Rc<PoolSet>>;

/// One worker thread's own.
pub struct Worker {
    pub id: WorkerId,
    pub shared: Arc<Shared>,
    pub house: Supervised,
    pub reactor: Reactor,
    pub buffers: Rc<Buffers>,
    pub statements: RefCell<Statements>,
    /// Parts of sessions that server connections come with, at rest.
    pub upstreams: RefCell<Vec<Box<Upstream>>>,
    /// Sessions by the process id their clients were told.
    pub entries: RefCell<HashMap<u32, Rc<Entry>>>,
    pub welcomes: RefCell<Welcomes>,
    /// A round's time, and the same in milliseconds: see `now_ms`.
    round: Cell<(Instant, u64)>,
    /// The connection over which servers are asked about users.
    pub inquiry: Inquiry,
    /// Sessions that listen, by user and database.
    hubs: RefCell<Hubs>,
    /// Hubs that nobody attends to yet, with the pools they use, and the task that sees to it.
    pub new_hubs: RefCell<Vec<(Rc<Hub>, Rc<PoolSet>)>>,
    pub hub_opener: Cell<TaskId>,
    config: RefCell<Arc<Config>>,
    view: RefCell<Arc<ClusterView>>,
    pool_sets: RefCell<PoolSets>,
    /// Tasks that accept clients.
    pub doors: RefCell<Vec<TaskId>>,
    pub view_waiters: RefCell<HashSet<TaskId>>,
    no_settings: Arc<Settings>,
    /// Knowledge of functions, by database.
    pub functions: RefCell<Books>,
    pub places: RefCell<Places>,
    /// How nodes answer.
    pub loads: Loads,
    /// Moves when there is another configuration.
    config_edition: Cell<u64>,
    /// The stores answers are kept in, if they are.
    pub stores: Option<Rc<Stores>>,
    /// Where keys of answers are put together.
    pub scratch: RefCell<Vec<u8>>,
    /// Some node but the primary may take reads.
    has_readers: Cell<bool>,
    dice: Cell<u64>,
    even_dice: Cell<u32>,
    randomness: RefCell<crate::Randomness>,
    /// TLS handshakes begun in the round of that time.
    handshakes: Cell<(Instant, u32)>,
    serials: AtomicU64,
}

/// TLS handshakes that begin in one round of the event loop. Each is a millisecond of arithmetic: a storm of them must leave the statements
/// of others their turn.
const HANDSHAKES_MAX: u32 = 4;

impl Worker {
    /// True if a TLS handshake may begin in this round.
    pub fn takes_handshake(&self) -> bool {
        let now = self.reactor.now();
        let (round, begun) = self.handshakes.get();
        let begun = if round == now { begun } else { 0 };
        self.handshakes.set((now, begun.saturating_add(1)));
        begun < HANDSHAKES_MAX
    }

    pub fn new(id: WorkerId, shared: Arc<Shared>, reactor: Reactor, view_of: ViewOf) -> Rc<Worker> {
        let config = shared.config.load_full();
        let seed = u64::from_le_bytes(crate::random());
        let stores = shared.answers.as_ref().and_then(|answers| answers.stores(&config.cache));
        Rc::new(Worker {
            id,
            stores,
            buffers: reactor.buffers.clone(),
            statements: RefCell::new(Statements::new(config.clone(), u64::from(id) << 48, view_of)),
            upstreams: RefCell::default(),
            entries: RefCell::default(),
            welcomes: RefCell::new(Welcomes::default()),
            round: Cell::new((shared.begun, 0)),
            handshakes: Cell::new((shared.begun, 0)),
            view: RefCell::new(shared.view.load_full()),
            has_readers: Cell::new(config.may_spread()),
            config: RefCell::new(config),
            pool_sets: RefCell::default(),
            inquiry: Inquiry::default(),
            hubs: RefCell::default(),
            new_hubs: RefCell::default(),
            hub_opener: Cell::new(NO_TASK),
            doors: RefCell::default(),
            view_waiters: RefCell::default(),
            no_settings: shared.intern_settings(Settings::default()).0,
            functions: RefCell::default(),
            places: RefCell::default(),
            loads: Loads::default(),
            config_edition: Cell::new(0),
            scratch: RefCell::default(),
            dice: Cell::new(seed | 1),
            even_dice: Cell::new(seed as u32),
            randomness: RefCell::default(),
            serials: AtomicU64::new(1),
            house: Supervised::default(),
            reactor,
            shared,
        })
    }

    /// Wakes a task of any worker.
    pub fn wake_waiter(&self, (worker, task): (WorkerId, TaskId)) {
        if worker == self.id {
            self.reactor.wake(task);
        } else if let Some(mailbox) = self.shared.mailboxes.get(usize::from(worker)) {
            mailbox.send(Message::Wake(task));
        }
    }

    pub fn mailbox(&self) -> &Mailbox {
        &self.shared.mailboxes[usize::from(self.id)]
    }

    pub fn refresh(&self) {
        let config = self.shared.config.load_full();
        if !Arc::ptr_eq(&config, &self.config.borrow()) {
            self.statements.borrow_mut().reconfigure(config.clone());
            self.redirect(&config);
            for set in self.pool_sets.borrow().values() {
                set.limits.set(limits::of(&config, &set.client_user, &set.client_database));
            }
            self.has_readers.set(config.may_spread());
            *self.config.borrow_mut() = config;
            self.config_edition.set(self.config_edition.get() + 1);
            if self.id == 0 {
                self.shared.pools.feed_all(self);
            }
        }
        *self.view.borrow_mut() = self.shared.view.load_full();
        self.loads.refresh();
        self.welcomes.borrow_mut().clear();
        for task in self.view_waiters.take() {
            self.reactor.wake(task);
        }
    }

    /// Has server connections closed, each after its use, that began with defaults that hold no more: those to a database, or all.
    #[cold]
    pub fn renew_conns(&self, database: Option<&str>) {
        self.shared.pools.of_database(database).iter().for_each(|pool| pool.renew(self));
        // The greetings of clients are asked of a server anew.
        self.shared.tell_all(|| Message::Refresh);
    }

    /// A role was renamed or dropped, or may have been. Server processes go on as the role that logged in. So server
    /// connections of this user are given to nobody any more.
    #[cold]
    pub fn role_renamed(&self, user: &str) {
        self.shared.roles.lock().doubt(user, self.now_ms());
        self.renew_links_of(user);
    }

    fn renew_links_of(&self, user: &str) {
        self.shared.pools.of_user(user).iter().for_each(|pool| pool.renew(self));
        // The greetings of clients are asked of a server anew.
        self.welcomes.borrow_mut().clear();
        self.shared.tell_all(|| Message::Refresh);
    }

    /// Notes the role that a user's name stands for. If it is another one than before, server connections of the old role are
    /// closed. So are its sessions, whose next statement would run with the rights of somebody else. True: it is another one.
    pub fn note_role(&self, user: &Arc<str>, oid: &str) -> bool {
        let Some(until_ms) = self.shared.roles.lock().note(user, oid, self.now_ms()) else { return false };
        self.renew_links_of(user);
        for mailbox in &self.shared.mailboxes {
            mailbox.send(Message::Kill(Victim::User { user: user.clone(), until_ms }));
        }
        true
    }

    /// A connection that was counted when it was accepted has ended.
    pub fn client_gone(&self) {
        self.mailbox().sessions.fetch_sub(1, Ordering::Relaxed);
        self.shared.clients.fetch_sub(1, Ordering::Relaxed);
    }

    pub fn config(&self) -> Arc<Config> {
        self.config.borrow().clone()
    }

    /// Moves when there is another configuration.
    #[inline]
    pub fn config_edition(&self) -> u64 {
        self.config_edition.get()
    }

    /// The configuration, for a look that awaits nothing.
    pub fn peek_config(&self) -> Ref<'_, Arc<Config>> {
        self.config.borrow()
    }

    pub fn view(&self) -> Ref<'_, Arc<ClusterView>> {
        self.view.borrow()
    }

    /// Wakes the current task when the cluster's view changes.
    pub fn wake_at_new_view(&self) {
        self.view_waiters.borrow_mut().insert(self.reactor.current_task());
    }

    pub fn no_settings(&self) -> Arc<Settings> {
        self.no_settings.clone()
    }

    /// Random bytes for keys and nonces.
    pub fn random<const N: usize>(&self) -> [u8; N] {
        self.randomness.borrow_mut().take()
    }

    /// A random word: xorshift, good enough to spread reads.
    pub fn dice(&self) -> u32 {
        let mut x = self.dice.get();
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        self.dice.set(x);
        (x >> 32) as u32
    }

    /// A word of a sequence that fills its range evenly, as does every part of it that is taken at equal distances. So shares
    /// are near the weights after a few throws. Source: Weyl's sequence, by steps of the golden ratio.
    pub fn even_dice(&self) -> u32 {
        const STEP: u32 = 0x9E37_79B9;
        self.even_dice.set(self.even_dice.get().wrapping_add(STEP));
        self.even_dice.get()
    }

    /// Numbers server connections, over all workers.
    pub fn next_serial(&self) -> u64 {
        (u64::from(self.id) << 48) | self.serials.fetch_add(1, Ordering::Relaxed)
    }

    #[inline]
    pub fn count(&self, metric: Metric) {
        self.counters().count(metric);
    }

    /// This worker's counters.
    #[inline]
    pub fn counters(&self) -> &Counters {
        &self.shared.counters[usize::from(self.id)]
    }

    /// A time as milliseconds since the start of the proxy, for others to read.
    #[inline]
    pub fn millis(&self, at: Instant) -> u64 {
        at.saturating_duration_since(self.shared.begun).as_millis() as u64
    }

    /// The time of this round of the event loop, in milliseconds since the start of the proxy; worked out once a round.
    #[inline]
    pub fn now_ms(&self) -> u64 {
        let now = self.reactor.now();
        let (known, ms) = self.round.get();
        if known == now {
            return ms;
        }
        let ms = self.millis(now);
        self.round.set((now, ms));
        ms
    }

    /// Microseconds from the start of the proxy.
    pub fn micros(&self, at: Instant) -> u64 {
        at.saturating_duration_since(self.shared.begun).as_micros() as u64
    }

    /// True if some node but the primary may take reads: only then catalogs are asked.
    #[inline]
    pub fn has_readers(&self) -> bool {
        self.has_readers.get()
    }

    pub fn count_read(&self, node: u16) {
        self.counters().count_read(node);
    }

    pub fn log_client(&self, card: &Card, what: &str) {
        let (user, database, host) = (&*card.user, &*card.database, &*card.client_host());
        let who = Who { user, database, application: &card.application, client: host, session: card.pid };
        let text = format_args!("{what}: user={user} database={database} host={host} port={}", card.client_port());
        self.shared.log.write(Level::Log, &who, text);
    }

    pub fn log_conn(&self, address: &Address, text: std::fmt::Arguments<'_>) {
        self.shared.log.write(Level::Log, &Who::default(), format_args!("server connection to {address}: {text}"));
    }

    pub fn pool_set(&self, user: &str, database: &str) -> Rc<PoolSet> {
        let mut sets = self.pool_sets.borrow_mut();
        let key = (Arc::<str>::from(user), Arc::<str>::from(database));
        if let Some(known) = sets.get(&key) {
            return known.clone();
        }
        let stats = self.shared.stats.open(&key.0, &key.1);
        let limits = Cell::new(limits::of(&self.peek_config(), &key.0, &key.1));
        let (user, served, connect_query) = match self.peek_config().databases.get(database) {
            Some(entry) => (entry.user.clone().unwrap_or(key.0.clone()), entry.database.clone(), entry.connect_query.clone()),
            None => (key.0.clone(), key.1.clone(), Arc::default()),
        };
        let known = self.shared.catalogs.database(&served);
        let set = PoolSet {
            client_user: key.0.clone(),
            client_database: key.1.clone(),
            user,
            database: served,
            connect_query,
            stats,
            limits,
            known,
            pools: RefCell::default(),
        };
        sets.entry(key).or_insert(Rc::new(set)).clone()
    }

    /// Forgets a user and database that no server ever let in, so that invented names leave nothing behind.
    pub fn forget_pool_set(&self, pools: &Rc<PoolSet>) {
        // The table's and the caller's own; another is of a login or a session under way.
        const OWN: usize = 2;
        if pools.stats.get(Stat::Logins) > 0 || Rc::strong_count(pools) > OWN {
            return;
        }
        self.pool_sets.borrow_mut().remove(&(pools.client_user.clone(), pools.client_database.clone()));
        self.shared.stats.close(&pools.stats);
        // Pools of a forced user are others', too.
        if pools.user == pools.client_user {
            self.shared.pools.forget_unused(&pools.user, &pools.client_database);
        }
        self.shared.catalogs.forget(&pools.known);
    }

    /// The hub of sessions that listen and use these pools.
    pub fn hub(&self, pools: &Rc<PoolSet>) -> Rc<Hub> {
        let key = (pools.user.clone(), pools.client_database.clone(), pools.database.clone());
        if let Some(hub) = self.hubs.borrow().get(&key) {
            return hub.clone();
        }
        let hub = Rc::new(Hub::new(key.clone(), self.random()));
        self.hubs.borrow_mut().insert(key, hub.clone());
        self.new_hubs.borrow_mut().push((hub.clone(), pools.clone()));
        self.reactor.wake(self.hub_opener.get());
        hub
    }

    /// Nobody listens there any more.
    pub fn forget_hub(&self, hub: &Hub) {
        self.hubs.borrow_mut().remove(&hub.key);
    }

    /// True if the node with this number is the primary, as far as this worker knows.
    #[inline]
    pub fn is_primary(&self, node: u16) -> bool {
        self.view().is_primary(node)
    }

    /// The number of the node that is the primary now.
    pub fn primary_node(&self) -> Option<u16> {
        self.view().primary_id()
    }

    /// Where a node of the view is.
    pub fn address_of(&self, node: usize) -> Option<Address> {
        Address::of(&self.view(), &self.peek_config(), node)
    }

    /// Closes a server connection and gives its place to a waiter.
    pub fn close_conn(&self, conn: Box<ServerConn>) {
        if conn.home != self.id {
            // Only the event loop it is in can let go of it.
            return self.shared.mailboxes[usize::from(conn.home)].send(Message::Close(conn));
        }
        let (pool, serial) = (conn.pool.clone(), conn.card.serial);
        // A Terminate saves the server a log line about an unexpected end of file.
        let _ = conn.socket.try_write(&self.reactor, &[b'X', 0, 0, 0, 4], &[]);
        conn.socket.close(&self.reactor);
        pool.forget(self, serial);
    }

    /// Notes a session under the process id that its client will be told.
    pub fn enter(&self, make: impl FnOnce(Number) -> Entry) -> Rc<Entry> {
        let number = Number { pid: self.shared.cards.next_pid(), worker: self.id };
        let entry = Rc::new(make(number));
        self.entries.borrow_mut().insert(number.pid, entry.clone());
        entry
    }

    pub fn leave(&self, entry: &Entry) {
        if let Some(node) = entry.clock.flight.take() {
            self.loads.end(node);
        }
        self.entries.borrow_mut().remove(&entry.card.pid);
    }

    /// Passes a CancelRequest to the worker that serves the session.
    pub fn route_cancel(&self, pid: u32, key: Vec<u8>) {
        match self.shared.cards.get(pid) {
            Some(card) => self.shared.mailboxes[usize::from(card.worker)].send(Message::Cancel { pid, key }),
            None => self.shared.log.say(Level::Log, format_args!("process id {pid} in a cancel request is of no session")),
        }
    }

    /// Forwards a cancel request to the server connection that the session uses.
    pub fn forward_cancel(self: &Rc<Worker>, entry: &Rc<Entry>) {
        let Some(conn) = entry.conn.borrow().clone() else {
            if entry.card.doing() == Doing::WaitingForConnection {
                entry.wait_cancelled.set(true);
                self.reactor.wake(entry.task.get());
            }
            return;
        };
        if entry.is_ours.get() {
            return entry.cancel_waits.set(true);
        }
        // One at a time: the statement that runs is being cancelled already.
        if entry.cancels.get() > 0 {
            return;
        }
        self.count(Metric::CancelsForwarded);
        entry.cancels.set(entry.cancels.get() + 1);
        let (w, entry) = (self.clone(), entry.clone());
        self.reactor.spawn(async move {
            if !server_conn::cancel(&w, &conn).await {
                // It may still reach the server later, and must not hit another client's statement then.
                conn.doomed.store(true, Ordering::Relaxed);
            }
            entry.cancels.set(entry.cancels.get() - 1);
            w.reactor.wake(entry.task.get());
        });
    }
}
