//! What is counted. One row of `METRICS` per counter; each worker has its own, summed when asked for.

use std::sync::atomic::{AtomicU64, Ordering};

/// Highest node number plus one. Source: Pgpool-II `MAX_NUM_BACKENDS`.
pub const NODES_MAX: usize = 128;

/// One counter: its index into `Counters` is its place here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Metric {
    ClientsAccepted,
    ClientsRefused,
    LoginsFailed,
    StatementsSimple,
    StatementsExtended,
    StatementsAnswered,
    ReadsSpread,
    TextsParsed,
    LinksOpened,
    LinksFailed,
    LinksLost,
    LinksReset,
    LinksLent,
    Waits,
    WaitTimeouts,
    SettingsSent,
    Inventories,
    ParsesAdded,
    SessionsKept,
    CancelsForwarded,
}

/// Name and meaning of a counter, in the order of `Metric`.
pub struct Row {
    pub name: &'static str,
    pub help: &'static str,
}

/// The table of counters. Names follow Prometheus: unit or `_total` last.
pub const METRICS: &[Row] = &[
    Row { name: "clients_accepted_total", help: "Client connections accepted." },
    Row { name: "clients_refused_total", help: "Client connections refused by a limit." },
    Row { name: "logins_failed_total", help: "Logins that failed." },
    Row { name: "statements_simple_total", help: "Query messages forwarded." },
    Row { name: "statements_extended_total", help: "Execute messages forwarded." },
    Row { name: "statements_answered_total", help: "Statements answered by Weir itself." },
    Row { name: "reads_spread_total", help: "Statements routed by weight as reads." },
    Row { name: "texts_parsed_total", help: "Texts that were not known and had to be parsed." },
    Row { name: "links_opened_total", help: "Server connections opened." },
    Row { name: "links_failed_total", help: "Server connections that could not be opened." },
    Row { name: "links_lost_total", help: "Server connections that broke or were closed by the server." },
    Row { name: "links_reset_total", help: "Server connections reset before another client's use." },
    Row { name: "links_lent_total", help: "Server connections moved from one worker to another." },
    Row { name: "waits_total", help: "Times a client had to wait for a server connection." },
    Row { name: "wait_timeouts_total", help: "Waits that ended at pool_wait_timeout." },
    Row { name: "settings_sent_total", help: "Times a server connection was brought to a session's settings." },
    Row { name: "inventories_total", help: "Times a server was asked what a session had left on its connection." },
    Row { name: "parses_added_total", help: "Prepared statements brought along to a server connection that lacked them." },
    Row { name: "sessions_kept_total", help: "Sessions that left state on a server connection and keep it." },
    Row { name: "cancels_forwarded_total", help: "Cancel requests forwarded to a server." },
];

/// The counters of one worker. Only it writes, so an increment is a load and a store.
#[derive(Debug)]
pub struct Counters {
    values: [AtomicU64; METRICS.len()],
    /// Reads by node, as Pgpool's `select_cnt` counts them.
    selects: [AtomicU64; NODES_MAX],
}

impl Default for Counters {
    fn default() -> Counters {
        Counters { values: [const { AtomicU64::new(0) }; METRICS.len()], selects: [const { AtomicU64::new(0) }; NODES_MAX] }
    }
}

impl Counters {
    #[inline]
    pub fn count(&self, metric: Metric) {
        bump(&self.values[metric as usize]);
    }

    /// A read on the node with this number.
    #[inline]
    pub fn count_select(&self, node: u16) {
        if let Some(counter) = self.selects.get(usize::from(node)) {
            bump(counter);
        }
    }

    pub fn get(&self, row: usize) -> u64 {
        self.values.get(row).map_or(0, |v| v.load(Ordering::Relaxed))
    }

    pub fn selects(&self, node: u16) -> u64 {
        self.selects.get(usize::from(node)).map_or(0, |v| v.load(Ordering::Relaxed))
    }
}

#[inline]
fn bump(counter: &AtomicU64) {
    counter.store(counter.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_counter_has_its_row() {
        assert_eq!(METRICS.len(), Metric::CancelsForwarded as usize + 1);
        assert_eq!(METRICS[Metric::Waits as usize].name, "waits_total");
        assert_eq!(METRICS[Metric::LinksLost as usize].name, "links_lost_total");
    }
}
