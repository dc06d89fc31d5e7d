//! Greetings that a worker gives to new clients without a server: a client like them was told the same before.

use foldhash::fast::RandomState;
use quick_cache::UnitWeighter;
use quick_cache::unsync::Cache;
use std::hash::{Hash, Hasher};
use std::rc::Rc;
use std::sync::Arc;
use weir_config::hba::ReplicationRequest;
use weir_session::conn::TextInterpretation;
use weir_session::session_state::client_settings::{EncodingEffect, SettingValues};
use weir_session::session_state::server_defaults::ServerDefaults;
use weir_wire::startup_packet::StartupParameters;
use weir_wire::write;

/// Welcomes a worker remembers.
const WELCOMES_MAX: usize = 256;

/// By user, database and settings.
pub type Key = (Arc<str>, Arc<str>, InternedSettings);

/// Settings of which there is one piece of memory for all that are the same: it stands for them, so that nobody reads them to compare them.
#[derive(Clone)]
pub struct InternedSettings(pub(crate) Arc<SettingValues>);

impl PartialEq for InternedSettings {
    fn eq(&self, other: &InternedSettings) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for InternedSettings {}

impl Hash for InternedSettings {
    fn hash<H: Hasher>(&self, state: &mut H) {
        std::ptr::hash(Arc::as_ptr(&self.0), state);
    }
}

/// The name of a client and of what it wants, by its startup packet.
pub struct StartupIdentity {
    pub(crate) user: Box<str>,
    pub(crate) database: Box<str>,
    pub(crate) replication: ReplicationRequest,
}

/// The greeting for clients of one user, database and settings.
pub struct ClientGreeting {
    /// A ParameterStatus for each parameter that is the same for all of them.
    pub(crate) statuses: Box<[u8]>,
    /// The server's other messages, before its own process id and after it.
    pub(crate) early: Box<[u8]>,
    pub(crate) late: Box<[u8]>,
    /// The application's name is reported, too: the one of the client that was welcomed first.
    pub(crate) application: Option<Box<str>>,
    /// How servers read their texts, where such clients set nothing.
    pub(crate) reads: TextInterpretation,
    /// How they read names, whatever such clients set.
    pub(crate) recoding: EncodingEffect,
    /// The defaults of the connection that all this was reported over.
    pub(crate) defaults: Arc<ServerDefaults>,
    /// Its node, and the reloads of that node's configuration that were known: after another one the values may be others.
    pub(crate) node: u16,
    pub(crate) reloads: u64,
}

impl ClientGreeting {
    /// `plain`: the application's name, if servers take it as it is.
    pub fn write(&self, plain: Option<&str>, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.early);
        if let Some(reported) = &self.application {
            write::parameter_status(out, APPLICATION_NAME, plain.unwrap_or(reported));
        }
        out.extend_from_slice(&self.statuses);
    }
}

/// The only reported parameter that differs among the clients of one welcome.
pub const APPLICATION_NAME: &str = "application_name";

/// Settings that a startup packet asks for.
pub struct StartupSettings {
    /// The client that asks for them.
    pub(crate) claim: Rc<StartupIdentity>,
    pub(crate) settings: Arc<SettingValues>,
    /// Number of their meaning: see `SettingValues::meaning`.
    pub(crate) meaning: u64,
    /// Without the application's name if servers accept it as it is: it changes nothing else, so that clients that differ in it only share
    /// the rest.
    pub(crate) nameless: Arc<SettingValues>,
}

pub type Seen<K, V> = Cache<K, Rc<V>, UnitWeighter, RandomState>;

/// A worker's knowledge of clients like those it has welcomed.
pub struct GreetingCache {
    pub(crate) by_key: Seen<Key, ClientGreeting>,
    /// By the parameters of the startup packet.
    pub(crate) wishes: Seen<StartupParameters, StartupSettings>,
}

fn seen<K: Eq + Hash, V>() -> Seen<K, V> {
    Cache::with(WELCOMES_MAX, WELCOMES_MAX as u64, UnitWeighter, RandomState::default(), Default::default())
}

impl Default for GreetingCache {
    fn default() -> GreetingCache {
        GreetingCache { by_key: seen(), wishes: seen() }
    }
}

impl GreetingCache {
    /// Forgets all: servers may report something else now.
    pub fn clear(&mut self) {
        *self = GreetingCache::default();
    }
}
