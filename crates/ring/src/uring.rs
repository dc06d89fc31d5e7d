//! The ring: sockets by token, received bytes, and bytes to send.

use crate::kernel_timer::{AlarmStep, KernelAlarms, RoundWait};
use crate::listening::RingListener;
use crate::outgoing::{SendBuffer, SendPiece, VectoredSend};
use crate::provided::{GROUP, ProvidedBuffers};
use crate::stream_rounds::StreamPacing;
use crate::token::{RingOperation, SocketToken};
use crate::unread::{ReceiveQueue, ReceivedChunk};
use crate::{CLOSED, READ, WRITE};
use io_uring::types::{self, SubmitArgs};
use io_uring::{IoUring, cqueue, opcode, squeue};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::time::Instant;

const REQUESTS: u32 = 512;

/// Completions without overflow in the kernel.
const COMPLETIONS: u32 = 8192;

/// Receive buffers. With too few in a round, receiving ends and restarts.
const BUFFERS: u16 = 128;

/// More completions than a stream brings, so that the time ends a wait.
const MANY: usize = 16;

/// Unread chunks at which receiving stops.
const UNREAD_MAX: usize = 4;

pub trait RingHost {
    type Mark;
    fn buffer(&self) -> Box<[u8]>;
    fn spent(&self, bytes: SendBuffer);
    fn ready(&self, mark: &Self::Mark, bits: u8);
    fn released(&self, mark: Self::Mark);
}

#[derive(Clone, Copy, Debug)]
enum ReceiveEnd {
    Closed,
    Failed(i32),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SendProgress {
    pub given: u64,
    pub taken: u64,
    /// True if the kernel may still take the rest.
    pub is_open: bool,
    /// True after a failed send: the kernel takes no more.
    pub has_failed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SocketFate {
    Stay,
    Close,
    /// As `Close`, and the peer sees the end before a reset.
    End,
    Release,
}

struct RingSocket<M> {
    mark: M,
    /// Keeps the descriptor open while a request may name it.
    _file: Arc<dyn AsFd + Send + Sync>,
    fd: RawFd,
    unread: ReceiveQueue,
    end: Option<ReceiveEnd>,
    receiving: bool,
    cancelling: bool,
    /// Collected in this round.
    next: Option<Box<VectoredSend>>,
    /// In the kernel.
    sending: Option<Box<VectoredSend>>,
    given: u64,
    taken: u64,
    failed: Option<i32>,
    wants_write: bool,
    polling: bool,
    fate: SocketFate,
}

/// Checks the kernel's features. Error: the missing one.
pub fn available() -> io::Result<()> {
    build().map(drop)
}

fn build() -> io::Result<IoUring> {
    IoUring::builder()
        .setup_single_issuer()
        .setup_defer_taskrun()
        .setup_submit_all()
        .setup_clamp()
        .setup_cqsize(COMPLETIONS)
        .build(REQUESTS)
}

struct RingPlace<M> {
    /// Turn of the present or the next socket.
    turn: u32,
    place: Option<RingSocket<M>>,
}

impl<M> RingSocket<M> {
    fn is_busy(&self) -> bool {
        self.receiving || self.polling || self.sending.is_some() || self.next.is_some()
    }
}

/// Sockets of one thread, to be used on it only.
pub struct Ring<M> {
    uring: IoUring,
    provided: ProvidedBuffers,
    places: Vec<RingPlace<M>>,
    free: Vec<u32>,
    doors: Vec<RingListener<M>>,
    /// Sockets with bytes in `next`.
    dirty: Vec<SocketToken>,
    /// Boxed: see `VectoredSend::request`.
    #[allow(clippy::vec_box)]
    spare: Vec<Box<VectoredSend>>,
    completions: Vec<(u64, i32, u32)>,
    watched: Option<RawFd>,
    watch_due: bool,
    alarms: KernelAlarms,
    streaming: StreamPacing,
    /// True if a wait for several completions can end with one after a time (Linux 6.12).
    can_linger: bool,
}

impl<M> Ring<M> {
    /// Error: the kernel is too old or forbids it.
    pub fn new(buffer: impl FnMut() -> Box<[u8]>) -> io::Result<Ring<M>> {
        let uring = build()?;
        let provided = ProvidedBuffers::register(&uring, BUFFERS, buffer)?;
        // Optional: saves a look-up.
        let _ = uring.submitter().register_ring_fd();
        let can_linger = uring.params().is_feature_min_timeout();
        Ok(Ring {
            uring,
            provided,
            places: Vec::new(),
            free: Vec::new(),
            doors: Vec::new(),
            dirty: Vec::new(),
            spare: Vec::new(),
            completions: Vec::new(),
            watched: None,
            watch_due: false,
            alarms: KernelAlarms::default(),
            streaming: StreamPacing::default(),
            can_linger,
        })
    }

    /// Watches another event queue, reported by [`Ring::turn`]. Once closed it reports nothing.
    pub fn watch(&mut self, queue: &impl AsRawFd) {
        self.watched = Some(queue.as_raw_fd());
        self.watch_due = true;
    }

    /// Begins to receive. Needs blocking mode, else the kernel does not wait.
    pub fn add(&mut self, file: Arc<dyn AsFd + Send + Sync>, mark: M) -> SocketToken {
        let fd = file.as_fd().as_raw_fd();
        let place = RingSocket {
            mark,
            _file: file,
            fd,
            unread: ReceiveQueue::default(),
            end: None,
            receiving: false,
            cancelling: false,
            next: None,
            sending: None,
            given: 0,
            taken: 0,
            failed: None,
            wants_write: false,
            polling: false,
            fate: SocketFate::Stay,
        };
        let at = self.free.pop().unwrap_or_else(|| {
            self.places.push(RingPlace { turn: 0, place: None });
            (self.places.len() - 1) as u32
        });
        let home = &mut self.places[at as usize];
        home.place = Some(place);
        let token = SocketToken { place: at, turn: home.turn };
        self.receive(token);
        token
    }

    /// Needs a socket in blocking mode. `RingHost::ready` reports connections.
    pub fn listen(&mut self, file: Arc<dyn AsFd + Send + Sync>, mark: M) -> SocketToken {
        self.doors.push(RingListener::new(file, mark));
        let door = SocketToken::once((self.doors.len() - 1) as u32);
        self.accept(door);
        door
    }

    fn accept(&mut self, token: SocketToken) {
        if let Some(request) = self.doors.get_mut(token.place as usize).and_then(|door| door.request(token)) {
            self.push(&request);
        }
    }

    pub fn accepted(&mut self, token: SocketToken) -> io::Result<Option<OwnedFd>> {
        let Some(door) = self.doors.get_mut(token.place as usize) else { return Ok(None) };
        let came = door.take();
        if matches!(came, Ok(None)) {
            self.accept(token);
        }
        came
    }

    pub fn has_callers(&self, token: SocketToken) -> bool {
        self.doors.get(token.place as usize).is_some_and(RingListener::has_callers)
    }

    /// The next turn closes the socket unless it has another owner.
    pub fn shut(&mut self, token: SocketToken) {
        if self.doors.get_mut(token.place as usize).is_some_and(RingListener::shut) {
            self.cancel(token, RingOperation::Accept);
        }
    }

    /// True if no request names a listening socket.
    pub fn shut_all(&mut self) -> bool {
        for number in 0..self.doors.len() as u32 {
            self.shut(SocketToken::once(number));
        }
        self.doors.iter().all(RingListener::is_closed)
    }

    /// True without a request in the kernel or connections left.
    pub fn is_shut(&self, token: SocketToken) -> bool {
        self.doors.get(token.place as usize).is_none_or(RingListener::is_shut)
    }

    fn came(&mut self, token: SocketToken, result: i32, more: bool, host: &impl RingHost<Mark = M>) {
        let Some(door) = self.doors.get_mut(token.place as usize) else { return };
        door.note(result, more);
        if door.has_callers() || door.is_shut() {
            host.ready(&door.mark, READ);
        }
        if door.goes_on() {
            self.accept(token);
        }
    }

    fn place(&mut self, token: SocketToken) -> Option<&mut RingSocket<M>> {
        let home = self.places.get_mut(token.place as usize)?;
        if home.turn == token.turn { home.place.as_mut() } else { None }
    }

    fn push(&mut self, request: &squeue::Entry) {
        loop {
            // SAFETY: the ring owns the memory of the request until its completion: provided buffers for ever, bytes to send in
            // `RingSocket::sending`, sockets by `RingSocket::_file`. The time of an alarm is read when it is submitted, which is in the
            // same turn.
            if unsafe { self.uring.submission().push(request) }.is_ok() {
                return;
            }
            if self.uring.submit().is_err() {
                // Impossible in a sound ring; a timeout would end the socket.
                return;
            }
        }
    }

    fn receive(&mut self, token: SocketToken) {
        let Some(place) = self.place(token) else { return };
        if place.receiving || place.end.is_some() || place.fate != SocketFate::Stay {
            return;
        }
        place.receiving = true;
        let request = opcode::RecvMulti::new(types::Fd(place.fd), GROUP).build().user_data(token.with(RingOperation::Receive));
        self.push(&request);
    }

    fn stop_receiving(&mut self, token: SocketToken) {
        let Some(place) = self.place(token) else { return };
        if place.receiving && !place.cancelling {
            place.cancelling = true;
            self.cancel(token, RingOperation::Receive);
        }
    }

    fn cancel(&mut self, token: SocketToken, op: RingOperation) {
        let request = opcode::AsyncCancel::new(token.with(op)).build().user_data(token.with(RingOperation::Cancel));
        self.push(&request);
    }

    /// Returns the next bytes; `Ok(None)`: none yet. After all: an error, or an empty chunk at the end.
    pub fn take(&mut self, token: SocketToken) -> io::Result<Option<ReceivedChunk>> {
        let Some(place) = self.place(token) else { return Ok(None) };
        let chunk = place.unread.pop_front();
        if place.unread.is_empty() && !place.receiving {
            self.receive(token);
        }
        if chunk.is_some() {
            return Ok(chunk);
        }
        let Some(place) = self.place(token) else { return Ok(None) };
        match (place.end, place.failed) {
            (Some(ReceiveEnd::Closed), None) => Ok(Some(ReceivedChunk { buffer: Box::default(), start: 0, end: 0 })),
            (Some(ReceiveEnd::Failed(errno)), _) | (_, Some(errno)) => Err(io::Error::from_raw_os_error(errno)),
            (None, None) => Ok(None),
        }
    }

    pub fn put_back(&mut self, token: SocketToken, chunk: ReceivedChunk) {
        if let Some(place) = self.place(token) {
            place.unread.push_front(chunk);
        }
    }

    pub fn has_unread(&mut self, token: SocketToken) -> bool {
        self.place(token).is_some_and(|place| !place.unread.is_empty() || place.end.is_some() || place.failed.is_some())
    }

    /// True if all given to `send` is in the kernel's buffers, or sending failed.
    pub fn is_sent(&mut self, token: SocketToken) -> bool {
        self.place(token).is_none_or(|place| (place.next.is_none() && place.sending.is_none()) || place.failed.is_some())
    }

    pub fn flow(&mut self, token: SocketToken) -> SendProgress {
        let Some(place) = self.place(token) else { return SendProgress::default() };
        let has_failed = place.failed.is_some();
        let is_open = place.sending.is_some() || (place.next.is_some() && !has_failed);
        SendProgress { given: place.given, taken: place.taken, is_open, has_failed }
    }

    /// True if `send` takes a piece now; else `ready` reports when.
    pub fn can_send(&mut self, token: SocketToken) -> io::Result<bool> {
        let Some(place) = self.place(token) else { return Err(io::ErrorKind::NotConnected.into()) };
        if let Some(errno) = place.failed {
            return Err(io::Error::from_raw_os_error(errno));
        }
        let can = place.sending.is_none() && place.next.as_ref().is_none_or(|next| next.has_room());
        place.wants_write |= !can;
        Ok(can)
    }

    /// Makes `ready` report when all is sent.
    pub fn tell_when_sent(&mut self, token: SocketToken) {
        if let Some(place) = self.place(token) {
            place.wants_write = true;
        }
    }

    /// Sends a piece in the next turn. Call after `can_send`.
    pub fn send(&mut self, token: SocketToken, piece: SendPiece) {
        let spare = &mut self.spare;
        let home = self.places.get_mut(token.place as usize).filter(|home| home.turn == token.turn);
        let Some(place) = home.and_then(|home| home.place.as_mut()) else { return };
        place.given += piece.as_slice().len() as u64;
        match &mut place.next {
            Some(next) => next.push(piece),
            None => {
                let mut next = spare.pop().unwrap_or_default();
                next.push(piece);
                place.next = Some(next);
                self.dirty.push(token);
            }
        }
    }

    /// Makes `ready` report room, for callers that write directly.
    pub fn poll_writable(&mut self, token: SocketToken) {
        let Some(place) = self.place(token) else { return };
        if place.polling || place.fate != SocketFate::Stay {
            return;
        }
        place.polling = true;
        let request = opcode::PollAdd::new(types::Fd(place.fd), libc::POLLOUT as u32);
        let request = request.build().user_data(token.with(RingOperation::Writable));
        self.push(&request);
    }

    /// Pending bytes are tried once, other requests end.
    pub fn close(&mut self, token: SocketToken, host: &impl RingHost<Mark = M>) {
        self.part(token, SocketFate::Close, host);
    }

    /// As `close`, but ends the sending first: a close with unread bytes is a reset, at which the peer may lose what it has not read.
    pub fn end(&mut self, token: SocketToken, host: &impl RingHost<Mark = M>) {
        self.part(token, SocketFate::End, host);
    }

    /// `RingHost::released` reports the socket's end in the ring.
    pub fn release(&mut self, token: SocketToken, host: &impl RingHost<Mark = M>) {
        self.part(token, SocketFate::Release, host);
    }

    pub fn close_where(&mut self, is_over: impl Fn(&M) -> bool, host: &impl RingHost<Mark = M>) {
        for at in 0..self.places.len() {
            let home = &self.places[at];
            if home.place.as_ref().is_some_and(|place| is_over(&place.mark)) {
                self.close(SocketToken { place: at as u32, turn: home.turn }, host);
            }
        }
    }

    fn part(&mut self, token: SocketToken, fate: SocketFate, host: &impl RingHost<Mark = M>) {
        let Some(place) = self.place(token) else { return };
        if place.fate != SocketFate::Stay {
            return;
        }
        place.fate = fate;
        self.flush(host);
        self.stop_receiving(token);
        let Some(place) = self.place(token) else { return };
        let (sending, polling) = (place.sending.is_some(), place.polling);
        if sending {
            self.cancel(token, RingOperation::Send);
        }
        if polling {
            self.cancel(token, RingOperation::Writable);
        }
        self.settle(token, host);
    }

    /// Frees a place once the kernel has no request.
    fn settle(&mut self, token: SocketToken, host: &impl RingHost<Mark = M>) {
        if !self.place(token).is_some_and(|place| place.fate != SocketFate::Stay && !place.is_busy()) {
            return;
        }
        let home = &mut self.places[token.place as usize];
        let Some(mut gone) = home.place.take() else { return };
        // Old tokens must not reach the next socket here.
        home.turn = home.turn.wrapping_add(1);
        self.free.push(token.place);
        while let Some(chunk) = gone.unread.pop_front() {
            host.spent(SendBuffer::Buffer(chunk.buffer));
        }
        match gone.fate {
            SocketFate::Release => host.released(gone.mark),
            SocketFate::End => {
                // SAFETY: the descriptor is open as long as `gone`. An error means that the connection is over.
                unsafe { libc::shutdown(gone.fd, libc::SHUT_WR) };
            }
            SocketFate::Stay | SocketFate::Close => {}
        }
    }

    fn flush(&mut self, host: &impl RingHost<Mark = M>) {
        let mut dirty = std::mem::take(&mut self.dirty);
        for token in dirty.drain(..) {
            let Some(place) = self.place(token) else { continue };
            let Some(mut next) = place.next.take() else { continue };
            if place.failed.is_some() {
                self.recycle(next, host);
                continue;
            }
            let request = next.request(place.fd, token);
            place.sending = Some(next);
            self.push(&request);
        }
        self.dirty = dirty;
    }

    fn recycle(&mut self, mut outgoing: Box<VectoredSend>, host: &impl RingHost<Mark = M>) {
        for piece in outgoing.take_pieces() {
            host.spent(piece.bytes);
        }
        self.spare.push(outgoing);
    }

    /// True when the watched queue has events.
    pub fn turn(&mut self, wait: RoundWait, host: &impl RingHost<Mark = M>) -> io::Result<bool> {
        self.flush(host);
        if self.watch_due
            && let Some(fd) = self.watched
        {
            self.watch_due = false;
            let request = opcode::PollAdd::new(types::Fd(fd), libc::POLLIN as u32).build();
            self.push(&request.user_data(SocketToken::once(0).with(RingOperation::Watch)));
        }
        self.enter(wait)?;
        let mut completions = std::mem::take(&mut self.completions);
        completions.extend(self.uring.completion().map(|done| (done.user_data(), done.result(), done.flags())));
        self.streaming.note(&completions);
        let mut watched = false;
        for (user_data, result, flags) in completions.drain(..) {
            match SocketToken::split(user_data) {
                Some((token, RingOperation::Receive)) => self.received(token, result, flags, host),
                Some((token, RingOperation::Send)) => self.sent(token, result, host),
                Some((token, RingOperation::Accept)) => self.came(token, result, cqueue::more(flags), host),
                Some((token, RingOperation::Writable)) => self.writable(token, host),
                Some((_, RingOperation::Watch)) => {
                    self.watch_due = true;
                    watched = true;
                }
                Some((_, RingOperation::Alarm)) => self.alarms.went_off(),
                Some((_, RingOperation::Cancel)) | None => {}
            }
        }
        self.completions = completions;
        Ok(watched)
    }

    fn enter(&mut self, wait: RoundWait) -> io::Result<()> {
        let need = match wait {
            RoundWait::Until(until) => self.alarms.need(until, Instant::now),
            RoundWait::Not | RoundWait::Ever => AlarmStep::Nothing,
        };
        let entered = match (wait, need) {
            (RoundWait::Not, _) => {
                let due = self.uring.submission().len() as u32;
                // Deferred work is done only on request.
                const GETEVENTS: u32 = 1;
                // SAFETY: no argument is passed, and all that the requests point to is owned (see `push`).
                unsafe { self.uring.submitter().enter::<libc::sigset_t>(due, 0, GETEVENTS, None) }
            }
            (_, AlarmStep::OwnTimer(time)) => self.uring.submitter().submit_with_args(1, &SubmitArgs::new().timespec(&time)),
            (_, need) => {
                if let AlarmStep::Alarm(request) = need {
                    self.push(&request);
                }
                match self.streaming.wait_us().filter(|_| self.can_linger) {
                    Some(us) => self.uring.submitter().submit_with_args(MANY, &SubmitArgs::new().min_wait_usec(us)),
                    None => self.uring.submit_and_wait(1),
                }
            }
        };
        match entered {
            Ok(_) => Ok(()),
            Err(cause) => match cause.raw_os_error() {
                // Time is up, a signal came, or completions must be taken first.
                Some(libc::ETIME | libc::EINTR | libc::EBUSY | libc::EAGAIN) => Ok(()),
                _ => Err(cause),
            },
        }
    }

    fn received(&mut self, token: SocketToken, result: i32, flags: u32, host: &impl RingHost<Mark = M>) {
        let filled = cqueue::buffer_select(flags).and_then(|number| self.provided.swap(number, host.buffer()));
        let Some(place) = self.place(token) else { return };
        if !cqueue::more(flags) {
            place.receiving = false;
            place.cancelling = false;
        }
        match (result, filled) {
            (bytes @ 1.., Some(buffer)) => {
                let end = (bytes as usize).min(buffer.len());
                place.unread.push_back(ReceivedChunk { buffer, start: 0, end });
                host.ready(&place.mark, READ);
            }
            (_, Some(unused)) => host.spent(SendBuffer::Buffer(unused)),
            (_, None) => {}
        }
        match -result {
            ..0 | libc::ENOBUFS | libc::ECANCELED | libc::EINTR | libc::EAGAIN => {}
            errno => {
                place.end = Some(if errno == 0 { ReceiveEnd::Closed } else { ReceiveEnd::Failed(errno) });
                host.ready(&place.mark, READ | CLOSED);
            }
        }
        let unread = place.unread.len();
        if place.fate != SocketFate::Stay {
            return self.settle(token, host);
        }
        if unread >= UNREAD_MAX {
            self.stop_receiving(token);
        } else {
            self.receive(token);
        }
    }

    fn sent(&mut self, token: SocketToken, result: i32, host: &impl RingHost<Mark = M>) {
        let Some(place) = self.place(token) else { return };
        let Some(outgoing) = place.sending.take() else { return };
        place.taken += u64::try_from(result).unwrap_or(0);
        if result < 0 || (result as usize) < outgoing.total() {
            place.failed = Some(if result < 0 { -result } else { libc::EPIPE });
            host.ready(&place.mark, READ | WRITE | CLOSED);
        } else if std::mem::take(&mut place.wants_write) {
            host.ready(&place.mark, WRITE);
        }
        let stays = place.fate == SocketFate::Stay;
        self.recycle(outgoing, host);
        if !stays {
            self.settle(token, host);
        }
    }

    fn writable(&mut self, token: SocketToken, host: &impl RingHost<Mark = M>) {
        let Some(place) = self.place(token) else { return };
        place.polling = false;
        host.ready(&place.mark, WRITE);
        self.settle(token, host);
    }
}

impl<M> Drop for Ring<M> {
    /// Leaks the sent memory, which the kernel may read while the ring is closed.
    fn drop(&mut self) {
        for place in self.places.iter_mut().filter_map(|home| home.place.as_mut()) {
            std::mem::forget(place.sending.take());
        }
    }
}
