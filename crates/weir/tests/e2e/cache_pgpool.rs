//! The tests of the cache find the errors of Pgpool-II's, so that they would find ours.
//!
//! Without `pgpool` (Debian: package `pgpool2`) these tests say so and do nothing.

use super::cache::{OBJECTS, WRITES};
use super::history::{REGISTERS, Story, history, register};
use crate::support::ground::cluster;
use crate::support::proxy::Folder;
use crate::support::{Ground, Raw, leave_out, wait_until};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use weir_demo::{ReservedPort, Server};

/// Clients it takes, a process for each.
const CHILDREN: u32 = 16;

/// Time it gets to end.
const END_LIMIT: Duration = Duration::from_secs(10);

/// Time it gets to forget an answer: it tells the writer first.
const SEES_LIMIT: Duration = Duration::from_millis(300);

/// A Pgpool-II with its cache in shared memory, before one server.
struct Pgpool {
    process: Child,
    port: ReservedPort,
    folder: Folder,
}

impl Pgpool {
    /// `None` where there is no such program.
    fn start(server: &Server) -> Option<Pgpool> {
        let program =
            ["/usr/sbin/pgpool", "/usr/bin/pgpool", "/usr/local/bin/pgpool"].into_iter().find(|at| Path::new(at).exists());
        let Some(program) = program else {
            leave_out("there is no pgpool (Debian: apt-get install pgpool2)");
            return None;
        };
        let (folder, port, pcp) = (Folder::new(), ReservedPort::any().unwrap(), ReservedPort::any().unwrap());
        let at = folder.0.display().to_string();
        let conf = format!(
            "backend_clustering_mode = 'streaming_replication'\nlisten_addresses = '127.0.0.1'\nport = {}\n\
             pcp_listen_addresses = '127.0.0.1'\npcp_port = {}\nsocket_dir = '{at}'\npcp_socket_dir = '{at}'\n\
             unix_socket_directories = '{at}'\nbackend_hostname0 = '127.0.0.1'\nbackend_port0 = {}\nbackend_weight0 = 1\n\
             backend_data_directory0 = '{at}'\nmemory_cache_enabled = on\nmemqcache_method = 'shmem'\nmemqcache_oiddir = '{at}'\n\
             num_init_children = {CHILDREN}\nmax_pool = 1\nenable_pool_hba = off\npool_passwd = ''\nsr_check_user = 'postgres'\n\
             sr_check_database = 'postgres'\nlogging_collector = off\nlog_min_messages = error\n\
             pid_file_name = '{at}/pgpool.pid'\nlogdir = '{at}'\nwork_dir = '{at}'\n",
            port.number(),
            pcp.number(),
            server.port()
        );
        let file = |name: &str, text: &str| {
            let path = folder.0.join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        let (main, hba, pcp) = (file("pgpool.conf", &conf), file("pool_hba.conf", ""), file("pcp.conf", ""));
        let log = std::fs::File::create(folder.0.join("log")).unwrap();
        let process = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", program, "-n", "-f"])
            .arg(main)
            .arg("-a")
            .arg(hba)
            .arg("-F")
            .arg(pcp)
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        let pgpool = Pgpool { process, port, folder };
        wait_until(&format!("Pgpool-II to answer; its log lies in {}", pgpool.folder.0.display()), || {
            TcpStream::connect(("127.0.0.1", pgpool.port.number())).is_ok()
                && Raw::tcp(pgpool.port.number())
                    .log_in("postgres", "postgres", &[])
                    .is_ok_and(|mut client| client.try_rows("select 1").is_ok())
        });
        Some(pgpool)
    }

    fn client(&self, database: &str) -> Raw {
        let client = Raw::tcp(self.port.number()).log_in("postgres", database, &[]);
        client.unwrap_or_else(|failure| panic!("cannot log in: {failure:?}"))
    }
}

impl Drop for Pgpool {
    /// In order: it removes its shared memory, and its children end with it.
    fn drop(&mut self) {
        let pid = rustix::process::Pid::from_child(&self.process);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::INT);
        let ended = weir_demo::wait_until("Pgpool-II to end", END_LIMIT, || Ok(self.process.try_wait()?.is_some()));
        if ended.is_err() {
            let _ = self.process.kill();
            let _ = self.process.wait();
        }
    }
}

#[test]
fn the_cases_of_our_cache_find_what_pgpools_leaves_behind() {
    let ground = Ground::new();
    let Some(pgpool) = Pgpool::start(ground.cluster.primary()) else { return };
    ground.prepare(OBJECTS);
    let (mut reader, mut writer, mut direct) =
        (pgpool.client(&ground.database), pgpool.client(&ground.database), ground.direct());
    let mut stale = Vec::new();
    for (at, (read, write)) in WRITES.iter().enumerate() {
        // Another text each time, so that earlier answers do not count.
        let read = &format!("{read}{}", " ".repeat(at));
        (0..3).for_each(|_| reader.run(read));
        writer.run(write);
        let meant = direct.rows(read);
        if weir_demo::wait_until("it to see the write", SEES_LIMIT, || Ok(reader.rows(read) == meant)).is_err() {
            stale.push(*write);
        }
    }
    for known in [
        "insert into part values (1)",
        "insert into parent values (2)",
        "insert into child values (1)",
        "delete from owner where a = 1",
        "insert into watched values (1)",
        "insert into ruled values (1)",
        "select f(1)",
        "call p(1)",
        "truncate owner cascade",
    ] {
        assert!(stale.contains(&known), "{known}: Pgpool-II is right about it, or these tests do not find it; found: {stale:#?}");
    }
    assert!(!stale.contains(&"delete from t where a = 3"), "what it does see: {stale:#?}");
}

#[test]
fn answers_for_others_settings_are_found() {
    let ground = Ground::new();
    let Some(pgpool) = Pgpool::start(ground.cluster.primary()) else { return };
    ground.prepare(
        "create table t as select date '2020-02-01' as d, 1.1::float8 / 3 as f, '\\x41'::bytea as b; create schema s2;
         create table s2.t as select 'other' as d, 2 as f, 3 as b",
    );
    let mut found = Vec::new();
    for change in
        ["set datestyle = 'German'", "set bytea_output = 'escape'", "set extra_float_digits = 0", "set search_path = s2"]
    {
        let (mut plain, mut other, mut direct) =
            (pgpool.client(&ground.database), pgpool.client(&ground.database), ground.direct());
        let read = &format!("select d, f, b from t -- {change}");
        (0..3).for_each(|_| plain.run(read));
        other.run(change);
        direct.run(change);
        if other.rows(read) != direct.rows(read) {
            found.push(change);
        }
    }
    assert_eq!(found.len(), 4, "{found:?}");
}

#[test]
fn the_checker_of_histories_finds_what_pgpool_shows() {
    let cluster = cluster(0);
    let Some(pgpool) = Pgpool::start(cluster.primary()) else { return };
    (0..REGISTERS).for_each(|at| drop(cluster.primary().query(&register(at)).unwrap()));
    let door = || pgpool.client("postgres");
    let wrong = history(&Story {
        writers: [Box::new(door), Box::new(door), Box::new(door)],
        readers: vec![Box::new(door)],
        settle: Box::new(|| {}),
        disturb: Box::new(|_| {}),
    });
    assert!(!wrong.is_empty(), "this checker finds nothing where it must");
    eprintln!("{} of them, the first: {}", wrong.len(), wrong[0]);
}
