//! The rows of a `COPY ... FROM STDIN` on their way to several shards. `copy_steps` carries it out.
//!
//! The rows of each shard are gathered into a block, and each block is a COPY of its own, in one transaction.

use crate::fault::{ErrorReport, sqlstate};
use crate::sharding::copy_plan::CopyPlan;
use crate::sharding::spread_refusal::cannot_spread;
use weir_shard::{CopyFault, CopyPiece, CopyRows, RowPlace, TRAILER, ValueFormat};
use weir_sql::copy_from::CopyFormat;
use weir_wire::frame::front;
use weir_wire::write;

/// Most bytes of all blocks. The largest is sent when they are as many.
const BLOCKS_BYTES_MAX: usize = 1 << 20;

/// Rows without a key that one shard gets before the next one.
const ROWS_IN_TURN: u64 = 100;

/// Most bytes of a row.
const ROW_BYTES_MAX: usize = 16 << 20;

#[derive(Clone, Debug, PartialEq, Eq)]
enum CopyPhase {
    /// The first server checks the statement, by a COPY of no rows.
    Begins,
    Takes,
    /// The client's data is over.
    Ends,
    /// The client has given up: its message.
    Fails(Box<[u8]>),
}

#[derive(Debug)]
pub struct CopyParts {
    plan: CopyPlan,
    /// The client's Query message.
    query: Box<[u8]>,
    rows: CopyRows,
    /// Of each row, ahead of a block: its signature, or a line with names.
    head: Option<Box<[u8]>>,
    /// The begin of a row whose rest has not come.
    pending: Vec<u8>,
    /// Rows of each shard, in the order of the visits.
    blocks: Vec<Vec<u8>>,
    blocks_bytes: usize,
    count: u64,
    is_over: bool,
    phase: CopyPhase,
    /// For the server whose turn it is.
    message: Vec<u8>,
    /// The server's CopyInResponse, until the client has it.
    response: Option<Box<[u8]>>,
}

impl CopyParts {
    pub fn new(plan: CopyPlan, query: Box<[u8]>) -> CopyParts {
        // No row has so many values.
        let rows = CopyRows::new(plan.format.clone(), plan.key_at.unwrap_or(usize::MAX));
        let blocks = vec![Vec::new(); plan.shards.len()];
        let mut copy = CopyParts {
            plan,
            query,
            rows,
            head: None,
            pending: Vec::new(),
            blocks,
            blocks_bytes: 0,
            count: 0,
            is_over: false,
            phase: CopyPhase::Begins,
            message: Vec::new(),
            response: None,
        };
        // A header line of no columns is none of binary data.
        let head = if copy.plan.format == CopyFormat::Binary { BINARY_HEAD } else { b"" };
        copy.message = copy.copy_of(Vec::new(), head, &[]);
        copy
    }

    pub fn query(&self) -> &[u8] {
        &self.query
    }

    /// For the server whose turn it is.
    pub fn message(&self) -> &[u8] {
        &self.message
    }

    pub fn shards(&self) -> &[u16] {
        &self.plan.shards
    }

    /// A server asks for rows. `body`: of its CopyInResponse. Error: the columns are not known.
    pub fn note_response(&mut self, body: &[u8]) -> Result<(), ErrorReport> {
        if self.phase != CopyPhase::Begins {
            return Ok(());
        }
        let count = body.get(1..).and_then(|rest| rest.first_chunk::<2>()).map(|count| usize::from(u16::from_be_bytes(*count)));
        if self.plan.columns.is_some_and(|columns| Some(columns) != count) {
            return Err(cannot_spread("the table has columns that are generated, or was changed; name its columns"));
        }
        self.response = Some(body.into());
        Ok(())
    }

    /// The body of the CopyInResponse that the client waits for.
    pub fn take_response(&mut self) -> Option<Box<[u8]>> {
        self.response.take()
    }

    /// A server has carried its part out. The next server by its place among the shards; `None`: more data must come.
    pub fn next_place(&mut self) -> Option<usize> {
        self.message.clear();
        match self.phase {
            CopyPhase::Begins => {
                self.phase = CopyPhase::Takes;
                None
            }
            CopyPhase::Takes | CopyPhase::Fails(_) => None,
            CopyPhase::Ends => Some(self.next_of_end()),
        }
    }

    /// The client's data. True if a block must be sent before more of it.
    pub fn take(&mut self, data: &[u8]) -> Result<bool, ErrorReport> {
        if self.is_over {
            return if self.is_behind_end(data.len()) { Err(self.fault(CopyFault::BehindEnd)) } else { Ok(false) };
        }
        if self.pending.is_empty() {
            let used = self.split(data, false)?;
            self.pending.extend_from_slice(&data[used..]);
        } else {
            let mut all = std::mem::take(&mut self.pending);
            all.extend_from_slice(data);
            let used = self.split(&all, false)?;
            all.drain(..used);
            self.pending = all;
        }
        if self.is_over {
            self.pending = Vec::new();
        }
        if self.pending.len() > ROW_BYTES_MAX {
            let text = format!("row {} of the COPY is longer than {ROW_BYTES_MAX} bytes", self.count + 1);
            return Err(ErrorReport::error(sqlstate::PROGRAM_LIMIT_EXCEEDED, text)
                .detail("Its table is spread over shards, and Weir keeps each row until its shard is known."));
        }
        Ok(self.blocks_bytes >= BLOCKS_BYTES_MAX)
    }

    /// The place of the server that gets the largest block.
    pub fn flush(&mut self) -> usize {
        let place = (0..self.blocks.len()).max_by_key(|place| self.blocks[*place].len()).unwrap_or(0);
        self.fill(place);
        place
    }

    /// The client's data is over. Returns the place of the server that gets a block first.
    pub fn end(&mut self) -> Result<usize, ErrorReport> {
        let rest = std::mem::take(&mut self.pending);
        if !self.is_over {
            let used = self.split(&rest, true)?;
            if used < rest.len() || (self.plan.format == CopyFormat::Binary && !self.is_over) {
                return Err(ErrorReport::error(sqlstate::BAD_COPY_FILE_FORMAT, "unexpected EOF in COPY data"));
            }
        }
        self.phase = CopyPhase::Ends;
        Ok(self.next_of_end())
    }

    /// The client gives up. The last server hears it in its words.
    pub fn fail(&mut self, reason: &[u8]) -> usize {
        self.phase = CopyPhase::Fails(reason.into());
        self.blocks.iter_mut().for_each(Vec::clear);
        let last = self.last();
        self.fill(last);
        last
    }

    pub fn last(&self) -> usize {
        self.blocks.len().saturating_sub(1)
    }

    fn next_of_end(&mut self) -> usize {
        let last = self.last();
        let place = (0..last).find(|place| !self.blocks[*place].is_empty()).unwrap_or(last);
        self.fill(place);
        place
    }

    fn fill(&mut self, place: usize) {
        let mut block = std::mem::take(&mut self.blocks[place]);
        self.blocks_bytes = self.blocks_bytes.saturating_sub(block.len());
        let message = std::mem::take(&mut self.message);
        self.message = self.copy_of(message, self.head.as_deref().unwrap_or(self.empty_head()), &block);
        // Most blocks are as large as the one before. Rows in order fill one block after the other, and those of others need no room then.
        block.clear();
        block.shrink_to(2 * BLOCKS_BYTES_MAX / self.blocks.len());
        self.blocks[place] = block;
    }

    fn empty_head(&self) -> &'static [u8] {
        if self.plan.format == CopyFormat::Binary { BINARY_HEAD } else { b"" }
    }

    /// A COPY of one block, whole. `out`: a message that has gone, for its memory.
    fn copy_of(&self, mut out: Vec<u8>, head: &[u8], block: &[u8]) -> Vec<u8> {
        out.clear();
        out.extend_from_slice(&self.query);
        if let CopyPhase::Fails(reason) = &self.phase {
            write::message(&mut out, front::COPY_FAIL, |out| out.extend_from_slice(reason));
            return out;
        }
        let tail: &[u8] = if self.plan.format == CopyFormat::Binary { &TRAILER } else { b"" };
        write::message(&mut out, front::COPY_DATA, |out| {
            [head, block, tail].iter().for_each(|bytes| out.extend_from_slice(bytes))
        });
        write::bare(&mut out, front::COPY_DONE);
        out
    }

    /// Gives whole rows to their blocks. Returns their bytes.
    fn split(&mut self, data: &[u8], is_all: bool) -> Result<usize, ErrorReport> {
        let mut at = 0;
        if self.head.is_none() {
            match self.rows.head(self.plan.has_header, data, is_all).map_err(|fault| self.fault(fault))? {
                Some(bytes) => {
                    self.head = Some(data[..bytes].into());
                    at = bytes;
                }
                None => return Ok(0),
            }
        }
        let format = if self.plan.format == CopyFormat::Binary { ValueFormat::Binary } else { ValueFormat::Text };
        loop {
            match self.rows.next(&data[at..], is_all).map_err(|fault| self.fault(fault))? {
                CopyPiece::More => return Ok(at),
                CopyPiece::End => {
                    if self.is_behind_end((data.len() - at).saturating_sub(TRAILER.len())) {
                        return Err(self.fault(CopyFault::BehindEnd));
                    }
                    self.is_over = !is_all || at < data.len();
                    return Ok(data.len());
                }
                CopyPiece::Row { bytes, key } => {
                    self.count += 1;
                    let place = match self.plan.table.place_of_row(&key, format) {
                        _ if self.plan.key_at.is_none() => (self.count / ROWS_IN_TURN) as usize % self.blocks.len(),
                        RowPlace::Shard(shard) => self.plan.shards.iter().position(|one| *one == shard).unwrap_or(0),
                        RowPlace::ByServer => 0,
                        RowPlace::Unread => return Err(self.unread_key()),
                    };
                    self.blocks[place].extend_from_slice(&data[at..at + bytes]);
                    self.blocks_bytes += bytes;
                    at += bytes;
                }
            }
        }
    }

    /// True if a server refuses so many bytes behind the end. In text it ignores them.
    fn is_behind_end(&self, bytes: usize) -> bool {
        bytes > 0 && self.plan.format == CopyFormat::Binary
    }

    #[cold]
    fn unread_key(&self) -> ErrorReport {
        cannot_spread(&format!("the key of row {} is written in a way that Weir does not read as PostgreSQL does", self.count))
    }

    /// Source of the texts: `CopyReadLineText` and `BeginCopyFrom`.
    #[cold]
    fn fault(&self, fault: CopyFault) -> ErrorReport {
        let bad = |text: &str| ErrorReport::error(sqlstate::BAD_COPY_FILE_FORMAT, text);
        match fault {
            CopyFault::LineEnds => bad("lines of the COPY end in different ways, or by a carriage return alone")
                .detail(format!("It is so behind row {}.", self.count)),
            CopyFault::EndMark => cannot_spread("its data has a \\. that ends it for some versions of PostgreSQL only"),
            CopyFault::BehindEnd => bad("received copy data after EOF marker"),
            CopyFault::Signature => bad("COPY file signature not recognized"),
            CopyFault::Malformed => {
                bad("a row of the COPY has a length that is none").detail(format!("It is row {}.", self.count + 1))
            }
        }
    }
}

/// The signature without flags and extensions.
const BINARY_HEAD: &[u8] = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0";
