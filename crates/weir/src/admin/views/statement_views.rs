//! Statements by text, user and database.

use crate::admin::listing::{ListCell, ListSnapshot, Listing, listing, long, numeric, open, own};
use crate::admin::views::statement_advice::{StatementUse, advice};
use std::collections::BTreeMap;
use std::sync::Arc;
use weir_session::statement_statistics::statement_rows::{StatementCounts, StatementName};

/// A statement, with the counts of all workers.
pub struct StatementTotals {
    name: Arc<StatementName>,
    counts: StatementCounts,
    advice: String,
}

pub const POOL_STATEMENTS: Listing<StatementTotals> = listing(statement_totals).about_roles(|row| &row.name.role).columns(&[&[
    own("statement_id", |row| format!("{:016x}", row.name.id).into()),
    open("database", |row| (&row.name.database).into()),
    open("username", |row| (&row.name.user).into()),
    own("statement", |row| (&row.name.text).into()),
    long("calls", |row| row.counts.calls().into()),
    numeric("total_ms", |row| ms(Some(row.counts.times.sum_us))),
    numeric("mean_ms", |row| ms(row.mean_us())),
    numeric("p99_ms", |row| ms(row.counts.times.percentile_us(99))),
    long("rows", |row| row.counts.rows.into()),
    long("bytes", |row| row.counts.bytes.into()),
    long("errors", |row| row.counts.errors.into()),
    open("last_sqlstate", |row| row.counts.sqlstate().into()),
    long("parses", |row| row.counts.parses.into()),
    numeric("primary_share", |row| row.share(row.counts.on_primary)),
    numeric("standby_share", |row| row.share(row.counts.on_standby)),
    numeric("cache_share", |row| row.share(row.counts.from_cache)),
    open("rule", |row| row.counts.rule.name().into()),
    own("advice", |row| (&row.advice).into()),
]]);

fn ms(us: Option<u64>) -> ListCell {
    us.map_or(ListCell::Empty, |us| ListCell::Decimal { value: us as f64 / 1000.0, digits: 3 })
}

impl StatementTotals {
    fn mean_us(&self) -> Option<u64> {
        self.counts.times.sum_us.checked_div(self.counts.runs())
    }

    fn share(&self, part: u64) -> ListCell {
        let value = part as f64 / self.counts.calls().max(1) as f64;
        ListCell::Decimal { value, digits: 3 }
    }
}

/// Statements that took most of the servers' time come first.
fn statement_totals(of: &ListSnapshot<'_>) -> Vec<StatementTotals> {
    let (has_cache, has_standbys) = (of.shared.cached_results.is_some(), of.config.nodes.len() > 1);
    let row = |(name, counts): (Arc<StatementName>, StatementCounts)| {
        let mean_us = counts.times.sum_us.checked_div(counts.runs()).unwrap_or(0);
        let advice = advice(&StatementUse {
            on_primary: counts.on_primary,
            on_standby: counts.on_standby,
            from_cache: counts.from_cache,
            parses: counts.parses,
            mean_us,
            rule: counts.rule,
            only_reads: name.only_reads,
            functions: &name.functions,
            has_cache,
            has_standbys,
        });
        StatementTotals { name, counts, advice }
    };
    let counted = of.shared.statement_boards.iter().flat_map(|board| board.counted());
    let mut rows: Vec<StatementTotals> = summed(counted).into_iter().map(row).collect();
    rows.sort_by_key(|row| std::cmp::Reverse(row.counts.times.sum_us));
    rows
}

/// Adds up rows of one text, user, role and database.
fn summed(counted: impl Iterator<Item = (Arc<StatementName>, StatementCounts)>) -> Vec<(Arc<StatementName>, StatementCounts)> {
    let mut sums: BTreeMap<_, (Arc<StatementName>, StatementCounts)> = BTreeMap::new();
    for (name, counts) in counted {
        let key = (name.id, name.user.clone(), name.role.clone(), name.database.clone());
        match sums.get_mut(&key) {
            Some((_, sum)) => sum.add(&counts),
            None => drop(sums.insert(key, (name, counts))),
        }
    }
    sums.into_values().collect()
}
