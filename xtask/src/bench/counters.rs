//! System calls and instructions per transaction.
//!
//! Each is counted twice, over few and over many transactions, and the difference is divided by the additional transactions. So
//! logins, the start of the program and the tool itself fall out of the result.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::Signal;

use super::catalog;
use super::metric::Metric;
use super::proc;
use super::run;
use super::run_amount::RunAmount;
use super::system::{Launcher, Running, System};
use super::workload::{Kind, PIPELINE_STATEMENTS, Workload};
use crate::process;

/// strace and perf are attached within this time.
const ATTACH_LIMIT: Duration = Duration::from_secs(10);
/// After its signal a tool writes its table within this time.
const END_LIMIT: Duration = Duration::from_secs(10);

/// A metric, or why it could not be measured.
pub type Counted = (Metric, Result<f64, String>);

/// Where instruction counts come from on this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Instructions {
    /// The processor's counters, by perf: user and kernel.
    Perf,
    /// valgrind's cachegrind: user only, exact; the proxy runs slowly meanwhile.
    Valgrind,
    /// Neither is there.
    Nothing,
}

impl Instructions {
    /// For the head of the report.
    pub fn describe(self) -> &'static str {
        match self {
            Self::Perf => "user and kernel, counted by the processor (perf)",
            Self::Valgrind => "user, counted by valgrind; kernel: could not measure: no hardware counters here",
            Self::Nothing => "could not measure: no hardware counters and no valgrind here, or not asked for",
        }
    }

    /// Finds the counters that work here.
    pub fn find() -> Self {
        let mut perf = Command::new("perf");
        perf.args(["stat", "-x,", "-e", "instructions:u", "true"]);
        let counts = process::run(&mut perf, ATTACH_LIMIT)
            .is_ok_and(|output| output.status.success() && output.stderr.starts_with(|c: char| c.is_ascii_digit()));
        if counts {
            return Self::Perf;
        }
        let valgrind = process::run(Command::new("valgrind").arg("--version"), ATTACH_LIMIT);
        if valgrind.is_ok_and(|output| output.status.success()) { Self::Valgrind } else { Self::Nothing }
    }
}

/// Counts all that can be counted for a proxy under a workload.
pub fn count(workload: &Workload, system: System, running: &Running, launcher: &Launcher, source: Instructions) -> Vec<Counted> {
    let Some((few, many)) = amounts(workload) else { return vec![] };
    let window = Window { workload, folder: &launcher.folder, few, many };
    let text = |result: Result<f64>| result.map_err(|error| format!("{error:#}"));
    let mut counted = vec![(Metric::Syscalls, text(window.syscalls(running)))];
    match (source, system) {
        (Instructions::Perf, _) => {
            for (metric, event) in [(Metric::UserInstructions, "instructions:u"), (Metric::KernelInstructions, "instructions:k")]
            {
                counted.push((metric, text(window.difference(|amount| window.perf(running, event, amount)))));
            }
        }
        (Instructions::Valgrind, System::Pgpool) => {
            counted.push((Metric::UserInstructions, Err("a process for each client is too much for valgrind".into())));
        }
        (Instructions::Valgrind, _) => {
            let user = window.difference(|amount| window.valgrind(system, launcher, amount));
            counted.push((Metric::UserInstructions, text(user)));
        }
        // The report says once, at its head, that instructions could not be measured.
        (Instructions::Nothing, _) => {}
    }
    counted
}

/// Few and many transactions; `None` for workloads without transactions.
fn amounts(workload: &Workload) -> Option<(u32, u32)> {
    let few = workload.clients * 5;
    match workload.kind {
        Kind::Select(_)
        | Kind::Beside { writes: 0, .. }
        | Kind::Same
        | Kind::Hits
        | Kind::Rush
        | Kind::HitRatio { .. }
        | Kind::Uncacheable => Some((few, few + workload.clients * 4000_u32.div_ceil(workload.clients))),
        Kind::Mixed => Some((few, few + 400)),
        Kind::TpcbLike => Some((few, few + 800)),
        Kind::Connect => Some((few, few + 300)),
        Kind::Rows { .. } => Some((1, 7)),
        Kind::Pipeline { .. } => Some((PIPELINE_STATEMENTS, PIPELINE_STATEMENTS * 41)),
        // A script of many tables is long enough to be told by its CPU time.
        Kind::Beside { .. }
        | Kind::Tenants { .. }
        | Kind::Tables { .. }
        | Kind::FirstSight
        | Kind::Catalog
        | Kind::Invalidate { .. }
        | Kind::Idle { .. } => None,
    }
}

struct Window<'a> {
    workload: &'a Workload,
    folder: &'a Path,
    few: u32,
    many: u32,
}

impl Window<'_> {
    /// `count` returns events and transactions of one run; the result is events per transaction.
    fn difference(&self, mut count: impl FnMut(RunAmount) -> Result<(f64, f64)>) -> Result<f64> {
        let (events_few, few) = count(RunAmount::Transactions(self.few))?;
        let (events_many, many) = count(RunAmount::Transactions(self.many))?;
        ensure!(many > few && events_many > events_few, "{many} transactions gave no more than {few}");
        Ok((events_many - events_few) / (many - few))
    }

    fn transactions(&self, running: &Running, amount: RunAmount) -> Result<f64> {
        run::transactions(self.workload, running, amount, self.folder)
    }

    fn syscalls(&self, running: &Running) -> Result<f64> {
        self.difference(|amount| {
            let pids = proc::tree(running.pid().context("no proxy")?);
            let report = self.folder.join("strace");
            let mut command = Command::new("strace");
            command.args(["-f", "-c", "-o"]).arg(&report);
            command.args(pids.iter().flat_map(|pid| ["-p".to_owned(), pid.to_string()]));
            let mut strace = spawn(command)?;
            wait_until(&mut strace, |_| pids.iter().all(|&pid| is_traced(pid)))?;
            let transactions = self.transactions(running, amount);
            process::stop(&mut strace, Signal::INT, END_LIMIT)?;
            let text = fs::read_to_string(&report).context("strace wrote no table")?;
            Ok((parse_strace(&text).context("strace printed no total")?, transactions?))
        })
    }

    fn perf(&self, running: &Running, event: &str, amount: RunAmount) -> Result<(f64, f64)> {
        let pids: Vec<String> = proc::tree(running.pid().context("no proxy")?).iter().map(u32::to_string).collect();
        let report = self.folder.join("perf");
        let mut command = Command::new("perf");
        command.args(["stat", "-x,", "-e", event, "-p", &pids.join(","), "-o"]).arg(&report);
        let mut perf = spawn(command)?;
        wait_until(&mut perf, |pid| has_perf_events(pid, pids.len()))?;
        let transactions = self.transactions(running, amount);
        process::stop(&mut perf, Signal::INT, END_LIMIT)?;
        let text = fs::read_to_string(&report).context("perf wrote nothing")?;
        Ok((parse_perf(&text).with_context(|| format!("perf did not count {event}"))?, transactions?))
    }

    /// A fresh process for each count: valgrind reports once, at the end.
    fn valgrind(&self, system: System, launcher: &Launcher, amount: RunAmount) -> Result<(f64, f64)> {
        let log = self.folder.join("valgrind");
        fs::write(&log, "")?;
        launcher.account.own(&log)?;
        let wrapper = ["valgrind", "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"];
        let mut words: Vec<String> = wrapper.iter().map(|&word| word.to_owned()).collect();
        words.push(format!("--log-file={}", log.display()));
        let mut running = launcher.start(system, self.workload, &words)?;
        if system == System::Weir {
            // That is work of the control thread for the first session. A slow proxy would do it in the run of many transactions alone.
            catalog::make_known(running.port, running.database(self.workload))?;
        }
        let transactions = self.transactions(&running, amount);
        running.stop()?;
        let text = fs::read_to_string(&log)?;
        Ok((parse_valgrind(&text).context("valgrind printed no count")?, transactions?))
    }
}

fn spawn(mut command: Command) -> Result<Child> {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().with_context(|| format!("cannot run {}", command.get_program().to_string_lossy()))
}

fn wait_until(tool: &mut Child, done: impl Fn(u32) -> bool) -> Result<()> {
    let end = Instant::now() + ATTACH_LIMIT;
    while !done(tool.id()) {
        if let Some(status) = tool.try_wait()? {
            bail!("it may not watch the proxy ({status})");
        }
        if Instant::now() > end {
            process::stop(tool, Signal::INT, END_LIMIT)?;
            bail!("not attached to the proxy after {} s", ATTACH_LIMIT.as_secs());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// A process that ended needs no tracer.
fn is_traced(pid: u32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/status"))
        .map_or(true, |text| text.lines().any(|line| line.strip_prefix("TracerPid:").is_some_and(|tracer| tracer.trim() != "0")))
}

fn has_perf_events(pid: u32, count: usize) -> bool {
    let links = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let targets = links.filter_map(|entry| fs::read_link(entry.path()).ok());
    targets.filter(|target| target.to_string_lossy().contains("perf_event")).count() >= count
}

/// The calls of the line `total`: per cent, seconds, microseconds per call (older versions leave it out), calls, ...
fn parse_strace(text: &str) -> Option<f64> {
    let header = text.lines().find(|line| line.contains("syscall"))?;
    let calls_end = header.find("calls")? + "calls".len();
    let total = text.lines().rfind(|line| line.trim_end().ends_with("total"))?;
    total.get(..calls_end)?.split_whitespace().last()?.parse().ok()
}

fn parse_perf(text: &str) -> Option<f64> {
    let line = text.lines().find(|line| line.starts_with(|c: char| c.is_ascii_digit()))?;
    line.split(',').next()?.parse().ok()
}

fn parse_valgrind(text: &str) -> Option<f64> {
    let counts = text.lines().filter_map(|line| line.split_once("refs:"));
    let numbers = counts.filter_map(|(_, count)| count.trim().replace(',', "").parse::<f64>().ok());
    numbers.reduce(|sum, count| sum + count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tables_of_the_tools_are_read() {
        let strace = "% time     seconds  usecs/call     calls    errors syscall\n\
                      ------ ----------- ----------- --------- --------- ----------------\n\
                      \u{20}60.00    0.050000           5     10000         7 sendto\n\
                      \u{20}40.00    0.030000           3      9000           recvfrom\n\
                      ------ ----------- ----------- --------- --------- ----------------\n\
                      100.00    0.080000           4     19000         7 total\n";
        assert_eq!(parse_strace(strace), Some(19000.0));
        assert_eq!(parse_perf("# started on\n\n123456,,instructions:u,1,100.00,,\n"), Some(123456.0));
        assert_eq!(parse_perf("<not supported>,,instructions:u,0,100.00,,\n"), None);
        assert_eq!(parse_valgrind("==1== I   refs:      52,549,824\n"), Some(52_549_824.0));
    }
}
