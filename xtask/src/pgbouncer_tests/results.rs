//! Results of the tests, beside the list of known failures.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::Value;

use crate::reasons::Entry;

/// Characters of a failure's text in the table.
const TEXT_MAX: usize = 160;

/// How a test ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Passed(Way),
    Failed,
    /// It looked where it is and did not try.
    Skipped,
}

/// How much of a test that passed was changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// Texts of errors may be Weir's.
    Whole,
    /// It looks for words of PgBouncer's log, where nobody searched.
    ButLog,
    /// It sets something by the console that Weir reads from files: the file was changed and read again. Perhaps `ButLog`, too.
    ByFile,
}

impl Way {
    /// `adapted`: the words of `names.py`.
    fn of(adapted: &Value) -> Way {
        let has = |wanted: &str| adapted.as_array().is_some_and(|words| words.iter().any(|word| word == wanted));
        if has("set") {
            Way::ByFile
        } else if has("log") {
            Way::ButLog
        } else {
            Way::Whole
        }
    }

    fn mark(self) -> &'static str {
        match self {
            Way::Whole => "passed",
            Way::ButLog => "passed*",
            Way::ByFile => "passed+",
        }
    }
}

/// One test.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Test {
    pub name: String,
    pub verdict: Verdict,
    /// Text of its failure, or why it was skipped.
    pub text: String,
}

/// Reads the lines that `names.py` writes, one for each part of a test that says something. A test of which a part failed has failed.
pub fn read(lines: &str) -> Vec<Test> {
    let mut tests: BTreeMap<String, Test> = BTreeMap::new();
    for line in lines.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
        let (Some(test), Some(outcome)) = (line["test"].as_str(), line["outcome"].as_str()) else { continue };
        let name = test.strip_prefix("test/").unwrap_or(test);
        let verdict = match outcome {
            "passed" => Verdict::Passed(Way::of(&line["adapted"])),
            "skipped" => Verdict::Skipped,
            _ => Verdict::Failed,
        };
        let text = line["reason"].as_str().unwrap_or_default().to_owned();
        let new = Test { name: name.to_owned(), verdict, text };
        match tests.get_mut(name) {
            Some(before) if verdict == Verdict::Failed && before.verdict != Verdict::Failed => *before = new,
            Some(_) => {}
            None => {
                tests.insert(name.to_owned(), new);
            }
        }
    }
    tests.into_values().collect()
}

/// The table, and what is wrong in it.
#[derive(Debug, Default)]
pub struct Report {
    lines: Vec<String>,
    passed: Vec<Way>,
    failed: usize,
    skipped: usize,
    /// Failures without a known reason, and reasons that are not needed any more.
    pub complaints: Vec<String>,
}

impl Report {
    /// `names`: tests that had to run. With `is_whole` each entry of the list must be one of them.
    pub fn make(names: &[&str], tests: Vec<Test>, entries: &[Entry], is_whole: bool) -> Report {
        let mut report = Report::default();
        let mut ended: BTreeMap<String, Test> = tests.into_iter().map(|test| (test.name.clone(), test)).collect();
        for name in names {
            let test = ended.remove(*name);
            let test = test.unwrap_or_else(|| Test {
                name: (*name).to_owned(),
                verdict: Verdict::Failed,
                text: "did not end".to_owned(),
            });
            let entry = entries.iter().find(|entry| names_it(entry, name));
            report.add(&test, entry);
        }
        if is_whole {
            for entry in entries.iter().filter(|entry| !names.iter().any(|name| names_it(entry, name))) {
                report.complaints.push(format!("{} of {} has a reason, and there is no such test", entry.test, entry.suite));
            }
        }
        report
    }

    fn add(&mut self, test: &Test, entry: Option<&Entry>) {
        let (name, text) = (&test.name, first_line(&test.text));
        let (word, about) = match (test.verdict, entry) {
            (Verdict::Passed(way), entry) => {
                self.passed.push(way);
                (way.mark(), self.unneeded(name, entry))
            }
            (Verdict::Failed, Some(entry)) => {
                self.failed += 1;
                ("failed", entry.why.clone())
            }
            (Verdict::Failed, None) => {
                self.failed += 1;
                self.complaints.push(format!("{name} fails, and no reason is known: {text}"));
                ("failed", format!("NO KNOWN REASON: {text}"))
            }
            (Verdict::Skipped, _) => {
                self.skipped += 1;
                ("skipped", text)
            }
        };
        self.lines.push(format!("{name:<68} {word:<8} {about}").trim_end().to_owned());
    }

    /// The words for a test that passes although it is listed.
    fn unneeded(&mut self, name: &str, entry: Option<&Entry>) -> String {
        match entry {
            Some(entry) if !entry.is_sometimes => {
                self.complaints.push(format!("{name} passes: take it out of the list of reasons ({})", entry.why));
                format!("LISTED AS FAILING: {}", entry.why)
            }
            _ => String::new(),
        }
    }

    /// A few words about all.
    pub fn sum(&self) -> String {
        let count = |wanted: Way| self.passed.iter().filter(|way| **way == wanted).count();
        format!(
            "{} passed of {}, {} failed, {} skipped. {} passed with no more than names changed; {} (*) look for words of PgBouncer's log, which are \
             not compared; {} (+) set by the console what Weir reads from files",
            self.passed.len(),
            self.lines.len(),
            self.failed,
            self.skipped,
            count(Way::Whole),
            count(Way::ButLog),
            count(Way::ByFile),
        )
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.lines.join("\n"))
    }
}

/// `test_admin.py::test_help` is the test `test_help` of the block `[test_admin]`.
fn names_it(entry: &Entry, name: &str) -> bool {
    name.split_once(".py::").is_some_and(|(suite, test)| entry.is_of(suite, test))
}

fn first_line(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    line.chars().take(TEXT_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reasons;

    const LINES: &str = r#"
{"test": "test/test_a.py::test_1", "when": "call", "outcome": "passed", "adapted": [], "reason": ""}
{"test": "test/test_a.py::test_2[x]", "when": "call", "outcome": "passed", "adapted": ["log", "set"], "reason": ""}
{"test": "test/test_a.py::test_3", "when": "call", "outcome": "passed", "adapted": [], "reason": ""}
{"test": "test/test_a.py::test_3", "when": "teardown", "outcome": "failed", "adapted": [], "reason": "left\nmore"}
{"test": "test/test_b.py::test_4", "when": "setup", "outcome": "skipped", "adapted": [], "reason": "no sudo"}
half a li"#;

    fn verdicts() -> Vec<(String, Verdict)> {
        read(LINES).into_iter().map(|test| (test.name, test.verdict)).collect()
    }

    #[test]
    fn a_test_of_which_a_part_failed_has_failed() {
        let expected = [
            ("test_a.py::test_1", Verdict::Passed(Way::Whole)),
            ("test_a.py::test_2[x]", Verdict::Passed(Way::ByFile)),
            ("test_a.py::test_3", Verdict::Failed),
            ("test_b.py::test_4", Verdict::Skipped),
        ];
        assert_eq!(verdicts(), expected.map(|(name, verdict)| (name.to_owned(), verdict)));
    }

    fn check(names: &[&str], listed: &str, complaints: &[&str]) -> Report {
        let report = Report::make(names, read(LINES), &reasons::read_table("f", listed).unwrap(), true);
        assert_eq!(report.complaints, complaints);
        report
    }

    #[test]
    fn a_failure_has_a_reason_and_a_reason_a_failure() {
        let names =
            ["test_a.py::test_1", "test_a.py::test_2[x]", "test_a.py::test_3", "test_a.py::test_gone", "test_b.py::test_4"];
        let unlisted = [
            "test_a.py::test_3 fails, and no reason is known: left",
            "test_a.py::test_gone fails, and no reason is known: did not end",
        ];
        let report = check(&names, "", &unlisted);
        assert!(report.sum().starts_with("2 passed of 5, 2 failed, 1 skipped. 1 passed with"), "{}", report.sum());
        check(&names, "[test_a]\nwhy\n- test_3\n- test_gone\n- test_1 sometimes\n", &[]);
        let passes = "test_a.py::test_1 passes: take it out of the list of reasons (why)";
        let none = "test_9 of test_b has a reason, and there is no such test";
        check(&names, "[test_a]\nwhy\n- test_3\n- test_gone\n- test_1\n[test_b]\nwhy\n- test_9\n", &[passes, none]);
    }
}
