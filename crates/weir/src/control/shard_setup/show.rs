//! `weir shard show`: which tables are spread, and how.

use super::create;
use super::shard_servers::{ShardConn, ShardServers};
use super::words::{TableName, quote_name, quote_text};
use crate::control::shard_catalog::{ShardedKind, ShardedTable};
use std::collections::BTreeMap;

/// The planner's estimate; -1: nobody has counted yet.
fn estimate(table: &TableName) -> String {
    let (schema, name) = (quote_text(&table.schema), quote_text(&table.name));
    format!(
        "SELECT c.reltuples::pg_catalog.int8 FROM pg_catalog.pg_class AS c \
         JOIN pg_catalog.pg_namespace AS n ON n.oid OPERATOR(pg_catalog.=) c.relnamespace \
         WHERE n.nspname OPERATOR(pg_catalog.=) {schema} AND c.relname OPERATOR(pg_catalog.=) {name} AND c.relkind OPERATOR(pg_catalog.=) 'r'"
    )
}

/// Rows of a table on one shard, as far as known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowEstimate {
    Rows(u64),
    NotCounted,
    NoTable,
}

impl RowEstimate {
    fn of_answer(cell: Option<&str>) -> RowEstimate {
        match cell.map(str::parse::<i64>) {
            Some(Ok(number)) => u64::try_from(number).map_or(RowEstimate::NotCounted, RowEstimate::Rows),
            Some(Err(_)) => RowEstimate::NotCounted,
            None => RowEstimate::NoTable,
        }
    }

    fn words(self) -> String {
        match self {
            RowEstimate::Rows(number) => format!("about {number} rows"),
            RowEstimate::NotCounted => "rows not counted yet (ANALYZE)".to_owned(),
            RowEstimate::NoTable => "no such table there".to_owned(),
        }
    }
}

/// Returns what to print. Cancel safe: connections are closed.
pub async fn show(servers: &ShardServers, database: &str) -> anyhow::Result<String> {
    let Some(mut engine) = create::open_engine(servers, database).await? else {
        return Ok(format!(
            "no table of database \"{database}\" is spread: there is no engine \"{}\"\n",
            servers.engine_of(database)
        ));
    };
    let tables = create::entries(&mut engine).await?;
    let mut conns = Vec::new();
    for server in &servers.servers {
        conns.push(servers.open(server, database).await?);
    }
    let mut text = String::new();
    for table in &tables {
        text += &describe(table, &estimates(&mut conns, table).await?);
    }
    Ok(if text.is_empty() { format!("no table of database \"{database}\" is spread\n") } else { text })
}

/// Not cancel safe: connections are unusable afterwards.
async fn estimates(conns: &mut [ShardConn], table: &ShardedTable) -> anyhow::Result<BTreeMap<u16, RowEstimate>> {
    let mut found = BTreeMap::new();
    let name = TableName { schema: table.schema.clone(), name: table.name.clone() };
    for conn in conns {
        let rows = conn.query(&estimate(&name)).await?;
        let cell = rows.first().and_then(|row| row.first()?.as_deref());
        found.insert(conn.server.shard, RowEstimate::of_answer(cell));
    }
    Ok(found)
}

fn describe(table: &ShardedTable, rows: &BTreeMap<u16, RowEstimate>) -> String {
    let name = TableName { schema: table.schema.clone(), name: table.name.clone() };
    let (head, mut lines) = match &table.kind {
        ShardedKind::Reference => (format!("{name}: reference table, all rows on each shard"), Vec::new()),
        ShardedKind::Sharded { key: None, .. } => {
            (format!("{name}: no key that rows can be found by: statements about it are refused"), Vec::new())
        }
        ShardedKind::Sharded { key: Some(key), partitions } => {
            let line = |one: &crate::control::shard_catalog::ShardedPartition| match one.shard {
                Some(shard) => format!("  {} on shard {shard}", one.bound),
                None => format!("  {} on no shard: statements about the table are refused", one.bound),
            };
            (
                format!("{name}: sharded by {}, {}", quote_name(&key.column), parts(partitions.len())),
                partitions.iter().map(line).collect(),
            )
        }
    };
    lines.extend(rows.iter().map(|(shard, estimate)| format!("  shard {shard}: {}", estimate.words())));
    format!("{head}\n{}\n", lines.join("\n"))
}

fn parts(count: usize) -> String {
    crate::counted(count, "partition")
}

pub fn own_texts() -> Vec<String> {
    vec![estimate(&TableName { schema: "public".to_owned(), name: "items".to_owned() })]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::shard_catalog::{ShardKey, ShardedPartition};

    #[test]
    fn a_table_is_described_with_its_partitions_and_rows() {
        let key = ShardKey { column: "id".to_owned(), type_oid: 23, is_deterministic: true, is_c: true };
        let partition = ShardedPartition { bound: "DEFAULT".to_owned(), shard: Some(1) };
        let kind = ShardedKind::Sharded { key: Some(key), partitions: vec![partition] };
        let table = ShardedTable { schema: "a".to_owned(), name: "b".to_owned(), kind };
        let rows =
            [(0, RowEstimate::of_answer(Some("7"))), (1, RowEstimate::of_answer(Some("-1"))), (2, RowEstimate::of_answer(None))];
        assert_eq!(
            describe(&table, &BTreeMap::from(rows)),
            "\"a\".\"b\": sharded by \"id\", 1 partition\n  DEFAULT on shard 1\n  shard 0: about 7 rows\n  \
             shard 1: rows not counted yet (ANALYZE)\n  shard 2: no such table there\n"
        );
    }
}
