//! One destination of the log, owned by its thread. Lines not written are counted, and the count is written once possible.

use super::file::LogFile;
use super::{Level, LogOrigin, now};
use crate::log::log_line::LogLineFormat;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::io;
use std::os::unix::net::UnixDatagram;
use weir_config::LogConfig;

/// Source: syslog(3).
const SYSLOG: &str = "/dev/log";
/// Datagrams have a limit.
const SYSLOG_BYTES_MAX: usize = 8 << 10;
/// The longest text written atomically to a pipe. Source: pipe(7), PIPE_BUF.
const WORDS_BYTES_MAX: usize = 4 << 10;

#[derive(Debug)]
enum LogDestination {
    Stderr,
    File(Box<LogFile>),
    Syslog(Option<UnixDatagram>),
}

#[derive(Debug, PartialEq, Eq)]
enum LogGap {
    Closed,
    /// Lines missing since the last written one.
    Open {
        lines: u64,
        why: String,
        /// True if a line was partly written: the next needs a line break before it.
        is_torn: bool,
    },
}

impl LogGap {
    fn add(&mut self, more: u64, cause: &str, tore: bool) {
        match self {
            LogGap::Open { lines, is_torn, .. } => {
                *lines += more;
                *is_torn |= tore;
            }
            LogGap::Closed => *self = LogGap::Open { lines: more, why: cause.to_owned(), is_torn: tore },
        }
    }
}

#[derive(Debug)]
pub struct LineWriteError {
    pub cause: io::Error,
    pub is_torn: bool,
}

impl From<io::Error> for LineWriteError {
    fn from(cause: io::Error) -> LineWriteError {
        LineWriteError { cause, is_torn: false }
    }
}

#[derive(Debug)]
pub struct LogOutlet {
    place: LogDestination,
    settings: LogConfig,
    form: LogLineFormat,
    gap: LogGap,
}

impl LogOutlet {
    /// stderr, or files in its place.
    pub fn stream(config: &LogConfig) -> io::Result<LogOutlet> {
        let place = match config.file.is_used {
            true => LogDestination::File(Box::new(LogFile::open(&config.file, now().as_secs())?)),
            false => LogDestination::Stderr,
        };
        Ok(LogOutlet::of(place, config))
    }

    pub fn syslog(config: &LogConfig) -> LogOutlet {
        LogOutlet::of(LogDestination::Syslog(UnixDatagram::unbound().ok()), config)
    }

    #[cfg(test)]
    pub fn of_file(file: LogFile, config: &LogConfig) -> LogOutlet {
        LogOutlet::of(LogDestination::File(Box::new(file)), config)
    }

    fn of(place: LogDestination, config: &LogConfig) -> LogOutlet {
        LogOutlet { place, settings: config.clone(), form: LogLineFormat::of(config), gap: LogGap::Closed }
    }

    pub fn has_files(&self) -> bool {
        matches!(self.place, LogDestination::File(_))
    }

    /// Applies a reloaded configuration. Files may have been moved away.
    pub fn set(&mut self, config: LogConfig) {
        self.form = LogLineFormat::of(&config);
        self.settings = config;
        self.reopen();
    }

    /// Reopens the file, under a new name if it has the time in it.
    pub fn reopen(&mut self) {
        let LogDestination::File(file) = &mut self.place else { return };
        if let Err(cause) = file.reopen(&self.settings.file, now().as_secs()) {
            let text =
                format!("cannot open a file in {}, the log stays where it is: {cause}", self.settings.file.directory.display());
            self.write(Level::Error, &self.own_line(Level::Error, &text));
        }
    }

    /// Counts lines dropped from a full queue.
    pub fn note_lost(&mut self, lines: u64) {
        if lines == 0 {
            return;
        }
        self.gap.add(lines, "they came faster than they could be written", false);
    }

    pub fn write(&mut self, level: Level, line: &str) {
        if let Err(LineWriteError { cause, is_torn }) = self.fill_gap().and_then(|()| self.put(level, line)) {
            if self.gap == LogGap::Closed && !matches!(self.place, LogDestination::Stderr) {
                last_words(&self.own_line(Level::Error, &format!("{cause}; lines are counted until it can be written")));
            }
            self.gap.add(1, &cause.to_string(), is_torn);
        }
    }

    pub fn finish(&mut self) {
        if let Err(LineWriteError { cause, .. }) = self.fill_gap()
            && let LogGap::Open { lines, .. } = &self.gap
        {
            last_words(&self.own_line(Level::Error, &format!("{lines} lines of the log are missing: {cause}")));
        }
    }

    fn fill_gap(&mut self) -> Result<(), LineWriteError> {
        let LogGap::Open { lines, why, is_torn } = &self.gap else { return Ok(()) };
        let line = self.own_line(Level::Warning, &format!("{lines} lines of the log are missing: {why}"));
        let line = if *is_torn { format!("\n{line}") } else { line };
        self.put(Level::Warning, &line).map_err(|LineWriteError { cause, is_torn }| {
            self.gap.add(0, "", is_torn);
            LineWriteError { cause, is_torn: false }
        })?;
        self.gap = LogGap::Closed;
        Ok(())
    }

    fn own_line(&self, level: Level, text: &str) -> String {
        self.form.line(level, &LogOrigin::default(), format_args!("{text}"), &[], now())
    }

    fn put(&mut self, level: Level, line: &str) -> Result<(), LineWriteError> {
        match &mut self.place {
            LogDestination::Stderr => write_stderr(line.as_bytes()),
            LogDestination::File(file) => file.write(line.as_bytes(), now().as_secs()),
            LogDestination::Syslog(socket) => {
                let socket = socket.as_ref().ok_or_else(|| io::Error::other("cannot make a socket for syslog"))?;
                let sent = socket.send_to(&datagram(&self.settings, level, line.as_bytes()), SYSLOG);
                sent.map_err(|cause| io::Error::new(cause.kind(), format!("cannot write to syslog ({SYSLOG}): {cause}")))?;
                Ok(())
            }
        }
    }
}

/// Writes to stderr, waiting if it is full. The standard library's handle has a lock that would block others.
fn write_stderr(mut bytes: &[u8]) -> Result<(), LineWriteError> {
    let whole = bytes.len();
    let stderr = rustix::stdio::stderr();
    while !bytes.is_empty() {
        let cause = match rustix::io::write(stderr, bytes) {
            Ok(0) => io::ErrorKind::WriteZero.into(),
            Ok(count) => {
                bytes = &bytes[count..];
                continue;
            }
            Err(Errno::INTR) => continue,
            // A parent process made it non-blocking for all holders.
            Err(Errno::AGAIN) => match poll(&mut [PollFd::new(&stderr, PollFlags::OUT)], None) {
                Ok(_) | Err(Errno::INTR) => continue,
                Err(cause) => cause.into(),
            },
            Err(cause) => cause.into(),
        };
        return Err(LineWriteError { cause, is_torn: bytes.len() < whole });
    }
    Ok(())
}

/// Writes what stderr takes at once, for callers that must not block.
pub fn last_words(text: &str) {
    let stderr = rustix::stdio::stderr();
    let at_once = poll(&mut [PollFd::new(&stderr, PollFlags::OUT)], Some(&Timespec { tv_sec: 0, tv_nsec: 0 }));
    if at_once.is_ok_and(|ready| ready > 0) {
        let _ = rustix::io::write(stderr, &text.as_bytes()[..text.len().min(WORDS_BYTES_MAX)]);
    }
}

/// Source: RFC 3164.
fn datagram(settings: &LogConfig, level: Level, text: &[u8]) -> Vec<u8> {
    let priority = facility(settings.syslog_facility) * 8 + severity(level);
    let mut out = format!("<{priority}>{}[{}]: ", settings.syslog_ident, std::process::id()).into_bytes();
    let text = text.strip_suffix(b"\n").unwrap_or(text);
    out.extend_from_slice(&text[..text.len().min(SYSLOG_BYTES_MAX)]);
    out
}

/// Source: RFC 3164, section 4.1.1.
fn facility(word: &str) -> u32 {
    match word {
        "USER" => 1,
        "DAEMON" => 3,
        "AUTH" => 4,
        "AUTHPRIV" => 10,
        local => 16 + local.strip_prefix("LOCAL").and_then(|number| number.parse().ok()).unwrap_or(0),
    }
}

/// As `write_syslog` in PostgreSQL's elog.c.
fn severity(level: Level) -> u32 {
    match level {
        Level::Debug5 | Level::Debug4 | Level::Debug3 | Level::Debug2 | Level::Debug1 => 7,
        Level::Log | Level::Info => 6,
        Level::Notice | Level::Warning => 5,
        Level::Error => 4,
        Level::Fatal => 3,
        Level::Panic => 2,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use weir_config::Config;

    #[test]
    fn syslog_gets_priority_and_name() {
        let mut settings = Config::default().log;
        (settings.syslog_facility, settings.syslog_ident) = ("LOCAL3", "weir".into());
        let sent = String::from_utf8(datagram(&settings, Level::Error, b"hello\n")).unwrap();
        assert_eq!(sent, format!("<156>weir[{}]: hello", std::process::id()));
        settings.syslog_facility = "DAEMON";
        assert!(datagram(&settings, Level::Error, b"hello").starts_with(b"<28>weir["));
    }

    #[test]
    fn lines_that_a_full_disk_did_not_take_are_counted_and_the_next_one_begins_anew() {
        // A pipe that nobody waits for is full as a disk is: it takes a part of a long line.
        let (mut read, write) = std::io::pipe().unwrap();
        rustix::fs::fcntl_setfl(&write, rustix::fs::OFlags::NONBLOCK).unwrap();
        rustix::fs::fcntl_setfl(&read, rustix::fs::OFlags::NONBLOCK).unwrap();
        let mut settings = Config::default().log;
        settings.line_prefix = String::new();
        let mut outlet = LogOutlet::of_file(LogFile::of_pipe(write), &settings);
        outlet.write(Level::Log, "first\n");
        let long = format!("{}\n", "x".repeat(1 << 20));
        (0..5).for_each(|_| outlet.write(Level::Log, &long));
        let mut all = String::new();
        // The end is that nothing is there now.
        assert!(read.read_to_string(&mut all).is_err());
        outlet.note_lost(3);
        outlet.write(Level::Log, "third\n");
        outlet.write(Level::Log, "fourth\n");
        drop(outlet);
        read.read_to_string(&mut all).unwrap();
        let lines: Vec<&str> = all.lines().collect();
        assert_eq!((lines[0], lines[1].trim_matches('x')), ("first", ""));
        assert!(
            lines[2].starts_with("WARNING:  8 lines of the log are missing: cannot write the log file a pipe: "),
            "{}",
            lines[2]
        );
        assert_eq!(lines[3..], ["third", "fourth"]);
    }
}
