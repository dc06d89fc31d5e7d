//! Messages that follow one in a client's pipeline.
//!
//! Statements up to a Sync share an implicit transaction, which LOCK, DECLARE and SET LOCAL need. A read leaves the primary only if all
//! messages up to the Sync are here and only read, or if nothing is executed yet.

pub mod batch;

use crate::context::Context;
use crate::pipeline::batch::PipelineBatch;
use crate::prepared::key;
use crate::routing::{RouteSide, classify};
use crate::session::Session;
use crate::statements::{ParseNaming, PreparedStatement};
use std::rc::Rc;
use weir_sql::facts::TransactionVerb;
use weir_wire::frame::{HEADER_BYTES, front, read_header, split_cstr};

/// Longest pipeline that is waited for up to its Sync.
const AHEAD_BYTES_MAX: usize = 64 << 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FollowingMessages {
    /// Nothing needs the implicit transaction.
    Reads,
    More,
    Unknown,
}

/// How the messages received so far end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PipelineEnd {
    Sync,
    Open {
        executes: bool,
    },
    /// `bytes`: up to the end of an incomplete message.
    Partial {
        bytes: usize,
    },
    /// With a message outside of pipelines, or an unknown one.
    Other,
}

/// Classifies what follows the next message. Nothing follows a Query.
#[inline]
pub fn look(s: &mut Session, w: &Context) -> FollowingMessages {
    let here = s.up.unseen();
    let is_extended = matches!(here.first(), Some(&(front::PARSE | front::BIND | front::DESCRIBE)));
    s.reads.is_alone =
        !is_extended || (!s.reads.is_series_of_reads() && PipelineBatch::read(here).is_some_and(|batch| batch.is_synced));
    if s.reads.is_alone || s.reads.is_series_of_reads() {
        return FollowingMessages::Reads;
    }
    look_far(s, w)
}

fn look_far(s: &mut Session, w: &Context) -> FollowingMessages {
    let mut run = PipelineScan::default();
    let end = loop {
        let statement = match run.next(s, w) {
            Ok(statement) => statement,
            Err(end) => break end,
        };
        if statement.is_some_and(|prepared| classify::class_of(s, w, &prepared.statement).side != RouteSide::Reader) {
            break PipelineEnd::Other;
        }
    };
    s.reads.note_series(end == PipelineEnd::Sync);
    match end {
        PipelineEnd::Sync | PipelineEnd::Open { executes: false } => FollowingMessages::Reads,
        PipelineEnd::Partial { bytes } if bytes <= AHEAD_BYTES_MAX => {
            s.up.has_whole(bytes);
            FollowingMessages::More
        }
        PipelineEnd::Open { .. } | PipelineEnd::Partial { .. } | PipelineEnd::Other => FollowingMessages::Unknown,
    }
}

/// Longest message that may count as the end of a transaction.
pub const END_BYTES_MAX: u32 = 1 << 10;

/// Returns the effect of the next message on the transaction; `TransactionVerb::None` for incomplete and long messages.
#[cold]
pub fn transaction_next(s: &Session, w: &Context) -> TransactionVerb {
    let here = s.up.unseen();
    let header = match read_header(here) {
        Ok(Some(header)) if header.body_bytes <= END_BYTES_MAX => header,
        Ok(_) | Err(_) => return TransactionVerb::None,
    };
    let Some(body) = here.get(HEADER_BYTES..header.frame_bytes()) else { return TransactionVerb::None };
    let of_text = |text: &[u8]| w.statements.borrow_mut().of_text(text).transaction;
    match (header.tag, split_cstr(body)) {
        (front::QUERY, Some((text, _))) => of_text(text),
        (front::PARSE, Some((_, rest))) => split_cstr(rest).map_or(TransactionVerb::None, |(text, _)| of_text(text)),
        (front::BIND, Some((_, rest))) => {
            let name = split_cstr(rest).map_or(&[][..], |(name, _)| name);
            let own = if name.is_empty() { s.statements.unnamed() } else { s.statements.named.get(key(name)) };
            own.map_or(TransactionVerb::None, |own| own.prepared.statement.transaction)
        }
        _ => TransactionVerb::None,
    }
}

/// A scan of a pipeline's messages without allocation.
#[derive(Default)]
struct PipelineScan {
    at: usize,
    executes: bool,
    /// Where the last Parse is.
    parsed_at: Option<usize>,
}

impl PipelineScan {
    /// Returns the statement first mentioned by the next message, if any; the error is how the messages end.
    fn next(&mut self, s: &Session, w: &Context) -> Result<Option<Rc<PreparedStatement>>, PipelineEnd> {
        let here = s.up.unseen();
        let rest = &here[self.at..];
        let header = match read_header(rest) {
            Ok(Some(header)) => header,
            Ok(None) if rest.is_empty() => return Err(PipelineEnd::Open { executes: self.executes }),
            Ok(None) => return Err(PipelineEnd::Partial { bytes: self.at + HEADER_BYTES }),
            Err(_) => return Err(PipelineEnd::Other),
        };
        let bytes = self.at + header.frame_bytes();
        let body = rest.get(HEADER_BYTES..header.frame_bytes()).ok_or(PipelineEnd::Partial { bytes })?;
        let mut statement = None;
        match header.tag {
            front::PARSE => {
                let limit = w.peek_config().routing.statement_analysis_bytes_max;
                let (name, tail) = split_cstr(body).filter(|(_, tail)| tail.len() <= limit).ok_or(PipelineEnd::Other)?;
                let made = w.statements.borrow_mut().of_parse(tail, s.state.meaning, ParseNaming::of(name));
                statement = Some(made.filter(|made| !s.is_misread(&made.statement)).ok_or(PipelineEnd::Other)?);
                self.parsed_at = Some(self.at);
            }
            front::BIND => {
                let (name, _) = split_cstr(body).and_then(|(_, rest)| split_cstr(rest)).ok_or(PipelineEnd::Other)?;
                if !self.has_parsed(here, name) {
                    let own = if name.is_empty() { s.statements.unnamed() } else { s.statements.named.get(key(name)) };
                    statement = Some(own.ok_or(PipelineEnd::Other)?.prepared.clone());
                }
            }
            front::EXECUTE => self.executes = true,
            front::DESCRIBE | front::CLOSE | front::FLUSH => {}
            front::SYNC => return Err(PipelineEnd::Sync),
            _ => return Err(PipelineEnd::Other),
        }
        self.at = bytes;
        Ok(statement)
    }

    /// True if a scanned message prepares this name, mostly the last Parse.
    fn has_parsed(&self, here: &[u8], name: &[u8]) -> bool {
        let Some(last) = self.parsed_at else { return false };
        parses(&here[last..], name) || {
            let mut at = 0;
            std::iter::from_fn(|| {
                let rest = here.get(at..last).filter(|rest| !rest.is_empty())?;
                at += read_header(rest).ok()??.frame_bytes();
                Some(rest)
            })
            .any(|rest| parses(rest, name))
        }
    }
}

fn parses(messages: &[u8], name: &[u8]) -> bool {
    messages.first() == Some(&front::PARSE)
        && messages.get(HEADER_BYTES..).and_then(split_cstr).is_some_and(|(parsed, _)| key(parsed) == key(name))
}
