//! Asks a client for a proof: md5, SCRAM, or the password itself.

use super::{ClientLogin, broke};
use std::io;
use std::time::{Duration, Instant};
use weir_io::socket::ReadOutcome;
use weir_session::fault::{ErrorReport, sqlstate};
use weir_wire::frame::{HEADER_BYTES, front, read_header, split_cstr};
use weir_wire::md5::Md5Secret;
use weir_wire::scram::{
    MECHANISM, MECHANISM_PLUS, ScramAcceptance, ScramBinding, ScramError, ScramNonce, ScramServer, ServerSecret,
};
use weir_wire::write;
use zeroize::Zeroizing;

/// Far above passwords and SCRAM messages, below `PG_MAX_AUTH_TOKEN_LENGTH` (65535).
const LOGIN_MESSAGE_BYTES_MAX: usize = 16 << 10;

/// Time between checks for a stop of the proxy.
const LOOK_PERIOD: Duration = Duration::from_secs(1);

impl ClientLogin<'_> {
    /// `None`: asks all the same, and fails.
    pub(super) async fn ask_md5(&mut self, secret: Option<&Md5Secret>) -> Result<bool, ErrorReport> {
        let salt: [u8; 4] = self.w.random();
        let mut out = Vec::with_capacity(16);
        write::authentication(&mut out, 5, &salt);
        self.send(&out).await?;
        let body = self.proof_message().await?;
        let response = body.strip_suffix(&[0]).unwrap_or(&body);
        // Computed for unknown users too, so that it takes as long.
        let nobody = Md5Secret::from_password(&self.w.shared.access.salt_secret, b"");
        let is_right = secret.unwrap_or(&nobody).verify(salt, response);
        Ok(is_right && secret.is_some())
    }

    pub(super) async fn ask_clear_text(&mut self) -> Result<Zeroizing<Vec<u8>>, ErrorReport> {
        let mut out = Vec::with_capacity(16);
        write::authentication(&mut out, 3, &[]);
        self.send(&out).await?;
        let mut body = self.proof_message().await?;
        if body.pop() != Some(0) || body.contains(&0) {
            return Err(ErrorReport::fatal(sqlstate::PROTOCOL_VIOLATION, "invalid password packet size"));
        }
        if body.is_empty() {
            // Servers refuse an empty password too; some would take it for no password.
            return Err(ErrorReport::fatal(sqlstate::INVALID_PASSWORD, "empty password returned by client"));
        }
        Ok(body)
    }

    /// `None`: wrong proof, or a user who has none.
    pub(super) async fn ask_scram(&mut self, secret: ServerSecret) -> Result<Option<ScramAcceptance>, ErrorReport> {
        let protocol = |error: ScramError| ErrorReport::fatal(sqlstate::PROTOCOL_VIOLATION, error.to_string());
        let mut out = Vec::with_capacity(128);
        // Clients take the first they support.
        let offer: &[&str] =
            if self.end_point.is_some() { &[MECHANISM_PLUS, "\0", MECHANISM, "\0\0"] } else { &[MECHANISM, "\0\0"] };
        write::authentication(&mut out, 10, offer.concat().as_bytes());
        self.send(&out).await?;
        let body = self.password_message().await?;
        let (mechanism, first) = initial_response(&body)?;
        let binding = match (mechanism, &self.end_point) {
            (MECHANISM, None) => ScramBinding::None,
            (MECHANISM, Some(_)) => ScramBinding::Unused,
            (MECHANISM_PLUS, Some(hash)) => ScramBinding::EndPoint(hash.clone()),
            _ => {
                let text = "client selected an invalid SASL authentication mechanism";
                return Err(ErrorReport::fatal(sqlstate::PROTOCOL_VIOLATION, text));
            }
        };
        let mut server = ScramServer::new(secret, ScramNonce::from_random(&self.w.random()), binding);
        let challenge = server.on_client_first(first).map_err(protocol)?;
        out.clear();
        write::authentication(&mut out, 11, &challenge);
        self.send(&out).await?;
        let body = self.proof_message().await?;
        match server.on_client_final(&body) {
            Ok(accepted) => Ok(Some(accepted)),
            Err(ScramError::Proof) => Ok(None),
            Err(other) => Err(protocol(other)),
        }
    }

    /// All proofs are read here, once they may be judged.
    async fn proof_message(&mut self) -> Result<Zeroizing<Vec<u8>>, ErrorReport> {
        let body = self.password_message().await?;
        self.take_place().await?;
        Ok(body)
    }

    async fn password_message(&mut self) -> Result<Zeroizing<Vec<u8>>, ErrorReport> {
        loop {
            let protocol = |text: String| ErrorReport::fatal(sqlstate::PROTOCOL_VIOLATION, text);
            if let Some(header) = read_header(&self.buffer).map_err(|e| protocol(e.to_string()))? {
                if header.tag != front::PASSWORD {
                    return Err(protocol(format!("expected password response, got message type {}", header.tag)));
                }
                if header.frame_bytes() > LOGIN_MESSAGE_BYTES_MAX {
                    return Err(protocol(format!("password message of {} bytes", header.frame_bytes())));
                }
                if self.buffer.len() >= header.frame_bytes() {
                    let body = Zeroizing::new(self.buffer[HEADER_BYTES..header.frame_bytes()].to_vec());
                    self.buffer.forget(header.frame_bytes());
                    self.answered_at = Some(Instant::now());
                    return Ok(body);
                }
            }
            self.read_more().await?;
        }
    }

    /// Leaves nothing in buffers: the bytes may be a password.
    pub(super) async fn read_more(&mut self) -> Result<(), ErrorReport> {
        loop {
            self.wait_for_bytes().await?;
            match self.buffer.read(&self.socket, &self.w.reactor).map_err(|e| broke(&e))? {
                ReadOutcome::Bytes(_) => return Ok(()),
                ReadOutcome::Nothing => {}
                ReadOutcome::End => return Err(broke(&io::ErrorKind::UnexpectedEof.into())),
            }
        }
    }

    /// Checks for a stop of the proxy, which a silent client must not delay.
    pub(super) async fn wait_for_bytes(&self) -> Result<(), ErrorReport> {
        loop {
            let look = self.w.now() + LOOK_PERIOD;
            let until = self.deadline.map_or(look, |deadline| deadline.min(look));
            match self.socket.readable(&self.w.reactor, Some(until)).await {
                Err(cause) if cause.kind() == io::ErrorKind::TimedOut && Some(until) != self.deadline => {}
                readable => return readable.map_err(|e| broke(&e)),
            }
            self.check_stop_at_rest()?;
        }
    }
}

fn initial_response(body: &[u8]) -> Result<(&str, &[u8]), ErrorReport> {
    let protocol = |text: &str| ErrorReport::fatal(sqlstate::PROTOCOL_VIOLATION, text);
    let malformed = || protocol("malformed SASLInitialResponse");
    let (mechanism, rest) = split_cstr(body).ok_or_else(malformed)?;
    let mechanism = std::str::from_utf8(mechanism).map_err(|_| malformed())?;
    let (length, first) = rest.split_first_chunk::<4>().ok_or_else(malformed)?;
    // A length of -1 means no response.
    if usize::try_from(u32::from_be_bytes(*length)).ok() != Some(first.len()) {
        return Err(malformed());
    }
    Ok((mechanism, first))
}
