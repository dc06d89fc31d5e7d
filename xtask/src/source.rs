//! Rust source as the checks see it: its files, and its lines without comments and texts.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// One file of the workspace.
pub struct Source {
    /// Its path from the workspace's folder.
    pub path: String,
    /// Its lines as written.
    pub lines: Vec<String>,
    /// Its lines without comments and the inside of texts: the part that the compiler acts on.
    pub code: Vec<String>,
    /// Lines from this index on are the file's tests (`#[cfg(test)]` before a module, which comes last by our style).
    pub tests_from: usize,
}

impl Source {
    /// Takes a file's text apart.
    pub fn new(path: &str, text: &str) -> Self {
        let lines: Vec<String> = text.lines().map(str::to_owned).collect();
        let code: Vec<String> = strip(text).lines().map(str::to_owned).collect();
        let is_tests = |index: usize| {
            let next = code.get(index + 1).map_or("", |line| line.trim());
            code[index].trim() == "#[cfg(test)]" && (next.starts_with("mod ") || next.starts_with("pub mod "))
        };
        let tests_from = (0..code.len()).find(|&index| is_tests(index)).unwrap_or(code.len());
        Self { path: path.to_owned(), lines, code, tests_from }
    }

    /// Numbered lines of code before the tests.
    pub fn production(&self) -> impl Iterator<Item = (usize, &str)> {
        self.code[..self.tests_from].iter().enumerate().map(|(index, line)| (index + 1, line.as_str()))
    }
}

/// All `.rs` files below `folder` (a path from `root`), sorted; none if the folder is missing.
pub fn sources_below(root: &Path, folder: &str) -> Result<Vec<Source>> {
    let mut paths = Vec::new();
    collect(&root.join(folder), &mut paths)?;
    paths.sort();
    let read = |path: &PathBuf| {
        let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        Ok(Source::new(&path.strip_prefix(root)?.to_string_lossy(), &text))
    };
    paths.iter().map(read).collect()
}

fn collect(folder: &Path, paths: &mut Vec<PathBuf>) -> Result<()> {
    if !folder.is_dir() {
        return Ok(());
    }
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, paths)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            paths.push(path);
        }
    }
    Ok(())
}

/// Where we are in a source text.
enum Place {
    Code,
    LineComment,
    /// Comments in stars nest; the depth.
    BlockComment(u32),
    Text,
    /// A raw text and how many `#` end it.
    RawText(usize),
}

/// Blanks comments, texts and characters in quotes; keeps all line breaks.
fn strip(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut place = Place::Code;
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let (taken, shown, next) = match place {
            Place::Code => step_code(rest, first),
            Place::LineComment if first == '\n' => (1, "\n", Place::Code),
            Place::BlockComment(depth) if rest.starts_with("/*") => (2, "", Place::BlockComment(depth + 1)),
            Place::BlockComment(1) if rest.starts_with("*/") => (2, " ", Place::Code),
            Place::BlockComment(depth) if rest.starts_with("*/") => (2, "", Place::BlockComment(depth - 1)),
            // The character after a backslash is skipped too, but a line break is kept.
            Place::Text if rest.starts_with("\\\n") => (2, "\n", Place::Text),
            Place::Text if first == '\\' => (1 + rest[1..].chars().next().map_or(0, char::len_utf8), "", Place::Text),
            Place::Text if first == '"' => (1, "\"", Place::Code),
            Place::RawText(marks) if first == '"' && rest[1..].starts_with(&"#".repeat(marks)) => (1 + marks, "\"", Place::Code),
            other => (first.len_utf8(), if first == '\n' { "\n" } else { "" }, other),
        };
        out.push_str(shown);
        place = next;
        rest = &rest[taken..];
    }
    out
}

/// One step outside of comments and texts: bytes taken, the part of them that is kept, and the place after them.
fn step_code(rest: &str, first: char) -> (usize, &str, Place) {
    let kept = &rest[..first.len_utf8()];
    match first {
        '/' if rest.starts_with("//") => (2, "", Place::LineComment),
        '/' if rest.starts_with("/*") => (2, "", Place::BlockComment(1)),
        '"' => (1, "\"", Place::Text),
        '\'' => match quoted_character_bytes(rest) {
            Some(bytes) => (bytes, "''", Place::Code),
            None => (1, kept, Place::Code), // a lifetime
        },
        'r' => {
            let marks = rest[1..].bytes().take_while(|&byte| byte == b'#').count();
            if rest[1 + marks..].starts_with('"') {
                return (2 + marks, "\"", Place::RawText(marks));
            }
            word(rest)
        }
        _ if first.is_alphabetic() || first == '_' => word(rest),
        _ => (kept.len(), kept, Place::Code),
    }
}

/// A whole word, so that the `r` at its end does not begin a raw text. `b` and `br` before a quote stay apart.
fn word(rest: &str) -> (usize, &str, Place) {
    let bytes = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
    let is_raw_prefix = &rest[..bytes] == "br" && rest[bytes..].starts_with(['"', '#']);
    let bytes = if is_raw_prefix { 1 } else { bytes };
    (bytes, &rest[..bytes], Place::Code)
}

fn quoted_character_bytes(rest: &str) -> Option<usize> {
    let inside = &rest[1..];
    let mut characters = inside.char_indices();
    let (_, first) = characters.next()?;
    if first == '\\' {
        // The character after the backslash may be a quote itself.
        return inside.get(2..)?.find('\'').map(|at| at + 4);
    }
    let (at, second) = characters.next()?;
    (second == '\'').then_some(at + 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_texts_are_blanked_and_lines_kept() {
        for (text, code) in [
            ("a // {\nb", "a \nb"),
            ("a /* { /* } */ \n */ b", "a \n  b"),
            (r#"f("{ \" }") + 1"#, r#"f("") + 1"#),
            ("f(r#\"{ \" }\"#)", "f(\"\")"),
            ("f(br\"{\", b\"{\")", "f(b\"\", b\"\")"),
            ("'{' '\\'' '\\u{1F600}' 'é' 'static", "'' '' '' '' 'static"),
            ("for r\"x\"", "for \"\""),
            ("\"a \\\n b\" c", "\"\n\" c"),
        ] {
            assert_eq!(strip(text), code, "{text}");
        }
    }

    #[test]
    fn tests_begin_at_their_module_not_at_a_single_test_function() {
        let source = Source::new("a.rs", "#[cfg(test)]\nfn sample() {}\nfn a() {}\n#[cfg(test)]\nmod tests {\n}\n");
        assert_eq!(source.tests_from, 3);
    }
}
