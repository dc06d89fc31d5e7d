//! A page of Markdown as lines of text and fenced blocks, as far as the checks must know it.

use std::collections::BTreeMap;

/// A page, by its path from the workspace's folder.
pub struct PageText {
    pub path: String,
    /// Lines outside of blocks with their numbers; code spans are as they stand.
    pub lines: Vec<(usize, String)>,
    pub blocks: Vec<CodeBlock>,
    /// Anchors of headings, as GitHub and mdBook make them.
    pub anchors: Vec<String>,
}

pub struct CodeBlock {
    /// Number of its first line.
    pub line: usize,
    pub language: String,
    pub lines: Vec<String>,
}

impl PageText {
    pub fn new(path: &str, text: &str) -> PageText {
        let mut page = PageText { path: path.to_owned(), lines: Vec::new(), blocks: Vec::new(), anchors: Vec::new() };
        let mut headings = BTreeMap::<String, usize>::new();
        let mut open: Option<(String, CodeBlock)> = None;
        for (index, line) in text.lines().enumerate() {
            let number = index + 1;
            let fence: String = line.trim_start().chars().take_while(|c| *c == '`').collect();
            match &mut open {
                Some((end, _)) if fence.len() >= end.len() && line.trim() == fence => {
                    page.blocks.extend(open.take().map(|(_, block)| block));
                }
                Some((_, block)) => block.lines.push(line.trim_start().to_owned()),
                None if fence.len() >= 3 => {
                    let language = line.trim_start().trim_start_matches('`').trim().to_owned();
                    open = Some((fence, CodeBlock { line: number + 1, language, lines: Vec::new() }));
                }
                None => {
                    if let Some(heading) = heading(line) {
                        let anchor = anchor(heading);
                        let seen = headings.entry(anchor.clone()).or_insert(0);
                        page.anchors.push(if *seen == 0 { anchor } else { format!("{anchor}-{seen}") });
                        *seen += 1;
                    }
                    page.lines.push((number, line.to_owned()));
                }
            }
        }
        page.blocks.extend(open.map(|(_, block)| block));
        page
    }
}

fn heading(line: &str) -> Option<&str> {
    let text = line.trim_start_matches('#');
    let depth = line.len() - text.len();
    (1..=6).contains(&depth).then_some(text).filter(|text| text.starts_with(' ')).map(str::trim)
}

/// Letters, digits, `-` and `_` in lower case, with `-` for each space.
fn anchor(heading: &str) -> String {
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.flat_map(char::to_lowercase).map(|c| if c == ' ' { '-' } else { c }).collect()
}

/// The text with blanks in place of its code spans, and the code spans.
pub fn without_code(line: &str) -> (String, Vec<&str>) {
    let (mut text, mut spans, mut rest) = (String::new(), Vec::new(), line);
    while let Some(begin) = rest.find('`') {
        let ticks = rest[begin..].len() - rest[begin..].trim_start_matches('`').len();
        let inner = &rest[begin + ticks..];
        let Some(length) = inner.find(&"`".repeat(ticks)) else { break };
        text.push_str(&rest[..begin]);
        text.push(' ');
        spans.push(&inner[..length]);
        rest = &inner[length + ticks..];
    }
    text.push_str(rest);
    (text, spans)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_and_headings_are_told_from_text() {
        let page = PageText::new(
            "p.md",
            "# A `b` c, d\ntext\n  ```sh\n  # no heading\n  ```\n## A b c d\n#no\n````md\n```\n````\nend\n",
        );
        assert_eq!(page.anchors, ["a-b-c-d", "a-b-c-d-1"]);
        assert_eq!(page.blocks.len(), 2);
        assert_eq!((page.blocks[0].line, page.blocks[0].language.as_str()), (4, "sh"));
        assert_eq!((&page.blocks[0].lines[..], &page.blocks[1].lines[..]), (&["# no heading".into()][..], &["```".into()][..]));
        assert_eq!(page.lines.last().unwrap(), &(11, "end".to_owned()));
    }

    #[test]
    fn code_spans_are_cut_out() {
        assert_eq!(without_code("a `b [c](d)` e ``f ` g`` h"), ("a   e   h".into(), vec!["b [c](d)", "f ` g"]));
        assert_eq!(without_code("a ` b"), ("a ` b".into(), vec![]));
    }
}
