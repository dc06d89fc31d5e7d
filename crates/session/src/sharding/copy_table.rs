//! `COPY table TO STDOUT` of a sharded table, written as the COPY of a query: the engine's tables are partitioned, and PostgreSQL copies only queries of
//! such.

use weir_sql::copy_to::{CopyOption, CopyOptionValue, CopyTo, copy_to};
use weir_wire::write::{identifier, literal};

/// Why a table is not copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyTableObstacle {
    Unread,
    /// PostgreSQL takes a name twice in a query, and refuses it here.
    ColumnTwice,
}

impl CopyTableObstacle {
    pub fn words(self) -> &'static str {
        match self {
            CopyTableObstacle::Unread => "its options are not read",
            CopyTableObstacle::ColumnTwice => "a column is named twice",
        }
    }
}

/// `columns_of`: those that are copied if the text names none.
pub fn copy_of_query(text: &str, columns_of: impl Fn(&CopyTo) -> Vec<String>) -> Result<String, CopyTableObstacle> {
    let copy = copy_to(text).ok_or(CopyTableObstacle::Unread)?;
    let columns = if copy.columns.is_empty() { columns_of(&copy) } else { copy.columns.clone() };
    if columns.iter().enumerate().any(|(at, name)| columns[..at].contains(name)) {
        return Err(CopyTableObstacle::ColumnTwice);
    }
    let mut out = "COPY (SELECT ".to_owned();
    names(&mut out, &columns);
    out.push_str(" FROM ");
    if !copy.relation.schema.is_empty() {
        identifier(&mut out, &copy.relation.schema);
        out.push('.');
    }
    identifier(&mut out, &copy.relation.name);
    out.push_str(") TO STDOUT");
    for (at, option) in copy.options.iter().enumerate() {
        out.push_str(if at == 0 { " (" } else { ", " });
        write_option(&mut out, option);
    }
    if !copy.options.is_empty() {
        out.push(')');
    }
    Ok(out)
}

fn write_option(out: &mut String, option: &CopyOption) {
    identifier(out, &option.name);
    out.push(' ');
    match &option.value {
        CopyOptionValue::None => {}
        CopyOptionValue::Text(text) => literal(out, text),
        CopyOptionValue::Number(number) => out.push_str(&number.to_string()),
        CopyOptionValue::Truth(truth) => out.push_str(if *truth { "true" } else { "false" }),
        CopyOptionValue::All => out.push('*'),
        CopyOptionValue::Names(list) => {
            out.push('(');
            names(out, list);
            out.push(')');
        }
    }
}

fn names(out: &mut String, list: &[String]) {
    for (at, name) in list.iter().enumerate() {
        if at > 0 {
            out.push_str(", ");
        }
        identifier(out, name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_copy_of_a_query_has_the_columns_and_options_of_the_copy_of_its_table() {
        for (text, expected) in [
            ("copy t to stdout", "COPY (SELECT \"a\", \"B\" FROM \"t\") TO STDOUT"),
            (
                "COPY s.t (b) TO STDOUT WITH CSV HEADER",
                "COPY (SELECT \"b\" FROM \"s\".\"t\") TO STDOUT (\"format\" 'csv', \"header\" true)",
            ),
            (
                "copy t (\"x\"\"y\") to stdout (delimiter E'\\t', null '\\N', header)",
                "COPY (SELECT \"x\"\"y\" FROM \"t\") TO STDOUT (\"delimiter\" '\t', \"null\"  E'\\\\N', \"header\" )",
            ),
            (
                "copy t to stdout csv force quote a, b",
                "COPY (SELECT \"a\", \"B\" FROM \"t\") TO STDOUT (\"format\" 'csv', \"force_quote\" (\"a\", \"b\"))",
            ),
            ("copy binary t to stdout", "COPY (SELECT \"a\", \"B\" FROM \"t\") TO STDOUT (\"format\" 'binary')"),
        ] {
            let written = copy_of_query(text, |_| vec!["a".to_owned(), "B".to_owned()]);
            assert_eq!(written.as_deref(), Ok(expected), "{text}");
            assert!(weir_sql::key_terms(expected).is_ok(), "{expected}");
        }
        assert_eq!(copy_of_query("copy t (a, a) to stdout", |_| Vec::new()), Err(CopyTableObstacle::ColumnTwice));
        assert_eq!(copy_of_query("copy t from stdin", |_| Vec::new()), Err(CopyTableObstacle::Unread));
    }
}
