//! `COPY table TO STDOUT`: its columns and options, from which the COPY of a query can be written. Source: `copy_opt_list` in gram.y.

use std::panic::catch_unwind;

use pg_raw_parse::Node;
use pg_raw_parse::nodes::{CopyStmt, DefElem};

use crate::facts::QualifiedName;

/// A COPY of a table to the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyTo {
    pub relation: QualifiedName,
    /// Empty: all columns of the table that are not generated, in order.
    pub columns: Vec<String>,
    pub options: Vec<CopyOption>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyOption {
    pub name: String,
    pub value: CopyOptionValue,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CopyOptionValue {
    None,
    Text(String),
    Number(i32),
    Truth(bool),
    /// `*`
    All,
    Names(Vec<String>),
}

/// Reads a text. `None`: it is another one, or has an option of another form.
pub fn copy_to(text: &str) -> Option<CopyTo> {
    let read = catch_unwind(|| {
        let tree = pg_raw_parse::parse(text).ok()?;
        let mut statements = tree.iter();
        match (statements.next().map(|raw| raw.stmt()), statements.next()) {
            (Some(Node::CopyStmt(copy)), None) if gives_rows(copy) => of_statement(copy),
            _ => None,
        }
    });
    read.unwrap_or(None)
}

/// True if the rows go to the client.
pub(crate) fn gives_rows(copy: &CopyStmt) -> bool {
    !copy.is_from && !copy.is_program && copy.filename().is_none()
}

fn of_statement(copy: &CopyStmt) -> Option<CopyTo> {
    let relation = copy.relation()?;
    let text = |name: Option<&str>| name.unwrap_or_default().to_owned();
    Some(CopyTo {
        relation: QualifiedName { schema: text(relation.schemaname()), name: text(relation.relname()) },
        columns: copy.attlist().iter().map(name_of).collect::<Option<_>>()?,
        options: copy.options().iter().map(option).collect::<Option<_>>()?,
    })
}

fn option(given: &DefElem) -> Option<CopyOption> {
    let value = match given.arg() {
        Node::None => CopyOptionValue::None,
        Node::String(word) => CopyOptionValue::Text(word.sval()?.to_owned()),
        Node::Integer(number) => CopyOptionValue::Number(number.ival),
        Node::Boolean(truth) => CopyOptionValue::Truth(truth.boolval),
        Node::A_Star(_) => CopyOptionValue::All,
        Node::NodeList(names) => CopyOptionValue::Names(names.iter().map(name_of).collect::<Option<_>>()?),
        _ => return None,
    };
    Some(CopyOption { name: given.defname()?.to_owned(), value })
}

fn name_of(node: Node<'_>) -> Option<String> {
    match node {
        Node::String(name) => Some(name.sval()?.to_owned()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_of_a_table_has_its_columns_and_options() {
        let told = |text: &str| copy_to(text).map(|copy| (copy.relation.to_string(), copy.columns, copy.options));
        let option = |name: &str, value: CopyOptionValue| CopyOption { name: name.to_owned(), value };
        let text = |text: &str| CopyOptionValue::Text(text.to_owned());
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        assert_eq!(told("copy t to stdout"), Some(("t".to_owned(), Vec::new(), Vec::new())));
        assert_eq!(
            told("COPY s.\"T\" (a, \"B c\") TO STDOUT (FORMAT csv, HEADER, DELIMITER ';', FORCE_QUOTE (a), ENCODING 'utf8')"),
            Some((
                "s.T".to_owned(),
                names(&["a", "B c"]),
                vec![
                    option("format", text("csv")),
                    option("header", CopyOptionValue::None),
                    option("delimiter", text(";")),
                    option("force_quote", CopyOptionValue::Names(names(&["a"]))),
                    option("encoding", text("utf8")),
                ]
            ))
        );
        assert_eq!(
            told("copy t to stdout with delimiter as '|' null as 'x' csv header quote 'q' force quote *").map(|told| told.2),
            Some(vec![
                option("delimiter", text("|")),
                option("null", text("x")),
                option("format", text("csv")),
                option("header", CopyOptionValue::Truth(true)),
                option("quote", text("q")),
                option("force_quote", CopyOptionValue::All),
            ])
        );
        assert_eq!(told("copy binary t to stdout").map(|told| told.2), Some(vec![option("format", text("binary"))]));
        for text in ["copy t from stdin", "copy t to '/x'", "copy t to program 'x'", "copy (select 1) to stdout", "x"] {
            assert_eq!(told(text), None, "{text}");
        }
    }
}
