//! A session's own choices about transactions that are lost.

use crate::session_state::client_settings::SettingValues;

/// The parameters by which a session chooses for itself.
pub const OUTCOME: &str = "weir.commit_outcome";
pub const REPLAY: &str = "weir.transaction_replay";

/// The choices of a session for itself.
#[derive(Clone, Copy, Debug, Default)]
pub struct LossChoices {
    pub outcome: Option<bool>,
    pub replay: Option<bool>,
}

impl LossChoices {
    /// Takes what the settings say. A value that means nothing counts as none.
    pub fn of(settings: &SettingValues) -> LossChoices {
        let own = |name: &str| settings.get(name).and_then(of_word);
        LossChoices { outcome: own(OUTCOME), replay: own(REPLAY) }
    }
}

/// A switch in PostgreSQL's words.
pub fn of_word(word: &str) -> Option<bool> {
    match word.trim().to_ascii_lowercase().as_str() {
        "on" | "true" | "yes" | "1" => Some(true),
        "off" | "false" | "no" | "0" => Some(false),
        _ => None,
    }
}
