//! Server connections: state, transport, errors.

pub mod kept_inquiries;
pub mod shard_gates;

use crate::runtime::pool::ConnPool;
use crate::runtime::server_names::ResolveError;
use crate::runtime::shared::WorkerId;
use crate::runtime::worker::Worker;
use rustix::io::Errno;
use std::io;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Instant;
use weir_config::TcpConfig;
use weir_config::passwd::UserSecret;
use weir_io::socket::{Socket, StreamBreaker, TcpOptions};
use weir_session::checkout::pool_grant::LoginRefusal;
pub use weir_session::conn::{Conn, ConnStatus, ServerAddress};
use weir_session::fault::{ErrorReport, sqlstate};
use weir_session::reports::ReportedParameters;
use weir_session::task::Us;
use weir_wire::frame::front;
use weir_wire::gather::{BoundExceeded, GatherBudget};

/// Without this message a server reports an unexpected end.
pub const TERMINATE: [u8; 5] = [front::TERMINATE, 0, 0, 0, 4];

/// Longest message read outside the relay.
pub const MESSAGE_BYTES_MAX: usize = 1 << 20;

/// Longest row that is passed on from one server to another.
pub const ROW_BYTES_MAX: usize = 64 << 20;

/// A server connection. While in use, the session has `conn`, its task `transport`.
pub struct ServerConn {
    pub(crate) conn: Box<Conn>,
    pub(crate) transport: Box<ServerTransport>,
}

pub struct ServerTransport {
    pub(crate) socket: Socket,
    /// Worker whose event loop has the socket.
    pub(crate) home: WorkerId,
    pub(crate) pool: Arc<ConnPool>,
    pub(crate) notices: Notices,
    pub(super) jitter: u8,
    pub(super) passwords_generation: u64,
}

impl Deref for ServerConn {
    type Target = Conn;

    fn deref(&self) -> &Conn {
        &self.conn
    }
}

impl DerefMut for ServerConn {
    fn deref_mut(&mut self) -> &mut Conn {
        &mut self.conn
    }
}

#[derive(Debug)]
pub struct SocketBreaker(pub(crate) StreamBreaker);

impl weir_session::conn::ConnBreaker for SocketBreaker {
    fn shut(&self) {
        self.0.shut();
    }
}

#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("could not connect to {address}: {cause}")]
    Connect { address: ServerAddress, cause: io::Error },
    #[error("connection to {address} broke during login: {cause}")]
    Broke { address: ServerAddress, cause: io::Error },
    #[error("no TLS connection to {address}: {reason}")]
    Tls { address: ServerAddress, reason: String },
    #[error("{address} refused the login: {message}")]
    Refused { address: ServerAddress, sqlstate: String, message: String },
    #[error("cannot log in to {address}: {reason}")]
    Secret { address: ServerAddress, reason: String },
    #[error("cannot log in to {address} now: no keys of the password of \"{user}\": {cause}")]
    Keys { address: ServerAddress, user: String, cause: SlowAnswerError },
    #[error("node {node} lets nobody in now: {words}")]
    Held { node: u16, why: LoginRefusal, words: Arc<str> },
    #[error("node {node} is no longer configured")]
    Gone { node: u16 },
    #[error("node {node} was given up meanwhile")]
    GivenUp { node: u16 },
    #[error("{address} does not speak the PostgreSQL protocol: {what}")]
    Protocol { address: ServerAddress, what: String },
    #[error("{address} says too much: {cause}")]
    Flooded { address: ServerAddress, cause: Box<BoundExceeded> },
}

impl OpenError {
    /// Error text for places that name the node.
    pub fn without_address(&self) -> String {
        match self {
            OpenError::Connect { cause, .. } => format!("could not connect: {cause}"),
            OpenError::Broke { cause, .. } => format!("the connection broke during login: {cause}"),
            OpenError::Tls { reason, .. } => format!("no TLS connection: {reason}"),
            OpenError::Refused { message, .. } => format!("it refused the login: {message}"),
            OpenError::Secret { reason, .. } => format!("cannot log in: {reason}"),
            OpenError::Keys { user, cause, .. } => format!("cannot log in now: no keys of the password of \"{user}\": {cause}"),
            OpenError::Held { words, .. } => format!("it lets nobody in now: {words}"),
            OpenError::Gone { .. } => "it is no longer configured".into(),
            OpenError::GivenUp { .. } => "it was given up meanwhile".into(),
            OpenError::Protocol { what, .. } => format!("it does not speak the PostgreSQL protocol: {what}"),
            OpenError::Flooded { cause, .. } => format!("it says too much: {cause}"),
        }
    }

    /// True if the node cannot be reached, so that another may be tried.
    pub fn is_unreachable(&self) -> bool {
        match self {
            OpenError::Connect { .. } | OpenError::Broke { .. } | OpenError::Tls { .. } => true,
            // 57P03: starting up or shutting down.
            OpenError::Refused { sqlstate, .. } => sqlstate == sqlstate::CANNOT_CONNECT_NOW,
            OpenError::Secret { .. } | OpenError::Keys { .. } | OpenError::Protocol { .. } => false,
            OpenError::Gone { .. } | OpenError::GivenUp { .. } | OpenError::Held { .. } => true,
            // A flooding server lets no client in.
            OpenError::Flooded { .. } => true,
        }
    }

    /// True if nothing is known of the node: this process lacks descriptors, ports, memory, permission or time for keys, or never
    /// resolved the name.
    pub fn is_local(&self) -> bool {
        let cause = match self {
            OpenError::Connect { cause, .. } => cause,
            OpenError::Keys { .. } => return true,
            OpenError::Broke { .. }
            | OpenError::Tls { .. }
            | OpenError::Refused { .. }
            | OpenError::Secret { .. }
            | OpenError::Held { .. }
            | OpenError::Gone { .. }
            | OpenError::GivenUp { .. }
            | OpenError::Flooded { .. }
            | OpenError::Protocol { .. } => return false,
        };
        let is_unresolved = cause.get_ref().is_some_and(|cause| cause.is::<ResolveError>());
        is_unresolved
            || matches!(
                Errno::from_io_error(cause),
                Some(
                    Errno::MFILE
                        | Errno::NFILE
                        | Errno::NOBUFS
                        | Errno::NOMEM
                        | Errno::ADDRNOTAVAIL
                        | Errno::ACCESS
                        | Errno::PERM
                )
            )
    }

    /// True if a lock was not free in time. Source: `lock_timeout` in PostgreSQL's manual.
    pub fn is_lock_timeout(&self) -> bool {
        matches!(self, OpenError::Refused { sqlstate, .. } if sqlstate == sqlstate::LOCK_NOT_AVAILABLE)
    }

    pub fn is_full(&self) -> bool {
        matches!(self, OpenError::Refused { sqlstate, .. } if sqlstate.starts_with("53"))
    }

    /// True if the node is silent or unreachable: statements under way there may never end.
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
            | OpenError::Keys { .. }
            | OpenError::Held { .. }
            | OpenError::Gone { .. }
            | OpenError::GivenUp { .. }
            | OpenError::Flooded { .. }
            | OpenError::Protocol { .. } => false,
        }
    }

    /// Returns a refusal that holds for every login of the same user and database.
    ///
    /// Source: errcodes.txt of PostgreSQL; class 28 is "Invalid Authorization Specification", 3D "Invalid Catalog Name".
    pub fn for_others(&self) -> Option<OpenError> {
        match self {
            OpenError::Refused { address, sqlstate, message } if sqlstate.starts_with("28") || sqlstate.starts_with("3D") => {
                let (address, sqlstate, message) = (address.clone(), sqlstate.clone(), message.clone());
                Some(OpenError::Refused { address, sqlstate, message })
            }
            _ => None,
        }
    }

    /// Returns why the attempt failed, if another may succeed a little later.
    ///
    /// Source: `ProcessStartupPacket` and `InitPostgres` in PostgreSQL; class 53 is "Insufficient Resources".
    pub fn passes(&self) -> Option<LoginRefusal> {
        match self {
            OpenError::Connect { .. } | OpenError::Broke { .. } | OpenError::GivenUp { .. } => Some(LoginRefusal::Down),
            OpenError::Flooded { .. } => Some(LoginRefusal::Down),
            OpenError::Held { why, .. } => Some(*why),
            OpenError::Refused { sqlstate, .. } if sqlstate == sqlstate::TOO_MANY_CONNECTIONS => Some(LoginRefusal::Full),
            // A shutdown or a crash of another process ends logins with these codes too.
            OpenError::Refused { sqlstate, .. } => {
                matches!(sqlstate.as_str(), sqlstate::CANNOT_CONNECT_NOW | sqlstate::ADMIN_SHUTDOWN | sqlstate::CRASH_SHUTDOWN)
                    .then_some(LoginRefusal::Down)
            }
            OpenError::Tls { .. }
            | OpenError::Secret { .. }
            | OpenError::Keys { .. }
            | OpenError::Protocol { .. }
            | OpenError::Gone { .. } => None,
        }
    }

    /// Returns the error for the client. A server's own refusal keeps its SQLSTATE.
    pub fn fault(&self) -> ErrorReport {
        match self {
            OpenError::Connect { .. }
            | OpenError::Broke { .. }
            | OpenError::Gone { .. }
            | OpenError::GivenUp { .. }
            | OpenError::Held { .. }
            | OpenError::Keys { .. }
            | OpenError::Tls { .. } => ErrorReport::error(sqlstate::CANNOT_CONNECT, self.to_string()),
            OpenError::Refused { sqlstate, message, .. } => ErrorReport::error(sqlstate, message.clone()),
            OpenError::Secret { .. } => ErrorReport::error(sqlstate::INVALID_AUTHORIZATION, self.to_string())
                .hint("Add the user's password to pool_passwd in a form that answers the server's method."),
            OpenError::Protocol { .. } | OpenError::Flooded { .. } => {
                ErrorReport::error(sqlstate::PROTOCOL_VIOLATION, self.to_string())
            }
        }
    }
}

#[derive(Default)]
pub struct Notices {
    /// Before BackendKeyData.
    pub(crate) early: Vec<u8>,
    /// After BackendKeyData: from login event triggers.
    pub(crate) late: Vec<u8>,
    /// During Weir's last query.
    pub(crate) last: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SlowAnswerError {
    #[error("too many logins at once")]
    Full,
    #[error("it took too long")]
    TimedOut,
}

/// A connection read message by message, outside a session's relay.
pub struct MessageConn {
    pub(crate) socket: Socket,
    pub(super) buffer: Vec<u8>,
    /// Bodies of ParameterStatus during the last query.
    pub(super) reports: Vec<Vec<u8>>,
    pub(super) notices: Vec<u8>,
    pub(super) budget: GatherBudget,
    /// Longest message, with its header.
    pub(super) message_bytes_max: usize,
    pub(super) deadline: Instant,
}

pub struct ServerLogin<'a> {
    pub(crate) user: &'a str,
    pub(crate) database: &'a str,
    pub(crate) secret: Option<&'a UserSecret>,
    /// Generation of the password file.
    pub(crate) generation: u64,
    /// Startup parameters beside user and database.
    pub(crate) parameters: &'a [(&'a str, &'a str)],
}

impl ServerConn {
    /// Milliseconds since opening and since last use.
    pub fn ages_ms(&self, now: Us) -> (u64, u64) {
        let ms = |since: Us| now.saturating_sub(since) / 1000;
        (ms(self.opened_us), ms(self.rested_at.get()))
    }

    pub fn is_of_these_passwords(&self, w: &Worker) -> bool {
        self.transport.passwords_generation == w.shared.access.generation()
    }

    pub fn jitter(&self) -> u8 {
        self.transport.jitter
    }

    pub fn at_rest(&self, now: Us) {
        self.conn.rests(now);
        self.transport.socket.set_idle();
    }

    /// True if an idle server connection is usable.
    ///
    /// After a longer rest the kernel is asked, because events may wait behind those being handled.
    pub fn is_fresh(&self, now: Us) -> bool {
        const TRUSTED_US: Us = 20_000;
        let socket = &self.transport.socket;
        if socket.is_readable() || socket.is_closed() {
            return false;
        }
        now.saturating_sub(self.rested_at.get()) < TRUSTED_US || !socket.peek()
    }
}

pub type Rows = Vec<Vec<Option<String>>>;

pub fn flooded(address: &ServerAddress, cause: BoundExceeded) -> OpenError {
    OpenError::Flooded { address: address.clone(), cause: cause.into() }
}

pub fn note(reported: &mut ReportedParameters, address: &ServerAddress, body: &[u8]) -> Result<(), OpenError> {
    reported.note(body).map_err(|cause| flooded(address, cause))
}

pub fn tcp_options(tcp: &TcpConfig) -> TcpOptions {
    let TcpConfig { keepalive, keepidle_ms, keepintvl_ms, keepcnt, user_timeout_ms } = *tcp;
    TcpOptions { keepalive, keepidle_ms, keepintvl_ms, keepcnt, user_timeout_ms }
}
