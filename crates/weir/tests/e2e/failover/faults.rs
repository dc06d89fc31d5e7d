//! Faults of one server after the other, of standbys, of disks, and of proxies.

use super::load::Load;
use super::{ANY, BUILTIN, Owned, WHERE, before, builtin, check, failovers, primaries, servers, wait_followed};
use crate::support::time::check_never;
use crate::support::wire::query;
use crate::support::{Proxy, leave_out, wait_until};
use std::fs;
use std::os::unix::fs::{MetadataExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use weir_demo::{Crew, Mode, Server};

const READERS: Crew = Crew { writers: 2, transactions: 0, readers: 6, idle: 5, pause: Duration::ZERO, first: 0 };

/// The default of `connect_timeout`. The check of health ends in a third of it.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The first that takes writes beside `old`, as soon as it does.
fn wait_new<'c>(cluster: &'c Owned, old: &Server) -> &'c Server {
    let mut new = None;
    wait_until("a standby to be promoted", || {
        new = primaries(cluster).into_iter().find(|server| server.port() != old.port());
        new.is_some()
    });
    new.unwrap()
}

/// The new primary dies in the moment in which it is one: its epoch may not be decided yet.
#[test]
fn a_new_primary_that_dies_at_once_is_replaced_by_the_last_standby() {
    let cluster = servers(2, &[]);
    let proxy = builtin(&cluster, "failover_alone = on");
    let load = Load::begin(&proxy, 4);
    cluster.primary().kill9().unwrap();
    wait_new(&cluster, cluster.primary()).kill9().unwrap();
    load.wait_acknowledged(100);
    let outcome = load.end();
    check("the new one dies at once", &cluster, &proxy, &outcome);
    assert_eq!(outcome.lost, 0);
}

/// Four servers, and the proxy before them.
fn four(conf: &[(&str, &str)]) -> (Owned, Proxy) {
    let cluster = servers(3, conf);
    let proxy = before(&cluster, &format!("{BUILTIN}backend_application_name3 = 'standby3'\n"));
    (cluster, proxy)
}

/// A standby that has received the log of its new primary in part would stop at a promotion: it is not promoted, and goes on once that primary does.
#[test]
fn of_three_standbys_two_die_as_primaries_and_the_last_ones_agree() {
    for lasts in [false, true] {
        let (cluster, proxy) = four(&[]);
        let load = Load::begin(&proxy, 4);
        cluster.primary().kill9().unwrap();
        let second = wait_new(&cluster, cluster.primary());
        if lasts {
            load.wait_acknowledged(50);
        }
        second.kill9().unwrap();
        // Each client may have heard of one more write than it has noted.
        let acknowledged = load.noted().acknowledged.len() + 4;
        let mut is_torn = false;
        wait_until("another primary, or the reason why there is none", || {
            is_torn = proxy.log().contains("would stop at its promotion");
            is_torn || load.noted().acknowledged.len() > acknowledged
        });
        let others = || cluster.standbys().iter().filter(|server| server.port() != second.port());
        assert!(others().all(weir_demo::Server::is_running), "a standby stopped at its promotion");
        if is_torn {
            eprintln!("the standbys had the new primary's log in part");
            second.start().unwrap();
        }
        load.wait_acknowledged(100);
        let outcome = load.end();
        let new = check("two of three die", &cluster, &proxy, &outcome);
        assert_eq!(outcome.lost, 0);
        wait_followed(new, if is_torn { 2 } else { 1 });
    }
}

/// The first primary is one of those of which any may have acknowledged what the second one wrote: nobody can ask it.
#[test]
fn a_primary_whose_standbys_cannot_all_be_asked_is_waited_for() {
    let (cluster, proxy) = four(&[("synchronous_standby_names", "ANY 1 (primary, standby1, standby2, standby3)")]);
    let load = Load::begin(&proxy, 4);
    cluster.primary().kill9().unwrap();
    let second = wait_new(&cluster, cluster.primary());
    load.wait_acknowledged(50);
    second.kill9().unwrap();
    wait_until("the proxy to say why it promotes none", || {
        proxy.log().contains("2 of 3 synchronous standbys answer, and 1 of them acknowledge a commit")
    });
    assert!(primaries(&cluster).is_empty());
    second.start().unwrap();
    load.wait_acknowledged(100);
    let outcome = load.end();
    assert_eq!(check("two of three die, ANY 1", &cluster, &proxy, &outcome).port(), second.port());
    assert!(outcome.missing_on(second).is_empty());
    assert_eq!((outcome.lost, failovers(&proxy)), (0, 1));
}

#[test]
fn readers_do_not_notice_that_a_standby_is_killed() {
    check_readers(|standby| standby.kill9().unwrap());
}

#[test]
fn readers_do_not_notice_that_a_standby_hangs() {
    check_readers(Server::freeze);
}

fn check_readers(fail: impl Fn(&Server)) {
    let cluster = servers(2, &[]);
    let proxy = builtin(&cluster, "");
    let load = Load::with(&proxy, READERS);
    let standby = &cluster.standbys()[0];
    fail(standby);
    wait_until("the standby to be out of use", || proxy.nodes("status")[1] == "down");
    let reads = load.noted().reads;
    wait_until("reads to go on", || load.noted().reads > reads + 100);
    load.wait_acknowledged(100);
    let outcome = load.end();
    // Nothing releases those that waited for it but the check.
    let slowest = outcome.slowest_read;
    eprintln!("{} reads, the slowest took {} ms", outcome.reads, slowest.as_millis());
    assert!(slowest < CONNECT_TIMEOUT, "a read waited for {} ms", slowest.as_millis());
    standby.thaw();
    assert!(outcome.failed_reads.is_empty(), "{:?}", outcome.failed_reads);
    assert_eq!((outcome.lost, outcome.errors.len()), (0, 0), "{:?}", outcome.errors);
    assert!(outcome.missing_on(cluster.primary()).is_empty());
    assert_eq!(primaries(&cluster).len(), 1);
}

/// A sign of how far a failover is, to be seen from outside.
#[derive(Clone, Copy, Debug)]
enum Sign {
    WritesWait,
    /// A standby was cut off from its primary.
    CutOff,
    Promoted,
    /// The other standby has the vote.
    Voted,
}

const SIGNS: [Sign; 4] = [Sign::WritesWait, Sign::CutOff, Sign::Promoted, Sign::Voted];

fn wait_sign(sign: Sign, cluster: &Owned, proxy: &Proxy) {
    let is_led = |standby: &Server, words: &str| standby.value("show primary_conninfo").is_ok_and(|shown| shown.contains(words));
    let old = format!("port={}", cluster.primary().port());
    wait_until(&format!("{sign:?}"), || match sign {
        Sign::WritesWait => proxy.log().contains("writes wait: the primary is gone"),
        Sign::CutOff => cluster.standbys().iter().any(|standby| !is_led(standby, &old)),
        Sign::Promoted => !primaries(cluster).is_empty(),
        Sign::Voted => primaries(cluster)
            .first()
            .is_some_and(|new| cluster.standbys().iter().any(|standby| is_led(standby, &format!("port={}", new.port())))),
    });
}

#[test]
fn a_proxy_that_dies_at_any_sign_of_a_failover_ends_what_it_began() {
    for sign in SIGNS {
        let cluster = servers(2, &[ANY]);
        let mut proxy = builtin(&cluster, "");
        let load = Load::begin(&proxy, 2);
        cluster.primary().kill9().unwrap();
        wait_sign(sign, &cluster, &proxy);
        proxy.crash_and_start();
        load.wait_acknowledged(100);
        let outcome = load.end();
        let [new] = primaries(&cluster)[..] else { panic!("one primary") };
        eprintln!("Weir killed at {sign:?}: {} ms without writes", outcome.gap().as_millis());
        assert!(outcome.missing_on(new).is_empty(), "{sign:?}");
        wait_followed(new, 1);
    }
}

#[test]
fn of_two_proxies_one_may_die_at_any_sign_of_a_failover() {
    for sign in SIGNS {
        let cluster = servers(2, &[ANY]);
        let (mut one, other) = (builtin(&cluster, ""), builtin(&cluster, ""));
        let loads = [Load::begin(&one, 2), Load::begin(&other, 2)];
        cluster.primary().kill9().unwrap();
        wait_sign(sign, &cluster, &one);
        one.crash_and_start();
        loads.iter().for_each(|load| load.wait_acknowledged(100));
        let [first, second] = loads.map(Load::end);
        let [new] = primaries(&cluster)[..] else { panic!("one primary") };
        eprintln!(
            "one of two killed at {sign:?}: {} and {} ms without writes",
            first.gap().as_millis(),
            second.gap().as_millis()
        );
        assert!(first.missing_on(new).is_empty() && second.missing_on(new).is_empty(), "{sign:?}");
        assert_eq!(second.lost, 0, "the clients of the other one stay");
        for proxy in [&one, &other] {
            assert_eq!(proxy.console().value(&format!("begin; {WHERE}")), new.port().to_string());
        }
    }
}

/// A file system in memory in the place of a folder of a stopped server, with what the folder held.
struct SmallDisk(PathBuf);

impl SmallDisk {
    /// With so much room beside the contents; `None` where we may not mount.
    fn instead_of(folder: &Path, room_kb: u64) -> Option<SmallDisk> {
        let (owner, before) = (fs::metadata(folder).unwrap(), folder.with_extension("before"));
        fs::rename(folder, &before).unwrap();
        fs::create_dir(folder).unwrap();
        let used = Command::new("du").args(["-sk", "--apparent-size"]).arg(&before).output().unwrap().stdout;
        let used_kb: u64 = String::from_utf8(used).unwrap().split_whitespace().next().unwrap().parse().unwrap();
        let size = format!("size={}k,mode=700", used_kb + room_kb);
        // After the servers' end their folder is removed, and this with it.
        let is_mounted = run("mount", &["-t", "tmpfs", "-o", &size, "tmpfs", &folder.to_string_lossy()]);
        let disk = is_mounted.then(|| SmallDisk(folder.to_owned()))?;
        chown(folder, Some(owner.uid()), Some(owner.gid())).unwrap();
        assert!(run("cp", &["-a", &format!("{}/.", before.display()), &folder.to_string_lossy()]));
        fs::remove_dir_all(&before).unwrap();
        Some(disk)
    }

    fn grow(&self) {
        assert!(run("mount", &["-o", "remount,size=512m", &self.0.to_string_lossy()]));
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazy: a server may still have files there.
        run("umount", &["--lazy", &self.0.to_string_lossy()]);
    }
}

fn run(program: &str, arguments: &[&str]) -> bool {
    Command::new(program).args(arguments).output().is_ok_and(|output| output.status.success())
}

/// Two files of the log, which is full with the third.
const LOG_ROOM_KB: u64 = 20 << 10;

#[test]
fn a_full_disk_is_no_failover_and_writes_go_on_once_there_is_room() {
    let cluster = servers(2, &[]);
    let primary = cluster.primary();
    let number = primary.value("select oid from pg_database where datname = 'postgres'").unwrap();
    primary.stop(Mode::Fast).unwrap();
    let Some(disk) = SmallDisk::instead_of(&primary.data_dir().join("base").join(number), 256) else {
        return leave_out("a small disk needs the right to mount");
    };
    primary.start().unwrap();
    wait_followed(primary, 2);
    primary.query("create table filler (a text)").unwrap();
    let proxy = builtin(&cluster, "");
    let load = Load::begin(&proxy, 2);
    // Rows of the load alone would take a busy machine a minute to fill it.
    let fill = "insert into filler select repeat('x', 1000) from generate_series(1, 100)";
    wait_until("the disk to take no more", || primary.query(fill).is_err());
    let is_full = |load: &Load| load.noted().errors.iter().any(|(sqlstate, _)| sqlstate == "53100");
    wait_until("the disk to be full", || is_full(&load));
    check_never("a standby is promoted", Duration::from_secs(4), || primaries(&cluster).len() > 1);
    disk.grow();
    load.wait_acknowledged(100);
    let outcome = load.end();
    let others: Vec<_> = outcome.errors.iter().filter(|(sqlstate, _)| sqlstate != "53100").collect();
    assert!(others.is_empty(), "the server's own error only: {others:?}");
    assert_eq!((outcome.lost, failovers(&proxy)), (0, 0));
    assert!(outcome.missing_on(primary).is_empty());
}

/// PostgreSQL panics, and ends if it cannot recover: then a standby takes over. If it comes back by itself, nobody does.
#[test]
fn a_disk_that_is_full_of_log_ends_the_primary_and_a_standby_takes_over_if_it_stays_down() {
    let cluster = servers(2, &[ANY]);
    let primary = cluster.primary();
    primary.stop(Mode::Fast).unwrap();
    let Some(_disk) = SmallDisk::instead_of(&primary.data_dir().join("pg_wal"), LOG_ROOM_KB) else {
        return leave_out("a small disk needs the right to mount");
    };
    primary.start().unwrap();
    wait_followed(primary, 2);
    let proxy = builtin(&cluster, "");
    let load = Load::with(&proxy, Crew { writers: 2, idle: 5, ..Crew::default() });
    // Less than a row of the load needs is left after that.
    let fill = "insert into filler select repeat(md5(i::text), 100) from generate_series(1, 40000) i";
    let _ = primary.query("create table filler (a text); alter table filler alter a set storage external");
    wait_until("the log to be full", || primary.query(fill).is_err());
    wait_until("the server to panic", || primary.log().contains("PANIC"));
    // The log may end within a record at the end of a file, which ends the other standby once.
    let mut ends = EndedServers::default();
    let acknowledged = load.noted().acknowledged.len();
    wait_until("writes to go on", || {
        ends.start_anew(cluster.standbys());
        load.noted().acknowledged.len() >= acknowledged + 100
    });
    let outcome = load.end();
    let [new] = primaries(&cluster)[..] else { panic!("one primary") };
    let has_stayed = new.port() == primary.port();
    eprintln!(
        "full log: {} ms without writes, the primary {}",
        outcome.gap().as_millis(),
        if has_stayed { "came back" } else { "stayed down" }
    );
    assert_eq!(failovers(&proxy), usize::from(!has_stayed));
    assert!(outcome.missing_on(new).is_empty());
    assert_eq!(outcome.lost, 0, "{:?}", outcome.errors);
}

/// Servers that ended by themselves, as counted by what they logged.
#[derive(Default)]
struct EndedServers(usize);

impl EndedServers {
    /// Starts those that ended since.
    fn start_anew(&mut self, servers: &[Server]) {
        let ends = |server: &Server| server.log().matches("database system is shut down").count();
        let total: usize = servers.iter().map(ends).sum();
        if total > self.0 {
            self.0 = total;
            for server in servers.iter().filter(|server| server.value("select 1").is_err()) {
                // A postmaster says that it is shut down before it ends.
                wait_until("the postmaster to end", || !server.is_running());
                server.start().unwrap();
            }
        }
    }
}

/// The standbys have received the begin of a record up to the end of a file of the log, and the other one asks the new primary for the next file.
/// PostgreSQL ends when it finds that this file does not go on with the record (`XLogPageRead`), and comes back when it is started.
#[test]
fn a_log_that_ends_within_a_record_at_the_end_of_a_file_stops_no_standby_for_ever() {
    let cluster = servers(2, &[ANY]);
    let primary = cluster.primary();
    let proxy = builtin(&cluster, "");
    let mut client = proxy.console();
    client.run("create table marks (a int)");
    let rest = "16777216 - (pg_current_wal_insert_lsn() - '0/0') % 16777216";
    let emit = |length: &str| {
        primary.query(&format!("select pg_logical_emit_message(false, '', repeat('x', ({length})::int))")).unwrap();
    };
    emit(&format!("{rest} - 700"));
    // Log that nobody waits for is written in whole pages.
    emit("3000");
    let at_end = "select (pg_last_wal_receive_lsn() - '0/0') % 16777216 = 0";
    wait_until("the end of the file to be received", || {
        cluster.standbys().iter().all(|standby| standby.value(at_end).is_ok_and(|is| is == "t"))
    });
    primary.kill9().unwrap();
    let new = wait_new(&cluster, primary);
    let other = cluster.standbys().iter().position(|standby| standby.port() != new.port()).unwrap();
    let other = &cluster.standbys()[other..=other];
    client.send(&query("insert into marks values (1)"));
    let mut ends = EndedServers::default();
    wait_until("the row on the standby", || {
        ends.start_anew(other);
        other[0].value("select count(*) from marks").is_ok_and(|count| count == "1")
    });
    eprintln!("the standby ended {} times", ends.0);
    assert_eq!(client.until_ready()[0].text(), "INSERT 0 1");
    assert_eq!(failovers(&proxy), 1);
}
