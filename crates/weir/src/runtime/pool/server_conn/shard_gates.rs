//! The gate between commits on several shards and reads of several shards (`cross_shard_reads = snapshot`), as a worker holds it.
//!
//! A table of the engine is the gate. Commits lock it in ROW EXCLUSIVE mode and reads in SHARE mode: each mode goes with itself and not with the other.
//! So no commit on several shards is under way while the snapshots of a read are taken, whichever Weirs carry them out. A phase is a transaction that holds the
//! lock for all commits, or all reads, of one database and worker that come at a time. `server::shard_gate` asks the server.

use crate::runtime::pool::server_conn::{MessageConn, ServerAddress};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};
use weir_io::reactor::TaskId;
use weir_session::fault::ErrorReport;

/// A phase takes no more users after so long: others that wait for the lock come first then.
const JOIN_LIMIT: Duration = Duration::from_millis(10);

/// Connections at rest for each side, at most: the next phase begins while the last one gives its lock back.
const REST_MAX: usize = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GateSide {
    Commits,
    Reads,
}

#[derive(Clone, Debug)]
pub enum PhaseState {
    /// The lock is asked for.
    Asked,
    Held {
        since: Instant,
    },
    Failed(ErrorReport),
}

impl PhaseState {
    fn takes_more(&self, now: Instant) -> bool {
        match self {
            PhaseState::Asked => true,
            PhaseState::Held { since } => now < *since + JOIN_LIMIT,
            PhaseState::Failed(_) => false,
        }
    }
}

/// Connections for the gate, with the generation of the files that logged them in.
pub struct GateConn {
    pub(crate) talk: MessageConn,
    /// Reads the shards: a shard that hangs must not keep the lock, which the server frees only after it has ended such a read.
    pub(crate) look: Option<MessageConn>,
    pub(crate) address: ServerAddress,
    pub(crate) generation: u64,
    /// Phases of commits that had not said their end when this connection last saw that no shard has a lost part.
    pub(crate) unended: Option<i64>,
    /// Begin of its rest.
    pub(crate) rests_since: Instant,
}

pub struct GatePhase {
    pub(crate) side: GateSide,
    pub(crate) database: Arc<str>,
    pub(crate) state: RefCell<PhaseState>,
    pub(crate) users: Cell<u32>,
    /// True if a user has left who may have left prepared parts behind.
    pub(crate) has_left_parts: Cell<bool>,
    pub(crate) waiting: RefCell<Vec<TaskId>>,
    /// The connection whose transaction holds the lock.
    pub(crate) conn: RefCell<Option<GateConn>>,
}

#[derive(Default)]
struct DatabaseGate {
    current: [Option<Rc<GatePhase>>; 2],
    at_rest: [Vec<GateConn>; 2],
}

#[derive(Default)]
pub struct ShardGates {
    databases: RefCell<HashMap<Arc<str>, DatabaseGate>>,
    /// True while a task closes connections that have rested long.
    pub(crate) has_closer: Cell<bool>,
    /// Held in all, and told in whole seconds.
    held: Cell<(Duration, u64)>,
}

impl ShardGates {
    /// Returns a phase to use, and true if it is new: the caller begins it.
    pub fn join(&self, database: &Arc<str>, side: GateSide, now: Instant) -> (Rc<GatePhase>, bool) {
        let mut databases = self.databases.borrow_mut();
        let current = &mut databases.entry(database.clone()).or_default().current[side as usize];
        if let Some(phase) = current.as_ref().filter(|phase| phase.state.borrow().takes_more(now)) {
            phase.users.set(phase.users.get() + 1);
            return (phase.clone(), false);
        }
        let phase = Rc::new(GatePhase {
            side,
            database: database.clone(),
            state: RefCell::new(PhaseState::Asked),
            users: Cell::new(1),
            has_left_parts: Cell::default(),
            waiting: RefCell::default(),
            conn: RefCell::default(),
        });
        *current = Some(phase.clone());
        (phase, true)
    }

    /// Notes that a user of a phase has left. True: it was the last one, and nobody joins the phase any more.
    pub fn leave(&self, phase: &Rc<GatePhase>) -> bool {
        phase.users.set(phase.users.get().saturating_sub(1));
        if phase.users.get() > 0 {
            return false;
        }
        let mut databases = self.databases.borrow_mut();
        let current = databases.get_mut(&phase.database).map(|gate| &mut gate.current[phase.side as usize]);
        if let Some(current) = current.filter(|current| current.as_ref().is_some_and(|other| Rc::ptr_eq(other, phase))) {
            *current = None;
        }
        true
    }

    /// Adds a time for which the lock was held. Returns the whole seconds that are new in the sum.
    pub fn add_held(&self, time: Duration) -> u64 {
        let (held, told) = self.held.get();
        let held = held + time;
        self.held.set((held, held.as_secs()));
        held.as_secs() - told
    }

    /// Takes out the connection that rests for the shortest time.
    pub fn take_at_rest(&self, database: &Arc<str>, side: GateSide) -> Option<GateConn> {
        self.databases.borrow_mut().get_mut(database)?.at_rest[side as usize].pop()
    }

    /// Keeps a connection for a later phase. Returns one too many.
    pub fn rest(&self, database: &Arc<str>, side: GateSide, conn: GateConn) -> Option<GateConn> {
        let mut databases = self.databases.borrow_mut();
        let at_rest = &mut databases.entry(database.clone()).or_default().at_rest[side as usize];
        at_rest.push(conn);
        (at_rest.len() > REST_MAX).then(|| at_rest.remove(0))
    }

    /// Takes out the connections that rest since `before` or longer. Returns also true if others are left.
    pub fn take_rested(&self, before: Instant) -> (Vec<GateConn>, bool) {
        let mut databases = self.databases.borrow_mut();
        let all = databases.values_mut().flat_map(|gate| gate.at_rest.iter_mut());
        let taken = all.flat_map(|conns| conns.extract_if(.., |conn| conn.rests_since <= before)).collect();
        let has_conn = |gate: &DatabaseGate| gate.at_rest.iter().any(|conns| !conns.is_empty());
        databases.retain(|_, gate| has_conn(gate) || gate.current.iter().any(Option::is_some));
        (taken, databases.values().any(has_conn))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_who_come_at_a_time_share_a_phase_and_later_ones_do_not() {
        let (gates, now) = (ShardGates::default(), Instant::now());
        let shop: Arc<str> = "shop".into();
        let (first, is_new) = gates.join(&shop, GateSide::Commits, now);
        assert!(is_new);
        let join = |side, at| {
            let (phase, is_new) = gates.join(&shop, side, at);
            (Rc::ptr_eq(&phase, &first), is_new)
        };
        assert_eq!(join(GateSide::Commits, now + JOIN_LIMIT * 9), (true, false), "the lock is not there yet");
        assert_eq!(join(GateSide::Reads, now), (false, true));
        assert!(!Rc::ptr_eq(&gates.join(&"house".into(), GateSide::Commits, now).0, &first));
        *first.state.borrow_mut() = PhaseState::Held { since: now };
        assert_eq!(join(GateSide::Commits, now + JOIN_LIMIT / 2), (true, false));
        assert!(!gates.leave(&first) && !gates.leave(&first), "two others use it");
        assert_eq!(join(GateSide::Commits, now + JOIN_LIMIT), (false, true), "it has lasted long enough");
        assert!(gates.leave(&first));
        assert_eq!(join(GateSide::Commits, now), (false, false), "the second phase is still the current one");
    }

    #[test]
    fn short_times_add_up_to_seconds() {
        let gates = ShardGates::default();
        let told = [400, 500, 200, 2000, 899, 1].map(|ms| gates.add_held(Duration::from_millis(ms)));
        assert_eq!(told, [0, 0, 1, 2, 0, 1]);
    }

    #[test]
    fn a_phase_that_failed_or_has_ended_is_not_joined() {
        let (gates, now) = (ShardGates::default(), Instant::now());
        let shop: Arc<str> = "shop".into();
        let (first, _) = gates.join(&shop, GateSide::Reads, now);
        *first.state.borrow_mut() = PhaseState::Failed(ErrorReport::error("55000", "no gate"));
        let (second, is_new) = gates.join(&shop, GateSide::Reads, now);
        assert!(is_new && gates.leave(&second));
        assert!(gates.join(&shop, GateSide::Reads, now).1);
    }
}
