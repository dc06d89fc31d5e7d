//! What a follower has to say to a store, in order, until somebody takes it there; and how far that was done.
//!
//! A round counts as covered only when the store has acknowledged all that was raised before: a reader looks at what is covered, and then
//! asks for stamps. That something was settled need not be acknowledged: until then nobody trusts the stamp.

use super::follow::Covered;
use super::versions::{Outcome, Slot, Versions};
use std::collections::VecDeque;
use std::sync::Arc;

/// One entry. Each slot is settled as often as it was raised.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Entry {
    /// These are to be marked. With the number under which that is confirmed, once it was taken.
    Raise(Box<[Slot]>, u64),
    /// These have changed, and a mark of theirs goes.
    Settle(Box<[Slot]>),
}

/// Rounds that are covered here and wait for the store, at most. Of more, the older one of the last two is forgotten.
const WITHHELD_MAX: usize = 256;

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Ledger {
    entries: Vec<Entry>,
    /// `Raise`s ever entered, and those that the store is known to know.
    raised: u64,
    confirmed: u64,
    /// Those that were taken and are not confirmed, with their numbers.
    asked: VecDeque<(u64, Vec<Slot>)>,
    /// What is covered when so many are confirmed.
    withheld: VecDeque<(u64, Covered)>,
    covered: Covered,
}

impl Ledger {
    /// What is to be said next. To be said in this order. `number` gives each `Raise` one that is greater than those before.
    pub fn take(&mut self, mut number: impl FnMut() -> u64) -> Vec<Entry> {
        let mut entries = std::mem::take(&mut self.entries);
        for entry in &mut entries {
            if let Entry::Raise(slots, own) = entry {
                *own = number();
                self.asked.push_back((*own, slots.to_vec()));
            }
        }
        entries
    }

    /// Whether all was taken and confirmed.
    pub fn is_done(&self) -> bool {
        self.asked.is_empty() && self.entries.is_empty()
    }

    /// When the oldest round was asked for that is covered and waits for the store; none: none does.
    pub fn behind_since_ms(&self) -> Option<u64> {
        self.withheld.front().map(|(_, covered)| covered.asked_ms)
    }

    /// The follower has covered this. Gives what the store shows by now.
    pub fn cover(&mut self, covered: Covered) -> Covered {
        if covered.round == 0 {
            // It follows no more, and what was covered is so no more.
            self.withheld.clear();
            self.covered = covered;
            return covered;
        }
        let newest = self.withheld.back().map_or(self.covered, |(_, covered)| *covered);
        if covered != newest {
            match self.withheld.back_mut().filter(|(raised, _)| *raised == self.raised) {
                Some((_, newest)) => *newest = covered,
                None => self.withheld.push_back((self.raised, covered)),
            }
            if self.withheld.len() > WITHHELD_MAX {
                self.withheld.remove(WITHHELD_MAX - 1);
            }
        }
        self.release()
    }

    /// Asks whether the store knows of what was raised, by slot and number, the oldest first: each slot once at some time since then is
    /// enough. Gives what it shows now.
    pub fn confirm(&mut self, mut is_known: impl FnMut(Slot, u64) -> bool) -> Covered {
        let mut is_over = |(number, slots): &mut (u64, Vec<Slot>)| {
            slots.retain(|slot| !is_known(*slot, *number));
            slots.is_empty()
        };
        while self.asked.pop_front_if(&mut is_over).is_some() {
            self.confirmed += 1;
        }
        self.release()
    }

    fn release(&mut self) -> Covered {
        while let Some((_, covered)) = self.withheld.pop_front_if(|(raised, _)| *raised <= self.confirmed) {
            self.covered = covered;
        }
        self.covered
    }

    fn enter(&mut self, entry: Entry) {
        self.raised += u64::from(matches!(entry, Entry::Raise(..)));
        self.entries.push(entry);
    }
}

/// Where a follower notes what is about to change, and what has.
#[derive(Debug)]
pub enum Book {
    /// Answers are kept in our memory.
    Memory(Arc<Versions>),
    /// They are kept in a store.
    Store(Ledger),
}

impl Book {
    /// These may be changed and not visible yet: what is read is not to be stored.
    pub(super) fn raise(&mut self, slots: &[Slot]) {
        match self {
            Book::Memory(versions) => versions.raise(slots),
            Book::Store(ledger) => ledger.enter(Entry::Raise(slots.into(), 0)),
        }
    }

    /// They were, and are visible. As often for each as it was raised. A store that is told of a change too many loses answers only.
    pub(super) fn settle(&mut self, slots: &[Slot], outcome: Outcome) {
        match self {
            Book::Memory(versions) => versions.settle(slots, outcome),
            Book::Store(ledger) => ledger.enter(Entry::Settle(slots.into())),
        }
    }

    /// What happens to a database is not known any more. To a store that is nothing: other Weirs may know, and this one gives nothing out.
    pub(super) fn shut(&mut self, database: Slot) {
        match self {
            Book::Memory(versions) => versions.raise(&[database]),
            Book::Store(_) => {}
        }
    }

    /// It is again. `round` covers all that happened meanwhile.
    pub(super) fn open(&mut self, database: Slot, round: u64) {
        if let Book::Store(_) = self {
            self.raise(&[database]);
        }
        self.settle(&[database], Outcome::Committed { round });
    }
}

/// For tests that walk over all states.
#[cfg(test)]
impl Ledger {
    /// Two that differ in nothing but what is past are the same.
    pub(super) fn count_anew(&mut self) {
        let past = std::mem::take(&mut self.confirmed);
        self.raised -= past;
        self.withheld.iter_mut().for_each(|(raised, _)| *raised -= past);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn covered(round: u64) -> Covered {
        Covered { round, asked_ms: 10 * round }
    }

    /// With a book, and the ledger in it.
    struct Page(Book, u64);

    impl Page {
        fn new() -> Page {
            Page(Book::Store(Ledger::default()), 0)
        }

        fn take(&mut self) -> Vec<Entry> {
            let mut number = self.1;
            let entries = self.ledger().take(|| {
                number += 1;
                number
            });
            self.1 = number;
            entries
        }

        fn ledger(&mut self) -> &mut Ledger {
            if let Book::Store(ledger) = &mut self.0 { ledger } else { unreachable!() }
        }

        fn cover(&mut self, round: u64) -> u64 {
            self.ledger().cover(covered(round)).round
        }

        fn confirm(&mut self, mut is_known: impl FnMut(Slot) -> bool) -> u64 {
            self.ledger().confirm(|slot, _| is_known(slot)).round
        }
    }

    #[test]
    fn what_is_covered_counts_when_the_store_knows_all_that_was_raised_before() {
        let mut page = Page::new();
        page.0.open(1, 1);
        assert_eq!((page.cover(1), page.confirm(|_| true)), (0, 0), "nobody was told yet");
        assert_eq!(page.take(), [Entry::Raise([1].into(), 1), Entry::Settle([1].into())]);
        assert!(!page.ledger().is_done());
        assert_eq!((page.confirm(|slot| slot == 1), page.cover(2)), (1, 2));
        assert!(page.ledger().is_done());
        page.0.raise(&[7, 8]);
        assert_eq!(page.ledger().behind_since_ms(), None);
        assert_eq!((page.cover(3), page.ledger().behind_since_ms()), (2, Some(30)));
        page.0.raise(&[9]);
        page.0.settle(&[7, 8], Outcome::Committed { round: 3 });
        assert_eq!((page.cover(4), page.cover(5)), (2, 2));
        assert_eq!(page.take().len(), 3);
        assert_eq!(page.confirm(|slot| slot == 9), 2, "in their order");
        assert_eq!(page.confirm(|slot| slot == 8), 2, "not all of it");
        assert_eq!((page.confirm(|slot| slot == 7), page.confirm(|_| true)), (3, 5), "not at the same time");
    }

    #[test]
    fn each_raise_is_confirmed_under_a_number_of_its_own() {
        let mut page = Page::new();
        page.0.raise(&[1]);
        page.0.raise(&[1]);
        page.cover(1);
        page.take();
        page.0.raise(&[1]);
        page.cover(2);
        page.take();
        let mut upto = |known: u64| page.ledger().confirm(|_, number| number <= known).round;
        assert_eq!((upto(1), upto(2), upto(3)), (0, 1, 2));
    }

    #[test]
    fn what_is_lost_is_covered_no_more_whatever_is_confirmed_later() {
        let mut page = Page::new();
        page.0.raise(&[1]);
        assert_eq!((page.cover(1), page.ledger().cover(Covered::default()).round), (0, 0));
        page.take();
        assert_eq!((page.confirm(|_| true), page.cover(2)), (0, 2));
        assert_eq!(page.ledger().cover(Covered::default()).round, 0);
    }

    #[test]
    fn a_store_that_is_slow_to_acknowledge_makes_nothing_grow_but_what_it_is_to_be_told() {
        let mut page = Page::new();
        for round in 1..=1000 {
            page.0.raise(&[round as Slot]);
            page.cover(round);
        }
        page.take();
        assert_eq!(page.ledger().withheld.len(), WITHHELD_MAX);
        assert_eq!((page.confirm(|slot| slot <= 10), page.confirm(|_| true)), (10, 1000));
    }
}
