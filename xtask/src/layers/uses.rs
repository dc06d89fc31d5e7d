//! The uses between the files of a crate.

use std::collections::{BTreeMap, BTreeSet};

use super::paths::{self, Start, UsedPath};
use crate::source::Source;

/// The name of a crate's root among its modules.
pub const ROOT: &str = "";

/// One use of a module by another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Use {
    pub path: String,
    pub line: usize,
    pub by: String,
    pub of: String,
}

/// All uses between the files of the crate in a folder (`crates/weir`), each module by its path (`client::startup`); the root is `ROOT`. A name that
/// another module passes on (`pub use`) counts as one of the module that has it.
pub fn of(sources: &[Source], folder: &str) -> Vec<Use> {
    let package = match folder.rsplit('/').next() {
        Some("weir") => "weir".to_owned(),
        name => format!("weir_{}", name.unwrap_or(folder)),
    };
    let files: Vec<(String, &Source)> =
        sources.iter().filter_map(|source| Some((module_of(&source.path, folder)?, source))).collect();
    let modules: BTreeSet<&str> = files.iter().map(|(module, _)| module.as_str()).collect();
    let found: Vec<(&str, &Source, Vec<UsedPath>)> =
        files.iter().map(|(module, source)| (module.as_str(), *source, paths::of(source, &package))).collect();
    let passed_on: BTreeMap<(&str, String), String> = files
        .iter()
        .flat_map(|(module, source)| {
            let named = exports(source).into_iter();
            named.map(move |(name, path)| ((module.as_str(), name), resolve(module, &path)))
        })
        .filter_map(|(key, path)| Some((key, longest(&modules, &path)?.0.to_owned())))
        .collect();
    let mut uses = Vec::new();
    for (by, source, paths) in found {
        for used in paths {
            let Some((module, next)) = longest(&modules, &resolve(by, &used)) else { continue };
            let of = next.and_then(|name| passed_on.get(&(module, name))).map_or(module, String::as_str);
            if of != by {
                uses.push(Use { path: source.path.clone(), line: used.line, by: by.to_owned(), of: of.to_owned() });
            }
        }
    }
    uses
}

/// The module of a file; none for tests, and for programs of `bin/`, which stand above all modules.
fn module_of(path: &str, folder: &str) -> Option<String> {
    let inside = path.strip_prefix(folder)?.strip_prefix("/src/")?.strip_suffix(".rs")?;
    let is_of_tests = inside.ends_with("/tests") || inside.contains("/tests/");
    if is_of_tests || inside.starts_with("bin/") {
        return None;
    }
    let inside = inside.strip_suffix("/mod").unwrap_or(inside);
    Some(if matches!(inside, "lib" | "main") { ROOT.to_owned() } else { inside.replace('/', "::") })
}

/// The parts of a path from the crate's root.
fn resolve(module: &str, used: &UsedPath) -> Vec<String> {
    let Start::Parent(count) = used.start else { return used.parts.clone() };
    let own: Vec<&str> = module.split("::").filter(|part| !part.is_empty()).collect();
    let kept = own.len().saturating_sub(count);
    own[..kept].iter().map(|part| (*part).to_owned()).chain(used.parts.iter().cloned()).collect()
}

/// The module that the path leads to, and the first name in it.
fn longest<'a>(modules: &BTreeSet<&'a str>, path: &[String]) -> Option<(&'a str, Option<String>)> {
    (0..=path.len()).rev().find_map(|count| {
        let module = modules.get(path[..count].join("::").as_str())?;
        Some((*module, path.get(count).cloned()))
    })
}

/// Names that a file passes on from its own modules, each with its path.
fn exports(source: &Source) -> Vec<(String, UsedPath)> {
    let code: Vec<&str> = source.production().map(|(_, line)| line).collect();
    let text = code.join("\n");
    let mut exports = Vec::new();
    for statement in text.split("pub use ").skip(1) {
        let Some((path, _)) = statement.split_once(';') else { continue };
        // A path from its own modules is one from `crate` to a source that stands at the root, so that one reader of paths is enough.
        let source = Source::new("", &format!("crate::{};", path.trim_start_matches("self::")));
        for used in paths::of(&source, "self") {
            let own = path.starts_with("crate::") || path.starts_with("super::");
            if let (Some(name), false) = (used.parts.last().cloned(), own) {
                exports.push((name, UsedPath { start: Start::Parent(0), ..used }));
            }
        }
    }
    exports
}

/// The modules that each module uses. Uses between a module and those below it are left out: they are one subject.
pub fn beyond_own(uses: &[Use]) -> BTreeMap<String, BTreeSet<String>> {
    let is_below = |one: &str, other: &str| one == ROOT || other.strip_prefix(one).is_some_and(|rest| rest.starts_with("::"));
    let mut graph: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for Use { by, of, .. } in uses {
        let used = graph.entry(by.clone()).or_default();
        if !is_below(by, of) && !is_below(of, by) {
            used.insert(of.clone());
        }
    }
    graph
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(files: &[(&str, &str)]) -> Vec<String> {
        let sources: Vec<Source> =
            files.iter().map(|(name, text)| Source::new(&format!("crates/x/src/{name}.rs"), text)).collect();
        of(&sources, "crates/x").into_iter().map(|one| format!("{} -> {}", one.by, one.of)).collect()
    }

    #[test]
    fn uses_are_those_of_files_by_whatever_name() {
        let lib = ("lib", "mod a;\nmod b;\npub use a::{One, part::Two};\n");
        assert_eq!(pairs(&[lib, ("a", ""), ("a/part", ""), ("b", "use crate::{One, Two};\n")]), ["b -> a", "b -> a::part"]);
        assert_eq!(
            pairs(&[("a", "use super::b::part::Three;\n"), ("a/part", "use super::super::b;\n"), ("b", ""), ("b/part", "")]),
            ["a -> b::part", "a::part -> b"]
        );
        assert_eq!(pairs(&[("lib", ""), ("a", "use crate::Root;\n"), ("a/tests", "use crate::b;\n"), ("b", "")]), ["a -> "]);
    }

    #[test]
    fn a_module_and_those_below_it_are_one_subject() {
        let uses = [("a", "a::b"), ("a::b", "a"), ("a::b", "a::c"), ("ab", "a"), ("", "a"), ("a", "")];
        let uses: Vec<Use> =
            uses.iter().map(|(by, of)| Use { path: String::new(), line: 1, by: by.to_string(), of: of.to_string() }).collect();
        let graph = beyond_own(&uses);
        let of = |name: &str| graph[name].iter().map(String::as_str).collect::<Vec<_>>();
        assert_eq!((of("a"), of("a::b"), of("ab"), of("")), (vec![], vec!["a::c"], vec!["a"], vec![]));
    }
}
