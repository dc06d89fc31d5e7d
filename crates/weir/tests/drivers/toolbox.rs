//! The languages whose drivers are tried, and the drivers' packages.
//!
//! What is needed is looked for on this machine; packages, in the versions of the lock files beside the scripts, are fetched once to
//! `target/drivers`. What is missing or cannot be fetched leaves its tests out, with a line for `cargo xtask test` to repeat.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Mutex, PoisonError};

/// Where a language's scripts and lock files are.
fn sources(language: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/drivers").join(language)
}

/// Where its packages go: `target/drivers/...`.
fn packages(language: &str) -> PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    target.join("drivers").join(language)
}

/// Says that a test was left out. Written past the test program's capturing, which hides the words of tests that pass.
pub fn leave_out(what: &str, why: &str) {
    let line = format!("left out: {what}: {}\n", why.trim().replace('\n', " "));
    std::io::stderr().write_all(line.as_bytes()).unwrap();
}

/// What a run of a tool printed, or why that failed.
fn run(command: &mut Command) -> Result<String, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|error| format!("{name} is not installed ({error})"))?;
    let Output { status, stdout, stderr } = output;
    if !status.success() {
        let said = [stdout, stderr].concat();
        let said = String::from_utf8_lossy(&said);
        let end: Vec<&str> = said.lines().filter(|line| !line.trim().is_empty()).rev().take(3).collect();
        let end: Vec<&str> = end.into_iter().rev().collect();
        return Err(format!("{name}: {status}: {}", end.join(" / ")));
    }
    Ok(String::from_utf8_lossy(&stdout).trim().to_owned())
}

/// Fetches a language's packages unless they are there in the versions of its lock file. The program that makes them counts too:
/// packages of another version of it may not work.
fn fetch_once(
    language: &str,
    version: &str,
    locks: &[&str],
    fetch: impl FnOnce(&Path) -> Result<(), String>,
) -> Result<PathBuf, String> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let (folder, sources) = (packages(language), sources(language));
    let texts: Vec<String> = locks.iter().map(|name| fs::read_to_string(sources.join(name)).unwrap()).collect();
    let wanted = format!("{version}\n{}", texts.concat());
    let mark = folder.join("fetched");
    if fs::read_to_string(&mark).is_ok_and(|is| is == wanted) {
        return Ok(folder);
    }
    if folder.exists() {
        fs::remove_dir_all(&folder).unwrap();
    }
    fs::create_dir_all(&folder).unwrap();
    fetch(&folder)?;
    // Last, so that what was interrupted is begun anew.
    fs::write(mark, wanted).unwrap();
    Ok(folder)
}

/// A script for Python, in an environment with the packages of `requirements.txt`.
pub fn python(script: &str) -> Result<Command, String> {
    let version = run(Command::new("python3").arg("--version"))?;
    let requirements = sources("python").join("requirements.txt");
    let folder = fetch_once("python", &version, &["requirements.txt"], |folder| {
        run(Command::new("python3").args(["-m", "venv"]).arg(folder))?;
        let pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--only-binary=:all:", "--requirement"];
        run(Command::new(folder.join("bin/python")).args(pip).arg(&requirements)).map(drop)
    })?;
    let mut command = Command::new(folder.join("bin/python"));
    command.arg("-B").arg(sources("python").join(script));
    Ok(command)
}
