//! The order of crates, and circles among the files inside each of them.
//!
//! A crate depends only on those named before it, and of them only on those that its row names. Its circle of files may only shrink.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::{circles, list, uses};
use crate::finding::Finding;
use crate::source::{Source, sources_below};

/// A crate of the workspace.
struct Crate {
    folder: &'static str,
    /// Crates of ours that it depends on (tests may depend on more).
    uses: &'static [&'static str],
    /// Files in its largest circle, those of one module and the modules below it apart; 0 for none. A number that falls is lowered here; none is
    /// raised.
    circle_files: usize,
}

const fn row(folder: &'static str, uses: &'static [&'static str], circle_files: usize) -> Crate {
    Crate { folder, uses, circle_files }
}

/// From the bottom to the top.
const CRATES: &[Crate] = &[
    row("crates/wire", &[], 0),
    row("crates/sql", &[], 2),
    row("crates/ring", &[], 0),
    row("crates/io", &["weir-wire", "weir-ring"], 0),
    row("crates/config", &["weir-wire", "weir-sql"], 0),
    row("crates/import", &["weir-config"], 0),
    row("crates/catalog", &["weir-wire", "weir-sql", "weir-config"], 4),
    row("crates/failover", &["weir-config"], 0),
    row("crates/group", &[], 0),
    row("crates/group-failover", &["weir-failover", "weir-group"], 0),
    row("crates/shard", &["weir-sql"], 0),
    row("crates/cache", &["weir-sql", "weir-config", "weir-catalog"], 2),
    row(
        "crates/session",
        &["weir-wire", "weir-sql", "weir-io", "weir-config", "weir-catalog", "weir-failover", "weir-cache", "weir-shard"],
        0,
    ),
    row("crates/agent", &["weir-wire"], 0),
    row("crates/sim", &["weir-config", "weir-failover", "weir-group", "weir-group-failover"], 12),
    row("crates/demo", &[], 0),
    row("crates/progress", &[], 0),
    row(
        "crates/weir",
        &[
            "weir-wire",
            "weir-sql",
            "weir-ring",
            "weir-io",
            "weir-config",
            "weir-import",
            "weir-catalog",
            "weir-failover",
            "weir-group",
            "weir-group-failover",
            "weir-shard",
            "weir-cache",
            "weir-session",
            "weir-agent",
            "weir-demo",
            "weir-progress",
        ],
        4,
    ),
    row("xtask", &["weir-demo", "weir-progress"], 2),
];

/// Where a finding is to be mended that is about a row.
const TABLE: &str = "xtask/src/layers/crates.rs";

/// All that breaks the order, rows that nothing needs, and circles that are not as large as their limits say.
pub fn find(root: &Path) -> Result<Vec<Finding>> {
    let mut findings = check_order(CRATES);
    let workspace = read(root, "Cargo.toml")?;
    findings.extend(check_members(&workspace));
    for row in CRATES.iter().filter(|row| root.join(row.folder).is_dir()) {
        let path = format!("{}/Cargo.toml", row.folder);
        findings.extend(check_manifest(&path, &read(root, &path)?, row.uses));
        let circle = largest_circle(&sources_below(root, &format!("{}/src", row.folder))?, row.folder);
        findings.extend(check_circle(row, &circle));
    }
    Ok(findings)
}

/// The largest circle of all crates of the product, in words.
pub fn largest(root: &Path) -> Result<String> {
    let rows = CRATES.iter().filter(|row| row.folder.starts_with("crates/") && row.folder != "crates/sim");
    let mut circles = Vec::new();
    for row in rows {
        circles.push((largest_circle(&sources_below(root, &format!("{}/src", row.folder))?, row.folder), row.folder));
    }
    let (circle, folder) = circles.into_iter().max_by_key(|(circle, _)| circle.len()).unwrap_or_default();
    let names: Vec<&str> = circle.iter().map(String::as_str).collect();
    Ok(format!("{} ({folder}: {})", circle.len(), list(&names)))
}

fn read(root: &Path, path: &str) -> Result<String> {
    fs::read_to_string(root.join(path)).with_context(|| format!("cannot read {path}"))
}

/// The package of a folder.
fn package(folder: &str) -> String {
    match folder.rsplit('/').next() {
        Some("weir") => "weir".to_owned(),
        Some(name) if folder.starts_with("crates/") => format!("weir-{name}"),
        Some(_) | None => folder.to_owned(),
    }
}

/// Each row names crates of rows before it only.
fn check_order(rows: &[Crate]) -> Vec<Finding> {
    let mut before: Vec<String> = Vec::new();
    let mut findings = Vec::new();
    for row in rows {
        for used in row.uses.iter().filter(|used| !before.iter().any(|name| name == *used)) {
            findings.push(Finding::new(
                TABLE,
                1,
                format!("the row of {} names {used}, which does not stand before it", row.folder),
            ));
        }
        before.push(package(row.folder));
    }
    findings
}

/// The workspace's members are the rows.
fn check_members(workspace: &str) -> Vec<Finding> {
    let line = workspace.lines().find(|line| line.starts_with("members")).unwrap_or("");
    let members: BTreeSet<&str> = line.split('"').skip(1).step_by(2).collect();
    let rows: BTreeSet<&str> = CRATES.iter().map(|row| row.folder).collect();
    let without_row = members.difference(&rows).map(|name| format!("{name} has no row in {TABLE}"));
    let without_crate = rows.difference(&members).map(|name| format!("the row of {name} has no crate"));
    without_row.chain(without_crate).map(|text| Finding::new(TABLE, 1, text)).collect()
}

fn check_manifest(path: &str, text: &str, allowed: &[&str]) -> Vec<Finding> {
    let mut section = "";
    let mut findings = Vec::new();
    let mut found = BTreeSet::new();
    for (index, line) in text.lines().enumerate() {
        if line.starts_with('[') {
            section = line.trim();
            continue;
        }
        let name = line.split(['=', '.', ' ']).next().unwrap_or("");
        if section != "[dependencies]" || !(name == "weir" || name.starts_with("weir-")) {
            continue;
        }
        found.insert(name);
        if !allowed.contains(&name) {
            findings.push(Finding::new(path, index + 1, format!("depends on {name}; allowed: {}", list(allowed))));
        }
    }
    let unneeded = allowed.iter().filter(|name| !found.contains(**name));
    findings.extend(
        unneeded.map(|name| Finding::new(path, 1, format!("does not depend on {name}: remove it from its row in {TABLE}"))),
    );
    findings
}

fn check_circle(row: &Crate, circle: &[String]) -> Option<Finding> {
    let names: Vec<&str> = circle.iter().map(String::as_str).collect();
    let what = format!("files in the largest circle of {} ({})", row.folder, list(&names));
    check_limit(&what, circle.len(), row.circle_files)
}

/// A limit is exceeded, or could be lower.
fn check_limit(what: &str, count: usize, limit: usize) -> Option<Finding> {
    let text = match count.cmp(&limit) {
        std::cmp::Ordering::Equal => return None,
        std::cmp::Ordering::Greater => format!("{what}: {count}, the limit is {limit}"),
        std::cmp::Ordering::Less => format!("{what}: {count}, and the limit is {limit}: lower it to {count}"),
    };
    Some(Finding::new(TABLE, 1, text))
}

/// Files of the largest circle.
fn largest_circle(sources: &[Source], folder: &str) -> Vec<String> {
    circles::find(&uses::beyond_own(&uses::of(sources, folder))).into_iter().next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crates_depend_only_on_what_their_row_allows_and_rows_allow_no_more() {
        let text = "[dependencies]\nweir-wire.workspace = true\nweir-demo = { path = \"x\" }\nmio = \"1\"\n\
                    [dev-dependencies]\nweir-sql = \"1\"\n";
        let lines = |allowed: &[&str]| -> Vec<usize> {
            check_manifest("crates/failover/Cargo.toml", text, allowed).iter().map(|finding| finding.line).collect()
        };
        assert_eq!(lines(&["weir-wire"]), [3]);
        assert_eq!(lines(&["weir-wire", "weir-demo"]), [] as [usize; 0]);
        assert_eq!(lines(&["weir-wire", "weir-demo", "weir-sql"]), [1]);
    }

    #[test]
    fn a_row_names_only_crates_before_it() {
        assert!(check_order(CRATES).is_empty());
        let rows = [row("crates/a", &["weir-b"], 0), row("crates/b", &["weir-a"], 0)];
        assert_eq!(check_order(&rows).len(), 1);
    }

    #[test]
    fn members_without_a_row_are_named() {
        let all: Vec<String> = CRATES.iter().map(|row| format!("\"{}\"", row.folder)).collect();
        assert!(check_members(&format!("members = [{}]", all.join(", "))).is_empty());
        assert_eq!(check_members(&format!("members = [{}, \"crates/new\"]", all[1..].join(", "))).len(), 2);
    }

    #[test]
    fn circles_inside_a_crate_are_those_of_files() {
        let circle = |part: &str, b: &str| {
            let source = |name: &str, text: &str| Source::new(&format!("crates/x/src/{name}.rs"), text);
            largest_circle(
                &[source("lib", "mod a;\nmod b;\npub use a::One;\n"), source("a", ""), source("a/part", part), source("b", b)],
                "crates/x",
            )
        };
        assert_eq!(circle("use crate::b::B;\nuse super::One;\n", "use crate::One;\n"), [] as [&str; 0]);
        assert_eq!(circle("use crate::b::B;\n", "use crate::a::part::C;\n"), ["a::part", "b"]);
    }

    #[test]
    fn a_limit_holds_both_ways() {
        assert!(check_limit("files", 5, 5).is_none());
        assert!(check_limit("files", 6, 5).is_some_and(|finding| finding.text.ends_with("6, the limit is 5")));
        assert!(check_limit("files", 4, 5).is_some_and(|finding| finding.text.ends_with("lower it to 4")));
    }
}
