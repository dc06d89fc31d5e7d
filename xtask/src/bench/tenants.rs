//! A quiet tenant beside a noisy one: how long its reads take where both share the server connections.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};

use super::client::Client;
use super::conf::NOISY_DATABASE;
use super::metric::{Metric, Sample};
use super::stats::percentile;
use super::system::Running;
use super::workload::Workload;

/// Keeps a server connection busy, and no processor.
const BUSY: &str = "SELECT pg_sleep(0.05)";
/// Time in which the noisy clients have taken all that is to be had.
const LEAD: Duration = Duration::from_secs(1);
/// Pause of a quiet client between two reads.
const PAUSE: Duration = Duration::from_millis(10);
const BUFFER_BYTES: usize = 4096;

/// Tells the noisy clients to end, also when a quiet one has failed.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Measures the reads of the quiet tenant. Error: one of them got no answer.
pub fn measure(workload: &Workload, system: &Running, noisy: u32, seconds: u32) -> Result<Sample> {
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let end = End(&is_over);
        let login = |database| Client::login(system.port, database, &mut [0; BUFFER_BYTES]);
        let quiet = (0..workload.clients).map(|_| login(system.database(workload))).collect::<Result<Vec<_>>>()?;
        let mut busy = Vec::new();
        for _ in 0..noisy {
            let (mut client, is_over) = (login(NOISY_DATABASE)?, &is_over);
            busy.push(scope.spawn(move || -> Result<()> {
                while !is_over.load(Ordering::Relaxed) {
                    client.query(BUSY, &mut [0; BUFFER_BYTES]).context("noisy tenant")?;
                }
                Ok(())
            }));
        }
        thread::sleep(if noisy > 0 { LEAD } else { Duration::ZERO });
        let begin = Instant::now();
        let limit = Duration::from_secs(seconds.into());
        let readers: Vec<_> = quiet.into_iter().map(|client| scope.spawn(move || read(client, begin, limit))).collect();
        let mut latencies = Vec::new();
        for reader in readers {
            latencies.extend(reader.join().map_err(|_| anyhow!("a quiet client panicked"))?.context("quiet tenant")?);
        }
        let rate = f64::from(u32::try_from(latencies.len())?) / begin.elapsed().as_secs_f64();
        drop(end);
        for client in busy {
            client.join().map_err(|_| anyhow!("a noisy client panicked"))??;
        }
        let mut sample = vec![(Metric::Tps, rate)];
        for (metric, percent) in [(Metric::P50Micros, 50), (Metric::P99Micros, 99), (Metric::SlowestMicros, 100)] {
            sample.extend(percentile(&mut latencies, percent).map(|value| (metric, value)));
        }
        Ok(sample)
    })
}

/// Reads of one client, one after the other, and how long each took in microseconds.
fn read(mut client: Client, begin: Instant, limit: Duration) -> Result<Vec<f64>> {
    let mut latencies = Vec::new();
    while begin.elapsed() < limit {
        let start = Instant::now();
        client.query("SELECT 1", &mut [0; BUFFER_BYTES])?;
        latencies.push(start.elapsed().as_secs_f64() * 1e6);
        thread::sleep(PAUSE);
    }
    Ok(latencies)
}
