//! `cargo xtask layers`: the allowed uses between modules.
//!
//! Two tables say it: one of crates (`crates`), one of the modules of `crates/weir`. A module may use modules of lower layers,
//! itself, and those its row excepts with a reason. Tests may use everything. A row for a module that is gone and an
//! exception that nothing needs any more are findings too, so the tables stay true.
//!
//! Exceptions make circles: modules each of which can only be understood with all others. `LIMITS` bounds the number of
//! exceptions and the modules of one circle; the table of crates bounds the circles of all others. A number that could be lower
//! is a finding too, so that progress is not lost again.

mod circles;
mod crates;
mod paths;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::Result;

use crate::finding::{self, Finding};
use crate::source::{Source, sources_below};

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

/// From the top to the bottom. A layer is above all that it uses. `worker` stands low: it is the context that all of a session's code
/// is handed.
const MODULES: &[Module] = &[
    row(18, "main", &[]),
    row(17, "cli", &[]),
    row(16, "docs", &[]),
    row(14, "demo", &[]),
    row(15, "own_sql", &[]),
    row(14, "check_servers", &[]),
    row(13, "supervisor", &[]),
    row(12, "thread", &[]),
    row(11, "http", &[]),
    row(11, "pcp", &[]),
    row(11, "tasks", &[]),
    row(10, "acceptor", &[]),
    row(9, "startup", &[]),
    row(8, "relay", &[]),
    row(7, "checkout", &[]),
    row(7, "outcome", &[]),
    row(7, "teardown", &[]),
    row(6, "agent_watch", &[]),
    row(6, "failover", &[]),
    row(6, "node_monitor", &[]),
    row(6, "notify", &[]),
    row(6, "served", &[]),
    row(5, "catalog_watch", &[]),
    row(5, "cluster_view", &[]),
    row(5, "console", &[]),
    row(5, "exposition", &[]),
    row(5, "host", &[]),
    row(5, "listen_task", &[]),
    row(5, "min_pool", &[]),
    row(5, "peers", &[]),
    row(5, "replication", &[]),
    row(5, "return_node", &[]),
    row(5, "supervised", &[]),
    row(5, "timeouts", &[]),
    row(5, "vouch", &[]),
    row(5, "wal_follower", &[]),
    row(4, "agent_status", &[]),
    row(4, "conn", &[]),
    row(4, "connection_list", &[]),
    row(4, "context", &[]),
    row(4, "empty_database", &[]),
    row(4, "first_look", &[]),
    row(4, "housekeeping", &[]),
    row(4, "inquiry", &[]),
    row(4, "lease", &[]),
    row(4, "password_tools", &[]),
    row(4, "pcp_programs", &[]),
    row(4, "places", &[]),
    row(4, "store_conn", &[]),
    row(4, "takeover", &[]),
    row(4, "upgrade_walk", &[]),
    row(4, "views", &[]),
    row(3, "files", &[]),
    row(3, "key_derivation", &[("shared", "is woken by mail"), ("worker", "the context")]),
    row(
        3,
        "pool",
        &[("key_derivation", "has keys derived at a login"), ("shared", "mails connections home"), ("worker", "the context")],
    ),
    row(3, "shared", &[("pool", "all pools are shared by all threads")]),
    row(3, "trust", &[]),
    row(3, "worker", &[("pool", "finds a session's pools, closes connections"), ("shared", "a thread sees what all share")]),
    row(2, "access", &[]),
    row(2, "agent", &[]),
    row(1, "agents_seen", &[]),
    row(1, "keeper", &[]),
    row(1, "pam", &[]),
    row(1, "pcp_client", &[]),
    row(1, "privileges", &[]),
    row(1, "probes", &[]),
    row(0, "agent_line", &[]),
    row(0, "alarm", &[]),
    row(0, "blocking_jobs", &[]),
    row(0, "bounds", &[]),
    row(0, "challenges", &[]),
    row(0, "client_limits", &[]),
    row(0, "directory", &[]),
    row(0, "greetings", &[]),
    row(0, "guesses", &[]),
    row(0, "inherit", &[]),
    row(0, "log", &[]),
    row(0, "look_places", &[]),
    row(0, "mail", &[]),
    row(0, "names", &[]),
    row(0, "pause_state", &[]),
    row(0, "pid_file", &[]),
    row(0, "prompt", &[]),
    row(0, "stores", &[]),
    row(0, "supervised_tasks", &[]),
    row(0, "tls_files", &[]),
];

/// What the shape of the modules may be at most. Numbers that fall are lowered here; none is raised.
const LIMITS: Limits = Limits { circle_modules: 4, exceptions: 8 };

struct Limits {
    /// Modules in the largest circle of uses.
    circle_modules: usize,
    /// Exceptions in `MODULES`.
    exceptions: usize,
}

/// Where a finding is to be mended that is about a row of modules.
const TABLE: &str = "xtask/src/layers.rs";

/// The folder the table of modules is about.
const MODULES_FOLDER: &str = "crates/weir/src";
const MODULES_CRATE: &str = "crates/weir";

/// Folders in it that only group modules by their subject. Layers do not care: a name is a module's wherever it lies.
const GROUPS: &[&str] = &["client", "control", "monitor", "process", "server", "traffic"];

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
    let mut findings = crates::find(root)?;
    let sources = sources_below(root, MODULES_FOLDER)?;
    for source in &sources {
        findings.extend(check_module(source));
    }
    findings.extend(check_rows(&sources));
    let largest = circles::find(&uses(&sources)).first().map_or(0, Vec::len);
    let exceptions = MODULES.iter().map(|row| row.except.len()).sum();
    findings.extend(check_limit(TABLE, "modules in the largest circle", largest, LIMITS.circle_modules));
    findings.extend(check_limit(TABLE, "exceptions", exceptions, LIMITS.exceptions));
    Ok(findings)
}

/// A limit is exceeded, or could be lower. `table` is the file that has it.
fn check_limit(table: &str, what: &str, count: usize, limit: usize) -> Option<Finding> {
    let text = match count.cmp(&limit) {
        std::cmp::Ordering::Equal => return None,
        std::cmp::Ordering::Greater => format!("{what}: {count}, the limit is {limit}"),
        std::cmp::Ordering::Less => format!("{what}: {count}, and the limit is {limit}: lower it to {count}"),
    };
    Some(Finding::new(table, 1, text))
}

/// The modules that each module uses, itself not among them.
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
    let complain = |text: String| Finding::new(TABLE, 1, text);
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

/// True if `super` is the crate's root there, or a folder that only groups modules.
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

/// First names of all paths from the crate's root, with their lines. In a file at the top (`is_top`) paths from `super` count too.
fn uses_of(source: &Source, is_top: bool) -> Vec<(usize, String)> {
    paths::of(source, if is_top { &["crate::", "weir::", "super::"] } else { &["crate::", "weir::"] }, GROUPS)
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
        let access = "crates/weir/src/access.rs";
        check_lines(access, "use crate::pam::Pam;\nuse crate::access::Other;\n", &[]);
        check_lines(access, "use crate::worker::Worker;\n", &[1]);
        check_lines(access, "// crate::worker\nfn f() { crate::relay::serve() }\n", &[2]);
        check_lines(access, "use crate::{\n    log::Log,\n    pool::{self, worker},\n    relay,\n};\n", &[3, 4]);
        check_lines(access, "use super::relay;\n", &[1]);
        check_lines(access, "#[cfg(test)]\nmod tests {\n    use crate::worker::Worker;\n}\n", &[]);
        check_lines("crates/weir/src/access/part.rs", "use super::relay;\nuse crate::pool::Pool;\n", &[2]);
    }

    #[test]
    fn groups_are_looked_through() {
        let access = "crates/weir/src/client/access.rs";
        check_lines(access, "use crate::client::pam::Pam;\nuse crate::process::worker::Worker;\n", &[2]);
        check_lines(access, "use crate::{\n    monitor::log,\n    server::{pool::Pool, listen_task},\n};\n", &[3, 3]);
        check_lines("crates/weir/src/client/surprise.rs", "", &[1]);
        check_lines("crates/weir/src/client.rs", "pub mod access;\n", &[]);
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
    fn a_limit_holds_both_ways() {
        assert!(check_limit(TABLE, "exceptions", 5, 5).is_none());
        assert!(check_limit(TABLE, "exceptions", 6, 5).is_some_and(|finding| finding.text.ends_with("6, the limit is 5")));
        assert!(check_limit(TABLE, "exceptions", 4, 5).is_some_and(|finding| finding.text.ends_with("lower it to 4")));
    }

    #[test]
    fn uses_are_those_of_modules_whatever_their_folder() {
        let files = [
            Source::new("crates/weir/src/client/access.rs", "use crate::client::pam::Pam;\nuse super::directory::Directory;\n"),
            Source::new(
                "crates/weir/src/client/directory/kept.rs",
                "use super::pam;\nuse crate::log::Log;\nuse crate::directory::Directory;\n",
            ),
            Source::new("crates/weir/src/lib.rs", "pub mod relay;\n"),
        ];
        let uses = uses(&files);
        let of = |name: &str| uses[name].iter().map(String::as_str).collect::<Vec<_>>();
        assert_eq!((of("access"), of("directory"), uses.len()), (vec!["directory", "pam"], vec!["log"], 2));
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
