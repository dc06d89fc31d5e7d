//! A planned move of the primary: the working primary is stopped cleanly, and a standby with all of its log takes over.
//!
//! ```text
//! Waiting -> Preparing -> Taking -> Following -> Starting -> Returning -> done
//!                           |  ends after the stop and without a promotion: Undoing
//! ```
//!
//! `Taking` is an ordinary attempt with [`AttemptAim::Succeed`]: votes, epochs and other Weirs need no extra rules. A Weir that dies leaves a
//! stopped primary and marks: a failover. The old primary is restarted only before any order to promote. A stop that does not complete
//! cannot be revoked: the server is ended as by a crash first.

use super::action::{FailoverAction, NodeDownReason, OpenTransactionFate, PrimaryStopMode, WriteHoldReason};
use super::ballot::{Ballot, NodeId};
use super::choose::{self, AttemptRefusal, SyncStandbyKnowledge};
use super::event::{Done, LookFailure, Ms, ServerFacts, ServerStopResult};
use super::health::RECHECK_MS;
use super::history::{Lsn, WalRelation};
use super::operations::{AttemptAim, AttemptPhase, FailoverAttempt, OldPrimaryStart, StopOrder, Switchover, SwitchoverStage};
use super::record::FailoverCause;
use super::rules::{AgentPresence, FailoverRules};
use super::{duty, eligible, promises};
use crate::failover_state::{self, FailoverState, WriteTarget};
use crate::node_state::NodeStanding;

const QUIET_MS: Ms = 5_000;
/// A checkpoint; the stop writes the rest.
const PREPARE_MS: Ms = 60_000;
const SLACK_MS: Ms = 2_000;
/// A primary stopped in vain must answer by then; else a standby is promoted.
const UNDO_MS: Ms = 6_000;
/// `UNDO_MS` with crash recovery.
const UNDO_CRASHED_MS: Ms = 20_000;
const END_MS: Ms = 6_000;
const START_MS: Ms = 5_000;
const FOLLOW_MS: Ms = 10_000;
const RETURN_MS: Ms = 30_000;
/// Time for an agent to confirm the stop of a server that refuses connections.
const AGENT_MS: Ms = 3_000;
/// A server that was told to stop has begun to by then.
const DOUBT_MS: Ms = 1_000;
const RETRY_MS: Ms = 500;
/// A stopping server sends all log first, so a larger lag would delay the stop.
const LAG_BYTES_MAX: u64 = 128 << 20;

enum SwitchoverTransition {
    Stay,
    Stage(SwitchoverStage),
    End(Result<(), String>),
}

/// On error nothing is begun.
pub(super) fn request(state: &mut FailoverState, rules: &FailoverRules, to: NodeId, ticket: u64, now: Ms) -> Result<(), String> {
    let Some(from) = state.primary() else { return Err("there is no primary".into()) };
    if state.planned.switchover.is_some() || state.planned.restart.is_some() {
        return Err("a restart or a switchover is under way".into());
    }
    is_allowed(state, rules, from, to)?;
    state.planned.switchover =
        Some(Switchover { from, to, ticket, stage: SwitchoverStage::Waiting { until: now + QUIET_MS, since: now, had: None } });
    Ok(())
}

/// Conditions that only an operator changes.
fn is_allowed(state: &FailoverState, rules: &FailoverRules, from: NodeId, to: NodeId) -> Result<(), String> {
    if from == to {
        return Err(format!("node {to} is the primary already"));
    }
    if failover_state::is_untouchable(rules, from) {
        return Err(format!("node {from} may not be detached: its backend_flag is DISALLOW_TO_FAILOVER"));
    }
    if rules.always_primary().is_some() {
        return Err(AttemptRefusal::AlwaysPrimary.describe());
    }
    if rules.node(from).is_none_or(|node| node.agent == AgentPresence::None) {
        return Err(format!("node {from} has no agent that could stop it"));
    }
    if rules.node(to).is_none_or(|node| node.priority == 0) {
        return Err(format!("node {to} may not be promoted: its backend_promote_priority is 0"));
    }
    if state.facts(to).is_some_and(ServerFacts::is_primary) {
        return Err(format!("node {to} is not on the timeline of the primary"));
    }
    Ok(())
}

/// Conditions that time may bring.
fn is_ready(state: &FailoverState, rules: &FailoverRules, from: NodeId, to: NodeId) -> Result<(), String> {
    if state.attempt.is_some() || !matches!(state.gate, WriteTarget::Open { .. }) {
        return Err("writes wait already; SHOW pool_failover tells why".into());
    }
    let Some(facts) = state.facts(to) else { return Err(format!("node {to} does not answer")) };
    let position = match state.relation(to, facts) {
        Some(WalRelation::Holds(position)) if !facts.is_primary() => position,
        _ => return Err(format!("node {to} is not on the timeline of the primary")),
    };
    if state.nodes.get(&to).is_none_or(|node| !node.is_in_use()) {
        return Err(format!("node {to} is out of use"));
    }
    if facts.upstream() != Some(from) || facts.silent_ms().is_none() {
        return Err(format!("node {to} does not stream from the primary"));
    }
    let lacks = state.last_position().map_or(0, |last| last.saturating_sub(position));
    if lacks > LAG_BYTES_MAX {
        return Err(format!("node {to} lacks {lacks} bytes of log, the limit is {LAG_BYTES_MAX}"));
    }
    if let SyncStandbyKnowledge::Synchronous(all) = state.sync(rules) {
        let answering = state.nodes.keys().copied().filter(|id| *id != from && state.facts(*id).is_some()).collect();
        if let Some(refusal) = choose::too_few_asked(&all, &answering) {
            return Err(refusal.describe());
        }
    }
    eligible::could_be_decided(state, rules).map_err(|refusal| refusal.describe())
}

/// A standby with paused or stuck replay would not become a primary.
fn replays(state: &FailoverState, to: NodeId, (since, had): (Ms, &mut Option<Lsn>)) -> Result<(), String> {
    let is_new = state.nodes.get(&to).is_some_and(|node| node.was_looked_at_since(since));
    let Some(facts) = state.facts(to).filter(|_| is_new) else { return Err(format!("node {to} does not answer")) };
    let had = *had.get_or_insert(facts.position);
    if facts.replayed >= had {
        return Ok(());
    }
    Err(AttemptRefusal::NotReplayed { node: to, bytes: facts.unreplayed() }.describe())
}

pub(super) fn drive(state: &mut FailoverState, rules: &FailoverRules, now: Ms, out: &mut Vec<FailoverAction>) {
    // Each turn enters a later stage, of which there are seven.
    for _ in 0..7 {
        let Some(mut switchover) = state.planned.switchover.take() else { return };
        match advance(state, &mut switchover, rules, now, out) {
            SwitchoverTransition::Stay => {
                state.planned.switchover = Some(switchover);
                return;
            }
            SwitchoverTransition::Stage(stage) => state.planned.switchover = Some(Switchover { stage, ..switchover }),
            SwitchoverTransition::End(answer) => return out.push(FailoverAction::Reply { ticket: switchover.ticket, answer }),
        }
    }
}

fn advance(
    state: &mut FailoverState,
    of: &mut Switchover,
    rules: &FailoverRules,
    now: Ms,
    out: &mut Vec<FailoverAction>,
) -> SwitchoverTransition {
    let (from, to) = (of.from, of.to);
    let primary = state.primary();
    match &mut of.stage {
        SwitchoverStage::Waiting { .. } | SwitchoverStage::Preparing { .. } if primary != Some(from) => {
            SwitchoverTransition::End(Err("the primary is another one meanwhile".into()))
        }
        SwitchoverStage::Waiting { until, since, had } => {
            match is_ready(state, rules, from, to).and_then(|()| replays(state, to, (*since, had))) {
                Ok(()) => {
                    out.push(FailoverAction::Prepare { node: from, limit_ms: PREPARE_MS });
                    SwitchoverTransition::Stage(SwitchoverStage::Preparing { until: now + PREPARE_MS + SLACK_MS })
                }
                Err(why) if now >= *until => SwitchoverTransition::End(Err(why)),
                Err(_) => {
                    state.nodes.get_mut(&to).into_iter().for_each(|node| node.look_soon(now, RECHECK_MS));
                    SwitchoverTransition::Stay
                }
            }
        }
        SwitchoverStage::Preparing { until } if now >= *until => take(state, rules, (from, to), now),
        SwitchoverStage::Preparing { .. } => SwitchoverTransition::Stay,
        SwitchoverStage::Taking if primary == Some(to) => {
            put_aside(state, from, now);
            SwitchoverTransition::Stage(SwitchoverStage::Following { until: now + FOLLOW_MS, retry_at: now })
        }
        SwitchoverStage::Taking if primary != Some(from) => {
            SwitchoverTransition::End(Err(format!("node {} is the primary now", of_primary(primary))))
        }
        // Votes kept the old primary, or `attempt_ended` has changed the stage.
        SwitchoverStage::Taking if state.attempt.is_none() => {
            let why = "an earlier attempt was to be ended first".to_string();
            SwitchoverTransition::Stage(undoing(why, None, now))
        }
        SwitchoverStage::Taking => SwitchoverTransition::Stay,
        SwitchoverStage::Undoing { .. } => undo(state, of, now, out),
        SwitchoverStage::Following { .. } | SwitchoverStage::Starting { .. } | SwitchoverStage::Returning { .. } => {
            bring_back(state, of, rules, now, out)
        }
    }
}

fn of_primary(primary: Option<NodeId>) -> String {
    primary.map_or("-".into(), |id| id.to_string())
}

fn take(state: &mut FailoverState, rules: &FailoverRules, (from, to): (NodeId, NodeId), now: Ms) -> SwitchoverTransition {
    if let Err(why) = is_ready(state, rules, from, to) {
        return SwitchoverTransition::End(Err(why));
    }
    if promises::newer_promise(state).is_some() {
        return SwitchoverTransition::End(Err("another proxy has begun to replace the primary".into()));
    }
    let started_at = state.facts(from).map(|facts| facts.started_at);
    state.begin_attempt(rules, AttemptAim::Succeed { node: to, started_at }, FailoverCause::SwitchedOver, now);
    SwitchoverTransition::Stage(SwitchoverStage::Taking)
}

fn undoing(why: String, stop: Option<StopOrder>, now: Ms) -> SwitchoverStage {
    SwitchoverStage::Undoing { why, since: now, start: OldPrimaryStart::DueAt(now), stop, until: now + UNDO_MS }
}

fn put_aside(state: &mut FailoverState, from: NodeId, now: Ms) {
    if let Some(node) = state.nodes.get_mut(&from).filter(|node| node.is_in_use()) {
        node.standing = NodeStanding::Down { why: NodeDownReason::Following, since: now };
    }
}

fn undo(state: &mut FailoverState, of: &mut Switchover, now: Ms, out: &mut Vec<FailoverAction>) -> SwitchoverTransition {
    let from = of.from;
    let SwitchoverStage::Undoing { why, since, start, stop, until } = &mut of.stage else { return SwitchoverTransition::Stay };
    let since = *since;
    let primary = state.primary();
    if primary != Some(from) {
        return SwitchoverTransition::End(Err(format!("{why}; node {} is the primary now", of_primary(primary))));
    }
    // Until a confirmed start the server may still be about to stop.
    let since = match start {
        OldPrimaryStart::Done => since,
        OldPrimaryStart::DueAt(_) | OldPrimaryStart::Ending(_) | OldPrimaryStart::Ordered => since + DOUBT_MS,
    };
    let answers = state.nodes.get(&from).is_some_and(|node| node.seen.as_ref().is_some_and(|seen| seen.begun_at > since));
    // An order to end the server may still arrive.
    let is_ending = matches!(start, OldPrimaryStart::Ending(_));
    if answers && !is_ending && state.facts(from).is_some_and(|facts| state.is_on_line(facts)) {
        // Settle promises that the attempt left behind.
        state.retry_at = now;
        return SwitchoverTransition::End(Err(format!("{why}; node {from} is the primary as before")));
    }
    if now >= *until {
        return SwitchoverTransition::End(Err(format!("{why}; node {from} does not answer, and a standby is to replace it")));
    }
    if let OldPrimaryStart::DueAt(at) = *start
        && now >= at
    {
        // A server that refuses has ended; one that answers has not begun to stop.
        let failure = state.nodes.get(&from).and_then(|node| node.failure);
        let is_stopping = failure.is_some_and(|failure| failure == LookFailure::ShuttingDown || failure.is_silence());
        if let Some(order) = stop.filter(|_| is_stopping) {
            let StopOrder { ballot, started_at } = order;
            (*start, *until) = (OldPrimaryStart::Ending(order), since + UNDO_CRASHED_MS);
            out.push(FailoverAction::StopServer {
                node: from,
                ballot,
                started_at,
                mode: PrimaryStopMode::Crash,
                limit_ms: END_MS,
            });
        } else {
            *start = OldPrimaryStart::Ordered;
            out.push(FailoverAction::StartServer { node: from, limit_ms: START_MS });
        }
    }
    if let Some(node) = state.nodes.get_mut(&from) {
        node.look_soon(now, RECHECK_MS);
    }
    SwitchoverTransition::Stay
}

fn bring_back(
    state: &mut FailoverState,
    of: &mut Switchover,
    rules: &FailoverRules,
    now: Ms,
    out: &mut Vec<FailoverAction>,
) -> SwitchoverTransition {
    let (from, to) = (of.from, of.to);
    let failed = |what: &str| SwitchoverTransition::End(Err(format!("node {to} is the primary now, but node {from} {what}")));
    if state.primary() != Some(to) {
        return failed("was not brought back, since the primary changed again");
    }
    // The vote is its last change, after which it streams again.
    let is_back = state.facts(from).is_some_and(|facts| {
        let holds = matches!(state.relation(from, facts), Some(WalRelation::Holds(_)));
        let has_vote = facts.mark.vote.is_some_and(|vote| Some(vote.epoch) == state.epoch());
        !facts.is_primary() && facts.upstream() == Some(to) && facts.silent_ms().is_some() && holds && has_vote
    });
    if is_back {
        if state.nodes.get(&from).is_some_and(|node| matches!(node.standing, NodeStanding::Down { .. })) {
            duty::attach(state, rules, from, out);
        }
        return SwitchoverTransition::End(Ok(()));
    }
    match &mut of.stage {
        SwitchoverStage::Following { until, .. } if now >= *until => {
            failed("could not be made a standby; SHOW pool_nodes and the log tell more")
        }
        SwitchoverStage::Starting { until, .. } if now >= *until => failed("was not started"),
        SwitchoverStage::Returning { until } if now >= *until => failed("does not stream from it yet"),
        SwitchoverStage::Following { retry_at, .. } if now >= *retry_at => {
            *retry_at = Ms::MAX;
            let ballot = state.durable.vote.map_or(Ballot::default(), |vote| vote.ballot);
            out.push(FailoverAction::FollowServer { node: from, primary: to, ballot, limit_ms: FOLLOW_MS });
            SwitchoverTransition::Stay
        }
        SwitchoverStage::Starting { retry_at, .. } if now >= *retry_at => {
            *retry_at = Ms::MAX;
            out.push(FailoverAction::StartServer { node: from, limit_ms: START_MS });
            SwitchoverTransition::Stay
        }
        SwitchoverStage::Returning { .. } => {
            if let Some(node) = state.nodes.get_mut(&from) {
                node.look_soon(now, RECHECK_MS);
            }
            SwitchoverTransition::Stay
        }
        _ => SwitchoverTransition::Stay,
    }
}

/// Written or not.
pub(super) fn prepared(state: &mut FailoverState, node: NodeId, now: Ms) {
    if let Some(Switchover { from, stage: SwitchoverStage::Preparing { until }, .. }) = &mut state.planned.switchover
        && *from == node
    {
        *until = now;
    }
}

/// Handles the agent's end of a server whose stop did not complete, or a late answer to the stop order.
pub(super) fn ended(
    state: &mut FailoverState,
    (node, ballot): (NodeId, Ballot),
    end: ServerStopResult,
    now: Ms,
    out: &mut Vec<FailoverAction>,
) {
    let Some(of) = state.planned.switchover.as_mut().filter(|of| of.from == node) else { return };
    let SwitchoverStage::Undoing { start: start @ OldPrimaryStart::Ending(_), stop, .. } = &mut of.stage else { return };
    if !matches!(start, OldPrimaryStart::Ending(order) if order.ballot == ballot) {
        return;
    }
    match end {
        ServerStopResult::Before | ServerStopResult::Now => {
            // Do not end a recovering server again.
            (*start, *stop) = (OldPrimaryStart::Ordered, None);
            out.push(FailoverAction::StartServer { node, limit_ms: START_MS });
        }
        ServerStopResult::Unknown => *start = OldPrimaryStart::DueAt(now + RETRY_MS),
    }
}

pub(super) fn started(state: &mut FailoverState, node: NodeId, done: Done, now: Ms) {
    if let Some(known) = state.nodes.get_mut(&node) {
        known.look_anew(now);
    }
    let Some(of) = state.planned.switchover.as_mut().filter(|of| of.from == node) else { return };
    match (&mut of.stage, done) {
        (SwitchoverStage::Starting { .. }, Done::Yes) => of.stage = SwitchoverStage::Returning { until: now + RETURN_MS },
        (SwitchoverStage::Starting { retry_at, .. }, Done::No) => *retry_at = now + RETRY_MS,
        (SwitchoverStage::Undoing { start: start @ OldPrimaryStart::Ordered, .. }, Done::No) => {
            *start = OldPrimaryStart::DueAt(now + RETRY_MS)
        }
        (SwitchoverStage::Undoing { start, since, .. }, Done::Yes) => (*start, *since) = (OldPrimaryStart::Done, now),
        _ => {}
    }
}

pub(super) fn followed(state: &mut FailoverState, node: NodeId, done: Done, now: Ms) {
    let Some(of) = state.planned.switchover.as_mut().filter(|of| of.from == node) else { return };
    if let SwitchoverStage::Following { retry_at, .. } = &mut of.stage {
        match done {
            Done::Yes => of.stage = SwitchoverStage::Starting { until: now + RETURN_MS, retry_at: now },
            Done::No => *retry_at = now + RETRY_MS,
        }
    }
}

/// Handles an attempt without a decision: before the order to promote, the old primary goes on.
pub(super) fn attempt_ended(
    state: &mut FailoverState,
    attempt: &FailoverAttempt,
    refusal: AttemptRefusal,
    now: Ms,
    out: &mut Vec<FailoverAction>,
) {
    if state.primary() != Some(attempt.parent.node) {
        // A decision was learned from votes.
        return;
    }
    let Some(of) = state.planned.switchover.take_if(|of| of.stage == SwitchoverStage::Taking) else { return };
    let why = refusal.describe();
    let stop = match (&attempt.phase, attempt.aim) {
        (
            AttemptPhase::Storing
            | AttemptPhase::Pledging { .. }
            | AttemptPhase::Streaming { .. }
            | AttemptPhase::Yielding { .. }
            | AttemptPhase::Draining { .. }
            | AttemptPhase::Proving { .. }
            | AttemptPhase::Ending { .. },
            _,
        ) => {
            return out.push(FailoverAction::Reply { ticket: of.ticket, answer: Err(why) });
        }
        (AttemptPhase::Stopping { .. }, AttemptAim::Succeed { started_at, .. }) => {
            Some(StopOrder { ballot: attempt.ballot, started_at })
        }
        (
            AttemptPhase::Stopping { .. }
            | AttemptPhase::Parting { .. }
            | AttemptPhase::Inspecting { .. }
            | AttemptPhase::Replaying { .. }
            | AttemptPhase::Noting { .. },
            _,
        ) => None,
        (AttemptPhase::Promoting { .. } | AttemptPhase::Waiting { .. } | AttemptPhase::Voting { .. }, _) => {
            let answer = Err(format!("{why}; a standby is to replace node {}", of.from));
            return out.push(FailoverAction::Reply { ticket: of.ticket, answer });
        }
    };
    if let Some(node) = state.nodes.get_mut(&of.from) {
        node.look_anew(now);
    }
    state.planned.switchover = Some(Switchover { stage: undoing(why, stop, now), ..of });
}

/// The node that is stopped on purpose: its silence is no failure.
pub(super) fn node_stopped_on_purpose(state: &FailoverState) -> Option<NodeId> {
    let of = state.planned.switchover.as_ref()?;
    let is_stopped = match of.stage {
        SwitchoverStage::Taking => state.attempt.as_ref().is_none_or(|attempt| !attempt.is_before_stop()),
        SwitchoverStage::Undoing { .. } => true,
        SwitchoverStage::Waiting { .. }
        | SwitchoverStage::Preparing { .. }
        | SwitchoverStage::Following { .. }
        | SwitchoverStage::Starting { .. }
        | SwitchoverStage::Returning { .. } => false,
    };
    is_stopped.then_some(of.from)
}

/// True while no other attempt may begin here.
pub(super) fn reserves(state: &FailoverState) -> bool {
    let is_reserved = |of: &Switchover| matches!(of.stage, SwitchoverStage::Taking | SwitchoverStage::Undoing { .. });
    state.planned.switchover.as_ref().is_some_and(is_reserved)
}

pub(super) fn gate(state: &FailoverState) -> Option<WriteTarget> {
    match state.planned.switchover.as_ref()?.stage {
        // Promises of others to this attempt hold no writes up.
        SwitchoverStage::Taking if state.attempt.as_ref().is_some_and(FailoverAttempt::leaves_writes) => None,
        SwitchoverStage::Taking if matches!(state.attempt.as_ref()?.phase, AttemptPhase::Draining { .. }) => {
            Some(WriteTarget::Held(WriteHoldReason::SwitchedOver, OpenTransactionFate::Go))
        }
        SwitchoverStage::Taking | SwitchoverStage::Undoing { .. } => {
            Some(WriteTarget::Held(WriteHoldReason::SwitchedOver, OpenTransactionFate::End))
        }
        SwitchoverStage::Waiting { .. }
        | SwitchoverStage::Preparing { .. }
        | SwitchoverStage::Following { .. }
        | SwitchoverStage::Starting { .. }
        | SwitchoverStage::Returning { .. } => None,
    }
}

/// True if the primary hangs in its stop, or has stopped without its agent saying so.
pub(super) fn hangs(state: &FailoverState, id: NodeId, now: Ms) -> bool {
    state.nodes.get(&id).is_some_and(|node| match node.dead {
        Some((_, LookFailure::TimedOut)) => true,
        Some((since, _)) => node.failure == Some(LookFailure::Refused) && now >= since + AGENT_MS,
        None => false,
    })
}
