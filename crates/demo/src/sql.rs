//! A client of a few lines: trust login and simple queries, so that no `psql` is needed.
//!
//! Source: PostgreSQL manual, "Message Formats". Deliberately its own reader, not `weir-wire`: what tests the proxy
//! must not share the proxy's mistakes.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

/// One row: the text of each column, `None` for NULL.
pub type Row = Vec<Option<String>>;

/// A server that says nothing for this long is taken for dead; no statement we send takes half as long.
const READ_LIMIT: Duration = Duration::from_secs(120);
/// Longest message we accept: far above any row of a test, far below what would hurt.
const BODY_BYTES_MAX: usize = 64 << 20;
/// Protocol 3.0.
const PROTOCOL: i32 = 3 << 16;

/// A server's ErrorResponse; found in the `anyhow::Error` by `downcast_ref`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SqlError {
    /// ERROR, FATAL or PANIC.
    pub severity: String,
    /// Five characters, for example 57P03.
    pub sqlstate: String,
    /// The message.
    pub message: String,
}

impl fmt::Display for SqlError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} {}: {}", self.severity, self.sqlstate, self.message)
    }
}

impl std::error::Error for SqlError {}

trait Stream: Read + Write + Send {}
impl<T: Read + Write + Send> Stream for T {}

/// One connection. Dropping it says goodbye.
pub struct Sql {
    stream: Box<dyn Stream>,
    limit: Duration,
}

impl fmt::Debug for Sql {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Sql")
    }
}

impl Sql {
    /// Connects to the unix socket of `port` in `folder`. Only trust authentication is understood.
    pub fn connect_unix(folder: &Path, port: u16, user: &str, database: &str) -> Result<Sql> {
        let path = folder.join(format!(".s.PGSQL.{port}"));
        let stream = UnixStream::connect(&path).with_context(|| format!("cannot connect to {}", path.display()))?;
        stream.set_read_timeout(Some(READ_LIMIT))?;
        Sql::login(Box::new(stream), user, database, READ_LIMIT)
    }

    /// Connects to a port of `host`. Only trust authentication is understood.
    pub fn connect_tcp(host: &str, port: u16, user: &str, database: &str) -> Result<Sql> {
        Sql::connect_tcp_within(host, port, user, database, READ_LIMIT)
    }

    /// As `connect_tcp`, with another limit of each wait for the server.
    pub fn connect_tcp_within(host: &str, port: u16, user: &str, database: &str, limit: Duration) -> Result<Sql> {
        let place = (host, port).to_socket_addrs()?.next().with_context(|| format!("{host} has no address"))?;
        let stream = TcpStream::connect_timeout(&place, limit).with_context(|| format!("cannot connect to {host}:{port}"))?;
        stream.set_read_timeout(Some(limit))?;
        stream.set_nodelay(true)?;
        Sql::login(Box::new(stream), user, database, limit)
    }

    /// Runs `text`, which may hold several statements, and returns the rows of the last one that returned any.
    ///
    /// Error: an [`SqlError`] if the server refused it; the connection stays usable unless that was FATAL.
    pub fn query(&mut self, text: &str) -> Result<Vec<Row>> {
        self.send(Some(b'Q'), &[text.as_bytes(), b"\0"].concat())?;
        let mut rows = Vec::new();
        let mut refused = None;
        loop {
            let (tag, body) = self.receive()?;
            match tag {
                b'T' => rows.clear(),
                b'D' => rows.push(read_row(&body)?),
                b'E' => {
                    let error = read_error(&body);
                    // After FATAL there is no ReadyForQuery: the server has closed.
                    if error.severity != "ERROR" {
                        return Err(error.into());
                    }
                    refused = Some(error);
                }
                b'Z' => return refused.map_or(Ok(rows), |error| Err(error.into())),
                b'G' | b'H' | b'W' => bail!("COPY is not supported by this client"),
                _ => {}
            }
        }
    }

    fn login(stream: Box<dyn Stream>, user: &str, database: &str, limit: Duration) -> Result<Sql> {
        let mut sql = Sql { stream, limit };
        let mut body = PROTOCOL.to_be_bytes().to_vec();
        for text in ["user", user, "database", database, "client_encoding", "UTF8"] {
            body.extend_from_slice(text.as_bytes());
            body.push(0);
        }
        body.push(0);
        sql.send(None, &body)?;
        loop {
            let (tag, body) = sql.receive()?;
            match tag {
                b'R' => ensure!(body == [0; 4], "the server asks for a password, this client knows only trust"),
                b'E' => return Err(read_error(&body).into()),
                b'Z' => return Ok(sql),
                _ => {}
            }
        }
    }

    fn send(&mut self, tag: Option<u8>, body: &[u8]) -> Result<()> {
        let length = i32::try_from(body.len() + 4).context("the statement is longer than 2 GB")?;
        let mut bytes: Vec<u8> = tag.into_iter().collect();
        bytes.extend_from_slice(&length.to_be_bytes());
        bytes.extend_from_slice(body);
        self.stream.write_all(&bytes).context("the server closed the connection")
    }

    fn receive(&mut self) -> Result<(u8, Vec<u8>)> {
        let mut header = [0; 5];
        self.stream.read_exact(&mut header).map_err(|error| explain_read(error, self.limit))?;
        let [tag, a, b, c, d] = header;
        let length = u32::from_be_bytes([a, b, c, d]) as usize;
        let body_bytes = length.checked_sub(4).filter(|bytes| *bytes <= BODY_BYTES_MAX);
        let body_bytes = body_bytes.with_context(|| format!("a message of {length} bytes is not PostgreSQL's"))?;
        let mut body = vec![0; body_bytes];
        self.stream.read_exact(&mut body).map_err(|error| explain_read(error, self.limit))?;
        Ok((tag, body))
    }
}

impl Drop for Sql {
    fn drop(&mut self) {
        // A server that is gone cannot be told; nothing depends on it.
        let _ = self.send(Some(b'X'), &[]);
    }
}

fn explain_read(error: io::Error, limit: Duration) -> anyhow::Error {
    let limit = limit.as_millis();
    match error.kind() {
        io::ErrorKind::WouldBlock => anyhow::anyhow!("waited {limit} ms for an answer of the server, limit is {limit} ms"),
        _ => anyhow::Error::new(error).context("the server closed the connection"),
    }
}

/// Reads a DataRow: a count, then for each column its length (-1 is NULL) and its bytes.
fn read_row(body: &[u8]) -> Result<Row> {
    let short = "a row is shorter than it says";
    let (count, mut rest) = body.split_first_chunk::<2>().context(short)?;
    let mut row = Row::new();
    for _ in 0..u16::from_be_bytes(*count) {
        let (length, after) = rest.split_first_chunk::<4>().context(short)?;
        let Ok(length) = usize::try_from(i32::from_be_bytes(*length)) else {
            row.push(None);
            rest = after;
            continue;
        };
        let (value, after) = after.split_at_checked(length).context(short)?;
        row.push(Some(String::from_utf8_lossy(value).into_owned()));
        rest = after;
    }
    Ok(row)
}

/// Reads an ErrorResponse: fields of one letter and a text ended by a zero byte. `V` is the severity untranslated.
fn read_error(body: &[u8]) -> SqlError {
    let mut error = SqlError { severity: String::new(), sqlstate: String::new(), message: String::new() };
    for field in body.split(|byte| *byte == 0) {
        let Some((letter, text)) = field.split_first() else { continue };
        let text = String::from_utf8_lossy(text).into_owned();
        match letter {
            b'V' => error.severity = text,
            b'C' => error.sqlstate = text,
            b'M' => error.message = text,
            _ => {}
        }
    }
    error
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_may_hold_nulls_and_empty_texts() {
        let body = b"\0\x03\xff\xff\xff\xff\0\0\0\0\0\0\0\x02ab";
        assert_eq!(read_row(body).unwrap(), [None, Some(String::new()), Some("ab".to_owned())]);
        assert!(read_row(&body[..8]).is_err());
    }

    #[test]
    fn an_error_is_read_by_its_letters() {
        let error = read_error(b"SFEHLER\0VERROR\0C42P01\0Mno such table\0\0");
        assert_eq!(error.to_string(), "ERROR 42P01: no such table");
    }
}
