//! What a session's statements may change, and what that makes untrue: noted when they are sent, raised before the commit leaves, settled when
//! it is answered.

use super::{Answers, Session, Worker};
use crate::client::session::{FAILED, IDLE};
use crate::client::statements::Statement;
use crate::server::answers::Raised;
use crate::server::catalogs::UNKNOWN;
use crate::traffic::judging;
use std::rc::Rc;
use std::sync::Arc;
use weir_cache::{Outcome, Slot};
use weir_catalog::{Path, Touched};
use weir_policy::temporary::Temporaries;
use weir_sql::facts::{Keeps, Leaves};

/// True if it is not certain what names without a schema mean, to a statement that is about to be sent. Once something that may change
/// that was sent it is not, until all is at rest and the server was asked: a rollback, also to a savepoint, may take it back again.
fn is_adrift(s: &Session, statement: &Statement) -> bool {
    // Neither is it where the server's answer could not be read.
    let is_untold = s.state.is_unsure() || s.state.found.has(Keeps::Unknown);
    if is_untold || (statement.is_many && moves(s, statement)) {
        return true;
    }
    s.cached.is_adrift
}

/// All is at rest: what names mean is known, or about to be asked (`is_unsure`).
pub(super) fn note_rest(s: &mut Session, status: u8) {
    // With `pool_mode = session` nobody asks.
    if s.cached.is_adrift && status == IDLE && s.replies.is_only_ours() && !s.state.by_mode {
        s.cached.is_adrift = false;
    }
}

/// True if a statement may change what names without a schema mean. What functions may do is due to be asked, where anybody asks.
#[inline]
pub(super) fn moves(s: &Session, statement: &Statement) -> bool {
    const SETS: Leaves = Leaves::of(Keeps::Setting).with(Keeps::Unknown).with(Keeps::Unread).with(Keeps::Library);
    statement.moves || ((statement.is_many || s.state.by_mode) && !statement.may_change.common(SETS).is_empty())
}

/// True if a name of a statement's may mean a temporary relation. What that one runs no catalog says, nor what several statements make of
/// which one is temporary.
#[inline]
fn is_hidden(s: &Session, statement: &Statement) -> bool {
    let temporaries = &s.state.temporaries;
    let makes_one = statement.is_many && (statement.makes_brief || statement.leaves.has(Keeps::Temporary));
    makes_one || (temporaries.may_be() && names_one(statement, temporaries))
}

fn names_one(statement: &Statement, temporaries: &Temporaries) -> bool {
    statement.caching.as_deref().is_some_and(|caching| caching.text.names_one(|name| temporaries.hide(name)))
}

/// The place by which it is found what a statement may change.
#[inline]
fn place_to_write(s: &mut Session, w: &Worker, is_adrift: bool) -> u64 {
    if is_adrift { judging::place_anywhere(s, w) } else { judging::place_of(s, w) }
}

/// What a statement may change; none: nothing.
fn slots_touched(s: &mut Session, w: &Worker, answers: &Answers, statement: &Statement) -> Rc<[Slot]> {
    let versions = &answers.versions;
    let all = [versions.of_all()];
    let Some(caching) = statement.caching.as_deref() else { return Rc::new(all) };
    if caching.writes_unseen(judging::place_of(s, w)) {
        return Rc::new([versions.of_database(&s.pools.database)]);
    }
    if caching.text.is_idle {
        return caching.nothing_touched();
    }
    if caching.text.is_for_all_databases() {
        return Rc::new(all);
    }
    if is_hidden(s, statement) {
        return Rc::new([versions.of_database(&s.pools.database)]);
    }
    let is_adrift = is_adrift(s, statement);
    if is_adrift && caching.has_written_unseen() {
        return Rc::new([versions.of_database(&s.pools.database)]);
    }
    let place = place_to_write(s, w, is_adrift);
    if let Some(known) = caching.touches.at(place).filter(|_| place != 0) {
        return known;
    }
    let catalog = if place == 0 { None } else { s.pools.known.catalog() };
    let path = catalog.as_ref().map(|catalog| if is_adrift { Path::Any } else { judging::path_in(s, catalog) });
    let known = catalog.as_deref().zip(path.as_ref());
    let slots: Rc<[Slot]> = match caching.text.touches(known) {
        Touched::All => Rc::new([versions.of_database(&s.pools.database)]),
        Touched::Tables(tables) => tables.iter().map(|oid| versions.of_table(&s.pools.database, *oid)).collect(),
    };
    if place != 0 && s.pools.known.edition() == s.place.edition() {
        caching.touches.note(place, slots.clone());
    }
    slots
}

/// What is to be done about what a statement may write, before it is sent.
enum Plan {
    Nothing,
    /// It runs in a transaction: nobody but this session sees it before the commit.
    Note(Rc<[Slot]>),
    /// It ends a transaction, and nothing of that stays.
    RollBack,
    /// It may commit: what was noted and this are raised.
    Raise(Rc<[Slot]>),
}

fn plan(s: &mut Session, w: &Worker, answers: &Answers, statement: &Statement) -> Plan {
    let text = statement.caching.as_deref().map(|caching| &caching.text);
    let ends = text.is_none_or(|text| text.ends);
    let slots = slots_touched(s, w, answers, statement);
    if slots.is_empty() && (!ends || s.cached.wrote.is_empty()) {
        return Plan::Nothing;
    }
    let in_block = s.transaction != IDLE && !s.cached.ending;
    if in_block && !ends {
        return Plan::Note(slots);
    }
    let is_rollback = in_block && (s.transaction == FAILED || text.is_some_and(|text| text.rolls_back));
    if is_rollback && slots.is_empty() && s.cached.raised.is_none() {
        Plan::RollBack
    } else {
        Plan::Raise(with_what_changed(s, answers, slots))
    }
}

/// What is about to commit may have written more than was known, if something was defined since it was found: a trigger, say, for whose
/// maker's lock the write waited. That must be known before the commit leaves, since who waits for its answer may be told late.
fn with_what_changed(s: &Session, answers: &Answers, slots: Rc<[Slot]>) -> Rc<[Slot]> {
    let has_more = !s.cached.wrote.is_empty() || s.cached.raised.is_some();
    if !has_more || !is_redefined(s) {
        return slots;
    }
    slots.iter().copied().chain([answers.versions.of_database(&s.pools.database)]).collect()
}

/// True if what the open transaction writes was found in another catalog than the one of now.
fn is_redefined(s: &Session) -> bool {
    s.cached.edition == UNKNOWN || s.pools.known.edition() != s.cached.edition
}

pub(super) fn note_write(s: &mut Session, w: &Worker, answers: &Arc<Answers>, statement: &Statement) {
    let caching = statement.caching.as_deref();
    let is_adrift = is_adrift(s, statement);
    let place = place_to_write(s, w, is_adrift);
    let is_hidden = is_hidden(s, statement);
    if !is_hidden && caching.is_some_and(|caching| caching.is_indifferent(place)) {
        return;
    }
    let plan = plan(s, w, answers, statement);
    if matches!(plan, Plan::Nothing) {
        if let Some(caching) = caching {
            caching.note_indifference(place);
        }
        return;
    }
    if s.cached.wrote.is_empty() && s.cached.raised.is_none() {
        s.cached.edition = s.place.edition();
    }
    if let (true, Plan::Note(slots) | Plan::Raise(slots)) = (s.state.by_mode, &plan) {
        // What may do anything may have changed the path or made what is temporary, and nobody will ask.
        let wide = [answers.versions.of_all(), answers.versions.of_database(&s.pools.database)];
        let is_wide = slots.iter().any(|slot| wide.contains(slot));
        s.cached.is_adrift |= is_wide;
        if is_wide && !(statement.is_read && statement.functions.is_empty()) {
            s.state.temporaries.may_have_changed();
        }
    }
    if is_hidden && s.state.temporaries.have_views() {
        s.state.temporaries.may_have_changed();
    }
    match plan {
        Plan::Nothing => {}
        Plan::Note(slots) => {
            for slot in slots.iter() {
                if !s.cached.wrote.contains(slot) {
                    s.cached.wrote.push(*slot);
                }
            }
        }
        Plan::RollBack => (s.cached.ending, s.cached.rolls_back) = (true, true),
        Plan::Raise(slots) => {
            s.cached.ending |= statement.caching.as_deref().is_none_or(|caching| caching.text.ends);
            let mut wrote = std::mem::take(&mut s.cached.wrote);
            if let Some(raised) = raised(s, answers) {
                raised.add(&wrote);
                raised.add(&slots);
            }
            wrote.clear();
            s.cached.wrote = wrote;
        }
    }
}

/// What the session has raised on its link so far.
fn raised<'s>(s: &'s mut Session, answers: &Arc<Answers>) -> Option<&'s mut Raised> {
    let card = &s.link.as_ref()?.card;
    let none = || {
        let none = Raised::none(answers.clone(), s.pools.database.clone(), card.address.node, card.pid);
        none.in_room(std::mem::take(&mut s.cached.room))
    };
    Some(s.cached.raised.get_or_insert_with(none))
}

/// No transaction is open on the link: what was written is so now, if nothing more is under way.
pub(super) fn settle(s: &mut Session, w: &Worker) {
    let is_over = s.replies.is_only_ours();
    let round = w.shared.positions.next_round();
    let Some(answers) = &w.shared.answers else { return };
    let is_redefined = is_redefined(s);
    // What a transaction wrote that has ended without our knowing how.
    if !s.cached.wrote.is_empty() && is_over {
        let mut wrote = std::mem::take(&mut s.cached.wrote);
        if !s.cached.rolls_back {
            answers.versions.change(&wrote, round);
        }
        wrote.clear();
        s.cached.wrote = wrote;
    }
    if !is_over {
        return;
    }
    (s.cached.ending, s.cached.rolls_back) = (false, false);
    if let Some(mut raised) = s.cached.raised.take() {
        if is_redefined {
            // Another definition has come meanwhile: it may have written more than was known.
            raised.add(&[answers.versions.of_database(&s.pools.database)]);
        }
        s.cached.room = raised.settle(Outcome::Committed { round });
    }
}
