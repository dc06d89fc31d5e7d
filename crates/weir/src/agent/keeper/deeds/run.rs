//! Stop and start.

use super::broke;
use crate::agent::keeper::look::{leader, server};
use crate::agent::keeper::processes::{self, LOOK_PERIOD};
use crate::agent::keeper::program::{self, ProgramEnd, ProgramResult};
use crate::agent::keeper::site::{ServerInstallation, StartMethod};
use crate::agent::keeper::synced_files;
use rustix::process::Signal;
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use weir_agent::{OrderFailure, OrderFailureKind, Outcome, PostmasterState, ServerStatus, ServerStopMode, postmaster};

const KILL_LIMIT: Duration = Duration::from_secs(20);
/// `pg_ctl`'s wait; the order's limit applies beside it, and is never on a command line.
const PG_CTL_LIMIT_S: &str = "60";
const LOG_BYTES: u64 = 2000;

/// An immediate stop kills the server after the limit. An orderly stop ends early once outrun.
pub fn stop(
    site: &ServerInstallation,
    mode: ServerStopMode,
    started_at: Option<u64>,
    (until, is_outrun): (Instant, &AtomicBool),
) -> Outcome {
    let there = processes::of_server(&site.data);
    let postmaster = leader(site, &there);
    if let (Some(postmaster), Some(meant)) = (postmaster, started_at)
        && postmaster.started_at != meant
    {
        let text = format!("the server that runs was started at {}, not at {meant}", postmaster.started_at);
        return Err(OrderFailure::new(OrderFailureKind::OtherServer, text));
    }
    let leads = |pid: &rustix::process::Pid| {
        postmaster.is_some_and(|known| i64::from(pid.as_raw_nonzero().get()) == i64::from(known.pid))
    };
    let (led, orphans): (Vec<_>, Vec<_>) = there.into_iter().partition(leads);
    let signal = match mode {
        ServerStopMode::Fast => Signal::INT,
        ServerStopMode::Immediate => Signal::QUIT,
    };
    if postmaster.is_some() {
        processes::signal(&led, signal);
    } else {
        // Without a postmaster no process can write a checkpoint.
        processes::signal(&orphans, Signal::QUIT);
    }
    if mode == ServerStopMode::Immediate {
        // Halted processes hear no signal.
        processes::signal(&processes::of_server(&site.data), Signal::CONT);
    }
    let left = || processes::of_server(&site.data);
    let is_over = || mode == ServerStopMode::Fast && is_outrun.load(Ordering::Relaxed);
    if processes::wait_gone_unless(until, is_over, left) {
        return Ok(());
    }
    if mode == ServerStopMode::Immediate {
        processes::signal(&left(), Signal::KILL);
        if processes::wait_gone(Instant::now() + KILL_LIMIT, left) {
            return Ok(());
        }
    }
    Err(OrderFailure::new(OrderFailureKind::Late, "the server was told to stop, and still runs"))
}

/// Only if the server's start is `started_at`. Half of the time is for an orderly stop; a standby recovers from any other too.
pub fn restart(site: &ServerInstallation, started_at: u64, until: Instant) -> Outcome {
    let never = AtomicBool::new(false);
    let half = Instant::now() + until.saturating_duration_since(Instant::now()) / 2;
    let is_meant = !matches!(server(site), ServerStatus::Running(known) if known.started_at != started_at);
    match is_meant.then(|| stop(site, ServerStopMode::Fast, Some(started_at), (half, &never))) {
        Some(Err(failure)) if failure.kind == OrderFailureKind::Late => {
            stop(site, ServerStopMode::Immediate, Some(started_at), (until, &never))?;
        }
        Some(outcome) => outcome?,
        None => {}
    }
    start(site, until)
}

pub fn start(site: &ServerInstallation, until: Instant) -> Outcome {
    super::check_whole(site)?;
    let mut ended_text = "the server ended as it was started".to_string();
    if server(site) == ServerStatus::Stopped {
        synced_files::remove(&site.rewound()).map_err(broke(&site.rewound()))?;
        let left = || processes::of_server(&site.data);
        if !processes::wait_gone(until, left) {
            return Err(OrderFailure::new(OrderFailureKind::Running, "processes of a server that was killed still run"));
        }
        forget_uncollected(site)?;
        let (ended, had) = launch(site, until)?;
        ended_text = not_started(&ended, site.log().map(|log| (log, had)));
    }
    loop {
        match server(site) {
            ServerStatus::Running(postmaster) if matches!(postmaster.step, PostmasterState::Ready | PostmasterState::Standby) => {
                return Ok(());
            }
            ServerStatus::Running(_) if Instant::now() < until => std::thread::sleep(LOOK_PERIOD),
            ServerStatus::Running(_) => {
                return Err(OrderFailure::new(OrderFailureKind::Late, "the server is starting, and takes no connections yet"));
            }
            ServerStatus::Stopped => return Err(OrderFailure::new(OrderFailureKind::Other, ended_text)),
        }
    }
}

/// Removes pid file and socket lock of an ended server that its parent has not collected (a container without init): PostgreSQL would take
/// it for running.
pub fn forget_uncollected(site: &ServerInstallation) -> Outcome {
    let path = site.data.join("postmaster.pid");
    let text = fs::read_to_string(&path).unwrap_or_default();
    let Some(known) = postmaster::read(&text).filter(|known| processes::is_uncollected(known.pid)) else { return Ok(()) };
    if let Some(folder) = text.lines().nth(4).filter(|folder| folder.starts_with('/')) {
        let lock = Path::new(folder.trim_end()).join(format!(".s.PGSQL.{}.lock", known.port));
        let is_its = fs::read_to_string(&lock).is_ok_and(|text| text.lines().next() == Some(&known.pid.to_string()));
        if is_its {
            synced_files::remove(&lock).map_err(broke(&lock))?;
        }
    }
    synced_files::remove(&path).map_err(broke(&path))
}

/// Returns the program's end, and the log's length before. The server may still be starting, or gone: `pg_ctl` 18 succeeds if a standby
/// with an orderly stop does not start, as that may be its recovery target.
fn launch(site: &ServerInstallation, until: Instant) -> Result<(ProgramResult, u64), OrderFailure> {
    let command = match &site.starter {
        StartMethod::PgCtl { log } => {
            let mut command = site.starter_program(&site.bin.join("pg_ctl"));
            command.args(["start", "-w", "-s", "-t", PG_CTL_LIMIT_S, "-D"]).arg(&site.data).arg("-l").arg(log);
            if let Some(file) = &site.config_file {
                // Goes through a shell of pg_ctl's; `ServerInstallation::new` has checked the path.
                command.arg("-o").arg(format!("-c config_file=\"{}\"", file.display()));
            }
            command
        }
        StartMethod::Command(words) => {
            let mut command = site.starter_program(Path::new(words.first().map(String::as_str).unwrap_or_default()));
            command.args(words.iter().skip(1));
            command
        }
    };
    let log = site.log();
    let had = log.map_or(0, |log| fs::metadata(log).map_or(0, |found| found.len()));
    let ended = program::run(command, until, &mut |_| {}).map_err(broke(Path::new("the program that starts the server")))?;
    match ended.end {
        ProgramEnd::Success => Ok((ended, had)),
        ProgramEnd::Failure | ProgramEnd::Killed if server(site) != ServerStatus::Stopped => Ok((ended, had)),
        ProgramEnd::Killed => Err(OrderFailure::new(OrderFailureKind::Late, "the server was not started in time")),
        ProgramEnd::Failure => Err(OrderFailure::new(OrderFailureKind::Other, not_started(&ended, log.map(|log| (log, had))))),
    }
}

fn not_started(ended: &ProgramResult, log: Option<(&Path, u64)>) -> String {
    let mut said = String::new();
    if let Some((log, had)) = log
        && let Ok(mut file) = File::open(log)
    {
        let end = file.metadata().map_or(had, |found| found.len());
        let _ = file.seek(SeekFrom::Start(had.max(end.saturating_sub(LOG_BYTES))));
        let mut bytes = Vec::new();
        let _ = file.take(LOG_BYTES).read_to_end(&mut bytes);
        said = String::from_utf8_lossy(&bytes).into_owned();
    }
    format!("the server does not start: {} {said}", ended.words())
}
