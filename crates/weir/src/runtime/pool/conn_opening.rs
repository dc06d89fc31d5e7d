//! Opens server connections, and queries servers outside a session's relay.

pub mod ask_defaults;

use crate::log::Level;
use crate::runtime::bounds;
use crate::runtime::pool::reset::needed_at_rest;
use crate::runtime::pool::server_conn::{
    Conn, ConnStatus, MESSAGE_BYTES_MAX, MessageConn, Notices, OpenError, ROW_BYTES_MAX, Rows, ServerAddress, ServerConn,
    ServerLogin, ServerTransport, SocketBreaker, TERMINATE, flooded, note, tcp_options,
};
use crate::runtime::pool::server_login::{self, ServerGreeting, keep_notice, protocol, refused};
use crate::runtime::pool::{ConnPool, PoolPurpose};
use crate::runtime::shared::{ProxyShutdown, WorkerId, WorkerMessage};
use crate::runtime::tls_choice::{CertificateCheck, TlsAttempt, plan};
use crate::runtime::worker::Worker;
use std::cell::Cell;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use std::time::{Duration, Instant, SystemTime};
use weir_failover::ServerConnEnd;
use weir_failover::cluster::WriteGate;
use weir_io::socket::Socket;
use weir_io::tls::explain;
use weir_session::conn::{ConnHold, ConnTerms, LastStatement, ServerLine, TextInterpretation, escapes, of_client, recoding};
use weir_session::fault::sqlstate;
use weir_session::handle::SessionHandle;
use weir_session::metrics::WorkerCounter;
use weir_session::prepared::ServerStatements;
use weir_session::reports::ReportedParameters;
use weir_session::sequences::drawn_values::DrawCount;
use weir_session::session_state::conn_settings::ConnSettings;
use weir_session::session_state::server_defaults::ServerDefaults;
use weir_session::status::SessionActivity;
use weir_sql::own;
use weir_wire::frame::{HEADER_BYTES, back, front, read_header};
use weir_wire::gather::{GatherBound, GatherBudget, message_cost};
use weir_wire::{back as server, write};

const RESET_TIMEOUT: Duration = Duration::from_secs(10);

/// Opens a server connection and logs in. Not cancel safe: its permit must be released on error.
///
/// `first`: an operator's query to run before any session has the connection; empty for none.
pub async fn open(
    w: &Worker,
    pool: Arc<ConnPool>,
    address: &ServerAddress,
    login: &ServerLogin<'_>,
    first: &str,
) -> Result<ServerConn, OpenError> {
    let deadline = Instant::now()
        + Duration::from_millis(if address.connect_timeout_ms == 0 { 3_600_000 } else { address.connect_timeout_ms });
    let renewals = pool.renewals();
    // Before the login, so that later changes are newer than the connection.
    let (generation, gate) = (w.view().generation, w.view().gate);
    let (mut talk, mut greeting) = MessageConn::enter(w, address, login, deadline).await?;
    if let WriteGate::Open { node, started_at: Some(started_at) } = gate
        && node == address.node
        && !matches!(pool.key.purpose, PoolPurpose::PhysicalReplication | PoolPurpose::LogicalReplication)
        && !is_of_start(w, &mut talk, address, started_at).await
    {
        talk.part(w);
        // Another proxy may have replaced the server meanwhile: its role is looked at first.
        w.shared.note_conn_died(node, ServerConnEnd::Broken);
        return Err(OpenError::GivenUp { node });
    }
    let reloads = w.shared.stale.reloads.of(address.node);
    let defaults = match pool.key.purpose {
        // After an operator's query reports would pass for reloads.
        PoolPurpose::Statements | PoolPurpose::Engine | PoolPurpose::Greeting if !first.is_empty() => w.shared.unknown_defaults(),
        PoolPurpose::Statements | PoolPurpose::Engine | PoolPurpose::Greeting => {
            match ask_defaults::ask_first(w, &mut talk, address, &mut greeting.reported).await {
                Ok(defaults) => defaults,
                Err(error) => {
                    talk.part(w);
                    return Err(error);
                }
            }
        }
        PoolPurpose::PhysicalReplication | PoolPurpose::LogicalReplication | PoolPurpose::Listening => {
            w.shared.unknown_defaults()
        }
    };
    if !first.is_empty() {
        let asked = talk.run(w, address, (first, QueryEnd::Ready)).await;
        let noted = asked.and_then(|_| talk.reports.iter().try_for_each(|body| note(&mut greeting.reported, address, body)));
        if let Err(error) = noted {
            talk.part(w);
            return Err(error);
        }
    }
    let serial = w.next_serial();
    let status = Arc::new(status_of(serial, address, generation, &mut greeting, &talk.socket));
    pool.add_status(w, status.clone(), renewals);
    // After the list: a task that gives a node up changes the view before it reads the list.
    if !w.shared.cluster.view.load().is_valid(address.node, generation) {
        pool.remove_status(serial);
        talk.part(w);
        return Err(OpenError::GivenUp { node: address.node });
    }
    let conn = Box::new(blank(w, status, greeting.reported, defaults, reloads));
    let transport = Box::new(ServerTransport {
        socket: talk.socket,
        home: w.id,
        pool,
        notices: greeting.notices,
        jitter: (w.dice() & 0xff) as u8,
        passwords_generation: login.generation,
    });
    Ok(ServerConn { conn, transport })
}

fn status_of(
    serial: u64,
    address: &ServerAddress,
    generation: u64,
    greeting: &mut ServerGreeting,
    socket: &Socket,
) -> ConnStatus {
    let version = greeting.reported.value("server_version");
    ConnStatus {
        serial,
        address: address.clone(),
        pid: greeting.pid,
        key: std::mem::take(&mut greeting.key).into(),
        opened_at: SystemTime::now(),
        generation,
        session: AtomicU32::new(0),
        uses: AtomicU64::new(0),
        keeping: ConnHold::default(),
        doomed: AtomicBool::new(false),
        last: LastStatement::default(),
        prepared: AtomicU32::new(0),
        terms: ConnTerms { version: version.into(), protocol: greeting.protocol, is_encrypted: socket.is_encrypted() },
        given_up: AtomicBool::new(false),
        breaker: Box::new(SocketBreaker(socket.breaker())),
    }
}

/// Microseconds since 1970.
pub const START: &str = "SELECT pg_catalog.round(1000000 OPERATOR(pg_catalog.*) \
    EXTRACT(epoch FROM pg_catalog.pg_postmaster_start_time())::pg_catalog.numeric)";

async fn is_of_start(w: &Worker, talk: &mut MessageConn, address: &ServerAddress, started_at: u64) -> bool {
    let rows = talk.query(w, address, START).await.unwrap_or_default();
    let told = rows.into_iter().flatten().next().flatten();
    told.is_some_and(|told| told.parse() == Ok(started_at))
}

fn blank(w: &Worker, status: Arc<ConnStatus>, reported: ReportedParameters, defaults: Arc<ServerDefaults>, reloads: u64) -> Conn {
    Conn {
        known: ServerStatements::default(),
        unnamed: None,
        settings: ConnSettings::new(w.shared.intern_settings(defaults.left().clone()).0),
        defaults,
        reloads,
        by_sql: w.shared.no_statements.clone(),
        draws: DrawCount { serial: status.serial, count: 0, forgotten: 0 },
        begins: TextInterpretation { escapes: escapes(&reported), recoding: of_client(&reported) },
        reads: TextInterpretation { escapes: escapes(&reported), recoding: recoding(&reported) },
        reported,
        opened_us: w.micros(Instant::now()),
        life: Cell::new(0),
        rested_at: Cell::new(w.now_us()),
        line: ServerLine::default(),
        status,
    }
}

/// Runs a query over a server connection in no session. Not cancel safe: the answer would be left for the next session.
pub async fn ask(w: &Worker, conn: ServerConn, sql: &str, deadline: Instant) -> (ServerConn, Result<Rows, OpenError>) {
    own::check(sql);
    ask_operators(w, conn, sql, deadline).await
}

/// Runs a query ahead of a client's statement, which then is in one implicit transaction with it. An error ends that transaction. The query may name
/// things outside of `pg_catalog` whose schema and owner were checked. Not cancel safe.
pub async fn ask_ahead(w: &Worker, conn: ServerConn, sql: &str, deadline: Instant) -> (ServerConn, Result<Rows, OpenError>) {
    ask_as(w, conn, (sql, QueryEnd::Open), deadline).await
}

/// Ends the implicit transaction of `ask_ahead`. Not cancel safe.
pub async fn end_ahead(w: &Worker, conn: ServerConn, deadline: Instant) -> (ServerConn, Result<Rows, OpenError>) {
    ask_as(w, conn, ("", QueryEnd::Synced), deadline).await
}

/// Runs an operator's query, like `ask`. Not cancel safe.
pub async fn ask_operators(w: &Worker, conn: ServerConn, sql: &str, deadline: Instant) -> (ServerConn, Result<Rows, OpenError>) {
    ask_as(w, conn, (sql, QueryEnd::Ready), deadline).await
}

/// The state in which a query leaves its server connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum QueryEnd {
    Ready,
    /// In an implicit transaction, unless the query failed.
    Open,
    /// Nothing is asked, and an implicit transaction ends. A Query does not end it from version 17 on.
    Synced,
}

async fn ask_as(
    w: &Worker,
    conn: ServerConn,
    (sql, end): (&str, QueryEnd),
    deadline: Instant,
) -> (ServerConn, Result<Rows, OpenError>) {
    let mut lent = ConnTalk::begin(w, conn, deadline);
    let answer = lent.talk.run(w, &lent.address, (sql, end)).await;
    lent.end(answer)
}

/// A server connection that a session has lent, whose messages are read one by one.
pub struct ConnTalk {
    pub talk: MessageConn,
    pub address: ServerAddress,
    conn: Box<Conn>,
    home: WorkerId,
    pool: Arc<ConnPool>,
    notices: Notices,
    jitter: u8,
    passwords_generation: u64,
}

impl ConnTalk {
    pub fn begin(w: &Worker, conn: ServerConn, deadline: Instant) -> ConnTalk {
        let ServerConn { mut conn, transport } = conn;
        let ServerTransport { socket, home, pool, notices, jitter, passwords_generation } = *transport;
        socket.set_task(w.reactor.current_task());
        // A simple query drops the unnamed statement.
        conn.unnamed = None;
        let address = conn.status.address.clone();
        ConnTalk { talk: MessageConn::over(socket, deadline), address, conn, home, pool, notices, jitter, passwords_generation }
    }

    /// Runs a query. It may name things outside of `pg_catalog` whose schema and owner were checked. Not cancel safe.
    pub async fn run(&mut self, w: &Worker, sql: &str) -> Result<Rows, OpenError> {
        self.talk.query_by_name(w, &self.address, sql).await
    }

    pub fn status(&self) -> &Arc<ConnStatus> {
        &self.conn.status
    }

    /// Gives the connection back, with an answer that is an error if the server has said more than that.
    pub fn end<T>(self, answer: Result<T, OpenError>) -> (ServerConn, Result<T, OpenError>) {
        let ConnTalk { mut talk, address, mut conn, home, pool, notices, jitter, passwords_generation } = self;
        let notices = Notices { last: std::mem::take(&mut talk.notices), ..notices };
        let noted = talk.reports.iter().try_for_each(|body| conn.report(body)).map_err(|cause| flooded(&address, cause));
        let answer = answer.and_then(|value| noted.map(|()| value));
        let answer = answer.and_then(|value| beyond_answer(&address, &talk.buffer).map_or(Ok(value), Err));
        let transport = Box::new(ServerTransport { socket: talk.socket, home, pool, notices, jitter, passwords_generation });
        (ServerConn { conn, transport }, answer)
    }
}

/// Returns the error for bytes after an answer. A shutdown may be reported at any time.
fn beyond_answer(address: &ServerAddress, rest: &[u8]) -> Option<OpenError> {
    if rest.is_empty() {
        return None;
    }
    let body = rest.get(HEADER_BYTES..).filter(|_| rest[0] == back::ERROR);
    Some(body.map_or_else(|| protocol(address, "more than the answer"), |body| refused(address, body)))
}

impl MessageConn {
    /// Connects, and begins TLS. Not cancel safe: the server would wait for the rest.
    async fn connect(
        w: &Worker,
        address: &ServerAddress,
        attempt: TlsAttempt,
        check: CertificateCheck,
        deadline: Instant,
    ) -> Result<MessageConn, OpenError> {
        let failed = |cause| OpenError::Connect { address: address.clone(), cause };
        let socket = if address.hostname.starts_with('/') {
            let path = PathBuf::from(&address.hostname).join(format!(".s.PGSQL.{}", address.port));
            Socket::connect_unix(&w.reactor, &path).map_err(failed)?
        } else {
            connect_any(w, &address.hostname, address.port, deadline).await.map_err(failed)?
        };
        let mut talk = MessageConn::over(socket, deadline);
        if attempt == TlsAttempt::Plain || address.hostname.starts_with('/') {
            return Ok(talk);
        }
        match talk.encrypt(w, address, attempt, check).await {
            Ok(()) => Ok(talk),
            Err(error) => {
                // `close` tells the server why.
                talk.socket.close(&w.reactor);
                Err(error)
            }
        }
    }

    async fn encrypt(
        &mut self,
        w: &Worker,
        address: &ServerAddress,
        attempt: TlsAttempt,
        check: CertificateCheck,
    ) -> Result<(), OpenError> {
        let refused = |reason: String| OpenError::Tls { address: address.clone(), reason };
        let mut out = Vec::new();
        write::ssl_request(&mut out);
        self.send(w, address, &out).await?;
        let mut answer = [0];
        let read = self.socket.read(&w.reactor, &mut answer, Some(self.deadline)).await;
        // One byte only: clear text after it can only be taken for TLS, and fail.
        read.map_err(|cause| OpenError::Broke { address: address.clone(), cause })?;
        let letter = char::from(answer[0]).escape_default();
        // Pgpool-II's wording.
        w.shared.log.say(Level::Debug1, format_args!("node {}: client->server SSL response: {letter}", address.node));
        match (answer[0], attempt) {
            (b'S', _) => {}
            (b'N', TlsAttempt::Willing) => return Ok(()),
            (b'N', _) => return Err(refused("the server does not have it, and backend_sslmode demands it".into())),
            _ => return Err(protocol(address, "unexpected answer to the request for TLS")),
        }
        let Some(side) = w.shared.files.tls.load().client.clone() else {
            return Err(refused("the configuration has just been changed".into()));
        };
        let tls = side.towards(check, &address.hostname).map_err(|cause| refused(cause.to_string()))?;
        let begun = self.socket.begin_tls(&w.reactor, tls, &[], Some(self.deadline)).await;
        begun.map_err(|cause| match cause.kind() {
            // A vanished server says nothing of TLS.
            io::ErrorKind::TimedOut
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::BrokenPipe
            | io::ErrorKind::UnexpectedEof => OpenError::Broke { address: address.clone(), cause },
            _ => refused(explain(&cause)),
        })
    }

    pub fn over(socket: Socket, deadline: Instant) -> MessageConn {
        MessageConn {
            socket,
            buffer: Vec::new(),
            reports: Vec::new(),
            notices: Vec::new(),
            budget: GatherBudget::new(bounds::LOGIN),
            message_bytes_max: MESSAGE_BYTES_MAX,
            deadline,
        }
    }

    /// Connects and logs in as `backend_sslmode` demands.
    pub async fn enter(
        w: &Worker,
        address: &ServerAddress,
        login: &ServerLogin<'_>,
        deadline: Instant,
    ) -> Result<(MessageConn, ServerGreeting), OpenError> {
        let plan = {
            let has_authorities = w.shared.files.tls.load().client.as_ref().is_some_and(|side| side.has_authorities);
            plan(address.ssl_mode, w.peek_config().tls.enabled, has_authorities, address.hostname.starts_with('/'))
        };
        let mut attempts = plan.attempts.iter().peekable();
        loop {
            let attempt = attempts.next().copied().unwrap_or(TlsAttempt::Plain);
            let entered = async {
                let mut talk = MessageConn::connect(w, address, attempt, plan.check, deadline).await?;
                match server_login::log_in(w, &mut talk, address, login).await {
                    Ok(greeting) => Ok((talk, greeting)),
                    Err(error) => {
                        // During a login the server expects proofs, not Terminate.
                        talk.socket.part(&w.reactor, &[]);
                        Err(error)
                    }
                }
            };
            match entered.await {
                Err(error) if attempts.peek().is_some() && is_worth_another(&error) => {}
                outcome => return outcome,
            }
        }
    }

    pub fn part(self, w: &Worker) {
        self.socket.part(&w.reactor, &TERMINATE);
    }

    pub fn deadline(&self) -> Instant {
        self.deadline
    }

    /// True if something came unasked, perhaps the end of the connection.
    pub fn is_readable(&self) -> bool {
        self.socket.is_readable()
    }

    pub fn renew(&mut self, w: &Worker, deadline: Instant) {
        self.deadline = deadline;
        self.socket.set_task(w.reactor.current_task());
    }

    pub async fn ask_for(
        &mut self,
        w: &Worker,
        address: &ServerAddress,
        bytes: &[u8],
        bound: &GatherBound,
    ) -> Result<(), OpenError> {
        self.budget = GatherBudget::new(*bound);
        self.message_bytes_max = if bound.bytes_max == usize::MAX { ROW_BYTES_MAX } else { MESSAGE_BYTES_MAX };
        self.send(w, address, bytes).await
    }

    pub async fn send(&mut self, w: &Worker, address: &ServerAddress, bytes: &[u8]) -> Result<(), OpenError> {
        let sent = self.socket.write_all(&w.reactor, bytes, Some(self.deadline)).await;
        sent.map_err(|cause| OpenError::Broke { address: address.clone(), cause })
    }

    pub fn take_rest(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.buffer)
    }

    pub async fn next(&mut self, w: &Worker, address: &ServerAddress) -> Result<(u8, Vec<u8>), OpenError> {
        loop {
            let header = read_header(&self.buffer).map_err(|e| protocol(address, e.to_string()))?;
            if let Some(header) = header {
                if header.frame_bytes() > self.message_bytes_max {
                    return Err(protocol(address, format!("a message of {} bytes", header.frame_bytes())));
                }
                self.budget.check_next(header.frame_bytes()).map_err(|cause| flooded(address, cause))?;
                if self.buffer.len() >= header.frame_bytes() {
                    let body = self.buffer[HEADER_BYTES..header.frame_bytes()].to_vec();
                    self.buffer.drain(..header.frame_bytes());
                    self.budget.take(message_cost(header.tag, &body)).map_err(|cause| flooded(address, cause))?;
                    return Ok((header.tag, body));
                }
            }
            let mut piece = [0u8; 4096];
            let read = self.socket.read(&w.reactor, &mut piece, Some(self.deadline)).await;
            let bytes = read.map_err(|cause| OpenError::Broke { address: address.clone(), cause })?;
            self.buffer.extend_from_slice(&piece[..bytes]);
        }
    }

    /// Runs a simple query. A server's error is `OpenError::Refused`.
    pub async fn query(&mut self, w: &Worker, address: &ServerAddress, sql: &str) -> Result<Rows, OpenError> {
        own::check(sql);
        self.run(w, address, (sql, QueryEnd::Ready)).await
    }

    /// Runs a query that names things outside of `pg_catalog` whose schema and owner were checked.
    pub async fn query_by_name(&mut self, w: &Worker, address: &ServerAddress, sql: &str) -> Result<Rows, OpenError> {
        self.run(w, address, (sql, QueryEnd::Ready)).await
    }

    async fn run(&mut self, w: &Worker, address: &ServerAddress, (sql, end): (&str, QueryEnd)) -> Result<Rows, OpenError> {
        let mut out = Vec::new();
        match end {
            QueryEnd::Ready => write::query(&mut out, sql),
            QueryEnd::Open => write_ahead(&mut out, sql),
            QueryEnd::Synced => write::bare(&mut out, front::SYNC),
        }
        self.reports.clear();
        self.notices.clear();
        self.exchange(w, address, (&out, end)).await
    }

    /// Runs messages that end with a Sync, over a connection whose earlier reports are kept.
    pub async fn run_messages(&mut self, w: &Worker, address: &ServerAddress, messages: &[u8]) -> Result<Rows, OpenError> {
        self.exchange(w, address, (messages, QueryEnd::Ready)).await
    }

    async fn exchange(
        &mut self,
        w: &Worker,
        address: &ServerAddress,
        (messages, end): (&[u8], QueryEnd),
    ) -> Result<Rows, OpenError> {
        self.ask_for(w, address, messages, &bounds::ANSWER).await?;
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
                back::ERROR => {
                    error = Some(refused(address, &body));
                    if end == QueryEnd::Open {
                        let mut sync = Vec::new();
                        write::bare(&mut sync, front::SYNC);
                        self.send(w, address, &sync).await?;
                    }
                }
                back::COMMAND_COMPLETE if end == QueryEnd::Open => return Ok(rows),
                back::READY => return error.map_or(Ok(rows), Err),
                _ => {}
            }
        }
    }
}

/// Writes a query as messages of the extended protocol without a Sync.
fn write_ahead(out: &mut Vec<u8>, sql: &str) {
    write::message(out, front::PARSE, |out| {
        write::cstr(out, b"");
        write::cstr(out, sql.as_bytes());
        out.extend(0u16.to_be_bytes());
    });
    // No names; no formats, values, or formats of results.
    write::message(out, front::BIND, |out| out.extend([0; 8]));
    write::message(out, front::EXECUTE, |out| out.extend([0; 5]));
    write::bare(out, front::FLUSH);
}

/// True if a connection of the other kind, encrypted or not, could change the outcome.
pub fn is_worth_another(error: &OpenError) -> bool {
    match error {
        OpenError::Refused { sqlstate, .. } => sqlstate == sqlstate::INVALID_AUTHORIZATION,
        OpenError::Tls { .. } => true,
        OpenError::Connect { .. }
        | OpenError::Broke { .. }
        | OpenError::Secret { .. }
        | OpenError::Keys { .. }
        | OpenError::Held { .. }
        | OpenError::Gone { .. }
        | OpenError::GivenUp { .. }
        | OpenError::Flooded { .. }
        | OpenError::Protocol { .. } => false,
    }
}

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

async fn resolve(w: &Worker, hostname: &str, deadline: Instant) -> io::Result<Vec<IpAddr>> {
    if let Ok(ip) = hostname.parse() {
        return Ok(vec![ip]);
    }
    let (shared, id, task) = (w.shared.clone(), w.id, w.reactor.current_task());
    let wake = move || shared.mailboxes[usize::from(id)].send(WorkerMessage::Wake(task));
    let question = w.shared.ask_name(hostname, deadline, Box::new(wake));
    while !question.is_over() && Instant::now() < question.until {
        w.reactor.wake_at(question.until);
        weir_io::reactor::parked().await;
    }
    w.shared.addresses(hostname, &question)
}

/// Cleans a server connection by `reset_query_list`; closes it on failure. Runs as its own task.
pub async fn reset(w: Rc<Worker>, mut conn: ServerConn) {
    w.count(WorkerCounter::ConnsReset);
    let deadline = Instant::now() + RESET_TIMEOUT;
    for query in needed_at_rest(&w.config().pool.reset_query_list) {
        let (asked, answer) = ask_operators(&w, conn, query, deadline).await;
        conn = asked;
        if let Err(error) = answer {
            w.log_conn(&conn.status.address, format_args!("closed instead of reset: {error}"));
            return w.close_conn(conn);
        }
    }
    if w.shared.stop_mode() > ProxyShutdown::Smart {
        return w.close_conn(conn);
    }
    conn.known.clear();
    conn.settings.set(w.no_settings());
    conn.by_sql = w.shared.no_statements.clone();
    conn.draws = conn.draws.forget();
    let pool = conn.transport.pool.clone();
    pool.give_back(&w, conn);
}

pub async fn cancel(w: &Worker, status: &ConnStatus) -> bool {
    cancel_process(w, &status.address, status.terms.is_encrypted, (status.pid, &status.key)).await
}

/// Sends a CancelRequest and waits until the server has closed the connection: then the signal was sent.
///
/// False: when the server acts is unknown.
pub async fn cancel_process(w: &Worker, address: &ServerAddress, is_encrypted: bool, (pid, key): (u32, &[u8])) -> bool {
    let deadline = Instant::now() + Duration::from_secs(5);
    let (attempt, check) = if is_encrypted {
        let has_authorities = w.shared.files.tls.load().client.as_ref().is_some_and(|side| side.has_authorities);
        (TlsAttempt::Encrypted, plan(address.ssl_mode, true, has_authorities, false).check)
    } else {
        (TlsAttempt::Plain, CertificateCheck::Nothing)
    };
    let mut talk = match MessageConn::connect(w, address, attempt, check, deadline).await {
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
    // The server closes without an answer.
    let end = talk.socket.read(&w.reactor, &mut byte, Some(deadline)).await;
    talk.socket.part(&w.reactor, &[]);
    end.is_err_and(|cause| cause.kind() == io::ErrorKind::UnexpectedEof)
}

pub fn forward_cancel(w: &Rc<Worker>, entry: &Rc<SessionHandle>) {
    let Some(conn) = entry.conn.borrow().clone() else {
        if entry.status.doing() == SessionActivity::WaitingForConnection {
            entry.wait_cancelled.set(true);
            w.reactor.wake(entry.task.get());
        }
        return;
    };
    if entry.is_ours.get() {
        return entry.cancel_waits.set(true);
    }
    // The running statement is being cancelled already.
    if entry.cancels.get() > 0 {
        return;
    }
    w.count(WorkerCounter::CancelsForwarded);
    entry.cancels.set(entry.cancels.get() + 1);
    let (worker, entry) = (w.clone(), entry.clone());
    w.reactor.spawn(async move {
        let w = worker;
        if !cancel(&w, &conn).await {
            // The request may arrive later, and must not hit another client's statement.
            conn.doomed.store(true, Ordering::Relaxed);
        }
        entry.cancels.set(entry.cancels.get() - 1);
        w.reactor.wake(entry.task.get());
    });
}
