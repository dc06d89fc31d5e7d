//! `transaction_replay`: reruns a transaction lost with its server on the next primary, unseen by its client.
//!
//! From the BEGIN on, the client's messages are kept, with a checksum of all bytes sent to the client. If the server is lost and nothing
//! can have been committed, the messages are processed again, and as many answer bytes as were sent are swallowed. If they are equal, the
//! transaction goes on; else it fails with 40001. `repeatable` says what may run again. The owner of the sockets calls `tap` before it
//! sends to the client, `drained` after.

pub mod kept_transaction;
pub mod repeatable;

use crate::context::Context;
use crate::fault::ErrorReport;
use crate::flow::MessageFlow;
use crate::loss::loss_words;
use crate::metrics::WorkerCounter;
use crate::replies::OwedReplies;
use crate::rerun::kept_transaction::{
    AnswerDigest, KeptTransaction, RerunFailure, RerunState, TransactionRerun, ends_group, frames,
};
use crate::session::{IDLE, MessageFate, MessageSkip, Session};
use crate::session_state;
use crate::upstream::ClientKnowledge;
use std::time::Duration;
use weir_failover::rerun_rules::{RerunMatch, TransactionLosses, came_out};
use weir_wire::frame::{MessageHeader, front, split_cstr};

#[inline]
pub fn is_on(s: &Session) -> bool {
    s.state.choice.replay.unwrap_or(s.account.limits.get().on_loss.replay)
}

#[inline]
pub fn is_under_way(s: &Session) -> bool {
    s.intake.replay.as_ref().is_some_and(|record| record.is_under_way())
}

pub struct RerunMark {
    bytes: usize,
}

/// `Err`: what comes first.
#[cold]
pub fn keep(s: &mut Session, w: &Context, header: MessageHeader) -> Result<RerunMark, MessageFlow> {
    warn(s, w);
    let bytes = header.frame_bytes();
    if !is_on(s) && !is_under_way(s) {
        drop_record(s);
        return Ok(RerunMark { bytes: 0 });
    }
    // Weir's query about the last transaction may be under way.
    let is_rest = s.status() == IDLE && s.replies().is_only_ours() && s.intake.skip() == MessageSkip::No;
    let max = usize::try_from(w.peek_config().failover.replay_bytes_max).unwrap_or(usize::MAX);
    let record = s.intake.replay.get_or_insert_default();
    record.finish();
    // An extended BEGIN has several messages.
    if is_rest && !record.is_mid_group && !record.is_under_way() {
        record.begin();
    }
    let mark = RerunMark { bytes: record.messages.len() };
    match &record.state {
        // Not known yet whether the transaction goes on.
        RerunState::Again(run) if run.left == 0 || record.waits() => return Err(MessageFlow::Hold),
        RerunState::Again(_) | RerunState::Spoiled => {}
        RerunState::Whole | RerunState::Ending => {
            if !is_kind(header.tag) || mark.bytes + bytes > max {
                record.spoil();
            } else if !s.up.has_whole(bytes) {
                return Err(MessageFlow::More);
            } else if let Some(message) = s.up.unseen().get(..bytes) {
                record.messages.extend_from_slice(message);
            }
        }
    }
    Ok(mark)
}

/// The session turned the feature off.
fn drop_record(s: &mut Session) {
    s.intake.replay.iter_mut().for_each(|record| record.spoil());
    if s.intake.replay.as_ref().is_some_and(|record| record.warning.is_none()) {
        s.intake.replay = None;
    }
}

#[cold]
pub fn kept(s: &mut Session, header: MessageHeader, mark: &RerunMark, flow: &Result<MessageFlow, ErrorReport>) {
    let Some(record) = &mut s.intake.replay else { return };
    if matches!(flow, Ok(MessageFlow::Next)) {
        // After a copy or function call nothing is under way.
        record.is_mid_group = is_kind(header.tag) && !ends_group(header.tag);
    }
    match (&mut record.state, flow) {
        (RerunState::Again(run), Ok(MessageFlow::Next)) => run.left = run.left.saturating_sub(header.frame_bytes()),
        (RerunState::Again(_) | RerunState::Spoiled, _) | (_, Ok(MessageFlow::Next)) => {}
        (RerunState::Whole | RerunState::Ending, _) => record.messages.truncate(mark.bytes),
    }
    record.finish();
}

/// True if a rerun may hold the message.
fn is_kind(tag: u8) -> bool {
    matches!(
        tag,
        front::QUERY | front::PARSE | front::BIND | front::DESCRIBE | front::EXECUTE | front::CLOSE | front::FLUSH | front::SYNC
    )
}

/// Counts bytes for the client, or swallows those it has.
#[inline]
pub fn tap(s: &mut Session, w: &Context) {
    if s.intake.replay.is_some() && take(s, w) == RerunComparison::Other {
        refuse(s, w);
    }
}

#[derive(PartialEq, Eq)]
enum RerunComparison {
    Same,
    Other,
}

fn take(s: &mut Session, w: &Context) -> RerunComparison {
    let is_over = s.replies().is_settled() && !s.down.has_unseen() && !s.down.is_mid_message() && !session_state::is_holding(s);
    let Some(record) = &mut s.intake.replay else { return RerunComparison::Same };
    let waits = record.waits();
    let KeptTransaction { shown, state, counted, .. } = &mut **record;
    if let RerunState::Again(run) = state
        && !run.is_same
    {
        let wanted = usize::try_from(shown.bytes - run.answers.bytes).unwrap_or(usize::MAX);
        let [first, second] = s.down.pending();
        let first = &first[..first.len().min(wanted)];
        let second = &second[..second.len().min(wanted - first.len())];
        run.answers.add(first);
        run.answers.add(second);
        let taken = first.len() + second.len();
        s.down.skip_pending(taken, &w.buffers);
        let has_ended = (run.left == 0 || waits) && is_over && !s.down.has_pending();
        match came_out(shown.bytes, run.answers.bytes, has_ended, || run.answers.is(shown)) {
            RerunMatch::Short => return RerunComparison::Same,
            RerunMatch::Other => return RerunComparison::Other,
            RerunMatch::Same => {}
        }
        run.is_same = true;
        *counted = 0;
        w.count(WorkerCounter::TransactionsReplayed);
        s.host.run_again();
    }
    if !matches!(state, RerunState::Spoiled) {
        let [first, second] = s.down.pending();
        let rest = counted.saturating_sub(first.len());
        shown.add(&first[(*counted).min(first.len())..]);
        shown.add(&second[rest.min(second.len())..]);
    }
    record.finish();
    RerunComparison::Same
}

#[inline]
pub fn drained(s: &mut Session) {
    let left = s.down.pending().iter().map(|piece| piece.len()).sum();
    if let Some(record) = &mut s.intake.replay {
        record.counted = left;
    }
}

/// True if the lost transaction may run again.
pub fn may_begin(s: &Session, w: &Context) -> bool {
    let Some(record) = &s.intake.replay else { return false };
    let is_here = match &record.state {
        RerunState::Whole | RerunState::Ending => is_whole(&record.messages),
        RerunState::Again(run) => {
            let limit_ms = s.account.limits.get().waits.primary_ms;
            let is_late = limit_ms > 0 && w.now().saturating_duration_since(run.since) > Duration::from_millis(limit_ms);
            !is_late
        }
        RerunState::Spoiled => false,
    };
    is_on(s) && is_here && !s.down.is_mid_message() && !s.down.has_pending() && s.handle.final_error.borrow().is_none()
}

/// Begins the rerun after the loss of the server connection. Returns `told` if there is none; a failed rerun reports its own first loss.
#[cold]
pub fn begin(s: &mut Session, w: &Context, told: RerunFailure) -> Option<RerunFailure> {
    let losses = if may_begin(s, w) { losses_with(s, &told) } else { None };
    let (Some(record), Some(losses)) = (&mut s.intake.replay, losses) else {
        if is_under_way(s) {
            refuse(s, w);
            return None;
        }
        forget(s);
        return Some(told);
    };
    record.losses = losses;
    let all = record.messages.len();
    let (fed, run) = match std::mem::take(&mut record.state) {
        // The client still has to hear of the first loss.
        RerunState::Again(run) => (all - run.left.min(all), TransactionRerun { is_same: false, ..*run }),
        state => {
            let is_ending = matches!(state, RerunState::Ending);
            let run = TransactionRerun {
                left: 0,
                answers: AnswerDigest::default(),
                since: w.now(),
                told,
                prepared: Vec::new(),
                is_same: false,
                is_ending,
            };
            (all, run)
        }
    };
    let mut run = TransactionRerun { left: all, answers: AnswerDigest::default(), ..run };
    record.counted = 0;
    for name in parsed(&record.messages[..fed]) {
        if let Some((name, own)) = s.statements.named.remove_entry(name)
            && !run.prepared.iter().any(|(known, _)| *known == name)
        {
            run.prepared.push((name, own));
        }
    }
    s.up.unread(&record.messages[..fed], &w.buffers);
    record.state = RerunState::Again(Box::new(run));
    s.lazy_begin.end();
    s.intake.stop_skipping();
    s.statements.close_portal();
    s.host.run_again();
    None
}

pub fn begin_or_tell(s: &mut Session, w: &Context, told: RerunFailure) {
    if let Some(told) = begin(s, w, told) {
        w.count(WorkerCounter::ReplaysRefused);
        w.count(WorkerCounter::TransactionsLost);
        loss_words::tell_lost(s, w, told);
    }
}

/// Losses including the present one.
fn losses_with(s: &Session, told: &RerunFailure) -> Option<TransactionLosses> {
    let record = s.intake.replay.as_ref()?;
    let sent = match &record.state {
        RerunState::Again(run) => record.messages.len().saturating_sub(run.left),
        RerunState::Whole | RerunState::Ending | RerunState::Spoiled => record.messages.len(),
    };
    let ends = frames(record.messages.get(..sent)?).filter(|(header, _)| ends_group(header.tag));
    let groups: u32 = ends.map(|_| 1).sum();
    let had_it = told.owed != OwedReplies::default() && told.heard == ClientKnowledge::Something;
    record.losses.with(had_it.then(|| groups.saturating_sub(told.owed.readies)))
}

/// Ends the record before a loss or doubt is reported. Returns the client's share of `owed`.
pub fn give_up(s: &mut Session, w: &Context, owed: OwedReplies) -> OwedReplies {
    match s.intake.replay.as_mut().map(|record| std::mem::take(&mut record.state)) {
        Some(RerunState::Again(run)) => {
            let owed = if run.is_same { owed } else { run.told.owed };
            drop_run(s, w, *run);
            owed
        }
        Some(RerunState::Whole | RerunState::Ending | RerunState::Spoiled) | None => {
            forget(s);
            owed
        }
    }
}

/// Ends the record outside of a rerun.
pub fn forget(s: &mut Session) {
    s.intake.replay.iter_mut().filter(|record| !record.is_under_way()).for_each(|record| record.spoil());
}

/// True if the messages begin as a BEGIN may. After a partial one all would run outside of a transaction.
fn is_whole(messages: &[u8]) -> bool {
    matches!(messages.first(), Some(&(front::QUERY | front::PARSE | front::BIND)))
}

fn parsed(messages: &[u8]) -> impl Iterator<Item = &[u8]> {
    frames(messages)
        .filter(|(header, _)| header.tag == front::PARSE)
        .filter_map(|(_, body)| split_cstr(body))
        .map(|(name, _)| name)
        .filter(|name| !name.is_empty())
}

/// Fails a rerun.
#[cold]
pub fn refuse(s: &mut Session, w: &Context) {
    let Some(record) = &mut s.intake.replay else { return };
    let RerunState::Again(mut run) = std::mem::take(&mut record.state) else { return };
    w.count(WorkerCounter::ReplaysRefused);
    w.count(WorkerCounter::TransactionsLost);
    if let Some((conn, _)) = s.lose(w, MessageFate::Unknown) {
        s.host.close(conn);
    }
    run.is_same = false;
    let told = drop_run(s, w, *run);
    loss_words::tell_lost(s, w, told);
    s.show_doing();
    s.host.run_again();
}

/// Undoes the rest of a rerun whose server connection is gone. Returns the first loss.
fn drop_run(s: &mut Session, w: &Context, run: TransactionRerun) -> RerunFailure {
    forget(s);
    if !run.is_same {
        // The client has seen nothing of these answers.
        s.down.drop_unseen();
        s.down.forget_pending(&w.buffers);
        s.up.drop_rest();
        s.intake.stop_skipping();
        let mut left = run.left;
        while left > 0 {
            let Ok(Some(header)) = s.up.peek(&w.buffers) else { break };
            s.up.eat(header);
            left = left.saturating_sub(header.frame_bytes());
        }
    }
    for (name, own) in run.prepared {
        s.statements.named.keep(name, own);
    }
    run.told
}

fn warn(s: &mut Session, w: &Context) {
    if is_under_way(s) || !s.may_speak() {
        return;
    }
    let warning = s.intake.replay.as_mut().and_then(|record| record.warning.take());
    if let Some(warning) = warning {
        s.down.extra(&w.buffers).extend_from_slice(&warning);
    }
}
