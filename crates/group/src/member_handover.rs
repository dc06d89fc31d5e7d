//! A member moves from one process to another of its host (`--takeover`), and the former one keeps its sessions on rights that are passed on.
//!
//! The new process is the same member, restarted: it waits before it gives anything, as all restarted members do. Rights of before go on for it until its
//! first confirmed read, so that whatever a newer version takes is obeyed by both processes before it is told.

use std::fmt::Write;

use crate::group_event::{EngineKind, MemberIntent, MemberRights, NodeSights, RightsTaken};
use crate::group_member::{GroupMember, PeerSight};
use crate::group_state::{StateVersion, VersionNumber};
use crate::membership::{GroupMs, MemberId};
use crate::stored_vote::{VOTE_BYTES_MAX, parse_member, parse_number, show_member, show_number};

/// Longest text of a handover or of passed rights.
pub const HANDOVER_BYTES_MAX: usize = VOTE_BYTES_MAX + 256;

const HANDOVER_FORM: &str = "weir member handover 1";
const RIGHTS_FORM: &str = "weir member rights 1";

/// All that the next process of a member must know beside the state file. Times are of the clock that both processes share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberHandover {
    pub member: MemberId,
    pub engine: EngineKind,
    /// Newest version heard of, which may not be on disk: nothing that it takes is ever relied on again.
    pub known: Option<StateVersion>,
    pub is_decided: bool,
    pub rights: MemberRights,
    /// `Something`: what was taken is not obeyed yet.
    pub taken: RightsTaken,
    /// The virtual address is on this host by the doing of the process before.
    pub holds_address: bool,
    /// Ends of what processes before this one may still rely on; one for each.
    pub former_until: Vec<GroupMs>,
}

/// Rights that a process passes on to a former one of its member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PassedRights {
    pub until: GroupMs,
    /// Epoch and node.
    pub writes: Option<(u64, u16)>,
    /// A version to obey: the answer is awaited.
    pub obey: Option<VersionNumber>,
    /// Newest decided version, if it is news.
    pub version: Option<StateVersion>,
}

/// The other process is of another release, or no Weir.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the other process tells of its member in a form that this one cannot read")]
pub struct HandoverTextError;

impl MemberHandover {
    pub fn show(&self) -> String {
        let engine = match self.engine {
            EngineKind::Builtin => "builtin",
            EngineKind::Outside => "outside",
        };
        let taken = match self.taken {
            RightsTaken::Nothing => "nothing",
            RightsTaken::Something => "something",
        };
        let leads = self.rights.leads.map_or("-".into(), |term| term.to_string());
        let mut text = format!("{HANDOVER_FORM}\n{} {engine} {taken}\n", show_member(self.member));
        let _ = writeln!(text, "{} {leads} {}", self.rights.until, show_writes(self.rights.writes));
        let former: Vec<String> = self.former_until.iter().map(ToString::to_string).collect();
        let _ = writeln!(text, "former {}", former.join(" "));
        let decided = if self.is_decided { "decided" } else { "heard" };
        let _ = writeln!(text, "{decided} {}", if self.holds_address { "held" } else { "free" });
        text + &self.known.as_ref().map(StateVersion::show).unwrap_or_default()
    }

    pub fn parse(text: &str) -> Result<MemberHandover, HandoverTextError> {
        MemberHandover::read(text).ok_or(HandoverTextError)
    }

    fn read(text: &str) -> Option<MemberHandover> {
        let mut parts = text.splitn(6, '\n');
        let form = parts.next()?;
        let mut words = parts.next()?.split(' ');
        let member = parse_member(words.next()?)?;
        let engine = match words.next()? {
            "builtin" => EngineKind::Builtin,
            "outside" => EngineKind::Outside,
            _ => return None,
        };
        let taken = match words.next()? {
            "nothing" => RightsTaken::Nothing,
            "something" => RightsTaken::Something,
            _ => return None,
        };
        let (until, rest) = parts.next()?.split_once(' ')?;
        let (leads, writes) = rest.split_once(' ')?;
        let leads = if leads == "-" { None } else { Some(leads.parse().ok()?) };
        let rights = MemberRights { until: until.parse().ok()?, leads, writes: parse_writes(writes)? };
        let former = parts.next()?.strip_prefix("former")?.split_ascii_whitespace();
        let former_until = former.map(|end| end.parse().ok()).collect::<Option<Vec<GroupMs>>>()?;
        let (decided, address) = parts.next()?.split_once(' ')?;
        let (is_decided, holds_address) = (decided == "decided", address == "held");
        let known = parse_version(parts.next()?)?;
        let is_read = form == HANDOVER_FORM && words.next().is_none();
        is_read.then_some(MemberHandover { member, engine, known, is_decided, rights, taken, holds_address, former_until })
    }
}

impl PassedRights {
    pub fn show(&self) -> String {
        let obey = self.obey.map_or("-".into(), show_number);
        let version = self.version.as_ref().map(StateVersion::show).unwrap_or_default();
        format!("{RIGHTS_FORM}\n{}\n{}\n{obey}\n{version}", self.until, show_writes(self.writes))
    }

    pub fn parse(text: &str) -> Result<PassedRights, HandoverTextError> {
        PassedRights::read(text).ok_or(HandoverTextError)
    }

    fn read(text: &str) -> Option<PassedRights> {
        let mut parts = text.splitn(5, '\n');
        let form = parts.next()?;
        let (until, writes) = (parts.next()?.parse().ok()?, parse_writes(parts.next()?)?);
        let obey = match parts.next()? {
            "-" => None,
            number => Some(parse_number(number)?),
        };
        let version = parse_version(parts.next()?)?;
        (form == RIGHTS_FORM).then_some(PassedRights { until, writes, obey, version })
    }
}

impl VersionNumber {
    pub fn show(self) -> String {
        show_number(self)
    }

    pub fn parse(text: &str) -> Option<VersionNumber> {
        parse_number(text)
    }
}

fn show_writes(writes: Option<(u64, u16)>) -> String {
    writes.map_or("-".into(), |(epoch, node)| format!("{epoch} {node}"))
}

/// `Some(None)`: there are none.
fn parse_writes(text: &str) -> Option<Option<(u64, u16)>> {
    if text == "-" {
        return Some(None);
    }
    let (epoch, node) = text.split_once(' ')?;
    Some(Some((epoch.parse().ok()?, node.parse().ok()?)))
}

fn parse_version(text: &str) -> Option<Option<StateVersion>> {
    if text.is_empty() { Some(None) } else { StateVersion::parse(text.as_bytes()).ok().map(Some) }
}

impl GroupMember {
    /// State for the next process of this member, but for what the caller knows: the address and what former processes rely on. From then on no event may come to this one.
    pub fn handover(&self) -> MemberHandover {
        MemberHandover {
            member: self.id,
            engine: self.settings.engine,
            known: self.known.clone(),
            is_decided: self.is_decided,
            rights: self.given.ordered(),
            taken: if self.given.is_obeying() { RightsTaken::Something } else { RightsTaken::Nothing },
            holds_address: false,
            former_until: Vec::new(),
        }
    }

    /// Goes on as the member of a process before, right after `new` and the file of that one.
    pub fn take_over(&mut self, before: &MemberHandover, now: GroupMs) {
        if let Some(version) = before.known.clone() {
            if !self.is_outside() {
                self.register.learn_before(version.clone());
            }
            self.hear(version, now);
        }
        // The process before heard them: nobody is lost because this one has not yet.
        let others = self.known.iter().flat_map(|known| known.state.members.all()).filter(|id| *id != self.id);
        let (obeyed, intent, sights) = (VersionNumber::default(), MemberIntent::Serves, NodeSights::default());
        self.peers.extend(others.map(|id| (id, PeerSight { heard_at: now, obeyed, intent, sights })));
        self.given.take_over(before.rights, before.taken);
    }

    /// Begins beside a former process of this host that cannot be spoken to, right after `new` or `take_over`: the first version is obeyed like one that
    /// takes something, since that one may have what the version does not say.
    pub fn begin_beside_former(&mut self) {
        self.given.obey_first();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::group_event::{GroupAction, GroupEvent, GroupSettings, ShutdownFate};
    use crate::group_state::{GroupLead, GroupState, GroupWrites};
    use crate::group_step::group_step;
    use crate::membership::{GroupMembers, HalfVotes, MemberDuty, MemberRow};
    use crate::register::RegisterEvent;
    use crate::stored_vote::StoredVote;
    use std::sync::Arc;

    const OWN: MemberId = MemberId { host: 0, incarnation: 0xA0 };
    const OTHER: MemberId = MemberId { host: 1, incarnation: 0xB1 };
    const LEASE_MS: GroupMs = 2_000;

    /// This member leads, and writes go to node 2 in epoch 3.
    fn version(counter: u64) -> StateVersion {
        let row = |id| MemberRow { id, priority: 1, duty: MemberDuty::Serves };
        let state = GroupState {
            group: OWN,
            change: counter,
            members: GroupMembers::of(vec![row(OWN), row(OTHER)], HalfVotes::TooFew),
            lost: [].into(),
            lead: GroupLead::Held(OWN),
            term: 4,
            writes: GroupWrites::Open { epoch: 3, node: 2 },
            lease_ms: LEASE_MS,
            failover: "weir 1\n".into(),
            decisions: vec![],
            former: vec![],
        };
        StateVersion { number: VersionNumber { counter, by: OWN }, state: Arc::new(state) }
    }

    fn with(version: StateVersion, change: impl FnOnce(&mut GroupState)) -> StateVersion {
        let mut state = (*version.state).clone();
        change(&mut state);
        StateVersion { state: Arc::new(state), ..version }
    }

    fn handover(known: StateVersion) -> MemberHandover {
        MemberHandover {
            member: OWN,
            engine: EngineKind::Outside,
            known: Some(known),
            is_decided: true,
            rights: MemberRights { until: 1_500, leads: Some(4), writes: Some((3, 2)) },
            taken: RightsTaken::Nothing,
            holds_address: true,
            former_until: vec![1_400, 0],
        }
    }

    fn taken_over(before: &MemberHandover) -> GroupMember {
        let settings = GroupSettings {
            host: OWN.host,
            hosts: vec![0, 1],
            priority: 1,
            duty: MemberDuty::Serves,
            half_votes: HalfVotes::TooFew,
            lease_ms: LEASE_MS,
            no_show_ms: None,
            lost_removal_ms: None,
            shutdowns: ShutdownFate::Stays,
            engine: EngineKind::Outside,
            without: None,
        };
        let mut member = GroupMember::new(settings, StoredVote::new(OWN), 1 << 40, 1_000);
        member.take_over(before, 1_000);
        member
    }

    fn rights_of(actions: &[GroupAction]) -> Option<(MemberRights, RightsTaken)> {
        actions.iter().rev().find_map(|action| match action {
            GroupAction::Rights { rights, obey, .. } => Some((*rights, *obey)),
            _ => None,
        })
    }

    fn step(member: &mut GroupMember, event: RegisterEvent, now: GroupMs) -> Option<(MemberRights, RightsTaken)> {
        rights_of(&group_step(member, GroupEvent::Engine(event), now))
    }

    #[test]
    fn a_handover_and_passed_rights_are_read_as_they_were_written() {
        let plain = handover(version(7));
        let bare = MemberHandover {
            engine: EngineKind::Builtin,
            known: None,
            is_decided: false,
            rights: MemberRights::default(),
            taken: RightsTaken::Something,
            former_until: vec![],
            ..plain.clone()
        };
        for text in [plain, bare] {
            assert_eq!(MemberHandover::parse(&text.show()), Ok(text.clone()));
            assert!(text.show().len() <= HANDOVER_BYTES_MAX);
        }
        let rights = PassedRights { until: 9, writes: Some((3, 2)), obey: Some(version(8).number), version: Some(version(8)) };
        let none = PassedRights { until: 0, writes: None, obey: None, version: None };
        for text in [rights, none] {
            assert_eq!(PassedRights::parse(&text.show()), Ok(text.clone()));
        }
    }

    #[test]
    fn a_text_that_is_torn_at_any_byte_is_no_other_handover() {
        let (text, whole) = (handover(version(7)).show(), handover(version(7)));
        for at in 0..text.len() {
            let read = MemberHandover::parse(&text[..at]);
            assert!(read.is_err() || read.is_ok_and(|read| read.known.is_none() && read.rights == whole.rights), "torn at {at}");
        }
        assert_eq!(PassedRights::parse("weir member rights 2\n1\n-\n-\n"), Err(HandoverTextError));
        assert_eq!(VersionNumber::parse("7 0"), None);
    }

    #[test]
    fn rights_go_on_until_the_first_confirmed_read_and_then_by_it() {
        let mut member = taken_over(&handover(version(7)));
        assert!(member.leads(1_499) && !member.leads(1_500), "not longer than before");
        let shown = RegisterEvent::Shown { version: version(7), asked_at: 1_010 };
        let rights = MemberRights { until: 1_010 + LEASE_MS, leads: Some(4), writes: Some((3, 2)) };
        assert_eq!(step(&mut member, shown, 1_020), Some((rights, RightsTaken::Nothing)));
    }

    #[test]
    fn others_are_not_lost_before_this_process_could_hear_them() {
        let mut member = taken_over(&handover(version(7)));
        assert!(!member.is_silent(OTHER, 1_000 + LEASE_MS / 2) && member.is_silent(OTHER, 1_001 + LEASE_MS / 2));
        let shown = RegisterEvent::Shown { version: version(7), asked_at: 1_010 };
        let actions = group_step(&mut member, GroupEvent::Engine(shown), 1_020);
        assert!(!actions.iter().any(|action| matches!(action, GroupAction::ChangeEngine { .. })), "{actions:?}");
    }

    #[test]
    fn a_newer_version_takes_what_the_former_process_may_still_have() {
        let closed = with(version(8), |state| state.writes = GroupWrites::Closed { epoch: 3 });
        let mut member = taken_over(&handover(version(7)));
        let (rights, obey) = step(&mut member, RegisterEvent::Heard(closed.clone()), 1_010).expect("it is told");
        assert_eq!((rights.writes, rights.leads, obey), (None, Some(4), RightsTaken::Something));
        assert!(member.given.obeyed() < closed.number, "not before it is done");
        group_step(&mut member, GroupEvent::Obeyed { number: closed.number }, 1_020);
        assert_eq!(member.given.obeyed(), closed.number);
    }

    #[test]
    fn nothing_is_obeyed_before_the_former_process_has_obeyed_what_was_taken_from_it() {
        let closed = with(version(8), |state| state.writes = GroupWrites::Closed { epoch: 3 });
        let rights = MemberRights { until: 1_500, leads: Some(4), writes: None };
        let mut member = taken_over(&MemberHandover { rights, taken: RightsTaken::Something, ..handover(closed.clone()) });
        let told = step(&mut member, RegisterEvent::Heard(closed.clone()), 1_010);
        assert_eq!(told, Some((rights, RightsTaken::Something)));
        assert_eq!(member.given.obeyed(), VersionNumber::default());
    }

    #[test]
    fn a_member_that_is_started_beside_a_former_process_does_not_obey_by_itself() {
        let settings = taken_over(&handover(version(7))).settings;
        let mut member = GroupMember::new(settings, StoredVote::new(OWN), 1 << 40, 1_000);
        member.begin_beside_former();
        let told = step(&mut member, RegisterEvent::Shown { version: version(7), asked_at: 1_010 }, 1_020);
        assert_eq!(told.map(|(_, obey)| obey), Some(RightsTaken::Something));
        assert!(member.given.obeyed() < version(7).number);
        group_step(&mut member, GroupEvent::Obeyed { number: version(7).number }, 1_030);
        assert_eq!(member.given.obeyed(), version(7).number);
    }

    #[test]
    fn a_version_that_was_only_heard_of_binds_the_next_process() {
        // On the disk is version 7, and others were told already that 8 is obeyed.
        let lost = with(version(8), |state| state.lead = GroupLead::Taken { from: Some(OWN), to: OTHER });
        let rights = MemberRights { until: 1_500, leads: None, writes: Some((3, 2)) };
        let mut member = taken_over(&MemberHandover { rights, is_decided: false, ..handover(lost) });
        assert_eq!(step(&mut member, RegisterEvent::Shown { version: version(7), asked_at: 1_010 }, 1_020), None);
        assert!(!member.leads(1_020));
    }
}
