//! An agent beside a server of a test, and a client of it.

use crate::support::ground::{LIMIT, Owned, cluster_with};
use crate::support::proxy::{program_for_others, wait_for_log_thread};
use crate::support::{has_programs, wait_until};
use std::fs::{self, File};
use std::net::TcpStream;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use weir::runtime::agent_line::{SealedStream, SealedStreamError};
use weir_agent::{
    AgentAnswer, AgentOrder, AgentRequest, AgentSecret, AgentStatus, BackupCheckpoint, BaseBackup, ConninfoKeyword, DatabaseName,
    Host, LogKeeper, OrderAction, OrderId, Outcome, RewindAction, ServerStopMode, SourceServer, StandbyUpstream, UserName,
    WordValue, read_answer, write_request,
};
use weir_demo::{Options, ReservedPort, Server};

/// The secret of agents and their clients.
pub const SECRET: &str = "0123456789-of-the-tests";
/// A password in the environment of agents, which nobody may be told.
pub const STRAY: &str = "stray-password-of-the-environment";
/// Limit of every order.
const LIMIT_MS: u32 = 60_000;

/// Servers whose settings allow everything that agents do. `None`: this machine lacks a program, and the test is left out.
pub fn servers(standbys: usize) -> Option<Owned> {
    servers_that_keep(standbys, "256MB")
}

/// With so much log kept for those who come later (`wal_keep_size`).
pub fn servers_that_keep(standbys: usize, log: &str) -> Option<Owned> {
    let conf = [("full_page_writes", "on"), ("wal_keep_size", log)];
    let extra_conf = conf.map(|(name, value)| (name.to_string(), value.to_string())).to_vec();
    let cluster = cluster_with(Options { standbys, extra_conf, ..Options::default() });
    if !has_programs(cluster.primary(), &["pg_rewind", "pg_basebackup", "psql"]) {
        return None;
    }
    cluster.primary().query("create table written (number int8)").unwrap();
    cluster.wait_caught_up().unwrap();
    Some(cluster)
}

pub fn bin(server: &Server) -> &Path {
    server.programs().bin()
}

/// A folder of a server's user; it goes when it is dropped.
pub struct Folder {
    path: PathBuf,
    user: (u32, u32),
}

impl Folder {
    pub fn of(server: &Server) -> Folder {
        Folder::owned_as(server.data_dir())
    }

    /// Of the user who owns this path.
    pub fn owned_as(path_of_user: &Path) -> Folder {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("weir-agent-{}-{number}", std::process::id()));
        fs::create_dir(&path).unwrap();
        let owner = fs::metadata(path_of_user).unwrap();
        let folder = Folder { path, user: (owner.uid(), owner.gid()) };
        folder.give(&folder.path);
        folder
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Writes a file that only the user may read.
    pub fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        self.give(&path);
    }

    fn give(&self, path: &Path) {
        chown(path, Some(self.user.0), Some(self.user.1)).unwrap();
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// An agent, and how it is begun again.
pub struct Agent {
    process: Child,
    pub port: ReservedPort,
    /// Its secret and its log.
    folder: Folder,
    data: PathBuf,
    bin: PathBuf,
    more: Vec<String>,
}

impl Agent {
    pub fn beside(server: &Server) -> Agent {
        Agent::with(server, &[], &[])
    }

    /// With files of these names and texts, and more arguments, in which `FOLDER` stands for where the files are.
    pub fn with(server: &Server, files: &[(&str, &str)], more: &[&str]) -> Agent {
        Agent::at(server.data_dir(), bin(server), files, more)
    }

    /// As `with`, at a data directory.
    pub fn at(data: &Path, bin: &Path, files: &[(&str, &str)], more: &[&str]) -> Agent {
        let folder = Folder::owned_as(data);
        folder.write("secret", &format!("{SECRET}\n"));
        files.iter().for_each(|(name, text)| folder.write(name, text));
        let port = ReservedPort::any().unwrap();
        let (data, bin) = (data.to_path_buf(), bin.to_path_buf());
        let more: Vec<String> = more.iter().map(|text| text.replace("FOLDER", &folder.path.display().to_string())).collect();
        let process = spawn(&data, &bin, &folder.path, port.number(), &more);
        let agent = Agent { process, port, folder, data, bin, more };
        agent.wait_listening();
        agent
    }

    fn wait_listening(&self) {
        wait_until("the agent to listen", || TcpStream::connect(("127.0.0.1", self.port.number())).is_ok());
    }

    /// Kills it as a crash would, and begins it again.
    pub fn crash_and_start(&mut self) {
        self.kill();
        self.process = spawn(&self.data, &self.bin, &self.folder.path, self.port.number(), &self.more);
        self.wait_listening();
    }

    pub fn kill(&mut self) {
        let _ = self.process.kill();
        self.process.wait().unwrap();
        wait_until("the port to be free", || std::net::TcpListener::bind(("127.0.0.1", self.port.number())).is_ok());
    }

    pub fn is_running(&mut self) -> bool {
        matches!(self.process.try_wait(), Ok(None))
    }

    pub fn log(&self) -> String {
        wait_for_log_thread(self.process.id());
        fs::read_to_string(self.folder.path("log")).unwrap_or_default()
    }

    pub fn folder(&self) -> &Path {
        &self.folder.path
    }

    /// A file in its own folder beside the data.
    pub fn work(&self, name: &str) -> PathBuf {
        let mut folder = self.data.clone().into_os_string();
        folder.push(".weir");
        Path::new(&folder).join(name)
    }

    /// Asks over a connection of its own. An error: it went away.
    pub fn try_ask(&self, request: &AgentRequest) -> Result<AgentAnswer, SealedStreamError> {
        block_on(async {
            let mut line = self.line(SECRET).await?;
            let mut body = Vec::new();
            write_request(&mut body, request);
            line.send(&body).await?;
            loop {
                match read_answer(&line.next().await?)? {
                    AgentAnswer::Progress(_) => {}
                    answer => return Ok(answer),
                }
            }
        })
    }

    pub async fn line(&self, secret: &str) -> Result<SealedStream<tokio::net::TcpStream>, SealedStreamError> {
        let stream = tokio::net::TcpStream::connect(("127.0.0.1", self.port.number())).await?;
        SealedStream::to_agent(stream, &AgentSecret::read(secret, None).unwrap()).await
    }

    pub fn status(&self) -> AgentStatus {
        match self.try_ask(&AgentRequest::Status) {
            Ok(AgentAnswer::Status(status)) => *status,
            other => panic!("no status: {other:?}\n{}", self.log()),
        }
    }

    /// Gives a new order, and waits for its outcome.
    pub fn order(&self, deed: OrderAction) -> Outcome {
        self.order_again(next_id(), deed)
    }

    pub fn order_again(&self, id: OrderId, deed: OrderAction) -> Outcome {
        match self.try_ask(&AgentRequest::Order(AgentOrder { id, deed })) {
            Ok(AgentAnswer::Done) => Ok(()),
            Ok(AgentAnswer::Failed(failure)) => Err(failure),
            other => panic!("no outcome: {other:?}\n{}", self.log()),
        }
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let log = self.log();
        if std::thread::panicking() || log.contains("panicked at") {
            eprintln!("--- log of the agent on port {}:\n{log}---", self.port.number());
        }
        assert!(std::thread::panicking() || !log.contains("panicked at"), "the agent panicked");
    }
}

/// Starts an agent as the owner of the data. `setpriv` ends it with this program, should a test be killed.
fn spawn(data: &Path, bin: &Path, folder: &Path, port: u16, more: &[String]) -> Child {
    let owner = fs::metadata(data.parent().unwrap()).unwrap();
    let log = File::options().create(true).append(true).open(folder.join("log")).unwrap();
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL"]).arg(program_for_others()).args(["agent", "-D"]).arg(data).arg("--bin-dir").arg(bin);
    command.args(["--listen", &format!("127.0.0.1:{port}"), "--secret-file"]).arg(folder.join("secret")).args(more);
    // An operator's own login in the environment is none of an agent's business.
    command.env("PGPASSWORD", STRAY).env("PGUSER", "nobody").env("PGSSLMODE", "bogus");
    command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
    if rustix::process::geteuid().is_root() {
        command.uid(owner.uid()).gid(owner.gid()).env("HOME", "/nonexistent");
    }
    command.spawn().unwrap()
}

pub fn next_id() -> OrderId {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    OrderId(NEXT.fetch_add(1, Ordering::Relaxed))
}

pub fn block_on<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(LIMIT, work).await.expect("an answer within the limit") })
}

pub fn fast() -> OrderAction {
    OrderAction::Stop { mode: ServerStopMode::Fast, limit_ms: LIMIT_MS, started_at: None }
}

pub fn start() -> OrderAction {
    OrderAction::Start { limit_ms: LIMIT_MS }
}

fn source(port: u16) -> SourceServer {
    SourceServer {
        host: Host::new("127.0.0.1").unwrap(),
        port,
        user: UserName::new("postgres").unwrap(),
        dbname: DatabaseName::new("postgres").unwrap(),
    }
}

pub fn rewind(from: &Server) -> OrderAction {
    rewind_to(from.port())
}

pub fn rewind_to(port: u16) -> OrderAction {
    OrderAction::Rewind(RewindAction { source: source(port), limit_ms: LIMIT_MS })
}

pub fn base_backup(from: &Server) -> OrderAction {
    copy_of(from.port())
}

pub fn copy_of(port: u16) -> OrderAction {
    let (log_keeper, checkpoint) = (LogKeeper::Copy, BackupCheckpoint::Fast);
    OrderAction::BaseBackup(BaseBackup { source: source(port), log_keeper, checkpoint, limit_ms: LIMIT_MS })
}

pub fn follow(of: &Server, primary: &Server) -> OrderAction {
    follow_as(of.name(), primary.port())
}

pub fn follow_as(name: &str, port: u16) -> OrderAction {
    let SourceServer { host, port, user, .. } = source(port);
    let name = (ConninfoKeyword::APPLICATION_NAME, WordValue::new(name).unwrap());
    OrderAction::Follow(StandbyUpstream { host, port, user, slot: None, words: vec![name] })
}

/// Waits until a server streams from the primary, under its name.
pub fn wait_streams(of: &Server, primary: &Server) {
    let text =
        format!("select count(*) from pg_stat_replication where state = 'streaming' and application_name = '{}'", of.name());
    wait_until("the server to stream", || primary.value(&text).is_ok_and(|count| count == "1"));
}
