//! `cargo xtask own-sql`: every file of the product that holds SQL which looks names up stands in the list of Weir's own texts.
//!
//! The list is `crates/weir/src/commands/own_sql.rs`. `weir docs --check` refuses a text in it that a `search_path` could bend, debug builds refuse to send
//! one, and end-to-end tests play each of them. This check finds the file that nobody put into the list.

use std::path::Path;

use anyhow::{Context, Result};

use crate::finding::{self, Finding};
use crate::source::{Source, sources_below};

const LIST: &str = "crates/weir/src/commands/own_sql.rs";

/// Where texts for servers are made.
const FOLDERS: &[&str] = &[
    "crates/agent/src",
    "crates/cache/src",
    "crates/catalog/src",
    "crates/failover/src",
    "crates/session/src",
    "crates/weir/src",
];

/// Begins of texts that look names up. `SET`, `LISTEN` and the like name nothing that a path decides.
const BEGINS: &[&str] = &["\"SELECT ", "\"select ", "\"WITH ", "\"PREPARE ", "\"EXECUTE ", "\"ALTER SYSTEM "];

/// Files that hold such a text for another purpose.
const EXCEPT: &[(&str, &str)] = &[
    ("crates/catalog/src/unseen/function_reach.rs", "one of the parts that catalog/src/query.rs lists"),
    ("crates/session/src/own_answers.rs", "the tags of answers"),
    ("crates/weir/src/server/inquiry/viewer.rs", "client/inquiry.rs lists it"),
    ("crates/weir/src/commands/demo.rs", "the demonstration is a client"),
    ("crates/weir/src/commands/demo_shards.rs", "the demonstration is a client"),
];

/// Fails if a file is missing in the list, or an exception is not needed any more.
pub fn run(root: &Path) -> Result<()> {
    let list = std::fs::read_to_string(root.join(LIST)).with_context(|| format!("cannot read {LIST}"))?;
    let mut findings = Vec::new();
    let mut needed = Vec::new();
    for folder in FOLDERS {
        for source in sources_below(root, folder)? {
            let Some(line) = line_with_sql(&source) else { continue };
            match EXCEPT.iter().find(|(path, _)| *path == source.path) {
                Some((path, _)) => needed.push(*path),
                None if is_listed(&list, &source.path) => {}
                None => findings.push(Finding::new(&source.path, line, format!("SQL for a server, and no row in {LIST}"))),
            }
        }
    }
    let idle = EXCEPT.iter().filter(|(path, _)| !needed.contains(path));
    findings
        .extend(idle.map(|(path, _)| Finding::new(path, 1, "an exception of xtask/src/own_sql.rs that is not needed any more")));
    finding::report("own-sql", &findings)
}

/// The first line, before the tests, with a text that begins like SQL.
fn line_with_sql(source: &Source) -> Option<usize> {
    if source.path.ends_with("tests.rs") || source.path.contains("/tests/") {
        return None;
    }
    let texts = source.production().filter(|(_, code)| code.contains('"'));
    let mut lines = texts.map(|(line, _)| line);
    lines.find(|line| BEGINS.iter().any(|begin| source.lines[line - 1].contains(begin)))
}

fn is_listed(list: &str, path: &str) -> bool {
    list.contains(&format!("\"{}\"", path.trim_start_matches("crates/")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_of_sql_is_found_and_a_comment_is_not() {
        let line = |text: &str| line_with_sql(&Source::new("crates/weir/src/a.rs", text));
        assert_eq!(line("const A: u8 = 1;\nconst B: &str = \"SELECT f()\";\n"), Some(2));
        assert_eq!(line("// \"SELECT f()\"\nconst B: &str = \"SELECT\";\n"), None);
        assert_eq!(line("#[cfg(test)]\nmod tests {\n    const A: &str = \"SELECT f()\";\n}\n"), None);
    }

    #[test]
    fn a_file_is_listed_by_its_path_below_crates() {
        assert!(is_listed("file: \"weir/src/a.rs\"", "crates/weir/src/a.rs"));
        assert!(!is_listed("file: \"weir/src/a.rs\"", "crates/weir/src/b.rs"));
    }
}
