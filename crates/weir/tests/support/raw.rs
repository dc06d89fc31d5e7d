//! A client that sends given bytes and shows every message it gets.

use super::ground::LIMIT;
use super::wire;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use std::fmt;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Silence for this long fails a test; nothing tests do takes a quarter of it.
const READ_LIMIT: Duration = LIMIT;

/// One message.
#[derive(Clone, PartialEq, Eq)]
pub struct Message {
    pub tag: u8,
    pub body: Vec<u8>,
}

impl fmt::Debug for Message {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = &self.body[..self.body.len().min(200)];
        write!(out, "{}({})", self.tag as char, shown.escape_ascii())
    }
}

impl Message {
    /// The columns of a DataRow as text; NULL is `None`.
    pub fn row(&self) -> Vec<Option<String>> {
        assert_eq!(self.tag, b'D', "{self:?}");
        let (count, mut rest) = self.body.split_first_chunk::<2>().expect("a row begins with its count");
        let mut values = Vec::new();
        for _ in 0..u16::from_be_bytes(*count) {
            let (length, after) = rest.split_first_chunk::<4>().expect("a value begins with its length");
            let Ok(length) = usize::try_from(i32::from_be_bytes(*length)) else {
                values.push(None);
                rest = after;
                continue;
            };
            values.push(Some(String::from_utf8_lossy(&after[..length]).into_owned()));
            rest = &after[length..];
        }
        values
    }

    /// The fields of an ErrorResponse or NoticeResponse.
    pub fn failure(&self) -> Failure {
        assert!(matches!(self.tag, b'E' | b'N'), "{self:?}");
        let mut failure = Failure::default();
        for field in self.body.split(|byte| *byte == 0) {
            let Some((letter, text)) = field.split_first() else { continue };
            let text = String::from_utf8_lossy(text).into_owned();
            match letter {
                b'V' => failure.severity = text,
                b'C' => failure.sqlstate = text,
                b'M' => failure.message = text,
                b'D' => failure.detail = text.into(),
                b'H' => failure.hint = text.into(),
                b'P' => failure.position = text.into(),
                _ => {}
            }
        }
        failure
    }

    /// The text of a CommandComplete.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(self.body.strip_suffix(&[0]).unwrap_or(&self.body)).into_owned()
    }
}

/// Fields of an error.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Failure {
    pub severity: String,
    pub sqlstate: String,
    pub message: String,
    pub detail: Box<str>,
    pub hint: Box<str>,
    pub position: Box<str>,
}

trait Stream: Read + Write + Send {
    fn limit(&self, limit: Option<Duration>) -> io::Result<()>;
    fn half_close(&self) -> io::Result<()>;
    fn twin(&self) -> io::Result<Box<dyn Stream>>;
    /// A second handle of a TCP connection.
    #[allow(dead_code, reason = "for the hostile clients only")]
    fn tcp(&self) -> Option<TcpStream> {
        None
    }
}

impl Stream for TcpStream {
    fn limit(&self, limit: Option<Duration>) -> io::Result<()> {
        self.set_read_timeout(limit)
    }
    fn half_close(&self) -> io::Result<()> {
        self.shutdown(Shutdown::Write)
    }
    fn twin(&self) -> io::Result<Box<dyn Stream>> {
        Ok(Box::new(self.try_clone()?))
    }
    fn tcp(&self) -> Option<TcpStream> {
        self.try_clone().ok()
    }
}

impl Stream for UnixStream {
    fn limit(&self, limit: Option<Duration>) -> io::Result<()> {
        self.set_read_timeout(limit)
    }
    fn half_close(&self) -> io::Result<()> {
        self.shutdown(Shutdown::Write)
    }
    fn twin(&self) -> io::Result<Box<dyn Stream>> {
        Ok(Box::new(self.try_clone()?))
    }
}

impl Stream for StreamOwned<ClientConnection, TcpStream> {
    fn limit(&self, limit: Option<Duration>) -> io::Result<()> {
        self.sock.set_read_timeout(limit)
    }
    fn half_close(&self) -> io::Result<()> {
        self.sock.shutdown(Shutdown::Write)
    }
    fn twin(&self) -> io::Result<Box<dyn Stream>> {
        Err(io::Error::new(io::ErrorKind::Unsupported, "a TLS session has one handle"))
    }
}

/// Why no message came; silence in the words of all waits that ran out.
fn why_none_came(error: &io::Error) -> String {
    let limit = READ_LIMIT.as_millis();
    if is_silence(error) {
        format!("waited {limit} ms for a message, limit is {limit} ms")
    } else {
        format!("no message came: {error}")
    }
}

fn is_silence(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

/// One connection.
pub struct Raw {
    stream: Box<dyn Stream>,
    got: Vec<u8>,
    /// Bytes of `got` that were handed out already.
    taken: usize,
    /// From BackendKeyData.
    pub pid: u32,
    pub key: Vec<u8>,
    /// From ParameterStatus, the last value of each name.
    pub parameters: Vec<(String, String)>,
}

impl fmt::Debug for Raw {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Raw({})", self.pid)
    }
}

impl Raw {
    /// A connection that has said nothing yet.
    pub fn tcp(port: u16) -> Raw {
        Raw::try_tcp(port).unwrap_or_else(|| panic!("nobody accepts on port {port}"))
    }

    /// A connection over TCP; `None` when nobody accepts.
    pub fn try_tcp(port: u16) -> Option<Raw> {
        let stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
        stream.set_nodelay(true).unwrap();
        Some(Raw::over(Box::new(stream)))
    }

    /// A connection from another address of this machine.
    #[allow(dead_code, reason = "for some test programs only")]
    pub fn tcp_from(address: [u8; 4], port: u16) -> Raw {
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        let (from, to): (std::net::SocketAddr, std::net::SocketAddr) = ((address, 0).into(), ([127, 0, 0, 1], port).into());
        socket.bind(&from.into()).unwrap();
        socket.connect(&to.into()).unwrap();
        let stream = TcpStream::from(socket);
        stream.set_nodelay(true).unwrap();
        Raw::over(Box::new(stream))
    }

    /// A connection over the unix socket of `port` in `folder`.
    pub fn unix(folder: &Path, port: u16) -> Raw {
        let path = folder.join(format!(".s.PGSQL.{port}"));
        let stream = UnixStream::connect(&path).unwrap_or_else(|e| panic!("cannot connect to {}: {e}", path.display()));
        Raw::over(Box::new(stream))
    }

    /// A connection over TLS, for which it asks in PostgreSQL's way.
    #[allow(dead_code, reason = "for some test programs only")]
    pub fn tls(port: u16, config: Arc<ClientConfig>) -> Raw {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap_or_else(|_| panic!("nobody accepts on port {port}"));
        stream.set_nodelay(true).unwrap();
        stream.write_all(&wire::ssl_request()).unwrap();
        let mut answer = [0];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"S");
        let name = ServerName::try_from("localhost").unwrap();
        Raw::over(Box::new(StreamOwned::new(ClientConnection::new(config, name).unwrap(), stream)))
    }

    /// With a small receive buffer, for clients that are slow on purpose.
    pub fn tcp_with_receive_buffer(port: u16, bytes: usize) -> Raw {
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        socket.set_recv_buffer_size(bytes).unwrap();
        let address: std::net::SocketAddr = ([127, 0, 0, 1], port).into();
        socket.connect(&address.into()).unwrap();
        Raw::over(Box::new(TcpStream::from(socket)))
    }

    fn over(stream: Box<dyn Stream>) -> Raw {
        stream.limit(Some(READ_LIMIT)).unwrap();
        Raw { stream, got: Vec::new(), taken: 0, pid: 0, key: Vec::new(), parameters: Vec::new() }
    }

    /// Logs in with these parameters beside user and database, and waits for ReadyForQuery. Only trust is understood.
    pub fn log_in(mut self, user: &str, database: &str, more: &[(&str, &str)]) -> Result<Raw, Failure> {
        let parameters = [&[("user", user), ("database", database)], more].concat();
        self.send(&wire::startup(wire::V3_0, &parameters));
        self.finish_login()?;
        Ok(self)
    }

    /// Reads to the end of a login that has been asked for.
    pub fn finish_login(&mut self) -> Result<(), Failure> {
        loop {
            let message = self.read();
            match message.tag {
                b'R' => assert_eq!(message.body, [0, 0, 0, 0], "the proxy asks for a proof of identity"),
                b'K' => {
                    self.pid = u32::from_be_bytes(*message.body.first_chunk().expect("a key has a pid"));
                    self.key = message.body[4..].to_vec();
                }
                b'E' => return Err(message.failure()),
                b'Z' => return Ok(()),
                _ => {}
            }
        }
    }

    pub fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("the proxy takes what is sent");
    }

    /// Sends, and tells if the connection took it all.
    pub fn try_send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// The next message. Fails the test when the connection ends or is silent.
    pub fn read(&mut self) -> Message {
        self.try_read()
            .unwrap_or_else(|error| panic!("{}", why_none_came(&error)))
            .expect("a message, but the connection was closed")
    }

    /// The next message; `None` at the end of the connection.
    pub fn try_read(&mut self) -> io::Result<Option<Message>> {
        loop {
            let here = &self.got[self.taken..];
            if let Some((&[tag, a, b, c, d], rest)) = here.split_first_chunk::<5>() {
                let bytes = u32::from_be_bytes([a, b, c, d]) as usize - 4;
                if let Some(body) = rest.get(..bytes) {
                    let message = Message { tag, body: body.to_vec() };
                    self.taken += 5 + bytes;
                    self.note(&message);
                    return Ok(Some(message));
                }
            }
            self.got.drain(..self.taken);
            self.taken = 0;
            let mut piece = [0u8; 16 << 10];
            match self.stream.read(&mut piece) {
                Ok(0) if self.got.is_empty() => return Ok(None),
                Ok(0) => return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the connection ended within a message")),
                Ok(bytes) => self.got.extend_from_slice(&piece[..bytes]),
                // A read with a time limit is not begun anew by the system when this process was stopped for a moment: signal(7).
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn note(&mut self, message: &Message) {
        if message.tag != b'S' {
            return;
        }
        let mut texts = message.body.split(|byte| *byte == 0).map(|text| String::from_utf8_lossy(text).into_owned());
        if let (Some(name), Some(value)) = (texts.next(), texts.next()) {
            self.parameters.retain(|(known, _)| *known != name);
            self.parameters.push((name, value));
        }
    }

    /// The last reported value of a parameter.
    pub fn parameter(&self, name: &str) -> Option<&str> {
        self.parameters.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// All messages up to the next ReadyForQuery.
    pub fn until_ready(&mut self) -> Vec<Message> {
        let mut messages = Vec::new();
        loop {
            let message = self.read();
            let is_last = message.tag == b'Z';
            messages.push(message);
            if is_last {
                return messages;
            }
        }
    }

    /// The tags of all messages up to the next ReadyForQuery; parameters and notices left out.
    pub fn tags(&mut self) -> String {
        tags(&self.until_ready())
    }

    /// All that comes until the connection ends; how it ends does not matter. Fails the test if it does not.
    pub fn until_end(&mut self) -> Vec<Message> {
        let mut messages = Vec::new();
        loop {
            match self.try_read() {
                Ok(Some(message)) => messages.push(message),
                Err(error) if is_silence(&error) => panic!("{}", why_none_came(&error)),
                Ok(None) | Err(_) => return messages,
            }
        }
    }

    /// Reads this many bytes as they are.
    pub fn read_bytes(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        assert!(self.got.is_empty(), "bytes and messages were mixed");
        self.stream.read_exact(&mut bytes).expect("as many bytes as expected");
        bytes
    }

    /// All bytes until the connection ends.
    pub fn bytes_to_end(&mut self) -> Vec<u8> {
        let mut bytes = std::mem::take(&mut self.got);
        bytes.drain(..std::mem::take(&mut self.taken));
        // A reset ends a connection as well, and silence does not.
        if let Err(error) = self.stream.read_to_end(&mut bytes) {
            assert!(!is_silence(&error), "{}", why_none_came(&error));
        }
        bytes
    }

    /// All bytes until the connection ends, in order or by a reset. Error: it does not.
    #[allow(dead_code, reason = "for the hostile clients only")]
    pub fn bytes_until_end(&mut self) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        match self.stream.read_to_end(&mut bytes) {
            Ok(_) => Ok(bytes),
            Err(cause) if cause.kind() == io::ErrorKind::ConnectionReset => Ok(bytes),
            Err(cause) => Err(cause),
        }
    }

    /// A second handle of its TCP connection.
    #[allow(dead_code, reason = "for the hostile clients only")]
    pub fn tcp_stream(&self) -> TcpStream {
        self.stream.tcp().expect("a TCP connection")
    }

    /// True if nothing comes for `limit`. A check that something is absent needs a time.
    pub fn is_silent_for(&mut self, limit: Duration) -> bool {
        self.stream.limit(Some(limit)).unwrap();
        let result = self.try_read();
        self.stream.limit(Some(READ_LIMIT)).unwrap();
        matches!(result, Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut))
    }

    /// Sends a query and returns all its messages.
    pub fn query(&mut self, text: &str) -> Vec<Message> {
        self.send(&wire::query(text));
        self.until_ready()
    }

    /// The rows a simple query returns, or its first error. A connection that ends instead is an error too.
    pub fn try_rows(&mut self, text: &str) -> Result<Vec<Vec<Option<String>>>, Failure> {
        self.try_rows_of(&wire::query(text))
    }

    /// The rows of one statement, sent as messages with one ReadyForQuery behind.
    pub fn try_rows_of(&mut self, messages: &[u8]) -> Result<Vec<Vec<Option<String>>>, Failure> {
        if let Err(cause) = self.try_send(messages) {
            return Err(lost(&cause.to_string()));
        }
        let mut rows = Vec::new();
        let mut failure = None;
        loop {
            let message = match self.try_read() {
                Ok(Some(message)) => message,
                Ok(None) => return Err(failure.unwrap_or_else(|| lost("closed"))),
                Err(cause) => return Err(failure.unwrap_or_else(|| lost(&cause.to_string()))),
            };
            match message.tag {
                b'D' => rows.push(message.row()),
                b'E' => {
                    failure.get_or_insert(message.failure());
                }
                b'Z' => return failure.map_or(Ok(rows), Err),
                _ => {}
            }
        }
    }

    /// The one value a simple query returns.
    pub fn try_value(&mut self, text: &str) -> Result<String, Failure> {
        let rows = self.try_rows(text)?;
        Ok(rows.into_iter().flatten().next().unwrap_or_else(|| panic!("{text} returned nothing")).unwrap_or_default())
    }

    pub fn value(&mut self, text: &str) -> String {
        self.try_value(text).unwrap_or_else(|failure| panic!("{text}: {failure:?}"))
    }

    pub fn rows(&mut self, text: &str) -> Vec<Vec<String>> {
        let rows = self.try_rows(text).unwrap_or_else(|failure| panic!("{text}: {failure:?}"));
        rows.into_iter().map(|row| row.into_iter().map(Option::unwrap_or_default).collect()).collect()
    }

    /// Runs a text that must succeed.
    pub fn run(&mut self, text: &str) {
        self.rows(text);
    }

    /// The error a query must give.
    pub fn error(&mut self, text: &str) -> Failure {
        match self.try_rows(text) {
            Ok(rows) => panic!("{text} succeeded: {rows:?}"),
            Err(failure) => failure,
        }
    }

    /// The first value of a statement through the extended protocol, or its error.
    pub fn extended(&mut self, text: &str, values: &[&str]) -> Result<String, Failure> {
        self.send(&[wire::unnamed(text, values), wire::sync()].concat());
        first_value(&self.until_ready())
    }

    /// Sends from a thread of its own, so that we can read meanwhile, or not.
    pub fn send_aside(&self, bytes: Vec<u8>) -> JoinHandle<io::Result<()>> {
        let mut stream = self.stream.twin().expect("a second handle of the connection");
        thread::spawn(move || stream.write_all(&bytes))
    }

    /// Says no more, but still listens. The other side may have closed already.
    pub fn half_close_if_open(&self) {
        let _ = self.stream.half_close();
    }
}

/// The first value among messages, or the first error.
pub fn first_value(messages: &[Message]) -> Result<String, Failure> {
    for message in messages {
        match message.tag {
            b'D' => return Ok(message.row()[0].clone().unwrap_or_default()),
            b'E' => return Err(message.failure()),
            _ => {}
        }
    }
    Ok(String::new())
}

/// The tags of messages; parameters and notices left out.
pub fn tags(messages: &[Message]) -> String {
    messages.iter().map(|message| message.tag as char).filter(|tag| !matches!(tag, 'S' | 'N')).collect()
}

fn lost(cause: &str) -> Failure {
    Failure { sqlstate: "lost".into(), message: cause.into(), ..Failure::default() }
}
