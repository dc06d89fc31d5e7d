//! Logins of Weir to servers.

use crate::runtime::bounds;
use crate::runtime::key_derivation;
use crate::runtime::pool::server_conn::{MessageConn, SlowAnswerError};
use crate::runtime::pool::server_conn::{Notices, OpenError, ServerAddress, ServerLogin, flooded, note};
use crate::runtime::tls_files::certificate::end_point;
use crate::runtime::worker::Worker;
use weir_config::ChannelBinding;
use weir_config::passwd::{PasswordDemand, UserSecret};
use weir_session::reports::ReportedParameters;
use weir_wire::back::{self as server, AuthRequest};
use weir_wire::frame::{back, front};
use weir_wire::gather::GatherBudget;
use weir_wire::md5::Md5Secret;
use weir_wire::scram::{
    ClientSecret, MECHANISM, MECHANISM_PLUS, SaltedKeys, ScramBinding, ScramChallenge, ScramClient, ScramNonce,
};
use weir_wire::startup_packet::ProtocolVersion;
use weir_wire::write;
use zeroize::Zeroizing;

const ANSWER_BYTES: usize = 1024;

pub struct ServerGreeting {
    pub(crate) pid: u32,
    pub(crate) key: Vec<u8>,
    pub(super) reported: ReportedParameters,
    pub(super) notices: Notices,
    pub(super) protocol: ProtocolVersion,
    pub(crate) asked: ServerAsked,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerAsked {
    /// The server has judged no password.
    Nothing,
    /// A proof, which the server has accepted.
    Proof,
}

impl ServerGreeting {
    pub fn reported(&self, name: &str) -> Option<&str> {
        self.reported.iter().find(|(known, _)| **known == *name).map(|(_, value)| value)
    }
}

const NOTICES_BYTES_MAX: usize = 16 << 10;

const WORDS_BYTES_MAX: usize = 8 << 10;

pub fn keep_notice(kept: &mut Vec<u8>, body: &[u8]) {
    if kept.len() + body.len() <= NOTICES_BYTES_MAX {
        write::message(kept, back::NOTICE, |out| out.extend_from_slice(body));
    }
}

/// Connection properties on which a proof depends.
#[derive(Clone, Debug, Default)]
pub struct LoginChannel {
    pub(crate) is_encrypted: bool,
    /// Certificate hash for channel binding.
    pub(crate) end_point: Option<Vec<u8>>,
}

pub enum LoginStep {
    Wait,
    Send(Zeroizing<Vec<u8>>),
    /// Derive keys, which takes long, and pass them to `LoginHandshake::derived`.
    Derive(Zeroizing<Vec<u8>>, ScramChallenge),
    Done,
}

/// A login without its socket.
pub struct LoginHandshake<'a> {
    proof: LoginProof<'a>,
    greeting: ServerGreeting,
    /// Challenge for which keys must be derived.
    challenged: Vec<u8>,
}

impl<'a> LoginHandshake<'a> {
    /// Returns the bytes to send first.
    pub fn begin(
        address: &'a ServerAddress,
        login: &'a ServerLogin<'a>,
        wish: ChannelBinding,
        channel: LoginChannel,
    ) -> (LoginHandshake<'a>, Vec<u8>) {
        let mut out = Vec::with_capacity(256);
        let who = [("user", login.user), ("database", login.database)];
        write::startup(&mut out, ProtocolVersion::V3_2, who.into_iter().chain(login.parameters.iter().copied()));
        let (reported, notices) = (ReportedParameters::default(), Notices::default());
        let greeting = ServerGreeting {
            pid: 0,
            key: Vec::new(),
            reported,
            notices,
            protocol: ProtocolVersion::V3_2,
            asked: ServerAsked::Nothing,
        };
        let asked = GatherBudget::new(bounds::AUTHENTICATION);
        let proof = LoginProof { address, login, wish, channel, asked, scram: None, is_bound: false, is_proved: false };
        (LoginHandshake { proof, greeting, challenged: Vec::new() }, out)
    }

    pub fn on_message(&mut self, tag: u8, body: &[u8], random: impl FnOnce() -> [u8; 18]) -> Result<LoginStep, OpenError> {
        let (address, greeting) = (self.proof.address, &mut self.greeting);
        match tag {
            back::AUTHENTICATION => {
                let step = self.proof.answer(body, random)?;
                if !matches!(step, LoginStep::Wait) {
                    greeting.asked = ServerAsked::Proof;
                }
                if let (LoginStep::Derive(..), Some(AuthRequest::SaslContinue(message))) = (&step, server::read_auth(body)) {
                    self.challenged = message.to_vec();
                }
                return Ok(step);
            }
            back::NEGOTIATE_VERSION => {
                let newest =
                    body.first_chunk::<4>().map_or(ProtocolVersion::V3_0, |word| ProtocolVersion(u32::from_be_bytes(*word)));
                greeting.protocol = newest;
            }
            back::BACKEND_KEY_DATA => {
                if let Some((pid, key)) = server::read_key(body) {
                    greeting.pid = pid;
                    greeting.key = key.to_vec();
                }
            }
            back::PARAMETER_STATUS => note(&mut greeting.reported, address, body)?,
            back::ERROR => return Err(refused(address, body)),
            back::NOTICE if greeting.key.is_empty() => keep_notice(&mut greeting.notices.early, body),
            back::NOTICE => keep_notice(&mut greeting.notices.late, body),
            back::READY => return Ok(LoginStep::Done),
            other => return Err(protocol(address, format!("unexpected message \"{}\" during login", other.escape_ascii()))),
        }
        Ok(LoginStep::Wait)
    }

    /// Takes the keys of `LoginStep::Derive`, and returns the bytes to send.
    pub fn derived(&mut self, keys: Result<SaltedKeys, SlowAnswerError>) -> Result<Zeroizing<Vec<u8>>, OpenError> {
        let user = self.proof.login.user;
        let keys = keys.map_err(|cause| OpenError::Keys { address: self.proof.address.clone(), user: user.into(), cause })?;
        let challenged = std::mem::take(&mut self.challenged);
        self.proof.prove(&challenged, Some(keys))
    }

    pub fn finish(self) -> ServerGreeting {
        self.greeting
    }
}

/// Logs in over a new connection. Not cancel safe: the server would wait for the rest.
pub async fn log_in(
    w: &Worker,
    talk: &mut MessageConn,
    address: &ServerAddress,
    login: &ServerLogin<'_>,
) -> Result<ServerGreeting, OpenError> {
    let end_point = talk.socket.look_at_tls(|tls| tls.peer_certificate().and_then(end_point)).flatten();
    let channel = LoginChannel { is_encrypted: talk.socket.is_encrypted(), end_point };
    let wish = w.peek_config().tls.binding;
    let (mut handshake, first) = LoginHandshake::begin(address, login, wish, channel);
    talk.ask_for(w, address, &first, &bounds::LOGIN).await?;
    loop {
        let (tag, body) = talk.next(w, address).await?;
        match handshake.on_message(tag, &body, || w.random())? {
            LoginStep::Wait => {}
            LoginStep::Send(answer) => talk.send(w, address, &answer).await?,
            LoginStep::Derive(password, challenge) => {
                let keys = key_derivation::keys(w, &password, challenge, Some(talk.deadline())).await;
                talk.send(w, address, &handshake.derived(keys)?).await?;
            }
            LoginStep::Done => return Ok(handshake.finish()),
        }
    }
}

/// Returns a server's refusal. A missing SQLSTATE or text is filled in, because drivers need both.
pub fn refused(address: &ServerAddress, body: &[u8]) -> OpenError {
    let report = server::read_report(body);
    // Cut, because clients and the log may get the words repeatedly.
    let text = |bytes: &[u8]| String::from_utf8_lossy(&bytes[..bytes.len().min(WORDS_BYTES_MAX)]).into_owned();
    let is_state = report.sqlstate.len() == 5 && report.sqlstate.iter().all(u8::is_ascii_alphanumeric);
    let sqlstate = if is_state { text(report.sqlstate) } else { weir_session::fault::sqlstate::CONNECTION_FAILURE.to_string() };
    let message = match report.message {
        b"" => "the server gave no reason".to_string(),
        message => text(message),
    };
    OpenError::Refused { address: address.clone(), sqlstate, message }
}

pub fn protocol(address: &ServerAddress, what: impl Into<String>) -> OpenError {
    OpenError::Protocol { address: address.clone(), what: what.into() }
}

struct LoginProof<'a> {
    address: &'a ServerAddress,
    login: &'a ServerLogin<'a>,
    wish: ChannelBinding,
    channel: LoginChannel,
    asked: GatherBudget,
    scram: Option<ScramClient>,
    is_bound: bool,
    /// True once the server has shown that it knows the user's keys.
    is_proved: bool,
}

impl LoginProof<'_> {
    fn answer(&mut self, body: &[u8], random: impl FnOnce() -> [u8; 18]) -> Result<LoginStep, OpenError> {
        self.asked.take(body.len()).map_err(|cause| flooded(self.address, cause))?;
        // Large enough not to move: it may hold a password.
        let mut out = Zeroizing::new(Vec::with_capacity(ANSWER_BYTES));
        let request = server::read_auth(body).ok_or_else(|| self.protocol("malformed authentication request"))?;
        self.check_binding(&request)?;
        match request {
            // A server that leaves SCRAM before its end does not know the keys.
            AuthRequest::Ok if self.scram.is_some() && !self.is_proved => return Err(self.protocol("SCRAM ended before its end")),
            AuthRequest::Ok => return Ok(LoginStep::Wait),
            AuthRequest::Cleartext => {
                if let UserSecret::Plain(password) = self.secret(PasswordDemand::Cleartext, "a password")? {
                    write::message(&mut out, front::PASSWORD, |out| write::cstr(out, password));
                }
            }
            AuthRequest::Md5 { salt } => {
                let secret = match self.secret(PasswordDemand::Md5, "md5")? {
                    UserSecret::Plain(password) => Md5Secret::from_password(password, self.login.user.as_bytes()),
                    UserSecret::Md5(secret) => secret.clone(),
                    UserSecret::Scram(_) | UserSecret::Keys(..) => return Err(self.protocol("no md5 secret")),
                };
                write::message(&mut out, front::PASSWORD, |out| write::cstr(out, &secret.response(salt)));
            }
            AuthRequest::Sasl(mechanisms) => {
                let (mechanism, binding) = self.mechanism(&mechanisms)?;
                let secret = match self.secret(PasswordDemand::Scram, "scram-sha-256")? {
                    UserSecret::Plain(password) => ClientSecret::Password(password.clone()),
                    UserSecret::Keys(_, keys) => ClientSecret::Keys(keys.clone()),
                    UserSecret::Md5(_) | UserSecret::Scram(_) => return Err(self.protocol("no password")),
                };
                let nonce = ScramNonce::from_random(&random());
                let (client, first) = ScramClient::new(secret, &nonce, binding);
                self.scram = Some(client);
                write::message(&mut out, front::PASSWORD, |out| {
                    write::cstr(out, mechanism.as_bytes());
                    out.extend((first.len() as u32).to_be_bytes());
                    out.extend(first);
                });
            }
            AuthRequest::SaslContinue(message) => {
                if let UserSecret::Plain(password) = self.secret(PasswordDemand::Scram, "scram-sha-256")? {
                    let client = self.scram.as_ref().ok_or_else(|| self.protocol("SASL out of order"))?;
                    let challenge = client.challenge(message).map_err(|e| self.protocol(e.to_string()))?;
                    return Ok(LoginStep::Derive(password.clone(), challenge));
                }
                out = self.prove(message, None)?;
            }
            AuthRequest::SaslFinal(message) => {
                let client = self.scram.as_mut().ok_or_else(|| protocol(self.address, "SASL out of order"))?;
                client.on_server_final(message).map_err(|e| protocol(self.address, e.to_string()))?;
                self.is_proved = true;
                return Ok(LoginStep::Wait);
            }
            AuthRequest::Other(code) => {
                let reason = format!("the server asks for authentication method {code}, which is not supported");
                return Err(self.cannot(reason));
            }
        }
        Ok(LoginStep::Send(out))
    }

    /// Chooses a SASL mechanism, with channel binding where possible. Source: `pg_SASL_init` in PostgreSQL's fe-auth.c.
    fn mechanism(&mut self, offered: &[&[u8]]) -> Result<(&'static str, ScramBinding), OpenError> {
        let has = |name: &str| offered.contains(&name.as_bytes());
        let wish = self.wish;
        if has(MECHANISM_PLUS) && !self.channel.is_encrypted {
            // Only a man in the middle could have relayed that offer.
            return Err(self.protocol("the server offered SCRAM-SHA-256-PLUS over a connection without TLS"));
        }
        match self.channel.end_point.clone().filter(|_| wish != ChannelBinding::Disable) {
            Some(hash) if has(MECHANISM_PLUS) => {
                self.is_bound = true;
                Ok((MECHANISM_PLUS, ScramBinding::EndPoint(hash)))
            }
            _ if wish == ChannelBinding::Require => {
                Err(self.cannot("backend_channel_binding = require, and the server offers no SCRAM-SHA-256-PLUS over TLS".into()))
            }
            // Lets a server that offered SCRAM-SHA-256-PLUS detect that the offer was removed.
            Some(_) if has(MECHANISM) => Ok((MECHANISM, ScramBinding::Unused)),
            None if has(MECHANISM) => Ok((MECHANISM, ScramBinding::None)),
            Some(_) | None => Err(self.protocol("the server offers no SASL mechanism that is supported here")),
        }
    }

    /// Where channel binding is required, refuses any other login before anything is sent.
    fn check_binding(&self, request: &AuthRequest<'_>) -> Result<(), OpenError> {
        let is_right = match request {
            AuthRequest::Sasl(_) | AuthRequest::SaslContinue(_) | AuthRequest::SaslFinal(_) => true,
            AuthRequest::Ok => self.is_bound && self.is_proved,
            AuthRequest::Cleartext | AuthRequest::Md5 { .. } | AuthRequest::Other(_) => false,
        };
        if !is_right && self.wish == ChannelBinding::Require {
            let reason = "backend_channel_binding = require, and the server asks for another login than SCRAM-SHA-256-PLUS";
            return Err(self.cannot(reason.into()));
        }
        Ok(())
    }

    fn prove(&mut self, message: &[u8], derived: Option<SaltedKeys>) -> Result<Zeroizing<Vec<u8>>, OpenError> {
        let mut client = self.scram.take().ok_or_else(|| self.protocol("SASL out of order"))?;
        let challenge = client.challenge(message).map_err(|e| self.protocol(e.to_string()))?;
        match (self.secret(PasswordDemand::Scram, "scram-sha-256")?, derived) {
            (UserSecret::Plain(_), Some(keys)) => client.use_keys(keys),
            // Keys belong to one salt. Under another one they would look like a wrong password.
            (UserSecret::Keys(known, _), _) if *known != challenge => {
                let user = self.login.user;
                let reason =
                    format!("the server has another scram verifier for user \"{user}\" than the one the client proved itself by");
                return Err(self.cannot(reason));
            }
            (UserSecret::Plain(_) | UserSecret::Keys(..) | UserSecret::Md5(_) | UserSecret::Scram(_), _) => {}
        }
        let last = client.on_server_first(message).map_err(|e| self.protocol(e.to_string()))?;
        self.scram = Some(client);
        let mut out = Zeroizing::new(Vec::with_capacity(ANSWER_BYTES));
        write::message(&mut out, front::PASSWORD, |out| out.extend(last));
        Ok(out)
    }

    fn secret(&self, asked: PasswordDemand, method: &str) -> Result<&UserSecret, OpenError> {
        let user = self.login.user;
        let reason = match self.login.secret {
            None => {
                format!("the server asks for {method}, and user \"{user}\" has no entry in pool_passwd and has proved nothing")
            }
            Some(secret) => match secret.refusal(asked) {
                None => return Ok(secret),
                Some(why) => format!("the server asks for {method}, but {why} (user \"{user}\")"),
            },
        };
        Err(self.cannot(reason))
    }

    fn cannot(&self, reason: String) -> OpenError {
        OpenError::Secret { address: self.address.clone(), reason }
    }

    fn protocol(&self, what: impl Into<String>) -> OpenError {
        protocol(self.address, what)
    }
}
