//! A database's objects as far as routing asks: relations, functions, operators and casts that a standby may use.
//!
//! In: catalog rows (`query`, `draft`), a statement's names, the search_path. Out: the rule that forbids a standby, if
//! any. No IO: `weir::control::catalog_watch` asks the server. Compact, since each database in use has one: 12 bytes
//! and the name for an object.

pub mod builtin;
mod draft;
mod engine_strangers;
pub mod functions;
mod path;
mod query;
pub mod rule;
mod tables;
mod unseen;

pub use draft::{CatalogDraft, DraftError};
pub use engine_strangers::UsedNames;
pub use path::{LookupUser, SearchPath};
pub use query::{CatalogPart, CatalogQuery, PARTS};
pub use tables::TouchedTables;
pub use unseen::{HiddenUses, NAMES_MAX};

use crate::rule::RoutingRule;
use std::fmt;
use weir_sql::facts::{QualifiedName, QueryFacts};

/// Parameters of transactions whose defaults the catalog has.
pub const OF_TRANSACTIONS: [&str; 3] =
    ["default_transaction_isolation", "idle_in_transaction_session_timeout", "transaction_timeout"];

/// First OID of users' objects: `FirstNormalObjectId` in transam.h.
pub const FIRST_USER_OID: u32 = 16_384;

/// Effect of an object's use. Ordered: of several effects the greatest counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum ObjectEffect {
    #[default]
    Reads,
    /// A system catalog describes the server that is asked.
    Catalog,
    /// WAL runs ahead of a sequence: a standby shows a value not given out yet.
    Sequence,
    /// Empty on a standby.
    Unlogged,
    Foreign,
    /// Writes, or calls what writes.
    Writes,
    /// A view that locks rows.
    Locks,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StatementNames {
    relations: Box<[QualifiedName]>,
    functions: Box<[QualifiedName]>,
    operators: Box<[QualifiedName]>,
    casts: Box<[QualifiedName]>,
    /// See `QueryFacts::columns`.
    columns: Box<[u32]>,
}

impl StatementNames {
    pub fn without(self, is_out: impl Fn(&QualifiedName) -> bool) -> (StatementNames, Box<[QualifiedName]>) {
        let (out, rest): (Vec<QualifiedName>, Vec<QualifiedName>) = self.relations.into_vec().into_iter().partition(is_out);
        (StatementNames { relations: rest.into(), ..self }, out.into())
    }

    pub fn count(&self) -> usize {
        let named = [&self.relations, &self.functions, &self.operators, &self.casts];
        named.iter().map(|names| names.len()).sum::<usize>() + self.columns.len()
    }

    pub fn relations(&self) -> &[QualifiedName] {
        &self.relations
    }

    pub fn functions(&self) -> &[QualifiedName] {
        &self.functions
    }

    /// True if a column may be one of `which`, which is sorted.
    fn has_column(&self, which: &[u32]) -> bool {
        !which.is_empty() && self.columns.iter().any(|column| which.binary_search(column).is_ok())
    }

    pub fn of(facts: &QueryFacts) -> Option<StatementNames> {
        let names = [&facts.named.relations, &facts.named.functions, &facts.named.operators, &facts.named.casts];
        (names.iter().any(|names| !names.is_empty()) || !facts.named.columns.is_empty()).then(|| StatementNames {
            relations: facts.named.relations.as_slice().into(),
            functions: facts.named.functions.as_slice().into(),
            operators: facts.named.operators.as_slice().into(),
            casts: facts.named.casts.as_slice().into(),
            columns: facts.named.columns.as_slice().into(),
        })
    }
}

/// An object, or all overloads of one name and schema.
#[derive(Clone, Copy, Debug)]
struct CatalogObject {
    /// Offset in `Catalog::text`.
    at: u32,
    /// Index into `Catalog::schemas`.
    schema: u32,
    bytes: u16,
    fate: ObjectEffect,
    /// True if equal arguments give equal answers while settings stay.
    steady: bool,
}

#[derive(Debug, Default)]
struct SortedObjects(Box<[CatalogObject]>);

/// Weir's knowledge of one database; immutable.
#[derive(Debug, Default)]
pub struct Catalog {
    text: Box<str>,
    schemas: Box<[Box<str>]>,
    /// Index of `pg_catalog` in `schemas`.
    pg_catalog: Option<u32>,
    relations: SortedObjects,
    functions: SortedObjects,
    operators: SortedObjects,
    /// Users' operators over types of PostgreSQL's own.
    of_own_types: SortedObjects,
    /// Target types of casts that may write.
    casts: SortedObjects,
    types: CodedTypes,
    /// Calls that may write.
    writing: SilentCalls,
    /// Calls that are not steady, `CodedTypes::runs_unseen` included.
    unsteady: SilentCalls,
    tables: tables::TableDependencies,
    unseen: unseen::HiddenEffects,
    defaults: CatalogDefaults,
}

#[derive(Debug, Default)]
struct CodedTypes {
    /// Types that run unsteady functions of users.
    unsteady: SortedObjects,
    /// OIDs of `unsteady`; sorted.
    checking: Box<[u32]>,
    /// True if types run functions that may write, in statements unknown.
    runs_unseen: bool,
}

#[derive(Debug, Default)]
struct SilentCalls {
    /// Schemas with such an operator of a standard spelling.
    operators: Box<[u32]>,
    /// Functions callable like a column, by `hash_of_column`; sorted.
    columns: Box<[u32]>,
    /// True if an implicit cast calls such a function.
    calls: bool,
}

#[derive(Debug, Default)]
struct CatalogDefaults {
    path: path::DbRoleSettings,
    /// In the order of `OF_TRANSACTIONS`.
    transactions: [path::DbRoleSettings; OF_TRANSACTIONS.len()],
}

/// A name of a statement that sends it to the primary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecidingName<'n> {
    Relation(&'n QualifiedName),
    Function(&'n QualifiedName),
    Type(&'n QualifiedName),
    Operator(&'n QualifiedName),
}

impl fmt::Display for DecidingName<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DecidingName::Relation(name) => write!(out, "{name}"),
            DecidingName::Function(name) => write!(out, "{name}()"),
            DecidingName::Type(name) => write!(out, "type {name}"),
            DecidingName::Operator(name) => write!(out, "operator {name}"),
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CatalogSize {
    pub relations: usize,
    pub functions: usize,
    pub bytes: usize,
}

impl Catalog {
    /// Returns why a statement must run on the primary. An unknown name does: its object may be too new for this
    /// catalog.
    pub fn judge(&self, names: &StatementNames, path: &SearchPath) -> Option<RoutingRule> {
        self.accuse(names, path).map(|(rule, _)| rule)
    }

    /// As `judge`, with the name that decides. There is none where anything in the database does.
    pub fn accuse<'n>(&self, names: &'n StatementNames, path: &SearchPath) -> Option<(RoutingRule, Option<DecidingName<'n>>)> {
        for relation in &names.relations {
            if let Some(rule) = self.judge_relation(relation, path) {
                return Some((rule, Some(DecidingName::Relation(relation))));
            }
        }
        if let Some(function) = names.functions.iter().find(|function| !self.reads_function(function, path)) {
            return Some((RoutingRule::Function, Some(DecidingName::Function(function))));
        }
        if names.has_column(&self.writing.columns) {
            return Some((RoutingRule::Function, None));
        }
        if self.writing.calls {
            return Some((RoutingRule::Cast, None));
        }
        // `mine(x)` may stand for `x::mine`.
        if let Some(cast) = names.casts.iter().chain(&names.functions).find(|cast| self.writes_cast(&cast.name)) {
            return Some((RoutingRule::Cast, Some(DecidingName::Type(cast))));
        }
        if self.writing.operators.iter().any(|schema| path.holds(*schema)) {
            return Some((RoutingRule::Operator, None));
        }
        let operator = names.operators.iter().find(|operator| !self.reads_operator(operator, path))?;
        Some((RoutingRule::Operator, Some(DecidingName::Operator(operator))))
    }

    fn judge_relation(&self, relation: &QualifiedName, path: &SearchPath) -> Option<RoutingRule> {
        let of_name = self.relations.named(&self.text, &relation.name);
        let fate = match (relation.schema.as_str(), path) {
            ("", SearchPath::Any) => of_name.iter().map(|object| object.fate).max(),
            ("", SearchPath::Listed(schemas)) => {
                let found = |schema: &u32| of_name.iter().find(|object| object.schema == *schema);
                schemas.iter().find_map(found).map(|object| object.fate)
            }
            (schema, _) => {
                let schema = self.schema(schema);
                of_name.iter().find(|object| Some(object.schema) == schema).map(|object| object.fate)
            }
        };
        match fate {
            Some(ObjectEffect::Reads) => None,
            None => Some(RoutingRule::UnknownRelation),
            Some(ObjectEffect::Catalog) => Some(RoutingRule::Catalog),
            Some(ObjectEffect::Sequence) => Some(RoutingRule::Sequence),
            Some(ObjectEffect::Unlogged) => Some(RoutingRule::UnloggedTable),
            Some(ObjectEffect::Foreign) => Some(RoutingRule::ForeignTable),
            Some(ObjectEffect::Writes) => Some(RoutingRule::WritingView),
            Some(ObjectEffect::Locks) => Some(RoutingRule::LockingView),
        }
    }

    /// Returns the name with the schema that it means. `None`: the catalog has no such relation, or the search_path is not known and several have this
    /// name. Temporary relations are not in the catalog.
    pub fn with_schema(&self, relation: &QualifiedName, path: &SearchPath) -> Option<QualifiedName> {
        if !relation.schema.is_empty() {
            return Some(relation.clone());
        }
        let of_name = self.relations.named(&self.text, &relation.name);
        let schema = match (path, of_name) {
            (SearchPath::Listed(schemas), _) => {
                *schemas.iter().find(|schema| of_name.iter().any(|object| object.schema == **schema))?
            }
            (SearchPath::Any, [only]) => only.schema,
            (SearchPath::Any, _) => return None,
        };
        let schema = self.schemas.get(schema as usize)?;
        Some(QualifiedName { schema: schema.to_string(), name: relation.name.clone() })
    }

    /// The first schema of a known path behind PostgreSQL's own one.
    pub fn first_schema(&self, path: &SearchPath) -> Option<&str> {
        let SearchPath::Listed(schemas) = path else { return None };
        let names = schemas.iter().filter_map(|schema| self.schemas.get(*schema as usize));
        names.map(|name| &**name).find(|name| *name != "pg_catalog")
    }

    /// True if a call only reads. Every overload in the path counts.
    fn reads_function(&self, function: &QualifiedName, path: &SearchPath) -> bool {
        self.worst(&self.functions, function, path) == Some(ObjectEffect::Reads)
    }

    fn reads_operator(&self, operator: &QualifiedName, path: &SearchPath) -> bool {
        let standard = matches!(operator.schema.as_str(), "" | "pg_catalog") && builtin::is_standard_operator(&operator.name);
        match self.worst(&self.operators, operator, path) {
            Some(fate) => fate == ObjectEffect::Reads,
            None => standard,
        }
    }

    fn writes_cast(&self, kind: &str) -> bool {
        !self.casts.named(&self.text, kind).is_empty()
    }

    /// Returns the greatest effect of all objects that a name may mean.
    fn worst(&self, objects: &SortedObjects, name: &QualifiedName, path: &SearchPath) -> Option<ObjectEffect> {
        let of_name = objects.named(&self.text, &name.name).iter();
        if name.schema.is_empty() {
            let may_be = |object: &&CatalogObject| path.holds(object.schema) || Some(object.schema) == self.pg_catalog;
            return of_name.filter(may_be).map(|object| object.fate).max();
        }
        let schema = self.schema(&name.schema);
        of_name.filter(|object| Some(object.schema) == schema).map(|object| object.fate).max()
    }

    fn schema(&self, name: &str) -> Option<u32> {
        self.schemas.iter().position(|schema| **schema == *name).and_then(|at| u32::try_from(at).ok())
    }

    /// `set`: the session's own search_path.
    pub fn path(&self, who: &LookupUser<'_>, set: Option<&str>) -> SearchPath {
        path::resolve(self, who, set.or_else(|| self.defaults.path.of(who.user)))
    }

    pub fn of_transactions(&self, user: &str, name: &str) -> Option<&str> {
        let at = OF_TRANSACTIONS.iter().position(|known| *known == name)?;
        self.defaults.transactions[at].of(user)
    }

    pub fn counts(&self) -> CatalogSize {
        let objects = [&self.relations, &self.functions, &self.operators, &self.casts].iter().map(|o| o.0.len()).sum::<usize>();
        CatalogSize {
            relations: self.relations.0.len(),
            functions: self.functions.0.len(),
            bytes: objects * size_of::<CatalogObject>() + self.text.len() + self.schemas.len() * 32 + self.tables.bytes(),
        }
    }
}

impl SortedObjects {
    fn named(&self, text: &str, name: &str) -> &[CatalogObject] {
        let start = self.0.partition_point(|object| object.name(text) < name);
        let rest = &self.0[start..];
        &rest[..rest.partition_point(|object| object.name(text) == name)]
    }
}

impl CatalogObject {
    fn name<'t>(&self, text: &'t str) -> &'t str {
        let at = self.at as usize;
        text.get(at..at + usize::from(self.bytes)).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests;
