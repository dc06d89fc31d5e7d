//! Tests of the files in `deploy`: they are YAML, name parameters that exist, and paths that are there.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

/// Folders that hold what another task generates.
const GENERATED: [&str; 2] = ["grafana", "prometheus"];

fn deploy() -> PathBuf {
    crate::root().join("deploy")
}

fn documents(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap();
    let read = |one| {
        let mut value =
            serde_yaml_ng::from_str::<serde_yaml_ng::Value>(one).unwrap_or_else(|cause| panic!("{}: {cause}", path.display()));
        value.apply_merge().unwrap();
        serde_json::to_value(value).unwrap()
    };
    text.split("\n---\n").map(read).collect()
}

fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, found);
        } else if path.extension().is_some_and(|end| end == "yaml" || end == "yml") {
            found.push(path);
        }
    }
}

/// The first column of the reference page, without `[N]`.
fn parameters() -> BTreeSet<String> {
    let page = fs::read_to_string(crate::root().join("docs/parameters.md")).unwrap();
    let names = page.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    names.map(|name| name.trim_end_matches("[N]").trim_end_matches('N').to_owned()).collect()
}

/// Names of variables, wherever they stand.
fn variables(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(map) => {
            for (name, value) in map {
                found.extend(name.strip_prefix("WEIR_").map(str::to_ascii_lowercase));
                variables(value, found);
            }
        }
        Value::Array(list) => list.iter().for_each(|value| variables(value, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[test]
fn each_file_is_yaml_and_sets_parameters_that_exist() {
    let known = parameters();
    let is_known = |name: &str| known.contains(name) || known.contains(name.trim_end_matches(|c: char| c.is_ascii_digit()));
    let mut paths = Vec::new();
    files(&deploy(), &mut paths);
    let mut found = BTreeSet::new();
    for path in &paths {
        documents(path).iter().for_each(|document| variables(document, &mut found));
    }
    assert!(found.contains("backend_hostname0") && found.contains("sr_check_password_file"), "{found:?}");
    for name in &found {
        assert!(is_known(name) || name.strip_suffix("_file").is_some_and(is_known), "no parameter {name}");
    }
}

#[test]
fn files_that_the_composition_mounts_are_there() {
    let composition = &documents(&deploy().join("compose.yaml"))[0];
    let services = composition["services"].as_object().unwrap();
    let mounts = services.values().filter_map(|service| service["volumes"].as_array()).flatten().filter_map(Value::as_str);
    let secrets = composition["secrets"].as_object().unwrap().values().filter_map(|secret| secret["file"].as_str());
    let named: Vec<&str> = mounts.map(|mount| mount.split(':').next().unwrap_or_default()).chain(secrets).collect();
    let local: Vec<&str> = named.into_iter().filter_map(|path| path.strip_prefix("./")).collect();
    assert!(local.len() > 6, "{local:?}");
    for path in local.into_iter().filter(|path| !GENERATED.contains(path)) {
        assert!(deploy().join(path).exists(), "{path}");
    }
    for weir in ["weir1", "weir2"] {
        assert_eq!(services[weir]["environment"]["WEIR_BACKEND_HOSTNAME0"], "primary");
        assert!(services[weir]["read_only"].as_bool().unwrap_or_default());
    }
}

#[test]
fn pods_are_probed_and_leave_after_a_pause_within_their_time() {
    let manifests = documents(&deploy().join("kubernetes/weir.yaml"));
    let deployment = manifests.iter().find(|one| one["kind"] == "Deployment").unwrap();
    let pod = &deployment["spec"]["template"]["spec"];
    let weir = &pod["containers"][0];
    for (probe, page) in [("readinessProbe", "/readyz"), ("livenessProbe", "/healthz"), ("startupProbe", "/healthz")] {
        assert_eq!(
            (&weir[probe]["httpGet"]["path"], &weir[probe]["httpGet"]["port"]),
            (&page.into(), &"metrics".into()),
            "{probe}"
        );
    }
    let pause = weir["lifecycle"]["preStop"]["sleep"]["seconds"].as_u64().unwrap();
    assert!(pod["terminationGracePeriodSeconds"].as_u64().unwrap() > pause);
    // A Service named weir would set WEIR_PORT.
    assert_eq!(pod["enableServiceLinks"], false);
    let budget = &documents(&deploy().join("kubernetes/disruption-budget.yaml"))[0];
    assert_eq!(budget["spec"]["selector"]["matchLabels"], deployment["spec"]["selector"]["matchLabels"]);
}

#[test]
fn scripts_of_the_composition_are_sound_shell() {
    for name in ["primary-hba.sh", "standby.sh"] {
        let checked = std::process::Command::new("bash").arg("-n").arg(deploy().join("compose").join(name)).status().unwrap();
        assert!(checked.success(), "{name}");
    }
}

/// A word that systemd does not know would protect nothing: systemd itself judges the unit.
#[test]
fn the_units_are_exposed_no_more_than_they_need() {
    for name in ["weir.service", "weir-agent.service"] {
        let unit = crate::root().join("packaging").join(name);
        let mut command = std::process::Command::new("systemd-analyze");
        let judged = command.args(["security", "--offline=yes", "--no-pager", "--threshold=30"]).arg(unit).output();
        let Ok(judged) = judged else {
            eprintln!("left out: systemd-analyze is not there (Debian's package systemd)");
            return;
        };
        let said = String::from_utf8_lossy(&judged.stdout);
        assert!(judged.status.success(), "{said}{}", String::from_utf8_lossy(&judged.stderr));
    }
}

/// Servers that the agent starts inherit its unit: JIT needs writable code, running servers need their shared memory and sockets.
#[test]
fn the_unit_of_the_agent_confines_no_server_beyond_what_it_bears() {
    let unit = fs::read_to_string(crate::root().join("packaging/weir-agent.service")).unwrap();
    let set: BTreeSet<&str> = unit.lines().filter_map(|line| line.split_once('=')).map(|(word, _)| word).collect();
    for word in
        ["MemoryDenyWriteExecute", "RemoveIPC", "PrivateTmp", "PrivateIPC", "PrivateUsers", "ProcSubset", "MemoryMax", "TasksMax"]
    {
        assert!(!set.contains(word), "{word}");
    }
    assert!(unit.contains("KillMode=process") && unit.contains("ProtectSystem=full"), "{unit}");
}
