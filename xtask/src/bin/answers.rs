//! A server that knows one answer: the floor for a cache, as the relay is for a proxy.
//!
//! One thread, one edge-triggered epoll, per message one read and one write. Lets everybody in. Answers every Query with the
//! bytes that PostgreSQL sends for `SELECT abalance FROM pgbench_accounts WHERE aid = …` of a row nobody has changed. It looks
//! at nothing but the lengths of messages, so no cache can do much less than this. Usage: `answers LISTEN_ADDRESS`.

use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;

use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};

const LISTENER: Token = Token(usize::MAX);
const READ_BYTES: usize = 64 * 1024;

/// AuthenticationOk and ReadyForQuery.
const WELCOME: &[u8] = b"R\0\0\0\x08\0\0\0\0Z\0\0\0\x05I";
/// RowDescription, DataRow, CommandComplete, ReadyForQuery.
const ANSWER: &[u8] = b"T\0\0\0\x21\0\x01abalance\0\0\0\x40\x01\0\x03\0\0\0\x17\0\x04\xff\xff\xff\xff\0\0\
D\0\0\0\x0b\0\x01\0\0\0\x010C\0\0\0\x0dSELECT 1\0Z\0\0\0\x05I";
/// The requests for encryption, which are declined: 8 bytes each.
const SSL: [u8; 8] = [0, 0, 0, 8, 4, 210, 22, 47];
const GSS: [u8; 8] = [0, 0, 0, 8, 4, 210, 22, 48];

struct Client {
    socket: TcpStream,
    is_in: bool,
    /// The begin of a message that is not all here.
    rest: Vec<u8>,
}

impl Client {
    /// Answers all that has come; false once the client is gone.
    fn serve(&mut self, buffer: &mut [u8], out: &mut Vec<u8>) -> bool {
        loop {
            let read = match self.socket.read(buffer) {
                Ok(0) => return false,
                Ok(read) => read,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return error.kind() == ErrorKind::WouldBlock,
            };
            out.clear();
            let used = if self.rest.is_empty() {
                let used = self.answer(&buffer[..read], out);
                self.rest.extend_from_slice(&buffer[used.unwrap_or(read)..read]);
                used
            } else {
                let mut bytes = std::mem::take(&mut self.rest);
                bytes.extend_from_slice(&buffer[..read]);
                let used = self.answer(&bytes, out);
                self.rest = bytes.split_off(used.unwrap_or(bytes.len()));
                used
            };
            // A client that does not read is none to be measured with.
            if used.is_none() || (!out.is_empty() && self.socket.write_all(out).is_err()) {
                return false;
            }
            if read < buffer.len() {
                return true;
            }
        }
    }

    /// Bytes of the messages that are all here; `None` after the last one a client sends.
    fn answer(&mut self, mut bytes: &[u8], out: &mut Vec<u8>) -> Option<usize> {
        let all = bytes.len();
        loop {
            // A startup packet has no tag.
            let tag_bytes = usize::from(self.is_in);
            let Some(&length) = bytes.get(tag_bytes..).and_then(|rest| rest.first_chunk::<4>()) else { break };
            let end = tag_bytes + u32::from_be_bytes(length) as usize;
            if bytes.len() < end {
                break;
            }
            match (self.is_in, bytes[0]) {
                (false, _) if bytes[..end] == SSL || bytes[..end] == GSS => out.push(b'N'),
                (false, _) => {
                    self.is_in = true;
                    out.extend_from_slice(WELCOME);
                }
                (true, b'Q') => out.extend_from_slice(ANSWER),
                (true, _) => return None,
            }
            bytes = &bytes[end..];
        }
        Some(all - bytes.len())
    }
}

fn main() -> std::io::Result<()> {
    let Some(listen) = std::env::args().nth(1).and_then(|address| address.parse::<SocketAddr>().ok()) else {
        return Err(std::io::Error::new(ErrorKind::InvalidInput, "usage: answers LISTEN_ADDRESS"));
    };
    let mut poll = Poll::new()?;
    let mut listener = TcpListener::bind(listen)?;
    poll.registry().register(&mut listener, LISTENER, Interest::READABLE)?;
    let mut events = Events::with_capacity(256);
    let mut clients: Vec<Option<Client>> = Vec::new();
    let (mut buffer, mut out) = (vec![0; READ_BYTES], Vec::new());
    loop {
        if let Err(error) = poll.poll(&mut events, None)
            && error.kind() != ErrorKind::Interrupted
        {
            return Err(error);
        }
        for event in &events {
            if event.token() == LISTENER {
                accept_all(&listener, &poll, &mut clients);
                continue;
            }
            let place = &mut clients[event.token().0];
            if place.as_mut().is_some_and(|client| !client.serve(&mut buffer, &mut out)) {
                *place = None;
            }
        }
    }
}

fn accept_all(listener: &TcpListener, poll: &Poll, clients: &mut Vec<Option<Client>>) {
    while let Ok((mut socket, _)) = listener.accept() {
        let place = clients.iter().position(Option::is_none).unwrap_or(clients.len());
        let is_fine =
            socket.set_nodelay(true).is_ok() && poll.registry().register(&mut socket, Token(place), Interest::READABLE).is_ok();
        if !is_fine {
            continue;
        }
        if place == clients.len() {
            clients.push(None);
        }
        clients[place] = Some(Client { socket, is_in: false, rest: Vec::new() });
    }
}
