//! The configuration as `PGPOOL SHOW` prints it.
use super::{Config, ConfigSetting};
use crate::params::{self, ConfigParam, ParamGroup, ParamIndexing, ParamLookup};
use crate::visibility::{ValueVisibility, Viewer};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParamRow {
    /// Name with its number.
    pub name: String,
    /// Value with its unit; `*****` for a secret.
    pub value: String,
    /// Origin: `default`, `command line`, `session`, or file and line.
    pub source: String,
    /// Unit of a plain number, or "".
    pub unit: &'static str,
    pub description: &'static str,
    /// Viewers of the row. Everyone sees a secret's row, with its value masked.
    pub seen_by: ValueVisibility,
}

/// Error of a SHOW, by the client.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParamShowError {
    /// 42704.
    #[error("unrecognized configuration parameter \"{name}\"{hint}")]
    Unknown {
        name: String,
        /// Empty, or the nearest known name.
        hint: String,
    },
    /// No value with this number. 42704.
    #[error("there is no \"{0}\", nothing has this number")]
    NoSuchNumber(String),
    /// For operators only. 42501, as in PostgreSQL's `GetConfigOptionByName`.
    #[error("permission denied to examine \"{0}\"")]
    Hidden(String),
}

/// Returns every parameter visible to the viewer, in table order, without old names.
pub fn show_all(config: &Config, viewer: &Viewer) -> Vec<ParamRow> {
    let rows = config.settings.iter().filter(|setting| !setting.param.hidden).map(row);
    rows.filter(|row| viewer.sees(row.seen_by, None)).collect()
}

/// Returns the rows for `PGPOOL SHOW name`: a parameter, a numbered one, all its numbers, a family, or ALL. Invisible rows are left out
/// of lists, and an error if named.
pub fn show_one(config: &Config, name: &str, viewer: &Viewer) -> Result<Vec<ParamRow>, ParamShowError> {
    if name.eq_ignore_ascii_case("all") {
        return Ok(show_all(config, viewer));
    }
    let is_seen = |row: &ParamRow| viewer.sees(row.seen_by, None);
    if let Some(rows) = show_family(config, name) {
        return Ok(rows.into_iter().filter(is_seen).collect());
    }
    let named = show_named(config, name)?;
    if named.iter().all(is_seen) { Ok(named) } else { Err(ParamShowError::Hidden(name.into())) }
}

/// True if the output depends on the viewer.
pub fn depends_on_viewer(config: &Config, name: &str) -> bool {
    show_one(config, name, &Viewer::operator()).is_ok_and(|rows| rows.iter().any(|row| row.seen_by != ValueVisibility::Everyone))
}

fn show_named(config: &Config, name: &str) -> Result<Vec<ParamRow>, ParamShowError> {
    match params::resolve(name) {
        ParamLookup::Found { param, index: None, .. } | ParamLookup::NumberMissing(param) => Ok(show_every_number(config, param)),
        ParamLookup::Found { param, index: Some(index), .. } => match show_number(config, param, index) {
            Some(row) => Ok(vec![row]),
            None => Err(ParamShowError::NoSuchNumber(name.into())),
        },
        ParamLookup::NumberTooHigh(_) => Err(ParamShowError::NoSuchNumber(name.into())),
        ParamLookup::Unknown => {
            let hint = params::nearest(name).map(|near| format!(", did you mean \"{near}\"?")).unwrap_or_default();
            Err(ParamShowError::Unknown { name: name.into(), hint })
        }
    }
}

/// Returns a family's parameters by number; `None` if `name` is no family.
fn show_family(config: &Config, name: &str) -> Option<Vec<ParamRow>> {
    let is_member = |param: &&ConfigParam| param.indexed.family().is_some_and(|family| family.eq_ignore_ascii_case(name));
    // `backend_sslmode` is numbered like health checks, but is not one.
    let members: Vec<_> = params::all().filter(is_member).filter(|param| param.group != ParamGroup::Tls).collect();
    let first = members.first()?;
    let mut rows = Vec::new();
    if first.indexed == ParamIndexing::NodeOrDefault {
        let is_bare = |s: &&ConfigSetting| s.param.indexed == first.indexed && s.param.group == first.group && s.index.is_none();
        rows.extend(config.settings.iter().filter(is_bare).map(row));
    }
    for index in numbers(config, first) {
        rows.extend(members.iter().filter_map(|param| show_number(config, param, index)));
    }
    Some(rows)
}

fn show_every_number(config: &Config, param: &'static ConfigParam) -> Vec<ParamRow> {
    let bare = config.settings.iter().filter(|s| s.param.name == param.name && s.index.is_none()).map(row);
    let numbered = numbers(config, param).into_iter().filter_map(|index| show_number(config, param, index));
    bare.chain(numbered).collect()
}

/// Returns the effective value for one number, under its numbered name.
fn show_number(config: &Config, param: &'static ConfigParam, index: u16) -> Option<ParamRow> {
    if !numbers(config, param).contains(&index) {
        return None;
    }
    let setting = config.setting(param.name, Some(index))?;
    Some(ParamRow { name: format!("{}{index}", param.name), ..row(setting) })
}

fn numbers(config: &Config, param: &ConfigParam) -> Vec<u16> {
    match param.indexed {
        ParamIndexing::No => Vec::new(),
        ParamIndexing::Node | ParamIndexing::NodeOrDefault => config.all_nodes().map(|node| node.id).collect(),
        ParamIndexing::Watchdog | ParamIndexing::Heartbeat => {
            config.settings.iter().filter(|s| s.param.name == param.name).filter_map(|s| s.index).collect()
        }
    }
}

fn row(setting: &ConfigSetting) -> ParamRow {
    ParamRow {
        name: setting.name(),
        value: setting.shown(),
        source: setting.source.to_string(),
        unit: setting.param.kind.unit(),
        description: setting.param.help,
        seen_by: match setting.param.kind.visibility() {
            ValueVisibility::Nobody => ValueVisibility::Everyone,
            other => other,
        },
    }
}
