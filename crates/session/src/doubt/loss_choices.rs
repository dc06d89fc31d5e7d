//! A session's own settings for lost transactions.

use crate::lazy_begin::transaction_place::switch_of;
use crate::session_state::client_settings::SettingValues;

pub const OUTCOME: &str = "weir.commit_outcome";
pub const REPLAY: &str = "weir.transaction_replay";

#[derive(Clone, Copy, Debug, Default)]
pub struct LossChoices {
    pub outcome: Option<bool>,
    pub replay: Option<bool>,
}

impl LossChoices {
    /// A meaningless value counts as unset.
    pub fn of(settings: &SettingValues) -> LossChoices {
        let own = |name: &str| settings.get(name).and_then(switch_of);
        LossChoices { outcome: own(OUTCOME), replay: own(REPLAY) }
    }
}
