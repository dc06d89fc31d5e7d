//! `cargo xtask tidy`: habits a compiler does not hold.

use std::path::Path;

use anyhow::Result;

use crate::finding::{self, Finding};
use crate::source::{Source, sources_below};

/// Everything we look at.
const ALL: &[&str] = &["crates", "xtask", "fuzz/fuzz_targets"];

/// Words that production code must not have.
struct Ban {
    word: &'static str,
    folders: &'static [&'static str],
    /// Files that may have it all the same, or folders of them.
    except: &'static [&'static str],
    instead: &'static str,
}

const PRODUCTION: &[&str] = &[
    "crates/wire/src",
    "crates/sql/src",
    "crates/io/src",
    "crates/config/src",
    "crates/import/src",
    "crates/catalog/src",
    "crates/failover/src",
    "crates/group/src",
    "crates/cache/src",
    "crates/session/src",
    "crates/weir/src",
];
const PURE: &[&str] = &[
    "crates/wire/src",
    "crates/config/src",
    "crates/import/src",
    "crates/catalog/src",
    "crates/failover/src",
    "crates/group/src",
    "crates/shard/src",
    "crates/cache/src",
    "crates/session/src",
];
const SESSION: &[&str] = &["crates/session/src"];
/// Addresses of clients, to be shown.
const SHOWN: &[&str] = &["crates/session/src/status.rs"];
/// Where the program talks to a person at a terminal.
const COMMAND_LINE: &[&str] =
    &["crates/weir/src/main.rs", "crates/weir/src/commands/cli.rs", "crates/weir/src/commands/cli/", "crates/weir/src/bin/"];
const NONE: &[&str] = &[];

const fn ban(
    word: &'static str,
    folders: &'static [&'static str],
    except: &'static [&'static str],
    instead: &'static str,
) -> Ban {
    Ban { word, folders, except, instead }
}

const BANS: &[Ban] = &[
    ban("println!", PRODUCTION, COMMAND_LINE, "use the log"),
    ban("print!", PRODUCTION, COMMAND_LINE, "use the log"),
    ban("dbg!", PRODUCTION, NONE, "remove it"),
    ban("todo!", PRODUCTION, NONE, "write it, or return an error that says what is missing"),
    ban("unimplemented!", PRODUCTION, NONE, "write it, or return an error that says what is missing"),
    ban("lazy_static!", PRODUCTION, NONE, "pass it as an argument"),
    ban("thread_local!", PRODUCTION, NONE, "let the worker own it"),
    ban("Instant::now", PURE, NONE, "let the caller pass `now`"),
    ban("SystemTime::now", PURE, NONE, "let the caller pass `now`"),
    ban("std::env", PURE, NONE, "let the caller pass it"),
    ban("std::fs", PURE, NONE, "let the caller read it"),
    ban("std::net", PURE, SHOWN, "decide here, do it in crates/weir"),
    ban("std::thread", PURE, NONE, "decide here, do it in crates/weir"),
    ban("weir_io::reactor", SESSION, NONE, "ask it of the session's Host"),
    ban("weir_io::socket", SESSION, NONE, "write into a lane; crates/weir moves the bytes"),
    ban("weir_io::tls", SESSION, NONE, "write into a lane; crates/weir moves the bytes"),
];

/// Where tests are, beside the modules of tests in the sources.
const TESTS: &[&str] = &[
    "crates/wire/tests",
    "crates/sql/tests",
    "crates/config/tests",
    "crates/group/tests",
    "crates/group-failover/tests",
    "crates/shard/tests",
    "crates/cache/tests",
    "crates/session/tests",
    "crates/sim/tests",
    "crates/ring/tests",
    "crates/demo/tests",
    "crates/weir/tests",
];
/// Ways to let time pass. A test waits for a condition with a limit; where nothing shall happen, `support/time.rs` says for how long.
const WAITS: &[&str] = &["thread::sleep", "time::sleep", "park_timeout", "thread::yield_now", "spin_loop"];
/// Files of tests that may wait all the same, each with the reason. A file that does not wait any more is a finding.
const MAY_WAIT: &[(&str, &str)] = &[
    ("crates/weir/tests/support/time.rs", "the one place"),
    ("crates/weir/tests/support/faults.rs", "a network that is slow"),
    ("crates/weir/tests/hostile_client/deliver.rs", "bytes that arrive in pieces"),
    ("crates/session/tests/mutations.rs", "random inputs for as long as the caller says"),
    ("crates/weir/tests/differential/play.rs", "another thread's turn, to find other orders"),
];

/// Types that make a `static` change after the start, or be made at its first use.
const CHANGING: &[&str] =
    &["Atomic", "Mutex", "RwLock", "Cell", "OnceLock", "LazyLock", "Lazy", "OnceCell", "ArcSwap", "Condvar"];

/// Checks all rules.
pub fn run(root: &Path) -> Result<()> {
    finding::report("tidy", &find(root)?)
}

/// All that breaks a rule.
pub fn find(root: &Path) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    for folder in ALL {
        for source in sources_below(root, folder)? {
            findings.extend(check_bans(&source));
            findings.extend(check_statics(&source));
            findings.extend(check_waits(&source));
        }
    }
    let is_gone = |(path, _): &&(&str, &str)| !root.join(path).is_file();
    findings
        .extend(MAY_WAIT.iter().filter(is_gone).map(|(path, _)| Finding::new(path, 1, "is gone: remove its row from MAY_WAIT")));
    Ok(findings)
}

/// Waits in tests that are for no condition, and loops that only end with the time.
fn check_waits(source: &Source) -> Vec<Finding> {
    let tests_from = if is_in(&source.path, TESTS) { 0 } else { source.tests_from };
    let lines = source.code.iter().enumerate().skip(tests_from);
    let is_busy = |line: &str| line.contains("while ") && ["Instant::now", ".elapsed()"].iter().any(|clock| line.contains(clock));
    let waits = lines.filter(|(_, line)| WAITS.iter().any(|word| has_word(line, word)) || is_busy(line));
    let waits: Vec<usize> = waits.map(|(index, _)| index + 1).collect();
    let may = MAY_WAIT.iter().any(|(path, _)| *path == source.path);
    match (may, waits.is_empty()) {
        (true, true) => vec![Finding::new(&source.path, 1, "does not wait any more: remove its row from MAY_WAIT")],
        (true, false) => vec![],
        (false, _) => {
            let instead = "a wait without a condition: use wait_until, or support/time.rs where nothing shall happen";
            waits.into_iter().map(|line| Finding::new(&source.path, line, instead)).collect()
        }
    }
}

fn is_in(path: &str, places: &[&str]) -> bool {
    places.iter().any(|place| path.starts_with(place))
}

fn check_bans(source: &Source) -> Vec<Finding> {
    let bans = BANS.iter().filter(|ban| is_in(&source.path, ban.folders) && !is_in(&source.path, ban.except));
    let found = bans.flat_map(|ban| {
        let lines = source.production().filter(|(_, line)| has_word(line, ban.word));
        lines.map(|(line, _)| Finding::new(&source.path, line, format!("{}: {}", ban.word, ban.instead)))
    });
    found.collect()
}

/// True if `word` occurs and is not the end of a longer name (`eprintln!` is not `println!`).
fn has_word(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + word.len()..].chars().next();
        let is_name = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
        !is_name(before) && (word.ends_with('!') || !is_name(after))
    })
}

fn check_statics(source: &Source) -> Vec<Finding> {
    if !is_in(&source.path, PRODUCTION) {
        return vec![];
    }
    let is_static = |line: &str| {
        let line = line.trim_start();
        let line = line.strip_prefix("pub ").or_else(|| line.strip_prefix("pub(crate) ")).unwrap_or(line);
        let Some(rest) = line.strip_prefix("static ") else { return false };
        rest.starts_with("mut ") || CHANGING.iter().any(|word| rest.contains(word))
    };
    let lines = source.production().filter(|(_, line)| is_static(line));
    lines.map(|(line, _)| Finding::new(&source.path, line, "a static that changes: pass it as an argument")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines_of(findings: &[Finding]) -> Vec<usize> {
        findings.iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn banned_words_are_found_in_code_and_not_in_comments_texts_or_tests() {
        let text =
            "// println!\nfn f() { println!(\"x\") }\nlet a = \"dbg!\";\neprintln!();\n#[cfg(test)]\nmod tests {\n dbg!(1)\n}\n";
        assert_eq!(lines_of(&check_bans(&Source::new("crates/weir/src/a.rs", text))), [2]);
        assert_eq!(lines_of(&check_bans(&Source::new("crates/weir/src/main.rs", text))), [] as [usize; 0]);
        let clock = "let t = Instant::now();\nuse std::net::IpAddr;\n";
        assert_eq!(lines_of(&check_bans(&Source::new("crates/failover/src/a.rs", clock))), [1, 2]);
        assert_eq!(lines_of(&check_bans(&Source::new("crates/weir/src/a.rs", clock))), [] as [usize; 0]);
    }

    #[test]
    fn waits_without_a_condition_are_found_in_tests() {
        let text = "thread::sleep(a);\nstd::thread::park_timeout(a);\nwhile Instant::now() < end {\n}\nwhile begun.elapsed() < a {}\n\
                    assert!(begun.elapsed() < a);\nwait_until(b);\n";
        assert_eq!(lines_of(&check_waits(&Source::new("crates/weir/tests/e2e/a.rs", text))), [1, 2, 3, 5]);
        assert_eq!(lines_of(&check_waits(&Source::new("crates/weir/tests/support/time.rs", text))), [] as [usize; 0]);
        let none = Source::new("crates/weir/tests/support/time.rs", "wait_until(b);\n");
        assert_eq!(lines_of(&check_waits(&none)), [1], "an exception that is not needed");
        let product = "thread::sleep(a);\n#[cfg(test)]\nmod tests {\n    thread::sleep(a);\n}\n";
        assert_eq!(lines_of(&check_waits(&Source::new("crates/weir/src/a.rs", product))), [4]);
    }

    #[test]
    fn statics_that_change_are_found() {
        let text = "static A: &[u8] = b\"\";\npub static B: LazyLock<u8> = x;\nstatic mut C: u8 = 0;\n    static D: AtomicU8 = y;\nfn f(a: &'static str) {}\n";
        assert_eq!(lines_of(&check_statics(&Source::new("crates/weir/src/a.rs", text))), [2, 3, 4]);
    }
}
