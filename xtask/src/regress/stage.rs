//! One run of the suite: a server of its own, Weir before it or not, the suite's driver.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use weir_demo::{Cluster, Options};

use super::noise::{self, Noise};
use super::sources::Suite;
use super::translator::Translator;
use super::{PoolMode, Protocol};
use crate::process::{self, Account};
use crate::proxy::Proxy;

const DATABASE: &str = "regression";
/// A run takes about a minute on two cores; through Weir, with other clients and on a busy machine, many times that.
const RUN_LIMIT: Duration = Duration::from_secs(20 * 60);
/// Tests that make objects for the others.
const FIRST: [&str; 2] = ["test_setup", "create_index"];

/// The suite's answers hang on these. Without autovacuum, plans and sizes are the same in every run.
const SETTINGS: [(&str, &str); 3] = [("autovacuum", "off"), ("max_prepared_transactions", "2"), ("synchronous_commit", "on")];

/// Settings that the driver makes when it makes the database itself.
const DATABASE_SETTINGS: [&str; 6] = [
    "lc_messages TO 'C'",
    "lc_monetary TO 'C'",
    "lc_numeric TO 'C'",
    "lc_time TO 'C'",
    "bytea_output TO 'hex'",
    "timezone_abbreviations TO 'Default'",
];

/// How the tests reach the server.
pub enum Way {
    Direct,
    Weir { program: PathBuf, mode: PoolMode },
}

/// Files of a run.
pub struct Results {
    folder: PathBuf,
    /// Tests in the order of their names.
    pub tests: Vec<String>,
    pub seconds: u64,
}

impl Results {
    /// Output of a test; missing if it never ended.
    pub fn file(&self, test: &str) -> PathBuf {
        self.folder.join(format!("{test}.out"))
    }
}

/// Runs the tests, or all of the schedule if none are named, and puts the results into `folder`.
pub fn run(suite: &Suite, way: &Way, protocol: Protocol, tests: &[String], folder: &Path) -> Result<Results> {
    let account = Account::find()?;
    let cluster = start_cluster(suite)?;
    let work = cluster.dir().join("suite");
    copy_tree(&suite.libraries, &work.join("lib"))?;
    let (port, proxy) = match way {
        Way::Direct => (cluster.primary().port(), None),
        Way::Weir { program, mode } => {
            let pool_size = noise::CONNECTIONS + 1;
            let more = format!("pool_mode = {}\npool_size = {pool_size}\nworker_threads = 1\n", mode.name());
            let proxy = Proxy::start(program, &cluster, &more)?;
            (proxy.port(), Some(proxy))
        }
    };
    let translator = if protocol == Protocol::Extended { Some(Translator::start(port)?) } else { None };
    let psql_port = translator.as_ref().map_or(port, |translator| translator.port);
    let is_moved = matches!(way, Way::Weir { mode: PoolMode::Transaction, .. });
    let begin = Instant::now();
    let (mut turns, mut names) = (0, Vec::new());
    for part in parts(suite, tests) {
        make_database(&cluster, &part.database)?;
        let noise = if is_moved { Some(Noise::start(port, &part.database)?) } else { None };
        let out = drive(suite, &part, &work, psql_port, account)?;
        if let Some(noise) = noise {
            turns += noise.end()?;
        }
        copy_tree(&out.join("results"), &folder.join(&part.prefix))?;
        hide_place(&folder.join(&part.prefix), cluster.dir())?;
        names.extend(results_in(&folder.join(&part.prefix))?.into_iter().map(|name| part.prefix.clone() + &name));
    }
    let seconds = begin.elapsed().as_secs();
    if is_moved {
        println!("regress: other clients took a server connection {turns} times");
    }
    if let Some(proxy) = proxy {
        proxy.end(folder)?;
    }
    ensure!(!names.is_empty(), "the suite's driver ran no test: {}", folder.display());
    Ok(Results { folder: folder.to_owned(), tests: names, seconds })
}

/// Some errors name files of the server. Runs at the same time have different folders, whose names have the same length.
fn hide_place(results: &Path, place: &Path) -> Result<()> {
    let place = place.to_str().context("the servers' folder has a name that is not UTF-8")?;
    for entry in fs::read_dir(results)? {
        let path = entry?.path();
        if path.extension().is_none_or(|extension| extension != "out") {
            continue;
        }
        // Some tests print bytes of other encodings.
        let text = fs::read(&path)?;
        if let Some(hidden) = without(&text, place.as_bytes()) {
            fs::write(&path, hidden)?;
        }
    }
    Ok(())
}

/// `text` with dashes over each `word`; `None` if it holds none.
fn without(text: &[u8], word: &[u8]) -> Option<Vec<u8>> {
    let (mut hidden, mut at, mut found) = (text.to_vec(), 0, false);
    while at + word.len() <= text.len() {
        let end = at + word.len();
        if text[at..end] == *word {
            hidden[at..end].fill(b'-');
            (at, found) = (end, true);
        } else {
            at += 1;
        }
    }
    found.then_some(hidden)
}

/// One suite, to be run by the driver in one go.
struct Part<'a> {
    database: String,
    /// Prefix of its tests' names: nothing, or the module and a slash.
    prefix: String,
    input: &'a Path,
    /// None: those of the schedule.
    tests: Vec<&'a str>,
}

/// The parts to run: all, or those among `wanted`.
fn parts<'a>(suite: &'a Suite, wanted: &'a [String]) -> Vec<Part<'a>> {
    let mut parts = Vec::new();
    let is_of_main = |test: &&str| !test.contains('/') && !FIRST.contains(test);
    let of_main: Vec<&str> = wanted.iter().map(String::as_str).filter(is_of_main).collect();
    if wanted.is_empty() || !of_main.is_empty() {
        let first = FIRST.into_iter().filter(|_| !wanted.is_empty());
        let tests = first.chain(of_main).collect();
        parts.push(Part { database: DATABASE.to_owned(), prefix: String::new(), input: &suite.input, tests });
    }
    for module in &suite.modules {
        let prefix = format!("{}/", module.name);
        if wanted.is_empty() || wanted.iter().any(|test| test.starts_with(&prefix)) {
            let tests = module.tests.iter().map(String::as_str).collect();
            parts.push(Part { database: format!("{DATABASE}_{}", module.name), prefix, input: &module.input, tests });
        }
    }
    parts
}

/// Names of the tests that left a result in a folder, sorted.
fn results_in(folder: &Path) -> Result<Vec<String>> {
    let names = fs::read_dir(folder)?.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut tests: Vec<String> = names.filter_map(|name| name.strip_suffix(".out").map(str::to_owned)).collect();
    tests.sort();
    Ok(tests)
}

fn start_cluster(suite: &Suite) -> Result<Cluster> {
    let extra_conf = SETTINGS.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
    let cluster = Cluster::start(Options { programs: Some(suite.programs.clone()), extra_conf, ..Options::default() })?;
    Ok(cluster)
}

fn make_database(cluster: &Cluster, name: &str) -> Result<()> {
    cluster.primary().query(&format!("CREATE DATABASE {name} TEMPLATE template0"))?;
    for setting in DATABASE_SETTINGS {
        cluster.primary().query(&format!("ALTER DATABASE {name} SET {setting}"))?;
    }
    Ok(())
}

/// Copies a part to a place that the server may enter, since it reads and writes files there. Returns the folders of input and
/// output.
fn lay_out(part: &Part<'_>, work: &Path, account: Account) -> Result<(PathBuf, PathBuf)> {
    let (input, out) = (work.join(&part.database).join("in"), work.join(&part.database).join("out"));
    fs::create_dir_all(out.join("results"))?;
    fs::create_dir_all(out.join("testtablespace"))?;
    copy_tree(part.input, &input)?;
    for folder in [&out, &out.join("results"), &out.join("testtablespace"), &input.join("data")] {
        if folder.exists() {
            account.own(folder)?;
        }
    }
    Ok((input, out))
}

pub fn copy_tree(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_tree(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), &target).with_context(|| format!("cannot copy to {}", target.display()))?;
        }
    }
    Ok(())
}

/// Runs the driver, one test at a time. It fails when a result differs from the one that PostgreSQL's developers expect of this
/// very version; here only runs are compared with each other. Returns the folder of its output.
fn drive(suite: &Suite, part: &Part<'_>, work: &Path, port: u16, account: Account) -> Result<PathBuf> {
    let (input, out) = lay_out(part, work, account)?;
    let mut command = Command::new(&suite.driver);
    let path = |option: &str, path: &Path| format!("--{option}={}", path.display());
    command.arg(path("inputdir", &input)).arg(path("outputdir", &out));
    command.arg(path("dlpath", &work.join("lib"))).arg(path("bindir", suite.programs.bin()));
    command.args(["--use-existing", "--host=127.0.0.1", "--user=postgres", "--max-connections=1"]);
    command.arg(format!("--dbname={}", part.database)).arg(format!("--port={port}"));
    if part.tests.is_empty() {
        command.arg(path("schedule", &input.join("parallel_schedule")));
    } else {
        command.args(&part.tests);
    }
    // The translator speaks no TLS. Modules find their data from the folder the driver runs in.
    account.apply(command.env("PGSSLMODE", "disable").current_dir(&input));
    let output = process::run(&mut command, RUN_LIMIT)?;
    // Its own verdict of each test is a line of this.
    fs::write(out.join("results/driver.log"), output.stdout + &output.stderr)?;
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_of_a_run_is_not_in_its_results() {
        let text = b"file /tmp/weir-1/a, \xff /tmp/weir-1";
        assert_eq!(without(text, b"/tmp/weir-1").unwrap(), b"file -----------/a, \xff -----------");
        assert_eq!(without(text, b"/tmp/weir-2"), None);
        assert_eq!(without(b"", b"/tmp"), None);
    }
}
