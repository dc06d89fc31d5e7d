//! `cargo xtask layers`: who may use whom.
//!
//! Two tables say it: one of crates, one of the modules of `crates/weir`. A module may use modules of lower layers,
//! itself, and those its row excepts with a reason. Tests may use everything. A row for a module that is gone and an
//! exception that nothing needs any more are findings too, so the tables stay true.
//!
//! Exceptions make circles: modules each of which can only be understood with all others. `LIMITS` says how many exceptions there may be and
//! how many modules one circle may hold. A number that could be lower is a finding too, so that what was won is not lost again.

mod circles;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use crate::finding::{self, Finding};
use crate::source::{Source, sources_below};

/// A crate and the crates of this workspace it may depend on (tests may depend on more).
const CRATES: &[(&str, &[&str])] = &[
    ("crates/wire", &[]),
    ("crates/ring", &[]),
    ("crates/sql", &[]),
    ("crates/demo", &[]),
    ("crates/policy", &["weir-wire", "weir-sql"]),
    ("crates/sim", &["weir-policy"]),
    ("crates/weir", &["weir-wire", "weir-ring", "weir-sql", "weir-policy", "weir-demo"]),
    ("xtask", &["weir-demo"]),
];

/// One module of `crates/weir`.
struct Module {
    name: &'static str,
    /// 0 is the lowest.
    layer: u8,
    /// Modules of its own layer that it uses all the same, each with the reason.
    except: &'static [(&'static str, &'static str)],
}

const fn row(layer: u8, name: &'static str, except: &'static [(&'static str, &'static str)]) -> Module {
    Module { name, layer, except }
}

/// From the top to the bottom. A layer is one above the highest that it uses. `worker` stands low: it is the context that all of a session's code
/// is handed.
/// is handed.
const MODULES: &[Module] = &[
    row(20, "main", &[]),
    row(19, "cli", &[]),
    row(18, "demo", &[]),
    row(17, "supervisor", &[]),
    row(16, "http", &[]),
    row(16, "tasks", &[]),
    row(15, "listen", &[]),
    row(14, "startup", &[]),
    row(13, "relay", &[]),
    row(12, "extended", &[]),
    row(12, "listener", &[]),
    row(12, "replication", &[]),
    row(12, "warm", &[]),
    row(11, "aim", &[]),
    row(11, "console", &[]),
    row(11, "leaving", &[]),
    row(11, "shapes", &[]),
    row(10, "answer", &[]),
    row(10, "cached", &[]),
    row(10, "timing", &[]),
    row(9, "begun", &[]),
    row(9, "shown", &[]),
    row(9, "statement_log", &[]),
    row(8, "ahead", &[]),
    row(8, "follower", &[]),
    row(8, "net", &[]),
    row(8, "notify", &[]),
    row(8, "sequences", &[]),
    row(8, "wishes", &[]),
    row(7, "causal", &[]),
    row(7, "docs", &[]),
    row(7, "exposition", &[]),
    row(7, "inventory", &[]),
    row(7, "judging", &[]),
    row(7, "signals", &[]),
    row(6, "census", &[]),
    row(6, "cluster", &[]),
    row(6, "housekeeping", &[]),
    row(6, "inquiry", &[]),
    row(6, "overtime", &[]),
    row(6, "sampler", &[]),
    row(6, "session", &[]),
    row(6, "shelf", &[]),
    row(6, "survey", &[]),
    row(6, "takeover", &[]),
    row(6, "vacate", &[]),
    row(6, "views", &[]),
    row(5, "forge", &[("shared", "is woken by mail"), ("worker", "the context")]),
    row(5, "pool", &[("forge", "has keys derived at a login"), ("shared", "mails connections home"), ("worker", "the context")]),
    row(5, "shared", &[("pool", "all pools are shared by all threads")]),
    row(5, "worker", &[("pool", "finds a session's pools, closes connections"), ("shared", "a thread sees what all share")]),
    row(4, "statements", &[]),
    row(3, "answers", &[("stores", "holds what lies in a store, too")]),
    row(3, "files", &[]),
    row(3, "lane", &[]),
    row(3, "places", &[]),
    row(3, "state", &[]),
    row(3, "stores", &[("answers", "a fill ends when its result is proven")]),
    row(3, "trust", &[]),
    row(2, "access", &[]),
    row(2, "catalogs", &[]),
    row(2, "house", &[]),
    row(2, "hub", &[]),
    row(2, "loads", &[]),
    row(2, "positions", &[]),
    row(2, "socket", &[]),
    row(2, "suspects", &[]),
    row(1, "metrics", &[]),
    row(1, "pam", &[]),
    row(1, "probes", &[]),
    row(1, "reactor", &[]),
    row(1, "stats", &[]),
    row(0, "batch", &[]),
    row(0, "buffers", &[]),
    row(0, "directory", &[]),
    row(0, "errand", &[]),
    row(0, "fault", &[]),
    row(0, "flow", &[]),
    row(0, "follow", &[]),
    row(0, "gates", &[]),
    row(0, "histogram", &[]),
    row(0, "inherit", &[]),
    row(0, "local", &[]),
    row(0, "log", &[]),
    row(0, "pid_file", &[]),
    row(0, "seats", &[]),
    row(0, "session_card", &[]),
    row(0, "tls", &[]),
    row(0, "welcomes", &[]),
];

/// What the shape of the modules may be at most. Numbers that fall are lowered here; none is raised.
const LIMITS: Limits = Limits { circle_modules: 4, exceptions: 10 };

struct Limits {
    /// Modules in the largest circle of uses.
    circle_modules: usize,
    /// Exceptions in `MODULES`.
    exceptions: usize,
}

/// The folder the table of modules is about.
const MODULES_FOLDER: &str = "crates/weir/src";

/// Folders in it that only group modules by what they are about. Layers do not care: a name is a module's wherever it lies.
const GROUPS: &[&str] = &["client", "io", "monitor", "process", "server", "traffic"];

/// Checks both tables and the limits, and names the largest circle.
pub fn run(root: &Path) -> Result<()> {
    let circles = circles::find(&uses(&sources_below(root, MODULES_FOLDER)?));
    if let Some(largest) = circles.first() {
        let names: Vec<&str> = largest.iter().map(String::as_str).collect();
        println!("layers: circles: {}, the largest of {} modules: {}", circles.len(), largest.len(), list(&names));
    }
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
    let sources = sources_below(root, MODULES_FOLDER)?;
    for source in &sources {
        findings.extend(check_module(source));
    }
    findings.extend(check_rows(&sources));
    let largest = circles::find(&uses(&sources)).first().map_or(0, Vec::len);
    let exceptions = MODULES.iter().map(|row| row.except.len()).sum();
    findings.extend(check_limit("modules in the largest circle", largest, LIMITS.circle_modules));
    findings.extend(check_limit("exceptions", exceptions, LIMITS.exceptions));
    Ok(findings)
}

/// A limit is exceeded, or could be lower.
fn check_limit(what: &str, count: usize, limit: usize) -> Option<Finding> {
    let text = match count.cmp(&limit) {
        std::cmp::Ordering::Equal => return None,
        std::cmp::Ordering::Greater => format!("{what}: {count}, the limit is {limit}"),
        std::cmp::Ordering::Less => format!("{what}: {count}, and the limit is {limit}: lower it to {count} in LIMITS"),
    };
    Some(Finding::new("xtask/src/layers.rs", 1, text))
}

/// Which modules each module uses, itself not among them.
fn uses(sources: &[Source]) -> BTreeMap<String, BTreeSet<String>> {
    let mut uses: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for source in sources {
        let own = module_name(inside(source));
        if module(own).is_none() {
            continue;
        }
        let used = uses_of(source, is_top(source)).into_iter().map(|(_, name)| name);
        uses.entry(own.to_owned()).or_default().extend(used.filter(|name| name != own && module(name).is_some()));
    }
    uses
}

/// Rows without a module, and exceptions nothing needs.
fn check_rows(sources: &[Source]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let complain = |text: String| Finding::new("xtask/src/layers.rs", 1, text);
    for row in MODULES {
        let own: Vec<&Source> = sources.iter().filter(|source| module_name(inside(source)) == row.name).collect();
        if own.is_empty() {
            findings.push(complain(format!("the row of {} has no module", row.name)));
            continue;
        }
        let used: Vec<String> = own.iter().flat_map(|source| uses_of(source, is_top(source))).map(|(_, name)| name).collect();
        for (name, _) in row.except {
            if module(name).is_some_and(|other| other.layer > row.layer) {
                findings.push(complain(format!("{} is excepted to use {name} of a higher layer: none may look up", row.name)));
            }
            if !used.iter().any(|used| used == name) {
                findings.push(complain(format!("{} no longer uses {name}: remove the exception", row.name)));
            }
        }
    }
    findings
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
    let name = module_name(inside(source));
    // `lib.rs` names all modules; programs of `bin/` stand above all of them.
    if matches!(name, "lib" | "bin") || GROUPS.contains(&name) {
        return vec![];
    }
    let Some(own) = module(name) else {
        return vec![Finding::new(&source.path, 1, format!("module {name} has no row in xtask/src/layers.rs"))];
    };
    let uses = uses_of(source, is_top(source));
    let wrong = uses.into_iter().filter_map(|(line, used)| {
        let other = module(&used)?;
        let fine = other.name == own.name || other.layer < own.layer || own.except.iter().any(|(name, _)| *name == other.name);
        (!fine).then(|| Finding::new(&source.path, line, complaint(own, other)))
    });
    wrong.collect()
}

/// A file's path from the folder of the modules.
fn inside(source: &Source) -> &str {
    source.path.strip_prefix(MODULES_FOLDER).unwrap_or(&source.path).trim_start_matches('/')
}

/// Whether `super` is the crate's root there, or a folder that only groups modules.
fn is_top(source: &Source) -> bool {
    match inside(source).split_once('/') {
        None => true,
        Some((folder, rest)) => GROUPS.contains(&folder) && !rest.contains('/'),
    }
}

/// The module of a file: the first part of its path that is not only a group.
fn module_name(inside: &str) -> &str {
    let mut parts = inside.split('/').map(|part| part.trim_end_matches(".rs"));
    let first = parts.next().unwrap_or("");
    if GROUPS.contains(&first) { parts.next().unwrap_or(first) } else { first }
}

fn complaint(own: &Module, other: &Module) -> String {
    let lower = MODULES.iter().filter(|module| module.layer < own.layer).map(|module| module.name);
    let allowed: Vec<&str> = lower.chain(own.except.iter().map(|(name, _)| *name)).collect();
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
/// In a file at the top (`is_top`) paths from `super` count too.
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
        let first = word(after);
        if GROUPS.contains(&first.as_str())
            && let Some(inner) = after[first.len()..].strip_prefix("::")
        {
            let shift = first.len() + 2;
            return first_names(inner).into_iter().map(|(at, name)| (at + shift, name)).collect();
        }
        return vec![(0, first)];
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
                names.extend(first_names(&after[at..]).into_iter().map(|(offset, name)| (at + offset, name)));
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
        check_lines("crates/weir/src/lane/part.rs", "use super::relay;\nuse crate::pool::Pool;\n", &[2]);
    }

    #[test]
    fn groups_are_looked_through() {
        let lane = "crates/weir/src/io/lane.rs";
        check_lines(lane, "use crate::io::socket::Socket;\nuse crate::process::worker::Worker;\n", &[2]);
        check_lines(lane, "use crate::{\n    monitor::log,\n    server::{pool::Pool, survey},\n};\n", &[3, 3]);
        check_lines("crates/weir/src/io/surprise.rs", "", &[1]);
        check_lines("crates/weir/src/io.rs", "pub mod lane;\n", &[]);
    }

    #[test]
    fn an_exception_holds_for_the_module_it_names_only() {
        check_lines("crates/weir/src/worker.rs", "use crate::pool;\nuse crate::relay;\n", &[2]);
        check_lines("crates/weir/src/views.rs", "use crate::relay;\n", &[1]);
    }

    #[test]
    fn rows_and_exceptions_that_nothing_needs_are_named() {
        let found = check_rows(&[Source::new("crates/weir/src/shared.rs", "use crate::pool::Pools;\n")]);
        assert_eq!(found.len(), MODULES.len() - 1, "all modules but `shared` are missing: {found:?}");
        let found = check_rows(&[Source::new("crates/weir/src/shared.rs", "")]);
        assert_eq!(found.len(), MODULES.len(), "and one of its exceptions is not used: {found:?}");
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
    fn a_limit_holds_both_ways() {
        assert!(check_limit("exceptions", 5, 5).is_none());
        assert!(check_limit("exceptions", 6, 5).is_some_and(|finding| finding.text.ends_with("6, the limit is 5")));
        assert!(check_limit("exceptions", 4, 5).is_some_and(|finding| finding.text.ends_with("lower it to 4 in LIMITS")));
    }

    #[test]
    fn uses_are_those_of_modules_whatever_their_folder() {
        let files = [
            Source::new("crates/weir/src/io/lane.rs", "use crate::io::socket::Socket;\nuse super::tls::Tls;\n"),
            Source::new("crates/weir/src/io/tls/names.rs", "use super::socket;\nuse crate::log::Log;\nuse crate::tls::Tls;\n"),
            Source::new("crates/weir/src/lib.rs", "pub mod relay;\n"),
        ];
        let uses = uses(&files);
        let of = |name: &str| uses[name].iter().map(String::as_str).collect::<Vec<_>>();
        assert_eq!((of("lane"), of("tls"), uses.len()), (vec!["socket", "tls"], vec!["log"], 2));
    }

    #[test]
    fn every_exception_names_a_module_of_the_same_layer() {
        for own in MODULES {
            for (name, why) in own.except {
                let other = module(name).unwrap_or_else(|| panic!("{name} has no row"));
                assert!(other.layer == own.layer && !why.is_empty(), "{} and {name}", own.name);
            }
        }
    }
}
