//! The process as the kernel sees it, under the names that Prometheus' own client libraries use.

use rustix::process::{Resource, getrlimit};
use rustix::time::{ClockId, clock_gettime};

/// CPU time of all threads, also of those that have ended.
pub fn cpu_seconds() -> f64 {
    let spent = clock_gettime(ClockId::ProcessCPUTime);
    spent.tv_sec as f64 + spent.tv_nsec as f64 / 1e9
}

/// Numbers of `/proc/self/status`. `None`: the kernel does not tell, or there is no /proc.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct ProcessStatus {
    pub resident_bytes: Option<u64>,
    pub virtual_bytes: Option<u64>,
    pub threads: Option<u64>,
}

impl ProcessStatus {
    pub fn read() -> ProcessStatus {
        ProcessStatus::parse(&std::fs::read_to_string("/proc/self/status").unwrap_or_default())
    }

    fn parse(text: &str) -> ProcessStatus {
        let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name))?.split_whitespace().next()?.parse().ok();
        let bytes = |name: &str| field(name).and_then(|kilobytes: u64| kilobytes.checked_mul(1024));
        ProcessStatus { resident_bytes: bytes("VmRSS:"), virtual_bytes: bytes("VmSize:"), threads: field("Threads:") }
    }
}

/// The descriptor by which the folder is read does not count. `None`: the folder cannot be read.
pub fn open_descriptors() -> Option<usize> {
    std::fs::read_dir("/proc/self/fd").ok().map(|entries| entries.count().saturating_sub(1))
}

/// `None`: as many as there is room for.
pub fn descriptors_max() -> Option<u64> {
    getrlimit(Resource::Nofile).current
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_words_are_read_and_broken_ones_are_nothing() {
        let text = "Name:\tweir\nVmSize:\t  300 kB\nVmRSS:\t    12 kB\nThreads:\t7\n";
        let expected = ProcessStatus { resident_bytes: Some(12 << 10), virtual_bytes: Some(300 << 10), threads: Some(7) };
        assert_eq!(ProcessStatus::parse(text), expected);
        assert_eq!(ProcessStatus::parse("VmRSS:\tx kB\nVmSize:\n"), ProcessStatus::default());
        assert_eq!(ProcessStatus::parse(&format!("VmRSS: {} kB\n", u64::MAX)), ProcessStatus::default());
    }

    #[test]
    fn this_process_has_memory_threads_and_descriptors() {
        let status = ProcessStatus::read();
        assert!(status.resident_bytes.is_some_and(|bytes| bytes > 1 << 20), "{status:?}");
        assert!(
            status.virtual_bytes >= status.resident_bytes && status.threads.is_some_and(|threads| threads >= 1),
            "{status:?}"
        );
        let before = open_descriptors().unwrap();
        let _more = [0; 8].map(|_| std::fs::File::open("/proc/self/status").unwrap());
        assert!(open_descriptors().unwrap() + 4 > before + 8, "other tests may close some meanwhile");
        assert!(cpu_seconds() > 0.0 && descriptors_max().is_none_or(|max| max > 8));
    }
}
