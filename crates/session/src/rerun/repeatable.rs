//! Judges whether a transaction's statements may run again (`rerun`).

use crate::context::Context;
use crate::rerun::kept_transaction::RerunState;
use crate::routing::classify;
use crate::session::{IDLE, Session};
use crate::session_state;
use crate::statements::{Statement, StatementTrait};
use crate::unit::{ReadyStatus, SessionConcern, StatementMessage};
use weir_failover::rerun_rules::is_harmless;
use weir_sql::facts::{StatementVerb, TransactionEnd, TransactionVerb};
use weir_wire::frame::{MessageHeader, split_cstr};

pub struct RerunConcern;

impl SessionConcern for RerunConcern {
    /// Before the other concerns.
    #[inline]
    fn sent(s: &mut Session, _: &Context, header: MessageHeader, unit: StatementMessage<'_>) {
        if s.intake.replay.is_some() {
            note(s, header, unit);
        }
    }

    #[inline]
    fn ready(_: &mut Session, _: &Context, _: ReadyStatus) {}

    /// `teardown` decides on the rerun.
    fn lost(_: &mut Session, _: &Context) {}
}

fn note(s: &mut Session, header: MessageHeader, unit: StatementMessage<'_>) {
    let (statement, text) = match unit {
        StatementMessage::Query(statement) => (statement, s.up.whole_if_here(header).unwrap_or_default()),
        StatementMessage::Bind { prepared, statement } => (statement, &*prepared.tail),
        StatementMessage::Parse(_) | StatementMessage::Execute => return,
        StatementMessage::BindUnknown(_) | StatementMessage::Call(_) | StatementMessage::Garbled => {
            return s.intake.replay.iter_mut().filter(|record| record.is_kept()).for_each(|record| record.spoil());
        }
    };
    let is_open =
        s.lazy_begin.is_open() || s.upstream().is_some_and(|upstream| upstream.txn.control.is_open(upstream.txn.status != IDLE));
    let is_harmless = may_repeat(s, statement, split_cstr(text).map_or(&[][..], |(text, _)| text));
    let Some(record) = &mut s.intake.replay else { return };
    let next = match (&record.state, statement.transaction) {
        (RerunState::Again(_) | RerunState::Spoiled, _) => return,
        (RerunState::Whole, TransactionVerb::Begin(_)) => RerunState::Whole,
        (RerunState::Whole, TransactionVerb::End(ending @ (TransactionEnd::Commit | TransactionEnd::Rollback))) if is_open => {
            if ending == TransactionEnd::Commit {
                record.note_commit();
            }
            RerunState::Ending
        }
        (RerunState::Whole, TransactionVerb::None | TransactionVerb::Within) if is_open && is_harmless => RerunState::Whole,
        (RerunState::Whole | RerunState::Ending, _) => return record.spoil(),
    };
    record.state = next;
}

/// True if the statement has no effect outside of its transaction: no user code runs.
fn may_repeat(s: &Session, statement: &Statement, text: &[u8]) -> bool {
    let is_known = match statement.verb {
        StatementVerb::Select | StatementVerb::Insert | StatementVerb::Update | StatementVerb::Delete => true,
        StatementVerb::Other => is_harmless(text),
        StatementVerb::Definition => false,
    };
    let does_more =
        statement.has(StatementTrait::Many) || statement.has(StatementTrait::Signals) || statement.has(StatementTrait::Executes);
    let leaves_nothing = statement.state.functions.is_empty() && session_state::left_unseen(s, statement).is_empty();
    is_known && !does_more && leaves_nothing && stays_inside(s, statement)
}

fn stays_inside(s: &Session, statement: &Statement) -> bool {
    let objects = &statement.objects;
    let Some(names) = objects.all_names() else { return objects.written.is_empty() };
    let Some(catalog) = s.account.known.catalog() else { return false };
    catalog.stays_inside(names, &objects.written, &classify::path_in(s, &catalog))
}
