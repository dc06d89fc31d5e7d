//! Weir as operators run it: the built program, a configuration file, signals.

use super::ground::LIMIT;
use super::{Raw, wait_until};
use rustix::process::{Pid, Signal};
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::PipeReader;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use weir_demo::{Cluster, ReservedPort, Server, signal_process};

/// Runs `weir pcp` on loopback as the user admin, with this file of passwords.
pub fn pcp(port: u16, passfile: &Path, arguments: &[&str]) -> Output {
    pcp_command(port, passfile, arguments).output().unwrap()
}

pub fn pcp_command(port: u16, passfile: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.arg("pcp").args(arguments).args(["-h", "127.0.0.1", "-U", "admin", "-w", "-p", &port.to_string()]);
    command.env("PCPPASSFILE", passfile).stdin(Stdio::null());
    command
}

/// The state of a socket that listens. Source: `TCP_LISTEN` in Linux' tcp_states.h.
const LISTEN: &str = "0A";

/// The program under test where any user can run it: itself, or a copy if a folder above it is closed, as that of a checkout in `/root`.
pub fn program_for_others() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| reachable(Path::new(env!("CARGO_BIN_EXE_weir"))))
}

fn reachable(program: &Path) -> PathBuf {
    let is_open = |folder: &Path| fs::metadata(folder).is_ok_and(|about| about.mode() & 0o001 != 0);
    if !rustix::process::geteuid().is_root() || program.ancestors().skip(1).all(is_open) {
        return program.to_owned();
    }
    // One place for each checkout, so that runs leave one copy and not many.
    let checkout = program.display().to_string().replace('/', "_");
    let place = std::env::temp_dir().join(format!("weir-program{checkout}"));
    fs::create_dir_all(&place).unwrap();
    let about = fs::symlink_metadata(&place).unwrap();
    assert!(
        about.is_dir() && about.uid() == 0,
        "{} belongs to another user, and root would run what lies in it",
        place.display()
    );
    fs::set_permissions(&place, fs::Permissions::from_mode(0o755)).unwrap();
    let (copy, half) = (place.join("weir"), place.join(format!("weir.{}", std::process::id())));
    fs::copy(program, &half).unwrap();
    fs::rename(half, &copy).unwrap();
    copy
}

/// Where one server is reached: a host or the folder of its socket, a port, a weight.
pub struct Backend {
    pub host: String,
    pub port: u16,
    pub weight: u32,
}

impl Backend {
    pub fn tcp(port: u16, weight: u32) -> Backend {
        Backend { host: "127.0.0.1".into(), port, weight }
    }

    pub fn unix(server: &Server, weight: u32) -> Backend {
        Backend { host: server.socket_dir().display().to_string(), port: server.port(), weight }
    }
}

/// A running proxy. Dropping it ends it; a test that fails prints its log first.
pub struct Proxy {
    process: Child,
    folder: Folder,
    port: ReservedPort,
    ended: Option<ExitStatus>,
}

impl Proxy {
    /// Before all servers of a cluster: reads on the standbys, each read on one chosen anew. `more`: lines of pgpool.conf.
    pub fn start(cluster: &Cluster, more: &str) -> Proxy {
        let servers: Vec<&Server> = cluster.servers().iter().collect();
        Proxy::before(&servers, more)
    }

    /// Before these servers, the first of which takes no reads if there are others.
    pub fn before(servers: &[&Server], more: &str) -> Proxy {
        let weight = |at: usize| u32::from(at > 0 || servers.len() == 1);
        let backends: Vec<Backend> =
            servers.iter().enumerate().map(|(at, server)| Backend::tcp(server.port(), weight(at))).collect();
        let proxy = Proxy::spawn(&backends, more);
        proxy.wait_for_nodes(backends.len());
        proxy
    }

    /// Before servers, with files of these names and texts beside the configuration, and these arguments.
    ///
    /// `FOLDER` in lines and arguments stands for the folder of all that.
    pub fn with_files(servers: &[&Server], more: &str, files: &[(&str, &str)], arguments: &[&str]) -> Proxy {
        let backends: Vec<Backend> = servers.iter().map(|server| Backend::tcp(server.port(), 1)).collect();
        let proxy = Proxy::spawn_with_files(&backends, more, files, arguments);
        proxy.wait_accepting();
        proxy.wait_for_nodes(backends.len());
        proxy
    }

    /// Before servers anywhere, with files and arguments, without waiting.
    pub fn spawn_with_files(backends: &[Backend], more: &str, files: &[(&str, &str)], arguments: &[&str]) -> Proxy {
        let folder = Folder::new();
        for (name, text) in files {
            write_private(&folder.0.join(name), text);
        }
        let shown = folder.0.display().to_string();
        let arguments: Vec<String> = arguments.iter().map(|argument| argument.replace("FOLDER", &shown)).collect();
        Proxy::spawn_in(folder, backends, &more.replace("FOLDER", &shown), &arguments)
    }

    /// Before servers anywhere; returns when clients can connect.
    pub fn spawn(backends: &[Backend], more: &str) -> Proxy {
        let proxy = Proxy::spawn_unready(backends, more);
        proxy.wait_accepting();
        proxy
    }

    /// Before servers anywhere, without waiting.
    pub fn spawn_unready(backends: &[Backend], more: &str) -> Proxy {
        Proxy::spawn_in(Folder::new(), backends, more, &[])
    }

    fn spawn_in(folder: Folder, backends: &[Backend], more: &str, arguments: &[String]) -> Proxy {
        let port = ReservedPort::any().unwrap();
        let file = folder.0.join("pgpool.conf").display().to_string();
        fs::write(&file, configuration(&folder.0, port.number(), backends, more)).unwrap();
        let arguments: Vec<&str> = ["-f", &file].into_iter().chain(arguments.iter().map(String::as_str)).collect();
        let process = spawn(&folder.0, env!("CARGO_BIN_EXE_weir"), &arguments, "log");
        Proxy { process, folder, port, ended: None }
    }

    /// Before servers anywhere, with its log in a pipe: for tests that read it as slowly as they like.
    pub fn spawn_to_pipe(backends: &[Backend], more: &str) -> (Proxy, PipeReader) {
        let (folder, port) = (Folder::new(), ReservedPort::any().unwrap());
        let file = folder.0.join("pgpool.conf").display().to_string();
        fs::write(&file, configuration(&folder.0, port.number(), backends, more)).unwrap();
        let (read, write) = std::io::pipe().unwrap();
        let process = spawn_into(&folder.0, env!("CARGO_BIN_EXE_weir"), &["-f", &file], write.into());
        let proxy = Proxy { process, folder, port, ended: None };
        proxy.wait_accepting();
        (proxy, read)
    }

    /// Writes a file beside the configuration, as `with_files` does.
    pub fn write_file(&self, name: &str, text: &str) {
        write_private(&self.folder.0.join(name), text);
    }

    pub fn port(&self) -> u16 {
        self.port.number()
    }

    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// The folder of its files and of its unix socket.
    pub fn folder(&self) -> &Path {
        &self.folder.0
    }

    pub fn conf_path(&self) -> PathBuf {
        self.folder.0.join("pgpool.conf")
    }

    /// Its configuration as it is in the file.
    pub fn conf(&self) -> String {
        fs::read_to_string(self.conf_path()).unwrap()
    }

    /// Appends lines to the configuration; later lines win. They count after a reload.
    pub fn add_conf(&self, lines: &str) {
        fs::write(self.conf_path(), format!("{}\n{lines}\n", self.conf())).unwrap();
    }

    /// Its log, with all that it has said by now.
    pub fn log(&self) -> String {
        wait_for_log_thread(self.process.id());
        fs::read(self.folder.0.join("log")).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
    }

    pub fn signal(&self, signal: Signal) {
        signal_process(Pid::from_child(&self.process), signal).unwrap();
    }

    /// Makes it read its configuration again, and waits until it has.
    pub fn reload(&self) {
        let said = || self.log().matches("reloaded").count();
        let before = said();
        self.signal(Signal::HUP);
        wait_until("the proxy to reload", || said() > before);
    }

    /// Starts another process with the same configuration that takes the listening sockets over, and returns the old one. `log`: the
    /// file of the new one's words.
    pub fn restart(&mut self, log: &str) -> Replaced {
        let conf = self.conf_path();
        let process = spawn(&self.folder.0, env!("CARGO_BIN_EXE_weir"), &["--takeover", "-f", &conf.to_string_lossy()], log);
        let old = Replaced(std::mem::replace(&mut self.process, process));
        wait_until("the new process to take over, or to end", || {
            fs::read_to_string(self.folder.0.join(log)).is_ok_and(|log| log.contains("taken over from"))
                || !matches!(self.process.try_wait(), Ok(None))
        });
        old
    }

    /// Kills it as a crash would, and starts it again with the same files.
    pub fn crash_and_start(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
        let conf = self.conf_path();
        self.process = spawn(&self.folder.0, env!("CARGO_BIN_EXE_weir"), &["-f", &conf.to_string_lossy()], "log");
        wait_until("the next process to have the port, or to end", || {
            self.has_port() || !matches!(self.process.try_wait(), Ok(None))
        });
    }

    /// True if the process listens at its port. A socket of one that was killed may accept clients a moment longer, and reset their connections.
    fn has_port(&self) -> bool {
        let sockets: Vec<PathBuf> = fs::read_dir(format!("/proc/{}/fd", self.pid()))
            .map(|all| all.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok()).collect())
            .unwrap_or_default();
        let table = ["tcp", "tcp6"].map(|kind| fs::read_to_string(format!("/proc/net/{kind}")).unwrap_or_default()).concat();
        table.lines().any(|line| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let [_, local, _, LISTEN, _, _, _, _, _, inode, ..] = fields[..] else { return false };
            local.ends_with(&format!(":{:04X}", self.port())) && sockets.contains(&PathBuf::from(format!("socket:[{inode}]")))
        })
    }

    /// Resident memory now.
    pub fn rss_kb(&self) -> u64 {
        self.memory_kb("VmRSS:")
    }

    /// The most memory that was ever resident.
    pub fn peak_kb(&self) -> u64 {
        self.memory_kb("VmHWM:")
    }

    fn memory_kb(&self, name: &str) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid())).expect("the proxy runs");
        let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("a process has resident memory");
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }

    /// Waits for its end.
    pub fn wait_end(&mut self) -> ExitStatus {
        let mut status = None;
        wait_until("the proxy to end", || {
            status = self.process.try_wait().unwrap();
            status.is_some()
        });
        self.ended = status;
        status.unwrap()
    }

    pub fn is_running(&mut self) -> bool {
        self.ended.is_none() && matches!(self.process.try_wait(), Ok(None))
    }

    /// A client for questions to the proxy itself.
    pub fn console(&self) -> Raw {
        let client = Raw::tcp(self.port()).log_in("postgres", "postgres", &[]);
        client.unwrap_or_else(|failure| panic!("cannot log in: {failure:?}\n{}", self.log()))
    }

    /// One column of `SHOW pool_nodes`.
    pub fn nodes(&self, column: &str) -> Vec<String> {
        show(&mut self.console(), "pool_nodes", column)
    }

    pub fn wait_for_nodes(&self, count: usize) {
        let mut console = None;
        // With a small limit on clients, the connection that only tried the door may still take a place.
        wait_until("the proxy to let us in", || {
            console = Raw::tcp(self.port()).log_in("postgres", "postgres", &[]).ok();
            console.is_some()
        });
        let mut console = console.unwrap();
        wait_until("all nodes to be up, one of them primary", || {
            let up = show(&mut console, "pool_nodes", "status").iter().filter(|status| *status == "up").count();
            let roles = show(&mut console, "pool_nodes", "role");
            up == count && roles.iter().filter(|role| *role == "primary").count() == 1
        });
    }

    /// A counter of `SHOW pool_metrics`.
    pub fn metric(&self, name: &str) -> u64 {
        let rows = self.console().rows("SHOW pool_metrics");
        let row = rows.iter().find(|row| row[0] == name).unwrap_or_else(|| panic!("no metric {name} in {rows:?}"));
        row[1].parse().unwrap()
    }

    /// Waits until clients can connect.
    pub fn wait_accepting(&self) {
        let accepts = weir_demo::wait_until("the proxy to accept", LIMIT, || {
            let log = self.log();
            anyhow::ensure!(!log.contains("not started:"), "the proxy did not start:\n{log}");
            Ok(self.has_port() && std::net::TcpStream::connect(("127.0.0.1", self.port())).is_ok())
        });
        accepts.unwrap_or_else(|error| panic!("{error:#}\n{}", self.log()));
    }
}

/// A proxy another one has taken over from.
pub struct Replaced(Child);

impl Replaced {
    pub fn is_running(&mut self) -> bool {
        matches!(self.0.try_wait(), Ok(None))
    }

    pub fn wait_end(&mut self) -> ExitStatus {
        wait_until("the old proxy to end", || !self.is_running());
        self.0.wait().unwrap()
    }
}

impl Drop for Replaced {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        // It may have ended already; then there is nothing to kill.
        let _ = self.process.kill();
        let _ = self.process.wait();
        check_last_words(self.port(), &self.log());
    }
}

/// Shows the log of a proxy that has ended, if its test fails. Panics if the proxy did.
pub fn check_last_words(port: u16, log: &str) {
    let has_panicked = log.contains("panicked at");
    if std::thread::panicking() || has_panicked {
        eprintln!("--- log of the proxy on port {port}:\n{log}---");
    }
    assert!(std::thread::panicking() || !has_panicked, "the proxy panicked");
}

/// Waits until the thread of a process that writes its log has nothing to do. A line's thread is made ready to run before the one that
/// said the line goes on; so whoever saw an answer finds all lines of before written.
pub fn wait_for_log_thread(pid: u32) {
    wait_until("the log to be written", || {
        let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        let stats = tasks.filter_map(|task| fs::read_to_string(task.path().join("stat")).ok());
        // Before its first turn a thread has the process's name.
        let is_new = |stat: &str| !stat.starts_with(&format!("{pid} ")) && stat.contains(" (weir) R ");
        !stats.into_iter().any(|stat| stat.contains(" (log) R ") || stat.contains(" (log) D ") || is_new(&stat))
    });
}

/// Writes a file that only its owner may read.
fn write_private(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
}

/// One column of a SHOW command.
pub fn show(client: &mut Raw, view: &str, column: &str) -> Vec<String> {
    let messages = client.query(&format!("SHOW {view}"));
    let head = messages.iter().find(|message| message.tag == b'T').unwrap_or_else(|| panic!("no columns: {messages:?}"));
    let at = column_names(&head.body).iter().position(|name| name == column);
    let at = at.unwrap_or_else(|| panic!("SHOW {view} has no column {column}"));
    messages.iter().filter(|m| m.tag == b'D').map(|row| row.row()[at].clone().unwrap_or_default()).collect()
}

/// Names of the columns in a RowDescription: each is followed by 18 bytes of numbers.
pub fn column_names(body: &[u8]) -> Vec<String> {
    let mut rest = &body[2..];
    let mut names = Vec::new();
    while let Some(end) = rest.iter().position(|byte| *byte == 0) {
        names.push(String::from_utf8_lossy(&rest[..end]).into_owned());
        rest = &rest[end + 1 + 18..];
    }
    names
}

/// The file that stands for /etc/hosts; see `spawn`.
pub const HOSTS: &str = "etc_hosts";

/// True if a program may have an /etc/hosts of its own here.
pub fn has_own_hosts() -> bool {
    let asked = Command::new("unshare").args(["--mount", "mount", "--bind", "/etc/hosts", "/etc/hosts"]).output();
    asked.is_ok_and(|asked| asked.status.success())
}

/// Starts a program whose output goes to the file `log`. `setpriv` ends it with this program, should a test be killed.
fn spawn(folder: &Path, program: &str, arguments: &[&str], log: &str) -> Child {
    let log = File::options().create(true).append(true).open(folder.join(log)).unwrap();
    spawn_into(folder, program, arguments, log.into())
}

fn spawn_into(folder: &Path, program: &str, arguments: &[&str], log: OwnedFd) -> Child {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL"]);
    // A file of that name is /etc/hosts for this program alone, which asks nobody else for names.
    if folder.join(HOSTS).exists() {
        fs::write(folder.join("nsswitch"), "hosts: files\n").unwrap();
        let words = "mount --bind \"$0/etc_hosts\" /etc/hosts && mount --bind \"$0/nsswitch\" /etc/nsswitch.conf && exec \"$@\"";
        command.args(["unshare", "--mount", "sh", "-c", words]).arg(folder);
    }
    command.arg(program).args(arguments);
    command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
    // A file of that name beside the configuration sets the program's environment.
    let environment = fs::read_to_string(folder.join("env")).unwrap_or_default();
    let environment = environment.replace("FOLDER", &folder.display().to_string());
    command.envs(environment.lines().filter_map(|line| line.split_once('=')));
    command.spawn().unwrap_or_else(|e| panic!("cannot start {program}: {e}"))
}

/// The line that chooses the system calls of the proxy under test, if `WEIR_TEST_IO` says so.
pub fn io_method() -> String {
    std::env::var("WEIR_TEST_IO").map_or_else(|_| String::new(), |method| format!("io_method = {method}\n"))
}

/// The configuration file of a proxy under test.
pub fn configuration(folder: &Path, port: u16, backends: &[Backend], more: &str) -> String {
    let folder = folder.display();
    let mut text = format!(
        "listen_addresses = '127.0.0.1'\nport = {port}\nunix_socket_directories = '{folder}'\n\
         pid_file_name = '{folder}/weir.pid'\nwork_dir = '{folder}'\nsr_check_user = 'postgres'\nsr_check_period = 1\nworker_threads = 2\n\
         statement_level_load_balance = on\npool_wait_timeout = 20\ncausal_wait = 10s\nlog_min_messages = debug1\n{}",
        io_method()
    );
    for (at, backend) in backends.iter().enumerate() {
        let Backend { host, port, weight } = backend;
        let _ = write!(text, "backend_hostname{at} = '{host}'\nbackend_port{at} = {port}\nbackend_weight{at} = {weight}\n");
    }
    text + more + "\n"
}

/// A temporary folder, removed at the end. Its name is short: it holds a unix socket.
pub struct Folder(pub PathBuf);

impl Folder {
    pub fn new() -> Folder {
        super::panics::are_told_at_once();
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("weir-e2e-{}-{number}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
