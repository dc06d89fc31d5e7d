//! Metrics: one row per number, with its unit and its form in the report.

/// A number the benchmark can measure about one system under one workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Metric {
    /// Transactions (statements, results, ...: see the workload's unit) per second.
    Tps,
    /// Processor time of the proxy, user and system, per transaction.
    CpuMicros,
    /// Instructions the proxy's own code and libraries execute per transaction.
    UserInstructions,
    /// Instructions the kernel executes on behalf of the proxy per transaction.
    KernelInstructions,
    /// System calls of the proxy per transaction.
    Syscalls,
    /// Half of the transactions were faster.
    P50Micros,
    /// All but one in a hundred transactions were faster.
    P99Micros,
    /// Growth of the proxy's memory per idle client.
    IdleBytes,
    /// The proxy's whole memory while clients are idle; memory that its processes share counts once.
    MemoryBytes,
    /// Processor seconds of the proxy per 10^9 bytes of result.
    CpuPerGigabyte,
    /// Of a hundred reads, those that a standby answered.
    OnStandbysPercent,
    /// Time to class a text and judge its names.
    FirstSightMicros,
    /// From the first session of a database until its catalog is known.
    CatalogMillis,
    /// Growth of the proxy's resident memory by a catalog.
    CatalogBytes,
    /// Growth at its highest, while the catalog is made.
    CatalogPeakBytes,
    /// The slowest statement of others meanwhile.
    SlowestMicros,
}

/// How a metric is written in tables and in JSON.
pub struct MetricRow {
    /// The metric this row describes.
    pub metric: Metric,
    /// Key in the JSON file; ends with the unit.
    pub key: &'static str,
    /// Head of the table's column.
    pub title: &'static str,
    /// Digits after the point.
    pub digits: usize,
}

const fn row(metric: Metric, key: &'static str, title: &'static str, digits: usize) -> MetricRow {
    MetricRow { metric, key, title, digits }
}

/// All metrics in the order of the report's columns.
pub const METRICS: &[MetricRow] = &[
    row(Metric::Tps, "per_second", "per s", 0),
    row(Metric::CpuMicros, "proxy_cpu_us", "CPU us", 2),
    row(Metric::UserInstructions, "user_instructions", "instr:u", 0),
    row(Metric::KernelInstructions, "kernel_instructions", "instr:k", 0),
    row(Metric::Syscalls, "syscalls", "syscalls", 2),
    row(Metric::P50Micros, "p50_us", "p50 us", 0),
    row(Metric::P99Micros, "p99_us", "p99 us", 0),
    row(Metric::IdleBytes, "idle_client_bytes", "bytes/idle", 0),
    row(Metric::MemoryBytes, "proxy_memory_bytes", "bytes", 0),
    row(Metric::CpuPerGigabyte, "proxy_cpu_s_per_gb", "CPU s/GB", 3),
    row(Metric::OnStandbysPercent, "reads_on_standbys_percent", "on standbys %", 1),
    row(Metric::FirstSightMicros, "first_sight_us", "first sight us", 2),
    row(Metric::CatalogMillis, "catalog_ms", "catalog ms", 0),
    row(Metric::CatalogBytes, "catalog_bytes", "catalog bytes", 0),
    row(Metric::CatalogPeakBytes, "catalog_peak_bytes", "peak bytes", 0),
    row(Metric::SlowestMicros, "slowest_us", "slowest us", 0),
];

/// Numbers of one run of a workload.
pub type Sample = Vec<(Metric, f64)>;

/// The value of `metric` in `sample`, if it was measured.
pub fn value_of(sample: &Sample, metric: Metric) -> Option<f64> {
    sample.iter().find(|(m, _)| *m == metric).map(|&(_, value)| value)
}
