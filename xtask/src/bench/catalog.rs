//! A database with very many objects gets its first session: time until its catalog is known, memory for it, and times of other
//! statements meanwhile.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use weir_demo::{Sql, wait_until};

use super::metric::{Metric, Sample};
use super::proc;
use super::stats::percentile;
use super::system::Running;

/// Objects in the database.
const TABLES: u32 = 100_000;
const FUNCTIONS: u32 = 50_000;
/// Made in one transaction: each takes a lock, and the table of locks is finite.
const AT_ONCE: u32 = 2_000;
const DATABASE: &str = "bench_catalog";
/// The catalog is known within this time.
const LIMIT: Duration = Duration::from_secs(300);

/// Measures with a proxy that has just been started.
pub fn measure(system: &Running) -> Result<Sample> {
    make(system.server_port)?;
    let pid = system.pid().context("no proxy")?;
    // The cost that all databases share is paid for before.
    let mut asker = connect(system.port, "postgres")?;
    wait_for(&mut asker, "postgres")?;
    let before = proc::resident_bytes(pid)?;
    let stop = AtomicBool::new(false);
    let (took, mut latencies) = std::thread::scope(|scope| {
        let of_others = scope.spawn(|| latencies(system.port, "postgres", &stop));
        let begin = Instant::now();
        let of_database = scope.spawn(|| latencies(system.port, DATABASE, &stop));
        let known = wait_for(&mut asker, DATABASE);
        let took = begin.elapsed();
        stop.store(true, Ordering::Relaxed);
        let join = |thread: std::thread::ScopedJoinHandle<'_, Result<Vec<f64>>>| {
            thread.join().map_err(|_| anyhow!("the thread that measures latencies panicked"))?
        };
        let all = [join(of_others)?, join(of_database)?].concat();
        known.map(|()| (took, all))
    })?;
    let growth = |now: u64| -> Result<f64> { Ok(u32::try_from(now.saturating_sub(before) / 1024).map(f64::from)? * 1024.0) };
    let mut sample = vec![
        (Metric::CatalogMillis, took.as_secs_f64() * 1e3),
        (Metric::CatalogBytes, growth(proc::resident_bytes(pid)?)?),
        (Metric::CatalogPeakBytes, growth(proc::peak_bytes(pid)?)?),
    ];
    for (metric, percent) in [(Metric::P50Micros, 50), (Metric::P99Micros, 99), (Metric::SlowestMicros, 100)] {
        sample.extend(percentile(&mut latencies, percent).map(|value| (metric, value)));
    }
    Ok(sample)
}

fn connect(port: u16, database: &str) -> Result<Sql> {
    Sql::connect_tcp("127.0.0.1", port, "postgres", database)
}

/// Makes the database if it is not there.
fn make(server_port: u16) -> Result<()> {
    let mut primary = connect(server_port, "postgres")?;
    if !primary.query(&format!("SELECT FROM pg_database WHERE datname = '{DATABASE}'"))?.is_empty() {
        return Ok(());
    }
    eprintln!("making {TABLES} tables and {FUNCTIONS} functions");
    primary.query(&format!("CREATE DATABASE {DATABASE}"))?;
    let mut database = connect(server_port, DATABASE)?;
    let templates = [
        (TABLES, "CREATE TABLE table_of_the_application_%s (id int, n int)"),
        (FUNCTIONS, "CREATE FUNCTION function_of_the_application_%s(int) RETURNS int LANGUAGE sql STABLE AS ''SELECT $1''"),
    ];
    for (count, template) in templates {
        for first in (0..count).step_by(AT_ONCE as usize) {
            let last = (first + AT_ONCE).min(count) - 1;
            let text = format!("DO $do$ BEGIN FOR i IN {first}..{last} LOOP EXECUTE format('{template}', i); END LOOP; END $do$");
            database.query(&text)?;
        }
    }
    Ok(())
}

/// Has the proxy read the catalog of a database, which the first session does, and waits until it is known.
pub fn make_known(port: u16, database: &str) -> Result<()> {
    let mut client = connect(port, database)?;
    client.query("SELECT 1")?;
    wait_for(&mut client, database)
}

/// Waits until the proxy says that it knows a database.
fn wait_for(asker: &mut Sql, database: &str) -> Result<()> {
    wait_until("the catalog to be known", LIMIT, || {
        let rows = asker.query("SHOW pool_catalogs")?;
        let is_it = |row: &weir_demo::Row| row.first().is_some_and(|name| name.as_deref() == Some(database));
        Ok(rows.iter().any(|row| is_it(row) && row.get(1).is_some_and(|state| state.as_deref() == Some("current"))))
    })
}

/// Reads one after the other until told to stop; microseconds of each.
fn latencies(port: u16, database: &str, stop: &AtomicBool) -> Result<Vec<f64>> {
    let mut client = connect(port, database)?;
    let mut latencies = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let begin = Instant::now();
        client.query("SELECT count(*) FROM (VALUES (1)) v")?;
        latencies.push(begin.elapsed().as_secs_f64() * 1e6);
    }
    Ok(latencies)
}
