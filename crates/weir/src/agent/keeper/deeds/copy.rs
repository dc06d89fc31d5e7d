//! Replaces a stopped server's files by a copy of its source's. The old ones stay until the copy is complete and in place.

use super::{Tell, broke, read_progress};
use crate::agent::keeper::deeds::follow_primary::{check_login, mark_standby};
use crate::agent::keeper::deeds::kept_files;
use crate::agent::keeper::look::{control, data};
use crate::agent::keeper::program::{self, ProgramEnd};
use crate::agent::keeper::site::ServerInstallation;
use crate::agent::keeper::source::{self, SourceFacts};
use crate::agent::keeper::synced_files;
use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Instant;
use weir_agent::{BackupCheckpoint, BaseBackup, DataDirectoryState, LogKeeper, OrderFailure, OrderFailureKind, Outcome};

fn layout(text: impl AsRef<str>) -> OrderFailure {
    OrderFailure::new(OrderFailureKind::Layout, text)
}

pub fn copy(site: &ServerInstallation, order: &BaseBackup, until: Instant, tell: Tell<'_>) -> Outcome {
    super::check_rests(site, until)?;
    check_layout(site)?;
    let found = source::look(site, &order.source, until)?;
    check_source(site, &found)?;
    let own = if site.kept().exists() { site.kept() } else { site.data.clone() };
    check_login(site, &own, &order.source)?;
    // The login wrote another service file.
    source::look(site, &order.source, until)?;
    let new = site.new_data();
    synced_files::remove(&new).map_err(broke(&new))?;
    let copied = fetch(site, order, until, tell).and_then(|()| dress(site));
    if let Err(failure) = copied {
        // The first failure counts; the next copy removes the rest.
        let _ = synced_files::remove(&new);
        return Err(failure);
    }
    super::check_rests(site, until)?;
    let lock = ServerInstallation::lock(&new).map_err(broke(&new))?;
    swap(site)?;
    site.keep(lock);
    let _ = synced_files::remove(&site.old_data());
    Ok(())
}

/// Refuses layouts whose copy would lie elsewhere.
fn check_layout(site: &ServerInstallation) -> Outcome {
    let device = |path: &Path| fs::metadata(path).map(|found| found.dev());
    let parent = site.data.parent().unwrap_or(Path::new("/"));
    let own = device(if site.data.exists() { &site.data } else { parent }).map_err(broke(&site.data))?;
    if own != device(parent).map_err(broke(parent))? {
        return Err(layout(format!("{} is a mount point: use a folder below it", site.data.display())));
    }
    if own != device(&site.work).map_err(broke(&site.work))? {
        return Err(layout(format!("{} is on another file system than the data", site.work.display())));
    }
    let tablespaces = fs::read_dir(site.data.join("pg_tblspc")).map_or(0, Iterator::count);
    if tablespaces > 0 {
        return Err(layout("it has tablespaces"));
    }
    if fs::symlink_metadata(site.data.join("pg_wal")).is_ok_and(|found| found.is_symlink()) {
        return Err(layout("pg_wal is a link"));
    }
    Ok(())
}

fn check_source(site: &ServerInstallation, found: &SourceFacts) -> Outcome {
    let other = |text: String| Err(OrderFailure::new(OrderFailureKind::OtherCluster, text));
    if found.major != site.major {
        return other(format!("the source is of PostgreSQL {}, the programs here are of {}", found.major, site.major));
    }
    if found.tablespaces > 0 {
        return Err(layout("the source has tablespaces"));
    }
    match control(site) {
        Some(own) if own.system_identifier != found.system_identifier => {
            other(format!("this is system {}, the source is system {}", own.system_identifier, found.system_identifier))
        }
        Some(_) => Ok(()),
        None if data(site) == DataDirectoryState::Absent && is_empty(&site.data) => Ok(()),
        None if data(site) == DataDirectoryState::HalfRewound => Ok(()),
        None => Err(layout(format!("{} holds something, and no control file that can be read", site.data.display()))),
    }
}

fn is_empty(folder: &Path) -> bool {
    fs::read_dir(folder).map_or(true, |mut entries| entries.next().is_none())
}

fn fetch(site: &ServerInstallation, order: &BaseBackup, until: Instant, tell: Tell<'_>) -> Outcome {
    let mut command = site.program("pg_basebackup");
    let checkpoint = match order.checkpoint {
        BackupCheckpoint::Fast => "fast",
        BackupCheckpoint::Spread => "spread",
    };
    command.arg("-D").arg(site.new_data());
    command.args(["-d", &source::conninfo(), "-X", "stream", "-w", "-P", "--no-manifest", "-c", checkpoint]);
    if order.log_keeper == LogKeeper::Standby {
        // By default it makes a slot, for which the source may have no room.
        command.arg("--no-slot");
    }
    let mut heed = |line: &str| {
        if let Some(progress) = read_progress(line) {
            tell(progress);
        }
    };
    let ended = program::run(command, until, &mut heed).map_err(broke(Path::new("pg_basebackup")))?;
    match ended.end {
        ProgramEnd::Success => Ok(()),
        ProgramEnd::Killed => Err(OrderFailure::new(OrderFailureKind::Late, "pg_basebackup takes too long")),
        ProgramEnd::Failure => Err(OrderFailure::new(OrderFailureKind::Source, format!("pg_basebackup: {}", ended.words()))),
    }
}

/// Adds this server's own files, and marks a standby.
fn dress(site: &ServerInstallation) -> Outcome {
    let new = site.new_data();
    let own = if site.kept().exists() { site.kept() } else { site.data.clone() };
    if own.exists() {
        kept_files::copy(&own, &new)?;
    }
    mark_standby(&new).map_err(broke(&new))?;
    synced_files::sync_folder(&new).map_err(broke(&new))
}

/// Swaps atomically, where the file system can; elsewhere a later agent puts the old files back.
fn swap(site: &ServerInstallation) -> Outcome {
    let (new, old) = (site.new_data(), site.old_data());
    synced_files::remove(&old).map_err(broke(&old))?;
    if !site.data.exists() {
        fs::rename(&new, &site.data).map_err(broke(&site.data))?;
    } else {
        match renameat_with(CWD, &new, CWD, &site.data, RenameFlags::EXCHANGE) {
            Ok(()) => fs::rename(&new, &old).map_err(broke(&old))?,
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
                fs::rename(&site.data, &old).map_err(broke(&site.data))?;
                fs::rename(&new, &site.data).map_err(broke(&site.data))?;
            }
            Err(cause) => return Err(broke(&site.data)(cause.into())),
        }
    }
    synced_files::sync_parent(&site.data).and_then(|()| synced_files::sync_folder(&site.work)).map_err(broke(&site.data))?;
    synced_files::remove(&site.rewound()).map_err(broke(&site.rewound()))?;
    let kept = site.kept();
    synced_files::remove(&kept).map_err(broke(&kept))
}
