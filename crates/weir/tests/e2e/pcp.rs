//! PCP, Pgpool-II's administration: Debian's clients before Weir, Weir's before Pgpool-II, and those who mean no good.
//!
//! Without Pgpool-II (Debian: package `pgpool2`) those that need it are left out.

use crate::support::ground::cluster;
use crate::support::pgpool::Pgpool;
use crate::support::proxy::{Folder, show};
use crate::support::time::{SLACK, check_never, check_within};
use crate::support::{Ground, Proxy, Raw, leave_out, wait_until};
use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use weir_demo::{Mode, ReservedPort};
use weir_wire::pcp_protocol::{PcpPacket, PcpReply, PcpReplyCode, PcpReport, PcpRequest, REPLY_LENGTH_MAX, proof, read};

/// `admin` with password `secret`.
const USERS: &str = "# users\nadmin:5ebe2294ecd0e0f08eab7690d2a6ee69\n";

/// Folder of Debian's clients.
const DEBIANS: &str = "/usr/sbin";

/// Weir with PCP before the shared servers.
struct Stage {
    ground: Ground,
    proxy: Proxy,
    port: ReservedPort,
    /// Weir under Pgpool-II's names, and the file with the password.
    tools: Folder,
}

/// How a client ended.
#[derive(Debug, PartialEq, Eq)]
struct Ended {
    code: i32,
    out: String,
    err: String,
}

impl Stage {
    fn new(more: &str) -> Stage {
        Stage::with_users(USERS, more)
    }

    fn with_users(users: &str, more: &str) -> Stage {
        let (ground, port) = (Ground::new(), ReservedPort::any().unwrap());
        let lines = format!(
            "pcp_listen_addresses = '127.0.0.1'\npcp_port = {}\npcp_socket_dir = 'FOLDER'\nbackend_weight0 = 0\n{more}",
            port.number()
        );
        let servers: Vec<_> = ground.cluster.servers().iter().collect();
        let proxy = Proxy::with_files(&servers, &lines, &[("pcp.conf", users)], &[]);
        Stage { ground, proxy, port, tools: tools() }
    }

    fn number(&self) -> u16 {
        self.port.number()
    }

    /// One of Weir's clients, by Pgpool-II's name.
    fn own(&self, name: &str, arguments: &[&str]) -> Ended {
        ask(&self.tools.0, &self.tools.0, self.number(), name, arguments)
    }

    /// One of Debian's.
    fn debians(&self, name: &str, arguments: &[&str]) -> Ended {
        ask(&self.tools.0, Path::new(DEBIANS), self.number(), name, arguments)
    }

    fn connect(&self) -> Line<TcpStream> {
        Line::new(TcpStream::connect(("127.0.0.1", self.number())).unwrap())
    }

    fn statuses(&self) -> Vec<String> {
        self.proxy.nodes("status")
    }
}

/// A folder with Weir under Pgpool-II's names, and a file with the password.
fn tools() -> Folder {
    let folder = Folder::new();
    for name in [
        "attach_node",
        "detach_node",
        "node_count",
        "node_info",
        "health_check_stats",
        "pool_status",
        "proc_count",
        "proc_info",
        "promote_node",
        "recovery_node",
        "restart_node",
        "upgrade_walk",
        "reload_config",
        "log_rotate",
        "invalidate_query_cache",
        "stop_pgpool",
        "watchdog_info",
        "watchdog_status",
    ] {
        symlink(env!("CARGO_BIN_EXE_weir"), folder.0.join(format!("pcp_{name}"))).unwrap();
    }
    for name in ["pg_md5", "pg_enc"] {
        symlink(env!("CARGO_BIN_EXE_weir"), folder.0.join(name)).unwrap();
    }
    private(&folder.0.join("pcppass"), "*:*:admin:secret\n*:*:liar:guess\n");
    folder
}

fn private(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
}

/// Runs a client with the password of the file.
fn ask(passwords: &Path, folder: &Path, port: u16, name: &str, arguments: &[&str]) -> Ended {
    let port = port.to_string();
    let mut command = Command::new(folder.join(name));
    command.args(["-h", "127.0.0.1", "-p", &port, "-w"]);
    if !arguments.contains(&"-U") {
        command.args(["-U", "admin"]);
    }
    command.args(arguments);
    finish(command.env("PCPPASSFILE", passwords.join("pcppass")))
}

fn finish(command: &mut Command) -> Ended {
    let output = command.stdin(Stdio::null()).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ended { code: output.status.code().unwrap_or(-1), out: text(&output.stdout), err: text(&output.stderr) }
}

fn has_debians() -> bool {
    let is_there = Path::new(DEBIANS).join("pcp_node_info").exists();
    if !is_there {
        leave_out("there is no pcp_node_info (Debian: apt-get install pgpool2)");
    }
    is_there
}

/// A text with a `#` for each number or time that cannot be the same twice.
fn masked(text: &str, columns: &[usize]) -> String {
    let line = |line: &str| {
        let word = |(at, word): (usize, &str)| if columns.contains(&at) { "#".to_string() } else { word.to_string() };
        line.split(' ').enumerate().map(word).collect::<Vec<_>>().join(" ")
    };
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}

/// A connection on which every byte is seen.
struct Line<S> {
    stream: S,
    inbox: Vec<u8>,
}

impl<S: Read + Write> Line<S> {
    fn new(stream: S) -> Line<S> {
        Line { stream, inbox: Vec::new() }
    }

    fn send(&mut self, request: &PcpRequest) {
        let mut out = Vec::new();
        request.write(&mut out);
        self.stream.write_all(&out).unwrap();
    }

    /// The next packet; `None`: the connection ended.
    fn receive(&mut self) -> Option<PcpReply> {
        loop {
            if let Some(PcpPacket { tag, body, used }) = read(&self.inbox, REPLY_LENGTH_MAX).unwrap() {
                let reply = PcpReply::read(tag, body).unwrap();
                self.inbox.drain(..used);
                return Some(reply);
            }
            let mut piece = [0; 4096];
            match self.stream.read(&mut piece) {
                Ok(0) | Err(_) => return None,
                Ok(bytes) => self.inbox.extend_from_slice(&piece[..bytes]),
            }
        }
    }

    fn fault(&mut self) -> PcpReport {
        match self.receive() {
            Some(PcpReply::Error(fault)) => fault,
            other => panic!("no error but {other:?}"),
        }
    }

    fn log_in(&mut self, user: &str, password: &str) -> Option<PcpReply> {
        self.send(&PcpRequest::Salt);
        let Some(PcpReply::Salt(salt)) = self.receive() else { panic!("no salt") };
        let answer = proof(password.as_bytes(), user.as_bytes(), salt).to_vec();
        self.send(&PcpRequest::Login { user: user.as_bytes().to_vec(), answer });
        self.receive()
    }

    fn is_let_in(&mut self) -> bool {
        matches!(self.log_in("admin", "secret"), Some(PcpReply::Words { code: PcpReplyCode::LoggedIn, .. }))
    }
}

#[test]
fn debians_clients_hear_from_weir_what_they_hear_from_pgpool() {
    if !has_debians() {
        return;
    }
    let stage = Stage::new("pcp_protocol_version = 4.3\nhealth_check_period = 1\nhealth_check_user = 'postgres'");
    let servers: Vec<_> = stage.ground.cluster.servers().iter().collect();
    let more =
        "sr_check_period = 1\nhealth_check_period = 1\nhealth_check_user = 'postgres'\nhealth_check_database = 'postgres'\n";
    let Some(pgpool) = Pgpool::start(&servers, more, USERS) else { return };
    let theirs = |name: &str, arguments: &[&str]| ask(&stage.tools.0, Path::new(DEBIANS), pgpool.pcp_port(), name, arguments);
    let is_settled = |ended: &Ended| ended.out.matches(" up up ").count() == 3;
    // Nodes wait for their first client.
    stage.ground.client(&stage.proxy).run("select 1");
    wait_until("Weir to know its servers", || is_settled(&stage.debians("pcp_node_info", &[])));
    wait_until("Pgpool-II to know its servers", || is_settled(&theirs("pcp_node_info", &[])));
    for (name, arguments, columns) in [
        ("pcp_node_count", vec![], vec![]),
        ("pcp_node_count", vec!["-v"], vec![]),
        // The lag, which each measures at its own time; the time of the last change; replication as Pgpool-II finds it needs names
        // that these servers lack.
        ("pcp_node_info", vec![], vec![8, 9, 10, 11, 12]),
        ("pcp_node_info", vec!["-n", "1"], vec![8, 9, 10, 11, 12]),
        ("pcp_node_info", vec!["2"], vec![8, 9, 10, 11, 12]),
        ("pcp_node_info", vec!["-n", "77"], vec![]),
        ("pcp_watchdog_info", vec![], vec![]),
        ("pcp_watchdog_info", vec!["-v", "-n", "0"], vec![]),
        ("pcp_proc_info", vec!["-P", "1"], vec![]),
        ("pcp_health_check_stats", vec!["77"], vec![]),
        ("pcp_promote_node", vec!["77"], vec![]),
        ("pcp_recovery_node", vec!["77"], vec![]),
        ("pcp_reload_config", vec![], vec![]),
        ("pcp_health_check_stats", vec!["0"], vec![5, 6, 7, 8, 13, 14, 15, 16, 17, 18, 19, 20]),
    ] {
        let (own, meant) = (stage.debians(name, &arguments), theirs(name, &arguments));
        assert_eq!(masked(&own.out, &columns), masked(&meant.out, &columns), "{name} {arguments:?}");
        assert_eq!((&own.err, own.code), (&meant.err, meant.code), "{name} {arguments:?}");
    }
    // Columns, where the values are of the one proxy only.
    let shape = |ended: &Ended| {
        ended.out.lines().take(16).map(|line| line.split(" : ").next().unwrap_or("").to_string()).collect::<Vec<_>>()
    };
    let mut client = stage.ground.client(&stage.proxy);
    client.run("select 1");
    let _other = pgpool.client(&stage.ground.database);
    for (name, arguments) in [("pcp_proc_info", vec!["-v"]), ("pcp_health_check_stats", vec!["-v", "1"])] {
        assert_eq!(shape(&stage.debians(name, &arguments)), shape(&theirs(name, &arguments)), "{name}");
    }
    let said = stage.debians("pcp_proc_info", &[]).out;
    assert!(said.contains(&format!("{} postgres ", stage.ground.database)), "{said}");
    assert!(stage.debians("pcp_pool_status", &[]).out.contains(&format!("name : pcp_port\nvalue: {}\n", stage.number())));
    assert!(stage.debians("pcp_proc_count", &[]).out.split_whitespace().count() >= 2);
    // Success is said only of a success.
    assert_eq!(theirs("pcp_attach_node", &["77"]).out, "pcp_attach_node -- Command Successful\n", "there is no such node");
    let own = stage.debians("pcp_attach_node", &["77"]);
    assert!(own.out.is_empty() && own.err.contains("node id 77 is not valid"), "{own:?}");
}

/// Releases append columns to those of a process, and clients read the first ones. In those of a node one was put in between, after 4.3.
#[test]
fn debians_clients_need_a_parameter_for_nodes_only() {
    if !has_debians() {
        return;
    }
    let stage = Stage::new("health_check_period = 1\nhealth_check_user = 'postgres'");
    let mut client = stage.ground.client(&stage.proxy);
    client.run("select 1");
    let titles = |name: &str, arguments: &[&str]| {
        let said = stage.debians(name, &[&["-v"], arguments].concat());
        assert_eq!(said.code, 0, "{said:?}");
        said.out.lines().map(|line| line.split(" : ").next().unwrap_or_default().to_string()).collect::<Vec<_>>()
    };
    let rest = || {
        let said = stage.debians("pcp_proc_info", &[]).out;
        let database = said.lines().any(|line| line.starts_with(&format!("{} postgres ", stage.ground.database)));
        let stats = titles("pcp_health_check_stats", &["0"]);
        (database, said.lines().map(|line| line.split(' ').count()).max(), stats, stage.debians("pcp_node_count", &[]).out)
    };
    let node = || stage.debians("pcp_node_info", &["0"]).out;
    let (plain, shifted) = (rest(), node());
    stage.proxy.add_conf("pcp_protocol_version = 4.3");
    stage.proxy.reload();
    assert_eq!(rest(), plain);
    assert!(plain.0, "{plain:?}");
    assert_ne!(node(), shifted);
    let last_word = |text: &str| text.trim_end().rsplit(' ').nth(1).unwrap_or_default().to_string();
    assert!(last_word(&node()).starts_with("20") && !last_word(&shifted).starts_with("20"), "{shifted} {}", node());
}

/// Pgpool-II's processes say how long they have to live: it is less from one look to the next.
fn without_rest_of_life(shown: &str) -> String {
    let mut parts: Vec<&str> = shown.split(" before process restarting)").collect();
    let last = parts.pop().unwrap_or_default();
    let before = parts.into_iter().map(|part| part.rsplit_once('(').map_or(part, |(before, _)| before));
    before.chain([last]).collect()
}

#[test]
fn weirs_clients_print_what_debians_print() {
    if !has_debians() {
        return;
    }
    let stage = Stage::new("pcp_protocol_version = 4.3");
    let servers: Vec<_> = stage.ground.cluster.servers().iter().collect();
    let Some(pgpool) = Pgpool::start(&servers, "", USERS) else { return };
    for port in [stage.number(), pgpool.pcp_port()] {
        for (name, arguments) in [
            ("pcp_node_count", vec![]),
            ("pcp_node_count", vec!["-v"]),
            ("pcp_node_info", vec![]),
            ("pcp_node_info", vec!["-a", "-v"]),
            ("pcp_node_info", vec!["--node-id=1"]),
            ("pcp_node_info", vec!["77"]),
            ("pcp_proc_count", vec![]),
            ("pcp_proc_count", vec!["-v"]),
            ("pcp_proc_info", vec!["-a"]),
            ("pcp_proc_info", vec!["-a", "-v"]),
            ("pcp_proc_info", vec!["-P", "1"]),
            ("pcp_health_check_stats", vec!["-n", "1"]),
            ("pcp_health_check_stats", vec!["-v", "1"]),
            ("pcp_watchdog_info", vec![]),
            ("pcp_reload_config", vec!["-s", "local"]),
            ("pcp_promote_node", vec!["77"]),
            ("pcp_node_count", vec!["-U", "liar"]),
        ] {
            let meant = ask(&stage.tools.0, Path::new(DEBIANS), port, name, &arguments);
            // Warnings that Pgpool-II sends along show in its clients with some releases only.
            let own = ask(&stage.tools.0, &stage.tools.0, port, name, &arguments);
            if without_rest_of_life(&own.out) != without_rest_of_life(&meant.out) {
                // A node may have come into use between the two answers.
                let after = ask(&stage.tools.0, Path::new(DEBIANS), port, name, &arguments);
                assert_eq!(without_rest_of_life(&own.out), without_rest_of_life(&after.out), "{name} {arguments:?}");
            }
            assert_eq!(own.err, meant.err, "{name} {arguments:?}");
            assert_eq!(own.code, i32::from(!own.err.is_empty()), "{name} {arguments:?}: an exit code that tells");
        }
    }
    // Pgpool-II does not know what is of Weir only.
    let ended = ask(&stage.tools.0, &stage.tools.0, pgpool.pcp_port(), "pcp_upgrade_walk", &[]);
    assert!(ended.code == 1 && ended.out.is_empty() && ended.err.contains("unknown PCP packet type \"U\""), "{ended:?}");
}

#[test]
fn passwords_are_written_as_debians_tools_write_them() {
    let tools = tools();
    let at = |name: &str| tools.0.join(name).display().to_string();
    fs::write(at("pgpool.conf"), "pool_passwd = 'pool_passwd'\n").unwrap();
    private(&tools.0.join("key"), "mykey\n");
    private(&tools.0.join("pairs"), "a:x\nb:y:z\n\n");
    let own = |name: &str, arguments: &[&str]| finish(Command::new(tools.0.join(name)).args(arguments));
    assert_eq!(own("pg_md5", &["secret"]).out, "5ebe2294ecd0e0f08eab7690d2a6ee69\n");
    assert_eq!(
        own("pg_enc", &["-K", "mykey", "x"]).out,
        "\nlPSzifBmRWM9tqzBMtuqmw==\npool_passwd string: AESlPSzifBmRWM9tqzBMtuqmw==\n"
    );
    let (conf, key, pairs) = (at("pgpool.conf"), at("key"), at("pairs"));
    let passwd = || fs::read_to_string(tools.0.join("pool_passwd")).unwrap();
    assert_eq!(own("pg_md5", &["-m", "-u", "bob", "-f", &conf, "secret"]).code, 0);
    assert_eq!(passwd(), "bob:md521f3163f8f86fa10bdefbfbd502a8f06\n");
    assert_eq!(fs::metadata(at("pool_passwd")).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(own("pg_enc", &["-k", &key, "-m", "-u", "bob", "-f", &conf, "secret"]).code, 0);
    assert_eq!(passwd(), "bob:AESV7IMV7YNworqqZU1Z46Wgw==\n");
    assert_eq!(own("pg_md5", &["-m", "-i", &pairs, "-f", &conf]).code, 0);
    assert_eq!(passwd().lines().count(), 3);
    for (name, arguments) in [
        ("pg_md5", vec![]),
        ("pg_md5", vec!["-m", "-f", "/nowhere/pgpool.conf", "x"]),
        ("pg_enc", vec!["-k", "/nowhere/key", "x"]),
        ("pg_md5", vec!["-i", "/nowhere/pairs"]),
    ] {
        let ended = own(name, &arguments);
        assert!(ended.code == 1 && !ended.err.is_empty() && ended.out.is_empty(), "{name} {arguments:?}: {ended:?}");
    }
    if !has_debians() {
        return;
    }
    let debians = |name: &str, arguments: &[&str]| finish(Command::new(Path::new(DEBIANS).join(name)).args(arguments));
    for (name, arguments) in [("pg_md5", vec!["secret"]), ("pg_md5", vec!["a b:c"]), ("pg_enc", vec!["-K", "mykey", "secret"])] {
        assert_eq!(own(name, &arguments).out, debians(name, &arguments).out, "{name} {arguments:?}");
    }
}

#[test]
fn a_node_waits_for_the_first_client_since_it_was_attached() {
    let stage = Stage::new("");
    let status = || stage.own("pcp_node_info", &["2"]).out.split(' ').nth(4).unwrap_or_default().to_string();
    let mut client = stage.ground.client(&stage.proxy);
    client.run("select 1");
    wait_until("the node to be up", || status() == "up");
    stage.own("pcp_detach_node", &["2"]);
    assert_eq!(status(), "down");
    stage.own("pcp_attach_node", &["2"]);
    assert_eq!(status(), "waiting", "the client of before does not count");
    assert_eq!(show(&mut client, "pool_nodes", "status"), ["up", "up", "up"], "a client that asks has come");
    stage.ground.client(&stage.proxy).run("select 1");
    wait_until("the node to be up", || status() == "up");
}

/// The end of its connections tells Weir that a server is gone. Clients who ask for the nodes have no server asked.
#[test]
fn nodes_are_shown_without_a_question_to_servers() {
    let cluster = cluster(1);
    let proxy = Proxy::start(&cluster, "failover_mode = off\nsr_check_period = 1h\nhealth_check_period = 0");
    proxy.wait_for_nodes(2);
    let mut client = proxy.console();
    let mut looks = || -> u64 {
        let counts = show(&mut client, "pool_health_check_stats", "total_count");
        counts.iter().map(|count| count.parse::<u64>().unwrap()).sum()
    };
    let mut asking = proxy.console();
    wait_until("looks of the start to be over", || {
        let before = looks();
        show(&mut asking, "pool_nodes", "status") == ["up", "up"] && looks() == before
    });
    let before = looks();
    const SHOWS: u64 = 100;
    for _ in 0..SHOWS {
        assert_eq!(show(&mut asking, "pool_nodes", "status"), ["up", "up"]);
    }
    // A round of the start may come late on a busy machine; each SHOW would bring one of its own.
    assert!(looks() < before + SHOWS / 2, "{} looks, {before} before", looks());
    cluster.standbys()[0].stop(Mode::Fast).unwrap();
    wait_until("the node to be shown as down", || show(&mut asking, "pool_nodes", "status") == ["up", "down"]);
}

#[test]
fn a_node_that_is_detached_while_nothing_can_be_written_is_so_after_a_restart() {
    let work = Folder::new();
    let (folder, away) = (work.0.join("work"), work.0.join("away"));
    fs::create_dir(&folder).unwrap();
    let mut stage = Stage::new(&format!("work_dir = '{}'", folder.display()));
    // As a full disk does, this refuses the file and nothing else.
    fs::rename(&folder, &away).unwrap();
    assert_eq!(stage.own("pcp_detach_node", &["1"]).code, 0);
    let status = folder.join("pgpool_status");
    let said = format!("{} cannot be written: ", status.display());
    wait_until("the failure to be logged", || stage.proxy.log().contains(&said));
    assert!(stage.proxy.log().contains("a restart would forget which nodes are out of use"));
    fs::rename(&away, &folder).unwrap();
    wait_until("the file to be written", || fs::read_to_string(&status).is_ok_and(|text| text.lines().nth(1) == Some("down")));
    wait_until("the log to say so", || stage.proxy.log().contains("pgpool_status is written again"));
    assert_eq!(stage.proxy.log().matches(&said).count(), 1, "told once");
    let left: Vec<_> = fs::read_dir(&folder).unwrap().flatten().map(|entry| entry.file_name()).collect();
    assert!(left.iter().all(|name| !name.to_string_lossy().ends_with(".new")), "{left:?}");
    stage.proxy.crash_and_start();
    stage.proxy.wait_accepting();
    wait_until("the node to be out of use", || stage.proxy.nodes("status")[1] == "down");
}

#[test]
fn nodes_are_detached_and_attached_and_reads_keep_away_meanwhile() {
    let stage = Stage::new("");
    let done = |name: &str| Ended { code: 0, out: format!("{name} -- Command Successful\n"), err: String::new() };
    assert_eq!(stage.own("pcp_detach_node", &["1"]), done("pcp_detach_node"));
    assert_eq!(stage.statuses(), ["up", "down", "up"]);
    let mut client = stage.ground.client(&stage.proxy);
    let before = show(&mut client, "pool_nodes", "select_cnt");
    (0..20).for_each(|_| client.run("select 1"));
    assert_eq!(show(&mut client, "pool_nodes", "select_cnt")[1], before[1]);
    let info = stage.own("pcp_node_info", &["1"]).out;
    assert!(info.contains(" 3 ") && info.contains(" down up standby standby "), "{info}");
    assert_eq!(stage.own("pcp_attach_node", &["--node-id", "1"]), done("pcp_attach_node"));
    assert_eq!(stage.statuses(), ["up", "up", "up"]);
    wait_until("reads to come back", || {
        client.run("select 1");
        show(&mut client, "pool_nodes", "select_cnt")[1] != before[1]
    });
    // Gracefully: a transaction ends first, and nobody is sent away, also none who keeps a connection.
    let mut pinned = stage.ground.client(&stage.proxy);
    pinned.run("create temp table own (a int)");
    // With one snapshot it stays on its server. A transaction that reads on standbys holds no connection between two reads, so that nothing has to end.
    let mut inside = stage.ground.client(&stage.proxy);
    inside.run("begin isolation level repeatable read");
    inside.run("select 1");
    let mut reader = stage.ground.client(&stage.proxy);
    reader.run("begin");
    reader.run("select 1");
    let ended = std::thread::scope(|scope| {
        let detach = scope.spawn(|| stage.own("pcp_detach_node", &["-g", "2"]));
        wait_until("the wait for transactions", || stage.proxy.log().contains("all databases are paused"));
        check_never("the detach ends before the transaction", Duration::from_secs(1), || detach.is_finished());
        inside.run("commit");
        detach.join().unwrap()
    });
    assert_eq!(reader.value("select 1"), "1");
    reader.run("commit");
    assert_eq!(ended, done("pcp_detach_node"));
    assert_eq!((stage.statuses(), inside.value("select 1")), (vec!["up".into(), "up".into(), "down".to_string()], "1".into()));
    assert_eq!(pinned.value("select count(*) from own"), "0");
    assert!(stage.proxy.log().contains("PCP: detach node 2 gracefully by user \"admin\" from 127.0.0.1: done"));
    assert_eq!(stage.proxy.metric("pcp_logins_failed_total"), 0);
    assert!(stage.proxy.metric("pcp_requests_total") >= 4);
}

#[test]
fn what_cannot_be_done_is_an_error_and_never_a_success() {
    let stage = Stage::new("backend_flag1 = 'DISALLOW_TO_FAILOVER'");
    // Until then the operator may name the primary.
    wait_until("the primary to be known", || stage.own("pcp_promote_node", &["0"]).err.contains("node 0 is the primary already"));
    for (name, arguments, why) in [
        ("pcp_attach_node", vec!["77"], "node id 77 is not valid"),
        ("pcp_detach_node", vec!["3"], "node id 3 is not valid"),
        ("pcp_detach_node", vec!["-g", "3"], "node id 3 is not valid"),
        ("pcp_detach_node", vec!["1"], "its backend_flag is DISALLOW_TO_FAILOVER"),
        ("pcp_promote_node", vec!["0"], "node 0 is the primary already"),
        ("pcp_promote_node", vec!["2"], "failover_mode leaves promotion to others"),
        ("pcp_promote_node", vec!["77"], "node id 77 is not valid"),
        ("pcp_recovery_node", vec!["77"], "node id 77 is not valid"),
        ("pcp_restart_node", vec!["77"], "node id 77 is not valid"),
        ("pcp_restart_node", vec![], "missing node-id"),
        ("pcp_upgrade_walk", vec!["-U", "liar"], "authentication failed for user \"liar\""),
        ("pcp_log_rotate", vec![], "logging_collector is off"),
        ("pcp_invalidate_query_cache", vec![], "query cache is not enabled"),
        ("pcp_watchdog_info", vec![], "watchdog is not enabled"),
        ("pcp_watchdog_status", vec![], "watchdog is not enabled"),
        ("pcp_proc_info", vec!["-P", "3"], "invalid process ID : 3"),
        ("pcp_node_info", vec!["9"], "invalid node ID : 9"),
        ("pcp_node_info", vec!["x"], "invalid node-id \"x\", must be between 0 and 127"),
        ("pcp_attach_node", vec![], "missing node-id"),
        ("pcp_stop_pgpool", vec!["-m", "never"], "invalid value 'never'"),
        ("pcp_node_count", vec!["-U", "liar"], "authentication failed for user \"liar\""),
        ("pcp_node_count", vec!["-U", "nobody"], "authentication failed for user \"nobody\""),
    ] {
        let ended = stage.own(name, &arguments);
        assert!(ended.code == 1 && ended.out.is_empty() && ended.err.contains(why), "{name} {arguments:?}: {ended:?}");
    }
    assert_eq!(stage.statuses(), ["up", "up", "up"]);
    let nobody = ask(&stage.tools.0, &stage.tools.0, ReservedPort::any().unwrap().number(), "pcp_node_count", &[]);
    assert!(nobody.code == 1 && nobody.err.starts_with("ERROR: connection to host \"127.0.0.1\" failed"), "{nobody:?}");
}

#[test]
fn the_file_of_users_counts_at_the_next_login_and_sockets_are_as_good_as_ports() {
    let stage = Stage::with_users("", "log_pcp_processes = on");
    assert!(stage.own("pcp_node_count", &[]).err.contains("authentication failed"));
    stage.proxy.write_file("pcp.conf", &format!("nonsense\n{USERS}"));
    assert_eq!(stage.own("pcp_node_count", &[]).out, "3\n");
    assert!(stage.proxy.log().contains("pcp.conf:1: no colon between user and digest"), "{}", stage.proxy.log());
    assert!(stage.proxy.log().contains("PCP: user \"admin\" from 127.0.0.1: node count"), "log_pcp_processes");
    let (folder, port) = (stage.proxy.folder().display().to_string(), stage.number().to_string());
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.args(["pcp", "node_count", "-w", "-h", &folder, "-p", &port, "-U", "admin"]);
    private(&stage.tools.0.join("pcppass"), &format!("localhost:{port}:admin:secret\n"));
    let own = finish(command.env("PCPPASSFILE", stage.tools.0.join("pcppass")));
    assert_eq!((own.out.as_str(), own.code), ("3\n", 0), "{}", own.err);
    // A password that others can read is none.
    fs::set_permissions(stage.tools.0.join("pcppass"), fs::Permissions::from_mode(0o644)).unwrap();
    let refused = finish(&mut command);
    assert!(refused.code == 1 && refused.err.contains("group or world access"), "{refused:?}");
    // It is typed, where there is no terminal.
    let mut typed = Command::new(env!("CARGO_BIN_EXE_weir"));
    typed.args(["pcp", "node-count", "-h", "127.0.0.1", "-p", &port, "-U", "admin"]).stdin(Stdio::piped());
    let mut session = Command::new("setsid");
    session
        .arg("-w")
        .arg(typed.get_program())
        .args(typed.get_args())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = session.spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"secret\n").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.stdout.as_slice(), output.stderr.as_slice()), (b"3\n".as_slice(), b"Password: ".as_slice()));
}

#[test]
fn without_a_file_of_users_pcp_is_not_served() {
    let ground = Ground::new();
    let port = ReservedPort::any().unwrap();
    let lines = format!("pcp_listen_addresses = '127.0.0.1'\npcp_port = {}\npcp_socket_dir = 'FOLDER'", port.number());
    let proxy = Proxy::with_files(&[ground.cluster.primary()], &lines, &[], &["-F", "/nowhere/pcp.conf"]);
    assert!(TcpStream::connect(("127.0.0.1", port.number())).is_err());
    assert!(!proxy.folder().join(format!(".s.PGSQL.{}", port.number())).exists());
    assert!(proxy.log().contains("/nowhere/pcp.conf: cannot be read, so that nobody gets in by PCP"), "{}", proxy.log());
}

#[test]
fn a_proxy_is_reloaded_its_log_rotated_and_it_is_stopped_over_pcp() {
    let mut stage =
        Stage::new("logging_collector = on\nlog_directory = 'FOLDER/logs'\nlog_filename = '%s.log'\nmemory_cache_enabled = on");
    let logs = stage.proxy.folder().join("logs");
    stage.proxy.add_conf("pool_size = 9\nworker_threads = 1\nlog_filename = 'next.log'");
    let reloaded = stage.own("pcp_reload_config", &[]);
    assert_eq!(reloaded.out, "pcp_reload_config -- Command Successful\n");
    assert!(reloaded.err.contains("cannot be changed without a restart: worker_threads"), "{}", reloaded.err);
    assert_eq!(stage.ground.client(&stage.proxy).value("pgpool show pool_size"), "9");
    stage.proxy.add_conf("pool_size = nonsense");
    let refused = stage.own("pcp_reload_config", &[]);
    assert!(refused.code == 1 && refused.err.contains("nonsense"), "{refused:?}");
    wait_until("the new file", || logs.join("next.log").exists());
    fs::rename(logs.join("next.log"), logs.join("moved.log")).unwrap();
    assert_eq!(stage.own("pcp_log_rotate", &[]).code, 0);
    wait_until("the file after it", || logs.join("next.log").exists());
    assert_eq!(stage.own("pcp_invalidate_query_cache", &[]).out, "pcp_invalidate_query_cache -- Command Successful\n");
    let mut client = stage.ground.client(&stage.proxy);
    client.run("begin");
    assert_eq!(stage.own("pcp_stop_pgpool", &["-m", "smart"]).out, "pcp_stop_pgpool -- Command Successful\n");
    assert!(stage.proxy.is_running(), "a client is there");
    assert_eq!(stage.own("pcp_stop_pgpool", &["-m", "f"]).code, 0, "and PCP still is");
    assert_eq!(client.until_end()[0].failure().sqlstate, "57P01");
    assert!(stage.proxy.wait_end().success());
}

#[test]
fn pcp_goes_along_when_another_process_takes_over() {
    let mut stage = Stage::new("takeover_socket = 'FOLDER/way'");
    let socket = stage.proxy.folder().join(format!(".s.PGSQL.{}", stage.number()));
    let mut line = stage.connect();
    assert!(line.is_let_in());
    let mut old = stage.proxy.restart("log2");
    assert!(old.wait_end().success(), "whoever speaks PCP keeps no process");
    assert_eq!(stage.own("pcp_node_count", &[]).out, "3\n");
    let pids = stage.own("pcp_proc_count", &[]).out;
    assert!(pids.starts_with(&format!("{} ", stage.proxy.pid())), "{pids}");
    let mut local = Line::new(UnixStream::connect(socket).unwrap());
    assert!(local.is_let_in());
}

#[test]
fn nobody_learns_who_exists_and_nothing_is_told_before_a_login() {
    let stage = Stage::new("");
    let mut words = Vec::new();
    for (user, password) in [("admin", "wrong"), ("nobody", "secret"), ("", "")] {
        let mut line = stage.connect();
        let Some(PcpReply::Error(fault)) = line.log_in(user, password) else { panic!("{user} is let in") };
        assert_eq!(line.receive(), None, "it is closed");
        words.push((fault.severity, fault.message.replace(user, ""), fault.detail));
    }
    words.dedup();
    assert_eq!(words.len(), 1, "{words:?}");
    for request in [
        PcpRequest::NodeCount,
        PcpRequest::Attach(1),
        PcpRequest::Stop(weir_wire::pcp_protocol::PcpShutdownMode::Fast, weir_wire::pcp_protocol::CommandScope::Local),
    ] {
        let mut line = stage.connect();
        line.send(&request);
        assert_eq!(line.fault().message, "authentication failed for new PCP connection");
        assert_eq!(line.receive(), None);
    }
    // A salt is good for one proof, and only for its own.
    let mut line = stage.connect();
    line.send(&PcpRequest::Salt);
    let Some(PcpReply::Salt(salt)) = line.receive() else { panic!("no salt") };
    let login = PcpRequest::Login { user: b"admin".to_vec(), answer: proof(b"secret", b"admin", salt).to_vec() };
    line.send(&login);
    assert!(matches!(line.receive(), Some(PcpReply::Words { code: PcpReplyCode::LoggedIn, .. })));
    line.send(&login);
    assert_eq!(line.fault().detail, "no salt was asked for");
    let mut other = stage.connect();
    other.send(&PcpRequest::Salt);
    assert!(matches!(other.receive(), Some(PcpReply::Salt(another)) if another != salt));
    other.send(&login);
    assert!(other.fault().message.contains("authentication failed"));
    assert!(stage.proxy.metric("pcp_logins_failed_total") >= 4);
}

/// SplitMix64: the same bytes each time.
fn dice(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed ^ (mixed >> 27)
}

#[test]
fn hostile_bytes_end_their_connection_only() {
    let stage = Stage::new("");
    let mut state = 1;
    for round in 0..200 {
        let mut line = stage.connect();
        line.stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        if round % 2 == 0 {
            assert!(line.is_let_in());
        }
        let mut bytes = Vec::new();
        for _ in 0..1 + dice(&mut state) % 40 {
            bytes.push(match dice(&mut state) % 4 {
                0 => *b"MRLIHNPWBCDdJjOZVGAFq".get((dice(&mut state) % 21) as usize).unwrap(),
                1 => 0,
                2 => (dice(&mut state) % 16) as u8,
                _ => dice(&mut state) as u8,
            });
        }
        // It may be closed while we still speak.
        let _ = line.stream.write_all(&bytes);
        let _ = line.stream.shutdown(std::net::Shutdown::Write);
        while line.receive().is_some() {}
    }
    let mut long = stage.connect();
    long.stream.write_all(b"L\x7f\xff\xff\xff").unwrap();
    assert_eq!(long.fault().detail, "incorrect packet length (2147483647)");
    assert_eq!(long.receive(), None);
    assert_eq!(stage.own("pcp_node_count", &[]).out, "3\n");
    assert_eq!(stage.ground.client(&stage.proxy).value("select 1"), "1");
}

#[test]
fn many_connections_and_silent_ones_hold_nobody_up() {
    let stage = Stage::new("");
    let begun = Instant::now();
    let mut silent: Vec<_> = (0..33).map(|_| stage.connect()).collect();
    // One of them began a packet.
    silent[0].stream.write_all(b"M\0\0").unwrap();
    wait_until("the one too many", || stage.proxy.log().contains("PCP: more than 32 connections, one is closed"));
    assert_eq!(stage.ground.client(&stage.proxy).value("select 1"), "1");
    // Connections to the port do not shut out who comes over the unix socket.
    let socket = stage.proxy.folder().join(format!(".s.PGSQL.{}", stage.number()));
    let mut local = Line::new(UnixStream::connect(socket).unwrap());
    assert!(local.is_let_in());
    local.send(&PcpRequest::NodeCount);
    assert_eq!(local.receive().unwrap().strings(), ["3"]);
    let last: Vec<Option<PcpReply>> = silent.iter_mut().map(Line::receive).collect();
    assert_eq!(last.iter().filter(|last| last.is_none()).count(), 1, "{last:?}");
    let is_late = |last: &PcpReply| matches!(last, PcpReply::Error(fault) if fault.message == "no PCP request came in time");
    assert!(last.iter().flatten().all(is_late), "{last:?}");
    assert!(silent.iter_mut().all(|line| line.receive().is_none()), "they are closed");
    check_within("silent connections to be closed", begun, Duration::from_secs(10) + SLACK);
    assert_eq!(stage.own("pcp_node_count", &[]).out, "3\n");
}

#[test]
fn guesses_are_slowed_down() {
    let stage = Stage::new("login_failure_limit = 3");
    let began = Instant::now();
    for _ in 0..6 {
        assert!(matches!(stage.connect().log_in("admin", "wrong"), Some(PcpReply::Error(_))));
    }
    assert!(began.elapsed() >= Duration::from_secs(2), "six guesses in {:?}", began.elapsed());
    assert!(stage.connect().is_let_in(), "who knows the password waits and gets in");
}

#[test]
fn guesses_that_come_at_once_are_judged_one_after_the_other() {
    fn check<S: Read + Write>(connect: impl Fn() -> S) {
        let mut lines: Vec<Line<S>> = (0..6).map(|_| Line::new(connect())).collect();
        let began = Instant::now();
        for line in &mut lines {
            line.send(&PcpRequest::Salt);
            let Some(PcpReply::Salt(salt)) = line.receive() else { panic!("no salt") };
            let answer = proof(b"wrong", b"admin", salt).to_vec();
            line.send(&PcpRequest::Login { user: b"admin".to_vec(), answer });
        }
        for line in &mut lines {
            assert!(line.fault().message.contains("authentication failed"));
        }
        assert!(began.elapsed() >= Duration::from_secs(3), "six guesses in {:?}", began.elapsed());
        assert!(Line::new(connect()).is_let_in(), "who knows the password waits and gets in");
    }
    let stage = Stage::new("login_failure_limit = 3");
    let socket = stage.proxy.folder().join(format!(".s.PGSQL.{}", stage.number()));
    std::thread::scope(|scope| {
        scope.spawn(|| check(|| TcpStream::connect(("127.0.0.1", stage.number())).unwrap()));
        scope.spawn(|| check(|| UnixStream::connect(&socket).unwrap()));
    });
}

#[test]
fn the_console_does_the_same() {
    let stage = Stage::new("admin_users = 'postgres'");
    let mut console = Raw::unix(stage.proxy.folder(), stage.proxy.port()).log_in("pgbouncer", "pgbouncer", &[]).unwrap();
    console.run("DETACH 2");
    assert!(stage.proxy.log().contains("console: DETACH 2 by user \"pgbouncer\""), "{}", stage.proxy.log());
    assert_eq!(stage.statuses(), ["up", "up", "down"]);
    console.run("ATTACH 2");
    assert_eq!(stage.statuses(), ["up", "up", "up"]);
    assert!(console.error("DETACH 77").message.contains("node 77 does not exist"));
    assert!(console.error("PROMOTE 0").message.contains("is the primary already"));
    assert!(console.error("ATTACH").message.contains("needs the number of a node"));
}

/// The functions of Pgpool-II's extension, in SQL: the operator's scripts run on the primary.
const EXTENSION: &str = "create function pgpool_recovery(script text, host text, directory text, port text, node int, node_port text, \
     primary_host text) returns boolean language plpgsql as $$ begin execute format('copy (select 1) to program %L', \
     format('sh %s/%s %s %s %s %s %s %s', current_setting('data_directory'), script, host, directory, port, node, node_port, \
     primary_host)); return true; end $$;
     create function pgpool_remote_start(host text, directory text) returns boolean language plpgsql as $$ begin \
     execute format('copy (select 1) to program %L', format('sh %s/pgpool_remote_start %s %s', current_setting('data_directory'), \
     host, directory)); return true; end $$";

/// The functions of a user without rights, with more arguments than any release's, and with those of one.
const TRAPS: &str = "set search_path = evil; create function trap() returns boolean language plpgsql as $$ begin raise exception 'weir_trap'; end $$; \
     create function pgpool_recovery(text, text, text, text, int, text, text) returns boolean language sql as 'select evil.trap()'; \
     create function pgpool_recovery(text, text, text, text, int, text, text, text) returns boolean language sql as 'select evil.trap()'; \
     create function pgpool_remote_start(text, text) returns boolean language sql as 'select evil.trap()'; \
     create function pg_temp.pgpool_recovery(text, text, text, text, int, text, text) returns boolean language sql as 'select evil.trap()'; \
     create function pg_temp.pgpool_remote_start(text, text) returns boolean language sql as 'select evil.trap()'";

#[test]
fn a_node_is_made_anew_out_of_the_primary_and_attached() {
    let cluster = cluster(1);
    let (primary, standby) = (cluster.primary(), &cluster.standbys()[0]);
    let port = ReservedPort::any().unwrap();
    let lines = format!(
        "pcp_listen_addresses = '127.0.0.1'\npcp_port = {}\npcp_socket_dir = ''\nbackend_weight0 = 0\n\
         backend_data_directory1 = '{}'\nrecovery_user = 'postgres'\nrecovery_timeout = 60\n\
         recovery_1st_stage_command = 'copy.sh'\nhealth_check_period = 1\n",
        port.number(),
        standby.data_dir().display()
    );
    let proxy = Proxy::with_files(&[primary, standby], &lines, &[("pcp.conf", USERS)], &[]);
    let tools = tools();
    let recover = |node: &str| ask(&tools.0, &tools.0, port.number(), "pcp_recovery_node", &[node]);
    let fails = |node: &str, why: &str| {
        let ended = recover(node);
        assert!(ended.code == 1 && ended.out.is_empty() && ended.err.contains(why), "{ended:?}");
    };
    fails("0", "primary server cannot be recovered");
    fails("1", "node id: 1 is alive");
    standby.stop(Mode::Fast).unwrap();
    fails("1", "there is no function pgpool_recovery of a superuser's in database \"postgres\"");
    let mut template = primary.connect("postgres", "template1").unwrap();
    // Functions of those names that another user made are not called, however well they fit.
    primary.query("create role mallory login").unwrap();
    template.query("create schema evil authorization mallory; grant temporary on database template1 to mallory").unwrap();
    let mut mallory = primary.connect("mallory", "template1").unwrap();
    mallory.query(TRAPS).unwrap();
    fails("1", "there is no function pgpool_recovery of a superuser's in database \"postgres\"");
    template.query(EXTENSION).unwrap();
    fails("1", "copy.sh");
    let (programs, sockets) = (primary.programs().bin().display().to_string(), primary.socket_dir().display().to_string());
    // Arguments: host, directory, port of the primary, node, its port, host of the primary.
    // A server's programs alone have no pg_basebackup; the standby goes on from its own files then.
    let copied = format!(
        "cp $2/postgresql.conf {sockets}/kept.conf\nrm -rf $2/*\n\
         {programs}/pg_basebackup -w -h {sockets} -p $3 -U postgres -D $2 -c fast -R -P --max-rate=6M\ncp {sockets}/kept.conf $2/postgresql.conf\n"
    );
    let has_copy = primary.programs().bin().join("pg_basebackup").exists();
    let copied = if has_copy { copied } else { String::new() };
    let copy = format!("set -e\ncat > /dev/null\n{copied}echo \"$1 $3 $4 $5 $6\" > {sockets}/arguments\n");
    let start =
        format!("cat > /dev/null\nsetsid {programs}/pg_ctl -D $2 -l {sockets}/again.log start > /dev/null 2>&1 < /dev/null\n");
    for (name, text) in [("copy.sh", copy), ("pgpool_remote_start", start)] {
        let path = primary.data_dir().join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    primary.query("create table since (a int)").unwrap();
    let (ended, sizes) = thread::scope(|scope| {
        let recovering = scope.spawn(|| recover("1"));
        let (mut client, mut sizes) = (proxy.console(), BTreeSet::new());
        wait_until("the recovery to end", || {
            let shown = |client: &mut Raw, column| show(client, "pool_recovery", column);
            if shown(&mut client, "doing") == ["scripts"] {
                sizes.extend(shown(&mut client, "done_bytes").iter().filter_map(|bytes| bytes.parse::<u64>().ok()));
            }
            recovering.is_finished()
        });
        (recovering.join().unwrap(), sizes)
    });
    assert!(!has_copy || sizes.iter().filter(|size| **size > 0).count() >= 2, "bytes grow: {sizes:?}");
    assert_eq!(ended, Ended { code: 0, out: "pcp_recovery_node -- Command Successful\n".into(), err: String::new() });
    assert_eq!(proxy.nodes("status"), ["up", "up"]);
    let arguments = fs::read_to_string(primary.socket_dir().join("arguments")).unwrap();
    assert_eq!(arguments.trim(), format!("127.0.0.1 {} 1 {} 127.0.0.1", primary.port(), standby.port()));
    let mut client = proxy.console();
    wait_until("the copy to be read from", || client.value("select inet_server_port()") == standby.port().to_string());
    assert_eq!(client.value("select count(*) from since"), "0");
    assert!(proxy.log().contains("PCP: recover node 1 by user \"admin\" from 127.0.0.1: done"));
}

#[test]
fn a_working_primary_makes_room_for_the_node_that_is_named() {
    let cluster = cluster(2);
    let port = ReservedPort::any().unwrap();
    let lines = format!(
        "pcp_listen_addresses = '127.0.0.1'\npcp_port = {}\npcp_socket_dir = ''\nfailover_mode = builtin\nfailover_alone = on\n\
         failover_lag_max = -1\nhealth_check_period = 1\nhealth_check_timeout = 5\nbackend_application_name0 = 'primary'\n\
         backend_application_name1 = 'standby1'\nbackend_application_name2 = 'standby2'\n",
        port.number()
    );
    let servers: Vec<_> = cluster.servers().iter().collect();
    let proxy = Proxy::with_files(&servers, &lines, &[("pcp.conf", USERS)], &[]);
    let tools = tools();
    let promote = |arguments: &[&str]| ask(&tools.0, &tools.0, port.number(), "pcp_promote_node", arguments);
    let mut client = proxy.console();
    client.run("create table t (a int)");
    let refused = promote(&["2"]);
    assert!(refused.code == 1 && refused.err.contains("the primary works"), "{refused:?}");
    assert_eq!(promote(&["-s", "2"]).err, "");
    assert_eq!(proxy.nodes("role"), ["standby", "standby", "primary"]);
    client.run("insert into t values (1)");
    assert_eq!(client.value("select inet_server_port() from t for update"), servers[2].port().to_string());
    assert_eq!(proxy.nodes("status")[0], "down", "the old one is out of use until it follows");
}

#[test]
fn programs_that_are_called_by_pgpools_names_tell_what_they_are() {
    let tools = tools();
    let own = |name: &str, argument: &str| finish(Command::new(tools.0.join(name)).arg(argument));
    for name in ["pcp_node_info", "pcp_stop_pgpool", "pg_md5", "pg_enc"] {
        let help = own(name, "--help");
        assert!(help.code == 0 && help.out.contains("Usage:"), "{name}: {help:?}");
        let wrong = own(name, "--bogus");
        assert!(wrong.code == 1 && !wrong.err.is_empty(), "{name}: {wrong:?}");
    }
    assert!(own("pcp_node_info", "-V").out.starts_with("pcp_node_info (Weir "));
    let path: PathBuf = tools.0.join("pcp_nonsense");
    symlink(env!("CARGO_BIN_EXE_weir"), &path).unwrap();
    assert_eq!(finish(&mut Command::new(&path)).code, 1);
}
