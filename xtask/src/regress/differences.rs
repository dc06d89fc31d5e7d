//! Differences that are allowed, with reasons: the table in `differences.txt`, and the output of `diff`.

use std::ops::RangeInclusive;

use anyhow::{Context, Result, bail};

use super::{PoolMode, Protocol};

const TABLE: &str = include_str!("differences.txt");

/// One row of the table.
#[derive(Debug, PartialEq, Eq)]
pub struct Entry {
    pub test: String,
    modes: Modes,
    /// Only in this protocol.
    protocol: Option<Protocol>,
    /// It occurs by chance.
    is_sometimes: bool,
    pub why: String,
    /// Lines of a `diff`, each with its sign.
    lines: Vec<String>,
    /// They count between these two lines of the direct run only, where chance makes many pictures of one cause.
    part: [Option<String>; 2],
}

#[derive(Debug, PartialEq, Eq)]
enum Modes {
    All,
    Only(PoolMode),
}

/// Lines that differ in one place.
#[derive(Debug, PartialEq, Eq)]
pub struct Hunk {
    /// Where, in the direct run's result.
    pub line: u32,
    /// Each with its sign.
    pub lines: Vec<String>,
}

impl Entry {
    pub fn is_of(&self, mode: PoolMode, protocol: Protocol) -> bool {
        let is_of_mode = self.modes == Modes::All || self.modes == Modes::Only(mode);
        is_of_mode && self.protocol.is_none_or(|own| own == protocol)
    }

    /// True if a run in which it did not occur shows that it is not needed.
    pub fn must_occur(&self) -> bool {
        !self.is_sometimes
    }

    /// True if the direct run still prints the entry's subject: its part, and one of the lines that only this run has. For an
    /// entry that depends on chance, this is the only way to find it stale.
    pub fn is_about(&self, direct: &str) -> bool {
        let mut own = self.lines.iter().filter_map(|line| line.strip_prefix('-')).peekable();
        let prints = |known: &str| direct.lines().any(|line| is_line(known, line.trim_end()));
        let has_lines = own.peek().is_none() || own.any(prints);
        has_lines && (self.part == [None, None] || self.place(direct).is_some())
    }

    /// `direct`: output of the direct run.
    pub fn explains(&self, hunk: &Hunk, direct: &str) -> bool {
        let is_inside = || self.place(direct).is_some_and(|place| place.contains(&(hunk.line as usize)));
        let is_known = |line: &String| self.lines.iter().any(|known| is_line(known, line));
        hunk.lines.iter().all(is_known) && (self.part == [None, None] || is_inside())
    }

    /// The numbers of the part's lines.
    fn place(&self, direct: &str) -> Option<RangeInclusive<usize>> {
        let [Some(first), Some(last)] = &self.part else { return None };
        let lines: Vec<&str> = direct.lines().collect();
        let first = lines.iter().position(|line| line == first)?;
        let last = lines.iter().rposition(|line| line == last)?;
        (first < last).then_some(first + 1..=last + 1)
    }
}

/// True if a line is the one of the table; with dots at its end that one is only how it begins.
fn is_line(known: &str, line: &str) -> bool {
    known.strip_suffix("...").map_or(known == line, |begin| line.starts_with(begin))
}

/// The table. Error: a line that is none of its kinds.
pub fn read() -> Result<Vec<Entry>> {
    read_table(TABLE)
}

fn read_table(text: &str) -> Result<Vec<Entry>> {
    let mut entries: Vec<Entry> = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let what = || format!("differences.txt, line {}: {line}", at + 1);
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if let Some(head) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            entries.push(read_head(head).with_context(what)?);
            continue;
        }
        let Some(entry) = entries.last_mut() else { bail!("{}: stands before the first [test]", what()) };
        if let Some(first) = line.strip_prefix('<') {
            entry.part[0] = Some(first.to_owned());
        } else if let Some(last) = line.strip_prefix('>') {
            entry.part[1] = Some(last.to_owned());
        } else if line.starts_with(['-', '+']) {
            entry.lines.push(line.to_owned());
        } else {
            entry.why += if entry.why.is_empty() { "" } else { " " };
            entry.why += line;
        }
    }
    for entry in &entries {
        let is_half = entry.part.iter().flatten().count() == 1;
        if entry.why.is_empty() || entry.lines.is_empty() || is_half {
            bail!("differences.txt: [{}] needs a reason, lines, and both ends of a part if it has one", entry.test);
        }
    }
    Ok(entries)
}

/// `test`, a mode or `all`, perhaps a protocol, and perhaps `sometimes`.
fn read_head(head: &str) -> Result<Entry> {
    let mut words = head.split_whitespace();
    let test = words.next().context("no name of a test")?.to_owned();
    let modes = match words.next() {
        Some("all") => Modes::All,
        Some("session") => Modes::Only(PoolMode::Session),
        Some("transaction") => Modes::Only(PoolMode::Transaction),
        other => bail!("{other:?} is neither all, session nor transaction"),
    };
    let mut words = words.peekable();
    let protocol = match words.peek() {
        Some(&"simple") => Some(Protocol::Simple),
        Some(&"extended") => Some(Protocol::Extended),
        _ => None,
    };
    if protocol.is_some() {
        words.next();
    }
    let is_sometimes = match words.next() {
        Some("sometimes") => true,
        None => false,
        Some(other) => bail!("{other} is neither simple, extended nor sometimes"),
    };
    Ok(Entry { test, modes, protocol, is_sometimes, why: String::new(), lines: Vec::new(), part: [None, None] })
}

/// The hunks of a unified diff without context.
pub fn read_hunks(diff: &str) -> Vec<Hunk> {
    let mut hunks: Vec<Hunk> = Vec::new();
    for line in diff.lines() {
        if let Some(place) = line.strip_prefix("@@ -") {
            let number = place.split([',', ' ']).next().and_then(|number| number.parse().ok());
            hunks.push(Hunk { line: number.unwrap_or(0), lines: Vec::new() });
        } else if let (Some(hunk), true) = (hunks.last_mut(), line.starts_with(['-', '+'])) {
            hunk.lines.push(line.trim_end().to_owned());
        }
    }
    hunks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_can_be_read() {
        assert!(!read().unwrap().is_empty());
    }

    #[test]
    fn an_entry_explains_its_own_lines_only() {
        let entries = read_table("# c\n\n[a all]\nwhy\nso\n-1\n+2\n[b transaction sometimes]\nx\n-1\n").unwrap();
        assert_eq!((entries[0].why.as_str(), entries[0].must_occur()), ("why so", true));
        assert!(is_line("-a...", "-ab") && !is_line("-a...", "-b") && !is_line("-a", "-ab"));
        assert!(
            entries[1].is_of(PoolMode::Transaction, Protocol::Simple) && !entries[1].is_of(PoolMode::Session, Protocol::Simple)
        );
        assert!(!entries[1].must_occur());
        let hunks = read_hunks("--- a\n+++ b\n@@ -7,2 +7 @@ f\n-1\n+2  \n@@ -9 +9 @@\n-1\n-3\n");
        assert_eq!(hunks.iter().map(|hunk| hunk.line).collect::<Vec<_>>(), [7, 9]);
        assert_eq!(hunks.iter().map(|hunk| entries[0].explains(hunk, "")).collect::<Vec<_>>(), [true, false]);
    }

    #[test]
    fn an_entry_explains_a_part_of_a_test() {
        let entries = read_table("[a all]\nwhy\n<b\n>c\n-x...\n").unwrap();
        let hunk = |line, text: &str| Hunk { line, lines: vec![text.into()] };
        let explained: Vec<bool> = (1..=4).map(|line| entries[0].explains(&hunk(line, "-x1"), "a\nb\nc\nd\n")).collect();
        assert_eq!(explained, [false, true, true, false]);
        assert!(!entries[0].explains(&hunk(2, "-y"), "a\nb\nc\nd\n"), "other lines of the part count");
        assert!(!entries[0].explains(&hunk(1, "-x1"), "a\n"));
    }

    #[test]
    fn an_entry_may_be_of_one_protocol() {
        let entries = read_table("[a transaction extended]\nwhy\n-1\n[b all simple sometimes]\nwhy\n-1\n").unwrap();
        assert!(entries[0].is_of(PoolMode::Transaction, Protocol::Extended) && entries[0].must_occur());
        assert!(!entries[0].is_of(PoolMode::Transaction, Protocol::Simple));
        assert!(entries[1].is_of(PoolMode::Session, Protocol::Simple) && !entries[1].must_occur());
    }

    #[test]
    fn an_entry_about_what_is_not_printed_any_more_is_known() {
        let entries = read_table("[a all sometimes]\nwhy\n-one...\n-two\n+x\n[a all sometimes]\nwhy\n<b\n>c\n+x\n").unwrap();
        assert!(entries[0].is_about("a\none more\n") && !entries[0].is_about("a\nb\n"));
        assert!(entries[1].is_about("b\nx\nc\n") && !entries[1].is_about("b\nx\n") && !entries[1].is_about("c\nb\n"));
    }

    #[test]
    fn an_entry_without_a_reason_is_refused() {
        for wrong in [
            "why\n[a all]\n",
            "[a all]\n-1\n",
            "[a all]\nwhy\n",
            "[a all]\nwhy\n<b\n",
            "[a all]\nwhy\n<b\n>c\n",
            "[a all]\nwhy\n<b\n-1\n",
            "[a never]\nwhy\n-1\n",
            "[a all often]\nwhy\n-1\n",
        ] {
            assert!(read_table(wrong).is_err(), "{wrong}");
        }
    }
}
