//! A worker's connection for questions about users, as it is kept between them. `client::inquiry` asks.

use super::{Address, Talk};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use weir_io::reactor::TaskId;

/// A worker's connection for questions.
#[derive(Default)]
pub struct Inquiry {
    pub line: RefCell<Option<Line>>,
    pub is_busy: Cell<bool>,
    pub waiting: RefCell<VecDeque<TaskId>>,
}

pub struct Line {
    pub talk: Talk,
    pub address: Address,
    /// Whom it is logged in as, and by which reading of the files.
    pub user: String,
    pub database: String,
    pub generation: u64,
}
