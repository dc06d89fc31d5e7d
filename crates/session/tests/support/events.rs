//! Events in the world while sessions talk: lines of a script that begin with `!`.

use super::client::Client;
use super::log::Log;
use super::notation::{Side, bytes_of};
use super::world::{World, name_of};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use weir_failover::cluster::RoleProbeResult;
use weir_failover::commit_outcome::CommitOutcome;
use weir_session::conn::TextInterpretation;
use weir_session::doubt::settle;
use weir_session::fault::{ErrorReport, sqlstate};
use weir_session::handle::OverdueStatement;
use weir_session::metrics::METRICS;
use weir_session::session_state::client_settings::EncodingEffect;
use weir_session::stats::StatCounter;
use weir_session::time_limits::UnfinishedInput;
use weir_session::timing::held_too_long;

/// Makes it happen. Panics at a line that means nothing.
pub fn happen(world: &World, client: &mut Client, line: &str) {
    let words: Vec<&str> = line.split(' ').collect();
    match words.as_slice() {
        ["client", "closes"] => client.pipes.client_closed = true,
        ["client", "is", "gone"] => (client.pipes.client_closed, client.pipes.client_gone) = (true, true),
        ["server", "closes"] => client.close_server(),
        ["next", "write", "fails"] => client.pipes.is_broken = true,
        ["pass", time] => world.pass(time_of(time)),
        ["lease", node, time] => {
            let until_us = world.clock.boot_us_after_reads() + time_of(time).as_micros() as u64;
            world.w.shared.lease.need();
            world.w.shared.lease.grant(until_us, Some((1, node_of(node))));
        }
        ["rest", node] => world.rest(node_of(node)),
        ["room", node, "any"] => {
            world.pool.room.borrow_mut().remove(&node_of(node));
        }
        ["room", node, count] => {
            world.pool.room.borrow_mut().insert(node_of(node), number(count));
        }
        ["refuse", node] => world.pool.refusing.borrow_mut().push(node_of(node)),
        ["admit", node] => world.pool.refusing.borrow_mut().retain(|other| *other != node_of(node)),
        ["replay", nodes @ ..] => world.replay(&nodes.iter().map(|node| node_of(node)).collect::<Vec<_>>()),
        ["down", node] => world.probe(usize::from(node_of(node)), &RoleProbeResult::Unreachable),
        ["primary", node] => promote(world, node_of(node)),
        ["standby", node] => world.probe(usize::from(node_of(node)), &answered(true)),
        ["catalog", "is", "read"] => world.publish_catalog(),
        ["log", "is", "taken", "in"] => world.take_in_log(),
        ["servers", "begin", "with", how] => world.pool.begins.set(reading_of(how)),
        ["others", "define"] => world.account.known.note_change(),
        ["others", "take", node] => drop(world.pool.idle.borrow_mut().remove(&node_of(node))),
        ["cleaned"] => world.finish_resets(),
        ["cancel", "begins"] => client.s.handle.cancels.set(1),
        ["cancel", "ends"] => client.s.handle.cancels.set(0),
        ["cancel", "waits"] => client.s.handle.cancel_waits.set(true),
        ["wait", "cancelled"] => client.s.handle.wait_cancelled.set(true),
        ["stop", mode] => world.program.stop.store(if *mode == "fast" { 2 } else { 1 }, Ordering::Relaxed),
        ["final_error", text @ ..] => {
            *client.s.handle.final_error.borrow_mut() =
                Some(Box::new(ErrorReport::fatal(sqlstate::ADMIN_SHUTDOWN, text.join(" "))));
        }
        ["overdue", text @ ..] => {
            *client.s.handle.overdue.borrow_mut() =
                OverdueStatement::Cancelling(Box::new(ErrorReport::error(sqlstate::QUERY_CANCELED, text.join(" "))));
        }
        ["doom"] => {
            if let Some(conn) = client.s.conn() {
                conn.status.doomed.store(true, Ordering::Relaxed);
            }
        }
        ["hub", "listens"] => hub_listens(world),
        ["hub", "lost"] => {
            world.pool.hub.lose();
            world.pool.hub.tasks().into_iter().for_each(|task| world.pool.wake(task));
        }
        ["hub", "hears", ..] => {
            let frame = bytes_of(Side::Server, &line.replacen("hub hears", "Notification", 1));
            assert!(world.pool.hub.hand(&frame, |task| world.pool.wake(task)).is_some(), "{line}");
        }
        ["outcome", word] => {
            let verdict = match *word {
                "committed" => CommitOutcome::Committed,
                "rolled_back" => CommitOutcome::RolledBack,
                "unknown" => CommitOutcome::Unknown,
                _ => panic!("no outcome: {line}"),
            };
            settle(&mut client.s, &client.w, verdict);
        }
        ["show", what] => show(world, client, what),
        ["run"] => {}
        _ => panic!("nothing like this happens: {line}"),
    }
}

/// The node calls itself primary from now on.
fn promote(world: &World, node: u16) {
    let positions = &world.w.shared.positions;
    positions.note_promoted(node);
    world.probe(usize::from(node), &answered(false));
    positions.note_primary(node, world.w.view().primary_since);
}

fn answered(in_recovery: bool) -> RoleProbeResult {
    RoleProbeResult::Answered { in_recovery, lag_bytes: None }
}

fn node_of(word: &str) -> u16 {
    number(word.strip_prefix("node").unwrap_or(word))
}

fn reading_of(word: &str) -> TextInterpretation {
    match word {
        "escapes" => TextInterpretation { escapes: true, ..TextInterpretation::default() },
        "LATIN1" => TextInterpretation { recoding: EncodingEffect::Names, ..TextInterpretation::default() },
        "SJIS" => TextInterpretation { recoding: EncodingEffect::Characters, ..TextInterpretation::default() },
        _ => TextInterpretation::default(),
    }
}

fn number<T: std::str::FromStr>(word: &str) -> T {
    word.parse().unwrap_or_else(|_| panic!("no number: {word}"))
}

fn time_of(word: &str) -> Duration {
    match word.strip_suffix("ms") {
        Some(ms) => Duration::from_millis(number(ms)),
        None => Duration::from_secs(number(word.trim_end_matches('s'))),
    }
}

/// The hub's server connection listens to what its sessions want.
fn hub_listens(world: &World) {
    let hub = &world.pool.hub;
    *hub.encoding.borrow_mut() = "UTF8".into();
    if let Some((sql, listened)) = hub.change() {
        world.log.other(None, format!("the hub says: {sql}"));
        hub.confirm(listened);
    }
    hub.tasks().into_iter().for_each(|task| world.pool.wake(task));
}

fn show(world: &World, client: &Client, what: &str) {
    match what {
        "session" => show_session(&world.log, client),
        "shares" => show_shares(world),
        "counts" => show_counts(world),
        "numbers" => show_numbers(world),
        "clock" => show_clock(world, client),
        _ => panic!("nothing to show: {what}"),
    }
}

/// Prints the operators' view of the session.
fn show_session(log: &Log, client: &Client) {
    let s = &client.s;
    let pin = s.pin().map_or("nothing", |kept| weir_session::flow::HoldReason::reason(kept.code()));
    let settings: Vec<String> = s.state.settings.pairs().map(|(name, value)| format!("{name}={value}")).collect();
    let conn = s.conn().map_or("none".to_owned(), name_of);
    let alike = s.conn().is_none_or(|conn| Arc::ptr_eq(&conn.settings, &s.state.settings));
    let alike = if alike { "" } else { ", which has others" };
    let unfinished = match s.handle.clock.unfinished.get().0 {
        UnfinishedInput::Nothing => String::new(),
        some => format!(", unfinished {some:?}"),
    };
    let mark = match &*s.handle.overdue.borrow() {
        OverdueStatement::No => String::new(),
        OverdueStatement::Cancelling(fault) => format!(", cancelled by {fault}"),
        other => format!(", overdue {other:?}"),
    };
    let text = format!(
        "is {}, connection {conn}{alike}, kept by {pin}, settings [{}], rule {}{unfinished}{mark}",
        s.handle.status.doing().name(),
        settings.join(" "),
        s.handle.clock.rule.get().name()
    );
    log.other(Some(client.name), text);
}

/// Prints how many reads each node had.
fn show_counts(world: &World) {
    let reads: Vec<String> = (0..2).map(|node| world.w.counters().reads(node).to_string()).collect();
    world.log.other(None, format!("reads by node: {}", reads.join(", ")));
}

/// Prints all that is counted and not 0: of the user, of all, and by node.
fn show_numbers(world: &World) {
    const STATS: [StatCounter; 11] = [
        StatCounter::Assignments,
        StatCounter::Transactions,
        StatCounter::Statements,
        StatCounter::Received,
        StatCounter::Sent,
        StatCounter::TransactionUs,
        StatCounter::StatementUs,
        StatCounter::WaitUs,
        StatCounter::ClientParses,
        StatCounter::ServerParses,
        StatCounter::Binds,
    ];
    let counters = world.w.counters();
    let of_user = STATS.iter().map(|stat| (format!("{stat:?}"), world.account.stats.get(*stat)));
    let of_all = METRICS.iter().enumerate().map(|(row, metric)| (metric.name.to_owned(), counters.get(row)));
    let errors = counters.errors().enumerate().map(|(at, count)| (format!("errors {at}"), count));
    let numbers = of_user.chain(of_all).chain(errors).filter(|(_, count)| *count > 0);
    let mut words: Vec<String> = numbers.map(|(name, count)| format!("{name} {count}")).collect();
    for node in 0..3 {
        let (statements, severities, times) = (counters.statements(node), counters.severities(node), counters.times(node));
        if statements.iter().chain(&severities).any(|count| *count > 0) {
            words.push(format!("node {node} {statements:?} {severities:?} timed {}", times.count()));
        }
    }
    world.log.other(None, format!("counted: {}", words.join(", ")));
}

/// Prints the times of the session in ms since it began, and the fault of a client that speaks now in a transaction that was held too long.
fn show_clock(world: &World, client: &Client) {
    let clock = &client.s.handle.clock;
    let ms = |us: Option<u64>| us.map_or("-".to_owned(), |us| us.saturating_sub(BEGUN_US).div_euclid(1000).to_string());
    let fault = held_too_long(&client.s.handle, world.w.now_us()).map_or(String::new(), |fault| format!(", {fault}"));
    let text = format!(
        "busy since {}, asked since {}, in a transaction since {}, ready at {}{fault}",
        ms(clock.busy_since.get()),
        ms(clock.asked_since.get()),
        ms(clock.transaction_since.get()),
        ms(Some(clock.ready_at.get()))
    );
    world.log.other(Some(client.name), text);
}

/// The time at which worlds begin.
const BEGUN_US: u64 = 100_000_000;

/// Prints the shares of the next reads, by node.
fn show_shares(world: &World) {
    let shares: Vec<String> =
        world.w.loads.shares(&world.w.view(), world.w.now_ms()).iter().map(|share| format!("{share:.3}")).collect();
    world.log.other(None, format!("shares of the reads: {}", shares.join(", ")));
}
