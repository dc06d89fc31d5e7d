//! The present state of the server and its data.

use super::processes;
use super::program::{self, ProgramEnd};
use super::site::ServerInstallation;
use rustix::process::Pid;
use std::fs;
use std::time::{Duration, Instant};
use weir_agent::{
    AgentStatus, ConninfoKeyword, ControlFile, DataDirectoryState, Postmaster, ServerStatus, SlotName, WordValue, control_file,
    postmaster, settings,
};
use weir_failover::conninfo::Conninfo;

/// Time for `pg_controldata` and `postgres -C`, which read small files.
const CONTROL_LIMIT: Duration = Duration::from_secs(10);
const PID_FILE_BYTES_MAX: usize = 64 << 10;

/// All but the orders.
pub fn look(site: &ServerInstallation) -> AgentStatus {
    let (server, data) = (server(site), data(site));
    // Only a stopped server is made a standby.
    let slot = if (server, data) == (ServerStatus::Stopped, DataDirectoryState::Whole) { slot(site) } else { None };
    AgentStatus {
        server,
        data,
        slot,
        control: control(site),
        has_standby_signal: site.data.join("standby.signal").exists(),
        mark: mark(site),
        job: None,
        last: None,
    }
}

fn mark(site: &ServerInstallation) -> Option<WordValue> {
    let text = fs::read_to_string(site.data.join("postgresql.auto.conf")).ok()?;
    let conninfo = Conninfo::parse(&settings::get(&text, "primary_conninfo")?)?;
    WordValue::new(conninfo.get(ConninfoKeyword::MARK.as_str())?).ok()
}

/// As `postgres -C` reads it.
fn slot(site: &ServerInstallation) -> Option<SlotName> {
    let command = site.server_program(&["-C", "primary_slot_name"]);
    let ended = program::run(command, Instant::now() + CONTROL_LIMIT, &mut |_| {}).ok()?;
    SlotName::new(ended.out.back()?.trim()).ok()
}

pub fn server(site: &ServerInstallation) -> ServerStatus {
    leader(site, &processes::of_server(&site.data)).map_or(ServerStatus::Stopped, ServerStatus::Running)
}

pub fn leader(site: &ServerInstallation, there: &[Pid]) -> Option<Postmaster> {
    let text = fs::read_to_string(site.data.join("postmaster.pid")).ok().filter(|text| text.len() <= PID_FILE_BYTES_MAX)?;
    let known = postmaster::read(&text)?;
    there.iter().any(|pid| i64::from(pid.as_raw_nonzero().get()) == i64::from(known.pid)).then_some(known)
}

/// `Whole`: all files are of one moment.
pub fn data(site: &ServerInstallation) -> DataDirectoryState {
    if site.kept().exists() {
        DataDirectoryState::HalfRewound
    } else if site.data.join("global/pg_control").exists() {
        DataDirectoryState::Whole
    } else {
        DataDirectoryState::Absent
    }
}

pub fn control(site: &ServerInstallation) -> Option<ControlFile> {
    let mut command = site.program("pg_controldata");
    command.arg("-D").arg(&site.data);
    let mut text = String::new();
    let mut keep = |line: &str| {
        text.push_str(line);
        text.push('\n');
    };
    let ended = program::run(command, Instant::now() + CONTROL_LIMIT, &mut keep).ok()?;
    (ended.end == ProgramEnd::Success).then(|| control_file::read(&text, site.major))?
}
