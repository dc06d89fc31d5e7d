//! A host of a group stands still while a server's acknowledgement is on its way to a client, and the others replace that server meanwhile.

use super::grouped::{Group, writes};
use super::*;
use crate::support::faults::Toward;
use crate::support::wire;

/// Outcome that a client is told.
#[derive(Debug, PartialEq, Eq)]
enum ToldOutcome {
    Success,
    Failure(String),
}

/// Reads up to the outcome: an error may end the session.
fn told(client: &mut Raw) -> ToldOutcome {
    loop {
        let message = client.read();
        match message.tag {
            b'C' => return ToldOutcome::Success,
            b'E' => return ToldOutcome::Failure(message.failure().sqlstate),
            _ => {}
        }
    }
}

/// The acknowledgement of a commit lies in the socket of a host that stands still, by its number, until after the primary is replaced.
fn check_no_success(host: usize, conf: &[(&str, &str)], more: &str, statements: (&str, &str)) {
    const NUMBER: i64 = -7;
    let cluster = servers(2, conf);
    let network = Network::to(cluster.primary().port());
    let group = Group::start_over(&cluster, more, |of, server| {
        if of == host && server.port() == cluster.primary().port() { network.port() } else { server.port() }
    });
    let others: Vec<usize> = (0..3).filter(|other| *other != host).collect();
    let frozen = &group.proxies[host];
    let mut client = frozen.console();
    let (begin, commit) = statements;
    if !begin.is_empty() {
        client.run(begin);
    }
    let load = Load::with(&group.proxies[others[0]], Crew { writers: 2, ..Crew::default() });
    network.stall_present(&[Toward::Client]);
    client.send(&wire::query(commit));
    let there = format!("select count(*) from written where number = {NUMBER}");
    wait_until("the server to have committed", || cluster.primary().value(&there).unwrap() == "1");
    frozen.signal(Signal::STOP);
    network.go_on();
    cluster.primary().kill9().unwrap();
    for other in others {
        let proxy = &group.proxies[other];
        wait_until("another primary for the others", || proxy.log().contains("in epoch 2") && writes(proxy));
    }
    load.wait_acknowledged(50);
    frozen.signal(Signal::CONT);
    let told = told(&mut client);
    let expected = ["08007", "40001"].map(|sqlstate| ToldOutcome::Failure(sqlstate.to_owned()));
    assert!(expected.contains(&told), "{told:?}\n{}", frozen.log());
    wait_until("writes through the host that stood still", || writes(frozen));
    let [new] = primaries(&cluster)[..] else { panic!("one primary") };
    let missing = load.end().missing_on(new);
    let is_told = || group.proxies.iter().any(|proxy| proxy.log().contains("lost: at most"));
    assert!(missing.is_empty() || (conf.is_empty() && is_told()), "{missing:?}");
    let is_there = new.value(&there).unwrap() == "1";
    assert!(is_there || conf.is_empty(), "a standby had the commit");
    assert!(!is_there || told != ToldOutcome::Failure("40001".into()), "it was committed");
}

#[test]
fn a_leader_that_stood_still_tells_no_success_of_a_commit_that_was_answered_meanwhile() {
    check_no_success(0, &[ANY], "", ("", "insert into written values (-7)"));
}

#[test]
fn a_follower_that_stood_still_tells_no_success_of_a_commit_that_was_answered_meanwhile() {
    check_no_success(2, &[], "io_method = epoll\n", ("begin; insert into written values (-7)", "commit"));
}

#[test]
fn a_host_that_stood_still_tells_no_success_of_the_end_of_a_pipeline() {
    check_no_success(2, &[ANY], "pool_mode = session\n", ("", "begin; insert into written values (-7); commit"));
}
