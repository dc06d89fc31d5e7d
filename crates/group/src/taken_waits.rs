//! Waits before something is given again.

use std::collections::BTreeMap;

use crate::group_rule::GroupRule;
use crate::group_state::{GroupLead, StateVersion, VersionNumber};
use crate::last_questions::QuestionBounds;
use crate::membership::{GroupMembers, GroupMs, MemberId, MemberSet};

/// Something taken, since it is known to be decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TakenSince {
    pub(crate) at: GroupMs,
    pub(crate) number: VersionNumber,
}

/// Each wait begins with the first decided version seen that takes it: also after a restart.
#[derive(Clone, Debug)]
pub(crate) struct TakenWaits {
    lead: Option<(u64, TakenSince)>,
    writes: Option<(u64, TakenSince)>,
    leaving: Option<(MemberSet, TakenSince)>,
    /// The wait for its rights, and the time since when it is lost.
    lost: BTreeMap<MemberId, (TakenSince, GroupMs)>,
    /// Of the last change that this member made, or of the one that closed the writes which are waited for.
    bounds: Option<(VersionNumber, QuestionBounds)>,
    /// Members, and since when there were no others.
    members: Option<(GroupMembers, GroupMs)>,
    /// No decided version was seen yet.
    is_fresh: bool,
}

impl TakenWaits {
    pub(crate) fn new() -> TakenWaits {
        TakenWaits { lead: None, writes: None, leaving: None, lost: BTreeMap::new(), bounds: None, members: None, is_fresh: true }
    }

    /// A version is known to be decided.
    pub(crate) fn decided(&mut self, version: &StateVersion, now: GroupMs, without: Option<GroupRule>) {
        let state = &version.state;
        let forgets = self.is_fresh && without == Some(GroupRule::RestartedGiverWaits);
        let at = if forgets { now.saturating_sub(state.wait_ms()) } else { now };
        self.is_fresh = false;
        let since = TakenSince { at, number: version.number };
        let taken = matches!(state.lead, GroupLead::Taken { .. }).then_some(state.term);
        begin(&mut self.lead, taken, since);
        begin(&mut self.writes, state.writes.closed(), since);
        let leaving = state.members.next.as_ref().map(|_| state.members.leaving());
        begin(&mut self.leaving, leaving, since);
        if self.members.as_ref().is_none_or(|(members, _)| *members != state.members) {
            self.members = Some((state.members.clone(), now));
        }
        self.lost.retain(|id, _| state.lost.contains(id));
        for id in &state.lost {
            self.lost.entry(*id).or_insert((since, now));
        }
    }

    /// A version of this member's own was decided. Later ones, such as that which marks a lost member, say nothing of writes that are waited for.
    pub(crate) fn bound(&mut self, number: VersionNumber, bounds: QuestionBounds) {
        let awaited = self.writes().map(|since| since.number);
        if awaited.is_none() || self.bounds.as_ref().map(|(of, _)| *of) != awaited {
            self.bounds = Some((number, bounds));
        }
    }

    /// The lease of a member that a version took something from began then at the latest. Known to be earlier than that version only if the members have been
    /// the same for longer than a lease.
    pub(crate) fn lease_from(&self, id: MemberId, since: TakenSince, wait_ms: GroupMs) -> GroupMs {
        let are_steady = self.members.as_ref().is_some_and(|(_, from)| since.at >= from.saturating_add(wait_ms));
        let bounds = self.bounds.as_ref().filter(|(number, _)| are_steady && *number == since.number);
        bounds.and_then(|(_, bounds)| bounds.of(id)).unwrap_or(since.at).min(since.at)
    }

    pub(crate) fn lead(&self) -> Option<TakenSince> {
        self.lead.as_ref().map(|(_, since)| *since)
    }

    pub(crate) fn writes(&self) -> Option<TakenSince> {
        self.writes.as_ref().map(|(_, since)| *since)
    }

    /// With those who leave.
    pub(crate) fn leaving(&self) -> Option<(&MemberSet, TakenSince)> {
        self.leaving.as_ref().map(|(who, since)| (who, *since))
    }

    pub(crate) fn lost(&self, id: MemberId) -> Option<TakenSince> {
        self.lost.get(&id).map(|(since, _)| *since)
    }

    pub(crate) fn lost_since(&self, id: MemberId) -> Option<GroupMs> {
        self.lost.get(&id).map(|(_, since)| *since)
    }

    /// Since when the member is lost that was lost first.
    pub(crate) fn first_lost_since(&self) -> Option<GroupMs> {
        self.lost.values().map(|(_, since)| *since).min()
    }

    /// The next end of a wait, if there is one; else the end of time.
    pub(crate) fn next_end(&self, members: &MemberSet, wait_ms: GroupMs, now: GroupMs) -> GroupMs {
        let leaving = self.leaving().map(|(_, since)| since);
        let taken =
            [self.lead(), self.writes(), leaving].into_iter().flatten().chain(self.lost.values().map(|(since, _)| *since));
        let early =
            self.writes().into_iter().flat_map(|since| members.iter().map(move |id| self.lease_from(*id, since, wait_ms)));
        let begins = taken.map(|since| since.at).chain(early);
        begins.map(|at| at.saturating_add(wait_ms)).filter(|end| *end > now).min().unwrap_or(GroupMs::MAX)
    }
}

/// Begins a wait where something else is taken than before.
fn begin<T: PartialEq>(wait: &mut Option<(T, TakenSince)>, taken: Option<T>, since: TakenSince) {
    if wait.as_ref().map(|(what, _)| what) != taken.as_ref() {
        *wait = taken.map(|what| (what, since));
    }
}
