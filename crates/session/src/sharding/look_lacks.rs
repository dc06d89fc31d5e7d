//! Facts about spread tables that nobody knows for a moment, and for which a statement waits (`look_wait`).

use crate::context::Context;
use crate::session::Session;
use crate::sharding::definitions;
use crate::sharding::engine_standing;
use crate::sharding::kept_plan::{TextPlan, TextRefusal};
use crate::sharding::known_sharding::{EngineLack, EngineStanding};
use crate::sharding::spread_write::ChangedPart;
use crate::sharding::unaimed::Unaimed;
use crate::{lazy_begin, participants};
use weir_shard::ShardRefusal;

pub(super) fn refuse_by_position(s: &Session, w: &Context, plan: &TextPlan) -> Result<(), Unaimed> {
    if !plan.is_by_position() {
        return Ok(());
    }
    if definitions::has_changed(s, ChangedPart::Columns) {
        return Err(definitions::columns_changed().into());
    }
    lack_of_columns(s, w).map_or(Ok(()), |lack| Err(Unaimed::AwaitsLook(lack)))
}

/// Why a row whose key stands by the order of the columns has no known shard for now: these are changing.
#[cold]
fn lack_of_columns(s: &Session, w: &Context) -> Option<EngineLack> {
    match s.account.known.sharding.engine_on(w.view().primary_id()) {
        EngineStanding::Waits(lack @ (EngineLack::ColumnsChange | EngineLack::Follows)) => Some(lack),
        EngineStanding::Waits(_) | EngineStanding::Ready | EngineStanding::Unready => None,
    }
}

/// Why a text is perhaps refused for now only: a relation of its names was just made or dropped.
#[cold]
pub(super) fn lack_of_tables(s: &Session, w: &Context, refusal: &TextRefusal) -> Option<EngineLack> {
    match refusal {
        TextRefusal::UnknownName(_) if engine_standing::awaits_catalog(s) => return Some(EngineLack::CatalogUnread),
        TextRefusal::UnknownName(_) | TextRefusal::Plan(ShardRefusal::Definition, _) => {}
        _ => return None,
    }
    let is_own = definitions::has_changed(s, ChangedPart::Columns);
    if is_own { None } else { lack_of_columns(s, w) }
}

/// Why nobody knows for now if the session's transaction may go on to other shards.
#[cold]
pub(super) fn lack_of_span(s: &Session, w: &Context) -> Option<EngineLack> {
    let may_span = participants::spans_shards(&w.peek_config(), &s.account.known) && s.pin().is_none();
    (may_span && lazy_begin::awaits_defaults(s)).then_some(EngineLack::DefaultsUnread)
}
