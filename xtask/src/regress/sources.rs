//! Fetches the suite: tests and data from Debian's source package of the installed PostgreSQL, and the headers to build the
//! modules of the tests. Through the ordinary package client, with a configuration of its own, so that the system's stays as it
//! is.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use weir_demo::Programs;

/// Where the system lists its package archives.
const SYSTEM_LISTS: [&str; 2] = ["/etc/apt/sources.list", "/etc/apt/sources.list.d"];
/// Modules that the tests load, beside those that are built: from the server's own contributed modules.
const MODULES: [&str; 2] = ["autoinc.so", "refint.so"];

/// Contributed modules whose own suites are run too: those that need only themselves and Debian's package.
const CONTRIBUTED: [&str; 17] = [
    "btree_gin",
    "btree_gist",
    "citext",
    "cube",
    "earthdistance",
    "fuzzystrmatch",
    "hstore",
    "intarray",
    "isn",
    "lo",
    "ltree",
    "pg_trgm",
    "pgstattuple",
    "seg",
    "tablefunc",
    "tsm_system_rows",
    "unaccent",
];
/// Where the suites lie in the sources, beside the modules'.
const MAIN_FOLDER: &str = "src/test/regress";
const PLPGSQL_FOLDER: &str = "src/pl/plpgsql/src";
/// Sources that another edition of this file fetched are fetched again.
const EDITION: &str = "2";

/// The suite of one module.
#[derive(Debug)]
pub struct Module {
    pub name: String,
    /// Folders `sql`, `expected`, perhaps `data`.
    pub input: PathBuf,
    pub tests: Vec<String>,
}

/// The suite, as a run needs it.
#[derive(Debug)]
pub struct Suite {
    pub programs: Programs,
    /// The suite's own driver.
    pub driver: PathBuf,
    /// Folders `sql`, `expected`, `data`, and the schedule.
    pub input: PathBuf,
    /// Libraries the tests load.
    pub libraries: PathBuf,
    /// The suites of modules, run after the main one, each in a database of its own.
    pub modules: Vec<Module>,
}

/// Fetches and builds missing parts. Error: not Debian's PostgreSQL, no network, no compiler.
pub fn fetch(programs: &Programs) -> Result<Suite> {
    let major = programs.major();
    let library = programs.bin().parent().context("programs lie in a folder bin")?.join("lib");
    let driver = library.join("pgxs/src/test/regress/pg_regress");
    ensure!(driver.is_file(), "there is no {}: only Debian's packages of PostgreSQL have the suite's driver", driver.display());
    let place = crate::target_folder()?.join("regress").join(major.to_string());
    if !fs::read_to_string(place.join("whole")).is_ok_and(|edition| edition == EDITION) {
        let _ = fs::remove_dir_all(&place);
        fetch_into(&place, major, &library)?;
        fs::write(place.join("whole"), EDITION)?;
    }
    let names = CONTRIBUTED.into_iter().chain(["plpgsql"]);
    let modules = names.map(|name| module(name, &place)).collect::<Result<_>>()?;
    Ok(Suite { programs: programs.clone(), driver, input: place.join("input"), libraries: place.join("lib"), modules })
}

/// A suite that somebody has laid into a folder, without a driver and modules. Libraries of its tests may lie in its folder `lib`.
pub fn of_folder(programs: &Programs, folder: &Path) -> Result<Suite> {
    ensure!(folder.join("sql/test_setup.sql").exists(), "{} is no suite: it has no sql/test_setup.sql", folder.display());
    let libraries = folder.join("lib");
    fs::create_dir_all(&libraries)?;
    let input = fs::canonicalize(folder)?;
    Ok(Suite { programs: programs.clone(), driver: PathBuf::new(), input, libraries, modules: Vec::new() })
}

/// `library`: where the server's own modules are.
fn fetch_into(place: &Path, major: u32, library: &Path) -> Result<()> {
    let (input, libraries) = (place.join("input"), place.join("lib"));
    fs::create_dir_all(&input)?;
    fs::create_dir_all(&libraries)?;
    println!("regress: fetching the suite of PostgreSQL {major}");
    let apt = Apt::configure(&place.join("apt"))?;
    unpack_sources(&apt, place, major)?;
    let tree = place.join(MAIN_FOLDER);
    for part in ["sql", "expected", "data", "parallel_schedule"] {
        fs::rename(tree.join(part), input.join(part)).with_context(|| format!("the source package has no {part}"))?;
    }
    let headers = headers(&apt, place, major)?;
    build(&tree.join("regress.c"), &headers, &libraries.join("regress.so"))?;
    for module in MODULES {
        fs::copy(library.join(module), libraries.join(module)).with_context(|| format!("no {module}"))?;
    }
    Ok(())
}

/// The suite of a module. Its tests stand in its makefile, in their order.
fn module(name: &str, place: &Path) -> Result<Module> {
    let input = place.join(if name == "plpgsql" { PLPGSQL_FOLDER.to_owned() } else { format!("contrib/{name}") });
    let makefile = fs::read_to_string(input.join("Makefile")).with_context(|| format!("the sources have no {name}"))?;
    let tests = tests_of(&makefile);
    ensure!(!tests.is_empty(), "the makefile of {name} names no tests");
    Ok(Module { name: name.to_owned(), input, tests })
}

fn tests_of(makefile: &str) -> Vec<String> {
    let joined = makefile.replace("\\\n", " ");
    let lines = joined.lines().filter_map(|line| line.strip_prefix("REGRESS = "));
    lines.flat_map(str::split_whitespace).map(str::to_owned).collect()
}

/// The package client with folders and lists of archives of its own.
struct Apt {
    options: Vec<String>,
}

impl Apt {
    fn configure(folder: &Path) -> Result<Apt> {
        for part in ["lists/partial", "cache/archives/partial", "sources"] {
            fs::create_dir_all(folder.join(part))?;
        }
        let mut count = 0;
        for path in system_lists() {
            let Ok(text) = fs::read_to_string(&path) else { continue };
            let extension = path.extension().and_then(|e| e.to_str()).unwrap_or_default();
            fs::write(folder.join(format!("sources/{count}.{extension}")), with_sources(&text))?;
            count += 1;
        }
        ensure!(count > 0, "this system has no package archives of Debian's kind");
        let shown = folder.display();
        let options = [
            "Dir::Etc::SourceList=/dev/null".to_owned(),
            format!("Dir::Etc::SourceParts={shown}/sources"),
            format!("Dir::State::Lists={shown}/lists"),
            format!("Dir::Cache={shown}/cache"),
            "Acquire::Retries=1".to_owned(),
            "Acquire::http::Timeout=20".to_owned(),
            // As root it would else fetch as a user who cannot write here.
            "APT::Sandbox::User=root".to_owned(),
        ];
        let apt = Apt { options: options.to_vec() };
        // An archive that cannot be reached may be one we do not need.
        let _ = apt.run("apt-get", folder, &["--quiet", "update"]);
        Ok(apt)
    }

    fn run(&self, program: &str, folder: &Path, arguments: &[&str]) -> Result<String> {
        let mut command = Command::new(program);
        for option in &self.options {
            command.args(["-o", option]);
        }
        run(command.args(arguments).current_dir(folder))
    }
}

fn system_lists() -> Vec<PathBuf> {
    let mut paths = vec![PathBuf::from(SYSTEM_LISTS[0])];
    let parts = fs::read_dir(SYSTEM_LISTS[1]).into_iter().flatten().flatten().map(|entry| entry.path());
    paths.extend(parts.filter(|path| path.extension().is_some_and(|e| e == "list" || e == "sources")));
    paths.retain(|path| path.exists());
    paths
}

/// A list of archives that names their source packages too, in either form such a list can have.
fn with_sources(text: &str) -> String {
    let mut lines = Vec::new();
    for line in text.lines() {
        match line.strip_prefix("deb ") {
            Some(rest) => lines.extend([line.to_owned(), format!("deb-src {rest}")]),
            None if line.trim_end() == "Types: deb" => lines.push("Types: deb deb-src".to_owned()),
            None => lines.push(line.to_owned()),
        }
    }
    lines.join("\n") + "\n"
}

/// The suites' folders of some release of this major version: archives list releases whose files are gone, so all are tried.
fn unpack_sources(apt: &Apt, place: &Path, major: u32) -> Result<()> {
    let package = format!("postgresql-{major}");
    let listed = apt.run("apt-cache", place, &["showsrc", &package])?;
    let versions: Vec<&str> = listed.lines().filter_map(|line| line.strip_prefix("Version: ")).collect();
    let downloads = place.join("download");
    fs::create_dir_all(&downloads)?;
    let mut refused = anyhow::anyhow!("no archive lists the sources of {package}");
    for version in versions.iter().rev() {
        let wanted = format!("{package}={version}");
        match apt.run("apt-get", &downloads, &["--quiet", "--download-only", "source", &wanted]) {
            Ok(_) => return unpack(&downloads, place),
            Err(error) => refused = error,
        }
    }
    Err(refused)
}

fn unpack(downloads: &Path, place: &Path) -> Result<()> {
    let names = fs::read_dir(downloads)?.flatten().map(|entry| entry.path());
    let archive = names
        .into_iter()
        .find(|path| path.to_string_lossy().contains(".orig.tar") && path.extension().is_some_and(|e| e != "asc"));
    let archive = archive.context("the source package has no archive")?;
    let mut tar = Command::new("tar");
    tar.arg("xf").arg(&archive).args(["--strip-components=1", "--wildcards", "*/contrib/*"]);
    tar.args([MAIN_FOLDER, PLPGSQL_FOLDER].map(|folder| format!("*/{folder}/*")));
    run(tar.current_dir(place))?;
    Ok(fs::remove_dir_all(downloads)?)
}

/// The server's headers: installed, or out of their package.
fn headers(apt: &Apt, place: &Path, major: u32) -> Result<PathBuf> {
    let below = PathBuf::from(format!("usr/include/postgresql/{major}/server"));
    let installed = Path::new("/").join(&below);
    if installed.join("postgres.h").exists() {
        return Ok(installed);
    }
    let package = format!("postgresql-server-dev-{major}");
    apt.run("apt-get", place, &["--quiet", "download", &package])?;
    let names = fs::read_dir(place)?.flatten().map(|entry| entry.path());
    let file = names.into_iter().find(|path| path.extension().is_some_and(|e| e == "deb")).context("no package was fetched")?;
    run(Command::new("dpkg-deb").arg("-x").arg(&file).arg(place.join("headers")))?;
    Ok(place.join("headers").join(below))
}

fn build(source: &Path, headers: &Path, library: &Path) -> Result<()> {
    let mut cc = Command::new("cc");
    cc.args(["-O1", "-fPIC", "-shared", "-w", "-I"]).arg(headers).arg("-o").arg(library).arg(source);
    run(&mut cc).map(drop)
}

/// Runs a command and returns its output. Error: it is missing or failed; with its output.
fn run(command: &mut Command) -> Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().with_context(|| format!("cannot run {name}; is it installed?"))?;
    if !output.status.success() {
        let words = String::from_utf8_lossy(&output.stderr);
        bail!("{name} failed: {}", words.lines().last().unwrap_or("it said nothing"));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_stand_in_the_makefile() {
        assert_eq!(tests_of("A = b\nREGRESS = init a \\\n\tb\nREGRESS_OPTS = x\n"), ["init", "a", "b"]);
    }

    #[test]
    fn source_packages_are_listed_beside_the_others() {
        assert_eq!(with_sources("# a\ndeb [x] u s main\n"), "# a\ndeb [x] u s main\ndeb-src [x] u s main\n");
        assert_eq!(with_sources("Types: deb\nURIs: u\n"), "Types: deb deb-src\nURIs: u\n");
    }
}
