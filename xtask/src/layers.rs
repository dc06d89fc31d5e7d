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
    ("crates/weir", &["weir-wire", "weir-ring", "weir-sql", "weir-policy", "weir-demo"]),
    ("xtask", &["weir-demo"]),
];

/// One module of `crates/weir`.
struct Module {
    name: &'static str,
    /// 0 is the lowest.
    layer: u8,
    /// Modules of its own layer or above that it uses all the same, each with the reason.
    except: &'static [(&'static str, &'static str)],
}

const fn row(layer: u8, name: &'static str, except: &'static [(&'static str, &'static str)]) -> Module {
    Module { name, layer, except }
}

/// From the top to the bottom. `worker` stands low: it is the context that all of a session's code is handed.
const MODULES: &[Module] = &[
    row(16, "main", &[]),
    row(15, "cli", &[]),
    // What a command runs.
    row(14, "demo", &[]),
    row(14, "docs", &[]),
    row(13, "supervisor", &[]),
    row(12, "http", &[]),
    row(12, "notify", &[]),
    row(12, "takeover", &[]),
    row(12, "trust", &[]),
    row(11, "files", &[]),
    row(11, "pid_file", &[]),
    row(11, "listen", &[]),
    row(10, "overtime", &[]),
    row(10, "warm", &[]),
    row(10, "inherit", &[]),
    // What tasks are made of: a login, the asking for roles.
    row(10, "startup", &[]),
    row(10, "cluster", &[]),
    row(10, "sampler", &[]),
    // The hot path.
    row(9, "console", &[]),
    row(9, "relay", &[]),
    row(9, "replication", &[]),
    row(10, "listener", &[]),
    row(8, "extended", &[]),
    row(8, "leaving", &[]),
    row(7, "aim", &[]),
    row(7, "answer", &[]),
    row(7, "shapes", &[]),
    row(7, "signals", &[]),
    row(7, "cached", &[]),
    row(7, "exposition", &[]),
    row(6, "timing", &[("statement_log", "says how long a statement took")]),
    row(6, "sequences", &[("inventory", "sends a query of ours, keeps the link")]),
    row(6, "inventory", &[]),
    row(6, "judging", &[]),
    row(6, "ahead", &[("judging", "asks whether what follows reads")]),
    row(3, "batch", &[]),
    row(6, "wishes", &[("inventory", "changes the session's settings")]),
    row(
        6,
        "begun",
        &[
            ("inventory", "sends a query of ours"),
            ("judging", "asks where the first statement would go"),
            ("net", "asks whether a standby refused it"),
            ("wishes", "asks what comments say"),
        ],
    ),
    row(6, "net", &[("judging", "has what a standby refused remembered")]),
    row(6, "statement_log", &[("wishes", "asks what a session has set for itself")]),
    row(5, "inquiry", &[]),
    row(5, "vacate", &[]),
    row(5, "causal", &[("session", "notes what it has seen")]),
    row(5, "survey", &[]),
    row(6, "follower", &[]),
    row(5, "shelf", &[]),
    row(
        5,
        "views",
        &[
            ("session", "SHOW pool_nodes marks the node of the session that asks"),
            ("judging", "SHOW route tells what it says"),
            ("wishes", "SHOW route tells of them"),
            ("statements", "SHOW route asks about one"),
        ],
    ),
    row(
        5,
        "session",
        &[
            ("statements", "holds its prepared statements"),
            ("judging", "holds the place where its names are looked up"),
            ("wishes", "holds where its reads shall go"),
            ("causal", "holds what it has seen"),
            ("net", "holds what is kept of its messages"),
            ("shapes", "holds the descriptions on their way"),
            ("cached", "holds what it wrote and which answer is on its way"),
        ],
    ),
    row(5, "statements", &[("views", "a text's judgement says whether Weir answers it itself")]),
    // One thread and its server connections. The worker is handed to all code above it, and starts the tasks there.
    row(
        4,
        "worker",
        &[
            ("link", "closes links, forwards cancel requests"),
            ("pool", "finds a session's pools"),
            ("statements", "owns the table of seen statements"),
            ("startup", "owns the remembered welcomes"),
            ("judging", "owns the numbers of places"),
            ("survey", "starts its tasks on the first thread"),
            ("follower", "starts its tasks on the first thread"),
            ("inquiry", "owns the connection for questions about users"),
            ("cluster", "starts the task on the first thread"),
            ("sampler", "starts the task on the first thread"),
            ("listen", "is handed clients by mail"),
            ("listener", "starts the task that listens for sessions"),
            ("shelf", "starts the tasks that speak with stores"),
        ],
    ),
    row(4, "pool", &[("link", "holds links"), ("worker", "the context")]),
    row(4, "link", &[("pool", "knows the pool it returns to"), ("worker", "the context"), ("login", "is logged in by it")]),
    row(
        4,
        "login",
        &[("link", "speaks over its `Talk`, with its errors"), ("forge", "has keys derived"), ("worker", "the context")],
    ),
    row(4, "forge", &[("worker", "the context")]),
    row(3, "shared", &[("pool", "all pools are shared by all threads"), ("link", "one that is mailed home to be closed")]),
    row(4, "census", &[("link", "their cards"), ("pool", "their pools")]),
    row(3, "lane", &[]),
    row(2, "access", &[]),
    row(2, "answers", &[("stores", "has a worker's side of a store made, if answers lie in one")]),
    row(2, "stores", &[("answers", "keeps who waits for an answer until that is stored")]),
    row(2, "socket", &[]),
    row(2, "house", &[]),
    row(1, "tls", &[]),
    row(1, "errand", &[]),
    row(1, "directory", &[]),
    row(1, "pam", &[("directory", "answers in the same words")]),
    row(1, "reactor", &[]),
    row(1, "state", &[("hub", "holds what its session listens to")]),
    row(1, "hub", &[("reactor", "wakes tasks by their numbers")]),
    row(1, "loads", &[]),
    row(1, "suspects", &[]),
    row(1, "probes", &[]),
    row(1, "catalogs", &[("reactor", "a task's number")]),
    row(0, "follow", &[]),
    row(0, "flow", &[]),
    row(0, "buffers", &[]),
    row(0, "session_card", &[]),
    row(0, "fault", &[]),
    row(0, "metrics", &[("histogram", "times of statements")]),
    row(0, "histogram", &[]),
    row(0, "stats", &[("histogram", "times of statements and waits")]),
    row(0, "gates", &[]),
    row(2, "positions", &[]),
    row(0, "seats", &[]),
    row(0, "log", &[]),
];

/// What the shape of the modules may be at most. Numbers that fall are lowered here; none is raised.
const LIMITS: Limits = Limits { circle_modules: 42, exceptions: 58 };

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
        check_lines(lane, "use crate::{\n    monitor::log,\n    server::{link, pool::Pool},\n};\n", &[3, 3]);
        check_lines("crates/weir/src/io/surprise.rs", "", &[1]);
        check_lines("crates/weir/src/io.rs", "pub mod lane;\n", &[]);
    }

    #[test]
    fn an_exception_holds_for_the_module_it_names_only() {
        check_lines("crates/weir/src/worker.rs", "use crate::cluster;\nuse crate::relay;\n", &[2]);
        check_lines("crates/weir/src/views.rs", "use crate::relay;\n", &[1]);
    }

    #[test]
    fn rows_and_exceptions_that_nothing_needs_are_named() {
        let found = check_rows(&[Source::new("crates/weir/src/shared.rs", "use crate::{link::Link, pool::Pools};\n")]);
        assert_eq!(found.len(), MODULES.len() - 1, "all modules but `shared` are missing: {found:?}");
        let found = check_rows(&[Source::new("crates/weir/src/shared.rs", "use crate::pool::Pools;\n")]);
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
    fn every_exception_names_a_module_that_is_not_below() {
        for own in MODULES {
            for (name, why) in own.except {
                let other = module(name).unwrap_or_else(|| panic!("{name} has no row"));
                assert!(other.layer >= own.layer && !why.is_empty(), "{} may use {name} anyway", own.name);
            }
        }
    }
}
