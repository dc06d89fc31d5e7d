//! Changes of tables by one statement, as far as servers that each have the table could carry them out alike. Plain data, without a catalog.

use std::panic::catch_unwind;

use pg_raw_parse::Node;
use pg_raw_parse::nodes::{
    A_Expr, AlterTableCmd, AlterTableStmt, AlterTableType, ColumnDef, CommentStmt, ConstrType, Constraint, DropBehavior,
    DropStmt, GrantStmt, GrantTargetType, IndexElem, IndexStmt, ObjectType, RangeVar, RenameStmt, TruncateStmt, TypeName,
};

use crate::facts::QualifiedName;
use crate::met_names::qualified;

/// A statement that changes tables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DefinitionTerms {
    pub tables: Vec<QualifiedName>,
    pub actions: Vec<DefinitionAction>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DefinitionAction {
    Truncate,
    /// It reaches tables whose foreign keys lead to those that are named.
    TruncateCascade,
    CreateIndex(NewIndex),
    DropTable,
    DropIndex,
    RenameIndex,
    AddColumn {
        name: String,
        type_name: QualifiedName,
    },
    DropColumn(String),
    RenameColumn(String),
    /// `SET DEFAULT` of a constant.
    SetDefault(String),
    DropDefault(String),
    SetNotNull(String),
    DropNotNull(String),
    AddCheck(String),
    DropConstraint(String),
    /// `GRANT` and `REVOKE`.
    ChangeRights,
    /// `COMMENT` on a table, one of its columns, constraints or indexes.
    Comment,
    /// Something that is not looked into; the reason.
    Other(&'static str),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewIndex {
    pub is_unique: bool,
    /// Columns that it compares by the operators and the collation of the column.
    pub plain_columns: Vec<String>,
}

/// `None`: the text is no statement of this kind.
pub fn definition_terms(text: &str) -> Option<DefinitionTerms> {
    // The binding panics on an unexpected node; no such text is known.
    catch_unwind(|| read(text)).ok()?
}

fn read(text: &str) -> Option<DefinitionTerms> {
    let tree = pg_raw_parse::parse(text).ok()?;
    let mut statements = tree.iter();
    let (Some(raw), None) = (statements.next(), statements.next()) else { return None };
    match raw.stmt() {
        Node::TruncateStmt(truncate) => truncated(truncate),
        Node::IndexStmt(index) => indexed(index),
        Node::AlterTableStmt(alter) => altered(alter),
        Node::RenameStmt(rename) => renamed(rename),
        Node::GrantStmt(grant) => granted(grant),
        Node::CommentStmt(comment) => commented(comment),
        Node::DropStmt(drop) if drop.remove_type == ObjectType::OBJECT_TABLE => dropped_tables(drop),
        _ => None,
    }
}

/// With CASCADE each shard drops what hangs on the tables there.
fn dropped_tables(drop: &DropStmt) -> Option<DefinitionTerms> {
    let tables = drop.objects().iter().map(listed_name).collect::<Option<Vec<_>>>()?;
    Some(DefinitionTerms { tables, actions: vec![DefinitionAction::DropTable] })
}

fn of_table(relation: Option<&RangeVar>, actions: Vec<DefinitionAction>) -> Option<DefinitionTerms> {
    Some(DefinitionTerms { tables: vec![name_of(relation?)], actions })
}

pub(crate) fn name_of(relation: &RangeVar) -> QualifiedName {
    let part = |name: Option<&str>| name.unwrap_or_default().to_owned();
    QualifiedName { schema: part(relation.schemaname()), name: part(relation.relname()) }
}

/// Rights on tables that are named.
fn granted(grant: &GrantStmt) -> Option<DefinitionTerms> {
    if grant.targtype != GrantTargetType::ACL_TARGET_OBJECT || grant.objtype != ObjectType::OBJECT_TABLE {
        return None;
    }
    let tables = grant.objects().iter().map(name_of).collect();
    Some(DefinitionTerms { tables, actions: vec![DefinitionAction::ChangeRights] })
}

fn commented(comment: &CommentStmt) -> Option<DefinitionTerms> {
    let (schema, name) = commented_table(comment)?;
    let table = QualifiedName { schema: schema.to_owned(), name: name.to_owned() };
    Some(DefinitionTerms { tables: vec![table], actions: vec![DefinitionAction::Comment] })
}

/// The relation that a COMMENT is about, or whose column or constraint is.
pub(crate) fn commented_table(comment: &CommentStmt) -> Option<(&str, &str)> {
    let Node::NodeList(names) = comment.object() else { return None };
    let mut names: Vec<Node<'_>> = names.iter().collect();
    match comment.objtype {
        ObjectType::OBJECT_TABLE => {}
        ObjectType::OBJECT_COLUMN | ObjectType::OBJECT_TABCONSTRAINT => drop(names.pop()?),
        _ => return None,
    }
    Some(qualified(names.into_iter()))
}

fn truncated(truncate: &TruncateStmt) -> Option<DefinitionTerms> {
    let table = |node: Node<'_>| match node {
        Node::RangeVar(relation) => Some(name_of(relation)),
        _ => None,
    };
    let tables = truncate.relations().iter().map(table).collect::<Option<Vec<_>>>()?;
    // Sequences start again where each shard's own numbers begin.
    let cascades = truncate.behavior == DropBehavior::DROP_CASCADE;
    let action = if cascades { DefinitionAction::TruncateCascade } else { DefinitionAction::Truncate };
    Some(DefinitionTerms { tables, actions: vec![action] })
}

fn indexed(index: &IndexStmt) -> Option<DefinitionTerms> {
    let action = if index.concurrent {
        DefinitionAction::Other("CONCURRENTLY cannot be taken back on one server where another one fails")
    } else if index.idxname().is_none() {
        DefinitionAction::Other("each server would choose a name for the index: name it")
    } else if index.table_space().is_some() {
        DefinitionAction::Other("it names a tablespace, which is one server's own")
    } else {
        let columns = index.index_params().iter().filter_map(plain_column).collect();
        DefinitionAction::CreateIndex(NewIndex { is_unique: index.unique, plain_columns: columns })
    };
    of_table(index.relation(), vec![action])
}

/// Indexes by their names, and what is done with them. `None`: the text is about none.
pub fn index_terms(text: &str) -> Option<DefinitionTerms> {
    catch_unwind(|| read_indexes(text)).ok()?
}

fn read_indexes(text: &str) -> Option<DefinitionTerms> {
    let tree = pg_raw_parse::parse(text).ok()?;
    let mut statements = tree.iter();
    let (Some(raw), None) = (statements.next(), statements.next()) else { return None };
    match raw.stmt() {
        Node::DropStmt(drop) if drop.remove_type == ObjectType::OBJECT_INDEX => Some(dropped_indexes(drop)),
        Node::AlterTableStmt(alter) if alter.objtype == ObjectType::OBJECT_INDEX => of_table(alter.relation(), vec![NO_INDEX]),
        Node::RenameStmt(rename) if rename.rename_type == ObjectType::OBJECT_INDEX => {
            of_table(rename.relation(), vec![DefinitionAction::RenameIndex])
        }
        Node::CommentStmt(comment) if comment.objtype == ObjectType::OBJECT_INDEX => {
            let (tables, actions) = (vec![listed_name(comment.object())?], vec![DefinitionAction::Comment]);
            Some(DefinitionTerms { tables, actions })
        }
        _ => None,
    }
}

const NO_INDEX: DefinitionAction =
    DefinitionAction::Other("an index of a spread table is made, renamed and dropped, and not altered otherwise");

pub(crate) fn listed_name(object: Node<'_>) -> Option<QualifiedName> {
    let Node::NodeList(names) = object else { return None };
    let (schema, name) = qualified(names.iter());
    Some(QualifiedName { schema: schema.to_owned(), name: name.to_owned() })
}

fn dropped_indexes(drop: &DropStmt) -> DefinitionTerms {
    let tables = drop.objects().iter().filter_map(listed_name).collect();
    let action = if drop.concurrent {
        DefinitionAction::Other("CONCURRENTLY cannot be taken back on one server where another one fails")
    } else {
        DefinitionAction::DropIndex
    };
    DefinitionTerms { tables, actions: vec![action] }
}

fn plain_column(element: &IndexElem) -> Option<String> {
    let is_plain = element.collation().is_empty() && element.opclass().is_empty();
    element.name().filter(|_| is_plain).map(str::to_owned)
}

fn renamed(rename: &RenameStmt) -> Option<DefinitionTerms> {
    let is_column = rename.rename_type == ObjectType::OBJECT_COLUMN && rename.relation_type == ObjectType::OBJECT_TABLE;
    let action = if is_column {
        DefinitionAction::RenameColumn(rename.subname().unwrap_or_default().to_owned())
    } else {
        DefinitionAction::Other("only columns are renamed: the table stands by its name in the engine")
    };
    of_table(rename.relation(), vec![action])
}

fn altered(alter: &AlterTableStmt) -> Option<DefinitionTerms> {
    if alter.objtype != ObjectType::OBJECT_TABLE {
        return None;
    }
    let command = |node: Node<'_>| match node {
        Node::AlterTableCmd(command) => action_of(command),
        _ => DefinitionAction::Other(UNKNOWN),
    };
    of_table(alter.relation(), alter.cmds().iter().map(command).collect())
}

const UNKNOWN: &str = "this change of a table is not carried out on several servers";

fn action_of(command: &AlterTableCmd) -> DefinitionAction {
    use AlterTableType as Kind;
    use DefinitionAction as Action;
    let name = command.name().unwrap_or_default().to_owned();
    match (command.subtype, command.def()) {
        (Kind::AT_AddColumn, Node::ColumnDef(column)) => added_column(column),
        // With CASCADE each shard drops what hangs on it there: the spread tables are alike, and shard 0 has all others.
        (Kind::AT_DropColumn, _) => Action::DropColumn(name),
        (Kind::AT_ColumnDefault, Node::None) => Action::DropDefault(name),
        (Kind::AT_ColumnDefault, value) if is_constant(value) => Action::SetDefault(name),
        (Kind::AT_ColumnDefault, _) => Action::Other(NO_CONSTANT),
        (Kind::AT_SetNotNull, _) => Action::SetNotNull(name),
        (Kind::AT_DropNotNull, _) => Action::DropNotNull(name),
        (Kind::AT_AddConstraint, Node::Constraint(constraint)) if constraint.contype == ConstrType::CONSTR_CHECK => {
            Action::AddCheck(constraint.conname().unwrap_or_default().to_owned())
        }
        (Kind::AT_AddConstraint, _) => {
            Action::Other("keys, exclusion constraints and foreign keys are not added while the table is spread")
        }
        (Kind::AT_DropConstraint, _) => Action::DropConstraint(name),
        _ => Action::Other(UNKNOWN),
    }
}

const NO_CONSTANT: &str = "a default is a constant here: each server would compute another one by itself";

fn added_column(column: &ColumnDef) -> DefinitionAction {
    let refusal = |node: Node<'_>| match node {
        Node::Constraint(constraint) => constraint_refusal(constraint),
        _ => Some(UNKNOWN),
    };
    match (column.constraints().iter().find_map(refusal), column.type_name().and_then(plain_type)) {
        (Some(why), _) => DefinitionAction::Other(why),
        (None, None) => DefinitionAction::Other("the type of the new column is none of PostgreSQL's plain ones"),
        (None, Some(type_name)) => {
            DefinitionAction::AddColumn { name: column.colname().unwrap_or_default().to_owned(), type_name }
        }
    }
}

fn plain_type(kind: &TypeName) -> Option<QualifiedName> {
    if kind.setof || kind.pct_type {
        return None;
    }
    let (schema, name) = qualified(kind.names().iter().map(Node::from));
    Some(QualifiedName { schema: schema.to_owned(), name: name.to_owned() })
}

fn constraint_refusal(constraint: &Constraint) -> Option<&'static str> {
    match constraint.contype {
        ConstrType::CONSTR_NULL | ConstrType::CONSTR_NOTNULL | ConstrType::CONSTR_CHECK => None,
        ConstrType::CONSTR_DEFAULT => (!is_constant(constraint.raw_expr())).then_some(NO_CONSTANT),
        _ => Some("a column is added without keys, foreign keys, identity or generated values here"),
    }
}

/// A literal, also with a sign or a cast.
fn is_constant(value: Node<'_>) -> bool {
    match value {
        Node::A_Const(_) => true,
        Node::TypeCast(cast) => matches!(cast.arg(), Node::A_Const(_)),
        Node::A_Expr(expression) => is_negative(expression),
        _ => false,
    }
}

fn is_negative(expression: &A_Expr) -> bool {
    let is_sign = qualified(expression.name().iter()) == ("", "-");
    is_sign && matches!((expression.lexpr(), expression.rexpr()), (Node::None, Node::A_Const(_)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indexes_are_dropped_by_their_names() {
        let terms = index_terms("drop index if exists s.i, j").unwrap();
        let names: Vec<_> = terms.tables.iter().map(|name| format!("{}.{}", name.schema, name.name)).collect();
        assert_eq!((names, terms.actions), (vec!["s.i".to_owned(), ".j".to_owned()], vec![DefinitionAction::DropIndex]));
        for text in ["drop index concurrently i", "alter index i set (fillfactor = 70)"] {
            let terms = index_terms(text).unwrap();
            assert!(terms.tables[0].name == "i" && matches!(terms.actions[..], [DefinitionAction::Other(_)]), "{text}");
        }
        for (text, action) in [
            ("alter index if exists s.i rename to j", DefinitionAction::RenameIndex),
            ("comment on index s.i is 'x'", DefinitionAction::Comment),
        ] {
            let terms = index_terms(text).unwrap();
            assert_eq!(
                (terms.tables[0].schema.as_str(), terms.tables[0].name.as_str(), terms.actions),
                ("s", "i", vec![action]),
                "{text}"
            );
        }
        assert!(index_terms("drop table i").is_none() && index_terms("create index i on t (a)").is_none());
    }

    /// The tables and the actions, in short.
    fn told(text: &str) -> String {
        let Some(terms) = definition_terms(text) else { return "none".to_owned() };
        let tables: Vec<&str> = terms.tables.iter().map(|table| &*table.name).collect();
        let action = |action: &DefinitionAction| match action {
            DefinitionAction::Other(_) => "refused".to_owned(),
            DefinitionAction::AddColumn { name, type_name } => format!("add {name} {}", type_name.name),
            DefinitionAction::CreateIndex(index) => format!("index {} {}", index.is_unique, index.plain_columns.join(",")),
            other => format!("{other:?}"),
        };
        format!("{}: {}", tables.join(","), terms.actions.iter().map(action).collect::<Vec<_>>().join("; "))
    }

    #[test]
    fn the_changes_of_a_table_are_read_with_their_columns() {
        for (text, expected) in [
            ("truncate t, s.u", "t,u: Truncate"),
            ("truncate t restart identity", "t: Truncate"),
            ("truncate t cascade", "t: TruncateCascade"),
            ("create index i on t (a, lower(b), c collate \"C\")", "t: index false a"),
            ("create unique index i on s.t (a, b)", "t: index true a,b"),
            ("create index on t (a)", "t: refused"),
            ("create index concurrently i on t (a)", "t: refused"),
            ("alter table t add column x int", "t: add x int4"),
            ("alter table t add x varchar(9) not null default 'a' check (x > ''), drop y", "t: add x varchar; DropColumn(\"y\")"),
            ("alter table t add x int default -1, add y date default '2020-01-01'::date", "t: add x int4; add y date"),
            ("alter table t add x timestamptz default now()", "t: refused"),
            ("alter table t add x serial", "t: add x serial"),
            ("alter table t add x int primary key", "t: refused"),
            ("alter table t add x int references u", "t: refused"),
            ("alter table t add x int generated always as identity", "t: refused"),
            ("alter table t drop column x cascade", "t: DropColumn(\"x\")"),
            ("alter table t alter x set default 7, alter y drop default", "t: SetDefault(\"x\"); DropDefault(\"y\")"),
            ("alter table t alter x set default random()", "t: refused"),
            ("alter table t alter x set not null, alter y drop not null", "t: SetNotNull(\"x\"); DropNotNull(\"y\")"),
            ("alter table t add constraint c check (x > 0), drop constraint d", "t: AddCheck(\"c\"); DropConstraint(\"d\")"),
            ("alter table t add primary key (x)", "t: refused"),
            ("alter table t alter x type bigint", "t: refused"),
            ("alter table t rename x to y", "t: RenameColumn(\"x\")"),
            ("alter table t rename to u", "t: refused"),
            ("alter table t owner to someone", "t: refused"),
            ("alter view v rename x to y", "v: refused"),
            ("grant select, insert (a) on t, s.u to someone with grant option", "t,u: ChangeRights"),
            ("revoke all on table t from public cascade", "t: ChangeRights"),
            ("grant select on all tables in schema s to someone", "none"),
            ("grant usage on sequence t to someone", "none"),
            ("comment on table s.t is 'x'", "t: Comment"),
            ("comment on column t.a is null", "t: Comment"),
            ("comment on constraint c on s.t is 'x'", "t: Comment"),
            ("comment on index t is 'x'", "none"),
            ("drop table t", "t: DropTable"),
            ("drop table if exists s.t, u cascade", "t,u: DropTable"),
            ("drop view t", "none"),
            ("select 1", "none"),
        ] {
            assert_eq!(told(text), expected, "{text}");
        }
    }
}
