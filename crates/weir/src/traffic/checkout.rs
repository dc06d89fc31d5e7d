//! Waits for the server connection that a session's next statement needs: one at rest, one that is opened, or one that another gives back.

use crate::control::mail::Nudge;
use crate::process::shared::Message;
use crate::process::worker::Worker;
use crate::server::pool::server_conn::{self, Login, OpenError, ServerConn};
use crate::server::pool::{Lease, Limit, Patience, Pool, Purpose, Refusal, Wait};
use crate::traffic::host::SessionHost;
use crate::traffic::relay::Served;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use weir_catalog::rule::Rule;
use weir_io::reactor::parked;
use weir_io::socket::Socket;
use weir_policy::pool::Refused;
use weir_policy::route::{Class, Side};
use weir_session::causal::{self, Shown};
use weir_session::checkout::{Chosen, check_after_ms, choose, count, settle_in, shown_by};
use weir_session::fault::{Fault, sqlstate};
use weir_session::flow::Need;
use weir_session::metrics::Metric;
use weir_session::session::Session;
use weir_session::status::Doing;
use weir_session::timing;

/// Time the worker that has a server connection gets to let go of it.
const FETCH_TIMEOUT: Duration = Duration::from_secs(2);

/// Time a session waits for the server connection on which it drew from sequences, while another client has it. Others seldom take longer.
const AGAIN_TIMEOUT: Duration = Duration::from_secs(1);

/// Chooses a node and takes a server connection to it: at rest, opened, or waited for. Not cancel safe.
pub async fn wait(served: &mut Served, need: Need) -> Result<(), Fault> {
    let started = served.w.now();
    let acquired = wait_since(served, need, started).await;
    timing::waited(&served.s, &served.w, started);
    acquired
}

async fn wait_since(served: &mut Served, need: Need, started: Instant) -> Result<(), Fault> {
    let Served { s, client, host, w } = served;
    let mut class = need.class;
    let mut replay = Replay::new(w);
    let mut waited = false;
    loop {
        let (at, node) = match choose(s, w, Need { class, ..need }, !replay.is_over(w)) {
            Chosen::Node(at, node) => (at, node),
            Chosen::NoPrimary(rule) => {
                wait_for_primary(s, client, w, started, rule).await?;
                continue;
            }
            Chosen::Replay => {
                if !std::mem::replace(&mut waited, true) {
                    w.count(Metric::ReplayWaits);
                }
                replay.wait(w).await;
                continue;
            }
        };
        if let Some(conn) = lease_again(s, client, host, node, need).await {
            count(s, w, need, node);
            settle_in(s, w, host.take(conn));
            return Ok(());
        }
        match lease(s, client, host, class, node, started).await? {
            Leased::ServerConn(conn) => {
                let shown = shown_by(s, w, class, at, &conn.conn);
                if shown == Shown::All || (shown == Shown::Unproven && replay.is_over(w)) {
                    count(s, w, Need { class, ..need }, node);
                    settle_in(s, w, host.take(conn));
                    return Ok(());
                }
                // The standby has started anew, or this server connection is so young that nobody vouches for it yet.
                replay.verify_us = conn.opened_us;
                let pool = conn.transport.pool.clone();
                pool.give_back(w, conn);
                if replay.is_over(w) {
                    class.side = Side::Primary;
                } else {
                    replay.wait(w).await;
                }
            }
            Leased::Moved => {}
            Leased::Failed(error) => {
                w.shared.nudge_prober(Nudge::LoginFailed);
                if class.side != Side::Reader || w.view().primary == Some(at) {
                    // Nothing was sent: who waits until the server lets somebody in, or another is the primary, loses nothing.
                    if error.passes().is_some() {
                        continue;
                    }
                    return Err(error.fault().as_fatal());
                }
                // A standby that cannot be reached, or does not know the user or the database yet, costs a read nothing but its way
                // to the primary.
                class = Class::primary(Rule::ReadNoStandby);
            }
        }
    }
}

async fn wait_for_primary(s: &Session, client: &Socket, w: &Worker, started: Instant, rule: Rule) -> Result<(), Fault> {
    // Not its client's silence: limits on that do not count.
    show_waiting(s, w);
    let limit_ms = s.pools.limits.get().wait_ms;
    let waited = started.elapsed();
    if limit_ms > 0 && waited >= Duration::from_millis(limit_ms) {
        let message = format!(
            "no primary server was found in {} ms (pool_wait_timeout); the statement needs one (rule {})",
            waited.as_millis(),
            rule.name()
        );
        return Err(Fault::error(sqlstate::CANNOT_CONNECT_NOW, message)
            .hint("Look at SHOW pool_nodes, and whether sr_check_user may log in to the servers."));
    }
    if client.is_hung_up() || s.entry.farewell.borrow().is_some() {
        return Err(Fault::fatal(sqlstate::ADMIN_SHUTDOWN, "the session ended while it waited for a primary server"));
    }
    w.shared.nudge_prober(Nudge::NodeAwaited);
    w.wake_at_new_view();
    w.reactor.wake_at(Instant::now() + Duration::from_millis(250));
    parked().await;
    Ok(())
}

fn show_waiting(s: &Session, w: &Worker) {
    s.entry.card.set_doing(Doing::WaitingForConnection);
    s.entry.card.waiting_ms.store(w.now_ms(), Ordering::Relaxed);
}

/// What came of waiting for a server connection of a node.
enum Leased {
    ServerConn(ServerConn),
    Failed(OpenError),
    /// The node is not the one to ask any more.
    Moved,
}

/// A server connection of the session's pool on a node. An error ends the session's wait.
async fn lease(
    s: &Session,
    client: &Socket,
    host: &SessionHost,
    class: Class,
    node: u16,
    since: Instant,
) -> Result<Leased, Fault> {
    let (w, pool, entry) = (&host.w, host.pools.of_node(&host.w, node), &s.entry);
    show_waiting(s, w);
    // Who had said all and gone before the wait began gets it done; who leaves during the wait does not want it any more.
    let was_gone = client.is_hung_up();
    entry.wait_cancelled.set(false);
    let ends = || (!was_gone && client.is_hung_up()) || entry.farewell.borrow().is_some() || entry.wait_cancelled.get();
    let has_moved = || !may_serve(w, class, node);
    let is_primary = is_primary_node(w, node);
    // A read that a standby does not take goes to the primary.
    let patience = if class.side == Side::Reader && !is_primary { Patience::ToldAtOnce } else { Patience::Waits };
    let leased = lease_conn(w, &pool, node, &[], Wait { since, patience }, || ends() || has_moved()).await;
    if leased.is_err() && !ends() && has_moved() {
        return Ok(Leased::Moved);
    }
    if leased.is_err() && entry.wait_cancelled.take() {
        entry.card.set_doing(Doing::Idle);
        return Err(Fault::error(sqlstate::QUERY_CANCELED, "canceling statement due to user request"));
    }
    leased.map(|leased| leased.map_or_else(Leased::Failed, Leased::ServerConn))
}

/// True if a statement may still run on the node that was chosen for it: the view may have changed while it waited.
fn may_serve(w: &Worker, class: Class, node: u16) -> bool {
    let view = w.view();
    let is_up = || view.nodes.iter().position(|known| known.id == node).is_some_and(|at| view.is_up(at));
    is_primary_node(w, node) || (class.side == Side::Reader && is_up())
}

fn is_primary_node(w: &Worker, node: u16) -> bool {
    w.is_primary(node)
}

/// The very server connection a statement needs, when it is at rest; waits a little while another client has it. `None`: it cannot be had. Not
/// cancel safe: the server connection may be on its way.
async fn lease_again(s: &Session, client: &Socket, host: &SessionHost, node: u16, need: Need) -> Option<ServerConn> {
    let serial = need.conn?;
    let (w, pool) = (&host.w, host.pools.of_node(&host.w, node));
    show_waiting(s, w);
    let gives_up = || client.is_hung_up() || s.entry.farewell.borrow().is_some();
    let conn = pool.lease_certain(w, serial, Instant::now() + AGAIN_TIMEOUT, gives_up).await?;
    fit(w, conn).await
}

/// A server connection of a pool: at rest, opened, or waited for. Not cancel safe: a server connection may be on its way. `parameters`: of the startup packet
/// of one that is opened; only for pools whose server connections nobody shares.
pub async fn lease_conn(
    w: &Rc<Worker>,
    pool: &Arc<Pool>,
    node: u16,
    parameters: &[(&str, &str)],
    wait: Wait,
    give_up: impl Fn() -> bool,
) -> Result<Result<ServerConn, OpenError>, Fault> {
    loop {
        let leased = match pool.lease(w, wait, &give_up).await {
            Err(Refusal::Refused(why, words)) => return Ok(Err(OpenError::Held { node, why, words })),
            leased => leased.map_err(|refusal| wait_fault(w, pool, refusal))?,
        };
        match leased {
            Lease::ServerConn(conn) => {
                if let Some(conn) = fit(w, conn).await {
                    return Ok(Ok(conn));
                }
                if give_up() {
                    return Err(wait_fault(w, pool, Refusal::GaveUp));
                }
            }
            // Boxed: who waits for a server connection that others have does not pay for the room of a login.
            Lease::Permit => return Ok(Box::pin(open(w, pool, node, parameters)).await),
        }
    }
}

/// A server connection of a pool that is at rest, if there is one that can be used. Not cancel safe.
pub async fn at_rest(w: &Worker, pool: &Pool) -> Option<ServerConn> {
    while let Some(conn) = pool.take_any(w) {
        if let Some(conn) = fit(w, conn).await {
            return Some(conn);
        }
    }
    None
}

/// True if a server connection that was at rest can be used; one that cannot is closed.
fn is_usable(w: &Worker, conn: &ServerConn) -> bool {
    if !conn.is_of_these_passwords(w) {
        return false;
    }
    let is_fresh = conn.is_fresh(w.now());
    if !is_fresh {
        w.count(Metric::ConnsLost);
    }
    is_fresh
}

/// The same for a server connection of this worker, without waiting.
pub fn fit_near(w: &Worker, conn: ServerConn) -> Option<ServerConn> {
    if is_usable(w, &conn) {
        return Some(conn);
    }
    w.close_conn(conn);
    None
}

/// Makes a server connection that was at rest usable here: not dead, and in this worker's event loop. Not cancel safe.
async fn fit(w: &Worker, mut conn: ServerConn) -> Option<ServerConn> {
    let is_here = conn.transport.home == w.id || fetch(w, &mut conn).await;
    if is_here && is_usable(w, &conn) {
        let must_ask = check_after_ms(w).is_some_and(|ms| conn.has_rested(w.now(), ms));
        // Boxed: where no server is asked nobody pays for the room.
        return if must_ask { Box::pin(ask_first(w, conn)).await } else { Some(conn) };
    }
    w.close_conn(conn);
    None
}

/// Longest wait for the answer where `connect_timeout` is no limit.
const CHECK_MS_MAX: u64 = 10_000;

/// Asks a server `server_check_query`; a server connection that it does not answer over is closed. Not cancel safe.
async fn ask_first(w: &Worker, conn: ServerConn) -> Option<ServerConn> {
    let limit_ms = match conn.card.address.connect_timeout_ms {
        0 => CHECK_MS_MAX,
        ms => ms,
    };
    let query = w.config().pool.check_query.clone();
    w.count(Metric::ConnsChecked);
    let (conn, answer) = server_conn::ask(w, conn, &query, Instant::now() + Duration::from_millis(limit_ms)).await;
    let Err(error) = answer else { return Some(conn) };
    w.count(Metric::ConnsLost);
    w.log_conn(&conn.card.address, format_args!("closed, since server_check_query failed: {error}"));
    let pool = conn.transport.pool.clone();
    if error.is_silent() {
        w.shared.suspects.suspect(conn.card.address.node);
        w.shared.nudge_prober(Nudge::ConnectionLost);
        // Those that have rested as long are likely to be as dead: nobody shall wait for each of them in turn.
        let rested_ms = check_after_ms(w).unwrap_or(0);
        for other in pool.retire(|other, _| other.has_rested(w.now(), rested_ms)) {
            w.close_conn(other);
        }
    }
    w.close_conn(conn);
    None
}

/// Moves a server connection from the event loop of the worker that had it into this one's.
async fn fetch(w: &Worker, conn: &mut ServerConn) -> bool {
    let deadline = Instant::now() + FETCH_TIMEOUT;
    let ticket = conn.transport.socket.ticket();
    let slot = ticket.watch();
    let message = Message::Release { ticket, worker: w.id, task: w.reactor.current_task() };
    w.shared.mailboxes[usize::from(conn.transport.home)].send(message);
    while !slot.is_released() {
        if w.now() >= deadline {
            return false;
        }
        w.reactor.wake_at(deadline);
        parked().await;
    }
    conn.transport.socket.leave();
    conn.transport.home = w.id;
    // What arrived there before it left was not asked for, or is the end.
    if conn.transport.socket.is_readable() || conn.transport.socket.join(&w.reactor).is_err() {
        return false;
    }
    w.count(Metric::ConnsLent);
    true
}

/// Opens a server connection under a permit of its pool.
pub async fn open(w: &Rc<Worker>, pool: &Arc<Pool>, node: u16, parameters: &[(&str, &str)]) -> Result<ServerConn, OpenError> {
    let address = w.view().nodes.iter().position(|n| n.id == node).and_then(|at| w.address_of(at));
    let opened = match address {
        Some(address) => {
            // First the number, then the secret: a reload in between makes the server connection old at once.
            let generation = w.shared.access.generation();
            let secret = w.secret_for_server(&pool.key.user, Some(&pool.key.client_database));
            let (user, database) = (&*pool.key.user, &*pool.key.database);
            let login = Login { user, database, secret: secret.as_ref(), generation, parameters };
            // A walsender takes no such query, and notifications need none.
            let first = match pool.key.purpose {
                Purpose::Statements => w.shared.config.load().databases.connect_query(&pool.key.client_database),
                Purpose::Replication | Purpose::Listening => Arc::default(),
            };
            let opened = server_conn::open(w, pool.clone(), &address, &login, &first).await;
            if let Err(error) = &opened {
                w.log_conn(&address, format_args!("not opened: {error}"));
            }
            opened
        }
        None => Err(OpenError::Gone { node }),
    };
    match opened {
        Ok(conn) => {
            w.count(Metric::ConnsOpened);
            pool.note_accepted(w);
            Ok(conn)
        }
        Err(error) => {
            w.count(Metric::ConnsFailed);
            if error.is_silent() {
                // Others shall not pay the same time before the check of roles has found out.
                w.shared.suspects.suspect(node);
                w.shared.nudge_prober(Nudge::LoginFailed);
            }
            if let Some(why) = error.passes() {
                pool.note_refused(w, why, error.to_string());
            }
            pool.release_permit(w);
            Err(error)
        }
    }
}

fn wait_fault(w: &Worker, pool: &Pool, refusal: Refusal) -> Fault {
    match refusal {
        Refusal::TimedOut { waited_ms, limit } => {
            let which = match limit {
                Limit::PoolSize(size) => {
                    format!(
                        "pool_size = {size} connections of user \"{}\" to database \"{}\"",
                        pool.key.user, pool.key.client_database
                    )
                }
                Limit::Database(max) => {
                    format!("max_db_connections = {max} connections to database \"{}\"", pool.key.client_database)
                }
                Limit::User(max) => format!("max_user_connections = {max} connections of user \"{}\"", pool.key.user),
                Limit::Paused => {
                    let message = format!(
                        "database \"{}\" is paused by an administrator, and was for {waited_ms} ms (pool_wait_timeout)",
                        pool.key.client_database
                    );
                    return Fault::error(sqlstate::CANNOT_CONNECT_NOW, message)
                        .hint("RESUME in the administration console ends the pause.");
                }
                Limit::Refused(why, words) => {
                    let message = format!(
                        "no server connection could be opened or became free in {waited_ms} ms (pool_wait_timeout): {words}"
                    );
                    return match why {
                        Refused::Full => Fault::error(sqlstate::TOO_MANY_CONNECTIONS, message)
                            .hint("Lower pool_size, or raise max_connections of the server."),
                        Refused::Down => Fault::error(sqlstate::CANNOT_CONNECT_NOW, message),
                    };
                }
                Limit::Node(max) => match w.peek_config().limits.conns_per_node {
                    0 => format!("num_init_children * max_pool = {max} connections"),
                    _ => format!("max_server_connections_per_node = {max} connections"),
                },
                Limit::All(max) => format!("max_server_connections = {max} connections over all nodes"),
            };
            let message = format!(
                "no server connection became free in {waited_ms} ms (pool_wait_timeout): all of {which} on node {} are in use",
                pool.key.node
            );
            Fault::error(sqlstate::TOO_MANY_CONNECTIONS, message)
        }
        // `lease_conn` tells of it as of a login that failed.
        Refusal::Refused(_, words) => Fault::error(sqlstate::CANNOT_CONNECT_NOW, &*words),
        Refusal::GaveUp => Fault::fatal(sqlstate::ADMIN_SHUTDOWN, "the session ended while it waited for a server connection"),
    }
}

/// The wait of a read for a standby.
pub struct Replay {
    until: Instant,
    /// Counts what had become known when the session looked last.
    known: u64,
    /// Age of a server connection that is to be vouched for.
    pub verify_us: u64,
}

impl Replay {
    pub fn new(w: &Worker) -> Replay {
        let wait = std::time::Duration::from_millis(w.peek_config().routing.causal_wait_ms);
        Replay { until: w.now() + wait, known: w.shared.positions.published(), verify_us: 0 }
    }

    pub fn is_over(&self, w: &Worker) -> bool {
        w.now() >= self.until
    }

    /// Waits until more is known than when the session looked last, or there is no time left. Cancel safe.
    pub async fn wait(&mut self, w: &Worker) {
        let positions = &w.shared.positions;
        // First the list, then the look: what becomes known in between is seen, and what comes later wakes.
        positions.enlist((w.id, w.reactor.current_task()), self.verify_us);
        if positions.published() == self.known {
            causal::wake_sampler(w);
            w.reactor.wake_at(self.until);
            parked().await;
        }
        self.known = positions.published();
    }
}
