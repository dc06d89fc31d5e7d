//! A text without its literals: texts with one skeleton share facts. Runs for every statement: one pass, no keyword
//! table, no allocation beyond the caller's buffer.
//!
//! Invariant: PostgreSQL's grammar accepts or refuses texts of one skeleton together, with equal facts. So a literal
//! that may mean more than its class is refused: outside of queries and DML (`SET x = 'a'`, `EXPLAIN (ANALYZE 0)`), in
//! several statements, near backslashes, comments, dollar quotes and prefixed strings. `tests/skeleton.rs` compares
//! facts.

use std::ops::Range;

use crate::TEXT_BYTES_MAX;

/// Placeholder of a number that fits `integer`; the grammar asks for it (`char(10)`).
pub(crate) const INTEGER: u8 = 0x01;
pub(crate) const STRING: u8 = 0x02;
pub(crate) const DECIMAL: u8 = 0x03;

/// Statements whose literals are values only.
const FIRST_WORDS: [&str; 7] = ["select", "insert", "update", "delete", "with", "values", "merge"];

#[derive(Clone, Copy, PartialEq, Eq)]
enum ByteClass {
    Plain,
    /// A letter, `_` or a byte beyond ASCII.
    Letter,
    Digit,
    Dot,
    Quote,
    DoubleQuote,
    Dollar,
    /// Begins a comment when doubled or before `*`.
    Dash,
    Slash,
    Semicolon,
    /// A backslash, or a byte used as placeholder.
    Foreign,
}

const CLASSES: [ByteClass; 256] = classes();

const fn classes() -> [ByteClass; 256] {
    let mut classes = [ByteClass::Plain; 256];
    let mut byte = 0;
    while byte < 256 {
        classes[byte] = match byte as u8 {
            b'a'..=b'z' | b'A'..=b'Z' | b'_' | 0x80.. => ByteClass::Letter,
            b'0'..=b'9' => ByteClass::Digit,
            b'.' => ByteClass::Dot,
            b'\'' => ByteClass::Quote,
            b'"' => ByteClass::DoubleQuote,
            b'$' => ByteClass::Dollar,
            b'-' => ByteClass::Dash,
            b'/' => ByteClass::Slash,
            b';' => ByteClass::Semicolon,
            b'\\' | 0 | INTEGER | STRING | DECIMAL => ByteClass::Foreign,
            _ => ByteClass::Plain,
        };
        byte += 1;
    }
    classes
}

/// Writes the skeleton of `text` to `out`. `false`: not reducible, and `out` is an exact copy; keep the two kinds
/// apart.
pub fn skeleton(text: &[u8], out: &mut Vec<u8>) -> bool {
    out.clear();
    out.reserve(text.len());
    let reduced = is_reducible(text) && reduce(text, &mut SkeletonText { out, copied: 0 }).is_some();
    if !reduced {
        out.clear();
        out.extend_from_slice(text);
    }
    reduced
}

fn is_reducible(text: &[u8]) -> bool {
    text.len() <= TEXT_BYTES_MAX && begins_a_query(text)
}

/// Is told of each literal that a skeleton drops. `None` ends the pass.
pub(crate) trait LiteralSink {
    fn literal(&mut self, text: &[u8], class: u8, place: Range<usize>) -> Option<()>;
    fn end(&mut self, text: &[u8]);
}

/// Writes the skeleton.
struct SkeletonText<'o> {
    out: &'o mut Vec<u8>,
    /// Bytes of the text that are written, or dropped.
    copied: usize,
}

impl LiteralSink for SkeletonText<'_> {
    #[inline]
    fn literal(&mut self, text: &[u8], class: u8, place: Range<usize>) -> Option<()> {
        self.out.extend_from_slice(&text[self.copied..place.start]);
        self.out.push(class);
        self.copied = place.end;
        Some(())
    }

    #[inline]
    fn end(&mut self, text: &[u8]) {
        self.out.extend_from_slice(&text[self.copied..]);
    }
}

/// Shows the literals of `text` in order. `None`: its skeleton keeps them, or the sink ended the pass.
pub(crate) fn show_literals(text: &[u8], sink: &mut impl LiteralSink) -> Option<()> {
    if is_reducible(text) { reduce(text, sink) } else { None }
}

/// As `show_literals`, for the one literal that begins here. Returns its end.
#[inline]
pub(crate) fn after_literal(text: &[u8], at: usize, sink: &mut impl LiteralSink) -> Option<usize> {
    match CLASSES[usize::from(*text.get(at)?)] {
        ByteClass::Digit => after_number(text, at, sink),
        ByteClass::Dot if next_is_digit(text, at) => after_number(text, at, sink),
        ByteClass::Quote => {
            let end = after_string(text, at)?;
            sink.literal(text, STRING, at..end)?;
            Some(end)
        }
        _ => None,
    }
}

fn begins_a_query(text: &[u8]) -> bool {
    let text = text.trim_ascii_start();
    let letters = text.iter().take_while(|b| b.is_ascii_alphabetic()).count();
    let word = &text[..letters];
    // A longer word is no statement and refused alike.
    FIRST_WORDS.iter().any(|known| word.eq_ignore_ascii_case(known.as_bytes()))
}

/// Returns `None` at the first doubtful byte.
fn reduce(text: &[u8], sink: &mut impl LiteralSink) -> Option<()> {
    let mut at = 0;
    while let Some(&byte) = text.get(at) {
        at = match CLASSES[byte as usize] {
            ByteClass::Plain => at + 1,
            ByteClass::Letter => after_word(text, at),
            ByteClass::DoubleQuote => after_identifier(text, at)?,
            ByteClass::Digit => after_number(text, at, sink)?,
            ByteClass::Dot if next_is_digit(text, at) => after_number(text, at, sink)?,
            ByteClass::Dot => at + 1,
            ByteClass::Quote => {
                let end = after_string(text, at)?;
                sink.literal(text, STRING, at..end)?;
                end
            }
            ByteClass::Dollar => after_parameter(text, at)?,
            ByteClass::Dash if text.get(at + 1) == Some(&b'-') => return None,
            ByteClass::Slash if text.get(at + 1) == Some(&b'*') => return None,
            ByteClass::Dash | ByteClass::Slash => at + 1,
            ByteClass::Semicolon if text[at + 1..].trim_ascii_start().is_empty() => text.len(),
            ByteClass::Semicolon | ByteClass::Foreign => return None,
        };
    }
    sink.end(text);
    Some(())
}

/// True for `ident_cont` in scan.l.
#[inline]
pub(crate) fn is_word(byte: u8) -> bool {
    WORD[byte as usize]
}

/// True if digits before this byte are a whole number.
#[inline]
pub(crate) fn ends_number(byte: u8) -> bool {
    byte != b'.' && !is_word(byte)
}

/// `is_word` as a table: used for most bytes.
const WORD: [bool; 256] = {
    let mut words = [false; 256];
    let mut byte = 0;
    while byte < words.len() {
        words[byte] = matches!(CLASSES[byte], ByteClass::Letter | ByteClass::Digit | ByteClass::Dollar);
        byte += 1;
    }
    words
};

fn next_is_digit(text: &[u8], at: usize) -> bool {
    text.get(at + 1).is_some_and(u8::is_ascii_digit)
}

/// Unrolled by four: words are most of a text.
#[inline]
fn word_bytes(text: &[u8]) -> usize {
    let mut at = 0;
    while let [one, two, three, four, ..] = text[at..] {
        if !is_word(one) {
            return at;
        }
        if !is_word(two) {
            return at + 1;
        }
        if !is_word(three) {
            return at + 2;
        }
        if !is_word(four) {
            return at + 3;
        }
        at += 4;
    }
    at + text[at..].iter().take_while(|byte| is_word(**byte)).count()
}

pub(crate) fn after_word(text: &[u8], at: usize) -> usize {
    let mut at = at;
    loop {
        at += word_bytes(&text[at..]);
        if text.get(at) != Some(&b'.') || !next_is_digit(text, at) {
            return at;
        }
        at += 1;
    }
}

/// `U&"` is refused: a later literal may decide its decoding.
pub(crate) fn after_identifier(text: &[u8], at: usize) -> Option<usize> {
    if at > 0 && (text[at - 1] == b'&' || is_word(text[at - 1])) {
        return None;
    }
    let mut at = at + 1;
    loop {
        at += text[at..].iter().position(|&b| b == b'"')?;
        if text.get(at + 1) != Some(&b'"') {
            return Some(at + 1);
        }
        at += 2;
    }
}

/// Refuses prefixes, and backslashes (escapes in some sessions).
pub(crate) fn after_string(text: &[u8], start: usize) -> Option<usize> {
    if start > 0 && (text[start - 1] == b'&' || is_word(text[start - 1])) {
        return None;
    }
    let mut at = start + 1;
    loop {
        match *text.get(at)? {
            b'\'' if text.get(at + 1) == Some(&b'\'') => at += 2,
            b'\'' => return Some(at + 1),
            b'\\' | 0..=DECIMAL => return None,
            _ => at += 1,
        }
    }
}

pub(crate) fn after_parameter(text: &[u8], at: usize) -> Option<usize> {
    next_is_digit(text, at).then(|| after_word(text, at + 1))
}

/// Leaves numbers with letters (`1e5`, `0x1F`, `1_000`).
#[inline]
fn after_number(text: &[u8], at: usize, sink: &mut impl LiteralSink) -> Option<usize> {
    let mut end = at;
    let mut dots = 0;
    while let Some(&byte) = text.get(end) {
        match byte {
            b'0'..=b'9' => end += 1,
            b'.' => (end, dots) = (end + 1, dots + 1),
            _ if is_word(byte) => return Some(after_word(text, end)),
            _ => break,
        }
    }
    if dots > 1 || follows_float(&text[..at]) {
        return None;
    }
    let class = if dots == 0 && fits_integer(&text[at..end]) { INTEGER } else { DECIMAL };
    sink.literal(text, class, at..end)?;
    Some(end)
}

/// True if PostgreSQL's scanner takes the digits for an `integer`.
fn fits_integer(digits: &[u8]) -> bool {
    if digits.len() < 10 {
        return true;
    }
    let zeros = digits.iter().take_while(|b| **b == b'0').count();
    let digits = &digits[zeros..];
    digits.len() < 10 || (digits.len() == 10 && digits <= b"2147483647")
}

/// True before the precision in `float(24)`, the only number that the grammar itself weighs.
fn follows_float(before: &[u8]) -> bool {
    let Some(before) = before.trim_ascii_end().strip_suffix(b"(") else { return false };
    let before = before.trim_ascii_end();
    before.len() >= 5 && before[before.len() - 5..].eq_ignore_ascii_case(b"float")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Placeholders are shown as `#` (integer), `?` (string) and `~` (decimal).
    fn check_skeleton(text: &str, expected: &str) {
        let mut out = Vec::new();
        assert!(skeleton(text.as_bytes(), &mut out), "refused: {text}");
        let shown = String::from_utf8(out).unwrap().replace('\x01', "#").replace('\x02', "?").replace('\x03', "~");
        assert_eq!(shown, expected);
    }

    fn check_refused(text: &[u8]) {
        let mut out = b"left over".to_vec();
        assert!(!skeleton(text, &mut out), "{}", String::from_utf8_lossy(text));
        assert_eq!(out, text);
    }

    #[test]
    fn values_become_placeholders() {
        check_skeleton("SELECT 1", "SELECT #");
        check_skeleton("select a1, t.b2, 'it''s', '' from t where x=-12", "select a1, t.b2, ?, ? from t where x=-#");
        check_skeleton("select \"a\"\"1\", \"\"\"\" from t where b = 2", "select \"a\"\"1\", \"\"\"\" from t where b = #");
        check_skeleton("select 1.5, .5, 5., 2147483647, 2147483648", "select ~, ~, ~, #, ~");
        check_skeleton("select 00000000000001, 99999999999999999999", "select #, ~");
        check_skeleton("select a[1:2], (3), $1, 4::int8", "select a[#:#], (#), $1, #::int8");
        check_skeleton(" \n VALUES(1,'ä')", " \n VALUES(#,?)");
        check_skeleton("select 'a'\n 'b'", "select ?\n ?");
        check_skeleton("select interval '1' day;  ", "select interval ? day;  ");
        check_skeleton("insert into t values (1, 'x'), (2, 'y')", "insert into t values (#, ?), (#, ?)");
    }

    #[test]
    fn a_string_may_be_in_any_encoding() {
        let mut out = Vec::new();
        assert!(skeleton(b"select '\xff' from t", &mut out));
        assert_eq!(out, b"select \x02 from t");
    }

    #[test]
    fn what_only_looks_like_a_value_stays() {
        check_skeleton("select \"a 1 'x\"\"y\", tab_1, x$1, ü1", "select \"a 1 'x\"\"y\", tab_1, x$1, ü1");
        check_skeleton("select 1e5, 0x1F, 1_000, 1.5e-7, 12abc", "select 1e5, 0x1F, 1_000, 1.5e-#, 12abc");
        check_skeleton("select t.5, t.1.2, $1.5", "select t.5, t.1.2, $1.5");
        check_skeleton("select a - b / c", "select a - b / c");
    }

    #[test]
    fn what_leaves_a_doubt_is_refused() {
        for text in [
            "",
            "1",
            "set x = 'a'",
            "explain (analyze 0) select 1",
            "table t",
            "(select 1)",
            "selected 1",
            "select 1; select 2",
            "select 1;;",
            "select 'a",
            "select \"a",
            "select 'a\\'",
            "select e'a'",
            "select U&'a'",
            "select U&\"a\" uescape '!'",
            "select b'1'",
            "select N'a'",
            "select 1'a'",
            "select $$a$$",
            "select $a$",
            "select 1 -- x",
            "select /* x */ 1",
            "select 1..2",
            "select 1.2.3",
            "select \x01",
            "select '\x02'",
            "select x::float(24)",
            "select x::FLOAT ( 24)",
            "select \\",
        ] {
            check_refused(text.as_bytes());
        }
        check_refused("x".repeat(TEXT_BYTES_MAX + 1).as_bytes());
    }
}
