//! Tests that ran out of time among others and pass alone. Real servers share a machine with other programs. Such a test is
//! named, so that somebody looks into it, and stops nobody. A test that saw anything wrong has failed, also if it passes alone:
//! faults among many clients at once do not show with one.

use std::process::Command;

/// More failures than this in one run are no accident.
const FAILURES_MAX: usize = 4;

/// A test that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// As cargo names it: `tests/e2e/main.rs`.
    pub program: String,
    pub test: String,
    /// The first line of each of its panics, the first panic first.
    pub panics: Vec<String>,
}

impl Failure {
    /// Message of its first panic.
    pub fn why(&self) -> &str {
        self.panics.first().map_or("", String::as_str)
    }

    /// True if a wait that ran out is all that went wrong.
    fn ran_out_of_time(&self) -> bool {
        let mut causes = self.panics.iter().filter(|panic| !follows_another(panic)).peekable();
        causes.peek().is_some() && causes.all(|panic| is_over_time(panic))
    }
}

/// True if a panic says that a wait ran out, in the words of `weir_demo::wait_until`. All waits of tests end with them: `waited
/// 60001 ms for a login, limit is 60000 ms`.
fn is_over_time(panic: &str) -> bool {
    let Some((_, rest)) = panic.split_once("waited ") else { return false };
    let Some((waited, rest)) = rest.split_once(" ms for ") else { return false };
    let Some((_, limit)) = rest.rsplit_once(", limit is ") else { return false };
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number(waited) && limit.strip_suffix(" ms").is_some_and(is_number)
}

/// True for the panic of a thread that waited for another panicked one: `thread::scope`, and `unwrap` of a `join`.
fn follows_another(panic: &str) -> bool {
    panic == "a scoped thread panicked" || panic.ends_with("on an `Err` value: Any { .. }")
}

/// The test whose output a line of a test program announces: only failed ones have some.
pub fn failed_test(line: &str) -> Option<&str> {
    line.strip_prefix("---- ")?.strip_suffix(" stdout ----")
}

/// True if the next line says why a test failed.
pub fn announces_why(line: &str) -> bool {
    line.starts_with("thread '") && line.contains("' (") && line.contains(" panicked at ")
}

/// True if the failures are worth being looked at one by one.
pub fn is_worth_another_look(failures: &[Failure], failed: u32) -> bool {
    let is_counted = !failures.is_empty() && failures.len() <= FAILURES_MAX && failures.len() as u32 == failed;
    is_counted && failures.iter().all(Failure::ran_out_of_time)
}

/// Arguments of cargo for running one test alone; `None` for a test outside of the folders `tests`.
pub fn alone<'a>(failure: &'a Failure, programs: &[&'a str]) -> Option<Vec<&'a str>> {
    let path = failure.program.strip_prefix("tests/")?;
    let target = path.strip_suffix("/main.rs").or_else(|| path.strip_suffix(".rs"))?;
    let packages = programs.iter().copied().filter(|word| word.starts_with("--package") || *word == "--workspace");
    Some(["test"].into_iter().chain(packages).chain(["--test", target, "--", "--exact", &failure.test]).collect())
}

/// True if the command that runs the test succeeds.
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
        let failure = |program: &str| Failure { program: program.to_owned(), test: "m::t".to_owned(), panics: Vec::new() };
        let words = |program: &str| alone(&failure(program), &["--package=weir", "--test=x"]).map(|words| words.join(" "));
        assert_eq!(words("tests/e2e/main.rs").unwrap(), "test --package=weir --test e2e -- --exact m::t");
        assert_eq!(words("tests/no_alloc.rs").unwrap(), "test --package=weir --test no_alloc -- --exact m::t");
        assert_eq!(words("unittests src/lib.rs"), None, "what needs no server fails for a reason");
    }

    const LATE: &str = "called `Result::unwrap()` on an `Err` value: waited 60001 ms for it, limit is 60000 ms";

    fn failed_with(panics: &[&str]) -> Failure {
        let panics = panics.iter().map(|panic| panic.to_string()).collect();
        Failure { program: "tests/e2e/main.rs".to_owned(), test: "m::t".to_owned(), panics }
    }

    #[test]
    fn many_failures_are_no_accident() {
        let one = failed_with(&[LATE]);
        assert!(is_worth_another_look(std::slice::from_ref(&one), 1));
        assert!(!is_worth_another_look(&[], 0));
        assert!(!is_worth_another_look(std::slice::from_ref(&one), 2), "one of them left no name");
        assert!(!is_worth_another_look(&vec![one; FAILURES_MAX + 1], FAILURES_MAX as u32 + 1));
    }

    #[test]
    fn a_test_that_saw_wrong_data_has_failed_whatever_it_does_alone() {
        let wrong = "assertion `left == right` failed: a read went back in time";
        for panics in [&[wrong][..], &[LATE, wrong], &[wrong, LATE], &[], &["a scoped thread panicked"]] {
            assert!(!is_worth_another_look(&[failed_with(panics)], 1), "{panics:?}");
        }
        assert!(!is_worth_another_look(&[failed_with(&[LATE]), failed_with(&[wrong])], 2));
    }

    #[test]
    fn a_wait_that_ran_out_is_known_by_its_words() {
        let joined = "called `Result::unwrap()` on an `Err` value: Any { .. }";
        for panics in [&[LATE][..], &[LATE, joined], &[LATE, "a scoped thread panicked", LATE]] {
            assert!(is_worth_another_look(&[failed_with(panics)], 1), "{panics:?}");
        }
        let said = weir_demo::wait_until("it", std::time::Duration::ZERO, || Ok(false)).unwrap_err();
        assert!(is_over_time(&format!("no cluster: {said:#}")), "{said:#}");
        for other in ["waited in vain", "it waited 5 ms for its turn", "a message said: waited 1 ms for x, limit is 2 s"] {
            assert!(!is_over_time(other), "{other}");
        }
    }
}
