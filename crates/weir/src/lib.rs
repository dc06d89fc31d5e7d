//! Weir: a proxy for PostgreSQL clusters. Decisions are made in `weir_config`, `weir_catalog`, `weir_failover` and `weir_cache`;
//! this crate has time, files and threads.
//!
//! Layers: `xtask/src/layers.rs`. Folders: ARCHITECTURE.md.

pub mod admin;
pub mod agent;
pub mod auth;
pub mod client;
pub mod commands;
pub mod control;
pub mod log;
pub mod process;
pub mod runtime;
pub mod server;
pub mod traffic;
pub mod watchdog;

pub const VERSION: &str = env!("WEIR_VERSION");

/// Parts that a build could lack. Today each build has all of them.
pub const FEATURES: [&str; 8] = ["io_uring", "epoll", "tls", "pam", "ldap", "memcached", "redis", "etcd"];

/// Returns `1 node`, `2 nodes`.
pub fn counted(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

/// A stock of random bytes from the system, which saves a system call per login.
#[derive(Default)]
pub struct RandomBytes(zeroize::Zeroizing<Vec<u8>>);

impl RandomBytes {
    pub fn take<const N: usize>(&mut self) -> [u8; N] {
        const STOCK: usize = 512;
        if self.0.len() < N {
            self.0.clear();
            self.0.extend_from_slice(zeroize::Zeroizing::new(random::<STOCK>()).as_slice());
        }
        let mut bytes = [0; N];
        let rest = self.0.len().saturating_sub(N);
        for (byte, stock) in bytes.iter_mut().zip(&mut self.0[rest..]) {
            *byte = std::mem::take(stock);
        }
        self.0.truncate(rest);
        bytes
    }
}

pub fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    // Keys and nonces are impossible without randomness.
    getrandom::fill(&mut bytes).expect("the system's source of randomness works");
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_bytes_are_given_out_once() {
        let mut randomness = RandomBytes::default();
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..1000 {
            assert!(seen.insert(randomness.take::<18>()));
            assert_ne!(randomness.take::<32>(), [0; 32]);
        }
    }
}
