//! Asks the servers for their roles and publishes the cluster's view. The only writer of `Shared::view`.
//!
//! One task on the first worker asks all nodes at once, every `sr_check_period` and whenever someone saw a reason
//! (`Shared::nudge_prober`: a connection that broke, a write that was refused). Each node's answer counts when it comes. Decisions are
//! `policy::cluster`'s.

use crate::monitor::log::Level;
use crate::process::shared::{Message, Stop, seconds};
use crate::process::worker::Worker;
use crate::server::pool::Pool;
use crate::server::pool::server_conn::{Address, OpenError, Talk};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime};
use weir_config::{ClusteringMode, Config, LogDelay, NodeConfig};
use weir_io::reactor::parked;
use weir_policy::cluster::{ClusterView, Health, NodeView, Probe, Role};
use weir_policy::lag::{self, History};

/// Longest time until a node that is down is asked again.
const DOWN_PERIOD: Duration = Duration::from_secs(10);

/// Shortest time between two rounds, however many nudges come.
const ROUND_MIN: Duration = Duration::from_millis(200);

/// Time until the next round while no primary is known.
const SEARCH_PERIOD: Duration = Duration::from_secs(1);

/// Time for one node's answer, connecting included, where `connect_timeout` sets no limit.
const PROBE_TIMEOUT: Duration = Duration::from_secs(10);

/// Time in which answers of one round are taken in together: lags are compared among them.
const GATHER_MAX: Duration = Duration::from_millis(50);

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
type Line = RefCell<Option<Talk>>;

/// What a node said in a round, once it has.
type Answered = Option<Result<Answer, OpenError>>;

/// One node under question.
#[derive(Default)]
struct Place {
    line: Line,
    asking: RefCell<Asking>,
}

#[derive(Default)]
enum Asking {
    #[default]
    Rest,
    UnderWay,
    Said(Result<Answer, OpenError>),
}

impl Place {
    fn is_under_way(&self) -> bool {
        matches!(*self.asking.borrow(), Asking::UnderWay)
    }
}

/// A time at which all nodes are asked but those that still owe the answer to an earlier question.
struct Round {
    started: Instant,
    /// Those asked in this round.
    asked: Vec<bool>,
    answers: Vec<Answered>,
}

impl Round {
    /// True if everybody asked in this round has said something.
    fn is_whole(&self, places: &[Rc<Place>]) -> bool {
        !places.iter().zip(&self.asked).any(|(place, asked)| *asked && place.is_under_way())
    }
}

/// Runs for the proxy's life.
pub async fn watch(w: Rc<Worker>) {
    let mut config = w.shared.config.load_full();
    let mut places: Vec<Rc<Place>> = config.nodes.iter().map(|_| Rc::default()).collect();
    let mut history = History::default();
    let mut view = ClusterView::clone(&w.shared.view.load());
    while w.shared.stop_mode() < Stop::Fast {
        w.shared.nudged.store(false, Ordering::Relaxed);
        let newest = w.shared.config.load_full();
        if !Arc::ptr_eq(&newest, &config) {
            config = newest;
            view = ClusterView::new(&config, Some(&view), seconds(SystemTime::now()));
            places = config.nodes.iter().map(|_| Rc::default()).collect();
        }
        let round = begin_round(&w, &config, &places);
        see_through(&w, &config, &places, &mut view, round, &mut history).await;
    }
}

/// Takes in what the nodes say until the next round is due. One that hangs delays nobody: the others' answers count as they come.
async fn see_through(
    w: &Worker,
    config: &Config,
    places: &[Rc<Place>],
    view: &mut ClusterView,
    mut round: Round,
    history: &mut History,
) {
    let mut has_news = false;
    while w.shared.stop_mode() < Stop::Fast {
        has_news |= collect(places, &mut round.answers);
        let gathers_until = round.started + GATHER_MAX;
        if has_news && (round.is_whole(places) || Instant::now() >= gathers_until) {
            has_news = false;
            take_in(w, config, view, &round.answers, history);
        } else if has_news {
            w.reactor.wake_at(gathers_until);
        }
        if !has_news && is_due(w, config, view, round.started) {
            return;
        }
        parked().await;
    }
}

/// Moves what nodes have said since the last look. True: something was.
fn collect(places: &[Rc<Place>], answers: &mut [Answered]) -> bool {
    let mut has_news = false;
    for (place, answer) in places.iter().zip(answers) {
        let mut asking = place.asking.borrow_mut();
        if let Asking::Said(_) = *asking
            && let Asking::Said(said) = std::mem::take(&mut *asking)
        {
            *answer = Some(said);
            has_news = true;
        }
    }
    has_news
}

/// Publishes the view with what was said in a round so far.
fn take_in(w: &Worker, config: &Config, view: &mut ClusterView, answers: &[Answered], history: &mut History) {
    let changed = judge(w, config, view, answers);
    note_lags(w, config, view, answers, history);
    publish(w, view, changed);
    give_up(w, config, view, answers);
}

fn publish(w: &Worker, view: &ClusterView, changed: bool) {
    let known = w.shared.view.load_full();
    if !changed && *known == *view {
        return;
    }
    let primary = |view: &ClusterView| view.primary.map(|at| address(&view.nodes[at]));
    let is_another = primary(&known) != primary(view);
    w.shared.view.store(Arc::new(view.clone()));
    // What the one before had told may be lost.
    if let (true, Some(answers)) = (is_another, &w.shared.answers) {
        answers.doubt_all(w.shared.positions.next_round());
    }
    w.shared.tell_all(|| Message::Refresh);
    leave(w, &moved(&known, view));
}

/// Where a node is.
fn address(node: &NodeView) -> (u16, String, u16) {
    (node.id, node.hostname.clone(), node.port)
}

/// Nodes that are somewhere else now.
fn moved(before: &ClusterView, now: &ClusterView) -> Vec<u16> {
    let is_new_place = |node: &&NodeView| before.nodes.iter().any(|known| known.id == node.id && address(known) != address(node));
    now.nodes.iter().filter(is_new_place).map(|node| node.id).collect()
}

/// Has the connections to where nodes were closed: those at rest now, the others when they come back.
fn leave(w: &Worker, moved: &[u16]) {
    if !moved.is_empty() {
        let is_meant = |pool: &&Arc<Pool>| moved.contains(&pool.key.node);
        w.shared.pools.all().iter().filter(is_meant).for_each(|pool| pool.renew(w));
    }
}

/// Breaks the connections to nodes that say nothing, so that what waits there runs elsewhere or ends. Not while there is no other primary: what
/// waits for the one there was would gain nothing, and lose its transaction if the server goes on.
fn give_up(w: &Worker, config: &Config, view: &ClusterView, answers: &[Answered]) {
    if view.primary.is_none() {
        return;
    }
    for (at, answer) in answers.iter().enumerate() {
        let is_silent = matches!(answer, Some(Err(error)) if error.is_silent());
        if !is_silent || view.is_up(at) {
            continue;
        }
        let node = config.nodes[at].id;
        let mut broken = 0;
        for pool in w.shared.pools.all().iter().filter(|pool| pool.key.node == node) {
            for card in pool.cards() {
                card.give_up();
                broken += 1;
            }
        }
        if broken > 0 {
            w.shared.log.say(Level::Log, format_args!("node {node} is given up: {broken} connections to it are broken"));
        }
    }
}

/// True if the next round is due; if not, the task is woken when it may be.
fn is_due(w: &Worker, config: &Config, view: &ClusterView, started: Instant) -> bool {
    let has_down = (0..view.nodes.len()).any(|at| !view.is_up(at));
    let period = match (view.primary.is_some(), config.check.period_ms) {
        (false, _) => Some(SEARCH_PERIOD),
        (true, 0) => None,
        (true, ms) if has_down => Some(Duration::from_millis(ms).min(DOWN_PERIOD)),
        (true, ms) => Some(Duration::from_millis(ms)),
    };
    let passed = started.elapsed();
    let is_nudged = w.shared.nudged.load(Ordering::Relaxed) && passed >= ROUND_MIN;
    if is_nudged || period.is_some_and(|period| passed >= period) {
        return true;
    }
    if let Some(period) = period {
        w.reactor.wake_at(started + period);
    }
    if passed < ROUND_MIN {
        w.reactor.wake_at(started + ROUND_MIN);
    }
    false
}

/// Asks every node in a task of its own, unless it still owes an answer.
fn begin_round(w: &Rc<Worker>, config: &Arc<Config>, places: &[Rc<Place>]) -> Round {
    let waiting = w.reactor.current_task();
    let asked = places.iter().map(|place| !place.is_under_way()).collect();
    for (node, place) in config.nodes.iter().zip(places).filter(|(_, place)| !place.is_under_way()) {
        *place.asking.borrow_mut() = Asking::UnderWay;
        let address = Address {
            node: node.id,
            hostname: node.hostname.clone(),
            port: node.port,
            connect_timeout_ms: node.connect_timeout_ms,
            ssl_mode: node.ssl_mode,
        };
        let (worker, config, place) = (w.clone(), config.clone(), place.clone());
        w.reactor.spawn(async move {
            let asked_at = Instant::now();
            let said = ask(&worker, &config, &address, &place.line).await;
            worker.shared.probes.note(address.node, said.is_ok(), asked_at.elapsed(), seconds(SystemTime::now()));
            match &said {
                Err(error) if error.is_silent() => worker.shared.suspects.suspect(address.node),
                Ok(_) | Err(_) => worker.shared.suspects.acquit(address.node),
            }
            *place.asking.borrow_mut() = Asking::Said(said);
            worker.reactor.wake(waiting);
        });
    }
    Round { started: Instant::now(), asked, answers: places.iter().map(|_| None).collect() }
}

/// Asks one node, over the connection kept or a new one.
async fn ask(w: &Worker, config: &Config, address: &Address, line: &Line) -> Result<Answer, OpenError> {
    let limit = if address.connect_timeout_ms == 0 { PROBE_TIMEOUT } else { Duration::from_millis(address.connect_timeout_ms) };
    let now = Instant::now();
    let deadline = now + limit;
    let kept = line.borrow_mut().take();
    if let Some(mut talk) = kept {
        // A connection may be gone without a word where the server is not: half of the time is for another one.
        talk.renew(w, now + limit / 2);
        if let Ok(answer) = question(w, address, &mut talk).await {
            *line.borrow_mut() = Some(talk);
            return Ok(answer);
        }
    }
    let check = &config.check;
    let files = w.shared.access.files();
    let (user, secret) = files.checker(check);
    let secret = secret.as_deref();
    let login =
        crate::server::pool::server_conn::Login { user, database: &check.database, secret, generation: 0, parameters: &[] };
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
fn judge(w: &Worker, config: &Config, view: &mut ClusterView, answers: &[Answered]) -> bool {
    let written = written(answers);
    let now_s = seconds(SystemTime::now());
    let mut changed = false;
    for (at, answer) in answers.iter().enumerate() {
        let Some(answer) = answer else { continue };
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
fn streaming_of<'a>(node: &NodeConfig, answers: &'a [Answered]) -> Option<&'a Streaming> {
    let mut all = answers.iter().flatten().flatten().flat_map(|answer| &answer.streaming);
    all.find(|row| !node.application_name.is_empty() && row.application_name == node.application_name)
}

/// How far the standbys are behind as time, and whether that is too much. Two know it: we, since when a standby lacks what the primary had
/// written, and the primary, how long the last thing took that a standby has replayed. The worse counts: the former is as exact as
/// `sr_check_period`, the latter stands still when replay does.
fn note_lags(w: &Worker, config: &Config, view: &mut ClusterView, answers: &[Answered], history: &mut History) {
    let now_ms = w.millis(Instant::now());
    if let Some(written) = written(answers) {
        history.written(now_ms, written);
    }
    for (at, answer) in answers.iter().enumerate() {
        let Some(answer) = answer else { continue };
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
fn written(answers: &[Answered]) -> Option<u64> {
    answers.iter().flatten().flatten().filter(|answer| !answer.in_recovery).filter_map(|answer| answer.position).max()
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
