//! Problems of a configuration, in the operator's words.
use std::fmt;
use std::path::PathBuf;

use super::{Config, SettingSource};

pub(super) const NO_NODE: &str = "no node is configured, set at least \"backend_hostname0\"";

#[derive(Debug)]
pub struct ConfigReadResult {
    /// `None` if any problem is an error.
    pub config: Option<Config>,
    /// The readable part, even with errors: to inspect, not to run.
    pub draft: Config,
    /// All problems by line; those of the whole come last.
    pub problems: Vec<ConfigProblem>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProblemSeverity {
    /// Likely a mistake, but usable.
    Warning,
    /// Not usable.
    Error,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigProblem {
    pub severity: ProblemSeverity,
    pub path: Option<PathBuf>,
    /// From 1.
    pub line: Option<u32>,
    /// Lower case, without a full stop.
    pub message: String,
}

impl ConfigProblem {
    /// Makes a problem with the object that a parameter names, at the parameter's line.
    pub fn of_parameter(config: &Config, severity: ProblemSeverity, name: &str, what: &str) -> ConfigProblem {
        let source = config.setting(name, None).map_or(SettingSource::Default, |setting| setting.source.clone());
        ConfigProblem::at(severity, &source, format!("{name}: {what}"))
    }

    /// Formats `path:line: message`.
    pub fn place_and_message(&self) -> String {
        format!("{}{}", ProblemPlace(self), self.message)
    }

    /// True if the only problem is a missing node.
    pub fn is_no_node(&self) -> bool {
        self.message == NO_NODE
    }
}

impl fmt::Display for ConfigProblem {
    /// Formats `path:line: severity: message`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let severity = match self.severity {
            ProblemSeverity::Warning => "warning",
            ProblemSeverity::Error => "error",
        };
        write!(f, "{}{severity}: {}", ProblemPlace(self), self.message)
    }
}

struct ProblemPlace<'a>(&'a ConfigProblem);

impl fmt::Display for ProblemPlace<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.0.path, self.0.line) {
            (Some(path), Some(line)) => write!(f, "{}:{line}: ", path.display()),
            (Some(path), None) => write!(f, "{}: ", path.display()),
            (None, _) => Ok(()),
        }
    }
}
