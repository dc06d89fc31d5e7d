//! Other Weirs behind the clients' address: a cancel request may reach any of them.

/// Limit on peers. A cancel request for an unknown session goes to each.
const PEERS_MAX: usize = 64;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WeirAddress {
    /// Name, address, or folder of a unix socket.
    pub host: String,
    pub port: u16,
}

/// A fault in the list, by the operator.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PeerError {
    #[error("\"{0}\" is no host:port; a folder of unix sockets stands for a host, and an IPv6 address has brackets")]
    NoPlace(String),
    #[error("more than {PEERS_MAX} peers")]
    TooMany,
}

pub fn read<'a>(entries: impl Iterator<Item = &'a str>) -> Result<Vec<WeirAddress>, PeerError> {
    let mut peers = Vec::new();
    for entry in entries {
        if peers.len() == PEERS_MAX {
            return Err(PeerError::TooMany);
        }
        peers.push(read_one(entry).ok_or_else(|| PeerError::NoPlace(entry.to_owned()))?);
    }
    Ok(peers)
}

fn read_one(entry: &str) -> Option<WeirAddress> {
    let (host, port) = entry.rsplit_once(':')?;
    let inner = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let host = match inner {
        Some(inner) => inner,
        None if host.contains(':') && !host.starts_with('/') => return None,
        None => host,
    };
    let port = port.parse().ok().filter(|port| *port > 0)?;
    (!host.is_empty()).then(|| WeirAddress { host: host.to_owned(), port })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_is_a_host_an_address_or_a_folder_and_its_port() {
        let of = |entry: &str| read([entry].into_iter()).map(|peers| format!("{} {}", peers[0].host, peers[0].port));
        for (entry, expected) in
            [("a:1", "a 1"), ("10.0.0.1:6432", "10.0.0.1 6432"), ("[::1]:6432", "::1 6432"), ("/run/weir:9999", "/run/weir 9999")]
        {
            assert_eq!(of(entry).as_deref(), Ok(expected));
        }
        for entry in ["a", "a:", "a:0", "a:x", "a:65536", ":1", "::1:6432", "[]:1", ""] {
            assert_eq!(of(entry), Err(PeerError::NoPlace(entry.to_owned())));
        }
        assert_eq!(read(std::iter::repeat_n("a:1", PEERS_MAX + 1)), Err(PeerError::TooMany));
    }
}
