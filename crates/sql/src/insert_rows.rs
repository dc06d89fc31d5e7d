//! The places of the rows in the text of an INSERT of `VALUES`, so that a part of the rows can be written as a text of its own.
//!
//! Texts with comments, strings with prefixes or backslashes, and dollar quotes have no places here.

use std::ops::Range;

use crate::skeleton::{after_identifier, after_parameter, after_string, after_word, is_word};

/// Places of rows, each from its parenthesis to the closing one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InsertRows {
    rows: Vec<Range<usize>>,
    /// The text behind the rows: nothing, `ON CONFLICT` or `RETURNING`.
    behind: Range<usize>,
    parameters: Vec<RowParameter>,
    strings: Vec<RowString>,
}

/// A string that alone is a value of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
struct RowString {
    place: Range<usize>,
    column: usize,
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
        let mut found = InsertRows { rows: Vec::new(), behind: 0..0, parameters: Vec::new(), strings: Vec::new() };
        loop {
            at = behind_blanks(bytes, at);
            let end = found.add_row(bytes, at)?;
            found.rows.push(at..end);
            at = behind_blanks(bytes, end);
            if bytes.get(at) != Some(&b',') {
                break;
            }
            at += 1;
        }
        found.behind = at..behind_clauses(bytes, at)?;
        Some(found)
    }

    /// The end of the row that begins here. Adds what stands in it.
    fn add_row(&mut self, text: &[u8], start: usize) -> Option<usize> {
        if text.get(start) != Some(&b'(') {
            return None;
        }
        let (mut at, mut depth, mut column) = (start + 1, 1_u32, 0);
        let mut value = start + 1;
        while at < text.len() {
            let end = behind_token(text, at)?;
            let is_alone = || {
                let is_ended = matches!(text.get(behind_blanks(text, end)), Some(b',' | b')'));
                depth == 1 && is_ended && behind_blanks(text, value) == at
            };
            match text[at] {
                b'(' => depth += 1,
                b')' => depth -= 1,
                b',' if depth == 1 => (column, value) = (column + 1, end),
                b'\'' if is_alone() => self.strings.push(RowString { place: at..end, column }),
                b'$' => {
                    let number = std::str::from_utf8(&text[at + 1..end]).ok()?.parse().ok()?;
                    self.parameters.push(RowParameter { number, row: self.rows.len(), column: is_alone().then_some(column) });
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

    /// The text without strings that alone are the values of some columns.
    pub fn without_strings(&self, text: &str, is_of: impl Fn(usize) -> bool) -> String {
        let (mut rest, mut at) = (String::new(), 0);
        for string in self.strings.iter().filter(|string| is_of(string.column)) {
            rest.push_str(&text[at..string.place.start]);
            at = string.place.end;
        }
        rest + &text[at..]
    }

    /// True if clauses behind the rows may compute with their values: they have casts or calls. True in doubt.
    pub fn computes_behind(&self, text: &str) -> bool {
        let behind = &text[self.behind.clone()];
        let words = behind.split_inclusive('(').filter(|part| part.ends_with('('));
        let is_call = |part: &str| {
            let word = part.trim_end_matches('(').trim_end().rsplit(|byte: char| byte.is_whitespace()).next();
            !word.is_some_and(|word| word.eq_ignore_ascii_case("conflict"))
        };
        behind.contains(':') || words.into_iter().any(is_call)
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
    fn strings_of_some_columns_may_be_left_out() {
        let text = "insert into a values (1, 'now', 'x,'), (2, ' today' , 'now'), (3, 'now' || '', f('now')) returning id";
        let rows = InsertRows::of(text).unwrap();
        assert_eq!(
            rows.without_strings(text, |column| column == 1),
            "insert into a values (1, , 'x,'), (2,  , 'now'), (3, 'now' || '', f('now')) returning id"
        );
        assert_eq!(rows.without_strings(text, |_| false), text);
    }

    #[test]
    fn clauses_behind_the_rows_that_may_compute_are_known() {
        for (behind, expected) in [
            ("", false),
            ("returning id, note", false),
            ("on conflict (id) do update set note = excluded.note", false),
            ("returning note::timestamp", true),
            ("returning cast (note as timestamp)", true),
            ("returning f(note)", true),
            ("on conflict (lower(note)) do nothing", true),
        ] {
            let text = format!("insert into a values (1), (2) {behind}");
            assert_eq!(InsertRows::of(&text).unwrap().computes_behind(&text), expected, "{behind}");
        }
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
