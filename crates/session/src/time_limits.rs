//! A session that has taken too long.
//!
//! In: the limits of its user and database, and the times of its present state. Out: the limit that is exceeded.

use weir_config::Config;
use weir_config::limits::{self, UserLimits};

/// A message or series of messages that a client has begun on its server connection, and without whose end the server says nothing. The connection is of
/// no use to others meanwhile, and PostgreSQL waits for the client without an end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UnfinishedInput {
    #[default]
    Nothing,
    /// A message of which the rest has not come. Its statement does not run yet.
    Message,
    /// Messages of the extended protocol without a Sync. All of them are answered.
    Series,
    /// Such messages without a Flush: a statement among them may still run.
    Unasked,
}

/// Times that a session has spent in its present state, in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SessionTimes {
    /// The statement that runs.
    pub statement: Option<u64>,
    /// The transaction that is open, a statement by itself included.
    pub transaction: Option<u64>,
    /// Since the client last sent something or was answered.
    pub quiet: u64,
    /// It waits for a server connection: not its own doing.
    pub waits: bool,
    pub unfinished: UnfinishedInput,
}

/// A limit on time that is exceeded, and which.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExceededTimeLimit {
    Statement { limit_ms: u64 },
    Transaction { limit_ms: u64 },
    IdleInTransaction { limit_ms: u64 },
    Idle { limit_ms: u64 },
}

/// The limit on time that a session exceeds; the gravest first.
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
    // An unfinished message or series holds a server connection as an open transaction does.
    let is_within = spent.transaction.is_some() || spent.unfinished != UnfinishedInput::Nothing;
    if is_within && is_over(limits.idle_transaction_ms, spent.quiet) {
        return Some(ExceededTimeLimit::IdleInTransaction { limit_ms: limits.idle_transaction_ms });
    }
    is_over(limits.idle_ms, spent.quiet).then_some(ExceededTimeLimit::Idle { limit_ms: limits.idle_ms })
}

/// Time after which an unfinished message or series counts as a reason that keeps a server connection: most clients send the rest at once.
pub const UNFINISHED_SHOWN_MS: u64 = 1000;

/// Shortest and longest time between two looks at the limits on time.
const LOOKS_MS: (u64, u64) = (20, 1000);

/// Time in which sessions are found whose server connection is to be closed (`server_fast_close`).
const FAST_CLOSE_MS: u64 = 250;

/// Time between two looks: short enough that the shortest limit is exceeded by a fifth at most.
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
