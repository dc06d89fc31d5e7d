//! Curves of the last hour and day, from counters that grow and numbers that are.
//!
//! In: samples with their times. Out: points at even distances. Pure. A point of a minute has the highest of what was seen in it.

use serde_json::{Value, json};
use std::collections::VecDeque;
use weir_session::histogram::{BUCKETS, HistogramCounts, limit_us};

/// Distance of samples: a point of the hour is made of two.
pub const SAMPLE_STEP_MS: u64 = 5_000;
const HOUR_POINTS: usize = 720;
const DAY_STEP_MS: u64 = 60_000;
const DAY_POINTS: usize = 1440;
/// Timers are late by some milliseconds, and a point must not be lost by that.
const TOLERANCE_MS: u64 = 500;

/// Counters of all workers at one time, and what is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TrafficSample {
    /// Since the start of the proxy.
    pub at_ms: u64,
    /// Sent to servers or answered from the query cache.
    pub statements: u64,
    pub transactions: u64,
    pub errors: u64,
    pub cache_hits: u64,
    /// Reads that servers answered.
    pub cache_reads: u64,
    /// Of statements at servers.
    pub times: HistogramCounts,
    /// Statements sent to each node.
    pub by_node: Vec<(u16, u64)>,
    pub gauges: TrafficGauges,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TrafficGauges {
    pub clients: u64,
    /// Clients that wait for a server connection.
    pub waiting: u64,
    /// Of the standby that lags most.
    pub lag_bytes: u64,
}

impl TrafficGauges {
    fn max(self, other: TrafficGauges) -> TrafficGauges {
        TrafficGauges {
            clients: self.clients.max(other.clients),
            waiting: self.waiting.max(other.waiting),
            lag_bytes: self.lag_bytes.max(other.lag_bytes),
        }
    }
}

/// Growth between two samples.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TrafficRates {
    pub statements_s: f64,
    pub transactions_s: f64,
    pub errors_s: f64,
    /// `None`: no statement ended at a server.
    pub p50_us: Option<f64>,
    pub p99_us: Option<f64>,
    /// `None`: nothing was read.
    pub cache_hit_ratio: Option<f64>,
}

impl TrafficRates {
    /// Counters may fall when users are forgotten; that counts as no growth.
    pub fn of(older: &TrafficSample, newer: &TrafficSample) -> TrafficRates {
        let grown = |of: fn(&TrafficSample) -> u64| of(newer).saturating_sub(of(older)) as f64;
        let seconds = (newer.at_ms.saturating_sub(older.at_ms).max(1)) as f64 / 1e3;
        let mut times = HistogramCounts::default();
        for (at, count) in times.buckets.iter_mut().enumerate() {
            *count = newer.times.buckets[at].saturating_sub(older.times.buckets[at]);
        }
        let (hits, reads) = (grown(|sample| sample.cache_hits), grown(|sample| sample.cache_reads));
        TrafficRates {
            statements_s: grown(|sample| sample.statements) / seconds,
            transactions_s: grown(|sample| sample.transactions) / seconds,
            errors_s: grown(|sample| sample.errors) / seconds,
            p50_us: percentile_us(&times, 0.5),
            p99_us: percentile_us(&times, 0.99),
            cache_hit_ratio: (hits + reads > 0.0).then(|| hits / (hits + reads)),
        }
    }
}

/// Within a bucket, times are taken as even. The last bucket has no end: its begin counts.
fn percentile_us(times: &HistogramCounts, part: f64) -> Option<f64> {
    let wanted = times.count() as f64 * part;
    let mut below = 0.0;
    for (at, count) in times.buckets.iter().enumerate().filter(|(_, count)| **count > 0) {
        let from = at.checked_sub(1).and_then(limit_us).unwrap_or(0) as f64;
        if below + *count as f64 >= wanted {
            let to = limit_us(at).map_or(from, |limit| limit as f64);
            return Some(from + (to - from) * (wanted - below) / *count as f64);
        }
        below += *count as f64;
    }
    debug_assert!(times.buckets.len() == BUCKETS && below == 0.0, "a part of all is reached in some bucket");
    None
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HistorySpan {
    Hour,
    Day,
}

const SERIES: usize = 8;
const NAMES: [&str; SERIES] =
    ["statements_s", "transactions_s", "clients", "waiting", "p99_us", "lag_bytes", "errors_s", "cache_hit_ratio"];

/// In the order of `NAMES`; NaN where nothing is known.
type HistoryPoint = [f32; SERIES];

const GAP: HistoryPoint = [f32::NAN; SERIES];
/// Place of `waiting` in `NAMES`.
const WAITING: usize = 3;

struct HistoryRing {
    step_ms: u64,
    points_max: usize,
    points: VecDeque<HistoryPoint>,
    /// The last point was made of this one.
    last: Option<TrafficSample>,
    peak: TrafficGauges,
}

impl HistoryRing {
    fn new(step_ms: u64, points_max: usize) -> HistoryRing {
        HistoryRing { step_ms, points_max, points: VecDeque::new(), last: None, peak: TrafficGauges::default() }
    }

    fn note(&mut self, sample: &TrafficSample) {
        self.peak = self.peak.max(sample.gauges);
        let Some(last) = &self.last else {
            self.last = Some(sample.clone());
            return;
        };
        let steps = (sample.at_ms.saturating_sub(last.at_ms) + TOLERANCE_MS) / self.step_ms;
        if steps == 0 {
            return;
        }
        let missed = usize::try_from(steps - 1).unwrap_or(usize::MAX).min(self.points_max);
        self.points.extend(std::iter::repeat_n(GAP, missed));
        let (rates, peak) = (TrafficRates::of(last, sample), std::mem::take(&mut self.peak));
        let or_gap = |value: Option<f64>| value.map_or(f32::NAN, |value| value as f32);
        self.points.push_back([
            rates.statements_s as f32,
            rates.transactions_s as f32,
            peak.clients as f32,
            peak.waiting as f32,
            or_gap(rates.p99_us),
            peak.lag_bytes as f32,
            rates.errors_s as f32,
            or_gap(rates.cache_hit_ratio),
        ]);
        let surplus = self.points.len().saturating_sub(self.points_max);
        self.points.drain(..surplus);
        self.last = Some(sample.clone());
    }
}

/// Both rings together have less than 100 kB.
pub struct TrafficHistory {
    hour: HistoryRing,
    day: HistoryRing,
}

impl Default for TrafficHistory {
    fn default() -> TrafficHistory {
        TrafficHistory { hour: HistoryRing::new(SAMPLE_STEP_MS, HOUR_POINTS), day: HistoryRing::new(DAY_STEP_MS, DAY_POINTS) }
    }
}

impl TrafficHistory {
    /// Samples come about each `SAMPLE_STEP_MS`; more often does no harm.
    pub fn note(&mut self, sample: &TrafficSample) {
        self.hour.note(sample);
        self.day.note(sample);
    }

    pub fn is_due(&self, now_ms: u64) -> bool {
        self.hour.last.as_ref().is_none_or(|last| now_ms + TOLERANCE_MS >= last.at_ms + SAMPLE_STEP_MS)
    }

    /// Part of the known last hour in which clients waited.
    pub fn waiting_share(&self) -> f64 {
        let known = self.hour.points.iter().filter(|point| !point[WAITING].is_nan());
        let (all, waits) = known.fold((0_u32, 0_u32), |(all, waits), point| (all + 1, waits + u32::from(point[WAITING] > 0.0)));
        if all == 0 { 0.0 } else { f64::from(waits) / f64::from(all) }
    }

    /// `first_at`: words for a time in milliseconds since the start of the proxy.
    pub fn shown(&self, span: HistorySpan, first_at: impl Fn(u64) -> String) -> Value {
        let ring = match span {
            HistorySpan::Hour => &self.hour,
            HistorySpan::Day => &self.day,
        };
        let length_ms = ring.step_ms * ring.points.len().saturating_sub(1) as u64;
        let first = ring.last.as_ref().filter(|_| !ring.points.is_empty()).map(|last| last.at_ms.saturating_sub(length_ms));
        let line = |at: usize| ring.points.iter().map(|point| number(point[at])).collect::<Vec<Value>>();
        let series: serde_json::Map<String, Value> =
            NAMES.iter().enumerate().map(|(at, name)| ((*name).to_owned(), Value::from(line(at)))).collect();
        json!({ "step_s": ring.step_ms / 1000, "first_at": first.map(first_at), "series": series })
    }
}

/// Three digits are enough for a curve.
pub fn number(value: f32) -> Value {
    rounded(f64::from(value))
}

pub fn rounded(value: f64) -> Value {
    if value.is_finite() { json!((value * 1e3).round() / 1e3) } else { Value::Null }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_session::histogram::Histogram;

    fn sample(at_ms: u64, statements: u64, waiting: u64) -> TrafficSample {
        let gauges = TrafficGauges { clients: 3, waiting, lag_bytes: 0 };
        TrafficSample { at_ms, statements, gauges, ..TrafficSample::default() }
    }

    fn series(history: &TrafficHistory, span: HistorySpan, name: &str) -> Vec<Option<f64>> {
        let shown = history.shown(span, |ms| ms.to_string());
        shown["series"][name].as_array().unwrap().iter().map(Value::as_f64).collect()
    }

    #[test]
    fn points_are_even_and_what_nobody_saw_is_a_gap() {
        let mut history = TrafficHistory::default();
        assert_eq!(history.shown(HistorySpan::Hour, |ms| ms.to_string())["first_at"], Value::Null);
        for (at_ms, statements) in [(0, 0), (1_000, 1), (5_020, 10), (9_990, 20), (25_000, 50)] {
            history.note(&sample(at_ms, statements, 0));
        }
        let shown = history.shown(HistorySpan::Hour, |ms| ms.to_string());
        assert_eq!((&shown["step_s"], &shown["first_at"]), (&json!(5), &json!("5000")));
        let statements = series(&history, HistorySpan::Hour, "statements_s");
        assert_eq!(statements.len(), 5, "{statements:?}");
        assert!((statements[0].unwrap() - 2.0).abs() < 0.02 && (statements[1].unwrap() - 2.0).abs() < 0.02, "{statements:?}");
        assert_eq!([statements[2], statements[3]], [None, None]);
        assert!(statements[4].is_some() && series(&history, HistorySpan::Day, "clients").is_empty());
    }

    #[test]
    fn a_minute_has_the_most_of_its_samples_and_rings_are_bounded() {
        let mut history = TrafficHistory::default();
        for step in 0..30_000_u64 {
            history.note(&sample(step * SAMPLE_STEP_MS, step * 50, u64::from(step % 12 == 5) * 7));
        }
        let waiting = series(&history, HistorySpan::Day, "waiting");
        assert_eq!((waiting.len(), waiting[100]), (DAY_POINTS, Some(7.0)));
        assert_eq!(series(&history, HistorySpan::Day, "statements_s")[1439], Some(10.0));
        assert_eq!(series(&history, HistorySpan::Hour, "waiting").len(), HOUR_POINTS);
        assert!((history.waiting_share() - 1.0 / 12.0).abs() < 0.01);
        let bytes = (HOUR_POINTS + DAY_POINTS) * size_of::<HistoryPoint>();
        assert!(bytes < 100_000, "{bytes}");
    }

    #[test]
    fn a_long_pause_costs_no_more_than_the_ring() {
        let mut history = TrafficHistory::default();
        history.note(&sample(0, 0, 0));
        history.note(&sample(u64::MAX / 2, 10, 0));
        assert_eq!(series(&history, HistorySpan::Hour, "clients").len(), HOUR_POINTS);
    }

    #[test]
    fn percentiles_lie_in_the_bucket_of_their_statement() {
        let times = Histogram::default();
        assert_eq!(percentile_us(&times.counted(), 0.5), None);
        (0..98).for_each(|_| times.note(100));
        (0..2).for_each(|_| times.note(5_000));
        let [half, most] = [0.5, 0.99].map(|part| percentile_us(&times.counted(), part).unwrap());
        assert!((64.0..=128.0).contains(&half) && (4096.0..=8192.0).contains(&most), "{half} {most}");
        let endless = Histogram::default();
        endless.note(u64::MAX / 4);
        assert_eq!(percentile_us(&endless.counted(), 0.5), Some(67_108_864.0));
    }

    #[test]
    fn rates_are_growth_by_time_and_never_negative() {
        let older = TrafficSample { at_ms: 1_000, transactions: 50, cache_hits: 1, ..sample(1_000, 100, 0) };
        let newer = TrafficSample { transactions: 40, cache_hits: 4, cache_reads: 1, ..sample(3_000, 300, 0) };
        let rates = TrafficRates::of(&older, &newer);
        assert_eq!((rates.statements_s, rates.transactions_s, rates.p99_us), (100.0, 0.0, None));
        assert_eq!(rates.cache_hit_ratio, Some(0.75));
        assert!(TrafficRates::of(&older, &older).statements_s == 0.0);
    }
}
