//! Follows a primary's commits, whoever made them: marks results stale, and tells how far the log is read.
//!
//! In: transactions in commit order; rounds (see `causal`). Out: slots raised and settled, and the covered round: all
//! that was visible when it was asked for has been applied. No IO and no clock.
//!
//! A commit is in the log before others see it, for long if it waits for a standby. A result asked for meanwhile shows
//! the old rows and would never become stale. So the slots stay raised until a snapshot of the primary shows the
//! transaction over; a standby must cover that snapshot's round.
//!
//! While no log is followed, the database's slot is raised. A new stream lacks transactions that committed before its
//! begin and are not visible yet. So the slot stays raised until all transactions of a snapshot taken after the begin
//! have ended.

use super::proof::ChangeFloors;
use super::versions::{Slot, TableVersions, WriterOutcome};
use std::collections::VecDeque;

/// Rounds remembered. Beyond, every second one of the older half is dropped: a later one must be covered.
const POINTS_MAX: usize = 256;
const PENDING_MAX: usize = 8192;
/// Slots of one transaction; with more it changes the whole database.
const SLOTS_MAX: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WalHistory {
    pub node: u16,
    /// `system_identifier` of the cluster.
    pub system: u64,
    pub timeline: u32,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct TxidSnapshot {
    /// All transactions below are over.
    below: u64,
    /// First transaction not begun.
    next: u64,
    running: Vec<u64>,
}

impl TxidSnapshot {
    /// Parses a `txid_snapshot`: `xmin:xmax:xip_list`.
    pub fn parse(text: &str) -> Option<TxidSnapshot> {
        let mut parts = text.splitn(3, ':');
        let below = parts.next()?.parse().ok()?;
        let next = parts.next()?.parse().ok()?;
        let list = parts.next()?;
        let running = list.split(',').filter(|number| !number.is_empty()).map(|number| number.parse().ok());
        Some(TxidSnapshot { below, next, running: running.collect::<Option<Vec<u64>>>()? })
    }

    /// True if the transaction with these lower 32 bits is over.
    pub fn shows(&self, xid: u32) -> bool {
        let near = (self.next & !u64::from(u32::MAX)) | u64::from(xid);
        let full = if near > self.next.saturating_add(1 << 31) {
            near.saturating_sub(1 << 32)
        } else if near.saturating_add(1 << 31) < self.next {
            near.saturating_add(1 << 32)
        } else {
            near
        };
        full < self.next && !self.running.contains(&full)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PositionRound {
    pub number: u64,
    pub history: WalHistory,
    /// Log position behind all that was visible when the primary was asked.
    pub position: u64,
    pub snapshot: TxidSnapshot,
    pub asked_ms: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum LogFollowerState {
    Away,
    /// Transactions that ran at the stream's begin may not be visible yet.
    Starting {
        history: WalHistory,
        /// First round asked for after the begin.
        round: u64,
        /// All transactions below must be over.
        below: Option<u64>,
    },
    Following(WalHistory),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct CoveredRound {
    /// 0: none.
    pub round: u64,
    pub asked_ms: u64,
}

impl CoveredRound {
    /// True if everything visible at `round` is known, by news at most `lag_ms_max` old.
    #[inline]
    pub fn shows(self, round: u64, now_ms: u64, lag_ms_max: u64) -> bool {
        self.round != 0 && self.round >= round && now_ms.saturating_sub(self.asked_ms) <= lag_ms_max
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct CoveragePoint {
    covered: CoveredRound,
    position: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct DecodedTransaction {
    xid: u32,
    slots: Vec<Slot>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FollowError {
    #[error("the stream says something out of order")]
    Order,
    #[error("more than {PENDING_MAX} transactions committed without the primary saying that they are visible")]
    Pending,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LogFollower {
    database: Slot,
    standing: LogFollowerState,
    /// Log position up to which the stream was received.
    position: u64,
    covered: CoveredRound,
    points: VecDeque<CoveragePoint>,
    /// Transaction being received.
    open: Option<DecodedTransaction>,
    /// Received transactions that may not be visible yet; their slots are raised.
    pending: Vec<DecodedTransaction>,
    /// Last round of this history.
    latest: Option<PositionRound>,
    /// Position of the covered round.
    covered_position: u64,
    floors: ChangeFloors,
    /// First round whose proofs in a store are admitted.
    forgotten: Option<u64>,
}

impl LogFollower {
    pub fn new(database: Slot, versions: &TableVersions) -> LogFollower {
        versions.raise(&[database]);
        LogFollower {
            database,
            standing: LogFollowerState::Away,
            position: 0,
            covered: CoveredRound::default(),
            points: VecDeque::new(),
            open: None,
            pending: Vec::new(),
            latest: None,
            covered_position: 0,
            floors: ChangeFloors::default(),
            forgotten: None,
        }
    }

    /// Rejects earlier proofs. `next`: number of the next round.
    pub fn forget(&mut self, next: u64) {
        self.forgotten = Some(next);
    }

    pub(super) fn forgotten(&self) -> Option<u64> {
        self.forgotten
    }

    pub(super) fn covered_position(&self) -> u64 {
        self.covered_position
    }

    pub(super) fn floors_mut(&mut self) -> &mut ChangeFloors {
        &mut self.floors
    }

    pub fn standing(&self) -> &LogFollowerState {
        &self.standing
    }

    pub fn position(&self) -> u64 {
        self.position
    }

    pub fn pending(&self) -> usize {
        self.pending.len()
    }

    /// Returns the covered round; none while no log is followed.
    pub fn covered(&self) -> CoveredRound {
        if matches!(self.standing, LogFollowerState::Following(_)) { self.covered } else { CoveredRound::default() }
    }

    pub fn behind_since_ms(&self) -> Option<u64> {
        self.points.front().map(|point| point.covered.asked_ms)
    }

    /// Begins a stream of commits after `position`. `next`: number of the next round.
    pub fn start(&mut self, history: WalHistory, position: u64, next: u64) {
        self.standing = LogFollowerState::Starting { history, round: next, below: None };
        self.position = position;
    }

    pub fn begin(&mut self, xid: u32) -> Result<(), FollowError> {
        match self.open.replace(DecodedTransaction { xid, slots: Vec::new() }) {
            Some(_) => Err(FollowError::Order),
            None => Ok(()),
        }
    }

    pub fn change(&mut self, slot: Slot) -> Result<(), FollowError> {
        let slots = &mut self.open.as_mut().ok_or(FollowError::Order)?.slots;
        if slots.contains(&slot) || slots.contains(&self.database) {
            return Ok(());
        }
        if slots.len() >= SLOTS_MAX || slot == self.database {
            slots.clear();
            slots.push(self.database);
        } else {
            slots.push(slot);
        }
        Ok(())
    }

    /// Ends the open transaction, whose changes lie before `end`.
    pub fn commit(&mut self, end: u64, versions: &TableVersions) -> Result<(), FollowError> {
        let told = self.open.take().ok_or(FollowError::Order)?;
        if !told.slots.is_empty() {
            if self.pending.len() >= PENDING_MAX {
                return Err(FollowError::Pending);
            }
            // First: readers look at the cover before the slots.
            versions.raise(&told.slots);
            match &self.latest {
                // The round is ahead of the stream: waiting for the next would keep the tables raised for nothing.
                Some(round) if round.snapshot.shows(told.xid) => {
                    self.floors.note_changes(&told.slots, round.number, round.position);
                    versions.note_last(self.database, round.number);
                    versions.settle(&told.slots, WriterOutcome::Committed { round: round.number });
                }
                Some(_) | None => self.pending.push(told),
            }
        }
        self.reach(end);
        Ok(())
    }

    /// Notes that all commits up to this position were received.
    pub fn reach(&mut self, position: u64) {
        self.position = self.position.max(position);
        self.cover();
    }

    /// Takes in a round. Returns true if another round is needed.
    pub fn round(&mut self, round: &PositionRound, versions: &TableVersions) -> bool {
        let history = match &self.standing {
            LogFollowerState::Away => return false,
            LogFollowerState::Starting { history, .. } | LogFollowerState::Following(history) => *history,
        };
        if round.history != history {
            return false;
        }
        self.floors.note_round(round.number, round.position);
        self.settle(round, versions);
        self.settle_start(round, versions);
        self.latest = Some(round.clone());
        let covered = CoveredRound { round: round.number, asked_ms: round.asked_ms };
        self.points.push_back(CoveragePoint { covered, position: round.position });
        if self.points.len() > POINTS_MAX {
            // The oldest stays: it is covered next.
            let mut at = 0;
            self.points.retain(|_| {
                at += 1;
                at > POINTS_MAX / 2 || at % 2 == 1
            });
        }
        self.cover();
        !self.pending.is_empty() || matches!(self.standing, LogFollowerState::Starting { .. })
    }

    /// Handles a change of which names are tables: open and pending transactions count for the whole database.
    pub fn redefine(&mut self, versions: &TableVersions) {
        if let Some(open) = &mut self.open {
            open.slots = vec![self.database];
        }
        for told in self.pending.iter_mut().filter(|told| !told.slots.contains(&self.database)) {
            versions.raise(&[self.database]);
            told.slots.push(self.database);
        }
    }

    /// Ends the stream, or drops it as unreliable. `next`: number of the next round.
    pub fn lose(&mut self, next: u64, versions: &TableVersions) {
        if matches!(self.standing, LogFollowerState::Following(_)) {
            versions.raise(&[self.database]);
        }
        self.standing = LogFollowerState::Away;
        self.open = None;
        self.latest = None;
        self.points.clear();
        self.covered = CoveredRound::default();
        self.floors = ChangeFloors::default();
        // The database's slot covers pending transactions from here on.
        for told in self.pending.drain(..) {
            versions.settle_unseen(&told.slots, next);
        }
    }

    /// Ends following. The versions live on, so raised slots are settled as changed.
    pub fn end(&mut self, next: u64, versions: &TableVersions) {
        self.lose(next, versions);
        versions.settle_unseen(&[self.database], next);
    }

    fn settle(&mut self, round: &PositionRound, versions: &TableVersions) {
        self.pending.retain(|told| {
            let is_over = round.snapshot.shows(told.xid);
            if is_over {
                self.floors.note_changes(&told.slots, round.number, round.position);
                versions.note_last(self.database, round.number);
                versions.settle(&told.slots, WriterOutcome::Committed { round: round.number });
            }
            !is_over
        });
    }

    fn settle_start(&mut self, round: &PositionRound, versions: &TableVersions) {
        let LogFollowerState::Starting { history, round: first, below } = &mut self.standing else { return };
        if round.number < *first {
            return;
        }
        let below = *below.get_or_insert(round.snapshot.next);
        if round.snapshot.below >= below {
            self.standing = LogFollowerState::Following(*history);
            self.floors.open(round.number, round.position);
            versions.settle(&[self.database], WriterOutcome::Committed { round: round.number });
        }
    }

    fn cover(&mut self) {
        while let Some(point) = self.points.front().filter(|point| point.position <= self.position) {
            (self.covered, self.covered_position) = (point.covered, point.position);
            self.points.pop_front();
        }
    }
}

#[cfg(test)]
mod tests;
