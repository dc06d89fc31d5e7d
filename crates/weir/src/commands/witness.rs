//! `weir witness`: a member of a group that votes and keeps its state, and serves nobody.

use crate::log::{Level, ProxyLog};
use crate::process::notify::SystemdNotifier;
use crate::watchdog::group_thread::{self, GroupHost};
use anyhow::Context as _;
use signal_hook::consts::{SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::Signals;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use weir_config::Config;
use weir_group::MemberDuty;

/// Time to leave the group at the end.
const LEAVE_LIMIT: Duration = Duration::from_secs(5);

/// Runs until SIGTERM, SIGINT or SIGQUIT. Error: no watchdog is configured, the state cannot be kept, or the ports are taken.
pub fn run(config: &Config) -> anyhow::Result<ExitCode> {
    let watchdog = config.watchdog.as_ref().context("use_watchdog is off: a witness is a member of a group")?;
    let log = ProxyLog::new(&config.log)
        .with_context(|| format!("logging_collector: cannot write a log in {}", config.log.file.directory.display()))?;
    let log = Arc::new(log);
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGQUIT]).context("cannot watch signals")?;
    let notify = SystemdNotifier::from_env();
    let host = GroupHost {
        duty: MemberDuty::Witness,
        log: log.clone(),
        grant: Box::new(|_, _| {}),
        parameters: Box::new(|| None),
        news: Box::new(|| {}),
    };
    let group = group_thread::start(watchdog, host, None)?;
    log.say(Level::Log, format_args!("weir {} votes as host {} of its group", crate::VERSION, watchdog.own_number));
    notify.ready();
    let _ = signals.forever().next();
    notify.stopping();
    group.leave(LEAVE_LIMIT);
    log.say(Level::Log, format_args!("stopped"));
    log.close();
    Ok(ExitCode::SUCCESS)
}
