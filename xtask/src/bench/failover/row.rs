//! The events that are measured.

/// Something that happens to the servers under load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// A server meets a fault.
    Fault(Fault, Victim),
    /// The working primary makes room for a standby.
    Switchover,
}

/// The treatment of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// `kill -9` of all its processes.
    Killed,
    /// `pg_ctl stop -m fast`.
    Stopped,
    /// SIGSTOP to all its processes.
    Hung,
}

/// The server that it meets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Victim {
    Primary,
    Standby,
}

/// The standbys that a commit waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Commit {
    Asynchronous,
    /// `ANY 1` of all.
    Any,
}

/// The loss that Weir spares its clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spared {
    Nothing,
    /// The outcome of a COMMIT whose answer was lost is told.
    Doubt,
    /// Transactions run again, too.
    Loss,
}

impl Spared {
    /// Lines of Weir's configuration.
    pub fn conf(self) -> &'static str {
        match self {
            Spared::Nothing => "",
            Spared::Doubt => "commit_outcome = on\n",
            Spared::Loss => "commit_outcome = on\ntransaction_replay = on\n",
        }
    }
}

/// How a server that was replaced comes back as a standby.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReturnBy {
    /// The measurement makes it a copy. There are no agents.
    Hand,
    /// Its agent starts it: it was stopped in order.
    Start,
    /// Its agent rewinds it.
    Rewind,
    /// Its agent copies it: neither `wal_log_hints` nor checksums are on.
    Copy,
}

/// One event.
#[derive(Debug)]
pub struct Row {
    /// For the command line and the kept file.
    pub name: &'static str,
    /// For the table.
    pub title: &'static str,
    pub event: Event,
    pub commit: Commit,
    /// By Weir.
    pub spared: Spared,
    pub return_by: ReturnBy,
    /// With Weir, if the command line does not say.
    pub rounds: u32,
}

impl Row {
    /// Is there an agent beside each server?
    pub fn has_agents(&self) -> bool {
        self.return_by != ReturnBy::Hand
    }

    /// Can other proxies be measured? They know neither agents nor clients that are spared something.
    pub fn has_peers(&self) -> bool {
        self.spared == Spared::Nothing && !self.has_agents()
    }

    /// Scale of the tables that are there beside those of the load; 70 makes 1 GB.
    pub fn pgbench_scale(&self) -> Option<u32> {
        match self.return_by {
            ReturnBy::Hand | ReturnBy::Start => None,
            ReturnBy::Rewind | ReturnBy::Copy => Some(70),
        }
    }
}

const fn row(name: &'static str, title: &'static str, fault: Fault, victim: Victim, commit: Commit) -> Row {
    let event = Event::Fault(fault, victim);
    Row { name, title, event, commit, spared: Spared::Nothing, return_by: ReturnBy::Hand, rounds: 3 }
}

/// The primary is killed, and its clients are spared something.
const fn sparing(name: &'static str, title: &'static str, commit: Commit, spared: Spared) -> Row {
    Row { spared, ..row(name, title, Fault::Killed, Victim::Primary, commit) }
}

/// The primary is killed, and its agent brings it back.
const fn returning(name: &'static str, title: &'static str, return_by: ReturnBy, rounds: u32) -> Row {
    Row { return_by, rounds, ..row(name, title, Fault::Killed, Victim::Primary, Commit::Asynchronous) }
}

/// All of them, in the order of the table.
pub const ROWS: [Row; 11] = [
    row("kill", "primary killed (`kill -9`), asynchronous standbys", Fault::Killed, Victim::Primary, Commit::Asynchronous),
    row("kill-any", "primary killed (`kill -9`), `ANY 1`", Fault::Killed, Victim::Primary, Commit::Any),
    row("stop", "primary stopped (`pg_ctl stop -m fast`)", Fault::Stopped, Victim::Primary, Commit::Asynchronous),
    row("hang", "primary says nothing (SIGSTOP)", Fault::Hung, Victim::Primary, Commit::Asynchronous),
    row("standby-kill", "standby killed (`kill -9`)", Fault::Killed, Victim::Standby, Commit::Asynchronous),
    row("standby-hang", "standby says nothing (SIGSTOP)", Fault::Hung, Victim::Standby, Commit::Asynchronous),
    sparing("outcome", "primary killed, `ANY 1`, `commit_outcome`", Commit::Any, Spared::Doubt),
    sparing(
        "replay",
        "primary killed, asynchronous standbys, `commit_outcome` and `transaction_replay`",
        Commit::Asynchronous,
        Spared::Loss,
    ),
    Row { event: Event::Switchover, ..returning("switchover", "switchover (`pcp_promote_node -s`)", ReturnBy::Start, 50) },
    returning("return", "primary killed, comes back by a rewind", ReturnBy::Rewind, 5),
    returning("return-copy", "primary killed, cannot be rewound, comes back by a base backup", ReturnBy::Copy, 1),
];
