//! `cargo xtask mutants`: changes the code of the pure crates at random places, one at a time, and tells which changes no test notices.
//!
//! cargo-mutants makes the changes and runs the tests. Here: the sample, the copy of the workspace that is changed, and a table. A change that the
//! tests of its own crate do not notice is tried again with those of sessions and the simulator, which take longer.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// The crates that decide and do no IO, by the folders they are in.
const PURE: [&str; 11] =
    ["cache", "catalog", "config", "failover", "group", "group-failover", "import", "session", "shard", "sql", "wire"];

/// Packages with the tests of the second round.
const FAR: [&str; 2] = ["weir-session", "weir-sim"];

/// Left out: struct expressions with a field less, which are tables in most places. cargo-mutants 27 makes them whatever filters by name say, so
/// that only files are told which hold a change that was drawn.
const OF_TABLES: &str = ": delete field ";

/// Longest time for the tests of one change where no run without changes has told how long they take, in seconds.
const TIMEOUT_S: &str = "600";

#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Changes to try, drawn at random over all crates
    #[arg(long, default_value_t = 60)]
    sample: usize,
    /// Draws another sample; the same number draws the same one, as long as the code is the same
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Only these crates, by their folders in `crates`
    #[arg(long, value_delimiter = ',')]
    crates: Vec<String>,
    /// Only changes with this in their names, as `failover/src` or `Catalog::touches`
    #[arg(long, default_value = "")]
    only: String,
    /// Leaves out the second round: the tests of sessions and the simulator
    #[arg(long)]
    near: bool,
}

/// The end of one change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Outcome {
    /// It does not compile.
    Unviable,
    /// A test of its crate fails, or does not end.
    Caught,
    /// Only a test of the second round does.
    CaughtFar,
    Missed,
}

/// `root`: the workspace. `target`: cargo's folder for its output.
pub fn run(arguments: &Arguments, root: &Path, target: &Path) -> Result<()> {
    let crates: Vec<&str> = PURE.into_iter().filter(|name| is_wanted(&arguments.crates, name)).collect();
    if let Some(unknown) = arguments.crates.iter().find(|name| !PURE.contains(&name.as_str())) {
        bail!("{unknown} is none of the pure crates {}", PURE.join(", "));
    }
    let tree = Tree::copy(root, target)?;
    let all: Vec<String> = tree.list(&crates)?.into_iter().filter(|name| name.contains(&arguments.only)).collect();
    let chosen = sample(&all, arguments.sample, arguments.seed);
    println!("{} of {} changes, seed {}", chosen.len(), all.len(), arguments.seed);
    let mut outcomes: BTreeMap<String, Outcome> = BTreeMap::new();
    for name in crates {
        let own: Vec<String> = chosen.iter().filter(|change| crate_of(change) == Some(name)).cloned().collect();
        if own.is_empty() {
            continue;
        }
        outcomes.extend(tree.try_all(&own, &[&format!("weir-{name}")], Baseline::Run)?);
        let left: Vec<String> = own.into_iter().filter(|change| outcomes.get(change) == Some(&Outcome::Missed)).collect();
        if !arguments.near && !left.is_empty() {
            let far = tree.try_all(&left, &FAR, Baseline::Skip)?;
            outcomes.extend(far.into_iter().map(|(change, outcome)| (change, outcome.max(Outcome::CaughtFar))));
        }
        print!("{}", table(&outcomes));
    }
    let missed: Vec<&String> =
        outcomes.iter().filter(|(_, outcome)| **outcome == Outcome::Missed).map(|(name, _)| name).collect();
    println!("missed: {}", missed.len());
    missed.iter().for_each(|name| println!("    {name}"));
    Ok(())
}

fn is_wanted(wanted: &[String], name: &str) -> bool {
    wanted.is_empty() || wanted.iter().any(|one| one == name)
}

/// The folder in `crates` that a change is in.
fn crate_of(change: &str) -> Option<&str> {
    change.strip_prefix("crates/")?.split('/').next()
}

/// A line for each crate, and one for all.
fn table(outcomes: &BTreeMap<String, Outcome>) -> String {
    let mut rows: BTreeMap<&str, [usize; 4]> = BTreeMap::new();
    for (change, outcome) in outcomes {
        for row in [crate_of(change).unwrap_or("?"), "together"] {
            rows.entry(row).or_default()[*outcome as usize] += 1;
        }
    }
    let mut text =
        format!("{:10}{:>8}{:>12}{:>12}{:>8}{:>10}\n", "crate", "viable", "by its own", "by others", "missed", "caught");
    let of_all = rows.remove("together");
    for (name, [_, near, far, missed]) in rows.into_iter().chain(of_all.map(|row| ("together", row))) {
        let viable = near + far + missed;
        let percent = (near + far) * 100 / viable.max(1);
        text += &format!("{name:10}{viable:>8}{near:>12}{far:>12}{missed:>8}{percent:>9}%\n");
    }
    text
}

/// Draws that many of a list, in the list's order.
fn sample(all: &[String], count: usize, seed: u64) -> Vec<String> {
    let mut places: Vec<usize> = (0..all.len()).collect();
    let mut state = seed;
    let count = count.min(places.len());
    for at in 0..count {
        // The rest of the division favours early places by less than one in 10^14.
        let other = at + (next(&mut state) % (places.len() - at) as u64) as usize;
        places.swap(at, other);
    }
    places.truncate(count);
    places.sort_unstable();
    places.into_iter().map(|at| all[at].clone()).collect()
}

/// SplitMix64, by Sebastiano Vigna.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// The run of the tests without a change, which tells how long they may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Baseline {
    Run,
    Skip,
}

/// A copy of the workspace as it is, with an output folder of its own that later runs use again. Changes are made there, so that the sources stay as
/// they are when a run is stopped.
struct Tree {
    folder: PathBuf,
    output: PathBuf,
}

impl Tree {
    fn copy(root: &Path, target: &Path) -> Result<Tree> {
        let own = target.join("mutants");
        let tree = Tree { folder: own.join("tree"), output: own.join("target") };
        let listed = Command::new("git")
            .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
            .current_dir(root)
            .output()
            .context("cannot run git")?;
        if !listed.status.success() {
            bail!("git ls-files: {}", String::from_utf8_lossy(&listed.stderr).trim());
        }
        let files: Vec<String> =
            String::from_utf8(listed.stdout)?.split('\0').filter(|path| !path.is_empty()).map(str::to_owned).collect();
        tree.remove_others(&files)?;
        for file in &files {
            tree.copy_file(root, Path::new(file))?;
        }
        Ok(tree)
    }

    /// Files that are no longer in the workspace would still be compiled.
    fn remove_others(&self, files: &[String]) -> Result<()> {
        let known: BTreeSet<PathBuf> = files.iter().map(|file| self.folder.join(file)).collect();
        let mut folders = vec![self.folder.join("crates")];
        while let Some(folder) = folders.pop() {
            let Ok(entries) = std::fs::read_dir(&folder) else { continue };
            for entry in entries {
                let path = entry?.path();
                if path.is_dir() {
                    folders.push(path);
                } else if !known.contains(&path) {
                    std::fs::remove_file(&path).with_context(|| format!("cannot remove {}", path.display()))?;
                }
            }
        }
        Ok(())
    }

    /// A file that is there already as it is stays, since cargo looks at times.
    fn copy_file(&self, root: &Path, file: &Path) -> Result<()> {
        let (from, to) = (root.join(file), self.folder.join(file));
        let Ok(content) = std::fs::read(&from) else { return Ok(()) };
        if std::fs::read(&to).is_ok_and(|there| there == content) {
            return Ok(());
        }
        let folder = to.parent().context("a file is in a folder")?;
        std::fs::create_dir_all(folder)
            .and_then(|()| std::fs::write(&to, content))
            .with_context(|| format!("cannot write {}", to.display()))
    }

    fn mutants(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        command.args(["mutants", "--no-config", "--colors=never"]);
        command
            .args(arguments)
            .current_dir(&self.folder)
            .env("CARGO_TARGET_DIR", &self.output)
            .env("CARGO_PROFILE_DEV_DEBUG", "0");
        command
    }

    /// The names of all changes that can be made.
    fn list(&self, crates: &[&str]) -> Result<Vec<String>> {
        let mut command = self.mutants(&["--list"]);
        command.args(crates.iter().map(|name| format!("--package=weir-{name}")));
        let listed = command.output().context("cannot run cargo mutants")?;
        if !listed.status.success() {
            let said = String::from_utf8_lossy(&listed.stderr);
            bail!("cargo-mutants is missing or fails; `cargo install cargo-mutants --locked` installs it: {}", said.trim());
        }
        let text = String::from_utf8(listed.stdout)?;
        Ok(text.lines().filter(|name| !name.contains(OF_TABLES)).map(str::to_owned).collect())
    }

    /// Makes changes one at a time, and runs the tests of these packages for each.
    fn try_all(&self, changes: &[String], packages: &[&str], baseline: Baseline) -> Result<Vec<(String, Outcome)>> {
        let own = crate_of(&changes[0]).context("a change is in a crate")?;
        let package = format!("--package=weir-{own}");
        let mut command = self.mutants(&["--in-place", "--cap-lints=true", "--no-shuffle", &package]);
        if baseline == Baseline::Skip {
            command.args(["--baseline=skip", "--timeout", TIMEOUT_S]);
        }
        command.arg(format!("--test-package={}", packages.join(",")));
        command.args(changes.iter().map(|change| format!("--re=^{}$", escaped(change))));
        let files: BTreeSet<&str> = changes.iter().filter_map(|change| change.split(':').next()).collect();
        command.args(files.into_iter().map(|file| format!("--file={file}")));
        // Exit codes tell of missed changes; that is no failure here. The results stand in files.
        let found = self.folder.join("mutants.out");
        let _ = std::fs::remove_dir_all(&found);
        let status = command.stdin(Stdio::null()).status().context("cannot run cargo mutants")?;
        if !matches!(status.code(), Some(0 | 2 | 3)) {
            bail!("cargo mutants for {own}: {status}");
        }
        let mut outcomes = Vec::new();
        for (file, outcome) in [
            ("caught.txt", Outcome::Caught),
            ("timeout.txt", Outcome::Caught),
            ("missed.txt", Outcome::Missed),
            ("unviable.txt", Outcome::Unviable),
        ] {
            let path = found.join(file);
            let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
            let drawn = text.lines().filter(|line| changes.iter().any(|change| change == line));
            outcomes.extend(drawn.map(|line| (line.to_owned(), outcome)));
        }
        Ok(outcomes)
    }
}

/// A text as a regular expression that matches nothing else.
fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for c in text.chars() {
        if !(c.is_alphanumeric()
            || matches!(c, ' ' | '_' | '/' | ':' | '<' | '>' | '=' | ',' | '\'' | '"' | '!' | '@' | '%' | ';'))
        {
            escaped.push('\\');
        }
        escaped.push(c);
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(count: usize) -> Vec<String> {
        (0..count).map(|at| format!("crates/{}/src/a.rs:{at}:1: replace + with -", PURE[at % PURE.len()])).collect()
    }

    #[test]
    fn a_seed_draws_the_same_changes_and_none_twice() {
        let all = names(1000);
        let drawn = sample(&all, 100, 7);
        assert_eq!(drawn, sample(&all, 100, 7));
        assert_ne!(drawn, sample(&all, 100, 8));
        assert!(drawn.is_sorted_by_key(|name| all.iter().position(|one| one == name)));
        let once: BTreeSet<&String> = drawn.iter().collect();
        assert_eq!(once.len(), 100);
        assert_eq!(sample(&all, 5000, 7), all, "a sample of all is all");
        assert_eq!(sample(&[], 5, 7), Vec::<String>::new());
    }

    #[test]
    fn the_table_counts_what_compiled_by_crate() {
        let all = names(4);
        let kinds = [Outcome::Caught, Outcome::CaughtFar, Outcome::Missed, Outcome::Unviable];
        let mut outcomes: BTreeMap<String, Outcome> = all.iter().cloned().zip(kinds).collect();
        outcomes.insert("crates/config/src/b.rs:1:1: replace f with ()".into(), Outcome::Caught);
        let lines: Vec<Vec<String>> =
            table(&outcomes).lines().map(|line| line.split_whitespace().map(str::to_owned).collect()).collect();
        let row = |name: &str| lines.iter().find(|line| line[0] == name).unwrap()[1..].join(" ");
        assert_eq!(row("cache"), "1 1 0 0 100%");
        assert_eq!(row("catalog"), "1 0 1 0 100%");
        assert_eq!(row("config"), "2 1 0 1 50%");
        assert_eq!(row("failover"), "0 0 0 0 0%");
        assert_eq!(row("together"), "4 2 1 1 75%");
    }

    #[test]
    fn a_name_matches_itself_only() {
        assert_eq!(
            escaped("a.rs:1:2: replace f -> (u8, [T; 2]) with ()"),
            r"a\.rs:1:2: replace f \-> \(u8, \[T; 2\]\) with \(\)"
        );
        assert_eq!(escaped("replace && with ||"), r"replace \&\& with \|\|");
    }
}
