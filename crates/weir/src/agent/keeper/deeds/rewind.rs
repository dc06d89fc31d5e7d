//! Rewinds a stopped server to where its history left the source's, and fetches what the source has written since.

use super::run::forget_uncollected;
use super::{Tell, broke, read_progress};
use crate::agent::keeper::deeds::kept_files;
use crate::agent::keeper::look::control;
use crate::agent::keeper::program::{self, ProgramEnd, ProgramResult};
use crate::agent::keeper::site::ServerInstallation;
use crate::agent::keeper::{source, synced_files};
use std::path::Path;
use std::time::Instant;
use weir_agent::{ClusterState, ControlFile, OrderFailure, OrderFailureKind, Outcome, RewindAction};

/// `pg_rewind` says so before it changes files.
const CHANGES: &str = "need to copy";

fn cannot(text: impl AsRef<str>) -> OrderFailure {
    OrderFailure::new(OrderFailureKind::CannotRewind, text)
}

/// A failure before `pg_rewind` changes files leaves the server as it was.
pub fn rewind(site: &ServerInstallation, order: &RewindAction, until: Instant, tell: Tell<'_>) -> Outcome {
    super::check_rests(site, until)?;
    super::check_whole(site)?;
    let own = control(site).ok_or_else(|| cannot("the control file cannot be read"))?;
    let found = source::look(site, &order.source, until)?;
    check_pair(&own, found.system_identifier, found.major)?;
    if !own.can_rewind {
        return Err(cannot("it has neither checksums nor wal_log_hints"));
    }
    source::wait_checkpoint(site, &order.source, found, until)?;
    let timeline = found.timeline.unwrap_or(found.checkpoint_timeline).to_string();
    if std::fs::read_to_string(site.rewound()).is_ok_and(|known| known == timeline) {
        return Ok(());
    }
    if needs_recovery(&own)? {
        recover(site, until)?;
    }
    kept_files::put_aside(site)?;
    let (ended, has_changed) = match run(site, until, tell) {
        Ok(ended) => ended,
        Err(failure) => {
            kept_files::forget(site)?;
            return Err(failure);
        }
    };
    match (&ended.end, has_changed) {
        (ProgramEnd::Success, _) => {
            kept_files::rewound(site)?;
            synced_files::write(&site.rewound(), timeline.as_bytes()).map_err(broke(&site.rewound()))
        }
        (ProgramEnd::Failure | ProgramEnd::Killed, true) => {
            Err(OrderFailure::new(OrderFailureKind::HalfRewound, format!("pg_rewind was cut short: {}", ended.words())))
        }
        (end, false) => {
            kept_files::forget(site)?;
            Err(judge(end, &ended.words()))
        }
    }
}

fn check_pair(own: &ControlFile, system_identifier: u64, major: u16) -> Outcome {
    if own.system_identifier == system_identifier && own.major == major {
        return Ok(());
    }
    let text = format!(
        "this is system {} of PostgreSQL {}, the source is system {system_identifier} of PostgreSQL {major}",
        own.system_identifier, own.major
    );
    Err(OrderFailure::new(OrderFailureKind::OtherCluster, text))
}

/// True for a primary without an orderly stop.
fn needs_recovery(own: &ControlFile) -> Result<bool, OrderFailure> {
    match own.state {
        ClusterState::ShutDown | ClusterState::ShutDownInRecovery => Ok(false),
        ClusterState::Starting | ClusterState::ShuttingDown | ClusterState::CrashRecovery | ClusterState::InProduction => {
            Ok(true)
        }
        ClusterState::ArchiveRecovery | ClusterState::Unknown => {
            Err(cannot("it was a standby that was not stopped in order: start and stop it first, or make a copy"))
        }
    }
}

/// Recovers from a crash without taking connections. `pg_rewind` before version 15 does so only with the configuration in the data
/// directory.
fn recover(site: &ServerInstallation, until: Instant) -> Outcome {
    forget_uncollected(site)?;
    let mut command = site.server_program(&["--single"]);
    command.arg("template1");
    let ended = program::run(command, until, &mut |_| {}).map_err(broke(Path::new("postgres --single")))?;
    match ended.end {
        ProgramEnd::Success => Ok(()),
        ProgramEnd::Failure => Err(cannot(format!("it does not recover from its crash: {}", ended.words()))),
        ProgramEnd::Killed => Err(OrderFailure::new(OrderFailureKind::Late, "its recovery from a crash takes too long")),
    }
}

fn run(site: &ServerInstallation, until: Instant, tell: Tell<'_>) -> Result<(ProgramResult, bool), OrderFailure> {
    let mut command = site.program("pg_rewind");
    command.arg("-D").arg(&site.data).args(["--source-server", &source::conninfo(), "--progress", "--no-ensure-shutdown"]);
    let mut has_changed = false;
    let mut heed = |line: &str| {
        has_changed |= line.contains(CHANGES);
        if let Some(progress) = read_progress(line) {
            tell(progress);
        }
    };
    let ended = program::run(command, until, &mut heed);
    Ok((ended.map_err(|cause| cannot(format!("pg_rewind: {cause}")))?, has_changed))
}

fn judge(end: &ProgramEnd, words: &str) -> OrderFailure {
    match end {
        ProgramEnd::Killed => OrderFailure::new(OrderFailureKind::Late, "pg_rewind takes too long"),
        ProgramEnd::Success | ProgramEnd::Failure
            if words.contains("could not connect") || words.contains("connection to server") =>
        {
            OrderFailure::new(OrderFailureKind::Source, words)
        }
        ProgramEnd::Success | ProgramEnd::Failure => cannot(words),
    }
}
