//! Gives a session the server connection of its next statement.

pub mod pool_grant;

use crate::causal::standbys::NodeSet;
use crate::causal::{self, StandbyCoverage};
use crate::checkout::pool_grant::ConnFit;
use crate::conn::{Conn, TextInterpretation};
use crate::context::Context;
use crate::doubt::transaction_number;
use crate::fault::{ErrorReport, sqlstate};
use crate::flow::{ConnRequirement, MessageFlow};
use crate::lazy_begin::transaction_place::TransactionPlacement;
use crate::metrics::WorkerCounter;
use crate::pipeline::{self, FollowingMessages};
use crate::replies::ExpectedReply;
use crate::routing::{self, RouteClass, RouteRequest, RouteSide, RouteTarget, classify, read_preference};
use crate::sequences::{self, DrawOwner};
use crate::session::{FAILED, IDLE, LazyBegin, MisreadExtent, Session, SessionServer};
use crate::session_state::connection_defaults::{self, DefaultsEffect};
use crate::sharding::batch_opening;
use crate::sharding::engine_standing::{awaited_lack, engine_standing};
use crate::sharding::known_sharding::{EngineLack, EngineStanding};
use crate::sharding::shard_target::{ENGINE, LOOK};
use crate::statements::{Statement, StatementTrait};
use crate::stats::StatCounter;
use crate::upstream::{FlushOrigin, TakenFor};
use crate::{lazy_begin, participants, read_retry, session_state};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;
use weir_catalog::rule::RoutingRule;
use weir_config::{CausalReads, PoolMode};
use weir_failover::cluster::NodeIndex;
use weir_sql::facts::TransactionVerb;
use weir_wire::frame::front;
use weir_wire::write;

/// Returns the step that must come first; `None` if the session holds a server connection where the statement may run.
#[inline]
pub fn try_now(s: &mut Session, w: &Context, statement: &Statement) -> Option<MessageFlow> {
    let placement = lazy_begin::way_of(s, w, statement);
    if s.has_server()
        && let ConnKeeping::Decided(flow) = keep(s, w, statement, placement)
    {
        return flow;
    }
    let Some(class) = class_in_pipeline(s, w, statement, placement) else { return Some(MessageFlow::More) };
    let was_otherwise = s.reads_otherwise();
    let begins = matches!(placement, Some(TransactionPlacement::Begins(_)));
    let need = need_of(s, w, statement, class_in_session(s, class), begins);
    let NodeChoice::Node(at, node) = choose(s, w, need, true) else { return Some(MessageFlow::Need(need)) };
    let Some(conn) = take_idle(s, w, need, at, node) else { return Some(MessageFlow::Need(need)) };
    count(s, w, need, node);
    let is_met = settle_in(s, w, conn, role_for(s, w, need, begins)) != DefaultsEffect::Others;
    if is_met && is_read_as_chosen(s, statement, was_otherwise) { begin_on(s, w, statement, begins) } else { Some(again(s)) }
}

/// The use of the server connection that a session has.
enum ConnKeeping {
    /// The statement runs there once this flow, if any, is over.
    Decided(Option<MessageFlow>),
    /// The session has none any more.
    GivenBack,
}

/// Keeps the session's server connection if the statement may run there, else lets it go as soon as it may.
#[inline]
fn keep(s: &mut Session, w: &Context, statement: &Statement, placement: Option<TransactionPlacement>) -> ConnKeeping {
    if s.sharding.is_elsewhere() {
        return leave_shard(s, w);
    }
    let begins = matches!(placement, Some(TransactionPlacement::Begins(_)));
    let is_primary = s.conn().is_some_and(|conn| conn.takes_writes(&w.view()));
    let is_free = is_free(s, begins || (is_primary && !s.sharding.is_outside()));
    let fits = s.transaction() != IDLE || s.pin().is_some() || is_primary || s.sharding.here() == ENGINE || {
        let Some(class) = class_in_pipeline(s, w, statement, placement) else {
            return ConnKeeping::Decided(Some(MessageFlow::More));
        };
        class.side == RouteSide::Reader && causal::may_follow(s, w, statement)
    };
    if !is_free || !fits {
        leave_reader(s, w);
        return if s.has_server() { ConnKeeping::Decided(Some(MessageFlow::Hold)) } else { ConnKeeping::GivenBack };
    }
    if is_primary && s.only_reads() {
        note_use(s, w, statement, placement);
    }
    let must_settle = sequences::must_settle(s, w, statement);
    let flow = if must_settle { Some(MessageFlow::Hold) } else { bring_again(s, w, statement) };
    if flow.is_none() {
        sequences::prepare(s, w, statement);
        begin_here(s, w, statement, begins);
        transaction_number::ask_ahead(s, w, statement);
    }
    ConnKeeping::Decided(flow)
}

/// Lets go of a server of another shard than the statement's. One that has work to end stays, and the statement is refused
/// (`sharding::refusal`).
#[cold]
fn leave_shard(s: &mut Session, w: &Context) -> ConnKeeping {
    let is_over = s.replies().is_settled();
    let is_executed = s.sharding.has_executed() && !participants::may_go_on(s, w) && !batch_opening::may_leave(s, w);
    if is_executed && batch_opening::may_open(s, w) {
        let waits = batch_opening::must_wait(s);
        return ConnKeeping::Decided(Some(if waits { MessageFlow::Hold } else { batch_opening::open(s, w) }));
    }
    if is_executed || (is_over && (s.transaction() != IDLE || s.pin().is_some())) {
        return ConnKeeping::Decided(participants::change_shard(s, w).then(|| again(s)));
    }
    leave_reader(s, w);
    if s.has_server() { ConnKeeping::Decided(Some(MessageFlow::Hold)) } else { ConnKeeping::GivenBack }
}

/// Takes a server connection at rest that shows what the session must see.
#[inline]
fn take_idle(s: &mut Session, w: &Context, need: ConnRequirement, at: Option<NodeIndex>, node: u16) -> Option<Box<Conn>> {
    // A statement that is cancelled already is not sent: a server forgets a cancel request that comes before it has read the statement.
    if need.conn.is_some() || s.handle.wait_cancelled.get() {
        return None;
    }
    let check_after_ms = check_after_ms(w);
    let fit_now = |conn: &Conn| match check_after_ms {
        Some(ms) if conn.has_rested(w.now_us(), ms) => ConnFit::Unasked,
        Some(_) | None if connection_defaults::are_stale(conn, w) || w.shared.stale.moves.is_doubted(conn) => ConnFit::Unasked,
        Some(_) | None => fit_of(s, w, conn),
    };
    let conn = s.host.take_idle(node, sequences::best_fit(s), &fit_now)?;
    if shown_by(s, w, need.class, at, &conn) != StandbyCoverage::All {
        s.host.give_back(conn);
        return None;
    }
    Some(conn)
}

/// False if the connection reads the statement differently than its routing assumed, as session defaults have changed.
/// `was_otherwise`: texts were read differently before, too.
fn is_read_as_chosen(s: &mut Session, statement: &Statement, was_otherwise: bool) -> bool {
    match s.misread(statement) {
        MisreadExtent::Names if s.state.begins_recoded < s.recoding() => s.state.begins_recoded = s.recoding(),
        // From now on the session is on the primary.
        MisreadExtent::Whole if !was_otherwise => {
            s.state.begins = TextInterpretation { escapes: s.escapes(), recoding: s.recoding() };
            return !s.reads_otherwise();
        }
        MisreadExtent::No | MisreadExtent::Names | MisreadExtent::Whole => return true,
    }
    false
}

/// Returns the role in which the primary is taken: a read proven by a catalog may be retried, even if no standby was available.
#[inline]
pub fn role_for(s: &Session, w: &Context, need: ConnRequirement, begins: bool) -> TakenFor {
    let is_read = need.class.side == RouteSide::Reader && !begins && w.has_readers() && !s.lazy_begin.is_open();
    if is_read && s.reads.place.is_known() { TakenFor::PrimaryToRead } else { TakenFor::Primary }
}

/// Ends retries on the primary if the next statement is no read.
#[cold]
fn note_use(s: &mut Session, w: &Context, statement: &Statement, way: Option<TransactionPlacement>) {
    let stays = s.transaction() != IDLE || s.pin().is_some();
    if stays || way.is_some() || class_at(s, w, statement, way).side != RouteSide::Reader {
        s.upstream_mut().into_iter().for_each(|upstream| upstream.role = TakenFor::Primary);
    }
}

/// Prepares a server connection taken at rest. Returns the step that must come first, if any.
#[inline]
fn begin_on(s: &mut Session, w: &Context, statement: &Statement, begins: bool) -> Option<MessageFlow> {
    if s.state.listening.is_some() {
        session_state::prepare(s, w, statement);
    }
    if s.has_barrier() || transaction_number::waits_for_line(s, w) {
        return Some(MessageFlow::Hold);
    }
    sequences::prepare(s, w, statement);
    begin_here(s, w, statement, begins);
    transaction_number::ask_ahead(s, w, statement);
    None
}

#[inline]
fn fit_of(s: &Session, w: &Context, conn: &Conn) -> ConnFit {
    let is_alike = Arc::ptr_eq(&conn.settings, &s.state.settings)
        && Arc::ptr_eq(&conn.by_sql, &s.state.by_sql)
        && s.state.defaults.knows(&conn.defaults);
    match sequences::claim(s, w, conn) {
        DrawOwner::Own => ConnFit::Own,
        DrawOwner::Others => ConnFit::Any,
        DrawOwner::None if is_alike => ConnFit::Alike,
        DrawOwner::None => ConnFit::Free,
    }
}

/// True if a statement may follow what is under way. `begins`: a deferred BEGIN goes first.
#[inline]
fn is_free(s: &Session, begins: bool) -> bool {
    match (s.lazy_begin.is_open(), begins) {
        (false, _) => true,
        (true, true) => s.replies().is_only_ours(),
        // A read of the transaction waits too: an error of what is under way would count as the transaction's.
        (true, false) => s.replies().is_only_ours() || s.replies().is_unsynced(),
    }
}

/// Returns `None` if more messages of the pipeline must arrive first.
#[inline]
fn class_in_pipeline(
    s: &mut Session,
    w: &Context,
    statement: &Statement,
    way: Option<TransactionPlacement>,
) -> Option<RouteClass> {
    if s.sharding.target().number() != 0 {
        return Some(RouteClass::primary(s.sharding.rule()));
    }
    let class = class_at(s, w, statement, way);
    s.reads.is_alone = s.up.unseen().first() == Some(&front::QUERY);
    if class.side != RouteSide::Reader || way.is_some() || s.transaction() != IDLE || !w.has_readers() {
        return Some(class);
    }
    match pipeline::look(s, w) {
        FollowingMessages::Reads => Some(class),
        FollowingMessages::More => None,
        FollowingMessages::Unknown => Some(RouteClass::primary(RoutingRule::PipelineOpen)),
    }
}

#[inline]
fn class_at(s: &mut Session, w: &Context, statement: &Statement, way: Option<TransactionPlacement>) -> RouteClass {
    match way {
        Some(TransactionPlacement::Begins(class) | TransactionPlacement::Outside(class)) => class,
        None => {
            let judged = classify::class_of(s, w, statement);
            let class = class_outside(s, w, statement, judged);
            let class = read_retry::class_of(s, statement, class);
            if needs_nobody(s, w, statement) { RouteClass { side: RouteSide::Reader, ..class } } else { class }
        }
    }
}

/// `judged`: the class by text and catalog.
#[inline]
fn class_outside(s: &Session, w: &Context, statement: &Statement, judged: RouteClass) -> RouteClass {
    let class = read_preference::class_of(s, w, statement, judged);
    lazy_begin::class_after_writes(s, w, class)
}

/// Keeps a session on the primary if its state lies on one server connection (`pool_mode = session`, or texts read differently),
/// which must run any statement.
#[inline]
fn class_in_session(s: &Session, class: RouteClass) -> RouteClass {
    let rule = match class.side {
        RouteSide::Primary => return class,
        RouteSide::Reader if s.account.limits.get().mode == PoolMode::Session => RoutingRule::SessionPooling,
        RouteSide::Reader if s.state.settings.needs_primary() => RoutingRule::SerializableByDefault,
        RouteSide::Reader if s.reads_otherwise() => RoutingRule::ReadOtherwise,
        RouteSide::Reader => return class,
    };
    RouteClass::primary(rule)
}

/// Returns the class of a statement alone, outside of a transaction. Notes nothing.
pub fn class_now(s: &Session, w: &Context, statement: &Statement) -> RouteClass {
    class_in_session(s, class_outside(s, w, statement, classify::class_for(s, w, statement)))
}

/// The server connection that a statement of this class needs. Begins a read of the session's for one that only reads.
#[inline]
fn need_of(s: &mut Session, w: &Context, statement: &Statement, class: RouteClass, begins: bool) -> ConnRequirement {
    let conn = sequences::wanted(s, statement);
    let ends_with_primary = w.view().primary.is_some() && concerns_session(s, statement);
    let is_read = statement.has(StatementTrait::Read);
    let shard = s.sharding.target().number();
    let mut need = ConnRequirement { class, shard, is_read, wish: None, conn: conn.filter(|_| shard == 0), ends_with_primary };
    if class.side != RouteSide::Reader {
        return need;
    }
    if matches!(s.lazy_begin, LazyBegin::Failed(_)) || needs_nobody(s, w, statement) {
        // Neither a failed transaction nor a statement about the session alone shows anything of the database.
        causal::begin_blind(s);
        return need;
    }
    causal::begin_read(s, w, statement, begins);
    let hinted = statement.read_target.or_else(|| lazy_begin::read_target(s));
    need.wish = read_preference::of(s, w, hinted);
    need
}

/// True if no primary is known and none is needed.
#[inline]
fn needs_nobody(s: &Session, w: &Context, statement: &Statement) -> bool {
    w.view().primary.is_none() && concerns_session(s, statement)
}

/// A session that listens does not qualify: a standby takes no LISTEN.
#[inline]
fn concerns_session(s: &Session, statement: &Statement) -> bool {
    statement.has(StatementTrait::OfSession) && s.state.listening.is_none() && !s.lazy_begin.is_open()
}

/// Sends the deferred BEGIN if needed. A read outside the transaction runs on standbys only: a falsely read-only function would
/// write past the transaction. Reads of sharded tables call PostgreSQL's own functions only.
#[inline]
fn begin_here(s: &mut Session, w: &Context, statement: &Statement, begins: bool) {
    if !s.lazy_begin.is_open() {
        return;
    }
    if begins || (!s.sharding.is_outside() && s.conn().is_some_and(|conn| conn.takes_writes(&w.view()))) {
        lazy_begin::send(s, w, statement);
    } else {
        s.lazy_begin.read();
    }
}

pub fn count(s: &Session, w: &Context, need: ConnRequirement, node: u16) {
    if !s.sharding.is_write_ahead() {
        w.counters().count_rule(s.handle.clock.rule.get());
    }
    if need.class.side == RouteSide::Reader {
        w.count(WorkerCounter::ReadsSpread);
        if s.handle.clock.rule.get() == RoutingRule::ReadNotReplayed {
            w.count(WorkerCounter::ReadsNotReplayed);
            causal::note_not_replayed(s, w);
        }
    }
    if need.is_read {
        w.count_read(node);
    }
}

#[inline]
pub fn shown_by(s: &Session, w: &Context, class: RouteClass, at: Option<NodeIndex>, conn: &Conn) -> StandbyCoverage {
    if class.side != RouteSide::Reader || w.view().primary == at { StandbyCoverage::All } else { causal::shown_by(s, w, conn) }
}

/// Ends a pipeline on a standby that goes on with a message for the primary. Nothing was executed, or a definition has changed
/// meanwhile.
pub(crate) fn leave_reader(s: &mut Session, w: &Context) {
    if s.replies().is_unsynced() && !s.replies().is_skipping() {
        s.expect(ExpectedReply::SyncOurs);
        write::bare(s.up.extra(&w.buffers), front::SYNC);
        // No message may follow before the answer: an error may change its meaning.
        s.raise_barrier();
    } else if s.replies().is_settled() {
        session_state::settle(s, w);
    }
}

/// Returns the error for a statement that needs the primary, in a transaction elsewhere.
pub fn misplaced(s: &mut Session, w: &Context, statement: &Statement) -> Option<ErrorReport> {
    if s.transaction() == FAILED {
        return None;
    }
    if let Some(fault) = sequences::refusal(s, w, statement) {
        return Some(fault);
    }
    let stays = statement.has(StatementTrait::Locks) || !statement.state.leaves.without(lazy_begin::MOVES).is_empty();
    let conn = s.conn().filter(|_| stays)?;
    let is_misplaced = !conn.takes_writes(&w.view()) && w.view().primary.is_some();
    is_misplaced
        .then(|| lazy_begin::cannot_stay(&mut s.wrote.shuns_standbys, "the statement leaves session state or takes a lock"))
}

/// Waits for replies. A server holds back those of a pipeline until Sync or Flush, so it gets a Flush.
pub fn hold(s: &mut Session, w: &Context) -> MessageFlow {
    if let Some(SessionServer { upstream, .. }) = &mut s.server
        && upstream.replies.is_unsynced()
        && upstream.flushed != FlushOrigin::ByUs
    {
        weir_wire::write::bare(s.up.extra(&w.buffers), front::FLUSH);
        upstream.flushed = FlushOrigin::ByUs;
    }
    MessageFlow::Hold
}

/// Has the message processed again.
pub fn again(s: &Session) -> MessageFlow {
    s.wake();
    MessageFlow::Hold
}

/// Refuses transaction blocks with statement pooling.
pub fn refusal(s: &Session, statement: &Statement) -> Option<ErrorReport> {
    // A text of several statements may contain BEGIN.
    let begins = matches!(statement.transaction, TransactionVerb::Begin(_) | TransactionVerb::Many);
    (begins && s.account.limits.get().mode == PoolMode::Statement).then(|| {
        ErrorReport::error(sqlstate::FEATURE_NOT_SUPPORTED, "transaction blocks are not allowed with pool_mode = statement")
            .hint("Set pool_mode to transaction.")
    })
}

/// Takes a server connection into use. Messages that apply the session's settings travel with the statement in one write.
pub fn settle_in(s: &mut Session, w: &Context, conn: Box<Conn>, on_primary: TakenFor) -> DefaultsEffect {
    let role = match conn.status.address.shard {
        ENGINE => TakenFor::PrimaryToRead,
        _ if conn.takes_writes(&w.view()) => on_primary,
        _ => TakenFor::Standby,
    };
    s.sharding.arrive(conn.status.address.shard);
    (s.retry.again, s.retry.refused_under) = (None, None);
    s.account.stats.add(StatCounter::Assignments, 1);
    s.take(w, conn, role);
    let met = connection_defaults::meet(s, w);
    session_state::bring(s, w);
    if s.account.limits.get().mode == PoolMode::Session && s.sharding.here() != ENGINE {
        session_state::keep(s, w, None);
    }
    met
}

/// Applies settings again: a function may have reset a startup parameter.
#[inline]
fn bring_again(s: &mut Session, w: &Context, statement: &Statement) -> Option<MessageFlow> {
    let is_before = s.transaction() == IDLE && s.replies().is_settled();
    if is_before {
        session_state::bring(s, w);
    }
    if s.state.listening.is_some() {
        session_state::prepare(s, w, statement);
    }
    (s.has_barrier() || transaction_number::waits_for_line(s, w)).then_some(MessageFlow::Hold)
}

pub enum NodeChoice {
    /// Index in the view, if the node is the cluster's, and node number.
    Node(Option<NodeIndex>, u16),
    /// The engine's database on this node, the primary.
    Engine(NodeIndex, u16),
    /// A look will soon tell that the engine is ready, or what the statement depends on.
    EngineLacks(EngineLack),
    /// The engine is not ready any more, or a look has ended: the statement is planned anew.
    NoEngine,
    /// The configuration has no server of this shard any more.
    NoShard(u16),
    NoPrimary(RoutingRule),
    /// A standby will soon have replayed enough.
    Replay,
    /// The session must first be told of another primary.
    NewPrimary,
}

pub fn choose(s: &mut Session, w: &Context, need: ConnRequirement, may_wait: bool) -> NodeChoice {
    let ConnRequirement { class, wish, .. } = need;
    if need.shard != 0 {
        return server_of_shard(s, w, need);
    }
    let (view, config) = (w.view(), w.peek_config());
    // With `global` all reads go to one node at a time, regardless of session and load.
    let is_global = s.reads.causal.mode(w) == CausalReads::Global;
    let statement_level = config.routing.statement_level || is_global;
    let prefers_lower_delay = config.check.prefers_lower_delay;
    let (mut fit, mut hopeful) = (NodeSet::ALL, NodeSet::NONE);
    // Without readers no comparison is needed: the primary shows all that was ever told.
    if class.side == RouteSide::Reader && w.has_readers() && !s.reads.causal.is_free() {
        fit = causal::fit(s, w, &view);
        if may_wait {
            hopeful = causal::hopeful(s, w, &view, fit);
        }
    }
    if class.side == RouteSide::Reader {
        fit = w.shared.suspects.without_suspects(&view, fit);
        hopeful = w.shared.suspects.without_suspects(&view, hopeful);
    }
    if s.reads.causal.primary_since != view.primary_since {
        return NodeChoice::NewPrimary;
    }
    let dice = s.reads.causal.dice;
    let shares = (class.side == RouteSide::Reader && w.has_readers() && !is_global).then(|| w.loads.shares(&view, w.now_ms()));
    let shares = shares.as_ref().map_or(&[][..], |shares| shares.as_slice());
    let (view, favourite) = (&**view, s.reads.favourite);
    let ask = RouteRequest { class, view, favourite, statement_level, wish, shares, prefers_lower_delay, dice, fit, hopeful };
    let route = routing::choose(&ask);
    s.handle.clock.rule.set(route.rule);
    let at = match route.target {
        RouteTarget::Node(at) if view.primary == Some(at) && read_retry::is_refused_there(s, view) => {
            return NodeChoice::NoPrimary(route.rule);
        }
        RouteTarget::Node(at) => at,
        RouteTarget::NoPrimary => return NodeChoice::NoPrimary(route.rule),
        RouteTarget::Replay => {
            causal::want(w, s.reads.causal.must_show.round());
            return NodeChoice::Replay;
        }
    };
    let id = view.nodes[at].id;
    if class.side == RouteSide::Reader {
        // A favourite that only lags, or a node named for one read, does not change the favourite.
        let has_favourite = s.reads.favourite.is_some_and(|favourite| routing::may_stay(view, favourite, wish));
        if !statement_level && !has_favourite && s.reads.favourite != Some(at) && routing::becomes_favourite(&ask, route.rule) {
            s.reads.favourite = Some(at);
            s.handle.status.favourite.store(u32::from(id), Ordering::Relaxed);
        }
    }
    NodeChoice::Node(Some(at), id)
}

/// A shard above 0 has one server. The engine is on the primary of shard 0.
#[cold]
fn server_of_shard(s: &Session, w: &Context, need: ConnRequirement) -> NodeChoice {
    s.handle.clock.rule.set(need.class.rule);
    if need.shard == LOOK {
        return awaited_lack(s, w).map_or(NodeChoice::NoEngine, NodeChoice::EngineLacks);
    }
    if need.shard == ENGINE {
        let view = w.view();
        let primary = view.primary.and_then(|at| Some((at, view.nodes.get(at)?.id)));
        let Some((at, id)) = primary else { return NodeChoice::NoPrimary(need.class.rule) };
        return match engine_standing(s, w) {
            EngineStanding::Ready => NodeChoice::Engine(at, id),
            EngineStanding::Waits(lack) => NodeChoice::EngineLacks(lack),
            EngineStanding::Unready => NodeChoice::NoEngine,
        };
    }
    let config = w.peek_config();
    let node = config.sharding.node_of(need.shard).map(|node| node.id);
    node.map_or(NodeChoice::NoShard(need.shard), |node| NodeChoice::Node(None, node))
}

/// Returns the rest after which a server is checked before use; `None`: never.
#[inline]
pub fn check_after_ms(w: &Context) -> Option<u64> {
    let pool = &w.peek_config().pool;
    (!pool.check_query.is_empty()).then_some(pool.check_after_ms)
}

/// Returns the error in a failed transaction that no server knows of; no server is needed for it.
pub fn fails_anyway(s: &mut Session, w: &Context) -> Option<ErrorReport> {
    if !matches!(s.lazy_begin, LazyBegin::Failed(_)) {
        return None;
    }
    // A statement that may end the transaction, or begin another, takes another path.
    match pipeline::transaction_next(s, w) {
        TransactionVerb::None | TransactionVerb::Begin(_) | TransactionVerb::Prepared => {
            Some(ErrorReport::in_failed_transaction())
        }
        TransactionVerb::End(_) | TransactionVerb::Chain(_) | TransactionVerb::Within | TransactionVerb::Many => None,
    }
}

pub fn no_primary(w: &Context, since: Instant, rule: RoutingRule) -> ErrorReport {
    let text = format!(
        "no primary server was found in {} ms (failover_wait); the statement needs one (rule {}) and was not sent",
        w.now().saturating_duration_since(since).as_millis(),
        rule.name()
    );
    ErrorReport::error(sqlstate::CANNOT_CONNECT_NOW, text)
        .detail(w.view().causes())
        .hint("Look at SHOW pool_nodes, and whether sr_check_user may log in to the servers.")
}
