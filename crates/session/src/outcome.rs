//! `commit_outcome`: the outcome of a COMMIT whose answer was lost.
//!
//! The question for the transaction's number goes in front of the first statement that writes, in the same write, and its answer is eaten. It
//! comes before the statement's answer, so that a client which has heard that has a transaction whose number is known. A statement that may
//! write has the number asked for in front of a later one, at the latest the COMMIT. If the connection is lost and nothing but the COMMIT can
//! have committed anything, the session waits: `weir::traffic::outcome` asks the primary. Decisions are `policy::outcome`'s.

use crate::causal;
use crate::classify;
use crate::conn::ServerLine;
use crate::context::Context;
use crate::fault::{Fault, sqlstate};
use crate::metrics::Metric;
use crate::replay::{self, Told};
use crate::session::{Entered, FAILED, IDLE, Server, Session, Skip};
use crate::statements::{Statement, Trait};
use crate::status::Doing;
use crate::task::Us;
use crate::upstream::ServerTxn;
use std::collections::VecDeque;
use std::num::NonZeroU64;
use weir_policy::loss::{Behind, Commits, Control, Outcome, Then};
use weir_policy::outcome::{Line, Number, Verdict};
use weir_policy::prepared::{Need, StatementId, push_name};
use weir_policy::replies::{Expect, Owed};
use weir_policy::settings::Settings;
use weir_policy::transaction::may_write;
use weir_sql::facts::{Ending, Transaction, Verb};
use weir_wire::back::read_row;
use weir_wire::frame::{HEADER_BYTES, Header, front};
use weir_wire::write;

/// The parameters by which a session chooses for itself.
pub const OUTCOME: &str = "weir.commit_outcome";
pub const REPLAY: &str = "weir.transaction_replay";

/// Questions, under numbers that no client's statement has.
const LINE: Question = Question {
    id: StatementId::MAX,
    text: "SELECT (pg_catalog.pg_control_system()).system_identifier, \
           pg_catalog.substr(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_lsn()), 1, 8)",
};
const NUMBER: Question = Question {
    id: StatementId::MAX - 1,
    text: "SELECT pg_catalog.txid_current(), pg_catalog.floor(pg_catalog.date_part('epoch', pg_catalog.clock_timestamp()))",
};
/// A transaction that has written nothing gets no number by it.
const NUMBER_IF_ANY: Question = Question {
    id: StatementId::MAX - 2,
    text: "SELECT pg_catalog.txid_current_if_assigned(), \
           pg_catalog.floor(pg_catalog.date_part('epoch', pg_catalog.clock_timestamp()))",
};

/// The portal of a question. It is closed at once.
const PORTAL: &[u8] = b"weir_number";

struct Question {
    id: StatementId,
    text: &'static str,
}

/// The choices of a session for itself.
#[derive(Clone, Copy, Debug, Default)]
pub struct Choice {
    pub outcome: Option<bool>,
    pub replay: Option<bool>,
}

impl Choice {
    /// Takes what the settings say. A value that means nothing counts as none.
    pub fn of(settings: &Settings) -> Choice {
        let own = |name: &str| settings.get(name).and_then(of_word);
        Choice { outcome: own(OUTCOME), replay: own(REPLAY) }
    }
}

/// A switch in PostgreSQL's words.
pub fn of_word(word: &str) -> Option<bool> {
    match word.trim().to_ascii_lowercase().as_str() {
        "on" | "true" | "yes" | "1" => Some(true),
        "off" | "false" | "no" | "0" => Some(false),
        _ => None,
    }
}

/// The number of the open transaction, as far as it is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Asked {
    /// It is not asked for: the transaction has not written, as far as is known.
    #[default]
    No,
    /// It has sent something that may have written.
    Due,
    /// The answer is due.
    Waits {
        at: Us,
    },
    Known {
        number: Number,
        at: Us,
    },
    /// Another transaction may have begun since.
    Spoiled,
}

/// The question for the number, and the COMMIT behind it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Numbered {
    pub asked: Asked,
    /// A plain COMMIT of this transaction is the last that was sent.
    pub is_committing: bool,
}

/// A COMMIT whose answer was lost. Its client waits for one.
pub struct Doubt {
    pub number: Number,
    /// Connections that are older than this have been there when the number was.
    pub asked_at: Us,
    /// The answer to the COMMIT, as far as it is due, without its ReadyForQuery. `None`: other answers are lost.
    answer: Option<Vec<u8>>,
    owed: Owed,
    /// Said if nothing is proved.
    unknown: Fault,
    /// Prepared statements that are not there if the client hears of an error.
    journal: VecDeque<Entered>,
}

#[inline]
fn is_on(s: &Session) -> bool {
    s.state.choice.outcome.unwrap_or(s.account.limits.get().on_loss.outcome)
}

/// A transaction that has waited is about to begin: asks for the server's line in front of it, where a refusal harms nobody.
#[inline]
pub fn ask_line(s: &mut Session, w: &Context) {
    if is_on(s) {
        ask_line_if_due(s, w);
    }
}

#[inline(never)]
fn ask_line_if_due(s: &mut Session, w: &Context) {
    let is_mid_message = s.up.is_mid_message();
    let Some(Server { conn, upstream }) = &mut s.server else { return };
    let is_before = upstream.txn.status == IDLE && upstream.replies.is_only_ours() && !is_mid_message;
    if is_before && conn.line == ServerLine::Unasked && conn.is_to_primary(&w.view()) {
        conn.line = ServerLine::Asked;
        send(s, w, &LINE);
    }
}

/// A statement is about to be sent, or prepared, over a server connection that is ready for it: asks for the transaction's number in front of it, if
/// that is due.
#[inline]
pub fn ask_ahead(s: &mut Session, w: &Context, statement: &Statement) {
    if is_on(s) {
        ask_if_due(s, w, statement);
    }
}

#[inline(never)]
fn ask_if_due(s: &mut Session, w: &Context, statement: &Statement) {
    let is_commit = statement.transaction == Transaction::End(Ending::Commit);
    let writes = statement.has(Trait::Writes);
    let may_write = writes || may_write(classify::class_of(s, w, statement), statement.has(Trait::Calls));
    let (is_mid_message, at) = (s.up.is_mid_message(), w.now_us());
    let Some(Server { conn, upstream }) = &mut s.server else { return };
    let is_primary = conn.is_to_primary(&w.view()) && !upstream.only_reads();
    let has_line = matches!(conn.line, ServerLine::Asked | ServerLine::Known(_));
    let txn = &mut upstream.txn;
    txn.numbered.is_committing = false;
    if matches!(statement.transaction, Transaction::Begin(_)) {
        return ask_line_if_due(s, w);
    }
    let is_within = txn.control.is_open(txn.status != IDLE) && txn.status != FAILED;
    if !is_within || !is_primary || !has_line {
        return;
    }
    let question = match (txn.numbered.asked, statement.verb) {
        // It gets a number anyway.
        (Asked::No | Asked::Due, Verb::Insert | Verb::Update | Verb::Delete) if writes => &NUMBER,
        // A question takes a snapshot, as these do themselves, or it is the last moment.
        (Asked::Due, Verb::Select) => &NUMBER_IF_ANY,
        (Asked::Due, _) if is_commit => &NUMBER_IF_ANY,
        (Asked::No, _) if may_write && statement.transaction == Transaction::None => {
            txn.numbered.asked = Asked::Due;
            return;
        }
        (Asked::No | Asked::Due | Asked::Waits { .. } | Asked::Known { .. } | Asked::Spoiled, _) => return,
    };
    let replies = &upstream.replies;
    let may_speak = !replies.is_unsynced() && !replies.is_skipping() && !replies.is_copying_in() && !is_mid_message;
    if !may_speak {
        txn.numbered.asked = Asked::Due;
        return;
    }
    txn.numbered.asked = Asked::Waits { at };
    send(s, w, question);
}

/// Writes a question, up to its Sync.
fn send(s: &mut Session, w: &Context, question: &Question) {
    let max = w.peek_config().pool.prepared_max as usize;
    let Some(Server { conn, upstream }) = &mut s.server else { return };
    let out = s.up.extra(&w.buffers);
    if let Need::Parse { evict } = conn.known.touch(question.id, max) {
        // Its own name is closed, too: an earlier question may have been prepared that failed.
        let others = evict.filter(|id| *id != question.id);
        others.into_iter().chain([question.id]).for_each(|id| close(out, id));
        write::message(out, front::PARSE, |out| {
            push_name(out, question.id);
            out.push(0);
            write::cstr(out, question.text.as_bytes());
            out.extend([0; 2]);
        });
    }
    write::message(out, front::BIND, |out| {
        write::cstr(out, PORTAL);
        push_name(out, question.id);
        out.extend([0; 7]);
    });
    write::message(out, front::EXECUTE, |out| {
        write::cstr(out, PORTAL);
        out.extend([0; 4]);
    });
    write::named(out, front::CLOSE, b'P', PORTAL);
    write::bare(out, front::SYNC);
    upstream.replies.push(Expect::NumberOurs);
    s.handle.is_ours.set(true);
}

fn close(out: &mut Vec<u8>, id: StatementId) {
    write::message(out, front::CLOSE, |out| {
        out.push(b'S');
        push_name(out, id);
        out.push(0);
    });
}

/// A row of an answer, which is whole: the server's line if that was asked for, or the number.
pub fn on_row(s: &mut Session, header: Header) {
    let body = s.down.unseen().get(HEADER_BYTES..header.frame_bytes()).unwrap_or_default();
    let cells = read_row(body).unwrap_or_default();
    let text = |at: usize| cells.get(at).copied().flatten().and_then(|cell| std::str::from_utf8(cell).ok());
    let read = text(0).zip(text(1));
    let Some(Server { conn, upstream }) = &mut s.server else { return };
    let line = match conn.line {
        ServerLine::Known(line) => line,
        ServerLine::Asked => {
            let line = read.and_then(|(system, timeline)| {
                Some(Line { system: system.parse().ok()?, timeline: u32::from_str_radix(timeline, 16).ok()? })
            });
            conn.line = line.map_or(ServerLine::Hidden, ServerLine::Known);
            return;
        }
        ServerLine::Unasked | ServerLine::Hidden => return,
    };
    let numbered = &mut upstream.txn.numbered;
    let Asked::Waits { at } = numbered.asked else { return };
    let number = read.and_then(|(xid, said)| {
        let xid: NonZeroU64 = xid.parse().ok()?;
        Some(Number { xid, line, said_s: said.parse().ok()? })
    });
    // A transaction that has none yet may write later.
    numbered.asked = number.map_or(Asked::Due, |number| Asked::Known { number, at });
}

/// The server refuses the question: its transaction has failed, perhaps.
#[cold]
pub fn on_refused(s: &mut Session) {
    let Some(Server { conn, upstream }) = &mut s.server else { return };
    [LINE, NUMBER, NUMBER_IF_ANY].iter().for_each(|question| conn.known.forget(question.id));
    match conn.line {
        ServerLine::Asked => conn.line = ServerLine::Hidden,
        ServerLine::Unasked | ServerLine::Known(_) | ServerLine::Hidden => upstream.txn.numbered.asked = Asked::Spoiled,
    }
}

/// The answer is over, with this transaction status: a number is one of an open transaction only.
pub fn on_answer(s: &mut Session, status: u8) {
    let Some(Server { conn, upstream }) = &mut s.server else { return };
    let asked = &mut upstream.txn.numbered.asked;
    if status == IDLE && matches!(asked, Asked::Known { .. }) {
        *asked = Asked::Spoiled;
    }
    if conn.line == ServerLine::Asked {
        // It had no row.
        conn.line = ServerLine::Hidden;
    }
}

impl ServerTxn {
    /// A statement that begins or ends a transaction is about to be sent, or one of which nothing is known. `before`: all that was sent before it
    /// without an answer.
    pub fn number_control(&mut self, transaction: Transaction, before: Control) {
        let numbered = &mut self.numbered;
        let may_follow = before.commits == Commits::No && before.behind != Behind::Closed;
        match transaction {
            Transaction::End(Ending::Commit) if may_follow => numbered.is_committing = true,
            Transaction::Within => {}
            Transaction::Begin(_) if numbered.asked == Asked::No && may_follow => {}
            // A transaction behind another one, without an answer in between.
            _ => *numbered = Numbered { asked: Asked::Spoiled, is_committing: false },
        }
    }

    /// All that was sent is answered.
    pub fn number_answered(&mut self) {
        self.numbered.is_committing = false;
        if self.status == IDLE {
            self.numbered.asked = Asked::No;
        }
    }
}

/// The server connection is lost, and the outcome of what was under way is not known: the COMMIT of a numbered transaction, if it is nothing else.
#[cold]
pub fn doubt(s: &mut Session, outcome: Outcome, unknown: &Fault) -> Option<Box<Doubt>> {
    if outcome != Outcome::Unknown(Then::Outside) || s.down.is_mid_message() {
        return None;
    }
    let Server { upstream, .. } = s.server.as_mut()?;
    let Numbered { asked: Asked::Known { number, at }, is_committing: true } = upstream.txn.numbered else { return None };
    let owed = upstream.replies.owed();
    if owed.unsynced || owed.skipping || owed.readies == 0 {
        return None;
    }
    // State that the transaction may have left with the server is not the session's any more.
    let has_left = !upstream.left.due.is_empty() || upstream.left.asking.is_some();
    let answer = if has_left { None } else { upstream.replies.answer_of_one("COMMIT") };
    let journal = std::mem::take(&mut upstream.journal);
    Some(Box::new(Doubt { number, asked_at: at, answer, owed, unknown: unknown.clone(), journal }))
}

/// The session has lost its server connection, and its client waits.
pub fn wait(s: &mut Session, doubt: Box<Doubt>) {
    s.intake.doubt = Some(doubt);
    s.handle.status.set_doing(Doing::WaitingForConnection);
    s.wake();
}

/// The outcome is proved, or nothing is. Says the client's answer.
pub fn settle(s: &mut Session, w: &Context, verdict: Verdict) {
    let Some(doubt) = s.intake.doubt.take() else { return };
    if verdict != Verdict::RolledBack {
        replay::forget(s);
    }
    let Doubt { answer, owed, unknown, mut journal, .. } = *doubt;
    match (verdict, answer) {
        (Verdict::Committed, Some(answer)) => {
            w.count(Metric::OutcomesCommitted);
            let round = w.shared.positions.next_round();
            causal::heard_from_memory(s, w, round);
            s.down.extra(&w.buffers).extend_from_slice(&answer);
            s.say_ready(w);
            s.show_doing();
            return;
        }
        (Verdict::Committed, None) => {
            w.count(Metric::OutcomesCommitted);
            undo(s, &mut journal);
            let text =
                "the transaction was committed, and its other answers, or the state that it left, were lost with the connection";
            let fault = Fault::error(sqlstate::TRANSACTION_RESOLUTION_UNKNOWN, text).hint("Do not run it again.");
            tell(s, w, owed, &fault);
        }
        (Verdict::RolledBack, _) => {
            w.count(Metric::OutcomesRolledBack);
            undo(s, &mut journal);
            let text = "the connection to the server was lost, and with it the transaction: nothing of it was committed";
            let fault =
                Fault::error(sqlstate::SERIALIZATION_FAILURE, text).detail(unknown.detail).hint("Run the transaction again.");
            let Err(told) = replay::begin(s, w, Told { then: Then::Outside, owed, fault }) else { return };
            replay::forget(s);
            w.count(Metric::TransactionsLost);
            tell(s, w, owed, &told.fault);
        }
        (Verdict::Unknown | Verdict::NotYet, _) => {
            w.count(Metric::OutcomesUnknown);
            undo(s, &mut journal);
            tell(s, w, owed, &unknown);
        }
    }
    s.show_doing();
}

fn undo(s: &mut Session, journal: &mut VecDeque<Entered>) {
    while let Some(entered) = journal.pop_back() {
        s.statements.take_back(journal, journal.len(), entered.change, false);
    }
}

fn tell(s: &mut Session, w: &Context, owed: Owed, fault: &Fault) {
    for _ in 0..owed.readies {
        s.say_error(w, fault);
        s.say_ready(w);
    }
    s.intake.skip = Skip::No;
}
