//! The table of packages: which files each has, and where they go in each format.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use super::release_build::BuiltRelease;

/// Names of Pgpool-II's programs that the program understands.
pub const PGPOOL_PROGRAMS: [&str; 18] = [
    "pgpool",
    "pcp_attach_node",
    "pcp_detach_node",
    "pcp_health_check_stats",
    "pcp_invalidate_query_cache",
    "pcp_log_rotate",
    "pcp_node_count",
    "pcp_node_info",
    "pcp_pool_status",
    "pcp_proc_count",
    "pcp_proc_info",
    "pcp_promote_node",
    "pcp_recovery_node",
    "pcp_reload_config",
    "pcp_stop_pgpool",
    "pcp_watchdog_info",
    "pg_enc",
    "pg_md5",
];

/// Folders in which systems differ.
pub struct SystemFolders {
    pub units: &'static str,
    /// Where the system's own package of Pgpool-II has its programs.
    pub pgpool_programs: &'static str,
    pub zsh: &'static str,
    pub fish: &'static str,
}

/// Where the program goes in packages; the units in the sources name `/usr/local/bin`.
const PROGRAM: &str = "/usr/bin/weir";
const AGENT: &str = "/usr/bin/weir-agent";

pub struct PackageFile {
    pub from: FileSource,
    /// From the root.
    pub to: String,
    pub role: FileRole,
}

pub enum FileSource {
    File {
        path: PathBuf,
        mode: u32,
    },
    Text {
        text: String,
        mode: u32,
    },
    /// To a path from the root.
    Link(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileRole {
    Plain,
    /// Stays as the administrator has it.
    Configuration,
}

pub struct Package {
    pub name: &'static str,
    pub summary: &'static str,
    /// Lines of at most 75 letters.
    pub description: &'static [&'static str],
    pub files: Vec<PackageFile>,
    pub links_libraries: LibraryUse,
}

/// The format finds the libraries of a program by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LibraryUse {
    OwnProgram,
    None,
}

pub fn packages(root: &Path, built: &BuiltRelease, folders: &SystemFolders) -> Result<Vec<Package>> {
    Ok(vec![proxy(root, built, folders)?, agent(root, built, folders)?, compatibility(built, folders)?])
}

fn proxy(root: &Path, built: &BuiltRelease, folders: &SystemFolders) -> Result<Package> {
    let mut files = vec![
        file(&built.program, PROGRAM, 0o755),
        PackageFile {
            from: FileSource::File { path: root.join("packaging/pgpool.conf"), mode: 0o640 },
            to: "/etc/weir/pgpool.conf".to_owned(),
            role: FileRole::Configuration,
        },
        unit(root, folders, "weir.service")?,
        unit(root, folders, "weir.socket")?,
        file(&built.sample, "/usr/share/doc/weir/examples/pgpool.conf.sample", 0o644),
        file(&root.join("docs/pool_hba.conf.sample"), "/usr/share/doc/weir/examples/pool_hba.conf.sample", 0o644),
        file(&built.completions.join("bash"), "/usr/share/bash-completion/completions/weir", 0o644),
        file(&built.completions.join("zsh"), &format!("{}/_weir", folders.zsh), 0o644),
        file(&built.completions.join("fish"), &format!("{}/weir.fish", folders.fish), 0o644),
    ];
    for page in built.manual_pages()?.iter().filter(|page| !is_of_agent(page)) {
        files.push(file(&built.manual.join(page), &format!("/usr/share/man/{page}"), 0o644));
    }
    Ok(Package {
        name: "weir",
        summary: "proxy for clusters of PostgreSQL",
        description: &[
            "Weir stands between applications and a primary with its standbys, behind",
            "one port. Reads are spread and writes go to the primary, many clients share",
            "few server connections, repeated reads can be answered from memory, and",
            "when the primary dies a standby takes over while clients stay connected.",
            "It reads a pgpool.conf.",
        ],
        files,
        links_libraries: LibraryUse::OwnProgram,
    })
}

fn agent(root: &Path, built: &BuiltRelease, folders: &SystemFolders) -> Result<Package> {
    let page = "man1/weir-agent.1.gz";
    let files = vec![
        file(&built.program, AGENT, 0o755),
        PackageFile {
            from: FileSource::File { path: root.join("packaging/agent.env"), mode: 0o644 },
            to: "/etc/weir/agent.env".to_owned(),
            role: FileRole::Configuration,
        },
        unit(root, folders, "weir-agent.service")?,
        file(&built.manual.join(page), &format!("/usr/share/man/{page}"), 0o644),
    ];
    Ok(Package {
        name: "weir-agent",
        summary: "agent of Weir beside a PostgreSQL server",
        description: &[
            "The agent stops, starts, rewinds and copies the PostgreSQL server of its",
            "machine when a Weir orders it, so that a primary which was replaced comes",
            "back as a standby. It needs no Weir on the same machine, and does nothing",
            "until /etc/weir/agent.env names a server.",
        ],
        files,
        links_libraries: LibraryUse::OwnProgram,
    })
}

fn compatibility(built: &BuiltRelease, folders: &SystemFolders) -> Result<Package> {
    let mut files = Vec::new();
    let pages = built.manual_pages()?;
    for name in PGPOOL_PROGRAMS {
        files.push(link(PROGRAM, &format!("{}/{name}", folders.pgpool_programs)));
        let page = pages.iter().find(|page| page.ends_with(&format!("-{name}.1.gz")));
        let page = page.map_or("man1/weir.1.gz", String::as_str);
        files.push(link(&format!("/usr/share/man/{page}"), &format!("/usr/share/man/man1/{name}.1.gz")));
    }
    Ok(Package {
        name: "weir-pgpool-compat",
        summary: "Weir under the names of Pgpool-II's programs",
        description: &[
            "Links to Weir by the names pgpool, pcp_*, pg_md5 and pg_enc, for scripts",
            "and units that call Pgpool-II. By each of these names Weir takes the",
            "command line of that program.",
        ],
        files,
        links_libraries: LibraryUse::None,
    })
}

fn is_of_agent(page: &str) -> bool {
    page == "man1/weir-agent.1.gz"
}

fn file(from: &Path, to: &str, mode: u32) -> PackageFile {
    PackageFile { from: FileSource::File { path: from.to_owned(), mode }, to: to.to_owned(), role: FileRole::Plain }
}

fn link(target: &str, to: &str) -> PackageFile {
    PackageFile { from: FileSource::Link(target.to_owned()), to: to.to_owned(), role: FileRole::Plain }
}

fn unit(root: &Path, folders: &SystemFolders, name: &str) -> Result<PackageFile> {
    let text = fs::read_to_string(root.join("packaging").join(name)).with_context(|| format!("cannot read packaging/{name}"))?;
    let from = FileSource::Text { text: packaged_unit(&text), mode: 0o644 };
    Ok(PackageFile { from, to: format!("{}/{name}", folders.units), role: FileRole::Plain })
}

/// Packages have the program elsewhere, and the agent by a name of its own.
fn packaged_unit(text: &str) -> String {
    text.replace("/usr/local/bin/weir agent", AGENT).replace("/usr/local/bin/weir", PROGRAM)
}

/// Copies a package's files into a folder that stands for the root.
pub fn stage(package: &Package, folder: &Path) -> Result<()> {
    for PackageFile { from, to, .. } in &package.files {
        let place = folder.join(to.trim_start_matches('/'));
        let parent = place.parent().context("a file without a folder")?;
        fs::create_dir_all(parent)?;
        ensure!(!place.is_symlink() && !place.exists(), "{}: {to} stands twice in the table", package.name);
        let mode = match from {
            FileSource::File { path, mode } => {
                fs::copy(path, &place).with_context(|| format!("cannot copy {}", path.display()))?;
                mode
            }
            FileSource::Text { text, mode } => {
                fs::write(&place, text)?;
                mode
            }
            FileSource::Link(target) => {
                symlink(relative(target, to), &place)?;
                continue;
            }
        };
        fs::set_permissions(&place, fs::Permissions::from_mode(*mode))?;
    }
    Ok(())
}

/// A link within one folder below the root leads upwards, so that it holds under another root, too.
fn relative(target: &str, from: &str) -> String {
    let (target_parts, from_parts): (Vec<&str>, Vec<&str>) = (target.split('/').collect(), from.split('/').collect());
    let common = target_parts.iter().zip(&from_parts).take_while(|(one, other)| one == other).count();
    let up = from_parts.len() - 1 - common;
    let parts: Vec<&str> = std::iter::repeat_n("..", up).chain(target_parts[common..].iter().copied()).collect();
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_lead_from_their_own_folder() {
        assert_eq!(relative("/usr/bin/weir", "/usr/sbin/pgpool"), "../bin/weir");
        assert_eq!(relative("/usr/bin/weir", "/usr/bin/pgpool"), "weir");
        assert_eq!(relative("/usr/share/man/man1/weir.1.gz", "/usr/share/man/man1/pgpool.1.gz"), "weir.1.gz");
    }

    #[test]
    fn packaged_units_name_the_places_of_packages() {
        for name in ["weir.service", "weir-agent.service", "weir.socket"] {
            let text = fs::read_to_string(crate::root().join("packaging").join(name)).unwrap();
            let text = packaged_unit(&text);
            assert!(!text.contains("/usr/local"), "{name}");
            assert!(
                name == "weir.socket" || text.contains(&format!("ExecStart=/usr/bin/{}", name.trim_end_matches(".service"))),
                "{name}"
            );
        }
    }
}
