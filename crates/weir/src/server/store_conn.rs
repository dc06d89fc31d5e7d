//! A task per worker and store host, with one connection for the requests of all sessions.
//!
//! A host that does not answer in time counts as gone: its requests are misses, and it is tried again.

mod arrival;

use crate::log::{Level, LogOrigin};
use crate::runtime::stores::{StoreEndpoint, StoreLane, StoreReplyResult, VALUE_BYTES_MAX, WorkerStores};
use crate::runtime::worker::Worker;
use std::rc::Rc;
use std::time::{Duration, Instant};
use weir_io::reactor::parked;
use weir_io::socket::{ReadOutcome, Socket};
use weir_session::metrics::WorkerCounter;
use weir_wire::gather::{GatherBound, GatherBudget};
use weir_wire::store_protocol::{advice, is_too_large};

const TICK: Duration = Duration::from_millis(50);

const RETRY: Duration = Duration::from_millis(250);

/// A host that refuses requests needs an operator.
const REFUSED_RETRY: Duration = Duration::from_secs(5);

const READ_BYTES_MAX: usize = 1 << 20;

/// Reply to a question for as many answers as go together (`stores::fetching`).
const REPLY: GatherBound =
    GatherBound { thing: "a reply of the store", count_max: usize::MAX, bytes_max: 64 << 20, parameter: "" };

const PIECE_BYTES: usize = 32 << 10;

pub enum StoreConnFailure {
    Lost(String),
    Refused(String),
}

impl StoreConnFailure {
    fn retry(&self) -> Duration {
        match self {
            StoreConnFailure::Lost(_) => RETRY,
            StoreConnFailure::Refused(_) => REFUSED_RETRY,
        }
    }

    /// Cause and advice.
    fn words(&self) -> (&str, &'static str) {
        match self {
            StoreConnFailure::Lost(text) => {
                (text, "Look whether it runs, can be reached from here, and speaks TLS or not as memqcache_sslmode says")
            }
            StoreConnFailure::Refused(text) => (text, advice(text)),
        }
    }
}

impl From<String> for StoreConnFailure {
    fn from(text: String) -> StoreConnFailure {
        StoreConnFailure::Lost(text)
    }
}

/// Not cancel safe.
pub async fn attend(w: Rc<Worker>, stores: Rc<WorkerStores>, at: usize) {
    let shelf = &stores.shelves[at];
    shelf.task.set(w.reactor.current_task());
    let mut seeds = Vec::new();
    loop {
        let cause = match arrival::arrive(&w, &stores, at, &mut seeds).await {
            Ok(sockets) => {
                let wire = |socket| StoreConn { socket, buffer: Vec::new(), written: Vec::new() };
                let lanes = shelf.lanes();
                let wires = sockets.into_iter().map(wire).collect();
                let piece = vec![0; PIECE_BYTES].into();
                let mut line = StoreHostConns { w: &w, stores: &stores, shelf, at, lanes, wires, piece };
                let cause = line.serve().await;
                line.wires.into_iter().for_each(|wire| wire.socket.close(&w.reactor));
                cause
            }
            Err(cause) => cause,
        };
        let was_up = stores.is_up(at);
        stores.lose(at);
        wake(&w, &stores);
        if was_up {
            w.count(WorkerCounter::CacheStoresLost);
        }
        if stores.common.is_news(at, false) {
            let (text, advice) = cause.words();
            let text = format_args!(
                "{} does not serve as a store of answers: {text}; nothing is answered from it until it does. {advice}",
                shelf.host
            );
            w.shared.log.write(Level::Warning, &LogOrigin::default(), text);
        }
        w.reactor.sleep(cause.retry()).await;
    }
}

pub fn give_up(w: &Worker, stores: &WorkerStores, at: usize) {
    stores.lose(at);
    wake(w, stores);
}

pub fn wake(w: &Worker, stores: &WorkerStores) {
    stores.take_woken().into_iter().for_each(|task| w.reactor.wake(task));
}

struct StoreConn {
    socket: Socket,
    /// Bytes not parsed yet.
    buffer: Vec<u8>,
    written: Vec<u8>,
}

/// Connections to a host, in the order of its lanes.
struct StoreHostConns<'a> {
    w: &'a Rc<Worker>,
    stores: &'a Rc<WorkerStores>,
    shelf: &'a StoreEndpoint,
    at: usize,
    lanes: Rc<[StoreLane]>,
    wires: Vec<StoreConn>,
    piece: Box<[u8]>,
}

impl StoreHostConns<'_> {
    /// Returns why the connections are of no use any more.
    async fn serve(&mut self) -> StoreConnFailure {
        let (mut look_at, mut was_up) = (Instant::now(), false);
        loop {
            let now = Instant::now();
            self.stores.set_now(self.w.millis(now));
            for number in 0..self.wires.len() {
                if let Err(cause) = self.read(number) {
                    return cause;
                }
            }
            if now >= look_at {
                self.stores.expire_wanted(self.at);
                look_at = now + TICK;
            }
            self.put_proven();
            self.stores.ask_for_wanted(self.at);
            for number in 0..self.wires.len() {
                if let Some(cause) = self.write(number).err().or_else(|| self.is_late(number)) {
                    return StoreConnFailure::Lost(cause);
                }
            }
            was_up = self.note_up(was_up);
            wake(self.w, self.stores);
            self.w.reactor.wake_at(look_at);
            parked().await;
        }
    }

    fn put_proven(&self) {
        if !self.stores.has_pending() {
            return;
        }
        let positions = &self.w.shared.positions;
        // The list before the look: news in between is seen, and later news wakes.
        positions.enlist((self.w.id, self.w.reactor.current_task()), 0);
        self.stores.put_proven(self.w.primary_node(), self.w.now_ms(), |flight, is_stored| {
            if is_stored {
                self.w.count(WorkerCounter::CacheStored);
            }
            if let Some(flight) = flight {
                flight.finish(|waiter| self.w.wake_waiter(waiter));
            }
        });
    }

    fn is_late(&self, number: usize) -> Option<String> {
        let first = self.lanes[number].sent.borrow().front().map(|sent| sent.at_ms)?;
        let is_late = self.w.millis(Instant::now()) > first.saturating_add(self.stores.timeout_ms);
        is_late.then(|| format!("no answer in {} ms (memqcache_timeout)", self.stores.timeout_ms))
    }

    fn write(&mut self, number: usize) -> Result<(), String> {
        let (wire, lane) = (&mut self.wires[number], &self.lanes[number]);
        let mut out = lane.out.borrow_mut();
        if !out.is_empty() {
            // The time of requests begins now.
            lane.stamp(self.w.millis(Instant::now()));
            wire.written.append(&mut out);
        }
        let mut done = 0;
        while done < wire.written.len() {
            match wire.socket.try_write(&self.w.reactor, &wire.written[done..], &[]) {
                Ok(0) => break,
                Ok(bytes) => done += bytes,
                Err(cause) => return Err(cause.to_string()),
            }
        }
        wire.written.drain(..done);
        lane.note_written(wire.written.len());
        Ok(())
    }

    fn read(&mut self, number: usize) -> Result<(), StoreConnFailure> {
        let mut read = 0;
        let wire = &mut self.wires[number];
        while read < READ_BYTES_MAX {
            match wire.socket.try_read(&self.w.reactor, &mut self.piece) {
                Ok(ReadOutcome::Bytes(bytes)) => {
                    read += bytes;
                    wire.buffer.extend_from_slice(&self.piece[..bytes]);
                }
                Ok(ReadOutcome::Nothing) => return self.hear(number),
                Ok(ReadOutcome::End) => return Err(StoreConnFailure::Lost("it closed the connection".into())),
                Err(cause) => return Err(StoreConnFailure::Lost(cause.to_string())),
            }
        }
        // The sessions come first.
        self.w.reactor.wake(self.w.reactor.current_task());
        self.hear(number)
    }

    fn hear(&mut self, number: usize) -> Result<(), StoreConnFailure> {
        let (wire, lane) = (&mut self.wires[number], &self.lanes[number]);
        let buffer = std::mem::take(&mut wire.buffer);
        let mut taken = 0;
        while taken < buffer.len() {
            let told = {
                let sent = lane.sent.borrow();
                let Some(first) = sent.front() else {
                    return Err(StoreConnFailure::Lost("it says something nobody asked for".into()));
                };
                self.stores.dialect.read(&first.expect, &buffer[taken..], VALUE_BYTES_MAX)
            };
            let Some((told, bytes)) = told.map_err(|error| error.to_string())? else { break };
            taken += bytes;
            let Some(sent) = lane.sent.borrow_mut().pop_front() else { break };
            match self.stores.hear(self.at, sent, told) {
                StoreReplyResult::Fine => {}
                StoreReplyResult::Missed(text) => self.say_full(&text),
                StoreReplyResult::Moved => {
                    return Err(StoreConnFailure::Lost("other nodes of the cluster have its keys now".into()));
                }
                StoreReplyResult::Refused(text) => return Err(StoreConnFailure::Refused(text)),
            }
        }
        let mut buffer = buffer;
        buffer.drain(..taken);
        GatherBudget::new(REPLY).take(buffer.len()).map_err(|exceeded| StoreConnFailure::Lost(exceeded.to_string()))?;
        self.wires[number].buffer = buffer;
        Ok(())
    }

    /// Says that the host is back, once for these connections: those of another worker may have seen its end already, and these not yet. Returns whether it is
    /// up.
    fn note_up(&self, was_up: bool) -> bool {
        let is_up = self.stores.is_up(self.at);
        if is_up && !was_up && self.stores.common.is_news(self.at, true) {
            self.w.shared.log.say(Level::Log, format_args!("{} serves as a store of answers again", self.shelf.host));
        }
        is_up
    }

    fn say_full(&self, text: &str) {
        if !is_too_large(text) && self.stores.common.is_news_that_full(self.at) {
            let (host, advice) = (&self.shelf.host, advice(text));
            let text = format_args!("{host} takes no answers to keep: {text}; they are missed. {advice}");
            self.w.shared.log.write(Level::Warning, &LogOrigin::default(), text);
        }
    }
}
