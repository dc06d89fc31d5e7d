//! A client's way in: first packet, login, welcome.
//!
//! A client is welcomed with the parameters a server reported for the same user, database and settings. The first such client
//! waits for a server; the others cost none.

use crate::aim;
use crate::fault::{Fault, sqlstate};
use crate::link::Link;
use crate::log::{Level, Who};
use crate::metrics::Metric;
use crate::reactor::parked;
use crate::relay;
use crate::session::Session;
use crate::session_card::Card;
use crate::shared::{Stop, seconds};
use crate::socket::Socket;
use crate::state::State;
use crate::worker::{Entry, PoolSet, Worker};
use quick_cache::unsync::Cache;
use std::cell::{Cell, RefCell};
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use weir_policy::passwd::Secret;
use weir_policy::settings::Settings;
use weir_wire::frame::{HEADER_BYTES, back, front, read_header};
use weir_wire::md5::Md5Secret;
use weir_wire::scram::{Binding, Nonce, Server, ServerSecret, Verifier, steady_salt};
use weir_wire::startup::{First, Startup, Version, read_first};
use weir_wire::write;

/// Welcomes a worker remembers.
const WELCOMES_MAX: usize = 256;

/// Longest message of a login. Source: `PG_MAX_AUTH_TOKEN_LENGTH` is 65535; passwords and SCRAM messages are far shorter.
const LOGIN_MESSAGE_BYTES_MAX: usize = 16 << 10;

/// Parameters reported to clients of one user, database and settings.
type Key = (Arc<str>, Arc<str>, Arc<Settings>);

/// The welcomes of a worker.
pub struct Welcomes(Cache<Key, Rc<[(String, String)]>>);

impl Default for Welcomes {
    fn default() -> Welcomes {
        Welcomes(Cache::new(WELCOMES_MAX))
    }
}

impl Welcomes {
    /// Forgets all: servers may report something else now.
    pub fn clear(&mut self) {
        *self = Welcomes::default();
    }
}

/// Receives one client; its session goes on as a task of its own, which is smaller than a login.
pub async fn welcome(w: Rc<Worker>, socket: Socket, peer: Option<SocketAddr>) {
    w.count(Metric::ClientsAccepted);
    let mut counted = Counted { w: w.clone(), is_session: false };
    if let Some(session) = enter(&w, socket, peer).await {
        counted.is_session = true;
        if w.peek_config().log.connections {
            w.log_client(&session.entry.card, "connection authorized");
        }
        let worker = w.clone();
        w.reactor.spawn(relay::serve(Box::new(session), worker));
    }
}

/// Uncounts a client whose login ended without a session, however it ended.
struct Counted {
    w: Rc<Worker>,
    is_session: bool,
}

impl Drop for Counted {
    fn drop(&mut self) {
        if !self.is_session {
            self.w.client_gone();
        }
    }
}

/// The login of one client.
struct Door<'a> {
    w: &'a Rc<Worker>,
    socket: Socket,
    peer: Option<SocketAddr>,
    buffer: Vec<u8>,
    deadline: Option<Instant>,
}

async fn enter(w: &Rc<Worker>, socket: Socket, peer: Option<SocketAddr>) -> Option<Session> {
    let timeout_ms = w.peek_config().authentication_timeout_ms;
    let deadline = (timeout_ms > 0).then(|| Instant::now() + Duration::from_millis(timeout_ms));
    let mut door = Door { w, socket, peer, buffer: Vec::new(), deadline };
    match door.first_packet().await {
        Ok(Some(startup)) => match door.log_in(&startup).await {
            Ok(session) => Some(door.into_session(session)),
            Err(fault) => {
                w.count(Metric::LoginsFailed);
                let user = startup.get("user").unwrap_or_default();
                let database = startup.get("database").unwrap_or(user);
                let who = Who { user, database, ..Who::default() };
                w.shared.log.write(Level::Log, &who, format_args!("login refused: {fault}"));
                door.refuse(&fault).await;
                None
            }
        },
        Ok(None) => None,
        Err(fault) => {
            door.refuse(&fault).await;
            None
        }
    }
}

/// A session that may begin.
struct Admitted {
    pools: Rc<PoolSet>,
    state: State,
    entry: Rc<Entry>,
}

impl Door<'_> {
    fn into_session(self, admitted: Admitted) -> Session {
        let w = self.w;
        let mut session = Session::new(self.socket, admitted.pools, admitted.state, admitted.entry);
        session.up.preload(&self.buffer, &w.buffers);
        session
    }

    async fn refuse(&self, fault: &Fault) {
        let mut out = Vec::new();
        fault.write(&mut out);
        let deadline = Some(Instant::now() + Duration::from_secs(5));
        // The client may be gone already; there is nobody else to tell.
        let _ = self.socket.write_all(&self.w.reactor, &out, deadline).await;
    }

    async fn send(&self, bytes: &[u8]) -> Result<(), Fault> {
        self.socket.write_soon(&self.w.reactor, bytes, self.deadline).await.map_err(|e| broke(&e))
    }

    async fn read_more(&mut self) -> Result<(), Fault> {
        let mut piece = [0u8; 2048];
        let bytes = self.socket.read(&self.w.reactor, &mut piece, self.deadline).await.map_err(|e| broke(&e))?;
        self.buffer.extend_from_slice(&piece[..bytes]);
        Ok(())
    }

    /// Reads packets without a tag until the one that begins a session. `None`: the connection had another purpose or ended.
    async fn first_packet(&mut self) -> Result<Option<Startup>, Fault> {
        loop {
            let read = read_first(&self.buffer).map_err(|e| Fault::fatal(sqlstate::PROTOCOL_VIOLATION, e.to_string()))?;
            let Some((first, bytes)) = read else {
                if self.read_more().await.is_err() {
                    return Ok(None);
                }
                continue;
            };
            // What follows an encryption request was sent by someone in between, before encryption could begin.
            let had_more = self.buffer.len() > bytes;
            self.buffer.drain(..bytes);
            match first {
                First::Ssl | First::GssEnc if had_more => {
                    let text = "received unencrypted data after an encryption request";
                    return Err(Fault::fatal(sqlstate::PROTOCOL_VIOLATION, text));
                }
                First::Ssl | First::GssEnc => self.send(b"N").await?,
                First::Cancel { pid, key } => {
                    self.w.route_cancel(pid, key);
                    return Ok(None);
                }
                First::Unsupported(version) => {
                    self.refuse_version(version).await;
                    return Ok(None);
                }
                First::Startup(startup) => return Ok(Some(startup)),
            }
        }
    }

    async fn refuse_version(&self, version: Version) {
        let text = format!("unsupported frontend protocol {}.{}: server supports 3.0 to 3.2", version.major(), version.minor());
        if version.major() >= 3 {
            return self.refuse(&Fault::fatal(sqlstate::FEATURE_NOT_SUPPORTED, text)).await;
        }
        let mut out = Vec::new();
        write::error_v2(&mut out, &text);
        let _ = self.socket.write_all(&self.w.reactor, &out, self.deadline).await;
    }

    async fn log_in(&mut self, startup: &Startup) -> Result<Admitted, Fault> {
        self.check_room()?;
        let user = startup.get("user").filter(|user| !user.is_empty());
        let user = user.ok_or_else(|| {
            Fault::fatal(sqlstate::INVALID_AUTHORIZATION, "no PostgreSQL user name specified in startup packet")
        })?;
        let database = startup.get("database").filter(|name| !name.is_empty()).unwrap_or(user);
        if let Some(value) = startup.get("replication").filter(|v| !matches!(*v, "false" | "off" | "no" | "0")) {
            let text = format!("replication connections are not supported yet (replication={value})");
            return Err(Fault::fatal(sqlstate::FEATURE_NOT_SUPPORTED, text).hint("Connect to the server itself."));
        }
        let settings = Settings::of_startup(startup).map_err(|e| Fault::fatal(sqlstate::FEATURE_NOT_SUPPORTED, e.to_string()))?;
        let mut out = Vec::with_capacity(512);
        if startup.version > Version::V3_2 || !startup.protocol_options.is_empty() {
            let newest = startup.version.min(Version::V3_2);
            write::negotiate_version(&mut out, newest, &startup.protocol_options);
            self.send(&out).await?;
            out.clear();
        }
        self.authenticate(user).await?;
        let pools = self.w.pool_set(user, database);
        let application = settings.get("application_name").unwrap_or_default().to_string();
        // Any application_name is accepted as it is and changes nothing else, so clients that differ in it only share the rest.
        let nameless = self.w.shared.intern_settings(settings.without("application_name")).0;
        let meaning = self.w.shared.intern_settings(settings.meaning()).1;
        let (settings, _) = self.w.shared.intern_settings(settings);
        let reported = reported(self.w, &self.socket, &pools, nameless).await;
        let reported = reported.inspect_err(|_| self.w.forget_pool_set(&pools))?;
        write::authentication(&mut out, 0, &[]);
        for (name, value) in reported.iter() {
            let value = if name == "application_name" { &application } else { value };
            write::parameter_status(&mut out, name, value);
        }
        let entry = self.entry(&pools, &application, startup.version)?;
        write::backend_key_data(&mut out, entry.card.pid, &entry.key);
        write::ready(&mut out, crate::session::IDLE);
        self.w.shared.cards.add(entry.card.clone());
        if let Err(fault) = self.send(&out).await {
            self.w.leave(&entry);
            self.w.shared.cards.remove(entry.card.pid);
            return Err(fault);
        }
        let state = State::new(settings, meaning, self.w.shared.no_statements.clone());
        Ok(Admitted { pools, state, entry })
    }

    fn check_room(&self) -> Result<(), Fault> {
        let shared = &self.w.shared;
        if shared.stop_mode() != Stop::No {
            return Err(Fault::fatal(sqlstate::CANNOT_CONNECT_NOW, "the proxy is shutting down"));
        }
        let max = self.w.peek_config().pool.max_clients;
        let clients = shared.clients.load(std::sync::atomic::Ordering::Relaxed);
        if clients > max {
            self.w.count(Metric::ClientsRefused);
            let text = format!("sorry, too many clients already: max_client_connections = {max}");
            return Err(Fault::fatal(sqlstate::TOO_MANY_CONNECTIONS, text));
        }
        Ok(())
    }

    fn entry(&self, pools: &PoolSet, application: &str, version: Version) -> Result<Rc<Entry>, Fault> {
        let (host, port) = self.peer.map_or(("[local]".to_string(), 0), |peer| (peer.ip().to_string(), peer.port()));
        let now_s = seconds(SystemTime::now());
        // Longer keys came with protocol 3.2.
        let key: Box<[u8]> =
            if version >= Version::V3_2 { Box::new(crate::random::<32>()) } else { Box::new(crate::random::<4>()) };
        let (user, database) = (pools.user.clone(), pools.database.clone());
        let entry = self.w.enter(|pid| Entry {
            card: Arc::new(Card::new(pid, user, database, application, &host, port, now_s)),
            key,
            task: Cell::new(self.w.reactor.current_task()),
            link: RefCell::default(),
            cancels: Cell::new(0),
            is_ours: Cell::new(false),
            cancel_waits: Cell::new(false),
            wait_cancelled: Cell::new(false),
            active_at: Cell::new(self.w.reactor.now()),
            farewell: RefCell::default(),
        });
        entry.ok_or_else(|| Fault::fatal(sqlstate::TOO_MANY_CONNECTIONS, "no more sessions can be numbered on this worker"))
    }

    /// Asks for the proof that the entry in pool_passwd allows. A user without an entry is let in as far as the servers trust him.
    async fn authenticate(&mut self, user: &str) -> Result<(), Fault> {
        let generation = self.w.shared.passwords_generation.load(std::sync::atomic::Ordering::Acquire);
        let passwords = self.w.shared.passwords.load_full();
        match passwords.get(user.as_bytes()) {
            None => Ok(()),
            Some(Secret::Md5(secret)) => self.ask_md5(user, secret).await,
            Some(Secret::Plain(password)) => {
                let known = self.w.verifiers.borrow().get(user).filter(|(of, _)| *of == generation).map(|(_, v)| v.clone());
                let verifier = known.unwrap_or_else(|| {
                    let salt = steady_salt(&self.w.shared.salt_secret, user.as_bytes());
                    let verifier = Verifier::from_password(password, &salt);
                    self.w.verifiers.borrow_mut().insert(user.into(), (generation, verifier.clone()));
                    verifier
                });
                self.ask_scram(user, verifier).await
            }
            Some(Secret::Scram(verifier)) => self.ask_scram(user, verifier.clone()).await,
            Some(Secret::Aes(_)) => {
                let text =
                    format!("the password of user \"{user}\" in pool_passwd is encrypted (AES), which is not supported yet");
                self.w.shared.log.say(Level::Warning, format_args!("{text}"));
                Err(wrong_password(user))
            }
        }
    }

    async fn ask_md5(&mut self, user: &str, secret: &Md5Secret) -> Result<(), Fault> {
        let salt: [u8; 4] = crate::random();
        let mut out = Vec::new();
        write::authentication(&mut out, 5, &salt);
        self.send(&out).await?;
        let body = self.password_message().await?;
        let response = body.strip_suffix(&[0]).unwrap_or(&body);
        if secret.verify(salt, response) { Ok(()) } else { Err(wrong_password(user)) }
    }

    async fn ask_scram(&mut self, user: &str, verifier: Verifier) -> Result<(), Fault> {
        let mut out = Vec::new();
        write::authentication(&mut out, 10, b"SCRAM-SHA-256\0\0");
        self.send(&out).await?;
        let malformed = || Fault::fatal(sqlstate::PROTOCOL_VIOLATION, "malformed SASLInitialResponse");
        let body = self.password_message().await?;
        let (mechanism, rest) = weir_wire::frame::split_cstr(&body).ok_or_else(malformed)?;
        if mechanism != b"SCRAM-SHA-256" {
            return Err(Fault::fatal(sqlstate::PROTOCOL_VIOLATION, "client selected an invalid SASL authentication mechanism"));
        }
        let (length, first) = rest.split_first_chunk::<4>().ok_or_else(malformed)?;
        if u32::from_be_bytes(*length) as usize != first.len() {
            return Err(malformed());
        }
        let nonce = Nonce::from_random(&crate::random());
        let mut server = Server::new(ServerSecret::Known(verifier), nonce, Binding::None);
        let protocol = |e: weir_wire::scram::ScramError| Fault::fatal(sqlstate::PROTOCOL_VIOLATION, e.to_string());
        let challenge = server.on_client_first(first).map_err(protocol)?;
        out.clear();
        write::authentication(&mut out, 11, &challenge);
        self.send(&out).await?;
        let body = self.password_message().await?;
        let accepted = server.on_client_final(&body).map_err(|error| match error {
            weir_wire::scram::ScramError::Proof => wrong_password(user),
            other => protocol(other),
        })?;
        out.clear();
        write::authentication(&mut out, 12, &accepted.message);
        self.send(&out).await
    }

    async fn password_message(&mut self) -> Result<Vec<u8>, Fault> {
        loop {
            let protocol = |text: String| Fault::fatal(sqlstate::PROTOCOL_VIOLATION, text);
            if let Some(header) = read_header(&self.buffer).map_err(|e| protocol(e.to_string()))? {
                if header.tag != front::PASSWORD {
                    return Err(protocol(format!("expected password response, got message type {}", header.tag)));
                }
                if header.frame_bytes() > LOGIN_MESSAGE_BYTES_MAX {
                    return Err(protocol(format!("password message of {} bytes", header.frame_bytes())));
                }
                if self.buffer.len() >= header.frame_bytes() {
                    let body = self.buffer[HEADER_BYTES..header.frame_bytes()].to_vec();
                    self.buffer.drain(..header.frame_bytes());
                    return Ok(body);
                }
            }
            self.read_more().await?;
        }
    }
}

fn broke(cause: &io::Error) -> Fault {
    match cause.kind() {
        io::ErrorKind::TimedOut => {
            Fault::fatal(sqlstate::ADMIN_SHUTDOWN, "canceling authentication due to timeout (authentication_timeout)")
        }
        _ => Fault::fatal(sqlstate::CONNECTION_FAILURE, format!("the client went away during login: {cause}")),
    }
}

fn wrong_password(user: &str) -> Fault {
    Fault::fatal(sqlstate::INVALID_PASSWORD, format!("password authentication failed for user \"{user}\""))
}

/// What a server reports to a client of this user and database with these settings: remembered, or asked of a server.
async fn reported(
    w: &Rc<Worker>,
    client: &Socket,
    pools: &PoolSet,
    settings: Arc<Settings>,
) -> Result<Rc<[(String, String)]>, Fault> {
    let key = (pools.user.clone(), pools.database.clone(), settings);
    if let Some(known) = w.welcomes.borrow().0.get(&key) {
        return Ok(known.clone());
    }
    let mut link = any_link(w, client, pools).await?;
    let configured = configure(w, &mut link, &key.2).await;
    let reported: Rc<[(String, String)]> = link.reported.as_slice().into();
    let pool = link.pool.clone();
    match configured {
        Ok(()) => pool.give_back(w, link),
        Err(fault) => {
            w.close_link(link);
            return Err(fault);
        }
    }
    w.welcomes.borrow_mut().0.insert(key, reported.clone());
    Ok(reported)
}

/// A link to the primary, or to whatever server is up when there is none.
async fn any_link(w: &Rc<Worker>, client: &Socket, pools: &PoolSet) -> Result<Box<Link>, Fault> {
    let started = Instant::now();
    loop {
        let (node, known) = {
            let view = w.view();
            let at = view.primary.or_else(|| (0..view.nodes.len()).find(|&at| view.is_up(at)));
            (at.map(|at| view.nodes[at].id), view.primary.is_some())
        };
        // Shortly after the start the primary may only be not found yet.
        let patience = Duration::from_secs(if known { 0 } else { 2 });
        if let Some(node) = node.filter(|_| known || started.elapsed() >= patience) {
            return lease_for_login(w, client, pools, node).await;
        }
        let limit_ms = w.peek_config().pool.wait_timeout_ms;
        if (limit_ms > 0 && started.elapsed() >= Duration::from_millis(limit_ms)) || client.is_closed() {
            return Err(Fault::fatal(sqlstate::CANNOT_CONNECT_NOW, "no server can be reached")
                .hint("Look at the log, and whether the servers run and sr_check_user may log in to them."));
        }
        w.shared.nudge_prober();
        w.wake_at_new_view();
        w.reactor.wake_at(Instant::now() + Duration::from_millis(250));
        parked().await;
    }
}

async fn lease_for_login(w: &Rc<Worker>, client: &Socket, pools: &PoolSet, node: u16) -> Result<Box<Link>, Fault> {
    let pool = pools.of_node(w, node);
    aim::lease_link(w, &pool, node, || client.is_closed()).await?.map_err(|error| {
        w.shared.nudge_prober();
        match &error {
            // A user without an entry in pool_passwd is let in if the servers trust him; they do not.
            crate::link::OpenError::Secret { .. } => {
                w.shared.log.say(Level::Log, format_args!("{error}"));
                wrong_password(&pools.user)
            }
            _ => error.fault().as_fatal(),
        }
    })
}

/// Brings a link to a session's settings and sees that the server takes them.
async fn configure(w: &Rc<Worker>, link: &mut Link, settings: &Arc<Settings>) -> Result<(), Fault> {
    if Arc::ptr_eq(&link.settings, settings) {
        return Ok(());
    }
    let sql = link.settings.change_to(settings);
    link.settings = settings.clone();
    link.unnamed = None;
    if sql.is_empty() {
        return Ok(());
    }
    link.socket.set_task(w.reactor.current_task());
    let mut out = Vec::new();
    write::query(&mut out, &sql);
    let address = link.card.address.clone();
    let deadline = Some(Instant::now() + Duration::from_secs(60));
    let lost =
        |cause: io::Error| Fault::fatal(sqlstate::CONNECTION_FAILURE, format!("connection to {address} was lost: {cause}"));
    link.socket.write_all(&w.reactor, &out, deadline).await.map_err(lost)?;
    let mut buffer = Vec::new();
    let mut refused = None;
    loop {
        while let Ok(Some(header)) = read_header(&buffer) {
            if buffer.len() < header.frame_bytes() {
                break;
            }
            let body: Vec<u8> = buffer[HEADER_BYTES..header.frame_bytes()].to_vec();
            buffer.drain(..header.frame_bytes());
            match header.tag {
                back::PARAMETER_STATUS => link.report(&body),
                back::ERROR => {
                    let report = weir_wire::back::read_report(&body);
                    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                    refused = Some(Fault::fatal(&text(report.sqlstate), text(report.message)));
                }
                back::READY => return refused.map_or(Ok(()), Err),
                _ => {}
            }
        }
        let mut piece = [0u8; 2048];
        let bytes = link.socket.read(&w.reactor, &mut piece, deadline).await.map_err(lost)?;
        buffer.extend_from_slice(&piece[..bytes]);
    }
}
