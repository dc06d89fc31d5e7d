//! This host's addresses: reads, sets and removes them over netlink, and tells neighbours. All of it blocks, if only for the kernel's lock of
//! its network settings.

use super::neighbour_notice::notice_frame;
use super::netlink_address::{self, HostAddress, HostLink, NetlinkReply};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with};
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use weir_group::{ADDRESS_LEFT_MS_MIN, AddressSetting, address_lifetime_s, may_outlive_lease};
use weir_io::clock::boot_now_ms as now_ms;

/// The kernel hands lists out in pieces of at most this size. Source: `netlink_dump`.
const DATAGRAM_BYTES_MAX: usize = 32 << 10;
/// Pieces of one list: a host with more addresses is not one of ours.
const DATAGRAMS_MAX: usize = 1024;
/// Tries to read a list that changes meanwhile.
const LIST_TRIES: usize = 5;
/// Every question has a socket of its own.
const SEQUENCE: u32 = 1;

/// Why the kernel did not do something with an address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    #[error(
        "{deed} is not permitted; Weir needs the capability {capability} (in a unit of systemd: AmbientCapabilities=CAP_NET_ADMIN \
         CAP_NET_RAW), or if_up_cmd, if_down_cmd and arping_cmd"
    )]
    NotPermitted { deed: String, capability: &'static str },
    #[error("no network of this host contains {address} of delegate_ip; correct delegate_ip, or set if_up_cmd and if_down_cmd")]
    NoNetwork { address: IpAddr },
    #[error("{deed} failed: {cause}")]
    Kernel { deed: String, cause: Errno },
    /// Nothing was set: the address could outlive the lease.
    #[error(
        "the lease is too short for a lifetime in the kernel: {left_ms} ms are left, and {ADDRESS_LEFT_MS_MIN} ms are needed"
    )]
    TooLate { left_ms: u64 },
    /// The kernel took so long that the address could outlive the lease. It must be removed.
    #[error("the kernel took {took_ms} ms to set {address}, which is too long for the lease")]
    TooSlow { address: IpAddr, took_ms: u64 },
    #[error("a call of the kernel had no end: its thread failed")]
    Thread,
    #[error("the kernel's list of addresses or links could not be read: {0}")]
    List(&'static str),
}

impl AddressError {
    fn of(deed: String, capability: &'static str, cause: Errno) -> AddressError {
        match cause {
            Errno::PERM => AddressError::NotPermitted { deed, capability },
            cause => AddressError::Kernel { deed, cause },
        }
    }

    /// This end of a try to set the address, for the plan.
    pub fn setting(&self) -> AddressSetting {
        match self {
            AddressError::TooLate { .. } => AddressSetting::TooLate,
            AddressError::TooSlow { .. } => AddressSetting::TooSlow,
            AddressError::NotPermitted { .. }
            | AddressError::NoNetwork { .. }
            | AddressError::Kernel { .. }
            | AddressError::Thread
            | AddressError::List(_) => AddressSetting::Failed,
        }
    }
}

/// Where a virtual address belongs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddressPlace {
    pub host: HostAddress,
    pub interface_name: String,
}

/// Returns the interface whose own network contains the address, by the longest prefix. The delegated addresses themselves do not count.
pub fn place_of(
    address: IpAddr,
    delegated: &[IpAddr],
    hosts: &[HostAddress],
    links: &[HostLink],
) -> Result<AddressPlace, AddressError> {
    let mut best: Option<AddressPlace> = None;
    for host in hosts.iter().filter(|host| !delegated.contains(&host.address) && contains(host, address)) {
        let Some(link) = links.iter().find(|link| link.interface == host.interface && !link.is_loopback) else { continue };
        if best.as_ref().is_none_or(|best| best.host.prefix_bits < host.prefix_bits) {
            best = Some(AddressPlace { host: HostAddress { address, ..*host }, interface_name: link.name.clone() });
        }
    }
    best.ok_or(AddressError::NoNetwork { address })
}

fn contains(host: &HostAddress, address: IpAddr) -> bool {
    let (own, asked, bits) = match (host.address, address) {
        (IpAddr::V4(own), IpAddr::V4(asked)) => (u128::from(own.to_bits()) << 96, u128::from(asked.to_bits()) << 96, 32),
        (IpAddr::V6(own), IpAddr::V6(asked)) => (own.to_bits(), asked.to_bits(), 128),
        (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => return false,
    };
    let prefix_bits = u32::from(host.prefix_bits.min(bits));
    let mask = u128::MAX.checked_shl(128 - prefix_bits).unwrap_or(0);
    // A network of everything says nothing about where an address belongs.
    prefix_bits > 0 && own & mask == asked & mask
}

/// Finds the places of all addresses.
pub fn find_places(delegated: &[IpAddr]) -> Result<Vec<AddressPlace>, AddressError> {
    let (hosts, links) = (host_addresses()?, host_links()?);
    delegated.iter().map(|address| place_of(*address, delegated, &hosts, &links)).collect()
}

/// Sets the addresses with a lifetime within the lease, or renews it. Returns when the first of them ends, in ms of the boot clock, if all
/// is quiet. The clock is read right before and after each call.
pub fn set_all(places: &[AddressPlace], lease_until_ms: u64) -> Result<u64, AddressError> {
    let mut ends_ms = u64::MAX;
    for place in places {
        let address = place.host.address;
        let began_ms = now_ms();
        let left_ms = lease_until_ms.saturating_sub(began_ms);
        let Some(seconds) = address_lifetime_s(left_ms) else { return Err(AddressError::TooLate { left_ms }) };
        let order = netlink_address::set_address(SEQUENCE, &place.host, &place.interface_name, seconds);
        let deed = || format!("setting {address}/{} on {}", place.host.prefix_bits, place.interface_name);
        obey(&order).map_err(|cause| AddressError::of(deed(), "CAP_NET_ADMIN", cause))?;
        let ended_ms = now_ms();
        // The lifetime began within the call, at its end at the latest.
        if may_outlive_lease(ended_ms, seconds, left_ms, lease_until_ms) {
            return Err(AddressError::TooSlow { address, took_ms: ended_ms - began_ms });
        }
        ends_ms = ends_ms.min(began_ms + u64::from(seconds) * 1000);
    }
    Ok(ends_ms)
}

/// Removes the addresses wherever they are on this host, and returns how many were there. Tries all, and returns the first error.
pub fn remove_all(delegated: &[IpAddr]) -> Result<usize, AddressError> {
    let mut removed = 0;
    let mut outcome = Ok(());
    for host in host_addresses()?.iter().filter(|host| delegated.contains(&host.address)) {
        match obey(&netlink_address::remove_address(SEQUENCE, host)) {
            Ok(()) => removed += 1,
            // It ended by itself.
            Err(Errno::ADDRNOTAVAIL | Errno::NODEV) => {}
            Err(cause) => {
                let deed = format!("removing {}", host.address);
                outcome = outcome.and(Err(AddressError::of(deed, "CAP_NET_ADMIN", cause)));
            }
        }
    }
    outcome.map(|()| removed)
}

/// Removes addresses that another process left, and returns how many there were. One outside of all networks of this host seems to be
/// the host's own, and stays.
pub fn remove_leftovers(delegated: &[IpAddr]) -> Result<usize, AddressError> {
    let (hosts, links) = (host_addresses()?, host_links()?);
    let mut outcome = Ok(());
    let mut ours = Vec::new();
    for address in delegated {
        match place_of(*address, delegated, &hosts, &links) {
            Ok(_) => ours.push(*address),
            Err(error) => outcome = outcome.and(Err(error)),
        }
    }
    let removed = remove_all(&ours)?;
    outcome.map(|()| removed)
}

/// Tells the neighbours of each address that is on this host, unless the lease is over. An interface that is not of Ethernet has none.
pub fn announce_all(delegated: &[IpAddr], lease_until_ms: u64) -> Result<(), AddressError> {
    let (hosts, links) = (host_addresses()?, host_links()?);
    let mut socket: Option<OwnedFd> = None;
    for host in hosts.iter().filter(|host| delegated.contains(&host.address)) {
        let Some(link) = links.iter().find(|link| link.interface == host.interface) else { continue };
        let Some(mac) = link.mac else { continue };
        let deed = || format!("telling the neighbours at {} of {}", link.name, host.address);
        let open = match socket.take() {
            Some(open) => open,
            None => socket_with(AddressFamily::PACKET, SocketType::RAW, SocketFlags::CLOEXEC, None)
                .map_err(|cause| AddressError::of(deed(), "CAP_NET_RAW", cause))?,
        };
        if now_ms() >= lease_until_ms {
            return Ok(());
        }
        weir_ring::send_link_frame(&open, link.interface, &notice_frame(host.address, mac)).map_err(|cause| {
            let cause = Errno::from_io_error(&cause).unwrap_or(Errno::IO);
            AddressError::of(deed(), "CAP_NET_RAW", cause)
        })?;
        socket = Some(open);
    }
    Ok(())
}

/// All addresses of this host.
pub fn host_addresses() -> Result<Vec<HostAddress>, AddressError> {
    let replies = list(&netlink_address::list_addresses(SEQUENCE))?;
    Ok(replies.into_iter().filter_map(|reply| if let NetlinkReply::Address(host) = reply { Some(host) } else { None }).collect())
}

/// All links of this host.
pub fn host_links() -> Result<Vec<HostLink>, AddressError> {
    let replies = list(&netlink_address::list_links(SEQUENCE))?;
    Ok(replies.into_iter().filter_map(|reply| if let NetlinkReply::Link(link) = reply { Some(link) } else { None }).collect())
}

/// Reads a whole list, anew if it changed meanwhile.
fn list(question: &[u8]) -> Result<Vec<NetlinkReply>, AddressError> {
    for _ in 0..LIST_TRIES {
        let replies = list_once(question)?;
        if !replies.contains(&NetlinkReply::Interrupted) {
            return Ok(replies);
        }
    }
    Err(AddressError::List("it changed again and again"))
}

fn list_once(question: &[u8]) -> Result<Vec<NetlinkReply>, AddressError> {
    let failed = |cause| AddressError::of("asking for the host's addresses".to_owned(), "CAP_NET_ADMIN", cause);
    let socket = ask(question).map_err(failed)?;
    let mut all = Vec::new();
    for _ in 0..DATAGRAMS_MAX {
        let replies = receive(&socket).map_err(failed)?;
        let outcome =
            replies.iter().find_map(|reply| if let NetlinkReply::Outcome { errno } = reply { Some(*errno) } else { None });
        if let Some(errno) = outcome {
            return Err(failed(Errno::from_raw_os_error(errno)));
        }
        let is_over = replies.iter().any(|reply| matches!(reply, NetlinkReply::Done | NetlinkReply::Interrupted));
        all.extend(replies);
        if is_over {
            return Ok(all);
        }
    }
    Err(AddressError::List("it has too many entries"))
}

/// Sends an order and returns its outcome.
fn obey(order: &[u8]) -> Result<(), Errno> {
    let socket = ask(order)?;
    for reply in receive(&socket)? {
        match reply {
            NetlinkReply::Outcome { errno: 0 } => return Ok(()),
            NetlinkReply::Outcome { errno } => return Err(Errno::from_raw_os_error(errno)),
            NetlinkReply::Done
            | NetlinkReply::Interrupted
            | NetlinkReply::Address(_)
            | NetlinkReply::Link(_)
            | NetlinkReply::Other => {}
        }
    }
    Err(Errno::PROTO)
}

/// The kernel does what it is asked within the call; answers are there when it returns.
fn ask(message: &[u8]) -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
    send(&socket, message, SendFlags::empty())?;
    Ok(socket)
}

fn receive(socket: &OwnedFd) -> Result<Vec<NetlinkReply>, Errno> {
    let mut datagram = vec![0; DATAGRAM_BYTES_MAX];
    let (_, length) = recv(socket, &mut datagram[..], RecvFlags::TRUNC)?;
    let datagram = datagram.get(..length).ok_or(Errno::MSGSIZE)?;
    Ok(netlink_address::replies(datagram, SEQUENCE))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    fn host(interface: u32, text: &str, prefix_bits: u8) -> HostAddress {
        HostAddress { interface, address: address(text), prefix_bits }
    }

    fn links() -> Vec<HostLink> {
        let link = |interface, name: &str| HostLink {
            interface,
            name: name.into(),
            is_loopback: name == "lo",
            is_running: true,
            mac: None,
        };
        vec![link(1, "lo"), link(2, "eth0"), link(3, "eth1")]
    }

    #[track_caller]
    fn check_place(asked: &str, hosts: &[HostAddress], expected: Option<(&str, u8)>) {
        let delegated = [address("192.0.2.9"), address("2001:db8::9")];
        let place = place_of(address(asked), &delegated, hosts, &links()).ok();
        assert_eq!(place.as_ref().map(|place| (place.interface_name.as_str(), place.host.prefix_bits)), expected);
    }

    #[test]
    fn an_address_belongs_where_the_narrowest_own_network_contains_it() {
        let hosts = [
            host(1, "127.0.0.1", 8),
            host(2, "192.0.0.1", 16),
            host(3, "192.0.2.1", 24),
            host(3, "2001:db8::1", 64),
            host(2, "fe80::1", 64),
        ];
        check_place("192.0.2.9", &hosts, Some(("eth1", 24)));
        check_place("192.0.3.9", &hosts, Some(("eth0", 16)));
        check_place("2001:db8::9", &hosts, Some(("eth1", 64)));
        check_place("2001:db9::9", &hosts, None);
        check_place("127.0.0.9", &hosts, None);
        check_place("192.0.2.9", &[host(2, "192.0.2.9", 24)], None);
        check_place("192.0.2.9", &[host(2, "192.0.2.1", 0)], None);
        check_place("192.0.2.9", &[host(2, "192.0.2.8", 32)], None);
    }
}
