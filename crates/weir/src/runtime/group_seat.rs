//! This Weir's seat in its group, between the group's thread and all other threads.
//!
//! The group's thread is the only writer of rights and view; others read them and send orders. Times are milliseconds of CLOCK_BOOTTIME.

use parking_lot::Mutex;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, mpsc, oneshot, watch};
use weir_config::watchdog_settings::WatchdogSettings;
use weir_group::{
    ActAnswer, ActDoer, FormingOrder, FormingRefusal, GroupAnswer, GroupMs, GroupRequest, HostNumber, MemberHandover, MemberId,
    MemberIntent, MemberRights, NodeSights, ServerMark, StateVersion, VersionNumber,
};
use weir_group_failover::MemberSight;

/// Orders that wait for the group's thread; more are refused.
const ORDERS_MAX: usize = 256;

/// An act that waits until this member leads no more. It is done when it is dropped, so that it is never lost.
pub struct AfterHandOver(Option<Box<dyn FnOnce() + Send>>);

impl AfterHandOver {
    pub fn new(act: impl FnOnce() + Send + 'static) -> AfterHandOver {
        AfterHandOver(Some(Box::new(act)))
    }
}

impl Drop for AfterHandOver {
    fn drop(&mut self) {
        if let Some(act) = self.0.take() {
            act();
        }
    }
}

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
    /// Parameters were read again.
    Reload(Box<WatchdogSettings>),
    Founding {
        text: String,
        mark: ServerMark,
    },
    /// An operator wishes a group.
    Form {
        order: FormingOrder,
        answer: oneshot::Sender<Result<(), FormingRefusal>>,
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
    /// Another process takes this one's place in the group. Answered when nothing of the member is left here but sessions.
    HandOver {
        answer: oneshot::Sender<Result<HandedMember, String>>,
    },
    /// Orders to servers have ended here, since this process does not lead any more.
    LeadGivenUp,
    /// The other process serves all new clients: this one does not take its place back any more.
    Relieved,
    /// The process is going to end: another member takes the lead if this one has it, and the act follows. This member stays one.
    StepDown(AfterHandOver),
    /// The process ends: the lead is handed over first. Answered when the group holds nothing of this member any more.
    Leave {
        left: oneshot::Sender<()>,
    },
}

/// A member on its way to another process.
#[derive(Debug)]
pub struct HandedMember {
    pub before: MemberHandover,
    /// To each process that keeps sessions, the newest first.
    pub lines: Vec<FormerLine>,
}

/// One end of the line to a former process.
#[derive(Debug)]
pub struct FormerLine {
    pub end: OwnedFd,
    /// End of all rights that the process on the other side may rely on.
    pub until: GroupMs,
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
    /// As failover needs it.
    pub fn sight(&self, now: GroupMs) -> MemberSight<'_> {
        MemberSight { now, version: self.version.as_ref(), rights: self.rights, stopped_epoch: self.stopped_epoch }
    }

    pub fn leads(&self, now: GroupMs) -> bool {
        self.sight(now).leads()
    }

    pub fn has_lease(&self, now: GroupMs) -> bool {
        self.sight(now).has_lease()
    }

    /// True if these hosts are linked alike.
    pub fn has_links_of(before: &[PeerView], peers: &[PeerView]) -> bool {
        let link = |peer: &PeerView| (peer.host, peer.is_linked);
        before.iter().map(link).eq(peers.iter().map(link))
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

    /// As `show`, for a view in which only times are new: nobody wakes for it.
    pub fn show_times(&self, view: GroupView) {
        self.view.send_if_modified(|shown| {
            *shown = Arc::new(view);
            false
        });
    }

    /// Waits for room. Cancel safe: then nothing was ordered. Nobody hears of it once the thread has ended.
    pub async fn deliver(&self, order: GroupOrder) {
        let _ = self.orders.send(order).await;
    }

    /// Never waits. False if the thread has ended or is behind.
    pub fn order(&self, order: GroupOrder) -> bool {
        self.orders.try_send(order).is_ok()
    }

    /// `None`: the group's thread has ended, or is behind. Cancel safe, but what was begun goes on.
    pub async fn form(&self, order: FormingOrder) -> Option<Result<(), FormingRefusal>> {
        let (answer, answered) = oneshot::channel();
        if !self.order(GroupOrder::Form { order, answer }) {
            return None;
        }
        answered.await.ok()
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
