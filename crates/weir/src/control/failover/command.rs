//! Runs a command of failover.

use crate::control::control_context::ControlContext;
use crate::log::Level;
use crate::runtime::shell_command;
use std::time::Duration;
use weir_failover::{Done, FailoverCommandKind};

/// Runs the command, and kills its process group after `limit`. Cancel safe: the process group is killed.
pub async fn run(c: &ControlContext, kind: FailoverCommandKind, line: &str, limit: Duration) -> Done {
    // Pgpool's words, for which scripts look.
    c.shared.log.say(Level::Log, format_args!("execute command: {line}"));
    let say_line = |text: std::fmt::Arguments<'_>| c.shared.log.say(Level::Log, format_args!("{}: {text}", name(kind)));
    match tokio::time::timeout(limit, shell_command::run(line, &say_line)).await {
        Ok(Ok(status)) if status.success() => Done::Yes,
        Ok(Ok(status)) => {
            c.shared.log.say(Level::Warning, format_args!("{} failed: {status}", name(kind)));
            Done::No
        }
        Ok(Err(cause)) => {
            c.shared.log.say(Level::Error, format_args!("{} could not be run: {cause}", name(kind)));
            Done::No
        }
        Err(_) => {
            c.shared.log.say(Level::Error, format_args!("{} was killed after {} s", name(kind), limit.as_secs()));
            Done::No
        }
    }
}

fn name(kind: FailoverCommandKind) -> &'static str {
    match kind {
        FailoverCommandKind::Failover => "failover_command",
        FailoverCommandKind::Failback => "failback_command",
        FailoverCommandKind::FollowPrimary => "follow_primary_command",
    }
}
