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
pub enum Expect {
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

impl Expect {
    /// A simple query of ours.
    const fn is_query_of_ours(self) -> bool {
        matches!(
            self,
            Expect::SettingsOurs
                | Expect::StateOurs
                | Expect::PrepareOurs
                | Expect::StatementOurs
                | Expect::UnlistenOurs
                | Expect::BeginOurs
                | Expect::FailOurs
                | Expect::NumberOurs
        )
    }

    /// The kind of the client's message that is answered. One we refuse ourselves counts as the Parse that stands in for it.
    const fn client_tag(self) -> Option<u8> {
        match self {
            Expect::Query | Expect::QueryChange | Expect::QueryRefused => Some(front::QUERY),
            Expect::FunctionCall => Some(front::FUNCTION_CALL),
            Expect::Parse | Expect::ParseKnown | Expect::Refused => Some(front::PARSE),
            Expect::Bind => Some(front::BIND),
            Expect::Describe | Expect::DescribeTold => Some(front::DESCRIBE),
            Expect::Execute => Some(front::EXECUTE),
            Expect::Close => Some(front::CLOSE),
            _ => None,
        }
    }

    /// ReadyForQuery comes after it, and with it all answers before.
    const fn ends_a_turn(self) -> bool {
        matches!(
            self,
            Expect::Sync | Expect::SyncGarbled | Expect::SyncOurs | Expect::Query | Expect::QueryChange | Expect::FunctionCall
        )
    }
}

/// Origin of the request that a ReadyForQuery ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
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
pub enum Reply {
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
        whose: Whose,
    },
    /// An ErrorResponse. Requests behind the failed message, up to the next Sync, will not be answered.
    Error(Dropped),
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
pub struct Dropped {
    /// Parses and Closes of the client's that will not happen, the failed one included.
    pub changes: u32,
    /// Parses of ours that will not happen.
    pub ours: u32,
    /// Descriptions that were to be looked at.
    pub described: u32,
    /// Refusals that come too late: an earlier error comes first.
    pub refused: u32,
    pub failed: Failed,
    pub rest: Rest,
}

/// The message that failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Failed {
    #[default]
    Other,
    /// The first of `Dropped::changes`: a Parse the server refused.
    Parse,
    /// One we refused: exchange the error.
    Refused,
    /// Of the last statement that was brought along: the question that a message of the client's waits for.
    Question,
}

/// The client's messages behind those that were dropped, up to its Sync.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rest {
    #[default]
    Served,
    /// The server skips them: their Sync was not sent yet.
    Skipped,
    /// They are to be thrown away by us: the server was given a Sync of ours.
    Discarded,
}

/// Replies that a client waits for when its server connection is gone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Owed {
    /// ReadyForQuerys, each after an error.
    pub readies: u32,
    /// Messages without a Sync so far: an error, then all is dropped until the Sync.
    pub unsynced: bool,
    /// The error was told already; all is dropped until the Sync.
    pub skipping: bool,
}

/// The replies due on one server connection.
#[derive(Debug, Default)]
pub struct Replies {
    ring: VecDeque<Expect>,
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

impl Replies {
    /// Nothing is due.
    pub const fn new() -> Replies {
        Replies { ring: VecDeque::new(), unsynced: false, skipping: false, copying_in: false }
    }

    /// Notes that a message was sent.
    pub fn push(&mut self, expect: Expect) {
        match expect {
            Expect::Query
            | Expect::QueryChange
            | Expect::QueryRefused
            | Expect::FunctionCall
            | Expect::SettingsOurs
            | Expect::StateOurs
            | Expect::PrepareOurs
            | Expect::StatementOurs
            | Expect::UnlistenOurs
            | Expect::BeginOurs
            | Expect::FailOurs
            | Expect::NumberOurs => {
                if self.skipping {
                    return;
                }
                self.unsynced = false;
            }
            // A copy that nobody waits for has failed already: its end means nothing.
            Expect::CopyEnd if self.copying_in || self.ring.is_empty() => {
                self.copying_in = false;
                return;
            }
            Expect::CopyEnd => {}
            Expect::Sync | Expect::SyncGarbled | Expect::SyncOurs if self.copying_in => return,
            Expect::Sync | Expect::SyncGarbled | Expect::SyncOurs => {
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
        self.ring.front() == Some(&Expect::ParseKnown)
    }

    /// The reply behind that.
    pub fn behind_known_parse(&self) -> Option<Expect> {
        self.ring.get(1).copied()
    }

    /// That answer is given.
    pub fn known_parse_answered(&mut self) {
        debug_assert!(self.owes_known_parse(), "no such answer is due");
        self.ring.pop_front();
    }

    /// The next reply is an error, and the Parse counts as the message that failed.
    pub fn known_parse_failed(&mut self) {
        if let Some(front) = self.ring.front_mut().filter(|front| **front == Expect::ParseKnown) {
            *front = Expect::Parse;
        }
    }

    /// The next reply is about a statement prepared by SQL that is brought.
    pub fn is_bringing_statement(&self) -> bool {
        self.ring.front() == Some(&Expect::StatementOurs)
    }

    /// Nothing of the client's is due and no transaction of a pipeline is open.
    pub fn is_only_ours(&self) -> bool {
        !self.unsynced && !self.skipping && !self.copying_in && self.ring.iter().all(|expect| expect.is_query_of_ours())
    }

    /// Settings are being brought to the server connection.
    pub fn is_setting(&self) -> bool {
        self.ring.iter().any(|expect| *expect == Expect::SettingsOurs)
    }

    /// One reply is due and nothing behind it that is answered.
    pub fn is_last(&self) -> bool {
        self.ring.iter().skip(1).all(|expect| *expect == Expect::CopyEnd)
    }

    /// All that the client waits for is the answer to one simple query.
    pub fn is_one_query(&self) -> bool {
        let mut asked = self.ring.iter().filter(|expect| !expect.is_query_of_ours());
        !self.unsynced && !self.skipping && matches!(asked.next(), Some(Expect::Query)) && asked.next().is_none()
    }

    /// A Query or Execute is under way, not counting the one whose error came just now.
    pub fn has_work_behind_error(&self) -> bool {
        let is_work =
            |expect: &Expect| matches!(expect, Expect::Query | Expect::QueryChange | Expect::Execute | Expect::FunctionCall);
        let fails = matches!(self.ring.front(), Some(Expect::Query | Expect::QueryChange | Expect::FunctionCall));
        let skip = usize::from(fails);
        self.ring.iter().skip(skip).any(is_work)
    }

    /// Replies that the client still waits for, when the server connection is gone.
    pub fn owed(&self) -> Owed {
        let mut readies = 0;
        // Messages of the client's that only a Sync of ours ends: it waits for their answers all the same.
        let (mut open, mut orphaned) = (false, false);
        for expect in &self.ring {
            match expect {
                // The error is that of the first message, and a server skips the rest up to the Sync.
                Expect::Query | Expect::QueryChange | Expect::QueryRefused | Expect::FunctionCall if open => {}
                Expect::Query
                | Expect::QueryChange
                | Expect::QueryRefused
                | Expect::FunctionCall
                | Expect::Sync
                | Expect::SyncGarbled => {
                    readies += 1;
                    open = false;
                }
                Expect::Parse
                | Expect::ParseKnown
                | Expect::Refused
                | Expect::Bind
                | Expect::Describe
                | Expect::DescribeTold
                | Expect::Execute
                | Expect::Close => open = true,
                Expect::SyncOurs => {
                    orphaned |= open;
                    open = false;
                }
                Expect::ParseOurs
                | Expect::CloseOurs
                | Expect::DescribeOurs
                | Expect::CopyEnd
                | Expect::SettingsOurs
                | Expect::StateOurs
                | Expect::PrepareOurs
                | Expect::StatementOurs
                | Expect::UnlistenOurs
                | Expect::BeginOurs
                | Expect::FailOurs
                | Expect::NumberOurs => {}
            }
        }
        let is_cut_off = open && !self.skipping;
        Owed { readies, unsynced: (self.unsynced && !self.skipping) || orphaned || is_cut_off, skipping: self.skipping }
    }

    /// The answer to one statement of the client's whose command tag is known, as far as it is still due: the statement was carried out, and
    /// has neither parameters nor rows. `None`: more is due, or it is not known how it would look. `tag`: the command tag.
    pub fn answer_of_one(&self, tag: &str) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        let (mut runs, mut is_ended) = (0, false);
        for expect in &self.ring {
            match expect {
                _ if expect.is_query_of_ours() => {}
                Expect::Parse | Expect::ParseKnown => write::bare(&mut out, back::PARSE_COMPLETE),
                Expect::Bind => write::bare(&mut out, back::BIND_COMPLETE),
                Expect::Describe => write::bare(&mut out, back::NO_DATA),
                Expect::Close => write::bare(&mut out, back::CLOSE_COMPLETE),
                Expect::Execute | Expect::Query if !is_ended => {
                    runs += 1;
                    write::command_complete(&mut out, tag);
                    is_ended = *expect == Expect::Query;
                }
                Expect::Sync if !is_ended => is_ended = true,
                Expect::DescribeTold => {
                    write::no_parameters(&mut out);
                    write::bare(&mut out, back::NO_DATA);
                }
                Expect::ParseOurs | Expect::CloseOurs | Expect::DescribeOurs => {}
                _ => return None,
            }
        }
        let is_whole = runs == 1 && is_ended && !self.unsynced && !self.skipping && !self.copying_in;
        is_whole.then_some(out)
    }

    /// Matches a server's message, `first` being the first byte of its body.
    pub fn on_server(&mut self, tag: u8, first: u8) -> Reply {
        while self.ring.front() == Some(&Expect::CopyEnd) {
            self.ring.pop_front();
        }
        let reply = self.match_front(tag, first);
        while self.ring.front() == Some(&Expect::CopyEnd) {
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
                (back::DATA_ROW, Some(Expect::Query | Expect::Execute)) | (back::ROW_DESCRIPTION, Some(Expect::Query)) => {}
                (back::COMMAND_COMPLETE, Some(Expect::Query)) if passes(length - 4) => {}
                (back::BIND_COMPLETE, Some(Expect::Bind)) | (back::ROW_DESCRIPTION | back::NO_DATA, Some(Expect::Describe)) => {
                    front = self.next();
                }
                (back::COMMAND_COMPLETE, Some(Expect::Execute)) if passes(length - 4) => {
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
    fn next(&mut self) -> Option<Expect> {
        self.ring.pop_front();
        while self.ring.front() == Some(&Expect::CopyEnd) {
            self.ring.pop_front();
        }
        self.ring.front().copied()
    }

    fn match_front(&mut self, tag: u8, first: u8) -> Reply {
        let front = self.ring.front().copied();
        match tag {
            back::DATA_ROW if front == Some(Expect::StateOurs) => Reply::Row,
            back::DATA_ROW if front == Some(Expect::NumberOurs) => Reply::Number,
            back::PARSE_COMPLETE | back::BIND_COMPLETE | back::CLOSE_COMPLETE if front == Some(Expect::NumberOurs) => Reply::Eat,
            back::NOTICE | back::NOTIFICATION | back::PARAMETER_STATUS => match front {
                Some(front) if front.is_query_of_ours() && tag != back::NOTIFICATION => Reply::Eat,
                _ => Reply::Pass,
            },
            back::READY => self.on_ready(front, first),
            back::ERROR => self.on_error(front),
            back::PARSE_COMPLETE => match front {
                Some(Expect::Parse) => self.pop(Reply::PassChange),
                Some(Expect::ParseOurs | Expect::Refused) => self.pop(Reply::Eat),
                _ => Reply::Unasked,
            },
            back::BIND_COMPLETE => self.pop_if(front, Expect::Bind),
            back::CLOSE_COMPLETE if front == Some(Expect::CloseOurs) => self.pop(Reply::Eat),
            back::CLOSE_COMPLETE if front == Some(Expect::Close) => self.pop(Reply::PassChange),
            back::CLOSE_COMPLETE => Reply::Unasked,
            back::PARAMETER_DESCRIPTION | back::NO_DATA | back::ROW_DESCRIPTION
                if matches!(front, Some(Expect::DescribeTold | Expect::DescribeOurs)) =>
            {
                if tag != back::PARAMETER_DESCRIPTION {
                    self.ring.pop_front();
                }
                Reply::Description { is_ours: front == Some(Expect::DescribeOurs) }
            }
            back::NO_DATA => self.pop_if(front, Expect::Describe),
            back::ROW_DESCRIPTION if front == Some(Expect::Describe) => self.pop(Reply::Pass),
            back::COMMAND_COMPLETE | back::PORTAL_SUSPENDED | back::EMPTY_QUERY if front == Some(Expect::Execute) => {
                self.copying_in = false;
                self.pop(Reply::Pass)
            }
            back::COPY_IN => self.on_copy_in(front),
            _ => self.pass_or_eat(front),
        }
    }

    fn pass_or_eat(&self, front: Option<Expect>) -> Reply {
        match front {
            None => Reply::Unasked,
            Some(front) if front.is_query_of_ours() => Reply::Eat,
            Some(_) => Reply::Pass,
        }
    }

    fn pop(&mut self, reply: Reply) -> Reply {
        self.ring.pop_front();
        reply
    }

    fn pop_if(&mut self, front: Option<Expect>, expected: Expect) -> Reply {
        if front == Some(expected) { self.pop(Reply::Pass) } else { Reply::Unasked }
    }

    fn on_ready(&mut self, front: Option<Expect>, status: u8) -> Reply {
        self.copying_in = false;
        let whose = match front {
            Some(Expect::Query | Expect::QueryRefused | Expect::FunctionCall | Expect::Sync | Expect::SyncGarbled) => {
                Whose::Client
            }
            Some(Expect::QueryChange) => Whose::ClientChange,
            Some(Expect::SyncOurs) => Whose::Sync,
            Some(Expect::SettingsOurs) => Whose::Settings,
            Some(Expect::StateOurs) => Whose::Inventory,
            Some(Expect::PrepareOurs) => Whose::Prepare,
            Some(Expect::StatementOurs) => Whose::Statement,
            Some(Expect::UnlistenOurs) => Whose::Unlisten,
            Some(Expect::BeginOurs | Expect::FailOurs) => Whose::Begin,
            Some(Expect::NumberOurs) => Whose::Number,
            _ => return Reply::Unasked,
        };
        self.pop(Reply::Ready { status, whose })
    }

    /// A server reading CopyData ignores Sync and Flush, so the Syncs sent before the client ended its CopyData get no answer.
    fn on_copy_in(&mut self, front: Option<Expect>) -> Reply {
        if !matches!(front, Some(Expect::Execute | Expect::Query | Expect::QueryChange)) {
            return Reply::Unasked;
        }
        self.copying_in = true;
        let is_extended = front == Some(Expect::Execute);
        while let Some(next) = self.ring.get(1) {
            match next {
                Expect::CopyEnd => {
                    self.ring.remove(1);
                    self.copying_in = false;
                    break;
                }
                Expect::Sync | Expect::SyncGarbled => {
                    self.ring.remove(1);
                }
                _ => return Reply::Misplaced { tag: self.first_misplaced() },
            }
        }
        // With the Syncs gone, the implicit transaction stays open beyond the copy.
        self.unsynced |= is_extended && !self.ring.iter().skip(1).any(|expect| expect.ends_a_turn());
        Reply::Pass
    }

    /// The kind of the client's first message behind a copy. A message of Weir's stands for the client's message that follows
    /// it.
    fn first_misplaced(&self) -> u8 {
        self.ring.iter().skip(1).find_map(|expect| expect.client_tag()).unwrap_or(front::QUERY)
    }

    fn on_error(&mut self, front: Option<Expect>) -> Reply {
        self.copying_in = false;
        match front {
            // An error nobody asked for is the server's last message; let the client have it.
            None => return Reply::Error(Dropped::default()),
            Some(Expect::SettingsOurs) => return Reply::SettingsRefused,
            Some(Expect::StateOurs | Expect::PrepareOurs | Expect::StatementOurs | Expect::UnlistenOurs) => {
                return Reply::OursRefused;
            }
            Some(Expect::BeginOurs) => return Reply::BeginRefused,
            Some(Expect::FailOurs) => return Reply::Eat,
            Some(Expect::NumberOurs) => return Reply::NumberRefused,
            Some(Expect::Query | Expect::QueryChange | Expect::FunctionCall | Expect::SyncGarbled) => {
                return Reply::Error(Dropped::default());
            }
            Some(Expect::QueryRefused) => return Reply::Error(Dropped { failed: Failed::Refused, ..Dropped::default() }),
            Some(_) => {}
        }
        let mut dropped = Dropped::default();
        loop {
            match self.ring.front() {
                Some(Expect::Sync | Expect::SyncGarbled) => break,
                Some(Expect::SyncOurs) => {
                    dropped.rest = Rest::Discarded;
                    break;
                }
                // The server skips even simple queries until a Sync.
                None => {
                    self.skipping = true;
                    dropped.rest = Rest::Skipped;
                    break;
                }
                Some(Expect::Parse | Expect::ParseKnown | Expect::Close | Expect::QueryChange) => dropped.changes += 1,
                Some(Expect::ParseOurs) => dropped.ours += 1,
                Some(Expect::DescribeTold | Expect::DescribeOurs) => dropped.described += 1,
                Some(Expect::Refused | Expect::QueryRefused) => dropped.refused += 1,
                Some(_) => {}
            }
            self.ring.pop_front();
        }
        dropped.failed = match front {
            Some(Expect::Refused) => Failed::Refused,
            Some(Expect::Parse) => Failed::Parse,
            Some(Expect::ParseOurs) if dropped.ours == 1 => Failed::Question,
            Some(Expect::DescribeOurs) if dropped.ours == 0 => Failed::Question,
            _ => Failed::Other,
        };
        Reply::Error(dropped)
    }
}

#[cfg(test)]
mod tests;
