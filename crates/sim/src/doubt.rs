//! COMMITs whose answers are lost. Weirs ask the server that takes writes for the transaction's number, `weir_failover::commit_outcome` judges its answers, and
//! a transaction that was rolled back runs again.

use std::collections::BTreeMap;
use std::num::NonZeroU64;

use weir_failover::commit_outcome::{
    CommitOutcome, LogLineage, PromotedStandby, PromotionHorizon, ServerLife, TransactionNumber, XidStatus, XidStatusAnswer,
    judge,
};
use weir_failover::{Ms, NodeId, PromotionNumbers};

use crate::again::Place;
use crate::kinds::Proof;
use crate::oracle::{Broken, Transaction, Write};
use crate::server::{Power, Server, WriteId};
use crate::world::{Due, World};

/// COMMITs in doubt, by the answers that their clients heard.
#[derive(Clone, Copy, Debug, Default)]
pub struct Told {
    pub committed: usize,
    pub rolled_back: usize,
    pub unknown: usize,
    /// Transactions that ran again and were shown the same, and those that failed.
    pub again: usize,
    pub refused: usize,
}

/// A Weir's knowledge about numbers.
#[derive(Clone, Debug, Default)]
pub struct Doubts {
    promoted: Option<PromotedStandby>,
    horizon: Option<PromotionHorizon>,
    lives: BTreeMap<NodeId, ServerLife>,
}

impl Doubts {
    fn note_life(&mut self, node: NodeId, life: ServerLife) {
        let known = self.lives.entry(node).or_insert(life);
        *known = known.with(life);
    }

    pub fn forget_promotion(&mut self) {
        self.promoted = None;
    }

    /// The numbers that a node is to keep.
    pub fn numbers(&self, node: NodeId) -> Option<PromotionNumbers> {
        self.promoted?.numbers(node)
    }
}

/// A question for an outcome, over a connection to one incarnation of the server.
#[derive(Debug)]
pub struct Question {
    weir: usize,
    life: u32,
    write: WriteId,
    node: NodeId,
    connection: Option<u64>,
}

#[derive(Debug)]
pub struct Reply {
    question: Question,
    answer: XidStatusAnswer,
    /// Enough standbys have the commit, if it is one.
    is_replicated: bool,
}

/// Time between two questions, and the longest wait of a client.
pub const PERIOD_MS: Ms = 150;
pub const WAIT_MS: Ms = 10_000;
/// Time of an answer to the question ahead of a COMMIT.
const CONFIRMED_MS: Ms = 2;
/// The servers' clocks are at so much when a run begins.
const EPOCH_MS: Ms = 1_000_000;

fn seconds(at: Ms) -> u64 {
    (EPOCH_MS + at) / 1000
}

fn line(server: &Server) -> LogLineage {
    LogLineage { system: server.history.system, timeline: server.history.timeline }
}

impl Reply {
    pub fn weir(&self) -> usize {
        self.question.weir
    }
}

impl World {
    /// The first write of a transaction at its server: it has a number now.
    pub(crate) fn number(&mut self, write: WriteId, row: u8) {
        let now = self.now;
        let entry = &mut self.writes[write as usize];
        entry.asked_at = entry.sent_at;
        let server = &mut self.servers[usize::from(entry.node)];
        let xid = NonZeroU64::new(server.give_number(Some(row))).expect("numbers begin with 1");
        let number = TransactionNumber { xid, node: entry.node, line: line(server), said_ms: EPOCH_MS + now };
        entry.transaction = Transaction::Open(number);
        entry.incarnation = server.incarnation;
    }

    /// The answer to a question for a number arrives at its Weir: with the first statement of a transaction, or ahead of its COMMIT.
    pub(crate) fn answered(&mut self, write: WriteId, said_ms: u64) {
        let Write { weir, node, incarnation, asked_at, sent_at, transaction, .. } = self.writes[write as usize];
        let (Transaction::Open(number) | Transaction::Numbered(number)) = transaction else { return };
        let weir = &mut self.weirs[weir];
        let opened_at = weir.opened_at.get(&node).filter(|(of, _)| *of == incarnation).map_or(asked_at, |(_, at)| *at);
        let from_us = 1000 * opened_at.min(asked_at);
        weir.doubts.note_life(node, ServerLife { line: number.line, from_us, to_us: 1000 * sent_at, said_ms });
    }

    /// Ahead of its COMMIT a transaction is asked for its number once more.
    pub(crate) fn confirm(&mut self, write: WriteId) {
        self.later(CONFIRMED_MS, Due::Confirmed { write, said_ms: EPOCH_MS + self.now });
    }

    pub(crate) fn confirmed(&mut self, write: WriteId, said_ms: u64) {
        let Write { weir, node, life, is_over, .. } = self.writes[write as usize];
        if !is_over && self.weirs[weir].life == life && self.passes(usize::from(node), self.end_of(weir)) {
            self.answered(write, said_ms);
        }
    }

    /// A write is lost with its connection. If its COMMIT was sent its client waits for the outcome, else it runs again.
    pub(crate) fn doubt(&mut self, write: WriteId) {
        self.close(write);
        let entry = &mut self.writes[write as usize];
        if std::mem::replace(&mut entry.is_over, true) {
            return;
        }
        entry.lost_at = self.now;
        let Write { weir, life, transaction, run, .. } = *entry;
        let was_shown = self.writes[run.again.unwrap_or(write) as usize].run.shown.is_some();
        match transaction {
            Transaction::None => {}
            Transaction::Open(_) if was_shown => self.begin_again(write, Place::Rest),
            Transaction::Begun | Transaction::Open(_) => self.begin_again(write, Place::Statement),
            Transaction::Numbered(_) => self.later(1, Due::Ask { weir, life, write }),
        }
    }

    /// Connections to a node have ended: transactions over those of an earlier incarnation are lost.
    pub(crate) fn break_transactions(&mut self, weir: usize, node: NodeId) {
        let incarnation = self.servers[usize::from(node)].incarnation;
        let is_lost = |write: &WriteId| {
            let entry = &self.writes[*write as usize];
            let is_numbered = matches!(entry.transaction, Transaction::Open(_) | Transaction::Numbered(_));
            is_numbered && entry.node == node && entry.incarnation != incarnation
        };
        let lost: Vec<WriteId> = self.weirs[weir].writes.iter().copied().filter(is_lost).collect();
        for write in lost {
            self.weirs[weir].writes.remove(&write);
            self.doubt(write);
        }
    }

    /// Asks, and will ask again.
    pub(crate) fn ask_outcome(&mut self, weir: usize, life: u32, write: WriteId) {
        let entry = &self.writes[write as usize];
        if self.weirs[weir].life != life || self.weirs[weir].state.is_none() || entry.told.is_some() {
            return;
        }
        if self.now > entry.lost_at + WAIT_MS {
            return self.tell_outcome(write, CommitOutcome::Unknown);
        }
        self.later(PERIOD_MS, Due::Ask { weir, life, write });
        let Some((node, _)) = self.weirs[weir].gate() else { return };
        let connection = self.weirs[weir].connections.get(&node).copied();
        let delay = self.delay();
        self.later(delay, Due::Question(Question { weir, life, write, node, connection }));
    }

    /// A question at its server.
    pub(crate) fn question(&mut self, question: Question) {
        let at = usize::from(question.node);
        let entry = &self.writes[question.write as usize];
        let Transaction::Numbered(number) = entry.transaction else { return };
        if !self.passes(self.end_of(question.weir), at) {
            return;
        }
        let server = &self.servers[at];
        match server.power {
            Power::Hung => return self.queues[at].push(Due::Question(question)),
            Power::Dark | Power::Stopped | Power::Starting | Power::Stopping => return,
            Power::Up => {}
        }
        let (status, end) = server.status(number.xid.get());
        let is_replicated = status != XidStatus::Committed || server.reach() >= end;
        let answer = XidStatusAnswer {
            node: question.node,
            line: line(server),
            in_recovery: !server.is_primary(),
            status,
            started_s: seconds(server.numbers.clock.started_at),
            checkpoint_s: seconds(server.numbers.clock.checkpoint_at),
            checkpoint_xid: server.numbers.clock.checkpoint_number,
            is_of_old: question.connection == Some(server.incarnation) && entry.incarnation == server.incarnation,
        };
        let delay = self.delay();
        self.later(delay, Due::Reply(Box::new(Reply { question, answer, is_replicated })));
    }

    /// The answer at its Weir.
    pub(crate) fn reply(&mut self, reply: Reply) {
        let Reply { question: Question { weir, life, write, node, .. }, answer, is_replicated } = reply;
        let is_there = self.weirs[weir].life == life && self.passes(usize::from(node), self.end_of(weir));
        let is_primary = self.weirs[weir].gate().is_some_and(|(target, _)| target == node) && !self.is_past_lease(weir, node);
        let entry = &self.writes[write as usize];
        let Transaction::Numbered(number) = entry.transaction else { return };
        if !is_there || !is_primary || entry.told.is_some() {
            return;
        }
        let (asked_us, noticed_ms) = (1000 * entry.asked_at, EPOCH_MS + entry.lost_at);
        let life = self.weirs[weir].doubts.lives.get(&number.node);
        let alive_ms = life.map_or(number.said_ms, |life| life.alive_ms(&number, asked_us));
        let is_left_out = self.plan.unproved == Some(Proof::Answered);
        let verdict = self.judged(weir, (&number, if is_left_out { noticed_ms } else { alive_ms }), answer);
        if verdict == CommitOutcome::Committed && !is_replicated && self.plan.unproved != Some(Proof::Replicated) {
            return;
        }
        if verdict != CommitOutcome::NotYet {
            self.tell_outcome(write, verdict);
        }
    }

    /// The verdict, without the part of the proof that is left out.
    fn judged(&self, weir: usize, (number, alive_ms): (&TransactionNumber, Ms), mut answer: XidStatusAnswer) -> CommitOutcome {
        let mut horizon = self.weirs[weir].doubts.horizon;
        match (self.plan.unproved, &mut horizon) {
            (Some(Proof::Reached), Some(horizon)) => horizon.numbers.reached = u64::MAX,
            (Some(Proof::Fresh), Some(horizon)) => horizon.numbers.fresh = horizon.numbers.reached,
            (Some(Proof::NextLine), Some(horizon)) => horizon.before = number.line.timeline,
            (Some(Proof::AllBefore), Some(horizon)) => horizon.numbers.last_ms = Some(0),
            (Some(Proof::RunOn), _) => answer.is_of_old = true,
            (Some(Proof::LaterCheckpoint), _) => answer.checkpoint_s = u64::MAX,
            (Some(Proof::InProgress), _) if answer.status == XidStatus::InProgress => answer.status = XidStatus::Aborted,
            _ => {}
        }
        judge(number, alive_ms, &answer, horizon.as_ref())
    }

    /// The client hears it. A transaction that was rolled back runs again.
    fn tell_outcome(&mut self, write: WriteId, verdict: CommitOutcome) {
        self.note(|| format!("write {write} was lost: {verdict:?}"));
        let now = self.now;
        let entry = &mut self.writes[write as usize];
        entry.told = Some(verdict);
        let weir = entry.weir;
        match verdict {
            CommitOutcome::Committed => {
                self.counts.told.committed += 1;
                entry.acknowledged_at = Some(now);
                let Some((node, _)) = self.weirs[weir].target else { return };
                if !self.servers[usize::from(node)].log.iter().rev().any(|logged| logged.write == write) {
                    self.needless.push(Broken::FalseOutcome { write, told: verdict, at: now });
                }
            }
            CommitOutcome::RolledBack => {
                self.counts.told.rolled_back += 1;
                self.begin_again(write, Place::Commit);
            }
            CommitOutcome::Unknown | CommitOutcome::NotYet | CommitOutcome::Untold => self.counts.told.unknown += 1,
        }
    }

    /// A Weir promotes a standby: it asks for the numbers that have reached it. The last records may not have been replayed.
    pub(crate) fn see_promotion(&mut self, weir: usize, life: u32, node: NodeId) {
        let unplayed = self.dice.below(4) as usize;
        let server = &self.servers[usize::from(node)];
        let unplayed = server.log.len().saturating_sub(unplayed);
        let above = server.log[..unplayed].iter().map(|logged| logged.number + 1).max().unwrap_or(1);
        let last = server.log[..unplayed].iter().rev().find_map(|logged| self.writes.get(logged.write as usize));
        let last_ms = last.map(|write| EPOCH_MS + write.appended_at);
        let promoted = PromotedStandby::Ordered { node, started_at: server.started_at, reached: above, last_ms };
        if self.weirs[weir].life == life {
            self.weirs[weir].doubts.promoted = Some(promoted).filter(|_| !self.servers[usize::from(node)].is_primary());
        }
    }

    /// The standby takes writes.
    pub(crate) fn see_writable(&mut self, weir: usize, life: u32, node: NodeId) {
        let server = &self.servers[usize::from(node)];
        let promoted = self.weirs[weir].doubts.promoted.filter(|_| self.weirs[weir].life == life);
        if let Some(promoted) = promoted {
            let facts = server.facts(self.now);
            self.weirs[weir].doubts.promoted = Some(promoted.done(node, &facts, server.numbers.above));
        }
    }

    /// A Weir sends writes to a node.
    pub(crate) fn see_horizon(&mut self, weir: usize, node: NodeId) {
        let server = &self.servers[usize::from(node)];
        let facts = self.weirs[weir].state.as_ref().and_then(|state| state.nodes.get(&node)?.facts());
        let Some(facts) = facts else { return };
        let mut horizon = PromotionHorizon::of(self.weirs[weir].doubts.promoted, node, facts);
        if let (Some(Proof::SeenPromotion), None, Some((before, _))) =
            (self.plan.unproved, horizon, facts.history.switches.last())
        {
            let (timeline, reached) = (facts.history.timeline, server.numbers.above);
            let numbers = PromotionNumbers { timeline, reached, fresh: reached, last_ms: Some(0) };
            horizon = Some(PromotionHorizon { node, system: facts.history.system, before: *before, numbers });
        }
        self.weirs[weir].doubts.horizon = horizon;
    }
}
