//! Founders of groups, and hosts that may not found one.

use std::collections::VecDeque;
use std::sync::Arc;

use weir_group::{
    EngineKind, FormingOrder, FormingRefusal, GroupAction, GroupEvent, GroupLead, GroupMember, GroupMessage, GroupMs,
    GroupRequest, GroupSettings, GroupState, HalfVotes, MemberDuty, MemberId, MemberIntent, MessagePart, NodeSights,
    RegisterMessage, RemovalSettings, ServerMark, ShutdownFate, StateVersion, StoredVote, VersionNumber, group_step,
};

fn settings(host: u8, configured: u8, no_show_ms: Option<GroupMs>) -> GroupSettings {
    GroupSettings {
        host,
        hosts: (0..configured).collect(),
        priority: 1,
        duty: MemberDuty::Serves,
        half_votes: HalfVotes::TooFew,
        lease_ms: 2_000,
        no_show_ms,
        lost_removal_ms: None,
        shutdowns: ShutdownFate::Stays,
        engine: EngineKind::Builtin,
        without: None,
    }
}

struct Hosts {
    members: Vec<GroupMember>,
    files: Vec<String>,
    mark: ServerMark,
    /// The answer to the last order to form a group.
    formed: Option<Result<(), FormingRefusal>>,
    /// Hosts that heard that their group was replaced, and by whom.
    replaced: Vec<(usize, u8)>,
}

impl Hosts {
    /// Hosts from 0 on that are here, of all that are configured.
    fn new(here: u8, configured: u8, no_show_ms: Option<GroupMs>, mark: ServerMark) -> Hosts {
        let stored = |host| StoredVote::new(MemberId { host, incarnation: 5 });
        let member = |host| GroupMember::new(settings(host, configured, no_show_ms), stored(host), 0, 0);
        Hosts {
            members: (0..here).map(member).collect(),
            files: vec![String::new(); usize::from(here)],
            mark,
            formed: None,
            replaced: Vec::new(),
        }
    }

    /// All are started again, with their files and this setting.
    fn restart(&mut self, half_votes: HalfVotes, now: GroupMs) {
        let configured = self.members.len() as u8;
        for (host, member) in self.members.iter_mut().enumerate() {
            let stored = StoredVote::parse(self.files[host].as_bytes()).expect("a whole file");
            let settings = GroupSettings { half_votes, ..settings(host as u8, configured, None) };
            *member = GroupMember::new(settings, stored, 1 << 32, now);
        }
    }

    fn step(&mut self, host: usize, event: GroupEvent, now: GroupMs) {
        let mut events = VecDeque::from([(host, event)]);
        while let Some((host, event)) = events.pop_front() {
            let Some(member) = self.members.get_mut(host) else { continue };
            for action in group_step(member, event, now) {
                match action {
                    GroupAction::Send { host: to, message } => events.push_back((usize::from(to), GroupEvent::Message(message))),
                    GroupAction::Write { number, text } => {
                        self.files[host] = text;
                        events.push_back((host, GroupEvent::Written { number }));
                    }
                    GroupAction::Formed { answer, .. } => self.formed = Some(answer),
                    GroupAction::Replaced { by } => self.replaced.push((host, by)),
                    GroupAction::Rights { .. }
                    | GroupAction::State(_)
                    | GroupAction::WritesStopped { .. }
                    | GroupAction::Answer { .. }
                    | GroupAction::Act { .. }
                    | GroupAction::Acted { .. }
                    | GroupAction::ReadEngine
                    | GroupAction::ChangeEngine { .. }
                    | GroupAction::CreateEngine { .. } => {}
                }
            }
        }
    }

    fn go_on(&mut self, until: GroupMs) {
        let all: Vec<usize> = (0..self.members.len()).collect();
        self.go_on_with(&all, 0..until);
    }

    fn go_on_from(&mut self, from: GroupMs, until: GroupMs) {
        let all: Vec<usize> = (0..self.members.len()).collect();
        self.go_on_with(&all, from..until);
    }

    /// The others stand still, though they hear and answer.
    fn go_on_with(&mut self, hosts: &[usize], times: std::ops::Range<GroupMs>) {
        for now in times.step_by(50) {
            for &host in hosts {
                self.step(host, GroupEvent::Founding { text: format!("text of {host}"), mark: self.mark }, now);
                self.step(host, GroupEvent::Tick { dice: now as u32 }, now);
            }
        }
    }
}

fn check_formed(here: u8, no_show_ms: Option<GroupMs>, mark: ServerMark, members: Option<usize>) {
    let mut hosts = Hosts::new(here, 3, no_show_ms, mark);
    hosts.go_on(5_000);
    let known = hosts.members[0].known().map(|known| known.state.members.voters.len());
    assert_eq!(known, members, "{here} of 3 hosts, {no_show_ms:?}, {mark:?}");
    let Some(version) = hosts.members[0].known().filter(|_| members.is_some()) else { return };
    assert_eq!(version.state.lead, GroupLead::Held(MemberId { host: 0, incarnation: 5 }));
    assert_eq!(version.state.failover, "text of 0");
    for file in &hosts.files {
        let accepted = StoredVote::parse(file.as_bytes()).expect("a whole file").accepted;
        assert_eq!(accepted.as_ref(), Some(version));
    }
}

#[test]
fn the_lowest_host_founds_a_group_when_it_heard_all() {
    check_formed(3, None, ServerMark::Unseen, Some(3));
    check_formed(3, None, ServerMark::Marked, Some(3));
    check_formed(2, None, ServerMark::Unmarked, None);
}

#[test]
fn a_majority_founds_a_group_after_the_timeout_unless_a_server_bears_a_mark() {
    check_formed(2, Some(1_000), ServerMark::Unmarked, Some(2));
    check_formed(2, Some(1_000), ServerMark::Marked, None);
    check_formed(2, Some(1_000), ServerMark::Unseen, None);
    check_formed(1, Some(1_000), ServerMark::Unmarked, None);
}

#[test]
fn a_host_that_was_removed_is_admitted_again_when_it_runs_anew_with_its_file() {
    let mut hosts = Hosts::new(3, 3, None, ServerMark::Unseen);
    hosts.go_on(4_000);
    let voters = |hosts: &Hosts| hosts.members[0].known().map(|known| known.state.members.voters.len());
    hosts.members.truncate(2);
    hosts.go_on_from(4_000, 8_000);
    let rows = hosts.members.iter().map(GroupMember::row).collect();
    hosts.step(0, GroupEvent::Request { ticket: 1, request: GroupRequest::ChangeMembers { rows } }, 8_000);
    hosts.go_on_from(8_000, 12_000);
    assert_eq!(voters(&hosts), Some(2));
    let stored = StoredVote::parse(hosts.files[2].as_bytes()).expect("a whole file");
    hosts.members.push(GroupMember::new(settings(2, 3, None), stored, 1 << 32, 12_000));
    hosts.go_on_from(12_000, 16_000);
    assert_eq!(voters(&hosts), Some(3));
}

#[test]
fn a_host_whose_file_cannot_be_written_says_nothing_more() {
    let mut hosts = Hosts::new(3, 3, None, ServerMark::Unseen);
    hosts.go_on(3_000);
    let silent = group_step(&mut hosts.members[1], GroupEvent::WriteFailed, 3_000);
    assert!(silent.is_empty());
    for now in (3_050..6_000).step_by(50) {
        let actions = group_step(&mut hosts.members[1], GroupEvent::Tick { dice: 1 }, now);
        let is_word = |action: &GroupAction| matches!(action, GroupAction::Send { .. } | GroupAction::Write { .. });
        assert!(!actions.iter().any(is_word), "{actions:?}");
    }
}

#[test]
fn a_host_with_the_casting_vote_leaves_it_to_the_others_when_it_stops() {
    let mut hosts = Hosts::new(2, 2, None, ServerMark::Unmarked);
    hosts.go_on(5_000);
    hosts.restart(HalfVotes::LowestCasts, 5_000);
    hosts.go_on_with(&[0, 1], 5_000..10_000);
    let casting = |hosts: &Hosts| hosts.members[1].known().map(|known| known.state.members.casting());
    assert_eq!(casting(&hosts), Some(Some(MemberId { host: 0, incarnation: 5 })), "the setting is followed");
    hosts.step(0, GroupEvent::Intent(MemberIntent::ShutsDown), 10_000);
    // This harness never says that a member obeys: leases must be over.
    hosts.go_on_with(&[0, 1], 10_000..20_000);
    hosts.members.remove(0);
    hosts.members.insert(0, GroupMember::new(settings(9, 2, None), StoredVote::new(MemberId { host: 9, incarnation: 5 }), 0, 0));
    hosts.go_on_with(&[1], 20_000..30_000);
    let known = hosts.members[1].known().expect("a version").state.clone();
    let left = MemberId { host: 1, incarnation: 5 };
    assert_eq!(known.members.voters.iter().collect::<Vec<_>>(), [&left]);
    assert_eq!((&known.lead, casting(&hosts)), (&GroupLead::Held(left), Some(None)));
    assert!(hosts.members[1].leads(29_950), "alone");
}

#[test]
fn a_reload_changes_when_lost_hosts_are_removed() {
    let mut hosts = Hosts::new(3, 3, None, ServerMark::Unseen);
    hosts.go_on(4_000);
    hosts.members.truncate(2);
    hosts.go_on_from(4_000, 12_000);
    let voters = |hosts: &Hosts| hosts.members[0].known().map(|known| known.state.members.voters.len());
    assert_eq!(voters(&hosts), Some(3), "lost, and never removed");
    let removals = RemovalSettings { no_show_ms: None, lost_removal_ms: Some(1_000), shutdowns: ShutdownFate::Stays };
    for host in 0..2 {
        hosts.step(host, GroupEvent::Removals(removals), 12_000);
    }
    hosts.go_on_from(12_000, 16_000);
    assert_eq!(voters(&hosts), Some(2));
}

fn id(host: u8) -> MemberId {
    MemberId { host, incarnation: 5 }
}

const ALONE: FormingOrder = FormingOrder::Alone { incarnation: 99, first_number: 1 << 40 };

impl Hosts {
    fn order(&mut self, host: usize, order: FormingOrder, now: GroupMs) -> Result<(), FormingRefusal> {
        self.step(host, GroupEvent::Form { ticket: 7, order }, now);
        self.formed.take().expect("an answer")
    }

    fn state(&self, host: usize) -> GroupState {
        (*self.members[host].known().expect("a version").state).clone()
    }

    /// Three hosts in a group that wrote in an epoch, of which the last two are lost.
    fn bereft() -> Hosts {
        let mut hosts = Hosts::new(3, 3, None, ServerMark::Marked);
        hosts.go_on(3_000);
        let text = GroupRequest::StoreText { text: "newest text".into() };
        let open = GroupRequest::OpenWrites { epoch: 1, node: 4, decision: None };
        for (ticket, request) in (1..).zip([text, open]) {
            hosts.step(0, GroupEvent::Request { ticket, request }, 3_000);
        }
        hosts.go_on_from(3_000, 4_000);
        assert_eq!(hosts.state(0).writes.open(), Some((1, 4)));
        hosts.members.truncate(1);
        hosts.go_on_from(4_000, 8_000);
        assert!(!hosts.members[0].leads(8_000));
        hosts
    }

    fn start(&mut self, stored: StoredVote, now: GroupMs) {
        let host = stored.member.host;
        self.members.push(GroupMember::new(settings(host, 3, None), stored, 1 << 50, now));
    }
}

#[test]
fn by_force_the_last_member_goes_on_alone_after_a_lease_and_knows_what_it_knew() {
    let mut hosts = Hosts::bereft();
    let before = hosts.state(0);
    assert_eq!(hosts.order(0, FormingOrder::Majority, 8_000), Err(FormingRefusal::NeedsForce { heard: 1, of: 3 }));
    assert_eq!(hosts.order(0, ALONE, 8_000), Ok(()));
    let new = MemberId { host: 0, incarnation: 99 };
    assert_eq!(hosts.members[0].id(), new);
    for now in (8_000..10_100).step_by(50) {
        hosts.go_on_from(now, now + 50);
        assert!(!hosts.members[0].leads(now), "whoever led may still act, {} ms after the order", now - 8_000);
    }
    hosts.go_on_from(10_100, 11_000);
    assert!(hosts.members[0].leads(10_950));
    let after = hosts.state(0);
    assert_eq!((after.group, after.former.clone()), (new, vec![before.group]));
    assert_eq!(after.members.voters.iter().collect::<Vec<_>>(), [&new]);
    assert!(after.term > before.term + 1_000_000 && after.writes.closed() > Some(1_000_000), "{after:?}");
    assert_eq!(after.failover, "newest text");
    let stored = StoredVote::parse(hosts.files[0].as_bytes()).expect("a whole file");
    assert_eq!((stored.member, stored.group), (new, Some(new)), "a restart goes on with it");
}

#[test]
fn hosts_without_their_files_become_members_of_the_group_that_was_formed_by_force() {
    let mut hosts = Hosts::bereft();
    assert_eq!(hosts.order(0, ALONE, 8_000), Ok(()));
    // They are started before the new group has a leader, and might found one of their own.
    for host in [1, 2] {
        hosts.start(StoredVote::new(MemberId { host, incarnation: 6 }), 8_100);
    }
    hosts.go_on_from(8_100, 16_000);
    assert_eq!(hosts.state(0).members.voters.len(), 3);
    assert!((1..3).all(|host| hosts.state(host).group == MemberId { host: 0, incarnation: 99 }));
    assert!(hosts.replaced.is_empty());
}

#[test]
fn members_of_the_former_group_that_come_back_with_their_files_do_nothing_and_say_so() {
    let mut hosts = Hosts::bereft();
    assert_eq!(hosts.order(0, ALONE, 8_000), Ok(()));
    hosts.go_on_from(8_000, 11_000);
    for host in [1, 2] {
        let stored = StoredVote::parse(hosts.files[host].as_bytes()).expect("a whole file");
        hosts.start(stored, 11_000);
    }
    for now in (11_000..20_000).step_by(50) {
        hosts.go_on_from(now, now + 50);
        assert!(!hosts.members[1].leads(now) && !hosts.members[2].leads(now));
    }
    assert_eq!(hosts.replaced, [(1, 0), (2, 0)]);
    assert!(hosts.members[0].leads(19_950));
    assert_eq!(hosts.state(0).members.voters.len(), 1);
}

#[test]
fn force_is_refused_while_a_majority_answers_or_did_within_a_lease() {
    let mut hosts = Hosts::new(3, 3, None, ServerMark::Marked);
    hosts.go_on(5_000);
    for (host, order) in [(0, ALONE), (1, ALONE), (2, FormingOrder::Majority)] {
        assert_eq!(hosts.order(host, order, 5_000), Err(FormingRefusal::Works { heard: 3, of: 3 }));
    }
    hosts.members.truncate(2);
    hosts.go_on_from(5_000, 8_000);
    assert_eq!(hosts.order(0, ALONE, 8_000), Err(FormingRefusal::Works { heard: 2, of: 3 }));
    hosts.members.truncate(1);
    hosts.go_on_from(8_000, 9_500);
    assert_eq!(hosts.order(0, ALONE, 9_500), Err(FormingRefusal::Works { heard: 1, of: 3 }), "the lease runs");
    hosts.go_on_from(9_500, 10_500);
    assert_eq!(hosts.order(0, ALONE, 10_500), Ok(()));
}

#[test]
fn force_is_refused_where_it_cannot_help() {
    let fresh = |change: fn(&mut GroupSettings), stored: StoredVote| {
        let mut settings = settings(0, 3, None);
        change(&mut settings);
        Hosts {
            members: vec![GroupMember::new(settings, stored, 1 << 32, 20_000)],
            files: vec![String::new()],
            mark: ServerMark::Marked,
            formed: None,
            replaced: Vec::new(),
        }
    };
    let stored = StoredVote::parse(Hosts::bereft().files[0].as_bytes()).expect("a whole file");
    type Change = fn(&mut GroupSettings);
    let cases: [(Change, StoredVote, GroupMs, Result<(), FormingRefusal>); 6] = [
        (|_| {}, StoredVote::new(id(0)), 30_000, Err(FormingRefusal::NoState)),
        (|_| {}, stored.clone(), 23_900, Err(FormingRefusal::TooEarly(4_000))),
        (|_| {}, stored.clone(), 24_000, Ok(())),
        (|settings| settings.priority = 0, stored.clone(), 30_000, Err(FormingRefusal::NeverLeads)),
        (|settings| settings.duty = MemberDuty::Witness, stored.clone(), 30_000, Err(FormingRefusal::NeverLeads)),
        (|settings| settings.engine = EngineKind::Outside, stored, 30_000, Err(FormingRefusal::Outside)),
    ];
    for (change, stored, now, expected) in cases {
        let mut hosts = fresh(change, stored);
        assert_eq!(hosts.order(0, ALONE, now), expected);
    }
    let mut hosts = Hosts::bereft();
    hosts.step(0, GroupEvent::WriteFailed, 8_000);
    assert_eq!(hosts.order(0, ALONE, 8_000), Err(FormingRefusal::NoVote));
}

#[test]
fn an_operator_orders_a_group_of_most_hosts_where_a_server_bears_a_mark_or_hosts_are_missing() {
    for mark in [ServerMark::Marked, ServerMark::Unseen] {
        let mut hosts = Hosts::new(2, 3, None, mark);
        hosts.go_on(3_000);
        assert!(hosts.members[0].known().is_none(), "not by itself");
        assert_eq!(hosts.order(1, FormingOrder::Majority, 3_000), Err(FormingRefusal::NotLowest(0)));
        assert_eq!(hosts.order(0, FormingOrder::Majority, 3_000), Ok(()));
        hosts.go_on_from(3_000, 6_000);
        assert!(hosts.members[0].leads(5_950));
        assert_eq!(hosts.state(1).members.voters.len(), 2);
    }
    let mut hosts = Hosts::new(1, 3, None, ServerMark::Marked);
    hosts.go_on(3_000);
    assert_eq!(hosts.order(0, FormingOrder::Majority, 3_000), Err(FormingRefusal::TooFew { heard: 1, of: 3 }));
}

#[test]
fn hosts_with_a_long_lease_hear_each_other_and_form_a_group() {
    let mut hosts = Hosts::new(3, 3, None, ServerMark::Unseen);
    for (host, member) in hosts.members.iter_mut().enumerate() {
        let settings = GroupSettings { lease_ms: 20_000, ..settings(host as u8, 3, None) };
        *member = GroupMember::new(settings, StoredVote::new(id(host as u8)), 0, 0);
    }
    hosts.go_on(40_000);
    assert!(hosts.members[0].leads(39_950));
    assert_eq!(hosts.state(2).members.voters.len(), 3);
}

/// A member that dies before its disk has what it told to obey would come back without knowing of it, and could take it back from an older version.
#[test]
fn nothing_is_told_to_be_obeyed_before_it_is_on_disk() {
    let mut hosts = Hosts::new(2, 2, None, ServerMark::Unseen);
    hosts.go_on(6_000);
    let before = hosts.members[1].known().expect("a version").clone();
    assert!(hosts.members[0].leads(5_950));
    let mut state = (*before.state).clone();
    (state.change, state.term) = (state.change + 1, state.term + 1);
    state.lead = GroupLead::Taken { from: Some(id(0)), to: id(1) };
    let version =
        StateVersion { number: VersionNumber { counter: before.number.counter + 1, by: id(1) }, state: Arc::new(state) };
    let message = |part| {
        let obeyed = before.number;
        let (intent, sights) = (MemberIntent::Serves, NodeSights::default());
        let (group, to) = (Some(before.state.group), Some(id(0)));
        GroupMessage { group, from: id(1), to, led: (0, 0), obeyed, intent, sights, parameters: None, answered: None, part }
    };
    let cast = message(MessagePart::Register(RegisterMessage::Cast { attempt: 9, version: version.clone() }));
    let told = |member: &mut GroupMember, event: GroupEvent, now: GroupMs| {
        let sent = |action| if let GroupAction::Send { message, .. } = action { Some(message.obeyed) } else { None };
        group_step(member, event, now).into_iter().filter_map(sent).collect::<Vec<VersionNumber>>()
    };
    let member = &mut hosts.members[0];
    told(member, GroupEvent::Message(Box::new(cast)), 6_000);
    let early = told(member, GroupEvent::Obeyed { number: version.number }, 6_010);
    assert!(!early.is_empty() && early.iter().all(|obeyed| *obeyed < version.number), "{early:?}");
    // Its disk may have had another write under way.
    let mut late = Vec::new();
    for (now, number) in (6_020..).zip(0..1_000) {
        late.extend(told(member, GroupEvent::Written { number }, now));
    }
    assert!(late.contains(&version.number), "{late:?}");
}
