//! The row of a statement, as a number that its text keeps.

use std::cell::{Cell, OnceCell};
use std::sync::Arc;

/// Names a row: its place, and a number that no other row of this place had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowTicket(pub(super) u64);

impl RowTicket {
    /// No statement.
    pub const NONE: RowTicket = RowTicket(0);
    /// Of a row that is not in use; no statement has it.
    pub(super) const VACANT: RowTicket = RowTicket(u64::MAX);
    /// A statement without a row. Rows are numbered from 1 on, so that none has this ticket.
    pub const NO_ROW: RowTicket = RowTicket(1 << 62);
    /// Marks a statement whose time begins behind another one's answer. Such a ticket fits no row as it is.
    const LATE: u64 = 1 << 63;
    const PLACE_BITS: u32 = 16;

    pub(super) fn new(place: u16, number: u64) -> RowTicket {
        RowTicket((number << RowTicket::PLACE_BITS) | u64::from(place))
    }

    #[inline]
    pub(super) fn place(self) -> usize {
        self.0 as u16 as usize
    }

    pub fn late(self) -> RowTicket {
        RowTicket(self.0 | RowTicket::LATE)
    }

    pub fn is_late(self) -> bool {
        self.0 & RowTicket::LATE != 0
    }

    pub fn on_time(self) -> RowTicket {
        RowTicket(self.0 & !RowTicket::LATE)
    }
}

/// A text's row for the account that used it last.
#[derive(Clone, Copy, Debug)]
pub(super) struct LastPlace {
    /// See `WorkerStatements::key`.
    pub(super) whose: u64,
    pub(super) ticket: RowTicket,
}

/// A statement's part in statistics.
#[derive(Debug)]
pub struct StatementPlace {
    pub(super) last: Cell<LastPlace>,
    pub(super) name: OnceCell<(u64, Arc<str>)>,
}

impl Default for StatementPlace {
    fn default() -> StatementPlace {
        // Of nobody: no edition is 0.
        StatementPlace { last: Cell::new(LastPlace { whose: 0, ticket: RowTicket::NONE }), name: OnceCell::new() }
    }
}
