//! Clients of a group that read nothing while their commit is answered, and the primary is replaced meanwhile.

use super::grouped::{Group, writes};
use super::*;
use crate::support::wire;
use std::fs;
use std::io::ErrorKind;

const RECEIVE_BYTES: usize = 16 * 1024;
/// Rows of a kB each. The first fit between a client with a small receive buffer and the proxy.
const ROWS: std::ops::Range<usize> = 2_500..12_000;
/// Less than lies between the proxy and a server.
const ROWS_MORE: usize = 500;
/// The answer to what comes after so much has not come to the proxy. Less is on its way to clients that read.
const UNREAD_BYTES: u64 = 64 * 1024;
/// Looks between which a proxy that still reads reads something.
const LOOKS: usize = 20;

/// Outcome of a commit that a client is told.
#[derive(Debug, PartialEq, Eq)]
enum ToldOutcome {
    Success,
    Failure(String),
    /// The connection ended within a message, where no other one can be told.
    CutShort,
    Nothing,
}

/// Reads all rows, and then the outcome.
fn told(client: &mut Raw) -> ToldOutcome {
    loop {
        match client.try_read() {
            Ok(Some(message)) if message.tag == b'C' && message.text() == "COMMIT" => return ToldOutcome::Success,
            Ok(Some(message)) if message.tag == b'E' => return ToldOutcome::Failure(message.failure().sqlstate),
            Ok(Some(_)) => {}
            Ok(None) => return ToldOutcome::Nothing,
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => return ToldOutcome::CutShort,
            Err(error) => panic!("{error}"),
        }
    }
}

/// Bytes of this server that lie in a socket of a client on this machine: the most.
fn unread_bytes(port: u16) -> u64 {
    let table = fs::read_to_string("/proc/net/tcp").unwrap();
    let unread = table.lines().skip(1).filter_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (remote, queues) = (fields.get(2)?, fields.get(4)?);
        let is_of_server = remote.ends_with(&format!(":{port:04X}"));
        u64::from_str_radix(queues.split_once(':')?.1, 16).ok().filter(|_| is_of_server)
    });
    unread.max().unwrap_or_default()
}

/// True if the proxy reads nothing more of an answer.
fn is_clogged(port: u16) -> bool {
    let (mut last, mut looks) = (unread_bytes(port), 0);
    wait_until("the proxy to read all, or nothing more", || {
        let unread = unread_bytes(port);
        looks = if unread == last { looks + 1 } else { 0 };
        last = unread;
        unread < UNREAD_BYTES || looks > LOOKS
    });
    last >= UNREAD_BYTES
}

/// Place where an answer lies that its client does not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AnswerPlace {
    /// Between the server and the proxy.
    BeforeProxy,
    BehindProxy,
}

/// A client that reads nothing since it sent its commit after a query.
struct SilentClient {
    client: Raw,
    answer: AnswerPlace,
    /// Counts the row that it wrote.
    there: String,
}

impl SilentClient {
    /// The server has committed.
    fn begin(group: &Group, cluster: &Owned, host: usize, rows: usize) -> SilentClient {
        let port = group.proxies[host].port();
        let mut client = Raw::tcp_with_receive_buffer(port, RECEIVE_BYTES).log_in("postgres", "postgres", &[]).unwrap();
        let number = -(rows as i64) - 1;
        client.run(&format!("begin; insert into written values ({number})"));
        // Together: the proxy reads nothing more from a client that does not take its answers.
        let query = format!("select repeat('x', 1000) from generate_series(1, {rows})");
        client.send(&[wire::query(&query), wire::query("commit")].concat());
        let there = format!("select count(*) from written where number = {number}");
        wait_until("the server to have committed", || cluster.primary().value(&there).unwrap() == "1");
        SilentClient { client, answer: AnswerPlace::BehindProxy, there }
    }

    /// The answer to the commit is still on its way to the proxy.
    fn begin_clogged(group: &Group, cluster: &Owned, host: usize) -> SilentClient {
        for rows in ROWS.step_by(ROWS_MORE) {
            let client = SilentClient::begin(group, cluster, host, rows);
            if is_clogged(cluster.primary().port()) {
                return SilentClient { answer: AnswerPlace::BeforeProxy, ..client };
            }
        }
        panic!("the proxy reads on for a client that reads nothing");
    }
}

/// The primary is replaced before a client reads the answer to its commit. That waits for no client for long.
fn check_outcome(host: usize, conf: &[(&str, &str)], more: &str, begin: impl Fn(&Group, &Owned, usize) -> SilentClient) {
    let cluster = servers(2, conf);
    let group = Group::start(&cluster, more);
    let load = Load::with(&group.proxies[(host + 1) % 3], Crew { writers: 2, ..Crew::default() });
    let SilentClient { mut client, answer, there } = begin(&group, &cluster, host);
    let killed = Instant::now();
    cluster.primary().kill9().unwrap();
    for proxy in &group.proxies {
        wait_until("another primary for all hosts", || proxy.log().contains("in epoch 2") && writes(proxy));
    }
    let gap = killed.elapsed();
    load.wait_acknowledged(50);
    let told = told(&mut client);
    wait_until("one primary", || primaries(&cluster).len() == 1);
    let [new] = primaries(&cluster)[..] else { panic!("one primary") };
    let (missing, is_there) = (load.end().missing_on(new), new.value(&there).unwrap() == "1");
    eprintln!(
        "host {host}, {conf:?}, answer {answer:?}: told {told:?}, there {is_there}, {} ms until all hosts wrote",
        gap.as_millis()
    );
    match &told {
        ToldOutcome::Success => {
            assert_eq!(answer, AnswerPlace::BehindProxy, "a success that came after its epoch was closed");
            assert!(is_there, "a success of an epoch that was closed");
        }
        ToldOutcome::Failure(sqlstate) => {
            assert!(["08007", "40001"].contains(&sqlstate.as_str()), "{sqlstate}");
            assert!(!is_there || sqlstate != "40001", "it was committed");
        }
        ToldOutcome::CutShort => {}
        ToldOutcome::Nothing => panic!("the session ended without a word\n{}", group.proxies[host].log()),
    }
    assert!(is_there || conf.is_empty(), "a standby had the commit");
    assert!(missing.is_empty() || conf.is_empty(), "{missing:?}");
}

#[test]
fn a_client_of_a_leader_that_reads_late_is_told_no_success_that_the_new_primary_lacks() {
    check_outcome(0, &[ANY], "", SilentClient::begin_clogged);
}

#[test]
fn a_client_of_a_follower_that_reads_late_is_told_no_success_that_the_new_primary_lacks() {
    check_outcome(2, &[], "io_method = epoll\n", SilentClient::begin_clogged);
}

/// The answer has come to the proxy, or to the client's machine.
#[test]
fn a_success_that_a_client_reads_late_is_one_that_the_new_primary_has() {
    for rows in [1, 1_500] {
        check_outcome(2, &[ANY], "", |group, cluster, host| SilentClient::begin(group, cluster, host, rows));
    }
}
