//! TLS state of a connection.
//!
//! rustls does the protocol; this module bounds what is taken at once and identifies the peer.

mod tls_fault;

pub use crate::tls::tls_fault::explain;

use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, Connection, ServerConfig, ServerConnection};
use std::io::{self, Read, Write};
use std::sync::Arc;

/// Source: PostgreSQL manual, "Protocol Flow", `ALPN`.
pub const ALPN: &[u8] = b"postgresql";

/// Limit of plaintext whose ciphertext is unsent: three records.
const TAKEN_BYTES_MAX: usize = 3 << 14;

pub struct TlsSession {
    connection: Connection,
    /// Plain bytes with unsent ciphertext, which the caller offers again.
    promised: usize,
    ended: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlaintextRead {
    /// `more`: another read returns bytes without an arrival.
    Bytes {
        bytes: usize,
        more: bool,
    },
    Nothing,
    End,
}

impl TlsSession {
    pub fn server(config: Arc<ServerConfig>) -> io::Result<TlsSession> {
        ServerConnection::new(config).map(|connection| TlsSession::new(connection.into())).map_err(io::Error::other)
    }

    pub fn towards(config: Arc<ClientConfig>, host: ServerName<'static>) -> io::Result<TlsSession> {
        ClientConnection::new(config, host).map(|connection| TlsSession::new(connection.into())).map_err(io::Error::other)
    }

    fn new(mut connection: Connection) -> TlsSession {
        connection.set_buffer_limit(Some(TAKEN_BYTES_MAX));
        TlsSession { connection, promised: 0, ended: false }
    }

    pub fn is_handshaking(&self) -> bool {
        self.connection.is_handshaking()
    }

    pub fn wants_write(&self) -> bool {
        self.connection.wants_write()
    }

    pub fn peer_certificate(&self) -> Option<&CertificateDer<'static>> {
        self.connection.peer_certificates().and_then(<[_]>::first)
    }

    pub fn has_alpn(&self) -> bool {
        self.connection.alpn_protocol() == Some(ALPN)
    }

    /// False at the end. Error: also `WouldBlock`, and protocol violations, with an alert to send.
    pub fn take_in(&mut self, wire: &mut dyn Read) -> io::Result<bool> {
        let bytes = self.connection.read_tls(wire)?;
        let state = self.connection.process_new_packets().map_err(|cause| io::Error::new(io::ErrorKind::InvalidData, cause))?;
        self.ended |= state.peer_has_closed() || bytes == 0;
        Ok(bytes > 0)
    }

    /// Decrypts, reading ciphertext as needed.
    pub fn read(&mut self, wire: &mut dyn Read, buffer: &mut [u8]) -> io::Result<PlaintextRead> {
        if buffer.is_empty() {
            return Ok(PlaintextRead::Nothing);
        }
        loop {
            match self.connection.reader().read(buffer) {
                Ok(0) => return Ok(PlaintextRead::End),
                Ok(bytes) => return Ok(PlaintextRead::Bytes { bytes, more: bytes == buffer.len() || self.ended }),
                // Messages have lengths, so truncation is noticed without a close alert.
                Err(cause) if cause.kind() == io::ErrorKind::UnexpectedEof => return Ok(PlaintextRead::End),
                Err(cause) if cause.kind() == io::ErrorKind::WouldBlock => {}
                Err(cause) => return Err(cause),
            }
            match self.take_in(wire) {
                Ok(_) => {}
                Err(cause) if cause.kind() == io::ErrorKind::WouldBlock => return Ok(PlaintextRead::Nothing),
                Err(cause) => return Err(cause),
            }
        }
    }

    pub fn encrypt(&mut self, first: &[u8], second: &[u8]) -> io::Result<usize> {
        let mut writer = self.connection.writer();
        let mut taken = writer.write(first)?;
        if taken == first.len() {
            taken += writer.write(second)?;
        }
        Ok(taken)
    }

    pub fn move_out(&mut self, out: &mut Vec<u8>) -> io::Result<()> {
        while self.connection.wants_write() {
            self.connection.write_tls(out)?;
        }
        Ok(())
    }

    pub fn send_out(&mut self, wire: &mut dyn Write) -> io::Result<()> {
        while self.connection.wants_write() {
            if self.connection.write_tls(wire)? == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
        }
        Ok(())
    }

    /// Plain bytes count as taken once all ciphertext has left. Until then returns 0; the same bytes, or more after them, must
    /// be offered again.
    pub fn write_through(&mut self, wire: &mut dyn Write, first: &[u8], second: &[u8]) -> io::Result<usize> {
        self.send_out(wire)?;
        if self.promised == 0 {
            self.promised = self.encrypt(first, second)?;
            self.send_out(wire)?;
        }
        Ok(std::mem::take(&mut self.promised))
    }

    /// Queues a close alert; none before the handshake.
    pub fn close(&mut self) {
        if !self.connection.is_handshaking() {
            self.connection.send_close_notify();
        }
    }
}
