//! The workloads: one row each.

/// How pgbench sends its statements (`-M`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// One Query message.
    Simple,
    /// Parse, Bind, Describe, Execute, Sync with the unnamed statement.
    Extended,
    /// The same with a named statement, parsed once per connection.
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

/// What a workload does.
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
    /// The same reads by a client that costs less than pgbench: what a cache gives, and not what its client can take.
    Rush,
    /// Of a hundred such reads so many are of those rows; the others were never read before.
    HitRatio { percent: u32 },
    /// An indexed read whose answer nobody may keep.
    Uncacheable,
    /// A write to a table of which so many answers are kept.
    Invalidate { answers: u32 },
    /// One client sends `PIPELINE_STATEMENTS` before it reads the answers, with one Sync at the end or one after each.
    Pipeline { syncs: u32 },
}

/// Statements in one pipeline.
pub const PIPELINE_STATEMENTS: u32 = 100;

/// Rows that are read again and again.
pub const HIT_ROWS: u32 = 1_000;

/// How clients come in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Door {
    /// In clear text, and nobody is asked who he is.
    Open,
    /// The same over TLS.
    Tls,
    /// In clear text, with a password proven by SCRAM-SHA-256.
    Scram,
}

/// What stands behind the system under test.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// One server.
    One,
    /// One server, and answers are kept: `memory_cache_enabled = on`, with as much memory as by default.
    Cached,
    /// The same with room for a million answers.
    Hoard,
    /// Answers are kept in a memcached beside it.
    Shelved,
    /// A primary and two standbys, reads on all three.
    Spread,
    /// The same servers, all on the primary: `load_balance_mode = off`.
    Unspread,
    /// Reads on the standbys only.
    Standbys,
    /// The same with `causal_reads = off`.
    Uncausal,
}

/// One line of the benchmark.
pub struct Workload {
    /// The word for `--only`.
    pub name: &'static str,
    /// What it does.
    pub kind: Kind,
    /// How its clients come in.
    pub door: Door,
    /// Servers behind it.
    pub stage: Stage,
    /// Clients at the same time.
    pub clients: u32,
    /// What one transaction is, for the table's heading.
    pub unit: &'static str,
    /// When it runs without being asked for by its name.
    pub runs: Runs,
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
    Workload { name, kind: Kind::Select(mode), door: Door::Open, stage: Stage::One, clients, unit: "read", runs }
}

const fn other(name: &'static str, kind: Kind, clients: u32, unit: &'static str) -> Workload {
    Workload { name, kind, door: Door::Open, stage: Stage::One, clients, unit, runs: Runs::Full }
}

const fn before(stage: Stage, name: &'static str, kind: Kind, clients: u32, unit: &'static str) -> Workload {
    Workload { name, kind, door: Door::Open, stage, clients, unit, runs: Runs::Full }
}

const fn cached(name: &'static str, kind: Kind, clients: u32, unit: &'static str) -> Workload {
    before(Stage::Cached, name, kind, clients, unit)
}

const fn tables(name: &'static str, tables: u32) -> Workload {
    before(Stage::Spread, name, Kind::Tables { tables }, 30, "read of one table, each script on a new connection")
}

const fn through(door: Door, name: &'static str, kind: Kind, clients: u32, unit: &'static str) -> Workload {
    Workload { name, kind, door, stage: Stage::One, clients, unit, runs: Runs::Full }
}

/// All workloads in the order they run within a round.
pub const WORKLOADS: &[Workload] = &[
    select("simple-1", Mode::Simple, 1, Runs::Full),
    select("simple-8", Mode::Simple, 8, Runs::Quick),
    select("simple-64", Mode::Simple, 64, Runs::Quick),
    select("simple-256", Mode::Simple, 256, Runs::Full),
    select("extended-1", Mode::Extended, 1, Runs::Full),
    select("extended-8", Mode::Extended, 8, Runs::Full),
    select("extended-64", Mode::Extended, 64, Runs::Full),
    select("prepared-1", Mode::Prepared, 1, Runs::Full),
    select("prepared-8", Mode::Prepared, 8, Runs::Quick),
    select("prepared-64", Mode::Prepared, 64, Runs::Full),
    other("tpcb-8", Kind::TpcbLike, 8, "transaction"),
    other("connect-10", Kind::Connect, 10, "connection and read"),
    through(Door::Tls, "tls-simple-8", Kind::Select(Mode::Simple), 8, "read over TLS"),
    through(Door::Tls, "tls-simple-64", Kind::Select(Mode::Simple), 64, "read over TLS"),
    through(Door::Tls, "tls-connect-10", Kind::Connect, 10, "connection over TLS and read"),
    through(Door::Scram, "scram-connect-10", Kind::Connect, 10, "connection with SCRAM-SHA-256 and read"),
    other("idle-new", Kind::Idle { statements: 0 }, 10_000, "client that only logged in"),
    other("idle-used", Kind::Idle { statements: 1 }, 10_000, "client that ran one statement"),
    other("rows", Kind::Rows { statement: "SELECT line FROM bench_rows" }, 1, "result of 1,000,000 rows"),
    other("copy", Kind::Rows { statement: "COPY bench_rows TO STDOUT" }, 1, "result of 1,000,000 rows"),
    other("pipeline-batch", Kind::Pipeline { syncs: 1 }, 1, "statement of 100 before one Sync, latency per 100"),
    other(
        "pipeline-sync",
        Kind::Pipeline { syncs: PIPELINE_STATEMENTS },
        1,
        "statement of 100 sent at once, each with a Sync, latency per 100",
    ),
    other("same-8", Kind::Same, 8, "read, always of one text"),
    other("first-sight", Kind::FirstSight, 1, "text never seen before"),
    before(Stage::Unspread, "unrouted-8", Kind::Select(Mode::Simple), 8, "read, all on the primary"),
    before(Stage::Spread, "spread-8", Kind::Select(Mode::Simple), 8, "read on one of three servers"),
    before(Stage::Spread, "spread-64", Kind::Select(Mode::Simple), 64, "read on one of three servers"),
    before(Stage::Standbys, "causal-session", Kind::Mixed, 8, "write and nine reads"),
    before(Stage::Uncausal, "causal-off", Kind::Mixed, 8, "write and nine reads"),
    tables("tables-1", 1),
    tables("tables-2", 2),
    tables("tables-4", 4),
    tables("tables-8", 8),
    tables("tables-16", 16),
    tables("tables-32", 32),
    tables("tables-64", 64),
    tables("tables-128", 128),
    tables("tables-256", 256),
    cached("hits-4", Kind::Hits, 4, "read that is a hit"),
    cached("hits-8", Kind::Hits, 8, "read that is a hit"),
    cached("hits-64", Kind::Hits, 64, "read that is a hit"),
    cached("hits-256", Kind::Hits, 256, "read that is a hit"),
    cached("rush-64", Kind::Rush, 64, "read that is a hit, by a cheap client"),
    other("rush-64-off", Kind::Rush, 64, "the same without a cache"),
    cached("ratio-0", Kind::HitRatio { percent: 0 }, 8, "read, none a hit"),
    other("ratio-0-off", Kind::HitRatio { percent: 0 }, 8, "the same without a cache"),
    cached("ratio-10", Kind::HitRatio { percent: 10 }, 8, "read, 10 % hits"),
    other("ratio-10-off", Kind::HitRatio { percent: 10 }, 8, "the same without a cache"),
    cached("ratio-20", Kind::HitRatio { percent: 20 }, 8, "read, 20 % hits"),
    other("ratio-20-off", Kind::HitRatio { percent: 20 }, 8, "the same without a cache"),
    cached("ratio-50", Kind::HitRatio { percent: 50 }, 8, "read, 50 % hits"),
    other("ratio-50-off", Kind::HitRatio { percent: 50 }, 8, "the same without a cache"),
    before(Stage::Shelved, "memcached-hits", Kind::Hits, 8, "read that is a hit in memcached"),
    before(Stage::Shelved, "memcached-20", Kind::HitRatio { percent: 20 }, 8, "read, 20 % hits in memcached"),
    before(Stage::Shelved, "memcached-40", Kind::HitRatio { percent: 40 }, 8, "read, 40 % hits in memcached"),
    other("memcached-20-off", Kind::HitRatio { percent: 20 }, 8, "the same without a cache"),
    other("memcached-40-off", Kind::HitRatio { percent: 40 }, 8, "the same without a cache"),
    cached("uncacheable", Kind::Uncacheable, 8, "read that is never kept"),
    other("uncacheable-off", Kind::Uncacheable, 8, "the same without a cache"),
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
