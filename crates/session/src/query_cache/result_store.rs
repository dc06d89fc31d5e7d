//! A store of the network in which results are kept, as a session sees it: bytes under keys.

use crate::catalogs::KnownDatabase;
use crate::query_cache::cached_results::CacheFill;
use crate::task::TaskId;
use sha2::{Digest as _, Sha256};
use std::cell::{RefCell, RefMut};
use std::rc::Rc;
use std::sync::Arc;
use weir_cache::{LookupPolicy, ResultDependencies, ResultProofState, StoredResult};

/// The digest of a key, under which its result is kept.
pub type Digest = [u8; 32];

/// Stores results. Nothing in here waits.
pub trait ResultStore {
    /// Other Weirs have the same keys: a result is proven by the primary's log.
    fn is_shared(&self) -> bool;

    /// By what the lookup policy knows a key.
    fn hash_of(&self, key: &[u8]) -> u64;

    /// The rule by which a question is worth an exchange.
    fn lookup_policy(&self) -> RefMut<'_, LookupPolicy>;

    /// Asks for a result; the task is woken when there is an answer. `None`: the store is out of reach, or has too much to do.
    fn fetch(&self, key: &[u8], task: TaskId, now_ms: u64) -> Option<Rc<StoreFetch>>;

    /// Stores a result. True: it is on its way.
    fn put(&self, digest: &Digest, kept: &StoredResult<'_>) -> bool;

    /// Stores a result as soon as the log proves it.
    fn await_proof(&self, pending: PendingAnswer);
}

/// The progress of a read.
pub enum StoreFetchState {
    Waits,
    /// The content under its key.
    Answered(Option<Vec<u8>>),
    /// The host could not be asked.
    Failed,
}

/// A read of one answer.
pub struct StoreFetch {
    /// The key that is asked for. In the store it stands under its digest.
    pub key: Box<[u8]>,
    /// When it was wanted, in milliseconds.
    pub at_ms: u64,
    pub digest: Digest,
    pub task: TaskId,
    pub state: RefCell<StoreFetchState>,
}

impl StoreFetch {
    pub fn is_over(&self) -> bool {
        !matches!(*self.state.borrow(), StoreFetchState::Waits)
    }

    /// The store's content under the key; `None` if it could not be asked. To be called once.
    pub fn found(&self) -> Option<Option<Vec<u8>>> {
        match &mut *self.state.borrow_mut() {
            StoreFetchState::Answered(answer) => Some(answer.take()),
            StoreFetchState::Waits | StoreFetchState::Failed => None,
        }
    }

    /// True if it is for this key.
    pub fn is_for(&self, key: &[u8]) -> bool {
        *self.key == *key
    }
}

/// The digest of a key, under which its answer is kept.
pub fn digest_of(key: &[u8]) -> Digest {
    Sha256::digest(key).into()
}

/// An answer that waits.
pub struct PendingAnswer {
    pub digest: Digest,
    pub key: Box<[u8]>,
    pub bytes: Box<[u8]>,
    pub took_us: u64,
    /// The words of its tables before it was asked for.
    pub deps: ResultDependencies,
    pub(crate) database: Arc<KnownDatabase>,
    /// A round that began after it had come.
    pub(crate) round: u64,
    /// When it had, in milliseconds.
    pub at_ms: u64,
    /// The sessions that wait for it.
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
