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
    /// One client sends `PIPELINE_STATEMENTS` before it reads the answers, with one Sync at the end or one after each.
    Pipeline { syncs: u32 },
}

/// Statements in one pipeline.
pub const PIPELINE_STATEMENTS: u32 = 100;

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

/// One line of the benchmark.
pub struct Workload {
    /// The word for `--only`.
    pub name: &'static str,
    /// What it does.
    pub kind: Kind,
    /// How its clients come in.
    pub door: Door,
    /// Clients at the same time.
    pub clients: u32,
    /// What one transaction is, for the table's heading.
    pub unit: &'static str,
    /// Whether `--quick` includes it.
    pub quick: bool,
}

const fn select(name: &'static str, mode: Mode, clients: u32, quick: bool) -> Workload {
    Workload { name, kind: Kind::Select(mode), door: Door::Open, clients, unit: "read", quick }
}

const fn other(name: &'static str, kind: Kind, clients: u32, unit: &'static str) -> Workload {
    Workload { name, kind, door: Door::Open, clients, unit, quick: false }
}

const fn through(door: Door, name: &'static str, kind: Kind, clients: u32, unit: &'static str) -> Workload {
    Workload { name, kind, door, clients, unit, quick: false }
}

/// All workloads in the order they run within a round.
pub const WORKLOADS: &[Workload] = &[
    select("simple-1", Mode::Simple, 1, false),
    select("simple-8", Mode::Simple, 8, true),
    select("simple-64", Mode::Simple, 64, true),
    select("simple-256", Mode::Simple, 256, false),
    select("extended-1", Mode::Extended, 1, false),
    select("extended-8", Mode::Extended, 8, false),
    select("extended-64", Mode::Extended, 64, false),
    select("prepared-1", Mode::Prepared, 1, false),
    select("prepared-8", Mode::Prepared, 8, true),
    select("prepared-64", Mode::Prepared, 64, false),
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
];
