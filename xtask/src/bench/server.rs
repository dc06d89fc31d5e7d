//! The PostgreSQL behind all systems, with the tables of the workloads.

use std::process::Command;
use std::time::Duration;

use anyhow::{Result, ensure};
use weir_demo::{Cluster, Options};

use crate::process;

/// Settings that keep the disk and background work out of the numbers.
const SETTINGS: [(&str, &str); 8] = [
    ("fsync", "off"),
    ("synchronous_commit", "off"),
    ("full_page_writes", "off"),
    ("shared_buffers", "512MB"),
    ("max_connections", "1000"),
    ("max_wal_size", "4GB"),
    ("autovacuum", "off"),
    ("jit", "off"),
];
const FILL_LIMIT: Duration = Duration::from_secs(600);
/// 1,000,000 rows of 100 characters, for the workloads that read much.
const ROWS: &str = "CREATE UNLOGGED TABLE bench_rows AS \
    SELECT rpad(n::text, 100, 'x') AS line FROM generate_series(1, 1000000) AS n";

/// Starts a primary and fills it for pgbench at `scale`.
pub fn start(scale: u32) -> Result<Cluster> {
    let extra_conf = SETTINGS.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect();
    let cluster = Cluster::start(Options { extra_conf, ..Options::default() })?;
    let port = cluster.primary().port().to_string();
    let mut pgbench = Command::new("pgbench");
    pgbench.args(["-h", "127.0.0.1", "-p", &port, "-U", "postgres", "-i", "-q", "-s", &scale.to_string(), "postgres"]);
    let output = process::run(&mut pgbench, FILL_LIMIT)?;
    ensure!(output.status.success(), "pgbench cannot fill its tables: {}", output.stderr);
    cluster.primary().query(ROWS)?;
    cluster.primary().query("VACUUM ANALYZE")?;
    cluster.primary().query("CHECKPOINT")?;
    Ok(cluster)
}
