//! Why a statement is not one shard's.

use std::fmt;

/// A reason, in the order of `ROWS`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ShardRefusal {
    KeyNotFixed,
    KeyOfManyShards,
    KeyValueUnread,
    KeyTypeUnknown,
    KeyNotGiven,
    KeyComputed,
    KeyOverridden,
    KeyChanged,
    NoPartition,
    InsertFromQuery,
    NotOnShardZero,
    UnknownRelation,
    WritesReference,
    Merge,
    Copy,
    Truncate,
    Definition,
    Utility,
    Samples,
    SystemColumns,
    ObjectNumbers,
    AtCursor,
}

struct RefusalRow {
    of: ShardRefusal,
    name: &'static str,
    sentence: &'static str,
}

const fn row(of: ShardRefusal, name: &'static str, sentence: &'static str) -> RefusalRow {
    RefusalRow { of, name, sentence }
}

const ROWS: [RefusalRow; 22] = [
    row(
        ShardRefusal::KeyNotFixed,
        "key_not_fixed",
        "the statement does not fix the shard key of each sharded table by \"key = constant\"",
    ),
    row(ShardRefusal::KeyOfManyShards, "key_of_many_shards", "the shard keys of the statement belong to several shards"),
    row(ShardRefusal::KeyValueUnread, "key_value_unread", "the value of a shard key is in a form that only a server reads"),
    row(ShardRefusal::KeyTypeUnknown, "key_type_unknown", "the type of a shard key's value is not that of the column"),
    row(ShardRefusal::KeyNotGiven, "key_not_given", "an inserted row has no value for the shard key"),
    row(ShardRefusal::KeyComputed, "key_computed", "an inserted row's shard key is an expression, not a constant"),
    row(ShardRefusal::KeyOverridden, "key_overridden", "OVERRIDING USER VALUE may put another value in place of the shard key"),
    row(ShardRefusal::KeyChanged, "key_changed", "the statement sets the shard key of rows that exist"),
    row(ShardRefusal::NoPartition, "no_partition", "no shard takes an inserted row's shard key"),
    row(ShardRefusal::InsertFromQuery, "insert_from_query", "rows of a query are inserted into a sharded table"),
    row(
        ShardRefusal::NotOnShardZero,
        "not_on_shard_zero",
        "the shard key belongs to a shard that lacks the statement's other tables",
    ),
    row(ShardRefusal::UnknownRelation, "unknown_relation", "a view or another relation of the statement may read sharded tables"),
    row(ShardRefusal::WritesReference, "writes_reference", "the statement writes to a reference table"),
    row(ShardRefusal::Merge, "merge", "MERGE is not carried out on sharded tables"),
    row(ShardRefusal::Copy, "copy", "this COPY is not carried out on sharded tables"),
    row(ShardRefusal::Truncate, "truncate", "TRUNCATE is not carried out on sharded tables"),
    row(ShardRefusal::Definition, "definition", "definitions are not carried out on sharded tables"),
    row(ShardRefusal::Utility, "utility", "the command is not carried out on sharded tables"),
    row(ShardRefusal::Samples, "samples", "TABLESAMPLE would take its sample of one shard"),
    row(ShardRefusal::SystemColumns, "system_columns", "system columns such as ctid and tableoid differ from shard to shard"),
    row(ShardRefusal::ObjectNumbers, "object_numbers", "numbers of objects such as regclass differ from shard to shard"),
    row(ShardRefusal::AtCursor, "at_cursor", "WHERE CURRENT OF does not fix the shard key"),
];

const _: () = {
    let mut at = 0;
    while at < ROWS.len() {
        assert!(ROWS[at].of as usize == at, "rows stand in the order of the reasons");
        at += 1;
    }
};

impl ShardRefusal {
    fn row(self) -> &'static RefusalRow {
        &ROWS[self as usize]
    }

    /// Name for lists and counters.
    pub fn name(self) -> &'static str {
        self.row().name
    }
}

impl fmt::Display for ShardRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.row().sentence)
    }
}

impl std::error::Error for ShardRefusal {}
