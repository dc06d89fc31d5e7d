//! The state of a session beyond its messages: settings, statements prepared by SQL, channels.
//!
//! State that can move is the session's, and server connections are brought to it. Other state is `upstream::left`'s.

use crate::conn::TextInterpretation as Begins;
use crate::doubt::loss_choices::LossChoices;
use crate::sequences::drawn_values::LastDraw;
use crate::session_state::by_sql::BySql;
use crate::session_state::client_settings::{EncodingEffect, SettingValues, TextReading};
use crate::session_state::listen::listen_hub::HubSubscription;
use crate::session_state::server_defaults::ServerDefaults;
use std::sync::Arc;
use weir_sql::facts::ResetTarget;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SettingCommand {
    Set { name: String, value: String },
    Reset(ResetTarget),
}

pub struct HeldState {
    /// Settings of the startup packet, of a login event trigger, and defaults held against other connections.
    pub(crate) startup: Arc<SettingValues>,
    pub(crate) defaults: EffectiveDefaults,
    pub settings: Arc<SettingValues>,
    pub(crate) reading: TextReading,
    /// By its `search_path`, a relation made without a schema is temporary.
    pub(crate) makes_temporary: bool,
    /// How servers read its texts where it sets nothing.
    pub begins: Begins,
    /// How servers read its names whatever it sets.
    pub begins_recoded: EncodingEffect,
    pub(crate) meaning: u64,
    pub(crate) by_sql: Arc<BySql>,
    pub(crate) drawn: Option<LastDraw>,
    /// `pool_mode = session`: the server connection stays, and no state is asked for.
    pub(crate) by_mode: bool,
    pub(crate) effects: CommitEffects,
    pub(crate) listening: Option<Box<HubSubscription>>,
    pub choice: LossChoices,
}

pub struct EffectiveDefaults {
    /// Defaults that the session goes by.
    pub(crate) base: Arc<ServerDefaults>,
    /// Defaults met last: the session already holds its values against them.
    pub(crate) met: Vec<Arc<ServerDefaults>>,
    /// Defaults of the login held as settings.
    pub(crate) held: SettingValues,
}

/// Older entries are compared again when met.
const MET_MAX: usize = 8;

impl EffectiveDefaults {
    /// True if the session holds all it must against these defaults.
    #[inline]
    pub fn knows(&self, theirs: &Arc<ServerDefaults>) -> bool {
        Arc::ptr_eq(theirs, &self.base) || self.met.iter().any(|met| Arc::ptr_eq(theirs, met))
    }

    pub fn note_met(&mut self, theirs: Arc<ServerDefaults>) {
        if self.met.len() == MET_MAX {
            self.met.remove(0);
        }
        self.met.push(theirs);
    }
}

/// Code that a transaction has defined and that may read sharded tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum DefinedReaders {
    #[default]
    None,
    /// Statements run it that call it.
    Functions,
    /// Writes run it, too.
    Triggers,
}

#[derive(Debug, Default)]
pub struct CommitEffects {
    /// Names may mean something else.
    pub(crate) redefines: bool,
    /// Functions, views or other code among them may be new.
    pub(crate) redefines_code: bool,
    /// Functions or triggers among them may read sharded tables.
    pub(crate) defined_readers: DefinedReaders,
    /// `redefines` is only due to a long text not yet scanned to its end.
    pub(crate) by_long_text: bool,
    /// New connections begin with other settings.
    pub(crate) renews: bool,
    /// Roles renamed or dropped.
    pub(crate) unseats: Vec<String>,
}

impl HeldState {
    pub fn new(startup: Arc<SettingValues>, meaning: u64, by_sql: Arc<BySql>, base: Arc<ServerDefaults>) -> HeldState {
        HeldState {
            defaults: EffectiveDefaults { met: Vec::new(), base, held: SettingValues::default() },
            makes_temporary: startup.makes_temporary(),
            reading: startup.reading(),
            choice: LossChoices::of(&startup),
            settings: startup.clone(),
            startup,
            begins: Begins::default(),
            begins_recoded: EncodingEffect::None,
            meaning,
            by_sql,
            drawn: None,
            by_mode: false,
            effects: CommitEffects::default(),
            listening: None,
        }
    }

    pub fn discarded(&mut self, none: Arc<BySql>) {
        self.by_sql = none;
        self.drawn = None;
        self.listening = None;
    }

    pub fn conn_lost(&mut self) {
        self.effects.renews = false;
        if let Some(subscription) = &mut self.listening {
            subscription.rules.conn_lost();
            subscription.rules.drop_fence();
        }
    }
}
