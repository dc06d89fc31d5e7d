//! The ring over pairs of unix sockets: arrivals, sent bytes, and ends. Each wait has a limit and a condition.
//!
//! A kernel without io_uring has nothing to test; the tests say so and pass.

#![allow(clippy::unwrap_used)] // a failed step of a test is the test's failure

use std::cell::{Cell, RefCell};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};
use weir_ring::{CLOSED, READ, Ring, RingHost, RoundWait, SendBuffer, SendPiece, SendProgress, SocketToken, WRITE};

const BUFFER_BYTES: usize = 4096;

#[derive(Default)]
struct Loop {
    ready: RefCell<Vec<(u32, u8)>>,
    released: RefCell<Vec<u32>>,
    /// Buffers given out and not come back.
    out: Cell<isize>,
}

impl RingHost for Loop {
    type Mark = u32;
    fn buffer(&self) -> Box<[u8]> {
        self.out.set(self.out.get() + 1);
        vec![0; BUFFER_BYTES].into_boxed_slice()
    }
    fn spent(&self, _: SendBuffer) {
        self.out.set(self.out.get() - 1);
    }
    fn ready(&self, mark: &u32, bits: u8) {
        self.ready.borrow_mut().push((*mark, bits));
    }
    fn released(&self, mark: u32) {
        self.released.borrow_mut().push(mark);
    }
}

struct Bed {
    ring: Ring<u32>,
    host: Loop,
}

impl Bed {
    fn new() -> Option<Bed> {
        if let Err(cause) = weir_ring::available() {
            eprintln!("no io_uring here: {cause}");
            return None;
        }
        let ring = Ring::new(|| vec![0; BUFFER_BYTES].into_boxed_slice()).unwrap();
        Some(Bed { ring, host: Loop::default() })
    }

    /// A socket in the ring, and its peer.
    fn pair(&mut self, mark: u32) -> (SocketToken, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        theirs.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        (self.ring.add(Arc::new(ours), mark), theirs)
    }

    fn turn(&mut self) {
        self.ring.turn(RoundWait::Until(Instant::now() + Duration::from_millis(5)), &self.host).unwrap();
    }

    fn turn_until(&mut self, what: &str, mut done: impl FnMut(&mut Bed) -> bool) {
        let end = Instant::now() + Duration::from_secs(20);
        while !done(self) {
            assert!(Instant::now() < end, "waited in vain for {what}");
            self.turn();
        }
    }

    fn read(&mut self, token: SocketToken, bytes: usize) -> Vec<u8> {
        let mut all = Vec::new();
        self.turn_until("bytes", |bed| {
            while let Ok(Some(chunk)) = bed.ring.take(token) {
                all.extend_from_slice(&chunk.buffer[chunk.start..chunk.end]);
                bed.host.spent(SendBuffer::Buffer(chunk.buffer));
            }
            all.len() >= bytes
        });
        all
    }

    fn was_told(&self, mark: u32, bit: u8) -> bool {
        self.host.ready.borrow().iter().any(|(m, bits)| *m == mark && bits & bit != 0)
    }
}

fn vector(bytes: &[u8]) -> SendPiece {
    SendPiece { start: 0, end: bytes.len(), bytes: SendBuffer::Vector(bytes.to_vec()) }
}

#[test]
fn what_arrives_is_told_and_taken_in_order() {
    let Some(mut bed) = Bed::new() else { return };
    let (token, mut peer) = bed.pair(7);
    assert!(bed.ring.take(token).unwrap().is_none());
    peer.write_all(b"one").unwrap();
    assert_eq!(bed.read(token, 3), b"one");
    assert!(bed.was_told(7, READ) && !bed.was_told(7, CLOSED));
    peer.write_all(b"two").unwrap();
    assert_eq!(bed.read(token, 3), b"two");
    assert!(!bed.ring.has_unread(token));
}

#[test]
fn a_part_put_back_comes_next() {
    let Some(mut bed) = Bed::new() else { return };
    let (token, mut peer) = bed.pair(1);
    peer.write_all(b"onetwo").unwrap();
    bed.turn_until("bytes", |bed| bed.ring.has_unread(token));
    let mut chunk = bed.ring.take(token).unwrap().unwrap();
    chunk.start += 3;
    bed.ring.put_back(token, chunk);
    assert_eq!(bed.read(token, 3), b"two");
}

#[test]
fn the_end_comes_after_all_bytes_and_stays() {
    let Some(mut bed) = Bed::new() else { return };
    let (token, mut peer) = bed.pair(1);
    peer.write_all(b"last").unwrap();
    drop(peer);
    bed.turn_until("the end", |bed| bed.was_told(1, CLOSED));
    let chunk = bed.ring.take(token).unwrap().unwrap();
    assert_eq!(&chunk.buffer[chunk.start..chunk.end], b"last");
    for _ in 0..2 {
        let end = bed.ring.take(token).unwrap().unwrap();
        assert_eq!(end.start, end.end);
    }
}

#[test]
fn a_socket_nobody_reads_is_not_received_from_without_end() {
    let Some(mut bed) = Bed::new() else { return };
    let (token, mut peer) = bed.pair(1);
    let sent: Vec<u8> = (0..4_000_000u32).map(|n| (n % 251) as u8).collect();
    let copy = sent.clone();
    let writer = std::thread::spawn(move || peer.write_all(&copy).map(|()| peer));
    bed.turn_until("bytes", |bed| bed.ring.has_unread(token));
    // It goes on until the socket is full and the ring has stopped: then nothing moves any more.
    let mut last = (-1, 0);
    bed.turn_until("the stop", |bed| {
        let now = bed.host.out.get();
        last = if last.0 == now { (now, last.1 + 1) } else { (now, 0) };
        last.1 > 20
    });
    assert!(!writer.is_finished() && bed.host.out.get() * (BUFFER_BYTES as isize) < 1_000_000, "{}", bed.host.out.get());
    assert!(bed.read(token, sent.len()) == sent);
    let _peer = writer.join().unwrap().unwrap();
    // And after it was stopped it receives again.
    assert!(bed.host.out.get() >= 0);
}

#[test]
fn many_sockets_at_once_lose_nothing_though_buffers_run_out() {
    let Some(mut bed) = Bed::new() else { return };
    let mut pairs: Vec<_> = (0..400).map(|mark| bed.pair(mark)).collect();
    for (at, (_, peer)) in pairs.iter_mut().enumerate() {
        peer.write_all(format!("hello {at:04}").as_bytes()).unwrap();
    }
    for (at, (token, _)) in pairs.iter().enumerate() {
        assert_eq!(bed.read(*token, 10), format!("hello {at:04}").as_bytes());
    }
}

#[test]
fn pieces_leave_in_order_with_the_next_turn() {
    let Some(mut bed) = Bed::new() else { return };
    let (token, mut peer) = bed.pair(1);
    for piece in [&b"a"[..], b"bc", b"def"] {
        assert!(bed.ring.can_send(token).unwrap());
        bed.ring.send(token, vector(piece));
    }
    let buffer = SendPiece { bytes: SendBuffer::Buffer(b"..ghij..".to_vec().into_boxed_slice()), start: 2, end: 6 };
    bed.ring.send(token, buffer);
    assert!(!bed.ring.can_send(token).unwrap(), "four pieces are all that one call takes");
    assert!(!bed.ring.is_sent(token));
    bed.turn_until("room", |bed| bed.was_told(1, WRITE));
    assert!(bed.ring.is_sent(token) && bed.host.out.get() == -4);
    let mut got = [0; 10];
    peer.read_exact(&mut got).unwrap();
    assert_eq!(&got, b"abcdefghij");
}

#[test]
fn a_full_socket_takes_the_rest_when_its_peer_reads() {
    let Some(mut bed) = Bed::new() else { return };
    let (token, mut peer) = bed.pair(1);
    let sent = vec![b'x'; 3_000_000];
    bed.ring.send(token, vector(&sent));
    for _ in 0..5 {
        bed.turn();
    }
    assert!(!bed.ring.is_sent(token) && !bed.ring.can_send(token).unwrap());
    let reader = std::thread::spawn(move || {
        let mut got = vec![0; 3_000_000];
        peer.read_exact(&mut got).map(|()| got)
    });
    bed.turn_until("all to be sent", |bed| bed.ring.is_sent(token));
    assert!(bed.was_told(1, WRITE));
    assert_eq!(reader.join().unwrap().unwrap(), sent);
}

#[test]
fn sending_to_a_closed_socket_is_an_error_of_that_socket() {
    let Some(mut bed) = Bed::new() else { return };
    let (token, peer) = bed.pair(1);
    drop(peer);
    bed.ring.send(token, vector(b"late"));
    bed.turn_until("the failure", |bed| bed.ring.can_send(token).is_err());
    assert!(bed.ring.is_sent(token) && bed.was_told(1, CLOSED));
    let (other, mut peer) = bed.pair(2);
    bed.ring.send(other, vector(b"fine"));
    bed.turn();
    let mut got = [0; 4];
    peer.read_exact(&mut got).unwrap();
    assert!(bed.ring.flow(token).has_failed && !bed.ring.flow(other).has_failed);
}

#[test]
fn the_bytes_that_the_kernel_took_are_counted_apart_from_those_given() {
    let Some(mut bed) = Bed::new() else { return };
    let (token, peer) = bed.pair(1);
    bed.ring.send(token, vector(b"first"));
    assert_eq!(bed.ring.flow(token), SendProgress { given: 5, taken: 0, is_open: true, has_failed: false });
    bed.turn_until("the first to leave", |bed| bed.ring.is_sent(token));
    assert_eq!(bed.ring.flow(token), SendProgress { given: 5, taken: 5, is_open: false, has_failed: false });
    drop(peer);
    bed.ring.send(token, vector(b"second"));
    bed.turn_until("the failure", |bed| bed.ring.flow(token).has_failed);
    let flow = bed.ring.flow(token);
    assert_eq!((flow.given, flow.taken, flow.is_open), (11, 5, false), "nothing of the second left");
}

#[test]
fn a_closed_socket_sends_what_it_was_given_and_its_peer_sees_the_end() {
    let Some(mut bed) = Bed::new() else { return };
    let (token, mut peer) = bed.pair(1);
    bed.turn();
    bed.ring.send(token, vector(b"bye"));
    bed.ring.close(token, &bed.host);
    bed.turn();
    bed.turn();
    let mut got = Vec::new();
    peer.read_to_end(&mut got).unwrap();
    assert_eq!(got, b"bye");
    assert!(bed.host.released.borrow().is_empty());
}

#[test]
fn a_closed_socket_does_not_wait_for_a_peer_that_never_reads() {
    let Some(mut bed) = Bed::new() else { return };
    let (token, mut peer) = bed.pair(1);
    bed.ring.send(token, vector(&vec![b'x'; 3_000_000]));
    bed.turn();
    bed.ring.close(token, &bed.host);
    bed.turn_until("its memory", |bed| bed.host.out.get() == -1);
    bed.turn();
    let mut got = Vec::new();
    peer.read_to_end(&mut got).unwrap();
    assert!(!got.is_empty() && got.len() < 3_000_000);
}

#[test]
fn a_released_socket_lives_on_in_another_ring() {
    let Some(mut bed) = Bed::new() else { return };
    let (ours, mut peer) = UnixStream::pair().unwrap();
    let ours = Arc::new(ours);
    let token = bed.ring.add(ours.clone(), 5);
    bed.turn();
    bed.ring.release(token, &bed.host);
    bed.turn_until("the release", |bed| *bed.host.released.borrow() == [5]);
    let Some(mut second) = Bed::new() else { return };
    let token = second.ring.add(ours, 6);
    peer.write_all(b"moved").unwrap();
    assert_eq!(second.read(token, 5), b"moved");
    assert!(!bed.was_told(5, READ));
}

/// A worker that could not let go of a socket in time may be told to close it when another socket has its place.
#[test]
fn a_token_of_a_socket_that_has_left_does_not_reach_the_next_one_in_its_place() {
    let Some(mut bed) = Bed::new() else { return };
    let (old, _its_peer) = bed.pair(1);
    bed.ring.release(old, &bed.host);
    bed.turn_until("the release", |bed| bed.host.released.borrow().contains(&1));
    let (new, mut peer) = bed.pair(2);
    assert_eq!(new.place, old.place, "the place is used again");
    assert!(bed.ring.can_send(old).is_err());
    bed.ring.send(old, vector(b"not for this peer"));
    bed.ring.close(old, &bed.host);
    peer.write_all(b"still here").unwrap();
    assert!(bed.ring.take(old).unwrap().is_none());
    assert_eq!(bed.read(new, 10), b"still here");
    assert!(bed.ring.can_send(new).unwrap());
    bed.ring.send(new, vector(b"answer"));
    let mut got = [0; 6];
    bed.turn_until("the sending", |bed| bed.ring.is_sent(new));
    peer.read_exact(&mut got).unwrap();
    assert_eq!(&got, b"answer");
}

#[test]
fn places_are_used_again() {
    let Some(mut bed) = Bed::new() else { return };
    let (first, _peer) = bed.pair(1);
    bed.turn();
    bed.ring.close_where(|mark| *mark == 1, &bed.host);
    bed.turn();
    bed.turn();
    let (second, mut peer) = bed.pair(2);
    assert_eq!(first.place, second.place);
    peer.write_all(b"x").unwrap();
    assert_eq!(bed.read(second, 1), b"x");
}

#[test]
fn another_event_queue_is_heard_of() {
    let Some(mut bed) = Bed::new() else { return };
    let (watched, mut peer) = UnixStream::pair().unwrap();
    bed.ring.watch(&watched);
    assert!(!bed.ring.turn(RoundWait::Until(Instant::now() + Duration::from_millis(1)), &bed.host).unwrap());
    for _ in 0..2 {
        peer.write_all(b"x").unwrap();
        let mut heard = false;
        bed.turn_until("the queue", |bed| {
            heard |= bed.ring.turn(RoundWait::Until(Instant::now() + Duration::from_millis(5)), &bed.host).unwrap();
            heard
        });
        (&watched).read_exact(&mut [0]).unwrap();
    }
}

#[test]
fn callers_come_in_until_the_door_is_shut() {
    let Some(mut bed) = Bed::new() else { return };
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let door = bed.ring.listen(Arc::new(listener), 3);
    for _ in 0..2 {
        let mut caller = std::net::TcpStream::connect(address).unwrap();
        bed.turn_until("the caller", |bed| bed.ring.has_callers(door));
        assert!(bed.was_told(3, READ));
        let ours = bed.ring.accepted(door).unwrap().unwrap();
        std::net::TcpStream::from(ours).write_all(b"hello").unwrap();
        caller.read_exact(&mut [0; 5]).unwrap();
        assert!(bed.ring.accepted(door).unwrap().is_none());
    }
    bed.ring.shut(door);
    bed.turn_until("the closing", |_| std::net::TcpStream::connect(address).is_err());
}

#[test]
fn a_port_is_free_again_once_all_doors_are_shut() {
    let Some(mut bed) = Bed::new() else { return };
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    bed.ring.listen(Arc::new(listener), 3);
    bed.ring.turn(RoundWait::Not, &bed.host).unwrap();
    bed.turn_until("the closing", |bed| bed.ring.shut_all());
    std::net::TcpListener::bind(address).unwrap();
}
