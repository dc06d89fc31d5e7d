//! Counters. Every worker has its own numbers, summed by queries.

use crate::histogram::{Histogram, HistogramCounts, TimeBucket, add};
use std::sync::atomic::{AtomicU64, Ordering};
use weir_catalog::rule::RoutingRule;
use weir_sql::facts::StatementVerb;

/// Highest node number plus one. Source: Pgpool-II `MAX_NUM_BACKENDS`.
pub const NODES_MAX: usize = 128;

/// A counter: its index into `METRICS`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum WorkerCounter {
    ClientsAccepted,
    ClientsRefused,
    LoginsFailed,
    LoginsSlowed,
    PcpRequests,
    PcpLoginsFailed,
    TlsClients,
    TlsFailed,
    StatementsSimple,
    StatementsExtended,
    StatementsAnswered,
    BeginsDeferred,
    ReadsSpread,
    ReadsRepeated,
    WritesSentAnew,
    TransactionsLost,
    OutcomesUnknown,
    OutcomesCommitted,
    OutcomesRolledBack,
    TransactionsReplayed,
    ReplaysRefused,
    SessionsToldOfLoss,
    ReadsNotReplayed,
    ReplayWaits,
    PositionRounds,
    CatalogsRead,
    TextsParsed,
    ConnsOpened,
    ConnsFailed,
    ConnsLost,
    ConnsChecked,
    ConnsReset,
    ConnsWorn,
    ConnsLent,
    Waits,
    WaitTimeouts,
    SettingsSent,
    Inventories,
    ParsesAdded,
    ParsesSpared,
    ParsesRenewed,
    SessionsPinned,
    CancelsForwarded,
    ReserveUses,
    Overtimes,
    Replications,
    ListensMoved,
    ListenersLost,
    Notifications,
    StatementsForgotten,
    CacheHits,
    CacheStored,
    CacheWaits,
    CacheFollowed,
    CacheBehind,
    CacheFollowWaits,
    CacheStoresAsked,
    CacheStoresSpared,
    CacheStoresLost,
    ShardCommits,
    ShardGates,
    ShardGateSeconds,
}

pub struct CounterDescription {
    pub name: &'static str,
    pub help: &'static str,
}

/// All counters, in the order of `WorkerCounter`. Names follow Prometheus: the unit or `_total` last.
pub const METRICS: &[CounterDescription] = &[
    CounterDescription { name: "clients_accepted_total", help: "Client connections accepted." },
    CounterDescription { name: "clients_refused_total", help: "Client connections refused by a limit." },
    CounterDescription { name: "logins_failed_total", help: "Logins that failed." },
    CounterDescription {
        name: "logins_slowed_total",
        help: "Logins that had to wait, or were sent away, after too many failed ones.",
    },
    CounterDescription {
        name: "pcp_requests_total",
        help: "Requests of PCP, Pgpool-II's administration, by users who proved who they are.",
    },
    CounterDescription { name: "pcp_logins_failed_total", help: "Logins to PCP that failed." },
    CounterDescription { name: "tls_clients_total", help: "Client connections that began TLS." },
    CounterDescription { name: "tls_failed_total", help: "Client connections that wanted TLS and could not begin it." },
    CounterDescription { name: "statements_simple_total", help: "Query messages forwarded." },
    CounterDescription { name: "statements_extended_total", help: "Execute messages forwarded." },
    CounterDescription { name: "statements_answered_total", help: "Statements answered by Weir itself." },
    CounterDescription {
        name: "begins_deferred_total",
        help: "BEGINs answered by Weir itself, which go to a server with the first statement.",
    },
    CounterDescription { name: "reads_spread_total", help: "Statements routed by weight as reads." },
    CounterDescription {
        name: "reads_repeated_total",
        help: "Times a read ran again elsewhere because a standby refused it or its server was lost.",
    },
    CounterDescription {
        name: "writes_sent_anew_total",
        help: "Times a statement that may write was sent anew, since its server had not seen it or had refused it for being no primary.",
    },
    CounterDescription {
        name: "transactions_lost_total",
        help: "Transactions and reads that failed with 40001 since their server was lost.",
    },
    CounterDescription {
        name: "outcomes_unknown_total",
        help: "Losses of a server after which nobody knows what a session's statements did (08007).",
    },
    CounterDescription {
        name: "outcomes_committed_total",
        help: "COMMITs whose answer was lost and whose transaction was proved to be committed (commit_outcome).",
    },
    CounterDescription {
        name: "outcomes_rolled_back_total",
        help: "COMMITs whose answer was lost and whose transaction was proved to be rolled back (commit_outcome).",
    },
    CounterDescription {
        name: "transactions_replayed_total",
        help: "Transactions that were lost with their server, ran again, and came out the same (transaction_replay).",
    },
    CounterDescription {
        name: "replays_refused_total",
        help: "Transactions that ran again and did not come out the same, or could not run again; their clients heard 40001.",
    },
    CounterDescription {
        name: "sessions_told_of_loss_total",
        help: "Times a session heard that a new primary is not known to have all that the session was shown.",
    },
    CounterDescription {
        name: "reads_not_replayed_total",
        help: "Reads answered by the primary, since no standby was known to have replayed what they must show.",
    },
    CounterDescription { name: "replay_waits_total", help: "Reads that waited for a standby to replay what they must show." },
    CounterDescription { name: "position_rounds_total", help: "Times the primary was asked for its WAL position." },
    CounterDescription {
        name: "catalogs_read_total",
        help: "Times the catalog of a database was read, because it was new or had changed.",
    },
    CounterDescription { name: "texts_parsed_total", help: "Texts that were not known and had to be parsed." },
    CounterDescription { name: "server_connections_opened_total", help: "Server connections opened." },
    CounterDescription { name: "server_connections_failed_total", help: "Server connections that could not be opened." },
    CounterDescription {
        name: "server_connections_lost_total",
        help: "Server connections that broke or were closed by the server.",
    },
    CounterDescription {
        name: "server_connections_checked_total",
        help: "Server connections over which server_check_query was asked before their use.",
    },
    CounterDescription { name: "server_connections_reset_total", help: "Server connections reset before another client's use." },
    CounterDescription {
        name: "server_connections_worn_total",
        help: "Server connections closed since clients had made up more than 1,000 parameters on them.",
    },
    CounterDescription { name: "server_connections_lent_total", help: "Server connections moved from one worker to another." },
    CounterDescription { name: "waits_total", help: "Times a client had to wait for a server connection." },
    CounterDescription { name: "wait_timeouts_total", help: "Waits that ended at pool_wait_timeout." },
    CounterDescription { name: "settings_sent_total", help: "Times a server connection was brought to a session's settings." },
    CounterDescription { name: "inventories_total", help: "Times a server was asked what a session had left on its connection." },
    CounterDescription {
        name: "parses_added_total",
        help: "Prepared statements brought along to a server connection that lacked them.",
    },
    CounterDescription {
        name: "parses_spared_total",
        help: "Parses without a name that were not sent, since the server connection had their text (`unnamed_statements`).",
    },
    CounterDescription {
        name: "parses_renewed_total",
        help: "Of these, those that were sent after all, since what the server had kept was out of date.",
    },
    CounterDescription { name: "sessions_pinned_total", help: "Sessions that left state on a server connection and keep it." },
    CounterDescription { name: "cancels_forwarded_total", help: "Cancel requests forwarded to a server." },
    CounterDescription { name: "reserve_uses_total", help: "Server connections opened out of the reserve." },
    CounterDescription { name: "overtimes_total", help: "Statements and sessions ended because they took too long." },
    CounterDescription {
        name: "replications_total",
        help: "Replication clients that were given a server connection of their own.",
    },
    CounterDescription {
        name: "listens_moved_total",
        help: "Times a session's LISTEN was moved to a connection shared by many.",
    },
    CounterDescription {
        name: "listeners_lost_total",
        help: "Connections that listened for clients and broke; notifications were lost.",
    },
    CounterDescription { name: "notifications_total", help: "Notifications that came on connections that listen for clients." },
    CounterDescription {
        name: "statements_forgotten_total",
        help: "Times that the least used texts made room for a new one in SHOW pool_statements (statement_statistics_max).",
    },
    CounterDescription { name: "cache_hits_total", help: "Statements answered from the query cache." },
    CounterDescription { name: "cache_stored_total", help: "Results stored in the query cache." },
    CounterDescription { name: "cache_waits_total", help: "Statements that waited for an answer another client had asked for." },
    CounterDescription {
        name: "cache_followed_total",
        help: "Transactions taken in from the primary's log (memqcache_invalidation = wal).",
    },
    CounterDescription {
        name: "cache_behind_total",
        help: "Cached results that were not served, because the log was not read far enough yet.",
    },
    CounterDescription {
        name: "cache_follow_waits_total",
        help: "Statements that waited for the log to be taken in before their answer was given.",
    },
    CounterDescription { name: "cache_stores_asked_total", help: "Results looked for in memcached or Redis." },
    CounterDescription {
        name: "cache_stores_spared_total",
        help: "Results not looked for there: their question was seen for the first time, or servers are faster.",
    },
    CounterDescription {
        name: "cache_stores_lost_total",
        help: "Connections to memcached or Redis that broke or did not answer in time.",
    },
    CounterDescription { name: "shard_commits_total", help: "Transactions on several shards whose parts were prepared." },
    CounterDescription {
        name: "shard_gates_total",
        help: "Times the lock between commits on several shards and reads of several shards was held; those that come at a time share it.",
    },
    CounterDescription {
        name: "shard_gate_held_seconds_total",
        help: "Time for which the lock between commits on several shards and reads of several shards was held.",
    },
];

/// The counters of one worker, their only writer: an increment is a load and a store.
#[derive(Debug)]
pub struct WorkerCounters {
    values: [AtomicU64; METRICS.len()],
    reads: [AtomicU64; NODES_MAX],
    rules: [AtomicU64; RoutingRule::COUNT],
    statements: Vec<[AtomicU64; VERBS.len()]>,
    severities: Vec<[AtomicU64; SEVERITIES.len()]>,
    times: Vec<Histogram>,
    /// The last place is for other classes.
    errors: [AtomicU64; ERROR_CLASSES.len() + 1],
}

/// Kinds of statements, in the order of `StatementVerb`, by the prefixes of Pgpool-II's columns.
pub const VERBS: &[&str; 6] = &["select", "insert", "update", "delete", "ddl", "other"];

pub const SEVERITIES: &[&str; 3] = &["PANIC", "FATAL", "ERROR"];

/// First two letters of SQLSTATEs, sorted. Source: PostgreSQL manual, "PostgreSQL Error Codes".
pub const ERROR_CLASSES: &[&str; 40] = &[
    "03", "08", "09", "0A", "0B", "0F", "0L", "0P", "0Z", "20", "21", "22", "23", "24", "25", "26", "27", "28", "2B", "2D", "2F",
    "34", "38", "39", "3B", "3D", "3F", "40", "42", "44", "53", "54", "55", "57", "58", "72", "F0", "HV", "P0", "XX",
];

impl Default for WorkerCounters {
    fn default() -> WorkerCounters {
        WorkerCounters {
            values: [const { AtomicU64::new(0) }; METRICS.len()],
            reads: [const { AtomicU64::new(0) }; NODES_MAX],
            rules: [const { AtomicU64::new(0) }; RoutingRule::COUNT],
            statements: (0..NODES_MAX).map(|_| Default::default()).collect(),
            severities: (0..NODES_MAX).map(|_| Default::default()).collect(),
            times: (0..NODES_MAX).map(|_| Histogram::default()).collect(),
            errors: [const { AtomicU64::new(0) }; ERROR_CLASSES.len() + 1],
        }
    }
}

impl WorkerCounters {
    #[inline]
    pub fn count(&self, metric: WorkerCounter) {
        add(&self.values[metric as usize], 1);
    }

    pub fn count_by(&self, metric: WorkerCounter, by: u64) {
        add(&self.values[metric as usize], by);
    }

    #[inline]
    pub fn count_read(&self, node: u16) {
        if let Some(counter) = self.reads.get(usize::from(node)) {
            add(counter, 1);
        }
    }

    #[inline]
    pub fn count_rule(&self, rule: RoutingRule) {
        add(&self.rules[rule as usize], 1);
    }

    pub fn by_rule(&self, rule: RoutingRule) -> u64 {
        self.rules[rule as usize].load(Ordering::Relaxed)
    }

    #[inline]
    pub fn count_statement(&self, node: u16, verb: StatementVerb) {
        if let Some(counters) = self.statements.get(usize::from(node)) {
            add(&counters[verb as usize], 1);
        }
    }

    #[inline]
    pub fn note_time(&self, node: u16, bucket: TimeBucket, us: u64) {
        if let Some(times) = self.times.get(usize::from(node)) {
            times.note_in(bucket, us);
        }
    }

    pub fn count_error(&self, sqlstate: &[u8]) {
        let class = sqlstate.get(..2).unwrap_or_default();
        let at = ERROR_CLASSES.binary_search_by(|known| known.as_bytes().cmp(class)).unwrap_or(ERROR_CLASSES.len());
        add(&self.errors[at], 1);
    }

    pub fn count_severity(&self, node: u16, severity: &[u8]) {
        let at = SEVERITIES.iter().position(|known| known.as_bytes() == severity);
        if let Some((counters, at)) = self.severities.get(usize::from(node)).zip(at) {
            add(&counters[at], 1);
        }
    }

    pub fn statements(&self, node: u16) -> [u64; VERBS.len()] {
        let load = |counters: &[AtomicU64; VERBS.len()]| counters.each_ref().map(|v| v.load(Ordering::Relaxed));
        self.statements.get(usize::from(node)).map(load).unwrap_or_default()
    }

    pub fn severities(&self, node: u16) -> [u64; SEVERITIES.len()] {
        let load = |counters: &[AtomicU64; SEVERITIES.len()]| counters.each_ref().map(|v| v.load(Ordering::Relaxed));
        self.severities.get(usize::from(node)).map(load).unwrap_or_default()
    }

    pub fn times(&self, node: u16) -> HistogramCounts {
        self.times.get(usize::from(node)).map_or_else(HistogramCounts::default, Histogram::counted)
    }

    pub fn errors(&self) -> impl Iterator<Item = u64> {
        self.errors.iter().map(|v| v.load(Ordering::Relaxed))
    }

    pub fn get(&self, row: usize) -> u64 {
        self.values.get(row).map_or(0, |v| v.load(Ordering::Relaxed))
    }

    pub fn reads(&self, node: u16) -> u64 {
        self.reads.get(usize::from(node)).map_or(0, |v| v.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_counted_by_class() {
        assert!(ERROR_CLASSES.is_sorted());
        let counters = WorkerCounters::default();
        [&b"42P01"[..], b"42601", b"ZZ123", b""].iter().for_each(|code| counters.count_error(code));
        let counted: Vec<(&str, u64)> = ERROR_CLASSES.iter().copied().chain(["other"]).zip(counters.errors()).collect();
        assert_eq!(counted.into_iter().filter(|(_, count)| *count > 0).collect::<Vec<_>>(), [("42", 2), ("other", 2)]);
    }

    #[test]
    fn each_metric_and_each_nodes_reads_have_a_count_of_their_own() {
        let counters = WorkerCounters::default();
        let last = METRICS.len() - 1;
        [0, last, last].iter().for_each(|row| add(&counters.values[*row], 1));
        assert_eq!([0, 1, last, METRICS.len()].map(|row| counters.get(row)), [1, 0, 2, 0]);
        [2, 2, 500].iter().for_each(|node| counters.count_read(*node));
        assert_eq!([0, 2, 500].map(|node| counters.reads(node)), [0, 2, 0], "a node beyond the last is none");
    }

    #[test]
    fn statements_and_errors_of_a_node_are_counted_by_kind() {
        let counters = WorkerCounters::default();
        [StatementVerb::Select, StatementVerb::Definition, StatementVerb::Other, StatementVerb::Select]
            .iter()
            .for_each(|verb| counters.count_statement(1, *verb));
        [&b"ERROR"[..], b"FATAL", b"ERROR", b"NOTICE"].iter().for_each(|severity| counters.count_severity(1, severity));
        assert_eq!((counters.statements(1), counters.statements(0)), ([2, 0, 0, 0, 1, 1], [0; 6]));
        assert_eq!((counters.severities(1), counters.severities(500)), ([0, 1, 2], [0; 3]));
    }

    #[test]
    fn statements_are_counted_by_the_rule_of_their_node() {
        let counters = WorkerCounters::default();
        [RoutingRule::Read, RoutingRule::Catalog, RoutingRule::Read].iter().for_each(|rule| counters.count_rule(*rule));
        assert_eq!(
            [RoutingRule::Read, RoutingRule::Catalog, RoutingRule::Function].map(|rule| counters.by_rule(rule)),
            [2, 1, 0]
        );
    }

    #[test]
    fn every_counter_has_its_row() {
        assert_eq!(METRICS.len(), WorkerCounter::ShardGateSeconds as usize + 1);
        assert_eq!(METRICS[WorkerCounter::Waits as usize].name, "waits_total");
        assert_eq!(METRICS[WorkerCounter::ConnsLost as usize].name, "server_connections_lost_total");
    }
}
