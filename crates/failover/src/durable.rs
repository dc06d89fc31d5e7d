//! State that survives Weir, in a text file.
//!
//! | stored | before |
//! |---|---|
//! | term | the first pledge of an attempt: its number is never used twice |
//! | epoch, its vote, history | the first write to the primary |
//! | rule of synchronous standbys | the primary is gone; stored at each change |
//! | given up, fenced | the fence |
//! | detached | the operator is answered |
//! | down | in a group: others put the node out of use |
//! | told to promote | the order: who decides next may not hear of it |
//! | on a later timeline than one that is told | the order |
//! | promoted apart | given up with the decision; see `promoted_apart` |
//!
//! Looks find the rest: the servers' marks show how far an attempt went.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use super::ballot::{Ballot, Epoch, Mark, NodeId, Vote};
use super::history::{HistorySource, TimelineHistory};

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct DurableState {
    pub weir: u32,
    pub term: u64,
    pub epoch: Option<Epoch>,
    /// The deciding vote; `None`: the primary was found.
    pub vote: Option<Vote>,
    pub history: Option<TimelineHistory>,
    /// Last value seen on the primary.
    pub sync_names: Option<String>,
    /// The previous value, until a commit is acknowledged by the present one.
    pub sync_names_before: Option<String>,
    pub given_up: BTreeSet<NodeId>,
    /// Fences and their decisions, kept until a newer promise of the server prevents late orders.
    pub fenced: BTreeMap<NodeId, Ballot>,
    pub detached: BTreeSet<NodeId>,
    pub false_primaries: BTreeSet<NodeId>,
    /// In a group: out of use for all of its Weirs. A Weir alone has them in `pgpool_status`.
    pub down: BTreeSet<NodeId>,
    /// Told to promote themselves since the last decision.
    pub told: BTreeSet<NodeId>,
    /// Nodes on a later timeline than one of those, and its number: the promotion may begin another one of it.
    pub ahead: BTreeMap<NodeId, u32>,
    /// Promoted beside the primary, or maybe: not to be used until copied anew.
    pub apart: BTreeSet<NodeId>,
}

/// Marks a history that could not be read.
const ASSUMED: &str = " assumed";
const FORM: &str = "weir failover state 1";

impl DurableState {
    /// Lines of key and value, and a checksum against half-written files.
    pub fn show(&self) -> String {
        let mut text = format!("{FORM}\nweir {}\nterm {}\n", self.weir, self.term);
        if let Some(vote) = self.vote {
            let _ = writeln!(text, "vote {}", Mark { promised: vote.ballot, vote: Some(vote) }.show());
        }
        if let Some(Epoch { ballot, node, replaced }) = self.epoch {
            let replaced = replaced.map_or("-".to_string(), |id| id.to_string());
            let _ = writeln!(text, "epoch {} {} {node} {replaced}", ballot.term, ballot.weir);
        }
        if let Some(history) = &self.history {
            let switches: String = history.switches.iter().map(|(timeline, end)| format!(" {timeline}:{end}")).collect();
            let source = if history.source == HistorySource::Assumed { ASSUMED } else { "" };
            let _ = writeln!(text, "history {} {}{source}{switches}", history.system, history.timeline);
        }
        for (key, names) in [("sync", &self.sync_names), ("sync_before", &self.sync_names_before)] {
            if let Some(names) = names {
                let _ = writeln!(text, "{key} {}", names.replace('\\', "\\\\").replace('\n', "\\n"));
            }
        }
        for (key, ids) in self.sets() {
            let ids: String = ids.iter().map(|id| format!(" {id}")).collect();
            let _ = writeln!(text, "{key}{ids}");
        }
        for (id, timeline) in &self.ahead {
            let _ = writeln!(text, "ahead {id} {timeline}");
        }
        for (id, ballot) in &self.fenced {
            let _ = writeln!(text, "fenced {id} {} {}", ballot.term, ballot.weir);
        }
        let _ = writeln!(text, "sum {:x}", sum(&text));
        text
    }

    fn sets(&self) -> impl Iterator<Item = (&'static str, &BTreeSet<NodeId>)> {
        let always = [("given_up", &self.given_up), ("detached", &self.detached), ("false", &self.false_primaries)];
        let rare = [("down", &self.down), ("told", &self.told), ("apart", &self.apart)];
        always.into_iter().chain(rare.into_iter().filter(|(_, ids)| !ids.is_empty()))
    }

    /// `None`: the file is broken, and everything is found again.
    pub fn parse(text: &str) -> Option<DurableState> {
        let (body, last) = text.trim_end_matches('\n').rsplit_once('\n')?;
        let body = format!("{body}\n");
        if last != format!("sum {:x}", sum(&body)) || body.lines().next() != Some(FORM) {
            return None;
        }
        let mut read = DurableState::default();
        for line in body.lines().skip(1) {
            let (key, value) = line.split_once(' ').unwrap_or((line, ""));
            match key {
                "weir" => read.weir = value.parse().ok()?,
                "term" => read.term = value.parse().ok()?,
                "epoch" => read.epoch = Some(parse_epoch(value)?),
                "vote" => read.vote = Some(Mark::parse(value)?.vote?),
                "history" => read.history = Some(parse_history(value)?),
                "sync" => read.sync_names = Some(unescape(value)),
                "sync_before" => read.sync_names_before = Some(unescape(value)),
                "given_up" => read.given_up = parse_ids(value)?,
                "fenced" => read.fenced.extend([parse_fence(value)?]),
                "detached" => read.detached = parse_ids(value)?,
                "false" => read.false_primaries = parse_ids(value)?,
                "down" => read.down = parse_ids(value)?,
                "told" => read.told = parse_ids(value)?,
                "ahead" => read.ahead.extend([parse_ahead(value)?]),
                "apart" => read.apart = parse_ids(value)?,
                _ => return None,
            }
        }
        Some(read)
    }
}

/// FNV-1a, only to detect a torn file.
fn sum(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |sum, byte| (sum ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

fn unescape(text: &str) -> String {
    let mut plain = String::new();
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => plain.push(if chars.next() == Some('n') { '\n' } else { '\\' }),
            c => plain.push(c),
        }
    }
    plain
}

fn parse_epoch(value: &str) -> Option<Epoch> {
    let mut words = value.split(' ');
    let ballot = Ballot { term: words.next()?.parse().ok()?, weir: words.next()?.parse().ok()? };
    let node = words.next()?.parse().ok()?;
    let replaced = match words.next()? {
        "-" => None,
        id => Some(id.parse().ok()?),
    };
    Some(Epoch { ballot, node, replaced })
}

fn parse_fence(value: &str) -> Option<(NodeId, Ballot)> {
    let mut words = value.split(' ');
    let id = words.next()?.parse().ok()?;
    Some((id, Ballot { term: words.next()?.parse().ok()?, weir: words.next()?.parse().ok()? }))
}

fn parse_ahead(value: &str) -> Option<(NodeId, u32)> {
    let (id, timeline) = value.split_once(' ')?;
    Some((id.parse().ok()?, timeline.parse().ok()?))
}

fn parse_history(value: &str) -> Option<TimelineHistory> {
    let source = if value.contains(ASSUMED) { HistorySource::Assumed } else { HistorySource::Read };
    let value = value.replace(ASSUMED, "");
    let mut words = value.split(' ');
    let (system, timeline) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    let switches = words.map(|word| {
        let (timeline, end) = word.split_once(':')?;
        Some((timeline.parse().ok()?, end.parse().ok()?))
    });
    Some(TimelineHistory { system, timeline, switches: switches.collect::<Option<_>>()?, source })
}

fn parse_ids(value: &str) -> Option<BTreeSet<NodeId>> {
    value.split_whitespace().map(|id| id.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_read_as_it_was_written_and_a_torn_file_is_none() {
        let epoch = Epoch { ballot: Ballot { term: 4, weir: 9 }, node: 1, replaced: Some(0) };
        let full = DurableState {
            weir: 9,
            term: 7,
            epoch: Some(epoch),
            vote: Some(Vote { ballot: Ballot { term: 5, weir: 9 }, epoch, parent: Epoch::found(0) }),
            history: Some(TimelineHistory {
                system: 1 << 60,
                timeline: 2,
                switches: vec![(1, 0x300_0060)],
                source: HistorySource::Read,
            }),
            sync_names: Some("ANY 1 (\"a\\\n b\", c)".into()),
            sync_names_before: Some(String::new()),
            given_up: [0].into(),
            fenced: [(0, Ballot { term: 4, weir: 9 }), (3, Ballot::default())].into(),
            detached: BTreeSet::new(),
            false_primaries: [2].into(),
            down: [1, 4].into(),
            told: [3].into(),
            ahead: [(0, 2), (4, 3)].into(),
            apart: [2, 5].into(),
        };
        let mut assumed = full.clone();
        assumed.history.iter_mut().for_each(|history| history.source = HistorySource::Assumed);
        for state in [full.clone(), assumed, DurableState::default()] {
            let text = state.show();
            assert_eq!(DurableState::parse(&text), Some(state));
            for end in 0..text.len() - 1 {
                assert_eq!(text.get(..end).and_then(DurableState::parse), None, "cut at {end}");
            }
        }
        assert_eq!(DurableState::parse(&full.show().replace("term 7", "term 8")), None);
    }
}
