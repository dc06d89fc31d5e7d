//! The image of `target/dist/image`, built by buildah without a registry: the bare Debian stands for its base. It is then run as an orchestrator does,
//! without root and with a read-only file system.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::cargo::run_to_end;

const BASE: &str = "docker.io/library/debian:bookworm-slim";
const IMAGE: &str = "localhost/weir-tried";

/// Images may not be larger.
const IMAGE_MB_MAX: f64 = 60.0;

/// A store of images of this task's own.
struct ImageStore<'a>(&'a Path);

impl ImageStore<'_> {
    fn buildah(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("buildah");
        command.arg("--root").arg(self.0.join("store")).arg("--runroot").arg(self.0.join("run"));
        command.args(["--storage-driver", "vfs"]).args(arguments);
        // Neither a runtime of containers nor namespaces of users are needed.
        command.env("BUILDAH_ISOLATION", "chroot").stdin(Stdio::null());
        command
    }

    fn said(&self, arguments: &[&str]) -> Result<String> {
        let output = self.buildah(arguments).output().context("cannot run buildah")?;
        ensure!(output.status.success(), "buildah {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        Ok(String::from_utf8(output.stdout)?.trim().to_owned())
    }
}

/// Builds and tries the image. `debian` is the folder of the bare Debian, `work` an empty one.
pub fn check(context: &Path, debian: &Path, work: &Path) -> Result<()> {
    if Command::new("buildah").arg("--version").stdout(Stdio::null()).status().is_err() {
        println!("left out: the image; buildah is not there (Debian's package buildah)");
        return Ok(());
    }
    fs::create_dir_all(work)?;
    let store = ImageStore(work);
    let base = store.said(&["from", "scratch"])?;
    let root = store.said(&["mount", &base])?;
    // Its libraries are those of the base that the Containerfile names; packages of the trial do no harm.
    run_to_end(Command::new("cp").args(["-a", "--one-file-system"]).arg(debian.join(".")).arg(&root))?;
    store.said(&["umount", &base])?;
    store.said(&["commit", "--quiet", "--rm", &base, BASE])?;
    run_to_end(store.buildah(&["build", "--quiet", "--pull-never", "--format", "docker", "-t", IMAGE]).arg(context))?;
    let container = store.said(&["from", "--pull-never", IMAGE])?;
    let root = store.said(&["mount", &container])?;
    let size_mb = bytes_below(Path::new(&root))? as f64 / 1e6;
    println!("== the image: {size_mb:.1} MB, files of {root}");
    ensure!(size_mb <= IMAGE_MB_MAX, "the image has {size_mb:.1} MB, at most {IMAGE_MB_MAX} are wanted");
    let user = store.said(&["inspect", "--format", "{{.Docker.Config.User}} {{.Docker.Config.Healthcheck}}", IMAGE])?;
    ensure!(user.starts_with("10001:10001 ") && user.contains("probe"), "user and health check of the image: {user}");
    let mut trial = Command::new("unshare");
    trial.args(["--mount", "--net", "--pid", "--fork", "--kill-child", "sh", "-c", include_str!("try_image.sh")]).arg(&root);
    run_to_end(&mut trial)
}

fn bytes_below(folder: &Path) -> Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        if kind.is_dir() {
            bytes += bytes_below(&entry.path())?;
        } else if kind.is_file() {
            bytes += entry.metadata()?.len();
        }
    }
    Ok(bytes)
}
