//! Transactions that run again after a loss. One changes a row and is shown its version by the same statement; then its client sends the COMMIT.
//! `weir_failover::rerun_rules` says how often it runs, and if it was shown the same.

use weir_failover::Ms;
use weir_failover::commit_outcome::CommitOutcome;
use weir_failover::rerun_rules::{RerunMatch, came_out};

use crate::doubt::{PERIOD_MS, WAIT_MS};
use crate::kinds::Proof;
use crate::oracle::{Run, Transaction, Write};
use crate::server::WriteId;
use crate::world::{Due, World};

/// Longest time between an answer and the COMMIT of a client.
const THINKS_MS: Ms = 60;
/// Time between two looks at a row that another transaction has changed.
const LOCKED_MS: Ms = 20;

/// The version of a row as its client is shown it.
pub type Version = [u8; 8];

/// A transaction that is to run again.
#[derive(Clone, Copy, Debug)]
pub struct Again {
    weir: usize,
    life: u32,
    /// Its first run.
    root: WriteId,
    until: Ms,
}

impl Again {
    pub fn weir(&self) -> usize {
        self.weir
    }
}

/// The places of a transaction at which its server may be lost.
#[derive(Clone, Copy, Debug)]
pub enum Place {
    /// Between its statements.
    Rest,
    Statement,
    Commit,
}

impl Place {
    fn group(self) -> Option<u32> {
        match self {
            Place::Rest => None,
            Place::Statement => Some(0),
            Place::Commit => Some(1),
        }
    }
}

impl World {
    pub(crate) fn row(&self, write: WriteId) -> Option<u8> {
        self.writes.get(write as usize)?.run.row
    }

    /// The first statement of a transaction at its server: it has a number now, holds its row, and is shown that.
    pub(crate) fn begin(&mut self, write: WriteId) {
        let Write { node, run: Run { row: Some(row), again, .. }, .. } = self.writes[write as usize] else { return };
        let server = &self.servers[usize::from(node)];
        let incarnation = server.incarnation;
        if server.holder(row).is_some() {
            let connection = Some(incarnation);
            return match again {
                Some(_) => self.later(LOCKED_MS, Due::Write { write, connection }),
                // Its client has no patience.
                None => self.give_up(write),
            };
        }
        let version = server.versions[usize::from(row)].to_be_bytes();
        self.number(write, row);
        let delay = self.delay();
        self.later(delay, Due::Shown { write, version });
    }

    /// Its answer at the Weir.
    pub(crate) fn shown(&mut self, write: WriteId, version: Version) {
        let entry = self.writes[write as usize];
        let is_cut = self.now < self.cuts[usize::from(entry.node)][self.end_of(entry.weir)];
        if is_cut || !self.is_under_way(&entry, write) || self.comes_too_late(write) {
            return;
        }
        if let Transaction::Open(number) = entry.transaction {
            self.answered(write, number.said_ms);
        }
        let root = entry.run.again.unwrap_or(write) as usize;
        let shown = self.writes[root].run.shown;
        let wanted = shown.as_ref().map_or(&[][..], |shown| &shown[..]);
        let answered = &version[..wanted.len()];
        let is_equal = || answered == wanted || self.plan.unproved == Some(Proof::SameAnswers);
        match came_out(wanted.len() as u64, answered.len() as u64, false, is_equal) {
            RerunMatch::Same => {
                if shown.is_none() {
                    self.writes[root].run.shown = Some(version);
                } else {
                    self.counts.told.again += 1;
                }
                let thinks = if shown.is_none() { self.dice.within(1, THINKS_MS) } else { 1 };
                self.later(thinks, Due::Commit { write });
            }
            RerunMatch::Short | RerunMatch::Other => {
                self.counts.told.refused += 1;
                self.note(|| format!("write {write} does not come out the same"));
                self.writes[write as usize].told = Some(CommitOutcome::RolledBack);
                self.give_up(write);
            }
        }
    }

    /// Its client sends the COMMIT.
    pub(crate) fn commit(&mut self, write: WriteId) {
        let entry = self.writes[write as usize];
        let Transaction::Open(number) = entry.transaction else { return };
        if !self.is_under_way(&entry, write) {
            return;
        }
        self.writes[write as usize].transaction = Transaction::Numbered(number);
        self.writes[write as usize].sent_at = self.now;
        let delay = self.delay();
        self.later(delay, Due::Write { write, connection: Some(entry.incarnation) });
    }

    fn is_under_way(&self, entry: &Write, write: WriteId) -> bool {
        let weir = &self.weirs[entry.weir];
        weir.life == entry.life && !entry.is_over && weir.writes.contains(&write)
    }

    /// The connection of a transaction ends, and its server hears of that: what it has not been told to commit is rolled back.
    pub(crate) fn close(&mut self, write: WriteId) {
        if matches!(self.writes[write as usize].transaction, Transaction::Open(_)) {
            let delay = self.delay();
            self.later(delay, Due::Closed { write });
        }
    }

    pub(crate) fn closed(&mut self, write: WriteId) {
        let Write { node, incarnation, transaction: Transaction::Open(number), .. } = self.writes[write as usize] else { return };
        let server = &mut self.servers[usize::from(node)];
        if server.incarnation == incarnation {
            server.roll_back(number.xid.get());
        }
    }

    /// A transaction is lost, and nothing of it can have been committed.
    pub(crate) fn begin_again(&mut self, write: WriteId, place: Place) {
        let entry = &mut self.writes[write as usize];
        entry.told = Some(CommitOutcome::RolledBack);
        let (weir, life, root) = (entry.weir, entry.life, entry.run.again.unwrap_or(write));
        let first = &mut self.writes[root as usize];
        match first.run.losses.with(place.group()) {
            None => self.counts.told.refused += 1,
            Some(losses) => {
                first.run.losses = losses;
                self.later(1, Due::Again(Again { weir, life, root, until: self.now + WAIT_MS }));
            }
        }
    }

    pub(crate) fn run_again(&mut self, again: Again) {
        let Again { weir, life, root, until } = again;
        if self.weirs[weir].life != life || self.weirs[weir].state.is_none() {
            return;
        }
        match self.weirs[weir].gate() {
            Some(_) => self.send_write(weir, Transaction::Begun, Some(root)),
            None if self.now >= until => self.counts.told.refused += 1,
            None => self.later(PERIOD_MS, Due::Again(again)),
        }
    }
}
