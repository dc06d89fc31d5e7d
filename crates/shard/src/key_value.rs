//! Values of a key column: how PostgreSQL reads, hashes and orders them.

use crate::numeric_key::NumericKey;
use crate::partition_hash::{SEED, hash_bytes, hash_integer};
use std::cmp::Ordering;

/// Type of a key column. Types whose hash hangs on the server (enums), or whose equality is not that of the bytes read (citext, collations that
/// are not deterministic), are none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KeyKind {
    Bool,
    Int2,
    Int4,
    Int8,
    Oid,
    /// `text` and `varchar`.
    Text,
    /// `character(n)`: spaces at the end do not count.
    Bpchar,
    Name,
    Bytea,
    Uuid,
    Float4,
    Float8,
    Numeric,
    Date,
    Time,
    Timestamp,
    Timestamptz,
}

/// The order of a range: PostgreSQL's of texts hangs on the collation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyOrder {
    Known,
    /// By a collation other than `C` and `POSIX`.
    ByCollation,
}

/// A value of a key column.
#[derive(Clone, Debug, PartialEq)]
pub enum KeyValue {
    Null,
    /// Integers, and what PostgreSQL keeps as one: truth values, oids, days and microseconds since 2000-01-01.
    Integer(i64),
    Bytes(Vec<u8>),
    Float(f64),
    Numeric(NumericKey),
}

const DAY_US: i64 = 86_400_000_000;

impl KeyKind {
    /// By the oid of a built-in type in `pg_type`.
    pub fn of_type(oid: u32) -> Option<KeyKind> {
        Some(match oid {
            16 => KeyKind::Bool,
            17 => KeyKind::Bytea,
            19 => KeyKind::Name,
            20 => KeyKind::Int8,
            21 => KeyKind::Int2,
            23 => KeyKind::Int4,
            25 | 1043 => KeyKind::Text,
            26 => KeyKind::Oid,
            700 => KeyKind::Float4,
            701 => KeyKind::Float8,
            1042 => KeyKind::Bpchar,
            1082 => KeyKind::Date,
            1083 => KeyKind::Time,
            1114 => KeyKind::Timestamp,
            1184 => KeyKind::Timestamptz,
            1700 => KeyKind::Numeric,
            2950 => KeyKind::Uuid,
            _ => return None,
        })
    }

    /// Reads the text form of a value of this type. `None`: an error for PostgreSQL, or a form that Weir does not read.
    ///
    /// A modifier (`numeric(10,2)`, `varchar(5)`) changes the value of a row that is written, before its place is found: the caller must apply it.
    pub fn of_text(self, text: &str) -> Option<KeyValue> {
        let trimmed = text.trim_matches(BLANKS.map(char::from));
        Some(match self {
            KeyKind::Bool => KeyValue::Integer(i64::from(truth(trimmed)?)),
            KeyKind::Int2 | KeyKind::Int4 | KeyKind::Int8 | KeyKind::Oid => return self.of_digits(text.as_bytes()),
            KeyKind::Text => KeyValue::Bytes(text.as_bytes().to_vec()),
            KeyKind::Bpchar => KeyValue::Bytes(text.trim_end_matches(' ').as_bytes().to_vec()),
            KeyKind::Name => KeyValue::Bytes(text.as_bytes().to_vec()).of_name()?,
            KeyKind::Bytea => KeyValue::Bytes(hexadecimal(text.strip_prefix("\\x")?)?),
            KeyKind::Uuid => KeyValue::Bytes(uuid(text)?),
            KeyKind::Float4 => {
                KeyValue::Float(f64::from(finite(trimmed)?.parse::<f32>().ok().filter(|value| value.is_finite())?))
            }
            KeyKind::Float8 => KeyValue::Float(finite(trimmed)?.parse().ok().filter(|value: &f64| value.is_finite())?),
            KeyKind::Numeric => KeyValue::Numeric(NumericKey::of_text(trimmed)?),
            KeyKind::Date => KeyValue::Integer(date(trimmed)?),
            KeyKind::Time => KeyValue::Integer(time(trimmed)?),
            KeyKind::Timestamp => KeyValue::Integer(timestamp(trimmed)?),
            KeyKind::Timestamptz => KeyValue::Integer(timestamp_with_zone(trimmed)?),
        })
    }

    /// As `of_text`, of bytes that may be no text. A zero byte never reaches a text column.
    pub(crate) fn of_text_bytes(self, bytes: &[u8]) -> Option<KeyValue> {
        match self {
            // Most keys.
            KeyKind::Int2 | KeyKind::Int4 | KeyKind::Int8 | KeyKind::Oid => self.of_digits(bytes),
            _ => std::str::from_utf8(bytes).ok().filter(|text| !text.contains('\0')).and_then(|text| self.of_text(text)),
        }
    }

    fn of_digits(self, text: &[u8]) -> Option<KeyValue> {
        let value = integer(text).or_else(|| integer(trimmed(text)))?;
        let is_held = match self {
            KeyKind::Int2 => i16::try_from(value).is_ok(),
            KeyKind::Int4 => i32::try_from(value).is_ok(),
            KeyKind::Oid => u32::try_from(value).is_ok(),
            _ => true,
        };
        is_held.then_some(KeyValue::Integer(value))
    }

    /// Reads the binary form of a value of this type. `None`: an error for PostgreSQL, or a form that Weir does not read.
    pub fn of_binary(self, bytes: &[u8]) -> Option<KeyValue> {
        let four = || bytes.try_into().ok().map(i32::from_be_bytes);
        let eight = || bytes.try_into().ok().map(i64::from_be_bytes);
        let text = || std::str::from_utf8(bytes).ok().filter(|text| !text.contains('\0'));
        Some(match self {
            KeyKind::Bool => KeyValue::Integer(i64::from(*bytes.first().filter(|_| bytes.len() == 1)? != 0)),
            KeyKind::Int2 => KeyValue::Integer(i16::from_be_bytes(bytes.try_into().ok()?).into()),
            KeyKind::Int4 => KeyValue::Integer(four()?.into()),
            KeyKind::Int8 => KeyValue::Integer(eight()?),
            KeyKind::Oid => KeyValue::Integer(u32::from_be_bytes(bytes.try_into().ok()?).into()),
            KeyKind::Text | KeyKind::Bpchar | KeyKind::Name => self.of_text(text()?)?,
            KeyKind::Bytea => KeyValue::Bytes(bytes.to_vec()),
            KeyKind::Uuid => KeyValue::Bytes(Some(bytes).filter(|bytes| bytes.len() == 16)?.to_vec()),
            KeyKind::Float4 => KeyValue::Float(f32::from_be_bytes(bytes.try_into().ok()?).into()),
            KeyKind::Float8 => KeyValue::Float(f64::from_be_bytes(bytes.try_into().ok()?)),
            KeyKind::Numeric => KeyValue::Numeric(NumericKey::of_binary(bytes)?),
            // The least and the greatest number are the infinities, which are values, too.
            KeyKind::Date => KeyValue::Integer(four()?.into()),
            KeyKind::Time => KeyValue::Integer(eight().filter(|time| (0..=DAY_US).contains(time))?),
            KeyKind::Timestamp | KeyKind::Timestamptz => KeyValue::Integer(eight()?),
        })
    }

    /// True if a range over this type can be found. `order`: that of the column's collation.
    pub fn has_order(self, order: KeyOrder) -> bool {
        order == KeyOrder::Known || !matches!(self, KeyKind::Text | KeyKind::Bpchar)
    }
}

impl KeyValue {
    /// `name` is cut where PostgreSQL cuts it; a cut inside of a letter hangs on the encoding.
    fn of_name(self) -> Option<KeyValue> {
        const NAME_BYTES_MAX: usize = 63;
        match &self {
            KeyValue::Bytes(bytes) if bytes.len() > NAME_BYTES_MAX => None,
            _ => Some(self),
        }
    }

    /// The hash of the type's function with the seed of partitions. `None` for NULL, which has none.
    #[inline]
    pub fn hash(&self) -> Option<u64> {
        Some(match self {
            KeyValue::Null => return None,
            KeyValue::Integer(value) => hash_integer(*value, SEED),
            KeyValue::Bytes(bytes) => hash_bytes(bytes, SEED),
            // Both zeros are equal, and so are all values that are no number.
            KeyValue::Float(value) if *value == 0.0 => SEED,
            KeyValue::Float(value) if value.is_nan() => hash_bytes(&f64::NAN.to_le_bytes(), SEED),
            KeyValue::Float(value) => hash_bytes(&value.to_le_bytes(), SEED),
            KeyValue::Numeric(number) => number.hash(SEED),
        })
    }

    /// The order of PostgreSQL's B-trees, texts by their bytes. `None`: one of them is NULL, or they are of two types.
    #[inline]
    pub fn order(&self, other: &KeyValue) -> Option<Ordering> {
        Some(match (self, other) {
            (KeyValue::Integer(one), KeyValue::Integer(other)) => one.cmp(other),
            (KeyValue::Bytes(one), KeyValue::Bytes(other)) => one.cmp(other),
            (KeyValue::Numeric(one), KeyValue::Numeric(other)) => one.cmp(other),
            // Greater than all numbers is what is none.
            (KeyValue::Float(one), KeyValue::Float(other)) => {
                one.partial_cmp(other).unwrap_or_else(|| one.is_nan().cmp(&other.is_nan()))
            }
            _ => return None,
        })
    }
}

/// `isspace` of PostgreSQL's functions for numbers.
const BLANKS: [u8; 6] = *b" \t\n\r\x0b\x0c";

fn trimmed(text: &[u8]) -> &[u8] {
    let mut text = text;
    while let [first, rest @ ..] = text
        && BLANKS.contains(first)
    {
        text = rest;
    }
    while let [rest @ .., last] = text
        && BLANKS.contains(last)
    {
        text = rest;
    }
    text
}

/// Digits with an optional sign. PostgreSQL 16 reads more (`0x1F`, `1_000`).
fn integer(text: &[u8]) -> Option<i64> {
    /// So many digits never overflow.
    const DIGITS_SAFE: usize = 18;
    let (digits, is_negative) = match text {
        [b'-', digits @ ..] => (digits, true),
        [b'+', digits @ ..] => (digits, false),
        digits => (digits, false),
    };
    if digits.is_empty() || digits.len() > DIGITS_SAFE {
        let is_plain = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
        return std::str::from_utf8(text).ok().filter(|_| is_plain)?.parse().ok();
    }
    let mut value = 0;
    for byte in digits {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value = value * 10 + i64::from(digit);
    }
    Some(if is_negative { -value } else { value })
}

fn truth(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "t" | "true" | "y" | "yes" | "on" | "1" => Some(true),
        "f" | "false" | "n" | "no" | "off" | "0" => Some(false),
        _ => None,
    }
}

/// Plain digits, point and exponent: Rust reads more words for infinity than PostgreSQL does.
fn finite(text: &str) -> Option<&str> {
    Some(text).filter(|text| {
        text.bytes().any(|byte| byte.is_ascii_digit())
            && text.bytes().all(|byte| byte.is_ascii_digit() || matches!(byte, b'+' | b'-' | b'.' | b'e' | b'E'))
    })
}

fn hexadecimal(text: &str) -> Option<Vec<u8>> {
    let nibble = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
    let (pairs, []) = text.as_bytes().as_chunks::<2>() else { return None };
    pairs.iter().map(|[high, low]| Some(nibble(*high)? << 4 | nibble(*low)?)).collect()
}

/// Hyphens may stand behind each four digits, and braces around all. Source: `string_to_uuid` in `src/backend/utils/adt/uuid.c`.
fn uuid(text: &str) -> Option<Vec<u8>> {
    let braced = text.strip_prefix('{');
    let text = braced.map_or(Some(text), |text| text.strip_suffix('}'))?;
    let mut digits = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '-' if !digits.is_empty() && digits.len() < 32 && digits.len().is_multiple_of(4) => {}
            '-' => return None,
            digit => digits.push(digit),
        }
    }
    if digits.len() == 32 && !text.contains("--") { hexadecimal(&digits) } else { None }
}

/// Two or four digits.
fn digits(text: &str, width: usize) -> Option<i64> {
    (text.len() == width && text.bytes().all(|byte| byte.is_ascii_digit())).then(|| text.parse().ok()).flatten()
}

/// Days since 2000-01-01 of `YYYY-MM-DD`, a form that no `DateStyle` changes. Source: `date2j` in `src/backend/utils/adt/datetime.c`.
fn date(text: &str) -> Option<i64> {
    let [year, month, day]: [&str; 3] = text.split('-').collect::<Vec<_>>().try_into().ok()?;
    let (year, month, day) = (digits(year, 4)?, digits(month, 2)?, digits(day, 2)?);
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let length = match month {
        2 => 28 + i64::from(is_leap),
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return None,
    };
    if year == 0 || !(1..=length).contains(&day) {
        return None;
    }
    // Years that begin in March have their leap day at the end.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = 365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day - 1;
    const TO_2000: i64 = 730_425;
    Some(days - TO_2000)
}

/// Microseconds of `HH:MM`, `HH:MM:SS` and `HH:MM:SS.FFFFFF`.
fn time(text: &str) -> Option<i64> {
    let mut parts = text.splitn(3, ':');
    let (hours, minutes, seconds) = (digits(parts.next()?, 2)?, digits(parts.next()?, 2)?, parts.next().unwrap_or("00"));
    let (seconds, fraction) = seconds.split_once('.').unwrap_or((seconds, "0"));
    let seconds = digits(seconds, 2)?;
    let is_exact = (1..=6).contains(&fraction.len());
    let fraction = digits(fraction, fraction.len()).filter(|_| is_exact)? * 10_i64.pow(6 - fraction.len() as u32);
    // 24:00 and the 60th second are read by PostgreSQL, as another time.
    let is_usual = hours < 24 && minutes < 60 && seconds < 60;
    is_usual.then(|| ((hours * 60 + minutes) * 60 + seconds) * 1_000_000 + fraction)
}

/// Microseconds since 2000-01-01 of a date, or of a date and a time.
fn timestamp(text: &str) -> Option<i64> {
    let (day, rest) = text.split_at_checked(10)?;
    let time = match rest.strip_prefix([' ', 'T']) {
        Some(rest) => time(rest)?,
        None if rest.is_empty() => 0,
        None => return None,
    };
    Some(date(day)? * DAY_US + time)
}

/// With the offset in the text: without one, `TimeZone` would count.
fn timestamp_with_zone(text: &str) -> Option<i64> {
    if let Some(text) = text.strip_suffix('Z') {
        return timestamp(text);
    }
    let at = text.rfind(['+', '-']).filter(|at| *at > 10)?;
    let (text, offset) = text.split_at(at);
    let (sign, offset) = offset.split_at(1);
    let (hours, minutes) = offset.split_once(':').unwrap_or((offset, "00"));
    let (hours, minutes) = (digits(hours, 2)?, digits(minutes, 2)?);
    let is_usual = hours < 15 && minutes < 60;
    let offset = (hours * 60 + minutes) * 60_000_000;
    let local = timestamp(text).filter(|_| is_usual)?;
    Some(if sign == "+" { local - offset } else { local + offset })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_that_hang_on_a_setting_or_are_errors_are_not_read() {
        for (kind, texts) in [
            (KeyKind::Int4, &["", "-", "2147483648", "5.0", "0x1F", "1_0", "1e3", "٣"][..]),
            (KeyKind::Int2, &["32768"][..]),
            (KeyKind::Int8, &["9223372036854775808"][..]),
            (KeyKind::Oid, &["-1", "4294967296"][..]),
            (KeyKind::Bool, &["tr ue", "2", "maybe"][..]),
            (
                KeyKind::Date,
                &["03/02/2024", "2024-2-3", "2023-02-29", "2024-13-01", "0000-01-01", "now", "infinity", "20240203"][..],
            ),
            (KeyKind::Time, &["24:00:00", "12:60", "1:00", "12:00:00+02", "12:00:00.1234567", "12:00:60"][..]),
            (KeyKind::Timestamp, &["2024-02-03 12:00:00+02", "2024-02-03x12:00", "yesterday", "2024-02-03 "][..]),
            (
                KeyKind::Timestamptz,
                &["2024-02-03 12:00:00", "2024-02-03", "2024-02-03 12:00:00 CET", "2024-02-03 12:00:00+2"][..],
            ),
            (
                KeyKind::Uuid,
                &[
                    "{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
                    "a0eebc999c0b4ef8bb6d6bb9bd380a1",
                    "a0eebc9-99c0b-4ef8-bb6d-6bb9bd380a11",
                    "a0eebc99--9c0b-4ef8-bb6d-6bb9bd380a11",
                    "-a0eebc999c0b4ef8bb6d6bb9bd380a11",
                    "a0eebc999c0b4ef8bb6d6bb9bd380a11-",
                    "g0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
                ][..],
            ),
            (KeyKind::Bytea, &["abc", "\\x1", "\\x0g"][..]),
            (KeyKind::Float8, &["nan", "inf", "Infinity", "1e999", "", "."][..]),
        ] {
            for text in texts {
                // A timestamp that ends with a space is trimmed: its date alone is left.
                let expected = (kind, *text) == (KeyKind::Timestamp, "2024-02-03 ");
                assert_eq!(kind.of_text(text).is_some(), expected, "{kind:?} {text:?}");
            }
        }
    }

    #[test]
    fn damaged_binary_values_are_not_read() {
        for kind in [
            KeyKind::Bool,
            KeyKind::Int2,
            KeyKind::Int4,
            KeyKind::Int8,
            KeyKind::Oid,
            KeyKind::Uuid,
            KeyKind::Float4,
            KeyKind::Float8,
            KeyKind::Numeric,
            KeyKind::Date,
            KeyKind::Time,
            KeyKind::Timestamp,
            KeyKind::Timestamptz,
        ] {
            assert_eq!(kind.of_binary(&[]), None, "{kind:?}");
            assert_eq!(kind.of_binary(&[0; 17]), None, "{kind:?}");
        }
        assert_eq!(KeyKind::Text.of_binary(&[0xff]), None);
        assert_eq!(KeyKind::Text.of_binary(b"a\0b"), None);
        assert_eq!(KeyKind::Name.of_binary(&[b'a'; 64]), None);
    }

    #[test]
    fn a_uuid_has_one_value_in_all_of_its_forms() {
        let plain = KeyKind::Uuid.of_text("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11");
        assert!(plain.is_some());
        for text in [
            "A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11",
            "{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11}",
            "a0eebc999c0b4ef8bb6d6bb9bd380a11",
            "a0ee-bc99-9c0b-4ef8-bb6d-6bb9-bd38-0a11",
            "{a0eebc99-9c0b4ef8-bb6d6bb9-bd380a11}",
        ] {
            assert_eq!(KeyKind::Uuid.of_text(text), plain, "{text}");
        }
    }

    #[test]
    fn values_of_two_types_and_null_have_no_order() {
        let (one, text) = (KeyValue::Integer(1), KeyValue::Bytes(vec![1]));
        assert_eq!((one.order(&text), one.order(&KeyValue::Null), KeyValue::Null.order(&KeyValue::Null)), (None, None, None));
        let (nan, most) = (KeyValue::Float(f64::NAN), KeyValue::Float(f64::INFINITY));
        assert_eq!((nan.order(&most), nan.order(&nan)), (Some(Ordering::Greater), Some(Ordering::Equal)));
    }
}
