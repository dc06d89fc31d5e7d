//! Packages for Debian, written by dpkg-deb from a staged folder.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use super::package_contents::{self, FileRole, FileSource, LibraryUse, Package, PackageFile, SystemFolders};
use super::release_build::BuiltRelease;
use super::{Release, run_tool};

const FOLDERS: SystemFolders = SystemFolders {
    units: "/lib/systemd/system",
    pgpool_programs: "/usr/sbin",
    zsh: "/usr/share/zsh/vendor-completions",
    fish: "/usr/share/fish/vendor_completions.d",
};

/// Scripts of a package that are run at its installation and removal.
const SCRIPTS: [&str; 3] = ["postinst", "prerm", "postrm"];

pub fn write_all(release: &Release, built: &BuiltRelease) -> Result<()> {
    let architecture = said(Command::new("dpkg").arg("--print-architecture"))?;
    let version = format!("{}-{}", release.version, release.revision);
    let libraries = libraries(release, built)?;
    for mut package in package_contents::packages(&release.root, built, &FOLDERS)? {
        package.files.extend(documents(release, &package, &version)?);
        let folder = release.work.join("deb").join(package.name);
        package_contents::stage(&package, &folder)?;
        let control = folder.join("DEBIAN");
        fs::create_dir_all(&control)?;
        let relations = relations(package.name, &version, &libraries);
        let architecture = architecture_of(&package, &architecture);
        let size_kb = folder_kb(&folder)?;
        let text = control_file(release, &package, &version, architecture, size_kb, &relations);
        fs::write(control.join("control"), text)?;
        fs::write(control.join("md5sums"), sums(&folder, &package)?)?;
        let kept = package.files.iter().filter(|file| file.role == FileRole::Configuration);
        let kept: String = kept.map(|file| format!("{}\n", file.to)).collect();
        if !kept.is_empty() {
            fs::write(control.join("conffiles"), kept)?;
        }
        for script in SCRIPTS {
            let from = release.root.join("packaging/debian").join(format!("{}.{script}", package.name));
            if from.exists() {
                let to = control.join(script);
                fs::copy(&from, &to)?;
                fs::set_permissions(&to, fs::Permissions::from_mode(0o755))?;
            }
        }
        set_folder_modes(&folder)?;
        let file = release.folder.join(format!("{}_{version}_{architecture}.deb", package.name));
        let mut command = Command::new("dpkg-deb");
        command.args(["--root-owner-group", "-Zxz", "--build"]).arg(&folder).arg(file).stdout(Stdio::null());
        run_tool(release, &mut command)?;
    }
    Ok(())
}

/// Links are the same on all processors.
fn architecture_of<'a>(package: &Package, own: &'a str) -> &'a str {
    match package.links_libraries {
        LibraryUse::OwnProgram => own,
        LibraryUse::None => "all",
    }
}

/// Lines of relations to other packages.
fn relations(name: &str, version: &str, libraries: &str) -> String {
    match name {
        "weir" => format!(
            "Pre-Depends: init-system-helpers (>= 1.54)\nDepends: {libraries}, adduser\nSuggests: postgresql-client, weir-agent\n"
        ),
        "weir-agent" => format!("Pre-Depends: init-system-helpers (>= 1.54)\nDepends: {libraries}\nSuggests: postgresql\n"),
        _ => format!("Depends: weir (>= {version})\nConflicts: pgpool2\n"),
    }
}

fn control_file(
    release: &Release,
    package: &Package,
    version: &str,
    architecture: &str,
    size_kb: u64,
    relations: &str,
) -> String {
    let description: String = package.description.iter().map(|line| format!(" {line}\n")).collect();
    format!(
        "Package: {}\nSource: weir\nVersion: {version}\nArchitecture: {architecture}\nMaintainer: {}\nInstalled-Size: {size_kb}\n\
         {relations}Section: database\nPriority: optional\nDescription: {}\n{description}",
        package.name, release.maintainer, package.summary,
    )
}

/// The libraries that the program links, as packages.
fn libraries(release: &Release, built: &BuiltRelease) -> Result<String> {
    let place = release.work.join("shlibdeps");
    fs::create_dir_all(place.join("debian"))?;
    // The tool reads its package from a source tree.
    fs::write(place.join("debian/control"), "Source: weir\n\nPackage: weir\nArchitecture: any\n")?;
    let asked = said(Command::new("dpkg-shlibdeps").args(["-O", "-e"]).arg(&built.program).current_dir(&place))?;
    let found = asked.lines().find_map(|line| line.strip_prefix("shlibs:Depends="));
    Ok(found.context("dpkg-shlibdeps found no libraries")?.to_owned())
}

/// Files that Debian wants of each package.
fn documents(release: &Release, package: &Package, version: &str) -> Result<Vec<PackageFile>> {
    let folder = format!("/usr/share/doc/{}", package.name);
    let changelog = release.work.join(format!("changelog-{}", package.name));
    let date = said(Command::new("date").args(["--utc", "--rfc-email", "--date", &format!("@{}", release.epoch)]))?;
    let text =
        format!("weir ({version}) unstable; urgency=medium\n\n  * Version {version}.\n\n -- {}  {date}\n", release.maintainer);
    fs::write(&changelog, text)?;
    run_tool(release, Command::new("gzip").args(["-9", "--no-name", "--force"]).arg(&changelog))?;
    let changelog = changelog.with_extension("gz");
    Ok(vec![
        PackageFile {
            from: FileSource::File { path: changelog, mode: 0o644 },
            to: format!("{folder}/changelog.Debian.gz"),
            role: FileRole::Plain,
        },
        PackageFile {
            from: FileSource::File { path: release.root.join("packaging/copyright"), mode: 0o644 },
            to: format!("{folder}/copyright"),
            role: FileRole::Plain,
        },
    ])
}

/// Kilobytes, as Debian's policy counts them.
fn folder_kb(folder: &Path) -> Result<u64> {
    let text = said(Command::new("du").args(["-sk", "--apparent-size"]).arg(folder))?;
    text.split_whitespace().next().and_then(|number| number.parse().ok()).context("du says no number")
}

fn sums(folder: &Path, package: &Package) -> Result<String> {
    let plain = package.files.iter().filter(|file| !matches!(file.from, FileSource::Link(_)));
    let mut names: Vec<&str> = plain.map(|file| file.to.trim_start_matches('/')).collect();
    names.sort_unstable();
    let text = said(Command::new("md5sum").args(&names).current_dir(folder))?;
    Ok(text + "\n")
}

/// The umask of who builds is none of the package's.
fn set_folder_modes(folder: &Path) -> Result<()> {
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755))?;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            set_folder_modes(&entry.path())?;
        }
    }
    Ok(())
}

fn said(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("cannot run {command:?}"))?;
    ensure!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?.trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_maintainers_scripts_are_sound_shell() {
        let folder = crate::root().join("packaging/debian");
        let mut count = 0;
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let checked = std::process::Command::new("sh").arg("-n").arg(&path).status().unwrap();
            assert!(checked.success(), "{}", path.display());
            count += 1;
        }
        assert_eq!(count, 6);
    }
}
