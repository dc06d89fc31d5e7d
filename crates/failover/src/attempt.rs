//! One attempt to replace the primary, or to agree that it stays.
//!
//! ```text
//! Storing -> Pledging -> Proving -> Ending -> Noting -> Promoting -> Waiting -> Voting -> decided
//!               |  a vote is found: it is followed   ----------------------------^
//!               |  the primary answers: it stays     ----------------------------^
//! ```
//!
//! A switchover (`switchover`) stops the primary between two rounds of pledges: `Pledging -> Streaming -> Yielding -> Draining ->
//! Stopping -> Parting -> Inspecting -> Replaying -> Noting -> Promoting`. The first announces it: nothing is stopped without a majority. The
//! second cuts standbys off after they got all log.
//!
//! An attempt without a decision leaves marks for the next.

use std::collections::BTreeSet;

use super::accept::{self, PrimaryAcceptance};
use super::action::{FailoverAction, FailoverReport, PrimaryStopMode};
use super::ballot::{Ballot, Epoch, NodeId, Vote};
use super::choose::{self, AttemptRefusal, SyncStandbyKnowledge};
use super::event::{Done, LookFailure, Ms, PledgeReply, ServerFacts, ServerStopResult, VoteAnswer};
use super::health::RECHECK_MS;
use super::operations::{AskedVoters, AttemptAim, AttemptPhase, FailoverAttempt, PledgeState};
use super::record::{CommitLoss, FailoverCause};
use super::rules::{FailoverRules, SafetyRule};
use super::{eligible, promises, promoted_apart, switchover};
use crate::agent_inquiry;
use crate::failover_state::FailoverState;

mod succeed;

pub(super) use succeed::{drained, inspected, stopped, yielded};

const PLEDGE_MS: Ms = 2_000;
/// For a disk, or a group, to store which standby is told to promote itself. The proof that the old primary is gone grows old meanwhile.
const NOTE_MS: Ms = 5_000;
const PROMOTE_MS: Ms = 2_000;
const WRITABLE_MS: Ms = 30_000;
/// For an order to promote that may not have arrived.
const DOUBTFUL_MS: Ms = 2_000;
const VOTE_MS: Ms = 5_000;
const PROVE_MS: Ms = 5_000;
/// Includes a checkpoint, archiving, and sending all log to standbys.
const STOP_MS: Ms = 20_000;
const INSPECT_MS: Ms = 2_000;
/// Afterwards the attempt goes on as without an agent.
const END_MS: Ms = 2_000;
/// The server sends all WAL to the standbys before the port closes.
const SHUTDOWN_MS: Ms = 1_000;
/// The spread depends on the Weir's number, against repeated collisions.
const RETRY_MS: Ms = 1_000;
const RETRY_SPREAD_MS: Ms = 1_000;

enum AttemptTransition {
    Stay,
    Phase(AttemptPhase),
    End(AttemptRefusal),
    Decided,
}

pub(super) fn pledged(state: &mut FailoverState, node: NodeId, ballot: Ballot, outcome: &PledgeReply) {
    if let PledgeReply::Refused { mark } = outcome {
        state.promises.term_seen = state.promises.term_seen.max(mark.promised.term);
    }
    let Some(attempt) = state.attempt.as_mut().filter(|attempt| attempt.ballot == ballot) else { return };
    let answer = match outcome {
        PledgeReply::Given { facts } => PledgeState::Given(Box::new(facts.clone())),
        PledgeReply::Refused { .. } | PledgeReply::Failed(_) => PledgeState::No,
    };
    // A late answer must not change a decided phase.
    if matches!(attempt.phase, AttemptPhase::Pledging { .. } | AttemptPhase::Parting { .. }) {
        attempt.pledges.insert(node, answer);
    }
}

/// `Done::No`: the promotion may have happened, so the next phase tells.
pub(super) fn promoted(
    state: &mut FailoverState,
    node: NodeId,
    ballot: Ballot,
    done: Done,
    now: Ms,
    out: &mut Vec<FailoverAction>,
) {
    let Some(attempt) = state.attempt.as_mut().filter(|attempt| attempt.ballot == ballot) else { return };
    if matches!(attempt.phase, AttemptPhase::Promoting { node: of, .. } if of == node) {
        let limit_ms = if done == Done::Yes { WRITABLE_MS } else { DOUBTFUL_MS };
        attempt.phase = AttemptPhase::Waiting { node, until: now + limit_ms + RECHECK_MS };
        out.push(FailoverAction::WaitWritable { node, ballot, limit_ms });
    }
}

pub(super) fn writable(
    state: &mut FailoverState,
    rules: &FailoverRules,
    (node, ballot): (NodeId, Ballot),
    outcome: &Result<ServerFacts, LookFailure>,
    now: Ms,
    out: &mut Vec<FailoverAction>,
) {
    let Some(attempt) = state.attempt.as_mut().filter(|attempt| attempt.ballot == ballot) else { return };
    if !matches!(attempt.phase, AttemptPhase::Waiting { node: of, .. } if of == node) {
        return;
    }
    match outcome {
        Ok(facts) => {
            attempt.parts.promote_ms = now.saturating_sub(attempt.begun_at + attempt.parts.pledge_ms);
            let epoch = Epoch { ballot, node, replaced: Some(attempt.parent.node).filter(|old| *old != node) };
            vote(attempt, rules, epoch, Some(Box::new(facts.clone())), now, out);
        }
        Err(_) => end(state, AttemptRefusal::NotPromoted { node }, now, out),
    }
}

pub(super) fn repointed(state: &mut FailoverState, node: NodeId, vote: Vote, outcome: VoteAnswer) {
    if let VoteAnswer::Refused { mark } = outcome {
        state.promises.term_seen = state.promises.term_seen.max(mark.promised.term);
    }
    if outcome == VoteAnswer::Yes
        && let Some(attempt) = &mut state.attempt
        && let AttemptPhase::Voting { vote: of, votes, .. } = &mut attempt.phase
        && *of == vote
    {
        votes.insert(node);
    }
}

/// Counts own votes that looks have found on servers: the answer to the order that cast one may come later, or be lost.
pub(super) fn count_seen_votes(state: &mut FailoverState, rules: &FailoverRules, now: Ms, out: &mut Vec<FailoverAction>) {
    let Some(attempt) = &mut state.attempt else { return };
    let AttemptPhase::Voting { vote, votes, .. } = &mut attempt.phase else { return };
    let casts = |node: &super::node_state::NodeState| node.seen.as_ref().is_some_and(|seen| seen.facts.mark.vote == Some(*vote));
    let before = votes.len();
    votes.extend(state.nodes.iter().filter(|(_, node)| casts(node)).map(|(id, _)| *id));
    if votes.len() > before {
        drive(state, rules, now, out);
    }
}

pub(super) fn drive(state: &mut FailoverState, rules: &FailoverRules, now: Ms, out: &mut Vec<FailoverAction>) {
    // The longest path, a switchover, has thirteen phases.
    for _ in 0..13 {
        let Some(mut attempt) = state.attempt.take() else { return };
        let next = advance(state, &mut attempt, rules, now, out);
        match next {
            AttemptTransition::Stay => {
                state.attempt = Some(attempt);
                return;
            }
            AttemptTransition::Phase(phase) => {
                attempt.phase = phase;
                state.attempt = Some(attempt);
            }
            AttemptTransition::End(refusal) => {
                state.attempt = Some(attempt);
                return end(state, refusal, now, out);
            }
            AttemptTransition::Decided => return decided(state, rules, attempt, now, out),
        }
    }
}

fn advance(
    state: &mut FailoverState,
    attempt: &mut FailoverAttempt,
    rules: &FailoverRules,
    now: Ms,
    out: &mut Vec<FailoverAction>,
) -> AttemptTransition {
    if attempt.is_before_stop() && accept::gone(state).is_some() {
        return AttemptTransition::End(AttemptRefusal::Failed { node: attempt.parent.node });
    }
    match attempt.phase.clone() {
        AttemptPhase::Storing => {
            if state.is_stored() || !rules.keeps(SafetyRule::StoreFirst) {
                let until = ask(state, attempt, rules, now, out);
                AttemptTransition::Phase(AttemptPhase::Pledging { until })
            } else {
                AttemptTransition::Stay
            }
        }
        AttemptPhase::Streaming { from, until } => succeed::streaming(state, attempt, rules, (from, until), now, out),
        AttemptPhase::Yielding { until, drained_by } => succeed::yielding(attempt, (until, drained_by), now, out),
        AttemptPhase::Draining { until } => succeed::draining(attempt, until, now, out),
        AttemptPhase::Stopping { until } => succeed::stopping(state, attempt, until, now),
        AttemptPhase::Inspecting { until } if now >= until => {
            AttemptTransition::End(AttemptRefusal::NotStopped { node: attempt.parent.node })
        }
        AttemptPhase::Inspecting { .. } => AttemptTransition::Stay,
        AttemptPhase::Replaying { last, until } => succeed::replaying(state, attempt, (last, until), now),
        AttemptPhase::Pledging { until } | AttemptPhase::Parting { until } => {
            let is_open = attempt.pledges.values().any(|answer| *answer == PledgeState::Open);
            if is_open && now < until { AttemptTransition::Stay } else { count_pledges(state, attempt, rules, now, out) }
        }
        AttemptPhase::Proving { from, until } => prove(state, attempt, rules, (from, until), now, out),
        AttemptPhase::Ending { failure, until } if now >= until => {
            ended(state, attempt, rules, (failure, ServerStopResult::Unknown), now, out)
        }
        AttemptPhase::Ending { .. } => AttemptTransition::Stay,
        AttemptPhase::Noting { node, until } => note(state, attempt, rules, (node, until), now, out),
        AttemptPhase::Promoting { node, until } | AttemptPhase::Waiting { node, until }
            if now >= until || succeed::has_lost(state, attempt, node) =>
        {
            AttemptTransition::End(AttemptRefusal::NotPromoted { node })
        }
        AttemptPhase::Promoting { .. } | AttemptPhase::Waiting { .. } => AttemptTransition::Stay,
        AttemptPhase::Voting { vote, found, votes, asked: AskedVoters::Itself, until } if votes.contains(&vote.epoch.node) => {
            ask_others(attempt, rules, vote, out);
            AttemptTransition::Phase(AttemptPhase::Voting { vote, found, votes, asked: AskedVoters::All, until })
        }
        AttemptPhase::Voting { votes, until, .. } => {
            let counted = votes.intersection(&attempt.electors(rules)).count();
            let needed = attempt.needed(rules);
            if counted >= needed || !rules.keeps(SafetyRule::CarryFirst) {
                return AttemptTransition::Decided;
            }
            let of = attempt.electors(rules).len();
            if now >= until {
                AttemptTransition::End(AttemptRefusal::TooFewPledged { pledged: counted, needed, of })
            } else {
                AttemptTransition::Stay
            }
        }
    }
}

/// Returns the deadline. Standbys are cut off from a primary to be replaced, or stopped.
fn ask(
    state: &FailoverState,
    attempt: &mut FailoverAttempt,
    rules: &FailoverRules,
    now: Ms,
    out: &mut Vec<FailoverAction>,
) -> Ms {
    let is_over = match attempt.aim {
        AttemptAim::Replace | AttemptAim::Force { .. } => true,
        AttemptAim::Succeed { .. } => attempt.phase != AttemptPhase::Storing,
        AttemptAim::Settle | AttemptAim::ClearPromises | AttemptAim::RestoreVote => false,
    };
    let cuts = rules.keeps(SafetyRule::CutOff) && is_over;
    let ballot = attempt.ballot;
    for id in rules.ids().filter(|id| *id != attempt.parent.node) {
        attempt.pledges.insert(id, PledgeState::Open);
        let action = if cuts {
            FailoverAction::CutOff { node: id, ballot, limit_ms: PLEDGE_MS }
        } else {
            FailoverAction::Pledge { node: id, ballot, limit_ms: PLEDGE_MS }
        };
        out.push(action);
    }
    // Nodes that failed their last look are asked too, but not waited for alone.
    let is_known = |id: &&NodeId| state.facts(**id).is_some();
    let hopeless = attempt.pledges.keys().all(|id| !is_known(&id));
    now + if hopeless { RECHECK_MS } else { PLEDGE_MS }
}

fn count_pledges(
    state: &mut FailoverState,
    attempt: &mut FailoverAttempt,
    rules: &FailoverRules,
    now: Ms,
    out: &mut Vec<FailoverAction>,
) -> AttemptTransition {
    attempt.parts.pledge_ms = now.saturating_sub(attempt.begun_at);
    let (given, electors) = (attempt.given(), attempt.electors(rules));
    let (pledged, needed) = (given.intersection(&electors).count(), attempt.needed(rules));
    if pledged < needed {
        return AttemptTransition::End(AttemptRefusal::TooFewPledged { pledged, needed, of: electors.len() });
    }
    let votes: Vec<Vote> = attempt.facts().filter_map(|(_, facts)| facts.mark.vote).collect();
    if votes.iter().any(|vote| vote.parent.ballot > attempt.parent.ballot) {
        // Looks at the same marks catch up with the missed decision.
        accept::learn_votes(state, rules, &votes, now, out);
        return AttemptTransition::End(AttemptRefusal::Outrun);
    }
    let may_decide = |vote: &&Vote| promises::may_decide(vote, &attempt.parent, attempt.quorum, attempt.ballot.weir);
    let newest = votes.iter().filter(may_decide).max_by_key(|vote| vote.ballot).copied();
    let newest = newest.filter(|_| rules.keeps(SafetyRule::Evidence) && !matches!(attempt.aim, AttemptAim::Force { .. }));
    if let Some(found) = newest {
        let facts = accept::own_facts(state, &found.epoch).map(Box::new);
        attempt.why = FailoverCause::Adopted;
        vote(attempt, rules, found.epoch, facts, now, out);
        return AttemptTransition::Stay;
    }
    if let AttemptAim::Succeed { node, .. } = attempt.aim {
        return succeed::pledged(state, attempt, rules, node, now, out);
    }
    let until = now + PROVE_MS;
    if let Some(node) = state.nodes.get_mut(&attempt.parent.node) {
        node.look_anew(now);
    }
    AttemptTransition::Phase(AttemptPhase::Proving { from: now, until })
}

/// A last look decides whether the old primary stays.
fn prove(
    state: &mut FailoverState,
    attempt: &mut FailoverAttempt,
    rules: &FailoverRules,
    (from, until): (Ms, Ms),
    now: Ms,
    out: &mut Vec<FailoverAction>,
) -> AttemptTransition {
    let old = attempt.parent.node;
    let Some(node) = state.nodes.get_mut(&old) else { return pick(state, attempt, rules, now) };
    if let AttemptAim::Force { node, .. } = attempt.aim {
        let is_asked = attempt.given().contains(&node);
        return if is_asked { promote(node, now) } else { AttemptTransition::End(AttemptRefusal::NoStandby) };
    }
    let skips = !rules.keeps(SafetyRule::SecondLook) && attempt.aim == AttemptAim::Replace;
    if !node.was_looked_at_since(from) && !skips {
        return if now >= until { AttemptTransition::End(AttemptRefusal::NotProvenDead) } else { AttemptTransition::Stay };
    }
    let failure = node.failure;
    let facts = node.facts().cloned();
    match (facts, failure) {
        (Some(facts), _) if state.is_on_line(&facts) && !skips => {
            let replaced = attempt.parent.replaced.filter(|_| attempt.aim != AttemptAim::RestoreVote);
            vote(attempt, rules, Epoch { ballot: attempt.ballot, node: old, replaced }, Some(Box::new(facts)), now, out);
            AttemptTransition::Stay
        }
        // Still shutting down, or not asked.
        (_, Some(again @ (LookFailure::ShuttingDown | LookFailure::Ended | LookFailure::Local)))
            if again != LookFailure::ShuttingDown || now < from + SHUTDOWN_MS || !rules.is_alone() =>
        {
            if let Some(node) = state.nodes.get_mut(&old) {
                node.look_by(now + RECHECK_MS);
            }
            if now >= until { AttemptTransition::End(AttemptRefusal::NotProvenDead) } else { AttemptTransition::Stay }
        }
        (_, Some(failure)) if !failure.is_death() && failure != LookFailure::Starting => {
            AttemptTransition::End(AttemptRefusal::NotProvenDead)
        }
        (_, Some(failure)) if attempt.aim == AttemptAim::Replace && is_to_be_ended(rules, old, failure) && !skips => {
            // Without a successor the primary is not stopped.
            if let Err(refusal) = chosen(state, attempt, rules) {
                return AttemptTransition::End(refusal);
            }
            let started_at = state.nodes.get(&old).and_then(|node| Some(node.seen.as_ref()?.facts.started_at));
            let (ballot, mode, limit_ms) = (attempt.ballot, PrimaryStopMode::Crash, END_MS);
            out.push(FailoverAction::StopServer { node: old, ballot, started_at, mode, limit_ms });
            AttemptTransition::Phase(AttemptPhase::Ending { failure, until: now + END_MS + RECHECK_MS })
        }
        (_, failure) if attempt.aim == AttemptAim::Replace => {
            let is_proven = failure == Some(LookFailure::Refused) || failure.is_none();
            if is_proven || eligible::may_be_silent(state, rules, &attempt.given()) || skips {
                pick(state, attempt, rules, now)
            } else {
                AttemptTransition::End(AttemptRefusal::NotProvenDead)
            }
        }
        // The primary no longer answers: its health decides again.
        _ => AttemptTransition::End(AttemptRefusal::NotProvenDead),
    }
}

/// True if the agent ends the primary. A server that answers, even that it starts or shuts down, is never ended. A refused port may be a
/// firewall's.
fn is_to_be_ended(rules: &FailoverRules, id: NodeId, failure: LookFailure) -> bool {
    rules.has_agent(id) && (failure == LookFailure::Refused || failure.is_silence())
}

/// Takes in the agent's answer. Before pledges and failed look the server could have been restarted and written to by another Weir.
fn ended(
    state: &mut FailoverState,
    attempt: &mut FailoverAttempt,
    rules: &FailoverRules,
    (failure, end): (LookFailure, ServerStopResult),
    now: Ms,
    out: &mut Vec<FailoverAction>,
) -> AttemptTransition {
    let old = attempt.parent.node;
    out.push(FailoverAction::Report(FailoverReport::Ended { node: old, end }));
    let is_proven = match end {
        ServerStopResult::Before | ServerStopResult::Now => true,
        ServerStopResult::Unknown => {
            agent_inquiry::failed(state, old, now);
            if state.facts(old).is_some_and(|facts| state.is_on_line(facts)) {
                // The primary may answer by now: look again.
                return AttemptTransition::Phase(AttemptPhase::Proving { from: now, until: now + PROVE_MS });
            }
            failure == LookFailure::Refused || eligible::may_be_silent(state, rules, &attempt.given())
        }
    };
    if is_proven { pick(state, attempt, rules, now) } else { AttemptTransition::End(AttemptRefusal::NotProvenDead) }
}

fn chosen(
    state: &FailoverState,
    attempt: &FailoverAttempt,
    rules: &FailoverRules,
) -> Result<choose::ChosenStandby, AttemptRefusal> {
    let candidates = eligible::candidates(state, rules, attempt.facts())?;
    choose::choose(rules, &state.sync(rules), &candidates, state.samples())
}

fn pick(state: &FailoverState, attempt: &mut FailoverAttempt, rules: &FailoverRules, now: Ms) -> AttemptTransition {
    match chosen(state, attempt, rules) {
        Err(refusal) => AttemptTransition::End(refusal),
        Ok(choice) => {
            let sync = state.sync(rules);
            attempt.loss = match sync {
                _ if !rules.keeps(SafetyRule::TellLoss) => CommitLoss::Nothing,
                SyncStandbyKnowledge::Synchronous(_) => CommitLoss::Nothing,
                SyncStandbyKnowledge::Asynchronous | SyncStandbyKnowledge::Unknown => state.loss_at(choice.position),
            };
            promote(choice.node, now)
        }
    }
}

fn promote(node: NodeId, now: Ms) -> AttemptTransition {
    AttemptTransition::Phase(AttemptPhase::Noting { node, until: now + NOTE_MS })
}

/// Tells the chosen standby to promote itself once that is stored: if another one wins, whoever decides that must know of the order.
fn note(
    state: &mut FailoverState,
    attempt: &FailoverAttempt,
    rules: &FailoverRules,
    (node, until): (NodeId, Ms),
    now: Ms,
    out: &mut Vec<FailoverAction>,
) -> AttemptTransition {
    if rules.keeps(SafetyRule::CopyApart) {
        let ahead = promoted_apart::ahead(state, attempt, node);
        state.change(|durable| {
            durable.told.insert(node);
            durable.ahead.extend(ahead);
        });
        let is_over = now >= until || succeed::has_lost(state, attempt, node);
        if is_over {
            return AttemptTransition::End(AttemptRefusal::NotPromoted { node });
        }
        if !state.is_stored() {
            return AttemptTransition::Stay;
        }
    }
    out.push(FailoverAction::Promote { node, ballot: attempt.ballot, limit_ms: PROMOTE_MS });
    AttemptTransition::Phase(AttemptPhase::Promoting { node, until: now + PROMOTE_MS + RECHECK_MS })
}

fn vote(
    attempt: &mut FailoverAttempt,
    rules: &FailoverRules,
    epoch: Epoch,
    found: Option<Box<ServerFacts>>,
    now: Ms,
    out: &mut Vec<FailoverAction>,
) {
    let vote = Vote { ballot: attempt.ballot, epoch, parent: attempt.parent };
    out.push(FailoverAction::Repoint { node: epoch.node, vote, limit_ms: VOTE_MS });
    // A primary that stays or already has votes has followers.
    let is_new = epoch.ballot == attempt.ballot && epoch.node != attempt.parent.node;
    let asked = if is_new { AskedVoters::Itself } else { AskedVoters::All };
    if asked == AskedVoters::All {
        ask_others(attempt, rules, vote, out);
    }
    attempt.phase = AttemptPhase::Voting { vote, found, votes: BTreeSet::new(), asked, until: now + VOTE_MS };
}

fn ask_others(attempt: &FailoverAttempt, rules: &FailoverRules, vote: Vote, out: &mut Vec<FailoverAction>) {
    for node in attempt.electors(rules).into_iter().filter(|id| *id != vote.epoch.node) {
        out.push(FailoverAction::Repoint { node, vote, limit_ms: VOTE_MS });
    }
}

fn decided(
    state: &mut FailoverState,
    rules: &FailoverRules,
    mut attempt: FailoverAttempt,
    now: Ms,
    out: &mut Vec<FailoverAction>,
) {
    let AttemptPhase::Voting { vote, found, .. } = attempt.phase.clone() else { return };
    attempt.parts.vote_ms = now.saturating_sub(attempt.begun_at + attempt.parts.pledge_ms + attempt.parts.promote_ms);
    if let AttemptAim::Force { ticket, .. } = attempt.aim {
        out.push(FailoverAction::Reply { ticket, answer: Ok(()) });
    }
    let loss = if vote.epoch.node == attempt.parent.node { CommitLoss::Nothing } else { attempt.loss };
    let accepting = PrimaryAcceptance { epoch: vote.epoch, vote: Some(vote), why: attempt.why, parts: attempt.parts, loss };
    accept::accept(state, rules, accepting, found.map(|facts| *facts), now, out);
}

pub(super) fn end(state: &mut FailoverState, refusal: AttemptRefusal, now: Ms, out: &mut Vec<FailoverAction>) {
    let Some(attempt) = state.attempt.take() else { return };
    let is_void = attempt.is_void(refusal);
    if is_void {
        state.forget(attempt.ballot);
    }
    match attempt.aim {
        AttemptAim::Force { ticket, .. } => out.push(FailoverAction::Reply { ticket, answer: Err(refusal.describe()) }),
        AttemptAim::Succeed { .. } => switchover::attempt_ended(state, &attempt, refusal, now, out),
        AttemptAim::Replace | AttemptAim::Settle | AttemptAim::ClearPromises | AttemptAim::RestoreVote => {}
    }
    let spread =
        u64::from(attempt.ballot.weir).wrapping_mul(2_654_435_761).wrapping_add(attempt.ballot.term * 977) % RETRY_SPREAD_MS;
    // If nothing was stopped, retry at once to settle promises or replace a failed primary.
    let is_outrun = is_void && refusal == AttemptRefusal::Outrun;
    state.retry_at = if attempt.is_before_stop() || is_outrun { now } else { now + RETRY_MS + spread };
    if refusal != AttemptRefusal::Outrun && !matches!(attempt.aim, AttemptAim::Succeed { .. } | AttemptAim::ClearPromises) {
        stuck(state, refusal, out);
    }
}

/// Reports each reason once.
pub(super) fn stuck(state: &mut FailoverState, why: AttemptRefusal, out: &mut Vec<FailoverAction>) {
    if state.stuck != Some(why) {
        state.stuck = Some(why);
        out.push(FailoverAction::Report(FailoverReport::Stuck { why }));
    }
}
