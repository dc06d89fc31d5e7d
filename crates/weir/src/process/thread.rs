//! The control thread: starts its tasks, reads its mail, and ends after the workers.

use crate::admin::acts::heard_acts;
use crate::admin::http::{self, Dashboard};
use crate::admin::pcp::{self, PcpService};
use crate::control::control_context::{ControlContext, WakeSubject};
use crate::control::supervised::{TaskGuard, keep, run};
use crate::control::{agent_watch, catalog_watch, failover, node_monitor, prepared_parts, shard_deadlocks, wal_follower};
use crate::log::Level;
use crate::runtime::mail::ControlOrder;
use crate::runtime::shared::{ProxyShutdown, SharedState};
use anyhow::Context as _;
use std::io;
use std::net::TcpListener;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;
use tokio::task::LocalSet;
use weir_failover::FailoverEvent;
use weir_session::catalogs::KnownDatabase;

const NAME: &str = "weir-control";

/// Threads for blocking work. A silent name server occupies a few per node.
const BLOCKING_MAX: usize = 128;

const BEAT: Duration = Duration::from_secs(1);

#[derive(Default)]
pub struct ControlSockets {
    pub(crate) readers: Vec<TcpListener>,
    pub(crate) pcp: PcpService,
}

pub fn start(shared: &Arc<SharedState>, sockets: ControlSockets) -> anyhow::Result<JoinHandle<()>> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(BLOCKING_MAX)
        .build()
        .context("cannot create the event loop of the control thread")?;
    let shared = shared.clone();
    let thread = std::thread::Builder::new().name(NAME.into());
    thread.spawn(move || serve(runtime, shared, sockets)).context("cannot start the control thread")
}

fn serve(runtime: Runtime, shared: Arc<SharedState>, sockets: ControlSockets) {
    // Unlike a worker it preempts: busy sessions must not make nodes look silent.
    if let Err(cause) = weir_ring::yield_when_woken(false) {
        shared.log.say(Level::Debug1, format_args!("the control thread keeps its scheduling: {cause}"));
    }
    let tasks = LocalSet::new();
    tasks.block_on(&runtime, attend(ControlContext::new(shared), sockets));
    drop(tasks);
    // A name lookup may still block.
    runtime.shutdown_background();
}

/// Starts all tasks and obeys orders until `ControlOrder::End`. Cancel safe: all tasks end.
async fn attend(c: Rc<ControlContext>, sockets: ControlSockets) {
    // First, so that no node gets writes before failover permits it.
    let own = c.clone();
    let mut tasks = vec![keep(&c, "failover".into(), move || failover::watch(own.clone()), || {})];
    let own = c.clone();
    tasks.push(keep(&c, "the nodes".into(), move || node_monitor::watch(own.clone()), || {}));
    let own = c.clone();
    tasks.push(keep(&c, "the agents".into(), move || agent_watch::watch(own.clone()), || {}));
    if c.shared.group.get().is_some() {
        let own = c.clone();
        tasks.push(keep(&c, "acts for the group".into(), move || heard_acts::serve(own.clone()), || {}));
    }
    if c.shared.config.load().sharding.is_on {
        let own = c.clone();
        tasks.push(keep(&c, "prepared transactions".into(), move || prepared_parts::watch(own.clone()), || {}));
        let own = c.clone();
        tasks.push(keep(&c, "deadlocks over shards".into(), move || shard_deadlocks::watch(own.clone()), || {}));
    }
    tasks.extend(begin_http(&c, sockets.readers));
    tasks.extend(begin_pcp(&c, sockets.pcp));
    let mut beat_at = Instant::now();
    loop {
        let _ = tokio::time::timeout(BEAT, c.shared.control.arrived()).await;
        if beat_at.elapsed() >= BEAT {
            beat_at = Instant::now();
            beat(&c, beat_at);
        }
        if c.shared.control.has_wishes() {
            c.ring(&WakeSubject::Failover);
        }
        for order in c.shared.control.take() {
            match order {
                ControlOrder::Look(why) => c.request_role_check(why),
                ControlOrder::LinkDied(node, how) => c.tell(FailoverEvent::ConnDied { node, how }),
                ControlOrder::Parted => c.ring(&WakeSubject::Parted),
                ControlOrder::Sample => c.ring(&WakeSubject::Positions),
                ControlOrder::Group => c.ring(&WakeSubject::Failover),
                ControlOrder::Doubt => c.tell(FailoverEvent::Doubted),
                ControlOrder::Watch(database) => watch(&c, database),
                ControlOrder::Follow(database) => follow(&c, database),
                ControlOrder::Changed(database) => c.ring(&WakeSubject::Database(database.name.clone())),
                ControlOrder::CloseListeners => c.ring(&WakeSubject::Doors),
                ControlOrder::End => return,
            }
        }
        if c.shared.stop_mode() != ProxyShutdown::No {
            c.ring_all();
        }
    }
}

fn beat(c: &ControlContext, now: Instant) {
    c.shared.control.beat_ms.store(c.millis(now), Ordering::Relaxed);
    c.shared.catalogs.shed(now);
    c.shared.stats.roll(now, c.shared.config.load().admin.stats_period_ms);
}

fn watch(c: &Rc<ControlContext>, database: Arc<KnownDatabase>) {
    let (name, own, again) = (format!("the catalog of \"{}\"", database.name), c.clone(), database.clone());
    let order = move || {
        if again.has_sessions() {
            own.shared.watch_catalog(&again);
        }
    };
    run(c, name, catalog_watch::watch(c.clone(), database), order);
}

/// After a panic the next session with an answer to keep starts it again.
fn follow(c: &Rc<ControlContext>, database: Arc<KnownDatabase>) {
    let name = format!("the log of \"{}\"", database.name);
    run(c, name, wal_follower::watch(c.clone(), database), || {});
}

/// Nothing without sockets.
fn begin_http(c: &Rc<ControlContext>, readers: Vec<TcpListener>) -> Vec<TaskGuard> {
    if readers.is_empty() {
        return Vec::new();
    }
    let (dashboard, orders) = Dashboard::new(c.shared.clone());
    let (own, pulse) = (c.clone(), dashboard.clone());
    let mut tasks = vec![keep(c, "the dashboard".into(), move || http::pulse(own.clone(), pulse.clone()), || {})];
    let (own, orders) = (c.clone(), Rc::new(tokio::sync::Mutex::new(orders)));
    tasks.push(keep(c, "recoveries for the dashboard".into(), move || http::recover(own.clone(), orders.clone()), || {}));
    tasks.extend(readers.into_iter().filter_map(|reader| begin_pages(c, &dashboard, reader)));
    tasks
}

fn begin_pages(c: &Rc<ControlContext>, dashboard: &Arc<Dashboard>, reader: TcpListener) -> Option<TaskGuard> {
    let watched = reader.set_nonblocking(true).and_then(|()| tokio::net::TcpListener::from_std(reader));
    match watched {
        Ok(listener) => {
            let (own, dashboard, listener) = (c.clone(), dashboard.clone(), Rc::new(listener));
            let begin = move || http::serve(own.clone(), dashboard.clone(), listener.clone());
            Some(keep(c, "pages over HTTP".into(), begin, || {}))
        }
        Err(cause) => {
            c.shared.log.say(Level::Error, format_args!("cannot watch the socket of metrics_port: {cause}"));
            None
        }
    }
}

fn begin_pcp(c: &Rc<ControlContext>, entrance: PcpService) -> Vec<TaskGuard> {
    let (listeners, files) = entrance.listeners();
    let begin = |listener: io::Result<Rc<pcp::PcpListener>>| match listener {
        Ok(listener) => {
            let (own, files) = (c.clone(), files.clone());
            Some(keep(c, "PCP".into(), move || pcp::serve(own.clone(), listener.clone(), files.clone()), || {}))
        }
        Err(cause) => {
            c.shared.log.say(Level::Error, format_args!("cannot watch a listening socket of PCP: {cause}"));
            None
        }
    };
    listeners.into_iter().filter_map(begin).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::access::AccessFiles;
    use crate::log::ProxyLog;
    use crate::runtime::tls_files::TlsFiles;
    use std::cell::Cell;
    use std::net::SocketAddr;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::sync::Notify;
    use tokio::task::spawn_local;
    use weir_config::Config;

    fn shared() -> Arc<SharedState> {
        let mut config = Config::default();
        config.nodes.clear();
        let log = ProxyLog::new(&config.log).unwrap();
        Arc::new(SharedState::new(config, None, AccessFiles::default(), TlsFiles::default(), Vec::new(), [7; 32], log))
    }

    async fn status(place: SocketAddr) -> String {
        let mut stream = tokio::net::TcpStream::connect(place).await.unwrap();
        stream.write_all(b"GET /healthz HTTP/1.1\r\nConnection: close\r\n\r\n").await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer.lines().next().unwrap_or_default().to_string()
    }

    #[test]
    fn a_fault_in_one_task_leaves_all_others_alive_and_it_is_begun_again() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        LocalSet::new().block_on(&runtime, async {
            let (c, reader) = (ControlContext::new(shared()), TcpListener::bind("127.0.0.1:0").unwrap());
            let place = reader.local_addr().unwrap();
            let attends = spawn_local(attend(c.clone(), ControlSockets { readers: vec![reader], ..ControlSockets::default() }));
            let (times, again) = (Rc::new(Cell::new(0)), Rc::new(Notify::new()));
            let (count, is_back) = (times.clone(), again.clone());
            let begin = move || {
                let (count, is_back) = (count.clone(), is_back.clone());
                async move {
                    count.set(count.get() + 1);
                    assert!(count.get() > 1, "a fault, as it is meant to be");
                    is_back.notify_one();
                }
            };
            let _kept = keep(&c, "a test".into(), begin, || {});
            let ordered = Rc::new(Notify::new());
            let is_ordered = ordered.clone();
            run(&c, "another test".into(), async { panic!("a fault, as it is meant to be") }, move || is_ordered.notify_one());
            while times.get() == 0 {
                tokio::task::yield_now().await;
            }
            assert_eq!(status(place).await, "HTTP/1.1 200 OK", "while the task is not begun again");
            again.notified().await;
            ordered.notified().await;
            assert_eq!(status(place).await, "HTTP/1.1 200 OK");
            c.shared.control.send(ControlOrder::End);
            attends.await.unwrap();
        });
    }

    #[test]
    fn the_thread_ends_with_the_last_order() {
        let shared = shared();
        let thread = start(&shared, ControlSockets::default()).unwrap();
        shared.control.send(ControlOrder::Sample);
        shared.control.send(ControlOrder::End);
        thread.join().unwrap();
    }
}
