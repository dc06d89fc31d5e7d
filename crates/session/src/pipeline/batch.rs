//! A batch of the extended protocol that asks one question: `[Parse] Bind [Describe] Execute Sync`, in a pipeline also without the Sync.

use crate::prepared::{StatementShape, key};
use weir_wire::frame::{HEADER_BYTES, MessageHeader, front, read_header, split_cstr};

const COUNT_MAX: usize = 5;

const KEY_KIND: u8 = front::BIND;

/// A complete batch.
pub struct PipelineBatch<'a> {
    /// Name of the statement; empty: the unnamed one.
    pub(crate) name: &'a [u8],
    /// Parse after the name.
    pub(crate) parse: Option<&'a [u8]>,
    /// Bind after the names.
    pub(crate) values: &'a [u8],
    is_described: bool,
    /// True if a Sync ends the batch; otherwise another question follows.
    pub(crate) is_synced: bool,
    pub(crate) headers: [MessageHeader; COUNT_MAX],
    pub(crate) count: usize,
}

impl<'a> PipelineBatch<'a> {
    /// Returns the first batch if it is complete.
    pub fn read(mut bytes: &'a [u8]) -> Option<PipelineBatch<'a>> {
        let none = MessageHeader { tag: 0, body_bytes: 0 };
        let mut batch = PipelineBatch {
            name: b"",
            parse: None,
            values: b"",
            is_described: false,
            is_synced: false,
            headers: [none; COUNT_MAX],
            count: 0,
        };
        let mut wanted: &[u8] = &[front::PARSE, front::BIND];
        while batch.count < COUNT_MAX {
            let header = read_header(bytes).ok()??;
            if batch.is_asked() && matches!(header.tag, front::PARSE | front::BIND) {
                return Some(batch);
            }
            let body = bytes.get(HEADER_BYTES..header.frame_bytes())?;
            if !wanted.contains(&header.tag) {
                return None;
            }
            wanted = batch.take(header.tag, body)?;
            batch.headers[batch.count] = header;
            batch.count += 1;
            if wanted.is_empty() {
                return Some(batch);
            }
            bytes = &bytes[header.frame_bytes()..];
        }
        None
    }

    fn is_asked(&self) -> bool {
        self.count > 0 && self.headers[self.count - 1].tag == front::EXECUTE
    }

    /// Returns the tags that may follow; none after the last.
    fn take(&mut self, tag: u8, body: &'a [u8]) -> Option<&'static [u8]> {
        match tag {
            front::PARSE => {
                let (name, tail) = split_cstr(body)?;
                (self.name, self.parse) = (name, Some(tail));
                Some(&[front::BIND])
            }
            front::BIND => {
                let (portal, rest) = split_cstr(body)?;
                let (name, values) = split_cstr(rest)?;
                let is_it = portal.is_empty() && (self.parse.is_none() || key(name) == key(self.name));
                (self.name, self.values) = (name, values);
                is_it.then_some(&[front::DESCRIBE, front::EXECUTE])
            }
            front::DESCRIBE => {
                self.is_described = true;
                (body == b"P\0").then_some(&[front::EXECUTE])
            }
            // The unnamed portal, all rows.
            front::EXECUTE => (body == b"\0\0\0\0\0").then_some(&[front::SYNC]),
            front::SYNC => {
                self.is_synced = true;
                body.is_empty().then_some(&[])
            }
            _ => None,
        }
    }

    /// Appends to a cache key. `tail`: text and parameter types. `told`: the client's description, which the answer must fit.
    pub fn write_key(&self, tail: &[u8], told: StatementShape, key: &mut Vec<u8>) {
        key.push(if self.is_described { KEY_KIND } else { KEY_KIND.to_ascii_lowercase() });
        key.extend_from_slice(tail);
        key.extend_from_slice(&(tail.len() as u64).to_le_bytes());
        key.extend_from_slice(&told.number().to_le_bytes());
        key.extend_from_slice(self.values);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(tag: u8, body: &[u8]) -> Vec<u8> {
        let mut bytes = vec![tag];
        bytes.extend((body.len() as u32 + 4).to_be_bytes());
        bytes.extend_from_slice(body);
        bytes
    }

    /// Tags and bodies; the name read from them, the mark of a Parse, and the number of messages.
    fn check(messages: &[(u8, &[u8])], expected: Option<(&[u8], bool, usize)>) {
        let bytes: Vec<u8> = messages.iter().flat_map(|(tag, body)| message(*tag, body)).collect();
        let read = PipelineBatch::read(&bytes).map(|batch| (batch.name, batch.parse.is_some(), batch.count));
        assert_eq!(read, expected, "{}", bytes.escape_ascii());
        assert!(PipelineBatch::read(&bytes[..bytes.len() - 1]).is_none(), "a part");
    }

    #[test]
    fn a_run_is_what_asks_one_question() {
        const ALL: &[u8] = b"\0\0\0\0\0";
        let (parse, bind): (&[u8], &[u8]) = (b"s\0select 1\0\0\0", b"\0s\0\0\0\0\0\0\0");
        check(&[(b'P', parse), (b'B', bind), (b'D', b"P\0"), (b'E', ALL), (b'S', b"")], Some((b"s", true, 5)));
        check(&[(b'B', bind), (b'E', ALL), (b'S', b"")], Some((b"s", false, 3)));
        check(&[(b'P', parse), (b'D', b"Ss\0"), (b'S', b"")], None);
        check(&[(b'P', parse), (b'B', b"\0t\0\0\0\0\0\0\0"), (b'E', ALL), (b'S', b"")], None);
        check(&[(b'B', b"p\0s\0\0\0\0\0\0\0"), (b'E', ALL), (b'S', b"")], None);
        check(&[(b'B', bind), (b'E', b"\0\0\0\0\x05"), (b'S', b"")], None);
        check(&[(b'B', bind), (b'E', ALL), (b'E', ALL), (b'S', b"")], None);
        check(&[(b'B', bind), (b'E', ALL), (b'D', b"P\0"), (b'S', b"")], None);
        check(&[(b'B', bind), (b'E', ALL), (b'H', b"")], None);
    }

    #[test]
    fn in_a_pipeline_another_question_ends_it() {
        const ALL: &[u8] = b"\0\0\0\0\0";
        let bind: &[u8] = b"\0s\0\0\0\0\0\0\0";
        let one = [message(b'B', bind), message(b'E', ALL)].concat();
        let of = |rest: &[u8]| PipelineBatch::read(&[one.as_slice(), rest].concat()).map(|batch| (batch.count, batch.is_synced));
        assert_eq!(of(&message(b'S', b"")), Some((3, true)));
        assert_eq!(of(&[one.clone(), message(b'S', b"")].concat()), Some((2, false)));
        assert_eq!(of(&message(b'P', b"x")[..5]), Some((2, false)), "all of this one is here");
        assert_eq!((of(b""), of(b"P\0\0"), of(&message(b'H', b""))), (None, None, None));
    }

    #[test]
    fn keys_tell_runs_apart() {
        let key = |tail: &[u8], values: &[u8], is_described: bool| {
            let body = [b"\0s\0", values].concat();
            let describe = if is_described { message(b'D', b"P\0") } else { Vec::new() };
            let bytes = [message(b'B', &body), describe, message(b'E', b"\0\0\0\0\0"), message(b'S', b"")].concat();
            let mut key = Vec::new();
            PipelineBatch::read(&bytes).unwrap().write_key(tail, StatementShape::EMPTY, &mut key);
            key
        };
        let keys = [key(b"a", b"bc", false), key(b"ab", b"c", false), key(b"a", b"bc", true), key(b"a", b"bd", false)];
        for (at, one) in keys.iter().enumerate() {
            assert!(keys[at + 1..].iter().all(|other| one != other));
        }
    }
}
