//! Waits for the server connection of a session's next statement.

use crate::runtime::lease;
use crate::runtime::mail::RoleCheckReason;
use crate::runtime::pool::server_conn::{OpenError, ServerConn};
use crate::runtime::pool::{CheckoutPatience, CheckoutWait, ConnPool};
use crate::runtime::worker::Worker;
use crate::server::vouch;
use crate::traffic::served::{ServedSession, SessionSockets};
use crate::traffic::session_ports::SessionHost;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use weir_catalog::rule::RoutingRule;
use weir_io::reactor::parked;
use weir_io::socket::Socket;
use weir_session::causal::{self, StandbyCoverage};
use weir_session::checkout::{NodeChoice, choose, count, fails_anyway, no_primary, role_for, settle_in, shown_by};
use weir_session::conn::Conn;
use weir_session::fault::{ErrorReport, sqlstate};
use weir_session::flow::ConnRequirement;
use weir_session::metrics::WorkerCounter;
use weir_session::routing::{RouteClass, RouteSide};
use weir_session::sequences::drawn_values::{DrawConnDemand, DrawWaitOutcome};
use weir_session::session::Session;
use weir_session::sharding::engine_standing::{self, ENGINE_WAIT};
use weir_session::sharding::known_sharding::EngineLack;
use weir_session::sharding::shard_target::ENGINE;
use weir_session::status::SessionActivity;
use weir_session::{participants, sequences, sharding, timing};

/// Wait for the server connection with a session's sequence values, while another client has it.
const AGAIN_TIMEOUT: Duration = Duration::from_secs(1);

/// Longest wait of a transaction that holds connections to other shards: two of them may wait for each other's.
const HELD_LIMIT: Duration = Duration::from_secs(5);

/// Chooses a node and takes a server connection to it. Without one the need has changed. Not cancel safe.
pub async fn wait(served: &mut ServedSession, need: ConnRequirement) -> Result<(), ErrorReport> {
    let started = served.w.now();
    let acquired = wait_since(served, need, started).await;
    timing::waited(&served.s, &served.w, started);
    if acquired.is_err() {
        // The statement is over: a cancel request that came in the same moment is not for the next one.
        served.s.handle.wait_cancelled.set(false);
    }
    acquired
}

async fn wait_since(served: &mut ServedSession, need: ConnRequirement, started: Instant) -> Result<(), ErrorReport> {
    let ServedSession { s, sockets: SessionSockets { client, host }, w } = served;
    let mut class = need.class;
    // A deferred BEGIN may go with this statement.
    let begins = s.lazy_begin.is_open();
    // A client that left before the wait gets its statement done; one that leaves during it does not.
    let was_gone = client.is_hung_up();
    let mut replay = StandbyWait::new(w);
    let mut waited_since = None;
    loop {
        end_if_cancelled(s)?;
        let (at, node, pool) = match choose(s, w, ConnRequirement { class, ..need }, !replay.is_over(w)) {
            NodeChoice::Node(at, node) => (at, node, host.pools.of_node(w, node)),
            NodeChoice::Engine(at, node) => (Some(at), node, host.pools.engine(w, node)),
            NodeChoice::NoShard(shard) => return Err(sharding::no_server(shard)),
            NodeChoice::NoPrimary(rule) => {
                if let Some(end) = ends_without_primary(s, w, need) {
                    return end;
                }
                wait_for_primary(s, client, w, (started, was_gone), rule).await?;
                continue;
            }
            NodeChoice::EngineLacks(lack) => {
                wait_for_engine(s, client, w, (started, was_gone), lack).await?;
                continue;
            }
            NodeChoice::NoEngine => return Ok(()),
            NodeChoice::NewPrimary => {
                causal::on_new_primary(s, w)?;
                continue;
            }
            NodeChoice::Replay => {
                show_waiting(s, w);
                w.count_if(waited_since.replace(waited_since.unwrap_or(w.now())).is_none(), WorkerCounter::ReplayWaits);
                replay.wait(w).await;
                continue;
            }
        };
        let was_primary = at.is_some() && w.view().primary == at;
        if let Some(wanted) = need.conn
            && let Some(conn) = where_it_drew(s, (client, was_gone), host, node, wanted).await?
        {
            let conn = unless_cancelled(s, w, conn)?;
            begin_with(s, w, host.take(conn), (need, class, node), begins);
            return Ok(());
        }
        match lease(s, client, host, &pool, class, (started, was_gone)).await? {
            CheckoutResult::ServerConn(conn) => {
                let conn = unless_cancelled(s, w, conn)?;
                let shown = shown_by(s, w, class, at, &conn.conn);
                if shown == StandbyCoverage::All || (shown == StandbyCoverage::Unproven && replay.is_over(w)) {
                    causal::note_wait(s, w, waited_since);
                    begin_with(s, w, host.take(conn), (need, class, node), begins);
                    return Ok(());
                }
                // The standby has restarted, or the server connection is too new to be verified.
                replay.verify_us = conn.opened_us;
                conn.transport.pool.clone().give_back(w, conn);
                if replay.is_over(w) {
                    class.side = RouteSide::Primary;
                } else {
                    replay.wait(w).await;
                }
            }
            CheckoutResult::Moved => {}
            CheckoutResult::Failed(error) => {
                w.shared.request_role_check(RoleCheckReason::LoginFailed);
                if need.shard == ENGINE && error.passes().is_none() {
                    // The session goes on without the engine.
                    return Err(error.fault());
                }
                if class.side != RouteSide::Reader || was_primary {
                    // Nothing was sent: the client loses nothing by waiting.
                    if error.passes().is_some() {
                        continue;
                    }
                    return Err(error.fault().as_fatal());
                }
                // A read goes to the primary if a standby is unreachable or does not know the user or database yet.
                class = RouteClass::primary(RoutingRule::ReadNoStandby);
            }
        }
    }
}

fn ends_without_primary(s: &mut Session, w: &Worker, need: ConnRequirement) -> Option<Result<(), ErrorReport>> {
    if need.ends_with_primary && w.view().primary.is_none() {
        // The message is looked at again: a standby may answer it now.
        return Some(Ok(()));
    }
    fails_anyway(s, w).map(Err)
}

/// `class` may differ from that of the need: a read without a standby.
fn begin_with(
    s: &mut Session,
    w: &Worker,
    conn: Box<Conn>,
    (need, class, node): (ConnRequirement, RouteClass, u16),
    begins: bool,
) {
    count(s, w, ConnRequirement { class, ..need }, node);
    settle_in(s, w, conn, role_for(s, w, need, begins));
}

/// Counts a statement that waits for a primary.
struct PrimaryWaitGuard<'a>(&'a AtomicU32);

impl PrimaryWaitGuard<'_> {
    fn primary(w: &Worker) -> PrimaryWaitGuard<'_> {
        let count = &w.shared.awaiting_primary;
        if count.fetch_add(1, Ordering::Relaxed) == 0 {
            // From now on `node_monitor` asks by itself.
            w.shared.request_role_check(RoleCheckReason::NodeAwaited);
        }
        PrimaryWaitGuard(count)
    }
}

impl Drop for PrimaryWaitGuard<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Waits for another view. Cancel safe.
async fn wait_for_primary(
    s: &Session,
    client: &Socket,
    w: &Worker,
    (since, was_gone): (Instant, bool),
    rule: RoutingRule,
) -> Result<(), ErrorReport> {
    // Limits on the client's silence do not count.
    show_waiting(s, w);
    let limit_ms = s.account.limits.get().waits.primary_ms;
    let deadline = (limit_ms > 0).then(|| since + Duration::from_millis(limit_ms));
    let generation = w.view().generation;
    let _awaiting = PrimaryWaitGuard::primary(w);
    while w.view().generation == generation {
        if deadline.is_some_and(|at| w.now() >= at) {
            return Err(no_primary(w, since, rule));
        }
        end_if_left(s, client, was_gone, "a primary server")?;
        end_if_cancelled(s)?;
        w.wake_at_new_view();
        deadline.into_iter().for_each(|at| w.reactor.wake_at(at));
        parked().await;
    }
    Ok(())
}

/// Waits for the end of a look at the engine, or for another view. Cancel safe.
async fn wait_for_engine(
    s: &Session,
    client: &Socket,
    w: &Worker,
    (since, was_gone): (Instant, bool),
    lack: EngineLack,
) -> Result<(), ErrorReport> {
    show_waiting(s, w);
    let until = since + ENGINE_WAIT;
    if w.now() >= until {
        return Err(engine_standing::not_ready(s, lack));
    }
    end_if_left(s, client, was_gone, "a look at the engine of all shards")?;
    w.wake_at_new_view();
    s.account.known.await_look((w.id, w.reactor.current_task()));
    // A look that ended before the session stood in the list wakes nobody.
    if engine_standing::lacks(s, w, lack) {
        w.reactor.wake_at(until);
        parked().await;
    }
    Ok(())
}

/// The end of the session's wait if nobody waits for the answer any more.
fn end_if_left(s: &Session, client: &Socket, was_gone: bool, awaited: &str) -> Result<(), ErrorReport> {
    if (was_gone || !client.is_hung_up()) && s.handle.final_error.borrow().is_none() {
        return Ok(());
    }
    Err(ErrorReport::fatal(sqlstate::ADMIN_SHUTDOWN, format!("the session ended while it waited for {awaited}")))
}

fn show_waiting(s: &Session, w: &Worker) {
    s.handle.status.set_doing(SessionActivity::WaitingForConnection);
    s.handle.status.waiting_ms.store(w.now_ms(), Ordering::Relaxed);
}

enum CheckoutResult {
    ServerConn(ServerConn),
    Failed(OpenError),
    Moved,
}

/// An error ends the session's wait.
async fn lease(
    s: &Session,
    client: &Socket,
    host: &SessionHost,
    pool: &Arc<ConnPool>,
    class: RouteClass,
    (since, was_gone): (Instant, bool),
) -> Result<CheckoutResult, ErrorReport> {
    let (w, node, entry) = (&host.w, pool.key.node, &s.handle);
    if w.shared.drains_servers() {
        return Err(lease::ended());
    }
    show_waiting(s, w);
    let held_until = participants::has_others(s).then(|| since + HELD_LIMIT);
    let is_too_long = || held_until.is_some_and(|at| w.now() >= at);
    let ends = || {
        let is_over = entry.final_error.borrow().is_some() || entry.wait_cancelled.get() || is_too_long();
        is_over || (!was_gone && client.is_hung_up())
    };
    let has_moved = || !may_serve(w, class, node);
    let is_primary = is_primary_node(w, node);
    // A read that a standby does not take goes to the primary.
    let patience =
        if class.side == RouteSide::Reader && !is_primary { CheckoutPatience::ToldAtOnce } else { CheckoutPatience::Waits };
    let wait = (CheckoutWait { since, patience }, host.came_ms);
    held_until.into_iter().for_each(|at| w.reactor.wake_at(at));
    let leased = vouch::lease_conn(w, pool, node, wait, || ends() || has_moved()).await;
    if leased.is_err() && !ends() && has_moved() {
        return Ok(CheckoutResult::Moved);
    }
    if leased.is_err() {
        end_if_cancelled(s)?;
    }
    if leased.is_err() && is_too_long() {
        return Err(participants::waited_too_long(HELD_LIMIT));
    }
    leased.map(|leased| leased.map_or_else(CheckoutResult::Failed, CheckoutResult::ServerConn))
}

/// The view may have changed during the wait.
fn may_serve(w: &Worker, class: RouteClass, node: u16) -> bool {
    let view = w.view();
    let is_up = || view.nodes.iter().position(|known| known.id == node).is_some_and(|at| view.is_up(at));
    is_primary_node(w, node) || is_of_shard(w, node) || (class.side == RouteSide::Reader && is_up())
}

/// Shards above 0 have one server each: there is no other one to go to.
fn is_of_shard(w: &Worker, node: u16) -> bool {
    w.is_sharded() && w.peek_config().sharding.shard_of(node) != 0
}

fn is_primary_node(w: &Worker, node: u16) -> bool {
    w.is_primary(node)
}

/// Returns the server connection with the values a statement asks for. `None`: any other will do. An error ends the session's wait. Not
/// cancel safe: the server connection may be on its way.
async fn where_it_drew(
    s: &Session,
    client: (&Socket, bool),
    host: &SessionHost,
    node: u16,
    wanted: DrawConnDemand,
) -> Result<Option<ServerConn>, ErrorReport> {
    let conn = lease_again(s, client, host, node, wanted).await?;
    match wanted.after(conn.as_ref().map(|conn| conn.draws)) {
        DrawWaitOutcome::Takes | DrawWaitOutcome::TakesAny => Ok(conn),
        DrawWaitOutcome::Refused => {
            conn.into_iter().for_each(|conn| host.pools.of_node(&host.w, node).give_back(&host.w, conn));
            s.handle.status.set_doing(SessionActivity::Idle);
            Err(sequences::lost())
        }
    }
}

/// Waits briefly for the server connection a statement needs. `None`: unavailable. An error ends the session's wait. Not cancel safe: the
/// server connection may be on its way.
async fn lease_again(
    s: &Session,
    (client, was_gone): (&Socket, bool),
    host: &SessionHost,
    node: u16,
    wanted: DrawConnDemand,
) -> Result<Option<ServerConn>, ErrorReport> {
    let (w, pool, entry) = (&host.w, host.pools.of_node(&host.w, node), &s.handle);
    show_waiting(s, w);
    let ends = || (!was_gone && client.is_hung_up()) || entry.final_error.borrow().is_some();
    let gives_up = || ends() || entry.wait_cancelled.get();
    if let Some(conn) = pool.lease_certain(w, wanted.drawn.serial, Instant::now() + AGAIN_TIMEOUT, gives_up).await {
        return Ok(lease::fit(w, conn).await);
    }
    end_if_cancelled(s)?;
    if ends() { Err(lease::gave_up()) } else { Ok(None) }
}

fn end_if_cancelled(s: &Session) -> Result<(), ErrorReport> {
    if !s.handle.wait_cancelled.take() {
        return Ok(());
    }
    s.handle.status.set_doing(SessionActivity::Idle);
    Err(ErrorReport::error(sqlstate::QUERY_CANCELED, "canceling statement due to user request"))
}

/// A cancel request may come while the server connection is opened or handed over: nothing of the statement was sent yet.
fn unless_cancelled(s: &Session, w: &Rc<Worker>, conn: ServerConn) -> Result<ServerConn, ErrorReport> {
    match end_if_cancelled(s) {
        Ok(()) => Ok(conn),
        Err(cancelled) => {
            conn.transport.pool.clone().give_back(w, conn);
            Err(cancelled)
        }
    }
}

pub struct StandbyWait {
    until: Instant,
    known: u64,
    /// Opening time of a server connection to be verified.
    verify_us: u64,
}

impl StandbyWait {
    pub fn new(w: &Worker) -> StandbyWait {
        let wait = std::time::Duration::from_millis(w.peek_config().routing.causal_wait_ms);
        StandbyWait { until: w.now() + wait, known: w.shared.positions.published(), verify_us: 0 }
    }

    pub fn is_over(&self, w: &Worker) -> bool {
        w.now() >= self.until
    }

    /// Cancel safe.
    pub async fn wait(&mut self, w: &Worker) {
        let positions = &w.shared.positions;
        // The list before the look: news in between is seen, and later news wakes.
        positions.enlist((w.id, w.reactor.current_task()), self.verify_us);
        if positions.published() == self.known {
            causal::wake_sampler(w);
            w.reactor.wake_at(self.until);
            parked().await;
        }
        self.known = positions.published();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The room of a wait.
    fn room<F: Future>(_: impl FnOnce(&'static mut ServedSession, ConnRequirement) -> F) -> usize {
        size_of::<F>()
    }

    #[test]
    fn a_wait_for_a_server_connection_of_others_does_not_hold_the_room_of_a_login() {
        assert!(room(wait) <= 1280, "{} bytes", room(wait));
    }
}
