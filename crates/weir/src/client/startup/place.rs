//! Places of a login's proofs: none is judged without one.

use super::{ClientLogin, broke};
use crate::auth::guesses::{CROWD_PERIOD, ProofOrigin, ProofPermit, ProofTurn};
use crate::auth::throttle::{ProofClient, ProofVerdict};
use crate::runtime::shared::ProxyShutdown;
use std::io;
use std::time::{Duration, Instant};
use weir_session::fault::{ErrorReport, sqlstate};
use weir_session::metrics::WorkerCounter;

/// Time from a wrong proof to its refusal. Deriving keys takes a millisecond, asking a server a few.
const REFUSAL_AFTER: Duration = Duration::from_millis(20);

pub(super) struct LoginProver {
    visitor: ProofClient,
    burst: u32,
    guess: Option<ProofPermit>,
}

impl ClientLogin<'_> {
    /// Clients that need no proof are not delayed by others' wrong ones.
    pub(super) fn claim(&mut self, user: &str) {
        let burst = self.w.peek_config().auth.failures_max;
        let visitor = self.w.shared.access.guesses.visitor(self.origin(), user);
        self.claimant = Some(LoginProver { visitor, burst, guess: None });
    }

    fn origin(&self) -> ProofOrigin {
        match self.peer {
            Some(peer) => ProofOrigin::Address(peer.ip()),
            None => ProofOrigin::Local(self.socket.peer_uid()),
        }
    }

    /// Takes a place, after the wait for earlier wrong proofs. Cancel safe: a place taken counts as a wrong proof.
    pub(super) async fn take_place(&mut self) -> Result<(), ErrorReport> {
        let guesses = self.w.shared.access.guesses.clone();
        let Some((visitor, burst)) = self.claimant.as_ref().map(|claimant| (claimant.visitor, claimant.burst)) else {
            return Err(ErrorReport::fatal(sqlstate::PROTOCOL_VIOLATION, "a proof that nobody has asked for"));
        };
        let (guess, wait) = loop {
            match guesses.take(visitor, burst) {
                ProofTurn::Judge(guess, wait) => break (guess, wait),
                ProofTurn::Refused(wait_s) => {
                    self.w.count(WorkerCounter::LoginsSlowed);
                    let text = format!("too many failed logins from this address, try again in {wait_s} s");
                    return Err(ErrorReport::fatal(sqlstate::TOO_MANY_CONNECTIONS, text));
                }
                ProofTurn::Crowded if self.deadline.is_some_and(|deadline| self.w.now() >= deadline) => {
                    return Err(broke(&io::ErrorKind::TimedOut.into()));
                }
                ProofTurn::Crowded if self.w.shared.stop_mode() >= ProxyShutdown::Fast => {
                    return Err(ErrorReport::fatal(
                        sqlstate::ADMIN_SHUTDOWN,
                        "terminating connection due to administrator command",
                    ));
                }
                ProofTurn::Crowded => self.pause(CROWD_PERIOD).await,
            }
        };
        if !wait.is_zero() {
            self.w.count(WorkerCounter::LoginsSlowed);
            self.pause(wait).await;
        }
        if let Some(claimant) = &mut self.claimant {
            claimant.guess = Some(guess);
        }
        Ok(())
    }

    async fn pause(&self, time: Duration) {
        let until = Instant::now() + time;
        while self.w.now() < until && self.w.shared.stop_mode() < ProxyShutdown::Fast {
            self.w.reactor.sleep_until(until.min(Instant::now() + Duration::from_secs(1))).await;
        }
    }

    /// `fault`: why the client was refused.
    pub(super) fn settle_guess(&mut self, fault: Option<&ErrorReport>) {
        let guess = self.claimant.as_mut().and_then(|claimant| claimant.guess.take());
        let judgement = match fault {
            None => ProofVerdict::Right,
            Some(fault) if is_refusal(fault) => ProofVerdict::Wrong,
            Some(_) => ProofVerdict::None,
        };
        if let Some(guess) = guess {
            guess.settle(judgement);
        }
    }

    /// The refusal of a proof waits for `REFUSAL_AFTER`.
    pub(super) async fn settle(&mut self, fault: &ErrorReport) {
        self.settle_guess(Some(fault));
        if let Some(at) = self.answered_at.filter(|_| is_refusal(fault)) {
            self.w.reactor.sleep_until(at + REFUSAL_AFTER).await;
        }
    }
}

fn is_refusal(fault: &ErrorReport) -> bool {
    fault.sqlstate == sqlstate::INVALID_PASSWORD || fault.sqlstate == sqlstate::INVALID_AUTHORIZATION
}
