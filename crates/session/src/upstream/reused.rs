//! Messages behind a Parse that was not sent: see `crate::prepared::reuse`.

const ROOM_BYTES_MAX: usize = 1 << 10;

#[derive(Debug, Default)]
pub struct ReusedParse {
    pub(crate) kept: Vec<u8>,
    pub(crate) stage: ReuseStage,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReuseStage {
    #[default]
    None,
    Unanswered,
    /// The server refused the kept statement: the messages run again when it is ready.
    Refused,
}

impl ReusedParse {
    #[inline]
    pub fn forget(&mut self) {
        if self.stage != ReuseStage::None {
            self.stage = ReuseStage::None;
            self.kept.clear();
            self.kept.shrink_to(ROOM_BYTES_MAX);
        }
    }
}
