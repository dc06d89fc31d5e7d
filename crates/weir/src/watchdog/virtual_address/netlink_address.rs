//! The kernel's messages about addresses and links as bytes. No IO: `host_addresses` sends them.
//!
//! Source: rtnetlink(7), netlink(7); `struct ifaddrmsg`, `struct ifinfomsg` and `struct ifa_cacheinfo` of the kernel's headers. Numbers are in the
//! machine's byte order, addresses in the network's.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const HEADER_BYTES: usize = 16;
const ADDRESS_BYTES: usize = 8;
const LINK_BYTES: usize = 16;

const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const RTM_NEWLINK: u16 = 16;
const RTM_GETLINK: u16 = 18;
const RTM_NEWADDR: u16 = 20;
const RTM_DELADDR: u16 = 21;
const RTM_GETADDR: u16 = 22;

const NLM_F_REQUEST: u16 = 0x1;
const NLM_F_ACK: u16 = 0x4;
const NLM_F_DUMP_INTR: u16 = 0x10;
const NLM_F_REPLACE: u16 = 0x100;
const NLM_F_DUMP: u16 = 0x300;
const NLM_F_CREATE: u16 = 0x400;

const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const IFA_LABEL: u16 = 3;
const IFA_CACHEINFO: u16 = 6;
const IFA_FLAGS: u16 = 8;
const IFLA_ADDRESS: u16 = 1;
const IFLA_IFNAME: u16 = 3;
/// Bits of an attribute's type that are not its number.
const TYPE_MASK: u16 = 0x3fff;

const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;

/// No search for duplicates: an address on a host that stands still must not keep ours from being used.
const IFA_F_NODAD: u32 = 0x02;
/// No route to the network: it would end with the address, and the host's own address has made it already.
const IFA_F_NOPREFIXROUTE: u32 = 0x200;

const IFF_UP: u32 = 0x1;
const IFF_LOOPBACK: u32 = 0x8;
const IFF_RUNNING: u32 = 0x40;
const ARPHRD_ETHER: u16 = 1;

/// Bytes of an interface's name or label in the kernel, without the zero at its end.
const LABEL_BYTES_MAX: usize = 15;

/// An address of this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostAddress {
    pub interface: u32,
    pub address: IpAddr,
    pub prefix_bits: u8,
}

/// A link of this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostLink {
    pub interface: u32,
    pub name: String,
    pub is_loopback: bool,
    /// Switched on, and connected as far as its driver knows.
    pub is_running: bool,
    /// Of Ethernet, else none.
    pub mac: Option<[u8; 6]>,
}

/// One message of the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NetlinkReply {
    /// The outcome of an order: 0, or the number of an error.
    Outcome {
        errno: i32,
    },
    /// The list is over.
    Done,
    /// The list changed while it was read.
    Interrupted,
    Address(HostAddress),
    Link(HostLink),
    Other,
}

/// A question for all addresses.
pub fn list_addresses(sequence: u32) -> Vec<u8> {
    message(RTM_GETADDR, NLM_F_REQUEST | NLM_F_DUMP, sequence, &[0; ADDRESS_BYTES], &[])
}

/// A question for all links.
pub fn list_links(sequence: u32) -> Vec<u8> {
    message(RTM_GETLINK, NLM_F_REQUEST | NLM_F_DUMP, sequence, &[0; LINK_BYTES], &[])
}

/// An order that sets the address, or gives it another lifetime if it is there.
///
/// An address of IPv6 is deprecated at once: connections of this host must not choose it for their own end, since it may leave.
pub fn set_address(sequence: u32, host: &HostAddress, interface_name: &str, lifetime_s: u32) -> Vec<u8> {
    let bytes = address_bytes(host.address);
    let (flags, preferred_s) = match host.address {
        IpAddr::V4(_) => (IFA_F_NOPREFIXROUTE, lifetime_s),
        IpAddr::V6(_) => (IFA_F_NOPREFIXROUTE | IFA_F_NODAD, 0),
    };
    let flags = flags.to_ne_bytes();
    let mut lifetimes = [0; 16];
    lifetimes[..4].copy_from_slice(&preferred_s.to_ne_bytes());
    lifetimes[4..8].copy_from_slice(&lifetime_s.to_ne_bytes());
    let label = label_of(interface_name);
    let mut attributes: Vec<(u16, &[u8])> =
        vec![(IFA_LOCAL, &bytes), (IFA_ADDRESS, &bytes), (IFA_CACHEINFO, &lifetimes), (IFA_FLAGS, &flags)];
    if let (IpAddr::V4(_), Some(label)) = (host.address, &label) {
        attributes.push((IFA_LABEL, label));
    }
    let orders = NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE | NLM_F_REPLACE;
    message(RTM_NEWADDR, orders, sequence, &address_header(host), &attributes)
}

/// An order that removes the address.
pub fn remove_address(sequence: u32, host: &HostAddress) -> Vec<u8> {
    let bytes = address_bytes(host.address);
    message(RTM_DELADDR, NLM_F_REQUEST | NLM_F_ACK, sequence, &address_header(host), &[(IFA_LOCAL, &bytes)])
}

/// Reads the messages of one datagram that answer the question with this number.
pub fn replies(datagram: &[u8], sequence: u32) -> Vec<NetlinkReply> {
    let mut found = Vec::new();
    let mut rest = datagram;
    while let Some((length, header)) = u32_at(rest, 0).map(|length| length as usize).zip(rest.get(..HEADER_BYTES)) {
        let Some(body) = rest.get(HEADER_BYTES..length) else { break };
        if u32_at(header, 8) == Some(sequence) {
            found.push(reply(u16_at(header, 4).unwrap_or(0), u16_at(header, 6).unwrap_or(0), body));
        }
        rest = rest.get(padded(length)..).unwrap_or(&[]);
    }
    found
}

fn reply(kind: u16, flags: u16, body: &[u8]) -> NetlinkReply {
    if flags & NLM_F_DUMP_INTR != 0 {
        return NetlinkReply::Interrupted;
    }
    let read = match kind {
        NLMSG_ERROR => u32_at(body, 0).map(|code| NetlinkReply::Outcome { errno: (code as i32).saturating_neg() }),
        NLMSG_DONE => Some(NetlinkReply::Done),
        RTM_NEWADDR => host_address(body).map(NetlinkReply::Address),
        RTM_NEWLINK => host_link(body).map(NetlinkReply::Link),
        _ => None,
    };
    read.unwrap_or(NetlinkReply::Other)
}

fn host_address(body: &[u8]) -> Option<HostAddress> {
    let (family, prefix_bits, interface) = (*body.first()?, *body.get(1)?, u32_at(body, 4)?);
    let attributes = body.get(ADDRESS_BYTES..)?;
    // On a line between two ends the other attribute is the peer's.
    let bytes = attribute(attributes, IFA_LOCAL).or_else(|| attribute(attributes, IFA_ADDRESS))?;
    let address = match family {
        AF_INET => IpAddr::from(<[u8; 4]>::try_from(bytes).ok()?),
        AF_INET6 => IpAddr::from(<[u8; 16]>::try_from(bytes).ok()?),
        _ => return None,
    };
    Some(HostAddress { interface, address, prefix_bits })
}

fn host_link(body: &[u8]) -> Option<HostLink> {
    let (kind, interface, flags) = (u16_at(body, 2)?, u32_at(body, 4)?, u32_at(body, 8)?);
    let attributes = body.get(LINK_BYTES..)?;
    let name = attribute(attributes, IFLA_IFNAME)?;
    let name = String::from_utf8_lossy(name.strip_suffix(&[0]).unwrap_or(name)).into_owned();
    let mac = attribute(attributes, IFLA_ADDRESS).and_then(|bytes| <[u8; 6]>::try_from(bytes).ok());
    Some(HostLink {
        interface,
        name,
        is_loopback: flags & IFF_LOOPBACK != 0,
        is_running: flags & (IFF_UP | IFF_RUNNING) == IFF_UP | IFF_RUNNING,
        mac: mac.filter(|_| kind == ARPHRD_ETHER),
    })
}

/// The first attribute with this number.
fn attribute(mut rest: &[u8], number: u16) -> Option<&[u8]> {
    loop {
        let (length, kind) = (usize::from(u16_at(rest, 0)?), u16_at(rest, 2)?);
        let value = rest.get(4..length)?;
        if kind & TYPE_MASK == number {
            return Some(value);
        }
        rest = rest.get(padded(length)..)?;
    }
}

fn message(kind: u16, flags: u16, sequence: u32, fixed: &[u8], attributes: &[(u16, &[u8])]) -> Vec<u8> {
    let mut bytes = vec![0; HEADER_BYTES];
    bytes.extend_from_slice(fixed);
    for (number, value) in attributes {
        bytes.extend_from_slice(&((value.len() + 4) as u16).to_ne_bytes());
        bytes.extend_from_slice(&number.to_ne_bytes());
        bytes.extend_from_slice(value);
        bytes.resize(padded(bytes.len()), 0);
    }
    let length = bytes.len() as u32;
    bytes[..4].copy_from_slice(&length.to_ne_bytes());
    bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
    bytes[6..8].copy_from_slice(&flags.to_ne_bytes());
    bytes[8..12].copy_from_slice(&sequence.to_ne_bytes());
    bytes
}

/// The fixed part. Its byte of flags is replaced by an attribute, its scope is the whole world.
fn address_header(host: &HostAddress) -> [u8; ADDRESS_BYTES] {
    let family = if host.address.is_ipv4() { AF_INET } else { AF_INET6 };
    let [a, b, c, d] = host.interface.to_ne_bytes();
    [family, host.prefix_bits, 0, 0, a, b, c, d]
}

fn address_bytes(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => Ipv4Addr::octets(&address).to_vec(),
        IpAddr::V6(address) => Ipv6Addr::octets(&address).to_vec(),
    }
}

/// A label as Pgpool's sample has it, `eth0:0`; none beside a name that leaves no room.
fn label_of(interface_name: &str) -> Option<Vec<u8>> {
    let mut label = format!("{interface_name}:0").into_bytes();
    if label.len() > LABEL_BYTES_MAX {
        return None;
    }
    label.push(0);
    Some(label)
}

fn padded(length: usize) -> usize {
    length.saturating_add(3) & !3
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(address: &str, prefix_bits: u8) -> HostAddress {
        HostAddress { interface: 7, address: address.parse().expect("an address"), prefix_bits }
    }

    /// A list of the kernel has the form of an order, so that one reads as the other.
    fn check_reads_back(host: &HostAddress) {
        let bytes = set_address(3, host, "eth0", 2);
        assert_eq!(replies(&bytes, 3), [NetlinkReply::Address(*host)]);
        assert_eq!(replies(&bytes, 4), [], "an answer to another question");
        assert_eq!(bytes.len() % 4, 0);
        let body = &bytes[HEADER_BYTES + ADDRESS_BYTES..];
        let valid = attribute(body, IFA_CACHEINFO).and_then(|info| u32_at(info, 4));
        assert_eq!(valid, Some(2));
    }

    #[test]
    fn an_order_names_address_network_lifetime_and_label() {
        check_reads_back(&host("192.0.2.9", 24));
        check_reads_back(&host("2001:db8::9", 64));
        let four = set_address(1, &host("192.0.2.9", 24), "eth0", 2);
        assert_eq!(attribute(&four[HEADER_BYTES + ADDRESS_BYTES..], IFA_LABEL), Some(&b"eth0:0\0"[..]));
        let long = set_address(1, &host("192.0.2.9", 24), "enx001122334455", 2);
        assert_eq!(attribute(&long[HEADER_BYTES + ADDRESS_BYTES..], IFA_LABEL), None);
        let six = set_address(1, &host("2001:db8::9", 64), "eth0", 2);
        let six = &six[HEADER_BYTES + ADDRESS_BYTES..];
        assert_eq!(attribute(six, IFA_LABEL), None);
        assert_eq!(attribute(six, IFA_FLAGS).and_then(|flags| u32_at(flags, 0)), Some(0x202));
        assert_eq!(attribute(six, IFA_CACHEINFO).and_then(|info| u32_at(info, 0)), Some(0), "deprecated");
    }

    #[test]
    fn a_removal_is_the_message_the_kernel_documents() {
        let mut expected = vec![32, 0, 0, 0, 21, 0, 5, 0, 9, 0, 0, 0, 0, 0, 0, 0];
        expected.extend([2, 24, 0, 0, 7, 0, 0, 0]);
        expected.extend([8, 0, 2, 0, 192, 0, 2, 9]);
        if cfg!(target_endian = "little") {
            assert_eq!(remove_address(9, &host("192.0.2.9", 24)), expected);
        }
    }

    #[test]
    fn outcomes_links_and_the_end_of_a_list_are_read() {
        let refused = message(NLMSG_ERROR, 0, 1, &(-1_i32).to_ne_bytes(), &[]);
        assert_eq!(replies(&refused, 1), [NetlinkReply::Outcome { errno: 1 }]);
        let mut fixed = [0; LINK_BYTES];
        fixed[2..4].copy_from_slice(&ARPHRD_ETHER.to_ne_bytes());
        fixed[4..8].copy_from_slice(&2_u32.to_ne_bytes());
        fixed[8..12].copy_from_slice(&(IFF_UP | IFF_RUNNING).to_ne_bytes());
        let mut list = message(RTM_NEWLINK, 2, 1, &fixed, &[(IFLA_IFNAME, b"eth0\0"), (IFLA_ADDRESS, &[2, 0, 0, 0, 0, 1])]);
        list.extend(message(NLMSG_DONE, 2, 1, &[0; 4], &[]));
        let link =
            HostLink { interface: 2, name: "eth0".into(), is_loopback: false, is_running: true, mac: Some([2, 0, 0, 0, 0, 1]) };
        assert_eq!(replies(&list, 1), [NetlinkReply::Link(link), NetlinkReply::Done]);
        let changed = message(NLMSG_DONE, NLM_F_DUMP_INTR, 1, &[0; 4], &[]);
        assert_eq!(replies(&changed, 1), [NetlinkReply::Interrupted]);
    }

    #[test]
    fn torn_messages_of_any_length_are_no_address_and_end() {
        let whole = set_address(1, &host("2001:db8::9", 64), "eth0", 2);
        for length in 0..whole.len() {
            assert!(replies(&whole[..length], 1).is_empty(), "cut at {length}");
        }
        for at in 0..whole.len() {
            for value in [0, 1, 3, 255] {
                let mut broken = whole.clone();
                broken[at] = value;
                let _ = replies(&broken, 1);
            }
        }
    }
}
