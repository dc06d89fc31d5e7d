//! A server that goes mad: it serves as a real one does, until it is provoked; then it says the same kind of thing without end.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

/// Bytes after which a flood ends by itself: whoever has taken so many would take any.
const FLOOD_BYTES: usize = 192 << 20;
/// Bytes of one write.
const BATCH_BYTES: usize = 64 << 10;
/// Bytes of what was asked that are looked through for a provocation.
const HEARD_BYTES: usize = 64 << 10;

/// The cause of a flood.
#[derive(Clone, Copy)]
pub enum Provoked {
    /// Any login.
    ByLogin,
    /// A client's message with these words in it.
    By(&'static str),
}

/// A kind of flood: the message with this number, or the begin of one that never ends.
#[derive(Clone, Copy)]
pub enum Flood {
    Messages(fn(usize) -> Vec<u8>),
    OneMessage(u8),
}

/// Stands before a server. It is calm until `rage` is called.
pub struct Flooder {
    port: u16,
    state: Arc<State>,
}

struct State {
    rages: AtomicBool,
    begun: AtomicUsize,
    refused: AtomicUsize,
    swallowed: AtomicUsize,
    provoked: Provoked,
    flood: Flood,
}

impl Flooder {
    /// Before the server at `port` of this machine.
    pub fn before(port: u16, provoked: Provoked, flood: Flood) -> Flooder {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let own = listener.local_addr().unwrap().port();
        let state = Arc::new(State {
            rages: AtomicBool::new(false),
            begun: AtomicUsize::new(0),
            refused: AtomicUsize::new(0),
            swallowed: AtomicUsize::new(0),
            provoked,
            flood,
        });
        let shared = state.clone();
        thread::spawn(move || {
            for client in listener.incoming() {
                let (Ok(client), Ok(server)) = (client, TcpStream::connect(("127.0.0.1", port))) else { return };
                let state = shared.clone();
                thread::spawn(move || serve(&state, client, server));
            }
        });
        Flooder { port: own, state }
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// From now on it floods when it is provoked.
    pub fn rage(&self) {
        self.state.rages.store(true, Ordering::SeqCst);
    }

    /// It is an ordinary server again.
    pub fn calm(&self) {
        self.state.rages.store(false, Ordering::SeqCst);
    }

    /// Floods that the other side ended by closing the connection.
    pub fn refused(&self) -> usize {
        self.state.refused.load(Ordering::SeqCst)
    }

    /// Floods that were taken to their end.
    pub fn swallowed(&self) -> usize {
        self.state.swallowed.load(Ordering::SeqCst)
    }

    /// All floods.
    pub fn begun(&self) -> usize {
        self.state.begun.load(Ordering::SeqCst)
    }
}

/// Passes what a client says on to the server, and looks at it.
fn serve(state: &Arc<State>, mut client: TcpStream, server: TcpStream) {
    let (from, to) = (server.try_clone().unwrap(), client.try_clone().unwrap());
    let floods = Arc::new(AtomicBool::new(false));
    let is_flooding = floods.clone();
    thread::spawn(move || answer(from, to, &is_flooding));
    let (mut server, mut heard, mut piece, mut is_first) = (server, Vec::new(), vec![0; BATCH_BYTES], true);
    while let Ok(bytes @ 1..) = client.read(&mut piece) {
        heard.extend_from_slice(&piece[..bytes]);
        let is_provoked = match state.provoked {
            // An SSLRequest has eight bytes.
            Provoked::ByLogin => std::mem::replace(&mut is_first, heard.len() <= 8) && heard.len() > 8,
            Provoked::By(words) => heard.windows(words.len()).any(|part| part == words.as_bytes()),
        };
        if is_provoked && state.rages.load(Ordering::SeqCst) {
            floods.store(true, Ordering::SeqCst);
            return flood(state, &mut client, &server);
        }
        if matches!(state.provoked, Provoked::By(_)) {
            heard.drain(..heard.len().saturating_sub(HEARD_BYTES));
            if is_provoked {
                heard.clear();
            }
        }
        if server.write_all(&piece[..bytes]).is_err() {
            break;
        }
    }
    let _ = server.shutdown(Shutdown::Both);
}

fn answer(mut server: TcpStream, mut client: TcpStream, is_flooding: &AtomicBool) {
    let mut piece = vec![0; BATCH_BYTES];
    while let Ok(bytes @ 1..) = server.read(&mut piece) {
        if is_flooding.load(Ordering::SeqCst) {
            return;
        }
        if client.write_all(&piece[..bytes]).is_err() {
            break;
        }
    }
    if !is_flooding.load(Ordering::SeqCst) {
        let _ = client.shutdown(Shutdown::Both);
    }
}

fn flood(state: &State, client: &mut TcpStream, server: &TcpStream) {
    state.begun.fetch_add(1, Ordering::SeqCst);
    let mut batch = Vec::new();
    if matches!(state.provoked, Provoked::ByLogin) {
        batch.extend([b'R', 0, 0, 0, 8, 0, 0, 0, 0]);
    }
    if let Flood::OneMessage(tag) = state.flood {
        batch.push(tag);
        batch.extend((1_u32 << 29).to_be_bytes());
    }
    let (mut number, mut sent) = (0, 0);
    while sent < FLOOD_BYTES {
        while batch.len() < BATCH_BYTES {
            match state.flood {
                Flood::Messages(make) => batch.extend(make(number)),
                Flood::OneMessage(_) => batch.extend([b'x'; 1024]),
            }
            number += 1;
        }
        sent += batch.len();
        if client.write_all(&batch).is_err() {
            state.refused.fetch_add(1, Ordering::SeqCst);
            let _ = server.shutdown(Shutdown::Both);
            return;
        }
        batch.clear();
    }
    state.swallowed.fetch_add(1, Ordering::SeqCst);
    let _ = client.shutdown(Shutdown::Both);
}
