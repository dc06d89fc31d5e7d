//! The connection by which a hub's sessions get notifications: opened to the primary, and again when the primary moves.

use crate::log::{Level, LogOrigin};
use crate::runtime::lease;
use crate::runtime::mail::RoleCheckReason;
use crate::runtime::pool::server_conn::ServerConn;
use crate::runtime::pool::{CheckoutPatience, CheckoutWait, PoolPurpose};
use crate::runtime::shared::ProxyShutdown;
use crate::runtime::worker::{PoolSet, Worker};
use std::collections::HashSet;
use std::rc::Rc;
use std::time::{Duration, Instant};
use weir_failover::ServerConnEnd;
use weir_io::reactor::parked;
use weir_io::socket::ReadOutcome;
use weir_session::flow::HoldReason;
use weir_session::metrics::WorkerCounter;
use weir_session::session_state::listen::listen_hub::NotificationHub;
use weir_wire::frame::{HEADER_BYTES, back, read_header};
use weir_wire::write;

/// Time between two checks that the connection is needed and leads to the primary; also before a retry.
const LOOK_PERIOD: Duration = Duration::from_secs(1);

/// Silence after which the server is asked for a sign of life.
const SILENCE: Duration = Duration::from_secs(20);

const ANSWER_LIMIT: Duration = Duration::from_secs(10);

const READ_BYTES_MAX: usize = 128 << 10;

/// Time for which an unused connection is kept.
const LINGER: Duration = Duration::from_secs(10);

/// A notification has at most 8000 bytes.
const MESSAGE_BYTES_MAX: usize = 1 << 20;

/// Cancel safe: a hub waits to be taken.
pub async fn open_all(w: Rc<Worker>) {
    loop {
        for (hub, pools) in w.listening.new_hubs.take() {
            w.reactor.spawn(attend(w.clone(), hub, pools));
        }
        parked().await;
    }
}

async fn attend(w: Rc<Worker>, hub: Rc<NotificationHub>, pools: Rc<PoolSet>) {
    hub.task.set(w.reactor.current_task());
    let mut is_again = false;
    while w.shared.stop_mode() <= ProxyShutdown::Smart {
        if let Some(conn) = open(&w, &hub, &pools).await {
            let node = conn.status.address.clone();
            *hub.encoding.borrow_mut() = conn.reported("client_encoding").to_string();
            let mut line = ListenConn::new(&w, &hub, conn, is_again);
            let opened_at = w.now();
            let end = line.serve().await;
            w.close_conn(line.conn);
            let ListenEnd::Broken(cause) = end else { break };
            hub.lose();
            hub.tasks().into_iter().for_each(|task| w.reactor.wake(task));
            w.count(WorkerCounter::ListenersLost);
            w.shared.request_role_check(RoleCheckReason::ConnectionLost);
            w.shared.note_conn_died(node.node, ServerConnEnd::of_sqlstate(None));
            let (user, database, _) = &hub.key;
            let text = format_args!(
                "the listening connection to {node} was lost: {cause}; notifications sent until it is open again are lost"
            );
            w.shared.log.write(Level::Warning, &LogOrigin { user, database, ..LogOrigin::default() }, text);
            is_again = true;
            // A server that refuses Weir's messages must not be stormed.
            if w.now() >= opened_at + LOOK_PERIOD {
                continue;
            }
        }
        if hub.is_unused() {
            break;
        }
        w.reactor.sleep(LOOK_PERIOD).await;
    }
    w.forget_hub(&hub);
}

async fn open(w: &Rc<Worker>, hub: &NotificationHub, pools: &PoolSet) -> Option<ServerConn> {
    let node = {
        let view = w.view();
        view.primary_id()?
    };
    let pool = pools.apart(w, node, PoolPurpose::Listening);
    let gives_up = || hub.is_unused() || w.shared.stop_mode() > ProxyShutdown::Smart;
    let wait = CheckoutWait { since: w.now(), patience: CheckoutPatience::ToldAtOnce };
    match lease::lease_conn(w, &pool, node, &[], wait, gives_up).await {
        Ok(Ok(conn)) => {
            conn.status.set_pin(Some(HoldReason::Listener), w.now_ms());
            conn.transport.socket.set_task(w.reactor.current_task());
            Some(conn)
        }
        Ok(Err(_)) => {
            w.shared.request_role_check(RoleCheckReason::LoginFailed);
            None
        }
        Err(fault) => {
            let (user, database, _) = &hub.key;
            let text = format_args!("no connection to listen over: {fault}");
            w.shared.log.write(Level::Warning, &LogOrigin { user, database, ..LogOrigin::default() }, text);
            None
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum ListenEnd {
    Unused,
    Broken(String),
}

struct ListenConn<'a> {
    w: &'a Rc<Worker>,
    hub: &'a NotificationHub,
    conn: ServerConn,
    buffer: Vec<u8>,
    /// Time of the open question, and the channels that its answer confirms.
    asked: Option<(Instant, Option<HashSet<Vec<u8>>>)>,
    heard_at: Instant,
    used_at: Instant,
    look_at: Instant,
    /// True after a lost connection.
    is_again: bool,
}

impl<'a> ListenConn<'a> {
    fn new(w: &'a Rc<Worker>, hub: &'a NotificationHub, conn: ServerConn, is_again: bool) -> ListenConn<'a> {
        let now = w.now();
        ListenConn { w, hub, conn, buffer: Vec::new(), asked: None, heard_at: now, used_at: now, look_at: now, is_again }
    }

    async fn serve(&mut self) -> ListenEnd {
        loop {
            if let Err(cause) = self.read() {
                return ListenEnd::Broken(cause);
            }
            if let Err(cause) = self.ask().await {
                return ListenEnd::Broken(cause);
            }
            let now = self.w.now();
            if now >= self.look_at {
                if let Some(end) = self.look(now) {
                    return end;
                }
                self.look_at = now + LOOK_PERIOD;
                self.w.reactor.wake_at(self.look_at);
            }
            parked().await;
        }
    }

    fn look(&mut self, now: Instant) -> Option<ListenEnd> {
        if !self.hub.is_unused() {
            self.used_at = now;
        } else if now >= self.used_at + LINGER {
            return Some(ListenEnd::Unused);
        }
        if self.w.shared.stop_mode() > ProxyShutdown::Smart {
            return Some(ListenEnd::Unused);
        }
        if self.asked.as_ref().is_some_and(|(since, _)| now >= *since + ANSWER_LIMIT) {
            return Some(ListenEnd::Broken(format!("no answer in {} s", ANSWER_LIMIT.as_secs())));
        }
        let view = self.w.view();
        let ours = &self.conn.status.address;
        let is_another = view.primary.is_some() && !view.is_primary_at(ours.node, &ours.hostname, ours.port);
        is_another.then(|| ListenEnd::Broken("another server is the primary now".into()))
    }

    async fn ask(&mut self) -> Result<(), String> {
        let now = self.w.now();
        if self.asked.is_some() {
            return Ok(());
        }
        let (sql, after) = match self.hub.change() {
            Some((sql, after)) => (sql, Some(after)),
            None if now >= self.heard_at + SILENCE => (String::new(), None),
            None => return Ok(()),
        };
        let mut out = Vec::new();
        weir_sql::own::check(&sql);
        write::query(&mut out, &sql);
        self.asked = Some((now, after));
        let sent = self.conn.transport.socket.write_all(&self.w.reactor, &out, Some(now + ANSWER_LIMIT)).await;
        sent.map_err(|cause| cause.to_string())
    }

    fn read(&mut self) -> Result<(), String> {
        let mut piece = [0u8; 8192];
        let mut read = 0;
        while read < READ_BYTES_MAX {
            match self.conn.transport.socket.try_read(&self.w.reactor, &mut piece) {
                Ok(ReadOutcome::Bytes(bytes)) => {
                    read += bytes;
                    self.buffer.extend_from_slice(&piece[..bytes]);
                }
                Ok(ReadOutcome::Nothing) => return Ok(()),
                Ok(ReadOutcome::End) => return Err("the server closed the connection".into()),
                Err(cause) => return Err(cause.to_string()),
            }
            self.heard_at = self.w.now();
            self.take_messages()?;
        }
        // The sessions come first.
        self.w.reactor.wake(self.w.reactor.current_task());
        Ok(())
    }

    fn take_messages(&mut self) -> Result<(), String> {
        let mut taken = 0;
        while let Some(header) = read_header(&self.buffer[taken..]).map_err(|error| error.to_string())? {
            let bytes = header.frame_bytes();
            if bytes > MESSAGE_BYTES_MAX {
                return Err(format!("a message of {bytes} bytes"));
            }
            let Some(frame) = self.buffer.get(taken..taken + bytes) else { break };
            match header.tag {
                back::NOTIFICATION => {
                    self.w.count(WorkerCounter::Notifications);
                    let handed = self.hub.hand(frame, |task| self.w.reactor.wake(task));
                    handed.ok_or("a malformed notification")?;
                }
                back::ERROR => {
                    let report = weir_wire::back::read_report(&frame[HEADER_BYTES..]);
                    return Err(String::from_utf8_lossy(report.message).into_owned());
                }
                back::READY => {
                    let answered = self.asked.take().and_then(|(_, after)| after);
                    if let Some(listened) = answered {
                        self.confirm(listened);
                    }
                }
                _ => {}
            }
            taken += bytes;
        }
        self.buffer.drain(..taken);
        Ok(())
    }

    fn confirm(&mut self, listened: HashSet<Vec<u8>>) {
        let count = listened.len().saturating_sub(1);
        self.hub.confirm(listened);
        if self.is_again {
            self.hub.again();
        }
        self.hub.tasks().into_iter().for_each(|task| self.w.reactor.wake(task));
        if std::mem::take(&mut self.is_again) {
            self.w.log_conn(&self.conn.status.address, format_args!("listens again, to {count} channels"));
        }
    }
}
