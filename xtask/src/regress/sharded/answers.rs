//! Answers of two sides to one text, and how they differ.

use std::fmt;

use super::tokens::{self, Kind, Token};

/// No object of PostgreSQL itself has such a number. Those of users differ from server to server.
const FIRST_USER_OID: u32 = 16384;
/// Of a statement that Weir does not carry out, or not now.
const REFUSED: [&str; 2] = ["0A000", "57P03"];

/// All that a server said about one text.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Answer {
    pub parts: Vec<Part>,
    /// The first error.
    pub failure: Option<Failure>,
    /// Of the transaction: I, T or E.
    pub status: char,
}

/// Of one statement.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Part {
    pub columns: Vec<Column>,
    pub rows: Vec<Vec<Option<String>>>,
    /// Data of a COPY.
    pub copied: Vec<u8>,
    pub tag: String,
}

/// A column of a result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    pub name: String,
    pub type_oid: u32,
    pub modifier: i32,
}

/// An error.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Failure {
    pub severity: String,
    pub sqlstate: String,
    pub message: String,
    pub detail: String,
    /// PostgreSQL names the place in its sources, and Weir has none to name.
    pub is_of_server: bool,
}

/// How two answers differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Difference {
    /// One fails, or by another SQLSTATE.
    Error,
    Tag,
    Columns,
    Rows,
    /// Equal rows, in another order than the text asks for.
    Order,
    /// State of the transaction.
    Status,
    /// No answer.
    Lost,
    /// Rows of a table afterwards.
    Table,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Difference::Error => "error",
            Difference::Tag => "tag",
            Difference::Columns => "columns",
            Difference::Rows => "rows",
            Difference::Order => "order",
            Difference::Status => "status",
            Difference::Lost => "lost",
            Difference::Table => "table",
        })
    }
}

impl Answer {
    /// The reason, if Weir has refused the text.
    pub fn refusal(&self) -> Option<String> {
        let failure =
            self.failure.as_ref().filter(|failure| REFUSED.contains(&failure.sqlstate.as_str()) && !failure.is_of_server)?;
        Some(if failure.detail.is_empty() {
            failure.message.clone()
        } else {
            format!("{} ({})", failure.message, failure.detail)
        })
    }

    /// True if the engine follows a change of tables: the text may be asked again.
    pub fn is_engine_behind(&self) -> bool {
        self.failure.as_ref().is_some_and(|failure| {
            let says = |words: &str| failure.message.contains(words) || failure.detail.contains(words);
            !failure.is_of_server && (failure.sqlstate == "57P03" || says("engine is not ready") || says("read anew"))
        })
    }
}

/// The first difference, in the order of what weighs most. `text`: of both.
pub fn difference(text: &str, weir: &Answer, whole: &Answer) -> Option<Difference> {
    let sqlstate = |answer: &Answer| answer.failure.as_ref().map(|failure| failure.sqlstate.clone());
    if sqlstate(weir) != sqlstate(whole) {
        return Some(Difference::Error);
    }
    let tags = |answer: &Answer| answer.parts.iter().map(|part| part.tag.clone()).collect::<Vec<_>>();
    if tags(weir) != tags(whole) {
        return Some(Difference::Tag);
    }
    let is_one = weir.parts.len() == 1;
    let found = weir.parts.iter().zip(&whole.parts).find_map(|(weir, whole)| of_parts(text, weir, whole, is_one));
    found.or((weir.status != whole.status).then_some(Difference::Status))
}

fn of_parts(text: &str, weir: &Part, whole: &Part, is_one: bool) -> Option<Difference> {
    if !are_alike(&weir.columns, &whole.columns) {
        return Some(Difference::Columns);
    }
    if tokens::all(text).first().is_some_and(|first| first.is_word("explain")) {
        return None;
    }
    let sorted = |part: &Part| {
        let mut rows = part.rows.clone();
        rows.sort();
        rows
    };
    let lines = |part: &Part| {
        let mut lines: Vec<Vec<u8>> = part.copied.split(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
        lines.sort();
        lines
    };
    if sorted(weir) != sorted(whole) || lines(weir) != lines(whole) {
        return Some(Difference::Rows);
    }
    let by = if is_one { sort_columns(text, &whole.columns) } else { Vec::new() };
    let keys = |part: &Part| {
        let key = |row: &Vec<Option<String>>| by.iter().map(|at| row.get(*at).cloned()).collect::<Vec<_>>();
        part.rows.iter().map(key).collect::<Vec<_>>()
    };
    (keys(weir) != keys(whole)).then_some(Difference::Order)
}

fn are_alike(one: &[Column], other: &[Column]) -> bool {
    let is_alike = |(one, other): (&Column, &Column)| {
        let are_of_users = one.type_oid >= FIRST_USER_OID && other.type_oid >= FIRST_USER_OID;
        one.name == other.name && one.modifier == other.modifier && (one.type_oid == other.type_oid || are_of_users)
    };
    one.len() == other.len() && one.iter().zip(other).all(is_alike)
}

/// Columns of the result by which the text sorts it, as far as they are columns of the result.
fn sort_columns(text: &str, columns: &[Column]) -> Vec<usize> {
    let tokens = outer_tokens(text);
    let is_order = |pair: &[Token<'_>]| pair[0].is_word("order") && pair[1].is_word("by");
    let Some(at) = tokens.windows(2).rposition(is_order) else { return Vec::new() };
    let is_end = |token: &Token<'_>| ["limit", "offset", "fetch", "for"].iter().any(|word| token.is_word(word));
    let list: Vec<Token<'_>> = tokens[at + 2..].iter().copied().take_while(|token| !is_end(token)).collect();
    list.split(|token| token.text == ",").map_while(|item| sort_column(item, columns)).collect()
}

/// Tokens outside of parentheses; a pair of parentheses is one of its own.
fn outer_tokens(text: &str) -> Vec<Token<'_>> {
    let mut depth = 0_u32;
    let mut outer = Vec::new();
    for token in tokens::all(text) {
        match token.kind {
            Kind::Open => {
                if depth == 0 {
                    outer.push(token);
                }
                depth += 1;
            }
            Kind::Close => depth = depth.saturating_sub(1),
            _ if depth == 0 => outer.push(token),
            _ => {}
        }
    }
    outer
}

fn sort_column(item: &[Token<'_>], columns: &[Column]) -> Option<usize> {
    let is_direction = |token: &Token<'_>| ["asc", "desc", "nulls"].iter().any(|word| token.is_word(word));
    let end = item.iter().position(is_direction).unwrap_or(item.len());
    match &item[..end] {
        [number] if number.kind == Kind::Other => {
            number.text.parse::<usize>().ok()?.checked_sub(1).filter(|at| *at < columns.len())
        }
        [.., dot, name] if dot.text == "." => unique(&name.name()?, columns),
        [name] => unique(&name.name()?, columns),
        _ => None,
    }
}

fn unique(name: &str, columns: &[Column]) -> Option<usize> {
    let mut found = columns.iter().enumerate().filter(|(_, column)| column.name == name);
    let (at, _) = found.next()?;
    found.next().is_none().then_some(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(name: &str) -> Column {
        Column { name: name.to_owned(), type_oid: 23, modifier: -1 }
    }

    fn answer(rows: &[[&str; 2]]) -> Answer {
        let rows = rows.iter().map(|row| row.iter().map(|cell| Some((*cell).to_owned())).collect()).collect();
        let part = Part { columns: vec![column("a"), column("b")], rows, tag: "SELECT".to_owned(), ..Part::default() };
        Answer { parts: vec![part], failure: None, status: 'I' }
    }

    #[test]
    fn rows_count_in_order_as_far_as_the_text_sorts_them() {
        let (one, other) = (answer(&[["1", "x"], ["2", "y"], ["2", "z"]]), answer(&[["1", "x"], ["2", "z"], ["2", "y"]]));
        assert_eq!(difference("select a, b from t order by a", &one, &other), None);
        assert_eq!(difference("select a, b from t order by a, 2 desc limit 3", &one, &other), Some(Difference::Order));
        assert_eq!(difference("select a, b from (select * from t order by b) s", &one, &other), None);
        assert_eq!(difference("select a, b from t", &one, &answer(&[["1", "x"]])), Some(Difference::Rows));
    }

    #[test]
    fn errors_count_by_their_sqlstate() {
        let failing = |sqlstate: &str| Answer {
            failure: Some(Failure { sqlstate: sqlstate.to_owned(), ..Failure::default() }),
            status: 'I',
            ..Answer::default()
        };
        assert_eq!(difference("x", &failing("42601"), &failing("42601")), None);
        assert_eq!(difference("x", &failing("42601"), &failing("42703")), Some(Difference::Error));
        assert!(failing("0A000").refusal().is_some() && failing("42601").refusal().is_none());
    }

    #[test]
    fn types_of_users_have_other_numbers_on_each_server() {
        let typed = |type_oid| Column { type_oid, ..column("a") };
        assert!(are_alike(&[typed(16390)], &[typed(16400)]) && !are_alike(&[typed(23)], &[typed(16400)]));
    }
}
