//! TLS: one connection's state, between plain bytes and those on the wire. Sockets are in `socket`; keys and trusted
//! authorities come with the configuration of rustls.
//!
//! rustls does the protocol. This module decides how much is taken at once, and knows the peer by its handshake.

mod tls_fault;

pub use crate::tls::tls_fault::explain;

use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, Connection, ServerConfig, ServerConnection};
use std::io::{self, Read, Write};
use std::sync::Arc;

/// The name of our protocol in TLS. Source: PostgreSQL manual, "Protocol Flow", `ALPN`.
pub const ALPN: &[u8] = b"postgresql";

/// Plain bytes taken before the ciphertext of those before has left: three records.
const TAKEN_BYTES_MAX: usize = 3 << 14;

/// The state of one connection's TLS session.
pub struct TlsSession {
    connection: Connection,
    /// Plain bytes whose ciphertext has not all left. They count as written when it has, so that the caller offers them again.
    promised: usize,
    /// Nothing more will be decrypted.
    ended: bool,
}

/// Result of a read of plain bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlaintextRead {
    /// `more`: there is more to be had without anything arriving.
    Bytes { bytes: usize, more: bool },
    /// More must arrive.
    Nothing,
    /// The peer sends no more.
    End,
}

impl TlsSession {
    /// Our side of a session in which we are the server.
    pub fn server(config: Arc<ServerConfig>) -> io::Result<TlsSession> {
        ServerConnection::new(config).map(|connection| TlsSession::new(connection.into())).map_err(io::Error::other)
    }

    /// Our side of a session in which we are the client of a host.
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

    /// Ciphertext waits to be sent.
    pub fn wants_write(&self) -> bool {
        self.connection.wants_write()
    }

    /// The certificate the peer has shown and we have accepted.
    pub fn peer_certificate(&self) -> Option<&CertificateDer<'static>> {
        self.connection.peer_certificates().and_then(<[_]>::first)
    }

    /// True if both sides agreed on our protocol's name.
    pub fn has_alpn(&self) -> bool {
        self.connection.alpn_protocol() == Some(ALPN)
    }

    /// Takes one read's worth of ciphertext from `wire`. False at the end of the peer's bytes. Error: also `WouldBlock`, and
    /// breaches of the protocol; an alert that says so may then wait to be sent.
    pub fn take_in(&mut self, wire: &mut dyn Read) -> io::Result<bool> {
        let bytes = self.connection.read_tls(wire)?;
        let state = self.connection.process_new_packets().map_err(|cause| io::Error::new(io::ErrorKind::InvalidData, cause))?;
        self.ended |= state.peer_has_closed() || bytes == 0;
        Ok(bytes > 0)
    }

    /// Decrypts, and takes the ciphertext that it needs from `wire`.
    pub fn read(&mut self, wire: &mut dyn Read, buffer: &mut [u8]) -> io::Result<PlaintextRead> {
        if buffer.is_empty() {
            return Ok(PlaintextRead::Nothing);
        }
        loop {
            match self.connection.reader().read(buffer) {
                Ok(0) => return Ok(PlaintextRead::End),
                Ok(bytes) => return Ok(PlaintextRead::Bytes { bytes, more: bytes == buffer.len() || self.ended }),
                // A peer that does not say goodbye has left all the same; messages have lengths, so that nothing can be cut off unseen.
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

    /// Encrypts as much of two pieces as fits; returns that length.
    pub fn encrypt(&mut self, first: &[u8], second: &[u8]) -> io::Result<usize> {
        let mut writer = self.connection.writer();
        let mut taken = writer.write(first)?;
        if taken == first.len() {
            taken += writer.write(second)?;
        }
        Ok(taken)
    }

    /// Moves all ciphertext into `out`.
    pub fn move_out(&mut self, out: &mut Vec<u8>) -> io::Result<()> {
        while self.connection.wants_write() {
            self.connection.write_tls(out)?;
        }
        Ok(())
    }

    /// Sends ciphertext until none is left. Error: also `WouldBlock`.
    pub fn send_out(&mut self, wire: &mut dyn Write) -> io::Result<()> {
        while self.connection.wants_write() {
            if self.connection.write_tls(wire)? == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
        }
        Ok(())
    }

    /// Encrypts and sends. Plain bytes count as taken only when all of their ciphertext has left. Until then the result is 0,
    /// and the same bytes must be offered again, more behind them if there are.
    pub fn write_through(&mut self, wire: &mut dyn Write, first: &[u8], second: &[u8]) -> io::Result<usize> {
        self.send_out(wire)?;
        if self.promised == 0 {
            self.promised = self.encrypt(first, second)?;
            self.send_out(wire)?;
        }
        Ok(std::mem::take(&mut self.promised))
    }

    /// Says goodbye, as soon as it is sent; no goodbye before the handshake.
    pub fn close(&mut self) {
        if !self.connection.is_handshaking() {
            self.connection.send_close_notify();
        }
    }
}
