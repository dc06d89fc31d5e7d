//! Invariants of a group, looked at after each event: what its members may do in one instant of true time.

use std::collections::BTreeMap;
use std::sync::Arc;

use weir_failover::{DurableState, FailoverAction, NodeId};
use weir_group::{GroupState, HostNumber, StateVersion, VersionNumber};

use crate::member_host::MemberHost;
use crate::oracle::Broken;
use crate::world::World;

/// The newest state that any member knows to be decided, and those before it.
#[derive(Clone, Debug, Default)]
pub struct GroupDecisions {
    /// By their changes: a version that is proposed anew keeps its change and its state.
    decided: BTreeMap<u64, Arc<GroupState>>,
    newest: VersionNumber,
    change: u64,
    open: Option<(u64, NodeId)>,
    /// Nobody may write in an older epoch.
    stopped_before: u64,
    /// Of failover, as a leader that went on heard of.
    stored_term: u64,
}

impl World {
    /// A member knows that a version is decided.
    pub(crate) fn see_decided(&mut self, version: &StateVersion) {
        let state = &version.state;
        self.counts.terms = self.counts.terms.max(state.term);
        self.judge_decision(version);
        if state.change <= self.decisions.change {
            return;
        }
        let term = DurableState::parse(&state.failover).map_or(0, |durable| durable.term);
        if term < self.decisions.stored_term {
            self.needless.push(Broken::Forgotten { term: self.decisions.stored_term, at: self.now });
        }
        (self.decisions.change, self.decisions.open) = (state.change, state.writes.open());
    }

    /// No decision is made twice, and none is lost: each is made from the one before.
    fn judge_decision(&mut self, version: &StateVersion) {
        let (number, change) = (version.number, version.state.change);
        let GroupDecisions { decided, newest, change: last, .. } = &mut self.decisions;
        if let Some(before) = decided.get(&change.wrapping_sub(1)).filter(|_| !decided.contains_key(&change)) {
            self.counts.members_left += hosts_left(before, &version.state);
        }
        let first = decided.entry(change).or_insert_with(|| version.state.clone());
        let is_other = !Arc::ptr_eq(first, &version.state) && **first != *version.state;
        let is_lost = number > *newest && change < *last || number < *newest && change > *last;
        *newest = number.max(*newest);
        if is_other || is_lost {
            self.needless.push(Broken::DecidedTwice { change, at: self.now });
        }
    }

    /// True once the group is known to have decided something.
    pub(crate) fn has_decided(&self) -> bool {
        self.decisions.change > 0
    }

    /// A leader goes on with what it stored.
    pub(crate) fn see_stored(&mut self, at: usize) {
        let Some((text, _)) = self.weirs[at].host.as_ref().and_then(|host| host.last_text.as_ref()) else { return };
        let term = DurableState::parse(text).map_or(0, |durable| durable.term);
        self.decisions.stored_term = self.decisions.stored_term.max(term);
    }

    /// A leader knows that writes stopped.
    pub(crate) fn see_stopped(&mut self, epoch: u64) {
        self.decisions.stopped_before = self.decisions.stopped_before.max(epoch + 1);
    }

    /// A leader that has nothing under way knows a newer version than the one with its text: it still says that.
    pub(crate) fn judge_text(&mut self, at: usize) {
        let now = self.now;
        let Some(host) = self.member_host(at) else { return };
        let leads = host.sight(now).leads() && host.asked.is_empty();
        let (Some(version), Some((text, is_known))) = (&host.version, &mut host.last_text) else { return };
        let (is_kept, term) = (version.state.failover == *text, version.state.term);
        let is_gone = leads && *is_known && !is_kept;
        *is_known |= is_kept;
        if is_gone {
            self.needless.push(Broken::Forgotten { term, at: now });
        }
    }

    /// A client of a member hears of a success.
    pub(crate) fn judge_success(&mut self, weir: usize, node: NodeId) {
        let Some(host) = &self.weirs[weir].host else { return };
        let epoch = host.granted.1.map_or(0, |(epoch, _)| epoch);
        let is_replaced = self.decisions.open.is_some_and(|(_, open)| open != node);
        if is_replaced || epoch < self.decisions.stopped_before {
            self.needless.push(Broken::LateSuccess { weir, node, at: self.now });
        }
    }

    /// A member gives an order to a server.
    pub(crate) fn judge_order(&mut self, weir: usize, order: &FailoverAction) {
        let Some(host) = &self.weirs[weir].host else { return };
        if !matches!(order, FailoverAction::Probe { .. }) && !host.sight(self.now).leads() {
            self.needless.push(Broken::OrderWithoutLead { weir, at: self.now });
        }
    }

    /// An order to promote takes effect. That of a former leader, which no newer promise of the server refuses, makes a false primary: nobody writes to it.
    pub(crate) fn judge_promotion(&mut self, (by, order): (usize, u64), promoted: NodeId, is_refusable: bool) {
        let now = self.now;
        if self.servers[usize::from(promoted)].is_primary() {
            return;
        }
        let beside = (0..).zip(&self.weirs).find_map(|(weir, of)| {
            let (_, node) = of.host.as_deref()?.may_acknowledge(now)?;
            (node != promoted).then_some((weir, node))
        });
        let Some((weir, written)) = beside else { return };
        let leads = self.weirs[by].host.as_ref().is_some_and(|host| host.sight(now).leads());
        if leads && self.weirs[by].open.contains_key(&order) || is_refusable {
            self.needless.push(Broken::PromotedBeside { promoted, written, weir, at: now });
        } else {
            self.counts.late_promotions += 1;
        }
    }

    /// True if several may lead, or write to several nodes, whatever their clocks say. Asked for after each event.
    fn may_be_split(&self) -> bool {
        let (mut leaders, mut written, mut is_split) = (0, None, false);
        for host in self.weirs.iter().filter_map(|of| of.host.as_deref()) {
            leaders += u8::from(host.rights.leads.is_some());
            if let Some((_, node)) = host.granted.1 {
                is_split |= written.replace(node).is_some_and(|other| other != node);
            }
        }
        is_split || leaders > 1
    }

    /// Never two leaders, and never two nodes.
    pub(crate) fn look_at_group(&mut self) {
        if !self.may_be_split() {
            return;
        }
        let now = self.now;
        let (mut leader, mut written) = (None, None);
        let mut broken = None;
        for (weir, host) in (0..).zip(&self.weirs).filter_map(|(weir, of)| Some((weir, of.host.as_deref()?))) {
            if host.leads(now) {
                if let Some(first) = leader {
                    broken = Some(Broken::TwoLeaders { first, second: weir, at: now });
                }
                leader = Some(weir);
            }
            let Some((_, node)) = host.may_acknowledge(now) else { continue };
            if let Some(first) = written.filter(|first| *first != node) {
                broken = Some(Broken::TwoWritten { first, second: node, at: now });
            }
            written = Some(node);
        }
        if self.needless.len() < BROKEN_MAX {
            self.needless.extend(broken);
        }
    }

    /// The member that leads in this instant.
    pub(crate) fn leader(&self) -> Option<usize> {
        self.weirs.iter().position(|of| of.host.as_ref().is_some_and(|host| host.sight(self.now).leads()))
    }

    /// True if there is a leader, all members have a lease for this node, and no failover is under way.
    pub(crate) fn is_group_well(&self, primary: NodeId) -> bool {
        if self.weirs.iter().all(|of| of.host.is_none()) {
            return true;
        }
        let has_lease = |host: &MemberHost| host.may_acknowledge(self.now).is_some_and(|(_, node)| node == primary);
        let is_done = self.serving().all(|of| of.state.as_ref().is_some_and(|state| !state.stops_writes()));
        is_done && self.leader().is_some() && self.serving().all(|of| of.host.as_deref().is_some_and(has_lease))
    }
}

/// Hosts that stay after one state, and not after the next.
fn hosts_left(before: &GroupState, after: &GroupState) -> usize {
    let stays = |of: &GroupState, host: HostNumber| of.members.lasting().iter().any(|id| id.host == host);
    before.members.lasting().iter().filter(|id| !stays(after, id.host)).count()
}

/// Findings of one run that are kept.
pub const BROKEN_MAX: usize = 8;
