//! Finds and builds the programs under test, and copies our own to where an ordinary user may run them.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use super::system::{Program, Programs, System};
use super::workload::{Kind, Workload};
use crate::process::{self, Account};

/// A release build with link-time optimisation of everything takes minutes on a small machine.
const BUILD_LIMIT: Duration = Duration::from_secs(30 * 60);
const VERSION_LIMIT: Duration = Duration::from_secs(10);
/// Servers' programs are not in an ordinary user's PATH.
const SYSTEM_FOLDERS: [&str; 3] = ["/usr/sbin", "/usr/local/sbin", "/sbin"];

/// Folder in which peers are built, below cargo's own.
const PEERS: &str = "peers";

/// Builds the newest PgBouncer that Debian's archives have, if that is not done yet. Where it cannot be built, the installed one counts.
pub fn build_peers() -> Result<()> {
    let mut script = Command::new(crate::root().join("scripts/build-pgbouncer.sh"));
    let output = process::run(script.arg(crate::target_folder()?.join(PEERS)), BUILD_LIMIT)?;
    ensure!(output.status.success(), "scripts/build-pgbouncer.sh: {}", output.stderr.trim());
    eprint!("{}{}", output.stdout, output.stderr);
    Ok(())
}

/// Why a program is missing that no system needs.
pub const UNASKED: &str = "not asked for";

/// Finds or builds the programs of `systems` and `workloads`; `weir` is a binary to use instead of building one.
pub fn prepare(systems: &[System], workloads: &[&Workload], weir: Option<&Path>, folder: &Path, account: Account) -> Programs {
    let sees_texts = workloads.iter().any(|workload| workload.kind == Kind::FirstSight);
    let wanted = |system: System, make: &dyn Fn() -> Result<PathBuf>| -> Program {
        if !systems.contains(&system) {
            return Err(UNASKED.to_owned());
        }
        make().map_err(|error| format!("{error:#}"))
    };
    let copied = |path: &Path| copy(path, folder, account);
    let bouncer = wanted(System::Bouncer, &|| {
        let built = crate::target_folder()?.join(PEERS).join("pgbouncer");
        if built.is_file() { copied(&built) } else { find("pgbouncer", "pgbouncer") }
    });
    Programs {
        weir: wanted(System::Weir, &|| match weir {
            Some(path) => copied(path),
            None => copied(&build(&["-p", "weir", "--bin", "weir"], "weir")?),
        }),
        bouncer_version: bouncer.as_deref().ok().and_then(|path| parse_version(&version(path))),
        bouncer,
        pgpool: wanted(System::Pgpool, &|| find("pgpool", "pgpool2")),
        answers: wanted(System::Answers, &|| copied(&build(&["-p", "xtask", "--bin", "answers"], "answers")?)),
        redis: wanted(System::Redis, &|| find("redis-server", "redis-server")),
        relay: wanted(System::Relay, &|| copied(&build(&["-p", "xtask", "--bin", "relay"], "relay")?)),
        first_sight: wanted(System::Weir, &|| {
            ensure!(sees_texts, "{UNASKED}");
            match weir.and_then(Path::parent) {
                // It was built with the binary to use.
                Some(folder) => copied(&folder.join("examples/first_sight")),
                None => copied(&build(&["-p", "weir", "--example", "first_sight"], "examples/first_sight")?),
            }
        }),
    }
}

/// The line a program prints for `--version`.
pub fn version(path: &Path) -> String {
    match process::run(Command::new(path).arg("--version"), VERSION_LIMIT) {
        Ok(output) => (output.stdout + &output.stderr).lines().next().unwrap_or("no version").to_owned(),
        Err(error) => format!("no version: {error:#}"),
    }
}

/// The first `a.b` in a line.
fn parse_version(line: &str) -> Option<(u32, u32)> {
    let word = line.split_whitespace().find(|word| word.starts_with(|c: char| c.is_ascii_digit()))?;
    let mut numbers = word.split('.').map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

/// A program that is installed.
pub fn find(name: &str, package: &str) -> Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(SYSTEM_FOLDERS.iter().map(PathBuf::from));
    let found = folders.map(|folder| folder.join(name)).find(|path| path.is_file());
    found.with_context(|| format!("{name} is not installed (Debian's package {package})"))
}

/// Builds a release binary and returns its path.
pub fn build(arguments: &[&str], binary: &str) -> Result<PathBuf> {
    eprintln!("building the release binary of {binary}");
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["build", "--release", "--quiet"]).args(arguments).current_dir(crate::root());
    let output = process::run(&mut cargo, BUILD_LIMIT)?;
    if !output.status.success() {
        let reason = output.stderr.lines().find(|line| line.starts_with("error")).unwrap_or("cargo gave no reason");
        bail!("{binary} does not build: {reason}");
    }
    let path = crate::target_folder()?.join("release").join(binary);
    ensure!(path.is_file(), "cargo built no {}", path.display());
    Ok(path)
}

/// Copies a program to where `account` may run it.
pub fn copy(path: &Path, folder: &Path, account: Account) -> Result<PathBuf> {
    let name = path.file_name().context("not a program")?;
    let target = folder.join(name);
    fs::copy(path, &target).with_context(|| format!("cannot copy {}", path.display()))?;
    fs::set_permissions(&target, fs::Permissions::from_mode(0o755))?;
    account.own(&target)?;
    Ok(target)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_from_what_the_programs_print() {
        for (line, version) in [
            ("PgBouncer 1.18.0", Some((1, 18))),
            ("PgBouncer 1.25.1", Some((1, 25))),
            ("pgpool-II version 4.3.5 (tamahomeboshi)", Some((4, 3))),
            ("nothing", None),
        ] {
            assert_eq!(parse_version(line), version, "{line}");
        }
    }
}
