//! Borrowed views of server messages.

use crate::frame::split_cstr;

/// Fields of an ErrorResponse or NoticeResponse that a proxy needs; empty if absent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReceivedReport<'a> {
    pub severity: &'a [u8],
    pub sqlstate: &'a [u8],
    pub message: &'a [u8],
    pub detail: &'a [u8],
    /// Functions and statements within which the error was raised.
    pub context: &'a [u8],
    /// C function of the server that raised it.
    pub routine: &'a [u8],
}

/// Reads a report; from a malformed body what can be read.
pub fn read_report(mut body: &[u8]) -> ReceivedReport<'_> {
    let mut report = ReceivedReport::default();
    while let Some((&field, rest)) = body.split_first() {
        let Some((value, after)) = split_cstr(rest) else { break };
        match field {
            b'V' => report.severity = value,
            b'S' if report.severity.is_empty() => report.severity = value,
            b'C' => report.sqlstate = value,
            b'M' => report.message = value,
            b'D' => report.detail = value,
            b'W' => report.context = value,
            b'R' => report.routine = value,
            _ => {}
        }
        body = after;
    }
    report
}

/// The fields of a report that are among `wanted`, each with its zero byte.
pub fn report_fields(mut body: &[u8], wanted: &[u8]) -> Vec<u8> {
    let mut fields = Vec::new();
    while let Some((&field, rest)) = body.split_first() {
        let Some((value, after)) = split_cstr(rest) else { break };
        if wanted.contains(&field) {
            fields.extend_from_slice(&body[..value.len() + 2]);
        }
        body = after;
    }
    fields
}

/// Reads name and value of a ParameterStatus.
pub fn read_parameter(body: &[u8]) -> Option<(&[u8], &[u8])> {
    let (name, rest) = split_cstr(body)?;
    let (value, _) = split_cstr(rest)?;
    Some((name, value))
}

/// Reads process id and key (4 bytes in protocol 3.0, up to 256 in 3.2) of a BackendKeyData.
pub fn read_key(body: &[u8]) -> Option<(u32, &[u8])> {
    let (&pid, key) = body.split_first_chunk::<4>()?;
    (!key.is_empty() && key.len() <= 256).then_some((u32::from_be_bytes(pid), key))
}

/// An authentication request of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuthRequest<'a> {
    Ok,
    Cleartext,
    Md5 {
        salt: [u8; 4],
    },
    /// Mechanisms, by the server's preference.
    Sasl(Vec<&'a [u8]>),
    SaslContinue(&'a [u8]),
    SaslFinal(&'a [u8]),
    /// Code of a method without support (GSSAPI, SSPI).
    Other(u32),
}

pub fn read_auth(body: &[u8]) -> Option<AuthRequest<'_>> {
    let (&code, rest) = body.split_first_chunk::<4>()?;
    Some(match u32::from_be_bytes(code) {
        0 => AuthRequest::Ok,
        3 => AuthRequest::Cleartext,
        5 => AuthRequest::Md5 { salt: *rest.first_chunk::<4>()? },
        10 => {
            let mut mechanisms = Vec::new();
            let mut rest = rest;
            while let Some((name, after)) = split_cstr(rest) {
                if name.is_empty() {
                    break;
                }
                mechanisms.push(name);
                rest = after;
            }
            AuthRequest::Sasl(mechanisms)
        }
        11 => AuthRequest::SaslContinue(rest),
        12 => AuthRequest::SaslFinal(rest),
        code => AuthRequest::Other(code),
    })
}

/// Reads the columns of a DataRow; `None` if malformed, an inner `None` is NULL.
pub fn read_row(body: &[u8]) -> Option<Vec<Option<&[u8]>>> {
    let (&count, mut rest) = body.split_first_chunk::<2>()?;
    let mut values = Vec::new();
    for _ in 0..u16::from_be_bytes(count) {
        let (&length, after) = rest.split_first_chunk::<4>()?;
        let length = i32::from_be_bytes(length);
        if length < 0 {
            values.push(None);
            rest = after;
            continue;
        }
        values.push(Some(after.get(..length as usize)?));
        rest = &after[length as usize..];
    }
    Some(values)
}

/// Reads a DataRow of exactly `N` columns, without allocation.
pub fn read_columns<const N: usize>(body: &[u8]) -> Option<[Option<&[u8]>; N]> {
    let (&count, mut rest) = body.split_first_chunk::<2>()?;
    if usize::from(u16::from_be_bytes(count)) != N {
        return None;
    }
    let mut values = [None; N];
    for value in &mut values {
        let (&length, after) = rest.split_first_chunk::<4>()?;
        rest = after;
        if let Ok(length) = usize::try_from(i32::from_be_bytes(length)) {
            *value = Some(rest.get(..length)?);
            rest = &rest[length..];
        }
    }
    Some(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_read_by_field() {
        let report = read_report(b"SFEHLER\0VERROR\0C42601\0Mbad\0Ddetail\0\0");
        assert_eq!(report.severity, b"ERROR");
        assert_eq!((report.sqlstate, report.message, report.detail), (&b"42601"[..], &b"bad"[..], &b"detail"[..]));
        assert_eq!(read_report(b"C42").sqlstate, b"");
    }

    #[test]
    fn some_fields_of_a_report_are_handed_on() {
        let report = b"SERROR\0C23505\0Mbad\0Ddetail\0nkey\0tname\0F\0\0";
        assert_eq!(report_fields(report, b"Dnt"), b"Ddetail\0nkey\0tname\0");
        assert_eq!(report_fields(b"Ddetail", b"D"), b"");
    }

    #[test]
    fn authentication_requests_are_told_apart() {
        assert_eq!(read_auth(&[0, 0, 0, 0]), Some(AuthRequest::Ok));
        assert_eq!(read_auth(&[0, 0, 0, 5, 1, 2, 3, 4]), Some(AuthRequest::Md5 { salt: [1, 2, 3, 4] }));
        assert_eq!(read_auth(&[0, 0, 0, 5, 1]), None);
        let sasl = AuthRequest::Sasl(vec![b"SCRAM-SHA-256-PLUS", b"SCRAM-SHA-256"]);
        assert_eq!(read_auth(b"\0\0\0\x0aSCRAM-SHA-256-PLUS\0SCRAM-SHA-256\0\0"), Some(sasl));
        assert_eq!(read_auth(&[0, 0, 0, 7]), Some(AuthRequest::Other(7)));
    }

    #[test]
    fn rows_are_read() {
        assert_eq!(read_row(b"\0\x02\0\0\0\x01a\xff\xff\xff\xff"), Some(vec![Some(&b"a"[..]), None]));
        assert_eq!(read_row(b"\0\x01\0\0\0\x05a"), None);
        assert_eq!(read_columns(b"\0\x02\0\0\0\x01a\xff\xff\xff\xff"), Some([Some(&b"a"[..]), None]));
        assert_eq!(read_columns::<1>(b"\0\x01\0\0\0\x05a"), None);
        assert_eq!(read_columns::<1>(b"\0\x02\0\0\0\x01a\xff\xff\xff\xff"), None);
    }
}
