//! The context of the control thread: the state that all threads share, and the bells by which its tasks wake each other.

use crate::control::look_waits::LookPlaceQueue;
use crate::runtime::mail::RoleCheckReason;
use crate::runtime::pool::ConnPool;
use crate::runtime::shared::{SharedState, WorkerId, WorkerMessage};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::Notify;
use weir_failover::FailoverEvent;
use weir_failover::cluster::ClusterView;
use weir_failover::commit_outcome::PromotedStandby;
use weir_session::metrics::{WorkerCounter, WorkerCounters};

/// A thing about which tasks are woken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WakeSubject {
    /// Roles of nodes are to be asked.
    Roles,
    /// Something happened that decides about failover.
    Failover,
    /// Somebody needs a WAL position, or the view is another one.
    Positions,
    /// A connection to a node that was given up is closed.
    Parted,
    /// Something of this database has changed.
    Database(Arc<str>),
    /// Agents beside servers have something new to tell.
    Agents,
    /// Listening sockets are to be closed.
    Doors,
}

type Bells = Rc<RefCell<Vec<(WakeSubject, Rc<Notify>)>>>;

/// Wakes one task. A ring while nobody listens is kept, once.
pub struct TaskBell {
    notify: Rc<Notify>,
    all: Bells,
}

impl TaskBell {
    /// Waits for the next ring. Cancel safe.
    pub async fn rung(&self) {
        self.notify.notified().await;
    }
}

impl Drop for TaskBell {
    fn drop(&mut self) {
        self.all.borrow_mut().retain(|(_, notify)| !Rc::ptr_eq(notify, &self.notify));
    }
}

/// See the module.
pub struct ControlContext {
    pub(crate) shared: Arc<SharedState>,
    bells: Bells,
    /// The view as it will be published next; see `cluster_view`.
    pub(crate) view: RefCell<ClusterView>,
    /// The events for `failover`, the oldest first.
    pub(crate) facts: RefCell<VecDeque<FailoverEvent>>,
    /// Why the roles of nodes are to be asked before the time, if they are.
    pub(crate) nudged: Cell<Option<RoleCheckReason>>,
    /// A node is being made anew.
    pub(crate) recovers: Cell<bool>,
    /// The standby that Weir has promoted last, before it takes writes.
    pub promoted: Cell<Option<PromotedStandby>>,
    /// Places for looks at catalogs.
    pub(crate) look_places: Rc<LookPlaceQueue>,
}

impl ControlContext {
    pub fn new(shared: Arc<SharedState>) -> Rc<ControlContext> {
        let view = RefCell::new(ClusterView::clone(&shared.cluster.view.load()));
        Rc::new(ControlContext {
            shared,
            bells: Bells::default(),
            view,
            facts: RefCell::default(),
            nudged: Cell::new(None),
            recovers: Cell::new(false),
            promoted: Cell::new(None),
            look_places: Rc::default(),
        })
    }

    /// A bell that rings about this subject as long as it is held.
    pub fn bell(&self, subject: WakeSubject) -> TaskBell {
        let notify = Rc::new(Notify::new());
        self.bells.borrow_mut().push((subject, notify.clone()));
        TaskBell { notify, all: self.bells.clone() }
    }

    /// Wakes those whom the subject concerns.
    pub fn ring(&self, subject: &WakeSubject) {
        self.bells.borrow().iter().filter(|(of, _)| of == subject).for_each(|(_, notify)| notify.notify_one());
    }

    /// Wakes all.
    pub fn ring_all(&self) {
        self.bells.borrow().iter().for_each(|(_, notify)| notify.notify_one());
    }

    /// Has the roles of all nodes asked now.
    pub fn request_role_check(&self, why: RoleCheckReason) {
        self.nudged.set(self.nudged.get().or(Some(why)));
        self.ring(&WakeSubject::Roles);
        // Neither tells `failover` something that it did not know.
        if !matches!(why, RoleCheckReason::Governed | RoleCheckReason::LoginLate) {
            self.tell(FailoverEvent::Doubted);
        }
    }

    /// Tells `failover` something.
    pub fn tell(&self, event: FailoverEvent) {
        let mut facts = self.facts.borrow_mut();
        // Many sessions lose connections at once, and all say the same.
        if !facts.contains(&event) {
            facts.push_back(event);
        }
        drop(facts);
        self.ring(&WakeSubject::Failover);
    }

    /// Wakes a task of a worker.
    pub fn wake(&self, (worker, task): (WorkerId, u32)) {
        if let Some(mailbox) = self.shared.mailboxes.get(usize::from(worker)) {
            mailbox.send(WorkerMessage::Wake(task));
        }
    }

    /// Wakes sessions that wait for a position: more is known.
    pub fn wake_waiters(&self) {
        self.shared.positions.take_waiters(|waiter| self.wake(waiter));
    }

    /// Somebody needs to know who covers this round.
    pub fn want(&self, round: u64) {
        if self.shared.positions.want(round) {
            self.ring(&WakeSubject::Positions);
        }
    }

    /// Has the connections of these pools closed, each after its use.
    pub fn renew(&self, pools: &[Arc<ConnPool>]) {
        for conn in pools.iter().flat_map(|pool| pool.doom()) {
            // Only the event loop it is in can let go of it.
            self.shared.mailboxes[usize::from(conn.transport.home)].send(WorkerMessage::Close(conn));
        }
    }

    /// This thread's counters.
    fn counters(&self) -> Option<&WorkerCounters> {
        self.shared.counters.last()
    }

    pub fn count(&self, metric: WorkerCounter) {
        if let Some(counters) = self.counters() {
            counters.count(metric);
        }
    }

    /// A time as milliseconds since the start of the proxy.
    pub fn millis(&self, at: Instant) -> u64 {
        at.saturating_duration_since(self.shared.begun).as_millis() as u64
    }

    /// The same in microseconds.
    pub fn micros(&self, at: Instant) -> u64 {
        at.saturating_duration_since(self.shared.begun).as_micros() as u64
    }
}
