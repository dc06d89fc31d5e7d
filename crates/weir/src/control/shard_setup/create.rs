//! `weir shard table` and `weir shard reference`: what is made where, in an order in which a failure leaves nothing that is routed wrongly.
//!
//! The entry in the engine is what Weir routes by. It is made first and committed last, so that PostgreSQL has judged bounds and types before anything is
//! done on a shard. A table that another run left on a shard is taken if it is what this run would make.

use super::ddl;
use super::key_draw;
use super::partition_plan::{self, PartitionPlan, PartitionStrategy};
use super::refusals::{self, LocalTriggers, is_named};
use super::row_copy;
use super::shard_servers::{ShardConn, ShardServers};
use super::shards_alike;
use super::table_definition::{self, TableDefinition};
use super::words::{TableName, quote_name, quote_text};
use crate::control::engine_state::ENGINE_NOTE_THERE;
use crate::control::shard_catalog::{self, SERVER_BEGIN, SHARDED_TABLES, ShardedKind, ShardedPartition, ShardedTable};
use anyhow::{Context, bail};
use weir_progress::{ProgressLine, WorkAmount};

/// Longest name of a database.
const NAME_BYTES_MAX: usize = 63;

/// Number of the lock that one `weir shard` has in the engine.
const ENGINE_LOCK: &str = "SELECT pg_catalog.pg_advisory_xact_lock(8391462)";

/// Partitions of a new table come from here.
#[derive(Clone, Debug)]
pub enum PlanSource {
    /// `None`: one for each shard.
    Hash(Option<usize>),
    Range(String),
    List(String),
    With(TableName),
}

pub struct TableOrder {
    pub table: TableName,
    pub key: String,
    pub source: PlanSource,
    pub triggers: LocalTriggers,
}

/// All that one run works on: the engine within a transaction, and the same database on every shard.
struct ShardWork {
    engine: ShardConn,
    primary: ShardConn,
    /// Above 0.
    others: Vec<ShardConn>,
    numbers: Vec<u16>,
    tables: Vec<ShardedTable>,
}

fn engine_exists(engine: &str) -> String {
    format!("SELECT 1 FROM pg_catalog.pg_database WHERE datname OPERATOR(pg_catalog.=) {}", quote_text(engine))
}

/// True if nobody else than superusers and the user of this connection owns the engine.
pub const ENGINE_OWNER: &str = "SELECT r.rolsuper OR r.rolname OPERATOR(pg_catalog.=) current_user FROM pg_catalog.pg_database AS d \
    JOIN pg_catalog.pg_roles AS r ON r.oid OPERATOR(pg_catalog.=) d.datdba WHERE d.datname OPERATOR(pg_catalog.=) pg_catalog.current_database()";

/// As `ENGINE_OWNER`, of the schema beside sharded tables: its tables choose the functions that run for every row that is written.
const GROUND_OWNER: &str = "SELECT r.rolsuper OR r.rolname OPERATOR(pg_catalog.=) current_user FROM pg_catalog.pg_namespace AS n \
    JOIN pg_catalog.pg_roles AS r ON r.oid OPERATOR(pg_catalog.=) n.nspowner WHERE n.nspname OPERATOR(pg_catalog.=) 'weir_shard'";

/// The server and database that a foreign server of the engine leads to.
const FOREIGN_SERVERS: &str = "SELECT s.srvname, \
    (SELECT pg_catalog.substr(o, 6) FROM pg_catalog.unnest(s.srvoptions) AS o WHERE pg_catalog.starts_with(o, 'host=')), \
    (SELECT pg_catalog.substr(o, 6) FROM pg_catalog.unnest(s.srvoptions) AS o WHERE pg_catalog.starts_with(o, 'port=')), \
    (SELECT pg_catalog.substr(o, 8) FROM pg_catalog.unnest(s.srvoptions) AS o WHERE pg_catalog.starts_with(o, 'dbname=')) \
    FROM pg_catalog.pg_foreign_server AS s";

/// In the order of `SHARDED_TABLES`.
fn constraints_query(table: &TableName) -> String {
    let (schema, name) = (quote_text(&table.schema), quote_text(&table.name));
    format!(
        "SELECT pg_catalog.pg_get_partition_constraintdef(i.inhrelid) FROM pg_catalog.pg_inherits AS i \
         JOIN pg_catalog.pg_class AS c ON c.oid OPERATOR(pg_catalog.=) i.inhparent \
         JOIN pg_catalog.pg_namespace AS n ON n.oid OPERATOR(pg_catalog.=) c.relnamespace \
         WHERE n.nspname OPERATOR(pg_catalog.=) {schema} AND c.relname OPERATOR(pg_catalog.=) {name} ORDER BY i.inhrelid"
    )
}

fn schema_owner(schema: &str) -> String {
    format!(
        "SELECT pg_catalog.pg_get_userbyid(n.nspowner) FROM pg_catalog.pg_namespace AS n WHERE n.nspname OPERATOR(pg_catalog.=) {}",
        quote_text(schema)
    )
}

pub fn first_cell(rows: &[Vec<Option<String>>]) -> Option<String> {
    rows.first()?.first()?.clone()
}

/// Opens the engine; `None` if it does not exist. Cancel safe: the connection is closed.
pub async fn open_engine(servers: &ShardServers, database: &str) -> anyhow::Result<Option<ShardConn>> {
    let engine = servers.engine_of(database);
    let primary = servers.servers.first().context("there is no shard 0")?;
    let mut conn = servers.open(primary, database).await?;
    if conn.query(&engine_exists(&engine)).await?.is_empty() {
        return Ok(None);
    }
    servers.open(primary, &engine).await.map(Some)
}

/// The conditions of a table's partitions, by PostgreSQL's own words. Not cancel safe: the connection is unusable afterwards.
pub async fn partition_constraints(engine: &mut ShardConn, table: &TableName) -> anyhow::Result<Vec<String>> {
    let rows = engine.query(&constraints_query(table)).await?;
    let text = |row: Vec<Option<String>>| row.into_iter().next().flatten().unwrap_or_else(|| "true".to_owned());
    Ok(rows.into_iter().map(text).collect())
}

/// Begins a transaction in an engine that is there, alone, and reads its entries. Cancel safe: the connection is closed.
pub async fn begin_engine(servers: &ShardServers, database: &str) -> anyhow::Result<(ShardConn, Vec<ShardedTable>)> {
    let engine = open_engine(servers, database).await?;
    let mut engine = engine.with_context(|| format!("no table of database \"{database}\" is spread"))?;
    engine.query("BEGIN").await?;
    engine.query(ENGINE_LOCK).await.context("another weir shard works on this database")?;
    let tables = entries(&mut engine).await?;
    Ok((engine, tables))
}

/// Reads all entries. Not cancel safe: the connection is unusable afterwards.
pub async fn entries(engine: &mut ShardConn) -> anyhow::Result<Vec<ShardedTable>> {
    Ok(shard_catalog::tables(&engine.query(SHARDED_TABLES).await?))
}

impl ShardWork {
    /// Cancel safe: connections are closed, and what is not committed is undone.
    async fn begin(servers: &ShardServers, database: &str) -> anyhow::Result<ShardWork> {
        let name = servers.engine_of(database);
        if name == database {
            bail!("system_db_dbname is \"{database}\" itself: the definitions need a database of their own");
        }
        if name.len() > NAME_BYTES_MAX {
            bail!("\"{name}\" has more than {NAME_BYTES_MAX} bytes: name the engine's database by system_db_dbname");
        }
        let mut conns = Vec::new();
        for server in &servers.servers {
            conns.push(servers.open(server, database).await?);
        }
        let differences = shards_alike::differences(&mut conns).await?;
        if !differences.is_empty() {
            bail!("the shards are not alike:\n{}", differences.join("\n"));
        }
        let mut conns = conns.into_iter();
        let mut primary = conns.next().context("there is no shard 0")?;
        let is_new = primary.query(&engine_exists(&name)).await?.is_empty();
        if is_new {
            let text = shards_alike::create_database(&mut primary, &name).await?;
            primary.run(&text).await?;
        }
        let mut engine = servers.open(&primary.server, &name).await?;
        if is_new {
            // Up to version 14 everyone may make tables there, and so entries.
            engine.query("REVOKE CREATE ON SCHEMA public FROM PUBLIC").await?;
        }
        if first_cell(&engine.query(ENGINE_OWNER).await?).as_deref() != Some("t") {
            bail!(
                "the database \"{name}\" belongs to an ordinary user, who could change where rows are looked for: give it another owner"
            );
        }
        engine.query("BEGIN").await?;
        engine.query(ENGINE_LOCK).await.context("another weir shard works on this database")?;
        engine.run("CREATE EXTENSION IF NOT EXISTS postgres_fdw WITH SCHEMA pg_catalog").await?;
        engine_servers(&mut engine, servers, database).await?;
        let tables = entries(&mut engine).await?;
        Ok(ShardWork { engine, primary, others: conns.collect(), numbers: servers.numbers(), tables })
    }

    fn refuse_known(&self, table: &TableName) -> anyhow::Result<()> {
        match self.tables.iter().find(|other| is_named(other, table)) {
            Some(ShardedTable { kind: ShardedKind::Reference, .. }) => bail!("{table} is a reference table already"),
            Some(_) => bail!("{table} is sharded already: weir shard show says how"),
            None => Ok(()),
        }
    }

    /// Locks the table on shard 0 until the end of its transaction. Not cancel safe: the connection is unusable afterwards.
    async fn lock(&mut self, table: &TableName, mode: &str) -> anyhow::Result<TableDefinition> {
        self.primary.query("BEGIN").await?;
        let Some(first) = table_definition::read(&mut self.primary, table).await? else {
            bail!("{} has no table {table} in database \"{}\"", self.primary.server, self.primary.database);
        };
        if first.relation.kind == "r" {
            self.primary.run(&format!("LOCK TABLE ONLY {table} IN {mode} MODE")).await?;
        }
        // Another session may have changed it before the lock was there.
        table_definition::read(&mut self.primary, table).await?.with_context(|| format!("{table} has just been dropped"))
    }

    /// Makes the entry, which is visible after `commit_engine`. Not cancel safe: the connection is unusable afterwards.
    async fn enter(&mut self, table: &TableName, statements: &[String]) -> anyhow::Result<()> {
        self.engine.run(&format!("CREATE SCHEMA IF NOT EXISTS {}", quote_name(&table.schema))).await?;
        self.engine.run_all(statements).await
    }

    /// Not cancel safe: the outcome is unknown.
    async fn commit_engine(&mut self) -> anyhow::Result<()> {
        self.engine.query("COMMIT").await.map(drop)
    }
}

/// Not cancel safe: the connection is unusable afterwards.
async fn engine_servers(engine: &mut ShardConn, servers: &ShardServers, database: &str) -> anyhow::Result<()> {
    let known = engine.query(FOREIGN_SERVERS).await?;
    let is_made_ready = !engine.query(ENGINE_NOTE_THERE).await?.is_empty();
    let of_shards = servers.servers.iter().map(|server| (format!("{SERVER_BEGIN}{}", server.shard), server));
    let every = servers.servers.first().map(|server| (shard_catalog::REFERENCE_SERVER.to_owned(), server));
    for (name, server) in of_shards.chain(every) {
        let wanted =
            [Some(name.clone()), Some(server.hostname.clone()), Some(server.port.to_string()), Some(database.to_owned())];
        let there = known.iter().find(|row| row.first() == wanted.first());
        if there.is_some_and(|row| row[..] == wanted) {
            continue;
        }
        if let Some(other) = there.and_then(|row| row.get(3)?.as_deref()).filter(|other| *other != database) {
            bail!(
                "the engine \"{}\" has the tables of database \"{other}\" already: each database needs its own",
                engine.database
            );
        }
        if is_made_ready && there.is_some() {
            // `engine::again` gives it the address by which the engine itself reaches the shard.
            continue;
        }
        engine.run(&ddl::engine_server(&name, there.is_some(), &server.hostname, server.port, database)).await?;
    }
    Ok(())
}

fn plan_of(source: &PlanSource, numbers: &[u16], tables: &[ShardedTable]) -> Result<PartitionPlan, String> {
    match source {
        PlanSource::Hash(count) => PartitionPlan::hash(count.unwrap_or(numbers.len()), numbers),
        PlanSource::Range(text) => PartitionPlan::range(text, numbers),
        PlanSource::List(text) => PartitionPlan::list(text, numbers),
        PlanSource::With(name) => match tables.iter().find(|table| is_named(table, name)) {
            Some(table) => PartitionPlan::of_table(table),
            None => Err(format!("{name} is not sharded: --with names a sharded table")),
        },
    }
}

fn refuse(table: &TableName, reasons: &[String]) -> anyhow::Result<()> {
    match reasons {
        [] => Ok(()),
        reasons => bail!("{table} cannot be spread:\n  {}", reasons.join("\n  ")),
    }
}

/// The table as the engine has it after `enter`. Not cancel safe: the connection is unusable afterwards.
async fn entered(engine: &mut ShardConn, table: &TableName) -> anyhow::Result<ShardedTable> {
    let tables = entries(engine).await?;
    tables.into_iter().find(|other| is_named(other, table)).with_context(|| format!("the engine does not show {table}"))
}

/// Shards a table without rows; returns what to say. Not cancel safe: shards may have parts of it.
pub async fn table(servers: &ShardServers, database: &str, order: &TableOrder, line: &ProgressLine) -> anyhow::Result<String> {
    let TableOrder { table, key, source, triggers } = order;
    let mut work = ShardWork::begin(servers, database).await?;
    work.refuse_known(table)?;
    let plan = plan_of(source, &work.numbers, &work.tables).map_err(anyhow::Error::msg)?;
    let definition = work.lock(table, "ACCESS EXCLUSIVE").await?;
    refuse(table, &refusals::of_table(&definition, *triggers))?;
    let key_column = definition.column(key).with_context(|| format!("{table} has no column {}", quote_name(key)))?;
    work.enter(table, &ddl::engine_sharded(table, &definition, key, &plan)).await?;
    let planned = entered(&mut work.engine, table).await?;
    refuse(table, &refusals::of_sharding(&definition, key, &planned, &work.tables))?;
    refuse_unlike(source, &planned, &work.tables)?;
    if work.primary.has_rows(&format!("TABLE ONLY {table} LIMIT 1")).await? {
        bail!("{table} has rows on {}: only empty tables can be spread for now", work.primary.server);
    }
    let checks = partition_constraints(&mut work.engine, table).await?;
    let ground = match plan.strategy {
        PartitionStrategy::Hash => ddl::hash_ground(key_column),
        PartitionStrategy::Range | PartitionStrategy::List => Vec::new(),
    };
    let of_shard = |shard: u16| {
        let check = ddl::key_check(table, key_column, &plan, &checks, shard).into_iter();
        check.chain(key_draw::ground(table, &definition, key_column, &plan, shard)).collect::<Vec<_>>()
    };
    let drawn = drawn_numbers(&mut work.primary, &definition).await?;
    let own_schema = first_cell(&work.primary.query(&schema_owner(&table.schema)).await?).unwrap_or_default();
    line.begin(&format!("making {table}"), WorkAmount::Count { total: work.numbers.len() as u64, unit: "shards" });
    for conn in &mut work.others {
        let shard = conn.server.shard;
        let firsts = first_numbers(&definition, &drawn, shard)?;
        conn.query("BEGIN").await?;
        make_schema(conn, &table.schema, &own_schema).await?;
        match table_definition::read(conn, table).await? {
            None => {
                conn.run_all(&ddl::create(table, &definition, &firsts)).await?;
                conn.run_all(&ddl::complete(table, &definition)).await?;
            }
            Some(there) => {
                refuse_other(conn, table, &definition, &there)?;
                if conn.has_rows(&format!("TABLE ONLY {table} LIMIT 1")).await? {
                    bail!(
                        "{} has a table {table} with rows, of which the engine knows nothing: look at them, and empty it",
                        conn.server
                    );
                }
                restart_sequences(conn, &definition, &firsts).await?;
            }
        }
        make_check(conn, &ground, &of_shard(shard)).await?;
        conn.query("COMMIT").await?;
        line.advance(1);
    }
    restart_sequences(&mut work.primary, &definition, &first_numbers(&definition, &drawn, 0)?).await?;
    make_check(&mut work.primary, &ground, &of_shard(0)).await?;
    work.primary.query("COMMIT").await?;
    work.commit_engine().await.with_context(|| format!("{table} is ready on all shards, but not entered: run this again"))?;
    Ok(format!("{table} is sharded by {}: {}\n{}", quote_name(key), summary(&planned), inbound_note(&definition)))
}

/// The key of a table beside another must be of its type, or equal keys would lie apart.
fn refuse_unlike(source: &PlanSource, planned: &ShardedTable, tables: &[ShardedTable]) -> anyhow::Result<()> {
    let PlanSource::With(name) = source else { return Ok(()) };
    let Some(other) = tables.iter().find(|table| is_named(table, name)) else { return Ok(()) };
    if partition_plan::are_colocated(planned, other) {
        return Ok(());
    }
    bail!("the keys of the two tables differ in type or collation: equal keys would not lie beside {name}");
}

/// Not cancel safe: the connection is unusable afterwards.
async fn make_schema(conn: &mut ShardConn, schema: &str, owner: &str) -> anyhow::Result<()> {
    if conn.query(&schema_owner(schema)).await?.is_empty() {
        conn.run(&ddl::schema(schema, owner)).await?;
    }
    Ok(())
}

/// Not cancel safe: the connection is unusable afterwards.
async fn make_check(conn: &mut ShardConn, ground: &[String], check: &[String]) -> anyhow::Result<()> {
    conn.run_all(ground).await?;
    if !ground.is_empty() && first_cell(&conn.query(GROUND_OWNER).await?).as_deref() != Some("t") {
        bail!("{}: the schema {} belongs to an ordinary user: drop it", conn.server, ddl::OWN_SCHEMA);
    }
    conn.run_all(check).await
}

/// The last numbers that shard 0 drew. Not cancel safe: the connection is unusable afterwards.
async fn drawn_numbers(primary: &mut ShardConn, definition: &TableDefinition) -> anyhow::Result<Vec<i64>> {
    let mut drawn = Vec::new();
    for sequence in &definition.sequences {
        // Nobody draws from it until the end of this transaction.
        primary.run(&format!("ALTER SEQUENCE {} INCREMENT BY {}", sequence.name, refusals::SEQUENCE_STEP)).await?;
        let (last, is_drawn) = last_number(primary, &sequence.name).await?;
        drawn.push(if is_drawn { last } else { last.saturating_sub(1) });
    }
    Ok(drawn)
}

/// The last number of a sequence, and whether it was drawn. Not cancel safe: the connection is unusable afterwards.
pub async fn last_number(conn: &mut ShardConn, sequence: &TableName) -> anyhow::Result<(i64, bool)> {
    let rows = conn.run(&format!("TABLE {sequence}")).await?;
    let row = rows.first().with_context(|| format!("the sequence {sequence} is empty"))?;
    let last = row.first().and_then(|cell| cell.as_deref()?.parse().ok()).context("a sequence without a number")?;
    Ok((last, row.get(2).is_some_and(|cell| cell.as_deref() == Some("t"))))
}

fn first_numbers(definition: &TableDefinition, drawn: &[i64], shard: u16) -> anyhow::Result<Vec<i64>> {
    let numbers = definition.sequences.iter().zip(drawn).map(|(sequence, drawn)| {
        ddl::first_number(sequence, *drawn, shard).with_context(|| {
            format!("the sequence {} has no numbers left for all shards: give it and its column a larger type", sequence.name)
        })
    });
    numbers.collect()
}

/// Not cancel safe: the connection is unusable afterwards.
async fn restart_sequences(conn: &mut ShardConn, definition: &TableDefinition, firsts: &[i64]) -> anyhow::Result<()> {
    for (sequence, first) in definition.sequences.iter().zip(firsts) {
        conn.run(&ddl::restart_sequence(sequence, *first)).await?;
    }
    Ok(())
}

/// A table that is there must be what this run would make.
fn refuse_other(conn: &ShardConn, table: &TableName, wanted: &TableDefinition, there: &TableDefinition) -> anyhow::Result<()> {
    match table_difference(wanted, there) {
        None => Ok(()),
        Some(difference) => bail!("{} has another table {table}: {difference}; drop or rename it", conn.server),
    }
}

/// The first thing in which a table differs from that of shard 0.
pub fn table_difference(of_primary: &TableDefinition, there: &TableDefinition) -> Option<String> {
    let (wanted, found) = (of_primary.lines(), there.lines());
    let missing = wanted.iter().find(|line| !found.contains(line));
    let surplus = found.iter().find(|line| !wanted.contains(line));
    match (missing, surplus) {
        (Some(missing), Some(surplus)) => Some(format!("it has \"{surplus}\", shard 0 has \"{missing}\"")),
        (Some(missing), None) => Some(format!("it lacks \"{missing}\"")),
        (None, Some(surplus)) => Some(format!("shard 0 lacks \"{surplus}\"")),
        (None, None) => None,
    }
}

fn summary(table: &ShardedTable) -> String {
    let ShardedKind::Sharded { partitions, .. } = &table.kind else { return String::new() };
    let place = |one: &ShardedPartition| {
        format!("{} on shard {}", one.bound, one.shard.map_or("?".to_owned(), |shard| shard.to_string()))
    };
    partitions.iter().map(place).collect::<Vec<_>>().join(", ")
}

fn inbound_note(definition: &TableDefinition) -> String {
    let note = |one: &table_definition::InboundReference| {
        format!(
            "note: shard {} too, --with this table: until then its foreign key {} finds rows of shard 0 only\n",
            one.table,
            quote_name(&one.constraint)
        )
    };
    definition.references.iter().map(note).collect()
}

/// Makes a reference table; returns what to say. Not cancel safe: shards may have parts of it.
pub async fn reference(
    servers: &ShardServers,
    database: &str,
    table: &TableName,
    triggers: LocalTriggers,
    line: &ProgressLine,
) -> anyhow::Result<String> {
    let mut work = ShardWork::begin(servers, database).await?;
    work.refuse_known(table)?;
    // Rows may be read meanwhile, and not be written.
    let definition = work.lock(table, "SHARE ROW EXCLUSIVE").await?;
    let mut reasons = refusals::of_table(&definition, triggers);
    if reasons.is_empty() {
        reasons = refusals::of_reference(&definition, &work.tables, table);
    }
    refuse(table, &reasons)?;
    if definition.key_check.is_some() {
        bail!("{table} has the constraint {} of a sharded table: drop it first", table_definition::KEY_CHECK);
    }
    work.enter(table, &[ddl::engine_reference(table, &definition)]).await?;
    let own_schema = first_cell(&work.primary.query(&schema_owner(&table.schema)).await?).unwrap_or_default();
    let mut copied = 0;
    work.primary.expect_rows();
    for conn in &mut work.others {
        conn.expect_rows();
        conn.query("BEGIN").await?;
        make_schema(conn, &table.schema, &own_schema).await?;
        line.begin(&format!("copying {table} to {}", conn.server), WorkAmount::Open { unit: "rows" });
        match table_definition::read(conn, table).await? {
            None => {
                conn.run_all(&ddl::create(table, &definition, &[])).await?;
                copied = row_copy::copy(&mut work.primary, conn, table, &definition, line).await?;
                conn.run_all(&ddl::complete(table, &definition)).await?;
            }
            Some(there) => {
                refuse_other(conn, table, &definition, &there)?;
                conn.run(&format!("LOCK TABLE ONLY {table} IN SHARE ROW EXCLUSIVE MODE")).await?;
                copied = take_over_rows(&mut work.primary, conn, table, &definition, line).await?;
            }
        }
        conn.query("COMMIT").await?;
    }
    work.commit_engine().await.with_context(|| format!("{table} is ready on all shards, but not entered: run this again"))?;
    // Writes wait until here.
    work.primary.query("COMMIT").await?;
    Ok(format!("{table} is a reference table: {copied} rows on each of {} shards\n", work.numbers.len()))
}

/// Takes a table that is there: an empty one gets the rows, one with other rows is refused. Not cancel safe: the connections are unusable afterwards.
async fn take_over_rows(
    primary: &mut ShardConn,
    conn: &mut ShardConn,
    table: &TableName,
    definition: &TableDefinition,
    line: &ProgressLine,
) -> anyhow::Result<u64> {
    if !conn.has_rows(&format!("TABLE ONLY {table} LIMIT 1")).await? {
        return row_copy::copy(primary, conn, table, definition, line).await;
    }
    let (wanted, there) = (contents(primary, table).await?, contents(conn, table).await?);
    if wanted != there {
        bail!("{} has a table {table} with other rows than shard 0: empty it there", conn.server);
    }
    Ok(wanted.count)
}

/// The number of a table's rows, and a sum over all of them that does not hang on their order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableContents {
    pub count: u64,
    pub sum: String,
}

/// Not cancel safe: the connection is unusable afterwards.
pub async fn contents(conn: &mut ShardConn, table: &TableName) -> anyhow::Result<TableContents> {
    conn.expect_rows();
    let rows = conn
        .run(&format!(
            "SELECT pg_catalog.count(*), COALESCE(pg_catalog.sum(pg_catalog.hashtextextended((weir_row.*)::pg_catalog.text, 0)), 0) \
             FROM ONLY {table} AS weir_row"
        ))
        .await?;
    let row = rows.first().context("no answer to a count")?;
    let cell = |at: usize| row.get(at).cloned().flatten().unwrap_or_default();
    Ok(TableContents { count: cell(0).parse().unwrap_or(0), sum: cell(1) })
}

pub fn own_texts() -> Vec<String> {
    let table = TableName { schema: "public".to_owned(), name: "items".to_owned() };
    vec![
        engine_exists("shop_engine"),
        ENGINE_LOCK.to_owned(),
        ENGINE_OWNER.to_owned(),
        GROUND_OWNER.to_owned(),
        FOREIGN_SERVERS.to_owned(),
        constraints_query(&table),
        schema_owner("public"),
    ]
}
