//! Which systems run for each file of `bench/results`, and for which workloads calls and instructions are counted.
//!
//! All three together take less than 25 minutes on a machine of two cores, without building.

use super::result_file::ResultFile;
use super::system::System;
use super::workload::{Kind, Stage, Workload};

/// Memory does not depend on other work of the machine: more rounds would tell nothing.
pub const IDLE_ROUNDS_MAX: u32 = 3;

/// Each count takes seconds, so that it is made for these only.
const COUNTED: [&str; 9] =
    ["simple-8", "extended-8", "prepared-8", "tpcb-8", "unrouted-8", "spread-8", "hits-8", "uncacheable", "uncacheable-off"];

/// The systems whose results are kept under a workload.
pub fn kept_systems(workload: &Workload) -> &'static [System] {
    match (workload.file, workload.kind, workload.stage) {
        (None, _, _) => &[],
        (Some(ResultFile::Table), _, stage) if stage.is_plain() => &[System::Weir, System::Bouncer],
        (Some(ResultFile::Table), _, Stage::Spread) => &[System::Weir, System::Pgpool],
        (Some(ResultFile::Table), _, _) => &[System::Weir],
        (Some(ResultFile::Cache), Kind::Uncacheable, _) => &[System::Weir],
        (Some(ResultFile::Cache), Kind::Hits, Stage::Cached) => &[System::Weir, System::Pgpool, System::Answers, System::Redis],
        (Some(ResultFile::Cache), Kind::Rush, Stage::Cached) => &[System::Weir, System::Pgpool, System::Answers],
        (Some(ResultFile::Cache), _, _) => &[System::Weir, System::Pgpool],
        (Some(ResultFile::Clients), Kind::Idle { .. }, _) => &[System::Weir, System::Bouncer, System::Pgpool],
        (Some(ResultFile::Clients), _, _) => &[System::Direct, System::Weir, System::Bouncer, System::Pgpool, System::Relay],
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
