//! Keeps `min_pool_size` server connections open: for users and databases with clients, and for databases with a forced user, whose pool
//! is known beforehand.

use crate::runtime::lease;
use crate::runtime::pool::{PoolKey, PoolPurpose};
use crate::runtime::shared::ProxyShutdown;
use crate::runtime::worker::Worker;
use std::collections::HashSet;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use weir_config::{Config, limits};
use weir_failover::cluster::NodeHealth;
use weir_session::checkout::pool_grant::missing;

const PERIOD: Duration = Duration::from_millis(500);
/// A server that returns must not be stormed.
const OPENS_MAX: u32 = 8;

/// Databases with a forced user that are looked at: each needs a search of the limits.
const FORCED_MAX: usize = 1000;

struct ForcedUserDatabase {
    client_database: Arc<str>,
    database: Arc<str>,
    user: Arc<str>,
}

/// Runs on the first worker for the proxy's life.
pub async fn keep(w: Rc<Worker>) {
    let mut known: Option<(Arc<Config>, Vec<ForcedUserDatabase>)> = None;
    while w.shared.stop_mode() == ProxyShutdown::No {
        w.reactor.sleep(PERIOD).await;
        let config = w.config();
        if config.limits.pool_min == 0 && config.limits.overrides.is_empty() {
            known = None;
            continue;
        }
        let is_current = known.as_ref().is_some_and(|(of, _)| Arc::ptr_eq(of, &config));
        if !is_current {
            known = Some((config.clone(), forced(&config)));
        }
        let forced = known.as_ref().map_or(&[][..], |(_, forced)| forced);
        begin_pools(&w, &config, forced);
        open_missing(&w, forced);
    }
}

fn forced(config: &Config) -> Vec<ForcedUserDatabase> {
    let overrides = &config.limits.overrides;
    let named: HashSet<&str> = overrides.iter().flat_map(|entry| entry.database().into_iter().chain(entry.user())).collect();
    let entries = config.databases.iter().filter_map(|(name, entry)| Some((name, entry, entry.user.clone()?)));
    let may_want =
        entries.filter(|(name, _, user)| config.limits.pool_min > 0 || named.contains(&***name) || named.contains(&**user));
    may_want
        .take(FORCED_MAX)
        .filter(|(name, _, user)| limits::of(config, user, name).pool_min > 0)
        .map(|(name, entry, user)| ForcedUserDatabase {
            client_database: name.clone(),
            database: entry.database.clone().unwrap_or(name.clone()),
            user,
        })
        .collect()
}

fn begin_pools(w: &Worker, config: &Config, forced: &[ForcedUserDatabase]) {
    let Some(node) = w.view().primary.and_then(|at| w.view().nodes.get(at).map(|node| node.id)) else { return };
    let gates = &w.shared.pause_state;
    for ForcedUserDatabase { client_database, database, user } in
        forced.iter().filter(|one| !gates.own(&one.client_database).disabled)
    {
        let (user, database, client_database) = (user.clone(), database.clone(), client_database.clone());
        w.shared.pools.get(PoolKey { node, user, database, client_database, purpose: PoolPurpose::Statements }, gates, config);
    }
}

fn open_missing(w: &Rc<Worker>, forced: &[ForcedUserDatabase]) {
    let statuses = w.shared.session_statuses.all();
    let used = statuses.iter().map(|status| (&status.server_user, &status.database));
    let wanted: HashSet<(&Arc<str>, &Arc<str>)> =
        used.chain(forced.iter().map(|one| (&one.user, &one.client_database))).collect();
    for pool in w.shared.pools.all() {
        let key = &pool.key;
        let limits = pool.limits();
        let lacking = missing(pool.counts().1, limits.pool_min, limits.pool_size);
        let is_up = w.view().nodes.iter().any(|node| node.id == key.node && node.health != NodeHealth::Down);
        if lacking == 0 || !is_up || !wanted.contains(&(&key.user, &key.client_database)) {
            continue;
        }
        for _ in 0..lacking.min(OPENS_MAX) {
            if !pool.permit_warm(w) {
                break;
            }
            let (w, pool) = (w.clone(), pool.clone());
            let worker = w.clone();
            worker.reactor.spawn(async move {
                // An error is logged, and its permission given back.
                if let Ok(conn) = lease::open(&w, &pool, pool.key.node, &[]).await {
                    pool.give_back(&w, conn);
                }
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn connections_are_kept_before_a_client_comes_where_a_database_has_a_forced_user_and_a_minimum() {
        let databases = "a = user=app dbname=shop\nb = dbname=shop\nc = user=app\nd = user=other\n* = user=app";
        let of = |conf: &str| -> Vec<String> {
            let conf = format!("backend_hostname0 = 'a'\ndatabase_file = 'databases'\n{conf}");
            let mut load = |path: &Path| Ok(if path.ends_with("databases") { databases } else { &conf }.as_bytes().to_vec());
            let config = weir_config::read(Path::new("c"), &mut load).config.expect("it is right");
            forced(&config).iter().map(|one| format!("{} {} {}", one.client_database, one.database, one.user)).collect()
        };
        assert_eq!(of("min_pool_size = 1"), ["a shop app", "c c app", "d d other"]);
        assert_eq!(
            of("limit_override_list = 'database=a:min_pool_size=2; database=c:pool_size=2; user=other:min_pool_size=1'"),
            ["a shop app", "d d other"]
        );
        assert_eq!(of("min_pool_size = 1\nlimit_override_list = 'user=app:min_pool_size=0'"), ["d d other"]);
    }
}
