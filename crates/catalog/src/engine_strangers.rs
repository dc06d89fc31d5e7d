//! Names of a statement that may mean something else in the engine: a database beside the session's own, on its server and with its settings, without
//! users' functions, operators, types and collations.

use crate::builtin;
use crate::{Catalog, CatalogObject, SearchPath, StatementNames};
use weir_sql::facts::QualifiedName;

/// Names that only the terms of a text have (`weir_sql::key_terms`).
#[derive(Clone, Copy, Debug)]
pub struct UsedNames<'n> {
    pub operators: &'n [QualifiedName],
    pub collations: &'n [QualifiedName],
}

impl Catalog {
    /// Returns a function, operator, type or collation of a statement that is not surely the same in the engine. `None`: there is none.
    pub fn engine_stranger<'n>(
        &self,
        names: &'n StatementNames,
        used: UsedNames<'n>,
        path: &SearchPath,
    ) -> Option<&'n QualifiedName> {
        let function = names.functions.iter().find(|function| !self.is_same_function(function, path));
        let mut operators = names.operators.iter().chain(used.operators);
        let kind = || names.casts.iter().find(|kind| !(self.is_own_name(kind, path) && builtin::is_plain_type(&kind.name)));
        let collation = || {
            let is_same = |name: &QualifiedName| {
                name.schema == PG_CATALOG || (self.is_own_name(name, path) && builtin::is_plain_collation(&name.name))
            };
            used.collations.iter().find(|name| !is_same(name))
        };
        function.or_else(|| operators.find(|operator| !self.is_same_operator(operator, path))).or_else(kind).or_else(collation)
    }

    fn is_same_function(&self, function: &QualifiedName, path: &SearchPath) -> bool {
        let name = function.name.as_str();
        let is_own = |object: &&CatalogObject| Some(object.schema) == self.pg_catalog;
        let of_name = self.functions.named(&self.text, name);
        let is_listed = builtin::may_run_on_standby(name) && !builtin::differs_by_database(name);
        let is_alike = || builtin::is_alike_in_databases(name) || of_name.iter().find(is_own).is_some_and(|own| own.steady);
        is_listed
            && matches!(function.schema.as_str(), "" | PG_CATALOG)
            && of_name.iter().any(|object| is_own(&object))
            && is_alike()
            && !self.may_be_users(of_name, function, path)
    }

    /// Operators over users' types do not count: no table of the engine has such a column.
    fn is_same_operator(&self, operator: &QualifiedName, path: &SearchPath) -> bool {
        let name = operator.name.as_str();
        matches!(operator.schema.as_str(), "" | PG_CATALOG)
            && builtin::is_standard_operator(name)
            && !builtin::is_text_search_operator(name)
            && !self.may_be_users(self.of_own_types.named(&self.text, name), operator, path)
    }

    fn may_be_users(&self, of_name: &[CatalogObject], name: &QualifiedName, path: &SearchPath) -> bool {
        let is_users = |object: &CatalogObject| Some(object.schema) != self.pg_catalog && path.holds(object.schema);
        name.schema.is_empty() && of_name.iter().any(is_users)
    }

    /// True if a name that `pg_catalog` has means that object: its schema is looked at first unless the path says otherwise.
    fn is_own_name(&self, name: &QualifiedName, path: &SearchPath) -> bool {
        let is_first = match (path, self.pg_catalog) {
            (SearchPath::Any, _) => false,
            (SearchPath::Listed(schemas), Some(own)) => !schemas.contains(&own) || schemas.first() == Some(&own),
            (SearchPath::Listed(_), None) => true,
        };
        name.schema == PG_CATALOG || (name.schema.is_empty() && is_first)
    }
}

const PG_CATALOG: &str = "pg_catalog";
