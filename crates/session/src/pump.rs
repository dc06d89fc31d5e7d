//! THE hot path: the loop that moves what a client says to a server and what the server says back.
//!
//! It looks at both sockets through [`ClientServerSockets`]. A full socket stops reading on the other side, so that a session never holds more than its two
//! lanes. In the steady state a statement costs two reads, two writes and no allocation (`crates/weir/tests/no_alloc.rs`).

use crate::context::Context;
use crate::fault::{ErrorReport, sqlstate};
use crate::flow::{ConnRequirement, MessageFlow};
use crate::from_client::{self, on_client};
use crate::session::Session;
use crate::stats::StatCounter;
use crate::teardown::{conn_lost, is_in_vain};
use crate::{from_server, rerun, session_state, timing};
use std::io;
use weir_io::lane::ReadOutcome;

/// Rounds of moving before other sessions get their turn.
const ROUNDS_MAX: u32 = 16;

/// The sockets of one session: its client's, and that of the server connection in use. Nothing in here waits.
pub trait ClientServerSockets {
    fn is_client_readable(&self) -> bool;

    /// True if the server has said something that nobody has read.
    fn is_server_readable(&self) -> bool;

    /// True if nobody is there any more to hear an answer.
    fn is_client_gone(&self) -> bool;

    /// True if the client's socket has sent all it was given.
    fn is_client_sent(&self) -> bool;

    /// Reads from the client into its lane.
    fn fill_up(&mut self, s: &mut Session) -> io::Result<ReadOutcome>;

    /// Sends what the client's lane holds for the server. True when all is sent. `None`: there is no server connection.
    fn drain_up(&mut self, s: &mut Session) -> Option<io::Result<bool>>;

    /// Reads from the server into its lane. `None`: there is no server connection.
    fn fill_down(&mut self, s: &mut Session) -> Option<io::Result<ReadOutcome>>;

    /// Sends what the server's lane holds for the client. True when all is sent.
    fn drain_down(&mut self, s: &mut Session) -> io::Result<bool>;
}

/// Why a session ends.
pub enum SessionEnd {
    /// The client left.
    Client,
    /// The client is told why.
    Fault(ErrorReport),
}

/// The next thing that a session's task does.
pub enum SessionStep {
    /// Nothing can be moved until something arrives.
    Park,
    /// There is more to move, but others come first.
    Yield,
    /// The next message needs a server connection that is not at hand.
    Need(ConnRequirement),
    /// The outcome of a COMMIT is asked for before anything else.
    Doubt,
    End(SessionEnd),
}

/// The result of moving the client's bytes.
enum ClientPumpResult {
    Moved,
    Nothing,
    Need(ConnRequirement),
    /// The client is gone or said goodbye.
    Left,
}

/// A session with its sockets, for one step.
pub struct SessionPump<'a, X> {
    pub s: &'a mut Session,
    pub w: &'a Context,
    pub sockets: &'a mut X,
}

impl<X: ClientServerSockets> SessionPump<'_, X> {
    /// Moves what can be moved in both directions.
    pub fn step_on(&mut self) -> SessionStep {
        for _ in 0..ROUNDS_MAX {
            if self.s.intake.doubt.is_some() {
                return SessionStep::Doubt;
            }
            if let Err(fault) = from_client::notify(self.s, self.w) {
                return SessionStep::End(SessionEnd::Fault(fault));
            }
            let had_server = self.s.has_server();
            let from_client = match self.pump_client() {
                Ok(ClientPumpResult::Moved) => true,
                Ok(ClientPumpResult::Nothing) => false,
                Ok(ClientPumpResult::Need(need)) => return SessionStep::Need(need),
                Ok(ClientPumpResult::Left) => return SessionStep::End(SessionEnd::Client),
                Err(fault) => return SessionStep::End(SessionEnd::Fault(fault)),
            };
            // A server connection that broke while something was sent over it may have left messages of the client's to be sent again. No
            // event tells of them.
            let is_lost = had_server && !self.s.has_server();
            match self.pump_server() {
                Ok(from_server) if (from_client || from_server || is_lost) && self.has_more(from_server || is_lost) => {}
                Ok(_) => match from_client::notify(self.s, self.w) {
                    Ok(true) => {}
                    Ok(false) => {
                        session_state::note_unfinished(self.s, self.w);
                        return SessionStep::Park;
                    }
                    Err(fault) => return SessionStep::End(SessionEnd::Fault(fault)),
                },
                Err(fault) => return SessionStep::End(SessionEnd::Fault(fault)),
            }
        }
        SessionStep::Yield
    }

    /// Says the reason why a session ends, as far as the client can be told.
    pub fn say_final_error(&mut self, fault: &ErrorReport) {
        // In the middle of a server's message there is nothing a client could read; it sees the connection close.
        if !self.s.down.is_mid_message() {
            self.s.say_error(self.w, fault);
        }
        let _ = self.sockets.drain_down(self.s);
    }

    /// True if another round can move something: bytes have arrived since, or what waited for replies may go on.
    fn has_more(&self, from_server: bool) -> bool {
        let s = &*self.s;
        if s.down.has_pending() {
            return false;
        }
        let has_left = s.intake.presence().has_left();
        let client_spoke = !has_left && self.sockets.is_client_readable();
        self.sockets.is_server_readable()
            || (!s.up.has_pending() && (client_spoke || has_left || (from_server && s.up.has_unseen())))
    }

    /// Moves all the client has sent as far as it can go.
    fn pump_client(&mut self) -> Result<ClientPumpResult, ErrorReport> {
        if !self.sockets.is_client_readable() && self.s.is_quiet() {
            self.settle()?;
            return Ok(ClientPumpResult::Nothing);
        }
        // A client that does not read is not listened to either, as PostgreSQL does: nothing we say can pile up.
        if !self.drain_down()? {
            return Ok(ClientPumpResult::Nothing);
        }
        if !self.drain_up()? {
            return Ok(ClientPumpResult::Nothing);
        }
        let mut progressed = self.fill_up()?;
        if !self.s.intake.presence().has_left() && !progressed && !self.s.up.has_unseen() {
            self.settle()?;
            return Ok(ClientPumpResult::Nothing);
        }
        let (mut need, mut held) = (None, false);
        loop {
            // Only answers of our own wait here: one at a time, so that asking without reading piles nothing up.
            if !self.drain_down()? {
                held = true;
                break;
            }
            if self.s.up.is_mid_message() {
                session_state::pass_on(self.s);
            }
            let header = self.s.up.peek(&self.w.buffers);
            let header = header.map_err(|e| ErrorReport::fatal(sqlstate::PROTOCOL_VIOLATION, e.to_string()))?;
            let Some(header) = header else { break };
            match on_client(self.s, self.w, header)? {
                MessageFlow::Next => progressed = true,
                MessageFlow::More => {
                    // Only now is it known how much room the message needs: what came while there was none lies at the socket, and no other event
                    // tells of it.
                    progressed |= !self.s.intake.presence().has_left() && self.sockets.is_client_readable();
                    break;
                }
                MessageFlow::Hold => {
                    if self.s.has_barrier() {
                        // The session waits for an exchange of ours, but the client waits, too.
                        timing::asked(self.s, self.w);
                    }
                    held = true;
                    break;
                }
                MessageFlow::Need(wanted) => {
                    need = Some(wanted);
                    break;
                }
            }
        }
        self.s.up.rest_if_empty(&self.w.buffers);
        let is_sent = self.drain_up()?;
        self.drain_down()?;
        if need.is_none() && self.s.intake.presence().has_left() && self.is_done(is_sent, held) {
            return Ok(ClientPumpResult::Left);
        }
        self.settle()?;
        Ok(match need {
            Some(need) => ClientPumpResult::Need(need),
            None if progressed => ClientPumpResult::Moved,
            None => ClientPumpResult::Nothing,
        })
    }

    /// True if nothing is left to be done for a client that has left.
    ///
    /// Its messages are carried out and answered, since it may only have ended its own sending; a message that it never finished is not.
    #[cold]
    fn is_done(&mut self, is_sent: bool, held: bool) -> bool {
        let SessionPump { s, w, sockets } = self;
        let unfinished = usize::from(s.up.is_mid_message() && !s.intake.in_copy_message);
        let waits = (held && !s.replies().is_copying_in()) || s.replies().will_answer(unfinished) || session_state::is_holding(s);
        // A held message must reach the server, whoever hears of it.
        let may_end = s.replies().is_only_ours() || (is_sent && !held);
        let waits = waits && !(may_end && is_in_vain(s, w, || sockets.is_client_gone()));
        is_sent && !waits && !s.down.has_pending() && sockets.is_client_sent()
    }

    /// Moves all the server has sent as far as it can go. True if anything moved.
    fn pump_server(&mut self) -> Result<bool, ErrorReport> {
        if !self.drain_down()? {
            return Ok(false);
        }
        if !self.read_more()? {
            return Ok(false);
        }
        if !self.s.has_server() {
            self.drain_down()?;
            return Ok(true);
        }
        from_server::take(self.s, self.w)?;
        self.s.down.rest_if_empty(&self.w.buffers);
        self.drain_down()?;
        self.settle()?;
        Ok(true)
    }

    /// Looks at a server connection that may be at rest now, and sends what it is asked then: nothing else would, if the client says no more.
    #[inline(always)]
    fn settle(&mut self) -> Result<(), ErrorReport> {
        session_state::settle(self.s, self.w);
        self.drain_up().map(drop)
    }

    /// Reads from the client. True when something came.
    fn fill_up(&mut self) -> Result<bool, ErrorReport> {
        if self.s.intake.presence().has_left() {
            return Ok(false);
        }
        Ok(match self.sockets.fill_up(self.s) {
            Ok(ReadOutcome::Bytes(bytes)) => {
                if let Some(fault) = timing::held_too_long(&self.s.handle, self.w.now_us()) {
                    return Err(fault);
                }
                self.s.account.stats.add(StatCounter::Received, bytes as u64);
                self.s.handle.active_at.set(self.w.now_us());
                true
            }
            Ok(ReadOutcome::Nothing) => false,
            Ok(ReadOutcome::End) | Err(_) => {
                self.s.intake.leave();
                false
            }
        })
    }

    /// Sends what waits for the server. True when all is sent.
    #[inline(always)]
    fn drain_up(&mut self) -> Result<bool, ErrorReport> {
        if self.s.up.has_pending() { self.send_up() } else { Ok(true) }
    }

    #[inline(never)]
    fn send_up(&mut self) -> Result<bool, ErrorReport> {
        match self.sockets.drain_up(self.s) {
            Some(Ok(all)) => Ok(all),
            // The words of the server before it went are read first; the end of file follows.
            Some(Err(_)) => {
                self.s.up.forget_pending(&self.w.buffers);
                self.pump_server()?;
                if self.s.has_server() {
                    conn_lost(self.s, self.w, "the connection broke")?;
                }
                Ok(true)
            }
            None => Err(ErrorReport::fatal(sqlstate::CONNECTION_FAILURE, "no server connection for what was to be sent")),
        }
    }

    /// Sends what waits for the client. True when all is sent.
    #[inline(always)]
    fn drain_down(&mut self) -> Result<bool, ErrorReport> {
        rerun::tap(self.s, self.w);
        if self.s.down.has_pending() { self.send_down() } else { Ok(true) }
    }

    #[inline(never)]
    fn send_down(&mut self) -> Result<bool, ErrorReport> {
        let sent = self.sockets.drain_down(self.s);
        rerun::drained(self.s);
        sent.map_err(|cause| ErrorReport::fatal(sqlstate::CONNECTION_FAILURE, format!("could not send to the client: {cause}")))
    }

    /// Reads from the server. False: nothing came. A server connection that is lost is gone then.
    #[inline(always)]
    fn read_more(&mut self) -> Result<bool, ErrorReport> {
        match self.sockets.fill_down(self.s) {
            None | Some(Ok(ReadOutcome::Nothing)) => Ok(false),
            Some(Ok(ReadOutcome::Bytes(bytes))) => {
                from_server::heard(self.s, self.w, bytes);
                Ok(true)
            }
            Some(Ok(ReadOutcome::End)) => conn_lost(self.s, self.w, "the server closed the connection").map(|()| true),
            Some(Err(cause)) => conn_lost(self.s, self.w, &cause.to_string()).map(|()| true),
        }
    }
}
