//! One line per event, to stderr, with the levels and the prefix of `pgpool.conf`.

use std::io::Write;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

pub use weir_policy::config::LogLevel as Level;

fn name(level: Level) -> &'static str {
    match level {
        Level::Debug5 | Level::Debug4 | Level::Debug3 | Level::Debug2 | Level::Debug1 => "DEBUG",
        Level::Info => "INFO",
        Level::Notice => "NOTICE",
        Level::Warning => "WARNING",
        Level::Error => "ERROR",
        Level::Log => "LOG",
        Level::Fatal => "FATAL",
        Level::Panic => "PANIC",
    }
}

/// Who caused a line: fields of `log_line_prefix`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Who<'a> {
    pub user: &'a str,
    pub database: &'a str,
    pub application: &'a str,
    pub client: &'a str,
    pub session: u32,
}

/// The log of one proxy.
#[derive(Debug)]
pub struct Log {
    least: AtomicU8,
    prefix: parking_lot::RwLock<String>,
}

impl Log {
    pub fn new(least: Level, prefix: &str) -> Log {
        Log { least: AtomicU8::new(least as u8), prefix: parking_lot::RwLock::new(prefix.to_string()) }
    }

    /// Takes another level and prefix, at reload.
    pub fn set(&self, least: Level, prefix: &str) {
        self.least.store(least as u8, Ordering::Relaxed);
        *self.prefix.write() = prefix.to_string();
    }

    /// Whether a line of this level would be written: ask before building a costly one.
    pub fn is_on(&self, level: Level) -> bool {
        level as u8 >= self.least.load(Ordering::Relaxed)
    }

    /// Writes a line if its level is wanted. Never fails: a log that cannot be written must not stop the proxy.
    pub fn write(&self, level: Level, who: &Who<'_>, text: std::fmt::Arguments<'_>) {
        if !self.is_on(level) {
            return;
        }
        let mut line = String::with_capacity(160);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        push_prefix(&mut line, &self.prefix.read(), who, now.as_secs(), now.subsec_millis());
        line.push_str(name(level));
        line.push_str(":  ");
        let _ = std::fmt::write(&mut line, text);
        line.push('\n');
        let _ = std::io::stderr().lock().write_all(line.as_bytes());
    }

    /// A line about the proxy itself.
    pub fn say(&self, level: Level, text: std::fmt::Arguments<'_>) {
        self.write(level, &Who::default(), text);
    }
}

/// Expands `log_line_prefix`. Source: `pgpool.conf`, `log_line_prefix`: %a %p %P %t %m %d %u %l %%.
fn push_prefix(line: &mut String, prefix: &str, who: &Who<'_>, seconds: u64, millis: u32) {
    let mut chars = prefix.chars();
    while let Some(c) = chars.next() {
        if c != '%' {
            line.push(c);
            continue;
        }
        match chars.next() {
            Some('a') => line.push_str(if who.application.is_empty() { "[No Connection]" } else { who.application }),
            Some('p') => line.push_str(&std::process::id().to_string()),
            Some('P') => line.push_str("weir"),
            Some('t') => line.push_str(&utc(seconds)),
            Some('m') => line.push_str(&format!("{}.{millis:03}", utc(seconds))),
            Some('d') => line.push_str(who.database),
            Some('u') => line.push_str(who.user),
            Some('h') => line.push_str(who.client),
            Some('l') => line.push_str(&who.session.to_string()),
            Some('%') => line.push('%'),
            Some(_) | None => {}
        }
    }
}

/// `YYYY-MM-DD hh:mm:ss` in UTC.
pub fn utc(seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = civil(days as i64);
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02}:{:02}", rest / 3600, rest / 60 % 60, rest % 60)
}

/// Date of a day counted from 1970-01-01, in the Gregorian calendar: eras of 400 years that begin in March.
fn civil(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (seconds, expected) in [
            (0, "1970-01-01 00:00:00"),
            (951_782_400, "2000-02-29 00:00:00"),
            (1_709_251_199, "2024-02-29 23:59:59"),
            (4_102_444_800, "2100-01-01 00:00:00"),
        ] {
            assert_eq!(utc(seconds), expected);
        }
    }

    #[test]
    fn the_prefix_is_expanded() {
        let mut line = String::new();
        let who = Who { user: "joe", database: "d", application: "psql", client: "", session: 7 };
        push_prefix(&mut line, "%t %u@%d %a %l%% ", &who, 0, 5);
        assert_eq!(line, "1970-01-01 00:00:00 joe@d psql 7% ");
    }
}
