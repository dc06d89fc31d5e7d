//! Members of a group that another process takes over from, with the sessions that stay behind.

use super::group_operators::Desk;
use super::grouped::{Group, loads, writes};
use super::*;
use crate::support::proxy::Replaced;
use std::process::Command;

const WAY: &str = "takeover_socket = 'FOLDER/way'\n";
const INSERT: &str = "insert into readable values (70)";
const COUNT: &str = "select count(*) from readable where a = 70";

fn group(cluster: &Owned, more: &str) -> Group {
    Group::start(cluster, &format!("{WAY}{more}"))
}

/// Takes over, and waits until the new process of this host takes writes.
fn take_over(group: &mut Group, host: usize, log: &str) -> Replaced {
    let old = group.proxies[host].restart(log);
    assert!(group.proxies[host].is_running(), "{}", log_of(group, host, log));
    wait_until("the new process to take writes", || writes(&group.proxies[host]));
    old
}

/// Log of a process that took over.
fn log_of(group: &Group, host: usize, log: &str) -> String {
    std::fs::read_to_string(group.proxies[host].folder().join(log)).unwrap_or_default()
}

/// A session with a row that it has not committed.
fn open_transaction(proxy: &Proxy) -> Raw {
    let mut client = proxy.console();
    client.run("begin");
    client.run(INSERT);
    client
}

/// The answer to a COMMIT that was sent: an error, or ROLLBACK where nothing was committed.
fn check_no_success(client: &mut Raw) {
    let mut answer = String::new();
    while let Ok(Some(message)) = client.try_read() {
        match message.tag {
            b'Z' => break,
            b'C' => answer += &message.text(),
            _ => answer += &format!("{} ", message.tag as char),
        }
    }
    assert!(answer.starts_with('E') || answer == "ROLLBACK", "{answer}");
    assert!(!answer.contains("COMMIT"), "{answer}");
}

/// No session was lost, no statement failed, and no write that was acknowledged is missing.
pub(super) fn check_none_failed(cluster: &Owned, loads: Vec<Load>) {
    for load in loads {
        let noted = load.end();
        let missing = noted.missing_on(cluster.primary());
        eprintln!("{} acknowledged, {} ms without writes", noted.acknowledged.len(), noted.gap().as_millis());
        assert!(missing.is_empty(), "{missing:?}");
        let failed = (&noted.errors, &noted.refused, &noted.failed_reads);
        assert!(noted.lost == 0 && noted.errors.is_empty() && noted.refused.is_empty(), "{} lost: {failed:?}", noted.lost);
    }
}

#[test]
fn a_leader_dies_while_another_member_is_taken_over() {
    let cluster = servers(1, &[]);
    let mut group = group(&cluster, "");
    let loads = loads(&group, &[1, 2]);
    let [leader] = group.leaders()[..] else { panic!("one leader, not {:?}", group.leaders()) };
    assert_eq!(leader, 0, "the lowest host founds the group");
    group.proxies[leader].signal(Signal::KILL);
    let mut old = take_over(&mut group, 1, "log1");
    loads.iter().for_each(|load| load.wait_acknowledged(100));
    group.proxies[leader].crash_and_start();
    wait_until("all hosts to take writes", || group.proxies.iter().all(writes));
    // One of the two others leads now.
    let mut next = take_over(&mut group, 2, "log2");
    loads.iter().for_each(|load| load.wait_acknowledged(100));
    check_none_failed(&cluster, loads);
    assert!(old.wait_end().success() && next.wait_end().success(), "the old ones end when their clients have left");
}

#[test]
fn takeovers_of_all_members_under_load_lose_no_write_and_no_session() {
    let cluster = servers(1, &[]);
    let mut group = group(&cluster, "");
    let loads: Vec<Load> = (0..3)
        .map(|host| {
            let crew = Crew { writers: 2, transactions: 1, readers: 1, first: 10_000_000 * host as i64, ..Crew::default() };
            Load::with(&group.proxies[host], crew)
        })
        .collect();
    let mut old = Vec::new();
    for round in 0..2 {
        for host in [1, 0, 2] {
            old.push(take_over(&mut group, host, &format!("log{round}")));
            loads.iter().for_each(|load| load.wait_acknowledged(20));
        }
    }
    check_none_failed(&cluster, loads);
    for old in &mut old {
        assert!(old.wait_end().success(), "the old ones end when their clients have left");
    }
    let moved =
        ["log0", "log1"].iter().any(|log| (1..3).any(|host| log_of(&group, host, log).contains("I am the cluster leader")));
    eprintln!("takeovers: the lead {}", if moved { "moved" } else { "stayed" });
}

#[test]
fn a_transaction_that_is_open_at_the_takeover_of_the_leader_commits_in_the_old_process() {
    let cluster = servers(1, &[]);
    let mut group = group(&cluster, "");
    let mut client = open_transaction(&group.proxies[0]);
    let mut old = take_over(&mut group, 0, "log2");
    let_pass(Duration::from_secs(3));
    client.run("commit");
    assert_eq!(cluster.primary().value(COUNT).unwrap(), "1");
    client.run(INSERT);
    drop(client);
    assert!(old.wait_end().success());
    assert_eq!(cluster.primary().value(COUNT).unwrap(), "2", "after the lease that the old process had itself");
}

#[test]
fn a_closing_of_writes_waits_for_the_lease_of_an_old_process_that_does_not_answer() {
    let cluster = servers(1, &[]);
    let mut group = group(&cluster, "wd_lease = 6s\n");
    let mut client = open_transaction(&group.proxies[1]);
    let first = Pid::from_raw(group.proxies[1].pid() as i32).unwrap();
    let _old = take_over(&mut group, 1, "log2");
    let stopped_at = Instant::now();
    signal_process(first, Signal::STOP).unwrap();
    client.send(&crate::support::wire::query("commit"));
    let asked = {
        let desk = Desk::new();
        let folder = group.proxies[2].folder().to_owned();
        thread::spawn(move || desk.weir_in(&folder, &["pcp", "promote_node", "-s", "1"]))
    };
    let [standby] = cluster.standbys() else { panic!("one standby") };
    wait_until("the standby to be promoted", || standby.in_recovery().is_ok_and(|recovers| !recovers));
    // A lease is passed on eight times in its length, so that more than this of it was left.
    let waited = stopped_at.elapsed();
    assert!(waited > Duration::from_secs(4), "promoted {} ms after the old process stopped", waited.as_millis());
    signal_process(first, Signal::CONT).unwrap();
    check_no_success(&mut client);
    asked.join().unwrap().unwrap();
    assert_eq!(standby.value(COUNT).unwrap(), "0");
}

#[test]
fn sessions_of_an_old_process_hear_of_no_success_once_the_new_one_was_killed() {
    let cluster = servers(1, &[]);
    let mut group = group(&cluster, "failover_wait = 1s\n");
    let mut inside = open_transaction(&group.proxies[2]);
    let mut idle = group.proxies[2].console();
    idle.run("select 1");
    let _old = take_over(&mut group, 2, "log2");
    group.proxies[2].signal(Signal::KILL);
    group.proxies[2].wait_end();
    wait_until("writes to be refused", || idle.query(INSERT).iter().any(|message| message.tag == b'E'));
    let answers = inside.query("commit");
    assert!(!answers.iter().any(|message| message.tag == b'C'), "{answers:?}");
    let other = &group.proxies[0];
    wait_until("the others to go on", || writes(other));
}

#[test]
fn a_closing_of_writes_waits_for_an_old_process_also_when_the_new_one_was_killed_and_started_again() {
    let cluster = servers(1, &[]);
    let mut group = group(&cluster, "wd_lease = 6s\n");
    let mut client = open_transaction(&group.proxies[1]);
    let first = Pid::from_raw(group.proxies[1].pid() as i32).unwrap();
    let _old = take_over(&mut group, 1, "log2");
    signal_process(first, Signal::STOP).unwrap();
    client.send(&crate::support::wire::query("commit"));
    let killed_at = Instant::now();
    group.proxies[1].crash_and_start();
    let log = "a former process of this host still has clients";
    wait_until("the former process to be found", || group.proxies[1].log().contains(log));
    let asked = {
        let desk = Desk::new();
        let folder = group.proxies[2].folder().to_owned();
        thread::spawn(move || desk.weir_in(&folder, &["pcp", "promote_node", "-s", "1"]))
    };
    let [standby] = cluster.standbys() else { panic!("one standby") };
    wait_until("the standby to be promoted", || standby.in_recovery().is_ok_and(|recovers| !recovers));
    // The killed one had passed a lease on less than an eighth of its length before.
    let waited = killed_at.elapsed();
    assert!(waited > Duration::from_secs(5), "promoted {} ms after the new process was killed", waited.as_millis());
    signal_process(first, Signal::CONT).unwrap();
    check_no_success(&mut client);
    asked.join().unwrap().unwrap();
    assert_eq!(standby.value(COUNT).unwrap(), "0");
}

#[test]
fn an_old_process_that_stood_still_tells_no_success_of_a_primary_that_was_replaced_meanwhile() {
    let cluster = servers(2, &[]);
    let mut group = group(&cluster, "");
    let mut client = open_transaction(&group.proxies[0]);
    let first = group.proxies[0].pid();
    let _old = take_over(&mut group, 0, "log2");
    let first = Pid::from_raw(first as i32).unwrap();
    signal_process(first, Signal::STOP).unwrap();
    client.send(&crate::support::wire::query("commit"));
    cluster.primary().freeze();
    wait_until("a standby to be promoted", || {
        let is_primary = |server: &&Server| server.in_recovery().is_ok_and(|recovers| !recovers);
        cluster.standbys().iter().any(|server| is_primary(&server))
    });
    wait_until("writes at the new primary", || group.proxies.iter().all(writes));
    cluster.primary().thaw();
    signal_process(first, Signal::CONT).unwrap();
    check_no_success(&mut client);
}

#[test]
fn a_process_that_cannot_be_the_member_leaves_the_old_one_in_the_group() {
    let cluster = servers(1, &[]);
    let group = group(&cluster, "");
    let load = Load::begin(&group.proxies[0], 1);
    for (line, why) in [
        ("wd_state_dir = 'FOLDER/other'", "the running proxy is another member of the group"),
        ("use_watchdog = off", "use_watchdog cannot be changed by --takeover"),
    ] {
        let proxy = &group.proxies[0];
        let folder = proxy.folder().display().to_string();
        std::fs::create_dir_all(proxy.folder().join("other")).unwrap();
        let conf = std::fs::read_to_string(proxy.conf_path()).unwrap();
        let other = proxy.folder().join("other.conf");
        std::fs::write(&other, format!("{conf}\n{}\n", line.replace("FOLDER", &folder))).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
        let output = command.arg("--takeover").arg("-f").arg(&other).output().unwrap();
        let said = format!("{}{}", String::from_utf8_lossy(&output.stderr), proxy.log());
        assert!(!output.status.success() && said.contains(why), "{line}: {said}");
        load.wait_acknowledged(20);
        wait_until("writes to go on", || writes(proxy));
    }
    wait_until("it to be told", || group.proxies[0].log().contains("this process goes on as a member of its group"));
    let noted = load.end();
    assert!(noted.errors.is_empty() && noted.lost == 0, "{:?}", noted.errors);
    assert!(noted.missing_on(cluster.primary()).is_empty());
}
