//! Outcomes of the statements of a run.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use super::Placing;
use super::answers::{Answer, Difference};
use super::known::Known;

/// Rows of an answer that are shown.
const SHOWN_ROWS_MAX: usize = 12;

/// One difference.
pub struct Differing {
    pub script: String,
    pub line: usize,
    pub text: String,
    pub kind: Difference,
    pub weir: String,
    pub whole: String,
}

/// Counts, and all differences.
#[derive(Default)]
pub struct Report {
    pub scripts: BTreeSet<String>,
    pub played: usize,
    pub equal: usize,
    /// Reasons of refusals, with how often.
    pub refused: BTreeMap<String, usize>,
    /// Statements that are not played, by reason.
    pub left_out: BTreeMap<&'static str, usize>,
    /// Tables whose rows were made equal again, since each server gives numbers and times of its own.
    pub renumbered: usize,
    pub differing: Vec<Differing>,
    /// Every statement with what became of it.
    pub story: String,
}

impl Report {
    /// Adds the outcomes of another stage.
    pub fn add(&mut self, other: Report) {
        self.scripts.extend(other.scripts);
        self.played += other.played;
        self.equal += other.equal;
        self.renumbered += other.renumbered;
        other.refused.into_iter().for_each(|(reason, count)| *self.refused.entry(reason).or_default() += count);
        other.left_out.into_iter().for_each(|(reason, count)| *self.left_out.entry(reason).or_default() += count);
        self.differing.extend(other.differing);
        self.story += &other.story;
    }

    pub fn refuse(&mut self, reason: &str) {
        *self.refused.entry(without_names(reason)).or_default() += 1;
    }

    pub fn leave_out(&mut self, why: &'static str) {
        *self.left_out.entry(why).or_default() += 1;
    }

    /// Differences that no row of the table explains, and rows that explain none.
    pub fn judge<'r>(&'r self, known: &[Known], placing: Placing) -> (Vec<&'r Differing>, Vec<String>) {
        let mut is_used = vec![false; known.len()];
        let unexplained = self.differing.iter().filter(|differing| {
            let explains = |known: &Known| known.explains(&differing.script, placing, differing.kind, &differing.text);
            let found = known.iter().position(explains);
            found.map(|at| is_used[at] = true).is_none()
        });
        let unexplained = unexplained.collect();
        let is_due = |(known, is_used): &(&Known, &bool)| !**is_used && known.is_due(&self.scripts, placing);
        let stale = known.iter().zip(&is_used).filter(is_due).map(|(known, _)| known.shown()).collect();
        (unexplained, stale)
    }

    /// Counts, and refusals by reason.
    pub fn counts(&self) -> String {
        let refused: usize = self.refused.values().sum();
        let mut text = format!(
            "{} scripts, {} statements played: {} equal, {refused} refused, {} differing; {} tables renumbered\n",
            self.scripts.len(),
            self.played,
            self.equal,
            self.differing.len(),
            self.renumbered
        );
        let mut reasons: Vec<(&String, &usize)> = self.refused.iter().collect();
        reasons.sort_by_key(|(reason, count)| (std::cmp::Reverse(**count), (*reason).clone()));
        for (reason, count) in reasons {
            let _ = writeln!(text, "{count:6} refused: {reason}");
        }
        for (reason, count) in &self.left_out {
            let _ = writeln!(text, "{count:6} not played: {reason}");
        }
        text
    }
}

impl Differing {
    /// True if a row of the table explains it.
    pub fn is_known(&self, known: &[Known], placing: Placing) -> bool {
        known.iter().any(|known| known.explains(&self.script, placing, self.kind, &self.text))
    }

    pub fn shown(&self) -> String {
        format!(
            "@@ {}.sql line {}: {}\n{}\n-- one server:\n{}-- Weir:\n{}",
            self.script, self.line, self.kind, self.text, self.whole, self.weir
        )
    }
}

/// A reason without the names in it.
fn without_names(reason: &str) -> String {
    let mut out = String::new();
    for (at, part) in reason.split('"').enumerate() {
        out += if at % 2 == 0 { part } else { "…" };
    }
    out.replace("…….……", "…").replace("….…", "…")
}

/// An answer in a few lines.
pub fn shown(answer: &Answer) -> String {
    let mut text = String::new();
    for part in &answer.parts {
        let columns: Vec<String> =
            part.columns.iter().map(|column| format!("{}:{}:{}", column.name, column.type_oid, column.modifier)).collect();
        if !columns.is_empty() {
            let _ = writeln!(text, "   ({})", columns.join(", "));
        }
        for row in part.rows.iter().take(SHOWN_ROWS_MAX) {
            let cells: Vec<&str> = row.iter().map(|cell| cell.as_deref().unwrap_or("NULL")).collect();
            let _ = writeln!(text, "   {}", cells.join(" | "));
        }
        let _ = writeln!(text, "   {} ({} rows, {} bytes)", part.tag, part.rows.len(), part.copied.len());
    }
    if let Some(failure) = &answer.failure {
        let whose = if failure.is_of_server { "" } else { " (Weir's own)" };
        let _ = writeln!(text, "   {} {}{whose} {}", failure.sqlstate, failure.message, failure.detail);
    }
    let _ = writeln!(text, "   [{}]", answer.status);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_count_without_names() {
        assert_eq!(without_names("\"public\".\"t\" reads \"x\""), "… reads …");
    }
}
