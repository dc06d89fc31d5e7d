//! Positions that a session has seen; `causal` works with them.

use crate::causal::standbys::{ReadStint, SeenRounds};
use crate::context::{Context, SharedContext};
use crate::session_state::client_settings::SettingValues;
use weir_cache::Slot;
use weir_config::CausalReads;

/// Session's own choice.
pub const SETTING: &str = "weir.causal_reads";

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChangeToShow {
    /// Covers the change; 0 for none.
    pub round: u64,
    /// `None`: any relation of the database.
    pub slot: Option<Slot>,
}

#[derive(Debug, Default)]
pub struct CausalReadState {
    own: Option<CausalReads>,
    pub(crate) seen: SeenRounds,
    /// Generation of the view that brought the primary, or its absence, at the last request for a server connection.
    pub primary_since: u64,
    pub(crate) must_show: SeenRounds,
    /// Another session's change that the read must show besides.
    pub(crate) change: ChangeToShow,
    /// Kept while a session waits: no new throw.
    pub(crate) dice: u32,
    pub(crate) stint: ReadStint,
    /// True if answers were not noted because the mode was `off`.
    pub(crate) missed: bool,
    /// True if Weir sent the BEGIN and each statement has its own snapshot.
    pub(crate) renews: bool,
    pub(crate) is_careful: bool,
}

impl CausalReadState {
    /// A meaningless value counts as unset: a server accepts any value of such a parameter.
    pub fn set(&mut self, shared: &SharedContext, settings: &SettingValues) {
        self.own = settings.get(SETTING).and_then(CausalReads::of_word);
        if let Some(own) = self.own {
            shared.positions.obey(own);
        }
    }

    #[inline]
    pub fn mode(&self, w: &Context) -> CausalReads {
        self.own.unwrap_or(w.causal_reads())
    }

    /// True if reads go on showing what the session has seen, on any server.
    pub fn sees_on(&self, w: &Context) -> bool {
        self.mode(w) != CausalReads::Off
    }

    pub fn is_free(&self) -> bool {
        self.must_show.is_empty()
    }
}
