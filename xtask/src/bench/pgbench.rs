//! Runs pgbench and reads its output: transactions, rate, latencies.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use super::metric::{Metric, Sample};
use super::run_amount::RunAmount;
use super::secrets;
use super::stats::percentile;
use super::workload::{Door, HIT_ROWS, Kind, Mode, WRITERS, Workload, Written};
use crate::process::{self, Output};

/// A run may take this much longer than asked before it is given up.
const GRACE: Duration = Duration::from_secs(60);
/// Share of fast transactions whose latency is logged; writing all of them would slow pgbench itself.
const SAMPLING_RATE: &str = "0.1";

/// Result of one run of pgbench.
pub struct Run {
    /// Transactions it finished.
    pub transactions: f64,
    /// Rate and latencies.
    pub sample: Sample,
}

/// Runs `workload` against `port`; `folder` takes the latency logs.
pub fn run(workload: &Workload, port: u16, database: &str, amount: RunAmount, folder: &Path) -> Result<Run> {
    let prefix = folder.join("latency");
    let mut command = Command::new("pgbench");
    command.args(["-h", "127.0.0.1", "-p", &port.to_string(), "-U", "postgres", "-n", "-j", "1"]);
    // libpq would otherwise take TLS where it is offered.
    command.env("PGSSLMODE", if workload.door == Door::Tls { "require" } else { "disable" });
    command.env("PGPASSWORD", secrets::PASSWORD);
    command.args(["-c", &workload.clients.to_string()]);
    for (at, (text, weight)) in scripts_of(workload.kind).into_iter().enumerate() {
        let script = folder.join(format!("script-{at}.sql"));
        fs::write(&script, text)?;
        command.arg("-f").arg(format!("{}@{weight}", script.display()));
    }
    command.args(kind_arguments(workload.kind)?);
    let limit = match amount {
        RunAmount::Seconds(seconds) => {
            command.args(["-T", &seconds.to_string(), "--log", "--log-prefix"]).arg(&prefix);
            if !matches!(workload.kind, Kind::Connect | Kind::TpcbLike | Kind::Mixed | Kind::Tables { .. }) {
                command.args(["--sampling-rate", SAMPLING_RATE]);
            }
            Duration::from_secs(seconds.into()) + GRACE
        }
        RunAmount::Transactions(count) => {
            command.args(["-t", &count.div_ceil(workload.clients).max(1).to_string()]);
            GRACE
        }
    };
    let output = process::run(command.arg(database), limit)?;
    let mut latencies = take_latencies(folder)?;
    ensure!(output.status.success(), "pgbench: {}", complaint(&output));
    let mut run = parse(&output.stdout)?;
    for (metric, percent) in [(Metric::P50Micros, 50), (Metric::P99Micros, 99)] {
        run.sample.extend(percentile(&mut latencies, percent).map(|value| (metric, value)));
    }
    Ok(run)
}

/// Runs a script by so many clients and returns transactions per second, without the time in which they log in; `folder` takes the script.
pub fn rate(script: &str, port: u16, clients: u32, seconds: u32, folder: &Path) -> Result<f64> {
    let path = folder.join("script.sql");
    fs::write(&path, script)?;
    let mut command = Command::new("pgbench");
    command.args(["-h", "127.0.0.1", "-p", &port.to_string(), "-U", "postgres", "-n", "-j", "1"]).env("PGSSLMODE", "disable");
    command.args(["-c", &clients.to_string(), "-T", &seconds.to_string(), "-f"]).arg(&path).arg("postgres");
    let output = process::run(&mut command, Duration::from_secs(seconds.into()) + GRACE)?;
    ensure!(output.status.success(), "pgbench: {}", complaint(&output));
    let sample = parse(&output.stdout)?.sample;
    sample.iter().find(|(metric, _)| *metric == Metric::Tps).map(|(_, rate)| *rate).context("pgbench printed no rate")
}

/// A pgbench that writes until it is dropped.
pub struct Writers(Child);

impl Writers {
    /// Starts one that writes to a table so many times a second.
    pub fn start(port: u16, database: &str, writes: u32, table: Written, folder: &Path) -> Result<Writers> {
        let text = match table {
            Written::Read => "UPDATE pgbench_accounts SET abalance = abalance + 1 WHERE aid = :row;",
            Written::Another => "UPDATE pgbench_tellers SET tbalance = tbalance + 1 WHERE tid = :row % 10 + 1;",
        };
        let script = folder.join("writes.sql");
        fs::write(&script, format!("\\set row random(1, 100000)\n{text}\n"))?;
        let mut command = Command::new("pgbench");
        command.args(["-h", "127.0.0.1", "-p", &port.to_string(), "-U", "postgres", "-n", "-M", "prepared", "-T", "3600"]);
        command.args(["-c", &WRITERS.to_string(), "-R", &writes.to_string(), "-f"]).arg(&script).arg(database);
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().context("cannot run pgbench")?;
        Ok(Writers(child))
    }

    /// Error: it has ended, so that nobody wrote.
    pub fn check(&mut self) -> Result<()> {
        let ended = self.0.try_wait()?;
        ensure!(ended.is_none(), "the writers ended: {ended:?}");
        Ok(())
    }
}

impl Drop for Writers {
    fn drop(&mut self) {
        // An error means that it ended by itself meanwhile.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn kind_arguments(kind: Kind) -> Result<Vec<&'static str>> {
    match kind {
        Kind::Select(mode) => Ok(vec!["-S", "-M", mode.argument()]),
        Kind::Beside { .. } => Ok(vec!["-S", "-M", Mode::Prepared.argument()]),
        Kind::Connect => Ok(vec!["-S", "-C"]),
        Kind::TpcbLike | Kind::Same | Kind::Mixed | Kind::Hits | Kind::HitRatio { .. } | Kind::Uncacheable => Ok(vec![]),
        Kind::Tables { .. } => Ok(vec!["-C"]),
        Kind::FirstSight
        | Kind::Catalog
        | Kind::Rush
        | Kind::Idle { .. }
        | Kind::Rows { .. }
        | Kind::Invalidate { .. }
        | Kind::Pipeline { .. }
        | Kind::Tenants { .. } => bail!("not a workload of pgbench"),
    }
}

/// Scripts for workloads that pgbench lacks, and the share of each.
fn scripts_of(kind: Kind) -> Vec<(String, u32)> {
    const READ: &str = READ_OF_ROW;
    let script = match kind {
        Kind::Same => Some(format!("{READ} 4711;\n")),
        Kind::Hits => Some(hits()),
        Kind::HitRatio { percent } => {
            // Each text once, and nothing else about it new: the row is one of those that are in the server's memory anyway.
            let misses =
                format!("\\set aid random(1, {HIT_ROWS})\n\\set n random(1, 2000000000)\n{READ} :aid AND bid < :n + 1000;\n");
            return [(hits(), percent), (misses, 100 - percent)].into_iter().filter(|(_, weight)| *weight > 0).collect();
        }
        Kind::Uncacheable => {
            let read = "SELECT abalance, clock_timestamp() FROM pgbench_accounts WHERE aid =";
            Some(format!("\\set aid random(1, 100000)\n{read} :aid;\n"))
        }
        Kind::Mixed => {
            let write = "UPDATE pgbench_accounts SET abalance = abalance + 1 WHERE aid = :aid;\n";
            Some(format!("\\set aid random(1, 100000)\n{write}{}", format!("{READ} :aid;\n").repeat(9)))
        }
        Kind::Tables { tables } => Some((1..=tables).map(|table| format!("SELECT * FROM bench_table_{table};\n")).collect()),
        Kind::Select(_)
        | Kind::Beside { .. }
        | Kind::Connect
        | Kind::TpcbLike
        | Kind::Idle { .. }
        | Kind::Rows { .. }
        | Kind::FirstSight
        | Kind::Catalog
        | Kind::Rush
        | Kind::Invalidate { .. }
        | Kind::Pipeline { .. }
        | Kind::Tenants { .. } => None,
    };
    script.map(|text| (text, 1)).into_iter().collect()
}

fn hits() -> String {
    format!("\\set aid random(1, {HIT_ROWS})\n{READ_OF_ROW} :aid;\n")
}

/// The read of pgbench's `-S`, up to the number of the row.
pub const READ_OF_ROW: &str = "SELECT abalance FROM pgbench_accounts WHERE aid =";

/// The first line of standard error that looks like a reason.
fn complaint(output: &Output) -> String {
    let reason = output.stderr.lines().find(|line| line.contains("error") || line.contains("ERROR"));
    reason.unwrap_or("ended with an error and no text").trim_start_matches("pgbench: ").to_owned()
}

/// Reads the summary pgbench prints at its end.
fn parse(stdout: &str) -> Result<Run> {
    let number_after = |label: &str| {
        let rest = stdout.lines().find_map(|line| line.strip_prefix(label))?;
        rest.trim_start().split([' ', '/']).next()?.parse::<f64>().ok()
    };
    let transactions = number_after("number of transactions actually processed:").context("pgbench printed no transactions")?;
    let rate = number_after("tps =").context("pgbench printed no rate")?;
    ensure!(transactions > 0.0, "pgbench finished no transaction");
    Ok(Run { transactions, sample: vec![(Metric::Tps, rate)] })
}

/// Reads and removes the logs; the third field of a line is the latency in microseconds.
fn take_latencies(folder: &Path) -> Result<Vec<f64>> {
    let mut latencies = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if !path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("latency.")) {
            continue;
        }
        let text = fs::read_to_string(&path)?;
        latencies.extend(text.lines().filter_map(|line| line.split(' ').nth(2)?.parse::<f64>().ok()));
        fs::remove_file(&path)?;
    }
    Ok(latencies)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_of_versions_13_to_18_is_read() {
        let with_total = "number of transactions actually processed: 30/30\ntps = 1500.250000 (including connections)";
        let without = "number of transactions actually processed: 30\ntps = 1500.250000 (without initial connection time)";
        for text in [with_total, without] {
            let run = parse(text).expect("a summary");
            assert_eq!((run.transactions, run.sample), (30.0, vec![(Metric::Tps, 1500.25)]));
        }
        assert!(parse("number of transactions actually processed: 0\ntps = 0.0").is_err());
    }
}
