//! Explores all orders of commits, their acknowledgements, rounds of positions, replay and reads: no read that is sent behind an acknowledgement is
//! answered by a standby that lacks the change. With any one rule left out, some order gives such an answer.
//!
//! The proxy's side is `TableVersions`, `TableChanges`, `ClusterPositions`, `PositionBoard`, `RoleDoubts`, `SeenRounds` and `StandbyFacts` themselves. The servers, and who calls these when,
//! are modelled here: `query_cache::writes` for a writer, `begin_read` and `may_follow` for a reader, `node_monitor` for the rounds.

use super::{StandbyCoverage, StandbyFacts};
use crate::causal::by_table::{last_change, slots_of};
use crate::causal::positions::ClusterPositions;
use crate::causal::standbys::{
    Life, PositionBoard, PositionEra, ReplayLag, ReplayReport, RoleAgreement, RoleDoubts, RoundCoverage, SeenRounds,
    StandbyProgress,
};
use crate::table_changes::{RaisedSlots, TableChanges};
use std::cell::Cell;
use std::collections::{HashSet, VecDeque};
use std::hash::BuildHasher;
use std::sync::Arc;
use weir_cache::{Slot, TableVersions, WriterOutcome};
use weir_failover::cluster::ReplicationRole;

/// A rule left out, to see that the search would find it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OmittedRule {
    Nothing,
    /// A change is covered by the round after the last one begun.
    NextRound,
    /// The round is looked at when the server has told of the commit.
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
enum ModelTrouble {
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
struct ExplorationPlan<'a> {
    read: ModelRead,
    trouble: ModelTrouble,
    /// The writers that write.
    writers: &'a [usize],
    without: OmittedRule,
}

/// Writes to a table that is known.
const TO_TABLE: usize = 0;
/// Writes to nobody knows what.
const TO_ANYTHING: usize = 1;
/// Has written something before, of which the proxy knows nothing. A new primary may lack that.
const STRANGER: usize = 2;

/// The way of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum ModelRead {
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
enum WriterProgress {
    #[default]
    Idle,
    /// Its COMMIT is sent.
    Sent,
    /// Its commit stands in the log, and others see it on the primary.
    Committed,
    /// The answer has come, with this as the next round.
    Answered(u64),
    /// The commit is noted, and its client has heard of it.
    Told,
    /// Its connection is gone, and its server process may not know.
    Lost,
    /// ... and has committed.
    LostCommitted,
    /// The change was found, with this as the next round.
    Found(u64),
    Failed,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct ModelWriter {
    stage: WriterProgress,
    /// The server that it writes on.
    node: u16,
    /// The round that would be noted without the rule that says when it is looked at.
    early_round: u64,
    slots: Vec<Slot>,
    is_tracked: bool,
}

/// A server connection of the reader to the standby.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct ModelConn {
    opened_us: u64,
    /// The life of the standby that it is known to be one to.
    life: Life,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum ModelReader {
    Idle,
    /// Its statement was sent behind these acknowledgements; the answer must show all that `must_show` says.
    Begun {
        owed: Vec<usize>,
        must_show: SeenRounds,
    },
    /// Holds the standby by a read that is answered.
    Holds,
    /// Its answer shows so many records of the log.
    Answered {
        owed: Vec<usize>,
    },
}

/// The proxy's own connection to the standby, over which it asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum StandbyWatch {
    None,
    Open,
    /// The server process at its end is gone, which the proxy has not noticed.
    Broken,
}

/// A question on its way.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct PositionQuestion {
    node: u16,
    round: u64,
    asked_us: u64,
    /// The server's answer: timeline and position.
    said: Option<(u32, u64)>,
}

/// The writers in the order of their commits.
type Log = Vec<usize>;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct ModelServers {
    log: Log,
    /// The log of the second timeline.
    log_2: Option<Log>,
    /// Records that the standby has replayed, and of which timeline.
    replayed: usize,
    timeline: u32,
    has_restarted: bool,
}

/// The state of the proxy's types; see `ModelWorld::with`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct ModelProxyState {
    view: u16,
    round: u64,
    life: Life,
    covers: RoundCoverage,
    /// When the last question to the standby was sent that was answered.
    asked_us: u64,
    board: PositionBoard,
    doubts: RoleDoubts,
    /// Of all databases, of this one, and of the table.
    slots: [Slot; 3],
    told: [u64; 3],
    last: u64,
    tracks: bool,
}

/// All there is; copied for every step tried.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct ModelWorld {
    servers: ModelServers,
    known: ModelProxyState,
    of_primary: Option<PositionQuestion>,
    of_standby: Option<PositionQuestion>,
    watch: StandbyWatch,
    looks: u64,
    writers: [ModelWriter; 2],
    conn: Option<ModelConn>,
    reader: ModelReader,
}

/// The proxy's knowledge, as its own types.
struct ModelProxy<'a> {
    positions: &'a ClusterPositions,
    changes: &'a Arc<TableChanges>,
}

impl ModelWorld {
    fn begin(plan: &ExplorationPlan<'_>) -> ModelWorld {
        // A server connection that is opened later is of use only behind a restart.
        let versions = TableVersions::new(SLOTS);
        let slots = [versions.of_all(), versions.of_database(DATABASE), versions.of_table(DATABASE, TABLE)];
        let conn = (plan.trouble != ModelTrouble::Restart).then_some(ModelConn { opened_us: 1, life: 0 });
        let log = if plan.trouble == ModelTrouble::Promotion { vec![STRANGER] } else { Log::new() };
        let known = ModelProxyState {
            view: PRIMARY,
            round: 0,
            life: 0,
            covers: RoundCoverage::default(),
            asked_us: 0,
            board: PositionBoard::default(),
            doubts: RoleDoubts::default(),
            slots,
            told: [0; 3],
            last: 0,
            tracks: plan.trouble != ModelTrouble::LateStart,
        };
        ModelWorld {
            servers: ModelServers { log, log_2: None, replayed: 0, timeline: 1, has_restarted: false },
            known,
            of_primary: None,
            of_standby: None,
            watch: StandbyWatch::None,
            looks: 0,
            writers: Default::default(),
            conn,
            reader: ModelReader::Idle,
        }
    }

    /// Does something with the positions.
    fn with_positions<T>(&mut self, act: impl FnOnce(&mut ModelWorld, &ClusterPositions) -> T) -> T {
        let positions = ClusterPositions::of_nodes(2);
        (0..self.known.life).for_each(|_| _ = positions.begin_life(STANDBY));
        (0..self.known.round).for_each(|_| _ = positions.begin_round());
        positions.answered(STANDBY, self.known.asked_us);
        positions.publish(STANDBY, StandbyProgress { covers: self.known.covers, lag: ReplayLag::Nothing }, 0);
        let result = act(self, &positions);
        (self.known.round, self.known.asked_us) = (positions.round(), positions.asked_us(STANDBY));
        (self.known.life, self.known.covers) = positions.standing(STANDBY);
        result
    }

    /// Does something with all that the proxy knows.
    fn with<T>(&mut self, act: impl FnOnce(&mut ModelWorld, &ModelProxy<'_>) -> T) -> T {
        self.with_positions(|world, positions| {
            let changes = &Arc::new(TableChanges::with_slots(SLOTS, world.known.tracks));
            let versions = &changes.versions;
            let [_, database, _] = world.known.slots;
            for (slot, round) in world.known.slots.iter().zip(world.known.told) {
                versions.note_told(&[*slot], round);
            }
            versions.note_last(database, world.known.last);
            let result = act(world, &ModelProxy { positions, changes });
            world.known.told = world.known.slots.map(|slot| versions.round_to_show(&[slot]));
            (world.known.last, world.known.tracks) = (versions.last_of(database), changes.are_tracked());
            result
        })
    }

    fn with_servers(&self, servers: ModelServers) -> ModelWorld {
        ModelWorld { servers, ..self.clone() }
    }

    /// The log that counts: that of the server that takes writes.
    fn history(&self) -> &Log {
        self.servers.log_2.as_ref().unwrap_or(&self.servers.log)
    }

    /// The log that the standby replays.
    fn followed(&self) -> &Log {
        self.servers.log_2.as_ref().filter(|_| self.servers.timeline == 2).unwrap_or(&self.servers.log)
    }

    fn next(&self, plan: &ExplorationPlan<'_>) -> Vec<ModelWorld> {
        let mut next = Vec::new();
        for at in plan.writers {
            self.write(*at, plan, &mut next);
        }
        next.extend(self.ask_primary(plan.without));
        next.extend(self.ask_standby(plan));
        self.replay(plan, &mut next);
        match plan.trouble {
            ModelTrouble::Promotion => self.promote(&mut next),
            ModelTrouble::LateStart if !self.known.tracks => {
                let mut world = self.clone();
                world.with(|_, proxy| track(proxy, plan.without));
                next.push(world);
            }
            ModelTrouble::None | ModelTrouble::Restart | ModelTrouble::Losses | ModelTrouble::LateStart => {}
        }
        next.extend(self.read(plan));
        next
    }

    /// A writer notes its change, the server commits, the proxy notes the round, and the client hears of it.
    fn write(&self, at: usize, plan: &ExplorationPlan<'_>, next: &mut Vec<ModelWorld>) {
        let without = plan.without;
        let is_served = self.writers[at].node == NEXT || self.servers.log_2.is_none();
        let mut step = |act: &dyn Fn(&mut ModelWorld, &ModelProxy<'_>) -> WriterProgress| {
            let mut world = self.clone();
            world.writers[at].stage = world.with(|world, proxy| act(world, proxy));
            next.push(world);
        };
        match self.writers[at].stage {
            WriterProgress::Idle => step(&|world, proxy| {
                let (view, tracks) = (world.known.view, world.known.tracks);
                let [_, database, table] = world.known.slots;
                // The first writes to a table, and nobody knows what the second one writes to.
                let slots = if !tracks { Vec::new() } else { vec![[table, database][at]] };
                let early_round = if without == OmittedRule::RoundAfterCommit { proxy.positions.next_round() } else { 0 };
                world.writers[at] =
                    ModelWriter { stage: WriterProgress::Sent, node: view, early_round, slots, is_tracked: tracks };
                WriterProgress::Sent
            }),
            WriterProgress::Sent | WriterProgress::Lost => {
                if is_served {
                    let then = if self.writers[at].stage == WriterProgress::Sent {
                        WriterProgress::Committed
                    } else {
                        WriterProgress::LostCommitted
                    };
                    step(&|world, _| {
                        world.servers.log_2.as_mut().unwrap_or(&mut world.servers.log).push(at);
                        then
                    });
                }
            }
            WriterProgress::Committed => step(&|world, proxy| {
                let round = match without {
                    OmittedRule::RoundAfterCommit => world.writers[at].early_round,
                    OmittedRule::NextRound => proxy.positions.round(),
                    _ => proxy.positions.next_round(),
                };
                WriterProgress::Answered(round)
            }),
            WriterProgress::Answered(round) => {
                step(&|world, proxy| {
                    world.acknowledge(at, round, proxy, without);
                    WriterProgress::Told
                });
                if without == OmittedRule::NoteBeforeTold {
                    step(&|_, _| WriterProgress::Told);
                }
            }
            WriterProgress::LostCommitted => step(&|_, proxy| WriterProgress::Found(proxy.positions.next_round())),
            WriterProgress::Found(round) => step(&|_, proxy| {
                if without != OmittedRule::FoundCommit {
                    proxy.changes.note_all_told(round);
                }
                WriterProgress::Told
            }),
            WriterProgress::Told | WriterProgress::Failed => {}
        }
        let is_under_way = matches!(self.writers[at].stage, WriterProgress::Sent | WriterProgress::Committed);
        if is_under_way && plan.trouble == ModelTrouble::Losses {
            let is_committed = self.writers[at].stage == WriterProgress::Committed;
            step(&|_, _| if is_committed { WriterProgress::LostCommitted } else { WriterProgress::Lost });
        }
        // The answer of a server that is gone may still lie in a buffer.
        if is_under_way && !is_served {
            step(&|_, _| WriterProgress::Failed);
        }
    }

    /// `query_cache::writes::settle`.
    fn acknowledge(&mut self, at: usize, round: u64, proxy: &ModelProxy<'_>, without: OmittedRule) {
        let (changes, writer) = (proxy.changes, &self.writers[at]);
        if !writer.is_tracked && changes.are_tracked() && without != OmittedRule::WriterUnderWay {
            changes.note_all_told(round);
        }
        if without == OmittedRule::Fold {
            return changes.versions.note_told(&writer.slots, round);
        }
        let mut raised = RaisedSlots::none(Arc::clone(changes), DATABASE.into(), writer.node, 1);
        raised.add(&writer.slots);
        raised.settle(WriterOutcome::Committed { round });
    }

    /// A round begins, the primary answers, its answer arrives.
    fn ask_primary(&self, without: OmittedRule) -> Option<ModelWorld> {
        let mut world = self.clone();
        match self.of_primary.clone() {
            None if self.known.round < ROUNDS_MAX => world.with_positions(|world, positions| {
                let begins = without != OmittedRule::BeginBeforeAsk;
                let round = if begins { positions.begin_round() } else { positions.next_round() };
                world.of_primary = Some(PositionQuestion { node: world.known.view, round, asked_us: 0, said: None });
            }),
            None => return None,
            Some(question @ PositionQuestion { said: None, .. }) => {
                let is_gone = question.node == PRIMARY && self.servers.log_2.is_some();
                let said = (if question.node == PRIMARY { 1 } else { 2 }, self.history().len() as u64);
                world.of_primary = if is_gone { None } else { Some(PositionQuestion { said: Some(said), ..question }) };
            }
            Some(PositionQuestion { node, round, said: Some((timeline, position)), .. }) => {
                world.of_primary = None;
                let role = if world.known.view == node { ReplicationRole::Primary } else { ReplicationRole::Standby };
                if without == OmittedRule::BeginBeforeAsk {
                    world.with_positions(|_, positions| _ = positions.begin_round());
                }
                let word = world.known.doubts.said(node, ReplicationRole::Primary, Some(role), false);
                if word == RoleAgreement::Agrees && world.known.doubts.is_empty() {
                    let era = PositionEra { primary: (node, 1), system: 1, timeline };
                    world.known.board.primary_said(era, round, position, position, 0);
                    world.publish();
                }
            }
        }
        Some(world)
    }

    /// The standby is asked, it answers, its answer arrives.
    fn ask_standby(&self, plan: &ExplorationPlan<'_>) -> Option<ModelWorld> {
        let without = plan.without;
        let mut world = self.clone();
        match self.of_standby.clone() {
            None if self.looks < LOOKS_MAX && self.watch != StandbyWatch::Broken => world.with_positions(|world, positions| {
                if world.watch == StandbyWatch::None && (without != OmittedRule::LifeEnds || world.known.life == 0) {
                    positions.begin_life(STANDBY);
                }
                world.watch = StandbyWatch::Open;
                world.looks += 1;
                let asked_us = 2 * world.looks;
                world.of_standby = Some(PositionQuestion { node: STANDBY, round: 0, asked_us, said: None });
            }),
            None => return None,
            Some(PositionQuestion { said: None, .. }) if self.watch == StandbyWatch::Broken => return None,
            Some(question @ PositionQuestion { said: None, .. }) => {
                let is_received = without == OmittedRule::Replayed;
                let position = if is_received { self.followed().len() } else { self.servers.replayed };
                world.of_standby = Some(PositionQuestion { said: Some((self.servers.timeline, position as u64)), ..question });
            }
            Some(PositionQuestion { asked_us, said: Some((timeline, position)), .. }) => {
                world.of_standby = None;
                let timeline = if without == OmittedRule::Timeline && self.known.view == NEXT { 2 } else { timeline };
                world.with_positions(|_, positions| positions.answered(STANDBY, asked_us));
                let word = world.known.doubts.said(STANDBY, ReplicationRole::Standby, Some(ReplicationRole::Standby), true);
                if word == RoleAgreement::Agrees {
                    world.known.board.standby_said(STANDBY, ReplayReport { system: 1, timeline: Some(timeline), position });
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
    fn replay(&self, plan: &ExplorationPlan<'_>, next: &mut Vec<ModelWorld>) {
        if self.servers.replayed < self.followed().len() {
            next.push(self.with_servers(ModelServers { replayed: self.servers.replayed + 1, ..self.servers.clone() }));
        }
        let may_follow = |log: &Log| self.servers.timeline == 1 && log.starts_with(&self.servers.log[..self.servers.replayed]);
        if self.servers.log_2.as_ref().is_some_and(may_follow) {
            next.push(self.with_servers(ModelServers { timeline: 2, ..self.servers.clone() }));
        }
        if plan.trouble == ModelTrouble::Restart && !self.servers.has_restarted {
            for replayed in 0..=self.servers.replayed {
                let watch = if self.watch == StandbyWatch::None { StandbyWatch::None } else { StandbyWatch::Broken };
                let servers = ModelServers { replayed, has_restarted: true, ..self.servers.clone() };
                let mut world = ModelWorld { servers, watch, conn: None, ..self.clone() };
                if matches!(world.reader, ModelReader::Holds) {
                    world.reader = ModelReader::Idle;
                }
                next.push(world);
            }
        }
        // The proxy notices that.
        if self.watch == StandbyWatch::Broken {
            let mut world = ModelWorld { watch: StandbyWatch::None, of_standby: None, ..self.clone() };
            if plan.without != OmittedRule::LifeEnds {
                world.known.board.lost(STANDBY);
                world.with_positions(|_, positions| positions.end_life(STANDBY));
            }
            next.push(world);
        }
    }

    /// Another server becomes the primary, and the view shows that.
    fn promote(&self, next: &mut Vec<ModelWorld>) {
        match self.servers.log_2 {
            None => {
                let logs = (0..=self.servers.log.len()).map(|count| self.servers.log[..count].to_vec());
                next.extend(logs.map(|log| self.with_servers(ModelServers { log_2: Some(log), ..self.servers.clone() })));
            }
            Some(_) if self.known.view == PRIMARY => {
                let known = ModelProxyState { view: NEXT, doubts: RoleDoubts::default(), ..self.known.clone() };
                next.push(ModelWorld { known, ..self.clone() });
            }
            Some(_) => {}
        }
    }

    /// A reader opens a server connection, looks what its read must show, and is answered by the standby if that may be.
    fn read(&self, plan: &ExplorationPlan<'_>) -> Option<ModelWorld> {
        let without = plan.without;
        let mut world = self.clone();
        if self.conn.is_none() {
            world.conn = Some(ModelConn { opened_us: 2 * self.looks + 1, life: 0 });
            return Some(world);
        }
        let told: Vec<usize> = (0..self.writers.len()).filter(|at| self.writers[*at].stage == WriterProgress::Told).collect();
        let begins = matches!(self.reader, ModelReader::Idle) && plan.read == ModelRead::Behind;
        if told.is_empty() && !begins && !matches!(self.reader, ModelReader::Begun { .. }) {
            // Any answer would do.
            return None;
        }
        match &self.reader {
            ModelReader::Idle => world.with(|world, proxy| {
                world.reader = ModelReader::Begun { owed: told, must_show: must_show(proxy, plan) };
            }),
            ModelReader::Begun { owed, must_show } => {
                if world.with_positions(|world, positions| world.standing(positions, without).shown(must_show))
                    != StandbyCoverage::All
                {
                    return None;
                }
                world.reader = match plan.read {
                    ModelRead::Behind => ModelReader::Holds,
                    ModelRead::Table | ModelRead::Anything | ModelRead::InSnapshot => {
                        ModelReader::Answered { owed: owed.clone() }
                    }
                };
            }
            ModelReader::Holds => {
                let follows = world.with(|world, proxy| {
                    let change = change_of(proxy, Some(&[TABLE]), without);
                    change == 0 || without == OmittedRule::Follow || world.standing(proxy.positions, without).reaches(change)
                });
                if !follows {
                    return None;
                }
                world.reader = ModelReader::Answered { owed: told };
            }
            ModelReader::Answered { .. } => return None,
        }
        Some(world)
    }

    /// The standby at the other end of the reader's server connection.
    fn standing(&mut self, positions: &ClusterPositions, without: OmittedRule) -> StandbyFacts {
        let conn = self.conn.as_mut().unwrap();
        let life = Cell::new(conn.life);
        let standing = StandbyFacts::of(positions, STANDBY, conn.opened_us, &life);
        conn.life = life.get();
        StandbyFacts { is_proven: standing.is_proven || without == OmittedRule::LifeOfConn, ..standing }
    }

    /// True if the standby has given an answer that lacks a change of the history whose acknowledgement came before.
    fn is_wrong(&self) -> bool {
        let ModelReader::Answered { owed } = &self.reader else { return false };
        let shown = &self.followed()[..self.servers.replayed];
        owed.iter().any(|writer| self.history().contains(writer) && !shown.contains(writer))
    }
}

/// A read wants to know of changes.
fn track(proxy: &ModelProxy<'_>, without: OmittedRule) {
    proxy.changes.track(|| if without == OmittedRule::EarlierWrites { 0 } else { proxy.positions.next_round() });
}

/// `begin_read` of a session that has seen nothing.
fn must_show(proxy: &ModelProxy<'_>, plan: &ExplorationPlan<'_>) -> SeenRounds {
    track(proxy, plan.without);
    let tables = match plan.read {
        ModelRead::Table => Some(&[TABLE]),
        ModelRead::Behind => Some(&[OTHER]),
        ModelRead::InSnapshot if plan.without == OmittedRule::Snapshot => Some(&[OTHER]),
        ModelRead::Anything | ModelRead::InSnapshot => None,
    };
    let mut must_show = SeenRounds::default();
    must_show.heard_primary(change_of(proxy, tables.map(|tables| &tables[..]), plan.without));
    must_show
}

/// The round that covers the last change of these tables; `None`: of anything.
fn change_of(proxy: &ModelProxy<'_>, tables: Option<&[u32]>, without: OmittedRule) -> u64 {
    let versions = &proxy.changes.versions;
    let slots = tables.map(|tables| match without {
        OmittedRule::DatabaseOfTable => tables.iter().map(|oid| versions.of_table(DATABASE, *oid)).collect(),
        _ => slots_of(versions, DATABASE, tables),
    });
    last_change(versions, versions.of_database(DATABASE), slots.as_deref()).round
}

/// Findings of an exploration.
#[derive(Debug, Default)]
struct ExplorationFindings {
    worlds: usize,
    /// Answers of the standby that show all that they must.
    right: usize,
    wrong: Option<ModelWorld>,
}

/// Walks over all worlds there may be, those of few steps first, until one is wrong.
fn explore(plan: &ExplorationPlan<'_>) -> ExplorationFindings {
    // Worlds by their hashes alone: of some 100,000 no two have the same, but once in a thousand million runs.
    let (hasher, mut seen) = (foldhash::fast::FixedState::default(), HashSet::new());
    let mut open = VecDeque::from([ModelWorld::begin(plan)]);
    let mut found = ExplorationFindings::default();
    while let Some(world) = open.pop_front() {
        for next in world.next(plan) {
            if next.is_wrong() {
                return ExplorationFindings { wrong: Some(next), ..found };
            }
            // Nothing behind the answer matters.
            if matches!(next.reader, ModelReader::Answered { .. }) {
                found.right += 1;
            } else if seen.insert(hasher.hash_one(&next)) {
                open.push_back(next);
                found.worlds += 1;
            }
        }
    }
    found
}

fn check_no_answer_is_wrong(read: ModelRead, trouble: ModelTrouble, writers: &[usize]) {
    let plan = ExplorationPlan { read, trouble, writers, without: OmittedRule::Nothing };
    let ExplorationFindings { worlds, right, wrong } = explore(&plan);
    assert_eq!(wrong, None, "{plan:?}");
    assert!(worlds > 1000 && right > 10, "{right} answers in {worlds} worlds show little: {plan:?}");
}

#[test]
fn no_order_of_steps_lets_a_standby_answer_without_a_change_that_was_acknowledged() {
    for read in [ModelRead::Table, ModelRead::Anything, ModelRead::Behind, ModelRead::InSnapshot] {
        check_no_answer_is_wrong(read, ModelTrouble::None, &[TO_TABLE]);
        check_no_answer_is_wrong(read, ModelTrouble::None, &[TO_ANYTHING]);
    }
    check_no_answer_is_wrong(ModelRead::Table, ModelTrouble::None, &[TO_TABLE, TO_ANYTHING]);
}

#[test]
fn neither_does_any_order_with_a_restart_a_promotion_a_lost_connection_or_a_late_start() {
    for trouble in [ModelTrouble::Restart, ModelTrouble::Losses, ModelTrouble::LateStart] {
        check_no_answer_is_wrong(ModelRead::Table, trouble, &[TO_TABLE]);
        check_no_answer_is_wrong(ModelRead::Behind, trouble, &[TO_TABLE]);
    }
    check_no_answer_is_wrong(ModelRead::Table, ModelTrouble::Promotion, &[TO_TABLE]);
}

#[test]
fn every_rule_is_needed() {
    for (without, read, trouble, writer) in [
        (OmittedRule::NextRound, ModelRead::Table, ModelTrouble::None, TO_TABLE),
        (OmittedRule::RoundAfterCommit, ModelRead::Table, ModelTrouble::None, TO_TABLE),
        (OmittedRule::NoteBeforeTold, ModelRead::Table, ModelTrouble::None, TO_TABLE),
        (OmittedRule::BeginBeforeAsk, ModelRead::Table, ModelTrouble::None, TO_TABLE),
        (OmittedRule::Replayed, ModelRead::Table, ModelTrouble::None, TO_TABLE),
        (OmittedRule::Fold, ModelRead::Anything, ModelTrouble::None, TO_TABLE),
        (OmittedRule::DatabaseOfTable, ModelRead::Table, ModelTrouble::None, TO_ANYTHING),
        (OmittedRule::Snapshot, ModelRead::InSnapshot, ModelTrouble::None, TO_TABLE),
        (OmittedRule::Follow, ModelRead::Behind, ModelTrouble::None, TO_TABLE),
        (OmittedRule::LifeOfConn, ModelRead::Table, ModelTrouble::Restart, TO_TABLE),
        (OmittedRule::LifeEnds, ModelRead::Table, ModelTrouble::Restart, TO_TABLE),
        (OmittedRule::Timeline, ModelRead::Table, ModelTrouble::Promotion, TO_TABLE),
        (OmittedRule::FoundCommit, ModelRead::Table, ModelTrouble::Losses, TO_TABLE),
        (OmittedRule::EarlierWrites, ModelRead::Table, ModelTrouble::LateStart, TO_TABLE),
        (OmittedRule::WriterUnderWay, ModelRead::Table, ModelTrouble::LateStart, TO_TABLE),
    ] {
        let found = explore(&ExplorationPlan { read, trouble, writers: &[writer], without });
        assert!(found.wrong.is_some(), "nothing goes wrong without {without:?} in {} worlds", found.worlds);
    }
}
