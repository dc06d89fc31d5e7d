//! Bounds of partitions, as `pg_get_expr(relpartbound, oid)` writes them. Source: `get_rule_expr` and `get_const_expr` in
//! `src/backend/utils/adt/ruleutils.c`.

use crate::key_value::{KeyKind, KeyValue};
use std::fmt;

/// Bound of one partition.
#[derive(Clone, Debug, PartialEq)]
pub enum PartitionBound {
    Hash {
        modulus: u32,
        remainder: u32,
    },
    /// `from` belongs to it, `to` does not.
    Range {
        from: BoundLimit,
        to: BoundLimit,
    },
    List(Vec<KeyValue>),
    Default,
}

/// An end of a range.
#[derive(Clone, Debug, PartialEq)]
pub enum BoundLimit {
    Lowest,
    At(KeyValue),
    Highest,
}

/// A bound that Weir cannot use. The table must not be routed by it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BoundError {
    /// Another form than PostgreSQL's of today.
    Form { bound: String },
    /// A value that this type is not read from.
    Value { bound: String, value: String },
    /// More key columns than one.
    SeveralColumns { bound: String },
}

impl fmt::Display for BoundError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BoundError::Form { bound } => write!(f, "the bound \"{bound}\" of a partition has an unknown form"),
            BoundError::Value { bound, value } => {
                write!(
                    f,
                    "the value {value} in the bound \"{bound}\" of a partition cannot be read: choose another type for the key"
                )
            }
            BoundError::SeveralColumns { bound } => {
                write!(f, "the bound \"{bound}\" of a partition is about several columns: a sharded table has one key column")
            }
        }
    }
}

impl std::error::Error for BoundError {}

impl PartitionBound {
    /// Reads a bound of a table whose key column has this type. Texts of dates must be of `DateStyle` ISO, those of times with a zone with an offset.
    pub fn of_text(kind: KeyKind, bound: &str) -> Result<PartitionBound, BoundError> {
        let form = || BoundError::Form { bound: bound.to_owned() };
        if bound == "DEFAULT" {
            return Ok(PartitionBound::Default);
        }
        let rest = bound.strip_prefix("FOR VALUES ").ok_or_else(form)?;
        if let Some(rest) = rest.strip_prefix("WITH (modulus ") {
            let (modulus, remainder) =
                rest.strip_suffix(')').and_then(|rest| rest.split_once(", remainder ")).ok_or_else(form)?;
            let (modulus, remainder): (u32, u32) = modulus
                .parse()
                .ok()
                .zip(remainder.parse().ok())
                .filter(|(modulus, remainder)| remainder < modulus)
                .ok_or_else(form)?;
            return Ok(PartitionBound::Hash { modulus, remainder });
        }
        let words = BoundWords { kind, bound };
        if let Some(rest) = rest.strip_prefix("IN ") {
            let (values, rest) = words.list(rest)?;
            let values: Option<Vec<KeyValue>> = values.into_iter().map(BoundWord::into_value).collect();
            return values.filter(|_| rest.is_empty()).map(PartitionBound::List).ok_or_else(form);
        }
        let (from, rest) = words.list(rest.strip_prefix("FROM ").ok_or_else(form)?)?;
        let (to, rest) = words.list(rest.strip_prefix(" TO ").ok_or_else(form)?)?;
        match (<[BoundWord; 1]>::try_from(from), <[BoundWord; 1]>::try_from(to)) {
            (Ok([from]), Ok([to])) if rest.is_empty() => {
                from.into_limit().zip(to.into_limit()).map(|(from, to)| PartitionBound::Range { from, to }).ok_or_else(form)
            }
            (Err(_), _) | (_, Err(_)) => Err(BoundError::SeveralColumns { bound: bound.to_owned() }),
            _ => Err(form()),
        }
    }
}

/// A word between the parentheses of a bound.
enum BoundWord {
    Value(KeyValue),
    Lowest,
    Highest,
}

impl BoundWord {
    fn into_value(self) -> Option<KeyValue> {
        match self {
            BoundWord::Value(value) => Some(value),
            BoundWord::Lowest | BoundWord::Highest => None,
        }
    }

    /// `None` for NULL, which no range has.
    fn into_limit(self) -> Option<BoundLimit> {
        match self {
            BoundWord::Value(KeyValue::Null) => None,
            BoundWord::Value(value) => Some(BoundLimit::At(value)),
            BoundWord::Lowest => Some(BoundLimit::Lowest),
            BoundWord::Highest => Some(BoundLimit::Highest),
        }
    }
}

struct BoundWords<'b> {
    kind: KeyKind,
    bound: &'b str,
}

impl BoundWords<'_> {
    /// Reads `(word, word)`, and returns what follows.
    fn list<'t>(&self, text: &'t str) -> Result<(Vec<BoundWord>, &'t str), BoundError> {
        let form = || BoundError::Form { bound: self.bound.to_owned() };
        let mut rest = text.strip_prefix('(').ok_or_else(form)?;
        let mut words = Vec::new();
        loop {
            let (word, after) = self.word(rest)?;
            words.push(word);
            if let Some(after) = after.strip_prefix(')') {
                return Ok((words, after));
            }
            rest = after.strip_prefix(", ").ok_or_else(form)?;
        }
    }

    fn word<'t>(&self, text: &'t str) -> Result<(BoundWord, &'t str), BoundError> {
        let form = || BoundError::Form { bound: self.bound.to_owned() };
        if text.starts_with('\'') || text.starts_with("E'") {
            let (value, rest) = quoted(text).ok_or_else(form)?;
            return Ok((BoundWord::Value(self.value(&value)?), rest));
        }
        // A number with a sign stands in parentheses of its own.
        let (word, rest) = match text.strip_prefix('(') {
            Some(inner) => inner.split_once(')').ok_or_else(form)?,
            None => text.split_at(text.find([',', ')']).ok_or_else(form)?),
        };
        let word = match word {
            "MINVALUE" => BoundWord::Lowest,
            "MAXVALUE" => BoundWord::Highest,
            "NULL" => BoundWord::Value(KeyValue::Null),
            value => BoundWord::Value(self.value(value)?),
        };
        Ok((word, rest))
    }

    fn value(&self, text: &str) -> Result<KeyValue, BoundError> {
        self.kind.of_text(text).ok_or_else(|| BoundError::Value { bound: self.bound.to_owned(), value: text.to_owned() })
    }
}

/// A text in quotes, with what follows. With `E` before it, a backslash is written twice.
fn quoted(text: &str) -> Option<(String, &str)> {
    let (escapes, mut rest) = match text.strip_prefix("E'") {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('\'')?),
    };
    let mut value = String::new();
    loop {
        let at = rest.find(|letter| letter == '\'' || (escapes && letter == '\\'))?;
        value.push_str(&rest[..at]);
        let mark = &rest[at..=at];
        rest = &rest[at + 1..];
        match rest.strip_prefix(mark) {
            Some(after) => {
                value.push_str(mark);
                rest = after;
            }
            None => return (mark == "'").then_some((value, rest)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn integer(value: i64) -> KeyValue {
        KeyValue::Integer(value)
    }

    fn text(value: &str) -> KeyValue {
        KeyValue::Bytes(value.as_bytes().to_vec())
    }

    #[test]
    fn bounds_are_read_as_postgresql_writes_them() {
        let at = |value| BoundLimit::At(integer(value));
        for (kind, written, expected) in [
            (KeyKind::Int4, "DEFAULT", PartitionBound::Default),
            (KeyKind::Int4, "FOR VALUES WITH (modulus 4, remainder 3)", PartitionBound::Hash { modulus: 4, remainder: 3 }),
            (KeyKind::Int4, "FOR VALUES FROM (1) TO (10)", PartitionBound::Range { from: at(1), to: at(10) }),
            (
                KeyKind::Int8,
                "FOR VALUES FROM ('-5') TO (MAXVALUE)",
                PartitionBound::Range { from: at(-5), to: BoundLimit::Highest },
            ),
            (
                KeyKind::Int4,
                "FOR VALUES FROM (MINVALUE) TO ((-5))",
                PartitionBound::Range { from: BoundLimit::Lowest, to: at(-5) },
            ),
            (KeyKind::Int4, "FOR VALUES IN (1, 2, NULL)", PartitionBound::List(vec![integer(1), integer(2), KeyValue::Null])),
            (KeyKind::Bool, "FOR VALUES IN (true)", PartitionBound::List(vec![integer(1)])),
            (
                KeyKind::Text,
                "FOR VALUES IN ('it''s, (so)', E'a\\\\b', 'NULL')",
                PartitionBound::List(vec![text("it's, (so)"), text("a\\b"), text("NULL")]),
            ),
        ] {
            assert_eq!(PartitionBound::of_text(kind, written), Ok(expected), "{written}");
        }
    }

    #[test]
    fn bounds_of_another_form_are_errors_with_a_reason() {
        for written in [
            "",
            "FOR VALUES",
            "FOR VALUES IN ()",
            "FOR VALUES IN (1",
            "FOR VALUES IN (1) x",
            "FOR VALUES IN (MINVALUE)",
            "FOR VALUES FROM (NULL) TO (5)",
            "FOR VALUES FROM (1)",
            "FOR VALUES WITH (modulus 4, remainder 4)",
            "FOR VALUES WITH (modulus 0, remainder 0)",
        ] {
            let error = PartitionBound::of_text(KeyKind::Int4, written).unwrap_err();
            assert!(matches!(error, BoundError::Form { .. } | BoundError::Value { .. }), "{written}: {error}");
        }
        let several = PartitionBound::of_text(KeyKind::Int4, "FOR VALUES FROM (1, 2) TO (3, 4)").unwrap_err();
        assert!(several.to_string().contains("one key column"), "{several}");
        let value = PartitionBound::of_text(KeyKind::Date, "FOR VALUES IN ('02/03/2024')").unwrap_err();
        assert!(value.to_string().contains("02/03/2024"), "{value}");
        assert!(
            PartitionBound::of_text(KeyKind::Text, "FOR VALUES IN (E'a\\nb')").is_err(),
            "an escape that PostgreSQL does not write"
        );
    }
}
