//! Clients and server connections by user and database, for SHOW and metrics.

use crate::runtime::pool::ConnPool;
use crate::runtime::shared::SharedState;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use weir_session::conn::ConnStatus;
use weir_session::status::SessionActivity;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnectionGroup {
    /// Clients that do not wait for a server connection.
    pub(crate) clients: usize,
    pub(crate) waiting: usize,
    pub(crate) conns: ConnCounts,
    /// Wait of the first client.
    pub(crate) waits: Duration,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnCounts {
    /// Used, but not kept.
    pub(crate) active: usize,
    /// Kept by a session that left state on it.
    pub(crate) kept: usize,
    pub(crate) idle: usize,
    /// Between two sessions.
    pub(crate) cleaning: usize,
    pub(crate) opening: usize,
}

impl ConnCounts {
    pub fn add(&mut self, other: ConnCounts) {
        self.active += other.active;
        self.kept += other.kept;
        self.idle += other.idle;
        self.cleaning += other.cleaning;
        self.opening += other.opening;
    }
}

pub fn conns_of(pool: &ConnPool) -> ConnCounts {
    let statuses = pool.statuses();
    let (idle, open, _) = pool.counts();
    let mut conns = ConnCounts { idle, opening: (open as usize).saturating_sub(statuses.len()), ..ConnCounts::default() };
    for status in &statuses {
        if status.session.load(Ordering::Relaxed) == 0 {
            continue;
        }
        if status.keeping.code.load(Ordering::Relaxed) > 0 {
            conns.kept += 1;
        } else {
            conns.active += 1;
        }
    }
    conns.cleaning = statuses.len().saturating_sub(conns.active + conns.kept + idle);
    conns
}

pub fn groups(shared: &SharedState) -> BTreeMap<(Arc<str>, Arc<str>), ConnectionGroup> {
    let mut groups = BTreeMap::<_, ConnectionGroup>::new();
    for status in shared.session_statuses.all() {
        let group = groups.entry((status.database.clone(), status.server_user.clone())).or_default();
        match status.doing() {
            SessionActivity::WaitingForConnection => group.waiting += 1,
            SessionActivity::Idle | SessionActivity::IdleInTransaction | SessionActivity::Executing => group.clients += 1,
        }
    }
    let now = Instant::now();
    for pool in shared.pools.all() {
        let group = groups.entry((pool.key.client_database.clone(), pool.key.user.clone())).or_default();
        group.conns.add(conns_of(&pool));
        if let Some(since) = pool.waits_since() {
            group.waits = group.waits.max(now.saturating_duration_since(since));
        }
    }
    groups
}

pub fn conns(shared: &SharedState) -> Vec<(Arc<ConnPool>, Arc<ConnStatus>)> {
    let of_pool = |pool: Arc<ConnPool>| pool.statuses().into_iter().map(move |status| (pool.clone(), status));
    shared.pools.all().into_iter().flat_map(of_pool).collect()
}
