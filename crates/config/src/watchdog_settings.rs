//! Settings of the watchdog, written by the setters of the parameter table; those that lean on other settings are set in the end.

use core::net::IpAddr;
use std::fmt;
use std::path::PathBuf;

use crate::{Config, PeerFiles};

/// Most hosts: bounds the messages of the group.
pub const WATCHDOG_HOSTS_MAX: usize = 32;
/// Name of the file beside the configuration that says which of the hosts this one is. Source: Pgpool-II's manual, "Watchdog".
pub const OWN_NUMBER_FILE: &str = "pgpool_node_id";
/// Longest key in etcd, in bytes.
pub(crate) const ETCD_KEY_BYTES_MAX: usize = 256;

/// Settings with `use_watchdog = on`. `Debug` masks secrets.
#[derive(Clone, Debug, PartialEq)]
pub struct WatchdogSettings {
    /// Number of this host, from the file `pgpool_node_id` at the start. In a usable configuration it is one of `hosts`.
    pub own_number: u8,
    /// Ordered by number. Numbers may have gaps.
    pub hosts: Vec<WatchdogHost>,
    /// Empty: see [`WatchdogSettings::listen_place`].
    listen_address: String,
    /// 0: the own `wd_port`.
    listen_port: u16,
    /// Empty: see [`WatchdogSettings::heartbeat_listen_addresses`].
    heartbeat_addresses: Vec<String>,
    /// 0: the own heartbeat port.
    heartbeat_port: u16,
    /// Silence after which a host is shown as lost. Taking over depends on `lease_ms` only.
    pub heartbeat_deadtime_ms: u64,
    /// Empty: peers on loopback only, which are not checked.
    pub authkey: WatchdogSecret,
    /// Order of claims to the lead; 0: never leads. Values above 255 count as 255.
    pub priority: u8,
    pub addresses: Vec<IpAddr>,
    pub address_commands: AddressCommands,
    /// Before the address is taken; empty: none.
    pub escalation_command: String,
    /// Before the address is given up; empty: none.
    pub de_escalation_command: String,
    /// Empty: not asked.
    pub trusted_servers: Vec<String>,
    /// `%h` stands for the server.
    pub trusted_command: String,
    pub interval_ms: u64,
    pub interfaces: MonitoredInterfaces,
    pub failover_votes: FailoverVotes,
    /// Half of an even number of hosts is enough, with the lowest one in it.
    pub half_is_enough: bool,
    pub removes_shut_down: bool,
    /// `None`: a lost host is never removed.
    pub lost_removal_ms: Option<u64>,
    /// `None`: a host that never appeared is never removed.
    pub no_show_removal_ms: Option<u64>,
    /// As written; all of them mean heartbeats.
    pub lifecheck: LifecheckMethod,
    pub engine: WatchdogEngine,
    /// Used by `WatchdogEngine::Etcd`.
    pub etcd: EtcdSettings,
    pub lease_ms: u64,
    /// Folder of `weir_group.PORT`.
    pub state_dir: PathBuf,
    pub without_quorum: QuorumLossPolicy,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchdogHost {
    /// As in `hostname0`.
    pub number: u8,
    pub hostname: String,
    /// Peers talk to it over TCP.
    pub port: u16,
    /// Clients are served on it.
    pub pgpool_port: u16,
    /// UDP port of heartbeats.
    pub heartbeat_port: u16,
    /// Empty: no heartbeats.
    pub heartbeat_paths: Vec<HeartbeatPath>,
}

/// One network to a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeartbeatPath {
    pub hostname: String,
    pub device: Option<String>,
}

/// Commands in place of netlink. `None`: the file sets none. Their folders are already before them; `$_IP_$` stands for the address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AddressCommands {
    pub up: Option<String>,
    pub down: Option<String>,
    pub announce: Option<String>,
}

/// Network devices without which a host does not lead.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum MonitoredInterfaces {
    #[default]
    Unwatched,
    /// All but loopback; one that works is enough.
    Any,
    /// One of them that works is enough.
    Named(Vec<String>),
}

/// Votes about a node that must be replaced, of those who watch it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailoverVotes {
    /// The leader's sight is enough.
    Needless,
    /// A majority, each with one vote.
    OneEach,
    /// A majority; a host may repeat its vote.
    Repeated,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LifecheckMethod {
    Heartbeat,
    Query,
    External,
}

/// Where versions of the group's state are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchdogEngine {
    /// On the hosts' disks.
    Builtin,
    Etcd,
}

/// Reads without a quorum. Writes always wait for one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuorumLossPolicy {
    Reads,
    Refuse,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct EtcdSettings {
    pub endpoints: Vec<EtcdEndpoint>,
    /// Empty: no login.
    pub user: String,
    pub password: WatchdogSecret,
    /// The one key that is used.
    pub key: String,
    /// For `https`; relative to the configuration's directory. Without `root_cert`: the authorities of `ssl_ca_cert`.
    pub tls: PeerFiles,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EtcdEndpoint {
    pub scheme: EtcdScheme,
    /// Without brackets.
    pub host: String,
    pub port: u16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EtcdScheme {
    Http,
    Https,
}

/// A text that no view and no `Debug` shows.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct WatchdogSecret(String);

impl WatchdogSecret {
    pub fn expose(&self) -> &str {
        &self.0
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Debug for WatchdogSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_empty() { "none" } else { "*****" })
    }
}

impl From<String> for WatchdogSecret {
    fn from(text: String) -> WatchdogSecret {
        WatchdogSecret(text)
    }
}

impl WatchdogSettings {
    /// Returns this host; `None` in a draft only.
    pub fn own(&self) -> Option<&WatchdogHost> {
        self.hosts.iter().find(|host| host.number == self.own_number)
    }

    pub fn others(&self) -> impl Iterator<Item = &WatchdogHost> {
        self.hosts.iter().filter(|host| host.number != self.own_number)
    }

    /// Returns the address to accept peers on (`*`: all) and the port.
    pub fn listen_place(&self) -> (&str, u16) {
        let address = if self.listen_address.is_empty() { self.widest_address() } else { &self.listen_address };
        let port = if self.listen_port == 0 { self.own().map_or(0, |own| own.port) } else { self.listen_port };
        (address, port)
    }

    /// Returns the addresses to accept heartbeats on (`*`: all).
    pub fn heartbeat_listen_addresses(&self) -> Vec<&str> {
        let given = &self.heartbeat_addresses;
        if given.is_empty() { vec![self.widest_address()] } else { given.iter().map(String::as_str).collect() }
    }

    /// All addresses, since a host's name may lead to an address that it does not have; without a key, that of the name, which is loopback.
    fn widest_address(&self) -> &str {
        let own = self.own().filter(|_| self.authkey.is_empty());
        own.map_or("*", |own| own.hostname.as_str())
    }

    /// Returns the UDP port to accept heartbeats on.
    pub fn heartbeat_listen_port(&self) -> u16 {
        if self.heartbeat_port == 0 { self.own().map_or(0, |own| own.heartbeat_port) } else { self.heartbeat_port }
    }

    /// Returns the names and addresses that lead off this machine.
    pub(crate) fn places_of_others(&self) -> impl Iterator<Item = &str> {
        let hosts = self.hosts.iter().flat_map(|host| {
            let paths = host.heartbeat_paths.iter().map(|path| path.hostname.as_str());
            paths.chain([host.hostname.as_str()])
        });
        let listens = self.heartbeat_addresses.iter().map(String::as_str).chain([self.listen_address.as_str()]);
        hosts.chain(listens).filter(|place| !place.is_empty() && !is_loopback(place))
    }

    pub(super) fn empty() -> WatchdogSettings {
        WatchdogSettings {
            own_number: 0,
            hosts: Vec::new(),
            listen_address: String::new(),
            listen_port: 0,
            heartbeat_addresses: Vec::new(),
            heartbeat_port: 0,
            interval_ms: 0,
            heartbeat_deadtime_ms: 0,
            authkey: WatchdogSecret::default(),
            priority: 0,
            addresses: Vec::new(),
            address_commands: AddressCommands::default(),
            escalation_command: String::new(),
            de_escalation_command: String::new(),
            trusted_servers: Vec::new(),
            trusted_command: String::new(),
            interfaces: MonitoredInterfaces::Unwatched,
            failover_votes: FailoverVotes::Needless,
            half_is_enough: false,
            removes_shut_down: false,
            lost_removal_ms: None,
            no_show_removal_ms: None,
            lifecheck: LifecheckMethod::Heartbeat,
            engine: WatchdogEngine::Builtin,
            etcd: EtcdSettings::default(),
            lease_ms: 0,
            state_dir: PathBuf::new(),
            without_quorum: QuorumLossPolicy::Reads,
        }
    }

    pub(crate) fn set_listen_address(&mut self, address: String) {
        self.listen_address = address.trim().to_owned();
    }

    pub(crate) fn set_listen_port(&mut self, port: u16) {
        self.listen_port = port;
    }

    pub(crate) fn set_heartbeat_addresses(&mut self, addresses: Vec<String>) {
        self.heartbeat_addresses = addresses;
    }

    pub(crate) fn set_heartbeat_listen_port(&mut self, port: u16) {
        self.heartbeat_port = port;
    }

    /// Sets something of a host, inserted if its number is new.
    pub(crate) fn set_host(&mut self, number: u16, set: impl FnOnce(&mut WatchdogHost)) {
        // The table's limit on numbers keeps it within 8 bits.
        let Ok(number) = u8::try_from(number) else { return };
        let at = match self.hosts.binary_search_by_key(&number, |host| host.number) {
            Ok(at) => at,
            Err(at) => {
                self.hosts.insert(at, WatchdogHost::empty(number));
                at
            }
        };
        set(&mut self.hosts[at]);
    }

    /// Sets something of a host that is there. Hosts come before heartbeats in the table.
    pub(crate) fn set_heartbeat(&mut self, number: u16, set: impl FnOnce(&mut WatchdogHost)) {
        if let Some(host) = self.hosts.iter_mut().find(|host| u16::from(host.number) == number) {
            set(host);
        }
    }
}

impl WatchdogHost {
    fn empty(number: u8) -> WatchdogHost {
        let (hostname, heartbeat_paths) = (String::new(), Vec::new());
        WatchdogHost { number, hostname, port: 0, pgpool_port: 0, heartbeat_port: HEARTBEAT_PORT, heartbeat_paths }
    }

    pub(crate) fn set_paths(&mut self, text: &str) {
        let path = |hostname: &str| HeartbeatPath { hostname: hostname.to_owned(), device: None };
        self.heartbeat_paths = text.split(';').map(str::trim).filter(|name| !name.is_empty()).map(path).collect();
    }

    /// The first device is that of the first path, and so on; an empty one leaves the choice to the system.
    pub(crate) fn set_devices(&mut self, text: &str) {
        for (path, device) in self.heartbeat_paths.iter_mut().zip(text.split(';').map(str::trim)) {
            path.device = Some(device).filter(|device| !device.is_empty()).map(str::to_owned);
        }
    }
}

/// Of hosts without a heartbeat setting; the default of the table.
const HEARTBEAT_PORT: u16 = 9694;

impl MonitoredInterfaces {
    pub(crate) fn of_list(names: Vec<String>) -> MonitoredInterfaces {
        if names.is_empty() {
            MonitoredInterfaces::Unwatched
        } else if names.iter().any(|name| name.eq_ignore_ascii_case("any")) {
            MonitoredInterfaces::Any
        } else {
            MonitoredInterfaces::Named(names)
        }
    }
}

impl LifecheckMethod {
    pub(crate) fn from_word(word: &str) -> LifecheckMethod {
        match word {
            "query" => LifecheckMethod::Query,
            "external" => LifecheckMethod::External,
            _ => LifecheckMethod::Heartbeat,
        }
    }
}

impl WatchdogEngine {
    pub(crate) fn from_word(word: &str) -> WatchdogEngine {
        if word == "etcd" { WatchdogEngine::Etcd } else { WatchdogEngine::Builtin }
    }
}

impl QuorumLossPolicy {
    pub(crate) fn from_word(word: &str) -> QuorumLossPolicy {
        if word == "refuse" { QuorumLossPolicy::Refuse } else { QuorumLossPolicy::Reads }
    }
}

/// Reads addresses with commas between them.
pub(crate) fn addresses(list: &str) -> Result<Vec<IpAddr>, String> {
    let mut addresses: Vec<IpAddr> = Vec::new();
    for text in list.split(',').map(str::trim).filter(|text| !text.is_empty()) {
        let address: IpAddr =
            text.parse().map_err(|_| format!("\"{text}\" is no IP address; write one without a network's length"))?;
        if address.is_unspecified() || address.is_multicast() {
            return Err(format!("\"{text}\" is no address that a host can hold"));
        }
        if addresses.contains(&address) {
            return Err(format!("\"{text}\" stands there twice"));
        }
        addresses.push(address);
    }
    Ok(addresses)
}

pub(crate) fn endpoints<'a>(list: impl Iterator<Item = &'a str>) -> Result<Vec<EtcdEndpoint>, String> {
    let mut endpoints = Vec::new();
    for text in list {
        if endpoints.len() == WATCHDOG_HOSTS_MAX {
            return Err(format!("more than {WATCHDOG_HOSTS_MAX} endpoints"));
        }
        endpoints
            .push(endpoint(text).ok_or_else(|| {
                format!("\"{text}\" is no http://host:port or https://host:port; an IPv6 address has brackets")
            })?);
    }
    Ok(endpoints)
}

fn endpoint(text: &str) -> Option<EtcdEndpoint> {
    let (scheme, rest) = text.split_once("://")?;
    let scheme = match scheme.to_ascii_lowercase().as_str() {
        "http" => EtcdScheme::Http,
        "https" => EtcdScheme::Https,
        _ => return None,
    };
    let (host, port) = rest.strip_suffix('/').unwrap_or(rest).rsplit_once(':')?;
    let host = match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
        Some(inner) => inner.parse::<core::net::Ipv6Addr>().ok().map(|_| inner)?,
        None => host,
    };
    let is_name = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '.' | '-' | '_');
    let is_host = !host.is_empty() && (host.chars().all(is_name) || host.parse::<IpAddr>().is_ok() && rest.starts_with('['));
    let port = port.parse().ok().filter(|port| *port > 0)?;
    is_host.then(|| EtcdEndpoint { scheme, host: host.to_owned(), port })
}

/// Reads the file `pgpool_node_id`.
pub(crate) fn own_number(bytes: &[u8]) -> Option<u8> {
    std::str::from_utf8(bytes).ok()?.trim().parse().ok()
}

/// True for this machine's own name or an address that only it reaches.
pub(crate) fn is_loopback(place: &str) -> bool {
    place.eq_ignore_ascii_case("localhost") || place.parse::<IpAddr>().is_ok_and(|ip| ip.to_canonical().is_loopback())
}

/// Sets what leans on other settings, or on which of them the file has.
pub(crate) fn finish(config: &mut Config) {
    let raw = |name: &str| config.setting(name, None).map(|setting| setting.raw.clone()).unwrap_or_default();
    let given = |name: &str| Some(raw(name)).filter(|text| !config.is_default(name) && !text.trim().is_empty());
    let interface_folder = raw("if_cmd_path");
    let commands = AddressCommands {
        up: given("if_up_cmd").map(|command| in_folder(&interface_folder, command)),
        down: given("if_down_cmd").map(|command| in_folder(&interface_folder, command)),
        announce: given("arping_cmd").map(|command| in_folder(&raw("arping_path"), command)),
    };
    let trusted = raw("trusted_server_command");
    let trusted = match given("ping_path") {
        Some(folder) if config.is_default("trusted_server_command") => in_folder(&folder, trusted),
        Some(_) | None => trusted,
    };
    let work_dir = config.work_dir.clone();
    let Some(watchdog) = &mut config.watchdog else { return };
    watchdog.address_commands = commands;
    watchdog.trusted_command = trusted;
    if watchdog.state_dir.as_os_str().is_empty() {
        watchdog.state_dir = work_dir;
    }
}

fn in_folder(folder: &str, command: String) -> String {
    let is_whole = folder.is_empty() || command.starts_with('/');
    if is_whole { command } else { format!("{}/{command}", folder.trim_end_matches('/')) }
}
