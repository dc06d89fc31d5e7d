//! May an UPDATE, DELETE or `INSERT ... SELECT` be carried out on each shard by itself, so that all of them together do what one server with all rows
//! does?
//!
//! It may if each row of the sharded table is judged and changed by that row, reference tables, constants, and rows of sharded tables with its key, which
//! lie on its shard. Rows of a query that are inserted must each come of a row with their key. The caller judges functions, triggers and what a text says
//! of the time.
//!
//! The proof for rows of other tables: for one row of the anchor (the row that is changed, or that an inserted one comes of) its key is a constant. Where
//! the keys of all other sharded tables equal it, they are fixed by that constant, and only the rows of its shard count (`key_solver`).

use std::fmt;
use std::sync::Arc;

use weir_sql::facts::QualifiedName;
use weir_sql::key_terms::{
    BlockId, BlockShape, InsertedRows, KeyTerms, OccurrenceSource, QueryBlock, StatementKind, TermProperties, TermProperty,
    WriteAction, WriteTerms,
};

use crate::key_names::NodeId;
use crate::key_solver::KeySolver;
use crate::sharded_table::{RelationKind, ShardedTable};

/// A statement that each shard of a table carries out by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AllShards {
    /// In the order in which they are visited, at least two. Shard 0 is the last one if it has a part: it decides about the commit.
    pub shards: Vec<u16>,
    /// True if a part of the text is computed once for all rows, or for some of them: functions that depend on chance would be computed on each shard.
    pub has_queries: bool,
    /// True if it reads rows of sharded tables beside those that it changes: one server reads them all at one moment.
    pub reads_rows: bool,
    /// True if it has RETURNING.
    pub returns: bool,
    /// True if it may depend on the time at which the transaction began, whatever its literals and parameters are.
    pub asks_time: bool,
}

/// A reason, in the order of `ROWS`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AllShardsRefusal {
    NotUpdateOrDelete,
    Explained,
    Samples,
    SystemColumns,
    ObjectNumbers,
    AtCursor,
    LocksRows,
    OfDatabase,
    TransactionTime,
    SeveralWrites,
    KeyChanged,
    OtherSharded,
    InsertedKey,
    SingleWritten,
    SingleRelation,
    UnknownRelation,
    ComputedQuery,
    OneShardOnly,
}

struct RefusalRow {
    of: AllShardsRefusal,
    name: &'static str,
    sentence: &'static str,
}

const fn row(of: AllShardsRefusal, name: &'static str, sentence: &'static str) -> RefusalRow {
    RefusalRow { of, name, sentence }
}

const ROWS: [RefusalRow; 18] = [
    row(AllShardsRefusal::NotUpdateOrDelete, "not_update_or_delete", "it is no UPDATE or DELETE, and inserts no rows of a query"),
    row(AllShardsRefusal::Explained, "explained", "EXPLAIN is about one server"),
    row(AllShardsRefusal::Samples, "samples", "TABLESAMPLE takes its sample of one server"),
    row(AllShardsRefusal::SystemColumns, "system_columns", "system columns such as ctid and tableoid differ from shard to shard"),
    row(AllShardsRefusal::ObjectNumbers, "object_numbers", "numbers of objects such as regclass differ from shard to shard"),
    row(AllShardsRefusal::AtCursor, "at_cursor", "WHERE CURRENT OF is about a cursor"),
    row(AllShardsRefusal::LocksRows, "locks_rows", "a query in it locks rows"),
    row(AllShardsRefusal::OfDatabase, "of_database", "it names or tells its database or schema"),
    row(
        AllShardsRefusal::TransactionTime,
        "transaction_time",
        "it may ask for the time of the transaction, which each server tells by itself",
    ),
    row(AllShardsRefusal::SeveralWrites, "several_writes", "it writes to several tables"),
    row(AllShardsRefusal::KeyChanged, "key_changed", "it sets the shard key"),
    row(
        AllShardsRefusal::OtherSharded,
        "other_sharded",
        "it reads a sharded table of whose rows some may lie on another shard: no condition has their key equal that of the changed or read rows",
    ),
    row(
        AllShardsRefusal::InsertedKey,
        "inserted_key",
        "the key of the new rows is not the key of rows that the query reads, from a table that is spread alike",
    ),
    row(
        AllShardsRefusal::SingleWritten,
        "single_written",
        "it writes to a table that Weir knows on shard 0 only; a table that was spread just now counts within a second",
    ),
    row(AllShardsRefusal::SingleRelation, "single_relation", "it reads a table of shard 0 only"),
    row(
        AllShardsRefusal::UnknownRelation,
        "unknown_relation",
        "it reads a view or another relation that may read sharded tables",
    ),
    row(
        AllShardsRefusal::ComputedQuery,
        "computed_query",
        "a query in it groups, sorts, limits or computes, and may give each shard another answer",
    ),
    row(AllShardsRefusal::OneShardOnly, "one_shard_only", "all rows of the table lie on one shard"),
];

const _: () = {
    let mut at = 0;
    while at < ROWS.len() {
        assert!(ROWS[at].of as usize == at, "rows stand in the order of the reasons");
        at += 1;
    }
};

impl AllShardsRefusal {
    fn row(self) -> &'static RefusalRow {
        &ROWS[self as usize]
    }

    /// Name for lists and counters.
    pub fn name(self) -> &'static str {
        self.row().name
    }
}

impl fmt::Display for AllShardsRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.row().sentence)
    }
}

impl std::error::Error for AllShardsRefusal {}

/// Finds the shards of a statement that each of them may carry out by itself. `lookup` knows the relations that the text's names mean.
pub fn all_shards<'c>(
    terms: &KeyTerms,
    lookup: impl Fn(&QualifiedName) -> RelationKind<'c>,
) -> Result<AllShards, AllShardsRefusal> {
    let is_kind = matches!(terms.kind, StatementKind::Update | StatementKind::Delete | StatementKind::Insert);
    if !is_kind || terms.writes.iter().any(inserts_no_query) {
        return Err(AllShardsRefusal::NotUpdateOrDelete);
    }
    by_property(terms.properties)?;
    let [write] = terms.writes.as_slice() else { return Err(AllShardsRefusal::SeveralWrites) };
    let table = match lookup(&write.relation) {
        RelationKind::Sharded(table) => table,
        RelationKind::Single => return Err(AllShardsRefusal::SingleWritten),
        RelationKind::Reference | RelationKind::Unknown => return Err(AllShardsRefusal::UnknownRelation),
    };
    if sets_key(write, table) {
        return Err(AllShardsRefusal::KeyChanged);
    }
    by_relation(terms, write, &lookup)?;
    let solver = KeySolver::new(terms, |block, at| sharded(terms, (block, at), &lookup));
    if !solver.all_follow(anchor(terms, write, table, &solver)?) {
        return Err(AllShardsRefusal::OtherSharded);
    }
    let reads_sharded = |block: &QueryBlock| relations(block).any(|name| matches!(lookup(name), RelationKind::Sharded(_)));
    // A query with a sharded table is one about a single key, whose rows lie together.
    if terms.blocks.iter().any(|block| !reads_sharded(block) && !is_same_everywhere(block)) {
        return Err(AllShardsRefusal::ComputedQuery);
    }
    let has_queries = terms.blocks.len() > 1 || terms.blocks.iter().any(|block| block.occurrences.len() > 1);
    let shards = in_order(&table.shards);
    if shards.len() < 2 {
        return Err(AllShardsRefusal::OneShardOnly);
    }
    let reads_rows = terms.kind == StatementKind::Insert || solver.has_several_tables();
    let has = |property| terms.properties.has(property);
    let (returns, asks_time) = (has(TermProperty::Returning), has(TermProperty::TransactionTime));
    Ok(AllShards { shards, has_queries, reads_rows, returns, asks_time })
}

fn inserts_no_query(write: &WriteTerms) -> bool {
    matches!(&write.action, WriteAction::Insert { rows, .. } if !matches!(rows, InsertedRows::Query(_)))
}

fn sharded<'c>(
    terms: &KeyTerms,
    (block, at): (BlockId, usize),
    lookup: &impl Fn(&QualifiedName) -> RelationKind<'c>,
) -> Option<Arc<ShardedTable>> {
    match &terms.blocks[block].occurrences[at].source {
        OccurrenceSource::Relation(name) => match lookup(name) {
            RelationKind::Sharded(table) => Some(Arc::clone(table)),
            RelationKind::Reference | RelationKind::Single | RelationKind::Unknown => None,
        },
        OccurrenceSource::Derived(_) | OccurrenceSource::Cte(_) | OccurrenceSource::Unknown => None,
    }
}

/// The block of the statement itself, which is the first one. The target of UPDATE and DELETE is its last relation.
const OWN_BLOCK: BlockId = 0;

/// The key of the rows that are changed, or of which new ones come.
fn anchor(
    terms: &KeyTerms,
    write: &WriteTerms,
    table: &Arc<ShardedTable>,
    solver: &KeySolver<'_>,
) -> Result<NodeId, AllShardsRefusal> {
    match &write.action {
        WriteAction::Update { .. } | WriteAction::Delete => {
            let last = terms.blocks[OWN_BLOCK].occurrences.len().checked_sub(1);
            last.and_then(|last| solver.key_of(OWN_BLOCK, last)).ok_or(AllShardsRefusal::OtherSharded)
        }
        WriteAction::Insert { columns, rows: InsertedRows::Query(block), .. } => {
            if !matches!(terms.blocks[*block].shape, BlockShape::Flat | BlockShape::Computed) {
                return Err(AllShardsRefusal::ComputedQuery);
            }
            let named = if columns.is_empty() { &table.columns } else { columns };
            let at = named.iter().position(|name| *name == table.key).ok_or(AllShardsRefusal::InsertedKey)?;
            match solver.output_key(*block, at) {
                // Another length or scale would change values.
                Some((node, of)) if of.colocation == table.colocation && of.modifier == table.modifier => Ok(node),
                Some(_) | None => Err(AllShardsRefusal::InsertedKey),
            }
        }
        WriteAction::Insert { .. } => Err(AllShardsRefusal::NotUpdateOrDelete),
    }
}

fn by_property(properties: TermProperties) -> Result<(), AllShardsRefusal> {
    const ROWS: [(TermProperty, AllShardsRefusal); 9] = [
        (TermProperty::Explained, AllShardsRefusal::Explained),
        (TermProperty::Samples, AllShardsRefusal::Samples),
        (TermProperty::SystemColumns, AllShardsRefusal::SystemColumns),
        (TermProperty::ObjectNumbers, AllShardsRefusal::ObjectNumbers),
        (TermProperty::AtCursor, AllShardsRefusal::AtCursor),
        (TermProperty::LocksRows, AllShardsRefusal::LocksRows),
        (TermProperty::OfDatabase, AllShardsRefusal::OfDatabase),
        (TermProperty::TransactionTime, AllShardsRefusal::TransactionTime),
        (TermProperty::CutSetOperation, AllShardsRefusal::ComputedQuery),
    ];
    ROWS.iter().find(|(property, _)| properties.has(*property)).map_or(Ok(()), |(_, refusal)| Err(*refusal))
}

fn sets_key(write: &WriteTerms, table: &ShardedTable) -> bool {
    match &write.action {
        WriteAction::Update { sets } | WriteAction::Insert { conflict_sets: sets, .. } => sets.contains(&table.key),
        WriteAction::Delete => false,
    }
}

/// All relations must be sharded or reference tables, and the sharded ones stand where the key's place is looked for.
fn by_relation<'c>(
    terms: &KeyTerms,
    write: &WriteTerms,
    lookup: &impl Fn(&QualifiedName) -> RelationKind<'c>,
) -> Result<(), AllShardsRefusal> {
    let is_seen =
        |name: &QualifiedName| *name == write.relation || terms.blocks.iter().flat_map(relations).any(|seen| seen == name);
    for name in terms.blocks.iter().flat_map(relations).chain(&terms.relations) {
        match lookup(name) {
            RelationKind::Sharded(_) if is_seen(name) => {}
            RelationKind::Sharded(_) => return Err(AllShardsRefusal::OtherSharded),
            RelationKind::Reference => {}
            RelationKind::Single => return Err(AllShardsRefusal::SingleRelation),
            RelationKind::Unknown => return Err(AllShardsRefusal::UnknownRelation),
        }
    }
    Ok(())
}

pub(crate) fn relations(block: &QueryBlock) -> impl Iterator<Item = &QualifiedName> {
    block.occurrences.iter().filter_map(|occurrence| match &occurrence.source {
        OccurrenceSource::Relation(name) => Some(name),
        OccurrenceSource::Derived(_) | OccurrenceSource::Cte(_) | OccurrenceSource::Unknown => None,
    })
}

/// True if the rows of a query hang on nothing but the rows of its relations, which each shard has alike: their order does not count.
pub(crate) fn is_same_everywhere(block: &QueryBlock) -> bool {
    block.shape == BlockShape::Flat || block.occurrences.is_empty()
}

/// The order of the visits: shard 0 is the last one.
pub fn in_order(shards: &[u16]) -> Vec<u16> {
    let mut order = shards.to_vec();
    order.sort_unstable();
    order.dedup();
    if order.first() == Some(&0) {
        order.rotate_left(1);
    }
    order
}
