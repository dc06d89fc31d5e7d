//! Writes results as tables for people and as JSON for later comparison.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::{Map, Value, json};

use super::goals::{self, Line};
use super::metric::{METRICS, Metric, MetricRow};
use super::results::Results;
use super::stats::Spread;
use super::system::System;
use super::workload::Workload;

/// The systems others are compared with, by their columns' titles.
const REFERENCES: [System; 2] = [System::Bouncer, System::Relay];
/// The metrics whose ratios are columns of the table; JSON has the ratios of all.
const COMPARED: [Metric; 4] = [Metric::CpuMicros, Metric::CpuPerGigabyte, Metric::IdleBytes, Metric::Tps];

/// Machine and programs behind the numbers.
pub struct About {
    /// Pairs of a name and a text: machine, versions, options.
    pub facts: Vec<(&'static str, String)>,
    /// Notes that a reader needs to judge the numbers.
    pub notes: Vec<String>,
}

/// Everything there is to say about one benchmark.
pub struct Report<'a> {
    /// Machine, versions, notes.
    pub about: &'a About,
    /// The workloads that ran, in order.
    pub workloads: &'a [&'static Workload],
    /// The systems that ran, in order.
    pub systems: &'a [System],
    /// The numbers.
    pub results: &'a Results,
}

impl Report<'_> {
    /// The tables.
    pub fn text(&self) -> String {
        let mut out = String::new();
        for (name, text) in &self.about.facts {
            out += &format!("{name}: {text}\n");
        }
        for note in &self.about.notes {
            out += &format!("* {note}\n");
        }
        for workload in self.workloads {
            out += &self.workload_text(workload);
        }
        out + &goals_text(&self.goals())
    }

    /// The goals of the workloads that were asked for.
    fn goals(&self) -> Vec<Line> {
        let is_there = |name: &str, system| {
            let workload = self.workloads.iter().find(|workload| workload.name == name);
            workload.is_some_and(|workload| self.results.cell(workload.name, system).is_some())
        };
        goals::judge(self.results, is_there)
    }

    fn workload_text(&self, workload: &Workload) -> String {
        let columns: Vec<&MetricRow> = METRICS.iter().filter(|row| self.measured(workload, row.metric)).collect();
        let ratios = self.ratio_columns(&columns);
        let mut head = vec!["system".to_owned()];
        head.extend(columns.iter().map(|row| row.title.to_owned()));
        head.extend(ratios.iter().map(|(row, other)| format!("{}/{}", row.title, other.name())));
        let mut lines = vec![head];
        for &system in self.systems.iter().filter(|&&system| self.results.cell(workload.name, system).is_some()) {
            let mut line = vec![system.name().to_owned()];
            line.extend(
                columns
                    .iter()
                    .map(|row| number(self.results.spread(workload.name, system, row.metric), row.digits, Range::Shown)),
            );
            line.extend(ratios.iter().map(|(row, other)| {
                let ratio = self.ratio(workload, system, row.metric, *other);
                number(ratio, 2, Range::Hidden)
            }));
            lines.push(line);
        }
        let clients = workload.clients;
        let mut out = format!("\n{}: {clients} clients; numbers are per {}\n", workload.name, workload.unit);
        out += &table(&lines);
        for &system in self.systems {
            for reason in self.results.cell(workload.name, system).map(|cell| cell.reasons()).unwrap_or_default() {
                out += &format!("  {}: could not measure: {reason}\n", system.name());
            }
        }
        out
    }

    fn measured(&self, workload: &Workload, metric: Metric) -> bool {
        self.systems.iter().any(|&system| self.results.spread(workload.name, system, metric).is_some())
    }

    fn ratio_columns<'b>(&self, columns: &[&'b MetricRow]) -> Vec<(&'b MetricRow, System)> {
        let compared = columns.iter().copied().filter(|row| COMPARED.contains(&row.metric));
        let references = REFERENCES.into_iter().filter(|system| self.systems.contains(system));
        compared.flat_map(|row| references.clone().map(move |system| (row, system))).collect()
    }

    fn ratio(&self, workload: &Workload, system: System, metric: Metric, other: System) -> Option<Spread> {
        self.results.ratio(metric, (workload.name, system), (workload.name, other))
    }

    /// The JSON document.
    pub fn json(&self) -> Value {
        let about: Map<String, Value> = self.about.facts.iter().map(|(k, v)| ((*k).to_owned(), json!(v))).collect();
        let all = self.workloads.iter().flat_map(|workload| self.systems.iter().map(move |&system| (workload, system)));
        let ran = all.filter(|(workload, system)| self.results.cell(workload.name, *system).is_some());
        let rows = ran.map(|(workload, system)| self.cell_json(workload, system));
        let goals: Vec<Value> = self.goals().iter().map(goal_json).collect();
        json!({
            "about": about,
            "notes": self.about.notes,
            "results": rows.collect::<Vec<_>>(),
            "goals": goals,
        })
    }

    fn cell_json(&self, workload: &Workload, system: System) -> Value {
        let mut metrics = Map::new();
        for row in METRICS {
            let Some(spread) = self.results.spread(workload.name, system, row.metric) else { continue };
            let mut value = spread_json(spread);
            let values = self.results.cell(workload.name, system).map(|cell| cell.values(row.metric));
            value["values"] = json!(values.unwrap_or_default().into_iter().map(rounded).collect::<Vec<_>>());
            for other in REFERENCES.into_iter().filter(|&other| other != system) {
                if let Some(ratio) = self.ratio(workload, system, row.metric, other) {
                    value[format!("ratio_to_{}", other.name())] = spread_json(ratio);
                }
            }
            metrics.insert(row.key.to_owned(), value);
        }
        json!({
            "workload": workload.name,
            "clients": workload.clients,
            "per": workload.unit,
            "system": system.name(),
            "metrics": metrics,
            "could_not_measure": self.results.cell(workload.name, system).map(|cell| cell.reasons()),
        })
    }

    /// Writes one of the files of `bench/results`.
    pub fn keep(&self, path: &Path) -> Result<()> {
        fs::write(path, lines_of(&self.json())).with_context(|| format!("cannot write {}", path.display()))
    }
}

/// A document with a line for each entry of its lists, so that two of them can be compared line by line.
pub fn lines_of(document: &Value) -> String {
    let mut parts: Vec<String> = Vec::new();
    for (name, value) in document.as_object().into_iter().flatten() {
        let text = match value {
            Value::Array(entries) => {
                let lines: Vec<String> = entries.iter().map(Value::to_string).collect();
                format!("[\n{}\n]", lines.join(",\n"))
            }
            other => other.to_string(),
        };
        parts.push(format!("{}: {text}", json!(name)));
    }
    format!("{{\n{}\n}}\n", parts.join(",\n"))
}

/// Three digits after the point: more is noise.
fn rounded(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

/// `Shown` if a number is followed by its lowest and highest value.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Range {
    Shown,
    Hidden,
}

fn number(spread: Option<Spread>, digits: usize, range: Range) -> String {
    match spread {
        None => "-".to_owned(),
        Some(s) if range == Range::Hidden || s.min == s.max => format!("{:.digits$}", s.median),
        Some(s) => format!("{:.digits$} ({:.digits$}-{:.digits$})", s.median, s.min, s.max),
    }
}

fn spread_json(spread: Spread) -> Value {
    json!({ "median": rounded(spread.median), "min": rounded(spread.min), "max": rounded(spread.max) })
}

fn goals_text(lines: &[Line]) -> String {
    let head = ["goal for weir", "workload", "measured", "must reach", "aim", "verdict"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for line in lines {
        let sign = if line.higher_is_better { ">=" } else { "<=" };
        let digits = if line.must > 100.0 { 0 } else { 2 };
        rows.push(vec![
            line.what.to_owned(),
            line.workload.to_owned(),
            number(line.measured, digits, Range::Shown),
            format!("{sign} {:.digits$}", line.must),
            format!("{sign} {:.digits$}", line.aim),
            line.verdict.word().to_owned(),
        ]);
    }
    let allocations = "Allocations per statement are not measured here: a test with a counting allocator shows them.";
    format!("\nGoals\n{}{allocations}\n", table(&rows))
}

fn goal_json(line: &Line) -> Value {
    json!({
        "what": line.what,
        "workload": line.workload,
        "measured": line.measured.map(spread_json),
        "must": line.must,
        "aim": line.aim,
        "higher_is_better": line.higher_is_better,
        "verdict": line.verdict.word(),
    })
}

/// Aligns columns: the first to the left, the others to the right.
fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width_of = |column: usize| rows.iter().filter_map(|row| row.get(column)).map(String::len).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width_of).collect();
    let mut out = String::new();
    for row in rows {
        let cells = row
            .iter()
            .zip(&widths)
            .enumerate()
            .map(|(column, (cell, &width))| if column == 0 { format!("{cell:<width$}") } else { format!("{cell:>width$}") });
        out += "  ";
        out += cells.collect::<Vec<_>>().join("  ").trim_end();
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::workload::WORKLOADS;

    #[test]
    fn what_could_not_be_measured_is_said_in_the_table_and_in_json() {
        let mut results = Results::default();
        let workload = WORKLOADS.iter().find(|w| w.name == "simple-8").expect("a workload");
        results.cell_mut("simple-8", System::Weir).rounds.push(Err("it does not start".into()));
        results.cell_mut("simple-8", System::Relay).rounds.push(Ok(vec![(Metric::Tps, 1234.4)]));
        let about = About { facts: vec![("machine", "one".into())], notes: vec!["a note".into()] };
        let report = Report { about: &about, workloads: &[workload], systems: &[System::Weir, System::Relay], results: &results };
        let text = report.text();
        assert!(text.contains("weir: could not measure: it does not start"), "{text}");
        assert!(text.contains("1234"), "{text}");
        let json = report.json();
        assert_eq!(json["results"][0]["could_not_measure"][0], "it does not start");
        assert_eq!(json["results"][1]["metrics"]["per_second"]["median"], 1234.4);
        let read_again: Value = serde_json::from_str(&lines_of(&json)).expect("still JSON");
        assert_eq!(read_again, json);
    }
}
