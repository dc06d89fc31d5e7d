//! A pool whose server refuses logins for now, and the session that asks again. `LoginBackoff` decides when.

use super::{ConnLimits, ConnPool, PoolPurpose, WaiterGrant, WaiterSlot};
use crate::runtime::pool::server_conn::OpenError;
use crate::runtime::worker::Worker;
use std::sync::Arc;
use weir_session::checkout::pool_grant::{LoginBackoff, LoginRefusal};

impl ConnPool {
    /// Returns the server's refusal if no server connection can become free.
    pub(super) fn turns_away(&self, w: &Worker) -> Option<(LoginRefusal, Arc<str>)> {
        let inner = self.inner.lock();
        let (backoff, words) = inner.backoff.as_ref()?;
        let is_hopeless = backoff.why == LoginRefusal::Down || inner.open == 0;
        (is_hopeless && !backoff.may_ask(w.now_ms())).then(|| (backoff.why, words.clone()))
    }

    pub(super) fn is_down(&self) -> bool {
        self.inner.lock().backoff.as_ref().is_some_and(|(backoff, _)| backoff.why == LoginRefusal::Down)
    }

    /// Milliseconds until a waiter looks again. `None`: the server accepts logins.
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

    /// Takes the waiter off the queue with a permit to ask a server that refused logins, if it is time.
    pub(super) fn ask_again(self: &Arc<ConnPool>, w: &Worker, cell: &Arc<WaiterSlot>) -> bool {
        let ceilings = ConnLimits::of(&w.peek_config());
        let mut inner = self.inner.lock();
        let has_room = !inner.paused && inner.open < inner.limits.pool_size;
        // Before the scan of the queue, because usually all connections are in use.
        if !has_room || !inner.may_ask_again(w) {
            return false;
        }
        let Some(place) = inner.waiters.iter().position(|waiter| Arc::ptr_eq(&waiter.cell, cell)) else { return false };
        if w.shared.pools.permit(self, &inner.limits, ceilings).is_err() {
            drop(inner);
            // A pool that may not ask is in no queue of places.
            w.shared.pools.starve(w, self, ceilings);
            return false;
        }
        inner.waiters.remove(place);
        inner.grant_permit(w.now_ms());
        true
    }

    /// Notes a refusal and wakes all waiters. Call before the permit is given back.
    pub fn note_refused(&self, w: &Worker, why: LoginRefusal, words: String) {
        if !self.is_shared() {
            return;
        }
        let mut inner = self.inner.lock();
        let before = inner.backoff.as_ref().map(|(backoff, _)| *backoff);
        inner.backoff = Some((LoginBackoff::refused(before, why, w.now_ms()), words.into()));
        inner.waiters.iter().for_each(|waiter| waiter.wake(w));
    }

    /// Tells all waiters of a refusal that holds for all of them: same user, database and password. Call before the permit is given back.
    pub fn tell_refused(self: &Arc<ConnPool>, w: &Worker, error: &OpenError) {
        let is_of_many = matches!(self.key.purpose, PoolPurpose::Statements | PoolPurpose::Engine | PoolPurpose::Greeting);
        if !is_of_many || error.for_others().is_none() {
            return;
        }
        let waiters = std::mem::take(&mut self.inner.lock().waiters);
        for (waiter, told) in waiters.into_iter().zip(std::iter::repeat_with(|| error.for_others()).flatten()) {
            self.hand(w, waiter, WaiterGrant::Told(Box::new(told)));
        }
    }

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
