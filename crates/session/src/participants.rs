//! A transaction on several shards.
//!
//! A session works with one server connection at a time. Those to the other shards of its transaction, the other participants, are parked.
//! Its COMMIT has three steps (two-phase commit, in which one participant decides by its own commit):
//!
//! 1. All participants but one are prepared, under names that hold the number of the transaction on the server that decides.
//! 2. The client's COMMIT goes there. Shard 0 decides where it takes part: what depends on its commits sees an ordinary one.
//! 3. The answer waits until the others have ended likewise.
//!
//! A failure before the second step rolls everything back. Prepared parts whose session is lost are ended by `control::prepared_parts` of any
//! Weir. The waits are the program's (`SessionStep::Participants`).

pub mod commit_steps;
pub mod savepoint_steps;
pub mod shard_parts;

use crate::catalogs::KnownDatabase;
use crate::conn::Conn;
use crate::context::Context;
use crate::fault::{ErrorReport, sqlstate};
use crate::lazy_begin::transaction_place::takes_snapshots;
use crate::loss::PossibleCommit;
use crate::participants::shard_parts::{CommitPhase, ParkedPart, Participants, PreparedEnd};
use crate::routing::classify;
use crate::session::{IDLE, Session, SessionServer, WITHIN};
use crate::sharding::savepoint_stack::SavepointStack;
use crate::sharding::savepoints;
use crate::sharding::shard_target::{ENGINE, ShardTarget};
use crate::statements::{Statement, StatementTrait};
use crate::upstream::UpstreamState;
use crate::upstream::numbered::XidState;
use std::rc::Rc;
use std::time::Duration;
use weir_config::{Config, CrossShardReads};
use weir_failover::commit_outcome::TransactionNumber;
use weir_shard::EngineReadiness;
use weir_sql::facts::{BeginOptions, StatementVerb, TransactionEnd, TransactionVerb};
use weir_wire::back::read_report;
use weir_wire::frame::{HEADER_BYTES, back, read_header};

/// True if a statement ties its transaction to one server connection: it may leave something there that another one lacks.
pub fn is_tie(statement: &Statement) -> bool {
    let is_plain =
        matches!(statement.verb, StatementVerb::Select | StatementVerb::Insert | StatementVerb::Update | StatementVerb::Delete);
    match statement.transaction {
        _ if statement.carried.is_some() => false,
        TransactionVerb::None => {
            let state = &statement.state;
            let is_copy = statement.has(StatementTrait::CopiesIn) || statement.has(StatementTrait::CopiesOut);
            let is_plain = is_plain || is_copy || statement.has(StatementTrait::Shows);
            !is_plain || !state.leaves.is_empty() || !state.may_change.is_empty() || statement.has(StatementTrait::Executes)
        }
        TransactionVerb::Begin(_) | TransactionVerb::End(TransactionEnd::Commit | TransactionEnd::Rollback) => false,
        TransactionVerb::End(TransactionEnd::Prepare)
        | TransactionVerb::Chain(_)
        | TransactionVerb::Within
        | TransactionVerb::Prepared
        | TransactionVerb::Many => true,
    }
}

/// Parks the server connection of the open transaction, whose next statement is for another shard. False: the transaction must stay there.
#[cold]
pub fn change_shard(s: &mut Session, w: &Context) -> bool {
    if !may_change(s, w) {
        return false;
    }
    let Some(begin) = begin_of(s) else { return false };
    let target = s.sharding.target().number();
    let first = s.sharding.write.as_ref().and_then(|write| write.tells_time()).unwrap_or(s.sharding.here());
    s.participants.get_or_insert_with(|| Box::new(Participants::new(first, begin)));
    park(s);
    match unpark(s, target) {
        Some(had) => savepoints::catch_up(s, w, had),
        None => begin_anew(s),
    }
    true
}

fn begin_of(s: &Session) -> Option<Rc<Statement>> {
    match &s.participants {
        Some(participants) => Some(participants.begin.clone()),
        None => s.upstream()?.txn.begin.clone(),
    }
}

/// The options of the transaction that a server has begun; the defaults if there is none.
pub fn begin_options(s: &Session) -> BeginOptions {
    match begin_of(s).map(|begin| begin.transaction) {
        Some(TransactionVerb::Begin(options)) => options,
        Some(_) | None => BeginOptions::default(),
    }
}

/// True if transactions may go on to other shards. The gate that hides parts of their commits from reads is the engine's.
pub fn spans_shards(config: &Config, known: &KnownDatabase) -> bool {
    let has_gate = || known.sharding.tables().is_some_and(|tables| *tables.engine() != EngineReadiness::DefinesOnly);
    match config.sharding.reads {
        CrossShardReads::Latest => true,
        CrossShardReads::Snapshot => has_gate(),
    }
}

/// True if the session's transaction, or the one that it begins next, may go on to other shards.
pub fn may_span(s: &mut Session, w: &Context) -> bool {
    if !spans_shards(&w.peek_config(), &s.account.known) {
        return false;
    }
    let options = match (begin_of(s).or_else(|| s.lazy_begin.statement().cloned()), s.status()) {
        (Some(begin), _) => match begin.transaction {
            TransactionVerb::Begin(options) => options,
            _ => BeginOptions::default(),
        },
        (None, IDLE) => BeginOptions::default(),
        (None, _) => return false,
    };
    let is_read_committed = takes_snapshots(options, classify::defaults(s, w));
    is_read_committed && s.pin().is_none() && s.state.listening.is_none() && (s.status() == IDLE || !s.sharding.is_tied())
}

/// True if a pipeline of a transaction block may go on to another shard, once a Sync of Weir's has ended what is under way.
pub fn may_go_on(s: &mut Session, w: &Context) -> bool {
    let Some(upstream) = s.upstream() else { return false };
    let is_block = upstream.txn.status == WITHIN && upstream.txn.control.commits == PossibleCommit::No;
    is_block && !upstream.replies.is_copying_in() && may_span(s, w)
}

fn may_change(s: &mut Session, w: &Context) -> bool {
    let is_open = s.participants.as_ref().is_none_or(|participants| participants.phase == CommitPhase::Open);
    let is_gathered = s.sharding.gathered.is_some();
    if !is_open || (s.sharding.target() == ShardTarget::Engine && !is_gathered) || s.sharding.here() == ENGINE {
        return false;
    }
    let Some(SessionServer { upstream, .. }) = &s.server else { return false };
    let is_plain = upstream.txn.status == WITHIN
        && upstream.final_error.is_none()
        && upstream.replies.is_settled()
        && !upstream.left.is_unsure()
        && upstream.left.may_have().is_empty()
        && upstream.journal.is_empty();
    let is_between = !s.up.has_pending() && !s.up.is_mid_message() && !s.down.has_unseen() && !s.down.is_mid_message();
    is_plain && is_between && begin_of(s).is_some() && may_span(s, w)
}

pub(crate) fn park(s: &mut Session) {
    let Some(server) = s.server.take() else { return };
    s.intake.replay.iter_mut().for_each(|record| record.spoil());
    s.host.park(&server.conn);
    s.note_parted();
    let savepoints = savepoints::leave(s);
    if let Some(participants) = &mut s.participants {
        participants.park(ParkedPart { conn: server.conn, upstream: server.upstream, savepoints });
    }
}

/// Gives the session its connection to this shard. Returns the savepoints that it has. `None`: the transaction has not begun there.
pub(crate) fn unpark(s: &mut Session, shard: u16) -> Option<SavepointStack> {
    let ParkedPart { conn, upstream, savepoints } = s.participants.as_mut()?.unpark(shard)?;
    s.host.unpark(&conn);
    *s.handle.conn.borrow_mut() = Some(conn.status.clone());
    s.server = Some(SessionServer { conn, upstream });
    s.lazy_begin.end();
    s.sharding.arrive(shard);
    s.show_doing();
    Some(savepoints)
}

/// The next statement begins the transaction on one server more.
fn begin_anew(s: &mut Session) {
    if let Some(participants) = &s.participants {
        s.lazy_begin.defer(participants.begin.clone());
    }
}

/// True if the session holds connections to other shards than that which it uses.
pub fn has_others(s: &Session) -> bool {
    s.participants.is_some()
}

/// The error of a transaction on several shards that got no connection to one more.
#[cold]
pub fn waited_too_long(limit: Duration) -> ErrorReport {
    let text = format!(
        "no server connection was free in {} s for one shard more, while the transaction holds connections to others",
        limit.as_secs()
    );
    ErrorReport::error(sqlstate::SERIALIZATION_FAILURE, text)
        .detail("Two such transactions may wait for each other's connections.")
        .hint("Run the transaction again. Raise pool_size if it happens often.")
}

/// True if the program must go on with the commit.
pub fn waits(s: &Session) -> bool {
    s.participants.as_ref().is_some_and(|participants| participants.phase.is_doing()) || s.sharding.commits_own()
}

/// True if the program must commit a transaction of Weir's own.
pub fn commits_own(s: &Session) -> bool {
    s.sharding.commits_own()
}

pub fn phase(s: &Session) -> CommitPhase {
    s.participants.as_ref().map_or(CommitPhase::Open, |participants| participants.phase)
}

/// The number of the transaction on the server that decides, if it was told already.
pub fn known_number(s: &Session) -> Option<TransactionNumber> {
    match s.upstream()?.txn.numbered.asked {
        XidState::Known { number, .. } => Some(number),
        XidState::No | XidState::Due | XidState::Waits { .. } | XidState::Spoiled => None,
    }
}

/// The session's own connection for a question of the program's; `put_back` follows.
pub fn lend(s: &mut Session) -> Option<(Box<Conn>, Box<UpstreamState>)> {
    s.server.take().map(|SessionServer { conn, upstream }| (conn, upstream))
}

pub fn put_back(s: &mut Session, conn: Box<Conn>, upstream: Box<UpstreamState>) {
    s.server = Some(SessionServer { conn, upstream });
}

/// The shards of the parked participants.
pub fn shards_of_parts(s: &Session) -> Vec<u16> {
    s.participants.as_ref().map(|participants| participants.shards()).unwrap_or_default()
}

/// The connections whose transactions are to be prepared.
pub fn take_parked(s: &mut Session) -> Vec<Box<Conn>> {
    s.participants.as_mut().map(|participants| participants.take_parked()).unwrap_or_default()
}

/// The connections over which parts were prepared.
pub fn take_prepared(s: &mut Session) -> Vec<Box<Conn>> {
    s.participants.as_mut().map(|participants| participants.take_prepared()).unwrap_or_default()
}

/// All parked participants, some of which are to be rolled back to a savepoint; `put_parts` follows.
pub fn take_parts(s: &mut Session) -> Vec<ParkedPart> {
    s.participants.as_mut().map(|participants| participants.take_parts()).unwrap_or_default()
}

/// The parts that ran something since the savepoint are rolled back: the client's command may go.
pub fn put_parts(s: &mut Session, parts: Vec<ParkedPart>) {
    if let Some(participants) = &mut s.participants {
        participants.put_parts(parts);
    }
    s.wake();
}

/// All parked participants are prepared: the COMMIT may go.
pub fn prepared(s: &mut Session, decides: TransactionNumber, conns: Vec<Box<Conn>>) {
    if let Some(participants) = &mut s.participants {
        participants.note_prepared(decides, conns);
    }
    s.wake();
}

/// All participants have ended.
pub fn ended(s: &mut Session) {
    s.participants = None;
}

/// True if the server's next message waits: it is the answer to the COMMIT, and the other participants have not ended yet.
#[cold]
pub fn holds_back(s: &mut Session) -> bool {
    let decides = match phase(s) {
        CommitPhase::Prepared(decides) => decides,
        CommitPhase::Ends(..) => return true,
        CommitPhase::Open | CommitPhase::RollsBackTo(_) | CommitPhase::Prepares => return false,
    };
    if s.replies().is_our_turn() || s.down.is_mid_message() {
        return false;
    }
    let Ok(Some(header)) = read_header(s.down.unseen()) else { return false };
    if !matches!(header.tag, back::COMMAND_COMPLETE | back::ERROR) {
        return false;
    }
    if !s.down.has_whole(header.frame_bytes()) {
        return true;
    }
    let body = s.down.unseen().get(HEADER_BYTES..header.frame_bytes()).unwrap_or_default();
    let end = match header.tag {
        back::COMMAND_COMPLETE if body == b"COMMIT\0" => PreparedEnd::Commit,
        // Its connection ends, and nobody here knows what became of the commit.
        back::ERROR if matches!(read_report(body).severity, b"FATAL" | b"PANIC") => return false,
        _ => PreparedEnd::RollBack,
    };
    s.participants.iter_mut().for_each(|participants| participants.phase = CommitPhase::Ends(decides, end));
    s.wake();
    true
}

/// Rolls the parked participants back. The session's own connection has its ROLLBACK from the client, or no transaction any more.
pub fn roll_back(s: &mut Session) {
    let Some(mut participants) = s.participants.take() else { return };
    participants.take_parked().into_iter().for_each(|conn| s.host.roll_back_parked(conn));
    participants.take_prepared().into_iter().for_each(|conn| s.host.close_parked(conn));
}

/// Closes the parked connections, so that their servers roll back what is not prepared.
pub fn abandon(s: &mut Session) {
    let Some(mut participants) = s.participants.take() else { return };
    let parked = participants.take_parked().into_iter();
    parked.chain(participants.take_prepared()).for_each(|conn| s.host.close_parked(conn));
}
