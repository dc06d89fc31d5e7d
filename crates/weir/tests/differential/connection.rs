//! One connection: writes bytes in the pieces it is told, and collects all replies on a thread of its own. So neither side ever
//! waits for the other to read.

use crate::message::{Message, frame};
use crate::reply::Reply;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// Why no more replies come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The other side closed.
    Closed,
    /// The expected message did not come in time.
    Silent,
}

pub struct Connection {
    stream: TcpStream,
    replies: Receiver<Reply>,
    patience: Duration,
    /// All that came so far.
    pub seen: Vec<Reply>,
}

impl Connection {
    /// Connects and logs in; the messages of the login are not kept. `patience`: no wait may take longer.
    pub fn open(port: u16, database: &str, parameters: &[(&str, &str)], patience: Duration) -> Result<Connection, Stop> {
        let stream = TcpStream::connect(("127.0.0.1", port)).map_err(|_| Stop::Closed)?;
        stream.set_nodelay(true).map_err(|_| Stop::Closed)?;
        let (sender, replies) = channel();
        let reader = stream.try_clone().map_err(|_| Stop::Closed)?;
        std::thread::spawn(move || read_all(reader, |reply| sender.send(reply).is_ok()));
        let mut connection = Connection { stream, replies, patience, seen: Vec::new() };
        let mut body = (3u32 << 16).to_be_bytes().to_vec();
        for (name, value) in [("user", "postgres"), ("database", database)].iter().chain(parameters) {
            body.extend([name.as_bytes(), b"\0", value.as_bytes(), b"\0"].concat());
        }
        body.push(0);
        let mut packet = Vec::new();
        frame(&mut packet, 0, &[&body]);
        connection.write(&packet[1..]);
        connection.until(|reply| reply.tag == b'Z')?;
        connection.seen.clear();
        Ok(connection)
    }

    /// Sends bytes. A connection that was closed is noticed by its silence.
    pub fn write(&mut self, bytes: &[u8]) {
        let _ = self.stream.write_all(bytes);
    }

    pub fn send(&mut self, messages: &[Message]) {
        let mut bytes = Vec::new();
        messages.iter().for_each(|message| message.write(&mut bytes));
        self.write(&bytes);
    }

    /// Reads up to and including the reply that `is_last` is true for. All are added to `seen`.
    pub fn until(&mut self, mut is_last: impl FnMut(&Reply) -> bool) -> Result<(), Stop> {
        let deadline = Instant::now() + self.patience;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let reply = self.replies.recv_timeout(left).map_err(|error| match error {
                RecvTimeoutError::Timeout => Stop::Silent,
                RecvTimeoutError::Disconnected => Stop::Closed,
            })?;
            let last = is_last(&reply);
            self.seen.push(reply);
            if last {
                return Ok(());
            }
        }
    }

    /// Sends messages that are answered by one ReadyForQuery, and returns the replies.
    pub fn ask(&mut self, messages: &[Message]) -> Result<Vec<Reply>, Stop> {
        self.seen.clear();
        self.send(messages);
        self.until(|reply| reply.tag == b'Z')?;
        Ok(std::mem::take(&mut self.seen))
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.write(&[b'X', 0, 0, 0, 4]);
        // The thread that reads ends with the connection.
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}

/// Reads messages until the end or until nobody wants them.
fn read_all(mut stream: TcpStream, mut deliver: impl FnMut(Reply) -> bool) {
    let mut header = [0; 5];
    while stream.read_exact(&mut header).is_ok() {
        let [tag, a, b, c, d] = header;
        let mut body = vec![0; (u32::from_be_bytes([a, b, c, d]) as usize).saturating_sub(4)];
        if stream.read_exact(&mut body).is_err() || !deliver(Reply::new(tag, &body)) {
            return;
        }
    }
}
