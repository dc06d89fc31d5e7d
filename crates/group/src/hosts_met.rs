//! Hosts that greeted, and what a founder knows.

use std::collections::BTreeMap;

use crate::group_event::ServerMark;
use crate::membership::{GroupMs, HostNumber, MEMBERS_MAX, MemberId, MemberRow};

/// A host counts as heard for so long.
pub(crate) const HEARD_MS: GroupMs = 1_000;

/// Hosts that greeted, configured ones only.
#[derive(Clone, Debug, Default)]
pub(crate) struct HostsMet {
    met: BTreeMap<HostNumber, MemberId>,
    /// Hosts without a group that know this member.
    strangers: BTreeMap<HostNumber, (MemberRow, GroupMs)>,
    /// Hosts that are no members of this group: a leader admits them.
    outsiders: BTreeMap<HostNumber, (MemberRow, GroupMs)>,
}

impl HostsMet {
    /// False: there is no room.
    pub(crate) fn meet(&mut self, id: MemberId) -> bool {
        let has_room = self.met.len() <= MEMBERS_MAX;
        if has_room {
            self.met.insert(id.host, id);
        }
        has_room
    }

    pub(crate) fn incarnation(&self, host: HostNumber) -> Option<MemberId> {
        self.met.get(&host).copied()
    }

    pub(crate) fn add_stranger(&mut self, row: MemberRow, now: GroupMs) {
        self.strangers.insert(row.id.host, (row, now));
    }

    pub(crate) fn remove_stranger(&mut self, host: HostNumber) {
        self.strangers.remove(&host);
    }

    pub(crate) fn add_outsider(&mut self, row: MemberRow, now: GroupMs) {
        self.outsiders.insert(row.id.host, (row, now));
    }

    pub(crate) fn remove_outsider(&mut self, host: HostNumber) {
        self.outsiders.remove(&host);
    }

    /// Heard lately.
    pub(crate) fn strangers(&self, now: GroupMs) -> impl Iterator<Item = MemberRow> {
        self.strangers.values().filter(move |(_, at)| now < at + HEARD_MS).map(|(row, _)| *row)
    }

    /// Heard lately.
    pub(crate) fn outsiders(&self, now: GroupMs) -> impl Iterator<Item = MemberRow> {
        self.outsiders.values().filter(move |(_, at)| now < at + HEARD_MS).map(|(row, _)| *row)
    }
}

/// A founder's knowledge of servers and of an engine outside.
#[derive(Clone, Debug)]
pub(crate) struct FoundingFacts {
    text: String,
    mark: ServerMark,
    /// An old look does not count: a group may have formed since, and lost a disk.
    mark_at: GroupMs,
    begun_at: GroupMs,
    /// An operator ordered a group of most of the configured hosts.
    ordered_until: Option<GroupMs>,
    /// Begin and end of the time in which an engine outside showed no state.
    empty: Option<(GroupMs, GroupMs)>,
}

impl FoundingFacts {
    pub(crate) fn new(now: GroupMs) -> FoundingFacts {
        FoundingFacts {
            text: String::new(),
            mark: ServerMark::Unseen,
            mark_at: now,
            begun_at: now,
            ordered_until: None,
            empty: None,
        }
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    pub(crate) fn begun_at(&self) -> GroupMs {
        self.begun_at
    }

    pub(crate) fn empty(&self) -> Option<(GroupMs, GroupMs)> {
        self.empty
    }

    /// Of another life of this member, which begins now.
    pub(crate) fn begun_anew(&self, now: GroupMs) -> FoundingFacts {
        FoundingFacts { text: self.text.clone(), mark: self.mark, mark_at: self.mark_at, ..FoundingFacts::new(now) }
    }

    pub(crate) fn order(&mut self, until: GroupMs) {
        self.ordered_until = Some(until);
    }

    pub(crate) fn is_ordered(&self, now: GroupMs) -> bool {
        self.ordered_until.is_some_and(|until| now < until)
    }

    /// True if no server bore a mark of a group a moment ago.
    pub(crate) fn are_servers_unmarked(&self, now: GroupMs) -> bool {
        self.mark == ServerMark::Unmarked && now < self.mark_at + HEARD_MS
    }

    pub(crate) fn set_text(&mut self, text: String) {
        self.text = text;
    }

    pub(crate) fn set_mark(&mut self, mark: ServerMark, now: GroupMs) {
        (self.mark, self.mark_at) = (mark, now);
    }

    /// An engine outside shows no state.
    pub(crate) fn note_empty(&mut self, now: GroupMs) {
        self.empty = Some((self.empty.map_or(now, |(since, _)| since), now));
    }

    /// There is a state.
    pub(crate) fn note_state(&mut self) {
        self.empty = None;
    }
}
