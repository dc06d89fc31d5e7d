//! The bare relay: copies bytes between a client and a server connection of its own, and nothing else.
//!
//! It is the floor the benchmark measures against: one thread, one edge-triggered epoll, per message one read and one
//! write. It knows no protocol, shares no server connection and has no limits, so no proxy can do much less than this.
//! Usage: `relay LISTEN_ADDRESS SERVER_ADDRESS`.

use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;

use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};

const LISTENER: Token = Token(usize::MAX);
/// Bytes taken by one read. A shorter read means the socket is empty, which saves the read that would say so.
const READ_BYTES: usize = 64 * 1024;

/// A client (side 0) and its server (side 1); `unsent[side]` could not be written to that side yet.
struct Pair {
    sides: [TcpStream; 2],
    unsent: [Vec<u8>; 2],
}

impl Pair {
    fn open(client: TcpStream, server: SocketAddr) -> std::io::Result<Self> {
        let server = std::net::TcpStream::connect(server)?;
        server.set_nonblocking(true)?;
        server.set_nodelay(true)?;
        client.set_nodelay(true)?;
        Ok(Self { sides: [client, TcpStream::from_std(server)], unsent: [Vec::new(), Vec::new()] })
    }

    /// Copies from one side to the other until the source is empty or the target full; false once either is closed.
    fn copy(&mut self, from: usize, source_ended: bool, buffer: &mut [u8]) -> bool {
        let to = 1 - from;
        while self.unsent[to].is_empty() {
            let read = match self.sides[from].read(buffer) {
                Ok(0) => return false,
                Ok(read) => read,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return error.kind() == ErrorKind::WouldBlock,
            };
            let sent = match self.sides[to].write(&buffer[..read]) {
                Ok(sent) => sent,
                Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
                Err(_) => return false,
            };
            self.unsent[to].extend_from_slice(&buffer[sent..read]);
            if read < buffer.len() && !source_ended {
                return true;
            }
        }
        true
    }

    /// Sends the remaining bytes for a side that can take bytes again; false once it is closed.
    fn flush(&mut self, to: usize) -> bool {
        while !self.unsent[to].is_empty() {
            match self.sides[to].write(&self.unsent[to]) {
                Ok(sent) => drop(self.unsent[to].drain(..sent)),
                Err(error) => return error.kind() == ErrorKind::WouldBlock,
            }
        }
        true
    }
}

fn main() -> std::io::Result<()> {
    let addresses: Vec<SocketAddr> = std::env::args().skip(1).filter_map(|a| a.parse().ok()).collect();
    let &[listen, server] = addresses.as_slice() else {
        return Err(std::io::Error::new(ErrorKind::InvalidInput, "usage: relay LISTEN_ADDRESS SERVER_ADDRESS"));
    };
    let mut poll = Poll::new()?;
    let mut listener = TcpListener::bind(listen)?;
    poll.registry().register(&mut listener, LISTENER, Interest::READABLE)?;
    let mut events = Events::with_capacity(256);
    let mut pairs: Vec<Option<Pair>> = Vec::new();
    let mut buffer = vec![0; READ_BYTES];
    loop {
        if let Err(error) = poll.poll(&mut events, None)
            && error.kind() != ErrorKind::Interrupted
        {
            return Err(error);
        }
        for event in &events {
            if event.token() == LISTENER {
                accept_all(&listener, server, &poll, &mut pairs);
                continue;
            }
            let (slot, side) = (event.token().0 / 2, event.token().0 % 2);
            let Some(pair) = pairs[slot].as_mut() else { continue };
            let mut open = true;
            if event.is_writable() && !pair.unsent[side].is_empty() {
                open = pair.flush(side) && pair.copy(1 - side, false, &mut buffer);
            }
            if open && event.is_readable() {
                open = pair.copy(side, event.is_read_closed(), &mut buffer);
            }
            if !open {
                pairs[slot] = None;
            }
        }
    }
}

fn accept_all(listener: &TcpListener, server: SocketAddr, poll: &Poll, pairs: &mut Vec<Option<Pair>>) {
    while let Ok((client, _)) = listener.accept() {
        let Ok(mut pair) = Pair::open(client, server) else { continue };
        let slot = pairs.iter().position(Option::is_none).unwrap_or(pairs.len());
        let registered = (0..2).all(|side| {
            let interest = Interest::READABLE | Interest::WRITABLE;
            poll.registry().register(&mut pair.sides[side], Token(slot * 2 + side), interest).is_ok()
        });
        if !registered {
            continue;
        }
        if slot == pairs.len() {
            pairs.push(None);
        }
        pairs[slot] = Some(pair);
    }
}
