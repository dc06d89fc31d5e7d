//! A session's transaction, kept for `rerun`.

use crate::fault::ErrorReport;
use crate::loss::TransactionAfterLoss;
use crate::replies::OwedReplies;
use crate::upstream::ClientKnowledge;
use crate::upstream::prepared_changes::ClientStatement;
use sha2::{Digest, Sha256};
use std::time::Instant;
use weir_failover::rerun_rules::TransactionLosses;
use weir_wire::frame::{HEADER_BYTES, MessageHeader, front, read_header};

const ROOM_BYTES_MAX: usize = 4 << 10;

#[derive(Default)]
pub struct KeptTransaction {
    pub messages: Vec<u8>,
    /// Offset of the messages sent together with the COMMIT.
    pub commit_at: Option<usize>,
    /// The last message was neither a query nor a Sync.
    pub is_mid_group: bool,
    pub shown: AnswerDigest,
    pub state: RerunState,
    pub losses: TransactionLosses,
    /// Pending bytes to the client that are counted already.
    pub counted: usize,
    /// Notice of data that the new primary may lack.
    pub warning: Option<Vec<u8>>,
}

/// Length and hash of answer bytes.
#[derive(Clone, Default)]
pub struct AnswerDigest {
    pub bytes: u64,
    pub hash: Sha256,
}

#[derive(Default)]
pub enum RerunState {
    /// Since a BEGIN.
    Whole,
    /// The transaction may be over.
    Ending,
    /// BEGIN not kept, too long, or not repeatable.
    #[default]
    Spoiled,
    Again(Box<TransactionRerun>),
}

pub struct TransactionRerun {
    /// Bytes not processed yet.
    pub left: usize,
    /// Answers so far, up to the bytes shown before.
    pub answers: AnswerDigest,
    pub since: Instant,
    pub told: RerunFailure,
    /// Statements prepared in the transaction.
    pub prepared: Vec<(Box<[u8]>, ClientStatement)>,
    /// The shown answers are equal: the rest goes to the client.
    pub is_same: bool,
    pub is_ending: bool,
}

/// Report of a failed rerun.
pub struct RerunFailure {
    pub then: TransactionAfterLoss,
    pub owed: OwedReplies,
    pub fault: ErrorReport,
    /// The server has shown that it had what was under way.
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

    /// Ends a completed rerun with equal answers: the transaction goes on.
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
    pub fn is_under_way(&self) -> bool {
        matches!(self.state, RerunState::Again(_))
    }

    /// True if the next message must wait for equal answers: a COMMIT cannot be undone.
    pub fn waits(&self) -> bool {
        let RerunState::Again(run) = &self.state else { return false };
        !run.is_same && self.commit_at.is_some_and(|at| self.messages.len() - run.left.min(self.messages.len()) >= at)
    }

    /// Notes that the last message commits.
    pub fn note_commit(&mut self) {
        self.commit_at = Some(last_group(&self.messages));
    }

    /// A read's messages come again.
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

pub fn frames(messages: &[u8]) -> impl Iterator<Item = (MessageHeader, &[u8])> {
    let mut rest = messages;
    std::iter::from_fn(move || {
        let header = read_header(rest).ok()??;
        let body = rest.get(HEADER_BYTES..header.frame_bytes())?;
        rest = &rest[header.frame_bytes()..];
        Some((header, body))
    })
}

pub fn ends_group(tag: u8) -> bool {
    matches!(tag, front::QUERY | front::SYNC)
}

/// Offset after the Sync or query before the last message.
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
