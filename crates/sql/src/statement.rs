//! One statement: its effect, and the changes that it leaves in transaction and session.

use pg_raw_parse::Node;
use pg_raw_parse::nodes::{
    CopyStmt, DefElem, DiscardMode, DropStmt, ExplainStmt, GrantStmt, ObjectType, TransactionStmt, TransactionStmtKind,
};
use pg_raw_parse::raw::NodeTag;

use crate::facts::{
    AccessMode, Begin, Changes, Effect, Ending, Isolation, Mark, Marks, ParameterChange, Reset, SessionVerb, StateChange,
    StateKind, StateKinds, Transaction,
};
use crate::met_names::qualified;
use crate::set_statements;
use crate::tree_walk::{Run, Walk};

/// `DECLARE ... WITH HOLD`: `CURSOR_OPT_HOLD` in PostgreSQL's parsenodes.h.
const CURSOR_HOLD: i32 = 0x20;

/// Facts of one statement, besides those that the walk has noted.
#[derive(Debug, Default)]
pub(crate) struct Verdict {
    pub(crate) effect: Effect,
    pub(crate) transaction: Transaction,
    pub(crate) marks: Marks,
    pub(crate) state: StateChange,
    pub(crate) parameters: ParameterChange,
    pub(crate) vacates: Option<String>,
    pub(crate) unseats: Vec<String>,
    pub(crate) session: SessionVerb,
    pub(crate) show: Option<String>,
    pub(crate) changes: Changes,
}

impl Verdict {
    pub(crate) fn effect(effect: Effect) -> Self {
        Self { effect, ..Self::default() }
    }

    pub(crate) fn keeping(kind: StateKind) -> Self {
        Self::effect(Effect::Unsure).and_keeps(kind)
    }

    fn freeing(effect: Effect, frees: StateKind) -> Self {
        Self { effect, state: StateChange { frees: StateKinds::of(frees), ..StateChange::default() }, ..Self::default() }
    }

    pub(crate) fn session(session: SessionVerb) -> Self {
        Self { effect: Effect::Unsure, session, ..Self::default() }
    }

    pub(crate) fn transaction(effect: Effect, transaction: Transaction) -> Self {
        Self { effect, transaction, ..Self::default() }
    }

    pub(crate) fn and_keeps(mut self, kind: StateKind) -> Self {
        self.state.keeps.add(kind);
        self
    }

    pub(crate) fn and_resets(mut self, reset: Reset) -> Self {
        self.parameters.resets = Some(reset);
        self
    }

    pub(crate) fn marked(mut self, mark: Mark) -> Self {
        self.marks.add(mark);
        self
    }
}

/// Judges a statement and shows the walk every name in it.
pub(crate) fn judge<'a>(node: Node<'a>, walk: &mut Walk<'a>) -> Verdict {
    match node {
        Node::ExplainStmt(explain) => return judge_explain(explain, walk),
        Node::DropStmt(drop) => note_dropped(drop, walk),
        Node::GrantStmt(grant) => note_granted(grant, walk),
        _ => note_made(node, walk),
    }
    let nested = walk.visit(node, run_of(node));
    match node {
        Node::SelectStmt(_) => Verdict::effect(nested.max(Effect::Reads)),
        Node::CopyStmt(copy) => Verdict::effect(copy_effect(copy, nested)),
        Node::TransactionStmt(verb) => judge_transaction(verb),
        Node::VariableSetStmt(set) => set_statements::judge_set(set).marked(Mark::OfSession),
        Node::VariableShowStmt(show) => {
            let name = show.name().map(str::to_ascii_lowercase);
            Verdict { effect: Effect::Unsure, show: name, ..Verdict::default() }.marked(Mark::OfSession)
        }
        Node::DiscardStmt(discard) if discard.target == DiscardMode::DISCARD_ALL => {
            Verdict::session(SessionVerb::DiscardAll).and_resets(Reset::All).marked(Mark::Moves).marked(Mark::OfSession)
        }
        Node::DiscardStmt(_) => Verdict::freeing(Effect::Unsure, StateKind::Temporary).marked(Mark::OfSession),
        Node::ClosePortalStmt(_) => Verdict::freeing(Effect::Unsure, StateKind::HoldCursor).marked(Mark::OfSession),
        Node::UnlistenStmt(_) => Verdict::freeing(Effect::Unsure, StateKind::Listen).marked(Mark::OfSession),
        Node::AlterRoleSetStmt(_) | Node::AlterDatabaseSetStmt(_) => Verdict::effect(Effect::Writes).marked(Mark::AltersDefaults),
        Node::DropdbStmt(_) | Node::CreatedbStmt(_) | Node::AlterDatabaseStmt(_) | Node::RenameStmt(_) => {
            let unseats = unseated(node).map(str::to_owned).collect();
            Verdict { vacates: vacated(node).map(str::to_owned), unseats, ..Verdict::effect(Effect::Writes) }
        }
        Node::DropRoleStmt(_) => {
            Verdict { unseats: unseated(node).map(str::to_owned).collect(), ..Verdict::effect(Effect::Writes) }
        }
        Node::DropStmt(_) => Verdict::freeing(Effect::Writes, StateKind::Temporary),
        Node::DeallocateStmt(gone) => {
            let session = match gone.name() {
                Some(name) if !gone.isall => SessionVerb::Deallocate(name.to_owned()),
                _ => SessionVerb::DeallocateAll,
            };
            Verdict::session(session).and_keeps(StateKind::Prepare).marked(Mark::Prepared).marked(Mark::OfSession)
        }
        Node::PrepareStmt(prepare) => {
            let mut verdict = Verdict::keeping(StateKind::Prepare).marked(Mark::Prepared);
            verdict.state.later = left_by(prepare.query(), walk.place_of_start());
            verdict
        }
        Node::ListenStmt(_) => Verdict::keeping(StateKind::Listen),
        Node::LoadStmt(_) => Verdict::keeping(StateKind::Library),
        Node::DeclareCursorStmt(cursor) if cursor.options & CURSOR_HOLD != 0 => Verdict::keeping(StateKind::HoldCursor),
        // The work of procedural code stands in strings and in the catalog, not in the tree.
        Node::CallStmt(_) | Node::DoStmt(_) => Verdict::keeping(StateKind::Unknown),
        // The binding leaves this one out, since it begins with a whole `CREATE TABLE`: its name stays unseen, and may be in pg_temp.
        Node::Invalid(other) if other.type_ == NodeTag::T_CreateForeignTableStmt => {
            Verdict::effect(Effect::Writes).and_keeps(StateKind::Temporary)
        }
        _ if writes(node) => Verdict::effect(Effect::Writes),
        _ => Verdict::effect(Effect::Unsure),
    }
}

/// Tells when calls and names within a statement take effect: at its run, or not.
fn run_of(node: Node<'_>) -> Run {
    match node {
        Node::PrepareStmt(_) => Run::Never,
        Node::ViewStmt(_)
        | Node::RuleStmt(_)
        | Node::CreateFunctionStmt(_)
        | Node::CreateStmt(_)
        | Node::CreateTrigStmt(_)
        | Node::CreatePolicyStmt(_)
        | Node::AlterPolicyStmt(_)
        | Node::CreateDomainStmt(_)
        | Node::CreateSchemaStmt(_) => Run::Stored,
        _ => Run::Now,
    }
}

/// `EXPLAIN` plans and does not run, unless it is told to `ANALYZE`.
fn judge_explain<'a>(explain: &'a ExplainStmt, walk: &mut Walk<'a>) -> Verdict {
    if explain.options().iter().any(|option| option.defname() == Some("analyze") && may_be_true(option)) {
        return judge_explained(explain.query(), walk).marked(Mark::Explains);
    }
    // The arguments of EXECUTE are computed all the same, to find the plan that EXPLAIN shows.
    let run = if matches!(explain.query(), Node::ExecuteStmt(_)) { Run::Now } else { Run::Never };
    walk.visit(explain.query(), run);
    Verdict::effect(Effect::Reads).marked(Mark::Explains)
}

/// Judges a statement that the grammar allows in `EXPLAIN`; none of them is another `EXPLAIN`.
fn judge_explained<'a>(query: Node<'a>, walk: &mut Walk<'a>) -> Verdict {
    let nested = walk.visit(query, Run::Now);
    match query {
        Node::SelectStmt(_) => Verdict::effect(nested.max(Effect::Reads)),
        Node::DeclareCursorStmt(cursor) if cursor.options & CURSOR_HOLD != 0 => Verdict::keeping(StateKind::HoldCursor),
        _ if writes(query) => Verdict::effect(Effect::Writes),
        _ => Verdict::effect(Effect::Unsure),
    }
}

/// True if an option may be on: PostgreSQL's `defGetBoolean`, where another word than a boolean is an error.
fn may_be_true(option: &DefElem) -> bool {
    let word = match option.arg() {
        Node::Integer(number) => return number.ival != 0,
        Node::String(word) => word.sval(),
        _ => None,
    };
    !word.is_some_and(|word| word.eq_ignore_ascii_case("false") || word.eq_ignore_ascii_case("off"))
}

/// The database that must be without connections, as PostgreSQL's dbcommands.c wants it.
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

/// The roles whose names belong to others or to nobody afterwards.
fn unseated(node: Node<'_>) -> impl Iterator<Item = &str> {
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

fn copy_effect(copy: &CopyStmt, nested: Effect) -> Effect {
    match copy.is_from || copy.is_program || copy.filename().is_some() {
        true => Effect::Writes,
        false => nested.max(Effect::Reads),
    }
}

fn judge_transaction(verb: &TransactionStmt) -> Verdict {
    use TransactionStmtKind as Kind;
    let (effect, transaction) = match verb.kind {
        Kind::TRANS_STMT_BEGIN | Kind::TRANS_STMT_START => (Effect::Unsure, Transaction::Begin(begin(verb))),
        Kind::TRANS_STMT_COMMIT if !verb.chain => (Effect::Unsure, Transaction::End(Ending::Commit)),
        Kind::TRANS_STMT_ROLLBACK if !verb.chain => (Effect::Unsure, Transaction::End(Ending::Rollback)),
        Kind::TRANS_STMT_COMMIT => (Effect::Unsure, Transaction::Chain(Ending::Commit)),
        Kind::TRANS_STMT_ROLLBACK => (Effect::Unsure, Transaction::Chain(Ending::Rollback)),
        Kind::TRANS_STMT_PREPARE => (Effect::Writes, Transaction::End(Ending::Prepare)),
        Kind::TRANS_STMT_COMMIT_PREPARED | Kind::TRANS_STMT_ROLLBACK_PREPARED => (Effect::Writes, Transaction::Prepared),
        _ => (Effect::Unsure, Transaction::Within),
    };
    Verdict::transaction(effect, transaction)
}

/// The options of `BEGIN`; of two that contradict each other the last one holds, as in PostgreSQL.
fn begin(verb: &TransactionStmt) -> Begin {
    let mut begin = Begin { starts: verb.kind == TransactionStmtKind::TRANS_STMT_START, ..Begin::default() };
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

fn isolation(level: &str) -> Isolation {
    match level {
        "read uncommitted" => Isolation::ReadUncommitted,
        "read committed" => Isolation::ReadCommitted,
        "repeatable read" => Isolation::RepeatableRead,
        "serializable" => Isolation::Serializable,
        _ => Isolation::Unset,
    }
}

/// State that a statement which is only prepared now leaves once it runs.
fn left_by(query: Node<'_>, start: i32) -> StateKinds {
    let mut walk = Walk::default();
    walk.start(start);
    walk.visit(query, Run::Now);
    walk.keeps
}

/// Relations of a `DROP` are lists of names.
fn note_dropped<'a>(drop: &'a DropStmt, walk: &mut Walk<'a>) {
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
            walk.named(qualified(name.iter()), Run::Now);
        }
    }
}

/// The objects of a `GRANT` are relations only for these two kinds; the binding believes it of all, and would panic.
fn note_granted<'a>(grant: &'a GrantStmt, walk: &mut Walk<'a>) {
    let of_objects = grant.targtype == pg_raw_parse::nodes::GrantTargetType::ACL_TARGET_OBJECT;
    if of_objects && matches!(grant.objtype, ObjectType::OBJECT_TABLE | ObjectType::OBJECT_SEQUENCE) {
        grant.objects().iter().for_each(|relation| walk.target(Some(relation), Run::Now));
    }
}

/// Functions, types and the like that are made in `pg_temp`; tables, views and sequences are relations and seen by the walk.
fn note_made<'a>(node: Node<'a>, walk: &mut Walk<'a>) {
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
    walk.owner(schema, Run::Now);
}

/// Statements that are known to change data, schema or server state.
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
