//! A worker's side of the stores answers are kept in: what is asked of them, who waits for it, and what this worker's writers owe them.
//! Decisions are `policy::cache::Holds`'; the bytes are moved by `shelf`, a task for each host.
//!
//! A key is at one host (`Ring`). Stamps of what is more than a table are at every host, so that an answer needs few of them.

mod common;
mod lanes;

pub use common::{Common, Errand, FIRST_WORKER, LEASE_MS, MARGIN_MS};
pub use lanes::Lane;

use crate::io::reactor::TaskId;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::fmt::Write as _;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use weir_policy::cache::{Doorkeeper, Found, Holds, Host, Kept, Order, Ring, Shards, Slot, Stamp, hosts};
use weir_policy::config::{CacheConfig, Method, StoreConfig};
use weir_wire::store::{Ask, Dialect, Expect, Told, Value, is_moved};

/// Longest value that is read. Answers that come near it are not stored.
pub const VALUE_BYTES_MAX: usize = 8 << 20;

/// Questions under way at a host. With more of them the store is too slow to be of use: those that come are not asked.
const UNDER_WAY_MAX: usize = 20_000;

/// Life of a stamp after the last change: then the marks of a Weir that died are gone, too. To lose a stamp is safe.
const STAMP_SECONDS: u64 = 3600;

/// What is stored when a host is greeted, to see that it takes it: as much as a stamp with a few marks.
const TRIAL_BYTES: usize = 64;
const TRIAL_SECONDS: u64 = 60;

/// The digest of a key, under which its answer is kept.
pub type Digest = [u8; 32];

/// A reply for whom.
enum Purpose {
    /// Values of a read, by their places.
    Fetch(Rc<Fetch>, Vec<usize>),
    /// What a hold is waiting for.
    Hold(Order),
    /// An answer was stored.
    Put,
    /// The greeting.
    Hello,
    /// Whether a cluster's map still holds.
    Map,
}

/// What a reply came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Heard {
    Fine,
    /// An answer was not stored, for this reason.
    Missed(String),
    /// Another master has the keys.
    Moved,
    /// The host will not do what must be done, in its own words: it is of no use.
    Refused(String),
}

/// What was sent, in order.
pub struct Sent {
    pub expect: Expect,
    pub at_ms: u64,
    purpose: Purpose,
}

/// One host.
pub struct Shelf {
    pub host: Host,
    lanes: RefCell<Rc<[Lane]>>,
    /// Of Redis Cluster.
    shards: RefCell<Option<Shards>>,
    pub task: Cell<TaskId>,
    is_up: Cell<bool>,
    holds: RefCell<Holds>,
    /// What was looked at, for the swap that follows.
    looked: RefCell<HashMap<Slot, Value>>,
}

/// See the module.
pub struct Stores {
    pub worker: u8,
    pub shelves: Vec<Shelf>,
    pub common: Arc<Common>,
    pub timeout_ms: u64,
    pub config: StoreConfig,
    pub dialect: Dialect,
    namespace: String,
    ring: Ring,
    wide: Box<dyn Fn(Slot) -> bool>,
    expire_seconds: u64,
    /// Time in milliseconds since the start of the proxy, as the tasks of the shelves last knew it.
    now_ms: Cell<u64>,
    /// Tasks of shelves that have something to write, and of sessions whose wait is over.
    woken: RefCell<Vec<TaskId>>,
    /// Sessions that wait for their marks.
    waiting: RefCell<Vec<TaskId>>,
    /// Which questions are worth an exchange.
    pub doorkeeper: RefCell<Doorkeeper>,
    /// Changes nobody waits for, until the store knows of them.
    changes: RefCell<Vec<Ticket>>,
}

/// A read: an answer and the stamps it hangs on, in one exchange with each host.
pub struct Fetch {
    pub digest: Digest,
    task: TaskId,
    left: Cell<usize>,
    has_failed: Cell<bool>,
    /// The answer, then the stamps.
    values: RefCell<Vec<Option<Value>>>,
    /// What others had to say when it was sent.
    era: u64,
    hosts: u64,
}

impl Fetch {
    pub fn is_over(&self) -> bool {
        self.left.get() == 0
    }

    /// The answer, and the stamps; `None` if a host could not be asked.
    pub fn found(&self) -> Option<(Option<Value>, Vec<Option<Value>>)> {
        let mut values = self.values.borrow_mut();
        if self.has_failed.get() || values.is_empty() {
            return None;
        }
        let mut values = std::mem::take(&mut *values).into_iter();
        Some((values.next().flatten(), values.collect()))
    }
}

impl Stores {
    /// `None` if answers are kept in our memory, or nowhere.
    pub fn new(worker: u8, config: &CacheConfig, common: &Arc<Common>, wide: Box<dyn Fn(Slot) -> bool>) -> Option<Rc<Stores>> {
        let store = config.store()?;
        // The configuration was checked.
        let hosts = hosts(&store.hosts, store.port).ok()?;
        let member = common.member(worker);
        let shelf = |host: &Host| Shelf {
            host: host.clone(),
            lanes: RefCell::new(Rc::new([Lane::default()])),
            shards: RefCell::default(),
            task: Cell::new(crate::io::reactor::NO_TASK),
            is_up: Cell::new(false),
            holds: RefCell::new(Holds::new(member)),
            looked: RefCell::default(),
        };
        Some(Rc::new(Stores {
            worker,
            shelves: hosts.iter().map(shelf).collect(),
            common: common.clone(),
            timeout_ms: config.timeout_ms,
            config: store.clone(),
            dialect: if config.method == Method::Redis { Dialect::Redis } else { Dialect::Memcached },
            namespace: config.namespace.clone(),
            ring: Ring::new(&hosts),
            wide,
            expire_seconds: config.expire_ms.div_ceil(1000),
            now_ms: Cell::new(0),
            woken: RefCell::default(),
            waiting: RefCell::default(),
            doorkeeper: RefCell::default(),
            changes: RefCell::default(),
        }))
    }

    fn slot_key(&self, slot: Slot) -> Vec<u8> {
        format!("{}:s:{slot}", self.namespace).into_bytes()
    }

    fn answer_key(&self, digest: &Digest) -> Vec<u8> {
        let mut key = format!("{}:a:", self.namespace);
        for byte in digest {
            // Writing to a String does not fail.
            let _ = write!(key, "{byte:02x}");
        }
        key.into_bytes()
    }

    /// The hosts at which a slot's stamp stands.
    fn hosts_of(&self, slot: Slot) -> std::ops::Range<usize> {
        if (self.wide)(slot) {
            return 0..self.shelves.len();
        }
        let at = self.ring.host_of(&self.slot_key(slot));
        at..at + 1
    }

    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Tasks that are to run; the worker wakes them.
    pub fn take_woken(&self) -> Vec<TaskId> {
        self.woken.take()
    }

    pub fn set_now(&self, now_ms: u64) {
        self.now_ms.set(now_ms);
    }
}

/// Reading and storing answers.
impl Stores {
    /// Asks for an answer and the stamps of its slots. `None`: nothing can be had from the store now.
    pub fn fetch(&self, digest: Digest, slots: &[Slot], task: TaskId, now_ms: u64) -> Option<Rc<Fetch>> {
        self.now_ms.set(now_ms);
        let key = self.answer_key(&digest);
        let home = self.ring.host_of(&key);
        let mut keys: Vec<(Vec<Vec<u8>>, Vec<usize>)> = vec![Default::default(); self.shelves.len()];
        let mut ask = |host: usize, key: Vec<u8>, place: usize| {
            let (keys, places) = &mut keys[host];
            keys.push(key);
            places.push(place);
        };
        ask(home, key, 0);
        for (place, slot) in slots.iter().enumerate() {
            let hosts = self.hosts_of(*slot);
            ask(if hosts.contains(&home) { home } else { hosts.start }, self.slot_key(*slot), place + 1);
        }
        let asked = |(at, (keys, _)): (usize, &(Vec<Vec<u8>>, Vec<usize>))| if keys.is_empty() { 0 } else { 1 << at };
        let hosts: u64 = keys.iter().enumerate().map(asked).sum();
        let can = |(at, shelf): (usize, &Shelf)| hosts & (1 << at) == 0 || shelf.can_take();
        if !self.shelves.iter().enumerate().all(can) {
            return None;
        }
        let parts = keys.iter().enumerate().map(|(at, (keys, _))| self.parts(at, keys.len())).sum();
        let fetch = Rc::new(Fetch {
            digest,
            task,
            left: Cell::new(parts),
            has_failed: Cell::new(false),
            values: RefCell::new(vec![None; slots.len() + 1]),
            era: self.common.era(hosts, now_ms)?,
            hosts,
        });
        for (at, (keys, places)) in keys.into_iter().enumerate() {
            if self.parts(at, keys.len()) <= 1 {
                self.get(at, keys, Purpose::Fetch(fetch.clone(), places));
                continue;
            }
            for (key, place) in keys.into_iter().zip(places) {
                self.get(at, vec![key], Purpose::Fetch(fetch.clone(), vec![place]));
            }
        }
        Some(fetch)
    }

    /// In how many questions a host is asked for so many keys.
    fn parts(&self, at: usize, keys: usize) -> usize {
        if self.shelves[at].is_cluster() { keys } else { keys.min(1) }
    }

    fn get(&self, at: usize, keys: Vec<Vec<u8>>, purpose: Purpose) {
        if let Some(key) = keys.first() {
            let lane = self.shelves[at].lane_of(key);
            self.say_to(at, lane, Ask::Get(&keys), Expect::Values(keys.clone()), purpose);
        }
    }

    /// Whether what was read may be given out: nobody has said meanwhile that he commits without the store's knowing.
    pub fn may_give(&self, fetch: &Fetch, now_ms: u64) -> bool {
        self.common.era(fetch.hosts, now_ms) == Some(fetch.era)
    }

    /// A stamp that is missing is made.
    pub fn missed(&self, slot: Slot) {
        for at in self.hosts_of(slot) {
            let order = self.shelves[at].holds.borrow_mut().missed(slot, self.now_ms.get(), crate::random_word());
            self.order(at, order);
        }
    }

    /// A stamp with marks was read, or one after such.
    pub fn sighted(&self, digest: &Digest, slot: Slot, stamp: &Stamp) {
        // Stamps that stand everywhere were read where the answer lies.
        let (home, hosts) = (self.ring.host_of(&self.answer_key(digest)), self.hosts_of(slot));
        let at = if hosts.contains(&home) { home } else { hosts.start };
        let order = self.shelves[at].holds.borrow_mut().sighted(slot, stamp, self.now_ms.get());
        self.order(at, order);
    }

    /// Stores an answer. It does not matter when it gets there: it carries what it hangs on.
    pub fn put(&self, digest: &Digest, kept: &Kept<'_>) {
        let key = self.answer_key(digest);
        let at = self.ring.host_of(&key);
        if self.shelves[at].can_take() && kept.bytes.len() + kept.key.len() < VALUE_BYTES_MAX / 2 {
            let bytes = kept.write();
            self.say(at, &key, Ask::Set { key: &key, bytes: &bytes, seconds: self.expire_seconds }, Purpose::Put);
        }
    }
}

/// What writers owe.
impl Stores {
    /// A writer is about to commit.
    pub fn raise(&self, slot: Slot) {
        for at in self.hosts_of(slot) {
            let order = self.shelves[at].holds.borrow_mut().raise(slot);
            self.order(at, order);
            self.wish(at);
        }
    }

    /// It is known how that went.
    pub fn settle(&self, slot: Slot, is_changed: bool) {
        for at in self.hosts_of(slot) {
            let order = self.shelves[at].holds.borrow_mut().settle(slot, is_changed);
            self.order(at, order);
        }
    }

    /// Raises slots ahead of a statement; the task is woken when the store knows.
    pub fn ticket(self: &Rc<Stores>, slots: &[Slot]) -> Ticket {
        let mut ticket = Ticket { stores: self.clone(), slots: Vec::new() };
        ticket.add(slots);
        ticket
    }

    fn is_raised(&self, slot: Slot) -> bool {
        self.hosts_of(slot).all(|at| {
            let shelf = &self.shelves[at];
            match self.is_up(at) {
                true => shelf.holds.borrow().is_raised(slot),
                false => self.common.is_granted(at, self.now_ms.get()),
            }
        })
    }

    /// A session's task that waits for its marks.
    pub fn wait(&self, task: TaskId) {
        let mut waiting = self.waiting.borrow_mut();
        if !waiting.contains(&task) {
            waiting.push(task);
        }
    }

    /// What other threads want told.
    pub fn run_errands(self: &Rc<Stores>) {
        for errand in self.common.take(self.worker) {
            match errand {
                Errand::Settle(slots) => slots.into_iter().for_each(|slot| self.settle(slot, true)),
                Errand::Change(slots) => {
                    let ticket = self.ticket(&slots);
                    self.changes.borrow_mut().push(ticket);
                }
            }
        }
        // A host that is out of reach hears of it first of all when it is back.
        let done = |ticket: &mut Ticket| ticket.slots.iter().all(|slot| self.is_raised(*slot));
        let told: Vec<Ticket> = self.changes.borrow_mut().extract_if(.., done).collect();
        for ticket in told {
            ticket.into_slots().into_iter().for_each(|slot| self.settle(slot, true));
            self.common.changes.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// Whether this worker has, or has had, writers whom a host that is out of reach should know of.
    fn wish(&self, at: usize) {
        let shelf = &self.shelves[at];
        let holds = shelf.holds.borrow();
        match self.is_up(at) {
            true if holds.is_told() => self.common.wish(self.worker, at, false),
            false if holds.has_writers() => self.common.wish(self.worker, at, true),
            _ => {}
        }
    }
}

/// What the tasks of the shelves do.
impl Stores {
    fn greet(&self, at: usize) {
        let StoreConfig { user, password, database, .. } = &self.config;
        let (key, bytes) = (format!("{}:t:{}", self.namespace, self.worker).into_bytes(), [b'0'; TRIAL_BYTES]);
        for lane in 0..self.shelves[at].lanes().len() {
            let hello = |ask: Ask<'_>| self.say_to(at, lane, ask, Expect::Done, Purpose::Hello);
            if self.dialect == Dialect::Memcached || !password.is_empty() {
                hello(Ask::LogIn { user: user.as_bytes(), password: password.as_bytes() });
            }
            if self.dialect == Dialect::Redis && !self.shelves[at].is_cluster() {
                hello(Ask::Select(*database));
            }
            // One that answers but takes no marks would come and go with every write.
            if lane == self.shelves[at].lane_of(&key) {
                hello(Ask::Set { key: &key, bytes: &bytes, seconds: TRIAL_SECONDS });
                hello(Ask::Append { key: &key, bytes: &bytes });
            }
        }
    }

    /// The host has greeted back. First of all it is told what it was not.
    fn resume(&self, at: usize) {
        let shelf = &self.shelves[at];
        shelf.is_up.set(true);
        let orders = shelf.holds.borrow_mut().resume(self.now_ms.get());
        orders.into_iter().for_each(|order| self.order(at, Some(order)));
    }

    /// The connection is gone, with all that was under way.
    pub fn lose(&self, at: usize) {
        let shelf = &self.shelves[at];
        shelf.is_up.set(false);
        shelf.looked.borrow_mut().clear();
        for lane in shelf.lanes().iter() {
            lane.out.borrow_mut().clear();
            for sent in lane.sent.take() {
                if let Purpose::Fetch(fetch, _) = sent.purpose {
                    self.end(&fetch, true);
                }
            }
        }
        shelf.holds.borrow_mut().lose();
        self.wish(at);
        self.wake_waiting();
    }

    pub fn is_up(&self, at: usize) -> bool {
        self.shelves[at].is_up.get() && self.shelves[at].is_sure(self.now_ms.get())
    }

    /// Whether the host is there and has been told all it must know.
    pub fn serves(&self, at: usize) -> bool {
        self.is_up(at) && self.shelves[at].holds.borrow().is_told()
    }

    /// What is due by now.
    pub fn tick(self: &Rc<Stores>, at: usize) {
        if at == 0 {
            self.run_errands();
        }
        if self.is_up(at) {
            let due = self.shelves[at].holds.borrow_mut().due(self.now_ms.get());
            due.into_iter().for_each(|order| self.order(at, Some(order)));
        }
        self.confirm(at);
        self.wish(at);
        if !self.is_up(at) {
            self.wake_waiting();
        }
    }

    /// A reply to the first of what was sent.
    pub fn hear(&self, at: usize, lane: usize, sent: Sent, told: Told) -> Heard {
        let shelf = &self.shelves[at];
        let lanes = shelf.lanes();
        let is_done = match (&told, &sent.purpose) {
            (Told::Refused(text), Purpose::Put) => return Heard::Missed(text.clone()),
            (Told::Refused(text), purpose) => {
                if let Purpose::Fetch(fetch, _) = purpose {
                    self.end(fetch, true);
                }
                if shelf.is_cluster() && is_moved(text) {
                    return Heard::Moved;
                }
                return Heard::Refused(text.clone());
            }
            (told, _) => *told == Told::Done,
        };
        match (sent.purpose, told) {
            (Purpose::Fetch(fetch, places), Told::Values(values)) => {
                places.into_iter().zip(values).for_each(|(place, value)| {
                    if let Some(known) = fetch.values.borrow_mut().get_mut(place) {
                        // The first is the answer.
                        *known = if place == 0 { value } else { value.map(|value| lanes[lane].untagged(value)) };
                    }
                });
                self.end(&fetch, !self.is_up(at));
            }
            (Purpose::Hold(order), told) => {
                let next = self.heard(shelf, &lanes[lane], order, told, is_done);
                self.order(at, next);
                self.wish(at);
                self.wake_waiting();
            }
            // The last of the greetings.
            (Purpose::Hello, _) if lanes.iter().all(|lane| lane.sent.borrow().is_empty()) => self.resume(at),
            (Purpose::Map, told) => return self.confirmed(at, lane, sent.at_ms, &told),
            (Purpose::Fetch(..) | Purpose::Put | Purpose::Hello, _) => {}
        }
        Heard::Fine
    }

    /// What a hold makes of a reply.
    fn heard(&self, shelf: &Shelf, lane: &Lane, order: Order, told: Told, is_done: bool) -> Option<Order> {
        let (now_ms, fresh) = (self.now_ms.get(), crate::random_word());
        let mut holds = shelf.holds.borrow_mut();
        match order {
            Order::Append(slot, _) => holds.appended(slot, is_done, now_ms, fresh),
            Order::Make(slot, stamp) => holds.made(slot, &stamp, is_done, now_ms),
            Order::Swap(slot, _) => holds.swapped(slot, is_done, now_ms),
            Order::Look(slot) => {
                let value = if let Told::Values(values) = told { values.into_iter().next().flatten() } else { None };
                let found = match &value {
                    None => Found::Nothing,
                    Some(value) => Stamp::parse(&lane.untagged(value.clone()).bytes).map_or(Found::Rubbish, Found::Stamp),
                };
                if let Some(value) = value {
                    shelf.looked.borrow_mut().insert(slot, value);
                }
                let next = holds.looked(slot, found, now_ms, fresh);
                if !matches!(next, Some(Order::Swap(..))) {
                    shelf.looked.borrow_mut().remove(&slot);
                }
                next
            }
        }
    }

    /// Tells a host what a hold wants told. To one that is out of reach it is said when it is back.
    fn order(&self, at: usize, order: Option<Order>) {
        let Some(order) = order else { return };
        let shelf = &self.shelves[at];
        if !shelf.is_up.get() {
            return shelf.holds.borrow_mut().lose();
        }
        let (purpose, slot) = (Purpose::Hold(order.clone()), order.slot());
        let key = self.slot_key(slot);
        let lanes = shelf.lanes();
        let lane = &lanes[shelf.lane_of(&key)];
        match order {
            Order::Append(_, mark) => self.say(at, &key, Ask::Append { key: &key, bytes: &mark.text() }, purpose),
            Order::Make(_, stamp) => {
                let bytes = lane.tagged(&stamp.text());
                self.say(at, &key, Ask::Add { key: &key, bytes: &bytes, seconds: STAMP_SECONDS }, purpose);
            }
            Order::Look(_) => self.get(at, vec![key], purpose),
            Order::Swap(_, stamp) => {
                let Some(Value { bytes, mark }) = shelf.looked.borrow_mut().remove(&slot) else { return };
                let new = lane.tagged(&stamp.text());
                let ask = Ask::Swap { key: &key, old: &bytes, mark, new: &new, seconds: STAMP_SECONDS };
                self.say(at, &key, ask, purpose);
            }
        }
    }

    /// Asks or tells something about a key.
    fn say(&self, at: usize, key: &[u8], ask: Ask<'_>, purpose: Purpose) {
        self.say_to(at, self.shelves[at].lane_of(key), ask, Expect::Done, purpose);
    }

    fn say_to(&self, at: usize, lane: usize, ask: Ask<'_>, expect: Expect, purpose: Purpose) {
        let shelf = &self.shelves[at];
        let lane = &shelf.lanes()[lane];
        self.dialect.write(ask, &mut lane.out.borrow_mut());
        lane.sent.borrow_mut().push_back(Sent { expect, at_ms: self.now_ms.get(), purpose });
        self.woken.borrow_mut().push(shelf.task.get());
    }

    fn end(&self, fetch: &Fetch, has_failed: bool) {
        fetch.has_failed.set(fetch.has_failed.get() || has_failed);
        fetch.left.set(fetch.left.get().saturating_sub(1));
        if fetch.is_over() {
            self.woken.borrow_mut().push(fetch.task);
        }
    }

    fn wake_waiting(&self) {
        self.woken.borrow_mut().append(&mut self.waiting.borrow_mut());
    }
}

impl Shelf {
    fn can_take(&self) -> bool {
        self.is_up.get() && self.lanes.borrow().iter().all(|lane| lane.sent.borrow().len() < UNDER_WAY_MAX)
    }
}

/// Slots raised in a store ahead of a statement. Dropped, nothing was sent.
pub struct Ticket {
    stores: Rc<Stores>,
    slots: Vec<Slot>,
}

impl Ticket {
    pub fn add(&mut self, slots: &[Slot]) {
        for slot in slots {
            if !self.slots.contains(slot) {
                self.stores.raise(*slot);
                self.slots.push(*slot);
            }
        }
    }

    /// Whether the store knows of all, or all others have stopped to rely on it.
    pub fn is_ready(&self, now_ms: u64) -> bool {
        self.stores.set_now(now_ms);
        self.slots.iter().all(|slot| self.stores.is_raised(*slot))
    }

    pub fn into_slots(mut self) -> Vec<Slot> {
        std::mem::take(&mut self.slots)
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        for slot in std::mem::take(&mut self.slots) {
            self.stores.settle(slot, false);
        }
    }
}
