//! `COPY ... FROM STDIN`: the columns of its rows, and how they are written. Source: `ProcessCopyOptions` in copy.c.

use std::panic::catch_unwind;

use pg_raw_parse::Node;
use pg_raw_parse::nodes::{CopyStmt, DefElem};

use crate::facts::QualifiedName;

/// How rows come over the connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyFrom {
    pub relation: QualifiedName,
    /// Empty: all columns of the table that are not generated, in order.
    pub columns: Vec<String>,
    pub format: CopyFormat,
    /// The first line names columns.
    pub has_header: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CopyFormat {
    Text { delimiter: u8, null: String },
    Csv { delimiter: u8, quote: u8, escape: u8, null: String },
    Binary,
}

/// Why rows of a COPY cannot be told apart, or given to several servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyObstacle {
    /// No `COPY table FROM STDIN`, or not alone in its text.
    Otherwise,
    Where,
    HeaderMatch,
    /// `FORCE_NULL` and `FORCE_NOT_NULL` change which values are NULL.
    Forced,
    Encoding,
    Option,
    /// The server refuses it.
    Malformed,
}

/// Options of any format that change nothing here, or that the server judges alike for each part of the rows.
const WITHOUT_EFFECT: [&str; 2] = ["log_verbosity", "force_quote"];

/// Reads a text.
pub fn copy_from(text: &str) -> Result<CopyFrom, CopyObstacle> {
    let read = catch_unwind(|| {
        let tree = pg_raw_parse::parse(text).map_err(|_| CopyObstacle::Malformed)?;
        let mut statements = tree.iter();
        match (statements.next().map(|raw| raw.stmt()), statements.next()) {
            (Some(Node::CopyStmt(copy)), None) => of_statement(copy),
            _ => Err(CopyObstacle::Otherwise),
        }
    });
    read.unwrap_or(Err(CopyObstacle::Malformed))
}

pub(crate) fn takes_rows(copy: &CopyStmt) -> bool {
    copy.is_from && !copy.is_program && copy.filename().is_none()
}

#[derive(Default)]
struct GivenOptions {
    format: Option<String>,
    delimiter: Option<String>,
    null: Option<String>,
    quote: Option<String>,
    escape: Option<String>,
    has_header: bool,
}

fn of_statement(copy: &CopyStmt) -> Result<CopyFrom, CopyObstacle> {
    let Some(relation) = copy.relation().filter(|_| takes_rows(copy)) else {
        return Err(CopyObstacle::Otherwise);
    };
    if !matches!(copy.where_clause(), Node::None) {
        return Err(CopyObstacle::Where);
    }
    let mut given = GivenOptions::default();
    for option in copy.options() {
        take(&mut given, option)?;
    }
    let text = |name: Option<&str>| name.unwrap_or_default().to_owned();
    let columns = copy.attlist().iter().map(|column| match column {
        Node::String(name) => text(name.sval()),
        _ => String::new(),
    });
    Ok(CopyFrom {
        relation: QualifiedName { schema: text(relation.schemaname()), name: text(relation.relname()) },
        columns: columns.collect(),
        has_header: given.has_header,
        format: format(given)?,
    })
}

fn take(given: &mut GivenOptions, option: &DefElem) -> Result<(), CopyObstacle> {
    let word = || match option.arg() {
        Node::String(word) => word.sval().map(str::to_owned),
        _ => None,
    };
    match option.defname().unwrap_or_default() {
        "format" => given.format = word(),
        "delimiter" => given.delimiter = word(),
        "null" => given.null = word(),
        "quote" => given.quote = word(),
        "escape" => given.escape = word(),
        "header" => given.has_header = header(option, word().as_deref())?,
        "encoding" => return Err(CopyObstacle::Encoding),
        "force_null" | "force_not_null" => return Err(CopyObstacle::Forced),
        name if WITHOUT_EFFECT.contains(&name) => {}
        _ => return Err(CopyObstacle::Option),
    }
    Ok(())
}

/// Source: `defGetCopyHeaderChoice`.
fn header(option: &DefElem, word: Option<&str>) -> Result<bool, CopyObstacle> {
    let is = |known: &str| word.is_some_and(|word| word.eq_ignore_ascii_case(known));
    match option.arg() {
        Node::None => Ok(true),
        Node::Integer(number) if number.ival <= 1 => Ok(number.ival == 1),
        Node::Boolean(on) => Ok(on.boolval),
        _ if is("match") => Err(CopyObstacle::HeaderMatch),
        _ if is("true") || is("on") => Ok(true),
        _ if is("false") || is("off") => Ok(false),
        // Versions from 19 on take a number of lines.
        _ => Err(CopyObstacle::Option),
    }
}

fn format(given: GivenOptions) -> Result<CopyFormat, CopyObstacle> {
    let byte = |given: Option<String>, default: u8| match given.as_deref().map(str::as_bytes) {
        None => Ok(default),
        Some([byte]) => Ok(*byte),
        Some(_) => Err(CopyObstacle::Malformed),
    };
    match given.format.as_deref().unwrap_or("text") {
        "binary" => Ok(CopyFormat::Binary),
        "csv" => {
            let quote = byte(given.quote, b'"')?;
            let (delimiter, escape) = (byte(given.delimiter, b',')?, byte(given.escape, quote)?);
            Ok(CopyFormat::Csv { delimiter, quote, escape, null: given.null.unwrap_or_default() })
        }
        "text" => Ok(CopyFormat::Text {
            delimiter: byte(given.delimiter, b'\t')?,
            null: given.null.unwrap_or_else(|| "\\N".to_owned()),
        }),
        _ => Err(CopyObstacle::Malformed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(delimiter: u8, null: &str) -> CopyFormat {
        CopyFormat::Text { delimiter, null: null.to_owned() }
    }

    fn csv(delimiter: u8, quote: u8, escape: u8, null: &str) -> CopyFormat {
        CopyFormat::Csv { delimiter, quote, escape, null: null.to_owned() }
    }

    #[test]
    fn formats_are_read_with_their_defaults() {
        for (options, format, has_header) in [
            ("", text(b'\t', "\\N"), false),
            (" with (format text, delimiter '|', null 'x')", text(b'|', "x"), false),
            (" delimiters ';' with null as ''", text(b';', ""), false),
            (" with (format csv)", csv(b',', b'"', b'"', ""), false),
            (" csv header", csv(b',', b'"', b'"', ""), true),
            (" with csv delimiter ';' quote '''' escape '\\' null 'NULL'", csv(b';', b'\'', b'\\', "NULL"), false),
            (" (format csv, header on, force_quote *)", csv(b',', b'"', b'"', ""), true),
            (" (format csv, header false)", csv(b',', b'"', b'"', ""), false),
            (" (header 1)", text(b'\t', "\\N"), true),
            (" with binary", CopyFormat::Binary, false),
            (" (format binary)", CopyFormat::Binary, false),
        ] {
            let read = copy_from(&format!("copy s.t (a, \"B\") from stdin{options}")).unwrap();
            assert_eq!((&read.format, read.has_header), (&format, has_header), "{options}");
            assert_eq!(read.columns, ["a", "B"]);
            assert_eq!((&*read.relation.schema, &*read.relation.name), ("s", "t"));
        }
        assert!(copy_from("copy t from stdin").unwrap().columns.is_empty());
    }

    #[test]
    fn all_else_has_its_obstacle() {
        for (statement, obstacle) in [
            ("copy t to stdout", CopyObstacle::Otherwise),
            ("copy (select 1) to stdout", CopyObstacle::Otherwise),
            ("copy t from '/tmp/x'", CopyObstacle::Otherwise),
            ("copy t from program 'true'", CopyObstacle::Otherwise),
            ("copy t from stdin; select 1", CopyObstacle::Otherwise),
            ("select 1", CopyObstacle::Otherwise),
            ("copy t from stdin where a > 1", CopyObstacle::Where),
            ("copy t from stdin (format csv, header match)", CopyObstacle::HeaderMatch),
            ("copy t from stdin (format csv, force_null (a))", CopyObstacle::Forced),
            ("copy t from stdin csv force not null a", CopyObstacle::Forced),
            ("copy t from stdin (encoding 'latin1')", CopyObstacle::Encoding),
            ("copy t from stdin (freeze)", CopyObstacle::Option),
            ("copy t from stdin (on_error ignore)", CopyObstacle::Option),
            ("copy t from stdin (default 'x')", CopyObstacle::Option),
            ("copy t from stdin (delimiter 'ab')", CopyObstacle::Malformed),
            ("copy t from stdin (format parquet)", CopyObstacle::Malformed),
            ("copy t from", CopyObstacle::Malformed),
        ] {
            assert_eq!(copy_from(statement).err(), Some(obstacle), "{statement}");
        }
    }
}
