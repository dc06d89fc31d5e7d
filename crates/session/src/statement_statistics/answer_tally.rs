//! Statements under way on a server connection, and what of their answers has come.

use crate::statement_statistics::row_ticket::RowTicket;
use crate::task::Us;
use std::collections::VecDeque;

/// Mostly one statement is under way; `behind` is for pipelines, and bounded as the replies due are.
#[derive(Debug)]
pub struct AnswerTally {
    /// Whose answer comes now.
    first: RowTicket,
    rows: u64,
    bytes: u64,
    behind: VecDeque<RowTicket>,
    /// End of the answer before that of a late statement.
    since: Us,
    ended_by: TurnEnd,
}

/// The message that the last ReadyForQuery answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TurnEnd {
    /// Executions before it have ended already, but the last of a turn.
    #[default]
    Sync,
    /// A Query or function call, which ends with it.
    Query,
}

/// A statement whose answer is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompleteAnswer {
    pub ticket: RowTicket,
    pub rows: u64,
    pub bytes: u64,
    pub us: u64,
}

impl Default for AnswerTally {
    fn default() -> AnswerTally {
        AnswerTally { first: RowTicket::NONE, rows: 0, bytes: 0, behind: VecDeque::new(), since: 0, ended_by: TurnEnd::default() }
    }
}

impl AnswerTally {
    #[inline]
    pub fn is_idle(&self) -> bool {
        self.first == RowTicket::NONE
    }

    /// True while more than one statement is under way.
    #[inline]
    pub fn is_queue(&self) -> bool {
        !self.behind.is_empty()
    }

    #[inline]
    pub fn begin(&mut self, ticket: RowTicket) {
        if self.is_idle() {
            self.first = ticket;
        } else {
            self.queue(ticket);
        }
    }

    #[cold]
    fn queue(&mut self, ticket: RowTicket) {
        self.behind.push_back(ticket);
    }

    #[inline]
    pub fn note_rows(&mut self, rows: u64) {
        self.rows += rows;
    }

    #[inline]
    pub fn note_bytes(&mut self, bytes: usize) {
        self.bytes += bytes as u64;
    }

    #[inline]
    pub fn note_turn_end(&mut self, by: TurnEnd) {
        self.ended_by = by;
    }

    #[inline]
    pub fn ended_by(&self) -> TurnEnd {
        self.ended_by
    }

    pub fn first(&self) -> RowTicket {
        self.first.on_time()
    }

    /// As `first`, with its mark of a late one.
    #[inline]
    pub fn waiting(&self) -> RowTicket {
        self.first
    }

    /// Ends the only statement under way, which took `us`; its ticket may be none, or late: see `on_time`.
    #[inline]
    pub fn end_all(&mut self, us: u64) -> CompleteAnswer {
        let ended = CompleteAnswer { ticket: self.first, rows: self.rows, bytes: self.bytes, us };
        (self.first, self.rows, self.bytes) = (RowTicket::NONE, 0, 0);
        ended
    }

    /// Returns a late statement with its own part of the turn's time. `None`: no late one.
    #[cold]
    pub fn on_time(&self, ended: CompleteAnswer, now: Us) -> Option<CompleteAnswer> {
        let us = ended.us.min(now.saturating_sub(self.since));
        ended.ticket.is_late().then(|| CompleteAnswer { ticket: ended.ticket.on_time(), us, ..ended })
    }

    /// Ends the first statement while others are under way. `busy_since`: begin of the present turn.
    pub fn end_first(&mut self, busy_since: Us, now: Us) -> Option<CompleteAnswer> {
        if self.is_idle() {
            return None;
        }
        let since = if self.first.is_late() { self.since.max(busy_since) } else { busy_since };
        let ticket = self.first.on_time();
        let ended = CompleteAnswer { ticket, rows: self.rows, bytes: self.bytes, us: now.saturating_sub(since) };
        self.first = self.behind.pop_front().map_or(RowTicket::NONE, RowTicket::late);
        (self.rows, self.bytes, self.since) = (0, 0, now);
        Some(ended)
    }

    /// Forgets statements behind the first, which an error keeps from running.
    pub fn drop_behind(&mut self, count: usize) {
        self.behind.drain(..count.min(self.behind.len()));
    }

    /// Forgets statements that run again.
    pub fn forget(&mut self) {
        self.behind.clear();
        (self.first, self.rows, self.bytes) = (RowTicket::NONE, 0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FOUR: [RowTicket; 4] = [RowTicket::NO_ROW; 4];

    #[test]
    fn the_rows_and_bytes_of_an_answer_are_those_since_the_answer_before() {
        let mut tally = AnswerTally::default();
        assert_eq!(tally.end_all(5).ticket, RowTicket::NONE);
        FOUR.into_iter().for_each(|ticket| tally.begin(ticket));
        tally.note_rows(3);
        tally.note_bytes(100);
        let ticket = RowTicket::NO_ROW;
        assert_eq!(tally.end_first(10, 30), Some(CompleteAnswer { ticket, rows: 3, bytes: 100, us: 20 }));
        tally.note_bytes(7);
        assert_eq!(tally.end_first(10, 35), Some(CompleteAnswer { ticket, rows: 0, bytes: 7, us: 5 }));
        tally.drop_behind(1);
        assert!(!tally.is_queue() && !tally.is_idle());
        let last = tally.end_all(40);
        assert_eq!(tally.on_time(last, 50), Some(CompleteAnswer { ticket, rows: 0, bytes: 0, us: 15 }));
        assert!(tally.is_idle());
        tally.begin(ticket);
        let next = tally.end_all(40);
        assert_eq!(
            (next, tally.on_time(next, 90)),
            (CompleteAnswer { ticket, rows: 0, bytes: 0, us: 40 }, None),
            "the next turn"
        );
    }
}
