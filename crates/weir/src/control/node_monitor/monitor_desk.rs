//! State shared by the node tasks.

use super::question::{PositionAnswer, ReportedTimeline};
use crate::control::control_context::{ControlContext, WakeSubject};
use crate::runtime::mail::RoleCheckReason;
use std::cell::{RefCell, RefMut};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;
use weir_cache::{PositionRound, TxidSnapshot, WalHistory};
use weir_config::Config;
use weir_failover::cluster::{ClusterView, ReplicationRole};
use weir_failover::looks::{Answer, RoleAnswer, RoleLookFailure};
use weir_session::causal::asking;
use weir_session::causal::standbys::{PositionBoard, PositionEra, ReplayReport, RoleAgreement, RoleDoubts, RoundCoverage};
use weir_session::causal::waiting::{PrimaryVisibility, WaitingCommits};

#[derive(Debug, Default)]
pub enum RoleLook {
    #[default]
    Rest,
    Asked(Instant),
    Said(Result<RoleAnswer, RoleLookFailure>),
}

pub struct MonitorBoard {
    pub(super) c: Rc<ControlContext>,
    pub(super) config: Arc<Config>,
    looks: Vec<RefCell<RoleLook>>,
    board: RefCell<PositionBoard>,
    /// The doubts for this generation of the view.
    doubts: RefCell<(u64, RoleDoubts)>,
    /// The waiting commits of the primary with this node number.
    waiting: RefCell<(u16, WaitingCommits)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PositionAnswerEffect {
    Nothing,
    Primary,
    Standby { is_done: bool, advances: bool },
    Contradicts,
}

impl MonitorBoard {
    pub fn new(c: Rc<ControlContext>, config: Arc<Config>, view: ClusterView) -> MonitorBoard {
        let looks = config.nodes.iter().map(|_| RefCell::default()).collect();
        let (board, doubts, waiting) = Default::default();
        c.view.replace(view);
        MonitorBoard { c, config, looks, board, doubts, waiting }
    }

    pub fn forget_all(&self, view: &ClusterView) {
        self.forget_waiting();
        let now_ms = self.c.millis(Instant::now());
        view.nodes.iter().for_each(|node| self.c.shared.positions.renew_life(node.id, now_ms));
    }

    /// Has every node asked that owes no answer; returns which.
    pub fn ask_all(&self, now: Instant) -> Vec<bool> {
        let ask = |look: &RefCell<RoleLook>| {
            let is_free = !matches!(*look.borrow(), RoleLook::Asked(_));
            if is_free {
                look.replace(RoleLook::Asked(now));
            }
            is_free
        };
        let asked = self.looks.iter().map(ask).collect();
        self.c.ring(&WakeSubject::Positions);
        asked
    }

    pub fn asked_at(&self, at: usize) -> Option<Instant> {
        match *self.looks[at].borrow() {
            RoleLook::Asked(since) => Some(since),
            RoleLook::Rest | RoleLook::Said(_) => None,
        }
    }

    pub fn said(&self, at: usize, outcome: Result<RoleAnswer, RoleLookFailure>) {
        self.looks[at].replace(RoleLook::Said(outcome));
        self.c.ring(&WakeSubject::Roles);
    }

    pub fn collect(&self, answers: &mut [Answer]) -> bool {
        let mut has_news = false;
        for (look, answer) in self.looks.iter().zip(answers) {
            let mut look = look.borrow_mut();
            match std::mem::take(&mut *look) {
                RoleLook::Said(said) => {
                    *answer = Some(said);
                    has_news = true;
                }
                other => *look = other,
            }
        }
        has_news
    }

    pub fn owes_nothing(&self, asked: &[bool]) -> bool {
        (0..self.looks.len()).all(|at| !asked[at] || self.asked_at(at).is_none())
    }

    pub fn role(&self, at: usize) -> Option<ReplicationRole> {
        asking::role(&self.c.view.borrow(), at)
    }

    /// The nodes that contradicted the view's present generation.
    fn doubted(&self) -> RefMut<'_, (u64, RoleDoubts)> {
        let mut doubts = self.doubts.borrow_mut();
        let generation = self.c.view.borrow().generation;
        if doubts.0 != generation {
            *doubts = (generation, RoleDoubts::default());
        }
        doubts
    }

    pub fn round(&self) -> u64 {
        self.board.borrow().round()
    }

    /// True if anything uses the primary's position.
    pub fn is_of_use(&self) -> bool {
        let (view, positions) = (self.c.view.borrow(), &self.c.shared.positions);
        let is_wanted = |at: usize| view.is_standby(at) && (view.takes_reads(at) || positions.is_wished());
        positions.is_followed() || (0..view.nodes.len()).any(is_wanted)
    }

    /// True if a standby lacks a round, or a session must know that it is still the same server.
    pub fn is_behind(&self, node: u16) -> bool {
        let (board, positions) = (self.board.borrow(), &self.c.shared.positions);
        let all = RoundCoverage { primary: board.round(), standbys: board.round() };
        let lacks = !board.mark(node).covers.reach(all);
        let verify_us = positions.verify_us();
        let is_doubted = verify_us > 0 && positions.asked_us(node) <= verify_us;
        is_doubted || (board.round() > 0 && lacks)
    }

    pub fn lose(&self, at: usize) {
        let node = self.config.nodes[at].id;
        self.board.borrow_mut().lost(node);
        self.c.shared.positions.end_life(node);
        if self.waiting.borrow().0 == node {
            self.forget_waiting();
        }
    }

    pub fn mend(&self, at: usize) {
        self.looks[at].replace(RoleLook::Rest);
        self.lose(at);
    }

    /// Forgets the waiting commits: unknown ones delay no read.
    fn forget_waiting(&self) {
        self.waiting.replace(Default::default());
        self.c.shared.positions.publish_primary(PrimaryVisibility::ALL);
    }

    pub fn take(
        &self,
        at: usize,
        asked: ReplicationRole,
        (round, asked_ms): (u64, u64),
        said: &PositionAnswer<'_>,
    ) -> PositionAnswerEffect {
        let node = self.config.nodes[at].id;
        let Some(position) = said.position else { return PositionAnswerEffect::Nothing };
        let word = self.doubted().1.said(node, asked, self.role(at), said.in_recovery);
        match (word, asked, said.timeline) {
            (RoleAgreement::Stale, ..) => PositionAnswerEffect::Nothing,
            (RoleAgreement::Contradicts, ..) => {
                self.board.borrow_mut().lost(node);
                self.publish();
                self.c.wake_waiters();
                self.c.request_role_check(RoleCheckReason::RoleContradicted);
                PositionAnswerEffect::Contradicts
            }
            (RoleAgreement::Agrees, ReplicationRole::Primary, ReportedTimeline::Of(timeline)) => {
                if self.doubted().1.is_empty() {
                    let era = PositionEra { primary: (node, said.life), system: said.system, timeline };
                    self.primary_said(era, (round, asked_ms), position, said);
                }
                PositionAnswerEffect::Primary
            }
            (RoleAgreement::Agrees, ReplicationRole::Primary, ReportedTimeline::None | ReportedTimeline::Hidden) => {
                PositionAnswerEffect::Nothing
            }
            (RoleAgreement::Agrees, ReplicationRole::Standby, timeline) => {
                let replayed = ReplayReport { system: said.system, timeline: timeline.known(), position };
                let mut board = self.board.borrow_mut();
                let before = board.mark(node);
                board.standby_said(node, replayed);
                let (after, round) = (board.mark(node), board.round());
                drop(board);
                self.publish();
                // Also without progress: the question itself may have been awaited.
                self.c.wake_waiters();
                let is_done = after.covers.reach(RoundCoverage { primary: round, standbys: round });
                PositionAnswerEffect::Standby { is_done, advances: after.covers != before.covers }
            }
        }
    }

    fn primary_said(&self, era: PositionEra, (round, asked_ms): (u64, u64), position: u64, said: &PositionAnswer<'_>) {
        let flushed = said.flushed.unwrap_or(position);
        self.board.borrow_mut().primary_said(era, round, position, flushed, asked_ms);
        // Standbys may show a waiting commit that the snapshot does not.
        let shows = self.note_waiting(era.primary.0, (round, asked_ms), said);
        let shows_other = self.c.shared.positions.publish_primary(shows);
        let is_waiting = shows.behind_since_ms.is_some();
        let shown = if is_waiting { position.max(flushed) } else { position };
        self.c.shared.positions.answer_round(round);
        let history = WalHistory { node: era.primary.0, system: era.system, timeline: era.timeline };
        self.tell_followers(history, (round, asked_ms), shown, said.snapshot);
        let covers_other = self.publish();
        // Otherwise the standbys must be asked first, and sessions would look in vain.
        if covers_other || shows_other || self.c.shared.positions.is_followed() {
            self.c.wake_waiters();
        }
        self.c.ring(&WakeSubject::Positions);
    }

    fn note_waiting(&self, node: u16, (round, asked_ms): (u64, u64), said: &PositionAnswer<'_>) -> PrimaryVisibility {
        let mut waiting = self.waiting.borrow_mut();
        if waiting.0 != node {
            *waiting = (node, WaitingCommits::default());
        }
        let snapshot = || std::str::from_utf8(said.snapshot).ok().and_then(TxidSnapshot::parse);
        match said.waiting {
            None => waiting.1.found(round, None, |_| true, asked_ms),
            Some(list) => match snapshot() {
                Some(snapshot) => waiting.1.found(round, Some(list), |xid| snapshot.shows(xid), asked_ms),
                None => PrimaryVisibility::ALL,
            },
        }
    }

    fn tell_followers(&self, history: WalHistory, (number, asked_ms): (u64, u64), position: u64, snapshot: &[u8]) {
        let shared = &self.c.shared;
        if !shared.positions.is_followed() {
            return;
        }
        let Some(snapshot) = std::str::from_utf8(snapshot).ok().and_then(TxidSnapshot::parse) else { return };
        let round = PositionRound { number, history, position, snapshot, asked_ms };
        let mut is_needed = false;
        for database in shared.catalogs.all().iter().filter(|database| database.follow.is_watched()) {
            is_needed |= database.follow.round(&round);
        }
        if is_needed {
            shared.positions.want(shared.positions.next_round());
        }
    }

    /// Publishes the marks. Returns true if some standby covers other rounds than before.
    fn publish(&self) -> bool {
        let (board, now_ms) = (self.board.borrow(), self.c.millis(Instant::now()));
        let (mut is_other, mut shown_by_all) = (false, u64::MAX);
        let (positions, view) = (&self.c.shared.positions, self.c.view.borrow());
        for (at, node) in view.nodes.iter().enumerate() {
            let mark = board.mark(node.id);
            is_other |= positions.publish(node.id, mark, now_ms);
            if view.is_standby(at) && view.takes_reads(at) {
                shown_by_all = shown_by_all.min(mark.covers.primary);
            }
        }
        positions.publish_shown_by_all(if shown_by_all == u64::MAX { 0 } else { shown_by_all });
        is_other
    }
}
