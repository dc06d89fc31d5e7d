//! The rows of `COPY ... FROM STDIN`, and the key of each. Source: `CopyReadLineText`, `CopyReadAttributesText`, `CopyReadAttributesCSV` in
//! copyfromparse.c; `NextCopyFrom` for the binary format.

use std::borrow::Cow;

use weir_sql::copy_from::CopyFormat;

/// Splits data that comes in pieces.
#[derive(Clone, Debug)]
pub struct CopyRows {
    format: CopyFormat,
    /// Place of the key among the values of a row.
    key_at: usize,
    line: LineScan,
    end: Option<LineEnd>,
}

/// A piece at the begin of the data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CopyPiece<'d> {
    Row {
        bytes: usize,
        key: RowKey<'d>,
    },
    /// The rest of the row has not come yet.
    More,
    /// No row follows: the data says so.
    End,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RowKey<'d> {
    Null,
    Value(Cow<'d, [u8]>),
    /// The row has too few values, and a server refuses it.
    None,
}

/// Data that PostgreSQL refuses, or reads otherwise in its versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyFault {
    /// Lines end in two ways, or by a carriage return alone.
    LineEnds,
    /// `\.` as a line of CSV, and behind a value in text: it is the end of the data for some versions of PostgreSQL, and for others a value or an error.
    EndMark,
    /// Something stands behind the end of binary data.
    BehindEnd,
    Signature,
    Malformed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LineEnd {
    Newline,
    ReturnNewline,
}

/// The search for the end of a line, which goes on where it stopped.
#[derive(Clone, Copy, Debug, Default)]
struct LineScan {
    at: usize,
    in_quotes: bool,
    is_escaped: bool,
    has_escapes: bool,
}

const SIGNATURE: &[u8] = b"PGCOPY\n\xff\r\n\0";
/// Behind the signature: flags, and the length of what follows them.
const NUMBERS_BYTES: usize = 8;
const END_MARK: &[u8] = b"\\.";
/// A number of values that ends the data.
pub const TRAILER: [u8; 2] = [0xff, 0xff];

impl CopyRows {
    pub fn new(format: CopyFormat, key_at: usize) -> CopyRows {
        CopyRows { format, key_at, line: LineScan::default(), end: None }
    }

    /// The bytes ahead of the first row, which each part of the rows needs too. `None`: more must come.
    pub fn head(&mut self, has_header: bool, data: &[u8], is_all: bool) -> Result<Option<usize>, CopyFault> {
        match self.format {
            CopyFormat::Binary => binary_head(data),
            CopyFormat::Text { .. } | CopyFormat::Csv { .. } if has_header => match self.line(data, is_all)? {
                Some((bytes, _)) => Ok(Some(bytes)),
                None => Ok(None),
            },
            CopyFormat::Text { .. } | CopyFormat::Csv { .. } => Ok(Some(0)),
        }
    }

    /// The first piece of `data`, which begins with a row. `is_all`: no more follows.
    pub fn next<'d>(&mut self, data: &'d [u8], is_all: bool) -> Result<CopyPiece<'d>, CopyFault> {
        if self.format == CopyFormat::Binary {
            return binary_row(data, self.key_at);
        }
        let Some((bytes, line)) = self.line(data, is_all)? else {
            return Ok(if is_all && data.is_empty() { CopyPiece::End } else { CopyPiece::More });
        };
        let key = match &self.format {
            _ if line == END_MARK => return self.end_mark(),
            CopyFormat::Text { delimiter, null } => text_key(line, *delimiter, null.as_bytes(), self.key_at),
            CopyFormat::Csv { delimiter, quote, escape, null } => {
                csv_key(line, (*delimiter, *quote, *escape), null.as_bytes(), self.key_at)
            }
            CopyFormat::Binary => RowKey::None,
        };
        Ok(CopyPiece::Row { bytes, key })
    }

    fn end_mark<'d>(&self) -> Result<CopyPiece<'d>, CopyFault> {
        match self.format {
            CopyFormat::Csv { .. } => Err(CopyFault::EndMark),
            CopyFormat::Text { .. } | CopyFormat::Binary => Ok(CopyPiece::End),
        }
    }

    /// Source: `CopyReadLineText`, which ends the data at the mark, and takes what stands before it for a row.
    fn check_end_mark(&self, line: &[u8]) -> Result<(), CopyFault> {
        let is_text = matches!(self.format, CopyFormat::Text { .. });
        if is_text && self.line.has_escapes && line != END_MARK && has_end_mark(line) { Err(CopyFault::EndMark) } else { Ok(()) }
    }

    /// The first line with and without its end.
    fn line<'d>(&mut self, data: &'d [u8], is_all: bool) -> Result<Option<(usize, &'d [u8])>, CopyFault> {
        let Some(at) = self.line.end(data, &self.format) else {
            if !is_all || data.is_empty() {
                return Ok(None);
            }
            self.check_end_mark(data)?;
            self.line = LineScan::default();
            return Ok(Some((data.len(), data)));
        };
        if data[at] == b'\r' && at + 1 == data.len() {
            self.line.at = at;
            return if is_all { Err(CopyFault::LineEnds) } else { Ok(None) };
        }
        let end = match (data[at], data.get(at + 1)) {
            (b'\n', _) => LineEnd::Newline,
            (_, Some(b'\n')) => LineEnd::ReturnNewline,
            _ => return Err(CopyFault::LineEnds),
        };
        if *self.end.get_or_insert(end) != end {
            return Err(CopyFault::LineEnds);
        }
        self.check_end_mark(&data[..at])?;
        self.line = LineScan::default();
        let behind = at + if end == LineEnd::ReturnNewline { 2 } else { 1 };
        Ok(Some((behind, &data[..at])))
    }
}

impl LineScan {
    /// The place of the first `\n` or `\r` that ends a line.
    fn end(&mut self, data: &[u8], format: &CopyFormat) -> Option<usize> {
        match format {
            CopyFormat::Csv { quote, escape, .. } => self.csv_end(data, *quote, *escape),
            CopyFormat::Text { .. } | CopyFormat::Binary => self.text_end(data),
        }
    }

    fn text_end(&mut self, data: &[u8]) -> Option<usize> {
        loop {
            if std::mem::take(&mut self.is_escaped) {
                self.at += 1;
            }
            let rest = data.get(self.at..).unwrap_or_default();
            let Some(found) = memchr::memchr3(b'\n', b'\r', b'\\', rest) else {
                self.at = self.at.max(data.len());
                return None;
            };
            self.at += found;
            if data[self.at] != b'\\' {
                return Some(self.at);
            }
            self.at += 1;
            self.has_escapes = true;
            // A byte behind a backslash is a part of a value, also if it has not come yet.
            if self.at < data.len() {
                self.at += 1;
            } else {
                self.is_escaped = true;
                return None;
            }
        }
    }

    fn csv_end(&mut self, data: &[u8], quote: u8, escape: u8) -> Option<usize> {
        while let Some(&byte) = data.get(self.at) {
            let escapes = self.in_quotes && byte == escape && escape != quote;
            if byte == quote && !self.is_escaped {
                self.in_quotes = !self.in_quotes;
            } else if !self.in_quotes && matches!(byte, b'\n' | b'\r') {
                return Some(self.at);
            }
            self.is_escaped = escapes && !self.is_escaped;
            self.at += 1;
        }
        None
    }
}

/// True if a backslash that no other one escapes stands ahead of a dot.
fn has_end_mark(line: &[u8]) -> bool {
    let escapes = |at: usize| line[..=at].iter().rev().take_while(|byte| **byte == b'\\').count() % 2 == 1;
    memchr::memmem::find_iter(line, END_MARK).any(escapes)
}

fn text_key<'d>(line: &'d [u8], delimiter: u8, null: &[u8], key_at: usize) -> RowKey<'d> {
    let mut begin = 0;
    for at in 0..=key_at {
        let end = text_value_end(line, begin, delimiter);
        if at == key_at {
            let value = &line[begin..end];
            return if value == null { RowKey::Null } else { RowKey::Value(unescaped(value)) };
        }
        if end == line.len() {
            break;
        }
        begin = end + 1;
    }
    RowKey::None
}

fn text_value_end(line: &[u8], begin: usize, delimiter: u8) -> usize {
    let mut at = begin;
    while let Some(found) = memchr::memchr2(delimiter, b'\\', &line[at..]) {
        at += found;
        if line[at] == delimiter {
            return at;
        }
        at = (at + 2).min(line.len());
    }
    line.len()
}

/// Source: `CopyReadAttributesText`.
fn unescaped(value: &[u8]) -> Cow<'_, [u8]> {
    if !value.contains(&b'\\') {
        return Cow::Borrowed(value);
    }
    let mut out = Vec::with_capacity(value.len());
    let mut rest = value;
    while let Some((&byte, behind)) = rest.split_first() {
        rest = behind;
        let (b'\\', Some((&escaped, behind))) = (byte, rest.split_first()) else {
            out.push(byte);
            continue;
        };
        rest = behind;
        let digits = |rest: &[u8], most: usize, radix: u32| {
            let is_digit = |byte: &&u8| char::from(**byte).is_digit(radix);
            rest.iter().take(most).take_while(is_digit).count()
        };
        let number = |digits: &[u8], radix: u32| {
            digits.iter().fold(0u32, |number, digit| number * radix + char::from(*digit).to_digit(radix).unwrap_or(0)) as u8
        };
        out.push(match escaped {
            b'0'..=b'7' => {
                let more = digits(rest, 2, 8);
                let value = number(&[&[escaped], &rest[..more]].concat(), 8);
                rest = &rest[more..];
                value
            }
            b'x' if digits(rest, 2, 16) > 0 => {
                let count = digits(rest, 2, 16);
                let value = number(&rest[..count], 16);
                rest = &rest[count..];
                value
            }
            b'b' => 8,
            b'f' => 12,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'v' => 11,
            other => other,
        });
    }
    Cow::Owned(out)
}

/// Source: `CopyReadAttributesCSV`.
fn csv_key<'d>(line: &'d [u8], (delimiter, quote, escape): (u8, u8, u8), null: &[u8], key_at: usize) -> RowKey<'d> {
    let (mut begin, mut at, mut value) = (0, 0, 0);
    let (mut in_quotes, mut was_quoted) = (false, false);
    let mut out = Vec::new();
    loop {
        let byte = line.get(at).copied();
        match byte {
            Some(byte) if in_quotes => {
                let next = line.get(at + 1).copied().filter(|next| *next == escape || *next == quote);
                let is_escape = byte == escape && next.is_some();
                if !is_escape && byte == quote {
                    in_quotes = false;
                } else if value == key_at {
                    out.push(next.filter(|_| is_escape).unwrap_or(byte));
                }
                at += usize::from(is_escape);
            }
            Some(byte) if byte == quote => (in_quotes, was_quoted) = (true, true),
            Some(byte) if byte != delimiter => {
                if value == key_at {
                    out.push(byte);
                }
            }
            Some(_) | None => {
                if value == key_at {
                    let raw = &line[begin..at];
                    return match was_quoted {
                        false if raw == null => RowKey::Null,
                        false => RowKey::Value(Cow::Borrowed(raw)),
                        true => RowKey::Value(Cow::Owned(out)),
                    };
                }
                if byte.is_none() {
                    return RowKey::None;
                }
                (begin, value, was_quoted) = (at + 1, value + 1, false);
                out.clear();
            }
        }
        at += 1;
    }
}

fn binary_head(data: &[u8]) -> Result<Option<usize>, CopyFault> {
    let here = data.len().min(SIGNATURE.len());
    if data[..here] != SIGNATURE[..here] {
        return Err(CopyFault::Signature);
    }
    let Some(numbers) = data.get(SIGNATURE.len()..SIGNATURE.len() + NUMBERS_BYTES) else { return Ok(None) };
    let (flags, length) = numbers.split_at(NUMBERS_BYTES / 2);
    let length = length.try_into().map_or(-1, i32::from_be_bytes);
    // Rows with object numbers are of PostgreSQL up to 11, and other flags of none.
    if flags != [0; 4] || length != 0 {
        return Err(CopyFault::Signature);
    }
    Ok(Some(SIGNATURE.len() + NUMBERS_BYTES))
}

fn binary_row(data: &[u8], key_at: usize) -> Result<CopyPiece<'_>, CopyFault> {
    let Some((count, mut rest)) = data.split_first_chunk::<2>() else { return Ok(CopyPiece::More) };
    let count = match i16::from_be_bytes(*count) {
        -1 => return Ok(CopyPiece::End),
        count => usize::try_from(count).map_err(|_| CopyFault::Malformed)?,
    };
    let mut key = RowKey::None;
    for at in 0..count {
        let Some((length, behind)) = rest.split_first_chunk::<4>() else { return Ok(CopyPiece::More) };
        let value = match i32::from_be_bytes(*length) {
            -1 => None,
            length => Some(usize::try_from(length).map_err(|_| CopyFault::Malformed)?),
        };
        if behind.len() < value.unwrap_or(0) {
            return Ok(CopyPiece::More);
        }
        let (bytes, behind) = behind.split_at(value.unwrap_or(0));
        if at == key_at {
            key = if value.is_some() { RowKey::Value(Cow::Borrowed(bytes)) } else { RowKey::Null };
        }
        rest = behind;
    }
    Ok(CopyPiece::Row { bytes: data.len() - rest.len(), key })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text() -> CopyFormat {
        CopyFormat::Text { delimiter: b'\t', null: "\\N".to_owned() }
    }

    fn csv(quote: u8, escape: u8) -> CopyFormat {
        CopyFormat::Csv { delimiter: b',', quote, escape, null: String::new() }
    }

    type RowWithKey = (Vec<u8>, Option<Vec<u8>>);

    /// Rows with the keys that were found, and the fault at the end. The data comes in pieces of `step` bytes.
    fn split(format: CopyFormat, key_at: usize, data: &[u8], step: usize) -> (Vec<RowWithKey>, Option<CopyFault>) {
        let (mut rows, mut found, mut here) = (CopyRows::new(format, key_at), Vec::new(), Vec::new());
        let mut pieces = data.chunks(step);
        loop {
            let piece = pieces.next();
            here.extend_from_slice(piece.unwrap_or_default());
            loop {
                match rows.next(&here, piece.is_none()) {
                    Ok(CopyPiece::Row { bytes, key }) => {
                        let key = match key {
                            RowKey::Null => None,
                            RowKey::Value(value) => Some(value.to_vec()),
                            RowKey::None => Some(b"(none)".to_vec()),
                        };
                        found.push((here.drain(..bytes).collect(), key));
                    }
                    Ok(CopyPiece::More) if piece.is_some() => break,
                    Ok(CopyPiece::More | CopyPiece::End) => return (found, None),
                    Err(fault) => return (found, Some(fault)),
                }
            }
        }
    }

    fn keys(format: &CopyFormat, key_at: usize, data: &[u8]) -> (Vec<Option<String>>, Option<CopyFault>) {
        let whole = split(format.clone(), key_at, data, data.len().max(1));
        for step in 1..data.len() {
            assert_eq!(split(format.clone(), key_at, data, step), whole, "in pieces of {step}: {}", data.escape_ascii());
        }
        let all: Vec<u8> = whole.0.iter().flat_map(|(row, _)| row.clone()).collect();
        assert!(data.starts_with(&all), "no byte is lost");
        (whole.0.into_iter().map(|(_, key)| key.map(|key| String::from_utf8_lossy(&key).into_owned())).collect(), whole.1)
    }

    #[test]
    fn keys_of_text_are_read_as_the_server_reads_them() {
        for (data, key_at, expected) in [
            (&b"1\ta\n2\tb\n"[..], 0, vec![Some("1"), Some("2")]),
            (b"1\ta\n2\tb", 1, vec![Some("a"), Some("b")]),
            (b"1\ta\r\n2\tb\r\n", 1, vec![Some("a"), Some("b")]),
            (b"\\N\tx\n\\\\N\tx\n", 0, vec![None, Some("\\N")]),
            (b"a\\\tb\tc\n", 1, vec![Some("c")]),
            (b"a\\\nb\tc\nd\te\n", 1, vec![Some("c"), Some("e")]),
            (b"a\\\\\tc\n", 0, vec![Some("a\\")]),
            (b"\\101\\x42\\n\\t\\q\\x\n", 0, vec![Some("AB\n\tqx")]),
            (b"\\1019\\x4a1\n", 0, vec![Some("A9J1")]),
            (b"a\n", 1, vec![Some("(none)")]),
            (b"\n\n", 0, vec![Some(""), Some("")]),
            (b"1\n\\.\nrest", 0, vec![Some("1")]),
            (b"1\\\\.\n2.\\\\\n", 0, vec![Some("1\\."), Some("2.\\")]),
            (b"", 0, vec![]),
        ] {
            let expected: Vec<_> = expected.into_iter().map(|key| key.map(str::to_owned)).collect();
            assert_eq!(keys(&text(), key_at, data), (expected, None), "{}", data.escape_ascii());
        }
    }

    #[test]
    fn keys_of_csv_are_read_as_the_server_reads_them() {
        for (format, data, key_at, expected) in [
            (csv(b'"', b'"'), &b"1,a\n2,b\n"[..], 1, vec![Some("a"), Some("b")]),
            (csv(b'"', b'"'), b"1,\n2,\"\"\n", 1, vec![None, Some("")]),
            (csv(b'"', b'"'), b"\"a,\"\"b\"\"\nc\",2\nd,3\n", 0, vec![Some("a,\"b\"\nc"), Some("d")]),
            (csv(b'"', b'"'), b"\"a,\"\"b\"\"\nc\",2\nd,3\n", 1, vec![Some("2"), Some("3")]),
            (csv(b'"', b'\\'), b"\"a\\\"\n\\\\\",2\nd,3\n", 0, vec![Some("a\"\n\\"), Some("d")]),
            (csv(b'"', b'\\'), b"\"a\\\"\n\\\\\",2\nd,3\n", 1, vec![Some("2"), Some("3")]),
            (csv(b'\'', b'\''), b"'a\r\n',2\r\nb,3\r\n", 0, vec![Some("a\r\n"), Some("b")]),
            (csv(b'"', b'"'), b"a\"b,\"c,3\n", 0, vec![Some("ab,c")]),
            (csv(b'"', b'"'), b"a\\,2\n", 0, vec![Some("a\\")]),
            (csv(b'"', b'"'), b"a\n", 3, vec![Some("(none)")]),
        ] {
            let expected: Vec<_> = expected.into_iter().map(|key| key.map(str::to_owned)).collect();
            assert_eq!(keys(&format, key_at, data), (expected, None), "{}", data.escape_ascii());
        }
    }

    #[test]
    fn data_that_servers_refuse_or_read_in_two_ways_is_refused() {
        for (format, data, fault) in [
            (text(), &b"1\n2\r\n3\n"[..], CopyFault::LineEnds),
            (text(), b"1\r\n2\n", CopyFault::LineEnds),
            (text(), b"1\r2\r", CopyFault::LineEnds),
            (csv(b'"', b'"'), b"1\n\\.\n", CopyFault::EndMark),
            (text(), b"1\n2\\.\n3\n", CopyFault::EndMark),
            (text(), b"1\n\\.2\n3\n", CopyFault::EndMark),
            (text(), b"1\n2\\\\\\.", CopyFault::EndMark),
        ] {
            assert_eq!(keys(&format, 0, data).1, Some(fault), "{}", data.escape_ascii());
        }
    }

    fn binary(rows: &[&[Option<&[u8]>]]) -> Vec<u8> {
        let mut out = Vec::new();
        for row in rows {
            out.extend((row.len() as i16).to_be_bytes());
            for value in *row {
                out.extend(value.map_or(-1, |value| value.len() as i32).to_be_bytes());
                out.extend_from_slice(value.unwrap_or_default());
            }
        }
        out
    }

    #[test]
    fn binary_rows_have_lengths() {
        let data = binary(&[&[Some(b"a"), None], &[Some(b"bc"), Some(b"")], &[]]);
        let whole = [data, TRAILER.to_vec()].concat();
        assert_eq!(
            keys(&CopyFormat::Binary, 0, &whole).0,
            [Some("a"), Some("bc"), Some("(none)")].map(|key| key.map(str::to_owned))
        );
        assert_eq!(keys(&CopyFormat::Binary, 1, &whole).0[..2], [None, Some(String::new())]);
        assert_eq!(keys(&CopyFormat::Binary, 0, b"\xff\xfe").1, Some(CopyFault::Malformed));
        assert_eq!(keys(&CopyFormat::Binary, 0, b"\0\x01\xff\xff\xff\xfe").1, Some(CopyFault::Malformed));
    }

    #[test]
    fn a_head_is_the_signature_or_a_line() {
        let whole = [SIGNATURE, &[0; 8], &TRAILER].concat();
        let mut rows = CopyRows::new(CopyFormat::Binary, 0);
        for here in 0..SIGNATURE.len() + NUMBERS_BYTES {
            assert_eq!(rows.head(false, &whole[..here], false), Ok(None));
        }
        assert_eq!(rows.head(false, &whole, false), Ok(Some(19)));
        assert_eq!(rows.head(false, b"PGCOPX", false), Err(CopyFault::Signature));
        let with_flags = [SIGNATURE, &[0, 1, 0, 0, 0, 0, 0, 0]].concat();
        assert_eq!(rows.head(false, &with_flags, false), Err(CopyFault::Signature));
        let mut rows = CopyRows::new(csv(b'"', b'"'), 0);
        assert_eq!(rows.head(true, b"a,\"b\n", false), Ok(None));
        assert_eq!(rows.head(true, b"a,\"b\n\"\n1,2\n", false), Ok(Some(7)));
        assert_eq!(CopyRows::new(text(), 0).head(false, b"", false), Ok(Some(0)));
    }
}
