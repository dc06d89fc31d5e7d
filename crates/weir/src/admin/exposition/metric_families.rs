//! All series of `/metrics`: name, kind, labels and help. The page, its documentation, the board and the alerts take them from here.

use weir_session::metrics::METRICS;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetricKind {
    Counter,
    Gauge,
    Histogram,
}

impl MetricKind {
    pub fn word(self) -> &'static str {
        match self {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
            MetricKind::Histogram => "histogram",
        }
    }
}

/// Series of one name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MetricFamily {
    pub name: String,
    pub kind: MetricKind,
    pub labels: &'static [&'static str],
    pub help: &'static str,
}

/// All families, also those that only a group or an agent has: the counters of `METRICS`, then the others.
pub fn families() -> impl Iterator<Item = MetricFamily> {
    let counters = METRICS.iter().map(|row| MetricFamily {
        name: format!("weir_{}", row.name),
        kind: MetricKind::Counter,
        labels: &[],
        help: row.help,
    });
    let others =
        OTHERS.iter().map(|row| MetricFamily { name: row.name.into(), kind: row.kind, labels: row.labels, help: row.help });
    counters.chain(others)
}

struct FamilyRow {
    name: &'static str,
    kind: MetricKind,
    labels: &'static [&'static str],
    help: &'static str,
}

const fn counter(name: &'static str, labels: &'static [&'static str], help: &'static str) -> FamilyRow {
    FamilyRow { name, kind: MetricKind::Counter, labels, help }
}

const fn gauge(name: &'static str, labels: &'static [&'static str], help: &'static str) -> FamilyRow {
    FamilyRow { name, kind: MetricKind::Gauge, labels, help }
}

const fn histogram(name: &'static str, labels: &'static [&'static str], help: &'static str) -> FamilyRow {
    FamilyRow { name, kind: MetricKind::Histogram, labels, help }
}

/// Names of `process_` are those that Prometheus' own client libraries use.
const OTHERS: &[FamilyRow] = &[
    gauge(
        "weir_build_info",
        &["version", "commit"],
        "1, with version and commit of the program; the commit is empty if the build did not know it.",
    ),
    gauge("process_start_time_seconds", &[], "Start of the process, in seconds since 1970."),
    counter("process_cpu_seconds_total", &[], "CPU time of the process, user and system."),
    gauge("process_resident_memory_bytes", &[], "Memory of the process that is in RAM."),
    gauge("process_virtual_memory_bytes", &[], "Address space of the process."),
    gauge("process_threads", &[], "Threads of the process."),
    gauge("process_open_fds", &[], "Open file descriptors of the process: one for each connection, and some more."),
    gauge("process_max_fds", &[], "File descriptors that the process may have."),
    gauge("weir_start_time_seconds", &[], "Start of the proxy, in seconds since 1970."),
    gauge("weir_workers", &[], "Worker threads."),
    gauge("weir_stopping", &[], "1 while the proxy stops."),
    gauge("weir_paused", &[], "1 while all databases are paused."),
    gauge("weir_databases_paused", &[], "Databases paused by themselves."),
    gauge(
        "weir_certificate_end_time_seconds",
        &["file"],
        "End of the validity of Weir's own certificates, in seconds since 1970.",
    ),
    gauge("weir_clients", &[], "Client connections."),
    gauge("weir_clients_max", &[], "Client connections allowed."),
    gauge("weir_server_connections", &[], "Server connections, those being opened included."),
    gauge("weir_links_max", &[], "Server connections allowed in all; 0: only the nodes' limits."),
    gauge("weir_consoles", &[], "Connections to the administration console."),
    gauge("weir_node_up", &["node", "address"], "1 if the node answers."),
    gauge(
        "weir_node_in_use",
        &["node", "address"],
        "1 if sessions may use the node: it neither failed, nor is it quarantined, detached or being recovered.",
    ),
    gauge("weir_node_agent_up", &["node", "address"], "1 if the agent beside the node answers; nothing if it has none."),
    gauge("weir_node_primary", &["node", "address"], "1 if writes go to the node."),
    gauge("weir_node_weight", &["node", "address"], "Share of the reads."),
    gauge("weir_node_lag_bytes", &["node", "address"], "WAL the node has not replayed yet."),
    gauge("weir_node_lag_seconds", &["node", "address"], "For how long the node has lacked something the primary had."),
    gauge("weir_node_server_connections", &["node", "address"], "Server connections, those being opened included."),
    gauge("weir_node_links_max", &["node", "address"], "Server connections allowed."),
    counter("weir_node_statements_total", &["node", "address"], "Statements sent to the node."),
    counter("weir_node_reads_total", &["node", "address"], "Reads sent to the node."),
    counter("weir_node_kind_statements_total", &["node", "address", "kind"], "Statements sent to the node, by kind."),
    counter("weir_node_errors_total", &["node", "address", "severity"], "Errors of the node, by severity."),
    histogram("weir_node_statement_seconds", &["node", "address"], "Time from a statement to its end on the server."),
    gauge("weir_watchdog_leader", &[], "1 while this member leads the group."),
    gauge("weir_watchdog_has_lease", &[], "1 while this member may rely on what the group decided."),
    gauge("weir_watchdog_lease_left_seconds", &[], "Time until this member's lease ends."),
    gauge(
        "weir_watchdog_parameters_differ",
        &["host"],
        "Parameters in which another host of the group differs from this one, and must not.",
    ),
    gauge("weir_watchdog_members", &[], "Members of the group that count."),
    gauge("weir_watchdog_members_lost", &[], "Members that the group has marked lost."),
    gauge("weir_watchdog_term", &[], "Term of the group: one more with each change of its leader."),
    gauge("weir_watchdog_epoch", &[], "Epoch of writes: a greater one with each change of the node."),
    counter("weir_watchdog_changes_total", &[], "Changes of the group's state."),
    counter("weir_server_errors_total", &["class"], "Errors reported by servers, by the first two letters of their SQLSTATE."),
    gauge(
        "weir_server_connections_pinned",
        &["reason"],
        "Server connections that stay with a client because of state it left there.",
    ),
    gauge("weir_pools_left_out", &[], "Users and databases without lines of their own here."),
    counter("weir_pool_logins_total", &["database", "user"], "Clients that logged in."),
    counter("weir_pool_transactions_total", &["database", "user"], "Transactions, a statement by itself included."),
    counter("weir_pool_statements_total", &["database", "user"], "Statements sent to servers."),
    counter("weir_pool_assignments_total", &["database", "user"], "Times a client was given a server connection."),
    counter("weir_pool_received_bytes_total", &["database", "user"], "Bytes received from clients."),
    counter("weir_pool_sent_bytes_total", &["database", "user"], "Bytes received from servers for clients."),
    counter("weir_pool_transaction_seconds_total", &["database", "user"], "Time in transactions."),
    histogram("weir_pool_statement_seconds", &["database", "user"], "Time from a statement to its end on the server."),
    histogram(
        "weir_pool_wait_seconds",
        &["database", "user"],
        "Time a client waited for a server connection, each time it needed one.",
    ),
    gauge("weir_pool_clients", &["database", "user", "state"], "Clients, by whether they wait for a server connection."),
    gauge("weir_pool_longest_wait_seconds", &["database", "user"], "How long the first client in the queue waits now."),
    gauge("weir_pool_server_connections", &["database", "user", "node", "state"], "Server connections by what they do."),
];
