//! The kept file of `cargo xtask bench shards`, and what pages show of it.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::Value;

use super::node_group::{CORE_PERCENT, MEMORY_BYTES, READS};
use super::{CONNECTIONS_OF_NODE, PAIR_CLIENTS, USERS};
use crate::bench::figure::{Axis, Figure, Line, Look, Panel, Scale, Stroke, from_zero, machine, product, thousands, whole};
use crate::bench::stats::spread;
use crate::bench::{archive, report};

const FILE: &str = "shards.json";

/// One size of the data.
pub struct Size {
    /// In the kept file.
    pub name: &'static str,
    pub table: &'static str,
    pub rows: u32,
    panel: &'static str,
}

/// The smaller first: what it leaves in a node's page cache is little.
pub const SIZES: [Size; 2] = [
    Size { name: "small", table: "small_accounts", rows: 282_500, panel: "reads per second, data 0.33 × a node's memory" },
    Size { name: "large", table: "large_accounts", rows: 2_782_000, panel: "reads per second, data 3.25 × a node's memory" },
];

/// Users of the goals that are not about one.
const MANY_USERS: u32 = 32;

/// A ratio that must be reached.
struct ShardGoal {
    what: &'static str,
    must: f64,
    aim: f64,
    measured: fn(&Value) -> Option<f64>,
}

const GOALS: [ShardGoal; 5] = [
    ShardGoal {
        what: "data 3.25 × a node's memory, 32 users: 4 nodes over 1",
        must: 5.0,
        aim: 10.0,
        measured: |document| gain(document, "large", 4, MANY_USERS),
    },
    ShardGoal {
        what: "data 0.33 × a node's memory, 32 users: 6 nodes over 1",
        must: 5.4,
        aim: 5.8,
        measured: |document| gain(document, "small", 6, MANY_USERS),
    },
    ShardGoal {
        what: "data 0.33 × a node's memory, 1 user: 6 nodes over 1",
        must: 0.95,
        aim: 1.0,
        measured: |document| gain(document, "small", 6, 1),
    },
    ShardGoal {
        what: "a routed read over one of a table that is not sharded, 8 clients",
        must: 0.97,
        aim: 1.0,
        measured: |document| pair_ratio(document, 8),
    },
    ShardGoal {
        what: "a routed read over one of a table that is not sharded, 64 clients",
        must: 0.97,
        aim: 1.0,
        measured: |document| pair_ratio(document, 64),
    },
];

/// Writes the kept file.
pub fn keep(root: &Path, document: &Value) -> Result<()> {
    let path = path(root);
    fs::write(&path, report::lines_of(document)).with_context(|| format!("cannot write {}", path.display()))
}

fn path(root: &Path) -> PathBuf {
    root.join(archive::FOLDER).join(FILE)
}

/// The last measurement.
pub struct KeptShards(Value);

impl KeptShards {
    /// From the kept file, or nothing if there is none.
    pub fn read(root: &Path) -> Result<Self> {
        let path = path(root);
        if !path.exists() {
            return Ok(Self(Value::Null));
        }
        let document = serde_json::from_str(&fs::read_to_string(&path)?);
        Ok(Self(document.with_context(|| format!("{} is no JSON", path.display()))?))
    }

    /// A panel for each size.
    pub fn figure(&self) -> Figure {
        figure_of(&self.0)
    }

    /// The part of a page, with the figure's picture; empty if there is no file.
    pub fn section(&self, picture: &str) -> String {
        if self.0.is_null() {
            return String::new();
        }
        format!("\n### Tables over one to nine servers\n\n{picture}{}", text(&self.0))
    }
}

fn entries<'d>(document: &'d Value, list: &str) -> impl Iterator<Item = &'d Value> {
    document[list].as_array().into_iter().flatten()
}

fn tps(document: &Value, size: &str, nodes: u64, users: u32) -> Option<f64> {
    let mut points = entries(document, "points");
    points.find(|point| point["size"] == size && point["nodes"] == nodes && point["users"] == users)?["tps"].as_f64()
}

/// So many nodes over one.
fn gain(document: &Value, size: &str, nodes: u64, users: u32) -> Option<f64> {
    Some(tps(document, size, nodes, users)? / tps(document, size, 1, users)?)
}

/// Both rates of each pair.
fn pairs(document: &Value, clients: u32) -> Vec<(f64, f64)> {
    let of_clients = entries(document, "pairs").filter(|pair| pair["clients"] == clients);
    of_clients.filter_map(|pair| pair["routed"].as_f64().zip(pair["unrouted"].as_f64())).collect()
}

/// The median of the ratios within a pair.
fn pair_ratio(document: &Value, clients: u32) -> Option<f64> {
    let ratios: Vec<f64> = pairs(document, clients).into_iter().map(|(routed, unrouted)| routed / unrouted).collect();
    Some(spread(&ratios)?.median)
}

fn node_counts(document: &Value) -> BTreeSet<u64> {
    entries(document, "points").filter_map(|point| point["nodes"].as_u64()).collect()
}

/// Markdown: how it was measured, the rates by nodes, the pairs, the goals.
pub fn text(document: &Value) -> String {
    let mut out = conditions(document);
    for size in SIZES.iter().rev() {
        out += &rates(document, size);
    }
    out + &pair_table(document) + &goal_table(document)
}

fn conditions(document: &Value) -> String {
    let about = &document["about"];
    let fact = |name: &str| about[name].as_str().unwrap_or("unknown");
    format!(
        "{}; {}; {}; runs of {} s; load of the machine {} at the start, {} at the end. A node is one PostgreSQL that control groups hold to {}; its page cache counts as memory. Weir, with {} server \
         connections to each node, and pgbench are not held. Users run the statement of `pgbench -S`, simple protocol.\n\n",
        fact("date"),
        machine(fact("machine")),
        product("PostgreSQL", fact("PostgreSQL")),
        about["seconds"],
        fact("load at the start"),
        fact("load at the end"),
        share(),
        CONNECTIONS_OF_NODE,
    )
}

/// "128 MB, 200 reads a second and 0.15 core"
fn share() -> String {
    format!("{} MB, {READS} reads a second and 0.{CORE_PERCENT:02} core", MEMORY_BYTES >> 20)
}

/// 42000000 as "0.31".
fn in_memories(bytes: u64) -> String {
    let hundredths = bytes * 100 / MEMORY_BYTES;
    format!("{}.{:02}", hundredths / 100, hundredths % 100)
}

/// Reads per second of one size: users down, nodes across.
fn rates(document: &Value, size: &Size) -> String {
    let nodes = node_counts(document);
    let bytes = entries(document, "points").find(|point| point["size"] == size.name).and_then(|point| point["bytes"].as_u64());
    let Some(bytes) = bytes else { return String::new() };
    let title =
        format!("reads per second; data {} MB, {} × a node's memory; nodes held to {}", bytes >> 20, in_memories(bytes), share());
    let names = nodes.iter().map(|nodes| if *nodes == 1 { " 1 node |".to_owned() } else { format!(" {nodes} nodes |") });
    let mut out = format!("| {title} |{}\n|---|{}\n", names.collect::<String>(), "---|".repeat(nodes.len()));
    for users in USERS {
        let user = if users == 1 { "user" } else { "users" };
        let cells = nodes.iter().map(|nodes| format!(" {} |", shown(tps(document, size.name, *nodes, users), whole)));
        out += &format!("| {users} {user} |{}\n", cells.collect::<String>());
    }
    out + "\n"
}

fn pair_table(document: &Value) -> String {
    let lines: Vec<String> = PAIR_CLIENTS.iter().filter_map(|clients| pair_line(document, *clients)).collect();
    if lines.is_empty() {
        return String::new();
    }
    let head = "| one Weir, one server that is not held; pairs of runs in turns | sharded table | not sharded | ratio within a pair: median, lowest, highest |\n|---|---|---|---|\n";
    format!("{head}{}\n", lines.concat())
}

fn pair_line(document: &Value, clients: u32) -> Option<String> {
    let pairs = pairs(document, clients);
    let median = |rate: fn(&(f64, f64)) -> f64| Some(spread(&pairs.iter().map(rate).collect::<Vec<_>>())?.median);
    let ratios = spread(&pairs.iter().map(|(routed, unrouted)| routed / unrouted).collect::<Vec<_>>())?;
    let (routed, unrouted) = (median(|pair| pair.0)?, median(|pair| pair.1)?);
    let ratios = format!("{:.3}, {:.3}, {:.3}", ratios.median, ratios.min, ratios.max);
    Some(format!("| {clients} clients, {} pairs | {} tps | {} tps | {ratios} |\n", pairs.len(), whole(routed), whole(unrouted)))
}

fn goal_table(document: &Value) -> String {
    let mut out = "| ratio of reads per second | measured | must reach | aim | |\n|---|---|---|---|---|\n".to_owned();
    for goal in &GOALS {
        let measured = (goal.measured)(document);
        let verdict = match measured {
            None => "not measured",
            Some(ratio) if ratio >= goal.aim => "reaches the aim",
            Some(ratio) if ratio >= goal.must => "reached",
            Some(_) => "**missed**",
        };
        // Rounded down: less than a goal is never shown as the goal.
        let measured = shown(measured, |ratio| format!("{:.2}", (ratio * 100.0).floor() / 100.0));
        out += &format!("| {} | {measured} | {} | {} | {verdict} |\n", goal.what, goal.must, goal.aim);
    }
    out
}

fn shown(value: Option<f64>, show: impl Fn(f64) -> String) -> String {
    value.map_or_else(|| "–".to_owned(), show)
}

/// Lines by users, from the palette of the other figures.
const LOOKS: [(&str, Look); USERS.len()] = [
    ("1 user", Look { colour: (90, 90, 90), stroke: Stroke::Thin }),
    ("4 users", Look { colour: (0, 158, 115), stroke: Stroke::Thin }),
    ("16 users", Look { colour: (213, 94, 0), stroke: Stroke::Thin }),
    ("32 users", Look { colour: (0, 114, 178), stroke: Stroke::Thick }),
];

fn figure_of(document: &Value) -> Figure {
    let nodes = node_counts(document);
    let point = |size: &str, nodes: u64, users| Some((f64::from(u32::try_from(nodes).ok()?), tps(document, size, nodes, users)?));
    let panel = |size: &Size| {
        let line = |(users, (name, look)): (u32, (&'static str, Look))| {
            let points = nodes.iter().filter_map(|nodes| point(size.name, *nodes, users)).collect();
            Line { name, look, points }
        };
        let lines: Vec<Line> = USERS.into_iter().zip(LOOKS).map(line).collect();
        let x = Axis { name: "nodes", scale: Scale::Linear, marks: (0..=9).map(f64::from).collect(), label: whole };
        Panel { title: size.panel, x, y: from_zero(&lines, thousands), lines }
    };
    let fact = |name: &str| document["about"][name].as_str().unwrap_or("unknown");
    let source = [product("PostgreSQL", fact("PostgreSQL")), machine(fact("machine")), fact("date").to_owned()].join(" · ");
    Figure {
        name: "shards",
        title: "One read by its key over nodes that are held to 128 MB, 200 reads a second and 0.15 core",
        source,
        panels: SIZES.iter().rev().map(panel).collect(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn document() -> Value {
        let point = |size: &str, nodes: u32, users: u32, tps: u32| json!({ "size": size, "bytes": 416 << 20, "nodes": nodes, "users": users, "tps": tps });
        json!({
            "about": { "date": "today", "seconds": 5 },
            "points": [point("large", 1, 32, 200), point("large", 4, 32, 1400), point("small", 1, 1, 100), point("small", 6, 1, 90)],
            "pairs": [
                { "clients": 8, "routed": 98, "unrouted": 100 },
                { "clients": 8, "routed": 50, "unrouted": 100 },
                { "clients": 8, "routed": 198, "unrouted": 200 },
            ],
        })
    }

    #[test]
    fn goals_are_held_against_ratios_and_a_missed_one_says_so() {
        let table = goal_table(&document());
        let lines: Vec<&str> = table.lines().skip(2).collect();
        assert!(lines[0].ends_with("| 7.00 | 5 | 10 | reached |"), "{table}");
        assert!(lines[1].ends_with("| – | 5.4 | 5.8 | not measured |"), "{table}");
        assert!(lines[2].ends_with("| 0.90 | 0.95 | 1 | **missed** |"), "{table}");
        assert!(lines[3].ends_with("| 0.98 | 0.97 | 1 | reached |"), "{table}");
    }

    #[test]
    fn every_number_of_users_is_a_line_of_the_figure_and_of_the_table() {
        for (users, (name, _)) in USERS.into_iter().zip(LOOKS) {
            assert!(name.starts_with(&format!("{users} ")), "{name}");
        }
        let table = rates(&document(), &SIZES[1]);
        assert!(table.contains("\n| 32 users | 200 | 1,400 | – |\n"), "{table}");
    }

    #[test]
    fn titles_say_what_holds_the_nodes() {
        assert!(figure_of(&Value::Null).title.ends_with(&share()), "{}", share());
        assert!(rates(&document(), &SIZES[1]).contains(&format!("416 MB, 3.25 × a node's memory; nodes held to {} |", share())));
    }
}
