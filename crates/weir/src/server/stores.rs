//! A worker's side of the stores answers are kept in: what is asked of them, who waits for it, and what this worker's writers owe them.
//! Decisions are `policy::cache::Holds`'; the bytes are moved by `shelf`, a task for each host.
//!
//! A key is at one host (`Ring`). Stamps of what is more than a table are at every host, so that an answer needs few of them.

mod common;
mod fetching;
mod lanes;

pub use common::{Common, Errand, FIRST_WORKER, LEASE_MS, Looked, MARGIN_MS};
pub use fetching::{Fetch, Found, digest_of};
pub use lanes::Lane;

use fetching::Question;

use crate::io::reactor::TaskId;
use foldhash::fast::RandomState;
use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::hash::BuildHasher;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use weir_policy::cache::{
    Debts, Deps, Doorkeeper, FOLLOWER, Found as Stood, Holds, Host, Kept, Loops, Member, Order, PAST, Ring, Shards, Shown, Slot,
    Stamp, hosts,
};
use weir_policy::config::{CacheConfig, Method, StoreConfig};
use weir_wire::store::{Ask, Dialect, Expect, Told, Value, is_moved};

/// Longest value that is read. Answers that come near it are not stored.
pub const VALUE_BYTES_MAX: usize = 8 << 20;

/// The time of what is not written yet.
const UNSENT_MS: u64 = u64::MAX;

/// Questions under way at a host. With more of them the store is too slow to be of use: those that come are not asked.
const UNDER_WAY_MAX: usize = 20_000;

/// Bytes that wait for a connection to a host to take them, beyond which no answer is added: it is slower than what it is given. What
/// writers owe it is small, and waits with them.
const UNSENT_BYTES_MAX: usize = 16 << 20;

/// Life of a stamp after the last change: then the marks of a Weir that died are gone, too. To lose a stamp is safe.
const STAMP_SECONDS: u64 = 3600;

/// What is stored when a host is greeted, to see that it takes it: as much as a stamp with a few marks.
const TRIAL_BYTES: usize = 64;
const TRIAL_SECONDS: u64 = 60;

/// Keys that are looked at for one at a certain master.
const TRIALS_MAX: u32 = 1000;

/// The digest of a key, under which its answer is kept.
pub type Digest = [u8; 32];

/// A reply for whom.
enum Purpose {
    /// Answers that sessions want.
    Answers(Question),
    /// What a hold is waiting for.
    Hold(Whose, Order),
    /// An answer was stored.
    Put,
    /// A stamp was taken away.
    Gone,
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
    /// When it went to the socket; `UNSENT_MS` until then.
    pub at_ms: u64,
    purpose: Purpose,
}

/// Whose writes a host is told of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Whose {
    /// Those of this worker's sessions.
    Ours,
    /// Nobody's any more: what has changed for good, as this Weir has found; on the first worker.
    Past,
    /// Those past us, as the primary's log tells; on the first worker.
    Others,
}

const WHOSE: [Whose; 3] = [Whose::Ours, Whose::Past, Whose::Others];

/// What a host is to be told of somebody's writes.
struct Account {
    holds: RefCell<Holds>,
    /// What was looked at, for the swap that follows.
    looked: RefCell<HashMap<Slot, Value>>,
    loops: RefCell<Loops>,
}

impl Account {
    fn new(member: Member) -> Account {
        Account { holds: RefCell::new(Holds::new(member)), looked: RefCell::default(), loops: RefCell::default() }
    }
}

/// One host.
pub struct Shelf {
    pub host: Host,
    lanes: RefCell<Rc<[Lane]>>,
    /// Of Redis Cluster.
    shards: RefCell<Option<Shards>>,
    pub task: Cell<TaskId>,
    is_up: Cell<bool>,
    /// Its task has connections.
    pub is_attended: Cell<bool>,
    ours: Account,
    past: Account,
    others: Account,
    /// Reads that nobody has asked it for yet.
    wanted: RefCell<VecDeque<Rc<Fetch>>>,
    /// Answers are asked for.
    is_asked: Cell<bool>,
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
    /// Answers asked for in one question.
    together_max: usize,
    /// Time in milliseconds since the start of the proxy, as the tasks of the shelves last knew it.
    now_ms: Cell<u64>,
    /// Since when the worker is about to end.
    leaving_ms: Cell<Option<u64>>,
    /// Tasks of shelves that have something to write, and of sessions whose wait is over.
    woken: RefCell<Vec<TaskId>>,
    /// Sessions that wait for their marks.
    waiting: RefCell<Vec<TaskId>>,
    /// Which questions are worth an exchange.
    pub doorkeeper: RefCell<Doorkeeper>,
    hasher: RandomState,
    /// Changes nobody waits for, until the store knows of them.
    changes: RefCell<Vec<Ticket>>,
    /// The same of what Weirs that are gone may have changed: until nothing runs any more that they left.
    lost: RefCell<Vec<Ticket>>,
    /// Whether it is on this worker that the primary's log is taken to the hosts (`books`).
    follows: bool,
    /// Writes that the log has told of.
    written: Cell<u64>,
    /// Answers that were given out, and the rounds that show what they show.
    shown: RefCell<Shown<Digest>>,
}

impl Stores {
    /// `None` if answers are kept in our memory, or nowhere.
    pub fn new(worker: u8, config: &CacheConfig, common: &Arc<Common>, wide: Box<dyn Fn(Slot) -> bool>) -> Option<Rc<Stores>> {
        let store = config.store()?;
        // The configuration was checked.
        let hosts = hosts(&store.hosts, store.port).ok()?;
        let shelf = |host: &Host| Shelf {
            host: host.clone(),
            lanes: RefCell::new(Rc::new([Lane::default()])),
            shards: RefCell::default(),
            task: Cell::new(crate::io::reactor::NO_TASK),
            is_up: Cell::new(false),
            is_attended: Cell::new(false),
            ours: Account::new(common.member(worker)),
            past: Account::new(common.member(PAST)),
            others: Account::new(common.member(FOLLOWER)),
            wanted: RefCell::default(),
            is_asked: Cell::new(false),
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
            together_max: fetching::together_max(config.answer_bytes_max),
            now_ms: Cell::new(0),
            leaving_ms: Cell::new(None),
            woken: RefCell::default(),
            waiting: RefCell::default(),
            doorkeeper: RefCell::default(),
            hasher: RandomState::default(),
            changes: RefCell::default(),
            lost: RefCell::default(),
            follows: worker == FIRST_WORKER && config.follows_wal,
            written: Cell::new(0),
            shown: RefCell::default(),
        }))
    }

    fn slot_key(&self, slot: Slot) -> Vec<u8> {
        format!("{}:s:{slot}", self.namespace).into_bytes()
    }

    fn answer_key(&self, digest: &Digest) -> Vec<u8> {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut key = Vec::with_capacity(self.namespace.len() + 3 + 2 * digest.len());
        key.extend_from_slice(self.namespace.as_bytes());
        key.extend_from_slice(b":a:");
        key.extend(digest.iter().flat_map(|byte| [DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]));
        key
    }

    /// The hosts at which a slot's stamp stands.
    fn hosts_of(&self, slot: Slot) -> std::ops::Range<usize> {
        if self.shelves.len() == 1 || (self.wide)(slot) {
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

    /// By what the doorkeeper knows a key, and an answer is known again.
    pub fn hash_of(&self, bytes: &[u8]) -> u64 {
        self.hasher.hash_one(bytes)
    }

    pub fn set_now(&self, now_ms: u64) {
        self.now_ms.set(now_ms);
    }
}

/// Reading and storing answers; see `fetching`.
impl Stores {
    /// A stamp that is missing is made.
    pub fn missed(&self, slot: Slot) {
        for at in self.hosts_of(slot) {
            let order = self.shelves[at].ours.holds.borrow_mut().missed(slot, self.now_ms.get(), crate::random_word());
            self.order(at, Whose::Ours, order);
        }
    }

    /// The round that shows what an answer shows which is about to be given out: `next` for one that is seen here for the first time, since
    /// another Weir's rounds are not ours.
    pub fn round_of(&self, fetch: &Fetch, deps: &Deps, bytes: &[u8], next: u64) -> u64 {
        self.shown.borrow_mut().round_of(&fetch.digest, deps, self.hash_of(bytes), next)
    }

    /// Stores an answer. It does not matter when it gets there: it carries what it hangs on. Whether it is on its way.
    pub fn put(&self, digest: &Digest, kept: &Kept<'_>) -> bool {
        let (at, key) = (self.home_of(digest), self.answer_key(digest));
        let shelf = &self.shelves[at];
        let has_room = || shelf.lanes()[shelf.lane_of(&key)].unsent_bytes() < UNSENT_BYTES_MAX;
        let is_taken = shelf.can_take() && kept.bytes.len() + kept.key.len() < VALUE_BYTES_MAX / 2 && has_room();
        if is_taken {
            let bytes = kept.write();
            self.say(at, &key, Ask::Set { key: &key, bytes: &bytes, seconds: self.expire_seconds }, Purpose::Put);
        }
        is_taken
    }
}

/// What writers owe.
impl Stores {
    /// A writer is about to commit.
    pub fn raise(&self, slot: Slot) {
        self.raise_for(Whose::Ours, slot, 0);
    }

    /// It is known how that went.
    pub fn settle(&self, slot: Slot, is_changed: bool) {
        self.settle_for(Whose::Ours, slot, is_changed);
    }

    fn raise_for(&self, whose: Whose, slot: Slot, number: u64) {
        for at in self.hosts_of(slot) {
            let order = self.shelves[at].account(whose).holds.borrow_mut().raise_as(slot, number);
            self.order(at, whose, order);
            self.note_debts(at);
        }
    }

    fn settle_for(&self, whose: Whose, slot: Slot, is_changed: bool) {
        for at in self.hosts_of(slot) {
            let order = self.shelves[at].account(whose).holds.borrow_mut().settle(slot, is_changed);
            self.order(at, whose, order);
        }
    }

    /// Raises slots ahead of a statement; the task is woken when the store knows.
    pub fn ticket(self: &Rc<Stores>, slots: &[Slot]) -> Ticket {
        self.ticket_for(Whose::Ours, slots)
    }

    fn ticket_for(self: &Rc<Stores>, whose: Whose, slots: &[Slot]) -> Ticket {
        let mut ticket = Ticket { stores: self.clone(), whose, slots: Vec::new() };
        ticket.add(slots);
        ticket
    }

    fn is_raised(&self, whose: Whose, slot: Slot) -> bool {
        self.hosts_of(slot).all(|at| {
            let shelf = &self.shelves[at];
            match self.is_up(at) {
                true => shelf.account(whose).holds.borrow().is_raised(slot),
                false => {
                    // It may be out of reach only now, and for a moment.
                    self.note_debts(at);
                    self.common.is_granted(at, self.now_ms.get())
                }
            }
        })
    }

    /// A task that waits for marks.
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
                    let ticket = self.ticket_for(Whose::Past, &slots);
                    self.changes.borrow_mut().push(ticket);
                }
                Errand::Lost(slots) => {
                    let ticket = self.ticket(&slots);
                    self.lost.borrow_mut().push(ticket);
                }
            }
        }
        // A host that is out of reach hears of it first of all when it is back.
        let is_known = |ticket: &mut Ticket| ticket.is_known();
        self.end_changes(&self.changes, is_known);
        if !self.common.has_orphans() {
            self.end_changes(&self.lost, is_known);
        }
    }

    fn end_changes(&self, changes: &RefCell<Vec<Ticket>>, is_over: impl Fn(&mut Ticket) -> bool) {
        let told: Vec<Ticket> = changes.borrow_mut().extract_if(.., is_over).collect();
        for ticket in told {
            ticket.change();
            self.common.changes.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// Tells, of a host that is out of reach, that there are writers it should know of: other Weirs, past the store (`fence`), of our own
    /// writers, and this Weir's workers of what the log tells. The same when it knows.
    fn note_debts(&self, at: usize) {
        let (shelf, is_up) = (&self.shelves[at], self.is_up(at));
        let debts = shelf.debts(!is_up);
        if is_up && !debts.of_ours {
            self.common.wish(self.worker, at, false);
        } else if !is_up && debts.of_ours {
            self.common.wish(self.worker, at, true);
        }
        if self.follows && (!is_up || !debts.of_others) {
            self.common.lag(at, !is_up);
        }
    }
}

/// What others write past us, as the primary's log tells; on the first worker.
impl Stores {
    /// The number of the next write that the log tells of.
    pub fn next_write(&self) -> u64 {
        self.written.set(self.written.get() + 1);
        self.written.get()
    }

    /// It may not be visible yet. `number`: of this write.
    pub fn follow(&self, slot: Slot, number: u64) {
        self.raise_for(Whose::Others, slot, number);
    }

    /// It is.
    pub fn unfollow(&self, slot: Slot) {
        self.settle_for(Whose::Others, slot, true);
    }

    /// Nobody will say how that ended which was raised: it counts as changed.
    pub fn unfollow_all(&self) {
        for (at, shelf) in self.shelves.iter().enumerate() {
            let orders = shelf.others.holds.borrow_mut().settle_all();
            orders.into_iter().for_each(|order| self.order(at, Whose::Others, Some(order)));
        }
    }

    /// From hosts that are out of reach nothing is given out until they have been told: other workers may reach them. To be called before
    /// what follows from `is_followed` is published.
    pub fn note_lags(&self) {
        (0..self.shelves.len()).for_each(|at| self.note_debts(at));
    }

    /// Whether nobody trusts what stood there when this was raised, at any host that is within reach.
    pub fn is_followed(&self, slot: Slot, number: u64) -> bool {
        self.hosts_of(slot).all(|at| !self.is_up(at) || self.shelves[at].others.holds.borrow().is_told_of(slot, number))
    }
}

/// The worker's end.
impl Stores {
    /// All sessions are over. Whether hosts are still to hear what they have left; that takes as long as one answer may at most.
    pub fn leave(self: &Rc<Self>) -> bool {
        if self.leaving_ms.get().is_none() {
            self.leaving_ms.set(Some(self.now_ms.get()));
            self.woken.borrow_mut().extend(self.shelves.iter().map(|shelf| shelf.task.get()));
            self.unfollow_all();
        }
        // The last of other threads' errands, and those that waited to be known: nobody comes back to them.
        self.run_errands();
        self.end_changes(&self.changes, |_| true);
        // What Weirs that are gone have left may be committed when nobody is here who would tell it: those marks stay.
        self.lost.take().into_iter().for_each(|ticket| drop(ticket.into_slots()));
        self.shelves.iter().any(|shelf| shelf.is_attended.get())
    }

    pub fn is_leaving(&self) -> bool {
        self.leaving_ms.get().is_some()
    }

    /// Whether a host has heard all that. Marks that nobody will take away go last: they would keep others' answers out for an hour.
    pub fn has_left(&self, at: usize) -> bool {
        let Some(since_ms) = self.leaving_ms.get() else { return false };
        let shelf = &self.shelves[at];
        if !shelf.is_up.get() || self.now_ms.get() > since_ms + self.timeout_ms {
            return true;
        }
        if WHOSE.iter().any(|whose| shelf.account(*whose).holds.borrow().is_settling()) {
            return false;
        }
        for whose in WHOSE {
            let left = shelf.account(whose).holds.borrow_mut().leave();
            for key in left.into_iter().map(|slot| self.slot_key(slot)) {
                self.say(at, &key, Ask::Delete { key: &key }, Purpose::Gone);
            }
        }
        shelf.lanes().iter().all(|lane| lane.sent.borrow().is_empty())
    }
}

/// What the tasks of the shelves do.
impl Stores {
    fn greet(&self, at: usize) {
        let StoreConfig { user, password, database, .. } = &self.config;
        let bytes = [b'0'; TRIAL_BYTES];
        for lane in 0..self.shelves[at].lanes().len() {
            let hello = |ask: Ask<'_>| self.say_to(at, lane, ask, Expect::Done, Purpose::Hello);
            if self.dialect == Dialect::Memcached || !password.is_empty() {
                hello(Ask::LogIn { user: user.as_bytes(), password: password.as_bytes() });
            }
            if self.dialect == Dialect::Redis && !self.shelves[at].is_cluster() {
                hello(Ask::Select(*database));
            }
            // One that answers but takes no marks would come and go with every write.
            if let Some(key) = self.trial_key(at, lane) {
                hello(Ask::Set { key: &key, bytes: &bytes, seconds: TRIAL_SECONDS });
                hello(Ask::Append { key: &key, bytes: &bytes });
                // One without marks could not swap.
                self.look_at(at, key, Purpose::Hello);
            }
        }
    }

    /// A key that is reached by this connection. `None` if luck will have it so, with a master of next to no keys.
    fn trial_key(&self, at: usize, lane: usize) -> Option<Vec<u8>> {
        let mut keys = (0..TRIALS_MAX).map(|number| format!("{}:t:{}:{number}", self.namespace, self.worker).into_bytes());
        keys.find(|key| self.shelves[at].lane_of(key) == lane)
    }

    /// The host has greeted back. First of all it is told what it was not.
    fn resume(&self, at: usize) {
        let shelf = &self.shelves[at];
        shelf.is_up.set(true);
        for whose in WHOSE {
            let orders = shelf.account(whose).holds.borrow_mut().resume(self.now_ms.get());
            orders.into_iter().for_each(|order| self.order(at, whose, Some(order)));
        }
    }

    /// The connection is gone, with all that was under way.
    pub fn lose(&self, at: usize) {
        let shelf = &self.shelves[at];
        shelf.is_up.set(false);
        for lane in shelf.lanes().iter() {
            lane.out.borrow_mut().clear();
            for sent in lane.sent.take() {
                if let Purpose::Answers(question) = sent.purpose {
                    self.unanswered(at, &question);
                }
            }
        }
        self.give_up_wanted(at);
        for whose in WHOSE {
            let account = shelf.account(whose);
            account.looked.borrow_mut().clear();
            account.loops.take();
            account.holds.borrow_mut().lose();
        }
        self.note_debts(at);
        self.wake_waiting();
    }

    pub fn is_up(&self, at: usize) -> bool {
        self.shelves[at].is_up.get() && self.shelves[at].is_sure(self.now_ms.get())
    }

    /// Whether the host is there and has been told all it was not while it was out of reach.
    pub fn serves(&self, at: usize) -> bool {
        let shelf = &self.shelves[at];
        self.is_up(at) && !shelf.debts(false).is_any()
    }

    /// What is due by now.
    pub fn tick(self: &Rc<Stores>, at: usize) {
        if at == 0 {
            self.run_errands();
        }
        if self.is_up(at) {
            for whose in WHOSE {
                let due = self.shelves[at].account(whose).holds.borrow_mut().due(self.now_ms.get());
                due.into_iter().for_each(|order| self.order(at, whose, Some(order)));
            }
        }
        self.expire_wanted(at);
        self.confirm(at);
        self.note_debts(at);
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
                if let Purpose::Answers(question) = purpose {
                    self.unanswered(at, question);
                }
                if shelf.is_cluster() && is_moved(text) {
                    return Heard::Moved;
                }
                return Heard::Refused(text.clone());
            }
            (told, _) => *told == Told::Done,
        };
        match (sent.purpose, told) {
            (Purpose::Answers(question), Told::Values(values)) => self.answered(at, &lanes[lane], question, values),
            (Purpose::Hold(whose, order), told) => {
                let account = shelf.account(whose);
                let next = self.heard(account, &lanes[lane], &order, told, is_done);
                if account.loops.borrow_mut().is_endless(&order, next.as_ref(), is_done) {
                    return Heard::Refused("it contradicts itself about what it keeps".to_string());
                }
                self.order(at, whose, next);
                self.note_debts(at);
                self.wake_waiting();
            }
            (Purpose::Hello, Told::Values(values))
                if self.dialect == Dialect::Memcached && values.iter().flatten().any(|value| value.mark == 0) =>
            {
                return Heard::Refused("it runs without CAS".to_string());
            }
            (Purpose::Hello, Told::NotDone) => return Heard::Refused("it does not keep what it has just taken".to_string()),
            // The last of the greetings.
            (Purpose::Hello, _) if lanes.iter().all(|lane| lane.sent.borrow().is_empty()) => self.resume(at),
            (Purpose::Map, told) => return self.confirmed(at, lane, sent.at_ms, &told),
            (Purpose::Answers(question), _) => self.unanswered(at, &question),
            (Purpose::Put | Purpose::Gone | Purpose::Hello, _) => {}
        }
        Heard::Fine
    }

    /// What a hold makes of a reply.
    fn heard(&self, account: &Account, lane: &Lane, order: &Order, told: Told, is_done: bool) -> Option<Order> {
        let (now_ms, fresh) = (self.now_ms.get(), crate::random_word());
        let mut holds = account.holds.borrow_mut();
        match order {
            Order::Append(slot, _, number) => holds.appended(*slot, *number, is_done, now_ms, fresh),
            Order::Make(slot, stamp) => holds.made(*slot, stamp, is_done, now_ms),
            Order::Swap(slot, _) => holds.swapped(*slot, is_done, now_ms),
            Order::Look(slot) => {
                let value = if let Told::Values(values) = told { values.into_iter().next().flatten() } else { None };
                let found = match &value {
                    None => Stood::Nothing,
                    Some(value) => Stamp::parse(&lane.untagged(value.clone()).bytes).map_or(Stood::Rubbish, Stood::Stamp),
                };
                if let Some(value) = value {
                    account.looked.borrow_mut().insert(*slot, value);
                }
                let next = holds.looked(*slot, found, now_ms, fresh);
                if !matches!(next, Some(Order::Swap(..))) {
                    account.looked.borrow_mut().remove(slot);
                }
                next
            }
        }
    }

    /// Tells a host what a hold wants told. To one that is out of reach it is said when it is back.
    fn order(&self, at: usize, whose: Whose, order: Option<Order>) {
        let Some(order) = order else { return };
        let shelf = &self.shelves[at];
        let account = shelf.account(whose);
        if !shelf.is_up.get() {
            return account.holds.borrow_mut().lose();
        }
        let (purpose, slot) = (Purpose::Hold(whose, order.clone()), order.slot());
        let key = self.slot_key(slot);
        let lanes = shelf.lanes();
        let lane = &lanes[shelf.lane_of(&key)];
        match order {
            Order::Append(_, mark, _) => self.say(at, &key, Ask::Append { key: &key, bytes: &mark.text() }, purpose),
            Order::Make(_, stamp) => {
                let bytes = lane.tagged(&stamp.text());
                self.say(at, &key, Ask::Add { key: &key, bytes: &bytes, seconds: STAMP_SECONDS }, purpose);
            }
            Order::Look(_) => self.look_at(at, key, purpose),
            Order::Swap(_, stamp) => {
                let Some(Value { bytes, mark }) = account.looked.borrow_mut().remove(&slot) else { return };
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
        self.dialect.write(ask, &mut self.shelves[at].lanes()[lane].out.borrow_mut());
        self.note_sent(at, lane, expect, purpose);
    }

    /// A reply to what was written will come.
    fn note_sent(&self, at: usize, lane: usize, expect: Expect, purpose: Purpose) {
        let shelf = &self.shelves[at];
        shelf.lanes()[lane].sent.borrow_mut().push_back(Sent { expect, at_ms: UNSENT_MS, purpose });
        self.woken.borrow_mut().push(shelf.task.get());
    }

    fn wake_waiting(&self) {
        self.woken.borrow_mut().append(&mut self.waiting.borrow_mut());
    }
}

impl Shelf {
    fn debts(&self, is_away: bool) -> Debts {
        let [mut ours, mut past, mut others] = WHOSE.map(|whose| self.account(whose).holds.borrow_mut());
        Debts::note(&mut ours, &mut past, &mut others, is_away)
    }

    fn account(&self, whose: Whose) -> &Account {
        match whose {
            Whose::Ours => &self.ours,
            Whose::Past => &self.past,
            Whose::Others => &self.others,
        }
    }
}

/// Slots raised in a store ahead of a statement. Dropped, nothing was sent.
pub struct Ticket {
    stores: Rc<Stores>,
    whose: Whose,
    slots: Vec<Slot>,
}

impl Ticket {
    pub fn add(&mut self, slots: &[Slot]) {
        for slot in slots {
            if !self.slots.contains(slot) {
                self.stores.raise_for(self.whose, *slot, 0);
                self.slots.push(*slot);
            }
        }
    }

    /// Whether the store knows of all, or all others have stopped to rely on it.
    pub fn is_ready(&self, now_ms: u64) -> bool {
        self.stores.set_now(now_ms);
        self.is_known()
    }

    fn is_known(&self) -> bool {
        self.slots.iter().all(|slot| self.stores.is_raised(self.whose, *slot))
    }

    /// These have changed.
    pub fn change(self) {
        let (stores, whose) = (self.stores.clone(), self.whose);
        self.into_slots().into_iter().for_each(|slot| stores.settle_for(whose, slot, true));
    }

    pub fn into_slots(mut self) -> Vec<Slot> {
        std::mem::take(&mut self.slots)
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        for slot in std::mem::take(&mut self.slots) {
            self.stores.settle_for(self.whose, slot, false);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With one host, which is there.
    fn stores(answer_bytes_max: usize) -> Rc<Stores> {
        let store = StoreConfig { hosts: "127.0.0.1".into(), port: 11211, ..StoreConfig::default() };
        let config = CacheConfig {
            enabled: true,
            method: Method::Memcached,
            memcached: store,
            answer_bytes_max,
            ..CacheConfig::default()
        };
        let stores = Stores::new(FIRST_WORKER, &config, &Common::new(), Box::new(|_| false)).unwrap();
        stores.shelves[0].is_up.set(true);
        stores
    }

    #[test]
    fn a_host_that_takes_its_time_is_given_no_more_answers_than_memory_should_hold() {
        let (stores, bytes) = (stores(1 << 20), vec![0; 1 << 20]);
        let put = || {
            let kept = Kept { took_us: 1, deps: Deps::of_pairs(vec![(1, 1)]), key: b"key", bytes: &bytes };
            stores.put(&digest_of(b"key"), &kept)
        };
        let count = (0..100).take_while(|_| put()).count();
        assert!(count > 1, "{count} answers");
        let lane = &stores.shelves[0].lanes()[0];
        let unsent = lane.out.borrow().len();
        assert!(unsent < UNSENT_BYTES_MAX + 2 * bytes.len(), "{unsent} bytes");
        // On its way, but not taken by the socket.
        lane.out.borrow_mut().clear();
        lane.note_written(unsent);
        assert!(!put());
        lane.note_written(0);
        assert!(put());
    }

    #[test]
    fn of_large_answers_fewer_are_asked_for_together() {
        for (answer_bytes_max, together) in [(1024, 64), (1 << 20, 32), (1 << 30, 1), (0, 64)] {
            assert_eq!(stores(answer_bytes_max).together_max, together, "answers of {answer_bytes_max} bytes");
        }
    }
}
