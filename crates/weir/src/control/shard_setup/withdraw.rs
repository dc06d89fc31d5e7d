//! `weir shard drop`: takes a definition out of the engine, if all rows lie on shard 0.
//!
//! The tables of the other shards are locked and dropped before the entry goes, and all of that is committed after it: a statement that is still routed
//! there waits and fails, and writes nothing that would be lost.

use super::create;
use super::ddl;
use super::engine;
use super::key_draw;
use super::refusals::is_named;
use super::shard_servers::{ShardConn, ShardServers};
use super::table_definition::{self, KEY_CHECK};
use super::words::{TableName, quote_name};
use crate::control::shard_catalog::ShardedKind;
use anyhow::{Context, bail};

/// Returns what to say. Not cancel safe: shards may have parts of it.
pub async fn withdraw(servers: &ShardServers, database: &str, table: &TableName) -> anyhow::Result<String> {
    let (mut engine, tables) = create::begin_engine(servers, database).await?;
    let Some(entry) = tables.iter().find(|other| is_named(other, table)) else {
        bail!("{table} is neither sharded nor a reference table")
    };
    let mut conns = Vec::new();
    for server in &servers.servers {
        let mut conn = servers.open(server, database).await?;
        conn.query("BEGIN").await?;
        if table_definition::read(&mut conn, table).await?.is_some() {
            conn.run(&format!("LOCK TABLE ONLY {table} IN ACCESS EXCLUSIVE MODE")).await?;
            conns.push(conn);
        }
    }
    let mut conns = conns.into_iter();
    let mut primary = conns.next().with_context(|| format!("no shard has {table}"))?;
    let mut others: Vec<ShardConn> = conns.collect();
    if primary.server.shard != 0 {
        bail!("shard 0 has no table {table}: nothing is dropped");
    }
    for conn in &mut others {
        refuse_rows(&mut primary, conn, table, &entry.kind).await?;
        conn.run(&format!("DROP TABLE {table}")).await?;
        conn.run(&key_draw::drop_function(table)).await?;
    }
    primary.run(&format!("DROP TRIGGER IF EXISTS {KEY_CHECK} ON {table}")).await?;
    primary.run(&key_draw::drop_function(table)).await?;
    primary.run(&format!("ALTER TABLE {table} DROP CONSTRAINT IF EXISTS {KEY_CHECK}")).await?;
    if let Some((role, _)) = engine::login(&mut engine).await? {
        primary.run(&format!("REVOKE SELECT ON TABLE {table} FROM {}", quote_name(&role))).await?;
    }
    engine.run(&ddl::engine_drop(table, entry.kind != ShardedKind::Reference)).await?;
    engine.query("COMMIT").await.with_context(|| format!("it is unknown if {table} was dropped: weir shard show says it"))?;
    for conn in others.iter_mut().chain([&mut primary]) {
        conn.query("COMMIT")
            .await
            .with_context(|| format!("{table} is out of the engine; weir shard check names what is left over"))?;
    }
    Ok(format!("{table} lies on shard 0 only\n"))
}

/// Nothing may be lost with a shard's table. Not cancel safe: connections are unusable afterwards.
async fn refuse_rows(primary: &mut ShardConn, conn: &mut ShardConn, table: &TableName, kind: &ShardedKind) -> anyhow::Result<()> {
    match kind {
        ShardedKind::Sharded { .. } if conn.has_rows(&format!("TABLE ONLY {table} LIMIT 1")).await? => {
            bail!("{} has rows of {table}: only a table whose rows all lie on shard 0 can be taken out", conn.server)
        }
        ShardedKind::Reference if create::contents(primary, table).await? != create::contents(conn, table).await? => {
            bail!("{} has other rows of {table} than shard 0: weir shard check", conn.server)
        }
        ShardedKind::Sharded { .. } | ShardedKind::Reference => Ok(()),
    }
}
