//! A simulated PostgreSQL server: a log, a timeline, a role, the rule of synchronous standbys, and the Weirs' marks.

use std::collections::BTreeMap;

use weir_failover::commit_outcome::XidStatus;
use weir_failover::{
    Ballot, CommitAcknowledgers, Done, Lsn, Mark, Ms, NodeId, PledgeReply, PromotionNumbers as Promotion, ReceivedWal,
    RecoveryState, ServerFacts, StreamingFollower, TimelineHistory, Vote, VoteAnswer, WalReceiverState, WalRelation,
    parse_sync_names,
};

use crate::plan;

/// Rows that transactions change.
pub const ROWS: usize = 6;

/// Which write it is.
pub type WriteId = u64;

/// One record of the log: a commit, and the number of its transaction. 0: a record that is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Logged {
    pub write: WriteId,
    pub number: u64,
    /// The row that it changes.
    pub row: Option<u8>,
}

/// Numbers of transactions. Nothing of one that is open is in the log: it is forgotten with the connections, and its number is given out again.
#[derive(Clone, Debug)]
pub struct Numbers {
    /// The next that a primary gives out.
    next: u64,
    /// Above all in the log.
    pub above: u64,
    /// Numbers of open transactions, and the rows that they have changed.
    open: BTreeMap<u64, Option<u8>>,
    /// Numbers of the promotion that made the server a primary.
    pub promotion: Option<Promotion>,
    /// By which a Weir sees if they may have been given out again.
    pub clock: Clock,
}

/// Times that a server tells: of its start, and of its last checkpoint.
#[derive(Clone, Copy, Debug, Default)]
pub struct Clock {
    pub started_at: Ms,
    pub checkpoint_at: Ms,
    /// The next number at that checkpoint.
    pub checkpoint_number: u64,
    /// Since when it runs without a break, of whatever kind. It tells nobody.
    pub steady_from: Ms,
}

/// If it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Power {
    Up,
    /// The process is gone; the host says so.
    Stopped,
    /// The host is gone, or nothing gets through.
    Dark,
    /// Stopped by a signal: it will go on where it was.
    Hung,
    /// It was told to stop, and writes, archives and sends what it has: it lets nobody in.
    Stopping,
    /// It starts, or recovers from a crash of a backend.
    Starting,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Primary,
    Standby { upstream: Option<NodeId> },
}

#[derive(Clone, Debug)]
pub struct Server {
    pub id: NodeId,
    pub power: Power,
    pub role: Role,
    pub log: Vec<Logged>,
    /// Changes of each row in it.
    pub versions: [u64; ROWS],
    pub numbers: Numbers,
    pub history: TimelineHistory,
    pub mark: Mark,
    pub is_read_only: bool,
    pub started_at: u64,
    /// Moves at every end of its connections.
    pub incarnation: u64,
    /// Number of this time as a primary, unlike that of every other.
    pub reign: u64,
    pub heard: Heard,
    /// Positions that followers reported as flushed.
    pub flushed: BTreeMap<NodeId, Lsn>,
    /// Commits that wait for standbys: their ends, and their writers.
    pub waiting: Vec<(Lsn, WriteId)>,
    pub sync: Sync,
}

/// `synchronous_standby_names`, as it is and as it is read.
#[derive(Clone, Debug)]
pub struct Sync {
    pub names: String,
    pub acknowledgers: Option<CommitAcknowledgers>,
}

impl Sync {
    /// Of the server `id` among so many.
    fn new(id: NodeId, names: &str, servers: NodeId) -> Sync {
        let known: Vec<(NodeId, String)> = (0..servers).map(|id| (id, plan::name(id))).collect();
        let known: Vec<(NodeId, &str)> = known.iter().map(|(id, name)| (*id, name.as_str())).collect();
        let rule = parse_sync_names(names).unwrap_or_default();
        Sync { names: names.into(), acknowledgers: rule.map(|rule| rule.acknowledgers(&known, id)) }
    }
}

/// When a standby heard its upstream, and how far it got with that.
#[derive(Clone, Copy, Debug, Default)]
pub struct Heard {
    pub at: Option<Ms>,
    /// Since when without a break.
    pub from: Ms,
    /// Where its replay stands still: a report holds it up. It does not become a primary meanwhile.
    pub stands_at: Option<Lsn>,
}

pub const SYSTEM: u64 = 42;

impl Server {
    /// One of so many.
    pub fn new(id: NodeId, role: Role, sync_names: &str, servers: NodeId) -> Server {
        Server {
            id,
            power: Power::Up,
            role,
            log: Vec::new(),
            versions: [0; ROWS],
            numbers: Numbers { next: 1, above: 1, open: BTreeMap::new(), promotion: None, clock: Clock::default() },
            history: TimelineHistory { system: SYSTEM, timeline: 1, ..TimelineHistory::default() },
            mark: Mark::default(),
            is_read_only: false,
            started_at: 1,
            incarnation: 1,
            reign: 1,
            heard: Heard::default(),
            flushed: BTreeMap::new(),
            waiting: Vec::new(),
            sync: Sync::new(id, sync_names, servers),
        }
    }

    pub fn position(&self) -> Lsn {
        self.log.len() as Lsn
    }

    pub fn is_primary(&self) -> bool {
        self.role == Role::Primary
    }

    pub fn takes_writes(&self) -> bool {
        self.power == Power::Up && self.is_primary() && !self.is_read_only
    }

    pub fn facts(&self, now: Ms) -> ServerFacts {
        let recovery = match self.role {
            Role::Primary => RecoveryState::Primary,
            Role::Standby { upstream } => RecoveryState::Standby {
                upstream,
                stream: match self.heard.at {
                    Some(at) if upstream.is_some() => WalReceiverState::On { silent_ms: now - at },
                    _ => WalReceiverState::Off,
                },
            },
        };
        let follower =
            |(node, flushed): (&NodeId, &Lsn)| StreamingFollower { node: Some(*node), is_streaming: true, flushed: *flushed };
        ServerFacts {
            history: self.history.clone(),
            recovery,
            position: self.position(),
            replayed: self.heard.stands_at.unwrap_or(Lsn::MAX).min(self.position()),
            started_at: self.started_at,
            mark: self.mark,
            numbers: self.numbers.promotion,
            is_read_only: self.is_read_only,
            sync_names: self.is_primary().then(|| self.sync.names.clone()),
            followers: self.flushed.iter().map(follower).collect(),
            received: ReceivedWal::All,
        }
    }

    /// Begins a transaction that writes: gives it a number.
    pub fn give_number(&mut self, row: Option<u8>) -> u64 {
        let number = self.numbers.next;
        self.numbers.next += 1;
        self.numbers.open.insert(number, row);
        number
    }

    /// The open transaction that has changed a row.
    pub fn holder(&self, row: u8) -> Option<u64> {
        self.numbers.open.iter().find(|(_, held)| **held == Some(row)).map(|(number, _)| *number)
    }

    pub fn is_open(&self, number: u64) -> bool {
        self.numbers.open.contains_key(&number)
    }

    pub fn roll_back(&mut self, number: u64) {
        self.numbers.open.remove(&number);
    }

    /// Takes the commit of a write, of the transaction that has this number or of a new one.
    pub fn append(&mut self, write: WriteId, number: Option<u64>, row: Option<u8>) {
        let number = number.unwrap_or_else(|| self.give_number(None));
        self.numbers.open.remove(&number);
        self.log(Logged { write, number, row });
        self.waiting.push((self.position(), write));
    }

    /// Writes a record.
    pub fn log(&mut self, logged: Logged) {
        self.log.push(logged);
        self.take_in(logged);
    }

    fn take_in(&mut self, logged: Logged) {
        self.numbers.above = self.numbers.above.max(logged.number + 1);
        if let Some(row) = logged.row {
            self.versions[usize::from(row)] += 1;
        }
    }

    /// Transactions that are open end.
    pub fn end_open(&mut self) {
        self.waiting.clear();
        self.numbers.open.clear();
    }

    /// The fate of a number, as `txid_status` tells it, and where its commit ends.
    pub fn status(&self, number: u64) -> (XidStatus, Lsn) {
        if number >= self.numbers.next {
            return (XidStatus::Future, 0);
        }
        if self.is_open(number) {
            return (XidStatus::InProgress, 0);
        }
        match self.log.iter().rposition(|logged| logged.number == number) {
            Some(at) => (XidStatus::Committed, at as Lsn + 1),
            None => (XidStatus::Aborted, 0),
        }
    }

    /// Commits that may be acknowledged now.
    pub fn acknowledged(&mut self) -> Vec<WriteId> {
        if self.waiting.is_empty() {
            return Vec::new();
        }
        let reach = self.reach();
        self.waiting.extract_if(.., |(end, _)| *end <= reach).map(|(_, write)| write).collect()
    }

    /// The end of the log that enough standbys have.
    pub fn reach(&self) -> Lsn {
        let Some(who) = &self.sync.acknowledgers else { return Lsn::MAX };
        let mut flushed: Vec<Lsn> = self.flushed.iter().filter(|(id, _)| who.nodes.contains(id)).map(|(_, lsn)| *lsn).collect();
        flushed.sort_unstable_by(|a, b| b.cmp(a));
        flushed.get(who.acks - 1).copied().unwrap_or(0)
    }

    /// True if it can stream from `upstream`, which compares timelines and positions, and no log.
    pub fn can_follow(&self, upstream: &Server) -> bool {
        let relation = self.history.relation(self.position(), &upstream.history);
        matches!(relation, WalRelation::Holds(_)) && self.log.len() <= upstream.log.len()
    }

    /// True if its log is the begin of that one's.
    pub fn is_begin_of(&self, upstream: &Server) -> bool {
        self.can_follow(upstream) && self.log.last() == upstream.log[..self.log.len()].last()
    }

    /// Takes in a piece of the upstream's log, and its history as far as the log now reaches: the piece may end before the upstream's
    /// last timeline begins.
    pub fn receive(&mut self, log: &[Logged], history: &TimelineHistory) {
        self.log.extend_from_slice(log);
        log.iter().for_each(|logged| self.take_in(*logged));
        let reached = history.switches.iter().take_while(|(_, end)| *end <= self.position()).count();
        if reached == history.switches.len() {
            self.history = history.clone();
        } else {
            let timeline = history.switches[reached].0;
            self.history = TimelineHistory {
                system: SYSTEM,
                timeline,
                switches: history.switches[..reached].to_vec(),
                ..TimelineHistory::default()
            };
        }
    }

    pub fn pledge(&mut self, ballot: Ballot, cuts: bool, now: Ms) -> PledgeReply {
        let Some(mark) = self.mark.pledge(ballot) else { return PledgeReply::Refused { mark: self.mark } };
        self.mark = mark;
        if cuts && !self.is_primary() {
            self.role = Role::Standby { upstream: None };
            self.heard.at = None;
        }
        PledgeReply::Given { facts: self.facts(now) }
    }

    pub fn repoint(&mut self, vote: Vote, numbers: Option<Promotion>) -> VoteAnswer {
        let Some(mark) = self.mark.cast(vote) else { return VoteAnswer::Refused { mark: self.mark } };
        self.mark = mark;
        if vote.epoch.node == self.id {
            self.numbers.promotion = numbers.or(self.numbers.promotion);
        }
        if let Role::Standby { upstream } = self.role
            && vote.epoch.node != self.id
            && upstream != Some(vote.epoch.node)
        {
            self.role = Role::Standby { upstream: Some(vote.epoch.node) };
            self.heard.at = None;
        }
        VoteAnswer::Yes
    }

    /// Points a standby at the primary, unless it has promised more. Its mark stays.
    pub fn point(&mut self, primary: NodeId, ballot: Ballot) -> Done {
        if self.mark.promised > ballot || self.is_primary() {
            return Done::No;
        }
        if self.role != (Role::Standby { upstream: Some(primary) }) {
            self.role = Role::Standby { upstream: Some(primary) };
            self.heard.at = None;
        }
        Done::Yes
    }

    /// Becomes a primary.
    pub fn promote(&mut self, reign: u64) {
        if self.is_primary() {
            return;
        }
        let end = self.position();
        self.history.switches.push((self.history.timeline, end));
        self.history.timeline += 1;
        self.role = Role::Primary;
        self.numbers.next = self.numbers.above;
        self.reign = reign;
        self.heard.at = None;
        self.flushed.clear();
    }

    /// Makes the checkpoint at the end of a recovery.
    pub fn checkpoint(&mut self, now: Ms) {
        (self.numbers.clock.checkpoint_at, self.numbers.clock.checkpoint_number) = (now, self.numbers.next);
    }

    /// Ends all its connections.
    pub fn drop_connections(&mut self) {
        self.end_open();
        self.numbers.next = self.numbers.above;
        self.flushed.clear();
        self.heard.at = None;
        self.incarnation += 1;
    }

    /// Made a standby by the operator with the log that it has.
    pub fn follow_as_it_is(&mut self, primary: NodeId) {
        self.role = Role::Standby { upstream: Some(primary) };
        self.is_read_only = false;
        self.drop_connections();
        self.started_at += 1;
    }

    /// Made anew by the operator as a copy of `source`.
    pub fn copy(&mut self, source: &Server) {
        self.log.clone_from(&source.log);
        self.versions = source.versions;
        self.numbers.above = source.numbers.above;
        self.history.clone_from(&source.history);
        self.numbers.promotion = source.numbers.promotion;
        self.role = Role::Standby { upstream: Some(source.id) };
        self.drop_connections();
    }
}
