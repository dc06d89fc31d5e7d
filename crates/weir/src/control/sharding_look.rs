//! Reads how a database's tables are spread over shards (`parallel_mode`), from the engine beside it.
//!
//! A part of each look of `catalog_watch`, whose connection to the database it uses. The engine is another database of the same server.

use crate::control::control_conn::ControlConn;
use crate::control::control_context::ControlContext;
use crate::control::engine_follow::EngineFollow;
use crate::control::engine_state::{self, ENGINE_NOTE, ENGINE_NOTE_THERE, EngineNote, EngineSeen, Fingerprint};
use crate::control::shard_catalog::{self, SHARDED_TABLES, TIMELESS_COLUMNS, UNFIT_COLUMNS};
use crate::log::{Level, LogOrigin};
use crate::runtime::pool::server_conn::OpenError;
use std::rc::Rc;
use std::sync::Arc;
use weir_catalog::CatalogQuery;
use weir_config::Config;
use weir_session::catalogs::{Edition, KnownDatabase, UNKNOWN};
use weir_shard::{
    EngineReadiness, KeyColumn, PartitionRow, PartitionRowKind, ReaderRow, ReferenceTable, ShardTables, ShardedRelation,
};
use weir_sql::facts::QualifiedName;

/// `SHARDED_TABLES` waits for locks of the engine's tables: `pg_get_expr` opens them.
const LOCK_LIMIT: &str = "SET lock_timeout TO '500ms'";

const NO_LOCK_LIMIT: &str = "SET lock_timeout TO '0'";

/// Results of the last look.
#[derive(Default)]
pub struct ShardingWatch {
    pub(super) engine: Option<ControlConn>,
    rows: Option<Vec<PartitionRow>>,
    references: Vec<(QualifiedName, ReferenceTable)>,
    /// Tables whose keys the shards draw.
    drawn: Vec<QualifiedName>,
    /// Each with its table.
    indexes: Vec<(QualifiedName, QualifiedName)>,
    readers_of: Edition,
    shards: Vec<u16>,
    readiness: EngineReadiness,
    /// The state of the database that the engine lacks.
    change: Option<Fingerprint>,
    follow: EngineFollow,
    pub(super) is_warned: bool,
}

impl ShardingWatch {
    /// Keeps a connection to the engine. A transaction that changes the engine may wait for clients' locks on the shards, and these clients for the look.
    ///
    /// Not cancel safe.
    pub async fn keep_engine(&mut self, mut engine: ControlConn) -> Result<(), OpenError> {
        engine.query(LOCK_LIMIT).await?;
        self.engine = Some(engine);
        Ok(())
    }

    /// True if the look met a lock of Weir's own change of the engine, which ends with another look.
    pub fn is_due_again(&self, error: &ShardingError) -> bool {
        self.follow.is_under_way() && matches!(error, ShardingError::Locked)
    }

    /// Has the engine follow what the last look found.
    pub fn follow(&mut self, c: &Rc<ControlContext>, database: &Arc<KnownDatabase>) {
        self.follow.heed(c, database, self.change.as_ref());
    }
}

#[derive(Debug, thiserror::Error)]
pub enum ShardingError {
    #[error(transparent)]
    Server(#[from] OpenError),
    #[error("a transaction holds a lock on all of a table, of their engine or one that a function reads")]
    Locked,
    #[error("its engine \"{0}\" answered with a row of another form")]
    Row(String),
    #[error("the server answered with a row of another form")]
    Fingerprint,
}

/// A database of the engine's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EngineSighting {
    None,
    Trusted,
    /// Its owner is neither a superuser nor the user of the look: whoever may create databases could lead others' statements astray.
    Others,
}

/// Not cancel safe.
pub async fn sight_engine(line: &mut ControlConn, engine: &str) -> Result<EngineSighting, OpenError> {
    let rows = line.query(&owner(engine)).await?;
    Ok(match rows.into_iter().flatten().flatten().next().as_deref() {
        None => EngineSighting::None,
        Some("t") => EngineSighting::Trusted,
        Some(_) => EngineSighting::Others,
    })
}

fn owner(engine: &str) -> String {
    let mut sql = "SELECT r.rolsuper OR r.rolname OPERATOR(pg_catalog.=) current_user FROM pg_catalog.pg_database AS d \
        JOIN pg_catalog.pg_roles AS r ON r.oid OPERATOR(pg_catalog.=) d.datdba WHERE d.datname OPERATOR(pg_catalog.=) "
        .to_owned();
    weir_wire::write::literal(&mut sql, engine);
    sql
}

/// Publishes the database's sharded tables if they changed. `edition`: of the catalog just read, asked for behind `defined`. Not cancel safe.
pub async fn look(
    c: &ControlContext,
    database: &KnownDatabase,
    line: &mut ControlConn,
    watch: &mut ShardingWatch,
    (edition, defined): (Edition, u64),
) -> Result<(), ShardingError> {
    let changes = (database.sharding.columns.changes_before_look(), database.sharding.indexes.changes_before_look());
    let config = c.shared.config.load_full();
    let rows = match &mut watch.engine {
        Some(engine) => partitions(engine, &config.sharding.engine_of(&database.name)).await?,
        None => Vec::new(),
    };
    let shards = shards_of(&config);
    let (readiness, change) = match &mut watch.engine {
        Some(engine) if !rows.is_empty() => readiness(&config, &database.name, line, engine, &rows).await?,
        Some(_) | None => (EngineReadiness::DefinesOnly, None),
    };
    // The engine may have followed a change since it told its columns, and waits end with its readiness.
    let rows = match &mut watch.engine {
        Some(engine) if matches!(readiness, EngineReadiness::Ready { .. }) && watch.readiness != readiness => {
            partitions(engine, &config.sharding.engine_of(&database.name)).await?
        }
        Some(_) | None => rows,
    };
    let has_failed = change.as_ref().is_some_and(|change| watch.follow.has_failed(change));
    let readiness = if has_failed { without_hope(readiness) } else { readiness };
    watch.change = change;
    let references = references(line, &rows).await?;
    let indexes = indexes(line, &rows).await?;
    let drawn = drawn(line, &rows).await?;
    let is_same = edition != UNKNOWN
        && watch.readers_of == edition
        && watch.shards == shards
        && watch.rows.as_ref() == Some(&rows)
        && watch.references == references
        && watch.indexes == indexes
        && watch.drawn == drawn
        && watch.readiness == readiness;
    if is_same && database.sharding.edition() != 0 {
        note_looked(database, changes, defined);
        return Ok(());
    }
    let views = reference_views(line, &rows).await?;
    let readers = if rows.is_empty() { Vec::new() } else { readers(line).await? };
    let (unfit, timeless) = match &mut watch.engine {
        Some(engine) => (columns(engine, UNFIT_COLUMNS).await?, columns(engine, TIMELESS_COLUMNS).await?),
        None => (Vec::new(), Vec::new()),
    };
    let tables = ShardTables::of_rows(&database.name, &rows, readers, &shards);
    let tables =
        tables.with_unfit_columns(unfit).with_timeless_columns(timeless).with_generated_columns(generated(line, &rows).await?);
    let tables = tables
        .with_references(references.clone())
        .with_reference_views(views)
        .with_indexes(indexes.clone())
        .with_drawn_keys(drawn.iter().cloned())
        .with_engine(readiness.clone());
    tell(c, database, &tables);
    tell_readiness(c, database, &watch.readiness, &readiness);
    database.sharding.publish(tables);
    note_looked(database, changes, defined);
    (watch.rows, watch.references, watch.indexes, watch.drawn) = (Some(rows), references, indexes, drawn);
    (watch.readers_of, watch.shards, watch.readiness) = (edition, shards, readiness);
    Ok(())
}

/// The findings are published. `changes`: of columns, and of indexes.
fn note_looked(database: &KnownDatabase, (columns, indexes): (Option<u64>, Option<u64>), defined: u64) {
    database.sharding.columns.note_looked(columns);
    database.sharding.indexes.note_looked(indexes);
    database.sharding.note_readers_read(defined);
}

/// Returns also the state of the database that the engine must follow. `line` and `engine` lead to one server. Not cancel safe.
async fn readiness(
    config: &Config,
    database: &str,
    line: &mut ControlConn,
    engine: &mut ControlConn,
    rows: &[PartitionRow],
) -> Result<(EngineReadiness, Option<Fingerprint>), ShardingError> {
    let Some(of_engine) = first_cell(&engine.query(ENGINE_NOTE_THERE).await?) else {
        return Ok((EngineReadiness::DefinesOnly, None));
    };
    let note = engine.query_by_name(ENGINE_NOTE).await?;
    let cell = |at: usize| note.first().and_then(|row| row.get(at)?.clone()).unwrap_or_default();
    let mut names: Vec<(&str, &str)> = rows.iter().map(|row| (&*row.table.schema, &*row.table.name)).collect();
    names.dedup();
    let fingerprint = line.query(&engine_state::fingerprint_query(&engine_state::listed(names.into_iter()))).await?;
    let seen = EngineSeen {
        node: engine.address.node,
        note: EngineNote::of_text(&cell(0)),
        fingerprint: Fingerprint::of_rows(&fingerprint).ok_or(ShardingError::Fingerprint)?,
        of_engine,
        place: cell(1),
        addresses: engine_state::addresses_of(config),
    };
    Ok((engine_state::readiness(&seen, database), engine_state::change_to_follow(&seen).cloned()))
}

/// Not cancel safe.
async fn references(
    line: &mut ControlConn,
    rows: &[PartitionRow],
) -> Result<Vec<(QualifiedName, ReferenceTable)>, ShardingError> {
    match listed_references(rows) {
        Some(list) => Ok(shard_catalog::references(&line.query(&shard_catalog::reference_query(&list)).await?)),
        None => Ok(Vec::new()),
    }
}

/// Views and the like over reference tables. Not cancel safe.
async fn reference_views(line: &mut ControlConn, rows: &[PartitionRow]) -> Result<Vec<QualifiedName>, ShardingError> {
    match listed_references(rows) {
        Some(list) => Ok(shard_catalog::names(&line.query(&shard_catalog::view_query(&list)).await?)),
        None => Ok(Vec::new()),
    }
}

fn listed_references(rows: &[PartitionRow]) -> Option<String> {
    let of_reference = |row: &&PartitionRow| row.kind == PartitionRowKind::Reference;
    let names: Vec<_> = rows.iter().filter(of_reference).map(|row| (&*row.table.schema, &*row.table.name)).collect();
    (!names.is_empty()).then(|| engine_state::listed(names.into_iter()))
}

/// An engine that could not follow is tried again, and nobody waits for that.
fn without_hope(readiness: EngineReadiness) -> EngineReadiness {
    match readiness {
        EngineReadiness::Follows(reason) => EngineReadiness::Behind(reason),
        EngineReadiness::Ready { .. } | EngineReadiness::DefinesOnly | EngineReadiness::Behind(_) => readiness,
    }
}

/// Not cancel safe.
async fn indexes(line: &mut ControlConn, rows: &[PartitionRow]) -> Result<Vec<(QualifiedName, QualifiedName)>, ShardingError> {
    let mut names: Vec<_> = rows.iter().map(|row| (&*row.table.schema, &*row.table.name)).collect();
    names.dedup();
    if names.is_empty() {
        return Ok(Vec::new());
    }
    let query = shard_catalog::index_query(&engine_state::listed(names.into_iter()));
    Ok(shard_catalog::indexes(&line.query(&query).await?))
}

/// Tables whose keys the shards draw. Not cancel safe.
async fn drawn(line: &mut ControlConn, rows: &[PartitionRow]) -> Result<Vec<QualifiedName>, ShardingError> {
    match listed_partitions(rows) {
        Some(list) => Ok(shard_catalog::names(&line.query(&shard_catalog::drawn_query(&list)).await?)),
        None => Ok(Vec::new()),
    }
}

fn listed_partitions(rows: &[PartitionRow]) -> Option<String> {
    let is_partition = |row: &&PartitionRow| matches!(row.kind, PartitionRowKind::Partition { .. });
    let mut names: Vec<_> = rows.iter().filter(is_partition).map(|row| (&*row.table.schema, &*row.table.name)).collect();
    names.dedup();
    (!names.is_empty()).then(|| engine_state::listed(names.into_iter()))
}

fn first_cell(rows: &[Vec<Option<String>>]) -> Option<String> {
    rows.first()?.first()?.clone()
}

/// Generated columns of sharded tables. Not cancel safe.
async fn generated(line: &mut ControlConn, rows: &[PartitionRow]) -> Result<Vec<(QualifiedName, String)>, ShardingError> {
    match listed_partitions(rows) {
        Some(list) => columns(line, &shard_catalog::generated_query(&list)).await,
        None => Ok(Vec::new()),
    }
}

/// Tables, each with a column. Not cancel safe.
async fn columns(line: &mut ControlConn, sql: &str) -> Result<Vec<(QualifiedName, String)>, ShardingError> {
    let rows = line.query(sql).await?;
    let column = |row: Vec<Option<String>>| {
        let mut cells = row.into_iter().map(Option::unwrap_or_default);
        Some((QualifiedName { schema: cells.next()?, name: cells.next()? }, cells.next()?))
    };
    Ok(rows.into_iter().filter_map(column).collect())
}

fn shards_of(config: &Config) -> Vec<u16> {
    std::iter::once(0).chain(config.sharding.nodes.iter().map(|node| node.shard)).collect()
}

/// Not cancel safe.
async fn partitions(engine: &mut ControlConn, name: &str) -> Result<Vec<PartitionRow>, ShardingError> {
    let rows = engine.query(SHARDED_TABLES).await.map_err(locked)?;
    rows.iter().map(|row| partition(row).ok_or_else(|| ShardingError::Row(name.to_owned()))).collect()
}

fn locked(error: OpenError) -> ShardingError {
    if error.is_lock_timeout() { ShardingError::Locked } else { error.into() }
}

fn partition(row: &[Option<String>]) -> Option<PartitionRow> {
    let cell = |at: usize| row.get(at).and_then(|cell| cell.as_deref());
    let kind = match cell(2)? {
        "r" => PartitionRowKind::Reference,
        _ => PartitionRowKind::Partition {
            key: key(row),
            columns: serde_json::from_str(cell(7)?).ok()?,
            bound: cell(8)?.to_owned(),
            shard: cell(9).and_then(|number| number.parse().ok()),
        },
    };
    let table = QualifiedName { schema: cell(0)?.to_owned(), name: cell(1)?.to_owned() };
    Some(PartitionRow { table, kind, database: cell(12).unwrap_or_default().to_owned() })
}

fn key(row: &[Option<String>]) -> Option<KeyColumn> {
    let cell = |at: usize| row.get(at).and_then(|cell| cell.as_deref());
    Some(KeyColumn {
        name: cell(3)?.to_owned(),
        type_oid: cell(4)?.parse().ok()?,
        modifier: cell(11)?.parse().ok()?,
        is_deterministic: cell(5)? == "t",
        is_c: cell(6)? == "t",
    })
}

/// Not cancel safe.
async fn readers(line: &mut ControlConn) -> Result<Vec<ReaderRow>, ShardingError> {
    // The text of a function with a parsed body is made by opening its tables.
    line.query(LOCK_LIMIT).await?;
    let rows = line.query_catalog(CatalogQuery::ShardReaders).await;
    line.query(NO_LOCK_LIMIT).await?;
    let rows = rows.map_err(locked)?;
    Ok(rows.into_iter().filter_map(reader).collect())
}

fn reader(row: Vec<Option<String>>) -> Option<ReaderRow> {
    let mut cells = row.into_iter().map(Option::unwrap_or_default);
    let (kind, name) = (cells.next()?, QualifiedName { schema: cells.next()?, name: cells.next()? });
    let text = cells.next()?;
    Some(match kind.as_str() {
        "v" => ReaderRow::View(name),
        "f" => ReaderRow::Function { name, definition: text },
        _ => ReaderRow::Trigger { table: name, function: text },
    })
}

/// Names the tables that cannot be used.
fn tell(c: &ControlContext, database: &KnownDatabase, tables: &ShardTables) {
    let who = LogOrigin { database: &database.name, ..LogOrigin::default() };
    for (name, relation) in tables.sorted() {
        if let ShardedRelation::Unusable(why) = relation {
            let text = format_args!(
                "sharded table \"{}\".\"{}\" of database \"{}\" is not used, and statements that name it are refused: {why}",
                name.schema, name.name, database.name
            );
            c.shared.log.write(Level::Warning, &who, text);
        }
    }
}

fn tell_readiness(c: &ControlContext, database: &KnownDatabase, then: &EngineReadiness, now: &EngineReadiness) {
    let who = LogOrigin { database: &database.name, ..LogOrigin::default() };
    let name = &database.name;
    match now {
        _ if then == now => {}
        EngineReadiness::Ready { .. } => {
            let text = format_args!("the engine of database \"{name}\" answers statements over several shards");
            c.shared.log.write(Level::Log, &who, text);
        }
        EngineReadiness::Follows(reason) => {
            let text = format_args!("statements over several shards of database \"{name}\" wait for its engine: {reason}");
            c.shared.log.write(Level::Log, &who, text);
        }
        EngineReadiness::Behind(reason) => {
            let text = format_args!("the engine of database \"{name}\" answers no statements over several shards: {reason}");
            c.shared.log.write(Level::Warning, &who, text);
        }
        EngineReadiness::DefinesOnly => {
            let text = format_args!("the engine of database \"{name}\" holds definitions only");
            c.shared.log.write(Level::Log, &who, text);
        }
    }
}

pub fn own_texts() -> Vec<String> {
    vec![owner("name"), LOCK_LIMIT.to_owned(), NO_LOCK_LIMIT.to_owned()]
}
