//! RESP2, the protocol of Redis and Valkey. Source: redis.io, "Redis serialization protocol specification".

use super::{StoreError, StoreReply, StoreReplyKind, StoreReplyReader, StoreRequest, number, unexpected, words};
use std::io::Write;

pub fn write(ask: StoreRequest<'_>, out: &mut Vec<u8>) {
    match ask {
        StoreRequest::Get(keys) => {
            let _ = write!(out, "*{}\r\n", keys.len() + 1);
            bulk(b"MGET", out);
            keys.iter().for_each(|key| bulk(key, out));
        }
        StoreRequest::Set { key, bytes, seconds: 0 } => command(&[b"SET", key, bytes], out),
        StoreRequest::Set { key, bytes, seconds } => command(&[b"SET", key, bytes, b"EX", seconds.to_string().as_bytes()], out),
        StoreRequest::LogIn { user: b"", password } => command(&[b"AUTH", password], out),
        StoreRequest::LogIn { user, password } => command(&[b"AUTH", user, password], out),
        StoreRequest::Nodes => command(&[b"CLUSTER", b"NODES"], out),
        StoreRequest::Select(database) => command(&[b"SELECT", database.to_string().as_bytes()], out),
    }
}

fn command(parts: &[&[u8]], out: &mut Vec<u8>) {
    let _ = write!(out, "*{}\r\n", parts.len());
    parts.iter().for_each(|part| bulk(part, out));
}

fn bulk(bytes: &[u8], out: &mut Vec<u8>) {
    let _ = write!(out, "${}\r\n", bytes.len());
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
}

pub fn read(expect: &StoreReplyKind, reader: &mut StoreReplyReader<'_>) -> Result<Option<StoreReply>, StoreError> {
    let Some(line) = reader.line()? else { return Ok(None) };
    let (kind, rest) = line.split_first().ok_or_else(|| unexpected(line))?;
    match (kind, expect) {
        (b'*', StoreReplyKind::Values(keys)) if number(rest) == Some(keys.len() as u64) => values(keys.len(), reader),
        (b'$', StoreReplyKind::Text) => {
            let length = number(rest).ok_or_else(|| unexpected(line))?;
            Ok(reader.block(length)?.map(|bytes| StoreReply::Text(String::from_utf8_lossy(bytes).into_owned())))
        }
        (b'-', _) => Ok(Some(StoreReply::Refused(words(rest)))),
        (b'+', StoreReplyKind::Done) => Ok(Some(StoreReply::Done)),
        _ => Err(unexpected(line)),
    }
}

fn values(count: usize, reader: &mut StoreReplyReader<'_>) -> Result<Option<StoreReply>, StoreError> {
    // Incomplete replies are read again: copy none of them.
    let mut values: Vec<Option<&[u8]>> = Vec::with_capacity(count);
    for _ in 0..count {
        let Some(line) = reader.line()? else { return Ok(None) };
        let rest = line.strip_prefix(b"$").ok_or_else(|| unexpected(line))?;
        if rest == b"-1" {
            values.push(None);
            continue;
        }
        let length = number(rest).ok_or_else(|| unexpected(line))?;
        let Some(bytes) = reader.block(length)? else { return Ok(None) };
        values.push(Some(bytes));
    }
    Ok(Some(StoreReply::Values(values.into_iter().map(|value| value.map(<[u8]>::to_vec)).collect())))
}
