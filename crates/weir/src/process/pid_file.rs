//! The PID file, and the lock that names its owner.
//!
//! A number in a file may be reused or forged. So the running proxy holds a lock on the file, and the kernel tells the owner. A
//! record lock (`fcntl`) names its holder and is not inherited by children. Closing any descriptor of the file releases it, so
//! this process must not open the file elsewhere while `PidFile` lives.

use anyhow::{Context, bail, ensure};
use rustix::fs::{FlockOperation, OFlags, fcntl_lock};
use rustix::io::Errno;
use rustix::process::{Flock, FlockType, Pid, fcntl_getlk, test_kill_process};
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use weir_io::own_files;

const TRIES_MAX: u32 = 100;

/// Behaviour if another process has the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PidFileClaim {
    /// Refuses to start.
    Alone,
    /// Relieves the other process, which ends later.
    Relief,
}

/// The owned file, removed on drop.
#[derive(Debug)]
pub struct PidFile {
    path: PathBuf,
    file: File,
}

impl PidFile {
    pub fn take(path: &Path, claim: PidFileClaim) -> anyhow::Result<PidFile> {
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).with_context(|| format!("pid_file_name: cannot create {}", folder.display()))?;
        }
        let mut file = match claim {
            PidFileClaim::Alone => lock_at(path)?,
            PidFileClaim::Relief => {
                // The old process keeps its lock, on a file without a name.
                let beside = PathBuf::from(format!("{}.{}", path.display(), std::process::id()));
                let file = lock_at(&beside)?;
                let moved = std::fs::rename(&beside, path);
                moved.with_context(|| format!("pid_file_name: cannot replace {}", path.display()))?;
                file
            }
        };
        let written = file.set_len(0).and_then(|()| file.write_all(format!("{}\n", std::process::id()).as_bytes()));
        let file = PidFile { path: path.to_path_buf(), file };
        written.with_context(|| format!("pid_file_name: cannot write {}", path.display()))?;
        Ok(file)
    }
}

impl Drop for PidFile {
    fn drop(&mut self) {
        // After a takeover the name is another process's file.
        if is_at(&self.file, &self.path) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// A zombie can be signalled, but is gone.
pub fn lives(pid: Pid) -> bool {
    if test_kill_process(pid).is_err() {
        return false;
    }
    // The state follows the command's name in parentheses, which may hold any character.
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).unwrap_or_default();
    let state = stat.rsplit_once(')').and_then(|(_, rest)| rest.trim_start().chars().next());
    state != Some('Z')
}

fn lock_at(path: &Path) -> anyhow::Result<File> {
    for _ in 0..TRIES_MAX {
        let mut options = OpenOptions::new();
        let file = own_files::open(path, options.read(true).write(true).create(true).truncate(false));
        let file = file.with_context(|| format!("pid_file_name: cannot write {}", path.display()))?;
        match fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive) {
            // The former owner may have removed it meanwhile.
            Ok(()) if !is_at(&file, path) => {}
            Ok(()) => return Ok(file),
            Err(Errno::AGAIN | Errno::ACCESS) => {
                let by = holder(&file).ok().flatten().map(|pid| format!(", process {}", pid.as_raw_nonzero()));
                bail!(
                    "pid_file_name: {} belongs to another proxy that runs{}; give each a pid_file_name of its own",
                    path.display(),
                    by.unwrap_or_default()
                );
            }
            Err(cause) => return Err(cause).with_context(|| format!("pid_file_name: cannot lock {}", path.display())),
        }
    }
    bail!("pid_file_name: {} is removed again and again", path.display())
}

fn is_at(file: &File, path: &Path) -> bool {
    let (Ok(ours), Ok(there)) = (file.metadata(), std::fs::metadata(path)) else { return false };
    (ours.dev(), ours.ino()) == (there.dev(), there.ino())
}

/// Returns the lock's holder. Fails for a process of another PID namespace.
fn holder(file: &File) -> anyhow::Result<Option<Pid>> {
    let all = Flock::from(FlockType::WriteLock);
    let Some(lock) = fcntl_getlk(file, &all).context("cannot ask for its lock")? else { return Ok(None) };
    let pid = lock.pid.context("its process cannot be seen from here: is it in another container?")?;
    ensure!(!pid.is_init(), "the first process of the system holds its lock");
    Ok(Some(pid))
}

/// Returns the process that holds the lock, whatever the file says.
pub fn running(path: &Path) -> anyhow::Result<Option<Pid>> {
    let name = || format!("pid_file_name: {}", path.display());
    if path.as_os_str().is_empty() {
        bail!("pid_file_name is empty: nothing says which process to look for");
    }
    // Does not block on a FIFO.
    let mut options = OpenOptions::new();
    let flags = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or_default();
    match options.read(true).custom_flags(flags).open(path) {
        Ok(file) => holder(&file).with_context(name),
        Err(cause) if cause.kind() == ErrorKind::NotFound => Ok(None),
        Err(cause) => Err(cause).with_context(name),
    }
}

/// Checks if the file could be written, without creating anything.
pub fn try_path(path: &Path) -> Result<(), String> {
    use rustix::fs::{Access, access};
    if path.as_os_str().is_empty() {
        return Ok(());
    }
    let bad = |place: &Path, cause: &dyn std::fmt::Display| {
        Err(format!("pid_file_name: {} cannot be written: {}: {cause}", path.display(), place.display()))
    };
    if path.is_dir() {
        return bad(path, &"is a folder");
    }
    let place = path.ancestors().find(|place| place.exists());
    let place = place.unwrap_or(Path::new("."));
    if place != path && !place.is_dir() {
        return bad(place, &"is not a folder");
    }
    access(place, Access::WRITE_OK).or_else(|cause| bad(place, &cause))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scratch(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("weir-pid-file-{name}-{}", std::process::id()))
    }

    #[test]
    fn a_number_nobody_holds_the_lock_for_is_no_running_proxy() {
        let path = scratch("stale");
        for text in ["-1\n", "0\n", "1\n", "many\n", &format!("{}\n", std::process::id())] {
            std::fs::write(&path, text).unwrap();
            assert_eq!(running(&path).unwrap(), None, "{text:?}");
        }
        std::fs::remove_file(&path).unwrap();
        assert_eq!(running(&path).unwrap(), None);
        assert!(running(Path::new("")).is_err());
    }

    #[test]
    fn a_place_is_tried_without_making_anything() {
        let path = scratch("folder").join("below").join("weir.pid");
        assert_eq!(try_path(&path), Ok(()));
        assert!(!scratch("folder").exists());
        assert!(try_path(Path::new("/dev/null/weir.pid")).is_err());
        assert!(try_path(&std::env::temp_dir()).is_err());
        assert_eq!(try_path(Path::new("weir.pid")), Ok(()));
        assert_eq!(try_path(Path::new("")), Ok(()));
    }

    #[test]
    fn a_file_left_behind_is_taken_and_removed() {
        let path = scratch("left");
        std::fs::write(&path, "-1 and much more text than a number has\n").unwrap();
        let taken = PidFile::take(&path, PidFileClaim::Alone).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), format!("{}\n", std::process::id()).into_bytes());
        drop(taken);
        assert!(!path.exists());
    }

    #[test]
    fn after_a_takeover_the_file_is_the_new_ones() {
        let path = scratch("relief");
        let old = PidFile::take(&path, PidFileClaim::Alone).unwrap();
        let new = PidFile::take(&path, PidFileClaim::Relief).unwrap();
        drop(old);
        assert!(path.exists(), "the old one leaves it alone");
        drop(new);
        assert!(!path.exists());
    }
}
