//! Escapes in commands as in Pgpool, including blanks on which scripts depend. Source: `trigger_failover_command` in Pgpool's
//! pgpool_main.c.

use super::ballot::NodeId;
use super::rules::{FailoverRules, NodeRules};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommandEscapes {
    pub node: NodeId,
    /// `None`: no node is left.
    pub new_main: Option<NodeId>,
    pub old_main: Option<NodeId>,
    pub old_primary: Option<NodeId>,
}

/// Leaves out unknown escapes.
pub fn expand(text: &str, rules: &FailoverRules, of: &CommandEscapes) -> String {
    let mut line = String::new();
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c != '%' {
            line.push(c);
            continue;
        }
        let Some(escape) = chars.next() else { break };
        let node = rules.node(of.node);
        let new = of.new_main.and_then(|id| rules.node(id));
        let old = of.old_primary.and_then(|id| rules.node(id));
        let word = match escape {
            'p' => format!(" {}", node.map_or(0, |node| node.address.port)),
            'D' => directory(node),
            'd' => format!(" {}", of.node),
            'h' => hostname(node),
            'H' => hostname(new),
            'm' => format!(" {}", number(of.new_main)),
            'r' => port(new),
            'R' => directory(new),
            'M' => number(of.old_main),
            'P' => number(of.old_primary),
            'N' => hostname(old),
            'S' => port(old),
            '%' => "%".into(),
            _ => String::new(),
        };
        line.push_str(&word);
    }
    line
}

fn hostname(node: Option<&NodeRules>) -> String {
    node.map_or("\"\"".into(), |node| node.address.hostname.clone())
}

fn directory(node: Option<&NodeRules>) -> String {
    node.map_or("\"\"".into(), |node| node.address.data_directory.clone())
}

fn port(node: Option<&NodeRules>) -> String {
    node.map_or("\"\"".into(), |node| node.address.port.to_string())
}

fn number(id: Option<NodeId>) -> String {
    id.map_or("-1".into(), |id| id.to_string())
}

#[cfg(test)]
mod tests {
    use super::super::rules::tests::rules;
    use super::*;

    #[test]
    fn escapes_are_expanded_as_pgpool_does() {
        let rules = rules(3);
        let of = CommandEscapes { node: 0, new_main: Some(2), old_main: Some(0), old_primary: Some(0) };
        let none = CommandEscapes { node: 1, new_main: None, old_main: Some(0), old_primary: None };
        let cases = [
            ("f.sh %d %h %p %D", of, "f.sh  0 host0  5432 /data0"),
            ("f.sh %m %H %r %R", of, "f.sh  2 host2 5434 /data2"),
            ("f.sh %M %P %N %S", of, "f.sh 0 0 host0 5432"),
            ("f.sh %m %H %r %R %P %N %S", none, "f.sh  -1 \"\" \"\" \"\" -1 \"\" \"\""),
            ("100%% %x%", of, "100% "),
            ("", of, ""),
        ];
        for (text, of, expected) in cases {
            assert_eq!(expand(text, &rules, &of), expected, "{text}");
        }
    }
}
