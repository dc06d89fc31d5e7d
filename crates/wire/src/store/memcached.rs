//! memcached's text protocol. Source: doc/protocol.txt of memcached.

use super::{Ask, Expect, Reader, StoreError, Told, Value, number, unexpected, words};
use std::io::Write;

/// Longer lives are taken for moments since 1970.
const SECONDS_MAX: u64 = 60 * 60 * 24 * 30;

pub fn write(ask: Ask<'_>, out: &mut Vec<u8>) {
    match ask {
        Ask::Get(keys) => {
            out.extend_from_slice(b"gets");
            for key in keys {
                out.push(b' ');
                out.extend_from_slice(key);
            }
            out.extend_from_slice(b"\r\n");
        }
        Ask::Append { key, bytes } => store(b"append", key, bytes, 0, None, out),
        Ask::Add { key, bytes, seconds } => store(b"add", key, bytes, seconds, None, out),
        Ask::Swap { key, old: _, mark, new, seconds } => store(b"cas", key, new, seconds, Some(mark), out),
        Ask::Set { key, bytes, seconds } => store(b"set", key, bytes, seconds, None, out),
        Ask::Delete { key } => {
            out.extend_from_slice(b"delete ");
            out.extend_from_slice(key);
            out.extend_from_slice(b"\r\n");
        }
        // The text protocol knows no users of that kind, nor databases: nobody asks for them.
        Ask::LogIn { .. } | Ask::Select(_) | Ask::Nodes | Ask::Process => out.extend_from_slice(b"version\r\n"),
    }
}

fn store(command: &[u8], key: &[u8], bytes: &[u8], seconds: u64, mark: Option<u64>, out: &mut Vec<u8>) {
    out.extend_from_slice(command);
    out.push(b' ');
    out.extend_from_slice(key);
    // Writing to a Vec does not fail.
    let _ = write!(out, " 0 {} {}", seconds.min(SECONDS_MAX), bytes.len());
    if let Some(mark) = mark {
        let _ = write!(out, " {mark}");
    }
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
}

pub fn read(expect: &Expect, reader: &mut Reader<'_>) -> Result<Option<Told>, StoreError> {
    match expect {
        Expect::Values(keys) => values(keys, reader),
        Expect::Done | Expect::Text => done(reader),
    }
}

/// `VALUE key flags bytes mark`, the value; at last `END`.
fn values(keys: &[Vec<u8>], reader: &mut Reader<'_>) -> Result<Option<Told>, StoreError> {
    // Nothing is copied before all of it is here: it is read from its begin again when more has come.
    let mut values: Vec<Option<(&[u8], u64)>> = vec![None; keys.len()];
    let mut next = 0;
    loop {
        let Some(line) = reader.line()? else { return Ok(None) };
        if line == b"END" {
            return Ok(Some(Told::Values(values.into_iter().map(|value| value.map(Value::of)).collect())));
        }
        let mut parts = line.split(|byte| *byte == b' ');
        let (Some(b"VALUE"), Some(key), Some(_flags)) = (parts.next(), parts.next(), parts.next()) else {
            return Err(unexpected(line));
        };
        let length = parts.next().and_then(number).ok_or_else(|| unexpected(line))?;
        let mark = parts.next().and_then(number).ok_or_else(|| unexpected(line))?;
        let Some(bytes) = reader.block(length)? else { return Ok(None) };
        // They come in the order in which they were asked for; those that are not there are left out.
        let ahead = keys[next..].iter().position(|asked| asked == key).ok_or_else(|| unexpected(line))?;
        values[next + ahead] = Some((bytes, mark));
        next += ahead + 1;
    }
}

fn done(reader: &mut Reader<'_>) -> Result<Option<Told>, StoreError> {
    let Some(line) = reader.line()? else { return Ok(None) };
    Ok(Some(match line {
        b"STORED" | b"DELETED" => Told::Done,
        b"NOT_STORED" | b"EXISTS" | b"NOT_FOUND" => Told::NotDone,
        _ if line.starts_with(b"VERSION ") => Told::Done,
        _ if line.starts_with(b"SERVER_ERROR ") => Told::Refused(words(line)),
        _ => return Err(unexpected(line)),
    }))
}
