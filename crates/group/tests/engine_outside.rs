//! A group over another engine: one cell that is read and changed only if it is still the version expected.

use std::collections::VecDeque;
use std::sync::Arc;

use weir_group::{
    EngineKind, GroupAction, GroupAnswer, GroupEvent, GroupLead, GroupMember, GroupMembers, GroupMessage, GroupMs, GroupRequest,
    GroupSettings, GroupState, GroupWrites, HalfVotes, MemberDuty, MemberId, MemberIntent, MemberRights, MemberRow, MemberSet,
    RegisterEvent, RightsTaken, ShutdownFate, StateVersion, StoredVote, VersionNumber, group_step,
};

fn id(host: u8) -> MemberId {
    MemberId { host, incarnation: 1 }
}

struct Cell {
    members: Vec<GroupMember>,
    rights: Vec<MemberRights>,
    cell: StateVersion,
    stopped: Vec<u64>,
    answers: Vec<GroupAnswer>,
    silent: Option<usize>,
}

impl Cell {
    fn new(hosts: u8) -> Cell {
        let row = |host| MemberRow { id: id(host), priority: 1, duty: MemberDuty::Serves };
        let state = GroupState {
            group: id(0),
            change: 0,
            members: GroupMembers::of((0..hosts).map(row).collect(), HalfVotes::TooFew),
            lost: MemberSet::new(),
            lead: GroupLead::Taken { from: None, to: id(0) },
            term: 0,
            writes: GroupWrites::Closed { epoch: 0 },
            lease_ms: 2_000,
            failover: String::new(),
            decisions: vec![],
        };
        let settings = |host| GroupSettings {
            host,
            hosts: (0..hosts).collect(),
            priority: 1,
            duty: MemberDuty::Serves,
            half_votes: HalfVotes::TooFew,
            lease_ms: 2_000,
            no_show_ms: None,
            lost_removal_ms: None,
            shutdowns: ShutdownFate::Stays,
            engine: EngineKind::Outside,
            without: None,
        };
        let stored = |host| StoredVote { group: Some(id(0)), ..StoredVote::new(id(host)) };
        Cell {
            members: (0..hosts).map(|host| GroupMember::new(settings(host), stored(host), 0, 0)).collect(),
            rights: vec![MemberRights::default(); usize::from(hosts)],
            cell: StateVersion { number: VersionNumber { counter: 1, by: MemberId::default() }, state: Arc::new(state) },
            stopped: vec![],
            answers: vec![],
            silent: None,
        }
    }

    fn step(&mut self, host: usize, event: GroupEvent, now: GroupMs) {
        let mut events = VecDeque::from([(host, event)]);
        while let Some((host, event)) = events.pop_front() {
            if self.silent == Some(host) {
                continue;
            }
            for action in group_step(&mut self.members[host], event, now) {
                match action {
                    GroupAction::Send { host: to, message } => {
                        let message: Box<GroupMessage> = message;
                        events.push_back((usize::from(to), GroupEvent::Message(message)));
                    }
                    GroupAction::ReadEngine => {
                        let shown = RegisterEvent::Shown { version: self.cell.clone(), asked_at: now };
                        events.push_back((host, GroupEvent::Engine(shown)));
                    }
                    GroupAction::ChangeEngine { expect, new } => {
                        let event = if self.cell.number == expect {
                            let number = VersionNumber { counter: expect.counter + 1, ..expect };
                            self.cell = StateVersion { number, state: Arc::new(*new) };
                            RegisterEvent::Changed(self.cell.clone())
                        } else {
                            RegisterEvent::Refused { decided: Some(self.cell.clone()) }
                        };
                        events.push_back((host, GroupEvent::Engine(event)));
                    }
                    GroupAction::Rights { number, rights, obey } => {
                        self.rights[host] = rights;
                        if obey == RightsTaken::Something {
                            events.push_back((host, GroupEvent::Obeyed { number }));
                        }
                    }
                    GroupAction::WritesStopped { epoch } => self.stopped.push(epoch),
                    GroupAction::Answer { answer, .. } => self.answers.push(answer),
                    GroupAction::State(_) => {}
                    GroupAction::Write { .. } => panic!("an engine outside needs no file"),
                }
            }
        }
    }

    /// Ticks until then; never two members lead.
    fn go_on(&mut self, from: GroupMs, to: GroupMs) {
        for now in (from..to).step_by(50) {
            for host in 0..self.members.len() {
                self.step(host, GroupEvent::Tick { dice: (now * 7) as u32 + host as u32 }, now);
            }
            assert!(self.leaders(now).len() <= 1, "two lead at {now}");
        }
    }

    fn leaders(&self, now: GroupMs) -> Vec<usize> {
        let leads = |(_, rights): &(usize, &MemberRights)| now < rights.until && rights.leads.is_some();
        self.rights.iter().enumerate().filter(leads).map(|(host, _)| host).collect()
    }
}

#[test]
fn a_group_over_a_cell_opens_writes_and_follows_another_leader_when_its_own_is_gone() {
    let mut cell = Cell::new(3);
    cell.go_on(0, 1_000);
    assert_eq!((cell.leaders(1_000), &cell.stopped[..]), (vec![0], &[0][..]));
    let open = |epoch| GroupRequest::OpenWrites { epoch, node: 4, text: "opened".into(), decision: None };
    cell.step(0, GroupEvent::Request { ticket: 1, request: open(1) }, 1_000);
    cell.go_on(1_050, 2_000);
    assert_eq!(cell.answers, [GroupAnswer::Done]);
    assert!(cell.rights.iter().all(|rights| rights.writes == Some((1, 4))), "{:?}", cell.rights);

    cell.silent = Some(0);
    cell.go_on(2_000, 6_000);
    assert_eq!(cell.leaders(6_000), [1], "the lowest of those left");
    assert_eq!(cell.cell.state.lost, [id(0)].into());
    let close = GroupRequest::CloseWrites { text: "closed".into() };
    cell.step(1, GroupEvent::Request { ticket: 2, request: close }, 6_000);
    cell.go_on(6_050, 6_500);
    assert_eq!(cell.stopped, [0, 1], "host 0 was lost for long enough");

    cell.silent = None;
    cell.go_on(6_500, 7_500);
    assert_eq!((cell.leaders(7_500), cell.cell.state.lost.len()), (vec![1], 0), "it is back and does not lead");
    cell.step(1, GroupEvent::Intent(MemberIntent::Unfit), 7_500);
    cell.go_on(7_550, 8_500);
    assert_eq!(cell.leaders(8_500), [0], "handed over");
    cell.step(2, GroupEvent::Request { ticket: 3, request: open(2) }, 8_500);
    assert_eq!(cell.answers.last(), Some(&GroupAnswer::NotLeader));
}
