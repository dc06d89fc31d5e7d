//! Replies that a server still owes: one entry per message sent to it that is answered.
//!
//! The order of entries is the order of replies, so each server message is matched with the entry at the front. Entries the
//! client did not cause (a Parse brought along, settings brought up to date) are eaten.
//!
//! Invariant: a server connection may go to another client only when `is_settled`.
//! Source: PostgreSQL manual, "Message Flow"; `PostgresMain` and `SocketBackend` in postgres.c.

use std::collections::VecDeque;
use weir_wire::frame::{HEADER_BYTES, back, front};
use weir_wire::write;

/// One awaited reply. `...Ours` are ours alone: the client must not see them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpectedReply {
    Query,
    /// A Query behind messages that may still fail: the journal notes that it drops the unnamed statement.
    QueryChange,
    /// A query made to fail in place of one we refuse; the server's error is exchanged for ours.
    QueryRefused,
    FunctionCall,
    /// A Parse of the client's.
    Parse,
    /// A Parse of the client's that was not sent, since the server connection has the statement: its answer goes in front of the next one.
    ParseKnown,
    /// A Parse made to fail in place of one we refuse.
    Refused,
    ParseOurs,
    Bind,
    Describe,
    /// A Describe of the client's whose answer is looked at.
    DescribeTold,
    DescribeOurs,
    Execute,
    /// A Close of the client's.
    Close,
    CloseOurs,
    /// CopyDone or CopyFail: never answered, but it ends the messages that a server ignores while it reads CopyData.
    CopyEnd,
    Sync,
    /// A Sync with a body: it is answered by an error, and ends the same as a Sync.
    SyncGarbled,
    SyncOurs,
    /// A simple query that brings the session's settings; wholly eaten.
    SettingsOurs,
    /// A simple query for the session's state; its rows are read and eaten.
    StateOurs,
    /// A simple query that brings something else; wholly eaten.
    PrepareOurs,
    /// A simple query that brings or removes a statement prepared by SQL; wholly eaten.
    StatementOurs,
    /// A simple query that ends all listening of the server connection; wholly eaten.
    UnlistenOurs,
    /// The client's BEGIN, which it was answered before; wholly eaten.
    BeginOurs,
    /// A query made to fail, since the transaction failed before the server knew of it; wholly eaten.
    FailOurs,
    /// A question for the transaction's number, by messages up to a Sync; its rows are read and eaten.
    NumberOurs,
}

impl ExpectedReply {
    /// A simple query of ours.
    const fn is_query_of_ours(self) -> bool {
        matches!(
            self,
            ExpectedReply::SettingsOurs
                | ExpectedReply::StateOurs
                | ExpectedReply::PrepareOurs
                | ExpectedReply::StatementOurs
                | ExpectedReply::UnlistenOurs
                | ExpectedReply::BeginOurs
                | ExpectedReply::FailOurs
                | ExpectedReply::NumberOurs
        )
    }

    /// The kind of the client's message that is answered. One we refuse ourselves counts as the Parse that stands in for it.
    const fn client_tag(self) -> Option<u8> {
        match self {
            ExpectedReply::Query | ExpectedReply::QueryChange | ExpectedReply::QueryRefused => Some(front::QUERY),
            ExpectedReply::FunctionCall => Some(front::FUNCTION_CALL),
            ExpectedReply::Parse | ExpectedReply::ParseKnown | ExpectedReply::Refused => Some(front::PARSE),
            ExpectedReply::Bind => Some(front::BIND),
            ExpectedReply::Describe | ExpectedReply::DescribeTold => Some(front::DESCRIBE),
            ExpectedReply::Execute => Some(front::EXECUTE),
            ExpectedReply::Close => Some(front::CLOSE),
            _ => None,
        }
    }

    /// ReadyForQuery comes after it, and with it all answers before.
    const fn ends_a_turn(self) -> bool {
        matches!(
            self,
            ExpectedReply::Sync
                | ExpectedReply::SyncGarbled
                | ExpectedReply::SyncOurs
                | ExpectedReply::Query
                | ExpectedReply::QueryChange
                | ExpectedReply::FunctionCall
        )
    }
}

/// Origin of the request that a ReadyForQuery ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestOrigin {
    Client,
    /// The client, and a change of its own has happened.
    ClientChange,
    /// A Sync of ours.
    Sync,
    Settings,
    Inventory,
    Prepare,
    Statement,
    Unlisten,
    Begin,
    Number,
}

/// Treatment of a server's message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyTreatment {
    Pass,
    /// Pass; a Parse or Close of the client's has happened.
    PassChange,
    Eat,
    /// A part of a statement's description: to be looked at, and eaten or passed.
    Description {
        is_ours: bool,
    },
    /// A row of an inventory: read and eat it.
    Row,
    /// A row with the transaction's number: the same.
    Number,
    /// A ReadyForQuery with this status; eat it if it is not the client's.
    Ready {
        status: u8,
        whose: RequestOrigin,
    },
    /// An ErrorResponse. Requests behind the failed message, up to the next Sync, will not be answered.
    Error(DroppedReplies),
    /// The server refuses the settings of this session.
    SettingsRefused,
    /// The server refuses to begin the transaction that the client believes to be in.
    BeginRefused,
    /// The server refuses a question of ours, or a statement prepared by SQL before.
    OursRefused,
    /// The server refuses the question for the transaction's number.
    NumberRefused,
    /// The server reads a copy's data now, and the client has sent something else. The server takes that for a broken copy and
    /// answers nothing else to it. The kind of the first such message.
    Misplaced {
        tag: u8,
    },
    /// The server said something it was not asked for: it and we no longer agree, the server connection must go.
    Unasked,
}

/// Expected replies that an error took with it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DroppedReplies {
    /// Parses and Closes of the client's that will not happen, the failed one included.
    pub changes: u32,
    /// Parses of ours that will not happen.
    pub ours: u32,
    /// Descriptions that were to be looked at.
    pub described: u32,
    /// Refusals that come too late: an earlier error comes first.
    pub refused: u32,
    pub failed: FailedMessage,
    pub rest: RemainingMessages,
}

/// The message that failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FailedMessage {
    #[default]
    Other,
    /// The first of `DroppedReplies::changes`: a Parse the server refused.
    Parse,
    /// One we refused: exchange the error.
    Refused,
    /// Of the last statement that was brought along: the question that a message of the client's waits for.
    Question,
}

/// The client's messages behind those that were dropped, up to its Sync.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RemainingMessages {
    #[default]
    Served,
    /// The server skips them: their Sync was not sent yet.
    Skipped,
    /// They are to be thrown away by us: the server was given a Sync of ours.
    Discarded,
}

/// Replies that a client waits for when its server connection is gone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OwedReplies {
    /// ReadyForQuerys, each after an error.
    pub readies: u32,
    /// Messages without a Sync so far: an error, then all is dropped until the Sync.
    pub unsynced: bool,
    /// The error was told already; all is dropped until the Sync.
    pub skipping: bool,
}

/// The replies due on one server connection.
#[derive(Debug, Default)]
pub struct ReplyQueue {
    ring: VecDeque<ExpectedReply>,
    /// Extended messages were sent since the last Sync: an implicit transaction may be open.
    unsynced: bool,
    /// The server skips all until a Sync that was not sent yet.
    skipping: bool,
    /// The server reads CopyData.
    copying_in: bool,
}

/// Entries after which no more is read from a client until replies arrive. Replies of a pipeline without Sync stay in the server's
/// output buffer, so the caller must send a Flush when it stops here.
pub const REPLIES_MAX: usize = 4096;

impl ReplyQueue {
    /// Nothing is due.
    pub const fn new() -> ReplyQueue {
        ReplyQueue { ring: VecDeque::new(), unsynced: false, skipping: false, copying_in: false }
    }

    /// Notes that a message was sent.
    pub fn push(&mut self, expect: ExpectedReply) {
        match expect {
            ExpectedReply::Query
            | ExpectedReply::QueryChange
            | ExpectedReply::QueryRefused
            | ExpectedReply::FunctionCall
            | ExpectedReply::SettingsOurs
            | ExpectedReply::StateOurs
            | ExpectedReply::PrepareOurs
            | ExpectedReply::StatementOurs
            | ExpectedReply::UnlistenOurs
            | ExpectedReply::BeginOurs
            | ExpectedReply::FailOurs
            | ExpectedReply::NumberOurs => {
                if self.skipping {
                    return;
                }
                self.unsynced = false;
            }
            // A copy that nobody waits for has failed already: its end means nothing.
            ExpectedReply::CopyEnd if self.copying_in || self.ring.is_empty() => {
                self.copying_in = false;
                return;
            }
            ExpectedReply::CopyEnd => {}
            ExpectedReply::Sync | ExpectedReply::SyncGarbled | ExpectedReply::SyncOurs if self.copying_in => return,
            ExpectedReply::Sync | ExpectedReply::SyncGarbled | ExpectedReply::SyncOurs => {
                self.unsynced = false;
                self.skipping = false;
            }
            _ if self.skipping => return,
            _ => self.unsynced = true,
        }
        self.ring.push_back(expect);
    }

    /// Nothing is due and no message is half-way: the server connection is the server's to rest.
    pub fn is_settled(&self) -> bool {
        self.ring.is_empty() && !self.unsynced && !self.skipping && !self.copying_in
    }

    /// Nothing is due (an unsynced implicit transaction may still be open).
    pub fn is_empty(&self) -> bool {
        self.ring.is_empty()
    }

    /// Answers are on their way that come without anything more from the client: all of them, or those before messages it has not
    /// followed by a Sync. The last `unfinished` entries are of messages that are not all here: they get none.
    pub fn will_answer(&self, unfinished: usize) -> bool {
        let whole = self.ring.len().saturating_sub(unfinished);
        let is_answered = || self.ring.iter().take(whole).any(|expect| expect.ends_a_turn());
        let is_all_asked = !self.unsynced && unfinished == 0;
        !self.copying_in && whole > 0 && (is_all_asked || is_answered())
    }

    /// Too much is due; until half of it has come (`filling` says that it had been too much).
    pub fn is_full(&self, filling: bool) -> bool {
        self.ring.len() >= if filling { REPLIES_MAX / 2 } else { REPLIES_MAX }
    }

    pub fn is_unsynced(&self) -> bool {
        self.unsynced
    }

    /// The server ignores all but Sync: the caller may drop the client's messages.
    pub fn is_skipping(&self) -> bool {
        self.skipping
    }

    /// The error after which it skips was the last thing the server said: its client waits for it.
    pub fn unskip(&mut self) {
        self.skipping = false;
        self.unsynced = true;
    }

    pub fn is_copying_in(&self) -> bool {
        self.copying_in
    }

    /// The next reply belongs to a simple query of ours.
    pub fn is_our_turn(&self) -> bool {
        self.ring.front().is_some_and(|front| front.is_query_of_ours())
    }

    /// The answer to a Parse that was not sent goes in front of the next reply.
    #[inline]
    pub fn owes_known_parse(&self) -> bool {
        self.ring.front() == Some(&ExpectedReply::ParseKnown)
    }

    /// The reply behind that.
    pub fn behind_known_parse(&self) -> Option<ExpectedReply> {
        self.ring.get(1).copied()
    }

    /// That answer is given.
    pub fn known_parse_answered(&mut self) {
        debug_assert!(self.owes_known_parse(), "no such answer is due");
        self.ring.pop_front();
    }

    /// The next reply is an error, and the Parse counts as the message that failed.
    pub fn known_parse_failed(&mut self) {
        if let Some(front) = self.ring.front_mut().filter(|front| **front == ExpectedReply::ParseKnown) {
            *front = ExpectedReply::Parse;
        }
    }

    /// The next reply is about a statement prepared by SQL that is brought.
    pub fn is_bringing_statement(&self) -> bool {
        self.ring.front() == Some(&ExpectedReply::StatementOurs)
    }

    /// Nothing of the client's is due and no transaction of a pipeline is open.
    pub fn is_only_ours(&self) -> bool {
        !self.unsynced && !self.skipping && !self.copying_in && self.ring.iter().all(|expect| expect.is_query_of_ours())
    }

    /// Settings are being brought to the server connection.
    pub fn is_setting(&self) -> bool {
        self.ring.iter().any(|expect| *expect == ExpectedReply::SettingsOurs)
    }

    /// One reply is due and nothing behind it that is answered.
    pub fn is_last(&self) -> bool {
        self.ring.iter().skip(1).all(|expect| *expect == ExpectedReply::CopyEnd)
    }

    /// All that the client waits for is the answer to one simple query.
    pub fn is_one_query(&self) -> bool {
        let mut asked = self.ring.iter().filter(|expect| !expect.is_query_of_ours());
        !self.unsynced && !self.skipping && matches!(asked.next(), Some(ExpectedReply::Query)) && asked.next().is_none()
    }

    /// A Query or Execute is under way, not counting the one whose error came just now.
    pub fn has_work_behind_error(&self) -> bool {
        let is_work = |expect: &ExpectedReply| {
            matches!(
                expect,
                ExpectedReply::Query | ExpectedReply::QueryChange | ExpectedReply::Execute | ExpectedReply::FunctionCall
            )
        };
        let fails =
            matches!(self.ring.front(), Some(ExpectedReply::Query | ExpectedReply::QueryChange | ExpectedReply::FunctionCall));
        let skip = usize::from(fails);
        self.ring.iter().skip(skip).any(is_work)
    }

    /// Replies that the client still waits for, when the server connection is gone.
    pub fn owed(&self) -> OwedReplies {
        let mut readies = 0;
        // Messages of the client's that only a Sync of ours ends: it waits for their answers all the same.
        let (mut open, mut orphaned) = (false, false);
        for expect in &self.ring {
            match expect {
                // The error is that of the first message, and a server skips the rest up to the Sync.
                ExpectedReply::Query | ExpectedReply::QueryChange | ExpectedReply::QueryRefused | ExpectedReply::FunctionCall
                    if open => {}
                ExpectedReply::Query
                | ExpectedReply::QueryChange
                | ExpectedReply::QueryRefused
                | ExpectedReply::FunctionCall
                | ExpectedReply::Sync
                | ExpectedReply::SyncGarbled => {
                    readies += 1;
                    open = false;
                }
                ExpectedReply::Parse
                | ExpectedReply::ParseKnown
                | ExpectedReply::Refused
                | ExpectedReply::Bind
                | ExpectedReply::Describe
                | ExpectedReply::DescribeTold
                | ExpectedReply::Execute
                | ExpectedReply::Close => open = true,
                ExpectedReply::SyncOurs => {
                    orphaned |= open;
                    open = false;
                }
                ExpectedReply::ParseOurs
                | ExpectedReply::CloseOurs
                | ExpectedReply::DescribeOurs
                | ExpectedReply::CopyEnd
                | ExpectedReply::SettingsOurs
                | ExpectedReply::StateOurs
                | ExpectedReply::PrepareOurs
                | ExpectedReply::StatementOurs
                | ExpectedReply::UnlistenOurs
                | ExpectedReply::BeginOurs
                | ExpectedReply::FailOurs
                | ExpectedReply::NumberOurs => {}
            }
        }
        let is_cut_off = open && !self.skipping;
        OwedReplies { readies, unsynced: (self.unsynced && !self.skipping) || orphaned || is_cut_off, skipping: self.skipping }
    }

    /// The answer to one statement of the client's whose command tag is known, as far as it is still due: the statement was carried out, and
    /// has neither parameters nor rows. `None`: more is due, or it is not known how it would look. `tag`: the command tag.
    pub fn answer_of_one(&self, tag: &str) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        let (mut runs, mut is_ended) = (0, false);
        for expect in &self.ring {
            match expect {
                _ if expect.is_query_of_ours() => {}
                ExpectedReply::Parse | ExpectedReply::ParseKnown => write::bare(&mut out, back::PARSE_COMPLETE),
                ExpectedReply::Bind => write::bare(&mut out, back::BIND_COMPLETE),
                ExpectedReply::Describe => write::bare(&mut out, back::NO_DATA),
                ExpectedReply::Close => write::bare(&mut out, back::CLOSE_COMPLETE),
                ExpectedReply::Execute | ExpectedReply::Query if !is_ended => {
                    runs += 1;
                    write::command_complete(&mut out, tag);
                    is_ended = *expect == ExpectedReply::Query;
                }
                ExpectedReply::Sync if !is_ended => is_ended = true,
                ExpectedReply::DescribeTold => {
                    write::no_parameters(&mut out);
                    write::bare(&mut out, back::NO_DATA);
                }
                ExpectedReply::ParseOurs | ExpectedReply::CloseOurs | ExpectedReply::DescribeOurs => {}
                _ => return None,
            }
        }
        let is_whole = runs == 1 && is_ended && !self.unsynced && !self.skipping && !self.copying_in;
        is_whole.then_some(out)
    }

    /// Matches a server's message, `first` being the first byte of its body.
    pub fn on_server(&mut self, tag: u8, first: u8) -> ReplyTreatment {
        while self.ring.front() == Some(&ExpectedReply::CopyEnd) {
            self.ring.pop_front();
        }
        let reply = self.match_front(tag, first);
        while self.ring.front() == Some(&ExpectedReply::CopyEnd) {
            self.ring.pop_front();
        }
        reply
    }

    /// Matches the whole messages at the beginning of `bytes` that are the client's and say nothing to be looked at: descriptions, rows, and
    /// command tags that `passes` by the length of their body. Says how many bytes they have.
    ///
    /// The same as `on_server` for each of them, which answers `Pass`.
    pub fn pass_run(&mut self, bytes: &[u8], passes: impl Fn(u32) -> bool) -> usize {
        let mut at = 0;
        let mut front = self.ring.front().copied();
        while let Some((&[tag, a, b, c, d], _)) = bytes[at..].split_first_chunk::<HEADER_BYTES>() {
            let length = u32::from_be_bytes([a, b, c, d]);
            let end = at + 1 + length as usize;
            if length < 4 || end > bytes.len() {
                break;
            }
            match (tag, front) {
                (back::DATA_ROW, Some(ExpectedReply::Query | ExpectedReply::Execute))
                | (back::ROW_DESCRIPTION, Some(ExpectedReply::Query)) => {}
                (back::COMMAND_COMPLETE, Some(ExpectedReply::Query)) if passes(length - 4) => {}
                (back::BIND_COMPLETE, Some(ExpectedReply::Bind))
                | (back::ROW_DESCRIPTION | back::NO_DATA, Some(ExpectedReply::Describe)) => {
                    front = self.next();
                }
                (back::COMMAND_COMPLETE, Some(ExpectedReply::Execute)) if passes(length - 4) => {
                    self.copying_in = false;
                    front = self.next();
                }
                _ => break,
            }
            at = end;
        }
        at
    }

    /// The entry behind the front one, which is done.
    fn next(&mut self) -> Option<ExpectedReply> {
        self.ring.pop_front();
        while self.ring.front() == Some(&ExpectedReply::CopyEnd) {
            self.ring.pop_front();
        }
        self.ring.front().copied()
    }

    fn match_front(&mut self, tag: u8, first: u8) -> ReplyTreatment {
        let front = self.ring.front().copied();
        match tag {
            back::DATA_ROW if front == Some(ExpectedReply::StateOurs) => ReplyTreatment::Row,
            back::DATA_ROW if front == Some(ExpectedReply::NumberOurs) => ReplyTreatment::Number,
            back::PARSE_COMPLETE | back::BIND_COMPLETE | back::CLOSE_COMPLETE if front == Some(ExpectedReply::NumberOurs) => {
                ReplyTreatment::Eat
            }
            back::NOTICE | back::NOTIFICATION | back::PARAMETER_STATUS => match front {
                Some(front) if front.is_query_of_ours() && tag != back::NOTIFICATION => ReplyTreatment::Eat,
                _ => ReplyTreatment::Pass,
            },
            back::READY => self.on_ready(front, first),
            back::ERROR => self.on_error(front),
            back::PARSE_COMPLETE => match front {
                Some(ExpectedReply::Parse) => self.pop(ReplyTreatment::PassChange),
                Some(ExpectedReply::ParseOurs | ExpectedReply::Refused) => self.pop(ReplyTreatment::Eat),
                _ => ReplyTreatment::Unasked,
            },
            back::BIND_COMPLETE => self.pop_if(front, ExpectedReply::Bind),
            back::CLOSE_COMPLETE if front == Some(ExpectedReply::CloseOurs) => self.pop(ReplyTreatment::Eat),
            back::CLOSE_COMPLETE if front == Some(ExpectedReply::Close) => self.pop(ReplyTreatment::PassChange),
            back::CLOSE_COMPLETE => ReplyTreatment::Unasked,
            back::PARAMETER_DESCRIPTION | back::NO_DATA | back::ROW_DESCRIPTION
                if matches!(front, Some(ExpectedReply::DescribeTold | ExpectedReply::DescribeOurs)) =>
            {
                if tag != back::PARAMETER_DESCRIPTION {
                    self.ring.pop_front();
                }
                ReplyTreatment::Description { is_ours: front == Some(ExpectedReply::DescribeOurs) }
            }
            back::NO_DATA => self.pop_if(front, ExpectedReply::Describe),
            back::ROW_DESCRIPTION if front == Some(ExpectedReply::Describe) => self.pop(ReplyTreatment::Pass),
            back::COMMAND_COMPLETE | back::PORTAL_SUSPENDED | back::EMPTY_QUERY if front == Some(ExpectedReply::Execute) => {
                self.copying_in = false;
                self.pop(ReplyTreatment::Pass)
            }
            back::COPY_IN => self.on_copy_in(front),
            _ => self.pass_or_eat(front),
        }
    }

    fn pass_or_eat(&self, front: Option<ExpectedReply>) -> ReplyTreatment {
        match front {
            None => ReplyTreatment::Unasked,
            Some(front) if front.is_query_of_ours() => ReplyTreatment::Eat,
            Some(_) => ReplyTreatment::Pass,
        }
    }

    fn pop(&mut self, reply: ReplyTreatment) -> ReplyTreatment {
        self.ring.pop_front();
        reply
    }

    fn pop_if(&mut self, front: Option<ExpectedReply>, expected: ExpectedReply) -> ReplyTreatment {
        if front == Some(expected) { self.pop(ReplyTreatment::Pass) } else { ReplyTreatment::Unasked }
    }

    fn on_ready(&mut self, front: Option<ExpectedReply>, status: u8) -> ReplyTreatment {
        self.copying_in = false;
        let whose = match front {
            Some(
                ExpectedReply::Query
                | ExpectedReply::QueryRefused
                | ExpectedReply::FunctionCall
                | ExpectedReply::Sync
                | ExpectedReply::SyncGarbled,
            ) => RequestOrigin::Client,
            Some(ExpectedReply::QueryChange) => RequestOrigin::ClientChange,
            Some(ExpectedReply::SyncOurs) => RequestOrigin::Sync,
            Some(ExpectedReply::SettingsOurs) => RequestOrigin::Settings,
            Some(ExpectedReply::StateOurs) => RequestOrigin::Inventory,
            Some(ExpectedReply::PrepareOurs) => RequestOrigin::Prepare,
            Some(ExpectedReply::StatementOurs) => RequestOrigin::Statement,
            Some(ExpectedReply::UnlistenOurs) => RequestOrigin::Unlisten,
            Some(ExpectedReply::BeginOurs | ExpectedReply::FailOurs) => RequestOrigin::Begin,
            Some(ExpectedReply::NumberOurs) => RequestOrigin::Number,
            _ => return ReplyTreatment::Unasked,
        };
        self.pop(ReplyTreatment::Ready { status, whose })
    }

    /// A server reading CopyData ignores Sync and Flush, so the Syncs sent before the client ended its CopyData get no answer.
    fn on_copy_in(&mut self, front: Option<ExpectedReply>) -> ReplyTreatment {
        if !matches!(front, Some(ExpectedReply::Execute | ExpectedReply::Query | ExpectedReply::QueryChange)) {
            return ReplyTreatment::Unasked;
        }
        self.copying_in = true;
        let is_extended = front == Some(ExpectedReply::Execute);
        while let Some(next) = self.ring.get(1) {
            match next {
                ExpectedReply::CopyEnd => {
                    self.ring.remove(1);
                    self.copying_in = false;
                    break;
                }
                ExpectedReply::Sync | ExpectedReply::SyncGarbled => {
                    self.ring.remove(1);
                }
                _ => return ReplyTreatment::Misplaced { tag: self.first_misplaced() },
            }
        }
        // With the Syncs gone, the implicit transaction stays open beyond the copy.
        self.unsynced |= is_extended && !self.ring.iter().skip(1).any(|expect| expect.ends_a_turn());
        ReplyTreatment::Pass
    }

    /// The kind of the client's first message behind a copy. A message of Weir's stands for the client's message that follows
    /// it.
    fn first_misplaced(&self) -> u8 {
        self.ring.iter().skip(1).find_map(|expect| expect.client_tag()).unwrap_or(front::QUERY)
    }

    fn on_error(&mut self, front: Option<ExpectedReply>) -> ReplyTreatment {
        self.copying_in = false;
        match front {
            // An error nobody asked for is the server's last message; let the client have it.
            None => return ReplyTreatment::Error(DroppedReplies::default()),
            Some(ExpectedReply::SettingsOurs) => return ReplyTreatment::SettingsRefused,
            Some(
                ExpectedReply::StateOurs
                | ExpectedReply::PrepareOurs
                | ExpectedReply::StatementOurs
                | ExpectedReply::UnlistenOurs,
            ) => {
                return ReplyTreatment::OursRefused;
            }
            Some(ExpectedReply::BeginOurs) => return ReplyTreatment::BeginRefused,
            Some(ExpectedReply::FailOurs) => return ReplyTreatment::Eat,
            Some(ExpectedReply::NumberOurs) => return ReplyTreatment::NumberRefused,
            Some(
                ExpectedReply::Query | ExpectedReply::QueryChange | ExpectedReply::FunctionCall | ExpectedReply::SyncGarbled,
            ) => {
                return ReplyTreatment::Error(DroppedReplies::default());
            }
            Some(ExpectedReply::QueryRefused) => {
                return ReplyTreatment::Error(DroppedReplies { failed: FailedMessage::Refused, ..DroppedReplies::default() });
            }
            Some(_) => {}
        }
        let mut dropped = DroppedReplies::default();
        loop {
            match self.ring.front() {
                Some(ExpectedReply::Sync | ExpectedReply::SyncGarbled) => break,
                Some(ExpectedReply::SyncOurs) => {
                    dropped.rest = RemainingMessages::Discarded;
                    break;
                }
                // The server skips even simple queries until a Sync.
                None => {
                    self.skipping = true;
                    dropped.rest = RemainingMessages::Skipped;
                    break;
                }
                Some(ExpectedReply::Parse | ExpectedReply::ParseKnown | ExpectedReply::Close | ExpectedReply::QueryChange) => {
                    dropped.changes += 1
                }
                Some(ExpectedReply::ParseOurs) => dropped.ours += 1,
                Some(ExpectedReply::DescribeTold | ExpectedReply::DescribeOurs) => dropped.described += 1,
                Some(ExpectedReply::Refused | ExpectedReply::QueryRefused) => dropped.refused += 1,
                Some(_) => {}
            }
            self.ring.pop_front();
        }
        dropped.failed = match front {
            Some(ExpectedReply::Refused) => FailedMessage::Refused,
            Some(ExpectedReply::Parse) => FailedMessage::Parse,
            Some(ExpectedReply::ParseOurs) if dropped.ours == 1 => FailedMessage::Question,
            Some(ExpectedReply::DescribeOurs) if dropped.ours == 0 => FailedMessage::Question,
            _ => FailedMessage::Other,
        };
        ReplyTreatment::Error(dropped)
    }
}

#[cfg(test)]
mod tests;
