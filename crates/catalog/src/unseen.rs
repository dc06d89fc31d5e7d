//! Functions that run without a word of the text: those of triggers, rules, views and defaults. The state that they leave on a
//! session must be asked for.
//!
//! In: the sources of all functions of users, and those that run with a use of a relation. Out: relations whose writing or
//! reading may leave something, and names of parameters that functions invent, since a server lists those nowhere.

use super::draft::{Cells, Draft, DraftError, number, word};
use super::tables::closure;
use super::{Catalog, Names};
use crate::functions::Functions;

use regex::Regex;
use std::collections::BTreeSet;
use weir_sql::facts::Name;

/// Names of parameters asked for at once.
pub const NAMES_MAX: usize = 256;

/// Ways of using a database that may leave something which no text shows; also the ways of one statement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hidden(u8);

impl Hidden {
    pub const NONE: Hidden = Hidden(0);
    /// Writing rows: triggers, rules, defaults, checks.
    pub const WRITES: Hidden = Hidden(1);
    /// Reading: views, policies.
    pub const READS: Hidden = Hidden(2);
    /// Defining something: event triggers.
    pub const DEFINES: Hidden = Hidden(4);
    /// Something asks for drawn sequence values, by `currval` or `lastval`. No statement is asked about for that.
    pub const RECALLS: Hidden = Hidden(8);
    /// A view draws from sequences, or asks for drawn values: so any read may. No statement is asked about for that.
    pub const SEQUENCE_VIEWS: Hidden = Hidden(16);
    /// Uses of sequences that are assumed after a definition, until the catalog is read again.
    pub const SEQUENCES: Hidden = Hidden::RECALLS.and(Hidden::SEQUENCE_VIEWS);
    /// Ways that are assumed after a definition, until the catalog is read again. Reads are not: a view that sets something is
    /// rare, and reads are many.
    pub const CHANGED: Hidden = Hidden::WRITES.and(Hidden::DEFINES);
    /// Ways that are assumed before the catalog was ever read.
    pub const ALL: Hidden = Hidden::CHANGED.and(Hidden::READS);

    #[must_use]
    pub const fn and(self, other: Hidden) -> Hidden {
        Hidden(self.0 | other.0)
    }

    /// True if there is something in both.
    pub const fn meets(self, other: Hidden) -> bool {
        self.0 & other.0 != 0
    }

    pub const fn bits(self) -> u8 {
        self.0
    }

    pub const fn of_bits(bits: u8) -> Hidden {
        Hidden(bits)
    }

    const fn when(self, condition: bool) -> Hidden {
        if condition { self } else { Hidden::NONE }
    }
}

/// Rows about hidden functions that a draft has taken in.
pub(super) struct UnseenDraft {
    functions: Functions,
    /// Relations, and functions that run when they are written; no name: something is written with them.
    with_writes: Vec<(u32, String)>,
    /// Functions that run when a relation is read.
    with_reads: Vec<(u32, String)>,
    /// Functions of event triggers.
    with_definitions: Vec<String>,
    sequences: Hidden,
    made_up: BTreeSet<String>,
    /// Where a source sets a parameter with a dot in its name.
    pattern: Option<Regex>,
}

/// A call of `set_config` or a `SET`, and the name.
const MADE_UP: &str = r"(?i)(?:\bset_config\s*\(\s*'|\bset\s+(?:session\s+)?)([a-z_][a-z_0-9$]*(?:\.[a-z_][a-z_0-9$]*)+)";

impl Default for UnseenDraft {
    fn default() -> UnseenDraft {
        UnseenDraft {
            functions: Functions::default(),
            with_writes: Vec::new(),
            with_reads: Vec::new(),
            with_definitions: Vec::new(),
            sequences: Hidden::NONE,
            made_up: BTreeSet::new(),
            pattern: Regex::new(MADE_UP).ok(),
        }
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

    /// How it comes about, a relation, and the name of a function that runs then.
    pub(super) fn hidden(&mut self, cells: &Cells<'_>) -> Result<(), DraftError> {
        let (how, relation, function) = (word(cells, 0)?, number(cells, 1)?, word(cells, 2)?.to_owned());
        match how {
            "w" => self.unseen.with_writes.push((relation, function)),
            "r" => self.unseen.with_reads.push((relation, function)),
            "d" => self.unseen.with_definitions.push(function),
            "s" => self.unseen.sequences = self.unseen.sequences.and(Hidden::RECALLS),
            "v" => self.unseen.sequences = self.unseen.sequences.and(Hidden::SEQUENCES),
            _ => return Err(DraftError::Row),
        }
        Ok(())
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Unseen {
    hidden: Hidden,
    has_event_triggers: bool,
    /// Relations whose writing may leave something; sorted.
    written: Box<[u32]>,
    /// Relations whose reading may leave something; sorted.
    read: Box<[u32]>,
    made_up: Box<[String]>,
}

impl UnseenDraft {
    pub(super) fn made(self) -> Unseen {
        let UnseenDraft { functions, with_writes, with_reads, with_definitions, sequences, made_up, .. } = self;
        let leaves = |name: &str| functions.leaves(name);
        let by_writes = with_writes.iter().any(|(_, name)| leaves(name));
        let by_definitions = with_definitions.iter().any(|name| leaves(name));
        let has_event_triggers = !with_definitions.is_empty();
        // If writes or definitions may leave something, then so may all that write or define in their turn.
        let spreads = by_writes || by_definitions;
        let counts = |name: &str| leaves(name) || (spreads && (name.is_empty() || functions.writes(name)));
        let all = |list: &[(u32, String)]| -> Box<[u32]> {
            let found: BTreeSet<u32> = list.iter().filter(|(_, name)| counts(name)).map(|(relation, _)| *relation).collect();
            found.into_iter().collect()
        };
        let (written, read) = (all(&with_writes), all(&with_reads));
        let hidden = Hidden::WRITES
            .when(!written.is_empty())
            .and(Hidden::READS.when(!read.is_empty()))
            .and(sequences)
            .and(Hidden::DEFINES.when(by_definitions || (by_writes && with_definitions.iter().any(|name| counts(name)))));
        Unseen { hidden, has_event_triggers, written, read, made_up: made_up.into_iter().collect() }
    }
}

impl Catalog {
    /// Ways of using the database that may leave something which no text shows.
    pub fn hidden(&self) -> Hidden {
        self.unseen.hidden
    }

    /// True if definitions run functions of users, which may write anything.
    pub fn has_event_triggers(&self) -> bool {
        self.unseen.has_event_triggers
    }

    /// True if a statement that writes these may leave something by the functions that run with it, or if the relations are not
    /// known.
    ///
    /// A name counts for all relations of that name: which of them it means hangs on a `search_path` that a transaction may have set.
    pub fn leaves_by_writing(&self, written: &[Name]) -> bool {
        let mut found = Vec::new();
        for relation in written {
            let before = found.len();
            found.extend(self.numbers(relation));
            if found.len() == before {
                return true;
            }
        }
        let is_one = |oid: &u32| self.unseen.written.binary_search(oid).is_ok();
        closure(found, &self.tables.written_with).is_none_or(|found| found.iter().any(is_one))
    }

    /// True if a read of these relations may leave something. An unknown name is PostgreSQL's own, or temporary.
    pub fn leaves_by_reading(&self, names: &Names) -> bool {
        let found = names.relations.iter().flat_map(|relation| self.numbers(relation)).collect();
        let is_one = |oid: &u32| self.unseen.read.binary_search(oid).is_ok();
        closure(found, &self.tables.read_with).is_none_or(|found| found.iter().any(is_one))
    }

    /// Parameters that functions of users make up, as far as their sources show them; lower case.
    pub fn made_up(&self) -> &[String] {
        &self.unseen.made_up
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PARTS;

    const SOURCES: usize = PARTS.len() - 2;
    const HIDDEN: usize = PARTS.len() - 1;

    fn catalog(rows: &[(usize, &[&str])]) -> Catalog {
        let mut draft = Draft::default();
        for (part, cells) in rows {
            let cells: Vec<Option<&[u8]>> = cells.iter().map(|cell| Some(cell.as_bytes())).collect();
            draft.row(*part, &cells).unwrap();
        }
        draft.finish(&weir_config::Config::default().routing)
    }

    fn name(name: &str) -> Name {
        Name { schema: String::new(), name: name.into() }
    }

    fn check_writing(catalog: &Catalog, expected: &[(&str, bool)]) {
        for (table, expected) in expected {
            assert_eq!(catalog.leaves_by_writing(&[name(table)]), *expected, "{table}");
        }
    }

    #[test]
    fn writes_that_run_what_leaves_something_are_known() {
        let catalog = catalog(&[
            (0, &["2200", "public"]),
            (2, &["20100", "2200", "plain", "r", "p"]),
            (2, &["20101", "2200", "stamped", "r", "p"]),
            (2, &["20102", "2200", "sets", "r", "p"]),
            (2, &["20103", "2200", "parent", "p", "p"]),
            (2, &["20104", "2200", "ruled", "r", "p"]),
            (2, &["20105", "2200", "audited", "r", "p"]),
            (9, &["postgres", "public"]),
            (10, &["20103", "20102"]),
            (SOURCES, &["stamp", "plpgsql", "begin new.at = now(); return new; end"]),
            (SOURCES, &["audit", "plpgsql", "begin insert into sets values (1); return new; end"]),
            (SOURCES, &["calls", "plpgsql", "begin perform inner_one(); return new; end"]),
            (
                SOURCES,
                &["inner_one", "plpgsql", "begin perform set_config('App.Who', 'x', false); SET SESSION app.other = 1; end"],
            ),
            (HIDDEN, &["w", "20101", "stamp"]),
            (HIDDEN, &["w", "20102", "calls"]),
            (HIDDEN, &["w", "20104", ""]),
            (HIDDEN, &["w", "20105", "audit"]),
        ]);
        assert_eq!(catalog.hidden(), Hidden::WRITES);
        assert_eq!(catalog.made_up(), ["app.other", "app.who"]);
        check_writing(
            &catalog,
            &[("plain", false), ("stamped", false), ("sets", true), ("parent", true), ("ruled", true), ("audited", true)],
        );
        check_writing(&catalog, &[("elsewhere", true)]);
        assert!(!catalog.leaves_by_writing(&[]));
    }

    #[test]
    fn what_only_writes_leaves_nothing_where_nothing_does() {
        let catalog = catalog(&[
            (0, &["2200", "public"]),
            (2, &["20104", "2200", "ruled", "r", "p"]),
            (2, &["20105", "2200", "audited", "r", "p"]),
            (SOURCES, &["audit", "plpgsql", "begin insert into plain values (1); return new; end"]),
            (HIDDEN, &["w", "20104", ""]),
            (HIDDEN, &["w", "20105", "audit"]),
            (HIDDEN, &["r", "20104", "count"]),
            (HIDDEN, &["d", "0", "audit"]),
        ]);
        assert_eq!(catalog.hidden(), Hidden::NONE);
        check_writing(&catalog, &[("ruled", false), ("audited", false)]);
    }

    #[test]
    fn views_and_event_triggers_count_too() {
        let rows: [(usize, &[&str]); 6] = [
            (0, &["2200", "public"]),
            (2, &["20100", "2200", "plain", "r", "p"]),
            (2, &["20101", "2200", "setting", "v", "p"]),
            (2, &["20102", "2200", "outer_one", "v", "p"]),
            (HIDDEN, &["r", "20101", "set_config"]),
            (6, &["20102", "relid 20101"]),
        ];
        let catalog_of_views = catalog(&rows);
        assert_eq!(catalog_of_views.hidden(), Hidden::READS);
        for (relation, expected) in [("plain", false), ("setting", true), ("outer_one", true), ("pg_class", false)] {
            let names = Names { relations: [name(relation)].into(), ..Names::default() };
            assert_eq!(catalog_of_views.leaves_by_reading(&names), expected, "{relation}");
        }
        let sets = catalog(&[
            (SOURCES, &["sets", "plpgsql", "begin set a = 1; end"]),
            (HIDDEN, &["d", "0", "sets"]),
            (HIDDEN, &["s", "0", ""]),
        ]);
        assert_eq!(sets.hidden(), Hidden::DEFINES.and(Hidden::RECALLS));
        assert_eq!(catalog(&[(HIDDEN, &["v", "0", ""])]).hidden(), Hidden::SEQUENCES);
    }

    #[test]
    fn a_database_without_such_things_costs_nothing() {
        let catalog = catalog(&[(0, &["2200", "public"]), (2, &["20100", "2200", "plain", "r", "p"])]);
        assert_eq!(catalog.hidden(), Hidden::NONE);
        assert!(!catalog.leaves_by_writing(&[name("plain")]));
    }
}
