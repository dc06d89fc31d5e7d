//! Losses that may never be seen: found by the disks, and by the acts of hosts at one instant of true time.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use weir_group::{GroupMembers, GroupState, MemberId, MemberRights, MemberSet, StateVersion, VersionNumber};

#[derive(Default)]
pub struct Oracle {
    accepted: HashMap<VersionNumber, (StateVersion, MemberSet)>,
    /// Decided versions, by number.
    pub decided: BTreeMap<VersionNumber, Arc<GroupState>>,
    changes: HashMap<u64, Arc<GroupState>>,
    /// Some promotion began for this epoch: nobody may write in an older one.
    stopped_before: u64,
    pub found: Option<String>,
}

impl Oracle {
    pub fn fail(&mut self, why: String) {
        self.found.get_or_insert(why);
    }

    pub fn newest(&self) -> Option<&Arc<GroupState>> {
        self.decided.values().next_back()
    }

    pub fn newest_members(&self) -> Option<&GroupMembers> {
        self.newest().map(|state| &state.members)
    }

    /// A version is on a disk.
    pub fn on_disk(&mut self, id: MemberId, version: &StateVersion) {
        let entry = self.accepted.entry(version.number).or_insert_with(|| (version.clone(), MemberSet::new()));
        if entry.0.state != version.state {
            return self.fail(format!("two states under one number {:?}", version.number));
        }
        entry.1.insert(id);
        // A founder's proposal decides nothing: the version after it needs all promises.
        if version.number.counter == 0 || self.decided.contains_key(&version.number) || !version.is_quorum(&entry.1, None) {
            return;
        }
        let change = version.state.change;
        if *self.changes.entry(change).or_insert_with(|| version.state.clone()) != version.state {
            return self.fail(format!("change {change} was decided twice"));
        }
        let before = self.decided.range(..version.number).next_back().is_some_and(|(_, state)| state.change > change);
        let after = self.decided.range(version.number..).next().is_some_and(|(_, state)| state.change < change);
        let has_base = change <= 1 || self.changes.contains_key(&(change - 1));
        if before || after || !has_base {
            return self.fail(format!("change {change} does not follow what was decided: a decided version is lost"));
        }
        self.decided.insert(version.number, version.state.clone());
    }

    /// A member believes that a version is decided.
    pub fn believed(&mut self, id: MemberId, version: &StateVersion) {
        if version.number.counter > 0 && self.decided.get(&version.number).is_none_or(|state| *state != version.state) {
            self.fail(format!("{id:?} acts on version {:?} that no quorum has", version.number));
        }
    }

    /// True if a leader was told that writes of this epoch stopped.
    pub fn has_stopped(&self, epoch: u64) -> bool {
        epoch < self.stopped_before
    }

    pub fn writes_stopped(&mut self, epoch: u64) {
        self.stopped_before = self.stopped_before.max(epoch + 1);
    }

    /// Rights as hosts act on them in this instant.
    pub fn look(&mut self, acting: impl Iterator<Item = (usize, MemberRights)>) {
        let mut leader: Option<usize> = None;
        let mut open: Option<(u64, u16)> = None;
        for (host, rights) in acting {
            if rights.leads.is_some() {
                if let Some(other) = leader {
                    self.fail(format!("hosts {other} and {host} lead at once"));
                }
                leader = Some(host);
            }
            let Some(writes) = rights.writes else { continue };
            if open.is_some_and(|other| other != writes) {
                self.fail(format!("writes to two nodes: {open:?} and {writes:?}"));
            }
            if writes.0 < self.stopped_before {
                self.fail(format!("host {host} writes in epoch {} after it was stopped", writes.0));
            }
            open = Some(writes);
        }
    }
}
