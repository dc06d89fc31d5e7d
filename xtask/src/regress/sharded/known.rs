//! Differences that are allowed, with reasons: the table in `differences.txt`.

use std::collections::BTreeSet;

use anyhow::{Context, Result, bail};

use super::Placing;
use super::answers::Difference;

const TABLE: &str = include_str!("differences.txt");

/// One row of the table.
#[derive(Debug, PartialEq, Eq)]
pub struct Known {
    /// Of the script, without its ending.
    script: String,
    placing: Option<Placing>,
    kind: Difference,
    /// It occurs by chance, or in some versions.
    is_sometimes: bool,
    pub why: String,
    /// Begins of statements, spaces aside.
    texts: Vec<String>,
}

impl Known {
    /// True if it is about this difference.
    pub fn explains(&self, script: &str, placing: Placing, kind: Difference, text: &str) -> bool {
        let text = plain(text);
        let is_here = self.script == script && self.placing.is_none_or(|own| own == placing);
        is_here && self.kind == kind && self.texts.iter().any(|begin| text.starts_with(begin.as_str()))
    }

    /// True if a run of these scripts in which it did not occur shows that it is not needed.
    pub fn is_due(&self, scripts: &BTreeSet<String>, placing: Placing) -> bool {
        !self.is_sometimes && scripts.contains(&self.script) && self.placing.is_none_or(|own| own == placing)
    }

    /// Where it stands.
    pub fn shown(&self) -> String {
        format!("{} {}: {} ({})", self.script, self.kind, self.texts.join(" | "), self.why)
    }
}

/// A text in lower case, with one space for each gap.
fn plain(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").to_lowercase()
}

/// The table. Error: a line that is none of its kinds.
pub fn read() -> Result<Vec<Known>> {
    read_table(TABLE)
}

fn read_table(table: &str) -> Result<Vec<Known>> {
    let mut all: Vec<Known> = Vec::new();
    for (at, line) in table.lines().enumerate() {
        let what = || format!("differences.txt, line {}: {line}", at + 1);
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if let Some(head) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            all.push(read_head(head).with_context(what)?);
            continue;
        }
        let Some(known) = all.last_mut() else { bail!("{}: stands before the first [script]", what()) };
        match line.strip_prefix("| ") {
            Some(text) => known.texts.push(plain(text)),
            None => known.why = format!("{} {line}", known.why).trim().to_owned(),
        }
    }
    match all.iter().find(|known| known.why.is_empty() || known.texts.is_empty()) {
        Some(known) => bail!("differences.txt: [{}] needs a reason and statements", known.script),
        None => Ok(all),
    }
}

/// `script`, `all`, `key` or `node`, a kind, and perhaps `sometimes`.
fn read_head(head: &str) -> Result<Known> {
    let mut words = head.split_whitespace();
    let script = words.next().context("no name of a script")?.to_owned();
    let placing = match words.next() {
        Some("all") => None,
        Some("key") => Some(Placing::Key),
        Some("node") => Some(Placing::Node),
        other => bail!("{other:?} is neither all, key nor node"),
    };
    let name = words.next().context("no kind of difference")?;
    let kinds = [
        Difference::Error,
        Difference::Tag,
        Difference::Columns,
        Difference::Rows,
        Difference::Order,
        Difference::Status,
        Difference::Lost,
        Difference::Table,
    ];
    let kind = kinds.into_iter().find(|kind| kind.to_string() == name).with_context(|| format!("{name} is no kind"))?;
    let is_sometimes = match words.next() {
        None => false,
        Some("sometimes") => true,
        Some(other) => bail!("{other} is not \"sometimes\""),
    };
    Ok(Known { script, placing, kind, is_sometimes, why: String::new(), texts: Vec::new() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_can_be_read() {
        read().unwrap();
    }

    #[test]
    fn a_row_explains_its_own_statements_only() {
        let known = &read_table("# c\n[a key rows]\nwhy\nso\n| Select  1\n").unwrap()[0];
        assert_eq!(known.why, "why so");
        assert!(known.explains("a", Placing::Key, Difference::Rows, "select\n 1, 2"));
        assert!(!known.explains("a", Placing::Node, Difference::Rows, "select 1"));
        assert!(!known.explains("a", Placing::Key, Difference::Error, "select 1"));
        assert!(!known.explains("b", Placing::Key, Difference::Rows, "select 1"));
        assert!(known.is_due(&BTreeSet::from(["a".to_owned()]), Placing::Key));
    }

    #[test]
    fn a_row_without_a_reason_is_refused() {
        for wrong in [
            "why\n[a all rows]\n",
            "[a all rows]\n| x\n",
            "[a all rows]\nwhy\n",
            "[a all never]\nwhy\n| x\n",
            "[a some rows]\nwhy\n| x",
        ] {
            assert!(read_table(wrong).is_err(), "{wrong}");
        }
    }
}
