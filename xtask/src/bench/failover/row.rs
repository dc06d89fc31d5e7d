//! The faults that are measured.

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

/// One fault.
#[derive(Debug)]
pub struct Row {
    /// For the command line and the kept file.
    pub name: &'static str,
    /// For the table.
    pub title: &'static str,
    pub fault: Fault,
    pub victim: Victim,
    pub commit: Commit,
    /// By Weir. Others know no such thing and are not measured.
    pub spared: Spared,
}

const fn row(name: &'static str, title: &'static str, fault: Fault, victim: Victim, commit: Commit) -> Row {
    Row { name, title, fault, victim, commit, spared: Spared::Nothing }
}

/// The primary is killed, and its clients are spared something.
const fn sparing(name: &'static str, title: &'static str, commit: Commit, spared: Spared) -> Row {
    Row { spared, ..row(name, title, Fault::Killed, Victim::Primary, commit) }
}

/// All of them, in the order of the table.
pub const ROWS: [Row; 8] = [
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
];
