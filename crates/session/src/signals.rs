//! `pg_terminate_backend` and `pg_cancel_backend` with the process id of a session as told to its client.
//!
//! A session may signal sessions of its own user, as on a server. Weir does so when the statement is about to be sent; the server
//! runs a stand-in with the same answer.

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

pub struct SignalledSession {
    signal: BackendSignal,
    status: Arc<SessionStatus>,
    called: Rc<Statement>,
}

impl SignalledSession {
    /// Has the session's worker carry out the signal. Returns the statement that asked.
    pub fn send(&self, w: &Context) -> &Rc<Statement> {
        let signal = match self.signal {
            BackendSignal::Terminate => host::SessionSignal::Terminate,
            BackendSignal::Cancel => host::SessionSignal::Cancel,
        };
        w.program.signal(self.status.worker, self.status.pid, signal);
        &self.called
    }
}

/// Returns the session that a Query is to hit, and the stand-in's text.
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

/// Returns the session that a Bind is to hit, and the statement to bind: the client's or a stand-in.
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
    let text = prepared.text();
    let call = SignalCall::of(std::str::from_utf8(text).ok()?)?;
    let body = s.up.unseen().get(HEADER_BYTES..header.frame_bytes())?;
    let hit = hit(s, w, &call, &prepared.statement, Some(body))?;
    let tail = call.stand_in_of(&prepared.tail)?;
    let stand_in = w.statements.borrow_mut().of_parse_for_all(&tail)?;
    Some((hit, stand_in))
}

/// Returns the called session, if this one may signal it.
fn hit(s: &Session, w: &Context, call: &SignalCall, called: &Rc<Statement>, bind: Option<&[u8]>) -> Option<SignalledSession> {
    if s.transaction() == FAILED || s.state.settings.has_role() || s.is_misread(called) {
        return None;
    }
    let status = w.shared.session_statuses.get(call.pid(bind)?)?;
    // To a server, differently named clients are one user. A console's administrator is no user of a server.
    let is_same = status.server_user == s.account.user && *status.database != *w.peek_config().admin.database;
    is_same.then(|| SignalledSession { signal: call.signal, status, called: called.clone() })
}
