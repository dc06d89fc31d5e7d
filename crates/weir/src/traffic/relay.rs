//! The task of a session: steps of its loop (`weir_session::pump`), and the waits between them.

use crate::traffic::served::ServedSession;
use crate::traffic::{ask_outcome, checkout_wait, session_end, shard_commit, shard_snapshots};
use std::pin::Pin;
use weir_io::reactor::parked;
use weir_session::fault::{ErrorReport, ErrorSeverity};
use weir_session::flow::ConnRequirement;
use weir_session::host::{Level, LogOrigin};
use weir_session::loss::owed_error;
use weir_session::pump::{SessionEnd, SessionStep};
use weir_session::teardown::let_go;

/// Boxed: sessions that do not wait hold no memory for it.
type Wait<'a> = Pin<Box<dyn Future<Output = RelayFlow> + 'a>>;

enum RelayAction<'a> {
    Rests,
    Waits(Wait<'a>),
    Ends,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum RelayFlow {
    GoesOn,
    Ends,
}

/// Serves one client until it leaves. Not cancel safe: it owns the server connection.
///
/// Most sessions rest, so the task is small: an `async` block has its captures once, where an `async fn` has its arguments twice, and
/// only a pointer lives beside them while parked.
#[allow(clippy::manual_async_fn)]
pub fn serve(mut served: ServedSession) -> impl Future<Output = ()> {
    async move {
        let task = served.w.reactor.current_task();
        served.sockets.client.set_task(task);
        served.s.handle.task.set(task);
        loop {
            // An earlier binding would live in the parked task.
            let Some(wait) = (match step_on(&mut served) {
                RelayAction::Ends => break,
                RelayAction::Rests => None,
                RelayAction::Waits(wait) => Some(wait),
            }) else {
                parked().await;
                continue;
            };
            if wait.await == RelayFlow::Ends {
                break;
            }
        }
        session_end::dismiss(served);
    }
}

fn step_on(served: &mut ServedSession) -> RelayAction<'_> {
    // Also before the first step: a login may have waited.
    if served.s.handle.final_error.borrow().is_some()
        && let Some(final_error) = served.s.handle.final_error.take()
    {
        return RelayAction::Waits(Box::pin(end(served, *final_error)));
    }
    match served.pump().step_on() {
        SessionStep::Park => RelayAction::Rests,
        SessionStep::Yield => {
            served.w.reactor.wake(served.s.handle.task.get());
            RelayAction::Rests
        }
        SessionStep::Need(need) => RelayAction::Waits(Box::pin(get(served, need))),
        SessionStep::Doubt => RelayAction::Waits(Box::pin(find(served))),
        SessionStep::Participants => RelayAction::Waits(Box::pin(commit(served))),
        SessionStep::Snapshots => RelayAction::Waits(Box::pin(look(served))),
        SessionStep::End(SessionEnd::Fault(fault)) => RelayAction::Waits(Box::pin(end(served, fault))),
        SessionStep::End(SessionEnd::Client) => {
            let_go(&mut served.s, &served.w);
            RelayAction::Ends
        }
    }
}

/// Not cancel safe.
async fn get(served: &mut ServedSession, need: ConnRequirement) -> RelayFlow {
    match checkout_wait::wait(served, need).await {
        Ok(()) => RelayFlow::GoesOn,
        Err(fault) => fail(served, fault).await,
    }
}

/// Not cancel safe.
async fn look(served: &mut ServedSession) -> RelayFlow {
    match shard_snapshots::take(served).await {
        Ok(()) => RelayFlow::GoesOn,
        Err(fault) => fail(served, fault).await,
    }
}

/// Not cancel safe.
async fn fail(served: &mut ServedSession, fault: ErrorReport) -> RelayFlow {
    // A cancelled wait fails only its statement.
    let outcome =
        if fault.severity == ErrorSeverity::Error { owed_error::fail_next(&mut served.s, &served.w, &fault) } else { Err(fault) };
    match outcome {
        Ok(()) => RelayFlow::GoesOn,
        Err(fault) => Box::pin(end(served, fault)).await,
    }
}

/// Not cancel safe.
async fn find(served: &mut ServedSession) -> RelayFlow {
    ask_outcome::find(served).await;
    RelayFlow::GoesOn
}

/// Not cancel safe.
async fn commit(served: &mut ServedSession) -> RelayFlow {
    match shard_commit::go_on(served).await {
        Ok(()) => RelayFlow::GoesOn,
        Err(fault) => Box::pin(end(served, fault)).await,
    }
}

/// Not cancel safe.
async fn end(served: &mut ServedSession, fault: ErrorReport) -> RelayFlow {
    say_final_error(served, &fault);
    let_go(&mut served.s, &served.w);
    session_end::tell_all(served).await;
    RelayFlow::Ends
}

fn say_final_error(served: &mut ServedSession, fault: &ErrorReport) {
    let ServedSession { s, w, .. } = &*served;
    let (user, database) = (&*s.account.client_user, &*s.account.client_database);
    let who = LogOrigin { user, database, session: s.handle.status.pid, ..LogOrigin::default() };
    w.log(Level::Log, &who, format_args!("session ends: {fault}"));
    served.pump().say_final_error(fault);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The room of a task that is made of a session.
    fn room<F: Future>(_: impl FnOnce(ServedSession) -> F) -> usize {
        size_of::<F>()
    }

    #[test]
    fn the_task_of_a_session_takes_little_more_room_than_what_it_owns() {
        assert!(room(serve) <= size_of::<ServedSession>() + 40, "{} bytes", room(serve));
    }
}
