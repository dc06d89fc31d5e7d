//! May a statement be carried out by the engine, which sees the rows of all shards?
//!
//! Decided by the text and its relations alone. The caller judges functions, operators, types and collations (`weir_catalog::engine_stranger`), and
//! knows whether the engine is ready.

use std::fmt;

use weir_sql::facts::QualifiedName;
use weir_sql::key_terms::{
    ColumnTerm, KeyTerms, Occurrence, OccurrenceSource, OutputColumn, QueryBlock, ScopeParent, StatementKind, TermProperties,
    TermProperty,
};

use crate::sharded_table::RelationKind;

/// A reason, in the order of `ROWS`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EngineRefusal {
    NotOneQuery,
    Cursor,
    Writes,
    LocksRows,
    Samples,
    SystemColumns,
    ObjectNumbers,
    AtCursor,
    OnlyParent,
    OfDatabase,
    WholeRow,
    NothingSharded,
    SingleRelation,
    UnknownRelation,
    Gate,
    TiesOfExtreme,
    UnusedAggregate,
    SortedSets,
}

struct RefusalRow {
    of: EngineRefusal,
    name: &'static str,
    sentence: &'static str,
}

const fn row(of: EngineRefusal, name: &'static str, sentence: &'static str) -> RefusalRow {
    RefusalRow { of, name, sentence }
}

const ROWS: [RefusalRow; 18] = [
    row(EngineRefusal::NotOneQuery, "not_one_query", "it is no SELECT"),
    row(EngineRefusal::Cursor, "cursor", "it declares a cursor WITH HOLD, or explains a cursor"),
    row(EngineRefusal::Writes, "writes", "a part of it writes"),
    row(EngineRefusal::LocksRows, "locks_rows", "it locks rows, and the engine only reads"),
    row(EngineRefusal::Samples, "samples", "TABLESAMPLE takes its sample of the rows of one server"),
    row(EngineRefusal::SystemColumns, "system_columns", "system columns such as ctid and tableoid differ from shard to shard"),
    row(EngineRefusal::ObjectNumbers, "object_numbers", "numbers of objects such as regclass are others in the engine"),
    row(EngineRefusal::AtCursor, "at_cursor", "WHERE CURRENT OF is about a cursor"),
    row(EngineRefusal::OnlyParent, "only_parent", "ONLY leaves out the partitions, which have all rows in the engine"),
    row(EngineRefusal::OfDatabase, "of_database", "it names or tells its database or schema, which are others in the engine"),
    row(
        EngineRefusal::WholeRow,
        "whole_row",
        "a column of its result is a whole row, whose type has another number in the engine",
    ),
    row(EngineRefusal::NothingSharded, "nothing_sharded", "it names no table that is spread"),
    row(EngineRefusal::SingleRelation, "single_relation", "it reads a table of shard 0 only, which the engine does not have"),
    row(EngineRefusal::UnknownRelation, "unknown_relation", "it reads a view or another relation that the engine does not have"),
    row(
        EngineRefusal::Gate,
        "gate",
        "it joins tables, and a part of a condition has no column of its query, or a column is compared with two values",
    ),
    row(
        EngineRefusal::TiesOfExtreme,
        "ties_of_extreme",
        "PostgreSQL has an error for WITH TIES of a min() or max() of foreign tables",
    ),
    row(
        EngineRefusal::UnusedAggregate,
        "unused_aggregate",
        "a query in its FROM counts or sums up a join, and the query around may name no such column: PostgreSQL loses the aggregate",
    ),
    row(
        EngineRefusal::SortedSets,
        "sorted_sets",
        "it sorts or groups by a function that returns several rows, which PostgreSQL would run on the shards and again over them; put the function into FROM",
    ),
];

const _: () = {
    let mut at = 0;
    while at < ROWS.len() {
        assert!(ROWS[at].of as usize == at, "rows stand in the order of the reasons");
        at += 1;
    }
};

impl EngineRefusal {
    fn row(self) -> &'static RefusalRow {
        &ROWS[self as usize]
    }

    /// Name for lists and counters.
    pub fn name(self) -> &'static str {
        self.row().name
    }
}

impl fmt::Display for EngineRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.row().sentence)
    }
}

impl std::error::Error for EngineRefusal {}

/// True if the engine gives the answer of one server with all rows. `lookup` knows the relations that the text's names mean.
pub fn engine_takes<'c>(terms: &KeyTerms, lookup: impl Fn(&QualifiedName) -> RelationKind<'c>) -> Result<(), EngineRefusal> {
    let has = |property| terms.properties.has(property);
    if has(TermProperty::HoldCursor) || (has(TermProperty::Cursor) && has(TermProperty::Explained)) {
        return Err(EngineRefusal::Cursor);
    }
    if terms.kind != StatementKind::Select {
        return Err(EngineRefusal::NotOneQuery);
    }
    if !terms.writes.is_empty() {
        return Err(EngineRefusal::Writes);
    }
    by_property(terms.properties)?;
    by_relation(terms, &lookup)?;
    if loses_gate(terms) {
        return Err(EngineRefusal::Gate);
    }
    if shows_whole_row(terms, lookup) { Err(EngineRefusal::WholeRow) } else { Ok(()) }
}

fn by_property(properties: TermProperties) -> Result<(), EngineRefusal> {
    const ROWS: [(TermProperty, EngineRefusal); 10] = [
        (TermProperty::LocksRows, EngineRefusal::LocksRows),
        (TermProperty::Samples, EngineRefusal::Samples),
        (TermProperty::SystemColumns, EngineRefusal::SystemColumns),
        (TermProperty::ObjectNumbers, EngineRefusal::ObjectNumbers),
        (TermProperty::AtCursor, EngineRefusal::AtCursor),
        (TermProperty::OnlyParent, EngineRefusal::OnlyParent),
        (TermProperty::OfDatabase, EngineRefusal::OfDatabase),
        (TermProperty::TiesOfExtreme, EngineRefusal::TiesOfExtreme),
        (TermProperty::UnusedAggregate, EngineRefusal::UnusedAggregate),
        (TermProperty::SortedSets, EngineRefusal::SortedSets),
    ];
    ROWS.iter().find(|(property, _)| properties.has(*property)).map_or(Ok(()), |(_, refusal)| Err(*refusal))
}

fn by_relation<'c>(terms: &KeyTerms, lookup: impl Fn(&QualifiedName) -> RelationKind<'c>) -> Result<(), EngineRefusal> {
    let mut is_spread = false;
    let in_blocks = terms.blocks.iter().flat_map(|block| &block.occurrences).filter_map(|occurrence| match &occurrence.source {
        OccurrenceSource::Relation(name) => Some(name),
        OccurrenceSource::Derived(_) | OccurrenceSource::Cte(_) | OccurrenceSource::Unknown => None,
    });
    for name in terms.relations.iter().chain(in_blocks) {
        match lookup(name) {
            RelationKind::Sharded(_) | RelationKind::Reference => is_spread = true,
            RelationKind::Single => return Err(EngineRefusal::SingleRelation),
            RelationKind::Unknown => return Err(EngineRefusal::UnknownRelation),
        }
    }
    if is_spread { Ok(()) } else { Err(EngineRefusal::NothingSharded) }
}

/// True if postgres_fdw of PostgreSQL 17 and 18 may leave a part of a condition out: it hands a join on without the parts that PostgreSQL tests apart
/// from the rows, and its path for LIMIT over an outer join does not test them either.
fn loses_gate(terms: &KeyTerms) -> bool {
    terms.properties.has(TermProperty::Gate) && terms.blocks.iter().any(|block| block.occurrences.len() > 1)
}

/// True if a column of a query may be `t` of `FROM t`, also of a FROM around it.
fn shows_whole_row<'c>(terms: &KeyTerms, lookup: impl Fn(&QualifiedName) -> RelationKind<'c>) -> bool {
    let is_row = |occurrence: &Occurrence| match &occurrence.source {
        // A column of that name hides the row.
        OccurrenceSource::Relation(relation) => match lookup(relation) {
            RelationKind::Sharded(table) => !occurrence.column_aliases.is_empty() || !table.columns.contains(&occurrence.alias),
            RelationKind::Reference | RelationKind::Single | RelationKind::Unknown => true,
        },
        // A record without a type of its own.
        OccurrenceSource::Derived(_) | OccurrenceSource::Cte(_) | OccurrenceSource::Unknown => false,
    };
    terms.blocks.iter().any(|block| {
        let seen = seen_by(terms, block);
        // A column, of a query around as well, hides the row of that name.
        let is_column = |name: &str| {
            seen.iter().any(|occurrence| match &occurrence.source {
                OccurrenceSource::Relation(relation) if occurrence.column_aliases.is_empty() => {
                    matches!(lookup(relation), RelationKind::Sharded(table) if table.columns.iter().any(|column| column == name))
                }
                _ => false,
            })
        };
        let is_item = |name: &str| seen.iter().any(|occurrence| occurrence.alias == name);
        let is_row = |name: &str| seen.iter().any(|occurrence| occurrence.alias == name && is_row(occurrence));
        block.outputs.iter().any(|output| match output {
            OutputColumn::Column { of: ColumnTerm { of: None, name }, .. } => !is_column(name) && is_row(name),
            // A schema before the relation's name.
            OutputColumn::Column { of: ColumnTerm { of: Some(of), name }, .. } => !is_item(&of.name) && is_row(name),
            OutputColumn::Other { .. } | OutputColumn::Star { .. } => false,
        })
    })
}

/// Items of the FROM clauses that the names of a block may mean: its own and those around it.
fn seen_by<'t>(terms: &'t KeyTerms, block: &QueryBlock) -> Vec<&'t Occurrence> {
    let mut seen = Vec::new();
    let mut next = terms.scopes.get(block.scope);
    // Scopes stand in the order in which they were met: those around have smaller numbers.
    while let Some(scope) = next {
        let occurrences = terms.blocks.get(scope.block).and_then(|block| block.occurrences.get(scope.occurrences.clone()));
        seen.extend(occurrences.unwrap_or_default());
        next = match scope.around {
            ScopeParent::Scope(around) => terms.scopes.get(around),
            ScopeParent::Nothing | ScopeParent::Unknown => None,
        };
    }
    seen
}
