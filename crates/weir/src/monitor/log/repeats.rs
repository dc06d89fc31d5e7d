//! Lines about the proxy itself that repeat: a fault that turns in a circle must not fill the disk.
//!
//! In: the text of a line, and the time. Out: whether it is written, and how many of which were left out before. No IO.

use std::hash::BuildHasher;

/// The most times that one text is written in a second.
const LINES_MAX: u32 = 10;
/// Texts that are remembered; with more of them in a second, those seen first are forgotten and written again.
const TEXTS_MAX: usize = 64;
const SECOND_MS: u64 = 1_000;

#[derive(Debug)]
struct Seen {
    hash: u64,
    /// Begin of its second.
    since_ms: u64,
    times: u32,
    text: Box<str>,
}

/// The texts of the last second.
#[derive(Debug, Default)]
pub struct Repeats {
    seen: Vec<Seen>,
}

/// The decision about a line.
#[derive(Debug, PartialEq, Eq)]
pub enum Repeat {
    Written,
    LeftOut,
}

/// A text of a second that is over, and how often it was left out.
#[derive(Debug, PartialEq, Eq)]
pub struct Omission {
    pub text: Box<str>,
    pub times: u32,
}

impl Repeats {
    /// Takes in a line. The omissions are to be told before it.
    pub fn note(&mut self, text: &str, now_ms: u64) -> (Repeat, Vec<Omission>) {
        let is_over = |seen: &Seen| now_ms.saturating_sub(seen.since_ms) >= SECOND_MS;
        let over = self.seen.extract_if(.., |seen| is_over(seen)).filter(|seen| seen.times > LINES_MAX);
        let told: Vec<Omission> = over.map(|seen| Omission { text: seen.text, times: seen.times - LINES_MAX }).collect();
        let hash = foldhash::fast::FixedState::default().hash_one(text);
        let Some(seen) = self.seen.iter_mut().find(|seen| seen.hash == hash) else {
            if self.seen.len() == TEXTS_MAX {
                self.seen.remove(0);
            }
            self.seen.push(Seen { hash, since_ms: now_ms, times: 1, text: text.into() });
            return (Repeat::Written, told);
        };
        seen.times = seen.times.saturating_add(1);
        (if seen.times <= LINES_MAX { Repeat::Written } else { Repeat::LeftOut }, told)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_written_ten_times_a_second_and_the_rest_is_counted() {
        let mut repeats = Repeats::default();
        let written = (0..1_000).filter(|at| repeats.note("again", at / 10).0 == Repeat::Written).count();
        assert_eq!(written, 10);
        assert_eq!(repeats.note("another", 500), (Repeat::Written, Vec::new()));
        let omission = Omission { text: "again".into(), times: 990 };
        assert_eq!(repeats.note("again", 1_000), (Repeat::Written, vec![omission]));
        assert_eq!(repeats.note("again", 5_000), (Repeat::Written, Vec::new()));
    }

    #[test]
    fn texts_that_differ_are_all_written() {
        let mut repeats = Repeats::default();
        assert!((0..10_000).all(|at| repeats.note(&format!("text {at}"), 0).0 == Repeat::Written));
        assert!(repeats.seen.len() <= TEXTS_MAX);
    }
}
