//! News that a member passes on between its group and its failover, in their order.

use std::collections::{BTreeMap, VecDeque};

use weir_failover::{DurableState, FailoverState, GroupRole, LookFailure, NodeId, SightCount};
use weir_group::{GroupRequest, MemberIntent, NodeSights, VersionNumber};

use crate::member_sight::MemberSight;
use crate::obedience::TakenWrites;

/// Nodes with a bit of their own in what members tell each other.
const SIGHTED_NODES: NodeId = 128;

/// Texts that a leader remembers to have asked for. Failover stores one after the other; a leader that forgets one begins anew.
const ASKED_MAX: usize = 8;

#[derive(Clone, Debug, Default)]
pub struct FailoverTie {
    /// Text that was told last.
    told: Option<String>,
    /// Of a leader: what it asked the group to store, and is not told yet.
    asked: VecDeque<String>,
    sights_of_others: Vec<NodeSights>,
    obeyed: Option<VersionNumber>,
    /// As told to the group last.
    intent: Option<MemberIntent>,
    sights: Option<NodeSights>,
}

/// News of the group for failover.
#[derive(Clone, Debug, PartialEq)]
pub enum GroupNews {
    /// Orders end. A new leader is the group's one Weir restarted with what is stored, and knows what it saw. `None`: nothing is stored. A leader begins anew
    /// if a change comes into force that it did not ask for: one of its former life, or of before its lease ended for a moment.
    Role {
        role: GroupRole,
        durable: Option<Box<DurableState>>,
    },
    Stored {
        durable: Box<DurableState>,
    },
    Sights {
        of_others: BTreeMap<NodeId, SightCount>,
    },
}

/// Words of failover for the group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberWord {
    Intent(MemberIntent),
    Sights(NodeSights),
    /// Writes that a version takes are to end here.
    End(TakenWrites),
}

impl FailoverTie {
    /// The first of the news; to be asked until there are none. `role`: by which failover runs.
    pub fn news(&mut self, sight: MemberSight, others: &[NodeSights], role: GroupRole) -> Option<GroupNews> {
        if sight.role() != role {
            return Some(self.new_role(sight));
        }
        if let Some(text) = sight.version.map(|version| &version.state.failover)
            && self.told.as_ref() != Some(text)
        {
            let own = self.asked.iter().position(|asked| asked == text);
            if role == GroupRole::Leads && self.told.is_some() && own.is_none() {
                return Some(self.new_role(sight));
            }
            self.asked.drain(..own.map_or(0, |own| own + 1));
            self.told = Some(text.clone());
            if let Some(durable) = sight.durable() {
                return Some(GroupNews::Stored { durable: Box::new(durable) });
            }
        }
        if self.sights_of_others != others {
            self.sights_of_others = others.to_vec();
            return Some(GroupNews::Sights { of_others: count(others) });
        }
        None
    }

    fn new_role(&mut self, sight: MemberSight) -> GroupNews {
        self.told = None;
        self.asked.clear();
        GroupNews::Role { role: sight.role(), durable: sight.durable().map(Box::new) }
    }

    /// A leader asks the group for this.
    pub fn note_asked(&mut self, request: &GroupRequest) {
        if let GroupRequest::StoreText { text } | GroupRequest::CloseWrites { text: Some(text) } = request {
            if self.asked.len() >= ASKED_MAX {
                self.asked.pop_front();
            }
            self.asked.push_back(text.clone());
        }
    }

    /// Words that the group does not know yet: fitness, sights by the last looks, of which a failure of this member's own says nothing, and writes to
    /// end. `served`: the node that takes writes of this member. `awaited`: the version whose obedience the group waits for.
    pub fn words(
        &mut self,
        sight: MemberSight,
        state: &FailoverState,
        intent: MemberIntent,
        (served, awaited): (Option<NodeId>, Option<VersionNumber>),
    ) -> Vec<MemberWord> {
        let mut words = Vec::new();
        if self.intent.replace(intent) != Some(intent) {
            words.push(MemberWord::Intent(intent));
        }
        let sights = sights_of(state);
        if self.sights.replace(sights) != Some(sights) {
            words.push(MemberWord::Sights(sights));
        }
        if let Some(number) = awaited.filter(|number| self.obeyed != Some(*number)) {
            self.obeyed = Some(number);
            words.push(MemberWord::End(TakenWrites::of(number, sight, state, served)));
        }
        words
    }

    /// No writes are being ended: a version whose obedience the group still waits for is obeyed again.
    pub fn end_again(&mut self) {
        self.obeyed = None;
    }

    /// A word could not be passed on.
    pub fn repeat(&mut self, word: MemberWord) {
        match word {
            MemberWord::Intent(_) => self.intent = None,
            MemberWord::Sights(_) => self.sights = None,
            MemberWord::End(_) => self.obeyed = None,
        }
    }
}

fn sights_of(state: &FailoverState) -> NodeSights {
    let mut sights = NodeSights::default();
    for (id, node) in state.nodes.iter().filter(|(id, _)| **id < SIGHTED_NODES) {
        sights.alive |= u128::from(node.facts().is_some()) << id;
        sights.dead |= u128::from(node.failure.is_some_and(LookFailure::is_death)) << id;
    }
    sights
}

/// How many others see each node.
fn count(others: &[NodeSights]) -> BTreeMap<NodeId, SightCount> {
    let mut counts = BTreeMap::new();
    for node in 0..SIGHTED_NODES {
        let of = |bits: u128| bits >> node & 1 == 1;
        let alive = others.iter().filter(|sights| of(sights.alive)).count() as u32;
        let dead = others.iter().filter(|sights| of(sights.dead)).count() as u32;
        if alive + dead > 0 {
            counts.insert(node, SightCount { alive, dead });
        }
    }
    counts
}
