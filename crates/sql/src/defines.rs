//! Finds statements after which Weir's knowledge of the database is out of date.

use pg_raw_parse::Node;
use pg_raw_parse::nodes::{IntoClause, RangeVar, TransactionStmtKind};
use pg_raw_parse::raw::NodeTag;

use crate::met_names::is_temporary_schema;
use crate::statement::writes;

/// True if a statement may change the meaning of a name for others, or the defaults of new sessions. Changes of rows,
/// storage or rights and temporary tables do not. Procedural code is not looked at.
pub(crate) fn defines(node: Node<'_>) -> bool {
    use Node as N;
    match node {
        N::InsertStmt(_) | N::UpdateStmt(_) | N::DeleteStmt(_) | N::MergeStmt(_) | N::TruncateStmt(_) => false,
        N::NotifyStmt(_) | N::CheckPointStmt(_) | N::VacuumStmt(_) | N::ClusterStmt(_) | N::ReindexStmt(_) => false,
        N::RefreshMatViewStmt(_) | N::CommentStmt(_) | N::GrantStmt(_) | N::GrantRoleStmt(_) | N::AlterSeqStmt(_) => false,
        N::IndexStmt(_) | N::CreateStatsStmt(_) | N::AlterStatsStmt(_) | N::SecLabelStmt(_) => false,
        N::AlterDefaultPrivilegesStmt(_) | N::AlterSystemStmt(_) => false,
        N::CreateStmt(create) => !is_temporary(create.relation()),
        N::CreateTableAsStmt(create) => !is_into_temporary(create.into()),
        N::SelectStmt(select) => select.into_clause().is_some() && !is_into_temporary(select.into_clause()),
        // The only writing statement that the binding leaves out.
        N::Invalid(other) => other.type_ == NodeTag::T_CreateForeignTableStmt,
        // The prepared transaction is not known.
        N::TransactionStmt(verb) => verb.kind == TransactionStmtKind::TRANS_STMT_COMMIT_PREPARED,
        other => writes(other),
    }
}

pub(crate) fn is_into_temporary(into: Option<&IntoClause>) -> bool {
    is_temporary(into.and_then(IntoClause::rel))
}

pub(crate) fn is_temporary(relation: Option<&RangeVar>) -> bool {
    relation.is_some_and(|relation| {
        relation.relpersistence as u8 == b't' || is_temporary_schema(relation.schemaname().unwrap_or_default())
    })
}
