//! A round with `commit_outcome` or `transaction_replay`: outcomes that were told, each compared with the table, and transactions that ran again.

use anyhow::{Context, Result};
use serde_json::{Value, json};
use weir_demo::{Noted, Server, Sql};

/// Counters of Weir.
#[derive(Debug, Clone, Copy, Default)]
pub struct Counters {
    /// COMMITs whose answer was lost, by the outcome that was proved.
    committed: u64,
    rolled_back: u64,
    unknown: u64,
    ran_again: u64,
}

impl Counters {
    pub fn read(port: u16) -> Result<Self> {
        let rows = Sql::connect_tcp("127.0.0.1", port, "postgres", "postgres")?.query("show pool_metrics")?;
        let value = |name: &str| -> Result<u64> {
            let row = rows.iter().find(|row| row.first().is_some_and(|cell| cell.as_deref() == Some(name)));
            let cell = row.and_then(|row| row.get(1)?.as_deref()).with_context(|| format!("Weir has no counter {name}"))?;
            Ok(cell.parse()?)
        };
        Ok(Self {
            committed: value("outcomes_committed_total")?,
            rolled_back: value("outcomes_rolled_back_total")?,
            unknown: value("outcomes_unknown_total")?,
            ran_again: value("transactions_replayed_total")?,
        })
    }

    pub fn since(self, before: Self) -> Self {
        Self {
            committed: self.committed - before.committed,
            rolled_back: self.rolled_back - before.rolled_back,
            unknown: self.unknown - before.unknown,
            ran_again: self.ran_again - before.ran_again,
        }
    }
}

/// The numbers of a round. All transactions of the load may run again.
#[derive(Debug)]
pub struct Told {
    counters: Counters,
    /// Writes that are there although "rolled back" was told, and those that are not although they were acknowledged and no loss was reported.
    wrong: usize,
    /// Transactions that failed.
    lost: usize,
    /// Rows beyond the first of the same write.
    twice: usize,
}

impl Told {
    /// `unreported`: acknowledged writes that the new primary lacks, without those whose loss was reported.
    pub fn of(noted: &Noted, counters: Counters, new: &Server, unreported: usize) -> Result<Self> {
        let wrong = noted.refused_on(new, "40001")?.len() + unreported;
        let twice = new.value("select count(*) - count(distinct number) from written")?.parse()?;
        Ok(Self { counters, wrong, lost: noted.refused.len(), twice })
    }

    /// For the kept file.
    pub fn json(&self) -> Value {
        json!({
            "committed": self.counters.committed,
            "rolled_back": self.counters.rolled_back,
            "unknown": self.counters.unknown,
            "ran_again": self.counters.ran_again,
            "wrong": self.wrong,
            "lost": self.lost,
            "twice": self.twice,
        })
    }
}
