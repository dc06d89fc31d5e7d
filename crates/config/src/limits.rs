//! Limits of one user in one database, with `limit_override_list`.

use crate::params::{self, ParamValue};
use crate::{Config, LimitOverride, PoolMode, SequenceSessions};
use weir_wire::startup_packet::cut_name;

/// Limits of one user in one database. 0: no limit, except for `pool_size`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UserLimits {
    pub mode: PoolMode,
    pub on_release: OnRelease,
    pub pool_size: u32,
    pub pool_min: u32,
    pub reserve: u32,
    pub reserve_after_ms: u64,
    pub waits: WaitLimits,
    pub query_ms: u64,
    pub transaction_ms: u64,
    pub idle_transaction_ms: u64,
    pub idle_ms: u64,
    pub clients: ClientsMax,
    pub conns_per_user: u32,
    pub conns_per_database: u32,
    pub on_loss: OnLoss,
}

/// Treatment of a returned server connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OnRelease {
    pub sequences: SequenceSessions,
    /// `reset_query_always`.
    pub resets_always: bool,
    /// `connection_life_time`; 0: none.
    pub conn_life_ms: u64,
}

/// Treatment of transactions whose server is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OnLoss {
    /// `commit_outcome`.
    pub outcome: bool,
    /// `transaction_replay`.
    pub replay: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientsMax {
    pub per_user: u32,
    pub per_database: u32,
}

/// Longest waits of a statement before it is sent, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitLimits {
    /// For a server connection in use.
    pub conn_ms: u64,
    /// For a primary that accepts connections.
    pub primary_ms: u64,
}

type Setter = fn(&mut UserLimits, &ParamValue);

/// Parameters that can be overridden.
const OVERRIDABLE: &[(&str, Setter)] = &[
    ("pool_mode", |l, v| l.mode = PoolMode::from_word(v.word())),
    ("sequence_sessions", |l, v| l.on_release.sequences = SequenceSessions::from_word(v.word())),
    ("pool_size", |l, v| l.pool_size = v.count()),
    ("min_pool_size", |l, v| l.pool_min = v.count()),
    ("reserve_pool_size", |l, v| l.reserve = v.count()),
    ("reserve_pool_timeout", |l, v| l.reserve_after_ms = v.millis()),
    ("pool_wait_timeout", |l, v| l.waits.conn_ms = v.millis()),
    ("failover_wait", |l, v| l.waits.primary_ms = v.millis()),
    ("commit_outcome", |l, v| l.on_loss.outcome = v.bool()),
    ("transaction_replay", |l, v| l.on_loss.replay = v.bool()),
    ("query_timeout", |l, v| l.query_ms = v.millis()),
    ("transaction_timeout", |l, v| l.transaction_ms = v.millis()),
    ("idle_transaction_timeout", |l, v| l.idle_transaction_ms = v.millis()),
    ("client_idle_limit", |l, v| l.idle_ms = v.millis()),
    ("max_client_connections_per_user", |l, v| l.clients.per_user = v.count()),
    ("max_client_connections_per_database", |l, v| l.clients.per_database = v.count()),
    ("max_user_connections", |l, v| l.conns_per_user = v.count()),
    ("max_db_connections", |l, v| l.conns_per_database = v.count()),
    ("connection_life_time", |l, v| l.on_release.conn_life_ms = v.millis()),
    ("reset_query_always", |l, v| l.on_release.resets_always = v.bool()),
];

/// A fault in the list, by the operator.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OverrideError {
    #[error("entry \"{0}\" has no colon after its user and database")]
    NoColon(String),
    #[error("entry \"{0}\" names neither user=... nor database=...")]
    NobodyNamed(String),
    #[error("\"{0}\" is neither user=... nor database=...")]
    BadWho(String),
    #[error("\"{0}\" is no name=value")]
    BadValue(String),
    #[error("\"{0}\" cannot be overridden; these can: {known}", known = overridable())]
    NotOverridable(String),
    #[error(transparent)]
    Value(#[from] params::ValueError),
}

fn overridable() -> String {
    OVERRIDABLE.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
}

pub fn read_overrides(text: &str) -> Result<Vec<LimitOverride>, OverrideError> {
    let mut overrides = Vec::new();
    for entry in split_outside_quotes(text, |c| c == ';') {
        if !entry.trim().is_empty() {
            overrides.push(read_override(entry.trim())?);
        }
    }
    Ok(overrides)
}

fn read_override(entry: &str) -> Result<LimitOverride, OverrideError> {
    let parts = split_outside_quotes(entry, |c| c == ':');
    let (Some(who), false) = (parts.first(), parts.len() < 2) else { return Err(OverrideError::NoColon(entry.into())) };
    let mut read = LimitOverride { user: None, database: None, values: Vec::new() };
    for word in words(who) {
        match word.split_once('=') {
            Some(("user", name)) => read.user = Some(cut_name(&unquoted(name)).to_owned()),
            Some(("database", name)) => read.database = Some(cut_name(&unquoted(name)).to_owned()),
            _ => return Err(OverrideError::BadWho(word.into())),
        }
    }
    if read.user.is_none() && read.database.is_none() {
        return Err(OverrideError::NobodyNamed(entry.into()));
    }
    for word in words(&entry[who.len() + 1..]) {
        let (name, value) = word.split_once('=').ok_or_else(|| OverrideError::BadValue(word.into()))?;
        let known = OVERRIDABLE.iter().find(|(known, _)| *known == name);
        let (Some((name, _)), Some(param)) = (known, params::find(name)) else {
            return Err(OverrideError::NotOverridable(name.into()));
        };
        read.values.push((name, param.kind.parse(name, &unquoted(value))?));
    }
    Ok(read)
}

fn words(text: &str) -> Vec<&str> {
    let mut words = split_outside_quotes(text, |c| c.is_whitespace() || c == ',');
    words.retain(|word| !word.is_empty());
    words
}

/// Splits at `is_end`, except between double quotes.
fn split_outside_quotes(text: &str, is_end: impl Fn(char) -> bool) -> Vec<&str> {
    let (mut parts, mut start, mut quoted) = (Vec::new(), 0, false);
    for (at, c) in text.char_indices() {
        quoted ^= c == '"';
        if !quoted && is_end(c) {
            parts.push(&text[start..at]);
            start = at + c.len_utf8();
        }
    }
    parts.push(&text[start..]);
    parts
}

fn unquoted(text: &str) -> String {
    text.chars().filter(|c| *c != '"').collect()
}

/// Returns the limits of a user in a database.
pub fn of(config: &Config, user: &str, database: &str) -> UserLimits {
    let base = &config.limits;
    let mut limits = UserLimits {
        mode: config.pool.mode,
        on_release: OnRelease {
            sequences: config.pool.sequences,
            resets_always: config.pool.reset_always,
            conn_life_ms: config.pool.connection_life_time_ms,
        },
        pool_size: config.pool.size,
        pool_min: base.pool_min,
        reserve: base.reserve,
        reserve_after_ms: base.reserve_after_ms,
        waits: WaitLimits { conn_ms: config.pool.wait_timeout_ms, primary_ms: config.failover.wait_ms },
        query_ms: base.query_ms,
        transaction_ms: base.transaction_ms,
        idle_transaction_ms: base.idle_transaction_ms,
        idle_ms: config.client_idle_limit_ms,
        clients: ClientsMax { per_user: base.clients_per_user, per_database: base.clients_per_database },
        conns_per_user: base.conns_per_user,
        conns_per_database: base.conns_per_database,
        on_loss: OnLoss { outcome: config.failover.commit_outcome, replay: config.failover.replay },
    };
    if let Some(entry) = config.databases.get(database) {
        limits.mode = entry.mode.unwrap_or(limits.mode);
        limits.pool_size = entry.pool_size.unwrap_or(limits.pool_size);
    }
    // Narrower entries come later.
    for wanted in [(false, true), (true, false), (true, true)] {
        for entry in base.overrides.iter().filter(|entry| (entry.user.is_some(), entry.database.is_some()) == wanted) {
            let is_meant = entry.user.as_ref().is_none_or(|name| name == user)
                && entry.database.as_ref().is_none_or(|name| name == database);
            if is_meant {
                entry.apply(&mut limits);
            }
        }
    }
    if limits.pool_size == 0 {
        limits.pool_size = config.pool.num_init_children;
    }
    limits
}

/// Returns the general limits, and those after each entry of the list.
pub fn all(config: &Config) -> impl Iterator<Item = UserLimits> {
    let base = of(config, "", "");
    let overridden = config.limits.overrides.iter().map(move |entry| {
        let mut limits = base;
        entry.apply(&mut limits);
        limits
    });
    overridden.chain([base])
}

impl LimitOverride {
    fn apply(&self, limits: &mut UserLimits) {
        for (name, value) in &self.values {
            if let Some((_, set)) = OVERRIDABLE.iter().find(|(known, _)| known == name) {
                set(limits, value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn config(lines: &str) -> Config {
        let text = format!("backend_hostname0 = 'h'\nnum_init_children = 9\n{lines}");
        let outcome = crate::read(Path::new("pgpool.conf"), &mut |_| Ok(text.clone().into_bytes()));
        outcome.config.unwrap_or_else(|| panic!("{:?}", outcome.problems))
    }

    #[test]
    fn a_users_overrides_go_before_a_databases_and_those_of_both_before_either() {
        let config = config(
            "pool_size = 3\nquery_timeout = 7s\nlimit_override_list = 'user=joe database=shop: pool_size=5; \
             user=joe: pool_size=2, query_timeout=30s pool_mode=session; database=shop: pool_size=50 pool_wait_timeout=1; \
             user=\"we; ird\" : pool_size=0'",
        );
        let found = |user: &str, database: &str| {
            let limits = of(&config, user, database);
            (limits.pool_size, limits.query_ms, limits.waits.conn_ms, limits.mode)
        };
        assert_eq!(found("ann", "x"), (3, 7_000, 120_000, PoolMode::Transaction));
        assert_eq!(found("ann", "shop"), (50, 7_000, 1_000, PoolMode::Transaction));
        assert_eq!(found("joe", "x"), (2, 30_000, 120_000, PoolMode::Session));
        assert_eq!(found("joe", "shop"), (5, 30_000, 1_000, PoolMode::Session));
        assert_eq!(found("we; ird", "x").0, 9, "0 stands for num_init_children");
    }

    #[test]
    fn a_wrong_list_is_named() {
        for (text, expected) in [
            ("user=joe pool_size=2", "entry \"user=joe pool_size=2\" has no colon after its user and database"),
            (": pool_size=2", "entry \": pool_size=2\" names neither user=... nor database=..."),
            ("role=joe: pool_size=2", "\"role=joe\" is neither user=... nor database=..."),
            ("user=joe: pool_size", "\"pool_size\" is no name=value"),
            ("user=joe: query_timeout=long", "invalid value for parameter \"query_timeout\": \"long\""),
        ] {
            let error = read_overrides(text).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{text}: {error}");
        }
        let error = read_overrides("user=joe: port=5").unwrap_err().to_string();
        assert!(
            error.starts_with("\"port\" cannot be overridden; these can: pool_mode, sequence_sessions, pool_size"),
            "{error}"
        );
        assert!(read_overrides(" ; ;").is_ok_and(|list| list.is_empty()));
    }

    #[test]
    fn every_overridable_parameter_is_one() {
        for (name, _) in OVERRIDABLE {
            assert!(params::find(name).is_some(), "{name}");
        }
    }
}
