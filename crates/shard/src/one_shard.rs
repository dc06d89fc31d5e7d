//! Which shard a statement belongs to, or why it belongs to none. Exact or refused, never a guess.
//!
//! A plan is made once for all texts of a skeleton; `ShardPlan::shard` finds the shard of one text and its parameters. The caller judges functions,
//! triggers, rules and policies that read tables behind the text, and users' operators of the name `=`.

use std::collections::BTreeMap;
use std::sync::Arc;

use weir_sql::facts::QualifiedName;
use weir_sql::key_terms::{
    InsertedRows, InsertedValue, KeySource, KeyTerm, KeyTerms, OccurrenceSource, StatementKind, TermProperty, WriteAction,
    WriteTerms,
};
use weir_sql::literal::WrittenLiteral;

use crate::key_reading::{BoundValue, KeyReading, KeyUse};
use crate::key_solver::KeySolver;
use crate::key_value::{KeyKind, KeyValue};
use crate::partition_map::PartitionPlace;
use crate::shard_refusal::ShardRefusal;
use crate::sharded_table::{RelationKind, ShardedTable};

#[derive(Clone, Debug, PartialEq)]
pub enum ShardPlan {
    /// Nothing of it is sharded: the server that has all other tables.
    Elsewhere,
    /// It only reads reference tables, which are equal on all shards.
    AnyShard,
    OneShard(OneShard),
}

/// A statement of one shard, which the values of its keys name.
#[derive(Clone, Debug, PartialEq)]
pub struct OneShard {
    keys: Vec<FixedKey>,
    /// The shards that could draw the keys of all its rows that give none, if there are such rows.
    draws: Option<Box<[u16]>>,
    /// Other tables of the statement lie on shard 0 only.
    pub needs_shard_zero: bool,
    /// True if a row that it inserts has its key by the order of the table's columns, which a change of the table shifts.
    pub is_by_position: bool,
}

/// A constant that the key of a table equals.
#[derive(Clone, Debug, PartialEq)]
pub struct FixedKey {
    pub table: Arc<ShardedTable>,
    reading: KeyReading,
}

impl FixedKey {
    /// Where the value stands.
    pub fn term(&self) -> &KeyTerm {
        &self.reading.term
    }
}

impl OneShard {
    /// All of them must name one shard.
    pub fn keys(&self) -> &[FixedKey] {
        &self.keys
    }

    /// Number of the text's literals up to the last one that a key stands in.
    pub fn literals(&self) -> usize {
        literals_of(&self.keys)
    }

    /// The shards any of which may carry out the statement: each would draw the keys of its rows.
    #[inline]
    pub fn any_of(&self) -> Option<&[u16]> {
        self.draws.as_deref().filter(|_| self.keys.is_empty() && !self.needs_shard_zero)
    }
}

/// Finds the plan of a statement. `lookup` knows the relations that the text's names mean.
pub fn plan<'c>(terms: &KeyTerms, lookup: impl Fn(&QualifiedName) -> RelationKind<'c>) -> Result<ShardPlan, ShardRefusal> {
    let met = RelationsMet::of(terms, &lookup)?;
    if !terms.kind.has_blocks() {
        return plan_command(terms.kind, &met);
    }
    if met.sharded.is_empty() {
        return plan_unsharded(terms, &met, &lookup);
    }
    refuse_by_property(terms)?;
    let Inserted { mut keys, draws } = inserted(terms, &lookup)?;
    let table = |block: usize, at: usize| match &terms.blocks[block].occurrences[at].source {
        OccurrenceSource::Relation(name) => sharded(lookup(name)),
        OccurrenceSource::Derived(_) | OccurrenceSource::Cte(_) | OccurrenceSource::Unknown => None,
    };
    refuse_unseen_relations(terms, &met)?;
    let solver = KeySolver::new(terms, table);
    for occurrence in solver.occurrences() {
        if occurrence.constants.is_empty() {
            return Err(ShardRefusal::KeyNotFixed);
        }
        keys.extend(occurrence.constants.into_iter().map(|reading| FixedKey { table: Arc::clone(&occurrence.table), reading }));
    }
    infer_types(terms, &solver.constants(), &mut keys);
    let mut distinct: Vec<FixedKey> = Vec::with_capacity(keys.len().min(DISTINCT_KEYS));
    for key in keys {
        if distinct.len() >= DISTINCT_KEYS || !distinct.contains(&key) {
            distinct.push(key);
        }
    }
    let locks_copies = terms.properties.has(TermProperty::LocksRows) && met.references > 0;
    let needs_shard_zero = met.singles > 0 || locks_copies;
    let is_by_position = terms.writes.iter().any(inserts_by_position);
    Ok(ShardPlan::OneShard(OneShard { keys: distinct, draws, needs_shard_zero, is_by_position }))
}

fn inserts_by_position(write: &WriteTerms) -> bool {
    matches!(&write.action, WriteAction::Insert { columns, .. } if columns.is_empty())
}

/// Keys among which equal ones are looked for; a long INSERT has more.
const DISTINCT_KEYS: usize = 64;

/// Relations of a text by their kind.
#[derive(Default)]
struct RelationsMet {
    sharded: Vec<QualifiedName>,
    references: usize,
    singles: usize,
}

impl RelationsMet {
    fn of<'c>(terms: &KeyTerms, lookup: &impl Fn(&QualifiedName) -> RelationKind<'c>) -> Result<RelationsMet, ShardRefusal> {
        let mut met = RelationsMet::default();
        let in_blocks =
            terms.blocks.iter().flat_map(|block| &block.occurrences).filter_map(|occurrence| match &occurrence.source {
                OccurrenceSource::Relation(name) => Some(name),
                OccurrenceSource::Derived(_) | OccurrenceSource::Cte(_) | OccurrenceSource::Unknown => None,
            });
        for name in terms.relations.iter().chain(in_blocks).chain(terms.writes.iter().map(|write| &write.relation)) {
            match lookup(name) {
                RelationKind::Sharded(_) => met.sharded.push(name.clone()),
                RelationKind::Reference => met.references += 1,
                RelationKind::Single => met.singles += 1,
                RelationKind::Unknown => return Err(ShardRefusal::UnknownRelation),
            }
        }
        Ok(met)
    }
}

fn sharded(kind: RelationKind<'_>) -> Option<Arc<ShardedTable>> {
    match kind {
        RelationKind::Sharded(table) => Some(Arc::clone(table)),
        RelationKind::Reference | RelationKind::Single | RelationKind::Unknown => None,
    }
}

/// A statement that is no query and no DML.
fn plan_command(kind: StatementKind, met: &RelationsMet) -> Result<ShardPlan, ShardRefusal> {
    let refusal = match kind {
        StatementKind::Merge => ShardRefusal::Merge,
        StatementKind::Copy => ShardRefusal::Copy,
        StatementKind::Truncate => ShardRefusal::Truncate,
        StatementKind::Definition => ShardRefusal::Definition,
        _ => ShardRefusal::Utility,
    };
    match (met.sharded.is_empty(), met.references, kind) {
        (false, ..) => Err(refusal),
        (true, 0, _) | (true, _, StatementKind::Prepare | StatementKind::Utility) => Ok(ShardPlan::Elsewhere),
        (true, ..) => Err(ShardRefusal::WritesReference),
    }
}

fn plan_unsharded<'c>(
    terms: &KeyTerms,
    met: &RelationsMet,
    lookup: &impl Fn(&QualifiedName) -> RelationKind<'c>,
) -> Result<ShardPlan, ShardRefusal> {
    if terms.writes.iter().any(|write| matches!(lookup(&write.relation), RelationKind::Reference)) {
        return Err(ShardRefusal::WritesReference);
    }
    let of_one_server =
        [TermProperty::LocksRows, TermProperty::Samples, TermProperty::SystemColumns, TermProperty::ObjectNumbers];
    let is_anywhere = met.references > 0 && met.singles == 0 && terms.writes.is_empty();
    let hangs_on_server = of_one_server.iter().any(|property| terms.properties.has(*property));
    Ok(if is_anywhere && !hangs_on_server { ShardPlan::AnyShard } else { ShardPlan::Elsewhere })
}

fn refuse_by_property(terms: &KeyTerms) -> Result<(), ShardRefusal> {
    const ROWS: [(TermProperty, ShardRefusal); 4] = [
        (TermProperty::Samples, ShardRefusal::Samples),
        (TermProperty::SystemColumns, ShardRefusal::SystemColumns),
        (TermProperty::ObjectNumbers, ShardRefusal::ObjectNumbers),
        (TermProperty::AtCursor, ShardRefusal::AtCursor),
    ];
    match ROWS.iter().find(|(property, _)| terms.properties.has(*property)) {
        Some((_, refusal)) => Err(*refusal),
        None => Ok(()),
    }
}

/// Every sharded relation of the text must be one of those whose rows are looked at.
fn refuse_unseen_relations(terms: &KeyTerms, met: &RelationsMet) -> Result<(), ShardRefusal> {
    let is_seen = |name: &QualifiedName| {
        let is_it = |source: &OccurrenceSource| matches!(source, OccurrenceSource::Relation(seen) if seen == name);
        terms.blocks.iter().flat_map(|block| &block.occurrences).any(|occurrence| is_it(&occurrence.source))
            || terms.writes.iter().any(|write| write.relation == *name)
    };
    if met.sharded.iter().all(is_seen) { Ok(()) } else { Err(ShardRefusal::KeyNotFixed) }
}

/// Rows that a text inserts.
#[derive(Default)]
struct Inserted {
    keys: Vec<FixedKey>,
    /// As in `OneShard`.
    draws: Option<Box<[u16]>>,
}

impl Inserted {
    /// Notes rows that give no key.
    fn draw(&mut self, table: &ShardedTable) -> Result<(), ShardRefusal> {
        if !table.draws_keys {
            return Err(ShardRefusal::KeyNotGiven);
        }
        let before = self.draws.take();
        let mut shards: Vec<u16> =
            table.shards.iter().copied().filter(|shard| before.as_ref().is_none_or(|before| before.contains(shard))).collect();
        shards.sort_unstable();
        shards.dedup();
        self.draws = Some(shards.into());
        Ok(())
    }
}

/// Keys of rows that the text inserts. Refuses writes that no shard can do alone.
fn inserted<'c>(terms: &KeyTerms, lookup: &impl Fn(&QualifiedName) -> RelationKind<'c>) -> Result<Inserted, ShardRefusal> {
    let mut inserted = Inserted::default();
    for write in &terms.writes {
        match lookup(&write.relation) {
            RelationKind::Sharded(table) => add_written_keys(write, table, &mut inserted)?,
            RelationKind::Reference => return Err(ShardRefusal::WritesReference),
            RelationKind::Single => {}
            RelationKind::Unknown => return Err(ShardRefusal::UnknownRelation),
        }
    }
    if inserted.draws.as_ref().is_some_and(|shards| shards.is_empty()) {
        return Err(ShardRefusal::KeyNotGiven);
    }
    Ok(inserted)
}

/// Keys of the rows that a text inserts into one sharded table, in the order of the rows.
#[derive(Clone, Debug, PartialEq)]
pub struct InsertedKeys(Vec<FixedKey>);

impl InsertedKeys {
    /// Finds the keys of an INSERT of `VALUES` that names no other relation. `lookup` knows the relations that the text's names mean.
    pub fn of<'c>(terms: &KeyTerms, lookup: impl Fn(&QualifiedName) -> RelationKind<'c>) -> Result<InsertedKeys, ShardRefusal> {
        let [write] = terms.writes.as_slice() else { return Err(ShardRefusal::KeyOfManyShards) };
        let is_alone = terms.relations.iter().all(|name| *name == write.relation)
            && terms.blocks.iter().all(|block| block.occurrences.is_empty());
        if terms.kind != StatementKind::Insert || !is_alone {
            return Err(ShardRefusal::KeyOfManyShards);
        }
        let Inserted { mut keys, draws } = inserted(terms, &lookup)?;
        if draws.is_some() {
            // Each row of a cut INSERT belongs to a known shard.
            return Err(ShardRefusal::KeyNotGiven);
        }
        infer_types(terms, &[], &mut keys);
        Ok(InsertedKeys(keys))
    }

    /// Number of the text's literals up to the last one that a key stands in.
    pub fn literals(&self) -> usize {
        literals_of(&self.0)
    }

    /// The shard of each row. The values are those of `ShardPlan::shard`.
    pub fn shards<'t, 'v>(
        &self,
        literal: impl Fn(usize) -> Option<WrittenLiteral<'t>>,
        parameter: impl Fn(u32) -> Option<BoundValue<'v>>,
    ) -> Result<Vec<u16>, ShardRefusal> {
        let shard = |key: &FixedKey| {
            let value = key.reading.value(&literal, &parameter)?;
            key.shard_of(&value)?.ok_or(ShardRefusal::NoPartition)
        };
        self.0.iter().map(shard).collect()
    }
}

fn literals_of(keys: &[FixedKey]) -> usize {
    let behind = |key: &FixedKey| match key.term().source {
        KeySource::Literal { ordinal, .. } => ordinal + 1,
        KeySource::Constant { .. } | KeySource::Parameter(_) => 0,
    };
    keys.iter().map(behind).max().unwrap_or(0)
}

fn add_written_keys(write: &WriteTerms, table: &Arc<ShardedTable>, inserted: &mut Inserted) -> Result<(), ShardRefusal> {
    let (columns, rows, sets) = match &write.action {
        WriteAction::Delete => return Ok(()),
        WriteAction::Update { sets } => return refuse_changed_key(sets, table),
        WriteAction::Insert { columns, rows, conflict_sets } => (columns, rows, conflict_sets),
    };
    refuse_changed_key(sets, table)?;
    let gives_others = !columns.is_empty() && !columns.contains(&table.key);
    let rows = match rows {
        InsertedRows::Values(rows) => rows,
        InsertedRows::Query(_) if gives_others && table.draws_keys => return inserted.draw(table),
        InsertedRows::Query(_) => return Err(ShardRefusal::InsertFromQuery),
        InsertedRows::Defaults => return inserted.draw(table),
        InsertedRows::Overridden => return Err(ShardRefusal::KeyOverridden),
    };
    let named = if columns.is_empty() { &table.columns } else { columns };
    let Some(at) = named.iter().position(|name| *name == table.key) else { return inserted.draw(table) };
    for row in rows {
        let term = match row.get(at) {
            Some(InsertedValue::Constant(term)) => term,
            Some(InsertedValue::Other) => return Err(ShardRefusal::KeyComputed),
            Some(InsertedValue::Default) | None => {
                inserted.draw(table)?;
                continue;
            }
        };
        let usage = KeyUse::Written { modifier: table.modifier };
        let reading = KeyReading::new(term, table.kind, usage).ok_or(ShardRefusal::KeyTypeUnknown)?;
        inserted.keys.push(FixedKey { table: Arc::clone(table), reading });
    }
    Ok(())
}

fn refuse_changed_key(sets: &[String], table: &ShardedTable) -> Result<(), ShardRefusal> {
    if sets.contains(&table.key) { Err(ShardRefusal::KeyChanged) } else { Ok(()) }
}

/// PostgreSQL gives a parameter without a type that of its first use. It is known if all uses stand beside keys of one type.
fn infer_types(terms: &KeyTerms, compared: &[KeyReading], keys: &mut [FixedKey]) {
    let written = keys.iter().map(|key| &key.reading).filter(|reading| reading.usage != KeyUse::Compared);
    let mut uses: BTreeMap<u32, Vec<KeyKind>> = BTreeMap::new();
    for reading in compared.iter().chain(written) {
        if let KeySource::Parameter(number) = reading.term.source {
            uses.entry(number).or_default().push(reading.own_type());
        }
    }
    let total: BTreeMap<u32, u32> = terms.parameter_uses.iter().copied().collect();
    for key in keys {
        let KeySource::Parameter(number) = key.reading.term.source else { continue };
        let kinds = uses.get(&number).map_or(&[][..], Vec::as_slice);
        let is_all = total.get(&number).copied() == u32::try_from(kinds.len()).ok();
        let is_one = kinds.iter().all(|kind| *kind == kinds[0]);
        key.reading.inferred = kinds.first().copied().filter(|_| is_all && is_one);
    }
}

impl ShardPlan {
    /// The shard of one text of the plan's skeleton. `literal`: its literal of an ordinal (`weir_sql::literal::literal_at`); `parameter`: the value of
    /// `$n`. Both give texts in the server's encoding, or nothing.
    pub fn shard<'t, 'v>(
        &self,
        literal: impl Fn(usize) -> Option<WrittenLiteral<'t>>,
        parameter: impl Fn(u32) -> Option<BoundValue<'v>>,
    ) -> Result<u16, ShardRefusal> {
        match self {
            ShardPlan::Elsewhere | ShardPlan::AnyShard => Ok(0),
            ShardPlan::OneShard(one) => one.shard(literal, parameter),
        }
    }
}

impl OneShard {
    fn shard<'t, 'v>(
        &self,
        literal: impl Fn(usize) -> Option<WrittenLiteral<'t>>,
        parameter: impl Fn(u32) -> Option<BoundValue<'v>>,
    ) -> Result<u16, ShardRefusal> {
        let mut shard = self.needs_shard_zero.then_some(0);
        for key in &self.keys {
            let value = key.reading.value(&literal, &parameter)?;
            match (key.shard_of(&value)?, shard) {
                // No row anywhere has such a key.
                (None, _) => {}
                (Some(found), None) => shard = Some(found),
                (Some(found), Some(shard)) if found == shard => {}
                (Some(_), Some(_)) if self.needs_shard_zero => return Err(ShardRefusal::NotOnShardZero),
                (Some(_), Some(_)) => return Err(ShardRefusal::KeyOfManyShards),
            }
        }
        match (&self.draws, shard) {
            (None, shard) => Ok(shard.unwrap_or(0)),
            (Some(shards), Some(shard)) if !shards.contains(&shard) => Err(ShardRefusal::KeyNotGiven),
            (Some(_), Some(shard)) => Ok(shard),
            (Some(shards), None) => shards.first().copied().ok_or(ShardRefusal::KeyNotGiven),
        }
    }
}

impl FixedKey {
    /// `None`: no row of the table equals the value.
    #[inline]
    fn shard_of(&self, value: &KeyValue) -> Result<Option<u16>, ShardRefusal> {
        let is_compared = self.reading.usage == KeyUse::Compared;
        if is_compared && *value == KeyValue::Null {
            return Ok(None);
        }
        match self.table.map.place_of(value) {
            PartitionPlace::At(partition) => self.table.shards.get(partition).copied().map(Some).ok_or(ShardRefusal::NoPartition),
            PartitionPlace::Nowhere if is_compared => Ok(None),
            PartitionPlace::Nowhere => Err(ShardRefusal::NoPartition),
        }
    }
}
