//! Where PostgreSQL's programs are, and as which user they run.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

/// Names the folder of the programs; wins over everything but an explicit choice in the options.
const VARIABLE: &str = "WEIR_PG_BIN";
/// Oldest major version we start: the first with all settings of `conf.rs`.
const MAJOR_MIN: u32 = 13;
/// Where Debian and the PostgreSQL project's RPMs put each major version: text before and after the number.
const PLACES: [(&str, &str, &str); 2] = [("/usr/lib/postgresql", "", "bin"), ("/usr", "pgsql-", "bin")];
const MISSING: &str = "PostgreSQL's server programs (initdb and postgres) are missing: install the package \
    `postgresql` (Debian, Ubuntu) or `postgresql-server` (Fedora), or set WEIR_PG_BIN to the folder that holds them";

/// A folder with `initdb` and `postgres` in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Programs {
    bin: PathBuf,
    major: u32,
}

impl Programs {
    /// `WEIR_PG_BIN` if set, else the newest installed major version, else the programs in `PATH`.
    pub fn find() -> Result<Programs> {
        if let Some(bin) = env::var_os(VARIABLE).filter(|value| !value.is_empty()) {
            return Programs::in_folder(bin).with_context(|| format!("{VARIABLE} is set"));
        }
        if let Some((_, bin)) = installed().pop_last() {
            return Programs::in_folder(bin);
        }
        let path = env::var_os("PATH").unwrap_or_default();
        match env::split_paths(&path).find(|bin| has_programs(bin)) {
            Some(bin) => Programs::in_folder(bin),
            None => bail!(MISSING),
        }
    }

    /// The installed programs of one major version.
    pub fn of_major(major: u32) -> Result<Programs> {
        match installed().remove(&major) {
            Some(bin) => Programs::in_folder(bin),
            None => bail!("PostgreSQL {major} is not installed: install the package `postgresql-{major}`"),
        }
    }

    /// The programs in `bin`. Error: they are not there, do not run, or are older than 13.
    pub fn in_folder(bin: impl Into<PathBuf>) -> Result<Programs> {
        let bin = bin.into();
        ensure!(has_programs(&bin), "no initdb and postgres in {}; {MISSING}", bin.display());
        // Conns are followed because `initdb` looks for its share folder beside the real file.
        let bin = bin.canonicalize()?;
        let output = Command::new(bin.join("postgres")).arg("--version").output();
        let output = output.with_context(|| format!("cannot run {}/postgres", bin.display()))?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let major = read_major(&text).with_context(|| format!("cannot read a version from {text:?}"))?;
        ensure!(major >= MAJOR_MIN, "PostgreSQL {major} is too old, the oldest supported is {MAJOR_MIN}");
        Ok(Programs { bin, major })
    }

    /// The folder.
    pub fn bin(&self) -> &Path {
        &self.bin
    }

    /// The major version, for example 17.
    pub fn major(&self) -> u32 {
        self.major
    }
}

/// Installed major versions and their folders.
fn installed() -> BTreeMap<u32, PathBuf> {
    let mut found = BTreeMap::new();
    for (folder, prefix, bin) in PLACES {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let Some(major) = name.strip_prefix(prefix).and_then(|number| number.parse().ok()) else { continue };
            let bin = entry.path().join(bin);
            if has_programs(&bin) {
                found.insert(major, bin);
            }
        }
    }
    found
}

fn has_programs(bin: &Path) -> bool {
    bin.join("initdb").is_file() && bin.join("postgres").is_file()
}

/// 17 from `postgres (PostgreSQL) 17.10 (Debian 17.10-1)`, 19 from `postgres (PostgreSQL) 19beta1`.
fn read_major(text: &str) -> Option<u32> {
    let version = text.split("(PostgreSQL)").nth(1)?.trim_start();
    let end = version.find(|c: char| !c.is_ascii_digit()).unwrap_or(version.len());
    version[..end].parse().ok()
}

/// The user that runs the servers: PostgreSQL refuses to run as root.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RunAs {
    /// We are an ordinary user; the servers run as the same.
    Ourselves,
    /// We are root; the servers run as this user and own their folder.
    User { uid: u32, gid: u32 },
}

impl RunAs {
    /// Error: we are root and there is neither a user `postgres` nor a user `nobody`.
    pub(crate) fn choose() -> Result<RunAs> {
        if !rustix::process::geteuid().is_root() {
            return Ok(RunAs::Ourselves);
        }
        let users = fs::read_to_string("/etc/passwd").context("cannot read /etc/passwd")?;
        let user = find_user(&users, "postgres").or_else(|| find_user(&users, "nobody"));
        user.context("PostgreSQL does not run as root, and there is no user `postgres` or `nobody` to run it as")
    }

    /// A command that runs as this user in `folder`, in no one's language and with none of our connection settings.
    pub(crate) fn command(self, program: &Path, folder: &Path) -> Command {
        let mut command = Command::new(program);
        command.current_dir(folder).env("LC_ALL", "C");
        for (name, _) in env::vars_os() {
            if name.to_string_lossy().starts_with("PG") {
                command.env_remove(name);
            }
        }
        if let RunAs::User { uid, gid } = self {
            command.uid(uid).gid(gid);
        }
        command
    }
}

fn find_user(users: &str, name: &str) -> Option<RunAs> {
    let line = users.lines().find(|line| line.split(':').next() == Some(name))?;
    let mut fields = line.split(':').skip(2);
    Some(RunAs::User { uid: fields.next()?.parse().ok()?, gid: fields.next()?.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_major_version_is_the_first_number() {
        assert_eq!(read_major("postgres (PostgreSQL) 15.20 (Debian 15.20-0+deb12u1)\n"), Some(15));
        assert_eq!(read_major("postgres (PostgreSQL) 19beta1\n"), Some(19));
        assert_eq!(read_major("bash 5.2\n"), None);
    }

    #[test]
    fn a_user_is_found_by_its_whole_name() {
        let users = "root:x:0:0::/root:/bin/sh\npostgres2:x:7:7::/:/bin/sh\npostgres:x:101:104::/:/bin/sh\n";
        assert_eq!(find_user(users, "postgres"), Some(RunAs::User { uid: 101, gid: 104 }));
        assert_eq!(find_user(users, "nobody"), None);
    }

    #[test]
    fn an_empty_folder_is_refused_with_what_to_install() {
        let error = Programs::in_folder("/var/empty/none").unwrap_err().to_string();
        assert!(error.starts_with("no initdb and postgres in /var/empty/none; "), "{error}");
        assert!(error.contains("install the package `postgresql`"), "{error}");
    }
}
