//! Tutorials of `docs/`: all their commands run as they stand, in one shell of an ordinary user, and print what the pages show. Only ports are others, and the
//! folder of PostgreSQL's programs.

use crate::pages::page::{page_text, with};
use crate::support::leave_out;
use crate::support::proxy::{Folder, program_for_others};
use rustix::process::geteuid;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;
use weir_demo::{Programs, ReservedPort};

/// The folder that the pages name.
const BIN: &str = "/usr/lib/postgresql/15/bin";
/// Three servers are made in it, and a primary is lost.
const TUTORIAL_LIMIT: Duration = Duration::from_secs(240);
/// A line between the outputs of two blocks.
const NEXT: &str = "== next block";

/// A block of commands, and the output that the page shows behind it.
struct TutorialStep {
    commands: String,
    shown: Option<String>,
}

fn steps(page: &str) -> Vec<TutorialStep> {
    let mut steps: Vec<TutorialStep> = Vec::new();
    let mut parts = page.split("\n```");
    parts.next();
    // Every second part is within a block.
    for block in parts.step_by(2) {
        let (language, text) = block.split_once('\n').unwrap();
        match language {
            "sh" => steps.push(TutorialStep { commands: text.to_owned(), shown: None }),
            "text" => steps.last_mut().unwrap().shown = Some(text.to_owned()),
            other => panic!("a block of {other}: neither commands nor their output"),
        }
    }
    assert!(steps.iter().filter(|step| step.shown.is_some()).count() >= 3, "the page shows too little");
    steps
}

/// Plays a page with other ports.
fn play(name: &str, ports: &[&str], programs: &[&str]) {
    if let Some(missing) = programs.iter().find(|program| !Path::new(program).exists()) {
        return leave_out(&format!("there is no {missing}"));
    }
    let has_user = Command::new("id").arg("postgres").output().is_ok_and(|said| said.status.success());
    if !geteuid().is_root() || !has_user || !Path::new("/usr/bin/unshare").exists() {
        return leave_out(
            "the servers of a tutorial end with their namespace of processes, which takes root and a user postgres",
        );
    }
    let bin = Programs::find().unwrap().bin().to_owned();
    if !["psql", "pg_ctl", "pg_basebackup", "pg_rewind", "pg_isready"].iter().all(|program| bin.join(program).exists()) {
        return leave_out("there is no psql of the server's version (Debian: in postgresql-client)");
    }
    let (others, folder) = (ports.iter().map(|_| ReservedPort::any().unwrap()).collect::<Vec<_>>(), Folder::new());
    let mut page = with(&page_text(name), &[(BIN, &bin.display().to_string())]);
    // A new number may hold one of the page: all go away before the first one comes.
    for (at, port) in ports.iter().enumerate() {
        page = with(&page, &[(port, &format!("<port {at}>"))]);
    }
    for (at, port) in others.iter().enumerate() {
        page = with(&page, &[(&format!("<port {at}>"), &port.number().to_string())]);
    }
    let steps = steps(&page);
    let weir = program_for_others().parent().unwrap().display();
    let mut script = format!("set -eu\nexport HOME=$PWD LC_ALL=C PATH={weir}:$PATH\nunset PGDATA PGSERVICE\n");
    for step in &steps {
        let _ = write!(script, "{}\necho; echo '{NEXT}'\n", step.commands);
    }
    fs::set_permissions(&folder.0, fs::Permissions::from_mode(0o777)).unwrap();
    let (said, complaints) = (folder.0.join("said"), folder.0.join("complaints"));
    let mut shell = Command::new("setpriv");
    shell.args(["--pdeathsig", "KILL", "unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]);
    shell.args(["setpriv", "--reuid", "postgres", "--regid", "postgres", "--clear-groups", "bash", "-c", &script]);
    shell.current_dir(&folder.0).stdin(Stdio::null());
    let mut shell = shell.stdout(File::create(&said).unwrap()).stderr(File::create(&complaints).unwrap()).spawn().unwrap();
    let mut end = None;
    let waited = weir_demo::wait_until("the tutorial to end", TUTORIAL_LIMIT, || {
        end = shell.try_wait()?;
        Ok(end.is_some())
    });
    let [said, complaints] = [said, complaints].map(|path| fs::read_to_string(path).unwrap());
    let logs = || read_logs(&folder.0);
    assert!(end.is_some_and(|end| end.success()), "{name}: {waited:?}: {said}\n{complaints}\n{}", logs());
    let outputs: Vec<&str> = said.split(&format!("\n{NEXT}\n")).collect();
    assert_eq!(outputs.len(), steps.len() + 1, "{said}");
    for (step, output) in steps.iter().zip(outputs) {
        if let Some(shown) = &step.shown {
            assert_eq!(output.trim(), shown.trim(), "{name}: {}\n{complaints}\n{}", step.commands, logs());
        }
    }
    let left = fs::read_dir(&folder.0).unwrap().filter(|entry| entry.as_ref().unwrap().path().is_dir()).count();
    assert_eq!(left, 0, "{name} leaves a folder behind");
}

/// Logs of programs in the tutorial's folder, for a test that fails.
fn read_logs(folder: &Path) -> String {
    let mut text = String::new();
    for below in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_dir()) {
        for path in fs::read_dir(below).unwrap().map(|entry| entry.unwrap().path()) {
            if path.extension().is_some_and(|end| end == "log") {
                let _ = write!(text, "== {}\n{}", path.display(), fs::read_to_string(&path).unwrap_or_default());
            }
        }
    }
    text
}

#[test]
fn a_cluster_made_from_nothing_loses_its_primary_and_no_statement_fails() {
    play("tutorial-failover.md", &["5441", "5442", "5443", "9999"], &[]);
}

#[test]
fn a_pgpool_is_replaced_and_comes_back() {
    play("tutorial-pgpool.md", &["5441", "5442", "9999", "9997", "9898", "9896"], &["/usr/sbin/pgpool"]);
}

#[test]
fn a_pgbouncer_is_replaced_after_its_setup_was_translated() {
    play("tutorial-pgbouncer.md", &["5441", "6432", "6433"], &["/usr/sbin/pgbouncer"]);
}
