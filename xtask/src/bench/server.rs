//! The PostgreSQL behind all systems, with the tables of the workloads.

use std::process::Command;
use std::time::Duration;

use anyhow::{Result, ensure};
use weir_demo::{Cluster, Options, Server};

use super::workload::TABLES_MAX;
use crate::process;

/// Settings that keep the disk and background work out of the numbers.
pub const SETTINGS: [(&str, &str); 8] = [
    ("fsync", "off"),
    ("synchronous_commit", "off"),
    ("full_page_writes", "off"),
    ("shared_buffers", "512MB"),
    ("max_connections", "1300"),
    ("max_wal_size", "4GB"),
    ("autovacuum", "off"),
    ("jit", "off"),
];
const FILL_LIMIT: Duration = Duration::from_secs(600);
/// 1,000,000 rows of 100 characters, for the workloads that read much.
const ROWS: &str = "CREATE UNLOGGED TABLE bench_rows AS \
    SELECT rpad(n::text, 100, 'x') AS line FROM generate_series(1, 1000000) AS n";

/// Standbys of workloads that spread reads.
const STANDBYS: usize = 2;

/// Starts a primary and two standbys with pgbench's tables at `scale`, and those of the workloads with many tables.
pub fn start_spread(scale: u32) -> Result<Cluster> {
    let cluster = start_with(scale, STANDBYS)?;
    for table in 1..=TABLES_MAX {
        cluster.primary().query(&format!("CREATE TABLE bench_table_{table} AS SELECT {table} AS n"))?;
    }
    finish(&cluster)?;
    cluster.wait_caught_up()?;
    Ok(cluster)
}

/// Starts a primary and fills it for pgbench at `scale`.
pub fn start(scale: u32) -> Result<Cluster> {
    let cluster = start_with(scale, 0)?;
    cluster.primary().query(ROWS)?;
    finish(&cluster)?;
    Ok(cluster)
}

fn finish(cluster: &Cluster) -> Result<()> {
    cluster.primary().query("VACUUM ANALYZE")?;
    cluster.primary().query("CHECKPOINT")?;
    Ok(())
}

fn start_with(scale: u32, standbys: usize) -> Result<Cluster> {
    let mut extra_conf: Vec<(String, String)> =
        SETTINGS.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect();
    if standbys > 0 {
        // Else a commit reaches the standbys up to 0.2 s later, and which of them may answer would be told by that alone.
        extra_conf.push(("synchronous_commit".to_owned(), "on".to_owned()));
    }
    let cluster = Cluster::start(Options { standbys, extra_conf, ..Options::default() })?;
    fill(cluster.primary(), scale)?;
    Ok(cluster)
}

/// Makes pgbench's tables.
pub fn fill(server: &Server, scale: u32) -> Result<()> {
    let mut pgbench = Command::new("pgbench");
    pgbench.args(["-h", "127.0.0.1", "-p", &server.port().to_string(), "-U", "postgres"]);
    pgbench.args(["-i", "-q", "-s", &scale.to_string(), "postgres"]);
    let output = process::run(&mut pgbench, FILL_LIMIT)?;
    ensure!(output.status.success(), "pgbench cannot fill its tables: {}", output.stderr);
    Ok(())
}
