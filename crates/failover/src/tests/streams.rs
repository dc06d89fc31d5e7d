//! Standbys that receive nothing while the primary answers.

use super::*;

fn receives(position: Lsn, upstream: NodeId, stream: WalReceiverState) -> ProbeResult {
    seen(server(position, RecoveryState::Standby { upstream: Some(upstream), stream }))
}

const STREAMS: WalReceiverState = WalReceiverState::On { silent_ms: 5 };

fn check_woken(play: &mut Play) {
    let wait = || receives(100, 0, WalReceiverState::Off);
    play.said.clear();
    play.after(10, [seen(primary(100)), wait(), wait()]);
    play.check("they wait wal_retrieve_retry_interval", &["wake 1", "wake 2"]);
    play.after(100, [seen(primary(100)), wait(), receives(100, 0, STREAMS)]);
    play.check("it takes a moment", &[]);
    play.after(2000, [seen(primary(100)), wait(), receives(100, 0, STREAMS)]);
    play.check("once more", &["wake 1"]);
    for _ in 0..10 {
        play.after(5000, [seen(primary(100)), wait(), receives(100, 0, STREAMS)]);
    }
    play.check("ever less often", &["wake 1"; 3]);
    for _ in 0..10 {
        play.after(5000, [seen(primary(100)), wait(), receives(100, 0, STREAMS)]);
    }
    play.check("it does not stream for another reason", &[]);
}

#[test]
fn standbys_look_for_a_primary_that_is_back_after_a_crash() {
    // Connections broke, and the next look was answered already.
    let mut play = Play::new(|_| {});
    play.now += 1000;
    play.tell(FailoverEvent::ConnDied { node: 0, how: ServerConnEnd::Terminated });
    play.looks([seen(primary(100)), receives(100, 0, STREAMS), receives(100, 0, STREAMS)]);
    check_woken(&mut play);
    // A look was refused meanwhile.
    let mut play = Play::new(|_| {});
    play.after(
        1000,
        [gone(LookFailure::Starting), receives(100, 0, WalReceiverState::Off), receives(100, 0, WalReceiverState::Off)],
    );
    play.after(500, [seen(primary(100)), receives(100, 0, WalReceiverState::Off), receives(100, 0, WalReceiverState::Off)]);
    play.now += 2000;
    play.tell(FailoverEvent::ConnDied { node: 0, how: ServerConnEnd::Broken });
    play.looks([seen(primary(100)), receives(100, 0, STREAMS), receives(100, 0, STREAMS)]);
    check_woken(&mut play);
}

#[test]
fn where_others_promote_no_standby_is_told_anything() {
    let mut play = Play::new(|rules| rules.mode = FailoverMode::Follow);
    play.tell(FailoverEvent::ConnDied { node: 0, how: ServerConnEnd::Terminated });
    for _ in 0..3 {
        play.after(10, [seen(primary(100)), receives(100, 0, WalReceiverState::Off), receives(100, 0, STREAMS)]);
    }
    play.check("follow", &[]);
    let orphan = || receives(100, 1, WalReceiverState::Off);
    for passed in [1000, 500, 1000] {
        play.after(passed, [seen(primary(120)), gone(LookFailure::Refused), orphan()]);
    }
    play.check("it is told", &["orphan 2 of 1"]);
}

#[test]
fn a_standby_whose_upstream_is_dead_is_pointed_at_the_primary() {
    let mut play = Play::new(|_| {});
    play.after(1000, [seen(primary(110)), receives(110, 0, STREAMS), receives(110, 1, STREAMS)]);
    play.after(1000, [seen(primary(120)), gone(LookFailure::Refused), receives(110, 1, WalReceiverState::Off)]);
    play.check("one look", &[]);
    play.after(500, [seen(primary(120)), gone(LookFailure::Refused), receives(110, 1, WalReceiverState::Off)]);
    play.check("its upstream is dead", &["orphan 2 of 1", "point 2 at 0"]);
    play.tell(FailoverEvent::Pointed { node: 2, done: Done::No });
    play.after(1000, [seen(primary(120)), gone(LookFailure::Refused), receives(110, 1, WalReceiverState::Off)]);
    play.check("a pause", &[]);
    play.after(2000, [seen(primary(120)), gone(LookFailure::Refused), receives(110, 1, WalReceiverState::Off)]);
    play.check("again", &["point 2 at 0"]);
    play.after(1000, [seen(primary(130)), gone(LookFailure::Refused), receives(130, 0, STREAMS)]);
    play.check("it streams", &[]);
}

#[test]
fn one_that_has_promised_to_another_proxy_or_hears_its_upstream_is_left_where_it_is() {
    let promised = Mark { promised: Ballot { term: 9, weir: 4 }, vote: None };
    let streams = server(110, RecoveryState::Standby { upstream: Some(1), stream: STREAMS });
    let waits = server(110, RecoveryState::Standby { upstream: Some(1), stream: WalReceiverState::Off });
    for (name, facts) in [
        ("it hears a node that Weir does not reach", streams),
        ("it has promised a newer attempt", ServerFacts { mark: promised, ..waits.clone() }),
        (
            "another log",
            ServerFacts { history: TimelineHistory { system: 9, timeline: 1, ..TimelineHistory::default() }, ..waits },
        ),
    ] {
        let mut play = Play::new(|_| {});
        for passed in [1000, 500, 1000, 3000] {
            play.after(passed, [seen(primary(120)), gone(LookFailure::TimedOut), seen(facts.clone())]);
        }
        assert!(!play.said.iter().any(|line| line.starts_with("point")), "{name}: {:?}", play.said);
    }
}
