//! Outcomes of a pool's logins that tell about its user, and the tasks that wait for one.

use super::{ConnLimits, ConnPool, take_near};
use crate::runtime::pool::recent_logins::{ClientLoginDecision, LoginAvailability, LoginDenial, withdrawal};
use crate::runtime::pool::server_conn::{OpenError, ServerConn};
use crate::runtime::worker::Worker;
use std::sync::Arc;

/// Time for which an accepted login vouches for new clients.
pub(super) fn lifetime_ms(w: &Worker) -> u64 {
    w.peek_config().auth.cache_ms
}

impl ConnPool {
    /// Decides about a client. After `Wanted` the caller logs in and calls `asked`, for which all others wait. After `Awaited` the
    /// current task is woken then.
    pub fn voucher(&self, w: &Worker, came_ms: u64) -> ClientLoginDecision {
        if !self.is_shared() {
            return ClientLoginDecision::Given;
        }
        let mut inner = self.inner.lock();
        let room = match inner.paused {
            true => LoginAvailability::Paused,
            false if inner.is_held(w) => LoginAvailability::Held,
            false => LoginAvailability::Open,
        };
        let voucher = inner.vouching.voucher(came_ms, lifetime_ms(w), room, w.now_ms());
        match voucher {
            ClientLoginDecision::Wanted => inner.vouching.ask(w.now_ms()),
            ClientLoginDecision::Awaited { .. } => inner.askers.push((w.id, w.reactor.current_task())),
            ClientLoginDecision::Given | ClientLoginDecision::Unsure => {}
        }
        voucher
    }

    /// True if a client may have open connections without another login.
    pub fn is_vouched_for(&self, w: &Worker, came_ms: u64) -> bool {
        !self.is_shared() || self.inner.lock().vouching.covers(came_ms, lifetime_ms(w))
    }

    /// Ends the login that `voucher` wanted and wakes the tasks that wait for it.
    pub fn asked(&self, w: &Worker) {
        let askers = {
            let mut inner = self.inner.lock();
            inner.vouching.asked();
            std::mem::take(&mut inner.askers)
        };
        askers.into_iter().for_each(|asker| w.wake_waiter(asker));
    }

    /// Grants one more server connection if no session waits for one. After a refusal a hold does not matter.
    pub fn permit_more(&self, w: &Worker) -> bool {
        let ceilings = ConnLimits::of(&w.peek_config());
        let mut inner = self.inner.lock();
        let is_held = inner.is_held(w) && !inner.vouching.is_refused();
        if inner.paused
            || is_held
            || !inner.waiters.is_empty()
            || inner.open >= inner.limits.pool_size
            || w.shared.pools.permit(self, &inner.limits, ceilings).is_err()
        {
            return false;
        }
        inner.grant_permit(w.now_ms());
        true
    }

    /// Takes an idle server connection, preferably one without fresh sequence draws.
    pub fn take_rested(&self, w: &Worker) -> Option<ServerConn> {
        self.take_surplus(w).or_else(|| take_near(&mut self.inner.lock().idle, w))
    }

    /// Takes the server connection idle longest without fresh sequence draws.
    pub fn take_surplus(&self, w: &Worker) -> Option<ServerConn> {
        let mut inner = self.inner.lock();
        let at = inner.idle.iter().position(|conn| !conn.has_fresh_draws(w.now_us()))?;
        Some(inner.idle.remove(at))
    }

    /// Notes a login without an outcome in time.
    pub fn note_silent(&self, w: &Worker) {
        self.inner.lock().vouching.unsure(w.now_ms());
    }

    pub fn note_let_in(&self, begun_ms: u64) {
        self.inner.lock().vouching.accepted(begun_ms);
    }

    /// Notes a failed login. If the user has lost the right to connect, idle connections are closed now, others when they come back.
    pub fn note_kept_out(self: &Arc<ConnPool>, w: &Worker, error: &OpenError, begun_ms: u64) {
        if !self.is_shared() {
            return;
        }
        let why = match error {
            OpenError::Refused { sqlstate, .. } => withdrawal(sqlstate),
            _ => None,
        };
        match why {
            Some(why) => self.withdraw(w, why, begun_ms),
            None => self.inner.lock().vouching.unsure(w.now_ms()),
        }
    }

    pub fn withdraw(self: &Arc<ConnPool>, w: &Worker, why: LoginDenial, begun_ms: u64) {
        let is_news = self.inner.lock().vouching.refused(begun_ms);
        if is_news && why == LoginDenial::Right {
            self.renew(w);
        }
    }

    pub fn is_withdrawn(&self) -> bool {
        self.inner.lock().vouching.is_refused()
    }
}
