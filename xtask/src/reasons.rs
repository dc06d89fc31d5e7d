//! Tests of others that may fail through Weir, with reasons: a table in a text file.

use anyhow::{Result, bail};

/// One test of the table.
#[derive(Debug, PartialEq, Eq)]
pub struct Entry {
    pub suite: String,
    pub test: String,
    /// The test fails by chance.
    pub is_sometimes: bool,
    pub why: String,
}

impl Entry {
    pub fn is_of(&self, suite: &str, test: &str) -> bool {
        self.suite == suite && self.test == test
    }
}

/// Reads blocks of a suite in brackets, lines with the reason, and the tests, each behind a dash. `file` is its name. Error: a line that is none of
/// these kinds.
pub fn read_table(file: &str, text: &str) -> Result<Vec<Entry>> {
    let mut entries: Vec<Entry> = Vec::new();
    let (mut suite, mut why, mut is_used) = (None, String::new(), true);
    for (at, line) in text.lines().enumerate().filter(|(_, line)| !line.is_empty() && !line.starts_with('#')) {
        if let Some(name) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            if !is_used {
                bail!("{file}, line {}: the block before names no tests", at + 1);
            }
            (suite, why, is_used) = (Some(name.to_owned()), String::new(), false);
            continue;
        }
        let Some(suite) = &suite else { bail!("{file}, line {}: stands before the first [suite]", at + 1) };
        let Some(test) = line.strip_prefix("- ") else {
            why += if why.is_empty() { "" } else { " " };
            why += line;
            continue;
        };
        if why.is_empty() {
            bail!("{file}, line {}: {test} needs a reason", at + 1);
        }
        let (test, is_sometimes) = test.strip_suffix(" sometimes").map_or((test, false), |test| (test, true));
        if entries.iter().any(|entry| entry.is_of(suite, test)) {
            bail!("{file}, line {}: {test} is listed twice", at + 1);
        }
        entries.push(Entry { suite: suite.clone(), test: test.to_owned(), is_sometimes, why: why.clone() });
        is_used = true;
    }
    if !is_used {
        bail!("{file}: the last block names no tests");
    }
    Ok(entries)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_have_the_reason_above_them() {
        let entries = read_table("f", "# c\n[a]\nwhy\nso\n- x\n- y z sometimes\n\n[b]\nother\n- x\n").unwrap();
        let seen: Vec<_> = entries.iter().map(|e| (e.suite.as_str(), e.test.as_str(), e.is_sometimes, e.why.as_str())).collect();
        assert_eq!(seen, [("a", "x", false, "why so"), ("a", "y z", true, "why so"), ("b", "x", false, "other")]);
    }

    #[test]
    fn a_test_without_a_reason_is_refused() {
        for wrong in ["- x\n", "[a]\n- x\n", "[a]\nwhy\n", "[a]\nwhy\n[b]\nwhy\n- x\n", "[a]\nwhy\n- x\n- x\n"] {
            assert!(read_table("f", wrong).is_err(), "{wrong}");
        }
    }
}
