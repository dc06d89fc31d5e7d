//! Log lines of failover. Pgpool's words, for which scripts look, appear only when true.

use crate::control::control_context::ControlContext;
use crate::log::Level;
use std::collections::BTreeMap;
use weir_failover::operations::RejoinFallback;
use weir_failover::{
    APART_WORDS, AttemptRefusal, FailoverCause, FailoverCommandKind, FailoverEvent, FailoverMode, FailoverRecord, FailoverReport,
    FailoverRules, FailoverState, GroupRole, Ms, NodeDownReason, NodeId, NodeState, ProbeResult, ServerFacts, ServerStopResult,
    SightCount,
};

pub fn event(c: &ControlContext, event: &FailoverEvent) {
    if !matches!(
        event,
        FailoverEvent::Timer | FailoverEvent::Doubted | FailoverEvent::Probed { found: ProbeResult::Answered(_), .. }
    ) {
        c.shared.log.say(Level::Debug2, format_args!("failover: {event:?}"));
    }
}

/// Of a leader: others that miss a node, of which more are needed.
pub fn sights(c: &ControlContext, state: &FailoverState, of_others: &BTreeMap<NodeId, SightCount>) {
    for (node, count) in of_others {
        let before = state.sights.get(node).copied().unwrap_or_default();
        let is_missed_here = state.nodes.get(node).is_some_and(|node| node.failure.is_some());
        if count.dead > before.dead && !is_missed_here {
            let seen = format_args!("{} others of the group do not reach it, {} do, as this proxy does", count.dead, count.alive);
            c.shared.log.say(Level::Log, format_args!("failover request noted for node {node}: {seen}"));
        }
    }
}

pub fn report(c: &ControlContext, (rules, state): (&FailoverRules, &FailoverState), report: &FailoverReport, now: Ms) {
    let place = |id: NodeId| {
        let address = rules.node(id).map(|node| &node.address);
        address.map_or_else(String::new, |address| format!("{}({})", address.hostname, address.port))
    };
    let log = &c.shared.log;
    match report {
        FailoverReport::Degenerated { node, why } => {
            log.say(Level::Log, format_args!("=== Starting degeneration. shutdown host {} ===", place(*node)));
            log.say(Level::Warning, format_args!("node {node} is out of use: {}", lost(*why)));
            if state.primary() != Some(*node) && rules.group != GroupRole::Follows {
                log.say(Level::Log, format_args!("=== Failover done. shutdown host {} ===", place(*node)));
            }
        }
        FailoverReport::PromotedApart { node } => {
            log.say(Level::Warning, format_args!("node {node} is not to be used: {APART_WORDS}"));
        }
        FailoverReport::Unused { node } => {
            let text = "it streams from the primary and is out of use: attach it with pcp_attach_node, or ATTACH in the console; with auto_failback = on that happens by itself";
            log.say(Level::Log, format_args!("node {node}: {text}"));
        }
        FailoverReport::Attached { node } => {
            log.say(Level::Log, format_args!("=== Starting fail back. reconnect host {} ===", place(*node)));
            log.say(Level::Log, format_args!("node {node} is in use again"));
        }
        FailoverReport::Foreign { node, system, known } => foreign(c, *node, *system, *known),
        FailoverReport::Begun { node, system } => begun(c, *node, *system),
        FailoverReport::Quarantined { node, heard_by } => {
            let heard_by: Vec<String> = heard_by.iter().map(ToString::to_string).collect();
            log.say(Level::Log, format_args!("=== Starting quarantine. shutdown host {} ===", place(*node)));
            let text = "this proxy does not reach the primary, and its standbys do: writes wait, and nothing is promoted";
            log.say(Level::Error, format_args!("node {node}: {text}; heard by node {}", heard_by.join(", ")));
        }
        FailoverReport::SeenByOthers { node, others } => {
            log.say(Level::Log, format_args!("building consensus for request: failover of host {}", place(*node)));
            log.say(Level::Log, format_args!("changed to quarantine node request: host {}", place(*node)));
            let text = "this proxy does not reach it, and most of its group do: nothing is decided about it";
            log.say(Level::Error, format_args!("node {node}: {text}; {others} others reach it (failover_require_consensus)"));
        }
        FailoverReport::FalsePrimary { node } => false_primary(c, rules, *node),
        FailoverReport::Orphaned { node, upstream } => orphaned(c, *node, *upstream),
        FailoverReport::DoesNotStream { node, then } => does_not_stream(c, *node, *then),
        FailoverReport::Stuck { why: AttemptRefusal::NotByWeir } => {
            log.say(Level::Log, format_args!("the primary is gone, and failover_mode leaves it to others to promote a standby"));
        }
        FailoverReport::Stuck { why } => log.say(Level::Error, format_args!("there is no failover: {}", why.describe())),
        FailoverReport::Searching => {
            log.say(Level::Log, format_args!("find_primary_node_repeatedly: waiting for finding a primary node"));
        }
        FailoverReport::NotFound { waited_ms } => {
            let text = "no primary node was found (search_primary_node_timeout); writes wait, and one that appears is taken";
            log.say(Level::Error, format_args!("after {} s {text}", waited_ms / 1000));
        }
        FailoverReport::TakingOver { ballot } => {
            let text = "another proxy began to replace the primary and did not end it; this one settles it";
            log.say(Level::Log, format_args!("{text} (attempt {} of {:08x})", ballot.term, ballot.weir));
        }
        FailoverReport::Done(record) => {
            let facts = state.nodes.get(&record.new).and_then(NodeState::facts);
            let seen = if facts.is_some_and(ServerFacts::is_primary) { SeenAsPrimary::AsPrimary } else { SeenAsPrimary::No };
            accepted(c, record, seen, place, now);
        }
        FailoverReport::Ended { node, end } => log.say(Level::Log, format_args!("node {node}: {}", ended(*end))),
        FailoverReport::AwaitsRestart { node } => {
            log.say(Level::Log, format_args!("node {node} is out of use and has no agent: start its server anew now"));
        }
        FailoverReport::Mute { node, failure } => {
            let text = "it counts as alive, and its role and its log are not known";
            log.say(Level::Warning, format_args!("node {node} {} when it is looked at: {text}", failure.describe()));
        }
        FailoverReport::NoLogin { node, lasting_ms } => no_login(c, *node, *lasting_ms),
        FailoverReport::Slow { node, took_ms, limit_ms } => slow(c, *node, *took_ms, *limit_ms),
        FailoverReport::CommandLeftOut { node } => {
            let text = format_args!("node {node} has not answered since the start, so that failover_command is not run for it");
            log.say(Level::Log, text);
        }
        FailoverReport::CommandFailed { kind, node } => {
            log.say(Level::Error, format_args!("{} for node {node} failed", parameter(*kind)));
        }
    }
}

fn false_primary(c: &ControlContext, rules: &FailoverRules, node: NodeId) {
    let what = match rules.mode {
        FailoverMode::Builtin => "it gets no writes; a copy of the primary must be made there",
        // Another party may have promoted it and be about to stop the old primary: a copy would lose new commits.
        FailoverMode::Command | FailoverMode::Follow | FailoverMode::Off => {
            "it gets no writes while the primary of before answers as such"
        }
    };
    c.shared.log.say(Level::Error, format_args!("node {node} calls itself primary, too: {what}"));
}

fn orphaned(c: &ControlContext, node: NodeId, upstream: NodeId) {
    let text = "a promotion of it would lose what the primary has written since";
    let told = format_args!("node {node} receives nothing, since node {upstream}, which it follows, is dead: {text}");
    c.shared.log.say(Level::Warning, told);
}

fn does_not_stream(c: &ControlContext, node: NodeId, then: RejoinFallback) {
    match then {
        RejoinFallback::Copy => {
            let text = format_args!("node {node} was brought back and does not stream after a minute: it is copied");
            c.shared.log.say(Level::Warning, text);
        }
        RejoinFallback::Nothing => {
            let text = "does not stream after two copies in a row, and no more are made: the log of its server tells why; once it \
                 streams it is used, and pcp_recovery_node makes another copy";
            c.shared.log.say(Level::Error, format_args!("node {node} {text}"));
        }
    }
}

fn no_login(c: &ControlContext, node: NodeId, lasting_ms: Ms) {
    let text =
        "connections that are open are used, and no new one can be opened; if its postmaster is stuck, start the server anew";
    c.shared.log.say(Level::Error, format_args!("node {node} has answered no login for {} s: {text}", lasting_ms / 1000));
}

fn parameter(kind: FailoverCommandKind) -> &'static str {
    match kind {
        FailoverCommandKind::Failover => "failover_command",
        FailoverCommandKind::Failback => "failback_command",
        FailoverCommandKind::FollowPrimary => "follow_primary_command",
    }
}

fn slow(c: &ControlContext, node: NodeId, took_ms: Ms, limit_ms: Ms) {
    let text = "raise health_check_timeout, or a server that lives may be given up";
    let took = format_args!("node {node}: a look took {took_ms} ms, and {limit_ms} ms count as no answer: {text}");
    c.shared.log.say(Level::Warning, took);
}

fn foreign(c: &ControlContext, node: NodeId, system: u64, known: u64) {
    let text = "nothing is sent to it; if it is the right one, name the primary of its cluster with pcp_promote_node, or PROMOTE in the console";
    let what = format_args!("node {node} is a server of another cluster (system identifier {system}, not {known}): {text}");
    c.shared.log.say(Level::Error, what);
}

fn begun(c: &ControlContext, node: NodeId, system: u64) {
    let text = "what was known of the cluster before is forgotten, and connections to it are closed";
    let what = format_args!("node {node} is the primary of the cluster with system identifier {system}: {text}");
    c.shared.log.say(Level::Warning, what);
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SeenAsPrimary {
    AsPrimary,
    No,
}

fn accepted(c: &ControlContext, record: &FailoverRecord, seen: SeenAsPrimary, place: impl Fn(NodeId) -> String, now: Ms) {
    let (log, new) = (&c.shared.log, record.new);
    match (seen, record.why) {
        (SeenAsPrimary::AsPrimary, _) => log.say(Level::Log, format_args!("find_primary_node: primary node is {new}")),
        (SeenAsPrimary::No, FailoverCause::Adopted) => {
            log.say(Level::Log, format_args!("node {new} is the primary that servers have voted for; it is looked at"));
        }
        (SeenAsPrimary::No, _) => log.say(Level::Log, format_args!("node {new} is to be the primary; it is looked at")),
    }
    let Some(old) = record.old else { return };
    if old == new {
        let loss = record.loss.describe(now);
        let text = format_args!("node {new} is the primary again, on a new timeline: it was in recovery meanwhile; lost: {loss}");
        return log.say(Level::Warning, text);
    }
    let parts = record.parts;
    let times = format!(
        "{} ms to the verdict, {} ms to cut off the standbys, {} ms to promote, {} ms to agree",
        parts.verdict_ms, parts.pledge_ms, parts.promote_ms, parts.vote_ms
    );
    log.say(Level::Log, format_args!("failover: set new primary node: {new}"));
    let loss = record.loss.describe(now);
    log.say(
        Level::Warning,
        format_args!("node {new} is the primary after node {old} ({}); {times}; lost: {loss}", why(record.why)),
    );
    log.say(Level::Log, format_args!("failover done. shutdown host {}", place(old)));
}

fn ended(end: ServerStopResult) -> &'static str {
    match end {
        ServerStopResult::Before => "its server had ended, says its agent",
        ServerStopResult::Now => "its server ran and did not answer: it hangs, or its port is cut; its agent has ended it",
        ServerStopResult::Unknown => "its agent does not answer either, or could not end it",
    }
}

fn lost(why: NodeDownReason) -> String {
    match why {
        NodeDownReason::Failed(failure) => format!("it {}", failure.describe()),
        NodeDownReason::False => "it is a primary that nobody accepted".into(),
        NodeDownReason::Following => "it is to follow the new primary".into(),
        NodeDownReason::Foreign => "it is a server of another cluster".into(),
        NodeDownReason::Apart => APART_WORDS.into(),
        NodeDownReason::StatusFile => "pgpool_status says so".into(),
    }
}

fn why(why: FailoverCause) -> String {
    match why {
        FailoverCause::Found => "found".into(),
        FailoverCause::Died(failure) => format!("which {}", failure.describe()),
        FailoverCause::Demoted => "which is not a primary any more".into(),
        FailoverCause::SwitchedOver => "which made room for it".into(),
        FailoverCause::Named => "as it was named".into(),
        FailoverCause::Adopted => "as another proxy decided".into(),
    }
}
