//! A session's own settings for lost transactions.

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
        let own = |name: &str| settings.get(name).and_then(of_word);
        LossChoices { outcome: own(OUTCOME), replay: own(REPLAY) }
    }
}

/// Takes PostgreSQL's words, unabbreviated.
pub fn of_word(word: &str) -> Option<bool> {
    match word.trim().to_ascii_lowercase().as_str() {
        "on" | "true" | "yes" | "1" => Some(true),
        "off" | "false" | "no" | "0" => Some(false),
        _ => None,
    }
}
