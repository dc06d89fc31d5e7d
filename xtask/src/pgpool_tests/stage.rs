//! The place where tests run: Weir and PostgreSQL under the names and paths that tests know, an ordinary user, ports that nobody has.

use std::fmt;
use std::fs::{self, File, Permissions};
use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use weir_demo::Programs;

use super::cases::Case;
use crate::children;
use crate::debian::Source;
use crate::dist::PGPOOL_PROGRAMS;
use crate::process::{self, Account};

/// As Debian's package `libpostgresql-jdbc-java` has it.
const JDBC_DRIVER: &str = "/usr/share/java/postgresql.jar";
const BUILD_LIMIT: Duration = Duration::from_secs(60);
/// As Debian's package `pgpool2` has it.
const PGPROTO: &str = "/usr/sbin/pgproto";
const SAMPLES: [&str; 3] = ["pgpool.conf.sample", "pool_hba.conf.sample", "pcp.conf.sample"];
/// Runs a command on this machine, as `ssh -T localhost` would: scripts of `pgpool_setup` start servers by it.
const SSH: &str = "#!/bin/sh\nwhile [ $# -gt 0 ]; do case $1 in -*) shift ;; *) break ;; esac; done\nshift\nexec sh -c \"$*\"\n";
/// Folder of sockets that clients of Pgpool-II look into, and tests name.
const SOCKETS: &str = "/tmp";
/// A test's ports: sixty that tests name, then those of `watchdog_setup`, and of the servers that it makes.
const PORTS_MAX: u16 = 100;
const GROUP_PORTS: u16 = 60;
const GROUP_SERVER_PORTS: u16 = 80;
/// First ports. Below those that systems give to clients.
const FIRST_PORTS: std::ops::Range<u16> = 210..319;

/// See the module. Dropping it ends all that tests have begun.
pub struct Stage {
    work: PathBuf,
    /// Pgpool-II's, by which tests know what they may expect.
    release: String,
    programs: Programs,
    account: Account,
    first_port: u16,
}

/// How a test ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Passed,
    Failed,
    TimedOut,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Verdict::Passed => "passed",
            Verdict::Failed => "failed",
            Verdict::TimedOut => "did not end",
        })
    }
}

impl Stage {
    /// Lays everything out. Error: PostgreSQL is not Debian's, or something that the tests need is not installed.
    pub fn prepare(source: &Source, weir: &Path) -> Result<Stage> {
        let programs = Programs::find()?;
        let extension = format!("/usr/share/postgresql/{}/extension/pgpool_recovery.control", programs.major());
        ensure!(Path::new(&extension).exists(), "there is no {extension} (Debian: postgresql-{}-pgpool2)", programs.major());
        for tool in ["ed", "bc", "setpriv"] {
            let is_there = |folder: &str| Path::new(folder).join(tool).exists();
            ensure!(["/usr/bin", "/bin"].into_iter().any(is_there), "there is no {tool} (Debian: ed, bc, util-linux)");
        }
        let work = std::env::temp_dir().join(format!("weir-pgpool-tests-{}", std::process::id()));
        let stage =
            Stage { work, release: source.release.clone(), programs, account: Account::find()?, first_port: free_ports()? };
        children::adopt()?;
        stage.lay_out(source, weir)?;
        Ok(stage)
    }

    fn lay_out(&self, source: &Source, weir: &Path) -> Result<()> {
        for part in ["installed/bin", "installed/etc", "stand-in", "tests", "home", "scratch", "output"] {
            fs::create_dir_all(self.work.join(part))?;
        }
        // The user of the tests may not enter the folder it was built in.
        let program = self.work.join("weir");
        fs::copy(weir, &program).with_context(|| format!("cannot copy {}", weir.display()))?;
        let installed = self.work.join("installed");
        for name in PGPOOL_PROGRAMS {
            symlink(&program, installed.join("bin").join(name))?;
        }
        symlink("bin", installed.join("sbin"))?;
        // A client of Pgpool-II's that plays messages from a file; some tests beside the expected ones want it.
        let pgproto = installed.join("bin/pgproto");
        if !built(source, &pgproto) {
            symlink(PGPROTO, pgproto)?;
        }
        for name in SAMPLES {
            fs::copy(source.folder.join("src/sample").join(name), installed.join("etc").join(name)).context(name)?;
        }
        self.write_program("installed/bin/pgpool_setup", &self.setup(source, "pgpool_setup")?)?;
        // As many ports for the proxies as there are before those of the servers.
        let apart = format!("$W_BASE_PORT + {}", GROUP_SERVER_PORTS - GROUP_PORTS);
        let groups = self.setup(source, "watchdog_setup")?.replace("$W_BASE_PORT + 1000", &apart);
        self.write_program("installed/bin/watchdog_setup", &groups)?;
        self.write_program("stand-in/ssh", SSH)?;
        // The remaining lines only wait. The others end processes of others by their names.
        let library = fs::read_to_string(source.folder.join("src/test/regression/libs.sh"))?;
        let harmless: Vec<&str> =
            library.lines().filter(|line| !["kill", "ipcrm", "rm -f"].iter().any(|word| line.contains(word))).collect();
        fs::write(self.work.join("libs.sh"), harmless.join("\n") + "\n")?;
        for part in ["", "tests", "home", "scratch", "output"] {
            self.account.own(&self.work.join(part))?;
        }
        Ok(())
    }

    /// `pgpool_setup` or `watchdog_setup`, as `configure` makes it, with servers on this machine's own addresses only.
    fn setup(&self, source: &Source, name: &str) -> Result<String> {
        let template = source.folder.join(format!("src/test/{name}.in"));
        let text = fs::read_to_string(&template).with_context(|| template.display().to_string())?;
        let (bin, work) = (self.programs.bin().display().to_string(), self.work.display().to_string());
        Ok(text
            .replace("@@PGPOOL_INSTALL_DIR@@", &format!("{work}/installed"))
            .replace("@@PGPOOL_CONFIG_DIR@@", &format!("{work}/installed/etc"))
            .replace("@@PGSQL_BIN_DIR@@", &bin)
            .replace("@@PGSQL_LIB_DIR@@", &bin.replace("/bin", "/lib"))
            .replace("listen_addresses = '*'", "listen_addresses = 'localhost'")
            .replace(" /tmp/", &format!(" {work}/scratch/")))
    }

    fn write_program(&self, name: &str, text: &str) -> Result<()> {
        let path = self.work.join(name);
        fs::write(&path, text)?;
        Ok(fs::set_permissions(&path, Permissions::from_mode(0o755))?)
    }

    /// Runs a test to its end, and ends what it leaves behind. Gives its time in seconds.
    pub fn play(&self, case: &Case, limit: Duration) -> Result<(Verdict, u64)> {
        let folder = self.work.join("tests").join(&case.name);
        case.copy_to(&folder, self.first_port)?;
        self.account.own(&folder)?;
        let begin = Instant::now();
        let mut command = Command::new("bash");
        command.arg("./test.sh").current_dir(&folder).env_clear().envs(self.environment());
        // A file and no pipe: servers keep it open.
        let output = File::create(self.work.join("output").join(&case.name))?;
        command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
        self.account.apply(&mut command);
        let mut child = command.spawn().context("cannot run bash")?;
        let ended = process::wait(&mut child, limit)?;
        children::end_all()?;
        self.remove_sockets();
        let verdict = match ended {
            None => Verdict::TimedOut,
            Some(status) if status.success() => Verdict::Passed,
            Some(_) => Verdict::Failed,
        };
        if verdict == Verdict::Passed {
            fs::remove_dir_all(&folder)?;
        }
        Ok((verdict, begin.elapsed().as_secs()))
    }

    fn environment(&self) -> Vec<(&'static str, String)> {
        let (work, bin) = (self.work.display(), self.programs.bin().display());
        vec![
            ("PATH", format!("{work}/stand-in:{work}/installed/bin:{bin}:/usr/bin:/bin")),
            ("LANG", "C".to_owned()),
            ("HOME", format!("{work}/home")),
            ("USER", self.user()),
            ("PGHOST", SOCKETS.to_owned()),
            ("PGSOCKET_DIR", SOCKETS.to_owned()),
            ("BASEPORT", self.first_port.to_string()),
            ("PGBIN", bin.to_string()),
            ("PGLIB", bin.to_string().replace("/bin", "/lib")),
            // The words of `pgpool --version`, the third of which tests read.
            ("PGPOOL_VERSION", format!("pgpool-II version {}", self.release)),
            ("PGVERSION", self.programs.major().to_string()),
            ("PGBENCH_PATH", format!("{bin}/pgbench")),
            ("PGPOOL_INSTALL_DIR", format!("{work}/installed")),
            ("PGPOOLDIR", format!("{work}/installed/etc")),
            ("PGPOOL_SETUP", format!("{work}/installed/bin/pgpool_setup")),
            ("WATCHDOG_SETUP", format!("{work}/installed/bin/watchdog_setup")),
            ("W_BASE_PORT", (self.first_port + GROUP_PORTS).to_string()),
            ("TESTLIBS", format!("{work}/libs.sh")),
            ("ENABLE_TEST", "true".to_owned()),
            ("JDBC_DRIVER", std::env::var("JDBC_DRIVER").unwrap_or_else(|_| JDBC_DRIVER.to_owned())),
        ]
    }

    /// The user who runs the tests, by name.
    fn user(&self) -> String {
        match self.account {
            Account::Ourselves => std::env::var("USER").unwrap_or_default(),
            Account::Other { .. } => "postgres".to_owned(),
        }
    }

    /// All that a test has printed.
    pub fn output(&self, case: &Case) -> Result<String> {
        let bytes = fs::read(self.work.join("output").join(&case.name))?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Leaves the folder of the tests, to look at them.
    pub fn keep(mut self) -> PathBuf {
        std::mem::take(&mut self.work)
    }

    fn remove_sockets(&self) {
        for port in self.first_port..self.first_port + PORTS_MAX {
            for name in [format!(".s.PGSQL.{port}"), format!(".s.PGSQL.{port}.lock")] {
                // Mostly its server has removed it.
                let _ = fs::remove_file(Path::new(SOCKETS).join(name));
            }
        }
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        if let Err(error) = children::end_all() {
            eprintln!("{error}");
        }
        self.remove_sockets();
        if self.work != Path::new("") {
            let _ = fs::remove_dir_all(&self.work);
        }
    }
}

/// Builds the release's own `pgproto`: files of messages are for it. False: there is no compiler, or no libpq to build with.
fn built(source: &Source, to: &Path) -> bool {
    let mut compiler = Command::new("cc");
    compiler.current_dir(source.folder.join("src/tools/pgproto")).args([
        "-w",
        "-I.",
        "-I../../include",
        "-I/usr/include/postgresql",
    ]);
    compiler.args(["buffer.c", "extended_query.c", "fe_memutils.c", "main.c", "read.c", "send.c", "-lpq", "-o"]).arg(to);
    process::run(&mut compiler, BUILD_LIMIT).is_ok_and(|output| output.status.success())
}

/// The first of a test's ports, on none of which anybody listens; a multiple of ten.
fn free_ports() -> Result<u16> {
    let is_free = |port: u16| {
        TcpListener::bind(("127.0.0.1", port)).is_ok() && !Path::new(SOCKETS).join(format!(".s.PGSQL.{port}")).exists()
    };
    // Two that run at the same time begin at different ones.
    let begin = std::process::id() as usize % FIRST_PORTS.len();
    let hundreds = FIRST_PORTS.skip(begin).chain(FIRST_PORTS.take(begin));
    let mut firsts = hundreds.map(|hundred| hundred * PORTS_MAX);
    firsts
        .find(|first| (*first..first + PORTS_MAX).all(is_free))
        .with_context(|| format!("there are no {PORTS_MAX} free ports in a row"))
}
