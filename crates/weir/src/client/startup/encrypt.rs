//! A client's TLS: requested by a PostgreSQL packet, or direct.

use super::ClientLogin;
use crate::log::{Level, LogOrigin};
use crate::runtime::tls_files::certificate::subject;
use weir_io::reactor::parked;
use weir_io::tls::{TlsSession, explain};
use weir_session::fault::{ErrorReport, sqlstate};
use weir_session::metrics::WorkerCounter;

/// First byte of a TLS handshake; no valid packet length begins with it.
const HANDSHAKE: u8 = 0x16;

impl ClientLogin<'_> {
    /// As in PostgreSQL no TLS over unix sockets.
    pub(super) fn can_encrypt(&self) -> bool {
        self.peer.is_some() && !self.socket.is_encrypted() && self.w.shared.files.tls.load().server.is_some()
    }

    /// Begins direct TLS. False: the connection is unusable.
    pub(super) async fn begin_encrypted(&mut self) -> Result<bool, ErrorReport> {
        if self.buffer.first() != Some(&HANDSHAKE) {
            return Ok(true);
        }
        if !self.can_encrypt() {
            self.tell("received a direct TLS connection request, but TLS is not to be had here (parameter ssl)");
            return Ok(false);
        }
        if !Box::pin(self.encrypt()).await {
            return Ok(false);
        }
        // Without ALPN the protocol could be mistaken. Source: PostgreSQL manual, "Protocol Flow".
        if self.socket.look_at_tls(TlsSession::has_alpn) != Some(true) {
            let text = "received direct TLS connection request without ALPN protocol negotiation extension";
            return Err(ErrorReport::fatal(sqlstate::PROTOCOL_VIOLATION, text));
        }
        Ok(true)
    }

    /// False: failed, with the cause in the log.
    pub(super) async fn encrypt(&mut self) -> bool {
        let Some(side) = self.w.shared.files.tls.load().server.clone() else { return false };
        if self.buffer.is_empty() {
            // An error shows again at the handshake.
            let _ = self.wait_for_bytes().await;
        }
        while !self.w.takes_handshake() {
            self.w.reactor.wake(self.w.reactor.current_task());
            parked().await;
        }
        let early = std::mem::take(&mut self.buffer);
        let begun = match TlsSession::server(side.config) {
            Ok(tls) => self.socket.begin_tls(&self.w.reactor, tls, &early, self.deadline).await,
            Err(cause) => Err(cause),
        };
        if let Err(cause) = begun {
            self.w.count(WorkerCounter::TlsFailed);
            self.tell(&format!("could not begin TLS: {}", explain(&cause)));
            return false;
        }
        self.w.count(WorkerCounter::TlsClients);
        let names = self.socket.look_at_tls(|tls| tls.peer_certificate().map(subject));
        self.tls = Some(names.flatten().unwrap_or_default());
        self.end_point = side.end_point;
        true
    }

    pub(super) fn tell(&self, what: &str) {
        let place = self.place();
        let who = LogOrigin { client: &place, ..LogOrigin::default() };
        self.w.shared.log.write(Level::Log, &who, format_args!("connection from {place}: {what}"));
    }
}
