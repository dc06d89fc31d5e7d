//! A simulated etcd: one key that is read as it stands, and changed only if it is still of the revision expected.

use std::sync::Arc;

use weir_failover::Ms;
use weir_group::{GroupState, MemberId, RegisterEvent, StateVersion, VersionNumber};

/// Versions that are kept, for reads that may be old where that rule is left out.
const VERSIONS_MAX: usize = 64;

#[derive(Clone, Debug, Default)]
pub struct Etcd {
    /// Since when each of the last ones stands there.
    versions: Vec<(Ms, StateVersion)>,
    /// Moves with other keys, too.
    revision: u64,
    pub changes: u64,
    /// Its own leader is gone until then, and nobody is served.
    pub silent_until: Ms,
}

/// If a change looks at what it takes the place of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RevisionCheck {
    Compares,
    LeftOut,
}

impl Etcd {
    /// The version that stood there at a time.
    pub fn at(&self, at: Ms) -> Option<&StateVersion> {
        self.versions.iter().rev().find(|(since, _)| *since <= at).map(|(_, version)| version)
    }

    /// `expect` 0: there is no key yet. `others`: changes of other keys before this one.
    pub fn change(&mut self, expect: u64, new: GroupState, check: RevisionCheck, others: u64, now: Ms) -> RegisterEvent {
        let present = self.versions.last().map(|(_, version)| version);
        if check == RevisionCheck::Compares && present.map_or(0, |version| version.number.counter) != expect {
            return RegisterEvent::Refused { decided: present.cloned() };
        }
        self.revision += 1 + others;
        self.changes += 1;
        let number = VersionNumber { counter: self.revision, by: MemberId::default() };
        let version = StateVersion { number, state: Arc::new(new) };
        if self.versions.len() >= VERSIONS_MAX {
            self.versions.remove(0);
        }
        self.versions.push((now, version.clone()));
        RegisterEvent::Changed(version)
    }
}
