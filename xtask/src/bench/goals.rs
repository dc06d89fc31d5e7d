//! Goals of the benchmark: values that must be reached, values aimed at, and the measured ones.

use super::metric::Metric;
use super::results::Results;
use super::stats::{self, Spread};
use super::system::System;

/// The value that a measured one is compared with.
#[derive(Debug, Clone, Copy)]
enum Against {
    /// This workload on another system.
    System(System),
    /// Another workload on Weir.
    Workload(&'static str),
    /// Weir's gain over another workload, as a part of another system's gain: both ratios are within a round.
    Gain { over: &'static str, of: System },
    /// Another workload on Weir: the difference is the value.
    Beyond(&'static str),
    /// Nothing: the value itself.
    Limit,
}

/// The good side of the line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Good {
    Below,
    Above,
}

struct Goal {
    what: &'static str,
    workload: &'static str,
    metric: Metric,
    against: Against,
    good: Good,
    must: f64,
    aim: f64,
}

const fn cpu(workload: &'static str, against: System, must: f64, aim: f64) -> Goal {
    let what = match against {
        System::Relay => "CPU per transaction / relay",
        _ => "CPU per transaction / pgbouncer",
    };
    Goal { what, workload, metric: Metric::CpuMicros, against: Against::System(against), good: Good::Below, must, aim }
}

const fn rate(workload: &'static str) -> Goal {
    let (metric, against) = (Metric::Tps, Against::System(System::Bouncer));
    Goal { what: "transactions per second / pgbouncer", workload, metric, against, good: Good::Above, must: 1.0, aim: 1.1 }
}

const fn logins(workload: &'static str) -> Goal {
    let (metric, against) = (Metric::Tps, Against::System(System::Bouncer));
    let what = "connections per second / pgbouncer";
    Goal { what, workload, metric, against, good: Good::Above, must: 1.0, aim: 1.5 }
}

const fn memory(workload: &'static str) -> Goal {
    let (metric, against, good) = (Metric::IdleBytes, Against::Limit, Good::Below);
    Goal { what: "bytes per idle client", workload, metric, against, good, must: 3000.0, aim: 2000.0 }
}

const fn passed_through(workload: &'static str) -> Goal {
    let (metric, against) = (Metric::CpuPerGigabyte, Against::System(System::Bouncer));
    Goal { what: "CPU per GB / pgbouncer", workload, metric, against, good: Good::Below, must: 0.8, aim: 0.5 }
}

const fn spread(workload: &'static str, must: f64, aim: f64) -> Goal {
    let (metric, against) = (Metric::Tps, Against::System(System::Pgpool));
    Goal { what: "reads per second / pgpool", workload, metric, against, good: Good::Above, must, aim }
}

const GOALS: &[Goal] = &[
    cpu("simple-8", System::Bouncer, 0.90, 0.75),
    cpu("simple-64", System::Bouncer, 0.90, 0.75),
    cpu("prepared-8", System::Bouncer, 0.90, 0.75),
    cpu("prepared-64", System::Bouncer, 0.90, 0.75),
    cpu("simple-8", System::Relay, 1.25, 1.10),
    cpu("simple-64", System::Relay, 1.25, 1.10),
    cpu("prepared-8", System::Relay, 1.25, 1.10),
    cpu("prepared-64", System::Relay, 1.25, 1.10),
    rate("simple-64"),
    rate("tpcb-8"),
    logins("connect-10"),
    cpu("tls-simple-8", System::Bouncer, 0.90, 0.75),
    cpu("tls-simple-64", System::Bouncer, 0.90, 0.75),
    logins("tls-connect-10"),
    logins("scram-connect-10"),
    memory("idle-new-10000"),
    memory("idle-used-10000"),
    passed_through("rows"),
    passed_through("copy"),
    Goal {
        what: "TPS at 256 clients / at 8",
        workload: "simple-256",
        metric: Metric::Tps,
        against: Against::Workload("simple-8"),
        good: Good::Above,
        must: 0.95,
        aim: 1.0,
    },
    Goal {
        what: "user instructions added by routing",
        workload: "spread-8",
        metric: Metric::UserInstructions,
        against: Against::Beyond("unrouted-8"),
        good: Good::Below,
        must: 1500.0,
        aim: 500.0,
    },
    Goal {
        what: "us for a text never seen",
        workload: "first-sight",
        metric: Metric::FirstSightMicros,
        against: Against::Limit,
        good: Good::Below,
        must: 5.0,
        aim: 2.0,
    },
    Goal {
        what: "CPU of distinct texts / one text",
        workload: "simple-8",
        metric: Metric::CpuMicros,
        against: Against::Workload("same-8"),
        good: Good::Below,
        must: 1.3,
        aim: 1.15,
    },
    spread("spread-8", 2.0, 3.0),
    spread("spread-64", 2.0, 3.0),
    Goal {
        what: "reads on standbys / causal_reads = off",
        workload: "causal-session",
        metric: Metric::OnStandbysPercent,
        against: Against::Workload("causal-off"),
        good: Good::Above,
        must: 0.90,
        aim: 0.97,
    },
    Goal {
        what: "reads beside no writes / causal_reads = session",
        workload: "beside-tables-0",
        metric: Metric::Tps,
        against: Against::Workload("beside-session-0"),
        good: Good::Above,
        must: 0.95,
        aim: 0.98,
    },
    Goal {
        what: "reads beside 20 writes a second of another table / causal_reads = session",
        workload: "beside-tables-20",
        metric: Metric::Tps,
        against: Against::Workload("beside-session-20"),
        good: Good::Above,
        must: 0.95,
        aim: 0.98,
    },
    Goal {
        what: "reads beside 200 writes a second of another table / causal_reads = session",
        workload: "beside-tables-200",
        metric: Metric::Tps,
        against: Against::Workload("beside-session-200"),
        good: Good::Above,
        must: 0.95,
        aim: 0.98,
    },
    Goal {
        what: "reads beside 1,000 writes a second of another table / causal_reads = session",
        workload: "beside-tables-1000",
        metric: Metric::Tps,
        against: Against::Workload("beside-session-1000"),
        good: Good::Above,
        must: 0.95,
        aim: 0.98,
    },
    Goal {
        what: "reads beside 200 writes a second of their table / causal_reads = session",
        workload: "within-tables-200",
        metric: Metric::Tps,
        against: Against::Workload("within-session-200"),
        good: Good::Above,
        must: 0.8,
        aim: 0.9,
    },
    Goal {
        what: "reads beside no writes with causal_reads = global / causal_reads = session",
        workload: "beside-global-0",
        metric: Metric::Tps,
        against: Against::Workload("beside-session-0"),
        good: Good::Above,
        must: 0.98,
        aim: 0.98,
    },
    Goal {
        what: "reads beside 200 writes a second of their table / all on the primary",
        workload: "within-tables-200",
        metric: Metric::Tps,
        against: Against::Workload("within-primary-200"),
        good: Good::Above,
        must: 1.0,
        aim: 1.0,
    },
    spread("tables-1", 2.0, 2.0),
    spread("tables-2", 2.0, 2.0),
    spread("tables-4", 2.0, 2.0),
    spread("tables-8", 2.0, 2.0),
    spread("tables-16", 2.0, 2.0),
    spread("tables-32", 2.0, 2.0),
    spread("tables-64", 2.0, 2.0),
    spread("tables-128", 2.0, 2.0),
    spread("tables-256", 2.0, 2.0),
    hits("hits-8"),
    hits("hits-64"),
    hit_cpu("hits-8"),
    hit_cpu("hits-64"),
    hits("rush-64"),
    gain("hits-8", "hits-8-off"),
    gain("rush-64", "rush-64-off"),
    pays("ratio-10", "ratio-10-off", 0.95),
    pays("ratio-20", "ratio-20-off", 1.0),
    pays("memcached-20", "ratio-20-off", 0.90),
    pays("memcached-40", "ratio-40-off", 1.0),
    Goal {
        what: "hits per second at 256 clients / at 4",
        workload: "hits-256",
        metric: Metric::Tps,
        against: Against::Workload("hits-4"),
        good: Good::Above,
        must: 1.0,
        aim: 1.0,
    },
    Goal {
        what: "us of a write with 1,000,000 answers / with 1,000",
        workload: "invalidate-1m",
        metric: Metric::P50Micros,
        against: Against::Workload("invalidate-1k"),
        good: Good::Below,
        must: 1.1,
        aim: 1.0,
    },
    Goal {
        what: "user instructions added where nothing is kept",
        workload: "uncacheable",
        metric: Metric::UserInstructions,
        against: Against::Beyond("uncacheable-off"),
        good: Good::Below,
        must: 300.0,
        aim: 300.0,
    },
    Goal {
        what: "reads per second with 256 tables / with 64",
        workload: "tables-256",
        metric: Metric::Tps,
        against: Against::Workload("tables-64"),
        good: Good::Above,
        must: 0.80,
        aim: 1.0,
    },
];

/// By the same client with a cache and without.
const fn gain(workload: &'static str, over: &'static str) -> Goal {
    let (metric, against, good) = (Metric::Tps, Against::Gain { over, of: System::Pgpool }, Good::Above);
    Goal { what: "gain of the cache / gain of pgpool's", workload, metric, against, good, must: 2.0, aim: 3.0 }
}

/// tps with a cache against those without.
const fn pays(workload: &'static str, without: &'static str, must: f64) -> Goal {
    let (metric, against, good) = (Metric::Tps, Against::Workload(without), Good::Above);
    Goal { what: "reads per second with a cache / without", workload, metric, against, good, must, aim: 1.0 }
}

const fn hits(workload: &'static str) -> Goal {
    let (metric, against, good) = (Metric::Tps, Against::System(System::Answers), Good::Above);
    Goal { what: "hits per second / a server that knows one answer", workload, metric, against, good, must: 0.7, aim: 0.9 }
}

const fn hit_cpu(workload: &'static str) -> Goal {
    let (metric, against, good) = (Metric::CpuMicros, Against::System(System::Redis), Good::Below);
    Goal { what: "CPU per hit / GET of redis", workload, metric, against, good, must: 1.5, aim: 1.1 }
}

/// How far a goal is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The aim is reached.
    Aim,
    /// The required value is reached.
    Must,
    /// Not even that.
    Missed,
    /// No number.
    NotMeasured,
}

impl Verdict {
    /// The word in the table and in JSON.
    pub fn word(self) -> &'static str {
        match self {
            Verdict::Aim => "reaches the aim",
            Verdict::Must => "reached",
            Verdict::Missed => "MISSED",
            Verdict::NotMeasured => "could not measure",
        }
    }
}

/// One line of the last table.
pub struct Line {
    /// Name of the comparison.
    pub what: &'static str,
    /// Under which workload.
    pub workload: &'static str,
    /// The measured value or ratio.
    pub measured: Option<Spread>,
    /// The line that must be reached.
    pub must: f64,
    /// The line aimed at.
    pub aim: f64,
    /// True if higher is better.
    pub higher_is_better: bool,
    /// Result of the comparison.
    pub verdict: Verdict,
}

/// Holds the results against the goals for which everything was asked for.
pub fn judge(results: &Results, was_asked_for: impl Fn(&str, System) -> bool) -> Vec<Line> {
    let asked = GOALS.iter().filter(|goal| goal.places().into_iter().flatten().all(|(name, system)| was_asked_for(name, system)));
    asked.map(|goal| judge_one(goal, results)).collect()
}

impl Goal {
    /// The workloads and systems of the goal, and of the value it is compared with.
    fn places(&self) -> [Option<(&'static str, System)>; 2] {
        let other = match self.against {
            Against::Workload(other) | Against::Beyond(other) => Some((other, System::Weir)),
            Against::Gain { over, of } => Some((over, of)),
            Against::System(system) => Some((self.workload, system)),
            Against::Limit => None,
        };
        [Some((self.workload, System::Weir)), other]
    }
}

fn judge_one(goal: &Goal, results: &Results) -> Line {
    let ours = (goal.workload, System::Weir);
    let measured = match goal.against {
        Against::System(other) => results.ratio(goal.metric, ours, (goal.workload, other)),
        Against::Workload(other) => results.ratio(goal.metric, ours, (other, System::Weir)),
        Against::Gain { over, of } => {
            let gain = |system| results.ratio(goal.metric, (goal.workload, system), (over, system));
            gain(System::Weir).zip(gain(of)).and_then(|(ours, theirs)| stats::spread(&[ours.median / theirs.median]))
        }
        Against::Beyond(other) => results.difference(goal.metric, ours, (other, System::Weir)),
        Against::Limit => results.spread(ours.0, ours.1, goal.metric),
    };
    let within = |value: f64, line: f64| match goal.good {
        Good::Below => value <= line,
        Good::Above => value >= line,
    };
    let verdict = match measured {
        None => Verdict::NotMeasured,
        Some(spread) if within(spread.median, goal.aim) => Verdict::Aim,
        Some(spread) if within(spread.median, goal.must) => Verdict::Must,
        Some(_) => Verdict::Missed,
    };
    Line {
        what: goal.what,
        workload: goal.workload,
        measured,
        must: goal.must,
        aim: goal.aim,
        higher_is_better: goal.good == Good::Above,
        verdict,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::workload::WORKLOADS;

    #[test]
    fn every_goal_names_a_workload_that_exists() {
        for goal in GOALS {
            for (name, _) in goal.places().into_iter().flatten() {
                assert!(WORKLOADS.iter().any(|workload| workload.name == name), "{name}");
            }
        }
    }

    #[test]
    fn without_results_no_goal_is_called_reached() {
        assert!(judge(&Results::default(), |_, _| true).iter().all(|line| line.verdict == Verdict::NotMeasured));
    }
}
