//! Reads a configuration file and its includes, and collects every problem instead of stopping at the first.
use std::path::{Component, Path, PathBuf};

use super::environment::EnvironmentSetting;
use super::problem::{ConfigProblem, ConfigReadResult, ProblemSeverity};
use super::{Config, ConfigSetting, Given, SettingSource, check, lines, place};
use crate::params::{self, ConfigParam, INDEX_MAX, ParamLookup};
use crate::watchdog_settings::{OWN_NUMBER_FILE, own_number};

const BACKEND_HOSTNAME: &str = "backend_hostname";
/// Depth of includes, as in PostgreSQL.
const DEPTH_MAX: usize = 10;
/// Limit on files: ten levels of ten includes would be 10^10.
const FILES_MAX: usize = 1000;
/// Limit on problems: a file of another kind gives one per line.
const PROBLEMS_MAX: usize = 1000;

/// Bytes, not text: invalid UTF-8 is reported here with its line.
type Load<'a> = dyn FnMut(&Path) -> Result<Vec<u8>, String> + 'a;

pub fn read(path: &Path, load: &mut dyn FnMut(&Path) -> Result<Vec<u8>, String>) -> ConfigReadResult {
    read_with(path, &[], load)
}

/// Values from the command line override the file.
pub fn read_with(
    path: &Path,
    command_line: &[(String, String)],
    load: &mut dyn FnMut(&Path) -> Result<Vec<u8>, String>,
) -> ConfigReadResult {
    read_with_defaults(path, &[], &[], command_line, load)
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubstituteDefault {
    pub name: &'static str,
    pub value: String,
    pub source: SettingSource,
}

/// Reads with other defaults, as under systemd, and with variables that win over the file, as in a container.
pub fn read_with_defaults(
    path: &Path,
    defaults: &[SubstituteDefault],
    environment: &[EnvironmentSetting],
    command_line: &[(String, String)],
    load: &mut dyn FnMut(&Path) -> Result<Vec<u8>, String>,
) -> ConfigReadResult {
    let mut reader = ConfigFileReader {
        load,
        given: Given::new(),
        problems: Vec::new(),
        open: Vec::new(),
        files: 0,
        is_missing: false,
        repeated: Vec::new(),
    };
    for SubstituteDefault { name, value, source } in defaults {
        reader.set(name, value, source.clone());
    }
    reader.read_file(path, &SettingSource::CommandLine);
    for setting in environment {
        reader.set_by_variable(setting);
    }
    for (name, value) in command_line {
        reader.set(name, value, SettingSource::CommandLine);
    }
    let mut config = Config::build(&reader.given);
    reader.judge_repeated(&config);
    reader.read_databases(path, &mut config);
    reader.read_own_number(path, &mut config);
    let ConfigFileReader { given, mut problems, is_missing, .. } = reader;
    if !is_missing {
        // An unreadable file has no other problems.
        check::check(&config, &given, &mut problems);
    }
    let is_usable = problems.iter().all(|problem| problem.severity == ProblemSeverity::Warning);
    ConfigReadResult { config: is_usable.then(|| config.clone()), draft: config, problems }
}

struct ConfigFileReader<'a> {
    load: &'a mut Load<'a>,
    given: Given,
    problems: Vec<ConfigProblem>,
    /// Files being read, outermost first.
    open: Vec<PathBuf>,
    files: usize,
    is_missing: bool,
    /// Nodes with several host name lines.
    repeated: Vec<DuplicateHostname>,
}

/// A node's repeated host name, with the server of the earlier lines.
struct DuplicateHostname {
    index: u16,
    first: SettingSource,
    second: SettingSource,
    hostname: String,
    port: Option<String>,
}

impl ConfigFileReader<'_> {
    fn read_file(&mut self, path: &Path, asked: &SettingSource) {
        let shown = path.display();
        let known = normalized(path);
        if self.open.contains(&known) {
            return self.error(asked, format!("file \"{shown}\" includes itself"));
        }
        if self.open.len() > DEPTH_MAX {
            return self.error(asked, format!("file \"{shown}\" is included {} deep, limit is {DEPTH_MAX}", self.open.len()));
        }
        self.files += 1;
        if self.files > FILES_MAX {
            return self.error(asked, format!("file \"{shown}\" is one of more than {FILES_MAX} included files"));
        }
        let bytes = match (self.load)(path) {
            Ok(bytes) => bytes,
            Err(cause) => {
                self.is_missing |= self.open.is_empty();
                return self.error(asked, format!("could not read configuration file \"{shown}\": {cause}"));
            }
        };
        self.open.push(known);
        for line in lines::lines(&bytes) {
            if self.problems.len() >= PROBLEMS_MAX {
                self.error(asked, format!("more than {PROBLEMS_MAX} problems, the rest of \"{}\" is not read", path.display()));
                break;
            }
            match line {
                Ok(line) => {
                    let source = SettingSource::File { path: path.to_path_buf(), line: line.number };
                    if line.name.eq_ignore_ascii_case("include") {
                        let directory = path.parent().unwrap_or(Path::new(""));
                        self.read_file(&directory.join(&line.value), &source);
                    } else if ["include_if_exists", "include_dir"].iter().any(|name| line.name.eq_ignore_ascii_case(name)) {
                        self.error(&source, format!("\"{}\" is not known here, name each file with \"include\"", line.name));
                    } else {
                        self.set(&line.name, &line.value, source);
                    }
                }
                Err(bad) => self.error(&SettingSource::File { path: path.to_path_buf(), line: bad.number }, bad.message),
            }
        }
        self.open.pop();
    }

    /// Reads `database_file`, beside the configuration in `path`.
    fn read_databases(&mut self, path: &Path, config: &mut Config) {
        let Some(file) = &config.auth.database_file else { return };
        let path = path.parent().unwrap_or(Path::new("")).join(file);
        let source = config.setting("database_file", None).map_or(SettingSource::Default, |setting| setting.source.clone());
        let text = match (self.load)(&path).map(String::from_utf8) {
            Ok(Ok(text)) => text,
            Ok(Err(_)) => return self.error(&source, format!("database_file: \"{}\" is not UTF-8", path.display())),
            Err(cause) => return self.error(&source, format!("database_file: could not read \"{}\": {cause}", path.display())),
        };
        let (databases, wrong) = crate::databases::read(&text);
        for (line, cause) in wrong.into_iter().take(PROBLEMS_MAX) {
            self.error(&SettingSource::File { path: path.clone(), line }, cause.to_string());
        }
        config.databases = databases.into();
    }

    /// Reads which of the watchdog's hosts this one is, beside the configuration in `path`.
    fn read_own_number(&mut self, path: &Path, config: &mut Config) {
        let source = config.setting("use_watchdog", None).map_or(SettingSource::Default, |setting| setting.source.clone());
        let Some(watchdog) = &mut config.watchdog else { return };
        let path = path.parent().unwrap_or(Path::new("")).join(OWN_NUMBER_FILE);
        let shown = path.display();
        let wanted = "write the number of this host there, 0 for hostname0";
        let number = match (self.load)(&path) {
            Ok(bytes) => own_number(&bytes),
            Err(cause) => return self.error(&source, format!("use_watchdog: could not read \"{shown}\": {cause}; {wanted}")),
        };
        let Some(number) = number else {
            return self.error(&source, format!("use_watchdog: \"{shown}\" holds no number from 0 to {INDEX_MAX}; {wanted}"));
        };
        watchdog.own_number = number;
        if watchdog.own().is_none() {
            let message = format!("use_watchdog: \"{shown}\" says {number}, but \"hostname{number}\" is not set; {wanted}");
            self.error(&source, message);
        }
    }

    /// Problems name the variable.
    fn set_by_variable(&mut self, setting: &EnvironmentSetting) {
        let before = self.problems.len();
        match &setting.value {
            Ok(value) => self.set(&setting.parameter, value, SettingSource::Environment),
            Err(cause) => self.error(&SettingSource::Environment, cause.clone()),
        }
        for problem in self.problems.iter_mut().skip(before) {
            problem.message = format!("in the environment: {}: {}", setting.variable, problem.message);
        }
    }

    fn set(&mut self, name: &str, value: &str, source: SettingSource) {
        match params::resolve(name) {
            ParamLookup::Found { param, index, alias } => {
                if let Some(old) = alias {
                    self.warn(&source, format!("parameter \"{old}\" is now called \"{}\"", param.name));
                }
                self.store(param, index, value, source);
            }
            ParamLookup::NumberMissing(param) => {
                let base = param.name;
                self.error(&source, format!("parameter \"{base}\" needs a number, for example \"{base}0\""));
            }
            ParamLookup::NumberTooHigh(_) => {
                self.error(&source, format!("the number of parameter \"{}\" is above the limit {INDEX_MAX}", cut(name)));
            }
            ParamLookup::Unknown => {
                let near = params::nearest(name).map(|near| format!(", did you mean \"{near}\"?")).unwrap_or_default();
                self.warn(&source, format!("unrecognized configuration parameter \"{}\"{near}", cut(name)));
            }
        }
    }

    fn store(&mut self, param: &'static ConfigParam, index: Option<u16>, value: &str, source: SettingSource) {
        let name = ConfigSetting { param, index, raw: String::new(), source: SettingSource::Default }.name();
        match param.kind.parse(&name, value) {
            Ok(_) => {
                if let (BACKEND_HOSTNAME, Some(index)) = (param.name, index) {
                    self.note_repeated(param, index, &source);
                }
                let setting = ConfigSetting { param, index, raw: value.to_string(), source };
                self.given.insert((place(param), index), setting);
            }
            Err(cause) if source == SettingSource::CommandLine => self.error(&source, format!("on the command line: {cause}")),
            Err(cause) => self.error(&source, cause.to_string()),
        }
    }

    /// Notes a node whose host name a line sets again.
    fn note_repeated(&mut self, param: &'static ConfigParam, index: u16, second: &SettingSource) {
        let known = self.given.get(&(place(param), Some(index)));
        let (Some(known), SettingSource::File { .. }) = (known, second) else { return };
        if !matches!(known.source, SettingSource::File { .. }) || known.raw.is_empty() {
            return;
        }
        let port = params::find("backend_port").and_then(|param| self.given.get(&(place(param), Some(index))));
        self.repeated.push(DuplicateHostname {
            index,
            first: known.source.clone(),
            second: second.clone(),
            hostname: known.raw.clone(),
            port: port.map(|port| port.raw.clone()),
        });
    }

    /// A copied block with an unchanged number would replace a server silently. In another file it may be intended.
    fn judge_repeated(&mut self, config: &Config) {
        for DuplicateHostname { index, first, second, hostname, port } in std::mem::take(&mut self.repeated) {
            // An empty name at the end removes the node on purpose.
            let Some(node) = config.all_nodes().find(|node| node.id == index) else { continue };
            let is_same_port =
                port.as_ref().is_none_or(|port| config.setting("backend_port", Some(index)).is_some_and(|now| now.raw == *port));
            if node.hostname == hostname && is_same_port {
                continue;
            }
            let port = port.map(|port| format!(", port {port},")).unwrap_or_default();
            let message = format!(
                "\"backend_hostname{index}\" stands in {first}, too: the server \"{hostname}\"{port} is replaced by this one; give one of them another number"
            );
            if are_of_one_file(&first, &second) {
                self.error(&second, message);
            } else {
                self.warn(&second, message);
            }
        }
    }

    fn error(&mut self, source: &SettingSource, message: String) {
        self.problems.push(ConfigProblem::at(ProblemSeverity::Error, source, message));
    }

    fn warn(&mut self, source: &SettingSource, message: String) {
        self.problems.push(ConfigProblem::at(ProblemSeverity::Warning, source, message));
    }
}

fn are_of_one_file(one: &SettingSource, other: &SettingSource) -> bool {
    matches!((one, other), (SettingSource::File { path: one, .. }, SettingSource::File { path: other, .. }) if one == other)
}

impl ConfigProblem {
    pub(super) fn at(severity: ProblemSeverity, source: &SettingSource, message: String) -> ConfigProblem {
        let (path, line) = match source {
            SettingSource::File { path, line } => (Some(path.clone()), Some(*line)),
            SettingSource::Default
            | SettingSource::CommandLine
            | SettingSource::Environment
            | SettingSource::Unit
            | SettingSource::CalledPgpool
            | SettingSource::DebianPackage
            | SettingSource::Session => (None, None),
        };
        ConfigProblem { severity, path, line, message }
    }
}

/// Resolves `.` and `..` textually, to see cycles of includes. Only for comparison: behind a symbolic link the path may be another file.
fn normalized(path: &Path) -> PathBuf {
    let mut tidy = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir if matches!(tidy.components().next_back(), Some(Component::Normal(_))) => {
                tidy.pop();
            }
            _ => tidy.push(component),
        }
    }
    tidy
}

fn cut(name: &str) -> String {
    name.chars().take(64).collect()
}
