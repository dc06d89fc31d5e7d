//! Metrics in Prometheus' text format, version 0.0.4.
//!
//! Reads `SharedState` only, for a thread of its own: with many pools it takes long.

use crate::admin::group_sight::GroupSight;
use crate::log::Level;
use crate::runtime::agents_seen::AgentContact;
use crate::runtime::shared::{SharedState, seconds};
use crate::server::connection_list;
use std::collections::BTreeMap;
use std::fmt::{Display, Write as _};
use std::path::Path;
use std::sync::atomic::Ordering;
use weir_failover::cluster::{ClusterView, NodeHealth, NodeUsage};
use weir_io::clock::boot_now_ms;
use weir_session::histogram::{HistogramCounts, limit_us};
use weir_session::metrics::{ERROR_CLASSES, METRICS, SEVERITIES, VERBS, WorkerCounters};
use weir_session::stats::{StatCounter, StatTotals, Whose};

/// Users and databases with lines of their own, by most statements. Each has about sixty lines, each a series in the monitoring.
const POOLS_MAX: usize = 500;

#[derive(Default)]
struct MetricsPage {
    text: String,
}

#[derive(Clone, Copy)]
enum MetricKind {
    Counter,
    Gauge,
    Histogram,
}

impl MetricsPage {
    fn head(&mut self, name: &str, kind: MetricKind, help: &str) {
        let kind = match kind {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
            MetricKind::Histogram => "histogram",
        };
        let _ = write!(self.text, "# HELP {name} {}\n# TYPE {name} {kind}\n", help.replace('\\', "\\\\").replace('\n', "\\n"));
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        self.text.push_str(name);
        self.labels(labels);
        let _ = writeln!(self.text, " {value}");
    }

    fn single(&mut self, name: &str, kind: MetricKind, help: &str, value: impl Display) {
        self.head(name, kind, help);
        self.sample(name, &[], value);
    }

    fn labels(&mut self, labels: &[(&str, &str)]) {
        for (at, (name, value)) in labels.iter().enumerate() {
            let _ = write!(self.text, "{}{name}=\"", if at == 0 { '{' } else { ',' });
            for c in value.chars() {
                match c {
                    '\\' => self.text.push_str("\\\\"),
                    '"' => self.text.push_str("\\\""),
                    '\n' => self.text.push_str("\\n"),
                    c => self.text.push(c),
                }
            }
            self.text.push('"');
        }
        if !labels.is_empty() {
            self.text.push('}');
        }
    }

    /// In seconds. `at_once`: events that took no time, counted elsewhere.
    fn histogram(&mut self, name: &str, labels: &[(&str, &str)], counted: &HistogramCounts, at_once: u64) {
        let mut sum = at_once;
        for (at, count) in counted.buckets.iter().enumerate() {
            sum += count;
            let limit = limit_us(at).map_or_else(|| "+Inf".to_string(), |us| (us as f64 / 1e6).to_string());
            let all: Vec<(&str, &str)> = labels.iter().copied().chain([("le", limit.as_str())]).collect();
            self.sample(&format!("{name}_bucket"), &all, sum);
        }
        self.sample(&format!("{name}_sum"), labels, in_seconds(counted.sum_us));
        self.sample(&format!("{name}_count"), labels, sum);
    }
}

fn in_seconds(us: u64) -> f64 {
    us as f64 / 1e6
}

pub fn page(shared: &SharedState) -> String {
    let mut page = MetricsPage::default();
    process(&mut page, shared);
    certificates(&mut page, shared);
    counters(&mut page, shared);
    clients(&mut page, shared);
    nodes(&mut page, shared);
    watchdog(&mut page, shared);
    errors(&mut page, shared);
    kept(&mut page, shared);
    pools(&mut page, shared);
    page.text
}

fn process(page: &mut MetricsPage, shared: &SharedState) {
    page.head("weir_info", MetricKind::Gauge, "Version of the proxy.");
    page.sample("weir_info", &[("version", env!("CARGO_PKG_VERSION"))], 1);
    let started = seconds(shared.life.started_at);
    page.single("weir_start_time_seconds", MetricKind::Gauge, "Start of the proxy, in seconds since 1970.", started);
    page.single("weir_workers", MetricKind::Gauge, "Worker threads.", shared.mailboxes.len());
    let stopping = u8::from(shared.stop_mode() != crate::runtime::shared::ProxyShutdown::No);
    page.single("weir_stopping", MetricKind::Gauge, "1 while the proxy stops.", stopping);
    let paused = shared.pause_state.closed().iter().filter(|name| shared.pause_state.own(name).paused).count();
    page.single(
        "weir_paused",
        MetricKind::Gauge,
        "1 while all databases are paused.",
        u8::from(shared.pause_state.is_all_paused()),
    );
    page.single("weir_databases_paused", MetricKind::Gauge, "Databases paused by themselves.", paused);
}

/// One line per file, even if it serves two purposes.
fn certificates(page: &mut MetricsPage, shared: &SharedState) {
    let files = shared.files.tls.load();
    let ends: BTreeMap<&Path, u64> = files.ends().collect();
    let name = "weir_certificate_end_time_seconds";
    page.head(name, MetricKind::Gauge, "End of the validity of Weir's own certificates, in seconds since 1970.");
    for (path, end) in ends {
        page.sample(name, &[("file", &path.to_string_lossy())], end);
    }
}

fn counters(page: &mut MetricsPage, shared: &SharedState) {
    for (at, row) in METRICS.iter().enumerate() {
        let sum: u64 = shared.counters.iter().map(|counters| counters.get(at)).sum();
        page.single(&format!("weir_{}", row.name), MetricKind::Counter, row.help, sum);
    }
}

fn clients(page: &mut MetricsPage, shared: &SharedState) {
    let config = shared.config.load();
    let clients = shared.clients.connected.load(Ordering::Relaxed);
    page.single("weir_clients", MetricKind::Gauge, "Client connections.", clients);
    page.single("weir_clients_max", MetricKind::Gauge, "Client connections allowed.", config.pool.max_clients);
    page.single(
        "weir_server_connections",
        MetricKind::Gauge,
        "Server connections, those being opened included.",
        shared.pools.open(),
    );
    page.single(
        "weir_links_max",
        MetricKind::Gauge,
        "Server connections allowed in all; 0: only the nodes' limits.",
        config.limits.conns,
    );
    let consoles = shared.clients.consoles.load(Ordering::Relaxed);
    page.single("weir_consoles", MetricKind::Gauge, "Connections to the administration console.", consoles);
}

fn nodes(page: &mut MetricsPage, shared: &SharedState) {
    let view = shared.cluster.view.load_full();
    let nodes: Vec<(String, String)> =
        view.nodes.iter().map(|node| (node.id.to_string(), format!("{}:{}", node.hostname, node.port))).collect();
    let mut family = |name: &str, kind: MetricKind, help: &str, value: &dyn Fn(usize) -> Option<f64>| {
        page.head(name, kind, help);
        for (at, (id, address)) in nodes.iter().enumerate() {
            if let Some(value) = value(at) {
                page.sample(name, &[("node", id), ("address", address)], value);
            }
        }
    };
    let truth = |is: bool| Some(f64::from(u8::from(is)));
    let id = |at: usize| view.nodes[at].id;
    let sum =
        |of: &dyn Fn(&weir_session::metrics::WorkerCounters) -> u64| Some(shared.counters.iter().map(of).sum::<u64>() as f64);
    family("weir_node_up", MetricKind::Gauge, "1 if the node answers.", &|at| truth(view.nodes[at].health != NodeHealth::Down));
    let help = "1 if sessions may use the node: it neither failed, nor is it quarantined, detached or being recovered.";
    family("weir_node_in_use", MetricKind::Gauge, help, &|at| truth(view.nodes[at].usage == NodeUsage::In));
    let answers =
        |at: usize| shared.cluster.agents.contact(id(at)).map(|contact| f64::from(u8::from(contact == AgentContact::Connected)));
    family("weir_node_agent_up", MetricKind::Gauge, "1 if the agent beside the node answers; nothing if it has none.", &answers);
    family("weir_node_primary", MetricKind::Gauge, "1 if writes go to the node.", &|at| truth(view.primary == Some(at)));
    family("weir_node_weight", MetricKind::Gauge, "Share of the reads.", &|at| Some(view.nodes[at].weight));
    let lag = |at: usize| view.nodes[at].lag_bytes.map(|bytes| bytes as f64);
    family("weir_node_lag_bytes", MetricKind::Gauge, "WAL the node has not replayed yet.", &lag);
    let lag = |at: usize| view.nodes[at].lag_us.map(in_seconds);
    family("weir_node_lag_seconds", MetricKind::Gauge, "For how long the node has lacked something the primary had.", &lag);
    let open = |at| Some(f64::from(shared.pools.node_open(id(at))));
    family("weir_node_server_connections", MetricKind::Gauge, "Server connections, those being opened included.", &open);
    let max = f64::from(shared.config.load().conns_per_node_max());
    family("weir_node_links_max", MetricKind::Gauge, "Server connections allowed.", &|_| Some(max));
    let statements = |at| sum(&|counters| counters.statements(id(at)).iter().sum());
    family("weir_node_statements_total", MetricKind::Counter, "Statements sent to the node.", &statements);
    let reads = |at| sum(&|counters| counters.reads(id(at)));
    family("weir_node_reads_total", MetricKind::Counter, "Reads sent to the node.", &reads);
    kinds(page, shared, &nodes, &view);
    let name = "weir_node_statement_seconds";
    page.head(name, MetricKind::Histogram, "Time from a statement to its end on the server.");
    for (at, (number, address)) in nodes.iter().enumerate() {
        let mut counted = HistogramCounts::default();
        shared.counters.iter().for_each(|counters| counted.add(&counters.times(id(at))));
        page.histogram(name, &[("node", number), ("address", address)], &counted, 0);
    }
}

/// Nothing without a watchdog.
fn watchdog(page: &mut MetricsPage, shared: &SharedState) {
    let Some(sight) = GroupSight::now(shared) else { return };
    page.single("weir_watchdog_leader", MetricKind::Gauge, "1 while this member leads the group.", u8::from(sight.leads));
    let (has_lease, left_s) = (u8::from(sight.lease_left_ms > 0), sight.lease_left_ms as f64 / 1e3);
    page.single(
        "weir_watchdog_has_lease",
        MetricKind::Gauge,
        "1 while this member may rely on what the group decided.",
        has_lease,
    );
    page.single("weir_watchdog_lease_left_seconds", MetricKind::Gauge, "Time until this member's lease ends.", left_s);
    let name = "weir_watchdog_parameters_differ";
    page.head(name, MetricKind::Gauge, "Parameters in which another host of the group differs from this one, and must not.");
    for host in sight.hosts.iter().filter(|host| !host.is_own) {
        page.sample(name, &[("host", &host.number.to_string())], host.differing.len());
    }
    let Some(decided) = sight.decided else { return };
    page.single("weir_watchdog_members", MetricKind::Gauge, "Members of the group that count.", decided.members);
    page.single("weir_watchdog_members_lost", MetricKind::Gauge, "Members that the group has marked lost.", decided.lost);
    page.single(
        "weir_watchdog_term",
        MetricKind::Gauge,
        "Term of the group: one more with each change of its leader.",
        decided.term,
    );
    page.single(
        "weir_watchdog_epoch",
        MetricKind::Gauge,
        "Epoch of writes: a greater one with each change of the node.",
        decided.epoch,
    );
    page.single("weir_watchdog_changes_total", MetricKind::Counter, "Changes of the group's state.", decided.changes);
}

fn kinds(page: &mut MetricsPage, shared: &SharedState, nodes: &[(String, String)], view: &ClusterView) {
    type Count = fn(&WorkerCounters, u16, usize) -> u64;
    let families: [(&str, &str, &str, &[&str], Count); 2] = [
        ("weir_node_kind_statements_total", "Statements sent to the node, by kind.", "kind", VERBS, |c, id, at| {
            c.statements(id)[at]
        }),
        ("weir_node_errors_total", "Errors of the node, by severity.", "severity", SEVERITIES, |c, id, at| c.severities(id)[at]),
    ];
    for (name, help, label, words, count) in families {
        page.head(name, MetricKind::Counter, help);
        for (node, (number, address)) in view.nodes.iter().zip(nodes) {
            for (at, word) in words.iter().enumerate() {
                let sum: u64 = shared.counters.iter().map(|counters| count(counters, node.id, at)).sum();
                page.sample(name, &[("node", number), ("address", address), (label, word)], sum);
            }
        }
    }
}

fn errors(page: &mut MetricsPage, shared: &SharedState) {
    let mut sums = [0; ERROR_CLASSES.len() + 1];
    for counters in &shared.counters {
        sums.iter_mut().zip(counters.errors()).for_each(|(sum, count)| *sum += count);
    }
    let name = "weir_server_errors_total";
    page.head(name, MetricKind::Counter, "Errors reported by servers, by the first two letters of their SQLSTATE.");
    for (class, sum) in ERROR_CLASSES.iter().copied().chain(["other"]).zip(sums) {
        page.sample(name, &[("class", class)], sum);
    }
}

fn kept(page: &mut MetricsPage, shared: &SharedState) {
    let reasons = shared.pools.kept(|_| true);
    let name = "weir_server_connections_pinned";
    page.head(name, MetricKind::Gauge, "Server connections that stay with a client because of state it left there.");
    for (reason, count) in reasons {
        page.sample(name, &[("reason", reason)], count);
    }
}

struct PoolRow {
    name: &'static str,
    kind: MetricKind,
    help: &'static str,
    value: fn(&StatTotals) -> f64,
}

const POOL_ROWS: &[PoolRow] = &[
    PoolRow {
        name: "weir_pool_logins_total",
        kind: MetricKind::Counter,
        help: "Clients that logged in.",
        value: |t| t.get(StatCounter::Logins) as f64,
    },
    PoolRow {
        name: "weir_pool_transactions_total",
        kind: MetricKind::Counter,
        help: "Transactions, a statement by itself included.",
        value: |t| t.get(StatCounter::Transactions) as f64,
    },
    PoolRow {
        name: "weir_pool_statements_total",
        kind: MetricKind::Counter,
        help: "Statements sent to servers.",
        value: |t| t.get(StatCounter::Statements) as f64,
    },
    PoolRow {
        name: "weir_pool_assignments_total",
        kind: MetricKind::Counter,
        help: "Times a client was given a server connection.",
        value: |t| t.get(StatCounter::Assignments) as f64,
    },
    PoolRow {
        name: "weir_pool_received_bytes_total",
        kind: MetricKind::Counter,
        help: "Bytes received from clients.",
        value: |t| t.get(StatCounter::Received) as f64,
    },
    PoolRow {
        name: "weir_pool_sent_bytes_total",
        kind: MetricKind::Counter,
        help: "Bytes received from servers for clients.",
        value: |t| t.get(StatCounter::Sent) as f64,
    },
    PoolRow {
        name: "weir_pool_transaction_seconds_total",
        kind: MetricKind::Counter,
        help: "Time in transactions.",
        value: |t| in_seconds(t.get(StatCounter::TransactionUs)),
    },
];

fn pools(page: &mut MetricsPage, shared: &SharedState) {
    let mut totals: Vec<(Whose, StatTotals)> = shared.stats.by_pool().into_iter().collect();
    let left_out = totals.len().saturating_sub(POOLS_MAX);
    totals.sort_by_key(|(_, totals)| std::cmp::Reverse(totals.get(StatCounter::Statements)));
    totals.truncate(POOLS_MAX);
    totals.sort_by(|(a, _), (b, _)| a.cmp(b));
    page.single("weir_pools_left_out", MetricKind::Gauge, "Users and databases without lines of their own here.", left_out);
    for row in POOL_ROWS {
        page.head(row.name, row.kind, row.help);
        for ((database, user), totals) in &totals {
            page.sample(row.name, &[("database", database), ("user", user)], (row.value)(totals));
        }
    }
    let name = "weir_pool_statement_seconds";
    page.head(name, MetricKind::Histogram, "Time from a statement to its end on the server.");
    for ((database, user), totals) in &totals {
        page.histogram(name, &[("database", database), ("user", user)], &totals.statements, 0);
    }
    let name = "weir_pool_wait_seconds";
    page.head(name, MetricKind::Histogram, "Time a client waited for a server connection, each time it needed one.");
    for ((database, user), totals) in &totals {
        let at_once = totals.get(StatCounter::Assignments).saturating_sub(totals.waits.count());
        page.histogram(name, &[("database", database), ("user", user)], &totals.waits, at_once);
    }
    pool_clients(page, shared, &totals);
    pool_conns(page, shared, &totals);
}

fn pool_clients(page: &mut MetricsPage, shared: &SharedState, shown: &[(Whose, StatTotals)]) {
    let groups = connection_list::groups(shared);
    let clients = "weir_pool_clients";
    page.head(clients, MetricKind::Gauge, "Clients, by whether they wait for a server connection.");
    for (whose, _) in shown {
        let group = groups.get(whose).copied().unwrap_or_default();
        let (database, user) = whose;
        for (state, count) in [("served", group.clients), ("waiting", group.waiting)] {
            page.sample(clients, &[("database", database), ("user", user), ("state", state)], count);
        }
    }
    let waits = "weir_pool_longest_wait_seconds";
    page.head(waits, MetricKind::Gauge, "How long the first client in the queue waits now.");
    for (whose, _) in shown {
        let waited = groups.get(whose).map_or(0.0, |group| group.waits.as_secs_f64());
        page.sample(waits, &[("database", &whose.0), ("user", &whose.1)], waited);
    }
}

fn pool_conns(page: &mut MetricsPage, shared: &SharedState, shown: &[(Whose, StatTotals)]) {
    let name = "weir_pool_server_connections";
    page.head(name, MetricKind::Gauge, "Server connections by what they do.");
    for pool in shared.pools.all() {
        let key = &pool.key;
        let whose = (key.client_database.clone(), key.user.clone());
        if shown.binary_search_by(|(known, _)| known.cmp(&whose)).is_err() {
            continue;
        }
        let (conns, node) = (connection_list::conns_of(&pool), key.node.to_string());
        let states = [
            ("active", conns.active),
            ("kept", conns.kept),
            ("idle", conns.idle),
            ("cleaning", conns.cleaning),
            ("opening", conns.opening),
        ];
        for (state, count) in states {
            page.sample(
                name,
                &[("database", &key.client_database), ("user", &key.user), ("node", &node), ("state", state)],
                count,
            );
        }
    }
}

/// A thread without a sign of life for so long counts as stuck.
const STUCK_MS: u64 = 10_000;

pub fn health(shared: &SharedState) -> Result<(), String> {
    let now_ms = shared.begun.elapsed().as_millis() as u64;
    for (id, mailbox) in shared.mailboxes.iter().enumerate() {
        let quiet_ms = now_ms.saturating_sub(mailbox.beat_ms.load(Ordering::Relaxed));
        if quiet_ms > STUCK_MS {
            shared.log.say(Level::Error, format_args!("worker {id} has done nothing for {quiet_ms} ms"));
            return Err(format!("worker {id} has done nothing for {quiet_ms} ms"));
        }
    }
    let quiet_ms = now_ms.saturating_sub(shared.control.beat_ms.load(Ordering::Relaxed));
    if quiet_ms > STUCK_MS {
        shared.log.say(Level::Error, format_args!("the control thread has done nothing for {quiet_ms} ms"));
        return Err(format!("the control thread has done nothing for {quiet_ms} ms"));
    }
    Ok(())
}

pub fn readiness(shared: &SharedState) -> Result<(), String> {
    health(shared)?;
    if shared.stop_mode() != crate::runtime::shared::ProxyShutdown::No {
        return Err("the proxy is shutting down".to_string());
    }
    if shared.pause_state.is_all_paused() {
        return Err("all databases are paused".to_string());
    }
    if shared.group.get().is_some_and(|seat| !seat.view().has_lease(boot_now_ms())) {
        return Err("the group's majority is out of reach (SHOW pool_watchdog tells more): writes wait".to_string());
    }
    if shared.cluster.view.load().primary.is_none() {
        return Err("no primary server is known".to_string());
    }
    Ok(())
}

/// For load balancers: clients that write find a primary here.
pub fn takes_writes(shared: &SharedState) -> Result<(), String> {
    readiness(shared)?;
    match shared.cluster.view.load().held {
        Some(why) => Err(format!("writes wait: {why}")),
        None => Ok(()),
    }
}

/// For load balancers: clients that read find a standby here.
pub fn takes_reads(shared: &SharedState) -> Result<(), String> {
    health(shared)?;
    if shared.stop_mode() != crate::runtime::shared::ProxyShutdown::No {
        return Err("the proxy is shutting down".to_string());
    }
    if shared.pause_state.is_all_paused() {
        return Err("all databases are paused".to_string());
    }
    let view = shared.cluster.view.load();
    let serves = |at: usize| view.is_standby(at) && view.takes_reads(at);
    if (0..view.nodes.len()).any(serves) { Ok(()) } else { Err("no standby takes reads".to_string()) }
}

/// For load balancers: one Weir of a group leads; a Weir without a group leads itself.
pub fn leads(shared: &SharedState) -> Result<(), String> {
    readiness(shared)?;
    match shared.group.get() {
        Some(seat) if !seat.view().leads(boot_now_ms()) => Err("another host leads the group".to_string()),
        Some(_) | None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::group_sight::tests as group_tests;
    use weir_session::histogram::Histogram;

    #[test]
    fn labels_are_escaped() {
        let mut page = MetricsPage::default();
        page.sample("m", &[("user", "a\"b\\c\nd"), ("state", "x")], 1);
        assert_eq!(page.text, "m{user=\"a\\\"b\\\\c\\nd\",state=\"x\"} 1\n");
    }

    #[test]
    fn buckets_of_a_histogram_add_up() {
        let (mut page, times) = (MetricsPage::default(), Histogram::default());
        times.note(40);
        times.note(u64::MAX >> 1);
        page.histogram("t", &[], &times.counted(), 3);
        assert!(page.text.starts_with("t_bucket{le=\"0.000032\"} 3\nt_bucket{le=\"0.000064\"} 4\n"), "{}", page.text);
        assert!(page.text.contains("t_bucket{le=\"+Inf\"} 5\n") && page.text.ends_with("t_count 5\n"), "{}", page.text);
    }

    fn watchdog_lines(shared: &SharedState) -> Vec<String> {
        let mut metrics = MetricsPage::default();
        watchdog(&mut metrics, shared);
        metrics.text.lines().filter(|line| !line.starts_with('#')).map(|line| line.replace("weir_watchdog_", "")).collect()
    }

    #[test]
    fn a_member_tells_what_the_group_decided() {
        let mut late = group_tests::view(1);
        late.rights.until = 0;
        late.peers[1].differing = vec!["backend_weight", "pool_mode"];
        let lines = watchdog_lines(&group_tests::shared(late));
        assert_eq!(lines[..2], ["leader 0", "has_lease 0"]);
        assert_eq!(lines[3..5], ["parameters_differ{host=\"0\"} 0", "parameters_differ{host=\"2\"} 2"]);
        let decided = ["members 3", "members_lost 0", "term 4", "epoch 5", "changes_total 7"];
        assert_eq!(lines[5..], decided);
        let mut leads = group_tests::view(0);
        leads.rights.until = u64::MAX;
        assert_eq!(watchdog_lines(&group_tests::shared(leads))[..2], ["leader 1", "has_lease 1"]);
        let mut first = group_tests::view(0);
        (first.version, first.rights.until) = (None, 0);
        assert_eq!(
            watchdog_lines(&group_tests::shared(first)),
            [
                "leader 0",
                "has_lease 0",
                "lease_left_seconds 0",
                "parameters_differ{host=\"1\"} 0",
                "parameters_differ{host=\"2\"} 0"
            ]
        );
        assert!(watchdog_lines(&crate::admin::listing::tests::shared()).is_empty());
    }

    #[test]
    fn a_member_without_a_lease_is_not_ready() {
        for (until, expected) in [(0, "the group's majority is out of reach"), (u64::MAX, "no primary server is known")] {
            let mut view = group_tests::view(1);
            view.rights.until = until;
            let shared = group_tests::shared(view);
            assert_eq!(health(&shared), Ok(()), "it works");
            let why = readiness(&shared).unwrap_err();
            assert!(why.starts_with(expected), "{why}");
        }
    }
}
