//! The places of the rows in the text of an INSERT of `VALUES`, so that a part of the rows can be written as a text of its own.
//!
//! Texts with comments, strings with prefixes or backslashes, and dollar quotes have no places here.

use std::ops::Range;

use crate::skeleton::{after_identifier, after_parameter, after_string, after_word, is_word};

/// Places of rows, each from its parenthesis to the closing one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InsertRows {
    rows: Vec<Range<usize>>,
}

impl InsertRows {
    /// `None`: the text is another one, or something stands behind its rows, as `RETURNING` does.
    pub fn of(text: &str) -> Option<InsertRows> {
        let bytes = text.as_bytes();
        let mut at = behind_values(bytes)?;
        let mut rows = Vec::new();
        loop {
            at = behind_blanks(bytes, at);
            let end = behind_row(bytes, at)?;
            rows.push(at..end);
            at = behind_blanks(bytes, end);
            if bytes.get(at) != Some(&b',') {
                break;
            }
            at += 1;
        }
        let is_over = bytes[at..].iter().all(|byte| byte.is_ascii_whitespace() || *byte == b';');
        is_over.then_some(InsertRows { rows })
    }

    pub fn count(&self) -> usize {
        self.rows.len()
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
            _ if depth == 0 && text[at..end].eq_ignore_ascii_case(b"values") => return Some(end),
            _ => {}
        }
        at = end;
    }
    None
}

fn behind_row(text: &[u8], start: usize) -> Option<usize> {
    if text.get(start) != Some(&b'(') {
        return None;
    }
    let (mut at, mut depth) = (start + 1, 1_u32);
    while at < text.len() {
        let end = behind_token(text, at)?;
        match text[at] {
            b'(' => depth += 1,
            b')' => depth -= 1,
            _ => {}
        }
        at = end;
        if depth == 0 {
            return Some(at);
        }
    }
    None
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
    fn doubtful_texts_have_no_rows() {
        for text in [
            "insert into a select 1",
            "insert into a values (1), (2) returning id",
            "insert into a values (1) on conflict do nothing",
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
