//! Counts per user and database. Each worker counts in its own, without a lock; the reader adds them up.

use crate::histogram::{Histogram, HistogramCounts, add};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Named and ordered as in PgBouncer's SHOW STATS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum StatCounter {
    Assignments,
    Transactions,
    Statements,
    Received,
    Sent,
    TransactionUs,
    StatementUs,
    WaitUs,
    ClientParses,
    ServerParses,
    Binds,
    Logins,
}

pub const STATS: usize = StatCounter::Logins as usize + 1;

#[derive(Debug)]
pub struct TrafficStats {
    values: [AtomicU64; STATS],
    pub(crate) statements: Histogram,
    pub(crate) waits: Histogram,
}

impl Default for TrafficStats {
    fn default() -> TrafficStats {
        TrafficStats {
            values: [const { AtomicU64::new(0) }; STATS],
            statements: Histogram::default(),
            waits: Histogram::default(),
        }
    }
}

impl TrafficStats {
    pub fn get(&self, stat: StatCounter) -> u64 {
        self.values[stat as usize].load(Ordering::Relaxed)
    }

    #[inline]
    pub fn add(&self, stat: StatCounter, amount: u64) {
        add(&self.values[stat as usize], amount);
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StatTotals {
    values: [u64; STATS],
    pub statements: HistogramCounts,
    pub waits: HistogramCounts,
}

impl StatTotals {
    pub fn get(&self, stat: StatCounter) -> u64 {
        self.values[stat as usize]
    }

    pub fn add(&mut self, other: &StatTotals) {
        for (value, more) in self.values.iter_mut().zip(&other.values) {
            *value += more;
        }
        self.statements.add(&other.statements);
        self.waits.add(&other.waits);
    }

    fn take_in(&mut self, stats: &TrafficStats) {
        for (value, more) in self.values.iter_mut().zip(&stats.values) {
            *value += more.load(Ordering::Relaxed);
        }
        self.statements.add(&stats.statements.counted());
        self.waits.add(&stats.waits.counted());
    }
}

pub type Whose = (Arc<str>, Arc<str>);

#[derive(Clone, Debug, Default)]
pub struct StatPeriod {
    pub length_us: u64,
    begin: BTreeMap<Arc<str>, StatTotals>,
    end: BTreeMap<Arc<str>, StatTotals>,
}

impl StatPeriod {
    pub fn grown(&self, database: &str, stat: StatCounter) -> u64 {
        let of = |at: &BTreeMap<Arc<str>, StatTotals>| at.get(database).map_or(0, |totals| totals.get(stat));
        of(&self.end).saturating_sub(of(&self.begin))
    }
}

#[derive(Debug, Default)]
struct StatRows {
    of: Vec<(Whose, Arc<TrafficStats>)>,
    /// Numbers of forgotten users by database, so that these never fall.
    forgotten: BTreeMap<Arc<str>, StatTotals>,
}

#[derive(Debug, Default)]
pub struct StatTable {
    rows: Mutex<StatRows>,
    last: Mutex<Option<(Instant, StatPeriod)>>,
}

impl StatTable {
    pub fn open(&self, user: &Arc<str>, database: &Arc<str>) -> Arc<TrafficStats> {
        let stats = Arc::new(TrafficStats::default());
        self.rows.lock().of.push(((database.clone(), user.clone()), stats.clone()));
        stats
    }

    /// Forgets the numbers of a user and database that no server let in.
    pub fn close(&self, stats: &Arc<TrafficStats>) {
        self.rows.lock().of.retain(|(_, known)| !Arc::ptr_eq(known, stats));
    }

    /// Forgets a user's numbers: they stay in the database's, unless they were its last.
    pub fn retire(&self, stats: &Arc<TrafficStats>) {
        let StatRows { of, forgotten } = &mut *self.rows.lock();
        let Some(at) = of.iter().position(|(_, known)| Arc::ptr_eq(known, stats)) else { return };
        let ((database, _), _) = of.swap_remove(at);
        if of.iter().any(|((other, _), _)| *other == database) {
            forgotten.entry(database).or_default().take_in(stats);
        } else {
            forgotten.remove(&database);
        }
    }

    pub fn by_pool(&self) -> BTreeMap<Whose, StatTotals> {
        let mut totals = BTreeMap::<Whose, StatTotals>::new();
        for (whose, stats) in &self.rows.lock().of {
            totals.entry(whose.clone()).or_default().take_in(stats);
        }
        totals
    }

    pub fn by_database(&self) -> BTreeMap<Arc<str>, StatTotals> {
        let mut totals = self.rows.lock().forgotten.clone();
        for ((database, _), more) in self.by_pool() {
            totals.entry(database).or_default().add(&more);
        }
        totals
    }

    /// Begins a new period if this one is over. For about one call a second.
    pub fn roll(&self, now: Instant, period_ms: u64) {
        let mut last = self.last.lock();
        let begun = last.as_ref().map(|(since, _)| *since);
        let passed_us = begun.map_or(0, |since| now.saturating_duration_since(since).as_micros() as u64);
        if begun.is_some() && passed_us < period_ms.saturating_mul(1000) {
            return;
        }
        let begin = last.take().map(|(_, period)| period.end).unwrap_or_default();
        *last = Some((now, StatPeriod { length_us: passed_us, begin, end: self.by_database() }));
    }

    /// Of length 0 before the first period is over.
    pub fn period(&self) -> StatPeriod {
        self.last.lock().as_ref().map(|(_, period)| period.clone()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn averages_are_those_of_the_last_whole_period() {
        let table = StatTable::default();
        let stats = table.open(&"joe".into(), &"shop".into());
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        stats.add(StatCounter::Statements, 100);
        table.roll(start, 1000);
        assert_eq!((table.period().length_us, table.period().grown("none", StatCounter::Statements)), (0, 0));
        stats.add(StatCounter::Statements, 7);
        table.roll(start + Duration::from_millis(999), 1000);
        assert_eq!(table.period().length_us, 0, "not over yet");
        table.roll(at(2), 1000);
        let period = table.period();
        assert_eq!((period.length_us, period.grown("shop", StatCounter::Statements)), (2_000_000, 7));
        table.roll(at(3), 1000);
        assert_eq!(table.period().grown("shop", StatCounter::Statements), 0);
    }

    #[test]
    fn numbers_of_all_workers_add_up_and_forgotten_ones_are_gone() {
        let table = StatTable::default();
        let (a, b) = (table.open(&"joe".into(), &"shop".into()), table.open(&"joe".into(), &"shop".into()));
        let other = table.open(&"ann".into(), &"shop".into());
        a.add(StatCounter::Sent, 5);
        b.add(StatCounter::Sent, 6);
        other.add(StatCounter::Sent, 100);
        a.waits.note(10);
        assert_eq!(table.by_database()[&Arc::<str>::from("shop")].get(StatCounter::Sent), 111);
        let joe = table.by_pool()[&("shop".into(), "joe".into())];
        assert_eq!((joe.get(StatCounter::Sent), joe.waits.count()), (11, 1));
        table.close(&other);
        assert_eq!(table.by_pool().len(), 1);
    }

    #[test]
    fn numbers_of_a_database_do_not_fall_when_a_user_is_forgotten() {
        let table = StatTable::default();
        let sent = || table.by_database().get("shop").map(|totals| totals.get(StatCounter::Sent));
        let users: Vec<_> = (0..3).map(|n| table.open(&format!("user_{n}").into(), &"shop".into())).collect();
        users.iter().for_each(|stats| stats.add(StatCounter::Sent, 5));
        for left in [2, 1] {
            table.retire(&users[left]);
            assert_eq!((sent(), table.by_pool().len()), (Some(15), left));
        }
        table.retire(&users[0]);
        assert_eq!(sent(), None, "nobody uses it any more");
    }
}
