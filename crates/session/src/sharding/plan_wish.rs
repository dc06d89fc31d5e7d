//! `weir.plan`: the session asks for one way to carry out statements about sharded tables.

use crate::session_state::client_settings::SettingValues;

pub const SETTING: &str = "weir.plan";

/// As an error says it.
pub const ALLOWED: &str = "auto, one_shard, engine";

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PlanWish {
    #[default]
    Auto,
    /// Statements that are not one shard's fail.
    OneShard,
    /// Statements about sharded tables that the engine does not take fail.
    Engine,
}

impl PlanWish {
    pub fn of(settings: &SettingValues) -> PlanWish {
        // A value that means nothing is none.
        settings.get(SETTING).and_then(PlanWish::of_word).unwrap_or_default()
    }

    pub fn of_word(word: &str) -> Option<PlanWish> {
        const WORDS: [(&str, PlanWish); 3] =
            [("auto", PlanWish::Auto), ("one_shard", PlanWish::OneShard), ("engine", PlanWish::Engine)];
        WORDS.iter().find(|(name, _)| word.trim().eq_ignore_ascii_case(name)).map(|(_, wish)| *wish)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_are_those_that_an_error_lists() {
        for word in ALLOWED.split(", ") {
            assert!(PlanWish::of_word(word).is_some(), "{word}");
        }
        assert_eq!(PlanWish::of_word(" Engine "), Some(PlanWish::Engine));
        assert_eq!(PlanWish::of_word("all"), None);
    }
}
