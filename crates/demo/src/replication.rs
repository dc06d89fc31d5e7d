//! Actions of tests on the replication of a server: promote, pause, follow another primary, start over as its copy.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::conf::{setting, upstream_setting};
use crate::folder::{copy_tree, empty, write_private};
use crate::server::{Mode, Server};
use crate::wait::wait_until;

/// A promotion takes 0.2 s; it first replays what the standby has received.
const PROMOTE_LIMIT: Duration = Duration::from_secs(60);
/// Replay stops between two records, at once unless one record waits for a lock.
const PAUSE_LIMIT: Duration = Duration::from_secs(30);
/// First version whose pause function only asks for a pause and whose state tells when it is reached.
const MAJOR_WITH_PAUSE_STATE: u32 = 14;
/// First version with the short names of the backup functions.
const MAJOR_WITH_BACKUP_START: u32 = 15;
/// Its presence makes a starting server a standby.
const STANDBY_FILE: &str = "standby.signal";
/// Folders and files that a copy must not or need not have, as in pg_basebackup (src/backend/backup/basebackup.c,
/// excludeDirContents and excludeFiles). The folders themselves must exist.
const EMPTY_FOLDERS: [&str; 8] =
    ["pg_wal", "pg_replslot", "pg_dynshmem", "pg_notify", "pg_serial", "pg_snapshots", "pg_stat_tmp", "pg_subtrans"];
const SKIPPED_FILES: [&str; 6] =
    ["postmaster.pid", "postmaster.opts", "postgresql.auto.conf.tmp", "current_logfiles", "backup_label", CONTROL_FILE];
/// Copied last: recovery of a copy taken from a standby ends at the position it names.
const CONTROL_FILE: &str = "global/pg_control";

impl Server {
    /// Does it replay another server's changes, rather than take its own?
    pub fn in_recovery(&self) -> Result<bool> {
        Ok(self.value("select pg_is_in_recovery()")? == "t")
    }

    /// Makes a standby a primary, and waits until it is one.
    pub fn promote(&self) -> Result<()> {
        let limit = PROMOTE_LIMIT.as_millis();
        let promoted = self.value(&format!("select pg_promote(true, {})", PROMOTE_LIMIT.as_secs()))?;
        ensure!(promoted == "t", "waited {limit} ms for server {} to be promoted, limit is {limit} ms", self.name);
        Ok(())
    }

    /// Stops replay on a standby; it still receives. Waits until replay stands still.
    pub fn pause_replay(&self) -> Result<()> {
        self.query("select pg_wal_replay_pause()")?;
        let state = match self.programs.major() {
            ..MAJOR_WITH_PAUSE_STATE => "select pg_is_wal_replay_paused()",
            _ => "select pg_get_wal_replay_pause_state() = 'paused'",
        };
        wait_until(&format!("replay on {} to pause", self.name), PAUSE_LIMIT, || Ok(self.value(state)? == "t"))
    }

    /// Lets replay on a standby go on.
    pub fn resume_replay(&self) -> Result<()> {
        self.query("select pg_wal_replay_resume()")?;
        Ok(())
    }

    /// Sets a parameter as ALTER SYSTEM would, also on a stopped server. A running one reloads; what needs a restart
    /// waits for one.
    pub fn set_conf(&self, name: &str, value: &str) -> Result<()> {
        self.append_auto_conf(&setting(name, value))
    }

    /// Makes this server a standby of `upstream`.
    ///
    /// A running standby changes over, a running primary restarts, a stopped server is to be started by the caller.
    /// A server whose history went apart from `upstream`'s will not stream; that takes `clone_from`.
    pub fn follow(&self, upstream: &Server) -> Result<()> {
        self.append_auto_conf(&upstream_setting(&self.name, upstream.port()))?;
        if self.is_running() && self.in_recovery()? {
            return Ok(());
        }
        write_private(&self.data.join(STANDBY_FILE), b"", self.launch.run_as)?;
        if !self.is_running() {
            return Ok(());
        }
        self.stop(Mode::Fast)?;
        self.start()
    }

    /// Throws this server's data away and starts it as a standby on a copy of the running server `upstream`.
    ///
    /// It keeps its port, name and postgresql.conf. Tablespaces are not supported.
    pub fn clone_from(&self, upstream: &Server) -> Result<()> {
        self.stop(Mode::Immediate)?;
        let run_as = self.launch.run_as;
        let conf = fs::read(self.data.join("postgresql.conf"))?;
        empty(&self.data)?;
        let label = upstream.copy_data_to(&self.data)?;
        write_private(&self.data.join("backup_label"), label.as_bytes(), run_as)?;
        write_private(&self.data.join("postgresql.conf"), &conf, run_as)?;
        let auto_conf = upstream_setting(&self.name, upstream.port());
        write_private(&self.data.join("postgresql.auto.conf"), auto_conf.as_bytes(), run_as)?;
        write_private(&self.data.join(STANDBY_FILE), b"", run_as)?;
        self.start()
    }

    /// Copies the data of this running server and returns the text of the backup label the copy needs.
    fn copy_data_to(&self, target: &Path) -> Result<String> {
        let (start, stop) = match self.programs.major() {
            ..MAJOR_WITH_BACKUP_START => ("pg_start_backup('clone', true, false)", "pg_stop_backup(false, false)"),
            _ => ("pg_backup_start('clone', true)", "pg_backup_stop(false)"),
        };
        // One connection for both: the backup ends with it.
        let mut sql = self.connect("postgres", "postgres")?;
        sql.query(&format!("select {start}"))?;
        let run_as = self.launch.run_as;
        copy_tree(&self.data, target, run_as, &is_left_out, &mut |_| {})?;
        write_private(&target.join(CONTROL_FILE), &fs::read(self.data.join(CONTROL_FILE))?, run_as)?;
        let label = sql.query(&format!("select labelfile from {stop}"))?;
        label.into_iter().flatten().next().flatten().context("the server returned no backup label")
    }

    fn append_auto_conf(&self, line: &str) -> Result<()> {
        let mut file = File::options().append(true).open(self.data.join("postgresql.auto.conf"))?;
        file.write_all(line.as_bytes())?;
        if self.is_running() { self.reload() } else { Ok(()) }
    }
}

fn is_left_out(path: &Path) -> bool {
    let in_empty_folder = EMPTY_FOLDERS.iter().any(|folder| path.parent() == Some(Path::new(folder)));
    let skipped = SKIPPED_FILES.iter().any(|file| path == Path::new(file));
    in_empty_folder || skipped || path.file_name().is_some_and(|name| name == "pg_internal.init")
}
