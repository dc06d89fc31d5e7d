//! Keys that a sequence gives: each shard draws numbers until one belongs to it.
//!
//! A trigger meets rows whose key belongs to another shard. If that key is the number that the session has drawn last from the sequence, no client gave it,
//! and the shard draws again. All other rows stay as they are, and the constraint `weir_shard_key` refuses them.

use super::ddl::{self, OWN_SCHEMA};
use super::partition_plan::PartitionPlan;
use super::table_definition::{ColumnDefinition, KEY_CHECK, SequenceDefinition, TableDefinition};
use super::words::{TableName, quote_name, quote_text};
use crate::control::shard_catalog::ShardedPartition;

/// Longest name of PostgreSQL's, by default.
const NAME_BYTES_MAX: usize = 63;

/// Numbers that one row may take. A shard that has one of 1024 partitions draws more for one row of 10^40.
const DRAWS_MAX: u32 = 100_000;

/// The sequence that gives the keys of rows without one.
pub fn sequence_of<'d>(definition: &'d TableDefinition, key: &ColumnDefinition) -> Option<&'d SequenceDefinition> {
    definition.sequences.iter().find(|sequence| sequence.column == key.number)
}

/// Why a shard could not draw keys. `partitions`: of the table.
pub fn obstacle(
    definition: &TableDefinition,
    key: &ColumnDefinition,
    table: &TableName,
    partitions: &[ShardedPartition],
) -> Option<String> {
    let name = quote_name(&key.name);
    sequence_of(definition, key)?;
    if !partitions.iter().all(|one| one.bound.starts_with("FOR VALUES WITH")) {
        return Some(format!("its key {name} takes its value from a sequence, and these are spread by hash only"));
    }
    if !matches!(key.type_name.as_str(), "int2" | "int4" | "int8") {
        return Some(format!("its key {name} takes its value from a sequence, and is no integer"));
    }
    let of_sequences = definition.sequences.iter().filter(|sequence| sequence.column == key.number).count();
    let is_plain = |default: &String| default.starts_with("nextval('") && default.ends_with("'::regclass)");
    if of_sequences > 1 || !key.default.as_ref().is_none_or(is_plain) {
        return Some(format!("its key {name} takes its value from more than one sequence alone"));
    }
    let bytes = function(table).name.len();
    (bytes > NAME_BYTES_MAX)
        .then(|| format!("its key {name} takes its value from a sequence, and the table's name is too long for that"))
}

fn function(table: &TableName) -> TableName {
    TableName { schema: OWN_SCHEMA.to_owned(), name: format!("draw {}.{}", table.schema, table.name) }
}

/// Statements after which the shard draws keys of its own, behind `ddl::key_check`. Empty: no sequence gives the key, or the shard has no rows.
pub fn ground(
    table: &TableName,
    definition: &TableDefinition,
    key: &ColumnDefinition,
    plan: &PartitionPlan,
    shard: u16,
) -> Vec<String> {
    let Some(sequence) = sequence_of(definition, key).filter(|_| plan.on_shard(shard).next().is_some()) else {
        return Vec::new();
    };
    let new_key = format!("NEW.{}", quote_name(&key.name));
    let belongs = ddl::key_condition(key, plan, &[], shard, &new_key);
    let (function, sequence) = (function(table), quote_text(&sequence.name.to_string()));
    // The rights of the inserting role are those on the column: an identity asks for none on its sequence.
    let body = format!(
        "DECLARE drawn pg_catalog.int8; BEGIN \
         BEGIN drawn := pg_catalog.currval({sequence}::pg_catalog.regclass); \
         EXCEPTION WHEN object_not_in_prerequisite_state THEN RETURN NEW; END; \
         IF {new_key} IS DISTINCT FROM drawn THEN RETURN NEW; END IF; \
         FOR draw IN 1..{DRAWS_MAX} LOOP \
         {new_key} := pg_catalog.nextval({sequence}::pg_catalog.regclass); \
         IF {belongs} THEN RETURN NEW; END IF; \
         END LOOP; RETURN NEW; END"
    );
    vec![
        format!("DROP TRIGGER IF EXISTS {KEY_CHECK} ON {table}"),
        format!(
            "CREATE OR REPLACE FUNCTION {function}() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path TO pg_catalog, pg_temp AS {}",
            quote_text(&body)
        ),
        format!("REVOKE ALL ON FUNCTION {function}() FROM PUBLIC"),
        format!(
            "CREATE TRIGGER {KEY_CHECK} BEFORE INSERT ON {table} FOR EACH ROW WHEN (NOT ({belongs})) EXECUTE FUNCTION {function}()"
        ),
    ]
}

/// Behind its trigger, or the table.
pub fn drop_function(table: &TableName) -> String {
    format!("DROP FUNCTION IF EXISTS {}()", function(table))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn definition(default: Option<&str>, type_name: &str) -> TableDefinition {
        let key = ColumnDefinition {
            number: 1,
            name: "id".to_owned(),
            type_name: type_name.to_owned(),
            default: default.map(str::to_owned),
            ..ColumnDefinition::default()
        };
        let name = TableName { schema: "public".to_owned(), name: "orders_id_seq".to_owned() };
        let sequence = SequenceDefinition { name, column: 1, ..SequenceDefinition::default() };
        TableDefinition { columns: vec![key], sequences: vec![sequence], ..TableDefinition::default() }
    }

    #[test]
    fn keys_of_a_sequence_are_integers_spread_by_hash() {
        let partition = |bound: &str| ShardedPartition { bound: bound.to_owned(), shard: Some(0) };
        let hashed = [partition("FOR VALUES WITH (modulus 2, remainder 0)")];
        let ranged = [partition("FOR VALUES FROM (MINVALUE) TO (MAXVALUE)")];
        let serial = Some("nextval('public.orders_id_seq'::regclass)");
        let long = "x".repeat(60);
        for (default, kind, partitions, table, is_fit) in [
            (serial, "int4", &hashed, "orders", true),
            (None, "int8", &hashed, "orders", true),
            (serial, "int4", &ranged, "orders", false),
            (serial, "numeric", &hashed, "orders", false),
            (Some("(nextval('public.orders_id_seq'::regclass) * 2)"), "int4", &hashed, "orders", false),
            (serial, "int4", &hashed, &*long, false),
        ] {
            let definition = definition(default, kind);
            let table = TableName { schema: "public".to_owned(), name: table.to_owned() };
            let found = obstacle(&definition, &definition.columns[0], &table, partitions);
            assert_eq!(found.is_none(), is_fit, "{default:?} {kind} {table}: {found:?}");
        }
    }

    #[test]
    fn a_shard_without_rows_draws_nothing() {
        let definition = definition(None, "int4");
        let table = TableName { schema: "public".to_owned(), name: "orders".to_owned() };
        let plan = PartitionPlan::hash(1, &[0, 1]).unwrap();
        let statements = |shard| ground(&table, &definition, &definition.columns[0], &plan, shard).len();
        assert_eq!([statements(0), statements(1)], [4, 0]);
    }
}
