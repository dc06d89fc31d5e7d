//! Facts that reach [`step`](super::step): findings of looks and actions, experiences of clients, wishes of operators. Nothing in here is a judgement.

use std::collections::BTreeSet;

use super::ballot::{Ballot, Mark, NodeId, Vote};
use super::history::{Lsn, TimelineHistory};
use super::numbers::PromotionNumbers;

/// Milliseconds of a clock that only goes forward.
pub type Ms = u64;

/// Something that happened.
#[derive(Clone, Debug, PartialEq)]
pub enum FailoverEvent {
    /// Time has passed: nothing else is due before [`State::next_due`](super::State::next_due).
    Timer,
    /// The answer to [`Action::Probe`](super::Action::Probe). Every probe is answered, at the latest when its limit is over.
    Probed {
        node: NodeId,
        begun_at: Ms,
        found: ProbeResult,
    },
    /// A connection of a client's session to a server ended without being asked to.
    ///
    /// The node gets no write over a connection opened later before the actions of this event were obeyed.
    ConnDied {
        node: NodeId,
        how: ServerConnEnd,
    },
    /// Somebody has a reason to have all nodes looked at: he waits for one, or one is not what it counts as.
    Doubted,
    /// A client has come since a node was attached.
    Used {
        node: NodeId,
    },
    /// A version to be stored is on disk, or is not.
    Stored {
        number: u64,
        done: Done,
    },
    /// The answer to `CutOff` and `PledgeReply`.
    Pledged {
        node: NodeId,
        ballot: Ballot,
        outcome: PledgeReply,
    },
    /// The answer to `Promote`: the server was told to.
    Promoted {
        node: NodeId,
        ballot: Ballot,
        done: Done,
    },
    /// The answer to `WaitWritable`: it is a primary, with this log.
    Writable {
        node: NodeId,
        ballot: Ballot,
        outcome: Result<ServerFacts, LookFailure>,
    },
    /// The answer to `Repoint`.
    Repointed {
        node: NodeId,
        vote: Vote,
        outcome: VoteAnswer,
    },
    /// The answers to `Fence` and `Unfence`.
    Fenced {
        node: NodeId,
        done: Done,
    },
    Unfenced {
        node: NodeId,
        done: Done,
    },
    /// The answers to `Wake` and `Point`.
    Pointed {
        node: NodeId,
        done: Done,
    },
    /// The answers to `Prepare` and `Drain`: it is done, or its limit is over.
    Prepared {
        node: NodeId,
    },
    Drained {
        node: NodeId,
    },
    /// The answer to `WaitYielded`: none does, or the limit is over.
    Yielded {
        node: NodeId,
    },
    /// The answers to `StopServer`, `StartServer` and `RestartServer`, and `FollowServer`.
    ServerStopped {
        node: NodeId,
        ballot: Ballot,
        end: ServerStopResult,
    },
    /// The answer to `AskAgent`. No: it does not answer.
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
    /// The answer to `Inspect`: where the last record begins. Error: it runs, or was not stopped cleanly, or nobody says.
    Inspected {
        node: NodeId,
        ballot: Ballot,
        outcome: Result<Lsn, LookFailure>,
    },
    /// The answer to `Rejoin`: it was started as a standby, or not.
    Rejoined {
        node: NodeId,
        done: Done,
    },
    /// A command of the operator's ended.
    CommandEnded {
        number: u64,
        done: Done,
    },
    /// An operator asks for something; `ticket` goes with the answer.
    Operator {
        ticket: u64,
        request: OperatorRequest,
    },
    /// The file of `health_check_test` says that these nodes are down.
    TestFile {
        down: BTreeSet<NodeId>,
    },
}

/// How an action ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Done {
    Yes,
    /// It failed, or its limit is over: it may have happened.
    No,
}

/// How an order to stop a server ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ServerStopResult {
    /// It had ended before.
    Before,
    /// It ran until now.
    Now,
    /// The agent failed, or does not answer, or the limit is over: it may have happened.
    Unknown,
}

/// The result of a probe.
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
    /// Primary: the end of its log. Standby: the end of the log that it received and flushed on its timeline, or replayed.
    pub position: Lsn,
    /// Standby: the end of the log that it has replayed. A primary has nothing to replay.
    pub replayed: Lsn,
    pub received: ReceivedWal,
    /// `pg_postmaster_start_time`: changes when the server was started anew.
    pub started_at: u64,
    pub mark: Mark,
    /// What it keeps of the promotion that made it the primary, or of an earlier one.
    pub numbers: Option<PromotionNumbers>,
    /// `default_transaction_read_only` of the server is on.
    pub is_read_only: bool,
    /// Primary: `synchronous_standby_names`.
    pub sync_names: Option<String>,
    /// Primary: the clients that stream from it, by `pg_stat_replication`.
    pub followers: Vec<StreamingFollower>,
}

/// `pg_last_wal_receive_lsn` of a standby, the end of the log that it has received on the timeline for which it asked last. A standby that asks for a
/// new timeline asks from the begin of a WAL file on, and so from before what it has replayed. Source: `RequestXLogStreaming` in
/// walreceiverfuncs.c.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ReceivedWal {
    /// All that it has replayed, or it has asked for nothing.
    #[default]
    All,
    /// Less. `newest_file`: the newest timeline of which it has a WAL file for what it has replayed last; `None`: unknown.
    Less { newest_file: Option<u32> },
}

/// If a server is in recovery.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum RecoveryState {
    #[default]
    Primary,
    Standby {
        /// The node that `primary_conninfo` names, if it names one of ours.
        upstream: Option<NodeId>,
        stream: WalReceiverState,
    },
}

/// The receiver of a standby.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WalReceiverState {
    /// There is none.
    Off,
    /// It streams; its last message came so long ago, by the standby's clock.
    On { silent_ms: u64 },
}

/// One that streams from a primary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StreamingFollower {
    /// `None`: its name is none of ours.
    pub node: Option<NodeId>,
    /// `state` is `streaming`.
    pub is_streaming: bool,
    pub flushed: Lsn,
}

/// Why a look or an action got no answer. [`LookFailure::is_death`] says which of them are deaths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LookFailure {
    /// The host says that nobody listens: the server does not run.
    Refused,
    /// No route, reset while connecting.
    Unreachable,
    /// No answer within the limit: hung, or packets are lost.
    TimedOut,
    /// No answer within the limit, but answers meanwhile over connections that are open: the server lives, and logins take too long.
    Late,
    /// The connection ended before the answer, without a word.
    Lost,
    /// 57P01 or 57P02 in the middle of a look: this session was ended, by an operator perhaps. The next look tells more.
    Ended,
    /// This proxy lacks descriptors, ports, memory, a right, or an address of the host's name: nobody was asked.
    Local,
    /// 57P03: it starts, or recovers from a crash.
    Starting,
    /// 57P03: it shuts down.
    ShuttingDown,
    /// 53300.
    TooManyConnections,
    /// Class 28.
    WrongPassword,
    /// 3D000.
    NoDatabase,
    /// 53100 and the rest of class 53.
    OutOfResources,
    /// Another error: the server lives and says so.
    Refuses,
}

/// How a client's connection to a server ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ServerConnEnd {
    /// 57P01 or 57P02: a shutdown, a crash, or `pg_terminate_backend`.
    Terminated,
    /// Reset, closed, timed out, or refused when it was opened.
    Broken,
}

/// How a standby answered a pledge.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum PledgeReply {
    /// It keeps to this ballot. `facts` were taken after the receiver had gone and replay had come to the end of the log.
    Given {
        facts: ServerFacts,
    },
    /// It has promised a newer one, or another Weir has its lock.
    Refused {
        mark: Mark,
    },
    Failed(LookFailure),
}

/// How a server took a vote.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum VoteAnswer {
    Yes,
    Refused { mark: Mark },
    Failed(LookFailure),
}

/// An operator's request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OperatorRequest {
    Attach(NodeId),
    Detach(NodeId),
    /// Names the primary. A standby is promoted only if the primary is given up, and whatever is lost by it.
    Promote(NodeId),
    /// The working primary makes room for this standby. With builtin mode it is done when the old primary follows; with `failover_command`
    /// when the command is ordered.
    SwitchOver(NodeId),
    /// The server of a standby is started anew. Done when it streams again.
    Restart(NodeId),
    /// A copy of the primary is being made on this node, or is made.
    Recover(NodeId, NodeCopyStage),
}

impl OperatorRequest {
    /// The node it is about.
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
    /// By the SQLSTATE of the server's last word; `None`: it said nothing.
    pub fn of_sqlstate(last_word: Option<&str>) -> ServerConnEnd {
        match last_word {
            Some("57P01" | "57P02") => ServerConnEnd::Terminated,
            Some(_) | None => ServerConnEnd::Broken,
        }
    }
}

impl FailoverEvent {
    /// A look's outcome, with what else was heard of the node while it lasted.
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

/// The signs of life of a node over connections that are open, while a look at it lasted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SignOfLife {
    /// A statement of a client ended there, or a question of Weir's own.
    Answers,
    /// Nor need anybody have asked anything.
    Silence,
}

impl LookFailure {
    /// The failure that an error of a server stands for.
    ///
    /// All of 57P03 have one routine and line, and their texts are translated. Only English ones tell a shutdown; others count as a start,
    /// after which the port is closed.
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

    /// True if the server does not answer. All others are answers: it lives.
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

    /// True if the server answers and lets this look not in, which says nothing of its state.
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

    /// True if nothing was heard at all: the server may live.
    pub fn is_silence(self) -> bool {
        matches!(self, LookFailure::Unreachable | LookFailure::TimedOut | LookFailure::Lost)
    }

    /// As operators read it.
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

    /// The node it is told to follow.
    pub fn upstream(&self) -> Option<NodeId> {
        match self.recovery {
            RecoveryState::Primary => None,
            RecoveryState::Standby { upstream, .. } => upstream,
        }
    }

    /// The log that it holds and has not replayed, in bytes.
    pub fn unreplayed(&self) -> u64 {
        if self.is_primary() { 0 } else { self.position.saturating_sub(self.replayed) }
    }

    /// Since when it has heard nothing from its upstream, if it streams.
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
