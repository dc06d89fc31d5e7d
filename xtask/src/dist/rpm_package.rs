//! Packages of RPM, written by rpmbuild from staged folders: one source of all of them, a generated spec file.

use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

use super::package_contents::{self, FileRole, FileSource, Package, PackageFile, SystemFolders};
use super::release_build::BuiltRelease;
use super::{Release, run_tool};

const FOLDERS: SystemFolders = SystemFolders {
    units: "/usr/lib/systemd/system",
    pgpool_programs: "/usr/bin",
    zsh: "/usr/share/zsh/site-functions",
    fish: "/usr/share/fish/vendor_completions.d",
};

const SCRIPTS: [&str; 4] = ["pre", "post", "preun", "postun"];

pub fn write_all(release: &Release, built: &BuiltRelease) -> Result<()> {
    let work = release.work.join("rpm");
    let stage = work.join("stage");
    let packages = package_contents::packages(&release.root, built, &FOLDERS)?;
    for package in &packages {
        package_contents::stage(package, &stage)?;
    }
    let spec = work.join("weir.spec");
    fs::write(&spec, spec_file(release, &packages, &stage)?)?;
    let mut command = Command::new("rpmbuild");
    command.args(["-bb", "--quiet", "--define", &format!("_topdir {}", work.display())]).arg(&spec);
    command.stderr(Stdio::piped());
    run_tool(release, &mut command)?;
    for folder in fs::read_dir(work.join("RPMS"))? {
        for file in fs::read_dir(folder?.path())? {
            let file = file?;
            fs::copy(file.path(), release.folder.join(file.file_name()))?;
        }
    }
    Ok(())
}

fn spec_file(release: &Release, packages: &[Package], stage: &Path) -> Result<String> {
    let mut spec = format!(
        "%global debug_package %{{nil}}\n%global __os_install_post %{{nil}}\n%global _build_id_links none\n\
         %global use_source_date_epoch_as_buildtime 1\n%global clamp_mtime_to_source_date_epoch 1\n%global _buildhost weir\n\
         Name: weir\nVersion: {}\nRelease: {}\nLicense: Apache-2.0\n",
        release.version, release.revision,
    );
    for package in packages {
        let is_main = package.name == "weir";
        let title = if is_main { String::new() } else { format!("-n {}", package.name) };
        if !is_main {
            writeln!(spec, "\n%package {title}")?;
        }
        writeln!(spec, "Summary: {}", package.summary)?;
        spec += match package.name {
            "weir" => "Requires(pre): shadow-utils\n",
            "weir-agent" => "",
            _ => "BuildArch: noarch\nRequires: weir >= %{version}\nConflicts: pgpool-II\n",
        };
        write!(spec, "\n%description {title}\n{}\n", package.description.join("\n"))?;
        for script in SCRIPTS {
            let path = release.root.join("packaging/rpm").join(format!("{}.{script}", package.name));
            if path.exists() {
                let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
                write!(spec, "\n%{script} {title}\n{text}")?;
            }
        }
        writeln!(spec, "\n%files {title}\n%defattr(-,root,root)")?;
        for file in &package.files {
            writeln!(spec, "{}", file_line(file))?;
        }
    }
    // A noarch part and others cannot be of one build unless it is named last.
    write!(spec, "\n%install\ncp -a {}/. %{{buildroot}}/\n", stage.display())?;
    Ok(spec)
}

/// A file with its rights. The group of the proxy's own configuration may read it.
fn file_line(file: &PackageFile) -> String {
    let kind = match file.role {
        FileRole::Plain => String::new(),
        FileRole::Configuration => "%config(noreplace) ".to_owned(),
    };
    match file.from {
        FileSource::File { mode, .. } | FileSource::Text { mode, .. } => {
            let group = if mode & 0o007 == 0 { "weir" } else { "root" };
            format!("%attr({mode:04o},root,{group}) {kind}{}", file.to)
        }
        FileSource::Link(_) => format!("{kind}{}", file.to),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_secrets_is_for_the_group_of_the_proxy() {
        let from = |mode| FileSource::Text { text: String::new(), mode };
        let line = |mode, role| file_line(&PackageFile { from: from(mode), to: "/a".to_owned(), role });
        assert_eq!(line(0o640, FileRole::Configuration), "%attr(0640,root,weir) %config(noreplace) /a");
        assert_eq!(line(0o755, FileRole::Plain), "%attr(0755,root,root) /a");
    }
}
