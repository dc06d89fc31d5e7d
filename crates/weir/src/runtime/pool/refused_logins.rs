//! A pool whose server lets nobody in for now: its waiters, and the one that asks again. `session::checkout::pool_grant::Backoff` decides when.

use super::{ConnLimits, ConnPool, PoolPurpose, WaiterGrant, WaiterSlot};
use crate::runtime::pool::server_conn::OpenError;
use crate::runtime::worker::Worker;
use std::sync::Arc;
use weir_session::checkout::pool_grant::{LoginBackoff, LoginRefusal};

impl ConnPool {
    /// Why the server lets nobody in and its words, if no server connection can come free.
    pub(super) fn turns_away(&self, w: &Worker) -> Option<(LoginRefusal, Arc<str>)> {
        let inner = self.inner.lock();
        let (backoff, words) = inner.backoff.as_ref()?;
        let is_hopeless = backoff.why == LoginRefusal::Down || inner.open == 0;
        (is_hopeless && !backoff.may_ask(w.now_ms())).then(|| (backoff.why, words.clone()))
    }

    /// The server starts, stops, or cannot be reached.
    pub(super) fn is_down(&self) -> bool {
        self.inner.lock().backoff.as_ref().is_some_and(|(backoff, _)| backoff.why == LoginRefusal::Down)
    }

    /// When who waits for the server looks again. None: it lets everybody in.
    pub(super) fn looks_again_in_ms(self: &Arc<ConnPool>, w: &Worker) -> Option<u64> {
        let now_ms = w.now_ms();
        {
            let mut inner = self.inner.lock();
            let (backoff, _) = inner.backoff.as_ref()?;
            if !backoff.is_over(now_ms) {
                return Some(backoff.look_again_ms(now_ms).saturating_sub(now_ms).max(1));
            }
            inner.backoff = None;
        }
        self.feed(w);
        None
    }

    /// Keeps the queue with the permission to ask a server that has refused logins, if it is time to and nobody else does.
    pub(super) fn ask_again(self: &Arc<ConnPool>, w: &Worker, cell: &Arc<WaiterSlot>) -> bool {
        let ceilings = ConnLimits::of(&w.peek_config());
        let mut inner = self.inner.lock();
        let has_room = !inner.paused && inner.open < inner.limits.pool_size;
        // In this order: where all connections are in use, as is common, nobody looks through the queue.
        if !has_room || !inner.may_ask_again(w) {
            return false;
        }
        let Some(place) = inner.waiters.iter().position(|waiter| Arc::ptr_eq(&waiter.cell, cell)) else { return false };
        if w.shared.pools.permit(self, &inner.limits, ceilings).is_err() {
            drop(inner);
            // A pool that may not ask stands in no queue of places.
            w.shared.pools.starve(w, self, ceilings);
            return false;
        }
        inner.waiters.remove(place);
        inner.grant_permit(w.now_ms());
        true
    }

    /// A login under a permit of this pool was refused; call before the permit is given back. All waiters look again.
    pub fn note_refused(&self, w: &Worker, why: LoginRefusal, words: String) {
        if !self.is_shared() {
            return;
        }
        let mut inner = self.inner.lock();
        let before = inner.backoff.as_ref().map(|(backoff, _)| *backoff);
        inner.backoff = Some((LoginBackoff::refused(before, why, w.now_ms()), words.into()));
        inner.waiters.iter().for_each(|waiter| waiter.wake(w));
    }

    /// Tells all who wait for a server connection that the server refused a login under a permit of this pool, if that holds for all its users: each
    /// would only ask for the same user and database, with the same password. Call before the permit is given back.
    pub fn tell_refused(self: &Arc<ConnPool>, w: &Worker, error: &OpenError) {
        let is_of_many = matches!(self.key.purpose, PoolPurpose::Statements | PoolPurpose::Greeting);
        if !is_of_many || error.for_others().is_none() {
            return;
        }
        let waiters = std::mem::take(&mut self.inner.lock().waiters);
        for (waiter, told) in waiters.into_iter().zip(std::iter::repeat_with(|| error.for_others()).flatten()) {
            self.hand(w, waiter, WaiterGrant::Told(Box::new(told)));
        }
    }

    /// A login got in.
    pub fn note_accepted(self: &Arc<ConnPool>, w: &Worker) {
        let is_over = {
            let mut inner = self.inner.lock();
            let Some((backoff, words)) = inner.backoff.take() else { return };
            inner.backoff = backoff.accepted(w.now_ms()).map(|backoff| (backoff, words));
            inner.waiters.iter().for_each(|waiter| waiter.wake(w));
            inner.backoff.is_none()
        };
        if is_over {
            self.feed(w);
        }
    }
}
