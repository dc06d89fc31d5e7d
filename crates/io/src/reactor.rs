//! One thread's event loop: sockets become ready, tasks run, timers fire.
//!
//! No general runtime, because system calls and wake-ups dominate a statement's cost (docs/design/event-loop.md). A socket knows
//! its task by number: a wake-up is a push to a queue, without wakers, reference counts or channels.
//!
//! Wake-ups may be spurious: a task checks its condition after each `parked`.
//!
//! With io_uring, one system call sends a round's bytes and brings arrivals of the connections in the ring (`weir_ring`). The
//! waker and connection attempts stay with epoll, which the ring watches. Without io_uring all is epoll.

use crate::buffers::BufferPool;
use crate::clock::RoundClock;
pub use mio::Interest;
use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::future::Future;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};
pub use weir_ring::{CLOSED, READ, WRITE};
use weir_ring::{ReceivedChunk, Ring, RingHost, RoundWait, SendBuffer, SocketToken};

pub type TaskId = u32;

/// No task: events are only recorded.
pub const NO_TASK: TaskId = u32::MAX;

const WAKE: mio::Token = mio::Token(usize::MAX);

const EVENTS_MAX: usize = 512;

/// Passes before the kernel is asked: tasks cannot starve sockets, and a task that starts another costs no system call.
const PASSES_MAX: u32 = 3;

/// Only the loop's thread writes it; other threads may read an idle connection's.
#[derive(Debug)]
pub struct SocketSlot {
    task: AtomicU32,
    ready: AtomicU8,
    /// True once its ring has released the socket.
    released: AtomicBool,
}

impl SocketSlot {
    #[inline]
    fn new(task: TaskId) -> SocketSlot {
        SocketSlot { task: AtomicU32::new(task), ready: AtomicU8::new(WRITE), released: AtomicBool::new(false) }
    }

    #[inline]
    pub fn is_released(&self) -> bool {
        self.released.load(Ordering::Acquire)
    }

    #[inline]
    pub fn ready(&self) -> u8 {
        self.ready.load(Ordering::Relaxed)
    }
    #[inline]
    pub fn clear(&self, bits: u8) {
        self.ready.store(self.ready() & !bits, Ordering::Relaxed);
    }
    /// Records readiness that no event will report.
    #[inline]
    pub fn raise(&self, bits: u8) {
        self.ready.store(self.ready() | bits, Ordering::Relaxed);
    }
    #[inline]
    pub fn set_task(&self, task: TaskId) {
        self.task.store(task, Ordering::Relaxed);
    }
}

#[derive(Clone, Copy, Debug)]
pub enum EventLoopPlace {
    Ring(SocketToken),
    Epoll(u32),
    Nowhere,
}

/// Longest wait of a round, in µs of the clock.
#[derive(Clone, Copy)]
enum RoundPause {
    No,
    Until(u64),
    Ever,
}

struct ReactorTask {
    future: Option<Pin<Box<dyn Future<Output = ()>>>>,
    queued: bool,
    armed: Option<u64>,
}

pub struct Reactor {
    poll: RefCell<(mio::Poll, mio::Events)>,
    ring: Option<RefCell<Ring<Arc<SocketSlot>>>>,
    pub buffers: Rc<BufferPool>,
    registry: mio::Registry,
    slots: RefCell<Vec<Option<Arc<SocketSlot>>>>,
    free_slots: RefCell<Vec<usize>>,
    tasks: RefCell<Vec<ReactorTask>>,
    free_tasks: RefCell<Vec<TaskId>>,
    runnable: RefCell<VecDeque<TaskId>>,
    timers: RefCell<BinaryHeap<Reverse<(u64, TaskId)>>>,
    current: Cell<TaskId>,
    clock: Rc<RoundClock>,
    woken: Cell<bool>,
    panicked: RefCell<Vec<TaskId>>,
}

impl Reactor {
    /// For a thread that creates the loops of others.
    #[inline]
    pub fn parts() -> io::Result<(mio::Poll, mio::Waker)> {
        let poll = mio::Poll::new()?;
        let waker = mio::Waker::new(poll.registry(), WAKE)?;
        Ok((poll, waker))
    }

    /// To be called on the loop's thread. Error: also without a requested ring.
    pub fn new(poll: mio::Poll, buffers: BufferPool, with_ring: bool, origin: Instant) -> io::Result<Reactor> {
        let registry = poll.registry().try_clone()?;
        let mut reactor = Reactor {
            poll: RefCell::new((poll, mio::Events::with_capacity(EVENTS_MAX))),
            ring: None,
            buffers: Rc::new(buffers),
            registry,
            slots: RefCell::default(),
            free_slots: RefCell::default(),
            tasks: RefCell::default(),
            free_tasks: RefCell::default(),
            runnable: RefCell::default(),
            timers: RefCell::default(),
            current: Cell::new(NO_TASK),
            clock: Rc::new(RoundClock::new(origin)),
            woken: Cell::new(false),
            panicked: RefCell::default(),
        };
        if with_ring {
            reactor.begin_ring()?;
        }
        Ok(reactor)
    }

    /// Before the loop serves. Error: goes on without a ring.
    pub fn begin_ring(&mut self) -> io::Result<()> {
        let mut ring = Ring::new(|| self.buffers.take_bulk())?;
        ring.watch(&self.poll.borrow().0);
        self.ring = Some(RefCell::new(ring));
        Ok(())
    }

    /// Before the loop serves: all loops must be of one kind, as sockets move between them.
    pub fn end_ring(&mut self) {
        self.ring = None;
    }

    #[inline]
    pub fn registry(&self) -> &mio::Registry {
        &self.registry
    }

    /// Once a second.
    pub fn align_clock(&self) {
        self.clock.align();
    }

    #[inline]
    pub(crate) fn note_read(&self) {
        self.clock.note_read();
    }

    #[inline]
    pub fn now(&self) -> Instant {
        self.clock.now()
    }

    pub fn clock(&self) -> Rc<RoundClock> {
        self.clock.clone()
    }

    #[inline]
    pub fn current_task(&self) -> TaskId {
        self.current.get()
    }

    pub fn spawn(&self, future: impl Future<Output = ()> + 'static) -> TaskId {
        let task = ReactorTask { future: Some(Box::pin(future)), queued: false, armed: None };
        let mut tasks = self.tasks.borrow_mut();
        let id = match self.free_tasks.borrow_mut().pop() {
            Some(id) => {
                tasks[id as usize] = task;
                id
            }
            None => {
                tasks.push(task);
                (tasks.len() - 1) as TaskId
            }
        };
        drop(tasks);
        self.wake(id);
        id
    }

    /// Wakes a task. Unknown and ended tasks are ignored.
    #[inline]
    pub fn wake(&self, id: TaskId) {
        let mut tasks = self.tasks.borrow_mut();
        if let Some(task) = tasks.get_mut(id as usize)
            && !task.queued
        {
            task.queued = true;
            self.runnable.borrow_mut().push_back(id);
        }
    }

    /// Wakes the current task at `at` or before. Call before every wait: a task has one timer, so waits that end early leave
    /// nothing behind.
    #[inline]
    pub fn wake_at(&self, at: Instant) {
        let (id, at) = (self.current.get(), self.clock.us_at(at));
        let mut tasks = self.tasks.borrow_mut();
        let Some(task) = tasks.get_mut(id as usize) else { return };
        if task.armed.is_none_or(|armed| at < armed) {
            task.armed = Some(at);
            self.timers.borrow_mut().push(Reverse((at, id)));
        }
    }

    /// Cancel safe.
    pub async fn sleep_until(&self, at: Instant) {
        while self.now() < at {
            self.wake_at(at);
            parked().await;
        }
    }

    pub async fn sleep(&self, time: Duration) {
        self.sleep_until(Instant::now() + time).await;
    }

    /// Watches a socket for the current task. Assumes writability until a write fails.
    #[inline]
    pub fn register(
        &self,
        source: &mut dyn mio::event::Source,
        interest: Interest,
    ) -> io::Result<(Arc<SocketSlot>, EventLoopPlace)> {
        let place = match self.free_slots.borrow_mut().pop() {
            Some(place) => place,
            None => {
                self.slots.borrow_mut().push(None);
                self.slots.borrow().len() - 1
            }
        };
        let slot = Arc::new(SocketSlot::new(self.current.get()));
        self.slots.borrow_mut()[place] = Some(slot.clone());
        self.registry.register(source, mio::Token(place), interest)?;
        Ok((slot, EventLoopPlace::Epoll(place as u32)))
    }

    /// Changes epoll's interest. Present readiness is reported, too.
    pub fn watch_for(&self, stream: &impl AsRawFd, place: u32, interest: Interest) -> io::Result<()> {
        self.registry.reregister(&mut mio::unix::SourceFd(&stream.as_raw_fd()), mio::Token(place as usize), interest)
    }

    /// Frees places of sockets closed or moved. Called now and then, so that dropping a socket closes it. Late events cause
    /// spurious wake-ups.
    #[inline]
    pub fn sweep(&self) {
        let mut free = self.free_slots.borrow_mut();
        for (token, place) in self.slots.borrow_mut().iter_mut().enumerate() {
            if place.as_ref().is_some_and(|slot| Arc::strong_count(slot) == 1) {
                *place = None;
                free.push(token);
            }
        }
        drop(free);
        if let Some(ring) = &self.ring {
            ring.borrow_mut().close_where(|slot| Arc::strong_count(slot) == 1, self);
        }
    }

    #[inline]
    pub fn has_ring(&self) -> bool {
        self.ring.is_some()
    }

    /// Watches a connected socket by the ring (token) or epoll.
    #[inline]
    pub fn receive<S>(&self, stream: Arc<S>, interest: Interest) -> io::Result<(Arc<SocketSlot>, EventLoopPlace)>
    where
        S: AsFd + Send + Sync + 'static,
    {
        let Some(ring) = &self.ring else {
            let fd = stream.as_fd().as_raw_fd();
            return self.register(&mut mio::unix::SourceFd(&fd), interest);
        };
        let slot = Arc::new(SocketSlot::new(self.current.get()));
        let token = ring.borrow_mut().add(stream, slot.clone());
        Ok((slot, EventLoopPlace::Ring(token)))
    }

    /// Accepts by the ring (token), or on epoll's readiness.
    #[inline]
    pub fn listen<S: AsFd + Send + Sync + 'static>(&self, door: Arc<S>) -> io::Result<(Arc<SocketSlot>, Option<SocketToken>)> {
        // The ring waits only for blocking sockets.
        rustix::io::ioctl_fionbio(&door, !self.has_ring())?;
        let Some(ring) = &self.ring else {
            let fd = door.as_fd().as_raw_fd();
            return Ok((self.register(&mut mio::unix::SourceFd(&fd), Interest::READABLE)?.0, None));
        };
        let slot = Arc::new(SocketSlot::new(self.current.get()));
        let token = ring.borrow_mut().listen(door, slot.clone());
        Ok((slot, Some(token)))
    }

    /// Makes the current task check a socket again without a new event.
    #[inline]
    pub fn retry(&self, slot: &SocketSlot) {
        self.raise(slot, READ);
    }

    #[inline]
    pub fn accepted(&self, door: SocketToken, slot: &SocketSlot) -> io::Result<Option<OwnedFd>> {
        self.with_ring(Ok(None), |ring| {
            let came = ring.accepted(door);
            if !ring.has_callers(door) {
                slot.clear(READ);
            }
            came
        })
    }

    #[inline]
    pub fn with_ring<T>(&self, without: T, ask: impl FnOnce(&mut Ring<Arc<SocketSlot>>) -> T) -> T {
        match &self.ring {
            Some(ring) => ask(&mut ring.borrow_mut()),
            None => without,
        }
    }

    #[inline]
    pub fn take(&self, token: SocketToken, slot: &SocketSlot) -> io::Result<Option<ReceivedChunk>> {
        self.with_ring(Ok(None), |ring| {
            let taken = ring.take(token);
            if !ring.has_unread(token) {
                slot.clear(READ);
            }
            taken
        })
    }

    #[inline]
    pub fn put_back(&self, token: SocketToken, slot: &SocketSlot, chunk: ReceivedChunk) {
        slot.ready.store(slot.ready() | READ, Ordering::Relaxed);
        self.with_ring((), |ring| ring.put_back(token, chunk));
    }

    /// Closes a socket of the ring; pending bytes are tried once.
    #[inline]
    pub fn close(&self, token: SocketToken) {
        self.with_ring((), |ring| ring.close(token, self));
    }

    /// As `close`, but ends the sending before.
    pub fn end(&self, token: SocketToken) {
        self.with_ring((), |ring| ring.end(token, self));
    }

    /// Only a closed epoll could refuse.
    #[inline]
    pub fn forget(&self, stream: &impl AsRawFd, slot: &SocketSlot) {
        let _ = self.registry.deregister(&mut mio::unix::SourceFd(&stream.as_raw_fd()));
        slot.released.store(true, Ordering::Release);
    }

    #[inline]
    pub fn release(&self, token: SocketToken) {
        self.with_ring((), |ring| ring.release(token, self));
    }

    /// Runs ready tasks, then waits for events, at most until the next timer.
    ///
    /// True when another thread used the waker.
    #[inline]
    pub fn turn(&self) -> io::Result<bool> {
        self.run_tasks();
        // After a panic the round must not wait.
        let is_idle = self.runnable.borrow().is_empty() && self.panicked.borrow().is_empty();
        let pause = if is_idle { self.until_next_timer() } else { RoundPause::No };
        self.collect(pause)?;
        self.fire_timers();
        Ok(self.woken.replace(false))
    }

    #[inline]
    pub fn last_turn(&self) -> io::Result<()> {
        self.collect(RoundPause::No)
    }

    #[inline]
    fn run_tasks(&self) {
        for _ in 0..PASSES_MAX {
            let round = self.runnable.borrow().len();
            for _ in 0..round {
                let Some(id) = self.runnable.borrow_mut().pop_front() else { return };
                self.run_task(id);
            }
        }
    }

    fn run_task(&self, id: TaskId) {
        let future = {
            let mut tasks = self.tasks.borrow_mut();
            let Some(task) = tasks.get_mut(id as usize) else { return };
            task.queued = false;
            task.future.take()
        };
        let Some(mut future) = future else { return };
        self.current.set(id);
        // A panic must not end other sessions: the task is dropped, and its sockets close. The panic hook has logged it.
        let poll = catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(&mut Context::from_waker(Waker::noop()))));
        self.current.set(NO_TASK);
        match poll {
            Ok(Poll::Pending) => self.tasks.borrow_mut()[id as usize].future = Some(future),
            Ok(Poll::Ready(())) => {
                drop(future);
                self.free_tasks.borrow_mut().push(id);
            }
            Err(_) => {
                drop(future);
                // Reserved until then: the cleanup must not meet another task.
                self.panicked.borrow_mut().push(id);
            }
        }
    }

    /// Returns the tasks that panicked since the last call.
    #[inline]
    pub fn take_panicked(&self) -> Vec<TaskId> {
        self.panicked.take()
    }

    #[inline]
    fn until_next_timer(&self) -> RoundPause {
        let mut timers = self.timers.borrow_mut();
        let tasks = self.tasks.borrow();
        // Timers of ended tasks would wake the loop in vain.
        while let Some(Reverse((at, id))) = timers.peek() {
            if tasks.get(*id as usize).is_some_and(|task| task.armed == Some(*at)) {
                return RoundPause::Until(*at);
            }
            timers.pop();
        }
        RoundPause::Ever
    }

    #[inline]
    fn collect(&self, pause: RoundPause) -> io::Result<()> {
        let Some(ring) = &self.ring else { return self.collect_epoll(pause) };
        let wait = match pause {
            RoundPause::No => RoundWait::Not,
            RoundPause::Until(us) => RoundWait::Until(self.clock.at(us)),
            RoundPause::Ever => RoundWait::Ever,
        };
        if ring.borrow_mut().turn(wait, self)? {
            self.collect_epoll(RoundPause::No)?;
        }
        self.clock.tick();
        Ok(())
    }

    fn collect_epoll(&self, pause: RoundPause) -> io::Result<()> {
        let (poll, events) = &mut *self.poll.borrow_mut();
        let mut timeout = match pause {
            RoundPause::No => Some(Duration::ZERO),
            RoundPause::Until(us) => Some(Duration::from_micros(us.saturating_sub(self.clock.now_us()))),
            RoundPause::Ever => None,
        };
        loop {
            match poll.poll(events, timeout) {
                Err(cause) if cause.kind() == io::ErrorKind::Interrupted => return Ok(()),
                other => other?,
            }
            self.clock.tick();
            let mut seen = 0;
            for event in events.iter() {
                self.note(event);
                seen += 1;
            }
            // The ring reports new events only.
            if seen < EVENTS_MAX {
                return Ok(());
            }
            timeout = Some(Duration::ZERO);
        }
    }

    fn note(&self, event: &mio::event::Event) {
        if event.token() == WAKE {
            self.woken.set(true);
            return;
        }
        let slots = self.slots.borrow();
        let Some(Some(slot)) = slots.get(event.token().0) else { return };
        let mut bits = 0;
        if event.is_readable() {
            bits |= READ;
        }
        if event.is_writable() {
            bits |= WRITE;
        }
        if event.is_read_closed() || event.is_error() {
            bits |= READ | CLOSED;
        }
        self.raise(slot, bits);
    }

    #[inline]
    fn raise(&self, slot: &SocketSlot, bits: u8) {
        slot.ready.store(slot.ready() | bits, Ordering::Relaxed);
        let task = slot.task.load(Ordering::Relaxed);
        if task != NO_TASK {
            self.wake(task);
        }
    }

    fn fire_timers(&self) {
        loop {
            let (at, id) = match self.timers.borrow().peek() {
                Some(Reverse((at, id))) if *at <= self.clock.now_us() => (*at, *id),
                _ => return,
            };
            self.timers.borrow_mut().pop();
            let is_armed = match self.tasks.borrow_mut().get_mut(id as usize) {
                // A superseded timer belongs to a wait that is over.
                Some(task) if task.armed == Some(at) => task.armed.take().is_some(),
                Some(_) | None => false,
            };
            if is_armed {
                self.wake(id);
            }
        }
    }
}

impl RingHost for Reactor {
    type Mark = Arc<SocketSlot>;
    #[inline]
    fn buffer(&self) -> Box<[u8]> {
        self.buffers.take_bulk()
    }
    #[inline]
    fn spent(&self, bytes: SendBuffer) {
        self.buffers.put(bytes);
    }
    #[inline]
    fn ready(&self, slot: &Arc<SocketSlot>, bits: u8) {
        self.raise(slot, bits);
    }
    #[inline]
    fn released(&self, slot: Arc<SocketSlot>) {
        slot.released.store(true, Ordering::Release);
        self.raise(&slot, 0);
    }
}

/// Yields until the task is woken, or spuriously earlier. Cancel safe.
pub fn parked() -> ParkFuture {
    ParkFuture { yielded: false }
}

pub struct ParkFuture {
    yielded: bool,
}

impl Future for ParkFuture {
    type Output = ();
    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        if self.yielded {
            return Poll::Ready(());
        }
        self.yielded = true;
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn tasks_sleep_and_wake_one_another() {
        let (poll, _waker) = Reactor::parts().unwrap();
        let reactor = Rc::new(Reactor::new(poll, BufferPool::new(4096), true, Instant::now()).unwrap());
        let seen = Rc::new(RefCell::new(Vec::new()));
        let (r, s) = (reactor.clone(), seen.clone());
        let waiting = reactor.spawn(async move {
            while s.borrow().is_empty() {
                parked().await;
            }
            s.borrow_mut().push("woken");
            drop(r);
        });
        let (r, s) = (reactor.clone(), seen.clone());
        reactor.spawn(async move {
            r.sleep(Duration::from_millis(5)).await;
            s.borrow_mut().push("slept");
            r.wake(waiting);
        });
        let ticking = reactor.clone();
        // The loop would wait for events for ever once there is nothing left to do.
        reactor.spawn(async move {
            loop {
                ticking.sleep(Duration::from_millis(1)).await;
            }
        });
        while seen.borrow().len() < 2 {
            reactor.turn().unwrap();
        }
        assert_eq!(*seen.borrow(), ["slept", "woken"]);
    }

    /// Tasks that the events which are here wake.
    fn woken(reactor: &Reactor) -> usize {
        reactor.last_turn().unwrap();
        let woken = reactor.runnable.borrow().len();
        reactor.run_tasks();
        woken
    }

    #[test]
    fn a_peer_that_reads_from_a_unix_socket_wakes_nobody_unless_the_socket_was_full() {
        let (poll, _waker) = Reactor::parts().unwrap();
        let reactor = Rc::new(Reactor::new(poll, BufferPool::new(4096), false, Instant::now()).unwrap());
        let (ours, mut peer) = std::os::unix::net::UnixStream::pair().unwrap();
        peer.set_nonblocking(true).unwrap();
        let socket = crate::socket::Socket::accepted_unix(&reactor, ours).unwrap();
        socket.set_task(reactor.spawn(async {
            loop {
                parked().await;
            }
        }));
        reactor.run_tasks();
        let mut read = |most: usize| {
            let (mut bytes, mut buffer) = (0, vec![0; most]);
            while let Ok(more @ 1..) = peer.read(&mut buffer) {
                bytes += more;
            }
            bytes
        };
        let mut check_a_peer = || {
            assert_eq!(socket.try_write(&reactor, b"question", &[]).unwrap(), 8);
            assert_eq!((read(8), woken(&reactor)), (8, 0));
            // Full: in the middle of a message, and with nothing of one.
            let large = vec![0; 4 << 20];
            let written = socket.try_write(&reactor, &large, &[]).unwrap();
            assert!(written < large.len(), "{written}");
            assert_eq!((woken(&reactor), read(1 << 20), woken(&reactor)), (0, written, 1));
            let mut written = socket.try_write(&reactor, &large, &[]).unwrap();
            while let more @ 1.. = socket.try_write(&reactor, &large, &[]).unwrap() {
                written += more;
            }
            assert_eq!((woken(&reactor), read(1 << 20), woken(&reactor)), (0, written, 1));
        };
        check_a_peer();
        // It was full twice, and is as before.
        check_a_peer();
    }
}
