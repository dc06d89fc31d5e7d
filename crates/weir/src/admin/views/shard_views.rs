//! `SHOW pool_shards`, `SHOW pool_shard_tables` and `SHOW pool_prepared`: servers of `parallel_mode`, what of the asker's database lies where, and
//! transactions that are not ended on all shards.

use crate::admin::listing::{ListSnapshot, Listing, listing, open, own, time};
use crate::runtime::prepared_seen::PreparedSight;
use crate::runtime::shared::seconds;
use weir_config::NodeConfig;
use weir_shard::{EngineReadiness, ShardTables, ShardedRelation};
use weir_sql::facts::QualifiedName;

/// A server of a shard.
pub struct ShardRow {
    shard: u16,
    node: u16,
    hostname: String,
    port: u16,
    connections: u32,
    idle: u32,
}

pub const POOL_SHARDS: Listing<ShardRow> = listing(shard_rows).columns(&[&[
    open("shard_id", |row| row.shard.into()),
    open("node_id", |row| row.node.into()),
    own("hostname", |row| (&row.hostname).into()),
    own("port", |row| row.port.into()),
    open("connections", |row| row.connections.into()),
    open("idle", |row| row.idle.into()),
]]);

fn shard_rows(of: &ListSnapshot<'_>) -> Vec<ShardRow> {
    if !of.config.sharding.is_on {
        return Vec::new();
    }
    let mut nodes: Vec<&NodeConfig> = of.config.all_nodes().collect();
    nodes.sort_by_key(|node| (node.shard, node.id));
    let pools = of.shared.pools.all();
    let row = |node: &NodeConfig| {
        let counts = pools.iter().filter(|pool| pool.key.node == node.id).map(|pool| pool.counts());
        let (idle, connections) = counts.fold((0, 0), |sum, (idle, open, _)| (sum.0 + idle as u32, sum.1 + open));
        ShardRow { shard: node.shard, node: node.id, hostname: node.hostname.clone(), port: node.port, connections, idle }
    };
    nodes.into_iter().map(row).collect()
}

/// Names of databases are hidden from database users.
pub const POOL_PREPARED: Listing<PreparedSight> = listing(|of| of.shared.cluster.prepared.all()).columns(&[&[
    open("shard_id", |row| row.name.shard.into()),
    open("node_id", |row| row.node.into()),
    own("database", |row| (&row.database).into()),
    open("name", |row| row.name.to_string().into()),
    open("prepared", |row| time(seconds(row.prepared_at))),
    open("decided_by", |row| row.name.decides.node.into()),
    open("transaction", |row| row.name.decides.xid.get().into()),
    open("problem", |row| (&row.problem).into()),
]]);

/// A table of the asker's database that is not only shard 0's.
pub struct ShardTableRow {
    schema: String,
    table: String,
    kind: &'static str,
    key: String,
    shards: String,
    group: String,
    problem: String,
    engine: String,
}

pub const POOL_SHARD_TABLES: Listing<ShardTableRow> = listing(table_rows).columns(&[&[
    open("schema", |row| (&row.schema).into()),
    open("table", |row| (&row.table).into()),
    open("kind", |row| row.kind.into()),
    open("key", |row| (&row.key).into()),
    open("shards", |row| (&row.shards).into()),
    open("group", |row| (&row.group).into()),
    open("problem", |row| (&row.problem).into()),
    open("engine", |row| (&row.engine).into()),
]]);

fn table_rows(of: &ListSnapshot<'_>) -> Vec<ShardTableRow> {
    let Some(tables) = of.asker.database.and_then(|database| database.sharding.tables()) else { return Vec::new() };
    let view = of.shared.cluster.view.load();
    let primary = view.primary.and_then(|at| Some(view.nodes.get(at)?.id));
    tables
        .sorted()
        .into_iter()
        .map(|(name, relation)| {
            let row = ShardTableRow {
                schema: name.schema.clone(),
                table: name.name.clone(),
                kind: "",
                key: String::new(),
                shards: String::new(),
                group: String::new(),
                problem: String::new(),
                engine: engine_words(&tables, primary, name, relation),
            };
            match relation {
                ShardedRelation::Sharded(table) => {
                    let shards = table.shards.iter().map(u16::to_string).collect::<Vec<_>>().join(",");
                    ShardTableRow { kind: "sharded", key: table.key.clone(), shards, group: table.colocation.to_string(), ..row }
                }
                ShardedRelation::Reference => ShardTableRow { kind: "reference", ..row },
                ShardedRelation::Reader => ShardTableRow { kind: "reads sharded tables", ..row },
                ShardedRelation::Unusable(why) => ShardTableRow { kind: "sharded", problem: why.clone(), ..row },
            }
        })
        .collect()
}

/// May the engine answer statements over several shards that read this table? `primary`: the node of shard 0 that has the engine now.
fn engine_words(tables: &ShardTables, primary: Option<u16>, name: &QualifiedName, relation: &ShardedRelation) -> String {
    match (relation, tables.engine(), tables.unfit_reason(name)) {
        (ShardedRelation::Reader | ShardedRelation::Unusable(_), ..) => String::new(),
        (_, EngineReadiness::DefinesOnly, _) => "not made ready".to_owned(),
        (_, EngineReadiness::Follows(reason) | EngineReadiness::Behind(reason), _) => format!("behind: {reason}"),
        (_, EngineReadiness::Ready { node }, _) if primary != Some(*node) => "not looked at on the new primary yet".to_owned(),
        (_, EngineReadiness::Ready { .. }, Some(reason)) => format!("not used: {reason}"),
        (_, EngineReadiness::Ready { .. }, None) => "ready".to_owned(),
    }
}
