//! The kind of a statement, for statistics.

use pg_raw_parse::Node;

use crate::facts::StatementVerb;
use crate::statement::writes;

/// Returns the kind of a statement, with the definitions of `log_statement = ddl`. Source: `GetCommandLogLevel` in utility.c.
pub(crate) fn verb(node: Node<'_>) -> StatementVerb {
    match node {
        Node::SelectStmt(_) => StatementVerb::Select,
        Node::InsertStmt(_) => StatementVerb::Insert,
        Node::UpdateStmt(_) => StatementVerb::Update,
        Node::DeleteStmt(_) => StatementVerb::Delete,
        Node::MergeStmt(_) | Node::TruncateStmt(_) | Node::NotifyStmt(_) => StatementVerb::Other,
        Node::CheckPointStmt(_) | Node::VacuumStmt(_) | Node::ReindexStmt(_) => StatementVerb::Other,
        other if writes(other) => StatementVerb::Definition,
        _ => StatementVerb::Other,
    }
}
