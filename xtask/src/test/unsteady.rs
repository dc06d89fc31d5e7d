//! Tests that fail among others and pass alone. Real servers share a machine with whatever else runs there; such a test is named, so that
//! somebody looks into it, and stops nobody.

use std::process::Command;

/// More failures than this in one run are no accident.
const FAILURES_MAX: usize = 4;

/// A test that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// As cargo names it: `tests/e2e/main.rs`.
    pub program: String,
    pub test: String,
    /// The first line of what its first panic says; empty if it left none.
    pub why: String,
}

/// The test whose output a line of a test program announces: only those that failed have some.
pub fn failed_test(line: &str) -> Option<&str> {
    line.strip_prefix("---- ")?.strip_suffix(" stdout ----")
}

/// Whether the next line says why a test failed.
pub fn announces_why(line: &str) -> bool {
    line.starts_with("thread '") && line.contains("' (") && line.contains(" panicked at ")
}

/// Whether the failures are worth being looked at one by one.
pub fn is_worth_another_look(failures: &[Failure], failed: u32) -> bool {
    !failures.is_empty() && failures.len() <= FAILURES_MAX && failures.len() as u32 == failed
}

/// Arguments of cargo for running one test alone; `None` for what is no program in a folder `tests`.
pub fn alone<'a>(failure: &'a Failure, programs: &[&'a str]) -> Option<Vec<&'a str>> {
    let path = failure.program.strip_prefix("tests/")?;
    let target = path.strip_suffix("/main.rs").or_else(|| path.strip_suffix(".rs"))?;
    let packages = programs.iter().copied().filter(|word| word.starts_with("--package") || *word == "--workspace");
    Some(["test"].into_iter().chain(packages).chain(["--test", target, "--", "--exact", &failure.test]).collect())
}

/// Whether the command that runs the test succeeds.
pub fn passes_alone(command: &mut Command) -> bool {
    command.status().is_ok_and(|status| status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_test_is_run_alone_by_its_whole_name() {
        assert_eq!(failed_test("---- sessions::a_session stdout ----"), Some("sessions::a_session"));
        assert_eq!(failed_test("test sessions::a_session ... FAILED"), None);
        assert!(announces_why("thread 'sessions::a_session' (22835) panicked at crates/weir/tests/e2e/sessions.rs:213:55:"));
        assert!(!announces_why("test sessions::a_session ... FAILED"));
        let failure = |program: &str| Failure { program: program.to_owned(), test: "m::t".to_owned(), why: String::new() };
        let words = |program: &str| alone(&failure(program), &["--package=weir", "--test=x"]).map(|words| words.join(" "));
        assert_eq!(words("tests/e2e/main.rs").unwrap(), "test --package=weir --test e2e -- --exact m::t");
        assert_eq!(words("tests/no_alloc.rs").unwrap(), "test --package=weir --test no_alloc -- --exact m::t");
        assert_eq!(words("unittests src/lib.rs"), None, "what needs no server fails for a reason");
    }

    #[test]
    fn many_failures_are_no_accident() {
        let one = Failure { program: "tests/e2e/main.rs".to_owned(), test: "m::t".to_owned(), why: String::new() };
        assert!(is_worth_another_look(std::slice::from_ref(&one), 1));
        assert!(!is_worth_another_look(&[], 0));
        assert!(!is_worth_another_look(std::slice::from_ref(&one), 2), "one of them left no name");
        assert!(!is_worth_another_look(&vec![one; FAILURES_MAX + 1], FAILURES_MAX as u32 + 1));
    }
}
