//! Copies the rows that a read of several shards within a transaction may read to the engine (`weir_session::sharding::gathered_read`).
//!
//! In this order, and with `cross_shard_reads = snapshot` with commits on several shards kept out during the second and third step:
//!
//! 1. The engine plans the statement, which says what rows may count (`gather_plan`).
//! 2. The engine opens its transaction on each shard, which takes the snapshot there.
//! 3. The transaction's own connections begin to send theirs: one statement on each, with one snapshot.
//! 4. Theirs go to the engine as they come; it takes those of the other shards by itself.
//! 5. The engine makes tables of them. A plan of the statement that still reads other tables, through a view, is refused.

use crate::runtime::bounds;
use crate::runtime::joined::{all_of, with_alarm};
use crate::runtime::pool::conn_opening::{self, ConnTalk};
use crate::runtime::pool::server_conn::shard_gates::GateSide;
use crate::runtime::pool::server_conn::{OpenError, ServerConn};
use crate::runtime::pool::server_login::refused;
use crate::runtime::worker::Worker;
use crate::server::shard_gate::{GatePass, LOOK, hold_limit};
use crate::traffic::gather_plan::{self, GatherPlan, PART_FAILED, PLAIN_PLANS, ROWS_MAX};
use crate::traffic::served::ServedSession;
use crate::traffic::shard_snapshots::{cancelled, fault_of, lost_gate};
use std::cell::RefCell;
use std::time::{Duration, Instant};
use weir_config::CrossShardReads;
use weir_session::fault::{ErrorReport, sqlstate};
use weir_session::participants;
use weir_session::participants::commit_steps;
use weir_session::participants::shard_parts::LentPart;
use weir_session::sharding::{cannot_gather, engine_snapshots, gathered_read};
use weir_wire::frame::{back, front};
use weir_wire::write;

/// Longest time that the plan, and then the copy, take. Meanwhile the transaction's locks are held, also for a client that has left.
const COPY_LIMIT: Duration = Duration::from_secs(20);

/// Rows that are sent at once, in bytes.
const CHUNK: usize = 64 << 10;

/// A part of the transaction that sends rows.
struct PartCopy {
    lent: ConnTalk,
    part: LentPart,
    step: PartStep,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PartStep {
    /// The server has more to say.
    Sends,
    /// It has more to say, and its statement has failed.
    Fails,
    Rests,
    /// Its connection is unusable, and the transaction with it.
    Lost,
}

enum GatherFailure {
    /// The statement fails, and its transaction with it as after any error.
    Statement(ErrorReport),
    /// A connection of the transaction is lost.
    Transaction(ErrorReport),
}

impl GatherFailure {
    /// A lost connection is told before an error of a statement.
    fn worse(one: Option<GatherFailure>, other: Option<GatherFailure>) -> Option<GatherFailure> {
        match (one, other) {
            (Some(GatherFailure::Statement(_)), Some(GatherFailure::Transaction(fault))) => {
                Some(GatherFailure::Transaction(fault))
            }
            (one, other) => one.or(other),
        }
    }
}

impl From<ErrorReport> for GatherFailure {
    fn from(fault: ErrorReport) -> GatherFailure {
        GatherFailure::Statement(fault)
    }
}

/// Copies the rows. An error is that of the session's next statement. Not cancel safe.
pub async fn gather(served: &mut ServedSession) -> Result<(), ErrorReport> {
    // A cancel request waits for the statement: the server ignores one that comes before.
    served.s.handle.is_ours.set(true);
    let outcome = copy_rows(served).await;
    let handle = &served.s.handle;
    handle.is_ours.set(false);
    handle.cancel_waits.set(false);
    *handle.conn.borrow_mut() = served.s.conn().map(|conn| conn.status.clone());
    match outcome {
        Ok(()) => Ok(()),
        Err(GatherFailure::Statement(fault)) if engine_snapshots::is_in_block(&served.s) => {
            engine_snapshots::fail_block(&mut served.s, &served.w, fault);
            Ok(())
        }
        Err(GatherFailure::Statement(fault)) => Err(fault),
        Err(GatherFailure::Transaction(fault)) => {
            commit_steps::cannot_roll_back(&mut served.s, &served.w, fault);
            Ok(())
        }
    }
}

/// Not cancel safe.
async fn copy_rows(served: &mut ServedSession) -> Result<(), GatherFailure> {
    let Some(question) = questions_of(served) else { return Err(gather_plan::not_understood().into()) };
    let Some((conn, upstream)) = engine_snapshots::lend(&mut served.s) else { return Ok(()) };
    let Some(conn) = served.sockets.host.whole(conn) else { return Ok(()) };
    let mut engine = ConnTalk::begin(&served.w, conn, Instant::now() + COPY_LIMIT);
    let copied = copy_to(served, &mut engine, &question).await;
    if copied.as_ref().is_err_and(OpenError::is_silent) {
        // It would wait on, and hold the locks that it has on the shards.
        conn_opening::cancel(&served.w, engine.status()).await;
    }
    let (conn, said) = engine.end(copied);
    let conn = served.sockets.host.take(conn);
    match said {
        Ok(Ok(())) => {
            engine_snapshots::taken(&mut served.s, conn, upstream);
            Ok(())
        }
        Ok(Err(failure)) => {
            engine_snapshots::not_taken(&mut served.s, conn, upstream);
            Err(failure)
        }
        Err(error @ OpenError::Refused { .. }) => {
            engine_snapshots::not_taken(&mut served.s, conn, upstream);
            Err(fault_of(&error).into())
        }
        Err(error) => {
            engine_snapshots::lost(&mut served.s, &served.w, conn, upstream);
            Err(lost_engine(&error).into())
        }
    }
}

/// The messages that have the engine plan the statement.
fn questions_of(served: &ServedSession) -> Option<Vec<u8>> {
    let statement = gathered_read::statement(&served.s)?;
    let mut values = Vec::new();
    statement.write_values(&mut values)?;
    let mut out = Vec::new();
    write::parse(&mut out, b"", &[gather_plan::EXPLAIN.as_bytes(), &statement.parse].concat());
    write::bind_head(&mut out, b"", b"", values.len());
    out.extend_from_slice(&values);
    write::message(&mut out, front::EXECUTE, |out| out.extend([0; 5]));
    write::bare(&mut out, front::SYNC);
    Some(out)
}

/// `Err`: of the engine. Not cancel safe.
async fn copy_to(
    served: &mut ServedSession,
    engine: &mut ConnTalk,
    question: &[u8],
) -> Result<Result<(), GatherFailure>, OpenError> {
    let w = served.w.clone();
    // Before the gate: a text may be slow to plan, and a plan asks no shard.
    let plan = match planned(served, engine, question).await? {
        Ok(Some(plan)) => plan,
        Ok(None) if served.s.handle.cancel_waits.get() => return Ok(Err(cancelled().into())),
        Ok(None) => return Ok(Ok(())),
        Err(fault) => return Ok(Err(fault.into())),
    };
    let is_wanted = w.peek_config().sharding.reads == CrossShardReads::Snapshot;
    let pass = is_wanted.then(|| GatePass::ask(&w, &served.s.account.known.name, GateSide::Reads));
    if let Some(pass) = &pass {
        if let Err(fault) = pass.held().await {
            return Ok(Err(fault.into()));
        }
        engine.talk.renew(&w, Instant::now() + hold_limit(&w));
        engine.run(&w, LOOK).await?;
    }
    if plan.is_empty() {
        let is_held = pass.is_none_or(|pass| pass.is_held());
        return Ok(match (is_held, served.s.handle.cancel_waits.get()) {
            (false, _) => Err(lost_gate().into()),
            (true, true) => Err(cancelled().into()),
            (true, false) => Ok(()),
        });
    }
    if let Err(failure) = send_parts(served, engine, &plan, pass).await? {
        return Ok(Err(failure));
    }
    let counted = engine.run(&w, &plan.engine_text()).await?;
    let rows = counted.first().and_then(|row| row.first()?.as_deref()?.parse::<u64>().ok());
    if rows.is_none_or(|rows| rows > ROWS_MAX) {
        return Ok(Err(gather_plan::too_many_rows().into()));
    }
    match scans_left(&w, engine, question).await? {
        true => Ok(Err(cannot_gather("it reads them through a view, or names their schema").into())),
        false if served.s.handle.cancel_waits.get() => Ok(Err(cancelled().into())),
        false => Ok(Ok(())),
    }
}

/// The rows to copy. `None`: the statement reads none.
async fn planned(
    served: &ServedSession,
    engine: &mut ConnTalk,
    question: &[u8],
) -> Result<Result<Option<GatherPlan>, ErrorReport>, OpenError> {
    let w = &*served.w;
    engine.run(w, PLAIN_PLANS).await?;
    let Some(scans) = scans(w, engine, question).await? else { return Ok(Err(gather_plan::not_understood())) };
    if scans.is_empty() {
        return Ok(Ok(None));
    }
    let known = gather_plan::read_tables(engine.run(w, &gather_plan::tables_query(&scans)).await?);
    let shards = participants::shards_of_parts(&served.s);
    Ok(known.ok_or_else(gather_plan::not_understood).and_then(|known| GatherPlan::new(scans, known, &shards)).map(Some))
}

async fn scans(w: &Worker, engine: &mut ConnTalk, question: &[u8]) -> Result<Option<Vec<gather_plan::ForeignScan>>, OpenError> {
    let rows = engine.talk.run_messages(w, &engine.address, question).await?;
    let plan = rows.first().and_then(|row| row.first()?.as_deref());
    Ok(plan.and_then(gather_plan::scans_of))
}

/// True in doubt.
async fn scans_left(w: &Worker, engine: &mut ConnTalk, question: &[u8]) -> Result<bool, OpenError> {
    Ok(scans(w, engine, question).await?.is_none_or(|scans| !scans.is_empty()))
}

/// Sends the rows of the transaction's own parts to the engine. Not cancel safe.
async fn send_parts(
    served: &mut ServedSession,
    engine: &mut ConnTalk,
    plan: &GatherPlan,
    pass: Option<GatePass>,
) -> Result<Result<(), GatherFailure>, OpenError> {
    let (w, host) = (served.w.clone(), served.sockets.host.clone());
    let (mut waiting, mut parts) = (Vec::new(), Vec::new());
    let mut failure = None;
    for part in participants::take_parts(&mut served.s) {
        let Some(text) = plan.part_text(part.conn.status.address.shard) else {
            parts.push(part);
            continue;
        };
        let (conn, part) = part.lend();
        match host.parked(conn) {
            Some(conn) => waiting.push((conn, part, text)),
            None => failure = Some(GatherFailure::Transaction(lost_part("it is gone"))),
        }
    }
    // A server tells the begin of a COPY with its first rows, and may look for them for long. Others' commits wait for a moment only.
    let (now, pass) = (Instant::now(), RefCell::new(pass));
    let was_wanted = pass.borrow().is_some();
    let all = all_of(waiting.into_iter().map(|(conn, part, text)| begin_part(&w, conn, part, text, now + COPY_LIMIT)));
    let begun = with_alarm(all, w.reactor.sleep_until(now + hold_limit(&w)), || drop(pass.take())).await;
    let mut copies = Vec::new();
    for (copy, said) in begun {
        failure = GatherFailure::worse(failure, said.err());
        copies.push(copy);
    }
    let pass = pass.into_inner();
    if failure.is_none() && was_wanted {
        failure = match &pass {
            None => Some(gather_plan::too_slow().into()),
            Some(pass) => (!pass.is_held()).then(|| lost_gate().into()),
        };
    }
    drop(pass);
    if failure.is_none() && served.s.handle.cancel_waits.get() {
        failure = Some(cancelled().into());
    }
    let taken = match failure {
        Some(failure) => Ok(Err(failure)),
        None => take_rows(served, engine, &mut copies).await,
    };
    let mut lost = None;
    for mut copy in copies {
        let is_lost = copy.step == PartStep::Lost;
        let rest = copy.come_to_rest(&w).await;
        let (conn, said) = copy.lent.end(rest);
        let cause = said.err().map(|error| error.to_string()).or_else(|| is_lost.then(|| "it owes an answer".to_owned()));
        lost = lost.or(cause);
        parts.push(copy.part.with(host.park_whole(conn)));
    }
    participants::put_parts(&mut served.s, parts);
    match (lost, taken) {
        (Some(_), Ok(Err(failure @ GatherFailure::Transaction(_)))) => Ok(Err(failure)),
        (Some(cause), _) => Ok(Err(GatherFailure::Transaction(lost_part(&cause)))),
        (None, taken) => taken,
    }
}

/// Has a part begin to send its rows. Not cancel safe.
async fn begin_part(
    w: &Worker,
    conn: ServerConn,
    part: LentPart,
    text: String,
    deadline: Instant,
) -> (PartCopy, Result<(), GatherFailure>) {
    let mut copy = PartCopy { lent: ConnTalk::begin(w, conn, deadline), part, step: PartStep::Sends };
    let begun = copy.begin(w, &text).await;
    let said = match begun {
        Ok(said) => said.map_err(GatherFailure::Statement),
        Err(error) => Err(copy.lost(&error)),
    };
    (copy, said)
}

impl PartCopy {
    /// Waits for the begin of the rows: the snapshot is taken. Not cancel safe.
    async fn begin(&mut self, w: &Worker, text: &str) -> Result<Result<(), ErrorReport>, OpenError> {
        let mut out = Vec::new();
        write::query(&mut out, text);
        self.lent.talk.ask_for(w, &self.lent.address, &out, &bounds::COPIED_ROWS).await?;
        loop {
            let (tag, body) = self.lent.talk.next(w, &self.lent.address).await?;
            match tag {
                back::COPY_OUT => return Ok(Ok(())),
                back::ERROR => return Ok(Err(self.failed(&body))),
                back::READY => {
                    self.step = PartStep::Rests;
                    return Ok(Err(gather_plan::not_understood()));
                }
                _ => {}
            }
        }
    }

    fn lost(&mut self, error: &OpenError) -> GatherFailure {
        self.step = PartStep::Lost;
        GatherFailure::Transaction(lost_part(&error.to_string()))
    }

    fn failed(&mut self, body: &[u8]) -> ErrorReport {
        self.step = PartStep::Fails;
        refused(&self.lent.address, body).fault()
    }

    /// The next rows as CopyData messages, `None` at the end. Not cancel safe.
    async fn rows(&mut self, w: &Worker, rows: &mut u64) -> Result<Result<Option<Vec<u8>>, ErrorReport>, OpenError> {
        let mut out = Vec::new();
        while self.step == PartStep::Sends && out.len() < CHUNK {
            let (tag, body) = self.lent.talk.next(w, &self.lent.address).await?;
            match tag {
                back::COPY_DATA => {
                    write::message(&mut out, front::COPY_DATA, |out| out.extend_from_slice(&body));
                    *rows += 1;
                }
                back::ERROR => return Ok(Err(self.failed(&body))),
                back::READY => self.step = PartStep::Rests,
                _ => {}
            }
        }
        Ok(Ok((!out.is_empty()).then_some(out)))
    }

    /// Reads what is left, and undoes what failed: the part of the transaction is as it was before. Not cancel safe.
    async fn come_to_rest(&mut self, w: &Worker) -> Result<(), OpenError> {
        self.lent.talk.renew(w, Instant::now() + COPY_LIMIT);
        let mut has_failed = self.step == PartStep::Fails;
        while matches!(self.step, PartStep::Sends | PartStep::Fails) {
            match self.lent.talk.next(w, &self.lent.address).await?.0 {
                back::ERROR => has_failed = true,
                back::READY => self.step = PartStep::Rests,
                _ => {}
            }
        }
        if has_failed {
            self.lent.run(w, PART_FAILED).await?;
        }
        Ok(())
    }
}

/// Passes the rows on. Not cancel safe.
async fn take_rows(
    served: &ServedSession,
    engine: &mut ConnTalk,
    copies: &mut [PartCopy],
) -> Result<Result<(), GatherFailure>, OpenError> {
    let (w, handle) = (&*served.w, &served.s.handle);
    let (address, limit) = (engine.address.clone(), Instant::now() + COPY_LIMIT);
    engine.talk.renew(w, limit);
    let mut out = Vec::new();
    write::query(&mut out, &gather_plan::begin_text());
    engine.talk.ask_for(w, &address, &out, &bounds::ANSWER).await?;
    until(w, engine, back::COPY_IN).await?;
    let (mut rows, mut failure) = (0, None);
    for copy in copies {
        // A cancel request is for the server whose rows are waited for.
        *handle.conn.borrow_mut() = Some(copy.lent.status().clone());
        handle.is_ours.set(false);
        copy.lent.talk.renew(w, limit);
        while failure.is_none() {
            match copy.rows(w, &mut rows).await {
                Ok(Ok(Some(data))) => engine.talk.send(w, &address, &data).await?,
                Ok(Ok(None)) => break,
                Ok(Err(fault)) => failure = Some(GatherFailure::Statement(fault)),
                Err(error) => failure = Some(copy.lost(&error)),
            }
            if rows > ROWS_MAX {
                failure = Some(gather_plan::too_many_rows().into());
            }
        }
    }
    // From here on it is for the engine, which may wait for a table of another shard.
    *handle.conn.borrow_mut() = Some(engine.status().clone());
    let mut out = Vec::new();
    match failure {
        None => write::bare(&mut out, front::COPY_DONE),
        Some(_) => write::message(&mut out, front::COPY_FAIL, |out| out.push(0)),
    }
    engine.talk.send(w, &address, &out).await?;
    let ended = until(w, engine, back::READY).await;
    match (failure, ended) {
        (Some(failure), Ok(()) | Err(OpenError::Refused { .. })) => Ok(Err(failure)),
        (None, Ok(())) => Ok(Ok(())),
        (_, Err(error)) => Err(error),
    }
}

/// Waits for a message of the engine. An error is told when the engine is ready again.
async fn until(w: &Worker, engine: &mut ConnTalk, wanted: u8) -> Result<(), OpenError> {
    let mut error = None;
    loop {
        let (tag, body) = engine.talk.next(w, &engine.address).await?;
        match tag {
            back::ERROR => error = Some(refused(&engine.address, &body)),
            back::READY if error.is_some() || wanted == back::READY => return error.map_or(Ok(()), Err),
            tag if tag == wanted && error.is_none() => return Ok(()),
            _ => {}
        }
    }
}

fn lost_engine(error: &OpenError) -> ErrorReport {
    if error.is_silent() {
        let text = format!("the rows of the transaction were not copied to the engine within {} s", COPY_LIMIT.as_secs());
        return ErrorReport::error(sqlstate::LOCK_NOT_AVAILABLE, text)
            .detail(
                "They are many, a shard does not answer, or a table is locked on one, perhaps by a statement that waits for this transaction.",
            )
            .hint("Run the transaction again, with the SELECT before its first write.");
    }
    ErrorReport::error(sqlstate::CONNECTION_FAILURE, error.to_string())
}

fn lost_part(cause: &str) -> ErrorReport {
    ErrorReport::error(sqlstate::SERIALIZATION_FAILURE, format!("the transaction has lost a server connection: {cause}"))
        .hint("Run the transaction again.")
}
