//! Chooses a node for a read: by weight, less for a slow or busy node, nearest zone first.
//!
//! In: the view, a worker's measurements, dice. Out: a node. No clock and no lock.

use weir_failover::cluster::{ClusterView, NodeIndex};

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct NodeLoad {
    pub in_flight: u32,
    /// Moving average of the answer times in microseconds; 0 while unknown.
    pub us: f64,
}

/// A step whose multiples, and every n-th of them, fill the range of `u32` evenly. Source: Weyl's sequence, by the golden ratio.
pub const EVEN_STEP: u32 = 0x9E37_79B9;

/// Limit of a time in microseconds: a longer read is most likely costly itself.
const US_MAX: f64 = 50_000.0;
const NEWEST: f64 = 1.0 / 16.0;
/// In microseconds, added to all times: less is noise.
const US_FLOOR: f64 = 1_000.0;
/// Added to the statements under way: a few are noise.
const FLIGHT_FLOOR: f64 = 8.0;
/// A node keeps its whole weight up to this multiple of the lowest cost.
const SLACK: f64 = 2.0;
/// Least part of its weight that a slow node keeps, so that its recovery is noticed.
const PART_MIN: f64 = 1.0 / 64.0;
/// Share of a node in another zone: practically none while a nearer node answers.
const FAR: f64 = 1e-12;

impl NodeLoad {
    #[inline]
    pub fn note(&mut self, us: u64) {
        let us = (us as f64).clamp(1.0, US_MAX);
        self.us = if self.us == 0.0 { us } else { self.us + (us - self.us) * NEWEST };
    }

    /// Returns a cost that is comparable only to other nodes' costs.
    fn cost(&self, weight: f64) -> f64 {
        // With three times the weight, a node has three times as much under way and is no slower.
        (self.us + US_FLOOR) * (f64::from(self.in_flight) / weight + FLIGHT_FLOOR)
    }
}

/// Works out the nodes' shares, relative to each other; 0 for nodes that take no reads.
pub fn shares(view: &ClusterView, load: impl Fn(NodeIndex) -> NodeLoad, out: &mut Vec<f64>) {
    out.clear();
    let costs = || {
        let cost =
            |(at, node): (usize, &weir_failover::cluster::NodeView)| view.takes_reads(at).then(|| load(at).cost(node.weight));
        view.nodes.iter().enumerate().map(cost)
    };
    let least = costs().flatten().fold(f64::INFINITY, f64::min);
    for (node, cost) in view.nodes.iter().zip(costs()) {
        let part = cost.map_or(0.0, |cost| (SLACK * least / cost).clamp(PART_MIN, 1.0));
        out.push(node.weight * part * if node.is_far { FAR } else { 1.0 });
    }
}

/// Picks a node for a read. `dice` is a random word. Without `shares` the weights count. `None`: the primary must take the read.
pub fn pick_reader(view: &ClusterView, shares: &[f64], dice: u32, may: impl Fn(NodeIndex) -> bool) -> Option<NodeIndex> {
    let share = |at: usize| shares.get(at).copied().filter(|share| *share > 0.0).unwrap_or(view.nodes[at].weight);
    let takes_part = |at: &usize| view.takes_reads(*at) && may(*at);
    let total: f64 = (0..view.nodes.len()).filter(takes_part).map(share).sum();
    let mut left = f64::from(dice) / (f64::from(u32::MAX) + 1.0) * total;
    let mut last = None;
    for at in (0..view.nodes.len()).filter(takes_part) {
        last = Some(at);
        if left < share(at) {
            return last;
        }
        left -= share(at);
    }
    last
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::routing::tests::{PRIMARY, STANDBY, view_of as view};
    use weir_failover::cluster::NodeHealth;

    /// Parts of all reads by node, in percent.
    fn percent(view: &ClusterView, loads: &[(u32, f64)]) -> Vec<u32> {
        let mut out = Vec::new();
        let load = |at: usize| loads.get(at).map_or_else(NodeLoad::default, |&(in_flight, us)| NodeLoad { in_flight, us });
        shares(view, load, &mut out);
        let sum: f64 = out.iter().sum();
        out.iter().map(|share| (share / sum * 100.0).round() as u32).collect()
    }

    #[test]
    fn reads_are_spread_by_weight_over_nodes_that_are_up() {
        let v = view(&[(0.0, PRIMARY), (0.25, STANDBY), (0.75, STANDBY), (1.0, NodeHealth::Down)]);
        let mut counts = [0; 4];
        for dice in (0..u32::MAX).step_by(1 << 20) {
            counts[pick_reader(&v, &[], dice, |_| true).unwrap()] += 1;
        }
        assert_eq!(counts, [0, 1024, 3072, 0]);
        assert_eq!(pick_reader(&v, &[0.0, 0.3, 0.1, 0.0], u32::MAX / 2, |_| true), Some(1), "shares go before weights");
        assert_eq!(pick_reader(&view(&[(0.0, PRIMARY), (1.0, NodeHealth::Down)]), &[], 7, |_| true), None);
    }

    #[test]
    fn nodes_that_answer_alike_keep_their_weights() {
        let v = view(&[(0.0, PRIMARY), (0.25, STANDBY), (0.75, STANDBY), (1.0, NodeHealth::Down)]);
        assert_eq!(percent(&v, &[]), [0, 25, 75, 0], "nothing is known");
        assert_eq!(percent(&v, &[(50, 9000.0), (0, 200.0), (0, 700.0)]), [0, 25, 75, 0], "differences below a millisecond");
        assert_eq!(
            percent(&v, &[(0, 0.0), (10, 300.0), (30, 300.0)]),
            [0, 25, 75, 0],
            "three times as much for three times the weight"
        );
        assert_eq!(percent(&v, &[(0, 0.0), (1, 300.0), (0, 300.0)]), [0, 25, 75, 0]);
    }

    #[test]
    fn a_slow_node_gets_less_and_never_nothing() {
        let v = view(&[(0.0, PRIMARY), (0.5, STANDBY), (0.5, STANDBY)]);
        assert_eq!(percent(&v, &[(0, 0.0), (0, 300.0), (0, 20_300.0)]), [0, 89, 11]);
        assert_eq!(percent(&v, &[(0, 0.0), (0, 300.0), (100, 300.0)]), [0, 93, 7], "it does not answer");
        assert_eq!(percent(&v, &[(0, 0.0), (0, 300.0), (100, 50_000.0)]), [0, 98, 2]);
        assert_eq!(percent(&v, &[(0, 0.0), (0, 40_000.0), (0, 40_000.0)]), [0, 50, 50], "both are");
    }

    #[test]
    fn a_node_in_another_zone_answers_for_want_of_a_near_one_only() {
        let mut v = view(&[(0.2, PRIMARY), (0.4, STANDBY), (0.4, STANDBY)]);
        (v.nodes[0].is_far, v.nodes[2].is_far) = (true, true);
        let mut out = Vec::new();
        shares(&v, |_| NodeLoad::default(), &mut out);
        let mut counts = [0; 3];
        for dice in (1..u32::MAX).step_by(1 << 20) {
            counts[pick_reader(&v, &out, dice, |_| true).unwrap()] += 1;
        }
        assert_eq!(counts, [0, 4096, 0]);
        let rest = |dice| pick_reader(&v, &out, dice, |at| at != 1);
        assert_eq!([rest(0), rest(u32::MAX)], [Some(0), Some(2)], "by weight among the others");
    }

    #[test]
    fn the_average_follows_the_times() {
        let mut load = NodeLoad::default();
        load.note(300);
        assert_eq!(load.us, 300.0);
        (0..100).for_each(|_| load.note(20_300));
        assert!((20_000.0..20_300.0).contains(&load.us), "{load:?}");
        load.note(10_000_000);
        assert!(load.us < 22_500.0, "a long read says little: {load:?}");
    }
}
