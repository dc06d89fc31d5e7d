//! Rights that a member was given last, and how far it obeys what was taken since.

use crate::group_event::{MemberRights, RightsTaken};
use crate::group_state::{StateVersion, VersionNumber};
use crate::membership::GroupMs;

#[derive(Clone, Debug, Default)]
pub(crate) struct GivenRights {
    /// End and state of the last lease.
    granted: Option<(GroupMs, StateVersion)>,
    /// Of the process before this one, until the first confirmed read.
    inherited: MemberRights,
    /// As the caller was told.
    ordered: MemberRights,
    obeyed: VersionNumber,
    obeying: Option<VersionNumber>,
}

impl GivenRights {
    /// Rights that the process before this one was told. `taken`: something of it is not obeyed yet.
    pub(crate) fn take_over(&mut self, rights: MemberRights, taken: RightsTaken) {
        (self.inherited, self.ordered) = (rights, rights);
        self.obeying = (taken == RightsTaken::Something).then(VersionNumber::default);
    }

    /// The first version is told as one that takes something.
    pub(crate) fn obey_first(&mut self) {
        self.obeying = Some(VersionNumber::default());
    }

    pub(crate) fn inherited(&self) -> MemberRights {
        self.inherited
    }

    /// A former life of this member was told to give this up: it is to be obeyed still, before this one obeys its first version.
    pub(crate) fn obey_anew(&mut self, former: &GivenRights) {
        self.obeying = former.obeying.map(|_| VersionNumber::default());
    }

    /// Ends all rights now: what reads confirmed counts no more.
    pub(crate) fn end(&mut self) {
        (self.granted, self.inherited) = (None, MemberRights::default());
    }

    /// As the caller was told.
    pub(crate) fn ordered(&self) -> MemberRights {
        self.ordered
    }

    pub(crate) fn granted(&self) -> Option<&(GroupMs, StateVersion)> {
        self.granted.as_ref()
    }

    /// True if a read has shown this version.
    pub(crate) fn is_granted(&self, number: VersionNumber) -> bool {
        self.granted.as_ref().is_some_and(|(_, granted)| granted.number == number)
    }

    /// A lease of one version is never shortened.
    pub(crate) fn grant(&mut self, version: &StateVersion, until: GroupMs) {
        let longer = self.granted.as_ref().filter(|(_, granted)| granted.number == version.number).map_or(0, |(until, _)| *until);
        self.granted = Some((until.max(longer), version.clone()));
    }

    /// The caller is to have these rights, by this version. Returns what to tell it, if they changed.
    pub(crate) fn order(&mut self, known: VersionNumber, rights: MemberRights, now: GroupMs) -> Option<RightsTaken> {
        let was = std::mem::replace(&mut self.ordered, rights);
        let keeps = (was.leads.is_none() || was.leads == rights.leads) && (was.writes.is_none() || was.writes == rights.writes);
        let takes = now < was.until && !keeps;
        if takes || self.obeying.is_some_and(|obeying| obeying < known) {
            self.obeying = Some(known);
            return Some(RightsTaken::Something);
        }
        let taken = if self.obeying.is_some() { RightsTaken::Something } else { RightsTaken::Nothing };
        (rights != was).then_some(taken)
    }

    pub(crate) fn is_obeying(&self) -> bool {
        self.obeying.is_some()
    }

    /// This version takes nothing that is not done with.
    pub(crate) fn note_obeyed(&mut self, number: VersionNumber) {
        self.obeyed = number;
    }

    /// The caller is done with what this version takes.
    pub(crate) fn obey(&mut self, number: VersionNumber) {
        if self.obeying.take_if(|obeying| *obeying == number).is_some() {
            self.obeyed = number;
        }
    }

    pub(crate) fn obeyed(&self) -> VersionNumber {
        self.obeyed
    }
}
