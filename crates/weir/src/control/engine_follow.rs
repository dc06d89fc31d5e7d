//! Has the engine follow its database: after a change of columns, rights or settings on shard 0 it is made ready again, as by `weir shard engine`, with
//! the login of the health check.
//!
//! Only changes of the database are followed. If the engine itself was changed, or the configuration leads elsewhere than it, an operator must look:
//! two Weirs of different opinions would change it in turns. Several Weirs that follow one change wait for each other at the engine's lock, and the
//! later ones find nothing to do.

use crate::control::control_context::ControlContext;
use crate::control::engine_state::Fingerprint;
use crate::control::shard_setup::engine::{self, ReaderRights};
use crate::control::shard_setup::shard_servers::ShardServers;
use crate::control::supervised;
use crate::log::{Level, LogOrigin};
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};
use weir_session::catalogs::KnownDatabase;

/// A run that failed is tried again after so long, and after twice the time each time that it fails. No run begins sooner behind another one: whoever
/// owns a table could have the engine made ready without a pause.
const RETRY_MIN: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_secs(60);

/// Runs of one database.
#[derive(Default)]
pub struct EngineFollow {
    is_under_way: Rc<Cell<bool>>,
    last_began: Option<Instant>,
    last: Option<FollowRun>,
}

struct FollowRun {
    /// The state of the database that it began for.
    change: Fingerprint,
    began: Instant,
    retry: Duration,
    /// The error that was told, if it failed.
    told: Rc<Cell<Option<String>>>,
}

impl EngineFollow {
    /// `change`: the state that the database has, if it has changed since the engine was made.
    pub fn heed(&mut self, c: &Rc<ControlContext>, database: &Arc<KnownDatabase>, change: Option<&Fingerprint>) {
        let Some(change) = change else {
            self.last = None;
            return;
        };
        if self.is_under_way.get() || !self.is_due(change, Instant::now()) {
            return;
        }
        let last = self.last.take();
        let same = last.filter(|last| last.change == *change);
        let retry = same.as_ref().map_or(RETRY_MIN, |last| (last.retry * 2).min(RETRY_MAX));
        let told = same.map(|last| last.told).unwrap_or_default();
        self.last = Some(FollowRun { change: change.clone(), began: Instant::now(), retry, told: told.clone() });
        self.last_began = Some(Instant::now());
        self.is_under_way.set(true);
        let (end, ended) = (self.is_under_way.clone(), self.is_under_way.clone());
        let (own, name) = (c.clone(), database.clone());
        let task = async move {
            run(&own, &name, &told).await;
            ended.set(false);
        };
        supervised::run(c, format!("the engine of database \"{}\"", database.name), task, move || end.set(false));
    }

    pub fn is_under_way(&self) -> bool {
        self.is_under_way.get()
    }

    /// True if the engine could not follow this change when it was tried last.
    pub fn has_failed(&self, change: &Fingerprint) -> bool {
        let Some(last) = self.last.as_ref().filter(|last| last.change == *change) else { return false };
        let told = last.told.take();
        let has_failed = told.is_some();
        last.told.set(told);
        has_failed
    }

    /// A state that was tried waits for its time, another one for the shortest.
    fn is_due(&self, change: &Fingerprint, now: Instant) -> bool {
        let has_rested = self.last_began.is_none_or(|began| now >= began + RETRY_MIN);
        has_rested && self.last.as_ref().is_none_or(|last| last.change != *change || now >= last.began + last.retry)
    }
}

/// Not cancel safe: the engine stays as it was.
async fn run(c: &ControlContext, database: &Arc<KnownDatabase>, told: &Cell<Option<String>>) {
    let who = LogOrigin { database: &database.name, ..LogOrigin::default() };
    match follow(c, &database.name).await {
        Ok(done) => {
            let text = format_args!("the tables of database \"{}\" have changed: {}", database.name, done.trim_end());
            c.shared.log.write(Level::Log, &who, text);
            c.shared.note_change(database);
        }
        Err(error) => {
            let (now, before) = (format!("{error:#}"), told.take());
            if before.as_ref() != Some(&now) {
                let text = format_args!(
                    "the engine of database \"{0}\" does not follow the change of its tables, and answers no statements over several shards; it is tried \
                     again, or run weir shard engine {0}: {now}",
                    database.name
                );
                c.shared.log.write(Level::Warning, &who, text);
            }
            told.set(Some(now));
        }
    }
}

/// Not cancel safe: the engine stays as it was.
async fn follow(c: &ControlContext, database: &str) -> anyhow::Result<String> {
    let config = c.shared.config.load_full();
    let servers = ShardServers::of_running(c.shared.clone(), &config, database).await?;
    engine::again(&servers, database, ReaderRights::Needed).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_that_failed_waits_and_another_one_only_a_moment() {
        let state = |word: &str| Fingerprint::of_rows(&vec![vec![Some(word.to_owned()); 4]]).unwrap();
        let began = Instant::now();
        let told = Rc::default();
        let run = FollowRun { change: state("a"), began, retry: RETRY_MIN * 4, told };
        let follow = EngineFollow { last: Some(run), last_began: Some(began), ..EngineFollow::default() };
        assert!(!follow.is_due(&state("a"), began + RETRY_MIN * 3));
        assert!(follow.is_due(&state("a"), began + RETRY_MIN * 4));
        assert!(follow.is_due(&state("b"), began + RETRY_MIN) && !follow.is_due(&state("b"), began));
        let followed = EngineFollow { last: None, ..follow };
        assert!(!followed.is_due(&state("c"), began), "also behind a run that succeeded");
        assert!(EngineFollow::default().is_due(&state("a"), began));
    }
}
