//! The catalog's judgements on a session's statements, kept with their texts.
//!
//! A text is judged once per *place*: a catalog with a search_path, known by a number. A known text costs three comparisons.

use crate::catalogs::{Edition, UNKNOWN};
use crate::context::Context;
use crate::lazy_begin::transaction_place::TransactionDefaults;
use crate::routing::{RouteClass, RouteSide};
use crate::session::Session;
use crate::session_state::name_scopes::NameScope;
use crate::statements::{PreparedStatement, Statement, StatementTrait};
use std::rc::Rc;
use std::sync::Arc;
use weir_catalog::rule::RoutingRule;
use weir_catalog::{Catalog, LookupUser, SearchPath, StatementNames};
use weir_sql::facts::{RoutingHint, TransactionVerb};

/// True if the catalog is asked: for every read, since an operator or cast of a user's may hide even in `1 + 2`.
#[inline]
fn is_judged(statement: &Statement) -> bool {
    statement.class.side == RouteSide::Reader && statement.transaction == TransactionVerb::None
}

/// Returns where a statement may run, by its text and its names. Never waits.
///
/// While the catalog is unknown, every read is the primary's. Without a primary the text alone decides: a standby refuses what it
/// must not run.
#[inline]
pub fn class_of(s: &mut Session, w: &Context, statement: &Statement) -> RouteClass {
    if !is_judged(statement) || !w.has_readers() {
        return statement.class;
    }
    place_of(s, w);
    let edition = s.reads.place.edition;
    if edition == UNKNOWN {
        return if w.view().primary.is_some() { RouteClass::primary(RoutingRule::CatalogUnknown) } else { statement.class };
    }
    match statement.objects.judged.at(s.reads.place.number) {
        Some(class) => class,
        None => judge(s, statement),
    }
}

/// Replaces an `EXECUTE` by the statement that it runs, if that is a known read for any node. `session_state::bring` prepares it
/// where needed. Beside sharded tables it goes by its own text.
#[inline]
pub fn stands_for(s: &Session, w: &Context, statement: Rc<Statement>) -> Rc<Statement> {
    if statement.runs.is_none() { statement } else { run_by(s, w, statement) }
}

fn run_by(s: &Session, w: &Context, statement: Rc<Statement>) -> Rc<Statement> {
    // A hint in a comment holds for its own text only.
    if statement.hint != RoutingHint::None || statement.has(StatementTrait::Commented) {
        return statement;
    }
    // A plan for shards is kept with the statement, and would be that of another text.
    if w.is_sharded() && s.account.known.sharding.may_have_tables() {
        return statement;
    }
    runs_now(s, w, &statement).filter(|prepared| is_plain_read(prepared)).unwrap_or(statement)
}

/// Returns the statement that an `EXECUTE` runs; `None` while something under way may change it.
fn runs_now(s: &Session, w: &Context, statement: &Statement) -> Option<Rc<Statement>> {
    let query = s.state.by_sql.query_of(statement.runs.as_deref()?)?;
    let is_settled = !s.is_unsure() && s.stuck().is_empty();
    is_settled.then(|| w.statements.borrow_mut().of_text(query.as_bytes())).filter(|prepared| !s.is_misread(prepared))
}

/// True if a text only reads, under whatever settings it was prepared.
fn is_plain_read(prepared: &Statement) -> bool {
    prepared.class.side == RouteSide::Reader
        && prepared.has(StatementTrait::Read)
        // The prepared text may hold values that such functions set, and is not looked at when it runs.
        && prepared.state.functions.is_empty()
        && prepared.transaction == TransactionVerb::None
        && !prepared.has(StatementTrait::Many)
        && !prepared.has(StatementTrait::Executes)
        && !prepared.has(StatementTrait::Signals)
        && prepared.local.is_none()
}

pub fn defaults(s: &mut Session, w: &Context) -> TransactionDefaults {
    place_of(s, w);
    s.reads.place.defaults
}

/// As `defaults`, keeping nothing.
pub fn defaults_now(s: &Session) -> TransactionDefaults {
    defaults_in(s, s.account.known.edition())
}

/// Sets the transaction's time limits, which Weir enforces and no server.
pub fn watch(s: &mut Session, w: &Context) {
    let limits = defaults(s, w).limits;
    s.handle.clock.held.set(limits);
}

fn defaults_in(s: &Session, edition: Edition) -> TransactionDefaults {
    let catalog = if edition == UNKNOWN { None } else { s.account.known.catalog() };
    let of_catalog = |name: &str| catalog.as_ref().and_then(|catalog| catalog.of_transactions(&s.account.user, name));
    TransactionDefaults::of(|name| s.state.settings.get(name).or_else(|| of_catalog(name)))
}

/// True if a statement only reads, by the catalog, wherever it runs.
pub fn only_reads(s: &Session, statement: &Statement) -> bool {
    let is_read = statement.class.side == RouteSide::Reader
        || matches!(statement.class.rule, RoutingRule::Hint | RoutingRule::Comment | RoutingRule::PrimaryRoutingPattern);
    if !is_read || !statement.has(StatementTrait::Read) || s.account.known.edition() == UNKNOWN {
        return false;
    }
    let nothing = StatementNames::default();
    let names = statement.objects.all_names().unwrap_or(&nothing);
    s.account.known.catalog().is_some_and(|catalog| catalog.judge(names, &path_in(s, &catalog)).is_none())
}

/// Returns the number of the session's place; 0 while its database is unknown.
#[inline]
pub fn place_of(s: &mut Session, w: &Context) -> u64 {
    if !is_placed(s) {
        find_place(s, w, s.account.known.edition());
    }
    s.reads.place.number
}

#[inline]
pub fn is_placed(s: &Session) -> bool {
    s.account.known.edition() == s.reads.place.edition && Arc::ptr_eq(&s.reads.place.settings, &s.state.settings)
}

/// Returns the number of the place where a name may mean an object of any schema; 0 as in `place_of`.
pub fn place_anywhere(s: &mut Session, w: &Context) -> u64 {
    if place_of(s, w) == 0 {
        return 0;
    }
    w.places.borrow_mut().number(s.reads.place.edition, SearchPath::Any)
}

/// True if reading in the parameter values runs functions of users.
#[inline]
pub fn checks_values(s: &Session, prepared: &PreparedStatement) -> bool {
    !prepared.user_types.is_empty() && s.account.known.catalog().is_none_or(|catalog| catalog.checks_values(&prepared.user_types))
}

pub fn path_in(s: &Session, catalog: &Catalog) -> SearchPath {
    let settings = &s.state.settings;
    let who = LookupUser { user: &s.account.user, has_role: settings.has_role() };
    catalog.path(&who, settings.get("search_path"))
}

#[cold]
fn find_place(s: &mut Session, w: &Context, edition: Edition) {
    let catalog = if edition == UNKNOWN { None } else { s.account.known.catalog() };
    let number = catalog.map_or(0, |catalog| {
        let path = path_in(s, &catalog);
        w.places.borrow_mut().number(edition, path)
    });
    s.reads.place = NameScope { edition, settings: s.state.settings.clone(), number, defaults: defaults_in(s, edition) };
}

/// Returns the class as `class_of` does, but keeps nothing.
pub fn class_for(s: &Session, w: &Context, statement: &Statement) -> RouteClass {
    let is_same = Arc::ptr_eq(&s.reads.place.settings, &s.state.settings);
    match s.account.known.edition() {
        _ if !is_judged(statement) || !w.has_readers() => statement.class,
        UNKNOWN if w.view().primary.is_none() => statement.class,
        UNKNOWN => RouteClass::primary(RoutingRule::CatalogUnknown),
        edition if edition == s.reads.place.edition && is_same => {
            statement.objects.judged.at(s.reads.place.number).unwrap_or_else(|| said(s, statement))
        }
        _ => said(s, statement),
    }
}

fn said(s: &Session, statement: &Statement) -> RouteClass {
    let Some(catalog) = s.account.known.catalog() else { return RouteClass::primary(RoutingRule::CatalogUnknown) };
    let nothing = StatementNames::default();
    let names = statement.objects.names.as_ref().unwrap_or(&nothing);
    let path = path_in(s, &catalog);
    catalog.judge(names, &path).map_or(statement.class, RouteClass::primary)
}

#[cold]
fn judge(s: &Session, statement: &Statement) -> RouteClass {
    let known = &s.account.known;
    let class = said(s, statement);
    // A newer catalog's judgement must not be noted under the old number.
    if known.edition() == s.reads.place.edition {
        statement.objects.judged.note(s.reads.place.number, class);
    }
    class
}

/// Notes that a standby refused a text: it is the primary's as long as the catalog stays. `writes`: it was refused as a write.
pub fn note_refused(s: &Session, statement: &Statement, writes: bool) {
    if s.reads.place.number != 0 {
        statement.objects.judged.note(s.reads.place.number, RouteClass::primary(RoutingRule::StandbyRefused));
        if let Some(caching) = statement.caching.as_deref().filter(|_| writes) {
            caching.note_unseen_write(s.reads.place.number);
        }
    }
}
