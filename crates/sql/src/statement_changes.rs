//! Part of a database that a statement may change, for the query cache. Unforeseen statements change the whole
//! database: results are dropped too often, never kept wrongly.

use pg_raw_parse::Node;
use pg_raw_parse::nodes::{DropBehavior, TransactionStmtKind};

use crate::defines::{is_into_temporary, is_temporary};
use crate::facts::ChangeScope;
use crate::tree_walk::{EffectTime, WalkFindings};

/// Changes of the statement itself; the walk finds those within (`WalkFindings::written`).
pub(crate) fn changes<'a>(node: Node<'a>, walk: &mut WalkFindings<'a>) -> ChangeScope {
    use Node as N;
    match node {
        N::SelectStmt(select) if select.into_clause().is_some() && !is_into_temporary(select.into_clause()) => {
            ChangeScope::Database
        }
        N::SelectStmt(_) => ChangeScope::Nothing,
        N::InsertStmt(_) | N::UpdateStmt(_) | N::DeleteStmt(_) | N::MergeStmt(_) => ChangeScope::Rows,
        N::TruncateStmt(truncate) => {
            for relation in truncate.relations() {
                if let N::RangeVar(relation) = relation {
                    walk.writes(Some(relation), EffectTime::Now);
                }
            }
            // Referring tables are not searched: such a statement is rare.
            if truncate.behavior == DropBehavior::DROP_CASCADE { ChangeScope::Database } else { ChangeScope::Rows }
        }
        N::CopyStmt(copy) if copy.is_from => {
            walk.writes(copy.relation(), EffectTime::Now);
            ChangeScope::Rows
        }
        // The walk finds writes of an inner query.
        N::CopyStmt(_) => ChangeScope::Nothing,
        N::RefreshMatViewStmt(refresh) => {
            walk.writes(refresh.relation(), EffectTime::Now);
            ChangeScope::Rows
        }
        // The caller judges `EXPLAIN ANALYZE`.
        N::ExplainStmt(_) => ChangeScope::Nothing,
        N::PrepareStmt(_) | N::DeallocateStmt(_) | N::DiscardStmt(_) | N::DeclareCursorStmt(_) => ChangeScope::Nothing,
        N::ClosePortalStmt(_) | N::FetchStmt(_) | N::LockStmt(_) | N::ConstraintsSetStmt(_) => ChangeScope::Nothing,
        N::ListenStmt(_) | N::UnlistenStmt(_) | N::NotifyStmt(_) | N::LoadStmt(_) | N::CheckPointStmt(_) => ChangeScope::Nothing,
        N::VariableSetStmt(_) | N::VariableShowStmt(_) | N::CommentStmt(_) | N::AlterSeqStmt(_) => ChangeScope::Nothing,
        N::IndexStmt(_) | N::ReindexStmt(_) | N::CreateStatsStmt(_) => ChangeScope::Nothing,
        // The prepared transaction is unknown and may change membership in a role.
        N::TransactionStmt(verb) if verb.kind == TransactionStmtKind::TRANS_STMT_COMMIT_PREPARED => ChangeScope::Cluster,
        N::TransactionStmt(_) => ChangeScope::Nothing,
        N::CreateStmt(create) if is_temporary(create.relation()) => ChangeScope::Nothing,
        N::CreateTableAsStmt(create) if is_into_temporary(create.into()) => ChangeScope::Nothing,
        N::AlterDatabaseRefreshCollStmt(_) | N::AlterDatabaseSetStmt(_) | N::AlterDatabaseStmt(_) | N::AlterRoleSetStmt(_) => {
            ChangeScope::Cluster
        }
        N::AlterRoleStmt(_) | N::AlterSystemStmt(_) | N::CreateRoleStmt(_) | N::CreatedbStmt(_) | N::DropRoleStmt(_) => {
            ChangeScope::Cluster
        }
        N::DropdbStmt(_) | N::GrantRoleStmt(_) | N::DropOwnedStmt(_) | N::ReassignOwnedStmt(_) | N::RenameStmt(_) => {
            ChangeScope::Cluster
        }
        _ => ChangeScope::Database,
    }
}
