//! The return of replaced primaries by their agents, deed by deed as `weir_failover::rejoin` decides; `control::return_node` of Weir does the same.

use weir_failover::operations::RejoinWay;
use weir_failover::rejoin::{self, RejoinFacts, RejoinStep, RewindFitness, SoFar};
use weir_failover::{Ballot, Done, FailoverEvent, Ms, NodeId};

use crate::fault::{Repair, Restarted};
use crate::server::{Power, Role};
use crate::world::{Due, World};

/// A return that is under way.
#[derive(Clone, Copy, Debug)]
pub struct Return {
    pub weir: usize,
    pub life: u32,
    pub node: NodeId,
    pub primary: NodeId,
    pub ballot: Ballot,
    pub way: RejoinWay,
    pub so_far: SoFar,
    /// The start of the server that was seen last.
    pub started_at: u64,
}

/// The next part of it.
#[derive(Clone, Copy, Debug)]
pub enum Step {
    /// The agent is asked.
    Look,
    /// It has answered.
    Decide(RejoinFacts),
    /// It has a deed to do.
    Begin(RejoinStep),
    /// It comes to the end of one.
    Finish(RejoinStep),
    Failed,
}

/// A Weir hears of an agent that says nothing after so long.
const SILENT_MS: Ms = 2_000;

impl World {
    pub(crate) fn bring_back(&mut self, of: Return) {
        let delay = self.delay();
        self.later(delay, Due::Return(of, Step::Look));
    }

    pub(crate) fn return_step(&mut self, mut of: Return, step: Step) {
        let (at, end) = (usize::from(of.node), self.end_of(of.weir));
        let is_weir_there = self.weirs[of.weir].life == of.life && self.weirs[of.weir].state.is_some();
        let is_linked = self.passes(at, end) && self.passes(end, at);
        let is_agent_there = self.servers[at].power != Power::Dark && self.now >= self.agents[at].down_until;
        match step {
            // A deed that was begun goes on.
            Step::Finish(deed) => {
                let done = self.perform(&of, deed);
                if !is_agent_there || !is_linked || done == Done::No {
                    return self.later(SILENT_MS, Due::Return(of, Step::Failed));
                }
                of.so_far = after(deed, of.so_far);
                let delay = self.delay();
                self.later(delay, Due::Return(of, Step::Look));
            }
            _ if !is_weir_there => {}
            Step::Failed => self.tell(of.weir, &FailoverEvent::Rejoined { node: of.node, done: Done::No }),
            Step::Look | Step::Begin(_) if !is_linked || !is_agent_there => {
                self.later(SILENT_MS, Due::Return(of, Step::Failed));
            }
            Step::Look => {
                of.started_at = self.servers[at].started_at;
                let (seen, delay) = (self.seen(at), self.delay());
                self.later(delay, Due::Return(of, Step::Decide(seen)));
            }
            Step::Decide(seen) => self.decide_return(of, &seen),
            Step::Begin(deed) => {
                let takes = match deed {
                    RejoinStep::Rewind | RejoinStep::Copy => self.dice.within(20, 3_000),
                    _ => self.dice.within(5, 300),
                };
                self.later(takes, Due::Return(of, Step::Finish(deed)));
            }
        }
    }

    fn seen(&mut self, at: usize) -> RejoinFacts {
        let files = if self.dice.percent(70) { RewindFitness::CanBeRewound } else { RewindFitness::MustBeCopied };
        let server = &self.servers[at];
        let running = if server.is_primary() { rejoin::ServerRunState::Primary } else { rejoin::ServerRunState::Standby };
        let server_seen = if server.power == Power::Stopped { rejoin::ServerRunState::Stopped } else { running };
        RejoinFacts { server: server_seen, files, mark: server.mark }
    }

    /// The Weir decides on the next deed.
    fn decide_return(&mut self, of: Return, seen: &RejoinFacts) {
        let deed = rejoin::deed(seen, of.so_far, of.way, Some(of.ballot));
        let is_primary = self.weirs[of.weir].state.as_ref().is_some_and(|state| state.primary() == Some(of.primary));
        if !is_primary {
            return self.tell(of.weir, &FailoverEvent::Rejoined { node: of.node, done: Done::No });
        }
        match deed {
            RejoinStep::Rest => {
                self.counts.brought_back += 1;
                self.tell(of.weir, &FailoverEvent::Rejoined { node: of.node, done: Done::Yes });
            }
            RejoinStep::Leave(_) => self.tell(of.weir, &FailoverEvent::Rejoined { node: of.node, done: Done::No }),
            deed => {
                let delay = self.delay();
                self.later(delay, Due::Return(of, Step::Begin(deed)));
            }
        }
    }

    /// A deed of the agent.
    fn perform(&mut self, of: &Return, deed: RejoinStep) -> Done {
        let at = usize::from(of.node);
        let power = self.servers[at].power;
        self.note(|| format!("agent of node {at}: {deed:?}, server {power:?}"));
        match (deed, power) {
            (RejoinStep::Stop, Power::Stopped) => Done::Yes,
            (RejoinStep::Stop, Power::Up) if self.servers[at].started_at == of.started_at => self.stop_cleanly(of.node),
            // pg_rewind finds nothing to do between logs of one timeline.
            (RejoinStep::Rewind, Power::Stopped) if self.is_of_one_timeline(of) => Done::Yes,
            (RejoinStep::Rewind | RejoinStep::Copy, Power::Stopped) => self.take_files(of),
            (RejoinStep::Follow, Power::Stopped) => {
                let server = &mut self.servers[at];
                server.role = Role::Standby { upstream: Some(of.primary) };
                (server.heard.at, server.is_read_only) = (None, false);
                Done::Yes
            }
            (RejoinStep::Start, Power::Stopped) => {
                self.servers[at].power = Power::Starting;
                self.agents[at].clean_end = None;
                let lasts = self.dice.within(50, 1_000);
                self.repair_in(lasts, Repair::Ready(of.node, Restarted::Yes));
                Done::Yes
            }
            _ => Done::No,
        }
    }

    fn is_of_one_timeline(&self, of: &Return) -> bool {
        let [own, source] = [of.node, of.primary].map(|id| &self.servers[usize::from(id)]);
        own.history.timeline == source.history.timeline
    }

    /// The files of the primary, as those of a standby that does not know yet whom it follows.
    fn take_files(&mut self, of: &Return) -> Done {
        let (at, from) = (usize::from(of.node), usize::from(of.primary));
        if self.servers[from].power != Power::Up || !self.passes(at, from) || !self.passes(from, at) {
            return Done::No;
        }
        let source = self.servers[from].clone();
        for server in &mut self.servers {
            server.flushed.remove(&of.node);
        }
        self.servers[at].copy(&source);
        self.servers[at].role = Role::Standby { upstream: None };
        self.agents[at].clean_end = None;
        Done::Yes
    }
}

fn after(deed: RejoinStep, so_far: SoFar) -> SoFar {
    match deed {
        RejoinStep::Stop | RejoinStep::Rest | RejoinStep::Leave(_) => so_far,
        RejoinStep::Rewind | RejoinStep::Copy => SoFar::Restored,
        RejoinStep::Follow => SoFar::Pointed,
        RejoinStep::Start => SoFar::Started,
    }
}
