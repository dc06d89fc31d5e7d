//! Has servers confirm now and then that they still let a user in, before new clients get open connections.
//!
//! A real login replaces a connection of the pool, so that no limit is exceeded. `recent_logins` decides when.

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

const LOGIN_LIMIT: Duration = Duration::from_secs(3);
const LIMITS_LIMIT: Duration = Duration::from_secs(2);

enum LoginCheckOutcome {
    /// Open connections may be used: this one, if in hand.
    Yes(Option<ServerConn>),
    /// The connection in hand made room for an inconclusive login.
    Again,
    No(OpenError),
    GaveUp,
}

/// Leases like `lease::lease_conn`, for a client that came at `came_ms`. Not cancel safe: a server connection may be on its way.
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

/// Has a server confirm the user at login, if that is due. Error: the user is refused. A server that cannot be asked keeps out only users
/// it refused last. If all connections are in use, the first statement asks. Not cancel safe.
pub async fn at_login(w: &Rc<Worker>, pool: &Arc<ConnPool>, node: u16, gives_up: impl Fn() -> bool) -> Result<(), OpenError> {
    let until = Instant::now() + LOGIN_LIMIT;
    let gives_up = || {
        w.reactor.wake_at(until);
        w.now() >= until || gives_up()
    };
    match vouch(w, pool, node, (w.now_ms(), None), gives_up).await {
        LoginCheckOutcome::Yes(Some(conn)) => pool.give_back(w, conn),
        // Spares other clients the wait. A client that left by itself says nothing of the server.
        LoginCheckOutcome::GaveUp if w.now() >= until => pool.note_silent(w),
        LoginCheckOutcome::Yes(None) | LoginCheckOutcome::Again | LoginCheckOutcome::GaveUp => {}
        LoginCheckOutcome::No(error) => return Err(error),
    }
    Ok(())
}

/// A login for all who wait, who are told of its end on drop.
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
                // Boxed: sessions that only wait hold no memory for a login.
                return Box::pin(ask(w, pool, node, in_hand, gives_up)).await;
            }
        }
    }
}

/// Logs in beside the existing connections or in the place of an idle one. Not cancel safe.
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
                // Keeps the size of the pool.
                in_hand.or_else(|| pool.take_surplus(w)).into_iter().for_each(|conn| w.close_conn(conn));
                return LoginCheckOutcome::Yes(Some(conn));
            }
            LoggedIn::Refused(error) => {
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
    // A later lease asks.
    let Some(conn) = place else { return LoginCheckOutcome::Yes(None) };
    lease::part(w, conn).await;
    match log_in(w, pool, node, &gives_up).await {
        LoggedIn::Yes(conn) => LoginCheckOutcome::Yes(Some(conn)),
        LoggedIn::Refused(error) => LoginCheckOutcome::No(error),
        LoggedIn::GaveUp => LoginCheckOutcome::GaveUp,
        LoggedIn::Unknown | LoggedIn::NoRoom => LoginCheckOutcome::Again,
    }
}

enum LoggedIn {
    Yes(ServerConn),
    Refused(OpenError),
    NoRoom,
    Unknown,
    GaveUp,
}

/// Not cancel safe.
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

/// True if a failed login shuts the client out. Not cancel safe.
async fn is_final(w: &Worker, pool: &Arc<ConnPool>, error: &OpenError, begun_ms: u64) -> bool {
    let has_secret = || w.secret_for_server(&pool.key.user, Some(&pool.key.client_database)).is_some();
    let why = match error {
        // The server asked for no password before.
        OpenError::Secret { .. } if !has_secret() => Some(LoginDenial::Password),
        // The error is the same for a full server, a reached limit, and a limit of 0.
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
