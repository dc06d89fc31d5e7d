//! Places for the connections over which Weir looks at catalogs: a few for all databases together, so that a server with a
//! database for each tenant is not filled by them. They count in the limits of server connections.

use std::collections::BTreeSet;
use std::time::Duration;

/// Such connections at the same time.
const LOOKS_MAX: u32 = 4;
/// Of the server connections that a limit allows, one in so many may look at catalogs.
const LOOKS_SHARE: u32 = 8;

/// Connections that may look at catalogs where this many server connections are allowed.
pub fn looks_max(conns_max: u32) -> u32 {
    (conns_max / LOOKS_SHARE).clamp(1, LOOKS_MAX)
}

/// Server connections left to clients while so many look at catalogs. Below `LOOKS_SHARE` the one that looks is beyond the limit:
/// with it clients would have too few, or none.
pub fn left_by_looks(conns_max: u32, looks: u32) -> u32 {
    conns_max - looks.min(conns_max / LOOKS_SHARE)
}

/// Shortest time that a database keeps its place while others wait.
const HOLD_MIN: Duration = Duration::from_millis(100);
/// Longest one: the time between two looks.
const HOLD_MAX: Duration = Duration::from_secs(1);
/// A login and a look may take this share of a place's time, as where each database has a connection of its own.
const HOLD_SHARE: u32 = 20;

/// How long a database keeps its place while others wait; `took`: its login and its look.
pub fn hold(took: Duration) -> Duration {
    (took * HOLD_SHARE).clamp(HOLD_MIN, HOLD_MAX)
}

/// How much a look matters, most first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LookUrgency {
    /// Nothing is known of the database, or something was defined: its statements go to the primary until then.
    Unknown,
    /// It is time for another look.
    Routine,
}

/// Place in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LookTicket(LookUrgency, u64);

/// Holders of places, and waiters.
#[derive(Debug, Default)]
pub struct LookPlaces {
    taken: u32,
    waiting: BTreeSet<LookTicket>,
    next: u64,
}

impl LookPlaces {
    /// Queues behind those whose look matters as much.
    pub fn queue(&mut self, urgency: LookUrgency) -> LookTicket {
        let ticket = LookTicket(urgency, self.next);
        self.next += 1;
        self.waiting.insert(ticket);
        ticket
    }

    /// Takes a place, if one is free and nobody else comes first. It leaves the queue then.
    pub fn take(&mut self, ticket: LookTicket, max: u32) -> bool {
        let takes = self.taken < max && self.waiting.first() == Some(&ticket);
        if takes {
            self.waiting.remove(&ticket);
            self.taken += 1;
        }
        takes
    }

    /// Waits no more.
    pub fn leave(&mut self, ticket: LookTicket) {
        self.waiting.remove(&ticket);
    }

    /// Gives a place back.
    pub fn free(&mut self) {
        self.taken = self.taken.saturating_sub(1);
    }

    /// True if somebody waits for whom no place is free.
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
