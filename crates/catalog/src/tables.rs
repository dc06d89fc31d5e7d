//! The tables behind a statement's names: those that its result is made of, and those that a write may change.
//!
//! Small beside the catalog: a number and a byte for each relation, and a pair of numbers for each partition, child, foreign key with an
//! action, and relation that a view reads.

use super::draft::{NumberedObject, sorted};
use super::{Catalog, CatalogObject, ObjectEffect, SearchPath, SortedObjects, StatementNames};
use crate::builtin;
use std::collections::HashSet;
use weir_sql::facts::QualifiedName;

/// Tables followed for one statement. Beyond, an answer is not kept, and a write may have changed anything.
const TABLES_MAX: usize = 4096;

/// Tables of one name that a write with an unknown search_path may mean. Beyond, it may have changed anything.
const ANYWHERE_MAX: usize = 64;

/// A relation's number and another's that comes with it, sorted.
type Pairs = Box<[(u32, u32)]>;

/// Rows about tables that a draft has taken in.
#[derive(Default)]
pub(super) struct TablesDraft {
    /// Parents and their partitions or children.
    pub(super) children: Vec<(u32, u32)>,
    /// Tables, and those whose foreign keys change rows when the referred ones go.
    pub(super) referring: Vec<(u32, u32)>,
    /// Views and the relations they read.
    pub(super) views: Vec<(u32, u32)>,
    pub(super) wild: Vec<u32>,
    pub(super) fleeting: Vec<u32>,
    /// Relations with a column of type `time`.
    pub(super) with_time: Vec<u32>,
    pub(super) materialised: Vec<u32>,
    /// Foreign ones among them.
    pub(super) unlogged: Vec<u32>,
    pub(super) may_be_serializable: bool,
    /// Stable functions in C.
    pub(super) stable_in_c: HashSet<u32>,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct TableDependencies {
    /// Numbers of the relations, in the order of `Catalog::relations`.
    oids: Box<[u32]>,
    /// Tables that are read with a relation.
    pub(super) read_with: Pairs,
    /// Tables that are written with it.
    pub(super) written_with: Pairs,
    /// Writing these may do anything; sorted.
    wild: Box<[u32]>,
    /// Relations whose rows hang on more than tables; sorted.
    fleeting: Box<[u32]>,
    /// Relations with a column of type `time`; sorted.
    with_time: Box<[u32]>,
    /// Materialised views; sorted.
    materialised: Box<[u32]>,
    /// Unlogged and foreign tables; sorted.
    unlogged: Box<[u32]>,
    /// Transactions may be serializable without saying so.
    may_be_serializable: bool,
}

/// Tables that a statement may have changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TouchedTables {
    /// Tables of the database by their numbers; none: nothing.
    Tables(Vec<u32>),
    /// Any of the database's.
    All,
}

impl TableDependencies {
    /// Sorts the rows of the draft; the relations keep their numbers beside them.
    pub(super) fn made(mut relations: Vec<NumberedObject>, draft: TablesDraft, text: &str) -> (SortedObjects, TableDependencies) {
        relations.sort_unstable_by(|one, other| {
            let key = |of: &NumberedObject| (of.object.schema, of.oid);
            one.object.name(text).cmp(other.object.name(text)).then_with(|| key(one).cmp(&key(other)))
        });
        relations.dedup_by(|later, first| {
            let is_same = later.object.schema == first.object.schema && later.object.name(text) == first.object.name(text);
            if is_same {
                first.object.fate = first.object.fate.max(later.object.fate);
            }
            is_same
        });
        let oids = relations.iter().map(|relation| relation.oid).collect();
        let objects = sorted(relations.into_iter().map(|relation| relation.object), text);
        let mut read_with = draft.children.clone();
        read_with.extend(&draft.views);
        let mut written_with = draft.children;
        written_with.extend(draft.referring);
        written_with.extend(draft.views);
        let tables = TableDependencies {
            oids,
            read_with: in_order(read_with),
            written_with: in_order(written_with),
            wild: in_order(draft.wild),
            fleeting: in_order(draft.fleeting),
            with_time: in_order(draft.with_time),
            materialised: in_order(draft.materialised),
            unlogged: in_order(draft.unlogged),
            may_be_serializable: draft.may_be_serializable,
        };
        (objects, tables)
    }

    pub(super) fn bytes(&self) -> usize {
        let pairs = self.read_with.len() + self.written_with.len();
        let others = self.wild.len() + self.fleeting.len() + self.with_time.len() + self.materialised.len() + self.unlogged.len();
        pairs * size_of::<(u32, u32)>() + (self.oids.len() + others) * size_of::<u32>()
    }
}

pub(super) fn in_order<T: Ord>(mut list: Vec<T>) -> Box<[T]> {
    list.sort_unstable();
    list.dedup();
    list.into()
}

/// True if a function turns texts into rows of a type that no cast need name: `json_populate_record(t, ...)`.
fn makes_rows(function: &QualifiedName) -> bool {
    function.name.contains("populate_record")
}

/// All that comes with some relations, themselves included; `None`: too many.
pub(super) fn closure(mut found: Vec<u32>, pairs: &[(u32, u32)]) -> Option<Vec<u32>> {
    found.sort_unstable();
    found.dedup();
    let mut seen: HashSet<u32> = found.iter().copied().collect();
    let mut at = 0;
    while let Some(&relation) = found.get(at) {
        at += 1;
        let start = pairs.partition_point(|(of, _)| *of < relation);
        for (_, with) in pairs[start..].iter().take_while(|(of, _)| *of == relation) {
            if seen.insert(*with) {
                found.push(*with);
            }
        }
        if found.len() > TABLES_MAX {
            return None;
        }
    }
    Some(found)
}

impl Catalog {
    /// The tables that the result of a statement with these names is made of. `None`: it may change although none of them has
    /// changed, or its tables are not known. The operator answers for `vouched`, which are not among the names: unlogged or
    /// foreign tables, or views on such.
    pub fn reads(&self, names: &StatementNames, vouched: &[QualifiedName], path: &SearchPath) -> Option<Vec<u32>> {
        if self.judge(names, path).is_some() || self.unsteady.calls || self.tables.may_be_serializable {
            return None;
        }
        let is_hidden = self.unsteady.operators.iter().any(|schema| path.holds(*schema));
        let functions = names.functions.iter().all(|function| self.is_steady(&self.functions, function, path));
        let operators = names.operators.iter().all(|operator| self.is_steady(&self.operators, operator, path));
        let types = names.casts.iter().any(|cast| self.is_unsteady_type(&cast.name))
            || names.functions.iter().any(|function| self.is_unsteady_type(&function.name));
        if types || (!self.types.unsteady.0.is_empty() && names.functions.iter().any(makes_rows)) {
            return None;
        }
        if is_hidden || !functions || !operators || names.has_column(&self.unsteady.columns) {
            return None;
        }
        let mut found = closure(self.all_of(&names.relations, path)?, &self.tables.read_with)?;
        let is_fleeting = |oid: &u32| self.tables.fleeting.binary_search(oid).is_ok();
        // Taken to another zone, a time of day becomes one of the zone that is in force today.
        let moves_times = names.functions.iter().any(|function| function.name == "timezone");
        let has_time = |oid: &u32| moves_times && self.tables.with_time.binary_search(oid).is_ok();
        if found.iter().any(is_fleeting) || found.iter().any(has_time) {
            return None;
        }
        found.extend(closure(self.all_of(vouched, path)?, &self.tables.read_with)?);
        Some(found)
    }

    /// The tables whose rows the answer of a read with these names may show. `None`: any may be among them, since a function of users reads what it
    /// likes, or a relation is not known.
    pub fn shows(&self, names: &StatementNames, path: &SearchPath) -> Option<Vec<u32>> {
        let runs_unseen = self.unsteady.calls
            || self.unsteady.operators.iter().any(|schema| path.holds(*schema))
            || names.has_column(&self.unsteady.columns)
            || names.casts.iter().chain(names.functions.iter()).any(|kind| self.is_unsteady_type(&kind.name))
            || (!self.types.unsteady.0.is_empty() && names.functions.iter().any(makes_rows));
        let functions = names.functions.iter().all(|function| self.shows_no_table(function, path));
        let operators = names.operators.iter().all(|operator| self.is_steady(&self.operators, operator, path));
        if runs_unseen || !functions || !operators {
            return None;
        }
        let found = closure(self.all_of(&names.relations, path)?, &self.tables.read_with)?;
        // Views whose functions read, and tables that are elsewhere.
        let is_open = found.iter().any(|oid| self.tables.fleeting.binary_search(oid).is_ok());
        (!is_open).then_some(found)
    }

    /// True if a call shows rows of no table: it is PostgreSQL's own and reads none, or gives the same answer for the same arguments.
    fn shows_no_table(&self, function: &QualifiedName, path: &SearchPath) -> bool {
        let is_plain = matches!(function.schema.as_str(), "" | "pg_catalog") && builtin::may_run_on_standby(&function.name);
        if !is_plain {
            return self.is_steady(&self.functions, function, path);
        }
        let of_name = self.functions.named(&self.text, &function.name).iter();
        let is_users = |object: &&CatalogObject| Some(object.schema) != self.pg_catalog && path.holds(object.schema);
        !function.schema.is_empty() || of_name.filter(is_users).all(|object| object.steady)
    }

    fn is_unsteady_type(&self, kind: &str) -> bool {
        !self.types.unsteady.named(&self.text, kind).is_empty()
    }

    /// True if values of such types, of users by their numbers, run functions when they are read in that are not steady.
    pub fn checks_values(&self, types: &[u32]) -> bool {
        types.iter().any(|kind| self.types.checking.binary_search(kind).is_ok())
    }

    /// True if one of these is an unlogged or a foreign table: the log says nothing of its rows.
    pub fn has_unlogged(&self, tables: &[u32]) -> bool {
        tables.iter().any(|oid| self.tables.unlogged.binary_search(oid).is_ok())
    }

    /// True if one of these is a materialised view: its rows change without a word of them in a stream of changes.
    pub fn has_materialised(&self, tables: &[u32]) -> bool {
        tables.iter().any(|oid| self.tables.materialised.binary_search(oid).is_ok())
    }

    /// The number of a relation by its full name.
    pub fn number_of(&self, schema: &str, name: &str) -> Option<u32> {
        let start = self.relations.0.partition_point(|object| object.name(&self.text) < name);
        let schema = self.schema(schema)?;
        let at = self.relations.named(&self.text, name).iter().position(|object| object.schema == schema)?;
        self.tables.oids.get(start + at).copied()
    }

    /// Schema, name and number of every relation.
    pub fn tables(&self) -> impl Iterator<Item = (&str, &str, u32)> {
        let schema = |object: &CatalogObject| self.schemas.get(object.schema as usize).map_or("", |name| name);
        let objects = self.relations.0.iter().zip(&self.tables.oids);
        objects.map(move |(object, oid)| (schema(object), object.name(&self.text), *oid))
    }

    /// Like `reads`, for a statement whose author says that its result may be cached: the tables that are known. `None` where
    /// writes may go unseen.
    pub fn reads_at_least(&self, names: &StatementNames, path: &SearchPath) -> Option<Vec<u32>> {
        if self.types.runs_unseen {
            return None;
        }
        let found = names.relations.iter().flat_map(|relation| self.meant(relation, path)).collect();
        closure(found, &self.tables.read_with)
    }

    /// Tables that a statement may change if it names `names` and writes `written`.
    pub fn touches(&self, names: &StatementNames, written: &[QualifiedName], path: &SearchPath) -> TouchedTables {
        let may_write = self.runs_writing(names, path)
            || names.functions.iter().any(|function| !self.changes_no_table(function, path))
            || names.relations.iter().any(|relation| self.writes_by_view(relation, path));
        if may_write {
            return TouchedTables::All;
        }
        let mut found = Vec::new();
        for relation in written {
            let before = found.len();
            found.extend(self.meant(relation, path));
            if found.len() == before || (matches!(path, SearchPath::Any) && found.len() > ANYWHERE_MAX) {
                return TouchedTables::All;
            }
        }
        let Some(found) = closure(found, &self.tables.written_with) else { return TouchedTables::All };
        let is_wild = |oid: &u32| self.tables.wild.binary_search(oid).is_ok();
        if found.iter().any(is_wild) { TouchedTables::All } else { TouchedTables::Tables(found) }
    }

    /// True if a statement with these names may run a function that writes, by a cast, an operator or a call like a column.
    pub(super) fn runs_writing(&self, names: &StatementNames, path: &SearchPath) -> bool {
        self.writing.calls
            || names.has_column(&self.writing.columns)
            || self.writing.operators.iter().any(|schema| path.holds(*schema))
            || names.functions.iter().any(|function| self.writes_cast(&function.name))
            || names.operators.iter().any(|operator| !self.reads_operator(operator, path))
            || names.casts.iter().any(|cast| self.writes_cast(&cast.name))
    }

    /// Numbers of the relations that an entry of a list is about: `table`, in any schema, or `schema.table`.
    pub fn numbers_of(&self, listed: &str) -> Vec<u32> {
        let (schema, table) = listed.split_once('.').map_or((None, listed), |(schema, table)| (Some(schema), table));
        let start = self.relations.0.partition_point(|object| object.name(&self.text) < table);
        let wanted = schema.map(|schema| self.schema(schema));
        let of_name = self.relations.named(&self.text, table).iter().enumerate();
        let meant = of_name.filter(|(_, object)| wanted.is_none_or(|wanted| wanted == Some(object.schema)));
        meant.filter_map(|(at, _)| self.tables.oids.get(start + at).copied()).collect()
    }

    /// The numbers of all relations a name may stand for, with any search_path.
    pub(super) fn numbers(&self, relation: &QualifiedName) -> impl Iterator<Item = u32> {
        self.placed(relation).map(|(_, oid)| oid)
    }

    /// The numbers of all relations that a name may stand for, each with its schema.
    fn placed(&self, relation: &QualifiedName) -> impl Iterator<Item = (u32, u32)> {
        let start = self.relations.0.partition_point(|object| object.name(&self.text) < relation.name.as_str());
        let schema = (!relation.schema.is_empty()).then(|| self.schema(&relation.schema));
        let of_name = self.relations.named(&self.text, &relation.name).iter().enumerate();
        let meant = of_name.filter(move |(_, object)| schema.is_none_or(|schema| schema == Some(object.schema)));
        meant.filter_map(move |(at, object)| Some((object.schema, *self.tables.oids.get(start + at)?)))
    }

    /// The numbers of the relations that a name may stand for. Without a schema not only the first of the path counts:
    /// PostgreSQL passes over a schema whose use is not granted, and rights are not known here. Source:
    /// `recomputeNamespacePath` in namespace.c.
    pub(super) fn meant<'c>(&'c self, relation: &'c QualifiedName, path: &'c SearchPath) -> impl Iterator<Item = u32> + 'c {
        let is_free = relation.schema.is_empty();
        self.placed(relation).filter(move |(schema, _)| !is_free || path.holds(*schema)).map(|(_, oid)| oid)
    }

    /// The numbers of the relations that these names stand for. `None`: a name is unknown, or may stand for any relation of
    /// that name.
    fn all_of(&self, relations: &[QualifiedName], path: &SearchPath) -> Option<Vec<u32>> {
        let mut found = Vec::new();
        for relation in relations {
            let before = found.len();
            found.extend(self.meant(relation, path));
            if found.len() == before || (relation.schema.is_empty() && matches!(path, SearchPath::Any)) {
                return None;
            }
        }
        Some(found)
    }

    /// True if all that a call or an operator may mean gives the same answer for the same arguments.
    fn is_steady(&self, objects: &SortedObjects, name: &QualifiedName, path: &SearchPath) -> bool {
        let of_name = objects.named(&self.text, &name.name).iter();
        let schema = if name.schema.is_empty() { None } else { self.schema(&name.schema) };
        let may_be = |object: &&CatalogObject| match name.schema.as_str() {
            "" => path.holds(object.schema) || Some(object.schema) == self.pg_catalog,
            _ => Some(object.schema) == schema,
        };
        let mut meant = of_name.filter(may_be).peekable();
        // Operators of PostgreSQL's own are not listed here, and steady; functions are.
        let is_known = meant.peek().is_some() || std::ptr::eq(objects, &self.operators);
        is_known && meant.all(|object| object.steady)
    }

    fn changes_no_table(&self, function: &QualifiedName, path: &SearchPath) -> bool {
        let is_plain = matches!(function.schema.as_str(), "" | "pg_catalog") && builtin::changes_no_table(&function.name);
        match is_plain {
            true => self.users_only_read(function, path),
            false => self.reads_function(function, path),
        }
    }

    /// True if no function of users that a name may mean writes.
    pub(super) fn users_only_read(&self, function: &QualifiedName, path: &SearchPath) -> bool {
        let of_name = self.functions.named(&self.text, &function.name).iter();
        let mut users = of_name.filter(|object| Some(object.schema) != self.pg_catalog && path.holds(object.schema));
        users.all(|object| object.fate == ObjectEffect::Reads)
    }

    /// True if a name is of a view that writes, or of something that is not known; PostgreSQL's own views do not.
    fn writes_by_view(&self, relation: &QualifiedName, path: &SearchPath) -> bool {
        let is_system = matches!(relation.schema.as_str(), "pg_catalog" | "information_schema");
        let is_catalog = is_system || (relation.schema.is_empty() && relation.name.starts_with("pg_"));
        if relation.schema.is_empty() {
            let of_name = self.relations.named(&self.text, &relation.name);
            let mut meant = of_name.iter().filter(|object| path.holds(object.schema)).peekable();
            return (meant.peek().is_none() && !is_catalog) || meant.any(|object| object.fate == ObjectEffect::Writes);
        }
        match self.meant(relation, path).next() {
            None => !is_catalog,
            Some(_) => self.judge_relation(relation, path) == Some(crate::rule::RoutingRule::WritingView),
        }
    }
}
