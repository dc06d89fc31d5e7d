//! The kind of a statement, for statistics.

use pg_raw_parse::Node;

use crate::facts::Verb;
use crate::statement::writes;

/// The kind of a statement. Definitions are those of `log_statement = ddl`. Source: `GetCommandLogLevel` in utility.c.
pub(crate) fn verb(node: Node<'_>) -> Verb {
    match node {
        Node::SelectStmt(_) => Verb::Select,
        Node::InsertStmt(_) => Verb::Insert,
        Node::UpdateStmt(_) => Verb::Update,
        Node::DeleteStmt(_) => Verb::Delete,
        Node::MergeStmt(_) | Node::TruncateStmt(_) | Node::NotifyStmt(_) => Verb::Other,
        Node::CheckPointStmt(_) | Node::VacuumStmt(_) | Node::ReindexStmt(_) => Verb::Other,
        other if writes(other) => Verb::Definition,
        _ => Verb::Other,
    }
}
