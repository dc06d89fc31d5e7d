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
}

const fn row(name: &'static str, title: &'static str, fault: Fault, victim: Victim, commit: Commit) -> Row {
    Row { name, title, fault, victim, commit }
}

/// All of them, in the order of the table.
pub const ROWS: [Row; 6] = [
    row("kill", "primary killed (`kill -9`), asynchronous standbys", Fault::Killed, Victim::Primary, Commit::Asynchronous),
    row("kill-any", "primary killed (`kill -9`), `ANY 1`", Fault::Killed, Victim::Primary, Commit::Any),
    row("stop", "primary stopped (`pg_ctl stop -m fast`)", Fault::Stopped, Victim::Primary, Commit::Asynchronous),
    row("hang", "primary says nothing (SIGSTOP)", Fault::Hung, Victim::Primary, Commit::Asynchronous),
    row("standby-kill", "standby killed (`kill -9`)", Fault::Killed, Victim::Standby, Commit::Asynchronous),
    row("standby-hang", "standby says nothing (SIGSTOP)", Fault::Hung, Victim::Standby, Commit::Asynchronous),
];
