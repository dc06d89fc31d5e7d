//! Questions of one process to the engine outside, and those that it waits for.

use weir_group::{GroupMs, GroupState};

#[derive(Debug)]
pub enum EngineQuestion {
    Read {
        /// Of the member's clock.
        asked_at: GroupMs,
    },
    /// `expect` 0: the first state.
    Change { expect: u64, new: Box<GroupState> },
}

#[derive(Clone, Copy, Debug, Default)]
pub struct EngineTalk {
    /// Questions so far.
    pub asked: u64,
    /// Answers of the time before the process played this member: nobody waits for them.
    pub asked_before: u64,
    /// The change whose answer is awaited.
    pub change: Option<u64>,
}

impl EngineTalk {
    /// Waits for nothing that was asked before.
    pub fn begin(&mut self) {
        (self.asked_before, self.change) = (self.asked, None);
    }
}
