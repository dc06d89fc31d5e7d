//! The files of `bench/results`: which systems run for each, how many rounds, and for which workloads calls and instructions are counted.
//!
//! All three together take less than 25 minutes on a machine of two cores, without building.

use super::system::System;
use super::workload::{Kind, Stage, Workload};

/// One file of kept results.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub enum File {
    /// Pooling and routing beside PgBouncer and Pgpool-II: most of the README's tables.
    Table,
    /// The query cache beside Pgpool-II's.
    Cache,
    /// One read by number of clients, and memory by number of idle clients.
    Clients,
}

/// All of them.
pub const FILES: [File; 3] = [File::Table, File::Cache, File::Clients];

/// Memory does not depend on other work of the machine: more rounds would tell nothing.
pub const IDLE_ROUNDS_MAX: u32 = 3;

/// Each count takes seconds, so that it is made for these only.
const COUNTED: [&str; 9] =
    ["simple-8", "extended-8", "prepared-8", "tpcb-8", "unrouted-8", "spread-8", "hits-8", "uncacheable", "uncacheable-off"];

impl File {
    /// Its name in `bench/results`.
    pub fn name(self) -> &'static str {
        match self {
            File::Table => "table.json",
            File::Cache => "cache.json",
            File::Clients => "clients.json",
        }
    }

    /// Rounds of its workloads. Differences from PgBouncer are small, and take more rounds than those of a cache.
    pub fn rounds(self) -> u32 {
        match self {
            File::Table | File::Clients => 9,
            File::Cache => 5,
        }
    }
}

/// The systems whose results are kept under a workload.
pub fn kept_systems(workload: &Workload) -> &'static [System] {
    match (workload.file, workload.kind, workload.stage) {
        (None, _, _) => &[],
        (Some(File::Table), _, stage) if stage.is_plain() => &[System::Weir, System::Bouncer],
        (Some(File::Table), _, Stage::Spread) => &[System::Weir, System::Pgpool],
        (Some(File::Table), _, _) => &[System::Weir],
        (Some(File::Cache), Kind::Uncacheable, _) => &[System::Weir],
        (Some(File::Cache), Kind::Hits, Stage::Cached) => &[System::Weir, System::Pgpool, System::Answers, System::Redis],
        (Some(File::Cache), Kind::Rush, Stage::Cached) => &[System::Weir, System::Pgpool, System::Answers],
        (Some(File::Cache), _, _) => &[System::Weir, System::Pgpool],
        (Some(File::Clients), Kind::Idle { .. }, _) => &[System::Weir, System::Bouncer, System::Pgpool],
        (Some(File::Clients), _, _) => &[System::Direct, System::Weir, System::Bouncer, System::Pgpool, System::Relay],
    }
}

/// True if calls and instructions of a system are counted for a kept file.
pub fn is_counted(workload: &Workload, system: System) -> bool {
    COUNTED.contains(&workload.name) && matches!(system, System::Weir | System::Bouncer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::workload::WORKLOADS;

    #[test]
    fn every_workload_that_is_counted_is_kept() {
        for name in COUNTED {
            let workload = WORKLOADS.iter().find(|workload| workload.name == name).expect("a workload of that name");
            assert!(workload.file.is_some(), "{name}");
        }
    }

    #[test]
    fn what_is_kept_is_measured_on_weir() {
        for workload in WORKLOADS.iter().filter(|workload| workload.file.is_some()) {
            assert!(kept_systems(workload).contains(&System::Weir), "{}", workload.name);
        }
    }
}
