//! Servers that are no copies of each other (`raw`): the first one in use gets everything.
//!
//! As with Pgpool-II a dead server is out of use until an operator attaches it: an automatic return would scatter rows. Without a health
//! check (`health_check_period = 0`) the server is waited for.

use super::action::{FailoverAction, NodeDownReason};
use super::ballot::NodeId;
use super::duty;
use super::event::Ms;
use super::rules::FailoverRules;
use crate::failover_state::{self, FailoverState};

/// Takes a dead first node out of use if another one is alive.
pub(super) fn leave_dead(state: &mut FailoverState, rules: &FailoverRules, now: Ms, out: &mut Vec<FailoverAction>) {
    while let Some(first) = state.first_in_use(rules) {
        let is_watched = rules.node(first).is_some_and(|node| node.health.period_ms > 0);
        let dead = state
            .nodes
            .get(&first)
            .and_then(|node| node.dead)
            .filter(|_| is_watched && !failover_state::is_untouchable(rules, first));
        let Some((_, failure)) = dead.filter(|_| has_another(state, rules, first)) else { return };
        duty::put_down(state, rules, first, NodeDownReason::Failed(failure), now, out);
    }
}

fn has_another(state: &FailoverState, rules: &FailoverRules, first: NodeId) -> bool {
    let lives = |(id, node): (&NodeId, &crate::node_state::NodeState)| {
        *id != first
            && !state.is_out(rules, *id)
            && node.looked_at.is_some()
            && node.failure.is_none_or(|failure| failure.is_mute())
    };
    state.nodes.iter().any(lives)
}

#[cfg(test)]
mod tests {
    use super::super::event::{FailoverEvent, LookFailure, ProbeResult, ServerFacts};
    use super::super::history::TimelineHistory;
    use super::super::rules::tests::rules;
    use super::super::rules::{FailoverMode, ServerRelation};
    use super::super::{FailoverState, step};
    use super::*;

    struct Scene {
        rules: FailoverRules,
        state: FailoverState,
        now: Ms,
    }

    impl Scene {
        fn new(period_ms: Ms) -> Scene {
            let mut rules = FailoverRules { mode: FailoverMode::Off, servers: ServerRelation::Unrelated, ..rules(2) };
            rules.nodes.iter_mut().for_each(|node| (node.health.period_ms, node.health.retries) = (period_ms, 1));
            let state = FailoverState::new(&rules, None, 1, &Default::default());
            Scene { rules, state, now: 0 }
        }

        /// Looks at both, a second after the last ones.
        fn look(&mut self, first: ProbeResult, second: ProbeResult) -> Vec<FailoverAction> {
            self.now += 1_000;
            let mut out = Vec::new();
            for (node, found) in [(0, first), (1, second)] {
                let event = FailoverEvent::Probed { node, begun_at: self.now - 1, found };
                out.extend(step(&mut self.state, &self.rules, &event, self.now));
            }
            out.retain(|action| !matches!(action, FailoverAction::Probe { .. } | FailoverAction::Store { .. }));
            out
        }

        fn first(&self) -> Option<NodeId> {
            self.state.first_in_use(&self.rules)
        }
    }

    fn alive() -> ProbeResult {
        ProbeResult::Answered(Box::<ServerFacts>::default())
    }

    const DEAD: ProbeResult = ProbeResult::Failed(LookFailure::Refused);

    #[test]
    fn the_first_server_is_left_only_when_its_health_check_says_so_and_comes_back_by_hand() {
        let mut scene = Scene::new(1_000);
        assert_eq!((scene.look(DEAD, alive()), scene.first()), (Vec::new(), Some(0)), "one retry is configured");
        assert_eq!((scene.look(alive(), alive()), scene.first()), (Vec::new(), Some(0)));
        scene.look(DEAD, alive());
        assert!(!scene.look(DEAD, alive()).is_empty() && scene.first() == Some(1));
        scene.look(alive(), alive());
        assert_eq!(scene.first(), Some(1), "it may lack rows that were written meanwhile");
    }

    #[test]
    fn a_server_that_nothing_can_replace_is_waited_for() {
        let mut unwatched = Scene::new(0);
        let mut alone = Scene::new(1_000);
        for _ in 0..5 {
            assert_eq!((unwatched.look(DEAD, alive()), unwatched.first()), (Vec::new(), Some(0)));
            assert_eq!((alone.look(DEAD, DEAD), alone.first()), (Vec::new(), Some(0)));
        }
    }

    #[test]
    fn two_primaries_are_no_fault_here() {
        let mut scene = Scene::new(1_000);
        let primary = |system| {
            ProbeResult::Answered(Box::new(ServerFacts {
                history: TimelineHistory { system, ..TimelineHistory::default() },
                ..ServerFacts::default()
            }))
        };
        for _ in 0..3 {
            assert_eq!((scene.look(primary(1), primary(2)), scene.first()), (Vec::new(), Some(0)));
        }
    }
}
