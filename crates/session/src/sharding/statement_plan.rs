//! The plan of the session's next statement, made once for each meaning of its names.

use crate::checkout;
use crate::context::Context;
use crate::routing::classify;
use crate::session::{IDLE, Session};
use crate::sharding::definitions;
use crate::sharding::kept_plan::{TextPlan, TextRefusal};
use crate::sharding::known_sharding::EngineLack;
use crate::sharding::look_lacks::lack_of_tables;
use crate::sharding::shard_target::BoundStatements;
use crate::sharding::spread_write::ChangedPart;
use crate::sharding::text_plan::{NameCertainty, PlanFacts, may_be_kept, plan_of, says_index};
use crate::sharding::unaimed::{TextPlace, Unaimed, unknown};
use crate::sharding::unread_readers::UnreadCode;
use crate::sharding::{engine_standing, unread_readers};
use crate::statements::{Statement, StatementTrait};
use std::rc::Rc;

/// The meaning of names, if it is known.
pub(super) fn with_facts<T>(s: &Session, look: impl FnOnce(&PlanFacts<'_>) -> T) -> Option<T> {
    let known = &s.account.known;
    let (tables, catalog) = (known.sharding.tables()?, known.catalog()?);
    let path = classify::path_in(s, &catalog);
    let certainty = NameCertainty::Known;
    Some(look(&PlanFacts { tables: &tables, catalog: &catalog, path: &path, certainty, prepared: &s.state.by_sql }))
}

/// The plan of a text, made once for each meaning of its names.
pub(super) fn text_plan(
    s: &mut Session,
    w: &Context,
    statement: &Statement,
    place: TextPlace<'_>,
) -> Result<Rc<TextPlan>, Unaimed> {
    match unread_readers::refusal(s, statement) {
        Some(UnreadCode::OfTransaction(report)) => return Err(report.into()),
        Some(UnreadCode::Awaited) => return Err(Unaimed::AwaitsLook(EngineLack::ReadersUnread)),
        None => {}
    }
    if statement.has(StatementTrait::Redefines) {
        let text = place.text(s).unwrap_or_default().to_vec();
        unread_readers::note(s, &text)?;
    }
    if s.status() != IDLE && statement.has(StatementTrait::Writes) && engine_standing::awaits_catalog(s) {
        // A write that might leave anything would keep its transaction on one shard.
        return Err(Unaimed::AwaitsLook(EngineLack::CatalogUnread));
    }
    if s.upstream().is_some_and(|upstream| !upstream.left.names_are_certain()) {
        return uncertain_plan(s, w, statement, place).map(Rc::new);
    }
    let scope = (classify::place_of(s, w), s.account.known.sharding.edition());
    if let Some(known) = statement.sharding.of(scope) {
        return Ok(known);
    }
    let made = Rc::new(make_plan(s, statement, place, NameCertainty::Known)?);
    if let TextPlan::Refused(refusal) = &*made
        && let Some(lack) = lack_of_tables(s, w, refusal)
    {
        return Err(Unaimed::AwaitsLook(lack));
    }
    // Without a catalog the scope says nothing of what names mean.
    // Names of indexes change without another edition of the tables.
    let is_lasting = |text: &[u8]| may_be_kept(statement, text) && !says_index(statement, text);
    if scope.0 != 0 && place.text(s).is_some_and(is_lasting) {
        statement.sharding.keep(scope, made.clone());
    }
    Ok(made)
}

/// The plan while the server may know another `search_path` or temporary tables. Where these count, a session outside of a transaction is asked
/// for them first.
#[cold]
fn uncertain_plan(s: &mut Session, w: &Context, statement: &Statement, place: TextPlace<'_>) -> Result<TextPlan, Unaimed> {
    let plan = make_plan(s, statement, place, NameCertainty::Unknown)?;
    // A Sync of Weir's would commit what ran since the client's last one.
    let may_end = s.sharding.bound() != BoundStatements::Any || s.lazy_begin.is_open();
    if matches!(plan, TextPlan::Refused(TextRefusal::UnknownName(_))) && s.transaction() == IDLE && may_end {
        checkout::leave_reader(s, w);
        if !s.replies().is_empty() {
            return Err(Unaimed::Hold);
        }
        if !s.has_server() {
            return make_plan(s, statement, place, NameCertainty::Known);
        }
    }
    Ok(plan)
}

#[cold]
fn make_plan(s: &Session, statement: &Statement, place: TextPlace<'_>, certainty: NameCertainty) -> Result<TextPlan, Unaimed> {
    let text = place.text(s).unwrap_or_default();
    let known = &s.account.known;
    let (Some(tables), Some(catalog)) = (known.sharding.tables(), known.catalog()) else {
        return if names_nothing(statement) && may_be_kept(statement, text) {
            Ok(TextPlan::Anywhere)
        } else {
            Err(unknown(s).into())
        };
    };
    let path = classify::path_in(s, &catalog);
    let facts = PlanFacts { tables: &tables, catalog: &catalog, path: &path, certainty, prepared: &s.state.by_sql };
    let plan = plan_of(statement, text, &facts);
    let hangs_on_indexes = matches!(plan, TextPlan::Cluster | TextPlan::Refused(TextRefusal::Definition(_)));
    if known.sharding.indexes.is_doubtful() && hangs_on_indexes && says_index(statement, text) {
        if definitions::has_changed(s, ChangedPart::Indexes) {
            return Err(definitions::indexes_changed().into());
        }
        return Err(Unaimed::AwaitsLook(EngineLack::IndexesChange));
    }
    Ok(plan)
}

fn names_nothing(statement: &Statement) -> bool {
    statement.objects.all_names().is_none() && statement.state.functions.is_empty() && statement.runs.is_none()
}
