//! Problems of a configuration, in the operator's words.
use std::fmt;
use std::path::PathBuf;

use super::{Config, SettingSource};

/// Message about a configuration without a node.
pub(super) const NO_NODE: &str = "no node is configured, set at least \"backend_hostname0\"";

/// Result of reading a configuration.
#[derive(Debug)]
pub struct ConfigReadResult {
    /// The configuration; `None` if any problem is an error.
    pub config: Option<Config>,
    /// The readable part of it, also with errors: to look at, not to run.
    pub draft: Config,
    /// Everything found, in the order of the lines; problems of the whole come last.
    pub problems: Vec<ConfigProblem>,
}

/// How bad a problem is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProblemSeverity {
    /// Likely a mistake; it works all the same.
    Warning,
    /// The configuration cannot be used.
    Error,
}

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigProblem {
    /// How bad it is.
    pub severity: ProblemSeverity,
    /// The file, if it is about a file.
    pub path: Option<PathBuf>,
    /// The line, from 1, if it is about a line.
    pub line: Option<u32>,
    /// The problem, lower case, without a full stop.
    pub message: String,
}

impl ConfigProblem {
    /// A problem with what a parameter names, at the line that sets it.
    pub fn of_parameter(config: &Config, severity: ProblemSeverity, name: &str, what: &str) -> ConfigProblem {
        let source = config.setting(name, None).map_or(SettingSource::Default, |setting| setting.source.clone());
        ConfigProblem::at(severity, &source, format!("{name}: {what}"))
    }

    /// `path:line: message`, where the severity is told otherwise.
    pub fn place_and_message(&self) -> String {
        format!("{}{}", ProblemPlace(self), self.message)
    }

    /// True if nothing is wrong but that no node is configured.
    pub fn is_no_node(&self) -> bool {
        self.message == NO_NODE
    }
}

impl fmt::Display for ConfigProblem {
    /// `path:line: severity: message`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let severity = match self.severity {
            ProblemSeverity::Warning => "warning",
            ProblemSeverity::Error => "error",
        };
        write!(f, "{}{severity}: {}", ProblemPlace(self), self.message)
    }
}

/// The file and line of a problem, if it has them.
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
