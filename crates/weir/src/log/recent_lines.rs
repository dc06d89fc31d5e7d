//! The last lines of the log, for whoever looks at it over the network. Kept only while somebody may.

use super::Level;
use super::log_line::{name, rfc3339};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const LINES_MAX: usize = 2_000;
/// Lines may hold long statements.
const BYTES_MAX: usize = 1 << 20;
/// A longer line is cut.
const LINE_BYTES_MAX: usize = 4 << 10;

/// A line, with a number that grows by one each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecentLine {
    pub number: u64,
    /// RFC 3339, with milliseconds.
    pub at: String,
    pub level: &'static str,
    pub text: String,
}

#[derive(Debug, Default)]
pub struct RecentLines {
    is_kept: AtomicBool,
    kept: Mutex<KeptLines>,
}

#[derive(Debug, Default)]
struct KeptLines {
    lines: VecDeque<RecentLine>,
    bytes: usize,
    last: u64,
}

impl RecentLines {
    /// Begins or ends to keep lines. Numbers go on.
    pub fn keep(&self, is_kept: bool) {
        if self.is_kept.swap(is_kept, Ordering::Relaxed) && !is_kept {
            let mut kept = self.kept.lock();
            *kept = KeptLines { last: kept.last, ..KeptLines::default() };
        }
    }

    /// `now` counts from 1970.
    pub fn note(&self, level: Level, text: std::fmt::Arguments<'_>, now: Duration) {
        if !self.is_kept.load(Ordering::Relaxed) {
            return;
        }
        let mut text = text.to_string();
        text.truncate(text.floor_char_boundary(LINE_BYTES_MAX));
        let at = rfc3339(now.as_secs());
        let at = format!("{}.{:03}Z", at.trim_end_matches('Z'), now.subsec_millis());
        let mut kept = self.kept.lock();
        kept.last += 1;
        kept.bytes += text.len();
        let number = kept.last;
        kept.lines.push_back(RecentLine { number, at, level: name(level), text });
        while kept.lines.len() > LINES_MAX || kept.bytes > BYTES_MAX {
            let Some(oldest) = kept.lines.pop_front() else { break };
            kept.bytes -= oldest.text.len();
        }
    }

    /// Lines after this number, oldest first.
    pub fn after(&self, number: u64) -> Vec<RecentLine> {
        let kept = self.kept.lock();
        let from = kept.lines.partition_point(|line| line.number <= number);
        kept.lines.range(from..).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_last_lines_are_kept_and_only_while_somebody_may_look() {
        let recent = RecentLines::default();
        let note = |text: &str| recent.note(Level::Warning, format_args!("{text}"), Duration::from_millis(60_007));
        note("unseen");
        recent.keep(true);
        (0..LINES_MAX + 10).for_each(|number| note(&format!("line {number}")));
        let all = recent.after(0);
        assert_eq!((all.len(), all[0].number, all[0].text.as_str()), (LINES_MAX, 11, "line 10"));
        assert_eq!((all[0].at.as_str(), all[0].level), ("1970-01-01T00:01:00.007Z", "WARNING"));
        assert_eq!(recent.after(LINES_MAX as u64 + 9).len(), 1);
        assert!(recent.after(u64::MAX).is_empty());
        (0..400).for_each(|_| note(&"ö".repeat(LINE_BYTES_MAX)));
        let bytes: usize = recent.after(0).iter().map(|line| line.text.len()).sum();
        assert!(bytes <= BYTES_MAX && bytes > BYTES_MAX / 2, "{bytes}");
        recent.keep(false);
        assert!(recent.after(0).is_empty());
    }
}
