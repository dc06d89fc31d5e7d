//! Where Weirs that share a store meet when one of them cannot reach it: advisory locks on the primary, which every writer can reach.
//!
//! A Weir that has to commit what it cannot tell the store takes a shared lock that names the host, and then waits until no other Weir can
//! answer from that host without having seen the lock: for answers are given out only for `LEASE_MS` after the locks were looked at. It
//! gives the lock back when the store knows everything, and says so with a second lock: one that goes without that was a Weir's that died,
//! or was cut off from the primary, and whoever had seen it has the store know that everything has changed. So a store that is cut off, hangs or is gone costs writers a second or two, once.

use crate::client::inquiry;
use crate::monitor::fault::sqlstate;
use crate::monitor::log::{Level, Who};
use crate::process::shared::Stop;
use crate::process::worker::Worker;
use crate::server::link::{Address, OpenError, Talk};
use crate::server::stores::{Common, LEASE_MS, Looked, MARGIN_MS, Stores};
use std::rc::Rc;
use std::time::{Duration, Instant};
use weir_policy::cache::{Slot, lock_number};

/// Time between two looks at the locks.
const PERIOD: Duration = Duration::from_millis(200);

/// What stands in the last column of a row that names a process in a transaction.
const RUNS: u32 = 2;

/// Processes with a transaction: each has a lock on its own number for as long, and shows its commit before it lets go of it. Those that are no
/// user's (autovacuum) carry out nobody's statement.
const RUNNING: &str = "UNION ALL SELECT pid, 0, 0, 2 FROM pg_catalog.pg_locks WHERE locktype = 'virtualxid' AND granted \
     AND pid <> pg_catalog.pg_backend_pid() AND pid NOT IN (SELECT pid FROM pg_catalog.pg_stat_activity WHERE usesysid IS NULL)";

/// As many processes the log names.
const NAMED_MAX: usize = 20;

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
    let Some(answers) = &w.shared.answers else { return Ok(()) };
    let (numbers, of_all) = (stores.lock_numbers(), answers.versions.of_all());
    let (locked_ms, has_told) = (vec![None; numbers.hosts.len()], vec![false; numbers.hosts.len()]);
    let (common, heard_ms, awaits_orphans) = (&*stores.common, 0, false);
    let locks = Locks { w, common, numbers, of_all, address, talk, locked_ms, has_told, heard_ms, awaits_orphans };
    locks.keep().await
}

struct Locks<'a> {
    w: &'a Rc<Worker>,
    common: &'a Common,
    numbers: Numbers,
    /// What all answers hang on.
    of_all: Slot,
    address: Address,
    talk: Talk,
    /// Since when we have the lock of a host.
    locked_ms: Vec<Option<u64>>,
    /// Whether we have the lock that says that a host knows all.
    has_told: Vec<bool>,
    /// When the primary was asked what it last answered: this session was alive then.
    heard_ms: u64,
    /// The log knows that it is waited for what another Weir may have left.
    awaits_orphans: bool,
}

impl Locks<'_> {
    async fn keep(mut self) -> Result<(), OpenError> {
        while self.w.shared.stop_mode() <= Stop::Smart && self.w.is_primary_at(&self.address) {
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

    /// Once for each loss: who wonders why nothing comes from the store finds what it waits for.
    fn say_orphans(&mut self) {
        let processes = self.common.orphans();
        let is_news = self.awaits_orphans == processes.is_empty();
        self.awaits_orphans = !processes.is_empty();
        if !is_news {
            return;
        }
        if self.awaits_orphans {
            let text = format_args!(
                "another Weir may have been lost that was cut off from the store of answers; nothing is answered from it until each of the \
                 primary's {} processes that are in a transaction now was seen without one, for an hour at most: {:?}",
                processes.len(),
                &processes[..processes.len().min(NAMED_MAX)]
            );
            return self.w.shared.log.say(Level::Log, text);
        }
        self.w.shared.log.say(Level::Log, format_args!("the transactions that another Weir may have left are over"));
    }

    async fn query(&mut self, sql: &str) -> Result<Vec<Vec<Option<String>>>, OpenError> {
        self.talk.renew(self.w, Instant::now() + ANSWER_LIMIT);
        self.talk.query(self.w, &self.address, sql).await
    }

    async fn lock(&mut self, host: usize, is_wished: bool) -> Result<(), OpenError> {
        if self.locked_ms[host].is_some() == is_wished {
            return Ok(());
        }
        let number = self.numbers.hosts[host];
        let call = |verb: &str, class: u32| {
            format!("SELECT pg_catalog.pg_advisory_{verb}_shared({}, {})", class.cast_signed(), number.cast_signed())
        };
        let Numbers { untold, told, .. } = self.numbers;
        // One of the two is there at any time, or others would take us for dead.
        if is_wished {
            self.query(&call("lock", untold)).await?;
            self.locked_ms[host] = Some(self.now_ms());
            if std::mem::take(&mut self.has_told[host]) {
                self.query(&call("unlock", told)).await?;
            }
            return Ok(());
        }
        // From now on, or somebody might rely on it while it goes.
        self.locked_ms[host] = None;
        self.grant();
        self.query(&call("lock", told)).await?;
        self.has_told[host] = true;
        self.query(&call("unlock", untold)).await?;
        Ok(())
    }

    /// Whoever looked before we had a lock relies on that no longer. Locks on what is not the primary any more tell nobody anything.
    fn grant(&self) {
        if !self.w.is_primary_at(&self.address) {
            return self.common.revoke();
        }
        let is_over = |since: &Option<u64>| since.is_some_and(|since| self.heard_ms >= since + LEASE_MS + MARGIN_MS);
        let bits = self.locked_ms.iter().enumerate().map(|(host, since)| u64::from(is_over(since)) << host);
        self.common.grant(bits.sum(), self.heard_ms);
    }

    /// What others have locked.
    async fn look(&mut self) -> Result<(), OpenError> {
        let asked_ms = self.now_ms();
        let asks_what_runs = self.common.asks_what_runs(asked_ms);
        let Numbers { untold, told, .. } = self.numbers;
        // The first row is there without a lock, too.
        let rows = self
            .query(&format!(
                "SELECT 0, 0, 0, pg_catalog.pg_is_in_recovery()::int UNION ALL SELECT pid, classid::bigint, objid::bigint, 0 \
                 FROM pg_catalog.pg_locks WHERE locktype = 'advisory' AND objsubid = 2 AND granted AND classid IN ({untold}, {told}) {}",
                if asks_what_runs { RUNNING } else { "" }
            ))
            .await?;
        let running = asks_what_runs.then(Vec::new);
        let mut looked = Looked { asked_ms, heard_ms: self.now_ms(), running, ..Looked::default() };
        for row in rows {
            let cells: Vec<u32> =
                row.into_iter().map(|cell| cell.and_then(|text| text.parse().ok()).unwrap_or_default()).collect();
            match cells[..] {
                [pid, _, _, RUNS] => looked.running.iter_mut().for_each(|running| running.push(pid)),
                [0, 0, 0, is_standby] if is_standby != 0 => {
                    let message = "it is a standby, where no other Weir looks for locks".to_string();
                    let (address, sqlstate) = (self.address.clone(), sqlstate::CANNOT_CONNECT_NOW.to_string());
                    return Err(OpenError::Refused { address, sqlstate, message });
                }
                [pid, class, number, _] if class == untold => {
                    looked.untold |= self.numbers.bit_of(number);
                    looked.locks.push((pid, number));
                }
                [pid, class, number, _] if class == told => looked.told.push((pid, number)),
                _ => {}
            }
        }
        self.common.hear(looked, self.of_all);
        self.say_orphans();
        self.heard_ms = asked_ms;
        self.grant();
        Ok(())
    }
}

/// Numbers of the locks.
struct Numbers {
    /// Of all locks of the namespace that say that a host was not told all, and of those that say it was.
    untold: u32,
    told: u32,
    hosts: Vec<u32>,
}

impl Numbers {
    fn bit_of(&self, number: u32) -> u64 {
        match self.hosts.iter().position(|known| *known == number) {
            Some(host) => 1 << host,
            // A host we do not know: that Weir has other hosts in its configuration.
            None => u64::MAX,
        }
    }
}

impl Stores {
    fn lock_numbers(&self) -> Numbers {
        let of_host = |shelf: &crate::server::stores::Shelf| lock_number(&shelf.host.to_string());
        let of_namespace = |what: &str| lock_number(&format!("{what} {}", self.namespace()));
        Numbers {
            untold: of_namespace("weir"),
            told: of_namespace("weir told"),
            hosts: self.shelves.iter().map(of_host).collect(),
        }
    }
}
