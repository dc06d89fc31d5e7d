//! All that is known of another host: its paths with their queues, its incoming links, and seals for datagrams.

use crate::watchdog::heard_copies::HeardCopies;
use crate::watchdog::peer_handshake::{DATAGRAMS, PeerLinkFault};
use crate::watchdog::peer_settings::{PeerHostSettings, PeerPlace};
use crate::watchdog::told_news::ToldNews;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::Instant;
use weir_group::{GroupMessage, HostNumber, MessagePart, RegisterMessage};
use weir_wire::datagram_seal::{DatagramError, DatagramReceiver, DatagramSender, datagram_link};

/// A link that falls so far behind loses its oldest messages: newer ones say more.
const QUEUE_MESSAGES_MAX: usize = 128;
const QUEUE_BYTES_MAX: usize = 1 << 20;
/// A host has as many links as paths; those of a process that ended may not have noticed it yet.
const INCOMING_MAX: usize = 16;
/// Links of which datagrams are taken: live ones, and the last that ended. The newest of the sender is among them.
const RECEIVERS_MAX: usize = 2 * INCOMING_MAX;
/// Questions whose answers are still timed.
const ASKED_MAX: usize = 4;

/// Bytes of a message, shared by all links.
pub type MessageBytes = Rc<[u8]>;

/// Facts of a host for operators.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerLinkView {
    pub host: HostNumber,
    /// Last message, over any link or datagram.
    pub heard_at: Option<Instant>,
    pub paths: Vec<PeerPathView>,
    /// Links from that host to this one.
    pub incoming: usize,
    /// From a question of a read to its answer.
    pub round_trip: Option<Duration>,
    /// Messages that were not sent since a link or the network took no more.
    pub dropped: u64,
    /// Datagrams and messages of that host which were refused; copies are not counted.
    pub refused: u64,
    pub last_error: Option<String>,
}

/// The link from this host to another one over one path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerPathView {
    /// As in the configuration.
    pub place: String,
    pub is_up: bool,
    /// Why it is not up.
    pub fault: Option<String>,
}

pub struct PeerHost {
    pub settings: PeerHostSettings,
    pub datagram_places: Vec<PeerPlace>,
    paths: RefCell<Vec<Rc<PeerPath>>>,
    incoming: RefCell<Vec<(u64, AbortHandle)>>,
    datagrams_out: RefCell<Option<DatagramSender>>,
    datagrams_in: RefCell<VecDeque<DatagramReceiver>>,
    heard_at: Cell<Option<Instant>>,
    asked: RefCell<VecDeque<(u64, Instant)>>,
    round_trip: Cell<Option<Duration>>,
    dropped: Cell<u64>,
    refused: Cell<u64>,
    last_error: RefCell<Option<String>>,
    told: RefCell<ToldNews>,
    copies: RefCell<HeardCopies>,
}

/// One path to a host. Its task (`peer_outgoing`) keeps a link there.
pub struct PeerPath {
    pub place: PeerPlace,
    pub task: RefCell<Option<AbortHandle>>,
    queue: RefCell<Option<Rc<PeerQueue>>>,
    fault: RefCell<Option<String>>,
}

/// Messages that wait for one link.
#[derive(Default)]
pub struct PeerQueue {
    messages: RefCell<VecDeque<MessageBytes>>,
    bytes: Cell<usize>,
    pub news: Notify,
}

impl PeerQueue {
    /// Returns the messages that made room.
    fn push(&self, message: MessageBytes) -> u64 {
        let mut messages = self.messages.borrow_mut();
        self.bytes.set(self.bytes.get() + message.len());
        messages.push_back(message);
        let mut dropped = 0;
        while messages.len() > QUEUE_MESSAGES_MAX || self.bytes.get() > QUEUE_BYTES_MAX {
            let Some(oldest) = messages.pop_front() else { break };
            self.bytes.set(self.bytes.get() - oldest.len());
            dropped += 1;
        }
        self.news.notify_one();
        dropped
    }

    pub fn pop(&self) -> Option<MessageBytes> {
        let message = self.messages.borrow_mut().pop_front()?;
        self.bytes.set(self.bytes.get() - message.len());
        Some(message)
    }
}

impl PeerPath {
    fn new(place: PeerPlace) -> PeerPath {
        PeerPath { place, task: RefCell::default(), queue: RefCell::default(), fault: RefCell::default() }
    }

    /// Messages are queued from now on.
    pub fn open(&self) -> Rc<PeerQueue> {
        let queue = Rc::new(PeerQueue::default());
        *self.queue.borrow_mut() = Some(queue.clone());
        *self.fault.borrow_mut() = None;
        queue
    }

    pub fn shut(&self, fault: &PeerLinkFault) {
        self.queue.borrow_mut().take();
        *self.fault.borrow_mut() = Some(fault.to_string());
    }

    fn end(&self) {
        self.queue.borrow_mut().take();
        if let Some(task) = self.task.borrow_mut().take() {
            task.abort();
        }
    }

    fn view(&self) -> PeerPathView {
        let (is_up, fault) = (self.queue.borrow().is_some(), self.fault.borrow().clone());
        PeerPathView { place: self.place.to_string(), is_up, fault }
    }
}

impl PeerHost {
    pub fn new(settings: PeerHostSettings) -> PeerHost {
        PeerHost {
            datagram_places: settings.datagrams(),
            settings,
            paths: RefCell::default(),
            incoming: RefCell::default(),
            datagrams_out: RefCell::default(),
            datagrams_in: RefCell::default(),
            heard_at: Cell::default(),
            asked: RefCell::default(),
            round_trip: Cell::default(),
            dropped: Cell::default(),
            refused: Cell::default(),
            last_error: RefCell::default(),
            told: RefCell::default(),
            copies: RefCell::default(),
        }
    }

    /// A path for each place, each without a task.
    pub fn add_paths(&self) -> Vec<Rc<PeerPath>> {
        let paths: Vec<Rc<PeerPath>> = self.settings.links().into_iter().map(|place| Rc::new(PeerPath::new(place))).collect();
        self.paths.borrow_mut().clone_from(&paths);
        paths
    }

    /// Queues a message on all live links, and returns a datagram of it if it is small.
    pub fn queue(&self, message: &GroupMessage, now: Instant) -> Option<Vec<u8>> {
        if let MessagePart::Register(RegisterMessage::Ask { round, .. }) = message.part {
            let mut asked = self.asked.borrow_mut();
            asked.push_back((round, now));
            while asked.len() > ASKED_MAX {
                asked.pop_front();
            }
        }
        let bytes: MessageBytes = message.to_bytes().into();
        for path in self.paths.borrow().iter() {
            if let Some(queue) = &*path.queue.borrow() {
                self.drop_messages(queue.push(bytes.clone()));
            }
        }
        let mut sender = self.datagrams_out.borrow_mut();
        sender.as_mut().filter(|_| message.is_small()).map(|sender| sender.close(&bytes))
    }

    pub fn drop_messages(&self, count: u64) {
        self.dropped.set(self.dropped.get() + count);
    }

    /// From the newest handshake on: the process there surely knows its key.
    pub fn send_datagrams_by(&self, sender: DatagramSender) {
        *self.datagrams_out.borrow_mut() = Some(sender);
    }

    pub fn add_incoming(&self, datagrams: DatagramReceiver, task: AbortHandle) {
        let number = datagrams.number();
        let mut incoming = self.incoming.borrow_mut();
        if incoming.len() >= INCOMING_MAX {
            incoming.remove(0).1.abort();
        }
        incoming.push((number, task));
        let mut receivers = self.datagrams_in.borrow_mut();
        receivers.push_back(datagrams);
        if receivers.len() > RECEIVERS_MAX {
            let is_over = |receiver: &DatagramReceiver| incoming.iter().all(|(live, _)| *live != receiver.number());
            let oldest = receivers.iter().position(is_over).unwrap_or_default();
            receivers.remove(oldest);
        }
    }

    pub fn remove_incoming(&self, number: u64) {
        self.incoming.borrow_mut().retain(|(other, _)| *other != number);
    }

    pub fn has_incoming(&self) -> bool {
        !self.incoming.borrow().is_empty()
    }

    /// `None`: of no link of this host.
    pub fn open_datagram<'a>(&self, number: u64, rest: &'a [u8]) -> Option<Result<&'a [u8], DatagramError>> {
        let mut receivers = self.datagrams_in.borrow_mut();
        receivers.iter_mut().rev().find(|receiver| receiver.number() == number).map(|receiver| receiver.open(rest))
    }

    /// True for the first of the copies of a message, which come over each path.
    pub fn is_first(&self, message: &[u8], now: Instant) -> bool {
        self.copies.borrow_mut().is_first(message, now)
    }

    pub fn note_heard(&self, message: &GroupMessage, now: Instant) {
        self.heard_at.set(Some(now));
        if let MessagePart::Register(RegisterMessage::Show { round, .. }) = message.part {
            let mut asked = self.asked.borrow_mut();
            if let Some(at) = asked.iter().position(|(other, _)| *other == round) {
                self.round_trip.set(asked.drain(..=at).next_back().map(|(_, at)| now - at));
            }
        }
    }

    pub fn note_error(&self, text: String) {
        *self.last_error.borrow_mut() = Some(text);
    }

    /// True if it was not told lately of this host's links to here.
    pub fn is_news(&self, text: &str, now: Instant) -> bool {
        self.told.borrow_mut().is_news(text, now)
    }

    pub fn note_refused(&self) {
        self.refused.set(self.refused.get() + 1);
    }

    /// Ends all links. Their tasks are dropped when the thread comes to them.
    pub fn end(&self) {
        for path in self.paths.borrow_mut().drain(..) {
            path.end();
        }
        for (_, task) in self.incoming.borrow_mut().drain(..) {
            task.abort();
        }
    }

    pub fn view(&self) -> PeerLinkView {
        PeerLinkView {
            host: self.settings.number,
            heard_at: self.heard_at.get(),
            paths: self.paths.borrow().iter().map(|path| path.view()).collect(),
            incoming: self.incoming.borrow().len(),
            round_trip: self.round_trip.get(),
            dropped: self.dropped.get(),
            refused: self.refused.get(),
            last_error: self.last_error.borrow().clone(),
        }
    }
}

/// The hosts by their numbers.
pub type PeerHosts = BTreeMap<HostNumber, Rc<PeerHost>>;

/// Of a datagram that came from anywhere: the host whose link it names, and the body.
pub fn open_datagram<'a>(hosts: &PeerHosts, datagram: &'a [u8]) -> Result<(Rc<PeerHost>, &'a [u8]), DatagramError> {
    let (number, rest) = datagram_link(&DATAGRAMS, datagram)?;
    let found = hosts.values().find_map(|host| host.open_datagram(number, rest).map(|opened| (host, opened)));
    // Also of a link that this process never had.
    let (host, opened) = found.ok_or(DatagramError::Message)?;
    if opened == Err(DatagramError::Message) {
        host.note_refused();
    }
    opened.map(|body| (host.clone(), body))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(bytes: usize) -> MessageBytes {
        vec![0; bytes].into()
    }

    #[test]
    fn a_queue_drops_its_oldest_messages_and_counts_them() {
        let queue = PeerQueue::default();
        for at in 0..QUEUE_MESSAGES_MAX {
            assert_eq!(queue.push(message(at)), 0);
        }
        assert_eq!(queue.push(message(1000)), 1);
        assert_eq!(queue.pop().map(|message| message.len()), Some(1));
        while queue.pop().is_some() {}
        assert_eq!(queue.bytes.get(), 0);
        for expected in [0, 0, 1, 1] {
            assert_eq!(queue.push(message(QUEUE_BYTES_MAX / 2)), expected);
        }
    }
}
