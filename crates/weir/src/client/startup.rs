//! A client's login: first packet, authentication, greeting.
//!
//! Parameters reported for the same user, database and settings are remembered: only the first such client waits for a server.

mod client_proof;
mod encrypt;
mod login_gate;
pub mod notice_level;
mod place;
mod replicate;
mod unread_bytes;

use crate::admin::console::{self, ConsoleRight};
use crate::auth::client_limits::{ClientLimit, CountedClient, LoginCounts};
use crate::auth::greetings::{APPLICATION_NAME, ClientGreeting, InternedSettings, StartupIdentity, StartupSettings};
use crate::client::peer_cancels;
use crate::client::startup::login_gate::{LoginAdmission, LoginIdentity, wrong_password};
use crate::client::startup::unread_bytes::UnreadBytes;
use crate::log::{Level, LogOrigin};
use crate::runtime::lease;
use crate::runtime::mail::RoleCheckReason;
use crate::runtime::pool::conn_opening;
use crate::runtime::pool::server_conn::{OpenError, ServerConn};
use crate::runtime::pool::{CheckoutPatience, CheckoutWait, PoolPurpose};
use crate::runtime::shared::{ProxyShutdown, SharedState, seconds};
use crate::runtime::tls_files::certificate::CertificateSubject;
use crate::runtime::user_roles::{self, RoleCertainty};
use crate::runtime::worker::{CancelKey, PoolSet, SessionEntry, Worker};
use crate::server::first_look::{self, CatalogWaitEnd};
use crate::server::vouch;
use crate::traffic::relay;
use crate::traffic::served::{ServedSession, SessionSockets};
use crate::traffic::session_ports::SessionHost;
use place::LoginProver;
use std::cell::RefCell;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use weir_config::PoolMode;
use weir_config::hba::ReplicationRequest;
use weir_config::limits::{self, ClientsMax};
use weir_io::reactor::parked;
use weir_io::socket::Socket;
use weir_session::checkout::pool_grant::LoginRefusal;
use weir_session::conn::of_database;
use weir_session::fault::{ErrorReport, sqlstate};
use weir_session::handle::SessionHandle;
use weir_session::metrics::WorkerCounter;
use weir_session::session::Session;
use weir_session::session_state::client_settings::{SettingValues, SettingsError};
use weir_session::session_state::held_state::HeldState;
use weir_session::stats::StatCounter;
use weir_session::status::{ClientEndpoints, ClientIdentity, SessionStatus};
use weir_wire::startup_packet::{
    FirstPacket, NAME_BYTES_MAX, OptionsError, ProtocolVersion, StartupMessage, cut_name, read_first,
};
use weir_wire::write;

/// Time for a server to name a user's role; then his server connections are closed.
const ROLE_LIMIT: Duration = Duration::from_secs(1);

/// Attempts to get a greeting when server connections are lost.
const GREETERS_MAX: u32 = 3;

/// Time a login waits for a primary before it takes a standby.
const PRIMARY_WAIT_MS: u64 = 2000;

/// Time beyond `connect_timeout` until all nodes have answered.
const FIND_EXTRA_MS: u64 = 500;

const SETTINGS_LIMIT: Duration = Duration::from_secs(60);

/// True if servers take an application's name unchanged. Source: `GUC_IS_NAME` and `check_application_name` in guc.c and
/// variable.c.
fn is_plain(application: &str) -> bool {
    application.len() <= NAME_BYTES_MAX && application.bytes().all(|byte| matches!(byte, b' '..=b'~'))
}

fn welcome_from(conn: &ServerConn) -> ClientGreeting {
    let reported = &conn.reported;
    let mut statuses = Vec::new();
    // Sent before the server looks at settings. Source: `InitPostgres` in postinit.c.
    let early = [&*conn.transport.notices.early, &conn.transport.notices.last].concat();
    let late = notice_level::shown(&conn.transport.notices.late, conn.settings.get("client_min_messages"));
    for (name, value) in reported.iter().filter(|(name, _)| *name != APPLICATION_NAME) {
        write::parameter_status(&mut statuses, name, value);
    }
    let application = reported.iter().find(|(name, _)| *name == APPLICATION_NAME).map(|(_, value)| value.into());
    let recoding = of_database(reported);
    ClientGreeting {
        statuses: statuses.into(),
        early: early.into(),
        late: late.into(),
        application,
        reads: conn.reads,
        recoding,
        defaults: conn.defaults.clone(),
        node: conn.status.address.node,
        reloads: conn.reloads,
    }
}

fn wishes_of(
    shared: &SharedState,
    ignored: &[String],
    startup: &StartupMessage,
    claim: Rc<StartupIdentity>,
) -> Result<StartupSettings, SettingsError> {
    let settings = SettingValues::of_startup(startup, ignored)?;
    let is_plain = settings.get(APPLICATION_NAME).is_none_or(is_plain);
    let nameless = if is_plain { settings.without(APPLICATION_NAME) } else { settings.clone() };
    let nameless = shared.intern_settings(nameless).0;
    let meaning = shared.intern_settings(settings.meaning()).1;
    Ok(StartupSettings { claim, settings: shared.intern_settings(settings).0, meaning, nameless })
}

/// Logs a client in; its session goes on as a smaller task.
///
/// Not an `async fn`, which would hold its arguments twice: the future is copied.
#[allow(clippy::manual_async_fn)]
pub fn welcome(w: Rc<Worker>, socket: Socket, peer: Option<SocketAddr>) -> impl Future<Output = ()> {
    async move {
        socket.set_task(w.reactor.current_task());
        w.count(WorkerCounter::ClientsAccepted);
        let mut counted = LoginCountGuard { w: w.clone(), is_session: false };
        let mut door = ClientLogin::new(&w, socket, peer);
        let Some(admitted) = enter(&mut door).await else { return door.socket.close(&w.reactor) };
        let served = door.into_session(admitted);
        counted.is_session = true;
        let s = &served.s;
        if w.peek_config().log.connections {
            w.log_client(&s.handle.status, "connection authorized");
        }
        if first_look::is_over(&w, &s.account.known) {
            w.reactor.spawn(relay::serve(served));
            return;
        }
        let handle = s.handle.clone();
        let ended = Box::pin(first_look::wait(&w, &s.account.known, &handle, &served.sockets.client)).await;
        w.reactor.spawn(relay::serve(served));
        if ended == CatalogWaitEnd::Cancelled {
            // After the session's first step, which ends the statement if it is for a server.
            w.reactor.spawn(async move { handle.wait_cancelled.set(false) });
        }
    }
}

struct LoginCountGuard {
    w: Rc<Worker>,
    is_session: bool,
}

impl Drop for LoginCountGuard {
    fn drop(&mut self) {
        if !self.is_session {
            self.w.client_gone();
        }
    }
}

struct ClientLogin<'a> {
    w: &'a Rc<Worker>,
    socket: Socket,
    peer: Option<SocketAddr>,
    buffer: UnreadBytes,
    deadline: Option<Instant>,
    /// Stop mode when the client connected.
    came_in: ProxyShutdown,
    /// Subject of the client's certificate; `None` without TLS.
    tls: Option<CertificateSubject>,
    /// Hash of Weir's certificate, for channel binding.
    end_point: Option<Vec<u8>>,
    answered_at: Option<Instant>,
    /// Known once the user is named.
    claimant: Option<LoginProver>,
    counted: Option<CountedClient>,
}

/// `None`: refused, or another purpose.
async fn enter(door: &mut ClientLogin<'_>) -> Option<AdmittedSession> {
    let fault = match door.first_packet().await {
        Ok(Some(startup)) => match door.log_in(&startup).await {
            Ok(admitted) => return admitted,
            Err(fault) => {
                door.note_refusal(&startup, &fault);
                door.settle(&fault).await;
                fault
            }
        },
        Ok(None) => return None,
        Err(fault) => fault,
    };
    door.refuse(&fault).await;
    None
}

struct AdmittedSession {
    pools: Rc<PoolSet>,
    state: HeldState,
    entry: Rc<SessionEntry>,
}

impl<'a> ClientLogin<'a> {
    fn new(w: &'a Rc<Worker>, socket: Socket, peer: Option<SocketAddr>) -> ClientLogin<'a> {
        let timeout_ms = w.peek_config().auth.timeout_ms;
        ClientLogin {
            w,
            socket,
            peer,
            buffer: UnreadBytes::default(),
            deadline: (timeout_ms > 0).then(|| w.now() + Duration::from_millis(timeout_ms)),
            came_in: w.shared.stop_mode(),
            tls: None,
            end_point: None,
            answered_at: None,
            claimant: None,
            counted: None,
        }
    }
}

impl ClientLogin<'_> {
    #[cold]
    fn note_refusal(&self, startup: &StartupMessage, fault: &ErrorReport) {
        let w = self.w;
        w.count(WorkerCounter::LoginsFailed);
        let user = cut_name(startup.get("user").unwrap_or_default());
        let database = startup.get("database").map_or(user, cut_name);
        let place = self.place();
        let who = LogOrigin { user, database, client: &place, ..LogOrigin::default() };
        let text = format_args!("login refused: {fault} (user \"{user}\", database \"{database}\", from {place})");
        w.shared.log.write(Level::Log, &who, text);
    }

    fn into_session(self, admitted: AdmittedSession) -> ServedSession {
        let (w, AdmittedSession { pools, state, entry }) = (self.w, admitted);
        // Where server processes are shared, the catalog must tell what triggers leave.
        let is_shared = w.peek_config().pool.mode != PoolMode::Session;
        if is_shared || w.has_readers() || w.shared.cached_results.is_some() {
            w.shared.watch_catalog(&pools.known);
        }
        let (handle, account) = (entry.handle.clone(), pools.account.clone());
        let host = SessionHost::new(w.clone(), handle.clone(), pools);
        let mut s = Box::new(Session::new(host.clone(), account, state, handle));
        s.reads.causal.primary_since = w.view().primary_since;
        s.reads.causal.set(&w.shared, &s.state.settings);
        s.up.preload(&self.buffer, &w.buffers);
        ServedSession { s, sockets: SessionSockets { client: self.socket, host }, w: w.clone() }
    }

    async fn refuse(&self, fault: &ErrorReport) {
        let mut out = Vec::new();
        fault.write(&mut out);
        let deadline = Some(Instant::now() + Duration::from_secs(5));
        // The client may be gone.
        let _ = self.socket.write_all(&self.w.reactor, &out, deadline).await;
    }

    async fn send(&self, bytes: &[u8]) -> Result<(), ErrorReport> {
        self.socket.write_all(&self.w.reactor, bytes, self.deadline).await.map_err(|e| broke(&e))
    }

    /// `None`: another purpose, or the end.
    async fn first_packet(&mut self) -> Result<Option<StartupMessage>, ErrorReport> {
        if self.read_more().await.is_err() || !self.begin_encrypted().await? {
            return Ok(None);
        }
        // Each kind may be asked for once, as in `ProcessStartupPacket`.
        let (mut asked_tls, mut asked_gss) = (false, false);
        loop {
            let (first, bytes) = match read_first(&self.buffer) {
                Ok(Some(read)) => read,
                Ok(None) => {
                    if self.read_more().await.is_err() {
                        if !self.buffer.is_empty() {
                            self.tell("incomplete startup packet");
                        }
                        return Ok(None);
                    }
                    continue;
                }
                Err(error) if error.is_unanswered() => {
                    self.tell(&error.to_string());
                    return Ok(None);
                }
                Err(error) => return Err(ErrorReport::fatal(sqlstate::PROTOCOL_VIOLATION, error.to_string())),
            };
            // Bytes behind an encryption request come from someone in between.
            let had_more = self.buffer.len() > bytes;
            self.buffer.forget(bytes);
            match first {
                FirstPacket::Ssl if std::mem::replace(&mut asked_tls, true) => {
                    self.refuse_version(ProtocolVersion::SSL_REQUEST).await;
                    return Ok(None);
                }
                FirstPacket::GssEnc if std::mem::replace(&mut asked_gss, true) => {
                    self.refuse_version(ProtocolVersion::GSSENC_REQUEST).await;
                    return Ok(None);
                }
                FirstPacket::Ssl | FirstPacket::GssEnc if had_more => {
                    if first == FirstPacket::GssEnc || !self.can_encrypt() {
                        self.send(b"N").await?;
                    }
                    let what = if first == FirstPacket::Ssl { "SSL" } else { "GSSAPI encryption" };
                    return Err(ErrorReport::fatal(
                        sqlstate::PROTOCOL_VIOLATION,
                        format!("received unencrypted data after {what} request"),
                    ));
                }
                FirstPacket::Ssl if self.can_encrypt() => {
                    self.send(b"S").await?;
                    if !Box::pin(self.encrypt()).await {
                        return Ok(None);
                    }
                }
                FirstPacket::Ssl | FirstPacket::GssEnc => self.send(b"N").await?,
                FirstPacket::Cancel { pid, key, bearer } => {
                    if self.w.peek_config().log.client_messages {
                        let text = format_args!("Cancel message from frontend. DETAIL:  process id: {pid}");
                        self.w.shared.log.say(Level::Log, text);
                    }
                    peer_cancels::route_cancel(self.w, pid, key, bearer);
                    return Ok(None);
                }
                FirstPacket::Unsupported(version) => {
                    self.refuse_version(version).await;
                    return Ok(None);
                }
                FirstPacket::Startup(startup) => return Ok(Some(startup)),
            }
        }
    }

    async fn refuse_version(&self, version: ProtocolVersion) {
        let text = format!("unsupported frontend protocol {}.{}: server supports 3.0 to 3.2", version.major(), version.minor());
        if version.major() >= 3 {
            return self.refuse(&ErrorReport::fatal(sqlstate::FEATURE_NOT_SUPPORTED, text)).await;
        }
        let mut out = Vec::new();
        write::error_v2(&mut out, &text);
        let _ = self.socket.write_all(&self.w.reactor, &out, self.deadline).await;
    }

    /// `None`: an administrator or a replication client, who has left.
    async fn log_in(&mut self, startup: &StartupMessage) -> Result<Option<AdmittedSession>, ErrorReport> {
        let known = self.w.greetings.borrow().wishes.get(&startup.parameters).cloned();
        let claim = known.as_ref().map_or_else(|| claim_of(startup).map(Rc::new), |known| Ok(known.claim.clone()))?;
        let StartupIdentity { user, database, replication } = &*claim;
        let (user, replication) = (&**user, *replication);
        let (database, named) = replicate::names(&self.w.peek_config(), replication, database, startup);
        let mut out = Vec::with_capacity(512);
        if startup.version > ProtocolVersion::V3_2 || !startup.protocol_options.is_empty() {
            let newest = startup.version.min(ProtocolVersion::V3_2);
            write::negotiate_version(&mut out, newest, &startup.protocol_options);
            self.send(&out).await?;
            out.clear();
        }
        let caller = LoginIdentity { user, database, replication };
        if replication != ReplicationRequest::Physical && console::is_console(self.w, database) {
            // Also while a stop waits for clients, which the console shows.
            self.check_stop(ProxyShutdown::Smart)?;
            return Box::pin(self.administer(caller, startup)).await.map(|()| None);
        }
        // Clients accepted before a takeover are served.
        self.check_stop(if self.w.shared.is_handed_over() { ProxyShutdown::Smart } else { ProxyShutdown::No })?;
        self.check_room()?;
        self.check_gate(named)?;
        if replication != ReplicationRequest::No {
            return Box::pin(self.replicate(caller, named, startup)).await.map(|()| None);
        }
        let wishes = known.map_or_else(|| self.wishes(startup, claim.clone()), Ok)?;
        let admission = self.authenticate(caller).await?;
        out.extend_from_slice(&admission.message);
        let pools = self.w.pool_set(user, database);
        self.take_seat(&pools).inspect_err(|_| self.w.forget_pool_set(&pools))?;
        let welcome = match welcome_of(self.w, &self.socket, &pools, wishes.nameless.clone()).await {
            Ok(welcome) => welcome,
            Err(fault) => {
                self.w.forget_pool_set(&pools);
                return self.turn_away(caller, &admission, fault).await;
            }
        };
        write::authentication(&mut out, 0, &[]);
        let application = wishes.settings.get(APPLICATION_NAME).unwrap_or_default();
        welcome.write(Some(application).filter(|name| is_plain(name)), &mut out);
        let entry = self.entry(pools.whose.clone(), Some(pools.clone()), application, startup.version);
        *entry.counted.borrow_mut() = self.counted.take();
        write::backend_key_data(&mut out, entry.status.pid, &entry.key);
        out.extend_from_slice(&welcome.late);
        write::ready(&mut out, weir_session::session::IDLE);
        self.w.shared.session_statuses.add(entry.status.clone());
        if let Err(fault) = self.send(&out).await {
            self.w.leave(&entry);
            self.w.shared.session_statuses.remove(entry.status.pid);
            return Err(fault);
        }
        pools.stats.add(StatCounter::Logins, 1);
        let left = welcome.defaults.left();
        let (settings, meaning) = if left.is_empty() {
            (wishes.settings.clone(), wishes.meaning)
        } else {
            let settings = wishes.settings.overlaid(left);
            let meaning = self.w.shared.intern_settings(settings.meaning()).1;
            (self.w.shared.intern_settings(settings).0, meaning)
        };
        let mut state = HeldState::new(settings, meaning, self.w.shared.no_statements.clone(), welcome.defaults.clone());
        state.begins = welcome.reads;
        state.begins_recoded = welcome.recoding;
        Ok(Some(AdmittedSession { pools, state, entry }))
    }

    /// Refuses a client that servers do not let in.
    async fn turn_away<T>(
        &mut self,
        caller: LoginIdentity<'_>,
        admission: &LoginAdmission,
        fault: ErrorReport,
    ) -> Result<T, ErrorReport> {
        if admission.is_unproved && fault.sqlstate == sqlstate::INVALID_PASSWORD {
            // No server trusts the user: he fails like one with a wrong password.
            Box::pin(self.by_nothing(&self.w.shared.access.files(), caller)).await?;
        }
        Err(fault)
    }

    /// No server checks administrators, so Weir demands a proof.
    async fn administer(&mut self, caller: LoginIdentity<'_>, startup: &StartupMessage) -> Result<(), ErrorReport> {
        let right = console::admit(self.w, &self.socket, caller.user)?;
        if !console::is_proven(&self.socket) {
            let admission = self.authenticate(caller).await?;
            if admission.is_unproved {
                return Err(console::unproven(caller.user));
            }
            self.send(&admission.message).await?;
        }
        self.take_console_seat(caller, right)?;
        let application = startup.get("application_name").unwrap_or_default();
        let user = Arc::<str>::from(caller.user);
        let database = Arc::<str>::from(caller.database);
        let whose = Arc::new(ClientIdentity {
            user: user.clone(),
            database: database.clone(),
            server_user: user,
            server_database: database,
        });
        let entry = self.entry(whose, None, application, startup.version);
        *entry.counted.borrow_mut() = self.counted.take();
        let status = entry.status.clone();
        if let Err(fault) =
            console::serve(self.w, &self.socket, std::mem::take(&mut self.buffer).into_bytes(), right, entry).await
        {
            self.w.log_client(&status, &format!("console session ended: {fault}"));
            self.refuse(&fault).await;
        }
        Ok(())
    }

    fn wishes(&self, startup: &StartupMessage, claim: Rc<StartupIdentity>) -> Result<Rc<StartupSettings>, ErrorReport> {
        let wishes = wishes_of(&self.w.shared, &self.w.peek_config().ignored_parameters, startup, claim);
        let wishes = Rc::new(wishes.map_err(|e| refused_setting(&e))?);
        self.w.greetings.borrow_mut().wishes.insert(startup.parameters.clone(), wishes.clone());
        Ok(wishes)
    }

    fn check_gate(&self, database: &str) -> Result<(), ErrorReport> {
        if self.w.shared.pause_state.own(database).disabled {
            let text = format!("database \"{database}\" takes no new clients: it was disabled by an administrator");
            return Err(ErrorReport::fatal(sqlstate::NOT_IN_STATE, text));
        }
        Ok(())
    }

    /// Refuses a login in a stop mode stronger than `last`.
    fn check_stop(&self, last: ProxyShutdown) -> Result<(), ErrorReport> {
        if self.w.shared.stop_mode() > last {
            return Err(ErrorReport::fatal(sqlstate::CANNOT_CONNECT_NOW, "the proxy is shutting down"));
        }
        Ok(())
    }

    /// Refuses a silent client that connected before the stop. A later one may be for the console.
    fn check_stop_at_rest(&self) -> Result<(), ErrorReport> {
        match self.w.shared.stop_mode() {
            ProxyShutdown::No => Ok(()),
            ProxyShutdown::Smart if self.came_in != ProxyShutdown::No || self.w.shared.is_handed_over() => Ok(()),
            ProxyShutdown::Smart => self.check_stop(ProxyShutdown::No),
            ProxyShutdown::Fast | ProxyShutdown::Immediate => {
                Err(ErrorReport::fatal(sqlstate::ADMIN_SHUTDOWN, "terminating connection due to administrator command"))
            }
        }
    }

    fn check_room(&mut self) -> Result<(), ErrorReport> {
        let shared = &self.w.shared;
        let max = self.w.peek_config().pool.max_clients;
        let clients = shared.clients.connected.load(std::sync::atomic::Ordering::Relaxed);
        if clients > max {
            self.w.count(WorkerCounter::ClientsRefused);
            let text = format!("sorry, too many clients already: max_client_connections = {max}");
            return Err(ErrorReport::fatal(sqlstate::TOO_MANY_CONNECTIONS, text));
        }
        let address = self.peer.map(|peer| peer.ip().to_canonical());
        let max = self.w.peek_config().limits.clients_per_address;
        let seat = shared.clients.counts.at_door(address, max).map_err(|_| {
            self.w.count(WorkerCounter::ClientsRefused);
            let from = address.map(|address| address.to_string()).unwrap_or_default();
            let text = format!("too many clients from address {from}: max_client_connections_per_address = {max}");
            ErrorReport::fatal(sqlstate::TOO_MANY_CONNECTIONS, text)
        })?;
        self.counted = Some(seat);
        Ok(())
    }

    /// Asks the system only if Weir listens on several addresses.
    fn local_ip(&self) -> Option<std::net::IpAddr> {
        let config = self.w.peek_config();
        let only = match &config.listen_addresses[..] {
            [only] => only.parse().ok().filter(|ip: &std::net::IpAddr| !ip.is_unspecified()),
            _ => None,
        };
        only.or_else(|| self.socket.local_ip())
    }

    fn take_seat(&mut self, pools: &PoolSet) -> Result<(), ErrorReport> {
        self.count(&pools.places, &pools.whose, pools.limits.get().clients)
    }

    /// Counts a client of the console, as PgBouncer does, without limits for administrators.
    fn take_console_seat(&mut self, caller: LoginIdentity<'_>, right: ConsoleRight) -> Result<(), ErrorReport> {
        let limits = match right {
            ConsoleRight::Change => ClientsMax { per_user: 0, per_database: 0 },
            ConsoleRight::Look => limits::of(&self.w.peek_config(), caller.user, caller.database).clients,
        };
        // An administrator must get in when all places are taken.
        self.counted = self.w.shared.clients.counts.at_door(None, 0).ok();
        let (user, database) = (caller.user.into(), caller.database.into());
        let (server_user, server_database) = <(Arc<str>, Arc<str>)>::default();
        let whose = Arc::new(ClientIdentity { user, database, server_user, server_database });
        self.count(&self.w.shared.clients.counts.places(whose.clone()), &whose, limits)
    }

    fn count(&mut self, places: &Arc<LoginCounts>, whose: &ClientIdentity, limits: ClientsMax) -> Result<(), ErrorReport> {
        let Some(seat) = &mut self.counted else { return Ok(()) };
        let ClientIdentity { user, database, .. } = whose;
        seat.take(places, limits.per_user, limits.per_database).map_err(|full| {
            self.w.count(WorkerCounter::ClientsRefused);
            let text = match full {
                ClientLimit::User(max) => {
                    format!("too many clients of user \"{user}\": max_client_connections_per_user = {max}")
                }
                ClientLimit::Database(max) | ClientLimit::Address(max) => {
                    format!("too many clients of database \"{database}\": max_client_connections_per_database = {max}")
                }
            };
            ErrorReport::fatal(sqlstate::TOO_MANY_CONNECTIONS, text)
        })
    }

    /// `pools`: `None` for administrators and replication clients.
    fn entry(
        &self,
        whose: Arc<ClientIdentity>,
        pools: Option<Rc<PoolSet>>,
        application: &str,
        version: ProtocolVersion,
    ) -> Rc<SessionEntry> {
        let ends = ClientEndpoints { client: self.peer, local: self.peer.and_then(|_| self.local_ip()) };
        let now_s = seconds(SystemTime::now());
        let key = if version >= ProtocolVersion::V3_2 {
            CancelKey::Long(Box::new(self.w.random()))
        } else {
            CancelKey::Short(self.w.random())
        };
        let application = pools.as_ref().map_or_else(|| application.into(), |pools| pools.application(application));
        let task = self.w.reactor.current_task();
        let handle = |status| Rc::new(SessionHandle::new(Arc::new(status), task, self.w.now_us()));
        self.w.enter(|number| SessionEntry {
            handle: handle(SessionStatus::new(number, whose, application, ends, now_s)),
            since_ms: self.w.now_ms(),
            key,
            pools,
            counted: RefCell::default(),
        })
    }
}

/// Error: no user, or an invalid `replication`.
fn claim_of(startup: &StartupMessage) -> Result<StartupIdentity, ErrorReport> {
    let user = startup.get("user").filter(|user| !user.is_empty());
    let user = user.ok_or_else(|| {
        ErrorReport::fatal(sqlstate::INVALID_AUTHORIZATION, "no PostgreSQL user name specified in startup packet")
    })?;
    // Cut as servers cut names.
    let user = cut_name(user);
    let database = startup.get("database").filter(|name| !name.is_empty()).map_or(user, cut_name);
    Ok(StartupIdentity { user: user.into(), database: database.into(), replication: replicate::asked(startup)? })
}

fn refused_setting(error: &SettingsError) -> ErrorReport {
    let text = error.to_string();
    match error {
        SettingsError::Switch(OptionsError::Unknown(_)) => {
            ErrorReport::fatal(sqlstate::SYNTAX_ERROR, text).hint("Try \"postgres --help\" for more information.")
        }
        SettingsError::Switch(OptionsError::NoValue(_)) => ErrorReport::fatal(sqlstate::SYNTAX_ERROR, text),
        SettingsError::Switch(OptionsError::Unsupported(_)) | SettingsError::Name(_) => {
            ErrorReport::fatal(sqlstate::FEATURE_NOT_SUPPORTED, text)
        }
    }
}

fn broke(cause: &io::Error) -> ErrorReport {
    match cause.kind() {
        io::ErrorKind::TimedOut => {
            // Source: `ProcessInterrupts` in postgres.c.
            ErrorReport::fatal(sqlstate::QUERY_CANCELED, "canceling authentication due to timeout (authentication_timeout)")
        }
        _ => ErrorReport::fatal(sqlstate::CONNECTION_FAILURE, format!("the client went away during login: {cause}")),
    }
}

async fn welcome_of(
    w: &Rc<Worker>,
    client: &Socket,
    pools: &PoolSet,
    settings: Arc<SettingValues>,
) -> Result<Rc<ClientGreeting>, ErrorReport> {
    let key = (pools.user.clone(), pools.client_database.clone(), InternedSettings(settings));
    let standing = w.shared.clients.roles.lock().standing(&pools.user, w.now_ms());
    match standing {
        RoleCertainty::Certain | RoleCertainty::Doubtful => {}
        RoleCertainty::Old => Box::pin(look_at_role(w, pools)).await,
    }
    let is_current = |welcome: &&Rc<ClientGreeting>| welcome.reloads == w.shared.stale.reloads.of(welcome.node);
    let known = w.greetings.borrow().by_key.get(&key).filter(is_current).cloned();
    if known.is_some() && !is_vouched_for(w, pools) {
        Box::pin(ask_again(w, client, pools)).await?;
    }
    if let Some(known) = known.filter(|_| standing != RoleCertainty::Doubtful) {
        return Ok(known);
    }
    // Boxed: a login's future is copied, and few logins come here.
    let conn = Box::pin(greeter(w, client, pools, &key.2.0, standing)).await?;
    let welcome = Rc::new(welcome_from(&conn));
    let pool = conn.transport.pool.clone();
    pool.give_back(w, conn);
    w.greetings.borrow_mut().by_key.insert(key, welcome.clone());
    Ok(welcome)
}

/// True if the primary need not confirm the user.
fn is_vouched_for(w: &Worker, pools: &PoolSet) -> bool {
    let view = w.view();
    // Without a primary the first statement asks its own server.
    view.primary.is_none_or(|at| pools.of_node(w, view.nodes[at].id).is_vouched_for(w, w.now_ms()))
}

/// Has the primary confirm that it still lets the user in.
async fn ask_again(w: &Rc<Worker>, client: &Socket, pools: &PoolSet) -> Result<(), ErrorReport> {
    let (nodes, known) = nodes_to_ask(w);
    let Some(&node) = nodes.first().filter(|_| known) else { return Ok(()) };
    let gives_up = || client.is_closed() || w.shared.stop_mode() >= ProxyShutdown::Fast;
    vouch::at_login(w, &pools.of_node(w, node), node, gives_up).await.map_err(|error| login_fault(w, pools, &error))
}

/// Replaces a lost server connection: a server restart must end no login.
async fn greeter(
    w: &Rc<Worker>,
    client: &Socket,
    pools: &PoolSet,
    settings: &Arc<SettingValues>,
    standing: RoleCertainty,
) -> Result<ServerConn, ErrorReport> {
    let mut tries = 1;
    loop {
        let conn = any_conn(w, client, pools).await?;
        match instruct(w, conn, settings, standing).await {
            Ok(conn) => return Ok(conn),
            Err(error) if error.passes().is_some() && !error.is_silent() && tries < GREETERS_MAX && !client.is_closed() => {
                tries += 1;
                w.shared.request_role_check(RoleCheckReason::LoginFailed);
            }
            Err(error) => return Err(error.fault().as_fatal()),
        }
    }
}

async fn instruct(
    w: &Rc<Worker>,
    mut conn: ServerConn,
    settings: &Arc<SettingValues>,
    standing: RoleCertainty,
) -> Result<ServerConn, OpenError> {
    if standing == RoleCertainty::Doubtful {
        // Before a server connection is used: later changes of the role behind the name are noticed.
        conn = ask_role(w, conn).await?.0;
    }
    configure(w, conn, settings).await
}

/// Closes an idle server connection of an earlier role with the user's name.
async fn look_at_role(w: &Rc<Worker>, pools: &PoolSet) {
    for node in nodes_to_ask(w).0 {
        if let Some(conn) = lease::at_rest(w, &pools.of_node(w, node)).await {
            if let Ok((conn, is_another)) = ask_role(w, conn).await {
                let pool = conn.transport.pool.clone();
                if is_another { w.close_conn(conn) } else { pool.give_back(w, conn) }
            }
            return;
        }
    }
}

/// True: another role than before. Error: the connection is closed.
async fn ask_role(w: &Rc<Worker>, conn: ServerConn) -> Result<(ServerConn, bool), OpenError> {
    let user = conn.transport.pool.key.user.clone();
    let (conn, answer) =
        conn_opening::ask(w, conn, &user_roles::question([&*user].into_iter()), Instant::now() + ROLE_LIMIT).await;
    match answer {
        Ok(rows) => {
            let oid = rows.first().and_then(|row| row.get(1)?.as_deref()).unwrap_or_default();
            let is_another = w.note_role(&user, oid);
            Ok((conn, is_another))
        }
        Err(error) => {
            w.close_conn(conn);
            w.role_renamed(&user);
            Err(error)
        }
    }
}

/// Returns a server connection to the primary, or without one to any server.
///
/// Waits for a full server as long as a statement would, for a missing one only `connect_timeout`.
async fn any_conn(w: &Rc<Worker>, client: &Socket, pools: &PoolSet) -> Result<ServerConn, ErrorReport> {
    let started = w.now();
    let mut refused: Option<OpenError> = None;
    loop {
        let wait_ms = pools.limits.get().waits.conn_ms;
        let connect_ms = w.peek_config().connect_timeout_max_ms();
        let found_ms = if connect_ms == 0 { 0 } else { connect_ms + FIND_EXTRA_MS };
        let (nodes, known) = nodes_to_ask(w);
        let patience = if known { 0 } else { shorter(found_ms, PRIMARY_WAIT_MS) };
        if !nodes.is_empty() && started.elapsed() >= Duration::from_millis(patience) {
            match first_conn(w, client, pools, &nodes, started).await? {
                Ok(conn) => return Ok(conn),
                Err(OpenError::Held { .. }) if refused.is_some() => {}
                Err(error) => refused = Some(error),
            }
        }
        let limit_ms = match refused.as_ref().and_then(OpenError::passes) {
            Some(LoginRefusal::Full) => wait_ms,
            Some(LoginRefusal::Down) | None => shorter(wait_ms, found_ms),
        };
        if w.shared.stop_mode() >= ProxyShutdown::Fast {
            return Err(ErrorReport::fatal(sqlstate::ADMIN_SHUTDOWN, "terminating connection due to administrator command"));
        }
        if (limit_ms > 0 && started.elapsed() >= Duration::from_millis(limit_ms)) || client.is_closed() {
            return Err(refused.map_or_else(|| nobody_up(w), |error| login_fault(w, pools, &error)));
        }
        w.shared.request_role_check(RoleCheckReason::NodeAwaited);
        w.wake_at_new_view();
        w.reactor.wake_at(Instant::now() + Duration::from_millis(250));
        parked().await;
    }
}

fn nobody_up(w: &Worker) -> ErrorReport {
    ErrorReport::fatal(sqlstate::CANNOT_CONNECT_NOW, "no server can be reached")
        .detail(w.view().causes())
        .hint("Look at the log or SHOW POOL_NODES of the administration console, and whether the servers run and sr_check_user may log in to them.")
}

/// Returns the shorter limit; 0 is unlimited.
fn shorter(one_ms: u64, other_ms: u64) -> u64 {
    if one_ms == 0 || other_ms == 0 { one_ms.max(other_ms) } else { one_ms.min(other_ms) }
}

/// Returns the primary first, then other nodes; true if there is a primary.
fn nodes_to_ask(w: &Worker) -> (Vec<u16>, bool) {
    let view = w.view();
    let others = (0..view.nodes.len()).filter(|&at| view.is_up(at) && view.primary != Some(at));
    (view.primary.into_iter().chain(others).map(|at| view.nodes[at].id).collect(), view.primary.is_some())
}

/// Inner error: the first node's, if all are unreachable but may return.
async fn first_conn(
    w: &Rc<Worker>,
    client: &Socket,
    pools: &PoolSet,
    nodes: &[u16],
    since: Instant,
) -> Result<Result<ServerConn, OpenError>, ErrorReport> {
    let mut first = None;
    let gives_up = || client.is_closed() || w.shared.stop_mode() >= ProxyShutdown::Fast;
    for &node in nodes {
        let pool = pools.of_node(w, node);
        let wait = CheckoutWait { since, patience: CheckoutPatience::NeverQueues };
        let mut leased = vouch::lease_conn(w, &pool, node, (wait, w.now_ms()), gives_up).await.map_err(ErrorReport::as_fatal)?;
        if matches!(leased, Err(OpenError::Held { .. })) && pool.is_in_use() {
            // Clients may keep connections for ever: an extra one serves logins in turn.
            let (beside, wait) =
                (pools.apart(w, node, PoolPurpose::Greeting), CheckoutWait { since, patience: CheckoutPatience::ToldAtOnce });
            leased = lease::lease_conn(w, &beside, node, &[], wait, gives_up).await.map_err(ErrorReport::as_fatal)?;
        }
        match leased {
            Ok(conn) => return Ok(Ok(conn)),
            Err(error) => {
                w.shared.request_role_check(RoleCheckReason::LoginFailed);
                // The node may have failed since: another one serves as well.
                if error.passes().is_none() && !error.is_unreachable() {
                    return Err(login_fault(w, pools, &error));
                }
                first.get_or_insert(error);
            }
        }
    }
    match first {
        Some(error) if error.passes().is_some() => Ok(Err(error)),
        Some(error) => Err(login_fault(w, pools, &error)),
        None => Err(nobody_up(w)),
    }
}

fn login_fault(w: &Worker, pools: &PoolSet, error: &OpenError) -> ErrorReport {
    match error {
        // The user was let in on the servers' trust, which they deny.
        OpenError::Secret { .. } if pools.user == pools.client_user => {
            w.shared.log.say(Level::Log, format_args!("{error}"));
            wrong_password(&pools.user)
        }
        _ => error.fault().as_fatal(),
    }
}

/// Error: the connection is closed.
async fn configure(w: &Rc<Worker>, mut conn: ServerConn, settings: &Arc<SettingValues>) -> Result<ServerConn, OpenError> {
    conn.transport.notices.last.clear();
    // A login event trigger runs later.
    let settings = &match conn.defaults.left() {
        left if left.is_empty() => settings.clone(),
        left => w.shared.intern_settings(settings.overlaid(left)).0,
    };
    let is_there = Arc::ptr_eq(&conn.settings, settings);
    // Servers report each time that they shorten a name.
    let says_it = settings.get(APPLICATION_NAME).is_some_and(|name| !is_plain(name));
    let sql = match is_there && says_it {
        true => SettingValues::default().change_to(settings),
        false => conn.settings.change_to(settings),
    };
    conn.settings.set(settings.clone());
    if sql.is_empty() {
        return Ok(conn);
    }
    let (conn, answer) = conn_opening::ask(w, conn, &sql, Instant::now() + SETTINGS_LIMIT).await;
    match answer {
        Ok(_) => Ok(conn),
        Err(error) => {
            w.close_conn(conn);
            Err(error)
        }
    }
}
