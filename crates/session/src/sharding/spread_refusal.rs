//! The error of a statement that writes rows of several shards.

use crate::fault::{ErrorReport, sqlstate};

#[cold]
pub fn cannot_spread(why: &str) -> ErrorReport {
    let text = format!("the statement writes rows of several shards, and cannot be carried out on all of them: {why}");
    ErrorReport::error(sqlstate::FEATURE_NOT_SUPPORTED, text)
}
