//! A session's transaction, kept to run again. `replay` works with it.

use crate::fault::ErrorReport;
use crate::loss::TransactionAfterLoss;
use crate::replies::OwedReplies;
use crate::upstream::ClientKnowledge;
use crate::upstream::prepared_changes::ClientStatement;
use sha2::{Digest, Sha256};
use std::time::Instant;
use weir_failover::rerun_rules::TransactionLosses;
use weir_wire::frame::{HEADER_BYTES, MessageHeader, front, read_header};

/// Room that a session keeps between transactions.
const ROOM_BYTES_MAX: usize = 4 << 10;

/// The client's share of a transaction, and what it was shown.
#[derive(Default)]
pub struct KeptTransaction {
    pub messages: Vec<u8>,
    /// Where among them those begin that are sent together with the COMMIT, if there is one.
    pub commit_at: Option<usize>,
    /// The last message was neither a query nor a Sync.
    pub is_mid_group: bool,
    pub shown: AnswerDigest,
    pub state: RerunState,
    pub losses: TransactionLosses,
    /// The bytes at the front of those to be sent that are counted already.
    pub counted: usize,
    /// The client has yet to hear that the new primary may lack what it was shown.
    pub warning: Option<Vec<u8>>,
}

/// Bytes in order.
#[derive(Clone, Default)]
pub struct AnswerDigest {
    pub bytes: u64,
    pub hash: Sha256,
}

#[derive(Default)]
pub enum RerunState {
    /// All messages since a BEGIN are kept.
    Whole,
    /// The same, and the transaction may be over.
    Ending,
    /// It does not run again: its BEGIN was not kept, it is too long, or it does something that cannot be repeated.
    #[default]
    Spoiled,
    Again(Box<TransactionRerun>),
}

/// A transaction that runs again.
pub struct TransactionRerun {
    /// Bytes of its messages that were not looked at yet.
    pub left: usize,
    /// The answers so far, up to as many bytes as were shown.
    pub answers: AnswerDigest,
    pub since: Instant,
    pub told: RerunFailure,
    /// Statements that the transaction has prepared, as its client knows them.
    pub prepared: Vec<(Box<[u8]>, ClientStatement)>,
    /// The answers were the same as far as they were shown: the rest goes to the client.
    pub is_same: bool,
    /// The transaction may be over behind its messages.
    pub is_ending: bool,
}

/// The words that a client hears if its transaction does not run again.
pub struct RerunFailure {
    pub then: TransactionAfterLoss,
    pub owed: OwedReplies,
    pub fault: ErrorReport,
    /// The server's last word shows that it had what was under way before it.
    pub heard: ClientKnowledge,
}

impl AnswerDigest {
    pub fn add(&mut self, bytes: &[u8]) {
        self.bytes += bytes.len() as u64;
        self.hash.update(bytes);
    }

    pub fn is(&self, other: &AnswerDigest) -> bool {
        self.bytes == other.bytes && self.hash.clone().finalize() == other.hash.clone().finalize()
    }
}

impl KeptTransaction {
    pub fn is_kept(&self) -> bool {
        matches!(self.state, RerunState::Whole | RerunState::Ending)
    }

    /// Another transaction.
    pub fn begin(&mut self) {
        self.messages.clear();
        if self.messages.capacity() > ROOM_BYTES_MAX {
            self.messages = Vec::new();
        }
        (self.shown, self.state, self.losses) = (AnswerDigest::default(), RerunState::Whole, TransactionLosses::default());
        self.commit_at = None;
    }
}

impl KeptTransaction {
    pub fn spoil(&mut self) {
        self.state = RerunState::Spoiled;
        self.messages = Vec::new();
    }

    /// All messages were looked at and the answers were the same: the transaction goes on.
    pub fn finish(&mut self) {
        if let RerunState::Again(run) = &self.state
            && run.is_same
            && run.left == 0
        {
            self.state = if run.is_ending { RerunState::Ending } else { RerunState::Whole };
        }
    }
}

impl KeptTransaction {
    /// True if the transaction runs again just now.
    pub fn is_under_way(&self) -> bool {
        matches!(self.state, RerunState::Again(_))
    }

    /// True if the next message of a transaction that runs again is not to be sent before the answers to all before it are known to be the same:
    /// nothing takes a COMMIT back.
    pub fn waits(&self) -> bool {
        let RerunState::Again(run) = &self.state else { return false };
        !run.is_same && self.commit_at.is_some_and(|at| self.messages.len() - run.left.min(self.messages.len()) >= at)
    }

    /// Its last message ends the transaction by a COMMIT.
    pub fn note_commit(&mut self) {
        self.commit_at = Some(last_group(&self.messages));
    }

    /// Messages of a read were put back, and come again.
    pub fn put_back(&mut self, messages: &[u8]) {
        match &mut self.state {
            RerunState::Again(run) => run.left += messages.len(),
            RerunState::Whole | RerunState::Ending if self.messages.ends_with(messages) => {
                self.messages.truncate(self.messages.len() - messages.len());
            }
            RerunState::Whole | RerunState::Ending => self.spoil(),
            RerunState::Spoiled => {}
        }
    }
}

/// Messages, one behind the other, each with its body.
pub fn frames(messages: &[u8]) -> impl Iterator<Item = (MessageHeader, &[u8])> {
    let mut rest = messages;
    std::iter::from_fn(move || {
        let header = read_header(rest).ok()??;
        let body = rest.get(HEADER_BYTES..header.frame_bytes())?;
        rest = &rest[header.frame_bytes()..];
        Some((header, body))
    })
}

/// True if the server is ready for more behind a message.
pub fn ends_group(tag: u8) -> bool {
    matches!(tag, front::QUERY | front::SYNC)
}

/// Where the messages begin that are sent together with the last one: behind the last Sync or query before it.
fn last_group(messages: &[u8]) -> usize {
    let (mut begin, mut end) = (0, 0);
    for (header, _) in frames(messages) {
        let is_last = end + header.frame_bytes() == messages.len();
        end += header.frame_bytes();
        if ends_group(header.tag) && !is_last {
            begin = end;
        }
    }
    begin
}
