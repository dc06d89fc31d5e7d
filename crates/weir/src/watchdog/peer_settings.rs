//! Settings of the links between members: hosts, their paths, places to listen on, and the key.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use weir_group::HostNumber;
use zeroize::Zeroizing;

/// Most paths to one host; the configuration has two or three.
pub const PATHS_MAX: usize = 8;

/// `wd_authkey`.
#[derive(Clone, PartialEq, Eq)]
pub struct PeerKey(Zeroizing<Vec<u8>>);

impl PeerKey {
    /// `None` if it is empty.
    pub fn new(text: &str) -> Option<PeerKey> {
        (!text.is_empty()).then(|| PeerKey(Zeroizing::new(text.as_bytes().to_vec())))
    }

    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

#[derive(Clone, PartialEq, Eq)]
pub struct PeerSettings {
    /// Of this host.
    pub host: HostNumber,
    /// All configured hosts; this one is passed over.
    pub hosts: Vec<PeerHostSettings>,
    /// `wd_listen_address`; none: all addresses, or loopback without a key.
    pub listen_addresses: Vec<IpAddr>,
    /// `wd_listen_port`, or this host's `wd_port`.
    pub listen_port: u16,
    /// `wd_heartbeat_listen_addresses`; none as above.
    pub datagram_addresses: Vec<IpAddr>,
    /// `wd_heartbeat_listen_port`, or this host's `heartbeat_port`.
    pub datagram_port: u16,
    pub key: Option<PeerKey>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerHostSettings {
    pub number: HostNumber,
    /// `hostnameN`
    pub name: String,
    /// `wd_portN`
    pub port: u16,
    /// Names or addresses of `heartbeat_hostnameN`; none: `name`.
    pub heartbeat_names: Vec<String>,
    /// `heartbeat_portN`
    pub heartbeat_port: u16,
}

/// A name or address of a host, with a port.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PeerPlace {
    pub name: String,
    pub port: u16,
}

impl std::fmt::Display for PeerPlace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.name.contains(':') {
            write!(f, "[{}]:{}", self.name, self.port)
        } else {
            write!(f, "{}:{}", self.name, self.port)
        }
    }
}

impl PeerHostSettings {
    /// One for each path: the host's name, and what else its heartbeats go to.
    pub fn links(&self) -> Vec<PeerPlace> {
        let names = std::iter::once(&self.name).chain(&self.heartbeat_names);
        places(names, self.port)
    }

    pub fn datagrams(&self) -> Vec<PeerPlace> {
        let own = self.heartbeat_names.is_empty().then_some(&self.name);
        places(self.heartbeat_names.iter().chain(own), self.heartbeat_port)
    }
}

fn places<'a>(names: impl Iterator<Item = &'a String>, port: u16) -> Vec<PeerPlace> {
    let mut seen = BTreeSet::new();
    let first = names.filter(|name| !name.is_empty() && seen.insert(name.as_str()));
    first.map(|name| PeerPlace { name: name.clone(), port }).take(PATHS_MAX).collect()
}

impl PeerSettings {
    pub fn others(&self) -> impl Iterator<Item = &PeerHostSettings> {
        self.hosts.iter().filter(|host| host.number != self.host)
    }

    /// Without a key nobody is authenticated, so that only this machine is spoken to.
    pub fn may_talk_to(&self, address: IpAddr) -> bool {
        self.key.is_some() || address.to_canonical().is_loopback()
    }

    pub fn names(&self) -> BTreeSet<String> {
        self.others().flat_map(|host| host.links().into_iter().chain(host.datagrams())).map(|place| place.name).collect()
    }

    pub fn listen_places(&self) -> Vec<SocketAddr> {
        self.places(&self.listen_addresses, self.listen_port)
    }

    pub fn datagram_places(&self) -> Vec<SocketAddr> {
        self.places(&self.datagram_addresses, self.datagram_port)
    }

    /// Where datagrams leave from: no port of their own.
    pub fn sender_places(&self) -> Vec<SocketAddr> {
        self.places(&[], 0)
    }

    fn places(&self, named: &[IpAddr], port: u16) -> Vec<SocketAddr> {
        const LOOPBACK: [IpAddr; 2] = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];
        const ALL: [IpAddr; 2] = [IpAddr::V4(Ipv4Addr::UNSPECIFIED), IpAddr::V6(Ipv6Addr::UNSPECIFIED)];
        let addresses = match (named, &self.key) {
            ([], None) => &LOOPBACK[..],
            ([], Some(_)) => &ALL[..],
            (named, _) => named,
        };
        addresses.iter().map(|address| SocketAddr::new(*address, port)).collect()
    }

    pub fn listens_as(&self, other: &PeerSettings) -> bool {
        self.listen_places() == other.listen_places() && self.datagram_places() == other.datagram_places()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(places: Vec<PeerPlace>) -> String {
        places.iter().map(PeerPlace::to_string).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn each_address_of_a_host_is_a_path() {
        let host = |heartbeats: &[&str]| PeerHostSettings {
            number: 1,
            name: "weir1".into(),
            port: 9000,
            heartbeat_names: heartbeats.iter().map(|name| name.to_string()).collect(),
            heartbeat_port: 9694,
        };
        let two = host(&["10.0.0.1", "weir1", "fd00::1", "10.0.0.1", ""]);
        assert_eq!(shown(two.links()), "weir1:9000 10.0.0.1:9000 [fd00::1]:9000");
        assert_eq!(shown(two.datagrams()), "10.0.0.1:9694 weir1:9694 [fd00::1]:9694");
        assert_eq!(shown(host(&[]).links()), "weir1:9000");
        assert_eq!(shown(host(&[]).datagrams()), "weir1:9694");
    }

    #[test]
    fn without_a_key_only_loopback_is_used() {
        let mut settings = PeerSettings {
            host: 0,
            hosts: vec![],
            listen_addresses: vec![],
            listen_port: 9000,
            datagram_addresses: vec![],
            datagram_port: 9694,
            key: PeerKey::new(""),
        };
        let address = |text: &str| text.parse::<IpAddr>().unwrap();
        assert!(settings.listen_places().iter().all(|place| place.ip().is_loopback()));
        for (text, may) in [("127.0.0.1", true), ("::1", true), ("::ffff:127.0.0.2", true), ("10.0.0.1", false), ("::", false)] {
            assert_eq!(settings.may_talk_to(address(text)), may, "{text}");
        }
        settings.key = PeerKey::new("secret");
        assert!(
            settings.may_talk_to(address("10.0.0.1")) && settings.listen_places().iter().all(|place| place.ip().is_unspecified())
        );
    }
}
