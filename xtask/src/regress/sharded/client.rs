//! A client that keeps all of an answer, and waits for it no longer than told.
//!
//! Source: PostgreSQL manual, "Message Formats". Its own reader, as `weir_demo::Sql` is: it must not share the proxy's mistakes.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::answers::{Answer, Column, Failure, Part};

/// No answer of the suite is nearly as long.
const BODY_BYTES_MAX: usize = 256 << 20;
/// Bytes of one message with data of a COPY.
const COPY_BYTES: usize = 64 << 10;
/// Protocol 3.0.
const PROTOCOL: i32 = 3 << 16;

/// Why there is no whole answer. The connection is of no use afterwards.
#[derive(Debug, thiserror::Error)]
pub enum Lost {
    #[error("no answer within {0:?}")]
    Silent(Duration),
    #[error("the connection ended: {0}")]
    Ended(io::Error),
}

/// One connection.
pub struct Client {
    stream: TcpStream,
    limit: Duration,
}

/// An answer, and if the data of a COPY went with the text.
pub struct Heard {
    pub answer: Answer,
    pub took_data: bool,
}

impl Client {
    /// Logs in without a password. `limit`: of the wait for one whole answer.
    pub fn connect(port: u16, user: &str, database: &str, limit: Duration) -> Result<Client> {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).context("cannot connect")?;
        stream.set_nodelay(true)?;
        let mut client = Client { stream, limit };
        let mut body = PROTOCOL.to_be_bytes().to_vec();
        for text in ["user", user, "database", database, "client_encoding", "UTF8"] {
            body.extend_from_slice(text.as_bytes());
            body.push(0);
        }
        body.push(0);
        client.send(None, &body)?;
        let heard = client.hear(&[])?;
        ensure!(heard.answer.failure.is_none(), "cannot log in as {user}: {:?}", heard.answer.failure);
        Ok(client)
    }

    /// Sends a text, and the data if the server asks for them.
    pub fn ask(&mut self, text: &str, data: &[u8]) -> Result<Heard, Lost> {
        self.send(Some(b'Q'), &[text.as_bytes(), b"\0"].concat()).map_err(Lost::Ended)?;
        self.hear(data)
    }

    /// Asks, and returns all cells of the last result. Error: any failure.
    pub fn rows(&mut self, text: &str) -> Result<Vec<Vec<Option<String>>>> {
        let answer = self.ask(text, &[])?.answer;
        ensure!(answer.failure.is_none(), "{text}: {:?}", answer.failure);
        Ok(answer.parts.into_iter().next_back().map(|part| part.rows).unwrap_or_default())
    }

    /// The first cell, or nothing.
    pub fn value(&mut self, text: &str) -> Result<String> {
        Ok(self.rows(text)?.into_iter().flatten().flatten().next().unwrap_or_default())
    }

    fn hear(&mut self, data: &[u8]) -> Result<Heard, Lost> {
        let until = Instant::now() + self.limit;
        let mut heard = Heard { answer: Answer::default(), took_data: false };
        let mut part = Part::default();
        loop {
            let (tag, body) = self.receive(until)?;
            match tag {
                b'T' => part.columns = columns(&body),
                b'D' => part.rows.push(row(&body).unwrap_or_default()),
                b'd' => part.copied.extend_from_slice(&body),
                b'C' => {
                    part.tag = String::from_utf8_lossy(body.strip_suffix(b"\0").unwrap_or(&body)).into_owned();
                    heard.answer.parts.push(std::mem::take(&mut part));
                }
                b'I' => heard.answer.parts.push(std::mem::take(&mut part)),
                b'G' => {
                    heard.took_data = true;
                    self.send_data(data).map_err(Lost::Ended)?;
                }
                b'E' => {
                    let failure = failure(&body);
                    let is_fatal = failure.severity != "ERROR";
                    heard.answer.failure.get_or_insert(failure);
                    if is_fatal {
                        return Err(Lost::Ended(io::Error::other(format!("{:?}", heard.answer.failure))));
                    }
                }
                b'Z' => {
                    heard.answer.status = body.first().copied().unwrap_or_default() as char;
                    return Ok(heard);
                }
                _ => {}
            }
        }
    }

    fn send_data(&mut self, data: &[u8]) -> io::Result<()> {
        for bytes in data.chunks(COPY_BYTES) {
            self.send(Some(b'd'), bytes)?;
        }
        self.send(Some(b'c'), &[])
    }

    fn send(&mut self, tag: Option<u8>, body: &[u8]) -> io::Result<()> {
        let length = i32::try_from(body.len() + 4).map_err(io::Error::other)?;
        let head: Vec<u8> = tag.into_iter().chain(length.to_be_bytes()).collect();
        self.stream.write_all(&[&head[..], body].concat())
    }

    fn receive(&mut self, until: Instant) -> Result<(u8, Vec<u8>), Lost> {
        let mut head = [0; 5];
        self.read(&mut head, until)?;
        let [tag, a, b, c, d] = head;
        let bytes = (u32::from_be_bytes([a, b, c, d]) as usize).checked_sub(4).filter(|bytes| *bytes <= BODY_BYTES_MAX);
        let bytes = bytes.ok_or_else(|| Lost::Ended(io::Error::other("a length that cannot be")))?;
        let mut body = vec![0; bytes];
        self.read(&mut body, until)?;
        Ok((tag, body))
    }

    fn read(&mut self, out: &mut [u8], until: Instant) -> Result<(), Lost> {
        let left = until.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        self.stream.set_read_timeout(Some(left)).map_err(Lost::Ended)?;
        self.stream.read_exact(out).map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Lost::Silent(self.limit),
            _ => Lost::Ended(error),
        })
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // A server that is gone cannot be told.
        let _ = self.send(Some(b'X'), &[]);
    }
}

fn row(body: &[u8]) -> Option<Vec<Option<String>>> {
    let (count, mut rest) = body.split_first_chunk::<2>()?;
    let mut row = Vec::new();
    for _ in 0..u16::from_be_bytes(*count) {
        let (length, after) = rest.split_first_chunk::<4>()?;
        rest = after;
        row.push(match usize::try_from(i32::from_be_bytes(*length)) {
            Err(_) => None,
            Ok(length) => {
                let (value, after) = rest.split_at_checked(length)?;
                rest = after;
                Some(String::from_utf8_lossy(value).into_owned())
            }
        });
    }
    Some(row)
}

fn columns(body: &[u8]) -> Vec<Column> {
    let mut rest = body.get(2..).unwrap_or_default();
    let mut columns = Vec::new();
    while let Some(end) = rest.iter().position(|byte| *byte == 0) {
        let Some(fixed) = rest.get(end + 1..end + 19) else { break };
        let number = |at: usize| fixed[at..].first_chunk::<4>().map_or(0, |bytes| u32::from_be_bytes(*bytes));
        columns.push(Column {
            name: String::from_utf8_lossy(&rest[..end]).into_owned(),
            type_oid: number(6),
            modifier: number(12).cast_signed(),
        });
        rest = &rest[end + 19..];
    }
    columns
}

fn failure(body: &[u8]) -> Failure {
    let mut failure = Failure::default();
    for field in body.split(|byte| *byte == 0) {
        let Some((letter, text)) = field.split_first() else { continue };
        let text = String::from_utf8_lossy(text).into_owned();
        match letter {
            b'V' => failure.severity = text,
            b'C' => failure.sqlstate = text,
            b'M' => failure.message = text,
            b'D' => failure.detail = text,
            b'R' => failure.is_of_server = true,
            _ => {}
        }
    }
    failure
}
