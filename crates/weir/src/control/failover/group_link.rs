//! Failover in a group: carries news and words between the group's seat and failover, as `weir_group_failover` orders them.
//!
//! Writes are closed by a change of the state before anything that relies on it: a replacement, the stop of a primary, a command. Closed counts
//! once nobody writes any more (`GroupView::stopped_epoch`). `Release` opens a new epoch.

use crate::control::cluster_view;
use crate::control::control_context::ControlContext;
use crate::control::failover::drain;
use crate::control::failover::write_gate::wait_parted;
use crate::runtime::group_seat::{GroupOrder, GroupSeat, WritesObedience};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use weir_failover::{Done, DurableState, FailoverState, GroupRole, NodeId};
use weir_group::{GroupAnswer, GroupRequest, MemberIntent};
use weir_group_failover::{FailoverTie, GroupNews, MemberWord, TakenWrites, asked_closing, writes_opening};
use weir_io::clock::boot_now_ms;

/// Between two tries of a change that was not made.
const AGAIN: Duration = Duration::from_millis(100);

pub struct GroupLink {
    pub seat: Arc<GroupSeat>,
    tie: FailoverTie,
    opener: JoinSet<()>,
    obeyer: JoinSet<()>,
}

impl GroupLink {
    pub fn new(seat: Arc<GroupSeat>) -> GroupLink {
        GroupLink { seat, tie: FailoverTie::default(), opener: JoinSet::new(), obeyer: JoinSet::new() }
    }

    /// The state stored by the group, under its number. `None`: nothing yet.
    pub fn durable(&self) -> Option<DurableState> {
        self.seat.view().sight(boot_now_ms()).durable()
    }

    /// The first of the news, until there are none.
    pub fn news(&mut self, role: GroupRole) -> Option<GroupNews> {
        let view = self.seat.view();
        self.tie.news(view.sight(boot_now_ms()), &view.sights_of_others, role)
    }

    /// Tells the group what it does not know yet, and ends what it has taken from this member.
    pub fn tell(&mut self, c: &Rc<ControlContext>, state: &FailoverState, intent: MemberIntent, served: Option<NodeId>) {
        let view = self.seat.view();
        let awaited = match view.obedience {
            WritesObedience::Awaited(number) => Some(number),
            WritesObedience::Done => None,
        };
        while self.obeyer.try_join_next().is_some() {}
        // An answer may have come while another process took this one's place in the group, and is asked for again.
        if self.obeyer.is_empty() {
            self.tie.end_again();
        }
        for word in self.tie.words(view.sight(boot_now_ms()), state, intent, (served, awaited)) {
            let is_passed = match word {
                MemberWord::Intent(intent) => self.seat.order(GroupOrder::Intent(intent)),
                MemberWord::Sights(sights) => self.seat.order(GroupOrder::Sights(sights)),
                MemberWord::End(taken) => {
                    self.end_writes(c, taken);
                    true
                }
            };
            if !is_passed {
                self.tie.repeat(word);
            }
        }
    }

    /// The leader asks the group for this.
    pub fn note_asked(&mut self, request: &GroupRequest) {
        self.tie.note_asked(request);
    }

    /// Opens writes to this node as soon as they can be, instead of to any other, and keeps them open.
    pub fn open(&mut self, node: NodeId) {
        self.opener = JoinSet::new();
        self.opener.spawn_local(open_writes(self.seat.clone(), node));
    }

    pub fn keep_shut(&mut self) {
        self.opener = JoinSet::new();
    }

    fn end_writes(&mut self, c: &Rc<ControlContext>, taken: TakenWrites) {
        let (c, seat) = (c.clone(), self.seat.clone());
        self.obeyer.spawn_local(async move {
            if let Some(node) = taken.node {
                drain::drain(&c, node, Duration::from_millis(taken.limit_ms)).await;
                let used = cluster_view::end(&c, node);
                wait_parted(&c, node, &used).await;
            }
            seat.deliver(GroupOrder::WritesObeyed(taken.number)).await;
        });
    }
}

/// Has the group decide this; writes that it closes have stopped for all by then. Cancel safe: the change may be made.
pub async fn decide(seat: &GroupSeat, request: GroupRequest) -> Done {
    let closes = matches!(request, GroupRequest::CloseWrites { .. });
    let mut news = seat.watch();
    let epoch = seat.view().sight(boot_now_ms()).writes_epoch();
    match seat.request(request).await {
        GroupAnswer::Done => {}
        GroupAnswer::NotLeader | GroupAnswer::Refused | GroupAnswer::Busy => return Done::No,
    }
    if !closes {
        return Done::Yes;
    }
    loop {
        let view = news.borrow_and_update().clone();
        if let Some(done) = asked_closing(view.sight(boot_now_ms()), epoch) {
            return done;
        }
        if news.changed().await.is_err() {
            return Done::No;
        }
    }
}

/// Goes on until it is dropped: an earlier change under way may close what is open. Cancel safe: the change may be made.
async fn open_writes(seat: Arc<GroupSeat>, node: NodeId) {
    let mut news = seat.watch();
    loop {
        let view = news.borrow_and_update().clone();
        let answer = match writes_opening(view.sight(boot_now_ms()), node) {
            Some(request) => seat.request(request).await,
            None => GroupAnswer::Done,
        };
        if answer == GroupAnswer::Done {
            if news.changed().await.is_err() {
                return;
            }
        } else {
            tokio::time::sleep(AGAIN).await;
        }
    }
}
