//! Servers that are being brought back, and how far that is: `SHOW pool_recovery`.

use parking_lot::Mutex;
use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant, SystemTime};
use weir_agent::{JobView, OrderId, OrderKind, OrderProgress};

/// The rate is of this time: long enough to be steady, short enough to follow a source that slows down.
const RATE_WINDOW: Duration = Duration::from_secs(20);
/// Looks that are kept for it. Two a second come at most: the order's own progress, and the questions to all agents.
const LOOKS_MAX: usize = 64;

/// Work on a node's server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecoveryWork {
    /// An order to its agent.
    Agent(OrderKind),
    /// The operator's scripts copy the primary, as in Pgpool-II.
    Scripts,
}

impl RecoveryWork {
    pub fn name(self) -> &'static str {
        match self {
            RecoveryWork::Agent(kind) => kind.name(),
            RecoveryWork::Scripts => "scripts",
        }
    }
}

/// Where the work was ordered, which says who ends its row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OrderedBy {
    /// This Weir: its `RecoveryGuard` ends the row.
    Here,
    /// Somebody else, as another Weir of a group: the agent's answers end it.
    Elsewhere,
}

/// Bytes that were copied when they were looked at, oldest first.
#[derive(Clone, Debug, Default)]
struct CopyPace(VecDeque<(Instant, u64)>);

impl CopyPace {
    fn note(&mut self, now: Instant, done_bytes: u64) {
        while self.0.len() >= LOOKS_MAX || self.0.front().is_some_and(|&(at, _)| now.saturating_duration_since(at) > RATE_WINDOW)
        {
            self.0.pop_front();
        }
        self.0.push_back((now, done_bytes));
    }

    /// `None` before two looks at different times.
    fn bytes_per_second(&self) -> Option<u64> {
        let (&(from, before), &(to, after)) = self.0.front().zip(self.0.back())?;
        let millis = u64::try_from(to.saturating_duration_since(from).as_millis()).ok().filter(|&millis| millis > 0)?;
        Some(after.saturating_sub(before).saturating_mul(1000) / millis)
    }
}

#[derive(Clone, Debug)]
struct RecoveryRecord {
    work: RecoveryWork,
    ordered_by: OrderedBy,
    /// `None` until the agent tells it.
    order: Option<OrderId>,
    begun_at: SystemTime,
    progress: OrderProgress,
    pace: CopyPace,
    told_at: SystemTime,
}

/// Work under way, as it was last heard of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecoverySight {
    pub node: u16,
    pub work: RecoveryWork,
    pub begun_at: SystemTime,
    /// Zeros if unknown.
    pub progress: OrderProgress,
    pub bytes_per_second: Option<u64>,
    pub told_at: SystemTime,
}

impl RecoverySight {
    /// `None` where nobody knows: no total, or nothing moves.
    pub fn left_s(&self) -> Option<u64> {
        let OrderProgress { done_bytes, total_bytes } = self.progress;
        let rate = self.bytes_per_second.filter(|&rate| rate > 0 && total_bytes > 0)?;
        Some(total_bytes.saturating_sub(done_bytes).div_ceil(rate))
    }

    /// Of the total, which is an estimate: the source writes meanwhile.
    pub fn done_percent(&self) -> Option<u64> {
        let OrderProgress { done_bytes, total_bytes } = self.progress;
        (done_bytes.saturating_mul(100)).checked_div(total_bytes).map(|percent| percent.min(100))
    }
}

/// Work by node. At most one thing is done on a node at a time.
#[derive(Debug, Default)]
pub struct Recoveries(Mutex<BTreeMap<u16, RecoveryRecord>>);

/// Ends the row when the work ends or is given up.
pub struct RecoveryGuard<'a> {
    of: &'a Recoveries,
    node: u16,
}

impl RecoveryGuard<'_> {
    pub fn note(&self, progress: OrderProgress) {
        self.of.note(self.node, progress, (Instant::now(), SystemTime::now()));
    }
}

impl Drop for RecoveryGuard<'_> {
    fn drop(&mut self) {
        self.of.0.lock().remove(&self.node);
    }
}

impl Recoveries {
    /// Work that this Weir orders.
    pub fn begin(&self, node: u16, work: RecoveryWork) -> RecoveryGuard<'_> {
        let now = SystemTime::now();
        self.0.lock().insert(node, RecoveryRecord::new(work, OrderedBy::Here, now));
        RecoveryGuard { of: self, node }
    }

    fn note(&self, node: u16, progress: OrderProgress, (now, told_at): (Instant, SystemTime)) {
        if let Some(record) = self.0.lock().get_mut(&node) {
            record.note(progress, now, told_at);
        }
    }

    /// The order that a node's agent has under way, whoever gave it; `None`: it has none.
    pub fn note_job(&self, node: u16, job: Option<&JobView>, (now, told_at): (Instant, SystemTime)) {
        let mut all = self.0.lock();
        let Some(job) = job else {
            // An order of our own may not have reached the agent yet.
            if all.get(&node).is_some_and(|record| record.ordered_by == OrderedBy::Elsewhere) {
                all.remove(&node);
            }
            return;
        };
        let work = RecoveryWork::Agent(job.kind);
        let begun_at = told_at.checked_sub(Duration::from_millis(job.since_ms)).unwrap_or(told_at);
        let record = all.entry(node).or_insert_with(|| RecoveryRecord::new(work, OrderedBy::Elsewhere, begun_at));
        if record.work != work || record.order.is_some_and(|known| known != job.id) {
            *record = RecoveryRecord::new(work, record.ordered_by, begun_at);
        }
        record.order = Some(job.id);
        record.note(job.progress, now, told_at);
    }

    pub fn keep(&self, nodes: &[u16]) {
        self.0.lock().retain(|node, record| record.ordered_by == OrderedBy::Here || nodes.contains(node));
    }

    pub fn all(&self) -> Vec<RecoverySight> {
        self.0.lock().iter().map(|(node, record)| record.sight(*node)).collect()
    }
}

impl RecoveryRecord {
    fn new(work: RecoveryWork, ordered_by: OrderedBy, begun_at: SystemTime) -> RecoveryRecord {
        let (progress, pace) = (OrderProgress::default(), CopyPace::default());
        RecoveryRecord { work, ordered_by, order: None, begun_at, progress, pace, told_at: begun_at }
    }

    fn note(&mut self, progress: OrderProgress, now: Instant, told_at: SystemTime) {
        // Two lines tell of it, and one may be behind.
        if progress.done_bytes < self.progress.done_bytes {
            return;
        }
        // A copy waits for a checkpoint first: that time is no part of its rate.
        if progress.done_bytes > 0 {
            self.pace.note(now, progress.done_bytes);
        }
        (self.progress, self.told_at) = (progress, told_at);
    }

    fn sight(&self, node: u16) -> RecoverySight {
        RecoverySight {
            node,
            work: self.work,
            begun_at: self.begun_at,
            progress: self.progress,
            bytes_per_second: self.pace.bytes_per_second(),
            told_at: self.told_at,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MB: u64 = 1 << 20;

    fn at(ms: u64) -> (Instant, SystemTime) {
        static BEGIN: std::sync::LazyLock<Instant> = std::sync::LazyLock::new(Instant::now);
        (*BEGIN + Duration::from_millis(ms), SystemTime::UNIX_EPOCH + Duration::from_millis(60_000 + ms))
    }

    fn mb(done: u64, total: u64) -> OrderProgress {
        OrderProgress { done_bytes: done * MB, total_bytes: total * MB }
    }

    fn job(kind: OrderKind, since_ms: u64, progress: OrderProgress) -> JobView {
        JobView { id: OrderId(1), kind, since_ms, progress }
    }

    #[test]
    fn the_rate_is_of_the_last_seconds_and_the_time_left_follows() {
        let seen = Recoveries::default();
        let _guard = seen.begin(1, RecoveryWork::Agent(OrderKind::BaseBackup));
        let sight = || seen.all().remove(0);
        // After the begin: megabytes done, expected megabytes a second and seconds left.
        for (ms, done, rate, left) in [
            (0, 0, None, None),
            (5_000, 0, None, None),
            (9_000, 10, None, None),
            (10_000, 30, Some(20), Some(4)),
            (11_000, 50, Some(20), Some(3)),
            (29_000, 86, Some(3), Some(4)),
            (33_000, 86, Some(0), None),
            (80_000, 86, None, None),
            (81_000, 86, Some(0), None),
            (82_000, 101, Some(7), Some(0)),
        ] {
            seen.note(1, mb(done, 100), at(ms));
            let sight = sight();
            assert_eq!((sight.bytes_per_second.map(|rate| rate / MB), sight.left_s()), (rate, left), "after {ms} ms");
        }
        assert_eq!(sight().done_percent(), Some(100), "the source grew");
        seen.note(1, mb(90, 100), at(83_000));
        assert_eq!(sight().progress, mb(101, 100), "news that came late");
        seen.note(1, mb(120, 0), at(84_000));
        assert_eq!((sight().done_percent(), sight().left_s()), (None, None), "a total that nobody knows");
    }

    #[test]
    fn a_row_ends_with_the_order_whoever_gave_it() {
        let seen = Recoveries::default();
        let rows = || seen.all().iter().map(|sight| (sight.node, sight.work.name())).collect::<Vec<_>>();
        let guard = seen.begin(1, RecoveryWork::Agent(OrderKind::BaseBackup));
        seen.note_job(1, None, at(0));
        assert_eq!(rows(), [(1, "base backup")], "the order is on its way");
        seen.note_job(2, Some(&job(OrderKind::Rewind, 3_000, mb(1, 2))), at(0));
        assert_eq!(rows(), [(1, "base backup"), (2, "rewind")]);
        let another = JobView { id: OrderId(2), ..job(OrderKind::Rewind, 3_000, mb(0, 2)) };
        seen.note_job(2, Some(&another), at(0));
        assert_eq!(seen.all()[1].progress, mb(0, 2), "another rewind begins anew");
        assert_eq!(seen.all()[1].begun_at, SystemTime::UNIX_EPOCH + Duration::from_secs(57));
        seen.note_job(2, Some(&job(OrderKind::Start, 100, mb(0, 0))), at(1000));
        assert_eq!(rows(), [(1, "base backup"), (2, "start")]);
        seen.note_job(2, None, at(2000));
        drop(guard);
        assert_eq!(rows(), []);
        seen.note_job(2, Some(&job(OrderKind::Stop, 0, mb(0, 0))), at(3000));
        seen.keep(&[1]);
        assert_eq!(rows(), [], "the node has no agent any more");
    }
}
