//! Log lines about rejected callers, once in a while for the same address and reason, to limit the log.

use std::cell::RefCell;
use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

const PERIOD: Duration = Duration::from_secs(60);
const KEPT_MAX: usize = 64;

#[derive(Default)]
pub struct RejectionLog(RefCell<HashMap<(IpAddr, String), RejectionRecord>>);

struct RejectionRecord {
    at: Instant,
    /// Repetitions since.
    withheld: u64,
}

impl RejectionLog {
    pub fn tell(&self, peer: IpAddr, why: &str, now: Instant) -> Option<String> {
        let mut all = self.0.borrow_mut();
        let key = (peer, why.to_string());
        if let Some(told) = all.get_mut(&key).filter(|told| now < told.at + PERIOD) {
            told.withheld += 1;
            return None;
        }
        let before = all.remove(&key).map_or(0, |told| told.withheld);
        all.retain(|_, told| now < told.at + PERIOD);
        if all.len() >= KEPT_MAX {
            // Too many to tell apart.
            return None;
        }
        all.insert(key, RejectionRecord { at: now, withheld: 0 });
        let more = if before > 0 { format!(" ({before} more since)") } else { String::new() };
        Some(format!("a connection from {peer} is closed: {why}{more}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_is_said_once_a_minute_and_many_things_are_not_all_said() {
        let (complaints, start) = (RejectionLog::default(), Instant::now());
        let peer = |last: u8| IpAddr::from([10, 0, 0, last]);
        assert!(complaints.tell(peer(1), "a", start).is_some_and(|text| text == "a connection from 10.0.0.1 is closed: a"));
        assert_eq!(complaints.tell(peer(1), "a", start + PERIOD / 2), None);
        assert!(complaints.tell(peer(1), "b", start).is_some());
        assert!(complaints.tell(peer(1), "a", start + PERIOD).is_some_and(|text| text.ends_with("(1 more since)")));
        let told = (0..200).filter(|last| complaints.tell(peer(*last), "c", start + PERIOD).is_some()).count();
        assert!(told < KEPT_MAX);
    }
}
