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
pub enum Order {
    /// Ask the nodes for their roles now.
    Look(RoleCheckReason),
    /// A connection of a client's session to this node ended without being asked to.
    LinkDied(u16, ServerConnEnd),
    /// A connection to a node that was given up is closed.
    Parted,
    /// Somebody needs a WAL position.
    Sample,
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

impl Order {
    /// True if an order that waits already brings about what this one asks for.
    fn is_met_by(&self, waiting: &Order) -> bool {
        match (self, waiting) {
            (Order::Look(_), Order::Look(_))
            | (Order::Parted, Order::Parted)
            | (Order::Sample, Order::Sample)
            | (Order::CloseListeners, Order::CloseListeners)
            | (Order::End, Order::End) => true,
            (Order::LinkDied(own, how), Order::LinkDied(other, as_well)) => own == other && how == as_well,
            (Order::Watch(own), Order::Watch(other))
            | (Order::Follow(own), Order::Follow(other))
            | (Order::Changed(own), Order::Changed(other)) => Arc::ptr_eq(own, other),
            (
                Order::Look(_)
                | Order::LinkDied(..)
                | Order::Parted
                | Order::Sample
                | Order::Watch(_)
                | Order::Follow(_)
                | Order::Changed(_)
                | Order::CloseListeners
                | Order::End,
                _,
            ) => false,
        }
    }
}

/// A wish of an operator, and the way for its answer.
pub struct Wish {
    pub(crate) request: OperatorRequest,
    pub(crate) answer: oneshot::Sender<Result<(), String>>,
}

/// The way to the control thread from all others.
#[derive(Default)]
pub struct ControlMail {
    /// The operators' wishes for the nodes. Each is answered, so none is merged with another.
    wishes: Mutex<Vec<Wish>>,
    /// An order that one of these meets is not added, so that there are at most a few for each database.
    orders: Mutex<Vec<Order>>,
    bell: Notify,
    /// When the thread last gave a sign of life, in milliseconds since the start of the proxy: one that is stuck does not.
    pub(crate) beat_ms: AtomicU64,
}

impl ControlMail {
    /// Never waits.
    pub fn send(&self, order: Order) {
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
        self.wishes.lock().push(Wish { request, answer });
        self.bell.notify_one();
        receiver
    }

    pub fn has_wishes(&self) -> bool {
        !self.wishes.lock().is_empty()
    }

    /// Takes the wishes of operators, the oldest first.
    pub fn take_wishes(&self) -> Vec<Wish> {
        std::mem::take(&mut *self.wishes.lock())
    }

    /// All orders, the oldest first.
    pub fn take(&self) -> Vec<Order> {
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
            mail.send(Order::Look(RoleCheckReason::LoginFailed));
            mail.send(Order::Look(RoleCheckReason::ConnectionLost));
            mail.send(Order::Sample);
            mail.send(Order::Changed(one.clone()));
            mail.send(Order::Changed(other.clone()));
            mail.send(Order::Watch(one.clone()));
        }
        let orders = mail.take();
        assert_eq!(orders.len(), 5);
        assert!(matches!(orders[0], Order::Look(RoleCheckReason::LoginFailed)), "the first reason is kept");
        assert!(mail.take().is_empty());
    }
}
