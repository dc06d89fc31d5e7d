//! The order of runs, and which systems are up.

use std::collections::BTreeMap;

use anyhow::{Error, Result, anyhow, bail};
use weir_progress::ProgressLine;

use super::counters::{self, Instructions};
use super::metric::Sample;
use super::plan::Part;
use super::results::Results;
use super::run;
use super::stats::Dice;
use super::system::{Launcher, Running, System};
use super::workload::{Door, Kind, Stage, Workload};

/// A workload that failed this often on a system is not tried there again: each failure may take a minute.
const FAILURES_MAX: usize = 2;

/// Runs rounds and collects their results.
pub struct Schedule<'a> {
    launcher: &'a Launcher,
    part: &'a Part,
    dice: Dice,
    line: &'a ProgressLine,
    up: BTreeMap<(System, Door, Stage), Running>,
    results: Results,
}

impl<'a> Schedule<'a> {
    /// Nothing is started yet.
    pub fn new(launcher: &'a Launcher, part: &'a Part, seed: u64, line: &'a ProgressLine) -> Self {
        Self { launcher, part, dice: Dice::new(seed), line, up: BTreeMap::new(), results: Results::default() }
    }

    /// Runs every workload once on every system. The line counts the runs.
    pub fn round(&mut self, round: u32) {
        let part = self.part;
        for &workload in part.workloads.iter().filter(|workload| part.has_round(workload, round)) {
            let mut order: Vec<System> = part.systems.iter().copied().filter(|&system| part.takes(workload, system)).collect();
            self.dice.shuffle(&mut order);
            for system in order {
                self.line.name(&format!("{} on {}, round {round}", workload.name, system.name()));
                let result = self.run_one(workload, system, part.seconds(workload)).map_err(|error| format!("{error:#}"));
                let is_first = self.results.cell(workload.name, system).is_none_or(|cell| cell.rounds.is_empty());
                if let Err(reason) = &result
                    && is_first
                {
                    self.line.aside(|| eprintln!("{} on {}: {reason}", workload.name, system.name()));
                }
                self.line.advance(1);
                self.results.cell_mut(workload.name, system).rounds.push(result);
            }
        }
    }

    fn run_one(&mut self, workload: &'static Workload, system: System, seconds: u32) -> Result<Sample> {
        if let Some(reason) = system.unfit_for(workload) {
            bail!(reason);
        }
        let cell = self.results.cell_mut(workload.name, system);
        if let Some(Err(last)) = cell.rounds.last()
            && cell.rounds.iter().filter(|round| round.is_err()).count() >= FAILURES_MAX
        {
            bail!("{last}");
        }
        if matches!(workload.kind, Kind::Idle { .. } | Kind::Catalog | Kind::Invalidate { .. } | Kind::Tenants { .. }) {
            let mut fresh = self.launcher.start(system, workload, &[])?;
            let sample = run::measure(workload, &fresh, seconds, &self.launcher.folder);
            fresh.stop()?;
            return sample.map_err(|error| with_last_words(error, &fresh));
        }
        let launcher = self.launcher;
        if workload.kind == Kind::FirstSight {
            return run::first_sight(&launcher.programs.first_sight);
        }
        let sample = run::measure(workload, self.running(system, workload)?, seconds, &launcher.folder);
        sample.map_err(|error| match self.up.remove(&(system, workload.door, workload.stage)) {
            // The failure may have left the system in a state that the next workload should not meet.
            Some(running) => with_last_words(error, &running),
            None => error,
        })
    }

    /// The system, started when it is not up.
    fn running(&mut self, system: System, workload: &Workload) -> Result<&Running> {
        match self.up.entry((system, workload.door, workload.stage)) {
            std::collections::btree_map::Entry::Occupied(entry) => Ok(entry.into_mut()),
            std::collections::btree_map::Entry::Vacant(entry) => Ok(entry.insert(self.launcher.start(system, workload, &[])?)),
        }
    }

    /// Counts system calls and instructions for all that worked in the rounds.
    pub fn count(&mut self, source: Instructions) {
        let part = self.part;
        for &workload in &part.workloads {
            for &system in &part.systems {
                self.line.name(&format!("counting {} on {}", workload.name, system.name()));
                self.line.advance(1);
                let works = self.results.cell(workload.name, system).is_some_and(|c| c.rounds.iter().any(Result::is_ok));
                if system == System::Direct
                    || !works
                    || !part.counts(workload, system)
                    || matches!(workload.kind, Kind::FirstSight | Kind::Catalog | Kind::Invalidate { .. } | Kind::Tenants { .. })
                    || system == System::Redis
                {
                    continue;
                }
                let launcher = self.launcher;
                let counted = match self.running(system, workload) {
                    Ok(running) => counters::count(workload, system, running, launcher, source),
                    Err(error) => {
                        self.line.aside(|| eprintln!("{}: {error:#}", system.name()));
                        continue;
                    }
                };
                self.results.cell_mut(workload.name, system).once = counted;
            }
        }
    }

    /// Ends all running systems and hands out the results.
    pub fn finish(self) -> Results {
        self.results
    }
}

/// Adds the system's last output to the reason of a failure.
fn with_last_words(error: Error, running: &Running) -> Error {
    match running.last_words() {
        Some(words) => anyhow!("{error:#}; its log ends with: {words}"),
        None => error,
    }
}
