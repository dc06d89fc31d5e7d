//! Every list that SQL on a database shows: one row of `VIEWS` is a SHOW command.
//!
//! Columns of Pgpool-II's commands are those of 4.7. All values are text.

mod agent_views;
mod cache_views;
mod failover_views;
pub mod pgpool;
mod recovery_view;
mod shard_views;
mod statement_advice;
mod statement_views;
mod watchdog_view;

pub use agent_views::POOL_AGENTS;
pub use failover_views::POOL_FAILOVER;
pub use recovery_view::POOL_RECOVERY;
pub use shard_views::{POOL_PREPARED, POOL_SHARD_TABLES, POOL_SHARDS};
pub use statement_views::POOL_STATEMENTS;
pub use watchdog_view::POOL_WATCHDOG;

use crate::admin::listing::{AnyListing, ListSnapshot, Listing, listing, open, own};
use std::borrow::Cow;
use std::sync::Arc;
use weir_catalog::rule::RoutingRule;
use weir_config::visibility::ValueVisibility;
use weir_session::catalogs::{CatalogReport, KnownDatabase, UNKNOWN};
use weir_session::host::AnswerTable;
use weir_session::metrics::METRICS;

/// A list by its name after SHOW.
pub struct StatusView {
    pub(crate) name: &'static str,
    pub(crate) help: &'static str,
    pub(crate) list: &'static dyn AnyListing,
}

impl StatusView {
    pub fn columns(&self) -> impl Iterator<Item = &'static str> {
        self.list.heads().into_iter().map(|head| head.name)
    }

    pub fn hidden_columns(&self) -> impl Iterator<Item = &'static str> {
        self.list.heads().into_iter().filter(|head| head.seen_by != ValueVisibility::Everyone).map(|head| head.name)
    }

    /// True for lists of the nodes, which are looked at before.
    pub fn is_of_nodes(&self) -> bool {
        self.name == "pool_nodes"
    }
}

pub const VIEWS: &[StatusView] = &[
    StatusView { name: "pool_nodes", help: "Servers, their roles and shares of reads.", list: &pgpool::POOL_NODES },
    StatusView {
        name: "pool_backend_stats",
        help: "Statements sent to servers by kind, and errors of servers.",
        list: &pgpool::POOL_BACKEND_STATS,
    },
    StatusView {
        name: "pool_health_check_stats",
        help: "How often servers were asked for their roles, and what came of it.",
        list: &pgpool::POOL_HEALTH_CHECK_STATS,
    },
    StatusView {
        name: "pool_failover",
        help: "Forecast of a failure of the primary now, and changes of the primary.",
        list: &POOL_FAILOVER,
    },
    StatusView {
        name: "pool_agents",
        help: "Agents beside servers (`weir agent`), as they were last asked.",
        list: &POOL_AGENTS,
    },
    StatusView {
        name: "pool_recovery",
        help: "Servers that are brought back now, by their agents or by scripts: bytes copied of the total, rate, time left.",
        list: &POOL_RECOVERY,
    },
    StatusView {
        name: "pool_watchdog",
        help: "Hosts of the watchdog's group, as the one that is asked knows them.",
        list: &POOL_WATCHDOG,
    },
    StatusView { name: "pool_shards", help: "Servers of all shards (`parallel_mode`).", list: &POOL_SHARDS },
    StatusView { name: "pool_shard_tables", help: "Sharded and reference tables of the database.", list: &POOL_SHARD_TABLES },
    StatusView {
        name: "pool_prepared",
        help: "Prepared parts of transactions on several shards, as they were seen last; Weir looks every 2 s (`parallel_mode`).",
        list: &POOL_PREPARED,
    },
    StatusView { name: "pool_version", help: "Version of the proxy.", list: &POOL_VERSION },
    StatusView { name: "pool_pools", help: "Server connections, one per row.", list: &pgpool::POOL_POOLS },
    StatusView { name: "pool_processes", help: "Clients, one per row.", list: &pgpool::POOL_PROCESSES },
    StatusView {
        name: "pool_statements",
        help: "Statements by text without literals, user and database: calls, times, rows, errors, where they ran, and advice.",
        list: &POOL_STATEMENTS,
    },
    StatusView { name: "pool_status", help: "Parameters and their values.", list: &pgpool::POOL_STATUS },
    StatusView { name: "pool_metrics", help: "Counters since start.", list: &POOL_METRICS },
    StatusView { name: "pool_rules", help: "Routing rules in the order they are asked.", list: &POOL_RULES },
    StatusView {
        name: "pool_catalogs",
        help: "Catalogs of the databases in use, and how far they are known.",
        list: &POOL_CATALOGS,
    },
    StatusView { name: "pool_cache", help: "Work and fill of the query cache.", list: &cache_views::POOL_CACHE },
    StatusView {
        name: "pool_cache_entries",
        help: "Cached results of this database: statement, hits, and time saved.",
        list: &cache_views::POOL_CACHE_ENTRIES,
    },
    StatusView {
        name: "pool_causal",
        help: "Reads that a standby could not answer at once with `causal_reads = tables`, since somebody had changed what they read: by the relation that was changed last. Tables that share a place of the bounded list show together.",
        list: &cache_views::POOL_CAUSAL,
    },
    StatusView {
        name: "pool_cache_tables",
        help: "How often the tables of this database changed. Each change invalidates their cached results.",
        list: &cache_views::POOL_CACHE_TABLES,
    },
    StatusView {
        name: "pool_cache_wal",
        help: "Databases whose log is followed, so that writes past Weir invalidate cached results.",
        list: &cache_views::POOL_CACHE_WAL,
    },
    StatusView { name: "pool_help", help: "These commands.", list: &POOL_HELP },
];

pub fn view_of(name: &str) -> Option<usize> {
    VIEWS.iter().position(|view| view.name == name)
}

pub fn table_of(view: &StatusView, of: &ListSnapshot<'_>) -> AnswerTable {
    let rows = view.list.rows(of).iter().map(|row| row.iter().map(ToString::to_string).collect()).collect();
    AnswerTable { columns: view.columns().map(Cow::Borrowed).collect(), rows }
}

/// Pgpool-II's release whose tables and columns the SHOW commands have, first in `SHOW pool_version`: pgpool2_exporter, pgwatch and
/// pgmetrics read it to leave out tables of newer releases.
const PGPOOL_VERSION: &str = "4.7.0";

const POOL_VERSION: Listing<()> = listing(|_| vec![()]).columns(&[&[open("pool_version", |()| version().into())]]);

pub fn version() -> String {
    format!("{PGPOOL_VERSION} (Weir {})", crate::VERSION)
}

/// A counter of all workers.
struct MetricSum {
    name: &'static str,
    value: u64,
    help: &'static str,
}

const POOL_METRICS: Listing<MetricSum> = listing(metric_sums).columns(&[&[
    open("name", |metric| metric.name.into()),
    open("value", |metric| metric.value.into()),
    open("help", |metric| metric.help.into()),
]]);

fn metric_sums(of: &ListSnapshot<'_>) -> Vec<MetricSum> {
    let sum = |at: usize| of.shared.counters.iter().map(|counters| counters.get(at)).sum();
    METRICS.iter().enumerate().map(|(at, row)| MetricSum { name: row.name, value: sum(at), help: row.help }).collect()
}

/// A routing rule, and the statements it has placed.
struct RuleSum {
    rule: RoutingRule,
    statements: u64,
}

const POOL_RULES: Listing<RuleSum> = listing(rule_sums).columns(&[&[
    open("position", |row| (row.rule as usize + 1).into()),
    open("rule", |row| row.rule.name().into()),
    open("statements", |row| row.statements.into()),
    open("reason", |row| row.rule.because(None).into()),
]]);

fn rule_sums(of: &ListSnapshot<'_>) -> Vec<RuleSum> {
    let sum = |rule| of.shared.counters.iter().map(|counters| counters.by_rule(rule)).sum();
    RoutingRule::all().map(|rule| RuleSum { rule, statements: sum(rule) }).collect()
}

/// A database, as far as it is known.
struct CatalogRow {
    database: Arc<str>,
    state: &'static str,
    relations: usize,
    functions: usize,
    bytes: usize,
    report: CatalogReport,
}

const POOL_CATALOGS: Listing<CatalogRow> =
    listing(|of| of.shared.catalogs.all().iter().map(|database| catalog_row(database)).collect()).columns(&[&[
        open("database", |row| (&row.database).into()),
        open("state", |row| row.state.into()),
        open("relations", |row| row.relations.into()),
        open("functions", |row| row.functions.into()),
        open("bytes", |row| row.bytes.into()),
        open("reads", |row| row.report.reads.into()),
        open("read_ms", |row| row.report.read_ms.into()),
        open("look_ms", |row| row.report.look_ms.into()),
        own("error", |row| row.report.error.as_ref().into()),
        own("read_as", |row| (&row.report.read_as).into()),
    ]]);

fn catalog_row(database: &KnownDatabase) -> CatalogRow {
    let catalog = database.catalog();
    let counts = catalog.as_ref().map(|catalog| catalog.counts()).unwrap_or_default();
    let kept_bytes = database.kept_bytes();
    let state = match (database.edition() == UNKNOWN, catalog.is_some()) {
        _ if !database.is_watched() && kept_bytes.is_some() => "kept",
        _ if !database.is_watched() => "unused",
        (false, _) => "current",
        (true, true) => "outdated",
        (true, false) => "unknown",
    };
    CatalogRow {
        database: database.name.clone(),
        state,
        relations: counts.relations,
        functions: counts.functions,
        bytes: kept_bytes.unwrap_or(counts.bytes),
        report: database.report.lock().clone(),
    }
}

/// A command, and what it shows.
struct CommandHelp {
    command: String,
    description: &'static str,
}

const POOL_HELP: Listing<CommandHelp> = listing(commands)
    .columns(&[&[open("command", |row| (&row.command).into()), open("description", |row| row.description.into())]]);

fn commands(_: &ListSnapshot<'_>) -> Vec<CommandHelp> {
    let route =
        CommandHelp { command: "SHOW route FOR '<statement>'".into(), description: "Where a statement would go, and why." };
    let view = |view: &StatusView| CommandHelp { command: format!("SHOW {}", view.name), description: view.help };
    VIEWS.iter().map(view).chain([route]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::listing::tests::check_list;
    use weir_session::local::{LocalStatement, ParameterAssignment, local_of};
    use weir_session::shown::SETTING;

    #[test]
    fn every_list_has_a_cell_for_each_column_and_hides_what_it_should() {
        let rows: Vec<_> = VIEWS.iter().map(|view| (view.name, check_list(view.name, view.list))).collect();
        for expected in
            [("pool_nodes", 2), ("pool_agents", 2), ("pool_failover", 1), ("pool_processes", 1), ("pool_help", VIEWS.len() + 1)]
        {
            assert!(rows.contains(&expected), "{expected:?} in {rows:?}");
        }
        let is_of =
            |columns: Vec<&str>, name: &str| VIEWS.iter().any(|view| view.name == name && view.columns().eq(columns.clone()));
        assert!(is_of(SETTING.to_vec(), "pool_status"), "a parameter looks the same in PGPOOL SHOW");
    }

    #[test]
    fn our_own_commands_are_recognised() {
        let of = |text: &str| local_of(&weir_sql::facts(text.as_bytes()), text, view_of);
        assert_eq!(of("show POOL_NODES;"), Some(LocalStatement::View(0)));
        assert_eq!(of("PGPOOL SHOW port"), Some(LocalStatement::Parameter("port".into())));
        assert_eq!(of(" pgpool show ALL ;"), Some(LocalStatement::Parameter("all".into())));
        let set = |name: &str, value: &str| Some(LocalStatement::Set(name.into(), ParameterAssignment::To(value.to_string())));
        assert_eq!(of("PGPOOL SET X = 1"), set("x", "1"));
        assert_eq!(of("pgpool set log_statement to on;"), set("log_statement", "on"));
        assert_eq!(of("pgpool set weir.route='node=2'"), set("weir.route", "node=2"));
        assert_eq!(of("pgpool set a to 'it''s'"), set("a", "it's"));
        assert_eq!(of("PGPOOL SET x TO default"), Some(LocalStatement::Set("x".into(), ParameterAssignment::Default)));
        assert_eq!(of("pgpool set cache  delete;"), Some(LocalStatement::DeleteCache(None)));
        for text in ["pgpool set cache delete 'select 1' ;", "PGPOOL SET CACHE DELETE'select 1'"] {
            assert_eq!(of(text), Some(LocalStatement::DeleteCache(Some("select 1".into()))), "{text}");
        }
        assert_eq!(of("PGPOOL SET cache TO delete"), set("cache", "delete"));
        assert_eq!(of("pgpool reset ALL"), Some(LocalStatement::Set("all".into(), ParameterAssignment::Reset)));
        for text in [
            "PGPOOL SET x",
            "PGPOOL SET x 1",
            "pgpool set x = 1 2",
            "pgpool show",
            "pgpool reset a b",
            "pgpool set cache delete 'x' 'y'",
            "pgpool set cache delete x",
        ] {
            assert_eq!(of(text), Some(LocalStatement::Unknown(text.into())), "{text}");
        }
        assert_eq!(of("SHOW work_mem"), None);
        assert_eq!(of("SELECT 1"), None);
        assert_eq!(of("show Route for 'select ''a'''  ;"), Some(LocalStatement::Route("select 'a'".into())));
        assert_eq!(of("show route for 'a' 'b'"), None);
        assert_eq!(of("show route for x"), None);
        assert_eq!(of("pgpoolish show"), None);
    }
}
