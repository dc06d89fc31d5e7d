//! The settings that a server connection was brought to, and the names made up on it.

use crate::session_state::client_settings::SettingValues;
use crate::session_state::made_up::MadeUpNames;
use std::ops::Deref;
use std::sync::Arc;

pub struct ConnSettings {
    now: Arc<SettingValues>,
    made_up: MadeUpNames,
}

impl ConnSettings {
    pub fn new(now: Arc<SettingValues>) -> ConnSettings {
        let mut made_up = MadeUpNames::default();
        made_up.note(&now);
        ConnSettings { now, made_up }
    }

    pub fn set(&mut self, settings: Arc<SettingValues>) -> Arc<SettingValues> {
        self.made_up.note(&settings);
        std::mem::replace(&mut self.now, settings)
    }

    /// True if so many names were made up that the server has become slow.
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
