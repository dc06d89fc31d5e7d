//! A server connection as a session uses it; the socket is the program's.

use crate::flow::HoldReason;
use crate::prepared::{ServerStatements, StatementId, StatementShape};
use crate::reports::ReportedParameters;
use crate::sequences::drawn_values::DrawCount;
use crate::session_state::by_sql::BySql;
use crate::session_state::client_settings::{ENCODING, ESCAPES_UNLESS, EncodingEffect};
use crate::session_state::conn_settings::ConnSettings;
use crate::session_state::server_defaults::ServerDefaults;
use crate::sharding::shard_target::ENGINE;
use crate::task::Us;
use parking_lot::Mutex;
use std::cell::Cell;
use std::collections::BTreeSet;
use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::time::SystemTime;
use weir_config::{Config, NodeConfig, SslMode};
use weir_failover::cluster::ClusterView;
use weir_failover::commit_outcome::LogLineage;
use weir_wire::gather::BoundExceeded;
use weir_wire::startup_packet::ProtocolVersion;

/// Time for which other sessions avoid a connection after a sequence draw: `currval` mostly follows at once.
const FRESH_DRAWS_US: Us = 1_000_000;

/// Breaks a connection from any thread.
pub trait ConnBreaker: Debug + Send + Sync {
    fn shut(&self);
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerAddress {
    pub node: u16,
    /// 0: the cluster's, with primary and standbys. `ENGINE`: the engine's database on the cluster's primary.
    pub shard: u16,
    pub hostname: String,
    pub port: u16,
    pub connect_timeout_ms: u64,
    pub ssl_mode: SslMode,
}

impl ServerAddress {
    pub fn of(view: &ClusterView, config: &Config, at: usize) -> Option<ServerAddress> {
        let node = view.nodes.get(at)?;
        let known = config.nodes.iter().find(|known| known.id == node.id);
        Some(ServerAddress {
            node: node.id,
            shard: 0,
            hostname: node.hostname.clone(),
            port: node.port,
            connect_timeout_ms: known.map_or(10_000, |known| known.connect_timeout_ms),
            ssl_mode: known.map_or(SslMode::Auto, |known| known.ssl_mode),
        })
    }

    /// The address of another shard's server.
    pub fn of_shard(node: &NodeConfig) -> ServerAddress {
        ServerAddress {
            node: node.id,
            shard: node.shard,
            hostname: node.hostname.clone(),
            port: node.port,
            connect_timeout_ms: node.connect_timeout_ms,
            ssl_mode: node.ssl_mode,
        }
    }
}

impl std::fmt::Display for ServerAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "node {} ({}:{})", self.node, self.hostname, self.port)
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ServerLine {
    #[default]
    Unasked,
    /// Edition of `XidRefusals` at the query.
    Asked {
        edition: u64,
    },
    Known {
        line: LogLineage,
        askers: XidPermission,
        edition: u64,
    },
    /// The server does not say, or the user may not read xids.
    Hidden,
}

/// Users who may read a transaction's xid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XidPermission {
    All,
    /// The login user.
    User,
}

impl XidPermission {
    /// `None` if the user may not.
    pub fn of(word: &str) -> Option<XidPermission> {
        match word {
            "all" => Some(XidPermission::All),
            "user" => Some(XidPermission::User),
            _ => None,
        }
    }
}

#[derive(Debug, Default)]
pub struct XidRefusals {
    edition: AtomicU64,
    told: Mutex<BTreeSet<Box<str>>>,
}

impl XidRefusals {
    /// Limit on users in the log.
    const TOLD_MAX: usize = 100;

    /// Grows when a permission was found revoked.
    pub fn edition(&self) -> u64 {
        self.edition.load(Ordering::Relaxed)
    }

    pub fn renew(&self) {
        self.edition.fetch_add(1, Ordering::Relaxed);
    }

    pub fn is_news(&self, user: &str) -> bool {
        let mut told = self.told.lock();
        told.len() < XidRefusals::TOLD_MAX && !told.contains(user) && told.insert(user.into())
    }
}

/// A server connection as other threads see it.
#[derive(Debug)]
pub struct ConnStatus {
    pub serial: u64,
    pub address: ServerAddress,
    pub pid: u32,
    pub key: Box<[u8]>,
    pub opened_at: SystemTime,
    /// Generation of the cluster's view at opening.
    pub generation: u64,
    /// 0: at rest.
    pub session: AtomicU32,
    pub uses: AtomicU64,
    pub keeping: ConnHold,
    /// Must be closed after this use: a cancel request may still be on its way to it.
    pub doomed: AtomicBool,
    pub last: LastStatement,
    pub prepared: AtomicU32,
    pub terms: ConnTerms,
    /// True if Weir broke the connection because its node was given up.
    pub given_up: AtomicBool,
    pub breaker: Box<dyn ConnBreaker>,
}

#[derive(Debug, Default)]
pub struct ConnHold {
    /// `HoldReason::code`; 0 for none.
    pub code: AtomicU8,
    /// Milliseconds since the start of the proxy.
    pub since_ms: AtomicU64,
}

#[derive(Debug, Default)]
pub struct LastStatement {
    /// Milliseconds since the start of the proxy.
    pub began_ms: AtomicU64,
    /// Beginning of the text, if recorded: see `last_look`.
    pub text: Mutex<String>,
}

#[derive(Debug)]
pub struct ConnTerms {
    pub version: Box<str>,
    pub protocol: ProtocolVersion,
    pub is_encrypted: bool,
}

impl ConnStatus {
    /// Breaks the connection in any session, since its node was given up.
    pub fn give_up(&self) {
        self.given_up.store(true, Ordering::Relaxed);
        self.breaker.shut();
    }

    /// True if the connection was kept already.
    pub fn set_pin(&self, kept: Option<HoldReason>, now_ms: u64) -> bool {
        let was_kept = self.keeping.code.load(Ordering::Relaxed) > 0;
        if !was_kept && kept.is_some() {
            self.keeping.since_ms.store(now_ms, Ordering::Relaxed);
        }
        self.keeping.code.store(kept.map_or(0, HoldReason::code), Ordering::Relaxed);
        was_kept
    }
}

pub struct Conn {
    pub status: Arc<ConnStatus>,
    pub known: ServerStatements,
    /// With the server's description, if known.
    pub unnamed: Option<(StatementId, StatementShape)>,
    pub settings: ConnSettings,
    /// Settings at the start of a session.
    pub defaults: Arc<ServerDefaults>,
    /// Count of `ConfigReloads` when `defaults` were queried.
    pub reloads: u64,
    pub by_sql: Arc<BySql>,
    /// Statements that may draw from sequences.
    pub draws: DrawCount,
    pub reported: ReportedParameters,
    /// At the start of a session, without the database's encoding.
    pub begins: TextInterpretation,
    /// By the last reports.
    pub reads: TextInterpretation,
    /// Microseconds since the start of the proxy.
    pub opened_us: u64,
    /// Proven life of the server (`positions`); 0: unknown.
    pub life: Cell<u64>,
    pub rested_at: Cell<Us>,
    /// For `commit_outcome`.
    pub line: ServerLine,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TextInterpretation {
    /// True if a backslash in a string is an escape: `standard_conforming_strings` is off.
    pub escapes: bool,
    /// By the client encoding and, where it counts, the database's.
    pub recoding: EncodingEffect,
}

impl Conn {
    /// The only place that decides this.
    #[inline]
    pub fn is_to_primary(&self, view: &ClusterView) -> bool {
        view.is_primary(self.status.address.node) && self.status.address.shard == 0
    }

    /// True on the primary, and on a server of another shard, which has no standbys here. The engine only reads.
    #[inline]
    pub fn takes_writes(&self, view: &ClusterView) -> bool {
        match self.status.address.shard {
            0 => self.is_to_primary(view),
            shard => shard != ENGINE,
        }
    }

    pub fn forget(&mut self, id: StatementId) {
        self.known.forget(id);
        if self.unnamed.is_some_and(|(unnamed, _)| unnamed == id) {
            self.unnamed = None;
        }
    }

    /// True if a session drew from sequences and released the connection a moment ago.
    #[inline]
    pub fn has_fresh_draws(&self, now: Us) -> bool {
        !self.draws.is_blank() && now.saturating_sub(self.rested_at.get()) < FRESH_DRAWS_US
    }

    pub fn rests(&self, now: Us) {
        self.rested_at.set(now);
        self.status.session.store(0, Ordering::Relaxed);
        self.status.keeping.code.store(0, Ordering::Relaxed);
    }

    pub fn has_rested(&self, now: Us, ms: u64) -> bool {
        now.saturating_sub(self.rested_at.get()) / 1000 >= ms
    }

    pub fn reported(&self, name: &str) -> &str {
        self.reported.value(name)
    }

    /// True if texts are UTF-8 in both directions, byte for byte.
    pub fn tells_utf8(&self) -> bool {
        EncodingEffect::of(self.reported(ENCODING)) == EncodingEffect::None
            && matches!(self.reported("server_encoding"), "UTF8" | "SQL_ASCII")
    }

    /// Stores a ParameterStatus. Error: more than is kept.
    pub fn report(&mut self, body: &[u8]) -> Result<(), BoundExceeded> {
        self.reported.note(body)?;
        self.reads = TextInterpretation { escapes: escapes(&self.reported), recoding: recoding(&self.reported) };
        Ok(())
    }
}

pub fn escapes(reported: &ReportedParameters) -> bool {
    reported.value(ESCAPES_UNLESS) == "off"
}

/// Returns how a server reads non-ASCII names.
pub fn recoding(reported: &ReportedParameters) -> EncodingEffect {
    of_client(reported).max(of_database(reported))
}

pub fn of_client(reported: &ReportedParameters) -> EncodingEffect {
    EncodingEffect::of(reported.value(ENCODING))
}

/// A database folds and cuts names in its own encoding.
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
