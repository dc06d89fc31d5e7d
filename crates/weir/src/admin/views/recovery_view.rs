//! `SHOW pool_recovery`: servers that are being brought back, and how far that is.

use crate::admin::listing::{ListSnapshot, Listing, listing, open, own, time};
use crate::runtime::recoveries::RecoverySight;
use crate::runtime::shared::seconds;

/// Work of an agent is hidden from database users.
pub const POOL_RECOVERY: Listing<RecoverySight> = listing(recovery_rows).columns(&[&[
    open("node_id", |row| row.node.into()),
    own("doing", |row| row.work.name().into()),
    own("begun", |row| time(seconds(row.begun_at))),
    own("done_bytes", |row| row.progress.done_bytes.into()),
    own("total_bytes", |row| Some(row.progress.total_bytes).filter(|total| *total > 0).into()),
    own("done_percent", |row| row.done_percent().into()),
    own("bytes_per_second", |row| row.bytes_per_second.into()),
    own("seconds_left", |row| row.left_s().into()),
    own("last_told", |row| time(seconds(row.told_at))),
]]);

fn recovery_rows(of: &ListSnapshot<'_>) -> Vec<RecoverySight> {
    of.shared.cluster.recoveries.all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::recoveries::RecoveryWork;
    use std::time::{Duration, SystemTime};
    use weir_agent::{OrderKind, OrderProgress};

    #[test]
    fn what_nobody_knows_is_empty() {
        let at = |s| SystemTime::UNIX_EPOCH + Duration::from_secs(s);
        let copy = RecoverySight {
            node: 2,
            work: RecoveryWork::Agent(OrderKind::BaseBackup),
            begun_at: at(60),
            progress: OrderProgress { done_bytes: 250, total_bytes: 1000 },
            bytes_per_second: Some(50),
            told_at: at(65),
        };
        let expected = ["2", "base backup", "1970-01-01 00:01:00", "250", "1000", "25", "50", "15", "1970-01-01 00:01:05"];
        assert_eq!(POOL_RECOVERY.texts(&copy), expected);
        let scripts = RecoverySight {
            work: RecoveryWork::Scripts,
            progress: OrderProgress::default(),
            bytes_per_second: None,
            ..copy.clone()
        };
        let expected = ["2", "scripts", "1970-01-01 00:01:00", "0", "", "", "", "", "1970-01-01 00:01:05"];
        assert_eq!(POOL_RECOVERY.texts(&scripts), expected);
    }
}
