//! Looks at the nodes' roles: times, and the view that the answers give.

use crate::cluster::{ClusterView, NodeHealth, NodeIndex, NodeUsage, ReplicationRole, RoleProbeResult};
use crate::lag::{self, LagHistory};
use weir_config::{ClusteringMode, Config, LogDelay, NodeConfig};

/// Longest time until a node that is down is asked again.
const DOWN_PERIOD_MS: u64 = 10_000;
const ROUND_MIN_MS: u64 = 200;
const SEARCH_PERIOD_MS: u64 = 1_000;
/// Answers are gathered for so long, so that lags are compared within a round.
const GATHER_MS: u64 = 50;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RoleAnswer {
    pub in_recovery: bool,
    pub position: Option<u64>,
    pub timeline: Option<u32>,
    /// Standbys that stream from this node.
    pub streaming: Vec<ReplicationStatRow>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplicationStatRow {
    pub application_name: String,
    pub state: String,
    pub sync_state: String,
    pub replay_lag_us: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoleLookFailure {
    pub kind: LookFailureKind,
    pub cause: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LookFailureKind {
    /// No answer, or no route.
    Silent,
    /// No server, or none that is ready.
    Unreachable,
    /// Login refused: the server is full, or has another password.
    Refused,
    /// Failure of the proxy (descriptors, ports, memory, rights, address): no server was asked.
    Local,
}

/// `None`: not asked, or still owed.
pub type Answer = Option<Result<RoleAnswer, RoleLookFailure>>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RoundStep {
    TakeIn,
    Begin,
    /// Milliseconds since the round began; `None`: until an event.
    Wait(Option<u64>),
}

#[derive(Clone, Copy, Debug)]
pub struct RoundProgress {
    pub passed_ms: u64,
    pub has_news: bool,
    pub is_whole: bool,
    pub is_nudged: bool,
}

impl RoundProgress {
    /// `period_ms`: `sr_check_period`; 0: rounds only on request.
    pub fn next(self, view: &ClusterView, period_ms: u64) -> RoundStep {
        if self.has_news {
            let is_gathered = self.is_whole || self.passed_ms >= GATHER_MS;
            return if is_gathered { RoundStep::TakeIn } else { RoundStep::Wait(Some(GATHER_MS)) };
        }
        let has_down = (0..view.nodes.len()).any(|at| !view.is_up(at));
        let period_ms = match (view.primary.is_some(), period_ms) {
            (false, _) => Some(SEARCH_PERIOD_MS),
            (true, 0) => None,
            (true, ms) if has_down => Some(ms.min(DOWN_PERIOD_MS)),
            (true, ms) => Some(ms),
        };
        let due_ms = match (self.is_nudged, period_ms) {
            (true, Some(ms)) => Some(ms.min(ROUND_MIN_MS)),
            (true, None) => Some(ROUND_MIN_MS),
            (false, period_ms) => period_ms,
        };
        if due_ms.is_some_and(|ms| self.passed_ms >= ms) { RoundStep::Begin } else { RoundStep::Wait(due_ms) }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MonitorLogLine {
    pub weight: MonitorLogLevel,
    pub text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MonitorLogLevel {
    Warning,
    Log,
    Detail,
}

/// Returns true if a role or a health changed, and news for the log.
pub fn take_in(config: &Config, view: &mut ClusterView, answers: &[Answer], now_s: u64) -> (bool, Vec<MonitorLogLine>) {
    let written = written(answers);
    let (mut changed, mut news) = (false, Vec::new());
    for (at, answer) in answers.iter().enumerate() {
        let Some(answer) = answer else { continue };
        let before = view.nodes[at].health;
        let probe = probe(config, at, answer, before, written);
        let has_changed = probe.is_some_and(|probe| view.step(at, &probe, now_s));
        let failure = answer.as_ref().err();
        let is_news = view.note_cause(at, failure.map(|failure| failure.cause.clone()));
        if let Ok(said) = answer {
            view.nodes[at].timeline = said.timeline;
        }
        changed |= has_changed;
        if has_changed || is_news {
            // Also for a node that was never up, or has a new cause.
            report(config, view, at, before, failure, &mut news);
        } else if let (Some(failure), NodeHealth::Down) = (failure, before) {
            let text = format!("node {} is still down: {}", view.nodes[at].id, failure.cause);
            news.push(MonitorLogLine { weight: MonitorLogLevel::Detail, text });
        }
    }
    (changed, news)
}

/// `None`: the answer tells nothing of a node in use, which stays as it was.
fn probe(
    config: &Config,
    at: NodeIndex,
    answer: &Result<RoleAnswer, RoleLookFailure>,
    before: NodeHealth,
    written: Option<u64>,
) -> Option<RoleProbeResult> {
    Some(match answer {
        Ok(said) => {
            let lag_bytes = written.zip(said.position).map(|(written, replayed)| written.saturating_sub(replayed));
            let in_recovery = said.in_recovery && !is_primary_by_configuration(config, config.nodes[at].id);
            RoleProbeResult::Answered { in_recovery, lag_bytes: lag_bytes.filter(|_| said.in_recovery) }
        }
        // A single server that refuses the login is still the only one.
        Err(failure) if is_primary_by_configuration(config, config.nodes[at].id) && failure.kind == LookFailureKind::Refused => {
            RoleProbeResult::Answered { in_recovery: false, lag_bytes: None }
        }
        Err(failure)
            if matches!(failure.kind, LookFailureKind::Refused | LookFailureKind::Local) && before != NodeHealth::Down =>
        {
            return None;
        }
        Err(_) => RoleProbeResult::Unreachable,
    })
}

/// True if the node with this number is the primary whatever it reports.
pub fn is_primary_by_configuration(config: &Config, id: u16) -> bool {
    let place = config.nodes.iter().position(|node| node.id == id);
    place.is_some_and(|at| {
        config.nodes[at].always_primary || config.nodes.len() == 1 || config.clustering_mode == ClusteringMode::Raw
    })
}

fn written(answers: &[Answer]) -> Option<u64> {
    answers.iter().flatten().flatten().filter(|said| !said.in_recovery).filter_map(|said| said.position).max()
}

fn report(
    config: &Config,
    view: &ClusterView,
    at: NodeIndex,
    before: NodeHealth,
    failure: Option<&RoleLookFailure>,
    news: &mut Vec<MonitorLogLine>,
) {
    let node = &view.nodes[at];
    let (weight, what) = match node.health {
        NodeHealth::Up(_) if failure.is_some() && node.health == before => {
            (MonitorLogLevel::Warning, "is used as before, and could not be asked")
        }
        NodeHealth::Up(_) if config.clustering_mode == ClusteringMode::Raw => (MonitorLogLevel::Log, "is up"),
        NodeHealth::Up(ReplicationRole::Primary) => (MonitorLogLevel::Log, "is up: primary"),
        NodeHealth::Up(ReplicationRole::Standby) => (MonitorLogLevel::Log, "is up: standby"),
        NodeHealth::Down => (MonitorLogLevel::Warning, "is down"),
    };
    let cause = failure.map(|failure| format!(": {}", failure.cause)).unwrap_or_default();
    let was = match before {
        before if before == node.health => "",
        NodeHealth::Up(ReplicationRole::Primary) => ", was primary",
        NodeHealth::Up(ReplicationRole::Standby) => ", was standby",
        NodeHealth::Down => "",
    };
    let (id, host, port) = (node.id, &node.hostname, node.port);
    let is_kept_out = matches!(node.health, NodeHealth::Up(_)) && node.usage == NodeUsage::Out;
    let usage = if is_kept_out { ", and out of use" } else { "" };
    news.push(MonitorLogLine { weight, text: format!("node {id} ({host}:{port}) {what}{usage}{was}{cause}") });
    let primaries = view.nodes.iter().filter(|node| node.health == NodeHealth::Up(ReplicationRole::Primary)).count();
    if primaries > 1 && config.clustering_mode != ClusteringMode::Raw {
        let text = match view.primary_id() {
            Some(to) => format!("{primaries} nodes call themselves primary; writes go to node {to}"),
            None => format!("{primaries} nodes call themselves primary; writes wait until one of them counts"),
        };
        news.push(MonitorLogLine { weight: MonitorLogLevel::Warning, text });
    }
}

/// Notes lags as time; returns news for the log.
///
/// The worse of two measures counts: Weir's is only as exact as `sr_check_period`, the primary's `replay_lag` stops when replay does.
pub fn note_lags(
    config: &Config,
    view: &mut ClusterView,
    answers: &[Answer],
    history: &mut LagHistory,
    now_ms: u64,
) -> Vec<MonitorLogLine> {
    if let Some(written) = written(answers) {
        history.written(now_ms, written);
    }
    let mut news = Vec::new();
    for (at, answer) in answers.iter().enumerate() {
        let Some(answer) = answer else { continue };
        let streaming = streaming_of(&config.nodes[at], answers);
        let (is_standby, node) = (view.is_standby(at), &mut view.nodes[at]);
        node.replication = streaming.map(|row| (row.state.clone(), row.sync_state.clone()));
        let replayed = answer.as_ref().ok().filter(|_| is_standby).and_then(|said| said.position);
        let seen = replayed.and_then(|replayed| history.lag_us(now_ms, replayed));
        node.lag_us = seen.map(|us| us.max(streaming.and_then(|row| row.replay_lag_us).unwrap_or(0)));
        node.lags = is_standby && lag::is_too_much(&config.check, node.lag_bytes, node.lag_us);
        if is_standby {
            news.extend(lag_line(config, at, view));
        }
    }
    news
}

fn streaming_of<'a>(node: &NodeConfig, answers: &'a [Answer]) -> Option<&'a ReplicationStatRow> {
    let mut all = answers.iter().flatten().flatten().flat_map(|said| &said.streaming);
    // PostgreSQL ignores case in `synchronous_standby_names`.
    all.find(|row| !node.application_name.is_empty() && row.application_name.eq_ignore_ascii_case(&node.application_name))
}

/// Texts of Pgpool-II.
fn lag_line(config: &Config, at: NodeIndex, view: &ClusterView) -> Option<MonitorLogLine> {
    let node = &view.nodes[at];
    let by_time = config.check.delay_ms_max > 0;
    let is_behind = if by_time { node.lag_us > Some(0) } else { node.lag_bytes > Some(0) };
    let is_said = match config.check.log_delay {
        LogDelay::Always => is_behind,
        LogDelay::OverThreshold => node.lags,
        LogDelay::Never => false,
    };
    let primary = view.primary_id().filter(|_| is_said)?;
    let lag = match by_time {
        true => format!("{:.6} second(s)", node.lag_us.unwrap_or(0) as f64 / 1e6),
        false => format!("{} bytes", node.lag_bytes.unwrap_or(0)),
    };
    let text = format!("Replication of node: {} is behind {lag} from the primary server (node: {primary})", node.id);
    Some(MonitorLogLine { weight: MonitorLogLevel::Log, text })
}

/// Returns silent nodes whose connections are to be broken, so that waiting statements end or run elsewhere. Empty without another primary:
/// breaking would lose transactions for nothing.
pub fn to_give_up(view: &ClusterView, answers: &[Answer]) -> Vec<u16> {
    if view.primary.is_none() {
        return Vec::new();
    }
    let is_silent = |answer: &Answer| matches!(answer, Some(Err(failure)) if failure.kind == LookFailureKind::Silent);
    let is_another = |at: usize| view.primary != Some(at) && !view.is_up(at);
    let silent = answers.iter().enumerate().filter(|(at, answer)| is_silent(answer) && is_another(*at));
    silent.map(|(at, _)| view.nodes[at].id).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::WriteGate;
    use crate::cluster::tests::{PRIMARY, STANDBY, view};

    fn round(passed_ms: u64, is_nudged: bool) -> RoundProgress {
        RoundProgress { passed_ms, has_news: false, is_whole: true, is_nudged }
    }

    fn config(nodes: u16) -> Config {
        let mut config = Config::default();
        config.nodes.clear();
        for (id, name) in (0..nodes).zip(["a", "b", "c"]) {
            config.node(id).application_name = name.into();
        }
        config
    }

    fn failed(kind: LookFailureKind) -> Answer {
        Some(Err(RoleLookFailure { kind, cause: "no answer".into() }))
    }

    fn said(in_recovery: bool, position: u64) -> RoleAnswer {
        RoleAnswer { in_recovery, position: Some(position), timeline: Some(3), streaming: Vec::new() }
    }

    #[test]
    fn a_round_is_due_by_its_period_sooner_while_a_node_is_down_and_at_once_with_a_reason() {
        let (well, one_down) = (view(&[(1.0, PRIMARY), (1.0, STANDBY)]), view(&[(1.0, PRIMARY), (1.0, NodeHealth::Down)]));
        let no_primary = view(&[(1.0, STANDBY), (1.0, STANDBY)]);
        for (view, period_ms, round, expected) in [
            (&well, 60_000, round(59_999, false), RoundStep::Wait(Some(60_000))),
            (&well, 60_000, round(60_000, false), RoundStep::Begin),
            (&well, 0, round(1_000_000, false), RoundStep::Wait(None)),
            (&well, 0, round(199, true), RoundStep::Wait(Some(200))),
            (&well, 60_000, round(200, true), RoundStep::Begin),
            (&well, 100, round(100, true), RoundStep::Begin),
            (&one_down, 60_000, round(9_999, false), RoundStep::Wait(Some(10_000))),
            (&one_down, 5_000, round(5_000, false), RoundStep::Begin),
            (&no_primary, 0, round(1_000, false), RoundStep::Begin),
            (&no_primary, 0, round(999, false), RoundStep::Wait(Some(1_000))),
        ] {
            assert_eq!(round.next(view, period_ms), expected, "{round:?}, {period_ms}");
        }
    }

    #[test]
    fn answers_are_gathered_for_a_moment_and_none_waits_longer_for_one_that_hangs() {
        let view = view(&[(1.0, PRIMARY)]);
        let news =
            |passed_ms, is_whole| RoundProgress { passed_ms, has_news: true, is_whole, is_nudged: false }.next(&view, 1000);
        assert_eq!(news(1, true), RoundStep::TakeIn);
        assert_eq!(news(49, false), RoundStep::Wait(Some(50)));
        assert_eq!(news(50, false), RoundStep::TakeIn);
    }

    #[test]
    fn a_server_that_will_not_be_asked_stays_what_it_was_and_a_single_one_is_the_primary() {
        let answers = [failed(LookFailureKind::Refused), failed(LookFailureKind::Refused)];
        let mut one = view(&[(1.0, NodeHealth::Down)]);
        let (changed, news) = take_in(&config(1), &mut one, &answers[..1], 7);
        assert!(changed && one.primary == Some(0));
        assert_eq!(news[0].text, "node 0 (h:1) is up: primary: no answer");
        let mut two = view(&[(1.0, NodeHealth::Down), (1.0, STANDBY)]);
        let (changed, news) = take_in(&config(2), &mut two, &answers, 7);
        assert!(!changed && two.primary.is_none() && two.nodes[1].health == STANDBY);
        let texts: Vec<&str> = news.iter().map(|news| news.text.as_str()).collect();
        assert_eq!(
            texts,
            ["node 0 (h:1) is down: no answer", "node 1 (h:1) is used as before, and could not be asked: no answer"]
        );
        let (changed, news) = take_in(&config(2), &mut two, &answers, 8);
        assert!(!changed && news.iter().all(|news| news.weight == MonitorLogLevel::Detail), "{news:?}");
    }

    #[test]
    fn of_two_primaries_the_log_says_what_becomes_of_writes() {
        let answers = [Some(Ok(said(true, 100))), Some(Ok(said(false, 100))), Some(Ok(said(false, 100)))];
        let down = (1.0, NodeHealth::Down);
        let told = |view: &mut ClusterView| {
            let (_, news) = take_in(&config(3), view, &answers, 7);
            news.last().map(|news| news.text.clone()).unwrap_or_default()
        };
        let mut fresh = view(&[down, down, down]);
        fresh.govern(WriteGate::Shut, |_| false, 7);
        assert_eq!(told(&mut fresh), "2 nodes call themselves primary; writes wait until one of them counts");
        let mut known = view(&[down, down, (1.0, PRIMARY)]);
        assert_eq!(told(&mut known), "2 nodes call themselves primary; writes go to node 2");
    }

    #[test]
    fn lags_are_counted_from_the_primary_and_the_worse_of_two_counts() {
        let (mut config, mut view) = (config(2), view(&[(1.0, PRIMARY), (1.0, STANDBY)]));
        config.check.delay_bytes_max = 50;
        config.check.log_delay = LogDelay::OverThreshold;
        let mut history = LagHistory::default();
        let primary = |position| {
            let row = ReplicationStatRow {
                application_name: "b".into(),
                state: "streaming".into(),
                sync_state: "async".into(),
                replay_lag_us: Some(9_000),
            };
            Some(Ok(RoleAnswer { streaming: vec![row], ..said(false, position) }))
        };
        let answers = [primary(100), Some(Ok(said(true, 100)))];
        take_in(&config, &mut view, &answers, 1);
        assert!(note_lags(&config, &mut view, &answers, &mut history, 10).is_empty());
        let answers = [primary(200), Some(Ok(said(true, 100)))];
        take_in(&config, &mut view, &answers, 2);
        let news = note_lags(&config, &mut view, &answers, &mut history, 30);
        assert_eq!(news[0].text, "Replication of node: 1 is behind 100 bytes from the primary server (node: 0)");
        let node = &view.nodes[1];
        assert_eq!((node.lag_bytes, node.lag_us, node.lags, node.timeline), (Some(100), Some(9_000), true, Some(3)));
        assert_eq!(node.replication, Some(("streaming".into(), "async".into())));
    }

    #[test]
    fn silent_nodes_are_given_up_while_there_is_another_primary() {
        let answers = [None, failed(LookFailureKind::Silent), failed(LookFailureKind::Unreachable)];
        let down = (1.0, NodeHealth::Down);
        assert_eq!(to_give_up(&view(&[(1.0, PRIMARY), down, down]), &answers), [1]);
        assert!(to_give_up(&view(&[down, down, down]), &answers).is_empty());
        assert!(to_give_up(&view(&[(1.0, PRIMARY), (1.0, STANDBY), down]), &answers).is_empty(), "it has answered since");
    }
}
