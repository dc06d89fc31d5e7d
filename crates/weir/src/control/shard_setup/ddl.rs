//! The statements that make a table on a shard, and its entry in the engine.

use super::partition_plan::{PartitionPlan, PlannedBound};
use super::refusals::SEQUENCE_STEP;
use super::table_definition::{ColumnDefinition, GrantLine, KEY_CHECK, SequenceDefinition, TableDefinition};
use super::words::{TableName, quote_name, quote_text};
use crate::control::shard_catalog::{REFERENCE_SERVER, SERVER_BEGIN};

/// Schema of what Weir puts beside sharded tables.
pub const OWN_SCHEMA: &str = "weir_shard";

/// The number that a shard's sequence begins with. All shards draw numbers above `drawn`, the last one that shard 0 has drawn, each of its own class.
///
/// `None`: no number is left.
pub fn first_number(sequence: &SequenceDefinition, drawn: i64, shard: u16) -> Option<i64> {
    let base = drawn.max(sequence.min.max(1) - 1).checked_add(SEQUENCE_STEP - 1)? / SEQUENCE_STEP * SEQUENCE_STEP;
    let first = base.checked_add(i64::from(shard) + 1)?;
    (base.checked_add(SEQUENCE_STEP)? <= sequence.max).then_some(first)
}

/// A table's schema, where it is missing on a shard.
pub fn schema(name: &str, owner: &str) -> String {
    format!("CREATE SCHEMA IF NOT EXISTS {} AUTHORIZATION {}", quote_name(name), quote_name(owner))
}

/// Makes the table, without rows, indexes and constraints. `firsts`: the first number of each sequence.
pub fn create(table: &TableName, definition: &TableDefinition, firsts: &[i64]) -> Vec<String> {
    let sequences = || definition.sequences.iter().zip(firsts);
    let mut statements = Vec::new();
    for (sequence, first) in sequences().filter(|(sequence, _)| !sequence.is_identity) {
        statements.push(format!(
            "CREATE SEQUENCE {} AS {} {}",
            sequence.name,
            sequence.type_text,
            sequence_options(sequence, *first)
        ));
    }
    let columns: Vec<String> = definition
        .columns
        .iter()
        .map(|column| {
            let identity = sequences().find(|(sequence, _)| sequence.is_identity && sequence.column == column.number);
            column_text(column, identity)
        })
        .collect();
    let options = match definition.relation.options.as_slice() {
        [] => String::new(),
        options => format!(" WITH ({})", options.iter().map(|option| storage_option(option)).collect::<Vec<_>>().join(", ")),
    };
    statements.push(format!("CREATE TABLE {table} ({}){options}", columns.join(", ")));
    for (sequence, _) in sequences().filter(|(sequence, _)| !sequence.is_identity) {
        let column = definition.column_at(sequence.column).map_or("", |column| &column.name);
        statements.push(format!("ALTER SEQUENCE {} OWNED BY {table}.{}", sequence.name, quote_name(column)));
    }
    statements
}

/// Makes all the rest of the table, after its rows.
pub fn complete(table: &TableName, definition: &TableDefinition) -> Vec<String> {
    let mut statements = Vec::new();
    for constraint in &definition.constraints {
        statements.push(format!("ALTER TABLE {table} ADD CONSTRAINT {} {}", quote_name(&constraint.name), constraint.text));
    }
    statements.extend(definition.indexes.iter().filter(|index| !index.is_of_constraint).map(|index| index.text.clone()));
    statements.extend(definition.triggers.iter().map(|trigger| trigger.text.clone()));
    match definition.relation.replica_identity.as_str() {
        "f" => statements.push(format!("ALTER TABLE {table} REPLICA IDENTITY FULL")),
        "n" => statements.push(format!("ALTER TABLE {table} REPLICA IDENTITY NOTHING")),
        _ => {}
    }
    if let Some(comment) = &definition.relation.comment {
        statements.push(format!("COMMENT ON TABLE {table} IS {}", quote_text(comment)));
    }
    for column in &definition.columns {
        if let Some(comment) = &column.comment {
            statements.push(format!("COMMENT ON COLUMN {table}.{} IS {}", quote_name(&column.name), quote_text(comment)));
        }
    }
    let owner = quote_name(&definition.relation.owner);
    statements.push(format!("ALTER TABLE {table} OWNER TO {owner}"));
    if definition.relation.has_grants {
        statements.push(format!("REVOKE ALL ON TABLE {table} FROM PUBLIC, {owner}"));
    }
    statements.extend(definition.grants.iter().map(|grant| grant_text(table, grant)));
    statements
}

fn column_text(column: &ColumnDefinition, identity: Option<(&SequenceDefinition, &i64)>) -> String {
    let mut text = format!("{} {}", quote_name(&column.name), column.type_text);
    if let Some(collation) = &column.collation {
        text += &format!(" COLLATE {collation}");
    }
    match (&column.default, column.generated.as_str()) {
        (Some(default), "") => text += &format!(" DEFAULT {default}"),
        (Some(expression), "v") => text += &format!(" GENERATED ALWAYS AS ({expression}) VIRTUAL"),
        (Some(expression), _) => text += &format!(" GENERATED ALWAYS AS ({expression}) STORED"),
        (None, _) => {}
    }
    if let Some((sequence, first)) = identity {
        let always = if column.identity == "a" { "ALWAYS" } else { "BY DEFAULT" };
        let options = sequence_options(sequence, *first);
        text += &format!(" GENERATED {always} AS IDENTITY (SEQUENCE NAME {} {options})", sequence.name);
    }
    if column.is_not_null {
        text += " NOT NULL";
    }
    text
}

fn sequence_options(sequence: &SequenceDefinition, first: i64) -> String {
    let SequenceDefinition { min, max, cache, .. } = sequence;
    format!("INCREMENT BY {SEQUENCE_STEP} MINVALUE {min} MAXVALUE {max} START WITH {first} CACHE {cache}")
}

/// From `name=value`, as `pg_class` has it.
fn storage_option(option: &str) -> String {
    let (name, value) = option.split_once('=').unwrap_or((option, "true"));
    format!("{} = {}", quote_name(name), quote_text(value))
}

fn grant_text(table: &TableName, grant: &GrantLine) -> String {
    let column = if grant.column.is_empty() { String::new() } else { format!(" ({})", quote_name(&grant.column)) };
    let option = if grant.is_grantable { " WITH GRANT OPTION" } else { "" };
    format!("GRANT {}{column} ON TABLE {table} TO {}{option}", grant.right, grant.grantee)
}

/// Lets a sequence draw numbers of one shard's class only, from `first` on.
pub fn restart_sequence(sequence: &SequenceDefinition, first: i64) -> String {
    format!("ALTER SEQUENCE {} INCREMENT BY {SEQUENCE_STEP} START WITH {first} RESTART WITH {first}", sequence.name)
}

/// The empty table by which a key of this type and collation is hashed.
fn hash_table(key: &ColumnDefinition) -> TableName {
    let collation = key.collation.as_ref().map_or_else(String::new, |collation| format!(" {collation}"));
    TableName { schema: OWN_SCHEMA.to_owned(), name: format!("{}{collation}", key.type_name) }
}

/// Statements for the constraint of a hashed key on a shard. Everyone may read it, as all do who define tables with such a constraint.
pub fn hash_ground(key: &ColumnDefinition) -> Vec<String> {
    let collation = key.collation.as_ref().map_or_else(String::new, |collation| format!(" COLLATE {collation}"));
    let type_text = &key.type_text;
    vec![
        format!("CREATE SCHEMA IF NOT EXISTS {OWN_SCHEMA}"),
        format!("GRANT USAGE ON SCHEMA {OWN_SCHEMA} TO PUBLIC"),
        format!("CREATE TABLE IF NOT EXISTS {} (key {type_text}{collation}) PARTITION BY HASH (key)", hash_table(key)),
    ]
}

/// True for the rows of a shard. `texts`: the constraints of the engine's partitions, in the order of the plan. `value`: of a hashed key.
pub fn key_condition(key: &ColumnDefinition, plan: &PartitionPlan, texts: &[String], shard: u16, value: &str) -> String {
    let conditions: Vec<String> = plan
        .on_shard(shard)
        .map(|(at, partition)| match &partition.bound {
            PlannedBound::Hash { modulus, remainder } => {
                let ground = quote_text(&hash_table(key).to_string());
                format!("pg_catalog.satisfies_hash_partition({ground}::pg_catalog.regclass, {modulus}, {remainder}, {value})")
            }
            PlannedBound::Text(_) => format!("({})", texts.get(at).map_or("false", String::as_str)),
        })
        .collect();
    if conditions.is_empty() { "false".to_owned() } else { conditions.join(" OR ") }
}

/// Keeps rows of other shards out. `texts`: the constraints of the engine's partitions, in the order of the plan.
pub fn key_check(table: &TableName, key: &ColumnDefinition, plan: &PartitionPlan, texts: &[String], shard: u16) -> Vec<String> {
    let condition = key_condition(key, plan, texts, shard, &quote_name(&key.name));
    vec![
        format!("ALTER TABLE {table} DROP CONSTRAINT IF EXISTS {KEY_CHECK}"),
        format!("ALTER TABLE {table} ADD CONSTRAINT {KEY_CHECK} CHECK ({condition})"),
    ]
}

/// The columns of a table in the engine, which holds no rows.
fn engine_columns(definition: &TableDefinition) -> String {
    let column = |column: &ColumnDefinition| {
        let collation = column.collation.as_ref().map_or_else(String::new, |collation| format!(" COLLATE {collation}"));
        let not_null = if column.is_not_null { " NOT NULL" } else { "" };
        format!("{} {}{collation}{not_null}", quote_name(&column.name), column.type_text)
    };
    definition.columns.iter().map(column).collect::<Vec<_>>().join(", ")
}

/// Makes the entry of a sharded table.
pub fn engine_sharded(table: &TableName, definition: &TableDefinition, key: &str, plan: &PartitionPlan) -> Vec<String> {
    let (columns, strategy) = (engine_columns(definition), plan.strategy.word());
    let mut statements = vec![format!("CREATE TABLE {table} ({columns}) PARTITION BY {strategy} ({})", quote_name(key))];
    for (at, partition) in plan.partitions.iter().enumerate() {
        statements.push(format!(
            "CREATE FOREIGN TABLE {} PARTITION OF {table} {} SERVER {SERVER_BEGIN}{} OPTIONS (schema_name {}, table_name {})",
            partition_name(table, at),
            partition.bound.sql(),
            partition.shard,
            quote_text(&table.schema),
            quote_text(&table.name)
        ));
    }
    statements
}

/// Longest name of PostgreSQL's, by default.
const NAME_BYTES_MAX: usize = 63;

/// The number stays whole where PostgreSQL would cut a long name.
pub fn partition_name(table: &TableName, at: usize) -> TableName {
    let ending = format!("_{at}");
    let mut bytes = table.name.len().min(NAME_BYTES_MAX - ending.len());
    while !table.name.is_char_boundary(bytes) {
        bytes -= 1;
    }
    TableName { schema: table.schema.clone(), name: format!("{}{ending}", &table.name[..bytes]) }
}

/// Makes the entry of a reference table.
pub fn engine_reference(table: &TableName, definition: &TableDefinition) -> String {
    let (schema, name) = (quote_text(&table.schema), quote_text(&table.name));
    let columns = engine_columns(definition);
    format!(
        "CREATE FOREIGN TABLE {table} ({columns}) SERVER {REFERENCE_SERVER} OPTIONS (schema_name {schema}, table_name {name})"
    )
}

/// Takes an entry out.
pub fn engine_drop(table: &TableName, is_sharded: bool) -> String {
    format!("DROP {} {table}", if is_sharded { "TABLE" } else { "FOREIGN TABLE" })
}

/// Makes a foreign server, or gives it the address that the shard's primary has now.
pub fn engine_server(name: &str, exists: bool, hostname: &str, port: u16, database: &str) -> String {
    let (verb, wrapper, add) = match exists {
        true => ("ALTER", "", "SET "),
        false => ("CREATE", " FOREIGN DATA WRAPPER postgres_fdw", ""),
    };
    let (host, database) = (quote_text(hostname), quote_text(database));
    format!("{verb} SERVER {name}{wrapper} OPTIONS ({add}host {host}, {add}port '{port}', {add}dbname {database})")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sequence(max: i64) -> SequenceDefinition {
        SequenceDefinition { min: 1, max, increment: 1, cache: 1, ..SequenceDefinition::default() }
    }

    #[test]
    fn numbers_of_shards_never_meet_and_are_above_those_that_were_drawn() {
        for (drawn, shard, expected) in [(0, 0, 1), (0, 5, 6), (1, 0, 129), (128, 0, 129), (129, 2, 259), (-7, 0, 1)] {
            assert_eq!(first_number(&sequence(i64::MAX), drawn, shard), Some(expected), "{drawn} {shard}");
        }
        assert_eq!(first_number(&sequence(32_767), 32_700, 0), None);
        assert_eq!(first_number(&sequence(i64::MAX), i64::MAX, 0), None);
    }

    #[test]
    fn long_names_of_partitions_stay_different() {
        let table = TableName { schema: "a".to_owned(), name: "ä".repeat(31) };
        let names = [partition_name(&table, 7).name, partition_name(&table, 1000).name];
        assert!(names.iter().all(|name| name.len() <= NAME_BYTES_MAX) && names[0] != names[1], "{names:?}");
    }

    fn column(name: &str, type_name: &str) -> ColumnDefinition {
        ColumnDefinition {
            name: name.to_owned(),
            type_name: type_name.to_owned(),
            type_text: type_name.to_owned(),
            ..Default::default()
        }
    }

    #[test]
    fn the_check_of_a_shard_names_its_partitions_and_nothing_passes_where_there_are_none() {
        let table = TableName { schema: "a".to_owned(), name: "t".to_owned() };
        let plan = PartitionPlan::hash(2, &[0, 1]).unwrap();
        let on = |shard| key_check(&table, &column("it's", "int4"), &plan, &[], shard).pop().unwrap();
        assert_eq!(
            on(1),
            "ALTER TABLE \"a\".\"t\" ADD CONSTRAINT weir_shard_key CHECK \
             (pg_catalog.satisfies_hash_partition('\"weir_shard\".\"int4\"'::pg_catalog.regclass, 2, 1, \"it's\"))"
        );
        assert!(on(2).ends_with("CHECK (false)"), "{}", on(2));
        let plan = PartitionPlan::range("..5=0,5..9=0", &[0]).unwrap();
        let texts = ["x < 5".to_owned(), "x >= 5".to_owned()];
        let check = key_check(&table, &column("x", "int4"), &plan, &texts, 0).pop().unwrap();
        assert!(check.ends_with("CHECK ((x < 5) OR (x >= 5))"), "{check}");
    }
}
