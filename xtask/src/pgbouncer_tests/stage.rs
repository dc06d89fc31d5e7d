//! The place where PgBouncer's tests run: their sources, a program under PgBouncer's name, an ordinary user.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use weir_demo::Programs;

use super::Program;
use super::network::{self, Network};
use super::results::{self, Test};
use crate::children;
use crate::debian::Source;
use crate::process::{self, Account};

/// The packages of the tests, with which PgBouncer 1.24 itself passes all: not so with the compiled `psycopg` or with 3.2. `pytest` 9 refuses marks
/// of fixtures.
const PACKAGES: [&str; 6] = [
    "psycopg==3.1.20",
    "pytest==8.3.5",
    "pytest-asyncio==0.25.3",
    "pytest-timeout==2.3.1",
    "pytest-xdist==3.6.1",
    "filelock==3.18.0",
];
const NAMES: &str = include_str!("names.py");
const TEXTS: &str = include_str!("texts.json");
const WRAPPER: &str = include_str!("pgbouncer.sh");
/// Added to the tests' own configuration.
const HOOKS: &str = "\nfrom .names import pytest_collection_modifyitems, pytest_runtest_logreport, pytest_runtest_makereport\n";
/// Has older OpenSSL make certificates of X.509 version 3, as 3.2 and later do in any case.
const EXTENSIONS: &str = "basicConstraints = CA:FALSE\n";
const FETCH_LIMIT: Duration = Duration::from_secs(300);
const NAMES_LIMIT: Duration = Duration::from_secs(60);
/// A whole run takes a quarter of an hour on two cores.
const RUN_LIMIT: Duration = Duration::from_secs(90 * 60);
/// As configure writes it, where TLS is there.
const CONFIG: &str = "tls_support = yes\n";
/// A program that an ordinary user may run: others may lie in a folder of their owner's.
const PYTHON: &str = "/usr/bin/python3";

/// See the module. Dropping it ends all that tests have begun.
pub struct Stage {
    work: PathBuf,
    programs: Programs,
    account: Account,
    network: Network,
    program: Program,
}

/// Installs the packages below `place` if they are not there, and gives the folder that they are imported from.
pub fn fetch_packages(place: &Path) -> Result<PathBuf> {
    let (folder, mark) = (place.join("python"), place.join("python/fetched"));
    let wanted = format!("{}{}", run(Command::new(PYTHON).arg("--version"))?, PACKAGES.join(" "));
    if !fs::read_to_string(&mark).is_ok_and(|is| is == wanted) {
        println!("pgbouncer-tests: fetching packages");
        let _ = fs::remove_dir_all(&folder);
        run(Command::new(PYTHON).args(["-m", "venv"]).arg(&folder))?;
        let mut pip = Command::new(folder.join("bin/python"));
        pip.args(["-m", "pip", "--quiet", "--disable-pip-version-check", "install", "--only-binary=:all:"]).args(PACKAGES);
        run(&mut pip)?;
        // Last, so that an interrupted fetch is begun anew.
        fs::write(&mark, wanted)?;
    }
    let versions = fs::read_dir(folder.join("lib"))?.flatten().map(|entry| entry.path().join("site-packages"));
    versions.into_iter().find(|path| path.is_dir()).context("the packages were installed into no folder")
}

impl Stage {
    /// Lays everything out. `site`: the packages. Error: something that the tests need is not installed.
    pub fn prepare(source: &Source, program: Program, site: &Path) -> Result<Stage> {
        // `psycopg` takes the library that comes with `psql`.
        for tool in ["openssl", "psql"] {
            ensure!(Path::new("/usr/bin").join(tool).exists(), "there is no {tool} (Debian: openssl, postgresql-client)");
        }
        // Short, since paths of sockets have 107 bytes.
        let work = std::env::temp_dir().join(format!("weir-pgb-{}", std::process::id()));
        let account = Account::find()?;
        let network = Network::find(account);
        let stage = Stage { work, programs: Programs::find()?, account, network, program };
        children::adopt()?;
        stage.lay_out(source, site)?;
        Ok(stage)
    }

    /// The user of the tests may enter neither cargo's folder nor that of the packages.
    fn lay_out(&self, source: &Source, site: &Path) -> Result<()> {
        for part in ["results", "stand-in"] {
            fs::create_dir_all(self.work.join(part))?;
        }
        self.write_program("stand-in/sudo", network::SUDO)?;
        let mut copy = Command::new("cp");
        copy.arg("-r").args(["test", "include", "pyproject.toml"].map(|part| source.folder.join(part)));
        run(copy.arg(&self.work))?;
        run(Command::new("cp").arg("-r").arg(site).arg(self.work.join("site")))?;
        fs::write(self.work.join("config.mak"), CONFIG)?;
        let (path, program) = match &self.program {
            Program::Weir(path) => {
                self.write_program("pgbouncer", WRAPPER)?;
                (path, "weir")
            }
            Program::PgBouncer(path) => (path, "pgbouncer"),
        };
        fs::copy(path, self.work.join(program)).with_context(|| format!("cannot copy {}", path.display()))?;
        let tests = self.work.join("test");
        fs::write(tests.join("names.py"), NAMES)?;
        let (library, extensions) = (tests.join("ssl/lib.sh"), tests.join("ssl/extensions"));
        fs::write(&extensions, EXTENSIONS)?;
        let made = fs::read_to_string(&library)?
            .replace("openssl ca -batch", &format!("openssl ca -extfile {} -batch", extensions.display()));
        fs::write(library, made)?;
        fs::write(tests.join("texts.json"), TEXTS)?;
        // Without optimisation a busy machine takes longer than three seconds for a password's hash.
        let utilities = fs::read_to_string(tests.join("utils.py"))?;
        fs::write(tests.join("utils.py"), utilities.replace("\"connect_timeout\", 3)", "\"connect_timeout\", 10)"))?;
        let own = fs::read_to_string(tests.join("conftest.py"))?;
        fs::write(tests.join("conftest.py"), own + HOOKS)?;
        // Certificates are made beside their scripts.
        for part in ["", "results", "test", "test/ssl"] {
            self.account.own(&self.work.join(part))?;
        }
        Ok(())
    }

    fn write_program(&self, name: &str, text: &str) -> Result<()> {
        let path = self.work.join(name);
        fs::write(&path, text)?;
        Ok(fs::set_permissions(&path, Permissions::from_mode(0o755))?)
    }

    /// The names of all tests.
    pub fn names(&self) -> Result<Vec<String>> {
        let output = process::run(self.pytest().args(["--collect-only", "-q", "--color=no"]), NAMES_LIMIT)?;
        ensure!(output.status.success(), "the tests cannot be listed:\n{}\n{}", output.stdout, output.stderr);
        let lines = output.stdout.lines().filter_map(|line| line.strip_prefix("test/"));
        Ok(lines.filter(|line| line.contains("::")).map(str::to_owned).collect())
    }

    /// Runs these tests, or all. Their output is kept in `kept`.
    pub fn play(&self, tests: &[&str], jobs: u32, kept: &Path) -> Result<Vec<Test>> {
        let output = File::create(kept.join("output.txt"))?;
        let mut command = self.pytest();
        command.args(["--numprocesses", &jobs.to_string(), "--color=no"]);
        // A limit that ends within a fixture can end pytest itself, and so can Python 3.11 where it parses sources again to show them.
        command.args(["--override-ini=timeout_func_only=true", "--tb=native"]);
        // The tests' own configuration changes the folder.
        command.args(tests.iter().map(|test| self.work.join("test").join(test)));
        // A file and no pipe: servers keep it open.
        let mut child =
            command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output).spawn().context("cannot run pytest")?;
        let ended = process::wait(&mut child, RUN_LIMIT)?;
        children::end_all()?;
        if ended.is_none() {
            bail!("the tests did not end within {} s, see {}", RUN_LIMIT.as_secs(), kept.display());
        }
        let lines = fs::read_to_string(self.results()).context("no test has ended")?;
        fs::write(kept.join("results.jsonl"), &lines)?;
        Ok(results::read(&lines))
    }

    fn results(&self) -> PathBuf {
        self.work.join("results/lines")
    }

    fn pytest(&self) -> Command {
        let bin = self.programs.bin().display();
        let mut command = self.network.command(self.account);
        command.arg(PYTHON).args(["-m", "pytest", "-p", "no:cacheprovider", "--basetemp"]).arg(self.work.join("t"));
        command.current_dir(&self.work).env_clear();
        let stand_in = self.work.join("stand-in");
        command.env("PATH", format!("{bin}:{}:/usr/bin:/bin:/usr/sbin:/sbin", stand_in.display())).env("LANG", "C.UTF-8");
        command.envs(self.network.variables());
        command.env("HOME", &self.work).env("TMPDIR", &self.work);
        command.env("PYTHONPATH", self.work.join("site")).env("PYTHONDONTWRITEBYTECODE", "1");
        command.env("WEIR_TESTS_RESULTS", self.results());
        let name = match self.program {
            Program::Weir(_) => "weir",
            Program::PgBouncer(_) => "pgbouncer",
        };
        command.env("WEIR_TESTS_PROGRAM", name);
        command
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        if let Err(error) = children::end_all() {
            eprintln!("{error}");
        }
        let _ = fs::remove_dir_all(&self.work);
    }
}

/// Runs a command and returns its output. Error: it is missing or failed; with its output.
fn run(command: &mut Command) -> Result<String> {
    let output = process::run(command, FETCH_LIMIT)?;
    ensure!(output.status.success(), "{command:?} failed:\n{}", output.stderr);
    Ok(output.stdout)
}
