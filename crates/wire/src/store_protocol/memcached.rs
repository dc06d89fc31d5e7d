//! memcached's text protocol. Source: doc/protocol.txt of memcached.

use super::{StoreError, StoreReply, StoreReplyKind, StoreReplyReader, StoreRequest, number, unexpected, words};
use std::io::Write;

/// memcached reads larger values as seconds since 1970.
const SECONDS_MAX: u64 = 60 * 60 * 24 * 30;

pub fn write(ask: StoreRequest<'_>, out: &mut Vec<u8>) {
    match ask {
        StoreRequest::Get(keys) => {
            out.extend_from_slice(b"get");
            for key in keys {
                out.push(b' ');
                out.extend_from_slice(key);
            }
            out.extend_from_slice(b"\r\n");
        }
        StoreRequest::Set { key, bytes, seconds } => set(key, bytes, seconds, out),
        // Not in the text protocol and never requested.
        StoreRequest::LogIn { .. } | StoreRequest::Select(_) | StoreRequest::Nodes => out.extend_from_slice(b"version\r\n"),
    }
}

fn set(key: &[u8], bytes: &[u8], seconds: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(b"set ");
    out.extend_from_slice(key);
    let _ = write!(out, " 0 {} {}", seconds.min(SECONDS_MAX), bytes.len());
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
}

pub fn read(expect: &StoreReplyKind, reader: &mut StoreReplyReader<'_>) -> Result<Option<StoreReply>, StoreError> {
    match expect {
        StoreReplyKind::Values(keys) => values(keys, reader),
        StoreReplyKind::Done | StoreReplyKind::Text => done(reader),
    }
}

/// Reads `VALUE key flags bytes` and values up to `END`.
fn values(keys: &[Vec<u8>], reader: &mut StoreReplyReader<'_>) -> Result<Option<StoreReply>, StoreError> {
    // Incomplete replies are read again: copy none of them.
    let mut values: Vec<Option<&[u8]>> = vec![None; keys.len()];
    let mut next = 0;
    loop {
        let Some(line) = reader.line()? else { return Ok(None) };
        if line == b"END" {
            return Ok(Some(StoreReply::Values(values.into_iter().map(|value| value.map(<[u8]>::to_vec)).collect())));
        }
        let mut parts = line.split(|byte| *byte == b' ');
        let (Some(b"VALUE"), Some(key), Some(_flags)) = (parts.next(), parts.next(), parts.next()) else {
            return Err(unexpected(line));
        };
        let length = parts.next().and_then(number).ok_or_else(|| unexpected(line))?;
        let Some(bytes) = reader.block(length)? else { return Ok(None) };
        // Values come in the order of the keys; missing ones are left out.
        let ahead = keys[next..].iter().position(|asked| asked == key).ok_or_else(|| unexpected(line))?;
        values[next + ahead] = Some(bytes);
        next += ahead + 1;
    }
}

fn done(reader: &mut StoreReplyReader<'_>) -> Result<Option<StoreReply>, StoreError> {
    let Some(line) = reader.line()? else { return Ok(None) };
    Ok(Some(match line {
        b"STORED" => StoreReply::Done,
        _ if line.starts_with(b"VERSION ") => StoreReply::Done,
        _ if line.starts_with(b"SERVER_ERROR ") => StoreReply::Refused(words(line)),
        _ => return Err(unexpected(line)),
    }))
}
