//! State that a statement may leave by functions that its text does not show: of triggers, views, types, operators and columns,
//! by the catalog.

use super::note_unseen;
use crate::catalogs::UNKNOWN;
use crate::context::Context;
use crate::session::{Session, SessionServer};
use crate::session_state::state_question::MadeUp;
use crate::statements::{PreparedStatement, Statement, StatementObjects, StatementTrait};
use crate::upstream::left::UnjudgedObjects;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use weir_catalog::functions::FunctionVerdict;
use weir_catalog::{Catalog, HiddenUses, StatementNames};
use weir_sql::facts::{QualifiedName, StateKind, StateKinds};

/// Returns the ways in which a statement may leave unseen state. The catalog lacks this transaction's own definitions.
#[inline]
pub(super) fn hidden(s: &Session) -> HiddenUses {
    if s.state.by_mode {
        return HiddenUses::NONE;
    }
    let known = s.account.known.hidden();
    if s.state.effects.redefines && !brings_no_code(s, known) { known.and(HiddenUses::ASSUMED) } else { known }
}

/// True if the transaction's definitions bring no code that might leave state: they are about tables and the like only, and no code of the catalog
/// leaves any. A transaction on several shards depends on what names mean from statement to statement.
#[cold]
fn brings_no_code(s: &Session, known: HiddenUses) -> bool {
    let is_sharded = s.account.known.sharding.edition() != 0;
    is_sharded && !s.state.effects.redefines_code && !known.meets(HiddenUses::ALL)
}

/// True if the catalog is up to date for this session.
pub(crate) fn knows(s: &Session) -> bool {
    s.account.known.edition() != UNKNOWN && !s.state.effects.redefines
}

/// Returns the state left by triggers, rules, views, types or operators.
pub(crate) fn left_unseen(s: &Session, statement: &Statement) -> StateKinds {
    let hidden = hidden(s);
    let may_define = may_define(statement, hidden);
    if !statement.objects.touches.meets(hidden) && !may_define {
        return StateKinds::NONE;
    }
    let unknown = StateKinds::of(StateKind::Unknown);
    let Some(catalog) = s.account.known.catalog() else { return unknown };
    // A definition checks rows and makes values of other objects than it names.
    if !knows(s) || may_define {
        return unknown;
    }
    let StatementObjects { touches, written, .. } = &statement.objects;
    if leaves(&catalog, hidden, *touches, (written, statement.objects.all_names())) { unknown } else { StateKinds::NONE }
}

fn may_define(statement: &Statement, hidden: HiddenUses) -> bool {
    statement.has(StatementTrait::Redefines) && hidden.meets(HiddenUses::ALL)
}

fn leaves(
    catalog: &Catalog,
    hidden: HiddenUses,
    touches: HiddenUses,
    (written, names): (&[QualifiedName], Option<&StatementNames>),
) -> bool {
    let touches = |what: HiddenUses| touches.meets(what) && hidden.meets(what);
    if touches(HiddenUses::DEFINES) || touches(HiddenUses::ANYTHING) {
        return true;
    }
    // TRUNCATE may cascade to others than it names.
    if touches(HiddenUses::CASCADES) && hidden.meets(HiddenUses::WRITES) {
        return true;
    }
    let by_writing = touches(HiddenUses::WRITES) && catalog.leaves_by_writing(written);
    let by_reading = |names: &StatementNames| touches(HiddenUses::READS) && catalog.leaves_by_reading(names);
    let by_names = |names: &StatementNames| touches(HiddenUses::NAMES) && catalog.leaves_by_names(names);
    by_writing || names.is_some_and(|names| by_reading(names) || by_names(names))
}

/// Returns the objects touched, if only the unknown catalog makes the statement suspect.
pub(super) fn assumed(s: &Session, statement: &Statement) -> Option<UnjudgedObjects> {
    let is_assumed = !knows(s) && !statement.has(StatementTrait::Redefines) && !statement.has(StatementTrait::Executes);
    if !is_assumed || left_unseen(s, statement).is_empty() {
        return None;
    }
    let StatementObjects { touches, written, .. } = &statement.objects;
    Some(UnjudgedObjects { touches: *touches, written: written.clone(), names: statement.objects.all_names().cloned() })
}

/// True if the objects touched may have left state, by the catalog known now.
pub(crate) fn may_have_left(s: &Session, touched: &UnjudgedObjects) -> bool {
    let catalog = s.account.known.catalog().filter(|_| knows(s));
    catalog.is_none_or(|catalog| leaves(&catalog, hidden(s), touched.touches, (&touched.written, touched.names.as_ref())))
}

/// Returns the state left by reading in parameter values, by the types that the client declared.
pub(super) fn left_by_values(s: &Session, prepared: &PreparedStatement) -> StateKinds {
    if prepared.user_types.is_empty() || !hidden(s).meets(HiddenUses::NAMES.and(HiddenUses::ANYTHING)) {
        return StateKinds::NONE;
    }
    let leaves = |catalog: Arc<Catalog>| catalog.leaves_by_values(&prepared.user_types);
    let may_leave = !knows(s) || s.account.known.catalog().is_none_or(leaves);
    if may_leave { StateKinds::of(StateKind::Unknown) } else { StateKinds::NONE }
}

/// No server lists names that functions made up, so they are asked for by name. Names that the database asks for count too: a
/// function may compose a name.
pub(super) fn name_made_up(s: &mut Session) {
    if s.state.by_mode {
        return;
    }
    let catalog = s.account.known.catalog();
    let made_up = match (&catalog, knows(s)) {
        (None, _) => MadeUp::ByAny,
        (Some(_), false) => MadeUp::ByRecent,
        (Some(_), true) => MadeUp::Known,
    };
    let Some(upstream) = s.upstream_mut() else { return };
    let due = &mut upstream.left.due;
    due.made_up = due.made_up.max(made_up);
    if let Some(catalog) = catalog {
        due.names.extend(catalog.made_up().iter().cloned());
    }
}

/// True if a function called may change the session's state, or is not known to be harmless.
pub(crate) fn may_act_unseen(s: &Session, w: &Context, statement: &Statement) -> bool {
    if statement.has(StatementTrait::Executes) && !s.state.by_sql.later().and(by_execute(s)).is_empty() {
        return true;
    }
    if !left_unseen(s, statement).is_empty() {
        return true;
    }
    if statement.state.functions.is_empty() {
        return false;
    }
    let edition = w.shared.catalogs.definitions.load(Ordering::Relaxed);
    let mut books = w.functions.borrow_mut();
    match books.of(&s.account.database, w.now_ms(), edition).judge_all(&statement.state.functions) {
        FunctionVerdict::Harmless => false,
        FunctionVerdict::Writes => hidden(s).meets(HiddenUses::ALL),
        FunctionVerdict::LeavesState | FunctionVerdict::Unknown(_) => true,
    }
}

/// Returns the unseen state left by `EXECUTE`: any statement prepared by SQL may be meant.
pub(super) fn by_execute(s: &Session) -> StateKinds {
    if !hidden(s).meets(HiddenUses::ALL) { StateKinds::NONE } else { StateKinds::of(StateKind::Unknown) }
}

/// Notes what a Parse may leave: the analysis reads in constants of arrays and rows, and runs their domains' checks. Source:
/// `coerce_type` in parse_coerce.c.
#[inline]
pub fn note_analysed(s: &mut Session, prepared: &PreparedStatement) {
    if !prepared.statement.objects.touches.meets(hidden(s)) {
        return;
    }
    let may_change = left_unseen(s, &prepared.statement);
    if may_change.is_empty() {
        return;
    }
    let assumed = assumed(s, &prepared.statement);
    name_made_up(s);
    let text = prepared.text();
    if let Some(SessionServer { upstream, .. }) = &mut s.server {
        let functions = &prepared.statement.state.functions;
        upstream.left.assuming(assumed, |left| left.note(may_change, functions, text, &[]));
        note_unseen(&s.state, &mut upstream.left, &prepared.statement);
    }
}

pub(super) fn note_prepared(s: &mut Session, text: &str) {
    let may_change = by_execute(s);
    if may_change.is_empty() {
        return;
    }
    name_made_up(s);
    if let Some(upstream) = s.upstream_mut() {
        upstream.left.note(may_change, &[], text.as_bytes(), &[]);
    }
}
