//! Form of a parameter's values: reading, checking, printing, by the rules of PostgreSQL's settings.
//!
//! PostgreSQL accepts `0x1F`, `010` (octal), `1.5h`, and first rounds a fraction to a whole number of the next smaller unit
//! (guc.c, `parse_int` and `convert_to_base_unit`).
use super::{ParamValue, ValueError};
use crate::pattern::{BadPattern, PatternSet};
use crate::visibility::ValueVisibility;

/// The form of a parameter's values, with limits in the parameter's unit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ParamKind {
    Bool,
    Int {
        min: i64,
        max: i64,
    },
    /// File permissions in octal, with a leading 0 as in `chmod`.
    Octal {
        max: i64,
    },
    Float {
        min: f64,
        max: f64,
    },
    /// A size in bytes.
    Bytes {
        min: i64,
        max: i64,
    },
    /// A size in units of 1024 bytes.
    Kilobytes {
        min: i64,
        max: i64,
    },
    Millis {
        min: i64,
        max: i64,
    },
    Seconds {
        min: i64,
        max: i64,
    },
    Minutes {
        min: i64,
        max: i64,
    },
    /// Any text; each parameter says who sees it.
    Text(ValueVisibility),
    /// Texts.
    List {
        separator: char,
        seen_by: ValueVisibility,
    },
    /// Separated regular expressions; `\` makes a separator part of an expression.
    Patterns {
        separator: char,
        seen_by: ValueVisibility,
    },
    Words {
        separator: char,
        values: &'static [&'static str],
    },
    Enum {
        values: &'static [&'static str],
        /// Other spellings, each with its word.
        also: &'static [(&'static str, &'static str)],
    },
}

/// A unit and its size in bytes or microseconds.
type Unit = (&'static str, f64);

/// Largest first.
const SIZES: &[Unit] = &[("TB", 1_099_511_627_776.0), ("GB", 1_073_741_824.0), ("MB", 1_048_576.0), ("kB", 1_024.0), ("B", 1.0)];
/// Largest first.
const TIMES: &[Unit] = &[("d", 86_400e6), ("h", 3_600e6), ("min", 60e6), ("s", 1e6), ("ms", 1e3), ("us", 1.0)];

#[derive(Clone, Copy)]
struct IntegerRange {
    min: i64,
    max: i64,
    units: &'static [Unit],
    /// Position of the plain number's unit in `units`.
    base: usize,
    /// Milliseconds or bytes in the plain number's unit.
    scale: i64,
}

impl IntegerRange {
    fn new(min: i64, max: i64, units: &'static [Unit], unit: &str, scale: i64) -> IntegerRange {
        let base = units.iter().position(|(name, _)| *name == unit).unwrap_or(0);
        IntegerRange { min, max, units, base, scale }
    }

    fn unit(self) -> &'static str {
        self.units.get(self.base).map_or("", |(name, _)| name)
    }

    fn with_unit(self, number: i64) -> String {
        if self.unit().is_empty() { number.to_string() } else { format!("{number} {}", self.unit()) }
    }

    /// Returns the value in its plain unit, rounded as in PostgreSQL; `None`: not a number with a known unit.
    fn read(self, text: &str) -> Option<f64> {
        let (number, unit) = split_number(text.trim())?;
        if unit.is_empty() {
            return Some(number.round_ties_even());
        }
        let (base_size, at) = (self.units.get(self.base)?.1, self.units.iter().position(|(name, _)| *name == unit)?);
        let mut converted = number * self.units[at].1 / base_size;
        if let Some((_, smaller)) = self.units.get(at + 1) {
            let step = smaller / base_size;
            converted = (converted / step).round_ties_even() * step;
        }
        Some(converted.round_ties_even())
    }

    fn show(self, value: i64) -> String {
        let plain = value / self.scale;
        if self.units.is_empty() || plain <= 0 {
            return plain.to_string();
        }
        for (name, size) in &self.units[..=self.base] {
            // Exact: sizes are whole numbers below 2^53.
            let ratio = (size / self.units[self.base].1) as i64;
            if plain % ratio == 0 {
                return format!("{}{name}", plain / ratio);
            }
        }
        plain.to_string()
    }
}

impl ParamKind {
    /// Checks the value of parameter `name`. Numbers with a unit come back in milliseconds or bytes.
    pub fn parse(&self, name: &str, text: &str) -> Result<ParamValue, ValueError> {
        let wrong = || ValueError::Wrong { name: name.into(), value: text.into(), wanted: self.describe() };
        if let Some(number) = self.number() {
            let read = number.read(text).ok_or_else(wrong)?;
            let checked = check_range(name, read, number);
            // A decimal range would puzzle an operator who wrote 777 for 0777.
            let checked = if matches!(self, ParamKind::Octal { .. }) { checked.map_err(|_| wrong()) } else { checked };
            return checked.map(ParamValue::Int);
        }
        match *self {
            ParamKind::Bool => read_bool(text).map(ParamValue::Bool).ok_or_else(wrong),
            ParamKind::Float { min, max } => match text.trim().parse::<f64>() {
                Ok(value) if (min..=max).contains(&value) => Ok(ParamValue::Float(value)),
                Ok(value) => Err(ValueError::OutOfRange {
                    name: name.into(),
                    value: value.to_string(),
                    min: min.to_string(),
                    max: max.to_string(),
                }),
                Err(_) => Err(wrong()),
            },
            ParamKind::List { separator, .. } => Ok(ParamValue::List(split(text, separator).map(str::to_string).collect())),
            ParamKind::Words { separator, values } => split(text, separator)
                .map(|word| find_word(values, word).map(str::to_string).ok_or_else(wrong))
                .collect::<Result<_, _>>()
                .map(ParamValue::List),
            ParamKind::Enum { values, also } => find_word(values, text.trim())
                .or_else(|| also.iter().find(|(from, _)| from.eq_ignore_ascii_case(text.trim())).map(|(_, to)| *to))
                .map(ParamValue::Word)
                .ok_or_else(wrong),
            ParamKind::Patterns { separator, .. } => read_patterns(name, text, separator),
            // `number` handled the other kinds.
            _ => Ok(ParamValue::Text(text.to_string())),
        }
    }

    /// Formats as SHOW does; `text` unchanged if invalid.
    pub fn show(&self, text: &str) -> String {
        match (self, self.parse("", text)) {
            (ParamKind::Octal { .. }, Ok(ParamValue::Int(value))) => format!("{value:04o}"),
            (_, Ok(ParamValue::Int(value))) => self.number().map_or_else(|| value.to_string(), |number| number.show(value)),
            (_, Ok(ParamValue::Bool(value))) => if value { "on" } else { "off" }.to_string(),
            (_, Ok(ParamValue::Float(value))) => value.to_string(),
            (_, Ok(ParamValue::Word(word))) => word.to_string(),
            _ => text.to_string(),
        }
    }

    /// Returns the unit of a plain number, or "".
    pub fn unit(&self) -> &'static str {
        self.number().map_or("", IntegerRange::unit)
    }

    pub fn describe(&self) -> String {
        if let ParamKind::Octal { max } = self {
            return format!("octal permissions with a leading 0, from 0000 to {max:04o}");
        }
        if let Some(number) = self.number() {
            let what = match self {
                ParamKind::Int { .. } => "an integer",
                ParamKind::Bytes { .. } | ParamKind::Kilobytes { .. } => "a size",
                _ => "a time",
            };
            let range = format!("{what} from {} to {}", number.with_unit(number.min), number.with_unit(number.max));
            if number.units.is_empty() {
                return range;
            }
            let units: Vec<_> = number.units.iter().rev().map(|(name, _)| *name).collect();
            return format!("{range}; units are {}", units.join(", "));
        }
        match *self {
            ParamKind::Bool => "on or off".to_string(),
            ParamKind::Float { min, max } => format!("a number from {min} to {max}"),
            ParamKind::List { separator, .. } => format!("a list with {} between entries", sign(separator)),
            ParamKind::Patterns { separator, .. } => {
                format!("a list of regular expressions with {} between them", sign(separator))
            }
            ParamKind::Words { separator, values } => {
                format!("a list of {} with {} between them", values.join(", "), sign(separator))
            }
            ParamKind::Enum { values, .. } => format!("one of {}", values.join(", ")),
            _ => "text".to_string(),
        }
    }

    pub fn visibility(&self) -> ValueVisibility {
        match *self {
            ParamKind::Text(seen_by) | ParamKind::List { seen_by, .. } | ParamKind::Patterns { seen_by, .. } => seen_by,
            ParamKind::Bool
            | ParamKind::Int { .. }
            | ParamKind::Octal { .. }
            | ParamKind::Float { .. }
            | ParamKind::Enum { .. } => ValueVisibility::Everyone,
            ParamKind::Words { .. } | ParamKind::Bytes { .. } | ParamKind::Kilobytes { .. } => ValueVisibility::Everyone,
            ParamKind::Millis { .. } | ParamKind::Seconds { .. } | ParamKind::Minutes { .. } => ValueVisibility::Everyone,
        }
    }

    pub fn is_quoted(&self) -> bool {
        match self {
            ParamKind::Text(_) | ParamKind::List { .. } | ParamKind::Patterns { .. } | ParamKind::Words { .. } => true,
            ParamKind::Bool
            | ParamKind::Int { .. }
            | ParamKind::Octal { .. }
            | ParamKind::Float { .. }
            | ParamKind::Enum { .. } => false,
            ParamKind::Bytes { .. } | ParamKind::Kilobytes { .. } => false,
            ParamKind::Millis { .. } | ParamKind::Seconds { .. } | ParamKind::Minutes { .. } => false,
        }
    }

    fn number(&self) -> Option<IntegerRange> {
        Some(match *self {
            ParamKind::Int { min, max } => IntegerRange::new(min, max, &[], "", 1),
            ParamKind::Octal { max } => IntegerRange::new(0, max, &[], "", 1),
            ParamKind::Bytes { min, max } => IntegerRange::new(min, max, SIZES, "B", 1),
            ParamKind::Kilobytes { min, max } => IntegerRange::new(min, max, SIZES, "kB", 1024),
            ParamKind::Millis { min, max } => IntegerRange::new(min, max, TIMES, "ms", 1),
            ParamKind::Seconds { min, max } => IntegerRange::new(min, max, TIMES, "s", 1000),
            ParamKind::Minutes { min, max } => IntegerRange::new(min, max, TIMES, "min", 60_000),
            ParamKind::Bool | ParamKind::Float { .. } | ParamKind::Text(_) | ParamKind::List { .. } => return None,
            ParamKind::Patterns { .. } | ParamKind::Words { .. } | ParamKind::Enum { .. } => return None,
        })
    }
}

fn sign(separator: char) -> &'static str {
    match separator {
        ';' => "semicolons",
        '|' => "bars",
        _ => "commas",
    }
}

fn check_range(name: &str, read: f64, number: IntegerRange) -> Result<i64, ValueError> {
    // The f64 comparison rejects infinity and NaN, and makes the cast exact enough.
    if (number.min as f64..=number.max as f64).contains(&read) {
        return Ok((read as i64).saturating_mul(number.scale));
    }
    Err(ValueError::OutOfRange {
        name: name.into(),
        value: format!("{read} {}", number.unit()).trim_end().into(),
        min: number.with_unit(number.min),
        max: number.with_unit(number.max),
    })
}

/// Splits `1.5h` into 1.5 and `h`; `None` without a leading number.
fn split_number(text: &str) -> Option<(f64, &str)> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let factor = if text.starts_with('-') { -1.0 } else { 1.0 };
    if let Some(hex) = unsigned.strip_prefix("0x").or_else(|| unsigned.strip_prefix("0X")) {
        let end = hex.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(hex.len());
        let value = u64::from_str_radix(&hex[..end], 16).ok()?;
        return Some((factor * value as f64, hex[end..].trim_start()));
    }
    let whole = count_digits(unsigned);
    let mut end = whole;
    if unsigned[end..].starts_with('.') {
        end += 1 + count_digits(&unsigned[end + 1..]);
    }
    if let Some(exponent) = unsigned[end..].strip_prefix(['e', 'E']) {
        let digits = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
        if count_digits(digits) > 0 {
            end = unsigned.len() - digits.len() + count_digits(digits);
        }
    }
    let (number, unit) = (&unsigned[..end], unsigned[end..].trim_start());
    let value = if end == whole && whole > 1 && number.starts_with('0') {
        // A leading zero means octal, as in C.
        u64::from_str_radix(number, 8).ok()? as f64
    } else {
        number.parse::<f64>().ok()?
    };
    Some((factor * value, unit))
}

fn count_digits(text: &str) -> usize {
    text.bytes().take_while(u8::is_ascii_digit).count()
}

/// PostgreSQL's rule: any prefix of true, false, yes, no; of on and off from two letters; 1 and 0.
fn read_bool(text: &str) -> Option<bool> {
    let word = text.trim().to_ascii_lowercase();
    let begins = |whole: &str, letters_min: usize| word.len() >= letters_min && whole.starts_with(&word);
    if begins("true", 1) || begins("yes", 1) || begins("on", 2) || word == "1" {
        return Some(true);
    }
    if begins("false", 1) || begins("no", 1) || begins("off", 2) || word == "0" {
        return Some(false);
    }
    None
}

fn find_word(values: &'static [&'static str], word: &str) -> Option<&'static str> {
    values.iter().find(|value| value.eq_ignore_ascii_case(word)).copied()
}

fn split(text: &str, separator: char) -> impl Iterator<Item = &str> {
    text.split(separator).map(str::trim).filter(|entry| !entry.is_empty())
}

/// Splits at separators without a `\` before them, and removes that `\`.
fn split_escaped(text: &str, separator: char) -> Vec<String> {
    let mut entries = vec![String::new()];
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        let last = entries.len() - 1;
        if c == '\\' && chars.peek() == Some(&separator) {
            entries[last].extend(chars.next());
        } else if c == '\\' {
            // The pair stays together, so that the second `\` of `\\` does not escape the next character.
            entries[last].push(c);
            entries[last].extend(chars.next());
        } else if c == separator {
            entries.push(String::new());
        } else {
            entries[last].push(c);
        }
    }
    entries.iter().map(|entry| entry.trim().to_string()).filter(|entry| !entry.is_empty()).collect()
}

fn read_patterns(name: &str, text: &str, separator: char) -> Result<ParamValue, ValueError> {
    let wrong = |BadPattern { pattern, cause }| ValueError::BadPattern {
        name: name.into(),
        pattern,
        // The regex error is a drawing over several lines; the last one names the fault.
        cause: cause.to_string().lines().last().unwrap_or_default().trim_start_matches("error: ").into(),
    };
    Ok(ParamValue::Patterns(PatternSet::new(&split_escaped(text, separator)).map_err(wrong)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_ends_where_its_unit_begins() {
        for (text, number, unit) in [
            ("1", 1.0, ""),
            ("0", 0.0, ""),
            ("15min", 15.0, "min"),
            ("15  min", 15.0, "min"),
            ("1.5h", 1.5, "h"),
            ("-1.5h", -1.5, "h"),
            ("+7s", 7.0, "s"),
            ("5.", 5.0, ""),
            (".25", 0.25, ""),
            ("010", 8.0, ""),
            ("-017kB", -15.0, "kB"),
            ("010.5", 10.5, ""),
            ("010e1", 100.0, ""),
            ("0x1F", 31.0, ""),
            ("0X10 kB", 16.0, "kB"),
            ("-0x1f", -31.0, ""),
            ("1e3", 1000.0, ""),
            ("1E+3ms", 1000.0, "ms"),
            ("25e-1 s", 2.5, "s"),
            ("1.5e2", 150.0, ""),
            // No digits follow: it is the begin of a unit, which means nothing.
            ("1e", 1.0, "e"),
            ("1e+", 1.0, "e+"),
            ("12 13", 12.0, "13"),
        ] {
            assert_eq!(split_number(text), Some((number, unit)), "{text}");
        }
        for text in ["", "-", "min", "08", "0x", "0xg", "--1", "e3"] {
            assert_eq!(split_number(text), None, "{text}");
        }
    }

    #[test]
    fn words_of_yes_and_no_may_be_cut_as_long_as_they_are_clear() {
        for (texts, value) in [
            (&["true", "t", "TRU", "yes", "y", "on", " on ", "1"][..], Some(true)),
            (&["false", "f", "no", "n", "of", "off", "0"], Some(false)),
            (&["", "o", "2", "truer", "10", "onn"], None),
        ] {
            texts.iter().for_each(|text| assert_eq!(read_bool(text), value, "{text}"));
        }
    }

    #[test]
    fn a_separator_behind_a_backslash_belongs_to_its_entry() {
        for (text, entries) in [
            ("a;b", &["a", "b"][..]),
            (" a ; ;b;", &["a", "b"]),
            (r"a\;b;c", &["a;b", "c"]),
            // The second one is escaped itself.
            (r"a\\;b", &[r"a\\", "b"]),
            (r"a\d", &[r"a\d"]),
            (r"a\", &[r"a\"]),
        ] {
            assert_eq!(split_escaped(text, ';'), entries, "{text}");
        }
    }
}
