//! Timeline histories of servers.
//!
//! Switch points count beside the timeline: two standbys promoted apart both begin timeline 2.

pub type Lsn = u64;

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct TimelineHistory {
    pub system: u64,
    pub timeline: u32,
    /// Older timelines and the position at which the log left them, oldest first.
    pub switches: Vec<(u32, Lsn)>,
    pub source: HistorySource,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum HistorySource {
    #[default]
    Read,
    /// A guess from timeline numbers: the file may not be read.
    Assumed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WalRelation {
    /// Holds the accepted log up to here.
    Holds(Lsn),
    /// On a timeline that left the accepted one here.
    Left(Lsn),
    /// Has WAL that the accepted log lacks.
    Diverged,
    Foreign,
}

impl TimelineHistory {
    /// Reads a `.history` file; `None` if malformed. Source: `readTimeLineHistory` in PostgreSQL's timeline.c.
    pub fn parse(system: u64, timeline: u32, text: &str) -> Option<TimelineHistory> {
        let mut switches = Vec::new();
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let mut words = line.split_whitespace();
            let older: u32 = words.next()?.parse().ok()?;
            let position = parse_lsn(words.next()?)?;
            if older >= timeline || switches.last().is_some_and(|(last, _)| *last >= older) {
                return None;
            }
            switches.push((older, position));
        }
        Some(TimelineHistory { system, timeline, switches, source: HistorySource::Read })
    }

    /// Guesses a history from at most a timeline, as if it left the accepted log at `end`. For callers that decide nothing by it.
    pub fn assume(system: Option<u64>, timeline: Option<u32>, accepted: Option<&TimelineHistory>, end: Lsn) -> TimelineHistory {
        let timeline = timeline.or(accepted.map(|accepted| accepted.timeline)).unwrap_or(1);
        let system = system.or(accepted.map(|accepted| accepted.system)).unwrap_or(0);
        let mut switches = Vec::new();
        if let Some(accepted) = accepted {
            switches.extend(accepted.switches.iter().copied().filter(|(older, _)| *older < timeline));
            if timeline > accepted.timeline {
                switches.push((accepted.timeline, end));
            }
        }
        TimelineHistory { system, timeline, switches, source: HistorySource::Assumed }
    }

    /// Relates a log with this history that ends at `position` to `accepted`.
    pub fn relation(&self, position: Lsn, accepted: &TimelineHistory) -> WalRelation {
        if self.system != accepted.system {
            return WalRelation::Foreign;
        }
        let is_guess = self.source == HistorySource::Assumed || accepted.source == HistorySource::Assumed;
        let switch_of = |history: &TimelineHistory, timeline: u32| {
            let at = history.switches.iter().position(|(older, _)| *older == timeline)?;
            Some((at, history.switches[at].1))
        };
        if self.timeline == accepted.timeline {
            return if is_guess || self.switches == accepted.switches {
                WalRelation::Holds(position)
            } else {
                WalRelation::Diverged
            };
        }
        if let Some((at, end)) = switch_of(self, accepted.timeline) {
            return if is_guess || self.switches[..at] == accepted.switches[..] {
                WalRelation::Left(end)
            } else {
                WalRelation::Diverged
            };
        }
        match switch_of(accepted, self.timeline) {
            Some((at, end)) if (is_guess || accepted.switches[..at] == self.switches[..]) && position <= end => {
                WalRelation::Holds(position)
            }
            _ => WalRelation::Diverged,
        }
    }

    /// True if this log left that of `older` and holds all of it up to there.
    pub fn descends_from(&self, older: &TimelineHistory) -> bool {
        matches!(self.relation(0, older), WalRelation::Left(_))
    }
}

pub fn parse_lsn(text: &str) -> Option<Lsn> {
    let (high, low) = text.split_once('/')?;
    let part = |hex: &str| (!hex.is_empty() && hex.len() <= 8).then(|| u64::from_str_radix(hex, 16).ok()).flatten();
    Some(part(high)? << 32 | part(low)?)
}

pub fn show_lsn(lsn: Lsn) -> String {
    format!("{:X}/{:X}", lsn >> 32, lsn & 0xFFFF_FFFF)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history(timeline: u32, switches: &[(u32, Lsn)]) -> TimelineHistory {
        TimelineHistory { system: 7, timeline, switches: switches.to_vec(), source: HistorySource::Read }
    }

    #[test]
    fn a_history_file_is_read_and_what_is_none_is_refused() {
        let text = "1\t0/3000060\tno recovery target specified\n\n2\t0/5000000\tbefore 2026-01-01\n";
        let read = TimelineHistory::parse(7, 3, text).unwrap();
        assert_eq!(read.switches, [(1, 0x300_0060), (2, 0x500_0000)]);
        for wrong in ["1 here", "one 0/1", "3 0/1", "2 0/2\n1 0/3", "1"] {
            assert_eq!(TimelineHistory::parse(7, 3, wrong), None, "{wrong}");
        }
        assert_eq!((parse_lsn("16/B374D848"), parse_lsn("/1"), parse_lsn("1/123456789")), (Some(0x16_B374_D848), None, None));
        assert_eq!(show_lsn(0x16_B374_D848), "16/B374D848");
    }

    #[test]
    fn a_log_lies_to_the_accepted_one_as_its_switches_say() {
        use WalRelation::*;
        let accepted = history(2, &[(1, 100)]);
        let cases: &[(&str, TimelineHistory, Lsn, WalRelation)] = &[
            ("the same timeline", history(2, &[(1, 100)]), 150, Holds(150)),
            ("the same number, promoted elsewhere", history(2, &[(1, 90)]), 150, Diverged),
            ("behind on the older one", history(1, &[]), 80, Holds(80)),
            ("beyond the switch on the older one", history(1, &[]), 101, Diverged),
            ("promoted from it", history(3, &[(1, 100), (2, 140)]), 160, Left(140)),
            ("promoted from a timeline that only has its number", history(3, &[(1, 90), (2, 140)]), 160, Diverged),
            ("promoted from the older one", history(3, &[(1, 70)]), 160, Diverged),
            ("another cluster", TimelineHistory { system: 8, ..accepted.clone() }, 10, Foreign),
        ];
        for (name, of, position, expected) in cases {
            assert_eq!(of.relation(*position, &accepted), *expected, "{name}");
        }
    }

    #[test]
    fn a_timeline_alone_is_placed_by_its_number() {
        use WalRelation::*;
        let accepted = history(2, &[(1, 100)]);
        let of = |timeline| TimelineHistory::assume(Some(7), timeline, Some(&accepted), 150);
        assert_eq!(of(Some(3)).relation(160, &accepted), Left(150));
        assert_eq!(of(Some(2)).relation(160, &accepted), Holds(160));
        assert_eq!(of(None).relation(160, &accepted), Holds(160));
        assert_eq!(of(Some(1)).relation(90, &accepted), Holds(90));
        assert_eq!(TimelineHistory::assume(Some(8), Some(3), Some(&accepted), 0).relation(1, &accepted), Foreign);
        let nothing = TimelineHistory { timeline: 1, source: HistorySource::Assumed, ..TimelineHistory::default() };
        assert_eq!(TimelineHistory::assume(None, None, None, 0), nothing);
        // A history that is read later is no other log for that, whichever of the two was accepted.
        let assumed = TimelineHistory::assume(Some(7), Some(2), None, 0);
        assert_eq!((assumed.relation(160, &accepted), accepted.relation(160, &assumed)), (Holds(160), Holds(160)));
        assert_eq!(history(3, &[(1, 100), (2, 140)]).relation(160, &assumed), Left(140));
    }

    #[test]
    fn a_log_descends_from_the_one_that_it_left_only() {
        let (old, new) = (history(2, &[(1, 100)]), history(3, &[(1, 100), (2, 140)]));
        assert!(new.descends_from(&old) && !old.descends_from(&new) && !old.descends_from(&old));
        assert!(!history(3, &[(1, 90), (2, 140)]).descends_from(&old), "it left before that");
    }
}
