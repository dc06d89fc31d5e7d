//! Changes of a configuration by a reload or a session.
use super::problem::ProblemSeverity;
use super::{Config, ConfigSetting, Given, SettingSource, check, place};
use crate::params::{self, ConfigParam, ParamContext, ParamGroup, ParamIndexing, ParamLookup, ValueError};
use crate::watchdog_settings::OWN_NUMBER_FILE;

/// Takes the reloadable settings from `new`, and names those that need a restart. A node missing in `new` stays whole until then.
pub fn reload(old: &Config, new: Config) -> (Config, Vec<String>) {
    let mut given = new.given();
    let mut waiting = Vec::new();
    for kept in &old.settings {
        let now = new.settings.iter().find(|s| s.param.name == kept.param.name && s.index == kept.index);
        let is_lost = match kept.param.indexed {
            ParamIndexing::Node => !has_node(&new, kept.index),
            ParamIndexing::Watchdog | ParamIndexing::Heartbeat => now.is_none(),
            ParamIndexing::No | ParamIndexing::NodeOrDefault => false,
        };
        let must_stay = match kept.param.applies {
            ParamContext::AtStart | ParamContext::NewNodeOnReload => true,
            ParamContext::OnReload | ParamContext::PerSession => is_lost,
        };
        if !must_stay {
            continue;
        }
        let is_changed = now.is_some_and(|now| !is_equal(kept, now));
        if is_changed || (is_lost && NAMES.contains(&kept.param.name)) {
            waiting.push(kept.name());
        }
        if is_changed || is_lost {
            keep(&mut given, kept);
        }
    }
    // A numbered setting only in `new` is reported too, unless its node is new.
    for added in new.settings.iter().filter(|s| s.param.applies == ParamContext::AtStart && s.index.is_some()) {
        if old.settings.iter().all(|s| s.name() != added.name()) {
            waiting.push(added.name());
            given.remove(&(place(added.param), added.index));
        }
    }
    if let (Some(was), Some(is)) = (&old.watchdog, &new.watchdog)
        && was.own_number != is.own_number
    {
        waiting.push(OWN_NUMBER_FILE.to_owned());
    }
    (Config::build(&given).with_files(&new, old), waiting)
}

/// A change in the files that does not count yet.
#[derive(Debug, Clone)]
pub struct WaitingChange {
    /// With its number.
    pub name: String,
    /// As the files have it; `None`: they have no such setting.
    pub in_files: Option<ConfigSetting>,
    pub until: WaitsUntil,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitsUntil {
    Reload,
    Restart,
}

/// A value of the files that differs from the one in force, and the time from which it will count.
pub fn waiting_changes(in_force: &Config, in_files: &Config) -> Vec<WaitingChange> {
    let (merged, left) = reload(in_force, in_files.clone());
    let own = |config: &Config, setting: &ConfigSetting| {
        let is_it = |known: &&ConfigSetting| known.param.name == setting.param.name && known.index == setting.index;
        config.settings.iter().find(is_it).cloned()
    };
    let added = in_files.settings.iter().filter(|setting| own(in_force, setting).is_none());
    let mut waiting = Vec::new();
    for setting in in_force.settings.iter().chain(added) {
        let [now, then, after] = [in_force, in_files, &merged].map(|config| own(config, setting));
        let is_same = |other: &Option<ConfigSetting>| match (&now, other) {
            (Some(now), Some(other)) => is_equal(now, other),
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        };
        let is_told =
            setting.source != SettingSource::Default || then.as_ref().is_some_and(|then| then.source != SettingSource::Default);
        if is_same(&then) || !is_told {
            continue;
        }
        let until = if left.contains(&setting.name()) || is_same(&after) { WaitsUntil::Restart } else { WaitsUntil::Reload };
        waiting.push(WaitingChange { name: setting.name(), in_files: then, until });
    }
    waiting
}

/// Settings by whose loss a node, peer or heartbeat is named.
const NAMES: [&str; 3] = ["backend_hostname", "hostname", "heartbeat_hostname"];

fn has_node(config: &Config, id: Option<u16>) -> bool {
    config.all_nodes().any(|node| Some(node.id) == id)
}

/// True if two texts mean the same, as `60s` and `1min`.
fn is_equal(a: &ConfigSetting, b: &ConfigSetting) -> bool {
    a.param.kind.show(&a.raw) == b.param.kind.show(&b.raw)
}

fn keep(given: &mut Given, setting: &ConfigSetting) {
    let key = (place(setting.param), setting.index);
    match setting.source {
        SettingSource::Default => given.remove(&key),
        SettingSource::File { .. }
        | SettingSource::CommandLine
        | SettingSource::Environment
        | SettingSource::Unit
        | SettingSource::CalledPgpool
        | SettingSource::DebianPackage
        | SettingSource::Session => given.insert(key, setting.clone()),
    };
}

/// Error of a session's SET, by the client.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SetError {
    /// 42704.
    #[error("unrecognized configuration parameter \"{0}\"")]
    Unknown(String),
    /// 55P02.
    #[error("parameter \"{0}\" cannot be changed for one session")]
    NotPerSession(String),
    /// 55P02.
    #[error("parameter \"{0}\" cannot be changed without a restart")]
    AtStart(String),
    /// The other settings contradict it. 22023.
    #[error("{0}")]
    Refused(String),
    /// Not a valid value. 22023.
    #[error(transparent)]
    Value(#[from] ValueError),
}

impl Config {
    /// Returns the configuration changed for a session (`PGPOOL SET name TO value`).
    pub fn set_for_session(&self, name: &str, value: &str) -> Result<Config, SetError> {
        let param = session_param(name)?;
        param.kind.parse(param.name, value)?;
        let mut given = self.given();
        let setting = ConfigSetting { param, index: None, raw: value.to_string(), source: SettingSource::Session };
        given.insert((place(param), None), setting);
        Ok(self.rebuilt(&given))
    }

    /// Returns the configuration changed for the whole proxy until the next reload (the console's SET), by the rules of a reload. Where
    /// `names_files` says so, the caller reads the files first.
    pub fn set_while_running(&self, name: &str, value: &str) -> Result<Config, SetError> {
        let (param, index) = match params::resolve(name) {
            ParamLookup::Found { param, index, .. } => (param, index),
            ParamLookup::NumberMissing(_) | ParamLookup::NumberTooHigh(_) | ParamLookup::Unknown => {
                return Err(SetError::Unknown(name.into()));
            }
        };
        let must_restart = matches!(param.applies, ParamContext::AtStart | ParamContext::NewNodeOnReload);
        if must_restart {
            return Err(SetError::AtStart(name.into()));
        }
        if param.name == "database_file" {
            // Needs the file, which is read at a reload.
            return Err(SetError::Refused(format!("parameter \"{name}\" is changed in the file only, followed by RELOAD")));
        }
        param.kind.parse(param.name, value)?;
        let mut given = self.given();
        given.insert(
            (place(param), index),
            ConfigSetting { param, index, raw: value.to_string(), source: SettingSource::Session },
        );
        let changed = self.rebuilt(&given);
        let mut problems = Vec::new();
        check::check(&changed, &given, &mut problems);
        match problems.into_iter().find(|problem| problem.severity == ProblemSeverity::Error) {
            Some(problem) => Err(SetError::Refused(problem.message)),
            None => Ok(changed),
        }
    }

    /// Returns the configuration with one parameter, or all, as in `base` (`PGPOOL RESET name | ALL`).
    pub fn reset_for_session(&self, name: &str, base: &Config) -> Result<Config, SetError> {
        if name.eq_ignore_ascii_case("all") {
            return Ok(base.clone());
        }
        let param = session_param(name)?;
        let mut given = self.given();
        given.remove(&(place(param), None));
        if let Some(setting) = base.setting(param.name, None) {
            keep(&mut given, setting);
        }
        Ok(self.rebuilt(&given))
    }

    /// Builds from `given`, with the present file contents.
    fn rebuilt(&self, given: &Given) -> Config {
        Config::build(given).with_files(self, self)
    }
}

/// True if a parameter takes effect with keys and certificates.
pub fn names_files(name: &str) -> bool {
    matches!(params::resolve(name), ParamLookup::Found { param, .. } if param.group == ParamGroup::Tls)
}

/// True if a parameter takes effect with the access rules.
pub fn shapes_rules(name: &str) -> bool {
    matches!(params::resolve(name), ParamLookup::Found { param, .. } if matches!(param.name, "auth_type" | "client_sslmode"))
}

fn session_param(name: &str) -> Result<&'static ConfigParam, SetError> {
    match params::resolve(name) {
        ParamLookup::Found { param, index: None, .. } if param.applies == ParamContext::PerSession => Ok(param),
        ParamLookup::Found { .. } | ParamLookup::NumberMissing(_) => Err(SetError::NotPerSession(name.into())),
        ParamLookup::NumberTooHigh(_) | ParamLookup::Unknown => Err(SetError::Unknown(name.into())),
    }
}
