//! One event in, actions out.

use std::collections::BTreeSet;

use super::action::{FailoverAction, FailoverReport, NodeDownReason, OpenTransactionFate, WriteHoldReason};
use super::ballot::{Ballot, BallotPurpose, NodeId};
use super::choose::AttemptRefusal;
use super::event::{Done, FailoverEvent, LookFailure, Ms, NodeCopyStage, OperatorRequest, ProbeResult, ServerConnEnd};
use super::health::{HealthVerdict, LoginLateness, RECHECK_MS};
use super::history::WalRelation;
use super::operations::{AttemptAim, FailoverAttempt};
use super::record::FailoverCause;
use super::rules::{FailoverMode, FailoverRules, FalsePrimary, GroupRole, QuorumSize, SafetyRule, ServerRelation};
use super::{
    accept, another, attempt, duty, eligible, group_part, promises, promoted_apart, rejoin, restart, switchover, unrelated,
};
use crate::agent_inquiry::{self, AgentReachability};
use crate::failover_state::{self, DiskState, FailoverState, PrimaryKnowledge, PrimarySearch, StreamInterruption, WriteTarget};
use crate::node_state::{LookSchedule, NodeStanding, NodeState, TimedFacts};

/// Longest time between two looks in trouble.
const UNQUIET_MS: Ms = 1_000;
const QUIET_MS: Ms = 10_000;
/// Time for standbys to say if they hear a primary that this Weir does not.
const HEARSAY_MS: Ms = 2_000;
/// A sender speaks every half `wal_sender_timeout`, 30 s by default.
const SILENCE_MS: Ms = 35_000;
/// Time for another Weir to end what it began.
const OTHERS_MS: Ms = 3_000;
/// In a switchover, before the primary is gone: `switchover_transaction_limit`, at most so long, and then the stop.
const OTHERS_DRAIN_MS: Ms = 60_000;
const OTHERS_STOP_MS: Ms = 30_000;
const STORE_RETRY_MS: Ms = 1_000;
/// Time without a login after which a server that answers only on open connections is reported; slow logins get through.
const LATE_MS: Ms = 60_000;
/// Longest look to confirm a primary's death.
const PROOF_MS: Ms = 500;

/// Deterministic.
pub fn step(state: &mut FailoverState, rules: &FailoverRules, event: &FailoverEvent, now: Ms) -> Vec<FailoverAction> {
    let mut out = Vec::new();
    take_in(state, rules, event, now, &mut out);
    conclude(state, rules, now, &mut out);
    out
}

fn take_in(state: &mut FailoverState, rules: &FailoverRules, event: &FailoverEvent, now: Ms, out: &mut Vec<FailoverAction>) {
    match event {
        FailoverEvent::Timer => {}
        FailoverEvent::Probed { node, begun_at, found } => probed(state, rules, (*node, *begun_at), found, now, out),
        FailoverEvent::ConnDied { node, how } => conn_died(state, rules, *node, *how, now),
        FailoverEvent::Doubted => state.nodes.values_mut().for_each(|node| node.look_soon(now, RECHECK_MS)),
        FailoverEvent::Used { node } => {
            if let Some(node) = state.nodes.get_mut(node).filter(|node| node.standing == NodeStanding::Waiting) {
                node.standing = NodeStanding::Up;
            }
        }
        FailoverEvent::Stored { number, done } => stored(state, *number, *done, now, out),
        FailoverEvent::Pledged { node, ballot, outcome } => attempt::pledged(state, *node, *ballot, outcome),
        FailoverEvent::Promoted { node, ballot, done } => attempt::promoted(state, *node, *ballot, *done, now, out),
        FailoverEvent::Writable { node, ballot, outcome } => attempt::writable(state, rules, (*node, *ballot), outcome, now, out),
        FailoverEvent::Repointed { node, vote, outcome } => {
            attempt::repointed(state, *node, *vote, *outcome);
            duty::fenced(state, *node, now);
        }
        FailoverEvent::Fenced { node, .. } | FailoverEvent::Unfenced { node, .. } | FailoverEvent::Pointed { node, .. } => {
            duty::fenced(state, *node, now)
        }
        FailoverEvent::Prepared { node } => switchover::prepared(state, *node, now),
        FailoverEvent::Yielded { node } => attempt::yielded(state, *node, now),
        FailoverEvent::Drained { node } => {
            attempt::drained(state, *node, now);
            restart::drained(state, *node, now);
        }
        FailoverEvent::ServerStopped { node, ballot, end } => {
            switchover::ended(state, (*node, *ballot), *end, now, out);
            attempt::stopped(state, rules, (*node, *ballot), *end, now, out);
        }
        FailoverEvent::AgentHeard { node, done } => agent_inquiry::heard(state, *node, *done, now),
        FailoverEvent::ServerStarted { node, done } => {
            switchover::started(state, *node, *done, now);
            restart::started(state, *node, *done, now);
        }
        FailoverEvent::ServerFollows { node, done } => switchover::followed(state, *node, *done, now),
        FailoverEvent::Inspected { node, ballot, outcome } => {
            attempt::inspected(state, rules, (*node, *ballot), *outcome, now, out)
        }
        FailoverEvent::Rejoined { node, done } => rejoin::rejoined(state, *node, *done, now),
        FailoverEvent::CommandEnded { number, done } => duty::command_ended(state, *number, *done, now, out),
        FailoverEvent::Operator { ticket, request } => operator(state, rules, *ticket, *request, now, out),
        FailoverEvent::TestFile { down } => state.tested_down.clone_from(down),
        FailoverEvent::Sights { of_others } => group_part::sighted(state, of_others, now),
        FailoverEvent::Told { durable } => group_part::told(state, rules, durable, now, out),
    }
}

fn conclude(state: &mut FailoverState, rules: &FailoverRules, now: Ms, out: &mut Vec<FailoverAction>) {
    match rules.servers {
        ServerRelation::Copies => conclude_copies(state, rules, now, out),
        ServerRelation::Unrelated => {
            unrelated::leave_dead(state, rules, now, out);
            duty::run_commands(state, out);
            store(state, now, out);
            look(state, rules, now, out);
        }
    }
}

fn conclude_copies(state: &mut FailoverState, rules: &FailoverRules, now: Ms, out: &mut Vec<FailoverAction>) {
    // An own decision is no other Weir's, whoever tells of it first.
    attempt::count_seen_votes(state, rules, now, out);
    accept::learn_votes(state, rules, &[], now, out);
    abandon(state, now, out);
    accept::find(state, rules, now, out);
    duty::take_back(state, rules, out);
    accept::note_false_primaries(state, rules, out);
    promoted_apart::find(state, rules, out);
    give_up_dead(state, rules, now, out);
    accept::confirm(state, rules, now);
    attempt::drive(state, rules, now, out);
    switchover::drive(state, rules, now, out);
    restart::drive(state, rules, now, out);
    begin_due_attempt(state, rules, now, out);
    search(state, rules, now, out);
    duty::note_orphans(state, out);
    duty::work(state, rules, now, out);
    duty::forget_fences(state);
    rejoin::work(state, rules, now, out);
    duty::fail_back(state, rules, now, out);
    detach_false(state, rules, now, out);
    keep_apart(state, rules, now, out);
    duty::run_commands(state, out);
    group_part::note_down(state, rules);
    store(state, now, out);
    attempt::drive(state, rules, now, out);
    let gate = accept::gate(state, rules);
    // Holding comes before all actions that rely on it.
    if let Some(told) = failover_state::tell(state.gate, gate) {
        let at = if matches!(gate, WriteTarget::Held(..)) { 0 } else { out.len() };
        out.insert(at, told);
        state.gate = gate;
        if matches!(gate, WriteTarget::Open { .. }) {
            state.store.life = PrimaryKnowledge::Known;
        }
    }
    look(state, rules, now, out);
}

fn probed(
    state: &mut FailoverState,
    rules: &FailoverRules,
    (id, begun_at): (NodeId, Ms),
    found: &ProbeResult,
    now: Ms,
    out: &mut Vec<FailoverAction>,
) {
    let is_tested = state.tested_down.contains(&id);
    let (Some(node), Some(node_rules)) = (state.nodes.get_mut(&id), rules.node(id)) else { return };
    let found = if is_tested { &ProbeResult::Failed(LookFailure::Unreachable) } else { found };
    if node.seen.as_ref().is_some_and(|seen| seen.begun_at > begun_at) {
        // The promotion told more than an earlier look.
        node.look = LookSchedule::Due { at: now };
        return;
    }
    let again = matches!(node.look, LookSchedule::UnderWay { again: true, .. });
    node.looked_at = Some(begun_at);
    let before = node.failure;
    let took_ms = now.saturating_sub(begun_at);
    match found {
        ProbeResult::Answered(facts) => {
            if node_rules.health.is_near(took_ms, node.health.stats.duration_max_ms) {
                out.push(FailoverAction::Report(FailoverReport::Slow {
                    node: id,
                    took_ms,
                    limit_ms: node_rules.health.limit_ms(),
                }));
            }
            if node.seen.as_ref().is_none_or(|seen| seen.facts.started_at != facts.started_at) {
                node.incarnation_at = now;
            }
            state.promises.term_seen = state.promises.term_seen.max(facts.mark.promised.term);
            node.seen = Some(TimedFacts { begun_at, answered_at: now, facts: (**facts).clone() });
            node.failure = None;
        }
        ProbeResult::Failed(failure) => node.failure = Some(*failure),
    }
    let verdict = node.health.judge(&node_rules.health, begun_at, found, now);
    if let HealthVerdict::Mute(failure) = verdict
        && before != Some(failure)
    {
        out.push(FailoverAction::Report(FailoverReport::Mute { node: id, failure }));
    }
    node.health.late = match (verdict, node.health.late) {
        (HealthVerdict::Mute(LookFailure::Late), LoginLateness::No) => LoginLateness::Since(begun_at),
        (HealthVerdict::Mute(LookFailure::Late), LoginLateness::Since(since)) if now >= since + LATE_MS => {
            out.push(FailoverAction::Report(FailoverReport::NoLogin { node: id, lasting_ms: now - since }));
            LoginLateness::Told
        }
        (HealthVerdict::Mute(LookFailure::Late) | HealthVerdict::Doubtful { .. }, late) => late,
        (HealthVerdict::Alive | HealthVerdict::Mute(_) | HealthVerdict::Dead(_), _) => LoginLateness::No,
    };
    node.dead = match verdict {
        HealthVerdict::Alive | HealthVerdict::Mute(_) => None,
        HealthVerdict::Doubtful { .. } => node.dead,
        HealthVerdict::Dead(failure) => Some(node.dead.map_or((now, failure), |(since, _)| (since, failure))),
    };
    let next = match verdict {
        HealthVerdict::Doubtful { again_at } => again_at,
        // The answers may date from the begin of the look.
        HealthVerdict::Mute(LookFailure::Late) => now + node_rules.health.retry_delay_ms.clamp(RECHECK_MS, UNQUIET_MS),
        HealthVerdict::Alive | HealthVerdict::Mute(_) | HealthVerdict::Dead(_) => now + period(state, rules, id),
    };
    let node = state.nodes.get_mut(&id).expect("it was there above");
    node.look = LookSchedule::Due { at: if again { now } else { next } };
    if verdict == HealthVerdict::Alive {
        accept::learn_line(state, rules, id, begun_at);
        note_return(state, id, begun_at, now);
        revive(state, rules, id, now, out);
    } else if state.primary() == Some(id) {
        // Ask standbys that may hear the primary in time.
        state.line.lost_at = state.line.lost_at.or(Some(begun_at));
        state.line.trouble = StreamInterruption::Since(begun_at);
        state.nodes.iter_mut().filter(|(other, _)| **other != id).for_each(|(_, node)| {
            let asked = node.was_looked_at_since(begun_at);
            node.look_by(if asked { Ms::MAX } else { now });
        });
    }
}

/// The primary's standbys may have lost their streams meanwhile.
fn note_return(state: &mut FailoverState, id: NodeId, begun_at: Ms, now: Ms) {
    let is_over = matches!(state.line.trouble, StreamInterruption::Since(since) if begun_at >= since);
    if is_over && state.primary() == Some(id) && state.facts(id).is_some_and(|facts| state.is_on_line(facts)) {
        state.line.trouble = StreamInterruption::OverAt(now);
        state.nodes.iter_mut().filter(|(other, _)| **other != id).for_each(|(_, node)| node.look_anew(now));
    }
}

fn period(state: &FailoverState, rules: &FailoverRules, id: NodeId) -> Ms {
    let health = rules.node(id).map_or(0, |node| node.health.period_ms);
    let period = [health, rules.role_period_ms].into_iter().filter(|period| *period > 0).min().unwrap_or(QUIET_MS);
    let is_quiet = (matches!(state.gate, WriteTarget::Open { .. }) || rules.servers == ServerRelation::Unrelated)
        && state.nodes.values().all(|node| node.dead.is_none());
    if is_quiet { period } else { period.min(UNQUIET_MS) }
}

/// Ends a quarantine; takes a foreign server out of use.
fn revive(state: &mut FailoverState, rules: &FailoverRules, id: NodeId, now: Ms, out: &mut Vec<FailoverAction>) {
    let Some(facts) = state.facts(id) else { return };
    let relation = state.relation(id, facts);
    let is_well = state.is_on_line(facts) || (!facts.is_primary() && matches!(relation, Some(WalRelation::Holds(_))));
    let Some(node) = state.nodes.get(&id) else { return };
    if matches!(node.standing, NodeStanding::Quarantined { .. }) && is_well {
        duty::attach(state, rules, id, out);
    }
    match relation {
        Some(WalRelation::Foreign) => another::note(state, rules, id, now, out),
        Some(WalRelation::Holds(_) | WalRelation::Left(_) | WalRelation::Diverged) => another::over(state, rules, id, out),
        None => {}
    }
}

fn conn_died(state: &mut FailoverState, rules: &FailoverRules, id: NodeId, how: ServerConnEnd, now: Ms) {
    let Some(node) = state.nodes.get_mut(&id).filter(|node| node.is_in_use()) else { return };
    node.health.suspect(rules, how, now);
    node.look_anew(now);
    if state.primary() == Some(id) {
        state.line.trouble = StreamInterruption::Since(now);
    }
    // The server may have been restarted, and replaced meanwhile.
    let has_company =
        rules.mode == FailoverMode::Builtin && state.quorum(rules) == QuorumSize::Majority && rules.keeps(SafetyRule::Confirm);
    if has_company && state.primary() == Some(id) {
        state.line.check_from = now;
    }
}

fn stored(state: &mut FailoverState, number: u64, done: Done, now: Ms, out: &mut Vec<FailoverAction>) {
    // Else an outcome of a time before the lead of a group moved.
    if number != state.store.sent {
        return;
    }
    match done {
        Done::Yes => {
            state.store.stored = state.store.stored.max(number);
            (state.store.disk, state.store.retry_at) = (DiskState::Holds, 0);
            let stored = state.store.stored;
            let (due, rest) = std::mem::take(&mut state.store.tickets).into_iter().partition(|(version, _)| *version <= stored);
            state.store.tickets = rest;
            let due: Vec<(u64, u64)> = due;
            out.extend(due.into_iter().map(|(_, ticket)| FailoverAction::Reply { ticket, answer: Ok(()) }));
        }
        Done::No => {
            (state.store.sent, state.store.retry_at) = (state.store.stored, now + STORE_RETRY_MS);
            if state.store.disk == DiskState::Untried {
                state.store.disk = DiskState::Refuses;
            }
        }
    }
}

/// One version at a time.
fn store(state: &mut FailoverState, now: Ms, out: &mut Vec<FailoverAction>) {
    let store = &mut state.store;
    if store.version > store.sent && store.sent == store.stored && now >= store.retry_at {
        store.sent = store.version;
        out.push(FailoverAction::Store { number: store.version, text: state.durable.show() });
    }
}

fn abandon(state: &mut FailoverState, now: Ms, out: &mut Vec<FailoverAction>) {
    let is_over = state.attempt.as_ref().is_some_and(|attempt| Some(attempt.parent) != state.epoch());
    if is_over {
        attempt::end(state, AttemptRefusal::Outrun, now, out);
    }
}

/// Takes dead nodes out of use. A primary that its standbys hear is quarantined.
fn give_up_dead(state: &mut FailoverState, rules: &FailoverRules, now: Ms, out: &mut Vec<FailoverAction>) {
    let dead: Vec<(NodeId, Ms, LookFailure)> =
        state.nodes.iter().filter_map(|(id, node)| node.dead.map(|(since, failure)| (*id, since, failure))).collect();
    for (id, since, failure) in dead {
        if switchover::node_stopped_on_purpose(state) == Some(id) {
            continue;
        }
        if failover_state::is_kept(rules, id) {
            // `State::is_avoided` and the gate keep sessions off the node.
            if state.primary() == Some(id) && matches!(rules.mode, FailoverMode::Builtin | FailoverMode::Command) {
                let is_always = rules.always_primary() == Some(id);
                let why = if is_always { AttemptRefusal::AlwaysPrimary } else { AttemptRefusal::DisallowToFailover };
                attempt::stuck(state, why, out);
            }
            continue;
        }
        let is_primary = state.primary() == Some(id);
        let Some(node) = state.nodes.get(&id) else { continue };
        if !group_part::agree_on_death(state, rules, id) {
            if is_primary {
                attempt::stuck(state, AttemptRefusal::SeenByOthers, out);
            } else if node.is_in_use() {
                let others = state.sights.get(&id).map_or(0, |count| count.alive);
                state.nodes.entry(id).and_modify(|node| node.standing = NodeStanding::Quarantined { since: now });
                out.push(FailoverAction::Report(FailoverReport::SeenByOthers { node: id, others }));
            }
            continue;
        }
        let failing_since = node.health.failing_since.unwrap_or(since);
        let heard_by = match node.standing {
            NodeStanding::Down { .. } | NodeStanding::Detached | NodeStanding::Recovering => continue,
            // The server says itself that it goes, or does not run.
            _ if !is_primary
                || matches!(failure, LookFailure::Refused | LookFailure::ShuttingDown)
                || !rules.keeps(SafetyRule::Quarantine) =>
            {
                BTreeSet::new()
            }
            NodeStanding::Waiting | NodeStanding::Up => {
                // Ask standbys after the verdict: an earlier message may have been under way.
                let is_asked = |(other, node): (&NodeId, &NodeState)| *other == id || node.was_looked_at_since(since);
                if !state.nodes.iter().all(is_asked) && now < since + HEARSAY_MS {
                    let silent = state.nodes.iter_mut().filter(|(other, node)| **other != id && !node.was_looked_at_since(since));
                    silent.for_each(|(_, node)| node.look_anew(now));
                    continue;
                }
                hearers(state, id, failing_since)
            }
            NodeStanding::Quarantined { .. } => hearers(state, id, now.saturating_sub(SILENCE_MS)),
        };
        let is_new = !matches!(node.standing, NodeStanding::Quarantined { .. });
        if heard_by.is_empty() {
            duty::put_down(state, rules, id, NodeDownReason::Failed(failure), now, out);
        } else if is_new {
            state.nodes.entry(id).and_modify(|node| node.standing = NodeStanding::Quarantined { since: now });
            out.push(FailoverAction::Report(FailoverReport::Quarantined { node: id, heard_by }));
            attempt::stuck(state, AttemptRefusal::Quarantined, out);
        }
    }
}

fn hearers(state: &FailoverState, id: NodeId, from: Ms) -> BTreeSet<NodeId> {
    let hears = |(_, node): &(&NodeId, &NodeState)| {
        let Some(seen) = node.seen.as_ref().filter(|_| node.failure.is_none()) else { return false };
        let heard_at = seen.facts.silent_ms().and_then(|silent| seen.answered_at.checked_sub(silent));
        seen.facts.upstream() == Some(id) && heard_at.is_some_and(|at| at > from)
    };
    state.nodes.iter().filter(hears).map(|(id, _)| *id).collect()
}

fn note_promise(state: &mut FailoverState, promise: Option<Ballot>, now: Ms) {
    let primary = state.primary().and_then(|id| state.nodes.get(&id));
    let is_gone =
        primary.is_none_or(|node| node.failure.is_some_and(|failure| failure.is_death() && failure != LookFailure::ShuttingDown));
    state.promises.since = promise.and(state.promises.since.or(Some(now)));
    state.promises.gone_since = promise.filter(|_| is_gone).and(state.promises.gone_since.or(Some(now)));
}

/// When another Weir's attempt counts as left undone.
fn undone_at(state: &FailoverState, rules: &FailoverRules, promise: Ballot) -> Ms {
    let since = state.promises.since.unwrap_or_default();
    match (promise.purpose(), state.promises.gone_since) {
        (BallotPurpose::Failover | BallotPurpose::Tend, _) => since + OTHERS_MS,
        (BallotPurpose::Switchover, Some(gone)) => since.max(gone) + OTHERS_MS,
        (BallotPurpose::Switchover, None) => since + rules.transaction_limit_ms.min(OTHERS_DRAIN_MS) + OTHERS_STOP_MS,
    }
}

fn begin_due_attempt(state: &mut FailoverState, rules: &FailoverRules, now: Ms, out: &mut Vec<FailoverAction>) {
    let promise = promises::newer_promise_of_any(state);
    note_promise(state, promise, now);
    let is_reserved = state.attempt.is_some() || switchover::reserves(state);
    if rules.mode != FailoverMode::Builtin || is_reserved || now < state.retry_at || state.primary().is_none() {
        if accept::gone(state).is_some() && rules.mode != FailoverMode::Builtin && rules.group != GroupRole::Follows {
            attempt::stuck(state, AttemptRefusal::NotByWeir, out);
        }
        return;
    }
    let is_mine = promise.is_some_and(|promise| promise.weir == state.durable.weir) || rules.is_alone();
    if promise.is_some_and(|promise| !is_mine && now < undone_at(state, rules, promise)) {
        return;
    }
    if let Some(why) = accept::gone(state) {
        if let Err(refusal) = eligible::could_be_decided(state, rules) {
            return attempt::stuck(state, refusal, out);
        }
        let is_silent = matches!(why, FailoverCause::Died(failure) if failure != LookFailure::Refused && failure != LookFailure::ShuttingDown);
        if is_silent && !eligible::could_be_silent(state, rules) {
            match agent_inquiry::about(state, rules, why, now, out) {
                AgentReachability::Answers => {}
                AgentReachability::NotYet => return,
                AgentReachability::Silent => return attempt::stuck(state, AttemptRefusal::NotProvenDead, out),
            }
        }
        state.begin_attempt(rules, AttemptAim::Replace, why, now);
    } else if let Some(ballot) = promise
        && state.primary().and_then(|id| state.facts(id)).is_some_and(|facts| state.is_on_line(facts))
        && eligible::could_be_decided(state, rules).is_ok()
    {
        if promises::are_void(state, rules) {
            return state.begin_attempt(rules, AttemptAim::ClearPromises, FailoverCause::Adopted, now);
        }
        out.push(FailoverAction::Report(FailoverReport::TakingOver { ballot }));
        state.begin_attempt(rules, AttemptAim::Settle, FailoverCause::Adopted, now);
    }
}

/// `search_primary_node_timeout`. A primary found after the limit is accepted all the same.
fn search(state: &mut FailoverState, rules: &FailoverRules, now: Ms, out: &mut Vec<FailoverAction>) {
    let searches = rules.mode != FailoverMode::Builtin && rules.group != GroupRole::Follows;
    let is_lost = searches && (state.primary().is_none() || accept::gone(state).is_some());
    let next = match (is_lost, state.line.search) {
        (false, _) => PrimarySearch::No,
        (true, PrimarySearch::No) => {
            out.push(FailoverAction::Report(FailoverReport::Searching));
            PrimarySearch::Since(now)
        }
        (true, PrimarySearch::Since(since)) if rules.search_ms.is_some_and(|limit| now >= since + limit) => {
            out.push(FailoverAction::Report(FailoverReport::NotFound { waited_ms: now - since }));
            PrimarySearch::InVain
        }
        (true, going @ (PrimarySearch::Since(_) | PrimarySearch::InVain)) => going,
    };
    state.line.search = next;
}

/// `detach_false_primary`.
fn detach_false(state: &mut FailoverState, rules: &FailoverRules, now: Ms, out: &mut Vec<FailoverAction>) {
    if rules.false_primary == FalsePrimary::Detached {
        let in_use = |id: &NodeId| state.nodes.get(id).is_some_and(NodeState::is_in_use);
        let found: Vec<NodeId> = state.durable.false_primaries.iter().copied().filter(in_use).collect();
        found.into_iter().for_each(|id| duty::put_down(state, rules, id, NodeDownReason::False, now, out));
    }
}

/// Puts servers that were promoted apart out of use. The others of a group are told by its leader.
fn keep_apart(state: &mut FailoverState, rules: &FailoverRules, now: Ms, out: &mut Vec<FailoverAction>) {
    if rules.group == GroupRole::Follows {
        return;
    }
    let in_use = |id: &NodeId| state.nodes.get(id).is_some_and(NodeState::is_in_use);
    let found: Vec<NodeId> = state.durable.apart.iter().copied().filter(in_use).collect();
    found.into_iter().for_each(|id| duty::put_down(state, rules, id, NodeDownReason::Apart, now, out));
}

fn operator(
    state: &mut FailoverState,
    rules: &FailoverRules,
    ticket: u64,
    request: OperatorRequest,
    now: Ms,
    out: &mut Vec<FailoverAction>,
) {
    let id = request.node();
    let answer = match (state.nodes.contains_key(&id), request) {
        (false, _) => Err(format!("node {id} does not exist")),
        (true, OperatorRequest::Attach(_)) if state.nodes.get(&id).is_some_and(NodeState::is_in_use) => Ok(()),
        (true, OperatorRequest::Attach(_)) => may_attach(state, id).map(|()| duty::attach(state, rules, id, out)),
        (true, OperatorRequest::Detach(_)) if failover_state::is_untouchable(rules, id) => {
            Err(format!("node {id} may not be detached: its backend_flag is DISALLOW_TO_FAILOVER"))
        }
        // Commands ran at the loss. A lost primary is to be replaced, not put aside.
        (true, OperatorRequest::Detach(_)) if state.is_out(rules, id) => {
            if state.primary() != Some(id) {
                put_aside(state, id);
            }
            Ok(())
        }
        (true, OperatorRequest::Detach(_)) => {
            let new = if state.primary() == Some(id) { duty::likely(state, rules) } else { None };
            detach(state, rules, id, new, out);
            Ok(())
        }
        (true, OperatorRequest::Restart(_)) => match restart::request(state, id, ticket, now) {
            Ok(()) => return,
            Err(text) => Err(text),
        },
        (true, OperatorRequest::SwitchOver(_)) if rules.mode == FailoverMode::Builtin => {
            match switchover::request(state, rules, id, ticket, now) {
                // The switchover answers at its end.
                Ok(()) => return,
                Err(text) => Err(text),
            }
        }
        (true, OperatorRequest::SwitchOver(_)) => switch_over(state, rules, id, out),
        (true, OperatorRequest::Promote(_)) => match promote(state, rules, id, ticket, now, out) {
            Ok(true) => Ok(()),
            // The attempt answers.
            Ok(false) => return,
            Err(text) => Err(text),
        },
        (true, OperatorRequest::Recover(_, NodeCopyStage::Begins)) if state.primary() == Some(id) => {
            Err(format!("node {id} is the primary"))
        }
        (true, OperatorRequest::Recover(_, NodeCopyStage::Begins)) => {
            state.nodes.entry(id).and_modify(|node| node.standing = NodeStanding::Recovering);
            Ok(())
        }
        (true, OperatorRequest::Recover(_, NodeCopyStage::Ends)) => {
            promoted_apart::copied(state, id);
            may_attach(state, id).map(|()| duty::attach(state, rules, id, out))
        }
    };
    if let (Err(_), OperatorRequest::Attach(_) | OperatorRequest::Recover(_, NodeCopyStage::Ends)) = (&answer, request) {
        // Facts may be old, and an operator who has just started the server asks again.
        state.nodes.entry(id).and_modify(|node| node.look_anew(now));
    }
    match answer {
        Ok(()) if !state.is_stored() => state.store.tickets.push((state.store.version, ticket)),
        answer => out.push(FailoverAction::Reply { ticket, answer }),
    }
}

fn detach(state: &mut FailoverState, rules: &FailoverRules, id: NodeId, new: Option<NodeId>, out: &mut Vec<FailoverAction>) {
    put_aside(state, id);
    duty::lost(state, rules, id, new, out);
}

fn put_aside(state: &mut FailoverState, id: NodeId) {
    promoted_apart::vouched(state, id);
    state.nodes.entry(id).and_modify(|node| node.standing = NodeStanding::Detached);
    state.change(|durable| durable.detached.insert(id));
}

/// Detaches the primary: the operator's command promotes the standby, which is accepted once it is a primary.
fn switch_over(
    state: &mut FailoverState,
    rules: &FailoverRules,
    id: NodeId,
    out: &mut Vec<FailoverAction>,
) -> Result<(), String> {
    let Some(primary) = state.primary() else { return Err("there is no primary".into()) };
    if primary == id {
        return Err(format!("node {id} is the primary already"));
    }
    if rules.mode != FailoverMode::Command {
        return Err("failover_mode leaves promotion to others".into());
    }
    if failover_state::is_untouchable(rules, primary) {
        return Err(format!("node {primary} may not be detached: its backend_flag is DISALLOW_TO_FAILOVER"));
    }
    may_attach(state, id)?;
    state.planned.named = Some(id);
    detach(state, rules, primary, Some(id), out);
    Ok(())
}

/// Allows only nodes on the accepted timeline, and, where the primary is gone, those that may succeed it.
fn may_attach(state: &FailoverState, id: NodeId) -> Result<(), String> {
    if state.primary().is_none() {
        return Ok(());
    }
    if let Some(why) = promoted_apart::refusal(state, id) {
        return Err(why);
    }
    let Some(facts) = state.facts(id) else { return Err(format!("node {id} does not answer")) };
    let is_fit = match state.relation(id, facts) {
        _ if state.primary() == Some(id) => state.is_on_line(facts),
        Some(WalRelation::Holds(_)) => !facts.is_primary(),
        // Promoted by an attempt that had no end, it may hold all that there is.
        Some(WalRelation::Left(_)) => accept::gone(state).is_some(),
        Some(WalRelation::Diverged | WalRelation::Foreign) | None => false,
    };
    if is_fit { Ok(()) } else { Err(format!("node {id} is not on the timeline of the primary")) }
}

/// `Ok(true)`: done; `Ok(false)`: an attempt is under way and answers.
fn promote(
    state: &mut FailoverState,
    rules: &FailoverRules,
    id: NodeId,
    ticket: u64,
    now: Ms,
    out: &mut Vec<FailoverAction>,
) -> Result<bool, String> {
    if another::is_at(state, rules, id) {
        another::accept(state, rules, id, now, out);
        return Ok(true);
    }
    if state.primary() == Some(id) {
        return Err(format!("node {id} is the primary already"));
    }
    let Some(facts) = state.facts(id) else { return Err(format!("node {id} does not answer")) };
    let is_primary = facts.is_primary();
    if rules.mode != FailoverMode::Builtin || state.primary().is_none() {
        if !is_primary {
            return Err(format!("node {id} is in recovery, and failover_mode leaves promotion to others"));
        }
        state.planned.named = Some(id);
        return Ok(true);
    }
    if let Some(kept) = state.primary().filter(|kept| failover_state::is_kept(rules, *kept)) {
        return Err(format!("node {kept} may not be replaced: its backend_flag is DISALLOW_TO_FAILOVER or ALWAYS_PRIMARY"));
    }
    if !is_primary
        && matches!(state.gate, WriteTarget::Open { .. } | WriteTarget::Held(WriteHoldReason::Checked, OpenTransactionFate::Go))
    {
        return Err(format!("node {id} is in recovery and the primary works: stop or detach the primary first"));
    }
    attempt::end(state, AttemptRefusal::Outrun, now, out);
    state.begin_attempt(rules, AttemptAim::Force { node: id, ticket }, FailoverCause::Named, now);
    Ok(false)
}

fn look(state: &mut FailoverState, rules: &FailoverRules, now: Ms, out: &mut Vec<FailoverAction>) {
    let is_unquiet = state.attempt.is_some() || state.promises.since.is_some();
    let spared = state.attempt.as_ref().and_then(FailoverAttempt::node_left_alone);
    let proved = state.attempt.as_ref().and_then(FailoverAttempt::proves);
    for (id, node) in &mut state.nodes {
        if is_unquiet {
            node.look_by(now + RECHECK_MS);
        }
        let LookSchedule::Due { at } = node.look else { continue };
        if at > now {
            continue;
        }
        if spared == Some(*id) {
            node.look = LookSchedule::Due { at: now + RECHECK_MS };
            continue;
        }
        if !node.is_in_use() {
            node.health.skip(now);
        }
        let mut limit_ms = rules.node(*id).map_or(QUIET_MS, |node| node.health.limit_ms());
        if proved == Some(*id) && node.dead.is_some() {
            limit_ms = limit_ms.min(PROOF_MS);
        }
        node.look = LookSchedule::UnderWay { begun_at: now, again: false };
        out.push(FailoverAction::Probe { node: *id, limit_ms });
    }
}

#[cfg(test)]
mod tests {
    use super::super::rules::tests::rules;
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn an_attempt_of_another_weir_counts_as_left_undone_after_the_longest_time_that_it_may_take() {
        let rules = FailoverRules { transaction_limit_ms: 7_000, ..rules(3) };
        let mut state = FailoverState::new(&rules, None, 9, &BTreeSet::new());
        let mut undone_at = |purpose, gone_since, limit_ms| {
            (state.promises.since, state.promises.gone_since) = (Some(1_000), gone_since);
            undone_at(&state, &FailoverRules { transaction_limit_ms: limit_ms, ..rules.clone() }, Ballot::after(0, purpose, 1))
        };
        for purpose in [BallotPurpose::Failover, BallotPurpose::Tend] {
            assert_eq!(undone_at(purpose, None, 7_000), 1_000 + OTHERS_MS);
        }
        assert_eq!(undone_at(BallotPurpose::Switchover, None, 7_000), 1_000 + 7_000 + OTHERS_STOP_MS, "transactions end first");
        assert_eq!(undone_at(BallotPurpose::Switchover, None, Ms::MAX), 1_000 + OTHERS_DRAIN_MS + OTHERS_STOP_MS);
        assert_eq!(undone_at(BallotPurpose::Switchover, Some(5_000), 7_000), 5_000 + OTHERS_MS, "its primary was stopped");
    }
}
