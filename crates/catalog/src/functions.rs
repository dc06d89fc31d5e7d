//! Functions of a database that leave no session state, and those that write nothing. Judged by their sources and the
//! functions they call; a function whose source is not read may leave anything.

use crate::builtin;
use foldhash::HashMap;
use std::sync::Arc;
use weir_sql::body::{BodyFacts, read_body};
use weir_sql::leaves::left_by_function;

/// Functions remembered of one database; beyond, all are forgotten.
const FUNCTIONS_MAX: usize = 8192;

pub const SOURCE_BYTES_MAX: usize = 12_000;

/// All overloads of one name together.
#[derive(Clone, Debug, PartialEq, Eq)]
enum FunctionKnowledge {
    Harmless,
    /// May write or define something, so that triggers run.
    Writes,
    LeavesState,
    /// Harmless, or `Writes`, if these are harmless.
    If {
        calls: Vec<String>,
        writes: bool,
    },
}

const NAME_BYTES: usize = 56;

impl FunctionKnowledge {
    /// Memory beside its place.
    fn bytes(&self) -> usize {
        match self {
            FunctionKnowledge::Harmless | FunctionKnowledge::Writes | FunctionKnowledge::LeavesState => 0,
            FunctionKnowledge::If { calls, .. } => calls.iter().map(|call| NAME_BYTES + call.len()).sum(),
        }
    }
}

#[derive(Debug, Default)]
pub struct DatabaseFunctions {
    known: HashMap<String, FunctionKnowledge>,
    read_ms: u64,
    edition: u64,
}

#[derive(Debug, Default)]
pub struct FunctionCache {
    databases: HashMap<Arc<str>, DatabaseFunctions>,
}

/// Life of a reading: sources may be changed past Weir.
const BELIEVED_MS: u64 = 10_000;

impl FunctionCache {
    /// Returns the functions of a database. `edition` grows when a definition passes through Weir; older readings are
    /// forgotten.
    pub fn of(&mut self, database: &Arc<str>, now_ms: u64, edition: u64) -> &mut DatabaseFunctions {
        let functions = self.databases.entry(database.clone()).or_default();
        if functions.known.is_empty() || functions.edition != edition || now_ms.saturating_sub(functions.read_ms) > BELIEVED_MS {
            functions.known.clear();
            (functions.read_ms, functions.edition) = (now_ms, edition);
        }
        functions
    }

    pub fn forget(&mut self, database: &str) {
        self.databases.remove(database);
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FunctionVerdict {
    Harmless,
    /// May write or define something, so that triggers may leave state.
    Writes,
    LeavesState,
    /// Depends on functions whose sources are not known.
    Unknown(Vec<String>),
}

impl DatabaseFunctions {
    pub fn judge_all(&mut self, names: &[String]) -> FunctionVerdict {
        let (mut missing, mut writes) = (Vec::new(), false);
        for name in names {
            match self.judge(name) {
                FunctionVerdict::Harmless => {}
                FunctionVerdict::Writes => writes = true,
                FunctionVerdict::LeavesState => return FunctionVerdict::LeavesState,
                FunctionVerdict::Unknown(more) => missing.extend(more),
            }
        }
        FunctionVerdict::of(missing, writes)
    }

    pub fn judge(&mut self, name: &str) -> FunctionVerdict {
        match self.known.get(name) {
            _ if builtin::runs_text(name) => return FunctionVerdict::LeavesState,
            Some(FunctionKnowledge::Harmless) => return FunctionVerdict::Harmless,
            Some(FunctionKnowledge::Writes) => return FunctionVerdict::Writes,
            Some(FunctionKnowledge::LeavesState) => return FunctionVerdict::LeavesState,
            Some(FunctionKnowledge::If { .. }) => {}
            None => return FunctionVerdict::Unknown(vec![name.to_owned()]),
        }
        let verdict = self.follow(name);
        match verdict {
            FunctionVerdict::Harmless => drop(self.known.insert(name.to_owned(), FunctionKnowledge::Harmless)),
            FunctionVerdict::Writes => drop(self.known.insert(name.to_owned(), FunctionKnowledge::Writes)),
            FunctionVerdict::LeavesState => drop(self.known.insert(name.to_owned(), FunctionKnowledge::LeavesState)),
            FunctionVerdict::Unknown(_) => {}
        }
        verdict
    }

    fn follow(&self, name: &str) -> FunctionVerdict {
        let mut seen: Vec<&str> = vec![name];
        let (mut missing, mut writes) = (Vec::new(), false);
        let mut at = 0;
        while let Some(next) = seen.get(at).copied() {
            at += 1;
            match self.known.get(next) {
                _ if builtin::runs_text(next) => return FunctionVerdict::LeavesState,
                Some(FunctionKnowledge::Harmless) => {}
                Some(FunctionKnowledge::Writes) => writes = true,
                Some(FunctionKnowledge::LeavesState) => return FunctionVerdict::LeavesState,
                Some(FunctionKnowledge::If { calls, writes: more }) => {
                    writes |= more;
                    for call in calls {
                        if !seen.contains(&call.as_str()) {
                            seen.push(call);
                        }
                    }
                }
                None => missing.push(next.to_owned()),
            }
        }
        FunctionVerdict::of(missing, writes)
    }

    /// Takes in name, language and source of the functions asked about.
    pub fn learn<'a>(&mut self, asked: impl Iterator<Item = &'a String>, sources: &[(String, String, String)]) {
        if self.known.len() > FUNCTIONS_MAX {
            self.known.clear();
        }
        for name in asked {
            let of_name = sources.iter().filter(|(known, _, _)| known == name);
            let known = of_name.map(|(_, language, source)| read(language, source)).fold(FunctionKnowledge::Harmless, both);
            self.known.insert(name.clone(), known);
        }
    }
}

impl DatabaseFunctions {
    /// Takes in one source; overloads of one name count together. Returns the bytes kept.
    pub fn add(&mut self, name: &str, language: &str, source: &str) -> usize {
        let known = read(language, source);
        let bytes = name.len() + known.bytes();
        let known = self.known.remove(name).map_or(known.clone(), |before| both(before, known));
        self.known.insert(name.to_owned(), known);
        bytes
    }

    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.known.keys().map(String::as_str)
    }

    /// True if a function may leave something. Call once all sources are read: a function without source is
    /// PostgreSQL's own or in C.
    pub fn leaves(&self, name: &str) -> bool {
        left_by_function(name).is_some()
            || builtin::runs_text(name)
            || (self.known.contains_key(name) && self.follow(name) == FunctionVerdict::LeavesState)
    }

    /// True if a function may act outside of the database, itself or by calls for which `acts` holds. A function
    /// without source counts, and one that may leave something: it runs unseen text.
    pub fn act(&self, name: &str, acts: impl Fn(&str) -> bool) -> bool {
        let mut seen: Vec<&str> = vec![name];
        let mut at = 0;
        while let Some(next) = seen.get(at).copied() {
            at += 1;
            match self.known.get(next) {
                _ if acts(next) => return true,
                // A keyword, a table, or a function of PostgreSQL's own.
                None if at > 1 => {}
                None | Some(FunctionKnowledge::LeavesState) => return true,
                Some(FunctionKnowledge::Harmless | FunctionKnowledge::Writes) => {}
                Some(FunctionKnowledge::If { calls, .. }) => {
                    for call in calls {
                        if !seen.contains(&call.as_str()) {
                            seen.push(call);
                        }
                    }
                }
            }
        }
        false
    }

    /// True if a function, or one it calls, may write or has no source.
    pub fn writes(&self, name: &str) -> bool {
        let mut seen: Vec<&str> = vec![name];
        let mut at = 0;
        while let Some(next) = seen.get(at).copied() {
            at += 1;
            match self.known.get(next) {
                None | Some(FunctionKnowledge::Harmless) => {}
                Some(FunctionKnowledge::Writes | FunctionKnowledge::LeavesState | FunctionKnowledge::If { writes: true, .. }) => {
                    return true;
                }
                Some(FunctionKnowledge::If { calls, writes: false }) => {
                    for call in calls {
                        if !seen.contains(&call.as_str()) {
                            seen.push(call);
                        }
                    }
                }
            }
        }
        false
    }
}

impl FunctionVerdict {
    fn of(missing: Vec<String>, writes: bool) -> FunctionVerdict {
        match (missing.is_empty(), writes) {
            (false, _) => FunctionVerdict::Unknown(missing),
            (true, true) => FunctionVerdict::Writes,
            (true, false) => FunctionVerdict::Harmless,
        }
    }
}

fn both(one: FunctionKnowledge, other: FunctionKnowledge) -> FunctionKnowledge {
    match (one, other) {
        (FunctionKnowledge::LeavesState, _) | (_, FunctionKnowledge::LeavesState) => FunctionKnowledge::LeavesState,
        (FunctionKnowledge::Harmless, known) | (known, FunctionKnowledge::Harmless) => known,
        (FunctionKnowledge::Writes, FunctionKnowledge::Writes) => FunctionKnowledge::Writes,
        (FunctionKnowledge::Writes, FunctionKnowledge::If { calls, .. })
        | (FunctionKnowledge::If { calls, .. }, FunctionKnowledge::Writes) => FunctionKnowledge::If { calls, writes: true },
        (FunctionKnowledge::If { mut calls, writes }, FunctionKnowledge::If { calls: more, writes: also }) => {
            calls.extend(more);
            FunctionKnowledge::If { calls, writes: writes || also }
        }
    }
}

/// Reads a source. A function in C is harmless: extensions' functions that leave something are known by name.
fn read(language: &str, source: &str) -> FunctionKnowledge {
    match language {
        "internal" | "c" => FunctionKnowledge::Harmless,
        "sql" | "plpgsql" if !source.trim().is_empty() && source.len() <= SOURCE_BYTES_MAX => match read_body(source) {
            BodyFacts::Suspicious => FunctionKnowledge::LeavesState,
            BodyFacts::Calls { calls, writes } => {
                let is_own = |name: &String| !(builtin::leaves_nothing(name) && builtin::is_repeatable(name));
                let calls: Vec<String> = calls.into_iter().filter(is_own).collect();
                match calls.iter().any(|name| left_by_function(name).is_some() || builtin::runs_text(name)) {
                    true => FunctionKnowledge::LeavesState,
                    false if !calls.is_empty() => FunctionKnowledge::If { calls, writes },
                    false if writes => FunctionKnowledge::Writes,
                    false => FunctionKnowledge::Harmless,
                }
            }
        },
        _ => FunctionKnowledge::LeavesState,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn learn(functions: &mut DatabaseFunctions, asked: &[&str], sources: &[(&str, &str, &str)]) {
        let asked: Vec<String> = asked.iter().map(|name| name.to_string()).collect();
        let own = |(name, language, source): &(&str, &str, &str)| (name.to_string(), language.to_string(), source.to_string());
        functions.learn(asked.iter(), &sources.iter().map(own).collect::<Vec<_>>());
    }

    #[test]
    fn a_function_is_harmless_if_all_it_calls_is() {
        let mut functions = DatabaseFunctions::default();
        assert_eq!(functions.judge("f"), FunctionVerdict::Unknown(vec!["f".into()]));
        learn(&mut functions, &["f"], &[("f", "sql", "select g(count(*)) from t where a in (1)")]);
        assert_eq!(functions.judge("f"), FunctionVerdict::Unknown(vec!["g".into(), "in".into()]));
        learn(&mut functions, &["g", "in"], &[("g", "plpgsql", "begin return f(1); end"), ("g", "c", "g_in_c")]);
        assert_eq!(functions.judge("f"), FunctionVerdict::Harmless, "also when they call each other");
        learn(&mut functions, &["h"], &[("h", "plpgsql", "begin perform f(1); set x = 1; end")]);
        assert_eq!(functions.judge("h"), FunctionVerdict::LeavesState);
        learn(&mut functions, &["i"], &[("i", "sql", "select f(1), h(2)")]);
        assert_eq!(functions.judge("i"), FunctionVerdict::LeavesState);
    }

    #[test]
    fn what_writes_is_told_from_what_does_not() {
        let mut functions = DatabaseFunctions::default();
        learn(
            &mut functions,
            &["reads", "writes", "calls", "both", "defines", "leaves"],
            &[
                ("reads", "sql", "select a from t where b = 'insert'"),
                ("writes", "plpgsql", "begin insert into t default values; end"),
                ("calls", "sql", "select reads(), writes()"),
                ("both", "sql", "select reads()"),
                ("both", "sql", "delete from t"),
                ("defines", "plpgsql", "begin create table x as select 1; end"),
                ("leaves", "plpgsql", "begin execute 'x'; end"),
            ],
        );
        let names = ["reads", "writes", "calls", "both", "defines", "leaves"];
        assert_eq!(names.map(|name| functions.writes(name)), [false, true, true, true, true, true]);
        assert_eq!(functions.judge("reads"), FunctionVerdict::Harmless);
        for name in ["writes", "calls", "both", "defines"] {
            assert_eq!(functions.judge(name), FunctionVerdict::Writes, "{name}");
        }
        assert_eq!(functions.judge_all(&["reads".into(), "both".into()]), FunctionVerdict::Writes);
        assert_eq!(functions.judge_all(&["both".into(), "leaves".into()]), FunctionVerdict::LeavesState);
        assert!(functions.leaves("set_config") && functions.leaves("leaves") && !functions.leaves("calls"));
    }

    #[test]
    fn what_was_read_is_believed_for_a_while_only() {
        let mut books = FunctionCache::default();
        let database: Arc<str> = "d".into();
        learn(books.of(&database, 5000, 0), &["f"], &[("f", "c", "f")]);
        for (now_ms, edition, is_known) in [(15_000, 0, true), (15_001, 0, false)] {
            assert_eq!(books.of(&database, now_ms, edition).judge("f") == FunctionVerdict::Harmless, is_known, "{now_ms}");
        }
        learn(books.of(&database, 16_000, 0), &["f"], &[("f", "c", "f")]);
        assert_ne!(books.of(&database, 16_000, 1).judge("f"), FunctionVerdict::Harmless, "a definition passed");
    }

    #[test]
    fn what_cannot_be_read_may_leave_anything() {
        let mut functions = DatabaseFunctions::default();
        let long = "x ".repeat(SOURCE_BYTES_MAX);
        learn(
            &mut functions,
            &["a", "b", "c", "d"],
            &[("a", "plpython3u", "x"), ("b", "sql", ""), ("c", "sql", &long), ("d", "sql", "select 1"), ("d", "plv8", "y")],
        );
        for name in ["a", "b", "c", "d"] {
            assert_eq!(functions.judge(name), FunctionVerdict::LeavesState, "{name}");
        }
    }
}
