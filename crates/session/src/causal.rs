//! The state that a session has seen, and the servers that may therefore answer it. `causal::standbys` decides, `positions` holds
//! the facts.
//! Hot path: a few atomic loads, no lock, no allocation.

pub mod by_table;

use crate::causal::by_table::SnapshotExtent;
use crate::causal::positions::ClusterPositions;
pub use crate::causal::seen_positions::SETTING;
use crate::causal::seen_positions::{CausalReadState, ChangeToShow};
use crate::causal::standbys::{DiceThrow, Life, NodeSet, PrimaryContinuity, RoundCoverage, SeenRounds, dice_of_turn};
use crate::conn::Conn;
use crate::context::Context;
use crate::fault::{ErrorReport, sqlstate};
use crate::metrics::WorkerCounter;
use crate::session::Session;
use crate::statements::Statement;
use crate::table_changes::LateReads;
use crate::task::Us;
use std::cell::Cell;
use std::time::Instant;
use weir_config::{CausalReads, OnLost};
use weir_failover::cluster::ClusterView;
use weir_wire::write::{self, OutgoingReport};

/// Notes an answer that is about to reach the client.
#[inline]
pub fn heard(s: &mut Session, w: &Context) {
    let positions = &w.shared.positions;
    let mode = s.reads.causal.mode(w);
    let is_off = mode == CausalReads::Off;
    s.reads.causal.missed |= is_off;
    // Positions are those of the cluster's log.
    let Some(conn) = s.conn().filter(|conn| conn.status.address.shard == 0) else { return };
    if is_off && !positions.is_global() {
        return;
    }
    let next = positions.next_round();
    let node = conn.status.address.node;
    let is_primary = conn.is_to_primary(&w.view());
    if is_primary {
        s.reads.causal.seen.heard_primary(next);
        if positions.is_global() {
            positions.tell_primary(next);
        }
    } else {
        let standby = (node, conn.life.get());
        let (life, covers) = positions.standing(node);
        // Coverage of another or unknown life does not count.
        let covers = if life == standby.1 { covers.standbys } else { 0 };
        s.reads.causal.seen.heard_standby(standby, covers, next);
        if positions.is_global() {
            positions.tell_standby(standby, covers, next);
        }
    }
    // All reads stay on this standby for a time, which shows what it has shown; the first read elsewhere asks for the round.
    let is_asked_later = mode == CausalReads::Global && !is_primary;
    if !is_asked_later && positions.want(next) {
        wake_sampler(w);
    }
}

/// Notes an answer from the cache, visible before this round began.
#[inline]
pub fn heard_from_memory(s: &mut Session, w: &Context, round: u64) {
    let positions = &w.shared.positions;
    let is_off = s.reads.causal.mode(w) == CausalReads::Off;
    s.reads.causal.missed |= is_off;
    if is_off && !positions.is_global() {
        return;
    }
    s.reads.causal.seen.heard_primary(round);
    if positions.is_global() {
        positions.tell_primary(round);
    }
    if positions.want(round) {
        wake_sampler(w);
    }
}

/// Checks the first statement under another primary. Error: rows shown to the session may be lost, and the configuration wants the
/// statement to fail unsent.
#[cold]
pub fn on_new_primary(s: &mut Session, w: &Context) -> Result<(), ErrorReport> {
    let now = w.view().primary_since;
    let before = std::mem::replace(&mut s.reads.causal.primary_since, now);
    // The session follows the configuration reloads of the new primary.
    s.state.defaults.met.clear();
    if w.shared.positions.keep(&s.reads.causal.seen, before) == PrimaryContinuity::All {
        return Ok(());
    }
    s.reads.causal.seen = SeenRounds::default();
    s.reads.causal.seen.heard_primary(w.shared.positions.next_round());
    w.count(WorkerCounter::SessionsToldOfLoss);
    let text = "another server is the primary now, and is not known to have all that this session was shown";
    let hint = "Look again at what was read or written last.";
    match w.peek_config().failover.lost {
        OnLost::Error => {
            Err(ErrorReport::error(sqlstate::SERIALIZATION_FAILURE, text).detail("The statement was not sent.").hint(hint))
        }
        OnLost::Warning => {
            let report = OutgoingReport { severity: "WARNING", sqlstate: "01000", message: text, detail: "", hint, routine: "" };
            match s.intake.replay.as_mut().filter(|record| record.is_under_way()) {
                // A notice amid a rerun's answers would make them differ from the first run's.
                Some(record) => write::notice(record.warning.get_or_insert_default(), &report),
                None => write::notice(s.down.extra(&w.buffers), &report),
            }
            Ok(())
        }
    }
}

/// Notes what the answer of a read must show.
#[inline]
pub fn begin_read(s: &mut Session, w: &Context, statement: &Statement, begins: bool) {
    let mode = s.reads.causal.mode(w);
    s.reads.causal.is_careful = mode != CausalReads::Off;
    s.reads.causal.change = ChangeToShow::default();
    match mode {
        CausalReads::Off | CausalReads::Global => return begin_other(s, w, mode),
        CausalReads::Session | CausalReads::Tables => {}
    }
    if s.reads.causal.missed {
        hear_all(s, w);
    }
    let mut must_show = s.reads.causal.seen;
    if mode == CausalReads::Tables && !w.has_readers() {
        // Only the primary answers now; a standby that comes during the wait must show all.
        must_show.heard_primary(w.shared.positions.next_round());
    } else if mode == CausalReads::Tables {
        let newest = by_table::newest(s, w);
        if newest > must_show.primary {
            let extent = if begins || !s.reads.is_alone { SnapshotExtent::Open } else { SnapshotExtent::One };
            let change = by_table::to_show(s, w, statement, extent, newest);
            if change.round > must_show.primary {
                (s.reads.causal.change, must_show.primary) = (change, change.round);
            }
            want(w, change.round);
        }
    }
    let CausalReadState { stint, dice, .. } = &mut s.reads.causal;
    if must_show.is_empty() {
        *dice = w.dice();
    } else if stint.read(&must_show, w.shared.positions.answered_round()) == DiceThrow::New {
        *dice = w.even_dice();
    }
    s.reads.causal.must_show = must_show;
}

/// Begins a read that goes by no round, or by that of all sessions.
#[inline(never)]
fn begin_other(s: &mut Session, w: &Context, mode: CausalReads) {
    if mode == CausalReads::Off {
        s.reads.causal.must_show = SeenRounds::default();
        s.reads.causal.dice = w.dice();
        return;
    }
    if s.reads.causal.missed {
        hear_all(s, w);
    }
    s.reads.causal.must_show = w.shared.positions.told();
    s.reads.causal.dice = dice_of_turn(w.now_ms());
}

/// Covers answers that were not noted.
#[cold]
fn hear_all(s: &mut Session, w: &Context) {
    s.reads.causal.missed = false;
    s.reads.causal.seen.heard_primary(w.shared.positions.next_round());
}

/// Prepares a statement that any server may answer.
pub fn begin_blind(s: &mut Session) {
    (s.reads.causal.must_show, s.reads.causal.is_careful) = (SeenRounds::default(), false);
    s.reads.causal.change = ChangeToShow::default();
}

/// Returns the round that an answer from the cache must cover.
#[inline]
pub fn round_to_show(s: &Session, w: &Context) -> u64 {
    match s.reads.causal.mode(w) {
        CausalReads::Off => 0,
        CausalReads::Session | CausalReads::Tables if s.reads.causal.missed => w.shared.positions.next_round(),
        CausalReads::Session | CausalReads::Tables => s.reads.causal.seen.round(),
        CausalReads::Global => w.shared.positions.told().round(),
    }
}

#[inline]
pub fn fit(s: &Session, w: &Context, view: &ClusterView) -> NodeSet {
    if s.reads.causal.is_free() {
        return NodeSet::ALL;
    }
    let mut fit = NodeSet::NONE;
    for (at, node) in view.nodes.iter().enumerate() {
        let (life, covers) = w.shared.positions.standing(node.id);
        let need = s.reads.causal.must_show.need((node.id, life));
        // Standbys show a commit that waits for a synchronous standby before the primary does.
        let is_fit = if view.primary == Some(at) { w.shared.positions.primary_shows(need.standbys) } else { covers.reach(need) };
        if is_fit {
            fit.add(at);
        }
    }
    fit
}

/// True if the standby that answers the last read may answer this pipelined one, which the client may have sent later.
pub fn may_follow(s: &mut Session, w: &Context, statement: &Statement) -> bool {
    // Messages up to a Sync are one request.
    if s.reads.causal.mode(w) != CausalReads::Tables || s.replies().is_unsynced() {
        return true;
    }
    let newest = by_table::newest(s, w);
    let change = by_table::to_show(s, w, statement, SnapshotExtent::One, newest);
    change.round == 0 || s.conn().is_some_and(|conn| covers(w, conn, change.round))
}

/// Counts a read on a standby. `since`: start of its wait for replay.
pub fn note_wait(s: &Session, w: &Context, since: Option<Instant>) {
    let Some(since) = since else { return };
    let waited_us = w.now().saturating_duration_since(since).as_micros() as u64;
    note_late(s, w, |reads| {
        reads.waits += 1;
        reads.wait_us += waited_us;
    });
}

/// Counts a read on the primary for want of a standby that shows enough.
#[cold]
pub fn note_not_replayed(s: &Session, w: &Context) {
    note_late(s, w, |reads| reads.to_primary += 1);
}

/// Counts a read at the relation whose change it waited for, unless its own session made the change.
fn note_late(s: &Session, w: &Context, add: impl Fn(&mut LateReads)) {
    let change = s.reads.causal.change;
    if change.round > 0 {
        w.shared.changes.note_late(&s.account.database, change.slot, add);
    }
}

/// Returns the nodes outside `fit` that will soon fit.
pub fn hopeful(s: &Session, w: &Context, view: &ClusterView, fit: NodeSet) -> NodeSet {
    let wait_ms = w.peek_config().routing.causal_wait_ms;
    let mut hopeful = NodeSet::NONE;
    if wait_ms == 0 || s.reads.causal.is_free() {
        return hopeful;
    }
    let now_ms = w.millis(w.now());
    for (at, node) in view.nodes.iter().enumerate().filter(|(at, _)| !fit.has(*at)) {
        let positions = &w.shared.positions;
        let is_hopeful = match view.primary == Some(at) {
            true => positions.is_primary_hopeful(now_ms, wait_ms),
            false => positions.is_hopeful(node.id, now_ms, wait_ms),
        };
        if is_hopeful {
            hopeful.add(at);
        }
    }
    hopeful
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StandbyCoverage {
    All,
    /// The standby shows enough, but may have restarted between its last query and the opening of this connection.
    Unproven,
    Less,
}

#[inline]
pub fn shown_by(s: &Session, w: &Context, conn: &Conn) -> StandbyCoverage {
    if !s.reads.causal.is_careful {
        return StandbyCoverage::All;
    }
    standing(w, conn).shown(&s.reads.causal.must_show)
}

/// True if this server connection to a standby is proven to cover a round.
pub fn covers(w: &Context, conn: &Conn, round: u64) -> bool {
    standing(w, conn).reaches(round)
}

struct StandbyFacts {
    /// Node number and life.
    standby: (u16, Life),
    covers: RoundCoverage,
    /// True if the connection is proven to lead to this life.
    is_proven: bool,
}

impl StandbyFacts {
    /// `of_conn` caches the proven life of the connection opened at `opened_us`.
    #[inline]
    fn of(positions: &ClusterPositions, node: u16, opened_us: Us, of_conn: &Cell<Life>) -> StandbyFacts {
        let (life, _) = positions.standing(node);
        if of_conn.get() != life || life == 0 {
            of_conn.set(positions.life_of(node, opened_us).unwrap_or(0));
        }
        let (life, covers) = positions.standing(node);
        StandbyFacts { standby: (node, life), covers, is_proven: is_of_life(of_conn.get(), life) }
    }

    #[inline]
    fn shown(&self, must_show: &SeenRounds) -> StandbyCoverage {
        let need = must_show.need(self.standby);
        match self.is_proven {
            true if self.covers.reach(need) => StandbyCoverage::All,
            false if need == RoundCoverage::default() && self.standby.1 != 0 => StandbyCoverage::Unproven,
            false if need == RoundCoverage::default() => StandbyCoverage::All,
            true | false => StandbyCoverage::Less,
        }
    }

    #[inline]
    fn reaches(&self, round: u64) -> bool {
        self.is_proven && self.covers.primary >= round
    }
}

/// True unless this server connection may show less than `must_show`.
pub fn may_show(w: &Context, conn: &Conn, must_show: &SeenRounds) -> bool {
    standing(w, conn).shown(must_show) != StandbyCoverage::Less
}

#[inline]
fn standing(w: &Context, conn: &Conn) -> StandbyFacts {
    StandbyFacts::of(&w.shared.positions, conn.status.address.node, conn.opened_us, &conn.life)
}

/// Life 0 means unknown.
fn is_of_life(of_conn: Life, life: Life) -> bool {
    life != 0 && of_conn == life
}

/// Has the standby queried again to prove a connection's life; its position alone would give no reason to.
pub fn verify(w: &Context, conn: &Conn) {
    if !standing(w, conn).is_proven {
        w.shared.positions.verify(conn.opened_us);
    }
}

pub fn want(w: &Context, round: u64) {
    if w.shared.positions.want(round) {
        wake_sampler(w);
    }
}

#[cold]
pub fn wake_sampler(w: &Context) {
    w.program.sample();
}

pub mod asking;
#[cfg(test)]
mod exploration;
pub mod held_read;
pub mod positions;
pub mod seen_positions;
pub mod standbys;
pub mod waiting;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_is_of_the_life_that_it_was_opened_in() {
        assert!(is_of_life(3, 3));
        assert!(!is_of_life(2, 3) && !is_of_life(0, 3));
        assert!(!is_of_life(0, 0), "nobody knows the server's life");
    }

    #[test]
    fn a_connection_of_another_life_shows_nothing_for_certain() {
        let nothing = SeenRounds::default();
        let of_primary = SeenRounds { primary: 5, ..nothing };
        let of_standbys = SeenRounds { standbys: 5, last: (2, 7), ..nothing };
        // Its own word: it goes on showing that, as long as it lives.
        let of_itself = SeenRounds { standbys: 5, last: (1, 7), ..nothing };
        for (is_proven, life, covers, must_show, shown) in [
            (true, 7, 0, nothing, StandbyCoverage::All),
            (true, 7, 4, of_primary, StandbyCoverage::Less),
            (true, 7, 5, of_primary, StandbyCoverage::All),
            (true, 7, 4, of_standbys, StandbyCoverage::Less),
            (true, 7, 5, of_standbys, StandbyCoverage::All),
            (true, 7, 0, of_itself, StandbyCoverage::All),
            (false, 7, 9, of_primary, StandbyCoverage::Less),
            (false, 7, 9, of_standbys, StandbyCoverage::Less),
            (false, 7, 0, of_itself, StandbyCoverage::Unproven),
            (false, 7, 0, nothing, StandbyCoverage::Unproven),
            (false, 0, 0, nothing, StandbyCoverage::All),
            (false, 0, 9, of_primary, StandbyCoverage::Less),
        ] {
            let standing =
                StandbyFacts { standby: (1, life), covers: RoundCoverage { primary: covers, standbys: covers }, is_proven };
            assert_eq!(standing.shown(&must_show), shown, "{is_proven} {life} {covers} {must_show:?}");
            assert_eq!(standing.reaches(5), is_proven && covers >= 5, "{is_proven} {covers}");
        }
    }
}
