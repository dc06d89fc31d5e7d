//! Reads of a transaction that stays on a standby, with a snapshot per statement: each must show the commits since the last.

use crate::causal::by_table::{self, SnapshotExtent};
use crate::causal::standbys::SeenRounds;
use crate::context::Context;
use crate::fault::ErrorReport;
use crate::query_cache::cache_side::FreshnessWait;
use crate::session::{Session, WITHIN};
use crate::statements::{Statement, StatementTrait};
use crate::{causal, lazy_begin};
use std::time::Duration;
use weir_config::CausalReads;

/// Longer than elsewhere: the read cannot move to another server.
const WITHIN_WAIT: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeldReadOutcome {
    Shown,
    /// Once woken, the read is judged again.
    Waits,
    Late,
}

#[inline]
pub fn judge(s: &mut Session, w: &Context, statement: &Statement) -> HeldReadOutcome {
    if !s.reads.causal.renews || s.transaction() != WITHIN || !s.is_on_standby() || !statement.has(StatementTrait::Read) {
        return HeldReadOutcome::Shown;
    }
    judge_reader(s, w, statement)
}

fn judge_reader(s: &mut Session, w: &Context, statement: &Statement) -> HeldReadOutcome {
    let positions = &w.shared.positions;
    // The need of the statement does not grow while it waits.
    let must_show = match (s.reads.causal.mode(w), s.cache.wait()) {
        (CausalReads::Off | CausalReads::Session, _) => return HeldReadOutcome::Shown,
        (CausalReads::Tables, Some(wait)) => SeenRounds { primary: wait.round, ..SeenRounds::default() },
        (CausalReads::Tables, None) => {
            let newest = by_table::newest(s, w);
            let change = by_table::to_show(s, w, statement, SnapshotExtent::One, newest);
            SeenRounds { primary: change.round, ..SeenRounds::default() }
        }
        (CausalReads::Global, Some(wait)) => SeenRounds { primary: wait.round, standbys: wait.round, ..SeenRounds::default() },
        (CausalReads::Global, None) => positions.told(),
    };
    let is_shown = |s: &Session| s.conn().is_none_or(|conn| causal::may_show(w, conn, &must_show));
    if is_shown(s) {
        s.cache.end_wait();
        return HeldReadOutcome::Shown;
    }
    let wait = s.cache.wait().unwrap_or_else(|| FreshnessWait { round: must_show.round(), until: w.now() + WITHIN_WAIT });
    if w.now() >= wait.until {
        s.cache.end_wait();
        return HeldReadOutcome::Late;
    }
    s.cache.waits().fresh = Some(wait);
    positions.enlist(s.waiter(w), s.conn().map_or(0, |conn| conn.opened_us));
    // List first, then check: news in between is seen, later news wakes.
    if is_shown(s) {
        s.wake();
    } else {
        positions.want(wait.round);
        causal::wake_sampler(w);
    }
    s.host.wake_at(wait.until);
    HeldReadOutcome::Waits
}

#[cold]
pub fn cannot_stay(s: &mut Session) -> ErrorReport {
    lazy_begin::cannot_stay(&mut s.wrote.shuns_standbys, "it has not replayed all that the statement must show (causal_reads)")
}
