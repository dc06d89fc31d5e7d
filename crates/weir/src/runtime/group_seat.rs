//! This Weir's seat in its group, between the group's thread and all other threads.
//!
//! The group's thread is the only writer of rights and view; others read them and send orders. Times are milliseconds of CLOCK_BOOTTIME.

use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, mpsc, oneshot, watch};
use weir_group::{
    ActAnswer, ActDoer, GroupAnswer, GroupMs, GroupRequest, HostNumber, MemberId, MemberIntent, MemberRights, NodeSights,
    ServerMark, StateVersion, VersionNumber,
};

/// Orders that wait for the group's thread; more are refused.
const ORDERS_MAX: usize = 256;

pub enum GroupOrder {
    Request {
        request: GroupRequest,
        answer: oneshot::Sender<GroupAnswer>,
    },
    /// Writes that this version takes are done with here.
    WritesObeyed(VersionNumber),
    /// Judgement of the control thread.
    Intent(MemberIntent),
    /// Servers as this member sees them.
    Sights(NodeSights),
    Founding {
        text: String,
        mark: ServerMark,
    },
    /// For the leader (`None`) or another member. Dropped when nobody waits for the answer any more.
    Act {
        to: Option<MemberId>,
        text: String,
        limit_ms: GroupMs,
        answer: oneshot::Sender<ActAnswer>,
    },
    /// The end of a `HeardAct`.
    Acted {
        from: MemberId,
        number: u64,
        answer: ActAnswer,
    },
    /// The process ends: the lead is handed over first. Answered when the group holds nothing of this member any more.
    Leave {
        left: oneshot::Sender<()>,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WritesObedience {
    /// The control thread says `GroupOrder::WritesObeyed` when nothing more is sent to the former node.
    Awaited(VersionNumber),
    Done,
}

/// A host as this member sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerView {
    pub host: HostNumber,
    pub heard_at: Option<GroupMs>,
    pub is_linked: bool,
    /// As it last said; `Serves` until it was heard.
    pub intent: MemberIntent,
    /// Parameters in which it differs from this host, of those that all must have alike.
    pub differing: Vec<&'static str>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupView {
    pub own: MemberId,
    /// Newest decided version known.
    pub version: Option<StateVersion>,
    pub rights: MemberRights,
    pub obedience: WritesObedience,
    /// Closed epoch in which nobody writes any more, and the term of the leader that was told.
    pub stopped_epoch: Option<u64>,
    pub peers: Vec<PeerView>,
    /// Servers as the other members see them.
    pub sights_of_others: Vec<NodeSights>,
    /// Reason why this member has no vote.
    pub fault: Option<String>,
}

impl GroupView {
    pub fn leads(&self, now: GroupMs) -> bool {
        now < self.rights.until && self.rights.leads.is_some()
    }

    pub fn has_lease(&self, now: GroupMs) -> bool {
        now < self.rights.until
    }

    /// True if only times differ.
    pub fn is_as_before(&self, before: &GroupView) -> bool {
        let links = |view: &GroupView| view.peers.iter().map(|peer| (peer.host, peer.is_linked)).collect::<Vec<_>>();
        self.version == before.version
            && (self.rights.leads, self.rights.writes) == (before.rights.leads, before.rights.writes)
            && self.obedience == before.obedience
            && self.stopped_epoch == before.stopped_epoch
            && links(self) == links(before)
            && self.sights_of_others == before.sights_of_others
            && self.fault == before.fault
    }

    pub fn leader(&self) -> Option<MemberId> {
        match self.version.as_ref()?.state.lead {
            weir_group::GroupLead::Held(id) => Some(id),
            weir_group::GroupLead::Taken { .. } => None,
        }
    }
}

/// An operator's wish that came to a member, and is this one's to do. Answered by `GroupOrder::Acted`.
#[derive(Debug)]
pub struct HeardAct {
    pub from: MemberId,
    pub number: u64,
    pub doer: ActDoer,
    pub text: String,
}

pub struct GroupSeat {
    view: watch::Sender<Arc<GroupView>>,
    orders: mpsc::Sender<GroupOrder>,
    /// Bounded by `weir_group`: so many of each member.
    heard_acts: Mutex<Vec<HeardAct>>,
    heard_act: Notify,
}

impl GroupSeat {
    /// The receiver is the thread's.
    pub fn new(own: MemberId) -> (Arc<GroupSeat>, mpsc::Receiver<GroupOrder>) {
        let (orders, inbox) = mpsc::channel(ORDERS_MAX);
        let view = GroupView {
            own,
            version: None,
            rights: MemberRights::default(),
            obedience: WritesObedience::Done,
            stopped_epoch: None,
            peers: Vec::new(),
            sights_of_others: Vec::new(),
            fault: None,
        };
        (
            Arc::new(GroupSeat {
                view: watch::Sender::new(Arc::new(view)),
                orders,
                heard_acts: Mutex::default(),
                heard_act: Notify::new(),
            }),
            inbox,
        )
    }

    pub fn view(&self) -> Arc<GroupView> {
        self.view.borrow().clone()
    }

    /// News of the view.
    pub fn watch(&self) -> watch::Receiver<Arc<GroupView>> {
        self.view.subscribe()
    }

    /// Only for the group's thread.
    pub fn show(&self, view: GroupView) {
        self.view.send_replace(Arc::new(view));
    }

    /// Waits for room. Cancel safe: then nothing was ordered. Nobody hears of it once the thread has ended.
    pub async fn deliver(&self, order: GroupOrder) {
        let _ = self.orders.send(order).await;
    }

    /// Never waits. False if the thread has ended or is behind.
    pub fn order(&self, order: GroupOrder) -> bool {
        self.orders.try_send(order).is_ok()
    }

    /// Never waits. Has the leader (`None`) or another member do something. A sender that is dropped without an answer: this host has left its group.
    pub fn act(&self, to: Option<MemberId>, text: String, limit: Duration) -> oneshot::Receiver<ActAnswer> {
        let (answer, answered) = oneshot::channel();
        self.order(GroupOrder::Act { to, text, limit_ms: limit.as_millis() as GroupMs, answer });
        answered
    }

    /// Only for the group's thread.
    pub fn hear_act(&self, act: HeardAct) {
        self.heard_acts.lock().push(act);
        self.heard_act.notify_one();
    }

    /// Waits for acts of others. Cancel safe.
    pub async fn next_acts(&self) -> Vec<HeardAct> {
        loop {
            let heard = std::mem::take(&mut *self.heard_acts.lock());
            if !heard.is_empty() {
                return heard;
            }
            self.heard_act.notified().await;
        }
    }

    /// Cancel safe: the request goes on. No leader, or no answer at all: `NotLeader`.
    pub async fn request(&self, request: GroupRequest) -> GroupAnswer {
        let (answer, answered) = oneshot::channel();
        if !self.order(GroupOrder::Request { request, answer }) {
            return GroupAnswer::Busy;
        }
        answered.await.unwrap_or(GroupAnswer::NotLeader)
    }
}
