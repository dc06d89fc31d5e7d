//! `step` as tables: the events, and the actions that matter. Stores are answered at once.

use std::collections::BTreeSet;

use super::rules::tests::rules;
use super::*;

mod agent;
mod another;
mod group_followers;
mod line;
mod promoted_by_others;
mod promotions_beside;
mod restart;
mod streams;
mod switchover;
mod told;
mod votes;

/// Facts of a server on timeline 1.
fn server(position: Lsn, recovery: RecoveryState) -> ServerFacts {
    let history = TimelineHistory { system: 7, timeline: 1, ..TimelineHistory::default() };
    let sync_names = (recovery == RecoveryState::Primary).then(String::new);
    ServerFacts { history, recovery, position, replayed: position, started_at: 1, sync_names, ..ServerFacts::default() }
}

fn primary(position: Lsn) -> ServerFacts {
    server(position, RecoveryState::Primary)
}

fn standby(position: Lsn, silent_ms: Ms) -> ServerFacts {
    server(position, RecoveryState::Standby { upstream: Some(0), stream: WalReceiverState::On { silent_ms } })
}

fn cut_off(position: Lsn, mark: Mark) -> ServerFacts {
    ServerFacts { mark, ..server(position, RecoveryState::Standby { upstream: None, stream: WalReceiverState::Off }) }
}

/// Promoted at a position.
fn promoted(position: Lsn) -> ServerFacts {
    let history = TimelineHistory { system: 7, timeline: 2, switches: vec![(1, position)], ..TimelineHistory::default() };
    ServerFacts { history, ..primary(position) }
}

/// A Weir in front of three nodes, node 0 being the primary with 100 bytes and its standbys having 90 and 95.
struct Play {
    state: FailoverState,
    rules: FailoverRules,
    now: Ms,
    said: Vec<String>,
    /// The outcome of every store.
    disk: Done,
}

impl Play {
    fn new(change: impl FnOnce(&mut FailoverRules)) -> Play {
        Play::on_disk(Done::Yes, change)
    }

    fn on_disk(disk: Done, change: impl FnOnce(&mut FailoverRules)) -> Play {
        let mut rules = rules(3);
        change(&mut rules);
        let state = FailoverState::new(&rules, None, 9, &BTreeSet::new());
        let mut play = Play { state, rules, now: 0, said: Vec::new(), disk };
        play.tell(FailoverEvent::Timer);
        play.looks([ProbeResult::Answered(Box::new(primary(100))), seen(standby(90, 10)), seen(standby(95, 10))]);
        play.said.clear();
        play
    }

    fn tell(&mut self, event: FailoverEvent) {
        for action in step(&mut self.state, &self.rules, &event, self.now) {
            if let FailoverAction::Store { number, .. } = action {
                self.tell(FailoverEvent::Stored { number, done: self.disk });
            } else {
                self.said.extend(say(&action));
            }
        }
    }

    fn probed(&mut self, node: NodeId, found: ProbeResult) {
        self.tell(FailoverEvent::Probed { node, begun_at: self.now, found });
    }

    fn looks(&mut self, found: [ProbeResult; 3]) {
        for (node, found) in (0..).zip(found) {
            self.probed(node, found);
        }
    }

    /// Looks at all, so many milliseconds later.
    fn after(&mut self, passed: Ms, found: [ProbeResult; 3]) {
        self.now += passed;
        self.looks(found);
    }

    fn check(&mut self, name: &str, expected: &[&str]) {
        assert_eq!(self.said, expected, "{name}");
        self.said.clear();
    }
}

fn seen(facts: ServerFacts) -> ProbeResult {
    ProbeResult::Answered(Box::new(facts))
}

fn gone(failure: LookFailure) -> ProbeResult {
    ProbeResult::Failed(failure)
}

/// An action in short, if it matters here.
fn say(action: &FailoverAction) -> Option<String> {
    Some(match action {
        FailoverAction::Hold { why, transactions } => format!("hold {why:?} {transactions:?}"),
        FailoverAction::Release { node, .. } => format!("release {node}"),
        FailoverAction::CutOff { node, ballot, .. } => format!("cut off {node} ({})", ballot.term),
        FailoverAction::Pledge { node, ballot, .. } => format!("pledge {node} ({})", ballot.term),
        FailoverAction::Promote { node, .. } => format!("promote {node}"),
        FailoverAction::WaitWritable { node, .. } => format!("wait for {node}"),
        FailoverAction::Repoint { node, vote, .. } => format!("repoint {node} to {}", vote.epoch.node),
        FailoverAction::Fence { node, .. } => format!("fence {node}"),
        FailoverAction::Unfence { node, .. } => format!("unfence {node}"),
        FailoverAction::Wake { node, .. } => format!("wake {node}"),
        FailoverAction::Point { node, primary, .. } => format!("point {node} at {primary}"),
        FailoverAction::Report(FailoverReport::Orphaned { node, upstream }) => format!("orphan {node} of {upstream}"),
        FailoverAction::RunCommand { line, .. } => format!("run {line}"),
        FailoverAction::Reply { answer, .. } => format!("reply {answer:?}"),
        FailoverAction::Report(FailoverReport::Unused { node }) => format!("unused {node}"),
        FailoverAction::Report(FailoverReport::Foreign { node, .. }) => format!("foreign {node}"),
        FailoverAction::Report(FailoverReport::Begun { node, .. }) => format!("begun {node}"),
        FailoverAction::Report(FailoverReport::Stuck { why }) => format!("stuck {why:?}"),
        FailoverAction::Report(FailoverReport::NoLogin { node, lasting_ms }) => format!("no login {node} for {lasting_ms}"),
        FailoverAction::Report(FailoverReport::Quarantined { node, .. }) => format!("quarantined {node}"),
        FailoverAction::Report(FailoverReport::FalsePrimary { node }) => format!("false primary {node}"),
        FailoverAction::Report(FailoverReport::NotFound { waited_ms }) => format!("none in {waited_ms}"),
        FailoverAction::Report(FailoverReport::Done(record)) => format!("done {} {:?}", record.new, record.loss),
        FailoverAction::Prepare { node, .. } => format!("prepare {node}"),
        FailoverAction::WaitYielded { node, .. } => format!("others yield {node}"),
        FailoverAction::Drain { node, .. } => format!("drain {node}"),
        FailoverAction::StopServer { node, mode: PrimaryStopMode::Clean, .. } => format!("stop {node}"),
        FailoverAction::StopServer { node, mode: PrimaryStopMode::Crash, .. } => format!("end {node}"),
        FailoverAction::AskAgent { node, .. } => format!("ask agent {node}"),
        FailoverAction::Report(FailoverReport::Ended { node, end }) => format!("ended {node} {end:?}"),
        FailoverAction::Inspect { node, .. } => format!("inspect {node}"),
        FailoverAction::RestartServer { node, .. } => format!("restart {node}"),
        FailoverAction::StartServer { node, .. } => format!("start {node}"),
        FailoverAction::FollowServer { node, primary, .. } => format!("follow {node} to {primary}"),
        FailoverAction::Rejoin { node, primary, .. } => format!("rejoin {node} to {primary}"),
        FailoverAction::Probe { .. }
        | FailoverAction::Store { .. }
        | FailoverAction::WriteStatus { .. }
        | FailoverAction::Report(_) => return None,
    })
}

#[test]
fn a_weir_that_cannot_store_its_state_lets_writes_through_and_decides_no_failover() {
    let mut play = Play::on_disk(Done::No, |_| {});
    assert_eq!(play.state.gate, WriteTarget::Open { node: 0, started_at: None });
    let dead = || [gone(LookFailure::Refused), seen(standby(100, 3_000)), seen(standby(95, 3_000))];
    for _ in 0..3 {
        play.after(1_000, dead());
    }
    play.check("nothing is decided that a restart would forget", &["hold Gone End"]);
    play.disk = Done::Yes;
    play.after(1_000, dead());
    assert!(play.said.iter().any(|said| said.starts_with("cut off 1")), "{:?}", play.said);
}

#[test]
fn a_primary_that_is_lost_is_replaced_by_the_best_standby() {
    let mut play = Play::new(|rules| rules.nodes[0].agent = AgentPresence::None);
    play.after(1000, [gone(LookFailure::Refused), seen(standby(90, 10)), seen(standby(95, 10))]);
    play.check("one failed look", &[]);
    play.after(500, [gone(LookFailure::Refused), seen(standby(90, 510)), seen(standby(95, 510))]);
    play.check("a second one", &["hold Gone End", "cut off 1 (1)", "cut off 2 (1)"]);
    let ballot = Ballot { term: 1, weir: 9 };
    let mark = Mark { promised: ballot, vote: None };
    play.now += 10;
    play.tell(FailoverEvent::Pledged { node: 1, ballot, outcome: PledgeReply::Given { facts: cut_off(90, mark) } });
    play.tell(FailoverEvent::Pledged { node: 2, ballot, outcome: PledgeReply::Given { facts: cut_off(95, mark) } });
    play.check("the primary is looked at once more", &[]);
    play.now += 10;
    play.probed(0, gone(LookFailure::Refused));
    play.check("most WAL", &["promote 2"]);
    play.tell(FailoverEvent::Promoted { node: 2, ballot, done: Done::Yes });
    play.tell(FailoverEvent::Writable { node: 2, ballot, outcome: Ok(ServerFacts { mark, ..promoted(95) }) });
    play.check("it votes first", &["wait for 2", "repoint 2 to 2"]);
    let epoch = Epoch { ballot, node: 2, replaced: Some(0) };
    let vote = Vote { ballot, epoch, parent: Epoch::found(0) };
    play.tell(FailoverEvent::Repointed { node: 2, vote, outcome: VoteAnswer::Yes });
    // The looks of before saw 95 bytes at no time but the first, which found 100.
    let said = std::mem::take(&mut play.said);
    assert!(said.contains(&"done 2 Unknown".to_string()) && said.contains(&"release 2".to_string()), "{said:?}");
    for found in [seen(standby(95, 10)), gone(LookFailure::TimedOut)] {
        play.tell(FailoverEvent::Probed { node: 2, begun_at: play.now - 1, found });
        play.check("a look at it that began before it was promoted", &[]);
    }
    let now = play.now;
    assert_eq!(play.state.nodes[&2].look, LookSchedule::UnderWay { begun_at: now, again: false }, "it is looked at once more");
}

/// The primary on timeline 2 dies before it has sent the WAL file that it began anew.
#[test]
fn a_standby_that_would_stop_at_its_promotion_is_not_promoted() {
    let torn = |replayed| ServerFacts { received: ReceivedWal::Less { newest_file: None }, ..standby(replayed, 10) };
    let followed = |replayed| standby(replayed, 10);
    let with_file = |replayed, timeline| {
        let received = ReceivedWal::Less { newest_file: Some(timeline) };
        ServerFacts { received, ..torn(replayed) }
    };
    let on_new = |replayed| ServerFacts { history: promoted(95).history, ..torn(replayed) };
    for (one, two, expected) in [
        (torn(95), followed(90), "promote 2"),
        (on_new(95), followed(90), "promote 1"),
        (with_file(95, 1), followed(90), "promote 1"),
        (with_file(95, 2), followed(90), "promote 2"),
        (torn(95), torn(95), "stuck Torn { node: 1 }"),
    ] {
        let mut rules = rules(3);
        rules.nodes[0].agent = AgentPresence::None;
        let mut play = Play {
            state: FailoverState::new(&rules, None, 9, &BTreeSet::new()),
            rules,
            now: 0,
            said: Vec::new(),
            disk: Done::Yes,
        };
        play.tell(FailoverEvent::Timer);
        let looks = |found| [found, seen(one.clone()), seen(two.clone())];
        play.looks(looks(seen(promoted(95))));
        for _ in 0..2 {
            play.after(1000, looks(gone(LookFailure::Refused)));
        }
        let Some(ballot) = play.state.attempt.as_ref().map(|attempt| attempt.ballot) else { panic!("{:?}", play.said) };
        let mark = Mark { promised: ballot, vote: None };
        for (node, facts) in [(1, &one), (2, &two)] {
            let recovery = cut_off(0, mark).recovery;
            let facts = ServerFacts { mark, recovery, ..facts.clone() };
            play.tell(FailoverEvent::Pledged { node, ballot, outcome: PledgeReply::Given { facts } });
        }
        play.now += 10;
        play.probed(0, gone(LookFailure::Refused));
        assert!(play.said.iter().any(|line| line == expected), "{expected}: {:?}", play.said);
    }
}

/// As Patroni starts a leader anew, and as an operator may do by hand.
#[test]
fn the_accepted_server_on_a_new_timeline_gets_writes_again() {
    for mode in [FailoverMode::Follow, FailoverMode::Off, FailoverMode::Command] {
        let mut play = Play::new(|rules| rules.mode = mode);
        let again = || ServerFacts { started_at: 2, ..promoted(100) };
        let in_recovery = || ServerFacts { started_at: 2, ..cut_off(100, Mark::default()) };
        let others = || [seen(standby(100, 10)), seen(standby(100, 10))];
        let [one, two] = others();
        play.after(1000, [gone(LookFailure::Refused), one, two]);
        let [one, two] = others();
        play.after(1000, [seen(in_recovery()), one, two]);
        play.said.clear();
        assert!(matches!(play.state.gate, WriteTarget::Held(..)), "{mode:?}: {:?}", play.state.gate);
        let [one, two] = others();
        play.after(1000, [seen(again()), one, two]);
        let said = std::mem::take(&mut play.said);
        assert!(said.contains(&"release 0".to_owned()), "{mode:?}: {said:?}");
        assert_eq!(said.iter().filter(|line| line.starts_with("done 0")).count(), 1, "{mode:?}: {said:?}");
        let version = play.state.store.version;
        for _ in 0..3 {
            let [one, two] = others();
            play.after(1000, [seen(again()), one, two]);
        }
        play.check("nothing more is said", &[]);
        assert_eq!(play.state.store.version, version, "{mode:?}: and nothing is stored");
    }
}

#[test]
fn the_only_server_on_a_new_timeline_gets_writes_again_in_every_mode() {
    for mode in [FailoverMode::Builtin, FailoverMode::Follow, FailoverMode::Off, FailoverMode::Command] {
        let rules = FailoverRules { mode, ..rules(1) };
        let mut play = Play {
            state: FailoverState::new(&rules, None, 9, &BTreeSet::new()),
            rules,
            now: 0,
            said: Vec::new(),
            disk: Done::Yes,
        };
        play.tell(FailoverEvent::Timer);
        play.probed(0, seen(primary(100)));
        play.now += 1000;
        play.probed(0, seen(ServerFacts { started_at: 2, ..cut_off(100, Mark::default()) }));
        play.said.clear();
        play.now += 1000;
        play.probed(0, seen(ServerFacts { started_at: 2, ..promoted(100) }));
        assert!(play.said.contains(&"release 0".to_owned()), "{mode:?}: {:?} {:?}", play.said, play.state.gate);
    }
}

#[test]
fn a_standby_that_others_promoted_goes_before_the_accepted_server_on_a_new_timeline() {
    let mut play = Play::new(|rules| rules.mode = FailoverMode::Follow);
    play.after(1000, [gone(LookFailure::Refused), seen(standby(100, 10)), seen(standby(100, 10))]);
    play.after(1000, [gone(LookFailure::Refused), seen(standby(100, 10)), seen(standby(100, 10))]);
    play.said.clear();
    play.tell(FailoverEvent::Probed { node: 2, begun_at: play.now, found: seen(ServerFacts { started_at: 1, ..promoted(100) }) });
    let said = std::mem::take(&mut play.said);
    assert!(said.iter().any(|line| line.starts_with("done 2")), "{said:?}");
}

/// One name leads to the primary and the other one to the standby, and others promote.
#[test]
fn the_accepted_server_is_followed_to_another_node() {
    for mode in [FailoverMode::Follow, FailoverMode::Off, FailoverMode::Command] {
        let mut play = Play::new(|rules| rules.mode = mode);
        // The other server is found where the primary was, first.
        let other = || seen(ServerFacts { started_at: 2, ..standby(100, 10) });
        play.after(1000, [other(), gone(LookFailure::Lost), seen(standby(100, 10))]);
        play.after(1000, [other(), seen(primary(100)), seen(standby(100, 10))]);
        assert!(play.said.contains(&"release 1".to_owned()), "{mode:?}: {:?}", play.said);
        play.said.clear();
        play.after(1000, [other(), seen(primary(100)), seen(standby(100, 10))]);
        play.check("nothing more is said", &[]);
    }
}

#[test]
fn these_are_no_deaths() {
    let live = || [seen(primary(100)), seen(standby(100, 10)), seen(standby(100, 10))];
    let cases: &[(&str, LookFailure)] = &[
        ("a wrong password", LookFailure::WrongPassword),
        ("too many connections", LookFailure::TooManyConnections),
        ("a missing database", LookFailure::NoDatabase),
        ("a full disk", LookFailure::OutOfResources),
        ("a crash restart of some seconds", LookFailure::Starting),
        ("looks that an operator ends", LookFailure::Ended),
    ];
    for (name, failure) in cases {
        let mut play = Play::new(|rules| rules.on_shutdown = ConnEndPolicy::Counts);
        if *failure == LookFailure::Ended {
            play.tell(FailoverEvent::ConnDied { node: 0, how: ServerConnEnd::Terminated });
        }
        for _ in 0..8 {
            play.after(1000, [gone(*failure), seen(standby(90, 10)), seen(standby(95, 10))]);
        }
        play.after(1000, live());
        play.check(name, &[]);
    }
}

#[test]
fn a_terminated_session_is_followed_by_one_look_and_a_shutdown_counts_at_once() {
    let mut play = Play::new(|rules| rules.on_shutdown = ConnEndPolicy::Counts);
    play.tell(FailoverEvent::ConnDied { node: 0, how: ServerConnEnd::Terminated });
    play.probed(0, seen(primary(100)));
    play.check("pg_terminate_backend", &[]);
    play.tell(FailoverEvent::ConnDied { node: 0, how: ServerConnEnd::Terminated });
    play.probed(0, gone(LookFailure::ShuttingDown));
    play.now += 10;
    play.looks([gone(LookFailure::ShuttingDown), seen(standby(90, 10_000)), seen(standby(95, 10_000))]);
    play.check("a shutdown", &["hold Gone End", "cut off 1 (1)", "cut off 2 (1)"]);
}

#[test]
fn a_lone_weir_waits_for_a_primary_that_shuts_down_for_a_second() {
    let mut play = Play::new(|rules| {
        rules.on_shutdown = ConnEndPolicy::Counts;
        rules.nodes[0].agent = AgentPresence::None;
    });
    play.tell(FailoverEvent::ConnDied { node: 0, how: ServerConnEnd::Terminated });
    play.probed(0, gone(LookFailure::ShuttingDown));
    play.check("a shutdown", &["hold Gone End", "cut off 1 (1)", "cut off 2 (1)"]);
    let ballot = Ballot { term: 1, weir: 9 };
    let mark = Mark { promised: ballot, vote: None };
    for (node, position) in [(1, 90), (2, 95)] {
        play.tell(FailoverEvent::Pledged { node, ballot, outcome: PledgeReply::Given { facts: cut_off(position, mark) } });
    }
    for (passed, expected) in [(10, &[][..]), (980, &[]), (20, &["promote 2"])] {
        play.now += passed;
        play.probed(0, gone(LookFailure::ShuttingDown));
        play.check(&format!("{passed} ms later"), expected);
    }
}

/// With company a primary is checked after a connection to it broke. A full server, or a server with another password now, cannot be.
#[test]
fn a_primary_that_lets_no_look_in_keeps_its_writes_when_a_connection_breaks() {
    for failure in [LookFailure::TooManyConnections, LookFailure::WrongPassword] {
        let mut play = Play::new(|rules| rules.company = OtherPromoters::Possible);
        let standbys = || [seen(standby(100, 5)), seen(standby(100, 5))];
        let [first, second] = standbys();
        play.after(1000, [seen(primary(100)), first, second]);
        play.said.clear();
        play.now += 100;
        play.tell(FailoverEvent::ConnDied { node: 0, how: ServerConnEnd::Broken });
        play.check("it is looked at", &["hold Checked Go"]);
        let [first, second] = standbys();
        play.after(10, [gone(failure), first, second]);
        play.check("it answers", &["release 0"]);
    }
}

/// Its streams to others are not in the file of this Weir.
#[test]
fn a_primary_that_is_dead_at_the_start_may_have_had_any_standby_by_a_star() {
    for (names, expected) in [("*", &["stuck SyncUnknown"][..]), ("ANY 2 (b, c)", &["promote 2"])] {
        let named = |rules: &mut FailoverRules| {
            rules.nodes.iter_mut().zip(["a", "b", "c"]).for_each(|(node, name)| {
                (node.application_name, node.agent) = (name.into(), AgentPresence::None);
            });
        };
        let mut before = Play::new(named);
        let sync_names = Some(names.to_string());
        before.after(1000, [seen(ServerFacts { sync_names, ..primary(100) }), seen(standby(100, 5)), seen(standby(100, 5))]);
        let state = FailoverState::new(&before.rules, Some(before.state.durable.clone()), 9, &BTreeSet::new());
        let mut play = Play { state, rules: before.rules, now: 0, said: Vec::new(), disk: Done::Yes };
        play.tell(FailoverEvent::Timer);
        for passed in [0, 500] {
            play.after(passed, [gone(LookFailure::Refused), seen(standby(90, 9_000)), seen(standby(95, 9_000))]);
        }
        let ballot = play.state.attempt.as_ref().unwrap().ballot;
        let mark = Mark { promised: ballot, vote: None };
        play.said.clear();
        play.tell(FailoverEvent::Pledged { node: 1, ballot, outcome: PledgeReply::Given { facts: cut_off(90, mark) } });
        play.tell(FailoverEvent::Pledged { node: 2, ballot, outcome: PledgeReply::Given { facts: cut_off(95, mark) } });
        play.now += 10;
        play.probed(0, gone(LookFailure::Refused));
        play.check(names, expected);
    }
}

#[test]
fn a_command_is_told_of_no_standby_that_may_not_be_promoted() {
    let mut play = Play::new(|rules| {
        rules.mode = FailoverMode::Command;
        rules.commands.failover = "f %d %m %H".into();
        rules.nodes.iter_mut().for_each(|node| node.priority = 0);
    });
    for passed in [1000, 500] {
        play.after(passed, [gone(LookFailure::Refused), seen(standby(90, 2_000)), seen(standby(95, 2_000))]);
    }
    play.check("none may be", &["hold Gone End", "stuck NotByWeir", "run f  0  -1 \"\""]);
    play.tell(FailoverEvent::Operator { ticket: 1, request: OperatorRequest::Detach(0) });
    play.check("its commands ran when it was lost", &["reply Ok(())"]);
}

/// `pgpool_setup` starts Pgpool-II before it makes the standbys.
#[test]
fn no_command_is_run_for_a_node_that_has_never_answered() {
    let rules = FailoverRules {
        mode: FailoverMode::Command,
        commands: FailoverCommands { failover: "f %d".into(), ..rules(3).commands },
        ..rules(3)
    };
    let state = FailoverState::new(&rules, None, 9, &BTreeSet::new());
    let mut play = Play { state, rules, now: 0, said: Vec::new(), disk: Done::Yes };
    play.tell(FailoverEvent::Timer);
    for passed in [0, 1000, 1000, 1000] {
        play.after(passed, [seen(primary(100)), seen(standby(100, 5)), gone(LookFailure::Refused)]);
    }
    assert!(!play.state.nodes[&2].is_in_use() && !play.said.iter().any(|said| said.starts_with("run")), "{:?}", play.said);
    play.said.clear();
    for passed in [1000, 1000, 1000] {
        play.after(passed, [seen(primary(100)), gone(LookFailure::Refused), gone(LookFailure::Refused)]);
    }
    assert_eq!(play.said.iter().filter(|said| said.starts_with("run")).collect::<Vec<_>>(), ["run f  1"], "{:?}", play.said);
}

/// A restart of Weir does not turn a node that failed into one that somebody took out.
#[test]
fn auto_failback_takes_nodes_that_the_status_file_kept_out() {
    for (failback, expected) in [(FailbackMode::Auto { interval_ms: 0 }, true), (FailbackMode::ByOperator, false)] {
        let rules = FailoverRules { failback, ..rules(3) };
        let state = FailoverState::new(&rules, None, 9, &BTreeSet::from([2]));
        let mut play = Play { state, rules, now: 0, said: Vec::new(), disk: Done::Yes };
        play.tell(FailoverEvent::Timer);
        for passed in [0, 1000] {
            play.after(passed, [seen(primary(100)), seen(standby(100, 5)), seen(standby(100, 5))]);
        }
        assert_eq!(play.state.nodes[&2].is_in_use(), expected, "{failback:?}");
        assert_eq!(play.said.iter().filter(|said| *said == "unused 2").count(), usize::from(!expected), "once: {failback:?}");
    }
}

#[test]
fn a_primary_that_made_room_for_nothing_is_put_into_use_again() {
    let live = || [seen(primary(100)), seen(standby(100, 10)), seen(standby(100, 10))];
    let mut play = Play::new(|rules| {
        rules.mode = FailoverMode::Command;
        rules.commands.failover = "f %m".into();
    });
    play.after(1000, live());
    play.tell(FailoverEvent::Operator { ticket: 1, request: OperatorRequest::SwitchOver(2) });
    play.check("it makes room", &["hold Detached End", "run f  2", "reply Ok(())"]);
    play.now += 100;
    play.tell(FailoverEvent::CommandEnded { number: 1, done: Done::No });
    play.check("the standby is looked at first", &[]);
    play.after(10, live());
    play.check("it was not promoted", &["release 0"]);
}

#[test]
fn a_primary_that_ended_connections_and_refuses_them_then_is_proven_dead() {
    let mut play = Play::new(|rules| {
        rules.company = OtherPromoters::Possible;
        rules.nodes[0].agent = AgentPresence::None;
    });
    let standbys = || [seen(standby(90, 9_000)), seen(standby(95, 9_000))];
    for passed in [1000, 200, 200, 500] {
        let [first, second] = standbys();
        play.after(passed, [gone(LookFailure::Lost), first, second]);
    }
    play.check("silent, perhaps", &["hold Gone End", "stuck NotProvenDead"]);
    let [first, second] = standbys();
    play.after(200, [gone(LookFailure::Refused), first, second]);
    play.check("it refuses", &["cut off 1 (1)", "cut off 2 (1)"]);
}

#[test]
fn what_standbys_heard_at_the_moment_when_a_primary_fell_silent_is_no_sign_of_its_life() {
    for (silent_ms, expected) in [(499, "hold Quarantined End"), (500, "hold Gone End")] {
        let mut play = Play::new(|rules| rules.company = OtherPromoters::Possible);
        play.after(1000, [gone(LookFailure::TimedOut), seen(standby(101, 5)), seen(standby(101, 5))]);
        let heard = || seen(standby(101, silent_ms));
        play.after(500, [gone(LookFailure::TimedOut), heard(), heard()]);
        assert_eq!(play.said.first().map(String::as_str), Some(expected), "silent for {silent_ms} ms: {:?}", play.said);
    }
}

#[test]
fn where_somebody_else_promotes_a_later_vote_for_the_primary_itself_is_taken_over() {
    let mut play = Play::new(|rules| rules.mode = FailoverMode::Follow);
    let ballot = Ballot { term: 1, weir: 5 };
    let voted = |node| {
        let epoch = Epoch { ballot, ..Epoch::found(node) };
        Mark { promised: ballot, vote: Some(Vote { ballot, epoch, parent: Epoch::found(0) }) }
    };
    let standby_of = |node| seen(ServerFacts { mark: voted(node), ..standby(100, 10) });
    // One for a server that is no primary decides nothing.
    play.after(1000, [seen(primary(100)), standby_of(1), standby_of(1)]);
    assert_eq!(play.state.epoch().map(|epoch| (epoch.node, epoch.ballot)), Some((0, Ballot::default())));
    play.after(1000, [seen(ServerFacts { mark: voted(0), ..primary(100) }), standby_of(0), standby_of(0)]);
    assert_eq!(play.state.epoch().map(|epoch| (epoch.node, epoch.ballot)), Some((0, ballot)));
}

#[test]
fn a_primary_that_its_standbys_hear_is_quarantined() {
    let mut play = Play::new(|_| ());
    play.after(1000, [gone(LookFailure::TimedOut), seen(standby(101, 5)), seen(standby(101, 5))]);
    play.after(500, [gone(LookFailure::TimedOut), seen(standby(102, 5)), seen(standby(102, 5))]);
    play.check("heard after it was silent to us", &["hold Quarantined End", "quarantined 0", "stuck Quarantined"]);
    play.after(500, [seen(primary(103)), seen(standby(103, 5)), seen(standby(103, 5))]);
    play.check("it answers", &["release 0"]);
}

/// The standbys are asked for what they have heard since, and not the primary once more.
#[test]
fn after_the_verdict_on_a_primary_its_standbys_are_looked_at() {
    let mut play = Play::new(|_| ());
    play.after(1000, [gone(LookFailure::TimedOut), seen(standby(101, 5)), seen(standby(101, 5))]);
    play.now += 500;
    let begun_at = play.now - 400;
    play.tell(FailoverEvent::Probed { node: 0, begun_at, found: gone(LookFailure::TimedOut) });
    play.check("nobody knows yet what they have heard", &[]);
    let is_due = |play: &Play, id: NodeId| match play.state.nodes[&id].look {
        node_state::LookSchedule::Due { at } => at <= play.now,
        node_state::LookSchedule::UnderWay { begun_at, again } => begun_at == play.now || again,
    };
    assert!(is_due(&play, 1) && is_due(&play, 2));
    play.probed(1, seen(standby(101, 5)));
    play.check("the other one has not been asked", &[]);
    play.probed(2, seen(standby(101, 5)));
    play.check("both have heard it", &["hold Quarantined End", "quarantined 0", "stuck Quarantined"]);
}

/// It stops within a look at it: its last words are no sign of life.
#[test]
fn a_primary_that_was_heard_as_a_look_at_it_began_is_dead() {
    for (heard_at, expected) in [
        (1_400, &["hold Gone End", "cut off 1 (1)", "cut off 2 (1)"][..]),
        (1_600, &["hold Quarantined End", "quarantined 0", "stuck Quarantined"]),
    ] {
        let mut play = Play::new(|_| ());
        for begun_at in [1_000, 2_500] {
            play.now = begun_at + 1_000;
            play.tell(FailoverEvent::Probed { node: 0, begun_at, found: gone(LookFailure::TimedOut) });
            play.probed(1, seen(standby(101, play.now - heard_at)));
            play.probed(2, seen(standby(101, play.now - heard_at)));
        }
        play.check(&format!("heard at {heard_at}"), expected);
    }
}

#[test]
fn a_second_primary_is_false_while_the_first_answers() {
    let mut play = Play::new(|_| ());
    play.after(1000, [seen(primary(110)), seen(promoted(90)), seen(standby(110, 5))]);
    play.check("an accidental promotion", &["false primary 1"]);
    assert_eq!(play.state.primary(), Some(0));
}

#[test]
fn with_company_silence_is_no_proof_and_one_standby_no_majority() {
    let mut play = Play::new(|rules| {
        rules.company = OtherPromoters::Possible;
        rules.nodes[0].agent = AgentPresence::None;
    });
    play.after(1000, [seen(primary(100)), seen(standby(100, 5)), seen(standby(100, 5))]);
    play.said.clear();
    play.after(1000, [gone(LookFailure::TimedOut), seen(standby(100, 1_500)), seen(standby(100, 1_500))]);
    play.after(500, [gone(LookFailure::TimedOut), seen(standby(100, 2_000)), seen(standby(100, 2_000))]);
    play.check("silent", &["hold Gone End", "stuck NotProvenDead"]);
    play.now += 1000;
    play.probed(1, gone(LookFailure::Refused));
    play.probed(2, seen(standby(100, 3_000)));
    play.probed(0, gone(LookFailure::Refused));
    play.check("dead, and one standby with it", &["stuck TooFewPledged { pledged: 1, needed: 2, of: 2 }"]);
}

#[test]
fn who_decides_is_a_matter_of_the_mode() {
    let lost = |play: &mut Play| {
        play.after(1000, [gone(LookFailure::Refused), seen(standby(90, 2_000)), seen(standby(95, 2_000))]);
        play.after(500, [gone(LookFailure::Refused), seen(standby(90, 2_500)), seen(standby(95, 2_500))]);
    };
    let mut play = Play::new(|rules| rules.mode = FailoverMode::Follow);
    lost(&mut play);
    play.check("follow", &["hold Gone End", "stuck NotByWeir"]);
    play.after(1000, [gone(LookFailure::Refused), seen(promoted(90)), seen(standby(95, 3_500))]);
    play.check("somebody promoted one", &["hold Unconfirmed Go", "done 1 Unknown", "release 1"]);
    let mut play = Play::new(|rules| {
        rules.mode = FailoverMode::Command;
        rules.commands.failover = "f.sh %d %m %H".into();
    });
    lost(&mut play);
    play.check("command", &["hold Gone End", "stuck NotByWeir", "run f.sh  0  2 host2"]);
    let mut play = Play::new(|rules| rules.mode = FailoverMode::Off);
    lost(&mut play);
    play.check("off", &["hold Gone End", "stuck NotByWeir"]);
}

#[test]
fn a_switchover_lets_the_command_promote_the_node_that_was_named() {
    let mut play = Play::new(|rules| {
        rules.mode = FailoverMode::Command;
        rules.commands.failover = "f.sh %d %m %H".into();
    });
    play.after(1000, [seen(primary(100)), seen(standby(100, 5)), seen(standby(100, 5))]);
    play.said.clear();
    play.tell(FailoverEvent::Operator { ticket: 1, request: OperatorRequest::SwitchOver(2) });
    play.check("ordered", &["hold Detached End", "run f.sh  0  2 host2", "reply Ok(())"]);
    play.after(1000, [seen(primary(100)), seen(standby(100, 5)), seen(promoted(100))]);
    play.check("promoted", &["hold Unconfirmed Go", "done 2 After { at: 2000, bytes: 0 }", "false primary 0", "release 2"]);
    let refusal = |play: &mut Play, id: NodeId, expected: &str| {
        play.tell(FailoverEvent::Operator { ticket: 2, request: OperatorRequest::SwitchOver(id) });
        play.check(expected, &[&format!("reply Err(\"{expected}\")")]);
    };
    refusal(&mut play, 2, "node 2 is the primary already");
    let mut play = Play::new(|rules| rules.mode = FailoverMode::Follow);
    play.after(1000, [seen(primary(100)), seen(standby(100, 5)), seen(standby(100, 5))]);
    play.said.clear();
    refusal(&mut play, 1, "failover_mode leaves promotion to others");
}

#[test]
fn a_detached_primary_makes_room_for_the_standby_that_the_command_promotes() {
    let mut play = Play::new(|rules| {
        rules.mode = FailoverMode::Command;
        rules.commands.failover = "f.sh %d %m %H".into();
    });
    play.after(1000, [seen(primary(100)), seen(standby(100, 5)), seen(standby(100, 5))]);
    play.said.clear();
    play.tell(FailoverEvent::Operator { ticket: 1, request: OperatorRequest::Detach(0) });
    play.check("detached", &["hold Detached End", "run f.sh  0  1 host1", "reply Ok(())"]);
    play.after(1000, [seen(primary(100)), seen(promoted(100)), seen(standby(100, 5))]);
    play.check("promoted", &["hold Unconfirmed Go", "done 1 After { at: 2000, bytes: 0 }", "false primary 0", "release 1"]);
}

#[test]
fn nodes_are_shown_once_looks_that_somebody_has_a_reason_for_are_answered() {
    let is_settled = |play: &Play, since: Ms| FailoverView::of(&play.state, &play.rules, play.now).is_settled(since, play.now);
    let mut play = Play::new(|_| ());
    play.after(1000, [seen(primary(100)), seen(standby(90, 10)), seen(standby(95, 10))]);
    play.now += 500;
    assert!(is_settled(&play, play.now), "nobody has a reason to doubt what is known");
    play.tell(FailoverEvent::ConnDied { node: 2, how: ServerConnEnd::Broken });
    let asked = play.now;
    assert!(!is_settled(&play, asked), "the server of a connection that ended is asked");
    play.now += 1_000;
    assert!(is_settled(&play, asked), "nobody waits longer for a node that says nothing");
    play.looks([seen(primary(100)), seen(standby(90, 10)), gone(LookFailure::Refused)]);
    assert!(is_settled(&play, play.now));
    assert!(FailoverView::of(&play.state, &play.rules, play.now).nodes[2].is_silent(), "a standby that is gone is shown as that");
}

#[test]
fn nodes_are_shown_late_while_another_primary_is_about_to_come() {
    let is_settled = |play: &Play, since: Ms| FailoverView::of(&play.state, &play.rules, play.now).is_settled(since, play.now);
    let looks = || [gone(LookFailure::Refused), seen(standby(90, 10)), seen(standby(95, 10))];
    let mut play = Play::new(|_| ());
    play.looks(looks());
    let lost = play.now;
    assert!(!is_settled(&play, lost), "another primary is about to come");
    play.now += 1_000;
    assert!(is_settled(&play, lost), "it takes longer than somebody waits");
    assert!(!is_settled(&play, play.now), "the next one who asks waits as well");
    play.now += 14_000;
    assert!(is_settled(&play, play.now), "it did not come");
    let mut play = Play::new(|rules| rules.mode = FailoverMode::Follow);
    play.looks(looks());
    assert!(is_settled(&play, play.now), "nobody here promotes one");
}

#[test]
fn a_node_that_an_operator_took_out_stays_so_when_its_server_stops() {
    let mut play = Play::new(|_| ());
    play.after(1000, [seen(primary(100)), seen(standby(100, 5)), seen(standby(100, 5))]);
    play.tell(FailoverEvent::Operator { ticket: 1, request: OperatorRequest::Detach(1) });
    play.tell(FailoverEvent::Operator { ticket: 2, request: OperatorRequest::Recover(2, NodeCopyStage::Begins) });
    play.said.clear();
    for _ in 0..4 {
        play.after(1000, [seen(primary(100)), gone(LookFailure::Refused), gone(LookFailure::Refused)]);
    }
    play.check("both stopped", &[]);
    assert_eq!([1, 2].map(|id| play.state.nodes[&id].standing), [NodeStanding::Detached, NodeStanding::Recovering]);
    play.tell(FailoverEvent::Operator { ticket: 3, request: OperatorRequest::Attach(1) });
    play.check("it does not answer", &["reply Err(\"node 1 does not answer\")"]);
    assert_eq!(
        play.state.nodes[&1].look,
        LookSchedule::UnderWay { begun_at: play.now, again: false },
        "who asks again may hear another answer"
    );
}

/// `backend_flag` says who is replaced, and not who is used.
#[test]
fn a_primary_that_may_not_be_replaced_is_not_used_while_it_is_dead() {
    for (name, flag, why) in [
        ("DISALLOW_TO_FAILOVER", BackendFlag::DisallowToFailover, "stuck DisallowToFailover"),
        ("ALWAYS_PRIMARY", BackendFlag::AlwaysPrimary, "stuck AlwaysPrimary"),
    ] {
        let mut play = Play::new(|rules| rules.nodes[0].flag = flag);
        let is_avoided = |play: &Play| [0, 1, 2].map(|id| play.state.is_avoided(&play.rules, id));
        play.after(1000, [gone(LookFailure::Refused), seen(standby(90, 10)), seen(standby(95, 10))]);
        assert_eq!(is_avoided(&play), [false; 3], "{name}: in doubt");
        play.after(500, [gone(LookFailure::Refused), seen(standby(90, 510)), seen(standby(95, 510))]);
        play.check(name, &["hold Gone Go", why]);
        assert_eq!(is_avoided(&play), [true, false, false], "{name}");
        assert_eq!(play.state.nodes[&0].standing, NodeStanding::Waiting, "{name}: it is in its place");
        assert!(!play.state.is_out(&play.rules, 0), "{name}: no command and no pgpool_status say that it is gone");
        play.tell(FailoverEvent::Operator { ticket: 1, request: OperatorRequest::Promote(1) });
        let refused = "reply Err(\"node 0 may not be replaced: its backend_flag is DISALLOW_TO_FAILOVER or ALWAYS_PRIMARY\")";
        play.check(name, &[refused]);
        for _ in 0..5 {
            play.after(1000, [gone(LookFailure::Refused), seen(standby(90, 9000)), seen(standby(95, 9000))]);
        }
        play.check(name, &[]);
        play.after(1000, [seen(ServerFacts { started_at: 2, ..primary(100) }), seen(standby(100, 10)), seen(standby(100, 10))]);
        play.check(name, &["release 0"]);
        assert_eq!(is_avoided(&play), [false; 3], "{name}: it is back");
    }
}

/// A standby with the flag, too: it is not read while it is dead, and used again without an operator.
#[test]
fn a_standby_that_may_not_be_detached_is_not_read_while_it_is_dead() {
    let mut play = Play::new(|rules| rules.nodes[1].flag = BackendFlag::DisallowToFailover);
    let is_avoided = |play: &Play| play.state.is_avoided(&play.rules, 1);
    for _ in 0..2 {
        play.after(1000, [seen(primary(100)), gone(LookFailure::Refused), seen(standby(95, 10))]);
    }
    assert!(is_avoided(&play) && !play.state.is_out(&play.rules, 1));
    play.after(1000, [seen(primary(100)), seen(standby(100, 10)), seen(standby(100, 10))]);
    assert!(!is_avoided(&play));
    play.check("writes are not touched", &[]);
}

/// A postmaster that is stuck, or logins that take longer than a look may.
#[test]
fn a_primary_that_answers_clients_is_not_given_up_for_a_late_login() {
    let mut play = Play::new(|_| ());
    let late = |play: &mut Play, beside: SignOfLife| {
        let begun_at = play.now;
        play.now += 1000;
        play.tell(FailoverEvent::Probed { node: 0, begun_at, found: gone(LookFailure::TimedOut) }.beside(beside));
        play.probed(1, seen(standby(90, 10)));
        play.probed(2, seen(standby(95, 10)));
    };
    for _ in 0..130 {
        late(&mut play, SignOfLife::Answers);
    }
    play.check("open connections answer: told after a minute, and once", &["no login 0 for 60000"]);
    assert_eq!((play.state.nodes[&0].failure, play.state.nodes[&0].dead), (Some(LookFailure::Late), None));
    let due = play.state.next_due();
    assert!(due <= play.now + 1000, "it is looked at again soon: the server may have died since it answered");
    late(&mut play, SignOfLife::Silence);
    play.check("one look without an answer", &[]);
    late(&mut play, SignOfLife::Silence);
    play.check("two", &["hold Quarantined End", "quarantined 0", "stuck Quarantined"]);
    let refused = FailoverEvent::Probed { node: 0, begun_at: 1, found: gone(LookFailure::Refused) };
    assert_eq!(refused.clone().beside(SignOfLife::Answers), refused, "nobody listens any more, whatever was answered before");
}

#[test]
fn a_look_that_comes_near_to_its_limit_is_told_once() {
    let mut play = Play::new(|_| ());
    let limit_ms = play.rules.nodes[1].health.limit_ms();
    let slow = |play: &mut Play| {
        let begun_at = play.now;
        play.now += limit_ms * 3 / 4;
        let event = FailoverEvent::Probed { node: 1, begun_at, found: seen(standby(100, 5)) };
        let told = step(&mut play.state, &play.rules, &event, play.now);
        told.iter().filter(|action| matches!(action, FailoverAction::Report(FailoverReport::Slow { node: 1, .. }))).count()
    };
    assert_eq!([slow(&mut play), slow(&mut play)], [1, 0]);
}

#[test]
fn operators_are_answered_truly() {
    let mut play = Play::new(|rules| rules.nodes[1].flag = BackendFlag::DisallowToFailover);
    let cases: &[(OperatorRequest, &str)] = &[
        (OperatorRequest::Attach(7), "reply Err(\"node 7 does not exist\")"),
        (OperatorRequest::Detach(1), "reply Err(\"node 1 may not be detached: its backend_flag is DISALLOW_TO_FAILOVER\")"),
        (OperatorRequest::Detach(2), "reply Ok(())"),
        (OperatorRequest::Attach(2), "reply Ok(())"),
        (OperatorRequest::Promote(0), "reply Err(\"node 0 is the primary already\")"),
        (
            OperatorRequest::Promote(2),
            "reply Err(\"node 2 is in recovery and the primary works: stop or detach the primary first\")",
        ),
    ];
    for (request, expected) in cases {
        play.tell(FailoverEvent::Operator { ticket: 1, request: *request });
        play.check(&format!("{request:?}"), &[expected]);
    }
}

#[test]
fn the_forecast_says_what_a_failover_would_do() {
    let play = Play::new(|_| ());
    let outlook = forecast(&play.state, &play.rules).outlook;
    assert_eq!(outlook, FailoverOutlook::Promotes { node: 2, loss: CommitLoss::Unknown, proof: DeathProof::None });
    let mut play = Play::new(|rules| rules.company = OtherPromoters::Possible);
    play.after(1000, [seen(primary(100)), gone(LookFailure::Refused), seen(standby(100, 5))]);
    let why = AttemptRefusal::TooFewPledged { pledged: 1, needed: 2, of: 2 };
    assert_eq!(forecast(&play.state, &play.rules).outlook, FailoverOutlook::Waits { why });
    play.after(1000, [seen(primary(100)), seen(standby(100, 5)), seen(standby(100, 5))]);
    assert!(matches!(forecast(&play.state, &play.rules).outlook, FailoverOutlook::Promotes { .. }), "as many as are needed");
    let prospect = |play: &Play| forecast(&play.state, &play.rules).prospect();
    assert_eq!(prospect(&play), FailoverProspect::Replaced);
    let play = Play::new(|rules| rules.lag_bytes_max = Some(4));
    assert_eq!(prospect(&play), FailoverProspect::WritesWait);
    let text = forecast(&play.state, &play.rules).describe(0);
    assert_eq!(text, "writes would wait: node 2 is the best and lacks 5 bytes, above failover_lag_max");
    let mut play = Play::on_disk(Done::No, |_| ());
    assert_eq!(forecast(&play.state, &play.rules).outlook, FailoverOutlook::Waits { why: AttemptRefusal::NotStored });
    play.disk = Done::Yes;
    play.after(60_000, [seen(primary(100)), seen(standby(90, 10)), seen(standby(95, 10))]);
    assert!(matches!(forecast(&play.state, &play.rules).outlook, FailoverOutlook::Promotes { .. }), "it can be written again");
}
