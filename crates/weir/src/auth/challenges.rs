//! The SCRAM challenge of users who have no verifier: those who do not exist, and those whose password Weir knows in clear text.
//!
//! Invariant: such a challenge stays as it is where those of users with a verifier do: over restarts, and at another Weir before the same
//! servers. Else two looks would tell who exists. So it is made of what all servers of a cluster share for their life, the cluster's
//! `system_identifier`, as PostgreSQL makes it of a number in pg_control (`scram_mock_salt` in auth-scram.c).
//!
//! Why not of passwords in the configuration: a client sees the result, and could try passwords on it without asking anybody.
//! The identifier is no secret to users who may log in to the servers, and they may read pg_roles. Others must guess it: its bits are a time and a
//! process, so each guess is made to cost `STRETCH` hashes.

use parking_lot::Mutex;
use std::time::{Duration, Instant};
use weir_wire::scram::{ITERATIONS_DEFAULT, ITERATIONS_MAX};
use zeroize::Zeroizing;

/// Hashes from the identifier to the secret: as long as some logins take, once.
pub const STRETCH: u32 = 1 << 16;

/// Salt of that: only guesses made for Weir are of use.
pub const STRETCH_SALT: &[u8] = b"Weir: challenges of users without a verifier";

/// Time from the start in which logins wait for the word of a server, unless all have failed. Later ones get challenges that last until one tells.
const WAIT: Duration = Duration::from_secs(5);

/// The material of challenges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChallengeBasis {
    /// No server was asked yet, and it is worth waiting until this time.
    Awaited(Instant),
    /// The cluster. Its identifier is to be stretched.
    Cluster(u64),
    /// This process: no server has told more.
    Process,
}

/// A server's facts that decide challenges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServerScramFacts {
    /// Its `system_identifier`; `None`: the user may not know.
    pub identifier: Option<u64>,
    /// Its `scram_iterations`, with which it makes verifiers; `None`: it has none (before PostgreSQL 16).
    pub iterations: Option<u32>,
}

/// See the module. Seen by all threads.
pub struct MockChallenges {
    born_at: Instant,
    learned: Mutex<LearnedScramFacts>,
}

#[derive(Default)]
struct LearnedScramFacts {
    told: Option<ServerScramFacts>,
    /// An identifier and its secret.
    stretched: Option<(u64, Zeroizing<[u8; 32]>)>,
}

impl MockChallenges {
    pub fn new(born_at: Instant) -> MockChallenges {
        MockChallenges { born_at, learned: Mutex::default() }
    }

    /// Takes in what a server has told. True: none had told anything before.
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

    /// Iterations of the servers' verifiers.
    pub fn iterations(&self) -> u32 {
        let told = self.learned.lock().told.and_then(|told| told.iterations);
        told.unwrap_or(ITERATIONS_DEFAULT).clamp(1, ITERATIONS_MAX)
    }

    /// The secret of an identifier, if it was stretched before.
    pub fn stretched(&self, identifier: u64) -> Option<Zeroizing<[u8; 32]>> {
        self.learned.lock().stretched.as_ref().filter(|(of, _)| *of == identifier).map(|(_, secret)| secret.clone())
    }

    pub fn keep(&self, identifier: u64, secret: &[u8; 32]) {
        self.learned.lock().stretched = Some((identifier, Zeroizing::new(*secret)));
    }
}

/// The first identifier stays while the process runs: a node that is another cluster's must not change what clients see. The number of
/// iterations may be set anew.
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
