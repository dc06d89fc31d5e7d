//! Lets a server say again, every so often, that it still lets a user in, before clients that have just come get connections that are open.
//!
//! A real login replaces a connection of the pool, so that it needs no room beyond the limits. `weir::runtime::pool::recent_logins` decides when it is wanted.

use crate::runtime::lease;
use crate::runtime::pool::recent_logins::{ClientLoginDecision, LoginDenial};
use crate::runtime::pool::server_conn::{OpenError, ServerConn};
use crate::runtime::pool::{CheckoutWait, ConnPool};
use crate::runtime::worker::Worker;
use crate::server::inquiry;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};
use weir_io::reactor::parked;
use weir_session::fault::ErrorReport;

/// Time that a client waits at its login for a server that says nothing.
const LOGIN_LIMIT: Duration = Duration::from_secs(3);
/// Time for the question whether a user or a database may have connections at all.
const LIMITS_LIMIT: Duration = Duration::from_secs(2);

/// The outcome for a client.
enum LoginCheckOutcome {
    /// It may have connections that are open: this one, if it has one in hand.
    Yes(Option<ServerConn>),
    /// The connection in hand had to make room for a login that told nothing.
    Again,
    No(OpenError),
    GaveUp,
}

/// As `lease::lease_conn`, for a client that came then. Not cancel safe: a server connection may be on its way.
pub async fn lease_conn(
    w: &Rc<Worker>,
    pool: &Arc<ConnPool>,
    node: u16,
    (wait, came_ms): (CheckoutWait, u64),
    give_up: impl Fn() -> bool,
) -> Result<Result<ServerConn, OpenError>, ErrorReport> {
    loop {
        let conn = match lease::lease_conn(w, pool, node, &[], wait, &give_up).await? {
            Ok(conn) => conn,
            Err(error) => return Ok(Err(error)),
        };
        match vouch(w, pool, node, (came_ms, Some(conn)), &give_up).await {
            LoginCheckOutcome::Yes(Some(conn)) => return Ok(Ok(conn)),
            LoginCheckOutcome::Yes(None) | LoginCheckOutcome::Again => {}
            LoginCheckOutcome::No(error) => return Ok(Err(error)),
            LoginCheckOutcome::GaveUp => return Err(lease::gave_up()),
        }
    }
}

/// Has the server asked for a client that logs in now, if it is time to. Error: it does not let the user in any more. A server that cannot be asked keeps
/// nobody out whom it let in last, nor does a pool of which all connections are in use: there the first statement asks. Not cancel safe.
pub async fn at_login(w: &Rc<Worker>, pool: &Arc<ConnPool>, node: u16, gives_up: impl Fn() -> bool) -> Result<(), OpenError> {
    let until = Instant::now() + LOGIN_LIMIT;
    let gives_up = || {
        w.reactor.wake_at(until);
        w.now() >= until || gives_up()
    };
    match vouch(w, pool, node, (w.now_ms(), None), gives_up).await {
        LoginCheckOutcome::Yes(Some(conn)) => pool.give_back(w, conn),
        // No other client waits as long soon after. A client that left by itself says nothing of the server.
        LoginCheckOutcome::GaveUp if w.now() >= until => pool.note_silent(w),
        LoginCheckOutcome::Yes(None) | LoginCheckOutcome::Again | LoginCheckOutcome::GaveUp => {}
        LoginCheckOutcome::No(error) => return Err(error),
    }
    Ok(())
}

/// The login that is asked for on behalf of all who wait; its end is told however it ends.
struct LoginCheckGuard<'a> {
    w: &'a Worker,
    pool: &'a ConnPool,
}

impl Drop for LoginCheckGuard<'_> {
    fn drop(&mut self) {
        self.pool.asked(self.w);
    }
}

/// Not cancel safe: the connection in hand would be lost.
async fn vouch(
    w: &Rc<Worker>,
    pool: &Arc<ConnPool>,
    node: u16,
    (came_ms, in_hand): (u64, Option<ServerConn>),
    gives_up: impl Fn() -> bool,
) -> LoginCheckOutcome {
    loop {
        match pool.voucher(w, came_ms) {
            ClientLoginDecision::Given | ClientLoginDecision::Unsure => return LoginCheckOutcome::Yes(in_hand),
            ClientLoginDecision::Awaited { until_ms } => {
                if gives_up() {
                    in_hand.into_iter().for_each(|conn| pool.give_back(w, conn));
                    return LoginCheckOutcome::GaveUp;
                }
                w.reactor.wake_at(w.now() + Duration::from_millis(until_ms.saturating_sub(w.now_ms()).max(1)));
                w.wake_at_new_view();
                parked().await;
            }
            ClientLoginDecision::Wanted => {
                let _asking = LoginCheckGuard { w, pool };
                // Boxed: a session that waits for a server connection of others does not pay for the room of a login.
                return Box::pin(ask(w, pool, node, in_hand, gives_up)).await;
            }
        }
    }
}

/// Makes the login, beside the connections that are there or, where no room is left, in the place of one that nobody uses. Not cancel safe.
async fn ask(
    w: &Rc<Worker>,
    pool: &Arc<ConnPool>,
    node: u16,
    in_hand: Option<ServerConn>,
    gives_up: impl Fn() -> bool,
) -> LoginCheckOutcome {
    if pool.permit_more(w) {
        match log_in(w, pool, node, &gives_up).await {
            LoggedIn::Yes(conn) => {
                // The pool is as large as before.
                in_hand.or_else(|| pool.take_surplus(w)).into_iter().for_each(|conn| w.close_conn(conn));
                return LoginCheckOutcome::Yes(Some(conn));
            }
            LoggedIn::Refused(error) => {
                // Those of a pool that has ended are closed.
                in_hand.into_iter().for_each(|conn| pool.give_back(w, conn));
                return LoginCheckOutcome::No(error);
            }
            LoggedIn::GaveUp => {
                in_hand.into_iter().for_each(|conn| pool.give_back(w, conn));
                return LoginCheckOutcome::GaveUp;
            }
            LoggedIn::Unknown => return in_hand.map_or(LoginCheckOutcome::Again, |conn| LoginCheckOutcome::Yes(Some(conn))),
            LoggedIn::NoRoom => {}
        }
    }
    let place = match in_hand.or_else(|| pool.take_rested(w)) {
        Some(conn) => lease::bring_home(w, conn).await,
        None => None,
    };
    // Nothing is known and nothing is at hand: who gets a connection later asks.
    let Some(conn) = place else { return LoginCheckOutcome::Yes(None) };
    lease::part(w, conn).await;
    match log_in(w, pool, node, &gives_up).await {
        LoggedIn::Yes(conn) => LoginCheckOutcome::Yes(Some(conn)),
        LoggedIn::Refused(error) => LoginCheckOutcome::No(error),
        LoggedIn::GaveUp => LoginCheckOutcome::GaveUp,
        LoggedIn::Unknown | LoggedIn::NoRoom => LoginCheckOutcome::Again,
    }
}

/// The outcome of a login.
enum LoggedIn {
    Yes(ServerConn),
    /// It shuts the client out.
    Refused(OpenError),
    /// The server has no room, or a limit of connections is reached.
    NoRoom,
    Unknown,
    GaveUp,
}

/// Logs in under a permit that the caller has. Not cancel safe.
async fn log_in(w: &Rc<Worker>, pool: &Arc<ConnPool>, node: u16, gives_up: impl Fn() -> bool) -> LoggedIn {
    let begun_ms = w.now_ms();
    let mut opening = Box::pin(lease::open(w, pool, node, &[]));
    let Some(opened) = lease::unless(w, opening.as_mut(), gives_up).await else {
        drop(opening);
        pool.release_permit(w);
        return LoggedIn::GaveUp;
    };
    match opened {
        Ok(conn) => LoggedIn::Yes(conn),
        Err(error) if is_final(w, pool, &error, begun_ms).await => LoggedIn::Refused(error),
        Err(error) if error.is_full() => LoggedIn::NoRoom,
        Err(_) => LoggedIn::Unknown,
    }
}

/// True if a login that failed shuts the client out. Not cancel safe.
async fn is_final(w: &Worker, pool: &Arc<ConnPool>, error: &OpenError, begun_ms: u64) -> bool {
    let has_secret = || w.secret_for_server(&pool.key.user, Some(&pool.key.client_database)).is_some();
    let why = match error {
        // It let the user in unasked before.
        OpenError::Secret { .. } if !has_secret() => Some(LoginDenial::Password),
        // A server says the same if it is full, if Weir's own connections have reached a limit, and if that limit is none at all.
        error if error.is_full() => {
            let deadline = Instant::now() + LIMITS_LIMIT;
            let asked = inquiry::may_connect(w, &pool.key.user, &pool.key.database, deadline).await;
            asked.is_ok_and(|may| may == inquiry::ConnectRight::Withdrawn).then_some(LoginDenial::Right)
        }
        _ => None,
    };
    why.into_iter().for_each(|why| pool.withdraw(w, why, begun_ms));
    pool.is_withdrawn()
}
