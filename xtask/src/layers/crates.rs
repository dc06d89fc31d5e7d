//! The order of crates, and circles among the modules inside each of them.
//!
//! A crate depends only on those named before it, and of them only on those that its row names. Its circle of modules may only shrink.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::{circles, list, paths};
use crate::finding::Finding;
use crate::source::{Source, sources_below};

/// A crate of the workspace.
struct Crate {
    folder: &'static str,
    /// Crates of ours that it depends on (tests may depend on more).
    uses: &'static [&'static str],
    /// Modules in its largest circle; 0 for none. A number that falls is lowered here; none is raised.
    circle_modules: usize,
}

const fn row(folder: &'static str, uses: &'static [&'static str], circle_modules: usize) -> Crate {
    Crate { folder, uses, circle_modules }
}

/// From the bottom to the top. The circle of `crates/weir` is in `LIMITS` of `layers.rs`.
const CRATES: &[Crate] = &[
    row("crates/wire", &[], 0),
    row("crates/sql", &[], 2),
    row("crates/ring", &[], 0),
    row("crates/io", &["weir-wire", "weir-ring"], 0),
    row("crates/config", &["weir-wire", "weir-sql"], 3),
    row("crates/catalog", &["weir-wire", "weir-sql", "weir-config"], 6),
    row("crates/policy", &["weir-wire", "weir-sql", "weir-config", "weir-catalog"], 0),
    row("crates/cache", &["weir-sql", "weir-config", "weir-catalog"], 2),
    row("crates/session", &["weir-wire", "weir-sql", "weir-io", "weir-config", "weir-catalog", "weir-policy", "weir-cache"], 0),
    row("crates/agent", &[], 0),
    row("crates/sim", &["weir-config", "weir-policy"], 9),
    row("crates/demo", &[], 0),
    row(
        "crates/weir",
        &[
            "weir-wire",
            "weir-sql",
            "weir-ring",
            "weir-io",
            "weir-config",
            "weir-catalog",
            "weir-policy",
            "weir-cache",
            "weir-session",
            "weir-agent",
            "weir-demo",
        ],
        super::LIMITS.circle_modules,
    ),
    row("xtask", &["weir-demo"], 8),
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
        if row.folder != super::MODULES_CRATE {
            let circle = largest_circle(&sources_below(root, &format!("{}/src", row.folder))?, row.folder);
            findings.extend(check_circle(row, &circle));
        }
    }
    Ok(findings)
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
    let what = format!("modules in the largest circle of {} ({})", row.folder, list(&names));
    super::check_limit(TABLE, &what, circle.len(), row.circle_modules)
}

/// Modules of the largest circle; the crate's root counts as one, by the name of its file.
fn largest_circle(sources: &[Source], folder: &str) -> Vec<String> {
    let production = sources.iter().filter(|source| !is_of_tests(&source.path));
    let inside = |source: &Source| source.path.trim_start_matches(folder).trim_start_matches("/src/").to_owned();
    let files: Vec<(String, &Source)> = production.map(|source| (inside(source), source)).collect();
    let modules: BTreeSet<&str> = files.iter().map(|(path, _)| first_part(path)).collect();
    let root = if modules.contains("lib") { "lib" } else { "main" };
    let exported = files.iter().find(|(path, _)| first_part(path) == root).map(|(_, source)| exports(source)).unwrap_or_default();
    let mut uses: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (path, source) in &files {
        let own = first_part(path);
        let named: Vec<String> = if own == root {
            words_of_root(source, &modules, &exported)
        } else {
            paths::of(source, &["crate::", "super::"][..if path.contains('/') { 1 } else { 2 }], &[])
                .into_iter()
                .map(|(_, name)| name)
                .collect()
        };
        let module_of = |name: String| match exported.get(&name) {
            _ if modules.contains(name.as_str()) => name,
            Some(module) => module.clone(),
            None => root.to_owned(),
        };
        uses.entry(own.to_owned()).or_default().extend(named.into_iter().map(module_of).filter(|name| name != own));
    }
    circles::find(&uses).into_iter().next().unwrap_or_default()
}

fn is_of_tests(path: &str) -> bool {
    path.ends_with("/tests.rs") || path.contains("/tests/")
}

fn first_part(path: &str) -> &str {
    path.split('/').next().unwrap_or(path).trim_end_matches(".rs")
}

/// Names that a crate's root passes on from its modules, each with the module.
fn exports(root: &Source) -> BTreeMap<String, String> {
    let code: Vec<&str> = root.production().map(|(_, line)| line).collect();
    let text = code.join("\n");
    let mut exports = BTreeMap::new();
    for statement in text.split("pub use ").skip(1) {
        let Some((path, _)) = statement.split_once(';') else { continue };
        let Some((module, names)) = path.split_once("::") else { continue };
        for name in names.split(['{', '}', ',']).map(str::trim).filter(|name| !name.is_empty()) {
            let name = name.rsplit([' ', ':']).next().unwrap_or(name);
            exports.insert(name.to_owned(), module.trim().to_owned());
        }
    }
    exports
}

/// Modules, and names passed on from them, that the root itself uses beyond declaring them and passing them on.
fn words_of_root(root: &Source, modules: &BTreeSet<&str>, exported: &BTreeMap<String, String>) -> Vec<String> {
    let code: Vec<&str> = root.production().map(|(_, line)| line).collect();
    let text = code.join("\n");
    let mut own = String::new();
    for (at, part) in text.split("pub use ").enumerate() {
        own.push_str(if at == 0 { part } else { part.split_once(';').map_or("", |(_, rest)| rest) });
    }
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let mut words = Vec::new();
    for (at, _) in own.char_indices().filter(|(at, c)| is_word(*c) && !own[..*at].ends_with(is_word)) {
        let word = &own[at..at + own[at..].find(|c| !is_word(c)).unwrap_or(own.len() - at)];
        let is_path = own[at + word.len()..].starts_with("::") && modules.contains(word);
        if is_path || (exported.contains_key(word) && !modules.contains(word)) {
            words.push(word.to_owned());
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crates_depend_only_on_what_their_row_allows_and_rows_allow_no_more() {
        let text = "[dependencies]\nweir-wire.workspace = true\nweir-demo = { path = \"x\" }\nmio = \"1\"\n\
                    [dev-dependencies]\nweir-sql = \"1\"\n";
        let lines = |allowed: &[&str]| -> Vec<usize> {
            check_manifest("crates/policy/Cargo.toml", text, allowed).iter().map(|finding| finding.line).collect()
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
    fn circles_inside_a_crate_go_through_names_that_its_root_passes_on() {
        let root = "mod a;\npub mod b;\nmod c;\npub use a::{One, Two};\npub use c::do_it;\nstruct Root { one: One }\n";
        let circle = |a: &str, b: &str| {
            let source = |name: &str, text: &str| Source::new(&format!("crates/x/src/{name}.rs"), text);
            largest_circle(
                &[source("lib", root), source("a", a), source("b", b), source("c", ""), source("a/tests", "use crate::b;")],
                "crates/x",
            )
        };
        assert_eq!(circle("use crate::b::B;\n", "use crate::c::C;\n"), [] as [&str; 0]);
        assert_eq!(circle("use crate::b::B;\n", "use crate::Two;\n"), ["a", "b"]);
        assert_eq!(circle("use crate::{b, do_it};\n", "use super::Root;\n"), ["a", "b", "lib"]);
    }
}
