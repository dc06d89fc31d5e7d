//! Where the tests' servers keep their data: in memory, if this machine has enough of it.
//!
//! Nothing of it outlives its test. On a disk that others use too, `initdb` alone takes ten times as long, and a test makes up to three servers.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

/// Variable by which programs find a place for temporary files.
const VARIABLE: &str = "TMPDIR";
/// Files in memory on every Linux.
const FOLDER: &str = "/dev/shm";
/// Room there. The servers of the end-to-end tests take up to 2 GB.
const FREE_BYTES_MIN: u64 = 6 << 30;
/// Memory without use, and memory this process may have at all.
const AVAILABLE_BYTES_MIN: u64 = 10 << 30;

/// Starts this program anew with its temporary files in memory, unless somebody has chosen their place or there is too little of it.
///
/// A variable of a running process cannot be changed safely; that of the next program can.
pub fn move_into() -> Result<()> {
    if std::env::var_os(VARIABLE).is_some() || !is_fit(Path::new(FOLDER)) {
        return Ok(());
    }
    println!("servers of tests keep their data in {FOLDER}; {VARIABLE} names another place");
    let program = std::env::current_exe()?;
    let error = Command::new(&program).args(std::env::args_os().skip(1)).env(VARIABLE, OsStr::new(FOLDER)).exec();
    Err(error).with_context(|| format!("cannot start {} again", program.display()))
}

fn is_fit(folder: &Path) -> bool {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let free = rustix::fs::statvfs(folder).map_or(0, |about| about.f_bavail.saturating_mul(about.f_frsize));
    let allowed = ["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"].map(read);
    free >= FREE_BYTES_MIN
        && available_bytes(&read("/proc/meminfo")) >= AVAILABLE_BYTES_MIN
        && allowed.iter().all(|limit| allows(limit))
        && may_run_programs(&read("/proc/mounts"), folder)
}

/// `MemAvailable` of `/proc/meminfo`. Source: proc(5).
fn available_bytes(meminfo: &str) -> u64 {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let number = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    number.unwrap_or(0) << 10
}

/// True if a container's limit is none, or high enough.
fn allows(limit: &str) -> bool {
    limit.trim().parse::<u64>().map_or(true, |bytes| bytes >= AVAILABLE_BYTES_MIN)
}

/// True if the folder is files in memory from which programs and libraries may run: tests make some.
fn may_run_programs(mounts: &str, folder: &Path) -> bool {
    let mount =
        mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>()).rfind(|fields| fields.get(1) == folder.to_str().as_ref());
    let Some([_, _, kind, options, ..]) = mount.as_deref() else { return false };
    *kind == "tmpfs" && options.split(',').all(|option| option != "noexec" && option != "ro")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_in_memory_is_taken_if_programs_may_run_there() {
        let shm = |options: &str| format!("/dev/vda / ext4 rw 0 0\ntmpfs /dev/shm tmpfs {options} 0 0\n");
        let may = |mounts: &str| may_run_programs(mounts, Path::new("/dev/shm"));
        assert!(may(&shm("rw,nosuid,nodev,size=24G")));
        assert!(!may(&shm("rw,nosuid,nodev,noexec")));
        assert!(!may(&shm("ro,nosuid")));
        assert!(!may("/dev/vda /dev/shm ext4 rw 0 0\n"));
        assert!(!may("/dev/vda / ext4 rw 0 0\n"));
    }

    #[test]
    fn too_little_memory_is_known() {
        assert_eq!(available_bytes("MemTotal:  9 kB\nMemAvailable:   2048 kB\n"), 2 << 20);
        assert_eq!(available_bytes(""), 0);
        assert!(allows("max\n") && allows("") && allows("9223372036854771712\n"));
        assert!(!allows("4294967296\n"));
    }
}
