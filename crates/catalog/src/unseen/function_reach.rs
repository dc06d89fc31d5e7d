//! Users' functions run by a name that does not call them: a type, operator, column, aggregate. If a function may leave
//! state, so may each use of the name, and each body that mentions it.
//!
//! In: objects that use a function (`REACH`), and sources. Out: names, types and relations that count as a call.

use crate::builtin;
use crate::draft::{CatalogDraft, Cells, DraftError, HIDDEN_OPERATORS, number, word};
use crate::functions::DatabaseFunctions;
use crate::{Catalog, StatementNames};
use std::collections::{BTreeSet, HashSet};
use weir_sql::facts::hash_of_column;

/// Bytes of sources kept. Beyond, each function counts as soon as any name does.
const SOURCES_BYTES_MAX: usize = 16 << 20;

/// Objects that run users' functions, by dependencies. Columns: kind, OID, function, name.
///
/// - `w`, `r`: a write or read of the relation. A read counts for columns of such a type: a literal beside one may
///   become a value (`array_append(listed, 'x')`).
/// - `t`: making a value of the type, or of an array, row, range or domain of it.
/// - `f`: a call: an aggregate, the default or type of an argument.
/// - `o`, `k`: the operator, or a cast to the type.
/// - `a`: any statement: implicit casts, operator classes, objects not foreseen.
/// - `n`, `b`: a parameter in a function, or in a stored expression as bytes of its constant.
///
/// Functions in C are left out: harmless, or known by name. `pg_depend` lacks PostgreSQL's own functions: expressions
/// are searched for them (`own`). Settings do not outlive functions of extended statistics and publications. Source:
/// `recordDependencyOnExpr` in dependency.c, `do_analyze_rel` in analyze.c.
pub(crate) const REACH: &str = "WITH RECURSIVE own (oid, name) AS MATERIALIZED (SELECT oid, proname FROM pg_proc WHERE oid < 16384 AND (proname IN \
    ('set_config', 'pg_advisory_lock', 'pg_advisory_lock_shared', 'pg_try_advisory_lock', 'pg_try_advisory_lock_shared', 'setseed', 'ts_stat', \
    'ts_rewrite', 'pg_input_is_valid', 'pg_input_error_info', 'array_in', 'domain_in', 'record_in', 'range_in', 'multirange_in') \
    OR proname ~ '_to_xml')), \
    pattern (calls, names) AS MATERIALIZED (SELECT (SELECT ':funcid (' || string_agg(oid::text, '|') || ') ' FROM own), \
    (SELECT ':funcid (?:' || string_agg(oid::text, '|') || ') [^{}]*[{]CONST :consttype 25 [^{}]*:constvalue [0-9]+ \\[ ([-0-9 ]+)\\]' \
    FROM pg_proc WHERE oid < 16384 AND proname IN ('current_setting', 'set_config'))), \
    code (oid, name, source) AS MATERIALIZED (SELECT p.oid, p.proname, p.prosrc FROM pg_proc p JOIN pg_language l ON l.oid = p.prolang \
    WHERE p.oid >= 16384 AND (l.lanname NOT IN ('c', 'internal') OR p.proname IN ('set_limit', 'dblink_connect', 'dblink_connect_u'))), \
    trees (class, object, tree) AS MATERIALIZED (SELECT 'pg_rewrite'::regclass::oid, oid, concat(ev_action, ev_qual) FROM pg_rewrite WHERE ev_class >= 16384 \
    UNION ALL SELECT 'pg_attrdef'::regclass, oid, adbin::text FROM pg_attrdef \
    UNION ALL SELECT 'pg_constraint'::regclass, oid, conbin::text FROM pg_constraint WHERE conbin IS NOT NULL AND oid >= 16384 \
    UNION ALL SELECT 'pg_policy'::regclass, oid, concat(polqual, polwithcheck) FROM pg_policy \
    UNION ALL SELECT 'pg_trigger'::regclass, oid, tgqual::text FROM pg_trigger WHERE tgqual IS NOT NULL \
    UNION ALL SELECT 'pg_proc'::regclass, oid, proargdefaults::text FROM pg_proc WHERE proargdefaults IS NOT NULL AND oid >= 16384 \
    UNION ALL SELECT 'pg_type'::regclass, oid, typdefaultbin::text FROM pg_type WHERE typdefaultbin IS NOT NULL AND oid >= 16384 \
    UNION ALL SELECT 'pg_class'::regclass, indexrelid, concat(indexprs, indpred) FROM pg_index WHERE indexprs IS NOT NULL OR indpred IS NOT NULL \
    UNION ALL SELECT 'pg_class'::regclass, partrelid, partexprs::text FROM pg_partitioned_table WHERE partexprs IS NOT NULL), \
    steps (class, object, used_class, used) AS MATERIALIZED (SELECT DISTINCT classid, objid, refclassid, refobjid FROM pg_depend WHERE refobjid >= 16384 \
    AND (refclassid IN ('pg_proc'::regclass, 'pg_operator'::regclass) OR (refclassid = 'pg_type'::regclass AND classid IN ('pg_proc'::regclass, \
    'pg_type'::regclass, 'pg_class'::regclass, 'pg_rewrite'::regclass, 'pg_attrdef'::regclass, 'pg_constraint'::regclass, 'pg_policy'::regclass, \
    'pg_trigger'::regclass))) \
    UNION ALL SELECT 'pg_type'::regclass, contypid, 'pg_constraint'::regclass, oid FROM pg_constraint WHERE contypid <> 0 \
    UNION ALL SELECT 'pg_type'::regclass, reltype, 'pg_class'::regclass, oid FROM pg_class WHERE reltype <> 0 AND oid >= 16384), \
    reach (class, object, function) AS (SELECT * FROM (SELECT 'pg_proc'::regclass::oid, oid, name FROM code \
    UNION ALL SELECT t.class, t.object, own.name FROM pattern, trees t, LATERAL regexp_matches(t.tree, pattern.calls, 'g') AS m (f) JOIN own ON own.oid = m.f[1]::oid \
    UNION ALL SELECT 'pg_rewrite'::regclass, r.oid, 'set_config' FROM pg_rewrite r WHERE r.ev_class >= 16384 \
    AND r.ev_action::text ~ (':relid ' || 'pg_settings'::regclass::oid || ' ') \
    UNION ALL SELECT 'pg_operator'::regclass, o.oid, own.name FROM pg_operator o JOIN own ON own.oid = o.oprcode::oid WHERE o.oid >= 16384 \
    UNION ALL SELECT 'pg_proc'::regclass, a.aggfnoid::oid, own.name FROM pg_aggregate a JOIN own ON own.oid IN (a.aggtransfn, a.aggfinalfn, \
    a.aggcombinefn, a.aggmtransfn, a.aggminvtransfn, a.aggmfinalfn) WHERE a.aggfnoid::oid >= 16384) AS roots (class, object, function) \
    UNION SELECT s.class, s.object, r.function FROM reach r JOIN steps s ON s.used_class = r.class AND s.used = r.object) \
    SELECT 'w', c.oid, r.function, c.relname FROM reach r JOIN pg_trigger t ON t.oid = r.object JOIN pg_class c ON c.oid = t.tgrelid \
    WHERE r.class = 'pg_trigger'::regclass AND t.tgenabled <> 'D' \
    UNION SELECT CASE WHEN w.ev_type = '1' AND c.relkind <> 'm' THEN 'r' ELSE 'w' END, c.oid, r.function, c.relname FROM reach r JOIN pg_rewrite w ON w.oid = r.object \
    JOIN pg_class c ON c.oid = w.ev_class WHERE r.class = 'pg_rewrite'::regclass \
    UNION SELECT 'w', w.ev_class, 'set_config', c.relname FROM pg_rewrite w JOIN pg_class c ON c.oid = w.ev_class WHERE w.ev_class >= 16384 \
    AND w.ev_action::text ~ (':relid ' || 'pg_settings'::regclass::oid || ' ') \
    UNION SELECT 'w', c.oid, r.function, c.relname FROM reach r JOIN pg_attrdef d ON d.oid = r.object JOIN pg_class c ON c.oid = d.adrelid \
    WHERE r.class = 'pg_attrdef'::regclass \
    UNION SELECT 'w', c.oid, r.function, c.relname FROM reach r JOIN pg_constraint d ON d.oid = r.object JOIN pg_class c ON c.oid = d.conrelid \
    WHERE r.class = 'pg_constraint'::regclass \
    UNION SELECT k.how, c.oid, r.function, c.relname FROM reach r JOIN pg_policy d ON d.oid = r.object JOIN pg_class c ON c.oid = d.polrelid, \
    (VALUES ('r'), ('w')) AS k (how) WHERE r.class = 'pg_policy'::regclass \
    UNION SELECT 'w', c.oid, r.function, c.relname FROM reach r JOIN pg_index i ON i.indexrelid = r.object JOIN pg_class c ON c.oid = i.indrelid \
    WHERE r.class = 'pg_class'::regclass \
    UNION SELECT k.how, c.oid, r.function, c.relname FROM reach r JOIN pg_class c ON c.oid = r.object, (VALUES ('r'), ('w')) AS k (how) \
    WHERE r.class = 'pg_class'::regclass AND c.relkind IN ('r', 'p', 'v', 'm', 'f') \
    UNION SELECT 't', t.oid, r.function, t.typname FROM reach r JOIN pg_type t ON t.oid = r.object WHERE r.class = 'pg_type'::regclass \
    UNION SELECT 'f', p.oid, r.function, p.proname FROM reach r JOIN pg_proc p ON p.oid = r.object WHERE r.class = 'pg_proc'::regclass \
    AND NOT EXISTS (SELECT FROM code WHERE code.oid = p.oid AND code.name = r.function) \
    UNION SELECT 'o', o.oid, r.function, o.oprname FROM reach r JOIN pg_operator o ON o.oid = r.object WHERE r.class = 'pg_operator'::regclass \
    UNION SELECT CASE WHEN c.castcontext = 'e' AND t.oid >= 16384 THEN 'k' ELSE 'a' END, t.oid, r.function, t.typname FROM reach r JOIN pg_cast c ON c.oid = r.object \
    JOIN pg_type t ON t.oid = c.casttarget WHERE r.class = 'pg_cast'::regclass \
    UNION SELECT 'a', 0, r.function, '' FROM reach r WHERE r.class NOT IN ('pg_trigger'::regclass, 'pg_event_trigger'::regclass, 'pg_rewrite'::regclass, \
    'pg_attrdef'::regclass, 'pg_constraint'::regclass, 'pg_policy'::regclass, 'pg_class'::regclass, 'pg_type'::regclass, 'pg_proc'::regclass, \
    'pg_operator'::regclass, 'pg_cast'::regclass, 'pg_statistic_ext'::regclass, 'pg_publication_rel'::regclass, 'pg_extension'::regclass) \
    UNION SELECT 'n', 0, '', lower(m.n[1]) FROM code, LATERAL regexp_matches(left(code.source, 100000), \
    '(?:\\m(?:set_config|current_setting)\\s*\\(\\s*''|\\mset\\s+(?:session\\s+)?)([a-zA-Z_][a-zA-Z_0-9$]*(?:[.][a-zA-Z_][a-zA-Z_0-9$]*)+)', 'gi') AS m (n) WHERE code.source ~* 'set' \
    UNION SELECT 'b', 0, '', m.n[1] FROM pattern, trees t, LATERAL regexp_matches(t.tree, pattern.names, 'g') AS m (n)";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NameUse {
    Writes,
    Reads,
    MakesValue,
    Calls,
    Operates,
    Casts,
    Anything,
}

struct FunctionUse {
    how: NameUse,
    number: u32,
    function: Box<str>,
    name: Box<str>,
}

#[derive(Default)]
pub(super) struct ReachDraft {
    uses: Vec<FunctionUse>,
    sources: Vec<(Box<str>, Box<str>)>,
    source_bytes: usize,
}

impl ReachDraft {
    /// True if the source is kept until the draft is done.
    pub(super) fn keep_source(&mut self, name: &str, source: &str) -> bool {
        self.source_bytes += source.len();
        if self.source_bytes > SOURCES_BYTES_MAX {
            self.sources = Vec::new();
            return false;
        }
        self.sources.push((name.into(), source.into()));
        true
    }
}

impl CatalogDraft {
    pub(crate) fn reach(&mut self, cells: &Cells<'_>) -> Result<(), DraftError> {
        let (how, number, function, name) = (word(cells, 0)?, number(cells, 1)?, word(cells, 2)?, word(cells, 3)?);
        let how = match how {
            "w" => NameUse::Writes,
            "r" => NameUse::Reads,
            "t" => NameUse::MakesValue,
            "f" => NameUse::Calls,
            "o" => NameUse::Operates,
            "k" => NameUse::Casts,
            "a" => NameUse::Anything,
            "n" | "b" => {
                let parameter = if how == "n" { Some(name.to_owned()) } else { text_of_constant(name) };
                self.unseen.name_parameter(&parameter.unwrap_or_default());
                return Ok(());
            }
            _ => return Err(DraftError::Row),
        };
        self.unseen.reach.uses.push(FunctionUse { how, number, function: function.into(), name: name.into() });
        Ok(())
    }
}

/// Source: `outDatum` in outfuncs.c; the length takes four bytes.
fn text_of_constant(bytes: &str) -> Option<String> {
    let bytes: Option<Vec<u8>> = bytes.split_ascii_whitespace().skip(4).map(|byte| byte.parse().ok()).collect();
    String::from_utf8(bytes?).ok()
}

pub(crate) struct UserFunctionNames<'d> {
    /// Callable like a column.
    pub(crate) like_columns: Vec<&'d str>,
    /// Named like a harmless function of PostgreSQL's own.
    pub(crate) like_own: Vec<&'d str>,
}

/// Functions that may leave something by their sources or by names in them.
pub(super) struct StatefulFunctions<'d> {
    draft: &'d ReachDraft,
    functions: &'d DatabaseFunctions,
    leaving: HashSet<&'d str>,
}

impl<'d> StatefulFunctions<'d> {
    /// `others`: functions that writes and definitions run in other ways.
    pub(super) fn of(
        draft: &'d ReachDraft,
        functions: &'d DatabaseFunctions,
        others: impl Iterator<Item = &'d str> + Clone,
    ) -> StatefulFunctions<'d> {
        let mut found =
            StatefulFunctions { draft, functions, leaving: functions.names().filter(|name| functions.leaves(name)).collect() };
        loop {
            let before = found.leaving.len();
            let writes = others.clone().chain(found.uses(|how| how == NameUse::Writes).map(|of| &*of.function));
            let by_writes = writes.into_iter().any(|name| found.leaves(name));
            let more = found.more(by_writes);
            found.leaving.extend(more);
            if found.leaving.len() == before {
                return found;
            }
        }
    }

    pub(super) fn leaves(&self, name: &str) -> bool {
        self.leaving.contains(name) || self.functions.leaves(name) || (builtin::reads_types(name) && self.has_types())
    }

    fn has_types(&self) -> bool {
        let is_one = |of: &&FunctionUse| {
            of.how == NameUse::MakesValue && (self.leaving.contains(&*of.function) || self.functions.leaves(&of.function))
        };
        self.draft.uses.iter().any(|of| is_one(&of))
    }

    fn uses(&self, is_one: impl Fn(NameUse) -> bool) -> impl Iterator<Item = &'d FunctionUse> {
        self.draft.uses.iter().filter(move |of| is_one(of.how) && self.leaves(&of.function))
    }

    /// Functions that count by names in their bodies.
    fn more(&self, by_writes: bool) -> Vec<&'d str> {
        let is_word = |how| !matches!(how, NameUse::Anything | NameUse::Operates);
        let names: HashSet<&str> = self.uses(is_word).map(|of| &*of.name).chain(self.leaving.iter().copied()).collect();
        let operators: HashSet<&str> = self.uses(|how| how == NameUse::Operates).map(|of| &*of.name).collect();
        let is_everywhere =
            self.runs_anywhere() || (self.draft.sources.is_empty() && self.draft.source_bytes > 0 && !names.is_empty());
        let counts = |name: &str, source: &str| {
            is_everywhere
                || (by_writes && self.functions.writes(name))
                || mentions(source, &names)
                || operators.iter().any(|of| source.contains(of))
        };
        let bodies = self.draft.sources.iter().filter(|(name, source)| counts(name, source)).map(|(name, _)| &**name);
        if self.draft.sources.is_empty() && is_everywhere { self.functions.names().collect() } else { bodies.collect() }
    }

    fn runs_anywhere(&self) -> bool {
        self.uses(|how| how == NameUse::Anything).next().is_some()
            || self.uses(|how| how == NameUse::Operates).any(|of| is_hidden(&of.name))
    }

    fn relations(&self, how: NameUse) -> BTreeSet<u32> {
        self.uses(|of| of == how).map(|of| of.number).collect()
    }

    /// Relations by writes, and by reads.
    pub(super) fn by_relations(&self) -> (BTreeSet<u32>, BTreeSet<u32>) {
        (self.relations(NameUse::Writes), self.relations(NameUse::Reads))
    }

    pub(super) fn made(&self, named: &UserFunctionNames<'d>) -> StatefulNames {
        let sorted = |names: BTreeSet<&str>| -> Box<[Box<str>]> { names.into_iter().map(Box::from).collect() };
        let types: BTreeSet<&str> = self.uses(|how| how == NameUse::MakesValue).map(|of| &*of.name).collect();
        let called: BTreeSet<&str> = self.uses(|how| how == NameUse::Calls).map(|of| &*of.name).collect();
        let may_leave = |name: &&&str| self.leaves(name) || called.contains(**name);
        let columns: BTreeSet<u32> =
            named.like_columns.iter().filter(may_leave).chain(&types).map(|name| hash_of_column(name)).collect();
        let like_own: BTreeSet<&str> = named.like_own.iter().copied().filter(|name| self.leaves(name)).collect();
        let casts: BTreeSet<&str> = self.uses(|how| how == NameUse::Casts).map(|of| &*of.name).collect();
        let operators: BTreeSet<&str> = self.uses(|how| how == NameUse::Operates).map(|of| &*of.name).collect();
        let mut names: BTreeSet<&str> = types.into_iter().chain(called).chain(like_own).chain(casts).collect();
        // Mentions are not calls. Without such names there are only calls and relations.
        if !(names.is_empty() && operators.is_empty() && columns.is_empty()) {
            names.extend(self.leaving.iter().copied().filter(|name| !self.functions.leaves(name)));
        }
        StatefulNames {
            names: sorted(names),
            operators: sorted(operators),
            columns: columns.into_iter().collect(),
            types: self.relations(NameUse::MakesValue).into_iter().collect(),
            anywhere: self.runs_anywhere(),
        }
    }
}

/// Words in strings and comments count.
fn mentions(source: &str, names: &HashSet<&str>) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || matches!(c, '_' | '$');
    let is_word = |word: &str| {
        names.contains(word) || (word.contains(|c: char| c.is_ascii_uppercase()) && names.contains(&*word.to_ascii_lowercase()))
    };
    let is_odd = |name: &&&str| name.contains(|c: char| !is_part(c));
    names.iter().filter(is_odd).any(|name| source.contains(*name)) || source.split(|c: char| !is_part(c)).any(is_word)
}

/// True for operators that texts use without naming them, or by words.
fn is_hidden(operator: &str) -> bool {
    HIDDEN_OPERATORS.contains(&operator) || matches!(operator, "~" | "!~")
}

/// Names whose use may leave something on a session; sorted lists.
#[derive(Debug, Default)]
pub(super) struct StatefulNames {
    names: Box<[Box<str>]>,
    operators: Box<[Box<str>]>,
    columns: Box<[u32]>,
    types: Box<[u32]>,
    anywhere: bool,
}

impl StatefulNames {
    pub(super) fn has_names(&self) -> bool {
        !(self.names.is_empty() && self.operators.is_empty() && self.columns.is_empty() && self.types.is_empty())
    }

    pub(super) fn is_anywhere(&self) -> bool {
        self.anywhere
    }
}

impl Catalog {
    /// True if names may run a function that leaves something. All objects of a name count: arguments, rights and
    /// `search_path` are not known.
    pub fn leaves_by_names(&self, names: &StatementNames) -> bool {
        let reached = &self.unseen.reached;
        let has = |list: &[Box<str>], name: &str| list.binary_search_by(|known| (**known).cmp(name)).is_ok();
        names.has_column(&reached.columns)
            || names.casts.iter().any(|kind| has(&reached.names, &kind.name))
            || names.operators.iter().any(|operator| has(&reached.operators, &operator.name))
            || names.functions.iter().any(|function| {
                has(&reached.names, &function.name) || (!reached.types.is_empty() && builtin::reads_types(&function.name))
            })
    }

    /// True if making values of these users' types (OIDs) may leave something.
    pub fn leaves_by_values(&self, types: &[u32]) -> bool {
        types.iter().any(|kind| self.unseen.reached.types.binary_search(kind).is_ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{HiddenUses, PARTS};

    const SOURCES: usize = PARTS.len() - 3;
    const REACH: usize = PARTS.len() - 1;

    /// A table of its own and a function that leaves something, then rows: the part, and its cells.
    fn catalog(rows: &[(usize, &[&str])]) -> Catalog {
        const ALWAYS: [(usize, &[&str]); 3] = [
            (0, &["2200", "public"]),
            (2, &["20100", "2200", "plain", "r", "p"]),
            (SOURCES, &["leaves", "plpgsql", "begin perform set_config('role', 'x', false); end"]),
        ];
        let mut draft = crate::tests::rows::empty();
        for (part, cells) in ALWAYS.iter().chain(rows) {
            let cells: Vec<Option<&[u8]>> = cells.iter().map(|cell| Some(cell.as_bytes())).collect();
            draft.row(*part, &cells).unwrap();
        }
        draft.finish(&weir_config::Config::default().routing)
    }

    /// A line is `statement -> leaves` or `statement -> nothing`.
    fn check(catalog: &Catalog, lines: &str) {
        for line in lines.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let (text, expected) = line.rsplit_once(" -> ").unwrap();
            let names = StatementNames::of(&weir_sql::facts(text.as_bytes())).unwrap_or_default();
            let said = catalog.leaves_by_names(&names) || catalog.leaves_by_reading(&names);
            assert_eq!(if said { "leaves" } else { "nothing" }, expected, "{text}");
        }
    }

    #[test]
    fn names_that_run_what_leaves_something_count_wherever_they_stand() {
        let catalog = catalog(&[
            (2, &["20101", "2200", "typed", "r", "p"]),
            (1, &["20001", "2200", "leaf", "t", "t"]),
            (1, &["20002", "2200", "calm", "t", "t"]),
            (1, &["20003", "2200", "lower", "t", "f"]),
            (SOURCES, &["leaf", "sql", "select leaves()"]),
            (SOURCES, &["calm", "sql", "select 1"]),
            (SOURCES, &["lower", "plpgsql", "begin perform leaves(); end"]),
            (SOURCES, &["by_type", "plpgsql", "declare x Checked; begin return x; end"]),
            (SOURCES, &["by_column", "sql", "select p.leaf from plain p"]),
            (SOURCES, &["by_operator", "sql", "select 'a' === 'b'"]),
            (SOURCES, &["harmless", "sql", "select 1"]),
            (REACH, &["t", "20200", "leaves", "checked"]),
            (REACH, &["t", "20201", "leaves", "_checked"]),
            (REACH, &["t", "20202", "harmless", "fine"]),
            (REACH, &["r", "20101", "leaves", "typed"]),
            (REACH, &["w", "20101", "leaves", "typed"]),
            (REACH, &["f", "20004", "leaves", "gathers"]),
            (REACH, &["f", "20005", "harmless", "counts"]),
            (REACH, &["o", "20300", "leaves", "==="]),
            (REACH, &["k", "20203", "leaves", "target"]),
        ]);
        assert_eq!(catalog.hidden(), HiddenUses::WRITES.and(HiddenUses::READS).and(HiddenUses::NAMES));
        check(
            &catalog,
            "select 1 -> nothing
             select 'x'::checked -> leaves
             select 'x'::other.checked[] -> leaves
             select checked(a) from plain -> leaves
             select 'x'::fine, counts(1) -> nothing
             select (a).checked from plain -> leaves
             select x.leaf from plain x -> leaves
             select x.calm from plain x -> nothing
             select gathers(a) from plain -> leaves
             select lower(a) from plain -> leaves
             select upper(a) from plain -> nothing
             select 1 === 2 -> leaves
             select 1 ==== 2 -> nothing
             select a::target from plain -> leaves
             select by_type(), 1 -> leaves
             select by_column() -> leaves
             select by_operator() -> leaves
             select harmless() -> nothing
             select a from plain -> nothing
             select a from typed -> leaves
             select a from unheard_of -> leaves
             select pg_input_is_valid(a, 'checked') from plain -> leaves
             select pg_typeof(a) from plain -> nothing",
        );
        assert!(catalog.leaves_by_values(&[20999, 20201]) && !catalog.leaves_by_values(&[20202]));
    }

    #[test]
    fn where_nothing_leaves_anything_no_name_counts() {
        let catalog = catalog(&[
            (SOURCES, &["harmless", "sql", "select leaves_not()"]),
            (REACH, &["t", "20202", "harmless", "fine"]),
            (REACH, &["a", "0", "harmless", ""]),
            (REACH, &["w", "20100", "harmless", "plain"]),
            (REACH, &["w", "20100", "pg_input_is_valid", "plain"]),
        ]);
        assert_eq!(catalog.hidden(), HiddenUses::NONE);
        check(&catalog, "select 'x'::fine, pg_input_is_valid('x', 'fine') -> nothing");
    }

    #[test]
    fn what_any_statement_may_run_counts_for_all() {
        for row in
            [["a", "0", "leaves", ""], ["o", "20300", "leaves", "="], ["o", "20300", "leaves", "~"], ["a", "0", "set_config", ""]]
        {
            assert!(catalog(&[(REACH, &row)]).hidden().meets(HiddenUses::ANYTHING), "{row:?}");
        }
        assert!(!catalog(&[(REACH, &["o", "20300", "leaves", "=="])]).hidden().meets(HiddenUses::ANYTHING));
    }

    #[test]
    fn where_sources_are_too_long_to_be_read_every_function_counts_as_soon_as_one_name_does() {
        let long = "x ".repeat(SOURCES_BYTES_MAX / 2);
        let (short, long) = (["short", "sql", "select 1"], ["long", "plpgsql", &long]);
        let reach = ["t", "20200", "leaves", "checked"];
        check(&catalog(&[(SOURCES, &short), (REACH, &reach)]), "select short() -> nothing");
        check(&catalog(&[(SOURCES, &short), (SOURCES, &long), (REACH, &reach)]), "select short() -> leaves");
        check(&catalog(&[(SOURCES, &short), (SOURCES, &long)]), "select short() -> nothing");
    }

    #[test]
    fn names_of_parameters_come_from_sources_and_from_constants() {
        let catalog = catalog(&[
            (REACH, &["n", "0", "", "App.Who"]),
            (REACH, &["b", "0", "", "56 0 0 0 97 112 112 46 120"]),
            (REACH, &["b", "0", "", "32 0 0 0 114 111 108 101"]),
            (REACH, &["b", "0", "", "-1"]),
        ]);
        assert_eq!(catalog.made_up(), ["app.who", "app.x"]);
    }
}
