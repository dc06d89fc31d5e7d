//! Orders of operators, whoever asks: the console, PCP. These read the order and word the answer; checks and deeds are here.
//!
//! `node_acts` are about nodes, and wait for their end; here is what is done at once. Whoever must wait asks for the end in its own event loop.

pub mod heard_acts;
pub mod node_acts;
pub mod online_recovery;

use crate::runtime::shared::{ProxyShutdown, SharedState, TerminationTarget, WorkerMessage};
use crate::runtime::worker::Worker;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use weir_session::status::{SessionActivity, SessionStatus};

/// Why an order is not carried out: always the operator's fault.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ActError {
    #[error("no such database: {0}")]
    NoDatabase(String),
    #[error("cannot {0} the administration console itself")]
    ConsoleItself(&'static str),
    #[error("the proxy is shutting down")]
    ShuttingDown,
    #[error("already paused")]
    AlreadyPaused,
    #[error("already suspended")]
    AlreadySuspended,
    #[error("nothing is paused")]
    NothingPaused,
    #[error("database \"{0}\" is not paused")]
    NotPaused(String),
    #[error("database \"{0}\" is not paused; all are, RESUME without a name ends that")]
    AllPaused(String),
    #[error("there is no client {0}, see SHOW CLIENTS")]
    NoClient(u32),
    #[error("client {0} runs no statement now")]
    NothingRuns(u32),
    #[error("query cache is not enabled")]
    NoCache,
}

/// The thread that changes pools: only a worker has the event loop that their connections close in.
#[derive(Clone, Copy)]
pub enum PoolHand<'a> {
    /// The worker that asks: it is done at once.
    Own(&'a Worker),
    /// The first one, by mail: databases are paused when `pause_state` says so.
    Mail,
}

impl PoolHand<'_> {
    fn pause(self, shared: &SharedState, database: Option<&str>) {
        match self {
            PoolHand::Own(w) => w.pause(database),
            PoolHand::Mail => shared.tell_first(WorkerMessage::Pause(database.map(Arc::from))),
        }
    }

    fn resume(self, shared: &SharedState, database: Option<&str>) {
        match self {
            PoolHand::Own(w) => w.resume(database),
            PoolHand::Mail => shared.tell_first(WorkerMessage::Resume(database.map(Arc::from))),
        }
    }

    fn renew(self, shared: &SharedState, database: Option<&str>) {
        match self {
            PoolHand::Own(w) => w.renew_pools(database),
            PoolHand::Mail => shared.tell_first(WorkerMessage::Renew(database.map(Arc::from))),
        }
    }
}

/// Names of all databases that are used, listed or closed, and the console's.
pub fn databases(shared: &SharedState) -> BTreeSet<Arc<str>> {
    let config = shared.config.load();
    let used = shared.pools.all().into_iter().map(|pool| pool.key.client_database.clone());
    let asked = shared.session_statuses.all().into_iter().map(|status| status.database.clone());
    let console = Arc::<str>::from(config.admin.database.as_str());
    let named = config.databases.iter().map(|(name, _)| name.clone());
    used.chain(asked).chain(named).chain(shared.pause_state.closed()).chain([console]).collect()
}

/// Refuses the console, and names that are neither used nor listed.
fn check_database(shared: &SharedState, verb: &'static str, database: Option<&str>) -> Result<(), ActError> {
    let Some(name) = database else { return Ok(()) };
    if !databases(shared).contains(name) {
        return Err(ActError::NoDatabase(name.to_string()));
    }
    let console = &shared.config.load().admin.database;
    if !console.is_empty() && console == name { Err(ActError::ConsoleItself(verb)) } else { Ok(()) }
}

fn check_runs(shared: &SharedState) -> Result<(), ActError> {
    if shared.stop_mode() == ProxyShutdown::No { Ok(()) } else { Err(ActError::ShuttingDown) }
}

/// Lets nobody have a server connection to a database, or to any. The end: `has_conns` says no.
pub fn pause(shared: &SharedState, hand: PoolHand<'_>, database: Option<&str>) -> Result<(), ActError> {
    check_database(shared, "pause", database)?;
    if shared.pause_state.is_all_paused() {
        return Err(ActError::AlreadyPaused);
    }
    hand.pause(shared, database);
    Ok(())
}

/// True while there are connections that clients share.
pub fn has_conns(shared: &SharedState, database: Option<&str>) -> bool {
    shared.pools.of_client_database(database).iter().any(|pool| pool.is_shared() && pool.counts().1 > 0)
}

/// Ends a pause; without a name all of them, and a suspension.
pub fn resume(shared: &SharedState, hand: PoolHand<'_>, database: Option<&str>) -> Result<(), ActError> {
    check_database(shared, "resume", database)?;
    check_runs(shared)?;
    let gates = &shared.pause_state;
    match database {
        None if !gates.is_any_paused() && !shared.session_statuses.suspension.is_on() => return Err(ActError::NothingPaused),
        Some(name) if !gates.own(name).paused && gates.is_all_paused() => return Err(ActError::AllPaused(name.to_string())),
        Some(name) if !gates.own(name).paused => return Err(ActError::NotPaused(name.to_string())),
        Some(_) | None => hand.resume(shared, database),
    }
    Ok(())
}

/// Begins the statistics of statements anew. Each worker does so at its next mail; what it counts until then is not shown.
pub fn reset_statements(shared: &SharedState) {
    shared.statement_boards.iter().for_each(|board| board.hide());
    shared.tell_all(|| WorkerMessage::ResetStatements);
}

/// A suspension that is under way.
pub struct SuspendOrder(Arc<AtomicU32>);

/// Stops all sessions between two statements, also within transactions.
pub fn suspend(shared: &SharedState) -> Result<SuspendOrder, ActError> {
    check_runs(shared)?;
    shared.suspend().map(SuspendOrder).ok_or(ActError::AlreadySuspended)
}

impl SuspendOrder {
    /// True if all stand still but the one who asks, or the suspension was ended.
    pub fn is_done(&self, shared: &SharedState, asker_pid: u32) -> bool {
        let executes = |session: &Arc<SessionStatus>| session.pid != asker_pid && session.doing() == SessionActivity::Executing;
        let is_known = self.0.load(Ordering::SeqCst) as usize == shared.mailboxes.len();
        !shared.session_statuses.suspension.is_on() || is_known && !shared.session_statuses.all().iter().any(executes)
    }
}

/// Lets no new client come to a database.
pub fn disable(shared: &SharedState, database: &str) -> Result<(), ActError> {
    check_database(shared, "disable", Some(database))?;
    shared.pause_state.set_disabled(database, true);
    Ok(())
}

pub fn enable(shared: &SharedState, database: &str) -> Result<(), ActError> {
    check_database(shared, "enable", Some(database))?;
    shared.pause_state.set_disabled(database, false);
    Ok(())
}

/// Has every server connection closed when it comes back. The end: `has_doomed` says no.
pub fn reconnect(shared: &SharedState, hand: PoolHand<'_>, database: Option<&str>) -> Result<(), ActError> {
    check_database(shared, "reconnect", database)?;
    hand.renew(shared, database);
    // Ask a server again for the greetings of clients.
    shared.tell_all(|| WorkerMessage::Refresh);
    Ok(())
}

/// Decides if somebody may wait for the end of `reconnect`.
pub fn check_wait(shared: &SharedState, database: Option<&str>) -> Result<(), ActError> {
    check_database(shared, "wait for", database)
}

/// True while there are connections that are to be closed.
pub fn has_doomed(shared: &SharedState, database: Option<&str>) -> bool {
    shared.pools.of_client_database(database).iter().any(|pool| pool.is_shared() && pool.has_doomed())
}

/// Clients that come meanwhile wait for RESUME.
pub fn kill(shared: &SharedState, hand: PoolHand<'_>, database: Option<&str>) -> Result<(), ActError> {
    check_database(shared, "kill", database)?;
    hand.pause(shared, database);
    end_clients(shared, &database.map_or(TerminationTarget::All, |name| TerminationTarget::Database(name.into())));
    Ok(())
}

pub fn kill_client(shared: &SharedState, pid: u32) -> Result<(), ActError> {
    if shared.session_statuses.get(pid).is_none() {
        return Err(ActError::NoClient(pid));
    }
    end_clients(shared, &TerminationTarget::Client(pid));
    Ok(())
}

/// Cancels the statement that a client runs or waits with, as its own cancel request would. The client hears of it, not who asked.
pub fn cancel_client(shared: &SharedState, pid: u32) -> Result<(), ActError> {
    let status = shared.session_statuses.get(pid).ok_or(ActError::NoClient(pid))?;
    if !runs(&status) {
        return Err(ActError::NothingRuns(pid));
    }
    shared.mailboxes[usize::from(status.worker)].send(WorkerMessage::Interrupt(pid));
    Ok(())
}

/// True while a client has a statement under way, also one that waits for a server connection.
pub fn runs(status: &SessionStatus) -> bool {
    match status.doing() {
        SessionActivity::Executing | SessionActivity::WaitingForConnection => true,
        SessionActivity::Idle | SessionActivity::IdleInTransaction => false,
    }
}

fn end_clients(shared: &SharedState, whom: &TerminationTarget) {
    shared.mailboxes.iter().for_each(|mailbox| mailbox.send(WorkerMessage::Kill(whom.clone())));
}

/// Stops the proxy when no server connection is in use. With all databases paused, a smart stop waits for servers only.
pub fn stop_drained(shared: &Arc<SharedState>, hand: PoolHand<'_>) {
    hand.pause(shared, None);
    shared.begin_stop(ProxyShutdown::Smart);
}

/// Reads the files again; gives the note that some parameters need a restart. Blocks: not for a worker's thread, nor for the control thread.
pub fn reload(shared: &SharedState) -> Result<Option<String>, String> {
    let left = shared.reload()?;
    let note = || format!("these parameters cannot be changed without a restart: {}", left.join(", "));
    Ok((!left.is_empty()).then(note))
}

/// Forgets all cached results.
pub fn clear_cache(shared: &SharedState) -> Result<(), ActError> {
    let answers = shared.cached_results.as_ref().ok_or(ActError::NoCache)?;
    answers.clear(shared.positions.next_round());
    Ok(())
}
