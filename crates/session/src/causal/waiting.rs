//! Commits that wait for `synchronous_standby_names`: standbys may show them before the primary does.
//!
//! Finds the last round up to which the primary shows all that standbys had said. Source: `RecordTransactionCommit` in xact.c,
//! which waits between writing the commit and ending the transaction.

pub const ALL_ROUNDS: u64 = u64::MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrimaryVisibility {
    /// The primary shows all that standbys had said before the query of this round.
    pub round: u64,
    pub behind_since_ms: Option<u64>,
}

impl PrimaryVisibility {
    pub const ALL: PrimaryVisibility = PrimaryVisibility { round: ALL_ROUNDS, behind_since_ms: None };
}

#[derive(Clone, Copy, Debug)]
struct WaitingCommit {
    /// Lower half. `None`: a prepared transaction, whose xid the server does not name.
    xid: Option<u32>,
    /// Round that first found it.
    round: u64,
    since_ms: u64,
}

#[derive(Debug, Default)]
pub struct WaitingCommits {
    /// Ascending by round.
    commits: Vec<WaitingCommit>,
}

impl WaitingCommits {
    /// `waiting`: `None` if no commit waits for standbys. `is_over`: by the same round's snapshot.
    pub fn found(
        &mut self,
        round: u64,
        waiting: Option<&[Option<u32>]>,
        is_over: impl Fn(u32) -> bool,
        now_ms: u64,
    ) -> PrimaryVisibility {
        let Some(waiting) = waiting else {
            self.commits.clear();
            return PrimaryVisibility::ALL;
        };
        // A released transaction ends a moment later: only the snapshot tells.
        self.commits.retain(|commit| commit.xid.map_or_else(|| waiting.contains(&None), |xid| !is_over(xid)));
        for &xid in waiting {
            let is_new = self.commits.iter().all(|commit| commit.xid != xid);
            if is_new && xid.is_none_or(|xid| !is_over(xid)) {
                self.commits.push(WaitingCommit { xid, round, since_ms: now_ms });
            }
        }
        match self.commits.first() {
            // In the round before the commit did not wait: no standby had shown it.
            Some(first) => PrimaryVisibility { round: first.round.saturating_sub(1), behind_since_ms: Some(first.since_ms) },
            None => PrimaryVisibility { round, behind_since_ms: None },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A round that finds these waiting, when those below are over.
    fn found(waiting: &mut WaitingCommits, round: u64, xids: &[u32], over_below: u32) -> (u64, Option<u64>) {
        let xids: Vec<Option<u32>> = xids.iter().map(|xid| Some(*xid)).collect();
        let shows = waiting.found(round, Some(&xids), |xid| xid < over_below, round * 10);
        (shows.round, shows.behind_since_ms)
    }

    #[test]
    fn the_primary_shows_less_from_the_first_commit_on_that_waits() {
        let mut waiting = WaitingCommits::default();
        assert_eq!(found(&mut waiting, 3, &[], 7), (3, None));
        assert_eq!(found(&mut waiting, 4, &[8], 7), (3, Some(40)));
        assert_eq!(found(&mut waiting, 5, &[8, 9], 7), (3, Some(40)));
        assert_eq!(found(&mut waiting, 6, &[], 7), (3, Some(40)), "it waits no longer, and is not over yet");
        assert_eq!(found(&mut waiting, 7, &[9], 9), (4, Some(50)), "the other still waits");
        assert_eq!(found(&mut waiting, 8, &[], 10), (8, None));
    }

    #[test]
    fn commits_that_wait_a_short_time_each_hold_nothing_up() {
        let mut waiting = WaitingCommits::default();
        for round in 1..50 {
            let xid = round as u32;
            assert_eq!(found(&mut waiting, round, &[xid], xid), (round - 1, Some(round * 10)));
        }
        assert!(waiting.commits.len() == 1);
    }

    #[test]
    fn a_commit_without_a_number_counts_until_none_waits() {
        let mut waiting = WaitingCommits::default();
        let mut found = |round, list: &[Option<u32>]| waiting.found(round, Some(list), |_| true, 0).round;
        assert_eq!([found(1, &[]), found(2, &[None]), found(3, &[None]), found(4, &[])], [1, 1, 1, 4]);
    }

    #[test]
    fn without_names_of_standbys_the_primary_shows_all() {
        let mut waiting = WaitingCommits::default();
        waiting.found(1, Some(&[Some(5)]), |_| false, 0);
        assert_eq!(waiting.found(2, None, |_| false, 0), PrimaryVisibility::ALL);
        assert_eq!(found(&mut waiting, 3, &[], 1), (3, None));
    }
}
