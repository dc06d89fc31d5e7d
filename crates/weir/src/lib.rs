//! Weir: a proxy for clusters of PostgreSQL. Sockets, time, files and threads; what is decided is decided in `weir_policy`.
//!
//! Layers, each using only those below it (checked by `cargo xtask layers`): see ARCHITECTURE.md.

pub mod access;
pub mod aim;
pub mod answer;
pub mod buffers;
pub mod catalogs;
pub mod causal;
pub mod census;
pub mod cli;
pub mod cluster;
pub mod console;
pub mod demo;
pub mod directory;
pub mod docs;
pub mod errand;
pub mod exposition;
pub mod extended;
pub mod fault;
pub mod files;
pub mod flow;
pub mod forge;
pub mod gates;
pub mod histogram;
pub mod http;
pub mod hub;
pub mod inherit;
pub mod inquiry;
pub mod inventory;
pub mod judging;
pub mod lane;
pub mod link;
pub mod listen;
pub mod listener;
pub mod log;
pub mod login;
pub mod metrics;
pub mod net;
pub mod notify;
pub mod overtime;
pub mod pool;
pub mod positions;
pub mod reactor;
pub mod relay;
pub mod replication;
pub mod sampler;
pub mod seats;
pub mod sequences;
pub mod session;
pub mod session_card;
pub mod shared;
pub mod socket;
pub mod startup;
pub mod state;
pub mod statement_log;
pub mod statements;
pub mod stats;
pub mod supervisor;
pub mod survey;
pub mod takeover;
pub mod timing;
pub mod tls;
pub mod vacate;
pub mod views;
pub mod warm;
pub mod worker;

/// Random bytes from the system, taken many at a time: a login needs few, and each asking is a system call.
#[derive(Default)]
pub struct Randomness(zeroize::Zeroizing<Vec<u8>>);

impl Randomness {
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
        let mut randomness = Randomness::default();
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..1000 {
            assert!(seen.insert(randomness.take::<18>()));
            assert_ne!(randomness.take::<32>(), [0; 32]);
        }
    }
}
