//! How far the making of a cluster is, for whoever waits for it.

use std::fmt;
use std::sync::Arc;

/// Work at hand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClusterStage<'a> {
    /// `initdb` runs, which tells nothing of its progress.
    Initialising { server: &'a str },
    /// The data of a server is copied.
    Copying { server: &'a str, done_bytes: u64, total_bytes: u64 },
    /// All servers were begun, and so many are ready.
    Starting { ready: usize, servers: usize },
    /// All servers are ready, and standbys stream.
    Made,
}

/// A function that hears the stages, on the thread that makes the cluster. By default nobody does.
#[derive(Clone, Default)]
pub struct StageHearer(Option<Arc<HearStage>>);

type HearStage = dyn Fn(ClusterStage<'_>) + Send + Sync;

impl StageHearer {
    /// It must not block: the making waits for it.
    pub fn new(hear: impl Fn(ClusterStage<'_>) + Send + Sync + 'static) -> StageHearer {
        StageHearer(Some(Arc::new(hear)))
    }

    pub(crate) fn tell(&self, stage: ClusterStage<'_>) {
        if let Some(hear) = &self.0 {
            hear(stage);
        }
    }

    /// Tells the begin of a copy, then adds up its pieces.
    pub(crate) fn copy<'a>(&'a self, server: &'a str, total_bytes: u64) -> impl FnMut(u64) + 'a {
        let mut done_bytes = 0;
        self.tell(ClusterStage::Copying { server, done_bytes, total_bytes });
        move |bytes| {
            done_bytes += bytes;
            self.tell(ClusterStage::Copying { server, done_bytes, total_bytes });
        }
    }
}

impl fmt::Debug for StageHearer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "StageHearer(_)" } else { "StageHearer(nobody)" })
    }
}
