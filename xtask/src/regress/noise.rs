//! Other clients of the suite's pool. They take the server connection that was used last, hand over hand, so that the next
//! transaction of the suite finds itself on another one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result};
use weir_demo::Sql;

/// Time between two steps: about that of a short statement. So most of the suite's statements find a step between them, and the
/// machine is not busy with these alone.
const STEP: Duration = Duration::from_micros(500);

/// Connections these hold at the same time; the suite's own comes on top.
pub const CONNECTIONS: u32 = 2;

/// Clients that run until this is ended.
pub struct Noise {
    stop: Arc<AtomicBool>,
    turns: Arc<AtomicU64>,
    thread: Option<JoinHandle<Result<()>>>,
}

impl Noise {
    pub fn start(port: u16, database: &str) -> Result<Noise> {
        let open = || Sql::connect_tcp("127.0.0.1", port, "postgres", database);
        let clients = [open()?, open()?];
        let (stop, turns) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (stopped, turned) = (stop.clone(), turns.clone());
        let thread = Some(thread::spawn(move || take_turns(clients, &stopped, &turned)));
        Ok(Noise { stop, turns, thread })
    }

    /// Ends them, and says how often they took a connection. Error: one of them failed, which none may.
    pub fn end(mut self) -> Result<u64> {
        self.stop.store(true, Ordering::Relaxed);
        let Some(thread) = self.thread.take() else { return Ok(0) };
        let ended = thread.join().map_err(|_| anyhow::anyhow!("the thread of the other clients panicked"))?;
        ended.context("a client beside the suite")?;
        Ok(self.turns.load(Ordering::Relaxed))
    }
}

impl Drop for Noise {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Each begins while the other still holds its connection. An open transaction without a query holds back nobody's VACUUM.
fn take_turns(mut clients: [Sql; 2], stop: &AtomicBool, turns: &AtomicU64) -> Result<()> {
    clients[1].query("begin")?;
    for turn in (0..2).cycle() {
        if stop.load(Ordering::Relaxed) {
            return Ok(());
        }
        clients[turn].query("begin")?;
        clients[1 - turn].query("commit")?;
        turns.fetch_add(1, Ordering::Relaxed);
        thread::sleep(STEP);
    }
    Ok(())
}
