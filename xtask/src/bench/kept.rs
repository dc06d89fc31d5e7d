//! Fills the cache of the system under test.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use weir_demo::Sql;

use super::client::{Client, query};
use super::metric::{Metric, Sample};
use super::pgbench::READ_OF_ROW;
use super::proc;
use super::stats::percentile;
use super::system::{Running, System};
use super::workload::HIT_ROWS;

/// Clients that read at the same time, one statement each: of a pipeline nothing is kept.
const READERS: u32 = 32;
const WARM_LIMIT: Duration = Duration::from_secs(60);
/// Part of the rows that must be hits; another workload may have taken room.
const WARM_SHARE: f64 = 0.95;
const BUFFER_BYTES: usize = 256 * 1024;

/// Reads each row of the workloads that consist of hits. Weir's are read until they are hits: a store is asked on the second
/// sight of a question.
pub fn warm(system: &Running) -> Result<()> {
    read_all(system, HIT_ROWS)?;
    if system.system() != System::Weir {
        return Ok(());
    }
    weir_demo::wait_until("reads to be answered from the cache", WARM_LIMIT, || {
        let before = hits(system)?;
        read_all(system, HIT_ROWS)?;
        Ok(hits(system)? - before >= f64::from(HIT_ROWS) * WARM_SHARE)
    })
}

fn hits(system: &Running) -> Result<f64> {
    let rows = Sql::connect_tcp("127.0.0.1", system.port, "postgres", "postgres")?.query("SHOW pool_metrics")?;
    let row = rows.iter().find(|row| row.first().is_some_and(|name| name.as_deref() == Some("cache_hits_total")));
    row.and_then(|row| row.get(1)?.as_deref()?.parse().ok()).context("SHOW pool_metrics has no number of hits")
}

fn read_all(system: &Running, rows: u32) -> Result<()> {
    let mut buffer = vec![0; BUFFER_BYTES];
    let clients = (0..READERS).map(|_| Client::login(system.port, "postgres", &mut buffer));
    let mut clients = clients.collect::<Result<Vec<Client>>>()?;
    for first in (1..=rows).step_by(READERS as usize) {
        let (last, mut asked) = ((first + READERS - 1).min(rows), 0);
        for (row, client) in (first..=last).zip(&mut clients) {
            // The text is pgbench's own to the byte, with its semicolon.
            client.send(&query(&format!("{READ_OF_ROW} {row};")))?;
            asked += 1;
        }
        for client in &mut clients[..asked] {
            client.read_until_ready(1, &mut buffer)?;
        }
    }
    Ok(())
}

/// Writes one after the other to a table of which so many answers are kept. The system must be freshly started.
pub fn measure_writes(system: &Running, answers: u32, seconds: u32) -> Result<Sample> {
    read_all(system, answers)?;
    let mut buffer = vec![0; BUFFER_BYTES];
    let mut client = Client::login(system.port, "postgres", &mut buffer)?;
    let before = system.pid().map(proc::cpu_seconds).transpose()?;
    let (begin, mut latencies) = (Instant::now(), Vec::new());
    while latencies.is_empty() || begin.elapsed() < Duration::from_secs(seconds.into()) {
        let start = Instant::now();
        client.query("UPDATE pgbench_accounts SET abalance = 0 WHERE aid = 1", &mut buffer)?;
        latencies.push(start.elapsed().as_secs_f64() * 1e6);
    }
    let writes = f64::from(u32::try_from(latencies.len())?);
    let mut sample = vec![(Metric::Tps, writes / begin.elapsed().as_secs_f64())];
    if let (Some(pid), Some(before)) = (system.pid(), before) {
        sample.push((Metric::CpuMicros, (proc::cpu_seconds(pid)? - before) * 1e6 / writes));
    }
    for (metric, percent) in [(Metric::P50Micros, 50), (Metric::P99Micros, 99)] {
        sample.extend(percentile(&mut latencies, percent).map(|value| (metric, value)));
    }
    Ok(sample)
}
