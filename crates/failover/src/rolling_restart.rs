//! The order of a restart of all servers: standbys first, the primary last, by a switchover.

use super::ballot::NodeId;
use super::event::OperatorRequest;
use crate::node_state::NodeStanding;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RestartMember {
    pub id: NodeId,
    pub standing: NodeStanding,
    pub priority: u32,
    pub has_agent: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RollingRestart {
    /// The first failure ends the walk.
    pub steps: Vec<OperatorRequest>,
    left_out: Vec<NodeId>,
    obstacle: Option<RestartObstacle>,
}

/// Why the primary goes on as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RestartObstacle {
    #[error("there is no primary")]
    NoPrimary,
    #[error("all standbys were started anew; node {0} is the primary and has no agent")]
    NoAgent(NodeId),
    #[error(
        "all standbys were started anew; node {0} is the primary, and none of them may be promoted (backend_promote_priority)"
    )]
    NoSuccessor(NodeId),
}

impl RestartObstacle {
    /// Advice; may be empty.
    pub fn hint(self) -> &'static str {
        match self {
            RestartObstacle::NoPrimary => "",
            RestartObstacle::NoAgent(_) => "Switch over in another way, and start its server anew.",
            RestartObstacle::NoSuccessor(_) => "Start the server of the primary anew by hand: writes wait meanwhile.",
        }
    }
}

impl RollingRestart {
    /// Returns a notice, or why the primary was not restarted.
    pub fn end(&self) -> Result<Option<String>, RestartObstacle> {
        if let Some(obstacle) = self.obstacle {
            return Err(obstacle);
        }
        let words: Vec<String> = self.left_out.iter().map(|id| format!("node {id} is out of use: it was left out")).collect();
        Ok((!words.is_empty()).then(|| words.join("; ")))
    }
}

/// A failed standby is included: the walk ends there, so that the operator learns of it. The switchover also restarts the old primary's
/// server.
pub fn plan(primary: Option<NodeId>, members: &[RestartMember]) -> RollingRestart {
    let Some(primary) = primary else {
        return RollingRestart { steps: Vec::new(), left_out: Vec::new(), obstacle: Some(RestartObstacle::NoPrimary) };
    };
    let is_left_out = |member: &&RestartMember| matches!(member.standing, NodeStanding::Detached | NodeStanding::Recovering);
    let others = || members.iter().filter(|member| member.id != primary);
    let may_succeed =
        |member: &&RestartMember| member.priority > 0 && matches!(member.standing, NodeStanding::Waiting | NodeStanding::Up);
    let best = others().filter(may_succeed).max_by_key(|member| (member.priority, std::cmp::Reverse(member.id)));
    let has_agent = members.iter().any(|member| member.id == primary && member.has_agent);
    let last = match best {
        _ if !has_agent => Err(RestartObstacle::NoAgent(primary)),
        None => Err(RestartObstacle::NoSuccessor(primary)),
        Some(next) => Ok(OperatorRequest::SwitchOver(next.id)),
    };
    let restarts = others().filter(|member| !is_left_out(member)).map(|member| OperatorRequest::Restart(member.id));
    RollingRestart {
        steps: restarts.chain(last.ok()).collect(),
        left_out: others().filter(is_left_out).map(|member| member.id).collect(),
        obstacle: last.err(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UP: (NodeStanding, u32) = (NodeStanding::Up, 100);

    /// Node 0 is the primary, the others are two standbys with their priorities.
    fn members(others: [(NodeStanding, u32); 2], has_agent: bool) -> Vec<RestartMember> {
        let member =
            |(id, (standing, priority)): (NodeId, (NodeStanding, u32))| RestartMember { id, standing, priority, has_agent };
        (1..).zip(others).chain([(0, UP)]).map(member).collect()
    }

    fn check(name: &str, walk: &RollingRestart, steps: &str, end: &str) {
        assert_eq!(format!("{:?}", walk.steps), steps, "{name}");
        let told = walk.end().map_or_else(|obstacle| format!("error: {obstacle}"), Option::unwrap_or_default);
        assert_eq!(told, end, "{name}");
    }

    #[test]
    fn the_standby_that_takes_over_is_one_that_may() {
        let down = NodeStanding::Down { why: super::super::NodeDownReason::StatusFile, since: 0 };
        for (name, others, steps, end) in [
            ("the lowest number", [UP, (NodeStanding::Waiting, 100)], "[Restart(1), Restart(2), SwitchOver(1)]", ""),
            ("the highest priority", [UP, (NodeStanding::Up, 200)], "[Restart(1), Restart(2), SwitchOver(2)]", ""),
            (
                "never one with priority 0",
                [(NodeStanding::Up, 0), (NodeStanding::Up, 1)],
                "[Restart(1), Restart(2), SwitchOver(2)]",
                "",
            ),
            (
                "a detached one is left out",
                [(NodeStanding::Detached, 100), (NodeStanding::Up, 1)],
                "[Restart(2), SwitchOver(2)]",
                "node 1 is out of use: it was left out",
            ),
            (
                "so is one that is being copied",
                [(NodeStanding::Up, 1), (NodeStanding::Recovering, 100)],
                "[Restart(1), SwitchOver(1)]",
                "node 2 is out of use: it was left out",
            ),
            (
                "one that has failed ends the walk",
                [(down, 100), (NodeStanding::Up, 1)],
                "[Restart(1), Restart(2), SwitchOver(2)]",
                "",
            ),
            (
                "none may",
                [(NodeStanding::Up, 0), (NodeStanding::Detached, 100)],
                "[Restart(1)]",
                "error: all standbys were started anew; node 0 is the primary, and none of them may be promoted (backend_promote_priority)",
            ),
        ] {
            check(name, &plan(Some(0), &members(others, true)), steps, end);
        }
    }

    #[test]
    fn a_primary_that_nobody_can_start_anew_goes_on() {
        let without = plan(Some(0), &members([UP, UP], false));
        let end = "error: all standbys were started anew; node 0 is the primary and has no agent";
        check("no agents", &without, "[Restart(1), Restart(2)]", end);
        check("no primary", &plan(None, &members([UP, UP], true)), "[]", "error: there is no primary");
    }
}
