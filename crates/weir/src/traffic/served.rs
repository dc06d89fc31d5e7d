//! A session with its sockets: reads and writes without decisions.

use crate::runtime::worker::Worker;
use crate::traffic::session_ports::SessionHost;
use std::io;
use std::rc::Rc;
use weir_io::socket::{ReadOutcome, Socket};
use weir_session::pump::{ClientServerSockets, SessionPump};
use weir_session::session::Session;

pub struct ServedSession {
    pub(crate) s: Box<Session>,
    pub(crate) sockets: SessionSockets,
    pub(crate) w: Rc<Worker>,
}

pub struct SessionSockets {
    pub(crate) client: Socket,
    pub(crate) host: Rc<SessionHost>,
}

impl ServedSession {
    #[inline]
    pub fn pump(&mut self) -> SessionPump<'_, SessionSockets> {
        SessionPump { s: &mut self.s, w: &self.w, sockets: &mut self.sockets }
    }
}

impl ClientServerSockets for SessionSockets {
    #[inline]
    fn is_client_readable(&self) -> bool {
        self.client.is_readable()
    }

    #[inline]
    fn is_server_readable(&self) -> bool {
        self.host.transport.borrow().as_ref().is_some_and(|transport| transport.socket.is_readable())
    }

    fn is_client_gone(&self) -> bool {
        self.client.is_gone()
    }

    fn is_client_sent(&self) -> bool {
        self.client.is_sent(&self.host.w.reactor)
    }

    #[inline]
    fn fill_up(&mut self, s: &mut Session) -> io::Result<ReadOutcome> {
        s.up.fill(&self.client, &self.host.w.reactor)
    }

    #[inline]
    fn drain_up(&mut self, s: &mut Session) -> Option<io::Result<bool>> {
        let transport = self.host.transport.borrow();
        Some(s.up.drain(&transport.as_ref()?.socket, &self.host.w.reactor))
    }

    #[inline]
    fn fill_down(&mut self, s: &mut Session) -> Option<io::Result<ReadOutcome>> {
        let transport = self.host.transport.borrow();
        Some(s.down.fill(&transport.as_ref()?.socket, &self.host.w.reactor))
    }

    #[inline]
    fn drain_down(&mut self, s: &mut Session) -> io::Result<bool> {
        s.down.drain(&self.client, &self.host.w.reactor)
    }
}
