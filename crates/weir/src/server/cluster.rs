//! Asks the servers for their roles and publishes the cluster's view. The only writer of `Shared::view`.
//!
//! One task on the first worker asks all nodes at once, every `sr_check_period` and whenever someone saw a reason
//! (`Shared::nudge_prober`: a connection that broke, a write that was refused). Decisions are `policy::cluster`'s.

use crate::io::reactor::parked;
use crate::monitor::log::Level;
use crate::process::shared::{Message, Stop, seconds};
use crate::process::worker::Worker;
use crate::server::link::{Address, OpenError, Talk};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime};
use weir_policy::cluster::{ClusterView, Health, Probe, Role};
use weir_policy::config::{ClusteringMode, Config, LogDelay, NodeConfig};
use weir_policy::lag::{self, History};

/// Longest time until a node that is down is asked again.
const DOWN_PERIOD: Duration = Duration::from_secs(10);

/// Shortest time between two rounds, however many nudges come.
const ROUND_MIN: Duration = Duration::from_millis(200);

/// Time until the next round while no primary is known.
const SEARCH_PERIOD: Duration = Duration::from_secs(1);

/// Time for one node's answer, connecting included.
const PROBE_TIMEOUT: Duration = Duration::from_secs(10);

const ROLE_QUERY: &str = "SELECT pg_catalog.pg_is_in_recovery(), CASE WHEN pg_catalog.pg_is_in_recovery() \
    THEN pg_catalog.pg_last_wal_replay_lsn() ELSE pg_catalog.pg_current_wal_lsn() END";

const REPLICATION_QUERY: &str = "SELECT application_name, state, sync_state, \
    (EXTRACT(epoch FROM replay_lag) * 1000000)::pg_catalog.int8 FROM pg_catalog.pg_stat_replication";

/// What one node said.
#[derive(Clone, Debug, Default)]
struct Answer {
    in_recovery: bool,
    /// WAL position, in bytes from the beginning.
    position: Option<u64>,
    /// Those who stream from here.
    streaming: Vec<Streaming>,
}

/// A row of `pg_stat_replication`.
#[derive(Clone, Debug, Default)]
struct Streaming {
    application_name: String,
    state: String,
    sync_state: String,
    replay_lag_us: Option<u64>,
}

/// The connection kept to a node for asking.
type Line = Rc<RefCell<Option<Talk>>>;

/// What a node said, once it has.
type Answered = Option<Result<Answer, OpenError>>;

/// Runs for the proxy's life.
pub async fn watch(w: Rc<Worker>) {
    let mut config = w.shared.config.load_full();
    let mut lines: Vec<Line> = config.nodes.iter().map(|_| Line::default()).collect();
    let mut history = History::default();
    loop {
        w.shared.nudged.store(false, Ordering::Relaxed);
        let started = Instant::now();
        let newest = w.shared.config.load_full();
        let mut view = ClusterView::clone(&w.shared.view.load());
        if !Arc::ptr_eq(&newest, &config) {
            config = newest;
            view = ClusterView::new(&config, Some(&view), seconds(SystemTime::now()));
            lines = config.nodes.iter().map(|_| Line::default()).collect();
        }
        let answers = ask_all(&w, &config, &lines).await;
        if w.shared.stop_mode() >= Stop::Fast {
            return;
        }
        let changed = judge(&w, &config, &mut view, &answers);
        note_lags(&w, &config, &mut view, &answers, &mut history);
        let has_primary = view.primary.is_some();
        let has_down = (0..view.nodes.len()).any(|at| !view.is_up(at));
        if changed || *w.shared.view.load_full() != view {
            let primary = |view: &ClusterView| view.primary.map(|at| view.nodes[at].id);
            let is_another = primary(&w.shared.view.load()) != primary(&view);
            if let (true, Some(common)) = (is_another, w.shared.answers.as_ref().and_then(|answers| answers.common.as_ref())) {
                // Locks on the one before tell nobody anything.
                common.revoke();
            }
            w.shared.view.store(Arc::new(view));
            // What the one before had told may be lost.
            if let (true, Some(answers)) = (is_another, &w.shared.answers) {
                answers.doubt_all(w.shared.positions.next_round());
            }
            w.shared.tell_all(|| Message::Refresh);
        }
        wait(&w, &config, started, has_primary, has_down).await;
    }
}

/// Until the next round is due.
async fn wait(w: &Worker, config: &Config, started: Instant, has_primary: bool, has_down: bool) {
    let period = match (has_primary, config.check.period_ms) {
        (false, _) => Some(SEARCH_PERIOD),
        (true, 0) => None,
        (true, ms) if has_down => Some(Duration::from_millis(ms).min(DOWN_PERIOD)),
        (true, ms) => Some(Duration::from_millis(ms)),
    };
    loop {
        let passed = started.elapsed();
        let is_nudged = w.shared.nudged.load(Ordering::Relaxed) && passed >= ROUND_MIN;
        if is_nudged || period.is_some_and(|period| passed >= period) {
            return;
        }
        if let Some(period) = period {
            w.reactor.wake_at(started + period);
        }
        if passed < ROUND_MIN {
            w.reactor.wake_at(started + ROUND_MIN);
        }
        parked().await;
    }
}

/// Asks every node in a task of its own, so that a dead one delays nobody.
async fn ask_all(w: &Rc<Worker>, config: &Arc<Config>, lines: &[Line]) -> Vec<Result<Answer, OpenError>> {
    let waiting = w.reactor.current_task();
    let left = Rc::new(Cell::new(config.nodes.len()));
    let answers: Rc<RefCell<Vec<Answered>>> = Rc::new(RefCell::new(config.nodes.iter().map(|_| None).collect()));
    for (at, node) in config.nodes.iter().enumerate() {
        let address = Address {
            node: node.id,
            hostname: node.hostname.clone(),
            port: node.port,
            connect_timeout_ms: node.connect_timeout_ms,
            ssl_mode: node.ssl_mode,
        };
        let (w, config, line) = (w.clone(), config.clone(), lines[at].clone());
        let (left, answers) = (left.clone(), answers.clone());
        let reactor = w.clone();
        reactor.reactor.spawn(async move {
            let answer = ask(&w, &config, &address, &line).await;
            answers.borrow_mut()[at] = Some(answer);
            left.set(left.get() - 1);
            if left.get() == 0 {
                w.reactor.wake(waiting);
            }
        });
    }
    while left.get() > 0 {
        parked().await;
    }
    let gone = |node: u16| OpenError::Gone { node };
    let answers = answers.take();
    answers.into_iter().zip(&config.nodes).map(|(a, node)| a.unwrap_or_else(|| Err(gone(node.id)))).collect()
}

/// Asks one node, over the connection kept or a new one.
async fn ask(w: &Worker, config: &Config, address: &Address, line: &Line) -> Result<Answer, OpenError> {
    let deadline = Instant::now() + PROBE_TIMEOUT;
    let kept = line.borrow_mut().take();
    if let Some(mut talk) = kept {
        talk.renew(w, deadline);
        if let Ok(answer) = question(w, address, &mut talk).await {
            *line.borrow_mut() = Some(talk);
            return Ok(answer);
        }
    }
    let check = &config.check;
    let files = w.shared.access.files();
    let (user, secret) = files.checker(check);
    let secret = secret.as_deref();
    let login = crate::server::link::Login { user, database: &check.database, secret, generation: 0, parameters: &[] };
    let mut talk = Talk::log_in(w, address, &login, deadline).await?;
    let answer = question(w, address, &mut talk).await?;
    *line.borrow_mut() = Some(talk);
    Ok(answer)
}

async fn question(w: &Worker, address: &Address, talk: &mut Talk) -> Result<Answer, OpenError> {
    let rows = talk.query(w, address, ROLE_QUERY).await?;
    let mut answer = Answer::default();
    if let Some([Some(in_recovery), position]) = rows.first().map(Vec::as_slice) {
        answer.in_recovery = in_recovery == "t";
        answer.position = position.as_deref().and_then(read_lsn);
    }
    if !answer.in_recovery {
        for row in talk.query(w, address, REPLICATION_QUERY).await? {
            if let [name, state, sync, lag] = row.as_slice() {
                let text = |value: &Option<String>| value.clone().unwrap_or_default();
                answer.streaming.push(Streaming {
                    application_name: text(name),
                    state: text(state),
                    sync_state: text(sync),
                    replay_lag_us: lag.as_deref().and_then(|us| us.parse().ok()),
                });
            }
        }
    }
    Ok(answer)
}

/// Reads a WAL position such as `16/B374D848`.
fn read_lsn(text: &str) -> Option<u64> {
    let (high, low) = text.split_once('/')?;
    Some((u64::from_str_radix(high, 16).ok()? << 32) | u64::from_str_radix(low, 16).ok()?)
}

/// Takes the answers into the view. True when a role or a health changed.
fn judge(w: &Worker, config: &Config, view: &mut ClusterView, answers: &[Result<Answer, OpenError>]) -> bool {
    let written = written(answers);
    let now_s = seconds(SystemTime::now());
    let mut changed = false;
    for (at, answer) in answers.iter().enumerate() {
        let node = &config.nodes[at];
        let probe = match answer {
            Ok(answer) => {
                let lag_bytes = written.zip(answer.position).map(|(written, replayed)| written.saturating_sub(replayed));
                let in_recovery = answer.in_recovery && !is_primary_by_configuration(config, at);
                Probe::Answered { in_recovery, lag_bytes: lag_bytes.filter(|_| answer.in_recovery) }
            }
            // A single server that answers but will not let us ask is still the only one there is.
            Err(error) if is_primary_by_configuration(config, at) && !error.is_unreachable() => {
                Probe::Answered { in_recovery: false, lag_bytes: None }
            }
            Err(_) => Probe::Unreachable,
        };
        let before = view.nodes[at].health;
        let has_changed = view.step(at, &probe, now_s);
        let is_news = view.note_cause(at, answer.as_ref().err().map(ToString::to_string));
        changed |= has_changed;
        if has_changed || is_news {
            // Also of one that was never up, and of one that is down for another reason now.
            report(w, view, at, before, answer.as_ref().err());
        } else if let (Err(error), Health::Down) = (answer, before) {
            w.shared.log.say(Level::Debug1, format_args!("node {} is still down: {error}", node.id));
        }
    }
    changed
}

/// What the primary says of a node that streams from it under its name.
fn streaming_of<'a>(node: &NodeConfig, answers: &'a [Result<Answer, OpenError>]) -> Option<&'a Streaming> {
    let mut all = answers.iter().flatten().flat_map(|answer| &answer.streaming);
    all.find(|row| !node.application_name.is_empty() && row.application_name == node.application_name)
}

/// How far the standbys are behind as time, and whether that is too much. Two know it: we, since when a standby lacks what the primary had
/// written, and the primary, how long the last thing took that a standby has replayed. The worse counts: the former is as exact as
/// `sr_check_period`, the latter stands still when replay does.
fn note_lags(w: &Worker, config: &Config, view: &mut ClusterView, answers: &[Result<Answer, OpenError>], history: &mut History) {
    let now_ms = w.millis(Instant::now());
    if let Some(written) = written(answers) {
        history.written(now_ms, written);
    }
    for (at, answer) in answers.iter().enumerate() {
        let streaming = streaming_of(&config.nodes[at], answers);
        let (is_standby, node) = (view.is_standby(at), &mut view.nodes[at]);
        node.replication = streaming.map(|row| (row.state.clone(), row.sync_state.clone()));
        let replayed = answer.as_ref().ok().filter(|_| is_standby).and_then(|answer| answer.position);
        let seen = replayed.and_then(|replayed| history.lag_us(now_ms, replayed));
        node.lag_us = seen.map(|us| us.max(streaming.and_then(|row| row.replay_lag_us).unwrap_or(0)));
        node.lags = is_standby && lag::is_too_much(&config.check, node.lag_bytes, node.lag_us);
        if is_standby {
            say_lag(w, config, at, view);
        }
    }
}

/// Texts of Pgpool-II.
fn say_lag(w: &Worker, config: &Config, at: usize, view: &ClusterView) {
    let node = &view.nodes[at];
    let by_time = config.check.delay_ms_max > 0;
    let is_behind = if by_time { node.lag_us > Some(0) } else { node.lag_bytes > Some(0) };
    let is_said = match config.check.log_delay {
        LogDelay::Always => is_behind,
        LogDelay::OverThreshold => node.lags,
        LogDelay::Never => false,
    };
    let Some(primary) = view.primary.filter(|_| is_said) else { return };
    let (id, primary) = (node.id, view.nodes[primary].id);
    let lag = match by_time {
        true => format!("{:.6} second(s)", node.lag_us.unwrap_or(0) as f64 / 1e6),
        false => format!("{} bytes", node.lag_bytes.unwrap_or(0)),
    };
    w.shared
        .log
        .say(Level::Log, format_args!("Replication of node: {id} is behind {lag} from the primary server (node: {primary})"));
}

/// The furthest a primary has written.
fn written(answers: &[Result<Answer, OpenError>]) -> Option<u64> {
    answers.iter().flatten().filter(|answer| !answer.in_recovery).filter_map(|answer| answer.position).max()
}

fn is_primary_by_configuration(config: &Config, at: usize) -> bool {
    config.nodes[at].always_primary || config.nodes.len() == 1 || (config.clustering_mode == ClusteringMode::Raw && at == 0)
}

fn report(w: &Worker, view: &ClusterView, at: usize, before: Health, error: Option<&OpenError>) {
    let node = &view.nodes[at];
    let what = match node.health {
        Health::Up(Role::Primary) => "is up: primary",
        Health::Up(Role::Standby) => "is up: standby",
        Health::Down => "is down",
    };
    let level = if node.health == Health::Down { Level::Warning } else { Level::Log };
    let cause = error.map(|error| format!(": {error}")).unwrap_or_default();
    let was = match before {
        Health::Up(Role::Primary) => ", was primary",
        Health::Up(Role::Standby) => ", was standby",
        Health::Down => "",
    };
    w.shared.log.say(level, format_args!("node {} ({}:{}) {what}{was}{cause}", node.id, node.hostname, node.port));
    let primaries = view.nodes.iter().filter(|n| n.health == Health::Up(Role::Primary)).count();
    if primaries > 1 {
        w.shared.log.say(
            Level::Warning,
            format_args!(
                "{primaries} nodes call themselves primary; writes go to node {}",
                view.primary.map_or(0, |p| view.nodes[p].id)
            ),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wal_positions_are_bytes() {
        assert_eq!(read_lsn("0/16B3748"), Some(0x16B_3748));
        assert_eq!(read_lsn("16/B374D848"), Some(0x16_B374_D848));
        assert_eq!(read_lsn("x"), None);
    }
}
