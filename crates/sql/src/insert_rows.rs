//! The places of the rows in the text of an INSERT of `VALUES`, so that a part of the rows can be written as a text of its own.
//!
//! Texts with comments, strings with prefixes or backslashes, and dollar quotes have no places here.

use std::ops::Range;

use crate::skeleton::{after_identifier, after_parameter, after_string, after_word, is_word};

/// Places of rows, each from its parenthesis to the closing one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InsertRows {
    rows: Vec<Range<usize>>,
    /// What stands behind the rows: nothing, `ON CONFLICT` or `RETURNING`.
    behind: Range<usize>,
    parameters: Vec<RowParameter>,
}

/// One use of a parameter in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowParameter {
    /// From 1, as in `$1`.
    pub number: u32,
    pub row: usize,
    /// Place of the value in its row, if the parameter alone is the value.
    pub column: Option<usize>,
}

impl InsertRows {
    /// `None`: the text is another one, or has parameters outside of its rows.
    pub fn of(text: &str) -> Option<InsertRows> {
        let bytes = text.as_bytes();
        let mut at = behind_values(bytes)?;
        let (mut rows, mut parameters) = (Vec::new(), Vec::new());
        loop {
            at = behind_blanks(bytes, at);
            let end = behind_row(bytes, at, rows.len(), &mut parameters)?;
            rows.push(at..end);
            at = behind_blanks(bytes, end);
            if bytes.get(at) != Some(&b',') {
                break;
            }
            at += 1;
        }
        let behind = at..behind_clauses(bytes, at)?;
        Some(InsertRows { rows, behind, parameters })
    }

    pub fn count(&self) -> usize {
        self.rows.len()
    }

    /// All uses of parameters, in the order of the text.
    pub fn parameters(&self) -> &[RowParameter] {
        &self.parameters
    }

    /// The statement with some of its rows, by number.
    pub fn with_rows(&self, text: &str, rows: impl Iterator<Item = usize>) -> String {
        let begin = self.rows.first().map_or(0, |row| row.start);
        let mut part = text[..begin].to_owned();
        for (place, row) in rows.filter_map(|row| self.rows.get(row)).enumerate() {
            if place > 0 {
                part.push(',');
            }
            part.push_str(&text[row.clone()]);
        }
        if !self.behind.is_empty() {
            part.push(' ');
            part.push_str(&text[self.behind.clone()]);
        }
        part
    }
}

fn behind_blanks(text: &[u8], at: usize) -> usize {
    at + text[at..].iter().take_while(|byte| byte.is_ascii_whitespace()).count()
}

/// The end of what begins here: a word, a string, or one byte.
fn behind_token(text: &[u8], at: usize) -> Option<usize> {
    match text[at] {
        b'\'' => after_string(text, at),
        b'"' => after_identifier(text, at),
        b'$' => after_parameter(text, at),
        b'\\' => None,
        b'-' if text.get(at + 1) == Some(&b'-') => None,
        b'/' if text.get(at + 1) == Some(&b'*') => None,
        byte if is_word(byte) => Some(after_word(text, at)),
        _ => Some(at + 1),
    }
}

/// The end of the word VALUES outside of parentheses.
fn behind_values(text: &[u8]) -> Option<usize> {
    let (mut at, mut depth) = (0, 0_u32);
    while at < text.len() {
        let end = behind_token(text, at)?;
        match text[at] {
            b'(' => depth += 1,
            b')' => depth = depth.checked_sub(1)?,
            b'$' => return None,
            _ if depth == 0 && text[at..end].eq_ignore_ascii_case(b"values") => return Some(end),
            _ => {}
        }
        at = end;
    }
    None
}

/// The end of the row that begins here. Adds its parameters.
fn behind_row(text: &[u8], start: usize, row: usize, parameters: &mut Vec<RowParameter>) -> Option<usize> {
    if text.get(start) != Some(&b'(') {
        return None;
    }
    let (mut at, mut depth, mut column) = (start + 1, 1_u32, 0);
    let mut value = start + 1;
    while at < text.len() {
        let end = behind_token(text, at)?;
        match text[at] {
            b'(' => depth += 1,
            b')' => depth -= 1,
            b',' if depth == 1 => (column, value) = (column + 1, end),
            b'$' => {
                let number = std::str::from_utf8(&text[at + 1..end]).ok()?.parse().ok()?;
                let is_alone =
                    behind_blanks(text, value) == at && matches!(text.get(behind_blanks(text, end)), Some(b',' | b')'));
                parameters.push(RowParameter { number, row, column: (is_alone && depth == 1).then_some(column) });
            }
            _ => {}
        }
        at = end;
        if depth == 0 {
            return Some(at);
        }
    }
    None
}

/// The end of the clauses behind the rows, without the semicolon.
fn behind_clauses(text: &[u8], start: usize) -> Option<usize> {
    let (mut at, mut end) = (start, start);
    while at < text.len() {
        let behind = behind_token(text, at)?;
        let token = &text[at..behind];
        match text[at] {
            b';' => return text[behind..].iter().all(|byte| byte.is_ascii_whitespace() || *byte == b';').then_some(end),
            b'$' => return None,
            byte if byte.is_ascii_whitespace() => {}
            _ if at == start && !token.eq_ignore_ascii_case(b"on") && !token.eq_ignore_ascii_case(b"returning") => return None,
            _ => end = behind,
        }
        at = behind;
    }
    Some(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(text: &str) -> Option<Vec<String>> {
        let rows = InsertRows::of(text)?;
        Some((0..rows.count()).map(|row| rows.with_rows(text, std::iter::once(row))).collect())
    }

    #[test]
    fn a_part_of_the_rows_is_a_text_of_its_own() {
        let text = "INSERT INTO \"a(b\" (id, note) VALUES (1, 'x),(y'''), ( 2 , f((3), $4) ) ;";
        assert_eq!(
            parts(text).unwrap(),
            ["INSERT INTO \"a(b\" (id, note) VALUES (1, 'x),(y''')", "INSERT INTO \"a(b\" (id, note) VALUES ( 2 , f((3), $4) )"]
        );
        let rows = InsertRows::of(text).unwrap();
        assert_eq!(rows.with_rows(text, [1, 0].into_iter()).matches(',').count(), 6);
        assert_eq!(parts("insert into a values(1),(2)").unwrap()[1], "insert into a values(2)");
    }

    #[test]
    fn clauses_behind_the_rows_stand_in_each_part() {
        for behind in ["returning id, n + 1 as \"m;\"", "ON CONFLICT (id) DO NOTHING", "on conflict do nothing returning *"] {
            let parts = parts(&format!("insert into a values (1), (2) {behind} ; ")).unwrap();
            assert_eq!(parts, [1, 2].map(|row| format!("insert into a values ({row}) {behind}")));
        }
    }

    #[test]
    fn parameters_are_known_by_their_rows_and_columns() {
        let rows = InsertRows::of("insert into a values ($1, $2::int, '$9'), ( $3 , f($4), ($1))").unwrap();
        let uses: Vec<_> = rows.parameters().iter().map(|used| (used.number, used.row, used.column)).collect();
        assert_eq!(uses, [(1, 0, Some(0)), (2, 0, None), (3, 1, Some(0)), (4, 1, None), (1, 1, None)]);
    }

    #[test]
    fn doubtful_texts_have_no_rows() {
        for text in [
            "insert into a select 1",
            "insert into a values (1), (2) select 1",
            "insert into a values (1), (2) returning $1",
            "insert into a values (1) on conflict (id) do update set n = $1",
            "insert into a values (1), (2) returning id -- all",
            "with c as (select $1) insert into a values (1), (2)",
            "insert into a values (1) returning id; select 1",
            "insert into a values (1), (E'\\'), (2')",
            "insert into a values ($$(1), (2)$$)",
            "insert into a values (1), /* ( */ (2)",
            "insert into a values (1), -- (\n (2)",
            "insert into a values (1), (2",
            "insert into a values (1), 2",
            "insert into a (values (1))",
            "insert into a values (1); select 1",
            "",
        ] {
            assert_eq!(parts(text), None, "{text}");
        }
    }
}
