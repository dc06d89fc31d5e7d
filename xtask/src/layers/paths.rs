//! Paths in a source text that begin at a crate's root or at a parent of the module.

use crate::source::Source;

/// Where a path begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Start {
    /// The crate's root.
    Root,
    /// So many modules above the one that names it.
    Parent(usize),
}

/// One path, without the words it begins with.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct UsedPath {
    pub line: usize,
    pub start: Start,
    pub parts: Vec<String>,
}

/// All paths of a source text: `crate::a::B`, `super::c`, each one of `crate::{a, b::{self, C}}`. `package`: the crate's name, as its programs say it.
pub fn of(source: &Source, package: &str) -> Vec<UsedPath> {
    let code: Vec<&str> = source.production().map(|(_, line)| line).collect();
    let text = code.join("\n");
    let package = format!("{package}::");
    let mut used = Vec::new();
    for (root, start) in [("crate::", Start::Root), (package.as_str(), Start::Root), ("super::", Start::Parent(1))] {
        for (at, _) in text.match_indices(root) {
            let before = text[..at].chars().next_back();
            if before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == ':') {
                continue;
            }
            let (mut from, mut start) = (at + root.len(), start);
            while let (Start::Parent(count), true) = (start, text[from..].starts_with("super::")) {
                (from, start) = (from + "super::".len(), Start::Parent(count + 1));
            }
            for (offset, parts) in paths_at(&text[from..]) {
                let line = text[..from + offset].matches('\n').count() + 1;
                used.push(UsedPath { line, start, parts });
            }
        }
    }
    used.sort();
    used
}

/// The path at the start of a text, or each path of a list in braces, with the place of its last word.
fn paths_at(text: &str) -> Vec<(usize, Vec<String>)> {
    let Some(list) = text.strip_prefix('{') else {
        let word: String = text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
        if word.is_empty() || word == "self" {
            return vec![(0, Vec::new())];
        }
        let Some(rest) = text[word.len()..].strip_prefix("::") else { return vec![(0, vec![word])] };
        let skipped = word.len() + 2;
        if !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_' || c == '{') {
            return vec![(0, vec![word])];
        }
        let prefixed = |(at, parts): (usize, Vec<String>)| (at + skipped, [vec![word.clone()], parts].concat());
        return paths_at(rest).into_iter().map(prefixed).collect();
    };
    let (mut paths, mut depth, mut expects) = (Vec::new(), 0, true);
    for (at, c) in list.char_indices() {
        match c {
            '}' if depth == 0 => break,
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => expects = true,
            c if expects && depth == 0 && !c.is_whitespace() => {
                paths.extend(paths_at(&list[at..]).into_iter().map(|(offset, parts)| (at + 1 + offset, parts)));
                expects = false;
            }
            _ => {}
        }
    }
    paths
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_paths(text: &str, expected: &[&str]) {
        let shown = |path: &UsedPath| {
            let start = match path.start {
                Start::Root => "crate".to_owned(),
                Start::Parent(count) => format!("super{count}"),
            };
            format!("{} {start}::{}", path.line, path.parts.join("::"))
        };
        let found = of(&Source::new("a.rs", text), "weir");
        assert_eq!(found.iter().map(shown).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn paths_of_lists_are_taken_one_by_one() {
        check_paths(
            "use crate::a::B;\nfn f() { weir::c::d(), super::super::e::<F>() }\n",
            &["1 crate::a::B", "2 crate::c::d", "2 super2::e"],
        );
        check_paths(
            "use crate::{\n    a,\n    b::{self, c::D, E as F},\n};\n",
            &["2 crate::a", "3 crate::b", "3 crate::b::E", "3 crate::b::c::D"],
        );
        check_paths("use other::a;\n// crate::b\nconst A: &str = \"crate::c\";\n", &[]);
        check_paths("#[cfg(test)]\nmod tests {\n    use crate::a;\n}\n", &[]);
    }
}
