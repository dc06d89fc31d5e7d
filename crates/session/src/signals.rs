//! `pg_terminate_backend` and `pg_cancel_backend` with the process id of a session, as its client was told it.
//!
//! A session may end and cancel those of its own user, as on a server. It does so where its statement is about to be sent; the server runs
//! in its place one that answers alike. All other process ids are the server's affair.

pub mod process_ids;

use crate::context::Context;
use crate::host;
use crate::session::{FAILED, Session};
use crate::signals::process_ids::{BackendSignal, SignalCall};
use crate::statements::{PreparedStatement, Statement, StatementTrait};
use crate::status::SessionStatus;
use std::rc::Rc;
use std::sync::Arc;
use weir_wire::frame::{HEADER_BYTES, MessageHeader, split_cstr};

/// A session that a statement is to hit.
pub struct SignalledSession {
    signal: BackendSignal,
    status: Arc<SessionStatus>,
    /// The statement that asks for it.
    called: Rc<Statement>,
}

impl SignalledSession {
    /// Has it done by the worker that serves the session. Says the statement that asked for it.
    pub fn send(&self, w: &Context) -> &Rc<Statement> {
        let signal = match self.signal {
            BackendSignal::Terminate => host::SessionSignal::Terminate,
            BackendSignal::Cancel => host::SessionSignal::Cancel,
        };
        w.program.signal(self.status.worker, self.status.pid, signal);
        &self.called
    }
}

/// The session that a Query is to hit, and the text that is sent in its place.
#[inline]
pub fn of_query(
    s: &mut Session,
    w: &Context,
    statement: &Rc<Statement>,
    header: MessageHeader,
) -> Option<(SignalledSession, String)> {
    if statement.has(StatementTrait::Signals) { find_in_query(s, w, statement, header) } else { None }
}

#[cold]
fn find_in_query(
    s: &mut Session,
    w: &Context,
    statement: &Rc<Statement>,
    header: MessageHeader,
) -> Option<(SignalledSession, String)> {
    let (text, _) = split_cstr(s.up.whole(header)?)?;
    let call = SignalCall::of(std::str::from_utf8(text).ok()?)?;
    let hit = hit(s, w, &call, statement, None)?;
    Some((hit, call.stand_in()))
}

/// The session that a Bind is to hit, and the statement that is bound: the client's, or one in its place.
#[inline]
pub fn of_bind(
    s: &Session,
    w: &Context,
    prepared: Rc<PreparedStatement>,
    header: MessageHeader,
) -> (Option<SignalledSession>, Rc<PreparedStatement>) {
    if !prepared.statement.has(StatementTrait::Signals) {
        return (None, prepared);
    }
    match find_in_bind(s, w, &prepared, header) {
        Some((hit, stand_in)) => (Some(hit), stand_in),
        None => (None, prepared),
    }
}

#[cold]
fn find_in_bind(
    s: &Session,
    w: &Context,
    prepared: &PreparedStatement,
    header: MessageHeader,
) -> Option<(SignalledSession, Rc<PreparedStatement>)> {
    let (text, _) = split_cstr(&prepared.tail)?;
    let call = SignalCall::of(std::str::from_utf8(text).ok()?)?;
    let body = s.up.unseen().get(HEADER_BYTES..header.frame_bytes())?;
    let hit = hit(s, w, &call, &prepared.statement, Some(body))?;
    let tail = call.stand_in_of(&prepared.tail)?;
    let stand_in = w.statements.borrow_mut().of_parse_for_all(&tail)?;
    Some((hit, stand_in))
}

/// The session that a call is for, if there is one that this one may end.
fn hit(s: &Session, w: &Context, call: &SignalCall, called: &Rc<Statement>, bind: Option<&[u8]>) -> Option<SignalledSession> {
    if s.transaction() == FAILED || s.state.settings.has_role() || s.is_misread(called) {
        return None;
    }
    let status = w.shared.session_statuses.get(call.pid(bind)?)?;
    // To a server they are one user, whatever their clients are called. An administrator at the console is no user of a server.
    let is_same = status.server_user == s.account.user && *status.database != *w.peek_config().admin.database;
    is_same.then(|| SignalledSession { signal: call.signal, status, called: called.clone() })
}
