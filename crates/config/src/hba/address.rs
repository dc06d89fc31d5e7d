//! The address field of a rule. Source: `check_same_host_or_net`, `check_hostname` and `parse_hba_line` in PostgreSQL's hba.c.

use super::{ClientOrigin, HbaFact, HbaMatch, HbaQuestion, LoginFacts};
use core::net::IpAddr;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum HbaAddress {
    /// All hosts, and unix sockets.
    All,
    SameHost,
    SameNet,
    Network(IpNetwork),
    /// The host with this name, or all below `.name`.
    Host(String),
}

/// A range of addresses. The mask may have holes, as in PostgreSQL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IpNetwork {
    address: IpAddr,
    mask: u128,
}

impl IpNetwork {
    /// Makes a network; `None` if the families differ.
    pub fn new(address: IpAddr, mask: IpAddr) -> Option<IpNetwork> {
        (address.is_ipv4() == mask.is_ipv4()).then_some(IpNetwork { address, mask: bits(mask) })
    }

    /// Makes a network; `None` if the prefix is too long.
    pub fn with_prefix(address: IpAddr, prefix: u32) -> Option<IpNetwork> {
        let width = if address.is_ipv4() { 32 } else { 128 };
        let all = u128::MAX >> (128 - width);
        let low = u128::MAX.checked_shr(128 - width + prefix).unwrap_or(0);
        (prefix <= width).then_some(IpNetwork { address, mask: all & !low })
    }

    /// True if the network includes all addresses of `other`.
    pub(super) fn covers(&self, other: &IpNetwork) -> bool {
        self.contains(other.address) && self.mask & other.mask == self.mask
    }

    pub fn contains(&self, address: IpAddr) -> bool {
        self.address.is_ipv4() == address.is_ipv4() && (bits(self.address) ^ bits(address)) & self.mask == 0
    }
}

fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(u32::from(address)),
        IpAddr::V6(address) => u128::from(address),
    }
}

impl HbaAddress {
    /// True if other hosts than this one match.
    pub fn has_others(&self) -> bool {
        match self {
            HbaAddress::All | HbaAddress::SameNet => true,
            HbaAddress::SameHost => false,
            HbaAddress::Network(network) => !(network.address.is_loopback() && network.mask.count_ones() >= 8),
            HbaAddress::Host(name) => !name.eq_ignore_ascii_case("localhost"),
        }
    }

    pub fn fit(&self, visit: &LoginFacts<'_>) -> HbaMatch {
        let ClientOrigin::Address(from) = visit.origin else {
            return matches!(self, HbaAddress::All).into();
        };
        match self {
            HbaAddress::All => HbaMatch::Yes,
            HbaAddress::SameHost => visit.networks.iter().any(|network| network.address == from).into(),
            HbaAddress::SameNet => visit.networks.iter().any(|network| network.contains(from)).into(),
            HbaAddress::Network(network) => network.contains(from).into(),
            HbaAddress::Host(name) => match visit.host {
                HbaFact::NotAsked => HbaMatch::Ask(HbaQuestion::HostName),
                HbaFact::Nothing => HbaMatch::No,
                HbaFact::Is(host) => is_host(name, host).into(),
            },
        }
    }
}

/// Compares without case; `.example.com` matches every host below it.
fn is_host(wanted: &str, host: &str) -> bool {
    if !wanted.starts_with('.') {
        return wanted.eq_ignore_ascii_case(host);
    }
    let at = host.len().checked_sub(wanted.len());
    at.filter(|at| *at > 0).and_then(|at| host.get(at..)).is_some_and(|end| end.eq_ignore_ascii_case(wanted))
}

/// Parses a numeric address. IPv4 in all forms of `getaddrinfo`, as in PostgreSQL: `0` is 0.0.0.0, and the last of fewer than four parts
/// fills the remaining bytes. Source: inet(3).
pub(super) fn numeric(text: &str) -> Option<IpAddr> {
    if let Ok(ip) = text.parse() {
        return Some(ip);
    }
    let parts: Vec<u32> = text.split('.').map(part).collect::<Option<_>>()?;
    let (last, first) = parts.split_last()?;
    let free_bits = 32 - 8 * u32::try_from(first.len()).ok().filter(|count| *count <= 3)?;
    let is_in_range = first.iter().all(|byte| *byte <= 255) && u64::from(*last) < 1 << free_bits;
    let first = first.iter().zip([24, 16, 8]).fold(0, |bits, (byte, shift)| bits | byte << shift);
    is_in_range.then(|| IpAddr::V4((first | last).into()))
}

/// Parses a part: decimal, octal after 0, hexadecimal after 0x.
fn part(text: &str) -> Option<u32> {
    let (digits, radix) = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => (digits, 16),
        None if text.len() > 1 && text.starts_with('0') => (&text[1..], 8),
        None => (text, 10),
    };
    // `from_str_radix` would accept a sign.
    let is_number = digits.starts_with(|c: char| c.is_ascii_hexdigit());
    is_number.then(|| u32::from_str_radix(digits, radix).ok()).flatten()
}

/// Parses the field. `Ok(None)`: an address without its mask, which must follow.
pub(super) fn parse(text: &str) -> Result<(IpAddr, Option<IpNetwork>), Option<String>> {
    let (address, prefix) = match text.split_once('/') {
        Some((address, prefix)) => (address, Some(prefix)),
        None => (text, None),
    };
    // A link-local IPv6 address may carry the name of its interface.
    let bare = address.split('%').next().unwrap_or(address);
    let Some(ip) = numeric(bare) else {
        return match prefix {
            // A host name.
            None => Err(None),
            Some(_) => Err(Some(format!("specifying both host name and CIDR mask is invalid: \"{text}\""))),
        };
    };
    let Some(prefix) = prefix else { return Ok((ip, None)) };
    let network = prefix.parse().ok().and_then(|prefix| IpNetwork::with_prefix(ip, prefix));
    match network {
        Some(network) => Ok((ip, Some(network))),
        None => Err(Some(format!("invalid CIDR mask in address \"{text}\""))),
    }
}
