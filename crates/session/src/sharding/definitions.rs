//! Definitions in a transaction on several shards.
//!
//! Definitions of spread tables are carried out by all shards (`reference_steps`). Those of other tables run on shard 0, whose part of the transaction
//! may have others beside it. What others know of the spread tables is in doubt until the transaction has ended (`SpreadChange`), and this transaction
//! itself goes on by what was known before it.

use crate::fault::{ErrorReport, sqlstate};
use crate::session::{IDLE, Session};
use crate::sharding::spread_write::ChangedPart;
use crate::statements::{Statement, StatementTrait};
use weir_sql::defined_names::defined_names;
use weir_sql::facts::StatementVerb;

/// True for a statement that may be one of all shards, or about tables of shard 0: no query and no DML, in an open transaction.
pub(super) fn may_be_movable(s: &Session, statement: &Statement) -> bool {
    let is_kind = matches!(statement.verb, StatementVerb::Definition | StatementVerb::Other);
    is_kind && !statement.has(StatementTrait::Many) && s.status() != IDLE
}

/// True for a definition after which names of spread tables mean what they meant, and which leaves nothing of its session's.
#[cold]
pub(super) fn is_about_others(s: &Session, statement: &Statement, text: &[u8]) -> bool {
    let leaves_nothing = statement.state.leaves.is_empty() && statement.state.may_change.is_empty();
    if statement.verb != StatementVerb::Definition || !leaves_nothing {
        return false;
    }
    if !statement.has(StatementTrait::Redefines) {
        return true;
    }
    let tables = s.account.known.sharding.tables();
    let is_spread = |name: &str| tables.as_ref().is_none_or(|tables| tables.has_name(name));
    let defined = std::str::from_utf8(text).ok().and_then(defined_names);
    defined.is_some_and(|defined| !defined.relations.iter().any(|relation| is_spread(&relation.name)))
}

/// True if the open transaction has changed this part of spread tables.
#[cold]
pub(super) fn has_changed(s: &Session, part: ChangedPart) -> bool {
    s.participants.as_ref().is_some_and(|participants| participants.has_changed(part))
}

/// The error of a row whose key stands by the order of columns that its own transaction has changed.
#[cold]
pub(super) fn columns_changed() -> ErrorReport {
    let text = "the transaction has changed columns of a spread table, and the statement has a row without a list of its columns";
    ErrorReport::error(sqlstate::FEATURE_NOT_SUPPORTED, text).hint("Name the columns.")
}

/// The error of a statement about indexes in a transaction that has made some of spread tables.
#[cold]
pub(super) fn indexes_changed() -> ErrorReport {
    let text = "the transaction has made or renamed an index of a spread table, and the statement may mean it";
    ErrorReport::error(sqlstate::FEATURE_NOT_SUPPORTED, text).hint("Run the statement after COMMIT.")
}
