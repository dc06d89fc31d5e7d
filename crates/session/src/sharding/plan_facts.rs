//! The meaning of a text's names for its plan.

use crate::session_state::by_sql::BySql;
use crate::sharding::copy_table::TableColumns;
use weir_catalog::{Catalog, SearchPath};
use weir_shard::{RelationKind, ShardTables, ShardedRelation};
use weir_sql::facts::QualifiedName;
use weir_sql::key_terms::{WriteAction, WriteTerms};

/// How far a name without a schema is known to mean a relation of the catalog.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameCertainty {
    Known,
    /// The session may have another `search_path`, or temporary tables that hide others.
    Unknown,
}

/// Knowledge by which a text is planned.
pub struct PlanFacts<'a> {
    pub tables: &'a ShardTables,
    pub catalog: &'a Catalog,
    pub path: &'a SearchPath,
    pub certainty: NameCertainty,
    /// Texts that the session has prepared by SQL.
    pub prepared: &'a BySql,
}

impl PlanFacts<'_> {
    pub(super) fn relation(&self, name: &QualifiedName) -> Option<(QualifiedName, &ShardedRelation)> {
        let whole = self.catalog.with_schema(name, self.path).filter(|_| self.tables.has_name(&name.name))?;
        self.tables.relation(&whole).map(|relation| (whole, relation))
    }

    /// The index that a name means. A name without a schema is one of the first schema of the path: of those behind it another index may stand in front.
    pub(super) fn index(&self, name: &QualifiedName) -> Option<QualifiedName> {
        let is_plain = name.schema.is_empty() && !name.name.starts_with("pg_");
        match (name.schema.is_empty(), self.certainty) {
            (false, _) => Some(name.clone()),
            (true, NameCertainty::Known) if is_plain => {
                let schema = self.catalog.first_schema(self.path)?.to_owned();
                Some(QualifiedName { schema, name: name.name.clone() })
            }
            (true, NameCertainty::Known | NameCertainty::Unknown) => None,
        }
    }

    /// True if a name may or may not mean a sharded table.
    pub(super) fn is_unsettled(&self, name: &QualifiedName) -> bool {
        let is_hidden = name.schema.is_empty() && self.certainty == NameCertainty::Unknown;
        self.tables.has_name(&name.name) && (is_hidden || self.catalog.with_schema(name, self.path).is_none())
    }

    pub(super) fn kind(&self, name: &QualifiedName) -> RelationKind<'_> {
        match self.relation(name).map(|(_, relation)| relation) {
            Some(ShardedRelation::Sharded(table)) => RelationKind::Sharded(table),
            Some(ShardedRelation::Reference) => RelationKind::Reference,
            Some(ShardedRelation::Reader | ShardedRelation::Unusable(_)) => RelationKind::Unknown,
            None => RelationKind::Single,
        }
    }

    /// Names of the columns that an INSERT into a sharded table gives values, in order.
    pub(super) fn inserted_columns<'w>(&'w self, write: &'w WriteTerms) -> &'w [String] {
        match (&write.action, self.kind(&write.relation)) {
            (WriteAction::Insert { columns, .. }, _) if !columns.is_empty() => columns,
            (WriteAction::Insert { .. }, RelationKind::Sharded(table)) => &table.columns,
            _ => &[],
        }
    }

    /// Columns of a sharded table.
    pub(super) fn table_columns(&self, table: &QualifiedName) -> TableColumns {
        let Some((whole, ShardedRelation::Sharded(table))) = self.relation(table) else { return TableColumns::default() };
        let (generated, copied) = table.columns.iter().cloned().partition(|column| self.tables.is_generated(&whole, column));
        TableColumns { copied, generated }
    }

    /// True if no text that is written to the column of a sharded table is read as a time. False in doubt.
    pub(super) fn is_timeless(&self, table: &QualifiedName, column: &str) -> bool {
        self.relation(table).is_some_and(|(whole, _)| self.tables.is_timeless(&whole, column))
    }

    pub(super) fn is_touched(&self, text: &str) -> bool {
        let ends = |letter: char| !(letter.is_alphanumeric() || letter == '_');
        text.split(ends).any(|word| {
            self.tables.has_name(word)
                || self.tables.has_name(&word.to_lowercase())
                || self.tables.is_read_by(&word.to_lowercase())
        })
    }
}
