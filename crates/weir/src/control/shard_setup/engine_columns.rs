//! Columns of the engine's tables, which follow those of the shards.

use super::words::{TableName, quote_name};

/// A column of a table, on a shard or in the engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineColumn {
    name: String,
    type_text: String,
    /// `None`: the type has none.
    collation: Option<String>,
    is_not_null: bool,
}

/// The collation that a column has without words.
const DEFAULT_COLLATION: &str = "default";

impl EngineColumn {
    fn is_of_type(&self, other: &EngineColumn) -> bool {
        self.type_text == other.type_text && self.collation == other.collation
    }

    fn definition(&self) -> String {
        let collation = self.collation.as_deref().filter(|collation| *collation != DEFAULT_COLLATION);
        let collation = collation.map(|name| format!(" COLLATE pg_catalog.{}", quote_name(name))).unwrap_or_default();
        let not_null = if self.is_not_null { " NOT NULL" } else { "" };
        format!("{} {}{collation}{not_null}", quote_name(&self.name), self.type_text)
    }
}

/// Reads columns as `engine_reader::table_facts` gives them.
pub fn columns_of(json: &str) -> Option<Vec<EngineColumn>> {
    type Row = (String, String, Option<String>, Option<String>, bool);
    let rows: Vec<Row> = serde_json::from_str(json).ok()?;
    let column = |(name, type_text, collation, _, is_not_null)| EngineColumn { name, type_text, collation, is_not_null };
    Some(rows.into_iter().map(column).collect())
}

/// The statements that give the engine's table the columns that the shards have. It holds no rows, so a column may be dropped and made anew. No
/// statements where that is not enough: the tables are compared afterwards.
pub fn followed(table: &TableName, wanted: &[EngineColumn], there: &[EngineColumn]) -> Vec<String> {
    let mut statements = Vec::new();
    let mut kept: Vec<EngineColumn> = if is_renamed(wanted, there) {
        statements.extend(renames(table, wanted, there));
        there.iter().zip(wanted).map(|(old, new)| EngineColumn { name: new.name.clone(), ..old.clone() }).collect()
    } else {
        let is_wanted = |old: &EngineColumn| wanted.iter().any(|new| new.name == old.name && new.is_of_type(old));
        let (mut kept, mut gone): (Vec<_>, Vec<_>) = there.iter().cloned().partition(is_wanted);
        // New columns come last, so that those behind one that is missing here go, too, and come again.
        let in_place = kept.iter().zip(wanted).take_while(|(old, new)| old.name == new.name).count();
        gone.extend(kept.drain(in_place..));
        statements.extend(gone.iter().map(|old| format!("ALTER TABLE {table} DROP COLUMN {}", quote_name(&old.name))));
        kept
    };
    for (old, new) in kept.iter_mut().zip(wanted) {
        if old.name == new.name && old.is_not_null != new.is_not_null {
            let verb = if new.is_not_null { "SET" } else { "DROP" };
            statements.push(format!("ALTER TABLE {table} ALTER COLUMN {} {verb} NOT NULL", quote_name(&new.name)));
        }
    }
    let added = wanted.iter().skip(kept.len());
    statements.extend(added.map(|new| format!("ALTER TABLE {table} ADD COLUMN {}", new.definition())));
    statements
}

/// True if columns may have new names in their old places. Two that have changed their names are another case.
fn is_renamed(wanted: &[EngineColumn], there: &[EngineColumn]) -> bool {
    wanted.len() == there.len() && wanted.iter().zip(there).all(|(new, old)| new.is_of_type(old))
}

/// By way of names that no column has.
fn renames(table: &TableName, wanted: &[EngineColumn], there: &[EngineColumn]) -> Vec<String> {
    let changed = || wanted.iter().zip(there).enumerate().filter(|(_, (new, old))| new.name != old.name);
    let rename = |from: &str, to: &str| format!("ALTER TABLE {table} RENAME COLUMN {} TO {}", quote_name(from), quote_name(to));
    let away = changed().map(|(at, (_, old))| rename(&old.name, &format!("weir column {at}")));
    let back = changed().map(|(at, (new, _))| rename(&format!("weir column {at}"), &new.name));
    away.chain(back).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `name type`, with `!` behind it for NOT NULL.
    fn columns(list: &str) -> Vec<EngineColumn> {
        let column = |text: &str| {
            let (name, kind) = text.trim_end_matches('!').split_once(' ').unwrap();
            let collation = (kind == "text").then(|| DEFAULT_COLLATION.to_owned());
            EngineColumn { name: name.to_owned(), type_text: kind.to_owned(), collation, is_not_null: text.ends_with('!') }
        };
        list.split(", ").map(column).collect()
    }

    #[test]
    fn the_engines_columns_follow_those_of_the_shards() {
        let table = TableName { schema: "s".to_owned(), name: "t".to_owned() };
        for (there, wanted, expected) in [
            ("id int!, a text", "id int!, a text", &[][..]),
            ("id int!, a text", "id int!, a text, b int!", &["ADD COLUMN \"b\" int NOT NULL"]),
            ("id int!, a text", "id int!", &["DROP COLUMN \"a\""]),
            ("a text, id int!, b int", "id int!, b int, c text", &["DROP COLUMN \"a\"", "ADD COLUMN \"c\" text"]),
            ("id int!, a text", "id int!, a int", &["DROP COLUMN \"a\"", "ADD COLUMN \"a\" int"]),
            // One was renamed, and another one is gone.
            (
                "id int!, a int, b int, c int",
                "id int!, d int, c int",
                &["DROP COLUMN \"a\"", "DROP COLUMN \"b\"", "DROP COLUMN \"c\"", "ADD COLUMN \"d\" int", "ADD COLUMN \"c\" int"],
            ),
            ("id int!, a text!", "id int!, a text", &["ALTER COLUMN \"a\" DROP NOT NULL"]),
            (
                "id int!, a text",
                "id int!, b text!",
                &[
                    "RENAME COLUMN \"a\" TO \"weir column 1\"",
                    "RENAME COLUMN \"weir column 1\" TO \"b\"",
                    "ALTER COLUMN \"b\" SET NOT NULL",
                ],
            ),
            (
                "a int, b int",
                "b int, a int",
                &[
                    "RENAME COLUMN \"a\" TO \"weir column 0\"",
                    "RENAME COLUMN \"b\" TO \"weir column 1\"",
                    "RENAME COLUMN \"weir column 0\" TO \"b\"",
                    "RENAME COLUMN \"weir column 1\" TO \"a\"",
                ],
            ),
        ] {
            let told = followed(&table, &columns(wanted), &columns(there));
            let expected: Vec<String> = expected.iter().map(|words| format!("ALTER TABLE {table} {words}")).collect();
            assert_eq!(told, expected, "{there} -> {wanted}");
        }
    }

    #[test]
    fn columns_are_read_with_their_collations() {
        let read = columns_of(r#"[["id","integer",null,null,true],["a","text","C",null,false]]"#).unwrap();
        assert_eq!(read[1].definition(), "\"a\" text COLLATE pg_catalog.\"C\"");
        assert_eq!(columns_of("{}"), None);
    }
}
