//! Log files: their names and their rotation.

use super::outlet::LineWriteError;
use crate::log::log_line::civil;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use weir_config::LogFileConfig;
use weir_io::own_files;

const FOLDER_MODE: u32 = 0o700;

#[derive(Debug)]
pub struct LogFile {
    config: LogFileConfig,
    file: File,
    path: PathBuf,
    bytes: u64,
    /// End of the file by age, in seconds since 1970.
    ends_at_s: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RotationCause {
    Start,
    Age,
    Size,
}

impl LogFile {
    pub fn open(config: &LogFileConfig, now_s: u64) -> io::Result<LogFile> {
        LogFile::begin(config, now_s, RotationCause::Start, None)
    }

    /// A file that never changes.
    #[cfg(test)]
    pub fn of_pipe(pipe: io::PipeWriter) -> LogFile {
        let file = File::from(std::os::fd::OwnedFd::from(pipe));
        LogFile { config: LogFileConfig::default(), file, path: "a pipe".into(), bytes: 0, ends_at_s: None }
    }

    fn begin(config: &LogFileConfig, now_s: u64, why: RotationCause, before: Option<&PathBuf>) -> io::Result<LogFile> {
        if !config.directory.is_dir() {
            DirBuilder::new().recursive(true).mode(FOLDER_MODE).create(&config.directory)?;
        }
        let path = config.directory.join(name_of(&config.name, now_s));
        // As in PostgreSQL: only rotation by age truncates, and never the file just written.
        let truncates = config.truncates && why == RotationCause::Age && before != Some(&path);
        let mut options = OpenOptions::new();
        let file = own_files::open(&path, options.create(true).append(true).mode(config.mode))?;
        if truncates {
            file.set_len(0)?;
        }
        let bytes = file.metadata()?.len();
        Ok(LogFile { config: config.clone(), file, path, bytes, ends_at_s: next_end_s(config.rotation_age_ms, now_s) })
    }

    /// Writes a line, after a rotation if it is due.
    pub fn write(&mut self, line: &[u8], now_s: u64) -> Result<(), LineWriteError> {
        let why = if self.ends_at_s.is_some_and(|end| now_s >= end) {
            Some(RotationCause::Age)
        } else {
            let is_large = self.config.rotation_bytes > 0 && self.bytes >= self.config.rotation_bytes;
            is_large.then_some(RotationCause::Size)
        };
        if let Some(why) = why {
            let begun = LogFile::begin(&self.config, now_s, why, Some(&self.path));
            *self = begun.map_err(|cause| failed("open a file in", &self.config.directory, cause))?;
            // Without a time in the name the same file goes on.
            if why == RotationCause::Size {
                self.bytes = 0;
            }
        }
        let mut rest = line;
        while !rest.is_empty() {
            match self.file.write(rest) {
                Ok(count) if count > 0 => rest = &rest[count..],
                Err(cause) if cause.kind() == io::ErrorKind::Interrupted => {}
                ended => {
                    let cause = ended.err().unwrap_or_else(|| io::ErrorKind::WriteZero.into());
                    let is_torn = rest.len() < line.len();
                    return Err(LineWriteError { cause: failed("write the log file", &self.path, cause), is_torn });
                }
            }
        }
        self.bytes += line.len() as u64;
        Ok(())
    }

    pub fn reopen(&mut self, config: &LogFileConfig, now_s: u64) -> io::Result<()> {
        *self = LogFile::begin(config, now_s, RotationCause::Start, None)?;
        Ok(())
    }
}

fn failed(act: &str, path: &Path, cause: io::Error) -> io::Error {
    io::Error::new(cause.kind(), format!("cannot {act} {}: {cause}", path.display()))
}

/// The end of the present period. Periods count from midnight 1970 UTC, so that a day's file holds a day. Source: PostgreSQL,
/// `set_next_rotation_time` in syslogger.c.
fn next_end_s(age_ms: u64, now_s: u64) -> Option<u64> {
    let age_s = age_ms / 1000;
    (age_s > 0).then(|| (now_s / age_s + 1) * age_s)
}

/// Expands the strftime escapes for numbers and names, in UTC; others stay.
fn name_of(pattern: &str, now_s: u64) -> String {
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let (days, rest) = (now_s / 86_400, now_s % 86_400);
    let (year, month, day) = civil(days as i64);
    let (_, _, hour, minute, second) = (0, 0, rest / 3600, rest / 60 % 60, rest % 60);
    let new_year = days as i64 - day_of_year(year, month, day);
    let mut name = String::new();
    let mut chars = pattern.chars();
    while let Some(c) = chars.next() {
        if c != '%' {
            name.push(c);
            continue;
        }
        match chars.next() {
            Some('Y') => name += &format!("{year:04}"),
            Some('y') => name += &format!("{:02}", year % 100),
            Some('m') => name += &format!("{month:02}"),
            Some('d') => name += &format!("{day:02}"),
            Some('H') => name += &format!("{hour:02}"),
            Some('M') => name += &format!("{minute:02}"),
            Some('S') => name += &format!("{second:02}"),
            Some('j') => name += &format!("{:03}", days as i64 - new_year + 1),
            Some('a') => name += DAYS[(days % 7) as usize],
            Some('b') => name += MONTHS[(month.clamp(1, 12) - 1) as usize],
            Some('F') => name += &format!("{year:04}-{month:02}-{day:02}"),
            Some('s') => name += &now_s.to_string(),
            Some('%') => name.push('%'),
            Some(other) => name.extend(['%', other]),
            None => name.push('%'),
        }
    }
    name
}

fn day_of_year(year: i64, month: i64, day: i64) -> i64 {
    const BEFORE: [i64; 12] = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334];
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    BEFORE[(month.clamp(1, 12) - 1) as usize] + i64::from(is_leap && month > 2) + day - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOMENT: u64 = 1_709_251_199; // 2024-02-29 23:59:59, a Thursday

    #[test]
    fn names_hold_the_time() {
        for (pattern, expected) in [
            ("pgpool-%Y-%m-%d_%H%M%S.log", "pgpool-2024-02-29_235959.log"),
            ("%a-%b-%y-%j-%F%%.log", "Thu-Feb-24-060-2024-02-29%.log"),
            ("plain.log", "plain.log"),
            ("%q%", "%q%"),
            ("%s", "1709251199"),
        ] {
            assert_eq!(name_of(pattern, MOMENT), expected);
        }
        assert_eq!(name_of("%j", MOMENT + 1), "061");
    }

    #[test]
    fn a_day_ends_at_midnight() {
        assert_eq!(next_end_s(86_400_000, MOMENT), Some(MOMENT + 1));
        assert_eq!(next_end_s(60_000, 61), Some(120));
        assert_eq!(next_end_s(0, 61), None);
    }

    fn config(folder: &std::path::Path, name: &str) -> LogFileConfig {
        LogFileConfig {
            is_used: true,
            directory: folder.join("made"),
            name: name.into(),
            mode: 0o600,
            ..LogFileConfig::default()
        }
    }

    #[test]
    fn files_change_with_age_and_size_and_are_cut_only_when_asked() {
        let folder = std::env::temp_dir().join(format!("weir-log-{}", std::process::id()));
        let read = |name: &str| std::fs::read_to_string(folder.join("made").join(name)).unwrap_or_default();
        let by_minute = LogFileConfig { rotation_age_ms: 60_000, ..config(&folder, "%M.log") };
        let mut file = LogFile::open(&by_minute, 0).unwrap();
        file.write(b"a\n", 0).unwrap();
        file.write(b"b\n", 59).unwrap();
        file.write(b"c\n", 60).unwrap();
        file.write(b"d\n", 3600).unwrap();
        assert_eq!((read("00.log").as_str(), read("01.log").as_str()), ("a\nb\nd\n", "c\n"));
        let cut = LogFileConfig { truncates: true, ..by_minute };
        file.reopen(&cut, 3601).unwrap();
        file.write(b"e\n", 3660).unwrap();
        assert_eq!(read("01.log"), "e\n", "overwritten when its minute came again");
        let by_size = LogFileConfig { rotation_bytes: 4, ..config(&folder, "%s.log") };
        let mut file = LogFile::open(&by_size, 7).unwrap();
        file.write(b"12345\n", 7).unwrap();
        file.write(b"6\n", 8).unwrap();
        assert_eq!((read("7.log").as_str(), read("8.log").as_str()), ("12345\n", "6\n"));
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
