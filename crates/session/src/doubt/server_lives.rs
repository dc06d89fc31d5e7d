//! Proofs of the time in which each node's server has run without a crash, of all sessions that query xids.

use crate::metrics::NODES_MAX;
use crate::task::Us;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use weir_failover::commit_outcome::{RESTART_MS, ServerLife, TransactionNumber};

/// Proofs closer to each other add nothing.
const STEP_US: Us = 1_000;

/// A COMMIT needs no proof of its own so soon after another one: its server takes some time, too.
const FRESH_US: Us = RESTART_MS * 1_000 / 4;

/// By node.
pub struct ServerLives([NodeLife; NODES_MAX]);

#[derive(Default)]
struct NodeLife {
    known: Mutex<Option<ServerLife>>,
    /// `to_us` of it. 0: nothing is known.
    to_us: AtomicU64,
}

impl Default for ServerLives {
    fn default() -> ServerLives {
        ServerLives(std::array::from_fn(|_| NodeLife::default()))
    }
}

impl ServerLives {
    fn of(&self, node: u16) -> &NodeLife {
        &self.0[usize::from(node) % NODES_MAX]
    }

    pub fn note(&self, node: u16, life: ServerLife) {
        let of = self.of(node);
        let last_us = of.to_us.load(Ordering::Relaxed);
        if last_us > 0 && life.to_us < last_us + STEP_US {
            return;
        }
        let mut known = of.known.lock();
        let life = known.map_or(life, |known| known.with(life));
        *known = Some(life);
        of.to_us.store(life.to_us.max(1), Ordering::Relaxed);
    }

    /// True if a proof is there of the last moment.
    pub fn is_fresh(&self, node: u16, now_us: Us) -> bool {
        let last_us = self.of(node).to_us.load(Ordering::Relaxed);
        last_us > 0 && now_us < last_us + FRESH_US
    }

    /// See `ServerLife`.
    pub fn alive_ms(&self, number: &TransactionNumber, asked_us: Us) -> u64 {
        self.of(number.node).known.lock().map_or(number.said_ms, |life| life.alive_ms(number, asked_us))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::num::NonZeroU64;
    use weir_failover::commit_outcome::LogLineage;

    const LINE: LogLineage = LogLineage { system: 7, timeline: 3 };

    #[test]
    fn proofs_of_other_sessions_count_for_a_number_and_one_in_a_while_is_kept() {
        let lives = ServerLives::default();
        let number = TransactionNumber { xid: NonZeroU64::MIN, node: 1, line: LINE, said_ms: 1_000 };
        let life = |to_us, said_ms| ServerLife { line: LINE, from_us: 100, to_us, said_ms };
        assert!(!lives.is_fresh(1, 0), "nothing is known");
        assert_eq!(lives.alive_ms(&number, 5_000), 1_000, "it lived when it said the number");
        for (to_us, said_ms, alive_ms) in [(5_000, 1_000, 1_000), (5_900, 1_001, 1_000), (6_000, 1_002, 1_002)] {
            lives.note(1, life(to_us, said_ms));
            assert_eq!(lives.alive_ms(&number, 5_000), alive_ms, "{to_us}");
        }
        assert!(lives.is_fresh(1, 6_000 + FRESH_US - 1) && !lives.is_fresh(1, 6_000 + FRESH_US));
        assert!(!lives.is_fresh(2, 6_000), "another node");
    }
}
