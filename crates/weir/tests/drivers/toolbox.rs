//! The languages whose drivers are tried, and the drivers' packages.
//!
//! Languages are looked for on this machine; packages, in the versions of the lock files beside the scripts, are fetched once
//! to `target/drivers`. A language or package that is missing or cannot be fetched leaves its tests out, with a line for `cargo
//! xtask test` to repeat.

use std::fs;
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

/// Output of a tool, or the reason of its failure.
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
    // Last, so that an interrupted fetch is begun anew.
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

/// A script for the shell, with PostgreSQL's own client programs of the servers' version or a newer one.
pub fn shell(script: &str, server_major: u32) -> Result<Command, String> {
    let said = run(Command::new("pg_dump").arg("--version"))?;
    let major =
        said.split([' ', '.']).find_map(|word| word.parse::<u32>().ok()).ok_or_else(|| format!("pg_dump says {said:?}"))?;
    if major < server_major {
        return Err(format!("pg_dump {major} does not dump servers of version {server_major}"));
    }
    let mut command = Command::new("sh");
    command.arg(sources("shell").join(script));
    Ok(command)
}

/// A program in Go, built from `go/<name>`.
pub fn go(name: &str) -> Result<Command, String> {
    let version = run(Command::new("go").arg("version"))?;
    let at = |folder: &Path, arguments: &[&str]| {
        let mut command = Command::new("go");
        command.args(arguments).current_dir(sources("go"));
        // Files that may be removed, as everything in `target`; and no other version of Go than the one that is installed.
        command.env("GOMODCACHE", folder.join("modules")).env("GOFLAGS", "-modcacherw").env("GOTOOLCHAIN", "local");
        command
    };
    let folder =
        fetch_once("go", &version, &["go.mod", "go.sum"], |folder| run(&mut at(folder, &["mod", "download"])).map(drop))?;
    let program = folder.join(name);
    let to = program.display().to_string();
    run(&mut at(&folder, &["build", "-o", &to, &format!("./{name}")])).unwrap_or_else(|error| panic!("{error}"));
    Ok(Command::new(program))
}

/// A script for Node.js, with the packages of `package-lock.json`.
pub fn node(script: &str) -> Result<Command, String> {
    let version = run(Command::new("node").arg("--version"))?;
    let locks = ["package.json", "package-lock.json"];
    let folder = fetch_once("node", &version, &locks, |folder| {
        for name in locks {
            fs::copy(sources("node").join(name), folder.join(name)).unwrap();
        }
        run(Command::new("npm").args(["ci", "--no-audit", "--no-fund", "--ignore-scripts"]).current_dir(folder)).map(drop)
    })?;
    let mut command = Command::new("node");
    command.arg(sources("node").join(script)).env("NODE_PATH", folder.join("node_modules"));
    Ok(command)
}

/// A program in Java of one source file, with the libraries of `pom.xml`.
pub fn java(source: &str) -> Result<Command, String> {
    let version = run(Command::new("java").args(["--version"]))?;
    let folder = fetch_once("java", &version, &["pom.xml"], |folder| {
        let mut maven = Command::new("mvn");
        maven.args(["--batch-mode", "--quiet", "dependency:copy-dependencies"]).current_dir(sources("java"));
        maven.arg(format!("-DoutputDirectory={}", folder.join("jars").display()));
        maven.arg(format!("-Dmaven.repo.local={}", folder.join("repository").display()));
        run(&mut maven).map(drop)
    })?;
    let mut command = Command::new("java");
    // Programs this short are over before code is worth the second compiler's time.
    command.args(["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]);
    command.arg("-cp").arg(folder.join("jars/*")).arg(sources("java").join(source));
    Ok(command)
}
