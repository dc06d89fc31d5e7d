//! The tests that are run, and the changes that they need.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::debian::Source;

/// Tests about nodes and the watchdog that must pass, by a word of their names: numbers differ between releases.
const EXPECTED: [&str; 16] = [
    "003.failover",
    "node_0_is_not_primary",
    "node_0_is_down",
    "018.detach_primary",
    "004.watchdog",
    "watchdog_quorum_failover",
    "watchdog_master_and_backend_fail",
    "watchdog_enable_consensus_with_half_votes",
    "trusted_servers",
    "promote_node",
    "unix_sockets",
    "failover_session",
    "pcp_commands",
    "detach_primary_left_down_node",
    "detach_primary_all_down",
    "invalid_failover_node",
];
/// Why a test is not run, or may fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// It is about something that Weir does not have.
    NotRun(&'static str),
    /// Weir does it otherwise, or the test looks for words of Pgpool-II's.
    MayFail(&'static str),
}

impl Reason {
    pub fn text(self) -> &'static str {
        match self {
            Reason::NotRun(text) | Reason::MayFail(text) => text,
        }
    }
}

const MINORITY: Reason =
    Reason::MayFail("deliberate: a host that hears no other one leads nobody, and the test wants a leader that is alone");
const REPLICATION: Reason = Reason::NotRun("needs native replication");
const PROCESSES: Reason = Reason::NotRun("looks for titles of Pgpool-II's child processes");
const JAVA: Reason =
    Reason::MayFail("needs Java and a driver (JDBC_DRIVER; Debian: default-jdk-headless, libpostgresql-jdbc-java)");
const LOG_THREAD: Reason =
    Reason::MayFail("on a busy machine: it looks for a statement in the log at once, and Weir's log has a thread of its own");

/// Tests by words of their names, without numbers.
const REASONS: [(&str, Reason); 39] = [
    (
        "load_balance",
        Reason::MayFail(
            "a read at once after a CREATE of the session goes to the primary, until the standby is known to have it; test 4 counts lines of Pgpool-II's debug log",
        ),
    ),
    ("native_replication", REPLICATION),
    ("watchdog_failover_when_quorum_exists", MINORITY),
    ("watchdog_test_quorum_bypass", MINORITY),
    (
        "watchdog_failover_require_consensus",
        Reason::MayFail(
            "6 of 7: a standby that two of three hosts miss and the leader reaches stays in use where it is reached, and is in quarantine \
             elsewhere; the test wants it down everywhere",
        ),
    ),
    ("jdbc", JAVA),
    (
        "memqcache",
        Reason::MayFail(
            "deliberate: a statement that reads no table is not kept (the test wants casts of constants to be), and a view is, as its tables are known; BEGIN goes to no node, and for a moment after a definition nothing is kept",
        ),
    ),
    ("memqcache-memcached", JAVA),
    ("dbredirect", LOG_THREAD),
    ("sql_comments", Reason::MayFail("deliberate: NO LOAD BALANCE counts with allow_sql_comments = on, too")),
    ("rewrite_timestamp", Reason::NotRun("is a unit test of Pgpool-II's rewriting for native replication")),
    (
        "cert_auth",
        Reason::MayFail(
            "its certificates are of X.509 version 1 where OpenSSL is older than 3.2, and refused (docs/tls.md); and it looks for words of Pgpool-II's log",
        ),
    ),
    (
        "cert_passphrase",
        Reason::MayFail(
            "wants a start whose key has a pass phrase and no ssl_passphrase_command to go on; Weir does not start, and says why",
        ),
    ),
    (
        "enable_shared_relcache",
        Reason::MayFail("looks for the words of Pgpool-II's cache of catalogs; Weir reads catalogs as a whole"),
    ),
    (
        "auto_failback",
        Reason::MayFail(
            "a standby that is restarted between two looks of its health check was never out of use, and the test wants it down for 20 s; its last look fails with \
             Pgpool-II, too",
        ),
    ),
    ("snapshot_isolation", Reason::NotRun("needs snapshot isolation")),
    (
        "dml_adaptive_load_balance",
        Reason::MayFail(
            "deliberate: dml_adaptive means transaction, so that other tables are read on the primary after a write, too",
        ),
    ),
    ("log_backend_messages", Reason::MayFail("log_backend_messages is not there")),
    (
        "client_auth",
        Reason::MayFail(
            "50 of 51: a user without a line in pool_passwd whom the server asks by method password (o23). Clients of such users prove nothing to Weir, and share server \
             connections, which no password may have opened then; allow_clear_text_frontend_auth asks them (docs/from-pgpool.md)",
        ),
    ),
    ("pcp_commands", LOG_THREAD),
    ("backend_all_down", Reason::MayFail("waits for the text of a failover at a start without servers; Weir waits for servers")),
    ("memory_leak", PROCESSES),
    ("memory_leak_extended", PROCESSES),
    ("memory_leak_extended_memqcache", PROCESSES),
    ("insert_lock_hangs", REPLICATION),
    ("postgres_fdw", REPLICATION),
    ("select_error_hangs", REPLICATION),
    ("bug63", JAVA),
    ("bug68", JAVA),
    ("bug92", JAVA),
    ("bug152", JAVA),
    ("bug230", JAVA),
    ("bug231", JAVA),
    ("memqcache_bug", JAVA),
    (
        "bug153",
        Reason::MayFail(
            "a read at once after a CREATE of the session goes to the primary, until the standby is known to have it; passes two seconds later",
        ),
    ),
    (
        "execute_and_deallocate",
        Reason::MayFail("a DEALLOCATE is answered by Weir and goes to no node, so that the log names none"),
    ),
    ("pg_terminate_backend", Reason::MayFail("looks for words of Pgpool-II's log; passes without that look")),
    (
        "aborted_transaction",
        Reason::MayFail("an error in a failed transaction is PostgreSQL's own, without the DETAIL that Pgpool-II adds"),
    ),
    (
        "guard_against_bad_protocol",
        Reason::MayFail("deliberate: an order of messages that PostgreSQL carries out is no FATAL error; its second half passes"),
    ),
];

/// Loops over modes of clustering begin with streaming replication, the only one that Weir has.
const STREAMING: &str = "for mode in s";
const AND_OTHERS: &str = "for mode in s ";
/// Begins of the ports that tests and what they expect are written for: 11000 and nine more each.
const PORTS: [&str; 6] = ["1100", "1110", "1120", "2100", "2110", "2120"];

/// A part of a test that is left out, from a line with this begin up to the other one, which stays, or up to the end.
struct Cut {
    test: &'static str,
    from: &'static str,
    to: Option<&'static str>,
}

const CUTS: [Cut; 2] = [
    // Wants writes through a host that hears no other one.
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
    /// Why it is not run, or may fail.
    pub reason: Option<Reason>,
}

/// The tests that are wanted.
#[derive(Debug, Clone, Copy)]
pub enum Choice<'a> {
    /// Tests about nodes and the watchdog that must pass.
    Expected,
    All,
    /// Tests whose names have one of these words.
    Words(&'a [String]),
}

fn reason(name: &str) -> Option<Reason> {
    let bare = name.split_once('.').map_or(name, |(_, rest)| rest);
    REASONS.iter().find(|(word, _)| *word == bare).map(|(_, reason)| *reason)
}

/// The chosen tests, in the order of their numbers.
pub fn cases(source: &Source, choice: Choice<'_>) -> Result<Vec<Case>> {
    let folder = source.folder.join("src/test/regression/tests");
    let mut found = Vec::new();
    for entry in fs::read_dir(&folder).with_context(|| folder.display().to_string())? {
        let entry = entry?;
        let (name, folder) = (entry.file_name().to_string_lossy().into_owned(), entry.path());
        let is_wanted = match choice {
            Choice::Expected => EXPECTED.iter().any(|word| name.ends_with(word)),
            Choice::All => true,
            Choice::Words(words) => words.iter().any(|word| name.contains(word.as_str())),
        };
        if is_wanted && folder.join("test.sh").exists() {
            let reason = reason(&name);
            found.push(Case { name, folder, reason });
        }
    }
    found.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(found)
}

impl Case {
    /// Copies it, changed for Weir and for ports from `first_port` on, a multiple of ten.
    pub fn copy_to(&self, to: &Path, first_port: u16) -> Result<()> {
        self.copy(&self.folder, to, first_port)
    }

    /// Some tests have folders of messages, or of what they expect.
    fn copy(&self, from: &Path, to: &Path, first_port: u16) -> Result<()> {
        fs::create_dir_all(to)?;
        for entry in fs::read_dir(from)? {
            let path = entry?.path();
            let Some(name) = path.file_name() else { continue };
            if path.is_dir() {
                self.copy(&path, &to.join(name), first_port)?;
            } else {
                // With its mode: some tests run programs of their own.
                fs::copy(&path, to.join(name))?;
                if let Ok(text) = fs::read_to_string(&path) {
                    fs::write(to.join(name), changed(&self.name, &text, first_port))?;
                }
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
            lines.push(with_ports(line, first_port / 10));
        }
    }
    lines.join("\n") + "\n"
}

/// Each begin of `PORTS` has ten ports of its own, in their order. Begins of others overlap (11100), so the first that fits counts.
fn with_ports(line: &str, first_ten: u16) -> String {
    let (mut text, mut rest) = (String::new(), line);
    while let Some(next) = rest.chars().next() {
        let found = (first_ten..).zip(PORTS).find_map(|(ten, begin)| Some((ten, rest.strip_prefix(begin)?)));
        match found {
            Some((ten, after)) => {
                text += &ten.to_string();
                rest = after;
            }
            None => {
                text.push(next);
                rest = rest.get(next.len_utf8()..).unwrap_or_default();
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_found_by_the_name_without_its_number() {
        assert_eq!(reason("014.watchdog_test_quorum_bypass"), Some(MINORITY));
        assert_eq!(reason("004.watchdog"), None);
        assert_eq!(reason("110.memory_leak"), Some(PROCESSES));
        assert_eq!(reason("003.failover"), None);
        let words: std::collections::BTreeSet<&str> = REASONS.iter().map(|(word, _)| *word).collect();
        assert_eq!(words.len(), REASONS.len());
        assert!(EXPECTED.iter().all(|word| !matches!(reason(word), Some(Reason::NotRun(_)))));
    }

    #[test]
    fn a_test_gets_free_ports_and_streaming_replication_only() {
        let text = "for mode in s r n\ndo\n\tpsql -p 11002\n\t# Test case 3: more\n\tfalse\ndone\nexit 0\n";
        assert_eq!(changed("017.node_0_is_down", text, 23450), "for mode in s\ndo\n\tpsql -p 23452\ndone\nexit 0\n");
        let text = "for mode in s\n#\n# test with watchdog enabled\nfalse\n";
        assert_eq!(changed("018.detach_primary", text, 23450), "for mode in s\n#\n");
        assert_eq!(changed("003.failover", text, 23450), text);
        let text = "wd_port2 = 21204\nfor p in 11000 11100 11200; do psql -p $p; done\n";
        let own = "wd_port2 = 23504\nfor p in 23450 23460 23470; do psql -p $p; done\n";
        assert_eq!(changed("004.watchdog", text, 23450), own);
    }
}
