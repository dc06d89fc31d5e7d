//! The user of a PCP connection, and the proof.

use super::PcpUserFile;
use crate::auth::guesses::{CROWD_PERIOD, ProofOrigin, ProofPermit, ProofTurn};
use crate::auth::throttle::ProofVerdict;
use crate::control::control_context::ControlContext;
use crate::log::Level;
use std::rc::Rc;
use std::sync::Arc;
use weir_session::metrics::WorkerCounter;
use weir_wire::pcp_protocol::{PcpReply, PcpReplyCode, PcpReport, PcpRequest, PcpSeverity, SALT_BYTES};

/// Prefix that counts failed PCP logins apart from the database user of the same name.
const COUNTED_AS: &str = "pcp/";

pub struct PcpLogin {
    book: Arc<PcpUserFile>,
    origin: ProofOrigin,
    standing: PcpLoginState,
}

enum PcpLoginState {
    Stranger,
    Salted([u8; SALT_BYTES]),
    Known(String),
}

pub enum PcpAdmission {
    Known,
    /// Answered: part of the login.
    Said(PcpReply),
    Refused(PcpReport),
}

impl PcpLogin {
    pub fn new(book: Arc<PcpUserFile>, origin: ProofOrigin) -> PcpLogin {
        PcpLogin { book, origin, standing: PcpLoginState::Stranger }
    }

    pub fn is_known(&self) -> bool {
        matches!(self.standing, PcpLoginState::Known(_))
    }

    pub fn describe(&self) -> String {
        let place = self.place();
        match &self.standing {
            PcpLoginState::Known(user) => format!("user \"{}\" from {place}", user.escape_debug()),
            PcpLoginState::Stranger | PcpLoginState::Salted(_) => format!("somebody from {place}"),
        }
    }

    /// Cancel safe.
    pub async fn admit(&mut self, c: &Rc<ControlContext>, request: &PcpRequest) -> PcpAdmission {
        match (request, &self.standing) {
            (PcpRequest::Salt, _) => {
                let salt = crate::random();
                // A known user must log in again.
                self.standing = PcpLoginState::Salted(salt);
                PcpAdmission::Said(PcpReply::Salt(salt))
            }
            (PcpRequest::Login { user, answer }, PcpLoginState::Salted(salt)) => {
                let salt = *salt;
                // A salt is good for one proof.
                self.standing = PcpLoginState::Stranger;
                match self.prove(c, user, salt, answer).await {
                    Ok(()) => {
                        self.standing = PcpLoginState::Known(String::from_utf8_lossy(user).into_owned());
                        PcpAdmission::Said(PcpReply::of(b'r', PcpReplyCode::LoggedIn, [""; 0]))
                    }
                    Err(fault) => PcpAdmission::Refused(fault),
                }
            }
            (PcpRequest::Login { .. }, PcpLoginState::Stranger | PcpLoginState::Known(_)) => {
                PcpAdmission::Refused(PcpReport::new(PcpSeverity::Fatal, "authentication failed").detail("no salt was asked for"))
            }
            (_, PcpLoginState::Known(_)) => PcpAdmission::Known,
            (_, PcpLoginState::Stranger | PcpLoginState::Salted(_)) => PcpAdmission::Refused(
                PcpReport::new(PcpSeverity::Fatal, "authentication failed for new PCP connection")
                    .detail("connection not authorized"),
            ),
        }
    }

    /// Gives the same error for an unknown user and a wrong password. Cancel safe: an interrupted proof counts as wrong.
    async fn prove(&self, c: &Rc<ControlContext>, user: &[u8], salt: [u8; SALT_BYTES], answer: &[u8]) -> Result<(), PcpReport> {
        let name = String::from_utf8_lossy(user).into_owned();
        let guess = self.take_place(c, &name).await?;
        if self.is_right(c, user, salt, answer).await {
            guess.settle(ProofVerdict::Right);
            return Ok(());
        }
        guess.settle(ProofVerdict::Wrong);
        c.count(WorkerCounter::PcpLoginsFailed);
        let place = self.place();
        c.shared
            .log
            .say(Level::Warning, format_args!("PCP: authentication failed for user \"{}\" from {place}", name.escape_debug()));
        let text = format!("authentication failed for user \"{name}\"");
        Err(PcpReport::new(PcpSeverity::Fatal, text).detail("username and/or password does not match"))
    }

    /// Waits as long as earlier wrong proofs demand. Cancel safe as `prove`.
    async fn take_place(&self, c: &Rc<ControlContext>, name: &str) -> Result<ProofPermit, PcpReport> {
        let guesses = &c.shared.access.guesses;
        let burst = c.shared.config.load().auth.failures_max;
        let visitor = guesses.visitor(self.origin, &format!("{COUNTED_AS}{name}"));
        loop {
            match guesses.take(visitor, burst) {
                ProofTurn::Judge(guess, wait) => {
                    tokio::time::sleep(wait).await;
                    return Ok(guess);
                }
                ProofTurn::Crowded => tokio::time::sleep(CROWD_PERIOD).await,
                ProofTurn::Refused(wait_s) => {
                    return Err(PcpReport::new(PcpSeverity::Fatal, format!("too many failed logins, try again in {wait_s} s")));
                }
            }
        }
    }

    fn place(&self) -> String {
        match self.origin {
            ProofOrigin::Address(peer) => peer.to_string(),
            ProofOrigin::Local(_) => "[local]".to_string(),
        }
    }

    /// Reads the current file on another thread. Cancel safe.
    async fn is_right(&self, c: &ControlContext, user: &[u8], salt: [u8; SALT_BYTES], answer: &[u8]) -> bool {
        let (user, answer, shared, book) = (user.to_vec(), answer.to_vec(), c.shared.clone(), self.book.clone());
        let judge = move || book.read(&shared.log).verify(&user, salt, &answer);
        tokio::task::spawn_blocking(judge).await.unwrap_or(false)
    }
}
