//! Replication clients: `pg_basebackup`, `pg_receivewal`, standbys, subscriptions.
//!
//! Their state belongs to a connection for its life. So each has its own server connection to the primary, opened with the client's
//! startup packet. Bytes pass in both directions independently, as in a CopyBoth. Time limits of statements and idle clients do not hold.

use crate::log::{Level, LogOrigin};
use crate::runtime::lease;
use crate::runtime::mail::RoleCheckReason;
use crate::runtime::pool::server_conn::{OpenError, ServerConn};
use crate::runtime::pool::{CheckoutPatience, CheckoutWait, PoolPurpose};
use crate::runtime::worker::{PoolSet, SessionEntry, Worker};
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use weir_failover::ServerConnEnd;
use weir_io::lane::RelayBuffer;
use weir_io::reactor::parked;
use weir_io::socket::{ReadOutcome, Socket};
use weir_session::fault::{ErrorReport, sqlstate};
use weir_session::flow::HoldReason;
use weir_session::metrics::WorkerCounter;
use weir_session::stats::StatCounter;
use weir_session::status::SessionActivity;
use weir_wire::frame::front;

const ROUNDS_MAX: u32 = 16;

const FAREWELL_LIMIT: Duration = Duration::from_secs(5);

const LOOK_PERIOD: Duration = Duration::from_millis(250);

/// Opens a client's own connection to the primary. Not cancel safe.
pub async fn open(
    w: &Rc<Worker>,
    client: &Socket,
    pools: &PoolSet,
    purpose: PoolPurpose,
    parameters: &[(&str, &str)],
) -> Result<Result<ServerConn, OpenError>, ErrorReport> {
    let node = primary(w, client, pools.limits.get().waits.conn_ms).await?;
    let pool = pools.apart(w, node, purpose);
    let wait = CheckoutWait { since: w.now(), patience: CheckoutPatience::ToldAtOnce };
    let opened =
        lease::lease_conn(w, &pool, node, parameters, wait, || client.is_closed()).await.map_err(ErrorReport::as_fatal)?;
    if opened.is_err() {
        w.shared.request_role_check(RoleCheckReason::LoginFailed);
    }
    Ok(opened)
}

async fn primary(w: &Worker, client: &Socket, limit_ms: u64) -> Result<u16, ErrorReport> {
    let started = w.now();
    loop {
        let known = {
            let view = w.view();
            view.primary.and_then(|at| view.nodes.get(at)).map(|node| node.id)
        };
        if let Some(node) = known {
            return Ok(node);
        }
        let waited = started.elapsed();
        if limit_ms > 0 && waited >= Duration::from_millis(limit_ms) {
            let text = format!("no primary server was found in {} ms (pool_wait_timeout), to replicate from", waited.as_millis());
            return Err(ErrorReport::fatal(sqlstate::CANNOT_CONNECT_NOW, text)
                .hint("Look at SHOW pool_nodes, and whether sr_check_user may log in to the servers."));
        }
        if client.is_closed() {
            return Err(ErrorReport::fatal(
                sqlstate::CONNECTION_FAILURE,
                "the client went away while it waited for a primary server",
            ));
        }
        w.shared.request_role_check(RoleCheckReason::NodeAwaited);
        w.wake_at_new_view();
        w.reactor.wake_at(Instant::now() + LOOK_PERIOD);
        parked().await;
    }
}

struct ReplicationClientGuard<'a> {
    w: &'a Worker,
    entry: &'a SessionEntry,
}

impl<'a> ReplicationClientGuard<'a> {
    fn new(w: &'a Worker, entry: &'a SessionEntry, conn: &ServerConn) -> ReplicationClientGuard<'a> {
        let task = w.reactor.current_task();
        entry.task.set(task);
        conn.transport.socket.set_task(task);
        conn.status.session.store(entry.status.pid, Ordering::Relaxed);
        conn.status.uses.store(1, Ordering::Relaxed);
        conn.status.set_pin(Some(HoldReason::Replication), w.now_ms());
        *entry.conn.borrow_mut() = Some(conn.status.clone());
        entry.status.set_doing(SessionActivity::Executing);
        w.shared.session_statuses.add(entry.status.clone());
        ReplicationClientGuard { w, entry }
    }
}

impl Drop for ReplicationClientGuard<'_> {
    fn drop(&mut self) {
        *self.entry.conn.borrow_mut() = None;
        self.w.leave(self.entry);
        self.w.shared.session_statuses.remove(self.entry.status.pid);
    }
}

/// Serves a client until one side ends. `before`: bytes it sent already. Not cancel safe: it owns the server connection.
pub async fn serve(w: &Rc<Worker>, client: &Socket, before: &[u8], conn: ServerConn, entry: &SessionEntry, pools: &PoolSet) {
    w.count(WorkerCounter::Replications);
    let listed = ReplicationClientGuard::new(w, entry, &conn);
    let mut stream =
        ReplicationRelay { w, client, conn, up: RelayBuffer::default(), down: RelayBuffer::default(), pools, is_leaving: false };
    stream.up.preload(before, &w.buffers);
    let end = loop {
        if let Some(final_error) = entry.final_error.borrow_mut().take() {
            break ReplicationEnd::Dismissed(*final_error);
        }
        match stream.step() {
            Ok(true) => {
                w.reactor.wake(w.reactor.current_task());
                parked().await;
            }
            Ok(false) => parked().await,
            Err(end) => break end,
        }
    };
    stream.say_final_error(&end, entry).await;
    drop(listed);
    w.close_conn(stream.conn);
}

enum ReplicationEnd {
    Client,
    Server(String),
    Dismissed(ErrorReport),
}

struct ReplicationRelay<'a> {
    w: &'a Worker,
    client: &'a Socket,
    conn: ServerConn,
    up: RelayBuffer,
    down: RelayBuffer,
    pools: &'a PoolSet,
    is_leaving: bool,
}

impl ReplicationRelay<'_> {
    /// True: more is there, but others come first.
    fn step(&mut self) -> Result<bool, ReplicationEnd> {
        for _ in 0..ROUNDS_MAX {
            let down = self.move_down()?;
            let up = self.move_up()?;
            if !down && !up {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn move_down(&mut self) -> Result<bool, ReplicationEnd> {
        let (reactor, buffers) = (&self.w.reactor, &self.w.buffers);
        let moved = pass(&mut self.down, &self.conn.transport.socket, self.client, self.w);
        self.down.rest_if_empty(buffers);
        match moved {
            Ok(Some((ReadOutcome::Bytes(bytes), _))) => {
                self.pools.stats.add(StatCounter::Sent, bytes as u64);
                Ok(true)
            }
            Ok(Some((ReadOutcome::End, _))) if self.is_leaving => Err(ReplicationEnd::Client),
            Ok(Some((ReadOutcome::End, _))) => Err(ReplicationEnd::Server("the server closed the connection".into())),
            Ok(Some((ReadOutcome::Nothing, _)) | None) => Ok(false),
            Err(RelayFailure::Reading(cause)) => Err(ReplicationEnd::Server(cause)),
            Err(RelayFailure::Writing) => {
                // The server must not wait for a client that is gone.
                let _ = self.up.drain(&self.conn.transport.socket, reactor);
                Err(ReplicationEnd::Client)
            }
        }
    }

    fn move_up(&mut self) -> Result<bool, ReplicationEnd> {
        let moved = pass(&mut self.up, self.client, &self.conn.transport.socket, self.w);
        self.up.rest_if_empty(&self.w.buffers);
        if let Ok(Some((_, last))) = &moved {
            self.is_leaving |= *last == Some(front::TERMINATE);
        }
        match moved {
            Ok(Some((ReadOutcome::Bytes(bytes), _))) => {
                self.pools.stats.add(StatCounter::Received, bytes as u64);
                Ok(true)
            }
            Ok(Some((ReadOutcome::Nothing, _)) | None) => Ok(false),
            Ok(Some((ReadOutcome::End, _))) | Err(RelayFailure::Reading(_)) => Err(ReplicationEnd::Client),
            Err(RelayFailure::Writing) => {
                // The server's last words are read first.
                self.up.forget_pending(&self.w.buffers);
                Ok(true)
            }
        }
    }

    async fn say_final_error(&mut self, end: &ReplicationEnd, entry: &SessionEntry) {
        let (w, status) = (self.w, &entry.status);
        let who = LogOrigin { user: &status.user, database: &status.database, session: status.pid, ..LogOrigin::default() };
        match end {
            ReplicationEnd::Client => {}
            ReplicationEnd::Server(cause) => {
                w.shared.request_role_check(RoleCheckReason::ConnectionLost);
                w.shared.note_conn_died(self.conn.status.address.node, ServerConnEnd::of_sqlstate(None));
                w.log_conn(&self.conn.status.address, format_args!("of replication client {} ended: {cause}", status.pid));
            }
            ReplicationEnd::Dismissed(fault) => {
                w.shared.log.write(Level::Log, &who, format_args!("session ends: {fault}"));
                // Inside a server's message no client could read the error.
                if !self.down.is_mid_message() {
                    fault.write(self.down.extra(&w.buffers));
                }
            }
        }
        let deadline = Instant::now() + FAREWELL_LIMIT;
        while w.now() < deadline {
            let sent = match end {
                ReplicationEnd::Client => self
                    .up
                    .drain(&self.conn.transport.socket, &w.reactor)
                    .map(|sent| sent && self.conn.transport.socket.is_sent(&w.reactor)),
                ReplicationEnd::Server(_) | ReplicationEnd::Dismissed(_) => {
                    self.down.drain(self.client, &w.reactor).map(|sent| sent && self.client.is_sent(&w.reactor))
                }
            };
            if !matches!(sent, Ok(false)) {
                return;
            }
            w.reactor.wake_at(deadline);
            parked().await;
        }
    }
}

enum RelayFailure {
    Reading(String),
    Writing,
}

/// Moves one direction on by one read; returns the last message's tag. `None`: the other side takes no more now.
fn pass(
    lane: &mut RelayBuffer,
    from: &Socket,
    to: &Socket,
    w: &Worker,
) -> Result<Option<(ReadOutcome, Option<u8>)>, RelayFailure> {
    let reading = |cause: String| RelayFailure::Reading(cause);
    if !lane.drain(to, &w.reactor).map_err(|_| RelayFailure::Writing)? {
        return Ok(None);
    }
    let got = lane.fill(from, &w.reactor).map_err(|cause| reading(cause.to_string()))?;
    let mut last = None;
    // Includes bytes from before the first read.
    while let Some(header) = lane.peek(&w.buffers).map_err(|error| reading(error.to_string()))? {
        lane.pass(header, &w.buffers);
        lane.pass_run(header.tag, &w.buffers);
        last = Some(header.tag);
    }
    lane.drain(to, &w.reactor).map_err(|_| RelayFailure::Writing)?;
    Ok(Some((got, last)))
}
