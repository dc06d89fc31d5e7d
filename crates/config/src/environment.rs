//! Parameters from variables of the environment, as containers have them: `WEIR_BACKEND_HOSTNAME0` sets `backend_hostname0`.
//!
//! `WEIR_<PARAMETER>_FILE` names a file whose text is the value, so that no secret stands in the environment. A parameter that itself ends in
//! `_file`, such as `agent_secret_file`, is set as it is.

use crate::params::{self, ParamLookup};
use std::path::Path;

const PREFIX: &str = "WEIR_";

const FILE_SUFFIX: &str = "_file";

/// Variables of the program's own, which set no parameter.
const OWN_VARIABLES: [&str; 1] = ["WEIR_DAEMON_CHILD"];

/// A parameter that a variable sets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EnvironmentSetting {
    pub variable: String,
    pub parameter: String,
    /// Error: the file that the variable names cannot be used.
    pub value: Result<String, String>,
}

/// Finds the settings among all variables, in the order of their names. `load` reads a file's text.
pub fn settings(
    variables: impl Iterator<Item = (String, String)>,
    load: &mut dyn FnMut(&Path) -> Result<Vec<u8>, String>,
) -> Vec<EnvironmentSetting> {
    let mut found: Vec<EnvironmentSetting> = Vec::new();
    for (variable, text) in variables {
        let Some(name) = variable.strip_prefix(PREFIX).filter(|_| !OWN_VARIABLES.contains(&variable.as_str())) else { continue };
        let name = name.to_ascii_lowercase();
        let (parameter, value) = match name.strip_suffix(FILE_SUFFIX) {
            Some(base) if !is_known(&name) && is_known(base) => (base.to_owned(), text_of(&text, load)),
            Some(_) | None => (name, Ok(text)),
        };
        found.push(EnvironmentSetting { variable, parameter, value });
    }
    found.sort_by(|one, other| one.variable.cmp(&other.variable));
    refuse_doubles(&mut found);
    found
}

fn is_known(name: &str) -> bool {
    matches!(params::resolve(name), ParamLookup::Found { .. })
}

/// The text of a file without the line ends that editors and `echo` put behind it.
fn text_of(path: &str, load: &mut dyn FnMut(&Path) -> Result<Vec<u8>, String>) -> Result<String, String> {
    let bytes = load(Path::new(path)).map_err(|cause| format!("could not read \"{path}\": {cause}"))?;
    let text = String::from_utf8(bytes).map_err(|_| format!("\"{path}\" is not UTF-8"))?;
    Ok(text.trim_end_matches(['\n', '\r']).to_owned())
}

/// No order of variables could tell which of two counts. The list is sorted, so that `WEIR_X` stands before `WEIR_X_FILE`.
fn refuse_doubles(found: &mut [EnvironmentSetting]) {
    for at in 1..found.len() {
        let (before, rest) = found.split_at_mut(at);
        let Some(now) = rest.first_mut() else { continue };
        if let Some(other) = before.iter().find(|other| other.parameter == now.parameter) {
            now.value = Err(format!("{} sets the same parameter; take one of them away", other.variable));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ProblemSeverity, SettingSource, read_with_defaults};

    fn of(variables: &[(&str, &str)]) -> Vec<EnvironmentSetting> {
        let owned = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        settings(owned, &mut |path| match path.to_str() {
            Some("/run/secrets/monitor") => Ok(b"a secret\r\n".to_vec()),
            Some("/run/secrets/bytes") => Ok(vec![0xff]),
            _ => Err("no such file".to_owned()),
        })
    }

    fn check(variables: &[(&str, &str)], expected: &[(&str, Result<&str, &str>)]) {
        let found = of(variables);
        let shown = found.iter().map(|one| (one.parameter.as_str(), one.value.as_deref().map_err(String::as_str)));
        assert_eq!(shown.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn a_variable_sets_the_parameter_of_its_name() {
        check(&[("PATH", "/bin"), ("WEIR_DAEMON_CHILD", "1"), ("WEIRD_PORT", "1"), ("PORT", "2")], &[]);
        check(
            &[("WEIR_PORT", "6000"), ("WEIR_BACKEND_HOSTNAME0", "db1")],
            &[("backend_hostname0", Ok("db1")), ("port", Ok("6000"))],
        );
        check(&[("WEIR_AGENT_SECRET_FILE", "/etc/s")], &[("agent_secret_file", Ok("/etc/s"))]);
    }

    #[test]
    fn a_secret_comes_from_a_file() {
        check(&[("WEIR_SR_CHECK_PASSWORD_FILE", "/run/secrets/monitor")], &[("sr_check_password", Ok("a secret"))]);
        check(
            &[("WEIR_SR_CHECK_PASSWORD_FILE", "/nowhere")],
            &[("sr_check_password", Err("could not read \"/nowhere\": no such file"))],
        );
        check(
            &[("WEIR_SR_CHECK_PASSWORD_FILE", "/run/secrets/bytes")],
            &[("sr_check_password", Err("\"/run/secrets/bytes\" is not UTF-8"))],
        );
        check(
            &[("WEIR_SR_CHECK_PASSWORD_FILE", "/run/secrets/monitor"), ("WEIR_SR_CHECK_PASSWORD", "another")],
            &[
                ("sr_check_password", Ok("another")),
                ("sr_check_password", Err("WEIR_SR_CHECK_PASSWORD sets the same parameter; take one of them away")),
            ],
        );
    }

    /// `WEIR_X_FILE` would mean two things.
    #[test]
    fn no_parameter_is_named_like_another_one_with_file_behind_it() {
        for param in params::all() {
            assert!(params::find(&format!("{}{FILE_SUFFIX}", param.name)).is_none(), "{}", param.name);
        }
    }

    #[test]
    fn variables_win_over_the_file_and_the_command_line_over_them() {
        let variables = of(&[
            ("WEIR_PORT", "6000"),
            ("WEIR_POOL_SIZE", "7"),
            ("WEIR_SERVICE_HOST", "10.0.0.1"),
            ("WEIR_BACKEND_HOSTNAME0", "db1"),
        ]);
        let mut file = |_: &Path| Ok(b"port = 5000\nnum_init_children = 9\n".to_vec());
        let line = [("pool_size".to_owned(), "8".to_owned())];
        let read = read_with_defaults(Path::new("x"), &[], &variables, &line, &mut file);
        let config = read.config.expect("the values are right");
        assert_eq!((config.port, config.nodes[0].hostname.as_str()), (6000, "db1"));
        assert_eq!(config.setting("port", None).map(|setting| &setting.source), Some(&SettingSource::Environment));
        assert_eq!(config.setting("pool_size", None).map(|setting| &setting.source), Some(&SettingSource::CommandLine));
        let [unknown] = &read.problems[..] else { panic!("{:?}", read.problems) };
        assert_eq!(unknown.severity, ProblemSeverity::Warning);
        assert!(unknown.message.starts_with("in the environment: WEIR_SERVICE_HOST: "), "{}", unknown.message);
    }

    #[test]
    fn a_wrong_value_names_its_variable() {
        let variables = of(&[("WEIR_PORT", "tcp://10.0.0.1:9999"), ("WEIR_BACKEND_HOSTNAME0_FILE", "/nowhere")]);
        let read = read_with_defaults(Path::new("x"), &[], &variables, &[], &mut |_| Ok(Vec::new()));
        assert!(read.config.is_none());
        let errors = read.problems.iter().filter(|problem| problem.severity == ProblemSeverity::Error);
        let errors: Vec<&str> = errors.map(|problem| problem.message.as_str()).collect();
        assert!(errors[0].starts_with("in the environment: WEIR_BACKEND_HOSTNAME0_FILE: could not read"), "{errors:?}");
        assert!(errors[1].starts_with("in the environment: WEIR_PORT: "), "{errors:?}");
    }
}
