//! `cargo xtask test`: the checks, then every test once, on one version of PostgreSQL. With `--all` the second version, the lists on each version,
//! PostgreSQL's own suite and the fuzz targets follow.
//!
//! A line that begins with `==` tells each suite's end, how long it took, and how many are left. The last line of the output is `N passed, N failed`, summed over cargo's own results. A failure that is no test's (a
//! check, a build, a fuzz target) shows in the exit code and in the line before.

mod progress;
mod unsteady;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail};

use crate::at_once::at_once;
use crate::cargo::{cargo, describe, run_to_end};
use crate::{check, regress};
use progress::Progress;
use unsteady::{Failure, failed_test};

/// Tells the end-to-end tests which major version of PostgreSQL they run on.
const VERSION_VARIABLE: &str = "WEIR_TEST_PG";
/// Variable that chooses the system calls of the proxy in tests.
const IO_VARIABLE: &str = "WEIR_TEST_IO";
/// Tells the matrix of configurations which rows to run.
const MATRIX_VARIABLE: &str = "WEIR_MATRIX";
/// Tells test programs how many tests to run at the same time.
const THREADS_VARIABLE: &str = "RUST_TEST_THREADS";
/// Most tests wait for servers, and take a tenth of a core.
const TESTS_PER_CORE: usize = 3;
/// The newest version of PostgreSQL that can be fetched.
const NEWEST: u32 = 18;
/// The oldest one Weir works with.
const OLDEST: u32 = 13;
/// Tells `weir-demo` where that version's programs are.
const PROGRAMS_VARIABLE: &str = "WEIR_PG_BIN";

/// Choice of versions and tests.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Major versions of PostgreSQL (comma separated), fetched when missing; without it tests run on the newest installed one
    #[arg(long, value_delimiter = ',')]
    pg: Vec<u32>,
    /// Then the proxy's tests once more on version 18, the lists of built-in functions on each version, PostgreSQL's own suite, and
    /// the fuzz targets; what cannot be fetched or is not installed is named at the end
    #[arg(long)]
    all: bool,
    /// Seconds for each fuzz target
    #[arg(long, default_value_t = 10, requires = "all")]
    fuzz_seconds: u32,
    /// Minutes in which the parts of `--all` must end by their usual time; one that would not is left out, and named at the end
    #[arg(long, requires = "all")]
    minutes: Option<u64>,
    /// Leave out what `cargo xtask check` does
    #[arg(long)]
    no_check: bool,
    /// Given to the test programs, for example a part of a test's name
    #[arg(last = true)]
    rest: Vec<String>,
}

/// The time in which the parts of `--all` must end.
struct TimeBudget {
    started: Instant,
    minutes: Option<u64>,
}

impl TimeBudget {
    /// True if a part that takes about `minutes` may begin. Those of the callers are of a slow machine.
    fn has_room(&self, minutes: u64, now: Instant) -> bool {
        let taken = now.duration_since(self.started).as_secs() / 60;
        self.minutes.is_none_or(|budget| taken + minutes <= budget)
    }

    /// As `has_room`, now. A part that is left out is named.
    fn lets_begin(&self, part: &str, minutes: u64, summary: &mut Summary) -> bool {
        let has_room = self.has_room(minutes, Instant::now());
        if !has_room {
            summary.lines.push(format!("left out: {part}: the time is over (--minutes)"));
        }
        has_room
    }
}

/// Runs all; a failure of one part does not keep the others from running.
pub fn run(arguments: &Arguments, root: &Path) -> Result<()> {
    let budget = TimeBudget { started: Instant::now(), minutes: arguments.minutes };
    let mut failed: Vec<String> = Vec::new();
    let mut summary = Summary::default();
    if !arguments.no_check
        && let Err(error) = check::run_without_tests(root)
    {
        println!("{error:#}");
        failed.push("check".to_owned());
    }
    let versions: Vec<Option<u32>> =
        if arguments.pg.is_empty() { vec![None] } else { arguments.pg.iter().copied().map(Some).collect() };
    for version in versions {
        let name = version.map_or("tests".to_owned(), |version| format!("tests on PostgreSQL {version}"));
        summary.lines.push(format!("{name}:"));
        if let Err(error) = all_tests(version, &["--workspace"], &arguments.rest, &mut summary) {
            println!("{error:#}");
            failed.push(name);
        }
    }
    if arguments.all {
        rest_of_all(arguments, root, &budget, &mut summary, &mut failed);
    }
    println!("\nsummary");
    summary.lines.iter().for_each(|line| println!("{line}"));
    if !failed.is_empty() {
        println!("failed: {}", failed.join(", "));
    }
    println!("{} passed, {} failed", summary.passed, summary.failed);
    if !failed.is_empty() {
        bail!("failed: {}", failed.join(", "));
    }
    Ok(())
}

/// The part that `--all` adds.
fn rest_of_all(arguments: &Arguments, root: &Path, budget: &TimeBudget, summary: &mut Summary, failed: &mut Vec<String>) {
    if arguments.pg.is_empty() && budget.lets_begin("a second version of PostgreSQL", 20, summary) {
        newest_too(&arguments.rest, summary, failed);
    }
    if arguments.pg.is_empty() && arguments.rest.is_empty() {
        if budget.lets_begin("lists of built-in functions on each version", 2, summary) {
            lists_on_all(summary, failed);
        }
        if budget.lets_begin("PostgreSQL's regression suite", 4, summary) {
            postgres_own(summary, failed);
        }
    }
    if !budget.lets_begin("fuzz targets", 5, summary) {
        return;
    }
    if let Err(error) = fuzz(root, arguments.fuzz_seconds, summary) {
        println!("{error:#}");
        failed.push("fuzz".to_owned());
    }
}

/// Lines for the end.
#[derive(Default)]
struct Summary {
    lines: Vec<String>,
    passed: u32,
    failed: u32,
}

impl Summary {
    /// Adds another one behind this.
    fn add(&mut self, other: Summary) {
        self.lines.extend(other.lines);
        self.passed += other.passed;
        self.failed += other.failed;
    }

    /// Adds cargo's result of one test program.
    fn add_result(&mut self, program: &str, line: &str) {
        self.lines.push(format!("  {program}: {line}"));
        self.passed += count_of(line, "passed");
        self.failed += count_of(line, "failed");
    }
}

/// The number before a word: 3 in `test result: ok. 3 passed; 0 failed; ...`.
fn count_of(line: &str, word: &str) -> u32 {
    let words: Vec<&str> = line.split([' ', ';']).filter(|word| !word.is_empty()).collect();
    let pair = words.windows(2).find(|pair| pair[1] == word);
    pair.and_then(|pair| pair[0].parse().ok()).unwrap_or(0)
}

/// The programs of tests before servers, for versions of PostgreSQL beside the one that all tests run on; clients' drivers meet that one alone. All packages are named with them: a
/// choice of some has other features, and cargo would build everything again.
const BEFORE_SERVERS: [&str; 8] = [
    "--workspace",
    "--test=differential",
    "--test=e2e",
    "--test=hostile_client",
    "--test=matrix",
    "--test=no_alloc",
    "--test=random_sql",
    "--test=partitions",
];
/// Modules of end-to-end tests in which no server of PostgreSQL says anything that its version could change; those of stores are long
/// histories over memcached and Redis, those of groups are about proxies, but for `failover::grouped`; others are about Weir's own commands, pages,
/// files, limits and choices, about servers and clients that hang, are cut off or hostile, about the steps of a failover that Weir decides
/// by itself, and about the way of rows to shards. They are run once.
const SAME_EVERYWHERE: [&str; 63] = [
    "etcd::",
    "store_cluster::",
    "store_faults::",
    "store_tls::",
    "stores::",
    "agent::",
    "causal_modes::",
    "causal_pools::",
    "choice::",
    "commands::",
    "console::",
    "control::",
    "dashboard_api::",
    "dashboard_browser::",
    "databases::",
    "demo_shards::",
    "failover::cuts::",
    "failover::faults::",
    "failover::group_clients::",
    "failover::group_configurations::",
    "failover::group_frozen::",
    "failover::group_operators::",
    "failover::group_takeovers::",
    "failover::hosts::",
    "failover::late::",
    "failover::names::",
    "failover::parameters::",
    "failover::strangers::",
    "failover::told::",
    "failover_clients::",
    "files::",
    "floods::",
    "guesses::",
    "hanging::",
    "hba::",
    "hba_random::",
    "hostile::",
    "hung::",
    "import::",
    "ldap::",
    "limits::",
    "logs::",
    "malformed::",
    "monitoring::",
    "network::",
    "pages::",
    "pam::",
    "pcp::",
    "readiness::",
    "room::",
    "salts::",
    "shard_batches::",
    "shard_command::",
    "shard_copy::",
    "shard_returning::",
    "shard_savepoints::",
    "show::",
    "signals::",
    "statement_statistics::",
    "switchover::undo::",
    "switchover::walk::",
    "tutorials::",
    "visibility::",
];
/// The tests of lists.
const LISTS: [&str; 2] = ["--workspace", "--test=e2e"];

/// Runs the proxy's tests on the newest version once more. A machine that cannot fetch it is told so, and that is no failure.
fn newest_too(rest: &[String], summary: &mut Summary, failed: &mut Vec<String>) {
    if let Err(error) = crate::pg::fetch(NEWEST) {
        summary.lines.push(format!("tests of the proxy on PostgreSQL {NEWEST}: left out, it cannot be fetched: {error:#}"));
        return;
    }
    let name = format!("tests of the proxy on PostgreSQL {NEWEST}");
    summary.lines.push(format!("{name}:"));
    let mut rest = rest.to_vec();
    // A caller who names tests wants all that have this name.
    if rest.is_empty() {
        rest.extend(SAME_EVERYWHERE.iter().flat_map(|module| ["--skip".to_owned(), module.to_string()]));
    }
    if let Err(error) = all_tests(Some(NEWEST), &BEFORE_SERVERS, &rest, summary) {
        println!("{error:#}");
        failed.push(name);
    }
}

/// Holds the lists of PostgreSQL's own objects against each version between the oldest and the newest: the tests of
/// `e2e/builtin.rs`, and those of names that are functions on some versions.
fn lists_on_all(summary: &mut Summary, failed: &mut Vec<String>) {
    let versions: Vec<u32> = (OLDEST..NEWEST).collect();
    for (own, own_failed) in at_once(&versions, |version| lists_on(*version)) {
        summary.add(own);
        failed.extend(own_failed);
    }
}

/// The tests of lists on one version, and its name if they failed.
fn lists_on(version: u32) -> (Summary, Option<String>) {
    let mut summary = Summary::default();
    let name = format!("lists of built-in functions on PostgreSQL {version}");
    if let Err(error) = crate::pg::fetch(version) {
        summary.lines.push(format!("{name}: left out, it cannot be fetched: {error:#}"));
        return (summary, None);
    }
    summary.lines.push(format!("{name}:"));
    let of_lists = ["builtin::".to_owned(), "later_syntax::".to_owned()];
    let result = all_tests(Some(version), &LISTS, &of_lists, &mut summary);
    let failed = result.is_err().then(|| name.clone());
    if let Err(error) = result {
        println!("{name}: {error:#}");
    }
    (summary, failed)
}

/// Runs PostgreSQL's own suite through the proxy. A machine that cannot fetch it is told so, and that is no failure.
fn postgres_own(summary: &mut Summary, failed: &mut Vec<String>) {
    let name = "PostgreSQL's regression suite through the proxy";
    let suite = match regress::prepare() {
        Ok(suite) => suite,
        Err(error) => return summary.lines.push(format!("{name}: left out: {error:#}")),
    };
    let outcomes = regress::compare(&suite, &regress::Arguments::default()).unwrap_or_else(|error| {
        println!("{error:#}");
        failed.push(name.to_owned());
        Vec::new()
    });
    for outcome in outcomes {
        let regress::Outcome { name: way, passed, failed: differ } = outcome;
        summary.lines.push(format!("{name}, {way}: {passed} passed; {differ} failed"));
        summary.passed += passed;
        summary.failed += differ;
        if differ > 0 {
            failed.push(format!("{name}, {way}"));
        }
    }
}

/// Runs cargo's tests and keeps its own summary lines, each with the program it belongs to. Tests that fail and then pass alone
/// are named.
fn all_tests(version: Option<u32>, programs: &[&str], rest: &[String], summary: &mut Summary) -> Result<()> {
    let mut command = on_version(cargo(&["test", "--no-fail-fast"]), version)?;
    command.args(programs);
    if std::env::var_os(THREADS_VARIABLE).is_none() {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        command.env(THREADS_VARIABLE, (cores * TESTS_PER_CORE).to_string());
    }
    if !rest.is_empty() {
        command.arg("--").args(rest);
    }
    let (line, before) = (describe(&command), summary.failed);
    let progress = Progress::after_build(on_version(cargo(&["test", "--no-run"]), version)?.args(programs))?;
    let (status, failures) = run_tests(command, progress, summary)?;
    for failure in &failures {
        summary.lines.push(format!("  FAILED: {}: {}: {}", failure.program, failure.test, failure.why()));
    }
    if status.success() {
        return Ok(());
    }
    if !unsteady::is_worth_another_look(&failures, summary.failed - before) {
        bail!("{line}: {status}");
    }
    for failure in &failures {
        let passes = match unsteady::alone(failure, programs) {
            Some(words) => unsteady::passes_alone(&mut on_version(cargo(&words), version)?),
            None => false,
        };
        if !passes {
            bail!("{line}: {status}");
        }
        summary
            .lines
            .push(format!("  UNSTEADY: {}: {}: ran out of time among others and passes alone", failure.program, failure.test));
        (summary.passed, summary.failed) = (summary.passed + 1, summary.failed - 1);
    }
    Ok(())
}

/// The command for a version of PostgreSQL.
fn on_version(mut command: Command, version: Option<u32>) -> Result<Command> {
    if let Some(version) = version {
        command.env(VERSION_VARIABLE, version.to_string()).env(PROGRAMS_VARIABLE, crate::pg::fetch(version)?);
        if version == NEWEST {
            // The proxy works by io_uring where it can; this run sees to the other way.
            command.env(IO_VARIABLE, "epoll");
            // Pairs of parameters were tried by the run before.
            if std::env::var_os(MATRIX_VARIABLE).is_none() {
                command.env(MATRIX_VARIABLE, "few");
            }
        }
    }
    Ok(command)
}

/// Runs the tests, shows their output, and notes their results. Returns the failed ones.
fn run_tests(mut command: Command, mut progress: Progress, summary: &mut Summary) -> Result<(ExitStatus, Vec<Failure>)> {
    // Cargo names the programs on stderr and their results come on stdout: one pipe keeps them in order.
    let (reader, writer) = std::io::pipe()?;
    let line = describe(&command);
    command.stdin(Stdio::null()).stdout(writer.try_clone()?).stderr(writer);
    let mut child = command.spawn().with_context(|| format!("cannot run {line}"))?;
    // The command holds our ends of the pipe, which must close for its end to be seen.
    drop(command);
    let (mut program, mut failures) = (String::new(), Vec::<Failure>::new());
    let mut is_why = false;
    for text in BufReader::new(reader).lines() {
        let text = text?;
        println!("{text}");
        if std::mem::replace(&mut is_why, unsteady::announces_why(&text))
            && let Some(failure) = failures.last_mut()
        {
            failure.panics.push(text);
            continue;
        }
        if let Some(left_out) = left_out(&text) {
            summary.lines.push(format!("  {left_out}"));
        } else if let Some(name) = program_of(&text) {
            program = name.to_owned();
        } else if let Some(test) = failed_test(&text) {
            failures.push(Failure { program: program.clone(), test: test.to_owned(), panics: Vec::new() });
        } else if text.starts_with("test result:") {
            summary.add_result(&program, &text);
            println!("{}", progress.after(&program, &text, Instant::now()));
        }
    }
    Ok((child.wait()?, failures))
}

/// The test program that a line of cargo announces.
fn program_of(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let running = line.strip_prefix("Running ").map(|rest| rest.split(" (").next().unwrap_or(rest));
    running.or_else(|| line.strip_prefix("Doc-tests ").filter(|rest| !rest.contains(' ')))
}

/// The line of a test that lacks something on this machine; it may stand behind the name of another test.
fn left_out(line: &str) -> Option<&str> {
    line.find("left out: ").map(|at| &line[at..])
}

/// Runs every fuzz target for `seconds`. The fuzzer needs flags of the nightly compiler, which the variable allows.
fn fuzz(root: &Path, seconds: u32, summary: &mut Summary) -> Result<()> {
    if !root.join("fuzz").is_dir() {
        summary.lines.push("fuzz targets: skipped: there is no folder fuzz".to_owned());
        return Ok(());
    }
    let listed = cargo(&["fuzz", "list"]).stdin(Stdio::null()).stderr(Stdio::null()).output();
    let Some(listed) = listed.ok().filter(|output| output.status.success()) else {
        summary.lines.push("fuzz targets: skipped: cargo-fuzz is not installed (cargo install cargo-fuzz)".to_owned());
        return Ok(());
    };
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    let targets: Vec<&str> = listed.split_whitespace().collect();
    run_to_end(cargo(&["fuzz", "build"]).env("RUSTC_BOOTSTRAP", "1"))?;
    let mut failed = Vec::new();
    for (target, output) in targets.iter().zip(at_once(&targets, |target| fuzz_command(target, seconds).output())) {
        let output = output.with_context(|| format!("cannot run the fuzz target {target}"))?;
        let word = if output.status.success() { "ok" } else { "FAILED" };
        let line = format!("fuzz {target}: {seconds} s: {word}");
        if !output.status.success() {
            println!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
            failed.push(*target);
        }
        println!("== {line}");
        summary.lines.push(line);
    }
    if !failed.is_empty() {
        bail!("fuzz targets failed: {}", failed.join(", "));
    }
    Ok(())
}

fn fuzz_command(target: &str, seconds: u32) -> Command {
    let mut command = cargo(&["fuzz", "run", target, "--"]);
    command.arg(format!("-max_total_time={seconds}")).env("RUSTC_BOOTSTRAP", "1").stdin(Stdio::null());
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_begins_if_it_ends_within_the_time() {
        let started = Instant::now();
        let after = |minutes: u64| started + std::time::Duration::from_secs(60 * minutes);
        let budget = TimeBudget { started, minutes: Some(80) };
        assert!(budget.has_room(20, after(60)) && !budget.has_room(20, after(61)) && budget.has_room(4, after(76)));
        assert!(TimeBudget { started, minutes: None }.has_room(5, after(1000)));
    }

    #[test]
    fn results_are_summed() {
        let mut summary = Summary::default();
        let ok = "test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.02s";
        summary.add_result("a", ok);
        summary.add_result("b", "test result: FAILED. 3 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out");
        assert_eq!((summary.passed, summary.failed), (15, 2));
    }

    #[test]
    fn a_failed_test_is_named_with_what_its_panic_says() {
        let said = "     Running tests/e2e/main.rs (target/debug/deps/e2e-1)\n---- m::t stdout ----\n\n\
                    thread 'm::t' (7) panicked at tests/e2e/m.rs:1:2:\nwaited in vain\nmore\n\
                    test result: FAILED. 3 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out\n";
        let mut command = Command::new("printf");
        command.args(["%s", said]);
        let mut summary = Summary::default();
        let (_, failures) = run_tests(command, Progress::default(), &mut summary).unwrap();
        let named: Vec<_> = failures.iter().map(|f| [f.program.as_str(), &f.test, f.why()]).collect();
        assert_eq!((named, summary.failed), (vec![["tests/e2e/main.rs", "m::t", "waited in vain"]], 1));
    }

    #[test]
    fn the_program_of_a_result_is_known() {
        let line = "     Running unittests src/main.rs (/t/debug/deps/xtask-c3a5)";
        assert_eq!(program_of(line), Some("unittests src/main.rs"));
        assert_eq!(program_of("   Doc-tests weir_wire"), Some("weir_wire"));
        assert_eq!(program_of("running 3 tests"), None);
    }

    #[test]
    fn what_was_left_out_is_told() {
        assert_eq!(left_out("test a ... left out: go: go is not installed"), Some("left out: go: go is not installed"));
        assert_eq!(left_out("test nothing_is_left_out ... ok"), None);
    }
}
