//! Ends statements, transactions and sessions that exceed a time limit. `weir_session::time_limits` decides.

use crate::runtime::pool::conn_opening;
use crate::runtime::pool::server_conn::{ConnStatus, MessageConn};
use crate::runtime::shared::ProxyShutdown;
use crate::runtime::worker::{SessionEntry, Worker};
use crate::server::inquiry;
use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use weir_session::fault::{ErrorReport, sqlstate};
use weir_session::handle::OverdueStatement;
use weir_session::loss::PossibleCommit;
use weir_session::metrics::WorkerCounter;
use weir_session::session_state::show_unfinished;
use weir_session::status::SessionActivity;
use weir_session::task::Us;
use weir_session::time_limits::{
    ExceededTimeLimit, SessionTimes, UNFINISHED_SHOWN_MS, UnfinishedInput, look_period_ms, overtime,
};
use weir_session::timing::held_too_long;

/// Time for a server to obey a cancel request; then the session ends.
const CANCEL_LIMIT: Duration = Duration::from_secs(10);

const ASK_LIMIT: Duration = Duration::from_secs(2);

/// Time for which a question's connection is kept.
const REST_LIMIT: Duration = Duration::from_secs(10);

const FULL_PAUSE: Duration = Duration::from_secs(1);

/// Server processes that wait for a standby. Without `pg_monitor` a user sees only its own.
const WAITING: &str = "SELECT pid FROM pg_catalog.pg_stat_get_activity(NULL::pg_catalog.int4) \
    WHERE wait_event OPERATOR(pg_catalog.=) 'SyncRep'";

pub async fn watch(w: Rc<Worker>) {
    let questions = Rc::new(TimeoutQuestions::default());
    while w.shared.stop_mode() <= ProxyShutdown::Smart {
        let period_ms = look_period_ms(&w.peek_config());
        w.reactor.sleep(Duration::from_millis(period_ms)).await;
        let entries: Vec<Rc<SessionEntry>> = w.entries.borrow().values().cloned().collect();
        for entry in entries {
            look_at(&w, &questions, &entry);
        }
        questions.close_unused(&w);
    }
}

fn look_at(w: &Rc<Worker>, questions: &Rc<TimeoutQuestions>, entry: &Rc<SessionEntry>) {
    let Some(pools) = &entry.pools else { return };
    if matches!(*entry.overdue.borrow(), OverdueStatement::Never | OverdueStatement::Asking(_)) {
        return;
    }
    if w.peek_config().fast_close && keeps_doomed(entry) {
        let text = "terminating connection: its server connection is to be closed (server_fast_close)";
        return dismiss(w, entry, ErrorReport::fatal(sqlstate::ADMIN_SHUTDOWN, text));
    }
    let spent = spent(entry, w.now_us());
    if spent.unfinished != UnfinishedInput::Nothing && spent.quiet >= UNFINISHED_SHOWN_MS {
        show_unfinished(entry, w);
    }
    if let Some(fault) = held_too_long(entry, w.now_us()).filter(|_| !spent.waits) {
        return dismiss(w, entry, fault);
    }
    let mut limits = pools.limits.get();
    limits.idle_ms = entry.clock.idle_ms.get().unwrap_or(limits.idle_ms);
    let overtime = overtime(&limits, &spent);
    if overtime.is_some() && ask_first(w, questions, entry) {
        return;
    }
    match overtime {
        None => {}
        Some(ExceededTimeLimit::Statement { limit_ms }) => cancel(w, entry, limit_ms, spent.statement.unwrap_or(0)),
        Some(ExceededTimeLimit::Transaction { limit_ms }) => {
            let text = format!("terminating connection due to transaction timeout: transaction_timeout = {limit_ms} ms");
            dismiss(w, entry, ErrorReport::fatal(sqlstate::TRANSACTION_TIMEOUT, text));
        }
        Some(ExceededTimeLimit::IdleInTransaction { limit_ms }) => {
            let text =
                format!("terminating connection due to idle-in-transaction timeout: idle_transaction_timeout = {limit_ms} ms");
            dismiss(w, entry, ErrorReport::fatal(sqlstate::IDLE_IN_TRANSACTION_TIMEOUT, text));
        }
        Some(ExceededTimeLimit::Idle { limit_ms }) => {
            let text = format!("terminating connection due to client_idle_limit = {limit_ms} ms");
            dismiss(w, entry, ErrorReport::fatal(sqlstate::IDLE_TIMEOUT, text));
        }
    }
}

fn keeps_doomed(entry: &SessionEntry) -> bool {
    let is_doomed = |conn: &Arc<ConnStatus>| conn.doomed.load(Ordering::Relaxed);
    entry.status.doing() == SessionActivity::Idle && entry.conn.borrow().as_ref().is_some_and(is_doomed)
}

fn spent(entry: &SessionEntry, now: Us) -> SessionTimes {
    let ms = |since: Us| now.saturating_sub(since) / 1000;
    let clock = &entry.clock;
    let (unfinished, since) = clock.unfinished.get();
    let unfinished_since = (unfinished != UnfinishedInput::Nothing).then_some(since);
    let quiet_since = entry.active_at.get().max(clock.ready_at.get());
    SessionTimes {
        statement: clock.busy_since.get().or(clock.asked_since.get()).map(ms),
        transaction: clock.transaction_since.get().or(unfinished_since).map(ms),
        quiet: ms(unfinished_since.map_or(quiet_since, |since| quiet_since.max(since))),
        waits: entry.status.doing() == SessionActivity::WaitingForConnection,
        unfinished,
    }
}

/// Asks whether an overdue statement on the primary waits for a standby. True: the question is under way. A cancel request would end that
/// wait, and the server would report success although no standby has the commit.
fn ask_first(w: &Rc<Worker>, questions: &Rc<TimeoutQuestions>, entry: &Rc<SessionEntry>) -> bool {
    let Some(conn) = entry.conn.borrow().clone() else { return false };
    let since = entry.clock.busy_since.get();
    let commits = match *entry.overdue.borrow() {
        OverdueStatement::No => PossibleCommit::No,
        OverdueStatement::Commits => PossibleCommit::May,
        OverdueStatement::Cancelling(_)
        | OverdueStatement::Told
        | OverdueStatement::Asking(_)
        | OverdueStatement::Asked(_)
        | OverdueStatement::Never => return false,
    };
    if since.is_none() || !w.is_primary(conn.address.node) {
        return false;
    }
    if questions.again_at.get().is_some_and(|at| w.now() < at) {
        return true;
    }
    *entry.overdue.borrow_mut() = OverdueStatement::Asking(commits);
    questions.due.borrow_mut().push(TimeoutQuestion { entry: entry.clone(), conn, since, commits });
    if questions.asker.replace(QuestionTaskState::Asks) == QuestionTaskState::Rests {
        w.reactor.spawn(answer_all(w.clone(), questions.clone()));
    }
    true
}

struct TimeoutQuestion {
    entry: Rc<SessionEntry>,
    conn: Arc<ConnStatus>,
    since: Option<Us>,
    commits: PossibleCommit,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum QuestionTaskState {
    #[default]
    Rests,
    Asks,
}

/// A worker's questions to the primary, sent together over one connection: hundreds of overdue statements cost one login.
#[derive(Default)]
struct TimeoutQuestions {
    due: RefCell<Vec<TimeoutQuestion>>,
    asker: Cell<QuestionTaskState>,
    /// Node, connection and time of the last question.
    kept: RefCell<Option<(u16, MessageConn, Instant)>>,
    again_at: Cell<Option<Instant>>,
}

impl TimeoutQuestions {
    /// Takes the questions about the node of the first.
    fn take(&self) -> Vec<TimeoutQuestion> {
        let mut due = self.due.borrow_mut();
        let Some(node) = due.first().map(|question| question.conn.address.node) else { return Vec::new() };
        due.extract_if(.., |question| question.conn.address.node == node).collect()
    }

    fn close_unused(&self, w: &Worker) {
        let is_unused = |(.., asked_at): &mut (u16, MessageConn, Instant)| w.now() >= *asked_at + REST_LIMIT;
        if let Some((_, talk, _)) = self.kept.borrow_mut().take_if(is_unused) {
            talk.part(w);
        }
    }
}

/// Not cancel safe.
async fn answer_all(w: Rc<Worker>, questions: Rc<TimeoutQuestions>) {
    let _asks = QuestionGuard(&questions);
    loop {
        let asked = questions.take();
        let Some(first) = asked.first() else { break };
        let known = waiting_for_standby(&w, &questions, &first.conn).await;
        for TimeoutQuestion { entry, conn, since, commits } in asked {
            // Another statement may run by now.
            if entry.clock.busy_since.get() == since && matches!(*entry.overdue.borrow(), OverdueStatement::Asking(_)) {
                let Some(waiting) = &known else {
                    // A later look asks again.
                    questions.again_at.set(Some(w.now() + FULL_PAUSE));
                    *entry.overdue.borrow_mut() =
                        if commits == PossibleCommit::May { OverdueStatement::Commits } else { OverdueStatement::No };
                    continue;
                };
                let waits = waiting.contains(&conn.pid);
                *entry.overdue.borrow_mut() = if waits { OverdueStatement::Never } else { OverdueStatement::Asked(commits) };
                look_at(&w, &questions, &entry);
            }
        }
    }
}

struct QuestionGuard<'q>(&'q TimeoutQuestions);

impl Drop for QuestionGuard<'_> {
    fn drop(&mut self) {
        self.0.asker.set(QuestionTaskState::Rests);
    }
}

/// Returns the server processes known to wait for a synchronous standby. Processes that Weir may not see, and those of a silent server,
/// count as not waiting. `None`: the server is full.
async fn waiting_for_standby(w: &Worker, questions: &TimeoutQuestions, conn: &ConnStatus) -> Option<HashSet<u32>> {
    let kept = questions.kept.borrow_mut().take();
    if let Some((node, talk, _)) = kept {
        if node == conn.address.node {
            // The kept connection may have ended.
            if let Some(waiting) = ask(w, questions, conn, talk).await {
                return Some(waiting);
            }
        } else {
            talk.part(w);
        }
    }
    match inquiry::talk_to(w, &conn.address, w.now() + ASK_LIMIT).await {
        Ok(talk) => Some(ask(w, questions, conn, talk).await.unwrap_or_default()),
        Err(error) if error.is_full() => None,
        Err(_) => Some(HashSet::new()),
    }
}

/// `None`: the connection failed, and is closed.
async fn ask(w: &Worker, questions: &TimeoutQuestions, conn: &ConnStatus, mut talk: MessageConn) -> Option<HashSet<u32>> {
    talk.renew(w, w.now() + ASK_LIMIT);
    match talk.query(w, &conn.address, WAITING).await {
        Ok(rows) => {
            *questions.kept.borrow_mut() = Some((conn.address.node, talk, w.now()));
            Some(rows.iter().flatten().flatten().filter_map(|pid| pid.parse().ok()).collect())
        }
        Err(_) => {
            talk.part(w);
            None
        }
    }
}

/// Cancels the running statement. A server that does not obey loses the session.
fn cancel(w: &Rc<Worker>, entry: &Rc<SessionEntry>, limit_ms: u64, spent_ms: u64) {
    let text = format!("canceling statement due to query_timeout = {limit_ms} ms");
    if spent_ms >= limit_ms + CANCEL_LIMIT.as_millis() as u64 {
        let fault = ErrorReport::fatal(sqlstate::QUERY_CANCELED, format!("{text}; the server did not obey"));
        return dismiss(w, entry, fault);
    }
    if !matches!(*entry.overdue.borrow(), OverdueStatement::No | OverdueStatement::Asked(PossibleCommit::No)) {
        return;
    }
    if entry.conn.borrow().is_none() {
        return;
    }
    w.count(WorkerCounter::Overtimes);
    *entry.overdue.borrow_mut() = OverdueStatement::Cancelling(Box::new(ErrorReport::error(sqlstate::QUERY_CANCELED, text)));
    conn_opening::forward_cancel(w, &entry.handle);
}

/// Cancels a statement that waits in a ring of locks over several servers; its client hears what a server would have said.
pub fn break_deadlock(w: &Rc<Worker>, pid: u32) {
    let Some(entry) = w.entries.borrow().get(&pid).cloned() else { return };
    if entry.conn.borrow().is_none()
        || !matches!(*entry.overdue.borrow(), OverdueStatement::No | OverdueStatement::Asked(PossibleCommit::No))
    {
        return;
    }
    let fault = ErrorReport::error(sqlstate::DEADLOCK_DETECTED, "deadlock detected")
        .detail("Transactions on several shards wait for each other's locks.")
        .hint("Run the transaction again.");
    *entry.overdue.borrow_mut() = OverdueStatement::Cancelling(Box::new(fault));
    conn_opening::forward_cancel(w, &entry.handle);
}

/// Ends a session. Cancels its statement, unless that may commit: the server would notice the end of the connection only after it.
fn dismiss(w: &Rc<Worker>, entry: &Rc<SessionEntry>, fault: ErrorReport) {
    if entry.final_error.borrow().is_some() {
        return;
    }
    w.count(WorkerCounter::Overtimes);
    let is_asked = entry.clock.busy_since.get().or(entry.clock.asked_since.get()).is_some();
    let commits = matches!(*entry.overdue.borrow(), OverdueStatement::Commits | OverdueStatement::Asked(PossibleCommit::May));
    if is_asked && !commits && entry.conn.borrow().is_some() {
        conn_opening::forward_cancel(w, &entry.handle);
    }
    *entry.final_error.borrow_mut() = Some(Box::new(fault));
    w.reactor.wake(entry.task.get());
}

pub fn own_texts() -> Vec<String> {
    vec![WAITING.to_owned()]
}
