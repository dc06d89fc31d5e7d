//! The mailbox of the control thread: workers and the supervisor leave orders there and never wait.

use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use tokio::sync::{Notify, oneshot};
use weir_failover::{OperatorRequest, ServerConnEnd};
use weir_session::catalogs::KnownDatabase;
pub use weir_session::host::RoleCheckReason;

/// An order to the control thread.
#[derive(Clone)]
pub enum ControlOrder {
    /// Ask the nodes for their roles now.
    Look(RoleCheckReason),
    /// A connection of a client's session to this node ended without being asked to.
    LinkDied(u16, ServerConnEnd),
    /// A connection to a node that was given up is closed.
    Parted,
    /// Somebody needs a WAL position.
    Sample,
    /// Somebody waits for what the servers say: they are looked at soon.
    Doubt,
    /// Look after what is known of a database.
    Watch(Arc<KnownDatabase>),
    /// Take in the log of a database.
    Follow(Arc<KnownDatabase>),
    /// Something of a database has changed, or it is to be left: its task looks again.
    Changed(Arc<KnownDatabase>),
    /// Another process accepts those who come from now on.
    CloseListeners,
    /// No worker is left.
    End,
}

impl ControlOrder {
    /// True if an order that waits already brings about what this one asks for.
    fn is_met_by(&self, waiting: &ControlOrder) -> bool {
        match (self, waiting) {
            (ControlOrder::Look(_), ControlOrder::Look(_))
            | (ControlOrder::Parted, ControlOrder::Parted)
            | (ControlOrder::Sample, ControlOrder::Sample)
            | (ControlOrder::Doubt, ControlOrder::Doubt)
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

/// A wish of an operator, and the way for its answer.
pub struct PendingOperatorRequest {
    pub(crate) request: OperatorRequest,
    pub(crate) answer: oneshot::Sender<Result<(), String>>,
}

/// The way to the control thread from all others.
#[derive(Default)]
pub struct ControlMail {
    /// The operators' wishes for the nodes. Each is answered, so none is merged with another.
    wishes: Mutex<Vec<PendingOperatorRequest>>,
    /// An order that one of these meets is not added, so that there are at most a few for each database.
    orders: Mutex<Vec<ControlOrder>>,
    bell: Notify,
    /// When the thread last gave a sign of life, in milliseconds since the start of the proxy: one that is stuck does not.
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

    /// Asks for something on behalf of an operator. The answer comes when it is done, or refused; none comes if the proxy ends.
    pub fn operate(&self, request: OperatorRequest) -> oneshot::Receiver<Result<(), String>> {
        let (answer, receiver) = oneshot::channel();
        self.wishes.lock().push(PendingOperatorRequest { request, answer });
        self.bell.notify_one();
        receiver
    }

    pub fn has_wishes(&self) -> bool {
        !self.wishes.lock().is_empty()
    }

    /// Takes the wishes of operators, the oldest first.
    pub fn take_wishes(&self) -> Vec<PendingOperatorRequest> {
        std::mem::take(&mut *self.wishes.lock())
    }

    /// All orders, the oldest first.
    pub fn take(&self) -> Vec<ControlOrder> {
        std::mem::take(&mut *self.orders.lock())
    }

    /// Waits for an order that has come since the last call. Cancel safe.
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
