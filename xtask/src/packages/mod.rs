//! `cargo xtask packages`: the packages of `target/dist` on a bare Debian in a folder. Weir is installed and started by the commands of `docs/install.md`
//! as they stand there, upgraded under a client, removed and purged. lintian looks at the packages before.
//!
//! The Debian is a folder that mmdebstrap fills, with PostgreSQL; its processes have mounts, process numbers and a network of their own: nothing is fetched. No systemd runs there: the
//! unit's command is played (`play.sh`). Where buildah is, the image is built and run, too (`image`).

mod image;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use rustix::process::getuid;

use crate::bare::commands_below;
use crate::cargo::run_to_end;

const HEADING: &str = "## Debian";

/// The name of the folder with the packages, in the Debian.
const PLACE: &str = "root/packages";

/// Choice of the place.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The folder of the bare Debian; it must not exist, and is removed at the end. 1 GB is used
    #[arg(long, default_value = "/var/tmp/weir-packages")]
    folder: PathBuf,
    /// Debian's release
    #[arg(long, default_value = "bookworm")]
    release: String,
    /// Leave the folder
    #[arg(long)]
    keep: bool,
}

pub fn run(arguments: &Arguments, root: &Path) -> Result<()> {
    let debs = debs(&crate::target_folder()?.join("dist"))?;
    check_by_lintian(&debs)?;
    let page = fs::read_to_string(root.join("docs/install.md"))?;
    let commands = commands_below(&page, HEADING);
    ensure!(!commands.is_empty(), "docs/install.md has no commands below {HEADING:?}");
    ensure!(getuid().is_root(), "only root can make a Debian in a folder");
    let folder = &arguments.folder;
    ensure!(!folder.exists(), "{} exists; remove it, or name another with --folder", folder.display());
    let images = folder.with_extension("images");
    ensure!(!images.exists(), "{} exists; remove it", images.display());
    let dist = crate::target_folder()?.join("dist");
    let played = play(arguments, &debs, &commands).and_then(|()| image::check(&dist.join("image"), folder, &images));
    if images.exists() {
        fs::remove_dir_all(&images).with_context(|| format!("{} is left", images.display()))?;
    }
    if !arguments.keep && folder.exists() {
        fs::remove_dir_all(folder).with_context(|| format!("{} is left", folder.display()))?;
    }
    played
}

fn play(arguments: &Arguments, debs: &[PathBuf], commands: &[String]) -> Result<()> {
    let folder = &arguments.folder;
    // PostgreSQL comes now: the bare Debian reaches no package server.
    let mut make = Command::new("mmdebstrap");
    make.args(["--quiet", "--variant=minbase", "--include=postgresql", &arguments.release]).arg(folder);
    run_to_end(&mut make).context("mmdebstrap makes the bare Debian (Debian's package mmdebstrap)")?;
    let place = folder.join(PLACE);
    fs::create_dir_all(&place)?;
    for deb in debs {
        fs::copy(deb, place.join(deb.file_name().context("a package without a name")?))?;
    }
    fs::write(place.join("page"), commands.join("\n") + "\n")?;
    fs::write(place.join("play.sh"), include_str!("play.sh"))?;
    // The mounts are those of the new namespace, and end with it.
    let script = "set -e; ip link set lo up; cd \"$0\"; mount --rbind /dev dev; mount -t proc proc proc; mount -t tmpfs tmpfs run\n\
         exec chroot . /usr/bin/env -i HOME=/root LANG=C.UTF-8 DEBIAN_FRONTEND=noninteractive \
         PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin sh -c \"cd /$1 && sh play.sh page\"";
    let mut command = Command::new("unshare");
    command.args(["--mount", "--pid", "--net", "--fork", "--kill-child", "sh", "-c", script]).arg(folder).arg(PLACE);
    run_to_end(&mut command)
}

/// All packages of one build.
fn debs(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut debs: Vec<PathBuf> = entries.filter(|path| path.extension().is_some_and(|end| end == "deb")).collect();
    debs.sort();
    ensure!(debs.len() == 3, "{} has {} packages for Debian, not three: run cargo xtask dist", folder.display(), debs.len());
    Ok(debs)
}

fn check_by_lintian(debs: &[PathBuf]) -> Result<()> {
    let is_there = Command::new("lintian").arg("--version").stdout(Stdio::null()).status().is_ok();
    if !is_there {
        println!("left out: lintian is not there (Debian's package lintian)");
        return Ok(());
    }
    run_to_end(Command::new("lintian").args(["--allow-root", "--fail-on", "error", "--tag-display-limit", "0"]).args(debs))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_installs_starts_and_sends_a_statement() {
        let page = fs::read_to_string(crate::root().join("docs/install.md")).unwrap();
        let commands = commands_below(&page, HEADING);
        for wanted in ["apt-get install --yes ./weir_*_amd64.deb", "systemctl restart weir"] {
            assert!(commands.iter().any(|command| command == wanted), "{wanted}: {commands:?}");
        }
        assert!(commands.last().is_some_and(|command| command.contains("-c 'SELECT 1'")), "{commands:?}");
    }
}
