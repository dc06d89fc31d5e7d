//! Leases server connections: at rest, opened, or returned by another session.

use crate::runtime::mail::RoleCheckReason;
use crate::runtime::pool::conn_opening::{self, ask_defaults};
use crate::runtime::pool::server_conn::{OpenError, ServerAddress, ServerConn, ServerLogin, ServerTransport, TERMINATE};
use crate::runtime::pool::{CheckoutRefusal, CheckoutWait, ConnPool, PoolLease, PoolPurpose, ReachedLimit};
use crate::runtime::shared::WorkerMessage;
use crate::runtime::worker::Worker;
use std::collections::BTreeMap;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};
use weir_failover::ServerConnEnd;
use weir_failover::looks::is_primary_by_configuration;
use weir_io::reactor::parked;
use weir_session::checkout::check_after_ms;
use weir_session::checkout::pool_grant::LoginRefusal;
use weir_session::fault::{ErrorReport, sqlstate};
use weir_session::metrics::WorkerCounter;
use weir_session::reports::ReportedRole;
use weir_session::session_state::connection_defaults::are_stale;
use weir_session::sharding::shard_target::ENGINE;

const FETCH_TIMEOUT: Duration = Duration::from_secs(2);

/// Leases a server connection. `parameters`: for the startup packet; only for pools whose connections are not shared. Not cancel
/// safe: a server connection may be on its way.
pub async fn lease_conn(
    w: &Rc<Worker>,
    pool: &Arc<ConnPool>,
    node: u16,
    parameters: &[(&str, &str)],
    wait: CheckoutWait,
    give_up: impl Fn() -> bool,
) -> Result<Result<ServerConn, OpenError>, ErrorReport> {
    loop {
        let leased = match pool.lease(w, wait, &give_up).await {
            Err(CheckoutRefusal::Refused(why, words)) => return Ok(Err(OpenError::Held { node, why, words })),
            Err(CheckoutRefusal::Told(error)) => return Ok(Err(*error)),
            leased => leased.map_err(|refusal| wait_fault(w, pool, refusal))?,
        };
        match leased {
            PoolLease::ServerConn(conn) if w.shared.stale.moves.claim(&conn) => {
                // Its server refused a write: a new connection tells if the address leads elsewhere now.
                let Some(conn) = bring_home(w, conn).await else { continue };
                part(w, conn).await;
            }
            PoolLease::ServerConn(conn) => {
                if let Some(conn) = fit(w, conn).await {
                    return Ok(Ok(conn));
                }
                if give_up() {
                    return Err(wait_fault(w, pool, CheckoutRefusal::GaveUp));
                }
                continue;
            }
            PoolLease::Permit => {}
        }
        // Boxed, so that a waiting session has no room for a login.
        let mut opening = Box::pin(open(w, pool, node, parameters));
        if let Some(opened) = unless(w, opening.as_mut(), &give_up).await {
            return Ok(opened);
        }
        drop(opening);
        pool.release_permit(w);
        return Err(wait_fault(w, pool, CheckoutRefusal::GaveUp));
    }
}

/// Polls a future until `give_up`. Cancel safe if the future is.
pub async fn unless<T>(w: &Worker, mut future: Pin<&mut impl Future<Output = T>>, give_up: impl Fn() -> bool) -> Option<T> {
    std::future::poll_fn(|context| {
        w.wake_at_new_view();
        match future.as_mut().poll(context) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending if give_up() => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

/// Not cancel safe.
pub async fn at_rest(w: &Worker, pool: &ConnPool) -> Option<ServerConn> {
    while let Some(conn) = pool.take_any(w) {
        if let Some(conn) = fit(w, conn).await {
            return Some(conn);
        }
    }
    None
}

fn is_usable(w: &Worker, conn: &ServerConn) -> bool {
    if !conn.is_of_these_passwords(w) || w.shared.stale.moves.is_left(conn) {
        return false;
    }
    let is_fresh = conn.is_fresh(w.now_us());
    if !is_fresh {
        w.count(WorkerCounter::ConnsLost);
    }
    is_fresh
}

pub fn fit_near(w: &Worker, conn: ServerConn) -> Option<ServerConn> {
    if is_usable(w, &conn) {
        return Some(conn);
    }
    w.close_conn(conn);
    None
}

/// Makes a server connection that was at rest usable in this worker, or closes it. Not cancel safe.
pub async fn fit(w: &Worker, mut conn: ServerConn) -> Option<ServerConn> {
    let is_here = is_brought_home(w, &mut conn).await;
    if is_here && is_usable(w, &conn) {
        let must_ask = check_after_ms(w).is_some_and(|ms| conn.has_rested(w.now_us(), ms));
        let conn = if must_ask { Box::pin(ask_first(w, conn)).await? } else { conn };
        let are_stale = are_stale(&conn.conn, w);
        return if are_stale { Box::pin(ask_defaults::ask_again(w, conn)).await } else { Some(conn) };
    }
    w.close_conn(conn);
    None
}

/// Moves a server connection to this worker's event loop, usable or not, or closes it. Not cancel safe.
pub async fn bring_home(w: &Worker, mut conn: ServerConn) -> Option<ServerConn> {
    if is_brought_home(w, &mut conn).await {
        return Some(conn);
    }
    w.close_conn(conn);
    None
}

async fn is_brought_home(w: &Worker, conn: &mut ServerConn) -> bool {
    conn.transport.home == w.id || fetch(w, conn).await
}

const PART_LIMIT: Duration = Duration::from_secs(1);

/// Terminates a server connection of this worker and keeps its permit. Waits until the server closes its end, by when the
/// session's slot is free. Not cancel safe: the permit would be lost.
pub async fn part(w: &Worker, conn: ServerConn) {
    let ServerConn { conn, transport } = conn;
    let ServerTransport { socket, pool, .. } = *transport;
    socket.set_task(w.reactor.current_task());
    if socket.try_write(&w.reactor, &TERMINATE, &[]).is_ok() {
        let mut rest = [0; 64];
        let deadline = Some(Instant::now() + PART_LIMIT);
        while socket.read(&w.reactor, &mut rest, deadline).await.is_ok() {}
    }
    socket.close(&w.reactor);
    pool.lose(w, conn.status.serial);
}

/// Longest wait for the answer if `connect_timeout` is 0.
const CHECK_MS_MAX: u64 = 10_000;

/// Runs `server_check_query`, and closes the server connection if it fails. Not cancel safe.
async fn ask_first(w: &Worker, conn: ServerConn) -> Option<ServerConn> {
    let limit_ms = match conn.status.address.connect_timeout_ms {
        0 => CHECK_MS_MAX,
        ms => ms,
    };
    let query = w.config().pool.check_query.clone();
    w.count(WorkerCounter::ConnsChecked);
    let (conn, answer) = conn_opening::ask_operators(w, conn, &query, Instant::now() + Duration::from_millis(limit_ms)).await;
    let Err(error) = answer else { return Some(conn) };
    w.count(WorkerCounter::ConnsLost);
    w.log_conn(&conn.status.address, format_args!("closed, since server_check_query failed: {error}"));
    let pool = conn.transport.pool.clone();
    if error.is_silent() {
        w.shared.suspects.suspect(conn.status.address.node);
        w.shared.request_role_check(RoleCheckReason::ConnectionLost);
        // Connections at rest for as long are probably dead, too.
        let rested_ms = check_after_ms(w).unwrap_or(0);
        for other in pool.retire(|other, _| other.has_rested(w.now_us(), rested_ms)) {
            w.close_conn(other);
        }
    }
    w.close_conn(conn);
    None
}

async fn fetch(w: &Worker, conn: &mut ServerConn) -> bool {
    let deadline = Instant::now() + FETCH_TIMEOUT;
    let ticket = conn.transport.socket.ticket();
    let slot = ticket.watch();
    let message = WorkerMessage::Release { ticket, worker: w.id, task: w.reactor.current_task() };
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
    // Early bytes are unsolicited, or the end of the connection.
    if conn.transport.socket.is_readable() || conn.transport.socket.join(&w.reactor).is_err() {
        return false;
    }
    w.count(WorkerCounter::ConnsLent);
    true
}

pub async fn open(w: &Rc<Worker>, pool: &Arc<ConnPool>, node: u16, parameters: &[(&str, &str)]) -> Result<ServerConn, OpenError> {
    let is_engine = pool.key.purpose == PoolPurpose::Engine;
    let address = w.address_of_node(node).map(|known| if is_engine { ServerAddress { shard: ENGINE, ..known } } else { known });
    let (begun_ms, begun_us) = (w.now_ms(), w.micros(Instant::now()));
    let opened = match address {
        Some(address) => {
            // Before the secret: a reload in between makes the server connection outdated at once.
            let generation = w.shared.access.generation();
            let secret = w.secret_for_server(&pool.key.user, Some(&pool.key.client_database));
            let (user, database) = (&*pool.key.user, &*pool.key.database);
            let login = ServerLogin { user, database, secret: secret.as_ref(), generation, parameters };
            // A walsender takes no query, and notifications need none.
            let first = match pool.key.purpose {
                PoolPurpose::Statements | PoolPurpose::Engine | PoolPurpose::Greeting => {
                    w.shared.config.load().databases.connect_query(&pool.key.client_database)
                }
                PoolPurpose::PhysicalReplication | PoolPurpose::LogicalReplication | PoolPurpose::Listening => Arc::default(),
            };
            let opened = conn_opening::open(w, pool.clone(), &address, &login, &first).await;
            if let Ok(conn) = &opened {
                w.shared.stale.moves.opened(node, begun_us, conn.reported.told());
            }
            let opened = refuse_standby(w, opened);
            if let Err(error) = &opened {
                w.log_conn(&address, format_args!("not opened: {error}"));
            }
            opened
        }
        None => Err(OpenError::Gone { node }),
    };
    match opened {
        Ok(conn) => {
            w.count(WorkerCounter::ConnsOpened);
            pool.note_accepted(w);
            pool.note_let_in(begun_ms);
            Ok(conn)
        }
        Err(error) => {
            w.count(WorkerCounter::ConnsFailed);
            if error.is_silent() {
                // Other sessions should not spend the same time before the role check.
                w.shared.suspects.suspect(node);
                w.shared.request_role_check(RoleCheckReason::LoginFailed);
            }
            if matches!(error, OpenError::Connect { .. } | OpenError::Broke { .. }) {
                w.shared.note_conn_died(node, ServerConnEnd::Broken);
            }
            if let Some(why) = error.passes() {
                pool.note_refused(w, why, error.to_string());
            }
            pool.note_kept_out(w, &error, begun_ms);
            pool.tell_refused(w, &error);
            pool.release_permit(w);
            Err(error)
        }
    }
}

/// Refuses a node that counts as the primary and reports recovery: it was just demoted, and statements wait for its successor.
/// Servers up to version 13 do not report it.
fn refuse_standby(w: &Worker, opened: Result<ServerConn, OpenError>) -> Result<ServerConn, OpenError> {
    let conn = opened?;
    let purpose = conn.transport.pool.key.purpose;
    let is_demoted = w.view().is_primary(conn.status.address.node)
        && matches!(purpose, PoolPurpose::Statements | PoolPurpose::Engine | PoolPurpose::Greeting)
        && conn.reported.told() == ReportedRole::Standby
        && !is_primary_by_configuration(&w.peek_config(), conn.status.address.node);
    if !is_demoted {
        return Ok(conn);
    }
    let (address, sqlstate) = (conn.status.address.clone(), sqlstate::CANNOT_CONNECT_NOW.to_owned());
    w.shared.request_role_check(RoleCheckReason::RoleContradicted);
    conn.transport.pool.disown(conn.status.serial);
    conn.transport.socket.part(&w.reactor, &TERMINATE);
    Err(OpenError::Refused { address, sqlstate, message: "it counts as the primary, and is in recovery".to_owned() })
}

fn wait_fault(w: &Worker, pool: &ConnPool, refusal: CheckoutRefusal) -> ErrorReport {
    match refusal {
        CheckoutRefusal::TimedOut { waited_ms, limit } => {
            let which = match limit {
                ReachedLimit::PoolSize(size) => {
                    format!(
                        "pool_size = {size} connections of user \"{}\" to database \"{}\"",
                        pool.key.user, pool.key.client_database
                    )
                }
                ReachedLimit::Database(max) => {
                    format!("max_db_connections = {max} connections to database \"{}\"", pool.key.client_database)
                }
                ReachedLimit::User(max) => format!("max_user_connections = {max} connections of user \"{}\"", pool.key.user),
                ReachedLimit::Paused => {
                    let message = format!(
                        "database \"{}\" is paused by an administrator, and was for {waited_ms} ms (pool_wait_timeout)",
                        pool.key.client_database
                    );
                    return ErrorReport::error(sqlstate::CANNOT_CONNECT_NOW, message)
                        .hint("RESUME in the administration console ends the pause.");
                }
                ReachedLimit::Refused(why, words) => {
                    let text = |limit| {
                        format!("no server connection could be opened or became free in {waited_ms} ms ({limit}): {words}")
                    };
                    return match why {
                        LoginRefusal::Full => ErrorReport::error(sqlstate::TOO_MANY_CONNECTIONS, text("pool_wait_timeout"))
                            .hint("Lower pool_size, or raise max_connections of the server."),
                        LoginRefusal::Down => ErrorReport::error(sqlstate::CANNOT_CONNECT_NOW, text("failover_wait")),
                    };
                }
                ReachedLimit::Node(max) => match w.peek_config().limits.conns_per_node {
                    0 => format!("num_init_children * max_pool = {max} connections"),
                    _ => format!("max_server_connections_per_node = {max} connections"),
                },
                ReachedLimit::All(max) => format!("max_server_connections = {max} connections over all nodes"),
            };
            let message = format!(
                "no server connection became free in {waited_ms} ms (pool_wait_timeout): all of {which} on node {} are in use",
                pool.key.node
            );
            let is_own = matches!(limit, ReachedLimit::PoolSize(_));
            let kept = w.shared.pools.kept(|other| other.key.node == pool.key.node && (!is_own || other.key == pool.key));
            with_reasons(ErrorReport::error(sqlstate::TOO_MANY_CONNECTIONS, message), &kept, is_own)
        }
        CheckoutRefusal::Refused(_, words) => ErrorReport::error(sqlstate::CANNOT_CONNECT_NOW, &*words),
        CheckoutRefusal::Told(error) => error.fault(),
        CheckoutRefusal::GaveUp => gave_up(),
    }
}

fn with_reasons(fault: ErrorReport, kept: &BTreeMap<&str, usize>, is_own: bool) -> ErrorReport {
    if kept.is_empty() {
        return fault;
    }
    let each: Vec<String> = kept.iter().map(|(reason, count)| format!("{reason}: {count}")).collect();
    let (sum, place) = (kept.values().sum::<usize>(), if is_own { "of them" } else { "of the node's" });
    fault
        .detail(format!("{sum} {place} are kept by clients for state that cannot move ({}).", each.join(", ")))
        .hint("SHOW pool_pools tells which clients keep them, and for how long.")
}

pub fn ended() -> ErrorReport {
    ErrorReport::fatal(sqlstate::ADMIN_SHUTDOWN, "terminating connection due to administrator command")
}

pub fn gave_up() -> ErrorReport {
    ErrorReport::fatal(sqlstate::ADMIN_SHUTDOWN, "the session ended while it waited for a server connection")
}
