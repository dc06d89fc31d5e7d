//! One server connection: opened, logged in, brought to a session's settings, reset, cancelled.

pub mod inquiry;

use crate::client::flow::Kept;
use crate::monitor::fault::{Fault, sqlstate};
use crate::process::shared::WorkerId;
use crate::process::worker::Worker;
use crate::server::pool::login::{self, Greeting, Notices, keep_notice, protocol, refused};
use crate::server::pool::{Pool, Purpose};
use parking_lot::Mutex;
use std::cell::Cell;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};
use weir_config::passwd::Secret;
use weir_config::{Config, SslMode, TcpConfig};
use weir_io::socket::{Breaker, Socket, TcpOptions};
use weir_io::tls::explain;
use weir_policy::by_sql::BySql;
use weir_policy::cluster::{ClusterView, Gate};
use weir_policy::failover::LinkEnd;
use weir_policy::pool::Refused;
use weir_policy::prepared::{Known, Shape, StatementId};
use weir_policy::sequences::Tally;
use weir_policy::settings::Settings;
use weir_policy::settings::{ENCODING, ESCAPES_UNLESS};
use weir_policy::tls::{Attempt, Check, plan};
use weir_wire::back as server;
use weir_wire::frame::{HEADER_BYTES, back, read_header};
use weir_wire::startup::Version;
use weir_wire::write;

/// Time for which other sessions take a server connection last after a session has drawn on it: who asks for what he drew mostly does so at once.
const FRESH_DRAWS: Duration = Duration::from_secs(1);

/// Time for what a server connection says between sessions (reset), after which it is closed instead.
const RESET_TIMEOUT: Duration = Duration::from_secs(10);

/// Longest message read outside of a session's relay: login, reset, probes.
pub const MESSAGE_BYTES_MAX: usize = 1 << 20;

/// What a server is called and where it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    pub node: u16,
    pub hostname: String,
    pub port: u16,
    pub connect_timeout_ms: u64,
    pub ssl_mode: SslMode,
}

impl Address {
    /// Where a node of the view is, by its place.
    pub fn of(view: &ClusterView, config: &Config, at: usize) -> Option<Address> {
        let node = view.nodes.get(at)?;
        let known = config.nodes.iter().find(|known| known.id == node.id);
        Some(Address {
            node: node.id,
            hostname: node.hostname.clone(),
            port: node.port,
            connect_timeout_ms: known.map_or(10_000, |known| known.connect_timeout_ms),
            ssl_mode: known.map_or(SslMode::Auto, |known| known.ssl_mode),
        })
    }
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "node {} ({}:{})", self.node, self.hostname, self.port)
    }
}

/// A server connection as others see it.
#[derive(Debug)]
pub struct ConnStatus {
    pub serial: u64,
    pub address: Address,
    pub pid: u32,
    /// Key for CancelRequest.
    pub key: Box<[u8]>,
    pub opened_at: SystemTime,
    /// The generation of the cluster's view under which it was opened.
    pub generation: u64,
    /// The session that uses it; 0: at rest.
    pub session: AtomicU32,
    /// Sessions that used it.
    pub uses: AtomicU64,
    pub kept: AtomicU8,
    /// Must be closed after this use: a cancel request may still be on its way to it.
    pub doomed: AtomicBool,
    /// Begin of the last statement, in milliseconds since the start of the proxy.
    pub used_ms: AtomicU64,
    /// Statements prepared on it.
    pub prepared: AtomicU32,
    pub version: Box<str>,
    pub protocol: Version,
    /// The connection uses TLS.
    pub is_encrypted: bool,
    /// Its node was given up, so that the connection was broken by us.
    pub given_up: AtomicBool,
    breaker: Breaker,
}

impl ConnStatus {
    /// Breaks the connection, whoever has the server connection: its node is not waited for any longer.
    pub fn give_up(&self) {
        self.given_up.store(true, Ordering::Relaxed);
        self.breaker.shut();
    }
}

/// One server connection.
pub struct ServerConn {
    pub socket: Socket,
    /// The worker in whose event loop it is.
    pub home: WorkerId,
    pub card: Arc<ConnStatus>,
    pub pool: Arc<Pool>,
    pub known: Known,
    /// The statement under no name, if we know which, and what the server says of it.
    pub unnamed: Option<(StatementId, Shape)>,
    /// The settings it was brought to.
    pub settings: Arc<Settings>,
    /// The statements prepared by SQL that are on it.
    pub by_sql: Arc<BySql>,
    /// Statements that may draw from sequences.
    pub draws: Tally,
    /// Parameters the server reported, in their last state.
    pub reported: Vec<(String, String)>,
    /// What it said when it was opened, and behind the last query of ours.
    pub notices: Notices,
    /// Sessions begin on it with `standard_conforming_strings` off.
    pub begins_with_escapes: bool,
    /// Sessions begin on it in another encoding than UTF-8.
    pub begins_recoded: bool,
    /// By what was reported last, a backslash in a string is an escape to it.
    pub escapes: bool,
    /// So are texts in another encoding than UTF-8, or what its database keeps is.
    pub is_recoded: bool,
    /// In microseconds since the start of the proxy.
    pub opened_us: u64,
    /// The life of its server that vouches for it, as `positions` counts them; 0: not known.
    pub life: Cell<u64>,
    opened_at: Instant,
    rested_at: Cell<Instant>,
    jitter: u8,
    passwords_generation: u64,
}

/// Why a server connection could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("could not connect to {address}: {cause}")]
    Connect { address: Address, cause: io::Error },
    #[error("connection to {address} broke during login: {cause}")]
    Broke { address: Address, cause: io::Error },
    #[error("no TLS connection to {address}: {reason}")]
    Tls { address: Address, reason: String },
    #[error("{address} refused the login: {message}")]
    Refused { address: Address, sqlstate: String, message: String },
    #[error("cannot log in to {address}: {reason}")]
    Secret { address: Address, reason: String },
    #[error("node {node} lets nobody in now: {words}")]
    Held { node: u16, why: Refused, words: Arc<str> },
    #[error("node {node} is no longer configured")]
    Gone { node: u16 },
    #[error("node {node} was given up meanwhile")]
    GivenUp { node: u16 },
    #[error("{address} does not speak the PostgreSQL protocol: {what}")]
    Protocol { address: Address, what: String },
}

impl OpenError {
    /// The node cannot be reached, so another may be tried.
    pub fn is_unreachable(&self) -> bool {
        match self {
            OpenError::Connect { .. } | OpenError::Broke { .. } | OpenError::Tls { .. } => true,
            // 57P03: starting up or shutting down.
            OpenError::Refused { sqlstate, .. } => sqlstate == sqlstate::CANNOT_CONNECT_NOW,
            OpenError::Secret { .. } | OpenError::Protocol { .. } => false,
            OpenError::Gone { .. } | OpenError::GivenUp { .. } | OpenError::Held { .. } => true,
        }
    }

    /// The node said nothing, or there is no way to it: what is under way there may never end.
    pub fn is_silent(&self) -> bool {
        match self {
            OpenError::Connect { cause, .. } | OpenError::Broke { cause, .. } => matches!(
                cause.kind(),
                io::ErrorKind::TimedOut
                    | io::ErrorKind::HostUnreachable
                    | io::ErrorKind::NetworkUnreachable
                    | io::ErrorKind::NetworkDown
            ),
            OpenError::Tls { .. }
            | OpenError::Refused { .. }
            | OpenError::Secret { .. }
            | OpenError::Held { .. }
            | OpenError::Gone { .. }
            | OpenError::GivenUp { .. }
            | OpenError::Protocol { .. } => false,
        }
    }

    /// Whether, and why, the same may succeed a little later.
    ///
    /// Source: `ProcessStartupPacket` and `InitPostgres` in PostgreSQL; class 53 is "Insufficient Resources".
    pub fn passes(&self) -> Option<Refused> {
        match self {
            OpenError::Connect { .. } | OpenError::Broke { .. } | OpenError::GivenUp { .. } => Some(Refused::Down),
            OpenError::Held { why, .. } => Some(*why),
            OpenError::Refused { sqlstate, .. } if sqlstate == sqlstate::TOO_MANY_CONNECTIONS => Some(Refused::Full),
            // A login that a shutdown or a crash of another process ended is told so, too.
            OpenError::Refused { sqlstate, .. } => {
                matches!(sqlstate.as_str(), sqlstate::CANNOT_CONNECT_NOW | sqlstate::ADMIN_SHUTDOWN | sqlstate::CRASH_SHUTDOWN)
                    .then_some(Refused::Down)
            }
            OpenError::Tls { .. } | OpenError::Secret { .. } | OpenError::Protocol { .. } | OpenError::Gone { .. } => None,
        }
    }

    /// What the client is told. A server's own refusal keeps its SQLSTATE.
    pub fn fault(&self) -> Fault {
        match self {
            OpenError::Connect { .. }
            | OpenError::Broke { .. }
            | OpenError::Gone { .. }
            | OpenError::GivenUp { .. }
            | OpenError::Held { .. }
            | OpenError::Tls { .. } => Fault::error(sqlstate::CANNOT_CONNECT, self.to_string()),
            OpenError::Refused { sqlstate, message, .. } => Fault::error(sqlstate, message.clone()),
            OpenError::Secret { .. } => Fault::error(sqlstate::INVALID_AUTHORIZATION, self.to_string())
                .hint("Add the user's password to pool_passwd in a form that answers the server's method."),
            OpenError::Protocol { .. } => Fault::error(sqlstate::PROTOCOL_VIOLATION, self.to_string()),
        }
    }
}

/// Who logs in to a server, and with what.
pub struct Login<'a> {
    pub user: &'a str,
    pub database: &'a str,
    pub secret: Option<&'a Secret>,
    /// Which reading of the password file the secret is from.
    pub generation: u64,
    /// What the startup packet says beside user and database.
    pub parameters: &'a [(&'a str, &'a str)],
}

/// As servers report it.
pub const UTF8: &str = "UTF8";

impl ServerConn {
    /// True if it leads to the primary, as far as the worker knows. The one place where that is asked of a connection.
    #[inline]
    pub fn is_to_primary(&self, w: &Worker) -> bool {
        w.is_primary(self.card.address.node)
    }

    /// Milliseconds since it was opened, and since its last use.
    pub fn ages_ms(&self, now: Instant) -> (u64, u64) {
        let ms = |since: Instant| now.saturating_duration_since(since).as_millis() as u64;
        (ms(self.opened_at), ms(self.rested_at.get()))
    }

    /// True if it was opened with the passwords in force.
    pub fn is_of_these_passwords(&self, w: &Worker) -> bool {
        self.passwords_generation == w.shared.access.generation()
    }

    /// A statement may not be on the server after all.
    pub fn forget(&mut self, id: StatementId) {
        self.known.forget(id);
        if self.unnamed.is_some_and(|(unnamed, _)| unnamed == id) {
            self.unnamed = None;
        }
    }

    pub fn jitter(&self) -> u8 {
        self.jitter
    }

    /// True if a session has drawn on it from sequences and let go of it a moment ago: it may ask for that soon.
    #[inline]
    pub fn has_fresh_draws(&self, now: Instant) -> bool {
        !self.draws.is_blank() && now.saturating_duration_since(self.rested_at.get()) < FRESH_DRAWS
    }

    /// Notes that no session uses it.
    pub fn at_rest(&self, now: Instant) {
        self.rested_at.set(now);
        self.card.session.store(0, Ordering::Relaxed);
        self.card.kept.store(0, Ordering::Relaxed);
        self.socket.set_idle();
    }

    /// True if the server connection may still be used after its rest: nothing arrived and the server is there.
    ///
    /// After a short rest what the event loop saw is enough; after a longer one the kernel is asked, because events may be waiting
    /// unseen behind the ones being worked on.
    pub fn is_fresh(&self, now: Instant) -> bool {
        const TRUSTED: Duration = Duration::from_millis(20);
        if self.socket.is_readable() || self.socket.is_closed() {
            return false;
        }
        now.saturating_duration_since(self.rested_at.get()) < TRUSTED || !self.socket.peek()
    }

    /// True if it has rested for so long.
    pub fn has_rested(&self, now: Instant, ms: u64) -> bool {
        now.saturating_duration_since(self.rested_at.get()).as_millis() >= u128::from(ms)
    }

    /// The last reported value of a parameter.
    pub fn reported(&self, name: &str) -> &str {
        value_of(&self.reported, name)
    }

    /// True if what the server says is in UTF-8, and what it is told by its bytes.
    pub fn tells_utf8(&self) -> bool {
        self.reported(ENCODING) == UTF8 && matches!(self.reported("server_encoding"), UTF8 | "SQL_ASCII")
    }

    /// Notes a ParameterStatus.
    pub fn report(&mut self, body: &[u8]) {
        note_report(&mut self.reported, body);
        (self.escapes, self.is_recoded) = (escapes(&self.reported), is_recoded(&self.reported));
    }

    /// Why the session that has it keeps it.
    pub fn set_pin(&self, kept: Option<Kept>) {
        self.card.kept.store(kept.map_or(0, Kept::code), Ordering::Relaxed);
    }
}

/// Opens a server connection for a pool and logs in. Not cancel safe: the permit it was opened under must be released on error.
///
/// `first`: a query that the server answers before anybody has the server connection; empty for none.
pub async fn open(
    w: &Worker,
    pool: Arc<Pool>,
    address: &Address,
    login: &Login<'_>,
    first: &str,
) -> Result<Box<ServerConn>, OpenError> {
    let deadline = Instant::now()
        + Duration::from_millis(if address.connect_timeout_ms == 0 { 3_600_000 } else { address.connect_timeout_ms });
    let renewals = pool.renewals();
    // Of before it: whatever changes meanwhile is newer than the connection.
    let (generation, gate) = (w.view().generation, w.view().gate);
    let (mut talk, mut greeting) = Talk::enter(w, address, login, deadline).await?;
    if let Gate::Open { node, started_at: Some(started_at) } = gate
        && node == address.node
        && pool.key.purpose != Purpose::Replication
        && !is_of_start(w, &mut talk, address, started_at).await
    {
        talk.socket.close(&w.reactor);
        // Another proxy may have replaced the server while it was away, so that it is looked at first.
        w.shared.link_died(node, LinkEnd::Broken);
        return Err(OpenError::GivenUp { node });
    }
    if !first.is_empty() {
        if let Err(error) = talk.query(w, address, first).await {
            talk.socket.close(&w.reactor);
            return Err(error);
        }
        talk.reports.iter().for_each(|body| note_report(&mut greeting.reported, body));
    }
    let serial = w.next_serial();
    let card = Arc::new(status_of(serial, address, generation, &mut greeting, &talk.socket));
    pool.add_card(card.clone(), renewals);
    // Behind the list of cards: who gives a node up changes the view first and looks at the list then.
    if !w.shared.view.load().is_valid(address.node, generation) {
        pool.remove_card(serial);
        talk.socket.close(&w.reactor);
        return Err(OpenError::GivenUp { node: address.node });
    }
    let now = w.reactor.now();
    Ok(Box::new(ServerConn {
        socket: talk.socket,
        home: w.id,
        card,
        pool,
        known: Known::default(),
        unnamed: None,
        settings: w.no_settings(),
        by_sql: w.shared.no_statements.clone(),
        draws: Tally { serial, count: 0, forgotten: 0 },
        begins_recoded: value_of(&greeting.reported, ENCODING) != UTF8,
        begins_with_escapes: escapes(&greeting.reported),
        escapes: escapes(&greeting.reported),
        is_recoded: is_recoded(&greeting.reported),
        reported: greeting.reported,
        notices: greeting.notices,
        opened_us: w.micros(Instant::now()),
        life: Cell::new(0),
        opened_at: now,
        rested_at: Cell::new(now),
        jitter: (w.dice() & 0xff) as u8,
        passwords_generation: login.generation,
    }))
}

/// The card of a connection that was just opened.
fn status_of(serial: u64, address: &Address, generation: u64, greeting: &mut Greeting, socket: &Socket) -> ConnStatus {
    let version = greeting.reported.iter().find(|(name, _)| name == "server_version");
    ConnStatus {
        serial,
        address: address.clone(),
        pid: greeting.pid,
        key: std::mem::take(&mut greeting.key).into(),
        opened_at: SystemTime::now(),
        generation,
        session: AtomicU32::new(0),
        uses: AtomicU64::new(0),
        kept: AtomicU8::new(0),
        doomed: AtomicBool::new(false),
        used_ms: AtomicU64::new(0),
        prepared: AtomicU32::new(0),
        version: version.map_or_else(Box::default, |(_, version)| version.as_str().into()),
        protocol: greeting.protocol,
        is_encrypted: socket.is_encrypted(),
        given_up: AtomicBool::new(false),
        breaker: socket.breaker(),
    }
}

/// True if the server was started at this time, in microseconds since 1970.
async fn is_of_start(w: &Worker, talk: &mut Talk, address: &Address, started_at: u64) -> bool {
    let text = "SELECT pg_catalog.round(1000000 OPERATOR(pg_catalog.*) \
        EXTRACT(epoch FROM pg_catalog.pg_postmaster_start_time())::pg_catalog.numeric)";
    let rows = talk.query(w, address, text).await.unwrap_or_default();
    let told = rows.into_iter().flatten().next().flatten();
    told.is_some_and(|told| told.parse() == Ok(started_at))
}

fn value_of<'r>(reported: &'r [(String, String)], name: &str) -> &'r str {
    reported.iter().find(|(known, _)| known == name).map_or("", |(_, value)| value)
}

/// True if a backslash in a string is an escape to a server that reports this.
fn escapes(reported: &[(String, String)]) -> bool {
    value_of(reported, ESCAPES_UNLESS) == "off"
}

/// True if such a one reads texts in another encoding than UTF-8, or keeps them in one.
fn is_recoded(reported: &[(String, String)]) -> bool {
    value_of(reported, ENCODING) != UTF8 || value_of(reported, "server_encoding") != UTF8
}

/// Notes a ParameterStatus among what was reported before.
fn note_report(reported: &mut Vec<(String, String)>, body: &[u8]) {
    let Some((name, value)) = server::read_parameter(body) else { return };
    let (name, value) = (String::from_utf8_lossy(name), String::from_utf8_lossy(value));
    match reported.iter_mut().find(|(n, _)| *n == name) {
        Some((_, known)) => *known = value.into_owned(),
        None => reported.push((name.into_owned(), value.into_owned())),
    }
}

/// Rows of text.
pub type Rows = Vec<Vec<Option<String>>>;

/// Runs a query of ours over a server connection that no session has. What its server reports of parameters meanwhile is noted with the server connection. Not cancel
/// safe: the answer would be left for the next session.
pub async fn ask(
    w: &Worker,
    mut conn: Box<ServerConn>,
    sql: &str,
    deadline: Instant,
) -> (Box<ServerConn>, Result<Rows, OpenError>) {
    conn.socket.set_task(w.reactor.current_task());
    // A simple query drops the unnamed statement.
    conn.unnamed = None;
    let address = conn.card.address.clone();
    let mut talk = Talk::over(conn.socket, deadline);
    let answer = talk.query(w, &address, sql).await;
    conn.socket = talk.socket;
    conn.notices.last = std::mem::take(&mut talk.notices);
    for report in &talk.reports {
        conn.report(report);
    }
    let is_over = talk.buffer.is_empty();
    let answer = answer.and_then(|rows| if is_over { Ok(rows) } else { Err(protocol(&address, "more than the answer")) });
    (conn, answer)
}

/// Message by message, for everything but a session's relay.
pub struct Talk {
    pub socket: Socket,
    buffer: Vec<u8>,
    /// What was reported of parameters while the last query ran: bodies of ParameterStatus.
    reports: Vec<Vec<u8>>,
    /// Notices of that time.
    notices: Vec<u8>,
    deadline: Instant,
}

impl Talk {
    /// Connects, and begins TLS if the attempt is for that. Not cancel safe: the server would wait for the rest.
    async fn connect(
        w: &Worker,
        address: &Address,
        attempt: Attempt,
        check: Check,
        deadline: Instant,
    ) -> Result<Talk, OpenError> {
        let failed = |cause| OpenError::Connect { address: address.clone(), cause };
        let socket = if address.hostname.starts_with('/') {
            let path = PathBuf::from(&address.hostname).join(format!(".s.PGSQL.{}", address.port));
            Socket::connect_unix(&w.reactor, &path).map_err(failed)?
        } else {
            connect_any(w, &address.hostname, address.port, deadline).await.map_err(failed)?
        };
        let mut talk = Talk::over(socket, deadline);
        if attempt == Attempt::Plain || address.hostname.starts_with('/') {
            return Ok(talk);
        }
        match talk.encrypt(w, address, attempt, check).await {
            Ok(()) => Ok(talk),
            Err(error) => {
                // The server is told why.
                talk.socket.close(&w.reactor);
                Err(error)
            }
        }
    }

    /// Asks for TLS and begins it.
    async fn encrypt(&mut self, w: &Worker, address: &Address, attempt: Attempt, check: Check) -> Result<(), OpenError> {
        let refused = |reason: String| OpenError::Tls { address: address.clone(), reason };
        let mut out = Vec::new();
        write::ssl_request(&mut out);
        self.send(w, address, &out).await?;
        let mut answer = [0];
        let read = self.socket.read(&w.reactor, &mut answer, Some(self.deadline)).await;
        // No more than the answer is taken: what follows it in clear text can only be taken for TLS, and fail.
        read.map_err(|cause| OpenError::Broke { address: address.clone(), cause })?;
        match (answer[0], attempt) {
            (b'S', _) => {}
            (b'N', Attempt::Willing) => return Ok(()),
            (b'N', _) => return Err(refused("the server does not have it, and backend_sslmode demands it".into())),
            _ => return Err(protocol(address, "unexpected answer to the request for TLS")),
        }
        let Some(side) = w.shared.tls.load().client.clone() else {
            return Err(refused("the configuration has just been changed".into()));
        };
        let tls = side.towards(check, &address.hostname).map_err(|cause| refused(cause.to_string()))?;
        let begun = self.socket.begin_tls(&w.reactor, tls, &[], Some(self.deadline)).await;
        begun.map_err(|cause| match cause.kind() {
            // The server went away, which says nothing of TLS.
            io::ErrorKind::TimedOut
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::BrokenPipe
            | io::ErrorKind::UnexpectedEof => OpenError::Broke { address: address.clone(), cause },
            _ => refused(explain(&cause)),
        })
    }

    pub fn over(socket: Socket, deadline: Instant) -> Talk {
        Talk { socket, buffer: Vec::new(), reports: Vec::new(), notices: Vec::new(), deadline }
    }

    /// Connects and logs in, outside of any pool.
    pub async fn log_in(w: &Worker, address: &Address, login: &Login<'_>, deadline: Instant) -> Result<Talk, OpenError> {
        Talk::enter(w, address, login, deadline).await.map(|(talk, _)| talk)
    }

    /// The same, with what the server said. Encrypted or not, as `backend_sslmode` has it.
    pub async fn enter(
        w: &Worker,
        address: &Address,
        login: &Login<'_>,
        deadline: Instant,
    ) -> Result<(Talk, Greeting), OpenError> {
        let plan = {
            let has_authorities = w.shared.tls.load().client.as_ref().is_some_and(|side| side.has_authorities);
            plan(address.ssl_mode, w.peek_config().tls.enabled, has_authorities, address.hostname.starts_with('/'))
        };
        let mut attempts = plan.attempts.iter().peekable();
        loop {
            let attempt = attempts.next().copied().unwrap_or(Attempt::Plain);
            let entered = async {
                let mut talk = Talk::connect(w, address, attempt, plan.check, deadline).await?;
                let greeting = login::log_in(w, &mut talk, address, login).await?;
                Ok((talk, greeting))
            };
            match entered.await {
                Err(error) if attempts.peek().is_some() && is_worth_another(&error) => {}
                outcome => return outcome,
            }
        }
    }

    /// When what is under way must be over.
    pub fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Goes on under another deadline and, perhaps, in another task.
    pub fn renew(&mut self, w: &Worker, deadline: Instant) {
        self.deadline = deadline;
        self.socket.set_task(w.reactor.current_task());
    }

    pub async fn send(&mut self, w: &Worker, address: &Address, bytes: &[u8]) -> Result<(), OpenError> {
        let sent = self.socket.write_all(&w.reactor, bytes, Some(self.deadline)).await;
        sent.map_err(|cause| OpenError::Broke { address: address.clone(), cause })
    }

    /// What has arrived after the last message taken.
    pub fn take_rest(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.buffer)
    }

    /// The next message: its tag and body.
    pub async fn next(&mut self, w: &Worker, address: &Address) -> Result<(u8, Vec<u8>), OpenError> {
        loop {
            let header = read_header(&self.buffer).map_err(|e| protocol(address, e.to_string()))?;
            if let Some(header) = header {
                if header.frame_bytes() > MESSAGE_BYTES_MAX {
                    return Err(protocol(address, format!("a message of {} bytes", header.frame_bytes())));
                }
                if self.buffer.len() >= header.frame_bytes() {
                    let body = self.buffer[HEADER_BYTES..header.frame_bytes()].to_vec();
                    self.buffer.drain(..header.frame_bytes());
                    return Ok((header.tag, body));
                }
            }
            let mut piece = [0u8; 4096];
            let read = self.socket.read(&w.reactor, &mut piece, Some(self.deadline)).await;
            let bytes = read.map_err(|cause| OpenError::Broke { address: address.clone(), cause })?;
            self.buffer.extend_from_slice(&piece[..bytes]);
        }
    }

    /// Runs a simple query and returns its rows as text. A server's error is `Refused`.
    pub async fn query(&mut self, w: &Worker, address: &Address, sql: &str) -> Result<Rows, OpenError> {
        let mut out = Vec::new();
        write::query(&mut out, sql);
        self.reports.clear();
        self.notices.clear();
        self.send(w, address, &out).await?;
        let mut rows = Vec::new();
        let mut error = None;
        loop {
            let (tag, body) = self.next(w, address).await?;
            match tag {
                back::DATA_ROW => {
                    let row = server::read_row(&body).ok_or_else(|| protocol(address, "malformed row"))?;
                    rows.push(row.into_iter().map(|v| v.map(|v| String::from_utf8_lossy(v).into_owned())).collect());
                }
                back::PARAMETER_STATUS => self.reports.push(body),
                back::NOTICE => keep_notice(&mut self.notices, &body),
                back::ERROR => error = Some(refused(address, &body)),
                back::READY => return error.map_or(Ok(rows), Err),
                _ => {}
            }
        }
    }
}

/// True if another kind of connection, encrypted or not, could change the outcome.
pub fn is_worth_another(error: &OpenError) -> bool {
    match error {
        OpenError::Refused { sqlstate, .. } => sqlstate == sqlstate::INVALID_AUTHORIZATION,
        OpenError::Tls { .. } => true,
        OpenError::Connect { .. }
        | OpenError::Broke { .. }
        | OpenError::Secret { .. }
        | OpenError::Held { .. }
        | OpenError::Gone { .. }
        | OpenError::GivenUp { .. }
        | OpenError::Protocol { .. } => false,
    }
}

/// The same in the words of `weir_io`.
pub fn tcp_options(tcp: &TcpConfig) -> TcpOptions {
    let TcpConfig { keepalive, keepidle_ms, keepintvl_ms, keepcnt, user_timeout_ms } = *tcp;
    TcpOptions { keepalive, keepidle_ms, keepintvl_ms, keepcnt, user_timeout_ms }
}

/// Tries each address of a name in turn.
pub async fn connect_any(w: &Worker, hostname: &str, port: u16, deadline: Instant) -> io::Result<Socket> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    let tcp = tcp_options(&w.peek_config().tcp);
    for ip in resolve(w, hostname, deadline).await? {
        match Socket::connect_tcp(&w.reactor, SocketAddr::new(ip, port), &tcp, deadline).await {
            Ok(socket) => return Ok(socket),
            Err(cause) => last = cause,
        }
    }
    Err(last)
}

/// Addresses of a name. Numbers need no asking; a name is asked of the system on a thread of its own, since that blocks.
async fn resolve(w: &Worker, hostname: &str, deadline: Instant) -> io::Result<Vec<IpAddr>> {
    if let Ok(ip) = hostname.parse() {
        return Ok(vec![ip]);
    }
    type Answer = Mutex<Option<io::Result<Vec<IpAddr>>>>;
    let answer: Arc<Answer> = Arc::default();
    let done = Arc::new(AtomicBool::new(false));
    let (theirs, theirs_done, name) = (answer.clone(), done.clone(), hostname.to_string());
    let (shared, id, task) = (w.shared.clone(), w.id, w.reactor.current_task());
    std::thread::Builder::new().name("resolve".into()).spawn(move || {
        let found = (name.as_str(), 0).to_socket_addrs().map(|all| all.map(|a| a.ip()).collect());
        *theirs.lock() = Some(found);
        theirs_done.store(true, Ordering::Release);
        shared.mailboxes[usize::from(id)].send(crate::process::shared::Message::Wake(task));
    })?;
    while !done.load(Ordering::Acquire) {
        w.reactor.wake_at(deadline);
        if Instant::now() >= deadline {
            return Err(io::ErrorKind::TimedOut.into());
        }
        weir_io::reactor::parked().await;
    }
    answer.lock().take().unwrap_or_else(|| Err(io::ErrorKind::NotFound.into()))
}

/// Cleans a server connection by `reset_query_list` and gives it back; closes it when that fails. Runs as a task of its own.
pub async fn reset(w: std::rc::Rc<Worker>, mut conn: Box<ServerConn>) {
    w.count(crate::monitor::metrics::Metric::ConnsReset);
    let deadline = Instant::now() + RESET_TIMEOUT;
    for query in &w.config().pool.reset_query_list {
        let (asked, answer) = ask(&w, conn, query, deadline).await;
        conn = asked;
        if let Err(error) = answer {
            w.log_conn(&conn.card.address, format_args!("closed instead of reset: {error}"));
            return w.close_conn(conn);
        }
    }
    if w.shared.stop_mode() > crate::process::shared::Stop::Smart {
        return w.close_conn(conn);
    }
    conn.known.clear();
    conn.settings = w.no_settings();
    conn.by_sql = w.shared.no_statements.clone();
    conn.draws = conn.draws.forget();
    let pool = conn.pool.clone();
    pool.give_back(&w, conn);
}

/// Cancels what a server process does for a server connection.
pub async fn cancel(w: &Worker, card: &ConnStatus) -> bool {
    cancel_process(w, &card.address, card.is_encrypted, (card.pid, &card.key)).await
}

/// Sends a CancelRequest to a process with its key, and waits until the server has closed the connection: then the signal was sent.
///
/// False: it was sent, but when the server will act on it is not known.
pub async fn cancel_process(w: &Worker, address: &Address, is_encrypted: bool, (pid, key): (u32, &[u8])) -> bool {
    let deadline = Instant::now() + Duration::from_secs(5);
    let (attempt, check) = if is_encrypted {
        let has_authorities = w.shared.tls.load().client.as_ref().is_some_and(|side| side.has_authorities);
        (Attempt::Encrypted, plan(address.ssl_mode, true, has_authorities, false).check)
    } else {
        (Attempt::Plain, Check::Nothing)
    };
    let mut talk = match Talk::connect(w, address, attempt, check, deadline).await {
        Ok(talk) => talk,
        Err(error) => {
            w.log_conn(address, format_args!("cancel request failed: {error}"));
            return true;
        }
    };
    let mut out = Vec::new();
    write::cancel_request(&mut out, pid, key);
    if let Err(error) = talk.send(w, address, &out).await {
        w.log_conn(address, format_args!("cancel request failed: {error}"));
        return false;
    }
    let mut byte = [0];
    // The server says nothing and closes.
    match talk.socket.read(&w.reactor, &mut byte, Some(deadline)).await {
        Ok(_) => false,
        Err(cause) => cause.kind() == io::ErrorKind::UnexpectedEof,
    }
}
