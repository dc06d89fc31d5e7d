//! `synchronous_standby_names`, and the standbys to ask for every acknowledged commit.
//!
//! Grammar: PostgreSQL's syncrep_gram.y and syncrep_scanner.l. `FIRST k` counts like `ANY k`: the first k standbys at the time of a commit
//! are unknown.

use std::collections::BTreeSet;

use super::ballot::NodeId;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SyncRule {
    pub acks: usize,
    /// `*` matches any.
    pub names: Vec<String>,
}

/// Nodes that may have acknowledged a commit; `acks` of them had to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CommitAcknowledgers {
    pub acks: usize,
    pub nodes: BTreeSet<NodeId>,
    /// Names of no known node: such a standby may have acknowledged, and cannot be asked.
    pub strangers: usize,
}

#[derive(Debug, PartialEq)]
enum SyncrepToken {
    Name(String),
    Number(String),
    Any,
    First,
    Comma,
    Open,
    Close,
}

/// True if a standby with this name may acknowledge commits; an unreadable setting may name any.
pub fn may_acknowledge(text: &str, application_name: &str) -> bool {
    let is_named = |name: &String| name == "*" || name.eq_ignore_ascii_case(application_name);
    match parse(text) {
        Ok(rule) => rule.is_some_and(|rule| rule.names.iter().any(is_named)),
        Err(_) => true,
    }
}

/// `Ok(None)`: no standby acknowledges. Error: PostgreSQL refuses the setting.
pub fn parse(text: &str) -> Result<Option<SyncRule>, &'static str> {
    if text.is_empty() {
        return Ok(None);
    }
    let tokens = scan(text)?;
    let (acks, list) = match tokens.as_slice() {
        [
            SyncrepToken::Any | SyncrepToken::First,
            SyncrepToken::Number(acks),
            SyncrepToken::Open,
            list @ ..,
            SyncrepToken::Close,
        ]
        | [SyncrepToken::Number(acks), SyncrepToken::Open, list @ .., SyncrepToken::Close] => {
            (acks.parse().map_err(|_| "number of standbys too large")?, list)
        }
        list => (1, list),
    };
    if acks == 0 {
        return Err("number of synchronous standbys must be greater than zero");
    }
    let mut names = Vec::new();
    for (at, token) in list.iter().enumerate() {
        match token {
            SyncrepToken::Name(name) | SyncrepToken::Number(name) if at % 2 == 0 => names.push(name.clone()),
            SyncrepToken::Comma if at % 2 == 1 => {}
            _ => return Err("syntax error"),
        }
    }
    if list.len() % 2 == 0 {
        return Err("syntax error");
    }
    Ok(Some(SyncRule { acks, names }))
}

fn scan(text: &str) -> Result<Vec<SyncrepToken>, &'static str> {
    let is_start = |c: char| c.is_ascii_alphabetic() || c == '_' || !c.is_ascii();
    let is_inside = |c: char| is_start(c) || c.is_ascii_digit() || c == '$';
    let mut tokens = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let length = match first {
            ' ' | '\t' | '\n' | '\r' | '\x0b' | '\x0c' => {
                rest = &rest[1..];
                continue;
            }
            '"' => {
                let (name, length) = quoted(rest)?;
                tokens.push(SyncrepToken::Name(name));
                length
            }
            ',' | '(' | ')' | '*' => {
                tokens.push(match first {
                    ',' => SyncrepToken::Comma,
                    '(' => SyncrepToken::Open,
                    ')' => SyncrepToken::Close,
                    _ => SyncrepToken::Name("*".into()),
                });
                1
            }
            c if c.is_ascii_digit() => {
                let length = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
                tokens.push(SyncrepToken::Number(rest[..length].into()));
                length
            }
            c if is_start(c) => {
                let length = rest.find(|c: char| !is_inside(c)).unwrap_or(rest.len());
                tokens.push(match &rest[..length] {
                    word if word.eq_ignore_ascii_case("any") => SyncrepToken::Any,
                    word if word.eq_ignore_ascii_case("first") => SyncrepToken::First,
                    word => SyncrepToken::Name(word.into()),
                });
                length
            }
            _ => return Err("syntax error"),
        };
        rest = &rest[length..];
    }
    Ok(tokens)
}

fn quoted(text: &str) -> Result<(String, usize), &'static str> {
    let mut name = String::new();
    let mut at = 1;
    loop {
        let end = text[at..].find('"').ok_or("unterminated quoted string")?;
        name.push_str(&text[at..at + end]);
        at += end + 1;
        if !text[at..].starts_with('"') {
            return Ok((name, at));
        }
        name.push('"');
        at += 1;
    }
}

impl SyncRule {
    /// Names compare without regard to case, as in PostgreSQL.
    pub fn acknowledgers(&self, nodes: &[(NodeId, &str)], primary: NodeId) -> CommitAcknowledgers {
        let mut found = CommitAcknowledgers { acks: self.acks, nodes: BTreeSet::new(), strangers: 0 };
        let mut seen: Vec<&str> = Vec::new();
        for name in &self.names {
            if seen.iter().any(|known| known.eq_ignore_ascii_case(name)) {
                continue;
            }
            seen.push(name);
            let is_it = |(_, of): &&(NodeId, &str)| name == "*" || of.eq_ignore_ascii_case(name);
            let before = found.nodes.len();
            found.nodes.extend(nodes.iter().filter(is_it).map(|(id, _)| *id).filter(|id| *id != primary));
            let is_primary = nodes.iter().filter(is_it).any(|(id, _)| *id == primary);
            if found.nodes.len() == before && !is_primary && name != "*" {
                found.strangers += 1;
            }
        }
        found
    }
}

impl CommitAcknowledgers {
    /// True if `cut_off` contains every acknowledged commit, and the rest is too small to acknowledge one: R + W > N.
    pub fn are_covered_by(&self, cut_off: &BTreeSet<NodeId>) -> bool {
        let asked = self.nodes.intersection(cut_off).count();
        asked > 0 && asked + self.acks > self.nodes.len() + self.strangers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_setting_is_read_as_postgresql_reads_it() {
        type Read = Result<(usize, &'static [&'static str]), &'static str>;
        let cases: &[(&str, Read)] = &[
            ("a", Ok((1, &["a"]))),
            ("a, b ,c", Ok((1, &["a", "b", "c"]))),
            ("*", Ok((1, &["*"]))),
            ("2 (a, b)", Ok((2, &["a", "b"]))),
            ("FIRST 2 (a,b,c)", Ok((2, &["a", "b", "c"]))),
            ("any 1(node_1, 2, \"any\")", Ok((1, &["node_1", "2", "any"]))),
            ("\"say \"\"hi\"\"\"", Ok((1, &["say \"hi\""]))),
            ("12", Ok((1, &["12"]))),
            ("\u{e9}t\u{e9}$1", Ok((1, &["\u{e9}t\u{e9}$1"]))),
            ("ANY 5 (a)", Ok((5, &["a"]))),
            (" ", Err("syntax error")),
            ("a b", Err("syntax error")),
            ("a,", Err("syntax error")),
            ("ANY (a)", Err("syntax error")),
            ("ANY 1 ()", Err("syntax error")),
            ("first", Err("syntax error")),
            ("0 (a)", Err("number of synchronous standbys must be greater than zero")),
            ("\"a", Err("unterminated quoted string")),
            ("a-b", Err("syntax error")),
        ];
        for (text, expected) in cases {
            let read = parse(text);
            let wanted =
                expected.map(|(acks, names)| Some(SyncRule { acks, names: names.iter().map(|name| name.to_string()).collect() }));
            assert_eq!(read, wanted, "{text}");
        }
        assert_eq!(parse(""), Ok(None));
    }

    #[test]
    fn enough_are_asked_when_every_acknowledgement_and_every_new_one_needs_one_of_them() {
        let nodes = [(0, "zero"), (1, "one"), (2, "two"), (3, "three")];
        let cases: &[(&str, &[NodeId], bool)] = &[
            ("ANY 1 (one, two)", &[1], false),
            ("ANY 1 (one, two)", &[1, 2], true),
            ("ANY 2 (one, two)", &[2], true),
            ("FIRST 1 (one, two)", &[1], false),
            ("ANY 2 (one, two, three)", &[1, 3], true),
            ("ANY 2 (one, two, three)", &[3], false),
            ("ANY 1 (one, stranger)", &[1], false),
            ("one", &[2, 3], false),
            ("ONE", &[1], true),
            ("one, one", &[1], true),
            ("zero, one", &[1], true),
            ("*", &[1, 2], false),
            ("*", &[1, 2, 3], true),
            ("ANY 3 (one)", &[], false),
        ];
        for (rule, cut_off, expected) in cases {
            let who = parse(rule).unwrap().unwrap().acknowledgers(&nodes, 0);
            assert_eq!(who.are_covered_by(&cut_off.iter().copied().collect()), *expected, "{rule} {cut_off:?}");
        }
    }

    #[test]
    fn names_of_the_setting_and_a_star_may_acknowledge() {
        for (text, expected) in
            [("a", true), ("ANY 1 (b, A)", true), ("*", true), ("b, *", true), ("b", false), ("", false), ("a b", true)]
        {
            assert_eq!(may_acknowledge(text, "a"), expected, "{text}");
        }
    }
}
