//! One statement: its effect, and changes to transaction and session.

use pg_raw_parse::Node;
use pg_raw_parse::nodes::{
    CommentStmt, CopyStmt, DefElem, DiscardMode, DropStmt, ExplainStmt, GrantStmt, ObjectType, TransactionStmt,
    TransactionStmtKind,
};
use pg_raw_parse::raw::NodeTag;

use crate::copy_from;
use crate::copy_to;
use crate::definition_terms::commented_table;
use crate::facts::{
    AccessMode, BeginOptions, ChangeScope, IsolationLevel, ParameterChange, QueryEffect, ResetTarget, SavepointCommand,
    SavepointVerb, SessionVerb, StateChange, StateKind, StateKinds, TextProperties, TextProperty, TransactionEnd,
    TransactionVerb,
};
use crate::met_names::qualified;
use crate::set_statements;
use crate::tree_walk::{EffectTime, WalkFindings};

/// `DECLARE ... WITH HOLD`: `CURSOR_OPT_HOLD` in parsenodes.h.
pub(crate) const CURSOR_HOLD: i32 = 0x20;

#[derive(Debug, Default)]
pub(crate) struct StatementFacts {
    pub(crate) effect: QueryEffect,
    pub(crate) transaction: TransactionVerb,
    pub(crate) marks: TextProperties,
    pub(crate) state: StateChange,
    pub(crate) parameters: ParameterChange,
    pub(crate) vacates: Option<String>,
    pub(crate) unseats: Vec<String>,
    pub(crate) session: SessionVerb,
    pub(crate) savepoint: Option<SavepointCommand>,
    pub(crate) show: Option<String>,
    pub(crate) changes: ChangeScope,
}

impl StatementFacts {
    pub(crate) fn effect(effect: QueryEffect) -> Self {
        Self { effect, ..Self::default() }
    }

    pub(crate) fn keeping(kind: StateKind) -> Self {
        Self::effect(QueryEffect::Unsure).and_keeps(kind)
    }

    fn freeing(effect: QueryEffect, frees: StateKind) -> Self {
        Self { effect, state: StateChange { frees: StateKinds::of(frees), ..StateChange::default() }, ..Self::default() }
    }

    pub(crate) fn session(session: SessionVerb) -> Self {
        Self { effect: QueryEffect::Unsure, session, ..Self::default() }
    }

    pub(crate) fn transaction(effect: QueryEffect, transaction: TransactionVerb) -> Self {
        Self { effect, transaction, ..Self::default() }
    }

    pub(crate) fn and_keeps(mut self, kind: StateKind) -> Self {
        self.state.keeps.add(kind);
        self
    }

    pub(crate) fn and_resets(mut self, reset: ResetTarget) -> Self {
        self.parameters.resets = Some(reset);
        self
    }

    pub(crate) fn marked(mut self, mark: TextProperty) -> Self {
        self.marks.add(mark);
        self
    }
}

/// Shows the walk every name.
pub(crate) fn judge<'a>(node: Node<'a>, walk: &mut WalkFindings<'a>) -> StatementFacts {
    match node {
        Node::ExplainStmt(explain) => return judge_explain(explain, walk),
        Node::DropStmt(drop) => note_dropped(drop, walk),
        Node::GrantStmt(grant) => note_granted(grant, walk),
        Node::CommentStmt(comment) => note_commented(comment, walk),
        _ => note_made(node, walk),
    }
    let nested = walk.visit(node, run_of(node));
    match node {
        Node::SelectStmt(_) => StatementFacts::effect(nested.max(QueryEffect::Reads)),
        Node::CopyStmt(copy) if copy_from::takes_rows(copy) => {
            StatementFacts::effect(QueryEffect::Writes).marked(TextProperty::CopiesIn)
        }
        Node::CopyStmt(copy) if copy_to::gives_rows(copy) => {
            StatementFacts::effect(copy_effect(copy, nested)).marked(TextProperty::CopiesOut)
        }
        Node::CopyStmt(copy) => StatementFacts::effect(copy_effect(copy, nested)),
        Node::TransactionStmt(verb) => judge_transaction(verb),
        Node::VariableSetStmt(set) => set_statements::judge_set(set).marked(TextProperty::OfSession),
        Node::VariableShowStmt(show) => {
            let name = show.name().map(str::to_ascii_lowercase);
            StatementFacts { effect: QueryEffect::Unsure, show: name, ..StatementFacts::default() }
                .marked(TextProperty::OfSession)
        }
        Node::DiscardStmt(discard) if discard.target == DiscardMode::DISCARD_ALL => {
            StatementFacts::session(SessionVerb::DiscardAll)
                .and_resets(ResetTarget::All)
                .marked(TextProperty::Moves)
                .marked(TextProperty::OfSession)
        }
        Node::DiscardStmt(_) => {
            StatementFacts::freeing(QueryEffect::Unsure, StateKind::Temporary).marked(TextProperty::OfSession)
        }
        Node::ClosePortalStmt(_) => {
            StatementFacts::freeing(QueryEffect::Unsure, StateKind::HoldCursor).marked(TextProperty::OfSession)
        }
        Node::FetchStmt(_) => StatementFacts::effect(QueryEffect::Unsure).marked(TextProperty::Fetches),
        Node::UnlistenStmt(_) => StatementFacts::freeing(QueryEffect::Unsure, StateKind::Listen).marked(TextProperty::OfSession),
        Node::AlterRoleSetStmt(_) | Node::AlterDatabaseSetStmt(_) => {
            StatementFacts::effect(QueryEffect::Writes).marked(TextProperty::AltersDefaults)
        }
        Node::DropdbStmt(_) | Node::CreatedbStmt(_) | Node::AlterDatabaseStmt(_) | Node::RenameStmt(_) => {
            let unseats = released_roles(node).map(str::to_owned).collect();
            StatementFacts { vacates: vacated(node).map(str::to_owned), unseats, ..StatementFacts::effect(QueryEffect::Writes) }
        }
        Node::DropRoleStmt(_) => StatementFacts {
            unseats: released_roles(node).map(str::to_owned).collect(),
            ..StatementFacts::effect(QueryEffect::Writes)
        },
        Node::DropStmt(_) => StatementFacts::freeing(QueryEffect::Writes, StateKind::Temporary),
        Node::DeallocateStmt(gone) => {
            let session = match gone.name() {
                Some(name) if !gone.isall => SessionVerb::Deallocate(name.to_owned()),
                _ => SessionVerb::DeallocateAll,
            };
            StatementFacts::session(session)
                .and_keeps(StateKind::Prepare)
                .marked(TextProperty::Prepared)
                .marked(TextProperty::OfSession)
        }
        Node::PrepareStmt(prepare) => {
            let mut verdict = StatementFacts::keeping(StateKind::Prepare).marked(TextProperty::Prepared);
            verdict.state.later = left_by(prepare.query(), walk.place_of_start());
            verdict
        }
        Node::ListenStmt(_) => StatementFacts::keeping(StateKind::Listen),
        Node::LoadStmt(_) => StatementFacts::keeping(StateKind::Library),
        Node::DeclareCursorStmt(cursor) if cursor.options & CURSOR_HOLD != 0 => StatementFacts::keeping(StateKind::HoldCursor),
        // Procedural code is in strings and the catalog, not in the tree.
        Node::CallStmt(_) | Node::DoStmt(_) => StatementFacts::keeping(StateKind::Unknown),
        // The binding leaves this node out: its name is unseen and may be in pg_temp.
        Node::Invalid(other) if other.type_ == NodeTag::T_CreateForeignTableStmt => {
            StatementFacts::effect(QueryEffect::Writes).and_keeps(StateKind::Temporary)
        }
        _ if writes(node) => StatementFacts::effect(QueryEffect::Writes),
        _ => StatementFacts::effect(QueryEffect::Unsure),
    }
}

fn run_of(node: Node<'_>) -> EffectTime {
    match node {
        Node::PrepareStmt(_) => EffectTime::Never,
        Node::ViewStmt(_)
        | Node::RuleStmt(_)
        | Node::CreateFunctionStmt(_)
        | Node::CreateStmt(_)
        | Node::CreateTrigStmt(_)
        | Node::CreatePolicyStmt(_)
        | Node::AlterPolicyStmt(_)
        | Node::CreateDomainStmt(_)
        | Node::CreateSchemaStmt(_) => EffectTime::Stored,
        _ => EffectTime::Now,
    }
}

/// `EXPLAIN` runs the statement only with `ANALYZE`.
fn judge_explain<'a>(explain: &'a ExplainStmt, walk: &mut WalkFindings<'a>) -> StatementFacts {
    if explain.options().iter().any(|option| option.defname() == Some("analyze") && may_be_true(option)) {
        return judge_explained(explain.query(), walk).marked(TextProperty::Explains);
    }
    // EXPLAIN evaluates the arguments of EXECUTE to find the plan.
    let run = if matches!(explain.query(), Node::ExecuteStmt(_)) { EffectTime::Now } else { EffectTime::Never };
    walk.visit(explain.query(), run);
    StatementFacts::effect(QueryEffect::Reads).marked(TextProperty::Explains)
}

/// Never another `EXPLAIN`.
fn judge_explained<'a>(query: Node<'a>, walk: &mut WalkFindings<'a>) -> StatementFacts {
    let nested = walk.visit(query, EffectTime::Now);
    match query {
        Node::SelectStmt(_) => StatementFacts::effect(nested.max(QueryEffect::Reads)),
        Node::DeclareCursorStmt(cursor) if cursor.options & CURSOR_HOLD != 0 => StatementFacts::keeping(StateKind::HoldCursor),
        _ if writes(query) => StatementFacts::effect(QueryEffect::Writes),
        _ => StatementFacts::effect(QueryEffect::Unsure),
    }
}

/// True if an option may be on: `defGetBoolean`.
fn may_be_true(option: &DefElem) -> bool {
    let word = match option.arg() {
        Node::Integer(number) => return number.ival != 0,
        Node::String(word) => word.sval(),
        _ => None,
    };
    !word.is_some_and(|word| word.eq_ignore_ascii_case("false") || word.eq_ignore_ascii_case("off"))
}

/// Database that must be without connections, as in dbcommands.c.
fn vacated(node: Node<'_>) -> Option<&str> {
    match node {
        Node::DropdbStmt(drop) => drop.dbname(),
        Node::CreatedbStmt(create) => {
            let template = create.options().iter().find(|option| option.defname() == Some("template"));
            match template.map(DefElem::arg) {
                Some(Node::String(name)) => name.sval(),
                _ => Some("template1"),
            }
        }
        Node::AlterDatabaseStmt(alter) => {
            let moves = alter.options().iter().any(|option| option.defname() == Some("tablespace"));
            alter.dbname().filter(|_| moves)
        }
        Node::RenameStmt(rename) if rename.rename_type == ObjectType::OBJECT_DATABASE => rename.subname(),
        _ => None,
    }
}

fn released_roles(node: Node<'_>) -> impl Iterator<Item = &str> {
    let (renamed, dropped) = match node {
        Node::RenameStmt(rename) if rename.rename_type == ObjectType::OBJECT_ROLE => (rename.subname(), None),
        Node::DropRoleStmt(drop) => (None, Some(drop.roles())),
        _ => (None, None),
    };
    let names = dropped.into_iter().flat_map(|roles| roles.iter()).filter_map(|role| match role {
        Node::RoleSpec(role) => role.rolename(),
        _ => None,
    });
    renamed.into_iter().chain(names)
}

fn copy_effect(copy: &CopyStmt, nested: QueryEffect) -> QueryEffect {
    match copy.is_from || copy.is_program || copy.filename().is_some() {
        true => QueryEffect::Writes,
        false => nested.max(QueryEffect::Reads),
    }
}

fn judge_transaction(verb: &TransactionStmt) -> StatementFacts {
    use TransactionStmtKind as Kind;
    let (effect, transaction) = match verb.kind {
        Kind::TRANS_STMT_BEGIN | Kind::TRANS_STMT_START => (QueryEffect::Unsure, TransactionVerb::Begin(begin(verb))),
        Kind::TRANS_STMT_COMMIT if !verb.chain => (QueryEffect::Unsure, TransactionVerb::End(TransactionEnd::Commit)),
        Kind::TRANS_STMT_ROLLBACK if !verb.chain => (QueryEffect::Unsure, TransactionVerb::End(TransactionEnd::Rollback)),
        Kind::TRANS_STMT_COMMIT => (QueryEffect::Unsure, TransactionVerb::Chain(TransactionEnd::Commit)),
        Kind::TRANS_STMT_ROLLBACK => (QueryEffect::Unsure, TransactionVerb::Chain(TransactionEnd::Rollback)),
        Kind::TRANS_STMT_PREPARE => (QueryEffect::Writes, TransactionVerb::End(TransactionEnd::Prepare)),
        Kind::TRANS_STMT_COMMIT_PREPARED | Kind::TRANS_STMT_ROLLBACK_PREPARED => (QueryEffect::Writes, TransactionVerb::Prepared),
        _ => (QueryEffect::Unsure, TransactionVerb::Within),
    };
    StatementFacts { savepoint: savepoint(verb), ..StatementFacts::transaction(effect, transaction) }
}

fn savepoint(statement: &TransactionStmt) -> Option<SavepointCommand> {
    use TransactionStmtKind as Kind;
    let verb = match statement.kind {
        Kind::TRANS_STMT_SAVEPOINT => SavepointVerb::Set,
        Kind::TRANS_STMT_RELEASE => SavepointVerb::Release,
        Kind::TRANS_STMT_ROLLBACK_TO => SavepointVerb::RollBackTo,
        _ => return None,
    };
    Some(SavepointCommand { verb, name: statement.savepoint_name()?.into() })
}

/// Of contradicting options the last holds, as in PostgreSQL.
fn begin(verb: &TransactionStmt) -> BeginOptions {
    let mut begin = BeginOptions { starts: verb.kind == TransactionStmtKind::TRANS_STMT_START, ..BeginOptions::default() };
    for option in verb.options() {
        let Node::DefElem(option) = option else { continue };
        let Node::A_Const(value) = option.arg() else { continue };
        let Some(value) = value.val() else { continue };
        let on = value.numeric_value::<i32>() == Some(1);
        match option.defname() {
            Some("transaction_isolation") => begin.isolation = isolation(value.string_value().unwrap_or_default()),
            Some("transaction_read_only") if on => begin.access = AccessMode::ReadOnly,
            Some("transaction_read_only") => begin.access = AccessMode::ReadWrite,
            Some("transaction_deferrable") => begin.deferrable = on,
            _ => {}
        }
    }
    begin
}

fn isolation(level: &str) -> IsolationLevel {
    match level {
        "read uncommitted" => IsolationLevel::ReadUncommitted,
        "read committed" => IsolationLevel::ReadCommitted,
        "repeatable read" => IsolationLevel::RepeatableRead,
        "serializable" => IsolationLevel::Serializable,
        _ => IsolationLevel::Unset,
    }
}

/// State that a prepared statement leaves once it runs.
fn left_by(query: Node<'_>, start: i32) -> StateKinds {
    let mut walk = WalkFindings::default();
    walk.start(start);
    walk.visit(query, EffectTime::Now);
    walk.keeps
}

fn note_dropped<'a>(drop: &'a DropStmt, walk: &mut WalkFindings<'a>) {
    let relations = matches!(
        drop.remove_type,
        ObjectType::OBJECT_TABLE
            | ObjectType::OBJECT_VIEW
            | ObjectType::OBJECT_MATVIEW
            | ObjectType::OBJECT_SEQUENCE
            | ObjectType::OBJECT_FOREIGN_TABLE
            | ObjectType::OBJECT_INDEX
    );
    for object in drop.objects() {
        if let (true, Node::NodeList(name)) = (relations, object) {
            walk.named(qualified(name.iter()), EffectTime::Now);
        }
    }
}

/// Objects of other kinds are not relations, and the binding would panic.
fn note_granted<'a>(grant: &'a GrantStmt, walk: &mut WalkFindings<'a>) {
    let of_objects = grant.targtype == pg_raw_parse::nodes::GrantTargetType::ACL_TARGET_OBJECT;
    if of_objects && matches!(grant.objtype, ObjectType::OBJECT_TABLE | ObjectType::OBJECT_SEQUENCE) {
        grant.objects().iter().for_each(|relation| walk.target(Some(relation), EffectTime::Now));
    }
}

fn note_commented<'a>(comment: &'a CommentStmt, walk: &mut WalkFindings<'a>) {
    if let Some(name) = commented_table(comment) {
        walk.named(name, EffectTime::Never);
    }
}

/// Functions, types and the like in `pg_temp`; the walk sees relations.
fn note_made<'a>(node: Node<'a>, walk: &mut WalkFindings<'a>) {
    let (schema, _) = match node {
        Node::CreateFunctionStmt(s) => qualified(s.funcname().iter()),
        Node::CreateDomainStmt(s) => qualified(s.domainname().iter().map(Node::from)),
        Node::CreateEnumStmt(s) => qualified(s.type_name().iter().map(Node::from)),
        Node::CreateRangeStmt(s) => qualified(s.type_name().iter().map(Node::from)),
        Node::DefineStmt(s) => qualified(s.defnames().iter().map(Node::from)),
        Node::CreateConversionStmt(s) => qualified(s.conversion_name().iter()),
        Node::CreateStatsStmt(s) => qualified(s.defnames().iter().map(Node::from)),
        Node::CreateOpClassStmt(s) => qualified(s.opclassname().iter().map(Node::from)),
        Node::CreateOpFamilyStmt(s) => qualified(s.opfamilyname().iter().map(Node::from)),
        _ => return,
    };
    walk.owner(schema, EffectTime::Now);
}

#[rustfmt::skip] // a table
pub(crate) fn writes(node: Node<'_>) -> bool {
    use Node as N;
    matches!(
        node,
        N::InsertStmt(_) | N::UpdateStmt(_) | N::DeleteStmt(_) | N::MergeStmt(_) | N::TruncateStmt(_)
        | N::CreateTableAsStmt(_) | N::RefreshMatViewStmt(_) | N::NotifyStmt(_) | N::CheckPointStmt(_)
        | N::VacuumStmt(_) | N::ClusterStmt(_) | N::ReindexStmt(_)
        | N::AlterCollationStmt(_) | N::AlterDatabaseRefreshCollStmt(_) | N::AlterDatabaseSetStmt(_)
        | N::AlterDatabaseStmt(_) | N::AlterDefaultPrivilegesStmt(_) | N::AlterDomainStmt(_) | N::AlterEnumStmt(_)
        | N::AlterEventTrigStmt(_) | N::AlterExtensionContentsStmt(_) | N::AlterExtensionStmt(_) | N::AlterFdwStmt(_)
        | N::AlterForeignServerStmt(_) | N::AlterFunctionStmt(_) | N::AlterObjectDependsStmt(_)
        | N::AlterObjectSchemaStmt(_) | N::AlterOpFamilyStmt(_) | N::AlterOperatorStmt(_) | N::AlterOwnerStmt(_)
        | N::AlterPolicyStmt(_) | N::AlterPublicationStmt(_) | N::AlterRoleSetStmt(_) | N::AlterRoleStmt(_)
        | N::AlterSeqStmt(_) | N::AlterStatsStmt(_) | N::AlterSubscriptionStmt(_) | N::AlterSystemStmt(_)
        | N::AlterTSConfigurationStmt(_) | N::AlterTSDictionaryStmt(_) | N::AlterTableMoveAllStmt(_)
        | N::AlterTableSpaceOptionsStmt(_) | N::AlterTableStmt(_) | N::AlterTypeStmt(_) | N::AlterUserMappingStmt(_)
        | N::CommentStmt(_) | N::CompositeTypeStmt(_) | N::CreateAmStmt(_) | N::CreateCastStmt(_)
        | N::CreateConversionStmt(_) | N::CreateDomainStmt(_) | N::CreateEnumStmt(_) | N::CreateEventTrigStmt(_)
        | N::CreateExtensionStmt(_) | N::CreateFdwStmt(_) | N::CreateForeignServerStmt(_) | N::CreateFunctionStmt(_)
        | N::CreateOpClassStmt(_) | N::CreateOpFamilyStmt(_) | N::CreatePLangStmt(_) | N::CreatePolicyStmt(_)
        | N::CreatePublicationStmt(_) | N::CreateRangeStmt(_) | N::CreateRoleStmt(_) | N::CreateSchemaStmt(_)
        | N::CreateSeqStmt(_) | N::CreateStatsStmt(_) | N::CreateStmt(_)
        | N::CreateSubscriptionStmt(_) | N::CreateTableSpaceStmt(_) | N::CreateTransformStmt(_) | N::CreateTrigStmt(_)
        | N::CreateUserMappingStmt(_) | N::CreatedbStmt(_) | N::DefineStmt(_) | N::DropOwnedStmt(_)
        | N::DropRoleStmt(_) | N::DropStmt(_) | N::DropSubscriptionStmt(_) | N::DropTableSpaceStmt(_)
        | N::DropUserMappingStmt(_) | N::DropdbStmt(_) | N::GrantRoleStmt(_) | N::GrantStmt(_)
        | N::ImportForeignSchemaStmt(_) | N::IndexStmt(_) | N::ReassignOwnedStmt(_) | N::RenameStmt(_)
        | N::RuleStmt(_) | N::SecLabelStmt(_) | N::ViewStmt(_)
    )
}
