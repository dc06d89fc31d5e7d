//! Views of the query cache.

use super::{RoleRow, Rows, ViewColumn, ViewContext, open, own};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use weir_cache::{LogFollowerState, Slot};
use weir_session::metrics::{NODES_MAX, WorkerCounter};
use weir_session::query_cache::cached_results::{CachedResult, Key};
use weir_session::table_changes::LateReads;

pub(super) const POOL_CACHE: &[ViewColumn] = &[
    open("num_cache_hits"),
    open("num_selects"),
    open("cache_hit_ratio"),
    open("num_hash_entries"),
    open("used_hash_entries"),
    open("num_cache_entries"),
    open("used_cache_entries_size"),
    open("free_cache_entries_size"),
    open("fragment_cache_entries_size"),
];

pub(super) const POOL_CACHE_ENTRIES: &[ViewColumn] = &[
    open("database"),
    open("username"),
    own("statement"),
    open("state"),
    open("hits"),
    open("bytes"),
    open("age_ms"),
    open("server_us"),
    open("saved_us"),
];

pub(super) const POOL_CACHE_TABLES: &[ViewColumn] = &[open("schema"), open("table"), open("changes"), open("writers")];

pub(super) const POOL_CAUSAL: &[ViewColumn] =
    &[open("schema"), open("table"), open("last_round"), open("waited"), open("wait_ms"), open("to_primary")];

pub(super) const POOL_CACHE_WAL: &[ViewColumn] = &[
    open("database"),
    open("node_id"),
    open("slot_name"),
    open("plugin"),
    open("state"),
    open("position"),
    open("lag_ms"),
    open("pending"),
    open("transactions"),
    open("breaks"),
    own("error"),
];

const TEXT_BYTES_MAX: usize = 200;

pub(super) fn pool_cache(ask: &ViewContext<'_>) -> Rows {
    let Some(answers) = &ask.w.shared.cached_results else { return Rows::new() };
    let counters = &ask.w.shared.counters;
    let hits: u64 = counters.iter().map(|counters| counters.get(WorkerCounter::CacheHits as usize)).sum();
    let selects_of = |node: usize| counters.iter().map(|counters| counters.reads(node as u16)).sum::<u64>();
    let selects: u64 = (0..NODES_MAX).map(selects_of).sum();
    let (count, weight) = answers.size();
    let ratio = if hits + selects == 0 { 0.0 } else { hits as f64 / (hits + selects) as f64 };
    let free = (answers.total_bytes as u64).saturating_sub(weight);
    vec![vec![
        hits.to_string(),
        selects.to_string(),
        format!("{ratio:.2}"),
        ask.w.peek_config().cache.answers_max.to_string(),
        count.to_string(),
        count.to_string(),
        weight.to_string(),
        free.to_string(),
        "0".to_string(),
    ]]
}

/// Only of the session's database: other databases' texts may hold secrets.
pub(super) fn pool_cache_entries(ask: &ViewContext<'_>) -> Vec<RoleRow> {
    let Some(answers) = &ask.w.shared.cached_results else { return Vec::new() };
    let is_here = |(_, answer): &(Key, Arc<CachedResult>)| answer.database == ask.pools.database;
    let row = |(key, answer): (Key, Arc<CachedResult>)| {
        let hits = answer.hits.load(Ordering::Relaxed);
        let cells = vec![
            answer.database.to_string(),
            answer.user.to_string(),
            text_of(&key),
            if answers.versions.is_true(&answer.deps) { "true" } else { "changed" }.to_string(),
            hits.to_string(),
            answer.bytes.len().to_string(),
            ask.w.now_ms().saturating_sub(answer.made_ms).to_string(),
            answer.took_us.to_string(),
            hits.saturating_mul(answer.took_us).to_string(),
        ];
        RoleRow { owner: answer.user.clone(), cells }
    };
    answers.all().into_iter().filter(is_here).map(row).collect()
}

fn text_of(key: &Key) -> String {
    let text = weir_session::query_cache::cached_results::text_of(key);
    String::from_utf8_lossy(&text[..text.len().min(TEXT_BYTES_MAX)]).into_owned()
}

/// Most changed first; then the database, and shared objects.
pub(super) fn pool_cache_tables(ask: &ViewContext<'_>) -> Rows {
    let Some(answers) = &ask.w.shared.cached_results else { return Rows::new() };
    let versions = &answers.versions;
    let database = &ask.pools.database;
    let mut found: Vec<(String, String, u64, u64)> = Vec::new();
    let mut add = |schema: &str, table: &str, slot| {
        let (changes, writers) = versions.history(slot);
        if changes + writers > 0 {
            found.push((schema.to_string(), table.to_string(), changes, writers));
        }
    };
    if let Some(catalog) = ask.pools.known.catalog() {
        catalog.tables().for_each(|(schema, table, oid)| add(schema, table, versions.of_table(database, oid)));
    }
    add("", "(all of the database)", versions.of_database(database));
    add("", "(all databases)", versions.of_all());
    found.sort_by_key(|(_, _, changes, _)| std::cmp::Reverse(*changes));
    found
        .into_iter()
        .map(|(schema, table, changes, writers)| vec![schema, table, changes.to_string(), writers.to_string()])
        .collect()
}

/// Relations whose changes a standby did not show at once.
pub(super) fn pool_causal(ask: &ViewContext<'_>) -> Rows {
    let changes = &ask.w.shared.changes;
    let (versions, database) = (&changes.versions, &ask.pools.database);
    let mut late: HashMap<Option<Slot>, LateReads> = changes.late(database).into_iter().collect();
    let mut rows = Rows::new();
    let mut add = |schema: &str, table: &str, round: u64, reads: Option<LateReads>| {
        if let Some(LateReads { waits, wait_us, to_primary }) = reads.filter(|reads| *reads != LateReads::default()) {
            let counts = [round, waits, wait_us / 1000, to_primary].map(|count| count.to_string());
            rows.push([schema.to_string(), table.to_string()].into_iter().chain(counts).collect());
        }
    };
    add("", "(all databases)", versions.round_to_show(&[versions.of_all()]), late.remove(&Some(versions.of_all())));
    let whole = versions.of_database(database);
    add("", "(all of the database)", versions.round_to_show(&[whole]), late.remove(&Some(whole)));
    add("", "(any of the database)", versions.last_of(whole), late.remove(&None));
    if let Some(catalog) = ask.pools.known.catalog() {
        for (schema, table, oid) in catalog.tables() {
            let slot = versions.of_table(database, oid);
            add(schema, table, versions.round_to_show(&[slot]), late.get(&Some(slot)).copied());
        }
    }
    add("", "(others)", 0, changes.late("").first().map(|(_, reads)| *reads));
    rows
}

/// Includes databases whose log should be followed.
pub(super) fn pool_cache_wal(ask: &ViewContext<'_>) -> Rows {
    let mut rows = Rows::new();
    for database in ask.w.shared.catalogs.all() {
        let Some((standing, position, pending)) = database.follow.standing() else { continue };
        let report = database.follow.report.lock().clone();
        let state = match standing {
            LogFollowerState::Away | LogFollowerState::Starting { .. } if !database.follow.is_watched() => "not in use",
            LogFollowerState::Away | LogFollowerState::Starting { .. } => report.step,
            LogFollowerState::Following(_) => "following",
        };
        let covered = database.follow.covered();
        let lag = ask.w.now_ms().saturating_sub(covered.asked_ms);
        rows.push(vec![
            database.name.to_string(),
            report.node.map(|node| node.to_string()).unwrap_or_default(),
            report.slot,
            report.plugin.to_string(),
            state.to_string(),
            format!("{:X}/{:X}", position >> 32, position & 0xffff_ffff),
            if covered.round == 0 { String::new() } else { lag.to_string() },
            pending.to_string(),
            report.commits.to_string(),
            report.breaks.to_string(),
            report.error.unwrap_or_default(),
        ]);
    }
    rows
}
