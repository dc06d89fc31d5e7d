//! `cargo xtask site`: the pages as a site, by mdBook. `cargo xtask pages`, a part of `check`: dead links, and names that do not exist. The latter needs no mdBook.

mod book;
mod log_lines;
mod page_links;
mod page_names;
mod page_text;

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

pub use book::Arguments;

use crate::finding;
use page_names::KnownNames;
use page_text::PageText;

/// Folders with pages, beside those in the workspace's folder itself.
const FOLDERS: &[&str] = &["docs", "bench", "packaging", "deploy", "fuzz", "crates"];
/// Depth of folders below these, at most.
const DEPTH_MAX: usize = 8;

pub fn build(arguments: &Arguments, root: &Path, target: &Path) -> Result<()> {
    check(root)?;
    book::build(arguments, root, &target.join("site"), &pages(root)?)
}

/// Fails if a page points to nothing, or names a command, parameter, view or series that does not exist.
pub fn check(root: &Path) -> Result<()> {
    let pages = pages(root)?;
    let mut findings = page_links::find(&pages, &|path| root.join(path).exists());
    findings.extend(page_names::find(&pages, &KnownNames::read(root)?));
    findings.extend(log_lines::find(root, &pages)?);
    findings.extend(book::find(&pages));
    finding::report("pages", &findings)
}

/// All pages by their paths from the workspace's folder.
fn pages(root: &Path) -> Result<Vec<PageText>> {
    let mut paths = Vec::new();
    gather(root, "", 0, &mut paths)?;
    for folder in FOLDERS {
        gather(root, folder, DEPTH_MAX, &mut paths)?;
    }
    paths.sort();
    paths
        .into_iter()
        .map(|path| {
            Ok(PageText::new(&path, &fs::read_to_string(root.join(&path)).with_context(|| format!("cannot read {path}"))?))
        })
        .collect()
}

fn gather(root: &Path, folder: &str, depth: usize, paths: &mut Vec<String>) -> Result<()> {
    let place = root.join(folder);
    if !place.is_dir() {
        return Ok(());
    }
    for entry in fs::read_dir(&place).with_context(|| format!("cannot read {}", place.display()))? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = if folder.is_empty() { name.clone() } else { format!("{folder}/{name}") };
        if entry.file_type()?.is_dir() && depth > 0 && name != "target" && name != "node_modules" {
            gather(root, &path, depth - 1, paths)?;
        } else if name.ends_with(".md") {
            paths.push(path);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_pages_point_to_what_exists() {
        super::check(crate::root()).unwrap();
    }
}
