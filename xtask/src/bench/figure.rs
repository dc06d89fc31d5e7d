//! Figures of the kept results. `draw` knows how to draw.

use super::archive::Archive;
use super::metric::Metric;
use super::result_file::ResultFile;
use super::system::System;
use super::workload::{Kind, Mode, Stage, WORKLOADS, Workload};

/// One file of `docs/figures`.
pub struct Figure {
    /// Its name there, without `.svg`.
    pub name: &'static str,
    /// Its first line, and the text in place of the picture.
    pub title: &'static str,
    /// Machine, versions and date.
    pub source: String,
    /// Side by side.
    pub panels: Vec<Panel>,
}

impl Figure {
    /// False if nothing of it was measured.
    pub fn has_points(&self) -> bool {
        self.panels.iter().any(|panel| panel.lines.iter().any(|line| !line.points.is_empty()))
    }
}

/// One pair of axes.
pub struct Panel {
    /// The number that is shown, with its unit.
    pub title: &'static str,
    /// From left to right.
    pub x: Axis,
    /// From bottom to top.
    pub y: Axis,
    /// Lines without points are left out.
    pub lines: Vec<Line>,
}

/// How values are placed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Scale {
    /// Same steps are same distances.
    Linear,
    /// Same ratios are same distances.
    Log,
}

/// One axis.
pub struct Axis {
    /// Under the axis; empty if the panel's title says it.
    pub name: &'static str,
    pub scale: Scale,
    /// Values with a line and a label, the lowest first; the first and the last end the axis.
    pub marks: Vec<f64>,
    /// The text at a mark.
    pub label: fn(f64) -> String,
}

/// One system in one way.
pub struct Line {
    pub name: &'static str,
    pub look: Look,
    /// From left to right.
    pub points: Vec<(f64, f64)>,
}

/// How a line is told from others.
#[derive(Clone, Copy)]
pub struct Look {
    /// Red, green, blue.
    pub colour: (u8, u8, u8),
    pub stroke: Stroke,
}

/// How a line is drawn.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Stroke {
    /// The subject.
    Thick,
    /// A peer.
    Thin,
    /// A system without the feature that the figure shows.
    Hollow,
}

/// A palette that people with colour blindness can tell apart.
fn colour(system: System) -> (u8, u8, u8) {
    match system {
        System::Weir => (0, 114, 178),
        System::Bouncer => (213, 94, 0),
        System::Pgpool => (0, 158, 115),
        System::Direct => (90, 90, 90),
        System::Relay | System::Answers | System::Redis => (204, 121, 167),
    }
}

fn look(system: System) -> Look {
    Look { colour: colour(system), stroke: if system == System::Weir { Stroke::Thick } else { Stroke::Thin } }
}

/// The look of the system without its cache.
fn hollow(system: System) -> Look {
    Look { colour: colour(system), stroke: Stroke::Hollow }
}

/// All figures.
pub fn figures(archive: &Archive) -> Vec<Figure> {
    vec![clients(archive), cache(archive), memory(archive)]
}

/// The points of a system under the workloads for which `x` knows a place, in that order.
fn points(archive: &Archive, system: System, metric: Metric, x: impl Fn(&Workload) -> Option<f64>, unit: f64) -> Vec<(f64, f64)> {
    let placed = WORKLOADS.iter().filter_map(|workload| Some((x(workload)?, workload)));
    let measured = placed.filter_map(|(x, workload)| Some((x, archive.median((workload.name, system), metric)? / unit)));
    // Nothing costs nothing: a clock was too coarse.
    let mut points: Vec<(f64, f64)> = measured.filter(|(_, value)| *value > 0.0).collect();
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    points
}

fn is_select(workload: &Workload) -> Option<f64> {
    let is_it = workload.kind == Kind::Select(Mode::Simple) && workload.file == Some(ResultFile::Clients);
    is_it.then_some(f64::from(workload.clients))
}

fn clients(archive: &Archive) -> Figure {
    let line = |name, system, metric| Line { name, look: look(system), points: points(archive, system, metric, is_select, 1.0) };
    let systems =
        [("Weir", System::Weir), ("PgBouncer", System::Bouncer), ("Pgpool-II", System::Pgpool), ("bare relay", System::Relay)];
    let lines = |metric| systems.iter().map(|&(name, system)| line(name, system, metric)).collect::<Vec<_>>();
    let mut rates = lines(Metric::Tps);
    rates.push(line("no proxy", System::Direct, Metric::Tps));
    let costs = lines(Metric::CpuMicros);
    let x = || Axis { name: "clients", scale: Scale::Log, marks: marks_of(&[is_select]), label: whole };
    Figure {
        name: "clients",
        title: "pgbench -S by number of clients",
        source: source(archive, ResultFile::Clients, &["PostgreSQL", "pgbouncer", "pgpool"]),
        panels: vec![
            Panel { title: "reads per second", x: x(), y: from_zero(&rates, thousands), lines: rates },
            Panel { title: "CPU time of the proxy per read, µs", x: x(), y: from_one(&costs, whole), lines: costs },
        ],
    }
}

/// The percentage of reads that are hits, by number and not by chance.
fn hit_percent(workload: &Workload, stage: Stage) -> Option<f64> {
    let is_it = workload.file == Some(ResultFile::Cache) && workload.stage == stage && workload.clients == 8;
    match workload.kind {
        Kind::HitRatio { percent } if is_it => Some(f64::from(percent)),
        Kind::Hits if is_it => Some(100.0),
        _ => None,
    }
}

fn cache(archive: &Archive) -> Figure {
    let line = |name, look, system, stage| {
        let points = points(archive, system, Metric::Tps, |workload| hit_percent(workload, stage), 1.0);
        Line { name, look, points }
    };
    let panel = |title, stage| {
        let lines = vec![
            line("Weir", look(System::Weir), System::Weir, stage),
            line("Weir without a cache", hollow(System::Weir), System::Weir, Stage::One),
            line("Pgpool-II", look(System::Pgpool), System::Pgpool, stage),
            line("Pgpool-II without a cache", hollow(System::Pgpool), System::Pgpool, Stage::One),
        ];
        let marks = (0..=10).step_by(2).map(|tenth| f64::from(tenth) * 10.0).collect();
        let x = Axis { name: "reads that are hits, %", scale: Scale::Linear, marks, label: whole };
        Panel { title, x, y: from_zero(&lines, thousands), lines }
    };
    let mut panels = vec![
        panel("reads per second, results in the proxy's memory", Stage::Cached),
        panel("reads per second, results in memcached", Stage::Shelved),
    ];
    // One scale for both, so that they compare.
    let all: Vec<f64> = panels.iter().flat_map(|panel| panel.lines.iter().flat_map(heights)).collect();
    panels.iter_mut().for_each(|panel| panel.y = axis_from_zero(&all, thousands));
    Figure {
        name: "cache",
        title: "Query cache: pgbench -S with 8 clients by hit ratio",
        source: source(archive, ResultFile::Cache, &["PostgreSQL", "pgpool"]),
        panels,
    }
}

fn is_idle(workload: &Workload) -> Option<f64> {
    let is_it = matches!(workload.kind, Kind::Idle { statements: 1 });
    is_it.then_some(f64::from(workload.clients))
}

fn memory(archive: &Archive) -> Figure {
    const MEGABYTE: f64 = 1e6;
    let line = |name, system| {
        let points = points(archive, system, Metric::MemoryBytes, is_idle, MEGABYTE);
        Line { name, look: look(system), points }
    };
    let lines = vec![line("Weir", System::Weir), line("PgBouncer", System::Bouncer), line("Pgpool-II", System::Pgpool)];
    let x = Axis { name: "idle clients", scale: Scale::Log, marks: marks_of(&[is_idle]), label: whole };
    Figure {
        name: "memory",
        title: "Memory by number of idle clients",
        source: source(archive, ResultFile::Clients, &["pgbouncer", "pgpool"]),
        panels: vec![Panel { title: "memory of the proxy, MB", x, y: from_one(&lines, whole), lines }],
    }
}

/// Where the workloads lie.
fn marks_of(places: &[fn(&Workload) -> Option<f64>]) -> Vec<f64> {
    let mut marks: Vec<f64> = places.iter().flat_map(|place| WORKLOADS.iter().filter_map(place)).collect();
    marks.sort_by(f64::total_cmp);
    marks.dedup();
    marks
}

fn heights(line: &Line) -> Vec<f64> {
    line.points.iter().map(|point| point.1).collect()
}

/// An axis for all points of the lines.
pub fn from_zero(lines: &[Line], label: fn(f64) -> String) -> Axis {
    axis_from_zero(&lines.iter().flat_map(heights).collect::<Vec<_>>(), label)
}

/// Four to ten equal steps that end above all values.
fn axis_from_zero(values: &[f64], label: fn(f64) -> String) -> Axis {
    let highest = values.iter().copied().fold(1.0, f64::max);
    let magnitude = 10_f64.powf(highest.log10().floor());
    let steps = [0.1, 0.2, 0.5, 1.0, 2.0].map(|part| part * magnitude);
    let step = steps.into_iter().find(|step| highest / step <= 8.0).unwrap_or(magnitude * 2.0);
    let mut marks = vec![0.0];
    while marks.last().is_some_and(|last| *last < highest) {
        marks.push(f64::from(u32::try_from(marks.len()).unwrap_or(u32::MAX)) * step);
    }
    Axis { name: "", scale: Scale::Linear, marks, label }
}

/// Powers of ten and their doubles and halves, around all values.
fn from_one(lines: &[Line], label: fn(f64) -> String) -> Axis {
    let values: Vec<f64> = lines.iter().flat_map(heights).collect();
    let lowest = values.iter().copied().fold(f64::INFINITY, f64::min).min(10.0);
    let highest = values.iter().copied().fold(10.0, f64::max);
    let all: Vec<f64> = (0..7).flat_map(|power| [1.0, 2.0, 5.0].map(|part| part * 10_f64.powi(power))).collect();
    let first = all.iter().rposition(|mark| *mark <= lowest).unwrap_or(0);
    let last = all.iter().position(|mark| *mark >= highest).unwrap_or(all.len() - 1);
    Axis { name: "", scale: Scale::Log, marks: all[first..=last].to_vec(), label }
}

/// 1000 as "1,000".
pub fn whole(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// 40000 as "40k".
pub fn thousands(value: f64) -> String {
    if value == 0.0 { "0".to_owned() } else { format!("{}k", value / 1000.0) }
}

/// Versions, machine and date in one line.
fn source(archive: &Archive, file: ResultFile, programs: &[&str]) -> String {
    let mut parts: Vec<String> = programs.iter().map(|program| product(program, archive.fact(file, program))).collect();
    parts.push(machine(archive.fact(file, "machine")));
    parts.push(archive.fact(file, "date").to_owned());
    parts.join(" · ")
}

/// Cores and processor, without the kernel.
pub fn machine(text: &str) -> String {
    text.split(", Linux").next().unwrap_or(text).to_owned()
}

/// Name and version, as in "Pgpool-II 4.3.5".
pub fn product(program: &str, text: &str) -> String {
    let name = match program {
        "pgbouncer" => "PgBouncer",
        "pgpool" => "Pgpool-II",
        "redis" => "Redis",
        other => other,
    };
    let numbers = text.split([' ', '=', ',']).find(|word| word.starts_with(|c: char| c.is_ascii_digit()));
    format!("{name} {}", numbers.unwrap_or("of unknown version"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_reach_over_all_values_in_a_few_steps() {
        for highest in [3.0, 9.9, 10.0, 47_526.0, 160_000.0, 999_999.0] {
            let marks = axis_from_zero(&[highest, 1.0], whole).marks;
            assert!((4..=10).contains(&marks.len()), "{highest}: {marks:?}");
            assert!(marks[marks.len() - 1] >= highest && marks[marks.len() - 2] < highest, "{highest}: {marks:?}");
        }
    }

    #[test]
    fn versions_are_named_as_people_name_them() {
        assert_eq!(product("pgpool", "pgpool-II version 4.3.5 (tamahomeboshi)"), "Pgpool-II 4.3.5");
        assert_eq!(product("redis", "Redis server v=7.0.15 sha=00000000:0"), "Redis 7.0.15");
        assert_eq!(product("PostgreSQL", "15.18 (Debian 15.18-0+deb12u1), scale 10"), "PostgreSQL 15.18");
        assert_eq!((whole(1_000_000.0), whole(999.0)), ("1,000,000".to_owned(), "999".to_owned()));
    }
}
