//! Context of the control thread, and the bells by which its tasks wake each other.

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

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WakeSubject {
    /// Roles of nodes must be asked.
    Roles,
    /// News for failover.
    Failover,
    /// A WAL position is needed, or the view has changed.
    Positions,
    /// A connection to a given-up node is closed.
    Parted,
    Database(Arc<str>),
    Agents,
    /// Listening sockets must be closed.
    Doors,
}

type Bells = Rc<RefCell<Vec<(WakeSubject, Rc<Notify>)>>>;

/// Wakes one task; keeps one ring without a listener.
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

pub struct ControlContext {
    pub(crate) shared: Arc<SharedState>,
    bells: Bells,
    /// View to publish next; see `cluster_view`.
    pub(crate) view: RefCell<ClusterView>,
    /// Events for `failover`, oldest first.
    pub(crate) facts: RefCell<VecDeque<FailoverEvent>>,
    /// Reason to ask for roles ahead of time.
    pub(crate) nudged: Cell<Option<RoleCheckReason>>,
    /// True during an online recovery.
    pub(crate) recovers: Cell<bool>,
    /// Standby that Weir promoted last, before it takes writes.
    pub promoted: Cell<Option<PromotedStandby>>,
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

    pub fn bell(&self, subject: WakeSubject) -> TaskBell {
        let notify = Rc::new(Notify::new());
        self.bells.borrow_mut().push((subject, notify.clone()));
        TaskBell { notify, all: self.bells.clone() }
    }

    pub fn ring(&self, subject: &WakeSubject) {
        self.bells.borrow().iter().filter(|(of, _)| of == subject).for_each(|(_, notify)| notify.notify_one());
    }

    pub fn ring_all(&self) {
        self.bells.borrow().iter().for_each(|(_, notify)| notify.notify_one());
    }

    /// Has the roles of all nodes asked now.
    pub fn request_role_check(&self, why: RoleCheckReason) {
        self.nudged.set(self.nudged.get().or(Some(why)));
        self.ring(&WakeSubject::Roles);
        // Neither is news to `failover`.
        if !matches!(why, RoleCheckReason::Governed | RoleCheckReason::LoginLate) {
            self.tell(FailoverEvent::Doubted);
        }
    }

    pub fn tell(&self, event: FailoverEvent) {
        let mut facts = self.facts.borrow_mut();
        // Many sessions lose connections at once, and report the same.
        if !facts.contains(&event) {
            facts.push_back(event);
        }
        drop(facts);
        self.ring(&WakeSubject::Failover);
    }

    pub fn wake(&self, (worker, task): (WorkerId, u32)) {
        if let Some(mailbox) = self.shared.mailboxes.get(usize::from(worker)) {
            mailbox.send(WorkerMessage::Wake(task));
        }
    }

    pub fn wake_waiters(&self) {
        self.shared.positions.take_waiters(|waiter| self.wake(waiter));
    }

    /// Asks which nodes cover a round.
    pub fn want(&self, round: u64) {
        if self.shared.positions.want(round) {
            self.ring(&WakeSubject::Positions);
        }
    }

    /// Closes server connections, each after its use.
    pub fn renew(&self, pools: &[Arc<ConnPool>]) {
        for conn in pools.iter().flat_map(|pool| pool.doom()) {
            // Only its own event loop can release a connection.
            self.shared.mailboxes[usize::from(conn.transport.home)].send(WorkerMessage::Close(conn));
        }
    }

    fn counters(&self) -> Option<&WorkerCounters> {
        self.shared.counters.last()
    }

    pub fn count(&self, metric: WorkerCounter) {
        if let Some(counters) = self.counters() {
            counters.count(metric);
        }
    }

    /// Milliseconds since the start of the proxy.
    pub fn millis(&self, at: Instant) -> u64 {
        at.saturating_duration_since(self.shared.begun).as_millis() as u64
    }

    /// Microseconds since the start of the proxy.
    pub fn micros(&self, at: Instant) -> u64 {
        at.saturating_duration_since(self.shared.begun).as_micros() as u64
    }
}
