//! Things that are due: by their time, and of one time in the order in which they came.
//!
//! A wheel of milliseconds, since a run has one thing or so in each of them; a heap takes what is beyond it.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use weir_failover::Ms;

/// Milliseconds of the wheel; more than a client waits, which is the latest of all frequent things.
const WHEEL_MS: u64 = 8_192;
const WORD_BITS: u64 = 64;
/// No entry.
const NONE: u32 = u32::MAX;

/// Entries of one millisecond, as a list.
#[derive(Clone, Copy)]
struct Bucket {
    first: u32,
    last: u32,
}

struct Entry<T> {
    at: Ms,
    number: u64,
    next: u32,
    thing: Option<T>,
}

pub struct Agenda<T> {
    /// Of the last thing that was taken. Nothing is due before it.
    now: Ms,
    numbers: u64,
    buckets: Vec<Bucket>,
    /// A bit for each bucket that is not empty.
    filled: Vec<u64>,
    far: BinaryHeap<Reverse<(Ms, u64, u32)>>,
    entries: Vec<Entry<T>>,
    free: Vec<u32>,
}

impl<T> Agenda<T> {
    pub fn new() -> Agenda<T> {
        Agenda {
            now: 0,
            numbers: 0,
            buckets: vec![Bucket { first: NONE, last: NONE }; WHEEL_MS as usize],
            filled: vec![0; (WHEEL_MS / WORD_BITS) as usize],
            far: BinaryHeap::new(),
            entries: Vec::new(),
            free: Vec::new(),
        }
    }

    pub fn add(&mut self, at: Ms, thing: T) {
        let at = at.max(self.now);
        self.numbers += 1;
        let entry = Entry { at, number: self.numbers, next: NONE, thing: Some(thing) };
        let slot = match self.free.pop() {
            Some(slot) => {
                self.entries[slot as usize] = entry;
                slot
            }
            None => {
                self.entries.push(entry);
                (self.entries.len() - 1) as u32
            }
        };
        if at >= self.now + WHEEL_MS {
            self.far.push(Reverse((at, self.numbers, slot)));
        } else {
            self.append(at, slot);
        }
    }

    fn append(&mut self, at: Ms, slot: u32) {
        let of = at % WHEEL_MS;
        let bucket = &mut self.buckets[of as usize];
        match bucket.last {
            NONE => *bucket = Bucket { first: slot, last: slot },
            last => {
                bucket.last = slot;
                self.entries[last as usize].next = slot;
            }
        }
        self.filled[(of / WORD_BITS) as usize] |= 1 << (of % WORD_BITS);
    }

    /// The next thing, with its time.
    pub fn take(&mut self) -> Option<(Ms, T)> {
        let near = self.first_bucket().map(|of| {
            let entry = &self.entries[self.buckets[of].first as usize];
            (entry.at, entry.number, of)
        });
        let far = self.far.peek().map(|Reverse((at, number, _))| (*at, *number));
        let slot = match (near, far) {
            (Some((at, number, of)), far) if far.is_none_or(|far| (at, number) < far) => self.unlink(of),
            (None, None) => return None,
            (Some(_) | None, _) => self.far.pop()?.0.2,
        };
        let entry = &mut self.entries[slot as usize];
        self.now = entry.at;
        self.free.push(slot);
        Some((entry.at, entry.thing.take()?))
    }

    fn unlink(&mut self, of: usize) -> u32 {
        let slot = self.buckets[of].first;
        let next = self.entries[slot as usize].next;
        self.buckets[of].first = next;
        if next == NONE {
            self.buckets[of].last = NONE;
            self.filled[of / WORD_BITS as usize] &= !(1 << (of as u64 % WORD_BITS));
        }
        slot
    }

    /// The first bucket from now on that is not empty.
    fn first_bucket(&self) -> Option<usize> {
        let from = self.now % WHEEL_MS;
        let (word, bit) = ((from / WORD_BITS) as usize, from % WORD_BITS);
        let words = self.filled.len();
        let here = self.filled[word] & (u64::MAX << bit);
        if here != 0 {
            return Some(word * WORD_BITS as usize + here.trailing_zeros() as usize);
        }
        // The word of now comes again at the end, for what is before now in it.
        let word = (1..=words).map(|step| (word + step) % words).find(|word| self.filled[*word] != 0)?;
        Some(word * WORD_BITS as usize + self.filled[word].trailing_zeros() as usize)
    }
}
