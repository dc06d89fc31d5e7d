//! A client of a hundred lines: logs in without a password, sends bytes, counts the bytes that come back.
//!
//! It does as little as possible per message, so that the proxy is measured and not its client. Blocking.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, bail};

/// A wait longer than this means the system under test lost an answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(20);
/// Errors and authentication requests are kept up to this size; all other bodies are only counted.
const KEPT_BYTES_MAX: usize = 1024;

/// One connection.
pub struct Client {
    socket: TcpStream,
    frames: Frames,
}

impl Client {
    /// Connects and returns once the server is ready or asks for a proof: then it serves.
    pub fn knock(port: u16, buffer: &mut [u8]) -> Result<()> {
        let mut client = Self::connect(port, "postgres")?;
        match client.read_until_ready(1, buffer) {
            Err(_) if client.frames.asks_for_proof => Ok(()),
            ended => ended.map(drop),
        }
    }

    /// Connects and logs in as `postgres`; returns once the server says it is ready.
    pub fn login(port: u16, database: &str, buffer: &mut [u8]) -> Result<Self> {
        let mut client = Self::connect(port, database)?;
        client.read_until_ready(1, buffer).context("cannot log in")?;
        Ok(client)
    }

    fn connect(port: u16, database: &str) -> Result<Self> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let socket = TcpStream::connect_timeout(&address, ANSWER_LIMIT).context("cannot connect")?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(ANSWER_LIMIT))?;
        socket.set_write_timeout(Some(ANSWER_LIMIT))?;
        let mut client = Self { socket, frames: Frames::default() };
        client.send(&startup(database))?;
        Ok(client)
    }

    /// The socket, for a caller who reads in another way.
    pub fn into_socket(self) -> TcpStream {
        self.socket
    }

    /// Sends all of `bytes`.
    pub fn send(&mut self, bytes: &[u8]) -> Result<()> {
        self.socket.write_all(bytes).context("cannot send")
    }

    /// Reads until `count` messages ReadyForQuery have come; returns the bytes read. Error: also any ErrorResponse.
    pub fn read_until_ready(&mut self, count: u32, buffer: &mut [u8]) -> Result<u64> {
        let mut bytes = 0;
        self.frames.ready = 0;
        while self.frames.ready < count {
            let read = self.socket.read(buffer).context("no answer")?;
            if read == 0 {
                bail!("connection closed");
            }
            bytes += u64::try_from(read)?;
            self.frames.feed(&buffer[..read])?;
        }
        Ok(bytes)
    }

    /// One simple query; returns the bytes of its answer.
    pub fn query(&mut self, statement: &str, buffer: &mut [u8]) -> Result<u64> {
        self.send(&query(statement))?;
        self.read_until_ready(1, buffer)
    }
}

/// A Query.
pub fn query(statement: &str) -> Vec<u8> {
    let mut message = Vec::new();
    put(&mut message, b'Q', &[statement.as_bytes(), b"\0"]);
    message
}

/// Appends one message: tag, length, body.
fn put(out: &mut Vec<u8>, tag: u8, body: &[&[u8]]) {
    let bytes: usize = body.iter().map(|part| part.len()).sum();
    out.push(tag);
    out.extend_from_slice(&u32::try_from(bytes + 4).unwrap_or(u32::MAX).to_be_bytes());
    body.iter().for_each(|part| out.extend_from_slice(part));
}

fn startup(database: &str) -> Vec<u8> {
    let mut message = Vec::new();
    // A startup packet has no tag: the byte `put` writes for one is dropped.
    let body: [&[u8]; 4] = [&[0, 3, 0, 0], b"user\0postgres\0database\0", database.as_bytes(), b"\0\0"];
    put(&mut message, 0, &body);
    message.remove(0);
    message
}

/// `statements` times Parse, Bind, Execute of the unnamed statement, with `syncs` messages Sync among them.
///
/// `syncs` is 1 (one at the end) or equal to `statements` (one after each).
pub fn pipeline(statement: &str, statements: u32, syncs: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    for index in 1..=statements {
        put(&mut bytes, b'P', &[b"\0", statement.as_bytes(), b"\0", &[0, 0]]);
        put(&mut bytes, b'B', &[b"\0\0", &[0; 6]]);
        put(&mut bytes, b'E', &[b"\0", &[0; 4]]);
        if syncs > 1 || index == statements {
            put(&mut bytes, b'S', &[]);
        }
    }
    bytes
}

/// Where we are in the stream of messages from the server.
#[derive(Default)]
struct Frames {
    header: [u8; 5],
    header_have: usize,
    body_left: usize,
    kept: Vec<u8>,
    ready: u32,
    asks_for_proof: bool,
}

impl Frames {
    fn feed(&mut self, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            if self.header_have < 5 {
                let take = bytes.len().min(5 - self.header_have);
                self.header[self.header_have..][..take].copy_from_slice(&bytes[..take]);
                self.header_have += take;
                bytes = &bytes[take..];
                if self.header_have < 5 {
                    return Ok(());
                }
                self.begin_body()?;
            }
            let take = bytes.len().min(self.body_left);
            self.keep(&bytes[..take]);
            self.body_left -= take;
            bytes = &bytes[take..];
            if self.body_left == 0 {
                self.end_body()?;
            }
        }
        Ok(())
    }

    fn begin_body(&mut self) -> Result<()> {
        let [tag, a, b, c, d] = self.header;
        let length = usize::try_from(u32::from_be_bytes([a, b, c, d]))?;
        let Some(body) = length.checked_sub(4) else { bail!("message {:?} of {length} bytes", char::from(tag)) };
        self.body_left = body;
        self.kept.clear();
        if body == 0 {
            self.end_body()?;
        }
        Ok(())
    }

    fn keep(&mut self, bytes: &[u8]) {
        if matches!(self.header[0], b'E' | b'R') {
            let room = KEPT_BYTES_MAX.saturating_sub(self.kept.len());
            self.kept.extend_from_slice(&bytes[..bytes.len().min(room)]);
        }
    }

    fn end_body(&mut self) -> Result<()> {
        self.header_have = 0;
        match self.header[0] {
            b'Z' => self.ready += 1,
            b'E' => bail!("server says: {}", message_of(&self.kept)),
            b'R' if self.kept != [0; 4] => {
                self.asks_for_proof = true;
                bail!("server asks for a password; this client has none")
            }
            _ => {}
        }
        Ok(())
    }
}

/// The M field of an ErrorResponse.
fn message_of(body: &[u8]) -> String {
    let field = body.split(|&byte| byte == 0).find_map(|field| field.strip_prefix(b"M"));
    String::from_utf8_lossy(field.unwrap_or(b"no message")).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const READY: &[u8] = b"Z\0\0\0\x05I";

    #[test]
    fn ready_is_counted_however_the_bytes_are_cut() {
        let stream = [b"1\0\0\0\x04".as_slice(), READY, b"D\0\0\0\x06Z\0", READY].concat();
        for cut in 0..=stream.len() {
            let mut frames = Frames::default();
            frames.feed(&stream[..cut]).expect("no error in it");
            frames.feed(&stream[cut..]).expect("no error in it");
            assert_eq!(frames.ready, 2, "cut at {cut}");
        }
    }

    #[test]
    fn the_text_of_an_error_is_given() {
        let error = Frames::default().feed(b"E\0\0\0\x14SERROR\0Mno room\0\0").expect_err("an error");
        assert!(error.to_string().contains("no room"), "{error}");
    }

    #[test]
    fn a_pipeline_has_the_syncs_asked_for() {
        let sync = b"S\0\0\0\x04";
        let count = |bytes: &[u8]| bytes.windows(5).filter(|window| window == sync).count();
        assert_eq!(count(&pipeline("SELECT 1", 100, 1)), 1);
        assert_eq!(count(&pipeline("SELECT 1", 100, 100)), 100);
    }
}
