//! Clients that write, read or are idle, and note all that they hear: acknowledgements with their times, errors, lost sessions.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::server::Server;
use crate::sql::{Sql, SqlError};
use crate::wait::wait_until;

/// The tables that the clients use; to be made on the primary before.
pub const SCHEMA: &str = "create table written (number int8); create table readable (a int); insert into readable values (1)";
const READ: &str = "select a from readable";
/// See [`LoadPlace::answer_limit`].
const ANSWER_LIMIT: Duration = Duration::from_secs(60);
/// Longest wait for the acknowledgements that somebody waits for.
const ACKNOWLEDGED_LIMIT: Duration = Duration::from_secs(60);
/// Acknowledgements that show that all is well at the beginning.
const FIRST: usize = 20;
/// Numbers of one client.
const NUMBERS: i64 = 1_000_000;
/// Between two tries of a client to log in again.
const LOGIN_PAUSE: Duration = Duration::from_millis(10);
/// In place of the SQLSTATE of an error: the connection ended or said nothing.
const LOST: &str = "lost";

/// The clients of a load, by their deeds.
#[derive(Debug, Clone, Copy, Default)]
pub struct Crew {
    /// Each writes a row at a time, without a transaction.
    pub writers: usize,
    /// Each writes a row in a transaction of three statements.
    pub transactions: usize,
    /// Each reads a row at a time, without a transaction.
    pub readers: usize,
    /// Each logs in, and asks one thing at the end.
    pub idle: usize,
    /// Between two deeds of a client.
    pub pause: Duration,
    /// Added to the numbers of all, so that several loads write different ones.
    pub first: i64,
}

/// A deed, and its failure, by SQLSTATE and message.
pub type Failed = (String, String);
/// One acknowledged write: its number, and when the acknowledgement came.
pub type Acknowledged = (i64, Instant);

/// All that clients heard so far.
#[derive(Debug, Default, Clone)]
pub struct Noted {
    /// Writes.
    pub acknowledged: Vec<Acknowledged>,
    /// Reads that were answered, and the longest wait for one.
    pub reads: usize,
    /// See `reads`.
    pub slowest_read: Duration,
    /// Of those who write.
    pub errors: Vec<Failed>,
    /// Numbers of the writes that failed, by SQLSTATE.
    pub refused: Vec<(i64, String)>,
    /// Of those who read.
    pub failed_reads: Vec<Failed>,
    /// Sessions that ended. A client may lose several.
    pub lost: usize,
    /// Clients that lost a session, readers left out.
    pub disconnected: usize,
}

/// Clients that run until they are stopped.
pub struct Load {
    ends: Arc<AtomicBool>,
    noted: Arc<Mutex<Noted>>,
    clients: Vec<JoinHandle<()>>,
    idle: Vec<Sql>,
}

#[derive(Clone, Copy)]
enum Deed {
    Write,
    Transaction,
    Read,
}

/// The proxy or server that clients of a load log in to.
#[derive(Debug, Clone)]
pub struct LoadPlace {
    /// Name or address.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// Longest wait of a client for one answer; then its session counts as lost.
    pub answer_limit: Duration,
}

impl LoadPlace {
    /// On this machine.
    pub fn local(port: u16) -> LoadPlace {
        LoadPlace { host: "127.0.0.1".to_owned(), port, answer_limit: ANSWER_LIMIT }
    }

    fn connect(&self) -> Result<Sql> {
        Sql::connect_tcp_within(&self.host, self.port, "postgres", "postgres", self.answer_limit)
    }
}

/// One client with its session.
struct Client {
    place: LoadPlace,
    deed: Deed,
    pause: Duration,
    sql: Sql,
    number: i64,
    ends: Arc<AtomicBool>,
    noted: Arc<Mutex<Noted>>,
}

impl Load {
    /// Begins clients of the proxy or server at `port`, and waits for their first acknowledgements.
    pub fn begin(port: u16, crew: Crew) -> Result<Load> {
        Load::begin_at(&LoadPlace::local(port), crew)
    }

    /// `begin` for a proxy or server anywhere.
    pub fn begin_at(place: &LoadPlace, crew: Crew) -> Result<Load> {
        let (ends, noted) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Noted::default())));
        let idle = (0..crew.idle).map(|_| place.connect()).collect::<Result<Vec<Sql>>>()?;
        let deeds = [(Deed::Write, crew.writers), (Deed::Transaction, crew.transactions), (Deed::Read, crew.readers)];
        let deeds = deeds.into_iter().flat_map(|(deed, count)| std::iter::repeat_n(deed, count));
        let mut load = Load { ends: ends.clone(), noted: noted.clone(), clients: Vec::new(), idle };
        for (deed, first) in deeds.zip((NUMBERS + crew.first..).step_by(1_000_000)) {
            let (ends, noted) = (ends.clone(), noted.clone());
            let client =
                Client { place: place.clone(), deed, pause: crew.pause, sql: place.connect()?, number: first, ends, noted };
            load.clients.push(thread::spawn(move || client.run()));
        }
        if crew.writers + crew.transactions > 0 {
            load.wait_acknowledged(FIRST)?;
        }
        Ok(load)
    }

    /// Writes that were acknowledged so far.
    pub fn acknowledged(&self) -> usize {
        lock(&self.noted).acknowledged.len()
    }

    /// Waits for so many more acknowledgements.
    pub fn wait_acknowledged(&self, more: usize) -> Result<()> {
        let wanted = self.acknowledged() + more;
        wait_until("writes to be acknowledged", ACKNOWLEDGED_LIMIT, || Ok(self.acknowledged() >= wanted))
    }

    /// A copy of all that was noted so far.
    pub fn noted(&self) -> Noted {
        lock(&self.noted).clone()
    }

    /// Ends all clients. The idle ones ask something first.
    pub fn end(mut self) -> Noted {
        self.ends.store(true, Ordering::SeqCst);
        for client in self.clients.drain(..) {
            // A client that panicked has said so, and noted all before.
            let _ = client.join();
        }
        let gone = self.idle.iter_mut().filter_map(|idle| idle.query("select 1").err()).filter(ends_session).count();
        let mut noted = std::mem::take(&mut *lock(&self.noted));
        noted.lost += gone;
        noted.disconnected += gone;
        noted
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::SeqCst);
    }
}

impl Noted {
    /// Only what came after `before`, an earlier copy. The slowest read is that of both.
    pub fn since(mut self, before: &Noted) -> Noted {
        self.acknowledged.drain(..before.acknowledged.len());
        self.errors.drain(..before.errors.len());
        self.refused.drain(..before.refused.len());
        self.failed_reads.drain(..before.failed_reads.len());
        self.reads -= before.reads;
        self.lost -= before.lost;
        self.disconnected -= before.disconnected;
        self
    }

    /// The longest time without an acknowledgement.
    pub fn gap(&self) -> Duration {
        let mut times: Vec<Instant> = self.acknowledged.iter().map(|(_, at)| *at).collect();
        times.sort_unstable();
        times.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or_default()
    }

    /// So many of the longest times without an acknowledgement, the longest first.
    pub fn gaps(&self, most: usize) -> Vec<Duration> {
        let mut times: Vec<Instant> = self.acknowledged.iter().map(|(_, at)| *at).collect();
        times.sort_unstable();
        let mut gaps: Vec<Duration> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
        gaps.sort_unstable_by(|a, b| b.cmp(a));
        gaps.truncate(most);
        gaps
    }

    /// Acknowledged writes that are not on this server.
    pub fn missing_on(&self, server: &Server) -> Result<Vec<Acknowledged>> {
        let there = written_on(server)?;
        Ok(self.acknowledged.iter().filter(|(number, _)| !there.contains(number)).copied().collect())
    }

    /// Writes that are on this server although their clients heard this SQLSTATE.
    pub fn refused_on(&self, server: &Server, sqlstate: &str) -> Result<Vec<i64>> {
        let there = written_on(server)?;
        let is_there = |(number, heard): &&(i64, String)| heard == sqlstate && there.contains(number);
        Ok(self.refused.iter().filter(is_there).map(|(number, _)| *number).collect())
    }
}

fn written_on(server: &Server) -> Result<HashSet<i64>> {
    let rows = server.query("select distinct number from written")?;
    rows.into_iter().flatten().flatten().map(|number| Ok(number.parse()?)).collect()
}

impl Client {
    fn run(mut self) {
        let mut has_lost = false;
        while !self.ends.load(Ordering::SeqCst) {
            self.number += 1;
            let begun = Instant::now();
            let done = self.perform();
            self.note(&done, begun, &mut has_lost);
            if done.is_err_and(|error| ends_session(&error)) && !self.log_in_again() {
                return;
            }
            // A pace, so that the clients are not the machine's whole work.
            thread::sleep(self.pause);
        }
    }

    fn perform(&mut self) -> Result<()> {
        let write = format!("insert into written values ({})", self.number);
        match self.deed {
            Deed::Write => self.sql.query(&write).map(drop),
            Deed::Read => self.sql.query(READ).map(drop),
            Deed::Transaction => {
                self.sql.query("begin")?;
                if let Err(error) = self.sql.query(&write) {
                    // After the loss of a session there is nothing to end.
                    let _ = self.sql.query("rollback");
                    return Err(error);
                }
                self.sql.query("commit").map(drop)
            }
        }
    }

    fn note(&self, done: &Result<()>, begun: Instant, has_lost: &mut bool) {
        let (now, mut noted) = (Instant::now(), lock(&self.noted));
        let is_reader = matches!(self.deed, Deed::Read);
        let Err(error) = done else {
            if is_reader {
                noted.reads += 1;
                noted.slowest_read = noted.slowest_read.max(now - begun);
            } else {
                noted.acknowledged.push((self.number, now));
            }
            return;
        };
        if ends_session(error) {
            noted.lost += 1;
            noted.disconnected += usize::from(!is_reader && !*has_lost);
            *has_lost = true;
        }
        let failed = described(error);
        if is_reader {
            return noted.failed_reads.push(failed);
        }
        noted.refused.push((self.number, failed.0.clone()));
        noted.errors.push(failed);
    }

    /// False at the end of the load.
    fn log_in_again(&mut self) -> bool {
        while !self.ends.load(Ordering::SeqCst) {
            if let Ok(sql) = self.place.connect() {
                self.sql = sql;
                return true;
            }
            thread::sleep(LOGIN_PAUSE);
        }
        false
    }
}

/// An error of severity ERROR leaves the session.
fn ends_session(error: &anyhow::Error) -> bool {
    error.downcast_ref::<SqlError>().is_none_or(|refused| refused.severity != "ERROR")
}

fn described(error: &anyhow::Error) -> Failed {
    match error.downcast_ref::<SqlError>() {
        Some(refused) => (refused.sqlstate.clone(), refused.message.clone()),
        None => (LOST.to_owned(), format!("{error:#}")),
    }
}

/// Each use is one step, so that a client that panicked has left the notes whole.
fn lock(noted: &Mutex<Noted>) -> MutexGuard<'_, Noted> {
    noted.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_came_after_a_copy_is_told_alone() {
        let failed = |sqlstate: &str| (sqlstate.to_owned(), String::new());
        let now = Instant::now();
        let before = Noted { acknowledged: vec![(1, now)], errors: vec![failed("40001")], reads: 3, lost: 1, ..Noted::default() };
        let mut later = before.clone();
        later.acknowledged.push((2, now));
        later.errors.push(failed("08007"));
        later.reads = 5;
        let since = later.since(&before);
        assert_eq!((since.acknowledged, since.errors), (vec![(2, now)], vec![failed("08007")]));
        assert_eq!((since.reads, since.lost), (2, 0));
    }
}
