//! The stream of a server to a logical replication client: committed transactions, their positions, and the tables they changed.
//!
//! Rows may be large and do not matter, so only the beginning of a message is kept. The input is untrusted: an unknown message
//! is an error. Source: PostgreSQL manual, "Streaming Replication Protocol" and "Logical Replication Message Formats";
//! `pg_decode_change` in test_decoding.c.

use crate::frame::{HEADER_BYTES, WireError, back, read_header};
use crate::write;
use std::borrow::Cow;

/// Bytes kept of a message.
const KEPT_BYTES: usize = 4096;
/// Limit of tables in a TRUNCATE; more are reported as `Any`.
const TABLES_MAX: usize = 512;
/// Microseconds from 1970 to 2000, the epoch of the protocol.
const EPOCH_US: u64 = 946_684_800 * 1_000_000;

#[derive(Debug, PartialEq, Eq)]
pub enum ReplicationMessage<'a> {
    /// All messages up to this position were sent.
    Reached {
        position: u64,
        wants_reply: bool,
    },
    /// A plugin message and its position.
    Said {
        position: u64,
        body: &'a [u8],
        is_cut: bool,
    },
    /// The server reports an error and ends.
    Failed(&'a [u8]),
    Ended,
}

/// Splits a stream into messages, independent of how it arrives.
#[derive(Debug, Default)]
pub struct ReplicationStream {
    held: Vec<u8>,
    skipped_bytes: usize,
}

impl ReplicationStream {
    /// Takes received bytes and reports each whole message.
    pub fn feed(&mut self, mut bytes: &[u8], mut tell: impl FnMut(ReplicationMessage<'_>)) -> Result<(), WireError> {
        loop {
            let skipped = self.skipped_bytes.min(bytes.len());
            self.skipped_bytes -= skipped;
            bytes = &bytes[skipped..];
            if self.skipped_bytes > 0 || (bytes.is_empty() && self.held.len() < HEADER_BYTES) {
                return Ok(());
            }
            if !self.hold(&mut bytes, HEADER_BYTES) {
                return Ok(());
            }
            let Some(header) = read_header(&self.held)? else { return Ok(()) };
            let kept = header.frame_bytes().min(KEPT_BYTES);
            if !self.hold(&mut bytes, kept) {
                return Ok(());
            }
            self.skipped_bytes = header.frame_bytes() - kept;
            let malformed = WireError::Malformed { tag: header.tag };
            if let Some(piece) = read_piece(header.tag, &self.held[HEADER_BYTES..], self.skipped_bytes > 0).ok_or(malformed)? {
                tell(piece);
            }
            self.held.clear();
        }
    }

    /// Collects `count` bytes of a message. False while incomplete.
    fn hold(&mut self, bytes: &mut &[u8], count: usize) -> bool {
        let taken = count.saturating_sub(self.held.len()).min(bytes.len());
        self.held.extend_from_slice(&bytes[..taken]);
        *bytes = &bytes[taken..];
        self.held.len() >= count
    }
}

/// Returns `None` if malformed, `Some(None)` if irrelevant.
fn read_piece(tag: u8, body: &[u8], is_cut: bool) -> Option<Option<ReplicationMessage<'_>>> {
    match tag {
        back::ERROR => Some(Some(ReplicationMessage::Failed(body))),
        COPY_DONE | back::READY => Some(Some(ReplicationMessage::Ended)),
        COPY_DATA => match body.split_first()? {
            (b'k', rest) => {
                let position = number(rest, 0)?;
                Some(Some(ReplicationMessage::Reached { position, wants_reply: *rest.get(16)? != 0 }))
            }
            (b'w', rest) => Some(Some(ReplicationMessage::Said { position: number(rest, 0)?, body: rest.get(24..)?, is_cut })),
            _ => None,
        },
        _ => Some(None),
    }
}

const COPY_DATA: u8 = b'd';
const COPY_DONE: u8 = b'c';
pub const COPY_BOTH: u8 = b'W';

fn number(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// Appends the position read, up to which the server may drop its log. `now_us`: since 1970.
pub fn status(out: &mut Vec<u8>, position: u64, now_us: u64, wants_reply: bool) {
    write::message(out, COPY_DATA, |out| {
        out.push(b'r');
        for value in [position, position, position, now_us.saturating_sub(EPOCH_US)] {
            out.extend(value.to_be_bytes());
        }
        out.push(u8::from(wants_reply));
    });
}

/// An output plugin of logical decoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputPlugin {
    /// Built in; reports the tables of a publication.
    Pgoutput,
    /// A contrib module; reports every table.
    TestDecoding,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChangedTable<'a> {
    Number(u32),
    Name {
        schema: Cow<'a, str>,
        name: Cow<'a, str>,
    },
    /// Unknown name.
    Any,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PluginMessage<'a> {
    /// Begins a committed transaction.
    Begin {
        xid: u32,
    },
    Table(ChangedTable<'a>),
    Tables(Vec<ChangedTable<'a>>),
    /// Ends a transaction. Its changes are before `end`, if the message has it.
    Commit {
        end: Option<u64>,
    },
    /// No change of a table.
    Nothing,
}

/// Reads one message; `None` if unknown.
pub fn read_change(plugin: OutputPlugin, body: &[u8], is_cut: bool) -> Option<PluginMessage<'_>> {
    match plugin {
        OutputPlugin::Pgoutput => read_pgoutput(body, is_cut),
        OutputPlugin::TestDecoding => read_text(body, is_cut),
    }
}

fn read_pgoutput(body: &[u8], is_cut: bool) -> Option<PluginMessage<'_>> {
    let (tag, rest) = body.split_first()?;
    match tag {
        b'B' => Some(PluginMessage::Begin { xid: word(rest, 16)? }),
        b'C' => Some(PluginMessage::Commit { end: Some(number(rest, 9)?) }),
        b'I' | b'U' | b'D' => Some(PluginMessage::Table(ChangedTable::Number(word(rest, 0)?))),
        b'T' => {
            let count = word(rest, 0)? as usize;
            if count > TABLES_MAX || is_cut {
                return Some(PluginMessage::Table(ChangedTable::Any));
            }
            let numbers = (0..count).map(|at| word(rest, 5 + 4 * at).map(ChangedTable::Number));
            numbers.collect::<Option<Vec<_>>>().map(PluginMessage::Tables)
        }
        // Columns of a table or type, an origin, a message of a function.
        b'R' | b'Y' | b'O' | b'M' => Some(PluginMessage::Nothing),
        _ => None,
    }
}

fn read_text(body: &[u8], is_cut: bool) -> Option<PluginMessage<'_>> {
    if let Some(xid) = body.strip_prefix(b"BEGIN ") {
        return Some(PluginMessage::Begin { xid: std::str::from_utf8(xid).ok()?.parse().ok()? });
    }
    if body.starts_with(b"COMMIT ") {
        return Some(PluginMessage::Commit { end: None });
    }
    if body.starts_with(b"message: ") {
        return Some(PluginMessage::Nothing);
    }
    let mut rest = body.strip_prefix(b"table ")?;
    let mut tables = Vec::new();
    loop {
        let Some((table, after)) = read_table(rest) else {
            return is_cut.then_some(PluginMessage::Table(ChangedTable::Any));
        };
        tables.push(table);
        rest = after;
        if let Some(more) = rest.strip_prefix(b", ").filter(|_| tables.len() < TABLES_MAX) {
            rest = more;
        } else if rest.starts_with(b": ") {
            return Some(PluginMessage::Tables(tables));
        } else {
            return Some(PluginMessage::Table(ChangedTable::Any));
        }
    }
}

/// Reads schema and table name in PostgreSQL's quoting.
fn read_table(text: &[u8]) -> Option<(ChangedTable<'_>, &[u8])> {
    let (schema, rest) = read_name(text)?;
    let (name, rest) = read_name(rest.strip_prefix(b".")?)?;
    let table = match (schema, name) {
        (Some(schema), Some(name)) => ChangedTable::Name { schema, name },
        // Another encoding than UTF-8.
        _ => ChangedTable::Any,
    };
    Some((table, rest))
}

type Word<'a> = Option<Cow<'a, str>>;

fn read_name(text: &[u8]) -> Option<(Word<'_>, &[u8])> {
    let Some(quoted) = text.strip_prefix(b"\"") else {
        let end =
            text.iter().position(|byte| !(byte.is_ascii_alphanumeric() || *byte == b'_' || *byte == b'$' || *byte >= 0x80))?;
        let name = std::str::from_utf8(&text[..end]).ok().map(Cow::Borrowed);
        return (end > 0).then_some((name, &text[end..]));
    };
    let mut name = Vec::new();
    let mut rest = quoted;
    loop {
        let end = rest.iter().position(|byte| *byte == b'"')?;
        name.extend_from_slice(&rest[..end]);
        rest = &rest[end + 1..];
        match rest.strip_prefix(b"\"") {
            Some(more) => {
                name.push(b'"');
                rest = more;
            }
            None => return Some((String::from_utf8(name).ok().map(Cow::Owned), rest)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(out: &mut Vec<u8>, position: u64, body: &[u8]) {
        write::message(out, COPY_DATA, |out| {
            out.push(b'w');
            out.extend(position.to_be_bytes());
            out.extend([0; 16]);
            out.extend(body);
        });
    }

    fn told(bytes: &[u8], at_once: usize) -> Vec<String> {
        let (mut stream, mut told) = (ReplicationStream::default(), Vec::new());
        for piece in bytes.chunks(at_once) {
            stream
                .feed(piece, |piece| match piece {
                    ReplicationMessage::Said { position, body, is_cut } => {
                        told.push(format!("{position} {} {is_cut}", body.len()))
                    }
                    other => told.push(format!("{other:?}")),
                })
                .unwrap();
        }
        told
    }

    #[test]
    fn pieces_are_the_same_however_they_arrive_and_long_ones_are_cut() {
        let mut bytes = Vec::new();
        data(&mut bytes, 7, b"BEGIN 5");
        data(&mut bytes, 8, &[b'x'; 100_000]);
        write::parameter_status(&mut bytes, "a", "b");
        write::message(&mut bytes, COPY_DATA, |out| {
            out.push(b'k');
            out.extend(9_u64.to_be_bytes());
            out.extend([0; 8]);
            out.push(1);
        });
        write::bare(&mut bytes, COPY_DONE);
        let kept = KEPT_BYTES - HEADER_BYTES - 25;
        let meant = ["7 7 false", &format!("8 {kept} true"), "Reached { position: 9, wants_reply: true }", "Ended"];
        for at_once in [1, 2, 3, 5, 4096, 5000, bytes.len()] {
            assert_eq!(told(&bytes, at_once), meant, "{at_once} bytes at once");
        }
        assert!(ReplicationStream::default().feed(&[b'd', 0, 0, 0, 1, 0], |_| {}).is_err());
        assert!(ReplicationStream::default().feed(&[b'd', 0, 0, 0, 5, b'?'], |_| {}).is_err());
    }

    fn check_text(text: &str, meant: Option<PluginMessage<'_>>) {
        assert_eq!(read_change(OutputPlugin::TestDecoding, text.as_bytes(), false), meant, "{text}");
    }

    fn named(schema: &'static str, name: &'static str) -> ChangedTable<'static> {
        ChangedTable::Name { schema: schema.into(), name: name.into() }
    }

    #[test]
    fn texts_of_test_decoding_are_read() {
        check_text("BEGIN 529", Some(PluginMessage::Begin { xid: 529 }));
        check_text("COMMIT 529", Some(PluginMessage::Commit { end: None }));
        check_text(
            "table public.t: INSERT: id[integer]:1 b[text]:', x'",
            Some(PluginMessage::Tables(vec![named("public", "t")])),
        );
        check_text("table public.t: UPDATE: (no-tuple-data)", Some(PluginMessage::Tables(vec![named("public", "t")])));
        check_text(
            "table \"a.b\".\"c\"\"d: \", s.ü: TRUNCATE: (no-flags)",
            Some(PluginMessage::Tables(vec![named("a.b", "c\"d: "), named("s", "ü")])),
        );
        check_text("message: transactional: 1 prefix: x, sz: 1 content:y", Some(PluginMessage::Nothing));
        for odd in ["", "BEGIN x", "table ", "table t: INSERT", "table \"t", "opening a streamed block for transaction"] {
            check_text(odd, None);
        }
        assert_eq!(
            read_change(OutputPlugin::TestDecoding, b"table public.t, publi", true),
            Some(PluginMessage::Table(ChangedTable::Any))
        );
        assert_eq!(
            read_change(OutputPlugin::TestDecoding, b"table public.t\xfc: INSERT: ", false),
            Some(PluginMessage::Tables(vec![ChangedTable::Any]))
        );
    }

    fn pgoutput(tag: u8, numbers: &[u64], words: &[u32]) -> Vec<u8> {
        let mut bytes = vec![tag];
        numbers.iter().for_each(|number| bytes.extend(number.to_be_bytes()));
        words.iter().for_each(|word| bytes.extend(word.to_be_bytes()));
        bytes
    }

    #[test]
    fn messages_of_pgoutput_are_read() {
        let read = |bytes: &[u8]| format!("{:?}", read_change(OutputPlugin::Pgoutput, bytes, false));
        assert_eq!(read(&pgoutput(b'B', &[1, 2], &[77])), "Some(Begin { xid: 77 })");
        let mut commit = vec![b'C', 0];
        [5_u64, 6, 7].iter().for_each(|number| commit.extend(number.to_be_bytes()));
        assert_eq!(read(&commit), "Some(Commit { end: Some(6) })");
        assert_eq!(read(&pgoutput(b'U', &[], &[16_384, 0])), "Some(Table(Number(16384)))");
        let mut truncate = pgoutput(b'T', &[], &[2]);
        truncate.extend([0, 0, 0, 0, 1, 0, 0, 0, 2]);
        assert_eq!(read(&truncate), "Some(Tables([Number(1), Number(2)]))");
        assert_eq!(read(&truncate[..truncate.len() - 1]), "None");
        assert_eq!(read(&pgoutput(b'T', &[], &[u32::MAX])), "Some(Table(Any))");
        assert_eq!([read(b"S"), read(b""), read(b"I"), read(b"R")], ["None", "None", "None", "Some(Nothing)"]);
    }

    #[test]
    fn nothing_that_arrives_brings_it_down() {
        let mut seed = 7_u64;
        let mut random = move || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) as usize
        };
        let mut whole = Vec::new();
        data(&mut whole, 7, b"BEGIN 5");
        data(&mut whole, 8, b"table \"a\"\"b\".c, d.e: TRUNCATE: (no-flags)");
        data(&mut whole, 8, &pgoutput(b'T', &[], &[3, 1, 2, 3, 4]));
        data(&mut whole, 9, &pgoutput(b'B', &[1, 2], &[3]));
        for _ in 0..20_000 {
            let mut bytes = whole.clone();
            for _ in 0..1 + random() % 4 {
                let at = random() % bytes.len().max(1);
                if bytes.is_empty() {
                    break;
                }
                match random() % 3 {
                    0 => bytes[at] = random() as u8,
                    1 => drop(bytes.remove(at)),
                    _ => bytes.truncate(at.max(1)),
                }
            }
            let _ = ReplicationStream::default().feed(&bytes, |piece| {
                if let ReplicationMessage::Said { body, is_cut, .. } = piece {
                    let _ = (
                        read_change(OutputPlugin::Pgoutput, body, is_cut),
                        read_change(OutputPlugin::TestDecoding, body, !is_cut),
                    );
                }
            });
        }
    }
}
