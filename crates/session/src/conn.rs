//! A server connection as a session uses it: the known state of its server, and the ways to use it. Its socket is the program's.

use crate::flow::HoldReason;
use crate::prepared::{ServerStatements, StatementId, StatementShape};
use crate::reports::ReportedParameters;
use crate::sequences::drawn_values::DrawCount;
use crate::session_state::by_sql::BySql;
use crate::session_state::client_settings::{ENCODING, ESCAPES_UNLESS, EncodingEffect};
use crate::session_state::conn_settings::ConnSettings;
use crate::session_state::server_defaults::ServerDefaults;
use crate::task::Us;
use parking_lot::Mutex;
use std::cell::Cell;
use std::collections::BTreeSet;
use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::time::SystemTime;
use weir_config::{Config, SslMode};
use weir_failover::cluster::ClusterView;
use weir_failover::commit_outcome::LogLineage;
use weir_wire::gather::BoundExceeded;
use weir_wire::startup_packet::ProtocolVersion;

/// Time for which other sessions take a server connection last after a session has drawn on it. A session that asks for its draws mostly does so at once.
const FRESH_DRAWS_US: Us = 1_000_000;

/// Breaks a connection from any thread.
pub trait ConnBreaker: Debug + Send + Sync {
    fn shut(&self);
}

/// A server's name and place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerAddress {
    pub node: u16,
    pub hostname: String,
    pub port: u16,
    pub connect_timeout_ms: u64,
    pub ssl_mode: SslMode,
}

impl ServerAddress {
    /// Where a node of the view is, by its place.
    pub fn of(view: &ClusterView, config: &Config, at: usize) -> Option<ServerAddress> {
        let node = view.nodes.get(at)?;
        let known = config.nodes.iter().find(|known| known.id == node.id);
        Some(ServerAddress {
            node: node.id,
            hostname: node.hostname.clone(),
            port: node.port,
            connect_timeout_ms: known.map_or(10_000, |known| known.connect_timeout_ms),
            ssl_mode: known.map_or(SslMode::Auto, |known| known.ssl_mode),
        })
    }
}

impl std::fmt::Display for ServerAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "node {} ({}:{})", self.node, self.hostname, self.port)
    }
}

/// The line of a server's log, as far as it is known over a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ServerLine {
    #[default]
    Unasked,
    /// `edition`: of `XidRefusals`, when it was asked.
    Asked {
        edition: u64,
    },
    Known {
        line: LogLineage,
        askers: XidPermission,
        edition: u64,
    },
    /// The server does not say, or its user may not ask for numbers.
    Hidden,
}

/// Those who may ask for a transaction's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XidPermission {
    All,
    /// The user that the connection logged in as.
    User,
}

impl XidPermission {
    /// By the server's word; `None` if the user may not.
    pub fn of(word: &str) -> Option<XidPermission> {
        match word {
            "all" => Some(XidPermission::All),
            "user" => Some(XidPermission::User),
            _ => None,
        }
    }
}

/// Refusals of questions for a transaction's number.
#[derive(Debug, Default)]
pub struct XidRefusals {
    edition: AtomicU64,
    told: Mutex<BTreeSet<Box<str>>>,
}

impl XidRefusals {
    /// Users of whom the log says that they have no outcome, at most.
    const TOLD_MAX: usize = 100;

    /// Moves when a right was found to be gone.
    pub fn edition(&self) -> u64 {
        self.edition.load(Ordering::Relaxed)
    }

    pub fn renew(&self) {
        self.edition.fetch_add(1, Ordering::Relaxed);
    }

    /// True if nobody was told of this user yet.
    pub fn is_news(&self, user: &str) -> bool {
        let mut told = self.told.lock();
        told.len() < XidRefusals::TOLD_MAX && !told.contains(user) && told.insert(user.into())
    }
}

/// A server connection as others see it.
#[derive(Debug)]
pub struct ConnStatus {
    pub serial: u64,
    pub address: ServerAddress,
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
    pub keeping: ConnHold,
    /// Must be closed after this use: a cancel request may still be on its way to it.
    pub doomed: AtomicBool,
    pub last: LastStatement,
    /// Statements prepared on it.
    pub prepared: AtomicU32,
    pub terms: ConnTerms,
    /// Its node was given up, so that the connection was broken by us.
    pub given_up: AtomicBool,
    pub breaker: Box<dyn ConnBreaker>,
}

/// The reason that keeps a server connection with its session.
#[derive(Debug, Default)]
pub struct ConnHold {
    /// As `HoldReason::code`; 0: nothing.
    pub code: AtomicU8,
    /// Since when, in milliseconds since the start of the proxy.
    pub since_ms: AtomicU64,
}

/// The last statement on a server connection.
#[derive(Debug, Default)]
pub struct LastStatement {
    /// When it began, in milliseconds since the start of the proxy.
    pub began_ms: AtomicU64,
    /// Its beginning, while somebody looks at these: see `last_look`.
    pub text: Mutex<String>,
}

/// The terms on which a server connection was opened.
#[derive(Debug)]
pub struct ConnTerms {
    /// Of the server.
    pub version: Box<str>,
    pub protocol: ProtocolVersion,
    /// The connection uses TLS.
    pub is_encrypted: bool,
}

impl ConnStatus {
    /// Breaks the connection, no matter which session has it: its node is not waited for any longer.
    pub fn give_up(&self) {
        self.given_up.store(true, Ordering::Relaxed);
        self.breaker.shut();
    }

    /// Why the session that has it keeps it. True: it was kept already.
    pub fn set_pin(&self, kept: Option<HoldReason>, now_ms: u64) -> bool {
        let was_kept = self.keeping.code.load(Ordering::Relaxed) > 0;
        if !was_kept && kept.is_some() {
            self.keeping.since_ms.store(now_ms, Ordering::Relaxed);
        }
        self.keeping.code.store(kept.map_or(0, HoldReason::code), Ordering::Relaxed);
        was_kept
    }
}

/// See the module.
pub struct Conn {
    pub status: Arc<ConnStatus>,
    pub known: ServerStatements,
    /// The statement under no name, if we know which, and the server's description of it.
    pub unnamed: Option<(StatementId, StatementShape)>,
    /// The settings it was brought to.
    pub settings: ConnSettings,
    /// Its begin, where nothing is set.
    pub defaults: Arc<ServerDefaults>,
    /// The reloads of its server's configuration that were known when its defaults were asked for: see `Reloads`.
    pub reloads: u64,
    /// The statements prepared by SQL that are on it.
    pub by_sql: Arc<BySql>,
    /// Statements that may draw from sequences.
    pub draws: DrawCount,
    /// Parameters the server reported, in their last state.
    pub reported: ReportedParameters,
    /// How texts are read when a session begins on it; the encoding of its database does not count.
    pub begins: TextInterpretation,
    /// How they are read by what was reported last.
    pub reads: TextInterpretation,
    /// In microseconds since the start of the proxy.
    pub opened_us: u64,
    /// The life of its server that vouches for it, as `positions` counts them; 0: not known.
    pub life: Cell<u64>,
    /// Begin of its last rest.
    pub rested_at: Cell<Us>,
    /// For `commit_outcome`. It is that of a primary, which keeps it.
    pub line: ServerLine,
}

/// How a server reads texts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TextInterpretation {
    /// A backslash in a string is an escape: `standard_conforming_strings` is off.
    pub escapes: bool,
    /// By the encoding of texts and, where it counts, that of what its database keeps.
    pub recoding: EncodingEffect,
}

impl Conn {
    /// True if it leads to the primary, as far as the worker knows. The one place where that is asked of a connection.
    #[inline]
    pub fn is_to_primary(&self, view: &ClusterView) -> bool {
        view.is_primary(self.status.address.node)
    }

    /// A statement may not be on the server after all.
    pub fn forget(&mut self, id: StatementId) {
        self.known.forget(id);
        if self.unnamed.is_some_and(|(unnamed, _)| unnamed == id) {
            self.unnamed = None;
        }
    }

    /// True if a session has drawn on it from sequences and let go of it a moment ago: it may ask for that soon.
    #[inline]
    pub fn has_fresh_draws(&self, now: Us) -> bool {
        !self.draws.is_blank() && now.saturating_sub(self.rested_at.get()) < FRESH_DRAWS_US
    }

    /// Notes that no session uses it.
    pub fn rests(&self, now: Us) {
        self.rested_at.set(now);
        self.status.session.store(0, Ordering::Relaxed);
        self.status.keeping.code.store(0, Ordering::Relaxed);
    }

    /// True if it has rested for so long.
    pub fn has_rested(&self, now: Us, ms: u64) -> bool {
        now.saturating_sub(self.rested_at.get()) / 1000 >= ms
    }

    /// The last reported value of a parameter.
    pub fn reported(&self, name: &str) -> &str {
        self.reported.value(name)
    }

    /// True if the server's texts are in UTF-8, and texts to it, by their bytes.
    pub fn tells_utf8(&self) -> bool {
        EncodingEffect::of(self.reported(ENCODING)) == EncodingEffect::None
            && matches!(self.reported("server_encoding"), "UTF8" | "SQL_ASCII")
    }

    /// Notes a ParameterStatus. Error: the server reports more than is kept.
    pub fn report(&mut self, body: &[u8]) -> Result<(), BoundExceeded> {
        self.reported.note(body)?;
        self.reads = TextInterpretation { escapes: escapes(&self.reported), recoding: recoding(&self.reported) };
        Ok(())
    }
}

/// True if a backslash in a string is an escape to a server that reports this.
pub fn escapes(reported: &ReportedParameters) -> bool {
    reported.value(ESCAPES_UNLESS) == "off"
}

/// How such a one reads names beyond ASCII, by the encodings of its client and its database.
pub fn recoding(reported: &ReportedParameters) -> EncodingEffect {
    of_client(reported).max(of_database(reported))
}

/// By the client's encoding.
pub fn of_client(reported: &ReportedParameters) -> EncodingEffect {
    EncodingEffect::of(reported.value(ENCODING))
}

/// A database folds and cuts names by its own encoding.
pub fn of_database(reported: &ReportedParameters) -> EncodingEffect {
    EncodingEffect::of(reported.value("server_encoding"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_knows_an_edition_of_refusals_sees_that_a_right_is_gone_since() {
        let refusals = XidRefusals::default();
        let before = refusals.edition();
        assert_eq!(refusals.edition(), before);
        refusals.renew();
        assert_ne!(refusals.edition(), before);
    }

    #[test]
    fn a_backslash_escapes_where_the_server_has_said_so_last() {
        let mut reports = ReportedParameters::default();
        assert!(!escapes(&reports));
        for (body, expected) in
            [(&b"standard_conforming_strings\0off\0"[..], true), (b"standard_conforming_strings\0on\0", false)]
        {
            reports.note(body).unwrap();
            assert_eq!(escapes(&reports), expected);
        }
    }
}
