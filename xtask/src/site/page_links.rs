//! Links and pictures of the pages that lead to nothing. Addresses elsewhere are not looked at.

use super::page_text::{PageText, without_code};
use crate::finding::Finding;

/// `exists` says whether there is a file or folder at a path from the workspace's folder.
pub fn find(pages: &[PageText], exists: &dyn Fn(&str) -> bool) -> Vec<Finding> {
    let mut findings = Vec::new();
    for page in pages {
        for (number, line) in &page.lines {
            for target in targets(&without_code(line).0) {
                if let Err(fault) = check(page, target, pages, exists) {
                    findings.push(Finding::new(&page.path, *number, format!("the link {target} {fault}")));
                }
            }
        }
    }
    findings
}

/// Targets of links in a line: those of Markdown, and those of the few words of HTML that show pictures.
pub fn targets(line: &str) -> Vec<&str> {
    let between = |begin: &'static str, end: char| {
        line.match_indices(begin).filter_map(move |(at, _)| line[at + begin.len()..].split(end).next())
    };
    let mut found: Vec<&str> =
        between("](", ')').map(|target| target.split_once(' ').map_or(target, |(target, _)| target)).collect();
    for begin in [" src=\"", " srcset=\"", " href=\""] {
        found.extend(between(begin, '"'));
    }
    found.retain(|target| !["https://", "http://", "mailto:"].iter().any(|scheme| target.starts_with(scheme)));
    found
}

fn check(page: &PageText, target: &str, pages: &[PageText], exists: &dyn Fn(&str) -> bool) -> Result<(), String> {
    let (path, anchor) = target.split_once('#').map_or((target, None), |(path, anchor)| (path, Some(anchor)));
    let path =
        if path.is_empty() { page.path.clone() } else { resolve(&page.path, path).ok_or("leads out of the repository")? };
    let named = pages.iter().find(|page| page.path == path);
    if named.is_none() && !exists(&path) {
        return Err(format!("leads to {path}, which does not exist"));
    }
    match (named, anchor) {
        (Some(named), Some(anchor)) if !named.anchors.iter().any(|known| known == anchor) => {
            Err(format!("names a heading that {path} does not have"))
        }
        _ => Ok(()),
    }
}

/// A path from the workspace's folder. `None`: it leads out of it.
pub fn resolve(page: &str, target: &str) -> Option<String> {
    let mut parts: Vec<&str> = page.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dead_links_and_anchors_are_found() {
        let pages = [
            PageText::new("README.md", "# R\n[a](docs/a.md) [b](docs/b.md) [c](docs/a.md#one-two)\n<img src=\"docs/x.svg\">\n"),
            PageText::new(
                "docs/a.md",
                "# One two\n[up](../README.md#r) [out](../../x) [own](#nothing) `[code](no.md)` [w](https://x.y/z)\n![p](p.png \"t\")\n",
            ),
        ];
        let found = find(&pages, &|path| path == "docs/p.png");
        let found: Vec<(&str, usize)> = found.iter().map(|finding| (finding.path.as_str(), finding.line)).collect();
        assert_eq!(found, [("README.md", 2), ("README.md", 3), ("docs/a.md", 2), ("docs/a.md", 2)]);
    }
}
