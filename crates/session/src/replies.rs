//! Replies owed by a server: one entry per message that it answers, in order. Replies to Weir's own messages are eaten.
//!
//! Invariant: a server connection may serve another client only when `is_settled`. Source: PostgreSQL manual, "Message Flow";
//! `PostgresMain` and `SocketBackend` in postgres.c.

use std::collections::VecDeque;
use weir_wire::frame::{HEADER_BYTES, back, front};
use weir_wire::write;

/// The client must not see replies named `...Ours`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpectedReply {
    Query,
    /// A Query after messages that may fail: the journal drops the unnamed statement.
    QueryChange,
    /// A query made to fail in place of a refused one.
    QueryRefused,
    FunctionCall,
    Parse,
    /// A Parse not sent: its answer precedes the next reply.
    ParseKnown,
    /// A Parse made to fail in place of a refused message.
    Refused,
    ParseOurs,
    Bind,
    Describe,
    DescribeTold,
    DescribeOurs,
    Execute,
    Close,
    CloseOurs,
    /// CopyDone or CopyFail: unanswered, ends the messages ignored during CopyData.
    CopyEnd,
    Sync,
    /// A Sync with a body: answered by an error.
    SyncGarbled,
    SyncOurs,
    SettingsOurs,
    StateOurs,
    /// Brings something else.
    PrepareOurs,
    /// Brings or removes a statement prepared by SQL.
    StatementOurs,
    UnlistenOurs,
    /// The client's BEGIN, answered before.
    BeginOurs,
    /// Fails a transaction that failed before the server knew of it.
    FailOurs,
    /// Asks for the xid by messages up to a Sync.
    NumberOurs,
    /// The client's statement on one of several shards; the client's own message goes to another.
    PartOurs,
    /// Asks the last of several shards which rows the client's statement returns.
    PartDescribeOurs,
    /// Makes a block of the implicit transaction of the messages before it.
    BlockOurs,
}

impl ExpectedReply {
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
                | ExpectedReply::PartOurs
        )
    }

    /// Tag of the client's message.
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

    /// True if a ReadyForQuery follows, and so all earlier answers.
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestOrigin {
    Client,
    /// The client, by a Sync.
    ClientSync,
    /// The client; a change of its own has happened.
    ClientChange,
    Sync,
    Settings,
    Inventory,
    Prepare,
    Statement,
    Unlisten,
    Begin,
    Number,
    Part,
}

/// The message that rows, or their description, answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowSubject {
    /// A statement.
    Statement,
    /// A question for the description alone.
    Description,
}

/// The message that a command tag answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TagOwner {
    /// More tags may follow.
    Query,
    Execute,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyTreatment {
    Pass,
    /// The client's Parse or Close has happened.
    PassChange,
    /// The end of an execution.
    PassEnd,
    Eat,
    /// Part of a description: to be read, then eaten or passed.
    Description {
        is_ours: bool,
    },
    Row,
    Number,
    /// The command tag of a client's statement on one of several shards.
    PartTag,
    PartRefused,
    /// A ReadyForQuery, eaten unless it is the client's.
    Ready {
        status: u8,
        whose: RequestOrigin,
    },
    /// Requests up to the next Sync stay unanswered.
    Error(DroppedReplies),
    SettingsRefused,
    /// The server refuses the client's transaction, already begun for the client.
    BeginRefused,
    /// The server refuses Weir's query, or a statement prepared by SQL.
    OursRefused,
    NumberRefused,
    /// A message during COPY, with its tag: the server treats it as a broken copy and answers nothing else.
    Misplaced {
        tag: u8,
    },
    /// The server connection must go.
    Unasked,
}

/// Expected replies dropped by an error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DroppedReplies {
    /// The client's Parses and Closes that do not happen, the failed one included.
    pub changes: u32,
    pub ours: u32,
    pub described: u32,
    /// Executions that do not happen, the failed one included.
    pub runs: u32,
    /// Refusals preceded by an error.
    pub refused: u32,
    pub failed: FailedMessage,
    pub rest: RemainingMessages,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FailedMessage {
    #[default]
    Other,
    /// First of `DroppedReplies::changes`.
    Parse,
    /// A message refused by Weir: its error replaces the server's.
    Refused,
    /// Weir's last Parse or Describe, awaited by a client's message.
    Question,
}

/// The client's messages after the dropped ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RemainingMessages {
    #[default]
    Served,
    /// Skipped by the server: the Sync was not sent yet.
    Skipped,
    /// Dropped by Weir, which has sent a Sync.
    Discarded,
}

/// Replies due to a client whose server connection is lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OwedReplies {
    /// ReadyForQuerys, each after an error.
    pub readies: u32,
    /// An error, then all up to the Sync is dropped.
    pub unsynced: bool,
    /// The error was already sent.
    pub skipping: bool,
}

#[derive(Debug, Default)]
pub struct ReplyQueue {
    ring: VecDeque<ExpectedReply>,
    /// An implicit transaction may be open.
    unsynced: bool,
    /// The server skips all until a Sync not sent yet.
    skipping: bool,
    copying_in: bool,
}

/// Most entries before replies arrive. The caller must then send a Flush: replies without a Sync stay in the server's buffer.
pub const REPLIES_MAX: usize = 4096;

impl ReplyQueue {
    pub const fn new() -> ReplyQueue {
        ReplyQueue { ring: VecDeque::new(), unsynced: false, skipping: false, copying_in: false }
    }

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
            | ExpectedReply::NumberOurs
            | ExpectedReply::PartOurs => {
                if self.skipping {
                    return;
                }
                self.unsynced = false;
            }
            // The copy has failed already: its end means nothing.
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

    /// True if nothing is due and no exchange half-done.
    pub fn is_settled(&self) -> bool {
        self.ring.is_empty() && !self.unsynced && !self.skipping && !self.copying_in
    }

    /// An implicit transaction may be open.
    pub fn is_empty(&self) -> bool {
        self.ring.is_empty()
    }

    /// True if answers come without more from the client. The last `unfinished` entries are of incomplete messages.
    pub fn will_answer(&self, unfinished: usize) -> bool {
        let whole = self.ring.len().saturating_sub(unfinished);
        let is_answered = || self.ring.iter().take(whole).any(|expect| expect.ends_a_turn());
        let is_all_asked = !self.unsynced && unfinished == 0;
        !self.copying_in && whole > 0 && (is_all_asked || is_answered())
    }

    /// `filling`: until half has come.
    pub fn is_full(&self, filling: bool) -> bool {
        self.ring.len() >= if filling { REPLIES_MAX / 2 } else { REPLIES_MAX }
    }

    /// Notes an implicit transaction of messages outside of the queue.
    pub fn note_implicit(&mut self, is_open: bool) {
        self.unsynced = is_open;
    }

    pub fn is_unsynced(&self) -> bool {
        self.unsynced
    }

    pub fn is_skipping(&self) -> bool {
        self.skipping
    }

    /// Undoes the skipping: its error was the server's last message, and the client waits for it.
    pub fn unskip(&mut self) {
        self.skipping = false;
        self.unsynced = true;
    }

    pub fn is_copying_in(&self) -> bool {
        self.copying_in
    }

    /// True if a reply to a question of Weir's is next, of which the client knows nothing.
    pub fn is_our_turn(&self) -> bool {
        self.ring.front().is_some_and(|front| front.is_query_of_ours() && *front != ExpectedReply::PartOurs)
    }

    /// The message that a row or a description answers next, if it is a client's statement on several shards, or a part of it.
    pub fn row_subject(&self) -> Option<RowSubject> {
        match self.ring.front()? {
            ExpectedReply::PartOurs | ExpectedReply::Query | ExpectedReply::QueryChange | ExpectedReply::Execute => {
                Some(RowSubject::Statement)
            }
            // The client's own Describe may be of a statement, whose formats are not those of the Bind.
            ExpectedReply::PartDescribeOurs => Some(RowSubject::Description),
            _ => None,
        }
    }

    /// True if the answer of an unsent Parse precedes the next reply.
    #[inline]
    pub fn owes_known_parse(&self) -> bool {
        self.ring.front() == Some(&ExpectedReply::ParseKnown)
    }

    pub fn behind_known_parse(&self) -> Option<ExpectedReply> {
        self.ring.get(1).copied()
    }

    pub fn known_parse_answered(&mut self) {
        debug_assert!(self.owes_known_parse(), "no such answer is due");
        self.ring.pop_front();
    }

    /// Makes the unsent Parse the failed message of the coming error.
    pub fn known_parse_failed(&mut self) {
        if let Some(front) = self.ring.front_mut().filter(|front| **front == ExpectedReply::ParseKnown) {
            *front = ExpectedReply::Parse;
        }
    }

    /// True if the end of a statement is due.
    pub fn has_run_due(&self) -> bool {
        self.ring.iter().any(|expect| {
            matches!(
                expect,
                ExpectedReply::Query | ExpectedReply::QueryChange | ExpectedReply::Execute | ExpectedReply::FunctionCall
            )
        })
    }

    /// True if the next reply is to a Query or function call.
    pub fn is_query_next(&self) -> bool {
        matches!(self.ring.front(), Some(ExpectedReply::Query | ExpectedReply::QueryChange | ExpectedReply::FunctionCall))
    }

    /// True if the next reply ends a client's message with a ReadyForQuery that is not Weir's.
    pub fn is_clients_end_next(&self) -> bool {
        matches!(
            self.ring.front(),
            Some(
                ExpectedReply::Sync
                    | ExpectedReply::SyncGarbled
                    | ExpectedReply::Query
                    | ExpectedReply::QueryChange
                    | ExpectedReply::QueryRefused
                    | ExpectedReply::FunctionCall
            )
        )
    }

    pub fn is_bringing_statement(&self) -> bool {
        self.ring.front() == Some(&ExpectedReply::StatementOurs)
    }

    /// True if nothing of the client's is due and no implicit transaction open.
    pub fn is_only_ours(&self) -> bool {
        let is_between = !self.unsynced && !self.skipping && !self.copying_in;
        is_between && (self.ring.is_empty() || self.ring.iter().all(|expect| expect.is_query_of_ours()))
    }

    pub fn is_setting(&self) -> bool {
        self.ring.iter().any(|expect| *expect == ExpectedReply::SettingsOurs)
    }

    pub fn is_last(&self) -> bool {
        self.ring.iter().skip(1).all(|expect| *expect == ExpectedReply::CopyEnd)
    }

    /// Questions of ours do not count, also those before it.
    pub fn is_one_query(&self) -> bool {
        let mut asked = self.ring.iter().filter(|expect| !expect.is_query_of_ours());
        let is_query = |expect: Option<&ExpectedReply>| matches!(expect, Some(ExpectedReply::Query | ExpectedReply::QueryChange));
        !self.unsynced && !self.skipping && is_query(asked.next()) && asked.next().is_none()
    }

    /// The entry of an error just received does not count.
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

    /// Returns the replies due to a client whose server connection is lost.
    pub fn owed(&self) -> OwedReplies {
        let mut readies = 0;
        // Weir's Sync may end client messages.
        let (mut open, mut orphaned) = (false, false);
        for expect in &self.ring {
            match expect {
                // A server skips the rest up to the Sync.
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
                | ExpectedReply::PartDescribeOurs
                | ExpectedReply::CopyEnd
                | ExpectedReply::SettingsOurs
                | ExpectedReply::StateOurs
                | ExpectedReply::PrepareOurs
                | ExpectedReply::StatementOurs
                | ExpectedReply::UnlistenOurs
                | ExpectedReply::BeginOurs
                | ExpectedReply::FailOurs
                | ExpectedReply::NumberOurs
                | ExpectedReply::PartOurs
                | ExpectedReply::BlockOurs => {}
            }
        }
        let is_cut_off = open && !self.skipping;
        OwedReplies { readies, unsynced: (self.unsynced && !self.skipping) || orphaned || is_cut_off, skipping: self.skipping }
    }

    /// Returns the due rest of the answer to one client statement without parameters and rows that was carried out. `None`: more is due,
    /// or its form is unknown. `tag`: command tag.
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
                // A query behind one of Weir's own may change something, and has.
                ExpectedReply::Execute | ExpectedReply::Query | ExpectedReply::QueryChange if !is_ended => {
                    runs += 1;
                    write::command_complete(&mut out, tag);
                    is_ended = *expect != ExpectedReply::Execute;
                }
                ExpectedReply::Sync if !is_ended => is_ended = true,
                ExpectedReply::DescribeTold => {
                    write::no_parameters(&mut out);
                    write::bare(&mut out, back::NO_DATA);
                }
                ExpectedReply::ParseOurs
                | ExpectedReply::CloseOurs
                | ExpectedReply::DescribeOurs
                | ExpectedReply::PartDescribeOurs => {}
                _ => return None,
            }
        }
        let is_whole = runs == 1 && is_ended && !self.unsynced && !self.skipping && !self.copying_in;
        is_whole.then_some(out)
    }

    /// `first`: first byte of the body.
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

    /// Consumes complete messages at the start of `bytes` for which `on_server` would answer `Pass` and that need no look: descriptions,
    /// rows, command tags whose body length `passes`. Returns their bytes.
    /// `ended` is told of each command tag, with all bytes up to its end.
    pub fn pass_run(&mut self, bytes: &[u8], passes: impl Fn(u32) -> bool, mut ended: impl FnMut(TagOwner, &[u8])) -> usize {
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
                (back::COMMAND_COMPLETE, Some(ExpectedReply::Query)) if passes(length - 4) => {
                    ended(TagOwner::Query, &bytes[..end])
                }
                (back::BIND_COMPLETE, Some(ExpectedReply::Bind))
                | (back::ROW_DESCRIPTION | back::NO_DATA, Some(ExpectedReply::Describe)) => {
                    front = self.next();
                }
                (back::COMMAND_COMPLETE, Some(ExpectedReply::Execute)) if passes(length - 4) => {
                    self.copying_in = false;
                    front = self.next();
                    ended(TagOwner::Execute, &bytes[..end]);
                }
                _ => break,
            }
            at = end;
        }
        at
    }

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
            back::PARSE_COMPLETE | back::BIND_COMPLETE | back::CLOSE_COMPLETE
                if matches!(front, Some(ExpectedReply::NumberOurs | ExpectedReply::PartOurs)) =>
            {
                ReplyTreatment::Eat
            }
            back::COMMAND_COMPLETE if front == Some(ExpectedReply::PartOurs) => ReplyTreatment::PartTag,
            back::PARSE_COMPLETE | back::BIND_COMPLETE if front == Some(ExpectedReply::BlockOurs) => ReplyTreatment::Eat,
            back::COMMAND_COMPLETE if front == Some(ExpectedReply::BlockOurs) => self.pop(ReplyTreatment::Eat),
            back::NOTICE if front == Some(ExpectedReply::PartOurs) => ReplyTreatment::Pass,
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
            back::NO_DATA | back::ROW_DESCRIPTION if front == Some(ExpectedReply::PartDescribeOurs) => {
                self.pop(ReplyTreatment::Eat)
            }
            back::NO_DATA => self.pop_if(front, ExpectedReply::Describe),
            back::ROW_DESCRIPTION if front == Some(ExpectedReply::Describe) => self.pop(ReplyTreatment::Pass),
            back::COMMAND_COMPLETE | back::PORTAL_SUSPENDED | back::EMPTY_QUERY if front == Some(ExpectedReply::Execute) => {
                self.copying_in = false;
                self.pop(ReplyTreatment::PassEnd)
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
            Some(ExpectedReply::Query | ExpectedReply::QueryRefused | ExpectedReply::FunctionCall) => RequestOrigin::Client,
            Some(ExpectedReply::Sync | ExpectedReply::SyncGarbled) => RequestOrigin::ClientSync,
            Some(ExpectedReply::QueryChange) => RequestOrigin::ClientChange,
            Some(ExpectedReply::SyncOurs) => RequestOrigin::Sync,
            Some(ExpectedReply::SettingsOurs) => RequestOrigin::Settings,
            Some(ExpectedReply::StateOurs) => RequestOrigin::Inventory,
            Some(ExpectedReply::PrepareOurs) => RequestOrigin::Prepare,
            Some(ExpectedReply::StatementOurs) => RequestOrigin::Statement,
            Some(ExpectedReply::UnlistenOurs) => RequestOrigin::Unlisten,
            Some(ExpectedReply::BeginOurs | ExpectedReply::FailOurs) => RequestOrigin::Begin,
            Some(ExpectedReply::NumberOurs) => RequestOrigin::Number,
            Some(ExpectedReply::PartOurs) => RequestOrigin::Part,
            _ => return ReplyTreatment::Unasked,
        };
        self.pop(ReplyTreatment::Ready { status, whose })
    }

    /// Servers ignore Sync and Flush during CopyData: Syncs before its end get no answer.
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
        // Without those Syncs the transaction outlives the copy.
        self.unsynced |= is_extended && !self.ring.iter().skip(1).any(|expect| expect.ends_a_turn());
        ReplyTreatment::Pass
    }

    /// Weir's messages stand for the client message after them.
    fn first_misplaced(&self) -> u8 {
        self.ring.iter().skip(1).find_map(|expect| expect.client_tag()).unwrap_or(front::QUERY)
    }

    fn on_error(&mut self, front: Option<ExpectedReply>) -> ReplyTreatment {
        self.copying_in = false;
        match front {
            // An unsolicited error is the server's last message.
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
            Some(ExpectedReply::PartOurs) => return ReplyTreatment::PartRefused,
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
                Some(ExpectedReply::Execute) => dropped.runs += 1,
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
