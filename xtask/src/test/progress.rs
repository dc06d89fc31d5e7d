//! How far a run of tests is, for a person who waits for it.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, ensure};

use super::count_of;
use crate::cargo::describe;

/// Suites that ended, and when.
#[derive(Debug)]
pub struct Progress {
    begin: Instant,
    last: Instant,
    suites: usize,
    ended: usize,
}

impl Default for Progress {
    fn default() -> Progress {
        Progress::of(0, Instant::now())
    }
}

impl Progress {
    fn of(suites: usize, now: Instant) -> Progress {
        Progress { begin: now, last: now, suites, ended: 0 }
    }

    /// Builds the test programs and counts them: `build` is cargo's command with `--no-run`. Error: the build failed; cargo has said why.
    pub fn after_build(build: &mut Command) -> Result<Progress> {
        let (line, begin) = (describe(build), Instant::now());
        let mut child =
            build.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().with_context(|| format!("cannot run {line}"))?;
        let mut suites = 0;
        for text in BufReader::new(child.stderr.take().context("cargo's messages")?).lines() {
            let text = text?;
            println!("{text}");
            suites += usize::from(text.trim_start().starts_with("Executable "));
        }
        let status = child.wait()?;
        ensure!(status.success(), "{line}: {status}");
        println!("== build: {:.0} s, {suites} suites to run", begin.elapsed().as_secs_f64());
        Ok(Progress::of(suites, Instant::now()))
    }

    /// The line after a suite; `result` is cargo's line of it.
    pub fn after(&mut self, program: &str, result: &str, now: Instant) -> String {
        let took = now.duration_since(std::mem::replace(&mut self.last, now));
        self.ended += 1;
        // Examples in comments are no programs, and come last.
        let left = self.suites.saturating_sub(self.ended);
        format!(
            "== {program}: {} passed, {} failed, {:.1} s; {left} suites left after {:.0} s",
            count_of(result, "passed"),
            count_of(result, "failed"),
            took.as_secs_f64(),
            now.duration_since(self.begin).as_secs_f64()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_line_says_how_long_a_suite_took_and_what_is_left() {
        let begin = Instant::now();
        let mut progress = Progress::of(2, begin);
        let line = "test result: FAILED. 3 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out";
        let mut after = |program: &str, s: u64| progress.after(program, line, begin + Duration::from_secs(s));
        assert_eq!(after("tests/e2e/main.rs", 90), "== tests/e2e/main.rs: 3 passed, 2 failed, 90.0 s; 1 suites left after 90 s");
        assert_eq!(after("src/lib.rs", 91), "== src/lib.rs: 3 passed, 2 failed, 1.0 s; 0 suites left after 91 s");
        assert!(after("weir_demo", 92).ends_with("0 suites left after 92 s"));
    }

    #[test]
    fn programs_are_counted_while_they_are_built() {
        let mut build = Command::new("sh");
        build.args([
            "-c",
            "echo '  Executable unittests src/lib.rs (a)' >&2; echo '   Compiling b' >&2; echo '  Executable c (d)' >&2",
        ]);
        assert_eq!(Progress::after_build(&mut build).unwrap().suites, 2);
        assert!(Progress::after_build(Command::new("sh").args(["-c", "exit 101"])).is_err(), "a failed build is no run");
    }
}
