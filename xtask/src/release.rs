//! `cargo xtask release X.Y.Z`: makes the changelog's section of unreleased changes that version, and sets its number and date where files name them.
//!
//! The first section of the changelog says which version the tree is of; every other file must agree with it. With `--check` nothing is written.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::Path;
use std::str::FromStr;

use anyhow::{Context, Result, bail, ensure};

use crate::date;
use crate::finding::{self, Finding};

#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Number of the new version; with --check: the version that the tree must be
    version: Option<Version>,
    /// Day of the release, YYYY-MM-DD; today without it
    #[arg(long)]
    date: Option<String>,
    /// Only look whether packages, pages and changelog agree
    #[arg(long)]
    check: bool,
}

const CHANGELOG: &str = "CHANGELOG.md";
const MANIFEST: &str = "Cargo.toml";
/// The workspace's own comes first: it tells which packages are its members.
const LOCKS: [&str; 2] = ["Cargo.lock", "fuzz/Cargo.lock"];
const UNRELEASED: &str = "## Unreleased: ";
const SECTION: &str = "## ";
/// Rows of parameters say since when they are there.
const PARAMETERS: &str = "docs/parameters.md";
const SINCE: &str = "| Weir ";
const PACKAGES: &str = "target/dist";

/// A text of a file that names the newest release.
struct ReleasePlace {
    path: &'static str,
    /// While there is no release.
    before: &'static str,
    /// `<version>` and `<date>` stand for those of the newest release.
    after: &'static str,
}

const PLACES: [ReleasePlace; 3] = [
    ReleasePlace {
        path: "README.md",
        before: "Weir is young: there is no release yet.",
        after: "Weir is young: its newest release is <version>, of <date>.",
    },
    ReleasePlace {
        path: "SECURITY.md",
        before: "There is no release yet. Holes are mended on the main branch.",
        after: "The newest release is <version>, of <date>. Holes are mended on the main branch.",
    },
    ReleasePlace { path: "deploy/kubernetes/weir.yaml", before: "image: weir:0.1.0", after: "image: weir:<version>" },
];

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    major: u32,
    minor: u32,
    patch: u32,
}

impl FromStr for Version {
    type Err = String;

    fn from_str(text: &str) -> Result<Version, String> {
        let part = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit()).then(|| part.parse().ok()).flatten();
        let parts: Option<Vec<u32>> = text.split('.').map(part).collect();
        match parts.as_deref() {
            Some(&[major, minor, patch]) => Ok(Version { major, minor, patch }),
            _ => Err(format!("\"{text}\" is no version such as 0.2.0")),
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

/// The release that a section of the changelog is about.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ReleaseSection {
    /// Index of its heading.
    at: usize,
    version: Version,
    /// `None`: not released yet.
    date: Option<String>,
}

/// Texts of the files that name versions, by path.
type Files = BTreeMap<String, String>;

pub fn run(arguments: &Arguments, root: &Path) -> Result<()> {
    match (arguments.version, arguments.check) {
        (_, true) => finding::report("release", &find(root, arguments.version)?),
        (Some(version), false) => {
            let date = arguments.date.clone().unwrap_or_else(date::today);
            release(root, version, &date)?;
            println!("The tree is {version} of {date}. Read the changes, commit them, then: git tag --annotate v{version}");
            Ok(())
        }
        (None, false) => bail!("a version such as 0.2.0 is missing; --check only looks"),
    }
}

/// A part of `cargo xtask check`.
pub fn check(root: &Path) -> Result<()> {
    finding::report("release", &find(root, None)?)
}

fn find(root: &Path, wanted: Option<Version>) -> Result<Vec<Finding>> {
    let mut findings = disagreements(&read_all(root)?, wanted)?;
    let packages = fs::read_dir(root.join(PACKAGES)).into_iter().flatten().filter_map(Result::ok);
    let names: Vec<String> = packages.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    if let Some(version) = wanted {
        findings.extend(strange_packages(&names, version));
    }
    Ok(findings)
}

fn release(root: &Path, version: Version, date: &str) -> Result<()> {
    ensure!(is_date(date), "\"{date}\" is no date such as 2026-12-01");
    let mut files = read_all(root)?;
    let before = disagreements(&files, None)?;
    finding::report("the tree before the release", &before)?;
    change(&mut files, version, date)?;
    finding::report("the tree of the release", &disagreements(&files, Some(version))?)?;
    for (path, text) in files {
        fs::write(root.join(&path), text).with_context(|| format!("cannot write {path}"))?;
    }
    Ok(())
}

fn read_all(root: &Path) -> Result<Files> {
    let places = PLACES.iter().map(|place| place.path);
    let paths = [CHANGELOG, MANIFEST, PARAMETERS].into_iter().chain(LOCKS).chain(places);
    paths
        .map(|path| {
            let text = fs::read_to_string(root.join(path)).with_context(|| format!("cannot read {path}"))?;
            Ok((path.to_owned(), text))
        })
        .collect()
}

fn is_date(text: &str) -> bool {
    let pattern = |(at, byte): (usize, u8)| if at == 4 || at == 7 { byte == b'-' } else { byte.is_ascii_digit() };
    text.len() == 10 && text.bytes().enumerate().all(pattern)
}

/// Sections of the changelog, the newest first.
fn sections(changelog: &str) -> Result<Vec<ReleaseSection>> {
    let headings = changelog.lines().enumerate().filter(|(_, line)| line.starts_with(SECTION));
    let read = |(at, line): (usize, &str)| {
        let heading = || format!("{CHANGELOG}:{}: neither \"{UNRELEASED}X.Y.Z\" nor \"## X.Y.Z, YYYY-MM-DD\": {line}", at + 1);
        let (version, date) = match line.strip_prefix(UNRELEASED) {
            Some(version) => (version, None),
            None => line[SECTION.len()..].split_once(", ").map(|(version, date)| (version, Some(date))).with_context(heading)?,
        };
        ensure!(date.is_none_or(is_date), heading());
        let version = version.parse().map_err(anyhow::Error::msg).with_context(heading)?;
        Ok(ReleaseSection { at, version, date: date.map(str::to_owned) })
    };
    let sections: Vec<ReleaseSection> = headings.map(read).collect::<Result<_>>()?;
    ensure!(!sections.is_empty(), "{CHANGELOG} has no section of a version");
    Ok(sections)
}

/// Makes the unreleased section `version`, and all other files agree.
fn change(files: &mut Files, version: Version, date: &str) -> Result<()> {
    let sections = sections(&files[CHANGELOG])?;
    let first = &sections[0];
    ensure!(
        first.date.is_none(),
        "{CHANGELOG} has no section \"{UNRELEASED}...\": there is nothing to release since {}",
        first.version
    );
    if let Some(newest) = sections.get(1) {
        ensure!(version > newest.version, "{version} is not above {}, the newest release", newest.version);
    }
    let newest = sections.iter().find(|section| section.date.is_some());
    for place in &PLACES {
        let (old, new) = (place.text(newest), place.text_of(version, date));
        edit(files, place.path, |text| text.replace(&old, &new));
    }
    edit(files, CHANGELOG, |text| with_line(text, first.at, &format!("{SECTION}{version}, {date}")));
    let line = manifest_line(&files[MANIFEST])?.0;
    edit(files, MANIFEST, |text| with_line(text, line, &format!("version = \"{version}\"")));
    let members = members(&files[LOCKS[0]]);
    for lock in LOCKS {
        edit(files, lock, |text| {
            let lines = locked(text, &members).into_iter();
            lines.fold(text.to_owned(), |text, (line, _)| with_line(&text, line, &format!("version = \"{version}\"")))
        });
    }
    Ok(())
}

fn edit(files: &mut Files, path: &str, change: impl FnOnce(&str) -> String) {
    if let Some(text) = files.get_mut(path) {
        *text = change(text);
    }
}

fn with_line(text: &str, at: usize, line: &str) -> String {
    let lines = text.split('\n').enumerate().map(|(index, old)| if index == at { line } else { old });
    lines.collect::<Vec<_>>().join("\n")
}

impl ReleasePlace {
    fn text(&self, newest: Option<&ReleaseSection>) -> String {
        match newest {
            Some(ReleaseSection { version, date: Some(date), .. }) => self.text_of(*version, date),
            _ => self.before.to_owned(),
        }
    }

    fn text_of(&self, version: Version, date: &str) -> String {
        self.after.replace("<version>", &version.to_string()).replace("<date>", date)
    }
}

/// All that does not agree with the changelog.
fn disagreements(files: &Files, wanted: Option<Version>) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    let sections = sections(&files[CHANGELOG])?;
    let first = &sections[0];
    let mut note = |path: &str, line: usize, text: String| findings.push(Finding::new(path, line + 1, text));
    if let Some(wanted) = wanted
        && (first.version != wanted || first.date.is_none())
    {
        note(CHANGELOG, first.at, format!("the newest section must be \"{SECTION}{wanted}, YYYY-MM-DD\""));
    }
    for pair in sections.windows(2) {
        if pair[0].version <= pair[1].version {
            note(CHANGELOG, pair[1].at, format!("{} stands behind {}: newest first", pair[1].version, pair[0].version));
        }
        if pair[1].date.is_none() {
            note(CHANGELOG, pair[1].at, "only the first section may be unreleased".to_owned());
        }
    }
    let number = first.version.to_string();
    let (line, version) = manifest_line(&files[MANIFEST])?;
    if version != number {
        note(MANIFEST, line, format!("version {version}, and the changelog's newest section is of {number}"));
    }
    let members = members(&files[LOCKS[0]]);
    for lock in LOCKS {
        for (line, version) in locked(&files[lock], &members).into_iter().filter(|(_, version)| *version != number) {
            note(lock, line, format!("version {version}, and {MANIFEST} has {number}: cargo update --workspace --offline"));
        }
    }
    let newest = sections.iter().find(|section| section.date.is_some());
    for place in &PLACES {
        let text = place.text(newest);
        if files[place.path].matches(&text).count() != 1 {
            note(place.path, 0, format!("must say once: {text}"));
        }
    }
    for (line, since) in parameters_since(&files[PARAMETERS]) {
        if since > (first.version.major, first.version.minor) {
            note(PARAMETERS, line, format!("a parameter is there since {}.{}, and the tree is {number}", since.0, since.1));
        }
    }
    Ok(findings)
}

/// Line and version of the workspace.
fn manifest_line(manifest: &str) -> Result<(usize, &str)> {
    let mut lines = manifest.lines().enumerate().skip_while(|(_, line)| *line != "[workspace.package]");
    let found = lines.find_map(|(at, line)| Some((at, line.strip_prefix("version = \"")?.strip_suffix('"')?)));
    found.with_context(|| format!("{MANIFEST} has no version of the workspace"))
}

/// A package of a lock file.
#[derive(Default)]
struct LockedPackage<'t> {
    name: &'t str,
    version: &'t str,
    version_line: usize,
    /// True for one of a registry.
    is_foreign: bool,
}

fn packages(lock: &str) -> Vec<LockedPackage<'_>> {
    let mut found: Vec<LockedPackage> = Vec::new();
    for (at, line) in lock.lines().enumerate() {
        if line == "[[package]]" {
            found.push(LockedPackage::default());
        }
        let (Some(package), Some((key, value))) = (found.last_mut(), line.split_once(" = ")) else { continue };
        let value = value.trim_matches('"');
        match key {
            "name" => package.name = value,
            "version" => (package.version, package.version_line) = (value, at),
            "source" => package.is_foreign = true,
            _ => {}
        }
    }
    found
}

/// Names of the workspace's packages.
fn members(lock: &str) -> Vec<String> {
    packages(lock).into_iter().filter(|package| !package.is_foreign).map(|package| package.name.to_owned()).collect()
}

/// Lines and versions of the workspace's packages.
fn locked<'t>(lock: &'t str, members: &[String]) -> Vec<(usize, &'t str)> {
    let is_own = |package: &LockedPackage| !package.is_foreign && members.iter().any(|member| member == package.name);
    packages(lock).into_iter().filter(is_own).map(|package| (package.version_line, package.version)).collect()
}

/// Lines of parameters that are Weir's own, with the version that brought each.
fn parameters_since(page: &str) -> Vec<(usize, (u32, u32))> {
    let since = |line: &str| {
        let (_, rest) = line.split_once(SINCE)?;
        let (major, minor) = rest.split_once(' ')?.0.split_once('.')?;
        Some((major.parse().ok()?, minor.parse().ok()?))
    };
    page.lines().enumerate().filter_map(|(at, line)| Some((at, since(line)?))).collect()
}

/// Packages of another version, which `cargo xtask dist` made before.
fn strange_packages(names: &[String], version: Version) -> Vec<Finding> {
    let kinds = [".deb", ".rpm", ".tar.xz", ".cdx.json"];
    let packages = names.iter().filter(|name| kinds.iter().any(|kind| name.ends_with(kind)));
    // Debian's names have `_` before the version, all others `-`.
    let is_of = |name: &str| {
        [format!("_{version}-"), format!("-{version}-"), format!("-{version}.")].iter().any(|part| name.contains(part))
    };
    let strange = packages.filter(|name| !is_of(name));
    strange
        .map(|name| {
            Finding::new(&format!("{PACKAGES}/{name}"), 1, format!("is not of {version}: cargo xtask dist makes it anew"))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    /// A copy of the files that name versions; dropping it removes them.
    struct Copy(PathBuf);

    impl Drop for Copy {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn copy(name: &str) -> Copy {
        let folder = std::env::temp_dir().join(format!("weir-release-{name}-{}", std::process::id()));
        for (path, text) in read_all(crate::root()).unwrap() {
            let to = folder.join(path);
            fs::create_dir_all(to.parent().unwrap()).unwrap();
            fs::write(to, text).unwrap();
        }
        Copy(folder)
    }

    fn said(root: &Path, wanted: Option<&str>) -> Vec<String> {
        let wanted = wanted.map(|wanted| wanted.parse().unwrap());
        find(root, wanted).unwrap().iter().map(ToString::to_string).collect()
    }

    fn write(root: &Path, path: &str, change: impl FnOnce(String) -> String) {
        let text = fs::read_to_string(root.join(path)).unwrap();
        let changed = change(text.clone());
        assert_ne!(changed, text, "{path}");
        fs::write(root.join(path), changed).unwrap();
    }

    fn unreleased(copy: &Copy, version: &str) {
        write(&copy.0, CHANGELOG, |text| text.replacen(SECTION, &format!("{UNRELEASED}{version}\n\n- New.\n\n{SECTION}"), 1));
    }

    #[test]
    fn a_tree_is_released_twice_and_agrees_each_time() {
        let copy = copy("twice");
        let root = &copy.0;
        assert_eq!(said(root, None), [""; 0], "the tree of now");
        let before = said(root, Some("7.0.0"));
        assert!(before.len() == 1 && before[0].starts_with("CHANGELOG.md:"), "{before:?}");
        let is_new = fs::read_to_string(root.join(CHANGELOG)).unwrap().contains(UNRELEASED);
        if !is_new {
            unreleased(&copy, "7.0.0");
            write(root, MANIFEST, |text| with_line(&text, manifest_line(&text).unwrap().0, "version = \"7.0.0\""));
            for lock in LOCKS {
                write(root, lock, |text| {
                    let members = members(&text);
                    locked(&text, &members)
                        .iter()
                        .fold(text.clone(), |all, (line, _)| with_line(&all, *line, "version = \"7.0.0\""))
                });
            }
        }
        release(root, "7.0.0".parse().unwrap(), "2030-01-31").unwrap();
        assert_eq!(said(root, Some("7.0.0")), [""; 0]);
        let text = |path: &str| fs::read_to_string(root.join(path)).unwrap();
        assert!(text(CHANGELOG).contains("\n## 7.0.0, 2030-01-31\n"));
        assert!(text("README.md").contains("its newest release is 7.0.0, of 2030-01-31."));
        assert!(text("deploy/kubernetes/weir.yaml").contains("image: weir:7.0.0\n"));
        assert!(text("Cargo.lock").contains("name = \"weir-wire\"\nversion = \"7.0.0\"\n"));
        let again = release(root, "7.0.1".parse().unwrap(), "2030-02-01").unwrap_err().to_string();
        assert!(again.contains("nothing to release since 7.0.0"), "{again}");

        unreleased(&copy, "7.0.0");
        assert!(release(root, "7.1.0".parse().unwrap(), "2030-02-01").is_err(), "7.0.0 stands there twice");
        write(root, CHANGELOG, |text| text.replace(&format!("{UNRELEASED}7.0.0"), &format!("{UNRELEASED}7.1.0")));
        let lines = said(root, None);
        assert!(lines[0].starts_with("Cargo.toml:7: version 7.0.0, "), "{lines:?}");
    }

    #[test]
    fn a_place_that_names_another_version_is_found() {
        let copy = copy("places");
        let root = &copy.0;
        write(root, MANIFEST, |text| with_line(&text, manifest_line(&text).unwrap().0, "version = \"6.5.4\""));
        write(root, "fuzz/Cargo.lock", |text| {
            let line = locked(&text, &["weir-wire".to_owned()])[0].0;
            with_line(&text, line, "version = \"6.5.3\"")
        });
        write(root, "SECURITY.md", |text| text.replace("release", "number"));
        write(root, PARAMETERS, |text| text + "| `new_one` | flag | `off` | reload | Weir 900.1 | No. |\n");
        let lines = said(root, None);
        for (path, part) in [
            ("Cargo.toml", "version 6.5.4, and the changelog"),
            ("fuzz/Cargo.lock", "version 6.5.3, and Cargo.toml has"),
            ("SECURITY.md", "must say once: "),
            (PARAMETERS, "a parameter is there since 900.1"),
        ] {
            assert!(lines.iter().any(|line| line.starts_with(path) && line.contains(part)), "{path}: {lines:?}");
        }
        assert!(lines.iter().all(|line| !line.starts_with("Cargo.lock")), "{lines:?}");
        assert!(release(root, "6.5.4".parse().unwrap(), "2030-01-31").is_err(), "a tree that disagrees is not released");
    }

    #[test]
    fn words_that_are_no_version_or_date_are_refused() {
        for text in ["", "1", "1.2", "1.2.3.4", "1.2.x", "v1.2.3", "1.2.+3", "1.2.", "1.2.99999999999"] {
            assert!(text.parse::<Version>().is_err(), "{text}");
        }
        assert!("0.10.0".parse::<Version>().unwrap() > "0.9.9".parse().unwrap());
        assert!(is_date("2026-12-01") && !is_date("2026-12-1") && !is_date("1.12.2026 "));
        for heading in ["## Later", "## 0.2.0", "## 0.2.0, soon", "## Unreleased: x"] {
            assert!(sections(heading).is_err(), "{heading}");
        }
    }

    #[test]
    fn packages_of_another_version_are_found() {
        let names = [
            "weir_0.2.0-1_amd64.deb",
            "weir-0.2.0-1.x86_64.rpm",
            "weir-0.2.0.cdx.json",
            "weir-0.2.0-x86_64-linux.tar.xz",
            "SHA256SUMS",
        ];
        let names = names.map(str::to_owned);
        assert_eq!(strange_packages(&names, "0.2.0".parse().unwrap()), []);
        assert_eq!(strange_packages(&names, "0.2.1".parse().unwrap()).len(), 4);
    }
}
