//! The operator's preferences for nodes, by application, database and user.

use crate::pattern::whole_pattern;
use regex::Regex;
use weir_sql::facts::RoutingHint;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadTarget {
    Primary,
    /// Any standby that takes reads.
    Standby,
    Node(u16),
}

impl ReadTarget {
    /// Returns the target of a hint; `None` if without target or unknown.
    pub fn of_hint(hint: RoutingHint) -> Option<ReadTarget> {
        match hint {
            RoutingHint::None | RoutingHint::Unknown => None,
            RoutingHint::Primary => Some(ReadTarget::Primary),
            RoutingHint::Standby => Some(ReadTarget::Standby),
            RoutingHint::Node(node) => Some(ReadTarget::Node(node)),
        }
    }
}

/// An entry of a list: names, and their preferred node.
#[derive(Clone, Debug)]
pub struct RedirectPreference {
    /// Matches whole names.
    pub pattern: Regex,
    pub read_target: ReadTarget,
    /// Share of the reads, in units of 1 / (2^32 - 1).
    pub share: u32,
}

/// A fault in a list, by the operator.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RedirectError {
    #[error("entry \"{0}\" has no colon between its pattern and its node")]
    NoColon(String),
    #[error("entry \"{entry}\": \"{node}\" is neither a node's number nor primary nor standby")]
    BadNode { entry: String, node: String },
    #[error("entry \"{entry}\": ratio \"{ratio}\" is no number from 0 to 1")]
    BadRatio { entry: String, ratio: String },
    #[error("entry \"{entry}\": invalid regular expression: {cause}")]
    BadPattern { entry: String, cause: String },
    #[error("entry \"{entry}\": there is no node {node}")]
    NoNode { entry: String, node: u16 },
}

/// Reads `pattern:node(ratio)`, separated by commas; `\,` is a comma of a pattern.
pub fn read_redirects(text: &str) -> Result<Vec<RedirectPreference>, RedirectError> {
    entries(text).iter().map(|entry| read_redirect(entry)).collect()
}

/// Reports the first entry with a missing node.
pub fn check_nodes(text: &str, is_there: impl Fn(u16) -> bool) -> Result<(), RedirectError> {
    for entry in entries(text) {
        if let ReadTarget::Node(node) = read_redirect(&entry)?.read_target
            && !is_there(node)
        {
            return Err(RedirectError::NoNode { entry, node });
        }
    }
    Ok(())
}

fn entries(text: &str) -> Vec<String> {
    const ESCAPED: &str = "\u{0}";
    let split = text.replace("\\,", ESCAPED);
    let entries = split.split(',').map(|entry| entry.trim().replace(ESCAPED, ","));
    entries.filter(|entry| !entry.is_empty()).collect()
}

fn read_redirect(entry: &str) -> Result<RedirectPreference, RedirectError> {
    // The last colon: a pattern may contain others.
    let (pattern, place) = entry.rsplit_once(':').ok_or_else(|| RedirectError::NoColon(entry.into()))?;
    let (node, ratio) = match place.split_once('(') {
        Some((node, ratio)) => (node.trim(), Some(ratio.trim())),
        None => (place.trim(), None),
    };
    let read_target = match node {
        word if word.eq_ignore_ascii_case("primary") => ReadTarget::Primary,
        word if word.eq_ignore_ascii_case("standby") => ReadTarget::Standby,
        number => number
            .parse()
            .map(ReadTarget::Node)
            .map_err(|_| RedirectError::BadNode { entry: entry.into(), node: number.into() })?,
    };
    let bad_ratio = |ratio: &str| RedirectError::BadRatio { entry: entry.into(), ratio: ratio.trim_end_matches(')').into() };
    let share = match ratio {
        None => 1.0,
        Some(text) => {
            let number = text.strip_suffix(')').and_then(|number| number.trim().parse::<f64>().ok());
            number.filter(|number| (0.0..=1.0).contains(number)).ok_or_else(|| bad_ratio(text))?
        }
    };
    let wrong = |cause: regex::Error| RedirectError::BadPattern {
        entry: entry.into(),
        cause: cause.to_string().lines().last().unwrap_or_default().trim_start_matches("error: ").into(),
    };
    // Within 0 and 2^32 - 1: the cast is exact enough.
    Ok(RedirectPreference {
        pattern: whole_pattern(pattern.trim()).map_err(wrong)?,
        read_target,
        share: (share * f64::from(u32::MAX)) as u32,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_with_a_list_is_said_with_its_entry() {
        for (list, expected) in [
            ("a:1,b", "entry \"b\" has no colon between its pattern and its node"),
            ("a:first", "entry \"a:first\": \"first\" is neither a node's number nor primary nor standby"),
            ("a:-1", "entry \"a:-1\": \"-1\" is neither a node's number nor primary nor standby"),
            ("a:", "entry \"a:\": \"\" is neither a node's number nor primary nor standby"),
            ("a:1(1.5)", "entry \"a:1(1.5)\": ratio \"1.5\" is no number from 0 to 1"),
            ("a:1(0.5", "entry \"a:1(0.5\": ratio \"0.5\" is no number from 0 to 1"),
            ("a:1(x)", "entry \"a:1(x)\": ratio \"x\" is no number from 0 to 1"),
            ("a(:1", "entry \"a(:1\": invalid regular expression: unclosed group"),
        ] {
            assert_eq!(read_redirects(list).unwrap_err().to_string(), expected, "{list}");
        }
    }
}
