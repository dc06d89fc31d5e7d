//! Where a row lies: partitions of a table by hash, range or list on one column, computed as PostgreSQL computes them; and where a statement belongs.
//! Pure.
//!
//! A [`KeyKind`] is the type of the column, and reads a [`KeyValue`] from a literal or a bound parameter. [`PartitionBound`] is a bound as
//! `pg_get_expr(relpartbound, oid)` writes it, and [`PartitionMap`] names the partition of a value. Each of them either knows the exact answer or says
//! that it does not: a value that PostgreSQL would read by a setting of the session (`DateStyle`, `TimeZone`) is none.
//!
//! [`plan`] takes the terms of a statement and what the catalog says of its relations, and gives a [`ShardPlan`] or a [`ShardRefusal`].

mod all_shards;
mod copy_rows;
mod engine_statement;
mod key_names;
mod key_reading;
mod key_solver;
mod key_value;
mod numeric_key;
mod one_shard;
mod partition_bound;
mod partition_hash;
mod partition_map;
mod reference_table;
mod reference_write;
mod shard_refusal;
mod shard_tables;
mod sharded_table;
mod spread_definition;

pub use all_shards::{AllShards, AllShardsRefusal, all_shards, in_order};
pub use copy_rows::{CopyFault, CopyPiece, CopyRows, RowKey, TRAILER};
pub use engine_statement::{EngineRefusal, engine_takes};
pub use key_reading::{BoundValue, ValueFormat};
pub use key_value::{KeyKind, KeyOrder, KeyValue};
pub use numeric_key::NumericKey;
pub use one_shard::{FixedKey, InsertedKeys, OneShard, ShardPlan, plan};
pub use partition_bound::{BoundError, BoundLimit, PartitionBound};
pub use partition_map::{MapError, PartitionMap, PartitionPlace};
pub use reference_table::ReferenceTable;
pub use reference_write::{CopyRefusal, CopyTextRefusal, copies_stay_equal};
pub use shard_refusal::ShardRefusal;
pub use shard_tables::{EngineReadiness, KeyColumn, PartitionRow, PartitionRowKind, ReaderRow, ShardTables, ShardedRelation};
pub use sharded_table::{RelationKind, RowPlace, ShardedTable};
pub use spread_definition::{DefinitionEffect, spread_definition};
