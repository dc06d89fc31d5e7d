//! The SHOW commands: one row of `VIEWS` each.
//!
//! Columns of Pgpool-II's commands are those of 4.7. All values are text.

mod cache_views;
pub mod failover_views;
pub mod pgpool;

use crate::runtime::worker::{PoolSet, Worker};
use crate::runtime::{agents_seen, probes};
use std::borrow::Cow;
use std::rc::Rc;
use std::sync::Arc;
use weir_catalog::rule::RoutingRule;
use weir_config::visibility::{ValueVisibility, Viewer};
use weir_failover::cluster::NodeIndex;
use weir_session::catalogs::{KnownDatabase, UNKNOWN};
use weir_session::host::AnswerTable;
use weir_session::metrics::METRICS;

use weir_session::shown::SETTING;

type Rows = Vec<Vec<String>>;

pub struct RoleRow {
    /// The role at the servers.
    pub(crate) owner: Arc<str>,
    pub(crate) cells: Vec<String>,
}

/// `Visibility::Owner` in a list without roles: readers of all statistics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ViewColumn {
    pub(crate) name: &'static str,
    pub(crate) seen_by: ValueVisibility,
}

const fn open(name: &'static str) -> ViewColumn {
    ViewColumn { name, seen_by: ValueVisibility::Everyone }
}

/// For the row's role, and readers of all statistics.
const fn own(name: &'static str) -> ViewColumn {
    ViewColumn { name, seen_by: ValueVisibility::Owner }
}

/// PostgreSQL's words for hidden values (`pg_stat_activity`).
const NOT_YOURS: &str = "<insufficient privilege>";

enum RowSource {
    Plain(fn(&ViewContext<'_>) -> Rows),
    /// Parameters with a visibility of their own.
    Parameters(fn(&ViewContext<'_>) -> Rows),
    Roles(fn(&ViewContext<'_>) -> Vec<RoleRow>),
}

pub struct StatusView {
    pub(crate) name: &'static str,
    pub(crate) help: &'static str,
    columns: &'static [ViewColumn],
    rows: RowSource,
}

impl StatusView {
    pub fn columns(&self) -> impl Iterator<Item = &'static str> {
        self.columns.iter().map(|column| column.name)
    }

    pub fn hidden_columns(&self) -> impl Iterator<Item = &'static str> {
        self.columns.iter().filter(|column| column.seen_by != ValueVisibility::Everyone).map(|column| column.name)
    }

    /// True for lists of the nodes, which are looked at before.
    pub fn is_of_nodes(&self) -> bool {
        self.columns == POOL_NODES
    }

    /// True if users see different rows or values.
    pub fn depends_on_viewer(&self) -> bool {
        matches!(self.rows, RowSource::Parameters(_)) || self.hidden_columns().next().is_some()
    }

    fn masked(&self, viewer: &Viewer, owner: Option<&str>, cells: Vec<String>) -> Vec<String> {
        let cell = |(column, cell): (&ViewColumn, String)| {
            if viewer.sees(column.seen_by, owner) { cell } else { NOT_YOURS.to_owned() }
        };
        self.columns.iter().zip(cells).map(cell).collect()
    }
}

pub struct ViewContext<'a> {
    pub(crate) viewer: &'a Viewer,
    /// Place of the node for this session's reads.
    pub(crate) favourite: Option<NodeIndex>,
    /// For the session's user and database.
    pub(crate) pools: &'a PoolSet,
    pub(crate) w: &'a Rc<Worker>,
}

pub const VIEWS: &[StatusView] = &[
    StatusView {
        name: "pool_nodes",
        help: "Servers, their roles and shares of reads.",
        columns: POOL_NODES,
        rows: RowSource::Plain(|ask| pgpool::node_rows(&ask.w.shared, ask.favourite)),
    },
    StatusView {
        name: "pool_backend_stats",
        help: "Statements sent to servers by kind, and errors of servers.",
        columns: POOL_BACKEND_STATS,
        rows: RowSource::Plain(|ask| pgpool::backend_rows(&ask.w.shared)),
    },
    StatusView {
        name: "pool_health_check_stats",
        help: "How often servers were asked for their roles, and what came of it.",
        columns: POOL_HEALTH_CHECK_STATS,
        rows: RowSource::Plain(|ask| pgpool::health_check_rows(&ask.w.shared)),
    },
    StatusView {
        name: "pool_failover",
        help: "What would happen if the primary failed now, and changes of the primary.",
        columns: failover_views::POOL_FAILOVER,
        rows: RowSource::Plain(failover_views::pool_failover),
    },
    StatusView {
        name: "pool_agents",
        help: "Agents beside servers (`weir agent`), as they were last asked.",
        columns: POOL_AGENTS,
        rows: RowSource::Plain(|ask| failover_views::pool_agents(&ask.w.shared)),
    },
    StatusView {
        name: "pool_version",
        help: "Version of the proxy.",
        columns: &[open("pool_version")],
        rows: RowSource::Plain(|_| vec![vec![version()]]),
    },
    StatusView {
        name: "pool_pools",
        help: "Server connections, one per row.",
        columns: POOL_POOLS,
        rows: RowSource::Roles(|ask| pgpool::pool_rows(&ask.w.shared)),
    },
    StatusView {
        name: "pool_processes",
        help: "Clients, one per row.",
        columns: POOL_PROCESSES,
        rows: RowSource::Roles(|ask| pgpool::process_rows(&ask.w.shared)),
    },
    StatusView {
        name: "pool_status",
        help: "Parameters and their values.",
        columns: &[open(SETTING[0]), open(SETTING[1]), open(SETTING[2])],
        rows: RowSource::Parameters(|ask| pgpool::status_rows(&ask.w.shared, ask.viewer)),
    },
    StatusView {
        name: "pool_metrics",
        help: "Counters since start.",
        columns: &[open("name"), open("value"), open("help")],
        rows: RowSource::Plain(pool_metrics),
    },
    StatusView {
        name: "pool_rules",
        help: "Routing rules in the order they are asked.",
        columns: &[open("position"), open("rule"), open("statements")],
        rows: RowSource::Plain(pool_rules),
    },
    StatusView {
        name: "pool_catalogs",
        help: "Catalogs of the databases in use, and how far they are known.",
        columns: POOL_CATALOGS,
        rows: RowSource::Plain(pool_catalogs),
    },
    StatusView {
        name: "pool_cache",
        help: "Work and fill of the query cache.",
        columns: cache_views::POOL_CACHE,
        rows: RowSource::Plain(cache_views::pool_cache),
    },
    StatusView {
        name: "pool_cache_entries",
        help: "Cached results of this database: statement, hits, and time saved.",
        columns: cache_views::POOL_CACHE_ENTRIES,
        rows: RowSource::Roles(cache_views::pool_cache_entries),
    },
    StatusView {
        name: "pool_causal",
        help: "Reads that a standby could not answer at once with `causal_reads = tables`, since somebody had changed what they read: by the relation that was changed last. Tables that share a place of the bounded list show together.",
        columns: cache_views::POOL_CAUSAL,
        rows: RowSource::Plain(cache_views::pool_causal),
    },
    StatusView {
        name: "pool_cache_tables",
        help: "How often the tables of this database changed. Each change invalidates their cached results.",
        columns: cache_views::POOL_CACHE_TABLES,
        rows: RowSource::Plain(cache_views::pool_cache_tables),
    },
    StatusView {
        name: "pool_cache_wal",
        help: "Databases whose log is followed, so that writes past Weir invalidate cached results.",
        columns: cache_views::POOL_CACHE_WAL,
        rows: RowSource::Plain(cache_views::pool_cache_wal),
    },
    StatusView {
        name: "pool_help",
        help: "These commands.",
        columns: &[open("command"), open("description")],
        rows: RowSource::Plain(pool_help),
    },
];

const POOL_NODES: &[ViewColumn] = &[
    open("node_id"),
    open("hostname"),
    open("port"),
    open("status"),
    open("pg_status"),
    open("lb_weight"),
    open("role"),
    open("pg_role"),
    open("select_cnt"),
    open("load_balance_node"),
    open("replication_delay"),
    open("replication_state"),
    open("replication_sync_state"),
    open("last_status_change"),
];

const POOL_BACKEND_STATS: &[ViewColumn] = &[
    open("node_id"),
    open("hostname"),
    open("port"),
    open("status"),
    open("role"),
    open("select_cnt"),
    open("insert_cnt"),
    open("update_cnt"),
    open("delete_cnt"),
    open("ddl_cnt"),
    open("other_cnt"),
    open("panic_cnt"),
    open("fatal_cnt"),
    open("error_cnt"),
];

const POOL_HEALTH_CHECK_STATS: &[ViewColumn] = &{
    const PLACE: [&str; 6] = ["node_id", "hostname", "port", "status", "role", "last_status_change"];
    let mut columns = [open(""); PLACE.len() + probes::COLUMNS.len()];
    let mut at = 0;
    while at < columns.len() {
        columns[at] = open(if at < PLACE.len() { PLACE[at] } else { probes::COLUMNS[at - PLACE.len()] });
        at += 1;
    }
    columns
};

/// Address and work of an agent are hidden from database users.
const POOL_AGENTS: &[ViewColumn] = &{
    let mut columns = [own(""); agents_seen::COLUMNS.len()];
    let mut at = 0;
    while at < columns.len() {
        columns[at] = own(agents_seen::COLUMNS[at]);
        at += 1;
    }
    columns[0] = open(agents_seen::COLUMNS[0]);
    columns
};

const POOL_POOLS: &[ViewColumn] = &[
    open("pool_pid"),
    open("start_time"),
    open("client_connection_count"),
    open("pool_id"),
    open("backend_id"),
    open("database"),
    open("username"),
    own("backend_connection_time"),
    own("client_connection_time"),
    own("client_disconnection_time"),
    own("client_idle_duration"),
    open("majorversion"),
    open("minorversion"),
    open("pool_counter"),
    open("pool_backendpid"),
    open("pool_connected"),
    own("status"),
    open("load_balance_node"),
    own("client_host"),
    own("client_port"),
    own("statement"),
];

const POOL_CATALOGS: &[ViewColumn] = &[
    open("database"),
    open("state"),
    open("relations"),
    open("functions"),
    open("bytes"),
    open("reads"),
    open("read_ms"),
    open("look_ms"),
    own("error"),
    own("read_as"),
];

const POOL_PROCESSES: &[ViewColumn] = &[
    open("pool_pid"),
    open("start_time"),
    open("client_connection_count"),
    open("database"),
    open("username"),
    own("backend_connection_time"),
    own("pool_counter"),
    own("status"),
];

pub fn view_of(name: &str) -> Option<usize> {
    VIEWS.iter().position(|view| view.name == name)
}

pub fn table_of(view: &StatusView, ask: &ViewContext<'_>) -> AnswerTable {
    let rows = match view.rows {
        RowSource::Plain(rows) | RowSource::Parameters(rows) => {
            rows(ask).into_iter().map(|cells| view.masked(ask.viewer, None, cells)).collect()
        }
        RowSource::Roles(rows) => rows(ask).into_iter().map(|row| view.masked(ask.viewer, Some(&row.owner), row.cells)).collect(),
    };
    AnswerTable { columns: view.columns().map(Cow::Borrowed).collect(), rows }
}

/// Pgpool-II's release whose tables and columns the SHOW commands have, first in `SHOW pool_version`: pgpool2_exporter, pgwatch and
/// pgmetrics read it to leave out tables of newer releases.
const PGPOOL_VERSION: &str = "4.7.0";

pub fn version() -> String {
    format!("{PGPOOL_VERSION} (Weir {})", crate::VERSION)
}

fn pool_metrics(ask: &ViewContext<'_>) -> Vec<Vec<String>> {
    let sum = |at: usize| ask.w.shared.counters.iter().map(|c| c.get(at)).sum::<u64>();
    METRICS.iter().enumerate().map(|(at, row)| vec![row.name.to_string(), sum(at).to_string(), row.help.to_string()]).collect()
}

fn pool_rules(ask: &ViewContext<'_>) -> Vec<Vec<String>> {
    let row = |rule: RoutingRule| {
        let count: u64 = ask.w.shared.counters.iter().map(|counters| counters.by_rule(rule)).sum();
        vec![(rule as usize + 1).to_string(), rule.name().to_string(), count.to_string()]
    };
    RoutingRule::all().map(row).collect()
}

fn pool_catalogs(ask: &ViewContext<'_>) -> Vec<Vec<String>> {
    let row = |database: Arc<KnownDatabase>| {
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
        let report = database.report.lock().clone();
        let numbers = [counts.relations as u64, counts.functions as u64, kept_bytes.unwrap_or(counts.bytes) as u64];
        let times = [report.reads, report.read_ms, report.look_ms];
        let mut cells = vec![database.name.to_string(), state.to_string()];
        cells.extend(numbers.iter().chain(&times).map(u64::to_string));
        cells.extend([report.error.unwrap_or_default(), report.read_as]);
        cells
    };
    ask.w.shared.catalogs.all().into_iter().map(row).collect()
}

fn pool_help(_: &ViewContext<'_>) -> Vec<Vec<String>> {
    let route = vec!["SHOW route FOR '<statement>'".to_string(), "Where a statement would go, and why.".to_string()];
    VIEWS.iter().map(|view| vec![format!("SHOW {}", view.name), view.help.to_string()]).chain([route]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_session::local::{LocalStatement, ParameterAssignment, local_of};

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
