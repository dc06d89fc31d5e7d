//! The kept results, and their table.

use std::fs;
use std::path::Path;

use anyhow::Result;
use serde_json::{Value, json};

use super::group_event::{EVENTS, GroupEvent};
use super::group_hosts::WatchdogSystem;
use crate::bench::failover::seconds;
use crate::bench::report;

const FILE: &str = "bench/results/watchdog.json";
const HEAD: &str = "| event | proxy | rounds | until another host answers at the address: median, maximum | without a host at the address: maximum | with several: maximum | without an acknowledged write: median, maximum | acknowledged writes missing | processor of a follower, of the leader: median |\n|---|---|---|---|---|---|---|---|---|\n";

/// The results of an event with a system.
pub fn entry(event: &GroupEvent, system: WatchdogSystem, version: &str, rounds: &[Value]) -> Value {
    json!({ "row": event.name, "system": system.name(), "version": version, "rounds": rounds })
}

/// Puts results in the place of those kept before.
pub fn keep(root: &Path, about: &Value, entries: &[Value]) -> Result<()> {
    let path = root.join(FILE);
    let before: Value = fs::read_to_string(&path).ok().and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default();
    let before = before["results"].as_array().cloned().unwrap_or_default();
    let both = [WatchdogSystem::Weir, WatchdogSystem::Pgpool];
    let places = EVENTS.iter().flat_map(|event| both.map(|system| (event.name, system.name())));
    let find = |entries: &[Value], (row, system): (&str, &str)| {
        entries.iter().find(|entry| entry["row"] == row && entry["system"] == system).cloned()
    };
    let kept: Vec<Value> = places.filter_map(|place| find(entries, place).or_else(|| find(&before, place))).collect();
    Ok(fs::write(&path, report::lines_of(&json!({ "about": about, "results": kept })))?)
}

/// Markdown.
pub fn table(entries: &[Value]) -> String {
    entries.iter().fold(HEAD.to_owned(), |table, entry| table + &line(entry))
}

fn line(entry: &Value) -> String {
    let title = EVENTS.iter().find(|event| entry["row"] == event.name).map_or("", |event| event.title);
    let rounds = entry["rounds"].as_array().map(Vec::as_slice).unwrap_or_default();
    let most = |name: &str| numbers(rounds, name).last().map_or_else(none, |most| seconds(*most));
    let missing: u64 = numbers(rounds, "missing").iter().sum();
    let missing = if numbers(rounds, "missing").is_empty() { none() } else { missing.to_string() };
    format!(
        "| {title} | {} | {} | {} | {} | {} | {} | {missing} | {} |\n",
        entry["system"].as_str().unwrap_or_default(),
        rounds.len(),
        middle_and_most(rounds, "answers_elsewhere_ms"),
        most("without_host_ms"),
        most("several_hosts_ms"),
        middle_and_most(rounds, "without_writes_ms"),
        processors(rounds),
    )
}

fn none() -> String {
    "–".to_owned()
}

/// In order, of the rounds that have the number.
fn numbers(rounds: &[Value], name: &str) -> Vec<u64> {
    let mut numbers: Vec<u64> = rounds.iter().filter_map(|round| round[name].as_u64()).collect();
    numbers.sort_unstable();
    numbers
}

fn median(numbers: &[u64]) -> Option<u64> {
    numbers.get(numbers.len() / 2).copied()
}

/// "0.20 s, 0.30 s", and in how many rounds there was no end.
fn middle_and_most(rounds: &[Value], name: &str) -> String {
    let never = rounds.iter().filter(|round| round.get(name).is_some_and(Value::is_null)).count();
    let numbers = numbers(rounds, name);
    let never = if never == 0 { String::new() } else { format!("never in {never}") };
    match (median(&numbers), numbers.last()) {
        (Some(middle), Some(most)) => {
            [&format!("{}, {}", seconds(middle), seconds(*most)), never.as_str()].join(" ").trim().to_owned()
        }
        _ if never.is_empty() => none(),
        _ => never,
    }
}

/// "0.05 %, 0.08 %"
fn processors(rounds: &[Value]) -> String {
    let share =
        |name: &str| median(&numbers(rounds, name)).map(|share| format!("{}.{:02} %", share / 10_000, share % 10_000 / 100));
    match (share("follower_cpu"), share("leader_cpu")) {
        (Some(follower), Some(leader)) => format!("{follower}, {leader}"),
        _ => none(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_tells_medians_maxima_and_rounds_without_an_end() {
        let round = |ms: Option<u64>| json!({ "answers_elsewhere_ms": ms, "without_host_ms": 2000, "several_hosts_ms": 0 });
        let rounds = [round(Some(3000)), round(None), round(Some(2500)), round(Some(3500))];
        let line = line(&entry(&EVENTS[0], WatchdogSystem::Weir, "1", &rounds));
        assert_eq!(line, "| leader killed (`kill -9`) | Weir | 4 | 3.00 s, 3.50 s never in 1 | 2.00 s | 0.00 s | – | – | – |\n");
        let idle = [json!({ "follower_cpu": 512, "leader_cpu": 12_345 })];
        assert!(super::line(&entry(&EVENTS[5], WatchdogSystem::Weir, "1", &idle)).ends_with("| 0.05 %, 1.23 % |\n"));
    }
}
