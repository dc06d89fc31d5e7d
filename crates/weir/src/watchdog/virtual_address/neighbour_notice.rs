//! Frames that tell neighbours on the network who has an address now. No IO: `host_addresses` sends them.
//!
//! Without them a neighbour goes on to send to the former holder until its entry is old.
//! Source: RFC 826 and RFC 5227 section 3 (ARP), RFC 4861 sections 4.4 and 7.2.6 (IPv6).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const ETHERTYPE_ARP: [u8; 2] = [0x08, 0x06];
const ETHERTYPE_IPV6: [u8; 2] = [0x86, 0xdd];
/// Smallest payload of Ethernet; a shorter one is filled up.
const PAYLOAD_BYTES_MIN: usize = 46;
const ICMPV6: u8 = 58;
const NEIGHBOUR_ADVERTISEMENT: u8 = 136;
/// The address replaces what a neighbour knew.
const OVERRIDE: u8 = 0x20;
const OPTION_LINK_ADDRESS: u8 = 2;
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

/// The frame that says: this address is at this MAC.
pub fn notice_frame(address: IpAddr, mac: [u8; 6]) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => gratuitous_arp(address, mac),
        IpAddr::V6(address) => unsolicited_advertisement(address, mac),
    }
}

/// A question by the address for itself, which all hosts hear.
fn gratuitous_arp(address: Ipv4Addr, mac: [u8; 6]) -> Vec<u8> {
    let mut frame = ethernet([0xff; 6], mac, ETHERTYPE_ARP);
    // Ethernet and IPv4, with the lengths of their addresses; a request.
    frame.extend([0, 1, 0x08, 0x00, 6, 4, 0, 1]);
    frame.extend(mac);
    frame.extend(address.octets());
    frame.extend([0; 6]);
    frame.extend(address.octets());
    frame.resize(14 + PAYLOAD_BYTES_MIN, 0);
    frame
}

fn unsolicited_advertisement(address: Ipv6Addr, mac: [u8; 6]) -> Vec<u8> {
    let mut advertisement = vec![NEIGHBOUR_ADVERTISEMENT, 0, 0, 0, OVERRIDE, 0, 0, 0];
    advertisement.extend(address.octets());
    advertisement.extend([OPTION_LINK_ADDRESS, 1]);
    advertisement.extend(mac);
    let sum = checksum(address, ALL_NODES, &advertisement);
    advertisement[2..4].copy_from_slice(&sum.to_be_bytes());
    // The group's address of Ethernet. 255 hops prove to the receiver that no router passed it on.
    let mut frame = ethernet([0x33, 0x33, 0, 0, 0, 1], mac, ETHERTYPE_IPV6);
    frame.extend([0x60, 0, 0, 0]);
    frame.extend((advertisement.len() as u16).to_be_bytes());
    frame.extend([ICMPV6, 255]);
    frame.extend(address.octets());
    frame.extend(ALL_NODES.octets());
    frame.extend(advertisement);
    frame
}

fn ethernet(to: [u8; 6], from: [u8; 6], kind: [u8; 2]) -> Vec<u8> {
    [&to[..], &from, &kind].concat()
}

/// The sum of RFC 4443 section 2.3, over a header that is not sent and the message.
fn checksum(from: Ipv6Addr, to: Ipv6Addr, message: &[u8]) -> u16 {
    let length = (message.len() as u32).to_be_bytes();
    let all = [&from.octets()[..], &to.octets(), &length, &[0, 0, 0, ICMPV6], message].concat();
    let words = all.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair.get(1).copied().unwrap_or(0)));
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAC: [u8; 6] = [2, 0x42, 0, 0, 0, 9];

    #[test]
    fn a_gratuitous_arp_asks_everybody_for_its_own_address() {
        let frame = notice_frame("192.0.2.9".parse().expect("an address"), MAC);
        assert_eq!(frame.len(), 60);
        assert_eq!(frame[..14], [255, 255, 255, 255, 255, 255, 2, 0x42, 0, 0, 0, 9, 8, 6]);
        let (sender, target) = (&frame[28..32], &frame[38..42]);
        assert_eq!((sender, target), (&[192, 0, 2, 9][..], &[192, 0, 2, 9][..]));
        assert_eq!(frame[20..22], [0, 1], "a request");
        assert_eq!(frame[22..28], MAC);
    }

    #[test]
    fn an_advertisement_overrides_and_its_checksum_proves_right() {
        let address: Ipv6Addr = "2001:db8::9".parse().expect("an address");
        let frame = notice_frame(IpAddr::V6(address), MAC);
        assert_eq!(frame.len(), 14 + 40 + 32);
        assert_eq!(frame[..6], [0x33, 0x33, 0, 0, 0, 1]);
        assert_eq!(frame[21], 255, "hops");
        let message = &frame[54..];
        assert_eq!(message[4], OVERRIDE);
        assert_eq!(message[8..24], address.octets());
        assert_eq!(message[26..], MAC);
        assert_eq!(checksum(address, ALL_NODES, message), 0, "a sum over a right sum is zero");
    }
}
