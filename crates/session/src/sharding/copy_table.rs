//! `COPY table TO STDOUT` of a sharded table, written as the COPY of a query: the engine's tables are partitioned, and PostgreSQL copies only queries of
//! such.

use crate::fault::{ErrorReport, sqlstate};
use crate::sharding;
use weir_sql::copy_to::{CopyOption, CopyOptionValue, CopyTo, copy_to};
use weir_wire::write::{identifier, literal};

/// Why a table is not copied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CopyTableObstacle {
    Unread,
    /// PostgreSQL takes a name twice in a query, and refuses it here.
    ColumnTwice,
    /// PostgreSQL takes it in a query, and refuses it here.
    ColumnGenerated(String),
}

impl CopyTableObstacle {
    pub fn report(&self) -> ErrorReport {
        match self {
            CopyTableObstacle::Unread => sharding::cannot_copy("its options are not read"),
            CopyTableObstacle::ColumnTwice => sharding::cannot_copy("a column is named twice"),
            // PostgreSQL's own words (`CopyGetAttnums`).
            CopyTableObstacle::ColumnGenerated(name) => {
                ErrorReport::error(sqlstate::INVALID_COLUMN_REFERENCE, format!("column \"{name}\" is a generated column"))
                    .detail("Generated columns cannot be used in COPY.")
            }
        }
    }
}

/// Columns of a table, in order.
#[derive(Clone, Debug, Default)]
pub struct TableColumns {
    /// The columns that a COPY without names of columns has.
    pub copied: Vec<String>,
    pub generated: Vec<String>,
}

/// `columns_of`: the table that the text names.
pub fn copy_of_query(text: &str, columns_of: impl Fn(&CopyTo) -> TableColumns) -> Result<String, CopyTableObstacle> {
    let copy = copy_to(text).ok_or(CopyTableObstacle::Unread)?;
    let TableColumns { copied, generated } = columns_of(&copy);
    if let Some(name) = copy.columns.iter().find(|name| generated.contains(name)) {
        return Err(CopyTableObstacle::ColumnGenerated(name.clone()));
    }
    let columns = if copy.columns.is_empty() { copied } else { copy.columns.clone() };
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

    fn columns() -> TableColumns {
        TableColumns { copied: vec!["a".to_owned(), "B".to_owned()], generated: vec!["g".to_owned()] }
    }

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
            let written = copy_of_query(text, |_| columns());
            assert_eq!(written.as_deref(), Ok(expected), "{text}");
            assert!(weir_sql::key_terms(expected).is_ok(), "{expected}");
        }
        assert_eq!(copy_of_query("copy t (a, a) to stdout", |_| columns()), Err(CopyTableObstacle::ColumnTwice));
        let generated = copy_of_query("copy t (a, g) to stdout", |_| columns()).unwrap_err();
        assert_eq!(generated.report().sqlstate, "42P10");
        assert_eq!(copy_of_query("copy t from stdin", |_| columns()), Err(CopyTableObstacle::Unread));
    }
}
