//! Functions of a database that are known to leave no session state, and those known to write nothing, from their sources.
//!
//! A function counts as harmless when neither it nor anything it calls, as far as the sources say, can leave something. The
//! sources are asked for with the next question about session state. Until then the function counts as able to leave anything.

use crate::builtin;
use foldhash::HashMap;
use std::sync::Arc;
use weir_sql::body::{Body, read_body};
use weir_sql::leaves::left_by_function;

/// Functions remembered of one database; beyond, all are forgotten and read anew.
const FUNCTIONS_MAX: usize = 8192;

/// Sources longer than this are not read.
pub const SOURCE_BYTES_MAX: usize = 12_000;

/// Knowledge of a function's name: all functions of that name together.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Known {
    Harmless,
    /// It leaves nothing itself, but may write or define something: triggers run.
    Writes,
    /// It may leave something.
    LeavesState,
    /// Harmless if these are, or as good as `Writes`.
    If {
        calls: Vec<String>,
        writes: bool,
    },
}

/// Memory of a name beside its bytes.
const NAME_BYTES: usize = 56;

impl Known {
    /// Memory that it takes beside its place.
    fn bytes(&self) -> usize {
        match self {
            Known::Harmless | Known::Writes | Known::LeavesState => 0,
            Known::If { calls, .. } => calls.iter().map(|call| NAME_BYTES + call.len()).sum(),
        }
    }
}

/// Knowledge of one database's functions.
#[derive(Debug, Default)]
pub struct Functions {
    known: HashMap<String, Known>,
    read_ms: u64,
    edition: u64,
}

/// Knowledge of the functions of all databases.
#[derive(Debug, Default)]
pub struct Books {
    databases: HashMap<Arc<str>, Functions>,
}

/// Sources are believed for so long: they may be changed past Weir.
const BELIEVED_MS: u64 = 10_000;

impl Books {
    /// The functions of a database. `edition` moves when a definition passes through Weir; older readings are forgotten.
    pub fn of(&mut self, database: &Arc<str>, now_ms: u64, edition: u64) -> &mut Functions {
        let functions = self.databases.entry(database.clone()).or_default();
        if functions.known.is_empty() || functions.edition != edition || now_ms.saturating_sub(functions.read_ms) > BELIEVED_MS {
            functions.known.clear();
            (functions.read_ms, functions.edition) = (now_ms, edition);
        }
        functions
    }

    /// Nobody uses the database any more.
    pub fn forget(&mut self, database: &str) {
        self.databases.remove(database);
    }
}

/// Judgement of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    Harmless,
    /// It leaves nothing itself, but may write or define something: the state that triggers leave comes with that.
    Writes,
    LeavesState,
    /// It depends on these, whose source is not known.
    Unknown(Vec<String>),
}

impl Functions {
    /// Judges all functions of a statement.
    pub fn judge_all(&mut self, names: &[String]) -> Verdict {
        let (mut missing, mut writes) = (Vec::new(), false);
        for name in names {
            match self.judge(name) {
                Verdict::Harmless => {}
                Verdict::Writes => writes = true,
                Verdict::LeavesState => return Verdict::LeavesState,
                Verdict::Unknown(more) => missing.extend(more),
            }
        }
        Verdict::of(missing, writes)
    }

    /// Judges a function, and the functions it depends on.
    pub fn judge(&mut self, name: &str) -> Verdict {
        match self.known.get(name) {
            _ if builtin::runs_text(name) => return Verdict::LeavesState,
            Some(Known::Harmless) => return Verdict::Harmless,
            Some(Known::Writes) => return Verdict::Writes,
            Some(Known::LeavesState) => return Verdict::LeavesState,
            Some(Known::If { .. }) => {}
            None => return Verdict::Unknown(vec![name.to_owned()]),
        }
        let verdict = self.follow(name);
        match verdict {
            Verdict::Harmless => drop(self.known.insert(name.to_owned(), Known::Harmless)),
            Verdict::Writes => drop(self.known.insert(name.to_owned(), Known::Writes)),
            Verdict::LeavesState => drop(self.known.insert(name.to_owned(), Known::LeavesState)),
            Verdict::Unknown(_) => {}
        }
        verdict
    }

    fn follow(&self, name: &str) -> Verdict {
        let mut seen: Vec<&str> = vec![name];
        let (mut missing, mut writes) = (Vec::new(), false);
        let mut at = 0;
        while let Some(next) = seen.get(at).copied() {
            at += 1;
            match self.known.get(next) {
                _ if builtin::runs_text(next) => return Verdict::LeavesState,
                Some(Known::Harmless) => {}
                Some(Known::Writes) => writes = true,
                Some(Known::LeavesState) => return Verdict::LeavesState,
                Some(Known::If { calls, writes: more }) => {
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
        Verdict::of(missing, writes)
    }

    /// Takes in the server's answer about the functions with these names: name, language and source of each.
    pub fn learn<'a>(&mut self, asked: impl Iterator<Item = &'a String>, sources: &[(String, String, String)]) {
        if self.known.len() > FUNCTIONS_MAX {
            self.known.clear();
        }
        for name in asked {
            let of_name = sources.iter().filter(|(known, _, _)| known == name);
            let known = of_name.map(|(_, language, source)| read(language, source)).fold(Known::Harmless, both);
            self.known.insert(name.clone(), known);
        }
    }
}

impl Functions {
    /// Takes in one source of a function; those of one name count together. For a caller who reads them all. Says how many bytes are kept of it.
    pub fn add(&mut self, name: &str, language: &str, source: &str) -> usize {
        let known = read(language, source);
        let bytes = name.len() + known.bytes();
        let known = self.known.remove(name).map_or(known.clone(), |before| both(before, known));
        self.known.insert(name.to_owned(), known);
        bytes
    }

    /// The functions whose sources have been taken in.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.known.keys().map(String::as_str)
    }

    /// True if a function may leave something, when all sources have been taken in: one without is not a user's, or in C.
    pub fn leaves(&self, name: &str) -> bool {
        left_by_function(name).is_some()
            || builtin::runs_text(name)
            || (self.known.contains_key(name) && self.follow(name) == Verdict::LeavesState)
    }

    /// True if a function may act outside of the database, itself or by its calls; `acts`: the calls that do. A function without a source does, and
    /// one that may leave something: it runs text that nobody sees.
    pub fn act(&self, name: &str, acts: impl Fn(&str) -> bool) -> bool {
        let mut seen: Vec<&str> = vec![name];
        let mut at = 0;
        while let Some(next) = seen.get(at).copied() {
            at += 1;
            match self.known.get(next) {
                _ if acts(next) => return true,
                // A keyword, a table, a function of PostgreSQL's own.
                None if at > 1 => {}
                None | Some(Known::LeavesState) => return true,
                Some(Known::Harmless | Known::Writes) => {}
                Some(Known::If { calls, .. }) => {
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

    /// True if a function may write something, itself or by its calls. A called function without a source counts as one that
    /// may.
    pub fn writes(&self, name: &str) -> bool {
        let mut seen: Vec<&str> = vec![name];
        let mut at = 0;
        while let Some(next) = seen.get(at).copied() {
            at += 1;
            match self.known.get(next) {
                None | Some(Known::Harmless) => {}
                Some(Known::Writes | Known::LeavesState | Known::If { writes: true, .. }) => return true,
                Some(Known::If { calls, writes: false }) => {
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

impl Verdict {
    fn of(missing: Vec<String>, writes: bool) -> Verdict {
        match (missing.is_empty(), writes) {
            (false, _) => Verdict::Unknown(missing),
            (true, true) => Verdict::Writes,
            (true, false) => Verdict::Harmless,
        }
    }
}

fn both(one: Known, other: Known) -> Known {
    match (one, other) {
        (Known::LeavesState, _) | (_, Known::LeavesState) => Known::LeavesState,
        (Known::Harmless, known) | (known, Known::Harmless) => known,
        (Known::Writes, Known::Writes) => Known::Writes,
        (Known::Writes, Known::If { calls, .. }) | (Known::If { calls, .. }, Known::Writes) => Known::If { calls, writes: true },
        (Known::If { mut calls, writes }, Known::If { calls: more, writes: also }) => {
            calls.extend(more);
            Known::If { calls, writes: writes || also }
        }
    }
}

/// A function in C can do anything, but those of extensions that leave something are known by their names.
fn read(language: &str, source: &str) -> Known {
    match language {
        "internal" | "c" => Known::Harmless,
        "sql" | "plpgsql" if !source.trim().is_empty() && source.len() <= SOURCE_BYTES_MAX => match read_body(source) {
            Body::Suspicious => Known::LeavesState,
            Body::Calls { calls, writes } => {
                // One of PostgreSQL's own that acts outside of the database is told from others by its name.
                let is_own = |name: &String| !(builtin::leaves_nothing(name) && builtin::is_repeatable(name));
                let calls: Vec<String> = calls.into_iter().filter(is_own).collect();
                match calls.iter().any(|name| left_by_function(name).is_some() || builtin::runs_text(name)) {
                    true => Known::LeavesState,
                    false if !calls.is_empty() => Known::If { calls, writes },
                    false if writes => Known::Writes,
                    false => Known::Harmless,
                }
            }
        },
        // The source of a function whose body was parsed when it was made is kept in another form.
        _ => Known::LeavesState,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn learn(functions: &mut Functions, asked: &[&str], sources: &[(&str, &str, &str)]) {
        let asked: Vec<String> = asked.iter().map(|name| name.to_string()).collect();
        let own = |(name, language, source): &(&str, &str, &str)| (name.to_string(), language.to_string(), source.to_string());
        functions.learn(asked.iter(), &sources.iter().map(own).collect::<Vec<_>>());
    }

    #[test]
    fn a_function_is_harmless_if_all_it_calls_is() {
        let mut functions = Functions::default();
        assert_eq!(functions.judge("f"), Verdict::Unknown(vec!["f".into()]));
        learn(&mut functions, &["f"], &[("f", "sql", "select g(count(*)) from t where a in (1)")]);
        assert_eq!(functions.judge("f"), Verdict::Unknown(vec!["g".into(), "in".into()]));
        learn(&mut functions, &["g", "in"], &[("g", "plpgsql", "begin return f(1); end"), ("g", "c", "g_in_c")]);
        assert_eq!(functions.judge("f"), Verdict::Harmless, "also when they call each other");
        learn(&mut functions, &["h"], &[("h", "plpgsql", "begin perform f(1); set x = 1; end")]);
        assert_eq!(functions.judge("h"), Verdict::LeavesState);
        learn(&mut functions, &["i"], &[("i", "sql", "select f(1), h(2)")]);
        assert_eq!(functions.judge("i"), Verdict::LeavesState);
    }

    #[test]
    fn what_writes_is_told_from_what_does_not() {
        let mut functions = Functions::default();
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
        assert_eq!(functions.judge("reads"), Verdict::Harmless);
        for name in ["writes", "calls", "both", "defines"] {
            assert_eq!(functions.judge(name), Verdict::Writes, "{name}");
        }
        assert_eq!(functions.judge_all(&["reads".into(), "both".into()]), Verdict::Writes);
        assert_eq!(functions.judge_all(&["both".into(), "leaves".into()]), Verdict::LeavesState);
        assert!(functions.leaves("set_config") && functions.leaves("leaves") && !functions.leaves("calls"));
    }

    #[test]
    fn what_was_read_is_believed_for_a_while_only() {
        let mut books = Books::default();
        let database: Arc<str> = "d".into();
        learn(books.of(&database, 5000, 0), &["f"], &[("f", "c", "f")]);
        for (now_ms, edition, is_known) in [(15_000, 0, true), (15_001, 0, false)] {
            assert_eq!(books.of(&database, now_ms, edition).judge("f") == Verdict::Harmless, is_known, "{now_ms}");
        }
        learn(books.of(&database, 16_000, 0), &["f"], &[("f", "c", "f")]);
        assert_ne!(books.of(&database, 16_000, 1).judge("f"), Verdict::Harmless, "a definition passed");
    }

    #[test]
    fn what_cannot_be_read_may_leave_anything() {
        let mut functions = Functions::default();
        let long = "x ".repeat(SOURCE_BYTES_MAX);
        learn(
            &mut functions,
            &["a", "b", "c", "d"],
            &[("a", "plpython3u", "x"), ("b", "sql", ""), ("c", "sql", &long), ("d", "sql", "select 1"), ("d", "plv8", "y")],
        );
        for name in ["a", "b", "c", "d"] {
            assert_eq!(functions.judge(name), Verdict::LeavesState, "{name}");
        }
    }
}
