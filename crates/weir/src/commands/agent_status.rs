//! `weir agent-status`: asks the agents of all nodes what they see.

use crate::control::agent_client::AgentEndpoint;
use crate::runtime::operator_files::OperatorFiles;
use anyhow::Context;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;
use tokio::time::Instant;
use weir_agent::{AgentStatus, DataDirectoryState, ServerStatus};
use weir_config::Config;
use weir_failover::show_lsn;

/// Time for one agent.
const LIMIT: Duration = Duration::from_secs(15);

/// Prints a line for each node. Fails if an agent does not answer.
pub fn run(files: &OperatorFiles, config: &Config) -> anyhow::Result<ExitCode> {
    let tls = files.read_tls(config).context("cannot read the files for TLS")?.agent;
    let folder = files.config.as_deref().and_then(Path::parent).unwrap_or(Path::new(""));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("cannot create an event loop")?;
    let mut code = ExitCode::SUCCESS;
    let mut stdout = std::io::stdout().lock();
    for node in &config.nodes {
        let line = match AgentEndpoint::of(config, tls.as_ref(), folder, node.id) {
            None => "no agent".to_string(),
            Some(agent) => match runtime.block_on(agent.status(Instant::now() + LIMIT)) {
                Ok(status) => describe(&status),
                Err(error) => {
                    code = ExitCode::FAILURE;
                    error.to_string()
                }
            },
        };
        writeln!(stdout, "node {}: {line}", node.id)?;
    }
    Ok(code)
}

fn describe(status: &AgentStatus) -> String {
    let mut parts = vec![match (status.server, status.has_standby_signal) {
        (ServerStatus::Stopped, _) => "stopped".to_string(),
        (ServerStatus::Running(server), is_standby) => {
            let role = if is_standby { "standby" } else { "primary" };
            format!("{role} on port {} {} (process {})", server.port, server.step.name(), server.pid)
        }
    }];
    match status.data {
        DataDirectoryState::Whole => {}
        DataDirectoryState::HalfRewound => parts.push("its files are half rewound, a copy must be made".into()),
        DataDirectoryState::Absent => parts.push("it has no data".into()),
    }
    if let Some(control) = status.control {
        let (timeline, checkpoint) = (control.timeline, show_lsn(control.checkpoint));
        parts.push(format!("PostgreSQL {}, timeline {timeline}, checkpoint {checkpoint}", control.major));
        if !control.can_rewind {
            parts.push("cannot be rewound: neither checksums nor wal_log_hints".into());
        }
    }
    if let Some(job) = status.job {
        parts.push(format!("under way: {job}"));
    }
    if let Some(last) = &status.last {
        parts.push(format!("last order: {last}"));
    }
    parts.join("; ")
}
