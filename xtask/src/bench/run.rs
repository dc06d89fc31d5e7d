//! Runs one workload against one system, once, and measures the proxy around it.

use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use weir_demo::Sql;

use super::catalog;
use super::client::{Client, pipeline};
use super::kept;
use super::metric::{Metric, Sample};
use super::pgbench;
use super::proc;
use super::redis;
use super::run_amount::RunAmount;
use super::rush;
use super::stats::percentile;
use super::system::{Program, Running, System};
use super::tenants;
use super::workload::{BUSY_PROGRAMS, Kind, PIPELINE_STATEMENTS, Stage, Workload};
use crate::process;

/// Large reads keep our own client cheap.
const BUFFER_BYTES: usize = 256 * 1024;
/// Statement of a pipeline: nearly free for the server, so that the proxy's share shows.
const PIPELINE_STATEMENT: &str = "SELECT 1";

/// The program that shows texts to Weir's code ends within this time.
const PROGRAM_LIMIT: Duration = Duration::from_secs(60);

/// Work of a run, before it is divided by anything.
struct Done {
    transactions: f64,
    bytes: f64,
    sample: Sample,
}

/// Runs and measures. Error: why it could not be measured.
pub fn measure(workload: &Workload, system: &Running, seconds: u32, folder: &Path) -> Result<Sample> {
    if let Kind::Idle { statements } = workload.kind {
        return measure_idle(workload, system, statements);
    }
    if workload.kind == Kind::Catalog {
        return catalog::measure(system);
    }
    if let Kind::Invalidate { answers } = workload.kind {
        return kept::measure_writes(system, answers, seconds);
    }
    if let Kind::Tenants { noisy } = workload.kind {
        return tenants::measure(workload, system, noisy, seconds);
    }
    let is_cached = !workload.stage.is_plain() && workload.stage != Stage::Shared;
    if is_cached && matches!(workload.kind, Kind::Hits | Kind::Rush | Kind::HitRatio { .. }) && system.system() != System::Redis {
        kept::warm(system)?;
    }
    let _busy = if workload.stage.is_busy() { Busy::start()? } else { Busy::default() };
    let mut writers = match workload.kind {
        Kind::Beside { writes, table } if writes > 0 => {
            Some(pgbench::Writers::start(system.port, system.database(workload), writes, table, folder)?)
        }
        _ => None,
    };
    let reads_before = reads_by_node(workload, system)?;
    let before = system.pid().map(proc::cpu_seconds).transpose()?;
    let done = perform(workload, system, RunAmount::Seconds(seconds), folder)?;
    writers.iter_mut().try_for_each(pgbench::Writers::check)?;
    let mut sample = done.sample;
    if let (Some(pid), Some(before)) = (system.pid(), before) {
        let cpu = proc::cpu_seconds(pid)? - before;
        match workload.kind {
            Kind::Rows { .. } => sample.push((Metric::CpuPerGigabyte, cpu / (done.bytes / 1e9))),
            _ => sample.push((Metric::CpuMicros, cpu * 1e6 / done.transactions)),
        }
    }
    let reads: Vec<f64> =
        reads_by_node(workload, system)?.iter().zip(&reads_before).map(|(after, before)| after - before).collect();
    let all: f64 = reads.iter().sum();
    if all > 0.0 {
        sample.push((Metric::OnStandbysPercent, (all - reads[0]) / all * 100.0));
    }
    Ok(sample)
}

/// Programs that compute without end, until it is dropped.
#[derive(Default)]
struct Busy(Vec<Child>);

impl Busy {
    fn start() -> Result<Busy> {
        let mut busy = Busy::default();
        for _ in 0..BUSY_PROGRAMS {
            busy.0.push(Command::new("sh").args(["-c", "while :; do :; done"]).spawn().context("cannot run sh")?);
        }
        Ok(busy)
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // An error means that it ended by itself meanwhile.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// How many reads each node has answered, the primary first; nothing where that is not asked for.
fn reads_by_node(workload: &Workload, system: &Running) -> Result<Vec<f64>> {
    if !matches!(workload.kind, Kind::Mixed | Kind::Beside { .. }) {
        return Ok(vec![]);
    }
    let rows = Sql::connect_tcp("127.0.0.1", system.port, "postgres", "postgres")?.query("SHOW pool_nodes")?;
    // The ninth column is `select_cnt`.
    let reads = rows.iter().map(|row| row.get(8).cloned().flatten().and_then(|count| count.parse().ok()));
    reads.collect::<Option<Vec<f64>>>().context("SHOW pool_nodes has no numbers of reads")
}

/// Runs the program that shows texts to Weir's code, and takes the number it prints.
pub fn first_sight(program: &Program) -> Result<Sample> {
    let path = program.as_ref().map_err(|reason| anyhow!("{reason}"))?;
    let output = process::run(&mut Command::new(path), PROGRAM_LIMIT)?;
    let micros = output.stdout.trim().parse().with_context(|| format!("it printed {:?}, no number", output.stdout))?;
    Ok(vec![(Metric::FirstSightMicros, micros)])
}

/// Runs without measuring and returns the transactions done: for the counters, which measure around it.
pub fn transactions(workload: &Workload, system: &Running, amount: RunAmount, folder: &Path) -> Result<f64> {
    Ok(perform(workload, system, amount, folder)?.transactions)
}

fn perform(workload: &Workload, system: &Running, amount: RunAmount, folder: &Path) -> Result<Done> {
    let database = system.database(workload);
    match workload.kind {
        Kind::Hits if system.system() == System::Redis => {
            let (transactions, sample) = redis::get(system.port, workload.clients, amount)?;
            Ok(Done { transactions, bytes: 0.0, sample })
        }
        Kind::Select(_)
        | Kind::Beside { .. }
        | Kind::Connect
        | Kind::TpcbLike
        | Kind::Same
        | Kind::Mixed
        | Kind::Hits
        | Kind::HitRatio { .. }
        | Kind::Uncacheable => {
            let run = pgbench::run(workload, system.port, database, amount, folder)?;
            Ok(Done { transactions: run.transactions, bytes: 0.0, sample: run.sample })
        }
        Kind::Tables { tables } => {
            let mut run = pgbench::run(workload, system.port, database, amount, folder)?;
            // The read of one table counts, so that scripts of different lengths compare.
            run.sample.iter_mut().filter(|(metric, _)| *metric == Metric::Tps).for_each(|(_, rate)| *rate *= f64::from(tables));
            Ok(Done { transactions: run.transactions * f64::from(tables), bytes: 0.0, sample: run.sample })
        }
        Kind::Rush => {
            let (transactions, sample) = rush::run(system.port, database, workload.clients, amount)?;
            Ok(Done { transactions, bytes: 0.0, sample })
        }
        Kind::Rows { statement } => {
            let mut buffer = vec![0; BUFFER_BYTES];
            let mut client = Client::login(system.port, database, &mut buffer)?;
            repeat(amount, 1, || client.query(statement, &mut buffer))
        }
        Kind::Pipeline { syncs } => {
            let mut buffer = vec![0; BUFFER_BYTES];
            let mut client = Client::login(system.port, database, &mut buffer)?;
            let batch = pipeline(PIPELINE_STATEMENT, PIPELINE_STATEMENTS, syncs);
            repeat(amount, PIPELINE_STATEMENTS, || {
                client.send(&batch)?;
                client.read_until_ready(syncs, &mut buffer)
            })
        }
        Kind::Idle { .. } | Kind::FirstSight | Kind::Catalog | Kind::Invalidate { .. } | Kind::Tenants { .. } => {
            bail!("this workload does no transactions")
        }
    }
}

/// Repeats `step`, which is worth `weight` transactions and returns the bytes it received.
fn repeat(amount: RunAmount, weight: u32, mut step: impl FnMut() -> Result<u64>) -> Result<Done> {
    let begin = Instant::now();
    let enough = |rounds: usize| match amount {
        RunAmount::Seconds(seconds) => begin.elapsed() >= Duration::from_secs(seconds.into()),
        RunAmount::Transactions(count) => u32::try_from(rounds).is_ok_and(|rounds| rounds * weight >= count),
    };
    let mut latencies: Vec<f64> = Vec::new();
    let mut bytes = 0.0;
    while latencies.is_empty() || !enough(latencies.len()) {
        let start = Instant::now();
        bytes += u32::try_from(step()?).map(f64::from).context("an answer of more than 4 GB")?;
        latencies.push(start.elapsed().as_secs_f64() * 1e6);
    }
    let seconds = begin.elapsed().as_secs_f64();
    let transactions = f64::from(u32::try_from(latencies.len())? * weight);
    let mut sample = vec![(Metric::Tps, transactions / seconds)];
    for (metric, percent) in [(Metric::P50Micros, 50), (Metric::P99Micros, 99)] {
        sample.extend(percentile(&mut latencies, percent).map(|value| (metric, value)));
    }
    Ok(Done { transactions, bytes, sample })
}

/// Memory of many clients that do nothing. The system must be freshly started: memory freed earlier would be reused.
fn measure_idle(workload: &Workload, system: &Running, statements: u32) -> Result<Sample> {
    let pid = system.pid().context("no proxy")?;
    let mut buffer = vec![0; BUFFER_BYTES];
    let database = system.database(workload);
    let mut login = || -> Result<Client> {
        let mut client = Client::login(system.port, database, &mut buffer)?;
        for _ in 0..statements {
            client.query("SELECT 1", &mut buffer)?;
        }
        Ok(client)
    };
    // The first client pays for things shared by all, a server connection above all.
    let mut clients = vec![login()?];
    let before = proc::proportional_bytes(pid)?;
    for index in 0..workload.clients {
        clients.push(login().with_context(|| format!("client {index}"))?);
    }
    let after = proc::proportional_bytes(pid)?;
    let bytes = |value: u64| u32::try_from(value / 1024).map(|kilobytes| f64::from(kilobytes) * 1024.0);
    let growth = bytes(after.saturating_sub(before))?;
    Ok(vec![(Metric::IdleBytes, growth / f64::from(workload.clients)), (Metric::MemoryBytes, bytes(after)?)])
}
