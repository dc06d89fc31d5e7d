//! A group over another engine: one cell that is created if there is none, read, and changed only if it is still the version expected.

use std::collections::VecDeque;
use std::sync::Arc;

use weir_group::{
    ACT_BYTES_MAX, ActAnswer, EngineKind, GroupAction, GroupAnswer, GroupEvent, GroupLead, GroupMember, GroupMs, GroupRequest,
    GroupSettings, GroupState, HalfVotes, MemberDuty, MemberId, MemberIntent, MemberRights, MemberSet, OperatorAct,
    RegisterEvent, RightsTaken, ServerMark, ShutdownFate, StateVersion, StoredVote, VersionNumber, group_step,
};

const LEASE_MS: GroupMs = 2_000;
/// Time in which hosts hear each other, see that there is no state for a lease and 5 % more, and the founder leads.
const FORMED_MS: GroupMs = 3_000;

fn id(host: u8) -> MemberId {
    MemberId { host, incarnation: 1 }
}

fn member(of: MemberId, configured: u8, no_show_ms: Option<GroupMs>, now: GroupMs) -> GroupMember {
    let settings = GroupSettings {
        host: of.host,
        hosts: (0..configured).collect(),
        priority: 1,
        duty: MemberDuty::Serves,
        half_votes: HalfVotes::TooFew,
        lease_ms: LEASE_MS,
        no_show_ms,
        lost_removal_ms: None,
        shutdowns: ShutdownFate::Stays,
        engine: EngineKind::Outside,
        without: None,
    };
    GroupMember::new(settings, StoredVote::new(of), now, now)
}

struct Cell {
    members: Vec<GroupMember>,
    rights: Vec<MemberRights>,
    cell: Option<StateVersion>,
    /// Never falls, also when the cell is emptied.
    revision: u64,
    /// First states that hosts ask for in one round: rivals ask before any of them has its answer.
    creations: Vec<(usize, GroupState)>,
    created_by: Vec<usize>,
    refused: Vec<usize>,
    stopped: Vec<u64>,
    answers: Vec<GroupAnswer>,
    /// The doer, and the asker.
    acts: Vec<(usize, MemberId, OperatorAct)>,
    acted: Vec<ActAnswer>,
    silent: Option<usize>,
    /// Hosts that do not hear each other.
    cut: Option<(usize, usize)>,
    mark: ServerMark,
}

impl Cell {
    /// Hosts from 0 on that are here, of all that are configured.
    fn empty(here: u8, configured: u8, no_show_ms: Option<GroupMs>) -> Cell {
        Cell {
            members: (0..here).map(|host| member(id(host), configured, no_show_ms, 0)).collect(),
            rights: vec![MemberRights::default(); usize::from(here)],
            cell: None,
            revision: 0,
            creations: vec![],
            created_by: vec![],
            refused: vec![],
            stopped: vec![],
            answers: vec![],
            acts: vec![],
            acted: vec![],
            silent: None,
            cut: None,
            mark: ServerMark::Unmarked,
        }
    }

    /// A group of three that opened epoch 1.
    fn formed() -> Cell {
        let mut cell = Cell::empty(3, 3, None);
        cell.go_on(0, FORMED_MS);
        cell.ask(0, open(1), FORMED_MS);
        cell.go_on(FORMED_MS + 50, 4_000);
        assert_eq!(cell.answers, [GroupAnswer::Done]);
        cell
    }

    fn put(&mut self, state: GroupState) -> StateVersion {
        self.revision += 1;
        let number = VersionNumber { counter: self.revision, by: MemberId::default() };
        let version = StateVersion { number, state: Arc::new(state) };
        self.cell = Some(version.clone());
        version
    }

    fn state(&self) -> &GroupState {
        &self.cell.as_ref().expect("a state").state
    }

    fn ask(&mut self, host: usize, request: GroupRequest, now: GroupMs) {
        self.step(host, GroupEvent::Request { ticket: 1, request }, now);
    }

    fn step(&mut self, host: usize, event: GroupEvent, now: GroupMs) {
        let mut events = VecDeque::from([(host, event)]);
        while let Some((host, event)) = events.pop_front() {
            let is_here = host < self.members.len() && self.silent != Some(host);
            if !is_here {
                continue;
            }
            for action in group_step(&mut self.members[host], event, now) {
                match action {
                    GroupAction::Send { host: to, message } => {
                        let to = usize::from(to);
                        if self.cut != Some((host, to)) && self.cut != Some((to, host)) {
                            events.push_back((to, GroupEvent::Message(message)));
                        }
                    }
                    GroupAction::ReadEngine => {
                        let shown = |version| RegisterEvent::Shown { version, asked_at: now };
                        let event = self.cell.clone().map_or(RegisterEvent::Empty, shown);
                        events.push_back((host, GroupEvent::Engine(event)));
                    }
                    GroupAction::ChangeEngine { expect, new } => {
                        assert!(expect.counter > 0, "0 is no version of an engine");
                        let event = if self.cell.as_ref().is_some_and(|cell| cell.number == expect) {
                            RegisterEvent::Changed(self.put(*new))
                        } else {
                            RegisterEvent::Refused { decided: self.cell.clone() }
                        };
                        events.push_back((host, GroupEvent::Engine(event)));
                    }
                    GroupAction::Formed { .. } | GroupAction::Replaced { .. } => {}
                    GroupAction::CreateEngine { new } => self.creations.push((host, *new)),
                    GroupAction::Rights { number, rights, obey } => {
                        self.rights[host] = rights;
                        if obey == RightsTaken::Something {
                            events.push_back((host, GroupEvent::Obeyed { number }));
                        }
                    }
                    GroupAction::WritesStopped { epoch } => self.stopped.push(epoch),
                    GroupAction::Answer { answer, .. } => self.answers.push(answer),
                    GroupAction::State(_) => {}
                    GroupAction::Act { from, act } => self.acts.push((host, from, act)),
                    GroupAction::Acted { answer, .. } => self.acted.push(answer),
                    GroupAction::Write { .. } => panic!("an engine outside needs no file"),
                }
            }
        }
    }

    fn create_all(&mut self, now: GroupMs) {
        for (host, new) in std::mem::take(&mut self.creations) {
            let event = if let Some(decided) = self.cell.clone() {
                self.refused.push(host);
                RegisterEvent::Refused { decided: Some(decided) }
            } else {
                self.created_by.push(host);
                RegisterEvent::Changed(self.put(new))
            };
            self.step(host, GroupEvent::Engine(event), now);
        }
    }

    /// Ticks until then; never two members lead.
    fn go_on(&mut self, from: GroupMs, to: GroupMs) {
        for now in (from..to).step_by(50) {
            for host in 0..self.members.len() {
                self.step(host, GroupEvent::Founding { text: format!("text of {host}"), mark: self.mark }, now);
                self.step(host, GroupEvent::Tick { dice: (now * 7) as u32 + host as u32 }, now);
            }
            self.create_all(now);
            assert!(self.leaders(now).len() <= 1, "two lead at {now}");
        }
    }

    fn leaders(&self, now: GroupMs) -> Vec<usize> {
        let leads = |(_, rights): &(usize, &MemberRights)| now < rights.until && rights.leads.is_some();
        self.rights.iter().enumerate().filter(leads).map(|(host, _)| host).collect()
    }

    /// The process of a host is begun anew. Its rights are its process's own.
    fn restart(&mut self, of: MemberId, no_show_ms: Option<GroupMs>, now: GroupMs) {
        let host = usize::from(of.host);
        (self.members[host], self.rights[host]) = (member(of, 3, no_show_ms, now), MemberRights::default());
    }
}

fn open(epoch: u64) -> GroupRequest {
    GroupRequest::OpenWrites { epoch, node: 4, decision: None }
}

#[test]
fn a_group_over_a_cell_opens_writes_and_follows_another_leader_when_its_own_is_gone() {
    let mut cell = Cell::formed();
    assert_eq!((cell.leaders(4_000), &cell.stopped[..]), (vec![0], &[0][..]));
    assert!(cell.rights.iter().all(|rights| rights.writes == Some((1, 4))), "{:?}", cell.rights);

    cell.silent = Some(0);
    cell.go_on(4_000, 8_000);
    assert_eq!(cell.leaders(8_000), [1], "the lowest of those left");
    assert_eq!(cell.state().lost, [id(0)].into());
    cell.ask(1, GroupRequest::CloseWrites { text: Some("closed".into()) }, 8_000);
    cell.go_on(8_050, 8_500);
    assert_eq!(cell.stopped, [0, 1], "host 0 was lost for long enough");

    cell.silent = None;
    cell.go_on(8_500, 9_500);
    assert_eq!((cell.leaders(9_500), cell.state().lost.len()), (vec![1], 0), "it is back and does not lead");
    cell.step(1, GroupEvent::Intent(MemberIntent::Unfit), 9_500);
    cell.go_on(9_550, 10_500);
    assert_eq!(cell.leaders(10_500), [0], "handed over");
    cell.ask(2, open(2), 10_500);
    assert_eq!(cell.answers.last(), Some(&GroupAnswer::NotLeader));
}

#[test]
fn the_lowest_host_creates_the_first_state_when_it_heard_all() {
    let mut cell = Cell::empty(3, 3, None);
    cell.go_on(0, 2_100);
    assert!(cell.cell.is_none(), "a state that was deleted gives rights for a lease and 5 % more");
    cell.go_on(2_100, FORMED_MS);
    assert_eq!((&cell.created_by[..], cell.leaders(FORMED_MS)), (&[0][..], vec![0]));
    let state = cell.state();
    assert_eq!(state.members.voters, (0..3).map(id).collect::<MemberSet>());
    assert_eq!((state.group, state.lead, state.failover.as_str()), (id(0), GroupLead::Held(id(0)), "text of 0"));
}

#[test]
fn a_majority_creates_the_first_state_after_the_timeout_unless_a_server_bears_a_mark() {
    let check = |here, no_show_ms, mark, members: Option<usize>| {
        let mut cell = Cell::empty(here, 3, no_show_ms);
        cell.mark = mark;
        cell.go_on(0, 6_000);
        let formed = cell.cell.as_ref().map(|version| version.state.members.voters.len());
        assert_eq!(formed, members, "{here} of 3 hosts, {no_show_ms:?}, {mark:?}");
        assert_eq!(cell.leaders(6_000).len(), members.map_or(0, |_| 1));
    };
    check(2, None, ServerMark::Unmarked, None);
    check(2, Some(1_000), ServerMark::Unmarked, Some(2));
    check(2, Some(1_000), ServerMark::Marked, None);
    check(2, Some(1_000), ServerMark::Unseen, None);
    check(1, Some(1_000), ServerMark::Unmarked, None);
    check(3, None, ServerMark::Marked, Some(3));
}

#[test]
fn of_two_hosts_that_create_at_once_one_founds_the_group_and_admits_the_other() {
    let mut cell = Cell::empty(3, 3, Some(1_000));
    cell.cut = Some((0, 1));
    cell.go_on(0, FORMED_MS);
    assert_eq!((&cell.created_by[..], &cell.refused[..]), (&[0][..], &[1][..]), "both asked before they knew of each other");
    assert_eq!(cell.state().members.voters, [id(0), id(2)].into());
    assert_eq!(cell.leaders(FORMED_MS), [0]);

    cell.cut = None;
    cell.go_on(FORMED_MS, 4_000);
    let rows = cell.members.iter().map(GroupMember::row).collect();
    cell.ask(0, GroupRequest::ChangeMembers { rows }, 4_000);
    cell.go_on(4_050, 5_500);
    assert_eq!(cell.answers, [GroupAnswer::Done]);
    assert_eq!(cell.state().members.voters, (0..3).map(id).collect::<MemberSet>());
    assert_eq!((cell.leaders(5_500), &cell.created_by[..]), (vec![0], &[0][..]));
}

#[test]
fn a_member_that_is_begun_anew_is_lost_and_comes_back() {
    let mut cell = Cell::formed();
    cell.silent = Some(2);
    cell.go_on(4_000, 6_000);
    assert_eq!(cell.state().lost, [id(2)].into());
    cell.silent = None;
    cell.restart(id(2), None, 6_000);
    cell.go_on(6_000, 7_000);
    assert_eq!((cell.state().lost.len(), cell.rights[2].writes), (0, Some((1, 4))), "it writes again");
    assert_eq!(cell.created_by, [0]);
}

#[test]
fn a_host_that_lost_its_name_is_heard_and_admitted_as_a_new_member() {
    let mut cell = Cell::formed();
    let new = MemberId { host: 2, incarnation: 2 };
    cell.restart(new, None, 4_000);
    cell.go_on(4_000, 4_500);
    assert_eq!(cell.rights[2].writes, None, "a stranger has no rights");
    cell.go_on(4_500, 9_500);
    let state = cell.state();
    assert_eq!((&state.members.voters, state.members.next.is_none()), (&[id(0), id(1), new].into(), true));
    assert_eq!(cell.rights[2].writes, Some((1, 4)));
}

#[test]
fn a_state_that_was_deleted_gives_nothing_beyond_its_lease_and_is_not_created_by_those_who_knew_it() {
    let mut cell = Cell::formed();
    cell.cell = None;
    cell.go_on(4_000, 10_000);
    assert!(cell.rights.iter().all(|rights| rights.until <= 4_000 + LEASE_MS), "{:?}", cell.rights);
    assert!(cell.cell.is_none() && cell.created_by == [0]);

    (0..3).for_each(|host| cell.restart(id(host), None, 10_000));
    cell.go_on(10_000, 10_000 + FORMED_MS);
    assert_eq!((&cell.created_by[..], cell.leaders(10_000 + FORMED_MS)), (&[0, 0][..], vec![0]));
}

const ACT_LIMIT_MS: GroupMs = 60_000;

/// Asks the leader for an act, at this host.
fn wish(text: &str) -> GroupEvent {
    GroupEvent::Act { ticket: 1, to: None, text: text.into(), limit_ms: ACT_LIMIT_MS }
}

fn done(cell: &mut Cell, at: usize, now: GroupMs) {
    let (host, from, act) = cell.acts[at].clone();
    cell.step(host, GroupEvent::Acted { from, number: act.number, answer: ActAnswer::Done("a note".into()) }, now);
}

#[test]
fn an_act_is_done_once_by_the_leader_whichever_member_is_asked_and_however_long_it_takes() {
    for asked in 0..3 {
        let mut cell = Cell::formed();
        cell.step(asked, wish("attach 1"), 4_000);
        cell.go_on(4_000, 34_000);
        let acts: Vec<_> = cell.acts.iter().map(|(host, from, act)| (*host, from.host, act.text.as_str())).collect();
        assert_eq!((&acts[..], cell.acted.len()), (&[(0, asked as u8, "attach 1")][..], 0), "copies are no acts");
        done(&mut cell, 0, 34_000);
        cell.go_on(34_000, 35_000);
        assert_eq!(cell.acted, [ActAnswer::Done("a note".into())]);
    }
}

#[test]
fn an_answer_that_is_lost_is_given_again() {
    let mut cell = Cell::formed();
    cell.step(1, wish("attach 1"), 4_000);
    cell.cut = Some((0, 1));
    done(&mut cell, 0, 4_000);
    cell.cut = None;
    assert!(cell.acted.is_empty());
    cell.go_on(4_050, 5_000);
    assert_eq!((cell.acted.len(), cell.acts.len()), (1, 1));
}

#[test]
fn an_act_for_a_member_that_is_named_is_done_there() {
    let mut cell = Cell::formed();
    let event = GroupEvent::Act { ticket: 1, to: Some(id(2)), text: "reload".into(), limit_ms: ACT_LIMIT_MS };
    cell.step(1, event, 4_000);
    assert_eq!(cell.acts[0].0, 2);
    done(&mut cell, 0, 4_000);
    assert_eq!(cell.acted.len(), 1);
}

#[test]
fn nobody_knows_if_an_act_was_done_whose_leader_is_gone_and_another_leader_is_not_asked() {
    let mut cell = Cell::formed();
    cell.step(2, wish("promote 1"), 4_000);
    cell.silent = Some(0);
    cell.go_on(4_050, 8_000);
    assert_eq!((cell.leaders(8_000), &cell.acted[..], cell.acts.len()), (vec![1], &[ActAnswer::Unknown][..], 1));
}

#[test]
fn an_act_waits_for_the_next_leader_but_not_long() {
    let mut cell = Cell::formed();
    cell.silent = Some(0);
    cell.go_on(4_000, 6_000);
    assert_eq!(cell.leaders(6_050), [0_usize; 0]);
    cell.step(2, wish("attach 1"), 6_050);
    cell.go_on(6_050, 9_000);
    let acts: Vec<_> = cell.acts.iter().map(|(host, ..)| *host).collect();
    assert!(acts == [1] || cell.acted == [ActAnswer::Unknown], "{acts:?} {:?}", cell.acted);

    let mut cell = Cell::formed();
    (cell.silent, cell.cut) = (Some(0), Some((1, 2)));
    cell.go_on(4_000, 8_000);
    cell.step(2, wish("attach 1"), 8_000);
    cell.go_on(8_000, 20_000);
    assert!(cell.acts.is_empty() || cell.acts[0].0 == 1, "{:?}", cell.acts);
    assert_eq!(cell.acted.len(), 1);
}

#[test]
fn a_member_that_stopped_leading_says_so_and_the_new_leader_does_the_act() {
    let mut cell = Cell::formed();
    cell.step(2, wish("attach 1"), 4_000);
    let (host, from, act) = cell.acts[0].clone();
    cell.step(0, GroupEvent::Intent(MemberIntent::Unfit), 4_000);
    cell.step(host, GroupEvent::Acted { from, number: act.number, answer: ActAnswer::NotLeader }, 4_000);
    cell.go_on(4_000, 6_000);
    let acts: Vec<_> = cell.acts.iter().map(|(host, ..)| *host).collect();
    assert_eq!((cell.leaders(6_000), acts), (vec![1], vec![0, 1]));
    done(&mut cell, 1, 6_000);
    cell.go_on(6_000, 6_500);
    assert_eq!(cell.acted.len(), 1);
}

#[test]
fn a_leader_begun_anew_does_not_begin_what_its_former_life_may_have_begun() {
    let mut cell = Cell::formed();
    cell.step(1, wish("switchover 1"), 4_000);
    assert_eq!(cell.acts.len(), 1);
    cell.restart(id(0), None, 4_100);
    cell.go_on(4_100, 8_000);
    assert_eq!((cell.acts.len(), &cell.acted[..]), (1, &[ActAnswer::Unknown][..]));
}

#[test]
fn acts_are_bounded_and_those_that_nobody_waits_for_are_dropped() {
    let mut cell = Cell::formed();
    cell.step(1, wish(&"x".repeat(ACT_BYTES_MAX + 1)), 4_000);
    assert!(matches!(&cell.acted[..], [ActAnswer::Refused(why)] if why.contains("1025 bytes")), "{:?}", cell.acted);
    for ticket in 0..40 {
        let event = GroupEvent::Act { ticket, to: None, text: "attach 1".into(), limit_ms: ACT_LIMIT_MS };
        cell.step(1, event, 4_000);
    }
    assert_eq!((cell.acts.len(), cell.acted.len()), (32, 9));
    (0..32).for_each(|ticket| cell.step(1, GroupEvent::ActDropped { ticket }, 4_000));
    cell.step(1, wish("attach 1"), 4_000);
    assert_eq!(cell.acts.len(), 33);
    cell.go_on(4_000, 4_000 + ACT_LIMIT_MS + 100);
    assert_eq!(cell.acted.last(), Some(&ActAnswer::Unknown), "a limit of time ends the wait");
}
