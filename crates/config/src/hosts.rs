//! Hosts of a store of answers.

/// Limit on hosts: each has a bit in a word.
const HOSTS_MAX: usize = 32;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreHost {
    Tcp {
        name: String,
        port: u16,
    },
    /// Path of a unix socket.
    Unix(String),
}

impl std::fmt::Display for StoreHost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            StoreHost::Tcp { name, port } if name.contains(':') => write!(f, "[{name}]:{port}"),
            StoreHost::Tcp { name, port } => write!(f, "{name}:{port}"),
            StoreHost::Unix(path) => f.write_str(path),
        }
    }
}

/// Reads hosts separated by commas: `name`, `name:port`, `[::1]:port` or `/path`.
pub fn hosts(list: &str, port: u16) -> Result<Vec<StoreHost>, String> {
    let hosts = list.split(',').map(|text| host(text.trim(), port)).collect::<Result<Vec<StoreHost>, String>>()?;
    if hosts.len() > HOSTS_MAX {
        return Err(format!("{} hosts, the limit is {HOSTS_MAX}", hosts.len()));
    }
    for (at, host) in hosts.iter().enumerate() {
        if hosts[..at].contains(host) {
            return Err(format!("{host} is named twice"));
        }
    }
    Ok(hosts)
}

fn host(text: &str, port: u16) -> Result<StoreHost, String> {
    if text.starts_with('/') {
        return Ok(StoreHost::Unix(text.to_string()));
    }
    let bracketed = text.strip_prefix('[').and_then(|text| text.split_once(']'));
    let (name, given) = match bracketed {
        Some((name, rest)) => (name, if rest.is_empty() { None } else { Some(rest.strip_prefix(':').unwrap_or(rest)) }),
        // Several colons: an IPv6 address without a port.
        None if text.matches(':').count() > 1 => (text, None),
        None => text.split_once(':').map_or((text, None), |(name, port)| (name, Some(port))),
    };
    if name.is_empty() || name.contains(|letter: char| letter.is_whitespace() || "[]".contains(letter)) {
        return Err(format!("\"{text}\" names no host"));
    }
    let port = match given {
        None => port,
        Some(given) => given.parse().map_err(|_| format!("\"{given}\" in \"{text}\" is no port"))?,
    };
    Ok(StoreHost::Tcp { name: name.to_string(), port })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_read_from_a_list() {
        let tcp = |name: &str, port| StoreHost::Tcp { name: name.into(), port };
        assert_eq!(hosts("localhost", 11211), Ok(vec![tcp("localhost", 11211)]));
        let many = hosts("a:1, b,/run/m.sock,[::1]:7,::2", 9);
        assert_eq!(many, Ok(vec![tcp("a", 1), tcp("b", 9), StoreHost::Unix("/run/m.sock".into()), tcp("::1", 7), tcp("::2", 9)]));
        assert_eq!(
            many.unwrap().iter().map(StoreHost::to_string).collect::<Vec<_>>().join(" "),
            "a:1 b:9 /run/m.sock [::1]:7 [::2]:9"
        );
        let named = |count: usize| (0..count).map(|at| format!("h{at}")).collect::<Vec<_>>().join(",");
        assert_eq!(hosts(&named(HOSTS_MAX), 9).map(|hosts| hosts.len()), Ok(HOSTS_MAX));
        assert_eq!(hosts(&named(HOSTS_MAX + 1), 9), Err("33 hosts, the limit is 32".into()));
        for wrong in ["", "a,,b", "a:x", "a:70000", "a b", "[::1", "a,a:9"] {
            assert!(hosts(wrong, 9).is_err(), "{wrong}");
        }
    }
}
