//! Orders that [`step`](super::step) gives. A driver obeys them in their order, and does nothing else.
//!
//! Every action may be repeated, and Weir may die before, in or after it. Each has a limit: when it is over, the driver answers as for a failure.
//! Only the effect on the servers counts, and the next look finds it.

use std::collections::BTreeSet;

use super::ballot::{Ballot, NodeId, Vote};
use super::choose::AttemptRefusal;
use super::event::{Done, FailoverEvent, LookFailure, Ms, PledgeReply, ProbeResult, ServerStopResult, VoteAnswer};
use super::operations::{RejoinFallback, RejoinWay};
use super::record::FailoverRecord;

#[derive(Clone, Debug, PartialEq)]
pub enum FailoverAction {
    /// Log in, ask for all of `Facts`, disconnect or keep the connection.
    Probe { node: NodeId, limit_ms: Ms },
    /// Nothing that writes is sent to any server from now on.
    Hold { why: WriteHoldReason, transactions: OpenTransactionFate },
    /// Writes go to this node. `started_at`: over connections to this start of the server only; one that is opened must be checked.
    Release { node: NodeId, started_at: Option<u64> },
    /// The text must be on disk (written beside, synced, renamed, folder synced) before `Stored` says yes.
    Store { number: u64, text: String },
    /// Under the advisory lock of the standby: raise the promise of its mark to the ballot; take its primary away in the same setting; reload;
    /// wait until the receiver is gone and replay is at its end; take facts. Refused if the mark has a newer promise.
    CutOff { node: NodeId, ballot: Ballot, limit_ms: Ms },
    /// The same without taking the primary away.
    Pledge { node: NodeId, ballot: Ballot, limit_ms: Ms },
    /// Under the lock, and only if the promise is this ballot: `pg_promote`, not waited for. A primary already: nothing.
    Promote { node: NodeId, ballot: Ballot, limit_ms: Ms },
    /// Ask until it is out of recovery and takes writes, and take facts.
    WaitWritable { node: NodeId, ballot: Ballot, limit_ms: Ms },
    /// Under the lock, and only if no newer ballot was promised: put the vote into the mark; on a standby point it at the vote's node, too, with
    /// its slot.
    Repoint { node: NodeId, vote: Vote, limit_ms: Ms },
    /// Under the lock, and only if no newer ballot was promised: make it read only for everybody and end its sessions.
    Fence { node: NodeId, ballot: Ballot, limit_ms: Ms },
    /// Undo that.
    Unfence { node: NodeId, limit_ms: Ms },
    /// Have a standby look for its primary now: it waits `wal_retrieve_retry_interval` after a stream broke, and a reload of its configuration ends that.
    Wake { node: NodeId, limit_ms: Ms },
    /// Under the lock, and only if nothing above this ballot was promised: point a standby at the primary, with its slot. Its mark stays.
    Point { node: NodeId, primary: NodeId, ballot: Ballot, limit_ms: Ms },
    /// Have the server write a checkpoint, so that it has little to do when it stops. A kindness: it may fail.
    Prepare { node: NodeId, limit_ms: Ms },
    /// Wait until no transaction is open on the node over any connection of Weir's, at most so long.
    Drain { node: NodeId, limit_ms: Ms },
    /// Waits until no other Weir writes to a node, or the limit is over. `weir`: the number of this one.
    WaitYielded { node: NodeId, weir: u32, limit_ms: Ms },
    /// By the agent: stop the server, if it is the one that was started then.
    StopServer { node: NodeId, ballot: Ballot, started_at: Option<u64>, mode: PrimaryStopMode, limit_ms: Ms },
    /// See if the agent answers.
    AskAgent { node: NodeId, limit_ms: Ms },
    /// By the agent: the place of the last record of a server that is stopped cleanly.
    Inspect { node: NodeId, ballot: Ballot, limit_ms: Ms },
    /// By the agent: start the server.
    StartServer { node: NodeId, limit_ms: Ms },
    /// By the agent, in one order: stop the standby that was started then, and start it. The answer is `ServerStarted`.
    RestartServer { node: NodeId, started_at: u64, limit_ms: Ms },
    /// By the agent: make the stopped server a standby of `primary`, unless it has promised more than this ballot. Its mark stays.
    FollowServer { node: NodeId, primary: NodeId, ballot: Ballot, limit_ms: Ms },
    /// Have the agent beside a replaced primary make it a standby of this primary, deed by deed as [`deed`](super::rejoin::deed) decides.
    Rejoin { node: NodeId, primary: NodeId, ballot: Ballot, way: RejoinWay, limit_ms: Ms },
    /// Run it in a shell. PCP is served meanwhile.
    RunCommand { number: u64, kind: FailoverCommandKind, line: String, limit_ms: Ms },
    /// Answer an operator.
    Reply { ticket: u64, answer: Result<(), String> },
    /// Write `pgpool_status`.
    WriteStatus { text: String },
    /// Tell people.
    Report(FailoverReport),
}

impl FailoverAction {
    /// The node of an order to a server or to the agent beside it, and the limit of that order.
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

    /// The event for an order that began at `begun_at` and was not done, as far as anybody knows.
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

/// How a server is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PrimaryStopMode {
    /// All its log is written, archived, and sent to the standbys. It waits for that.
    Clean,
    /// As by a crash, within the limit: it recovers from its log when it is started.
    Crash,
}

/// The operator's commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FailoverCommandKind {
    Failover,
    Failback,
    FollowPrimary,
}

/// Why writes wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WriteHoldReason {
    /// No primary was ever certain.
    NoPrimary,
    /// A connection to it broke; one look will tell.
    Checked,
    /// It is given up, or does not count as usable.
    Gone,
    /// Its standbys hear it, this Weir does not.
    Quarantined,
    /// Another Weir has begun to replace it, or this one.
    Replaced,
    /// Too few standbys were heard to know that no other Weir replaced it.
    Unconfirmed,
    /// The operator took it out.
    Detached,
    /// A switchover is under way.
    SwitchedOver,
    /// It answers, but not as the primary that was accepted.
    Another,
    /// A server of another cluster answers in its place.
    Foreign,
}

/// The fate of transactions that are open on the held primary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OpenTransactionFate {
    /// They may go on.
    Go,
    /// They end now and their connections are closed; an answer that arrives later is not passed on.
    End,
}

/// Something for the log and for SHOW.
#[derive(Clone, Debug, PartialEq)]
pub enum FailoverReport {
    /// A node is out of use from now on.
    Degenerated {
        node: NodeId,
        why: NodeDownReason,
    },
    Attached {
        node: NodeId,
    },
    /// A node that was lost streams again, and comes into use by an operator only.
    Unused {
        node: NodeId,
    },
    /// The server at a node's address is of another cluster than the accepted one.
    Foreign {
        node: NodeId,
        system: u64,
        known: u64,
    },
    /// This node is the primary of another cluster, which counts from now on.
    Begun {
        node: NodeId,
        system: u64,
    },
    Quarantined {
        node: NodeId,
        heard_by: BTreeSet<NodeId>,
    },
    /// A second primary: it gets nothing.
    FalsePrimary {
        node: NodeId,
    },
    /// The primary is gone and nothing may be done about it.
    Stuck {
        why: AttemptRefusal,
    },
    /// Somebody else is to promote a standby.
    Searching,
    /// Nobody did in `search_primary_node_timeout`.
    NotFound {
        waited_ms: Ms,
    },
    /// Another Weir began to replace the primary and did not end it.
    TakingOver {
        ballot: Ballot,
    },
    /// A primary was accepted.
    Done(Box<FailoverRecord>),
    /// The agent of a primary that does not answer was told to end it.
    Ended {
        node: NodeId,
        end: ServerStopResult,
    },
    /// Somebody is to start this server anew.
    AwaitsRestart {
        node: NodeId,
    },
    /// A standby receives nothing, since the node that it follows is dead.
    Orphaned {
        node: NodeId,
        upstream: NodeId,
    },
    /// A server that was brought back does not stream in a minute.
    DoesNotStream {
        node: NodeId,
        then: RejoinFallback,
    },
    /// `failover_command` is not run for a node that has never answered.
    CommandLeftOut {
        node: NodeId,
    },
    CommandFailed {
        kind: FailoverCommandKind,
        node: NodeId,
    },
    /// A server that answers over open connections has answered no login for so long.
    NoLogin {
        node: NodeId,
        lasting_ms: Ms,
    },
    /// A look took more than half of the time that it may.
    Slow {
        node: NodeId,
        took_ms: Ms,
        limit_ms: Ms,
    },
    /// It lives and lets no look in, so that nothing is known of its state.
    Mute {
        node: NodeId,
        failure: LookFailure,
    },
}

/// Why a node is down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NodeDownReason {
    Failed(LookFailure),
    /// It is a primary that nobody accepted.
    False,
    /// It is to follow the new primary: `follow_primary_command` brings it back, or a switchover does.
    Following,
    /// It is a server of another cluster.
    Foreign,
    /// `pgpool_status` said so at the start.
    StatusFile,
}

impl WriteHoldReason {
    /// For SHOW and the log.
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
