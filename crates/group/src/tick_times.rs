//! Times of ticks: a few in a second while all is well, and often while something is under way.
//!
//! A tick before its time does nothing; the simulation checks that of each tick.

use crate::group_event::{MemberIntent, MemberVoice};
use crate::group_member::GroupMember;
use crate::group_state::{GroupLead, StateVersion};
use crate::membership::GroupMs;

/// Between two ticks while something is under way.
const BUSY_TICK_MS: GroupMs = 50;
/// Between two reads of a new version. A quorum has it after a write to disk, and what it opens waits for the read that shows it.
const NEW_TICK_MS: GroupMs = 10;

impl GroupMember {
    /// When the next [`crate::GroupEvent::Tick`] is due. Each event may make it another time.
    pub fn next_tick(&self, now: GroupMs) -> GroupMs {
        if self.is_unread() {
            return now + 1;
        }
        if self.is_new(now) {
            return now + NEW_TICK_MS;
        }
        let due = self.quiet_until(now).map_or(0, |until| until.min(self.read_at));
        if due > now { due } else { self.next_wait_end(now).min(now + BUSY_TICK_MS) }
    }

    /// When something but the next read is due by the time alone, if nothing is under way.
    fn quiet_until(&self, now: GroupMs) -> Option<GroupMs> {
        let known = self.known.as_ref()?;
        let is_busy =
            self.is_changing || self.voice != MemberVoice::Speaks || !self.requests.is_empty() || self.acts.asked_count() > 0;
        let is_moving = !self.is_settled_on(known) || self.intent != MemberIntent::Serves || self.leader.closed_at().is_some();
        if is_busy || is_moving || now < self.retry_at {
            return None;
        }
        let state = &known.state;
        let silence_ms = self.silence_ms();
        let others = state.members.each().filter(|id| *id != self.id && !state.lost.contains(id));
        let heard = others.map(|id| self.peers.get(&id).map_or(0, |peer| peer.heard_at));
        let removed = self.settings.lost_removal_ms.and_then(|ms| self.waits.first_lost_since().map(|since| since + ms));
        // Silence begins after its time, a removal at it.
        let silent = heard.chain([self.leader.led_at()]).map(|at| at + silence_ms + 1);
        let unsure = if self.is_outside() { None } else { Some(self.register.quiet_until()?) };
        let all = silent.chain(unsure).chain(removed.filter(|at| *at > now)).chain([self.rights().until]);
        all.min().filter(|until| *until > now)
    }

    /// True if a read has shown this version, and it leaves nothing to be done.
    fn is_settled_on(&self, known: &StateVersion) -> bool {
        let state = &known.state;
        let is_calm = matches!(state.lead, GroupLead::Held(_)) && state.writes.closed().is_none() && state.members.next.is_none();
        is_calm
            && state.members.has(self.id)
            && self.is_decided
            && self.given.is_granted(known.number)
            && self.given.obeyed() >= known.number
    }
}
