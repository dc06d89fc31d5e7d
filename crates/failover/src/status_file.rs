//! `pgpool_status`, and the file of `health_check_test`.
//!
//! The file may keep a node out of use, never name the primary.

use std::collections::BTreeSet;

use super::ballot::NodeId;

/// Gaps in the node numbers are `unused`. `None`: all are down, which Pgpool-II does not write either.
pub fn show(nodes: impl Iterator<Item = (NodeId, bool)>) -> Option<String> {
    let mut lines: Vec<&str> = Vec::new();
    for (id, is_used) in nodes {
        lines.resize(usize::from(id).max(lines.len()), "unused");
        lines.push(if is_used { "up" } else { "down" });
    }
    lines.contains(&"up").then(|| lines.iter().map(|line| format!("{line}\n")).collect())
}

/// Returns nodes kept out of use; none if no node is up in the file.
pub fn parse(text: &str) -> BTreeSet<NodeId> {
    let is = |word: &'static str| move |line: &str| line.trim().eq_ignore_ascii_case(word);
    if !text.lines().any(is("up")) {
        return BTreeSet::new();
    }
    text.lines().zip(0..).filter(|(line, _)| is("down")(line)).map(|(_, id)| id).collect()
}

/// Reads `backend_down_request`: lines of a number, a tab and `down`.
pub fn parse_test(text: &str) -> BTreeSet<NodeId> {
    let read = |line: &str| {
        let (id, word) = line.split_once('\t')?;
        (word.trim() == "down").then(|| id.trim().parse().ok()).flatten()
    };
    text.lines().filter_map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_has_a_line_a_node_and_only_keeps_nodes_out() {
        assert_eq!(show([(0, true), (1, false), (3, true)].into_iter()).as_deref(), Some("up\ndown\nunused\nup\n"));
        assert_eq!(show([(0, false)].into_iter()), None);
        assert_eq!(parse("up\ndown\nunused\nDOWN\n"), [1, 3].into());
        assert_eq!(parse("down\ndown\n"), [].into(), "none up: ignored");
        assert_eq!(parse(""), [].into());
        assert_eq!(parse_test("1\tdown\n2\tup\nx\tdown\n0\tdown"), [0, 1].into());
    }
}
