//! Comments: how they begin, and how many words they have.

/// Beginnings of a comment whose subject is no noun.
const WITHOUT_NOUN: &[&str] = &[
    "The same", "One that", "One of", "Those", "Of whom", "It ", "They ", "This ", "That ", "These ", "Some ", "Others ", "Who ",
    "What ", "Whom ", "Whose ", "Which ", "So does", "So is", "There ",
];

/// Comments of product code.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Comments {
    /// Runs of lines that are comments.
    pub blocks: usize,
    pub without_noun: usize,
    pub words: usize,
}

impl Comments {
    /// Counts those of one file.
    pub fn add(&mut self, lines: &[String]) {
        let mut is_inside = false;
        for line in lines {
            let text = comment_of(line);
            if let Some(text) = text {
                self.words += text.split_whitespace().count();
                if !is_inside {
                    self.blocks += 1;
                    self.without_noun += usize::from(WITHOUT_NOUN.iter().any(|start| text.starts_with(start)));
                }
            }
            is_inside = text.is_some();
        }
    }
}

/// The text of a line that is a comment.
fn comment_of(line: &str) -> Option<&str> {
    let text = line.trim_start().strip_prefix("//")?;
    Some(text.trim_start_matches(['/', '!']).trim_start())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_counted_by_their_beginning() {
        let text = "//! A file.\n//!\n//! It has more.\nfn f() {\n    // It is new.\n    // The same.\n    g(); // behind code\n    // So it is.\n}\n";
        let mut comments = Comments::default();
        comments.add(&text.lines().map(str::to_owned).collect::<Vec<_>>());
        assert_eq!(comments, Comments { blocks: 3, without_noun: 1, words: 13 });
    }
}
