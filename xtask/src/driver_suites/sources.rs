//! Fetches the suites, in the versions the driver tests pin: asyncpg's from its source archive in the package index, pgx's from its
//! module. Through the languages' ordinary clients, once, to `target/driver-suites`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;
use weir_demo::Server;

use super::stage::Stage;

/// Where the driver tests pin their versions.
const PINS: &str = "crates/weir/tests/drivers";
/// Packages that asyncpg's tests need beside it, and that pip needs to look into its archive: pip asks a source archive for its
/// name.
const BESIDE_ASYNCPG: [&str; 2] = ["distro==1.9.0", "setuptools==80.9.0"];
/// Runs the tests and prints verdicts.
const RUNNER: &str = include_str!("run_unittest.py");
/// Modules of asyncpg's tests that look at its sources and at the machine.
const NOT_OF_SERVERS: [&str; 2] = ["test__sourcecode", "test__environment"];

const PGX: &str = "github.com/jackc/pgx/v5";
/// The package in the folder of pgx's module itself.
pub const PGX_ROOT: &str = "pgx";
const PGX_DATABASE: &str = "pgx_test";
/// Objects of pgx's `testsetup/postgresql_setup.sql`, for those of its tests that get a connection string here.
const PGX_SET_UP: [&str; 6] = [
    "create extension hstore",
    "create extension ltree",
    "create domain uint64 as numeric(20,0)",
    "create user pgx_md5 with superuser password 'secret'",
    "create user root with superuser",
    "create user \" tricky, ' } \"\" \\ test user \" superuser password 'secret'",
];

/// A suite that lies on this machine.
pub struct Fetched {
    folder: PathBuf,
    language: Language,
}

enum Language {
    Python,
    Go,
}

/// asyncpg as it is installed by its users, and the tests of its source archive.
pub fn fetch_asyncpg() -> Result<Fetched> {
    let pins = fs::read_to_string(crate::root().join(PINS).join("python/requirements.txt"))?;
    let asyncpg = pins.lines().find(|line| line.starts_with("asyncpg==")).context("no version of asyncpg is pinned")?;
    let version = run(Command::new("python3").arg("--version"))?;
    let folder = fetch_once("asyncpg", &format!("{version}{asyncpg} {}", BESIDE_ASYNCPG.join(" ")), |folder| {
        run(Command::new("python3").args(["-m", "venv"]).arg(folder.join("venv")))?;
        let pip = |arguments: &[&str]| {
            let mut command = python(folder);
            command.args(["-m", "pip", "--quiet", "--disable-pip-version-check"]).args(arguments).arg(asyncpg);
            run(command.current_dir(folder))
        };
        pip(&[&["install", "--only-binary=:all:"][..], &BESIDE_ASYNCPG].concat())?;
        pip(&["download", "--no-deps", "--no-build-isolation", "--no-binary=:all:"])?;
        let archive = asyncpg.replace("==", "-");
        let mut tar = Command::new("tar");
        tar.arg("xf").arg(format!("{archive}.tar.gz")).arg("--strip-components=1").arg(format!("{archive}/tests"));
        run(tar.current_dir(folder)).map(drop)
    })?;
    fs::write(folder.join("run_unittest.py"), RUNNER)?;
    Ok(Fetched { folder, language: Language::Python })
}

/// A copy of pgx's module, which `go test` may write to, with the files that its tests need.
pub fn fetch_pgx() -> Result<Fetched> {
    let version = run(Command::new("go").arg("version"))?;
    let pins = crate::root().join(PINS).join("go");
    let folder = fetch_once("pgx", &format!("{version}{}", fs::read_to_string(pins.join("go.mod"))?), |folder| {
        let said = run(go(folder).args(["mod", "download", "-json", PGX]).current_dir(&pins))?;
        let said: Value = serde_json::from_str(&said).context("go does not say where it put pgx")?;
        let module = said["Dir"].as_str().context("go does not say where it put pgx")?;
        run(Command::new("cp").args(["-r", module]).arg(folder.join("pgx")))?;
        run(Command::new("chmod").args(["-R", "u+w"]).arg(folder.join("pgx")))?;
        run(go(folder).args(["mod", "download"]).current_dir(folder.join("pgx"))).map(drop)
    })?;
    Ok(Fetched { folder, language: Language::Go })
}

impl Fetched {
    /// Modules or packages with tests.
    pub fn parts(&self) -> Result<Vec<String>> {
        match self.language {
            Language::Python => {
                let names = fs::read_dir(self.folder.join("tests"))?.flatten();
                let names = names.map(|entry| entry.file_name().to_string_lossy().into_owned());
                let is_module = |name: &String| name.starts_with("test_") && !NOT_OF_SERVERS.contains(&name.as_str());
                let modules = names.filter_map(|name| name.strip_suffix(".py").map(str::to_owned));
                let mut modules: Vec<String> = modules.filter(is_module).collect();
                modules.sort();
                Ok(modules)
            }
            Language::Go => {
                let form = "{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}";
                let listed = run(go(&self.folder).args(["list", "-f", form, "./..."]).current_dir(self.folder.join("pgx")))?;
                let parts = listed.lines().filter_map(|line| line.strip_prefix(PGX)).map(|part| part.trim_start_matches('/'));
                Ok(parts.map(|part| if part.is_empty() { PGX_ROOT } else { part }.to_owned()).collect())
            }
        }
    }

    /// Makes the objects that the suite wants to find on a server.
    pub fn set_up(&self, server: &Server) -> Result<()> {
        match self.language {
            Language::Python => Ok(()),
            Language::Go => {
                server.query(&format!("create database {PGX_DATABASE}"))?;
                let mut sql = server.connect("postgres", PGX_DATABASE)?;
                for text in PGX_SET_UP {
                    sql.query(text).with_context(|| format!("cannot set up: {text}"))?;
                }
                Ok(())
            }
        }
    }

    /// The program that runs tests against the stage; those are its arguments.
    pub fn command(&self, stage: &Stage) -> Command {
        let port = stage.port();
        // The program ends with this one.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL"]);
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("PG")) {
            command.env_remove(name);
        }
        match self.language {
            Language::Python => {
                command.arg(python(&self.folder).get_program()).args(["-B", "run_unittest.py"]).current_dir(&self.folder);
                command.env("PGHOST", "127.0.0.1").env("PGPORT", port.to_string());
                command.env("PGUSER", "postgres").env("PGDATABASE", "postgres");
            }
            Language::Go => {
                let tool = go(&self.folder);
                command.arg(tool.get_program()).current_dir(self.folder.join("pgx"));
                command.envs(tool.get_envs().filter_map(|(name, value)| Some((name, value?))));
                let by_tcp = format!("host=127.0.0.1 port={port} user=pgx_md5 password=secret dbname={PGX_DATABASE}");
                let by_socket = format!("host={} port={port} user=pgx_md5 dbname={PGX_DATABASE}", stage.socket_dir().display());
                command.env("PGX_TEST_DATABASE", &by_tcp).env("PGX_TEST_TCP_CONN_STRING", &by_tcp);
                command.env("PGX_TEST_UNIX_SOCKET_CONN_STRING", by_socket);
            }
        }
        command
    }
}

fn python(folder: &Path) -> Command {
    Command::new(folder.join("venv/bin/python"))
}

/// With files that may be removed, as everything in `target`, and no other version of Go than the one that is installed.
fn go(folder: &Path) -> Command {
    let mut command = Command::new("go");
    command.env("GOMODCACHE", folder.join("modules")).env("GOFLAGS", "-modcacherw").env("GOTOOLCHAIN", "local");
    command
}

/// Fetches a suite unless it is there as wanted.
fn fetch_once(name: &str, wanted: &str, fetch: impl FnOnce(&Path) -> Result<()>) -> Result<PathBuf> {
    let folder = crate::target_folder()?.join("driver-suites").join(name);
    let mark = folder.join("fetched");
    if fs::read_to_string(&mark).is_ok_and(|is| is == wanted) {
        return Ok(folder);
    }
    println!("driver-suites: fetching {name}");
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder)?;
    fetch(&folder)?;
    // Last, so that an interrupted fetch is begun anew.
    fs::write(mark, wanted)?;
    Ok(folder)
}

/// Runs a command and returns its output. Error: it is missing or failed; with the end of its output.
fn run(command: &mut Command) -> Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().with_context(|| format!("cannot run {name}; is it installed?"))?;
    if !output.status.success() {
        let words = String::from_utf8_lossy(&output.stderr);
        bail!("{name} failed: {}", words.lines().last().unwrap_or("it said nothing"));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
