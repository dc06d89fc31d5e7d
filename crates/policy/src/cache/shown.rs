//! Which rounds show what answers show that other Weirs have stored.
//!
//! Another Weir's rounds are not ours: of an answer of the store's that is seen for the first time it is known only that what it shows was
//! visible before the next round. Whoever is given the same one later has seen no more than that.

use super::versions::Deps;
use std::collections::HashMap;

/// Answers that are remembered. With more of them all are forgotten: that costs waits, and nothing else.
const ANSWERS_MAX: usize = 1 << 14;

#[derive(Debug)]
struct Answer {
    deps: Deps,
    /// Of its bytes: a Weir that does not follow the primary's log may store another answer under the same stamps.
    fingerprint: u64,
    round: u64,
}

/// See the module. `D` is what an answer is found by.
#[derive(Debug)]
pub struct Shown<D> {
    answers: HashMap<D, Answer>,
}

impl<D> Default for Shown<D> {
    fn default() -> Shown<D> {
        Shown { answers: HashMap::new() }
    }
}

impl<D: Copy + Eq + std::hash::Hash> Shown<D> {
    /// The round that shows what this answer shows. `next` is the one that is begun next.
    pub fn round_of(&mut self, digest: &D, deps: &Deps, fingerprint: u64, next: u64) -> u64 {
        let known = self.answers.get(digest).filter(|known| known.fingerprint == fingerprint && known.deps == *deps);
        if let Some(known) = known {
            return known.round;
        }
        if self.answers.len() >= ANSWERS_MAX {
            self.answers.clear();
        }
        self.answers.insert(*digest, Answer { deps: deps.clone(), fingerprint, round: next });
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_needs_a_new_round_when_it_is_seen_for_the_first_time_and_when_it_is_another() {
        let mut shown = Shown::default();
        let deps = |base| Deps::of_pairs(vec![(1, base)]);
        assert_eq!(shown.round_of(&7, &deps(5), 1, 10), 10);
        assert_eq!(shown.round_of(&7, &deps(5), 1, 20), 10, "seen before");
        assert_eq!(shown.round_of(&8, &deps(5), 1, 21), 21, "another question");
        assert_eq!(shown.round_of(&7, &deps(5), 2, 22), 22, "other bytes");
        assert_eq!(shown.round_of(&7, &deps(6), 2, 23), 23, "after a change");
        assert_eq!(shown.round_of(&7, &deps(5), 1, 24), 24, "only the last one is remembered");
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut shown = Shown::default();
        let deps = Deps::of_pairs(vec![(1, 1)]);
        for digest in 0..3 * ANSWERS_MAX {
            shown.round_of(&digest, &deps, 0, 1);
            assert!(shown.answers.len() <= ANSWERS_MAX);
        }
    }
}
