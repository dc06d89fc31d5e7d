//! The overview: what goes on now, made of what all threads count anyway. Workers do nothing for it.
//!
//! One overview is made per second at most, whoever asks. All of it is for threads that may block.

use super::attention::{self, AttentionFacts, NodeFacts, WaitFacts};
use super::traffic_history::{HistorySpan, TrafficGauges, TrafficHistory, TrafficRates, TrafficSample, rounded};
use crate::admin::group_sight::{GroupSight, HostSight, WatchdogState};
use crate::admin::listing::{ListAsker, ListSnapshot};
use crate::admin::views::pgpool::{self, NodeRow};
use crate::log::rfc3339;
use crate::runtime::pool::ConnPool;
use crate::runtime::shared::{ProxyShutdown, SharedState, seconds};
use crate::server::connection_list::{ConnCounts, conns_of};
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime};
use weir_config::visibility::Viewer;
use weir_failover::NodeStanding;
use weir_failover::cluster::NodeUsage;
use weir_session::histogram::HistogramCounts;
use weir_session::metrics::{NODES_MAX, WorkerCounter, WorkerCounters};
use weir_session::stats::StatCounter;
use weir_session::status::SessionActivity;
use weir_wire::pcp_protocol::NodeStatus;

/// An overview that is younger is shown again.
const FRESH_MS: u64 = 900;

#[derive(Default)]
pub struct TrafficWatch(Mutex<WatchedTraffic>);

#[derive(Default)]
struct WatchedTraffic {
    history: TrafficHistory,
    /// The last two samples, for rates.
    older: Option<TrafficSample>,
    newer: Option<TrafficSample>,
    /// The last overview, and when it was made.
    made: Option<(u64, Arc<str>)>,
}

impl TrafficWatch {
    /// True if a sample is due for the curves.
    pub fn is_due(&self, shared: &SharedState) -> bool {
        self.0.lock().history.is_due(now_ms(shared))
    }

    /// Takes a sample for the curves.
    pub fn note(&self, shared: &SharedState) {
        let clients = ClientFacts::now(shared);
        self.0.lock().take(shared, &clients);
    }

    /// The overview as JSON.
    pub fn overview(&self, shared: &SharedState) -> Arc<str> {
        let mut watched = self.0.lock();
        let now = now_ms(shared);
        if let Some((at, made)) = &watched.made
            && now < at + FRESH_MS
        {
            return made.clone();
        }
        let clients = ClientFacts::now(shared);
        watched.take(shared, &clients);
        let text: Arc<str> = overview(shared, &watched, &clients).to_string().into();
        watched.made = Some((now, text.clone()));
        text
    }

    pub fn history(&self, shared: &SharedState, span: HistorySpan) -> Value {
        let at = |ms: u64| rfc3339(seconds(shared.life.started_at + Duration::from_millis(ms)));
        self.0.lock().history.shown(span, at)
    }
}

impl WatchedTraffic {
    fn take(&mut self, shared: &SharedState, clients: &ClientFacts) {
        let sample = sample(shared, clients);
        self.history.note(&sample);
        let is_old = self.newer.as_ref().is_none_or(|newer| sample.at_ms >= newer.at_ms + FRESH_MS);
        if is_old {
            self.older = self.newer.replace(sample);
        }
    }
}

fn now_ms(shared: &SharedState) -> u64 {
    shared.begun.elapsed().as_millis() as u64
}

/// Clients by what they do, and who waits for whom.
#[derive(Default)]
struct ClientFacts {
    connected: u64,
    active: u64,
    waiting: usize,
    /// By database and user.
    waits: BTreeMap<(Arc<str>, Arc<str>), usize>,
}

impl ClientFacts {
    fn now(shared: &SharedState) -> ClientFacts {
        let connected = u64::from(shared.clients.connected.load(Ordering::Relaxed));
        let mut facts = ClientFacts { connected, ..ClientFacts::default() };
        for status in shared.session_statuses.all() {
            match status.doing() {
                SessionActivity::Executing => facts.active += 1,
                SessionActivity::WaitingForConnection => {
                    facts.waiting += 1;
                    *facts.waits.entry((status.database.clone(), status.server_user.clone())).or_default() += 1;
                }
                SessionActivity::Idle | SessionActivity::IdleInTransaction => {}
            }
        }
        facts
    }
}

fn sample(shared: &SharedState, clients: &ClientFacts) -> TrafficSample {
    let sum = |of: &dyn Fn(&WorkerCounters) -> u64| shared.counters.iter().map(of).sum::<u64>();
    let view = shared.cluster.view.load();
    let by_node: Vec<(u16, u64)> =
        view.nodes.iter().map(|node| (node.id, sum(&|counters| counters.statements(node.id).iter().sum()))).collect();
    let mut times = HistogramCounts::default();
    for node in &view.nodes {
        shared.counters.iter().for_each(|counters| times.add(&counters.times(node.id)));
    }
    let cache_hits = sum(&|counters| counters.get(WorkerCounter::CacheHits as usize));
    let cache_reads = match shared.cached_results {
        Some(_) => (0..NODES_MAX as u16).map(|node| sum(&|counters| counters.reads(node))).sum(),
        None => 0,
    };
    let transactions = shared.stats.by_database().values().map(|totals| totals.get(StatCounter::Transactions)).sum();
    TrafficSample {
        at_ms: now_ms(shared),
        statements: by_node.iter().map(|(_, count)| count).sum::<u64>() + cache_hits,
        transactions,
        errors: sum(&|counters| counters.errors().sum()),
        cache_hits,
        cache_reads,
        times,
        by_node,
        gauges: TrafficGauges {
            clients: clients.connected,
            waiting: clients.waiting as u64,
            lag_bytes: view.nodes.iter().filter_map(|node| node.lag_bytes).max().unwrap_or(0),
        },
    }
}

/// The name by which a group knows this host, else the machine's.
pub fn host_name(shared: &SharedState) -> String {
    let of_group = GroupSight::now(shared).and_then(|sight| sight.hosts.into_iter().find(|host| host.is_own)?.place);
    of_group.map_or_else(|| rustix::system::uname().nodename().to_string_lossy().into_owned(), |place| place.hostname)
}

fn overview(shared: &SharedState, watched: &WatchedTraffic, clients: &ClientFacts) -> Value {
    let config = shared.config.load();
    let (viewer, sight) = (Viewer::operator(), GroupSight::now(shared));
    let nodes = pgpool::nodes(&ListSnapshot::new(shared, &viewer, ListAsker::default()));
    let pools = shared.pools.all();
    let mut conns = ConnCounts::default();
    for pool in &pools {
        conns.add(conns_of(pool));
    }
    let conns_max = match config.limits.conns {
        0 => u64::from(config.conns_per_node_max()) * nodes.len() as u64,
        max => u64::from(max),
    };
    let facts = attention_facts(shared, watched, clients, (&nodes, &pools), sight.as_ref());
    let between = watched.older.as_ref().zip(watched.newer.as_ref());
    let rates = between.map(|(older, newer)| TrafficRates::of(older, newer));
    let rate = |of: fn(&TrafficRates) -> Option<f64>| rates.as_ref().and_then(of).map_or(Value::Null, rounded);
    json!({
        "at": rfc3339(seconds(SystemTime::now())),
        "version": crate::VERSION,
        "host": host_name(shared),
        "uptime_s": shared.begun.elapsed().as_secs(),
        "state": state_word(&facts),
        "clients": {
            "connected": clients.connected, "active": clients.active, "waiting": clients.waiting, "max": config.pool.max_clients,
        },
        "servers": {
            "active": conns.active + conns.kept, "idle": conns.idle + conns.cleaning + conns.opening, "max": conns_max,
        },
        "nodes": nodes.iter().map(|node| node_shown(shared, node, between)).collect::<Vec<_>>(),
        "group": sight.as_ref().map(group_shown),
        "rates": {
            "statements_s": rate(|rates| Some(rates.statements_s)),
            "transactions_s": rate(|rates| Some(rates.transactions_s)),
            "errors_s": rate(|rates| Some(rates.errors_s)),
            "p50_us": rate(|rates| rates.p50_us),
            "p99_us": rate(|rates| rates.p99_us),
            "cache_hit_ratio": rate(|rates| rates.cache_hit_ratio),
        },
        "attention": attention::points(&facts).iter().map(attention::AttentionPoint::shown).collect::<Vec<_>>(),
    })
}

fn state_word(facts: &AttentionFacts) -> &'static str {
    match facts {
        AttentionFacts { is_stopping: true, .. } => "stopping",
        AttentionFacts { is_suspended: true, .. } => "suspended",
        AttentionFacts { are_all_paused: true, .. } => "paused",
        AttentionFacts { is_stopping: false, is_suspended: false, are_all_paused: false, .. } => "running",
    }
}

fn node_shown(shared: &SharedState, node: &NodeRow, between: Option<(&TrafficSample, &TrafficSample)>) -> Value {
    let view = shared.cluster.view.load();
    let known = view.nodes.iter().find(|known| known.id == node.id);
    let count = |sample: &TrafficSample| sample.by_node.iter().find(|(id, _)| *id == node.id).map(|(_, count)| *count);
    let statements_s = between.and_then(|(older, newer)| {
        let seconds = newer.at_ms.saturating_sub(older.at_ms).max(1) as f64 / 1e3;
        Some(count(newer)?.saturating_sub(count(older)?) as f64 / seconds)
    });
    json!({
        "node": node.id,
        "host": node.info.hostname,
        "port": node.info.port,
        "role": node.info.role.name(),
        "status": node.info.status.name(),
        "why": why_down(shared, node),
        "lag_bytes": known.and_then(|known| known.lag_bytes),
        "lag_ms": known.and_then(|known| known.lag_us).map(|us| us / 1000),
        "connections": shared.pools.node_open(node.id),
        "statements_s": statements_s.map_or(Value::Null, rounded),
        "weight": rounded(node.info.weight),
    })
}

/// Why a node is not in use: the last word of its connections, or else of Weir's looks at it.
fn why_down(shared: &SharedState, node: &NodeRow) -> Option<String> {
    let is_up = matches!(node.info.status, NodeStatus::Up | NodeStatus::Waiting);
    let of_look = || shared.cluster.failover.load().node(node.id)?.failure.map(|failure| format!("it {}", failure.describe()));
    node.cause.clone().or_else(|| if is_up { None } else { of_look() })
}

fn group_shown(sight: &GroupSight) -> Value {
    let leader = sight.leader().map(|host| host.number);
    let member = |host: &HostSight| {
        json!({
            "host": host.name(),
            "number": host.number,
            "port": host.place.as_ref().map(|place| place.pgpool_port),
            "state": word_of(host.state),
            "is_leader": leader == Some(host.number),
            "is_own": host.is_own,
        })
    };
    let members: Vec<Value> = sight.hosts.iter().map(member).collect();
    json!({ "leader": sight.leader().map(HostSight::name), "members": members })
}

fn word_of(state: WatchdogState) -> String {
    state.word().to_ascii_lowercase()
}

fn attention_facts(
    shared: &SharedState,
    watched: &WatchedTraffic,
    clients: &ClientFacts,
    (nodes, pools): (&[NodeRow], &[Arc<ConnPool>]),
    sight: Option<&GroupSight>,
) -> AttentionFacts {
    let (view, failover, gates) = (shared.cluster.view.load(), shared.cluster.failover.load(), &shared.pause_state);
    let config = shared.config.load();
    let now_s = seconds(SystemTime::now()) as i64;
    let node_facts = |node: &NodeRow| {
        let known = view.nodes.iter().find(|known| known.id == node.id);
        let standing = failover.node(node.id).map(|known| known.standing);
        NodeFacts {
            id: node.id,
            is_up: matches!(node.info.status, NodeStatus::Up | NodeStatus::Waiting),
            is_set_aside: match standing {
                Some(NodeStanding::Detached | NodeStanding::Recovering) => true,
                Some(_) => false,
                None => known.is_some_and(|known| known.usage != NodeUsage::In && known.cause.is_none()),
            },
            why: why_down(shared, node),
            answers: failover.node(node.id).is_some_and(|known| known.failure.is_none() && known.position.is_some()),
            lags: known.is_some_and(|known| known.lags),
            lag_bytes: known.and_then(|known| known.lag_bytes).unwrap_or(0),
        }
    };
    let mut longest: HashMap<(&str, &str), Instant> = HashMap::new();
    for pool in pools {
        if let Some(since) = pool.waits_since() {
            let first = longest.entry((&pool.key.client_database, &pool.key.user)).or_insert(since);
            *first = since.min(*first);
        }
    }
    let longest_ms = |database: &str, user: &str| {
        let since = longest.get(&(database, user));
        since.map_or(0, |since| Instant::now().saturating_duration_since(*since).as_millis() as u64)
    };
    let wait = |((database, user), count): (&(Arc<str>, Arc<str>), &usize)| WaitFacts {
        database: database.to_string(),
        user: user.to_string(),
        clients: *count,
        longest_ms: longest_ms(database, user),
    };
    AttentionFacts {
        is_stopping: shared.stop_mode() != ProxyShutdown::No,
        is_suspended: shared.session_statuses.suspension.is_on(),
        are_all_paused: gates.is_all_paused(),
        paused: gates.closed().iter().filter(|name| gates.own(name).paused).map(ToString::to_string).collect(),
        has_primary: view.primary.is_some(),
        lacks_lease: sight.is_some_and(|sight| sight.lease_left_ms == 0),
        nodes: nodes.iter().map(node_facts).collect(),
        prospect: failover.prospect,
        forecast: failover.forecast.clone(),
        waits: clients.waits.iter().map(wait).collect(),
        waiting_share: watched.history.waiting_share(),
        clients: clients.connected,
        clients_max: u64::from(config.pool.max_clients),
        cache: shared.cached_results.as_ref().and(watched.newer.as_ref()).map(|newer| (newer.cache_hits, newer.cache_reads)),
        certificates: {
            let files = shared.files.tls.load();
            files.ends().map(|(path, end_s)| (path.display().to_string(), end_s as i64 - now_s)).collect()
        },
    }
}
