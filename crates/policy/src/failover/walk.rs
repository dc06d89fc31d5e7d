//! The order in which all servers are started anew, the primary last: a standby takes over from it before.

use super::ballot::NodeId;
use super::node::Standing;

/// A node, as far as it matters here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    pub id: NodeId,
    pub standing: Standing,
    /// Its `backend_promote_priority`.
    pub priority: u32,
}

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Walk {
    /// The standbys that are started anew.
    pub standbys: Vec<NodeId>,
    /// The nodes that the operator took out of use.
    pub left_out: Vec<NodeId>,
    /// The standby that takes over; `None`: none of them may be promoted.
    pub successor: Option<NodeId>,
}

/// Decides it. A standby that has failed is one of those that are started anew: the walk ends there, and the operator hears of it.
pub fn plan(primary: NodeId, members: &[Member]) -> Walk {
    let is_left_out = |member: &&Member| matches!(member.standing, Standing::Detached | Standing::Recovering);
    let others = || members.iter().filter(|member| member.id != primary);
    let may_succeed = |member: &&Member| member.priority > 0 && matches!(member.standing, Standing::Waiting | Standing::Up);
    let best = others().filter(may_succeed).max_by_key(|member| (member.priority, std::cmp::Reverse(member.id)));
    Walk {
        standbys: others().filter(|member| !is_left_out(member)).map(|member| member.id).collect(),
        left_out: others().filter(is_left_out).map(|member| member.id).collect(),
        successor: best.map(|member| member.id),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A name, two standbys with their priorities; those that are started anew, those that are left out, and the successor.
    type Case = (&'static str, [(Standing, u32); 2], &'static [NodeId], &'static [NodeId], Option<NodeId>);

    #[test]
    fn the_standby_that_takes_over_is_one_that_may() {
        let down = Standing::Down { why: super::super::Lost::StatusFile, since: 0 };
        let cases: &[Case] = &[
            ("the lowest number", [(Standing::Up, 100), (Standing::Waiting, 100)], &[1, 2], &[], Some(1)),
            ("the highest priority", [(Standing::Up, 100), (Standing::Up, 200)], &[1, 2], &[], Some(2)),
            ("never one with priority 0", [(Standing::Up, 0), (Standing::Up, 1)], &[1, 2], &[], Some(2)),
            ("a detached one is left out", [(Standing::Detached, 100), (Standing::Up, 1)], &[2], &[1], Some(2)),
            ("so is one that is being copied", [(Standing::Up, 1), (Standing::Recovering, 100)], &[1], &[2], Some(1)),
            ("one that has failed ends the walk", [(down, 100), (Standing::Up, 1)], &[1, 2], &[], Some(2)),
            ("none may", [(Standing::Up, 0), (Standing::Detached, 100)], &[1], &[2], None),
        ];
        for (name, others, standbys, left_out, successor) in cases {
            let member = |(id, (standing, priority)): (NodeId, (Standing, u32))| Member { id, standing, priority };
            let members: Vec<Member> = (1..).zip(*others).chain([(0, (Standing::Up, 100))]).map(member).collect();
            let expected = Walk { standbys: standbys.to_vec(), left_out: left_out.to_vec(), successor: *successor };
            assert_eq!(plan(0, &members), expected, "{name}");
        }
    }
}
