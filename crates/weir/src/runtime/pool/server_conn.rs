//! One server connection: opened, logged in, brought to a session's settings, reset, cancelled.

pub mod kept_inquiries;

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

/// The last message of a session. Without it a server tells of an unexpected end.
pub const TERMINATE: [u8; 5] = [front::TERMINATE, 0, 0, 0, 4];

/// Longest message read outside of a session's relay: login, reset, probes.
pub const MESSAGE_BYTES_MAX: usize = 1 << 20;

/// One server connection: what sessions know of it, and the way to its server. A session that uses it has the first, its task the second.
pub struct ServerConn {
    pub(crate) conn: Box<Conn>,
    pub(crate) transport: Box<ServerTransport>,
}

/// The way to a server, and what only pools ask for.
pub struct ServerTransport {
    pub(crate) socket: Socket,
    /// The worker whose event loop has it.
    pub(crate) home: WorkerId,
    pub(crate) pool: Arc<ConnPool>,
    /// What it said when it was opened, and behind the last query of ours.
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

/// Why a server connection could not be opened.
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
    /// The same where the node is named already.
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

    /// The node cannot be reached, so another may be tried.
    pub fn is_unreachable(&self) -> bool {
        match self {
            OpenError::Connect { .. } | OpenError::Broke { .. } | OpenError::Tls { .. } => true,
            // 57P03: starting up or shutting down.
            OpenError::Refused { sqlstate, .. } => sqlstate == sqlstate::CANNOT_CONNECT_NOW,
            OpenError::Secret { .. } | OpenError::Keys { .. } | OpenError::Protocol { .. } => false,
            OpenError::Gone { .. } | OpenError::GivenUp { .. } | OpenError::Held { .. } => true,
            // It lets nobody in, whatever it is.
            OpenError::Flooded { .. } => true,
        }
    }

    /// This process is out of descriptors, ports, memory or time for keys, may not connect, or has never had an address of the name: nothing is known of the
    /// node.
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

    /// The server is there, and lets no more in.
    pub fn is_full(&self) -> bool {
        matches!(self, OpenError::Refused { sqlstate, .. } if sqlstate.starts_with("53"))
    }

    /// The node is silent, or cannot be reached: statements under way there may never end.
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

    /// The refusal, as it is for all others of the same user and database; `None`: another may get in.
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

    /// Tells if another attempt may succeed a little later, and why this one failed.
    ///
    /// Source: `ProcessStartupPacket` and `InitPostgres` in PostgreSQL; class 53 is "Insufficient Resources".
    pub fn passes(&self) -> Option<LoginRefusal> {
        match self {
            OpenError::Connect { .. } | OpenError::Broke { .. } | OpenError::GivenUp { .. } => Some(LoginRefusal::Down),
            // One attempt after the other would only be flooded.
            OpenError::Flooded { .. } => Some(LoginRefusal::Down),
            OpenError::Held { why, .. } => Some(*why),
            OpenError::Refused { sqlstate, .. } if sqlstate == sqlstate::TOO_MANY_CONNECTIONS => Some(LoginRefusal::Full),
            // A login that a shutdown or a crash of another process ended is told so, too.
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

    /// The client's error. A server's own refusal keeps its SQLSTATE.
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

/// A server's notices, as whole messages.
#[derive(Default)]
pub struct Notices {
    /// Before it told the process id.
    pub(crate) early: Vec<u8>,
    /// Behind that: of event triggers of the login.
    pub(crate) late: Vec<u8>,
    /// While the last query of ours ran.
    pub(crate) last: Vec<u8>,
}

/// Why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SlowAnswerError {
    /// As many as the limit allows wait already.
    #[error("too many logins at once")]
    Full,
    /// The deadline passed.
    #[error("it took too long")]
    TimedOut,
}

/// Message by message, for everything but a session's relay.
pub struct MessageConn {
    pub(crate) socket: Socket,
    pub(super) buffer: Vec<u8>,
    /// Reports of parameters while the last query ran: bodies of ParameterStatus.
    pub(super) reports: Vec<Vec<u8>>,
    /// Notices of that time.
    pub(super) notices: Vec<u8>,
    /// The most that the server may still say in this exchange.
    pub(super) budget: GatherBudget,
    pub(super) deadline: Instant,
}

/// User, secret and settings of a login to a server.
pub struct ServerLogin<'a> {
    pub(crate) user: &'a str,
    pub(crate) database: &'a str,
    pub(crate) secret: Option<&'a UserSecret>,
    /// Number of the reading of the password file that has the secret.
    pub(crate) generation: u64,
    /// Parameters of the startup packet beside user and database.
    pub(crate) parameters: &'a [(&'a str, &'a str)],
}

impl ServerConn {
    /// Milliseconds since it was opened, and since its last use.
    pub fn ages_ms(&self, now: Us) -> (u64, u64) {
        let ms = |since: Us| now.saturating_sub(since) / 1000;
        (ms(self.opened_us), ms(self.rested_at.get()))
    }

    /// True if it was opened with the passwords in force.
    pub fn is_of_these_passwords(&self, w: &Worker) -> bool {
        self.transport.passwords_generation == w.shared.access.generation()
    }

    pub fn jitter(&self) -> u8 {
        self.transport.jitter
    }

    /// Notes that no session uses it.
    pub fn at_rest(&self, now: Us) {
        self.conn.rests(now);
        self.transport.socket.set_idle();
    }

    /// True if the server connection may still be used after its rest: nothing arrived and the server is there.
    ///
    /// After a short rest the event loop's record is enough. After a longer one the kernel is asked, because events may be
    /// waiting unseen behind the ones being worked on.
    pub fn is_fresh(&self, now: Us) -> bool {
        const TRUSTED_US: Us = 20_000;
        let socket = &self.transport.socket;
        if socket.is_readable() || socket.is_closed() {
            return false;
        }
        now.saturating_sub(self.rested_at.get()) < TRUSTED_US || !socket.peek()
    }
}

/// Rows of text.
pub type Rows = Vec<Vec<Option<String>>>;

/// Error for a server that says more than is gathered.
pub fn flooded(address: &ServerAddress, cause: BoundExceeded) -> OpenError {
    OpenError::Flooded { address: address.clone(), cause: cause.into() }
}

/// Notes a ParameterStatus of a login.
pub fn note(reported: &mut ReportedParameters, address: &ServerAddress, body: &[u8]) -> Result<(), OpenError> {
    reported.note(body).map_err(|cause| flooded(address, cause))
}

/// Options of TCP in the types of `weir_io`.
pub fn tcp_options(tcp: &TcpConfig) -> TcpOptions {
    let TcpConfig { keepalive, keepidle_ms, keepintvl_ms, keepcnt, user_timeout_ms } = *tcp;
    TcpOptions { keepalive, keepidle_ms, keepintvl_ms, keepcnt, user_timeout_ms }
}
