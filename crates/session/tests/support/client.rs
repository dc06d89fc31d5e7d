//! A client and its session, moved as `crates/weir` moves them (`traffic/relay.rs`, `traffic/served.rs`, `traffic/checkout.rs`), without
//! sockets: bytes come when a test says so, and go into the log.

use super::host::TestHost;
use super::log::{Action, Out};
use super::world::{Pool, World, name_of};
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};
use weir_catalog::rule::Rule;
use weir_policy::route::{Class, Side};
use weir_policy::settings::Settings;
use weir_session::causal::{self, Shown};
use weir_session::checkout::{Chosen, choose, count, fails_anyway, role_for, settle_in, shown_by};
use weir_session::context::Context;
use weir_session::fault::{Fault, Severity, sqlstate};
use weir_session::flow::{Flow, Need};
use weir_session::from_client::{self, on_client};
use weir_session::from_server;
use weir_session::handle::SessionHandle;
use weir_session::session::{Presence, Session};
use weir_session::state::State;
use weir_session::status::{Ends, Number, SessionStatus, Whose};
use weir_session::teardown::{self, conn_lost, is_in_vain, let_go};
use weir_session::{owed, replay, session_state, timing};

/// Rounds in which a session must come to rest.
const ROUNDS_MAX: usize = 10_000;

/// See the module.
pub struct Client {
    pub name: char,
    pub s: Box<Session>,
    pub w: Rc<Context>,
    pub pool: Rc<Pool>,
    again: Rc<Cell<bool>>,
    /// Bytes that the client has sent and nobody has read.
    pub from_client: Vec<u8>,
    pub client_closed: bool,
    /// Nobody is there any more to hear answers.
    pub client_gone: bool,
    /// Bytes that the server has sent and nobody has read.
    pub from_server: Vec<u8>,
    pub server_closed: bool,
    /// The next bytes cannot be sent.
    pub is_broken: bool,
    /// Bytes that were sent to servers.
    sent: Rc<Cell<u64>>,
    /// The connection over which that came.
    heard_over: Option<String>,
    waiting: Option<Waiting>,
    pub is_over: bool,
}

#[derive(Clone, Copy)]
struct Waiting {
    need: Need,
    since: Instant,
}

enum End {
    Client,
    Fault(Fault),
}

enum Step {
    Park,
    Need(Need),
    End(End),
}

enum Pumped {
    Moved,
    Nothing,
    Need(Need),
    Left,
}

impl Client {
    /// A session that has just been let in, with these settings of its startup packet.
    pub fn new(world: &World, name: char, startup: &[(&str, &str)]) -> Client {
        let w = &world.w;
        let again = Rc::new(Cell::new(false));
        let task = world.pool.again.borrow().len() as u32;
        world.pool.again.borrow_mut().push(again.clone());
        let number = Number { pid: w.shared.session_statuses.next_pid(), worker: 0 };
        let (user, database) = (world.account.client_user.clone(), world.account.client_database.clone());
        let whose = Whose { user: user.clone(), database, server_user: user };
        let status = Arc::new(SessionStatus::new(number, whose, "test", Ends { client: None, local: None }, 0));
        w.shared.session_statuses.add(status.clone());
        let handle = Rc::new(SessionHandle::new(status, task, w.now_us()));
        let settings = startup.iter().fold(Settings::default(), |settings, (name, value)| settings.with(name, value));
        let meaning = w.shared.intern_settings(settings.meaning()).1;
        let state = State::new(w.shared.intern_settings(settings).0, meaning, w.shared.no_statements.clone());
        let sent = Rc::new(Cell::new(0));
        let host = TestHost { name, pool: world.pool.clone(), again: again.clone(), w: world.w.clone(), sent: sent.clone() };
        let mut s = Box::new(Session::new(Rc::new(host), world.account.clone(), state, handle));
        s.reads.causal.primary_since = w.view().primary_since;
        s.reads.causal.set(&w.shared, &s.state.settings);
        Client {
            name,
            s,
            w: w.clone(),
            pool: world.pool.clone(),
            again,
            from_client: Vec::new(),
            client_closed: false,
            client_gone: false,
            from_server: Vec::new(),
            server_closed: false,
            is_broken: false,
            sent,
            heard_over: None,
            waiting: None,
            is_over: false,
        }
    }

    /// The name of the server connection in use.
    pub fn conn_name(&self) -> Option<String> {
        self.s.conn().map(name_of)
    }

    /// The server of the connection in use says something.
    pub fn deliver(&mut self, bytes: &[u8]) {
        self.forget_others();
        self.from_server.extend_from_slice(bytes);
    }

    /// Drops the words of another connection's server, which are nobody's any more.
    fn forget_others(&mut self) {
        let now = self.conn_name();
        if now != self.heard_over {
            self.from_server.clear();
            self.server_closed = false;
            self.heard_over = now;
        }
    }

    /// The server of the connection in use is gone.
    pub fn close_server(&mut self) {
        self.forget_others();
        self.server_closed = true;
    }

    pub fn is_waiting(&self) -> bool {
        self.waiting.is_some()
    }

    /// True if it was woken.
    pub fn is_woken(&self) -> bool {
        self.again.get() && !self.is_over
    }

    /// Moves all that can be moved.
    pub fn run(&mut self) {
        for _ in 0..ROUNDS_MAX {
            if self.is_over {
                return;
            }
            self.again.set(false);
            let final_error = self.s.handle.final_error.borrow_mut().take();
            let step = match (final_error, self.waiting) {
                (Some(fault), _) => Step::End(End::Fault(fault)),
                (None, Some(waiting)) => Step::Need(waiting.need),
                (None, None) => self.step_on(),
            };
            match step {
                Step::Park if self.again.get() => {}
                Step::Park => return,
                Step::Need(need) => match self.wait(need) {
                    Ok(true) => self.stop_waiting(),
                    Ok(false) if self.again.get() => {}
                    Ok(false) => return,
                    Err(fault) => {
                        self.stop_waiting();
                        self.fail(fault);
                    }
                },
                Step::End(end) => return self.end(end),
            }
        }
        panic!("the session does not come to rest");
    }

    fn fail(&mut self, fault: Fault) {
        let failed = match fault.severity {
            Severity::Error => owed::fail_next(&mut self.s, &self.w, &fault),
            Severity::Fatal => Err(fault),
        };
        if let Err(fault) = failed {
            self.end(End::Fault(fault));
        }
    }

    fn stop_waiting(&mut self) {
        if let Some(Waiting { since, .. }) = self.waiting.take() {
            timing::waited(&self.s, &self.w, since);
        }
    }

    fn end(&mut self, end: End) {
        let why = match &end {
            End::Client => "the client left".to_owned(),
            End::Fault(fault) => fault.to_string(),
        };
        if let End::Fault(fault) = &end {
            if !self.s.down.is_mid_message() {
                self.s.say_error(&self.w, fault);
            }
            self.drain_down();
        }
        let_go(&mut self.s, &self.w);
        if let End::Fault(_) = &end {
            self.drain_down();
        }
        teardown::end(&mut self.s, &self.w);
        self.w.shared.session_statuses.remove(self.s.handle.status.pid);
        self.is_over = true;
        self.pool.act(self.name, Action::Ended(why));
    }

    fn step_on(&mut self) -> Step {
        for _ in 0..ROUNDS_MAX {
            if self.s.intake.doubt.is_some() {
                // Until an event says the outcome.
                return Step::Park;
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
        panic!("the session moves for ever");
    }

    fn client_readable(&self) -> bool {
        !self.from_client.is_empty() || self.client_closed
    }

    fn server_readable(&self) -> bool {
        self.s.has_server() && (!self.from_server.is_empty() || self.server_closed)
    }

    fn has_more(&self, from_server: bool) -> bool {
        let s = &self.s;
        let has_left = s.intake.presence.has_left();
        let client_spoke = !has_left && self.client_readable();
        self.server_readable() || client_spoke || has_left || (from_server && s.up.has_unseen())
    }

    fn pump_client(&mut self) -> Result<Pumped, Fault> {
        if !self.client_readable() && self.s.is_quiet() {
            self.settle()?;
            return Ok(Pumped::Nothing);
        }
        self.drain_down();
        self.drain_up()?;
        let mut progressed = self.fill_up();
        if !self.s.intake.presence.has_left() && !progressed && !self.s.up.has_unseen() {
            self.settle()?;
            return Ok(Pumped::Nothing);
        }
        let (mut need, mut held) = (None, false);
        loop {
            self.drain_down();
            let header = self.s.up.peek(&self.w.buffers);
            let header = header.map_err(|e| Fault::fatal(sqlstate::PROTOCOL_VIOLATION, e.to_string()))?;
            let Some(header) = header else { break };
            match on_client(&mut self.s, &self.w, header)? {
                Flow::Next => progressed = true,
                Flow::More => break,
                Flow::Hold => {
                    if self.s.is_gate_shut() {
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
        self.drain_up()?;
        self.drain_down();
        if need.is_none() && self.s.intake.presence.has_left() && self.is_done(held) {
            return Ok(Pumped::Left);
        }
        self.settle()?;
        Ok(match need {
            Some(need) => Pumped::Need(need),
            None if progressed => Pumped::Moved,
            None => Pumped::Nothing,
        })
    }

    fn is_done(&mut self, held: bool) -> bool {
        let Client { s, w, client_gone, .. } = self;
        let unfinished = usize::from(s.up.is_mid_message() && !s.intake.in_copy_message);
        let waits = (held && !s.replies().is_copying_in()) || s.replies().will_answer(unfinished) || session_state::is_holding(s);
        let may_end = s.replies().is_only_ours() || !held;
        let waits = waits && !(may_end && is_in_vain(s, w, || *client_gone));
        !waits && !s.down.has_pending()
    }

    fn settle(&mut self) -> Result<(), Fault> {
        session_state::settle(&mut self.s, &self.w);
        self.drain_up()
    }

    fn fill_up(&mut self) -> bool {
        if self.s.intake.presence.has_left() {
            return false;
        }
        let taken = self.s.up.feed(&self.from_client, &self.w.buffers);
        self.from_client.drain(..taken);
        if taken == 0 && self.from_client.is_empty() && self.client_closed {
            self.s.intake.presence = Presence::Left;
        }
        taken > 0
    }

    fn drain_up(&mut self) -> Result<(), Fault> {
        if !self.s.up.has_pending() {
            return Ok(());
        }
        let Some(conn) = self.conn_name() else {
            return Err(Fault::fatal(sqlstate::CONNECTION_FAILURE, "no server connection for what was to be sent"));
        };
        if std::mem::take(&mut self.is_broken) {
            self.s.up.forget_pending(&self.w.buffers);
            self.pump_server()?;
            if self.s.has_server() {
                conn_lost(&mut self.s, &self.w, "the connection broke")?;
            }
            return Ok(());
        }
        let mut bytes = Vec::new();
        self.s.up.drain_to(&mut bytes, &self.w.buffers);
        self.sent.set(self.sent.get() + bytes.len() as u64);
        self.pool.log.add(Out::Server { client: self.name, conn, bytes });
        Ok(())
    }

    fn drain_down(&mut self) {
        replay::tap(&mut self.s, &self.w);
        if self.s.down.has_pending() {
            let mut bytes = Vec::new();
            self.s.down.drain_to(&mut bytes, &self.w.buffers);
            self.pool.log.add(Out::Client { client: self.name, bytes });
        }
        replay::drained(&mut self.s);
    }

    fn pump_server(&mut self) -> Result<bool, Fault> {
        self.drain_down();
        self.forget_others();
        if !self.read_more()? {
            return Ok(false);
        }
        if !self.s.has_server() {
            self.drain_down();
            return Ok(true);
        }
        from_server::take(&mut self.s, &self.w)?;
        self.s.down.rest_if_empty(&self.w.buffers);
        self.drain_down();
        self.settle()?;
        Ok(true)
    }

    fn read_more(&mut self) -> Result<bool, Fault> {
        if !self.s.has_server() {
            return Ok(false);
        }
        let taken = self.s.down.feed(&self.from_server, &self.w.buffers);
        if taken > 0 {
            self.from_server.drain(..taken);
            from_server::heard(&mut self.s, &self.w, taken);
            return Ok(true);
        }
        if !self.from_server.is_empty() || !self.server_closed {
            return Ok(false);
        }
        self.server_closed = false;
        conn_lost(&mut self.s, &self.w, "the server closed the connection").map(|()| true)
    }

    /// Chooses a node and takes or opens a server connection to it. False: there is none yet.
    fn wait(&mut self, need: Need) -> Result<bool, Fault> {
        let is_new = self.waiting.is_none();
        let since = self.waiting.map_or(self.w.now(), |waiting| waiting.since);
        self.waiting = Some(Waiting { need, since });
        if self.s.handle.wait_cancelled.take() {
            return Err(Fault::error(sqlstate::QUERY_CANCELED, "canceling statement due to user request"));
        }
        let is_over = self.w.now() >= since + Duration::from_millis(self.w.peek_config().routing.causal_wait_ms);
        let mut class = need.class;
        let begins = self.s.lazy_begin.is_open();
        loop {
            let (at, node) = match choose(&mut self.s, &self.w, Need { class, ..need }, !is_over) {
                Chosen::Node(at, node) => (at, node),
                Chosen::NewPrimary => {
                    causal::on_new_primary(&mut self.s, &self.w)?;
                    continue;
                }
                Chosen::NoPrimary(_) if let Some(fault) = fails_anyway(&mut self.s, &self.w) => return Err(fault),
                Chosen::NoPrimary(rule) => return Ok(self.note_wait(is_new, format!("no primary ({})", rule.name()))),
                Chosen::Replay => {
                    self.w.shared.positions.enlist(self.s.waiter(&self.w), 0);
                    return Ok(self.note_wait(is_new, "a standby to replay".into()));
                }
            };
            if self.pool.refusing.borrow().contains(&node) {
                self.pool.act(self.name, Action::Other(format!("is not let in by node {node}")));
                if class.side == Side::Reader && self.w.view().primary != Some(at) {
                    class = Class::primary(Rule::ReadNoStandby);
                    continue;
                }
                return Err(Fault::fatal(sqlstate::CANNOT_CONNECT, format!("cannot connect to node {node}")));
            }
            let Some(conn) = self.lease(node, need.conn) else {
                return Ok(self.note_wait(is_new, format!("a connection to node {node}")));
            };
            if shown_by(&self.s, &self.w, class, at, &conn) == Shown::All || is_over {
                count(&self.s, &self.w, Need { class, ..need }, node);
                let role = role_for(&self.s, &self.w, class, begins);
                settle_in(&mut self.s, &self.w, conn, role);
                return Ok(true);
            }
            self.pool.put(conn);
            return Ok(self.note_wait(is_new, format!("node {node} to be vouched for")));
        }
    }

    fn note_wait(&self, is_new: bool, why: String) -> bool {
        if is_new {
            self.pool.act(self.name, Action::Waits(why));
        }
        false
    }

    fn lease(&self, node: u16, serial: Option<u64>) -> Option<Box<weir_session::conn::Conn>> {
        let mut idle = self.pool.idle.borrow_mut();
        let rests = idle.entry(node).or_default();
        let of_serial = rests.iter().position(|conn| Some(conn.status.serial) == serial);
        if let Some(at) = of_serial.or(rests.len().checked_sub(1)) {
            let conn = rests.remove(at);
            self.pool.act(self.name, Action::Took(name_of(&conn)));
            return Some(conn);
        }
        let conn = self.pool.open(&self.w, node)?;
        self.pool.act(self.name, Action::Opened(name_of(&conn)));
        Some(conn)
    }
}
