//! Rows that a statement on several shards returns, kept until all shards have carried it out.

use std::fmt;
use weir_catalog::FIRST_USER_OID;
use weir_wire::frame::{HEADER_BYTES, MessageHeader, back, split_cstr};

/// Most memory of the rows of one statement.
pub const RETURNED_BYTES_MAX: usize = 4 << 20;

/// Memory of a row beside its message.
const ROW_BYTES: usize = 8;

/// The order in which the client gets the rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RowOrder {
    /// Rows of one shard stand behind those of another.
    ByShard,
    /// Of an INSERT's rows: the part of each.
    OfRows(Vec<usize>),
}

/// Why a client cannot get the rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReturnedFault {
    TooMany,
    UserType,
    Differ,
}

impl fmt::Display for ReturnedFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReturnedFault::TooMany => write!(f, "its rows take more than {RETURNED_BYTES_MAX} bytes"),
            ReturnedFault::UserType => f.write_str("it returns a column of a type that PostgreSQL does not bring"),
            ReturnedFault::Differ => f.write_str("its columns differ from shard to shard"),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReturnedRows {
    order: RowOrder,
    columns: Option<Vec<ReturnedColumn>>,
    /// For the client, behind whose message no other describes the rows.
    description: Vec<u8>,
    parts: Vec<PartRows>,
    bytes: usize,
    fault: Option<ReturnedFault>,
}

/// Messages, and where each ends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct PartRows {
    messages: Vec<u8>,
    ends: Vec<usize>,
}

impl PartRows {
    fn row(&self, at: usize) -> &[u8] {
        let start = at.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.messages[start..self.ends[at]]
    }

    fn bytes(&self) -> usize {
        self.messages.len() + ROW_BYTES * self.ends.len()
    }
}

/// A column without the numbers of its table, which differ from shard to shard.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ReturnedColumn {
    name: Box<[u8]>,
    /// Number and length of the type, its modifier, and the format.
    kind: [u8; 12],
}

impl ReturnedColumn {
    fn is_users(&self) -> bool {
        let [a, b, c, d, ..] = self.kind;
        u32::from_be_bytes([a, b, c, d]) >= FIRST_USER_OID
    }
}

impl ReturnedRows {
    pub fn new(order: RowOrder, parts: usize) -> ReturnedRows {
        let parts = vec![PartRows::default(); parts];
        ReturnedRows { order, columns: None, description: Vec::new(), parts, bytes: 0, fault: None }
    }

    pub fn fault(&self) -> Option<ReturnedFault> {
        self.fault
    }

    /// True if a message may be kept. False: the statement fails.
    pub fn has_room(&mut self, header: MessageHeader) -> bool {
        let is_kept = header.tag == back::DATA_ROW;
        let before = if is_kept { self.bytes + ROW_BYTES } else { 0 };
        if before + header.frame_bytes() > RETURNED_BYTES_MAX {
            self.fail(ReturnedFault::TooMany);
        }
        self.fault.is_none()
    }

    /// A shard describes its rows.
    pub fn describe(&mut self, body: &[u8]) {
        let columns = read_columns(body);
        if columns.iter().any(ReturnedColumn::is_users) {
            self.fail(ReturnedFault::UserType);
        }
        match &self.columns {
            Some(before) if *before != columns => self.fail(ReturnedFault::Differ),
            Some(_) => {}
            None => self.columns = Some(columns),
        }
    }

    /// Keeps the description for the client.
    pub fn keep_description(&mut self, message: &[u8]) {
        self.description = message.to_vec();
    }

    pub fn add(&mut self, part: usize, message: &[u8]) {
        let Some(rows) = self.parts.get_mut(part) else { return };
        rows.messages.extend_from_slice(message);
        rows.ends.push(rows.messages.len());
        self.bytes += message.len() + ROW_BYTES;
    }

    /// A shard carries the statement out anew.
    pub fn forget(&mut self, part: usize) {
        let Some(rows) = self.parts.get_mut(part) else { return };
        self.bytes -= rows.bytes();
        *rows = PartRows::default();
    }

    /// Writes what the client has before the command tag.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.description);
        match &self.order {
            RowOrder::OfRows(part_of_row) if self.has_all(part_of_row) => {
                let mut next = vec![0; self.parts.len()];
                for part in part_of_row {
                    out.extend_from_slice(self.parts[*part].row(next[*part]));
                    next[*part] += 1;
                }
            }
            // Rows are missing, and nobody knows which.
            RowOrder::OfRows(_) | RowOrder::ByShard => self.parts.iter().for_each(|rows| out.extend_from_slice(&rows.messages)),
        }
    }

    fn has_all(&self, part_of_row: &[usize]) -> bool {
        let sent = |part: usize| part_of_row.iter().filter(|of| **of == part).count();
        self.parts.iter().enumerate().all(|(part, rows)| rows.ends.len() == sent(part))
    }

    fn fail(&mut self, fault: ReturnedFault) {
        self.fault.get_or_insert(fault);
    }
}

/// A description that is cut has fewer columns.
fn read_columns(body: &[u8]) -> Vec<ReturnedColumn> {
    let mut rest = body.get(2..).unwrap_or_default();
    let mut columns = Vec::new();
    // Number of the table, and of the column in it.
    while let Some((name, behind)) = split_cstr(rest)
        && let Some((kind, behind)) = behind.get(6..).and_then(|behind| behind.split_first_chunk::<12>())
    {
        columns.push(ReturnedColumn { name: name.into(), kind: *kind });
        rest = behind;
    }
    columns
}

/// The bytes of a whole message at the start of `here`.
pub fn message_of(here: &[u8], header: MessageHeader) -> &[u8] {
    debug_assert!(here.len() >= HEADER_BYTES, "a header is here");
    here.get(..header.frame_bytes()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_wire::write;

    fn row(text: &str) -> Vec<u8> {
        let mut out = Vec::new();
        write::message(&mut out, back::DATA_ROW, |out| out.extend_from_slice(text.as_bytes()));
        out
    }

    fn description(name: &str, table: u32, kind: u32) -> Vec<u8> {
        let mut out = vec![0, 1];
        write::cstr(&mut out, name.as_bytes());
        out.extend(table.to_be_bytes());
        out.extend([0, 1]);
        out.extend(kind.to_be_bytes());
        out.extend([0, 4, 0xff, 0xff, 0xff, 0xff, 0, 0]);
        out
    }

    fn written(rows: &ReturnedRows) -> String {
        let mut out = Vec::new();
        rows.write(&mut out);
        String::from_utf8_lossy(&out).chars().filter(char::is_ascii_lowercase).collect()
    }

    #[test]
    fn rows_of_an_insert_come_in_its_order() {
        let mut rows = ReturnedRows::new(RowOrder::OfRows(vec![1, 0, 1]), 2);
        for (part, text) in [(0, "b"), (1, "a"), (1, "c")] {
            rows.add(part, &row(text));
        }
        assert_eq!(written(&rows), "abc");
        rows.forget(1);
        rows.add(1, &row("c"));
        assert_eq!(written(&rows), "bc", "one is missing");
        rows.forget(0);
        rows.forget(1);
        assert_eq!(rows.bytes, 0);
    }

    #[test]
    fn rows_of_other_statements_come_by_shard() {
        let mut rows = ReturnedRows::new(RowOrder::ByShard, 2);
        for (part, text) in [(0, "a"), (0, "b"), (1, "c")] {
            rows.add(part, &row(text));
        }
        assert_eq!(written(&rows), "abc");
    }

    #[test]
    fn columns_are_alike_on_all_shards_and_of_types_of_postgresql() {
        let check = |descriptions: &[Vec<u8>], expected: Option<ReturnedFault>| {
            let mut rows = ReturnedRows::new(RowOrder::ByShard, 2);
            descriptions.iter().for_each(|body| rows.describe(body));
            assert_eq!(rows.fault(), expected, "{descriptions:?}");
        };
        check(&[description("a", 1, 23), description("a", 2, 23)], None);
        check(&[description("a", 1, 23), description("a", 1, 20)], Some(ReturnedFault::Differ));
        check(&[description("a", 1, 23), description("b", 1, 23)], Some(ReturnedFault::Differ));
        check(&[description("a", 1, FIRST_USER_OID)], Some(ReturnedFault::UserType));
    }

    #[test]
    fn rows_beyond_the_limit_are_not_kept() {
        let mut rows = ReturnedRows::new(RowOrder::ByShard, 1);
        let header = |bytes: usize| MessageHeader { tag: back::DATA_ROW, body_bytes: (bytes - HEADER_BYTES) as u32 };
        assert!(rows.has_room(header(RETURNED_BYTES_MAX - ROW_BYTES)));
        rows.add(0, &row("a"));
        assert!(!rows.has_room(header(RETURNED_BYTES_MAX - ROW_BYTES)));
        assert_eq!(rows.fault(), Some(ReturnedFault::TooMany));
    }
}
