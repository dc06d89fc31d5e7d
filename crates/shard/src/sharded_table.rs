//! The catalog's answers about the relations of a statement.

use std::sync::Arc;

use crate::copy_rows::RowKey;
use crate::key_reading::{ValueFormat, copied_value};
use crate::key_value::{KeyKind, KeyOrder, KeyValue};
use crate::partition_map::{PartitionMap, PartitionPlace};

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
    /// True if each shard draws the keys of rows that give none, of those that belong to it.
    pub draws_keys: bool,
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

/// Where a row of COPY belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowPlace {
    Shard(u16),
    /// Each shard refuses the row, or takes it if it is its own: its CHECK judges.
    ByServer,
    /// Weir does not read the key as PostgreSQL does.
    Unread,
}

impl ShardedTable {
    pub fn place_of_row(&self, key: &RowKey<'_>, format: ValueFormat) -> RowPlace {
        let value = match key {
            RowKey::None => return RowPlace::ByServer,
            RowKey::Null => Some(KeyValue::Null),
            RowKey::Value(bytes) => copied_value(self.kind, self.modifier, format, bytes),
        };
        let Some(value) = value else {
            return match self.kind {
                // Nearly always an error, of which the server says more.
                KeyKind::Bool | KeyKind::Int2 | KeyKind::Int4 | KeyKind::Int8 | KeyKind::Oid | KeyKind::Uuid => {
                    RowPlace::ByServer
                }
                _ => RowPlace::Unread,
            };
        };
        match self.map.place_of(&value) {
            PartitionPlace::At(partition) => {
                self.shards.get(partition).map_or(RowPlace::ByServer, |shard| RowPlace::Shard(*shard))
            }
            PartitionPlace::Nowhere => RowPlace::ByServer,
        }
    }
}
