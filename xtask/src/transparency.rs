//! `cargo xtask transparency`: compares sessions through Weir with direct connections, on each version of PostgreSQL and in
//! both protocols.
//!
//! A row is a test of `crates/weir/tests/e2e/transparent`. It plays its story on a direct connection and through Weir in
//! transaction pooling, while other clients keep taking the connection used last, and compares every message. There is no
//! second list of rows: the page has those that are in the sources, and a test checks that.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use crate::cargo::{cargo, describe, run_to_end};
use crate::{date, pg};

/// Folder of the rows, and the headings of the page in its order: a file's name and its subject.
const FOLDER: &str = "crates/weir/tests/e2e/transparent";
const GROUPS: [(&str, &str); 7] = [
    ("settings", "Settings and roles"),
    ("unseen", "Triggers and functions"),
    ("prepared", "Prepared statements"),
    ("kept", "State that cannot move"),
    ("messages", "Messages and pipelines"),
    ("ends", "Ends and cancels"),
    ("habits", "Habits of programs"),
];
const PAGE: &str = "docs/transparency.md";
/// All that Weir works with.
const VERSIONS: [u32; 6] = [13, 14, 15, 16, 17, 18];

/// How statements are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub enum Protocol {
    Simple,
    Extended,
}

impl Protocol {
    fn name(self) -> &'static str {
        match self {
            Protocol::Simple => "simple",
            Protocol::Extended => "extended",
        }
    }
}

/// Choice of versions and rows.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Major versions of PostgreSQL (comma separated), fetched when missing; without it 13 to 18
    #[arg(long, value_delimiter = ',')]
    pg: Vec<u32>,
    /// Only in this protocol; without it in both
    #[arg(long)]
    protocol: Option<Protocol>,
    /// Only rows whose name has this
    #[arg(long, default_value = "")]
    row: String,
}

/// A row: the heading it stands under, and the name of its test.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Row {
    group: &'static str,
    test: String,
}

impl Row {
    /// The test's name as a sentence.
    fn title(&self) -> String {
        let words = self.test.replace('_', " ");
        let mut letters = words.chars();
        let sentence =
            letters.next().map_or_else(String::new, |first| first.to_uppercase().collect::<String>() + letters.as_str());
        let names = [
            (" sql ", " SQL "),
            ("Sql ", "SQL "),
            ("Copy ", "COPY "),
            ("Two phase", "Two-phase"),
            ("A set ", "A SET "),
            ("Set config counts like set", "set_config() counts like SET"),
        ];
        names.iter().fold(sentence, |text, (word, name)| text.replace(word, name))
    }
}

/// Result of a row on one version in one protocol: none is as it should be.
type Results = BTreeMap<(Row, u32, Protocol), Option<String>>;

/// Plays all rows, prints the differences, and writes the page if nothing was left out. Error: something differs.
pub fn run(arguments: &Arguments, root: &Path) -> Result<()> {
    let rows = rows(root)?;
    run_to_end(&mut cargo(&["test", "--quiet", "-p", "weir", "--test", "e2e", "--no-run"]))?;
    let versions = if arguments.pg.is_empty() { VERSIONS.to_vec() } else { arguments.pg.clone() };
    let protocols = arguments.protocol.map_or(vec![Protocol::Simple, Protocol::Extended], |only| vec![only]);
    let mut results = Results::new();
    for version in &versions {
        for protocol in &protocols {
            let played = play(*version, *protocol, &arguments.row)?;
            let failed = played.values().filter(|difference| difference.is_some()).count();
            println!("transparency: PostgreSQL {version}, {} protocol: {} rows, {failed} differ", protocol.name(), played.len());
            for row in &rows {
                if let Some(outcome) = played.get(&format!("transparent::{}::{}", row.group, row.test)) {
                    results.insert((row.clone(), *version, *protocol), outcome.clone());
                }
            }
        }
    }
    let table = table(&rows, &versions, &results);
    println!("{table}");
    let differing: Vec<_> = results.iter().filter_map(|(key, outcome)| Some((key, outcome.as_ref()?))).collect();
    for ((row, version, protocol), difference) in &differing {
        println!("{} (PostgreSQL {version}, {} protocol):\n{difference}\n", row.title(), protocol.name());
    }
    ensure!(differing.is_empty(), "{} differ from a direct connection", differing.len());
    if versions == VERSIONS && arguments.protocol.is_none() && arguments.row.is_empty() {
        fs::write(root.join(PAGE), page(&table)).context(PAGE)?;
        println!("written: {PAGE}");
    }
    Ok(())
}

/// The rows in the sources, in the page's order. Error: a file there is under no heading.
fn rows(root: &Path) -> Result<Vec<Row>> {
    let folder = root.join(FOLDER);
    for entry in fs::read_dir(&folder).with_context(|| folder.display().to_string())? {
        let path: PathBuf = entry?.path();
        let name = path.file_stem().unwrap_or_default();
        ensure!(GROUPS.iter().any(|(group, _)| *group == name), "{}: no heading in xtask/src/transparency.rs", path.display());
    }
    let mut rows = Vec::new();
    for (group, _) in GROUPS {
        let text = fs::read_to_string(folder.join(format!("{group}.rs")))?;
        let mut lines = text.lines().peekable();
        while let Some(line) = lines.next() {
            if line == "#[test]"
                && let Some(rest) = lines.peek().and_then(|next| next.strip_prefix("fn "))
            {
                rows.push(Row { group, test: rest.split('(').next().unwrap_or_default().to_owned() });
            }
        }
    }
    Ok(rows)
}

/// Plays the rows on one version in one protocol: the tests' names, and the output of those that failed.
fn play(version: u32, protocol: Protocol, row: &str) -> Result<BTreeMap<String, Option<String>>> {
    let mut command: Command =
        cargo(&["test", "--quiet", "-p", "weir", "--test", "e2e", "--", "transparent::", "--format=pretty"]);
    command.env("WEIR_TEST_PG", version.to_string()).env("WEIR_PG_BIN", pg::fetch(version)?);
    command.env("WEIR_TEST_PROTOCOL", protocol.name()).env("RUST_BACKTRACE", "0").stdin(Stdio::null());
    let line = describe(&command);
    let output = command.output().with_context(|| format!("cannot run {line}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let mut played = outcomes(&text);
    if played.is_empty() {
        bail!("{line}: {}\n{text}{}", output.status, String::from_utf8_lossy(&output.stderr));
    }
    played.retain(|name, _| name.contains(row));
    Ok(played)
}

/// Reads the output of a test program: `test NAME ... ok` or `FAILED`, and below a heading the output of each that failed.
fn outcomes(text: &str) -> BTreeMap<String, Option<String>> {
    let mut outcomes = BTreeMap::new();
    for line in text.lines() {
        let Some((name, word)) = line.strip_prefix("test ").and_then(|rest| rest.split_once(" ... ")) else { continue };
        match word {
            "ok" => outcomes.insert(name.to_owned(), None),
            "FAILED" => outcomes.insert(name.to_owned(), Some(said_of(text, name))),
            _ => None,
        };
    }
    outcomes
}

fn said_of(text: &str, name: &str) -> String {
    let heading = format!("---- {name} stdout ----");
    let said = text.split_once(&heading).map_or("", |(_, rest)| rest);
    let own = said.lines().take_while(|line| !line.starts_with("---- ") && !line.starts_with("--- log of")).collect::<Vec<_>>();
    own.join("\n").trim().to_owned()
}

/// Rows by versions.
fn table(rows: &[Row], versions: &[u32], results: &Results) -> String {
    let mut text = String::new();
    for (group, heading) in GROUPS {
        let of_group: Vec<&Row> = rows.iter().filter(|row| row.group == group).collect();
        let numbers: String = versions.iter().map(|version| format!(" {version} |")).collect();
        let _ = write!(text, "## {heading}\n\n| as on a direct connection |{numbers}\n|---|{}\n", "---|".repeat(versions.len()));
        for row in of_group {
            let cells: String = versions.iter().map(|version| format!(" {} |", cell(row, *version, results))).collect();
            let _ = writeln!(text, "| {} |{cells}", row.title());
        }
        text.push('\n');
    }
    text.trim_end().to_owned() + "\n"
}

fn cell(row: &Row, version: u32, results: &Results) -> &'static str {
    let of = |protocol| results.get(&(row.clone(), version, protocol));
    match (of(Protocol::Simple), of(Protocol::Extended)) {
        (None, None) => "–",
        (None | Some(None), None | Some(None)) => "yes",
        (Some(Some(_)), Some(Some(_))) => "**no**",
        (Some(Some(_)), _) => "**no**, simple",
        (_, Some(Some(_))) => "**no**, extended",
    }
}

fn page(table: &str) -> String {
    format!(
        "# Transparency\n\n\
         Transaction pooling moves a client between server connections. The client must not notice. Each row of this page was compared with a direct\n\
         connection, by version of PostgreSQL. \"yes\" means that both gave the same messages, in the simple and in the extended protocol.\n\n\
         ## How to use this page\n\n\
         - **Turn it on**: `pool_mode = transaction` is the default. [Pooling](pooling.md) says how to size the pools.\n\
         - **Find a habit of your program**: look for its row below. The statements of each row are in `{FOLDER}`.\n\
         - **See which sessions are pinned**: `SHOW pool_pools` has the reasons, and [Pinned sessions](pooling.md#pinned-sessions) explains them.\n\
         - **Known differences**: [a list](pooling-details.md#what-differs-from-a-direct-connection), and [Known gaps](known-gaps.md).\n\
         - **Give a program a server connection of its own**: `limit_override_list = 'user=legacy: pool_mode=session'`. Its statements go to the primary.\n\n\
         No row may say \"no\": a difference fails the tests of this project.\n\n\
         ## How it is measured\n\n\
         `cargo xtask transparency` wrote this page ({}). It plays each row on a direct connection and through Weir, and compares every\n\
         message. Between two statements other clients take the server connections at rest and look for leftovers. They then release another one, so\n\
         that the session moves from one to the next.\n\n\
         {table}",
        date::today()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_the_rows_of_the_sources() {
        let root = crate::root();
        let page = fs::read_to_string(root.join(PAGE)).unwrap();
        let lines = page.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| as on"));
        let shown: Vec<&str> = lines.map(|line| line.split('|').nth(1).unwrap_or_default().trim()).collect();
        let rows: Vec<String> = rows(root).unwrap().iter().map(Row::title).collect();
        assert!(rows.len() > 30, "{rows:?}");
        assert_eq!(shown, rows, "run `cargo xtask transparency`");
        assert!(!page.contains("**no**"), "{page}");
    }

    #[test]
    fn what_a_test_program_says_is_read() {
        let text = "running 2 tests\ntest transparent::kept::a ... ok\ntest transparent::ends::b ... FAILED\n\nfailures:\n\n\
                    ---- transparent::ends::b stdout ----\n\nleft: 1\nright: 2\n--- log of the proxy on port 1:\nx\n---\n\n";
        let read = outcomes(text);
        assert_eq!(read["transparent::kept::a"], None);
        assert_eq!(read["transparent::ends::b"].as_deref(), Some("left: 1\nright: 2"));
        let row = Row { group: "ends", test: "b_is_so".into() };
        let results = Results::from([
            ((row.clone(), 15, Protocol::Simple), Some("x".into())),
            ((row.clone(), 15, Protocol::Extended), None),
        ]);
        let table = table(&[row], &[15], &results);
        assert!(
            table
                .contains("## Ends and cancels\n\n| as on a direct connection | 15 |\n|---|---|\n| B is so | **no**, simple |\n"),
            "{table}"
        );
    }
}
