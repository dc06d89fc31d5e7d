//! Invariants of every run.

use std::collections::{BTreeMap, BTreeSet};

use weir_failover::commit_outcome::{CommitOutcome, TransactionNumber};
use weir_failover::rerun_rules::TransactionLosses;
use weir_failover::{CommitLoss, FailoverCause, FailoverRecord, Ms, NodeId};

use crate::again::Version;
use crate::doubt::Told;
use crate::plan;
use crate::server::{Power, ROWS, Role, Server, WriteId};
use crate::weir::Weir;
use crate::world::World;

/// How a run went.
#[derive(Clone, Debug)]
pub struct Outcome {
    pub seed: u64,
    pub broken: Vec<Broken>,
    /// Writes that were acknowledged to clients.
    pub acknowledged: usize,
    /// Acknowledged writes that the last primary lacks, all of them announced.
    pub announced_lost: usize,
    /// Changes of the primary that some Weir reported.
    pub failovers: usize,
    /// Changes that were asked for while the old primary worked.
    pub switchovers: usize,
    /// Writes that Weirs had sent and gave up.
    pub given_up: usize,
    /// Nothing went wrong but that primaries were moved.
    pub is_calm: bool,
    /// Replaced primaries that agents made standbys.
    pub brought_back: usize,
    /// Servers that agents ended as by a crash.
    pub ended: usize,
    /// COMMITs whose answer was lost.
    pub told: Told,
    /// In a group: answers that came after the lease, promotions by orders of former leaders beside an open epoch, changes of the leader, and processes
    /// that took over.
    pub too_late: usize,
    pub late_promotions: usize,
    pub terms: u64,
    pub takeovers: usize,
    /// Disks that members lost, and hosts that an operator wanted removed.
    pub disks_lost: usize,
    pub removals: usize,
    /// Disks that were lost beside another process of their host.
    pub disks_lost_beside: usize,
    /// Weirs that were stopped in good order, and hosts that left a group.
    pub shutdowns: usize,
    pub members_left: usize,
    /// Changes that etcd made, where it is the engine.
    pub etcd_changes: u64,
    pub well_after_ms: Ms,
    pub events: u64,
    /// Events of the run, if they were asked for.
    pub trace: Vec<String>,
}

impl Outcome {
    /// Under another number than its run had.
    pub fn of_seed(self, seed: u64) -> Outcome {
        Outcome { seed, ..self }
    }
}

/// One write of a client.
#[derive(Clone, Copy, Debug, Default)]
pub struct Write {
    pub path: Path,
    pub weir: usize,
    pub life: u32,
    pub node: NodeId,
    pub started_at: Option<u64>,
    pub reign: u64,
    pub incarnation: u64,
    pub appended_at: Ms,
    /// When its client was told.
    pub acknowledged_at: Option<Ms>,
    pub is_over: bool,
    pub transaction: Transaction,
    /// When its last message was sent, when it was asked for its number, and when its connection was lost.
    pub sent_at: Ms,
    pub asked_at: Ms,
    pub lost_at: Ms,
    /// The outcome that its client heard, if the answer to its COMMIT was lost.
    pub told: Option<CommitOutcome>,
    pub run: Run,
}

/// One run of a transaction.
#[derive(Clone, Copy, Debug, Default)]
pub struct Run {
    /// The connection for it was not opened.
    pub is_unsent: bool,
    /// The row that the transaction changes, and the version of it that its client was shown.
    pub row: Option<u8>,
    pub shown: Option<Version>,
    /// The transaction that runs again in it.
    pub again: Option<WriteId>,
    pub losses: TransactionLosses,
}

/// The kind of a write, and how far it has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Transaction {
    /// A single statement.
    #[default]
    None,
    /// Its first write is on its way.
    Begun,
    /// That was carried out.
    Open(TransactionNumber),
    /// The COMMIT is on its way.
    Numbered(TransactionNumber),
}

/// The way of a write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Path {
    #[default]
    Weir,
    /// Past all Weirs.
    Direct,
}

/// A broken promise.
#[derive(Clone, Debug, PartialEq)]
pub enum Broken {
    /// A primary took a write through a Weir after another one had.
    TwoPrimaries { first: NodeId, second: NodeId, at: Ms },
    /// An acknowledged write is gone that no report speaks of.
    Lost { write: WriteId, node: NodeId, acknowledged_at: Ms, is_protected: bool },
    /// A Weir gave up a primary that a standby heard all the time, and could have told of.
    Needless { node: NodeId, at: Ms },
    /// A Weir had a primary ended that it could reach all the time.
    EndedAlive { node: NodeId, at: Ms },
    /// A Weir has a standby in use that goes on in another log than its own.
    Forked { node: NodeId, at: Ms },
    /// A node was made the primary that may never be.
    BarredPromoted { node: NodeId },
    /// Writes failed although nothing but a switchover happened, with one Weir.
    Failed { writes: usize },
    /// A client was told that its transaction was committed, or rolled back, and it was not so.
    FalseOutcome { write: WriteId, told: CommitOutcome, at: Ms },
    /// A transaction that ran again is there twice.
    Twice { write: WriteId },
    /// A transaction is there whose client was shown something else than it found.
    OtherShown { write: WriteId },
    /// After the faults ended there is no primary that all agree on and that takes writes.
    NotWell { targets: Vec<Option<NodeId>> },
    /// Members of a group may pass on successes of two nodes.
    TwoWritten { first: NodeId, second: NodeId, at: Ms },
    /// A success came from a node that another one had replaced, or in an epoch that had stopped.
    LateSuccess { weir: usize, node: NodeId, at: Ms },
    /// A standby was promoted while a member could pass on a success of another node.
    PromotedBeside { promoted: NodeId, written: NodeId, weir: usize, at: Ms },
    /// A member gave an order to a server, and did not lead.
    OrderWithoutLead { weir: usize, at: Ms },
    /// Two members lead.
    TwoLeaders { first: usize, second: usize, at: Ms },
    /// A decision of the group was lost, or another one was made in its place.
    DecidedTwice { change: u64, at: Ms },
    /// The kernels of two hosts have the virtual address.
    TwoAddresses { first: usize, second: usize, at: Ms },
    /// Text of failover that the group had stored is gone.
    Forgotten { term: u64, at: Ms },
}

/// A standby that heard so lately hears, and one reached for so long was asked.
const HEARD_MS: Ms = 300;
const REACHED_MS: Ms = 4_000;

impl World {
    /// Notes that a Weir gives up a node.
    pub fn given_up(&mut self, weir: usize, node: NodeId) {
        let end = self.end_of(weir);
        let was_reached = |id: usize| self.cuts[id][end].max(self.cuts[end][id]) + REACHED_MS <= self.now;
        let hears = |server: &Server| {
            let is_near = server.role == Role::Standby { upstream: Some(node) } && server.power == Power::Up;
            let hears_long = server.heard.from <= self.now.saturating_sub(REACHED_MS);
            is_near
                && hears_long
                && server.heard.at.is_some_and(|at| at + HEARD_MS >= self.now)
                && was_reached(usize::from(server.id))
        };
        let is_up = self.servers[usize::from(node)].power == Power::Up;
        // Limits of its looks ran out while it stood still.
        let stood = self.weirs[weir].host.as_ref().and_then(|host| host.continued_at);
        let is_steady = stood.is_none_or(|at| at + REACHED_MS <= self.now);
        if self.plan.late == 0 && is_steady && is_up && self.now < plan::HEALED_AT && self.servers.iter().any(hears) {
            self.needless.push(Broken::Needless { node, at: self.now });
        }
    }

    /// Notes that a standby goes on in another log.
    pub fn note_fork(&mut self, node: NodeId) {
        let uses = |weir: &Weir| weir.state.as_ref().is_some_and(|state| state.nodes[&node].is_in_use());
        let is_noted = self.needless.iter().any(|broken| matches!(broken, Broken::Forked { .. }));
        if !is_noted && self.weirs.iter().any(uses) {
            self.needless.push(Broken::Forked { node, at: self.now });
        }
    }

    /// Notes that a Weir has a server ended.
    pub fn blame_end(&mut self, weir: usize, node: NodeId) {
        let (at, end) = (usize::from(node), self.end_of(weir));
        let was_reached = self.cuts[at][end].max(self.cuts[end][at]) + REACHED_MS <= self.now;
        let server = &self.servers[at];
        let is_steady = server.power == Power::Up && server.numbers.clock.steady_from + REACHED_MS <= self.now;
        // Then cuts are forgotten.
        let is_healing = (plan::HEALED_AT..plan::HEALED_AT + REACHED_MS).contains(&self.now);
        if self.plan.late == 0 && self.plan.late_orders == 0 && was_reached && is_steady && !is_healing {
            self.needless.push(Broken::EndedAlive { node, at: self.now });
        }
    }

    /// True if every Weir writes to the same primary, and has just done so.
    pub fn is_well(&self) -> bool {
        let Some(primary) = self.agreed() else { return false };
        let is_used = self.serving().all(|weir| self.now < weir.last_ack_at + 1_500 && weir.last_ack_at > plan::HEALED_AT);
        is_used && self.servers[usize::from(primary)].takes_writes() && self.is_group_well(primary)
    }

    pub fn outcome(&mut self, seed: u64) -> Outcome {
        let mut broken = Vec::new();
        broken.extend(self.find_two_primaries());
        broken.append(&mut self.needless);
        let records: Vec<FailoverRecord> = self.weirs.iter().flat_map(|weir| weir.records.iter().cloned()).collect();
        for record in records.iter().filter(|record| !matches!(record.why, FailoverCause::Found | FailoverCause::Adopted)) {
            if self.plan.rules.node(record.new).is_some_and(|node| node.priority == 0) {
                broken.push(Broken::BarredPromoted { node: record.new });
            }
        }
        let given_up = self.weirs.iter().map(|weir| weir.given_up).sum();
        if self.plan.is_calm() && self.plan.weirs == 1 && given_up > 0 {
            broken.push(Broken::Failed { writes: given_up });
        }
        let mut announced_lost = 0;
        if self.is_well() {
            let (lost, announced) = self.find_lost(&records);
            broken.extend(lost);
            broken.extend(self.find_false_outcomes());
            broken.extend(self.find_other_shown());
            announced_lost = announced;
        } else {
            let targets = self.serving().map(|weir| weir.gate().map(|(node, _)| node)).collect();
            broken.push(Broken::NotWell { targets });
        }
        Outcome {
            seed,
            broken,
            acknowledged: self.writes.iter().filter(|write| write.acknowledged_at.is_some()).count(),
            announced_lost,
            switchovers: records.iter().filter(|record| record.why == FailoverCause::SwitchedOver).count(),
            given_up,
            is_calm: self.plan.is_calm(),
            brought_back: self.counts.brought_back,
            ended: self.counts.ended,
            told: self.counts.told,
            too_late: self.counts.too_late,
            late_promotions: self.counts.late_promotions,
            terms: self.counts.terms,
            takeovers: self.counts.takeovers,
            disks_lost: self.counts.disks_lost,
            removals: self.counts.removals,
            disks_lost_beside: self.counts.disks_lost_beside,
            shutdowns: self.counts.shutdowns,
            members_left: self.counts.members_left,
            etcd_changes: self.etcd.changes,
            well_after_ms: self.now.saturating_sub(plan::HEALED_AT),
            failovers: records.iter().filter(|record| record.why != FailoverCause::Found).count(),
            events: self.events,
            trace: self.trace.take().unwrap_or_default(),
        }
    }

    /// Acknowledged writes, in the order in which servers took them, belong to one time of a primary after the other.
    fn find_two_primaries(&self) -> Option<Broken> {
        let is_counted = |write: &&Write| write.acknowledged_at.is_some() && write.path == Path::Weir;
        let mut acknowledged: Vec<&Write> = self.writes.iter().filter(is_counted).collect();
        acknowledged.sort_by_key(|write| write.appended_at);
        let mut over = BTreeSet::new();
        let mut last: Option<&Write> = None;
        for write in acknowledged {
            if let Some(before) = last.filter(|before| before.reign != write.reign) {
                over.insert(before.reign);
                if over.contains(&write.reign) {
                    return Some(Broken::TwoPrimaries { first: write.node, second: before.node, at: write.appended_at });
                }
            }
            last = Some(write);
        }
        None
    }

    /// Acknowledged writes that the last primary lacks: those nobody spoke of, and how many were announced.
    fn find_lost(&self, records: &[FailoverRecord]) -> (Vec<Broken>, usize) {
        let Some(primary) = self.agreed() else { return (Vec::new(), 0) };
        let mut is_there = vec![false; self.writes.len()];
        for logged in &self.servers[usize::from(primary)].log {
            // Records of servers that were stopped are no writes.
            is_there.get_mut(logged.write as usize).into_iter().for_each(|is_there| *is_there = true);
        }
        let is_protected = !self.plan.sync_names.is_empty();
        let (mut lost, mut announced) = (Vec::new(), 0);
        for (id, (write, is_there)) in (0..).zip(self.writes.iter().zip(is_there)) {
            let Some(acknowledged_at) = write.acknowledged_at.filter(|_| !is_there) else { continue };
            if !is_protected && is_announced(records, write, acknowledged_at) {
                announced += 1;
            } else {
                lost.push(Broken::Lost { write: id, node: write.node, acknowledged_at, is_protected });
            }
        }
        lost.truncate(3);
        (lost, announced)
    }
}

impl World {
    /// Transactions that are there, of those that were told to be rolled back, and those that are there twice.
    fn find_false_outcomes(&self) -> Vec<Broken> {
        let Some(primary) = self.agreed() else { return Vec::new() };
        let mut is_seen = vec![false; self.writes.len()];
        let mut broken = Vec::new();
        for write in self.servers[usize::from(primary)].log.iter().map(|logged| logged.write) {
            let Some(entry) = self.writes.get(write as usize) else { continue };
            if entry.told == Some(CommitOutcome::RolledBack) {
                broken.push(Broken::FalseOutcome { write, told: CommitOutcome::RolledBack, at: self.now });
            }
            if std::mem::replace(&mut is_seen[entry.run.again.unwrap_or(write) as usize], true) {
                broken.push(Broken::Twice { write });
            }
        }
        broken.truncate(3);
        broken
    }
}

impl World {
    /// Transactions that are there, one change of a row after the other, of which a client was not shown the version before it.
    fn find_other_shown(&self) -> Vec<Broken> {
        let Some(primary) = self.agreed() else { return Vec::new() };
        let mut versions = [0_u64; ROWS];
        let mut broken = Vec::new();
        for write in self.servers[usize::from(primary)].log.iter().map(|logged| logged.write) {
            let Some(row) = self.row(write) else { continue };
            let version = &mut versions[usize::from(row)];
            let root = self.writes[write as usize].run.again.unwrap_or(write);
            if self.writes[root as usize].run.shown != Some(version.to_be_bytes()) {
                broken.push(Broken::OtherShown { write });
            }
            *version += 1;
        }
        broken.truncate(3);
        broken
    }
}

/// True if the reports of the failover that lost this write say so. The Weirs that decided it know best.
fn is_announced(records: &[FailoverRecord], write: &Write, acknowledged_at: Ms) -> bool {
    let covers = |record: &&FailoverRecord| match record.loss {
        CommitLoss::Nothing => false,
        CommitLoss::After { at, .. } => acknowledged_at > at,
        CommitLoss::Unknown => true,
    };
    let mut by_ballot: BTreeMap<_, Vec<&FailoverRecord>> = BTreeMap::new();
    for record in records.iter().filter(|record| record.old.is_some() && record.at >= write.appended_at) {
        by_ballot.entry(record.ballot).or_default().push(record);
    }
    by_ballot.values().any(|records| {
        let decided: Vec<&FailoverRecord> =
            records.iter().copied().filter(|record| record.why != FailoverCause::Adopted).collect();
        let told = if decided.is_empty() { records.clone() } else { decided };
        told.iter().all(covers)
    })
}
