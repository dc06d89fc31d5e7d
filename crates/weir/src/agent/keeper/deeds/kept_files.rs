//! Files in the data directory that are not PostgreSQL's data: configuration, certificates, files of operators.
//!
//! A rewind and a copy bring the source's; both put these back.

use super::broke;
use crate::agent::keeper::deeds::follow_primary::mark_standby;
use crate::agent::keeper::site::ServerInstallation;
use crate::agent::keeper::synced_files::{self, CopyLimits};
use std::ffi::OsStr;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use weir_agent::{OrderFailure, OrderFailureKind, Outcome};

/// More than configurations have.
const FILES_MAX: u32 = 1000;
const BYTES_MAX: u64 = 64 << 20;

fn is_own(name: &OsStr) -> bool {
    const OF_POSTGRESQL: [&str; 11] = [
        "base",
        "global",
        "PG_VERSION",
        "current_logfiles",
        "log",
        "standby.signal",
        "recovery.signal",
        "backup_label",
        "backup_label.old",
        "tablespace_map",
        "backup_manifest",
    ];
    let name = name.to_string_lossy();
    if name.ends_with(".conf") {
        return true;
    }
    let is_data = name.starts_with("pg_") || name.starts_with("postmaster.") || name.starts_with("tablespace_map");
    let is_temporary = name.ends_with(".weir_tmp") || name.starts_with("pgsql_tmp");
    !(is_data || is_temporary || OF_POSTGRESQL.contains(&name.as_ref()))
}

pub fn in_the_making(site: &ServerInstallation) -> PathBuf {
    site.work.join("kept.new")
}

pub fn copy(from: &Path, to: &Path) -> Outcome {
    let mut budget = CopyLimits { files: FILES_MAX, bytes: BYTES_MAX };
    synced_files::copy_into(from, to, &mut budget, &is_own).map_err(|cause| match cause.kind() {
        ErrorKind::FileTooLarge => {
            let text = format!(
                "{} has more than {FILES_MAX} files or {} MB beside PostgreSQL's own: move them elsewhere",
                from.display(),
                BYTES_MAX >> 20
            );
            OrderFailure::new(OrderFailureKind::Layout, text)
        }
        _ => broke(from)(cause),
    })
}

/// Until these files are back the data does not count as whole.
pub fn put_aside(site: &ServerInstallation) -> Outcome {
    let making = in_the_making(site);
    synced_files::remove(&making).map_err(broke(&making))?;
    copy(&site.data, &making)?;
    std::fs::rename(&making, site.kept()).map_err(broke(&site.kept()))?;
    synced_files::sync_folder(&site.work).map_err(broke(&site.work))
}

/// Nothing was changed: the data is whole again.
pub fn forget(site: &ServerInstallation) -> Outcome {
    let kept = site.kept();
    std::fs::rename(&kept, in_the_making(site)).map_err(broke(&kept))?;
    synced_files::sync_folder(&site.work).map_err(broke(&site.work))?;
    synced_files::remove(&in_the_making(site)).map_err(broke(&kept))
}

/// Puts the files back after a rewind. From here on a later agent can finish.
pub fn rewound(site: &ServerInstallation) -> Outcome {
    // A rewound server never starts as a primary.
    mark_standby(&site.data).map_err(broke(&site.data))?;
    std::fs::rename(site.kept(), site.put_back()).map_err(broke(&site.kept()))?;
    synced_files::sync_folder(&site.work).map_err(broke(&site.work))?;
    put_back(site).map_err(broke(&site.put_back()))
}

pub fn put_back(site: &ServerInstallation) -> io::Result<()> {
    synced_files::copy_into(&site.put_back(), &site.data, &mut CopyLimits { files: u32::MAX, bytes: u64::MAX }, &|_| true)?;
    synced_files::remove(&site.put_back())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configuration_and_certificates_are_the_servers_own_and_data_is_not() {
        for own in ["postgresql.conf", "pg_hba.conf", "pg_ident.conf", "postgresql.auto.conf", "server.key", "conf.d", "notes"] {
            assert!(is_own(OsStr::new(own)), "{own}");
        }
        for data in
            ["base", "pg_wal", "PG_VERSION", "standby.signal", "postmaster.pid", "backup_label", "log", "tablespace_map.old"]
        {
            assert!(!is_own(OsStr::new(data)), "{data}");
        }
    }
}
