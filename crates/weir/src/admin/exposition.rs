//! Metrics in Prometheus' text format, version 0.0.4, or as OpenMetrics 1.0.0 has it.
//!
//! Reads `SharedState` only, for a thread of its own: with many pools it takes long.

pub mod metric_families;
mod process_metrics;

use crate::admin::group_sight::GroupSight;
use crate::log::Level;
use crate::runtime::agents_seen::AgentContact;
use crate::runtime::shared::{SharedState, seconds};
use crate::server::connection_list;
use metric_families::MetricFamily;
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

/// The two differ in the names of families of counters, in quotes within help, and in the end of the page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExpositionFormat {
    Prometheus,
    OpenMetrics,
}

impl ExpositionFormat {
    pub fn content_type(self) -> &'static str {
        match self {
            ExpositionFormat::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            ExpositionFormat::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }

    /// OpenMetrics for those who ask for it, and like it as well as plain text.
    pub fn asked_for(accept: &str) -> ExpositionFormat {
        let weight = |wanted: &str| {
            let weights = accept.split(',').filter_map(|range| {
                let mut words = range.split(';').map(str::trim);
                if !words.next()?.eq_ignore_ascii_case(wanted) {
                    return None;
                }
                let (mut weight, mut is_ours) = (1.0, true);
                for (name, value) in words.filter_map(|word| word.split_once('=')) {
                    match name.trim() {
                        "q" => weight = value.trim().parse().unwrap_or(0.0),
                        "version" => is_ours = ["1.0.0", "0.0.4"].contains(&value.trim().trim_matches('"')),
                        _ => {}
                    }
                }
                is_ours.then_some(weight)
            });
            weights.fold(0.0, f64::max)
        };
        let asked = weight("application/openmetrics-text");
        if asked > 0.0 && asked >= weight("text/plain") { ExpositionFormat::OpenMetrics } else { ExpositionFormat::Prometheus }
    }
}

struct MetricsPage {
    text: String,
    format: ExpositionFormat,
    families: BTreeMap<String, MetricFamily>,
}

impl MetricsPage {
    fn new(format: ExpositionFormat) -> MetricsPage {
        let families = metric_families::families().map(|family| (family.name.clone(), family)).collect();
        MetricsPage { text: String::new(), format, families }
    }

    /// The name must be in the table of families: a series that no page describes is none.
    fn head(&mut self, name: &str) {
        let Some(MetricFamily { kind, help, .. }) = self.families.get(name) else {
            debug_assert!(false, "{name} is in no row of metric_families.rs");
            return;
        };
        let help = help.replace('\\', "\\\\").replace('\n', "\\n");
        let (name, help) = match self.format {
            ExpositionFormat::Prometheus => (name, help),
            ExpositionFormat::OpenMetrics => (name.strip_suffix("_total").unwrap_or(name), help.replace('"', "\\\"")),
        };
        let _ = write!(self.text, "# HELP {name} {help}\n# TYPE {name} {}\n", kind.word());
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        self.text.push_str(name);
        self.labels(labels);
        let _ = writeln!(self.text, " {value}");
    }

    fn single(&mut self, name: &str, value: impl Display) {
        self.head(name);
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

pub fn page(shared: &SharedState, format: ExpositionFormat) -> String {
    let mut page = MetricsPage::new(format);
    own_process(&mut page, shared);
    process(&mut page, shared);
    certificates(&mut page, shared);
    counters(&mut page, shared);
    clients(&mut page, shared);
    nodes(&mut page, shared);
    watchdog(&mut page, shared);
    errors(&mut page, shared);
    kept(&mut page, shared);
    pools(&mut page, shared);
    if format == ExpositionFormat::OpenMetrics {
        page.text.push_str("# EOF\n");
    }
    page.text
}

fn own_process(page: &mut MetricsPage, shared: &SharedState) {
    let (version, commit) = crate::VERSION.split_once(' ').unwrap_or((crate::VERSION, ""));
    page.head("weir_build_info");
    page.sample("weir_build_info", &[("version", version), ("commit", commit)], 1);
    page.single("process_start_time_seconds", seconds(shared.life.started_at));
    page.single("process_cpu_seconds_total", process_metrics::cpu_seconds());
    let status = process_metrics::ProcessStatus::read();
    let numbers = [
        ("process_resident_memory_bytes", status.resident_bytes),
        ("process_virtual_memory_bytes", status.virtual_bytes),
        ("process_threads", status.threads),
        ("process_open_fds", process_metrics::open_descriptors().map(|count| count as u64)),
        ("process_max_fds", process_metrics::descriptors_max()),
    ];
    for (name, number) in numbers {
        page.head(name);
        if let Some(number) = number {
            page.sample(name, &[], number);
        }
    }
}

fn process(page: &mut MetricsPage, shared: &SharedState) {
    let started = seconds(shared.life.started_at);
    page.single("weir_start_time_seconds", started);
    page.single("weir_workers", shared.mailboxes.len());
    let stopping = u8::from(shared.stop_mode() != crate::runtime::shared::ProxyShutdown::No);
    page.single("weir_stopping", stopping);
    let paused = shared.pause_state.closed().iter().filter(|name| shared.pause_state.own(name).paused).count();
    page.single("weir_paused", u8::from(shared.pause_state.is_all_paused()));
    page.single("weir_databases_paused", paused);
}

/// One line per file, even if it serves two purposes.
fn certificates(page: &mut MetricsPage, shared: &SharedState) {
    let files = shared.files.tls.load();
    let ends: BTreeMap<&Path, u64> = files.ends().collect();
    let name = "weir_certificate_end_time_seconds";
    page.head(name);
    for (path, end) in ends {
        page.sample(name, &[("file", &path.to_string_lossy())], end);
    }
}

fn counters(page: &mut MetricsPage, shared: &SharedState) {
    for (at, row) in METRICS.iter().enumerate() {
        let sum: u64 = shared.counters.iter().map(|counters| counters.get(at)).sum();
        page.single(&format!("weir_{}", row.name), sum);
    }
}

fn clients(page: &mut MetricsPage, shared: &SharedState) {
    let config = shared.config.load();
    let clients = shared.clients.connected.load(Ordering::Relaxed);
    page.single("weir_clients", clients);
    page.single("weir_clients_max", config.pool.max_clients);
    page.single("weir_server_connections", shared.pools.open());
    page.single("weir_links_max", config.limits.conns);
    let consoles = shared.clients.consoles.load(Ordering::Relaxed);
    page.single("weir_consoles", consoles);
}

fn nodes(page: &mut MetricsPage, shared: &SharedState) {
    let view = shared.cluster.view.load_full();
    let nodes: Vec<(String, String)> =
        view.nodes.iter().map(|node| (node.id.to_string(), format!("{}:{}", node.hostname, node.port))).collect();
    let mut family = |name: &str, value: &dyn Fn(usize) -> Option<f64>| {
        page.head(name);
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
    family("weir_node_up", &|at| truth(view.nodes[at].health != NodeHealth::Down));
    family("weir_node_in_use", &|at| truth(view.nodes[at].usage == NodeUsage::In));
    let answers =
        |at: usize| shared.cluster.agents.contact(id(at)).map(|contact| f64::from(u8::from(contact == AgentContact::Connected)));
    family("weir_node_agent_up", &answers);
    family("weir_node_primary", &|at| truth(view.primary == Some(at)));
    family("weir_node_weight", &|at| Some(view.nodes[at].weight));
    let lag = |at: usize| view.nodes[at].lag_bytes.map(|bytes| bytes as f64);
    family("weir_node_lag_bytes", &lag);
    let lag = |at: usize| view.nodes[at].lag_us.map(in_seconds);
    family("weir_node_lag_seconds", &lag);
    let open = |at| Some(f64::from(shared.pools.node_open(id(at))));
    family("weir_node_server_connections", &open);
    let max = f64::from(shared.config.load().conns_per_node_max());
    family("weir_node_links_max", &|_| Some(max));
    let statements = |at| sum(&|counters| counters.statements(id(at)).iter().sum());
    family("weir_node_statements_total", &statements);
    let reads = |at| sum(&|counters| counters.reads(id(at)));
    family("weir_node_reads_total", &reads);
    kinds(page, shared, &nodes, &view);
    let name = "weir_node_statement_seconds";
    page.head(name);
    for (at, (number, address)) in nodes.iter().enumerate() {
        let mut counted = HistogramCounts::default();
        shared.counters.iter().for_each(|counters| counted.add(&counters.times(id(at))));
        page.histogram(name, &[("node", number), ("address", address)], &counted, 0);
    }
}

/// Nothing without a watchdog.
fn watchdog(page: &mut MetricsPage, shared: &SharedState) {
    let Some(sight) = GroupSight::now(shared) else { return };
    page.single("weir_watchdog_leader", u8::from(sight.leads));
    let (has_lease, left_s) = (u8::from(sight.lease_left_ms > 0), sight.lease_left_ms as f64 / 1e3);
    page.single("weir_watchdog_has_lease", has_lease);
    page.single("weir_watchdog_lease_left_seconds", left_s);
    let name = "weir_watchdog_parameters_differ";
    page.head(name);
    for host in sight.hosts.iter().filter(|host| !host.is_own) {
        page.sample(name, &[("host", &host.number.to_string())], host.differing.len());
    }
    let Some(decided) = sight.decided else { return };
    page.single("weir_watchdog_members", decided.members);
    page.single("weir_watchdog_members_lost", decided.lost);
    page.single("weir_watchdog_term", decided.term);
    page.single("weir_watchdog_epoch", decided.epoch);
    page.single("weir_watchdog_changes_total", decided.changes);
}

fn kinds(page: &mut MetricsPage, shared: &SharedState, nodes: &[(String, String)], view: &ClusterView) {
    type Count = fn(&WorkerCounters, u16, usize) -> u64;
    let families: [(&str, &str, &[&str], Count); 2] = [
        ("weir_node_kind_statements_total", "kind", VERBS, |c, id, at| c.statements(id)[at]),
        ("weir_node_errors_total", "severity", SEVERITIES, |c, id, at| c.severities(id)[at]),
    ];
    for (name, label, words, count) in families {
        page.head(name);
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
    page.head(name);
    for (class, sum) in ERROR_CLASSES.iter().copied().chain(["other"]).zip(sums) {
        page.sample(name, &[("class", class)], sum);
    }
}

fn kept(page: &mut MetricsPage, shared: &SharedState) {
    let reasons = shared.pools.kept(|_| true);
    let name = "weir_server_connections_pinned";
    page.head(name);
    for (reason, count) in reasons {
        page.sample(name, &[("reason", reason)], count);
    }
}

struct PoolRow {
    name: &'static str,
    value: fn(&StatTotals) -> f64,
}

const POOL_ROWS: &[PoolRow] = &[
    PoolRow { name: "weir_pool_logins_total", value: |t| t.get(StatCounter::Logins) as f64 },
    PoolRow { name: "weir_pool_transactions_total", value: |t| t.get(StatCounter::Transactions) as f64 },
    PoolRow { name: "weir_pool_statements_total", value: |t| t.get(StatCounter::Statements) as f64 },
    PoolRow { name: "weir_pool_assignments_total", value: |t| t.get(StatCounter::Assignments) as f64 },
    PoolRow { name: "weir_pool_received_bytes_total", value: |t| t.get(StatCounter::Received) as f64 },
    PoolRow { name: "weir_pool_sent_bytes_total", value: |t| t.get(StatCounter::Sent) as f64 },
    PoolRow { name: "weir_pool_transaction_seconds_total", value: |t| in_seconds(t.get(StatCounter::TransactionUs)) },
];

fn pools(page: &mut MetricsPage, shared: &SharedState) {
    let mut totals: Vec<(Whose, StatTotals)> = shared.stats.by_pool().into_iter().collect();
    let left_out = totals.len().saturating_sub(POOLS_MAX);
    totals.sort_by_key(|(_, totals)| std::cmp::Reverse(totals.get(StatCounter::Statements)));
    totals.truncate(POOLS_MAX);
    totals.sort_by(|(a, _), (b, _)| a.cmp(b));
    page.single("weir_pools_left_out", left_out);
    for row in POOL_ROWS {
        page.head(row.name);
        for ((database, user), totals) in &totals {
            page.sample(row.name, &[("database", database), ("user", user)], (row.value)(totals));
        }
    }
    let name = "weir_pool_statement_seconds";
    page.head(name);
    for ((database, user), totals) in &totals {
        page.histogram(name, &[("database", database), ("user", user)], &totals.statements, 0);
    }
    let name = "weir_pool_wait_seconds";
    page.head(name);
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
    page.head(clients);
    for (whose, _) in shown {
        let group = groups.get(whose).copied().unwrap_or_default();
        let (database, user) = whose;
        for (state, count) in [("served", group.clients), ("waiting", group.waiting)] {
            page.sample(clients, &[("database", database), ("user", user), ("state", state)], count);
        }
    }
    let waits = "weir_pool_longest_wait_seconds";
    page.head(waits);
    for (whose, _) in shown {
        let waited = groups.get(whose).map_or(0.0, |group| group.waits.as_secs_f64());
        page.sample(waits, &[("database", &whose.0), ("user", &whose.1)], waited);
    }
}

fn pool_conns(page: &mut MetricsPage, shared: &SharedState, shown: &[(Whose, StatTotals)]) {
    let name = "weir_pool_server_connections";
    page.head(name);
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
    use super::metric_families::MetricKind;
    use super::*;
    use crate::admin::group_sight::tests as group_tests;
    use weir_session::histogram::Histogram;

    #[test]
    fn the_format_is_the_one_that_the_reader_asks_for() {
        for (accept, expected) in [
            ("", ExpositionFormat::Prometheus),
            ("*/*", ExpositionFormat::Prometheus),
            ("text/html, text/plain;q=0.5", ExpositionFormat::Prometheus),
            (
                "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
                ExpositionFormat::OpenMetrics,
            ),
            (
                "text/plain;version=0.0.4;q=0.5, Application/OpenMetrics-Text; version=\"1.0.0\"; q=0.6",
                ExpositionFormat::OpenMetrics,
            ),
            ("application/openmetrics-text", ExpositionFormat::OpenMetrics),
            ("application/openmetrics-text;version=2.0.0,text/plain;q=0.5", ExpositionFormat::Prometheus),
            ("application/openmetrics-text;q=0.4,text/plain;q=0.5", ExpositionFormat::Prometheus),
            ("application/openmetrics-text;q=0", ExpositionFormat::Prometheus),
            ("application/openmetrics-text;q=", ExpositionFormat::Prometheus),
        ] {
            assert_eq!(ExpositionFormat::asked_for(accept), expected, "{accept}");
        }
    }

    /// Families of a page by the lines of their types.
    fn types(text: &str) -> BTreeMap<&str, &str> {
        text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' ')).collect()
    }

    #[test]
    fn a_member_of_a_group_shows_every_family_of_the_table_and_no_other() {
        let page = page(&group_tests::shared(group_tests::view(0)), ExpositionFormat::Prometheus);
        let families: Vec<MetricFamily> = metric_families::families().collect();
        let expected: BTreeMap<&str, &str> = families.iter().map(|family| (family.name.as_str(), family.kind.word())).collect();
        assert_eq!(expected.len(), families.len(), "a name stands twice");
        assert_eq!(types(&page), expected);
        for line in page.lines().filter(|line| !line.starts_with('#')) {
            let series = line.rsplit_once(' ').unwrap().0;
            let (name, labels) = series.split_once('{').unwrap_or((series, ""));
            let of = |family: &&MetricFamily| {
                name == family.name || (family.kind == MetricKind::Histogram && name.rsplit_once('_').unwrap().0 == family.name)
            };
            let family = families.iter().find(of).unwrap_or_else(|| panic!("no family of {line}"));
            let found = labels.split("\",").filter_map(|label| label.split_once('=')).map(|(name, _)| name);
            assert_eq!(found.filter(|name| *name != "le").collect::<Vec<_>>(), family.labels, "{line}");
        }
    }

    #[test]
    fn open_metrics_names_counters_without_their_suffix_and_ends() {
        let shared = crate::admin::listing::tests::shared();
        let [plain, open] = [ExpositionFormat::Prometheus, ExpositionFormat::OpenMetrics].map(|format| page(&shared, format));
        assert!(open.ends_with("\n# EOF\n") && !plain.contains("# EOF"));
        assert_eq!(types(&plain)["weir_node_reads_total"], "counter");
        assert_eq!(types(&open)["weir_node_reads"], "counter");
        assert!(!types(&open).keys().any(|name| name.ends_with("_total")), "{open}");
        assert_eq!(types(&open).len(), types(&plain).len(), "two families have one name");
        assert!(open.contains("\nweir_node_reads_total{node=\"0\""), "{open}");
    }

    #[test]
    fn labels_are_escaped() {
        let mut page = MetricsPage::new(ExpositionFormat::Prometheus);
        page.sample("m", &[("user", "a\"b\\c\nd"), ("state", "x")], 1);
        assert_eq!(page.text, "m{user=\"a\\\"b\\\\c\\nd\",state=\"x\"} 1\n");
    }

    #[test]
    fn buckets_of_a_histogram_add_up() {
        let (mut page, times) = (MetricsPage::new(ExpositionFormat::Prometheus), Histogram::default());
        times.note(40);
        times.note(u64::MAX >> 1);
        page.histogram("t", &[], &times.counted(), 3);
        assert!(page.text.starts_with("t_bucket{le=\"0.000032\"} 3\nt_bucket{le=\"0.000064\"} 4\n"), "{}", page.text);
        assert!(page.text.contains("t_bucket{le=\"+Inf\"} 5\n") && page.text.ends_with("t_count 5\n"), "{}", page.text);
    }

    fn watchdog_lines(shared: &SharedState) -> Vec<String> {
        let mut metrics = MetricsPage::new(ExpositionFormat::Prometheus);
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
