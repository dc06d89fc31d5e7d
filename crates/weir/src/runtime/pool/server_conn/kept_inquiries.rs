//! A worker's connections for questions about users.
//!
//! Each pair of asking user and database has a lane, with one question at a time: a hanging `auth_query` holds up no other database.
//! Lanes are few; the global parameters' lane is always there.

use crate::runtime::pool::server_conn::{MessageConn, ServerAddress};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::time::Instant;
use weir_io::reactor::TaskId;

/// Lanes for databases with their own `auth_user` or `auth_dbname`, each with a connection to a server.
const OWN_LANES_MAX: usize = 8;

/// Asking user, and database of the servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InquiryLogin {
    pub(crate) user: String,
    pub(crate) database: String,
}

/// Lanes, and the tasks that wait for one.
#[derive(Default)]
pub struct WorkerInquiries {
    pub(crate) lanes: RefCell<InquiryLanes<InquiryConn>>,
    pub(crate) waiting: RefCell<VecDeque<(TaskId, InquiryLogin)>>,
}

/// A connection, with the generation of the files that logged it in.
pub struct InquiryConn {
    pub(crate) talk: MessageConn,
    pub(crate) address: ServerAddress,
    pub(crate) generation: u64,
}

pub struct InquiryLanes<L> {
    all: Vec<InquiryLane<L>>,
}

struct InquiryLane<L> {
    asker: InquiryLogin,
    kind: LaneKind,
    state: LaneState<L>,
}

enum LaneState<L> {
    Asks,
    Rests(Instant, Option<L>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LaneKind {
    /// Lane of the global parameters.
    Common,
    OfDatabase,
}

#[derive(Debug, PartialEq, Eq)]
pub struct LaneGrant<L> {
    pub(crate) kept: Option<L>,
    pub(crate) evicted: Option<L>,
}

impl<L> Default for InquiryLanes<L> {
    fn default() -> InquiryLanes<L> {
        InquiryLanes { all: Vec::new() }
    }
}

impl<L> InquiryLanes<L> {
    /// Takes the asker's lane if it is free; a new lane may evict the one idle longest.
    pub fn take(&mut self, asker: &InquiryLogin, kind: LaneKind) -> Option<LaneGrant<L>> {
        if let Some(lane) = self.all.iter_mut().find(|lane| lane.asker == *asker) {
            return match std::mem::replace(&mut lane.state, LaneState::Asks) {
                LaneState::Asks => None,
                LaneState::Rests(_, kept) => Some(LaneGrant { kept, evicted: None }),
            };
        }
        let mut evicted = None;
        let own = self.all.iter().enumerate().filter(|(_, lane)| lane.kind == LaneKind::OfDatabase);
        if kind == LaneKind::OfDatabase && own.clone().count() >= OWN_LANES_MAX {
            let (at, _) = own.filter_map(|(at, lane)| Some((at, lane.rests_since()?))).min_by_key(|rest| rest.1)?;
            if let LaneState::Rests(_, line) = self.all.swap_remove(at).state {
                evicted = line;
            }
        }
        self.all.push(InquiryLane { asker: asker.clone(), kind, state: LaneState::Asks });
        Some(LaneGrant { kept: None, evicted })
    }

    pub fn give_back(&mut self, asker: &InquiryLogin, line: Option<L>, now: Instant) {
        if let Some(lane) = self.all.iter_mut().find(|lane| lane.asker == *asker) {
            lane.state = LaneState::Rests(now, line);
        }
    }

    pub fn take_all(&mut self) -> Vec<L> {
        let take = |lane: &mut InquiryLane<L>| match &mut lane.state {
            LaneState::Asks => None,
            LaneState::Rests(_, line) => line.take(),
        };
        self.all.iter_mut().filter_map(take).collect()
    }

    pub fn has(&self, asker: &InquiryLogin) -> bool {
        self.all.iter().any(|lane| lane.asker == *asker)
    }
}

impl<L> InquiryLane<L> {
    fn rests_since(&self) -> Option<Instant> {
        match &self.state {
            LaneState::Asks => None,
            LaneState::Rests(since, _) => Some(*since),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn asker(number: usize) -> InquiryLogin {
        InquiryLogin { user: format!("u{number}"), database: "d".into() }
    }

    #[test]
    fn each_asker_has_one_turn_at_a_time_and_holds_up_no_other() {
        let (mut lanes, now) = (InquiryLanes::default(), Instant::now());
        assert_eq!(lanes.take(&asker(1), LaneKind::OfDatabase), Some(LaneGrant { kept: None, evicted: None }));
        assert_eq!(lanes.take(&asker(1), LaneKind::OfDatabase), None);
        assert!(lanes.take(&asker(2), LaneKind::OfDatabase).is_some());
        lanes.give_back(&asker(1), Some("line"), now);
        assert_eq!(lanes.take(&asker(1), LaneKind::OfDatabase), Some(LaneGrant { kept: Some("line"), evicted: None }));
    }

    #[test]
    fn the_lane_that_rested_longest_makes_room_and_the_common_one_always_finds_some() {
        let (mut lanes, now) = (InquiryLanes::default(), Instant::now());
        let mut taken = 0;
        while lanes.take(&asker(taken), LaneKind::OfDatabase).is_some() {
            taken += 1;
            assert!(taken <= OWN_LANES_MAX, "there is a limit");
        }
        assert!(lanes.take(&asker(100), LaneKind::Common).is_some());
        lanes.give_back(&asker(100), Some(100), now);
        assert_eq!(lanes.take(&asker(101), LaneKind::OfDatabase), None, "the common one is nobody else's");
        lanes.give_back(&asker(1), Some(1), now + Duration::from_secs(1));
        lanes.give_back(&asker(0), Some(0), now + Duration::from_secs(2));
        assert_eq!(lanes.take(&asker(101), LaneKind::OfDatabase), Some(LaneGrant { kept: None, evicted: Some(1) }));
        assert!(!lanes.has(&asker(1)) && lanes.has(&asker(0)));
    }
}
