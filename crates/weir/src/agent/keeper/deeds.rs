//! The deeds. Each looks first, and does not repeat what is done.

mod copy;
mod follow_primary;
mod kept_files;
mod rewind;
mod run;

use super::processes;
use super::site::ServerInstallation;
use crate::agent::keeper::synced_files;
use rustix::process::Signal;
use std::io;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};
use weir_agent::{DataDirectoryState, OrderAction, OrderFailure, OrderFailureKind, OrderProgress, Outcome};

const END_LIMIT: Duration = Duration::from_secs(10);
const ORDER_LIMIT: Duration = Duration::from_secs(7 * 24 * 3600);

pub type Tell<'a> = &'a dyn Fn(OrderProgress);

/// Blocks. `is_outrun`: set once an orderly stop must make room for an immediate one.
pub fn perform(site: &ServerInstallation, deed: &OrderAction, tell: Tell<'_>, is_outrun: &AtomicBool) -> Outcome {
    match deed {
        OrderAction::Stop { mode, limit_ms, started_at } => run::stop(site, *mode, *started_at, (until(*limit_ms), is_outrun)),
        OrderAction::Start { limit_ms } => run::start(site, until(*limit_ms)),
        OrderAction::Restart { limit_ms, started_at } => run::restart(site, *started_at, until(*limit_ms)),
        OrderAction::Follow(order) => follow_primary::follow(site, order),
        OrderAction::Rewind(order) => rewind::rewind(site, order, until(order.limit_ms), tell),
        OrderAction::BaseBackup(order) => copy::copy(site, order, until(order.limit_ms), tell),
    }
}

fn until(limit_ms: u32) -> Instant {
    Instant::now() + Duration::from_millis(limit_ms.into()).min(ORDER_LIMIT)
}

/// Cleans up after a former agent, at the start of the only one for this data.
pub fn clean_up(site: &ServerInstallation) -> anyhow::Result<()> {
    let left = || processes::of_agent(&site.work);
    processes::signal(&left(), Signal::KILL);
    if !processes::wait_gone(Instant::now() + END_LIMIT, left) {
        anyhow::bail!("programs that an agent before has begun do not end");
    }
    if !site.data.exists() && site.old_data().exists() {
        std::fs::rename(site.old_data(), &site.data)?;
        synced_files::sync_parent(&site.data)?;
    }
    if site.put_back().exists() {
        kept_files::put_back(site)?;
    }
    for left in [site.new_data(), site.old_data(), kept_files::in_the_making(site)] {
        synced_files::remove(&left)?;
    }
    Ok(())
}

fn broke(path: &Path) -> impl Fn(io::Error) -> OrderFailure {
    move |cause| OrderFailure::new(OrderFailureKind::Other, format!("{}: {cause}", path.display()))
}

/// Fails unless the server is stopped.
fn check_rests(site: &ServerInstallation, until: Instant) -> Outcome {
    // Orphans of a killed server end by themselves. A single-user server writes a port too, and counts as running.
    let is_led = || super::look::leader(site, &processes::of_server(&site.data)).is_some_and(|server| server.port > 0);
    if is_led() {
        return Err(OrderFailure::new(OrderFailureKind::Running, "the server runs"));
    }
    if processes::wait_gone(until, || processes::of_server(&site.data)) && !is_led() {
        Ok(())
    } else {
        Err(OrderFailure::new(OrderFailureKind::Running, "processes of the server still run"))
    }
}

fn check_whole(site: &ServerInstallation) -> Outcome {
    match super::look::data(site) {
        DataDirectoryState::Whole => Ok(()),
        DataDirectoryState::HalfRewound => {
            Err(OrderFailure::new(OrderFailureKind::HalfRewound, "a rewind was cut short: a base backup must be made"))
        }
        DataDirectoryState::Absent => {
            Err(OrderFailure::new(OrderFailureKind::Other, format!("{} holds no server's data", site.data.display())))
        }
    }
}

fn read_progress(line: &str) -> Option<OrderProgress> {
    let (before, after) = line.split_once('/')?;
    let done: u64 = before.trim().parse().ok()?;
    let total: u64 = after.split_once(" kB")?.0.trim().parse().ok()?;
    Some(OrderProgress { done_bytes: done.saturating_mul(1024), total_bytes: total.saturating_mul(1024) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_read_from_the_words_of_programs() {
        let progress = Some(OrderProgress { done_bytes: 2048, total_bytes: 4096 });
        assert_eq!(read_progress(" 2/4 kB (50%), 0/1 tablespace"), progress);
        assert_eq!(read_progress("2/4 kB (50%) copied"), progress);
        for other in ["", "pg_rewind: servers diverged at WAL location 0/3000000", "x/y kB", "2/4 MB"] {
            assert_eq!(read_progress(other), None, "{other}");
        }
    }
}
