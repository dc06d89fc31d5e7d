//! A session's read preference, and its parameters set with `PGPOOL SET`.

use crate::routing::read_targets::ReadPreference;
use crate::session_state::client_settings::SettingValues;
use std::rc::Rc;
use std::sync::Arc;
use weir_config::{Config, LogConfig};

#[derive(Debug, Default)]
pub struct ReadPreferences {
    /// Edition of the configuration, and settings, under which `wish` holds.
    pub(crate) known: Option<(u64, Arc<SettingValues>)>,
    pub(crate) wish: Option<ReadPreference>,
    pub(crate) own: OwnParameters,
}

#[derive(Clone, Debug, Default)]
pub struct OwnParameters(Option<Box<[Option<OwnParameterValue>; OWN.len()]>>);

#[derive(Clone, Debug)]
pub struct OwnParameterValue {
    pub(crate) value: u64,
    pub(crate) shown: Rc<str>,
}

/// Reads the value from the configuration; a switch is 0 or 1.
type Of = fn(&Config) -> u64;

/// Parameters that a session can set, with their defaults.
pub const OWN: [(&str, Of); 7] = [
    ("allow_sql_comments", |config| config.routing.allow_comments.into()),
    ("log_statement", |config| config.log.statement.into()),
    ("log_per_node_statement", |config| config.log.per_node_statement.into()),
    ("notice_per_node_statement", |config| config.log.notice_per_node_statement.into()),
    ("log_client_messages", |config| config.log.client_messages.into()),
    ("check_unlogged_table", |config| config.routing.check_unlogged.into()),
    ("client_idle_limit", |config| config.client_idle_limit_ms),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum OwnParameter {
    AllowComments,
    Statement,
    PerNode,
    Notice,
    ClientMessages,
    CheckUnlogged,
    IdleLimit,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatementLogLine {
    Statement,
    PerNode,
    Notice,
    Slow,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StatementLogLines(u8);

impl StatementLogLines {
    #[inline]
    #[must_use]
    pub const fn with_if(self, line: StatementLogLine, is_so: bool) -> StatementLogLines {
        StatementLogLines(self.0 | (is_so as u8) << line as u8)
    }

    #[inline]
    pub const fn has(self, line: StatementLogLine) -> bool {
        self.0 & (1 << line as u8) != 0
    }

    #[inline]
    pub const fn is_none(self) -> bool {
        self.0 == 0
    }
}

impl OwnParameters {
    #[inline]
    pub fn get(&self, item: OwnParameter, config: &Config) -> bool {
        self.at(item as usize).map_or_else(|| (OWN[item as usize].1)(config), |set| set.value) != 0
    }

    #[inline]
    pub(crate) fn at(&self, place: usize) -> Option<&OwnParameterValue> {
        self.0.as_deref()?[place].as_ref()
    }

    pub(crate) fn set(&mut self, place: usize, value: Option<OwnParameterValue>) {
        self.0.get_or_insert_default()[place] = value;
    }

    #[inline]
    pub fn logged(&self, config: &Config) -> StatementLogLines {
        let log: &LogConfig = &config.log;
        StatementLogLines::default()
            .with_if(StatementLogLine::Statement, self.get(OwnParameter::Statement, config))
            .with_if(StatementLogLine::PerNode, self.get(OwnParameter::PerNode, config))
            .with_if(StatementLogLine::Notice, self.get(OwnParameter::Notice, config))
            .with_if(StatementLogLine::Slow, log.slow_ms.is_some())
    }

    #[inline]
    pub fn logs_messages(&self, config: &Config) -> bool {
        self.get(OwnParameter::ClientMessages, config)
    }

    /// Returns the session's own value, as SHOW prints it.
    pub fn shown(&self, name: &str) -> Option<&str> {
        let at = OWN.iter().position(|(known, _)| known.eq_ignore_ascii_case(name))?;
        self.at(at).map(|set| &*set.shown)
    }
}
