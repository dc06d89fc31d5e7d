//! Weir: a proxy for clusters of PostgreSQL. Time, files and threads; decisions are those of `weir_config`, `weir_catalog`, `weir_failover` and
//! `weir_cache`.
//!
//! Layers, each using only those below it (checked by `cargo xtask layers`): see `xtask/src/layers.rs`, and ARCHITECTURE.md for the folders.

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

/// The version, with the commit if one was known when it was built.
pub const VERSION: &str = env!("WEIR_VERSION");

/// A number of things in words: `1 node`, `2 nodes`.
pub fn counted(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

/// Random bytes from the system, taken many at a time: a login needs few, and each asking is a system call.
#[derive(Default)]
pub struct RandomBytes(zeroize::Zeroizing<Vec<u8>>);

impl RandomBytes {
    /// Bytes nobody else gets.
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

/// Random bytes from the system.
pub fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    // Without randomness there are no keys and no nonces, and nothing safe can be done.
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
