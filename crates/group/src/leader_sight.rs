//! The leader as a member last heard of it.

use crate::membership::GroupMs;

#[derive(Clone, Copy, Debug)]
pub(crate) struct LeaderSight {
    /// Newest term, and when its leader was last known to have confirmed a read.
    led: (u64, GroupMs),
    /// The link to the leader was closed then.
    closed_at: Option<GroupMs>,
}

impl LeaderSight {
    pub(crate) fn new(term: u64, now: GroupMs) -> LeaderSight {
        LeaderSight { led: (term, now), closed_at: None }
    }

    pub(crate) fn term(&self) -> u64 {
        self.led.0
    }

    pub(crate) fn led_at(&self) -> GroupMs {
        self.led.1
    }

    pub(crate) fn closed_at(&self) -> Option<GroupMs> {
        self.closed_at
    }

    pub(crate) fn link_closed(&mut self, now: GroupMs) {
        self.closed_at = Some(now);
    }

    /// This member is the leader, and confirmed a read that it asked for then.
    pub(crate) fn confirmed(&mut self, term: u64, asked_at: GroupMs) {
        self.led = self.led.max((term, asked_at));
    }

    /// A peer knows of it; `known_term` is the newest of the versions known here.
    pub(crate) fn heard(&mut self, term: u64, at: GroupMs, known_term: u64) {
        if (term, at) > self.led && term <= self.term().max(known_term) {
            self.led = (term, at);
            if self.closed_at.is_some_and(|closed| at > closed) {
                self.closed_at = None;
            }
        }
    }
}
