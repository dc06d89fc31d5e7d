//! Answers for a store that Weirs share. Each waits until the primary's log proves it for a position (`ResultProofState`): a few
//! milliseconds, in which its client has its answer already.

use super::{UNSENT_BYTES_MAX, WorkerStores};
use std::collections::VecDeque;
use weir_cache::{ResultProofState, ResultValidity, StoredResult};
use weir_session::query_cache::cached_results::CacheFill;
use weir_session::query_cache::result_store::{PendingAnswer, ResultStore};

/// Longest wait for a proof. Beyond it the log is not taken in as it should be.
const PROOF_WAIT_MS: u64 = 2000;

/// Longest wait of others for an answer; then they ask the server themselves.
const OTHERS_WAIT_MS: u64 = 20;

impl WorkerStores {
    /// Drops the answer if too many bytes wait.
    pub(crate) fn wait_for_proof(&self, pending: PendingAnswer) {
        let bytes = self.pending_bytes.get() + pending.held_bytes();
        if bytes < UNSENT_BYTES_MAX {
            self.pending_bytes.set(bytes);
            self.woken.borrow_mut().push(self.shelves[self.home_of(&pending.digest)].task.get());
            self.pending.borrow_mut().push_back(pending);
        }
    }

    pub fn has_pending(&self) -> bool {
        !self.pending.borrow().is_empty()
    }

    /// Stores proven results; drops those that cannot be proven, or wait too long. `over` gets true for results on their way.
    pub fn put_proven(&self, primary: Option<u16>, now_ms: u64, mut over: impl FnMut(Option<CacheFill>, bool)) {
        let mut waiting = VecDeque::new();
        for mut pending in self.pending.take() {
            if pending.verdict(primary) == ResultProofState::Waits && now_ms <= pending.at_ms + PROOF_WAIT_MS {
                if now_ms > pending.at_ms + OTHERS_WAIT_MS && pending.flight.is_some() {
                    over(pending.flight.take(), false);
                }
                waiting.push_back(pending);
                continue;
            }
            self.pending_bytes.set(self.pending_bytes.get().saturating_sub(pending.held_bytes()));
            let is_stored = match pending.verdict(primary) {
                ResultProofState::Proven(proof) => {
                    let PendingAnswer { digest, key, bytes, took_us, deps, .. } = &pending;
                    let slots = deps.pairs().iter().map(|(slot, _)| *slot).collect();
                    self.put(
                        digest,
                        &StoredResult { took_us: *took_us, why: ResultValidity::Position { slots, proof }, key, bytes },
                    )
                }
                ResultProofState::Waits | ResultProofState::Void => false,
            };
            over(pending.flight, is_stored);
        }
        waiting.append(&mut self.pending.borrow_mut());
        self.pending.replace(waiting);
    }
}
