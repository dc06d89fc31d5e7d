//! `cargo xtask bare`: the README's commands as they stand, as root, on a Debian that has nothing but its essential packages, from a clone in `/root`.
//!
//! The Debian is a folder that mmdebstrap fills. Its processes see their own mounts and processes, and the network of this machine. Two things are
//! lent to it: the Rust toolchain, since rustup is a download from elsewhere, and the certificates by which this machine trusts its package servers.

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, getuid, kill_process_group};

/// The part of the README whose commands are played.
const HEADING: &str = "## Two commands";
/// Where the clone lies: closed to all users but root.
const CLONE: &str = "root/weir";
/// The demo stays until Ctrl-C, which it says when all stands.
const STAYS: &str = "Ctrl-C ends it.";

/// Choice of the place.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The folder of the bare Debian; it must not exist, and is removed at the end. 15 GB are used
    #[arg(long, default_value = "/var/tmp/weir-bare")]
    folder: PathBuf,
    /// Debian's release
    #[arg(long, default_value = "bookworm")]
    release: String,
    /// Leave the folder
    #[arg(long)]
    keep: bool,
    /// Stop after the first command that holds this text
    #[arg(long)]
    until: Option<String>,
}

pub fn run(arguments: &Arguments, root: &Path) -> Result<()> {
    let readme = std::fs::read_to_string(root.join("README.md"))?;
    let commands = commands_below(&readme, HEADING);
    ensure!(!commands.is_empty(), "README.md has no commands below {HEADING:?}");
    ensure!(getuid().is_root(), "only root can make a Debian in a folder");
    ensure!(!arguments.folder.exists(), "{} exists; remove it, or name another with --folder", arguments.folder.display());
    let bare = Bare { folder: arguments.folder.clone(), keep: arguments.keep };
    let mut make = Command::new("mmdebstrap");
    make.args(["--quiet", "--variant=minbase", &arguments.release]).arg(&bare.folder);
    succeeds(&mut make).context("mmdebstrap makes the bare Debian (Debian's package mmdebstrap)")?;
    succeeds(Command::new("git").args(["clone", "--quiet", "--no-hardlinks"]).arg(root).arg(bare.folder.join(CLONE)))?;
    for command in commands {
        let begin = Instant::now();
        println!("== {command}");
        let status = bare.play(&command)?;
        println!("== {command}: {status}, {:.0} s, {}", begin.elapsed().as_secs_f64(), bare.size());
        ensure!(status.success(), "{command}: {status}");
        if arguments.until.as_ref().is_some_and(|until| command.contains(until)) {
            break;
        }
    }
    Ok(())
}

fn succeeds(command: &mut Command) -> Result<()> {
    let status = command.stdin(Stdio::null()).status().with_context(|| format!("cannot run {command:?}"))?;
    ensure!(status.success(), "{command:?}: {status}");
    Ok(())
}

/// The commands in a page's blocks below a heading, without their comments.
pub fn commands_below(page: &str, heading: &str) -> Vec<String> {
    let part = page.split(heading).nth(1).unwrap_or_default();
    let part = part.split("\n## ").next().unwrap_or_default();
    let blocks = part.split("```").skip(1).step_by(2).flat_map(|block| block.lines().skip(1));
    let texts = blocks.map(|line| line.split(" #").next().unwrap_or_default().trim().to_owned());
    texts.filter(|text| !text.is_empty()).collect()
}

/// A Debian in a folder, removed at the end.
struct Bare {
    folder: PathBuf,
    keep: bool,
}

impl Drop for Bare {
    fn drop(&mut self) {
        if !self.keep
            && let Err(error) = std::fs::remove_dir_all(&self.folder)
        {
            eprintln!("{} is left: {error}", self.folder.display());
        }
    }
}

impl Bare {
    /// Runs a command in the clone, as typed by root; one that stays is ended as by Ctrl-C once it says that it stays.
    fn play(&self, command: &str) -> Result<ExitStatus> {
        let mut child = self.command(command)?.stdout(Stdio::piped()).spawn().context("cannot run unshare")?;
        for line in BufReader::new(child.stdout.take().context("its output")?).lines() {
            let line = line?;
            println!("{line}");
            if line.contains(STAYS) {
                interrupt(&child)?;
            }
        }
        Ok(child.wait()?)
    }

    fn command(&self, text: &str) -> Result<Command> {
        let toolchain = Command::new("rustc").args(["--print", "sysroot"]).output().context("cannot run rustc")?;
        let toolchain = String::from_utf8(toolchain.stdout)?;
        // The mounts are those of the new namespace, and end with it.
        let script = "set -e; cd \"$1\"; mkdir -p opt/rust opt/certs\n\
             mount --rbind /dev dev; mount -t proc proc proc; mount -t sysfs sysfs sys; mount --bind \"$2\" opt/rust\n\
             mount --bind -o ro /etc/ssl/certs opt/certs\n\
             [ ! -e /etc/resolv.conf ] || cat /etc/resolv.conf > etc/resolv.conf\n\
             exec chroot . /usr/bin/env -i HOME=/root LANG=C.UTF-8 SSL_CERT_FILE=/opt/certs/ca-certificates.crt \
             PATH=/opt/rust/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin sh -c \"cd /$3 && $4\"";
        let mut command = Command::new("unshare");
        command.args(["--mount", "--pid", "--fork", "--kill-child", "sh", "-c", script, "bare"]);
        command.arg(&self.folder).args([toolchain.trim(), CLONE, text]);
        command.stdin(Stdio::null()).process_group(0);
        Ok(command)
    }

    fn size(&self) -> String {
        let output = Command::new("du").args(["-sh", "--one-file-system"]).arg(&self.folder).output();
        let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
        format!("{} on disk", text.split_whitespace().next().unwrap_or("an unknown size"))
    }
}

/// As Ctrl-C does: the signal goes to all of the group.
fn interrupt(child: &Child) -> Result<()> {
    let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) else { bail!("no process id") };
    Ok(kill_process_group(group, Signal::INT)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_commands_are_those_of_the_readme() {
        let readme = "# W\n```sh\nno\n```\n## Two commands\nwords\n```sh\na b && c\n```\n```sh\nmake x    # why\n\nmake y\n```\n## Next\n```sh\nno\n```\n";
        assert_eq!(commands_below(readme, HEADING), ["a b && c", "make x", "make y"]);
        let readme = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../README.md")).unwrap();
        let made = commands_below(&readme, HEADING);
        assert!(
            made.iter().any(|command| command == "make demo") && made.iter().any(|command| command == "make test"),
            "{made:?}"
        );
    }
}
