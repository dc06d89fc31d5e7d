//! The kept results, and the table of docs/failover.md.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::goals;
use super::row::{ROWS, Row};
use super::system::System;
use crate::bench::{pages, report};

const FILE: &str = "bench/results/failover.json";
const PAGE: &str = "docs/failover.md";
const MARKS: (&str, &str) =
    ("<!-- failover: written by `cargo xtask failover --keep`, do not edit -->\n", "<!-- failover: end -->\n");
const HEAD: &str = "| event | proxy | rounds | longest time without an acknowledged write: median, maximum | most clients disconnected, of 250 | failed statements a round, by SQLSTATE | acknowledged writes missing, of all | of them not reported | failed reads, of all | slowest read |\n|---|---|---|---|---|---|---|---|---|---|\n";

const HEAD_TOLD: &str = "\n| event | rounds | COMMITs whose answer was lost | outcome told (goal: 0.95) | told, and not as the table is | transactions that ran again | transactions that failed (goal with `transaction_replay`: 0) | rows written twice |\n|---|---|---|---|---|---|---|---|\n";

const HEAD_RETURNED: &str = "\nWith an agent beside each server. At switchovers six clients write and read without a pause; when a primary was killed 15 do, with a pause of 20 ms. 20 more are idle. Pgpool-II has no counterpart.\n\n| event | rounds | databases | longest time without an acknowledged write: median, maximum | until the old primary streams again: median, maximum | it came back by | sessions lost | failed statements a round, by SQLSTATE | acknowledged writes missing, of all | of them not reported | failed reads, of all | slowest read |\n|---|---|---|---|---|---|---|---|---|---|---|---|\n";

/// The results of an event with a system.
pub fn entry(row: &Row, system: System, version: &str, rounds: &[Value]) -> Value {
    json!({ "row": row.name, "system": system.name(), "version": version, "rounds": rounds })
}

/// Puts results in the place of those kept before, and writes the page.
pub fn keep(root: &Path, about: &Value, entries: &[Value]) -> Result<()> {
    let path = root.join(FILE);
    let before: Value = fs::read_to_string(&path).ok().and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default();
    let all = ROWS.iter().flat_map(|row| [System::Weir, System::Pgpool].map(|system| (row.name, system.name())));
    let kept: Vec<Value> =
        all.filter_map(|place| find(entries, place).or_else(|| find(results(&before), place)).cloned()).collect();
    fs::write(&path, report::lines_of(&json!({ "about": about, "results": kept })))?;
    draw(root)
}

/// Writes the table of the page from the kept file.
pub fn draw(root: &Path) -> Result<()> {
    let (path, text) = page(root)?;
    fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
}

fn results(document: &Value) -> &[Value] {
    document["results"].as_array().map(Vec::as_slice).unwrap_or_default()
}

fn find<'v>(entries: &'v [Value], (row, system): (&str, &str)) -> Option<&'v Value> {
    entries.iter().find(|entry| entry["row"] == row && entry["system"] == system)
}

/// The page as it follows from the kept results.
fn page(root: &Path) -> Result<(std::path::PathBuf, String)> {
    let document: Value = serde_json::from_str(&fs::read_to_string(root.join(FILE))?)?;
    let path = root.join(PAGE);
    let text = fs::read_to_string(&path)?;
    let fact = |name: &str| document["about"][name].as_str().unwrap_or("unknown").to_owned();
    let versions: BTreeSet<&str> = results(&document).iter().filter_map(|entry| entry["version"].as_str()).collect();
    let versions: Vec<&str> = versions.into_iter().collect();
    let conditions = format!("{}; {}; {}", fact("date"), fact("machine"), versions.join(", "));
    let part = format!("{conditions}.\n\n{}", tables(results(&document)));
    let text = pages::replaced(&text, MARKS, &part).with_context(|| format!("{PAGE} has no place for results"))?;
    Ok((path, text))
}

/// Markdown: the faults, clients that were spared something, servers that agents brought back, and goals.
pub fn tables(entries: &[Value]) -> String {
    let (returned, others): (Vec<&Value>, Vec<&Value>) = entries.iter().partition(|entry| has_agents(entry));
    let below = |head: &str, lines: String| if lines.is_empty() { lines } else { format!("{head}{lines}") };
    below(HEAD, others.iter().map(|entry| line(entry)).collect())
        + &below(HEAD_TOLD, others.iter().filter_map(|entry| line_told(entry)).collect())
        + &below(HEAD_RETURNED, returned.iter().map(|entry| line_returned(entry)).collect())
        + &below(goals::HEAD, goals::lines(entries))
}

fn has_agents(entry: &Value) -> bool {
    ROWS.iter().any(|row| entry["row"] == row.name && row.has_agents())
}

/// The title of its row.
pub fn title(entry: &Value) -> &'static str {
    ROWS.iter().find(|row| entry["row"] == row.name).map_or("", |row| row.title)
}

/// `None` where clients are spared nothing.
fn line_told(entry: &Value) -> Option<String> {
    let rounds: Vec<&Value> =
        entry["rounds"].as_array()?.iter().map(|round| &round["told"]).filter(|told| told.is_object()).collect();
    if rounds.is_empty() {
        return None;
    }
    let sum = |name: &str| rounds.iter().map(|told| told[name].as_u64().unwrap_or_default()).sum::<u64>();
    let exact = sum("committed") + sum("rolled_back");
    let all = exact + sum("unknown");
    // Rounded down: less than all of them is never shown as 1.
    let share = (exact * 1000).checked_div(all);
    let share = share.map_or_else(|| "none".into(), |share| format!("{}.{:03}", share / 1000, share % 1000));
    Some(format!(
        "| {} | {} | {all} | {exact} ({share}) | {} | {} | {} | {} |\n",
        title(entry),
        rounds.len(),
        sum("wrong"),
        sum("ran_again"),
        sum("lost"),
        sum("twice"),
    ))
}

/// The rounds of an entry, and sums over them.
pub struct Rounds<'e>(&'e [Value]);

impl<'e> Rounds<'e> {
    pub fn of(entry: &'e Value) -> Self {
        Self(entry["rounds"].as_array().map(Vec::as_slice).unwrap_or_default())
    }

    pub fn sum(&self, name: &str) -> u64 {
        self.sorted(name).iter().sum()
    }

    pub fn most(&self, name: &str) -> u64 {
        self.sorted(name).last().copied().unwrap_or_default()
    }

    /// Milliseconds; the highest number if a server did not come back.
    pub fn longest_return_ms(&self) -> u64 {
        let is_open = self.0.iter().any(|round| round["returned_ms"].is_null());
        if is_open { u64::MAX } else { self.most("returned_ms") }
    }

    /// Statements, reads left out.
    pub fn failed(&self) -> u64 {
        let counts = self.0.iter().flat_map(|round| round["failed"].as_object()).flatten();
        counts.map(|(_, count)| count.as_u64().unwrap_or_default()).sum()
    }

    /// Rounds in which a server came back by this.
    pub fn by(&self, deed: &str) -> u64 {
        self.0.iter().filter(|round| round["returned_by"] == deed).count() as u64
    }

    /// Of the rounds that have the number.
    fn sorted(&self, name: &str) -> Vec<u64> {
        let mut numbers: Vec<u64> = self.0.iter().filter_map(|round| round[name].as_u64()).collect();
        numbers.sort_unstable();
        numbers
    }

    /// "0.20 s, 0.30 s": median and maximum of milliseconds.
    fn middle_and_most(&self, name: &str) -> String {
        let numbers = self.sorted(name);
        format!("{}, {}", seconds(numbers.get(numbers.len() / 2).copied().unwrap_or_default()), seconds(self.most(name)))
    }
}

fn line(entry: &Value) -> String {
    let rounds = Rounds::of(entry);
    format!(
        "| {} | {} | {} | {} | {} | {} |\n",
        title(entry),
        entry["system"].as_str().unwrap_or_default(),
        rounds.0.len(),
        gaps(&rounds),
        rounds.most("disconnected"),
        heard(&rounds),
    )
}

fn line_returned(entry: &Value) -> String {
    let rounds = Rounds::of(entry);
    let deeds: BTreeSet<&str> = rounds.0.iter().filter_map(|round| round["returned_by"].as_str()).collect();
    let deeds: Vec<String> = deeds.into_iter().map(|deed| format!("{deed}: {}", rounds.by(deed))).collect();
    format!(
        "| {} | {} | {} MB | {} | {} | {} | {} | {} |\n",
        title(entry),
        rounds.0.len(),
        rounds.most("database_bytes") >> 20,
        gaps(&rounds),
        rounds.middle_and_most("returned_ms"),
        deeds.join(", "),
        rounds.sum("sessions_lost"),
        heard(&rounds),
    )
}

fn gaps(rounds: &Rounds) -> String {
    let stuck = rounds.0.iter().filter(|round| round["goes_on"] == false).count();
    let stuck = if stuck == 0 { String::new() } else { format!(" (no end in {stuck})") };
    rounds.middle_and_most("gap_ms") + &stuck
}

/// The columns of failures, of writes that are missing, and of reads.
fn heard(rounds: &Rounds) -> String {
    let sum = |name: &str| rounds.sum(name);
    format!(
        "{} | {} of {} | {} | {} of {} | {}",
        failed(rounds.0),
        sum("missing"),
        sum("acknowledged"),
        sum("unreported"),
        sum("failed_reads"),
        sum("failed_reads") + sum("reads"),
        seconds(rounds.most("slowest_read_ms")),
    )
}

/// "0.15 s"
pub fn seconds(ms: u64) -> String {
    format!("{}.{:02} s", ms / 1000, ms % 1000 / 10)
}

/// "40001: 12.5, 08007: 3.0"
fn failed(rounds: &[Value]) -> String {
    let mut sums: BTreeMap<&str, u64> = BTreeMap::new();
    for (sqlstate, count) in rounds.iter().flat_map(|round| round["failed"].as_object()).flatten() {
        *sums.entry(sqlstate).or_default() += count.as_u64().unwrap_or_default();
    }
    let tenths = |sum: u64| sum * 10 / (rounds.len() as u64).max(1);
    let shown = sums.iter().map(|(sqlstate, sum)| format!("{sqlstate}: {}.{}", tenths(*sum) / 10, tenths(*sum) % 10));
    let shown: Vec<String> = shown.collect();
    if shown.is_empty() { "–".to_owned() } else { shown.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_the_page_is_that_of_the_kept_results() {
        let (path, expected) = page(crate::root()).expect("kept results");
        let text = fs::read_to_string(&path).unwrap_or_default();
        assert!(text == expected, "{} is not as the kept results say: run `cargo xtask failover --draw`", path.display());
    }

    #[test]
    fn a_line_tells_medians_maxima_and_sums() {
        let round = |gap: u64, failed: Value| json!({ "gap_ms": gap, "goes_on": true, "disconnected": 0, "failed": failed, "acknowledged": 10, "missing": 1, "unreported": 0, "reads": 5, "failed_reads": 0, "slowest_read_ms": 7 });
        let rounds = [round(100, json!({ "40001": 3 })), round(300, json!({})), round(200, json!({ "40001": 2, "08007": 1 }))];
        let line = line(&entry(&ROWS[1], System::Weir, "1", &rounds));
        assert_eq!(
            line,
            "| primary killed (`kill -9`), `ANY 1` | Weir | 3 | 0.20 s, 0.30 s | 0 | 08007: 0.3, 40001: 1.6 | 3 of 30 | 0 | 0 of 15 | 0.00 s |\n"
        );
    }

    #[test]
    fn a_line_of_servers_that_came_back_tells_how_and_when() {
        let round = |returned_ms: u64, by: &str| json!({ "gap_ms": 100, "failed": { "40001": 1 }, "acknowledged": 10, "missing": 0, "unreported": 0, "reads": 5, "failed_reads": 0, "slowest_read_ms": 7, "sessions_lost": 1, "returned_ms": returned_ms, "returned_by": by, "database_bytes": 1u64 << 30 });
        let rounds = [round(6000, "rewind"), round(9000, "base backup"), round(5000, "rewind")];
        let entry = entry(&ROWS[9], System::Weir, "1", &rounds);
        let lines = tables(&[entry]);
        let expected = "| primary killed, comes back by a rewind | 3 | 1024 MB | 0.10 s, 0.10 s | 6.00 s, 9.00 s | base backup: 1, rewind: 2 | 3 | 40001: 1.0 | 0 of 30 | 0 | 0 of 15 | 0.00 s |\n";
        assert!(lines.contains(expected), "{lines}");
    }

    #[test]
    fn a_line_of_what_was_told_tells_shares_of_sums() {
        let told = |unknown: u64| json!({ "told": { "committed": 10, "rolled_back": 20, "unknown": unknown, "wrong": 0, "ran_again": 7, "lost": 1, "twice": 0 } });
        let rounds = [told(0), told(1), json!({ "gap_ms": 3 })];
        let entry = entry(&ROWS[6], System::Weir, "1", &rounds);
        assert_eq!(
            line_told(&entry).unwrap(),
            "| primary killed, `ANY 1`, `commit_outcome` | 2 | 61 | 60 (0.983) | 0 | 14 | 2 | 0 |\n"
        );
    }
}
