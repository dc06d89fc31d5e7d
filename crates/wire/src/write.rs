//! Message encoders, which append to the caller's buffer.

use crate::frame::{back, front};
use crate::startup_packet::ProtocolVersion;
use std::ffi::CStr;

pub fn message(out: &mut Vec<u8>, tag: u8, body: impl FnOnce(&mut Vec<u8>)) {
    out.push(tag);
    let at = out.len();
    out.extend_from_slice(&[0; 4]);
    body(out);
    patch_length(out, at);
}

fn patch_length(out: &mut [u8], at: usize) {
    let length = (out.len() - at) as u32;
    out[at..at + 4].copy_from_slice(&length.to_be_bytes());
}

/// Appends a NUL-terminated string, cut at a NUL inside.
pub fn cstr(out: &mut Vec<u8>, text: &[u8]) {
    let text = CStr::from_bytes_until_nul(text).map_or(text, CStr::to_bytes);
    out.extend_from_slice(text);
    out.push(0);
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutgoingReport<'a> {
    pub severity: &'a str,
    pub sqlstate: &'a str,
    pub message: &'a str,
    pub detail: &'a str,
    pub hint: &'a str,
    /// The C function of PostgreSQL that reports it.
    pub routine: &'a str,
}

pub fn error(out: &mut Vec<u8>, report: &OutgoingReport<'_>) {
    report_message(out, back::ERROR, report, &[]);
}

/// `more`: further fields as a server writes them, each with its zero byte.
pub fn error_with_fields(out: &mut Vec<u8>, report: &OutgoingReport<'_>, more: &[u8]) {
    report_message(out, back::ERROR, report, more);
}

pub fn notice(out: &mut Vec<u8>, report: &OutgoingReport<'_>) {
    report_message(out, back::NOTICE, report, &[]);
}

fn report_message(out: &mut Vec<u8>, tag: u8, report: &OutgoingReport<'_>, more: &[u8]) {
    message(out, tag, |out| {
        let fields = [
            (b'S', report.severity),
            (b'V', report.severity),
            (b'C', report.sqlstate),
            (b'M', report.message),
            (b'D', report.detail),
            (b'H', report.hint),
            (b'R', report.routine),
        ];
        for (field, text) in fields {
            if !text.is_empty() {
                out.push(field);
                cstr(out, text.as_bytes());
            }
        }
        out.extend_from_slice(more);
        out.push(0);
    });
}

/// Appends a protocol 2 error: no length. Source: `send_message_to_frontend` in elog.c.
pub fn error_v2(out: &mut Vec<u8>, text: &str) {
    out.push(b'E');
    cstr(out, format!("FATAL:  {text}\n").as_bytes());
}

pub fn ready(out: &mut Vec<u8>, status: u8) {
    message(out, back::READY, |out| out.push(status));
}

pub fn command_complete(out: &mut Vec<u8>, tag: &str) {
    message(out, back::COMMAND_COMPLETE, |out| cstr(out, tag.as_bytes()));
}

pub fn parameter_status(out: &mut Vec<u8>, name: &str, value: &str) {
    message(out, back::PARAMETER_STATUS, |out| {
        cstr(out, name.as_bytes());
        cstr(out, value.as_bytes());
    });
}

pub fn bare(out: &mut Vec<u8>, tag: u8) {
    message(out, tag, |_| {});
}

pub fn authentication(out: &mut Vec<u8>, code: u32, rest: &[u8]) {
    message(out, back::AUTHENTICATION, |out| {
        out.extend_from_slice(&code.to_be_bytes());
        out.extend_from_slice(rest);
    });
}

pub fn backend_key_data(out: &mut Vec<u8>, pid: u32, key: &[u8]) {
    message(out, back::BACKEND_KEY_DATA, |out| {
        out.extend_from_slice(&pid.to_be_bytes());
        out.extend_from_slice(key);
    });
}

pub fn negotiate_version(out: &mut Vec<u8>, newest: ProtocolVersion, unknown: &[String]) {
    message(out, back::NEGOTIATE_VERSION, |out| {
        out.extend_from_slice(&newest.0.to_be_bytes());
        out.extend_from_slice(&(unknown.len() as u32).to_be_bytes());
        for option in unknown {
            cstr(out, option.as_bytes());
        }
    });
}

/// Size -1: variable. Source: `pg_type.dat`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ColumnType {
    pub oid: u32,
    pub bytes: i16,
}

pub const TEXT: ColumnType = ColumnType { oid: 25, bytes: -1 };
pub const INT4: ColumnType = ColumnType { oid: 23, bytes: 4 };
pub const INT8: ColumnType = ColumnType { oid: 20, bytes: 8 };
pub const NUMERIC: ColumnType = ColumnType { oid: 1700, bytes: -1 };

/// Type `text`, which drivers that look types up can read.
pub fn row_description<'a>(out: &mut Vec<u8>, columns: impl ExactSizeIterator<Item = &'a str>, formats: &[u16]) {
    typed_row_description(out, columns.map(|name| (name, TEXT)), formats);
}

/// `formats`: none for text, one for all, or one each. 0 is text.
pub fn format_of(formats: &[u16], column: usize) -> u16 {
    formats.get(column).or(formats.first().filter(|_| formats.len() == 1)).copied().unwrap_or(0)
}

pub fn typed_row_description<'a>(
    out: &mut Vec<u8>,
    columns: impl ExactSizeIterator<Item = (&'a str, ColumnType)>,
    formats: &[u16],
) {
    message(out, back::ROW_DESCRIPTION, |out| {
        out.extend_from_slice(&(columns.len() as u16).to_be_bytes());
        for (at, (name, kind)) in columns.enumerate() {
            cstr(out, name.as_bytes());
            out.extend_from_slice(&0u32.to_be_bytes());
            out.extend_from_slice(&0u16.to_be_bytes());
            out.extend_from_slice(&kind.oid.to_be_bytes());
            out.extend_from_slice(&kind.bytes.to_be_bytes());
            out.extend_from_slice(&(-1i32).to_be_bytes());
            out.extend_from_slice(&format_of(formats, at).to_be_bytes());
        }
    });
}

pub fn data_row<S: AsRef<str>>(out: &mut Vec<u8>, values: &[S]) {
    message(out, back::DATA_ROW, |out| {
        out.extend_from_slice(&(values.len() as u16).to_be_bytes());
        for value in values {
            let value = value.as_ref().as_bytes();
            out.extend_from_slice(&(value.len() as u32).to_be_bytes());
            out.extend_from_slice(value);
        }
    });
}

pub fn data_row_of<'a>(out: &mut Vec<u8>, values: impl ExactSizeIterator<Item = Option<&'a [u8]>>) {
    message(out, back::DATA_ROW, |out| {
        out.extend_from_slice(&(values.len() as u16).to_be_bytes());
        for value in values {
            match value {
                Some(value) => {
                    out.extend_from_slice(&(value.len() as u32).to_be_bytes());
                    out.extend_from_slice(value);
                }
                None => out.extend((-1i32).to_be_bytes()),
            }
        }
    });
}

/// Source: `numeric_send` in numeric.c.
pub fn numeric(out: &mut Vec<u8>, mut number: u64) {
    let mut digits = Vec::new();
    while number > 0 {
        digits.push((number % 10_000) as u16);
        number /= 10_000;
    }
    let weight = digits.len().saturating_sub(1) as u16;
    let zeros = digits.iter().take_while(|digit| **digit == 0).count();
    let shown = &digits[zeros..];
    // Digit count, weight of the first, sign, digits after the point.
    for word in [shown.len() as u16, weight, 0, 0].iter().chain(shown.iter().rev()) {
        out.extend_from_slice(&word.to_be_bytes());
    }
}

pub fn no_parameters(out: &mut Vec<u8>) {
    message(out, back::PARAMETER_DESCRIPTION, |out| out.extend(0u16.to_be_bytes()));
}

// Messages from Weir to servers.

pub fn query(out: &mut Vec<u8>, text: &str) {
    message(out, front::QUERY, |out| cstr(out, text.as_bytes()));
}

/// `tail`: the original body after its name.
pub fn parse(out: &mut Vec<u8>, name: &[u8], tail: &[u8]) {
    message(out, front::PARSE, |out| {
        cstr(out, name);
        out.extend_from_slice(tail);
    });
}

/// Appends Describe or Close of a statement (`S`) or portal (`P`).
pub fn named(out: &mut Vec<u8>, tag: u8, kind: u8, name: &[u8]) {
    message(out, tag, |out| {
        out.push(kind);
        cstr(out, name);
    });
}

/// The caller sends the original's other `rest_bytes`.
pub fn bind_head(out: &mut Vec<u8>, portal: &[u8], statement: &[u8], rest_bytes: usize) {
    out.push(front::BIND);
    let length = 4 + portal.len() + 1 + statement.len() + 1 + rest_bytes;
    out.extend_from_slice(&(length as u32).to_be_bytes());
    cstr(out, portal);
    cstr(out, statement);
}

pub fn startup<'a>(out: &mut Vec<u8>, version: ProtocolVersion, parameters: impl Iterator<Item = (&'a str, &'a str)>) {
    let at = out.len();
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&version.0.to_be_bytes());
    for (name, value) in parameters {
        cstr(out, name.as_bytes());
        cstr(out, value.as_bytes());
    }
    out.push(0);
    patch_length(out, at);
}

pub fn ssl_request(out: &mut Vec<u8>) {
    out.extend_from_slice(&8u32.to_be_bytes());
    out.extend_from_slice(&((1234u32 << 16) | 5679).to_be_bytes());
}

pub fn cancel_request(out: &mut Vec<u8>, pid: u32, key: &[u8]) {
    cancel(out, (1234 << 16) | 5678, pid, key);
}

/// Appends a client's cancel request for another Weir.
pub fn passed_cancel_request(out: &mut Vec<u8>, pid: u32, key: &[u8]) {
    cancel(out, crate::startup_packet::PASSED_CANCEL, pid, key);
}

fn cancel(out: &mut Vec<u8>, code: u32, pid: u32, key: &[u8]) {
    let at = out.len();
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&code.to_be_bytes());
    out.extend_from_slice(&pid.to_be_bytes());
    out.extend_from_slice(key);
    patch_length(out, at);
}

/// Appends an SQL literal, valid with either `standard_conforming_strings`.
pub fn literal(out: &mut String, text: &str) {
    out.push_str(if text.contains('\\') { " E'" } else { "'" });
    for c in text.chars() {
        if matches!(c, '\'' | '\\') {
            out.push(c);
        }
        out.push(c);
    }
    out.push('\'');
}

pub fn identifier(out: &mut String, name: &str) {
    out.push('"');
    for c in name.chars() {
        if c == '"' {
            out.push('"');
        }
        out.push(c);
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
        let mut out = Vec::new();
        write(&mut out);
        out
    }

    #[test]
    fn messages_carry_their_own_length() {
        assert_eq!(written(|o| ready(o, b'I')), b"Z\0\0\0\x05I");
        assert_eq!(written(|o| query(o, "x")), b"Q\0\0\0\x06x\0");
        assert_eq!(written(|o| named(o, b'C', b'S', b"a")), b"C\0\0\0\x07Sa\0");
        assert_eq!(written(|o| cancel_request(o, 1, b"\0\0\0\x02")), b"\0\0\0\x10\x04\xd2\x16\x2e\0\0\0\x01\0\0\0\x02");
    }

    #[test]
    fn reports_and_columns_are_written_with_all_their_fields() {
        let report = OutgoingReport { severity: "ERROR", sqlstate: "42601", message: "m", detail: "d", hint: "h", routine: "r" };
        let fields = b"SERROR\0VERROR\0C42601\0Mm\0Dd\0Hh\0Rr\0\0";
        let whole = |tag: u8| [&[tag][..], &(fields.len() as u32 + 4).to_be_bytes(), fields].concat();
        assert_eq!(written(|o| error(o, &report)), whole(b'E'));
        assert_eq!(written(|o| notice(o, &report)), whole(b'N'));
        let columns = [("a", ColumnType { oid: 23, bytes: 4 })];
        let column = b"\0\x01a\0\0\0\0\0\0\0\0\0\0\x17\0\x04\xff\xff\xff\xff\0\x01";
        let expected = [&b"T"[..], &(column.len() as u32 + 4).to_be_bytes(), column].concat();
        assert_eq!(written(|o| typed_row_description(o, columns.into_iter(), &[1])), expected);
        assert_eq!(written(|o| parameter_status(o, "a", "b")), b"S\0\0\0\x08a\0b\0");
    }

    #[test]
    fn numbers_are_written_as_numeric() {
        for (number, words) in [
            (0, &[0, 0, 0, 0][..]),
            (7, &[1, 0, 0, 0, 7]),
            (10_000, &[1, 1, 0, 0, 1]),
            (120_034_005, &[3, 2, 0, 0, 1, 2003, 4005]),
        ] {
            let expected: Vec<u8> = words.iter().flat_map(|word: &u16| word.to_be_bytes()).collect();
            assert_eq!(written(|o| numeric(o, number)), expected, "{number}");
        }
    }

    #[test]
    fn a_bind_head_announces_the_bytes_that_follow() {
        assert_eq!(written(|o| bind_head(o, b"", b"w1", 6)), b"B\0\0\0\x0e\0w1\0");
    }

    #[test]
    fn literals_are_quoted() {
        for (text, expected) in [("a", "'a'"), ("a'b", "'a''b'"), (r"a\b", r" E'a\\b'")] {
            let mut out = String::new();
            literal(&mut out, text);
            assert_eq!(out, expected);
        }
    }

    #[test]
    fn a_parameter_is_told_with_its_value() {
        let mut out = Vec::new();
        parameter_status(&mut out, "TimeZone", "UTC");
        assert_eq!(out, b"S\0\0\0\x11TimeZone\0UTC\0");
    }
}
