//! Founders of groups, and hosts that may not found one.

use std::collections::VecDeque;

use weir_group::{
    EngineKind, GroupAction, GroupEvent, GroupLead, GroupMember, GroupMs, GroupRequest, GroupSettings, HalfVotes, MemberDuty,
    MemberId, MemberIntent, RemovalSettings, ServerMark, ShutdownFate, StoredVote, group_step,
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
}

impl Hosts {
    /// Hosts from 0 on that are here, of all that are configured.
    fn new(here: u8, configured: u8, no_show_ms: Option<GroupMs>, mark: ServerMark) -> Hosts {
        let stored = |host| StoredVote::new(MemberId { host, incarnation: 5 });
        let member = |host| GroupMember::new(settings(host, configured, no_show_ms), stored(host), 0, 0);
        Hosts { members: (0..here).map(member).collect(), files: vec![String::new(); usize::from(here)], mark }
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
