//! Fetches a source package from a suite of Debian, with lists of the package client's own: the system's stay as they are.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::process;

const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";
const FETCH_LIMIT: Duration = Duration::from_secs(180);

/// A source package, for one task.
#[derive(Debug)]
pub struct Package {
    pub name: &'static str,
    /// The task's name, and of its folder in cargo's.
    pub task: &'static str,
    /// A folder in its archive that tells that it is the right one.
    pub mark: &'static str,
}

/// A source tree.
#[derive(Debug)]
pub struct Source {
    pub folder: PathBuf,
    pub release: String,
}

/// The source of the package in a suite, fetched if it is not there. Error: not a Debian, or no network.
pub fn fetch(package: &Package, target: &Path, suite: &str) -> Result<Source> {
    let is_name = !suite.is_empty() && suite.bytes().all(|byte| byte.is_ascii_lowercase());
    ensure!(is_name, "{suite} is no name of a suite of Debian's");
    let place = target.join(package.task).join(suite);
    if let Some(source) = unpacked(package, &place) {
        return Ok(source);
    }
    println!("{}: fetching {} of Debian's {suite}", package.task, package.name);
    download(package, &place, suite)?;
    let archive = entries(&place).into_iter().find(|path| path.to_string_lossy().contains(".orig.tar"));
    let archive = archive.context("the source package has no archive")?;
    run(Command::new("tar").arg("xf").arg(archive).current_dir(&place))?;
    unpacked(package, &place).with_context(|| format!("the archive of {} has no folder {}", package.name, package.mark))
}

fn unpacked(package: &Package, place: &Path) -> Option<Source> {
    let folder = entries(place).into_iter().find(|path| path.join(package.mark).is_dir())?;
    let name = folder.file_name()?.to_string_lossy().into_owned();
    let release = name.rsplit_once('-')?.1.to_owned();
    Some(Source { folder, release })
}

fn entries(place: &Path) -> Vec<PathBuf> {
    fs::read_dir(place).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}

fn download(package: &Package, place: &Path, suite: &str) -> Result<()> {
    ensure!(Path::new(KEYRING).exists(), "there is no {KEYRING}: the source comes from Debian's archive");
    for part in ["lists/partial", "cache/archives/partial", "parts"] {
        fs::create_dir_all(place.join(part))?;
    }
    let list = format!("deb-src [signed-by={KEYRING}] {} {suite} main\n", archive()?);
    fs::write(place.join("sources.list"), list)?;
    apt(place, &["update"])?;
    apt(place, &["source", "--download-only", package.name])
}

/// The archive that this system takes its own packages from.
fn archive() -> Result<String> {
    let listed = run(Command::new("apt-get").args(["indextargets", "--format", "$(SITE)|$(LABEL)|$(COMPONENT)"]))?;
    let site = listed.lines().find_map(|line| line.strip_suffix("|Debian|main"));
    Ok(site.context("this system has no archive of Debian's (after apt-get update)")?.to_owned())
}

fn apt(place: &Path, arguments: &[&str]) -> Result<()> {
    let shown = place.display();
    let mut command = Command::new("apt-get");
    for option in [
        format!("Dir::Etc::SourceList={shown}/sources.list"),
        format!("Dir::Etc::SourceParts={shown}/parts"),
        format!("Dir::State::Lists={shown}/lists"),
        format!("Dir::Cache={shown}/cache"),
        // As root it would else fetch as a user who cannot write here.
        "APT::Sandbox::User=root".to_owned(),
    ] {
        command.args(["-o", &option]);
    }
    run(command.arg("--quiet").args(arguments).current_dir(place)).map(|_| ())
}

/// Runs a command and returns its output. Error: it is missing or failed; with its output.
fn run(command: &mut Command) -> Result<String> {
    let output = process::run(command, FETCH_LIMIT)?;
    ensure!(output.status.success(), "{command:?} failed:\n{}", output.stderr);
    Ok(output.stdout)
}
