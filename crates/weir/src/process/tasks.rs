//! A worker's tasks, its mail, and its end.

use crate::client::peer_cancels;
use crate::log::Level;
use crate::process::{acceptor, housekeeping};
use crate::runtime::lease;
use crate::runtime::pool::ConnPool;
use crate::runtime::pool::conn_opening;
use crate::runtime::shared::{ProxyShutdown, TerminationTarget, WorkerMessage};
use crate::runtime::stores::WorkerStores;
use crate::runtime::worker::{SessionEntry, Worker};
use crate::server::{listen_task, store_conn};
use crate::traffic::timeouts;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use subtle::ConstantTimeEq;
use weir_io::reactor::{NO_TASK, TaskId};
use weir_session::status::SessionActivity;
use weir_wire::startup_packet::CancelSender;

/// Rounds for closing the listening sockets at the end; usually two suffice.
const LAST_TURNS_MAX: u32 = 16;

const PAUSED_PERIOD: Duration = Duration::from_millis(50);

pub fn run(w: &Rc<Worker>) -> io::Result<()> {
    w.reactor.spawn(housekeeping::housekeep(w.clone()));
    w.listening.hub_opener.set(w.reactor.spawn(listen_task::open_all(w.clone())));
    if let Some(stores) = &w.stores {
        for at in 0..stores.shelves.len() {
            let attend = move |w, stores| store_conn::attend(w, stores, at);
            keep(w, "a store of answers", stores, attend, move |w, stores| store_conn::give_up(w, stores, at));
        }
        if w.id == 0 && !stores.is_shared {
            let text = "answers in the store are this Weir's alone: without memqcache_invalidation = wal it is not shared";
            w.shared.log.say(Level::Log, format_args!("{text}"));
        }
    }
    loop {
        if w.reactor.turn()? {
            read_mail(w);
        }
        for task in w.reactor.take_panicked() {
            after_panic(w, task);
        }
        match w.shared.stop_mode() {
            ProxyShutdown::No => {}
            ProxyShutdown::Smart | ProxyShutdown::Fast if is_needed(w) => {}
            ProxyShutdown::Smart | ProxyShutdown::Fast | ProxyShutdown::Immediate => return end(w),
        }
    }
}

fn keep<F: Future<Output = ()> + 'static>(
    w: &Rc<Worker>,
    name: &'static str,
    stores: &Rc<WorkerStores>,
    begin: impl Fn(Rc<Worker>, Rc<WorkerStores>) -> F + 'static,
    mend: impl Fn(&Worker, &WorkerStores) + 'static,
) {
    let (worker, ours) = (w.clone(), stores.clone());
    let begin = move |pause| {
        let (w, task) = (worker.clone(), begin(worker.clone(), ours.clone()));
        async move {
            w.reactor.sleep(pause).await;
            task.await;
        }
    };
    let (worker, theirs) = (w.clone(), stores.clone());
    w.tasks.keep(&w.reactor, name, begin, move || mend(&worker, &theirs));
}

/// True while any worker has clients: they may need the first worker's tasks, or a server connection of any worker.
fn is_needed(w: &Worker) -> bool {
    w.shared.mailboxes.iter().any(|mailbox| mailbox.sessions.load(Ordering::SeqCst) > 0)
}

/// Closes server connections, shuts the listening sockets, and sends all remaining bytes. A pending ring request keeps its socket
/// open beyond the process, and a restarted proxy could not listen on the port.
fn end(w: &Worker) -> io::Result<()> {
    for pool in w.shared.pools.all() {
        // Other event loops close their own.
        let own = pool.retire(|conn, _| conn.transport.home == w.id);
        own.into_iter().for_each(|conn| w.close_conn(conn));
    }
    let lines = w.inquiry.lanes.borrow_mut().take_all();
    lines.into_iter().for_each(|line| line.talk.part(w));
    // Other workers may wait for this one's clients.
    w.shared.tell_all(|| WorkerMessage::Wake(NO_TASK));
    for _ in 0..LAST_TURNS_MAX {
        if w.reactor.with_ring(true, |ring| ring.shut_all()) {
            break;
        }
        w.reactor.last_turn()?;
    }
    w.reactor.last_turn()
}

/// Releases what a panicked session held: its own place, and its server connection's place in the pool.
fn after_panic(w: &Worker, task: TaskId) {
    if let Some(name) = w.tasks.after_panic(&w.reactor, task) {
        w.shared.log.say(Level::Error, format_args!("the task for {name} ended by a fault in the proxy; it is begun again"));
        return;
    }
    let entry = w.entries.borrow().values().find(|entry| entry.task.get() == task).cloned();
    let Some(entry) = entry else { return };
    w.shared.log.say(Level::Error, format_args!("session {} ended by a fault in the proxy", entry.status.pid));
    if let Some(conn) = entry.conn.take() {
        let has_it = |pool: &Arc<ConnPool>| pool.statuses().iter().any(|status| status.serial == conn.serial);
        if let Some(pool) = w.shared.pools.all().into_iter().find(has_it) {
            pool.forget(w, conn.serial);
        }
    }
    w.leave(&entry);
    w.shared.session_statuses.remove(entry.status.pid);
    w.client_gone();
}

fn read_mail(w: &Rc<Worker>) {
    for message in w.mailbox().take() {
        match message {
            WorkerMessage::Tcp(..) | WorkerMessage::Unix(_) => acceptor::receive_mail(w, message),
            WorkerMessage::Wake(task) => w.reactor.wake(task),
            WorkerMessage::Release { ticket, worker, task } => {
                let own = w.clone();
                w.reactor.spawn(async move {
                    ticket.release(&own.reactor).await;
                    own.shared.mailboxes[usize::from(worker)].send(WorkerMessage::Wake(task));
                });
            }
            WorkerMessage::Cancel { pid, key, bearer } => cancel(w, pid, &key, bearer),
            WorkerMessage::Interrupt(pid) => interrupt(w, pid),
            WorkerMessage::Deadlocked(pid) => timeouts::break_deadlock(w, pid),
            WorkerMessage::Refresh => w.refresh(),
            WorkerMessage::Stop => {
                w.acceptors.borrow().iter().for_each(|task| w.reactor.wake(*task));
                stop_sessions(w);
                if w.id == 0 && w.shared.stop_mode() == ProxyShutdown::Smart {
                    stop_when_paused(w);
                }
            }
            WorkerMessage::Kill(victim) => kill(w, &victim),
            WorkerMessage::Pause(database) => {
                if database.is_none() {
                    w.shared.log.say(Level::Log, format_args!("all databases are paused (SIGUSR1, or gracefully over PCP)"));
                }
                w.pause(database.as_deref());
            }
            // As in PgBouncer: a stop is not undone.
            WorkerMessage::Resume(_) if w.shared.stop_mode() != ProxyShutdown::No => {}
            WorkerMessage::Resume(database) => {
                if database.is_none() {
                    w.shared.log.say(Level::Log, format_args!("databases go on (SIGUSR2, or after that)"));
                }
                w.resume(database.as_deref());
            }
            WorkerMessage::Renew(database) => w.renew_pools(database.as_deref()),
            WorkerMessage::Suspended(told) => {
                w.entries.borrow().values().for_each(|entry| w.reactor.wake(entry.task.get()));
                told.fetch_add(1, Ordering::SeqCst);
            }
            WorkerMessage::Close(conn) => w.close_conn(conn),
            WorkerMessage::ResetStatements => w.seen.reset(),
            WorkerMessage::CloseListeners => w.acceptors.borrow().iter().for_each(|task| w.reactor.wake(*task)),
        }
    }
}

/// Ends all sessions; in a smart stop only those waiting for a server connection that none will get.
fn stop_sessions(w: &Worker) {
    if w.shared.stop_mode() < ProxyShutdown::Fast {
        if w.shared.drains_servers() {
            dismiss_waiting(w);
        }
        return;
    }
    // Logins that wait for a server have no entry yet.
    for task in w.view_waiters.take() {
        w.reactor.wake(task);
    }
    let final_error = Box::new(lease::ended());
    for entry in w.entries.borrow().values() {
        *entry.final_error.borrow_mut() = Some(final_error.clone());
        w.reactor.wake(entry.task.get());
    }
}

/// Ends the waiting sessions; later ones check themselves. Consoles are spared, as they may wait for such an end.
fn dismiss_waiting(w: &Worker) {
    let console = w.peek_config().admin.database.clone();
    let is_waiting = |entry: &&Rc<SessionEntry>| {
        entry.status.doing() == SessionActivity::WaitingForConnection && *entry.status.database != *console
    };
    for entry in w.entries.borrow().values().filter(is_waiting) {
        *entry.final_error.borrow_mut() = Some(Box::new(lease::ended()));
        w.reactor.wake(entry.task.get());
    }
}

/// Makes a smart stop fast once all databases are paused and no server connection is in use: paused clients cannot finish.
fn stop_when_paused(w: &Rc<Worker>) {
    let own = w.clone();
    w.reactor.spawn(async move {
        let is_used = |pool: &Arc<ConnPool>| pool.is_shared() && pool.counts().1 > 0;
        while !own.shared.pause_state.is_all_paused() || own.shared.pools.all().iter().any(is_used) {
            own.reactor.sleep(PAUSED_PERIOD).await;
        }
        if own.shared.stop_mode() == ProxyShutdown::Smart {
            own.shared.begin_stop(ProxyShutdown::Fast);
        }
    });
}

/// Ends sessions for an administrator. The console's own sessions end by number only.
fn kill(w: &Rc<Worker>, victim: &TerminationTarget) {
    let final_error = Box::new(lease::ended());
    let console = w.peek_config().admin.database.clone();
    for entry in w.entries.borrow().values() {
        let is_meant = match victim {
            TerminationTarget::Client(pid) => entry.status.pid == *pid,
            TerminationTarget::Database(database) => entry.status.database == *database && *database.as_ref() != *console,
            TerminationTarget::User { user, until_ms } => {
                entry.status.server_user == *user && entry.since_ms <= *until_ms && *entry.status.database != *console
            }
            TerminationTarget::All => *entry.status.database != *console,
        };
        if is_meant {
            // The server must not go on working for it.
            if matches!(victim, TerminationTarget::Client(_)) && entry.status.doing() == SessionActivity::Executing {
                conn_opening::forward_cancel(w, &entry.handle);
            }
            *entry.final_error.borrow_mut() = Some(final_error.clone());
            w.reactor.wake(entry.task.get());
        }
    }
}

fn cancel(w: &Rc<Worker>, pid: u32, key: &[u8], bearer: CancelSender) {
    let entries = w.entries.borrow();
    let Some(entry) = entries.get(&pid).filter(|entry| bool::from(entry.key.ct_eq(key))) else {
        // The number may also be a session of another Weir.
        if bearer == CancelSender::Client && peer_cancels::pass_cancel(w, pid, key) {
            return;
        }
        let text = format_args!("wrong key in cancel request for process {pid}");
        return w.shared.log.say(Level::Log, text);
    };
    conn_opening::forward_cancel(w, &entry.handle);
}

fn interrupt(w: &Rc<Worker>, pid: u32) {
    if let Some(entry) = w.entries.borrow().get(&pid) {
        conn_opening::forward_cancel(w, &entry.handle);
    }
}
