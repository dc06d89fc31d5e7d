//! The command line: weir's own, and pgpool's when called by that name.

use crate::support::proxy::{Backend, Folder, configuration};
use crate::support::{Ground, Raw, wait_until};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use weir_demo::ReservedPort;

const WEIR: &str = env!("CARGO_BIN_EXE_weir");

fn run(program: &Path, arguments: &[&str]) -> Output {
    Command::new(program).args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Runs `weir check` on a file of these lines: success, standard output, standard error with the file's path as FILE.
fn check(lines: &str) -> (bool, String, String) {
    let folder = Folder::new();
    let file = folder.0.join("pgpool.conf");
    fs::write(&file, lines).unwrap();
    let output = run(Path::new(WEIR), &["check", "-f", &file.to_string_lossy()]);
    let errors = text(&output.stderr).replace(&file.display().to_string(), "FILE");
    (output.status.success(), text(&output.stdout), errors)
}

const NODE: &str = "backend_hostname0 = 'localhost'\nbackend_weight0 = 1\n";

#[test]
fn a_right_file_is_said_to_be_valid() {
    let (success, said, errors) = check(NODE);
    assert!(success, "{errors}");
    assert!(said.contains("valid") && said.contains("1 nodes"), "{said}");
}

#[test]
fn what_is_wrong_is_named_with_file_line_value_and_range() {
    let cases: [(&str, &[&str]); 8] = [
        ("port = 99", &["FILE:3: error: ", "99", "1024", "65535"]),
        ("port = many", &["FILE:3: error: ", "many"]),
        ("load_balance_mode = maybe", &["FILE:3: error: ", "maybe"]),
        ("backend_clustering_mode = 'snapshot'", &["FILE:3: error: ", "snapshot", "streaming_replication"]),
        ("pool_mode = transactional", &["FILE:3: error: ", "transactional", "session"]),
        ("pool_wait_timeout = 5kB", &["FILE:3: error: ", "5kB"]),
        ("num_init_children = 0", &["FILE:3: error: ", "0", "1"]),
        ("port = 9999 9998", &["FILE:3: error: "]),
    ];
    for (line, parts) in cases {
        let (success, said, errors) = check(&format!("{NODE}{line}\n"));
        assert!(!success, "{line} is accepted: {said}");
        for part in parts {
            assert!(errors.contains(part), "{line}: {part} is missing in {errors}");
        }
        assert!(said.contains("1 errors"), "{said}");
    }
}

#[test]
fn an_unknown_parameter_is_a_warning_with_the_nearest_known_name() {
    let (success, _, errors) = check(&format!("{NODE}num_init_childs = 5\n"));
    assert!(success, "{errors}");
    assert!(
        errors.contains("FILE:3: warning: ") && errors.contains("num_init_childs") && errors.contains("\"num_init_children\""),
        "{errors}"
    );
}

#[test]
fn a_file_that_is_missing_or_has_no_node_is_an_error() {
    let output = run(Path::new(WEIR), &["check", "-f", "/nowhere/pgpool.conf"]);
    assert!(!output.status.success());
    assert!(text(&output.stderr).contains("/nowhere/pgpool.conf"), "{}", text(&output.stderr));
    let (success, _, errors) = check("port = 9999\n");
    assert!(!success && errors.contains("backend_hostname"), "{errors}");
}

#[test]
fn a_proxy_does_not_start_with_a_wrong_file() {
    let folder = Folder::new();
    let file = folder.0.join("pgpool.conf");
    fs::write(&file, format!("{NODE}port = none\n")).unwrap();
    let output = run(Path::new(WEIR), &["-f", &file.to_string_lossy()]);
    assert!(!output.status.success());
    let errors = text(&output.stderr);
    assert!(errors.contains(":3: error: ") && errors.contains("not started"), "{errors}");
}

#[test]
fn a_port_in_use_is_said_so() {
    let folder = Folder::new();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    fs::write(folder.0.join("pgpool.conf"), configuration(&folder.0, port, &[Backend::tcp(5432, 1)], "")).unwrap();
    let output = run(Path::new(WEIR), &["-f", &folder.0.join("pgpool.conf").to_string_lossy()]);
    assert!(!output.status.success());
    assert!(text(&output.stderr).contains(&port.to_string()), "{}", text(&output.stderr));
}

#[test]
fn show_config_prints_value_source_and_unit() {
    let folder = Folder::new();
    let file = folder.0.join("pgpool.conf");
    fs::write(&file, format!("{NODE}pool_wait_timeout = 2min\n")).unwrap();
    let output = run(Path::new(WEIR), &["show-config", "-f", &file.to_string_lossy(), "-c", "pool_size=7"]);
    assert!(output.status.success());
    let shown = text(&output.stdout);
    let line = |name: &str| {
        let line = shown.lines().find(|line| line.split_whitespace().next() == Some(name));
        line.unwrap_or_else(|| panic!("no {name} in {shown}")).to_string()
    };
    assert!(line("pool_wait_timeout").contains("pgpool.conf:3"), "{}", line("pool_wait_timeout"));
    assert!(line("pool_size").contains('7') && !line("pool_size").contains("default"), "{}", line("pool_size"));
    assert!(line("num_init_children").contains("32") && line("num_init_children").contains("default"));
}

#[test]
fn the_sample_configuration_is_valid() {
    let sample = text(&run(Path::new(WEIR), &["sample-config"]).stdout);
    assert!(sample.lines().count() > 300, "every parameter has its comment");
    let (success, _, errors) = check(&format!("{sample}\n{NODE}"));
    assert!(success, "{errors}");
    assert!(!errors.contains("unrecognized"), "{errors}");
}

#[test]
fn help_and_version_are_told() {
    for (arguments, word) in [(&["--help"][..], "Usage"), (&["--version"], "weir"), (&["check", "--help"], "Usage")] {
        let output = run(Path::new(WEIR), arguments);
        assert!(output.status.success() && text(&output.stdout).contains(word), "{arguments:?}");
    }
    let output = run(Path::new(WEIR), &[]);
    assert!(!output.status.success() && text(&output.stderr).contains("-f FILE"), "{}", text(&output.stderr));
    let output = run(Path::new(WEIR), &["--no-such-option"]);
    assert!(!output.status.success());
}

/// A link `pgpool` to Weir, its configuration, and the daemon it may have left.
struct Pgpool {
    folder: Folder,
    port: ReservedPort,
}

impl Pgpool {
    fn new(ground: &Ground) -> Pgpool {
        let folder = Folder::new();
        symlink(WEIR, folder.0.join("pgpool")).unwrap();
        let port = ReservedPort::any().unwrap();
        let backends = [Backend::tcp(ground.cluster.primary().port(), 1)];
        fs::write(folder.0.join("pgpool.conf"), configuration(&folder.0, port.number(), &backends, "")).unwrap();
        Pgpool { folder, port }
    }

    fn conf(&self) -> PathBuf {
        self.folder.0.join("pgpool.conf")
    }

    fn run(&self, arguments: &[&str]) -> Output {
        let conf = self.conf();
        run(&self.folder.0.join("pgpool"), &[&["-f", &conf.to_string_lossy()], arguments].concat())
    }

    fn pid(&self) -> Option<Pid> {
        let text = fs::read_to_string(self.folder.0.join("weir.pid")).ok()?;
        Pid::from_raw(text.trim().parse().ok()?)
    }
}

impl Drop for Pgpool {
    fn drop(&mut self) {
        if let Some(pid) = self.pid() {
            // It may have ended on its own by now.
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}

#[test]
fn called_pgpool_it_becomes_a_daemon_reloads_and_stops() {
    let ground = Ground::new();
    let pgpool = Pgpool::new(&ground);
    let output = pgpool.run(&["-D", "-C", "-F", "/nowhere/pcp.conf", "-a", "/nowhere/pool_hba.conf", "-k", "/nowhere/key"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    // It accepts as soon as the command is back.
    let login = || Raw::tcp(pgpool.port.number()).log_in("postgres", &ground.database, &[]).unwrap();
    let mut client = login();
    assert_eq!(client.value("select 1"), "1");
    let pid = pgpool.pid().expect("a pid file");
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).unwrap();
    let session: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    assert_eq!(session[3], pid.as_raw_nonzero().to_string(), "it leads a session of its own");

    let output = pgpool.run(&[]);
    assert!(!output.status.success() && text(&output.stderr).contains("already running"), "{}", text(&output.stderr));

    let conf = fs::read_to_string(pgpool.conf()).unwrap();
    fs::write(pgpool.conf(), format!("{conf}pool_size = 9\n")).unwrap();
    assert!(pgpool.run(&["reload"]).status.success());
    wait_until("the reload", || login().value("pgpool show pool_size") == "9");

    client.run("begin");
    let output = pgpool.run(&["-m", "fast", "stop"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(client.until_end()[0].failure().sqlstate, "57P01");
    assert!(pgpool.pid().is_none(), "the pid file is gone when the command is back");
    let output = pgpool.run(&["-m", "fast", "stop"]);
    assert!(!output.status.success());
    let output = pgpool.run(&["reload"]);
    assert!(!output.status.success());
}

#[test]
fn pgpools_modes_have_their_short_names_and_smart_waits() {
    let ground = Ground::new();
    let pgpool = Pgpool::new(&ground);
    assert!(pgpool.run(&[]).status.success());
    assert!(pgpool.run(&["-m", "i", "stop"]).status.success());
    wait_until("the pid file to be gone", || pgpool.pid().is_none());
    assert!(pgpool.run(&["-d"]).status.success(), "it starts again on the same port");
    let mut client = Raw::tcp(pgpool.port.number()).log_in("postgres", &ground.database, &[]).unwrap();
    std::thread::scope(|scope| {
        let stop = scope.spawn(|| pgpool.run(&["-m", "s", "stop"]));
        wait_until("new clients to be refused", || std::net::TcpStream::connect(("127.0.0.1", pgpool.port.number())).is_err());
        assert_eq!(client.value("select 1"), "1");
        drop(client);
        assert!(stop.join().unwrap().status.success());
    });
}

#[test]
fn a_daemon_that_cannot_start_is_told_by_the_command() {
    let ground = Ground::new();
    let pgpool = Pgpool::new(&ground);
    let conf = fs::read_to_string(pgpool.conf()).unwrap();
    fs::write(pgpool.conf(), format!("{conf}port = 1\n")).unwrap();
    assert!(!pgpool.run(&[]).status.success());
    let _listener = std::net::TcpListener::bind(("127.0.0.1", pgpool.port.number())).unwrap();
    fs::write(pgpool.conf(), conf).unwrap();
    assert!(!pgpool.run(&[]).status.success());
}

#[test]
fn the_demo_shows_where_a_write_and_reads_went_and_leaves_nothing_behind() {
    let (folder, port) = (Folder::new(), ReservedPort::any().unwrap());
    let dir = folder.0.join("demo");
    let mut demo = Command::new(WEIR)
        .args(["demo", "--port", &port.number().to_string(), "--dir", &dir.to_string_lossy()])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let lines = BufReader::new(demo.stdout.take().unwrap()).lines().map(Result::unwrap);
    let mut said = Vec::new();
    for line in lines {
        let is_last = line.contains("Ctrl-C ends it") || line.contains("failed");
        said.push(line);
        if is_last {
            break;
        }
    }
    let ports = |label: &str| -> Vec<&str> {
        said.iter().filter(|line| line.starts_with(label)).filter_map(|line| line.rsplit("port ").next()).collect()
    };
    let servers: Vec<&str> = ports("  node ").iter().filter_map(|port| Some(port.split_once(", ")?.0)).collect();
    assert_eq!(servers.len(), 3, "{said:?}");
    assert_eq!(ports("  write"), [servers[0]], "{said:?}");
    let reads = ports("  read");
    assert!(servers[1..].iter().all(|standby| reads.contains(standby)), "{said:?}");
    assert!(!reads.contains(&servers[0]), "{said:?}");
    let mut client = Raw::tcp(port.number()).log_in("postgres", "postgres", &[]).unwrap();
    assert_eq!(client.value("select count(*) from visits"), "1");
    kill_process(Pid::from_child(&demo), Signal::INT).unwrap();
    assert!(demo.wait().unwrap().success());
    assert!(!dir.exists(), "its folder is gone");
    let is_there = |port: &str| TcpStream::connect(("127.0.0.1", port.parse().unwrap())).is_ok();
    assert!(!servers.iter().any(|port| is_there(port)) && !is_there(&port.number().to_string()), "its servers are gone");
}
