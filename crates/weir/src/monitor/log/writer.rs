//! The thread that writes the log to files and to syslog: a disk or a daemon that hangs must not hold up clients.

use super::file::LogFile;
use super::{Level, now_s};
use std::io::Write;
use std::os::unix::net::UnixDatagram;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use weir_config::LogConfig;

/// Lines that wait to be written; more are counted and left out.
const LINES_MAX: usize = 16 << 10;
/// Where syslog listens. Source: syslog(3).
const SYSLOG: &str = "/dev/log";
/// Longest line for syslog; datagrams have a limit.
const SYSLOG_BYTES_MAX: usize = 8 << 10;

enum Order {
    Line {
        level: Level,
        text: Vec<u8>,
        to_file: bool,
        to_syslog: bool,
    },
    /// The configuration was read again: files may have been moved away.
    Settings(Box<LogConfig>),
    /// A new file is to begin.
    Rotate,
}

/// The way to the thread.
#[derive(Debug)]
pub struct Writer {
    orders: Option<SyncSender<Order>>,
    lost: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl Writer {
    /// Opens the first file and starts the thread. Error: neither file nor thread can be had.
    pub fn start(config: &LogConfig) -> std::io::Result<Writer> {
        let file = if config.file.is_used { Some(LogFile::open(&config.file, now_s())?) } else { None };
        let (orders, taken) = sync_channel(LINES_MAX);
        let lost = Arc::new(AtomicU64::new(0));
        let (settings, theirs) = (config.clone(), lost.clone());
        let thread = std::thread::Builder::new().name("log".into());
        let thread = thread.spawn(move || work(&taken, file, settings, &theirs))?;
        Ok(Writer { orders: Some(orders), lost, thread: Some(thread) })
    }

    /// Has a line written. It is left out, and counted, when too many wait already.
    pub fn line(&self, level: Level, text: &str, to_file: bool, to_syslog: bool) {
        self.send(Order::Line { level, text: text.as_bytes().to_vec(), to_file, to_syslog });
    }

    pub fn set(&self, config: &LogConfig) {
        self.send(Order::Settings(Box::new(config.clone())));
    }

    pub fn rotate(&self) {
        self.send(Order::Rotate);
    }

    fn send(&self, order: Order) {
        let Some(orders) = &self.orders else { return };
        if let Err(TrySendError::Full(_)) = orders.try_send(order) {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Drop for Writer {
    /// Writes all lines before the proxy is gone.
    fn drop(&mut self) {
        self.orders = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn work(orders: &Receiver<Order>, mut file: Option<LogFile>, mut settings: LogConfig, lost: &AtomicU64) {
    let syslog = UnixDatagram::unbound().ok();
    while let Ok(order) = orders.recv() {
        let missing = lost.swap(0, Ordering::Relaxed);
        if missing > 0 {
            let text = format!("{missing} lines of the log are missing: they came faster than they could be written\n");
            write_file(&mut file, text.as_bytes());
        }
        match order {
            Order::Line { level, text, to_file, to_syslog } => {
                if to_file {
                    write_file(&mut file, &text);
                }
                if to_syslog && let Some(socket) = &syslog {
                    // Nobody listens there: nothing to be done about it.
                    let _ = socket.send_to(&datagram(&settings, level, &text), SYSLOG);
                }
            }
            Order::Settings(new) => {
                settings = *new;
                reopen(&mut file, &settings);
            }
            Order::Rotate => reopen(&mut file, &settings),
        }
    }
}

/// Opens the file anew: the next one if its name has another time in it by now.
fn reopen(file: &mut Option<LogFile>, settings: &LogConfig) {
    let Some(open) = file else { return };
    if let Err(cause) = open.reopen(&settings.file, now_s()) {
        complain(&format!("cannot open a file in {}: {cause}\n", settings.file.directory.display()));
    }
}

/// What cannot be written to the file goes to stderr, which is all there is then.
fn write_file(file: &mut Option<LogFile>, text: &[u8]) {
    let Some(open) = file else { return };
    if let Err(cause) = open.write(text, now_s()) {
        complain(&format!("cannot write the log file: {cause}\n{}", String::from_utf8_lossy(text)));
    }
}

fn complain(text: &str) {
    let _ = std::io::stderr().lock().write_all(text.as_bytes());
}

/// Priority, name, process number and text. Source: RFC 3164.
fn datagram(settings: &LogConfig, level: Level, text: &[u8]) -> Vec<u8> {
    let priority = facility(settings.syslog_facility) * 8 + severity(level);
    let mut out = format!("<{priority}>{}[{}]: ", settings.syslog_ident, std::process::id()).into_bytes();
    let text = text.strip_suffix(b"\n").unwrap_or(text);
    out.extend_from_slice(&text[..text.len().min(SYSLOG_BYTES_MAX)]);
    out
}

/// Numbers of facilities. Source: RFC 3164, section 4.1.1.
fn facility(word: &str) -> u32 {
    match word {
        "USER" => 1,
        "DAEMON" => 3,
        "AUTH" => 4,
        "AUTHPRIV" => 10,
        local => 16 + local.strip_prefix("LOCAL").and_then(|number| number.parse().ok()).unwrap_or(0),
    }
}

/// As PostgreSQL maps its levels, `write_syslog` in elog.c.
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
}
