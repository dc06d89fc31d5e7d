//! The configuration as `PGPOOL SHOW` prints it.
use super::{Config, Setting};
use crate::params::{self, Group, Indexed, Named, Param};

/// One row of `PGPOOL SHOW`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shown {
    /// Name, with its number.
    pub name: String,
    /// Value with its unit; `*****` for a secret.
    pub value: String,
    /// Where the value came from: `default`, `command line`, `session`, or a file and its line.
    pub source: String,
    /// Unit of a plain number, or "".
    pub unit: &'static str,
    /// Meaning.
    pub description: &'static str,
}

/// Why there is nothing to show; always the client's fault. 42704.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ShowError {
    /// No such parameter.
    #[error("unrecognized configuration parameter \"{name}\"{hint}")]
    Unknown {
        /// As written.
        name: String,
        /// Empty, or the nearest known name.
        hint: String,
    },
    /// The parameter has no value with this number.
    #[error("there is no \"{0}\", nothing has this number")]
    NoSuchNumber(String),
}

/// Every parameter, in the order of the table; old names are left out.
pub fn show_all(config: &Config) -> Vec<Shown> {
    config.settings.iter().filter(|setting| !setting.param.hidden).map(row).collect()
}

/// The rows for `PGPOOL SHOW name`: a parameter, a numbered one, all numbers of one, a family of them, or ALL.
pub fn show_one(config: &Config, name: &str) -> Result<Vec<Shown>, ShowError> {
    if name.eq_ignore_ascii_case("all") {
        return Ok(show_all(config));
    }
    if let Some(rows) = show_family(config, name) {
        return Ok(rows);
    }
    match params::resolve(name) {
        Named::Found { param, index: None, .. } | Named::NumberMissing(param) => Ok(show_every_number(config, param)),
        Named::Found { param, index: Some(index), .. } => match show_number(config, param, index) {
            Some(row) => Ok(vec![row]),
            None => Err(ShowError::NoSuchNumber(name.into())),
        },
        Named::NumberTooHigh(_) => Err(ShowError::NoSuchNumber(name.into())),
        Named::Unknown => {
            let hint = params::nearest(name).map(|near| format!(", did you mean \"{near}\"?")).unwrap_or_default();
            Err(ShowError::Unknown { name: name.into(), hint })
        }
    }
}

/// All parameters of one numbering, number after number; `None` if `name` is no such family.
fn show_family(config: &Config, name: &str) -> Option<Vec<Shown>> {
    let is_member = |param: &&Param| param.indexed.family().is_some_and(|family| family.eq_ignore_ascii_case(name));
    // `backend_sslmode` is numbered like health checks, and is none.
    let members: Vec<_> = params::all().filter(is_member).filter(|param| param.group != Group::Tls).collect();
    let first = members.first()?;
    let mut rows = Vec::new();
    if first.indexed == Indexed::NodeOrDefault {
        let is_bare = |s: &&Setting| s.param.indexed == first.indexed && s.param.group == first.group && s.index.is_none();
        rows.extend(config.settings.iter().filter(is_bare).map(row));
    }
    for index in numbers(config, first) {
        rows.extend(members.iter().filter_map(|param| show_number(config, param, index)));
    }
    Some(rows)
}

fn show_every_number(config: &Config, param: &'static Param) -> Vec<Shown> {
    let bare = config.settings.iter().filter(|s| s.param.name == param.name && s.index.is_none()).map(row);
    let numbered = numbers(config, param).into_iter().filter_map(|index| show_number(config, param, index));
    bare.chain(numbered).collect()
}

/// The value in force for one number, under its numbered name.
fn show_number(config: &Config, param: &'static Param, index: u16) -> Option<Shown> {
    if !numbers(config, param).contains(&index) {
        return None;
    }
    let setting = config.setting(param.name, Some(index))?;
    Some(Shown { name: format!("{}{index}", param.name), ..row(setting) })
}

/// The numbers a parameter has values for.
fn numbers(config: &Config, param: &Param) -> Vec<u16> {
    match param.indexed {
        Indexed::No => Vec::new(),
        Indexed::Node | Indexed::NodeOrDefault => config.nodes.iter().map(|node| node.id).collect(),
        Indexed::Watchdog | Indexed::Heartbeat => {
            config.settings.iter().filter(|s| s.param.name == param.name).filter_map(|s| s.index).collect()
        }
    }
}

fn row(setting: &Setting) -> Shown {
    Shown {
        name: setting.name(),
        value: setting.shown(),
        source: setting.source.to_string(),
        unit: setting.param.kind.unit(),
        description: setting.param.help,
    }
}
