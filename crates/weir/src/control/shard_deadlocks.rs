//! Ends waits for locks that form a ring over several servers, none of which sees all of it.
//!
//! A session whose transaction is on several shards waits on one while it holds locks on others. The servers say who waits for whom, Weir knows
//! which server processes serve one session. A ring that two looks find with the same statements is broken: one of its statements ends with
//! 40P01, as a server would end it. Sessions of another Weir are not known: their rings are broken by `lock_timeout` only.

use crate::control::control_context::ControlContext;
use crate::control::shard_lines::ShardLines;
use crate::log::Level;
use crate::runtime::shared::WorkerMessage;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Two looks find a ring within 2 s.
const PERIOD: Duration = Duration::from_millis(600);

const NAME: &str = "weir_deadlocks";

const WAITS: &str = "SELECT DISTINCT l.pid, pg_catalog.array_to_string(pg_catalog.pg_blocking_pids(l.pid), ',') \
    FROM pg_catalog.pg_locks AS l WHERE NOT l.granted";

/// A server process: node and process id.
type Backend = (u16, u32);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Party {
    /// Process id of a session of Weir, and the begin of its statement.
    Session { pid: u32, began_ms: u64 },
    /// Of nobody here.
    Other(Backend),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct LockWait {
    node: u16,
    waits: Party,
    holds: Party,
}

/// Cancel safe.
pub async fn watch(c: Rc<ControlContext>) {
    let mut lines = ShardLines::new(c.clone(), NAME);
    let mut before = BTreeSet::new();
    loop {
        tokio::time::sleep(PERIOD).await;
        let parties = parties(&c);
        if sessions_on_several(&parties) < 2 {
            // A ring over servers needs two of them.
            before.clear();
            lines.close_all();
            continue;
        }
        let now = waits(&c, &mut lines, &parties).await;
        let lasting: BTreeSet<LockWait> = now.intersection(&before).copied().collect();
        before = match ring(&lasting) {
            Some(ring) => {
                break_ring(&c, &ring);
                BTreeSet::new()
            }
            None => now,
        };
    }
}

/// The server processes that sessions use.
fn parties(c: &ControlContext) -> BTreeMap<Backend, Party> {
    let mut parties = BTreeMap::new();
    // A session's statement is that which began last on any of its connections.
    let mut began = BTreeMap::<u32, u64>::new();
    let statuses: Vec<_> = c.shared.pools.all().iter().flat_map(|pool| pool.statuses()).collect();
    for status in &statuses {
        let pid = status.session.load(Ordering::Relaxed);
        let at = began.entry(pid).or_default();
        *at = (*at).max(status.last.began_ms.load(Ordering::Relaxed));
    }
    for status in &statuses {
        let pid = status.session.load(Ordering::Relaxed);
        if pid != 0 {
            let began_ms = began.get(&pid).copied().unwrap_or(0);
            parties.insert((status.address.node, status.pid), Party::Session { pid, began_ms });
        }
    }
    parties
}

fn sessions_on_several(parties: &BTreeMap<Backend, Party>) -> usize {
    let mut nodes = BTreeMap::<Party, BTreeSet<u16>>::new();
    for ((node, _), party) in parties {
        nodes.entry(*party).or_default().insert(*node);
    }
    nodes.values().filter(|nodes| nodes.len() > 1).count()
}

async fn waits(c: &ControlContext, lines: &mut ShardLines, parties: &BTreeMap<Backend, Party>) -> BTreeSet<LockWait> {
    let config = c.shared.config.load_full();
    let primary = c.shared.cluster.view.load().primary_id();
    let mut found = BTreeSet::new();
    for node in config.all_nodes().filter(|node| node.shard != 0 || primary == Some(node.id)) {
        let Ok(rows) = lines.ask(node, WAITS).await else { continue };
        let party = |pid: u32| parties.get(&(node.id, pid)).copied().unwrap_or(Party::Other((node.id, pid)));
        for (waits, holders) in rows.iter().filter_map(|row| read(row)) {
            found.extend(holders.into_iter().map(|holds| LockWait { node: node.id, waits: party(waits), holds: party(holds) }));
        }
    }
    found
}

fn read(row: &[Option<String>]) -> Option<(u32, Vec<u32>)> {
    let [waits, holders] = row else { return None };
    let holders = holders.as_deref().unwrap_or_default().split(',').filter_map(|pid| pid.parse().ok()).collect();
    Some((waits.as_deref()?.parse().ok()?, holders))
}

/// A ring of waits on two servers or more. One on one server is for that server to break.
fn ring(waits: &BTreeSet<LockWait>) -> Option<Vec<LockWait>> {
    let mut behind = BTreeMap::<Party, Vec<LockWait>>::new();
    for wait in waits {
        behind.entry(wait.waits).or_default().push(*wait);
    }
    behind.keys().find_map(|begin| {
        let mut seen = BTreeSet::new();
        let mut paths: Vec<Vec<LockWait>> = behind[begin].iter().map(|wait| vec![*wait]).collect();
        while let Some(path) = paths.pop() {
            let last = path.last()?.holds;
            if last == *begin && path.iter().any(|wait| wait.node != path[0].node) {
                return Some(path);
            }
            if seen.insert(last) {
                let next = behind.get(&last).into_iter().flatten();
                paths.extend(next.map(|wait| path.iter().chain([wait]).copied().collect::<Vec<_>>()));
            }
        }
        None
    })
}

/// The session whose statement began last has done the least.
fn victim(ring: &[LockWait]) -> Option<u32> {
    let sessions = ring.iter().filter_map(|wait| match wait.waits {
        Party::Session { pid, began_ms } => Some((began_ms, pid)),
        Party::Other(_) => None,
    });
    sessions.max().map(|(_, pid)| pid)
}

fn break_ring(c: &ControlContext, ring: &[LockWait]) {
    let Some(pid) = victim(ring) else { return };
    let nodes: BTreeSet<u16> = ring.iter().map(|wait| wait.node).collect();
    c.shared.log.say(
        Level::Log,
        format_args!(
            "deadlock over nodes {nodes:?}: {} processes wait for each other; the statement of session {pid} is cancelled",
            ring.len()
        ),
    );
    if let Some(status) = c.shared.session_statuses.get(pid) {
        c.shared.mailboxes[usize::from(status.worker)].send(WorkerMessage::Deadlocked(pid));
    }
}

pub fn own_texts() -> Vec<String> {
    vec![WAITS.to_owned()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session(pid: u32) -> Party {
        Party::Session { pid, began_ms: u64::from(pid) * 10 }
    }

    fn found(waits: &[(u16, Party, Party)]) -> Option<usize> {
        let waits = waits.iter().map(|(node, waits, holds)| LockWait { node: *node, waits: *waits, holds: *holds }).collect();
        ring(&waits).map(|ring| ring.len())
    }

    #[test]
    fn only_rings_over_several_servers_are_found() {
        let other = Party::Other((1, 77));
        for (what, waits, expected) in [
            ("nobody waits", vec![], None),
            ("a queue", vec![(0, session(1), session(2)), (1, session(2), session(3))], None),
            ("two", vec![(0, session(1), session(2)), (1, session(2), session(1))], Some(2)),
            ("of one server", vec![(0, session(1), session(2)), (0, session(2), session(1))], None),
            (
                "through a process of nobody here",
                vec![(1, session(1), other), (1, other, session(2)), (0, session(2), session(1))],
                Some(3),
            ),
            (
                "three, one of which waits for two",
                vec![
                    (0, session(1), session(4)),
                    (0, session(1), session(2)),
                    (1, session(2), session(3)),
                    (2, session(3), session(1)),
                ],
                Some(3),
            ),
            (
                "a queue before a ring",
                vec![(0, session(9), session(1)), (0, session(1), session(2)), (1, session(2), session(1))],
                Some(2),
            ),
        ] {
            assert_eq!(found(&waits), expected, "{what}");
        }
    }

    #[test]
    fn the_statement_that_began_last_is_cancelled() {
        let wait = |waits, holds| LockWait { node: 0, waits, holds };
        let other = Party::Other((0, 99_999));
        assert_eq!(victim(&[wait(session(3), other), wait(other, session(5)), wait(session(5), session(3))]), Some(5));
        assert_eq!(victim(&[wait(other, other)]), None);
    }

    #[test]
    fn answers_of_servers_are_read() {
        let row = |cells: [Option<&str>; 2]| cells.map(|cell| cell.map(str::to_owned));
        assert_eq!(read(&row([Some("5"), Some("6,7")])), Some((5, vec![6, 7])));
        assert_eq!(read(&row([Some("5"), Some("")])), Some((5, vec![])));
        assert_eq!(read(&row([None, Some("6")])), None);
    }
}
