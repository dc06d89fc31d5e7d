//! Explores all orders of commits, their acknowledgements, rounds of positions, replay and reads: no read that is sent behind an acknowledgement is
//! answered by a standby that lacks the change. With any one rule left out, some order gives such an answer.
//!
//! The proxy's side is `Versions`, `TableChanges`, `Positions`, `Board`, `Doubts`, `Seen` and `Standing` themselves. The servers, and who calls these when,
//! are modelled here: `query_cache::writes` for a writer, `begin_read` and `may_follow` for a reader, `node_monitor` for the rounds.

use super::{Shown, Standing};
use crate::causal::by_table::{last_change, slots_of};
use crate::causal::positions::Positions;
use crate::causal::standbys::{Board, Covers, Doubts, Era, Lag, Life, Mark, Replayed, Seen, Word};
use crate::table_changes::{Raised, TableChanges};
use std::cell::Cell;
use std::collections::{HashSet, VecDeque};
use std::hash::BuildHasher;
use std::sync::Arc;
use weir_cache::{Outcome, Slot, Versions};
use weir_failover::cluster::Role;

/// A rule left out, to see that the search would find it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Without {
    Nothing,
    /// A change is covered by the round after the last one begun.
    NextRound,
    /// That round is looked at when the server has told of the commit.
    RoundAfterCommit,
    /// The client hears of a commit when its change is noted.
    NoteBeforeTold,
    /// A round begins before the primary is asked.
    BeginBeforeAsk,
    /// A standby covers what it has replayed, not what it has received.
    Replayed,
    /// A change of a table is one of its database, for reads of nobody knows what.
    Fold,
    /// A read of a table shows changes of nobody knows what.
    DatabaseOfTable,
    /// The reads of a transaction with one snapshot show anything.
    Snapshot,
    /// A read on a standby that is held is looked at, too.
    Follow,
    /// A server connection vouches only for the server's process that was asked.
    LifeOfConn,
    /// With the connection to a standby ends all that it said.
    LifeEnds,
    /// Positions count on one timeline.
    Timeline,
    /// A commit that is found to have come after the loss of its connection is noted.
    FoundCommit,
    /// When changes begin to be noted, a round covers all earlier ones.
    EarlierWrites,
    /// A writer that was under way then says so when it ends.
    WriterUnderWay,
}

/// Events that may happen besides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trouble {
    None,
    /// The standby ends and starts anew, and shows an older state than before.
    Restart,
    /// Another standby becomes the primary, and may lack the last commits.
    Promotion,
    /// Writers lose their connections, and are told later if they have committed.
    Losses,
    /// Changes are noted from the first read on.
    LateStart,
}

/// The part that is explored.
#[derive(Clone, Copy, Debug)]
struct Plan<'a> {
    read: Read,
    trouble: Trouble,
    /// The writers that write.
    writers: &'a [usize],
    without: Without,
}

/// Writes to a table that is known.
const TO_TABLE: usize = 0;
/// Writes to nobody knows what.
const TO_ANYTHING: usize = 1;
/// Has written something before, of which the proxy knows nothing. A new primary may lack that.
const STRANGER: usize = 2;

/// The way of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Read {
    Table,
    /// Nobody knows what it shows.
    Anything,
    /// On the standby that another read holds.
    Behind,
    /// As the second read of a transaction with one snapshot, of which only the first one is known when the standby is chosen.
    InSnapshot,
}

const DATABASE: &str = "d";
/// Tables by oid: the one that is written and read, and another.
const TABLE: u32 = 1;
const OTHER: u32 = 2;
/// With fewer, databases have no slots apart from that of all.
const SLOTS: usize = 128;
const PRIMARY: u16 = 0;
const STANDBY: u16 = 1;
/// The standby that becomes the primary. Nobody reads from it before.
const NEXT: u16 = 2;
const ROUNDS_MAX: u64 = 2;
/// Questions to the standby.
const LOOKS_MAX: u64 = 2;

/// Progress of a writer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum Stage {
    #[default]
    Idle,
    /// Its COMMIT is sent.
    Sent,
    /// Its commit stands in the log, and others see it on the primary.
    Committed,
    /// The answer has come, with this as the next round.
    Answered(u64),
    /// That is noted, and its client has heard of the commit.
    Told,
    /// Its connection is gone, and its server process may not know.
    Lost,
    /// ... and has committed.
    LostCommitted,
    /// That was found, with this as the next round.
    Found(u64),
    Failed,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Writer {
    stage: Stage,
    /// The server that it writes on.
    node: u16,
    /// The round that would be noted without the rule that says when it is looked at.
    early_round: u64,
    slots: Vec<Slot>,
    is_tracked: bool,
}

/// A server connection of the reader to the standby.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Conn {
    opened_us: u64,
    /// The life of the standby that it is known to be one to.
    life: Life,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Reader {
    Idle,
    /// Its statement was sent behind these acknowledgements; the answer must show all that `must_show` says.
    Begun {
        owed: Vec<usize>,
        must_show: Seen,
    },
    /// It holds the standby by a read that is answered.
    Holds,
    /// Its answer shows so many records of the log.
    Answered {
        owed: Vec<usize>,
    },
}

/// The proxy's own connection to the standby, over which it asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Watch {
    None,
    Open,
    /// The server process at its end is gone, which the proxy has not noticed.
    Broken,
}

/// A question on its way.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Question {
    node: u16,
    round: u64,
    asked_us: u64,
    /// The server's answer: timeline and position.
    said: Option<(u32, u64)>,
}

/// The writers in the order of their commits.
type Log = Vec<usize>;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Servers {
    log: Log,
    /// The log of the second timeline.
    log_2: Option<Log>,
    /// Records that the standby has replayed, and of which timeline.
    replayed: usize,
    timeline: u32,
    has_restarted: bool,
}

/// The state of the proxy's types; see `World::with`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Known {
    view: u16,
    round: u64,
    life: Life,
    covers: Covers,
    /// When the last question to the standby was sent that was answered.
    asked_us: u64,
    board: Board,
    doubts: Doubts,
    /// Of all databases, of this one, and of the table.
    slots: [Slot; 3],
    told: [u64; 3],
    last: u64,
    tracks: bool,
}

/// All there is; copied for every step tried.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct World {
    servers: Servers,
    known: Known,
    of_primary: Option<Question>,
    of_standby: Option<Question>,
    watch: Watch,
    looks: u64,
    writers: [Writer; 2],
    conn: Option<Conn>,
    reader: Reader,
}

/// The proxy's knowledge, as its own types.
struct Proxy<'a> {
    positions: &'a Positions,
    changes: &'a Arc<TableChanges>,
}

impl World {
    fn begin(plan: &Plan<'_>) -> World {
        // A server connection that is opened later is of use only behind a restart.
        let versions = Versions::new(SLOTS);
        let slots = [versions.of_all(), versions.of_database(DATABASE), versions.of_table(DATABASE, TABLE)];
        let conn = (plan.trouble != Trouble::Restart).then_some(Conn { opened_us: 1, life: 0 });
        let log = if plan.trouble == Trouble::Promotion { vec![STRANGER] } else { Log::new() };
        let known = Known {
            view: PRIMARY,
            round: 0,
            life: 0,
            covers: Covers::default(),
            asked_us: 0,
            board: Board::default(),
            doubts: Doubts::default(),
            slots,
            told: [0; 3],
            last: 0,
            tracks: plan.trouble != Trouble::LateStart,
        };
        World {
            servers: Servers { log, log_2: None, replayed: 0, timeline: 1, has_restarted: false },
            known,
            of_primary: None,
            of_standby: None,
            watch: Watch::None,
            looks: 0,
            writers: Default::default(),
            conn,
            reader: Reader::Idle,
        }
    }

    /// Does something with the positions.
    fn with_positions<T>(&mut self, act: impl FnOnce(&mut World, &Positions) -> T) -> T {
        let positions = Positions::of_nodes(2);
        (0..self.known.life).for_each(|_| _ = positions.begin_life(STANDBY));
        (0..self.known.round).for_each(|_| _ = positions.begin_round());
        positions.answered(STANDBY, self.known.asked_us);
        positions.publish(STANDBY, Mark { covers: self.known.covers, lag: Lag::Nothing }, 0);
        let result = act(self, &positions);
        (self.known.round, self.known.asked_us) = (positions.round(), positions.asked_us(STANDBY));
        (self.known.life, self.known.covers) = positions.standing(STANDBY);
        result
    }

    /// Does something with all that the proxy knows.
    fn with<T>(&mut self, act: impl FnOnce(&mut World, &Proxy<'_>) -> T) -> T {
        self.with_positions(|world, positions| {
            let changes = &Arc::new(TableChanges::with_slots(SLOTS, world.known.tracks));
            let versions = &changes.versions;
            let [_, database, _] = world.known.slots;
            for (slot, round) in world.known.slots.iter().zip(world.known.told) {
                versions.note_told(&[*slot], round);
            }
            versions.note_last(database, world.known.last);
            let result = act(world, &Proxy { positions, changes });
            world.known.told = world.known.slots.map(|slot| versions.round_to_show(&[slot]));
            (world.known.last, world.known.tracks) = (versions.last_of(database), changes.are_tracked());
            result
        })
    }

    fn with_servers(&self, servers: Servers) -> World {
        World { servers, ..self.clone() }
    }

    /// The log that counts: that of the server that takes writes.
    fn history(&self) -> &Log {
        self.servers.log_2.as_ref().unwrap_or(&self.servers.log)
    }

    /// The log that the standby replays.
    fn followed(&self) -> &Log {
        self.servers.log_2.as_ref().filter(|_| self.servers.timeline == 2).unwrap_or(&self.servers.log)
    }

    fn next(&self, plan: &Plan<'_>) -> Vec<World> {
        let mut next = Vec::new();
        for at in plan.writers {
            self.write(*at, plan, &mut next);
        }
        next.extend(self.ask_primary(plan.without));
        next.extend(self.ask_standby(plan));
        self.replay(plan, &mut next);
        match plan.trouble {
            Trouble::Promotion => self.promote(&mut next),
            Trouble::LateStart if !self.known.tracks => {
                let mut world = self.clone();
                world.with(|_, proxy| track(proxy, plan.without));
                next.push(world);
            }
            Trouble::None | Trouble::Restart | Trouble::Losses | Trouble::LateStart => {}
        }
        next.extend(self.read(plan));
        next
    }

    /// A writer notes its change, the server commits, the proxy notes the round, and the client hears of it.
    fn write(&self, at: usize, plan: &Plan<'_>, next: &mut Vec<World>) {
        let without = plan.without;
        let is_served = self.writers[at].node == NEXT || self.servers.log_2.is_none();
        let mut step = |act: &dyn Fn(&mut World, &Proxy<'_>) -> Stage| {
            let mut world = self.clone();
            world.writers[at].stage = world.with(|world, proxy| act(world, proxy));
            next.push(world);
        };
        match self.writers[at].stage {
            Stage::Idle => step(&|world, proxy| {
                let (view, tracks) = (world.known.view, world.known.tracks);
                let [_, database, table] = world.known.slots;
                // The first writes to a table, and nobody knows what the second one writes to.
                let slots = if !tracks { Vec::new() } else { vec![[table, database][at]] };
                let early_round = if without == Without::RoundAfterCommit { proxy.positions.next_round() } else { 0 };
                world.writers[at] = Writer { stage: Stage::Sent, node: view, early_round, slots, is_tracked: tracks };
                Stage::Sent
            }),
            Stage::Sent | Stage::Lost => {
                if is_served {
                    let then = if self.writers[at].stage == Stage::Sent { Stage::Committed } else { Stage::LostCommitted };
                    step(&|world, _| {
                        world.servers.log_2.as_mut().unwrap_or(&mut world.servers.log).push(at);
                        then
                    });
                }
            }
            Stage::Committed => step(&|world, proxy| {
                let round = match without {
                    Without::RoundAfterCommit => world.writers[at].early_round,
                    Without::NextRound => proxy.positions.round(),
                    _ => proxy.positions.next_round(),
                };
                Stage::Answered(round)
            }),
            Stage::Answered(round) => {
                step(&|world, proxy| {
                    world.acknowledge(at, round, proxy, without);
                    Stage::Told
                });
                if without == Without::NoteBeforeTold {
                    step(&|_, _| Stage::Told);
                }
            }
            Stage::LostCommitted => step(&|_, proxy| Stage::Found(proxy.positions.next_round())),
            Stage::Found(round) => step(&|_, proxy| {
                if without != Without::FoundCommit {
                    proxy.changes.note_all_told(round);
                }
                Stage::Told
            }),
            Stage::Told | Stage::Failed => {}
        }
        let is_under_way = matches!(self.writers[at].stage, Stage::Sent | Stage::Committed);
        if is_under_way && plan.trouble == Trouble::Losses {
            let is_committed = self.writers[at].stage == Stage::Committed;
            step(&|_, _| if is_committed { Stage::LostCommitted } else { Stage::Lost });
        }
        // The answer of a server that is gone may still lie in a buffer.
        if is_under_way && !is_served {
            step(&|_, _| Stage::Failed);
        }
    }

    /// `query_cache::writes::settle`.
    fn acknowledge(&mut self, at: usize, round: u64, proxy: &Proxy<'_>, without: Without) {
        let (changes, writer) = (proxy.changes, &self.writers[at]);
        if !writer.is_tracked && changes.are_tracked() && without != Without::WriterUnderWay {
            changes.note_all_told(round);
        }
        if without == Without::Fold {
            return changes.versions.note_told(&writer.slots, round);
        }
        let mut raised = Raised::none(Arc::clone(changes), DATABASE.into(), writer.node, 1);
        raised.add(&writer.slots);
        raised.settle(Outcome::Committed { round });
    }

    /// A round begins, the primary answers, its answer arrives.
    fn ask_primary(&self, without: Without) -> Option<World> {
        let mut world = self.clone();
        match self.of_primary.clone() {
            None if self.known.round < ROUNDS_MAX => world.with_positions(|world, positions| {
                let begins = without != Without::BeginBeforeAsk;
                let round = if begins { positions.begin_round() } else { positions.next_round() };
                world.of_primary = Some(Question { node: world.known.view, round, asked_us: 0, said: None });
            }),
            None => return None,
            Some(question @ Question { said: None, .. }) => {
                let is_gone = question.node == PRIMARY && self.servers.log_2.is_some();
                let said = (if question.node == PRIMARY { 1 } else { 2 }, self.history().len() as u64);
                world.of_primary = if is_gone { None } else { Some(Question { said: Some(said), ..question }) };
            }
            Some(Question { node, round, said: Some((timeline, position)), .. }) => {
                world.of_primary = None;
                let role = if world.known.view == node { Role::Primary } else { Role::Standby };
                if without == Without::BeginBeforeAsk {
                    world.with_positions(|_, positions| _ = positions.begin_round());
                }
                let word = world.known.doubts.said(node, Role::Primary, Some(role), false);
                if word == Word::Agrees && world.known.doubts.is_empty() {
                    let era = Era { primary: (node, 1), system: 1, timeline };
                    world.known.board.primary_said(era, round, position, position, 0);
                    world.publish();
                }
            }
        }
        Some(world)
    }

    /// The standby is asked, it answers, its answer arrives.
    fn ask_standby(&self, plan: &Plan<'_>) -> Option<World> {
        let without = plan.without;
        let mut world = self.clone();
        match self.of_standby.clone() {
            None if self.looks < LOOKS_MAX && self.watch != Watch::Broken => world.with_positions(|world, positions| {
                if world.watch == Watch::None && (without != Without::LifeEnds || world.known.life == 0) {
                    positions.begin_life(STANDBY);
                }
                world.watch = Watch::Open;
                world.looks += 1;
                let asked_us = 2 * world.looks;
                world.of_standby = Some(Question { node: STANDBY, round: 0, asked_us, said: None });
            }),
            None => return None,
            Some(Question { said: None, .. }) if self.watch == Watch::Broken => return None,
            Some(question @ Question { said: None, .. }) => {
                let is_received = without == Without::Replayed;
                let position = if is_received { self.followed().len() } else { self.servers.replayed };
                world.of_standby = Some(Question { said: Some((self.servers.timeline, position as u64)), ..question });
            }
            Some(Question { asked_us, said: Some((timeline, position)), .. }) => {
                world.of_standby = None;
                let timeline = if without == Without::Timeline && self.known.view == NEXT { 2 } else { timeline };
                world.with_positions(|_, positions| positions.answered(STANDBY, asked_us));
                let word = world.known.doubts.said(STANDBY, Role::Standby, Some(Role::Standby), true);
                if word == Word::Agrees {
                    world.known.board.standby_said(STANDBY, Replayed { system: 1, timeline: Some(timeline), position });
                    world.publish();
                }
            }
        }
        Some(world)
    }

    fn publish(&mut self) {
        self.with_positions(|world, positions| _ = positions.publish(STANDBY, world.known.board.mark(STANDBY), 0));
    }

    /// The standby replays a record, follows another timeline, or starts anew.
    fn replay(&self, plan: &Plan<'_>, next: &mut Vec<World>) {
        if self.servers.replayed < self.followed().len() {
            next.push(self.with_servers(Servers { replayed: self.servers.replayed + 1, ..self.servers.clone() }));
        }
        let may_follow = |log: &Log| self.servers.timeline == 1 && log.starts_with(&self.servers.log[..self.servers.replayed]);
        if self.servers.log_2.as_ref().is_some_and(may_follow) {
            next.push(self.with_servers(Servers { timeline: 2, ..self.servers.clone() }));
        }
        if plan.trouble == Trouble::Restart && !self.servers.has_restarted {
            for replayed in 0..=self.servers.replayed {
                let watch = if self.watch == Watch::None { Watch::None } else { Watch::Broken };
                let servers = Servers { replayed, has_restarted: true, ..self.servers.clone() };
                let mut world = World { servers, watch, conn: None, ..self.clone() };
                if matches!(world.reader, Reader::Holds) {
                    world.reader = Reader::Idle;
                }
                next.push(world);
            }
        }
        // The proxy notices that.
        if self.watch == Watch::Broken {
            let mut world = World { watch: Watch::None, of_standby: None, ..self.clone() };
            if plan.without != Without::LifeEnds {
                world.known.board.lost(STANDBY);
                world.with_positions(|_, positions| positions.end_life(STANDBY));
            }
            next.push(world);
        }
    }

    /// Another server becomes the primary, and the view shows that.
    fn promote(&self, next: &mut Vec<World>) {
        match self.servers.log_2 {
            None => {
                let logs = (0..=self.servers.log.len()).map(|count| self.servers.log[..count].to_vec());
                next.extend(logs.map(|log| self.with_servers(Servers { log_2: Some(log), ..self.servers.clone() })));
            }
            Some(_) if self.known.view == PRIMARY => {
                let known = Known { view: NEXT, doubts: Doubts::default(), ..self.known.clone() };
                next.push(World { known, ..self.clone() });
            }
            Some(_) => {}
        }
    }

    /// A reader opens a server connection, looks what its read must show, and is answered by the standby if that may be.
    fn read(&self, plan: &Plan<'_>) -> Option<World> {
        let without = plan.without;
        let mut world = self.clone();
        if self.conn.is_none() {
            world.conn = Some(Conn { opened_us: 2 * self.looks + 1, life: 0 });
            return Some(world);
        }
        let told: Vec<usize> = (0..self.writers.len()).filter(|at| self.writers[*at].stage == Stage::Told).collect();
        let begins = matches!(self.reader, Reader::Idle) && plan.read == Read::Behind;
        if told.is_empty() && !begins && !matches!(self.reader, Reader::Begun { .. }) {
            // Any answer would do.
            return None;
        }
        match &self.reader {
            Reader::Idle => world.with(|world, proxy| {
                world.reader = Reader::Begun { owed: told, must_show: must_show(proxy, plan) };
            }),
            Reader::Begun { owed, must_show } => {
                if world.with_positions(|world, positions| world.standing(positions, without).shown(must_show)) != Shown::All {
                    return None;
                }
                world.reader = match plan.read {
                    Read::Behind => Reader::Holds,
                    Read::Table | Read::Anything | Read::InSnapshot => Reader::Answered { owed: owed.clone() },
                };
            }
            Reader::Holds => {
                let follows = world.with(|world, proxy| {
                    let change = change_of(proxy, Some(&[TABLE]), without);
                    change == 0 || without == Without::Follow || world.standing(proxy.positions, without).reaches(change)
                });
                if !follows {
                    return None;
                }
                world.reader = Reader::Answered { owed: told };
            }
            Reader::Answered { .. } => return None,
        }
        Some(world)
    }

    /// The standby at the other end of the reader's server connection.
    fn standing(&mut self, positions: &Positions, without: Without) -> Standing {
        let conn = self.conn.as_mut().unwrap();
        let life = Cell::new(conn.life);
        let standing = Standing::of(positions, STANDBY, conn.opened_us, &life);
        conn.life = life.get();
        Standing { is_proven: standing.is_proven || without == Without::LifeOfConn, ..standing }
    }

    /// True if the standby has given an answer that lacks a change of the history whose acknowledgement came before.
    fn is_wrong(&self) -> bool {
        let Reader::Answered { owed } = &self.reader else { return false };
        let shown = &self.followed()[..self.servers.replayed];
        owed.iter().any(|writer| self.history().contains(writer) && !shown.contains(writer))
    }
}

/// A read wants to know of changes.
fn track(proxy: &Proxy<'_>, without: Without) {
    proxy.changes.track(|| if without == Without::EarlierWrites { 0 } else { proxy.positions.next_round() });
}

/// `begin_read` of a session that has seen nothing.
fn must_show(proxy: &Proxy<'_>, plan: &Plan<'_>) -> Seen {
    track(proxy, plan.without);
    let tables = match plan.read {
        Read::Table => Some(&[TABLE]),
        Read::Behind => Some(&[OTHER]),
        Read::InSnapshot if plan.without == Without::Snapshot => Some(&[OTHER]),
        Read::Anything | Read::InSnapshot => None,
    };
    let mut must_show = Seen::default();
    must_show.heard_primary(change_of(proxy, tables.map(|tables| &tables[..]), plan.without));
    must_show
}

/// The round that covers the last change of these tables; `None`: of anything.
fn change_of(proxy: &Proxy<'_>, tables: Option<&[u32]>, without: Without) -> u64 {
    let versions = &proxy.changes.versions;
    let slots = tables.map(|tables| match without {
        Without::DatabaseOfTable => tables.iter().map(|oid| versions.of_table(DATABASE, *oid)).collect(),
        _ => slots_of(versions, DATABASE, tables),
    });
    last_change(versions, versions.of_database(DATABASE), slots.as_deref()).round
}

/// Findings of an exploration.
#[derive(Debug, Default)]
struct Found {
    worlds: usize,
    /// Answers of the standby that show all that they must.
    right: usize,
    wrong: Option<World>,
}

/// Walks over all worlds there may be, those of few steps first, until one is wrong.
fn explore(plan: &Plan<'_>) -> Found {
    // Worlds by their hashes alone: of some 100,000 no two have the same, but once in a thousand million runs.
    let (hasher, mut seen) = (foldhash::fast::FixedState::default(), HashSet::new());
    let mut open = VecDeque::from([World::begin(plan)]);
    let mut found = Found::default();
    while let Some(world) = open.pop_front() {
        for next in world.next(plan) {
            if next.is_wrong() {
                return Found { wrong: Some(next), ..found };
            }
            // Nothing behind the answer matters.
            if matches!(next.reader, Reader::Answered { .. }) {
                found.right += 1;
            } else if seen.insert(hasher.hash_one(&next)) {
                open.push_back(next);
                found.worlds += 1;
            }
        }
    }
    found
}

fn check_no_answer_is_wrong(read: Read, trouble: Trouble, writers: &[usize]) {
    let plan = Plan { read, trouble, writers, without: Without::Nothing };
    let Found { worlds, right, wrong } = explore(&plan);
    assert_eq!(wrong, None, "{plan:?}");
    assert!(worlds > 1000 && right > 10, "{right} answers in {worlds} worlds show little: {plan:?}");
}

#[test]
fn no_order_of_steps_lets_a_standby_answer_without_a_change_that_was_acknowledged() {
    for read in [Read::Table, Read::Anything, Read::Behind, Read::InSnapshot] {
        check_no_answer_is_wrong(read, Trouble::None, &[TO_TABLE]);
        check_no_answer_is_wrong(read, Trouble::None, &[TO_ANYTHING]);
    }
    check_no_answer_is_wrong(Read::Table, Trouble::None, &[TO_TABLE, TO_ANYTHING]);
}

#[test]
fn neither_does_any_order_with_a_restart_a_promotion_a_lost_connection_or_a_late_start() {
    for trouble in [Trouble::Restart, Trouble::Losses, Trouble::LateStart] {
        check_no_answer_is_wrong(Read::Table, trouble, &[TO_TABLE]);
        check_no_answer_is_wrong(Read::Behind, trouble, &[TO_TABLE]);
    }
    check_no_answer_is_wrong(Read::Table, Trouble::Promotion, &[TO_TABLE]);
}

#[test]
fn every_rule_is_needed() {
    for (without, read, trouble, writer) in [
        (Without::NextRound, Read::Table, Trouble::None, TO_TABLE),
        (Without::RoundAfterCommit, Read::Table, Trouble::None, TO_TABLE),
        (Without::NoteBeforeTold, Read::Table, Trouble::None, TO_TABLE),
        (Without::BeginBeforeAsk, Read::Table, Trouble::None, TO_TABLE),
        (Without::Replayed, Read::Table, Trouble::None, TO_TABLE),
        (Without::Fold, Read::Anything, Trouble::None, TO_TABLE),
        (Without::DatabaseOfTable, Read::Table, Trouble::None, TO_ANYTHING),
        (Without::Snapshot, Read::InSnapshot, Trouble::None, TO_TABLE),
        (Without::Follow, Read::Behind, Trouble::None, TO_TABLE),
        (Without::LifeOfConn, Read::Table, Trouble::Restart, TO_TABLE),
        (Without::LifeEnds, Read::Table, Trouble::Restart, TO_TABLE),
        (Without::Timeline, Read::Table, Trouble::Promotion, TO_TABLE),
        (Without::FoundCommit, Read::Table, Trouble::Losses, TO_TABLE),
        (Without::EarlierWrites, Read::Table, Trouble::LateStart, TO_TABLE),
        (Without::WriterUnderWay, Read::Table, Trouble::LateStart, TO_TABLE),
    ] {
        let found = explore(&Plan { read, trouble, writers: &[writer], without });
        assert!(found.wrong.is_some(), "nothing goes wrong without {without:?} in {} worlds", found.worlds);
    }
}
