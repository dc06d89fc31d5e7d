//! Finds the standbys that have replayed all that a session, or any session, has seen: no read goes back in time.
//!
//! No IO and no clock: the program's `node_monitor` queries.
//!
//! The primary's position is queried in numbered rounds. Words of a server while round `n` is the last begun are covered by the
//! position of any later round: it is older than the query of round `n + 1`, and the primary's insert position only grows. So a
//! session keeps just a round, and a standby that has replayed the position of that round, or of a later one, may answer it.
//!
//! A standby may show a commit before the primary does, because the commit waits for `synchronous_standby_names`. The primary's
//! flushed position covers it, since no standby is sent more. The primary may answer only when the waiting commits are over
//! (`waiting`).
//!
//! Positions count only on one timeline of one cluster, during one life of a server.
//! Source: PostgreSQL manual, "Log-Shipping Standby Servers"; `GetXLogInsertRecPtr` and `GetXLogReplayRecPtr` in xlog.c.

use std::collections::VecDeque;
use weir_failover::cluster::ReplicationRole;

/// One uninterrupted connection to a server, and thus to one server process. Never 0.
pub type Life = u64;

/// Rounds that an answering server must cover.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SeenRounds {
    /// Covers all the primary said; 0 for nothing.
    pub primary: u64,
    /// Covers all that standbys said.
    pub standbys: u64,
    /// Number and life of the last standby, if it shows all that other standbys said. Life 0 for none.
    pub last: (u16, Life),
}

impl SeenRounds {
    /// `next`: the round after the last one begun.
    #[inline]
    pub fn heard_primary(&mut self, next: u64) {
        self.primary = self.primary.max(next);
    }

    /// `covers`: round up to which the standby shows what standbys had said.
    #[inline]
    pub fn heard_standby(&mut self, standby: (u16, Life), covers: u64, next: u64) {
        let knows_all = standby == self.last || covers >= self.standbys;
        // Otherwise each standby must cover the round.
        self.last = if knows_all { standby } else { (0, 0) };
        self.standbys = self.standbys.max(next);
    }

    #[inline]
    pub fn need(&self, standby: (u16, Life)) -> RoundCoverage {
        // A standby goes on showing what it has shown.
        let knows_all = standby == self.last && standby.1 != 0;
        RoundCoverage { primary: self.primary, standbys: if knows_all { 0 } else { self.standbys } }
    }

    #[inline]
    pub fn round(&self) -> u64 {
        self.primary.max(self.standbys)
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.primary == 0 && self.standbys == 0
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrimaryChange {
    pub since: u64,
    /// Node number and life.
    pub standby: (u16, Life),
    pub covers: RoundCoverage,
}

/// Judges if the new primary shows all that a session was shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PrimaryContinuity {
    All,
    NotProven,
}

impl PrimaryChange {
    pub fn keeps(&self, seen: &SeenRounds) -> PrimaryContinuity {
        if self.covers.reach(seen.need(self.standby)) { PrimaryContinuity::All } else { PrimaryContinuity::NotProven }
    }
}

/// 0 for none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct RoundCoverage {
    /// Covers the primary's words.
    pub primary: u64,
    /// Covers the standbys' words.
    pub standbys: u64,
}

impl RoundCoverage {
    #[inline]
    pub fn reach(self, need: RoundCoverage) -> bool {
        self.primary >= need.primary && self.standbys >= need.standbys
    }
}

/// Reads per dice throw. A change of node costs a wait for the next round, so it must be rare. The number does not depend on the
/// node: weights are kept.
const STINT_READS: u32 = 8;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadStint {
    left: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiceThrow {
    Kept,
    New,
}

impl ReadStint {
    /// `answered`: the last round that the primary has answered.
    #[inline]
    pub fn read(&mut self, seen: &SeenRounds, answered: u64) -> DiceThrow {
        // Once a round has covered all that was seen, a change of node costs no wait. Only the client's pauses decide, so that no
        // node keeps sessions longer than another.
        let is_covered = answered >= seen.round();
        match self.left.checked_sub(1) {
            Some(left) if !is_covered => {
                self.left = left;
                DiceThrow::Kept
            }
            Some(_) | None => {
                self.left = STINT_READS - 1;
                DiceThrow::New
            }
        }
    }
}

/// Time for which all reads with `causal_reads = global` go to one node. Another node shows as much only after a round: with a
/// throw per read, each would wait for one.
const TURN_MS: u64 = 50;

#[inline]
pub fn dice_of_turn(now_ms: u64) -> u32 {
    ((now_ms / TURN_MS) as u32).wrapping_mul(crate::routing::pick::EVEN_STEP)
}

/// The history that positions belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PositionEra {
    /// Node number and life.
    pub primary: (u16, Life),
    /// `system_identifier` of the cluster.
    pub system: u64,
    pub timeline: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct PrimaryPosition {
    round: u64,
    position: u64,
    /// Time at which a round first found the position.
    since_ms: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ReplayReport {
    pub system: u64,
    /// `None`: no stream, so the history of the position is unknown.
    pub timeline: Option<u32>,
    pub position: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StandbyProgress {
    pub covers: RoundCoverage,
    pub lag: ReplayLag,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReplayLag {
    Nothing,
    /// Milliseconds.
    Since(u64),
    /// The position is not on the primary's history.
    #[default]
    Unknown,
}

/// Limit; beyond it every second position of the older half is dropped. A standby far behind then seems to cover a little less.
const POINTS_MAX: usize = 512;

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct PositionBoard {
    era: Option<PositionEra>,
    /// Of the last era. A restart of the primary begins a new one too: it may have lost WAL not flushed.
    points: PositionHistory,
    flushed: PositionHistory,
    standbys: Vec<StandbyPosition>,
}

/// Positions by rounds, both ascending.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct PositionHistory(VecDeque<PrimaryPosition>);

impl PositionHistory {
    fn push(&mut self, round: u64, position: u64, now_ms: u64) {
        match self.0.back_mut() {
            Some(last) if last.position == position => last.round = round,
            _ => self.0.push_back(PrimaryPosition { round, position, since_ms: now_ms }),
        }
        if self.0.len() > POINTS_MAX {
            let (mut at, half) = (0, POINTS_MAX / 2);
            self.0.retain(|_| {
                at += 1;
                at > half || at % 2 == 0
            });
        }
    }

    /// Returns the round replayed, and the time since which a later position is known.
    fn covered(&self, position: u64) -> (u64, Option<u64>) {
        let after = self.0.partition_point(|point| point.position <= position);
        let covers = after.checked_sub(1).and_then(|at| self.0.get(at)).map_or(0, |point| point.round);
        (covers, self.0.get(after).map(|point| point.since_ms))
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct StandbyPosition {
    node: u16,
    said: ReplayReport,
    /// Valid without the primary too: a server keeps what it has replayed.
    covers: RoundCoverage,
}

impl PositionBoard {
    pub fn primary_said(&mut self, era: PositionEra, round: u64, position: u64, flushed: u64, now_ms: u64) {
        let went_back = |points: &PositionHistory, position| {
            points.0.back().is_some_and(|last| position < last.position || round <= last.round)
        };
        if self.era != Some(era) || went_back(&self.points, position) || went_back(&self.flushed, flushed) {
            self.points.0.clear();
            self.flushed.0.clear();
            self.era = Some(era);
        }
        self.points.push(round, position, now_ms);
        self.flushed.push(round, flushed, now_ms);
        for at in 0..self.standbys.len() {
            self.judge(at);
        }
    }

    pub fn standby_said(&mut self, node: u16, said: ReplayReport) {
        let at = self.standbys.iter().position(|standby| standby.node == node);
        let at = at.unwrap_or_else(|| {
            self.standbys.push(StandbyPosition { node, said, covers: RoundCoverage::default() });
            self.standbys.len() - 1
        });
        let known = &mut self.standbys[at].said;
        // Between two streams a standby goes on replaying WAL of the last one, whose history is known.
        if said.timeline.is_some() || known.timeline.is_none() {
            *known = said;
        }
        self.judge(at);
    }

    fn judge(&mut self, at: usize) {
        let Some((covers, _)) = self.covered(&self.standbys[at].said) else { return };
        let before = &mut self.standbys[at].covers;
        before.primary = before.primary.max(covers.primary);
        before.standbys = before.standbys.max(covers.standbys);
    }

    /// Forgets a standby whose monitoring connection has ended.
    pub fn lost(&mut self, node: u16) {
        self.standbys.retain(|standby| standby.node != node);
    }

    /// Returns `None` on another history.
    fn covered(&self, said: &ReplayReport) -> Option<(RoundCoverage, Option<u64>)> {
        let era = self.era?;
        if said.system != era.system || said.timeline != Some(era.timeline) {
            return None;
        }
        let ((primary, behind), (standbys, unsent)) = (self.points.covered(said.position), self.flushed.covered(said.position));
        Some((RoundCoverage { primary, standbys }, behind.into_iter().chain(unsent).min()))
    }

    pub fn mark(&self, node: u16) -> StandbyProgress {
        let Some(standby) = self.standbys.iter().find(|standby| standby.node == node) else { return StandbyProgress::default() };
        let lag = match self.covered(&standby.said) {
            Some((_, since)) => since.map_or(ReplayLag::Nothing, ReplayLag::Since),
            None => ReplayLag::Unknown,
        };
        StandbyProgress { covers: standby.covers, lag }
    }

    pub fn round(&self) -> u64 {
        self.points.0.back().map_or(0, |point| point.round)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RoleAgreement {
    Agrees,
    Contradicts,
    /// The role changed during the query: the answer means nothing.
    Stale,
}

/// Nodes that contradict their role in the view. While there are any, rounds prove nothing. A new view starts without doubts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct RoleDoubts(Vec<u16>);

impl RoleDoubts {
    /// `asked`: the role when queried; `now`: the role in the view.
    pub fn said(&mut self, node: u16, asked: ReplicationRole, now: Option<ReplicationRole>, in_recovery: bool) -> RoleAgreement {
        if now != Some(asked) {
            // The view may have changed for the reason in the answer; a doubt noted here would never end.
            return RoleAgreement::Stale;
        }
        self.0.retain(|doubted| *doubted != node);
        if in_recovery == (asked == ReplicationRole::Standby) {
            return RoleAgreement::Agrees;
        }
        self.0.push(node);
        RoleAgreement::Contradicts
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// True if the standby has lagged for less than `wait_ms`.
pub fn is_hopeful(behind_since_ms: Option<u64>, now_ms: u64, wait_ms: u64) -> bool {
    behind_since_ms.is_none_or(|since| now_ms.saturating_sub(since) < wait_ms)
}

/// Source: `SizeOfXLogShortPHD`, `SizeOfXLogLongPHD`.
const PAGE_HEADER_BYTES: u64 = 24;
const SEGMENT_HEADER_BYTES: u64 = 40;
/// Other sizes need a custom build of PostgreSQL.
const PAGE_BYTES: u64 = 8192;

/// Returns the end of the last record before an insert position. At a page start PostgreSQL names the place behind the page header,
/// a standby the record's end: without this function no standby would reach the position until more is written.
pub fn end_of_record(insert: u64, segment_bytes: u64) -> u64 {
    let is_at = |header: u64, bytes: u64| bytes > 0 && insert % bytes == header;
    if is_at(SEGMENT_HEADER_BYTES, segment_bytes) {
        insert - SEGMENT_HEADER_BYTES
    } else if is_at(PAGE_HEADER_BYTES, PAGE_BYTES) && !(segment_bytes > 0 && insert % segment_bytes == PAGE_HEADER_BYTES) {
        insert - PAGE_HEADER_BYTES
    } else {
        insert
    }
}

/// Parses a position such as `16/B374D848`.
pub fn read_position(text: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(text).ok()?;
    let (high, low) = text.split_once('/')?;
    Some((u64::from(u32::from_str_radix(high, 16).ok()?) << 32) | u64::from(u32::from_str_radix(low, 16).ok()?))
}

/// Nodes of a view, by index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeSet(u128);

impl NodeSet {
    pub const ALL: NodeSet = NodeSet(u128::MAX);
    pub const NONE: NodeSet = NodeSet(0);

    #[inline]
    pub fn has(self, at: usize) -> bool {
        u32::try_from(at).is_ok_and(|at| self.0.checked_shr(at).is_some_and(|rest| rest & 1 == 1))
    }

    #[inline]
    pub fn add(&mut self, at: usize) {
        self.0 |= u32::try_from(at).ok().and_then(|at| 1u128.checked_shl(at)).unwrap_or(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: (u16, Life) = (1, 1);
    const B: (u16, Life) = (2, 1);
    const ERA: PositionEra = PositionEra { primary: (0, 1), system: 7, timeline: 1 };

    fn replayed(position: u64) -> ReplayReport {
        ReplayReport { system: 7, timeline: Some(1), position }
    }

    fn both(round: u64) -> RoundCoverage {
        RoundCoverage { primary: round, standbys: round }
    }

    fn covers(board: &PositionBoard, node: u16) -> u64 {
        board.mark(node).covers.primary
    }

    #[test]
    fn an_answer_is_in_doubt_for_as_long_as_its_node_says_so() {
        let mut doubts = RoleDoubts::default();
        assert_eq!(doubts.said(1, ReplicationRole::Standby, Some(ReplicationRole::Standby), true), RoleAgreement::Agrees);
        assert_eq!(doubts.said(1, ReplicationRole::Standby, Some(ReplicationRole::Standby), false), RoleAgreement::Contradicts);
        assert!(!doubts.is_empty());
        assert_eq!(doubts.said(0, ReplicationRole::Primary, Some(ReplicationRole::Primary), false), RoleAgreement::Agrees);
        assert!(!doubts.is_empty(), "another node's word ends nothing");
        assert_eq!(doubts.said(1, ReplicationRole::Standby, Some(ReplicationRole::Standby), true), RoleAgreement::Agrees);
        assert!(doubts.is_empty());
        // Asked as a standby, and promoted before the answer came.
        assert_eq!(doubts.said(1, ReplicationRole::Standby, Some(ReplicationRole::Primary), false), RoleAgreement::Stale);
        assert_eq!(doubts.said(1, ReplicationRole::Standby, None, false), RoleAgreement::Stale);
        assert!(doubts.is_empty());
    }

    fn need(seen: &SeenRounds, standby: (u16, Life)) -> u64 {
        let need = seen.need(standby);
        need.primary.max(need.standbys)
    }

    #[test]
    fn a_new_primary_keeps_what_it_covered_and_what_it_showed_itself() {
        let switch = PrimaryChange { since: 5, standby: A, covers: both(7) };
        let mut seen = SeenRounds::default();
        assert_eq!(switch.keeps(&seen), PrimaryContinuity::All, "nothing was seen");
        seen.heard_primary(7);
        assert_eq!(switch.keeps(&seen), PrimaryContinuity::All);
        seen.heard_standby(A, 8, 9);
        assert_eq!(switch.keeps(&seen), PrimaryContinuity::All, "it showed that itself");
        seen.heard_standby(B, 0, 9);
        assert_eq!(switch.keeps(&seen), PrimaryContinuity::NotProven, "another standby may have had more");
        let mut seen = SeenRounds::default();
        seen.heard_primary(8);
        assert_eq!(switch.keeps(&seen), PrimaryContinuity::NotProven);
    }

    #[test]
    fn a_standby_that_shows_more_than_the_primary_says_less_of_others() {
        let mut board = PositionBoard::default();
        board.primary_said(ERA, 1, 100, 100, 10);
        // A commit stands at 150, and waits: the snapshot is as before.
        board.primary_said(ERA, 2, 100, 150, 20);
        board.standby_said(1, replayed(150));
        board.standby_said(2, replayed(100));
        assert_eq!(board.mark(1), StandbyProgress { covers: both(2), lag: ReplayLag::Nothing });
        assert_eq!(
            board.mark(2),
            StandbyProgress { covers: RoundCoverage { primary: 2, standbys: 1 }, lag: ReplayLag::Since(20) }
        );
        let mut seen = SeenRounds::default();
        seen.heard_primary(2);
        assert!(board.mark(2).covers.reach(seen.need(B)), "the primary does not show it");
        seen.heard_standby(A, 1, 2);
        assert!(!board.mark(2).covers.reach(seen.need(B)), "but the standby did");
        assert!(board.mark(1).covers.reach(seen.need(A)));
    }

    #[test]
    fn a_busy_session_throws_for_several_reads_and_one_that_pauses_for_each() {
        let (mut stint, mut seen) = (ReadStint::default(), SeenRounds::default());
        seen.heard_primary(7);
        let throws: Vec<DiceThrow> = (0..2 * STINT_READS).map(|_| stint.read(&seen, 6)).collect();
        let is_new = |(at, throw): (usize, &DiceThrow)| (*throw == DiceThrow::New) == (at as u32).is_multiple_of(STINT_READS);
        assert!(throws.iter().enumerate().all(is_new), "{throws:?}");
        assert_eq!(
            [stint.read(&seen, 7), stint.read(&seen, 7), stint.read(&seen, 6)],
            [DiceThrow::New, DiceThrow::New, DiceThrow::Kept]
        );
    }

    #[test]
    fn reads_of_all_take_turns_on_the_nodes() {
        let dice = |turn: u64, ms: u64| dice_of_turn(turn * TURN_MS + ms);
        assert!((0..TURN_MS).all(|ms| dice(7, ms) == dice(7, 0)), "one turn has one throw");
        // Also for a client that comes in every second turn.
        for step in [1, 2, 3] {
            let upper = (0..1000).filter(|turn| dice(turn * step, 0) >= 1 << 31).count();
            assert!((450..=550).contains(&upper), "{upper} of 1000 turns for one of two nodes, each {step}. turn");
        }
    }

    #[test]
    fn what_the_primary_said_is_needed_of_every_standby() {
        let mut seen = SeenRounds::default();
        assert!(seen.is_empty());
        seen.heard_primary(5);
        assert_eq!([need(&seen, A), need(&seen, B)], [5, 5]);
    }

    #[test]
    fn what_a_standby_showed_is_needed_of_all_others() {
        let mut seen = SeenRounds::default();
        seen.heard_primary(5);
        seen.heard_standby(A, 5, 9);
        assert_eq!([need(&seen, A), need(&seen, B)], [5, 9]);
        assert_eq!(need(&seen, (1, 2)), 9, "after its restart a standby may have gone back");
    }

    #[test]
    fn a_standby_that_may_lack_what_another_said_vouches_for_nothing() {
        let mut seen = SeenRounds::default();
        seen.heard_standby(A, 0, 9);
        seen.heard_standby(B, 8, 10);
        assert_eq!([need(&seen, A), need(&seen, B)], [10, 10]);
        seen.heard_standby(B, 10, 11);
        assert_eq!([need(&seen, A), need(&seen, B)], [11, 0]);
    }

    #[test]
    fn a_standby_covers_the_last_round_whose_position_it_has_replayed() {
        let mut board = PositionBoard::default();
        board.standby_said(1, replayed(100));
        assert_eq!(board.mark(1), StandbyProgress::default(), "no primary was heard yet");
        board.primary_said(ERA, 1, 100, 100, 10);
        assert_eq!(board.mark(1), StandbyProgress { covers: both(1), lag: ReplayLag::Nothing });
        board.primary_said(ERA, 2, 200, 200, 20);
        board.primary_said(ERA, 3, 300, 300, 30);
        assert_eq!(board.mark(1), StandbyProgress { covers: both(1), lag: ReplayLag::Since(20) });
        board.standby_said(1, replayed(299));
        assert_eq!(board.mark(1), StandbyProgress { covers: both(2), lag: ReplayLag::Since(30) });
        board.primary_said(ERA, 4, 300, 300, 40);
        board.standby_said(1, replayed(300));
        assert_eq!(board.mark(1), StandbyProgress { covers: both(4), lag: ReplayLag::Nothing }, "nothing was written in round 4");
    }

    #[test]
    fn an_idle_primary_needs_no_new_word_of_a_standby() {
        let mut board = PositionBoard::default();
        board.standby_said(1, replayed(100));
        for round in 1..1000 {
            board.primary_said(ERA, round, 100, 100, round);
        }
        assert_eq!((covers(&board, 1), board.points.0.len()), (999, 1));
    }

    #[test]
    fn positions_of_other_timelines_and_clusters_do_not_count() {
        let mut board = PositionBoard::default();
        board.primary_said(PositionEra { timeline: 2, ..ERA }, 8, 100, 100, 0);
        // It was ahead on the old timeline, and cannot follow.
        board.standby_said(1, replayed(500));
        assert_eq!(board.mark(1), StandbyProgress::default());
        board.standby_said(2, ReplayReport { timeline: Some(2), system: 8, position: 500 });
        assert_eq!(board.mark(2), StandbyProgress::default());
        board.standby_said(1, ReplayReport { timeline: Some(2), ..replayed(500) });
        assert_eq!(board.mark(1), StandbyProgress { covers: both(8), lag: ReplayLag::Nothing });
    }

    #[test]
    fn a_promotion_begins_anew_but_what_was_replayed_stays_so() {
        let mut board = PositionBoard::default();
        board.primary_said(ERA, 7, 100, 100, 0);
        board.standby_said(1, replayed(150));
        board.primary_said(ERA, 8, 200, 200, 0);
        board.primary_said(PositionEra { primary: (2, 1), timeline: 2, ..ERA }, 9, 180, 180, 0);
        assert_eq!(board.mark(1), StandbyProgress { covers: both(7), lag: ReplayLag::Unknown });
        board.standby_said(1, ReplayReport { timeline: Some(2), ..replayed(179) });
        assert_eq!(board.mark(1), StandbyProgress { covers: both(7), lag: ReplayLag::Since(0) });
        board.standby_said(1, ReplayReport { timeline: Some(2), ..replayed(180) });
        assert_eq!(board.mark(1), StandbyProgress { covers: both(9), lag: ReplayLag::Nothing });
    }

    #[test]
    fn a_standby_that_does_not_stream_gains_nothing() {
        let mut board = PositionBoard::default();
        board.primary_said(ERA, 1, 100, 100, 0);
        board.primary_said(ERA, 2, 200, 200, 0);
        board.standby_said(1, replayed(100));
        board.standby_said(1, ReplayReport { timeline: None, ..replayed(900) });
        assert_eq!(covers(&board, 1), 1, "but loses nothing either");
        board.lost(1);
        assert_eq!(board.mark(1), StandbyProgress::default());
        board.standby_said(1, ReplayReport { timeline: None, ..replayed(900) });
        assert_eq!(board.mark(1), StandbyProgress::default());
    }

    #[test]
    fn a_primary_that_starts_anew_may_have_lost_what_it_had_not_flushed() {
        let mut board = PositionBoard::default();
        board.primary_said(ERA, 1, 200, 200, 0);
        board.primary_said(ERA, 2, 300, 300, 0);
        board.standby_said(1, replayed(250));
        // At 250 stands something else now.
        board.primary_said(PositionEra { primary: (0, 2), ..ERA }, 3, 260, 260, 0);
        assert_eq!(covers(&board, 1), 1);
        board.standby_said(1, replayed(260));
        assert_eq!(covers(&board, 1), 3);
    }

    #[test]
    fn a_standby_that_lags_for_long_costs_no_memory() {
        let mut board = PositionBoard::default();
        board.standby_said(1, replayed(7000));
        for round in 1..100_000 {
            board.primary_said(ERA, round, round * 10, round * 10, round);
        }
        assert!(board.points.0.len() <= POINTS_MAX + 1);
        let covers = covers(&board, 1);
        assert!(covers <= 700, "{covers}");
        assert!(
            board.points.0.iter().zip(board.points.0.iter().skip(1)).all(|(a, b)| a.round < b.round && a.position < b.position)
        );
    }

    #[test]
    fn the_begin_of_a_page_is_the_end_of_the_record_before_it() {
        const SEGMENT: u64 = 16 << 20;
        for (insert, end) in [
            (SEGMENT + 40, SEGMENT),
            (SEGMENT + 8192 + 24, SEGMENT + 8192),
            (SEGMENT + 8192 + 40, SEGMENT + 8192 + 40),
            (SEGMENT + 8192 + 32, SEGMENT + 8192 + 32),
            (SEGMENT + 24, SEGMENT + 24),
            (SEGMENT + 8192, SEGMENT + 8192),
        ] {
            assert_eq!(end_of_record(insert, SEGMENT), end, "{insert}");
        }
    }

    #[test]
    fn waiting_is_for_those_who_keep_up() {
        assert!(is_hopeful(None, 1000, 20));
        assert!(is_hopeful(Some(990), 1000, 20));
        assert!(!is_hopeful(Some(980), 1000, 20));
    }

    #[test]
    fn positions_are_bytes() {
        assert_eq!(read_position(b"0/16B3748"), Some(0x16B_3748));
        assert_eq!(read_position(b"16/B374D848"), Some(0x16_B374_D848));
        assert_eq!(
            [read_position(b"x"), read_position(b"/"), read_position(b"1/123456789"), read_position(b"\xff/1")],
            [None; 4]
        );
    }

    #[test]
    fn nodes_are_bits() {
        let mut nodes = NodeSet::NONE;
        nodes.add(3);
        nodes.add(127);
        nodes.add(500);
        assert_eq!([nodes.has(3), nodes.has(4), nodes.has(127), nodes.has(500)], [true, false, true, false]);
        assert!(NodeSet::ALL.has(0) && NodeSet::ALL.has(127));
    }
}
