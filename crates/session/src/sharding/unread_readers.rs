//! Functions and triggers that were just defined, and may read sharded tables: until a look has read them, nobody knows which statements run them.
//!
//! The look sees nothing of an open transaction. A definition whose text names no sharded table, and puts no text together, is none of these.

use crate::fault::{ErrorReport, sqlstate};
use crate::session::{IDLE, Session};
use crate::session_state::held_state::DefinedReaders;
use crate::statements::Statement;
use weir_catalog::builtin;

const WHAT: &str = "A function or trigger may read sharded tables, of which no server has all rows.";

/// Notes a text that defines such code. Error: it must not be defined in a transaction block.
pub fn note(s: &mut Session, text: &[u8]) -> Result<(), ErrorReport> {
    let text = String::from_utf8_lossy(text);
    let Some(tables) = s.account.known.sharding.tables() else { return Ok(()) };
    let writes_reference = tables.may_write_reference(&text);
    if writes_reference && s.status() != IDLE {
        return Err(view_in_block());
    }
    if !writes_reference && !tables.may_be_read_by(&text) {
        return Ok(());
    }
    let lower = text.to_ascii_lowercase();
    let fires = writes_reference || lower.contains("trigger") || lower.contains("rule");
    let defined = if fires { DefinedReaders::Triggers } else { DefinedReaders::Functions };
    let effects = &mut s.state.effects;
    effects.defined_readers = effects.defined_readers.max(defined);
    Ok(())
}

#[cold]
fn view_in_block() -> ErrorReport {
    let text = "a view or rule over a reference table is not defined in a transaction block: a write through it would change one copy only";
    ErrorReport::error(sqlstate::FEATURE_NOT_SUPPORTED, text).hint("Run the statement outside of a transaction block.")
}

/// Why a statement that may run such code is not sent.
pub enum UnreadCode {
    /// Its own transaction has defined it.
    OfTransaction(ErrorReport),
    /// The next look reads it.
    Awaited,
}

#[inline]
pub fn refusal(s: &Session, statement: &Statement) -> Option<UnreadCode> {
    let effects = &s.state.effects;
    // A definition that was refused, and so not sent, redefines nothing.
    let own = if effects.redefines { effects.defined_readers } else { DefinedReaders::None };
    match own {
        DefinedReaders::None if !s.account.known.sharding.has_unread_readers() => None,
        DefinedReaders::None => may_run_code(s, statement, DefinedReaders::Triggers).then_some(UnreadCode::Awaited),
        own => may_run_code(s, statement, own).then(|| UnreadCode::OfTransaction(refused_in_own())),
    }
}

/// True if a statement calls functions of users, or writes to a table that may have triggers of them.
#[cold]
fn may_run_code(s: &Session, statement: &Statement, code: DefinedReaders) -> bool {
    let calls = statement.state.functions.iter().any(|function| !builtin::changes_no_table(function));
    let tables = s.account.known.sharding.tables();
    let is_plain = |name: &str| tables.as_ref().is_none_or(|tables| !tables.has_name(name));
    calls || code == DefinedReaders::Triggers && statement.objects.written.iter().any(|table| is_plain(&table.name))
}

#[cold]
fn refused_in_own() -> ErrorReport {
    let text = "the transaction has defined a function or trigger that may read sharded tables, and the statement may run it";
    ErrorReport::error(sqlstate::FEATURE_NOT_SUPPORTED, text).detail(WHAT).hint("Run the statement after COMMIT.")
}

/// The error of a statement that has waited for the look for long enough.
#[cold]
pub fn unread() -> ErrorReport {
    let text = "a definition that was just made is being read, and the statement may run it; the statement was not sent";
    ErrorReport::error(sqlstate::CANNOT_CONNECT_NOW, text).detail(WHAT).hint("Run the statement again.")
}
