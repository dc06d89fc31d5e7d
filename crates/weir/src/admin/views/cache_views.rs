//! Views of the query cache, and of reads that must see changes.

use crate::admin::listing::{ListCell, ListSnapshot, Listing, listing, open, own};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use weir_cache::{LogFollowerState, Slot};
use weir_session::metrics::{NODES_MAX, WorkerCounter};
use weir_session::query_cache::cached_results::{self, CachedResult, Key};
use weir_session::query_cache::log_progress::WalProgressReport;
use weir_session::table_changes::LateReads;

/// The query cache as a whole.
pub struct CacheRow {
    hits: u64,
    selects: u64,
    entries_max: u32,
    entries: usize,
    used_bytes: u64,
    free_bytes: u64,
}

pub(super) const POOL_CACHE: Listing<CacheRow> = listing(|of| cache_row(of).into_iter().collect()).columns(&[&[
    open("num_cache_hits", |row| row.hits.into()),
    open("num_selects", |row| row.selects.into()),
    open("cache_hit_ratio", |row| ListCell::Decimal { value: row.hit_ratio(), digits: 2 }),
    open("num_hash_entries", |row| row.entries_max.into()),
    open("used_hash_entries", |row| row.entries.into()),
    open("num_cache_entries", |row| row.entries.into()),
    open("used_cache_entries_size", |row| row.used_bytes.into()),
    open("free_cache_entries_size", |row| row.free_bytes.into()),
    open("fragment_cache_entries_size", |_| 0_u64.into()),
]]);

impl CacheRow {
    fn hit_ratio(&self) -> f64 {
        let all = self.hits + self.selects;
        if all == 0 { 0.0 } else { self.hits as f64 / all as f64 }
    }
}

/// None without a cache.
fn cache_row(of: &ListSnapshot<'_>) -> Option<CacheRow> {
    let (answers, counters) = (of.shared.cached_results.as_ref()?, &of.shared.counters);
    let selects_of = |node: usize| counters.iter().map(|counters| counters.reads(node as u16)).sum::<u64>();
    let (entries, used_bytes) = answers.size();
    Some(CacheRow {
        hits: counters.iter().map(|counters| counters.get(WorkerCounter::CacheHits as usize)).sum(),
        selects: (0..NODES_MAX).map(selects_of).sum(),
        entries_max: of.config.cache.answers_max,
        entries,
        used_bytes,
        free_bytes: (answers.total_bytes as u64).saturating_sub(used_bytes),
    })
}

/// A result that is kept.
pub struct CachedResultRow {
    statement: String,
    state: &'static str,
    hits: u64,
    age_ms: u64,
    result: Arc<CachedResult>,
}

pub(super) const POOL_CACHE_ENTRIES: Listing<CachedResultRow> =
    listing(cached_result_rows).about_roles(|row| &row.result.user).columns(&[&[
        open("database", |row| (&row.result.database).into()),
        open("username", |row| (&row.result.user).into()),
        own("statement", |row| (&row.statement).into()),
        open("state", |row| row.state.into()),
        open("hits", |row| row.hits.into()),
        open("bytes", |row| row.result.bytes.len().into()),
        open("age_ms", |row| row.age_ms.into()),
        open("server_us", |row| row.result.took_us.into()),
        open("saved_us", |row| row.hits.saturating_mul(row.result.took_us).into()),
    ]]);

const TEXT_BYTES_MAX: usize = 200;

/// Only of the asker's database: other databases' texts may hold secrets.
fn cached_result_rows(of: &ListSnapshot<'_>) -> Vec<CachedResultRow> {
    let Some((answers, database)) = of.shared.cached_results.as_ref().zip(of.asker.database) else { return Vec::new() };
    let row = |(key, result): (Key, Arc<CachedResult>)| CachedResultRow {
        statement: text_of(&key),
        state: if answers.versions.is_true(&result.deps) { "true" } else { "changed" },
        hits: result.hits.load(Ordering::Relaxed),
        age_ms: of.now_ms.saturating_sub(result.made_ms),
        result,
    };
    answers.all().into_iter().filter(|(_, result)| result.database == database.name).map(row).collect()
}

fn text_of(key: &Key) -> String {
    let text = cached_results::text_of(key);
    String::from_utf8_lossy(&text[..text.len().min(TEXT_BYTES_MAX)]).into_owned()
}

/// A table that changed.
pub struct ChangedTableRow {
    schema: String,
    table: String,
    changes: u64,
    writers: u64,
}

pub(super) const POOL_CACHE_TABLES: Listing<ChangedTableRow> = listing(changed_tables).columns(&[&[
    open("schema", |row| (&row.schema).into()),
    open("table", |row| (&row.table).into()),
    open("changes", |row| row.changes.into()),
    open("writers", |row| row.writers.into()),
]]);

/// Most changed first; then the database, and shared objects.
fn changed_tables(of: &ListSnapshot<'_>) -> Vec<ChangedTableRow> {
    let Some((answers, database)) = of.shared.cached_results.as_ref().zip(of.asker.database) else { return Vec::new() };
    let versions = &answers.versions;
    let mut found = Vec::new();
    let mut add = |schema: &str, table: &str, slot| {
        let (changes, writers) = versions.history(slot);
        if changes + writers > 0 {
            found.push(ChangedTableRow { schema: schema.into(), table: table.into(), changes, writers });
        }
    };
    if let Some(catalog) = database.catalog() {
        catalog.tables().for_each(|(schema, table, oid)| add(schema, table, versions.of_table(&database.name, oid)));
    }
    add("", "(all of the database)", versions.of_database(&database.name));
    add("", "(all databases)", versions.of_all());
    found.sort_by_key(|row| std::cmp::Reverse(row.changes));
    found
}

/// A relation whose changes reads on standbys had to show, and did not find there at once.
pub struct LateRelation {
    schema: String,
    table: String,
    last_round: u64,
    reads: LateReads,
}

pub(super) const POOL_CAUSAL: Listing<LateRelation> = listing(late_relations).columns(&[&[
    open("schema", |row| (&row.schema).into()),
    open("table", |row| (&row.table).into()),
    open("last_round", |row| row.last_round.into()),
    open("waited", |row| row.reads.waits.into()),
    open("wait_ms", |row| (row.reads.wait_us / 1000).into()),
    open("to_primary", |row| row.reads.to_primary.into()),
]]);

fn late_relations(of: &ListSnapshot<'_>) -> Vec<LateRelation> {
    let Some(database) = of.asker.database else { return Vec::new() };
    let changes = &of.shared.changes;
    let (versions, name) = (&changes.versions, &database.name);
    let mut late: HashMap<Option<Slot>, LateReads> = changes.late(name).into_iter().collect();
    let mut rows = Vec::new();
    let mut add = |schema: &str, table: &str, last_round: u64, reads: Option<LateReads>| {
        if let Some(reads) = reads.filter(|reads| *reads != LateReads::default()) {
            rows.push(LateRelation { schema: schema.into(), table: table.into(), last_round, reads });
        }
    };
    add("", "(all databases)", versions.round_to_show(&[versions.of_all()]), late.remove(&Some(versions.of_all())));
    let whole = versions.of_database(name);
    add("", "(all of the database)", versions.round_to_show(&[whole]), late.remove(&Some(whole)));
    add("", "(any of the database)", versions.last_of(whole), late.remove(&None));
    if let Some(catalog) = database.catalog() {
        for (schema, table, oid) in catalog.tables() {
            let slot = versions.of_table(name, oid);
            add(schema, table, versions.round_to_show(&[slot]), late.get(&Some(slot)).copied());
        }
    }
    add("", "(others)", 0, changes.late("").first().map(|(_, reads)| *reads));
    rows
}

/// A database whose log is followed, or should be.
pub struct FollowedLog {
    database: Arc<str>,
    state: &'static str,
    position: u64,
    /// `None`: nothing was taken in yet.
    lag_ms: Option<u64>,
    pending: usize,
    report: WalProgressReport,
}

pub(super) const POOL_CACHE_WAL: Listing<FollowedLog> = listing(followed_logs).columns(&[&[
    open("database", |row| (&row.database).into()),
    open("node_id", |row| row.report.node.into()),
    open("slot_name", |row| (&row.report.slot).into()),
    open("plugin", |row| row.report.plugin.into()),
    open("state", |row| row.state.into()),
    open("position", |row| format!("{:X}/{:X}", row.position >> 32, row.position & 0xffff_ffff).into()),
    open("lag_ms", |row| row.lag_ms.into()),
    open("pending", |row| row.pending.into()),
    open("transactions", |row| row.report.commits.into()),
    open("breaks", |row| row.report.breaks.into()),
    own("error", |row| row.report.error.as_ref().into()),
]]);

fn followed_logs(of: &ListSnapshot<'_>) -> Vec<FollowedLog> {
    let mut rows = Vec::new();
    for database in of.shared.catalogs.all() {
        let Some((standing, position, pending)) = database.follow.standing() else { continue };
        let report = database.follow.report.lock().clone();
        let state = match standing {
            LogFollowerState::Away | LogFollowerState::Starting { .. } if !database.follow.is_watched() => "not in use",
            LogFollowerState::Away | LogFollowerState::Starting { .. } => report.step,
            LogFollowerState::Following(_) => "following",
        };
        let covered = database.follow.covered();
        let lag_ms = (covered.round != 0).then(|| of.now_ms.saturating_sub(covered.asked_ms));
        rows.push(FollowedLog { database: database.name.clone(), state, position, lag_ms, pending, report });
    }
    rows
}
