//! Work while a primary is accepted: fences, standbys without upstream, returning nodes, commands.

use super::action::{FailoverAction, FailoverCommandKind, FailoverReport, NodeDownReason};
use super::ballot::{self, Ballot, NodeId};
use super::escapes::{self, CommandEscapes};
use super::event::{Done, Ms, RecoveryState, ServerFacts, WalReceiverState};
use super::history::WalRelation;
use super::operations::{AttemptAim, RejoinProgress};
use super::record::FailoverCause;
use super::rules::{FailbackMode, FailoverMode, FailoverRules, QuorumSize, SafetyRule};
use super::{choose, eligible, promises};
use crate::failover_state::{FailoverState, StreamInterruption};
use crate::node_state::{NodeStanding, NodeState, WakeOrder};

const FENCE_MS: Ms = 5_000;
const REPOINT_MS: Ms = 5_000;
/// Time after a primary's return in which standbys are woken. A try has no effect on a standby that looks for the primary just then, and
/// afterwards waits for `wal_retrieve_retry_interval`.
const WAKE_MS: Ms = 60_000;
const RETRY_MS: Ms = 2_000;
const COMMAND_MS: Ms = 600_000;
const COMMANDS_MAX: usize = 128;

/// One task per node at a time.
pub(super) fn work(state: &mut FailoverState, rules: &FailoverRules, now: Ms, out: &mut Vec<FailoverAction>) {
    let Some(epoch) = state.epoch() else { return };
    if rules.mode != FailoverMode::Builtin || state.attempt.is_some() || promises::newer_promise(state).is_some() {
        return;
    }
    let is_free = |(_, node): &(&NodeId, &NodeState)| node.busy_until <= now && node.facts().is_some();
    // The primary itself is only let write again.
    let may_need = |(id, node): &(&NodeId, &NodeState)| {
        **id != epoch.node || node.facts().is_some_and(|facts| facts.is_read_only || !facts.is_primary())
    };
    let ids: Vec<NodeId> = state.nodes.iter().filter(is_free).filter(may_need).map(|(id, _)| *id).collect();
    for id in ids {
        let Some(facts) = state.facts(id).cloned() else { continue };
        let done = if facts.is_primary() && id != epoch.node {
            fence(state, id, &facts, out)
        } else if facts.is_read_only && state.durable.fenced.contains_key(&id) && rules.keeps(SafetyRule::Unfence) {
            out.push(FailoverAction::Unfence { node: id, limit_ms: FENCE_MS });
            true
        } else if !facts.is_primary() {
            follow(state, id, &facts, out) || point(state, id, &facts, out) || wake(state, id, &facts, now, out)
        } else {
            false
        };
        if let Some(node) = state.nodes.get_mut(&id).filter(|_| done) {
            node.busy_until = now + RETRY_MS;
        }
    }
    restore_vote(state, rules, now);
}

/// Makes a given-up primary read only. The fence is on disk before, so that Weir can undo it.
fn fence(state: &mut FailoverState, id: NodeId, facts: &ServerFacts, out: &mut Vec<FailoverAction>) -> bool {
    if !state.durable.given_up.contains(&id) || facts.is_read_only {
        return false;
    }
    let ballot = state.durable.vote.map(|vote| vote.ballot).filter(|ballot| facts.mark.promised <= *ballot);
    let Some(ballot) = ballot else { return false };
    if state.durable.fenced.get(&id) != Some(&ballot) {
        state.change(|durable| durable.fenced.insert(id, ballot));
    }
    if !state.is_stored() {
        return false;
    }
    out.push(FailoverAction::Fence { node: id, ballot, limit_ms: FENCE_MS });
    true
}

/// Points a standby at the primary if it lacks the decided vote or follows another node.
fn follow(state: &mut FailoverState, id: NodeId, facts: &ServerFacts, out: &mut Vec<FailoverAction>) -> bool {
    let (Some(epoch), Some(vote)) = (state.epoch(), state.durable.vote) else { return false };
    if state.durable.given_up.contains(&id) && !facts.is_read_only {
        state.change(|durable| durable.given_up.remove(&id));
    }
    let has_vote = facts.mark.vote.is_some_and(|vote| vote.epoch == epoch);
    let is_there = has_vote && facts.upstream() == Some(epoch.node);
    if is_there || facts.mark.promised > vote.ballot || !matches!(state.relation(id, facts), Some(WalRelation::Holds(_))) {
        return false;
    }
    out.push(FailoverAction::Repoint { node: id, vote, limit_ms: REPOINT_MS });
    true
}

fn dead_upstream(state: &FailoverState, facts: &ServerFacts) -> Option<NodeId> {
    let RecoveryState::Standby { upstream: Some(upstream), stream: WalReceiverState::Off } = facts.recovery else { return None };
    let is_dead = state.nodes.get(&upstream).is_some_and(|node| node.dead.is_some());
    (is_dead && Some(upstream) != state.primary()).then_some(upstream)
}

pub(super) fn note_orphans(state: &mut FailoverState, out: &mut Vec<FailoverAction>) {
    let seen = state.nodes.iter().filter_map(|(id, node)| Some((*id, node.orphan_of, dead_upstream(state, node.facts()?))));
    let found: Vec<(NodeId, Option<NodeId>)> =
        seen.filter(|(_, before, upstream)| before != upstream).map(|(id, _, upstream)| (id, upstream)).collect();
    for (id, upstream) in found {
        let Some(node) = state.nodes.get_mut(&id) else { continue };
        node.orphan_of = upstream;
        if let Some(upstream) = upstream {
            out.push(FailoverAction::Report(FailoverReport::Orphaned { node: id, upstream }));
        }
    }
}

/// Points a standby with a dead upstream at the primary, where no vote does.
fn point(state: &FailoverState, id: NodeId, facts: &ServerFacts, out: &mut Vec<FailoverAction>) -> bool {
    let Some(epoch) = state.epoch() else { return false };
    let is_fit = facts.mark.promised <= epoch.ballot && matches!(state.relation(id, facts), Some(WalRelation::Holds(_)));
    let has_primary = state.facts(epoch.node).is_some_and(|primary| state.is_on_line(primary));
    if state.durable.vote.is_some() || !is_fit || !has_primary || dead_upstream(state, facts).is_none() {
        return false;
    }
    out.push(FailoverAction::Point { node: id, primary: epoch.node, ballot: epoch.ballot, limit_ms: REPOINT_MS });
    true
}

/// Wakes standbys after the primary's return, ever less often and for a minute: the stream may fail for another reason.
fn wake(state: &mut FailoverState, id: NodeId, facts: &ServerFacts, now: Ms, out: &mut Vec<FailoverAction>) -> bool {
    let (Some(primary), StreamInterruption::OverAt(over_at)) = (state.primary(), state.line.trouble) else { return false };
    let Some(node) = state.nodes.get_mut(&id) else { return false };
    let is_seen = node.seen.as_ref().is_some_and(|seen| seen.begun_at >= over_at);
    let waits = facts.recovery == RecoveryState::Standby { upstream: Some(primary), stream: WalReceiverState::Off };
    let is_early = node.woken.is_some_and(|woken| woken.over_at == over_at && now < woken.again_at);
    let is_due = is_seen && waits && now < over_at + WAKE_MS && !is_early;
    if is_due {
        node.woken = Some(WakeOrder { over_at, again_at: now + RETRY_MS.max(now - over_at) });
        out.push(FailoverAction::Wake { node: id, limit_ms: REPOINT_MS });
    }
    is_due
}

/// Lets the replaced node vote again: with an even number of voters one more raises the failures survived.
fn restore_vote(state: &mut FailoverState, rules: &FailoverRules, now: Ms) {
    let Some(epoch) = state.epoch() else { return };
    let Some(replaced) = epoch.replaced else { return };
    let streams =
        |facts: &ServerFacts| matches!(facts.recovery, RecoveryState::Standby { stream: WalReceiverState::On { .. }, .. });
    // A node with a newer promise of a failed attempt gets its upstream by the vote.
    let is_ready = |facts: &ServerFacts| {
        if facts.mark.is_settled(&epoch) {
            facts.upstream() == Some(epoch.node) && streams(facts)
        } else {
            !facts.is_primary() && matches!(state.relation(replaced, facts), Some(WalRelation::Holds(_)))
        }
    };
    let follows = state.facts(replaced).is_some_and(is_ready);
    let is_fine = state.facts(epoch.node).is_some_and(|facts| state.is_on_line(facts));
    let voters = epoch.voters(rules.ids());
    let are_there = voters.iter().filter(|id| state.facts(**id).is_some()).count() + 1 >= ballot::majority(voters.len() + 1);
    let helps = voters.len().is_multiple_of(2) && state.quorum(rules) == QuorumSize::Majority;
    if helps && follows && is_fine && are_there && now >= state.retry_at {
        state.begin_attempt(rules, AttemptAim::RestoreVote, FailoverCause::Adopted, now);
    }
}

pub(super) fn forget_fences(state: &mut FailoverState) {
    let is_over = |(id, ballot): &(&NodeId, &Ballot)| {
        state.facts(**id).is_some_and(|facts| !facts.is_read_only && facts.mark.promised > **ballot)
    };
    let over: Vec<NodeId> = state.durable.fenced.iter().filter(is_over).map(|(id, _)| *id).collect();
    for id in over {
        state.change(|durable| durable.fenced.remove(&id));
    }
}

pub(super) fn fenced(state: &mut FailoverState, node: NodeId, now: Ms) {
    if let Some(node) = state.nodes.get_mut(&node) {
        node.look_anew(now);
    }
}

/// Attaches nodes that stream again if configured; else reports each to the operator once.
pub(super) fn fail_back(state: &mut FailoverState, rules: &FailoverRules, now: Ms, out: &mut Vec<FailoverAction>) {
    let Some(epoch) = state.epoch() else { return };
    let due = |interval: Ms| state.failback_at.is_none_or(|last| now >= last + interval);
    let is_down = |(_, node): &(&NodeId, &NodeState)| matches!(node.standing, NodeStanding::Down { .. });
    let ids: Vec<NodeId> = state.nodes.iter().filter(is_down).map(|(id, _)| *id).collect();
    for id in ids {
        let Some(node) = state.nodes.get(&id) else { continue };
        let NodeStanding::Down {
            why:
                why @ (NodeDownReason::Failed(_) | NodeDownReason::Following | NodeDownReason::Apart | NodeDownReason::StatusFile),
            ..
        } = node.standing
        else {
            continue;
        };
        let Some(facts) = node.facts() else { continue };
        let is_primary = id == epoch.node && state.is_on_line(facts);
        let follows = !facts.is_primary() && matches!(state.relation(id, facts), Some(WalRelation::Holds(_)));
        // A cascaded standby is enough where Weir does not control upstreams.
        let streams = follows && (rules.mode != FailoverMode::Builtin || facts.upstream() == Some(epoch.node));
        // Without health checks only live traffic took the node out.
        let by_itself = !matches!(why, NodeDownReason::StatusFile | NodeDownReason::Apart)
            && rules.node(id).is_some_and(|node| node.health.period_ms == 0);
        let by_rule =
            matches!(rules.failback, FailbackMode::Auto { interval_ms } if due(interval_ms)) && facts.silent_ms().is_some();
        let by_agent = super::rejoin::is_back(state, rules, id);
        if is_primary || (streams && (by_itself || by_rule || by_agent)) {
            if !is_primary && !by_itself {
                state.failback_at = Some(now);
            }
            attach(state, rules, id, out);
            break;
        }
        let is_brought = state.planned.switchover.is_some() || matches!(node.rejoin, RejoinProgress::UnderWay { .. });
        let waits = streams && facts.silent_ms().is_some() && rules.failback == FailbackMode::ByOperator && !is_brought;
        let started_at = facts.started_at;
        if let Some(node) = state.nodes.get_mut(&id).filter(|node| waits && node.told_unused != Some(started_at)) {
            node.told_unused = Some(started_at);
            out.push(FailoverAction::Report(FailoverReport::Unused { node: id }));
        }
    }
}

pub(super) fn attach(state: &mut FailoverState, rules: &FailoverRules, id: NodeId, out: &mut Vec<FailoverAction>) {
    let Some(node) = state.nodes.get_mut(&id) else { return };
    node.standing = NodeStanding::Waiting;
    state.change(|durable| {
        durable.detached.remove(&id);
        durable.apart.remove(&id);
    });
    out.push(FailoverAction::Report(FailoverReport::Attached { node: id }));
    let new = state.primary().or_else(|| main(state));
    let line = command_line(rules, &rules.commands.failback, id, new, state.primary());
    enqueue(state, FailoverCommandKind::Failback, id, line);
    write_status(state, rules, out);
}

/// Puts a server out of use.
pub(super) fn put_down(
    state: &mut FailoverState,
    rules: &FailoverRules,
    id: NodeId,
    why: NodeDownReason,
    now: Ms,
    out: &mut Vec<FailoverAction>,
) {
    let Some(node) = state.nodes.get_mut(&id).filter(|node| !matches!(node.standing, NodeStanding::Down { .. })) else { return };
    node.standing = NodeStanding::Down { why, since: now };
    let was_up = node.seen.is_some() || state.primary() == Some(id);
    out.push(FailoverAction::Report(FailoverReport::Degenerated { node: id, why }));
    if !was_up {
        return absent(state, rules, id, out);
    }
    let new = if state.primary() == Some(id) { likely(state, rules) } else { None };
    lost(state, rules, id, new, out);
}

/// By the last looks.
pub(super) fn likely(state: &FailoverState, rules: &FailoverRules) -> Option<NodeId> {
    let facts = state.nodes.iter().filter(|(_, node)| node.is_in_use()).filter_map(|(id, node)| Some((*id, node.facts()?)));
    let standbys = facts.filter(|(id, _)| Some(*id) != state.primary());
    let candidates = eligible::candidates(state, rules, standbys).ok()?;
    let any = FailoverRules { lag_bytes_max: None, lag_ms_max: None, ..rules.clone() };
    choose::choose(&any, &choose::SyncStandbyKnowledge::Asynchronous, &candidates, &[]).ok().map(|choice| choice.node)
}

pub(super) fn lost(
    state: &mut FailoverState,
    rules: &FailoverRules,
    id: NodeId,
    new: Option<NodeId>,
    out: &mut Vec<FailoverAction>,
) {
    write_status(state, rules, out);
    if rules.mode == FailoverMode::Command {
        let new = if state.primary() == Some(id) { new } else { main(state) };
        let line = command_line(rules, &rules.commands.failover, id, new, state.primary());
        enqueue(state, FailoverCommandKind::Failover, id, line);
    }
}

/// No command for a node that never answered: a script could promote another for it.
pub(super) fn absent(state: &mut FailoverState, rules: &FailoverRules, id: NodeId, out: &mut Vec<FailoverAction>) {
    write_status(state, rules, out);
    if rules.mode == FailoverMode::Command && !rules.commands.failover.is_empty() {
        out.push(FailoverAction::Report(FailoverReport::CommandLeftOut { node: id }));
    }
}

/// All other nodes follow the new primary in turn.
pub(super) fn primary_changed(
    state: &mut FailoverState,
    rules: &FailoverRules,
    old: Option<NodeId>,
    now: Ms,
    out: &mut Vec<FailoverAction>,
) {
    let Some(new) = state.primary() else { return };
    if rules.mode != FailoverMode::Command || rules.commands.follow_primary.is_empty() || old.is_none() {
        return;
    }
    let others: Vec<NodeId> = state.nodes.keys().copied().filter(|id| *id != new).collect();
    for id in others {
        let line = command_line(rules, &rules.commands.follow_primary, id, Some(new), old);
        enqueue(state, FailoverCommandKind::FollowPrimary, id, line);
        if let Some(node) = state.nodes.get_mut(&id).filter(|node| node.is_in_use()) {
            node.standing = NodeStanding::Down { why: NodeDownReason::Following, since: now };
        }
    }
    write_status(state, rules, out);
}

fn command_line(rules: &FailoverRules, text: &str, of: NodeId, new: Option<NodeId>, old: Option<NodeId>) -> String {
    escapes::expand(text, rules, &CommandEscapes { node: of, new_main: new, old_main: old, old_primary: old })
}

/// The first one in use, as in Pgpool.
fn main(state: &FailoverState) -> Option<NodeId> {
    state.nodes.iter().find(|(_, node)| node.is_in_use()).map(|(id, _)| *id)
}

fn enqueue(state: &mut FailoverState, kind: FailoverCommandKind, node: NodeId, line: String) {
    if !line.is_empty() && state.commands.waiting.len() < COMMANDS_MAX {
        state.commands.waiting.push_back((kind, node, line));
    }
}

pub(super) fn run_commands(state: &mut FailoverState, out: &mut Vec<FailoverAction>) {
    if state.commands.running.is_some() {
        return;
    }
    let Some((kind, node, line)) = state.commands.waiting.pop_front() else { return };
    state.commands.number += 1;
    state.commands.running = Some((state.commands.number, kind, node));
    out.push(FailoverAction::RunCommand { number: state.commands.number, kind, line, limit_ms: COMMAND_MS });
}

pub(super) fn command_ended(state: &mut FailoverState, number: u64, done: Done, now: Ms, out: &mut Vec<FailoverAction>) {
    let Some((_, kind, node)) = state.commands.running.take_if(|(running, ..)| *running == number) else { return };
    if done == Done::No {
        out.push(FailoverAction::Report(FailoverReport::CommandFailed { kind, node }));
        if kind == FailoverCommandKind::Failover && state.primary() == Some(node) && state.planned.named.is_some() {
            state.planned.failed_at = Some(now);
        }
    }
    for node in state.nodes.values_mut() {
        node.look_anew(now);
    }
}

/// Attaches the primary again after a failed command, unless its successor was promoted anyway.
pub(super) fn take_back(state: &mut FailoverState, rules: &FailoverRules, out: &mut Vec<FailoverAction>) {
    let (Some(named), Some(failed_at)) = (state.planned.named, state.planned.failed_at) else { return };
    let is_seen = state.nodes.get(&named).is_none_or(|node| node.was_looked_at_since(failed_at));
    if is_seen && !state.facts(named).is_some_and(ServerFacts::is_primary) {
        (state.planned.named, state.planned.failed_at) = (None, None);
        let old = state.primary().filter(|id| state.nodes.get(id).is_some_and(|node| node.standing == NodeStanding::Detached));
        old.into_iter().for_each(|id| attach(state, rules, id, out));
    }
}

pub(super) fn write_status(state: &FailoverState, rules: &FailoverRules, out: &mut Vec<FailoverAction>) {
    if let Some(text) = super::status_file::show(rules.ids().map(|id| (id, !state.is_out(rules, id)))) {
        out.push(FailoverAction::WriteStatus { text });
    }
}
