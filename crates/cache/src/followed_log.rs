//! Follows the commits of a primary, whoever made them: it marks the results stale that the log has changed, and tells how far
//! it got.
//!
//! In: transactions in the order of their commits, rounds (see `causal`) with the primary's position and snapshot. Out: slots
//! raised and settled, and the last round that is covered: all that was visible when that round was asked for has been applied.
//! No IO and no clock.
//!
//! A commit stands in the log before others see it, and for long if it waits for a standby. A result asked for in between shows
//! the old rows although the change was applied already, and nothing would ever make it stale. So a transaction's slots stay
//! raised until a snapshot of the primary shows it over. Meanwhile nothing is stored, as during a commit through Weir. The
//! round of that snapshot is the one a standby must cover.
//!
//! While the log is not followed, the slot of the whole database is raised: nothing is served, and nothing is stored. A new
//! stream tells the commits from its begin on. It does not tell a transaction whose commit stands in the log before that and is
//! not visible yet. So the slot comes down only when all transactions have ended that ran at a snapshot taken after the
//! stream's begin.

use super::proof::ChangeFloors;
use super::versions::{Slot, TableVersions, WriterOutcome};
use std::collections::VecDeque;

/// Rounds remembered that are not covered yet. Of more, every second one of the older half is forgotten: then a later one must be covered.
const POINTS_MAX: usize = 256;
/// Transactions remembered that others may not see yet.
const PENDING_MAX: usize = 8192;
/// Slots of one transaction; of more it counts as one that changes the whole database.
const SLOTS_MAX: usize = 64;

/// The history positions belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WalHistory {
    /// Number of the primary.
    pub node: u16,
    /// `system_identifier` of its cluster.
    pub system: u64,
    pub timeline: u32,
}

/// Transactions that a server's snapshot shows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct TxidSnapshot {
    /// All below are over.
    below: u64,
    /// This and later ones had not begun.
    next: u64,
    running: Vec<u64>,
}

impl TxidSnapshot {
    /// Reads the text of a `txid_snapshot`: `xmin:xmax:xip_list`.
    pub fn parse(text: &str) -> Option<TxidSnapshot> {
        let mut parts = text.splitn(3, ':');
        let below = parts.next()?.parse().ok()?;
        let next = parts.next()?.parse().ok()?;
        let list = parts.next()?;
        let running = list.split(',').filter(|number| !number.is_empty()).map(|number| number.parse().ok());
        Some(TxidSnapshot { below, next, running: running.collect::<Option<Vec<u64>>>()? })
    }

    /// True if a transaction is over that is known by the lower half of its number.
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

/// One answer of the primary to the question for its position.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PositionRound {
    pub number: u64,
    pub history: WalHistory,
    /// The primary's position: all that anybody had seen when it was asked lies before.
    pub position: u64,
    pub snapshot: TxidSnapshot,
    /// When it was asked.
    pub asked_ms: u64,
}

/// How far a follower is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum LogFollowerState {
    /// There is no stream.
    Away,
    /// There is a stream; transactions that ran at its begin may not be visible yet.
    Starting {
        history: WalHistory,
        /// The first round that was asked for after its begin.
        round: u64,
        /// All transactions below must be over.
        below: Option<u64>,
    },
    Following(WalHistory),
}

/// The last round that is covered, and when it was asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct CoveredRound {
    /// 0: none.
    pub round: u64,
    pub asked_ms: u64,
}

impl CoveredRound {
    /// True if all that was visible when `round` was asked for is known, and the last news are at most so old.
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

/// A transaction: its number and the tables it changed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct DecodedTransaction {
    xid: u32,
    slots: Vec<Slot>,
}

/// Why a stream is of no use any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FollowError {
    #[error("the stream says something out of order")]
    Order,
    #[error("more than {PENDING_MAX} transactions committed without the primary saying that they are visible")]
    Pending,
}

/// Follows one database. See the module.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LogFollower {
    /// The slot of the whole database.
    database: Slot,
    standing: LogFollowerState,
    /// The stream was taken in up to here.
    position: u64,
    covered: CoveredRound,
    points: VecDeque<CoveragePoint>,
    /// The transaction that is being told.
    open: Option<DecodedTransaction>,
    /// Transactions told that may not be visible yet; their slots are raised.
    pending: Vec<DecodedTransaction>,
    /// The last round of this history.
    latest: Option<PositionRound>,
    /// The position of the round that is covered.
    covered_position: u64,
    floors: ChangeFloors,
    /// Nothing is admitted from a store that was proven before this round; none: nobody has wished that.
    forgotten: Option<u64>,
}

impl LogFollower {
    /// Nothing is followed yet.
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

    /// Earlier proofs are not admitted any more. `next` is the number of the next round that is begun.
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

    /// Transactions told that may not be visible yet.
    pub fn pending(&self) -> usize {
        self.pending.len()
    }

    /// The position and round that are covered now. While no log is followed, none is.
    pub fn covered(&self) -> CoveredRound {
        if matches!(self.standing, LogFollowerState::Following(_)) { self.covered } else { CoveredRound::default() }
    }

    /// When the oldest round was asked for that is not covered; none: all are.
    pub fn behind_since_ms(&self) -> Option<u64> {
        self.points.front().map(|point| point.covered.asked_ms)
    }

    /// A stream tells all that commits after `position` in the log. `next` is the number of the next round that is begun.
    pub fn start(&mut self, history: WalHistory, position: u64, next: u64) {
        self.standing = LogFollowerState::Starting { history, round: next, below: None };
        self.position = position;
    }

    /// A transaction begins to be told.
    pub fn begin(&mut self, xid: u32) -> Result<(), FollowError> {
        match self.open.replace(DecodedTransaction { xid, slots: Vec::new() }) {
            Some(_) => Err(FollowError::Order),
            None => Ok(()),
        }
    }

    /// It changed this.
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

    /// The whole transaction was told; its changes lie before `end`.
    pub fn commit(&mut self, end: u64, versions: &TableVersions) -> Result<(), FollowError> {
        let told = self.open.take().ok_or(FollowError::Order)?;
        if !told.slots.is_empty() {
            if self.pending.len() >= PENDING_MAX {
                return Err(FollowError::Pending);
            }
            // First of all: readers look at the cover before the slots.
            versions.raise(&told.slots);
            match &self.latest {
                // The round was ahead of the stream: to wait for the next one would keep the tables raised for nothing.
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

    /// All commits up to this position were told.
    pub fn reach(&mut self, position: u64) {
        self.position = self.position.max(position);
        self.cover();
    }

    /// The primary has told its position. True: another round is needed.
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
            // The oldest stays: it is the next one that can be covered.
            let mut at = 0;
            self.points.retain(|_| {
                at += 1;
                at > POINTS_MAX / 2 || at % 2 == 1
            });
        }
        self.cover();
        !self.pending.is_empty() || matches!(self.standing, LogFollowerState::Starting { .. })
    }

    /// The catalog has changed by which names became tables: transactions told just now, or not visible yet, count for the
    /// whole database.
    pub fn redefine(&mut self, versions: &TableVersions) {
        if let Some(open) = &mut self.open {
            open.slots = vec![self.database];
        }
        for told in self.pending.iter_mut().filter(|told| !told.slots.contains(&self.database)) {
            versions.raise(&[self.database]);
            told.slots.push(self.database);
        }
    }

    /// The stream has ended, or cannot be relied upon: the rest of it is not known. `next` as above.
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
        // The database's slot stands for them from here on.
        for told in self.pending.drain(..) {
            versions.settle_unseen(&told.slots, next);
        }
    }

    /// Nobody follows this database any more. The versions outlive that: the slots raised in them are settled, as changed.
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
