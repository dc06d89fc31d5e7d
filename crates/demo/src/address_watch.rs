//! Looks at all hosts of a network many times a second: which of them has an address, and when somebody answers at it.

use std::fs::File;
use std::io::{Read, Seek, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::host_network::HostNetwork;

/// Between two looks.
const LOOK_PERIOD: Duration = Duration::from_millis(20);
/// Longest wait for an answer at the address. A question that is lost while nobody has the address is asked again by the system after a second only.
const ANSWER_LIMIT: Duration = Duration::from_millis(100);
/// Asks for encryption; each server and proxy answers with one byte. Source: PostgreSQL manual, "SSLRequest".
const QUESTION: [u8; 8] = [0, 0, 0, 8, 4, 210, 22, 47];

/// Hosts that had the address from a time on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HoldersFrom {
    /// Of the first look that saw them.
    pub at: Instant,
    /// Numbers of the hosts.
    pub hosts: Vec<usize>,
}

/// All that was seen so far.
#[derive(Debug, Clone)]
pub struct AddressHistory {
    /// Each change.
    pub holders: Vec<HoldersFrom>,
    /// The last look.
    pub until: Instant,
    /// The longest time between two looks.
    pub longest_pause: Duration,
    /// Times at which somebody answered.
    pub answers: Vec<Instant>,
}

/// Watches an address until it is dropped.
#[derive(Debug)]
pub struct AddressWatch {
    ends: Arc<AtomicBool>,
    seen: Arc<Mutex<AddressHistory>>,
    threads: Vec<JoinHandle<()>>,
}

impl AddressWatch {
    /// Begins to look for the virtual address of the network, and to ask there at a port.
    pub fn begin(network: &HostNetwork, port: u16) -> Result<AddressWatch> {
        let address = network.virtual_address();
        let mut tables = (0..network.hosts()).map(|host| network.address_table(host)).collect::<Result<Vec<File>>>()?;
        let now = Instant::now();
        let holders = vec![HoldersFrom { at: now, hosts: look(&mut tables, address)? }];
        let seen = AddressHistory { holders, until: now, longest_pause: Duration::ZERO, answers: Vec::new() };
        let (seen, ends) = (Arc::new(Mutex::new(seen)), Arc::new(AtomicBool::new(false)));
        let (looks, asks) = ((seen.clone(), ends.clone()), (seen.clone(), ends.clone()));
        let looker = thread::spawn(move || {
            while !looks.1.load(Ordering::Relaxed) {
                // A table that cannot be read is seen as a pause.
                if let Ok(hosts) = look(&mut tables, address) {
                    lock(&looks.0).note_holders(hosts);
                }
                thread::sleep(LOOK_PERIOD);
            }
        });
        let asker = thread::spawn(move || {
            while !asks.1.load(Ordering::Relaxed) {
                if answers((address, port).into()) {
                    lock(&asks.0).answers.push(Instant::now());
                }
                thread::sleep(LOOK_PERIOD);
            }
        });
        Ok(AddressWatch { ends, seen, threads: vec![looker, asker] })
    }

    /// A copy of all that was seen so far.
    pub fn history(&self) -> AddressHistory {
        lock(&self.seen).clone()
    }

    /// The hosts that have it now.
    pub fn holders(&self) -> Vec<usize> {
        lock(&self.seen).holders.last().map(|last| last.hosts.clone()).unwrap_or_default()
    }
}

impl Drop for AddressWatch {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

impl AddressHistory {
    fn note_holders(&mut self, hosts: Vec<usize>) {
        let now = Instant::now();
        self.longest_pause = self.longest_pause.max(now - self.until);
        self.until = now;
        if self.holders.last().is_none_or(|last| last.hosts != hosts) {
            self.holders.push(HoldersFrom { at: now, hosts });
        }
    }

    /// Only what was seen from a time on; the holders of that time stand first.
    pub fn since(mut self, from: Instant) -> AddressHistory {
        let later = self.holders.iter().position(|holders| holders.at > from).unwrap_or(self.holders.len());
        self.holders.drain(..later.saturating_sub(1));
        if let Some(first) = self.holders.first_mut() {
            first.at = first.at.max(from);
        }
        self.answers.retain(|at| *at >= from);
        self
    }

    fn times(&self, counts: impl Fn(&[usize]) -> bool) -> impl Iterator<Item = Duration> {
        let ends = self.holders.iter().skip(1).map(|next| next.at).chain([self.until]);
        self.holders.iter().zip(ends).filter(move |(holders, _)| counts(&holders.hosts)).map(|(holders, end)| end - holders.at)
    }

    /// Time in which several hosts had it.
    pub fn with_several(&self) -> Duration {
        self.times(|hosts| hosts.len() > 1).sum()
    }

    /// True if several hosts had it at one look.
    pub fn had_several(&self) -> bool {
        self.holders.iter().any(|holders| holders.hosts.len() > 1)
    }

    /// Longest time in which no host had it.
    pub fn longest_without(&self) -> Duration {
        self.times(<[usize]>::is_empty).max().unwrap_or_default()
    }

    /// Longest time without an answer since a time, the time up to the last look included.
    pub fn longest_silence(&self, from: Instant) -> Duration {
        let answers = self.answers.iter().copied().filter(|at| *at >= from);
        let times: Vec<Instant> = [from].into_iter().chain(answers).chain([self.until.max(from)]).collect();
        times.windows(2).map(|pair| pair[1].saturating_duration_since(pair[0])).max().unwrap_or_default()
    }
}

/// Each use is one step, so that a thread that panicked has left the history whole.
fn lock(seen: &Mutex<AddressHistory>) -> MutexGuard<'_, AddressHistory> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The hosts that have the address. Hosts are looked at one after the other: several count if a second look says the same.
fn look(tables: &mut [File], address: Ipv4Addr) -> Result<Vec<usize>> {
    let mut before = None;
    loop {
        let mut hosts = Vec::new();
        for (host, table) in tables.iter_mut().enumerate() {
            let mut text = String::new();
            table.rewind()?;
            table.read_to_string(&mut text)?;
            if has_address(&text, address) {
                hosts.push(host);
            }
        }
        if hosts.len() < 2 || before.as_ref() == Some(&hosts) {
            return Ok(hosts);
        }
        before = Some(hosts);
    }
}

/// Reads `/proc/net/fib_trie`: a leaf with the address, and below it what the address is.
fn has_address(table: &str, address: Ipv4Addr) -> bool {
    let leaf = format!("|-- {address}");
    let mut lines = table.lines().map(str::trim);
    while let Some(line) = lines.next() {
        if line == leaf && lines.next().is_some_and(|kind| kind.ends_with("host LOCAL")) {
            return true;
        }
    }
    false
}

fn answers(place: SocketAddr) -> bool {
    let Ok(mut stream) = TcpStream::connect_timeout(&place, ANSWER_LIMIT) else { return false };
    let mut answer = [0];
    stream.set_read_timeout(Some(ANSWER_LIMIT)).is_ok()
        && stream.write_all(&QUESTION).is_ok()
        && stream.read_exact(&mut answer).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_found_in_the_kernels_table_only_if_it_is_the_hosts_own() {
        let address: Ipv4Addr = "192.0.2.9".parse().unwrap();
        let own = "Local:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 192.0.2.9\n        /32 host LOCAL\n";
        assert!(has_address(own, address));
        assert!(!has_address(&own.replace("192.0.2.9", "192.0.2.90"), address));
        assert!(!has_address("     |-- 192.0.2.9\n        /32 link UNICAST\n", address));
    }

    #[test]
    fn a_history_tells_times_with_several_holders_and_with_none() {
        let start = Instant::now();
        let at = |ms: u64| start + Duration::from_millis(ms);
        let holders = |ms: u64, hosts: &[usize]| HoldersFrom { at: at(ms), hosts: hosts.to_vec() };
        let history = AddressHistory {
            holders: vec![holders(0, &[0]), holders(100, &[]), holders(150, &[1]), holders(200, &[0, 1]), holders(230, &[1])],
            until: at(400),
            longest_pause: Duration::ZERO,
            answers: vec![at(90), at(300)],
        };
        assert_eq!((history.with_several(), history.had_several()), (Duration::from_millis(30), true));
        assert_eq!(history.longest_without(), Duration::from_millis(50));
        assert_eq!(history.longest_silence(at(80)), Duration::from_millis(210));
        let later = history.since(at(240));
        assert_eq!((later.holders, later.answers), (vec![holders(240, &[1])], vec![at(300)]));
    }
}
