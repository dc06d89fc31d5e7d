//! Clients that write through Weirs, and standbys that stream.

use weir_failover::{Lsn, Ms, NodeId, ServerConnEnd, TimelineHistory};

use crate::kinds::GroupPart;
use crate::oracle::{Path, Run, Transaction, Write};
use crate::server::{Logged, Power, ROWS, Role, WriteId};
use crate::world::{Due, World};

/// A message between servers.
#[derive(Debug)]
pub enum Packet {
    /// Part of a log, from a position on.
    Log { from: NodeId, to: NodeId, incarnation: u64, begin: Lsn, piece: Box<LogPiece> },
    /// A standby says how far it flushed.
    Flushed { from: NodeId, to: NodeId, incarnation: u64, end: Lsn },
}

#[derive(Debug)]
pub struct LogPiece {
    log: Vec<Logged>,
    history: TimelineHistory,
}

/// Time a client waits for an answer.
const CLIENT_MS: Ms = 8_000;
/// Writes of a hundred that are transactions of several statements.
const TRANSACTIONS: u64 = 15;

impl World {
    /// A client writes if its Weir lets it.
    pub(crate) fn client(&mut self, weir: usize) {
        if self.is_over(weir) {
            return;
        }
        let pause = self.dice.within(20, 150);
        self.later(pause, Due::Client { weir });
        let transaction = if self.dice.percent(TRANSACTIONS) { Transaction::Begun } else { Transaction::None };
        self.send_write(weir, transaction, None);
    }

    /// Sends a write, or the first one of a transaction: perhaps one that runs again.
    pub(crate) fn send_write(&mut self, weir: usize, transaction: Transaction, again: Option<WriteId>) {
        let Some((node, started_at)) = self.weirs[weir].gate() else { return };
        let connection = self.weirs[weir].connections.get(&node).copied();
        let write = self.writes.len() as WriteId;
        let life = self.weirs[weir].life;
        let row = match (transaction, again) {
            (Transaction::None, _) => None,
            (_, Some(root)) => self.row(root),
            (_, None) => Some(self.dice.below(ROWS as u64) as u8),
        };
        let run = Run { again, row, ..Run::default() };
        let sent_at = self.now;
        self.writes.push(Write { weir, life, node, started_at, transaction, run, sent_at, ..Write::default() });
        self.weirs[weir].writes.insert(write);
        let delay = self.delay();
        self.later(delay, Due::Write { write, connection });
        self.later(CLIENT_MS, Due::GivenUp { write });
    }

    /// A writer past all Weirs uses any server that takes writes. Synchronous standbys protect its acknowledged writes, too.
    pub(crate) fn direct(&mut self) {
        let pause = self.dice.within(20, 200);
        self.later(pause, Due::Direct);
        let open: Vec<NodeId> = self.servers.iter().filter(|server| server.takes_writes()).map(|server| server.id).collect();
        if open.is_empty() {
            return;
        }
        let node = *self.dice.pick(&open);
        let write = self.writes.len() as WriteId;
        let server = &mut self.servers[usize::from(node)];
        server.append(write, None, None);
        let (reign, incarnation) = (server.reign, server.incarnation);
        let appended_at = self.now;
        self.writes.push(Write { path: Path::Direct, node, reign, incarnation, appended_at, ..Write::default() });
        self.acknowledge(node);
    }

    pub(crate) fn write(&mut self, write: WriteId, connection: Option<u64>) {
        let Write { weir, node, started_at, transaction, run, .. } = self.writes[write as usize];
        let at = usize::from(node);
        if !self.passes(self.end_of(weir), at) {
            return;
        }
        let server = &mut self.servers[at];
        let is_connected = connection.is_some_and(|connection| connection == server.incarnation);
        // A connection that is opened is checked to be to the right start of the server.
        let is_opened = connection.is_none() && started_at.is_none_or(|started_at| started_at == server.started_at);
        let is_there = match server.power {
            Power::Dark => return,
            // It lies in the socket until the server goes on.
            Power::Hung => return self.queues[at].push(Due::Write { write, connection }),
            Power::Stopped | Power::Starting | Power::Stopping => false,
            Power::Up => is_connected || is_opened,
        };
        if !is_there {
            // Nothing was sent over a connection that could not be opened: it waits at its Weir.
            self.writes[write as usize].run.is_unsent = connection.is_none();
            let delay = self.delay();
            return self.later(delay, Due::Failed { write, how: ServerConnEnd::Broken });
        }
        if !server.takes_writes() {
            // An error, and the connection stays.
            self.writes[write as usize].is_over = true;
            return;
        }
        let (reign, incarnation) = (server.reign, server.incarnation);
        let number = match transaction {
            Transaction::None => None,
            Transaction::Begun | Transaction::Open(_) => return self.begin(write),
            Transaction::Numbered(number) => Some(number.xid.get()),
        };
        if number.is_some_and(|number| !server.is_open(number)) {
            // Its session was ended.
            let delay = self.delay();
            return self.later(delay, Due::Failed { write, how: ServerConnEnd::Broken });
        }
        server.append(write, number, run.row);
        if number.is_some() {
            self.confirm(write);
        }
        let entry = &mut self.writes[write as usize];
        (entry.appended_at, entry.reign, entry.incarnation) = (self.now, reign, incarnation);
        self.acknowledge(node);
    }

    /// Answers those commits that enough standbys have.
    fn acknowledge(&mut self, node: NodeId) {
        let server = &mut self.servers[usize::from(node)];
        let incarnation = server.incarnation;
        for write in server.acknowledged() {
            let delay = self.delay();
            self.later(delay, Due::Acknowledged { write, incarnation });
        }
    }

    pub(crate) fn acknowledged(&mut self, write: WriteId, incarnation: u64) {
        let now = self.now;
        let entry = &mut self.writes[write as usize];
        if entry.path == Path::Direct {
            entry.acknowledged_at = Some(now);
            return;
        }
        let (weir, node) = (entry.weir, entry.node);
        if self.comes_too_late(write) {
            return;
        }
        let end = self.end_of(weir);
        let entry = &mut self.writes[write as usize];
        let is_open = self.weirs[weir].life == entry.life && self.weirs[weir].writes.remove(&write);
        if !is_open || entry.is_over || now < self.cuts[usize::from(node)][end] {
            return;
        }
        (entry.acknowledged_at, entry.is_over) = (Some(now), true);
        self.judge_success(weir, node);
        self.weirs[weir].last_ack_at = now;
        // A late answer does not bring an older connection back.
        let known = self.weirs[weir].connections.entry(node).or_insert(incarnation);
        *known = incarnation.max(*known);
        let opened = self.weirs[weir].opened_at.entry(node).or_insert((incarnation, now));
        if opened.0 < incarnation {
            *opened = (incarnation, now);
        }
    }

    /// True if what arrives from this node comes too late for the right to write to it.
    pub(crate) fn is_past_lease(&self, weir: usize, node: NodeId) -> bool {
        let Some(host) = &self.weirs[weir].host else { return false };
        let may_pass = host.may_acknowledge(self.now).is_some_and(|(_, open)| open == node);
        !may_pass && !self.leaves_out(GroupPart::LeaseAtSuccess)
    }

    /// An answer of a server after the lease: its connection counts as lost.
    pub(crate) fn comes_too_late(&mut self, write: WriteId) -> bool {
        let Write { weir, life, node, is_over, .. } = self.writes[write as usize];
        let is_open = !is_over && self.weirs[weir].life == life && self.weirs[weir].writes.contains(&write);
        if !is_open || !self.is_past_lease(weir, node) {
            return false;
        }
        self.counts.too_late += 1;
        self.weirs[weir].writes.remove(&write);
        self.weirs[weir].given_up += 1;
        self.weirs[weir].connections.remove(&node);
        self.doubt(write);
        true
    }

    pub(crate) fn write_failed(&mut self, write: WriteId, how: ServerConnEnd) {
        let entry = &mut self.writes[write as usize];
        let (weir, life, node) = (entry.weir, entry.life, entry.node);
        if entry.is_over || self.weirs[weir].life != life || !self.weirs[weir].writes.remove(&write) {
            return;
        }
        self.weirs[weir].given_up += usize::from(!entry.run.is_unsent);
        self.doubt(write);
        self.later(0, Due::Broken { weir, life, node, how });
    }

    /// Its client waits no longer. The connection is none the worse.
    pub(crate) fn give_up(&mut self, write: WriteId) {
        self.close(write);
        let entry = &mut self.writes[write as usize];
        entry.is_over = true;
        self.weirs[entry.weir].writes.remove(&write);
    }

    /// A standby asks its upstream for more.
    pub(crate) fn pull(&mut self, node: NodeId) {
        let pause = self.dice.within(5, 40);
        self.later(pause, Due::Pull { node });
        let standby = &self.servers[usize::from(node)];
        let Role::Standby { upstream: Some(from) } = standby.role else { return };
        if from == node || standby.power != Power::Up {
            return;
        }
        let source = &self.servers[usize::from(from)];
        let is_linked = self.passes(usize::from(from), usize::from(node)) && self.passes(usize::from(node), usize::from(from));
        if source.power != Power::Up || !is_linked || !standby.can_follow(source) {
            return;
        }
        if !standby.is_begin_of(source) {
            self.note_fork(node);
        }
        let (standby, source) = (&self.servers[usize::from(node)], &self.servers[usize::from(from)]);
        let (begin, end) = (standby.position(), source.position());
        let is_quiet = begin == end && standby.history == source.history && standby.heard.at.is_some();
        // Nothing new: it speaks now and then.
        if is_quiet && !self.dice.percent(5) {
            return;
        }
        let (standby, source) = (&self.servers[usize::from(node)], &self.servers[usize::from(from)]);
        let log = source.log[begin as usize..].to_vec();
        let (incarnation, piece) = (standby.incarnation, Box::new(LogPiece { log, history: source.history.clone() }));
        let delay = self.delay();
        self.later(delay, Due::Packet(Packet::Log { from, to: node, incarnation, begin, piece }));
    }

    pub(crate) fn packet(&mut self, packet: Packet) {
        match packet {
            Packet::Log { from, to, incarnation, begin, piece } => {
                let now = self.now;
                let is_linked = self.passes(usize::from(from), usize::from(to));
                let (source_incarnation, source) = {
                    let source = &self.servers[usize::from(from)];
                    (source.incarnation, source.power == Power::Up)
                };
                let standby = &mut self.servers[usize::from(to)];
                let is_same = standby.incarnation == incarnation && standby.position() == begin && standby.power == Power::Up;
                if !is_linked || !is_same || standby.role != (Role::Standby { upstream: Some(from) }) {
                    return;
                }
                standby.receive(&piece.log, &piece.history);
                if standby.heard.at.is_none_or(|at| at + 500 < now) {
                    standby.heard.from = now;
                }
                standby.heard.at = Some(now);
                let end = standby.position();
                if source {
                    let delay = self.delay();
                    let flushed = Packet::Flushed { from: to, to: from, incarnation: source_incarnation, end };
                    self.later(delay, Due::Packet(flushed));
                }
            }
            Packet::Flushed { from, to, incarnation, end } => {
                let is_linked = self.passes(usize::from(from), usize::from(to));
                let server = &mut self.servers[usize::from(to)];
                if !is_linked || server.incarnation != incarnation || server.power != Power::Up {
                    return;
                }
                let flushed = server.flushed.entry(from).or_insert(0);
                *flushed = end.max(*flushed);
                self.acknowledge(to);
            }
        }
    }
}
