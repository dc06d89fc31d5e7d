//! The state of a session beyond its messages: settings, statements prepared by SQL, and the channels it listens to.
//!
//! The session owns the state that can move; a server connection is brought to it before use. Any other state on the connection is
//! `upstream::left`'s.

use crate::conn::TextInterpretation as Begins;
use crate::doubt::loss_choices::LossChoices;
use crate::sequences::drawn_values::LastDraw;
use crate::session_state::by_sql::BySql;
use crate::session_state::client_settings::{EncodingEffect, SettingValues, TextReading};
use crate::session_state::listen::listen_hub::HubSubscription;
use crate::session_state::server_defaults::ServerDefaults;
use std::sync::Arc;
use weir_sql::facts::ResetTarget;

/// A statement whose effect on the settings is known from its text, if it succeeds: it is the only one under way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SettingCommand {
    Set { name: String, value: String },
    Reset(ResetTarget),
}

/// The server connection is not at rest though nothing is under way for the client: its next statement waits for an answer to something of ours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ConnSetup {
    #[default]
    No,
    /// The statement's description was asked for.
    Describing,
    /// The server connection is being brought to the session's settings.
    Bringing,
    /// The same, after all settings of others were taken back: the server connection refused to be brought from those.
    Cleaning,
}

/// See the module.
pub struct HeldState {
    /// The settings that the session began with: those of its startup packet, those that a login event trigger left, and the defaults of its login
    /// that it holds against those of other connections.
    pub(crate) startup: Arc<SettingValues>,
    pub(crate) defaults: EffectiveDefaults,
    /// The settings it has now.
    pub settings: Arc<SettingValues>,
    /// How these have servers read its texts.
    pub(crate) reading: TextReading,
    /// A relation that it makes without naming a schema is temporary: its `search_path` says so.
    pub(crate) makes_temporary: bool,
    /// How servers read its texts as it begins, where it sets nothing.
    pub begins: Begins,
    /// How they read its names whatever it sets.
    pub begins_recoded: EncodingEffect,
    /// Number of the settings that shape what a statement means.
    pub(crate) meaning: u64,
    pub(crate) by_sql: Arc<BySql>,
    /// Where it may have drawn from sequences last.
    pub(crate) drawn: Option<LastDraw>,
    /// `pool_mode = session`: the server connection stays anyway, and nothing is asked.
    pub(crate) by_mode: bool,
    /// The changes of this transaction that concern others.
    pub(crate) effects: CommitEffects,
    /// The channels it listens to without a server connection.
    pub(crate) listening: Option<Box<HubSubscription>>,
    /// Its own choice about lost transactions.
    pub choice: LossChoices,
}

/// The defaults of a session's parameters, whatever those of its server connection are.
pub struct EffectiveDefaults {
    /// Those that it goes by.
    pub(crate) base: Arc<ServerDefaults>,
    /// The others that it met last, against which it holds all that must be: one for each server that it reads from, in ordinary use.
    pub(crate) met: Vec<Arc<ServerDefaults>>,
    /// Those of its login that it holds as settings.
    pub(crate) held: SettingValues,
}

/// More than these are not remembered: a session that meets them again compares them again.
const MET_MAX: usize = 8;

impl EffectiveDefaults {
    /// True if the session holds against these all that must be.
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

/// Changes of a transaction that concern others once it is over.
#[derive(Debug, Default)]
pub struct CommitEffects {
    /// Names may stand for something else.
    pub(crate) redefines: bool,
    /// That is said of a text alone that passes unread, and of which the end is not known yet.
    pub(crate) by_long_text: bool,
    /// Connections opened before the end of the transaction begin with other settings than those opened later.
    pub(crate) renews: bool,
    /// Roles that the transaction has renamed or dropped.
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

    /// The server dropped everything of the session's.
    pub fn discarded(&mut self, none: Arc<BySql>) {
        self.by_sql = none;
        self.drawn = None;
        self.listening = None;
    }

    /// The session has lost its server connection.
    pub fn conn_lost(&mut self) {
        self.effects.renews = false;
        if let Some(subscription) = &mut self.listening {
            subscription.rules.conn_lost();
            subscription.rules.drop_fence();
        }
    }
}
