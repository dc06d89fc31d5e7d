//! Invalidation by a session's statements. Changes are noted when a statement is sent, raised before the commit leaves, and settled when
//! it is answered. Without a cache they only serve causal reads.

use super::cached_results::{KnownEffect, TextCacheFacts};
use super::{Context, Session};
use crate::catalogs::{KnownDatabase, UNKNOWN};
use crate::routing::classify;
use crate::session::{FAILED, IDLE, SessionServer};
use crate::session_state::temporary::TemporaryObjects;
use crate::statements::{Statement, StatementTrait};
use crate::table_changes::{RaisedSlots, TableChanges};
use crate::upstream::{EndingCommand, PendingInvalidations, UpstreamState};
use std::rc::Rc;
use weir_cache::{PossibleTransactionEnd, Slot, WriterOutcome};
use weir_catalog::{SearchPath, TouchedTables};
use weir_sql::facts::{StateKind, StateKinds};

/// True if unqualified names are uncertain: after a statement that may change them until the server was asked at rest, since a rollback
/// may restore them.
fn is_adrift(s: &Session, statement: &Statement) -> bool {
    // The server's answer could not be read.
    let is_untold = s.is_unsure() || s.has_found(StateKind::Unknown);
    if is_untold || (statement.has(StatementTrait::Many) && moves(s, statement)) {
        return true;
    }
    s.cache.is_adrift
}

/// Notes the rest: the meaning of names is known, or about to be asked (`is_unsure`).
pub(super) fn note_rest(s: &mut Session, status: u8) {
    // `pool_mode = session` never asks.
    if s.cache.is_adrift && status == IDLE && s.replies().is_only_ours() && !s.state.by_mode {
        s.cache.is_adrift = false;
    }
}

/// True if a statement may change unqualified names. Functions are asked for later, if at all.
#[inline]
pub(super) fn moves(s: &Session, statement: &Statement) -> bool {
    const SETS: StateKinds =
        StateKinds::of(StateKind::Setting).with(StateKind::Unknown).with(StateKind::Unread).with(StateKind::Library);
    statement.has(StatementTrait::Moves)
        || ((statement.has(StatementTrait::Many) || s.state.by_mode) && !statement.state.may_change.common(SETS).is_empty())
}

/// True if a name may mean a temporary relation, of which no catalog tells what it runs.
#[inline]
fn is_hidden(s: &Session, statement: &Statement) -> bool {
    let makes_one = statement.has(StatementTrait::Many)
        && (statement.has(StatementTrait::MakesBrief) || statement.state.leaves.has(StateKind::Temporary));
    let temporaries = s.upstream().map(|upstream| &upstream.left.temporaries);
    makes_one || temporaries.is_some_and(|temporaries| temporaries.may_be() && names_one(statement, temporaries))
}

fn names_one(statement: &Statement, temporaries: &TemporaryObjects) -> bool {
    statement.caching.as_deref().is_some_and(|caching| caching.text.names_one(|name| temporaries.hide(name)))
}

#[inline]
fn place_to_write(s: &mut Session, w: &Context, is_adrift: bool) -> u64 {
    if is_adrift { classify::place_anywhere(s, w) } else { classify::place_of(s, w) }
}

#[derive(Clone, Copy)]
struct NameMeaning {
    is_adrift: bool,
    /// A name may be of a temporary relation.
    is_hidden: bool,
    /// 0: the database is unknown.
    place: u64,
}

#[inline]
fn meaning(s: &mut Session, w: &Context, statement: &Statement) -> NameMeaning {
    let is_adrift = is_adrift(s, statement);
    NameMeaning { is_adrift, is_hidden: is_hidden(s, statement), place: place_to_write(s, w, is_adrift) }
}

fn slots_touched(s: &mut Session, w: &Context, statement: &Statement, meaning: NameMeaning) -> Rc<[Slot]> {
    let versions = &w.shared.changes.versions;
    let NameMeaning { is_adrift, is_hidden, place } = meaning;
    let all = [versions.of_all()];
    let Some(caching) = statement.caching.as_deref() else { return Rc::new(all) };
    if caching.writes_unseen(classify::place_of(s, w)) {
        return Rc::new([s.account.known.slot(versions)]);
    }
    if caching.text.is_idle {
        return caching.nothing_touched();
    }
    if caching.text.is_for_all_databases() {
        return Rc::new(all);
    }
    if is_hidden {
        return Rc::new([s.account.known.slot(versions)]);
    }
    if is_adrift && caching.has_written_unseen() {
        return Rc::new([s.account.known.slot(versions)]);
    }
    if let Some(known) = caching.touches.at(place).filter(|_| place != 0) {
        return known;
    }
    let catalog = if place == 0 { None } else { s.account.known.catalog() };
    let path = catalog.as_ref().map(|catalog| if is_adrift { SearchPath::Any } else { classify::path_in(s, catalog) });
    let known = catalog.as_deref().zip(path.as_ref());
    let slots: Rc<[Slot]> = match caching.text.touches(known) {
        TouchedTables::All => Rc::new([s.account.known.slot(versions)]),
        TouchedTables::Tables(tables) => tables.iter().map(|oid| versions.of_table(&s.account.database, *oid)).collect(),
    };
    if place != 0 && s.account.known.edition() == s.reads.place.edition() {
        caching.touches.note(place, slots.clone());
    }
    slots
}

enum InvalidationPlan {
    Nothing,
    /// No other session can see it before the commit, or no cached answer is concerned.
    Note(Rc<[Slot]>),
    /// Ends a transaction without effect.
    RollBack,
    /// May commit: raises noted slots and these.
    Raise(Rc<[Slot]>),
}

fn plan(s: &mut Session, w: &Context, statement: &Statement, meaning: NameMeaning) -> InvalidationPlan {
    let text = statement.caching.as_deref().map(|caching| &caching.text);
    let ends = text.is_none_or(|text| text.end != PossibleTransactionEnd::None);
    let slots = slots_touched(s, w, statement, meaning);
    let Some(UpstreamState { writes, txn, .. }) = s.upstream() else { return InvalidationPlan::Nothing };
    if slots.is_empty() && (!ends || writes.wrote.is_empty()) {
        return InvalidationPlan::Nothing;
    }
    let in_block = txn.status != IDLE && writes.ending == EndingCommand::No;
    if in_block && !ends {
        return InvalidationPlan::Note(slots);
    }
    let is_rollback = in_block && (txn.status == FAILED || text.is_some_and(|text| text.end == PossibleTransactionEnd::Rollback));
    if is_rollback && slots.is_empty() && writes.raised.is_none() {
        InvalidationPlan::RollBack
    } else if w.shared.cached_results.is_none() {
        InvalidationPlan::Note(slots)
    } else {
        InvalidationPlan::Raise(with_what_changed(s, writes, &w.shared.changes, slots))
    }
}

/// Adds the database's slot if definitions changed since the slots were found: the transaction may have written more, for instance by a
/// new trigger whose lock delayed the write. Needed before the commit leaves: a waiting session may hear of the change late.
fn with_what_changed(s: &Session, writes: &PendingInvalidations, changes: &TableChanges, slots: Rc<[Slot]>) -> Rc<[Slot]> {
    if writes.is_unnoted() || !is_redefined(&s.account.known, writes) {
        return slots;
    }
    slots.iter().copied().chain([s.account.known.slot(&changes.versions)]).collect()
}

/// True if definitions changed since the writes were found.
#[inline]
fn is_redefined(known: &KnownDatabase, writes: &PendingInvalidations) -> bool {
    writes.edition == UNKNOWN || known.edition() != writes.edition
}

/// Notes a statement whose effect was found before, without a query cache. False: the statement must be looked at.
#[inline]
pub(super) fn note_known(s: &mut Session, statement: &Statement) -> bool {
    let Some(caching) = statement.caching.as_deref() else { return false };
    if s.state.by_mode && moves(s, statement) {
        return false;
    }
    match caching.effect_at(s.reads.place.number) {
        KnownEffect::Nothing => true,
        KnownEffect::End => note_end(s, caching),
        KnownEffect::NothingAt(_) => is_certain(s),
        KnownEffect::SlotAt(_, slot) => {
            is_certain(s)
                && note_slots(s, |writes| {
                    writes.note_one(slot);
                    true
                })
        }
        KnownEffect::TablesAt(place) => {
            let ends = caching.text.end != PossibleTransactionEnd::None;
            // Other places may have displaced the slots.
            is_certain(s) && note_slots(s, |writes| caching.touches.look(place, |slots| writes.note(slots, ends)).is_some())
        }
        KnownEffect::Unknown => false,
    }
}

/// True if names mean what they mean at the session's place.
#[inline]
fn is_certain(s: &Session) -> bool {
    let is_plain = s.upstream().is_some_and(|upstream| upstream.left.names_are_certain());
    is_plain && !s.cache.is_adrift && classify::is_placed(s)
}

#[inline]
fn note_end(s: &mut Session, caching: &TextCacheFacts) -> bool {
    let Some(UpstreamState { writes, txn, .. }) = s.upstream_mut() else { return false };
    if writes.is_unnoted() {
        return true;
    }
    let may_commit = txn.status != FAILED && caching.text.end == PossibleTransactionEnd::Any;
    if may_commit {
        writes.ending = EndingCommand::MayEnd;
    }
    may_commit
}

#[inline]
fn note_slots(s: &mut Session, note: impl FnOnce(&mut PendingInvalidations) -> bool) -> bool {
    // With `pool_mode = session` a write to everything may have made temporary relations.
    let (false, Some(SessionServer { upstream, .. })) = (s.state.by_mode, &mut s.server) else { return false };
    if upstream.writes.is_unnoted() {
        upstream.writes.edition = s.reads.place.edition;
    }
    note(&mut upstream.writes)
}

/// Looks at a statement, unless its text is known to be neither cached nor to change anything.
#[inline]
pub(super) fn note_write(s: &mut Session, w: &Context, statement: &Statement) {
    let place = s.reads.place.number;
    let is_indifferent = statement.caching.as_deref().is_some_and(|caching| caching.is_indifferent(place)) && is_certain(s);
    if !is_indifferent {
        look_at_write(s, w, statement);
    }
}

pub(super) fn look_at_write(s: &mut Session, w: &Context, statement: &Statement) {
    let changes = &w.shared.changes;
    let caching = statement.caching.as_deref();
    let meaning = meaning(s, w, statement);
    let is_hidden = meaning.is_hidden;
    let plan = plan(s, w, statement, meaning);
    if matches!(plan, InvalidationPlan::Nothing) {
        let is_cached = w.shared.cached_results.is_some();
        if let Some(caching) = caching.filter(|_| is_cached && !statement.has(StatementTrait::Many)) {
            caching.note_indifference(meaning.place);
        }
        return;
    }
    let Some(SessionServer { conn, upstream }) = &mut s.server else { return };
    let UpstreamState { writes, left, .. } = &mut **upstream;
    if writes.is_unnoted() {
        writes.edition = s.reads.place.edition();
    }
    if let (true, InvalidationPlan::Note(slots) | InvalidationPlan::Raise(slots)) = (s.state.by_mode, &plan) {
        // A statement with unknown effects may have changed the path or created temporary relations.
        let wide = [changes.versions.of_all(), changes.versions.of_database(&s.account.database)];
        let is_wide = slots.iter().any(|slot| wide.contains(slot));
        s.cache.is_adrift |= is_wide;
        if is_wide && !(statement.has(StatementTrait::Read) && statement.state.functions.is_empty()) {
            left.temporaries.may_have_changed();
        }
    }
    if is_hidden && left.temporaries.have_views() {
        left.temporaries.may_have_changed();
    }
    match plan {
        InvalidationPlan::Nothing => {}
        InvalidationPlan::Note(slots) => {
            let ends = statement.caching.as_deref().is_none_or(|caching| caching.text.end != PossibleTransactionEnd::None);
            writes.note(&slots, ends);
        }
        InvalidationPlan::RollBack => writes.ending = EndingCommand::RollsBack,
        InvalidationPlan::Raise(slots) => {
            let ends = statement.caching.as_deref().is_none_or(|caching| caching.text.end != PossibleTransactionEnd::None);
            writes.ending = writes.ending.with(ends);
            let raised = writes.raised.get_or_insert_with(|| {
                let status = &conn.status;
                let none = RaisedSlots::none(changes.clone(), s.account.database.clone(), status.address.node, status.pid);
                none.in_room(std::mem::take(&mut writes.room))
            });
            raised.add(&writes.wrote);
            raised.add(&slots);
            writes.wrote.clear();
        }
    }
}

/// Tells of committed writes while more is under way.
pub(super) fn acknowledge(s: &mut Session, w: &Context) {
    let (changes, round) = (&w.shared.changes, w.shared.positions.next_round());
    if s.state.effects.redefines && changes.are_tracked() {
        // Reads must now be found by the new definition.
        w.note_change(&s.account.known);
    }
    let known = &s.account.known;
    let whole = known.slot(&changes.versions);
    let Some(SessionServer { upstream, .. }) = &mut s.server else { return };
    let writes = &mut upstream.writes;
    let is_redefined = is_redefined(known, writes);
    if !writes.is_tracked && changes.are_tracked() {
        changes.note_all_told(round);
    }
    if !writes.wrote.is_empty() {
        note_told(changes, whole, is_redefined, &writes.wrote, round);
        writes.told = round;
    }
    if let Some(raised) = &mut writes.raised {
        if is_redefined {
            raised.add(&[whole]);
        }
        raised.note_told(round);
    }
}

/// Adds the database's slot `whole`, if redefined.
fn note_told(changes: &TableChanges, whole: Slot, is_redefined: bool, wrote: &[Slot], round: u64) {
    changes.note_told(whole, wrote, round);
    if is_redefined {
        changes.versions.note_told(&[whole], round);
    }
}

/// Settles the writes once no transaction is open; only acknowledges them while more is under way.
#[inline]
pub(super) fn settle(s: &mut Session, w: &Context) {
    if w.shared.cached_results.is_some() || !settle_noted(s, w) {
        settle_all(s, w);
    }
}

/// Settles tracked writes without a query cache. False: there may be others.
#[inline]
fn settle_noted(s: &mut Session, w: &Context) -> bool {
    let (changes, round) = (&w.shared.changes, w.shared.positions.next_round());
    let known = &s.account.known;
    let Some(SessionServer { upstream, .. }) = &mut s.server else { return false };
    let UpstreamState { writes, replies, .. } = &mut **upstream;
    if !writes.is_tracked || writes.raised.is_some() || !replies.is_only_ours() {
        return false;
    }
    let is_redefined = is_redefined(known, writes);
    let is_told = writes.told == round && !is_redefined;
    if !writes.wrote.is_empty() && !is_told && writes.ending != EndingCommand::RollsBack {
        note_told(changes, known.slot(&changes.versions), is_redefined, &writes.wrote, round);
    }
    writes.wrote.clear();
    writes.ending = EndingCommand::No;
    true
}

#[inline(never)]
fn settle_all(s: &mut Session, w: &Context) {
    if !s.replies().is_only_ours() {
        acknowledge(s, w);
        return;
    }
    let (changes, round) = (&w.shared.changes, w.shared.positions.next_round());
    let known = &s.account.known;
    let whole = known.slot(&changes.versions);
    let Some(SessionServer { upstream, .. }) = &mut s.server else { return };
    let writes = &mut upstream.writes;
    let is_redefined = is_redefined(known, writes);
    if !writes.is_tracked && changes.are_tracked() {
        // Untracked changes may be among those ended.
        changes.note_all_told(round);
        writes.is_tracked = true;
    }
    // Without a cache these are all writes; otherwise those of a transaction of unknown outcome.
    if !writes.wrote.is_empty() {
        if writes.ending != EndingCommand::RollsBack {
            note_told(changes, whole, is_redefined, &writes.wrote, round);
            if w.shared.cached_results.is_some() {
                changes.versions.change(&writes.wrote, round);
            }
        }
        writes.wrote.clear();
    }
    writes.ending = EndingCommand::No;
    if let Some(mut raised) = writes.raised.take() {
        if is_redefined {
            // A redefinition meanwhile may have widened the writes.
            raised.add(&[whole]);
        }
        writes.room = raised.settle(WriterOutcome::Committed { round });
    }
}
