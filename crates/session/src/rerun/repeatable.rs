//! Judges if the statements of a transaction may run again, should it be lost (`replay`).

use crate::context::Context;
use crate::rerun::kept_transaction::State;
use crate::routing::classify;
use crate::session::{IDLE, Session};
use crate::session_state;
use crate::statements::{Statement, Trait};
use crate::unit::{Concern, Ended, Unit};
use weir_failover::rerun_rules::is_harmless;
use weir_sql::facts::{Ending, Transaction, Verb};
use weir_wire::frame::{Header, split_cstr};

/// The concern of this module.
pub struct Replay;

impl Concern for Replay {
    /// To be called before the others take the statement in.
    #[inline]
    fn sent(s: &mut Session, _: &Context, header: Header, unit: Unit<'_>) {
        if s.intake.replay.is_some() {
            note(s, header, unit);
        }
    }

    #[inline]
    fn ready(_: &mut Session, _: &Context, _: Ended) {}

    /// `teardown` has it run again, or not.
    fn lost(_: &mut Session, _: &Context) {}
}

/// Notes if a statement that is about to be sent may run again.
fn note(s: &mut Session, header: Header, unit: Unit<'_>) {
    let (statement, text) = match unit {
        Unit::Query(statement) => (statement, s.up.whole_if_here(header).unwrap_or_default()),
        Unit::Bind { prepared, statement } => (statement, &*prepared.tail),
        Unit::Parse(_) | Unit::Execute => return,
        Unit::BindUnknown(_) | Unit::Call(_) | Unit::Garbled => {
            return s.intake.replay.iter_mut().filter(|record| record.is_kept()).for_each(|record| record.spoil());
        }
    };
    let is_open =
        s.lazy_begin.is_open() || s.upstream().is_some_and(|upstream| upstream.txn.control.is_open(upstream.txn.status != IDLE));
    let is_harmless = may_repeat(s, statement, split_cstr(text).map_or(&[][..], |(text, _)| text));
    let Some(record) = &mut s.intake.replay else { return };
    let next = match (&record.state, statement.transaction) {
        (State::Again(_) | State::Spoiled, _) => return,
        (State::Whole, Transaction::Begin(_)) => State::Whole,
        (State::Whole, Transaction::End(ending @ (Ending::Commit | Ending::Rollback))) if is_open => {
            if ending == Ending::Commit {
                record.note_commit();
            }
            State::Ending
        }
        (State::Whole, Transaction::None | Transaction::Within) if is_open && is_harmless => State::Whole,
        (State::Whole | State::Ending, _) => return record.spoil(),
    };
    record.state = next;
}

/// True if a statement has no effect outside of its transaction, for certain: it runs no code of users.
fn may_repeat(s: &Session, statement: &Statement, text: &[u8]) -> bool {
    let is_known = match statement.verb {
        Verb::Select | Verb::Insert | Verb::Update | Verb::Delete => true,
        Verb::Other => is_harmless(text),
        Verb::Definition => false,
    };
    let does_more = statement.has(Trait::Many) || statement.has(Trait::Signals) || statement.has(Trait::Executes);
    let leaves_nothing = statement.state.functions.is_empty() && session_state::left_unseen(s, statement).is_empty();
    is_known && !does_more && leaves_nothing && stays_inside(s, statement)
}

/// True if the catalog shows no effect outside of the database.
fn stays_inside(s: &Session, statement: &Statement) -> bool {
    let objects = &statement.objects;
    let Some(names) = objects.all_names() else { return objects.written.is_empty() };
    let Some(catalog) = s.account.known.catalog() else { return false };
    catalog.stays_inside(names, &objects.written, &classify::path_in(s, &catalog))
}
