//! The control thread: it begins its tasks, reads its mail, and ends when no worker is left.

use crate::control::context::{Control, Subject};
use crate::control::mail::Order;
use crate::control::supervised::{Kept, keep, run};
use crate::control::{catalog_watch, http, node_monitor, wal_follower};
use crate::monitor::log::Level;
use crate::process::shared::{Shared, Stop};
use crate::server::catalogs::Database;
use anyhow::Context as _;
use std::net::TcpListener;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;
use tokio::task::LocalSet;

/// Name of the thread.
const NAME: &str = "weir-control";

/// Threads for what blocks: names of hosts, keys of passwords, pages. A name server that does not answer holds a few for each node.
const BLOCKING_MAX: usize = 128;

/// Time between two signs of life, and between two looks at whether a period of averages is over.
const BEAT: Duration = Duration::from_secs(1);

/// Starts the thread. `readers` are the listening sockets of `metrics_port`.
pub fn start(shared: &Arc<Shared>, readers: Vec<TcpListener>) -> anyhow::Result<JoinHandle<()>> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(BLOCKING_MAX)
        .build()
        .context("cannot create the event loop of the control thread")?;
    let shared = shared.clone();
    let thread = std::thread::Builder::new().name(NAME.into());
    thread.spawn(move || serve(runtime, shared, readers)).context("cannot start the control thread")
}

fn serve(runtime: Runtime, shared: Arc<Shared>, readers: Vec<TcpListener>) {
    // Unlike a worker it goes ahead of whoever runs on its processor: busy sessions must not make nodes look silent.
    if let Err(cause) = weir_ring::yield_when_woken(false) {
        shared.log.say(Level::Debug1, format_args!("the control thread keeps its scheduling: {cause}"));
    }
    let tasks = LocalSet::new();
    tasks.block_on(&runtime, attend(Control::new(shared), readers));
    // Connections close with their tasks.
    drop(tasks);
    // Somebody may still wait for a name server.
    runtime.shutdown_background();
}

/// Begins all tasks and obeys orders until the last one. Cancel safe: all tasks end.
async fn attend(c: Rc<Control>, readers: Vec<TcpListener>) {
    let own = c.clone();
    let mut tasks = vec![keep(&c, "the nodes".into(), move || node_monitor::watch(own.clone()), || {})];
    tasks.extend(readers.into_iter().filter_map(|reader| begin_http(&c, reader)));
    let mut beat_at = Instant::now();
    loop {
        // Nothing is lost if the time is over first: orders stay where they are.
        let _ = tokio::time::timeout(BEAT, c.shared.control.arrived()).await;
        if beat_at.elapsed() >= BEAT {
            beat_at = Instant::now();
            beat(&c, beat_at);
        }
        for order in c.shared.control.take() {
            match order {
                Order::Look(why) => c.nudge(why),
                Order::Sample => c.ring(&Subject::Positions),
                Order::Watch(database) => watch(&c, database),
                Order::Follow(database) => follow(&c, database),
                Order::Changed(database) => c.ring(&Subject::Database(database.name.clone())),
                Order::CloseDoors => c.ring(&Subject::Doors),
                Order::End => return,
            }
        }
        if c.shared.stop_mode() != Stop::No {
            c.ring_all();
        }
    }
}

fn beat(c: &Control, now: Instant) {
    c.shared.control.beat_ms.store(c.millis(now), Ordering::Relaxed);
    c.shared.stats.roll(now, c.shared.config.load().admin.stats_period_ms);
}

fn watch(c: &Rc<Control>, database: Arc<Database>) {
    let (name, own, again) = (format!("the catalog of \"{}\"", database.name), c.clone(), database.clone());
    let order = move || {
        if again.has_sessions() {
            own.shared.watch_catalog(&again);
        }
    };
    run(c, name, catalog_watch::watch(c.clone(), database), order);
}

/// The next session whose answer would be kept has the log followed again after a fault.
fn follow(c: &Rc<Control>, database: Arc<Database>) {
    let name = format!("the log of \"{}\"", database.name);
    run(c, name, wal_follower::watch(c.clone(), database), || {});
}

fn begin_http(c: &Rc<Control>, reader: TcpListener) -> Option<Kept> {
    let watched = reader.set_nonblocking(true).and_then(|()| tokio::net::TcpListener::from_std(reader));
    match watched {
        Ok(listener) => {
            let (own, listener) = (c.clone(), Rc::new(listener));
            Some(keep(c, "pages over HTTP".into(), move || http::serve(own.clone(), listener.clone()), || {}))
        }
        Err(cause) => {
            c.shared.log.say(Level::Error, format_args!("cannot watch the socket of metrics_port: {cause}"));
            None
        }
    }
}
