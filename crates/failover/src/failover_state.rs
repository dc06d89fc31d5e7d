//! All that Weir knows of the cluster between two events.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::action::{FailoverAction, NodeDownReason, OpenTransactionFate, WriteHoldReason};
use super::ballot::{Ballot, Epoch, NodeId};
use super::choose::{AttemptRefusal, SyncStandbyKnowledge};
use super::durable::DurableState;
use super::event::{Ms, ServerFacts};
use super::history::{Lsn, TimelineHistory, WalRelation};
use super::operations::{AgentInquiry, AttemptAim, AttemptPhase, FailoverAttempt, OperatorPlans, StandbyRestart, Switchover};
use super::record::{CommitLoss, FailoverCause, FailoverDurations, FailoverRecord, RECORDS_MAX};
use super::rules::{BackendFlag, FailoverMode, FailoverRules, QuorumSize};
use super::sync;
use crate::node_state::{LookSchedule, NodeStanding, NodeState};

/// Looks at the primary's position that are kept for the report of losses.
const SAMPLES_MAX: usize = 64;
/// Own attempts without an effect that are remembered.
const VOID_MAX: usize = 8;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FailoverState {
    pub nodes: BTreeMap<NodeId, NodeState>,
    pub durable: DurableState,
    pub(super) store: DurableVersions,
    pub gate: WriteTarget,
    pub attempt: Option<FailoverAttempt>,
    /// No attempt begins before this.
    pub(super) retry_at: Ms,
    pub(super) line: PrimaryLog,
    pub(super) promises: PromiseTracking,
    pub(super) inquiry: AgentInquiry,
    pub records: Vec<FailoverRecord>,
    pub(super) commands: CommandQueue,
    pub planned: OperatorPlans,
    /// Why nothing is done about a lost primary, as last reported.
    pub stuck: Option<AttemptRefusal>,
    /// By the file of `health_check_test`.
    pub(super) tested_down: BTreeSet<NodeId>,
    /// Time of the last automatic attachment.
    pub(super) failback_at: Option<Ms>,
}

/// If this Weir has known a primary, so that another one is a change to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) enum PrimaryKnowledge {
    /// It has no state on disk, and nobody got writes since it was started.
    #[default]
    Blank,
    Known,
}

/// Promises, of which those to other Weirs count.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct PromiseTracking {
    /// Since when a newer one is seen on a server.
    pub(super) since: Option<Ms>,
    /// Since when the primary is gone meanwhile. One that shuts down, or lets nobody in, is still there.
    pub(super) gone_since: Option<Ms>,
    /// Highest term seen anywhere.
    pub(super) term_seen: u64,
    /// The last attempts of this Weir that ended before anybody was told to promote himself or to vote: nothing can come of promises to them.
    pub(super) void: BTreeSet<Ballot>,
}

/// The source of the answer which node takes writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteDecider {
    /// The gate of the accepted primary.
    Gate,
    /// Nodes' roles: nothing was accepted, or nothing can be.
    Roles,
    /// Nothing: several nodes call themselves primary, and none of them was accepted.
    Nothing,
}

/// An event that may have ended the streams of its standbys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) enum StreamInterruption {
    #[default]
    None,
    /// A connection to it broke, or a look failed.
    Since(Ms),
    /// It answered a look that began later.
    OverAt(Ms),
}

/// The search for a primary, where somebody else promotes one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) enum PrimarySearch {
    /// There is a primary.
    #[default]
    No,
    Since(Ms),
    /// None came in `search_primary_node_timeout`.
    InVain,
}

/// The state that a restart would find.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) enum DiskState {
    /// Nothing yet.
    #[default]
    Untried,
    /// A state of ours, which may be older than the present one.
    Holds,
    /// Nothing, since nothing could be written: a restart begins as this start did.
    Refuses,
}

/// The state on disk, as numbers of versions of `durable`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct DurableVersions {
    pub version: u64,
    pub sent: u64,
    pub stored: u64,
    /// The version in which the present primary was accepted.
    pub accepted: u64,
    pub retry_at: Ms,
    pub disk: DiskState,
    pub life: PrimaryKnowledge,
    /// Operators who are answered once a version is on disk.
    pub tickets: Vec<(u64, u64)>,
}

/// Where writes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WriteTarget {
    /// `started_at`: with company, a connection that is opened for writes must be to this start of the server.
    Open {
        node: NodeId,
        started_at: Option<u64>,
    },
    Held(WriteHoldReason, OpenTransactionFate),
}

/// The accepted primary's log, and if it may be believed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct PrimaryLog {
    /// Begins of looks, and where the log ended.
    pub samples: Vec<(Ms, Lsn)>,
    /// Streams to somebody who is none of ours.
    pub strangers: usize,
    /// Where the log ended when the rule of synchronous standbys was seen to change.
    pub sync_changed_at: Lsn,
    /// The start of the server for which no newer decision is known.
    pub confirmed: Option<u64>,
    /// The start of the server that was last seen to write it.
    pub server: Option<u64>,
    /// A look that begins now or later must find it as it was.
    pub check_from: Ms,
    /// When it was first found to be gone.
    pub lost_at: Option<Ms>,
    pub trouble: StreamInterruption,
    pub search: PrimarySearch,
}

/// Commands that wait for their turn. One runs at a time, as in Pgpool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct CommandQueue {
    pub waiting: VecDeque<(super::action::FailoverCommandKind, NodeId, String)>,
    pub running: Option<(u64, super::action::FailoverCommandKind, NodeId)>,
    pub number: u64,
}

impl FailoverState {
    /// The begin. `stored`: the content of this Weir's file; `weir`: a random number, for its first start. `down`: nodes that
    /// `pgpool_status` keeps out of use.
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
            durable,
        };
        state.reload(rules);
        for (id, node) in &mut state.nodes {
            // The accepted primary is not kept out: the file makes no other one.
            let is_primary = state.durable.epoch.is_some_and(|epoch| epoch.node == *id);
            if down.contains(id) && !is_primary && node.standing == NodeStanding::Waiting {
                node.standing = NodeStanding::Down { why: NodeDownReason::StatusFile, since: 0 };
            }
        }
        state
    }

    /// Takes over the nodes of a changed configuration.
    pub fn reload(&mut self, rules: &FailoverRules) {
        self.nodes.retain(|id, _| rules.node(*id).is_some());
        for id in rules.ids() {
            let is_detached = self.durable.detached.contains(&id);
            self.nodes
                .entry(id)
                .or_insert_with(|| NodeState::new(if is_detached { NodeStanding::Detached } else { NodeStanding::Waiting }));
        }
    }

    /// A reload has given a node another address: nothing is known of the server there.
    pub fn readdress(&mut self, id: NodeId) {
        if let Some(node) = self.nodes.get_mut(&id) {
            *node = NodeState { renamed: true, ..NodeState::new(node.standing) };
        }
    }

    /// When the next [`Event::Timer`](super::Event::Timer) is due.
    pub fn next_due(&self) -> Ms {
        let looks = self.nodes.values().filter_map(|node| match node.look {
            LookSchedule::Due { at } => Some(at),
            LookSchedule::UnderWay { .. } => None,
        });
        let planned = self.planned.switchover.as_ref().map(Switchover::due);
        let restart = self.planned.restart.as_ref().map(StandbyRestart::due);
        looks.chain(self.attempt.as_ref().map(FailoverAttempt::until)).chain(planned).chain(restart).min().unwrap_or(Ms::MAX)
    }

    /// Begins an attempt. The term is stored first.
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

    /// Changes what must survive. A change to the same value makes no version, so that a step which repeats itself has nothing to store.
    pub(super) fn change<T>(&mut self, act: impl FnOnce(&mut DurableState) -> T) -> T {
        let before = self.durable.clone();
        let told = act(&mut self.durable);
        self.store.version += u64::from(self.durable != before);
        told
    }

    /// True if the last try to store it failed.
    pub(super) fn is_unstorable(&self) -> bool {
        self.store.stored < self.store.version && self.store.retry_at > 0
    }

    /// True if all that must survive is on disk.
    pub(super) fn is_stored(&self) -> bool {
        self.store.stored == self.store.version
    }

    pub fn epoch(&self) -> Option<Epoch> {
        self.durable.epoch
    }

    /// The accepted primary.
    pub fn primary(&self) -> Option<NodeId> {
        self.durable.epoch.map(|epoch| epoch.node)
    }

    /// Pgpool's main node: the first one in use.
    pub fn first_in_use(&self, rules: &FailoverRules) -> Option<NodeId> {
        self.nodes.keys().copied().find(|id| !self.is_out(rules, *id))
    }

    /// True if sessions must not use this node.
    ///
    /// Where Weir promotes nothing and a node has no health checks, one that failed is used again as soon as it answers as what it was.
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

    /// True if sessions must not use this node now: it is out of use, or it is dead and stays in its place all the same. The latter is used again as
    /// soon as it answers.
    pub fn is_avoided(&self, rules: &FailoverRules, id: NodeId) -> bool {
        let by_roles = matches!(rules.mode, FailoverMode::Follow | FailoverMode::Off);
        let has_checks = rules.node(id).is_some_and(|node| node.health.period_ms > 0);
        self.is_out(rules, id) || (self.is_kept_dead(rules, id) && (!by_roles || has_checks))
    }

    /// True if this node is dead by its health, and in use since `backend_flag` has it stay.
    pub(super) fn is_kept_dead(&self, rules: &FailoverRules, id: NodeId) -> bool {
        is_kept(rules, id) && self.nodes.get(&id).is_some_and(|node| node.is_in_use() && node.dead.is_some())
    }

    /// The source that says where writes go. Where others promote, a server whose history nobody was allowed to see is known by its role alone.
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

    /// How the log of these facts lies to the accepted one.
    pub(super) fn relation(&self, facts: &ServerFacts) -> Option<WalRelation> {
        Some(facts.history.relation(facts.position, self.durable.history.as_ref()?))
    }

    /// True if these are facts of a primary that writes the accepted log.
    pub(super) fn is_on_line(&self, facts: &ServerFacts) -> bool {
        facts.is_primary()
            && matches!(self.relation(facts), Some(WalRelation::Holds(_)))
            && self.durable.history.as_ref().is_some_and(|history| history.timeline == facts.history.timeline)
    }

    /// Notes where the primary's log ended.
    pub(super) fn sample(&mut self, begun_at: Ms, position: Lsn) {
        let samples = &mut self.line.samples;
        if samples.len() == SAMPLES_MAX {
            // Every other one of the older half goes: old ones may be farther apart.
            let mut at = 0;
            samples.retain(|_| {
                at += 1;
                at > SAMPLES_MAX / 2 || at % 2 == 0
            });
        }
        samples.push((begun_at, position));
    }

    /// Looks at the primary, and where its log ended then.
    pub(super) fn samples(&self) -> &[(Ms, Lsn)] {
        &self.line.samples
    }

    pub(super) fn last_position(&self) -> Option<Lsn> {
        self.line.samples.last().map(|(_, position)| *position)
    }

    /// The possible loss if a server with this much of the accepted log succeeds.
    pub(super) fn loss_at(&self, position: Lsn) -> CommitLoss {
        let contained = self.line.samples.iter().rev().find(|(_, end)| *end <= position);
        match (contained, self.last_position()) {
            (Some((at, _)), Some(last)) => CommitLoss::After { at: *at, bytes: last.saturating_sub(position) },
            _ => CommitLoss::Unknown,
        }
    }

    /// Knowledge of synchronous standbys.
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
                        // Not seen since this Weir was started: nobody knows who else may have acknowledged.
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

    /// How many must agree. Alone, the file of this Weir decides, since it lets nobody write before; but synchronous standbys may have
    /// acknowledged a write past Weir to a primary that is not in the file, which only a majority's votes tell.
    pub(super) fn quorum(&self, rules: &FailoverRules) -> QuorumSize {
        if rules.is_alone() && self.sync(rules) == SyncStandbyKnowledge::Asynchronous {
            QuorumSize::One
        } else {
            QuorumSize::Majority
        }
    }

    /// Nothing will come of this attempt of ours.
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

    /// The log that was accepted, if it was seen.
    pub fn history(&self) -> Option<&TimelineHistory> {
        self.durable.history.as_ref()
    }
}

/// True if nobody takes the place of this node, however long it is dead.
pub(super) fn is_kept(rules: &FailoverRules, id: NodeId) -> bool {
    is_untouchable(rules, id) || rules.always_primary() == Some(id)
}

/// True if this node may not be taken out of use.
pub(super) fn is_untouchable(rules: &FailoverRules, id: NodeId) -> bool {
    rules.node(id).is_some_and(|node| node.flag == BackendFlag::DisallowToFailover)
}

/// The action that tells a changed gate, if it changed.
pub(super) fn tell(before: WriteTarget, now: WriteTarget) -> Option<FailoverAction> {
    (before != now).then_some(match now {
        WriteTarget::Open { node, started_at } => FailoverAction::Release { node, started_at },
        WriteTarget::Held(why, transactions) => FailoverAction::Hold { why, transactions },
    })
}
