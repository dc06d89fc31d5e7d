//! `cargo xtask house`: measures of how the code reads, printed. No number is a limit: judgement decides what is to change.

mod comments;
mod items;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::Result;

use crate::layers;
use crate::source::{Source, sources_below};
use comments::Comments;
use items::{Struct, Type};

/// The product: what is built into `weir`, and the crates that decide for it.
const PRODUCT: &[&str] =
    &["wire", "sql", "ring", "io", "config", "import", "catalog", "failover", "group", "cache", "session", "agent", "weir"];

/// The longest and largest that are named.
const NAMED: usize = 8;

/// Where a type's name is compared.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Scope {
    Workspace,
    Crate,
}

/// Measures of all crates of the product.
#[derive(Default)]
struct Measures {
    /// Lines before the tests.
    lines: usize,
    /// Functions, with their lines.
    functions: Vec<(usize, String)>,
    structs: Vec<Struct>,
    /// Each type, by crate.
    types: Vec<(String, Type)>,
    /// Files by their last name, those of tests apart.
    names: BTreeMap<String, usize>,
    comments: Comments,
    /// Functions that take a session and a context.
    with_both: usize,
    /// Files that assign a field of a session, by field.
    written: BTreeMap<String, BTreeSet<String>>,
    /// Modules of `crates/weir`, a file with the folder below it: lines before the tests, and if there are tests.
    of_program: BTreeMap<String, (usize, bool)>,
}

/// Prints the report.
pub fn run(root: &Path) -> Result<()> {
    let mut measures = Measures::default();
    for name in PRODUCT {
        for source in sources_below(root, &format!("crates/{name}/src"))? {
            measures.add(name, &source);
        }
    }
    println!("files in the largest circle of a crate: {}", layers::largest_circle(root)?);
    println!("uses of a folder of crates/weir/src by one below it: {}", layers::uses_upwards(root)?);
    measures.print();
    Ok(())
}

impl Measures {
    fn add(&mut self, of: &str, source: &Source) {
        let module = (of == "weir").then(|| module_of(&source.path));
        if source.path.ends_with("/tests.rs") || source.path.contains("/tests/") {
            module.into_iter().for_each(|module| self.of_program.entry(module).or_default().1 = true);
            return;
        }
        let production = &source.code[..source.tests_from];
        self.lines += source.tests_from;
        let functions = items::functions_of(production);
        self.functions.extend(functions.iter().map(|one| (one.lines, format!("{} ({}:{})", one.name, source.path, one.line))));
        self.with_both += functions.iter().filter(|one| one.takes("Session") && one.takes("Context")).count();
        self.structs.extend(items::structs_of(source));
        self.types.extend(items::types_of(production).into_iter().map(|one| (of.to_owned(), one)));
        let name = source.path.rsplit('/').next().unwrap_or_default();
        if !matches!(name, "mod.rs" | "lib.rs" | "main.rs") {
            *self.names.entry(name.to_owned()).or_default() += 1;
        }
        self.comments.add(&source.lines[..source.tests_from]);
        if of == "session" {
            for field in items::fields_written(production) {
                self.written.entry(field).or_default().insert(source.path.clone());
            }
        }
        if let Some(module) = module {
            let (lines, has_tests) = self.of_program.entry(module).or_default();
            *lines += source.tests_from;
            *has_tests |= source.tests_from < source.code.len();
        }
    }

    /// Types whose name another type has.
    fn types_with_twins(&self, scope: Scope) -> usize {
        let mut counts: BTreeMap<(&str, &str), usize> = BTreeMap::new();
        let key = |of: &'_ str| if scope == Scope::Crate { of.to_owned() } else { String::new() };
        let keys: Vec<(String, &str)> = self.types.iter().map(|(of, one)| (key(of), one.name.as_str())).collect();
        keys.iter().for_each(|(of, name)| *counts.entry((of, name)).or_default() += 1);
        counts.into_values().filter(|count| *count > 1).sum()
    }

    fn print(mut self) {
        let percent = |part: usize, whole: usize| format!("{:.1} %", 100.0 * part as f64 / whole.max(1) as f64);
        let (in_all, in_crate) = (self.types_with_twins(Scope::Workspace), self.types_with_twins(Scope::Crate));
        let of_one_word = self.types.iter().filter(|(_, one)| one.words() == 1).count();
        println!("types: {}", self.types.len());
        println!("  whose name another one has: {}; in the same crate: {in_crate}", percent(in_all, self.types.len()));
        println!("  of one word: {}", percent(of_one_word, self.types.len()));
        let twins: usize = self.names.values().filter(|count| **count > 1).sum();
        println!("files that share their name with another one: {twins}");
        println!("functions that take the session and the context: {}", self.with_both);
        let Comments { blocks, without_noun, words } = self.comments;
        println!("comment blocks that begin with a pronoun: {} of {blocks}", percent(without_noun, blocks));
        println!("words of comments: {words}");
        let often: Vec<&str> =
            self.written.iter().filter(|(_, files)| files.len() > 2).map(|(field, _)| field.as_str()).collect();
        println!("fields of a session that more than two files assign: {} {}", often.len(), often.join(" "));
        let lines: usize = self.of_program.values().map(|(lines, _)| lines).sum();
        let untested: usize = self.of_program.values().filter(|(_, has_tests)| !has_tests).map(|(lines, _)| lines).sum();
        println!("lines of crates/weir in modules without a unit test: {}", percent(untested, lines));
        println!("lines of the product: {}", self.lines);
        self.functions.sort_by_key(|(lines, _)| std::cmp::Reverse(*lines));
        println!("longest functions:");
        self.functions.iter().take(NAMED).for_each(|(lines, name)| println!("  {lines} lines: {name}"));
        self.structs.sort_by_key(|one| std::cmp::Reverse((one.fields, one.bools)));
        println!("structs with most fields:");
        self.structs.iter().take(NAMED).for_each(|one| println!("  {} fields, {} bools: {}", one.fields, one.bools, one.place));
        let names: BTreeSet<&str> = self.types.iter().map(|(_, one)| one.name.as_str()).collect();
        let count = |name: &str| self.types.iter().filter(|(_, one)| one.name == name).count();
        let mut often: Vec<(usize, &str)> = names.into_iter().map(|name| (count(name), name)).collect();
        often.sort_by_key(|(count, _)| std::cmp::Reverse(*count));
        println!("names that most types have:");
        often.iter().take(NAMED).for_each(|(count, name)| println!("  {count} types: {name}"));
    }
}

/// The module of a file of `crates/weir/src`: its folder and the first name below it.
fn module_of(path: &str) -> String {
    let below = path.strip_prefix("crates/weir/src/").unwrap_or(path);
    let names: Vec<&str> = below.trim_end_matches(".rs").split('/').take(2).collect();
    names.join("/")
}
