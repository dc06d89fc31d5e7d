//! `numeric` as PostgreSQL keeps it. Source: `src/backend/utils/adt/numeric.c`.

use crate::partition_hash;
use std::cmp::Ordering;

/// Digits of a decimal in one digit of `numeric`.
const DIGIT_WIDTH: usize = 4;
const DIGIT_BASE: i16 = 10_000;
const NEGATIVE: u16 = 0x4000;
const POSITIVE: u16 = 0;
/// Most digits read from a text; longer ones are not read.
const TEXT_DIGITS_MAX: usize = 1_000;

/// A finite number, without zeros at its ends. Zero has no digits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NumericKey {
    is_negative: bool,
    /// Power of 10,000 of the first digit.
    weight: i32,
    digits: Vec<i16>,
}

impl NumericKey {
    /// Reads digits with an optional sign and point. `None`: another form, also one that PostgreSQL reads (`1e3`, `NaN`).
    pub fn of_text(text: &str) -> Option<NumericKey> {
        let (is_negative, number) = match text.strip_prefix(['-', '+']) {
            Some(number) => (text.starts_with('-'), number),
            None => (false, text),
        };
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        let all_digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
        let count = whole.len() + fraction.len();
        if count == 0 || count > TEXT_DIGITS_MAX || !all_digits(whole) || !all_digits(fraction) {
            return None;
        }
        let lead = (DIGIT_WIDTH - whole.len() % DIGIT_WIDTH) % DIGIT_WIDTH;
        let trail = (DIGIT_WIDTH - fraction.len() % DIGIT_WIDTH) % DIGIT_WIDTH;
        let decimals: Vec<i16> = std::iter::repeat_n(b'0', lead)
            .chain(whole.bytes())
            .chain(fraction.bytes())
            .chain(std::iter::repeat_n(b'0', trail))
            .map(|byte| i16::from(byte - b'0'))
            .collect();
        let digits = decimals.chunks(DIGIT_WIDTH).map(|chunk| chunk.iter().fold(0, |digit, next| digit * 10 + next)).collect();
        let weight = ((lead + whole.len()) / DIGIT_WIDTH) as i32 - 1;
        Some(NumericKey { is_negative, weight, digits }.trimmed())
    }

    /// Reads the binary form, `numeric_recv`. `None`: damaged, NaN or infinite.
    pub fn of_binary(bytes: &[u8]) -> Option<NumericKey> {
        let mut halves = bytes.chunks_exact(2).map(|half| u16::from_be_bytes([half[0], half[1]]));
        let [count, weight, sign, _scale] = [halves.next()?, halves.next()?, halves.next()?, halves.next()?];
        let is_known = matches!(sign, NEGATIVE | POSITIVE) && bytes.len() == 8 + 2 * usize::from(count);
        let digits: Vec<i16> = halves.map(|half| half as i16).collect();
        if !is_known || !digits.iter().all(|digit| (0..DIGIT_BASE).contains(digit)) {
            return None;
        }
        Some(NumericKey { is_negative: sign == NEGATIVE, weight: i32::from(weight as i16), digits }.trimmed())
    }

    fn trimmed(mut self) -> NumericKey {
        let zeros = self.digits.iter().take_while(|digit| **digit == 0).count();
        self.digits.drain(..zeros);
        self.weight -= zeros as i32;
        let kept = self.digits.iter().rposition(|digit| *digit != 0).map_or(0, |last| last + 1);
        self.digits.truncate(kept);
        if self.digits.is_empty() {
            (self.is_negative, self.weight) = (false, 0);
        }
        self
    }

    /// `hash_numeric_extended`.
    pub fn hash(&self, seed: u64) -> u64 {
        if self.digits.is_empty() {
            return seed.wrapping_sub(1);
        }
        let bytes: Vec<u8> = self.digits.iter().flat_map(|digit| digit.to_le_bytes()).collect();
        partition_hash::hash_bytes(&bytes, seed) ^ i64::from(self.weight) as u64
    }

    fn magnitude(&self, other: &NumericKey) -> Ordering {
        match (self.digits.is_empty(), other.digits.is_empty()) {
            (false, false) => self.weight.cmp(&other.weight).then_with(|| self.digits.cmp(&other.digits)),
            (is_zero, other_is_zero) => other_is_zero.cmp(&is_zero),
        }
    }
}

impl Ord for NumericKey {
    fn cmp(&self, other: &NumericKey) -> Ordering {
        match (self.is_negative, other.is_negative) {
            (false, false) => self.magnitude(other),
            (true, true) => other.magnitude(self),
            (is_negative, other_is_negative) => other_is_negative.cmp(&is_negative),
        }
    }
}

impl PartialOrd for NumericKey {
    fn partial_cmp(&self, other: &NumericKey) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(text: &str) -> NumericKey {
        NumericKey::of_text(text).unwrap_or_else(|| panic!("{text}"))
    }

    #[test]
    fn a_number_is_one_value_however_it_is_written() {
        for (one, other) in [("1", "1.000"), ("0010.50", "10.5"), ("-0", "0.00"), (".5", "0.5"), ("5.", "5"), ("+7", "7")] {
            assert_eq!(number(one), number(other), "{one} {other}");
        }
        for text in ["", ".", "-", "1e3", "NaN", "1 000", "1_000", "0x1F", "١"] {
            assert_eq!(NumericKey::of_text(text), None, "{text}");
        }
    }

    #[test]
    fn numbers_are_ordered_by_value() {
        let texts = [
            "-100000",
            "-10000.5",
            "-10000",
            "-2",
            "-0.00001",
            "0",
            "0.00001",
            "0.0001",
            "1",
            "1.5",
            "9999",
            "10000",
            "123456789.1",
        ];
        let numbers: Vec<NumericKey> = texts.iter().map(|text| number(text)).collect();
        assert!(numbers.is_sorted_by(|one, next| one < next), "{numbers:?}");
    }

    #[test]
    fn damaged_bytes_are_no_number() {
        // 12345.67: three digits, weight 1, positive, scale 2.
        let bytes = [0, 3, 0, 1, 0, 0, 0, 2, 0, 1, 0x09, 0x29, 0x1a, 0x2c];
        assert_eq!(NumericKey::of_binary(&bytes), Some(number("12345.67")));
        for length in 0..bytes.len() {
            assert_eq!(NumericKey::of_binary(&bytes[..length]), None, "{length}");
        }
        let with = |at: usize, byte: u8| {
            let mut bytes = bytes;
            bytes[at] = byte;
            NumericKey::of_binary(&bytes)
        };
        assert_eq!((with(4, 0xc0), with(8, 0x7f), with(1, 4)), (None, None, None), "NaN, a digit of 32,513, four digits");
    }
}
