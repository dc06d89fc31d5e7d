//! Waits for a place to look at a catalog. Decisions: `runtime::pool::look_places`.

use crate::runtime::pool::look_places::{LookPlaces, LookTicket, LookUrgency};
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;
use tokio::sync::Notify;

const TICK: Duration = Duration::from_secs(1);

#[derive(Default)]
pub struct LookPlaceQueue {
    state: RefCell<LookPlaces>,
    changed: Notify,
}

pub struct LookPlace(Rc<LookPlaceQueue>);

impl Drop for LookPlace {
    fn drop(&mut self) {
        self.0.state.borrow_mut().free();
        self.0.changed.notify_waiters();
    }
}

struct QueuedLook<'p>(&'p LookPlaceQueue, LookTicket);

impl Drop for QueuedLook<'_> {
    fn drop(&mut self) {
        self.0.state.borrow_mut().leave(self.1);
        self.0.changed.notify_waiters();
    }
}

impl LookPlaceQueue {
    pub fn is_wanted(&self, max: u32) -> bool {
        self.state.borrow().is_wanted(max)
    }

    /// Cancel safe.
    pub async fn changed(&self) {
        self.changed.notified().await;
    }

    /// `None`: not wanted any more. Cancel safe.
    pub async fn take(
        self: &Rc<LookPlaceQueue>,
        urgency: LookUrgency,
        max: impl Fn() -> u32,
        is_wanted: impl Fn() -> bool,
    ) -> Option<LookPlace> {
        let ticket = self.state.borrow_mut().queue(urgency);
        let _queued = QueuedLook(self, ticket);
        self.changed.notify_waiters();
        loop {
            if self.state.borrow_mut().take(ticket, max()) {
                return Some(LookPlace(self.clone()));
            }
            if !is_wanted() {
                return None;
            }
            let _ = tokio::time::timeout(TICK, self.changed()).await;
        }
    }
}
