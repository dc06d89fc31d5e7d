//! A client's message as seen by the concerns of its session.
//!
//! A concern follows all statements of a session: query cache, times, log, deferred BEGIN, sequences, session state, read retry.
//! `concern` calls each. Matches on `StatementMessage` have no wildcard, so that a new kind must be handled everywhere.

use crate::context::Context;
use crate::session::Session;
use crate::statements::{PreparedStatement, Statement};
use weir_wire::frame::MessageHeader;

#[derive(Clone, Copy)]
pub enum StatementMessage<'a> {
    Query(&'a Statement),
    Parse(&'a PreparedStatement),
    /// `statement`: the known facts, perhaps empty.
    Bind {
        prepared: &'a PreparedStatement,
        statement: &'a Statement,
    },
    /// A Bind of a statement that only the server knows; `Statement` has no facts.
    BindUnknown(&'a Statement),
    Execute,
    /// A function call by number; `Statement` has no facts.
    Call(&'a Statement),
    /// A malformed Query, for the server to reject.
    Garbled,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadyStatus {
    /// The client is about to get this status.
    ForClient(u8),
    /// Weir added a missing Sync; the client gets no ReadyForQuery.
    BySync(u8),
}

impl ReadyStatus {
    pub fn status(self) -> u8 {
        match self {
            ReadyStatus::ForClient(status) | ReadyStatus::BySync(status) => status,
        }
    }
}

/// No method has a default, so that each concern decides on every event.
pub trait SessionConcern {
    /// The message is still the first in the client's lane.
    fn sent(s: &mut Session, w: &Context, header: MessageHeader, unit: StatementMessage<'_>);

    fn ready(s: &mut Session, w: &Context, ended: ReadyStatus);

    /// The server connection is gone. Statements under way may have been carried out.
    fn lost(s: &mut Session, w: &Context);
}
