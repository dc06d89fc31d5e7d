//! A client's view of the protocol: every reply belongs to the first message that is not answered.
//!
//! It knows nothing of how a session keeps its books. Source: PostgreSQL manual, "Message Flow".

use std::collections::VecDeque;
use weir_wire::frame::{HEADER_BYTES, back, read_header, split_cstr};

/// A message of the client whose reply has not come. Numbers are said back by the server in command tags; 0: any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    Query(u32),
    Call,
    Parse,
    Bind,
    Describe,
    Execute(u32),
    Close,
    Sync,
    CopyData,
    CopyEnd,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Oracle {
    sent: VecDeque<Sent>,
    /// All up to a Sync is dropped that was not sent yet.
    skips: bool,
    copies: bool,
    /// Messages of the extended protocol were sent since the last Sync or Query.
    is_unsynced: bool,
    /// Bytes of a message that is not whole.
    rest: Vec<u8>,
    /// The server connection or the session goes with it.
    pub has_ended: bool,
    pub readies: u64,
    pub status: u8,
}

impl Oracle {
    pub fn send(&mut self, sent: Sent) {
        if self.skips && sent != Sent::Sync {
            return;
        }
        if sent == Sent::Sync {
            self.skips = false;
        }
        match sent {
            Sent::Sync | Sent::Query(_) | Sent::Call => self.is_unsynced = false,
            Sent::CopyData | Sent::CopyEnd => {}
            Sent::Parse | Sent::Bind | Sent::Describe | Sent::Execute(_) | Sent::Close => self.is_unsynced = true,
        }
        self.sent.push_back(sent);
    }

    /// Nothing is owed that would come by itself.
    pub fn is_answered(&self) -> bool {
        !self.sent.iter().any(|sent| matches!(sent, Sent::Query(_) | Sent::Call | Sent::Sync)) || self.copies
    }

    pub fn is_copying(&self) -> bool {
        self.copies
    }

    pub fn owed(&self) -> Vec<Sent> {
        self.sent.iter().copied().collect()
    }

    /// Bytes for the client. Panics at those that a server would not say.
    pub fn hear(&mut self, bytes: &[u8]) {
        self.rest.extend_from_slice(bytes);
        loop {
            let header = read_header(&self.rest).unwrap_or_else(|error| panic!("a client hears no message: {error}"));
            let Some(header) = header.filter(|header| header.frame_bytes() <= self.rest.len()) else { return };
            let frame: Vec<u8> = self.rest.drain(..header.frame_bytes()).collect();
            self.hear_message(header.tag, &frame[HEADER_BYTES..]);
        }
    }

    fn hear_message(&mut self, tag: u8, body: &[u8]) {
        if matches!(tag, back::NOTICE | back::NOTIFICATION | back::PARAMETER_STATUS) {
            return;
        }
        assert!(!self.has_ended, "a client hears {} after the end", char::from(tag));
        while !self.copies && matches!(self.sent.front(), Some(Sent::CopyData | Sent::CopyEnd)) {
            self.sent.pop_front();
        }
        let first = self.sent.front().copied();
        match (tag, first) {
            (back::PARSE_COMPLETE, Some(Sent::Parse))
            | (back::BIND_COMPLETE, Some(Sent::Bind))
            | (back::CLOSE_COMPLETE, Some(Sent::Close))
            | (back::NO_DATA | back::ROW_DESCRIPTION, Some(Sent::Describe))
            | (back::PORTAL_SUSPENDED, Some(Sent::Execute(_))) => drop(self.sent.pop_front()),
            (back::PARAMETER_DESCRIPTION, Some(Sent::Describe)) => {}
            (back::ROW_DESCRIPTION, Some(Sent::Query(_))) => {}
            (back::DATA_ROW | back::COPY_OUT | back::COPY_DATA | back::COPY_DONE, Some(Sent::Query(_) | Sent::Execute(_))) => {}
            (back::FUNCTION_RESULT, Some(Sent::Call)) => {}
            (back::COPY_IN, Some(Sent::Query(_) | Sent::Execute(_))) => self.copies = true,
            (back::COMMAND_COMPLETE | back::EMPTY_QUERY, Some(Sent::Query(number))) => {
                self.check_number(tag, body, number);
                self.end_copy(1);
            }
            (back::COMMAND_COMPLETE | back::EMPTY_QUERY, Some(Sent::Execute(number))) => {
                self.check_number(tag, body, number);
                self.end_copy(1);
                self.sent.pop_front();
            }
            (back::READY, Some(Sent::Query(_) | Sent::Call | Sent::Sync)) => {
                self.sent.pop_front();
                self.readies += 1;
                self.status = body.first().copied().unwrap_or(0);
                assert!(matches!(body, b"I" | b"T" | b"E"), "a status that is none: {body:?}");
            }
            (back::ERROR, first) => self.hear_error(body, first),
            (tag, first) => panic!("a client hears '{}' and waits for {first:?} of {:?}", char::from(tag), self.sent),
        }
    }

    /// Uses up the messages that were sent for a copy.
    fn end_copy(&mut self, at: usize) {
        if !std::mem::take(&mut self.copies) {
            return;
        }
        while let Some(sent) = self.sent.get(at).copied() {
            match sent {
                Sent::CopyData => drop(self.sent.remove(at)),
                Sent::CopyEnd => {
                    self.sent.remove(at);
                    return;
                }
                _ => return,
            }
        }
    }

    fn check_number(&self, tag: u8, body: &[u8], number: u32) {
        let text = split_cstr(body).map_or(&b""[..], |(text, _)| text);
        let said: u32 = String::from_utf8_lossy(text).rsplit(' ').next().and_then(|word| word.parse().ok()).unwrap_or(0);
        if tag == back::COMMAND_COMPLETE && said > 0 && number > 0 {
            assert_eq!(said, number, "the answer is another message's");
        }
    }

    fn hear_error(&mut self, body: &[u8], first: Option<Sent>) {
        let severity = weir_wire::back::read_report(body).severity;
        if matches!(severity, b"FATAL" | b"PANIC") {
            self.has_ended = true;
            return;
        }
        self.copies = false;
        match first {
            Some(Sent::Query(_) | Sent::Call | Sent::Sync) => {}
            Some(_) => {
                while self.sent.front().is_some_and(|sent| *sent != Sent::Sync) {
                    self.sent.pop_front();
                }
                self.skips = self.sent.is_empty();
            }
            // The connection is gone on which its answered messages were.
            None if self.is_unsynced && !self.skips => self.skips = true,
            None => panic!("a client hears an error and has asked nothing: {}", body.escape_ascii()),
        }
    }
}
