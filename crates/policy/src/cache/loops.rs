//! Notices a store that contradicts itself: each of its replies leads to the next order, and what is asked for never comes about.
//!
//! One that has nothing to append to and yet will not take a new stamp would be asked in turns for ever, and so would one in which a swap
//! never finds what was just looked at; a writer would wait as long, since the host answers. In: orders, their replies and what follows.
//! Out: whether the host is to be taken for one that does not do what it is asked.

use super::holds::Order;
use super::versions::Slot;
use std::collections::BTreeMap;

/// So often in a row a stamp that was missing is there when it is made. Each time another must have made it, and the store lost it again.
const MAKES_MAX: u32 = 16;

/// So often in a row somebody came ahead of a swap. On a table that many members write all the time hundreds may.
const SWAPS_MAX: u32 = 4096;

/// See the module. For one host.
#[derive(Debug, Default)]
pub struct Loops {
    makes: BTreeMap<Slot, u32>,
    swaps: BTreeMap<Slot, u32>,
}

impl Loops {
    /// Whether that goes on without an end: an order was or was not done, and the next one is to be sent.
    pub fn is_endless(&mut self, order: &Order, next: Option<&Order>, is_done: bool) -> bool {
        let slot = order.slot();
        match (order, next) {
            (Order::Make(..), Some(Order::Append(..))) if !is_done => is_over(self.makes.entry(slot).or_default(), MAKES_MAX),
            (Order::Swap(..), Some(Order::Look(_))) if !is_done => is_over(self.swaps.entry(slot).or_default(), SWAPS_MAX),
            // In the middle of a turn.
            (Order::Append(..), Some(Order::Make(..))) | (Order::Look(_), Some(Order::Swap(..))) => false,
            (Order::Append(..) | Order::Make(..), _) => {
                self.makes.remove(&slot);
                false
            }
            (Order::Look(_) | Order::Swap(..), _) => {
                self.swaps.remove(&slot);
                false
            }
        }
    }
}

/// One turn more.
fn is_over(turns: &mut u32, turns_max: u32) -> bool {
    *turns += 1;
    *turns >= turns_max
}

#[cfg(test)]
mod tests {
    use super::super::holds::{Found, Holds};
    use super::super::stamp::Stamp;
    use super::*;

    /// Hears what a store says to a writer's orders, `says` whether it does one, until they come to an end. Whether they do.
    fn ends(mut order: Option<Order>, holds: &mut Holds, mut says: impl FnMut(&Order) -> bool) -> bool {
        let mut loops = Loops::default();
        for _ in 0..10 * SWAPS_MAX {
            let Some(sent) = order else { return true };
            let is_done = says(&sent);
            let next = match &sent {
                Order::Append(slot, _, number) => holds.appended(*slot, *number, is_done, 0, 1),
                Order::Make(slot, stamp) => holds.made(*slot, stamp, is_done, 0),
                Order::Look(slot) => holds.looked(*slot, Found::Stamp(Stamp::made(2, 0, true)), 0, 3),
                Order::Swap(slot, _) => holds.swapped(*slot, is_done, 0),
            };
            if loops.is_endless(&sent, next.as_ref(), is_done) {
                return false;
            }
            order = next;
        }
        panic!("nobody notices that it has no end");
    }

    #[test]
    fn a_store_that_has_nothing_and_takes_nothing_is_noticed() {
        let write = |says: &mut dyn FnMut(&Order) -> bool| {
            let mut holds = Holds::new(0);
            let order = holds.raise(1);
            ends(order, &mut holds, says)
        };
        assert!(!write(&mut |_| false));
        // Others make the stamp, and the store loses it.
        let mut left = 2 * (MAKES_MAX - 1);
        let mut loses = |_: &Order| {
            left = left.saturating_sub(1);
            left == 0
        };
        assert!(write(&mut loses));
    }

    #[test]
    fn a_store_in_which_no_swap_is_done_is_noticed() {
        let settle = |says: &mut dyn FnMut(&Order) -> bool| {
            let mut holds = Holds::new(0);
            let order = holds.raise(1);
            assert!(ends(order, &mut holds, |_| true));
            let order = holds.settle(1, true);
            ends(order, &mut holds, says)
        };
        assert!(!settle(&mut |_| false));
        // Others write it all the time.
        let mut left = SWAPS_MAX;
        let mut is_busy = |order: &Order| {
            left -= u32::from(matches!(order, Order::Swap(..)));
            left == 0
        };
        assert!(settle(&mut is_busy));
    }

    #[test]
    fn turns_that_came_to_an_end_do_not_count() {
        let (mut loops, stamp) = (Loops::default(), Stamp::made(1, 0, true));
        let (make, look) = (Order::Make(1, stamp.clone()), Order::Look(1));
        let swap = Order::Swap(1, stamp);
        for _ in 0..2 * SWAPS_MAX {
            assert!(!loops.is_endless(&make, Some(&look), false), "a reader's, that came too late");
            assert!(!loops.is_endless(&swap, Some(&look), false) && !loops.is_endless(&look, None, false));
            assert!(!loops.is_endless(&swap, Some(&look), true), "somebody wrote meanwhile");
        }
    }
}
