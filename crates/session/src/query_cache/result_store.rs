//! A network store of results.

use crate::catalogs::KnownDatabase;
use crate::query_cache::cached_results::CacheFill;
use crate::task::TaskId;
use sha2::{Digest as _, Sha256};
use std::cell::{RefCell, RefMut};
use std::rc::Rc;
use std::sync::Arc;
use weir_cache::{LookupPolicy, ResultDependencies, ResultProofState, StoredResult};

pub type Digest = [u8; 32];

/// No call waits.
pub trait ResultStore {
    /// Other Weirs use the same keys: results are proven by the primary's log.
    fn is_shared(&self) -> bool;

    fn hash_of(&self, key: &[u8]) -> u64;

    fn lookup_policy(&self) -> RefMut<'_, LookupPolicy>;

    /// The answer wakes the task. `None`: out of reach or too busy.
    fn fetch(&self, key: &[u8], task: TaskId, now_ms: u64) -> Option<Rc<StoreFetch>>;

    /// True: on its way.
    fn put(&self, digest: &Digest, kept: &StoredResult<'_>) -> bool;

    /// Stores a result once the log proves it.
    fn await_proof(&self, pending: PendingAnswer);
}

pub enum StoreFetchState {
    Waits,
    Answered(Option<Vec<u8>>),
    Failed,
}

pub struct StoreFetch {
    /// The full key; the store uses its digest.
    pub key: Box<[u8]>,
    /// Milliseconds.
    pub at_ms: u64,
    pub digest: Digest,
    pub task: TaskId,
    pub state: RefCell<StoreFetchState>,
}

impl StoreFetch {
    pub fn is_over(&self) -> bool {
        !matches!(*self.state.borrow(), StoreFetchState::Waits)
    }

    /// `None` if the store could not be asked. Call once.
    pub fn found(&self) -> Option<Option<Vec<u8>>> {
        match &mut *self.state.borrow_mut() {
            StoreFetchState::Answered(answer) => Some(answer.take()),
            StoreFetchState::Waits | StoreFetchState::Failed => None,
        }
    }

    pub fn is_for(&self, key: &[u8]) -> bool {
        *self.key == *key
    }
}

pub fn digest_of(key: &[u8]) -> Digest {
    Sha256::digest(key).into()
}

/// An answer that awaits its proof.
pub struct PendingAnswer {
    pub digest: Digest,
    pub key: Box<[u8]>,
    pub bytes: Box<[u8]>,
    pub took_us: u64,
    /// Versions before the question.
    pub deps: ResultDependencies,
    pub(crate) database: Arc<KnownDatabase>,
    /// A round begun after the answer.
    pub(crate) round: u64,
    /// Milliseconds.
    pub at_ms: u64,
    pub flight: Option<CacheFill>,
}

impl PendingAnswer {
    pub fn verdict(&self, primary: Option<u16>) -> ResultProofState {
        self.database.follow.prove(primary, &self.deps, self.round)
    }

    pub fn held_bytes(&self) -> usize {
        self.bytes.len() + self.key.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_of_the_store_is_taken_once_and_none_is_not_an_empty_one() {
        let fetch = |state| StoreFetch {
            at_ms: 0,
            key: [7].into(),
            digest: digest_of(&[7]),
            task: TaskId::default(),
            state: RefCell::new(state),
        };
        let answered = fetch(StoreFetchState::Answered(Some(vec![1, 2])));
        assert!(answered.is_over() && answered.is_for(&[7]) && !answered.is_for(&[8]));
        assert_eq!(answered.found(), Some(Some(vec![1, 2])));
        assert_eq!(fetch(StoreFetchState::Answered(None)).found(), Some(None), "the store has nothing");
        assert_eq!(fetch(StoreFetchState::Failed).found(), None, "nobody knows");
        assert!(!fetch(StoreFetchState::Waits).is_over());
    }
}
