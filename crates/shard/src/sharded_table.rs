//! The catalog's answers about the relations of a statement.

use std::sync::Arc;

use crate::key_value::{KeyKind, KeyOrder};
use crate::partition_map::PartitionMap;

/// A table whose rows lie on several shards by one column.
#[derive(Clone, Debug, PartialEq)]
pub struct ShardedTable {
    pub key: String,
    pub kind: KeyKind,
    pub order: KeyOrder,
    /// `atttypmod` of the key; -1: none.
    pub modifier: i32,
    pub map: PartitionMap,
    /// Shard of each partition of the map.
    pub shards: Vec<u16>,
    /// Names of all columns, in order.
    pub columns: Vec<String>,
    /// Tables of one group have equal maps.
    pub colocation: u32,
}

/// Where the rows of a relation lie.
#[derive(Clone, Copy, Debug)]
pub enum RelationKind<'c> {
    Sharded(&'c Arc<ShardedTable>),
    /// A copy on every shard.
    Reference,
    /// On shard 0 only. A relation that does not exist is one of these: shard 0 says so.
    Single,
    /// A view, or something else that may read a sharded table.
    Unknown,
}
