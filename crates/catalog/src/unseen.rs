//! Functions that run unseen, by triggers, rules, views and defaults, and may leave state or, in extensions' C, act
//! outside of the database.
//!
//! In: sources of users' functions, and functions run by uses of relations. Out: relations whose use may leave
//! something, and made-up parameter names, which a server lists nowhere.

mod function_reach;

use super::draft::{CatalogDraft, Cells, DraftError, number, word};
use super::tables::closure;
use super::{Catalog, SearchPath, StatementNames};
use crate::builtin;
use crate::functions::DatabaseFunctions;
pub(super) use crate::unseen::function_reach::{REACH, UserFunctionNames};
use crate::unseen::function_reach::{ReachDraft, StatefulFunctions, StatefulNames};

use std::collections::{BTreeSet, HashSet};
use weir_sql::facts::QualifiedName;

pub const NAMES_MAX: usize = 256;

/// Uses that may leave something which no text shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HiddenUses(u8);

impl HiddenUses {
    pub const NONE: HiddenUses = HiddenUses(0);
    /// Writing rows: triggers, rules, defaults, checks.
    pub const WRITES: HiddenUses = HiddenUses(1);
    /// Reading: views, policies.
    pub const READS: HiddenUses = HiddenUses(2);
    /// Definitions: event triggers.
    pub const DEFINES: HiddenUses = HiddenUses(4);
    /// Something calls `currval` or `lastval`. Not a use of a statement.
    pub const RECALLS: HiddenUses = HiddenUses(8);
    /// A view draws or asks for sequence values. Not a use of a statement.
    pub const SEQUENCE_VIEWS: HiddenUses = HiddenUses(16);
    /// Names that do not look like calls: types, operators, columns.
    pub const NAMES: HiddenUses = HiddenUses(32);
    /// Casts and operators that no text shows.
    pub const ANYTHING: HiddenUses = HiddenUses(64);
    /// Writes to referring relations; of statements only.
    pub const CASCADES: HiddenUses = HiddenUses(128);
    /// Assumed after a definition until the catalog is read again.
    pub const SEQUENCES: HiddenUses = HiddenUses::RECALLS.and(HiddenUses::SEQUENCE_VIEWS);
    pub const ALL: HiddenUses = HiddenUses::ASSUMED.and(HiddenUses::ANYTHING).and(HiddenUses::CASCADES);
    /// Assumed until the catalog is read, and after definitions. Hidden casts are rare and left out, so `SELECT 1`
    /// costs no question.
    pub const ASSUMED: HiddenUses = HiddenUses::WRITES.and(HiddenUses::READS).and(HiddenUses::DEFINES).and(HiddenUses::NAMES);

    #[must_use]
    pub const fn and(self, other: HiddenUses) -> HiddenUses {
        HiddenUses(self.0 | other.0)
    }

    pub const fn meets(self, other: HiddenUses) -> bool {
        self.0 & other.0 != 0
    }

    pub const fn bits(self) -> u8 {
        self.0
    }

    pub const fn of_bits(bits: u8) -> HiddenUses {
        HiddenUses(bits)
    }

    const fn when(self, condition: bool) -> HiddenUses {
        if condition { self } else { HiddenUses::NONE }
    }
}

#[derive(Default)]
pub(super) struct UnseenDraft {
    functions: DatabaseFunctions,
    /// Relations, and functions that run with their writes; an empty name: another write comes along.
    with_writes: Vec<(u32, String)>,
    with_reads: Vec<(u32, String)>,
    with_definitions: Vec<String>,
    /// Functions in C of extensions.
    in_c: HashSet<String>,
    pub(super) foreign: Vec<u32>,
    sequences: HiddenUses,
    made_up: BTreeSet<String>,
    reach: ReachDraft,
}

impl UnseenDraft {
    /// Notes a made-up parameter. Parameters that are only read count too: no rows may depend on another client's
    /// value.
    pub(super) fn name_parameter(&mut self, name: &str) {
        if name.contains('.') && self.made_up.len() < NAMES_MAX {
            self.made_up.insert(name.to_ascii_lowercase());
        }
    }
}

impl CatalogDraft {
    pub(super) fn source(&mut self, cells: &Cells<'_>) -> Result<(), DraftError> {
        let (name, language, source) = (word(cells, 0)?, word(cells, 1)?, word(cells, 2)?);
        let kept = self.unseen.functions.add(name, language, source);
        if !self.unseen.reach.keep_source(name, source) {
            // Only the calls are kept, which may take more than a short source.
            self.gathered.give_back(source.len());
        }
        Ok(self.gathered.take(kept)?)
    }

    pub(super) fn hidden(&mut self, cells: &Cells<'_>) -> Result<(), DraftError> {
        let (how, relation, function) = (word(cells, 0)?, number(cells, 1)?, word(cells, 2)?.to_owned());
        match how {
            "w" => self.unseen.with_writes.push((relation, function)),
            "r" => self.unseen.with_reads.push((relation, function)),
            "d" => self.unseen.with_definitions.push(function),
            "c" => drop(self.unseen.in_c.insert(function)),
            "s" => self.unseen.sequences = self.unseen.sequences.and(HiddenUses::RECALLS),
            "v" => self.unseen.sequences = self.unseen.sequences.and(HiddenUses::SEQUENCES),
            _ => return Err(DraftError::Row),
        }
        Ok(())
    }
}

#[derive(Debug, Default)]
pub(super) struct HiddenEffects {
    hidden: HiddenUses,
    has_event_triggers: bool,
    /// Relations whose writing may leave something; sorted, as the lists below.
    written: Box<[u32]>,
    read: Box<[u32]>,
    /// Foreign tables included.
    acts_by_writes: Box<[u32]>,
    acts_by_reads: Box<[u32]>,
    made_up: Box<[String]>,
    reached: StatefulNames,
}

impl UnseenDraft {
    /// Returns relations whose writing, and whose reading, may act outside. `acts`: PostgreSQL's own functions that do.
    fn acting(&self, acts: impl Fn(&str) -> bool) -> (Box<[u32]>, Box<[u32]>) {
        let of_outside = |name: &str| self.in_c.contains(name) || acts(name) || matches!(name, "copy" | "import");
        // No body shows which tables it uses.
        let any_foreign = !self.foreign.is_empty();
        let is_named = |name: &str| !matches!(name, "" | "set_config");
        let itself = |name: &str| is_named(name) && (any_foreign || self.functions.act(name, of_outside));
        let by_reads = self.with_reads.iter().any(|(_, name)| itself(name));
        // If a read acts outside, so may all that reads; if a write does, all that writes.
        let spreads = by_reads || any_foreign || self.with_writes.iter().any(|(_, name)| itself(name));
        let counts = |name: &str| by_reads || itself(name) || (spreads && (name.is_empty() || self.functions.writes(name)));
        let all = |list: &[(u32, String)]| -> Box<[u32]> {
            let found = list.iter().filter(|(_, name)| counts(name)).map(|(relation, _)| *relation);
            let found: BTreeSet<u32> = found.chain(self.foreign.iter().copied()).collect();
            found.into_iter().collect()
        };
        (all(&self.with_writes), all(&self.with_reads))
    }

    pub(super) fn made(self, acts: impl Fn(&str) -> bool, named: &UserFunctionNames<'_>) -> HiddenEffects {
        let (acts_by_writes, acts_by_reads) = self.acting(acts);
        let UnseenDraft { functions, with_writes, with_reads, with_definitions, sequences, made_up, reach, .. } = self;
        let others = with_writes.iter().map(|(_, name)| name).chain(&with_definitions).map(String::as_str);
        let followed = StatefulFunctions::of(&reach, &functions, others);
        let leaves = |name: &str| followed.leaves(name);
        let reached = followed.made(named);
        let (more_written, more_read) = followed.by_relations();
        let by_writes = with_writes.iter().any(|(_, name)| leaves(name)) || !more_written.is_empty();
        let by_definitions = with_definitions.iter().any(|name| leaves(name));
        let has_event_triggers = !with_definitions.is_empty();
        // If writes or definitions may leave something, so may all that write or define.
        let spreads = by_writes || by_definitions;
        let counts = |name: &str| leaves(name) || (spreads && (name.is_empty() || functions.writes(name)));
        let all = |list: &[(u32, String)], more: BTreeSet<u32>| -> Box<[u32]> {
            let found = list.iter().filter(|(_, name)| counts(name)).map(|(relation, _)| *relation);
            found.chain(more).collect::<BTreeSet<u32>>().into_iter().collect()
        };
        let (written, read) = (all(&with_writes, more_written), all(&with_reads, more_read));
        let hidden = HiddenUses::WRITES
            .when(!written.is_empty())
            .and(HiddenUses::READS.when(!read.is_empty()))
            .and(HiddenUses::NAMES.when(reached.has_names()))
            .and(HiddenUses::ANYTHING.when(reached.is_anywhere()))
            .and(sequences)
            .and(HiddenUses::DEFINES.when(by_definitions || (by_writes && with_definitions.iter().any(|name| counts(name)))));
        let made_up = made_up.into_iter().collect();
        HiddenEffects { hidden, has_event_triggers, written, read, acts_by_writes, acts_by_reads, made_up, reached }
    }
}

impl Catalog {
    pub fn hidden(&self) -> HiddenUses {
        self.unseen.hidden
    }

    pub fn has_event_triggers(&self) -> bool {
        self.unseen.has_event_triggers
    }

    /// True if writing these, or an unknown relation, may leave something. All relations of a name count: the
    /// transaction may have set `search_path`.
    pub fn leaves_by_writing(&self, written: &[QualifiedName]) -> bool {
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

    /// True if reading may leave something. An unknown relation counts: a temporary table may have a column of any
    /// type.
    pub fn leaves_by_reading(&self, names: &StatementNames) -> bool {
        if names.relations.iter().any(|relation| !is_own(relation) && self.numbers(relation).next().is_none()) {
            return true;
        }
        let found = names.relations.iter().flat_map(|relation| self.numbers(relation)).collect();
        let is_one = |oid: &u32| self.unseen.read.binary_search(oid).is_ok();
        closure(found, &self.tables.read_with).is_none_or(|found| found.iter().any(is_one))
    }

    /// True if a statement surely has no effect outside of the database: repeatable functions, no foreign table,
    /// nothing that runs C of an extension. Functions of types, operators and indexes count only if they may write.
    pub fn stays_inside(&self, names: &StatementNames, written: &[QualifiedName], path: &SearchPath) -> bool {
        let is_known = |relation: &QualifiedName| is_own(relation) || self.numbers(relation).next().is_some();
        let acts = |relations: &[QualifiedName], with: &[(u32, u32)], acting: &[u32]| {
            if acting.is_empty() {
                return false;
            }
            let found = relations.iter().flat_map(|relation| self.numbers(relation)).collect();
            closure(found, with).is_none_or(|found| found.iter().any(|oid| acting.binary_search(oid).is_ok()))
        };
        names.functions.iter().all(|function| self.is_repeatable(function, path))
            && !self.runs_writing(names, path)
            && written.iter().chain(&names.relations).all(is_known)
            && !acts(written, &self.tables.written_with, &self.unseen.acts_by_writes)
            && !acts(&names.relations, &self.tables.read_with, &self.unseen.acts_by_reads)
    }

    /// True for PostgreSQL's own repeatable functions and users' functions that write nothing.
    fn is_repeatable(&self, function: &QualifiedName, path: &SearchPath) -> bool {
        let is_own = match function.schema.as_str() {
            "" | "pg_catalog" => builtin::is_repeatable(&function.name),
            schema => schema == "information_schema",
        };
        is_own && (!function.schema.is_empty() || self.users_only_read(function, path))
    }

    /// Parameters that users' functions and stored expressions make up or ask for; lower case.
    pub fn made_up(&self) -> &[String] {
        &self.unseen.made_up
    }
}

/// PostgreSQL's own relations are not listed.
fn is_own(relation: &QualifiedName) -> bool {
    match relation.schema.as_str() {
        "" => relation.name.starts_with("pg_"),
        schema => matches!(schema, "pg_catalog" | "information_schema"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PARTS;
    use crate::tests::rows::empty;

    const SOURCES: usize = PARTS.len() - 3;
    const HIDDEN: usize = PARTS.len() - 2;

    fn catalog(rows: &[(usize, &[&str])]) -> Catalog {
        let mut draft = empty();
        for (part, cells) in rows {
            let cells: Vec<Option<&[u8]>> = cells.iter().map(|cell| Some(cell.as_bytes())).collect();
            draft.row(*part, &cells).unwrap();
        }
        draft.finish(&weir_config::Config::default().routing)
    }

    fn name(name: &str) -> QualifiedName {
        QualifiedName { schema: String::new(), name: name.into() }
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
        assert_eq!(catalog.hidden(), HiddenUses::WRITES);
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
        assert_eq!(catalog.hidden(), HiddenUses::NONE);
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
        assert_eq!(catalog_of_views.hidden(), HiddenUses::READS);
        for (relation, expected) in [("plain", false), ("setting", true), ("outer_one", true), ("pg_class", false)] {
            let names = StatementNames { relations: [name(relation)].into(), ..StatementNames::default() };
            assert_eq!(catalog_of_views.leaves_by_reading(&names), expected, "{relation}");
        }
        let sets = catalog(&[
            (SOURCES, &["sets", "plpgsql", "begin set a = 1; end"]),
            (HIDDEN, &["d", "0", "sets"]),
            (HIDDEN, &["s", "0", ""]),
        ]);
        assert_eq!(sets.hidden(), HiddenUses::DEFINES.and(HiddenUses::RECALLS));
        assert_eq!(catalog(&[(HIDDEN, &["v", "0", ""])]).hidden(), HiddenUses::SEQUENCES);
    }

    /// True if a text has no effect outside of the database.
    fn stays_inside(catalog: &Catalog, text: &str) -> bool {
        let facts = weir_sql::facts(text.as_bytes());
        let path = catalog.path(&crate::LookupUser { user: "postgres", has_role: false }, None);
        catalog.stays_inside(&StatementNames::of(&facts).unwrap_or_default(), &facts.named.written, &path)
    }

    fn check_inside(catalog: &Catalog, expected: &[(&str, bool)]) {
        for (text, expected) in expected {
            assert_eq!(stays_inside(catalog, text), *expected, "{text}");
        }
    }

    #[test]
    fn what_may_act_outside_of_the_database_is_told_from_what_does_not() {
        let catalog = catalog(&[
            (0, &["11", "pg_catalog"]),
            (0, &["2200", "public"]),
            (1, &["764", "11", "lo_import", "t", "f"]),
            (1, &["870", "11", "lower", "i", "f"]),
            (1, &["1574", "11", "nextval", "t", "f"]),
            (1, &["20010", "2200", "dblink_exec", "t", "f"]),
            (1, &["20011", "2200", "now", "t", "f"]),
            (2, &["20100", "2200", "plain", "r", "p"]),
            (2, &["20101", "2200", "stamped", "r", "p"]),
            (2, &["20102", "2200", "of_c", "r", "p"]),
            (2, &["20103", "2200", "calls_c", "r", "p"]),
            (2, &["20104", "2200", "parent", "p", "p"]),
            (2, &["20105", "2200", "copies", "r", "p"]),
            (2, &["20106", "2200", "audited", "r", "p"]),
            (2, &["20107", "2200", "imports", "r", "p"]),
            (2, &["20108", "2200", "seen", "v", "p"]),
            (9, &["postgres", "public"]),
            (10, &["20104", "20103"]),
            (SOURCES, &["stamp", "plpgsql", "begin new.at = now(); new.n = lower('X') || nextval('s'); return new; end"]),
            (SOURCES, &["tells", "plpgsql", "begin perform dblink_exec('insert'); return new; end"]),
            (SOURCES, &["writes_file", "plpgsql", "begin copy plain to program 'mail'; return new; end"]),
            (SOURCES, &["reads_file", "plpgsql", "begin new.o = lo_import('/x'); return new; end"]),
            (SOURCES, &["audit", "plpgsql", "begin insert into calls_c (a) values (1); return new; end"]),
            (HIDDEN, &["c", "0", "dblink_exec"]),
            (HIDDEN, &["c", "0", "notice"]),
            (HIDDEN, &["w", "20101", "stamp"]),
            (HIDDEN, &["w", "20102", "notice"]),
            (HIDDEN, &["w", "20103", "tells"]),
            (HIDDEN, &["w", "20105", "writes_file"]),
            (HIDDEN, &["w", "20106", "audit"]),
            (HIDDEN, &["w", "20107", "reads_file"]),
        ]);
        assert_eq!(catalog.hidden(), HiddenUses::NONE, "nothing of that leaves anything on a session");
        check_inside(
            &catalog,
            &[
                ("insert into plain values (1)", true),
                ("insert into stamped values (1)", true),
                ("insert into of_c values (1)", false),
                ("select a from of_c", true),
                ("delete from calls_c", false),
                ("delete from parent", false),
                ("insert into copies values (1)", false),
                ("insert into audited values (1)", false),
                ("insert into imports values (1)", false),
                ("insert into elsewhere values (1)", false),
                ("select a from elsewhere", false),
                ("select a from pg_class", true),
                ("select nextval('s'), lower('X'), pg_catalog.now()", true),
                ("select setval('s', 1)", false),
                ("select lo_import('/x')", false),
                ("select now()", false),
                ("select pg_file_write('x', 'y', true)", false),
                ("with elsewhere as (select 1) select * from elsewhere", true),
            ],
        );
    }

    #[test]
    fn what_acts_outside_when_it_is_read_spreads_to_all_that_reads() {
        let rows: [(usize, &[&str]); 9] = [
            (0, &["2200", "public"]),
            (2, &["20100", "2200", "plain", "r", "p"]),
            (2, &["20101", "2200", "remote", "v", "p"]),
            (2, &["20102", "2200", "outer_one", "v", "p"]),
            (6, &["20102", "relid 20101"]),
            (SOURCES, &["stamp", "plpgsql", "begin return new; end"]),
            (HIDDEN, &["c", "0", "dblink"]),
            (HIDDEN, &["r", "20101", "dblink"]),
            (HIDDEN, &["w", "20100", "stamp"]),
        ];
        check_inside(
            &catalog(&rows),
            &[
                ("select a from plain", true),
                ("select a from outer_one", false),
                // Nobody sees which views its trigger reads.
                ("insert into plain values (1)", false),
            ],
        );
    }

    #[test]
    fn foreign_tables_are_outside_of_the_database() {
        let catalog = catalog(&[
            (0, &["2200", "public"]),
            (2, &["20100", "2200", "plain", "r", "p"]),
            (2, &["20101", "2200", "remote", "f", "p"]),
            (2, &["20102", "2200", "parent", "p", "p"]),
            (2, &["20103", "2200", "stamped", "r", "p"]),
            (10, &["20102", "20101"]),
            (SOURCES, &["stamp", "plpgsql", "begin return new; end"]),
            (HIDDEN, &["w", "20103", "stamp"]),
        ]);
        check_inside(
            &catalog,
            &[
                ("insert into plain values (1)", true),
                ("insert into remote values (1)", false),
                ("select a from remote", false),
                ("select a from parent", false),
                ("update parent set a = 1", false),
                ("insert into stamped values (1)", false),
            ],
        );
    }

    #[test]
    fn a_database_without_such_things_costs_nothing() {
        let catalog = catalog(&[(0, &["2200", "public"]), (2, &["20100", "2200", "plain", "r", "p"])]);
        assert_eq!(catalog.hidden(), HiddenUses::NONE);
        assert!(!catalog.leaves_by_writing(&[name("plain")]));
    }
}
