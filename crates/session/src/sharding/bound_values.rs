//! Parameters of a Bind message with the types that its Parse declared. Source: `exec_bind_message` in postgres.c.

use std::cell::Cell;
use weir_shard::{BoundValue, ValueFormat};

pub struct BoundValues<'m> {
    /// Two bytes each: none, one for all, or one for each parameter.
    formats: &'m [u8],
    count: u16,
    /// Length and bytes of each parameter, and what follows them.
    values: &'m [u8],
    /// A parameter, and the values from it on: most are asked for in order.
    next: Cell<(usize, &'m [u8])>,
    /// Four bytes each.
    types: &'m [u8],
}

impl<'m> BoundValues<'m> {
    /// `values`: a Bind behind its names. `types`: a Parse behind its text. `None`: malformed.
    pub fn read(values: &'m [u8], types: &'m [u8]) -> Option<BoundValues<'m>> {
        let (formats, rest) = numbers(values)?;
        let (count, values) = rest.split_first_chunk::<2>()?;
        let types = types.get(2..).unwrap_or_default();
        Some(BoundValues { formats, count: u16::from_be_bytes(*count), values, next: Cell::new((0, values)), types })
    }

    pub fn count(&self) -> u16 {
        self.count
    }

    /// Number of types that the Parse declares.
    pub fn declared(&self) -> u16 {
        u16::try_from(self.types.len() / 4).unwrap_or(u16::MAX)
    }

    /// Writes a Bind behind its names, with NULL for all values but some.
    pub fn write_some(&self, out: &mut Vec<u8>, is_kept: impl Fn(u32) -> bool) {
        const NULL: [u8; 4] = (-1_i32).to_be_bytes();
        out.extend(u16::try_from(self.formats.len() / 2).unwrap_or(0).to_be_bytes());
        out.extend_from_slice(self.formats);
        out.extend(self.count.to_be_bytes());
        let mut rest = self.values;
        for number in 1..=u32::from(self.count) {
            let Some((_, behind)) = value(rest) else { break };
            let whole = &rest[..rest.len() - behind.len()];
            out.extend_from_slice(if is_kept(number) { whole } else { &NULL });
            rest = behind;
        }
        out.extend_from_slice(rest);
    }

    /// The Bind behind its names, up to the formats of results. `whole`: as it was read. `None`: malformed.
    pub fn without_result_formats<'w>(&self, whole: &'w [u8]) -> Option<&'w [u8]> {
        let mut rest = self.values;
        for _ in 0..self.count {
            rest = value(rest)?.1;
        }
        whole.get(..whole.len().checked_sub(rest.len())?)
    }

    /// `number`: from 1, as in `$1`. `None`: there is no such parameter, or the message is malformed.
    pub fn get(&self, number: u32) -> Option<BoundValue<'m>> {
        let at = usize::try_from(number).ok()?.checked_sub(1).filter(|at| *at < usize::from(self.count))?;
        let (mut next, mut rest) = self.next.get();
        if next > at {
            (next, rest) = (0, self.values);
        }
        let mut bytes = None;
        for _ in next..=at {
            (bytes, rest) = value(rest)?;
        }
        self.next.set((at + 1, rest));
        Some(BoundValue { type_oid: self.type_of(at), format: self.format_of(at)?, bytes })
    }

    /// `at`: from 0. 0: none is declared.
    pub fn type_of(&self, at: usize) -> u32 {
        let four = self.types.get(4 * at..).and_then(|types| types.first_chunk::<4>());
        four.map_or(0, |four| u32::from_be_bytes(*four))
    }

    fn format_of(&self, at: usize) -> Option<ValueFormat> {
        let at = match self.formats.len() / 2 {
            0 => return Some(ValueFormat::Text),
            1 => 0,
            _ => at,
        };
        match self.formats.get(2 * at..)?.first_chunk::<2>()? {
            [0, 0] => Some(ValueFormat::Text),
            [0, 1] => Some(ValueFormat::Binary),
            _ => None,
        }
    }
}

/// A count with as many numbers of two bytes, and what follows.
fn numbers(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (count, rest) = bytes.split_first_chunk::<2>()?;
    rest.split_at_checked(2 * usize::from(u16::from_be_bytes(*count)))
}

/// The first value, `None` for NULL, and what follows.
fn value(bytes: &[u8]) -> Option<(Option<&[u8]>, &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<4>()?;
    match i32::from_be_bytes(*length) {
        -1 => Some((None, rest)),
        length => rest.split_at_checked(usize::try_from(length).ok()?).map(|(value, rest)| (Some(value), rest)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TYPES: &[u8] = b"\0\x02\0\0\0\x17\0\0\0\0";

    fn bind(formats: &[u8], values: &[Option<&[u8]>]) -> Vec<u8> {
        let mut body = ((formats.len() / 2) as u16).to_be_bytes().to_vec();
        body.extend_from_slice(formats);
        body.extend((values.len() as u16).to_be_bytes());
        for value in values {
            body.extend(value.map_or(-1, |value| value.len() as i32).to_be_bytes());
            body.extend_from_slice(value.unwrap_or_default());
        }
        body.extend([0, 0]);
        body
    }

    #[test]
    fn a_parameter_has_its_type_and_its_format() {
        let text = bind(&[], &[Some(b"7"), None]);
        let values = BoundValues::read(&text, TYPES).unwrap();
        assert_eq!(values.get(1), Some(BoundValue { type_oid: 23, format: ValueFormat::Text, bytes: Some(b"7") }));
        assert_eq!(values.get(2), Some(BoundValue { type_oid: 0, format: ValueFormat::Text, bytes: None }));
        assert_eq!((values.get(0), values.get(3)), (None, None));
        assert_eq!(values.get(1).and_then(|value| value.bytes), Some(&b"7"[..]), "out of order");
        for formats in [&[0, 1][..], &[0, 1, 0, 1]] {
            let binary = bind(formats, &[Some(&[0, 0, 0, 7]), Some(b"")]);
            let values = BoundValues::read(&binary, TYPES).unwrap();
            assert_eq!(values.get(1).map(|value| value.format), Some(ValueFormat::Binary));
            assert_eq!(values.get(2).and_then(|value| value.bytes), Some(&b""[..]));
        }
        let own = bind(&[0, 0, 0, 1], &[Some(b"7"), Some(b"8")]);
        let values = BoundValues::read(&own, TYPES).unwrap();
        assert_eq!([1, 2].map(|number| values.get(number).unwrap().format), [ValueFormat::Text, ValueFormat::Binary]);
    }

    #[test]
    fn a_message_that_is_cut_or_wrong_has_no_values() {
        let whole = bind(&[0, 1], &[Some(&[0, 0, 0, 7]), Some(b"x")]);
        for end in 0..whole.len() - 3 {
            let cut = BoundValues::read(&whole[..end], TYPES).and_then(|values| values.get(2));
            assert_eq!(cut, None, "{end} bytes");
        }
        let unknown = bind(&[0, 9], &[Some(b"x")]);
        assert_eq!(BoundValues::read(&unknown, TYPES).unwrap().get(1), None);
        let negative = [0, 0, 0, 1, 0xff, 0xff, 0xff, 0xfe];
        assert_eq!(BoundValues::read(&negative, TYPES).unwrap().get(1), None);
    }
}
