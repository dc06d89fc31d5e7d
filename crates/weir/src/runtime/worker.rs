//! A worker thread: an event loop, its sessions, and the data they share without locks.

use crate::auth::client_limits::{CountedClient, LoginCounts};
use crate::auth::greetings::GreetingCache;
use crate::log::{Level, LogOrigin};
use crate::runtime::pool::server_conn::kept_inquiries::WorkerInquiries;
use crate::runtime::pool::server_conn::shard_gates::ShardGates;
use crate::runtime::pool::server_conn::{ServerConn, ServerTransport, TERMINATE};
use crate::runtime::pool::{ConnPool, PoolKey, PoolPurpose};
use crate::runtime::shared::{SharedState, TerminationTarget, WorkerId, WorkerMailbox, WorkerMessage};
use crate::runtime::stores::WorkerStores;
use crate::runtime::supervised_tasks::TaskSupervisor;
use foldhash::{HashMap, HashSet};
use std::borrow::Borrow;
use std::cell::{Cell, RefCell};
use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;
use weir_config::limits;
use weir_io::reactor::{NO_TASK, Reactor, TaskId};
use weir_session::account::Account;
use weir_session::conn::ServerAddress;
use weir_session::context::{Context, ContextParts};
use weir_session::handle::SessionHandle;
use weir_session::local::ViewOf;
use weir_session::query_cache::result_store::ResultStore;
use weir_session::session_state::listen::listen_hub::NotificationHub;
use weir_session::stats::StatCounter;
use weir_session::status::{ClientIdentity, SessionPid, SessionStatus};
use weir_session::task::Us;

mod orders;
mod unused;

pub struct SessionEntry {
    pub(crate) handle: Rc<SessionHandle>,
    /// Milliseconds since the start of the proxy.
    pub(crate) since_ms: u64,
    pub(crate) key: CancelKey,
    /// None for administrators and replication clients, who have no time limits either.
    pub(crate) pools: Option<Rc<PoolSet>>,
    pub(crate) counted: RefCell<Option<CountedClient>>,
}

/// Long keys came with protocol 3.2.
pub enum CancelKey {
    Short([u8; 4]),
    Long(Box<[u8; 32]>),
}

impl Deref for CancelKey {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            CancelKey::Short(key) => key,
            CancelKey::Long(key) => &**key,
        }
    }
}

impl Deref for SessionEntry {
    type Target = SessionHandle;

    fn deref(&self) -> &SessionHandle {
        &self.handle
    }
}

pub struct PoolSet {
    pub(crate) account: Rc<Account>,
    pub(crate) whose: Arc<ClientIdentity>,
    pub(crate) places: Arc<LoginCounts>,
    /// Application of the last client; the next one mostly has the same.
    application: RefCell<Arc<str>>,
    pools: RefCell<Vec<Option<Arc<ConnPool>>>>,
    unused_since: Cell<Option<Us>>,
}

impl Deref for PoolSet {
    type Target = Account;

    fn deref(&self) -> &Account {
        &self.account
    }
}

impl PoolSet {
    /// Clients in a row with the same application share its name.
    pub fn application(&self, name: &str) -> Arc<str> {
        let mut last = self.application.borrow_mut();
        if **last != *name {
            *last = name.into();
        }
        last.clone()
    }

    pub fn of_node(&self, w: &Worker, node: u16) -> Arc<ConnPool> {
        let mut pools = self.pools.borrow_mut();
        let at = usize::from(node);
        if pools.len() <= at {
            pools.resize(at + 1, None);
        }
        pools[at]
            .get_or_insert_with(|| {
                w.shared.pools.get(self.key(node, PoolPurpose::Statements), &w.shared.pause_state, &w.peek_config())
            })
            .clone()
    }

    /// The pool of the engine beside the database, on the primary.
    pub fn engine(&self, w: &Worker, node: u16) -> Arc<ConnPool> {
        let engine = w.peek_config().sharding.engine_of(&self.database);
        let key = PoolKey { database: engine.into(), ..self.key(node, PoolPurpose::Engine) };
        w.shared.pools.get(key, &w.shared.pause_state, &w.peek_config())
    }

    /// Pool of unshared server connections.
    pub fn apart(&self, w: &Worker, node: u16, purpose: PoolPurpose) -> Arc<ConnPool> {
        w.shared.pools.get(self.key(node, purpose), &w.shared.pause_state, &w.peek_config())
    }

    fn key(&self, node: u16, purpose: PoolPurpose) -> PoolKey {
        let (user, database, client_database) = (self.user.clone(), self.database.clone(), self.client_database.clone());
        PoolKey { node, user, database, client_database, purpose }
    }
}

/// Keyed by the servers' user, the clients' database name and the servers': a reload may redirect a name.
type Hubs = HashMap<(Arc<str>, Arc<str>, Arc<str>), Rc<NotificationHub>>;

/// Lookup key without ownership.
trait UserDatabaseKey {
    fn user(&self) -> &str;
    fn database(&self) -> &str;
}

impl UserDatabaseKey for (Arc<str>, Arc<str>) {
    fn user(&self) -> &str {
        &self.0
    }
    fn database(&self) -> &str {
        &self.1
    }
}

impl UserDatabaseKey for (&str, &str) {
    fn user(&self) -> &str {
        self.0
    }
    fn database(&self) -> &str {
        self.1
    }
}

impl Hash for dyn UserDatabaseKey + '_ {
    fn hash<H: Hasher>(&self, state: &mut H) {
        // Hashes as the tuple does.
        (self.user(), self.database()).hash(state);
    }
}

impl PartialEq for dyn UserDatabaseKey + '_ {
    fn eq(&self, other: &Self) -> bool {
        (self.user(), self.database()) == (other.user(), other.database())
    }
}

impl Eq for dyn UserDatabaseKey + '_ {}

impl<'a> Borrow<dyn UserDatabaseKey + 'a> for (Arc<str>, Arc<str>) {
    fn borrow(&self) -> &(dyn UserDatabaseKey + 'a) {
        self
    }
}

/// Keyed by the clients' user and database.
type PoolSets = HashMap<(Arc<str>, Arc<str>), Rc<PoolSet>>;

pub struct Worker {
    ctx: Context,
    pub shared: Arc<SharedState>,
    pub(crate) tasks: TaskSupervisor,
    pub(crate) reactor: Reactor,
    /// Sessions by process id.
    pub(crate) entries: RefCell<HashMap<u32, Rc<SessionEntry>>>,
    pub(crate) greetings: RefCell<GreetingCache>,
    pub(crate) inquiry: WorkerInquiries,
    pub(crate) listening: ListeningSessions,
    pool_sets: RefCell<PoolSets>,
    pub(crate) acceptors: RefCell<Vec<TaskId>>,
    pub(crate) view_waiters: RefCell<HashSet<TaskId>>,
    pub(crate) stores: Option<Rc<WorkerStores>>,
    randomness: RefCell<crate::RandomBytes>,
    /// Begin of the event loop's round, and its TLS handshakes.
    handshakes: Cell<(Instant, u32)>,
    serials: AtomicU64,
    /// Sockets of server connections that their sessions put aside, by the connections' serial numbers.
    pub(crate) parked: RefCell<HashMap<u64, Box<ServerTransport>>>,
    pub(crate) shard_gates: ShardGates,
}

pub struct ListeningSessions {
    hubs: RefCell<Hubs>,
    /// Hubs without a task, which `hub_opener` starts, and their pools.
    pub(crate) new_hubs: RefCell<Vec<(Rc<NotificationHub>, Rc<PoolSet>)>>,
    pub(crate) hub_opener: Cell<TaskId>,
}

impl Deref for Worker {
    type Target = Context;

    fn deref(&self) -> &Context {
        &self.ctx
    }
}

/// TLS handshakes per round of the event loop. Each computes for a millisecond: a storm must not hold up statements.
const HANDSHAKES_MAX: u32 = 4;

impl Worker {
    pub fn takes_handshake(&self) -> bool {
        let now = self.reactor.now();
        let (round, begun) = self.handshakes.get();
        let begun = if round == now { begun } else { 0 };
        self.handshakes.set((now, begun.saturating_add(1)));
        begun < HANDSHAKES_MAX
    }

    pub fn new(id: WorkerId, shared: Arc<SharedState>, reactor: Reactor, view_of: ViewOf) -> Rc<Worker> {
        let config = shared.config.load_full();
        let stores = shared.store_common.as_ref().and_then(|common| WorkerStores::new(&config.cache, common));
        let ctx = Context::new(ContextParts {
            id,
            shared: shared.common.clone(),
            program: shared.clone(),
            buffers: reactor.buffers.clone(),
            store: stores.clone().map(|stores| stores as Rc<dyn ResultStore>),
            config,
            view: shared.cluster.view.load_full(),
            clock: reactor.clock(),
            seed: u64::from_le_bytes(crate::random()),
            view_of,
        });
        Rc::new(Worker {
            ctx,
            stores,
            entries: RefCell::default(),
            greetings: RefCell::new(GreetingCache::default()),
            handshakes: Cell::new((shared.begun, 0)),
            pool_sets: RefCell::default(),
            inquiry: WorkerInquiries::default(),
            listening: ListeningSessions {
                hubs: RefCell::default(),
                new_hubs: RefCell::default(),
                hub_opener: Cell::new(NO_TASK),
            },
            acceptors: RefCell::default(),
            view_waiters: RefCell::default(),
            randomness: RefCell::default(),
            serials: AtomicU64::new(1),
            parked: RefCell::default(),
            shard_gates: ShardGates::default(),
            tasks: TaskSupervisor::default(),
            reactor,
            shared,
        })
    }

    pub fn wake_waiter(&self, (worker, task): (WorkerId, TaskId)) {
        if worker == self.id {
            self.reactor.wake(task);
        } else if let Some(mailbox) = self.shared.mailboxes.get(usize::from(worker)) {
            mailbox.send(WorkerMessage::Wake(task));
        }
    }

    pub fn mailbox(&self) -> &WorkerMailbox {
        &self.shared.mailboxes[usize::from(self.id)]
    }

    pub fn refresh(&self) {
        let config = self.shared.config.load_full();
        // Before the new configuration is in force, so that both can be compared.
        let is_other = !Arc::ptr_eq(&config, &self.peek_config());
        if is_other {
            // Each worker has opened connections by its own configuration.
            if !config.reaches_servers_as(&self.peek_config()) {
                self.shared.pools.of_database(None).iter().for_each(|pool| pool.renew(self));
            }
            self.redirect(&config);
            for set in self.pool_sets.borrow().values() {
                set.limits.set(limits::of(&config, &set.client_user, &set.client_database));
            }
        }
        if self.ctx.set_config(config) && self.id == 0 {
            self.shared.pools.feed_all(self);
        }
        let view = self.shared.cluster.view.load_full();
        let generation = view.generation;
        self.ctx.set_view(view);
        self.mailbox().view_known.store(generation, Ordering::Release);
        self.greetings.borrow_mut().clear();
        for task in self.view_waiters.take() {
            self.reactor.wake(task);
        }
    }

    /// Has server connections with outdated defaults closed after their use.
    #[cold]
    pub fn renew_conns(&self, database: Option<&str>) {
        self.shared.pools.of_database(database).iter().for_each(|pool| pool.renew(self));
        // Clients' greetings are asked again.
        self.shared.tell_all(|| WorkerMessage::Refresh);
    }

    /// Handles a role that may have been renamed or dropped. Server processes keep the role that logged in, so server connections of this
    /// user are lent no more.
    #[cold]
    pub fn role_renamed(&self, user: &str) {
        self.shared.clients.roles.lock().doubt(user, self.now_ms());
        self.renew_conns_of(user);
    }

    fn renew_conns_of(&self, user: &str) {
        self.shared.pools.of_user(user).iter().for_each(|pool| pool.renew(self));
        // Clients' greetings are asked again.
        self.greetings.borrow_mut().clear();
        self.shared.tell_all(|| WorkerMessage::Refresh);
    }

    /// After a change of the role, closes its server connections and sessions: their next statement would have another role's rights.
    /// True: the role changed.
    pub fn note_role(&self, user: &Arc<str>, oid: &str) -> bool {
        let Some(until_ms) = self.shared.clients.roles.lock().note(user, oid, self.now_ms()) else { return false };
        self.renew_conns_of(user);
        for mailbox in &self.shared.mailboxes {
            mailbox.send(WorkerMessage::Kill(TerminationTarget::User { user: user.clone(), until_ms }));
        }
        true
    }

    pub fn client_gone(&self) {
        self.mailbox().sessions.fetch_sub(1, Ordering::Relaxed);
        self.shared.clients.connected.fetch_sub(1, Ordering::Relaxed);
    }

    pub fn wake_at_new_view(&self) {
        self.view_waiters.borrow_mut().insert(self.reactor.current_task());
    }

    pub fn random<const N: usize>(&self) -> [u8; N] {
        self.randomness.borrow_mut().take()
    }

    /// Unique over all workers.
    pub fn next_serial(&self) -> u64 {
        (u64::from(self.id) << 48) | self.serials.fetch_add(1, Ordering::Relaxed)
    }

    /// Microseconds since the start of the proxy.
    pub fn micros(&self, at: Instant) -> u64 {
        at.saturating_duration_since(self.shared.begun).as_micros() as u64
    }

    pub fn log_client(&self, status: &SessionStatus, what: &str) {
        let (user, database, host) = (&*status.user, &*status.database, &*status.client_host());
        let who = LogOrigin { user, database, application: &status.application, client: host, session: status.pid };
        let text = format_args!("{what}: user={user} database={database} host={host} port={}", status.client_port());
        self.shared.log.write(Level::Log, &who, text);
    }

    pub fn pool_set(&self, user: &str, database: &str) -> Rc<PoolSet> {
        let mut sets = self.pool_sets.borrow_mut();
        if let Some(known) = sets.get(&(user, database) as &dyn UserDatabaseKey) {
            return known.clone();
        }
        let key = (Arc::<str>::from(user), Arc::<str>::from(database));
        let stats = self.shared.stats.open(&key.0, &key.1);
        let limits = Cell::new(limits::of(&self.peek_config(), &key.0, &key.1));
        let (user, served, connect_query) = match self.peek_config().databases.get(database) {
            Some(entry) => {
                let served = entry.database.clone().unwrap_or(key.1.clone());
                (entry.user.clone().unwrap_or(key.0.clone()), served, entry.connect_query.clone())
            }
            None => (key.0.clone(), key.1.clone(), Arc::default()),
        };
        let known = self.shared.catalogs.database(&served, self.now());
        let account = Account {
            client_user: key.0.clone(),
            client_database: key.1.clone(),
            user,
            database: served,
            connect_query,
            stats,
            limits,
            known,
            number: Cell::default(),
        };
        let whose = ClientIdentity {
            user: account.client_user.clone(),
            database: account.client_database.clone(),
            server_user: account.user.clone(),
            server_database: account.database.clone(),
        };
        let (account, whose) = (Rc::new(account), Arc::new(whose));
        let (application, unused_since) = (RefCell::default(), Cell::new(None));
        let places = self.shared.clients.counts.places(whose.clone());
        let set = PoolSet { account, whose, places, application, pools: RefCell::default(), unused_since };
        sets.entry(key).or_insert(Rc::new(set)).clone()
    }

    /// Forgets a user and database that no server let in, so that invented names leave nothing behind.
    pub fn forget_pool_set(&self, pools: &Rc<PoolSet>) {
        // References of the table and the caller; another is of a login or session.
        const OWN: usize = 2;
        if pools.stats.get(StatCounter::Logins) > 0 || Rc::strong_count(pools) > OWN {
            return;
        }
        self.pool_sets.borrow_mut().remove(&(pools.client_user.clone(), pools.client_database.clone()));
        self.shared.stats.close(&pools.stats);
        // Pools of a forced user also belong to others.
        if pools.user == pools.client_user {
            self.shared.pools.forget_unused(&pools.user, &pools.client_database);
        }
        self.shared.catalogs.forget(&pools.known);
    }

    pub fn hub(&self, pools: &Rc<PoolSet>) -> Rc<NotificationHub> {
        let key = (pools.user.clone(), pools.client_database.clone(), pools.database.clone());
        if let Some(hub) = self.listening.hubs.borrow().get(&key) {
            return hub.clone();
        }
        let hub = Rc::new(NotificationHub::new(key.clone(), self.random()));
        self.listening.hubs.borrow_mut().insert(key, hub.clone());
        self.listening.new_hubs.borrow_mut().push((hub.clone(), pools.clone()));
        self.reactor.wake(self.listening.hub_opener.get());
        hub
    }

    pub fn forget_hub(&self, hub: &NotificationHub) {
        self.listening.hubs.borrow_mut().remove(&hub.key);
    }

    pub fn address_of(&self, node: usize) -> Option<ServerAddress> {
        ServerAddress::of(&self.view(), &self.peek_config(), node)
    }

    /// The address of a node by its number, of any shard.
    pub fn address_of_node(&self, node: u16) -> Option<ServerAddress> {
        let at = self.view().nodes.iter().position(|known| known.id == node);
        let of_shard = || self.peek_config().sharding.nodes.iter().find(|known| known.id == node).map(ServerAddress::of_shard);
        at.and_then(|at| self.address_of(at)).or_else(of_shard)
    }

    pub fn close_conn(&self, conn: ServerConn) {
        if conn.transport.home != self.id {
            // Only its own event loop can release the socket.
            return self.shared.mailboxes[usize::from(conn.transport.home)].send(WorkerMessage::Close(conn));
        }
        let (pool, serial) = (conn.transport.pool.clone(), conn.status.serial);
        conn.transport.socket.part(&self.reactor, &TERMINATE);
        pool.forget(self, serial);
    }

    pub fn enter(&self, make: impl FnOnce(SessionPid) -> SessionEntry) -> Rc<SessionEntry> {
        let number = SessionPid { pid: self.shared.session_statuses.next_pid(), worker: self.id };
        let entry = Rc::new(make(number));
        self.entries.borrow_mut().insert(number.pid, entry.clone());
        entry
    }

    pub fn leave(&self, entry: &SessionHandle) {
        if let Some(node) = entry.clock.flight.take() {
            self.loads.end(node);
        }
        self.entries.borrow_mut().remove(&entry.status.pid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_by_user_and_database_is_asked_by_names_that_nobody_has_kept() {
        let mut table: HashMap<(Arc<str>, Arc<str>), u32> = HashMap::default();
        table.insert(("joe".into(), "shop".into()), 1);
        table.insert(("joe".into(), "house".into()), 2);
        let find = |user, database| table.get(&(user, database) as &dyn UserDatabaseKey).copied();
        assert_eq!(
            [find("joe", "shop"), find("joe", "house"), find("shop", "joe"), find("ann", "shop")],
            [Some(1), Some(2), None, None]
        );
    }
}
