//! Bounds, in bytes and count, of what a peer can make a connection gather.
//!
//! A broken or hostile server may send without end. Exceeding a bound costs the connection. The budget belongs to the connection
//! (`Conn`, `MessageConn`): code that forgets to start a new one uses up the previous one.

use crate::frame::{HEADER_BYTES, back};

/// Memory of a message beside its bytes: list entry and allocation.
const MESSAGE_BYTES: usize = 64;

/// Memory of a row's cell beside its bytes.
const CELL_BYTES: usize = 48;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GatherBound {
    /// Name of the thing in errors.
    pub thing: &'static str,
    pub count_max: usize,
    pub bytes_max: usize,
    /// Parameter that raises `bytes_max`; empty if none.
    pub parameter: &'static str,
}

/// A bound exceeded. The text is independent of the amount: repeated errors are recognised by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BoundExceeded {
    #[error("{} has more than {} entries", .0.thing, .0.count_max)]
    Count(GatherBound),
    #[error("{} takes more than {} bytes{}", .0.thing, .0.bytes_max, advice(.0))]
    Bytes(GatherBound),
}

fn advice(bound: &GatherBound) -> String {
    if bound.parameter.is_empty() { String::new() } else { format!(" ({}, which may be raised)", bound.parameter) }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GatherBudget {
    bound: GatherBound,
    count: usize,
    bytes: usize,
}

impl GatherBudget {
    pub const fn new(bound: GatherBound) -> GatherBudget {
        GatherBudget { bound, count: 0, bytes: 0 }
    }

    /// Counts a thing of so many bytes, even if it exceeds the bound.
    pub fn take(&mut self, bytes: usize) -> Result<(), BoundExceeded> {
        self.count = self.count.saturating_add(1);
        self.bytes = self.bytes.saturating_add(bytes);
        self.check(self.bytes)
    }

    /// Checks the bound for a further thing before its memory is allocated.
    pub fn check_next(&self, bytes: usize) -> Result<(), BoundExceeded> {
        self.check(self.bytes.saturating_add(bytes))
    }

    /// Takes a thing of so many bytes off the count.
    pub fn give_back(&mut self, bytes: usize) {
        self.count = self.count.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(bytes);
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// True if the amount exceeds so many times the bound.
    pub fn is_over_by(&self, times: usize) -> bool {
        self.count > self.bound.count_max.saturating_mul(times) || self.bytes > self.bound.bytes_max.saturating_mul(times)
    }

    fn check(&self, bytes: usize) -> Result<(), BoundExceeded> {
        if bytes > self.bound.bytes_max {
            return Err(BoundExceeded::Bytes(self.bound));
        }
        if self.count > self.bound.count_max {
            return Err(BoundExceeded::Count(self.bound));
        }
        Ok(())
    }
}

/// Returns the least memory of a kept server message, including the overhead of small messages and empty cells.
pub fn message_cost(tag: u8, body: &[u8]) -> usize {
    let cells = match (tag, body.first_chunk::<2>()) {
        (back::DATA_ROW, Some(count)) => usize::from(u16::from_be_bytes(*count)),
        _ => 0,
    };
    HEADER_BYTES + body.len() + MESSAGE_BYTES + cells * CELL_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    const FEW: GatherBound = GatherBound { thing: "a list", count_max: 3, bytes_max: 100, parameter: "" };

    #[test]
    fn a_budget_ends_with_the_count_or_with_the_bytes() {
        for (sizes, expected) in [
            (&[10, 10, 10][..], Ok(())),
            (&[10, 10, 10, 0], Err(BoundExceeded::Count(FEW))),
            (&[100], Ok(())),
            (&[50, 51], Err(BoundExceeded::Bytes(FEW))),
            (&[usize::MAX, usize::MAX], Err(BoundExceeded::Bytes(FEW))),
        ] {
            let mut budget = GatherBudget::new(FEW);
            let taken = sizes.iter().map(|bytes| budget.take(*bytes)).fold(Ok(()), Result::and);
            assert_eq!(taken, expected, "{sizes:?}");
        }
    }

    #[test]
    fn a_thing_is_refused_before_it_is_there_and_what_is_given_back_may_be_taken_again() {
        let mut budget = GatherBudget::new(FEW);
        budget.take(60).unwrap();
        assert_eq!(budget.check_next(40), Ok(()));
        assert_eq!(budget.check_next(41), Err(BoundExceeded::Bytes(FEW)));
        budget.give_back(60);
        assert_eq!((budget.take(100), budget.bytes()), (Ok(()), 100));
        assert!(!budget.is_over_by(1) && budget.take(1).is_err() && budget.is_over_by(1) && !budget.is_over_by(2));
    }

    #[test]
    fn the_words_name_thing_limit_and_parameter_and_are_always_the_same() {
        let bytes = BoundExceeded::Bytes(GatherBound { parameter: "catalog_max_size", ..FEW });
        assert_eq!(bytes.to_string(), "a list takes more than 100 bytes (catalog_max_size, which may be raised)");
        assert_eq!(BoundExceeded::Count(FEW).to_string(), "a list has more than 3 entries");
    }

    #[test]
    fn empty_cells_cost_what_they_take_in_memory() {
        assert_eq!(message_cost(back::NOTICE, b"12"), HEADER_BYTES + 2 + MESSAGE_BYTES);
        let row = [&1000_u16.to_be_bytes()[..], &[0xff; 4000]].concat();
        assert!(message_cost(back::DATA_ROW, &row) > 48_000);
    }
}
