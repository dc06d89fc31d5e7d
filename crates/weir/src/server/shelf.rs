//! A task for each host of a store and each worker: one connection, on which all that the worker's sessions ask is sent behind each other.
//!
//! A host that does not answer in time counts as gone: what was asked of it is a miss, and it is tried again. See `stores`.

use crate::io::reactor::parked;
use crate::io::socket::{Got, Socket};
use crate::monitor::log::{Level, Who};
use crate::monitor::metrics::Metric;
use crate::process::shared::Stop;
use crate::process::worker::Worker;
use crate::server::link;
use crate::server::stores::{Heard, Shelf, Stores, VALUE_BYTES_MAX};
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant};
use weir_policy::cache::Host;
use weir_wire::store::{advice, is_too_large};

/// Time between two looks at what is due.
const TICK: Duration = Duration::from_millis(50);

/// Time before a host is tried again.
const RETRY: Duration = Duration::from_millis(250);

/// The same for one that will not do what it is asked: that takes an operator.
const REFUSED_RETRY: Duration = Duration::from_secs(5);

/// Bytes read before the sessions get their turn.
const READ_BYTES_MAX: usize = 1 << 20;

/// What is read may take as much room as a value and its head.
const PIECE_BYTES: usize = 32 << 10;

/// Why a connection is of no use any more.
enum Cause {
    Lost(String),
    /// In the host's own words.
    Refused(String),
}

impl Cause {
    fn retry(&self) -> Duration {
        match self {
            Cause::Lost(_) => RETRY,
            Cause::Refused(_) => REFUSED_RETRY,
        }
    }

    /// What happened, and what to do.
    fn words(&self) -> (&str, &'static str) {
        match self {
            Cause::Lost(text) => (text, "Look whether it runs and can be reached from here"),
            Cause::Refused(text) => (text, advice(text)),
        }
    }
}

impl From<String> for Cause {
    fn from(text: String) -> Cause {
        Cause::Lost(text)
    }
}

/// Keeps the connection to a host as long as the worker runs. Not cancel safe.
pub async fn attend(w: Rc<Worker>, stores: Rc<Stores>, at: usize) {
    let shelf = &stores.shelves[at];
    shelf.task.set(w.reactor.current_task());
    while w.shared.stop_mode() <= Stop::Smart {
        let cause = match open(&w, &shelf.host, stores.timeout_ms).await {
            Ok(socket) => {
                stores.set_now(w.millis(Instant::now()));
                stores.greet(at);
                let mut line = Line { w: &w, stores: &stores, shelf, at, socket, buffer: Vec::new(), written: Vec::new() };
                let cause = line.serve().await;
                line.socket.close(&w.reactor);
                cause
            }
            Err(cause) => Cause::Lost(cause.to_string()),
        };
        let was_up = stores.is_up(at);
        stores.lose(at);
        wake(&w, &stores);
        if was_up {
            w.count(Metric::CacheStoresLost);
        }
        if stores.common.is_news(at, false) {
            let (text, advice) = cause.words();
            let text = format_args!(
                "{} does not serve as a store of answers: {text}; nothing is answered from it until it does. {advice}",
                shelf.host
            );
            w.shared.log.write(Level::Warning, &Who::default(), text);
        }
        pause(&w, &stores, at, cause.retry()).await;
    }
}

/// Waits before the next attempt; writers may be waiting meanwhile.
async fn pause(w: &Worker, stores: &Rc<Stores>, at: usize, time: Duration) {
    let until = Instant::now() + time;
    while w.reactor.now() < until {
        stores.set_now(w.millis(Instant::now()));
        stores.tick(at);
        wake(w, stores);
        w.reactor.sleep(TICK).await;
    }
}

/// Wakes whoever something has happened to.
pub fn wake(w: &Worker, stores: &Stores) {
    stores.take_woken().into_iter().for_each(|task| w.reactor.wake(task));
}

async fn open(w: &Worker, host: &Host, timeout_ms: u64) -> std::io::Result<Socket> {
    match host {
        Host::Unix(path) => Socket::connect_unix(&w.reactor, Path::new(path)),
        Host::Tcp { name, port } => link::connect_any(w, name, *port, Instant::now() + Duration::from_millis(timeout_ms)).await,
    }
}

/// The open connection.
struct Line<'a> {
    w: &'a Rc<Worker>,
    stores: &'a Rc<Stores>,
    shelf: &'a Shelf,
    at: usize,
    socket: Socket,
    /// What was read and not understood yet.
    buffer: Vec<u8>,
    /// What is on its way out.
    written: Vec<u8>,
}

impl Line<'_> {
    /// Until it is of no use any more: says why.
    async fn serve(&mut self) -> Cause {
        let mut look_at = Instant::now();
        loop {
            let now = Instant::now();
            self.stores.set_now(self.w.millis(now));
            if let Err(cause) = self.read() {
                return cause;
            }
            if now >= look_at {
                self.stores.tick(self.at);
                look_at = now + TICK;
            }
            if let Err(cause) = self.write() {
                return Cause::Lost(cause);
            }
            if let Some(cause) = self.is_late() {
                return Cause::Lost(cause);
            }
            if self.w.shared.stop_mode() > Stop::Smart {
                return Cause::Lost("Weir stops".to_string());
            }
            self.say_back();
            wake(self.w, self.stores);
            self.w.reactor.wake_at(look_at);
            parked().await;
        }
    }

    fn is_late(&self) -> Option<String> {
        let first = self.shelf.sent.borrow().front().map(|sent| sent.at_ms)?;
        let is_late = self.w.millis(Instant::now()) > first + self.stores.timeout_ms;
        is_late.then(|| format!("no answer in {} ms (memqcache_timeout)", self.stores.timeout_ms))
    }

    fn write(&mut self) -> Result<(), String> {
        self.written.append(&mut self.shelf.out.borrow_mut());
        let mut done = 0;
        while done < self.written.len() {
            match self.socket.try_write(&self.w.reactor, &self.written[done..], &[]) {
                Ok(0) => break,
                Ok(bytes) => done += bytes,
                Err(cause) => return Err(cause.to_string()),
            }
        }
        self.written.drain(..done);
        Ok(())
    }

    fn read(&mut self) -> Result<(), Cause> {
        let mut piece = [0u8; PIECE_BYTES];
        let mut read = 0;
        while read < READ_BYTES_MAX {
            match self.socket.try_read(&self.w.reactor, &mut piece) {
                Ok(Got::Bytes(bytes)) => {
                    read += bytes;
                    self.buffer.extend_from_slice(&piece[..bytes]);
                }
                Ok(Got::Nothing) => return self.hear(),
                Ok(Got::End) => return Err(Cause::Lost("it closed the connection".into())),
                Err(cause) => return Err(Cause::Lost(cause.to_string())),
            }
        }
        // There is more, but the sessions come first.
        self.w.reactor.wake(self.w.reactor.current_task());
        self.hear()
    }

    fn hear(&mut self) -> Result<(), Cause> {
        let mut taken = 0;
        while taken < self.buffer.len() {
            let told = {
                let sent = self.shelf.sent.borrow();
                let Some(first) = sent.front() else { return Err(Cause::Lost("it says something nobody asked for".into())) };
                self.stores.dialect.read(&first.expect, &self.buffer[taken..], VALUE_BYTES_MAX)
            };
            let Some((told, bytes)) = told.map_err(|error| error.to_string())? else { break };
            taken += bytes;
            let Some(sent) = self.shelf.sent.borrow_mut().pop_front() else { break };
            match self.stores.hear(self.at, sent, told) {
                Heard::Fine => {}
                Heard::Missed(text) => self.say_full(&text),
                Heard::Refused(text) => return Err(Cause::Refused(text)),
            }
        }
        self.buffer.drain(..taken);
        Ok(())
    }

    /// It is of use again only when it has been told what it was not: one that refuses that is not back.
    fn say_back(&self) {
        let common = &self.stores.common;
        if common.is_logged(self.at) && self.stores.serves(self.at) && common.is_news(self.at, true) {
            self.w.shared.log.say(Level::Log, format_args!("{} serves as a store of answers again", self.shelf.host));
        }
    }

    /// Answers it does not take are missed.
    fn say_full(&self, text: &str) {
        if !is_too_large(text) && self.stores.common.is_news_that_full(self.at) {
            let (host, advice) = (&self.shelf.host, advice(text));
            let text = format_args!("{host} takes no answers to keep: {text}; they are missed. {advice}");
            self.w.shared.log.write(Level::Warning, &Who::default(), text);
        }
    }
}
