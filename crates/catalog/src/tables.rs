//! Tables behind a statement's names: those its result is made of, and those a write may change.

use super::draft::{NumberedObject, sorted};
use super::{Catalog, CatalogObject, ObjectEffect, SearchPath, SortedObjects, StatementNames};
use crate::builtin;
use std::collections::HashSet;
use weir_sql::facts::QualifiedName;

/// Tables followed for one statement. Beyond, a result is not kept, and a write may change anything.
const TABLES_MAX: usize = 4096;

/// Tables of one name with an unknown search_path. Beyond, a write may change anything.
const ANYWHERE_MAX: usize = 64;

/// OIDs of a relation and of one that comes with it; sorted.
type Pairs = Box<[(u32, u32)]>;

#[derive(Default)]
pub(super) struct TablesDraft {
    /// Parents and children or partitions.
    pub(super) children: Vec<(u32, u32)>,
    /// Tables, and those whose foreign keys act on their changes.
    pub(super) referring: Vec<(u32, u32)>,
    pub(super) views: Vec<(u32, u32)>,
    pub(super) wild: Vec<u32>,
    pub(super) fleeting: Vec<u32>,
    /// Relations with a column of type `time`.
    pub(super) with_time: Vec<u32>,
    pub(super) materialised: Vec<u32>,
    /// Foreign tables included.
    pub(super) unlogged: Vec<u32>,
    pub(super) may_be_serializable: bool,
    pub(super) stable_in_c: HashSet<u32>,
}

#[derive(Debug, Default)]
pub(super) struct TableDependencies {
    /// In the order of `Catalog::relations`.
    oids: Box<[u32]>,
    pub(super) read_with: Pairs,
    pub(super) written_with: Pairs,
    /// Relations whose writing may do anything; sorted.
    wild: Box<[u32]>,
    /// Relations whose rows depend on more than tables; sorted.
    fleeting: Box<[u32]>,
    /// Relations with a column of type `time`; sorted.
    with_time: Box<[u32]>,
    materialised: Box<[u32]>,
    unlogged: Box<[u32]>,
    /// True if transactions may be serializable by default.
    may_be_serializable: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TouchedTables {
    /// OIDs; empty: nothing changes.
    Tables(Vec<u32>),
    All,
}

impl TableDependencies {
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

/// True for functions that make rows of a type no cast names: `json_populate_record(t, ...)`.
fn makes_rows(function: &QualifiedName) -> bool {
    function.name.contains("populate_record")
}

/// Returns `found` and all that comes with it; `None`: too many.
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
    /// Returns the tables of a result. `None`: unknown, or it may change without them. `vouched`: unlogged or foreign
    /// tables, or views on such, that the operator answers for; not in `names`.
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
        // Taken to another zone, a time of day depends on today's zone.
        let moves_times = names.functions.iter().any(|function| function.name == "timezone");
        let has_time = |oid: &u32| moves_times && self.tables.with_time.binary_search(oid).is_ok();
        if found.iter().any(is_fleeting) || found.iter().any(has_time) {
            return None;
        }
        found.extend(closure(self.all_of(vouched, path)?, &self.tables.read_with)?);
        Some(found)
    }

    /// Returns the tables whose rows a read may show. `None`: any.
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
        // Views whose functions read, and foreign tables.
        let is_open = found.iter().any(|oid| self.tables.fleeting.binary_search(oid).is_ok());
        (!is_open).then_some(found)
    }

    /// Returns the function, operator or type of a statement that may answer otherwise on another server with the same definitions and rows: code of
    /// users that may read tables, and what shows a server's own state. `None`: there is none.
    pub fn bound_to_server<'n>(&self, names: &'n StatementNames, path: &SearchPath) -> Option<&'n QualifiedName> {
        let is_free = |function: &&QualifiedName| {
            let is_plain = matches!(function.schema.as_str(), "" | "pg_catalog") && builtin::is_free_of_server(&function.name);
            if is_plain { self.users_are_steady(function, path) } else { self.shows_no_table(function, path) }
        };
        let function = names.functions.iter().find(|function| !is_free(function));
        let operator = || names.operators.iter().find(|operator| !self.is_steady(&self.operators, operator, path));
        let kind = || names.casts.iter().find(|cast| self.is_unsteady_type(&cast.name));
        function.or_else(operator).or_else(kind)
    }

    /// True for PostgreSQL's own functions that read no table, and for steady ones.
    fn shows_no_table(&self, function: &QualifiedName, path: &SearchPath) -> bool {
        let is_plain = matches!(function.schema.as_str(), "" | "pg_catalog") && builtin::may_run_on_standby(&function.name);
        if !is_plain {
            return self.is_steady(&self.functions, function, path);
        }
        self.users_are_steady(function, path)
    }

    /// True if no function of a user's may be meant, or only steady ones.
    fn users_are_steady(&self, function: &QualifiedName, path: &SearchPath) -> bool {
        let of_name = self.functions.named(&self.text, &function.name).iter();
        let is_users = |object: &&CatalogObject| Some(object.schema) != self.pg_catalog && path.holds(object.schema);
        !function.schema.is_empty() || of_name.filter(is_users).all(|object| object.steady)
    }

    fn is_unsteady_type(&self, kind: &str) -> bool {
        !self.types.unsteady.named(&self.text, kind).is_empty()
    }

    /// True if reading in values of these types (OIDs) runs unsteady functions.
    pub fn checks_values(&self, types: &[u32]) -> bool {
        types.iter().any(|kind| self.types.checking.binary_search(kind).is_ok())
    }

    /// True if WAL lacks rows of one of these.
    pub fn has_unlogged(&self, tables: &[u32]) -> bool {
        tables.iter().any(|oid| self.tables.unlogged.binary_search(oid).is_ok())
    }

    /// True if one is a materialised view: a stream of changes does not report its rows.
    pub fn has_materialised(&self, tables: &[u32]) -> bool {
        tables.iter().any(|oid| self.tables.materialised.binary_search(oid).is_ok())
    }

    pub fn number_of(&self, schema: &str, name: &str) -> Option<u32> {
        let start = self.relations.0.partition_point(|object| object.name(&self.text) < name);
        let schema = self.schema(schema)?;
        let at = self.relations.named(&self.text, name).iter().position(|object| object.schema == schema)?;
        self.tables.oids.get(start + at).copied()
    }

    pub fn tables(&self) -> impl Iterator<Item = (&str, &str, u32)> {
        let schema = |object: &CatalogObject| self.schemas.get(object.schema as usize).map_or("", |name| name);
        let objects = self.relations.0.iter().zip(&self.tables.oids);
        objects.map(move |(object, oid)| (schema(object), object.name(&self.text), *oid))
    }

    /// Like `reads`, for results cached at the author's wish: returns the known tables. `None` where writes may go
    /// unseen.
    pub fn reads_at_least(&self, names: &StatementNames, path: &SearchPath) -> Option<Vec<u32>> {
        if self.types.runs_unseen {
            return None;
        }
        let found = names.relations.iter().flat_map(|relation| self.meant(relation, path)).collect();
        closure(found, &self.tables.read_with)
    }

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

    /// True if a cast, an operator or a call like a column may write.
    pub(super) fn runs_writing(&self, names: &StatementNames, path: &SearchPath) -> bool {
        self.writing.calls
            || names.has_column(&self.writing.columns)
            || self.writing.operators.iter().any(|schema| path.holds(*schema))
            || names.functions.iter().any(|function| self.writes_cast(&function.name))
            || names.operators.iter().any(|operator| !self.reads_operator(operator, path))
            || names.casts.iter().any(|cast| self.writes_cast(&cast.name))
    }

    /// Returns the OIDs that a list entry means: `table`, in any schema, or `schema.table`.
    pub fn numbers_of(&self, listed: &str) -> Vec<u32> {
        let (schema, table) = listed.split_once('.').map_or((None, listed), |(schema, table)| (Some(schema), table));
        let start = self.relations.0.partition_point(|object| object.name(&self.text) < table);
        let wanted = schema.map(|schema| self.schema(schema));
        let of_name = self.relations.named(&self.text, table).iter().enumerate();
        let meant = of_name.filter(|(_, object)| wanted.is_none_or(|wanted| wanted == Some(object.schema)));
        meant.filter_map(|(at, _)| self.tables.oids.get(start + at).copied()).collect()
    }

    /// Returns the OIDs that a name may mean with any search_path.
    pub(super) fn numbers(&self, relation: &QualifiedName) -> impl Iterator<Item = u32> {
        self.placed(relation).map(|(_, oid)| oid)
    }

    fn placed(&self, relation: &QualifiedName) -> impl Iterator<Item = (u32, u32)> {
        let start = self.relations.0.partition_point(|object| object.name(&self.text) < relation.name.as_str());
        let schema = (!relation.schema.is_empty()).then(|| self.schema(&relation.schema));
        let of_name = self.relations.named(&self.text, &relation.name).iter().enumerate();
        let meant = of_name.filter(move |(_, object)| schema.is_none_or(|schema| schema == Some(object.schema)));
        meant.filter_map(move |(at, object)| Some((object.schema, *self.tables.oids.get(start + at)?)))
    }

    /// Returns the OIDs that a name may mean. Not only the first schema of the path counts: PostgreSQL skips schemas
    /// without USAGE, and rights are not known here. Source: `recomputeNamespacePath` in namespace.c.
    pub(super) fn meant<'c>(&'c self, relation: &'c QualifiedName, path: &'c SearchPath) -> impl Iterator<Item = u32> + 'c {
        let is_free = relation.schema.is_empty();
        self.placed(relation).filter(move |(schema, _)| !is_free || path.holds(*schema)).map(|(_, oid)| oid)
    }

    /// Returns the OIDs that these names mean; `None`: a name is unknown, or the path is.
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

    /// True if all possible meanings are steady.
    fn is_steady(&self, objects: &SortedObjects, name: &QualifiedName, path: &SearchPath) -> bool {
        let of_name = objects.named(&self.text, &name.name).iter();
        let schema = if name.schema.is_empty() { None } else { self.schema(&name.schema) };
        let may_be = |object: &&CatalogObject| match name.schema.as_str() {
            "" => path.holds(object.schema) || Some(object.schema) == self.pg_catalog,
            _ => Some(object.schema) == schema,
        };
        let mut meant = of_name.filter(may_be).peekable();
        // PostgreSQL's own operators are steady and not listed.
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

    pub(super) fn users_only_read(&self, function: &QualifiedName, path: &SearchPath) -> bool {
        let of_name = self.functions.named(&self.text, &function.name).iter();
        let mut users = of_name.filter(|object| Some(object.schema) != self.pg_catalog && path.holds(object.schema));
        users.all(|object| object.fate == ObjectEffect::Reads)
    }

    /// True for views that write and for unknown relations.
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
