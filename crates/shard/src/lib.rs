//! Where a row lies: partitions of a table by hash, range or list on one column, computed as PostgreSQL computes them. Pure.
//!
//! A [`KeyKind`] is the type of the column, and reads a [`KeyValue`] from a literal or a bound parameter. [`PartitionBound`] is a bound as
//! `pg_get_expr(relpartbound, oid)` writes it, and [`PartitionMap`] names the partition of a value. Each of them either knows the exact answer or says
//! that it does not: a value that PostgreSQL would read by a setting of the session (`DateStyle`, `TimeZone`) is none.

mod key_value;
mod numeric_key;
mod partition_bound;
mod partition_hash;
mod partition_map;

pub use key_value::{KeyKind, KeyOrder, KeyValue};
pub use numeric_key::NumericKey;
pub use partition_bound::{BoundError, BoundLimit, PartitionBound};
pub use partition_map::{MapError, PartitionMap, PartitionPlace};
