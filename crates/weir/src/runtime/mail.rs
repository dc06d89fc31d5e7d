//! The mailbox of the control thread. Senders never wait.

use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use tokio::sync::{Notify, oneshot};
use weir_failover::{OperatorRequest, ServerConnEnd};
use weir_session::catalogs::KnownDatabase;
pub use weir_session::host::RoleCheckReason;

#[derive(Clone)]
pub enum ControlOrder {
    Look(RoleCheckReason),
    /// A session's connection to this node ended unexpectedly.
    LinkDied(u16, ServerConnEnd),
    /// A connection to a given-up node is closed.
    Parted,
    /// A WAL position is needed.
    Sample,
    /// Rights or state of the group changed.
    Group,
    /// Somebody waits for what the servers say: they are looked at soon.
    Doubt,
    Watch(Arc<KnownDatabase>),
    Follow(Arc<KnownDatabase>),
    /// A database has changed, or is to be left: its task checks again.
    Changed(Arc<KnownDatabase>),
    /// Another process accepts clients from now on.
    CloseListeners,
    End,
}

impl ControlOrder {
    fn is_met_by(&self, waiting: &ControlOrder) -> bool {
        match (self, waiting) {
            (ControlOrder::Look(_), ControlOrder::Look(_))
            | (ControlOrder::Parted, ControlOrder::Parted)
            | (ControlOrder::Sample, ControlOrder::Sample)
            | (ControlOrder::Doubt, ControlOrder::Doubt)
            | (ControlOrder::Group, ControlOrder::Group)
            | (ControlOrder::CloseListeners, ControlOrder::CloseListeners)
            | (ControlOrder::End, ControlOrder::End) => true,
            (ControlOrder::LinkDied(own, how), ControlOrder::LinkDied(other, as_well)) => own == other && how == as_well,
            (ControlOrder::Watch(own), ControlOrder::Watch(other))
            | (ControlOrder::Follow(own), ControlOrder::Follow(other))
            | (ControlOrder::Changed(own), ControlOrder::Changed(other)) => Arc::ptr_eq(own, other),
            (
                ControlOrder::Look(_)
                | ControlOrder::LinkDied(..)
                | ControlOrder::Parted
                | ControlOrder::Sample
                | ControlOrder::Doubt
                | ControlOrder::Group
                | ControlOrder::Watch(_)
                | ControlOrder::Follow(_)
                | ControlOrder::Changed(_)
                | ControlOrder::CloseListeners
                | ControlOrder::End,
                _,
            ) => false,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestOrigin {
    /// An operator asked here.
    Here,
    /// Another member of the group passed it on to its leader.
    Member,
}

pub struct PendingOperatorRequest {
    pub(crate) request: OperatorRequest,
    pub(crate) origin: RequestOrigin,
    pub(crate) answer: oneshot::Sender<Result<(), String>>,
}

#[derive(Default)]
pub struct ControlMail {
    /// Requests to nodes. Each is answered, so none are merged.
    wishes: Mutex<Vec<PendingOperatorRequest>>,
    /// Covered orders are not added: at most a few per database.
    orders: Mutex<Vec<ControlOrder>>,
    bell: Notify,
    /// The thread's last heartbeat, in ms since the start of the proxy.
    pub(crate) beat_ms: AtomicU64,
}

impl ControlMail {
    /// Never waits.
    pub fn send(&self, order: ControlOrder) {
        let mut orders = self.orders.lock();
        if !orders.iter().any(|waiting| order.is_met_by(waiting)) {
            orders.push(order);
        }
        drop(orders);
        self.bell.notify_one();
    }

    /// Sends a request. No answer comes if the proxy ends.
    pub fn operate(&self, request: OperatorRequest, origin: RequestOrigin) -> oneshot::Receiver<Result<(), String>> {
        let (answer, receiver) = oneshot::channel();
        self.wishes.lock().push(PendingOperatorRequest { request, origin, answer });
        self.bell.notify_one();
        receiver
    }

    pub fn has_wishes(&self) -> bool {
        !self.wishes.lock().is_empty()
    }

    /// Oldest first.
    pub fn take_wishes(&self) -> Vec<PendingOperatorRequest> {
        std::mem::take(&mut *self.wishes.lock())
    }

    /// Oldest first.
    pub fn take(&self) -> Vec<ControlOrder> {
        std::mem::take(&mut *self.orders.lock())
    }

    /// Waits for an order since the last call. Cancel safe.
    pub async fn arrived(&self) {
        self.bell.notified().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_session::catalogs::DatabaseCatalogs;

    #[test]
    fn orders_that_ask_for_the_same_wait_once() {
        let (mail, catalogs) = (ControlMail::default(), DatabaseCatalogs::default());
        let (one, other) = (
            catalogs.database(&"one".into(), std::time::Instant::now()),
            catalogs.database(&"other".into(), std::time::Instant::now()),
        );
        for _ in 0..3 {
            mail.send(ControlOrder::Look(RoleCheckReason::LoginFailed));
            mail.send(ControlOrder::Look(RoleCheckReason::ConnectionLost));
            mail.send(ControlOrder::Sample);
            mail.send(ControlOrder::Changed(one.clone()));
            mail.send(ControlOrder::Changed(other.clone()));
            mail.send(ControlOrder::Watch(one.clone()));
        }
        let orders = mail.take();
        assert_eq!(orders.len(), 5);
        assert!(matches!(orders[0], ControlOrder::Look(RoleCheckReason::LoginFailed)), "the first reason is kept");
        assert!(mail.take().is_empty());
    }
}
