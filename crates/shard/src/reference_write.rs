//! May a write to a reference table be carried out on each copy by itself, so that all copies stay equal?
//!
//! It may if it has one outcome on all of them: the rows that are there and those that come are found by constants and by the rows of reference tables
//! alone, in whatever order these lie. The caller judges functions, operators and types, and the texts that may mean a moment.

use std::fmt;

use weir_sql::facts::QualifiedName;
use weir_sql::key_terms::{
    BlockShape, InsertedRows, InsertedValue, KeyTerms, QueryBlock, StatementKind, TermProperties, TermProperty, WriteAction,
    WriteTerms,
};

use crate::all_shards::{is_same_everywhere, relations};
use crate::reference_table::ReferenceTable;
use crate::sharded_table::RelationKind;

/// Why the copies might differ after a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CopyRefusal {
    /// By the text alone.
    OfText(CopyTextRefusal),
    /// An inserted row leaves the column to a default that each server computes by itself.
    Default(String),
    /// A trigger or the like of the table.
    Obstacle(String),
}

/// A reason, in the order of `ROWS`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CopyTextRefusal {
    NotOneWrite,
    Explained,
    Samples,
    SystemColumns,
    ObjectNumbers,
    AtCursor,
    LocksRows,
    OfDatabase,
    TransactionTime,
    ReadsOthers,
    UnknownTable,
    ComputedQuery,
    JoinedUpdate,
    ConflictOfQuery,
    Overridden,
}

struct RefusalRow {
    of: CopyTextRefusal,
    name: &'static str,
    sentence: &'static str,
}

const fn row(of: CopyTextRefusal, name: &'static str, sentence: &'static str) -> RefusalRow {
    RefusalRow { of, name, sentence }
}

const ROWS: [RefusalRow; 15] = [
    row(CopyTextRefusal::NotOneWrite, "not_one_write", "it is not one INSERT, UPDATE or DELETE"),
    row(CopyTextRefusal::Explained, "explained", "EXPLAIN is about one server"),
    row(CopyTextRefusal::Samples, "samples", "TABLESAMPLE takes another sample on each server"),
    row(CopyTextRefusal::SystemColumns, "system_columns", "system columns such as ctid and tableoid differ from copy to copy"),
    row(CopyTextRefusal::ObjectNumbers, "object_numbers", "numbers of objects such as regclass differ from shard to shard"),
    row(CopyTextRefusal::AtCursor, "at_cursor", "WHERE CURRENT OF is about a cursor"),
    row(CopyTextRefusal::LocksRows, "locks_rows", "a query in it locks rows"),
    row(CopyTextRefusal::OfDatabase, "of_database", "it names or tells its database or schema"),
    row(
        CopyTextRefusal::TransactionTime,
        "transaction_time",
        "it may ask for the time of the transaction, which each server tells by itself: give the time as a value",
    ),
    row(
        CopyTextRefusal::ReadsOthers,
        "reads_others",
        "it reads a table that is no reference table, and that each shard has otherwise or not at all",
    ),
    row(CopyTextRefusal::UnknownTable, "unknown_table", "the columns and defaults of the table are not known yet"),
    row(
        CopyTextRefusal::ComputedQuery,
        "computed_query",
        "a query in it groups, sorts out, limits or computes, and may give each copy another answer",
    ),
    row(
        CopyTextRefusal::JoinedUpdate,
        "joined_update",
        "several rows of its FROM may fit a row, and each server takes one of them: write a subquery",
    ),
    row(
        CopyTextRefusal::ConflictOfQuery,
        "conflict_of_query",
        "ON CONFLICT takes the first of several rows, and those of a query come in another order on each server",
    ),
    row(CopyTextRefusal::Overridden, "overridden", "OVERRIDING USER VALUE leaves values to each server"),
];

const _: () = {
    let mut at = 0;
    while at < ROWS.len() {
        assert!(ROWS[at].of as usize == at, "rows stand in the order of the reasons");
        at += 1;
    }
};

impl CopyTextRefusal {
    fn row(self) -> &'static RefusalRow {
        &ROWS[self as usize]
    }
}

impl CopyRefusal {
    /// Name for lists and counters.
    pub fn name(&self) -> &'static str {
        match self {
            CopyRefusal::OfText(refusal) => refusal.row().name,
            CopyRefusal::Default(_) => "default",
            CopyRefusal::Obstacle(_) => "obstacle",
        }
    }
}

impl From<CopyTextRefusal> for CopyRefusal {
    fn from(refusal: CopyTextRefusal) -> CopyRefusal {
        CopyRefusal::OfText(refusal)
    }
}

impl fmt::Display for CopyRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CopyRefusal::OfText(refusal) => f.write_str(refusal.row().sentence),
            CopyRefusal::Default(column) => {
                write!(f, "the default of column \"{column}\" is computed by each server: give the value")
            }
            CopyRefusal::Obstacle(what) => f.write_str(what),
        }
    }
}

impl std::error::Error for CopyRefusal {}

/// Says if all copies stay equal where each server carries the text out. `lookup` knows the relations that the text's names mean, `tables` the
/// definitions of reference tables.
pub fn copies_stay_equal<'c>(
    terms: &KeyTerms,
    lookup: impl Fn(&QualifiedName) -> RelationKind<'c>,
    tables: impl Fn(&QualifiedName) -> Option<&'c ReferenceTable>,
) -> Result<(), CopyRefusal> {
    let is_write_kind = matches!(terms.kind, StatementKind::Insert | StatementKind::Update | StatementKind::Delete);
    let write = match terms.writes.as_slice() {
        [write] if is_write_kind => write,
        _ => return Err(CopyTextRefusal::NotOneWrite.into()),
    };
    by_property(terms.properties)?;
    by_relation(terms, write, &lookup)?;
    by_query(terms, write)?;
    let table = tables(&write.relation).ok_or(CopyTextRefusal::UnknownTable)?;
    if let Some(obstacle) = &table.obstacle {
        return Err(CopyRefusal::Obstacle(obstacle.clone()));
    }
    by_default(terms, write, table)
}

fn by_property(properties: TermProperties) -> Result<(), CopyTextRefusal> {
    const ROWS: [(TermProperty, CopyTextRefusal); 8] = [
        (TermProperty::Explained, CopyTextRefusal::Explained),
        (TermProperty::Samples, CopyTextRefusal::Samples),
        (TermProperty::SystemColumns, CopyTextRefusal::SystemColumns),
        (TermProperty::ObjectNumbers, CopyTextRefusal::ObjectNumbers),
        (TermProperty::AtCursor, CopyTextRefusal::AtCursor),
        (TermProperty::LocksRows, CopyTextRefusal::LocksRows),
        (TermProperty::OfDatabase, CopyTextRefusal::OfDatabase),
        (TermProperty::TransactionTime, CopyTextRefusal::TransactionTime),
    ];
    ROWS.iter().find(|(property, _)| properties.has(*property)).map_or(Ok(()), |(_, refusal)| Err(*refusal))
}

fn by_relation<'c>(
    terms: &KeyTerms,
    write: &WriteTerms,
    lookup: &impl Fn(&QualifiedName) -> RelationKind<'c>,
) -> Result<(), CopyTextRefusal> {
    let named = terms.blocks.iter().flat_map(relations).chain(&terms.relations).chain([&write.relation]);
    for name in named {
        match lookup(name) {
            RelationKind::Reference => {}
            RelationKind::Sharded(_) | RelationKind::Single | RelationKind::Unknown => return Err(CopyTextRefusal::ReadsOthers),
        }
    }
    Ok(())
}

/// The first block is the writing statement's own.
const OWN_BLOCKS: usize = 1;

/// Rows of relations count as a set: nothing may depend on their order.
fn by_query(terms: &KeyTerms, write: &WriteTerms) -> Result<(), CopyTextRefusal> {
    let queries = || terms.blocks.iter().skip(OWN_BLOCKS);
    let reads_rows = queries().any(|block| !block.occurrences.is_empty());
    let merges = [TermProperty::SetOperation, TermProperty::CutSetOperation].iter().any(|one| terms.properties.has(*one));
    let is_row_by_row = |block: &QueryBlock| block.shape == BlockShape::Computed || is_same_everywhere(block);
    if !queries().all(is_row_by_row) || (reads_rows && merges) {
        return Err(CopyTextRefusal::ComputedQuery);
    }
    match &write.action {
        WriteAction::Update { .. } if is_joined(terms) => Err(CopyTextRefusal::JoinedUpdate),
        WriteAction::Insert { rows: InsertedRows::Query(_), .. }
            if reads_rows && terms.properties.has(TermProperty::OnConflict) =>
        {
            Err(CopyTextRefusal::ConflictOfQuery)
        }
        WriteAction::Insert { .. } | WriteAction::Update { .. } | WriteAction::Delete => Ok(()),
    }
}

fn is_joined(terms: &KeyTerms) -> bool {
    terms.blocks.iter().take(OWN_BLOCKS).any(|block| block.occurrences.len() > 1)
}

/// Each column with a default of its own on each server must be given.
fn by_default(terms: &KeyTerms, write: &WriteTerms, table: &ReferenceTable) -> Result<(), CopyRefusal> {
    let sets_default = terms.properties.has(TermProperty::SetsDefault);
    let is_unsteady = |column: &&String| column.is_empty() || table.unsteady_defaults.contains(column);
    let set_to_default = |sets: &[String]| match sets.iter().find(is_unsteady) {
        Some(column) if sets_default => Err(CopyRefusal::Default(column.clone())),
        _ => Ok(()),
    };
    match &write.action {
        WriteAction::Delete => Ok(()),
        WriteAction::Update { sets } => set_to_default(sets),
        WriteAction::Insert { rows: InsertedRows::Overridden, .. } => Err(CopyTextRefusal::Overridden.into()),
        WriteAction::Insert { columns, rows, conflict_sets } => {
            set_to_default(conflict_sets)?;
            match table.unsteady_defaults.iter().find(|column| !is_given(column, (columns, table), rows, terms)) {
                Some(column) => Err(CopyRefusal::Default(column.clone())),
                None => Ok(()),
            }
        }
    }
}

/// True if every inserted row has a value for the column.
fn is_given(column: &String, (columns, table): (&[String], &ReferenceTable), rows: &InsertedRows, terms: &KeyTerms) -> bool {
    let is_named = !columns.is_empty();
    let names = if is_named { columns } else { &table.columns };
    let Some(at) = names.iter().position(|name| name == column) else { return false };
    match rows {
        InsertedRows::Values(rows) => {
            rows.iter().all(|row| matches!(row.get(at), Some(InsertedValue::Constant(_) | InsertedValue::Other)))
        }
        // The number of a query's columns is not looked at: with the columns named, it is theirs.
        InsertedRows::Query(_) => is_named && !terms.properties.has(TermProperty::SetsDefault),
        InsertedRows::Defaults | InsertedRows::Overridden => false,
    }
}
