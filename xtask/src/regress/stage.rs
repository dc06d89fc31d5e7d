//! One run of the suite: a server of its own, Weir before it or not, the suite's driver.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::Signal;
use weir_demo::{Cluster, Options, ReservedPort, Sql, wait_until};

use super::noise::{self, Noise};
use super::sources::Suite;
use super::translator::Translator;
use super::{PoolMode, Protocol};
use crate::process::{self, Account};

const DATABASE: &str = "regression";
/// A run takes about a minute on two cores; through Weir, with other clients and on a busy machine, many times that.
const RUN_LIMIT: Duration = Duration::from_secs(20 * 60);
const READY_LIMIT: Duration = Duration::from_secs(30);
const STOP_LIMIT: Duration = Duration::from_secs(10);
/// Tests that make what others use.
const FIRST: [&str; 2] = ["test_setup", "create_index"];

/// The suite's answers hang on these. Without autovacuum, plans and sizes are the same in every run.
const SETTINGS: [(&str, &str); 3] = [("autovacuum", "off"), ("max_prepared_transactions", "2"), ("synchronous_commit", "on")];

/// What the driver sets when it makes the database itself.
const DATABASE_SETTINGS: [&str; 6] = [
    "lc_messages TO 'C'",
    "lc_monetary TO 'C'",
    "lc_numeric TO 'C'",
    "lc_time TO 'C'",
    "bytea_output TO 'hex'",
    "timezone_abbreviations TO 'Default'",
];

/// How the tests reach the server.
pub enum Way {
    Direct,
    Weir { program: PathBuf, mode: PoolMode },
}

/// What a run left.
pub struct Results {
    folder: PathBuf,
    /// Tests in the order of their names.
    pub tests: Vec<String>,
    pub seconds: u64,
}

impl Results {
    /// What a test printed; missing if it never ended.
    pub fn file(&self, test: &str) -> PathBuf {
        self.folder.join(format!("{test}.out"))
    }
}

/// Runs the tests, or all of the schedule if none are named, and puts the results into `folder`.
pub fn run(suite: &Suite, way: &Way, protocol: Protocol, tests: &[String], folder: &Path) -> Result<Results> {
    let account = Account::find()?;
    let cluster = start_cluster(suite)?;
    let work = cluster.dir().join("suite");
    lay_out(suite, &work, account)?;
    let (port, proxy) = match way {
        Way::Direct => (cluster.primary().port(), None),
        Way::Weir { program, mode } => {
            let proxy = Proxy::start(program, *mode, &cluster)?;
            (proxy.port.number(), Some(proxy))
        }
    };
    let translator = if protocol == Protocol::Extended { Some(Translator::start(port)?) } else { None };
    let is_moved = matches!(way, Way::Weir { mode: PoolMode::Transaction, .. });
    let noise = if is_moved { Some(Noise::start(port, DATABASE)?) } else { None };
    let begin = Instant::now();
    drive(suite, &work, translator.as_ref().map_or(port, |translator| translator.port), tests, account)?;
    let seconds = begin.elapsed().as_secs();
    if let Some(noise) = noise {
        println!("regress: other clients took a server connection {} times", noise.end()?);
    }
    if let Some(proxy) = proxy {
        proxy.end(folder)?;
    }
    keep(&work.join("out/results"), folder)?;
    let mut tests = Vec::new();
    for entry in fs::read_dir(folder)?.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        tests.extend(name.strip_suffix(".out").map(str::to_owned));
    }
    tests.sort();
    ensure!(!tests.is_empty(), "the suite's driver ran no test: {}", folder.display());
    Ok(Results { folder: folder.to_owned(), tests, seconds })
}

fn start_cluster(suite: &Suite) -> Result<Cluster> {
    let extra_conf = SETTINGS.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
    let cluster = Cluster::start(Options { programs: Some(suite.programs.clone()), extra_conf, ..Options::default() })?;
    cluster.primary().query(&format!("CREATE DATABASE {DATABASE} TEMPLATE template0"))?;
    for setting in DATABASE_SETTINGS {
        cluster.primary().query(&format!("ALTER DATABASE {DATABASE} SET {setting}"))?;
    }
    Ok(cluster)
}

/// Copies the suite to where the server, which reads and writes files there, may enter.
fn lay_out(suite: &Suite, work: &Path, account: Account) -> Result<()> {
    for folder in ["out/results", "out/testtablespace"] {
        fs::create_dir_all(work.join(folder))?;
    }
    copy_tree(&suite.input, &work.join("in"))?;
    copy_tree(&suite.libraries, &work.join("lib"))?;
    for folder in ["", "out", "out/results", "out/testtablespace", "in/data"] {
        account.own(&work.join(folder))?;
    }
    Ok(())
}

fn copy_tree(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_tree(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), &target).with_context(|| format!("cannot copy to {}", target.display()))?;
        }
    }
    Ok(())
}

/// Runs the driver, one test at a time. It fails when a result is not what PostgreSQL's developers expect of this very version; we only
/// compare runs with each other.
fn drive(suite: &Suite, work: &Path, port: u16, tests: &[String], account: Account) -> Result<()> {
    let mut command = Command::new(&suite.driver);
    let path = |option: &str, path: &Path| format!("--{option}={}", path.display());
    command.arg(path("inputdir", &work.join("in"))).arg(path("outputdir", &work.join("out")));
    command.arg(path("dlpath", &work.join("lib"))).arg(path("bindir", suite.programs.bin()));
    command.args(["--use-existing", "--host=127.0.0.1", "--user=postgres", "--max-connections=1"]);
    command.arg(format!("--dbname={DATABASE}")).arg(format!("--port={port}"));
    if tests.is_empty() {
        command.arg(path("schedule", &work.join("in/parallel_schedule")));
    } else {
        command.args(FIRST).args(tests.iter().filter(|test| !FIRST.contains(&test.as_str())));
    }
    // The translator speaks no TLS.
    account.apply(command.env("PGSSLMODE", "disable").current_dir(work.join("out")));
    let output = process::run(&mut command, RUN_LIMIT)?;
    // Its own verdict of each test is a line of this.
    fs::write(work.join("out/results/driver.log"), output.stdout + &output.stderr)?;
    Ok(())
}

/// Moves the results to where they stay after the run.
fn keep(results: &Path, folder: &Path) -> Result<()> {
    copy_tree(results, folder)
}

/// Weir before the server.
struct Proxy {
    child: Child,
    port: ReservedPort,
    log: PathBuf,
}

impl Proxy {
    fn start(program: &Path, mode: PoolMode, cluster: &Cluster) -> Result<Proxy> {
        let port = ReservedPort::any()?;
        let folder = cluster.dir().join("weir");
        fs::create_dir(&folder)?;
        let shown = folder.display();
        let text = format!(
            "listen_addresses = '127.0.0.1'\nport = {}\nunix_socket_directories = '{shown}'\npid_file_name = '{shown}/weir.pid'\n\
             backend_hostname0 = '127.0.0.1'\nbackend_port0 = {}\nsr_check_user = 'postgres'\npool_mode = {}\npool_size = {}\n\
             worker_threads = 1\n",
            port.number(),
            cluster.primary().port(),
            mode.name(),
            noise::CONNECTIONS + 1,
        );
        let conf = folder.join("pgpool.conf");
        fs::write(&conf, text)?;
        let log = folder.join("log");
        let mut command = Command::new(program);
        command.arg("-f").arg(&conf).stdin(Stdio::null());
        command.stdout(File::create(&log)?).stderr(File::options().append(true).open(&log)?);
        let child = command.spawn().with_context(|| format!("cannot run {}", program.display()))?;
        let mut proxy = Proxy { child, port, log };
        wait_until("Weir to let clients in", READY_LIMIT, || {
            ensure!(proxy.child.try_wait()?.is_none(), "Weir does not start:\n{}", fs::read_to_string(&proxy.log)?);
            Ok(Sql::connect_tcp("127.0.0.1", proxy.port.number(), "postgres", "postgres")
                .is_ok_and(|mut sql| sql.query("select 1").is_ok()))
        })?;
        Ok(proxy)
    }

    /// Ends it and keeps its log. Error: it had ended before, or panicked.
    fn end(mut self, folder: &Path) -> Result<()> {
        let ended = self.child.try_wait()?;
        process::stop(&mut self.child, Signal::INT, STOP_LIMIT)?;
        fs::create_dir_all(folder)?;
        let log = String::from_utf8_lossy(&fs::read(&self.log)?).into_owned();
        fs::write(folder.join("weir.log"), &log)?;
        if let Some(status) = ended {
            bail!("Weir ended during the run: {status}");
        }
        ensure!(!log.contains("panicked at"), "Weir panicked, see {}", folder.join("weir.log").display());
        Ok(())
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        // After `end` it is gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
