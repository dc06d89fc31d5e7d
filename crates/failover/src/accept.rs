//! The one primary: found, decided, or adopted from other Weirs; and when it gets writes.

use std::collections::BTreeSet;

use super::action::{FailoverAction, FailoverReport, OpenTransactionFate, WriteHoldReason};
use super::ballot::{self, Ballot, BallotPurpose, Epoch, NodeId, Vote};
use super::event::{LookFailure, Ms, ServerFacts};
use super::history::{HistorySource, Lsn, TimelineHistory, WalRelation};
use super::record::{CommitLoss, FailoverCause, FailoverDurations, FailoverRecord};
use super::rules::{FailoverMode, FailoverRules, OtherPromoters, QuorumSize, SafetyRule, SuccessorFinder};
use super::{promises, promoted_apart, switchover, sync};
use crate::failover_state::{DiskState, FailoverState, PrimaryKnowledge, PrimaryLog, WriteTarget};
use crate::node_state::{NodeStanding, NodeState, TimedFacts};

/// Several values of `synchronous_standby_names` were in force in turn.
const SEVERAL: &str = "(several)";

pub(super) struct PrimaryAcceptance {
    pub epoch: Epoch,
    /// `None`: found, or known as the parent of its successor's vote.
    pub vote: Option<Vote>,
    pub why: FailoverCause,
    pub parts: FailoverDurations,
    pub loss: CommitLoss,
}

pub(super) fn accept(
    state: &mut FailoverState,
    rules: &FailoverRules,
    new: PrimaryAcceptance,
    found: Option<ServerFacts>,
    now: Ms,
    out: &mut Vec<FailoverAction>,
) {
    let old = state.primary();
    let PrimaryAcceptance { epoch, vote, why, parts, loss } = new;
    let left = found.as_ref().and_then(|facts| state.told_relation(facts));
    let is_read = found.as_ref().is_some_and(|facts| facts.history.source == HistorySource::Read);
    let loss = match (loss, found.as_ref().filter(|_| is_read).zip(left)) {
        (CommitLoss::Unknown, Some((facts, left))) => shared_end(facts, left).map_or(loss, |position| state.loss_at(position)),
        (loss, _) => loss,
    };
    state.promises.term_seen = state.promises.term_seen.max(vote.map_or(epoch.ballot, |vote| vote.ballot).term);
    // A server on a new timeline, begun after a time as a standby, is a new primary with another log.
    let stays = old == Some(epoch.node) && !matches!(left, Some(WalRelation::Left(_)));
    let timeline = found.as_ref().map(|facts| facts.history.timeline);
    let alike = promoted_apart::alike(state, found.as_ref(), epoch.node);
    let apart_before = state.durable.apart.clone();
    state.change(|durable| {
        (durable.epoch, durable.vote) = (Some(epoch), vote);
        if let Some(old) = old.filter(|old| *old != epoch.node) {
            durable.given_up.insert(old);
        }
        durable.given_up.remove(&epoch.node);
        durable.false_primaries.remove(&epoch.node);
        promoted_apart::decided(durable, epoch.node, timeline, &alike);
        if !stays {
            durable.history = history_of(found.as_ref());
            durable.sync_names = found.as_ref().and_then(|facts| facts.sync_names.clone());
            durable.sync_names_before = None;
        }
    });
    for node in state.durable.apart.difference(&apart_before) {
        out.push(FailoverAction::Report(FailoverReport::PromotedApart { node: *node }));
    }
    if !stays {
        // A primary that stays gets writes whichever version a restart finds.
        state.store.accepted = state.store.version;
        begin_line(state, left, found.as_ref(), now);
        if let Some(node) = state.nodes.get_mut(&epoch.node) {
            if matches!(node.standing, NodeStanding::Down { .. } | NodeStanding::Quarantined { .. }) {
                node.standing = NodeStanding::Waiting;
            }
            if let Some(facts) = found.clone().filter(|_| why != FailoverCause::Adopted) {
                (node.incarnation_at, node.failure, node.dead) = (now, None, None);
                node.seen = Some(TimedFacts { begun_at: now, answered_at: now, facts });
            }
            node.look_anew(now);
        }
    }
    state.line.lost_at = None;
    // A Weir that asked a majority knows every newer decision; one that adopts must still hear from standbys.
    state.line.confirmed = found.as_ref().map(|facts| facts.started_at).filter(|_| why != FailoverCause::Adopted);
    (state.promises.since, state.stuck, state.planned.named, state.planned.failed_at) = (None, None, None, None);
    if !stays {
        // A decision found at the start is older, of unknown time.
        let is_earlier = why == FailoverCause::Adopted && state.store.life == PrimaryKnowledge::Blank;
        if is_earlier {
            state.records.clear();
        }
        let record = FailoverRecord {
            at: now,
            old: old.filter(|_| !is_earlier),
            new: epoch.node,
            ballot: epoch.ballot,
            why,
            parts,
            loss: if is_earlier { CommitLoss::Nothing } else { loss },
        };
        state.keep_record(record.clone());
        out.push(FailoverAction::Report(FailoverReport::Done(Box::new(record))));
        if old != Some(epoch.node) {
            super::duty::primary_changed(state, rules, old, now, out);
        }
    }
}

/// Position up to which a new primary has the log of the one before it; `None`: nobody knows. Another proxy may have accepted it a while ago, with its
/// history: then it is on the accepted line, and its log ends with writes of its own.
fn shared_end(facts: &ServerFacts, left: WalRelation) -> Option<Lsn> {
    match left {
        WalRelation::Left(end) => Some(end),
        WalRelation::Holds(position) if facts.is_primary() => {
            Some(facts.history.switches.last().map_or(position, |(_, begun)| position.min(*begun)))
        }
        WalRelation::Holds(position) => Some(position),
        WalRelation::Diverged | WalRelation::Foreign => None,
    }
}

/// Watches the log of a new primary. Samples of the shared log remain valid.
fn begin_line(state: &mut FailoverState, left: Option<WalRelation>, found: Option<&ServerFacts>, now: Ms) {
    let mut samples = std::mem::take(&mut state.line.samples);
    let shared = if let Some(WalRelation::Left(end)) = left { end } else { 0 };
    samples.retain(|(_, position)| *position <= shared);
    let server = found.map(|facts| facts.started_at);
    state.line = PrimaryLog { check_from: now, samples, server, heard_from: state.line.heard_from, ..PrimaryLog::default() };
}

/// Takes in votes on servers: decisions that this Weir missed, or that a majority shows.
pub(super) fn learn_votes(
    state: &mut FailoverState,
    rules: &FailoverRules,
    extra: &[Vote],
    now: Ms,
    out: &mut Vec<FailoverAction>,
) {
    let seen = |node: &NodeState| node.seen.as_ref().and_then(|seen| seen.facts.mark.vote);
    let of_nodes: Vec<(NodeId, Vote)> = state.nodes.iter().filter_map(|(id, node)| Some((*id, seen(node)?))).collect();
    let parents = of_nodes.iter().map(|(_, vote)| vote.parent).chain(extra.iter().map(|vote| vote.parent));
    let newest = parents.max_by_key(|parent| parent.ballot);
    let is_newer = |parent: &Epoch| state.epoch().is_none_or(|known| parent.ballot > known.ballot);
    let slept = newest.filter(is_newer);
    if let Some(parent) = slept.filter(|_| state.epoch().is_some() && rules.mode == FailoverMode::Builtin) {
        // The successor may be this Weir's old primary; the known log is dropped.
        adopt(state, rules, parent, None, now, out);
    }
    let Some(last) = slept.or(state.epoch()) else { return };
    if let Some(vote) = decided(state, rules, &last, &of_nodes) {
        if rules.mode == FailoverMode::Builtin || is_borne_out(state, &vote.epoch) {
            if state.epoch().is_none() && last.node != vote.epoch.node {
                state.change(|durable| durable.given_up.insert(last.node));
            }
            adopt(state, rules, vote.epoch, Some(vote), now, out);
        }
        return;
    }
    // No successor is known to be decided. Where Weir does not promote, roles decide.
    let is_asked = state.nodes.values().all(|node| node.looked_at.is_some());
    if state.epoch().is_none() && is_asked && rules.mode == FailoverMode::Builtin {
        adopt(state, rules, last, None, now, out);
    }
}

/// Returns the vote that decided on the successor of `last`.
fn decided(state: &FailoverState, rules: &FailoverRules, last: &Epoch, of_nodes: &[(NodeId, Vote)]) -> Option<Vote> {
    // With unknown synchronous standbys one vote is not enough.
    let is_accepted = state.epoch().is_some_and(|known| known.ballot == last.ballot);
    let quorum = if is_accepted { state.quorum(rules) } else { QuorumSize::Majority };
    let may_decide = |vote: &Vote| promises::may_decide(vote, last, quorum, state.durable.weir);
    let has_won = |vote: &Vote| {
        let stays = vote.epoch.node == vote.parent.node;
        let voters = if stays { vote.epoch.voters(rules.ids()) } else { vote.parent.voters(rules.ids()) };
        let for_it = of_nodes.iter().filter(|(id, of)| of == vote && (voters.contains(id) || quorum == QuorumSize::One));
        let needed = if quorum == QuorumSize::One { 1 } else { ballot::majority(voters.len()) };
        for_it.count() >= needed
    };
    of_nodes.iter().map(|(_, vote)| *vote).find(|vote| may_decide(vote) && has_won(vote))
}

/// True if the servers behave as decided in builtin mode. Where Weir does not promote, votes may be old.
fn is_borne_out(state: &FailoverState, epoch: &Epoch) -> bool {
    let Some(facts) = own_facts(state, epoch) else { return false };
    match state.primary() {
        Some(primary) if primary == epoch.node => true,
        Some(_) => matches!(state.told_relation(&facts), Some(WalRelation::Left(_))),
        None => {
            let is_older = |(id, node): (&NodeId, &NodeState)| {
                let other = node.facts().filter(|other| other.is_primary() && *id != epoch.node);
                other.is_none_or(|other| other.history.timeline < facts.history.timeline)
            };
            state.nodes.values().all(|node| node.looked_at.is_some()) && state.nodes.iter().all(is_older)
        }
    }
}

/// Facts from before its vote say nothing of the primary's log.
pub(super) fn own_facts(state: &FailoverState, epoch: &Epoch) -> Option<ServerFacts> {
    let has_vote = |facts: &&ServerFacts| facts.is_primary() && facts.mark.vote.is_some_and(|vote| vote.epoch == *epoch);
    state.facts(epoch.node).filter(has_vote).cloned()
}

pub(super) fn adopt(
    state: &mut FailoverState,
    rules: &FailoverRules,
    epoch: Epoch,
    vote: Option<Vote>,
    now: Ms,
    out: &mut Vec<FailoverAction>,
) {
    let found = own_facts(state, &epoch);
    let accepting = PrimaryAcceptance {
        epoch,
        vote,
        why: FailoverCause::Adopted,
        parts: FailoverDurations::default(),
        loss: CommitLoss::Unknown,
    };
    accept(state, rules, accepting, found, now, out);
}

/// Accepts a primary without votes.
pub(super) fn find(state: &mut FailoverState, rules: &FailoverRules, now: Ms, out: &mut Vec<FailoverAction>) {
    if let Some(node) = rules.always_primary() {
        if state.primary() != Some(node) {
            accept_found(state, rules, node, FailoverCause::Found, now, out);
        }
        return;
    }
    let primaries: Vec<NodeId> =
        state.nodes.iter().filter(|(_, node)| node.facts().is_some_and(ServerFacts::is_primary)).map(|(id, _)| *id).collect();
    if let Some(named) = state.planned.named.filter(|named| primaries.contains(named)) {
        accept_found(state, rules, named, FailoverCause::Named, now, out);
    } else if state.primary().is_none() {
        if let Some(first) = first(state, rules, &primaries) {
            accept_found(state, rules, first, FailoverCause::Found, now, out);
        }
    } else if rules.successors == SuccessorFinder::Sight
        && let Some((next, why)) = successor(state, rules, &primaries)
    {
        accept_found(state, rules, next, why, now, out);
    }
}

fn accept_found(
    state: &mut FailoverState,
    rules: &FailoverRules,
    node: NodeId,
    why: FailoverCause,
    now: Ms,
    out: &mut Vec<FailoverAction>,
) {
    let ballot = state.epoch().map_or(Ballot::default(), |epoch| epoch.ballot);
    let found = state.facts(node).cloned();
    let epoch = Epoch { ballot, ..Epoch::found(node) };
    let loss = if why == FailoverCause::Found { CommitLoss::Nothing } else { CommitLoss::Unknown };
    accept(
        state,
        rules,
        PrimaryAcceptance { epoch, vote: None, why, parts: FailoverDurations::default(), loss },
        found,
        now,
        out,
    );
    if why == FailoverCause::Found {
        // Newer decisions may still be found.
        state.line.confirmed = None;
        let begun_at = state.nodes.get(&node).and_then(|node| Some(node.seen.as_ref()?.begun_at));
        begun_at.into_iter().for_each(|at| learn_line(state, rules, node, at));
    }
}

/// Returns the only primary, or the only one with a follower, once all nodes were looked at.
fn first(state: &FailoverState, rules: &FailoverRules, primaries: &[NodeId]) -> Option<NodeId> {
    if state.nodes.values().any(|node| node.looked_at.is_none()) {
        return None;
    }
    let followers = |id: NodeId| {
        let follows = |node: &&NodeState| node.facts().is_some_and(|facts| facts.upstream() == Some(id));
        state.nodes.values().filter(follows).count()
    };
    let followed: Vec<NodeId> = primaries.iter().copied().filter(|id| followers(*id) > 0).collect();
    let first = match (primaries, followed.as_slice()) {
        ([only], _) | (_, [only]) => *only,
        _ => return None,
    };
    let has_company = rules.mode == FailoverMode::Builtin && rules.company == OtherPromoters::Possible;
    // With other Weirs, every majority must include a follower, and no node may have pledged.
    let is_virgin =
        state.nodes.values().all(|node| node.seen.as_ref().is_none_or(|seen| seen.facts.mark == ballot::Mark::default()));
    let needed = ballot::hearing(state.nodes.len().saturating_sub(1));
    (!has_company || (is_virgin && followers(first) >= needed)).then_some(first)
}

/// Returns the standby promoted from outside after the accepted primary is gone; without the rule, any primary on a higher timeline. The
/// accepted primary may return promoted again (Patroni does so at each restart of a leader); others take precedence.
fn successor(state: &FailoverState, rules: &FailoverRules, primaries: &[NodeId]) -> Option<(NodeId, FailoverCause)> {
    let timeline = state.history()?.timeline;
    let relation = |id: &&NodeId| state.facts(**id).and_then(|facts| state.relation(**id, facts));
    let descends = |id: &&NodeId| matches!(relation(id), Some(WalRelation::Left(_)));
    if !rules.keeps(SafetyRule::OnePrimary) {
        let is_higher = |id: &&NodeId| state.facts(**id).is_some_and(|facts| facts.history.timeline > timeline);
        return primaries.iter().filter(is_higher).find(descends).map(|id| (*id, FailoverCause::Named));
    }
    let by_others = rules.mode != FailoverMode::Builtin;
    let why = gone(state).or_else(|| detached_primary(state))?;
    // A promotion from outside may precede the end of the accepted primary.
    let is_named = matches!(rules.mode, FailoverMode::Follow | FailoverMode::Off);
    let is_false = |id: &&NodeId| !is_named && state.durable.false_primaries.contains(id);
    let others = primaries.iter().filter(|id| Some(**id) != state.primary());
    let ours = primaries.iter().filter(|id| Some(**id) == state.primary());
    // Servers may have swapped nodes. A copy started as a primary does not count.
    let is_itself = |facts: &ServerFacts| state.is_on_line(facts) && state.line.server == Some(facts.started_at);
    let moved = others.clone().filter(|id| state.facts(**id).is_some_and(is_itself));
    let next = others.chain(ours).filter(descends).chain(moved).find(|id| !is_false(id))?;
    // With one server Weir has no other to promote.
    (by_others || state.nodes.len() == 1).then_some((*next, why))
}

/// Returns why the accepted primary is gone, if so.
pub(super) fn gone(state: &FailoverState) -> Option<FailoverCause> {
    let node = state.nodes.get(&state.primary()?)?;
    match (node.standing, node.facts()) {
        // A falling server ends connections before it refuses them: the last look counts.
        (NodeStanding::Down { why: super::action::NodeDownReason::Failed(first), .. }, None) => {
            Some(FailoverCause::Died(node.failure.filter(|failure| failure.is_death()).unwrap_or(first)))
        }
        // Facts from before its promotion do not count.
        (NodeStanding::Down { .. } | NodeStanding::Waiting | NodeStanding::Up, Some(facts))
            if node.seen.as_ref().is_some_and(|seen| seen.begun_at >= state.line.check_from) =>
        {
            let is_another =
                !facts.is_primary() || matches!(state.told_relation(facts), Some(WalRelation::Left(_) | WalRelation::Diverged));
            is_another.then_some(FailoverCause::Demoted)
        }
        _ => None,
    }
}

/// A detached primary may be replaced while it runs: `failover_command` runs then.
fn detached_primary(state: &FailoverState) -> Option<FailoverCause> {
    let node = state.nodes.get(&state.primary()?)?;
    (node.standing == NodeStanding::Detached).then_some(FailoverCause::Named)
}

pub(super) fn note_false_primaries(state: &mut FailoverState, rules: &FailoverRules, out: &mut Vec<FailoverAction>) {
    let Some(epoch) = state.epoch() else { return };
    if state.attempt.is_some() || state.facts(epoch.node).is_none_or(|facts| !state.is_on_line(facts)) {
        return;
    }
    let known = state.durable.false_primaries.clone();
    let is_false = |(id, node): &(&NodeId, &NodeState)| {
        let is_one = |facts: &ServerFacts| facts.is_primary() && facts.mark.is_settled(&epoch);
        **id != epoch.node && node.facts().is_some_and(is_one)
    };
    let now_false: Vec<NodeId> = state.nodes.iter().filter(is_false).map(|(id, _)| *id).collect();
    for id in now_false.into_iter().filter(|id| !known.contains(id) && rules.keeps(SafetyRule::OnePrimary)) {
        state.change(|durable| durable.false_primaries.insert(id));
        out.push(FailoverAction::Report(FailoverReport::FalsePrimary { node: id }));
    }
    let follows_again = |id: &NodeId| state.facts(*id).is_some_and(|facts| !facts.is_primary());
    for id in known.into_iter().filter(follows_again).collect::<Vec<_>>() {
        state.change(|durable| durable.false_primaries.remove(&id));
    }
}

/// Takes in the log and synchronous standbys found by a look at the primary.
pub(super) fn learn_line(state: &mut FailoverState, rules: &FailoverRules, node: NodeId, begun_at: Ms) {
    if state.primary() != Some(node) {
        return;
    }
    let Some(facts) = state.facts(node).cloned() else { return };
    let is_better = |known: &TimelineHistory| {
        (known.source, facts.history.source) == (HistorySource::Assumed, HistorySource::Read) && state.is_on_line(&facts)
    };
    if facts.is_primary() && begun_at >= state.line.check_from && state.history().is_none_or(is_better) {
        state.change(|durable| durable.history = Some(facts.history.clone()));
    }
    if !state.is_on_line(&facts) {
        return;
    }
    state.sample(begun_at, facts.position);
    (state.line.lost_at, state.line.server) = (None, Some(facts.started_at));
    state.line.strangers = facts.followers.iter().filter(|follower| follower.node.is_none()).count();
    let Some(names) = &facts.sync_names else { return };
    if state.durable.sync_names.as_ref() != Some(names) {
        state.line.sync_changed_at = facts.position;
        state.change(|durable| {
            let before = durable.sync_names.replace(names.clone()).filter(|before| !before.is_empty() && !names.is_empty());
            durable.sync_names_before = match (durable.sync_names_before.take(), before) {
                (Some(_), Some(_)) => Some(SEVERAL.into()),
                (older, before) => older.or(before).filter(|_| !names.is_empty()),
            };
        });
    } else if state.durable.sync_names_before.is_some() && acknowledged(rules, &facts, node) >= state.line.sync_changed_at {
        state.change(|durable| durable.sync_names_before = None);
    }
}

/// Returns the position certainly acknowledged by the rule in force.
fn acknowledged(rules: &FailoverRules, facts: &ServerFacts, primary: NodeId) -> Lsn {
    let Ok(Some(rule)) = sync::parse(facts.sync_names.as_deref().unwrap_or_default()) else { return 0 };
    let who = rule.acknowledgers(&rules.names(), primary);
    let mut flushed: Vec<Lsn> = facts
        .followers
        .iter()
        .filter(|follower| follower.is_streaming && follower.node.is_some_and(|id| who.nodes.contains(&id)))
        .map(|follower| follower.flushed)
        .collect();
    flushed.sort_unstable_by(|a, b| b.cmp(a));
    flushed.get(who.acks - 1).copied().unwrap_or(0)
}

/// Confirms the primary once enough standbys were heard since its last start to exclude a newer decision.
pub(super) fn confirm(state: &mut FailoverState, rules: &FailoverRules, now: Ms) {
    let Some(epoch) = state.epoch() else { return };
    let Some(primary) = state.nodes.get(&epoch.node) else { return };
    let Some(started_at) = primary.facts().map(|facts| facts.started_at) else { return };
    if state.line.confirmed == Some(started_at) {
        return;
    }
    let from = primary.incarnation_at.max(state.line.heard_from);
    // The replaced node may vote again unnoticed: enough must be heard with and without it.
    let voters = epoch.voters(rules.ids());
    let others = Epoch { replaced: None, ..epoch }.voters(rules.ids());
    let is_heard =
        |id: &&NodeId| state.nodes.get(id).is_some_and(|node| node.seen.as_ref().is_some_and(|seen| seen.begun_at >= from));
    let are_heard = |of: &BTreeSet<NodeId>| of.iter().filter(is_heard).count() >= ballot::hearing(of.len());
    let needs_none =
        rules.mode != FailoverMode::Builtin || state.quorum(rules) == QuorumSize::One || !rules.keeps(SafetyRule::Confirm);
    if needs_none || (are_heard(&voters) && are_heard(&others)) {
        state.line.confirmed = Some(started_at);
        return;
    }
    for id in others {
        if let Some(node) = state.nodes.get_mut(&id).filter(|node| !node.was_looked_at_since(from)) {
            node.look_anew(now);
        }
    }
}

pub(super) fn history_of(found: Option<&ServerFacts>) -> Option<TimelineHistory> {
    found.map(|facts| facts.history.clone())
}

/// Returns where writes may go now.
pub(super) fn gate(state: &FailoverState, rules: &FailoverRules) -> WriteTarget {
    let end = if rules.keeps(SafetyRule::EndTransactions) { OpenTransactionFate::End } else { OpenTransactionFate::Go };
    let held = |why| WriteTarget::Held(why, end);
    let waits = |why| WriteTarget::Held(why, OpenTransactionFate::Go);
    let Some(epoch) = state.epoch() else { return waits(WriteHoldReason::NoPrimary) };
    let Some(node) = state.nodes.get(&epoch.node) else { return held(WriteHoldReason::Gone) };
    match node.standing {
        NodeStanding::Down { why: super::action::NodeDownReason::Foreign, .. } => return held(WriteHoldReason::Foreign),
        NodeStanding::Down { .. } => return held(WriteHoldReason::Gone),
        NodeStanding::Quarantined { .. } => return held(WriteHoldReason::Quarantined),
        NodeStanding::Detached | NodeStanding::Recovering => return held(WriteHoldReason::Detached),
        NodeStanding::Waiting | NodeStanding::Up => {}
    }
    if let Some(gate) = switchover::gate(state) {
        return gate;
    }
    if state.is_kept_dead(rules, epoch.node) {
        // No node replaces this one, so its transactions need not end. Reads go elsewhere.
        return waits(WriteHoldReason::Gone);
    }
    // If nothing was ever stored, this Weir decided nothing: a restart would find this primary again.
    let is_behind = state.store.stored < state.store.accepted && state.store.disk != DiskState::Refuses;
    if is_behind && rules.keeps(SafetyRule::StoreFirst) {
        return waits(WriteHoldReason::Unconfirmed);
    }
    if rules.always_primary() == Some(epoch.node) {
        return WriteTarget::Open { node: epoch.node, started_at: None };
    }
    let own = state.attempt.as_ref().filter(|attempt| attempt.leaves_writes()).map(|attempt| attempt.ballot);
    if state.attempt.is_some() && own.is_none() {
        return held(WriteHoldReason::Replaced);
    }
    let is_void = |ballot| Some(ballot) == own || promises::is_void(state, ballot);
    let promise = promises::unsettled(state, rules, &epoch, |id| Some(id) != epoch.replaced, is_void);
    if let Some(promise) = promise.filter(|_| rules.mode == FailoverMode::Builtin && rules.keeps(SafetyRule::SeenPromise)) {
        return match promise.purpose() {
            BallotPurpose::Failover => held(WriteHoldReason::Replaced),
            // Transactions under way may end: their log reaches the standbys before the primary stops.
            BallotPurpose::Switchover | BallotPurpose::Tend => waits(WriteHoldReason::Replaced),
        };
    }
    let Some(seen) = &node.seen else { return waits(WriteHoldReason::Unconfirmed) };
    if !state.is_on_line(&seen.facts) {
        let is_foreign = state.told_relation(&seen.facts) == Some(WalRelation::Foreign);
        return held(if is_foreign { WriteHoldReason::Foreign } else { WriteHoldReason::Another });
    }
    if seen.facts.is_read_only && state.durable.fenced.contains_key(&epoch.node) {
        return waits(WriteHoldReason::Another);
    }
    // A mute server still answers, but new connections must be to the accepted start.
    let is_checked = seen.begun_at >= state.line.check_from
        || node.failure.is_some_and(LookFailure::is_mute) && node.was_looked_at_since(state.line.check_from);
    if !is_checked {
        return waits(WriteHoldReason::Checked);
    }
    if state.line.confirmed != Some(seen.facts.started_at) {
        return waits(WriteHoldReason::Unconfirmed);
    }
    let has_company = rules.mode == FailoverMode::Builtin && state.quorum(rules) == QuorumSize::Majority;
    WriteTarget::Open { node: epoch.node, started_at: Some(seen.facts.started_at).filter(|_| has_company) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{RecoveryState, WalReceiverState};

    #[test]
    fn writes_of_a_new_primary_are_not_taken_for_those_of_the_one_before() {
        let history = TimelineHistory { system: 7, timeline: 2, switches: vec![(1, 90)], source: HistorySource::Read };
        let primary = ServerFacts { history, recovery: RecoveryState::Primary, position: 140, ..ServerFacts::default() };
        let before = TimelineHistory { system: 7, timeline: 1, switches: Vec::new(), source: HistorySource::Read };
        let relation = |accepted: &TimelineHistory| primary.history.relation(primary.position, accepted);
        assert_eq!(shared_end(&primary, relation(&before)), Some(90));
        // Another proxy has accepted it before, and it got writes.
        assert_eq!(relation(&primary.history), WalRelation::Holds(140));
        assert_eq!(shared_end(&primary, WalRelation::Holds(140)), Some(90));
        let recovery = RecoveryState::Standby { upstream: None, stream: WalReceiverState::Off };
        let standby = ServerFacts { position: 80, recovery, ..ServerFacts::default() };
        assert_eq!(shared_end(&standby, WalRelation::Holds(80)), Some(80));
        assert_eq!(shared_end(&standby, WalRelation::Foreign), None);
    }
}
