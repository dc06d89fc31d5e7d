//! A worker's connection for questions about users, as it is kept between them. `client::inquiry` asks.

use super::{Address, Talk};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use weir_io::reactor::TaskId;

/// A worker's connection for questions.
#[derive(Default)]
pub struct Inquiry {
    pub(crate) line: RefCell<Option<Line>>,
    pub(crate) is_busy: Cell<bool>,
    pub(crate) waiting: RefCell<VecDeque<TaskId>>,
}

pub struct Line {
    pub(crate) talk: Talk,
    pub(crate) address: Address,
    /// Whom it is logged in as, and by which reading of the files.
    pub(crate) user: String,
    pub(crate) database: String,
    pub(crate) generation: u64,
}
