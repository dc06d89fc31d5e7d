//! A session with its sockets: reads, writes, and nothing that decides.

use crate::process::worker::Worker;
use crate::traffic::host::SessionHost;
use std::rc::Rc;
use weir_io::socket::{Got, Socket};
use weir_session::fault::{Fault, sqlstate};
use weir_session::from_server;
use weir_session::replay;
use weir_session::session::{Presence, Session};
use weir_session::session_state;
use weir_session::stats::Stat;
use weir_session::teardown::conn_lost;

/// A session, its client's socket and its way to servers.
pub struct Served {
    pub s: Box<Session>,
    pub client: Socket,
    pub host: Rc<SessionHost>,
    pub w: Rc<Worker>,
}

impl Served {
    /// Looks at a server connection that may be at rest now, and sends what it is asked then: nothing else would, if the client says no more.
    #[inline]
    pub fn settle(&mut self) -> Result<(), Fault> {
        session_state::settle(&mut self.s, &self.w);
        self.drain_up().map(drop)
    }

    /// Reads from the client. True when something came.
    pub fn fill_up(&mut self) -> bool {
        let Served { s, client, w, .. } = self;
        if s.intake.presence.has_left() {
            return false;
        }
        match s.up.fill(client, &w.reactor) {
            Ok(Got::Bytes(bytes)) => {
                s.account.stats.add(Stat::Received, bytes as u64);
                s.handle.active_at.set(w.now_us());
                true
            }
            Ok(Got::Nothing) => false,
            Ok(Got::End) | Err(_) => {
                s.intake.presence = Presence::Left;
                false
            }
        }
    }

    /// Sends what waits for the server. True when all is sent.
    #[inline]
    pub fn drain_up(&mut self) -> Result<bool, Fault> {
        if self.s.up.has_pending() { self.send_up() } else { Ok(true) }
    }

    fn send_up(&mut self) -> Result<bool, Fault> {
        let sent = match &*self.host.transport.borrow() {
            Some(transport) => self.s.up.drain(&transport.socket, &self.w.reactor),
            None => return Err(Fault::fatal(sqlstate::CONNECTION_FAILURE, "no server connection for what was to be sent")),
        };
        match sent {
            Ok(all) => Ok(all),
            // The words of the server before it went are read first; the end of file follows.
            Err(_) => {
                self.s.up.forget_pending(&self.w.buffers);
                self.pump_server()?;
                if self.s.has_server() {
                    conn_lost(&mut self.s, &self.w, "the connection broke")?;
                }
                Ok(true)
            }
        }
    }

    /// Sends what waits for the client. True when all is sent.
    #[inline]
    pub fn drain_down(&mut self) -> Result<bool, Fault> {
        replay::tap(&mut self.s, &self.w);
        if self.s.down.has_pending() { self.send_down() } else { Ok(true) }
    }

    fn send_down(&mut self) -> Result<bool, Fault> {
        let sent = self.s.down.drain(&self.client, &self.w.reactor);
        replay::drained(&mut self.s);
        sent.map_err(|cause| Fault::fatal(sqlstate::CONNECTION_FAILURE, format!("could not send to the client: {cause}")))
    }

    /// Moves all the server has sent as far as it can go. True if anything moved.
    pub fn pump_server(&mut self) -> Result<bool, Fault> {
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
        from_server::take(&mut self.s, &self.w)?;
        self.s.down.rest_if_empty(&self.w.buffers);
        self.drain_down()?;
        self.settle()?;
        Ok(true)
    }

    /// Reads from the server. False: nothing came. A server connection that is lost is gone then.
    #[inline]
    pub fn read_more(&mut self) -> Result<bool, Fault> {
        let got = match &*self.host.transport.borrow() {
            Some(transport) => self.s.down.fill(&transport.socket, &self.w.reactor),
            None => return Ok(false),
        };
        match got {
            Ok(Got::Bytes(bytes)) => {
                from_server::heard(&mut self.s, &self.w, bytes);
                Ok(true)
            }
            Ok(Got::Nothing) => Ok(false),
            Ok(Got::End) => conn_lost(&mut self.s, &self.w, "the server closed the connection").map(|()| true),
            Err(cause) => conn_lost(&mut self.s, &self.w, &cause.to_string()).map(|()| true),
        }
    }
}
