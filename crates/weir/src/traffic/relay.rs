//! The task of a session: one step of its loop after the other (`weir_session::pump`), and the waits between them.

use crate::traffic::checkout;
use crate::traffic::outcome;
use crate::traffic::served::Served;
use crate::traffic::teardown;
use weir_io::reactor::parked;
use weir_session::fault::{Fault, Severity};
use weir_session::host::{Level, Who};
use weir_session::owed;
use weir_session::pump::{End, Step};
use weir_session::teardown::let_go;

/// Serves one client until it leaves. Runs as the session's own task. Not cancel safe: it owns the server connection.
pub async fn serve(mut served: Served) {
    let task = served.w.reactor.current_task();
    served.sockets.client.set_task(task);
    served.s.handle.task.set(task);
    let end = loop {
        // Also before the first step: a login may have waited.
        if served.s.handle.final_error.borrow().is_some()
            && let Some(final_error) = served.s.handle.final_error.take()
        {
            break End::Fault(*final_error);
        }
        match served.pump().step_on() {
            Step::Park => parked().await,
            Step::Yield => {
                served.w.reactor.wake(task);
                parked().await;
            }
            // Boxed: the room a wait takes is not held by sessions that do not wait.
            Step::Need(need) => match Box::pin(checkout::wait(&mut served, need)).await {
                Ok(()) => continue,
                // The wait was cancelled: only the statement that waited fails.
                Err(fault) if fault.severity == Severity::Error => match owed::fail_next(&mut served.s, &served.w, &fault) {
                    Ok(()) => continue,
                    Err(fault) => break End::Fault(fault),
                },
                Err(fault) => break End::Fault(fault),
            },
            // Boxed for the same reason.
            Step::Doubt => Box::pin(outcome::find(&mut served)).await,
            Step::End(end) => break end,
        }
    };
    if let End::Fault(fault) = &end {
        say_final_error(&mut served, fault);
    }
    let_go(&mut served.s, &served.w);
    if matches!(end, End::Fault(_)) {
        Box::pin(teardown::tell_all(&mut served)).await;
    }
    teardown::dismiss(served);
}

fn say_final_error(served: &mut Served, fault: &Fault) {
    let Served { s, w, .. } = &*served;
    let (user, database) = (&*s.account.client_user, &*s.account.client_database);
    let who = Who { user, database, session: s.handle.status.pid, ..Who::default() };
    w.log(Level::Log, &who, format_args!("session ends: {fault}"));
    served.pump().say_final_error(fault);
}
