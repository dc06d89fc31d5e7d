//! Failover in a group: its leader stores in the group's state, and writes of all follow the group's epoch.
//!
//! Writes are closed by a change of the state before anything that relies on it: a replacement, the stop of a primary, a command. Closed counts
//! once nobody writes any more (`GroupView::stopped_epoch`). `Release` opens a new epoch.

use crate::control::cluster_view;
use crate::control::control_context::ControlContext;
use crate::control::failover::drain;
use crate::control::failover::write_gate::wait_parted;
use crate::runtime::group_seat::{GroupOrder, GroupSeat, GroupView, WritesObedience};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use weir_failover::{Done, DurableState, FailoverState, GroupRole, LookFailure, NodeId, SightCount};
use weir_group::{GroupAnswer, GroupDecision, GroupRequest, GroupWrites, MemberIntent, NodeSights, VersionNumber};
use weir_io::clock::boot_now_ms;

/// Between two tries of a change that was not made.
const AGAIN: Duration = Duration::from_millis(100);

/// Numbers of groups have this bit, those of single Weirs do not: marks on servers tell which of them decided.
const GROUP_BIT: u32 = 1 << 31;

/// Nodes with a bit of their own in what members tell each other.
const SIGHTED_NODES: NodeId = 128;

pub fn is_number_of_group(weir: u32) -> bool {
    weir & GROUP_BIT != 0
}

pub fn number_of_single(random: u32) -> u32 {
    random & !GROUP_BIT
}

/// Number of the group in ballots: one for all of its members, so that a new leader knows what a former one began.
fn number_of_group(view: &GroupView) -> u32 {
    view.version.as_ref().map_or(0, |version| version.state.group.incarnation) | GROUP_BIT
}

pub struct GroupLink {
    pub seat: Arc<GroupSeat>,
    /// Text that was told last.
    told: Option<String>,
    obeyed: Option<VersionNumber>,
    /// As told to the group last.
    intent: MemberIntent,
    sights: NodeSights,
    sights_of_others: Vec<NodeSights>,
    opener: JoinSet<()>,
    obeyer: JoinSet<()>,
}

impl GroupLink {
    pub fn new(seat: Arc<GroupSeat>) -> GroupLink {
        GroupLink {
            seat,
            told: None,
            obeyed: None,
            intent: MemberIntent::Serves,
            sights: NodeSights::default(),
            sights_of_others: Vec::new(),
            opener: JoinSet::new(),
            obeyer: JoinSet::new(),
        }
    }

    pub fn role(&self) -> GroupRole {
        if self.seat.view().leads(boot_now_ms()) { GroupRole::Leads } else { GroupRole::Follows }
    }

    /// The state stored by the group, under its number. `None`: nothing yet.
    pub fn durable(&self) -> Option<DurableState> {
        let view = self.seat.view();
        let durable = DurableState::parse(&view.version.as_ref()?.state.failover)?;
        // In a group that was formed by force the lead's term is beyond all that the former one may have given, for failover, too.
        let term = durable.term.max(version_term(&view));
        Some(DurableState { weir: number_of_group(&view), term, ..durable })
    }

    /// The text stored by the group, if it is news since the last call.
    pub fn news(&mut self) -> Option<DurableState> {
        let view = self.seat.view();
        let text = &view.version.as_ref()?.state.failover;
        if self.told.as_ref() == Some(text) {
            return None;
        }
        self.told = Some(text.clone());
        self.durable()
    }

    /// How many others see each node, if it is news since the last call.
    pub fn news_of_sights(&mut self) -> Option<BTreeMap<NodeId, SightCount>> {
        let view = self.seat.view();
        if view.sights_of_others == self.sights_of_others {
            return None;
        }
        self.sights_of_others.clone_from(&view.sights_of_others);
        let mut counts: BTreeMap<NodeId, SightCount> = BTreeMap::new();
        for node in 0..SIGHTED_NODES {
            let of = |bits: u128| bits >> node & 1 == 1;
            let alive = view.sights_of_others.iter().filter(|sights| of(sights.alive)).count() as u32;
            let dead = view.sights_of_others.iter().filter(|sights| of(sights.dead)).count() as u32;
            if alive + dead > 0 {
                counts.insert(node, SightCount { alive, dead });
            }
        }
        Some(counts)
    }

    /// Tells the group what this member is fit for, and how it sees the servers: by its last looks, of which a failure of its own says nothing.
    pub fn tell(&mut self, intent: MemberIntent, state: &FailoverState) {
        if self.intent != intent && self.seat.order(GroupOrder::Intent(intent)) {
            self.intent = intent;
        }
        let mut sights = NodeSights::default();
        for (id, node) in state.nodes.iter().filter(|(id, _)| **id < SIGHTED_NODES) {
            sights.alive |= u128::from(node.facts().is_some()) << id;
            sights.dead |= u128::from(node.failure.is_some_and(LookFailure::is_death)) << id;
        }
        if self.sights != sights && self.seat.order(GroupOrder::Sights(sights)) {
            self.sights = sights;
        }
    }

    pub fn forget_news(&mut self) {
        self.told = None;
    }

    /// Opens writes to this node as soon as they can be, instead of to any other.
    pub fn open(&mut self, node: NodeId, text: String) {
        self.opener = JoinSet::new();
        self.opener.spawn_local(open_writes(self.seat.clone(), node, text));
    }

    pub fn keep_shut(&mut self) {
        self.opener = JoinSet::new();
    }

    /// Ends what the group has taken from this member: new work waits already. Transactions on a node that answers may end until the lease does.
    pub fn obey(&mut self, c: &Rc<ControlContext>, served: Option<NodeId>, answers: impl Fn(NodeId) -> bool) {
        let view = self.seat.view();
        let WritesObedience::Awaited(number) = view.obedience else { return };
        if self.obeyed == Some(number) {
            return;
        }
        self.obeyed = Some(number);
        let is_kept = |node: &NodeId| view.rights.writes.is_some_and(|(_, open)| open == *node);
        let ends = served.filter(|node| !is_kept(node));
        let limit = if ends.is_some_and(answers) { view.rights.until.saturating_sub(boot_now_ms()) } else { 0 };
        let (c, seat) = (c.clone(), self.seat.clone());
        self.obeyer.spawn_local(async move {
            if let Some(node) = ends {
                drain::drain(&c, node, Duration::from_millis(limit)).await;
                let used = cluster_view::end(&c, node);
                wait_parted(&c, node, &used).await;
            }
            seat.deliver(GroupOrder::WritesObeyed(number)).await;
        });
        while self.obeyer.try_join_next().is_some() {}
    }
}

/// Cancel safe: the change may be made.
pub async fn store(seat: &GroupSeat, text: String) -> Done {
    match seat.request(GroupRequest::StoreText { text }).await {
        GroupAnswer::Done => Done::Yes,
        GroupAnswer::NotLeader | GroupAnswer::Refused | GroupAnswer::Busy => Done::No,
    }
}

/// Stores, and closes writes for all: `Done::Yes` once nobody writes any more. Cancel safe: writes may be closed.
pub async fn close_writes(seat: &GroupSeat, text: String) -> Done {
    let mut news = seat.watch();
    if seat.request(GroupRequest::CloseWrites { text }).await != GroupAnswer::Done {
        return Done::No;
    }
    loop {
        let view = news.borrow_and_update().clone();
        let closed = view.version.as_ref().and_then(|version| version.state.writes.closed());
        if closed.is_some() && view.stopped_epoch == closed {
            return Done::Yes;
        }
        if !view.leads(boot_now_ms()) || news.changed().await.is_err() {
            return Done::No;
        }
    }
}

fn version_term(view: &GroupView) -> u64 {
    view.version.as_ref().map_or(0, |version| version.state.term)
}

/// Ends once writes go to the node, or this member does not lead. Cancel safe: the change may be made.
async fn open_writes(seat: Arc<GroupSeat>, node: NodeId, text: String) {
    let mut news = seat.watch();
    loop {
        let view = news.borrow_and_update().clone();
        if !view.leads(boot_now_ms()) {
            return;
        }
        let Some(writes) = view.version.as_ref().map(|version| version.state.writes) else { return };
        let answer = match writes {
            GroupWrites::Open { node: open, .. } if open == node => return,
            GroupWrites::Open { .. } => seat.request(GroupRequest::CloseWrites { text: text.clone() }).await,
            GroupWrites::Closed { epoch } if view.stopped_epoch == Some(epoch) => {
                let words = format!("node {node} takes writes, in epoch {}", epoch + 1);
                let decision = Some(GroupDecision { term: version_term(&view), text: words });
                let request = GroupRequest::OpenWrites { epoch: epoch + 1, node, text: text.clone(), decision };
                seat.request(request).await
            }
            GroupWrites::Closed { .. } => GroupAnswer::Done,
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
