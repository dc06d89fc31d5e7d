//! Restarts nobody notices, and messages to a service manager.

use crate::support::proxy::{Backend, Folder, configuration, program_for_others};
use crate::support::{Ground, Proxy, Raw, leave_out, wait_until, wire};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use weir_demo::{ReservedPort, Sql};

/// A proxy that can be relieved.
fn relievable(ground: &Ground, more: &str) -> (Proxy, Folder) {
    let folder = Folder::new();
    let lines = format!("takeover_socket = '{}/way'\n{more}", folder.0.display());
    (ground.primary_proxy(&lines), folder)
}

#[test]
fn restarts_under_load_lose_no_statement_and_refuse_no_connection() {
    let ground = Ground::new();
    ground.prepare("create table t (a int)");
    let (mut proxy, folder) = relievable(&ground, "pool_size = 4");
    let script = folder.0.join("script");
    fs::write(&script, "insert into t values (1);\nselect count(*) from t where a < 0;\n").unwrap();
    let mut benches: Vec<Child> = [vec!["-C"], vec![]]
        .iter()
        .map(|more| {
            let mut command = Command::new("pgbench");
            command.args(["-n", "-c", "4", "-T", "50", "-f"]).arg(&script).args(more);
            command.args(["-h", "127.0.0.1", "-p", &proxy.port().to_string(), "-U", "postgres", &ground.database]);
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("pgbench is installed")
        })
        .collect();
    let mut old = Vec::new();
    for round in 0..3 {
        let count = || ground.direct().value("select count(*) from t").parse::<u32>().unwrap();
        let before = count();
        wait_until("the load to go on", || count() > before + 100);
        old.push(proxy.restart(&format!("log{round}")));
    }
    let mut written = 0;
    for bench in benches.drain(..) {
        // As when its time is over.
        kill_process(Pid::from_child(&bench), Signal::ALARM).unwrap();
        let output = bench.wait_with_output().unwrap();
        let (said, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success() && !errors.contains("error") && !errors.contains("aborted"), "{said}{errors}");
        let line = said.lines().find_map(|line| line.strip_prefix("number of transactions actually processed: "));
        written += line.and_then(|count| count.trim().parse::<u32>().ok()).unwrap_or_else(|| panic!("{said}"));
    }
    assert_eq!(ground.direct().value("select count(*) from t"), written.to_string(), "each statement ran once");
    for proxy in &mut old {
        assert!(proxy.wait_end().success(), "the old ones end when their clients have left");
    }
    assert_eq!(ground.client(&proxy).value("select 1"), "1");
}

#[test]
fn clients_stay_with_the_old_process_and_new_ones_come_to_the_new_one() {
    let ground = Ground::new();
    ground.prepare("create table t (a int)");
    let port = ReservedPort::any().unwrap();
    let (mut proxy, folder) =
        relievable(&ground, &format!("metrics_listen_addresses = '127.0.0.1'\nmetrics_port = {}", port.number()));
    let mut inside = ground.client(&proxy);
    let mut idle = Raw::unix(proxy.folder(), proxy.port()).log_in("postgres", &ground.database, &[]).unwrap();
    inside.run("begin; insert into t values (1)");
    let first = proxy.pid();
    let mut old = proxy.restart("log2");
    assert_ne!(proxy.pid(), first);
    inside.run("commit");
    assert_eq!(idle.value("select count(*) from t"), "1", "both are served by the old one");
    let mut new = ground.client(&proxy);
    assert_eq!(new.value("select 2"), "2");
    let mut local = Raw::unix(proxy.folder(), proxy.port()).log_in("pgbouncer", "pgbouncer", &[]).unwrap();
    assert_eq!(crate::support::proxy::show(&mut local, "clients", "id").len(), 2, "the new one has its own clients only");
    assert!(std::net::TcpStream::connect(("127.0.0.1", port.number())).is_ok());
    let pid = || fs::read_to_string(proxy.folder().join("weir.pid")).unwrap_or_default().trim().to_string();
    assert_eq!(pid(), proxy.pid().to_string());
    assert!(old.is_running());
    drop((inside, idle));
    assert!(old.wait_end().success());
    assert_eq!(pid(), proxy.pid().to_string(), "the old one leaves the file alone");
    assert!(folder.0.join("way").exists());
    assert_eq!(Raw::unix(proxy.folder(), proxy.port()).log_in("postgres", &ground.database, &[]).unwrap().value("select 3"), "3");
    let mut again = proxy.restart("log3");
    drop((new, local));
    assert!(again.wait_end().success());
}

#[test]
fn a_process_that_fails_to_take_over_leaves_the_old_one_as_it_was() {
    let ground = Ground::new();
    let (proxy, _folder) = relievable(&ground, "");
    let mut client = ground.client(&proxy);
    proxy.add_conf("logging_collector = on\nlog_directory = '/dev/null/logs'");
    let output = Command::new(env!("CARGO_BIN_EXE_weir")).arg("--takeover").arg("-f").arg(proxy.conf_path()).output().unwrap();
    assert!(!output.status.success());
    wait_until("the old one to notice", || proxy.log().contains("nobody took over"));
    assert_eq!(client.value("select 1"), "1");
    assert_eq!(ground.client(&proxy).value("select 2"), "2");
    let path = proxy.folder().join("weir.pid");
    assert_eq!(fs::read_to_string(path).unwrap().trim(), proxy.pid().to_string());
    assert!(proxy.folder().join(format!(".s.PGSQL.{}", proxy.port())).exists());
}

#[test]
fn the_old_process_disconnects_clients_that_stay_too_long() {
    let ground = Ground::new();
    let (mut proxy, _folder) = relievable(&ground, "takeover_drain_timeout = 1");
    let mut client = ground.client(&proxy);
    let mut old = proxy.restart("log2");
    assert_eq!(client.value("select 1"), "1");
    assert_eq!(client.until_end()[0].failure().sqlstate, "57P01");
    assert!(old.wait_end().success());
}

#[test]
fn taking_over_from_nobody_is_a_start() {
    let ground = Ground::new();
    let (proxy, folder) = relievable(&ground, "");
    let conf = proxy.conf();
    drop(proxy);
    let port = ReservedPort::any().unwrap();
    let file = folder.0.join("pgpool.conf");
    fs::write(&file, format!("{conf}\nport = {}\npid_file_name = ''\nunix_socket_directories = ''", port.number())).unwrap();
    let mut process = Command::new(env!("CARGO_BIN_EXE_weir")).arg("--takeover").arg("-f").arg(&file).spawn().unwrap();
    wait_until("it to accept", || Raw::try_tcp(port.number()).is_some());
    process.kill().unwrap();
    process.wait().unwrap();
}

/// Starts the proxy as systemd does: with a listening socket as descriptor 3, and an environment that says so.
fn under_systemd(folder: &Folder, conf: &str, environment: &[(&str, String)], listen: &str) -> Child {
    let file = folder.0.join("pgpool.conf");
    fs::write(&file, conf).unwrap();
    let listener = std::net::TcpListener::bind(listen).unwrap();
    let mut command = Command::new("sh");
    // The shell only moves the descriptor and becomes the proxy, whose pid the environment must name.
    command.args(["-c", "export LISTEN_PID=$$ LISTEN_FDS=1; exec \"$0\" -f \"$1\" 3<&0 </dev/null"]);
    command.arg(env!("CARGO_BIN_EXE_weir")).arg(&file);
    command.envs(environment.iter().map(|(name, value)| (name, value)));
    command.stdin(std::os::fd::OwnedFd::from(listener)).stdout(Stdio::null());
    command.stderr(fs::File::create(folder.0.join("log")).unwrap()).spawn().unwrap()
}

#[test]
fn systemd_opens_the_sockets_and_is_told_of_start_reload_and_stop() {
    let ground = Ground::new();
    let folder = Folder::new();
    let port = ReservedPort::any().unwrap();
    let manager = UnixDatagram::bind(folder.0.join("notify")).unwrap();
    manager.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let backend = Backend::tcp(ground.cluster.primary().port(), 1);
    let conf = format!(
        "listen_addresses = 'no.such.host.invalid'\nport = {}\nunix_socket_directories = ''\npid_file_name = ''\n\
         backend_hostname0 = '{}'\nbackend_port0 = {}\nbackend_weight0 = 1\nsr_check_user = 'postgres'\nlog_min_messages = log\n",
        port.number(),
        backend.host,
        backend.port
    );
    let environment = [("NOTIFY_SOCKET", folder.0.join("notify").display().to_string()), ("WATCHDOG_USEC", "400000".to_string())];
    let mut process = under_systemd(&folder, &conf, &environment, &format!("127.0.0.1:{}", port.number()));
    let word = || {
        let mut buffer = [0; 500];
        let bytes = manager.recv(&mut buffer).expect("a message");
        String::from_utf8_lossy(&buffer[..bytes]).into_owned()
    };
    // The first client makes systemd start it; it waits in the queue meanwhile.
    let mut client = None;
    wait_until("systemd to listen", || {
        client = Raw::try_tcp(port.number());
        client.is_some()
    });
    let mut client = client.unwrap().log_in("postgres", &ground.database, &[]).unwrap();
    assert_eq!(client.value("select 1"), "1");
    let ready = word();
    assert!(ready.starts_with("READY=1\nMAINPID="), "{ready}");
    for _ in 0..2 {
        assert_eq!(word(), "WATCHDOG=1");
    }
    let pid: i32 = ready.trim_start_matches("READY=1\nMAINPID=").trim().parse().unwrap();
    // FD_CLOEXEC, in octal as O_CLOEXEC. Source: proc_pid_fdinfo(5).
    let flags = fs::read_to_string(format!("/proc/{pid}/fdinfo/3")).unwrap();
    let flags = flags.lines().find_map(|line| line.strip_prefix("flags:")).unwrap();
    assert_ne!(u32::from_str_radix(flags.trim(), 8).unwrap() & 0o2_000_000, 0, "programs it starts do not get the socket");
    let signal = |signal| rustix::process::kill_process(rustix::process::Pid::from_raw(pid).unwrap(), signal).unwrap();
    signal(Signal::HUP);
    let next = || loop {
        let word = word();
        if word != "WATCHDOG=1" {
            return word;
        }
    };
    assert!(next().starts_with("RELOADING=1\nMONOTONIC_USEC="));
    assert!(next().starts_with("READY=1"));
    client.send(&wire::terminate());
    drop(client);
    signal(Signal::TERM);
    assert_eq!(next(), "STOPPING=1");
    assert!(process.wait().unwrap().success());
}

/// Runs `weir renew`, and returns its words and the new process.
fn renew(proxy: &Proxy, program: &std::path::Path) -> (String, i32) {
    let output = Command::new(program).args(["renew", "-f"]).arg(proxy.conf_path()).output().unwrap();
    let (said, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{said}{errors}\n{}", proxy.log());
    let pid = said.strip_prefix("process ").and_then(|rest| rest.split(' ').next()).and_then(|pid| pid.parse().ok());
    (said.clone().into_owned(), pid.unwrap_or_else(|| panic!("{said}")))
}

/// A process that nobody here is the parent of. Dropping it ends it.
struct Foreign(Pid);

impl Drop for Foreign {
    fn drop(&mut self) {
        let _ = kill_process(self.0, Signal::KILL);
    }
}

#[test]
fn a_renewed_process_is_of_the_same_unit_and_of_the_program_that_is_installed_then() {
    let ground = Ground::new();
    let folder = Folder::new();
    let (port, program) = (ReservedPort::any().unwrap(), folder.0.join("weir"));
    fs::copy(env!("CARGO_BIN_EXE_weir"), &program).unwrap();
    let manager = UnixDatagram::bind(folder.0.join("notify")).unwrap();
    manager.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let backend = Backend::tcp(ground.cluster.primary().port(), 1);
    let way = format!("takeover_socket = '{}/way'", folder.0.display());
    let file = folder.0.join("pgpool.conf");
    fs::write(&file, configuration(&folder.0, port.number(), &[backend], &way)).unwrap();
    let log = fs::File::create(folder.0.join("log")).unwrap();
    let mut command = Command::new(&program);
    command.arg("-D").arg("-f").arg(&file).env("NOTIFY_SOCKET", folder.0.join("notify")).env("WATCHDOG_USEC", "400000");
    let mut old = command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap();
    let word = || {
        let mut buffer = [0; 500];
        let bytes = manager.recv(&mut buffer).expect("a message");
        String::from_utf8_lossy(&buffer[..bytes]).into_owned()
    };
    assert_eq!(word(), format!("READY=1\nMAINPID={}", old.id()));
    let log_in = || Raw::try_tcp(port.number()).unwrap().log_in("postgres", &ground.database, &[]).unwrap();
    let mut client = log_in();
    client.run("create table kept (a int); begin; insert into kept values (1)");
    // As dpkg does: another file under the name.
    fs::copy(&program, folder.0.join("weir.dpkg-new")).unwrap();
    fs::rename(folder.0.join("weir.dpkg-new"), &program).unwrap();
    let output = Command::new(&program).args(["renew", "-f"]).arg(&file).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    let new: i32 = said.strip_prefix("process ").and_then(|rest| rest.split(' ').next()?.parse().ok()).expect("its number");
    let new = Foreign(Pid::from_raw(new).unwrap());
    assert!(said.ends_with(&format!("process {} ends when its last client has left\n", old.id())), "{said}");
    let number = new.0.as_raw_nonzero();
    assert_eq!(fs::read_link(format!("/proc/{number}/exe")).unwrap(), program, "it is of the new file");
    let next = || loop {
        let word = word();
        if word != "WATCHDOG=1" {
            return word;
        }
    };
    assert_eq!(next(), format!("MAINPID={number}"), "the old main process names the new one");
    assert_eq!(next(), format!("READY=1\nMAINPID={number}"));
    assert_eq!(word(), "WATCHDOG=1", "the new one feeds the watchdog");
    client.run("commit");
    let mut later = log_in();
    assert_eq!(later.value("select count(*) from kept"), "1");
    drop(client);
    assert!(old.wait().unwrap().success());
    assert_eq!(later.value("select 2"), "2");
    drop(later);
    kill_process(new.0, Signal::TERM).unwrap();
    assert_eq!(next(), "STOPPING=1", "the only one: the end of the old process was not the unit's");
    wait_until("it to end", || fs::read_to_string(folder.0.join("log")).unwrap().matches("stopped").count() == 2);
}

#[test]
fn a_renewal_that_fails_leaves_the_old_process_as_it_was_and_can_be_tried_again() {
    let ground = Ground::new();
    let (proxy, _folder) = relievable(&ground, "");
    let mut client = ground.client(&proxy);
    let conf = proxy.conf();
    proxy.add_conf("logging_collector = on\nlog_directory = '/dev/null/logs'");
    let output = Command::new(env!("CARGO_BIN_EXE_weir")).args(["renew", "-f"]).arg(proxy.conf_path()).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && errors.contains("has ended, and process"), "{errors}");
    assert_eq!(client.value("select 1"), "1");
    assert_eq!(ground.client(&proxy).value("select 2"), "2");
    fs::write(proxy.conf_path(), conf).unwrap();
    let (said, new) = renew(&proxy, std::path::Path::new(env!("CARGO_BIN_EXE_weir")));
    let _new = Foreign(Pid::from_raw(new).unwrap());
    assert!(said.contains(&format!("process {} ends", proxy.pid())), "{said}");
    assert_eq!(client.value("select 3"), "3");
    assert_eq!(ground.client(&proxy).value("select 4"), "4");
}

#[test]
fn a_process_is_configured_by_variables_and_says_when_it_is_ready() {
    let ground = Ground::new();
    let (folder, port, pages) = (Folder::new(), ReservedPort::any().unwrap(), ReservedPort::any().unwrap());
    let backend = Backend::tcp(ground.cluster.primary().port(), 1);
    let user = folder.0.join("user");
    fs::write(&user, "postgres\n").unwrap();
    let command = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
        command.env("WEIR_PORT", port.number().to_string()).env("WEIR_UNIX_SOCKET_DIRECTORIES", "").env("WEIR_PID_FILE_NAME", "");
        command.env("WEIR_BACKEND_HOSTNAME0", &backend.host).env("WEIR_BACKEND_PORT0", backend.port.to_string());
        command.env("WEIR_SR_CHECK_USER_FILE", &user).env("WEIR_METRICS_PORT", pages.number().to_string());
        command.stdin(Stdio::null()).stderr(Stdio::null());
        command
    };
    let ask = |question: &str| command().args(["probe", question, "--config-from-environment"]).output().unwrap();
    assert!(!ask("ready").status.success(), "nobody is there");
    let mut process = command().arg("--config-from-environment").spawn().unwrap();
    wait_until("it to be ready", || ask("ready").status.success());
    assert!(ask("alive").status.success());
    let mut client = Raw::try_tcp(port.number()).unwrap().log_in("postgres", &ground.database, &[]).unwrap();
    assert_eq!(client.value("PGPOOL SHOW sr_check_user"), "postgres");
    rustix::process::kill_process(Pid::from_child(&process), Signal::TERM).unwrap();
    wait_until("it to be ready no more", || !ask("ready").status.success());
    assert!(ask("alive").status.success(), "it serves its last client");
    drop(client);
    assert!(process.wait().unwrap().success());
}

#[test]
fn a_renewal_of_nobody_says_so() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy("");
    let renew = |more: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
        let output = command.args(["renew", "-f"]).arg(proxy.conf_path()).args(["-c", more]).output().unwrap();
        assert!(!output.status.success());
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    assert!(renew("takeover_socket=").contains("takeover_socket is not set"));
    assert!(renew("takeover_socket=/nowhere/way").contains("no running proxy answers at /nowhere/way"));
}

#[test]
fn a_smart_stop_refuses_new_connections_at_once_although_another_process_could_have_taken_over() {
    let ground = Ground::new();
    let (mut proxy, _folder) = relievable(&ground, "");
    let mut client = ground.client(&proxy);
    proxy.signal(Signal::TERM);
    // A connection that is let in and not answered would be one, too.
    wait_until("connections to be refused", || Raw::try_tcp(proxy.port()).is_none());
    assert_eq!(client.value("select 1"), "1", "who was there is served");
    client.send(&wire::terminate());
    drop(client);
    assert!(proxy.wait_end().success());
}

#[test]
fn a_takeover_from_a_process_that_is_stopped_says_so() {
    let ground = Ground::new();
    let (proxy, _folder) = relievable(&ground, "");
    proxy.signal(Signal::STOP);
    let mut taking = Command::new(env!("CARGO_BIN_EXE_weir"));
    let ended = taking.args(["--takeover", "-f"]).arg(proxy.conf_path()).output().unwrap();
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert!(!ended.status.success() && said.contains("the running proxy did not answer in 5 s: is it stopped?"), "{said}");
    proxy.signal(Signal::CONT);
    assert_eq!(ground.client(&proxy).value("select 1"), "1");
}

/// With io_uring the kernel closes the sockets of a killed process some milliseconds after its end.
#[test]
fn a_proxy_that_was_killed_starts_again_at_once() {
    let ground = Ground::new();
    let mut proxy = ground.primary_proxy("");
    for _ in 0..8 {
        let clients: Vec<Raw> = (0..8).map(|_| ground.client(&proxy)).collect();
        proxy.crash_and_start();
        wait_until("a client to be served", || {
            assert!(proxy.is_running(), "it did not start: {}", proxy.log());
            // A socket of the process that was killed may accept, too, and end the connection.
            Sql::connect_tcp("127.0.0.1", proxy.port(), "postgres", "postgres").is_ok()
        });
        drop(clients);
    }
}

/// Rings of io_uring count in the locked memory of a user, also those of a process that has just ended.
#[test]
fn where_locked_memory_does_for_some_rings_and_not_for_all_every_worker_serves_with_epoll() {
    let is_there = Command::new("prlimit").arg("--version").output().is_ok_and(|output| output.status.success());
    if !rustix::process::geteuid().is_root() || !is_there {
        return leave_out("the user's limit is set by root, with prlimit");
    }
    let ground = Ground::new();
    let (folder, port) = (Folder::new(), ReservedPort::any().unwrap());
    std::fs::set_permissions(&folder.0, std::fs::Permissions::from_mode(0o777)).unwrap();
    let backend = Backend::tcp(ground.cluster.primary().port(), 1);
    let conf = configuration(&folder.0, port.number(), &[backend], "worker_threads = 8\nio_method = auto");
    std::fs::write(folder.0.join("pgpool.conf"), conf).unwrap();
    let start = |limit: u32| {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "prlimit", &format!("--memlock={limit}")]);
        // A user of this test's own: rings of others would count, too.
        command.args(["setpriv", "--reuid", "64997", "--clear-groups"]).arg(program_for_others());
        command.arg("-f").arg(folder.0.join("pgpool.conf")).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().unwrap()
    };
    // Room for none, some, and more of the eight.
    for limit in [0, 400_000, 900_000] {
        let mut process = start(limit);
        let socket = folder.0.join(format!(".s.PGSQL.{}", port.number()));
        wait_until("the process to listen, or to end", || {
            UnixStream::connect(&socket).is_ok() || !matches!(process.try_wait(), Ok(None))
        });
        assert!(matches!(process.try_wait(), Ok(None)), "it ended with {limit} bytes of locked memory");
        let mut client = Raw::unix(&folder.0, port.number()).log_in("postgres", &ground.database, &[]).unwrap();
        assert_eq!(client.value("select 1"), "1");
        process.kill().unwrap();
        process.wait().unwrap();
    }
}
