//! The store host of a key, on a hash ring. A new host moves only the keys that it gets. All Weirs that share stores
//! must agree. A lost host moves nothing: its keys are misses.

use super::versions::fnv;
use weir_config::hosts::StoreHost;

/// Points of a host on the ring; shares differ by a few per cent.
const POINTS: u32 = 160;

#[derive(Clone, Debug)]
pub struct HashRing {
    /// Points and indices of hosts, sorted.
    points: Box<[(u64, usize)]>,
}

impl HashRing {
    pub fn new(hosts: &[StoreHost]) -> HashRing {
        let points = hosts
            .iter()
            .enumerate()
            .flat_map(|(at, host)| (0..POINTS).map(move |number| (point(&format!("{host}-{number}")), at)));
        let mut points: Vec<(u64, usize)> = points.collect();
        points.sort_unstable();
        HashRing { points: points.into() }
    }

    pub fn host_of(&self, key: &[u8]) -> usize {
        let hash = fnv(key.iter().copied());
        let next = self.points.partition_point(|(point, _)| *point < hash);
        self.points.get(next).or(self.points.first()).map_or(0, |(_, host)| *host)
    }
}

fn point(text: &str) -> u64 {
    fnv(text.bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_config::hosts::hosts;

    #[test]
    fn keys_are_spread_and_few_move_when_a_host_comes() {
        let list = |names: &str| hosts(names, 9).unwrap();
        let (three, four) = (HashRing::new(&list("a,b,c")), HashRing::new(&list("a,b,c,d")));
        let mut counts = [0; 4];
        let mut moved = 0;
        for key in 0..10_000_u32 {
            let key = format!("weir:s:{key}");
            let (before, after) = (three.host_of(key.as_bytes()), four.host_of(key.as_bytes()));
            counts[after] += 1;
            assert!(after == before || after == 3, "a key went to a host that was there before");
            moved += usize::from(after != before);
        }
        assert!(counts.iter().all(|count| (1700..3300).contains(count)), "{counts:?}");
        assert_eq!(moved, counts[3]);
    }
}
