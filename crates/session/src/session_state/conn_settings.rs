//! The settings that a server connection was brought to, and the names that applications made up on it.

use crate::session_state::client_settings::SettingValues;
use crate::session_state::made_up::MadeUpNames;
use std::ops::Deref;
use std::sync::Arc;

/// See the module. It reads as the settings of now.
pub struct ConnSettings {
    now: Arc<SettingValues>,
    made_up: MadeUpNames,
}

impl ConnSettings {
    /// Of a new server connection.
    pub fn new(now: Arc<SettingValues>) -> ConnSettings {
        let mut made_up = MadeUpNames::default();
        made_up.note(&now);
        ConnSettings { now, made_up }
    }

    /// The connection has these from now on. Returns those of before.
    pub fn set(&mut self, settings: Arc<SettingValues>) -> Arc<SettingValues> {
        self.made_up.note(&settings);
        std::mem::replace(&mut self.now, settings)
    }

    /// True if so many names were made up on it that its server has become slow.
    #[inline]
    pub fn are_worn(&self) -> bool {
        self.made_up.are_too_many(&self.now)
    }
}

impl Deref for ConnSettings {
    type Target = Arc<SettingValues>;

    #[inline]
    fn deref(&self) -> &Arc<SettingValues> {
        &self.now
    }
}
