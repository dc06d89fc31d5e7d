//! Does the engine read the shards that Weir knows? Asked of the engine itself, by every server and table that it has.

use super::create::first_cell;
use super::engine_servers;
use super::shard_servers::ShardConn;
use super::words::{TableName, quote_name, quote_text};
use std::collections::{BTreeMap, BTreeSet};

/// Name of a foreign table that is there within the transaction only.
const PROBE: &str = "weir_shard.engine_probe";

/// Tables that one text reads: a savepoint for each of many tables would take longer than their rows.
const TABLES_AT_ONCE: usize = 50;

/// A client's lock on a table of a shard must not hold the engine's own locks up for long: the server of the shard knows no limit for these statements,
/// and the engine ends them when it ends its own.
const LIMIT: &str = "SET LOCAL statement_timeout TO '10s'";
const NO_LIMIT: &str = "SET LOCAL statement_timeout TO '0'";

/// Foreign tables: schema, name, server, and schema and name of the table whose partition each is.
pub const FOREIGN_TABLES: &str = "SELECT n.nspname, p.relname, s.srvname, m.nspname, c.relname FROM pg_catalog.pg_foreign_table AS f \
    JOIN pg_catalog.pg_class AS p ON p.oid OPERATOR(pg_catalog.=) f.ftrelid \
    JOIN pg_catalog.pg_namespace AS n ON n.oid OPERATOR(pg_catalog.=) p.relnamespace \
    JOIN pg_catalog.pg_foreign_server AS s ON s.oid OPERATOR(pg_catalog.=) f.ftserver \
    LEFT JOIN pg_catalog.pg_inherits AS i ON i.inhrelid OPERATOR(pg_catalog.=) p.oid \
    LEFT JOIN pg_catalog.pg_class AS c ON c.oid OPERATOR(pg_catalog.=) i.inhparent \
    LEFT JOIN pg_catalog.pg_namespace AS m ON m.oid OPERATOR(pg_catalog.=) c.relnamespace ORDER BY 1, 2";

/// Reads every server and table of the engine; returns what fails. Within a transaction of the engine. Not cancel safe: the connections are unusable
/// afterwards.
pub async fn failures(engine: &mut ShardConn, conns: &mut [ShardConn]) -> anyhow::Result<Vec<String>> {
    let mut failures = Vec::new();
    let mut unread = BTreeSet::new();
    let tables = engine.query(FOREIGN_TABLES).await?;
    engine.query(LIMIT).await?;
    for conn in conns {
        // Only the server that Weir itself is connected to shows this name.
        let sign = format!("weir_shard_{:016x}", u64::from_ne_bytes(crate::random()));
        conn.query(&format!("SET application_name TO '{sign}'")).await?;
        let shard = conn.server.shard;
        for name in engine_servers::names_of(shard) {
            let is_same = reads(engine, &probe(&name, &sign)).await?;
            let failure = match is_same {
                Ok(rows) if first_cell(&rows).as_deref() == Some("1") => continue,
                Ok(_) => format!("{}: the server {name} of the engine leads to another server", conn.server),
                Err(words) => format!("{}, server {name} of the engine: {words}", conn.server),
            };
            failures.push(failure);
            unread.insert(name);
        }
    }
    let mut readable: BTreeMap<&str, Vec<TableName>> = BTreeMap::new();
    for row in &tables {
        if let [Some(schema), Some(name), Some(server), ..] = row.as_slice()
            && !unread.contains(server)
        {
            readable.entry(server).or_default().push(TableName { schema: schema.clone(), name: name.clone() });
        }
    }
    for (server, tables) in readable {
        for tables in tables.chunks(TABLES_AT_ONCE) {
            failures.extend(unreadable(engine, server, tables).await?);
        }
    }
    engine.query(NO_LIMIT).await?;
    Ok(failures)
}

/// Reads all by one text, and each by itself only if that fails. Not cancel safe: the connection is unusable afterwards.
async fn unreadable(engine: &mut ShardConn, server: &str, tables: &[TableName]) -> anyhow::Result<Vec<String>> {
    let texts: Vec<String> = tables.iter().map(first_row).collect();
    if reads(engine, &[texts.join(" UNION ALL ")]).await?.is_ok() {
        return Ok(Vec::new());
    }
    let mut failures = Vec::new();
    for (table, text) in tables.iter().zip(texts) {
        if let Err(words) = reads(engine, &[text]).await? {
            failures.push(format!("server {server} of the engine, table {table}: {words}"));
        }
    }
    Ok(failures)
}

fn first_row(table: &TableName) -> String {
    format!("SELECT pg_catalog.count(*) FROM (SELECT FROM {table} LIMIT 1) AS weir_rows")
}

fn probe(server: &str, sign: &str) -> [String; 2] {
    [
        format!(
            "CREATE FOREIGN TABLE {PROBE} (application_name pg_catalog.text) SERVER {} OPTIONS (schema_name 'pg_catalog', table_name 'pg_stat_activity')",
            quote_name(server)
        ),
        format!("SELECT pg_catalog.count(*) FROM {PROBE} WHERE application_name OPERATOR(pg_catalog.=) {}", quote_text(sign)),
    ]
}

/// Runs texts and undoes them; the answer to the last. Not cancel safe: the connection is unusable afterwards.
async fn reads(engine: &mut ShardConn, statements: &[String]) -> anyhow::Result<Result<Vec<Vec<Option<String>>>, String>> {
    engine.query("SAVEPOINT weir_read").await?;
    let mut answer = Ok(Vec::new());
    for statement in statements {
        answer = engine.attempt(statement).await?;
        if answer.is_err() {
            break;
        }
    }
    engine.query("ROLLBACK TO SAVEPOINT weir_read").await?;
    Ok(answer)
}

pub fn own_texts() -> Vec<String> {
    [FOREIGN_TABLES, LIMIT, NO_LIMIT].map(str::to_owned).to_vec()
}
