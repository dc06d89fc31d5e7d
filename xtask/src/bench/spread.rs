//! `cargo xtask spread`: writes of several shards: commits with and without reads of one moment, and COPY beside COPY into one server.
//!
//! All servers share one machine, so that shards bring no machines: the table shows prices.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use weir_demo::{Cluster, Server};

use super::spread_stage::{RunningWeir, SpreadStage, server};
use super::{pgbench, proc, programs, stats};
use crate::process;

const SHARDS: usize = 4;
const ACCOUNTS: u32 = 10_000;
const READERS: u32 = 4;
const COMMITTERS: u32 = 8;
/// Commits on two shards a second, beside the readers.
const COMMITS_A_SECOND: &str = "500";
/// Commits one after another whose flushes are counted.
const COUNTED: u32 = 200;
/// Sessions at rest tell of their flushes within this time.
const TOLD_WITHIN: Duration = Duration::from_millis(11_000);

/// Flushes are counted, and cost what a file in memory costs.
const SETTINGS: [(&str, &str); 7] = [
    ("fsync", "on"),
    ("synchronous_commit", "on"),
    ("shared_buffers", "256MB"),
    ("max_connections", "300"),
    ("max_wal_size", "4GB"),
    ("autovacuum", "off"),
    ("jit", "off"),
];

/// Choice of rounds.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Rounds of all measurements, of which the medians are shown
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Seconds of each measurement of a rate
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=600))]
    seconds: u32,
    /// Megabytes of each COPY
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    megabytes: u32,
    /// Only these measurements
    #[arg(long, value_delimiter = ',', value_enum)]
    only: Vec<SpreadPart>,
    /// Use this binary of Weir instead of building one
    #[arg(long, value_name = "PATH")]
    weir: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum SpreadPart {
    /// Reads of all shards beside commits on two
    Reads,
    /// Commits on two shards
    Commits,
    /// Flushes of a commit
    Flushes,
    /// COPY into all shards, and into one server
    Copy,
}

/// Measures and prints the table.
pub fn run(arguments: &Arguments) -> Result<()> {
    let program = match &arguments.weir {
        Some(path) => path.canonicalize().with_context(|| format!("no program {}", path.display()))?,
        None => programs::build(&["-p", "weir", "--bin", "weir"], "weir")?,
    };
    let stage = Stage::start(&program, arguments)?;
    let mut rows: Vec<Measured> = Vec::new();
    for round in 1..=arguments.rounds {
        eprintln!("round {round} of {}, load {}", arguments.rounds, proc::load_average());
        for (name, value) in stage.round(arguments)? {
            match rows.iter_mut().find(|row| row.name == name) {
                Some(row) => row.values.push(value),
                None => rows.push(Measured { name, values: vec![value] }),
            }
        }
    }
    println!("{}; {SHARDS} shards, {} rounds\n\n| measured | median |\n|---|---|", super::machine(), arguments.rounds);
    for row in &rows {
        println!("| {} | {:.3} |", row.name, stats::spread(&row.values).map_or(0.0, |spread| spread.median));
    }
    Ok(())
}

struct Measured {
    name: &'static str,
    values: Vec<f64>,
}

struct Stage {
    spread: SpreadStage,
    latest: RunningWeir,
    whole: Cluster,
    one: RunningWeir,
    data: PathBuf,
    /// Accounts of shard 0, of shard 1, and one of each shard.
    ids: [Vec<String>; 3],
}

impl Stage {
    fn start(program: &Path, arguments: &Arguments) -> Result<Stage> {
        let spread = SpreadStage::start(program, SHARDS, &SETTINGS)?;
        let whole = server(&SETTINGS)?;
        let tables =
            "create table accounts (id int primary key, balance int not null); create table copied (id int, filler text)";
        for server in [spread.shards().next(), Some(whole.primary())].into_iter().flatten() {
            server.query(tables)?;
        }
        for table in ["accounts", "copied"] {
            spread.command(&["table", "postgres", &format!("public.{table}"), "--key", "id"])?;
        }
        let port = whole.primary().port();
        let backend = format!("backend_hostname0 = '127.0.0.1'\nbackend_port0 = {port}\n");
        let one = RunningWeir::start(program, &whole.dir().join("weir"), &backend)?;
        spread.make_ready("select count(*) from accounts")?;
        let latest = spread.other_weir("latest", "cross_shard_reads = latest\n")?;
        latest.wait_ready("select count(*) from accounts")?;
        one.wait_ready("select 1")?;
        let data = spread.folder().join("rows.txt");
        fs::write(&data, rows(arguments.megabytes))?;
        let accounts = spread.folder().join("accounts.txt");
        fs::write(&accounts, (1..=ACCOUNTS).map(|id| format!("{id}\t100\n")).collect::<String>())?;
        copy(spread.port(), "accounts", &accounts)?;
        let of = |shard: usize| -> Result<Vec<String>> {
            let server = spread.shards().nth(shard).context("no shard")?;
            Ok(server.value("select string_agg(id::text, ',') from accounts")?.split(',').map(str::to_owned).collect())
        };
        let first: Result<Vec<String>> = (0..SHARDS).map(|shard| Ok(of(shard)?[0].clone())).collect();
        let ids = [of(0)?, of(1)?, first?];
        Ok(Stage { spread, latest, whole, one, data, ids })
    }

    fn round(&self, arguments: &Arguments) -> Result<Vec<(&'static str, f64)>> {
        let is_wanted = |part: SpreadPart| arguments.only.is_empty() || arguments.only.contains(&part);
        let mut rows = Vec::new();
        if is_wanted(SpreadPart::Reads) {
            rows.extend(self.reads(arguments.seconds)?);
        }
        if is_wanted(SpreadPart::Commits) {
            rows.extend(self.commits(arguments.seconds)?);
        }
        if is_wanted(SpreadPart::Flushes) {
            rows.push(("flushes of a commit on two shards, one client", self.flushes()?));
        }
        if is_wanted(SpreadPart::Copy) {
            rows.extend(self.copies()?);
        }
        Ok(rows)
    }

    fn rate(&self, weir: &RunningWeir, script: &str, clients: u32, seconds: u32) -> Result<f64> {
        pgbench::rate(script, weir.port(), clients, seconds, self.spread.folder())
    }

    fn reads(&self, seconds: u32) -> Result<[(&'static str, f64); 5]> {
        let (snapshot, latest) = (self.spread.weir(), &self.latest);
        let read = |weir, clients| self.rate(weir, &self.read(), clients, seconds);
        let alone = [read(latest, 1)?, read(snapshot, 1)?];
        let beside = |weir| self.beside_commits(weir, || read(weir, READERS));
        let (of_latest, of_snapshot) = (beside(latest)?, beside(snapshot)?);
        Ok([
            ("reads of 4 shards, one client and no commits: `snapshot` over `latest`", alone[1] / alone[0]),
            ("reads of 4 shards, one client and no commits: tps, `latest`", alone[0]),
            ("reads of 4 shards beside 500 commits a second on two: tps, `latest`", of_latest),
            ("reads of 4 shards beside 500 commits a second on two: tps, `snapshot`", of_snapshot),
            ("`snapshot` over `latest`", of_snapshot / of_latest),
        ])
    }

    fn commits(&self, seconds: u32) -> Result<[(&'static str, f64); 3]> {
        let commit = |weir| self.rate(weir, &self.commit(), COMMITTERS, seconds);
        let (of_latest, of_snapshot) = (commit(&self.latest)?, commit(self.spread.weir())?);
        Ok([
            ("commits on two shards, 8 clients: tps, `latest`", of_latest),
            ("commits on two shards, 8 clients: tps, `snapshot`", of_snapshot),
            ("`snapshot` over `latest`, commits", of_snapshot / of_latest),
        ])
    }

    fn copies(&self) -> Result<[(&'static str, f64); 5]> {
        let spread: Vec<&Server> = self.spread.shards().collect();
        let split = self.copied(self.spread.weir(), &spread)?;
        let whole = self.copied(&self.one, &[self.whole.primary()])?;
        Ok([
            ("COPY into 4 shards: processor seconds for a GB, Weir alone", split.weir),
            ("COPY into one server through Weir: the same", whole.weir),
            ("COPY into 4 shards: processor seconds for a GB, with the servers", split.weir + split.servers),
            ("COPY into one server through Weir: the same, with the server", whole.weir + whole.servers),
            (
                "COPY into 4 shards over COPY through Weir, with the servers",
                (split.weir + split.servers) / (whole.weir + whole.servers),
            ),
        ])
    }

    fn commit(&self) -> String {
        let list = |ids: &[String]| ids.iter().take(100).cloned().collect::<Vec<_>>();
        let (from, to) = (list(&self.ids[0]), list(&self.ids[1]));
        let choose = |name: &str, ids: &[String]| {
            let cases: String = ids.iter().enumerate().map(|(at, id)| format!(" when :{name} = {at} then {id}")).collect();
            format!("\\set {name} random(0, {})\n\\set {name}_id case{cases} end\n", ids.len() - 1)
        };
        choose("a", &from)
            + &choose("b", &to)
            + "begin;\nupdate accounts set balance = balance - 1 where id = :a_id;\n\
               update accounts set balance = balance + 1 where id = :b_id;\ncommit;\n"
    }

    fn read(&self) -> String {
        format!("select sum(balance) from accounts where id in ({});\n", self.ids[2].join(", "))
    }

    /// A measurement while others commit.
    fn beside_commits(&self, weir: &RunningWeir, measure: impl FnOnce() -> Result<f64>) -> Result<f64> {
        let path = self.spread.folder().join("commits.sql");
        fs::write(&path, self.commit())?;
        let mut command = Command::new("pgbench");
        command.args([
            "-h",
            "127.0.0.1",
            "-p",
            &weir.port().to_string(),
            "-U",
            "postgres",
            "-n",
            "-T",
            "3600",
            "-R",
            COMMITS_A_SECOND,
        ]);
        command.args(["-c", &COMMITTERS.to_string(), "-f"]).arg(&path).arg("postgres");
        let mut writers = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().context("cannot run pgbench")?;
        let measured = measure();
        let ended = writers.try_wait()?;
        // An error means that it has ended, which is one anyway.
        let _ = (writers.kill(), writers.wait());
        ensure!(ended.is_none(), "the commits ended: {ended:?}");
        measured
    }

    fn flushes(&self) -> Result<f64> {
        let script = self.spread.folder().join("counted.sql");
        fs::write(&script, self.commit())?;
        let before = self.standing_flushes(0.0)?;
        let mut command = Command::new("pgbench");
        command.args([
            "-h",
            "127.0.0.1",
            "-p",
            &self.spread.port().to_string(),
            "-U",
            "postgres",
            "-n",
            "-t",
            &COUNTED.to_string(),
        ]);
        let output = process::run(command.arg("-f").arg(&script).arg("postgres"), Duration::from_secs(60))?;
        ensure!(output.status.success(), "pgbench: {}", output.stderr.trim());
        Ok((self.standing_flushes(before + f64::from(COUNTED))? - before) / f64::from(COUNTED))
    }

    /// Flushes of the two servers so far, at least as many as `known`. A session tells of its own when it has rested for a second.
    fn standing_flushes(&self, known: f64) -> Result<f64> {
        let count = || -> Result<f64> {
            let of = |server: &Server| -> Result<f64> { Ok(server.value("select wal_sync from pg_stat_wal")?.parse()?) };
            self.spread.shards().take(2).map(of).sum()
        };
        let (mut last, mut since) = (f64::NAN, Instant::now());
        weir_demo::wait_until("the counts of flushes to stand", Duration::from_secs(60), || {
            let now = count()?;
            if now.to_bits() != last.to_bits() {
                (last, since) = (now, Instant::now());
            }
            Ok(last >= known && since.elapsed() > TOLD_WITHIN)
        })?;
        Ok(last)
    }

    fn copied(&self, weir: &RunningWeir, servers: &[&Server]) -> Result<CopyCost> {
        for server in servers {
            server.query("truncate copied")?;
        }
        let cost = || -> Result<[f64; 2]> {
            let of_servers: Result<Vec<f64>> =
                servers.iter().map(|server| proc::cpu_seconds(server.pid().context("a server is gone")?)).collect();
            Ok([proc::cpu_seconds(weir.pid())?, of_servers?.into_iter().sum()])
        };
        let before = cost()?;
        copy(weir.port(), "copied", &self.data)?;
        let after = cost()?;
        let gigabytes = fs::metadata(&self.data)?.len() as f64 / 1e9;
        Ok(CopyCost { weir: (after[0] - before[0]) / gigabytes, servers: (after[1] - before[1]) / gigabytes })
    }
}

/// Processor seconds for a GB.
struct CopyCost {
    weir: f64,
    servers: f64,
}

fn copy(port: u16, table: &str, file: &Path) -> Result<()> {
    let mut command = Command::new("psql");
    command.args(["-X", "-q", "-h", "127.0.0.1", "-p", &port.to_string(), "-U", "postgres", "-v", "ON_ERROR_STOP=1", "-c"]);
    command.arg(format!("\\copy {table} from '{}'", file.display())).arg("postgres");
    let output = process::run(&mut command, Duration::from_secs(600))?;
    ensure!(output.status.success(), "psql: {}", output.stderr.trim());
    Ok(())
}

fn rows(megabytes: u32) -> String {
    const LINE_BYTES: usize = 100;
    let bytes = megabytes as usize * 1_000_000;
    let filler = "x".repeat(LINE_BYTES - 10);
    let mut text = String::with_capacity(bytes + LINE_BYTES);
    for id in 0.. {
        if text.len() >= bytes {
            break;
        }
        text.push_str(&format!("{id}\t{filler}\n"));
    }
    text
}
