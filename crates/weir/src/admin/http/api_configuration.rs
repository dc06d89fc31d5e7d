//! The configuration in force: each value with its source and unit, what in the files waits, and what `weir check` says of them.

use super::api_error::ApiError;
use super::dashboard::{Dashboard, answer};
use super::dashboard_access::{AdminUser, DashboardRole, DashboardUser};
use crate::runtime::operator_files::FileFindings;
use axum::extract::{Extension, State};
use axum::response::Response;
use serde_json::{Value, json};
use std::sync::Arc;
use weir_config::params::ParamContext;
use weir_config::visibility::{ValueVisibility, Viewer};
use weir_config::{
    self as config, Config, ConfigProblem, ConfigReadResult, ConfigSetting, ProblemSeverity, SettingSource, WaitingChange,
    WaitsUntil,
};

/// Time until somebody may ask again while a check is under way.
const CHECK_RETRY_S: u64 = 5;

/// Parameters as they are in force, and as the files have them now.
pub async fn parameters(
    State(dashboard): State<Arc<Dashboard>>,
    Extension(user): Extension<DashboardUser>,
) -> Result<Response, ApiError> {
    let work = move |own: &Dashboard| {
        let in_force = own.shared.config.load_full();
        answer(&shown(&in_force, own.shared.files_now().as_ref(), user.role))
    };
    dashboard.job(work).await
}

/// The findings of `weir check`. One check at a time: it asks the servers, and may run the operator's command for a pass phrase.
pub async fn check(State(dashboard): State<Arc<Dashboard>>, _: AdminUser) -> Result<Response, ApiError> {
    let Ok(_one) = dashboard.checks.try_acquire() else { return Err(ApiError::busy("a check is under way", CHECK_RETRY_S)) };
    let found = dashboard.job(|own| own.shared.check_files()).await?;
    let found = found.ok_or_else(|| ApiError::not_found("this Weir was started without files"))?;
    Ok(answer(&found_shown(&found)))
}

fn found_shown(found: &FileFindings) -> Value {
    let problems: Vec<Value> = found.problems.iter().map(problem).collect();
    json!({ "errors": found.errors(), "problems": problems, "notes": found.notes })
}

fn problem(of: &ConfigProblem) -> Value {
    let level = match of.severity {
        ProblemSeverity::Warning => "warning",
        ProblemSeverity::Error => "error",
    };
    json!({ "level": level, "file": of.path.as_ref().map(|path| path.display().to_string()), "line": of.line, "what": of.message })
}

fn shown(in_force: &Config, files: Option<&ConfigReadResult>, role: DashboardRole) -> Value {
    let viewer = role.viewer();
    let is_seen = |setting: &&ConfigSetting| setting.param.is_secret() || viewer.sees(setting.param.kind.visibility(), None);
    let usable = files.and_then(|files| files.config.as_ref());
    let waiting = usable.map(|files| config::waiting_changes(in_force, files)).unwrap_or_default();
    let change_of = |name: &str| waiting.iter().find(|change| change.name == name);
    let known = in_force.settings.iter().filter(|setting| !setting.param.hidden).filter(is_seen);
    let rows = known.map(|setting| parameter(setting, change_of(&setting.name()), &viewer));
    // Numbers that only the files have, such as those of a new node.
    let is_new = |change: &&WaitingChange| in_force.settings.iter().all(|setting| setting.name() != change.name);
    let added = waiting.iter().filter(is_new).filter(|change| change.in_files.as_ref().is_some_and(|of| is_seen(&of)));
    let added = added.filter_map(|change| Some(new_parameter(change.in_files.as_ref()?, change, &viewer)));
    let errors = files.filter(|files| files.config.is_none()).map(|files| {
        let is_error = |of: &&ConfigProblem| of.severity == ProblemSeverity::Error;
        files.problems.iter().filter(is_error).count()
    });
    json!({ "parameters": rows.chain(added).collect::<Vec<_>>(), "file_errors": errors.unwrap_or(0) })
}

fn parameter(setting: &ConfigSetting, change: Option<&WaitingChange>, viewer: &Viewer) -> Value {
    let mut row = described(setting, &setting.name());
    let default = if setting.param.is_secret() { String::new() } else { setting.param.kind.show(setting.param.default) };
    row["value"] = json!(setting.shown());
    row["default"] = json!(default);
    row["source"] = source(&setting.source, viewer);
    row["waiting"] = change.map_or(Value::Null, |change| waiting_shown(change, viewer));
    row
}

/// A parameter that is not in force.
fn new_parameter(setting: &ConfigSetting, change: &WaitingChange, viewer: &Viewer) -> Value {
    let mut row = described(setting, &change.name);
    row["value"] = Value::Null;
    row["default"] = Value::Null;
    row["source"] = Value::Null;
    row["waiting"] = waiting_shown(change, viewer);
    row
}

fn described(setting: &ConfigSetting, name: &str) -> Value {
    let param = setting.param;
    let applies = match param.applies {
        ParamContext::AtStart | ParamContext::NewNodeOnReload => "restart",
        ParamContext::OnReload => "reload",
        ParamContext::PerSession => "session",
    };
    let unit = Some(param.kind.unit()).filter(|unit| !unit.is_empty());
    json!({ "name": name, "unit": unit, "applies": applies, "description": param.help })
}

fn waiting_shown(change: &WaitingChange, viewer: &Viewer) -> Value {
    let until = match change.until {
        WaitsUntil::Reload => "reload",
        WaitsUntil::Restart => "restart",
    };
    let value = change.in_files.as_ref().map(ConfigSetting::shown);
    json!({ "until": until, "value": value, "source": change.in_files.as_ref().map(|of| source(&of.source, viewer)) })
}

/// As PostgreSQL, Weir tells names of files to operators only.
fn source(of: &SettingSource, viewer: &Viewer) -> Value {
    let place = match of {
        SettingSource::File { path, line } if viewer.sees(ValueVisibility::Operators, None) => {
            Some((path.display().to_string(), *line))
        }
        _ => None,
    };
    let kind = match of {
        SettingSource::Default => "default",
        SettingSource::File { .. } => "file",
        SettingSource::CommandLine => "command_line",
        SettingSource::Environment => "environment",
        SettingSource::Unit => "systemd",
        SettingSource::CalledPgpool => "called_pgpool",
        SettingSource::DebianPackage => "debian",
        SettingSource::Session => "console",
    };
    json!({ "kind": kind, "file": place.as_ref().map(|(path, _)| path), "line": place.as_ref().map(|(_, line)| line) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn read(text: &str) -> ConfigReadResult {
        config::read(Path::new("/etc/weir/pgpool.conf"), &mut |_| Ok(text.as_bytes().to_vec()))
    }

    fn row<'v>(shown: &'v Value, name: &str) -> &'v Value {
        shown["parameters"].as_array().unwrap().iter().find(|row| row["name"] == name).unwrap_or(&Value::Null)
    }

    const OLD: &str = "backend_hostname0 = 'a'\nport = 5555\npool_size = 8\nadmin_users = 'boss'\nsr_check_password = 'old'\n";
    const NEW: &str = "backend_hostname0 = 'a'\n\nport = 6666\npool_size = 9\nadmin_users = 'boss'\nsr_check_password = 'new'\nbackend_hostname1 = 'b'\n";

    #[test]
    fn a_value_has_its_source_and_what_waits_for_it() {
        let old = read(OLD).config.unwrap();
        let told = shown(&old, Some(&read(NEW)), DashboardRole::Admin);
        let file = |line: u32| json!({ "kind": "file", "file": "/etc/weir/pgpool.conf", "line": line });
        let port = row(&told, "port");
        assert_eq!((&port["value"], &port["source"], &port["applies"]), (&json!("5555"), &file(2), &json!("restart")));
        assert_eq!(port["waiting"], json!({ "until": "restart", "value": "6666", "source": file(3) }));
        assert_eq!(row(&told, "pool_size")["waiting"]["until"], "reload");
        let limit = row(&told, "authentication_timeout");
        assert_eq!((&limit["unit"], &limit["source"]["kind"], &limit["waiting"]), (&json!("s"), &json!("default"), &Value::Null));
        let added = row(&told, "backend_hostname1");
        assert_eq!((&added["value"], &added["waiting"]["value"]), (&Value::Null, &json!("b")));
        assert_eq!(row(&told, "sr_check_password")["waiting"]["value"], "*****", "a secret stays one");
    }

    #[test]
    fn readers_see_neither_operators_parameters_nor_names_of_files() {
        let old = read(OLD).config.unwrap();
        let told = shown(&old, Some(&read(NEW)), DashboardRole::Stats);
        assert_eq!(row(&told, "admin_users"), &Value::Null);
        assert_eq!(row(&told, "port")["source"], json!({ "kind": "file", "file": null, "line": null }));
        assert!(!told.to_string().contains("/etc/weir"), "{told}");
    }

    #[test]
    fn files_with_errors_are_told_and_nothing_waits() {
        let old = read(OLD).config.unwrap();
        let told = shown(&old, Some(&read("port = nonsense\n")), DashboardRole::Admin);
        assert!(told["file_errors"].as_u64().is_some_and(|errors| errors > 0), "{told}");
        assert_eq!(row(&told, "port")["waiting"], Value::Null);
        let problem =
            ConfigProblem { severity: ProblemSeverity::Error, path: Some("c".into()), line: Some(7), message: "m".into() };
        let found = FileFindings { problems: vec![problem], notes: vec!["n".into()] };
        let expected =
            json!({ "errors": 1, "problems": [{ "level": "error", "file": "c", "line": 7, "what": "m" }], "notes": ["n"] });
        assert_eq!(found_shown(&found), expected);
    }
}
