//! The relations that a definition makes, changes or drops, as against those that it reads or refers to.

use std::panic::catch_unwind;

use pg_raw_parse::Node;
use pg_raw_parse::nodes::{AlterTableStmt, AlterTableType, CreateStmt, DropStmt, IntoClause, ObjectType, RangeVar, RenameStmt};

use crate::definition_terms::{listed_name, name_of};
use crate::facts::QualifiedName;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DefinedNames {
    /// Also the names that it gives.
    pub relations: Vec<QualifiedName>,
    pub kind: DefinedKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DefinedKind {
    /// Tables, indexes and sequences: they run functions only that their text calls.
    Storage,
    /// A view, through which others may write.
    View,
}

/// `None`: it may define something else, such as functions, or change other relations than it names.
pub fn defined_names(text: &str) -> Option<DefinedNames> {
    // The binding panics on an unexpected node; no such text is known.
    catch_unwind(|| read(text)).ok()?
}

fn read(text: &str) -> Option<DefinedNames> {
    let tree = pg_raw_parse::parse(text).ok()?;
    let mut statements = tree.iter();
    let (Some(raw), None) = (statements.next(), statements.next()) else { return None };
    of_statement(raw.stmt())
}

fn of_statement(node: Node<'_>) -> Option<DefinedNames> {
    let one = |relation: Option<&RangeVar>| Some(vec![name_of(relation?)]);
    let of_into = |into: Option<&IntoClause>| one(into?.rel());
    let (relations, kind) = match node {
        Node::CreateStmt(create) => (of_create(create)?, DefinedKind::Storage),
        Node::AlterTableStmt(alter) => (of_alter(alter)?, DefinedKind::Storage),
        Node::RenameStmt(rename) => (of_rename(rename)?, DefinedKind::Storage),
        Node::DropStmt(drop) => (of_drop(drop)?, DefinedKind::Storage),
        Node::IndexStmt(index) => (one(index.relation())?, DefinedKind::Storage),
        Node::CreateSeqStmt(create) => (one(create.sequence())?, DefinedKind::Storage),
        Node::CreateTableAsStmt(create) => (of_into(create.into())?, DefinedKind::Storage),
        Node::SelectStmt(select) => (of_into(select.into_clause())?, DefinedKind::Storage),
        Node::ViewStmt(view) => (one(view.view())?, DefinedKind::View),
        _ => return None,
    };
    Some(DefinedNames { relations, kind })
}

/// True if a definition makes, changes or drops tables and the like only.
pub(crate) fn is_storage(node: Node<'_>) -> bool {
    of_statement(node).is_some_and(|defined| defined.kind == DefinedKind::Storage)
}

/// A table without parents, whose rows no other table shows.
fn of_create(create: &CreateStmt) -> Option<Vec<QualifiedName>> {
    let is_alone = create.inh_relations().is_empty() && create.partbound().is_none();
    is_alone.then(|| create.relation().map(name_of).into_iter().collect())
}

fn of_alter(alter: &AlterTableStmt) -> Option<Vec<QualifiedName>> {
    use AlterTableType as Kind;
    const OWN: [Kind::Type; 12] = [
        Kind::AT_AddColumn,
        Kind::AT_DropColumn,
        Kind::AT_ColumnDefault,
        Kind::AT_SetNotNull,
        Kind::AT_DropNotNull,
        Kind::AT_AddConstraint,
        Kind::AT_ValidateConstraint,
        Kind::AT_DropConstraint,
        Kind::AT_AlterColumnType,
        Kind::AT_AddIdentity,
        Kind::AT_SetIdentity,
        Kind::AT_DropIdentity,
    ];
    let is_own = |node: Node<'_>| matches!(node, Node::AlterTableCmd(command) if OWN.contains(&command.subtype));
    let is_table = alter.objtype == ObjectType::OBJECT_TABLE;
    (is_table && alter.cmds().iter().all(is_own)).then(|| alter.relation().map(name_of).into_iter().collect())
}

fn of_rename(rename: &RenameStmt) -> Option<Vec<QualifiedName>> {
    let old = name_of(rename.relation()?);
    let new = || QualifiedName { schema: old.schema.clone(), name: rename.newname().unwrap_or_default().to_owned() };
    match rename.rename_type {
        ObjectType::OBJECT_TABLE | ObjectType::OBJECT_INDEX => Some(vec![new(), old]),
        ObjectType::OBJECT_COLUMN | ObjectType::OBJECT_TABCONSTRAINT => Some(vec![old]),
        _ => None,
    }
}

fn of_drop(drop: &DropStmt) -> Option<Vec<QualifiedName>> {
    match drop.remove_type {
        ObjectType::OBJECT_TABLE | ObjectType::OBJECT_INDEX | ObjectType::OBJECT_SEQUENCE => {
            drop.objects().iter().map(listed_name).collect()
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(text: &str) -> String {
        let Some(defined) = defined_names(text) else { return "none".to_owned() };
        let names: Vec<&str> = defined.relations.iter().map(|name| &*name.name).collect();
        format!("{:?} {}", defined.kind, names.join(","))
    }

    #[test]
    fn tables_that_a_definition_reads_or_refers_to_are_not_defined() {
        for (text, expected) in [
            ("create table t (a int references r, b int default f())", "Storage t"),
            ("create table t (like r including all)", "Storage t"),
            ("create table t () inherits (r)", "none"),
            ("create table t partition of r for values in (1)", "none"),
            ("create temp table t as select * from r", "Storage t"),
            ("create materialized view t as select * from r", "Storage t"),
            ("select * into t from r", "Storage t"),
            ("select * from r", "none"),
            ("create or replace view v as select * from r", "View v"),
            ("alter table t add foreign key (a) references r, drop column b", "Storage t"),
            ("alter table t inherit r", "none"),
            ("alter table t rename to u", "Storage u,t"),
            ("alter table t rename a to b", "Storage t"),
            ("alter table t set schema s", "none"),
            ("create index i on t (a)", "Storage t"),
            ("create sequence s", "Storage s"),
            ("drop table t, s.u", "Storage t,u"),
            ("drop view v", "none"),
            ("create trigger g before insert on t execute function f()", "none"),
            ("create function f() returns int language sql as 'select 1'", "none"),
            ("create table t (a int); create table u (a int)", "none"),
        ] {
            assert_eq!(told(text), expected, "{text}");
        }
    }
}
