//! Message headers: a tag byte and a length word, found without copying or waiting for the whole message.

/// Tag and length word.
pub const HEADER_BYTES: usize = 5;

/// Limit of a body. PostgreSQL allows 1 GB for most messages (`PQ_LARGE_MESSAGE_LIMIT`, `MaxAllocSize - 1`).
pub const BODY_BYTES_MAX: u32 = 0x3fff_fffe;

/// A violation of protocol 3.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    #[error("invalid message length {length}, limit is {limit}")]
    BadLength { length: u32, limit: u32 },
    #[error("malformed message of type \"{}\"", .tag.escape_ascii())]
    Malformed { tag: u8 },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageHeader {
    pub tag: u8,
    /// Excludes the tag and the length word.
    pub body_bytes: u32,
}

impl MessageHeader {
    pub fn frame_bytes(self) -> usize {
        HEADER_BYTES + self.body_bytes as usize
    }
}

/// Reads one header; `None` below 5 bytes.
///
/// Error: `BadLength` below 4 or above the limit; close the connection. Source: PostgreSQL manual, "Message Formats";
/// `pq_getmessage` in pqcomm.c.
#[inline]
pub fn read_header(bytes: &[u8]) -> Result<Option<MessageHeader>, WireError> {
    let Some((&[tag, a, b, c, d], _)) = bytes.split_first_chunk::<HEADER_BYTES>() else {
        return Ok(None);
    };
    let length = u32::from_be_bytes([a, b, c, d]);
    if !(4..=BODY_BYTES_MAX).contains(&length) {
        return Err(WireError::BadLength { length, limit: BODY_BYTES_MAX });
    }
    Ok(Some(MessageHeader { tag, body_bytes: length - 4 }))
}

/// Returns the bytes of the leading whole messages with this tag, such as rows of a result.
pub fn run_bytes(bytes: &[u8], tag: u8) -> usize {
    let mut at = 0;
    while let Some((&[found, a, b, c, d], _)) = bytes[at..].split_first_chunk::<HEADER_BYTES>() {
        let length = u32::from_be_bytes([a, b, c, d]);
        let end = at + 1 + length as usize;
        if found != tag || length < 4 || end > bytes.len() {
            break;
        }
        at = end;
    }
    at
}

/// Splits at the first NUL; `None` without one.
pub fn split_cstr(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = std::ffi::CStr::from_bytes_until_nul(bytes).ok()?.count_bytes();
    Some((&bytes[..end], &bytes[end + 1..]))
}

/// Tags of client messages. Source: PostgreSQL manual, "Message Formats"; protocol.h.
pub mod front {
    pub const QUERY: u8 = b'Q';
    pub const PARSE: u8 = b'P';
    pub const BIND: u8 = b'B';
    pub const DESCRIBE: u8 = b'D';
    pub const EXECUTE: u8 = b'E';
    pub const CLOSE: u8 = b'C';
    pub const FLUSH: u8 = b'H';
    pub const SYNC: u8 = b'S';
    pub const FUNCTION_CALL: u8 = b'F';
    pub const COPY_DATA: u8 = b'd';
    pub const COPY_DONE: u8 = b'c';
    pub const COPY_FAIL: u8 = b'f';
    pub const PASSWORD: u8 = b'p';
    pub const TERMINATE: u8 = b'X';
}

/// Tags of server messages.
pub mod back {
    pub const AUTHENTICATION: u8 = b'R';
    pub const BACKEND_KEY_DATA: u8 = b'K';
    pub const BIND_COMPLETE: u8 = b'2';
    pub const CLOSE_COMPLETE: u8 = b'3';
    pub const COMMAND_COMPLETE: u8 = b'C';
    pub const COPY_BOTH: u8 = b'W';
    pub const COPY_DATA: u8 = b'd';
    pub const COPY_DONE: u8 = b'c';
    pub const COPY_IN: u8 = b'G';
    pub const COPY_OUT: u8 = b'H';
    pub const DATA_ROW: u8 = b'D';
    pub const EMPTY_QUERY: u8 = b'I';
    pub const ERROR: u8 = b'E';
    pub const FUNCTION_RESULT: u8 = b'V';
    pub const NEGOTIATE_VERSION: u8 = b'v';
    pub const NO_DATA: u8 = b'n';
    pub const NOTICE: u8 = b'N';
    pub const NOTIFICATION: u8 = b'A';
    pub const PARAMETER_DESCRIPTION: u8 = b't';
    pub const PARAMETER_STATUS: u8 = b'S';
    pub const PARSE_COMPLETE: u8 = b'1';
    pub const PORTAL_SUSPENDED: u8 = b's';
    pub const READY: u8 = b'Z';
    pub const ROW_DESCRIPTION: u8 = b'T';
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_read_once_five_bytes_are_here() {
        assert_eq!(read_header(b"Q\0\0\0"), Ok(None));
        assert_eq!(read_header(b"Q\0\0\0\x04"), Ok(Some(MessageHeader { tag: b'Q', body_bytes: 0 })));
        assert_eq!(read_header(b"Z\0\0\0\x05I"), Ok(Some(MessageHeader { tag: b'Z', body_bytes: 1 })));
    }

    #[test]
    fn a_length_outside_the_protocol_is_refused() {
        for length in [0u32, 3, 0x3fff_ffff, u32::MAX] {
            let mut bytes = vec![b'Q'];
            bytes.extend(length.to_be_bytes());
            assert_eq!(read_header(&bytes), Err(WireError::BadLength { length, limit: BODY_BYTES_MAX }));
        }
    }

    #[test]
    fn a_run_ends_at_another_kind_at_a_part_and_at_nonsense() {
        let row = b"D\0\0\0\x06ab";
        let run = |tail: &[u8]| run_bytes(&[&row[..], row, tail].concat(), b'D');
        for tail in [&b""[..], b"D\0\0", b"D\0\0\0\x06a", b"C\0\0\0\x04", b"D\0\0\0\x03", b"D\xff\xff\xff\xff"] {
            assert_eq!(run(tail), 14, "{tail:?}");
        }
        assert_eq!(run(row), 21);
        assert_eq!(run_bytes(b"", b'D'), 0);
    }

    #[test]
    fn a_string_ends_at_its_nul() {
        assert_eq!(split_cstr(b"ab\0c"), Some((&b"ab"[..], &b"c"[..])));
        assert_eq!(split_cstr(b"ab"), None);
    }
}
