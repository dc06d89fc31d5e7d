//! SCRAM challenges of unknown users, and of those whose password Weir knows in clear text.
//!
//! Invariant: such a challenge is as stable as that of a verifier, over restarts and at another Weir before the same servers.
//! Otherwise two logins would tell who exists. So it is made of the cluster's `system_identifier`, as PostgreSQL makes it of a
//! number in pg_control (`scram_mock_salt` in auth-scram.c).
//!
//! Passwords are left out: a client could try some on the result. Users with a login can read the identifier, and pg_roles as
//! well; others must guess a time and a process id at `STRETCH` hashes each.

use parking_lot::Mutex;
use std::time::{Duration, Instant};
use weir_wire::scram::{ITERATIONS_DEFAULT, ITERATIONS_MAX};
use zeroize::Zeroizing;

pub const STRETCH: u32 = 1 << 16;

/// Makes guesses for other programs useless.
pub const STRETCH_SALT: &[u8] = b"Weir: challenges of users without a verifier";

/// Time from the start in which logins wait for a server's facts, unless all failed. Later challenges change once a server
/// answers.
const WAIT: Duration = Duration::from_secs(5);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChallengeBasis {
    /// Logins may wait for a server until this time.
    Awaited(Instant),
    Cluster(u64),
    /// A secret of the process, since no server has told more.
    Process,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServerScramFacts {
    /// `None`: not readable for the user.
    pub identifier: Option<u64>,
    /// `scram_iterations`; `None` before PostgreSQL 16.
    pub iterations: Option<u32>,
}

pub struct MockChallenges {
    born_at: Instant,
    learned: Mutex<LearnedScramFacts>,
}

#[derive(Default)]
struct LearnedScramFacts {
    told: Option<ServerScramFacts>,
    stretched: Option<(u64, Zeroizing<[u8; 32]>)>,
}

impl MockChallenges {
    pub fn new(born_at: Instant) -> MockChallenges {
        MockChallenges { born_at, learned: Mutex::default() }
    }

    /// True for the first facts.
    pub fn learn(&self, told: ServerScramFacts) -> bool {
        let mut learned = self.learned.lock();
        let before = learned.told;
        learned.told = Some(merged(before, told));
        before.is_none()
    }

    pub fn basis(&self, now: Instant) -> ChallengeBasis {
        match self.learned.lock().told {
            Some(ServerScramFacts { identifier: Some(identifier), .. }) => ChallengeBasis::Cluster(identifier),
            Some(ServerScramFacts { identifier: None, .. }) => ChallengeBasis::Process,
            None if now < self.born_at + WAIT => ChallengeBasis::Awaited(self.born_at + WAIT),
            None => ChallengeBasis::Process,
        }
    }

    pub fn iterations(&self) -> u32 {
        let told = self.learned.lock().told.and_then(|told| told.iterations);
        told.unwrap_or(ITERATIONS_DEFAULT).clamp(1, ITERATIONS_MAX)
    }

    pub fn stretched(&self, identifier: u64) -> Option<Zeroizing<[u8; 32]>> {
        self.learned.lock().stretched.as_ref().filter(|(of, _)| *of == identifier).map(|(_, secret)| secret.clone())
    }

    pub fn keep(&self, identifier: u64, secret: &[u8; 32]) {
        self.learned.lock().stretched = Some((identifier, Zeroizing::new(*secret)));
    }
}

/// Keeps the first identifier: a node of another cluster must not change what clients see.
fn merged(before: Option<ServerScramFacts>, told: ServerScramFacts) -> ServerScramFacts {
    ServerScramFacts { identifier: before.and_then(|before| before.identifier).or(told.identifier), iterations: told.iterations }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_identifier_stays_and_a_server_that_hides_it_does_not_take_it_back() {
        let challenges = MockChallenges::new(Instant::now());
        assert!(matches!(challenges.basis(challenges.born_at), ChallengeBasis::Awaited(_)));
        assert_eq!(challenges.basis(challenges.born_at + WAIT), ChallengeBasis::Process);
        assert!(challenges.learn(ServerScramFacts { identifier: None, iterations: None }));
        assert_eq!(challenges.basis(challenges.born_at), ChallengeBasis::Process);
        assert!(!challenges.learn(ServerScramFacts { identifier: Some(7), iterations: Some(9000) }));
        challenges.learn(ServerScramFacts { identifier: Some(8), iterations: Some(10_000) });
        challenges.learn(ServerScramFacts { identifier: None, iterations: Some(10_000) });
        assert_eq!(challenges.basis(challenges.born_at), ChallengeBasis::Cluster(7));
        assert_eq!(challenges.iterations(), 10_000);
    }

    #[test]
    fn iterations_are_such_as_a_client_may_be_asked_for() {
        let challenges = MockChallenges::new(Instant::now());
        assert_eq!(challenges.iterations(), ITERATIONS_DEFAULT);
        for (told, expected) in [(0, 1), (4096, 4096), (u32::MAX, ITERATIONS_MAX)] {
            challenges.learn(ServerScramFacts { identifier: Some(7), iterations: Some(told) });
            assert_eq!(challenges.iterations(), expected);
        }
    }
}
