//! Names and texts inside SQL, and names of tables as an operator writes them.

use std::fmt;

/// A table and its schema.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct TableName {
    pub schema: String,
    pub name: String,
}

/// Quoted, fit for SQL.
impl fmt::Display for TableName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", quote_name(&self.schema), quote_name(&self.name))
    }
}

impl TableName {
    /// Reads `schema.table` by PostgreSQL's rules: names without quotes are in lower case. Without a schema: `public`.
    pub fn parse(text: &str) -> Result<TableName, String> {
        let wrong = || format!("\"{text}\" is no name of a table: write schema.table, with \"quotes\" where SQL needs them");
        let (first, rest) = name(text).ok_or_else(wrong)?;
        let Some(rest) = rest.strip_prefix('.') else {
            let table = TableName { schema: "public".to_owned(), name: first };
            return if rest.is_empty() { Ok(table) } else { Err(wrong()) };
        };
        match name(rest) {
            Some((second, "")) => Ok(TableName { schema: first, name: second }),
            Some(_) | None => Err(wrong()),
        }
    }
}

/// Reads one name of a column.
pub fn parse_name(text: &str) -> Result<String, String> {
    match name(text) {
        Some((name, "")) => Ok(name),
        Some(_) | None => Err(format!("\"{text}\" is no name: put it into \"quotes\" as in SQL")),
    }
}

/// Returns a name and what follows it.
fn name(text: &str) -> Option<(String, &str)> {
    let Some(quoted) = text.strip_prefix('"') else {
        let end = text.find(|c: char| !(c.is_alphanumeric() || c == '_' || c == '$')).unwrap_or(text.len());
        let first = text.chars().next()?;
        let is_name = first.is_alphabetic() || first == '_';
        return is_name.then(|| (text[..end].to_ascii_lowercase(), &text[end..]));
    };
    let mut found = String::new();
    let mut rest = quoted;
    loop {
        let (part, after) = rest.split_once('"')?;
        found += part;
        match after.strip_prefix('"') {
            Some(more) => {
                found.push('"');
                rest = more;
            }
            None => return (!found.is_empty()).then_some((found, after)),
        }
    }
}

pub fn quote_name(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// Relies on `standard_conforming_strings`, which Weir's own connections have on.
pub fn quote_text(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_sql_reads_them() {
        let cases = [
            ("items", Some(("public", "items"))),
            ("Shop.Items", Some(("shop", "items"))),
            ("\"Shop\".\"it.\"\"ems\"", Some(("Shop", "it.\"ems"))),
            ("a.b.c", None),
            ("a.", None),
            ("1a", None),
            ("\"\"", None),
            ("\"a", None),
            ("a b", None),
            ("a;drop", None),
        ];
        for (text, expected) in cases {
            let expected = expected.map(|(schema, name)| TableName { schema: schema.to_owned(), name: name.to_owned() });
            assert_eq!(TableName::parse(text).ok(), expected, "{text}");
        }
    }

    #[test]
    fn what_is_quoted_stays_inside_its_quotes() {
        assert_eq!(quote_name("a\"; drop"), "\"a\"\"; drop\"");
        assert_eq!(quote_text("it's"), "'it''s'");
        assert_eq!(TableName::parse("\"A\".\"b\"\"c\"").map(|table| table.to_string()).as_deref(), Ok("\"A\".\"b\"\"c\""));
    }
}
