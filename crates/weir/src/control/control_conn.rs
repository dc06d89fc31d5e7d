//! A server connection of the control thread.
//!
//! No driver: a log is followed over it, a proof may be made of keys without a password, and operators read the same words as of
//! other server connections. The login is `server_login::LoginHandshake`.

use crate::auth::access::SaltedPassword;
use crate::auth::own_login::{self, OwnUse};
use crate::runtime::bounds;
use crate::runtime::pool::conn_opening::is_worth_another;
use crate::runtime::pool::server_conn::SlowAnswerError;
use crate::runtime::pool::server_conn::{MESSAGE_BYTES_MAX, OpenError, Rows, ServerAddress, ServerLogin, flooded, tcp_options};
use crate::runtime::pool::server_login::{LoginChannel, LoginHandshake, LoginStep, ServerGreeting, protocol, refused};
use crate::runtime::shared::SharedState;
use crate::runtime::tls_choice::{CertificateCheck, TlsAttempt, plan};
use crate::runtime::tls_files::certificate::end_point;
use crate::runtime::tls_files::server_name;
use rustix::net::{RecvFlags, Shutdown};
use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use weir_config::{CheckConfig, Config};
use weir_io::socket::set_tcp;
use weir_io::tls::explain;
use weir_sql::own;
use weir_wire::frame::{HEADER_BYTES, back, front, read_header};
use weir_wire::gather::{GatherBound, GatherBudget, message_cost};
use weir_wire::scram::{SaltedKeys, ScramChallenge, fingerprint};
use weir_wire::{back as server, write};
use zeroize::Zeroizing;

const CANCEL_TIMEOUT: Duration = Duration::from_secs(5);

const IDLE_PERIOD: Duration = Duration::from_secs(3600);

/// A server that goes on sending is ignored.
const UNREAD_READS_MAX: usize = 64;

const PIECE_BYTES: usize = 4096;

enum ControlStream {
    Tcp(TcpStream),
    Unix(UnixStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl ControlStream {
    /// Cancel safe.
    async fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let bytes = match self {
            ControlStream::Tcp(stream) => stream.read(buffer).await?,
            ControlStream::Unix(stream) => stream.read(buffer).await?,
            ControlStream::Tls(stream) => stream.read(buffer).await?,
        };
        if bytes == 0 { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(bytes) }
    }

    /// Not cancel safe: a part may be sent.
    async fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            ControlStream::Tcp(stream) => stream.write_all(bytes).await,
            ControlStream::Unix(stream) => stream.write_all(bytes).await,
            ControlStream::Tls(stream) => {
                stream.write_all(bytes).await?;
                stream.flush().await
            }
        }
    }
}

impl ControlStream {
    /// Sends what the server takes at once, then the end of TLS: without it the server logs a broken connection.
    fn part(&mut self, farewell: &[u8]) {
        // The close tells a busy server all the same.
        let _ = match self {
            ControlStream::Tcp(stream) => stream.try_write(farewell),
            ControlStream::Unix(stream) => stream.try_write(farewell),
            ControlStream::Tls(stream) => {
                let (socket, session) = stream.get_mut();
                let said = session.writer().write_all(farewell);
                session.send_close_notify();
                said.and_then(|()| {
                    while session.wants_write() {
                        session.write_tls(&mut AtOnce(socket))?;
                    }
                    Ok(0)
                })
            }
        };
        let socket = match &*self {
            ControlStream::Tcp(stream) => stream.as_fd(),
            ControlStream::Unix(stream) => stream.as_fd(),
            ControlStream::Tls(stream) => stream.get_ref().0.as_fd(),
        };
        // Data may arrive after the last read: a close with unread data is a reset, which the server logs, but not behind an end.
        let _ = rustix::net::shutdown(socket, Shutdown::Write);
        let mut unread = [0; PIECE_BYTES];
        for _ in 0..UNREAD_READS_MAX {
            match rustix::net::recv(socket, &mut unread, RecvFlags::DONTWAIT) {
                Ok((bytes, _)) if bytes > 0 => {}
                Ok(_) | Err(_) => break,
            }
        }
    }
}

struct AtOnce<'a>(&'a TcpStream);

impl Write for AtOnce<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ServerFarewell {
    /// During a login a plain close causes no log line.
    None,
    Terminate,
}

pub struct ControlConn {
    stream: ControlStream,
    farewell: ServerFarewell,
    pub(crate) address: ServerAddress,
    /// Microseconds since the start of the proxy.
    begun_us: u64,
    inbox: Vec<u8>,
    budget: GatherBudget,
    deadline: Instant,
}

impl Drop for ControlConn {
    fn drop(&mut self) {
        let mut words = Vec::new();
        match self.farewell {
            ServerFarewell::None => {}
            ServerFarewell::Terminate => write::bare(&mut words, front::TERMINATE),
        }
        self.stream.part(&words);
    }
}

/// As cancel safe as the work.
async fn within<T>(deadline: Instant, work: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    timeout_at(deadline, work).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

impl ControlConn {
    /// Logs in as the health check's user. Cancel safe.
    pub async fn open(
        shared: &Arc<SharedState>,
        config: &Config,
        node: u16,
        parameters: &[(&str, &str)],
        deadline: Instant,
    ) -> Result<ControlConn, OpenError> {
        let Some(known) = config.nodes.iter().find(|known| known.id == node) else { return Err(OpenError::Gone { node }) };
        let address = ServerAddress {
            node,
            shard: 0,
            hostname: known.hostname.clone(),
            port: known.port,
            connect_timeout_ms: known.connect_timeout_ms,
            ssl_mode: known.ssl_mode,
        };
        let own = CheckConfig {
            user: known.health.user.clone(),
            password: known.health.password.clone(),
            database: known.health.database.clone(),
            ..config.check.clone()
        };
        let check = if known.health.user.is_empty() { &config.check } else { &own };
        let files = shared.access.files();
        let (user, secret) = files.checker(check);
        let login = ServerLogin { user, database: &check.database, secret: secret.as_deref(), generation: 0, parameters };
        ControlConn::log_in(shared, &address, &login, OwnUse::Questions, deadline).await.map(|(conn, _)| conn)
    }

    /// Uses settings that nobody else chose (`own_login`). Cancel safe: the connection is closed.
    pub async fn log_in(
        shared: &Arc<SharedState>,
        address: &ServerAddress,
        login: &ServerLogin<'_>,
        of: OwnUse,
        deadline: Instant,
    ) -> Result<(ControlConn, ServerGreeting), OpenError> {
        let parameters: Vec<(&str, &str)> = own_login::in_packet(of).chain(login.parameters.iter().copied()).collect();
        let ServerLogin { user, database, secret, generation, .. } = *login;
        let login = &ServerLogin { user, database, secret, generation, parameters: &parameters };
        let plan = {
            let has_authorities = shared.files.tls.load().client.as_ref().is_some_and(|side| side.has_authorities);
            let ssl = shared.config.load().tls.enabled;
            plan(address.ssl_mode, ssl, has_authorities, address.hostname.starts_with('/'))
        };
        let mut attempts = plan.attempts.iter().peekable();
        loop {
            let attempt = attempts.next().copied().unwrap_or(TlsAttempt::Plain);
            let entered = async {
                let mut conn = ControlConn::connect(shared, address, (attempt, plan.check), deadline).await?;
                let greeting = conn.prove(shared, login).await?;
                let words = own_login::after_login(of, greeting.reported("server_version"), greeting.reported("server_encoding"));
                if let Some(words) = words {
                    conn.query(&words).await?;
                }
                Ok((conn, greeting))
            };
            match entered.await {
                Err(error) if attempts.peek().is_some() && is_worth_another(&error) => {}
                outcome => return outcome,
            }
        }
    }

    /// True if the node's address now leads to another server.
    pub fn is_left(&self, shared: &SharedState) -> bool {
        self.begun_us < shared.stale.moves.moved_us(self.address.node)
    }

    /// Cancel safe: the connection is closed.
    async fn connect(
        shared: &Arc<SharedState>,
        address: &ServerAddress,
        (attempt, check): (TlsAttempt, CertificateCheck),
        deadline: Instant,
    ) -> Result<ControlConn, OpenError> {
        let failed = |cause| OpenError::Connect { address: address.clone(), cause };
        let begun_us = shared.begun.elapsed().as_micros() as u64;
        let over = |stream| ControlConn {
            stream,
            farewell: ServerFarewell::None,
            address: address.clone(),
            begun_us,
            inbox: Vec::new(),
            budget: GatherBudget::new(bounds::LOGIN),
            deadline,
        };
        if address.hostname.starts_with('/') {
            let path = PathBuf::from(&address.hostname).join(format!(".s.PGSQL.{}", address.port));
            return Ok(over(ControlStream::Unix(within(deadline, UnixStream::connect(path)).await.map_err(failed)?)));
        }
        let stream = within(deadline, connect_any(shared, address, deadline)).await.map_err(failed)?;
        match attempt {
            TlsAttempt::Plain => Ok(over(ControlStream::Tcp(stream))),
            TlsAttempt::Willing | TlsAttempt::Encrypted => {
                Ok(over(encrypt(shared, stream, address, (attempt, check), deadline).await?))
            }
        }
    }

    /// Not cancel safe: the server would wait for the rest.
    async fn prove(&mut self, shared: &Arc<SharedState>, login: &ServerLogin<'_>) -> Result<ServerGreeting, OpenError> {
        let address = self.address.clone();
        let wish = shared.config.load().tls.binding;
        let (mut handshake, first) = LoginHandshake::begin(&address, login, wish, self.channel());
        self.begin(&first, &bounds::LOGIN).await?;
        loop {
            let (tag, body) = self.next().await?;
            match handshake.on_message(tag, &body, crate::random)? {
                LoginStep::Wait => {}
                LoginStep::Send(answer) => self.send(&answer).await?,
                LoginStep::Derive(password, challenge) => {
                    let keys = derive(shared, password, challenge, self.deadline).await;
                    self.send(&handshake.derived(keys)?).await?;
                }
                LoginStep::Done => {
                    self.farewell = ServerFarewell::Terminate;
                    return Ok(handshake.finish());
                }
            }
        }
    }

    fn channel(&self) -> LoginChannel {
        match &self.stream {
            ControlStream::Tcp(_) | ControlStream::Unix(_) => LoginChannel::default(),
            ControlStream::Tls(stream) => {
                let certificate = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
                LoginChannel { is_encrypted: true, end_point: certificate.and_then(end_point) }
            }
        }
    }

    pub fn is_encrypted(&self) -> bool {
        matches!(self.stream, ControlStream::Tls(_))
    }

    pub fn renew(&mut self, deadline: Instant) {
        self.deadline = deadline;
    }

    pub fn take_rest(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.inbox)
    }

    fn broke(&self, cause: io::Error) -> OpenError {
        OpenError::Broke { address: self.address.clone(), cause }
    }

    /// Not cancel safe: a part may be sent.
    async fn begin(&mut self, bytes: &[u8], bound: &GatherBound) -> Result<(), OpenError> {
        self.budget = GatherBudget::new(*bound);
        self.send(bytes).await
    }

    /// Not cancel safe: a part may be sent.
    pub async fn send(&mut self, bytes: &[u8]) -> Result<(), OpenError> {
        let sent = within(self.deadline, self.stream.write_all(bytes)).await;
        sent.map_err(|cause| self.broke(cause))
    }

    /// Reads bytes past the messages. `TimedOut` at the deadline. Cancel safe.
    pub async fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        within(self.deadline, self.stream.read(buffer)).await
    }

    /// Cancel safe.
    pub async fn next(&mut self) -> Result<(u8, Vec<u8>), OpenError> {
        loop {
            let header = read_header(&self.inbox).map_err(|error| protocol(&self.address, error.to_string()))?;
            if let Some(header) = header {
                if header.frame_bytes() > MESSAGE_BYTES_MAX {
                    return Err(protocol(&self.address, format!("a message of {} bytes", header.frame_bytes())));
                }
                self.budget.check_next(header.frame_bytes()).map_err(|cause| flooded(&self.address, cause))?;
                if self.inbox.len() >= header.frame_bytes() {
                    let body = self.inbox[HEADER_BYTES..header.frame_bytes()].to_vec();
                    self.inbox.drain(..header.frame_bytes());
                    self.budget.take(message_cost(header.tag, &body)).map_err(|cause| flooded(&self.address, cause))?;
                    return Ok((header.tag, body));
                }
            }
            self.more().await?;
        }
    }

    /// Returns the server's last error, if any. Cancel safe.
    pub async fn ended(&mut self) -> Option<OpenError> {
        (self.deadline, self.budget) = (Instant::now() + IDLE_PERIOD, GatherBudget::new(bounds::REST));
        loop {
            match self.next().await {
                Ok((back::ERROR, body)) => return Some(refused(&self.address, &body)),
                // A changed parameter, or a notice.
                Ok(_) => {}
                Err(OpenError::Broke { cause, .. }) if cause.kind() == io::ErrorKind::TimedOut => {
                    (self.deadline, self.budget) = (Instant::now() + IDLE_PERIOD, GatherBudget::new(bounds::REST));
                }
                Err(flooded @ OpenError::Flooded { .. }) => return Some(flooded),
                Err(_) => return None,
            }
        }
    }

    /// Cancel safe.
    async fn more(&mut self) -> Result<(), OpenError> {
        let mut piece = [0; PIECE_BYTES];
        let bytes = within(self.deadline, self.stream.read(&mut piece)).await.map_err(|cause| self.broke(cause))?;
        self.inbox.extend_from_slice(&piece[..bytes]);
        Ok(())
    }

    /// `next` reads the answer. Not cancel safe.
    pub async fn ask(&mut self, sql: &str) -> Result<(), OpenError> {
        own::check(sql);
        self.ask_unchecked(sql, &bounds::ANSWER).await
    }

    /// Relies on the `search_path` of these connections. Not cancel safe.
    pub async fn ask_catalog(&mut self, question: weir_catalog::CatalogQuery) -> Result<(), OpenError> {
        let bound = match question {
            weir_catalog::CatalogQuery::Part(_) | weir_catalog::CatalogQuery::ShardReaders => &bounds::CATALOG_PART,
            weir_catalog::CatalogQuery::Fingerprint
            | weir_catalog::CatalogQuery::Defaults
            | weir_catalog::CatalogQuery::Answers => &bounds::ANSWER,
        };
        self.ask_unchecked(question.sql(), bound).await
    }

    async fn ask_unchecked(&mut self, sql: &str, bound: &GatherBound) -> Result<(), OpenError> {
        let mut out = Vec::with_capacity(sql.len() + HEADER_BYTES + 1);
        write::query(&mut out, sql);
        self.begin(&out, bound).await
    }

    /// Returns rows as text. A server's error is `Refused`. Not cancel safe.
    pub async fn query(&mut self, sql: &str) -> Result<Rows, OpenError> {
        self.ask(sql).await?;
        self.rows().await
    }

    /// Not cancel safe.
    pub async fn query_catalog(&mut self, question: weir_catalog::CatalogQuery) -> Result<Rows, OpenError> {
        self.ask_catalog(question).await?;
        self.rows().await
    }

    /// Allows a function outside of `pg_catalog` whose schema and owner were checked, and tables of users by their schemas. Not cancel safe.
    pub async fn query_by_name(&mut self, sql: &str) -> Result<Rows, OpenError> {
        self.ask_unchecked(sql, &bounds::ANSWER).await?;
        self.rows().await
    }

    /// Begins a COPY; its rows are passed on and not gathered. `next` reads the answer. Not cancel safe.
    pub async fn ask_copy(&mut self, sql: &str) -> Result<(), OpenError> {
        self.ask_unchecked(sql, &bounds::COPIED_ROWS).await
    }

    async fn rows(&mut self) -> Result<Rows, OpenError> {
        let (mut rows, mut error) = (Vec::new(), None);
        loop {
            let (tag, body) = self.next().await?;
            match tag {
                back::DATA_ROW => rows.push(read_row(&self.address, &body)?),
                back::ERROR => error = Some(refused(&self.address, &body)),
                back::READY => return error.map_or(Ok(rows), Err),
                _ => {}
            }
        }
    }

    /// Waits until the server closes the connection. Errors go to the log. Cancel safe: the request may not be sent.
    pub async fn cancel(shared: Arc<SharedState>, address: ServerAddress, is_encrypted: bool, (pid, key): (u32, Vec<u8>)) {
        let deadline = Instant::now() + CANCEL_TIMEOUT;
        let has_authorities = shared.files.tls.load().client.as_ref().is_some_and(|side| side.has_authorities);
        let way = match is_encrypted {
            true => (TlsAttempt::Encrypted, plan(address.ssl_mode, true, has_authorities, false).check),
            false => (TlsAttempt::Plain, CertificateCheck::Nothing),
        };
        let asked = async {
            let mut conn = ControlConn::connect(&shared, &address, way, deadline).await?;
            let mut out = Vec::new();
            write::cancel_request(&mut out, pid, &key);
            conn.send(&out).await?;
            let _ = conn.read(&mut [0]).await;
            Ok::<_, OpenError>(())
        };
        if let Err(error) = asked.await {
            let text = format_args!("server connection to {address}: cancel request failed: {error}");
            shared.log.say(crate::log::Level::Log, text);
        }
    }
}

pub fn read_row(address: &ServerAddress, body: &[u8]) -> Result<Vec<Option<String>>, OpenError> {
    let row = server::read_row(body).ok_or_else(|| protocol(address, "malformed row"))?;
    Ok(row.into_iter().map(|cell| cell.map(|cell| String::from_utf8_lossy(cell).into_owned())).collect())
}

/// Cancel safe.
async fn resolve(shared: &Arc<SharedState>, hostname: &str, deadline: Instant) -> io::Result<Vec<IpAddr>> {
    if let Ok(ip) = hostname.parse() {
        return Ok(vec![ip]);
    }
    let (done, answered) = oneshot::channel();
    let wake = move || {
        let _ = done.send(());
    };
    let question = shared.ask_name(hostname, deadline.into_std(), Box::new(wake));
    let _ = timeout_at(question.until.into(), answered).await;
    shared.addresses(hostname, &question)
}

/// Cancel safe.
async fn connect_any(shared: &Arc<SharedState>, address: &ServerAddress, deadline: Instant) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for ip in resolve(shared, &address.hostname, deadline).await? {
        match within(deadline, TcpStream::connect(SocketAddr::new(ip, address.port))).await {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                set_tcp(&socket2::SockRef::from(&stream), &tcp_options(&shared.config.load().tcp))?;
                return Ok(stream);
            }
            Err(cause) => last = cause,
        }
    }
    Err(last)
}

/// Cancel safe: the connection is closed.
async fn encrypt(
    shared: &SharedState,
    mut stream: TcpStream,
    address: &ServerAddress,
    (attempt, check): (TlsAttempt, CertificateCheck),
    deadline: Instant,
) -> Result<ControlStream, OpenError> {
    let no_tls = |reason: String| OpenError::Tls { address: address.clone(), reason };
    let broke = |cause| OpenError::Broke { address: address.clone(), cause };
    let mut out = Vec::new();
    write::ssl_request(&mut out);
    within(deadline, stream.write_all(&out)).await.map_err(broke)?;
    let mut answer = [0];
    // Only the answer is read: clear text behind it fails as TLS.
    within(deadline, stream.read_exact(&mut answer)).await.map_err(broke)?;
    match (answer[0], attempt) {
        (b'S', _) => {}
        (b'N', TlsAttempt::Willing) => return Ok(ControlStream::Tcp(stream)),
        (b'N', _) => return Err(no_tls("the server does not have it, and backend_sslmode demands it".into())),
        _ => return Err(protocol(address, "unexpected answer to the request for TLS")),
    }
    let Some(side) = shared.files.tls.load().client.clone() else {
        return Err(no_tls("the configuration has just been changed".into()));
    };
    let name = server_name(check, &address.hostname).map_err(|cause| no_tls(cause.to_string()))?;
    let begun = within(deadline, TlsConnector::from(side.config(check)).connect(name, stream)).await;
    let stream = begun.map_err(|cause| match cause.kind() {
        // A lost connection says nothing of TLS.
        io::ErrorKind::TimedOut
        | io::ErrorKind::ConnectionReset
        | io::ErrorKind::ConnectionAborted
        | io::ErrorKind::BrokenPipe
        | io::ErrorKind::UnexpectedEof => broke(cause),
        _ => no_tls(explain(&cause)),
    })?;
    Ok(ControlStream::Tls(Box::new(stream)))
}

/// Cancel safe.
async fn derive(
    shared: &Arc<SharedState>,
    password: Zeroizing<Vec<u8>>,
    challenge: ScramChallenge,
    deadline: Instant,
) -> Result<SaltedKeys, SlowAnswerError> {
    let key = SaltedPassword { password: fingerprint(&shared.access.salt_secret, &password), challenge };
    if let Some(keys) = shared.access.keys.known(&key) {
        return Ok(keys);
    }
    let challenge = key.challenge.clone();
    let work = tokio::task::spawn_blocking(move || SaltedKeys::derive(&password, &challenge.salt, challenge.iterations));
    match timeout_at(deadline, work).await {
        Ok(Ok(keys)) => {
            shared.access.keys.learn(&key, keys.clone());
            Ok(keys)
        }
        Ok(Err(_)) | Err(_) => Err(SlowAnswerError::TimedOut),
    }
}
