//! Paths in a source text that begin at a crate's root.

use crate::source::Source;

/// First names of all paths from `roots` (`crate::`), with their lines: `crate::a::b`, `crate::{a, b::c}`. `groups` are looked through.
pub fn of(source: &Source, roots: &[&str], groups: &[&str]) -> Vec<(usize, String)> {
    let code: Vec<&str> = source.production().map(|(_, line)| line).collect();
    let text = code.join("\n");
    let mut uses = Vec::new();
    for root in roots {
        for (at, _) in text.match_indices(root) {
            let before = text[..at].chars().next_back();
            if before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == ':') {
                continue;
            }
            let after = &text[at + root.len()..];
            for (offset, name) in first_names(after, groups) {
                let line = text[..at + root.len() + offset].matches('\n').count() + 1;
                uses.push((line, name));
            }
        }
    }
    uses.sort();
    uses
}

/// The name at the start, or all names at the first level of a list in braces; with their places.
fn first_names(after: &str, groups: &[&str]) -> Vec<(usize, String)> {
    let word = |text: &str| -> String { text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect() };
    if !after.starts_with('{') {
        let first = word(after);
        if groups.contains(&first.as_str())
            && let Some(inner) = after[first.len()..].strip_prefix("::")
        {
            let shift = first.len() + 2;
            return first_names(inner, groups).into_iter().map(|(at, name)| (at + shift, name)).collect();
        }
        return vec![(0, first)];
    }
    let mut names = Vec::new();
    let mut depth = 0;
    let mut expects_name = false;
    for (at, c) in after.char_indices() {
        match c {
            '{' => {
                depth += 1;
                expects_name = depth == 1;
            }
            '}' if depth == 1 => break,
            '}' => depth -= 1,
            ',' => expects_name = depth == 1,
            _ if expects_name && !c.is_whitespace() => {
                names.extend(first_names(&after[at..], groups).into_iter().map(|(offset, name)| (at + offset, name)));
                expects_name = false;
            }
            _ => {}
        }
    }
    names
}
