//! A database's objects as far as routing asks: relations, functions, operators and casts that may be used on a standby.
//!
//! In: rows of the server's system catalogs (`query`, `draft`), a statement's names and the session's search_path. Out: whether
//! the statement only reads, else the rule that says why not. No IO: `weir::control::catalog_watch` asks the server.
//!
//! Compact, since there is one for each database in use: an object takes 12 bytes and its name. The reads and calls of a view
//! are worked out once, when the catalog is made; a view is then one byte like a table.

pub mod builtin;
mod draft;
pub mod functions;
mod path;
mod query;
pub mod rule;
mod tables;
mod unseen;

pub use draft::{CatalogDraft, DraftError};
pub use path::{LookupUser, SearchPath};
pub use query::{CatalogPart, CatalogQuery, PARTS};
pub use tables::TouchedTables;
pub use unseen::{HiddenUses, NAMES_MAX};

use crate::rule::RoutingRule;
use weir_sql::facts::{QualifiedName, QueryFacts};

/// Parameters that shape transactions of which no server knows yet. The catalog has their defaults.
pub const OF_TRANSACTIONS: [&str; 3] =
    ["default_transaction_isolation", "idle_in_transaction_session_timeout", "transaction_timeout"];

/// First number of an object that a user made. Source: `FirstNormalObjectId` in transam.h.
pub const FIRST_USER_OID: u32 = 16_384;

/// Effect of a use of an object. Ordered: of several the greatest counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum ObjectEffect {
    /// It only reads data that a standby has.
    #[default]
    Reads,
    /// It reads a system catalog, which tells of the server that is asked.
    Catalog,
    /// A sequence: WAL runs ahead of its value, so that a standby shows one that was not given out yet.
    Sequence,
    /// An unlogged table: a standby has none of its rows.
    Unlogged,
    /// A foreign table: its rows are not in this database.
    Foreign,
    /// A function that may write, or something that calls one.
    Writes,
    /// A view that locks rows.
    Locks,
}

/// The names of a statement about which the catalog is asked.
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
    /// The names without some of the relations, and those.
    pub fn without(self, is_out: impl Fn(&QualifiedName) -> bool) -> (StatementNames, Box<[QualifiedName]>) {
        let (out, rest): (Vec<QualifiedName>, Vec<QualifiedName>) = self.relations.into_vec().into_iter().partition(is_out);
        (StatementNames { relations: rest.into(), ..self }, out.into())
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        let named = [&self.relations, &self.functions, &self.operators, &self.casts];
        named.iter().map(|names| names.len()).sum::<usize>() + self.columns.len()
    }

    /// The relations among them.
    pub fn relations(&self) -> &[QualifiedName] {
        &self.relations
    }

    /// True if one of its columns may be one of these, which are sorted.
    fn has_column(&self, which: &[u32]) -> bool {
        !which.is_empty() && self.columns.iter().any(|column| which.binary_search(column).is_ok())
    }

    /// The names in a text; none if it has none.
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

/// One object, or several of one name and schema (overloaded functions): then the worst of their fates.
#[derive(Clone, Copy, Debug)]
struct CatalogObject {
    /// Where its name begins in `Catalog::text`.
    at: u32,
    /// Number of its schema in `Catalog::schemas`.
    schema: u32,
    bytes: u16,
    fate: ObjectEffect,
    /// Of functions and operators: the same arguments give the same answer, as long as settings stay.
    steady: bool,
}

/// Objects of one kind, sorted by name, then schema.
#[derive(Debug, Default)]
struct SortedObjects(Box<[CatalogObject]>);

/// Weir's knowledge of one database. Never changed: a newer one takes its place.
#[derive(Debug, Default)]
pub struct Catalog {
    /// All names, one after the other.
    text: Box<str>,
    schemas: Box<[Box<str>]>,
    /// Number of `pg_catalog` among them.
    pg_catalog: Option<u32>,
    relations: SortedObjects,
    functions: SortedObjects,
    /// Operators that a user made.
    operators: SortedObjects,
    /// Types to which some cast runs a function that may write.
    casts: SortedObjects,
    types: CodedTypes,
    /// Calls that may write.
    writing: SilentCalls,
    /// Calls of what is not steady, `CodedTypes::runs_unseen` among them.
    unsteady: SilentCalls,
    /// The tables behind relations.
    tables: tables::TableDependencies,
    unseen: unseen::HiddenEffects,
    defaults: CatalogDefaults,
}

/// Types that run functions.
#[derive(Debug, Default)]
struct CodedTypes {
    /// Those that run functions of users which are not steady.
    unsteady: SortedObjects,
    /// Their numbers; sorted.
    checking: Box<[u32]>,
    /// Types run functions that may write, and which statements run them is not known.
    runs_unseen: bool,
}

/// Calls of one kind that a text does not always show.
#[derive(Debug, Default)]
struct SilentCalls {
    /// Schemas with such an operator of a standard spelling.
    operators: Box<[u32]>,
    /// Such functions that may be called like a column, by `hash_of_column`; sorted.
    columns: Box<[u32]>,
    /// There is a cast by such a function that runs without being asked for.
    calls: bool,
}

/// Defaults of sessions.
#[derive(Debug, Default)]
struct CatalogDefaults {
    path: path::DbRoleSettings,
    /// For their transactions, in the order of `OF_TRANSACTIONS`.
    transactions: [path::DbRoleSettings; OF_TRANSACTIONS.len()],
}

/// How much a catalog holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CatalogSize {
    pub relations: usize,
    pub functions: usize,
    /// Memory in bytes, about.
    pub bytes: usize,
}

impl Catalog {
    /// Why a statement with these names must run on the primary; `None`: it only reads.
    ///
    /// A name that is not known is for the primary: its object may be too new to be known here.
    pub fn judge(&self, names: &StatementNames, path: &SearchPath) -> Option<RoutingRule> {
        for relation in &names.relations {
            if let Some(rule) = self.judge_relation(relation, path) {
                return Some(rule);
            }
        }
        if names.functions.iter().any(|function| !self.reads_function(function, path)) || names.has_column(&self.writing.columns)
        {
            return Some(RoutingRule::Function);
        }
        if self.writing.calls || names.casts.iter().any(|cast| self.writes_cast(&cast.name)) {
            return Some(RoutingRule::Cast);
        }
        // `mine(x)` may be written for `x::mine`.
        if names.functions.iter().any(|function| self.writes_cast(&function.name)) {
            return Some(RoutingRule::Cast);
        }
        let is_hidden = self.writing.operators.iter().any(|schema| path.holds(*schema));
        if is_hidden || names.operators.iter().any(|operator| !self.reads_operator(operator, path)) {
            return Some(RoutingRule::Operator);
        }
        None
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

    /// True if all that a call may mean only reads. Arguments are not looked at: every overload in the path counts.
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

    /// The worst fate of all objects a name may mean; `pg_catalog` is always searched.
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

    /// The schemas in which a session looks for names without a schema. `set`: its own search_path, if it has set one.
    pub fn path(&self, who: &LookupUser<'_>, set: Option<&str>) -> SearchPath {
        path::resolve(self, who, set.or_else(|| self.defaults.path.of(who.user)))
    }

    /// Default of a user's sessions for a parameter of `OF_TRANSACTIONS`.
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
    /// All objects of a name.
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
