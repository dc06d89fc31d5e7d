//! Places for connections that look at catalogs: a few for all databases, so that a database per tenant does not fill a server. They
//! count in the limits of server connections.

use std::collections::BTreeSet;
use std::time::Duration;

const LOOKS_MAX: u32 = 4;
/// One in so many server connections may look at catalogs.
const LOOKS_SHARE: u32 = 8;

pub fn looks_max(conns_max: u32) -> u32 {
    (conns_max / LOOKS_SHARE).clamp(1, LOOKS_MAX)
}

/// Server connections left to clients. Below `LOOKS_SHARE` the one that looks exceeds the limit, because clients would otherwise have too
/// few.
pub fn left_by_looks(conns_max: u32, looks: u32) -> u32 {
    conns_max - looks.min(conns_max / LOOKS_SHARE)
}

/// Shortest time that a database keeps its place while others wait.
const HOLD_MIN: Duration = Duration::from_millis(100);
/// Longest such time: the period between two looks.
const HOLD_MAX: Duration = Duration::from_secs(1);
/// A place is held so many times as long as its login and look took.
const HOLD_SHARE: u32 = 20;

/// Time that a database keeps its place while others wait. `took`: its login and look.
pub fn hold(took: Duration) -> Duration {
    (took * HOLD_SHARE).clamp(HOLD_MIN, HOLD_MAX)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LookUrgency {
    /// Nothing is known of the database, or a definition changed: until the look statements go to the primary.
    Unknown,
    Routine,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LookTicket(LookUrgency, u64);

#[derive(Debug, Default)]
pub struct LookPlaces {
    taken: u32,
    waiting: BTreeSet<LookTicket>,
    next: u64,
}

impl LookPlaces {
    pub fn queue(&mut self, urgency: LookUrgency) -> LookTicket {
        let ticket = LookTicket(urgency, self.next);
        self.next += 1;
        self.waiting.insert(ticket);
        ticket
    }

    /// Takes a place and leaves the queue, if one is free for the first ticket.
    pub fn take(&mut self, ticket: LookTicket, max: u32) -> bool {
        let takes = self.taken < max && self.waiting.first() == Some(&ticket);
        if takes {
            self.waiting.remove(&ticket);
            self.taken += 1;
        }
        takes
    }

    pub fn leave(&mut self, ticket: LookTicket) {
        self.waiting.remove(&ticket);
    }

    pub fn free(&mut self) {
        self.taken = self.taken.saturating_sub(1);
    }

    pub fn is_wanted(&self, max: u32) -> bool {
        self.waiting.len() > max.saturating_sub(self.taken) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_connections_look_and_count_among_those_of_clients() {
        for (conns_max, looks, left) in [(1, 1, 1), (7, 1, 7), (8, 1, 7), (20, 2, 18), (60, 4, 56), (u32::MAX, 4, u32::MAX - 4)] {
            assert_eq!((looks_max(conns_max), left_by_looks(conns_max, looks_max(conns_max))), (looks, left), "{conns_max}");
        }
        assert_eq!(left_by_looks(20, 0), 20);
        assert_eq!(left_by_looks(20, 4), 18, "the limit was lowered meanwhile");
    }

    #[test]
    fn those_of_whom_nothing_is_known_come_first_and_nobody_is_passed_by_his_like() {
        let mut places = LookPlaces::default();
        let [first, second, urgent] =
            [LookUrgency::Routine, LookUrgency::Routine, LookUrgency::Unknown].map(|urgency| places.queue(urgency));
        assert!(!places.take(first, 2) && !places.take(second, 2) && places.take(urgent, 2));
        assert!(!places.take(second, 2) && places.take(first, 2));
        assert!(!places.take(second, 2) && places.is_wanted(2), "no place is free");
        places.free();
        assert!(!places.is_wanted(2) && places.take(second, 2));
        let gone = places.queue(LookUrgency::Unknown);
        assert!(places.is_wanted(2));
        places.leave(gone);
        assert!(!places.is_wanted(2));
    }

    #[test]
    fn a_place_is_kept_for_a_share_of_what_the_look_took() {
        let took = [1, 10, 5000].map(Duration::from_millis);
        assert_eq!(took.map(hold), [100, 200, 1000].map(Duration::from_millis));
    }
}
