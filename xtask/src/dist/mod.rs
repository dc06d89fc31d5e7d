//! `cargo xtask dist`: what a release consists of, in `target/dist`: packages for Debian and of RPM, a tarball, the context of an image, the list of
//! components, and checksums of all.
//!
//! One table (`package_contents`) says which file goes where; each format stages it with its own paths. Times in the files are that of the commit.

mod components;
mod deb_package;
#[cfg(test)]
mod deployments;
mod image_context;
mod package_contents;
mod release_build;
mod rpm_package;
mod tarball;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use clap::ValueEnum;

use crate::cargo::run_to_end;
pub use package_contents::PGPOOL_PROGRAMS;
use release_build::BuiltRelease;

/// Choice of a build and of formats.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Cargo's profile; `dev` makes large packages quickly, to try them
    #[arg(long, default_value = "release")]
    profile: String,
    /// Formats; all without it
    #[arg(long = "format", value_enum)]
    formats: Vec<ReleaseFormat>,
    /// Revision of the packages of one version
    #[arg(long, default_value_t = 1)]
    revision: u32,
    /// NAME <ADDRESS> of who answers for the packages
    #[arg(long, default_value = DEFAULT_MAINTAINER)]
    maintainer: String,
}

/// Packages that are given to others name somebody who reads mail.
const DEFAULT_MAINTAINER: &str = "Weir maintainers <maintainers@weir.invalid>";

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ReleaseFormat {
    Deb,
    Rpm,
    Tarball,
    Image,
    Components,
}

const FORMATS: [ReleaseFormat; 5] =
    [ReleaseFormat::Deb, ReleaseFormat::Rpm, ReleaseFormat::Tarball, ReleaseFormat::Image, ReleaseFormat::Components];

/// Programs of the system, and Debian's package of each.
const TOOLS: [(&str, &str, &[ReleaseFormat]); 6] = [
    ("strip", "binutils", &FORMATS),
    ("gzip", "gzip", &FORMATS),
    ("xz", "xz-utils", &[ReleaseFormat::Tarball]),
    ("dpkg-deb", "dpkg", &[ReleaseFormat::Deb]),
    ("dpkg-shlibdeps", "dpkg-dev", &[ReleaseFormat::Deb]),
    ("rpmbuild", "rpm", &[ReleaseFormat::Rpm]),
];

/// A release under way.
struct Release {
    /// The workspace.
    root: PathBuf,
    /// `target/dist`, which others get.
    folder: PathBuf,
    /// Files under way, removed at the end.
    work: PathBuf,
    version: String,
    revision: u32,
    maintainer: String,
    /// The time of the commit, in seconds since 1970: two builds of one commit are the same.
    epoch: u64,
}

pub fn run(arguments: &Arguments, root: &Path) -> Result<()> {
    let formats = if arguments.formats.is_empty() { FORMATS.to_vec() } else { arguments.formats.clone() };
    check_tools(&formats)?;
    let folder = crate::target_folder()?.join("dist");
    if folder.exists() {
        fs::remove_dir_all(&folder).with_context(|| format!("cannot remove {}", folder.display()))?;
    }
    let release = Release {
        root: root.to_owned(),
        work: folder.join("work"),
        version: version(root)?,
        revision: arguments.revision,
        maintainer: arguments.maintainer.clone(),
        epoch: commit_time(root),
        folder,
    };
    fs::create_dir_all(&release.work)?;
    let built = BuiltRelease::build(&release, &arguments.profile)?;
    for format in formats {
        let begin = Instant::now();
        match format {
            ReleaseFormat::Deb => deb_package::write_all(&release, &built)?,
            ReleaseFormat::Rpm => rpm_package::write_all(&release, &built)?,
            ReleaseFormat::Tarball => tarball::write(&release, &built)?,
            ReleaseFormat::Image => image_context::write(&release, &built)?,
            ReleaseFormat::Components => components::write(&release)?,
        }
        println!("dist: {format:?}: {:.1} s", begin.elapsed().as_secs_f64());
    }
    fs::remove_dir_all(&release.work)?;
    write_checksums(&release.folder)
}

/// Error: names all packages that are missing.
fn check_tools(formats: &[ReleaseFormat]) -> Result<()> {
    let is_missing = |tool: &str| Command::new(tool).arg("--version").output().is_err();
    let wanted = TOOLS.iter().filter(|(_, _, of)| of.iter().any(|format| formats.contains(format)));
    let missing: Vec<&str> = wanted.filter(|(tool, ..)| is_missing(tool)).map(|(_, package, _)| *package).collect();
    ensure!(missing.is_empty(), "programs are missing; on Debian: apt-get install {}", missing.join(" "));
    Ok(())
}

/// The version of the workspace.
fn version(root: &Path) -> Result<String> {
    let manifest = fs::read_to_string(root.join("Cargo.toml"))?;
    let part = manifest.split("[workspace.package]").nth(1).context("Cargo.toml has no [workspace.package]")?;
    let line = part.lines().find_map(|line| line.strip_prefix("version = \"")).context("Cargo.toml has no version")?;
    Ok(line.trim_end_matches('"').to_owned())
}

/// Sources without a history have no time; any that is the same for all serves.
fn commit_time(root: &Path) -> u64 {
    let asked = Command::new("git").args(["log", "-1", "--format=%ct"]).current_dir(root).output();
    let text = asked.map(|asked| String::from_utf8_lossy(&asked.stdout).into_owned()).unwrap_or_default();
    text.trim().parse().unwrap_or(0)
}

/// Names and sizes are shown; the sums are for `sha256sum --check`.
fn write_checksums(folder: &Path) -> Result<()> {
    let mut names: Vec<String> = Vec::new();
    list_files(folder, Path::new(""), &mut names)?;
    names.sort();
    let output = Command::new("sha256sum").args(&names).current_dir(folder).output().context("cannot run sha256sum")?;
    if !output.status.success() {
        bail!("sha256sum: {}", String::from_utf8_lossy(&output.stderr));
    }
    fs::write(folder.join("SHA256SUMS"), output.stdout)?;
    for name in &names {
        println!("{:>9.2} MB  {name}", fs::metadata(folder.join(name))?.len() as f64 / 1e6);
    }
    Ok(())
}

fn list_files(folder: &Path, below: &Path, names: &mut Vec<String>) -> Result<()> {
    for entry in fs::read_dir(folder.join(below))? {
        let entry = entry?;
        let name = below.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            list_files(folder, &name, names)?;
        } else {
            names.push(name.to_string_lossy().into_owned());
        }
    }
    Ok(())
}

/// Runs a program that the formats share, with the release's time.
fn run_tool(release: &Release, command: &mut Command) -> Result<()> {
    run_to_end(command.env("SOURCE_DATE_EPOCH", release.epoch.to_string()))
}
