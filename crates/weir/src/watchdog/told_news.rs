//! Lines about one thing that repeats: told once, and again when it is still so much later.

use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::Instant;

/// Different lines that are remembered. Beyond it nothing is told until some are old.
const LINES_MAX: usize = 64;
const TOLD_AGAIN: Duration = Duration::from_secs(600);

#[derive(Default)]
pub struct ToldNews(BTreeMap<String, Instant>);

impl ToldNews {
    /// True if the line was not told lately; it counts as told then.
    pub fn is_news(&mut self, line: &str, now: Instant) -> bool {
        self.0.retain(|_, told_at| now.saturating_duration_since(*told_at) < TOLD_AGAIN);
        let is_news = self.0.len() < LINES_MAX && !self.0.contains_key(line);
        if is_news {
            self.0.insert(line.to_owned(), now);
        }
        is_news
    }

    pub fn forget(&mut self, beginning: &str) {
        self.0.retain(|line, _| !line.starts_with(beginning));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_told_once_until_it_is_old_or_forgotten() {
        let (mut told, now) = (ToldNews::default(), Instant::now());
        assert!(told.is_news("10.0.0.1: key", now) && !told.is_news("10.0.0.1: key", now) && told.is_news("10.0.0.2: key", now));
        told.forget("10.0.0.1: ");
        assert!(told.is_news("10.0.0.1: key", now) && !told.is_news("10.0.0.2: key", now));
        assert!(told.is_news("10.0.0.2: key", now + TOLD_AGAIN));
        let news = (0..2 * LINES_MAX).filter(|at| told.is_news(&at.to_string(), now + TOLD_AGAIN)).count();
        assert_eq!(news, LINES_MAX - 1, "many addresses fill no log");
    }
}
