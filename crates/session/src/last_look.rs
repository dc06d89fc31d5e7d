//! The last look at the last statements of server connections, which are recorded for an hour after it.

use std::sync::atomic::{AtomicU64, Ordering};

const LOOK_MS: u64 = 3_600_000;

#[derive(Debug, Default)]
pub struct LastLook {
    /// Milliseconds since the start of the proxy, at least 1; 0 for never.
    at_ms: AtomicU64,
}

impl LastLook {
    /// True if statements were recorded until now.
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
