//! Orders from [`step`](super::step), carried out in order.
//!
//! An action may be repeated, and Weir may die before, in or after it. At its limit the driver reports a failure. Only the effect on the
//! servers counts, and the next look finds it.

use std::collections::BTreeSet;

use super::ballot::{Ballot, NodeId, Vote};
use super::choose::AttemptRefusal;
use super::event::{Done, FailoverEvent, LookFailure, Ms, PledgeReply, ProbeResult, ServerStopResult, VoteAnswer};
use super::operations::{RejoinFallback, RejoinWay};
use super::record::FailoverRecord;

#[derive(Clone, Debug, PartialEq)]
pub enum FailoverAction {
    /// Log in, ask for all of `ServerFacts`, disconnect or keep the connection.
    Probe {
        node: NodeId,
        limit_ms: Ms,
    },
    /// Send nothing that writes to any server.
    Hold {
        why: WriteHoldReason,
        transactions: OpenTransactionFate,
    },
    /// `started_at`: only over connections to this start of the server; new ones must be checked.
    Release {
        node: NodeId,
        started_at: Option<u64>,
    },
    /// Write, sync, rename and sync the folder before `Stored` says yes.
    Store {
        number: u64,
        text: String,
    },
    /// Under the standby's advisory lock: raise the mark's promise and remove the primary in one setting; reload; wait until the receiver
    /// is gone and replay at its end; take facts. Refused after a newer promise.
    CutOff {
        node: NodeId,
        ballot: Ballot,
        limit_ms: Ms,
    },
    /// `CutOff` without removing the primary.
    Pledge {
        node: NodeId,
        ballot: Ballot,
        limit_ms: Ms,
    },
    /// Under the lock, if the promise is this ballot: `pg_promote` without waiting. No effect on a primary.
    Promote {
        node: NodeId,
        ballot: Ballot,
        limit_ms: Ms,
    },
    /// Wait for the end of recovery and for writes; take facts.
    WaitWritable {
        node: NodeId,
        ballot: Ballot,
        limit_ms: Ms,
    },
    /// Under the lock, without a newer promise: put the vote into the mark; point a standby at the vote's node, with its slot.
    Repoint {
        node: NodeId,
        vote: Vote,
        limit_ms: Ms,
    },
    /// Under the lock, without a newer promise: make the server read only and end its sessions.
    Fence {
        node: NodeId,
        ballot: Ballot,
        limit_ms: Ms,
    },
    Unfence {
        node: NodeId,
        limit_ms: Ms,
    },
    /// Reload a standby, which ends the wait of `wal_retrieve_retry_interval` after a broken stream.
    Wake {
        node: NodeId,
        limit_ms: Ms,
    },
    /// Under the lock, without a promise above this ballot: point a standby at the primary, with its slot. Its mark stays.
    Point {
        node: NodeId,
        primary: NodeId,
        ballot: Ballot,
        limit_ms: Ms,
    },
    /// Write a checkpoint, to shorten a later stop. May fail.
    Prepare {
        node: NodeId,
        limit_ms: Ms,
    },
    /// Wait for the end of Weir's transactions on the node.
    Drain {
        node: NodeId,
        limit_ms: Ms,
    },
    /// Wait until no other Weir writes to the node. `weir`: this one.
    WaitYielded {
        node: NodeId,
        weir: u32,
        limit_ms: Ms,
    },
    /// By the agent: stop the server unless it was restarted since `started_at`.
    StopServer {
        node: NodeId,
        ballot: Ballot,
        started_at: Option<u64>,
        mode: PrimaryStopMode,
        limit_ms: Ms,
    },
    AskAgent {
        node: NodeId,
        limit_ms: Ms,
    },
    /// By the agent: find the last record of a cleanly stopped server.
    Inspect {
        node: NodeId,
        ballot: Ballot,
        limit_ms: Ms,
    },
    StartServer {
        node: NodeId,
        limit_ms: Ms,
    },
    /// By the agent, in one order: stop the standby unless it was restarted since, and start it. The answer is `ServerStarted`.
    RestartServer {
        node: NodeId,
        started_at: u64,
        limit_ms: Ms,
    },
    /// By the agent: make the stopped server a standby unless it has promised more. Its mark stays.
    FollowServer {
        node: NodeId,
        primary: NodeId,
        ballot: Ballot,
        limit_ms: Ms,
    },
    /// By the agent, in the steps of [`deed`](super::rejoin::deed): make a replaced primary a standby.
    Rejoin {
        node: NodeId,
        primary: NodeId,
        ballot: Ballot,
        way: RejoinWay,
        limit_ms: Ms,
    },
    /// Run in a shell. PCP is served meanwhile.
    RunCommand {
        number: u64,
        kind: FailoverCommandKind,
        line: String,
        limit_ms: Ms,
    },
    Reply {
        ticket: u64,
        answer: Result<(), String>,
    },
    WriteStatus {
        text: String,
    },
    Report(FailoverReport),
}

impl FailoverAction {
    /// Returns the target and limit of an order to a server or agent.
    pub fn target(&self) -> Option<(NodeId, Ms)> {
        match *self {
            FailoverAction::Probe { node, limit_ms }
            | FailoverAction::CutOff { node, limit_ms, .. }
            | FailoverAction::Pledge { node, limit_ms, .. }
            | FailoverAction::Promote { node, limit_ms, .. }
            | FailoverAction::WaitWritable { node, limit_ms, .. }
            | FailoverAction::Repoint { node, limit_ms, .. }
            | FailoverAction::Fence { node, limit_ms, .. }
            | FailoverAction::Unfence { node, limit_ms }
            | FailoverAction::Wake { node, limit_ms }
            | FailoverAction::Point { node, limit_ms, .. }
            | FailoverAction::Prepare { node, limit_ms }
            | FailoverAction::WaitYielded { node, limit_ms, .. }
            | FailoverAction::StopServer { node, limit_ms, .. }
            | FailoverAction::AskAgent { node, limit_ms }
            | FailoverAction::Inspect { node, limit_ms, .. }
            | FailoverAction::StartServer { node, limit_ms }
            | FailoverAction::RestartServer { node, limit_ms, .. }
            | FailoverAction::FollowServer { node, limit_ms, .. } => Some((node, limit_ms)),
            FailoverAction::Hold { .. }
            | FailoverAction::Release { .. }
            | FailoverAction::Store { .. }
            | FailoverAction::Drain { .. }
            | FailoverAction::Rejoin { .. }
            | FailoverAction::RunCommand { .. }
            | FailoverAction::Reply { .. }
            | FailoverAction::WriteStatus { .. }
            | FailoverAction::Report(_) => None,
        }
    }

    /// Returns the event for an order without a known result.
    pub fn failed(&self, begun_at: Ms, failure: LookFailure) -> Option<FailoverEvent> {
        Some(match *self {
            FailoverAction::Probe { node, .. } => FailoverEvent::Probed { node, begun_at, found: ProbeResult::Failed(failure) },
            FailoverAction::CutOff { node, ballot, .. } | FailoverAction::Pledge { node, ballot, .. } => {
                FailoverEvent::Pledged { node, ballot, outcome: PledgeReply::Failed(failure) }
            }
            FailoverAction::Promote { node, ballot, .. } => FailoverEvent::Promoted { node, ballot, done: Done::No },
            FailoverAction::WaitWritable { node, ballot, .. } => FailoverEvent::Writable { node, ballot, outcome: Err(failure) },
            FailoverAction::Repoint { node, vote, .. } => {
                FailoverEvent::Repointed { node, vote, outcome: VoteAnswer::Failed(failure) }
            }
            FailoverAction::Fence { node, .. } => FailoverEvent::Fenced { node, done: Done::No },
            FailoverAction::Unfence { node, .. } => FailoverEvent::Unfenced { node, done: Done::No },
            FailoverAction::Wake { node, .. } | FailoverAction::Point { node, .. } => {
                FailoverEvent::Pointed { node, done: Done::No }
            }
            FailoverAction::Prepare { node, .. } => FailoverEvent::Prepared { node },
            FailoverAction::WaitYielded { node, .. } => FailoverEvent::Yielded { node },
            FailoverAction::StopServer { node, ballot, .. } => {
                FailoverEvent::ServerStopped { node, ballot, end: ServerStopResult::Unknown }
            }
            FailoverAction::AskAgent { node, .. } => FailoverEvent::AgentHeard { node, done: Done::No },
            FailoverAction::Inspect { node, ballot, .. } => FailoverEvent::Inspected { node, ballot, outcome: Err(failure) },
            FailoverAction::StartServer { node, .. } | FailoverAction::RestartServer { node, .. } => {
                FailoverEvent::ServerStarted { node, done: Done::No }
            }
            FailoverAction::FollowServer { node, .. } => FailoverEvent::ServerFollows { node, done: Done::No },
            FailoverAction::Hold { .. }
            | FailoverAction::Release { .. }
            | FailoverAction::Store { .. }
            | FailoverAction::Drain { .. }
            | FailoverAction::Rejoin { .. }
            | FailoverAction::RunCommand { .. }
            | FailoverAction::Reply { .. }
            | FailoverAction::WriteStatus { .. }
            | FailoverAction::Report(_) => return None,
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PrimaryStopMode {
    /// All log is written, archived, and sent to the standbys first.
    Clean,
    /// As by a crash; the next start recovers from the log.
    Crash,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FailoverCommandKind {
    Failover,
    Failback,
    FollowPrimary,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WriteHoldReason {
    /// No primary was ever certain.
    NoPrimary,
    Checked,
    Gone,
    /// Standbys hear the primary, this Weir does not.
    Quarantined,
    Replaced,
    /// A replacement by another Weir is not excluded.
    Unconfirmed,
    Detached,
    SwitchedOver,
    /// Not the accepted primary.
    Another,
    /// A server of another cluster.
    Foreign,
}

/// Transactions open on the held primary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OpenTransactionFate {
    Go,
    /// Connections are closed; later answers are not passed on.
    End,
}

#[derive(Clone, Debug, PartialEq)]
pub enum FailoverReport {
    Degenerated {
        node: NodeId,
        why: NodeDownReason,
    },
    Attached {
        node: NodeId,
    },
    /// A lost node streams again; an operator must attach it.
    Unused {
        node: NodeId,
    },
    Foreign {
        node: NodeId,
        system: u64,
        known: u64,
    },
    /// The primary of another cluster, accepted from now on.
    Begun {
        node: NodeId,
        system: u64,
    },
    Quarantined {
        node: NodeId,
        heard_by: BTreeSet<NodeId>,
    },
    /// This member of a group misses a node that most others reach.
    SeenByOthers {
        node: NodeId,
        others: u32,
    },
    /// A second primary, not used.
    FalsePrimary {
        node: NodeId,
    },
    /// To be copied before it is used again; see `promoted_apart`.
    PromotedApart {
        node: NodeId,
    },
    Stuck {
        why: AttemptRefusal,
    },
    /// A promotion from outside is awaited.
    Searching,
    /// No promotion in `search_primary_node_timeout`.
    NotFound {
        waited_ms: Ms,
    },
    /// Another Weir's replacement is unfinished.
    TakingOver {
        ballot: Ballot,
    },
    Done(Box<FailoverRecord>),
    /// A silent primary's agent was told to end it.
    Ended {
        node: NodeId,
        end: ServerStopResult,
    },
    AwaitsRestart {
        node: NodeId,
    },
    /// A standby's upstream is dead.
    Orphaned {
        node: NodeId,
        upstream: NodeId,
    },
    /// No stream within a minute.
    DoesNotStream {
        node: NodeId,
        then: RejoinFallback,
    },
    /// `failover_command` is not run for a node that never answered.
    CommandLeftOut {
        node: NodeId,
    },
    CommandFailed {
        kind: FailoverCommandKind,
        node: NodeId,
    },
    /// Open connections get answers, but no login does.
    NoLogin {
        node: NodeId,
        lasting_ms: Ms,
    },
    Slow {
        node: NodeId,
        took_ms: Ms,
        limit_ms: Ms,
    },
    /// The server lives, but its state is unknown.
    Mute {
        node: NodeId,
        failure: LookFailure,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NodeDownReason {
    Failed(LookFailure),
    /// A primary that was not accepted.
    False,
    /// To follow the new primary, by `follow_primary_command` or a switchover.
    Following,
    Foreign,
    /// Promoted beside the primary; see `promoted_apart`.
    Apart,
    /// Down in `pgpool_status` at the start.
    StatusFile,
}

impl WriteHoldReason {
    pub fn describe(self) -> &'static str {
        match self {
            WriteHoldReason::NoPrimary => "no primary was found",
            WriteHoldReason::Checked => "a connection to the primary broke; it is looked at",
            WriteHoldReason::Gone => "the primary is gone",
            WriteHoldReason::Quarantined => "this proxy does not reach the primary, its standbys do",
            WriteHoldReason::Replaced => "the primary is being replaced",
            WriteHoldReason::Unconfirmed => "the primary is not known to be the newest one yet",
            WriteHoldReason::SwitchedOver => "a switchover is under way",
            WriteHoldReason::Detached => "the primary is detached",
            WriteHoldReason::Another => "the primary does not answer as such",
            WriteHoldReason::Foreign => {
                "a server of another cluster answers at the primary's address, and nobody has named it the primary"
            }
        }
    }
}
