//! Two processes of one member after a takeover: what the newer one must expect of the former one, and what the former one still has.
//!
//! A version that takes something is obeyed only after each former process has obeyed it, or holds nothing any more: by the end of what it was passed,
//! by the clock that all processes of a machine share, or by its own end.

use crate::group_event::{MemberRights, RightsTaken};
use crate::group_state::{StateVersion, VersionNumber};
use crate::member_handover::{MemberHandover, PassedRights};
use crate::membership::GroupMs;

/// Beside the end of passed rights: a worker reads the clock before it lets an answer go.
pub const PASS_ON_MS: GroupMs = 100;

/// Rights of a former process, as far as the newer one must expect. `until`: the end of all that it may rely on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FormerStanding {
    Holds {
        until: GroupMs,
    },
    /// Its rights of before end with `until`; rights that it was passed beside the order, less those that are taken, with `later`.
    Obeys {
        number: VersionNumber,
        until: GroupMs,
        later: GroupMs,
    },
    Obeyed {
        number: VersionNumber,
        until: GroupMs,
    },
    Ended,
}

impl FormerStanding {
    /// After these rights were passed.
    pub fn passed(self, passed_until: GroupMs, obey: Option<VersionNumber>) -> FormerStanding {
        let (until, later) = match self {
            FormerStanding::Holds { until } | FormerStanding::Obeyed { until, .. } => (until, until),
            FormerStanding::Obeys { until, later, .. } => (until, later),
            FormerStanding::Ended => return self,
        };
        match (self, obey) {
            (_, None) => FormerStanding::Holds { until: later.max(passed_until) },
            (FormerStanding::Obeyed { number, .. }, Some(same)) if number == same => {
                FormerStanding::Obeyed { number, until: until.max(passed_until) }
            }
            (_, Some(number)) => FormerStanding::Obeys { number, until, later: later.max(passed_until) },
        }
    }

    pub fn said(self, said: VersionNumber) -> FormerStanding {
        match self {
            FormerStanding::Obeys { number, later, .. } if number == said => FormerStanding::Obeyed { number, until: later },
            FormerStanding::Holds { .. }
            | FormerStanding::Obeys { .. }
            | FormerStanding::Obeyed { .. }
            | FormerStanding::Ended => self,
        }
    }

    pub fn until(self) -> GroupMs {
        match self {
            FormerStanding::Holds { until } | FormerStanding::Obeyed { until, .. } => until,
            FormerStanding::Obeys { until, later, .. } => until.max(later),
            FormerStanding::Ended => 0,
        }
    }

    /// True if nothing is left of what this version takes.
    pub fn has_obeyed(self, taking: VersionNumber, now: GroupMs) -> bool {
        match self {
            FormerStanding::Ended => true,
            FormerStanding::Obeyed { number, .. } if number == taking => true,
            FormerStanding::Holds { until } | FormerStanding::Obeys { until, .. } | FormerStanding::Obeyed { until, .. } => {
                now >= until + PASS_ON_MS
            }
        }
    }
}

/// A former process: the state of its member at the handover, and since then what it was passed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FormerMember {
    pub version: Option<StateVersion>,
    pub rights: MemberRights,
    /// Writes that this version takes are to end here.
    pub obeying: Option<VersionNumber>,
    pub obeyed: Option<VersionNumber>,
    pub before: MemberHandover,
}

impl FormerMember {
    /// Takes what the newer process passes on. Returns the version to answer for: the answer of before was lost, or given to another process.
    pub fn take(&mut self, passed: PassedRights) -> Option<VersionNumber> {
        let PassedRights { until, writes, obey, version } = passed;
        self.rights = MemberRights { until, leads: None, writes };
        self.version = version.or(self.version.take());
        let again = obey.filter(|number| self.obeyed == Some(*number));
        if again.is_none() {
            self.obeying = obey.or(self.obeying);
        }
        again
    }

    /// Writes that this version takes have ended here. Returns the version to answer for.
    pub fn obey(&mut self, number: VersionNumber) -> Option<VersionNumber> {
        let obeyed = self.obeying.take_if(|obeying| *obeying == number);
        self.obeyed = obeyed.or(self.obeyed);
        obeyed
    }

    /// Rights for the workers, if they get others. As for those of a member: until they are done with what was taken, the former rights run out.
    pub fn granted(&self) -> Option<MemberRights> {
        self.obeying.is_none().then_some(self.rights)
    }

    /// The newer process is gone before it served: this one is the member again, restarted. The other one may have given up the lead and the address meanwhile.
    pub fn back(self) -> MemberHandover {
        let known = match (self.before.known, self.version) {
            (Some(before), Some(passed)) if passed.number > before.number => Some(passed),
            (Some(before), _) => Some(before),
            (None, passed) => passed,
        };
        let taken = if self.obeying.is_some() { RightsTaken::Something } else { RightsTaken::Nothing };
        MemberHandover {
            known,
            is_decided: false,
            rights: MemberRights { leads: None, ..self.rights },
            taken,
            holds_address: false,
            former_until: Vec::new(),
            ..self.before
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(counter: u64) -> VersionNumber {
        VersionNumber { counter, ..VersionNumber::default() }
    }

    #[test]
    fn a_version_is_obeyed_by_the_answer_to_it_and_by_no_other() {
        let asked = FormerStanding::Holds { until: 2_000 }.passed(2_250, Some(number(8)));
        assert!(!asked.has_obeyed(number(8), 1_000));
        assert!(!asked.said(number(7)).has_obeyed(number(8), 1_000), "an answer to an earlier one");
        assert!(asked.said(number(8)).has_obeyed(number(8), 1_000));
        let renewed = asked.said(number(8)).passed(2_500, Some(number(8)));
        assert!(renewed.has_obeyed(number(8), 1_000), "a renewal beside the same order");
        let next = renewed.passed(2_750, Some(number(9)));
        assert!(!next.has_obeyed(number(9), 1_000) && next.until() == 2_750, "{next:?}");
    }

    #[test]
    fn without_an_answer_a_version_is_obeyed_when_the_rights_of_before_are_over() {
        let asked = FormerStanding::Holds { until: 2_000 }.passed(2_250, Some(number(8))).passed(9_000, Some(number(8)));
        assert!(!asked.has_obeyed(number(8), 2_000 + PASS_ON_MS - 1));
        assert!(asked.has_obeyed(number(8), 2_000 + PASS_ON_MS), "renewals do not hold what is taken");
        let again = asked.passed(9_500, None);
        assert!(!again.has_obeyed(number(9), 9_500), "they do hold what was not taken: {again:?}");
    }

    #[test]
    fn a_process_that_ended_has_obeyed_and_one_that_was_passed_nothing_has_nothing() {
        assert!(FormerStanding::Ended.passed(9_000, None).has_obeyed(number(8), 0));
        assert!(FormerStanding::Holds { until: 0 }.has_obeyed(number(8), PASS_ON_MS));
        assert!(!FormerStanding::Holds { until: 0 }.passed(9_000, None).has_obeyed(number(8), 8_000));
    }
}
