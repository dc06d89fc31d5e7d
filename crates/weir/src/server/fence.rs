//! Where Weirs that share a store meet when one of them cannot reach it: advisory locks on the primary, which every writer can reach.
//!
//! A Weir that has to commit what it cannot tell the store takes a shared lock that names the host, and then waits until no other Weir can
//! answer from that host without having seen the lock: for answers are given out only for `LEASE_MS` after the locks were looked at. It
//! gives the lock back when the store knows everything. So a store that is cut off, hangs or is gone costs writers a second or two, once.

use crate::client::inquiry;
use crate::monitor::log::{Level, Who};
use crate::process::shared::Stop;
use crate::process::worker::Worker;
use crate::server::link::{Address, OpenError, Talk};
use crate::server::stores::{Common, LEASE_MS, MARGIN_MS, Stores};
use std::rc::Rc;
use std::time::{Duration, Instant};
use weir_policy::cache::lock_number;

/// Time between two looks at the locks.
const PERIOD: Duration = Duration::from_millis(200);

/// Longest time the primary may take for one answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(2);

/// Looks at the locks as long as the proxy runs, on the first worker.
pub async fn watch(w: Rc<Worker>, stores: Rc<Stores>) {
    let common = &stores.common;
    while w.shared.stop_mode() <= Stop::Smart {
        let outcome = keep(&w, &stores).await;
        // What was locked is not any more.
        common.revoke();
        if let Err(cause) = outcome
            && common.is_news_of_primary(false)
        {
            let text = format_args!(
                "cannot ask the primary whether another Weir is cut off from the store of answers: {cause}; nothing is answered from the store until then. The user is sr_check_user"
            );
            w.shared.log.write(Level::Warning, &Who::default(), text);
        }
        common.wishes(w.millis(Instant::now()));
        w.reactor.sleep(PERIOD).await;
    }
}

/// Over one connection, until the primary is another. Cancel safe.
async fn keep(w: &Rc<Worker>, stores: &Stores) -> Result<(), OpenError> {
    let primary = w.view().primary.and_then(|at| w.address_of(at));
    let Some(address) = primary else { return Ok(()) };
    let talk = inquiry::talk_to(w, &address, Instant::now() + ANSWER_LIMIT).await?;
    let locks =
        Locks { w, common: &stores.common, numbers: stores.lock_numbers(), address, talk, locked_ms: Vec::new(), heard_ms: 0 };
    locks.keep().await
}

struct Locks<'a> {
    w: &'a Rc<Worker>,
    common: &'a Common,
    /// Of the namespace, and of each host.
    numbers: (u32, Vec<u32>),
    address: Address,
    talk: Talk,
    /// Since when we have the lock of a host.
    locked_ms: Vec<Option<u64>>,
    /// When the primary was asked what it last answered: this session was alive then.
    heard_ms: u64,
}

impl Locks<'_> {
    async fn keep(mut self) -> Result<(), OpenError> {
        self.locked_ms = vec![None; self.numbers.1.len()];
        while self.w.shared.stop_mode() <= Stop::Smart && self.w.is_primary(self.address.node) {
            let wishes = self.common.wishes(self.now_ms());
            for host in 0..self.locked_ms.len() {
                self.lock(host, wishes & (1 << host) != 0).await?;
            }
            self.look().await?;
            if self.common.is_news_of_primary(true) {
                self.w.shared.log.say(Level::Log, format_args!("the primary can be asked again about the store of answers"));
            }
            self.w.reactor.sleep(PERIOD).await;
        }
        Ok(())
    }

    fn now_ms(&self) -> u64 {
        self.w.millis(Instant::now())
    }

    async fn query(&mut self, sql: &str) -> Result<Vec<Vec<Option<String>>>, OpenError> {
        self.talk.renew(self.w, Instant::now() + ANSWER_LIMIT);
        self.talk.query(self.w, &self.address, sql).await
    }

    async fn lock(&mut self, host: usize, is_wished: bool) -> Result<(), OpenError> {
        let verb = match (self.locked_ms[host], is_wished) {
            (None, true) => "lock",
            (Some(_), false) => "unlock",
            _ => return Ok(()),
        };
        let (class, number) = (self.numbers.0.cast_signed(), self.numbers.1[host].cast_signed());
        if !is_wished {
            // From now on, or somebody might rely on it while it goes.
            self.locked_ms[host] = None;
            self.grant();
        }
        self.query(&format!("SELECT pg_catalog.pg_advisory_{verb}_shared({class}, {number})")).await?;
        if is_wished {
            self.locked_ms[host] = Some(self.now_ms());
        }
        Ok(())
    }

    /// Whoever looked before we had a lock relies on that no longer. Locks on what is not the primary any more tell nobody anything.
    fn grant(&self) {
        if !self.w.is_primary(self.address.node) {
            return self.common.revoke();
        }
        let is_over = |since: &Option<u64>| since.is_some_and(|since| self.heard_ms >= since + LEASE_MS + MARGIN_MS);
        let bits = self.locked_ms.iter().enumerate().map(|(host, since)| u64::from(is_over(since)) << host);
        self.common.grant(bits.sum(), self.heard_ms);
    }

    /// What others have locked.
    async fn look(&mut self) -> Result<(), OpenError> {
        let asked_ms = self.now_ms();
        let class = self.numbers.0;
        let rows = self
            .query(&format!(
                "SELECT objid FROM pg_catalog.pg_locks WHERE locktype = 'advisory' AND objsubid = 2 AND granted AND classid = {class}"
            ))
            .await?;
        let number_of = |row: Vec<Option<String>>| row.into_iter().next().flatten().and_then(|text| text.parse::<u32>().ok());
        let bit_of = |number: Option<u32>| match self.numbers.1.iter().position(|known| Some(*known) == number) {
            Some(host) => 1 << host,
            // A host we do not know: that Weir has other hosts in its configuration.
            None => u64::MAX,
        };
        let untold = rows.into_iter().map(|row| bit_of(number_of(row))).fold(0, |all, bit| all | bit);
        self.common.hear(untold, asked_ms);
        self.heard_ms = asked_ms;
        self.grant();
        Ok(())
    }
}

/// Numbers of the locks.
impl Stores {
    fn lock_numbers(&self) -> (u32, Vec<u32>) {
        let of_host = |shelf: &crate::server::stores::Shelf| lock_number(&shelf.host.to_string());
        (lock_number(&format!("weir {}", self.namespace())), self.shelves.iter().map(of_host).collect())
    }
}
