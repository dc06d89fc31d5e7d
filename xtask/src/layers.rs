//! `cargo xtask layers`: who may use whom.
//!
//! Two tables say it: one of crates, one of the modules of `crates/weir`. A module may use modules of lower layers,
//! itself, and those its row names besides. Tests may use everything.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use crate::finding::{self, Finding};
use crate::source::{Source, sources_below};

/// A crate and the crates of this workspace it may depend on (tests may depend on more).
const CRATES: &[(&str, &[&str])] = &[
    ("crates/wire", &[]),
    ("crates/sql", &[]),
    ("crates/demo", &[]),
    ("crates/policy", &["weir-wire", "weir-sql"]),
    ("crates/sim", &["weir-policy", "weir-wire"]),
    ("crates/weir", &["weir-wire", "weir-sql", "weir-policy", "weir-demo"]),
    ("xtask", &["weir-demo"]),
];

/// One module of `crates/weir`.
struct Module {
    name: &'static str,
    /// 0 is the lowest.
    layer: u8,
    /// Modules of its own layer or above that it may use all the same.
    besides: &'static [&'static str],
}

const fn row(layer: u8, name: &'static str, besides: &'static [&'static str]) -> Module {
    Module { name, layer, besides }
}

const MODULES: &[Module] = &[
    row(10, "main", &["cli"]),
    row(10, "cli", &[]),
    row(9, "supervisor", &[]),
    row(8, "worker", &["cluster"]),
    row(8, "cluster", &[]),
    row(8, "watchdog", &[]),
    row(8, "console", &[]),
    row(8, "pcp", &[]),
    row(8, "web", &[]),
    row(7, "startup", &["relay"]),
    row(7, "relay", &[]),
    row(7, "probe", &[]),
    row(7, "hooks", &[]),
    row(7, "vip", &[]),
    row(6, "scatter", &[]),
    row(6, "answer", &[]),
    row(6, "extended", &[]),
    row(6, "aim", &[]),
    row(6, "session", &[]),
    row(5, "views", &[]),
    row(5, "pool", &[]),
    row(5, "cache", &[]),
    row(5, "catalog", &[]),
    row(5, "statements", &[]),
    row(4, "link", &[]),
    row(3, "lane", &[]),
    row(2, "socket", &[]),
    row(2, "shared", &[]),
    row(1, "reactor", &[]),
    row(1, "tls", &[]),
    row(1, "session_card", &[]),
    row(0, "fault", &[]),
    row(0, "metrics", &[]),
    row(0, "log", &[]),
];

/// The folder the table of modules is about.
const MODULES_FOLDER: &str = "crates/weir/src";

/// Checks both tables.
pub fn run(root: &Path) -> Result<()> {
    finding::report("layers", &find(root)?)
}

/// All uses the tables do not allow.
pub fn find(root: &Path) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    for (folder, allowed) in CRATES {
        let path = format!("{folder}/Cargo.toml");
        if !root.join(&path).is_file() {
            continue;
        }
        let text = fs::read_to_string(root.join(&path)).with_context(|| format!("cannot read {path}"))?;
        findings.extend(check_manifest(&path, &text, allowed));
    }
    for source in sources_below(root, MODULES_FOLDER)? {
        findings.extend(check_module(&source));
    }
    Ok(findings)
}

fn check_manifest(path: &str, text: &str, allowed: &[&str]) -> Vec<Finding> {
    let mut section = "";
    let mut findings = Vec::new();
    for (index, line) in text.lines().enumerate() {
        if line.starts_with('[') {
            section = line.trim();
            continue;
        }
        let name = line.split(['=', '.', ' ']).next().unwrap_or("");
        let is_ours = name == "weir" || name.starts_with("weir-");
        if section == "[dependencies]" && is_ours && !allowed.contains(&name) {
            findings.push(Finding::new(path, index + 1, format!("depends on {name}; allowed: {}", list(allowed))));
        }
    }
    findings
}

fn check_module(source: &Source) -> Vec<Finding> {
    let inside = source.path.strip_prefix(MODULES_FOLDER).unwrap_or(&source.path).trim_start_matches('/');
    let name = inside.split('/').next().unwrap_or("").trim_end_matches(".rs");
    // `lib.rs` names all modules; programs of `bin/` stand above all of them.
    if matches!(name, "lib" | "bin") {
        return vec![];
    }
    let Some(own) = module(name) else {
        return vec![Finding::new(&source.path, 1, format!("module {name} has no row in xtask/src/layers.rs"))];
    };
    let is_top = !inside.contains('/');
    let uses = uses_of(source, is_top);
    let wrong = uses.into_iter().filter_map(|(line, used)| {
        let other = module(&used)?;
        let fine = other.name == own.name || other.layer < own.layer || own.besides.contains(&other.name);
        (!fine).then(|| Finding::new(&source.path, line, complaint(own, other)))
    });
    wrong.collect()
}

fn complaint(own: &Module, other: &Module) -> String {
    let lower = MODULES.iter().filter(|module| module.layer < own.layer).map(|module| module.name);
    let allowed: Vec<&str> = lower.chain(own.besides.iter().copied()).collect();
    let (own_layer, other_layer) = (own.layer, other.layer);
    let head = format!("{} (layer {own_layer}) uses {} (layer {other_layer})", own.name, other.name);
    format!("{head}; allowed: {}", list(&allowed))
}

fn module(name: &str) -> Option<&'static Module> {
    MODULES.iter().find(|module| module.name == name)
}

fn list(names: &[&str]) -> String {
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

/// First names of all paths from the crate's root, with their lines: `crate::a::b`, `crate::{a, b::c}`.
///
/// In a file at the top (`is_top`) `super` is the root too.
fn uses_of(source: &Source, is_top: bool) -> Vec<(usize, String)> {
    let code: Vec<&str> = source.production().map(|(_, line)| line).collect();
    let text = code.join("\n");
    let mut uses = Vec::new();
    for root in ["crate::", "weir::", "super::"] {
        if root == "super::" && !is_top {
            continue;
        }
        for (at, _) in text.match_indices(root) {
            let before = text[..at].chars().next_back();
            if before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == ':') {
                continue;
            }
            let after = &text[at + root.len()..];
            for (offset, name) in first_names(after) {
                let line = text[..at + root.len() + offset].matches('\n').count() + 1;
                uses.push((line, name));
            }
        }
    }
    uses.sort();
    uses
}

/// The name at the start, or all names at the first level of a list in braces; with their places.
fn first_names(after: &str) -> Vec<(usize, String)> {
    let word = |text: &str| -> String { text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect() };
    if !after.starts_with('{') {
        return vec![(0, word(after))];
    }
    let mut names = Vec::new();
    let mut depth = 0;
    let mut expects_name = false;
    for (at, c) in after.char_indices() {
        match c {
            '{' => {
                depth += 1;
                expects_name = depth == 1;
            }
            '}' if depth == 1 => break,
            '}' => depth -= 1,
            ',' => expects_name = depth == 1,
            _ if expects_name && !c.is_whitespace() => {
                names.push((at, word(&after[at..])));
                expects_name = false;
            }
            _ => {}
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_lines(path: &str, text: &str, lines: &[usize]) {
        let found = check_module(&Source::new(path, text));
        assert_eq!(found.iter().map(|finding| finding.line).collect::<Vec<_>>(), lines, "{found:?}");
    }

    #[test]
    fn a_module_may_only_look_down() {
        let lane = "crates/weir/src/lane.rs";
        check_lines(lane, "use crate::socket::Socket;\nuse crate::lane::Other;\n", &[]);
        check_lines(lane, "use crate::worker::Worker;\n", &[1]);
        check_lines(lane, "// crate::worker\nfn f() { crate::relay::serve() }\n", &[2]);
        check_lines(lane, "use crate::{\n    log::Log,\n    pool::{self, worker},\n    relay,\n};\n", &[3, 4]);
        check_lines(lane, "use super::relay;\n", &[1]);
        check_lines(lane, "#[cfg(test)]\nmod tests {\n    use crate::worker::Worker;\n}\n", &[]);
        check_lines("crates/weir/src/cache/store.rs", "use super::relay;\nuse crate::pool::Pool;\n", &[2]);
        check_lines("crates/weir/src/worker.rs", "use crate::cluster;\n", &[]);
    }

    #[test]
    fn a_module_without_a_row_is_named() {
        check_lines("crates/weir/src/surprise.rs", "", &[1]);
        check_lines("crates/weir/src/lib.rs", "pub mod worker;\n", &[]);
    }

    #[test]
    fn crates_depend_only_on_what_their_row_allows() {
        let text = "[dependencies]\nweir-wire.workspace = true\nweir-demo = { path = \"x\" }\nmio = \"1\"\n\
                    [dev-dependencies]\nweir-sql = \"1\"\n";
        let found = check_manifest("crates/policy/Cargo.toml", text, &["weir-wire"]);
        assert_eq!(found.iter().map(|finding| finding.line).collect::<Vec<_>>(), [3]);
    }

    #[test]
    fn every_module_named_besides_has_a_row() {
        for name in MODULES.iter().flat_map(|module| module.besides) {
            assert!(module(name).is_some(), "{name}");
        }
    }
}
