//! Health of one node from looks, as in Pgpool's health check, and counts for SHOW pool_health_check_stats.

use super::event::{LookFailure, Ms, ProbeResult, ServerConnEnd};
use super::rules::{ConnEndPolicy, FailoverRules, HealthRules};

/// Least time allowed for a start or recovery.
const STARTING_MS: Ms = 10_000;
pub(super) const RECHECK_MS: Ms = 200;
/// Consecutive lost connections that do not count: a killed backend or ended session looks like the end of the server.
const CUT_OFF_MAX: u32 = 2;
const LOOK_MS: Ms = 10_000;

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct LookHistory {
    pub failures: u32,
    /// Middle of the first: a stopping server may have answered others after the look began.
    pub failing_since: Option<Ms>,
    starting_since: Option<Ms>,
    /// Consecutive looks with a lost connection.
    cut_off: u32,
    pub suspicion: NodeSuspicion,
    pub(super) late: LoginLateness,
    pub stats: HealthCheckStats,
}

/// Answers over open connections, but no login.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum LoginLateness {
    #[default]
    No,
    Since(Ms),
    Told,
}

/// A client's broken connection; one look begun later decides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum NodeSuspicion {
    #[default]
    None,
    /// A failure other than a shutdown counts at once.
    Broken { since: Ms },
    /// Any failure counts at once.
    Terminated { since: Ms },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HealthVerdict {
    Alive,
    /// The server lives but cannot be asked.
    Mute(LookFailure),
    Doubtful {
        again_at: Ms,
    },
    Dead(LookFailure),
}

/// A retry is a look after a failed one. Milliseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct HealthCheckStats {
    pub total: u64,
    pub success: u64,
    pub fail: u64,
    pub skip: u64,
    pub retry: u64,
    pub retry_max: u64,
    pub duration_sum_ms: u64,
    pub duration_max_ms: Ms,
    pub duration_min_ms: Option<Ms>,
    pub last_at: Option<Ms>,
    pub last_success_at: Option<Ms>,
    pub last_skip_at: Option<Ms>,
    pub last_fail_at: Option<Ms>,
}

impl LookHistory {
    pub fn judge(&mut self, rules: &HealthRules, begun_at: Ms, found: &ProbeResult, now: Ms) -> HealthVerdict {
        let is_suspect = match self.suspicion {
            NodeSuspicion::None => false,
            NodeSuspicion::Broken { since } | NodeSuspicion::Terminated { since } => begun_at >= since,
        };
        let ProbeResult::Failed(failure) = found else {
            self.stats.note(begun_at, now, true, self.failures);
            (self.failures, self.failing_since, self.starting_since, self.cut_off) = (0, None, None, 0);
            if is_suspect {
                self.suspicion = NodeSuspicion::None;
            }
            return HealthVerdict::Alive;
        };
        self.stats.note(begun_at, now, false, self.failures);
        self.cut_off = if *failure == LookFailure::Lost { self.cut_off + 1 } else { 0 };
        let is_cut_off = *failure == LookFailure::Lost && self.cut_off <= CUT_OFF_MAX;
        if is_cut_off || matches!(failure, LookFailure::Ended | LookFailure::Local) {
            return HealthVerdict::Doubtful { again_at: now + RECHECK_MS };
        }
        if *failure == LookFailure::Starting {
            let since = *self.starting_since.get_or_insert(begun_at);
            let grace = STARTING_MS.max(u64::from(rules.retries + 1) * (rules.timeout_ms + rules.retry_delay_ms));
            return if now >= since + grace {
                HealthVerdict::Dead(*failure)
            } else {
                HealthVerdict::Doubtful { again_at: now + RECHECK_MS }
            };
        }
        if failure.is_mute() {
            (self.failures, self.failing_since, self.starting_since) = (0, None, None);
            self.suspicion = NodeSuspicion::None;
            return HealthVerdict::Mute(*failure);
        }
        self.failures += 1;
        self.failing_since.get_or_insert(begun_at + now.saturating_sub(begun_at) / 2);
        let counts_at_once = match (self.suspicion, failure) {
            (NodeSuspicion::Terminated { .. }, _) => is_suspect,
            (NodeSuspicion::Broken { .. }, LookFailure::ShuttingDown) | (NodeSuspicion::None, _) => false,
            (NodeSuspicion::Broken { .. }, _) => is_suspect,
        };
        if counts_at_once || self.failures > rules.retries {
            return HealthVerdict::Dead(*failure);
        }
        HealthVerdict::Doubtful { again_at: now + rules.retry_delay_ms }
    }

    /// The caller looks at the node in any case.
    pub fn suspect(&mut self, rules: &FailoverRules, how: ServerConnEnd, now: Ms) {
        let next = match how {
            ServerConnEnd::Terminated if rules.on_shutdown == ConnEndPolicy::Counts => NodeSuspicion::Terminated { since: now },
            ServerConnEnd::Broken if rules.on_error == ConnEndPolicy::Counts => NodeSuspicion::Broken { since: now },
            ServerConnEnd::Terminated | ServerConnEnd::Broken => return,
        };
        // A look begun since the first one answers it.
        if self.suspicion == NodeSuspicion::None || matches!(next, NodeSuspicion::Terminated { .. }) {
            self.suspicion = next;
        }
    }

    pub fn skip(&mut self, now: Ms) {
        (self.stats.skip, self.stats.last_skip_at) = (self.stats.skip + 1, Some(now));
    }
}

impl HealthCheckStats {
    fn note(&mut self, begun_at: Ms, now: Ms, is_success: bool, failures: u32) {
        let duration = now.saturating_sub(begun_at);
        self.total += 1;
        self.last_at = Some(now);
        self.duration_sum_ms += duration;
        self.duration_max_ms = self.duration_max_ms.max(duration);
        self.duration_min_ms = Some(self.duration_min_ms.map_or(duration, |least| least.min(duration)));
        self.retry += u64::from(failures > 0);
        self.retry_max = self.retry_max.max(u64::from(failures));
        if is_success {
            (self.success, self.last_success_at) = (self.success + 1, Some(now));
        } else {
            (self.fail, self.last_fail_at) = (self.fail + 1, Some(now));
        }
    }
}

impl HealthRules {
    /// True for the first look near the limit.
    pub(super) fn is_near(&self, took_ms: Ms, longest_ms: Ms) -> bool {
        let half = self.limit_ms() / 2;
        took_ms > half && longest_ms <= half
    }

    pub fn limit_ms(&self) -> Ms {
        if self.timeout_ms == 0 || self.period_ms == 0 { LOOK_MS } else { self.timeout_ms }
    }
}

#[cfg(test)]
mod tests {
    use super::super::event::ServerFacts;
    use super::super::rules::tests::rules;
    use super::*;

    const RULES: HealthRules = HealthRules { period_ms: 1000, timeout_ms: 1000, retries: 1, retry_delay_ms: 500 };

    /// Looks a second apart, as `ok` or a failure, and the last verdict.
    fn check(name: &str, before: Option<ServerConnEnd>, looks: &[Option<LookFailure>], expected: HealthVerdict) {
        let mut health = LookHistory::default();
        let mut all = rules(3);
        all.on_shutdown = ConnEndPolicy::Counts;
        if let Some(how) = before {
            health.suspect(&all, how, 500);
        }
        let mut last = HealthVerdict::Alive;
        for (at, look) in looks.iter().enumerate() {
            let begun = 1000 * (at as Ms + 1);
            let found = look.map_or(ProbeResult::Answered(Box::<ServerFacts>::default()), ProbeResult::Failed);
            last = health.judge(&RULES, begun, &found, begun + 10);
        }
        assert_eq!(last, expected, "{name}");
    }

    #[test]
    fn a_node_is_dead_when_looks_in_a_row_find_nobody() {
        use LookFailure::*;
        let doubt = |at| HealthVerdict::Doubtful { again_at: at };
        check("once", None, &[Some(Refused)], doubt(1510));
        check("twice, with one retry", None, &[Some(Refused), Some(TimedOut)], HealthVerdict::Dead(TimedOut));
        check("not in a row", None, &[Some(Refused), None, Some(Refused)], doubt(3510));
        check("a wrong password between", None, &[Some(Refused), Some(WrongPassword), Some(Refused)], doubt(3510));
        check("a wrong password is no death", None, &[Some(WrongPassword); 9], HealthVerdict::Mute(WrongPassword));
        check("nor are too many connections", None, &[Some(TooManyConnections); 9], HealthVerdict::Mute(TooManyConnections));
        check("nor is a missing database", None, &[Some(NoDatabase); 9], HealthVerdict::Mute(NoDatabase));
        check("nor is a late login, while clients are answered", None, &[Some(Late); 9], HealthVerdict::Mute(Late));
        check("late, and then silent", None, &[Some(TimedOut), Some(Late), Some(TimedOut)], doubt(3510));
        check("silent at last", None, &[Some(Late), Some(TimedOut), Some(TimedOut)], HealthVerdict::Dead(TimedOut));
        check("nor is a full disk", None, &[Some(OutOfResources); 9], HealthVerdict::Mute(OutOfResources));
        check("crash recovery of some seconds", None, &[Some(Starting); 9], doubt(9210));
        check("crash recovery that does not end", None, &[Some(Starting); 11], HealthVerdict::Dead(Starting));
        check("no descriptor is left", None, &[Some(Local); 9], doubt(9210));
        check("an operator ends the looks", None, &[Some(Ended); 9], doubt(9210));
        check("a look that is cut off is repeated", None, &[Some(Lost)], doubt(1210));
        check("looks that are cut off count", None, &[Some(Lost); 4], HealthVerdict::Dead(Lost));
        check("a killed backend", Some(ServerConnEnd::Broken), &[Some(Lost), None], HealthVerdict::Alive);
        check("a shutdown counts as a failure", None, &[Some(ShuttingDown), Some(Refused)], HealthVerdict::Dead(Refused));
    }

    #[test]
    fn live_traffic_counts_after_one_look() {
        use LookFailure::*;
        use ServerConnEnd::*;
        check("a connection broke and the server is gone", Some(Broken), &[Some(Refused)], HealthVerdict::Dead(Refused));
        check(
            "it broke and the server is there",
            Some(Broken),
            &[None, Some(Refused)],
            HealthVerdict::Doubtful { again_at: 2510 },
        );
        check("a session was terminated", Some(Terminated), &[None], HealthVerdict::Alive);
        check("a crash restart", Some(Terminated), &[Some(Starting), Some(Starting), None], HealthVerdict::Alive);
        check("a shutdown", Some(Terminated), &[Some(ShuttingDown)], HealthVerdict::Dead(ShuttingDown));
        check(
            "a broken connection in a shutdown",
            Some(Broken),
            &[Some(ShuttingDown)],
            HealthVerdict::Doubtful { again_at: 1510 },
        );
    }
}
