//! Holds the server of a node to a share of the machine, by control groups.
//!
//! Version 1, whose controllers have a folder each. The groups lie below those of this process, so that nothing leaves the limits it already
//! has. Source: the kernel's Documentation/admin-guide/cgroup-v1, and scheduler/sched-bwc.rst.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::fs::{major, minor};
use weir_demo::wait_until;

use crate::bench::proc;

/// The page cache counts, too.
pub const MEMORY_BYTES: u64 = 128 << 20;
/// Reads from the disk a second.
pub const READS: u32 = 200;
/// Hundredths of a core.
pub const CORE_PERCENT: u32 = 15;
/// A node that has used up its part of a period waits for the next one. With the kernel's own 100 ms a short run would measure these waits.
const PERIOD_MICROS: u32 = 20_000;
/// An ended process leaves its group a moment later.
const LEAVE_LIMIT: Duration = Duration::from_secs(10);

/// The controllers in use.
const CONTROLLERS: [&str; 3] = ["memory", "blkio", "cpu"];

/// Controller, file and value of each limit; the file that says the period comes before the one that divides it.
fn limits(disk: &str, core_percent: u32) -> [(&'static str, &'static str, String); 4] {
    [
        ("memory", "memory.limit_in_bytes", MEMORY_BYTES.to_string()),
        ("blkio", "blkio.throttle.read_iops_device", format!("{disk} {READS}")),
        ("cpu", "cpu.cfs_period_us", PERIOD_MICROS.to_string()),
        ("cpu", "cpu.cfs_quota_us", (PERIOD_MICROS / 100 * core_percent).to_string()),
    ]
}

/// Groups of this process, which groups of nodes can be made in.
pub struct OwnGroups {
    /// Controllers and folders.
    folders: Vec<(&'static str, PathBuf)>,
    /// Major and minor number of the disk whose reads are counted.
    disk: String,
    core_percent: u32,
}

impl OwnGroups {
    /// Groups of this process, for servers whose data lie in `data`.
    ///
    /// Error: a controller is missing or is of version 2, a group cannot be made, or `data` lies on no disk.
    pub fn find(data: &Path) -> Result<Self> {
        Self::of(&CONTROLLERS, disk_of(data)?, CORE_PERCENT)
    }

    /// Groups of this process, for servers that are held to hundredths of a core only. Error: as `find`.
    pub fn of_processor(core_percent: u32) -> Result<Self> {
        Self::of(&["cpu"], String::new(), core_percent)
    }

    fn of(controllers: &[&'static str], disk: String, core_percent: u32) -> Result<Self> {
        let (mounts, own) = (fs::read_to_string("/proc/mounts")?, fs::read_to_string("/proc/self/cgroup")?);
        let folder = |controller: &'static str| -> Result<(&'static str, PathBuf)> {
            let folder = folder_of(&mounts, &own, controller, Path::exists);
            Ok((controller, folder.with_context(|| format!("no controller {controller} of cgroups, version 1"))?))
        };
        let folders = controllers.iter().copied().map(folder).collect::<Result<_>>()?;
        let groups = Self { folders, disk, core_percent };
        NodeGroup::make(&groups, "try").map(|_| groups)
    }
}

/// Groups of one node. Dropping it removes them; its processes must be ending.
pub struct NodeGroup {
    folders: Vec<PathBuf>,
}

impl NodeGroup {
    /// Makes the groups and sets their limits. Error: it is not allowed; nothing stays behind.
    pub fn make(own: &OwnGroups, name: &str) -> Result<Self> {
        let mut group = Self { folders: Vec::new() };
        for (controller, folder) in &own.folders {
            let folder = folder.join(format!("weir-bench-{}-{name}", std::process::id()));
            fs::create_dir(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
            group.folders.push(folder.clone());
            for (_, file, value) in limits(&own.disk, own.core_percent).iter().filter(|(of, ..)| of == controller) {
                let path = folder.join(file);
                fs::write(&path, value).with_context(|| format!("cannot write {value} to {}", path.display()))?;
            }
        }
        Ok(group)
    }

    /// Moves a server into them: its first process, and then those it had started before. Later ones begin there.
    pub fn take(&self, postmaster: u32) -> Result<()> {
        self.move_process(postmaster)?;
        for pid in proc::tree(postmaster) {
            // An error means that it ended meanwhile.
            let _ = self.move_process(pid);
        }
        Ok(())
    }

    fn move_process(&self, pid: u32) -> Result<()> {
        for folder in &self.folders {
            let path = folder.join("cgroup.procs");
            fs::write(&path, pid.to_string()).with_context(|| format!("cannot move process {pid} to {}", path.display()))?;
        }
        Ok(())
    }
}

impl Drop for NodeGroup {
    fn drop(&mut self) {
        for folder in &self.folders {
            let gone = wait_until("the processes of a node to end", LEAVE_LIMIT, || Ok(fs::remove_dir(folder).is_ok()));
            if let Err(error) = gone {
                eprintln!("cannot remove {}: {error:#}", folder.display());
            }
        }
    }
}

/// The folder of this process's group of a controller, from `/proc/mounts` and `/proc/self/cgroup`. Source: cgroups(7).
fn folder_of(mounts: &str, own: &str, controller: &str, is_there: impl Fn(&Path) -> bool) -> Option<PathBuf> {
    let has = |list: &str| list.split(',').any(|word| word == controller);
    let mount = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    let mount = mount.filter(|fields| fields.len() > 3 && fields[2] == "cgroup").find(|fields| has(fields[3]))?;
    let path = own.lines().map(|line| line.splitn(3, ':').collect::<Vec<_>>()).find(|fields| has(fields[1]))?;
    let (mount, path) = (Path::new(mount[1]), path.get(2)?.trim_start_matches('/'));
    // A container may see its own group as the top.
    [mount.join(path), mount.to_owned()].into_iter().find(|folder| is_there(folder))
}

/// "254:0" of the whole disk that a folder lies on.
fn disk_of(folder: &Path) -> Result<String> {
    let device = fs::metadata(folder)?.dev();
    let link = format!("/sys/dev/block/{}:{}", major(device), minor(device));
    let device = fs::canonicalize(link).with_context(|| format!("{} lies on no disk", folder.display()))?;
    let disk = if device.join("partition").exists() { device.parent().unwrap_or(&device) } else { &device };
    Ok(fs::read_to_string(disk.join("dev"))?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "tmpfs /sys/fs/cgroup tmpfs rw 0 0\n\
                          cgroup /sys/fs/cgroup/cpu,cpuacct cgroup rw,cpu,cpuacct 0 0\n\
                          cgroup /sys/fs/cgroup/memory cgroup rw,memory 0 0\n";

    #[test]
    fn groups_of_nodes_are_made_below_our_own() {
        let own = "5:cpu,cpuacct:/\n4:memory:/user/a\n0::/\n";
        let folder = |controller| folder_of(MOUNTS, own, controller, |_| true);
        assert_eq!(folder("memory"), Some("/sys/fs/cgroup/memory/user/a".into()));
        assert_eq!(folder("cpu"), Some("/sys/fs/cgroup/cpu,cpuacct/".into()));
        assert_eq!(folder("blkio"), None);
        let in_container = folder_of(MOUNTS, own, "memory", |path| path == Path::new("/sys/fs/cgroup/memory"));
        assert_eq!(in_container, Some("/sys/fs/cgroup/memory".into()));
    }

    #[test]
    fn version_2_has_no_folder_for_a_controller() {
        assert_eq!(folder_of("cgroup2 /sys/fs/cgroup cgroup2 rw,memory 0 0\n", "0::/user\n", "memory", |_| true), None);
    }
}
