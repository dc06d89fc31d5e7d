//! The log: text or JSON lines to stderr, files or syslog.
//!
//! Each destination has a thread (`writer`), so that a blocked one delays no caller.

pub mod events;
mod file;
mod log_line;
mod outlet;
mod recent_lines;
mod repeats;
mod writer;

use crate::log::log_line::LogLineFormat;
use outlet::LogOutlet;
use recent_lines::RecentLines;
use repeats::{OmittedRepeats, RepeatFilter, RepeatVerdict};
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use weir_config::LogConfig;
use writer::LogWriter;

pub use crate::log::log_line::{rfc3339, utc};
pub use outlet::last_words;
pub use weir_config::LogLevel as Level;
pub use weir_session::host::{LogField, LogOrigin};

/// Longest wait for the last lines at the end.
const CLOSE_LIMIT: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub struct ProxyLog {
    least: AtomicU8,
    shape: parking_lot::RwLock<LogOutputs>,
    /// For lines about the proxy itself.
    repeats: parking_lot::Mutex<RepeatFilter>,
    pub(crate) recent: RecentLines,
}

#[derive(Debug)]
struct LogOutputs {
    form: LogLineFormat,
    stream: Option<LogWriter>,
    syslog: Option<LogWriter>,
}

/// Returns (stderr, syslog). stderr if none is named, so that the mistake is logged.
fn destinations(config: &LogConfig) -> (bool, bool) {
    let goes = |name: &str| config.destinations.iter().any(|destination| destination == name);
    (goes("stderr") || config.destinations.is_empty(), goes("syslog"))
}

impl ProxyLog {
    pub fn new(config: &LogConfig) -> std::io::Result<ProxyLog> {
        let (to_stream, to_syslog) = destinations(config);
        let stream = to_stream.then(|| LogWriter::start(LogOutlet::stream(config)?)).transpose()?;
        let syslog = to_syslog.then(|| LogWriter::start(LogOutlet::syslog(config))).transpose()?;
        Ok(ProxyLog {
            least: AtomicU8::new(config.min_messages as u8),
            shape: parking_lot::RwLock::new(LogOutputs { form: LogLineFormat::of(config), stream, syslog }),
            repeats: parking_lot::Mutex::default(),
            recent: RecentLines::default(),
        })
    }

    /// Applies a reloaded configuration. Files are reopened, so that they can be moved away before.
    pub fn set(&self, config: &LogConfig) {
        self.least.store(config.min_messages as u8, Ordering::Relaxed);
        let (to_stream, to_syslog) = destinations(config);
        let had = {
            let shape = self.shape.read();
            (shape.stream.is_some(), shape.syslog.is_some())
        };
        // Opened before the lock: a disk may block.
        let stream = begin(to_stream && !had.0, || LogOutlet::stream(config));
        let syslog = begin(to_syslog && !had.1, || Ok(LogOutlet::syslog(config)));
        let outcomes = {
            let mut shape = self.shape.write();
            shape.form = LogLineFormat::of(config);
            [redirect(&mut shape.stream, config, to_stream, stream), redirect(&mut shape.syslog, config, to_syslog, syslog)]
        };
        for cause in outcomes.into_iter().filter_map(Result::err) {
            self.say(Level::Error, format_args!("the log stays where it is: {cause}"));
        }
    }

    /// Starts a new file. Fails if the log has no file.
    pub fn rotate(&self) -> Result<(), String> {
        let shape = self.shape.read();
        let files = shape.stream.as_ref().filter(|stream| stream.has_files());
        files.map(LogWriter::rotate).ok_or_else(|| "logging_collector is off, or log_destination has no files".into())
    }

    pub fn flush(&self, limit: Duration) {
        let shape = self.shape.read();
        let until = Instant::now() + limit;
        shape.stream.iter().chain(&shape.syslog).for_each(|writer| writer.flush(until));
    }

    /// Writes the remaining lines. Later ones are dropped.
    pub fn close(&self) {
        let (stream, syslog) = {
            let mut shape = self.shape.write();
            (shape.stream.take(), shape.syslog.take())
        };
        let until = Instant::now() + CLOSE_LIMIT;
        for writer in [stream, syslog].into_iter().flatten() {
            writer.end(until);
        }
    }

    /// True if a line of this level would be written: to be asked before building a costly one.
    pub fn is_on(&self, level: Level) -> bool {
        level as u8 >= self.least.load(Ordering::Relaxed)
    }

    /// Writes a line. Never fails and never waits: a blocked log must not stop the proxy.
    pub fn write(&self, level: Level, who: &LogOrigin<'_>, text: std::fmt::Arguments<'_>) {
        self.event(level, who, text, &[]);
    }

    pub fn event(&self, level: Level, who: &LogOrigin<'_>, text: std::fmt::Arguments<'_>, fields: &[(&str, LogField<'_>)]) {
        if !self.is_on(level) {
            return;
        }
        let now = now();
        self.recent.note(level, text, now);
        let shape = self.shape.read();
        let line = shape.form.line(level, who, text, fields, now);
        match (&shape.stream, &shape.syslog) {
            (Some(stream), Some(syslog)) => {
                stream.line(level, line.clone());
                syslog.line(level, line);
            }
            (Some(only), None) | (None, Some(only)) => only.line(level, line),
            (None, None) => {}
        }
    }

    /// Writes a line about the proxy itself. Beyond ten repeats a second it is left out and counted.
    pub fn say(&self, level: Level, text: std::fmt::Arguments<'_>) {
        if !self.is_on(level) {
            return;
        }
        let text = text.to_string();
        let (repeat, omissions) = self.repeats.lock().note(level, &text, now().as_millis() as u64);
        for OmittedRepeats { level, text, times } in omissions {
            self.write(level, &LogOrigin::default(), format_args!("left out {times} times within a second: {text}"));
        }
        match repeat {
            RepeatVerdict::Written => self.write(level, &LogOrigin::default(), format_args!("{text}")),
            RepeatVerdict::LeftOut => {}
        }
    }
}

impl Drop for ProxyLog {
    /// Lines of a failed start appear before its error.
    fn drop(&mut self) {
        self.close();
    }
}

fn begin(is_new: bool, open: impl FnOnce() -> std::io::Result<LogOutlet>) -> std::io::Result<Option<LogWriter>> {
    is_new.then(|| LogWriter::start(open()?)).transpose()
}

/// Starts, reconfigures or ends a destination. Lines already taken are still written.
fn redirect(
    writer: &mut Option<LogWriter>,
    config: &LogConfig,
    is_wanted: bool,
    begun: std::io::Result<Option<LogWriter>>,
) -> std::io::Result<()> {
    match (&*writer, is_wanted) {
        (Some(writer), true) => writer.set(config),
        (None, true) => *writer = begun?,
        (Some(_), false) => drop(writer.take()),
        (None, false) => {}
    }
    Ok(())
}

fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}
