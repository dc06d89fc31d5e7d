//! Orders of a leader rely on what its group has decided, and on nothing older.

use std::sync::Arc;

use weir_failover::{
    Ballot, Done, DurableState, Epoch, FailoverAction, FailoverCommandKind, FailoverMode, FailoverRules, FailoverState,
    GroupRole, NodeId, NodeRules, OpenTransactionFate, PrimaryStopMode, SuccessorFinder, WriteHoldReason,
};
use weir_group::{
    GroupLead, GroupMembers, GroupRequest, GroupState, GroupWrites, HalfVotes, MemberDuty, MemberId, MemberIntent, MemberRights,
    MemberRow, StateVersion, VersionNumber,
};
use weir_group_failover::{
    FailoverTie, GroupDuty, GroupNews, MemberSight, MemberWord, asked_closing, group_duty, rules_in_group, writes_closing,
    writes_opening,
};

const OWN: MemberId = MemberId { host: 0, incarnation: 5 };
const LEASE_UNTIL: u64 = 3_000;

fn rules() -> FailoverRules {
    FailoverRules::plain((0..3).map(NodeRules::plain).collect())
}

/// Of a Weir whose primary is node 0.
fn failover() -> FailoverState {
    let stored = DurableState { weir: 9, epoch: Some(Epoch::found(0)), ..DurableState::default() };
    FailoverState::new(&rules(), Some(stored), 9, &Default::default())
}

fn version(writes: GroupWrites, failover: &str) -> StateVersion {
    let row = MemberRow { id: OWN, priority: 1, duty: MemberDuty::Serves };
    let state = GroupState {
        group: OWN,
        change: 4,
        members: GroupMembers::of(vec![row], HalfVotes::TooFew),
        lost: Default::default(),
        lead: GroupLead::Held(OWN),
        term: 2,
        writes,
        lease_ms: 2_000,
        failover: failover.to_owned(),
        decisions: Vec::new(),
        former: Vec::new(),
    };
    StateVersion { number: VersionNumber { counter: 7, by: OWN }, state: Arc::new(state) }
}

/// Of a leader at this time.
fn sight(version: &StateVersion, now: u64, stopped_epoch: Option<u64>) -> MemberSight<'_> {
    let rights = MemberRights { until: LEASE_UNTIL, leads: Some(2), writes: version.state.writes.open() };
    MemberSight { now, version: Some(version), rights, stopped_epoch }
}

const OPEN: GroupWrites = GroupWrites::Open { epoch: 3, node: 0 };
const CLOSED: GroupWrites = GroupWrites::Closed { epoch: 3 };

fn store() -> FailoverAction {
    FailoverAction::Store { number: 1, text: "text".into() }
}

fn promote(node: NodeId) -> FailoverAction {
    FailoverAction::Promote { node, ballot: Ballot::default(), limit_ms: 2_000 }
}

fn stop(node: NodeId) -> FailoverAction {
    let mode = PrimaryStopMode::Clean;
    FailoverAction::StopServer { node, ballot: Ballot::default(), started_at: None, mode, limit_ms: 2_000 }
}

fn drain(node: NodeId) -> FailoverAction {
    FailoverAction::Drain { node, limit_ms: 1_000 }
}

fn command(kind: FailoverCommandKind) -> FailoverAction {
    FailoverAction::RunCommand { number: 1, kind, line: String::new(), limit_ms: 1_000 }
}

fn duty(action: &FailoverAction, sight: MemberSight) -> GroupDuty {
    group_duty(action, &failover(), GroupRole::Leads, Some(sight))
}

fn close() -> GroupDuty {
    GroupDuty::First(GroupRequest::CloseWrites { text: None })
}

#[test]
fn after_its_lease_a_leader_stores_nothing_and_gives_no_order() {
    let open = version(OPEN, "");
    let over = || sight(&open, LEASE_UNTIL, None);
    for action in [store(), promote(1), stop(0), drain(0), command(FailoverCommandKind::Failover)] {
        assert_eq!(duty(&action, over()), GroupDuty::LeadOver, "{action:?}");
        assert_eq!(group_duty(&action, &failover(), GroupRole::Follows, Some(over())), GroupDuty::None, "{action:?}");
        assert_eq!(group_duty(&action, &failover(), GroupRole::None, None), GroupDuty::None, "{action:?}");
    }
    let hold = FailoverAction::Hold { why: WriteHoldReason::Gone, transactions: OpenTransactionFate::End };
    for action in [FailoverAction::Probe { node: 0, limit_ms: 1_000 }, hold] {
        assert_eq!(duty(&action, over()), GroupDuty::None, "{action:?}");
    }
}

#[test]
fn a_primary_is_stopped_and_a_standby_promoted_only_once_nobody_writes() {
    let (open, closed) = (version(OPEN, ""), version(CLOSED, ""));
    let writing = [sight(&open, 0, None), sight(&open, 0, Some(3)), sight(&closed, 0, None), sight(&closed, 0, Some(2))];
    for action in [promote(1), stop(0), drain(0), command(FailoverCommandKind::Failover)] {
        for sight in writing {
            assert_eq!(duty(&action, sight), close(), "{action:?} {sight:?}");
        }
        assert_eq!(duty(&action, sight(&closed, 0, Some(3))), GroupDuty::None, "{action:?}");
    }
}

#[test]
fn writes_stay_open_for_the_restart_of_a_standby() {
    let open = version(OPEN, "");
    for action in [drain(1), stop(1), command(FailoverCommandKind::FollowPrimary)] {
        assert_eq!(duty(&action, sight(&open, 0, None)), GroupDuty::None, "{action:?}");
    }
}

#[test]
fn writes_that_an_earlier_change_closes_are_opened_again() {
    let (open, closed) = (version(OPEN, ""), version(CLOSED, ""));
    assert_eq!(writes_opening(sight(&open, 0, None), 0), None, "nothing is to do yet");
    assert_eq!(writes_opening(sight(&closed, 0, None), 0), None, "somebody may write still");
    assert_eq!(writes_opening(sight(&closed, LEASE_UNTIL, Some(3)), 0), None, "the lease may come again");
    let opens = |request: Option<GroupRequest>| matches!(request, Some(GroupRequest::OpenWrites { epoch: 4, node: 0, .. }));
    assert!(opens(writes_opening(sight(&closed, 0, Some(3)), 0)));
    assert_eq!(writes_opening(sight(&open, 0, None), 1), Some(GroupRequest::CloseWrites { text: None }), "another node has them");
}

#[test]
fn closed_writes_count_only_as_long_as_the_lead_lasts() {
    let (open, closed) = (version(OPEN, ""), version(CLOSED, ""));
    assert_eq!(writes_closing(sight(&open, 0, None)), None);
    assert_eq!(writes_closing(sight(&closed, 0, None)), None);
    assert_eq!(writes_closing(sight(&closed, 0, Some(3))), Some(Done::Yes));
    assert_eq!(writes_closing(sight(&closed, LEASE_UNTIL, Some(3))), Some(Done::No));
}

#[test]
fn a_closing_that_was_opened_again_before_it_was_seen_has_an_end() {
    let (open, closed) = (version(OPEN, ""), version(CLOSED, ""));
    assert_eq!(asked_closing(sight(&open, 0, None), 3), None, "not closed yet, as far as is known here");
    assert_eq!(asked_closing(sight(&closed, 0, Some(3)), 3), Some(Done::Yes));
    assert_eq!(asked_closing(sight(&open, 0, Some(2)), 2), Some(Done::No), "asked again");
}

#[test]
fn a_new_role_is_told_with_what_is_stored_and_before_all_other_news() {
    let stored = DurableState { weir: 1, term: 8, epoch: Some(Epoch::found(2)), ..DurableState::default() };
    let version = version(OPEN, &stored.show());
    let mut tie = FailoverTie::default();
    let mut news = |role| tie.news(sight(&version, 0, None), &[], role);
    let Some(GroupNews::Role { role: GroupRole::Leads, durable: Some(durable) }) = news(GroupRole::Follows) else {
        panic!("it leads")
    };
    assert_eq!((durable.term, durable.weir), (8, OWN.incarnation | 1 << 31), "the number is the group's");
    assert!(matches!(news(GroupRole::Leads), Some(GroupNews::Stored { .. })));
    assert_eq!(news(GroupRole::Leads), None);
}

#[test]
fn a_leader_begins_anew_after_a_change_that_it_did_not_ask_for() {
    let text = |term| DurableState { weir: 1, term, epoch: Some(Epoch::found(2)), ..DurableState::default() }.show();
    let (begun, asked, other) = (version(OPEN, &text(1)), version(OPEN, &text(2)), version(OPEN, &text(3)));
    let mut tie = FailoverTie::default();
    let news = |tie: &mut FailoverTie, version| tie.news(sight(version, 0, None), &[], GroupRole::Leads);
    assert!(matches!(news(&mut tie, &begun), Some(GroupNews::Stored { .. })));
    tie.note_asked(&GroupRequest::StoreText { text: text(2) });
    assert!(matches!(news(&mut tie, &asked), Some(GroupNews::Stored { .. })));
    let Some(GroupNews::Role { role: GroupRole::Leads, durable: Some(durable) }) = news(&mut tie, &other) else {
        panic!("a change of a former life")
    };
    assert_eq!(durable.term, 3);
    assert!(matches!(news(&mut tie, &other), Some(GroupNews::Stored { .. })));
    assert_eq!(news(&mut tie, &other), None);
}

#[test]
fn words_are_told_once_unless_they_were_not_passed_on() {
    let open = version(OPEN, "");
    let (mut tie, state) = (FailoverTie::default(), failover());
    let number = VersionNumber { counter: 8, by: OWN };
    let words = |tie: &mut FailoverTie| tie.words(sight(&open, 0, None), &state, MemberIntent::Unfit, (Some(1), Some(number)));
    let first = words(&mut tie);
    let [MemberWord::Intent(MemberIntent::Unfit), MemberWord::Sights(_), MemberWord::End(taken)] = first[..] else {
        panic!("{first:?}")
    };
    assert_eq!((taken.number, taken.node, taken.limit_ms), (number, Some(1), 0), "it does not answer: nothing is waited for");
    assert_eq!(words(&mut tie), []);
    tie.repeat(first[0]);
    assert_eq!(words(&mut tie), first[..1]);
}

#[test]
fn where_weirs_promote_only_their_leader_finds_a_successor() {
    let of = |mode, role| {
        let found = rules_in_group(FailoverRules { mode, ..rules() }, role, weir_failover::DeathConsensus::Own);
        (found.mode, found.successors)
    };
    assert_eq!(of(FailoverMode::Builtin, GroupRole::Follows), (FailoverMode::Follow, SuccessorFinder::Leader));
    assert_eq!(of(FailoverMode::Command, GroupRole::Follows), (FailoverMode::Follow, SuccessorFinder::Leader));
    assert_eq!(of(FailoverMode::Follow, GroupRole::Follows), (FailoverMode::Follow, SuccessorFinder::Sight));
    assert_eq!(of(FailoverMode::Builtin, GroupRole::Leads), (FailoverMode::Builtin, SuccessorFinder::Sight));
}
