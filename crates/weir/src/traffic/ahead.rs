//! What a client has sent behind a message of a pipeline.
//!
//! Statements up to a Sync share an implicit transaction, and some need it: LOCK, DECLARE, SET LOCAL. So a read is answered elsewhere than
//! on the primary only if all up to the Sync only reads, and is here to be looked at; or if nothing is executed yet.

use crate::client::session::Session;
use crate::client::statements::Prepared;
use crate::process::worker::Worker;
use crate::traffic::batch::Batch;
use crate::traffic::judging;
use std::rc::Rc;
use weir_policy::route::Side;
use weir_wire::frame::{HEADER_BYTES, front, read_header, split_cstr};

/// Messages up to a Sync are waited for if they take no more than this.
const AHEAD_BYTES_MAX: usize = 64 << 10;

/// What follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ahead {
    /// Nothing that needs the implicit transaction.
    Reads,
    /// A message that is not all here: its rest must arrive first.
    More,
    /// Something else, or nobody knows.
    Unknown,
}

/// How the messages end that are here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Sync,
    /// More of them may come.
    Open {
        executes: bool,
    },
    /// With a message that is here up to so many bytes of all.
    Partial {
        bytes: usize,
    },
    /// With something that is no part of a pipeline, or is not known.
    Other,
}

/// Looks at what follows the message that is next; of a Query that is nothing.
#[inline]
pub fn look(s: &mut Session, w: &Worker) -> Ahead {
    let here = s.up.unseen();
    let is_extended = matches!(here.first(), Some(&(front::PARSE | front::BIND | front::DESCRIBE)));
    // Most pipelines are of one statement.
    if !is_extended || s.only_reads || Batch::read(here).is_some_and(|batch| batch.is_synced) {
        return Ahead::Reads;
    }
    look_far(s, w)
}

fn look_far(s: &mut Session, w: &Worker) -> Ahead {
    let (statements, end) = gather(s, w);
    let reads = statements.iter().all(|prepared| judging::class_of(s, w, &prepared.statement).side == Side::Reader);
    s.only_reads = reads && end == End::Sync;
    match end {
        End::Sync | End::Open { executes: false } if reads => Ahead::Reads,
        End::Partial { bytes } if reads && bytes <= AHEAD_BYTES_MAX => {
            s.up.has_whole(bytes);
            Ahead::More
        }
        End::Sync | End::Open { .. } | End::Partial { .. } | End::Other => Ahead::Unknown,
    }
}

/// The statements that are prepared or bound by the messages that are here, up to a Sync.
fn gather(s: &Session, w: &Worker) -> (Vec<Rc<Prepared>>, End) {
    let limit = w.peek_config().routing.statement_analysis_bytes_max;
    let (mut statements, mut named): (Vec<Rc<Prepared>>, Vec<&[u8]>) = (Vec::new(), Vec::new());
    let (here, mut at, mut executes) = (s.up.unseen(), 0, false);
    let end = loop {
        let rest = &here[at..];
        let header = match read_header(rest) {
            Ok(Some(header)) => header,
            Ok(None) if rest.is_empty() => break End::Open { executes },
            Ok(None) => break End::Partial { bytes: at + HEADER_BYTES },
            Err(_) => break End::Other,
        };
        let Some(body) = rest.get(HEADER_BYTES..header.frame_bytes()) else {
            break End::Partial { bytes: at + header.frame_bytes() };
        };
        match header.tag {
            front::PARSE => {
                let made = split_cstr(body).filter(|(_, tail)| tail.len() <= limit);
                let made = made.and_then(|(name, tail)| Some((name, w.statements.borrow_mut().of_parse(tail, s.state.meaning)?)));
                let Some((name, prepared)) = made.filter(|(_, made)| !s.is_misread(&made.statement)) else { break End::Other };
                named.push(name);
                statements.push(prepared);
            }
            front::BIND => {
                let Some((_, rest)) = split_cstr(body) else { break End::Other };
                let Some((name, _)) = split_cstr(rest) else { break End::Other };
                if !named.contains(&name) {
                    let own = if name.is_empty() { s.unnamed.as_ref() } else { s.named.get(name) };
                    let Some(own) = own else { break End::Other };
                    statements.push(own.prepared.clone());
                }
            }
            front::EXECUTE => executes = true,
            front::DESCRIBE | front::CLOSE | front::FLUSH => {}
            front::SYNC => break End::Sync,
            _ => break End::Other,
        }
        at += header.frame_bytes();
    };
    (statements, end)
}
