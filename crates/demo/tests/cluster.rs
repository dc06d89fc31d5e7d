//! Real servers: a cluster comes up, survives what tests do to it, and leaves nothing.

#![allow(clippy::unwrap_used)] // a test may fail by panicking

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use weir_demo::{Auth, Cluster, HbaMethod, Mode, Options, Programs, Server, Sql, SqlError, Template, User, WalLevel, wait_until};

const LIMIT: Duration = Duration::from_secs(60);

fn start(standbys: usize) -> Cluster {
    Cluster::start(options(standbys)).unwrap()
}

/// WEIR_DEMO_TEST_BIN lets the same tests run on another version.
fn options(standbys: usize) -> Options {
    let programs = std::env::var_os("WEIR_DEMO_TEST_BIN").map(|bin| Programs::in_folder(bin).unwrap());
    Options { standbys, programs, ..Options::default() }
}

/// Are there processes whose command line or working folder names `folder`?
fn has_processes(folder: &Path) -> bool {
    let folder = folder.to_str().unwrap();
    fs::read_dir("/proc").unwrap().flatten().any(|entry| {
        let words = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let place = fs::read_link(entry.path().join("cwd")).unwrap_or_default();
        String::from_utf8_lossy(&words).contains(folder) || place.starts_with(folder)
    })
}

fn check_gone(folder: &Path) {
    assert!(!has_processes(folder), "processes of {} are left", folder.display());
    assert!(!folder.exists(), "{} is left", folder.display());
}

#[test]
fn a_write_on_the_primary_is_seen_on_both_standbys_and_nothing_remains() {
    let cluster = start(2);
    let folder = cluster.dir().to_owned();
    assert!(has_processes(&folder));
    cluster.primary().query("create table t (a int); insert into t values (42)").unwrap();
    cluster.wait_caught_up().unwrap();
    for standby in cluster.standbys() {
        assert!(standby.in_recovery().unwrap());
        assert_eq!(standby.value("select a from t").unwrap(), "42");
        assert_eq!(standby.value("show cluster_name").unwrap(), standby.name());
        let error = standby.query("insert into t values (1)").unwrap_err();
        assert_eq!(error.downcast_ref::<SqlError>().unwrap().sqlstate, "25006");
    }
    let names = cluster.primary().query("select application_name from pg_stat_replication order by 1").unwrap();
    assert_eq!(names, [[Some("standby1".to_owned())], [Some("standby2".to_owned())]]);
    drop(cluster);
    check_gone(&folder);
}

#[test]
fn clusters_of_one_template_are_as_different_as_others_and_it_goes_with_the_last() {
    let own = options(1);
    let template = Arc::new(Template::new(own.programs.clone().map_or_else(Programs::find, Ok).unwrap()).unwrap());
    let made = [(); 2].map(|()| Cluster::start(Options { template: Some(template.clone()), ..own.clone() }).unwrap());
    let identifier = |server: &Server| server.value("select system_identifier from pg_control_system()").unwrap();
    let identifiers: BTreeSet<String> = made.iter().map(|cluster| identifier(cluster.primary())).collect();
    assert_eq!(identifiers.len(), 2, "{identifiers:?}");
    for cluster in &made {
        assert_eq!(identifier(cluster.primary()), identifier(&cluster.standbys()[0]));
        // Crash recovery reads the segment that the template brought.
        cluster.primary().kill9().unwrap();
        cluster.primary().start().unwrap();
        cluster.wait_streaming(1).unwrap();
    }
    let folder = template.folder().to_owned();
    assert!(folder.exists());
    drop((own, made, template));
    check_gone(&folder);
}

#[test]
fn a_killed_server_starts_again_with_what_was_committed() {
    let cluster = start(1);
    let primary = cluster.primary();
    primary.query("create table t as select 1 as a").unwrap();
    primary.kill9().unwrap();
    assert!(!primary.is_running());
    assert!(primary.query("select 1").is_err());
    primary.start().unwrap();
    assert_eq!(primary.value("select a from t").unwrap(), "1");
    assert!(primary.log().contains("recovery"), "{}", primary.log());
    cluster.wait_streaming(1).unwrap();
}

#[test]
fn a_killed_cluster_leaves_nothing() {
    let cluster = start(1);
    let folder = cluster.dir().to_owned();
    for server in cluster.servers() {
        server.kill9().unwrap();
    }
    drop(cluster);
    check_gone(&folder);
}

#[test]
fn a_standby_is_promoted_and_the_others_follow_it() {
    let cluster = start(2);
    let [first, second] = cluster.standbys() else { panic!("two standbys") };
    cluster.primary().stop(Mode::Fast).unwrap();
    first.promote().unwrap();
    assert!(!first.in_recovery().unwrap());
    second.follow(first).unwrap();
    first.query("create table t as select 7 as a").unwrap();
    assert_eq!(cluster.writable().unwrap().name(), "standby1");
    cluster.wait_streaming(1).unwrap();
    cluster.wait_caught_up().unwrap();
    assert_eq!(second.value("select a from t").unwrap(), "7");

    // The old primary writes on: its history goes apart, so it can only come back as a copy.
    let old = cluster.primary();
    old.start().unwrap();
    old.query("create table lost (a int)").unwrap();
    old.clone_from(first).unwrap();
    assert!(old.in_recovery().unwrap());
    wait_until("both to stream", LIMIT, || {
        Ok(first.value("select count(*) from pg_stat_replication where state = 'streaming'")? == "2")
    })
    .unwrap();
    cluster.wait_caught_up().unwrap();
    assert_eq!(old.value("select a from t").unwrap(), "7");
    assert_eq!(old.value("select to_regclass('lost') is null").unwrap(), "t");
}

#[test]
fn a_paused_standby_stays_behind_until_it_is_resumed() {
    let cluster = start(1);
    let standby = &cluster.standbys()[0];
    standby.pause_replay().unwrap();
    cluster.primary().query("create table t (a int)").unwrap();
    assert_eq!(standby.value("select to_regclass('t') is null").unwrap(), "t");
    standby.resume_replay().unwrap();
    cluster.wait_caught_up().unwrap();
    assert_eq!(standby.value("select to_regclass('t') is null").unwrap(), "f");
}

#[test]
fn passwords_are_asked_for_except_from_the_superuser_on_the_socket() {
    for (method, prefix) in [(HbaMethod::Scram, "SCRAM-SHA-256$"), (HbaMethod::Md5, "md5")] {
        let users = ["joe", "postgres"].map(|name| User { name: name.into(), password: "it's \\ secret".into() });
        let hba_lines = vec!["host all ann 127.0.0.1/32 trust".to_owned()];
        let auth = Auth { method, users: users.into(), hba_lines };
        let cluster = Cluster::start(Options { auth, ..options(0) }).unwrap();
        let primary = cluster.primary();
        let stored = primary.query("select rolpassword from pg_authid where rolpassword is not null").unwrap();
        assert_eq!(stored.len(), 2);
        assert!(stored.into_iter().flatten().flatten().all(|text| text.starts_with(prefix)));
        let error = Sql::connect_tcp("127.0.0.1", primary.port(), "joe", "postgres").unwrap_err().to_string();
        assert!(error.contains("asks for a password"), "{error}");
        primary.query("create role ann login").unwrap();
        Sql::connect_tcp("127.0.0.1", primary.port(), "ann", "postgres").unwrap().query("select 1").unwrap();
    }
}

#[test]
fn settings_ports_and_folder_are_as_ordered_and_the_folder_can_be_kept() {
    let base_port =
        (20_000..).step_by(10).find(|port| (0..2).all(|offset| weir_demo::ReservedPort::exactly(port + offset).is_ok()));
    let dir = std::env::temp_dir().join(format!("weir-kept-{}", std::process::id()));
    let cluster = Cluster::start(Options {
        dir: Some(dir.clone()),
        base_port,
        wal_level: WalLevel::Logical,
        extra_conf: vec![("work_mem".into(), "7MB".into())],
        extra_files: vec![("note.txt".into(), b"text".to_vec())],
        keep: true,
        ..options(1)
    })
    .unwrap();
    assert_eq!(cluster.servers().iter().map(|server| server.port()).max(), base_port.map(|port| port + 1));
    for server in cluster.servers() {
        assert_eq!(server.value("select current_setting('work_mem') || current_setting('wal_level')").unwrap(), "7MBlogical");
        assert_eq!(server.value("select pg_read_file('note.txt')").unwrap(), "text");
        server.set_conf("work_mem", "9MB").unwrap();
        wait_until("the reload", LIMIT, || Ok(server.value("show work_mem")? == "9MB")).unwrap();
    }
    let error = Cluster::start(Options { dir: Some(dir.clone()), ..options(0) }).unwrap_err().to_string();
    assert!(error.ends_with("is not empty"), "{error}");
    drop(cluster);
    assert!(!has_processes(&dir));
    assert!(dir.join("primary/PG_VERSION").exists());
    fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn a_frozen_server_is_silent_until_thawed_and_still_ends() {
    let cluster = start(0);
    let folder = cluster.dir().to_owned();
    let primary = cluster.primary();
    primary.freeze();
    assert!(primary.is_running());
    primary.thaw();
    assert_eq!(primary.value("select 1").unwrap(), "1");
    primary.freeze();
    drop(cluster);
    check_gone(&folder);
}

#[test]
fn a_server_that_does_not_start_shows_its_log() {
    let extra_conf = vec![("work_mem".to_owned(), "nonsense".to_owned())];
    let error = Cluster::start(Options { extra_conf, ..options(0) }).unwrap_err();
    assert!(format!("{error:#}").contains("invalid value for parameter \"work_mem\""), "{error:#}");
}

#[test]
fn a_panic_takes_the_servers_along() {
    let mut folder = None;
    let result = catch_unwind(AssertUnwindSafe(|| {
        let cluster = start(1);
        folder = Some(cluster.dir().to_owned());
        panic!("a test fails here");
    }));
    assert!(result.is_err());
    check_gone(&folder.unwrap());
}

/// Not a test of its own: the process that the next test kills.
#[test]
#[ignore = "run by when_we_are_killed_the_servers_end_too"]
fn hold_a_cluster_until_killed() {
    let cluster = start(1);
    println!("\nfolder {}", cluster.dir().display());
    loop {
        std::thread::park();
    }
}

#[test]
fn when_we_are_killed_the_servers_end_too() {
    let guarded = Command::new("setpriv").args(["--pdeathsig", "QUIT", "true"]).status();
    if !guarded.is_ok_and(|status| status.success()) {
        eprintln!("skipped: no setpriv with --pdeathsig");
        return;
    }
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "--nocapture", "hold_a_cluster_until_killed"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let folder = lines.map_while(Result::ok).find_map(|line| line.strip_prefix("folder ").map(str::to_owned));
    let folder = folder.expect("the child prints its folder");
    let folder = Path::new(&folder);
    assert!(has_processes(folder));
    child.kill().unwrap();
    child.wait().unwrap();
    wait_until("the servers to end", LIMIT, || Ok(!has_processes(folder))).unwrap();
    fs::remove_dir_all(folder).unwrap();
}
