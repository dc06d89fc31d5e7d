//! Which statements one link has prepared, under our names, and which must go when there are too many.

use foldhash::{HashMap, HashSet};

/// Identity of a statement text with its parameter types; the same text has the same identity for all clients of a worker.
pub type StatementId = u64;

/// Prefix of the names statements have on servers.
pub const NAME_PREFIX: &[u8] = b"weir_";

/// Appends a statement's name on the servers.
pub fn push_name(out: &mut Vec<u8>, id: StatementId) {
    let mut digits = [0u8; 20];
    let mut at = digits.len();
    let mut rest = id;
    loop {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    out.extend_from_slice(NAME_PREFIX);
    out.extend_from_slice(&digits[at..]);
}

/// The statements of one link, each with the time of its last use.
#[derive(Debug, Default)]
pub struct Known {
    used: HashMap<StatementId, u64>,
    /// Still on the server, but must be prepared anew before the next use.
    stale: HashSet<StatementId>,
    clock: u64,
}

/// What to do before a statement can be used on a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// It is there.
    Nothing,
    /// Prepare it, and close the other first if one is named.
    Parse { evict: Option<StatementId> },
}

impl Known {
    pub fn contains(&self, id: StatementId) -> bool {
        self.used.contains_key(&id)
    }

    /// Notes a use of a statement that is there; false when it is not.
    pub fn use_if_known(&mut self, id: StatementId) -> bool {
        self.clock += 1;
        let known = self.used.get_mut(&id);
        let is_known = known.is_some();
        if let Some(used) = known {
            *used = self.clock;
        }
        is_known
    }

    /// Notes a use. After `Need::Parse` the statement counts as prepared: undo with `forget` if the Parse fails.
    pub fn touch(&mut self, id: StatementId, max: usize) -> Need {
        self.clock += 1;
        let clock = self.clock;
        if let Some(used) = self.used.get_mut(&id) {
            *used = clock;
            return Need::Nothing;
        }
        if !self.stale.is_empty() && self.stale.remove(&id) {
            self.used.insert(id, clock);
            return Need::Parse { evict: Some(id) };
        }
        let evict = if self.used.len() >= max.max(1) { self.oldest() } else { None };
        if let Some(evict) = evict {
            self.used.remove(&evict);
        }
        self.used.insert(id, clock);
        Need::Parse { evict }
    }

    /// Linear, but only when a link is full and a new statement comes.
    fn oldest(&self) -> Option<StatementId> {
        self.used.iter().min_by_key(|(_, used)| **used).map(|(id, _)| *id)
    }

    pub fn forget(&mut self, id: StatementId) {
        self.used.remove(&id);
    }

    /// The server has none of them any more.
    pub fn clear(&mut self) {
        self.used.clear();
        self.stale.clear();
    }

    /// The server still has them, but what they mean may have changed.
    pub fn stale_all(&mut self) {
        self.stale.extend(self.used.drain().map(|(id, _)| id));
    }

    pub fn len(&self) -> usize {
        self.used.len()
    }

    pub fn is_empty(&self) -> bool {
        self.used.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_decimal() {
        for (id, name) in [(0, "weir_0"), (1234, "weir_1234"), (u64::MAX, "weir_18446744073709551615")] {
            let mut out = Vec::new();
            push_name(&mut out, id);
            assert_eq!(out, name.as_bytes());
        }
    }

    #[test]
    fn the_least_recently_used_statement_goes_first() {
        let mut known = Known::default();
        assert_eq!(known.touch(1, 2), Need::Parse { evict: None });
        assert_eq!(known.touch(2, 2), Need::Parse { evict: None });
        assert_eq!(known.touch(1, 2), Need::Nothing);
        assert_eq!(known.touch(3, 2), Need::Parse { evict: Some(2) });
        known.forget(3);
        assert_eq!(known.touch(3, 2), Need::Parse { evict: None });
    }

    #[test]
    fn a_stale_statement_is_closed_and_prepared_anew() {
        let mut known = Known::default();
        known.touch(1, 5);
        known.stale_all();
        assert!(!known.contains(1));
        assert_eq!(known.touch(1, 5), Need::Parse { evict: Some(1) });
        assert_eq!(known.touch(1, 5), Need::Nothing);
    }
}
