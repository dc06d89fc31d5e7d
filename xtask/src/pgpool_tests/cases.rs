//! The tests that are run, and the changes that they need.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::sources::Source;

/// Tests about nodes that must pass, by a word of their names: numbers differ between releases.
const EXPECTED: [&str; 10] = [
    "003.failover",
    "node_0_is_not_primary",
    "node_0_is_down",
    "018.detach_primary",
    "promote_node",
    "unix_sockets",
    "failover_session",
    "pcp_commands",
    "detach_primary_left_down_node",
    "invalid_failover_node",
];
/// Loops over modes of clustering begin with streaming replication, the only one that Weir has.
const STREAMING: &str = "for mode in s";
const AND_OTHERS: &str = "for mode in s ";
/// The ports that tests and what they expect are written for: 11000 and nine more.
const PORTS: &str = "1100";

/// A part of a test that is left out, from a line with this begin up to the other one, which stays, or up to the end.
struct Cut {
    test: &'static str,
    from: &'static str,
    to: Option<&'static str>,
}

const CUTS: [Cut; 2] = [
    // Needs a watchdog.
    Cut { test: "018.detach_primary", from: "# test with watchdog enabled", to: None },
    // A write must fail at once when the primary with DISALLOW_TO_FAILOVER is gone. With Weir it waits for the primary.
    Cut { test: "node_0_is_down", from: "\t# Test case 3", to: Some("done") },
];

/// One test.
#[derive(Debug)]
pub struct Case {
    pub name: String,
    /// In the source.
    pub folder: PathBuf,
}

/// The tests whose names have one of these words; those expected to pass if there are no words.
pub fn cases(source: &Source, words: &[String]) -> Result<Vec<Case>> {
    let folder = source.folder.join("src/test/regression/tests");
    let mut found = Vec::new();
    for entry in fs::read_dir(&folder).with_context(|| folder.display().to_string())? {
        let entry = entry?;
        let (name, folder) = (entry.file_name().to_string_lossy().into_owned(), entry.path());
        let is_wanted = match words {
            [] => EXPECTED.iter().any(|word| name.ends_with(word)),
            words => words.iter().any(|word| name.contains(word.as_str())),
        };
        if is_wanted && folder.join("test.sh").exists() {
            found.push(Case { name, folder });
        }
    }
    found.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(found)
}

impl Case {
    /// Copies it, changed for Weir and for ports that begin with `first_port`, a multiple of ten.
    pub fn copy_to(&self, to: &Path, first_port: u16) -> Result<()> {
        fs::create_dir_all(to)?;
        for entry in fs::read_dir(&self.folder)? {
            let path = entry?.path();
            let (true, Some(name)) = (path.is_file(), path.file_name()) else { continue };
            match fs::read_to_string(&path) {
                Ok(text) => fs::write(to.join(name), changed(&self.name, &text, first_port))?,
                Err(_) => fs::copy(&path, to.join(name)).map(|_| ())?,
            }
        }
        Ok(())
    }
}

fn changed(test: &str, text: &str, first_port: u16) -> String {
    let mut lines = Vec::new();
    let mut cut: Option<&Cut> = None;
    for line in text.lines() {
        if cut.is_some_and(|cut| cut.to.is_some_and(|to| line.starts_with(to))) {
            cut = None;
        }
        cut = cut.or_else(|| CUTS.iter().find(|cut| test.ends_with(cut.test) && line.starts_with(cut.from)));
        if cut.is_none() {
            let line = if line.starts_with(AND_OTHERS) { STREAMING } else { line };
            lines.push(line.replace(PORTS, &(first_port / 10).to_string()));
        }
    }
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_gets_free_ports_and_streaming_replication_only() {
        let text = "for mode in s r n\ndo\n\tpsql -p 11002\n\t# Test case 3: more\n\tfalse\ndone\nexit 0\n";
        assert_eq!(changed("017.node_0_is_down", text, 23450), "for mode in s\ndo\n\tpsql -p 23452\ndone\nexit 0\n");
        let text = "for mode in s\n#\n# test with watchdog enabled\nfalse\n";
        assert_eq!(changed("018.detach_primary", text, 23450), "for mode in s\n#\n");
        assert_eq!(changed("003.failover", text, 23450), text);
    }
}
