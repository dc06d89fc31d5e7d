//! The error of a statement that writes rows of several shards.

use crate::fault::{ErrorReport, sqlstate};

#[cold]
pub fn cannot_spread(why: &str) -> ErrorReport {
    let text = format!("the statement writes rows of several shards, and cannot be carried out on all of them: {why}");
    ErrorReport::error(sqlstate::FEATURE_NOT_SUPPORTED, text)
}

/// The error for a statement whose reads `cross_shard_reads = snapshot` does not cover: each shard reads by a snapshot of its own.
#[cold]
pub fn reads_one_moment() -> ErrorReport {
    let why =
        "it reads rows of several shards beside those that it changes, which cross_shard_reads = snapshot promises at one moment";
    cannot_spread(why).hint("Ask for the rows by a SELECT and write their values, or set cross_shard_reads = latest: each shard then reads by a snapshot of its own.")
}
