//! Positions that a session has seen, as its task keeps them. `traffic::causal` works with them.

use crate::causal::standbys::{ReadStint, SeenRounds};
use crate::context::{Context, SharedContext};
use crate::session_state::client_settings::SettingValues;
use weir_cache::Slot;
use weir_config::CausalReads;

/// The parameter by which a session chooses for itself.
pub const SETTING: &str = "weir.causal_reads";

/// A change that a read must show.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChangeToShow {
    /// The round that covers it; 0: there is none.
    pub round: u64,
    /// The slot of the relation that was changed last; `None`: of any of the database.
    pub slot: Option<Slot>,
}

/// A session's side of it.
#[derive(Debug, Default)]
pub struct CausalReadState {
    /// The session's own choice.
    own: Option<CausalReads>,
    pub(crate) seen: SeenRounds,
    /// The generation of the view that brought the primary, or its absence, under which it last asked for a server connection.
    pub primary_since: u64,
    /// Positions that the answer to the statement under way must show.
    pub(crate) must_show: SeenRounds,
    /// The change by somebody that the read under way must show beside all that the session has seen.
    pub(crate) change: ChangeToShow,
    /// The dice of the statement under way: a session that waits does not throw again.
    pub(crate) dice: u32,
    pub(crate) stint: ReadStint,
    /// It was told things while nobody looked.
    pub(crate) missed: bool,
    /// Each statement of its transaction has a snapshot of its own, if Weir sent its BEGIN.
    pub(crate) renews: bool,
    /// The statement under way is one of a session that wants to go on seeing things.
    pub(crate) is_careful: bool,
}

impl CausalReadState {
    /// Takes what the settings say. Error: none, since a server takes any value of such a parameter; one that means nothing counts as none.
    pub fn set(&mut self, shared: &SharedContext, settings: &SettingValues) {
        self.own = settings.get(SETTING).and_then(CausalReads::of_word);
        if let Some(own) = self.own {
            shared.positions.obey(own);
        }
    }

    pub fn mode(&self, w: &Context) -> CausalReads {
        self.own.unwrap_or(w.peek_config().routing.causal_reads())
    }

    /// True if its reads go on seeing what it has seen, wherever they run.
    pub fn sees_on(&self, w: &Context) -> bool {
        self.mode(w) != CausalReads::Off
    }

    /// True if any server may answer.
    pub fn is_free(&self) -> bool {
        self.must_show.is_empty()
    }
}
