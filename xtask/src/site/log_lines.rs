//! Lines of the log that `docs/log.md` lists and that no source writes.

use std::path::Path;

use anyhow::Result;

use super::page_text::{PageText, without_code};
use crate::finding::Finding;
use crate::source::sources_below;

const PAGE: &str = "docs/log.md";
/// The page's table writes no line itself.
const TABLE: &str = "crates/weir/src/log/events.rs";
/// Stands for a part that differs from line to line: `<...>` on the page, `{...}` in the sources.
const PART: char = '\u{1}';

pub fn find(root: &Path, pages: &[PageText]) -> Result<Vec<Finding>> {
    let mut written = String::new();
    for source in sources_below(root, "crates")? {
        if source.path.contains("/src/") && source.path != TABLE {
            written.push_str(&pattern(&joined(&source.lines[..source.tests_from].join("\n")), '{', '}'));
        }
    }
    Ok(missing(pages, &written))
}

fn missing(pages: &[PageText], written: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    for page in pages.iter().filter(|page| page.path == PAGE) {
        let rows = page.lines.iter().filter(|(_, line)| line.starts_with("| `"));
        for (number, line) in rows {
            let Some(first) = without_code(line).1.get(1).copied() else { continue };
            let wanted = pattern(first, '<', '>');
            // Ends that differ are often made elsewhere.
            let wanted = wanted.trim_matches([PART, ' ', ',', '"']);
            if !written.contains(wanted) {
                findings.push(Finding::new(&page.path, *number, format!("nothing writes the line: {first}")));
            }
        }
    }
    findings
}

/// The text with one sign in place of each part between these two, and quotes as they are written.
fn pattern(text: &str, begin: char, end: char) -> String {
    let (mut out, mut rest) = (String::new(), text);
    while let Some((before, after)) = rest.split_once(begin) {
        out.push_str(before);
        // Braces of code have spaces or lines between them.
        match after.split_once(end).filter(|(part, _)| !part.contains([' ', '\n', begin])) {
            Some((_, behind)) => {
                out.push(PART);
                rest = behind;
            }
            None => {
                out.push(begin);
                rest = after;
            }
        }
    }
    out.push_str(rest);
    out.replace("\\\"", "\"")
}

/// Texts that go on in the next line of the source are one.
fn joined(text: &str) -> String {
    let mut parts = text.split("\\\n");
    let mut out = parts.next().unwrap_or_default().to_owned();
    parts.for_each(|part| out.push_str(part.trim_start()));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_nothing_writes_is_found() {
        let page = PageText::new(
            PAGE,
            "| event | line |\n| `gone` | `node <n> is gone: <why>` | a |\n| `up` | `<n> is \"up\"` | b |\n| `lost` | `node <n> is lost` | c |\n",
        );
        let written = pattern(
            &joined("fn f() { say(\"node {node} is \\\n        gone: {}\", why); \"{:02} is \\\"up\\\"\"; \"node {n} was lost\""),
            '{',
            '}',
        );
        let found = missing(&[page], &written);
        assert_eq!(found.iter().map(|finding| finding.line).collect::<Vec<_>>(), [4]);
    }
}
