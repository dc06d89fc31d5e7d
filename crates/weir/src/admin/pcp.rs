//! PCP: Pgpool-II's administration, over TCP and unix sockets, if there is a `pcp.conf`, which is read at each login.
//!
//! Time, size and number of connections are bounded against slow clients. `answers` reads, `actions` changes.

mod actions;
mod answers;
mod pcp_connection;
mod pcp_login;
mod watchdog_json;

use crate::admin::pcp::pcp_connection::{PcpConnection, PcpConnectionEnd};
use crate::admin::pcp::pcp_login::PcpLogin;
use crate::auth::guesses::ProofOrigin;
use crate::control::control_context::{ControlContext, WakeSubject};
use crate::log::{Level, ProxyLog};
use crate::runtime::inherit::InheritedSockets;
use crate::runtime::listeners::{self, AcceptFailure, CreatedUnixSockets, ListeningSocket, PortSharing, SocketRights};
use crate::runtime::operator_files::OperatorFiles;
use crate::runtime::places::ListenPort;
use crate::runtime::shared::ProxyShutdown;
use anyhow::Context;
use parking_lot::Mutex;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::time::Instant;
use weir_config::{Config, ConfigProblem, PcpUsers};
use weir_session::metrics::WorkerCounter;
use weir_wire::pcp_protocol::{PcpReply, PcpReport, PcpRequest, PcpSeverity};

/// For each listening socket: a full TCP port does not shut out the unix socket.
const CONNECTIONS_MAX: usize = 32;
const LOGIN_LIMIT: Duration = Duration::from_secs(10);
/// Time for the next request, and the pause before it.
const REQUEST_LIMIT: Duration = Duration::from_secs(60);
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
const BACKLOG: i32 = 128;
/// Open to all users, as with Pgpool-II: each must log in.
const SOCKET_MODE: u32 = 0o777;

#[derive(Default)]
pub struct PcpService {
    pub(crate) doors: Vec<ListeningSocket>,
    book: Arc<PcpUserFile>,
}

/// Users, and the file's problems as last logged.
#[derive(Default)]
pub struct PcpUserFile {
    files: OperatorFiles,
    told: Mutex<Vec<ConfigProblem>>,
}

impl PcpUserFile {
    /// Reads the users; logs problems that are new. Blocks.
    fn read(&self, log: &ProxyLog) -> PcpUsers {
        let (users, problems) = self.files.read_pcp();
        let mut told = self.told.lock();
        if *told != problems {
            problems.iter().for_each(|problem| log.say(Level::Warning, format_args!("{}", problem.place_and_message())));
            *told = problems;
        }
        users.unwrap_or_default()
    }
}

/// Problems of `pcp.conf` are warnings, since it can be repaired while Weir runs.
pub fn open(
    files: &OperatorFiles,
    config: &Config,
    inherited: &mut InheritedSockets,
    made: &mut CreatedUnixSockets,
    warnings: &mut Vec<String>,
) -> anyhow::Result<PcpService> {
    let (users, problems) = files.read_pcp();
    warnings.extend(problems.iter().map(ConfigProblem::place_and_message));
    if users.is_none() {
        return Ok(PcpService::default());
    }
    let pcp = &config.pcp;
    let tcp = listeners::open_all(ListenPort::of_pcp(config), BACKLOG, PortSharing::Nobody, inherited)?;
    let mut doors: Vec<ListeningSocket> = tcp.into_iter().map(ListeningSocket::Tcp).collect();
    let rights = SocketRights { mode: SOCKET_MODE, group: "" };
    let directories = &pcp.socket_directories;
    let is_first = |(at, directory): &(usize, &std::path::PathBuf)| !directories[..*at].contains(directory);
    for (_, folder) in directories.iter().enumerate().filter(is_first) {
        let door = listeners::open_socket(folder, pcp.port, BACKLOG, rights, inherited, made);
        doors.push(door.context("pcp_socket_dir, pcp_port")?);
    }
    Ok(PcpService { doors, book: Arc::new(PcpUserFile { files: files.clone(), told: Mutex::new(problems) }) })
}

pub enum PcpListener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

enum PcpPeer {
    Tcp(TcpStream, std::net::IpAddr),
    Unix(UnixStream),
}

impl PcpService {
    pub fn listeners(self) -> (Vec<io::Result<Rc<PcpListener>>>, Arc<PcpUserFile>) {
        let listener = |door: ListeningSocket| {
            Ok(Rc::new(match door {
                ListeningSocket::Tcp(socket) => {
                    socket.set_nonblocking(true)?;
                    PcpListener::Tcp(TcpListener::from_std(socket)?)
                }
                ListeningSocket::Unix(socket, _) => {
                    socket.set_nonblocking(true)?;
                    PcpListener::Unix(UnixListener::from_std(socket)?)
                }
            }))
        };
        (self.doors.into_iter().map(listener).collect(), self.book)
    }
}

impl PcpListener {
    /// Cancel safe.
    async fn accept(&self) -> io::Result<PcpPeer> {
        Ok(match self {
            PcpListener::Tcp(listener) => {
                let (stream, peer) = listener.accept().await?;
                PcpPeer::Tcp(stream, peer.ip())
            }
            PcpListener::Unix(listener) => PcpPeer::Unix(listener.accept().await?.0),
        })
    }
}

/// Serves until the proxy has stopped or is handed over. Not cancel safe: a client being accepted is lost.
pub async fn serve(c: Rc<ControlContext>, listener: Rc<PcpListener>, book: Arc<PcpUserFile>) {
    let (bell, open, mut shortage) = (c.bell(WakeSubject::Doors), Rc::new(()), AcceptFailure::default());
    // Also while the proxy stops: a slow stop can become a fast one.
    while c.shared.stop_mode() <= ProxyShutdown::Fast && !c.shared.is_handed_over() {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = bell.rung() => continue,
        };
        match accepted {
            // One reference is local, one for each connection.
            Ok(caller) if Rc::strong_count(&open) <= CONNECTIONS_MAX => {
                shortage.end(&c.shared, "connections of PCP");
                let (own, counted, book) = (c.clone(), open.clone(), book.clone());
                tokio::task::spawn_local(async move {
                    let _counted = counted;
                    receive(&own, caller, book).await;
                });
            }
            Ok(_) => c.shared.log.say(Level::Log, format_args!("PCP: more than {CONNECTIONS_MAX} connections, one is closed")),
            Err(cause) if cause.kind() == io::ErrorKind::ConnectionAborted => {}
            Err(cause) => {
                shortage.note(&c.shared, "connections of PCP", &cause);
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Cancel safe: the connection is closed.
async fn receive(c: &Rc<ControlContext>, caller: PcpPeer, book: Arc<PcpUserFile>) {
    match caller {
        PcpPeer::Tcp(stream, peer) => {
            let visit = PcpLogin::new(book, ProofOrigin::Address(peer));
            converse(c, PcpConnection::new(stream), visit).await;
        }
        PcpPeer::Unix(stream) => {
            let uid = stream.peer_cred().ok().map(|peer| peer.uid());
            converse(c, PcpConnection::new(stream), PcpLogin::new(book, ProofOrigin::Local(uid))).await;
        }
    }
}

/// Cancel safe: the connection is closed.
async fn converse<S: pcp_connection::AsyncByteStream>(c: &Rc<ControlContext>, mut line: PcpConnection<S>, mut visit: PcpLogin) {
    log(c, &visit, "connected");
    let mut limit = Instant::now() + LOGIN_LIMIT;
    loop {
        let heard = line.next(limit).await.and_then(|packet| packet.map_err(PcpConnectionEnd::Malformed));
        let request = match heard {
            Ok(request) => request,
            Err(PcpConnectionEnd::Malformed(error)) if !error.is_fatal() && visit.is_known() => {
                let refusal = PcpReport::new(PcpSeverity::Error, "invalid PCP request").detail(error.to_string());
                if line.say(&[PcpReply::Error(refusal)]).await.is_err() {
                    break;
                }
                continue;
            }
            Err(cause) => {
                part(&mut line, cause).await;
                break;
            }
        };
        if request == PcpRequest::End {
            break;
        }
        let answer = match visit.admit(c, &request).await {
            pcp_login::PcpAdmission::Known if request == PcpRequest::UpgradeWalk => {
                let Some(answer) = perform_attended(c, &mut line, &visit, &request).await else { break };
                answer
            }
            pcp_login::PcpAdmission::Known => perform(c, &visit, &request).await,
            pcp_login::PcpAdmission::Said(reply) => PcpAnswer::Replies(vec![reply]),
            pcp_login::PcpAdmission::Refused(fault) => PcpAnswer::Last(fault),
        };
        match answer {
            PcpAnswer::Replies(replies) if line.say(&replies).await.is_ok() => {}
            PcpAnswer::Replies(_) => break,
            PcpAnswer::Last(fault) => {
                let _ = line.say(&[PcpReply::Error(fault)]).await;
                break;
            }
            PcpAnswer::Stop(replies, mode) => {
                let _ = line.say(&replies).await;
                c.shared.begin_stop(mode);
            }
        }
        limit = if visit.is_known() { Instant::now() + REQUEST_LIMIT } else { limit };
    }
    line.close().await;
    log(c, &visit, "disconnected");
}

/// Cancel safe.
async fn part<S: pcp_connection::AsyncByteStream>(line: &mut PcpConnection<S>, cause: PcpConnectionEnd) {
    let fault = match cause {
        PcpConnectionEnd::Malformed(error) => PcpReport::new(PcpSeverity::Fatal, "invalid PCP packet").detail(error.to_string()),
        PcpConnectionEnd::Late => PcpReport::new(PcpSeverity::Fatal, "no PCP request came in time"),
        PcpConnectionEnd::Gone => return,
    };
    let _ = line.say(&[PcpReply::Error(fault)]).await;
}

enum PcpAnswer {
    Replies(Vec<PcpReply>),
    /// The connection closes after it.
    Last(PcpReport),
    /// The proxy stops after it.
    Stop(Vec<PcpReply>, ProxyShutdown),
}

/// Cancel safe, but a begun change goes on.
async fn perform(c: &Rc<ControlContext>, visit: &PcpLogin, request: &PcpRequest) -> PcpAnswer {
    c.count(WorkerCounter::PcpRequests);
    if let Some(looking) = answers::of(c, request).await {
        log(c, visit, &request.to_string());
        return PcpAnswer::Replies(looking.unwrap_or_else(|fault| vec![PcpReply::Error(fault)]));
    }
    let who = visit.describe();
    let outcome = actions::perform(c, request).await;
    match &outcome {
        Ok(_) => c.shared.log.say(Level::Log, format_args!("PCP: {request} by {who}: done")),
        Err(fault) => {
            let PcpReport { message, detail, .. } = fault;
            c.shared.log.say(Level::Log, format_args!("PCP: {request} by {who}: {message}: {detail}"));
        }
    }
    match outcome {
        Ok(actions::ActionResult::Replies(replies)) => PcpAnswer::Replies(replies),
        Ok(actions::ActionResult::Stop(replies, mode)) => PcpAnswer::Stop(replies, mode),
        Err(fault) => PcpAnswer::Replies(vec![PcpReply::Error(fault)]),
    }
}

/// Performs while the client is there; `None`: it went away. Cancel safe as `perform`.
async fn perform_attended<S: pcp_connection::AsyncByteStream>(
    c: &Rc<ControlContext>,
    line: &mut PcpConnection<S>,
    visit: &PcpLogin,
    request: &PcpRequest,
) -> Option<PcpAnswer> {
    tokio::select! {
        answer = perform(c, visit, request) => Some(answer),
        () = line.gone() => {
            let who = visit.describe();
            c.shared.log.say(Level::Log, format_args!("PCP: {request} by {who}: the client went away, what is under way is the last of it"));
            None
        }
    }
}

/// For `log_pcp_processes`.
fn log(c: &ControlContext, visit: &PcpLogin, text: &str) {
    if c.shared.config.load().pcp.logs_connections {
        c.shared.log.say(Level::Log, format_args!("PCP: {}: {text}", visit.describe()));
    }
}
