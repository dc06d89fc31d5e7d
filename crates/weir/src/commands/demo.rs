//! `weir demo`: a PostgreSQL primary with standbys, and Weir before them, in one command.

use crate::commands::demo_group::DemoGroup;
use crate::commands::demo_shards::{self, DemoShards, SHARDS_MAX};
use crate::commands::progress_option::ProgressOption;
use crate::process::supervisor::{self, StartedBy};
use crate::runtime::operator_files::OperatorFiles;
use crate::runtime::shared::ProxyShutdown;
use anyhow::{Context, bail};
use clap::Args;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use weir_demo::{Cluster, ClusterStage, Options, Programs, Sql, StageHearer, Template, wait_until};
use weir_progress::{ProgressLine, WorkAmount};

const SPREAD_LIMIT: Duration = Duration::from_secs(60);

const FAILOVER_LIMIT: Duration = Duration::from_secs(60);

const WRITE: &str = "INSERT INTO visits (server) VALUES (inet_server_port()) RETURNING server";

const READS_MAX: usize = 40;

/// Options of the demo.
#[derive(Args)]
pub struct DemoArgs {
    /// Folder for the servers; a temporary one if not given.
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Port clients connect to. With --weirs the other proxies have the ones after it.
    #[arg(long, default_value_t = 9999, value_parser = clap::value_parser!(u16).range(1024..65000))]
    pub(super) port: u16,
    /// Proxies. Two or more are one group (use_watchdog), each a process of its own.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=7))]
    pub(super) weirs: u16,
    /// Standbys; 2 if not given, with --shards none. They are of shard 0.
    #[arg(long, value_parser = clap::value_parser!(u16).range(0..=16))]
    standbys: Option<u16>,
    /// Spread pgbench's tables over so many servers (parallel_mode). Not with --weirs and --kill-primary.
    #[arg(long, conflicts_with_all = ["weirs", "kill_primary"], value_parser = clap::value_parser!(u16).range(2..=SHARDS_MAX))]
    shards: Option<u16>,
    /// Kill the primary under a client that writes, after the tour.
    #[arg(long)]
    kill_primary: bool,
    /// Leave the folder behind at the end.
    #[arg(long)]
    keep: bool,
    #[command(flatten)]
    progress: ProgressOption,
}

impl DemoArgs {
    pub(super) fn standbys(&self) -> u16 {
        self.standbys.unwrap_or(if self.shards.is_some() { 0 } else { 2 })
    }
}

pub(super) fn say(text: &str) {
    let _ = std::io::stdout().lock().write_all(text.as_bytes());
}

/// Error: a signal came, and what is made would be removed at once.
pub(super) fn go_on(stop: &AtomicBool) -> anyhow::Result<()> {
    if stop.load(Ordering::Acquire) { bail!("stopped before all was made") } else { Ok(()) }
}

/// Shows the making of servers on the line, which is gone when they are made.
fn show_stage(line: &ProgressLine, stage: ClusterStage<'_>) {
    match stage {
        ClusterStage::Initialising { server } => line.begin(&format!("initialising {server}"), WorkAmount::Unknown),
        ClusterStage::Copying { server, done_bytes: 0, total_bytes } => {
            line.begin(&format!("copying {server}"), WorkAmount::Bytes { total: total_bytes });
        }
        ClusterStage::Copying { done_bytes, .. } => line.reach(done_bytes),
        ClusterStage::Starting { ready: 0, servers } => {
            line.begin("starting", WorkAmount::Count { total: servers as u64, unit: "servers" });
        }
        ClusterStage::Starting { ready, .. } => line.reach(ready as u64),
        ClusterStage::Made => line.rest(),
    }
}

/// Watched before servers are made, or their folder would be left behind.
fn watch_signals() -> anyhow::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGINT, SIGQUIT, SIGHUP] {
        signal_hook::flag::register(signal, stop.clone()).context("cannot watch signals")?;
    }
    Ok(stop)
}

/// Shows the cluster until a signal, and then stops all it started.
pub fn run(demo: &DemoArgs) -> anyhow::Result<ExitCode> {
    let stop = watch_signals()?;
    // Checked before servers are made in vain.
    for port in demo.port..demo.port + demo.weirs {
        let is_free = std::net::TcpListener::bind(("127.0.0.1", port));
        drop(is_free.with_context(|| format!("cannot listen on port {port}: choose another with --port"))?);
    }
    let also = demo.shards.map(|count| format!(", and a server for each of {} more shards", count - 1)).unwrap_or_default();
    say(&format!("Making a PostgreSQL primary and {} standbys{also} ...\n", demo.standbys()));
    let line = Arc::new(demo.progress.line());
    let heard = line.clone();
    // Each server begins with a copy.
    let template = demo.shards.map(|_| Template::new(Programs::find()?).map(Arc::new)).transpose()?;
    let options = Options {
        template,
        dir: demo.dir.clone(),
        standbys: usize::from(demo.standbys()),
        keep: demo.keep,
        stop: Some(stop.clone()),
        hearer: StageHearer::new(move |stage| show_stage(&heard, stage)),
        ..Options::default()
    };
    let cluster = Cluster::start(options.clone())?;
    for (at, server) in cluster.servers().iter().enumerate() {
        say(&format!("  node {at}: port {}, {}\n", server.port(), if at == 0 { "primary" } else { "standby" }));
    }
    if demo.kill_primary && demo.standbys() == 0 {
        bail!("--kill-primary needs a standby that takes over");
    }
    let shards = demo.shards.map(|count| DemoShards::start(count, &cluster, options)).transpose()?;
    let victim = cluster.primary().pid().filter(|_| demo.kill_primary);
    if demo.weirs > 1 {
        say(&format!("Starting {} proxies as one group ...\n", demo.weirs));
        let mut group = DemoGroup::start(demo, &cluster, &stop)?;
        say(&group.introduction());
        let stage = TourStage::Standbys(demo.standbys());
        begin_tour(DemoTour { port: demo.port, stage, victim, proposals: group.proposals() });
        group.look_after(&stop)?;
        say("Stopping the proxies ...\n");
    } else {
        run_alone(demo, &cluster, shards.as_ref(), victim, (stop, &line))?;
    }
    say("Stopping the servers ...\n");
    let kept = demo.keep.then(|| cluster.dir().to_path_buf());
    drop(shards);
    drop(cluster);
    if let Some(folder) = kept {
        say(&format!("The folder {} was kept.\n", folder.display()));
    }
    Ok(ExitCode::SUCCESS)
}

/// Weir in this process. Returns after a signal.
fn run_alone(
    demo: &DemoArgs,
    cluster: &Cluster,
    shards: Option<&DemoShards>,
    victim: Option<u32>,
    (stop, line): (Arc<AtomicBool>, &ProgressLine),
) -> anyhow::Result<()> {
    let file = cluster.dir().join("pgpool.conf");
    let mut text = configuration((demo.port, cluster.dir()), demo.standbys(), cluster) + "failover_alone = on\n";
    text += &shards.map(DemoShards::configuration).unwrap_or_default();
    std::fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
    let files = OperatorFiles { config: Some(file.clone()), ..OperatorFiles::default() };
    let outcome = files.read();
    let Some(config) = outcome.config else {
        let problems: Vec<String> = outcome.problems.iter().map(ToString::to_string).collect();
        bail!("the demo's own configuration is wrong: {}", problems.join("; "));
    };
    let (mut stage, mut proposals) = (TourStage::Standbys(demo.standbys()), String::new());
    if let Some(shards) = shards {
        shards.spread(&files, &config, &stop, line)?;
        (stage, proposals) = (TourStage::Shards, shards.proposals(demo.port, &file)?);
    }
    let tour = DemoTour { port: demo.port, stage, victim, proposals };
    supervisor::run(&files, config, StartedBy::Demo, move |shared| {
        if stop.load(Ordering::Acquire) {
            // The proxy has not heard the signal.
            return shared.begin_stop(ProxyShutdown::Fast);
        }
        begin_tour(tour);
    })
}

/// Subject of a tour.
#[derive(Clone, Copy)]
enum TourStage {
    /// Reads go to so many standbys.
    Standbys(u16),
    /// pgbench's tables lie on several servers.
    Shards,
}

struct DemoTour {
    port: u16,
    stage: TourStage,
    /// Process of the primary that is to be killed.
    victim: Option<u32>,
    proposals: String,
}

impl DemoTour {
    /// Shows where statements go, and kills the primary if that is wanted.
    fn say(&self) {
        let shown = match self.stage {
            TourStage::Standbys(standbys) => tour_of(self.port, standbys),
            TourStage::Shards => demo_shards::tour(self.port),
        };
        match shown {
            Ok(text) => {
                say(&format!("{text}{}\nCtrl-C ends it.\n", self.proposals));
                if let Some(pid) = self.victim {
                    let text = failover_of(self.port, pid);
                    say(&text.unwrap_or_else(|error| format!("The failover failed: {error:#}\n")));
                }
            }
            Err(error) => say(&format!("The tour failed: {error:#}\n")),
        }
    }
}

/// On a thread of its own: a stop does not wait for it.
fn begin_tour(tour: DemoTour) {
    let thread = std::thread::Builder::new().name("tour".into());
    if let Err(error) = thread.spawn(move || tour.say()) {
        say(&format!("The tour failed: {error}\n"));
    }
}

/// Configuration of the proxy that listens on this port and has this folder.
pub(super) fn configuration((port, folder): (u16, &Path), standbys: u16, cluster: &Cluster) -> String {
    let mut text = String::new();
    let folder = folder.display();
    let _ = write!(
        text,
        "# Written by `weir demo`.\nlisten_addresses = '127.0.0.1'\nport = {port}\nunix_socket_directories = '{folder}'\n\
         pid_file_name = '{folder}/weir.pid'\nwork_dir = '{folder}'\nsr_check_user = 'postgres'\nsr_check_period = 2\nlog_min_messages = warning\n\
         statement_level_load_balance = on\nfailover_mode = builtin\nhealth_check_period = 1\n\
         health_check_timeout = 1\nhealth_check_max_retries = 1\nhealth_check_user = 'postgres'\n\
         # All servers share one machine: a read waits for its standby rather than go to the primary.\n\
         causal_wait = 10s\n"
    );
    for (at, server) in cluster.servers().iter().enumerate() {
        let weight = u8::from(at > 0 || standbys == 0);
        let _ = write!(
            text,
            "backend_hostname{at} = '127.0.0.1'\nbackend_port{at} = {}\nbackend_weight{at} = {weight}\n\
             backend_application_name{at} = '{}'\n",
            server.port(),
            server.name()
        );
    }
    text
}

/// Goes on until each standby has answered.
fn tour_of(port: u16, standbys: u16) -> anyhow::Result<String> {
    let mut sql = Sql::connect_tcp("127.0.0.1", port, "postgres", "postgres")?;
    let mut text = String::from("\nThrough Weir:\n");
    let mut show = |label: &str, statement: &str, sql: &mut Sql| -> anyhow::Result<String> {
        let server = cell(sql, statement, 0)?;
        let _ = writeln!(text, "  {label:<6} {statement:<72} -> port {server}");
        Ok(server)
    };
    sql.query("CREATE TABLE IF NOT EXISTS visits (at timestamptz DEFAULT now(), server int)")?;
    show("write", WRITE, &mut sql)?;
    let read = "SELECT inet_server_port()";
    // Just after its start the proxy has neither catalog nor positions: the primary would answer.
    let standbys = usize::from(standbys);
    let route = format!("SHOW route FOR '{read}'");
    wait_until("reads to be spread", SPREAD_LIMIT, || {
        let nodes = cell(&mut sql, &route, 1)?;
        Ok(standbys == 0 || (nodes.split(',').count() == standbys && nodes != "0"))
    })?;
    let mut servers = BTreeSet::new();
    for _ in 0..READS_MAX {
        // A busy session stays on one node for several reads.
        let mut reader = Sql::connect_tcp("127.0.0.1", port, "postgres", "postgres")?;
        servers.insert(show("read", read, &mut reader)?);
        if servers.len() >= standbys.max(1) {
            break;
        }
    }
    let _ = write!(
        text,
        "\nSHOW pool_nodes says the same:\n{}\nConnect with:\n  psql -h 127.0.0.1 -p {port} -U postgres postgres\n",
        nodes(&mut sql)?
    );
    Ok(text)
}

fn failover_of(port: u16, pid: u32) -> anyhow::Result<String> {
    let mut sql = Sql::connect_tcp("127.0.0.1", port, "postgres", "postgres")?;
    let before = cell(&mut sql, WRITE, 0)?;
    let pid = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw).context("the primary has no process id")?;
    say(&format!("\nKilling the primary (kill -9, port {before}) under a client that writes ...\n"));
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).context("cannot kill the primary")?;
    let (killed_at, mut failed, mut after) = (Instant::now(), 0, String::new());
    wait_until("another server to take writes", FAILOVER_LIMIT, || {
        // The first write may have been under way: its outcome is unknown.
        match cell(&mut sql, WRITE, 0) {
            Ok(server) => after = server,
            Err(_) => failed += 1,
        }
        Ok(!after.is_empty() && after != before)
    })?;
    Ok(format!(
        "  The same client writes to port {after}, {} ms later. Statements that failed: {failed}.\n\n{}",
        killed_at.elapsed().as_millis(),
        nodes(&mut sql)?
    ))
}

fn cell(sql: &mut Sql, statement: &str, at: usize) -> anyhow::Result<String> {
    Ok(sql.query(statement)?.into_iter().next().and_then(|row| row.into_iter().nth(at).flatten()).unwrap_or_default())
}

fn nodes(sql: &mut Sql) -> anyhow::Result<String> {
    let mut text = String::from("  node  port   role     status  selects\n");
    for row in sql.query("SHOW pool_nodes")? {
        let value = |at: usize| row.get(at).cloned().flatten().unwrap_or_default();
        let _ = writeln!(text, "  {:<5} {:<6} {:<8} {:<7} {}", value(0), value(2), value(6), value(3), value(8));
    }
    Ok(text)
}
