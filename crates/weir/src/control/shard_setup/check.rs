//! `weir shard check`: do all shards have what the engine says, and nothing that contradicts it.

use super::create::{self, first_cell};
use super::ddl;
use super::engine;
use super::key_draw;
use super::partition_plan::{PartitionPlan, PartitionStrategy};
use super::refusals::{self, LocalTriggers, SEQUENCE_STEP, is_named};
use super::shard_servers::{ShardConn, ShardServers};
use super::shards_alike;
use super::table_definition::{self, ColumnDefinition, KEY_CHECK, TableDefinition};
use super::words::{TableName, quote_name};
use crate::control::shard_catalog::{ShardedKind, ShardedTable};
use crate::counted;
use anyhow::Context;

/// A table that only this session sees, to learn how the server writes a constraint.
const PROBE: &str = "weir_shard_probe";

const PROBED: &str = "SELECT pg_catalog.pg_get_constraintdef(c.oid) FROM pg_catalog.pg_constraint AS c \
    JOIN pg_catalog.pg_class AS r ON r.oid OPERATOR(pg_catalog.=) c.conrelid \
    WHERE r.relname OPERATOR(pg_catalog.=) 'weir_shard_probe' AND r.relnamespace OPERATOR(pg_catalog.=) pg_catalog.pg_my_temp_schema() \
    AND c.conname OPERATOR(pg_catalog.=) 'weir_shard_key'";

/// Tables with the constraint of a sharded table.
const CONSTRAINED: &str = "SELECT n.nspname, r.relname FROM pg_catalog.pg_constraint AS c \
    JOIN pg_catalog.pg_class AS r ON r.oid OPERATOR(pg_catalog.=) c.conrelid \
    JOIN pg_catalog.pg_namespace AS n ON n.oid OPERATOR(pg_catalog.=) r.relnamespace \
    WHERE c.conname OPERATOR(pg_catalog.=) 'weir_shard_key' AND c.contype OPERATOR(pg_catalog.=) 'c' ORDER BY 1, 2";

const PREPARED: &str = "SELECT pg_catalog.current_setting('max_prepared_transactions')";

/// Findings: lines to print, and the number of differences.
#[derive(Debug)]
pub struct ShardFindings {
    pub text: String,
    pub differences: usize,
}

/// Cancel safe: connections are closed.
pub async fn check(servers: &ShardServers, database: &str) -> anyhow::Result<ShardFindings> {
    let mut conns = Vec::new();
    for server in &servers.servers {
        conns.push(servers.open(server, database).await?);
    }
    let mut lines = shards_alike::differences(&mut conns).await?;
    for conn in &mut conns {
        if first_cell(&conn.query(PREPARED).await?).as_deref() == Some("0") {
            lines.push(format!("{}: max_prepared_transactions is 0: transactions over several shards need it", conn.server));
        }
    }
    let (mut engine, tables) = match create::open_engine(servers, database).await? {
        Some(mut engine) => {
            let tables = create::entries(&mut engine).await?;
            (Some(engine), tables)
        }
        None => (None, Vec::new()),
    };
    for table in &tables {
        if let Some(engine) = &mut engine {
            check_table(engine, &mut conns, table, &tables, &mut lines).await?;
        }
    }
    if let Some(engine) = &mut engine {
        lines.extend(engine::findings(servers, engine, &mut conns, &tables).await?);
    }
    for conn in &mut conns {
        let rows = conn.query(CONSTRAINED).await?;
        lines.extend(left_over(&rows, &tables).iter().map(|name| {
            format!("{}: {name} has the constraint {KEY_CHECK}, and the engine does not know it: run weir shard table again, or drop it", conn.server)
        }));
    }
    let differences = lines.len();
    lines.push(format!(
        "{} checked on {}: {}",
        counted(tables.len(), "table"),
        counted(conns.len(), "shard"),
        counted(differences, "difference")
    ));
    Ok(ShardFindings { text: lines.join("\n") + "\n", differences })
}

fn left_over(rows: &[Vec<Option<String>>], tables: &[ShardedTable]) -> Vec<TableName> {
    let name = |row: &Vec<Option<String>>| Some(TableName { schema: row.first()?.clone()?, name: row.get(1)?.clone()? });
    let is_unknown = |name: &TableName| !tables.iter().any(|table| is_named(table, name) && table.kind != ShardedKind::Reference);
    rows.iter().filter_map(name).filter(is_unknown).collect()
}

/// Not cancel safe: connections are unusable afterwards.
async fn check_table(
    engine: &mut ShardConn,
    conns: &mut [ShardConn],
    table: &ShardedTable,
    tables: &[ShardedTable],
    lines: &mut Vec<String>,
) -> anyhow::Result<()> {
    let name = TableName { schema: table.schema.clone(), name: table.name.clone() };
    let of_engine = table_definition::read(engine, &name).await?.unwrap_or_default();
    let mut of_primary: Option<TableDefinition> = None;
    let mut with_table = Vec::new();
    for conn in conns.iter_mut() {
        let Some(here) = table_definition::read(conn, &name).await? else {
            lines.push(format!("{}: there is no table {name}", conn.server));
            continue;
        };
        let found = |text: &str| format!("{}: {name}: {text}", conn.server);
        match &of_primary {
            Some(primary) => lines.extend(create::table_difference(primary, &here).map(|text| found(&text))),
            None => {
                lines.extend(column_difference(&of_engine.columns, &here.columns).map(|text| found(&text)));
                lines.extend(contradictions(&here, table, tables).iter().map(|text| found(text)));
            }
        }
        if let ShardedKind::Sharded { .. } = &table.kind {
            lines.extend(check_of_shard(engine, conn, (table, &name), &here).await?);
        }
        of_primary = of_primary.or(Some(here));
        with_table.push(conn);
    }
    if table.kind == ShardedKind::Reference {
        lines.extend(check_rows(with_table, &name).await?);
    }
    Ok(())
}

/// Things that somebody made since, and that a sharded or reference table must not have.
fn contradictions(definition: &TableDefinition, table: &ShardedTable, tables: &[ShardedTable]) -> Vec<String> {
    let mut reasons = refusals::of_table(definition, LocalTriggers::Vouched);
    let name = TableName { schema: table.schema.clone(), name: table.name.clone() };
    match &table.kind {
        ShardedKind::Sharded { key: Some(key), .. } => {
            reasons.extend(refusals::of_sharding(definition, &key.column, table, tables))
        }
        ShardedKind::Sharded { key: None, .. } => {
            reasons.push("the engine has no key for it that rows can be found by".to_owned())
        }
        ShardedKind::Reference => reasons.extend(refusals::of_reference(definition, tables, &name)),
    }
    reasons
}

fn column_difference(of_engine: &[ColumnDefinition], of_shard: &[ColumnDefinition]) -> Option<String> {
    let words = |columns: &[ColumnDefinition]| {
        let word = |column: &ColumnDefinition| {
            let collation = column.collation.as_deref().unwrap_or("");
            let not_null = if column.is_not_null { " NOT NULL" } else { "" };
            format!("{} {} {collation}{not_null}", quote_name(&column.name), column.type_text)
        };
        columns.iter().map(word).collect::<Vec<_>>()
    };
    let (engine, shard) = (words(of_engine), words(of_shard));
    (engine != shard).then(|| format!("its columns are ({}), and ({}) in the engine", shard.join(", "), engine.join(", ")))
}

/// Not cancel safe: connections are unusable afterwards.
async fn check_of_shard(
    engine: &mut ShardConn,
    conn: &mut ShardConn,
    (table, name): (&ShardedTable, &TableName),
    here: &TableDefinition,
) -> anyhow::Result<Vec<String>> {
    let mut lines = Vec::new();
    let shard = conn.server.shard;
    for sequence in &here.sequences {
        let (last, _) = create::last_number(conn, &sequence.name).await?;
        if sequence.increment != SEQUENCE_STEP || (last - i64::from(shard) - 1) % SEQUENCE_STEP != 0 {
            lines.push(format!("{}: the sequence {} draws numbers of other shards", conn.server, sequence.name));
        }
    }
    let Some((text, is_validated)) = &here.key_check else {
        lines.push(format!("{}: {name} lacks the constraint {KEY_CHECK}: rows of other shards may get in", conn.server));
        return Ok(lines);
    };
    if !is_validated {
        lines.push(format!(
            "{}: the constraint {KEY_CHECK} of {name} is not validated: ALTER TABLE … VALIDATE CONSTRAINT",
            conn.server
        ));
    }
    let ShardedKind::Sharded { key: Some(key), .. } = &table.kind else { return Ok(lines) };
    let (Ok(plan), Some(column)) = (PartitionPlan::of_table(table), here.column(&key.column)) else { return Ok(lines) };
    let draws = key_draw::sequence_of(here, column).is_some() && plan.on_shard(shard).next().is_some();
    if draws && here.key_trigger.is_none() {
        lines.push(format!("{}: {name} lacks the trigger {KEY_CHECK}: rows without a key are refused", conn.server));
    }
    let constraints = create::partition_constraints(engine, name).await?;
    let wanted = probe(conn, name, column, &plan, &constraints).await?;
    if wanted != *text {
        lines.push(format!("{}: the constraint {KEY_CHECK} of {name} is {text}, and by the engine {wanted}", conn.server));
    }
    Ok(lines)
}

/// How the server writes the constraint that the table should have. Not cancel safe: the connection is unusable afterwards.
async fn probe(
    conn: &mut ShardConn,
    table: &TableName,
    key: &ColumnDefinition,
    plan: &PartitionPlan,
    constraints: &[String],
) -> anyhow::Result<String> {
    let probe = TableName { schema: "pg_temp".to_owned(), name: PROBE.to_owned() };
    let shard = conn.server.shard;
    conn.query("BEGIN READ WRITE").await?;
    if plan.strategy == PartitionStrategy::Hash {
        conn.run_all(&ddl::hash_ground(key)).await?;
    }
    conn.run(&format!("CREATE TABLE {probe} (LIKE {table})")).await?;
    conn.run_all(&ddl::key_check(&probe, key, plan, constraints, shard)).await?;
    let text = first_cell(&conn.query(PROBED).await?).context("the constraint that was made is not there")?;
    conn.query("ROLLBACK").await?;
    Ok(text)
}

/// Compares the rows of a reference table. Not cancel safe: connections are unusable afterwards.
async fn check_rows(conns: Vec<&mut ShardConn>, table: &TableName) -> anyhow::Result<Vec<String>> {
    let mut of_primary = None;
    let mut lines = Vec::new();
    for conn in conns {
        let here = create::contents(conn, table).await?;
        match &of_primary {
            None => of_primary = Some(here),
            Some(primary) if *primary == here => {}
            Some(primary) => {
                lines.push(format!(
                    "{}: {table} has other rows than on shard 0 ({} here, {} there)",
                    conn.server, here.count, primary.count
                ));
            }
        }
    }
    Ok(lines)
}

pub fn own_texts() -> Vec<String> {
    [PROBED, CONSTRAINED, PREPARED].map(str::to_owned).to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_constraint_without_an_entry_is_left_over() {
        let row = |name: &str| vec![Some("a".to_owned()), Some(name.to_owned())];
        let table = |name: &str, kind| ShardedTable { schema: "a".to_owned(), name: name.to_owned(), kind };
        let sharded = ShardedKind::Sharded { key: None, partitions: Vec::new() };
        let tables = [table("one", sharded), table("two", ShardedKind::Reference)];
        let names: Vec<String> =
            left_over(&[row("one"), row("two"), row("three")], &tables).into_iter().map(|name| name.name).collect();
        assert_eq!(names, ["two", "three"]);
    }

    #[test]
    fn columns_that_differ_are_named() {
        let column = |name: &str, is_not_null| ColumnDefinition {
            name: name.to_owned(),
            type_text: "integer".to_owned(),
            is_not_null,
            ..Default::default()
        };
        assert_eq!(column_difference(&[column("a", true)], &[column("a", true)]), None);
        let said = column_difference(&[column("a", true)], &[column("a", false)]).unwrap();
        assert_eq!(said, "its columns are (\"a\" integer ), and (\"a\" integer  NOT NULL) in the engine");
    }
}
