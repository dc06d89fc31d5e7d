//! Greetings of equal clients, remembered to spare the server.

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

const WELCOMES_MAX: usize = 256;

pub type Key = (Arc<str>, Arc<str>, InternedSettings);

/// Settings stored once for all equal ones: pointers are compared.
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

/// User, database and purpose, from a startup packet.
pub struct StartupIdentity {
    pub(crate) user: Box<str>,
    pub(crate) database: Box<str>,
    pub(crate) replication: ReplicationRequest,
}

pub struct ClientGreeting {
    /// ParameterStatus messages that all such clients share.
    pub(crate) statuses: Box<[u8]>,
    /// Other messages, before and after the server's process id.
    pub(crate) early: Box<[u8]>,
    pub(crate) late: Box<[u8]>,
    /// Reported name of the first such client.
    pub(crate) application: Option<Box<str>>,
    /// How servers read texts by default.
    pub(crate) reads: TextInterpretation,
    /// How servers read names, whatever clients set.
    pub(crate) recoding: EncodingEffect,
    pub(crate) defaults: Arc<ServerDefaults>,
    /// A later reload of this node's configuration may change the values.
    pub(crate) node: u16,
    pub(crate) reloads: u64,
}

impl ClientGreeting {
    /// `plain`: the application's name, if servers take it unchanged.
    pub fn write(&self, plain: Option<&str>, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.early);
        if let Some(reported) = &self.application {
            write::parameter_status(out, APPLICATION_NAME, plain.unwrap_or(reported));
        }
        out.extend_from_slice(&self.statuses);
    }
}

/// The only parameter that differs among clients of one greeting.
pub const APPLICATION_NAME: &str = "application_name";

pub struct StartupSettings {
    pub(crate) claim: Rc<StartupIdentity>,
    pub(crate) settings: Arc<SettingValues>,
    /// Number of the `SettingValues::meaning`.
    pub(crate) meaning: u64,
    /// Settings without an application name that servers take unchanged.
    pub(crate) nameless: Arc<SettingValues>,
}

pub type Seen<K, V> = Cache<K, Rc<V>, UnitWeighter, RandomState>;

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
    /// Forgets all, since servers may report other values now.
    pub fn clear(&mut self) {
        *self = GreetingCache::default();
    }
}
