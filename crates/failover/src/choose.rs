//! The choice among standbys that were cut off.

use std::collections::BTreeSet;

use super::ballot::NodeId;
use super::event::Ms;
use super::history::Lsn;
use super::rules::{FailoverRules, SafetyRule};
use super::sync::CommitAcknowledgers;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PromotionCandidate {
    pub node: NodeId,
    pub position: Lsn,
    pub bar: PromotionBar,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PromotionBar {
    None,
    /// `backend_promote_priority` is 0.
    Priority,
    /// Detached, or being copied.
    OutOfUse,
    /// The standby receives a new timeline, and its newest WAL file lacks what the one before had: PostgreSQL reads the last record from
    /// the newest file at the end of recovery, and stops (`PANIC: invalid magic number 0000 in WAL segment`). Source:
    /// `XLogFileReadAnyTLI` in xlogrecovery.c.
    Torn,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SyncStandbyKnowledge {
    /// Never seen, or not readable.
    Unknown,
    /// No standby had to acknowledge.
    Asynchronous,
    Synchronous(Vec<CommitAcknowledgers>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChosenStandby {
    pub node: NodeId,
    pub position: Lsn,
}

/// Why no standby becomes the primary by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AttemptRefusal {
    NotByWeir,
    /// `backend_flag` of the primary.
    DisallowToFailover,
    AlwaysPrimary,
    /// `work_dir` cannot be written.
    NotStored,
    Quarantined,
    /// Most members of the group reach the primary.
    SeenByOthers,
    NoStandby,
    /// All eligible standbys are [`PromotionBar::Torn`].
    Torn {
        node: NodeId,
    },
    /// The log of the primary was never seen.
    HistoryUnknown,
    SyncUnknown,
    /// A standby not asked may know of more commits.
    TooFewAsked {
        asked: usize,
        acks: usize,
        of: usize,
    },
    TooFewPledged {
        pledged: usize,
        needed: usize,
        of: usize,
    },
    /// The primary is silent, and another Weir may still write to it.
    NotProvenDead,
    /// The best standby lacks this much.
    Lags {
        node: NodeId,
        bytes: u64,
    },
    /// Lacks log that the primary had this long before its last look.
    LagsTime {
        node: NodeId,
        ms: Ms,
    },
    /// The named node is barred and has more log than any eligible one.
    BarredHasMore {
        node: NodeId,
    },
    /// Another Weir has a newer attempt.
    Outrun,
    /// The primary failed before it was stopped.
    Failed {
        node: NodeId,
    },
    NotStreaming {
        node: NodeId,
    },
    NoPledge {
        node: NodeId,
    },
    NotStopped {
        node: NodeId,
    },
    LacksLog {
        node: NodeId,
    },
    /// The chosen node does not replay.
    NotReplayed {
        node: NodeId,
        bytes: u64,
    },
    NotPromoted {
        node: NodeId,
    },
}

impl SyncStandbyKnowledge {
    /// True if the nodes cut off know all acknowledged commits and can prevent new ones.
    pub fn is_covered_by(&self, cut_off: &BTreeSet<NodeId>) -> bool {
        match self {
            SyncStandbyKnowledge::Unknown | SyncStandbyKnowledge::Asynchronous => false,
            SyncStandbyKnowledge::Synchronous(all) => all.iter().all(|who| who.are_covered_by(cut_off)),
        }
    }
}

/// By most WAL, then priority, then lowest number. `samples`: looks at the primary, and its log's end.
pub fn choose(
    rules: &FailoverRules,
    sync: &SyncStandbyKnowledge,
    candidates: &[PromotionCandidate],
    samples: &[(Ms, Lsn)],
) -> Result<ChosenStandby, AttemptRefusal> {
    let asked: BTreeSet<NodeId> = candidates.iter().map(|candidate| candidate.node).collect();
    if let SyncStandbyKnowledge::Synchronous(all) = sync
        && rules.keeps(SafetyRule::ReadQuorum)
        && let Some(refusal) = too_few_asked(all, &asked)
    {
        return Err(refusal);
    }
    if *sync == SyncStandbyKnowledge::Unknown {
        return Err(AttemptRefusal::SyncUnknown);
    }
    let priority = |id: NodeId| rules.node(id).map_or(0, |node| node.priority);
    let allowed = candidates.iter().filter(|candidate| candidate.bar == PromotionBar::None);
    let best = if rules.keeps(SafetyRule::MostWal) {
        allowed.max_by_key(|candidate| (candidate.position, priority(candidate.node), std::cmp::Reverse(candidate.node)))
    } else {
        allowed.min_by_key(|candidate| candidate.node)
    };
    let Some(best) = best else {
        let torn = candidates.iter().find(|candidate| candidate.bar == PromotionBar::Torn);
        return Err(torn.map_or(AttemptRefusal::NoStandby, |torn| AttemptRefusal::Torn { node: torn.node }));
    };
    let choice = ChosenStandby { node: best.node, position: best.position };
    match sync {
        SyncStandbyKnowledge::Synchronous(all) => {
            let may_have_acknowledged = |id: &NodeId| all.iter().any(|who| who.nodes.contains(id));
            let more = |candidate: &&PromotionCandidate| {
                candidate.bar != PromotionBar::None
                    && candidate.position > best.position
                    && may_have_acknowledged(&candidate.node)
            };
            candidates.iter().find(more).map_or(Ok(choice), |barred| Err(AttemptRefusal::BarredHasMore { node: barred.node }))
        }
        SyncStandbyKnowledge::Asynchronous | SyncStandbyKnowledge::Unknown => {
            let node = best.node;
            let (bytes, ms) = lack(samples, best.position);
            match (rules.lag_bytes_max, rules.lag_ms_max) {
                (Some(most), _) if bytes > most => Err(AttemptRefusal::Lags { node, bytes }),
                (_, Some(most)) if ms > most => Err(AttemptRefusal::LagsTime { node, ms }),
                _ => Ok(choice),
            }
        }
    }
}

/// Returns the certain lack: bytes, and the time from the first to the last look that found more (0 for one look).
fn lack(samples: &[(Ms, Lsn)], position: Lsn) -> (u64, Ms) {
    let more = samples.iter().find(|(_, end)| *end > position);
    let (Some((since, _)), Some((last, end))) = (more, samples.last()) else { return (0, 0) };
    (end.saturating_sub(position), last.saturating_sub(*since))
}

/// R + W > N: a standby not asked may know of a commit that all others lack.
pub(super) fn too_few_asked(all: &[CommitAcknowledgers], asked: &BTreeSet<NodeId>) -> Option<AttemptRefusal> {
    let who = all.iter().find(|who| !who.are_covered_by(asked))?;
    let of = who.nodes.len() + who.strangers;
    Some(AttemptRefusal::TooFewAsked { asked: who.nodes.intersection(asked).count(), acks: who.acks, of })
}

impl AttemptRefusal {
    pub fn describe(&self) -> String {
        match self {
            AttemptRefusal::NotByWeir => "failover_mode leaves the choice to others".into(),
            AttemptRefusal::DisallowToFailover => "backend_flag of the primary is DISALLOW_TO_FAILOVER".into(),
            AttemptRefusal::AlwaysPrimary => "backend_flag of the primary is ALWAYS_PRIMARY".into(),
            AttemptRefusal::NotStored => {
                "work_dir cannot be written, and no failover is decided that is not stored: the log has the error".into()
            }
            AttemptRefusal::SeenByOthers => {
                "most proxies of the group reach the primary, this one does not (failover_require_consensus)".into()
            }
            AttemptRefusal::Quarantined => "standbys still hear the primary, this proxy does not".into(),
            AttemptRefusal::NoStandby => "no standby may be promoted".into(),
            AttemptRefusal::Torn { node } => {
                format!(
                    "node {node} has received its new primary's log in part and would stop at its promotion: the last primary must be started again"
                )
            }
            AttemptRefusal::HistoryUnknown => "the log of the primary was never seen".into(),
            AttemptRefusal::SyncUnknown => "synchronous_standby_names of the primary is not known".into(),
            AttemptRefusal::TooFewAsked { asked, acks, of } => {
                format!(
                    "{asked} of {of} synchronous standbys answer, and {acks} of them acknowledge a commit: the others may know of more"
                )
            }
            AttemptRefusal::TooFewPledged { of: 0, .. } => "there is no standby".into(),
            AttemptRefusal::TooFewPledged { pledged, needed, of } => {
                format!(
                    "{pledged} of {of} other nodes answer, {needed} must agree (failover_alone = on if no other proxy promotes)"
                )
            }
            AttemptRefusal::NotProvenDead => {
                "the primary is silent, and another proxy may still write to it (failover_alone = on if there is none)".into()
            }
            AttemptRefusal::Lags { node, bytes } => {
                format!("node {node} is the best and lacks {bytes} bytes, above failover_lag_max")
            }
            AttemptRefusal::LagsTime { node, ms } => {
                format!("node {node} is the best and lacks all of the last {ms} ms of the primary, above failover_lag_time_max")
            }
            AttemptRefusal::BarredHasMore { node } => format!("node {node} has more than any that may be promoted"),
            AttemptRefusal::Outrun => "another proxy has begun later".into(),
            AttemptRefusal::Failed { node } => format!("node {node} failed meanwhile"),
            AttemptRefusal::NotStreaming { node } => format!("node {node} does not stream from the primary"),
            AttemptRefusal::NoPledge { node } => format!("node {node} does not answer"),
            AttemptRefusal::NotStopped { node } => format!("node {node} could not be stopped cleanly"),
            AttemptRefusal::LacksLog { node } => format!("node {node} did not receive all of the log of the stopped primary"),
            AttemptRefusal::NotReplayed { node, bytes } => {
                format!("node {node} has not replayed {bytes} bytes of log that it has received")
            }
            AttemptRefusal::NotPromoted { node } => format!("node {node} did not become a primary in time"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::rules::tests::rules;
    use super::super::sync::parse;
    use super::*;

    /// `1@100` is node 1 with 100 bytes, `1@100!` is barred, `1@100~` is torn.
    fn candidates(text: &str) -> Vec<PromotionCandidate> {
        let parse = |word: &str| {
            let (node, position) = word.split_once('@').unwrap();
            let bar = match position.chars().last() {
                Some('!') => PromotionBar::Priority,
                Some('~') => PromotionBar::Torn,
                _ => PromotionBar::None,
            };
            PromotionCandidate {
                node: node.parse().unwrap(),
                position: position.trim_end_matches(['!', '~']).parse().unwrap(),
                bar,
            }
        };
        text.split_whitespace().map(parse).collect()
    }

    fn sync(names: &str) -> SyncStandbyKnowledge {
        let nodes = [(0, "n0"), (1, "n1"), (2, "n2"), (3, "n3")];
        match parse(names).unwrap() {
            None => SyncStandbyKnowledge::Asynchronous,
            Some(rule) => SyncStandbyKnowledge::Synchronous(vec![rule.acknowledgers(&nodes, 0)]),
        }
    }

    #[test]
    fn the_standby_with_most_is_chosen_if_it_has_everything() {
        let node = |node, position| Ok(ChosenStandby { node, position });
        let cases: &[(&str, &str, &str, Result<ChosenStandby, AttemptRefusal>)] = &[
            ("most WAL", "", "1@100 2@101 3@99", node(2, 101)),
            ("priority among equals", "", "1@100 2@100 3@100", node(3, 100)),
            ("not below", "", "1@101 2@100 3@100", node(1, 101)),
            ("never a barred one", "", "1@100 2@101!", node(1, 100)),
            ("nobody", "", "", Err(AttemptRefusal::NoStandby)),
            ("all barred", "", "1@100!", Err(AttemptRefusal::NoStandby)),
            ("a torn one", "", "1@100~ 2@100 3@90", node(2, 100)),
            ("all torn", "", "1@100~ 2@100! 3@90~", Err(AttemptRefusal::Torn { node: 1 })),
            ("a torn one may have acknowledged more", "n1", "1@110~ 2@100", Err(AttemptRefusal::BarredHasMore { node: 1 })),
            ("lag", "", "1@40 2@30", Err(AttemptRefusal::Lags { node: 1, bytes: 80 })),
            ("ANY 1, both", "ANY 1 (n1, n2)", "1@10 2@11", node(2, 11)),
            ("ANY 1, one", "ANY 1 (n1, n2)", "1@110", Err(AttemptRefusal::TooFewAsked { asked: 1, acks: 1, of: 2 })),
            ("ANY 2, one", "ANY 2 (n1, n2)", "1@110", node(1, 110)),
            ("a standby beside them has most", "n1", "1@110 2@115", node(2, 115)),
            ("the barred one may have acknowledged more", "n1", "1@110! 2@100", Err(AttemptRefusal::BarredHasMore { node: 1 })),
            ("the barred one is not needed", "n1", "1@100! 2@110", node(2, 110)),
        ];
        let mut rules = rules(4);
        rules.lag_bytes_max = Some(50);
        rules.nodes[3].priority = 200;
        for (name, names, given, expected) in cases {
            assert_eq!(choose(&rules, &sync(names), &candidates(given), &[(1000, 120)]), *expected, "{name}");
        }
        assert_eq!(choose(&rules, &SyncStandbyKnowledge::Unknown, &candidates("1@120"), &[]), Err(AttemptRefusal::SyncUnknown));
    }

    #[test]
    fn a_lack_is_measured_in_time_too() {
        let rules = FailoverRules { lag_ms_max: Some(10_000), ..rules(3) };
        // A row in a minute is few bytes.
        let samples: Vec<(Ms, Lsn)> = (0..10).map(|at| (at * 6_000, 100 + at)).collect();
        let of = |position: Lsn, samples: &[(Ms, Lsn)]| {
            choose(&rules, &SyncStandbyKnowledge::Asynchronous, &candidates(&format!("1@{position}")), samples)
        };
        let fits = |position| Ok(ChosenStandby { node: 1, position });
        assert_eq!(of(100, &samples), Err(AttemptRefusal::LagsTime { node: 1, ms: 48_000 }));
        assert_eq!(of(106, &samples), Err(AttemptRefusal::LagsTime { node: 1, ms: 12_000 }));
        assert_eq!((of(107, &samples), of(109, &samples), of(200, &samples)), (fits(107), fits(109), fits(200)));
        // Looks that are a minute apart: what is missing may be as old as a moment.
        assert_eq!((of(99, &[(0, 50), (60_000, 120)]), of(1, &[])), (fits(99), fits(1)));
        // A primary that nobody writes to goes on having the same.
        assert_eq!(of(100, &[(0, 100), (60_000, 100), (120_000, 100)]), fits(100));
    }
}
