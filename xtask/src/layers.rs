//! `cargo xtask layers`: the allowed uses between crates, and between the folders of `crates/weir`.
//!
//! Two tables say it: one of crates (`crates`), one of folders (`FOLDERS`). A folder uses those below it and itself. Tests may use everything. A row for
//! a folder that is gone is a finding too, so the tables stay true.

mod circles;
mod crates;
mod paths;
mod uses;

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::Result;

use crate::finding::{self, Finding};
use crate::source::sources_below;
use uses::{ROOT, Use};

/// The folders of `crates/weir/src`, from the top to the bottom. A folder uses only those below it.
const FOLDERS: &[&str] =
    &["commands", "process", "client", "traffic", "admin", "control", "watchdog", "agent", "server", "runtime", "auth", "log"];

/// Where a finding is to be mended that is about a row of `FOLDERS`.
const TABLE: &str = "xtask/src/layers.rs";

/// The crate that the table of folders is about.
const CRATE: &str = "crates/weir";

/// Checks both tables.
pub fn run(root: &Path) -> Result<()> {
    finding::report("layers", &find(root)?)
}

/// All uses the tables do not allow.
pub fn find(root: &Path) -> Result<Vec<Finding>> {
    let mut findings = crates::find(root)?;
    let sources = sources_below(root, &format!("{CRATE}/src"))?;
    findings.extend(check_uses(&uses::of(&sources, CRATE)));
    let folders = sources.iter().filter_map(|source| {
        let inside = source.path.strip_prefix(CRATE)?.strip_prefix("/src/")?;
        Some(inside.split('/').next()?.trim_end_matches(".rs"))
    });
    findings.extend(check_rows(&folders.filter(|folder| !matches!(*folder, "lib" | "main" | "bin")).collect()));
    Ok(findings)
}

/// Files of the largest circle of any crate, by its row.
pub fn largest_circle(root: &Path) -> Result<String> {
    crates::largest(root)
}

/// Uses of a folder by one below it.
pub fn uses_upwards(root: &Path) -> Result<usize> {
    Ok(check_uses(&uses::of(&sources_below(root, &format!("{CRATE}/src"))?, CRATE)).len())
}

/// The folder of a module, which is the first part of its path.
fn folder_of(module: &str) -> &str {
    module.split("::").next().unwrap_or(module)
}

/// Uses of a folder by one below it. The root names all modules, and holds what all of them use.
fn check_uses(uses: &[Use]) -> Vec<Finding> {
    let floor = |module: &str| FOLDERS.iter().position(|folder| *folder == folder_of(module));
    let wrong = uses.iter().filter(|one| one.by != ROOT && one.of != ROOT).filter_map(|one| {
        let (by, of) = (floor(&one.by)?, floor(&one.of)?);
        let text = || format!("{} uses {}; allowed: {}", one.by, one.of, list(&FOLDERS[by..]));
        (of < by).then(|| Finding::new(&one.path, one.line, text()))
    });
    wrong.collect()
}

/// Folders without a row, and rows without a folder.
fn check_rows(folders: &BTreeSet<&str>) -> Vec<Finding> {
    let rows: BTreeSet<&str> = FOLDERS.iter().copied().collect();
    let without_row = folders.difference(&rows).map(|name| format!("{name} has no row in FOLDERS"));
    let without_folder = rows.difference(folders).map(|name| format!("the row of {name} has no folder"));
    without_row.chain(without_folder).map(|text| Finding::new(TABLE, 1, text)).collect()
}

fn list(names: &[&str]) -> String {
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::Source;

    fn check_lines(path: &str, text: &str, lines: &[usize]) {
        let others = FOLDERS.iter().map(|folder| Source::new(&format!("crates/weir/src/{folder}.rs"), ""));
        let sources: Vec<Source> = others.chain([Source::new(path, text)]).collect();
        let found = check_uses(&uses::of(&sources, CRATE));
        assert_eq!(found.iter().map(|finding| finding.line).collect::<Vec<_>>(), lines, "{found:?}");
    }

    #[test]
    fn a_folder_may_only_look_down() {
        let startup = "crates/weir/src/client/startup.rs";
        check_lines(startup, "use crate::auth::pam::Pam;\nuse crate::client::peers::Peer;\nuse crate::VERSION;\n", &[]);
        check_lines(startup, "use crate::process::supervisor;\n", &[1]);
        check_lines(startup, "// crate::process\nfn f() { crate::commands::cli::main() }\n", &[2]);
        check_lines(startup, "use crate::{\n    log::Log,\n    process::{self, tasks},\n    traffic,\n};\n", &[3, 3]);
        check_lines(startup, "use super::super::process;\n", &[1]);
        check_lines(startup, "#[cfg(test)]\nmod tests {\n    use crate::process::tasks;\n}\n", &[]);
        check_lines("crates/weir/src/main.rs", "fn main() { weir::commands::cli::main() }\n", &[]);
    }

    #[test]
    fn folders_and_rows_are_the_same() {
        let all: BTreeSet<&str> = FOLDERS.iter().copied().collect();
        assert!(check_rows(&all).is_empty());
        let other = all.iter().copied().skip(1).chain(["surprise"]).collect();
        assert_eq!(check_rows(&other).len(), 2, "a folder without a row, and a row without a folder");
    }
}
