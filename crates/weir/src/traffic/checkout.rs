//! Gives a session the server connection its next statement needs.

use crate::client::flow::{Flow, Need};
use crate::client::session::{FAILED, IDLE, LazyBegin, Server, Session};
use crate::client::session_state;
use crate::client::session_status::Doing;
use crate::client::statements::Statement;
use crate::client::upstream::TakenFor;
use crate::control::mail::Nudge;
use crate::monitor::fault::{Fault, sqlstate};
use crate::monitor::metrics::Metric;
use crate::monitor::stats::Stat;
use crate::process::shared::Message;
use crate::process::worker::Worker;
use crate::server::pool::server_conn::{self, Login, OpenError, ServerConn};
use crate::server::pool::{Lease, Limit, Patience, Pool, Purpose, Refusal, Wait};
use crate::traffic::causal::{self, Replay, Shown};
use crate::traffic::classify;
use crate::traffic::lazy_begin;
use crate::traffic::pipeline::{self, Ahead};
use crate::traffic::read_preference;
use crate::traffic::read_retry;
use crate::traffic::sequences::{self, Claim};
use crate::traffic::timing;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::Poll;
use std::time::{Duration, Instant};
use weir_catalog::rule::Rule;
use weir_config::PoolMode;
use weir_io::reactor::parked;
use weir_policy::causal::Nodes;
use weir_policy::cluster::NodeIndex;
use weir_policy::looks::is_primary_by_configuration;
use weir_policy::pool::{Fit, Refused};
use weir_policy::replies::Expect;
use weir_policy::route::{self, Ask, Class, Side, Target};
use weir_policy::transaction::Way;
use weir_sql::facts::{StateKind, Transaction};
use weir_wire::frame::front;
use weir_wire::write;

/// Time the worker that has a server connection gets to let go of it.
const FETCH_TIMEOUT: Duration = Duration::from_secs(2);

/// Time a session waits for the server connection on which it drew from sequences, while another client has it. Others seldom take longer.
const AGAIN_TIMEOUT: Duration = Duration::from_secs(1);

/// Sees that the session holds a server connection where this statement may run. `None`: it does. Else what to do first.
#[inline]
pub fn try_now(s: &mut Session, w: &Rc<Worker>, statement: &Statement) -> Result<Option<Flow>, Fault> {
    let way = lazy_begin::way_of(s, w, statement);
    let begins = matches!(way, Some(Way::Begins(_)));
    if let Some(conn) = s.conn() {
        let stays = s.transaction() != IDLE || s.pin().is_some();
        let is_primary = is_primary(w, conn);
        let is_free = is_free(s, begins || is_primary);
        let fits = stays || is_primary || {
            let Some(class) = class_in_pipeline(s, w, statement, way) else { return Ok(Some(Flow::More)) };
            class.side == Side::Reader
        };
        if is_free && fits {
            if is_primary && s.only_reads() {
                note_use(s, w, statement, way);
            }
            let must_settle = sequences::must_settle(s, w, statement);
            let flow = if must_settle { Some(Flow::Hold) } else { bring_again(s, w, statement) };
            if flow.is_none() {
                sequences::prepare(s, w, statement);
                begin_here(s, w, statement, begins);
            }
            return Ok(flow);
        }
        leave_reader(s, w);
        if s.has_server() {
            return Ok(Some(Flow::Hold));
        }
    }
    let Some(mut class) = class_in_pipeline(s, w, statement, way) else { return Ok(Some(Flow::More)) };
    let was_otherwise = s.reads_otherwise();
    if was_otherwise || s.state.settings.needs_primary() || s.pools.limits.get().mode == PoolMode::Session {
        // All of the session's state lies on one server connection, so that server connection must be able to do everything.
        class.side = Side::Primary;
    }
    let conn = sequences::wanted(s, statement);
    let mut need = Need { class, is_read: statement.is_read, wish: None, conn };
    if class.side == Side::Reader {
        causal::begin_read(s, w);
        let hinted = statement.goal.or_else(|| lazy_begin::goal(s));
        need.wish = read_preference::of(s, w, hinted);
    }
    let Chosen::Node(at, node) = choose(s, w, need, true) else { return Ok(Some(Flow::Need(need))) };
    if need.conn.is_some() {
        return Ok(Some(Flow::Need(need)));
    }
    let pool = s.pools.of_node(w, node);
    let check_after_ms = check_after_ms(w);
    let fit_now = |conn: &ServerConn| match check_after_ms {
        Some(ms) if conn.has_rested(w.reactor.now(), ms) => Fit::Unasked,
        Some(_) | None => fit_of(s, w, conn),
    };
    match pool.take_idle(w, sequences::best_fit(s), fit_now).and_then(|conn| fit_near(w, conn)) {
        Some(conn) if shown_by(s, w, class, at, &conn) != Shown::All => {
            pool.give_back(w, conn);
            Ok(Some(Flow::Need(need)))
        }
        Some(conn) => {
            count(s, w, need, node);
            settle_in(s, w, conn, role_for(s, w, class, begins));
            if !was_otherwise && s.is_misread(statement) {
                // What sessions begin with has changed, and only this server connection tells: from now on the session is on the primary.
                s.state.begins_otherwise = true;
                return Ok(Some(again(w)));
            }
            Ok(begin_on(s, w, statement, begins))
        }
        None => Ok(Some(Flow::Need(need))),
    }
}

/// The role in which the primary is taken for a statement: what only reads may run again, if it is known from a catalog that it does.
#[inline]
fn role_for(s: &Session, w: &Worker, class: Class, begins: bool) -> TakenFor {
    let is_read = class.side == Side::Reader && !begins && w.has_readers() && !s.lazy_begin.is_open();
    if is_read && s.reads.place.is_known() { TakenFor::PrimaryToRead } else { TakenFor::Primary }
}

/// A statement follows reads on the primary: if it is none, nothing of what is under way runs again.
#[cold]
fn note_use(s: &mut Session, w: &Worker, statement: &Statement, way: Option<Way>) {
    let stays = s.transaction() != IDLE || s.pin().is_some();
    if stays || way.is_some() || class_at(s, w, statement, way).side != Side::Reader {
        s.upstream_mut().into_iter().for_each(|upstream| upstream.role = TakenFor::Primary);
    }
}

/// Makes a server connection that was taken at rest ready for a statement. What to do first, if something is.
#[inline]
fn begin_on(s: &mut Session, w: &Rc<Worker>, statement: &Statement, begins: bool) -> Option<Flow> {
    if s.state.listening.is_some() {
        session_state::prepare(s, w, statement);
    }
    if s.is_gate_shut() {
        return Some(Flow::Hold);
    }
    sequences::prepare(s, w, statement);
    begin_here(s, w, statement, begins);
    None
}

/// How well a server connection at rest fits the session.
#[inline]
fn fit_of(s: &Session, w: &Worker, conn: &ServerConn) -> Fit {
    let is_alike = Arc::ptr_eq(&conn.settings, &s.state.settings) && Arc::ptr_eq(&conn.by_sql, &s.state.by_sql);
    match sequences::claim(s, w, conn) {
        Claim::Own => Fit::Own,
        Claim::Others => Fit::Any,
        Claim::None if is_alike => Fit::Alike,
        Claim::None => Fit::Free,
    }
}

/// True if a statement may follow what is under way on the session's server connection; `begins`: with the transaction that waits for it, if one does.
#[inline]
fn is_free(s: &Session, begins: bool) -> bool {
    match (s.lazy_begin.is_open(), begins) {
        (false, _) => true,
        // A BEGIN waits until nothing is under way.
        (true, true) => s.replies().is_only_ours(),
        // So does a read of a transaction: an error of what is under way is one of the transaction.
        (true, false) => s.replies().is_only_ours() || s.replies().is_unsynced(),
    }
}

/// The class of a statement (`class_at`) that may have others of its pipeline behind it. `None`: more of them must arrive first.
#[inline]
fn class_in_pipeline(s: &mut Session, w: &Worker, statement: &Statement, way: Option<Way>) -> Option<Class> {
    let class = class_at(s, w, statement, way);
    if class.side != Side::Reader || way.is_some() || s.transaction() != IDLE || !w.has_readers() {
        return Some(class);
    }
    match pipeline::look(s, w) {
        Ahead::Reads => Some(class),
        Ahead::More => None,
        Ahead::Unknown => Some(Class::primary(Rule::PipelineOpen)),
    }
}

/// The class of the transaction that begins with a statement, or that of the statement.
#[inline]
fn class_at(s: &mut Session, w: &Worker, statement: &Statement, way: Option<Way>) -> Class {
    match way {
        Some(Way::Begins(class) | Way::Outside(class)) => class,
        None => {
            let class = classify::class_of(s, w, statement);
            let class = read_preference::class_of(s, w, statement, class);
            let class = lazy_begin::class_after_writes(s, w, class);
            read_retry::class_of(s, statement, class)
        }
    }
}

/// Begins the transaction on the session's server connection, if it waits for this statement. What reads outside of it does so on standbys only: functions
/// that say they only read and do not would write past the transaction.
#[inline]
fn begin_here(s: &mut Session, w: &Worker, statement: &Statement, begins: bool) {
    if !s.lazy_begin.is_open() {
        return;
    }
    if begins || s.conn().is_some_and(|conn| is_primary(w, conn)) {
        lazy_begin::send(s, w, statement);
    } else {
        s.lazy_begin.read();
    }
}

fn count(s: &Session, w: &Worker, need: Need, node: u16) {
    w.counters().count_rule(s.entry.clock.rule.get());
    if need.class.side == Side::Reader {
        w.count(Metric::ReadsSpread);
        if s.entry.clock.rule.get() == Rule::ReadNotReplayed {
            w.count(Metric::ReadsNotReplayed);
        }
    }
    if need.is_read {
        w.count_read(node);
    }
}

/// Whether what comes over this server connection shows all the session must see.
#[inline]
fn shown_by(s: &Session, w: &Worker, class: Class, at: NodeIndex, conn: &ServerConn) -> Shown {
    if class.side != Side::Reader || w.view().primary == Some(at) { Shown::All } else { causal::shown_by(s, w, conn) }
}

fn is_primary(w: &Worker, conn: &ServerConn) -> bool {
    conn.is_to_primary(w)
}

/// A pipeline began on a standby and goes on with what only the primary may do: what was sent is brought to its end here first.
///
/// Nothing was executed so far, or what was seen of the pipeline to its Sync reads no more: something was defined meanwhile.
fn leave_reader(s: &mut Session, w: &Rc<Worker>) {
    if s.replies().is_unsynced() && !s.replies().is_skipping() {
        s.expect(Expect::SyncOurs);
        write::bare(s.up.extra(&w.buffers), front::SYNC);
        // Nothing may follow it before its answer: an error may still change what the held message means.
        s.shut_gate();
    } else if s.replies().is_settled() {
        session_state::settle(s, w);
    }
}

/// Why a statement that only means something on the primary cannot run where the session's transaction is, if it is elsewhere.
pub fn misplaced(s: &mut Session, w: &Worker, statement: &Statement) -> Option<Fault> {
    if s.transaction() == FAILED {
        // Any server says what a failed transaction says.
        return None;
    }
    if let Some(fault) = sequences::refusal(s, w, statement) {
        return Some(fault);
    }
    let stays = statement.locks || !statement.leaves.without(lazy_begin::MOVES).is_empty();
    let conn = s.conn().filter(|_| stays)?;
    let is_misplaced = !is_primary(w, conn) && w.view().primary.is_some();
    is_misplaced
        .then(|| lazy_begin::cannot_stay(&mut s.wrote.shuns_standbys, "the statement leaves session state or takes a lock"))
}

/// Waits for the replies that are due. A server keeps those of a pipeline to itself until Sync or Flush, so it gets a Flush.
pub fn hold(s: &mut Session, w: &Worker) -> Flow {
    if let Some(Server { upstream, .. }) = &mut s.server
        && upstream.replies.is_unsynced()
        && !upstream.is_flushed
    {
        weir_wire::write::bare(s.up.extra(&w.buffers), front::FLUSH);
        upstream.is_flushed = true;
    }
    Flow::Hold
}

/// Has the message looked at once more, as what it goes by has changed.
pub fn again(w: &Worker) -> Flow {
    w.reactor.wake(w.reactor.current_task());
    Flow::Hold
}

/// Statement pooling has no transactions of several statements.
pub fn refusal(s: &Session, statement: &Statement) -> Option<Fault> {
    // Among several statements, what stands between BEGIN and COMMIT is not told apart.
    let begins = matches!(statement.transaction, Transaction::Begin(_) | Transaction::Many);
    (begins && s.pools.limits.get().mode == PoolMode::Statement).then(|| {
        Fault::error(sqlstate::FEATURE_NOT_SUPPORTED, "transaction blocks are not allowed with pool_mode = statement")
            .hint("Set pool_mode to transaction.")
    })
}

/// Chooses a node and takes a server connection to it: at rest, opened, or waited for. Not cancel safe.
pub async fn wait(s: &mut Session, w: &Rc<Worker>, need: Need) -> Result<(), Fault> {
    let started = w.reactor.now();
    let acquired = wait_since(s, w, need, started).await;
    timing::waited(s, w, started);
    acquired
}

async fn wait_since(s: &mut Session, w: &Rc<Worker>, need: Need, started: Instant) -> Result<(), Fault> {
    let mut class = need.class;
    // A transaction that waits may begin with this statement.
    let begins = s.lazy_begin.is_open();
    // Who had said all and gone before the wait began gets it done; who leaves during the wait does not want it any more.
    let was_gone = s.client.is_hung_up();
    let mut replay = Replay::new(w);
    let mut waited = false;
    loop {
        let (at, node) = match choose(s, w, Need { class, ..need }, !replay.is_over(w)) {
            Chosen::Node(at, node) => (at, node),
            Chosen::NoPrimary(rule) => {
                if let Some(fault) = fails_anyway(s, w) {
                    return Err(fault);
                }
                wait_for_primary(s, w, (started, was_gone), rule).await?;
                continue;
            }
            Chosen::NewPrimary => {
                causal::on_new_primary(s, w)?;
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
        if let Some(conn) = lease_again(s, w, node, need).await {
            count(s, w, need, node);
            settle_in(s, w, conn, role_for(s, w, class, begins));
            return Ok(());
        }
        match lease(s, w, class, node, (started, was_gone)).await? {
            Leased::ServerConn(conn) => {
                let shown = shown_by(s, w, class, at, &conn);
                if shown == Shown::All || (shown == Shown::Unproven && replay.is_over(w)) {
                    count(s, w, Need { class, ..need }, node);
                    settle_in(s, w, conn, role_for(s, w, class, begins));
                    return Ok(());
                }
                // The standby has started anew, or this server connection is so young that nobody vouches for it yet.
                replay.verify_us = conn.opened_us;
                let pool = conn.pool.clone();
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

/// Uses a server connection: brings it to the session's settings first if it has others. They travel with the statement in one write.
fn settle_in(s: &mut Session, w: &Worker, conn: Box<ServerConn>, on_primary: TakenFor) {
    let role = if is_primary(w, &conn) { on_primary } else { TakenFor::Standby };
    s.retry.again = None;
    s.pools.stats.add(Stat::Assignments, 1);
    s.take(w, conn, role);
    session_state::bring(s, w);
    if s.pools.limits.get().mode == PoolMode::Session {
        session_state::keep(s, w, None);
    } else if !s.is_on_standby() && s.reads_otherwise() {
        session_state::keep(s, w, Some(StateKind::Unread));
    }
}

/// A server connection that the session still has may lack something: a function reset what the session's start had asked for.
#[inline]
fn bring_again(s: &mut Session, w: &Worker, statement: &Statement) -> Option<Flow> {
    let is_before = s.transaction() == IDLE && s.replies().is_settled();
    if is_before {
        session_state::bring(s, w);
    }
    if s.state.listening.is_some() {
        session_state::prepare(s, w, statement);
    }
    s.is_gate_shut().then_some(Flow::Hold)
}

/// What a statement gets.
enum Chosen {
    /// A node, by place in the view and by number.
    Node(NodeIndex, u16),
    /// A primary is needed and not known; by which rule.
    NoPrimary(Rule),
    /// A standby will soon have replayed what the answer must show.
    Replay,
    /// First the session hears of another primary.
    NewPrimary,
}

fn choose(s: &mut Session, w: &Worker, need: Need, may_wait: bool) -> Chosen {
    let Need { class, wish, .. } = need;
    let (view, config) = (w.view(), w.peek_config());
    let (statement_level, prefers_lower_delay) = (config.routing.statement_level, config.check.prefers_lower_delay);
    let (mut fit, mut hopeful) = (Nodes::ALL, Nodes::NONE);
    // The primary shows all that was ever told: without another node to read from nothing is to be compared.
    if class.side == Side::Reader && w.has_readers() && !s.reads.causal.is_free() {
        fit = causal::fit(s, w, &view);
        if may_wait {
            hopeful = causal::hopeful(s, w, &view);
        }
    }
    if class.side == Side::Reader {
        fit = w.shared.suspects.spared(&view, fit);
        hopeful = w.shared.suspects.spared(&view, hopeful);
    }
    if s.reads.causal.primary_since != view.primary_since {
        return Chosen::NewPrimary;
    }
    let dice = s.reads.causal.dice;
    // Writes, and reads where only the primary takes them, have no choice.
    let shares = (class.side == Side::Reader && w.has_readers()).then(|| w.loads.shares(&view, w.now_ms()));
    let shares = shares.as_ref().map_or(&[][..], |shares| shares.as_slice());
    let (view, favourite) = (&**view, s.reads.favourite);
    let route =
        route::choose(&Ask { class, view, favourite, statement_level, wish, shares, prefers_lower_delay, dice, fit, hopeful });
    s.entry.clock.rule.set(route.rule);
    let at = match route.target {
        Target::Node(at) => at,
        Target::NoPrimary => return Chosen::NoPrimary(route.rule),
        Target::Replay => return Chosen::Replay,
    };
    let id = view.nodes[at].id;
    if class.side == Side::Reader {
        // A favourite that only lags now stays the favourite, and who names a node for one read keeps his.
        let has_favourite = s.reads.favourite.is_some_and(|favourite| route::may_stay(view, favourite, wish));
        let is_own = matches!(route.rule, Rule::ReadHinted | Rule::ReadBySetting | Rule::ReadDelayed);
        if !statement_level && !is_own && !has_favourite && s.reads.favourite != Some(at) {
            s.reads.favourite = Some(at);
            s.entry.card.favourite.store(u32::from(id), Ordering::Relaxed);
        }
    }
    Chosen::Node(at, id)
}

/// A statement in the number of those that wait for a primary, however its wait ends.
struct Awaiting<'a>(&'a AtomicU32);

impl Awaiting<'_> {
    fn primary(w: &Worker) -> Awaiting<'_> {
        let count = &w.shared.awaiting_primary;
        if count.fetch_add(1, Ordering::Relaxed) == 0 {
            // From now on `node_monitor` asks by itself.
            w.shared.nudge_prober(Nudge::NodeAwaited);
        }
        Awaiting(count)
    }
}

impl Drop for Awaiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Waits until the view is another one: a primary may be there then. Cancel safe.
async fn wait_for_primary(s: &Session, w: &Worker, (since, was_gone): (Instant, bool), rule: Rule) -> Result<(), Fault> {
    // Not its client's silence: limits on that do not count.
    show_waiting(s, w);
    let limit_ms = s.pools.limits.get().waits.primary_ms;
    let deadline = (limit_ms > 0).then(|| since + Duration::from_millis(limit_ms));
    let generation = w.view().generation;
    s.entry.wait_cancelled.set(false);
    let _awaiting = Awaiting::primary(w);
    while w.view().generation == generation {
        if deadline.is_some_and(|at| w.reactor.now() >= at) {
            return Err(no_primary(w, since, rule));
        }
        if (!was_gone && s.client.is_hung_up()) || s.entry.farewell.borrow().is_some() {
            return Err(Fault::fatal(sqlstate::ADMIN_SHUTDOWN, "the session ended while it waited for a primary server"));
        }
        if s.entry.wait_cancelled.take() {
            s.entry.card.set_doing(Doing::Idle);
            return Err(Fault::error(sqlstate::QUERY_CANCELED, "canceling statement due to user request"));
        }
        w.wake_at_new_view();
        deadline.into_iter().for_each(|at| w.reactor.wake_at(at));
        parked().await;
    }
    Ok(())
}

/// What a server would say of a statement in a transaction that has failed, and that no server knows of. It needs none to hear it.
fn fails_anyway(s: &mut Session, w: &Worker) -> Option<Fault> {
    if !matches!(s.lazy_begin, LazyBegin::Failed(_)) {
        return None;
    }
    // What may end it has a way of its own, or begins another one.
    match pipeline::transaction_next(s, w) {
        Transaction::None | Transaction::Begin(_) | Transaction::Prepared => Some(Fault::in_failed_transaction()),
        Transaction::End(_) | Transaction::Chain(_) | Transaction::Within | Transaction::Many => None,
    }
}

fn no_primary(w: &Worker, since: Instant, rule: Rule) -> Fault {
    let text = format!(
        "no primary server was found in {} ms (failover_wait); the statement needs one (rule {}) and was not sent",
        w.reactor.now().saturating_duration_since(since).as_millis(),
        rule.name()
    );
    Fault::error(sqlstate::CANNOT_CONNECT_NOW, text)
        .detail(w.view().causes())
        .hint("Look at SHOW pool_nodes, and whether sr_check_user may log in to the servers.")
}

fn show_waiting(s: &Session, w: &Worker) {
    s.entry.card.set_doing(Doing::WaitingForConnection);
    s.entry.card.waiting_ms.store(w.now_ms(), Ordering::Relaxed);
}

/// What came of waiting for a server connection of a node.
enum Leased {
    ServerConn(Box<ServerConn>),
    Failed(OpenError),
    /// The node is not the one to ask any more.
    Moved,
}

/// A server connection of the session's pool on a node. An error ends the session's wait.
async fn lease(
    s: &mut Session,
    w: &Rc<Worker>,
    class: Class,
    node: u16,
    (since, was_gone): (Instant, bool),
) -> Result<Leased, Fault> {
    let pool = s.pools.of_node(w, node);
    show_waiting(s, w);
    let (client, entry) = (&s.client, &s.entry);
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
async fn lease_again(s: &mut Session, w: &Worker, node: u16, need: Need) -> Option<Box<ServerConn>> {
    let serial = need.conn?;
    let pool = s.pools.of_node(w, node);
    show_waiting(s, w);
    let gives_up = || s.client.is_hung_up() || s.entry.farewell.borrow().is_some();
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
) -> Result<Result<Box<ServerConn>, OpenError>, Fault> {
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
            Lease::Permit => {
                // Boxed: who waits for a server connection that others have does not pay for the room of a login.
                let mut opening = Box::pin(open(w, pool, node, parameters));
                if let Some(opened) = unless(w, opening.as_mut(), &give_up).await {
                    return Ok(opened);
                }
                // A login that hangs keeps nobody who has a better place to go to, or wants no more.
                drop(opening);
                pool.release_permit(w);
                return Err(wait_fault(w, pool, Refusal::GaveUp));
            }
        }
    }
}

/// What a future comes to, unless its caller gives up before. Cancel safe if the future is.
async fn unless<T>(w: &Worker, mut future: Pin<&mut impl Future<Output = T>>, give_up: impl Fn() -> bool) -> Option<T> {
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

/// A server connection of a pool that is at rest, if there is one that can be used. Not cancel safe.
pub async fn at_rest(w: &Worker, pool: &Pool) -> Option<Box<ServerConn>> {
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
    let is_fresh = conn.is_fresh(w.reactor.now());
    if !is_fresh {
        w.count(Metric::ConnsLost);
    }
    is_fresh
}

/// The same for a server connection of this worker, without waiting.
fn fit_near(w: &Worker, conn: Box<ServerConn>) -> Option<Box<ServerConn>> {
    if is_usable(w, &conn) {
        return Some(conn);
    }
    w.close_conn(conn);
    None
}

/// Makes a server connection that was at rest usable here: not dead, and in this worker's event loop. Not cancel safe.
async fn fit(w: &Worker, mut conn: Box<ServerConn>) -> Option<Box<ServerConn>> {
    let is_here = conn.home == w.id || fetch(w, &mut conn).await;
    if is_here && is_usable(w, &conn) {
        let must_ask = check_after_ms(w).is_some_and(|ms| conn.has_rested(w.reactor.now(), ms));
        // Boxed: where no server is asked nobody pays for the room.
        return if must_ask { Box::pin(ask_first(w, conn)).await } else { Some(conn) };
    }
    w.close_conn(conn);
    None
}

/// Time of rest after which a server is asked before its server connection is used; `None`: it never is.
#[inline]
fn check_after_ms(w: &Worker) -> Option<u64> {
    let pool = &w.peek_config().pool;
    (!pool.check_query.is_empty()).then_some(pool.check_after_ms)
}

/// Longest wait for the answer where `connect_timeout` is no limit.
const CHECK_MS_MAX: u64 = 10_000;

/// Asks a server `server_check_query`; a server connection that it does not answer over is closed. Not cancel safe.
async fn ask_first(w: &Worker, conn: Box<ServerConn>) -> Option<Box<ServerConn>> {
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
    let pool = conn.pool.clone();
    if error.is_silent() {
        w.shared.suspects.suspect(conn.card.address.node);
        w.shared.nudge_prober(Nudge::ConnectionLost);
        // Those that have rested as long are likely to be as dead: nobody shall wait for each of them in turn.
        let rested_ms = check_after_ms(w).unwrap_or(0);
        for other in pool.retire(|other, _| other.has_rested(w.reactor.now(), rested_ms)) {
            w.close_conn(other);
        }
    }
    w.close_conn(conn);
    None
}

/// Moves a server connection from the event loop of the worker that had it into this one's.
async fn fetch(w: &Worker, conn: &mut ServerConn) -> bool {
    let deadline = Instant::now() + FETCH_TIMEOUT;
    let ticket = conn.socket.ticket();
    let slot = ticket.watch();
    let message = Message::Release { ticket, worker: w.id, task: w.reactor.current_task() };
    w.shared.mailboxes[usize::from(conn.home)].send(message);
    while !slot.is_released() {
        if w.reactor.now() >= deadline {
            return false;
        }
        w.reactor.wake_at(deadline);
        parked().await;
    }
    conn.socket.leave();
    conn.home = w.id;
    // What arrived there before it left was not asked for, or is the end.
    if conn.socket.is_readable() || conn.socket.join(&w.reactor).is_err() {
        return false;
    }
    w.count(Metric::ConnsLent);
    true
}

/// Opens a server connection under a permit of its pool.
pub async fn open(
    w: &Rc<Worker>,
    pool: &Arc<Pool>,
    node: u16,
    parameters: &[(&str, &str)],
) -> Result<Box<ServerConn>, OpenError> {
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

/// A server that counts as the primary and says that it is in recovery was demoted a moment ago: what it would refuse waits for its successor.
/// Up to version 13 servers do not say so. One that is the primary by configuration is whatever it is.
fn refuse_standby(w: &Worker, opened: Result<Box<ServerConn>, OpenError>) -> Result<Box<ServerConn>, OpenError> {
    let conn = opened?;
    let is_demoted = conn.is_to_primary(w)
        && conn.pool.key.purpose == Purpose::Statements
        && conn.reported("in_hot_standby") == "on"
        && !is_primary_by_configuration(&w.peek_config(), conn.card.address.node);
    if !is_demoted {
        return Ok(conn);
    }
    let (address, sqlstate) = (conn.card.address.clone(), sqlstate::CANNOT_CONNECT_NOW.to_owned());
    w.shared.nudge_prober(Nudge::RoleContradicted);
    conn.pool.disown(conn.card.serial);
    conn.socket.close(&w.reactor);
    Err(OpenError::Refused { address, sqlstate, message: "it counts as the primary, and is in recovery".to_owned() })
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
                    let text = |limit| {
                        format!("no server connection could be opened or became free in {waited_ms} ms ({limit}): {words}")
                    };
                    return match why {
                        Refused::Full => Fault::error(sqlstate::TOO_MANY_CONNECTIONS, text("pool_wait_timeout"))
                            .hint("Lower pool_size, or raise max_connections of the server."),
                        Refused::Down => Fault::error(sqlstate::CANNOT_CONNECT_NOW, text("failover_wait")),
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
