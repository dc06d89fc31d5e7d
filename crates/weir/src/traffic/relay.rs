//! THE hot path: moves what a client says to a server and what the server says back. The session decides (`weir_session`).
//!
//! One task per session looks at both sockets; a full socket stops reading on the other side, so that a session never holds more
//! than its two lanes. In the steady state a statement costs two reads, two writes and no allocation (`tests/no_alloc.rs`).

use crate::traffic::checkout;
use crate::traffic::outcome;
use crate::traffic::served::Served;
use crate::traffic::teardown;
use weir_io::reactor::parked;
use weir_session::fault::{Fault, Severity, sqlstate};
use weir_session::flow::{Flow, Need};
use weir_session::from_client::{self, on_client};
use weir_session::host::{Level, Who};
use weir_session::teardown::{is_in_vain, let_go};
use weir_session::{owed, session_state, timing};

/// Why a session ends.
pub enum End {
    /// The client left.
    Client,
    /// The client is told why.
    Fault(Fault),
}

/// Rounds of moving before other sessions get their turn.
const ROUNDS_MAX: u32 = 16;

/// Serves one client until it leaves. Runs as the session's own task. Not cancel safe: it owns the server connection.
pub async fn serve(mut served: Served) {
    let task = served.w.reactor.current_task();
    served.client.set_task(task);
    served.s.handle.task.set(task);
    let end = loop {
        // Also before the first step: a login may have waited.
        if served.s.handle.final_error.borrow().is_some()
            && let Some(final_error) = served.s.handle.final_error.take()
        {
            break End::Fault(final_error);
        }
        match served.step_on() {
            Step::Park => parked().await,
            Step::Yield => {
                served.w.reactor.wake(task);
                parked().await;
            }
            // Boxed: the room a wait takes is not held by sessions that do not wait.
            Step::Need(need) => match Box::pin(checkout::wait(&mut served, need)).await {
                Ok(()) => continue,
                // The wait was cancelled: only the statement that waited fails.
                Err(fault) if fault.severity == Severity::Error => match owed::fail_next(&mut served.s, &served.w, &fault) {
                    Ok(()) => continue,
                    Err(fault) => break End::Fault(fault),
                },
                Err(fault) => break End::Fault(fault),
            },
            // Boxed for the same reason.
            Step::Doubt => Box::pin(outcome::find(&mut served)).await,
            Step::End(end) => break end,
        }
    };
    if let End::Fault(fault) = &end {
        served.say_final_error(fault);
    }
    let_go(&mut served.s, &served.w);
    if matches!(end, End::Fault(_)) {
        Box::pin(teardown::tell_all(&mut served)).await;
    }
    teardown::dismiss(served);
}

/// The next thing that a session's task does.
enum Step {
    /// Nothing can be moved until something arrives.
    Park,
    /// There is more to move, but others come first.
    Yield,
    /// The next message needs a server connection that is not at hand.
    Need(Need),
    /// The outcome of a COMMIT is asked for before anything else.
    Doubt,
    End(End),
}

/// The result of moving the client's bytes.
enum Pumped {
    Moved,
    Nothing,
    Need(Need),
    /// The client is gone or said goodbye.
    Left,
}

impl Served {
    fn say_final_error(&mut self, fault: &Fault) {
        let Served { s, client, w, .. } = self;
        let (user, database) = (&*s.account.client_user, &*s.account.client_database);
        let who = Who { user, database, session: s.handle.status.pid, ..Who::default() };
        w.log(Level::Log, &who, format_args!("session ends: {fault}"));
        // In the middle of a server's message there is nothing a client could read; it sees the connection close.
        if !s.down.is_mid_message() {
            s.say_error(w, fault);
        }
        let _ = s.down.drain(client, &w.reactor);
    }

    /// Moves what can be moved in both directions.
    fn step_on(&mut self) -> Step {
        for _ in 0..ROUNDS_MAX {
            if self.s.intake.doubt.is_some() {
                return Step::Doubt;
            }
            if let Err(fault) = from_client::notify(&mut self.s, &self.w) {
                return Step::End(End::Fault(fault));
            }
            let had_server = self.s.has_server();
            let from_client = match self.pump_client() {
                Ok(Pumped::Moved) => true,
                Ok(Pumped::Nothing) => false,
                Ok(Pumped::Need(need)) => return Step::Need(need),
                Ok(Pumped::Left) => return Step::End(End::Client),
                Err(fault) => return Step::End(End::Fault(fault)),
            };
            // A server connection that broke while something was sent over it may have left messages of the client's to be sent again. No
            // event tells of them.
            let is_lost = had_server && !self.s.has_server();
            match self.pump_server() {
                Ok(from_server) if (from_client || from_server || is_lost) && self.has_more(from_server || is_lost) => {}
                Ok(_) => match from_client::notify(&mut self.s, &self.w) {
                    Ok(true) => {}
                    Ok(false) => return Step::Park,
                    Err(fault) => return Step::End(End::Fault(fault)),
                },
                Err(fault) => return Step::End(End::Fault(fault)),
            }
        }
        Step::Yield
    }

    /// True if another round can move something: bytes have arrived since, or what waited for replies may go on.
    fn has_more(&self, from_server: bool) -> bool {
        let s = &self.s;
        if s.down.has_pending() {
            return false;
        }
        let has_left = s.intake.presence.has_left();
        let client_spoke = !has_left && self.client.is_readable();
        self.host.is_readable() || (!s.up.has_pending() && (client_spoke || has_left || (from_server && s.up.has_unseen())))
    }

    /// Moves all the client has sent as far as it can go.
    fn pump_client(&mut self) -> Result<Pumped, Fault> {
        if !self.client.is_readable() && self.s.is_quiet() {
            self.settle()?;
            return Ok(Pumped::Nothing);
        }
        // A client that does not read is not listened to either, as PostgreSQL does: nothing we say can pile up.
        if !self.drain_down()? {
            return Ok(Pumped::Nothing);
        }
        if !self.drain_up()? {
            return Ok(Pumped::Nothing);
        }
        let mut progressed = self.fill_up();
        if !self.s.intake.presence.has_left() && !progressed && !self.s.up.has_unseen() {
            self.settle()?;
            return Ok(Pumped::Nothing);
        }
        let (mut need, mut held) = (None, false);
        loop {
            // Only answers of our own wait here: one at a time, so that asking without reading piles nothing up.
            if !self.drain_down()? {
                held = true;
                break;
            }
            let header = self.s.up.peek(&self.w.buffers);
            let header = header.map_err(|e| Fault::fatal(sqlstate::PROTOCOL_VIOLATION, e.to_string()))?;
            let Some(header) = header else { break };
            match on_client(&mut self.s, &self.w, header)? {
                Flow::Next => progressed = true,
                Flow::More => break,
                Flow::Hold => {
                    if self.s.is_gate_shut() {
                        // The session waits for an exchange of ours, but the client waits, too.
                        timing::asked(&self.s, &self.w);
                    }
                    held = true;
                    break;
                }
                Flow::Need(wanted) => {
                    need = Some(wanted);
                    break;
                }
            }
        }
        self.s.up.rest_if_empty(&self.w.buffers);
        let is_sent = self.drain_up()?;
        self.drain_down()?;
        if need.is_none() && self.s.intake.presence.has_left() && self.is_done(is_sent, held) {
            return Ok(Pumped::Left);
        }
        self.settle()?;
        Ok(match need {
            Some(need) => Pumped::Need(need),
            None if progressed => Pumped::Moved,
            None => Pumped::Nothing,
        })
    }

    /// True if nothing is left to be done for a client that has left.
    ///
    /// Its messages are carried out and answered, since it may only have ended its own sending; a message that it never finished is not.
    #[cold]
    fn is_done(&mut self, is_sent: bool, held: bool) -> bool {
        let Served { s, client, w, .. } = self;
        let unfinished = usize::from(s.up.is_mid_message() && !s.intake.in_copy_message);
        let waits = (held && !s.replies().is_copying_in()) || s.replies().will_answer(unfinished) || session_state::is_holding(s);
        // A held message must reach the server, whoever hears of it.
        let may_end = s.replies().is_only_ours() || (is_sent && !held);
        let waits = waits && !(may_end && is_in_vain(s, w, || client.is_gone()));
        is_sent && !waits && !s.down.has_pending() && client.is_sent(&w.reactor)
    }
}
