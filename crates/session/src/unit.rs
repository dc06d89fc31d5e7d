//! A message of a client as the concerns of its session see it.
//!
//! A concern is one subject that follows all of a session's statements: the query cache, times, the log, the deferred BEGIN, sequences, session
//! state, the read retry. Each hears of every message that is sent and of every end, in one place (`concern`). A `match` on `StatementMessage` without a
//! wildcard makes the compiler name the concerns that a new kind of message is missing in.

use crate::context::Context;
use crate::session::Session;
use crate::statements::{PreparedStatement, Statement};
use weir_wire::frame::MessageHeader;

/// A message that is about to be sent over the session's server connection.
#[derive(Clone, Copy)]
pub enum StatementMessage<'a> {
    /// A simple query.
    Query(&'a Statement),
    /// A Parse whose text was looked at.
    Parse(&'a PreparedStatement),
    /// A Bind of a statement prepared by the protocol. `statement`: the facts known of it, perhaps none.
    Bind { prepared: &'a PreparedStatement, statement: &'a Statement },
    /// A Bind of a statement that only the server knows. `Statement`: the one of which nothing is known.
    BindUnknown(&'a Statement),
    /// The portal that was bound last runs.
    Execute,
    /// A function is called by its number. `Statement`: the one of which nothing is known.
    Call(&'a Statement),
    /// A query that is none, for the server to complain of.
    Garbled,
}

/// The server is ready for the next statement, with this transaction status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadyStatus {
    /// The client is about to hear so.
    ForClient(u8),
    /// A Sync of ours has ended what the client sent without one; the client hears of no ReadyForQuery.
    BySync(u8),
}

impl ReadyStatus {
    pub fn status(self) -> u8 {
        match self {
            ReadyStatus::ForClient(status) | ReadyStatus::BySync(status) => status,
        }
    }
}

/// See the module. No method has a default: a concern says of each that nothing is to be done.
pub trait SessionConcern {
    /// A message is about to be sent; it is still the first in the client's lane.
    fn sent(s: &mut Session, w: &Context, header: MessageHeader, unit: StatementMessage<'_>);

    fn ready(s: &mut Session, w: &Context, ended: ReadyStatus);

    /// The server connection is gone, and the session goes on or ends. Statements under way may have been carried out.
    fn lost(s: &mut Session, w: &Context);
}
