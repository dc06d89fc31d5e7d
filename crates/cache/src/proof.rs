//! Results in a shared store: how one Weir proves them and another accepts them.
//!
//! A proof is a position of the primary's log: the result shows every change of its tables up to there, and none after.
//! The filling Weir notes the tables' stamps before the question (`TableVersions`), and waits until the log is read up
//! to a round that began after the answer. With unchanged stamps that round's position is the proof. Another Weir
//! serves the result if it knows no change behind it. A change's position is that of a round covering it (its *floor*);
//! until the primary answers that round, nothing is served.
//!
//! Positions compare within one system identifier and timeline. Changes before a follower's begin are unknown: their
//! floor is the begin's round. A store that loses, mixes up or repeats bytes costs misses only.

use super::versions::{ResultDependencies, Slot, TableVersions};
use crate::followed_log::{LogFollower, LogFollowerState, WalHistory};
use std::collections::{BTreeMap, VecDeque};

/// Rounds remembered. Beyond, every second one of the older half is dropped: a later one replaces it.
const ROUNDS_MAX: usize = 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ResultProof {
    pub system: u64,
    pub timeline: u32,
    pub position: u64,
}

impl ResultProof {
    fn is_of(&self, history: &WalHistory) -> bool {
        (self.system, self.timeline) == (history.system, history.timeline)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResultProofState {
    Proven(ResultProof),
    /// The log is not read far enough.
    Waits,
    /// A table has changed, or the log is not followed.
    Void,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ChangeFloors {
    /// Round of the follower's begin, and its position.
    opened: Option<(u64, u64)>,
    /// Later rounds and their positions, in order.
    rounds: VecDeque<(u64, u64)>,
    /// A round that covers the slot's last change, and its position.
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

    pub(super) fn note_changes(&mut self, slots: &[Slot], round: u64, position: u64) {
        for slot in slots {
            self.changes.insert(*slot, (round, position));
        }
    }

    /// Returns a position behind all changes of a slot; `round` covers the last one.
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

    /// Returns the first remembered round >= `round`.
    fn from(&self, round: u64) -> Option<(u64, u64)> {
        let opened = self.opened?;
        let at = self.rounds.partition_point(|(known, _)| *known < round);
        if round <= opened.0 { Some(opened) } else { self.rounds.get(at).copied() }
    }
}

impl LogFollower {
    /// Proves a result that came before `round` began; `deps` were taken before its question.
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

    /// Returns the round of the last change shown, if PostgreSQL would give the result now.
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
        // Order matters: a change that is settled by then has its round.
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
