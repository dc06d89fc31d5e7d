//! Why a table cannot be sharded, or cannot be a reference table.

use super::key_draw;
use super::partition_plan::are_colocated;
use super::table_definition::{ConstraintDefinition, IndexDefinition, SequenceDefinition, TableDefinition};
use super::words::{TableName, quote_name};
use crate::control::shard_catalog::{ShardKey, ShardedKind, ShardedPartition, ShardedTable};
use weir_shard::{KeyKind, KeyOrder, PartitionBound, PartitionMap};

/// Sequences of shards are this far apart: as many shards can be told apart by the numbers they draw.
pub const SEQUENCE_STEP: i64 = 128;

/// Triggers that the operator vouches for, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LocalTriggers {
    /// The triggers read and write rows of their own shard only.
    Vouched,
    Unknown,
}

/// Reasons against copying the table at all.
pub fn of_table(definition: &TableDefinition, triggers: LocalTriggers) -> Vec<String> {
    let relation = &definition.relation;
    let mut reasons = Vec::new();
    if relation.kind != "r" {
        reasons.push(format!("it is {}", kind_words(&relation.kind)));
        return reasons;
    }
    match relation.persistence.as_str() {
        "p" => {}
        "u" => reasons.push("it is unlogged: ALTER TABLE … SET LOGGED makes it fit".to_owned()),
        _ => reasons.push("it is temporary".to_owned()),
    }
    reasons.extend(relation.peculiarities.iter().cloned());
    reasons.extend(
        definition
            .needs
            .iter()
            .map(|need| format!("it needs {need}, and only what PostgreSQL itself brings is equal on all shards")),
    );
    if triggers == LocalTriggers::Unknown {
        let names = definition.triggers.iter().map(|trigger| quote_name(&trigger.name));
        reasons.extend(names.map(|name| {
            format!("it has the trigger {name}: --local-triggers vouches that triggers touch rows of their own shard only")
        }));
    }
    let invalid = definition.indexes.iter().filter(|index| !index.is_valid);
    reasons.extend(invalid.map(|index| format!("its index {} is not valid: REINDEX or drop it", quote_name(&index.name))));
    reasons
}

fn kind_words(kind: &str) -> &'static str {
    match kind {
        "v" => "a view",
        "m" => "a materialized view",
        "p" => "a partitioned table of its own",
        "f" => "a foreign table",
        "S" => "a sequence",
        _ => "no table",
    }
}

/// Reasons against sharding by this column. `planned` is the table as it would be.
pub fn of_sharding(definition: &TableDefinition, key: &str, planned: &ShardedTable, others: &[ShardedTable]) -> Vec<String> {
    let Some(column) = definition.column(key) else { return vec![format!("it has no column {}", quote_name(key))] };
    let mut reasons = Vec::new();
    match (KeyKind::of_type(column.type_oid), &planned.kind) {
        (Some(kind), ShardedKind::Sharded { key: Some(key), partitions }) => {
            reasons.extend(routing_reason(kind, key, partitions))
        }
        (Some(_), ShardedKind::Sharded { key: None, .. } | ShardedKind::Reference) | (None, _) => {
            reasons.push(format!("its key {} has the type {}, by which rows are not routed", quote_name(key), column.type_text));
        }
    }
    let own = TableName { schema: planned.schema.clone(), name: planned.name.clone() };
    if let ShardedKind::Sharded { partitions, .. } = &planned.kind {
        reasons.extend(key_draw::obstacle(definition, column, &own, partitions));
    }
    if !column.generated.is_empty() {
        reasons.push(format!("its key {} is generated", quote_name(key)));
    }
    let unique = definition.indexes.iter().filter(|index| index.is_unique && !holds(index, column.number, column.collation_oid));
    reasons.extend(unique.map(|index| {
        format!(
            "its unique index {} does not hold the key {}: equal values on two shards would not meet",
            quote_name(&index.name),
            quote_name(key)
        )
    }));
    let exclusions = definition.constraints.iter().filter(|constraint| constraint.kind == "x");
    reasons
        .extend(exclusions.map(|one| format!("its exclusion constraint {} cannot be kept over shards", quote_name(&one.name))));
    reasons.extend(definition.sequences.iter().flat_map(sequence_reason));
    let foreign = definition.constraints.iter().filter(|constraint| constraint.kind == "f");
    reasons.extend(foreign.clone().filter_map(|one| foreign_key_reason(one, (column.number, &own), planned, others)));
    reasons.extend(foreign.filter_map(|one| changed_key_reason(one, (column.number, key), others)));
    let from_everywhere =
        |table: &TableName| others.iter().any(|other| is_named(other, table) && other.kind == ShardedKind::Reference);
    let has_no_key = |columns: &[String]| !columns.iter().any(|name| name == key);
    let inbound = definition.references.iter().filter(|one| has_no_key(&one.columns) || from_everywhere(&one.table));
    reasons.extend(inbound.map(|reference| {
        let (constraint, table) = (quote_name(&reference.constraint), &reference.table);
        format!(
            "the foreign key {constraint} of {table} leads to it, and no shard could check it: drop it, or let it hold the key"
        )
    }));
    reasons
}

/// Statements are routed only by what Weir computes as PostgreSQL does.
fn routing_reason(kind: KeyKind, key: &ShardKey, partitions: &[ShardedPartition]) -> Option<String> {
    if !key.is_deterministic {
        return Some(format!("its key {} has a collation under which different texts are equal", quote_name(&key.column)));
    }
    let order = if key.is_c { KeyOrder::Known } else { KeyOrder::ByCollation };
    let bounds: Result<Vec<PartitionBound>, _> = partitions.iter().map(|one| PartitionBound::of_text(kind, &one.bound)).collect();
    match bounds {
        Err(error) => Some(error.to_string()),
        Ok(bounds) => PartitionMap::new(kind, order, &bounds).err().map(|error| error.to_string()),
    }
}

fn holds(index: &IndexDefinition, key: i16, collation: u32) -> bool {
    index.columns.iter().zip(&index.collations).any(|(column, of_index)| *column == key && *of_index == collation)
}

fn sequence_reason(sequence: &SequenceDefinition) -> Option<String> {
    let name = &sequence.name;
    if sequence.cycles {
        return Some(format!("its sequence {name} begins anew at its end (CYCLE)"));
    }
    (sequence.increment != 1 && sequence.increment != SEQUENCE_STEP)
        .then(|| format!("its sequence {name} has an INCREMENT other than 1"))
}

fn foreign_key_reason(
    constraint: &ConstraintDefinition,
    (key, own): (i16, &TableName),
    planned: &ShardedTable,
    others: &[ShardedTable],
) -> Option<String> {
    let target = constraint.target.as_ref()?;
    let name = quote_name(&constraint.name);
    let leads_by_key = |key_there: &str| {
        constraint.columns.iter().zip(&constraint.target_columns).any(|(here, there)| *here == key && there == key_there)
    };
    let there = if target == own { Some(planned) } else { others.iter().find(|other| is_named(other, target)) };
    match there.map(|there| (&there.kind, there)) {
        None => Some(format!(
            "its foreign key {name} leads to {target}, which lies on shard 0 only: make that a reference table first"
        )),
        Some((ShardedKind::Reference, _)) => None,
        Some((ShardedKind::Sharded { key: Some(key_there), .. }, there)) if are_colocated(planned, there) => {
            let reason = || format!("its foreign key {name} to {target} does not lead from key to key: no shard could check it");
            (!leads_by_key(&key_there.column)).then(reason)
        }
        Some((ShardedKind::Sharded { .. }, _)) => {
            Some(format!("its foreign key {name} leads to {target}, whose rows lie elsewhere: shard the table --with {target}"))
        }
    }
}

/// A key that a foreign key changes by itself would leave its row on a shard to which it no longer belongs.
fn changed_key_reason(constraint: &ConstraintDefinition, (number, key): (i16, &str), others: &[ShardedTable]) -> Option<String> {
    let target = constraint.target.as_ref().filter(|_| constraint.columns.contains(&number))?;
    let is_reference = others.iter().any(|other| is_named(other, target) && other.kind == ShardedKind::Reference);
    let action = SETTING_ACTIONS.iter().find(|action| sets(&constraint.text, action, key));
    // The key of a sharded table does not change, and that of a reference table may.
    let action = action.or_else(|| Some(&CASCADING).filter(|action| is_reference && constraint.text.contains(**action)))?;
    Some(format!(
        "its foreign key {} has {action}, by which the key {} of a row would change, and with it its shard: choose another action",
        quote_name(&constraint.name),
        quote_name(key)
    ))
}

/// As `pg_get_constraintdef` writes them.
const SETTING_ACTIONS: [&str; 4] = ["ON DELETE SET NULL", "ON DELETE SET DEFAULT", "ON UPDATE SET NULL", "ON UPDATE SET DEFAULT"];

const CASCADING: &str = "ON UPDATE CASCADE";

/// True if the foreign key has the action, and for the column: some actions list theirs.
fn sets(text: &str, action: &str, column: &str) -> bool {
    let Some((_, behind)) = text.rsplit_once(action) else { return false };
    let list = behind.strip_prefix(" (").and_then(|list| list.split_once(')'));
    list.is_none_or(|(list, _)| list.split(", ").any(|name| name == column || name == quote_name(column)))
}

/// Reasons against a copy on every shard.
pub fn of_reference(definition: &TableDefinition, others: &[ShardedTable], own: &TableName) -> Vec<String> {
    let mut reasons = Vec::new();
    for sequence in &definition.sequences {
        let column = definition.column_at(sequence.column).map_or("", |column| &column.name);
        reasons.push(format!(
            "its column {} takes values from the sequence {}: every shard would draw its own; give the rows their values",
            quote_name(column),
            sequence.name
        ));
    }
    for constraint in definition.constraints.iter().filter(|constraint| constraint.kind == "f") {
        let Some(target) = constraint.target.as_ref().filter(|target| *target != own) else { continue };
        let is_reference = |other: &ShardedTable| is_named(other, target) && other.kind == ShardedKind::Reference;
        if !others.iter().any(is_reference) {
            let name = quote_name(&constraint.name);
            reasons.push(format!("its foreign key {name} leads to {target}, which is no reference table: make it one first"));
        }
    }
    reasons
}

pub fn is_named(table: &ShardedTable, name: &TableName) -> bool {
    table.schema == name.schema && table.name == name.name
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::shard_setup::table_definition::ColumnDefinition;

    fn sharded(name: &str, key: &str, bounds: &[(&str, u16)]) -> ShardedTable {
        let key = ShardKey { column: key.to_owned(), type_oid: 23, is_deterministic: true, is_c: true };
        let partition = |(bound, shard): &(&str, u16)| ShardedPartition { bound: (*bound).to_owned(), shard: Some(*shard) };
        let kind = ShardedKind::Sharded { key: Some(key), partitions: bounds.iter().map(partition).collect() };
        ShardedTable { schema: "s".to_owned(), name: name.to_owned(), kind }
    }

    fn named(name: &str) -> TableName {
        TableName { schema: "s".to_owned(), name: name.to_owned() }
    }

    /// A table with the key `id`, and a foreign key from `from` to `to` of another.
    fn pointing(target: &str, from: i16, to: &str) -> TableDefinition {
        let column = |number, name: &str| ColumnDefinition { number, name: name.to_owned(), type_oid: 23, ..Default::default() };
        let constraint = ConstraintDefinition {
            name: "f".to_owned(),
            kind: "f".to_owned(),
            columns: vec![from],
            target: Some(named(target)),
            target_columns: vec![to.to_owned()],
            ..Default::default()
        };
        TableDefinition {
            columns: vec![column(1, "id"), column(2, "other")],
            constraints: vec![constraint],
            ..Default::default()
        }
    }

    #[test]
    fn foreign_keys_lead_to_reference_tables_or_from_key_to_key() {
        const HALVES: [(&str, u16); 2] =
            [("FOR VALUES WITH (modulus 2, remainder 0)", 0), ("FOR VALUES WITH (modulus 2, remainder 1)", 1)];
        const MOVED: [(&str, u16); 2] = [(HALVES[0].0, 1), (HALVES[1].0, 0)];
        let reference = ShardedTable { kind: ShardedKind::Reference, ..sharded("reference", "id", &[]) };
        let others = [reference, sharded("beside", "key", &HALVES), sharded("elsewhere", "key", &MOVED)];
        let planned = sharded("t", "id", &HALVES);
        for (target, from, to, reason) in [
            ("reference", 2, "code", None),
            ("beside", 1, "key", None),
            ("t", 1, "id", None),
            ("t", 2, "id", Some("does not lead from key to key")),
            ("beside", 2, "key", Some("does not lead from key to key")),
            ("beside", 1, "name", Some("does not lead from key to key")),
            ("elsewhere", 1, "key", Some("whose rows lie elsewhere")),
            ("nowhere", 1, "key", Some("lies on shard 0 only")),
        ] {
            let found = of_sharding(&pointing(target, from, to), "id", &planned, &others).join("; ");
            match reason {
                None => assert_eq!(found, "", "{target} {from} {to}"),
                Some(reason) => assert!(found.contains(reason), "{target} {from} {to}: {found}"),
            }
        }
    }

    #[test]
    fn no_foreign_key_changes_the_key() {
        let reference = ShardedTable { kind: ShardedKind::Reference, ..sharded("reference", "id", &[]) };
        let others = [reference, sharded("beside", "key", &[])];
        for (target, from, actions, is_refused) in [
            ("beside", 1, "ON DELETE SET NULL", true),
            ("beside", 1, "ON UPDATE SET DEFAULT ON DELETE CASCADE DEFERRABLE", true),
            ("beside", 1, "ON DELETE SET NULL (other)", false),
            ("beside", 1, "ON DELETE SET DEFAULT (other, id)", true),
            ("beside", 1, "ON UPDATE CASCADE ON DELETE CASCADE", false),
            ("reference", 1, "ON UPDATE CASCADE", true),
            ("reference", 2, "ON UPDATE CASCADE ON DELETE SET NULL", false),
            ("reference", 1, "", false),
        ] {
            let mut constraint = pointing(target, from, "key").constraints.remove(0);
            constraint.text = format!("FOREIGN KEY (id) REFERENCES {target}(key) {actions}");
            let reason = changed_key_reason(&constraint, (1, "id"), &others);
            assert_eq!(reason.is_some(), is_refused, "{target} {from} {actions}: {reason:?}");
        }
    }

    #[test]
    fn a_unique_index_holds_the_key_only_under_its_collation() {
        let index = |columns: &[i16], collations: &[u32]| IndexDefinition {
            columns: columns.to_vec(),
            collations: collations.to_vec(),
            ..Default::default()
        };
        for (columns, collations, expected) in [
            (&[1][..], &[100][..], true),
            (&[2, 1], &[0, 100], true),
            (&[2], &[100], false),
            (&[1], &[950], false),
            (&[0, 1], &[100, 950], false),
        ] {
            assert_eq!(holds(&index(columns, collations), 1, 100), expected, "{columns:?} {collations:?}");
        }
    }

    #[test]
    fn what_weir_cannot_compute_is_no_key() {
        let key = |is_deterministic, is_c| ShardKey { column: "id".to_owned(), type_oid: 25, is_deterministic, is_c };
        let range = [ShardedPartition { bound: "FOR VALUES FROM ('a') TO ('b')".to_owned(), shard: Some(0) }];
        let reason = |key: &ShardKey| routing_reason(KeyKind::Text, key, &range);
        assert_eq!(reason(&key(true, true)), None);
        assert!(reason(&key(true, false)).is_some_and(|reason| reason.contains("COLLATE \"C\"")));
        assert!(reason(&key(false, false)).is_some_and(|reason| reason.contains("different texts are equal")));
    }
}
