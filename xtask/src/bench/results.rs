//! Measured numbers, and comparisons of systems.

use std::collections::BTreeMap;

use super::counters::Counted;
use super::metric::{METRICS, Metric, Sample, value_of};
use super::stats::{Spread, spread};
use super::system::System;

/// One workload on one system.
#[derive(Default)]
pub struct Cell {
    /// One entry per round: the sample, or why there is none.
    pub rounds: Vec<Result<Sample, String>>,
    /// Numbers that were counted once, after the rounds.
    pub once: Vec<Counted>,
}

impl Cell {
    /// All values of a metric.
    pub fn values(&self, metric: Metric) -> Vec<f64> {
        let rounds = self.rounds.iter().flatten().filter_map(|sample| value_of(sample, metric));
        let once = self.once.iter().filter(|(m, _)| *m == metric).filter_map(|(_, value)| value.as_ref().ok().copied());
        rounds.chain(once).collect()
    }

    /// Why something is missing, each reason once.
    pub fn reasons(&self) -> Vec<String> {
        let rounds = self.rounds.iter().filter_map(|round| round.as_ref().err().cloned());
        let title = |metric| METRICS.iter().find(|row| row.metric == metric).map_or("", |row| row.title);
        let once = self
            .once
            .iter()
            .filter_map(|(metric, value)| value.as_ref().err().map(|reason| format!("{}: {reason}", title(*metric))));
        let mut reasons: Vec<String> = Vec::new();
        for reason in rounds.chain(once) {
            if !reasons.contains(&reason) {
                reasons.push(reason);
            }
        }
        reasons
    }
}

/// All cells by workload name and system.
#[derive(Default)]
pub struct Results {
    cells: BTreeMap<(&'static str, System), Cell>,
}

impl Results {
    /// The cell to fill.
    pub fn cell_mut(&mut self, workload: &'static str, system: System) -> &mut Cell {
        self.cells.entry((workload, system)).or_default()
    }

    /// The cell to read; `None` when it was not asked for.
    pub fn cell(&self, workload: &'static str, system: System) -> Option<&Cell> {
        self.cells.get(&(workload, system))
    }

    /// Median, lowest and highest value.
    pub fn spread(&self, workload: &'static str, system: System, metric: Metric) -> Option<Spread> {
        spread(&self.cell(workload, system)?.values(metric))
    }

    /// By how much one median is above another.
    pub fn difference(&self, metric: Metric, above: (&'static str, System), below: (&'static str, System)) -> Option<Spread> {
        let (above, below) = (self.spread(above.0, above.1, metric)?, self.spread(below.0, below.1, metric)?);
        spread(&[above.median - below.median])
    }

    /// The median over the rounds of the ratio within a round: a slow round slows both sides.
    ///
    /// Each side names a workload and a system, so the same function compares two systems or two workloads.
    pub fn ratio(&self, metric: Metric, above: (&'static str, System), below: (&'static str, System)) -> Option<Spread> {
        let (above, below) = (self.cell(above.0, above.1)?, self.cell(below.0, below.1)?);
        let in_rounds = above.rounds.iter().zip(&below.rounds).filter_map(|(above, below)| {
            let (above, below) = (above.as_ref().ok()?, below.as_ref().ok()?);
            Some((value_of(above, metric)?, value_of(below, metric)?))
        });
        let counted = above
            .once
            .iter()
            .zip(&below.once)
            .filter_map(|((m, above), (_, below))| (*m == metric).then_some((*above.as_ref().ok()?, *below.as_ref().ok()?)));
        let ratios: Vec<f64> = in_rounds.chain(counted).filter(|&(_, b)| b > 0.0).map(|(a, b)| a / b).collect();
        spread(&ratios)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_is_taken_of_medians() {
        let mut results = Results::default();
        for (workload, values) in [("on", [900.0, 1200.0, 1100.0]), ("off", [700.0, 600.0, 5000.0])] {
            let rounds = values.map(|value| Ok(vec![(Metric::UserInstructions, value)]));
            results.cell_mut(workload, System::Weir).rounds.extend(rounds);
        }
        let difference = results.difference(Metric::UserInstructions, ("on", System::Weir), ("off", System::Weir));
        assert_eq!(difference.map(|spread| spread.median), Some(400.0));
    }

    #[test]
    fn ratios_are_taken_within_a_round_and_rounds_that_failed_are_left_out() {
        let mut results = Results::default();
        let rounds = [(10.0, Some(5.0)), (300.0, Some(100.0)), (7.0, None), (40.0, Some(10.0))];
        for (ours, theirs) in rounds {
            let ok = |value| Ok(vec![(Metric::CpuMicros, value)]);
            results.cell_mut("w", System::Weir).rounds.push(ok(ours));
            let theirs = theirs.map_or(Err("gone".to_owned()), ok);
            results.cell_mut("w", System::Relay).rounds.push(theirs);
        }
        let ratio = results.ratio(Metric::CpuMicros, ("w", System::Weir), ("w", System::Relay));
        assert_eq!(ratio, Some(Spread { median: 3.0, min: 2.0, max: 4.0 }));
        assert_eq!(results.cell("w", System::Relay).map(Cell::reasons), Some(vec!["gone".to_owned()]));
    }
}
