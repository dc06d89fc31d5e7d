//! Facts for [`step`](super::step), without judgement.

use std::collections::{BTreeMap, BTreeSet};

use super::ballot::{Ballot, Mark, NodeId, Vote};
use super::durable::DurableState;
use super::history::{Lsn, TimelineHistory};
use super::numbers::PromotionNumbers;

/// Milliseconds of a monotonic clock.
pub type Ms = u64;

#[derive(Clone, Debug, PartialEq)]
pub enum FailoverEvent {
    /// Next due at [`FailoverState::next_due`](super::FailoverState::next_due).
    Timer,
    /// The answer to [`FailoverAction::Probe`](super::FailoverAction::Probe), at the latest at its limit.
    Probed {
        node: NodeId,
        begun_at: Ms,
        found: ProbeResult,
    },
    /// A client session's connection to a server ended unexpectedly.
    ///
    /// The node gets no write over a later connection before this event's actions are carried out.
    ConnDied {
        node: NodeId,
        how: ServerConnEnd,
    },
    /// A session waits for a node, or a node is not as known.
    Doubted,
    /// A client has come since a node was attached.
    Used {
        node: NodeId,
    },
    Stored {
        number: u64,
        done: Done,
    },
    Pledged {
        node: NodeId,
        ballot: Ballot,
        outcome: PledgeReply,
    },
    Promoted {
        node: NodeId,
        ballot: Ballot,
        done: Done,
    },
    Writable {
        node: NodeId,
        ballot: Ballot,
        outcome: Result<ServerFacts, LookFailure>,
    },
    Repointed {
        node: NodeId,
        vote: Vote,
        outcome: VoteAnswer,
    },
    Fenced {
        node: NodeId,
        done: Done,
    },
    Unfenced {
        node: NodeId,
        done: Done,
    },
    Pointed {
        node: NodeId,
        done: Done,
    },
    /// Done, or the limit is over.
    Prepared {
        node: NodeId,
    },
    Drained {
        node: NodeId,
    },
    /// No other Weir writes, or the limit is over.
    Yielded {
        node: NodeId,
    },
    ServerStopped {
        node: NodeId,
        ballot: Ballot,
        end: ServerStopResult,
    },
    /// `No`: the agent does not answer.
    AgentHeard {
        node: NodeId,
        done: Done,
    },
    ServerStarted {
        node: NodeId,
        done: Done,
    },
    ServerFollows {
        node: NodeId,
        done: Done,
    },
    /// The begin of the last record. `Err`: not stopped cleanly, or unknown.
    Inspected {
        node: NodeId,
        ballot: Ballot,
        outcome: Result<Lsn, LookFailure>,
    },
    Rejoined {
        node: NodeId,
        done: Done,
    },
    CommandEnded {
        number: u64,
        done: Done,
    },
    /// `ticket` identifies the answer.
    Operator {
        ticket: u64,
        request: OperatorRequest,
    },
    /// By the file of `health_check_test`.
    TestFile {
        down: BTreeSet<NodeId>,
    },
    /// How many other members of the group see each node.
    Sights {
        of_others: BTreeMap<NodeId, SightCount>,
    },
    /// The state that the leader of this Weir's group has stored.
    Told {
        durable: Box<DurableState>,
    },
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SightCount {
    pub alive: u32,
    pub dead: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Done {
    Yes,
    /// The action may have happened.
    No,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ServerStopResult {
    Before,
    Now,
    /// The server may have ended.
    Unknown,
}

#[derive(Clone, Debug, PartialEq)]
pub enum ProbeResult {
    Answered(Box<ServerFacts>),
    Failed(LookFailure),
}

/// A server that answers, as it describes itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ServerFacts {
    pub history: TimelineHistory,
    pub recovery: RecoveryState,
    /// Primary: end of its log. Standby: end of the log received and flushed on its timeline, or replayed.
    pub position: Lsn,
    /// Standby: end of the replayed log.
    pub replayed: Lsn,
    pub received: ReceivedWal,
    /// `pg_postmaster_start_time`.
    pub started_at: u64,
    pub mark: Mark,
    /// Of its promotion, or of an earlier one.
    pub numbers: Option<PromotionNumbers>,
    /// `default_transaction_read_only` is on.
    pub is_read_only: bool,
    pub sync_names: Option<String>,
    /// By `pg_stat_replication`.
    pub followers: Vec<StreamingFollower>,
}

/// `pg_last_wal_receive_lsn`, on the timeline last requested. A request for a new timeline starts at a WAL file's begin, and so before
/// the replay position. Source: `RequestXLogStreaming` in walreceiverfuncs.c.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ReceivedWal {
    /// All that is replayed, or nothing requested.
    #[default]
    All,
    /// The newest timeline with a WAL file for the replay position; `None`: unknown.
    Less { newest_file: Option<u32> },
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum RecoveryState {
    #[default]
    Primary,
    Standby {
        /// By `primary_conninfo`; `None`: not a configured node.
        upstream: Option<NodeId>,
        stream: WalReceiverState,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WalReceiverState {
    Off,
    /// Time since the last message, by the standby's clock.
    On {
        silent_ms: u64,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StreamingFollower {
    /// `None`: not a configured node.
    pub node: Option<NodeId>,
    pub is_streaming: bool,
    pub flushed: Lsn,
}

/// See [`LookFailure::is_death`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LookFailure {
    /// The server does not run.
    Refused,
    /// No route, reset while connecting.
    Unreachable,
    /// Hung, or packets are lost.
    TimedOut,
    /// No login within the limit, but answers over open connections.
    Late,
    /// The connection ended without an error.
    Lost,
    /// 57P01 or 57P02 during a look, perhaps by an operator. The next look tells more.
    Ended,
    /// Not asked: the proxy lacks descriptors, ports, memory, a right, or an address.
    Local,
    /// 57P03: starts, or recovers from a crash.
    Starting,
    /// 57P03: shuts down.
    ShuttingDown,
    /// 53300.
    TooManyConnections,
    /// Class 28.
    WrongPassword,
    /// 3D000.
    NoDatabase,
    /// Rest of class 53.
    OutOfResources,
    /// Another error.
    Refuses,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ServerConnEnd {
    /// 57P01 or 57P02: shutdown, crash, or `pg_terminate_backend`.
    Terminated,
    /// Reset, closed, timed out, or refused.
    Broken,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum PledgeReply {
    /// `facts`: after the receiver had gone and all log was replayed.
    Given {
        facts: ServerFacts,
    },
    /// A newer promise, or another Weir's lock.
    Refused {
        mark: Mark,
    },
    Failed(LookFailure),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum VoteAnswer {
    Yes,
    Refused { mark: Mark },
    Failed(LookFailure),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OperatorRequest {
    Attach(NodeId),
    Detach(NodeId),
    /// Promotes a standby only if the primary is given up, whatever is lost.
    Promote(NodeId),
    /// Done when the old primary follows (builtin mode), or `failover_command` is ordered.
    SwitchOver(NodeId),
    /// Done when the standby streams again.
    Restart(NodeId),
    /// Copying the primary to this node.
    Recover(NodeId, NodeCopyStage),
}

impl OperatorRequest {
    pub fn node(self) -> NodeId {
        match self {
            OperatorRequest::Attach(id)
            | OperatorRequest::Detach(id)
            | OperatorRequest::Promote(id)
            | OperatorRequest::SwitchOver(id)
            | OperatorRequest::Restart(id)
            | OperatorRequest::Recover(id, _) => id,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NodeCopyStage {
    Begins,
    Ends,
}

impl ServerConnEnd {
    /// SQLSTATE of the server's last error.
    pub fn of_sqlstate(last_word: Option<&str>) -> ServerConnEnd {
        match last_word {
            Some("57P01" | "57P02") => ServerConnEnd::Terminated,
            Some(_) | None => ServerConnEnd::Broken,
        }
    }
}

impl FailoverEvent {
    /// Combines a look with signs of life.
    #[must_use]
    pub fn beside(self, beside: SignOfLife) -> FailoverEvent {
        match (self, beside) {
            (
                FailoverEvent::Probed { node, begun_at, found: ProbeResult::Failed(LookFailure::TimedOut) },
                SignOfLife::Answers,
            ) => FailoverEvent::Probed { node, begun_at, found: ProbeResult::Failed(LookFailure::Late) },
            (event, _) => event,
        }
    }
}

/// Over open connections during a look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SignOfLife {
    /// A statement or a question of Weir's ended.
    Answers,
    /// Perhaps no statement ran.
    Silence,
}

impl LookFailure {
    /// Errors of 57P03 share routine and line, and their texts are translated. Only English ones show a shutdown; others count as a
    /// start, after which the port is closed.
    pub fn of_sqlstate(code: &str, message: &str) -> LookFailure {
        match code {
            "57P03" if message.contains("shutting down") => LookFailure::ShuttingDown,
            "57P03" => LookFailure::Starting,
            "57P01" | "57P02" => LookFailure::Ended,
            "53300" => LookFailure::TooManyConnections,
            "3D000" => LookFailure::NoDatabase,
            _ if code.starts_with("28") => LookFailure::WrongPassword,
            _ if code.starts_with("53") => LookFailure::OutOfResources,
            _ => LookFailure::Refuses,
        }
    }

    /// Other failures are answers, except `Local`, which asked nothing.
    pub fn is_death(self) -> bool {
        match self {
            LookFailure::Refused
            | LookFailure::Unreachable
            | LookFailure::TimedOut
            | LookFailure::Lost
            | LookFailure::ShuttingDown => true,
            LookFailure::Starting
            | LookFailure::Ended
            | LookFailure::Late
            | LookFailure::Local
            | LookFailure::TooManyConnections
            | LookFailure::WrongPassword
            | LookFailure::NoDatabase
            | LookFailure::OutOfResources
            | LookFailure::Refuses => false,
        }
    }

    /// True if the server answers but admits no look: its state is unknown.
    pub fn is_mute(self) -> bool {
        match self {
            LookFailure::TooManyConnections
            | LookFailure::WrongPassword
            | LookFailure::NoDatabase
            | LookFailure::OutOfResources
            | LookFailure::Late
            | LookFailure::Refuses => true,
            LookFailure::Refused
            | LookFailure::Unreachable
            | LookFailure::TimedOut
            | LookFailure::Lost
            | LookFailure::Ended
            | LookFailure::Local
            | LookFailure::ShuttingDown
            | LookFailure::Starting => false,
        }
    }

    /// The server may live.
    pub fn is_silence(self) -> bool {
        matches!(self, LookFailure::Unreachable | LookFailure::TimedOut | LookFailure::Lost)
    }

    pub fn describe(self) -> &'static str {
        match self {
            LookFailure::Refused => "refuses connections",
            LookFailure::Unreachable => "cannot be reached",
            LookFailure::TimedOut => "does not answer in time",
            LookFailure::Late => "answers over open connections and no login in time",
            LookFailure::Lost => "ended the connection",
            LookFailure::Ended => "ended the session of the check",
            LookFailure::Local => {
                "was not asked, since this proxy lacks descriptors, ports, memory, a right, an address of its name, or time for the keys of a password"
            }
            LookFailure::Starting => "starts or recovers from a crash",
            LookFailure::ShuttingDown => "shuts down",
            LookFailure::TooManyConnections => "has too many connections",
            LookFailure::WrongPassword => "does not accept user or password",
            LookFailure::NoDatabase => "lacks the database of the check",
            LookFailure::OutOfResources => "is out of disk or memory",
            LookFailure::Refuses => "answers with an error",
        }
    }
}

impl ServerFacts {
    pub fn is_primary(&self) -> bool {
        self.recovery == RecoveryState::Primary
    }

    pub fn upstream(&self) -> Option<NodeId> {
        match self.recovery {
            RecoveryState::Primary => None,
            RecoveryState::Standby { upstream, .. } => upstream,
        }
    }

    /// In bytes.
    pub fn unreplayed(&self) -> u64 {
        if self.is_primary() { 0 } else { self.position.saturating_sub(self.replayed) }
    }

    /// Silence of a streaming standby's upstream.
    pub fn silent_ms(&self) -> Option<u64> {
        match self.recovery {
            RecoveryState::Standby { stream: WalReceiverState::On { silent_ms }, .. } => Some(silent_ms),
            RecoveryState::Standby { stream: WalReceiverState::Off, .. } | RecoveryState::Primary => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_no_death() {
        let cases = [
            ("57P03", "the database system is starting up", LookFailure::Starting, false),
            ("57P03", "the database system is in recovery mode", LookFailure::Starting, false),
            ("57P03", "das Datenbanksystem startet", LookFailure::Starting, false),
            ("57P03", "the database system is shutting down", LookFailure::ShuttingDown, true),
            ("57P01", "terminating connection due to administrator command", LookFailure::Ended, false),
            ("53300", "sorry, too many clients already", LookFailure::TooManyConnections, false),
            ("28P01", "password authentication failed", LookFailure::WrongPassword, false),
            ("28000", "no pg_hba.conf entry", LookFailure::WrongPassword, false),
            ("3D000", "database \"x\" does not exist", LookFailure::NoDatabase, false),
            ("53100", "could not extend file", LookFailure::OutOfResources, false),
            ("XX000", "unexpected", LookFailure::Refuses, false),
        ];
        for (code, message, expected, is_death) in cases {
            let failure = LookFailure::of_sqlstate(code, message);
            assert_eq!((failure, failure.is_death()), (expected, is_death), "{code} {message}");
        }
    }
}
