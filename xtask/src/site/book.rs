//! The site: all pages that `docs/SUMMARY.md` lists, in its order, by mdBook.
//!
//! The book lies in a folder of its own, where pages keep their places, so that their links hold. Other files that a page shows or names are copied beside it.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::page_links::resolve;
use super::page_text::PageText;
use crate::cargo::run_to_end;
use crate::finding::Finding;

const SUMMARY: &str = "docs/SUMMARY.md";
const BOOK: &str = include_str!("book.toml");
const INSTALL: &str = "cargo install mdbook --locked";
/// Pages that are about the repository, not about the product.
const NOT_IN_BOOK: &[&str] = &["bench/", "crates/", "fuzz/", "packaging/", "deploy/", SUMMARY];

/// Choice of the program.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The program mdBook; `cargo install mdbook --locked` makes it
    #[arg(long, default_value = "mdbook")]
    mdbook: PathBuf,
}

/// Pages that the summary does not list. A row that leads to no page is a dead link, which the other check finds.
pub fn find(pages: &[PageText]) -> Vec<Finding> {
    let listed: BTreeSet<String> = listed(pages).into_iter().collect();
    let is_missing =
        |page: &&PageText| !listed.contains(&page.path) && !NOT_IN_BOOK.iter().any(|begin| page.path.starts_with(begin));
    pages
        .iter()
        .filter(is_missing)
        .map(|page| Finding::new(&page.path, 1, format!("{SUMMARY} does not list this page")))
        .collect()
}

fn listed(pages: &[PageText]) -> Vec<String> {
    let summary = pages.iter().find(|page| page.path == SUMMARY);
    let lines = summary.into_iter().flat_map(|page| &page.lines);
    lines.filter_map(|(_, line)| resolve(SUMMARY, line.split_once("](")?.1.split([')', '#']).next()?)).collect()
}

pub fn build(arguments: &Arguments, root: &Path, place: &Path, pages: &[PageText]) -> Result<()> {
    let version = Command::new(&arguments.mdbook).arg("--version").output();
    if !version.is_ok_and(|said| said.status.success()) {
        bail!("{} does not run; install it by: {INSTALL}", arguments.mdbook.display());
    }
    let source = place.join("src");
    if source.exists() {
        fs::remove_dir_all(&source).with_context(|| format!("cannot remove {}", source.display()))?;
    }
    for path in files(root, pages) {
        let to = source.join(&path);
        let folder = to.parent().context("a file lies in a folder")?;
        fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
        fs::copy(root.join(&path), &to).with_context(|| format!("cannot copy {path} to {}", to.display()))?;
    }
    let summary = fs::read_to_string(root.join(SUMMARY)).with_context(|| format!("cannot read {SUMMARY}"))?;
    fs::write(source.join("SUMMARY.md"), from_root(&summary))?;
    fs::write(place.join("book.toml"), BOOK)?;
    run_to_end(Command::new(&arguments.mdbook).arg("build").arg(place))?;
    // mdBook makes the first page of README.md, and leaves links to it as they were.
    let (index, readme) = (place.join("book/index.html"), place.join("book/README.html"));
    fs::copy(&index, &readme).with_context(|| format!("cannot copy {} to {}", index.display(), readme.display()))?;
    println!("written: {}", index.display());
    Ok(())
}

/// Pages of the book, and all files that their links and pictures name.
fn files(root: &Path, pages: &[PageText]) -> BTreeSet<String> {
    let listed = listed(pages);
    let mut files: BTreeSet<String> = listed.iter().cloned().collect();
    for page in pages.iter().filter(|page| listed.contains(&page.path)) {
        for target in page.lines.iter().flat_map(|(_, line)| super::page_links::targets(line)) {
            let path = resolve(&page.path, target.split('#').next().unwrap_or_default());
            files.extend(path.filter(|path| root.join(path).is_file()));
        }
    }
    files
}

/// The summary lies in the folder of pages, and in the book above it.
fn from_root(summary: &str) -> String {
    summary
        .lines()
        .map(|line| match line.split_once("](") {
            Some((title, rest)) => {
                let (target, rest) = rest.split_once(')').unwrap_or((rest, ""));
                format!("{title}]({}){rest}\n", resolve(SUMMARY, target).unwrap_or_default())
            }
            None => format!("{line}\n"),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_that_is_not_listed_is_found() {
        let pages = [
            PageText::new(SUMMARY, "# Summary\n- [A](a.md)\n  - [R](../README.md)\n"),
            PageText::new("docs/a.md", ""),
            PageText::new("docs/b.md", ""),
            PageText::new("README.md", ""),
            PageText::new("bench/README.md", ""),
        ];
        let found = find(&pages);
        assert_eq!(found.iter().map(|finding| finding.path.as_str()).collect::<Vec<_>>(), ["docs/b.md"]);
        assert_eq!(from_root("- [A](a.md)\n- [R](../README.md)\n# X\n"), "- [A](docs/a.md)\n- [R](README.md)\n# X\n");
    }
}
