//! A tarball for systems without packages: to be unpacked anywhere, or over `/usr/local`.

use std::path::Path;
use std::process::Command;

use anyhow::Result;

use super::package_contents::{self, FileRole, FileSource, LibraryUse, Package, PackageFile};
use super::release_build::BuiltRelease;
use super::{Release, run_tool};

/// Files of the sources, and where they go.
const SOURCES: [(&str, &str); 9] = [
    ("LICENSE", "LICENSE"),
    ("CHANGELOG.md", "CHANGELOG.md"),
    ("docs/install.md", "install.md"),
    ("docs/pool_hba.conf.sample", "etc/pool_hba.conf.sample"),
    ("packaging/pgpool.conf", "etc/pgpool.conf"),
    ("packaging/agent.env", "etc/agent.env"),
    ("packaging/weir.service", "systemd/weir.service"),
    ("packaging/weir.socket", "systemd/weir.socket"),
    ("packaging/weir-agent.service", "systemd/weir-agent.service"),
];

pub fn write(release: &Release, built: &BuiltRelease) -> Result<()> {
    let name = format!("weir-{}-{}-linux", release.version, std::env::consts::ARCH);
    let stage = release.work.join("tar");
    let plain = |from: &Path, to: &str, mode| PackageFile {
        from: FileSource::File { path: from.to_owned(), mode },
        to: format!("/{name}/{to}"),
        role: FileRole::Plain,
    };
    let mut files = vec![
        plain(&built.program, "bin/weir", 0o755),
        plain(&built.sample, "etc/pgpool.conf.sample", 0o644),
        plain(&built.completions.join("bash"), "share/bash-completion/completions/weir", 0o644),
        plain(&built.completions.join("zsh"), "share/zsh/site-functions/_weir", 0o644),
        plain(&built.completions.join("fish"), "share/fish/vendor_completions.d/weir.fish", 0o644),
    ];
    files.extend(SOURCES.iter().map(|(from, to)| plain(&release.root.join(from), to, 0o644)));
    for page in built.manual_pages()? {
        files.push(plain(&built.manual.join(&page), &format!("share/man/{page}"), 0o644));
    }
    let package = Package { name: "tarball", summary: "", description: &[], files, links_libraries: LibraryUse::None };
    package_contents::stage(&package, &stage)?;
    let mut command = Command::new("tar");
    command.args(["--sort=name", "--owner=0", "--group=0", "--numeric-owner", "--mode=u+rw,go+rX,go-w", "-C"]).arg(&stage);
    command.arg(format!("--mtime=@{}", release.epoch)).arg("-cJf").arg(release.folder.join(format!("{name}.tar.xz"))).arg(&name);
    run_tool(release, &mut command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_the_sources_are_there() {
        for (from, _) in SOURCES {
            assert!(crate::root().join(from).exists(), "{from}");
        }
    }
}
