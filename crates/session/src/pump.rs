//! THE hot path: moves messages between a client and a server.
//!
//! A full socket stops reading on the other side: a session holds at most its two lanes. In the steady state a statement costs two reads,
//! two writes and no allocation (`crates/weir/tests/no_alloc.rs`).

use crate::context::Context;
use crate::fault::{ErrorReport, sqlstate};
use crate::flow::{ConnRequirement, MessageFlow};
use crate::from_client::{self, on_client};
use crate::session::Session;
use crate::sharding::{engine_snapshots, gathered_read};
use crate::stats::StatCounter;
use crate::teardown::{conn_lost, is_in_vain};
use crate::{from_server, participants, rerun, session_state, timing};
use std::io;
use weir_io::lane::ReadOutcome;

const ROUNDS_MAX: u32 = 16;

/// No call waits.
pub trait ClientServerSockets {
    fn is_client_readable(&self) -> bool;

    fn is_server_readable(&self) -> bool;

    fn is_client_gone(&self) -> bool;

    fn is_client_sent(&self) -> bool;

    fn fill_up(&mut self, s: &mut Session) -> io::Result<ReadOutcome>;

    /// True when all is sent. `None`: no server connection.
    fn drain_up(&mut self, s: &mut Session) -> Option<io::Result<bool>>;

    /// `None`: no server connection.
    fn fill_down(&mut self, s: &mut Session) -> Option<io::Result<ReadOutcome>>;

    /// True when all is sent.
    fn drain_down(&mut self, s: &mut Session) -> io::Result<bool>;
}

pub enum SessionEnd {
    Client,
    Fault(ErrorReport),
}

pub enum SessionStep {
    Park,
    /// More can be moved, after the other sessions.
    Yield,
    /// The next message needs a server connection that is not at hand.
    Need(ConnRequirement),
    /// The outcome of a COMMIT must be known first.
    Doubt,
    /// A commit on several shards goes on.
    Participants,
    /// The snapshots of all shards are taken.
    Snapshots,
    End(SessionEnd),
}

enum ClientPumpResult {
    Moved,
    Nothing,
    Need(ConnRequirement),
    Left,
}

pub struct SessionPump<'a, X> {
    pub s: &'a mut Session,
    pub w: &'a Context,
    pub sockets: &'a mut X,
}

impl<X: ClientServerSockets> SessionPump<'_, X> {
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
            // A server connection that broke while sending may leave messages to be sent again, without an event.
            let is_lost = had_server && !self.s.has_server();
            match self.pump_server() {
                Ok(from_server) if (from_client || from_server || is_lost) && self.has_more(from_server || is_lost) => {}
                Ok(_) => match from_client::notify(self.s, self.w) {
                    Ok(true) => {}
                    Ok(false) if participants::waits(self.s) => return SessionStep::Participants,
                    Ok(false) if engine_snapshots::are_due(self.s) => return SessionStep::Snapshots,
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

    /// Goes on with answers that waited for other participants.
    pub fn take_held(&mut self) -> Result<(), ErrorReport> {
        from_server::take(self.s, self.w)?;
        self.s.down.rest_if_empty(&self.w.buffers);
        self.drain_down()?;
        self.settle()
    }

    pub fn say_final_error(&mut self, fault: &ErrorReport) {
        // In the middle of a server's message an error would be unreadable.
        if !self.s.down.is_mid_message() {
            self.s.say_error(self.w, fault);
        }
        let _ = self.sockets.drain_down(self.s);
    }

    /// True if another round can move something: new bytes, or messages that waited for replies.
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

    fn pump_client(&mut self) -> Result<ClientPumpResult, ErrorReport> {
        if !self.sockets.is_client_readable() && self.s.is_quiet() {
            self.settle()?;
            return Ok(ClientPumpResult::Nothing);
        }
        // A client that does not read is not read from, as in PostgreSQL.
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
            // One own answer at a time: a client that does not read piles up nothing.
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
                    // The message's size is known only now; bytes that did not fit raise no event.
                    progressed |= !self.s.intake.presence().has_left() && self.sockets.is_client_readable();
                    break;
                }
                MessageFlow::Hold => {
                    if self.s.has_barrier() {
                        // The session waits for Weir's exchange, and so does the client.
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

    /// True if a client that has left needs nothing more. Its complete messages are run and answered: it may have ended only its own
    /// sending.
    #[cold]
    fn is_done(&mut self, is_sent: bool, held: bool) -> bool {
        let SessionPump { s, w, sockets } = self;
        let unfinished = usize::from(s.up.is_mid_message() && !s.intake.in_copy_message);
        let waits = (held && !s.replies().is_copying_in()) || s.replies().will_answer(unfinished) || session_state::is_holding(s);
        // A held message must reach the server even without a listener.
        let may_end = s.replies().is_only_ours() || (is_sent && !held);
        // Messages for several shards are not yet with the servers that are to commit them.
        let is_gone = !s.sharding.has_batch() && sockets.is_client_gone();
        let waits = waits && !(may_end && is_in_vain(s, w, || is_gone));
        is_sent && !waits && !s.down.has_pending() && sockets.is_client_sent()
    }

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

    /// No other event may come for a server connection now at rest.
    #[inline(always)]
    fn settle(&mut self) -> Result<(), ErrorReport> {
        session_state::settle(self.s, self.w);
        gathered_read::leave_if_over(self.s, self.w);
        self.drain_up().map(drop)
    }

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

    #[inline(always)]
    fn drain_up(&mut self) -> Result<bool, ErrorReport> {
        if self.s.up.has_pending() { self.send_up() } else { Ok(true) }
    }

    #[inline(never)]
    fn send_up(&mut self) -> Result<bool, ErrorReport> {
        match self.sockets.drain_up(self.s) {
            Some(Ok(all)) => Ok(all),
            // The server's last messages come first, then the end of file.
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

    /// False: nothing came. A lost server connection is removed.
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
