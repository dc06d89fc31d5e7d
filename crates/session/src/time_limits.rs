//! Limits on a session's time.

use weir_config::Config;
use weir_config::limits::{self, UserLimits};

/// Client input whose end the server awaits, without a limit in PostgreSQL. Other sessions cannot use the connection meanwhile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UnfinishedInput {
    #[default]
    Nothing,
    /// A message whose rest is missing; its statement does not run yet.
    Message,
    /// Extended-protocol messages without a Sync, all answered.
    Series,
    /// Extended-protocol messages without a Sync or Flush: a statement may still run.
    Unasked,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SessionTimes {
    pub statement: Option<u64>,
    pub transaction: Option<u64>,
    /// Time since the client last sent something or was answered.
    pub quiet: u64,
    /// True during a wait for a server connection, not the client's fault.
    pub waits: bool,
    pub unfinished: UnfinishedInput,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExceededTimeLimit {
    Statement { limit_ms: u64 },
    Transaction { limit_ms: u64 },
    IdleInTransaction { limit_ms: u64 },
    Idle { limit_ms: u64 },
}

/// Returns the gravest limit exceeded.
pub fn overtime(limits: &UserLimits, spent: &SessionTimes) -> Option<ExceededTimeLimit> {
    let is_over = |limit_ms: u64, spent_ms: u64| limit_ms > 0 && spent_ms >= limit_ms;
    if spent.transaction.is_some_and(|ms| is_over(limits.transaction_ms, ms)) {
        return Some(ExceededTimeLimit::Transaction { limit_ms: limits.transaction_ms });
    }
    let (statement, is_quiet) = match spent.unfinished {
        UnfinishedInput::Nothing => (spent.statement, spent.statement.is_none()),
        UnfinishedInput::Message | UnfinishedInput::Series => (None, true),
        UnfinishedInput::Unasked => (spent.statement, true),
    };
    if statement.is_some_and(|ms| is_over(limits.query_ms, ms)) {
        return Some(ExceededTimeLimit::Statement { limit_ms: limits.query_ms });
    }
    if spent.waits || !is_quiet {
        return None;
    }
    // Unfinished input holds a server connection as an open transaction does.
    let is_within = spent.transaction.is_some() || spent.unfinished != UnfinishedInput::Nothing;
    if is_within && is_over(limits.idle_transaction_ms, spent.quiet) {
        return Some(ExceededTimeLimit::IdleInTransaction { limit_ms: limits.idle_transaction_ms });
    }
    is_over(limits.idle_ms, spent.quiet).then_some(ExceededTimeLimit::Idle { limit_ms: limits.idle_ms })
}

/// Time after which unfinished input is shown as keeping a server connection: most clients send the rest at once.
pub const UNFINISHED_SHOWN_MS: u64 = 1000;

const LOOKS_MS: (u64, u64) = (20, 1000);

/// Longest time until connections to close are found (`server_fast_close`).
const FAST_CLOSE_MS: u64 = 250;

/// Returns the time between checks: the shortest limit is exceeded by at most a fifth.
pub fn look_period_ms(config: &Config) -> u64 {
    let times = |l: UserLimits| [l.query_ms, l.transaction_ms, l.idle_transaction_ms, l.idle_ms];
    let shortest = limits::all(config).flat_map(times).filter(|ms| *ms > 0).min();
    let longest = if config.fast_close { FAST_CLOSE_MS } else { LOOKS_MS.1 };
    shortest.map_or(longest, |ms| (ms / 5).clamp(LOOKS_MS.0, longest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;
    use weir_config::limits::of;

    fn config(lines: &str) -> Config {
        let text = format!("backend_hostname0 = 'h'\nnum_init_children = 9\n{lines}");
        let outcome = weir_config::read(Path::new("pgpool.conf"), &mut |_| Ok(text.clone().into_bytes()));
        outcome.config.unwrap_or_else(|| panic!("{:?}", outcome.problems))
    }

    #[test]
    fn time_limits_are_looked_at_by_what_a_session_does() {
        let limits =
            UserLimits { query_ms: 100, transaction_ms: 1000, idle_transaction_ms: 50, idle_ms: 500, ..of(&config(""), "", "") };
        let idle = SessionTimes::default();
        for (spent, expected) in [
            (idle, None),
            (SessionTimes { quiet: 500, ..idle }, Some(ExceededTimeLimit::Idle { limit_ms: 500 })),
            (SessionTimes { quiet: 500, waits: true, ..idle }, None),
            (
                SessionTimes { quiet: 50, transaction: Some(60), ..idle },
                Some(ExceededTimeLimit::IdleInTransaction { limit_ms: 50 }),
            ),
            (SessionTimes { quiet: 49, transaction: Some(60), ..idle }, None),
            (SessionTimes { quiet: 99, transaction: Some(99), statement: Some(99), ..idle }, None),
            (
                SessionTimes { quiet: 100, transaction: Some(100), statement: Some(100), ..idle },
                Some(ExceededTimeLimit::Statement { limit_ms: 100 }),
            ),
            (
                SessionTimes { transaction: Some(1000), statement: Some(900), ..idle },
                Some(ExceededTimeLimit::Transaction { limit_ms: 1000 }),
            ),
        ] {
            assert_eq!(overtime(&limits, &spent), expected, "{spent:?}");
        }
        let busy = SessionTimes { statement: Some(100), quiet: 50, ..idle };
        let quiet = Some(ExceededTimeLimit::IdleInTransaction { limit_ms: 50 });
        for (unfinished, expected) in [
            (UnfinishedInput::Nothing, Some(ExceededTimeLimit::Statement { limit_ms: 100 })),
            (UnfinishedInput::Message, quiet),
            (UnfinishedInput::Series, quiet),
            (UnfinishedInput::Unasked, Some(ExceededTimeLimit::Statement { limit_ms: 100 })),
        ] {
            assert_eq!(overtime(&limits, &SessionTimes { unfinished, ..busy }), expected, "{unfinished:?}");
            let expected = if unfinished == UnfinishedInput::Nothing { None } else { quiet };
            assert_eq!(overtime(&limits, &SessionTimes { unfinished, statement: Some(99), ..busy }), expected, "{unfinished:?}");
            let waits = SessionTimes { unfinished, waits: true, quiet: 50, ..idle };
            assert_eq!(overtime(&limits, &waits), None, "{unfinished:?} and waits");
            let only_idle = UserLimits { idle_transaction_ms: 0, query_ms: 0, ..limits };
            let long = SessionTimes { unfinished, quiet: 500, ..busy };
            let expected = (unfinished != UnfinishedInput::Nothing).then_some(ExceededTimeLimit::Idle { limit_ms: 500 });
            assert_eq!(overtime(&only_idle, &long), expected, "{unfinished:?}");
        }
        assert_eq!(overtime(&of(&config(""), "", ""), &SessionTimes { quiet: u64::MAX, ..idle }), None, "no limits by default");
    }

    #[test]
    fn looks_are_as_frequent_as_the_shortest_limit_needs() {
        assert_eq!(look_period_ms(&config("")), 1000);
        assert_eq!(look_period_ms(&config("query_timeout = 2s")), 400);
        assert_eq!(look_period_ms(&config("query_timeout = 2s\nlimit_override_list = 'user=a: query_timeout=10ms'")), 20);
    }
}
