//! Limits repeated lines about the proxy itself: a looping fault must not fill the disk. No IO.

use super::Level;
use std::hash::BuildHasher;

/// Most lines of one text in a second.
const LINES_MAX: u32 = 10;
/// Texts remembered; beyond it the oldest is forgotten.
const TEXTS_MAX: usize = 64;
const SECOND_MS: u64 = 1_000;

#[derive(Debug)]
struct RepeatedText {
    hash: u64,
    since_ms: u64,
    times: u32,
    level: Level,
    text: Box<str>,
}

impl RepeatedText {
    fn omission(self) -> Option<OmittedRepeats> {
        let times = self.times.checked_sub(LINES_MAX).filter(|times| *times > 0)?;
        Some(OmittedRepeats { level: self.level, text: self.text, times })
    }
}

#[derive(Debug, Default)]
pub struct RepeatFilter {
    seen: Vec<RepeatedText>,
}

#[derive(Debug, PartialEq, Eq)]
pub enum RepeatVerdict {
    Written,
    LeftOut,
}

#[derive(Debug, PartialEq, Eq)]
pub struct OmittedRepeats {
    pub level: Level,
    pub text: Box<str>,
    pub times: u32,
}

impl RepeatFilter {
    /// Takes in a line. The omissions are to be written before it.
    pub fn note(&mut self, level: Level, text: &str, now_ms: u64) -> (RepeatVerdict, Vec<OmittedRepeats>) {
        let is_over = |seen: &RepeatedText| now_ms.saturating_sub(seen.since_ms) >= SECOND_MS;
        let mut told: Vec<OmittedRepeats> =
            self.seen.extract_if(.., |seen| is_over(seen)).filter_map(RepeatedText::omission).collect();
        let hash = foldhash::fast::FixedState::default().hash_one(text);
        let Some(seen) = self.seen.iter_mut().find(|seen| seen.hash == hash) else {
            if self.seen.len() == TEXTS_MAX {
                told.extend(self.seen.remove(0).omission());
            }
            self.seen.push(RepeatedText { hash, since_ms: now_ms, times: 1, level, text: text.into() });
            return (RepeatVerdict::Written, told);
        };
        seen.times = seen.times.saturating_add(1);
        (if seen.times <= LINES_MAX { RepeatVerdict::Written } else { RepeatVerdict::LeftOut }, told)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_written_ten_times_a_second_and_the_rest_is_counted() {
        let mut repeats = RepeatFilter::default();
        let written = (0..1_000).filter(|at| repeats.note(Level::Warning, "again", at / 10).0 == RepeatVerdict::Written).count();
        assert_eq!(written, 10);
        assert_eq!(repeats.note(Level::Log, "another", 500), (RepeatVerdict::Written, Vec::new()));
        let omission = OmittedRepeats { level: Level::Warning, text: "again".into(), times: 990 };
        assert_eq!(repeats.note(Level::Warning, "again", 1_000), (RepeatVerdict::Written, vec![omission]));
        assert_eq!(repeats.note(Level::Warning, "again", 5_000), (RepeatVerdict::Written, Vec::new()));
    }

    #[test]
    fn texts_that_differ_are_all_written() {
        let mut repeats = RepeatFilter::default();
        assert!((0..10_000).all(|at| repeats.note(Level::Log, &format!("text {at}"), 0).0 == RepeatVerdict::Written));
        assert!(repeats.seen.len() <= TEXTS_MAX);
    }

    #[test]
    fn a_text_that_is_forgotten_has_its_omissions_told() {
        let mut repeats = RepeatFilter::default();
        (0..15).for_each(|_| drop(repeats.note(Level::Error, "again", 0)));
        let told: Vec<OmittedRepeats> =
            (0..TEXTS_MAX).flat_map(|at| repeats.note(Level::Log, &format!("text {at}"), 0).1).collect();
        assert_eq!(told, [OmittedRepeats { level: Level::Error, text: "again".into(), times: 5 }]);
    }
}
