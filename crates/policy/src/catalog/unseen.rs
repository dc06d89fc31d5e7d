//! What runs without standing in a text: functions of triggers and of defaults, and rules. What they leave on a session must be asked for.
//!
//! In: the sources of all functions of users, and which of them come with a write of a relation. Out: relations whose writing may leave
//! something, and the names of parameters that functions make up, since a server lists those nowhere.

use super::draft::{Cells, Draft, DraftError, number, word};
use super::tables::closure;
use super::{Catalog, Path};
use crate::functions::Functions;
use crate::inventory::NAMES_MAX;
use regex::Regex;
use std::collections::BTreeSet;
use weir_sql::facts::Name;

/// What a draft has taken in.
pub(super) struct UnseenDraft {
    functions: Functions,
    /// Relations, and functions that run when they are written; no name: something that was not looked into.
    with_writes: Vec<(u32, String)>,
    made_up: BTreeSet<String>,
    /// Where a source sets a parameter with a dot in its name.
    pattern: Option<Regex>,
}

/// A call of `set_config` or a `SET`, and the name.
const MADE_UP: &str = r"(?i)(?:\bset_config\s*\(\s*'|\bset\s+(?:session\s+)?)([a-z_][a-z_0-9$]*(?:\.[a-z_][a-z_0-9$]*)+)";

impl Default for UnseenDraft {
    fn default() -> UnseenDraft {
        let pattern = Regex::new(MADE_UP).ok();
        UnseenDraft { functions: Functions::default(), with_writes: Vec::new(), made_up: BTreeSet::new(), pattern }
    }
}

impl Draft {
    /// Name, language and source of a function.
    pub(super) fn source(&mut self, cells: &Cells<'_>) -> Result<(), DraftError> {
        let (name, language, source) = (word(cells, 0)?, word(cells, 1)?, word(cells, 2)?);
        let UnseenDraft { functions, made_up, pattern, .. } = &mut self.unseen;
        functions.add(name, language, source);
        let found = pattern.iter().flat_map(|pattern| pattern.captures_iter(source)).filter_map(|found| found.get(1));
        let room = NAMES_MAX.saturating_sub(made_up.len());
        made_up.extend(found.take(room).map(|name| name.as_str().to_ascii_lowercase()));
        Ok(())
    }

    /// A relation and the name of a function that runs when it is written.
    pub(super) fn with_write(&mut self, cells: &Cells<'_>) -> Result<(), DraftError> {
        self.unseen.with_writes.push((number(cells, 0)?, word(cells, 1)?.to_owned()));
        Ok(())
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Unseen {
    /// Relations whose writing may leave something; sorted.
    relations: Box<[u32]>,
    made_up: Box<[String]>,
}

impl UnseenDraft {
    pub(super) fn made(self) -> Unseen {
        let leaves = |(_, name): &&(u32, String)| name.is_empty() || self.functions.leaves(name);
        let relations: BTreeSet<u32> = self.with_writes.iter().filter(leaves).map(|(relation, _)| *relation).collect();
        Unseen { relations: relations.into_iter().collect(), made_up: self.made_up.into_iter().collect() }
    }
}

impl Catalog {
    /// Whether writing some relation may leave something that no text shows.
    pub fn has_unseen(&self) -> bool {
        !self.unseen.relations.is_empty()
    }

    /// Whether a statement that writes these may leave something by what comes with them; also if it is not known what they are.
    pub fn leaves_unseen(&self, written: &[Name], path: &Path) -> bool {
        if written.is_empty() || !self.has_unseen() {
            return false;
        }
        let found: Option<Vec<u32>> = written.iter().map(|relation| self.number(relation, path)).collect();
        let is_one = |oid: &u32| self.unseen.relations.binary_search(oid).is_ok();
        match found.and_then(|found| closure(found, &self.tables.written_with)) {
            Some(found) => found.iter().any(is_one),
            None => true,
        }
    }

    /// Parameters that functions of users make up, as far as their sources show them; lower case.
    pub fn made_up(&self) -> &[String] {
        &self.unseen.made_up
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::{PARTS, Who};

    fn catalog(rows: &[(usize, &[&str])]) -> Catalog {
        let mut draft = Draft::default();
        for (part, cells) in rows {
            let cells: Vec<Option<&[u8]>> = cells.iter().map(|cell| Some(cell.as_bytes())).collect();
            draft.row(*part, &cells).unwrap();
        }
        draft.finish(&crate::config::Config::default().routing)
    }

    #[test]
    fn writes_that_run_what_leaves_something_are_known() {
        let (sources, writes) = (PARTS.len() - 2, PARTS.len() - 1);
        let catalog = catalog(&[
            (0, &["2200", "public"]),
            (2, &["20100", "2200", "plain", "r", "p"]),
            (2, &["20101", "2200", "stamped", "r", "p"]),
            (2, &["20102", "2200", "sets", "r", "p"]),
            (2, &["20103", "2200", "parent", "p", "p"]),
            (2, &["20104", "2200", "ruled", "r", "p"]),
            (9, &["postgres", "public"]),
            (10, &["20103", "20102"]),
            (sources, &["stamp", "plpgsql", "begin new.at = now(); return new; end"]),
            (sources, &["calls", "plpgsql", "begin perform inner_one(); return new; end"]),
            (
                sources,
                &["inner_one", "plpgsql", "begin perform set_config('App.Who', 'x', false); SET SESSION app.other = 1; end"],
            ),
            (writes, &["20101", "stamp"]),
            (writes, &["20102", "calls"]),
            (writes, &["20104", ""]),
        ]);
        assert!(catalog.has_unseen());
        assert_eq!(catalog.made_up(), ["app.other", "app.who"]);
        let path = catalog.path(&Who { user: "postgres", has_role: false }, None);
        for (table, expected) in
            [("plain", false), ("stamped", false), ("sets", true), ("parent", true), ("ruled", true), ("elsewhere", true)]
        {
            let name = Name { schema: String::new(), name: table.into() };
            assert_eq!(catalog.leaves_unseen(&[name], &path), expected, "{table}");
        }
        assert!(!catalog.leaves_unseen(&[], &path));
    }

    #[test]
    fn a_database_without_such_things_costs_nothing() {
        let catalog = catalog(&[(0, &["2200", "public"]), (9, &["postgres", "public"])]);
        let path = catalog.path(&Who { user: "postgres", has_role: false }, None);
        let name = Name { schema: String::new(), name: "elsewhere".into() };
        assert!(!catalog.has_unseen() && !catalog.leaves_unseen(&[name], &path));
    }
}
