//! Plan of the benchmark: one part for each report, with its workloads, systems and rounds.

use anyhow::{Result, ensure};

use super::Arguments;
use super::file;
use super::result_file::{FILES, ResultFile};
use super::system::{SYSTEMS, System};
use super::workload::{Kind, Runs, WORKLOADS, Workload};

/// `--quick`: enough to see that everything works, not enough to believe a number.
const QUICK_ROUNDS: u32 = 2;
const QUICK_SECONDS: u32 = 1;
/// Seconds of a run for the kept files: with so many rounds, longer runs would take too long.
const KEPT_SECONDS: u32 = 1;

/// Subject of one report.
pub struct Part {
    /// Where its results are kept, if they are.
    pub file: Option<ResultFile>,
    /// In order.
    pub workloads: Vec<&'static Workload>,
    /// In order.
    pub systems: Vec<System>,
    /// How often each runs.
    pub rounds: u32,
    /// How long each runs, if it has few clients.
    pub seconds: u32,
}

/// For each of so many clients a run is a second longer: pgbench counts the time in which they log in.
const CLIENTS_PER_SECOND: u32 = 250;

impl Part {
    /// True if this workload runs on this system.
    pub fn takes(&self, workload: &Workload, system: System) -> bool {
        match self.file {
            None => true,
            Some(_) => file::kept_systems(workload).contains(&system),
        }
    }

    /// How long a workload runs.
    pub fn seconds(&self, workload: &Workload) -> u32 {
        self.seconds + workload.clients / CLIENTS_PER_SECOND
    }

    /// True if calls and instructions are counted.
    pub fn counts(&self, workload: &Workload, system: System) -> bool {
        self.file.is_none() || file::is_counted(workload, system)
    }

    /// True if a workload runs in this round, counted from 1.
    pub fn has_round(&self, workload: &Workload, round: u32) -> bool {
        self.file.is_none() || !matches!(workload.kind, Kind::Idle { .. }) || round <= file::IDLE_ROUNDS_MAX
    }

    /// Number of runs: each workload once on each system, in each of its rounds.
    pub fn runs(&self) -> u64 {
        let of = |workload: &Workload| self.systems.iter().filter(|&&system| self.takes(workload, system)).count() as u64;
        let in_round = |round| self.workloads.iter().filter(move |workload| self.has_round(workload, round));
        (1..=self.rounds).flat_map(in_round).map(|workload| of(workload)).sum()
    }

    /// Most clients at the same time on Pgpool-II, which has a process for each; idle ones not counted.
    pub fn clients_max(&self) -> u32 {
        let busy = self.workloads.iter().filter(|workload| !matches!(workload.kind, Kind::Idle { .. }));
        let fit = busy.filter(|workload| System::Pgpool.unfit_for(workload).is_none());
        fit.map(|workload| workload.clients).max().unwrap_or(1)
    }
}

/// The parts that were asked for.
pub fn parts(arguments: &Arguments) -> Result<Vec<Part>> {
    if !arguments.keep.is_empty() {
        let files = FILES.into_iter().filter(|file| arguments.keep.contains(file));
        return Ok(files.map(|file| kept(file, arguments)).collect());
    }
    Ok(vec![Part {
        file: None,
        workloads: choose_workloads(arguments)?,
        systems: choose_systems(&arguments.systems)?,
        rounds: arguments.rounds.unwrap_or(if arguments.quick { QUICK_ROUNDS } else { 5 }),
        seconds: arguments.seconds.unwrap_or(if arguments.quick { QUICK_SECONDS } else { 3 }),
    }])
}

fn kept(file: ResultFile, arguments: &Arguments) -> Part {
    let workloads: Vec<&Workload> = WORKLOADS.iter().filter(|workload| workload.file == Some(file)).collect();
    let is_taken = |system: &System| workloads.iter().any(|workload| file::kept_systems(workload).contains(system));
    let systems = SYSTEMS.into_iter().filter(is_taken).collect();
    let rounds = arguments.rounds.unwrap_or(file.rounds());
    Part { file: Some(file), workloads, systems, rounds, seconds: arguments.seconds.unwrap_or(KEPT_SECONDS) }
}

fn choose_workloads(arguments: &Arguments) -> Result<Vec<&'static Workload>> {
    for word in &arguments.only {
        let names: Vec<&str> = WORKLOADS.iter().map(|workload| workload.name).collect();
        ensure!(names.iter().any(|name| name.starts_with(word)), "no workload {word}; there are {}", names.join(", "));
    }
    let chosen = WORKLOADS.iter().filter(|workload| match arguments.only.as_slice() {
        [] => workload.runs == Runs::Quick || (workload.runs == Runs::Full && !arguments.quick),
        words => words.iter().any(|word| workload.name.starts_with(word)),
    });
    Ok(chosen.collect())
}

fn choose_systems(words: &[String]) -> Result<Vec<System>> {
    let names = SYSTEMS.map(System::name);
    for word in words {
        ensure!(names.contains(&word.as_str()), "no system {word}; there are {}", names.join(", "));
    }
    Ok(SYSTEMS.into_iter().filter(|system| words.is_empty() || words.iter().any(|w| w == system.name())).collect())
}
