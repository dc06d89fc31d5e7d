//! Writes the figures, and the parts of documents that hold measured numbers.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::archive::{Archive, Place};
use super::draw;
use super::figure::{self, Figure, machine, product, whole};
use super::metric::Metric;
use super::result_file::ResultFile;
use super::shards::KeptShards;
use super::system::System;

/// Where figures lie, from the workspace's folder.
const FIGURES: &str = "docs/figures";
/// The page with the table of `cargo xtask failover`.
const FAILOVERS: &str = "docs/failover.md";
const BEGIN: &str = "<!-- bench: written by `cargo xtask bench --keep`, do not edit -->\n";
const END: &str = "<!-- bench: end -->\n";

/// A document with a part between the marks `BEGIN` and `END`.
struct Page {
    path: &'static str,
    /// From there to the figures.
    figures: &'static str,
    write: fn(&Archive, &Shown) -> String,
}

const PAGES: [Page; 3] = [
    Page { path: "README.md", figures: "docs/figures", write: readme },
    Page { path: "docs/benchmark.md", figures: "figures", write: benchmark },
    Page { path: "docs/cache-details.md", figures: "figures", write: cache },
];

/// The figures that were drawn, as a page shows them.
struct Shown<'a> {
    figures: &'a [Figure],
    folder: &'static str,
    shards: &'a KeptShards,
}

impl Shown<'_> {
    /// The picture, or nothing if it was not drawn.
    fn picture(&self, name: &str) -> String {
        let figure = self.figures.iter().find(|figure| figure.name == name && figure.has_points());
        figure.map(|figure| format!("![{}]({}/{name}.svg)\n\n", figure.title, self.folder)).unwrap_or_default()
    }
}

/// Writes all of them, and removes figures that nothing draws any more.
pub fn write(root: &Path) -> Result<()> {
    let files = files(root)?;
    let folder = root.join(FIGURES);
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    for entry in fs::read_dir(&folder)? {
        let path = entry?.path();
        if !files.iter().any(|(drawn, _)| *drawn == path) {
            fs::remove_file(&path).with_context(|| format!("cannot remove {}", path.display()))?;
        }
    }
    for (path, text) in files {
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        println!("written: {}", path.display());
    }
    Ok(())
}

/// Paths and texts, as they follow from the kept results.
fn files(root: &Path) -> Result<Vec<(PathBuf, String)>> {
    let archive = Archive::read(root)?;
    let shards = KeptShards::read(root)?;
    let mut figures = figure::figures(&archive);
    figures.push(shards.figure());
    let mut files = Vec::new();
    for figure in figures.iter().filter(|figure| figure.has_points()) {
        files.push((root.join(FIGURES).join(format!("{}.svg", figure.name)), draw::svg(figure)?));
    }
    for page in PAGES {
        let path = root.join(page.path);
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let part = (page.write)(&archive, &Shown { figures: &figures, folder: page.figures, shards: &shards });
        files.push((
            path,
            replaced(&text, (BEGIN, END), &part).with_context(|| format!("{} has no place for results", page.path))?,
        ));
    }
    Ok(files)
}

/// The text with another part between the marks; `None` if it has no marks.
pub fn replaced(text: &str, (begin, end): (&str, &str), part: &str) -> Option<String> {
    let (before, rest) = text.split_once(begin)?;
    let (_, after) = rest.split_once(end)?;
    Some([before, begin, part.trim_end(), "\n", end, after].concat())
}

/// How the numbers of a file came about.
fn conditions(archive: &Archive, file: ResultFile, programs: &[&str]) -> String {
    let fact = |name| archive.fact(file, name);
    let versions: Vec<String> = programs.iter().map(|program| product(program, fact(program))).collect();
    let rounds = fact("rounds").split(',').next().unwrap_or_default();
    let rounds = rounds.replacen(" of ", " rounds of ", 1);
    format!("{}; {}; {}; medians of {rounds}", fact("date"), machine(fact("machine")), versions.join(", "))
}

fn number(value: Option<f64>, show: impl Fn(f64) -> String) -> String {
    value.map_or_else(|| "–".to_owned(), show)
}

/// "0.79"
fn ratio(value: Option<f64>) -> String {
    number(value, |value| format!("{value:.2}"))
}

/// "37,208 tps, 9.4 µs"
fn rate_and_cpu(archive: &Archive, place: Place) -> String {
    let rate = archive.median(place, Metric::Tps).map(|rate| format!("{} tps", whole(rate)));
    let cpu = archive.median(place, Metric::CpuMicros).map(|cpu| format!("{cpu:.1} µs"));
    let parts: Vec<String> = rate.into_iter().chain(cpu).collect();
    if parts.is_empty() { "–".to_owned() } else { parts.join(", ") }
}

/// The comparison with PgBouncer.
const BESIDE_BOUNCER: [(&str, &str); 21] = [
    ("simple-8", "`-S` simple, 8 clients"),
    ("simple-64", "`-S` simple, 64 clients"),
    ("simple-256", "`-S` simple, 256 clients"),
    ("extended-8", "`-S` extended, 8 clients"),
    ("extended-64", "`-S` extended, 64 clients"),
    ("prepared-8", "`-S` prepared, 8 clients"),
    ("prepared-64", "`-S` prepared, 64 clients"),
    ("epoll-simple-8", "`io_method = epoll`: `-S` simple, 8 clients"),
    ("epoll-simple-64", "epoll: simple, 64 clients"),
    ("epoll-extended-8", "epoll: extended, 8 clients"),
    ("epoll-extended-64", "epoll: extended, 64 clients"),
    ("epoll-prepared-8", "epoll: prepared, 8 clients"),
    ("epoll-prepared-64", "epoll: prepared, 64 clients"),
    ("busy-simple-1", "beside three programs that compute: `-S` simple, 1 client"),
    ("busy-simple-8", "beside them: simple, 8 clients"),
    ("busy-prepared-64", "beside them: prepared, 64 clients"),
    ("tpcb-8", "TPC-B-like, 8 clients"),
    ("connect-10", "`-C -S`, 10 clients"),
    ("tls-simple-8", "`-S` simple over TLS, 8 clients"),
    ("tls-connect-10", "`-C -S` over TLS, 10 clients"),
    ("scram-connect-10", "`-C -S` with SCRAM, 10 clients"),
];

/// The comparison with Pgpool-II.
const BESIDE_PGPOOL: [(&str, &str); 4] = [
    ("spread-8", "`-S`, 8 clients"),
    ("spread-64", "`-S`, 64 clients"),
    ("tables-1", "`-C -c 30`, a script of 1 table"),
    ("tables-256", "`-C -c 30`, a script of 256 tables, per table"),
];

/// Hits by number of clients.
const HITS: [(&str, &str); 4] = [("hits-4", "4"), ("hits-8", "8"), ("hits-64", "64"), ("hits-256", "256")];

/// Workloads with a cache, without, and the part of hits.
const RATIOS: [(&str, &str, &str); 7] = [
    ("ratio-0", "ratio-0-off", "0 %"),
    ("ratio-10", "ratio-10-off", "10 %"),
    ("ratio-20", "ratio-20-off", "20 %"),
    ("ratio-40", "ratio-40-off", "40 %"),
    ("ratio-60", "", "60 %"),
    ("ratio-80", "", "80 %"),
    ("hits-8", "hits-8-off", "100 %"),
];

/// Workloads with results in memcached.
const SHELVED: [(&str, &str, &str); 4] = [
    ("memcached-20", "ratio-20-off", "20 %"),
    ("memcached-40", "ratio-40-off", "40 %"),
    ("memcached-80", "", "80 %"),
    ("memcached-hits", "hits-8-off", "100 %"),
];

/// Five rows that say why. The first two are from the table of failovers, which another task measures.
fn readme(archive: &Archive, _: &Shown) -> String {
    let failovers = fs::read_to_string(crate::root().join(FAILOVERS)).unwrap_or_default();
    let of_kill = |system, column| failover_cell(&failovers, system, column).unwrap_or_else(|| "–".to_owned());
    let time = |system| of_kill(system, 4).split(',').next().unwrap_or_default().to_owned();
    let mut out = "| measured | Weir | the others |\n|---|---|---|\n".to_owned();
    out += &format!(
        "| a primary is killed: clients disconnected, of 250 | {} | {} Pgpool-II |\n",
        of_kill("Weir", 5),
        of_kill("Pgpool-II", 5)
    );
    out += &format!("| the same: median time without a write | {} | {} Pgpool-II |\n", time("Weir"), time("Pgpool-II"));
    let rows = [
        ("prepared-64", "`pgbench -S`, prepared, 64 clients", System::Bouncer, "PgBouncer"),
        ("spread-64", "`pgbench -S` before three servers, 64 clients", System::Pgpool, "Pgpool-II"),
        ("hits-64", "repeated reads from the query cache, 64 clients", System::Pgpool, "Pgpool-II"),
    ];
    for (workload, title, other, name) in rows {
        let of = |system| number(archive.median((workload, system), Metric::Tps), |rate| format!("{} tps", whole(rate)));
        out += &format!("| {title} | {} | {} {name} |\n", of(System::Weir), of(other));
    }
    out += &format!(
        "\n{}. How, and all numbers: [Measurements](docs/benchmark.md), [Failover](docs/failover.md#how-long-it-takes).\n",
        conditions(archive, ResultFile::Table, &["PostgreSQL", "pgbouncer", "pgpool"])
    );
    out
}

/// A cell of the row for a killed primary with asynchronous standbys, by the number of its column from 1.
fn failover_cell(page: &str, system: &str, column: usize) -> Option<String> {
    let begin = format!("| primary killed (`kill -9`), asynchronous standbys | {system} |");
    let row = page.lines().find(|line| line.starts_with(&begin))?;
    row.split('|').nth(column).map(|cell| cell.trim().to_owned())
}

/// Beside the other poolers.
fn comparisons(archive: &Archive) -> String {
    let mut out = beside_bouncer(archive);
    out += &format!(
        "Before a primary and two standbys, beside Pgpool-II ({}):\n\n",
        conditions(archive, ResultFile::Table, &["pgpool"])
    );
    out += &beside_pgpool(archive);
    let hits = |system| number(archive.median(("hits-64", system), Metric::Tps), |rate| format!("{} tps", whole(rate)));
    out += &format!(
        "With the query cache on, 64 clients and all reads asked before, Weir answers {}, Pgpool-II {}, a loop that knows one answer {}; `GET` \
         of {} by its own benchmark {}. More: [Query cache](cache-details.md#measurements).\n\n",
        hits(System::Weir),
        hits(System::Pgpool),
        hits(System::Answers),
        product("redis", archive.fact(ResultFile::Cache, "redis")),
        hits(System::Redis),
    );
    out
}

fn beside_bouncer(archive: &Archive) -> String {
    let mut out = conditions(archive, ResultFile::Table, &["PostgreSQL", "pgbouncer"]);
    out += ". Time is CPU time of the proxy, user and system, per transaction. Ratios are medians of those within a round. Both poolers have \
            20 server connections.\n\n";
    out += "| `pgbench` | Weir | PgBouncer | tps, Weir / PgBouncer | CPU, Weir / PgBouncer |\n|---|---|---|---|---|\n";
    for (workload, title) in BESIDE_BOUNCER.into_iter().filter(|(workload, _)| is_measured(archive, workload)) {
        let (ours, theirs) = ((workload, System::Weir), (workload, System::Bouncer));
        let of = |metric| ratio(archive.ratio(ours, theirs, metric));
        let (weir, bouncer) = (rate_and_cpu(archive, ours), rate_and_cpu(archive, theirs));
        out += &format!("| {title} | {weir} | {bouncer} | {} | {} |\n", of(Metric::Tps), of(Metric::CpuMicros));
    }
    for (workload, title) in [("rows", "1,000,000 rows to one client"), ("copy", "`COPY` of as many")] {
        let (ours, theirs) = ((workload, System::Weir), (workload, System::Bouncer));
        let of = |place| number(archive.median(place, Metric::CpuPerGigabyte), |cpu| format!("{cpu:.2} s CPU/GB"));
        let between = ratio(archive.ratio(ours, theirs, Metric::CpuPerGigabyte));
        out += &format!("| {title} | {} | {} | – | {between} |\n", of(ours), of(theirs));
    }
    let idle = |system| {
        number(archive.median(("idle-used-10000", system), Metric::IdleBytes), |bytes| format!("{} bytes", whole(bytes)))
    };
    out += &format!("| each of 10,000 idle clients | {} | {} | – | – |\n\n", idle(System::Weir), idle(System::Bouncer));
    out
}

fn beside_pgpool(archive: &Archive) -> String {
    let mut out = "| `pgbench` | Weir | Pgpool-II | tps, Weir / Pgpool-II |\n|---|---|---|---|\n".to_owned();
    for (workload, title) in BESIDE_PGPOOL {
        let (ours, theirs) = ((workload, System::Weir), (workload, System::Pgpool));
        let between = ratio(archive.ratio(ours, theirs, Metric::Tps));
        out += &format!("| {title} | {} | {} | {between} |\n", rate_and_cpu(archive, ours), rate_and_cpu(archive, theirs));
    }
    out + "\n"
}

/// The figures, and the counts.
fn benchmark(archive: &Archive, shown: &Shown) -> String {
    let mut out: String = ["clients", "memory", "cache"].map(|name| shown.picture(name)).concat();
    out += &comparisons(archive);
    let instructions = archive.fact(ResultFile::Clients, "instructions");
    out +=
        &format!("{}. Instructions: {instructions}.\n\n", conditions(archive, ResultFile::Clients, &["PostgreSQL", "pgbouncer"]));
    out += "| per transaction | Weir: user instructions | PgBouncer | Weir: system calls | PgBouncer |\n|---|---|---|---|---|\n";
    for workload in
        ["simple-8", "extended-8", "prepared-8", "tpcb-8", "unrouted-8", "spread-8", "hits-8", "uncacheable", "uncacheable-off"]
    {
        let of = |system, metric, digits| {
            number(archive.median((workload, system), metric), |count: f64| {
                if digits == 0 { whole(count) } else { format!("{count:.digits$}") }
            })
        };
        let [ours, theirs] = [System::Weir, System::Bouncer].map(|system| of(system, Metric::UserInstructions, 0));
        let [our_calls, their_calls] = [System::Weir, System::Bouncer].map(|system| of(system, Metric::Syscalls, 2));
        out += &format!("| `{workload}` | {ours} | {theirs} | {our_calls} | {their_calls} |\n");
    }
    out + &shown.shards.section(&shown.picture("shards"))
}

fn cache(archive: &Archive, shown: &Shown) -> String {
    let mut out = shown.picture("cache");
    out += &conditions(archive, ResultFile::Cache, &["PostgreSQL", "pgpool", "redis"]);
    out += ". `pgbench -S` with 8 clients; ratios are medians of those within a round; ten percent are noise.\n\n";
    out += "| hits, in the proxy's memory | Weir | without a cache | ratio | Pgpool-II | without a cache | ratio |\n|---|---|---|---|---|---|---|\n";
    out += &ratios(archive, &RATIOS);
    out += "\n| hits, in memcached | Weir | without a cache | ratio | Pgpool-II | without a cache | ratio |\n|---|---|---|---|---|---|---|\n";
    out += &ratios(archive, &SHELVED);
    out += "\n| all hits, by clients | Weir | Pgpool-II | a server that knows one answer | `GET` of Redis |\n|---|---|---|---|---|\n";
    for (workload, clients) in HITS {
        let of = |system| number(archive.median((workload, system), Metric::Tps), whole);
        let [weir, pgpool, answers, redis] = [System::Weir, System::Pgpool, System::Answers, System::Redis].map(of);
        out += &format!("| {clients} | {weir} | {pgpool} | {answers} | {redis} |\n");
    }
    let gain = |system| archive.ratio(("rush-64", system), ("rush-64-off", system), Metric::Tps);
    if let Some((ours, theirs)) = gain(System::Weir).zip(gain(System::Pgpool)) {
        out += &format!(
            "\npgbench, on one thread, is busy before Weir is. With a cheaper client (`rush-64`) the cache multiplies Weir's reads by \
             {ours:.1} and Pgpool-II's by {theirs:.1}.\n"
        );
    }
    out
}

fn is_measured(archive: &Archive, workload: &str) -> bool {
    archive.median((workload, System::Weir), Metric::Tps).is_some()
}

fn ratios(archive: &Archive, rows: &[(&str, &str, &str)]) -> String {
    let mut out = String::new();
    for (with, without, hits) in rows.iter().filter(|(with, _, _)| is_measured(archive, with)) {
        out += &format!("| {hits} |");
        for system in [System::Weir, System::Pgpool] {
            let of = |workload| number(archive.median((workload, system), Metric::Tps), whole);
            let between = ratio(archive.ratio((with, system), (without, system), Metric::Tps));
            out += &format!(" {} | {} | {between} |", of(with), of(without));
        }
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::workload::WORKLOADS;

    const COMMAND: &str = "cargo xtask bench --draw";

    #[test]
    fn figures_and_tables_are_those_of_the_kept_results() {
        let files = files(crate::root()).expect("kept results");
        for (path, expected) in &files {
            let text = fs::read_to_string(path).unwrap_or_default();
            assert!(text == *expected, "{} is not as the kept results say: run `{COMMAND}`", path.display());
        }
        let folder = fs::read_dir(crate::root().join(FIGURES)).expect("a folder of figures");
        for path in folder.map(|entry| entry.expect("an entry").path()) {
            assert!(files.iter().any(|(drawn, _)| *drawn == path), "nothing draws {}", path.display());
        }
    }

    #[test]
    fn every_row_of_the_tables_is_a_workload_whose_results_are_kept() {
        let ratios = RATIOS.iter().chain(&SHELVED).flat_map(|(with, without, _)| [*with, *without]);
        let others = BESIDE_BOUNCER.iter().chain(&BESIDE_PGPOOL).chain(&HITS).map(|(name, _)| *name);
        for name in ratios.chain(others).filter(|name| !name.is_empty()) {
            let workload = WORKLOADS.iter().find(|workload| workload.name == name).expect("a workload of that name");
            assert!(workload.file.is_some(), "{name}");
        }
    }

    #[test]
    fn a_cell_of_the_failovers_is_found() {
        let page = "| primary killed (`kill -9`), asynchronous standbys | Weir | 50 | 0.17 s, 0.63 s | 0 |\n";
        assert_eq!(failover_cell(page, "Weir", 4).as_deref(), Some("0.17 s, 0.63 s"));
        assert_eq!(failover_cell(page, "Weir", 5).as_deref(), Some("0"));
        assert_eq!(failover_cell(page, "Pgpool-II", 4), None);
    }

    #[test]
    fn a_part_is_replaced_between_its_marks() {
        let text = format!("above\n{BEGIN}old\n{END}below\n");
        assert_eq!(replaced(&text, (BEGIN, END), "new\n\n"), Some(format!("above\n{BEGIN}new\n{END}below\n")));
        assert_eq!(replaced("no marks", (BEGIN, END), "new"), None);
    }
}
