//! A client and its session, moved by the session's own loop (`pump`), without sockets: bytes come when a test says so, and go into the
//! log. Server connections are chosen as in `crates/weir/src/traffic/checkout_wait.rs`.

use super::host::TestHost;
use super::log::{Action, Out};
use super::world::{Pool, World, name_of};
use std::cell::Cell;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};
use weir_catalog::rule::RoutingRule;
use weir_io::lane::{ReadOutcome, RelayBuffer};
use weir_session::causal::{self, StandbyCoverage};
use weir_session::checkout::{NodeChoice, choose, count, fails_anyway, role_for, settle_in, shown_by};
use weir_session::context::Context;
use weir_session::fault::{ErrorReport, ErrorSeverity, sqlstate};
use weir_session::flow::ConnRequirement;
use weir_session::handle::SessionHandle;
use weir_session::loss::owed_error;
use weir_session::pump::{ClientServerSockets, SessionEnd, SessionPump, SessionStep};
use weir_session::routing::{RouteClass, RouteSide};
use weir_session::sequences::drawn_values::{DrawConnDemand, DrawWaitOutcome};
use weir_session::session::Session;
use weir_session::session_state::client_settings::SettingValues;
use weir_session::session_state::held_state::HeldState;
use weir_session::sharding::engine_snapshots;
use weir_session::sharding::shard_target::ENGINE;
use weir_session::status::{ClientEndpoints, ClientIdentity, SessionPid, SessionStatus};
use weir_session::teardown::{self, let_go};
use weir_session::{sequences, sharding, timing};

/// Rounds in which a session must come to rest.
const ROUNDS_MAX: usize = 10_000;

/// See the module.
pub struct Client {
    pub name: char,
    pub s: Box<Session>,
    pub w: Rc<Context>,
    pub pool: Rc<Pool>,
    again: Rc<Cell<bool>>,
    pub pipes: Pipes,
    waiting: Option<Waiting>,
    pub is_over: bool,
}

#[derive(Clone, Copy)]
struct Waiting {
    need: ConnRequirement,
    since: Instant,
}

/// The sockets of a client's session, filled by the test.
pub struct Pipes {
    name: char,
    pool: Rc<Pool>,
    w: Rc<Context>,
    /// Bytes that the client has sent and nobody has read.
    pub from_client: Vec<u8>,
    pub client_closed: bool,
    /// Nobody is there any more to hear answers.
    pub client_gone: bool,
    /// Bytes that the server has sent and nobody has read.
    pub from_server: Vec<u8>,
    server_closed: bool,
    /// The next bytes cannot be sent.
    pub is_broken: bool,
    /// Bytes that were sent to servers.
    sent: Rc<Cell<u64>>,
    /// The connection over which the server's bytes came.
    heard_over: Option<String>,
}

impl Pipes {
    /// Drops the words of another connection's server, which are nobody's any more.
    fn forget_others(&mut self, now: Option<String>) {
        if now != self.heard_over {
            self.from_server.clear();
            self.server_closed = false;
            self.heard_over = now;
        }
    }
}

/// Moves bytes that are there into a lane. At most one of both: bytes, or the end.
fn read_from(from: &mut Vec<u8>, is_closed: bool, lane: &mut RelayBuffer, w: &Context) -> ReadOutcome {
    let taken = lane.feed(from, &w.buffers);
    from.drain(..taken);
    match taken {
        0 if from.is_empty() && is_closed => ReadOutcome::End,
        0 => ReadOutcome::Nothing,
        taken => ReadOutcome::Bytes(taken),
    }
}

impl ClientServerSockets for Pipes {
    fn is_client_readable(&self) -> bool {
        !self.from_client.is_empty() || self.client_closed
    }

    fn is_server_readable(&self) -> bool {
        !self.from_server.is_empty() || self.server_closed
    }

    fn is_client_gone(&self) -> bool {
        self.client_gone
    }

    fn is_client_sent(&self) -> bool {
        true
    }

    fn fill_up(&mut self, s: &mut Session) -> io::Result<ReadOutcome> {
        Ok(read_from(&mut self.from_client, self.client_closed, &mut s.up, &self.w))
    }

    fn drain_up(&mut self, s: &mut Session) -> Option<io::Result<bool>> {
        let conn = name_of(s.conn()?);
        if std::mem::take(&mut self.is_broken) {
            return Some(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let mut bytes = Vec::new();
        s.up.drain_to(&mut bytes, &self.w.buffers);
        self.sent.set(self.sent.get() + bytes.len() as u64);
        self.pool.log.add(Out::Server { client: self.name, conn, bytes });
        Some(Ok(true))
    }

    fn fill_down(&mut self, s: &mut Session) -> Option<io::Result<ReadOutcome>> {
        let conn = s.conn().map(name_of);
        let has_server = conn.is_some();
        self.forget_others(conn);
        if !has_server {
            return None;
        }
        let got = read_from(&mut self.from_server, self.server_closed, &mut s.down, &self.w);
        self.server_closed &= got != ReadOutcome::End;
        Some(Ok(got))
    }

    fn drain_down(&mut self, s: &mut Session) -> io::Result<bool> {
        if s.down.has_pending() {
            let mut bytes = Vec::new();
            s.down.drain_to(&mut bytes, &self.w.buffers);
            self.pool.log.add(Out::Client { client: self.name, bytes });
        }
        Ok(true)
    }
}

impl Client {
    /// A session that has just been let in, with these settings of its startup packet.
    pub fn new(world: &World, name: char, startup: &[(&str, &str)]) -> Client {
        let w = &world.w;
        let again = Rc::new(Cell::new(false));
        let task = world.pool.again.borrow().len() as u32;
        world.pool.again.borrow_mut().push(again.clone());
        let number = SessionPid { pid: w.shared.session_statuses.next_pid(), worker: 0 };
        let (user, database) = (world.account.client_user.clone(), world.account.client_database.clone());
        let whose = Arc::new(ClientIdentity {
            user: user.clone(),
            database: database.clone(),
            server_user: user,
            server_database: database,
        });
        let status = Arc::new(SessionStatus::new(number, whose, "test".into(), ClientEndpoints { client: None, local: None }, 0));
        w.shared.session_statuses.add(status.clone());
        let handle = Rc::new(SessionHandle::new(status, task, w.now_us()));
        let settings = startup.iter().fold(SettingValues::default(), |settings, (name, value)| settings.with(name, value));
        let meaning = w.shared.intern_settings(settings.meaning()).1;
        let state = HeldState::new(
            w.shared.intern_settings(settings).0,
            meaning,
            w.shared.no_statements.clone(),
            w.shared.unknown_defaults(),
        );
        let sent = Rc::new(Cell::new(0));
        let host = TestHost { name, pool: world.pool.clone(), again: again.clone(), w: world.w.clone(), sent: sent.clone() };
        let mut s = Box::new(Session::new(Rc::new(host), world.account.clone(), state, handle));
        s.reads.causal.primary_since = w.view().primary_since;
        s.reads.causal.set(&w.shared, &s.state.settings);
        let pipes = Pipes {
            name,
            pool: world.pool.clone(),
            w: w.clone(),
            from_client: Vec::new(),
            client_closed: false,
            client_gone: false,
            from_server: Vec::new(),
            server_closed: false,
            is_broken: false,
            sent,
            heard_over: None,
        };
        Client { name, s, w: w.clone(), pool: world.pool.clone(), again, pipes, waiting: None, is_over: false }
    }

    /// The name of the server connection in use.
    pub fn conn_name(&self) -> Option<String> {
        self.s.conn().map(name_of)
    }

    /// The server of the connection in use says something.
    pub fn deliver(&mut self, bytes: &[u8]) {
        self.pipes.forget_others(self.conn_name());
        self.pipes.from_server.extend_from_slice(bytes);
    }

    /// The server of the connection in use is gone.
    pub fn close_server(&mut self) {
        self.pipes.forget_others(self.conn_name());
        self.pipes.server_closed = true;
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
                (Some(fault), _) => SessionStep::End(SessionEnd::Fault(*fault)),
                (None, Some(waiting)) => SessionStep::Need(waiting.need),
                (None, None) => self.pump().step_on(),
            };
            match step {
                SessionStep::Yield => {}
                SessionStep::Snapshots => self.take_snapshots(),
                SessionStep::Park | SessionStep::Doubt | SessionStep::Participants if self.again.get() => {}
                // The outcome of a COMMIT is told by an event.
                SessionStep::Park | SessionStep::Doubt | SessionStep::Participants => return,
                SessionStep::Need(need) => match self.wait(need) {
                    Ok(true) => self.stop_waiting(),
                    Ok(false) if self.again.get() => {}
                    Ok(false) => return,
                    Err(fault) => {
                        self.stop_waiting();
                        self.fail(fault);
                    }
                },
                SessionStep::End(end) => return self.end(end),
            }
        }
        panic!("the session does not come to rest");
    }

    /// The program would have the engine read all shards.
    fn take_snapshots(&mut self) {
        let (conn, upstream) = engine_snapshots::lend(&mut self.s).expect("snapshots are taken over a server connection");
        engine_snapshots::taken(&mut self.s, conn, upstream);
    }

    fn pump(&mut self) -> SessionPump<'_, Pipes> {
        SessionPump { s: &mut self.s, w: &self.w, sockets: &mut self.pipes }
    }

    fn fail(&mut self, fault: ErrorReport) {
        let failed = match fault.severity {
            ErrorSeverity::Error => owed_error::fail_next(&mut self.s, &self.w, &fault),
            ErrorSeverity::Fatal => Err(fault),
        };
        if let Err(fault) = failed {
            self.end(SessionEnd::Fault(fault));
        }
    }

    fn stop_waiting(&mut self) {
        if let Some(Waiting { since, .. }) = self.waiting.take() {
            timing::waited(&self.s, &self.w, since);
        }
    }

    fn end(&mut self, end: SessionEnd) {
        let why = match &end {
            SessionEnd::Client => "the client left".to_owned(),
            SessionEnd::Fault(fault) => fault.to_string(),
        };
        if let SessionEnd::Fault(fault) = &end {
            self.pump().say_final_error(fault);
        }
        let_go(&mut self.s, &self.w);
        if let SessionEnd::Fault(_) = &end {
            let _ = self.pipes.drain_down(&mut self.s);
        }
        teardown::end(&mut self.s, &self.w);
        self.w.shared.session_statuses.remove(self.s.handle.status.pid);
        self.is_over = true;
        self.pool.act(self.name, Action::Ended(why));
    }

    /// Chooses a node and takes or opens a server connection to it. False: there is none yet.
    fn wait(&mut self, need: ConnRequirement) -> Result<bool, ErrorReport> {
        let is_new = self.waiting.is_none();
        let since = self.waiting.map_or(self.w.now(), |waiting| waiting.since);
        self.waiting = Some(Waiting { need, since });
        if self.s.handle.wait_cancelled.take() {
            return Err(ErrorReport::error(sqlstate::QUERY_CANCELED, "canceling statement due to user request"));
        }
        let is_over = self.w.now() >= since + Duration::from_millis(self.w.peek_config().routing.causal_wait_ms);
        let mut class = need.class;
        let begins = self.s.lazy_begin.is_open();
        loop {
            let (at, node) = match choose(&mut self.s, &self.w, ConnRequirement { class, ..need }, !is_over) {
                NodeChoice::Node(at, node) => (at, node),
                NodeChoice::Engine(at, _) => (Some(at), ENGINE),
                NodeChoice::NoShard(shard) => return Err(sharding::no_server(shard)),
                NodeChoice::EngineLacks(lack) => return Ok(self.note_wait(is_new, format!("the engine ({lack:?})"))),
                NodeChoice::NoEngine => return Ok(true),
                NodeChoice::NewPrimary => {
                    causal::on_new_primary(&mut self.s, &self.w)?;
                    continue;
                }
                NodeChoice::NoPrimary(_) if let Some(fault) = fails_anyway(&mut self.s, &self.w) => return Err(fault),
                NodeChoice::NoPrimary(rule) => return Ok(self.note_wait(is_new, format!("no primary ({})", rule.name()))),
                NodeChoice::Replay => {
                    self.w.shared.positions.enlist(self.s.waiter(&self.w), 0);
                    return Ok(self.note_wait(is_new, "a standby to replay".into()));
                }
            };
            if self.pool.refusing.borrow().contains(&node) {
                self.pool.act(self.name, Action::Other(format!("is not let in by node {node}")));
                if class.side == RouteSide::Reader && self.w.view().primary != at {
                    class = RouteClass::primary(RoutingRule::ReadNoStandby);
                    continue;
                }
                return Err(ErrorReport::fatal(sqlstate::CANNOT_CONNECT, format!("cannot connect to node {node}")));
            }
            let Some(conn) = self.lease(node, need.conn)? else {
                return Ok(self.note_wait(is_new, format!("a connection to node {node}")));
            };
            if shown_by(&self.s, &self.w, class, at, &conn) == StandbyCoverage::All || is_over {
                count(&self.s, &self.w, ConnRequirement { class, ..need }, conn.status.address.node);
                let role = role_for(&self.s, &self.w, need, begins);
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

    /// A certain server connection that another session has counts as one that did not come back in time.
    fn lease(&self, node: u16, wanted: Option<DrawConnDemand>) -> Result<Option<Box<weir_session::conn::Conn>>, ErrorReport> {
        let mut idle = self.pool.idle.borrow_mut();
        let rests = idle.entry(node).or_default();
        let of_serial = wanted.and_then(|wanted| rests.iter().position(|conn| conn.status.serial == wanted.drawn.serial));
        if wanted.is_some_and(|wanted| wanted.after(of_serial.map(|at| rests[at].draws)) == DrawWaitOutcome::Refused) {
            return Err(sequences::lost());
        }
        if let Some(at) = of_serial.or(rests.len().checked_sub(1)) {
            let conn = rests.remove(at);
            self.pool.act(self.name, Action::Took(name_of(&conn)));
            return Ok(Some(conn));
        }
        let Some(conn) = self.pool.open(&self.w, node) else { return Ok(None) };
        self.pool.act(self.name, Action::Opened(name_of(&conn)));
        Ok(Some(conn))
    }
}
