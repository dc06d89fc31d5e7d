//! Facts about a text that the cache needs before it looks into the catalog.

use weir_catalog::{Catalog, SearchPath, StatementNames, TouchedTables};
use weir_config::CacheConfig;
use weir_sql::facts::{
    ChangeScope, QualifiedName, QueryEffect, QueryFacts, SessionVerb, TextProperty, TransactionEnd, TransactionVerb,
};

/// Comments at the very begin of a text, as in Pgpool-II.
const FORCE: &str = "/*FORCE QUERY CACHE*/";
const NEVER: &str = "/*NO QUERY CACHE*/";

/// Words that depend on the time. Source: `datetktbl` in datetime.c.
const MOMENTS: [&[u8]; 4] = [b"now", b"today", b"tomorrow", b"yesterday"];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CachePermission {
    Never,
    /// Allowed if the result depends on known tables alone.
    Judged,
    /// Allowed by the author's comment.
    Forced,
}

#[derive(Clone, Debug)]
pub struct CacheTextFacts {
    pub reads: CachePermission,
    names: StatementNames,
    /// Relations that the operator answers for; `strict`: the other names.
    vouched: Box<[QualifiedName]>,
    strict: StatementNames,
    written: Box<[QualifiedName]>,
    changes: ChangeScope,
    /// One read whose text shows all that runs.
    is_plain_read: bool,
    /// Runs event triggers, also without changing a table (`COMMENT`, `REFRESH`).
    is_event: bool,
    /// Cannot touch a table: `COMMIT`, `SET a = 1`; but `SELECT 1 + 2` may call a user's operator.
    pub is_idle: bool,
    pub end: PossibleTransactionEnd,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PossibleTransactionEnd {
    None,
    Rollback,
    Any,
}

impl CacheTextFacts {
    pub fn of(facts: &QueryFacts, text: &str, config: &CacheConfig) -> CacheTextFacts {
        let names = StatementNames::of(facts).unwrap_or_default();
        let is_listed = |relation: &QualifiedName| config.safe_tables.iter().any(|listed| is_meant(listed, relation));
        let (strict, vouched) = names.clone().without(is_listed);
        let is_refused = facts.effect == QueryEffect::Refused;
        CacheTextFacts {
            reads: reads(facts, text, config),
            is_plain_read: facts.statements == 1
                && facts.effect == QueryEffect::Reads
                && facts.changes == ChangeScope::Nothing
                && !facts.has(TextProperty::Prepared),
            is_event: facts.fires_events(),
            is_idle: facts.changes == ChangeScope::Nothing
                && !facts.fires_events()
                && names == StatementNames::default()
                && !is_refused
                && facts.effect != QueryEffect::Reads,
            names,
            vouched,
            strict,
            written: facts.named.written.as_slice().into(),
            changes: facts.changes,
            end: end(facts),
        }
    }

    pub fn unread() -> CacheTextFacts {
        CacheTextFacts {
            reads: CachePermission::Never,
            is_plain_read: false,
            names: StatementNames::default(),
            vouched: Box::default(),
            strict: StatementNames::default(),
            written: Box::default(),
            changes: ChangeScope::Cluster,
            is_event: true,
            is_idle: false,
            end: PossibleTransactionEnd::Any,
        }
    }

    /// Returns the tables of the result. Tables of the list `never` also count behind views and parents.
    pub fn tables_read(&self, catalog: &Catalog, path: &SearchPath, never: &[String]) -> Option<Vec<u32>> {
        match self.reads {
            CachePermission::Never => None,
            CachePermission::Judged => {
                let found = catalog.reads(&self.strict, &self.vouched, path)?;
                let is_listed = |listed: &String| catalog.numbers_of(listed).iter().any(|oid| found.contains(oid));
                (!never.iter().any(is_listed)).then_some(found)
            }
            CachePermission::Forced => catalog.reads_at_least(&self.names, path),
        }
    }

    /// Returns the tables whose rows the answer may show; `None`: any.
    pub fn tables_shown(&self, catalog: &Catalog, path: &SearchPath) -> Option<Vec<u32>> {
        if self.is_plain_read { catalog.shows(&self.names, path) } else { None }
    }

    pub fn touches(&self, known: Option<(&Catalog, &SearchPath)>) -> TouchedTables {
        match (self.changes, known) {
            _ if self.is_idle => TouchedTables::Tables(Vec::new()),
            (ChangeScope::Database | ChangeScope::Cluster, _) | (_, None) => TouchedTables::All,
            (_, Some((catalog, _))) if self.is_event && catalog.has_event_triggers() => TouchedTables::All,
            (ChangeScope::Nothing | ChangeScope::Rows, Some((catalog, path))) => {
                catalog.touches(&self.names, &self.written, path)
            }
        }
    }

    pub fn names_one(&self, is_one: impl Fn(&QualifiedName) -> bool) -> bool {
        self.names.relations().iter().chain(&self.written).any(is_one)
    }

    pub fn is_for_all_databases(&self) -> bool {
        self.changes == ChangeScope::Cluster
    }
}

fn is_one_read(facts: &QueryFacts) -> bool {
    facts.statements == 1
        && facts.effect == QueryEffect::Reads
        && facts.changes == ChangeScope::Nothing
        && facts.transaction == TransactionVerb::None
        && facts.session == SessionVerb::None
        && facts.state.keeps.is_empty()
        && !facts.has(TextProperty::LocksRows)
}

fn reads(facts: &QueryFacts, text: &str, config: &CacheConfig) -> CachePermission {
    let begins = |with: &str| text.get(..with.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(with));
    if !is_one_read(facts) || facts.has(TextProperty::Explains) || begins(NEVER) {
        return CachePermission::Never;
    }
    if begins(FORCE) {
        return CachePermission::Forced;
    }
    let is_listed = |name: &QualifiedName| config.unsafe_tables.iter().any(|listed| is_meant(listed, name));
    // A text without tables wants the server, not the cache (`SELECT 1`).
    match facts.has(TextProperty::Fleeting) || facts.named.relations.is_empty() || facts.named.relations.iter().any(is_listed) {
        true => CachePermission::Never,
        false => CachePermission::Judged,
    }
}

/// `listed`: `table` or `schema.table`.
fn is_meant(listed: &str, name: &QualifiedName) -> bool {
    match listed.split_once('.') {
        Some((schema, table)) => table == name.name && (name.schema.is_empty() || schema == name.schema),
        None => listed == name.name,
    }
}

fn end(facts: &QueryFacts) -> PossibleTransactionEnd {
    match facts.transaction {
        _ if facts.effect == QueryEffect::Refused => PossibleTransactionEnd::Any,
        TransactionVerb::None | TransactionVerb::Begin(_) => PossibleTransactionEnd::None,
        TransactionVerb::End(TransactionEnd::Rollback) => PossibleTransactionEnd::Rollback,
        _ => PossibleTransactionEnd::Any,
    }
}

/// True if a literal depends on the time.
pub fn says_a_moment(text: &[u8]) -> bool {
    // Fast path: most texts have no literals but numbers.
    let has = |wanted: &[u8]| text.iter().fold(false, |found, byte| found | wanted.contains(byte));
    // Escapes hide the text that the server reads: `E'to\x64ay'`, `U&'to!0064ay' UESCAPE '!'`.
    let is_hidden = has(b"\\") || text.windows(2).any(|pair| pair == b"&'") || (has(b"\n\r") && has_pieces(text));
    has(b"'$") && (is_hidden || hold_a_moment(text))
}

/// Bytes searched for a literal's next piece.
const GAP_BYTES_MAX: usize = 256;

/// True if a literal may continue on another line. Source: `quotecontinue` in scan.l.
fn has_pieces(text: &[u8]) -> bool {
    let behind = |at: usize| &text[at + 1..text.len().min(at + 1 + GAP_BYTES_MAX)];
    let mut quotes = text.iter().enumerate().filter(|(_, byte)| **byte == b'\'');
    quotes.any(|(at, _)| goes_on(behind(at)))
}

/// True if a quote follows behind a line end; `--` comments are blanks.
fn goes_on(mut gap: &[u8]) -> bool {
    let is_cut = gap.len() == GAP_BYTES_MAX;
    let mut has_line = false;
    loop {
        gap = match gap {
            [b'\n' | b'\r', rest @ ..] => {
                has_line = true;
                rest
            }
            [b' ' | b'\t' | 0x0B | 0x0C, rest @ ..] => rest,
            [b'-', b'-', rest @ ..] => {
                let line = rest.iter().position(|byte| matches!(byte, b'\n' | b'\r'));
                line.map_or(&[][..], |line| &rest[line..])
            }
            [b'\'', ..] => return has_line,
            [] => return is_cut,
            _ => return false,
        };
    }
}

/// `bind`: the body behind the two names.
pub fn bind_holds_a_moment(bind: &[u8]) -> bool {
    // The server refuses a malformed Bind.
    value_holds_a_moment(bind).unwrap_or(true)
}

fn value_holds_a_moment(bind: &[u8]) -> Option<bool> {
    let (formats, rest) = bind.split_first_chunk::<2>()?;
    let rest = rest.get(2 * usize::from(u16::from_be_bytes(*formats))..)?;
    let (count, mut rest) = rest.split_first_chunk::<2>()?;
    for _ in 0..u16::from_be_bytes(*count) {
        let (length, values) = rest.split_first_chunk::<4>()?;
        // A negative length is NULL.
        let length = usize::try_from(i32::from_be_bytes(*length)).unwrap_or(0);
        let (value, behind) = values.split_at_checked(length)?;
        if hold_a_moment(value) {
            return Some(true);
        }
        rest = behind;
    }
    Some(false)
}

fn hold_a_moment(text: &[u8]) -> bool {
    let words = text.split(|byte| !byte.is_ascii_alphabetic());
    words
        .filter(|word| matches!(word.len(), 3 | 5 | 8 | 9))
        .any(|word| MOMENTS.iter().any(|moment| word.eq_ignore_ascii_case(moment)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(sql: &str, config: &CacheConfig) -> CacheTextFacts {
        CacheTextFacts::of(&weir_sql::facts(sql.as_bytes()), sql, config)
    }

    #[test]
    fn only_plain_reads_of_tables_may_be_kept() {
        let config = CacheConfig { unsafe_tables: vec!["secret".into(), "s.u".into()], ..CacheConfig::default() };
        let check = |sql: &str, expected: CachePermission| assert_eq!(text(sql, &config).reads, expected, "{sql}");
        check("select a from t", CachePermission::Judged);
        check("with w as (select a from t) select * from w", CachePermission::Judged);
        check("/*no query cache*/ select a from t", CachePermission::Never);
        check("/*FORCE QUERY CACHE*/select now()", CachePermission::Forced);
        check(" /*FORCE QUERY CACHE*/select now()", CachePermission::Never);
        check("/*FORCE QUERY CACHE*/insert into t values (1)", CachePermission::Never);
        for never in [
            "select 1",
            "select a from t; select a from t",
            "select a from t for update",
            "select a from secret",
            "select a from u",
            "select a from s.u",
            "select current_date, a from t",
            "explain select a from t",
            "with w as (delete from t returning a) select a from w",
            "select a into n from t",
            "show work_mem",
            "select set_config('a.b', 'c', false) from t",
        ] {
            check(never, CachePermission::Never);
        }
        check("select a from x.u", CachePermission::Judged);
    }

    #[test]
    fn what_is_read_and_what_is_written_is_named() {
        let config = CacheConfig::default();
        let check = |sql: &str, expected: &[&str]| {
            let text = text(sql, &config);
            let named: Vec<&str> = ["a", "b", "c"].into_iter().filter(|name| text.names_one(|one| one.name == *name)).collect();
            assert_eq!(named, expected, "{sql}");
        };
        check("select 1 from a, x.b", &["a", "b"]);
        check("insert into c select * from a", &["a", "c"]);
        check("delete from b using c where b.i = c.i", &["b", "c"]);
        check("select 1", &[]);
    }

    #[test]
    fn only_statements_about_what_databases_share_are_for_all_of_them() {
        let check = |sql: &str, expected| {
            assert_eq!(text(sql, &CacheConfig::default()).is_for_all_databases(), expected, "{sql}");
        };
        check("alter role r set search_path = x", true);
        check("drop role r", true);
        check("create table t (a int)", false);
        check("insert into t values (1)", false);
        check("select a from t", false);
    }

    #[test]
    fn moments_are_words() {
        for text in [
            "select 'NOW'",
            "d > 'today12:00'",
            "d > $$yesterday$$",
            r"d > e'to\x64ay'",
            r"d > U&'to\0064ay'",
            "d > U&'to!0064ay' uescape '!'",
            "d > 'to'\n'morrow'",
            "d > 'to' -- 'or not'\r\n\t 'morrow'",
            "d > 'to' -- or not\n 'morrow'",
            "d > 'to'                                                                                    \n\n \n \n 'morrow'",
        ] {
            assert!(says_a_moment(text.as_bytes()), "{text}");
        }
        for text in [
            "select known, todays, snow from t_nowhere where a = 'b'",
            "select today from t",
            r"select 1 \ 2",
            "d > 'a',\n'b'",
            "a = 'x' --\n and b = 'y'",
        ] {
            assert!(!says_a_moment(text.as_bytes()), "{text}");
        }
    }

    #[test]
    fn moments_among_values_are_words_whatever_stands_before_them() {
        let bind = |values: &[Option<&str>]| {
            let mut bytes = vec![0, 1, 0, 0, 0, values.len() as u8];
            for value in values {
                let length = value.map_or(-1, |value| value.len() as i32);
                bytes.extend([&length.to_be_bytes(), value.unwrap_or_default().as_bytes()].concat());
            }
            [bytes, vec![0, 0]].concat()
        };
        let padded = format!("now{}", " ".repeat(usize::from(b'A') - 3));
        for values in [&[Some("now")][..], &[None, Some("a"), Some("TODAY 12:00")], &[Some(padded.as_str())]] {
            assert!(bind_holds_a_moment(&bind(values)), "{values:?}");
        }
        for values in [&[][..], &[None], &[Some("know"), Some("2020-01-01"), Some("")]] {
            assert!(!bind_holds_a_moment(&bind(values)), "{values:?}");
        }
        assert!(bind_holds_a_moment(b"") && bind_holds_a_moment(b"\0\0\0\x01\0\0\0\x05a"), "what is cut off is not believed");
    }

    #[test]
    fn a_text_that_is_not_read_may_end_a_transaction() {
        for (sql, end) in [
            ("begin", PossibleTransactionEnd::None),
            ("select 1", PossibleTransactionEnd::None),
            ("selec 1", PossibleTransactionEnd::Any),
            ("commit prepared 'a'", PossibleTransactionEnd::Any),
            ("rollback to a", PossibleTransactionEnd::Any),
            ("rollback and chain", PossibleTransactionEnd::Any),
            ("rollback", PossibleTransactionEnd::Rollback),
        ] {
            assert_eq!(text(sql, &CacheConfig::default()).end, end, "{sql}");
        }
    }

    #[test]
    fn what_ends_a_transaction_is_told() {
        let config = CacheConfig::default();
        let ends = |sql: &str| {
            (text(sql, &config).end != PossibleTransactionEnd::None, text(sql, &config).end == PossibleTransactionEnd::Rollback)
        };
        for sql in
            ["commit", "end", "commit and chain", "savepoint a", "insert into t values (1); commit", "prepare transaction 'a'"]
        {
            assert_eq!(ends(sql), (true, false), "{sql}");
        }
        assert_eq!(
            (ends("rollback"), ends(" ABORT work"), ends("insert into t values (1)")),
            ((true, true), (true, true), (false, false))
        );
    }

    #[test]
    fn what_touches_no_table_is_known_without_a_catalog() {
        for (sql, is_idle) in [
            ("commit", true),
            ("set work_mem = '1MB'", true),
            ("deallocate p", true),
            ("select 1", false),
            ("selec 1", false),
            ("insert into t values (1)", false),
            ("comment on table t is 'x'", false),
        ] {
            let text = text(sql, &CacheConfig::default());
            assert_eq!(text.is_idle, is_idle, "{sql}");
            assert_eq!(text.touches(None) == TouchedTables::Tables(Vec::new()), is_idle, "{sql}");
        }
    }
}
