//! The workloads: one row each.

use super::result_file::ResultFile;

/// How pgbench sends its statements (`-M`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// One Query message.
    Simple,
    /// Parse, Bind, Describe, Execute, Sync with the unnamed statement.
    Extended,
    /// Bind, Describe, Execute, Sync with a named statement, parsed once per connection.
    Prepared,
}

impl Mode {
    /// The argument of pgbench's `-M`.
    pub fn argument(self) -> &'static str {
        match self {
            Mode::Simple => "simple",
            Mode::Extended => "extended",
            Mode::Prepared => "prepared",
        }
    }
}

/// Statements of a workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `pgbench -S`: one indexed read.
    Select(Mode),
    /// `pgbench -S -C`: a new connection for each read.
    Connect,
    /// pgbench's default: three updates, a read and an insert in a transaction.
    TpcbLike,
    /// Clients that logged in, ran this many statements, and wait.
    Idle { statements: u32 },
    /// One client reads a table through a simple query with this text.
    Rows { statement: &'static str },
    /// One indexed read that is the same text each time.
    Same,
    /// A write, then nine reads.
    Mixed,
    /// A new connection for a read of each of so many tables: Pgpool-II's own benchmark of its shared relation cache.
    Tables { tables: u32 },
    /// A program that shows new texts to the code that decides where they go.
    FirstSight,
    /// A database with 100,000 tables and 50,000 functions gets its first session.
    Catalog,
    /// An indexed read of one of `HIT_ROWS` rows, all of which were read before: with a cache, nothing but hits.
    Hits,
    /// Such reads by a client that costs less than pgbench, so that the cache limits the rate, not the client.
    Rush,
    /// Such reads, of which this many in a hundred are of those rows; the others were never read before.
    HitRatio { percent: u32 },
    /// A prepared indexed read, while `WRITERS` clients write rows of a table together so many times a second.
    Beside { writes: u32, table: Written },
    /// An indexed read whose answer nobody may keep.
    Uncacheable,
    /// A write to a table of which so many answers are kept.
    Invalidate { answers: u32 },
    /// One client sends `PIPELINE_STATEMENTS` before it reads the answers, with one Sync at the end or one after each.
    Pipeline { syncs: u32 },
    /// Reads of a quiet tenant, while so many clients of another keep all server connections that both may have busy.
    Tenants { noisy: u32 },
}

/// The table that is written while another workload reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Written {
    /// The one that is read.
    Read,
    Another,
}

/// Clients that write beside `Kind::Beside`.
pub const WRITERS: u32 = 4;

/// Statements in one pipeline.
pub const PIPELINE_STATEMENTS: u32 = 100;

/// Rows that are read again and again.
pub const HIT_ROWS: u32 = 1_000;

/// Server connections that two tenants share.
pub const SHARED_PLACES: u32 = 12;

/// How clients come in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Door {
    /// In clear text, and nobody is asked who he is.
    Open,
    /// Over TLS, and nobody is asked who he is.
    Tls,
    /// In clear text, with a password proven by SCRAM-SHA-256.
    Scram,
}

/// Servers and settings behind the system under test.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// One server.
    One,
    /// One server, and connections are served by epoll.
    Epoll,
    /// One server, beside programs that compute without end: `BUSY_PROGRAMS`.
    Busy,
    /// One server beside such programs, and connections are served by epoll.
    BusyEpoll,
    /// One server, and answers are kept: `memory_cache_enabled = on`, with as much memory as by default.
    Cached,
    /// As `Cached`, with room for a million answers.
    Hoard,
    /// One server, and `SHARED_PLACES` connections to it for all databases together.
    Shared,
    /// Answers are kept in a memcached beside it.
    Shelved,
    /// A primary and two standbys, reads on all three.
    Spread,
    /// As `Spread`, but all reads go to the primary: `load_balance_mode = off`.
    Unspread,
    /// Reads on the standbys only.
    Standbys,
    /// As `Standbys`, with `causal_reads = off`.
    Uncausal,
    /// As `Standbys`, with `causal_reads = session`.
    Session,
    /// As `Standbys`, with `causal_reads = global`.
    Global,
}

/// Programs that compute beside the systems of a busy stage.
pub const BUSY_PROGRAMS: usize = 3;

impl Stage {
    /// One server is behind the system.
    pub fn has_one_server(self) -> bool {
        self != Stage::Spread && self != Stage::Unspread && !self.is_of_standbys()
    }

    /// All reads go to standbys.
    pub fn is_of_standbys(self) -> bool {
        matches!(self, Stage::Standbys | Stage::Uncausal | Stage::Session | Stage::Global)
    }

    /// One server, and nothing that another pooler lacks.
    pub fn is_plain(self) -> bool {
        matches!(self, Stage::One | Stage::Epoll | Stage::Busy | Stage::BusyEpoll)
    }

    /// Connections are served by epoll.
    pub fn has_epoll(self) -> bool {
        matches!(self, Stage::Epoll | Stage::BusyEpoll)
    }

    /// Programs compute beside.
    pub fn is_busy(self) -> bool {
        matches!(self, Stage::Busy | Stage::BusyEpoll)
    }
}

/// One line of the benchmark.
pub struct Workload {
    /// The word for `--only`.
    pub name: &'static str,
    /// Its statements.
    pub kind: Kind,
    /// How its clients come in.
    pub door: Door,
    /// Servers behind it.
    pub stage: Stage,
    /// Clients at the same time.
    pub clients: u32,
    /// Name of one transaction, for the table's heading.
    pub unit: &'static str,
    /// When it runs without being asked for by its name.
    pub runs: Runs,
    /// The file in which its results are kept, if they are.
    pub file: Option<ResultFile>,
}

impl Workload {
    /// The row, with results that are kept in this file.
    const fn kept(self, file: ResultFile) -> Self {
        Self { file: Some(file), ..self }
    }

    /// The row on another stage.
    const fn on(self, stage: Stage) -> Self {
        Self { stage, ..self }
    }
}

/// When a workload runs that `--only` does not name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Runs {
    /// Also with `--quick`.
    Quick,
    /// Without `--quick`.
    Full,
    /// Never: it takes minutes.
    Asked,
}

const fn select(name: &'static str, mode: Mode, clients: u32, runs: Runs) -> Workload {
    Workload { name, kind: Kind::Select(mode), door: Door::Open, stage: Stage::One, clients, unit: "read", runs, file: None }
}

const fn other(name: &'static str, kind: Kind, clients: u32, unit: &'static str) -> Workload {
    Workload { name, kind, door: Door::Open, stage: Stage::One, clients, unit, runs: Runs::Full, file: None }
}

const fn before(stage: Stage, name: &'static str, kind: Kind, clients: u32, unit: &'static str) -> Workload {
    Workload { name, kind, door: Door::Open, stage, clients, unit, runs: Runs::Full, file: None }
}

const fn beside(stage: Stage, name: &'static str, writes: u32, table: Written) -> Workload {
    before(stage, name, Kind::Beside { writes, table }, 8, "prepared read beside writes")
}

const fn cached(name: &'static str, kind: Kind, clients: u32, unit: &'static str) -> Workload {
    before(Stage::Cached, name, kind, clients, unit)
}

const fn shelved(name: &'static str, kind: Kind, unit: &'static str) -> Workload {
    before(Stage::Shelved, name, kind, 8, unit).kept(ResultFile::Cache)
}

const fn idle(name: &'static str, statements: u32, clients: u32) -> Workload {
    let unit = if statements == 0 { "client that only logged in" } else { "client that ran one statement" };
    other(name, Kind::Idle { statements }, clients, unit).kept(ResultFile::Clients)
}

const fn tables(name: &'static str, tables: u32) -> Workload {
    before(Stage::Spread, name, Kind::Tables { tables }, 30, "read of one table, each script on a new connection")
}

const fn through(door: Door, name: &'static str, kind: Kind, clients: u32, unit: &'static str) -> Workload {
    Workload { name, kind, door, stage: Stage::One, clients, unit, runs: Runs::Full, file: None }
}

/// All workloads in the order they run within a round.
pub const WORKLOADS: &[Workload] = &[
    select("simple-1", Mode::Simple, 1, Runs::Full).kept(ResultFile::Clients),
    select("simple-8", Mode::Simple, 8, Runs::Quick).kept(ResultFile::Clients),
    select("simple-64", Mode::Simple, 64, Runs::Quick).kept(ResultFile::Clients),
    select("simple-256", Mode::Simple, 256, Runs::Full).kept(ResultFile::Clients),
    select("simple-1000", Mode::Simple, 1_000, Runs::Full).kept(ResultFile::Clients),
    select("extended-1", Mode::Extended, 1, Runs::Full),
    select("extended-8", Mode::Extended, 8, Runs::Full).kept(ResultFile::Table),
    select("extended-64", Mode::Extended, 64, Runs::Full).kept(ResultFile::Table),
    select("prepared-1", Mode::Prepared, 1, Runs::Full),
    select("prepared-8", Mode::Prepared, 8, Runs::Quick).kept(ResultFile::Table),
    select("prepared-64", Mode::Prepared, 64, Runs::Full).kept(ResultFile::Table),
    select("epoll-simple-8", Mode::Simple, 8, Runs::Full).kept(ResultFile::Table).on(Stage::Epoll),
    select("epoll-simple-64", Mode::Simple, 64, Runs::Full).kept(ResultFile::Table).on(Stage::Epoll),
    select("epoll-extended-8", Mode::Extended, 8, Runs::Full).kept(ResultFile::Table).on(Stage::Epoll),
    select("epoll-extended-64", Mode::Extended, 64, Runs::Full).kept(ResultFile::Table).on(Stage::Epoll),
    select("epoll-prepared-8", Mode::Prepared, 8, Runs::Full).kept(ResultFile::Table).on(Stage::Epoll),
    select("epoll-prepared-64", Mode::Prepared, 64, Runs::Full).kept(ResultFile::Table).on(Stage::Epoll),
    select("busy-simple-1", Mode::Simple, 1, Runs::Full).kept(ResultFile::Table).on(Stage::Busy),
    select("busy-simple-8", Mode::Simple, 8, Runs::Full).kept(ResultFile::Table).on(Stage::Busy),
    select("busy-prepared-64", Mode::Prepared, 64, Runs::Full).kept(ResultFile::Table).on(Stage::Busy),
    select("busy-epoll-simple-1", Mode::Simple, 1, Runs::Full).on(Stage::BusyEpoll),
    select("busy-epoll-simple-8", Mode::Simple, 8, Runs::Full).on(Stage::BusyEpoll),
    select("busy-epoll-prepared-64", Mode::Prepared, 64, Runs::Full).on(Stage::BusyEpoll),
    other("tpcb-8", Kind::TpcbLike, 8, "transaction").kept(ResultFile::Table),
    other("connect-10", Kind::Connect, 10, "connection and read").kept(ResultFile::Table),
    through(Door::Tls, "tls-simple-8", Kind::Select(Mode::Simple), 8, "read over TLS").kept(ResultFile::Table),
    through(Door::Tls, "tls-simple-64", Kind::Select(Mode::Simple), 64, "read over TLS"),
    through(Door::Tls, "tls-connect-10", Kind::Connect, 10, "connection over TLS and read").kept(ResultFile::Table),
    through(Door::Scram, "scram-connect-10", Kind::Connect, 10, "connection with SCRAM-SHA-256 and read").kept(ResultFile::Table),
    idle("idle-new-10000", 0, 10_000),
    idle("idle-used-100", 1, 100),
    idle("idle-used-1000", 1, 1_000),
    idle("idle-used-3000", 1, 3_000),
    idle("idle-used-10000", 1, 10_000),
    other("rows", Kind::Rows { statement: "SELECT line FROM bench_rows" }, 1, "result of 1,000,000 rows").kept(ResultFile::Table),
    other("copy", Kind::Rows { statement: "COPY bench_rows TO STDOUT" }, 1, "result of 1,000,000 rows").kept(ResultFile::Table),
    other("pipeline-batch", Kind::Pipeline { syncs: 1 }, 1, "statement of 100 before one Sync, latency per 100"),
    other(
        "pipeline-sync",
        Kind::Pipeline { syncs: PIPELINE_STATEMENTS },
        1,
        "statement of 100 sent at once, each with a Sync, latency per 100",
    ),
    before(Stage::Shared, "tenant-alone", Kind::Tenants { noisy: 0 }, 3, "read of a tenant alone"),
    before(Stage::Shared, "tenant-quiet", Kind::Tenants { noisy: 50 }, 3, "read of a tenant beside 50 busy clients of another"),
    other("same-8", Kind::Same, 8, "read, always of one text"),
    other("first-sight", Kind::FirstSight, 1, "text never seen before"),
    before(Stage::Unspread, "unrouted-8", Kind::Select(Mode::Simple), 8, "read, all on the primary").kept(ResultFile::Table),
    before(Stage::Spread, "spread-8", Kind::Select(Mode::Simple), 8, "read on one of three servers").kept(ResultFile::Table),
    before(Stage::Spread, "spread-64", Kind::Select(Mode::Simple), 64, "read on one of three servers").kept(ResultFile::Table),
    before(Stage::Session, "causal-session", Kind::Mixed, 8, "write and nine reads"),
    before(Stage::Uncausal, "causal-off", Kind::Mixed, 8, "write and nine reads"),
    beside(Stage::Session, "beside-session-0", 0, Written::Another),
    beside(Stage::Standbys, "beside-tables-0", 0, Written::Another),
    beside(Stage::Global, "beside-global-0", 0, Written::Another),
    beside(Stage::Session, "beside-session-20", 20, Written::Another),
    beside(Stage::Standbys, "beside-tables-20", 20, Written::Another),
    beside(Stage::Session, "beside-session-200", 200, Written::Another),
    beside(Stage::Standbys, "beside-tables-200", 200, Written::Another),
    beside(Stage::Session, "beside-session-1000", 1000, Written::Another),
    beside(Stage::Standbys, "beside-tables-1000", 1000, Written::Another),
    beside(Stage::Session, "within-session-200", 200, Written::Read),
    beside(Stage::Standbys, "within-tables-200", 200, Written::Read),
    beside(Stage::Unspread, "within-primary-200", 200, Written::Read),
    tables("tables-1", 1).kept(ResultFile::Table),
    tables("tables-2", 2),
    tables("tables-4", 4),
    tables("tables-8", 8),
    tables("tables-16", 16),
    tables("tables-32", 32),
    tables("tables-64", 64),
    tables("tables-128", 128),
    tables("tables-256", 256).kept(ResultFile::Table),
    cached("hits-4", Kind::Hits, 4, "read that is a hit").kept(ResultFile::Cache),
    cached("hits-8", Kind::Hits, 8, "read that is a hit").kept(ResultFile::Cache),
    other("hits-8-off", Kind::Hits, 8, "the same without a cache").kept(ResultFile::Cache),
    cached("hits-64", Kind::Hits, 64, "read that is a hit").kept(ResultFile::Cache),
    cached("hits-256", Kind::Hits, 256, "read that is a hit").kept(ResultFile::Cache),
    cached("rush-64", Kind::Rush, 64, "read that is a hit, by a cheap client").kept(ResultFile::Cache),
    other("rush-64-off", Kind::Rush, 64, "the same without a cache").kept(ResultFile::Cache),
    cached("ratio-0", Kind::HitRatio { percent: 0 }, 8, "read, none a hit").kept(ResultFile::Cache),
    other("ratio-0-off", Kind::HitRatio { percent: 0 }, 8, "the same without a cache").kept(ResultFile::Cache),
    cached("ratio-10", Kind::HitRatio { percent: 10 }, 8, "read, 10 % hits").kept(ResultFile::Cache),
    other("ratio-10-off", Kind::HitRatio { percent: 10 }, 8, "the same without a cache").kept(ResultFile::Cache),
    cached("ratio-20", Kind::HitRatio { percent: 20 }, 8, "read, 20 % hits").kept(ResultFile::Cache),
    other("ratio-20-off", Kind::HitRatio { percent: 20 }, 8, "the same without a cache").kept(ResultFile::Cache),
    cached("ratio-40", Kind::HitRatio { percent: 40 }, 8, "read, 40 % hits").kept(ResultFile::Cache),
    other("ratio-40-off", Kind::HitRatio { percent: 40 }, 8, "the same without a cache").kept(ResultFile::Cache),
    cached("ratio-60", Kind::HitRatio { percent: 60 }, 8, "read, 60 % hits").kept(ResultFile::Cache),
    cached("ratio-80", Kind::HitRatio { percent: 80 }, 8, "read, 80 % hits").kept(ResultFile::Cache),
    shelved("memcached-20", Kind::HitRatio { percent: 20 }, "read, 20 % hits in memcached"),
    shelved("memcached-40", Kind::HitRatio { percent: 40 }, "read, 40 % hits in memcached"),
    shelved("memcached-80", Kind::HitRatio { percent: 80 }, "read, 80 % hits in memcached"),
    shelved("memcached-hits", Kind::Hits, "read that is a hit in memcached"),
    cached("uncacheable", Kind::Uncacheable, 8, "read that is never kept").kept(ResultFile::Cache),
    other("uncacheable-off", Kind::Uncacheable, 8, "the same without a cache").kept(ResultFile::Cache),
    Workload {
        runs: Runs::Asked,
        ..before(Stage::Hoard, "invalidate-1k", Kind::Invalidate { answers: 1_000 }, 1, "write to a table of 1,000 answers")
    },
    Workload {
        runs: Runs::Asked,
        ..before(
            Stage::Hoard,
            "invalidate-1m",
            Kind::Invalidate { answers: 1_000_000 },
            1,
            "write to a table of 1,000,000 answers",
        )
    },
    Workload { runs: Runs::Asked, ..before(Stage::Spread, "catalog-100k", Kind::Catalog, 1, "first session of the database") },
];

/// The most tables of a workload.
pub const TABLES_MAX: u32 = 256;
