//! Regular expressions of the configuration.

use regex::{Regex, RegexBuilder};

/// Memory one compiled pattern may take; a longer one is refused instead of eating memory.
const PATTERN_BYTES_MAX: usize = 1 << 20;

/// Compiles a pattern that must match a text from its first to its last character, small and capital letters alike.
pub(crate) fn whole_pattern(pattern: &str) -> Result<Regex, regex::Error> {
    // Alone first: "a)|(b" must not become valid by the parentheses put around it.
    RegexBuilder::new(pattern).size_limit(PATTERN_BYTES_MAX).build()?;
    RegexBuilder::new(&format!("^(?:{pattern})$"))
        .case_insensitive(true)
        .dot_matches_new_line(true)
        .size_limit(PATTERN_BYTES_MAX)
        .build()
}
