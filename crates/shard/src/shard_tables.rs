//! The sharded tables of one database, as its engine defines them, and the code of the database that may read them.

use crate::key_value::{KeyKind, KeyOrder};
use crate::partition_bound::PartitionBound;
use crate::partition_map::PartitionMap;
use crate::reference_table::ReferenceTable;
use crate::sharded_table::ShardedTable;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use weir_sql::facts::QualifiedName;

/// A partition of a sharded table, or a reference table, as the engine has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionRow {
    pub table: QualifiedName,
    pub kind: PartitionRowKind,
    /// The database that the foreign server leads to.
    pub database: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PartitionRowKind {
    Reference,
    Partition {
        /// `None`: several columns, an expression, or operators that are not the default of the type.
        key: Option<KeyColumn>,
        /// Columns of the table in order.
        columns: Vec<String>,
        /// As PostgreSQL writes it.
        bound: String,
        /// `None`: the partition is no table of a shard with the table's name.
        shard: Option<u16>,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyColumn {
    pub name: String,
    pub type_oid: u32,
    /// `atttypmod`; -1: none.
    pub modifier: i32,
    pub is_deterministic: bool,
    /// True if texts are ordered by their bytes.
    pub is_c: bool,
}

/// A row of `CatalogQuery::ShardReaders`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReaderRow {
    View(QualifiedName),
    Function { name: QualifiedName, definition: String },
    Trigger { table: QualifiedName, function: String },
}

/// A relation that is not only shard 0's.
#[derive(Clone, Debug, PartialEq)]
pub enum ShardedRelation {
    Sharded(Arc<ShardedTable>),
    /// Every shard has all of its rows.
    Reference,
    /// A view over sharded tables, or a table whose policies look at them.
    Reader,
    /// Its definition cannot be used; the reason.
    Unusable(String),
}

/// Can the engine answer queries about rows of several shards?
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum EngineReadiness {
    /// It holds definitions only: `weir shard engine` did not run.
    #[default]
    DefinesOnly,
    Ready {
        /// The server that said so. Another one may lack what `weir shard engine` did.
        node: u16,
    },
    /// It was ready, and the database has changed: Weir is about to have it follow. The reason.
    Follows(String),
    /// It was ready, something that it depends on has changed, and it does not follow by itself; the reason.
    Behind(String),
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct ShardTables {
    relations: HashMap<QualifiedName, ShardedRelation>,
    /// Names of `relations` without their schemas.
    names: HashSet<String>,
    /// Names of functions that may read sharded tables.
    functions: HashSet<String>,
    /// Tables whose triggers run such functions.
    fired: HashSet<QualifiedName>,
    engine: EngineReadiness,
    /// Tables whose rows the engine would not give as the shards have them; the reason.
    unfit_for_engine: HashMap<QualifiedName, String>,
    /// Columns whose values tell no time, whatever text gives them.
    timeless: HashMap<QualifiedName, HashSet<String>>,
    /// Generated columns, which a COPY of a whole table leaves out.
    generated: HashMap<QualifiedName, HashSet<String>>,
    references: HashMap<QualifiedName, ReferenceTable>,
    /// Views and tables with rules over reference tables.
    reference_views: HashSet<QualifiedName>,
    /// Indexes of spread tables, each with its table.
    indexes: HashMap<QualifiedName, QualifiedName>,
    /// All shards of the configuration.
    shards: Vec<u16>,
}

impl ShardTables {
    /// `database`: foreign servers of other databases are not its own. `shards`: the shards that the configuration has.
    pub fn of_rows(database: &str, rows: &[PartitionRow], readers: Vec<ReaderRow>, shards: &[u16]) -> ShardTables {
        let mut relations = HashMap::new();
        let mut rest = rows;
        while let Some(first) = rest.first() {
            let end = rest.iter().position(|row| row.table != first.table).unwrap_or(rest.len());
            let (own, others) = rest.split_at(end);
            rest = others;
            let is_of_database = own.iter().any(|row| row.database == database);
            if is_of_database {
                relations.insert(first.table.clone(), relation_of(database, own, shards));
            }
        }
        with_groups(&mut relations);
        let unfit_for_engine = relations.iter().filter_map(|(name, relation)| Some((name.clone(), unfit(relation)?))).collect();
        let mut tables = ShardTables { relations, unfit_for_engine, shards: shards.to_vec(), ..ShardTables::default() };
        tables.note_readers(readers);
        tables.names = tables.relations.keys().map(|name| name.name.clone()).collect();
        tables
    }

    #[must_use]
    pub fn with_engine(self, engine: EngineReadiness) -> ShardTables {
        ShardTables { engine, ..self }
    }

    /// `columns`: tables, each with a column whose values do not come through a foreign table unchanged.
    #[must_use]
    pub fn with_unfit_columns(mut self, columns: impl IntoIterator<Item = (QualifiedName, String)>) -> ShardTables {
        for (table, column) in columns {
            let reason = format!("values of its column \"{column}\" do not pass unchanged between servers");
            self.unfit_for_engine.entry(table).or_insert(reason);
        }
        self
    }

    /// `columns`: tables, each with a column whose values tell no time.
    #[must_use]
    pub fn with_generated_columns(mut self, columns: impl IntoIterator<Item = (QualifiedName, String)>) -> ShardTables {
        for (table, column) in columns {
            self.generated.entry(table).or_default().insert(column);
        }
        self
    }

    #[must_use]
    pub fn with_timeless_columns(mut self, columns: impl IntoIterator<Item = (QualifiedName, String)>) -> ShardTables {
        for (table, column) in columns {
            self.timeless.entry(table).or_default().insert(column);
        }
        self
    }

    /// True if no text that is written to the column is read as a time, such as `today`. False in doubt. `table` has its schema.
    pub fn is_generated(&self, table: &QualifiedName, column: &str) -> bool {
        self.generated.get(table).is_some_and(|columns| columns.contains(column))
    }

    pub fn is_timeless(&self, table: &QualifiedName, column: &str) -> bool {
        self.timeless.get(table).is_some_and(|columns| columns.contains(column))
    }

    /// `tables`: sharded tables whose keys each shard draws from its own sequence.
    #[must_use]
    pub fn with_drawn_keys(mut self, tables: impl IntoIterator<Item = QualifiedName>) -> ShardTables {
        for table in tables {
            if let Some(ShardedRelation::Sharded(table)) = self.relations.get_mut(&table) {
                Arc::make_mut(table).draws_keys = true;
            }
        }
        self
    }

    /// Definitions of reference tables, by names with their schemas.
    #[must_use]
    pub fn with_references(self, tables: impl IntoIterator<Item = (QualifiedName, ReferenceTable)>) -> ShardTables {
        ShardTables { references: tables.into_iter().collect(), ..self }
    }

    /// Views, and tables with rules, over reference tables.
    #[must_use]
    pub fn with_reference_views(self, views: impl IntoIterator<Item = QualifiedName>) -> ShardTables {
        ShardTables { reference_views: views.into_iter().collect(), ..self }
    }

    /// True if a write to the relation may go on to a reference table. A name without a schema means any.
    pub fn writes_reference(&self, name: &QualifiedName) -> bool {
        self.reference_views.contains(name)
            || (name.schema.is_empty() && self.reference_views.iter().any(|view| view.name == name.name))
    }

    #[must_use]
    pub fn with_indexes(self, indexes: impl IntoIterator<Item = (QualifiedName, QualifiedName)>) -> ShardTables {
        ShardTables { indexes: indexes.into_iter().collect(), ..self }
    }

    /// The spread table of an index. `name` has its schema.
    pub fn table_of_index(&self, name: &QualifiedName) -> Option<&QualifiedName> {
        self.indexes.get(name)
    }

    /// True if a spread table has an index of this name, in any schema if `name` has none.
    pub fn may_have_index(&self, name: &QualifiedName) -> bool {
        self.indexes.keys().any(|index| index.name == name.name && (name.schema.is_empty() || index.schema == name.schema))
    }

    /// The definition of a reference table. `name` has its schema.
    pub fn reference(&self, name: &QualifiedName) -> Option<&ReferenceTable> {
        self.references.get(name)
    }

    /// All shards of the configuration, each of which has a copy of each reference table.
    pub fn shards(&self) -> &[u16] {
        &self.shards
    }

    pub fn engine(&self) -> &EngineReadiness {
        &self.engine
    }

    /// True if the engine gives the table's rows as its shards have them. `name` has its schema.
    pub fn fits_engine(&self, name: &QualifiedName) -> bool {
        !self.unfit_for_engine.contains_key(name)
    }

    /// The reason for which a table does not fit the engine.
    pub fn unfit_reason(&self, name: &QualifiedName) -> Option<&str> {
        self.unfit_for_engine.get(name).map(String::as_str)
    }

    pub fn is_empty(&self) -> bool {
        self.relations.is_empty()
    }

    /// `name` has its schema.
    pub fn relation(&self, name: &QualifiedName) -> Option<&ShardedRelation> {
        self.relations.get(name)
    }

    /// True if a relation of any schema has this name.
    pub fn has_name(&self, name: &str) -> bool {
        self.names.contains(name)
    }

    /// True if a function of this name, of any schema, may read sharded tables.
    pub fn is_read_by(&self, function: &str) -> bool {
        self.functions.contains(function)
    }

    /// True if code with this source may read sharded tables: it says the name of one, of such a function, or puts a text together.
    pub fn may_be_read_by(&self, source: &str) -> bool {
        let ends = |letter: char| !(letter.is_alphanumeric() || letter == '_');
        let words: Vec<String> = source.split(ends).filter(|word| !word.is_empty()).map(str::to_lowercase).collect();
        let is_spread = |relation: &ShardedRelation| !matches!(relation, ShardedRelation::Reference);
        let mut names =
            self.relations.iter().filter(|(_, relation)| is_spread(relation)).map(|(name, _)| name.name.to_lowercase());
        // A trigger's definition says EXECUTE FUNCTION.
        let next = words.iter().skip(1).map(String::as_str).chain([""]);
        let runs_text = words.iter().zip(next).any(|(word, next)| word == "execute" && !matches!(next, "function" | "procedure"));
        let said: HashSet<&str> = words.iter().map(String::as_str).collect();
        runs_text
            || names.any(|name| said.contains(&*name))
            || self.functions.iter().any(|name| said.contains(&*name.to_lowercase()))
    }

    /// True if a text may define a view or rule through which reference tables are written.
    pub fn may_write_reference(&self, source: &str) -> bool {
        let said = words_of(source);
        let defines = (said.contains("view") && !said.contains("materialized")) || said.contains("rule");
        let is_reference = |relation: &ShardedRelation| matches!(relation, ShardedRelation::Reference);
        let mut references = self.relations.iter().filter(|(_, relation)| is_reference(relation));
        let is_said = |name: &QualifiedName| said.contains(&name.name.to_lowercase()) || self.has_view_said(&said);
        defines && references.any(|(name, _)| is_said(name))
    }

    fn has_view_said(&self, said: &HashSet<String>) -> bool {
        self.reference_views.iter().any(|view| said.contains(&view.name.to_lowercase()))
    }

    /// True if a write of a table, whose name has its schema, may run such a function.
    pub fn fires(&self, table: &QualifiedName) -> bool {
        self.fired.contains(table)
    }

    pub fn fires_any(&self) -> bool {
        !self.fired.is_empty()
    }

    /// In the order of their names.
    pub fn sorted(&self) -> Vec<(&QualifiedName, &ShardedRelation)> {
        let mut all: Vec<_> = self.relations.iter().collect();
        all.sort_unstable_by_key(|(name, _)| *name);
        all
    }

    fn note_readers(&mut self, readers: Vec<ReaderRow>) {
        let is_spread = |relation: &ShardedRelation| !matches!(relation, ShardedRelation::Reference);
        let mut words: HashSet<String> =
            self.relations.iter().filter(|(_, relation)| is_spread(relation)).map(|(name, _)| name.name.to_lowercase()).collect();
        let (mut sources, mut triggers) = (Vec::new(), Vec::new());
        for reader in readers {
            match reader {
                ReaderRow::View(name) => {
                    words.insert(name.name.to_lowercase());
                    self.relations.entry(name).or_insert(ShardedRelation::Reader);
                }
                ReaderRow::Function { name, definition } => sources.push((name.name, words_of(&definition))),
                ReaderRow::Trigger { table, function } => triggers.push((table, function)),
            }
        }
        // A text put together at run time may name any table.
        words.insert("execute".to_owned());
        self.functions = functions_that_say(&words, sources);
        self.fired =
            triggers.into_iter().filter(|(_, function)| self.functions.contains(function)).map(|(table, _)| table).collect();
    }
}

/// Functions whose source has one of `words`, or the name of such a function.
fn functions_that_say(words: &HashSet<String>, mut sources: Vec<(String, HashSet<String>)>) -> HashSet<String> {
    let mut found: HashSet<String> = HashSet::new();
    let mut said: HashSet<String> = words.clone();
    loop {
        let (say, rest): (Vec<_>, Vec<_>) = sources.into_iter().partition(|(_, source)| !source.is_disjoint(&said));
        if say.is_empty() {
            return found;
        }
        said.extend(say.iter().map(|(name, _)| name.to_lowercase()));
        found.extend(say.into_iter().map(|(name, _)| name));
        sources = rest;
    }
}

/// All words of a source, in small letters: names, keywords, pieces of strings and comments.
fn words_of(source: &str) -> HashSet<String> {
    let ends = |letter: char| !(letter.is_alphanumeric() || letter == '_');
    source.split(ends).filter(|word| !word.is_empty()).map(str::to_lowercase).collect()
}

/// `rows`: all of one table.
fn relation_of(database: &str, rows: &[PartitionRow], shards: &[u16]) -> ShardedRelation {
    if rows.iter().any(|row| row.kind == PartitionRowKind::Reference) {
        return ShardedRelation::Reference;
    }
    table_of(database, rows, shards).map_or_else(ShardedRelation::Unusable, |table| ShardedRelation::Sharded(Arc::new(table)))
}

fn table_of(database: &str, rows: &[PartitionRow], shards: &[u16]) -> Result<ShardedTable, String> {
    let Some(PartitionRow { kind: PartitionRowKind::Partition { key, columns, .. }, .. }) = rows.first() else {
        return Err("it has no partitions".into());
    };
    let key = key.as_ref().ok_or("it is not partitioned by one column with the default operators of its type")?;
    let kind = KeyKind::of_type(key.type_oid).filter(|_| key.is_deterministic).ok_or_else(|| {
        format!("the place of values of its key column \"{}\" is not known for that type or collation", key.name)
    })?;
    let order = if key.is_c { KeyOrder::Known } else { KeyOrder::ByCollation };
    let mut bounds = Vec::with_capacity(rows.len());
    let mut places = Vec::with_capacity(rows.len());
    for row in rows {
        let PartitionRowKind::Partition { bound, shard, .. } = &row.kind else { continue };
        places.push(shard_of(database, row, bound, *shard, shards)?);
        bounds.push(PartitionBound::of_text(kind, bound).map_err(|error| error.to_string())?);
    }
    let map = PartitionMap::new(kind, order, &bounds).map_err(|error| error.to_string())?;
    let (key, modifier, columns) = (key.name.clone(), key.modifier, columns.clone());
    Ok(ShardedTable { key, kind, order, modifier, map, shards: places, columns, draws_keys: false, colocation: 0 })
}

/// A foreign table has all rows that its shard has, not only those of its partition: a second one there would give them again.
fn unfit(relation: &ShardedRelation) -> Option<String> {
    let ShardedRelation::Sharded(table) = relation else { return None };
    let mut shards = HashSet::new();
    let twice = table.shards.iter().find(|shard| !shards.insert(**shard))?;
    Some(format!("several of its partitions lie on shard {twice}"))
}

fn shard_of(database: &str, row: &PartitionRow, bound: &str, shard: Option<u16>, shards: &[u16]) -> Result<u16, String> {
    let shard = shard.ok_or_else(|| format!("partition {bound} is no foreign table of this name on a server like shard_1"))?;
    if row.database != database {
        return Err(format!("partition {bound} lies in another database, \"{}\"", row.database));
    }
    if !shards.contains(&shard) {
        return Err(format!("partition {bound} lies on shard {shard}, and the configuration has no such shard"));
    }
    Ok(shard)
}

/// Tables with equal types of their keys, bounds and shards are of one group.
fn with_groups(relations: &mut HashMap<QualifiedName, ShardedRelation>) {
    let mut known: Vec<Arc<ShardedTable>> = Vec::new();
    for relation in relations.values_mut() {
        let ShardedRelation::Sharded(table) = relation else { continue };
        let is_alike = |other: &Arc<ShardedTable>| {
            (other.kind, other.order, &other.map, &other.shards) == (table.kind, table.order, &table.map, &table.shards)
        };
        let group = known.iter().position(is_alike).unwrap_or(known.len());
        Arc::make_mut(table).colocation = group as u32;
        if group == known.len() {
            known.push(table.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(name: &str) -> QualifiedName {
        QualifiedName { schema: "public".into(), name: name.into() }
    }

    fn key() -> KeyColumn {
        KeyColumn { name: "id".into(), type_oid: 23, modifier: -1, is_deterministic: true, is_c: true }
    }

    fn row(table: &str, key: Option<KeyColumn>, shard: Option<u16>, bound: &str) -> PartitionRow {
        let columns = vec!["id".into(), "note".into()];
        let kind = PartitionRowKind::Partition { key, columns, bound: bound.into(), shard };
        PartitionRow { table: named(table), kind, database: "shop".into() }
    }

    fn half(table: &str, remainder: u16) -> PartitionRow {
        row(table, Some(key()), Some(remainder), &format!("FOR VALUES WITH (modulus 2, remainder {remainder})"))
    }

    fn halves(table: &str) -> [PartitionRow; 2] {
        [half(table, 0), half(table, 1)]
    }

    fn of(rows: &[PartitionRow], readers: Vec<ReaderRow>) -> ShardTables {
        ShardTables::of_rows("shop", rows, readers, &[0, 1])
    }

    #[test]
    fn a_table_has_the_shards_of_its_partitions_and_a_group_with_its_equals() {
        let logs = [(1, "FOR VALUES FROM (0) TO (9)"), (0, "DEFAULT")];
        let logs = logs.map(|(shard, bound)| row("logs", Some(key()), Some(shard), bound));
        let rows = [halves("items"), halves("orders"), logs];
        let tables = of(&rows.concat(), Vec::new());
        let table = |name: &str| match tables.relation(&named(name)) {
            Some(ShardedRelation::Sharded(table)) => table.clone(),
            other => panic!("{name}: {other:?}"),
        };
        assert_eq!((&*table("items").shards, &*table("logs").shards), (&[0, 1][..], &[1, 0][..]));
        assert_eq!(table("items").colocation, table("orders").colocation);
        assert_ne!(table("items").colocation, table("logs").colocation);
        assert!(tables.has_name("orders") && !tables.has_name("order"));
    }

    #[test]
    fn code_may_read_sharded_tables_by_a_name_by_another_function_or_by_a_text_put_together() {
        let read_all = ReaderRow::Function { name: named("read_all"), definition: "select from orders".into() };
        let tables = of(&halves("orders"), vec![read_all]);
        for (source, expected) in [
            ("create function f() returns int language sql as 'select id from Orders'", true),
            ("create function f() returns int language sql as 'select read_all()'", true),
            ("create function f() returns void language plpgsql as 'begin execute $1; end'", true),
            ("create function f() returns int language sql as 'select id from orders_of_others'", false),
            ("create trigger t before insert on u for each row execute function g()", false),
            ("create trigger t before insert on u for each row execute procedure read_all()", true),
        ] {
            assert_eq!(tables.may_be_read_by(source), expected, "{source}");
        }
    }

    #[test]
    fn a_definition_that_cannot_be_used_says_why() {
        let whole = "FOR VALUES WITH (modulus 1, remainder 0)";
        let with_key = |key| vec![row("orders", key, Some(0), whole)];
        let elsewhere = PartitionRow { database: "other".into(), ..half("orders", 1) };
        for (why, rows) in [
            ("no such shard", vec![row("orders", Some(key()), Some(7), whole)]),
            ("no foreign table", vec![row("orders", Some(key()), None, whole)]),
            ("another database", vec![half("orders", 0), elsewhere.clone()]),
            ("one column", with_key(None)),
            ("type or collation", with_key(Some(KeyColumn { type_oid: 99_999, ..key() }))),
            ("type or collation", with_key(Some(KeyColumn { is_deterministic: false, ..key() }))),
        ] {
            match of(&rows, Vec::new()).relation(&named("orders")) {
                Some(ShardedRelation::Unusable(said)) => assert!(said.contains(why), "{said}"),
                other => panic!("{why}: {other:?}"),
            }
        }
        assert!(of(&[elsewhere], Vec::new()).is_empty(), "a table of another database with this engine");
    }

    #[test]
    fn the_engine_gives_rows_of_tables_with_one_partition_on_a_shard_and_columns_that_pass_unchanged() {
        let quarter = |remainder: u16| {
            row("items", Some(key()), Some(remainder % 2), &format!("FOR VALUES WITH (modulus 4, remainder {remainder})"))
        };
        let rows = [(0..4).map(quarter).collect(), halves("orders").to_vec(), halves("prices").to_vec()].concat();
        let tables = of(&rows, Vec::new()).with_unfit_columns([(named("prices"), "amount".to_owned())]);
        assert!(tables.fits_engine(&named("orders")));
        for (table, reason) in [("items", "several of its partitions lie on shard 0"), ("prices", "column \"amount\"")] {
            assert!(tables.unfit_reason(&named(table)).is_some_and(|said| said.contains(reason)), "{table}");
        }
    }

    #[test]
    fn code_that_names_a_sharded_table_reads_it_also_through_others() {
        let function = |name: &str, definition: &str| ReaderRow::Function { name: named(name), definition: definition.into() };
        let countries = PartitionRow { table: named("countries"), kind: PartitionRowKind::Reference, database: "shop".into() };
        let readers = vec![
            ReaderRow::View(named("all_orders")),
            function("total", "select count(*) from Orders"),
            function("by_view", "select * from \"all_orders\""),
            function("report", "begin return total() + 1; end"),
            function("anything", "begin execute q; end"),
            function("twice", "select 2 * $1 from countries"),
            ReaderRow::Trigger { table: named("audit"), function: "report".into() },
            ReaderRow::Trigger { table: named("prices"), function: "twice".into() },
        ];
        let tables = of(&[halves("orders").to_vec(), vec![countries]].concat(), readers);
        let reads = |name: &str| tables.is_read_by(name);
        assert!(["total", "by_view", "report", "anything"].into_iter().all(reads));
        assert!(!reads("twice"));
        assert!(tables.fires(&named("audit")) && !tables.fires(&named("prices")));
        assert_eq!(tables.relation(&named("all_orders")), Some(&ShardedRelation::Reader));
        assert_eq!(tables.relation(&named("countries")), Some(&ShardedRelation::Reference));
    }
}
