//! Promise and accepted version of a member, kept on disk by a thread of its own: nobody who asks waits for the disk.
//!
//! One write at a time. After one that failed there is none any more: nobody knows what the disk holds, and a member that cannot keep its word
//! has no vote until it is started again.

use crate::watchdog::vote_file::{VoteFile, VoteFileError, VoteNotice};
use parking_lot::Mutex;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use weir_group::{HostNumber, StoredVote};

/// Of the channel to the disk thread; `StoreStage` lets in one write at a time.
const WRITES_MAX: usize = 1;

/// An opened store, with what it held.
#[derive(Debug)]
pub struct OpenedState {
    pub store: StateStore,
    pub vote: StoredVote,
    pub notices: Vec<VoteNotice>,
    /// One outcome for each write that `StateStore::write` took. Ends only after the store was closed.
    pub outcomes: mpsc::UnboundedReceiver<StateOutcome>,
}

/// Dropped, it ends as by `close`, without the wait.
#[derive(Debug)]
pub struct StateStore {
    writes: SyncSender<StateWrite>,
    stage: Arc<Mutex<StoreStage>>,
    ended: oneshot::Receiver<()>,
    path: PathBuf,
}

#[derive(Debug)]
struct StateWrite {
    number: u64,
    text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StoreStage {
    Idle,
    Writing,
    Failed,
}

#[derive(Debug)]
pub enum StateOutcome {
    /// The text outlives a crash of the machine.
    Written {
        number: u64,
    },
    Failed {
        number: u64,
        error: StateWriteError,
    },
}

#[derive(Debug, thiserror::Error)]
pub enum StateOpenError {
    #[error(transparent)]
    File(#[from] VoteFileError),
    #[error("cannot start the thread that writes {}: {cause}; start Weir again when the system has room for it", path.display())]
    Thread { path: PathBuf, cause: io::Error },
}

/// The disk's or the operator's fault. No retry.
#[derive(Debug, thiserror::Error)]
#[error(
    "{} cannot be written: {cause}; this host has no vote until Weir is started again, when its disk takes writes", path.display()
)]
pub struct StateWriteError {
    path: PathBuf,
    #[source]
    cause: io::Error,
}

/// Why a write was not begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StateWriteRefusal {
    #[error("another write is under way")]
    UnderWay,
    #[error("a write failed before")]
    AfterError,
    #[error("the thread that writes is gone")]
    NoThread,
}

#[derive(Debug, thiserror::Error)]
#[error("the write of {} under way has not ended within {} ms; no other process may vote in its place until it has", path.display(), limit.as_millis())]
pub struct StateCloseError {
    path: PathBuf,
    limit: Duration,
}

impl StateStore {
    /// Opens the vote of this host in `folder`, and keeps its lock. `incarnation` is random: the number of a new member, if no file is there.
    /// Blocks for a few writes.
    pub fn open(folder: &Path, port: u16, host: HostNumber, incarnation: u32) -> Result<OpenedState, StateOpenError> {
        let (file, vote, notices) = VoteFile::open(folder, port, host, incarnation)?;
        let path = file.path().to_owned();
        let (writes, orders) = sync_channel(WRITES_MAX);
        let (answers, outcomes) = mpsc::unbounded_channel();
        let (ending, ended) = oneshot::channel();
        let stage = Arc::new(Mutex::new(StoreStage::Idle));
        let theirs = stage.clone();
        let work = move || {
            write_all(file, &orders, &theirs, &answers);
            let _ = ending.send(());
        };
        let started = std::thread::Builder::new().name("group disk".into()).spawn(work);
        started.map_err(|cause| StateOpenError::Thread { path: path.clone(), cause })?;
        Ok(OpenedState { store: StateStore { writes, stage, ended, path }, vote, notices, outcomes })
    }

    /// The file of the vote.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Begins a write, and never blocks. Its outcome comes by `OpenedState::outcomes`.
    pub fn write(&self, number: u64, text: String) -> Result<(), StateWriteRefusal> {
        let mut stage = self.stage.lock();
        let next = begun(*stage)?;
        match self.writes.try_send(StateWrite { number, text }) {
            Ok(()) => *stage = next,
            Err(TrySendError::Disconnected(_)) => return Err(StateWriteRefusal::NoThread),
            Err(TrySendError::Full(_)) => return Err(StateWriteRefusal::UnderWay),
        }
        Ok(())
    }

    /// Waits for the write under way, whose outcome still comes, and gives the file to another process. Cancel safe: it is given up when the
    /// write has ended in any case. Error: the lock stays until then.
    pub async fn close(self, limit: Duration) -> Result<(), StateCloseError> {
        let StateStore { writes, stage: _, ended, path } = self;
        drop(writes);
        // The sender is dropped only together with the file.
        tokio::time::timeout(limit, ended).await.map_or(Err(StateCloseError { path, limit }), |_| Ok(()))
    }
}

fn begun(stage: StoreStage) -> Result<StoreStage, StateWriteRefusal> {
    match stage {
        StoreStage::Idle => Ok(StoreStage::Writing),
        StoreStage::Writing => Err(StateWriteRefusal::UnderWay),
        StoreStage::Failed => Err(StateWriteRefusal::AfterError),
    }
}

/// Obeys until the store is closed, then gives up the file.
fn write_all(
    mut file: VoteFile,
    orders: &Receiver<StateWrite>,
    stage: &Mutex<StoreStage>,
    answers: &mpsc::UnboundedSender<StateOutcome>,
) {
    for StateWrite { number, text } in orders {
        let outcome = match file.replace(&text) {
            Ok(()) => StateOutcome::Written { number },
            Err(cause) => StateOutcome::Failed { number, error: StateWriteError { path: file.path().to_owned(), cause } },
        };
        // Before the answer: whoever hears it may write at once.
        *stage.lock() = match outcome {
            StateOutcome::Written { .. } => StoreStage::Idle,
            StateOutcome::Failed { .. } => StoreStage::Failed,
        };
        let _ = answers.send(outcome);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_write_at_a_time_and_none_after_an_error() {
        assert_eq!(begun(StoreStage::Idle), Ok(StoreStage::Writing));
        assert_eq!(begun(StoreStage::Writing), Err(StateWriteRefusal::UnderWay));
        assert_eq!(begun(StoreStage::Failed), Err(StateWriteRefusal::AfterError));
    }

    #[tokio::test(start_paused = true)]
    async fn a_close_waits_for_the_write_under_way_no_longer_than_its_limit() {
        let store = || {
            let ((writes, orders), (ending, ended)) = (sync_channel(WRITES_MAX), oneshot::channel());
            let stage = Arc::new(Mutex::new(StoreStage::Writing));
            (StateStore { writes, stage, ended, path: "/state/weir_group.9999".into() }, orders, ending)
        };
        let (stuck, _orders, _ending) = store();
        assert_eq!(stuck.write(2, "x".into()), Err(StateWriteRefusal::UnderWay));
        let error = stuck.close(Duration::from_millis(500)).await.expect_err("the disk hangs").to_string();
        assert!(error.starts_with("the write of /state/weir_group.9999 under way has not ended within 500 ms"), "{error}");
        let (slow, orders, ending) = store();
        let disk = async {
            assert!(orders.recv().is_err(), "no other write is to come");
            drop(ending);
        };
        let (closed, ()) = tokio::join!(slow.close(Duration::from_millis(500)), disk);
        assert!(closed.is_ok(), "{closed:?}");
    }
}
