//! The protocol of Redis and Valkey, version 2 (RESP2). Source: redis.io, "Redis serialization protocol specification".

use super::{Ask, Expect, Reader, StoreError, Told, Value, number, unexpected, words};
use std::io::Write;

/// Appends to what is there: `APPEND` alone would make it.
const APPEND: &[u8] = b"if redis.call('EXISTS',KEYS[1])==1 then redis.call('APPEND',KEYS[1],ARGV[1]) return 1 else return 0 end";

/// Another value, if the one that was seen is still there.
const SWAP: &[u8] =
    b"if redis.call('GET',KEYS[1])==ARGV[1] then redis.call('SET',KEYS[1],ARGV[2],'EX',ARGV[3]) return 1 else return 0 end";

pub fn write(ask: Ask<'_>, out: &mut Vec<u8>) {
    match ask {
        Ask::Get(keys) => {
            // Writing to a Vec does not fail.
            let _ = write!(out, "*{}\r\n", keys.len() + 1);
            bulk(b"MGET", out);
            keys.iter().for_each(|key| bulk(key, out));
        }
        Ask::Append { key, bytes } => command(&[b"EVAL", APPEND, b"1", key, bytes], out),
        Ask::Add { key, bytes, seconds } => command(&[b"SET", key, bytes, b"NX", b"EX", digits(seconds).as_bytes()], out),
        Ask::Swap { key, old, mark: _, new, seconds } => {
            command(&[b"EVAL", SWAP, b"1", key, old, new, digits(seconds).as_bytes()], out);
        }
        Ask::Set { key, bytes, seconds: 0 } => command(&[b"SET", key, bytes], out),
        Ask::Set { key, bytes, seconds } => command(&[b"SET", key, bytes, b"EX", digits(seconds).as_bytes()], out),
        Ask::Delete { key } => command(&[b"DEL", key], out),
        Ask::LogIn { user: b"", password } => command(&[b"AUTH", password], out),
        Ask::LogIn { user, password } => command(&[b"AUTH", user, password], out),
        Ask::Nodes => command(&[b"CLUSTER", b"NODES"], out),
        Ask::Process => command(&[b"INFO", b"server"], out),
        Ask::Select(database) => command(&[b"SELECT", database.to_string().as_bytes()], out),
    }
}

/// Redis takes no life of no seconds.
fn digits(seconds: u64) -> String {
    seconds.max(1).to_string()
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

pub fn read(expect: &Expect, reader: &mut Reader<'_>) -> Result<Option<Told>, StoreError> {
    let Some(line) = reader.line()? else { return Ok(None) };
    let (kind, rest) = line.split_first().ok_or_else(|| unexpected(line))?;
    match (kind, expect) {
        (b'*', Expect::Values(keys)) if number(rest) == Some(keys.len() as u64) => values(keys.len(), reader),
        (b'$', Expect::Text) => {
            let length = number(rest).ok_or_else(|| unexpected(line))?;
            Ok(reader.block(length)?.map(|bytes| Told::Text(String::from_utf8_lossy(bytes).into_owned())))
        }
        (b'-', _) => Ok(Some(Told::Refused(words(rest)))),
        (b'+', Expect::Done) => Ok(Some(Told::Done)),
        (b':', Expect::Done) => match rest {
            b"1" => Ok(Some(Told::Done)),
            b"0" => Ok(Some(Told::NotDone)),
            _ => Err(unexpected(line)),
        },
        // `SET ... NX` where something is.
        (b'$', Expect::Done) if rest == b"-1" => Ok(Some(Told::NotDone)),
        _ => Err(unexpected(line)),
    }
}

fn values(count: usize, reader: &mut Reader<'_>) -> Result<Option<Told>, StoreError> {
    // Nothing is copied before all of it is here: it is read from its begin again when more has come.
    let mut values: Vec<Option<(&[u8], u64)>> = Vec::with_capacity(count);
    for _ in 0..count {
        let Some(line) = reader.line()? else { return Ok(None) };
        let rest = line.strip_prefix(b"$").ok_or_else(|| unexpected(line))?;
        if rest == b"-1" {
            values.push(None);
            continue;
        }
        let length = number(rest).ok_or_else(|| unexpected(line))?;
        let Some(bytes) = reader.block(length)? else { return Ok(None) };
        values.push(Some((bytes, 0)));
    }
    Ok(Some(Told::Values(values.into_iter().map(|value| value.map(Value::of)).collect())))
}
