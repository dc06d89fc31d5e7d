//! Literals of a text by their ordinal among those that its skeleton drops.
//!
//! Texts of one skeleton have as many, of the same classes and at the same places of the tree. So a later text gives its own values without being
//! parsed.

use std::cell::Cell;
use std::ops::Range;

use crate::skeleton::{DECIMAL, INTEGER, LiteralSink, STRING, after_literal, ends_number, show_literals};

/// A constant as PostgreSQL's scanner reads it. A sign is never part of a number.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum LiteralText {
    /// Digits of an `integer`.
    Integer(String),
    /// Digits of a greater number, which is a `bigint` if it fits, or digits and a point.
    Decimal(String),
    /// A string without its quotes, of no type yet.
    String(String),
    Boolean(bool),
    Null,
}

/// Class of a literal, the same in all texts of one skeleton.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LiteralClass {
    Integer,
    Decimal,
    String,
}

/// A literal in its text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WrittenLiteral<'t> {
    /// Zeros before it do not count.
    Integer(u32),
    /// Digits, and perhaps a point.
    Decimal(&'t [u8]),
    /// With its quotes.
    String(&'t [u8]),
}

impl WrittenLiteral<'_> {
    /// `None`: not UTF-8.
    pub fn text(&self) -> Option<LiteralText> {
        Some(match self {
            WrittenLiteral::Integer(value) => LiteralText::Integer(value.to_string()),
            WrittenLiteral::Decimal(digits) => LiteralText::Decimal(std::str::from_utf8(digits).ok()?.to_owned()),
            WrittenLiteral::String(quoted) => {
                let written = std::str::from_utf8(quoted).ok()?;
                LiteralText::String(written.strip_prefix('\'')?.strip_suffix('\'')?.replace("''", "'"))
            }
        })
    }

    pub fn is_ascii(&self) -> bool {
        match self {
            WrittenLiteral::Integer(_) => true,
            WrittenLiteral::Decimal(bytes) | WrittenLiteral::String(bytes) => bytes.is_ascii(),
        }
    }
}

/// A literal's place in its text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LiteralPlace {
    pub(crate) class: LiteralClass,
    pub(crate) bytes: Range<usize>,
}

/// The literal of this ordinal, from 0, in a text that its skeleton shortens; the pass ends there. `None`: the text has no such literal, or it is a part
/// of a string in several parts.
pub fn literal_at(text: &[u8], ordinal: usize) -> Option<WrittenLiteral<'_>> {
    let mut search = LiteralSearch { left: ordinal, found: None };
    show_literals(text, &mut search);
    whole_literal(text, &search.found?)
}

/// The bytes before each of the first literals, from the one before on. Texts of one skeleton have the same ones, so that a literal is found without a
/// look at words and names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LiteralGaps {
    bytes: Box<[u8]>,
    /// End of each gap in `bytes`.
    ends: Box<[usize]>,
}

impl LiteralGaps {
    /// `count`: literals that will be asked for.
    pub fn of(text: &[u8], count: usize) -> LiteralGaps {
        let (mut bytes, mut ends, mut at) = (Vec::new(), Vec::new(), 0);
        for place in literal_places(text).unwrap_or_default().iter().take(count) {
            bytes.extend_from_slice(&text[at..place.bytes.start]);
            ends.push(bytes.len());
            at = place.bytes.end;
        }
        LiteralGaps { bytes: bytes.into(), ends: ends.into() }
    }

    fn gap(&self, ordinal: usize) -> Option<&[u8]> {
        let start = ordinal.checked_sub(1).map_or(Some(0), |before| self.ends.get(before).copied())?;
        self.bytes.get(start..*self.ends.get(ordinal)?)
    }

    pub fn reader<'t>(&self, text: &'t [u8]) -> LiteralReader<'_, 't> {
        LiteralReader { gaps: self, text, next: Cell::new(0), at: Cell::new(0) }
    }
}

/// Reads the literals of one text. Those asked for in order are found in one pass.
pub struct LiteralReader<'g, 't> {
    gaps: &'g LiteralGaps,
    text: &'t [u8],
    /// Ordinal of the literal that is read next, and the end of the one before.
    next: Cell<usize>,
    at: Cell<usize>,
}

impl<'t> LiteralReader<'_, 't> {
    /// As `literal_at`. `None` also for a text of another skeleton, which differs in what stands before the literal.
    #[inline]
    pub fn get(&self, ordinal: usize) -> Option<WrittenLiteral<'t>> {
        if ordinal < self.next.get() {
            self.next.set(0);
            self.at.set(0);
        }
        loop {
            let next = self.next.get();
            let (literal, end) = self.literal_behind(self.gaps.gap(next)?)?;
            self.next.set(next + 1);
            self.at.set(end);
            if next == ordinal {
                return literal;
            }
        }
    }

    /// The literal behind a gap, as far as it is a whole one, and its end.
    #[inline]
    fn literal_behind(&self, gap: &[u8]) -> Option<(Option<WrittenLiteral<'t>>, usize)> {
        let at = self.at.get();
        let start = at + gap.len();
        if self.text.get(at..start)? != gap {
            return None;
        }
        if let Some((value, end)) = short_integer(self.text, start) {
            return Some((Some(WrittenLiteral::Integer(value)), end));
        }
        let mut search = LiteralSearch { left: 0, found: None };
        after_literal(self.text, start, &mut search);
        let place = search.found?;
        Some((whole_literal(self.text, &place), place.bytes.end))
    }
}

/// An integer of few digits, as most are: its value and its end.
#[inline]
fn short_integer(text: &[u8], start: usize) -> Option<(u32, usize)> {
    /// So many digits always fit.
    const DIGITS_MAX: usize = 9;
    let (mut value, mut end) = (0, start);
    while let Some(byte) = text.get(end) {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return (end > start && ends_number(*byte)).then_some((value, end));
        }
        if end - start == DIGITS_MAX {
            return None;
        }
        value = value * 10 + u32::from(digit);
        end += 1;
    }
    (end > start).then_some((value, end))
}

/// All places. `None`: the text keeps its literals in its skeleton.
pub(crate) fn literal_places(text: &[u8]) -> Option<Vec<LiteralPlace>> {
    let mut places = LiteralPlaces::default();
    show_literals(text, &mut places)?;
    Some(places.0)
}

/// True if the next literal goes on with this string: `'a'`, a new line, `'b'`.
#[inline]
pub(crate) fn is_continued(text: &[u8], place: &LiteralPlace) -> bool {
    let is_blank = |byte: &&u8| matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | 0x0B | 0x0C);
    place.class == LiteralClass::String && text[place.bytes.end..].iter().find(|byte| !is_blank(byte)) == Some(&b'\'')
}

#[inline]
fn whole_literal<'t>(text: &'t [u8], place: &LiteralPlace) -> Option<WrittenLiteral<'t>> {
    let bytes = &text[place.bytes.clone()];
    match place.class {
        // The class says that it fits.
        LiteralClass::Integer => std::str::from_utf8(bytes).ok()?.parse().ok().map(WrittenLiteral::Integer),
        LiteralClass::Decimal => Some(WrittenLiteral::Decimal(bytes)),
        LiteralClass::String if is_continued(text, place) => None,
        LiteralClass::String => Some(WrittenLiteral::String(bytes)),
    }
}

fn place(class: u8, bytes: Range<usize>) -> Option<LiteralPlace> {
    let class = match class {
        INTEGER => LiteralClass::Integer,
        DECIMAL => LiteralClass::Decimal,
        STRING => LiteralClass::String,
        _ => return None,
    };
    Some(LiteralPlace { class, bytes })
}

struct LiteralSearch {
    left: usize,
    found: Option<LiteralPlace>,
}

impl LiteralSink for LiteralSearch {
    fn literal(&mut self, _: &[u8], class: u8, bytes: Range<usize>) -> Option<()> {
        if self.left == 0 {
            self.found = place(class, bytes);
        }
        self.left = self.left.checked_sub(1)?;
        Some(())
    }

    fn end(&mut self, _: &[u8]) {}
}

#[derive(Default)]
struct LiteralPlaces(Vec<LiteralPlace>);

impl LiteralSink for LiteralPlaces {
    fn literal(&mut self, _: &[u8], class: u8, bytes: Range<usize>) -> Option<()> {
        self.0.push(place(class, bytes)?);
        Some(())
    }

    fn end(&mut self, _: &[u8]) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &[&str]) {
        let places = literal_places(text.as_bytes()).map_or(0, |places| places.len());
        let read = |ordinal| literal_at(text.as_bytes(), ordinal).and_then(|literal| literal.text());
        let found: Vec<String> = (0..places).map(|ordinal| format!("{:?}", read(ordinal))).collect();
        assert_eq!(found, expected, "{text}");
        assert_eq!(literal_at(text.as_bytes(), places), None, "{text}");
    }

    /// Literals of `text` as the gaps of `known` show them.
    fn read_by(known: &str, text: &str) -> Vec<Option<String>> {
        let gaps = LiteralGaps::of(known.as_bytes(), usize::MAX);
        let reader = gaps.reader(text.as_bytes());
        let shown = |literal: WrittenLiteral<'_>| match literal {
            WrittenLiteral::Integer(value) => value.to_string(),
            WrittenLiteral::Decimal(bytes) | WrittenLiteral::String(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        };
        (0..gaps.ends.len()).map(|ordinal| reader.get(ordinal).map(shown)).collect()
    }

    #[test]
    fn texts_of_one_skeleton_are_read_by_the_gaps_of_one_of_them() {
        let known = "select a1, 'x' from t where k = -1 and .5 < n;";
        for text in [
            "select a1, '' from t where k = -123456 and 1. < n;",
            "select a1, 'it''s, 7' from t where k = -2147483647 and .5 < n;",
        ] {
            let gaps = LiteralGaps::of(known.as_bytes(), 3);
            let reader = gaps.reader(text.as_bytes());
            for ordinal in [0, 1, 2, 1, 0, 2, 2] {
                assert!(reader.get(ordinal).is_some());
                assert_eq!(reader.get(ordinal), literal_at(text.as_bytes(), ordinal), "{ordinal} of {text}");
            }
            assert_eq!(reader.get(3), None);
        }
        assert_eq!(read_by("select 'a'\n 'b', 7", "select 'x'\n 'y', 8"), [None, Some("'y'".to_owned()), Some("8".to_owned())]);
    }

    #[test]
    fn a_text_of_another_skeleton_shows_nothing_where_it_differs() {
        let known = "select * from t where k = 1";
        for (number, expected) in [
            ("22", "22"),
            ("0", "0"),
            ("0000000000008", "8"),
            ("999999999", "999999999"),
            ("2147483647", "2147483647"),
            ("2147483648", "2147483648"),
            ("1.5", "1.5"),
            ("7 ", "7"),
        ] {
            assert_eq!(read_by(known, &format!("select * from t where k = {number}")), [Some(expected.to_owned())]);
        }
        for text in [
            "select * from t where j = 1",
            "select * from t where k = j1",
            "select * from t where k = 1e5",
            "select * from t where k = 1_000",
            "select * from t where k = .x",
            "select * from t where k = (1)",
            "select * from t where k = 'x",
            "select * from t where k = 1.2.3",
            "select * from t where k = ",
            "select * from t",
            "execute t",
            "",
        ] {
            assert_eq!(read_by(known, text), [None], "{text}");
        }
    }

    #[test]
    fn gaps_are_kept_up_to_the_last_literal_that_is_asked_for() {
        let gaps = LiteralGaps::of(b"values (1, 2, 3)", 2);
        assert_eq!((&*gaps.bytes, &*gaps.ends), (&b"values (, "[..], &[8, 10][..]));
        assert_eq!(LiteralGaps::of(b"set x = 1", 9), LiteralGaps::default());
    }

    #[test]
    fn a_literal_is_found_by_its_ordinal() {
        check(
            "select 1, 'it''s', -2.5, x.1, \"a 3\", $4, 99999999999 from t1 where a in ('', 007)",
            &[
                "Some(Integer(\"1\"))",
                "Some(String(\"it's\"))",
                "Some(Decimal(\"2.5\"))",
                "Some(Decimal(\"99999999999\"))",
                "Some(String(\"\"))",
                "Some(Integer(\"7\"))",
            ],
        );
        check("select 'a'\n  'b', 'c'", &["None", "Some(String(\"b\"))", "Some(String(\"c\"))"]);
    }

    #[test]
    fn a_text_that_keeps_its_literals_has_none() {
        for text in ["select e'a'", "select 1 /* x */", "explain select 1", "select 'a\\'", "", "select 1; select 2"] {
            assert_eq!(literal_places(text.as_bytes()), None, "{text}");
        }
        assert_eq!(literal_at(b"select '\xff'", 0).map(|literal| literal.text()), Some(None));
    }
}
