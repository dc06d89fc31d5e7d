//! Results in a store that several Weirs share: the proof of each, and the test by which another Weir accepts it.
//!
//! A result is *proven* for a position of the primary's log: it shows every change of its tables up to there, and none after.
//! The Weir that fills it notes the words of its tables before the question (`TableVersions`). Then it waits until the log was taken
//! in up to a round that began after the answer. If the words are still the same, the round's position is the proof. Another
//! Weir serves the result if no change of its tables that it knows of lies behind that position. It takes a change's position
//! from the round that covers the change (its *floor*). A change whose round the primary has not answered has no floor yet, and
//! nothing is served.
//!
//! The round of the last change also shows all that the result shows. Between that round and the proof no table of it has
//! changed. This Weir would know such a change, since its own log was taken in up to there.
//!
//! Positions compare within one history only: the same system identifier and timeline. Changes before a follower's begin are
//! unknown to it, so their floor is the round by which it began to follow. Weirs tell each other nothing: a store that loses,
//! mixes up or repeats its bytes costs misses.

use super::versions::{ResultDependencies, Slot, TableVersions};
use crate::followed_log::{LogFollower, LogFollowerState, WalHistory};
use std::collections::{BTreeMap, VecDeque};

/// Rounds whose positions are remembered. With more, every second one of the older half is forgotten: then a later one stands
/// for it.
const ROUNDS_MAX: usize = 1024;

/// The position that a result is proven for. See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ResultProof {
    /// `system_identifier` of the servers.
    pub system: u64,
    pub timeline: u32,
    pub position: u64,
}

impl ResultProof {
    fn is_of(&self, history: &WalHistory) -> bool {
        (self.system, self.timeline) == (history.system, history.timeline)
    }
}

/// State of a result that waits for its proof.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResultProofState {
    Proven(ResultProof),
    /// The log was not taken in far enough yet.
    Waits,
    /// One of its tables has changed, or the log is not followed: it will not be proven.
    Void,
}

/// Positions of rounds, and of the last changes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ChangeFloors {
    /// The round by which the follower began, and its position; none: it has not.
    opened: Option<(u64, u64)>,
    /// Later rounds and their positions, in order.
    rounds: VecDeque<(u64, u64)>,
    /// By slot: a round that covers its last change, and the round's position.
    changes: BTreeMap<Slot, (u64, u64)>,
}

impl ChangeFloors {
    pub(super) fn open(&mut self, round: u64, position: u64) {
        *self = ChangeFloors { opened: Some((round, position)), ..ChangeFloors::default() };
    }

    pub(super) fn note_round(&mut self, round: u64, position: u64) {
        let before = self.rounds.back().map_or(0, |(_, position)| *position);
        self.rounds.push_back((round, position.max(before)));
        if self.rounds.len() > ROUNDS_MAX {
            let mut at = 0;
            self.rounds.retain(|_| {
                at += 1;
                at > ROUNDS_MAX / 2 || at % 2 == 0
            });
        }
    }

    /// These have changed, as this round shows.
    pub(super) fn note_changes(&mut self, slots: &[Slot], round: u64, position: u64) {
        for slot in slots {
            self.changes.insert(*slot, (round, position));
        }
    }

    /// The position behind which no change of a slot lies; `round` covers its last one.
    fn floor(&mut self, slot: Slot, round: u64) -> Option<u64> {
        let (opened, position) = self.opened?;
        if round <= opened {
            return Some(position);
        }
        if let Some((_, position)) = self.changes.get(&slot).filter(|(known, _)| *known >= round) {
            return Some(*position);
        }
        let (known, position) = self.from(round)?;
        self.changes.insert(slot, (known, position));
        Some(position)
    }

    /// The first that is remembered of this and later rounds.
    fn from(&self, round: u64) -> Option<(u64, u64)> {
        let opened = self.opened?;
        let at = self.rounds.partition_point(|(known, _)| *known < round);
        if round <= opened.0 { Some(opened) } else { self.rounds.get(at).copied() }
    }
}

impl LogFollower {
    /// A result came from a server before `round` began; its tables are as `deps` says since before it was asked for.
    pub fn prove(&self, versions: &TableVersions, deps: &ResultDependencies, round: u64) -> ResultProofState {
        let LogFollowerState::Following(WalHistory { system, timeline, node: _ }) = *self.standing() else {
            return ResultProofState::Void;
        };
        if !versions.is_true(deps) {
            return ResultProofState::Void;
        }
        match self.covered().round >= round {
            true => ResultProofState::Proven(ResultProof { system, timeline, position: self.covered_position() }),
            false => ResultProofState::Waits,
        }
    }

    /// Tells if PostgreSQL would give this result now, by its proof. Some: the round that covers the last change it shows.
    pub fn admits(&mut self, versions: &TableVersions, slots: &[Slot], proof: &ResultProof) -> Option<u64> {
        let LogFollowerState::Following(history) = self.standing() else { return None };
        // A follower knows nothing behind its own position.
        if !proof.is_of(history) || proof.position > self.position() {
            return None;
        }
        if let Some(round) = self.forgotten()
            && self.floors_mut().from(round)?.1 >= proof.position
        {
            return None;
        }
        // In this order: a change that is settled by then has its round.
        let deps = versions.begin(slots)?;
        let mut shown = 0;
        for (slot, _) in deps.pairs() {
            let round = versions.round_of(*slot);
            if self.floors_mut().floor(*slot, round)? > proof.position {
                return None;
            }
            shown = shown.max(round);
        }
        Some(shown)
    }
}

#[cfg(test)]
mod tests;
