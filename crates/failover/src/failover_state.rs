//! All that Weir knows of the cluster between two events.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::action::{FailoverAction, NodeDownReason, OpenTransactionFate, WriteHoldReason};
use super::ballot::{Ballot, Epoch, NodeId};
use super::choose::{AttemptRefusal, SyncStandbyKnowledge};
use super::durable::DurableState;
use super::event::{Ms, ServerFacts, SightCount};
use super::history::{Lsn, TimelineHistory, WalRelation};
use super::operations::{
    AgentInquiry, AttemptAim, AttemptPhase, FailoverAttempt, OperatorPlans, RejoinProgress, StandbyRestart, Switchover,
};
use super::record::{CommitLoss, FailoverCause, FailoverDurations, FailoverRecord, RECORDS_MAX};
use super::rules::{BackendFlag, FailoverMode, FailoverRules, QuorumSize};
use super::sync;
use crate::node_state::{LookSchedule, NodeStanding, NodeState};

const SAMPLES_MAX: usize = 64;
const VOID_MAX: usize = 8;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FailoverState {
    pub nodes: BTreeMap<NodeId, NodeState>,
    pub durable: DurableState,
    pub(super) store: DurableVersions,
    pub gate: WriteTarget,
    pub attempt: Option<FailoverAttempt>,
    /// Earliest time of an attempt.
    pub(super) retry_at: Ms,
    pub(super) line: PrimaryLog,
    pub(super) promises: PromiseTracking,
    pub(super) inquiry: AgentInquiry,
    pub records: Vec<FailoverRecord>,
    pub(super) commands: CommandQueue,
    pub planned: OperatorPlans,
    /// As last reported.
    pub stuck: Option<AttemptRefusal>,
    pub(super) tested_down: BTreeSet<NodeId>,
    pub(super) failback_at: Option<Ms>,
    /// Of other members of the group.
    pub sights: BTreeMap<NodeId, SightCount>,
}

/// Knowledge of a primary: with it, another one is a change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) enum PrimaryKnowledge {
    /// No stored state, no writes since the start.
    #[default]
    Blank,
    Known,
}

/// Only promises to other Weirs count.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct PromiseTracking {
    /// Time since which a newer promise is seen.
    pub(super) since: Option<Ms>,
    /// Time since which the primary is gone too; a mute or stopping one is not gone.
    pub(super) gone_since: Option<Ms>,
    pub(super) term_seen: u64,
    /// Own attempts without an order to promote or vote: their promises have no effect.
    pub(super) void: BTreeSet<Ballot>,
}

/// The source of the decision which node takes writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteDecider {
    Gate,
    /// No primary was, or can be, accepted.
    Roles,
    /// Several primaries, none accepted.
    Nothing,
}

/// May have ended the streams of the primary's standbys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) enum StreamInterruption {
    #[default]
    None,
    /// A connection broke, or a look failed.
    Since(Ms),
    /// A later look was answered.
    OverAt(Ms),
}

/// For a promotion from outside.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) enum PrimarySearch {
    #[default]
    No,
    Since(Ms),
    /// No primary in `search_primary_node_timeout`.
    InVain,
}

/// The state that a restart would find.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) enum DiskState {
    #[default]
    Untried,
    /// Perhaps outdated.
    Holds,
    /// Writes fail: a restart begins as this start did.
    Refuses,
}

/// Versions of `durable`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct DurableVersions {
    pub version: u64,
    pub sent: u64,
    pub stored: u64,
    /// Version of the present primary's acceptance.
    pub accepted: u64,
    pub retry_at: Ms,
    pub disk: DiskState,
    pub life: PrimaryKnowledge,
    /// Operators answered once a version is stored.
    pub tickets: Vec<(u64, u64)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WriteTarget {
    /// With other Weirs, connections for writes must be to this start.
    Open {
        node: NodeId,
        started_at: Option<u64>,
    },
    Held(WriteHoldReason, OpenTransactionFate),
}

/// The accepted primary's log, and whether it may be trusted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct PrimaryLog {
    /// Begins of looks, and the log's end.
    pub samples: Vec<(Ms, Lsn)>,
    /// Streams to other clients than configured nodes.
    pub strangers: usize,
    /// Log's end at the last seen change of the synchronous rule.
    pub sync_changed_at: Lsn,
    /// The server start for which no newer decision is known.
    pub confirmed: Option<u64>,
    /// Looks that began before this confirm nothing.
    pub heard_from: Ms,
    /// The server start that writes this log.
    pub server: Option<u64>,
    /// Later looks must find the primary unchanged.
    pub check_from: Ms,
    pub lost_at: Option<Ms>,
    pub trouble: StreamInterruption,
    pub search: PrimarySearch,
}

/// One runs at a time, as in Pgpool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct CommandQueue {
    pub waiting: VecDeque<(super::action::FailoverCommandKind, NodeId, String)>,
    pub running: Option<(u64, super::action::FailoverCommandKind, NodeId)>,
    pub number: u64,
}

impl FailoverState {
    /// `stored`: this Weir's file; `weir`: random, for the first start; `down`: out of use by `pgpool_status`.
    pub fn new(rules: &FailoverRules, stored: Option<DurableState>, weir: u32, down: &BTreeSet<NodeId>) -> FailoverState {
        let disk = if stored.is_some() { DiskState::Holds } else { DiskState::Untried };
        let durable = stored.unwrap_or(DurableState { weir, ..DurableState::default() });
        let life = if durable.epoch.is_some() { PrimaryKnowledge::Known } else { PrimaryKnowledge::Blank };
        let mut state = FailoverState {
            nodes: BTreeMap::new(),
            store: DurableVersions { version: 1, disk, life, ..DurableVersions::default() },
            gate: WriteTarget::Held(WriteHoldReason::NoPrimary, OpenTransactionFate::Go),
            attempt: None,
            retry_at: 0,
            line: PrimaryLog::default(),
            promises: PromiseTracking { term_seen: durable.term, ..PromiseTracking::default() },
            inquiry: AgentInquiry::default(),
            records: Vec::new(),
            commands: CommandQueue::default(),
            planned: OperatorPlans::default(),
            stuck: None,
            tested_down: BTreeSet::new(),
            failback_at: None,
            sights: BTreeMap::new(),
            durable,
        };
        state.reload(rules);
        for (id, node) in &mut state.nodes {
            // The accepted primary is not kept out: the file names no other.
            let is_primary = state.durable.epoch.is_some_and(|epoch| epoch.node == *id);
            let is_down = down.contains(id) || state.durable.down.contains(id);
            if is_down && !is_primary && node.standing == NodeStanding::Waiting {
                node.standing = NodeStanding::Down { why: NodeDownReason::StatusFile, since: 0 };
            }
        }
        state
    }

    /// The state of a Weir that begins again with what was stored, and knows what it saw of the servers.
    ///
    /// Servers may have voted since it looked, on orders of who led before: only looks from `now` on show that no newer decision was made.
    pub fn begun_anew(&self, rules: &FailoverRules, stored: DurableState, now: Ms) -> FailoverState {
        let mut new = FailoverState::new(rules, Some(stored), self.durable.weir, &BTreeSet::new());
        for (id, node) in &mut new.nodes {
            if let Some(known) = self.nodes.get(id) {
                let standing = node.standing;
                *node = NodeState { standing, busy_until: 0, woken: None, rejoin: RejoinProgress::default(), ..known.clone() };
            }
        }
        // Numbers go on: outcomes of what was ordered before may still come.
        let base = self.store.version;
        let store = &mut new.store;
        (store.version, store.sent, store.stored) = (store.version + base, store.sent + base, store.stored + base);
        new.commands.number = self.commands.number;
        if self.primary() == new.primary() {
            new.line = PrimaryLog { search: PrimarySearch::No, confirmed: None, ..self.line.clone() };
        }
        new.line.heard_from = now;
        new.records.clone_from(&self.records);
        new.sights.clone_from(&self.sights);
        new
    }

    pub fn reload(&mut self, rules: &FailoverRules) {
        self.nodes.retain(|id, _| rules.node(*id).is_some());
        for id in rules.ids() {
            let is_detached = self.durable.detached.contains(&id);
            self.nodes
                .entry(id)
                .or_insert_with(|| NodeState::new(if is_detached { NodeStanding::Detached } else { NodeStanding::Waiting }));
        }
    }

    /// Forgets a server whose address a reload changed.
    pub fn readdress(&mut self, id: NodeId) {
        if let Some(node) = self.nodes.get_mut(&id) {
            *node = NodeState { renamed: true, ..NodeState::new(node.standing) };
        }
    }

    pub fn next_due(&self) -> Ms {
        let looks = self.nodes.values().filter_map(|node| match node.look {
            LookSchedule::Due { at } => Some(at),
            LookSchedule::UnderWay { .. } => None,
        });
        let planned = self.planned.switchover.as_ref().map(Switchover::due);
        let restart = self.planned.restart.as_ref().map(StandbyRestart::due);
        looks.chain(self.attempt.as_ref().map(FailoverAttempt::until)).chain(planned).chain(restart).min().unwrap_or(Ms::MAX)
    }

    /// Stores the term first.
    pub(super) fn begin_attempt(&mut self, rules: &FailoverRules, aim: AttemptAim, why: FailoverCause, now: Ms) {
        let Some(parent) = self.epoch() else { return };
        let quorum = self.quorum(rules);
        let seen = self.promises.term_seen.max(self.durable.term);
        let ballot = Ballot::after(seen, aim.purpose(), self.durable.weir);
        self.promises.term_seen = ballot.term;
        self.change(|durable| durable.term = ballot.term);
        let lost_at = self.line.lost_at.unwrap_or(now);
        let parts = FailoverDurations { verdict_ms: now.saturating_sub(lost_at), ..FailoverDurations::default() };
        self.attempt = Some(FailoverAttempt {
            aim,
            ballot,
            parent,
            quorum,
            phase: AttemptPhase::Storing,
            pledges: BTreeMap::new(),
            begun_at: now,
            parts,
            loss: CommitLoss::Unknown,
            why,
        });
    }

    /// An equal value makes no version, so that a repeated step stores nothing.
    pub(super) fn change<T>(&mut self, act: impl FnOnce(&mut DurableState) -> T) -> T {
        let before = self.durable.clone();
        let told = act(&mut self.durable);
        self.store.version += u64::from(self.durable != before);
        told
    }

    /// True while an attempt goes on during which nobody may write to the primary.
    pub fn stops_writes(&self) -> bool {
        self.attempt.as_ref().is_some_and(|attempt| !attempt.leaves_writes())
    }

    pub(super) fn is_unstorable(&self) -> bool {
        self.store.stored < self.store.version && self.store.retry_at > 0
    }

    pub(super) fn is_stored(&self) -> bool {
        self.store.stored == self.store.version
    }

    pub fn epoch(&self) -> Option<Epoch> {
        self.durable.epoch
    }

    pub fn primary(&self) -> Option<NodeId> {
        self.durable.epoch.map(|epoch| epoch.node)
    }

    /// The main node in Pgpool.
    pub fn first_in_use(&self, rules: &FailoverRules) -> Option<NodeId> {
        self.nodes.keys().copied().find(|id| !self.is_out(rules, *id))
    }

    /// True if only a copy of all files brings this server back: see `promoted_apart`.
    pub fn is_apart(&self, id: NodeId) -> bool {
        self.durable.apart.contains(&id)
    }

    /// True if sessions must not use this node. If Weir promotes nothing and the node has no health checks, a failed node is used once it
    /// answers in its role.
    pub fn is_out(&self, rules: &FailoverRules, id: NodeId) -> bool {
        let Some(node) = self.nodes.get(&id) else { return false };
        let by_roles = matches!(rules.mode, FailoverMode::Follow | FailoverMode::Off);
        match node.standing {
            NodeStanding::Waiting | NodeStanding::Up => false,
            NodeStanding::Down { why: NodeDownReason::Failed(_), .. } | NodeStanding::Quarantined { .. } => {
                !by_roles || rules.node(id).is_some_and(|node| node.health.period_ms > 0)
            }
            NodeStanding::Down { .. } | NodeStanding::Detached | NodeStanding::Recovering => true,
        }
    }

    /// True for nodes out of use, or dead and kept in place until they answer.
    pub fn is_avoided(&self, rules: &FailoverRules, id: NodeId) -> bool {
        let by_roles = matches!(rules.mode, FailoverMode::Follow | FailoverMode::Off);
        let has_checks = rules.node(id).is_some_and(|node| node.health.period_ms > 0);
        self.is_out(rules, id) || (self.is_kept_dead(rules, id) && (!by_roles || has_checks))
    }

    /// True if `backend_flag` keeps this dead node in use.
    pub(super) fn is_kept_dead(&self, rules: &FailoverRules, id: NodeId) -> bool {
        is_kept(rules, id) && self.nodes.get(&id).is_some_and(|node| node.is_in_use() && node.dead.is_some())
    }

    /// Where Weir does not promote, a server with unreadable history is known by role only.
    pub fn decider(&self, rules: &FailoverRules) -> WriteDecider {
        let is_known = self.primary().is_some() && (self.history().is_some() || rules.always_primary().is_some());
        if matches!(rules.mode, FailoverMode::Builtin | FailoverMode::Command) || is_known {
            return WriteDecider::Gate;
        }
        let primaries = self.nodes.values().filter(|node| node.is_in_use() && node.facts().is_some_and(ServerFacts::is_primary));
        if primaries.count() > 1 { WriteDecider::Nothing } else { WriteDecider::Roles }
    }

    pub(super) fn facts(&self, id: NodeId) -> Option<&ServerFacts> {
        self.nodes.get(&id)?.facts()
    }

    /// How the log of a node relates to the accepted one. That of a server promoted apart is another one whatever it says.
    pub(super) fn relation(&self, id: NodeId, facts: &ServerFacts) -> Option<WalRelation> {
        match self.told_relation(facts)? {
            WalRelation::Holds(_) | WalRelation::Left(_) if self.durable.apart.contains(&id) => Some(WalRelation::Diverged),
            told => Some(told),
        }
    }

    /// As above, by facts that the server tells only.
    pub(super) fn told_relation(&self, facts: &ServerFacts) -> Option<WalRelation> {
        Some(facts.history.relation(facts.position, self.durable.history.as_ref()?))
    }

    /// True if a primary writes the accepted log.
    pub(super) fn is_on_line(&self, facts: &ServerFacts) -> bool {
        facts.is_primary()
            && matches!(self.told_relation(facts), Some(WalRelation::Holds(_)))
            && self.durable.history.as_ref().is_some_and(|history| history.timeline == facts.history.timeline)
    }

    pub(super) fn sample(&mut self, begun_at: Ms, position: Lsn) {
        let samples = &mut self.line.samples;
        if samples.len() == SAMPLES_MAX {
            // Thins out the older half: old samples may be farther apart.
            let mut at = 0;
            samples.retain(|_| {
                at += 1;
                at > SAMPLES_MAX / 2 || at % 2 == 0
            });
        }
        samples.push((begun_at, position));
    }

    /// Times of looks at the primary, and where its log ended.
    pub(super) fn samples(&self) -> &[(Ms, Lsn)] {
        &self.line.samples
    }

    pub(super) fn last_position(&self) -> Option<Lsn> {
        self.line.samples.last().map(|(_, position)| *position)
    }

    /// The loss if a server with this position becomes the primary.
    pub(super) fn loss_at(&self, position: Lsn) -> CommitLoss {
        let contained = self.line.samples.iter().rev().find(|(_, end)| *end <= position);
        match (contained, self.last_position()) {
            (Some((at, _)), Some(last)) => CommitLoss::After { at: *at, bytes: last.saturating_sub(position) },
            _ => CommitLoss::Unknown,
        }
    }

    pub(super) fn sync(&self, rules: &FailoverRules) -> SyncStandbyKnowledge {
        let (Some(names), Some(primary)) = (&self.durable.sync_names, self.primary()) else {
            return SyncStandbyKnowledge::Unknown;
        };
        let mut all = Vec::new();
        for names in std::iter::once(names).chain(&self.durable.sync_names_before) {
            match sync::parse(names) {
                Err(_) => return SyncStandbyKnowledge::Unknown,
                Ok(None) => {}
                Ok(Some(rule)) => {
                    let mut who = rule.acknowledgers(&rules.names(), primary);
                    if rule.names.iter().any(|name| name == "*") {
                        // Without a look since the start, other acknowledging clients are unknown.
                        if self.line.samples.is_empty() {
                            return SyncStandbyKnowledge::Unknown;
                        }
                        who.strangers += self.line.strangers;
                    }
                    all.push(who);
                }
            }
        }
        if all.is_empty() { SyncStandbyKnowledge::Asynchronous } else { SyncStandbyKnowledge::Synchronous(all) }
    }

    /// True if it is known that no standby acknowledges commits. Asked for at each step, so that nothing is parsed.
    fn is_asynchronous(&self) -> bool {
        let DurableState { sync_names, sync_names_before, .. } = &self.durable;
        self.primary().is_some()
            && sync_names.as_ref().is_some_and(String::is_empty)
            && sync_names_before.as_ref().is_none_or(String::is_empty)
    }

    /// How many nodes must agree. A lone Weir's file decides, as it permits no write before. But synchronous standbys may have
    /// acknowledged writes past Weir to a primary not in the file, which only a majority's votes show.
    pub(super) fn quorum(&self, rules: &FailoverRules) -> QuorumSize {
        if rules.is_alone() && self.is_asynchronous() { QuorumSize::One } else { QuorumSize::Majority }
    }

    /// Notes that an attempt of this Weir can have no effect.
    pub(super) fn forget(&mut self, ballot: Ballot) {
        let void = &mut self.promises.void;
        void.insert(ballot);
        if void.len() > VOID_MAX {
            void.pop_first();
        }
    }

    pub(super) fn keep_record(&mut self, record: FailoverRecord) {
        if self.records.len() == RECORDS_MAX {
            self.records.remove(0);
        }
        self.records.push(record);
    }

    pub fn history(&self) -> Option<&TimelineHistory> {
        self.durable.history.as_ref()
    }
}

/// True if this node is never replaced.
pub(super) fn is_kept(rules: &FailoverRules, id: NodeId) -> bool {
    is_untouchable(rules, id) || rules.always_primary() == Some(id)
}

pub(super) fn is_untouchable(rules: &FailoverRules, id: NodeId) -> bool {
    rules.node(id).is_some_and(|node| node.flag == BackendFlag::DisallowToFailover)
}

pub(super) fn tell(before: WriteTarget, now: WriteTarget) -> Option<FailoverAction> {
    (before != now).then_some(match now {
        WriteTarget::Open { node, started_at } => FailoverAction::Release { node, started_at },
        WriteTarget::Held(why, transactions) => FailoverAction::Hold { why, transactions },
    })
}
