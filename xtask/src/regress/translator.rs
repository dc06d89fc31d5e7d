//! Stands between `psql` and its server, and turns simple queries into messages of the extended protocol. So the suite, which
//! knows simple queries only, tries the other half of the protocol too.
//!
//! Source: PostgreSQL manual, "Message Flow" and "COPY Operations".

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use anyhow::{Context, Result};

/// No message of the suite is nearly as long.
const BODY_BYTES_MAX: usize = 256 << 20;

/// A listening translator. Dropping it ends it; connections end with their clients.
pub struct Translator {
    pub port: u16,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Translator {
    /// Translates for all clients, towards `target` on this machine.
    pub fn start(target: u16) -> Result<Translator> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("cannot listen")?;
        let port = listener.local_addr()?.port();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = thread::spawn(move || {
            for client in listener.incoming() {
                if stopped.load(Ordering::Relaxed) {
                    return;
                }
                // A connection that breaks shows in its test's output.
                if let Ok(client) = client {
                    thread::spawn(move || serve(client, target));
                }
            }
        });
        Ok(Translator { port, stop, thread: Some(thread) })
    }
}

impl Drop for Translator {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // Wakes the thread, which waits for a client. If it cannot be reached it has ended.
        let is_awake = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).is_ok();
        if let Some(thread) = self.thread.take().filter(|_| is_awake) {
            let _ = thread.join();
        }
    }
}

/// State that both directions of a connection share.
#[derive(Debug, Default)]
struct State {
    /// A translated query is not answered to its end yet.
    is_translating: bool,
    /// The Sync of a copy's messages is not sent yet: a Sync before the data would count or not by the speed of the server's
    /// failure.
    owes_sync: bool,
}

fn serve(client: TcpStream, target: u16) -> io::Result<()> {
    client.set_nodelay(true)?;
    let server = TcpStream::connect((Ipv4Addr::LOCALHOST, target))?;
    server.set_nodelay(true)?;
    let state = Arc::new(Mutex::new(State::default()));
    let (from_server, to_client) = (server.try_clone()?, client.try_clone()?);
    let (to_server, shared) = (Mutex::new(server.try_clone()?), state.clone());
    let to_server = Arc::new(to_server);
    let writer = to_server.clone();
    let down = thread::spawn(move || {
        let ended = pump_down(&from_server, &to_client, &writer, &shared);
        // Either side's end is the other's.
        let _ = to_client.shutdown(Shutdown::Both);
        ended
    });
    let ended = pump_up(&client, &to_server, &state);
    let _ = server.shutdown(Shutdown::Both);
    let _ = down.join();
    ended
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// From the client: the startup packet, which has no tag, then messages.
fn pump_up(mut client: &TcpStream, server: &Mutex<TcpStream>, state: &Mutex<State>) -> io::Result<()> {
    let mut length = [0; 4];
    client.read_exact(&mut length)?;
    let body = read_body(client, length)?;
    lock(server).write_all(&[&length[..], &body].concat())?;
    loop {
        let (tag, body) = read_message(client)?;
        let mut bytes = Vec::new();
        {
            let mut state = lock(state);
            match tag {
                b'Q' => {
                    state.is_translating = true;
                    state.owes_sync = is_copy_in(&body);
                    bytes = extended(&body, if state.owes_sync { FLUSH } else { SYNC });
                }
                b'c' | b'f' => {
                    put(&mut bytes, tag, &body);
                    if std::mem::take(&mut state.owes_sync) {
                        put(&mut bytes, SYNC, b"");
                    }
                }
                _ => put(&mut bytes, tag, &body),
            }
        }
        lock(server).write_all(&bytes)?;
    }
}

/// From the server: answers to our additions are left out.
fn pump_down(server: &TcpStream, mut client: &TcpStream, writer: &Mutex<TcpStream>, state: &Mutex<State>) -> io::Result<()> {
    let mut bytes = Vec::new();
    let mut is_greeted = false;
    loop {
        let (tag, body) = read_message(server)?;
        let mut state = lock(state);
        let is_ours = state.is_translating && matches!(tag, b'1' | b'2' | b'n');
        let mut sync = false;
        match tag {
            // Over, or failed: the client may say nothing more about it.
            b'E' | b'C' | b'I' => sync = std::mem::take(&mut state.owes_sync),
            b'Z' => {
                state.is_translating = false;
                is_greeted = true;
            }
            _ => {}
        }
        drop(state);
        if sync {
            let mut message = Vec::new();
            put(&mut message, SYNC, b"");
            lock(writer).write_all(&message)?;
        }
        if !is_ours {
            put(&mut bytes, tag, &body);
        }
        // Rows leave together; messages that the client may wait for leave at once.
        if !is_greeted || !matches!(tag, b'D' | b'd') || bytes.len() > 64 << 10 {
            client.write_all(&bytes)?;
            bytes.clear();
        }
    }
}

const SYNC: u8 = b'S';
const FLUSH: u8 = b'H';

/// True if a text may be a copy from the client, which PostgreSQL also lets be called `FROM STDOUT`.
fn is_copy_in(text: &[u8]) -> bool {
    let has = |word: &[u8]| text.windows(word.len()).any(|part| part.eq_ignore_ascii_case(word));
    has(b"copy") && (has(b"stdin") || has(b"stdout"))
}

/// The messages for a query's text, which ends with a zero byte; `end` is the last one.
fn extended(text: &[u8], end: u8) -> Vec<u8> {
    let mut bytes = Vec::new();
    put(&mut bytes, b'P', &[b"\0", text, b"\0\0"].concat());
    put(&mut bytes, b'B', &[0; 8]);
    put(&mut bytes, b'D', b"P\0");
    put(&mut bytes, b'E', &[0; 5]);
    put(&mut bytes, end, b"");
    bytes
}

fn put(out: &mut Vec<u8>, tag: u8, body: &[u8]) {
    out.push(tag);
    out.extend_from_slice(&u32::try_from(body.len() + 4).unwrap_or(u32::MAX).to_be_bytes());
    out.extend_from_slice(body);
}

fn read_message(mut stream: &TcpStream) -> io::Result<(u8, Vec<u8>)> {
    let mut head = [0; 5];
    stream.read_exact(&mut head)?;
    let [tag, a, b, c, d] = head;
    Ok((tag, read_body(stream, [a, b, c, d])?))
}

fn read_body(mut stream: &TcpStream, length: [u8; 4]) -> io::Result<Vec<u8>> {
    let bytes = (u32::from_be_bytes(length) as usize).checked_sub(4).filter(|bytes| *bytes <= BODY_BYTES_MAX);
    let mut body = vec![0; bytes.ok_or_else(|| io::Error::new(ErrorKind::InvalidData, "a length that cannot be"))?];
    stream.read_exact(&mut body)?;
    Ok(body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_becomes_five_messages() {
        let bytes = extended(b"select 1\0", SYNC);
        let mut tags = Vec::new();
        let mut rest = &bytes[..];
        while let [tag, a, b, c, d, ..] = *rest {
            tags.push(tag);
            rest = &rest[1 + u32::from_be_bytes([a, b, c, d]) as usize..];
        }
        assert_eq!((tags.as_slice(), rest.len()), (&b"PBDES"[..], 0));
        assert!(is_copy_in(b"copy t from STDIN\0") && !is_copy_in(b"copy t to '/x'\0"));
        assert!(bytes.starts_with(b"P\0\0\0\x10\0select 1\0\0\0"));
    }
}
