//! Standbys that do not stream, or stream under an unknown name: logged once, and again after a recovery.

use crate::cluster::{ClusterView, NodeIndex};
use crate::looks::{Answer, MonitorLogLevel, MonitorLogLine, ReplicationStatRow, is_primary_by_configuration};
use std::collections::BTreeMap;
use weir_config::{Config, NodeConfig};

/// Starting standbys, and those with a new primary, stream a moment later.
const GRACE_MS: u64 = 10_000;
const NAMES_MAX: usize = 5;

#[derive(Clone, Debug, PartialEq, Eq)]
enum StreamFault {
    None,
    /// Unknown names in the primary's list, one of which may be the standby's.
    OtherName(Vec<String>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FaultReportState {
    Seen { at_ms: u64 },
    Said,
}

#[derive(Debug, Default)]
pub struct FaultyStreams {
    faults: BTreeMap<u16, FaultReportState>,
}

impl FaultyStreams {
    /// Only standbys that answered are judged.
    pub fn take_in(&mut self, config: &Config, view: &ClusterView, answers: &[Answer], now_ms: u64) -> Vec<MonitorLogLine> {
        let mut news = Vec::new();
        // Servers that are primaries by a rule (Aurora's) replicate without streams.
        let is_other = config.nodes.iter().any(|node| is_primary_by_configuration(config, node.id));
        let listed = view.primary.filter(|_| !is_other).and_then(|at| listed(answers, at));
        let Some(listed) = listed else { return news };
        for (at, node) in config.nodes.iter().enumerate() {
            let said = answers.get(at).and_then(|answer| answer.as_ref()?.as_ref().ok());
            let Some(said) = said.filter(|said| said.in_recovery && view.is_standby(at)) else { continue };
            let place = format!("node {} ({}:{})", node.id, node.hostname, node.port);
            match fault(config, node, said.timeline.is_some(), listed) {
                None => {
                    if self.faults.remove(&node.id) == Some(FaultReportState::Said) {
                        news.push(MonitorLogLine { weight: MonitorLogLevel::Log, text: format!("{place} streams again") });
                    }
                }
                Some(fault) => {
                    let stage = self.faults.entry(node.id).or_insert(FaultReportState::Seen { at_ms: now_ms });
                    if matches!(*stage, FaultReportState::Seen { at_ms } if now_ms.saturating_sub(at_ms) >= GRACE_MS) {
                        *stage = FaultReportState::Said;
                        news.push(MonitorLogLine {
                            weight: MonitorLogLevel::Warning,
                            text: format!("{place} {}", words(&fault, node)),
                        });
                    }
                }
            }
        }
        news
    }
}

fn listed(answers: &[Answer], primary: NodeIndex) -> Option<&[ReplicationStatRow]> {
    let said = answers.get(primary)?.as_ref()?.as_ref().ok()?;
    (!said.in_recovery).then_some(said.streaming.as_slice())
}

/// `receives`: the standby reports a received timeline. A user without rights sees neither that nor states in the list: nothing is known
/// then, except by an empty list.
fn fault(config: &Config, node: &NodeConfig, receives: bool, listed: &[ReplicationStatRow]) -> Option<StreamFault> {
    let is_known = |name: &str| config.nodes.iter().any(|node| node.application_name.eq_ignore_ascii_case(name));
    if listed
        .iter()
        .any(|row| !row.application_name.is_empty() && row.application_name.eq_ignore_ascii_case(&node.application_name))
    {
        return None;
    }
    if !receives {
        let is_told = listed.is_empty() || listed.iter().any(|row| !row.state.is_empty());
        return is_told.then_some(StreamFault::None);
    }
    // Without a configured name nothing can be found. A cascading standby is in another standby's list.
    let strange = listed.iter().map(|row| &row.application_name).filter(|name| !name.is_empty() && !is_known(name));
    let strange: Vec<String> = strange.take(NAMES_MAX).cloned().collect();
    (!node.application_name.is_empty() && !strange.is_empty()).then_some(StreamFault::OtherName(strange))
}

fn words(fault: &StreamFault, node: &NodeConfig) -> String {
    match fault {
        StreamFault::None => {
            "is a standby and does not stream from any server: look at its log for primary_conninfo and the login; \
                        `weir check --connect` tells more"
                .to_owned()
        }
        StreamFault::OtherName(names) => format!(
            "streams under no name of backend_application_name{id} = '{}': the primary has {}; set the parameter, or application_name in the \
             standby's primary_conninfo",
            node.application_name,
            names.iter().map(|name| format!("'{name}'")).collect::<Vec<_>>().join(", "),
            id = node.id,
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::tests::{PRIMARY, STANDBY, view};
    use crate::looks::RoleAnswer;

    /// Two standbys of the names `b` and `c`. `receives`: of each; `rows`: name and state in the primary's list.
    fn answers(receives: [bool; 2], rows: &[(&str, &str)]) -> Vec<Answer> {
        let row = |(name, state): &(&str, &str)| ReplicationStatRow {
            application_name: (*name).into(),
            state: (*state).into(),
            ..ReplicationStatRow::default()
        };
        let primary = RoleAnswer { in_recovery: false, streaming: rows.iter().map(row).collect(), ..RoleAnswer::default() };
        let standby = |receives: bool| RoleAnswer { in_recovery: true, timeline: receives.then_some(1), ..RoleAnswer::default() };
        [primary, standby(receives[0]), standby(receives[1])].map(|said| Some(Ok(said))).into()
    }

    fn config() -> Config {
        let mut config = Config::default();
        config.nodes.clear();
        for (id, name) in (0..3).zip(["a", "b", "c"]) {
            let node = config.node(id);
            (node.application_name, node.hostname, node.port) = (name.into(), "db".into(), 5432 + id);
        }
        config
    }

    fn lines(config: &Config, answers: &[Answer]) -> Vec<String> {
        let view = view(&[(1.0, PRIMARY), (1.0, STANDBY), (1.0, STANDBY)]);
        let mut streams = FaultyStreams::default();
        let mut all = Vec::new();
        for now_ms in [0, GRACE_MS - 1, GRACE_MS, GRACE_MS + 1, 100_000] {
            let news = streams.take_in(config, &view, answers, now_ms);
            assert!(now_ms >= GRACE_MS || news.is_empty(), "too soon");
            all.extend(news.into_iter().map(|news| news.text));
        }
        all
    }

    #[test]
    fn a_standby_that_does_not_stream_or_has_another_name_is_named_once() {
        let on = "streaming";
        for (receives, rows, expected) in [
            ([true, true], vec![("b", on), ("c", on)], vec![]),
            ([true, true], vec![("B", on), ("c", "catchup")], vec![]),
            ([true, false], vec![("b", on)], vec!["node 2 (db:5434) is a standby and does not stream"]),
            ([false, false], vec![], vec!["node 1 (db:5433) is a standby", "node 2 (db:5434) is a standby"]),
            (
                [true, true],
                vec![("b", on), ("walreceiver", on)],
                vec!["node 2 (db:5434) streams under no name of backend_application_name2 = 'c': the primary has 'walreceiver';"],
            ),
            // It streams from the other standby.
            ([true, true], vec![("b", on)], vec![]),
            // A user who may not know.
            ([false, false], vec![("b", ""), ("other", "")], vec![]),
        ] {
            let told = lines(&config(), &answers(receives, &rows));
            assert_eq!(told.len(), expected.len(), "{rows:?}: {told:?}");
            assert!(told.iter().zip(&expected).all(|(line, words)| line.starts_with(words)), "{rows:?}: {told:?}");
        }
    }

    #[test]
    fn nothing_is_said_of_names_that_nobody_configured_nor_of_servers_that_are_primaries_by_a_rule() {
        let mut unnamed = config();
        unnamed.nodes.iter_mut().for_each(|node| node.application_name.clear());
        assert!(lines(&unnamed, &answers([true, true], &[("walreceiver", "streaming")])).is_empty());
        let mut aurora = config();
        aurora.nodes[0].always_primary = true;
        assert!(lines(&aurora, &answers([false, false], &[])).is_empty());
    }

    #[test]
    fn its_end_is_told_and_a_fault_that_comes_back_is_a_new_one() {
        let (config, view) = (config(), view(&[(1.0, PRIMARY), (1.0, STANDBY), (1.0, STANDBY)]));
        let (bad, good) =
            (answers([true, false], &[("b", "streaming")]), answers([true, true], &[("b", "streaming"), ("c", "streaming")]));
        let mut streams = FaultyStreams::default();
        let mut told = Vec::new();
        // A short fault is none.
        for (answers, now_s) in
            [(&bad, 0), (&good, 9), (&bad, 10), (&bad, 19), (&bad, 20), (&good, 21), (&good, 22), (&bad, 23), (&bad, 33)]
        {
            told.extend(streams.take_in(&config, &view, answers, now_s * 1000).into_iter().map(|news| (now_s, news.weight)));
        }
        assert_eq!(told, [(20, MonitorLogLevel::Warning), (21, MonitorLogLevel::Log), (33, MonitorLogLevel::Warning)]);
    }
}
