//! Regular expressions of the configuration.

use regex::{Regex, RegexBuilder, RegexSet, RegexSetBuilder};

/// Memory limit of a compiled pattern.
const PATTERN_BYTES_MAX: usize = 1 << 20;
/// Memory limit of a list's patterns.
const LIST_BYTES_MAX: usize = 256 << 20;

/// Patterns that match whole texts without case, in one automaton: a text is scanned once for all of them.
#[derive(Debug, Clone, Default)]
pub struct PatternSet(RegexSet);

#[derive(Debug)]
pub struct BadPattern {
    pub pattern: String,
    pub cause: regex::Error,
}

impl PatternSet {
    pub fn new(patterns: &[String]) -> Result<PatternSet, BadPattern> {
        let limit_bytes = PATTERN_BYTES_MAX.saturating_mul(patterns.len().max(1)).min(LIST_BYTES_MAX);
        // Alone first: "a)|(b" must not become valid by added parentheses.
        let alone = RegexSetBuilder::new(patterns).size_limit(limit_bytes).build().map(drop);
        let whole = patterns.iter().map(|pattern| whole(pattern));
        let set = RegexSetBuilder::new(whole).case_insensitive(true).dot_matches_new_line(true).size_limit(limit_bytes).build();
        match alone.and(set) {
            Ok(set) => Ok(PatternSet(set)),
            Err(of_list) => Err(worst(patterns, of_list)),
        }
    }

    pub fn is_match(&self, text: &str) -> bool {
        !self.0.is_empty() && self.0.is_match(text)
    }

    /// The first pattern that fits, as the operator wrote it.
    pub fn first_match(&self, text: &str) -> Option<&str> {
        let at = self.0.matches(text).iter().next()?;
        self.0.patterns()[at].strip_prefix(WHOLE_BEGIN)?.strip_suffix(WHOLE_END)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }
}

impl PartialEq for PatternSet {
    fn eq(&self, other: &PatternSet) -> bool {
        self.0.patterns() == other.0.patterns()
    }
}

/// Returns the first pattern invalid by itself; if none is, the last one, for a list that is too large.
fn worst(patterns: &[String], of_list: regex::Error) -> BadPattern {
    let alone = |pattern: &String| whole_pattern(pattern).err().map(|cause| BadPattern { pattern: pattern.clone(), cause });
    let last = || BadPattern { pattern: patterns.last().cloned().unwrap_or_default(), cause: of_list };
    patterns.iter().find_map(alone).unwrap_or_else(last)
}

const WHOLE_BEGIN: &str = "^(?:";
const WHOLE_END: &str = ")$";

fn whole(pattern: &str) -> String {
    format!("{WHOLE_BEGIN}{pattern}{WHOLE_END}")
}

/// Compiles a pattern for whole texts, without case.
pub(crate) fn whole_pattern(pattern: &str) -> Result<Regex, regex::Error> {
    // Alone first, as for a list.
    RegexBuilder::new(pattern).size_limit(PATTERN_BYTES_MAX).build()?;
    RegexBuilder::new(&whole(pattern)).case_insensitive(true).dot_matches_new_line(true).size_limit(PATTERN_BYTES_MAX).build()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(patterns: &[&str]) -> Result<PatternSet, BadPattern> {
        PatternSet::new(&patterns.iter().map(ToString::to_string).collect::<Vec<_>>())
    }

    #[test]
    fn lists_of_the_same_patterns_are_equal() {
        let of = |patterns: &[&str]| list(patterns).unwrap();
        assert!(of(&["a", "b.*"]) == of(&["a", "b.*"]) && of(&[]) == PatternSet::default());
        assert!(of(&["a"]) != of(&["b"]) && of(&["a"]) != of(&["a", "b"]));
    }

    #[test]
    fn the_pattern_that_fits_is_told_as_it_was_written() {
        let set = list(&["select 1", "a|select [23]", "select .*"]).unwrap();
        for (text, expected) in [("SELECT 3", Some("a|select [23]")), ("select 1", Some("select 1")), ("insert", None)] {
            assert_eq!(set.first_match(text), expected, "{text}");
        }
    }

    #[test]
    fn the_pattern_that_is_wrong_is_named_wherever_it_stands() {
        for (patterns, bad) in
            [(&["a", "b(", "c"][..], "b("), (&["a)|(b"], "a)|(b"), (&["a", ".{1000}.{1000}.{1000}"], ".{1000}.{1000}.{1000}")]
        {
            assert_eq!(list(patterns).err().map(|bad| bad.pattern).as_deref(), Some(bad));
        }
        assert!(!list(&[]).unwrap().is_match(""), "an empty list has nothing to match");
    }

    #[test]
    fn many_patterns_are_one_automaton() {
        let patterns: Vec<String> = (0..20_000).map(|number| format!("select {number} from t.*")).collect();
        let all = PatternSet::new(&patterns).unwrap();
        assert!(all.is_match("SELECT 19999 FROM t\nWHERE a = 1") && !all.is_match("select 20000 from t"));
        assert_eq!(all.len(), 20_000);
    }
}
