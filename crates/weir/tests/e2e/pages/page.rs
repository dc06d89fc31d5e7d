//! Pages of `docs/`: the blocks that an operator copies from them.

use std::fs;
use std::path::{Path, PathBuf};

pub fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A page of `docs/`, as it stands.
pub fn page_text(name: &str) -> String {
    fs::read_to_string(repository().join("docs").join(name)).unwrap()
}

pub struct Page {
    name: &'static str,
    text: String,
}

impl Page {
    pub fn read(name: &'static str) -> Page {
        Page { name, text: page_text(name) }
    }

    /// The fenced blocks of this language (empty: of none) under a heading, up to the next heading, as they stand.
    pub fn blocks(&self, heading: &str, language: &str) -> Vec<String> {
        let mut blocks = Vec::new();
        let mut is_under = false;
        let mut open: Option<(usize, bool, String)> = None;
        for line in self.text.lines() {
            let indented = line.len() - line.trim_start().len();
            match (&mut open, line.trim_start().strip_prefix("```")) {
                (None, Some(of)) => open = Some((indented, is_under && of == language, String::new())),
                (None, None) if line.starts_with('#') => is_under = line.trim_start_matches('#').trim() == heading,
                (None, None) => {}
                (Some(_), Some(_)) => blocks.extend(open.take().filter(|(_, is_meant, _)| *is_meant).map(|(.., text)| text)),
                (Some((margin, _, text)), None) => {
                    text.push_str(line.get(*margin..).unwrap_or_default());
                    text.push('\n');
                }
            }
        }
        assert!(!blocks.is_empty(), "{} has no block of \"{language}\" under \"{heading}\"", self.name);
        blocks
    }

    /// The only one of them.
    pub fn block(&self, heading: &str, language: &str) -> String {
        let mut blocks = self.blocks(heading, language);
        assert_eq!(blocks.len(), 1, "{}: blocks of \"{language}\" under \"{heading}\"", self.name);
        blocks.remove(0)
    }

    /// Words that the page says somewhere, for what stands in a line of text.
    pub fn says<'w>(&self, words: &'w str) -> &'w str {
        assert!(self.text.contains(words), "{} does not say: {words}", self.name);
        words
    }
}

/// The block with other hosts, ports and paths. Each of them must be in it.
pub fn with(block: &str, others: &[(&str, &str)]) -> String {
    others.iter().fold(block.to_owned(), |block, (from, to)| {
        assert!(block.contains(from), "there is no {from} in:\n{block}");
        block.replace(from, to)
    })
}
