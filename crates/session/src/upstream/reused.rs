//! Messages behind a Parse that was not sent: see `crate::prepared::reuse`.

/// Room that is kept for them between statements.
const ROOM_BYTES_MAX: usize = 1 << 10;

/// Messages behind a Parse that was not sent.
#[derive(Debug, Default)]
pub struct ReusedParse {
    /// The Parse and all behind it, up to its Sync.
    pub(crate) kept: Vec<u8>,
    pub(crate) stage: ReuseStage,
}

/// How far they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReuseStage {
    #[default]
    None,
    /// Their answer has not begun.
    Unanswered,
    /// The kept statement was refused: they run again when the server is ready.
    Refused,
}

impl ReusedParse {
    /// They are answered, or lost.
    #[inline]
    pub fn forget(&mut self) {
        if self.stage != ReuseStage::None {
            self.stage = ReuseStage::None;
            self.kept.clear();
            self.kept.shrink_to(ROOM_BYTES_MAX);
        }
    }
}
