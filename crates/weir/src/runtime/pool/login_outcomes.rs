//! The outcomes of a pool's logins, as far as they tell of its user, and the tasks that wait for one. `weir::runtime::pool::recent_logins` decides.

use super::{ConnLimits, ConnPool, take_near};
use crate::runtime::pool::recent_logins::{ClientLoginDecision, LoginAvailability, LoginDenial, withdrawal};
use crate::runtime::pool::server_conn::{OpenError, ServerConn};
use crate::runtime::worker::Worker;
use std::sync::Arc;

/// How long a server's word counts, in milliseconds.
pub(super) fn lifetime_ms(w: &Worker) -> u64 {
    w.peek_config().auth.cache_ms
}

impl ConnPool {
    /// Decides about a client that came then. `Wanted`: the caller asks, and all others wait until `asked`; `Awaited`: the current task is
    /// woken then.
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

    /// True if a client that came then may have connections that are open, without another look at the server.
    pub fn is_vouched_for(&self, w: &Worker, came_ms: u64) -> bool {
        !self.is_shared() || self.inner.lock().vouching.covers(came_ms, lifetime_ms(w))
    }

    /// The login that `voucher` wanted has ended, whatever it told.
    pub fn asked(&self, w: &Worker) {
        let askers = {
            let mut inner = self.inner.lock();
            inner.vouching.asked();
            std::mem::take(&mut inner.askers)
        };
        askers.into_iter().for_each(|asker| w.wake_waiter(asker));
    }

    /// The permission for one more server connection, if nobody waits for that. After a refusal it does not matter that the server was full.
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

    /// A server connection at rest that is to be replaced. One on which nobody has just drawn from sequences, if there is one.
    pub fn take_rested(&self, w: &Worker) -> Option<ServerConn> {
        self.take_surplus(w).or_else(|| take_near(&mut self.inner.lock().idle, w))
    }

    /// The server connection that has rested longest, without fresh draws from sequences: one too many beside a new one.
    pub fn take_surplus(&self, w: &Worker) -> Option<ServerConn> {
        let mut inner = self.inner.lock();
        let at = inner.idle.iter().position(|conn| !conn.has_fresh_draws(w.now_us()))?;
        Some(inner.idle.remove(at))
    }

    /// A login told nothing within its time.
    pub fn note_silent(&self, w: &Worker) {
        self.inner.lock().vouching.unsure(w.now_ms());
    }

    /// A login that began then got in.
    pub fn note_let_in(&self, begun_ms: u64) {
        self.inner.lock().vouching.accepted(begun_ms);
    }

    /// A login that began then failed. If its user has no right to be there any more, the connections of the pool are lent to nobody: those at rest are
    /// closed, the others when they come back.
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

    /// New clients get no connection of this pool until a login gets in again.
    pub fn withdraw(self: &Arc<ConnPool>, w: &Worker, why: LoginDenial, begun_ms: u64) {
        let is_news = self.inner.lock().vouching.refused(begun_ms);
        if is_news && why == LoginDenial::Right {
            self.renew(w);
        }
    }

    /// True if the last login that told anything was refused.
    pub fn is_withdrawn(&self) -> bool {
        self.inner.lock().vouching.is_refused()
    }
}
