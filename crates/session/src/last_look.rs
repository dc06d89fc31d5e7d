//! The last look at the last statements of server connections. They are kept from a look on, for an hour: no statement pays for what nobody reads.

use std::sync::atomic::{AtomicU64, Ordering};

/// Time after a look for which last statements are kept.
const LOOK_MS: u64 = 3_600_000;

/// See the module.
#[derive(Debug, Default)]
pub struct LastLook {
    /// Milliseconds since the start of the proxy, at least 1. 0: nobody looks.
    at_ms: AtomicU64,
}

impl LastLook {
    /// Notes a look. True: statements were kept until now, so that those that are there are the last ones.
    pub fn note(&self, now_ms: u64) -> bool {
        let was_recent = self.is_recent(|| now_ms);
        self.at_ms.store(now_ms.max(1), Ordering::Relaxed);
        was_recent
    }

    #[inline]
    pub(crate) fn is_recent(&self, now_ms: impl FnOnce() -> u64) -> bool {
        let at_ms = self.at_ms.load(Ordering::Relaxed);
        at_ms > 0 && now_ms() < at_ms + LOOK_MS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_lasts_for_an_hour() {
        let look = LastLook::default();
        assert!(!look.is_recent(|| panic!("the time is of no interest")));
        assert!(!look.note(0), "nothing was kept");
        assert!(look.is_recent(|| LOOK_MS));
        assert!(!look.is_recent(|| LOOK_MS + 1));
        assert!(look.note(LOOK_MS));
        assert!(!look.note(3 * LOOK_MS), "what is there may be old");
    }
}
