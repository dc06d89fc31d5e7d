//! Clients that write and note what was acknowledged, and when.

use crate::support::{Proxy, Raw, wait_until, wire};
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use weir_demo::Server;

/// One acknowledged write: its number, and when the acknowledgement came.
pub type Acknowledged = (i64, Instant);

#[derive(Default)]
struct Noted {
    acknowledged: Vec<Acknowledged>,
    /// Errors, by SQLSTATE and message.
    errors: Vec<(String, String)>,
    /// Sessions that ended.
    lost: usize,
}

/// Writers that run until they are stopped.
pub struct Load {
    ends: Arc<AtomicBool>,
    noted: Arc<Mutex<Noted>>,
    writers: Vec<JoinHandle<()>>,
}

/// Their deeds.
#[derive(Debug)]
pub struct Outcome {
    pub acknowledged: Vec<Acknowledged>,
    pub errors: Vec<(String, String)>,
    pub lost: usize,
}

impl Load {
    /// Begins so many writers, each of which writes a row at a time, and waits for their first acknowledgements.
    pub fn begin(proxy: &Proxy, writers: i64) -> Load {
        let (ends, noted) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Noted::default())));
        let port = proxy.port();
        let begin = |writer: i64| {
            let (ends, noted) = (ends.clone(), noted.clone());
            thread::spawn(move || write(port, writer, &ends, &noted))
        };
        let load = Load { writers: (1..=writers).map(begin).collect(), ends: ends.clone(), noted: noted.clone() };
        load.wait_acknowledged(20);
        load
    }

    fn count(&self) -> usize {
        self.noted.lock().unwrap().acknowledged.len()
    }

    /// Waits for so many more acknowledgements.
    pub fn wait_acknowledged(&self, more: usize) {
        let wanted = self.count() + more;
        wait_until("writes to be acknowledged", || self.count() >= wanted);
    }

    pub fn end(self) -> Outcome {
        self.ends.store(true, Ordering::SeqCst);
        for writer in self.writers {
            writer.join().unwrap();
        }
        let noted = std::mem::take(&mut *self.noted.lock().unwrap());
        Outcome { acknowledged: noted.acknowledged, errors: noted.errors, lost: noted.lost }
    }
}

/// Logs in; `None`: the proxy is not there, or went away meanwhile.
fn connect(port: u16) -> Option<Raw> {
    let mut client = Raw::try_tcp(port)?;
    client.try_send(&wire::startup(wire::V3_0, &[("user", "postgres"), ("database", "postgres")])).ok()?;
    loop {
        match client.try_read().ok()??.tag {
            b'Z' => return Some(client),
            b'E' => return None,
            _ => {}
        }
    }
}

fn write(port: u16, writer: i64, ends: &AtomicBool, noted: &Mutex<Noted>) {
    let mut client = connect(port).expect("the proxy lets clients in");
    let mut number = writer * 1_000_000;
    while !ends.load(Ordering::SeqCst) {
        number += 1;
        let outcome = client.try_rows(&format!("insert into written values ({number})"));
        let mut noted = noted.lock().unwrap();
        match outcome {
            Ok(_) => noted.acknowledged.push((number, Instant::now())),
            Err(failure) => {
                let is_lost = failure.sqlstate == "lost" || failure.severity == "FATAL";
                if is_lost {
                    noted.lost += 1;
                    eprintln!("a session ended: {failure:?}");
                }
                noted.errors.push((failure.sqlstate, failure.message));
                drop(noted);
                if is_lost {
                    wait_until("a client to be let in again", || {
                        let new = connect(port);
                        let is_over = new.is_some() || ends.load(Ordering::SeqCst);
                        new.into_iter().for_each(|new| client = new);
                        is_over
                    });
                }
            }
        }
    }
}

impl Outcome {
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
    pub fn missing_on(&self, server: &Server) -> Vec<Acknowledged> {
        let rows = server.query("select number from written").unwrap();
        let there: HashSet<i64> = rows.into_iter().flatten().flatten().map(|text| text.parse().unwrap()).collect();
        self.acknowledged.iter().filter(|(number, _)| !there.contains(number)).copied().collect()
    }
}
